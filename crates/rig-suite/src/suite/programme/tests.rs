use rig_facts::claim::{Side, Threshold};

use super::super::Suite;
use super::*;

const LOAD: &str = "kind = \"tcp-rr\", rate = 1000";

/// A suite with one scenario of this load and these lines; its phases begin at line 12 at the earliest.
fn suite(load: &str, lines: &str) -> Result<Suite> {
    let text = format!(
        "name = \"s\"\ntitle = \"S\"\n[defaults]\nwindow = \"1s\"\nwarm_up = \"1s\"\ncool_down = \"1s\"\n[testbed.t]\n\
         nodes = [\"a\", \"b\"]\nwire = {{}}\n[[scenario]]\n\
         id = \"x\"\nname = \"X\"\ntestbed = \"t\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\nload = {{ {load} }}\n{lines}"
    );
    Suite::parse("s.toml", &text)
}

/// Number of the first of the lines.
const FIRST: usize = 18;

fn programme(load: &str, lines: &str) -> Programme {
    suite(load, lines).unwrap_or_else(|error| panic!("{lines}: {error}")).scenarios.remove(0).programme
}

#[track_caller]
fn refused(load: &str, lines: &str, line: usize, words: &[&str]) {
    let error = suite(load, lines).expect_err(lines);
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "'{word}' is not in: {message}");
    }
    assert_eq!(error.line, Some(FIRST + line), "{message}");
}

fn one(keys: &str) -> String {
    format!("[[scenario.phase]]\nname = \"p\"\n{keys}")
}

#[test]
fn a_scenario_without_phases_is_a_plain_window() {
    assert!(programme(LOAD, "").is_plain());
    let sampled = programme(LOAD, "sample = \"10ms\"");
    assert_eq!(sampled.sample, Some(Duration::from_millis(10)));
    assert_eq!(sampled.phases, Programme::default().phases);
}

#[test]
fn phases_are_read() {
    let lines = r#"
sample = "50ms"
under = { kind = "tcp-stream", message = "1k", throttle = "1GB/s" }
[[scenario.phase]]
name = "quarter"
rate = "25% of limit"
[[scenario.phase]]
name = "both"
rate = 5000
under_rate = "10KB/s"
time = "3s"
[[scenario.phase]]
name = "settle"
rate = "10k"
under_rate = 0
until = "transactions >= 9000"
hold = "500ms"
deadline = "90s"
"#;
    let programme = programme(LOAD, lines);
    assert_eq!(programme.sample, Some(Duration::from_millis(50)));
    let own = |rate| Step::Rate { load: ScenarioLoad::Own, rate };
    let under = |rate| Step::Rate { load: ScenarioLoad::Under, rate: Rate::At(rate) };
    let [quarter, both, settle] = programme.phases.as_slice() else { panic!("{programme:?}") };
    assert_eq!((quarter.steps.as_slice(), &quarter.lasts), (&[own(Rate::OfLimit(0.25))][..], &PhaseLength::Window));
    assert_eq!(both.steps, [own(Rate::At(5000.0)), under(10_240.0)]);
    assert_eq!(both.lasts, PhaseLength::Time(Duration::from_secs(3)));
    assert_eq!(settle.steps, [own(Rate::At(10_000.0)), under(0.0)]);
    let PhaseLength::Until(wait) = &settle.lasts else { panic!("{settle:?}") };
    assert_eq!((wait.hold, wait.deadline), (Duration::from_millis(500), Duration::from_secs(90)));
    assert_eq!((wait.condition.side, wait.condition.metric), (Side::Local, Metric::Transactions));
    assert_eq!(wait.condition.threshold, Threshold::AtLeast(9000.0));
    assert!(programme.needs_limit());
    let text = serde_json::to_string(&programme).unwrap();
    assert_eq!(serde_json::from_str::<Programme>(&text).unwrap(), programme);
}

#[test]
fn mistakes_are_told_at_their_line() {
    refused(LOAD, &one("rte = 5"), 2, &["unknown field `rte`", "did you mean `rate`?"]);
    refused(LOAD, "[[scenario.phase]]\nname = \"2p\"", 1, &["'2p' is not a name of a phase"]);
    refused(LOAD, "[[scenario.phase]]\nname = \"receiver\"", 1, &["as a side or a figure is"]);
    refused(LOAD, "[[scenario.phase]]\nname = \"cpu\"", 1, &["would be ambiguous"]);
    let twice = "[[scenario.phase]]\nname = \"p\"\n[[scenario.phase]]\nname = \"p\"";
    refused(LOAD, twice, 3, &["described twice"]);
    refused(LOAD, &one("time = \"10ms\""), 2, &["a phase of 10ms", "at least 100ms"]);
    refused(LOAD, &one("time = \"2h\""), 0, &["phases of 7200s together", "an hour"]);
    refused(LOAD, "sample = \"1ms\"", 0, &["a sample each 1ms", "from 10ms to 10s"]);
}

