//! Read back by a parser that is not ours.

use openmetrics_parser::openmetrics::parse_openmetrics;
use rig_verdict::fixture::netperf::netperf_view;
use rig_verdict::fixture::run_view;

use super::*;
use crate::build;

fn written(document: &Document) -> String {
    let mut out = Vec::new();
    write(document, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_run_reads_back_with_units_and_values() {
    let document = build::document(&run_view());
    let text = written(&document);
    assert!(text.ends_with("# EOF\n"));
    let exposition = parse_openmetrics(&text).unwrap();
    let data: RunData = serde_json::from_value(document.data).unwrap();
    let throughput = &exposition.families["netrig_throughput_bits_per_second"];
    assert_eq!(throughput.unit, "bits_per_second");
    let figures: usize = data.scenarios.iter().map(|s| s.figures.len()).sum();
    let means: usize = exposition
        .families
        .values()
        .filter(|family| family.help.starts_with("Mean "))
        .map(|family| family.iter_samples().count())
        .sum();
    assert_eq!(means, figures, "every figure once");
    let labels = throughput.get_label_names().to_vec();
    let wanted = [("suite", "layers"), ("scenario", "B"), ("side", "receiver")];
    let values: Vec<String> = labels
        .iter()
        .map(|label| wanted.iter().find(|(name, _)| name == label).expect("a label that is known").1.to_owned())
        .collect();
    let sample = throughput.get_sample_by_label_values(&values).unwrap();
    let mean = data.scenario("B").unwrap().figures.iter().find(|f| f.side == "receiver" && f.metric == "throughput");
    assert!(format!("{:?}", sample.value).contains(&mean.unwrap().mean.to_string()), "{sample:?}");
    assert!(exposition.families.contains_key("netrig_run_start_seconds"));
    assert!(text.contains("\nnetrig_run_info{suite=\"layers\",run=\"12\""));
}

#[test]
fn a_test_between_two_machines_reads_back() {
    let figure = serde_json::json!({
        "end": "server", "metric": "throughput", "unit": "bit/s", "mean": 2e9, "low": 1e9, "high": null, "values": [2e9],
    });
    let data = serde_json::json!({ "kind": "test", "test": "tcp-stream", "host": "b\"1", "figures": [figure] });
    let text = written(&Document { data, ..Document::default() });
    let exposition = parse_openmetrics(&text).unwrap();
    assert_eq!(exposition.families.len(), 2, "{text}");
    assert_eq!(exposition.families["netrig_throughput_bits_per_second"].iter_samples().count(), 1);
    assert!(text.contains("{test=\"tcp-stream\",host=\"b\\\"1\",end=\"server\"} 2000000000"), "{text}");
}

#[test]
fn every_kind_of_load_reads_back() {
    let document = build::document(&netperf_view());
    let exposition = parse_openmetrics(&written(&document)).unwrap();
    for name in ["netrig_transactions_per_second", "netrig_latency_p99_microseconds", "netrig_loss_percent"] {
        assert!(exposition.families.contains_key(name), "{name} of {:?}", exposition.families.keys());
    }
}

#[test]
fn every_family_is_described_and_stands_together() {
    let text = written(&build::document(&run_view()));
    let mut seen = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert!(lines.peek().is_none());
            break;
        }
        let name = line.strip_prefix("# TYPE ").expect("a family begins with its type").split(' ').next().unwrap();
        assert!(!seen.contains(&name), "{name} came before");
        seen.push(name);
        let unit = lines.next_if(|line| line.starts_with("# UNIT "));
        if let Some(unit) = unit {
            let (of, unit) = unit.strip_prefix("# UNIT ").unwrap().split_once(' ').unwrap();
            assert!(of == name && name.ends_with(&format!("_{unit}")), "{name} has the unit {unit}");
        }
        assert!(lines.next().unwrap().starts_with(&format!("# HELP {name} ")));
        let mut samples = 0;
        while lines.next_if(|line| line.starts_with(name)).is_some() {
            samples += 1;
        }
        assert!(samples > 0, "{name} has no sample");
    }
    assert!(seen.len() > 10);
}

#[test]
fn labels_survive_whatever_is_in_them() {
    let mut view = run_view();
    view.environment.cpu_model = "a \"quoted\" \\ back\nline \u{1b}[31m".into();
    let text = written(&build::document(&view));
    assert!(text.contains(r#"cpu_model="a \"quoted\" \\ back\nline \\u001b[31m""#), "{text}");
    parse_openmetrics(&text).unwrap();
}

#[test]
fn units_become_words() {
    let words = [
        ("bit/s", "bits_per_second"),
        ("%", "percent"),
        ("us/KB", "microseconds_per_kibibyte"),
        ("segments", "segments"),
        ("Tr/s", "transactions_per_second"),
        ("1/s", "per_second"),
        ("us/Tr", "microseconds_per_transaction"),
        ("odd unit", "odd_unit"),
    ];
    for (symbol, expected) in words {
        assert_eq!(unit(symbol), expected);
    }
    for metric in rig_facts::claim::Metric::ALL {
        let name = unit(metric.unit());
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty(), "{metric}: {name}");
    }
}

#[test]
fn what_is_no_run_is_refused_and_nothing_is_nothing() {
    assert_eq!(written(&Document::default()), "# EOF\n");
    let document = Document { data: serde_json::json!({"kind": "run"}), ..Document::default() };
    let mut out = Vec::new();
    let error = write(&document, &mut out).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(out.is_empty());
}
