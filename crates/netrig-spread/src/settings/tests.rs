#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use super::*;
use rig_spread::Mode;

#[test]
fn a_file_is_read_under_both_names_of_each_setting() {
    let text = r#"
metrics = "127.0.0.1:9401"
tick = "20ms"

[[interface]]
name = "eth0"
actuator = "napi"
mode = "static-vrss"
max_queue_pairs = 8
min_queue_pairs = 2
exclude_primary = true
independent_host_spreading = true
base = 3
cpus = "1-3,6"
tuning = { hold = "5s" }

[[interface]]
name = "veth*"
actuator = ["rps", "observe"]
VrssQueueSchedulingMode = "StaticVmq"
VrssMaxQueuePairs = 4
VrssMinQueuePairs = 1
VrssExcludePrimaryProcessor = false
VrssIndependentHostSpreading = true
BaseProcessorNumber = 2
"#;
    let settings = Settings::parse("spread.toml", text).unwrap();
    assert_eq!(settings.tick, Duration::from_millis(20));
    assert_eq!(settings.metrics.unwrap().port(), 9401);
    let rule = settings.rule_for("eth0").unwrap();
    assert_eq!(rule.actuators, [Kind::Napi]);
    assert_eq!(rule.tuning.hold, Span(Duration::from_secs(5)));
    let asked = rig_spread::Settings {
        mode: Mode::StaticVrss,
        max_queue_pairs: 8,
        min_queue_pairs: 2,
        exclude_primary: true,
        independent_host_spreading: true,
        base: Some(3),
        cpus: Some(vec![1, 2, 3, 6]),
    };
    assert_eq!(rule.settings, asked);
    let rule = settings.rule_for("veth3").unwrap();
    assert_eq!(rule.actuators, [Kind::Rps, Kind::Observe]);
    assert_eq!((rule.settings.mode, rule.settings.max_queue_pairs, rule.settings.base), (Mode::StaticVmq, 4, Some(2)));
    assert!(rule.settings.independent_host_spreading);
    assert!(settings.rule_for("lo").is_none());
}

#[test]
fn mistakes_name_their_line_and_the_next_step() {
    let cases = [
        ("", "names no interface", 1),
        ("[[interface]]\nname = \"eth0\"\nmod = \"dynamic\"\n", "unknown field `mod`", 3),
        ("[[interface]]\nname = \"eth0\"\nmode = \"fast\"\n", "'fast' is not a mode", 3),
        ("[[interface]]\nname = \"a b\"\n", "not a name of an interface", 2),
        ("[[interface]]\nname = \"eth0\"\nactuator = \"irq\"\n", "'irq' is not an actuator", 3),
        ("[[interface]]\nname = \"eth0\"\nactuator = []\n", "empty list of actuators", 3),
        ("[[interface]]\nname = \"eth0\"\nmax_queue_pairs = 0\n", "at least 1", 1),
        ("[[interface]]\nname = \"eth0\"\ncpus = \"3-1\"\n", "3-1", 3),
        ("[[interface]]\nname = \"eth0\"\n[[interface]]\nname = \"eth0\"\n", "two rules for 'eth0'", 4),
        ("tick = \"0s\"\n[[interface]]\nname = \"eth0\"\n", "between 1 ms and 1 s", 1),
        ("metrics = \"[fe80::1]:9401\"\n[[interface]]\nname = \"eth0\"\n", "add %interface", 1),
        ("metrics = \"here\"\n[[interface]]\nname = \"eth0\"\n", "not an address to serve metrics", 1),
        ("[[interface]]\nname = \"eth0\"\ntuning = { hi = 2.0 }\n", "hi is 2", 3),
    ];
    for (text, part, line) in cases {
        let error = Settings::parse("spread.toml", text).unwrap_err();
        assert!(error.to_string().contains(part), "{text}: {error}");
        assert_eq!(error.line, Some(line), "{text}: {error}");
    }
}

#[test]
fn any_takes_back_what_was_said() {
    let said = |text: &str| serde_json::from_str::<SettingChanges>(text).unwrap();
    let set = said(r#"{ "base": 3, "cpus": "1-3" }"#);
    assert_eq!(said(&serde_json::to_string(&set).unwrap()), set);
    let before = set.over(&rig_spread::Settings::default());
    assert_eq!((before.base, before.cpus.clone()), (Some(3), Some(vec![1, 2, 3])));
    let nothing = SettingChanges::default().over(&before);
    assert_eq!(nothing, before);
    let any = said(r#"{ "base": "any", "cpus": "any" }"#);
    assert_eq!(said(&serde_json::to_string(&any).unwrap()), any);
    assert_eq!(any.over(&before), rig_spread::Settings::default());
    // What is said later counts.
    assert_eq!(set.with(&any), any);
    assert_eq!(any.with(&set), set);
    assert_eq!(set.with(&SettingChanges::default()), set);
    assert!("4".parse::<SettingChange<u32>>().is_ok() && "some".parse::<SettingChange<u32>>().is_err());
}

#[test]
fn patterns_match_as_a_shell_does() {
    let matches = |pattern: &str, name: &str| pattern.parse::<Pattern>().unwrap().matches(name);
    for (pattern, name) in [("veth*", "veth"), ("veth*", "veth12"), ("*", "x"), ("e?h0", "eth0"), ("*a*b", "xaxbab")] {
        assert!(matches(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in [("veth*", "eth0"), ("eth0", "eth01"), ("e?h0", "eh0"), ("*a*b", "ba"), ("?", "")] {
        assert!(!matches(pattern, name), "{pattern} {name}");
    }
}
