use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use tempfile::TempDir;

use super::*;

/// A folder with plug-ins that are shell scripts; each notes in `calls` what it was called for.
struct Plugins {
    folder: TempDir,
}

const VERSIONS: &str = r#"{ "cniVersion": "1.1.0", "supportedVersions": ["0.4.0", "1.0.0", "1.1.0"] }"#;
const RESULT: &str = r#"{ "cniVersion": "1.1.0", "interfaces": [{ "name": "eth0", "sandbox": "/x" }], "ips": [{ "address": "10.1.0.5/16", "interface": 0 }] }"#;

impl Plugins {
    fn new(scripts: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, script) in scripts {
            let path = folder.path().join(name);
            let calls = folder.path().join("calls").display().to_string();
            let text = format!(
                "#!/bin/sh\nif [ $CNI_COMMAND = VERSION ]; then echo '{VERSIONS}'; exit; fi\n\
                 input=$(cat)\necho \"{name} $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS $input\" >> {calls}\n{script}\n"
            );
            // Written by another process: a program that this one has open to write while a test beside starts one cannot be started.
            let mut writer = std::process::Command::new("sh");
            writer.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(&path).stdin(Stdio::piped());
            let mut writer = writer.spawn().unwrap();
            writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            assert!(writer.wait().unwrap().success());
        }
        Self { folder }
    }

    fn runtime(&self, conflist: &str, time_limit: Duration) -> Result<Runtime, PluginFailure> {
        let cache = ResultCache::at(self.folder.path().join("cache"));
        let network = Conflist::parse(conflist).unwrap();
        Runtime::new(conflist, network, vec![self.folder.path().to_owned()], cache, time_limit)
    }

    fn of(scripts: &[(&str, &str)]) -> (Self, Runtime) {
        let plugins = Self::new(scripts);
        let objects: Vec<String> = scripts
            .iter()
            .map(|(name, _)| format!(r#"{{ "type": "{name}", "capabilities": {{ "portMappings": true }} }}"#))
            .collect();
        let conflist = format!(r#"{{ "cniVersion": "1.1.0", "name": "n", "plugins": [{}] }}"#, objects.join(","));
        let runtime = plugins.runtime(&conflist, Duration::from_secs(20)).unwrap();
        (plugins, runtime)
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn attachment() -> Attachment {
    Attachment::new("c1", "/run/netns/c1", "eth0")
}

fn answering(result: &str) -> String {
    format!("[ $CNI_COMMAND = ADD ] && echo '{result}'; exit 0")
}

fn why_add_fails(script: &str) -> PluginFailure {
    let (_plugins, runtime) = Plugins::of(&[("p", script)]);
    runtime.add(&attachment()).outcome.unwrap_err()
}

#[test]
fn plug_ins_are_called_in_order_and_get_what_the_specification_says() {
    let script = answering(RESULT);
    let (plugins, runtime) = Plugins::of(&[("one", &script), ("two", &script)]);
    let mut own = attachment();
    own.arguments.push(("K8S_POD_NAME".into(), "web".into()));
    own.capabilities.insert("portMappings".into(), json!([{ "hostPort": 80 }]));
    own.capabilities.insert("bandwidth".into(), json!({}));
    let added = runtime.add(&own);
    assert_eq!(added.outcome.unwrap().addresses()[0].0.to_string(), "10.1.0.5");
    assert_eq!(added.calls.iter().map(|call| call.plugin.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    runtime.check(&own).unwrap().outcome.unwrap();
    runtime.del(&own).outcome.unwrap();
    let calls = plugins.calls();
    let heads: Vec<String> = calls.iter().map(|call| call.split(" {").next().unwrap().to_owned()).collect();
    let args = "c1 eth0 K8S_POD_NAME=web";
    assert_eq!(
        heads,
        ["one ADD", "two ADD", "one CHECK", "two CHECK", "two DEL", "one DEL"].map(|head| format!("{head} {args}"))
    );
    let input =
        |number: usize| -> Value { serde_json::from_str(&calls[number][calls[number].find('{').unwrap()..]).unwrap() };
    assert_eq!(
        input(0)["runtimeConfig"],
        json!({ "portMappings": [{ "hostPort": 80 }] }),
        "what no capability asks for is not told"
    );
    assert_eq!((input(0)["name"].as_str(), input(0)["cniVersion"].as_str()), (Some("n"), Some("1.1.0")));
    assert!(input(0).get("capabilities").is_none() && input(0).get("prevResult").is_none());
    assert!((1..6).all(|number| input(number)["prevResult"]["ips"][0]["address"] == "10.1.0.5/16"));
    assert!(runtime.cache().result("n", &own).is_none(), "what was deleted is not known any more");
}

#[test]
fn the_first_that_fails_ends_all_but_the_collection_of_garbage() {
    let fails = r#"echo '{ "cniVersion": "1.1.0", "code": 11, "msg": "busy" }'; exit 1"#;
    let (plugins, runtime) = Plugins::of(&[("one", fails), ("two", fails)]);
    let failure = runtime.del(&attachment()).outcome.unwrap_err();
    assert_eq!(failure.to_string(), "DEL of plug-in two failed: error 11 (try again later): busy");
    assert_eq!(plugins.calls().len(), 1);
    assert!(runtime.check(&attachment()).unwrap().outcome.is_err());
    assert_eq!(plugins.calls().len(), 2);
    let gc = runtime.gc(&[attachment()]).unwrap();
    assert_eq!((gc.outcome.is_err(), gc.calls.len()), (true, 2));
    assert!(plugins.calls()[2].contains(r#""cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]"#));
    assert_eq!(runtime.status().unwrap().calls.len(), 1);
}

#[test]
fn a_plug_in_that_hangs_is_killed_with_what_it_started() {
    let plugins = Plugins::new(&[("p", "echo waiting for nothing >&2; sleep 600 & echo $! > $0.pid; wait")]);
    let conflist = r#"{ "cniVersion": "1.1.0", "name": "n", "plugins": [{ "type": "p" }] }"#;
    let runtime = plugins.runtime(conflist, Duration::from_secs(1)).unwrap();
    let failure = runtime.add(&attachment()).outcome.unwrap_err();
    assert!(matches!(failure.failure, Failure::TimedOut { .. }), "{failure}");
    assert_eq!(
        failure.to_string(),
        "ADD of plug-in p took longer than 1 s, and was killed; on standard error: waiting for nothing"
    );
    let pid: u32 = fs::read_to_string(plugins.folder.path().join("p.pid")).unwrap().trim().parse().unwrap();
    // It is killed and not waited for, being no child of this process.
    let end = Instant::now() + Duration::from_secs(10);
    while rig_sys::process::start_time(pid).is_some() {
        assert!(Instant::now() < end, "its child goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_no_result_is_an_error_that_says_what_was_seen() {
    let garbage = why_add_fails("echo hello").to_string();
    assert!(garbage.contains("what it wrote is no result") && garbage.contains("it wrote: hello"), "{garbage}");
    assert!(why_add_fails("exit 0").to_string().contains("it wrote nothing"));
    let in_success = why_add_fails(r#"echo '{ "code": 100, "msg": "no room" }'"#);
    assert!(matches!(in_success.failure, Failure::ErrorInSuccess(_)), "{in_success}");
    assert!(in_success.to_string().contains("ended with status 0, and reports an error: error 100: no room"));
    let died = why_add_fails("echo oops >&2; exit 3");
    assert!(
        matches!(died.failure, Failure::Died { .. }) && died.to_string().contains("on standard error: oops"),
        "{died}"
    );
    let killed = why_add_fails("kill -9 $$");
    assert!(matches!(killed.failure, Failure::Died { status, .. } if status.signal() == Some(9)), "{killed}");
    let wrong = why_add_fails(r#"echo '{ "cniVersion": "9.0.0" }'"#).to_string();
    assert!(wrong.contains("of version 9.0.0"), "{wrong}");
    let much = why_add_fails("head -c 3000000 /dev/zero | tr '\\0' x").to_string();
    assert!(much.len() < 1000, "{}", much.len());
}

#[test]
fn the_highest_version_that_all_speak_is_taken() {
    let plugins = Plugins::new(&[("p", "exit 0")]);
    let with = |versions: &str| {
        plugins.runtime(
            &format!(r#"{{ {versions}, "name": "n", "plugins": [{{ "type": "p" }}] }}"#),
            Duration::from_secs(20),
        )
    };
    assert_eq!(with(r#""cniVersion": "0.4.0", "cniVersions": ["1.0.0", "0.3.1"]"#).unwrap().version(), Version::V1_0_0);
    let old = with(r#""cniVersion": "0.4.0""#).unwrap();
    assert!(old.gc(&[]).is_none() && old.status().is_none() && old.check(&attachment()).is_some());
    let none = with(r#""cniVersion": "0.3.1""#).unwrap_err().to_string();
    assert!(none.contains("it speaks 0.4.0, 1.0.0, 1.1.0, and the network is configured for 0.3.1"), "{none}");
    let missing =
        plugins.runtime(r#"{ "cniVersion": "1.0.0", "name": "n", "type": "absent" }"#, Duration::from_secs(20));
    assert!(missing.unwrap_err().to_string().contains("there is no such program in"));
}
