//! One end is the original, where it is on PATH.

use super::peers::{Peer, client, json, original, pair, serve};
use super::{masked, members};

/// At full speed once: a stream at a rate is the same to the other end, and takes a tenth of the CPU time.
const MODES: [&str; 15] = [
    "-t 1",
    "-t 1 -R -b 300M",
    "-t 1 --bidir -b 100M",
    "-t 1 -P 3 -b 100M",
    "-t 1 -u -b 10M",
    "-t 1 -u -b 10M -R",
    "-t 1 -u -b 10M -P 2 --udp-counters-64bit",
    "-t 1 -u -b 10M --bidir",
    "-n 5M",
    "-k 30",
    "-O 1 -t 1 -b 300M",
    "-t 1 --get-server-output -b 300M",
    "-t 1 -Z -N -M 1000 -w 256K -S 32 -b 100M",
    "-n 2M -R",
    "-t 1 -b 3000M",
];

#[test]
fn live_our_client_and_the_originals_server() {
    let Some(original) = original() else { return };
    for options in MODES {
        let (client, server) = pair(&original, "", &Peer::Netrig, options);
        assert_eq!((client.status, server.status), (Some(0), Some(0)), "{options}: {client:#?}\n{server:#?}");
        let receiver = client.out.lines().rev().find(|line| line.ends_with("receiver")).unwrap();
        assert!(!receiver.contains(" 0.00 Bytes "), "{options}: {client:#?}");
    }
}

#[test]
fn live_the_originals_client_and_our_server() {
    let Some(original) = original() else { return };
    for options in MODES {
        let (client, server) = pair(&Peer::Netrig, "", &original, options);
        assert_eq!((client.status, server.status), (Some(0), Some(0)), "{options}: {client:#?}\n{server:#?}");
        let receiver = client.out.lines().rev().find(|line| line.ends_with("receiver")).unwrap();
        assert!(!receiver.contains(" 0.00 Bytes "), "{options}: {client:#?}");
    }
}

/// The same but for figures, and for members that versions since the one on PATH have added.
#[test]
fn live_output_is_the_originals() {
    let Some(original) = original() else { return };
    for options in [
        "-t 1",
        "-t 2 -R -b 300M",
        "-t 1 --bidir -b 100M",
        "-t 1 -P 2 -b 100M",
        "-t 1 -u -b 10M -l 1000",
        "-t 2 -u -b 10M -l 1000 -R",
    ] {
        let (theirs, _) = pair(&original, "", &original, options);
        let (ours, _) = pair(&original, "", &Peer::Netrig, options);
        assert_eq!(masked(&ours.out), masked(&theirs.out), "{options}\n{}\n{}", ours.out, theirs.out);
        let (theirs, ours) = (json(&original, &original, options), json(&original, &Peer::Netrig, options));
        let lacking: Vec<_> = members(&theirs).difference(&members(&ours)).cloned().collect();
        assert!(lacking.is_empty(), "{options}: {lacking:?}");
    }
}

#[test]
fn live_several_of_the_originals_clients_are_served_at_once() {
    let Some(original) = original() else { return };
    let home = tempfile::tempdir().unwrap();
    let server = serve(&Peer::Netrig, "", home.path());
    let first = client(&original, server.port, "-t 5 -b 1M", home.path());
    let some = ["-t 1 -b 100M", "-u -t 1 -P 2", "-u -t 1 -R"]
        .map(|options| client(&original, server.port, options, home.path()));
    for one in some.into_iter().chain([first]) {
        let said = one.end().succeeded();
        assert!(said.out.contains("iperf Done."), "{said:#?}");
    }
}
