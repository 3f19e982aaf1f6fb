//! Replays the corpus of the fuzz targets: what once was worth keeping must not panic again. The functions are those
//! that the targets in `fuzz/` call.

use std::fs;
use std::path::{Path, PathBuf};

use netrig_ends::fuzz;
use rig_suite::suite::Suite;

fn corpus(target: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target)
}

/// Calls `play` with every file of a target's corpus.
fn replay<T>(target: &str, play: impl Fn(&[u8]) -> T) {
    let folder = corpus(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut count = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() <= 64 << 10, "{} is too large to be kept: minimise it", path.display());
        // Names the file when a panic comes.
        eprintln!("{}", path.display());
        play(&bytes);
        count += 1;
    }
    assert!((1..=500).contains(&count), "{} has {count} files", folder.display());
}

/// [`replay`] for a target that takes text; input that is no UTF-8 passes.
fn replay_text<T>(target: &str, play: impl Fn(&str) -> T) {
    replay(target, |bytes| std::str::from_utf8(bytes).map(&play));
}

#[test]
fn server() {
    replay("server", fuzz::server);
}

#[test]
fn client() {
    replay("client", fuzz::client);
}

#[test]
fn worker() {
    replay("worker", rig_load::protocol::exercise);
}

#[test]
fn import() {
    replay_text("import", netrig_tools::import::exercise);
}

#[test]
fn host() {
    replay("host", rig_testbed::host::protocol::exercise);
}

#[test]
fn agent() {
    replay("agent", rig_testbed::datapath::protocol::exercise);
}

/// Each line says something that one side knows, in the protocol of today: who changes the protocol sees these lines.
#[test]
fn the_lines_of_a_host_are_still_understood() {
    use rig_testbed::host::protocol::{Answer, FromHost, PROTOCOL, ToHost};

    for name in ["to-a-host", "from-a-host"] {
        let text = fs::read_to_string(corpus("host").join(name)).unwrap();
        let mut lines = text.lines().map(str::as_bytes);
        PROTOCOL.check(lines.next().unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        for line in lines {
            let [to, from] = [ToHost::read(line).is_ok(), FromHost::<Answer>::read(line).is_ok()];
            assert!(to || from, "{name}: {}", line.escape_ascii());
        }
    }
}

#[test]
fn ntttcp() {
    replay("ntttcp", netrig_tools::ntttcp::sync::fuzz);
}

#[test]
fn netperf() {
    replay("netperf", netrig_tools::netperf::fuzz);
}

#[test]
fn iperf3() {
    replay("iperf3", netrig_tools::iperf3::control::fuzz);
}

#[test]
fn dperf() {
    replay("dperf", netrig_tools::dperf::fuzz);
}

#[test]
fn packets() {
    replay("packets", rig_packet::exercise);
}

#[test]
fn suite() {
    replay_text("suite", |text| Suite::parse("corpus.toml", text).map_err(|error| error.to_string()).is_ok());
}

#[test]
fn vrouter() {
    replay_text("vrouter", netrig_vrouter::exercise);
}

#[test]
fn vrouter_packets() {
    replay("vrouter_packets", rig_datapath::vrouter::model::exercise);
}

#[test]
fn lb() {
    replay_text("lb", netrig_lb::exercise::settings);
}

#[test]
fn lb_rules() {
    replay_text("lb_rules", netrig_lb::exercise::rules);
}

#[test]
fn lb_sync() {
    replay("lb_sync", netrig_lb::exercise::sync);
}

#[test]
fn lb_import() {
    replay_text("lb_import", netrig_lb::exercise::imported);
}

#[test]
fn ipvs() {
    replay("ipvs", netrig_lb::exercise::ipvs);
}

#[test]
fn layers() {
    replay_text("layers", rig_facts::layers::exercise);
}

#[test]
fn run() {
    replay_text("run", rig_verdict::compare::exercise);
}

#[test]
fn spread() {
    replay_text("spread", netrig_spread::exercise);
}

/// The corpus is only worth something while it still reaches the depths that it was made for.
#[test]
fn the_long_conversations_still_go_to_their_ends() {
    let read = |target, name: &str| fs::read_to_string(corpus(target).join(name)).unwrap();
    for name in ["two-tests", "keyed"] {
        assert_eq!(fuzz::server(read("server", name).as_bytes()), 2, "{name}");
        assert_eq!(fuzz::client(read("client", name).as_bytes()), 2, "{name}");
    }
    for (name, responses) in [("client-chunked", 4), ("server-requests", 4), ("server-large", 1)] {
        let bytes = fs::read(corpus("packets").join(name)).unwrap();
        assert_eq!(rig_packet::exercise(&bytes), responses, "{name}");
    }
    for (name, lines) in [("to-an-agent", 5), ("from-an-agent", 8)] {
        let text = read("agent", name);
        assert_eq!(rig_testbed::datapath::protocol::exercise(text.as_bytes()), lines, "{name}");
    }
    assert_eq!(netrig_vrouter::exercise(&read("vrouter", "manual")), 6);
    assert_eq!(netrig_lb::exercise::settings(&read("lb", "study")), 10);
    assert_eq!(netrig_lb::exercise::settings(&read("lb", "everything")), 8);
    assert_eq!(netrig_lb::exercise::rules(&read("lb_rules", "saved")), 7);
    assert_eq!(netrig_lb::exercise::rules(&read("lb_rules", "edits")), 12);
    assert_eq!(netrig_lb::exercise::sync(&fs::read(corpus("lb_sync").join("records")).unwrap()), 3);
    assert_eq!(netrig_lb::exercise::imported(&read("lb_import", "keepalived")), 4);
    assert_eq!(netrig_lb::exercise::imported(&read("lb_import", "saved")), 3);
    assert_eq!(netrig_lb::exercise::ipvs(&fs::read(corpus("ipvs").join("session")).unwrap()), 1);
    assert_eq!(rig_facts::layers::exercise(&read("layers", "mine")), 9);
    assert!(rig_verdict::compare::exercise(&read("run", "two-scenarios")) > 10);
    assert_eq!(netrig_spread::exercise(&read("spread", "both-names")), 2);
    assert_eq!(rig_datapath::vrouter::model::exercise(&fs::read(corpus("vrouter_packets").join("walks")).unwrap()), 9);
}

#[test]
fn every_target_has_a_corpus_and_a_test() {
    let targets = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets"));
    let this = include_str!("corpus.rs");
    for entry in fs::read_dir(targets).unwrap() {
        let target = entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        assert!(corpus(&target).is_dir(), "{target} has no corpus");
        let is_replayed = ["replay", "replay_text"].iter().any(|by| this.contains(&format!("{by}(\"{target}\"")));
        assert!(is_replayed, "{target} is not replayed");
    }
}
