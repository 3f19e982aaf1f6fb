use super::*;
use crate::claim::{Metric, Side};
use crate::testbed::topology::Path;

const LAYERS: &str = BUILT_IN[0].1;

/// A small suite with one line replaced.
fn parse_with(line: &str, replacement: &str) -> Result<Suite, SuiteError> {
    let text = r#"name = "small"
title = "Small"
[defaults]
window = "1s"
warm_up = "100ms"
cool_down = "50ms"
confidence = { level = "95%", width = "5%", min = 3, max = 10 }
[testbed.two]
nodes = ["a", "b"]
wire = { mtu = 1500 }
[[scenario]]
id = "A"
name = "Raw"
testbed = "two"
path = "raw"
from = "a"
to = "b"
load = { kind = "tcp-stream", message = "128k" }
[[claim]]
text = "It carries something"
holds = "A.throughput > 1Mbit"
"#;
    assert!(text.contains(line), "the suite has no line {line:?}");
    Suite::parse("small.toml", &text.replace(line, replacement))
}

#[test]
fn the_built_in_suites_are_valid() {
    for suite in Suite::built_in() {
        let suite = suite.unwrap();
        assert!(suite.quick.is_some(), "{} has no quick timing", suite.name);
    }
}

#[test]
fn layers_reproduces_the_studys_options() {
    let suite = Suite::parse("layers.toml", LAYERS).unwrap();
    let ids: Vec<&str> = suite.scenarios.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids, ["A", "B", "C", "D", "E", "F", "C4", "T2", "T8"]);
    let b = suite.scenario("B").unwrap();
    assert_eq!(b.topology.path(), Path::Bridge);
    assert_eq!((b.send.message, b.receive.message), (128 * 1024, 64 * 1024));
    assert_eq!(b.send.engine, rig_load::plan::Engine::Uring { outstanding: 2 });
    assert_eq!(b.receive.engine, rig_load::plan::Engine::Uring { outstanding: 16 });
    assert_eq!(b.receive.receive_buffer, Some(2 << 20));
    let f = suite.scenario("F").unwrap();
    assert_eq!((f.send.message, f.receive.message, f.send.no_delay), (1390, 64 * 1024, true));
    assert!(!f.topology.segmentation_offload());
    assert_eq!(suite.scenario("C4").unwrap().pairs.len(), 2);
    assert_eq!(suite.timing.phases.window.as_secs(), 15);
}

#[test]
fn mistakes_are_named_with_their_line_and_a_next_step() {
    let cases = [
        ("title = \"Small\"", "titel = \"Small\"", 2, "titel"),
        ("window = \"1s\"", "window = \"1 parsec\"", 4, "parsec"),
        ("window = \"1s\"", "window = \"1ms\"", 4, "too short"),
        ("warm_up = \"100ms\"", "warm_up = \"2h\"", 4, "hour"),
        ("min = 3, max = 10", "min = 3, max = 1", 7, "max"),
        ("wire = { mtu = 1500 }", "wire = { mtu = 15 }", 15, "15"),
        ("wire = { mtu = 1500 }", "wire = { rate = \"10KB\" }", 10, "10KB"),
        ("id = \"A\"", "id = \"A 1\"", 12, "A 1"),
        ("testbed = \"two\"", "testbed = \"three\"", 14, "three"),
        ("path = \"raw\"", "path = \"rwa\"", 15, "rwa"),
        ("path = \"raw\"", "path = \"colocated\"", 15, "containers"),
        ("to = \"b\"", "to = \"c\"", 15, "unknown node"),
        ("to = \"b\"", "to = \"a\"", 17, "twice"),
        ("to = \"b\"", "to = [\"b\", \"a\"]", 17, "2 receivers"),
        ("to = \"b\"", "to = 5", 17, "endpoint"),
        ("message = \"128k\"", "message = \"0\"", 18, "message"),
        ("message = \"128k\"", "message = \"65M\"", 18, "from 1 to 67108864"),
        ("message = \"128k\"", "message = \"5G\"", 18, "less than 4 GiB"),
        ("message = \"128k\"", "message = \"128k\", receive_message = \"0\"", 18, "at the receiver, the message is 0"),
        ("message = \"128k\"", "message = \"128k\", send_buffer = \"1G\"", 18, "send buffer"),
        ("message = \"128k\"", "message = \"128k\", threads = 0", 18, "thread"),
        ("kind = \"tcp-stream\"", "kind = \"tcp-steam\"", 18, "tcp-steam"),
        ("holds = \"A.throughput > 1Mbit\"", "holds = \"B.throughput > 1Mbit\"", 21, "no scenario 'B'"),
        ("holds = \"A.throughput > 1Mbit\"", "holds = \"A.throughput >\"", 21, ""),
    ];
    for (line, replacement, expected_line, expected) in cases {
        let error = parse_with(line, replacement).expect_err(replacement);
        assert_eq!(error.line, Some(expected_line), "{replacement}: {error}");
        let text = error.to_string();
        assert!(text.contains(expected), "{replacement}: '{text}' lacks '{expected}'");
        assert!(text.starts_with("small.toml:"), "{text}");
    }
}

#[test]
fn a_suite_that_does_not_exist_names_those_that_do() {
    let error = Suite::load("no-such-suite").unwrap_err().to_string();
    assert!(error.contains("layers"), "{error}");
}