#[test]
fn rates_that_cannot_be_are_refused() {
    refused(LOAD, &one("rate = -1"), 2, &["a rate of -1", "0 to stop"]);
    refused(LOAD, &one("rate = 1e9"), 2, &["transactions per second", "choose from"]);
    refused(LOAD, &one("rate = \"25 of limit\""), 2, &["is not a share of the limit", "25% of limit"]);
    refused(LOAD, &one("rate = \"25% of limt\""), 2, &["did you mean \"25% of limit\"?"]);
    refused(LOAD, &one("rate = \"0% of limit\""), 2, &["more than 0"]);
    refused(LOAD, &one("rate = true"), 2, &["expected a rate such as 1000"]);
    refused(LOAD, &one("under_rate = 5"), 2, &["nothing runs under scenario 'x'"]);
    refused("kind = \"tcp-rr\"", &one("rate = 5"), 2, &["tcp-rr, has none", "give the load a `rate`"]);
    let stream = "kind = \"tcp-stream\", message = \"1k\"";
    refused(stream, &one("rate = \"1GB/s\""), 2, &["give the load a `throttle`"]);
    let paced = format!("{stream}, throttle = \"1GB/s\"");
    refused(&paced, &one("rate = 5000"), 2, &["for a stream", "10000KB/s"]);
    refused(&paced, &one("rate = \"5 parsecs\""), 2, &["25% of limit"]);
    let under = format!("{paced} }}\nunder = {{ kind = \"tcp-rr\", rate = 5");
    refused(&under, &one("under_rate = \"5% of limit\""), 3, &["another load's", "write a rate"]);
    let packets = "kind = \"packets\", protocol = \"tcp\", connections_per_second = 100";
    refused(packets, &one("rate = \"50% of limit\""), 2, &["nothing searches", "loss-free"]);
    let searched = "kind = \"packets\", protocol = \"tcp\", search = \"loss-free\"";
    refused(searched, &one("rate = 50"), 0, &["that no phase uses"]);
}

#[test]
fn waits_that_cannot_end_are_refused() {
    refused(LOAD, &one("hold = \"1s\""), 2, &["'hold' in a phase that waits for nothing"]);
    refused(LOAD, &one("deadline = \"1s\""), 2, &["'deadline' in a phase that waits for nothing"]);
    refused(LOAD, &one("until = \"transactions > 5\""), 2, &["without a deadline"]);
    let wait = |until: &str, keys: &str| one(&format!("until = \"{until}\"\n{keys}"));
    let deadline = "deadline = \"2s\"";
    refused(LOAD, &wait("transactions > 5", "deadline = \"2s\"\ntime = \"1s\""), 4, &["both 'time' and 'until'"]);
    refused(LOAD, &wait("transactions > 5", "deadline = \"2s\"\nhold = \"2s\""), 3, &["the deadline has to be later"]);
    refused(
        LOAD,
        &wait("latency_p99 < 1ms", deadline),
        2,
        &["not known while the load runs", "can wait for throughput"],
    );
    refused(LOAD, &wait("throughput > 1Gbit", deadline), 2, &["has no throughput"]);
    refused(LOAD, &wait("transactions", deadline), 2, &["column 13", "compares nothing"]);
    refused(LOAD, &wait("transactions / 2 > 1", deadline), 2, &["is not a condition"]);
    refused(LOAD, &wait("background_throughput > 1bit", deadline), 2, &["nothing runs under"]);
}

#[test]
fn claims_name_phases() {
    let claimed = |holds: &str| {
        let lines = format!("{}\n[[claim]]\ntext = \"T\"\nholds = \"{holds}\"", one("rate = 500"));
        suite(LOAD, &lines).map(|suite| suite.claims[0].figures().to_vec())
    };
    let figures = claimed("x.p.latency_p99 <= 2 * x.p.latency_p50").unwrap();
    assert!(figures.iter().all(|figure| figure.phase.as_deref() == Some("p")));
    assert_eq!(claimed("t95(x.p) <= 100ms").unwrap(), claimed("x.p.t95 <= 100ms").unwrap());
    assert_eq!(claimed("x.p.local.cpu < 5").unwrap()[0].side, Side::Local);
    for (holds, words) in [
        ("x.q.transactions > 1", "no phase 'q' in scenario 'x'"),
        ("x.locl.transactions > 1", "did you mean local?"),
        ("x.t95 > 1s", "write t95(x.PHASE)"),
        ("t95(x) > 1s", "t95 is of a phase"),
        ("x.p.limit > 1", "not counted by phase"),
        ("x.limit > 1", "only packets has it"),
    ] {
        let error = claimed(holds).unwrap_err().to_string();
        assert!(error.contains(words), "{holds}: {error}");
    }
    let watch = format!("watch = [\"p.latency_p99\"]\n{}", one("rate = 500"));
    refused(LOAD, &watch, 0, &["'watch' names phase 'p'"]);
}

#[test]
fn a_rate_and_its_absence_go_into_the_load() {
    let paced = "kind = \"tcp-stream\", message = \"1k\", throttle = \"1GB/s\", threads = 2";
    for load in [LOAD, paced, "kind = \"udp-stream\", message = \"1k\", throttle = \"1GB/s\""] {
        let traffic = suite(load, "").unwrap().scenarios.remove(0).traffic;
        let at = traffic.at_rate(5000.0);
        match (&at.connect, &traffic.unpaced().connect) {
            (RequestedLoad::TcpRr(at), RequestedLoad::TcpRr(unpaced)) => {
                assert!(matches!(at.schedule, Schedule::Open { rate: 5000.0, .. }));
                assert_eq!(unpaced.schedule, Schedule::Closed);
            }
            (RequestedLoad::TcpStream(at), RequestedLoad::TcpStream(unpaced)) => {
                assert_eq!((at.throttle, unpaced.throttle), (Some(5000), None));
            }
            (RequestedLoad::UdpStream(at), RequestedLoad::UdpStream(unpaced)) => {
                assert_eq!((at.throttle, unpaced.throttle), (Some(5000), None));
            }
            other => panic!("{other:?}"),
        }
    }
}
