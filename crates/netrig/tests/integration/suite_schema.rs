//! The JSON Schema of suite files: what it takes, what it refuses, and that it never refuses what netrig reads.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use jsonschema::Validator;
use rig_stats::units::{BitRate, ByteRate, Bytes, PerSecond, Percent, Span};
use rig_suite::suite::{Suite, schema};
use serde_json::{Value, json};

fn validator() -> Validator {
    jsonschema::validator_for(schema().as_value()).unwrap()
}

fn faults(validator: &Validator, text: &str) -> Vec<String> {
    let file: Value = toml::from_str(text).unwrap();
    validator.iter_errors(&file).map(|fault| format!("{}: {fault}", fault.instance_path())).collect()
}

#[test]
fn every_suite_that_is_shipped_fits() {
    let validator = validator();
    let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites");
    let files: Vec<_> = fs::read_dir(suites).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= Suite::built_in().count(), "{files:?}");
    for file in files {
        let faults = faults(&validator, &fs::read_to_string(&file).unwrap());
        assert!(faults.is_empty(), "{}: {faults:#?}", file.display());
    }
}

const SUITE: &str = r#"name = "small"
title = "Small"
[defaults]
window = "1s"
warm_up = "100ms"
cool_down = "50ms"
confidence = { level = "95%", width = "+-2.5%", min = 3, max = 10 }
load = { congestion_control = "cubic", receive_buffer = "64k" }
[quick]
window = "100ms"
warm_up = "0s"
cool_down = "0s"
trials = 2
[testbed.two]
nodes = ["a", "b"]
wire = { mtu = 1500, rate = "1Gbit", queues = 2 }
[[scenario]]
id = "A"
name = "Raw"
testbed = "two"
path = "raw"
from = "a"
to = "b"
load = { kind = "tcp-rr", rate = 10000, request = 64, in_flight = 2 }
under = { kind = "tcp-stream", message = "128k", throttle = "10000KB/s", from = ["b"], to = ["a"] }
phase = [{ name = "low", rate = "25% of limit", time = "1s" }, { name = "none", rate = 0, under_rate = "1MB/s" }]
[[scenario]]
id = "B"
name = "Packets"
testbed = "two"
path = "raw"
from = "a"
to = "b"
load = { kind = "packets", protocol = "tcp", search = { goal = "loss-free", most = "1M" }, client_ports = [2000, 2999], workers = 2 }
[[claim]]
text = "It carries something"
holds = "A.transactions > 1"
"#;

/// What is wrong by the letter is refused by the schema and by netrig, which says more.
#[test]
fn a_mistake_in_the_letter_is_found_by_the_schema_and_by_netrig() {
    let validator = validator();
    assert_eq!(faults(&validator, SUITE), Vec::<String>::new());
    Suite::parse("small.toml", SUITE).unwrap();
    for (line, replacement) in [
        ("title = \"Small\"", "titel = \"Small\""),
        ("title = \"Small\"", ""),
        ("window = \"1s\"", "window = \"1 parsec\""),
        ("window = \"1s\"", "window = 1"),
        ("level = \"95%\"", "level = \"high\""),
        ("trials = 2", "trials = 0"),
        ("mtu = 1500", "mut = 1500"),
        ("rate = \"1Gbit\"", "rate = \"10KB\""),
        ("id = \"A\"", "id = \"1 A\""),
        ("path = \"raw\"", "path = \"rwa\""),
        ("to = \"b\"", "to = 5"),
        ("kind = \"tcp-rr\"", "kind = \"tcp-rrr\""),
        ("in_flight = 2", "in_flght = 2"),
        ("in_flight = 2", "in_flight = \"two\""),
        // Keys of other kinds.
        ("in_flight = 2", "message = \"1k\""),
        ("in_flight = 2", "from = \"a\""),
        ("kind = \"tcp-rr\"", "kind = \"tcp-crr\""),
        ("message = \"128k\"", "batch = 2"),
        ("throttle = \"10000KB/s\"", "throttle = \"1gbit\""),
        ("rate = 10000", "rate = \"1gbit\""),
        ("rate = \"25% of limit\"", "rate = \"25% of limits\""),
        ("protocol = \"tcp\"", "protocol = \"sctp\""),
        ("goal = \"loss-free\"", "goal = \"fastest\""),
        ("client_ports = [2000, 2999]", "client_ports = \"80\""),
        ("workers = 2 }", "workers = \"most\" }"),
        ("client_ports = [2000, 2999]", "threads = 2"),
        ("holds =", "hold ="),
    ] {
        assert!(SUITE.contains(line), "the suite has no {line}");
        let text = SUITE.replacen(line, replacement, 1);
        assert!(!faults(&validator, &text).is_empty(), "the schema takes {replacement:?}");
        assert!(Suite::parse("small.toml", &text).is_err(), "netrig takes {replacement:?}");
    }
}