#[test]
fn only_keeps_the_suites_order_and_refuses_unknown_ids() {
    let suite = Suite::parse("layers.toml", LAYERS).unwrap();
    let ids = ["F".to_owned(), "A".to_owned()];
    let kept: Vec<String> = suite.clone().only(&ids).unwrap().scenarios.into_iter().map(|s| s.id).collect();
    assert_eq!(kept, ["A", "F"]);
    assert!(suite.only(&["Z".to_owned()]).unwrap_err().to_string().contains("C4"));
}

#[test]
fn a_load_that_no_engine_can_carry_is_refused_with_its_line() {
    let load = "load = { kind = \"tcp-stream\", message = \"128k\" }";
    let with = |more: &str| load.replace(" }", &format!(", {more} }}"));
    for more in ["outstanding = { send = 0 }", "outstanding = { send = 2 }, send_mode = \"sendfile\""] {
        let error = parse_with(load, &with(more)).unwrap_err();
        assert_eq!(error.line, Some(18), "{more}: {error}");
    }
    let suite = parse_with(load, &with("outstanding = { receive = 2 }, send_mode = \"sendfile\"")).unwrap();
    assert_eq!(suite.scenarios[0].receive.message, 128 * 1024);
}

/// The small suite with a table after its claim.
fn with_table(table: &str) -> Result<Suite, SuiteError> {
    parse_with("holds = \"A.throughput > 1Mbit\"", &format!("holds = \"A.throughput > 1Mbit\"\n[[table]]\n{table}"))
}

const NETPERF: &str = r#"title = "TCP_STREAM"
layout = "netperf"
source = "a study"
cases = [
  { head = "raw", scenario = "A", reference = { throughput = "857.39mbit", local = { cpu = 6.39, demand = 2.444 } } },
]"#;

const OVERVIEW: &str = r#"title = "All"
layout = "overview"
tests = ["TCP_STREAM"]
baseline = "raw"
cases = [
  { head = "raw", scenarios = ["A"] },
]"#;

#[test]
fn tables_have_the_layout_that_they_name() {
    let table = |text| with_table(text).unwrap().tables.remove(0);
    let columns = table("title = \"T\"\ncolumns = [{ head = \"h\", scenario = \"A\" }]");
    assert_eq!(columns.columns()[0].head, "h");
    let netperf = table(NETPERF);
    let Form::Netperf(cases) = &netperf.form else { panic!("{netperf:?}") };
    let published = &cases[0].published;
    assert_eq!(published.get(Side::Receiver, Metric::Throughput), Some(857.39e6));
    assert_eq!(published.get(Side::Local, Metric::ServiceDemand), Some(2.444));
    assert_eq!(published.get(Side::Remote, Metric::Cpu), None);
    let overview = table(OVERVIEW);
    let Form::Overview(Overview { tests, cases, baseline }) = &overview.form else { panic!("{overview:?}") };
    assert_eq!((tests.as_slice(), baseline.as_str()), (&["TCP_STREAM".to_owned()][..], "raw"));
    assert_eq!(cases[0].scenarios, ["A"]);
}

#[test]
fn mistakes_in_tables_are_named_with_their_line() {
    let in_netperf = |from: &str, to: &str| NETPERF.replace(from, to);
    let in_overview = |from: &str, to: &str| OVERVIEW.replace(from, to);
    let cases = [
        ("title = \"T\"".to_owned(), 23, "the table 'T' has no columns"),
        ("title = \"T\"\nlayout = \"grid\"".to_owned(), 24, "grid"),
        ("title = \"T\"\ncolumns = [{ head = \"h\", scenario = \"Z\" }]".to_owned(), 24, "no scenario 'Z'"),
        ("title = \"T\"\ncolumns = []\ncases = []".to_owned(), 25, "a table in the layout 'columns' has no cases"),
        (in_netperf("\"A\"", "\"Z\""), 27, "no scenario 'Z'"),
        (in_netperf("scenario = \"A\"", "scenarios = [\"A\"]"), 27, "one scenario, not a list"),
        (in_netperf("scenario = \"A\", ", ""), 27, "the case 'raw' has no scenario"),
        (in_netperf("throughput = \"857.39mbit\"", "transactions = 5.0"), 27, "tcp-stream has no transactions"),
        (in_netperf("throughput = \"857.39mbit\"", "sent = \"5mbit\""), 27, "tcp-stream has no sent"),
        (in_netperf("cpu = 6.39", "cpu = -1.0"), 27, "a published figure of -1"),
        (in_netperf("cpu = 6.39", "gpu = 6.39"), 27, "gpu"),
        (in_netperf("source", "tests = [\"x\"]\nsource"), 25, "the layout 'netperf' has no tests"),
        (in_overview("[\"A\"]", "[\"Z\"]"), 28, "no scenario 'Z'"),
        (in_overview("[\"A\"]", "[\"A\", \"A\"]"), 28, "has 2 scenarios for 1 tests"),
        (in_overview("baseline = \"raw\"", "baseline = \"rwa\""), 26, "no case 'rwa'"),
        (in_overview("baseline = \"raw\"\n", ""), 23, "has no baseline"),
        (in_overview("tests = [\"TCP_STREAM\"]", "tests = []"), 25, "has no tests"),
        (in_overview("scenarios = [\"A\"]", "scenario = \"A\""), 28, "a list of scenarios"),
        (in_overview("},\n", "}, { head = \"raw\", scenarios = [\"A\"] },\n"), 28, "two cases 'raw'"),
    ];
    for (table, line, expected) in cases {
        let error = with_table(&table).expect_err(&table);
        assert!(error.to_string().contains(expected), "{table}\n{error}");
        assert_eq!(error.line, Some(line), "{table}\n{error}");
    }
}
