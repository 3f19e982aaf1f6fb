use serde_json::json;

use super::*;

fn wrong(settings: Value) -> (Option<String>, String) {
    let Value::Object(settings) = settings else { panic!("{settings}") };
    let mistake = Cni.validate(&DatapathRequest { settings: &settings, services: None }).unwrap_err();
    (mistake.key.clone(), mistake.to_string())
}

const TWO: &str = r#"{ "cniVersion": "1.0.0", "name": "n", "plugins": [{ "type": "bridge" }, { "type": "portmap" }] }"#;

#[test]
fn what_a_suite_says_is_checked_before_there_is_a_testbed() {
    let Value::Object(good) = json!({ "conflist": TWO, "bin": ["/usr/lib/cni"], "plugins": 2, "time_limit": "5s" })
    else {
        panic!()
    };
    Cni.validate(&DatapathRequest { settings: &good, services: None }).unwrap();
    assert!(wrong(json!({})).1.contains("without a network configuration"));
    assert_eq!(wrong(json!({ "conflist": "absent.conflist" })).0.as_deref(), Some("conflist"));
    let (key, text) = wrong(json!({ "conflist": "{ \"name\": \"n\" }" }));
    assert_eq!(key.as_deref(), Some("conflist"));
    assert!(text.starts_with("'cniVersion': "), "{text}");
    let (key, text) = wrong(json!({ "conflist": TWO, "plugins": 3 }));
    assert_eq!(key.as_deref(), Some("plugins"));
    assert!(text.contains("it has 2: bridge, portmap"), "{text}");
    assert_eq!(wrong(json!({ "conflist": TWO, "bin": ["cni"] })).0.as_deref(), Some("bin"));
    assert_eq!(wrong(json!({ "conflist": TWO, "time_limit": "10m" })).0.as_deref(), Some("time_limit"));
    let (key, text) = wrong(json!({ "conflist": TWO, "time_limit": "61s" }));
    assert_eq!(key.as_deref(), Some("time_limit"));
    assert!(text.contains("each of 2 plug-ins"), "{text}");
    let ports = json!({ "portMappings": [{ "hostPort": 65400, "containerPort": 80 }] });
    let (key, text) = wrong(json!({ "conflist": TWO, "capabilities": ports }));
    assert_eq!(key.as_deref(), Some("capabilities"));
    assert!(text.contains("choose ports up to 65036"), "{text}");
    assert_eq!(wrong(json!({ "conflist": TWO, "conflist": "" })).0.as_deref(), Some("conflist"));
}

#[test]
fn commands_have_limits() {
    let check = |name: &str, arguments: Value| {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        Cni.check_command(name, &arguments).map_err(|mistake| mistake.to_string())
    };
    assert_eq!(check(AT_ONCE, json!({ "count": 100 })), Ok(()));
    assert!(check(AT_ONCE, json!({ "count": 0 })).unwrap_err().contains("choose 1 to 250"));
    assert!(check(AT_ONCE, json!({ "rounds": 101 })).unwrap_err().contains("choose 1 to 100"));
    assert_eq!(check(AT_ONCE, json!({ "count": 250, "rounds": 8 })), Ok(()));
    assert!(check(AT_ONCE, json!({ "count": 250, "rounds": 9 })).unwrap_err().contains("here 8 rounds"));
    assert!(check(CONFORM, json!({ "count": 1 })).is_err());
}

#[test]
fn a_command_that_stops_says_after_how_long_and_at_what() {
    let deadline = Deadline { began: Instant::now(), budget: Duration::ZERO };
    assert!(deadline.has_passed() && !Deadline::new().has_passed());
    let failure = PluginFailure {
        plugin: "slow".to_owned(),
        command: rig_cni::Command::Check,
        failure: Failure::TimedOut { after: Duration::from_secs(1) },
        stderr: String::new(),
    };
    let said = deadline.stopped(hanging(&failure).as_deref());
    assert_eq!(said, "stopped after 0 s: CHECK of plug-in slow does not end");
}
