//! One end is the original, where it is on PATH.

use std::path::PathBuf;
use std::process::Command;

use super::super::world::own;
use super::{HERE, give_addresses, netrig, numbers, run, server, value};

/// The originals, if both are on PATH.
fn originals() -> Option<[PathBuf; 2]> {
    let find = |name: &str| {
        let path = std::env::var_os("PATH")?;
        // A link of this name to netrig is no original.
        let is_original = |path: &PathBuf| {
            let version = Command::new(path).arg("-V").output().ok();
            version.is_some_and(|said| !String::from_utf8_lossy(&said.stdout).contains("netrig"))
        };
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file() && is_original(path))
    };
    Some([find("netperf")?, find("netserver")?])
}

const TESTS: [&str; 16] = [
    "-t TCP_STREAM -l 1 -c -C",
    "-t TCP_STREAM -l 1 -I 95,500 -i 3",
    "-t TCP_STREAM -l 1 -T 0,0 -- -m 1400 -M 3000 -s 64K -S 128K -D",
    "-t TCP_STREAM -l -10000000",
    "-t TCP_MAERTS -l 1 -C",
    "-t TCP_MAERTS -l 1 -D 0.3 -- -m ,1400",
    "-t TCP_RR -l 1 -c -C",
    "-t TCP_RR -l 1 -v 2 -- -b 8 -r 10,200",
    "-t TCP_RR -l -1000",
    "-t TCP_CRR -l 1 -C",
    "-t UDP_STREAM -l 1 -C -- -R 1",
    "-t UDP_STREAM -l 1 -- -m 1400 -R 1",
    "-t UDP_RR -l 1 -C",
    "-t UDP_RR -l 1 -- -n -N -r 100,1400",
    "-t TCP_RR -l 1 -Z ignored",
    "-t omni -l 1 -- -c -d rr -o THROUGHPUT,P99_LATENCY,MAX_LATENCY",
];

/// The words of an output without its numbers, where a layout is the same.
fn words(text: &str) -> Vec<String> {
    let shown = |line: &&str| !line.starts_with("Interim") && !line.contains(" TEST from ");
    let letters = |word: &&str| !word.is_empty() && word.parse::<f64>().is_err();
    text.lines().filter(shown).flat_map(|line| line.split([' ', ',', ':']).filter(letters).map(str::to_owned)).collect()
}

#[test]
fn live_each_end_works_with_the_original_and_looks_like_it() {
    let Some([netperf, netserver]) = originals() else {
        return rig_skip::skip(rig_skip::Lack::Program("netperf"), "no netperf and netserver on PATH");
    };
    own(|| {
        give_addresses();
        let mut said: Vec<(bool, String, Vec<String>)> = Vec::new();
        for ours in [true, false] {
            // Our client with their server, and theirs with ours.
            let _server = server(if ours { Command::new(&netserver) } else { netrig("netserver") }, "");
            for host in HERE {
                for test in TESTS {
                    let client = if ours { netrig("netperf") } else { Command::new(&netperf) };
                    let output = run(client, &format!("-H {host} {test}")).succeeded();
                    let row = if test.contains("omni") {
                        let line = output.out.lines().last().unwrap();
                        line.split(',').map(|value| value.parse().unwrap()).collect()
                    } else {
                        numbers(&output).remove(0)
                    };
                    let at = if test.contains("omni") {
                        0
                    } else if row.len() > 5 && !test.contains("TCP_S") && !test.contains("TCP_M") {
                        5
                    } else {
                        4
                    };
                    assert!(row[at] > 0.0, "{test}: {output:#?}");
                    // The sizes before the result: of sockets and messages.
                    let sizes = if test.contains("omni") {
                        0
                    } else if test.contains("UDP_S") {
                        2
                    } else {
                        3
                    };
                    let sizes = row[..sizes].iter().map(ToString::to_string);
                    said.push((ours, format!("{host} {test}"), sizes.chain(words(&output.out)).collect()));
                }
            }
        }
        let (our, their) = said.split_at(said.len() / 2);
        for ((_, test, ours), (_, _, theirs)) in our.iter().zip(their) {
            // How CPU time was found is the server's word, histograms are the build's, and latencies of one are the other's.
            let same = |words: &[String]| -> Vec<String> {
                words
                    .iter()
                    .filter(|word| word.len() > 1 || word.parse::<f64>().is_ok())
                    .take_while(|word| *word != "Histogram")
                    .cloned()
                    .collect()
            };
            if !test.contains("-I") {
                assert_eq!(same(ours), same(theirs), "{test}");
            }
        }
    });
}

#[test]
fn live_selectors_come_from_both_ends() {
    let Some([netperf, netserver]) = originals() else {
        return rig_skip::skip(rig_skip::Lack::Program("netperf"), "no netperf and netserver on PATH");
    };
    own(|| {
        give_addresses();
        let list = "LOCAL_CONG_CONTROL,REMOTE_CONG_CONTROL,LOCAL_SOCKET_TOS,REMOTE_SOCKET_TOS,LOCAL_SOCKET_PRIO,REMOTE_SOCKET_PRIO,\
                    LOCAL_BYTES_SENT,REMOTE_BYTES_RECVD,TRANSPORT_MSS,RSR_SIZE,LSS_SIZE,DIRECTION,SOCKET_TYPE,REMOTE_NODELAY";
        let line = format!("-H {} -P 0 -l 1 -Y CS1,EF -y 2,3 -- -D -s 64K -S 128K -K reno,reno -k {list}", HERE[0]);
        let mut found = Vec::new();
        for ours in [true, false] {
            let _server = server(if ours { Command::new(&netserver) } else { netrig("netserver") }, "");
            let output = run(if ours { netrig("netperf") } else { Command::new(&netperf) }, &line).succeeded();
            // netperf does not count what its last send had handed over when the time ended.
            if ours {
                assert_eq!(value(&output, "LOCAL_BYTES_SENT"), value(&output, "REMOTE_BYTES_RECVD"));
            }
            let steady = list.split(',').filter(|name| !name.contains("BYTES"));
            found.push(steady.map(|name| format!("{name}={}", value(&output, name))).collect::<Vec<_>>());
        }
        assert_eq!(found[0], found[1]);
    });
}
