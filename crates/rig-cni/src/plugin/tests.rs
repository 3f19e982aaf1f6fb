#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde_json::{Value, json};

use super::{Ipam, Plugin, PluginCall, answer, code};
use crate::PluginError;

/// Answers with what it was called with.
struct Echo;

impl Plugin for Echo {
    fn add(&self, call: &PluginCall) -> Result<Value, PluginError> {
        Ok(json!({ "interfaces": [{ "name": call.interface, "sandbox": "/x" }],
                   "ips": [{ "address": "10.1.0.5/24", "interface": 0 }], "own": call.container }))
    }
    fn del(&self, call: &PluginCall) -> Result<(), PluginError> {
        Err(PluginError::new(code::OWN, "del").with(format!("{:?}", call.namespace)))
    }
    fn check(&self, call: &PluginCall) -> Result<(), PluginError> {
        call.previous.as_ref().map(|_| ()).ok_or_else(|| PluginError::new(code::WRONG_CONFIGURATION, "no result"))
    }
    fn gc(&self, call: &PluginCall) -> Result<(), PluginError> {
        Err(PluginError::new(code::OWN, format!("{:?}", call.valid_attachments()?)))
    }
    fn status(&self, call: &PluginCall) -> Result<(), PluginError> {
        Ipam::of(call).map(drop)
    }
}

fn called(command: &str, more: &[(&str, &str)], input: &Value) -> (Value, bool) {
    let mut variables = BTreeMap::from([("CNI_COMMAND", command), ("CNI_CONTAINERID", "c.1"), ("CNI_IFNAME", "eth0")]);
    variables.insert("CNI_NETNS", "/run/netns/x");
    variables.extend(more.iter().copied());
    let variable = |name: &str| variables.get(name).map(OsString::from);
    let (answer, is_done) = answer(&Echo, input.to_string().as_bytes(), &variable);
    (answer.unwrap_or_default(), is_done)
}

fn network(version: &str) -> Value {
    json!({ "cniVersion": version, "name": "n", "type": "netrig" })
}

#[test]
fn results_are_in_the_version_that_is_asked_for() {
    let (result, is_done) = called("ADD", &[], &network("0.3.1"));
    assert!(is_done);
    assert_eq!((&result["cniVersion"], &result["ips"][0]["version"]), (&json!("0.3.1"), &json!("4")));
    let (result, _) = called("ADD", &[], &network("1.1.0"));
    assert_eq!((&result["cniVersion"], &result["ips"][0]["version"]), (&json!("1.1.0"), &Value::Null));
    assert_eq!(result["own"], "c.1");
    let (versions, is_done) = called("VERSION", &[], &json!({}));
    assert!(is_done && versions["supportedVersions"] == json!(["0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
}

#[test]
fn what_is_wrong_with_a_call_is_an_error_of_the_specification() {
    let code_of = |command: &str, more: &[(&str, &str)], input: &Value| {
        let (answer, is_done) = called(command, more, input);
        assert!(!is_done, "{answer}");
        assert!(answer["cniVersion"].is_string() && answer["msg"].is_string(), "{answer}");
        answer["code"].as_i64().unwrap()
    };
    let good = network("1.1.0");
    assert_eq!(code_of("ADD", &[], &network("0.2.0")), code::INCOMPATIBLE_VERSION);
    assert_eq!(code_of("ADD", &[], &json!({})), code::INCOMPATIBLE_VERSION);
    assert_eq!(code_of("ADD", &[], &json!([1])), code::NOT_DECODED);
    assert_eq!(code_of("ADD", &[("CNI_CONTAINERID", "../x")], &good), code::WRONG_ENVIRONMENT);
    assert_eq!(code_of("ADD", &[("CNI_IFNAME", "a/b")], &good), code::WRONG_ENVIRONMENT);
    assert_eq!(code_of("ADD", &[("CNI_IFNAME", "sixteen-or-more-")], &good), code::WRONG_ENVIRONMENT);
    assert_eq!(code_of("ADD", &[("CNI_NETNS", "")], &good), code::WRONG_ENVIRONMENT);
    assert_eq!(code_of("NONE", &[], &good), code::WRONG_ENVIRONMENT);
    assert_eq!(code_of("ADD", &[], &json!({ "cniVersion": "1.1.0", "name": "a b" })), code::WRONG_CONFIGURATION);
    assert_eq!(code_of("GC", &[], &network("1.0.0")), code::INCOMPATIBLE_VERSION);
    assert_eq!(code_of("CHECK", &[], &good), code::WRONG_CONFIGURATION);
    assert_eq!(code_of("STATUS", &[], &good), code::WRONG_CONFIGURATION);
    // Its namespace has gone: that is none of DEL's business.
    assert_eq!(code_of("DEL", &[("CNI_NETNS", "")], &good), code::OWN);
    assert_eq!(code_of("GC", &[], &good), code::WRONG_CONFIGURATION, "without a list all would go");
}

#[test]
fn attachments_that_stay_are_read() {
    let mut input = network("1.1.0");
    let valid = json!([{ "containerID": "a", "ifname": "eth0" }]);
    input["cni.dev/valid-attachments"] = valid;
    assert_eq!(called("GC", &[], &input).0["msg"], "{(\"a\", \"eth0\")}");
    input["cni.dev/valid-attachments"] = Value::Null;
    assert_eq!(called("GC", &[], &input).0["msg"], "{}");
    input["cni.dev/valid-attachments"] = json!([{ "containerID": "a" }]);
    assert_eq!(called("GC", &[], &input).0["code"], code::WRONG_CONFIGURATION);
}

#[test]
fn an_ipam_plug_in_of_an_earlier_version_is_called_in_that() {
    let folder = tempfile::tempdir().unwrap();
    let script = "#!/bin/sh\ninput=$(cat)\ncase $input in *'\"cniVersion\":\"1.0.0\"'*) ;; \
                  *) echo '{ \"code\": 1, \"msg\": \"old\" }'; exit 1;; esac\n\
                  [ $CNI_COMMAND = ADD ] || exit 0\n\
                  echo '{ \"cniVersion\": \"1.0.0\", \"ips\": [{ \"address\": \"10.1.0.5/24\" }] }'\n";
    // Written by another process: one that forks meanwhile keeps nothing open for writing.
    let mut writer = std::process::Command::new("sh");
    writer.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]).arg(folder.path().join("old")).arg(script);
    assert!(writer.status().unwrap().success());
    let mut config = network("1.1.0");
    config["ipam"] = json!({ "type": "old" });
    let read = |command: &str| {
        let variable = |name: &str| match name {
            "CNI_COMMAND" => Some(OsString::from(command)),
            "CNI_CONTAINERID" => Some("c".into()),
            "CNI_NETNS" => Some("/x".into()),
            "CNI_IFNAME" => Some("eth0".into()),
            "CNI_PATH" => Some(folder.path().into()),
            _ => None,
        };
        PluginCall::read(config.to_string().as_bytes(), &variable).map_err(|(error, _)| error).unwrap()
    };
    let ipam = Ipam::of(&read("ADD")).unwrap();
    assert_eq!(ipam.add(&read("ADD")).unwrap().ips[0].address, "10.1.0.5/24");
    assert_eq!(ipam.del(&read("DEL")), Ok(()));
    assert_eq!(ipam.of_network(&read("STATUS")), Ok(()), "it has no STATUS, and is ready as far as is known");
}