/// An error of the schema names the key and the kind of its load.
#[test]
fn a_key_of_another_kind_is_named() {
    let faults = faults(&validator(), &SUITE.replace("in_flight = 2", "message = \"1k\""));
    assert!(
        faults.iter().any(|fault| fault.starts_with("/scenario/0/load") && fault.contains("message")),
        "{faults:?}"
    );
}

/// A text that netrig reads is in the form that the schema knows.
#[test]
fn texts_that_are_read_fit_their_patterns() {
    let validator = |name: &str| {
        let mut of = schema().to_value();
        of.as_object_mut().unwrap().retain(|key, _| key == "$defs");
        of["$ref"] = format!("#/$defs/{name}").into();
        jsonschema::validator_for(&of).unwrap()
    };
    macro_rules! check {
        ($type:ident, $texts:expr, $wrong:expr) => {
            let validator = validator(stringify!($type));
            for text in $texts {
                text.parse::<$type>().unwrap();
                assert!(validator.is_valid(&json!(text)), "{}: {text:?}", stringify!($type));
            }
            for text in $wrong {
                assert!(text.parse::<$type>().is_err() && !validator.is_valid(&json!(text)), "{text:?}");
            }
        };
    }
    check!(Bytes, ["1390", "128k", "64KiB", " 2 M ", "1.5G", "0"], ["", "k", "1.2.3k", "128kbit", "-1"]);
    check!(BitRate, ["100mbit", "658.291Mbit", "10Gbit/s", "1 gBiT/S"], ["10", "10MB", "mbit", "5bps"]);
    check!(ByteRate, ["10000KB/s", "2.5MiB/s", "1B/s"], ["10", "1KB", "1kbit/s"]);
    check!(Span, ["15s", "1.5s", "500 ms", "20us", "20\u{b5}s", "2m", "2min", "1h"], ["15", "1 parsec", "s"]);
    check!(PerSecond, ["10000", "0.5", "1e6", "10k", "1.5M/s", "10 K /s"], ["1gbit", "fast", "-1"]);
    check!(Percent, ["5%", "2.5 %", "2.5"], ["five", "-5%"]);
}

#[test]
fn schemas_are_printed_by_name() {
    let netrig = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_netrig")).arg("schema").args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    for name in ["suite", "suite.json"] {
        let (status, printed, _) = netrig(&[name]);
        assert_eq!((status, serde_json::from_str::<Value>(&printed).unwrap()), (Some(0), schema().to_value()));
    }
    let (status, list, _) = netrig(&[]);
    assert_eq!((status, list.lines().count()), (Some(0), netrig::schemas().len()), "{list}");
    for name in list.lines().map(|line| line.split(' ').next().unwrap()) {
        assert_eq!(netrig(&[name]).0, Some(0), "{name}");
    }
    let (status, printed, said) = netrig(&["siute"]);
    assert_eq!((status, &*printed), (Some(2), ""));
    assert!(said.contains("no schema 'siute'") && said.contains("did you mean suite?"), "{said}");
}
