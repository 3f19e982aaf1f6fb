//! netperf's and iperf3's tests over SCTP, where the kernel has it: between netrig's own ends, and with the original of iperf3 where that
//! is on PATH. All traffic is on loopback.

use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use super::iperf3::peers::{Peer, client, original, pair, serve};
use super::netperf::{netrig, numbers, run, server};
use super::world::own;
use rig_skip::{Lack, skip};

/// Whether there are sockets of SCTP; said aloud, where there are none.
fn has_sctp() -> bool {
    let made = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::SCTP));
    if let Err(error) = &made {
        skip(Lack::Sctp, error);
    }
    made.is_ok()
}

#[test]
fn netperfs_tests_have_their_rows() {
    if !has_sctp() {
        return;
    }
    own(|| {
        let _server = server(netrig("netserver"), "");
        for (options, rows, at) in [("-t SCTP_STREAM -l -1000000", 1, 4), ("-t SCTP_RR -l -100", 2, 5)] {
            let output = run(netrig("netperf"), &format!("-H 127.0.0.1 {options}")).succeeded();
            let found = numbers(&output);
            assert_eq!(found.len(), rows, "{options}: {output:#?}");
            assert!(found[0][at] > 0.0, "{options}: {output:#?}");
        }
    });
}

/// One after the other with each kind of ends: the client's JSON.
#[test]
fn iperf3s_associations_carry_what_both_ends_count() {
    if !has_sctp() {
        return;
    }
    let mut ends = vec![(Peer::Netrig, Peer::Netrig)];
    if let Some(original) = original() {
        ends.extend([(original.clone(), Peer::Netrig), (Peer::Netrig, original)]);
    }
    for (of_server, of_client) in &ends {
        // With `--nstreams` a client of iperf 3.12 stops after its first message, whoever the server is.
        let streams = if matches!(of_client, Peer::Netrig) { " --nstreams 4" } else { "" };
        let last = format!("-n 1M -N -w 128K{streams}");
        for options in ["-n 1M", "-n 1M -R", "-n 1M -P 2", "-t 1 --bidir -b 1M -l 4K", &last] {
            let (said, server) = pair(of_server, "", of_client, &format!("--sctp {options} -J"));
            assert_eq!((said.status, server.status), (Some(0), Some(0)), "{options}: {said:#?}{server:#?}");
            let json: Value = serde_json::from_str(&said.out).unwrap();
            assert_eq!(json["start"]["test_start"]["protocol"], "SCTP", "{options}");
            let [sent, received] = ["sum_sent", "sum_received"].map(|sum| json["end"][sum]["bytes"].as_u64().unwrap());
            assert!(received > 0 && received <= sent, "{options}: {sent} {received}");
            if options.starts_with("-n 1M") {
                // What was not read when the test ends is not counted: a message at most, since its sender has to have room for the next.
                let least = (1 << 20) - (64 << 10);
                assert!(received >= least, "{options}, {of_server:?} and {of_client:?}: {received}");
            }
            let stream = &json["end"]["streams"][0];
            // Older versions of the original have neither.
            assert!(
                matches!(of_client, Peer::Original(_))
                    || stream["sender"]["retransmits"] == 0 && stream["sender"]["max_snd_cwnd"].is_u64(),
                "{options}: {stream}"
            );
        }
    }
}

#[test]
fn a_server_serves_each_kind_of_streams_and_ends_that_have_several_addresses() {
    if !has_sctp() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let server = serve(&Peer::Netrig, "", home.path());
    for options in ["-n 100K", "-n 100K --sctp", "-u -n 100K -b 0", "--sctp -n 100K -X 127.0.0.1 -X 127.0.0.2"] {
        let said = client(&Peer::Netrig, server.port, options, home.path()).end().succeeded();
        assert!(said.out.contains("iperf Done."), "{options}: {said:#?}");
    }
    let said = client(&Peer::Netrig, server.port, "--sctp -X 192.0.2.1 -n 100K", home.path()).end();
    assert!(said.status == Some(1) && said.err.contains("bind to 192.0.2.1"), "{said:#?}");
    drop(server);
    let server = serve(&Peer::Netrig, "-X 127.0.0.1 -X 127.0.0.2", home.path());
    let said = client(&Peer::Netrig, server.port, "--sctp -n 100K", home.path()).end().succeeded();
    assert!(said.out.contains("iperf Done."), "{said:#?}");
}
