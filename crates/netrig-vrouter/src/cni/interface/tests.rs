#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use rig_cni::plugin::Plugin;
use serde_json::json;

use super::super::VrouterPlugin;
use super::*;
use crate::message::SubnetTerms;

fn call(container: &str, interface: &str, config: &Value) -> PluginCall {
    PluginCall {
        command: rig_cni::Command::Add,
        container: container.to_owned(),
        namespace: Some("/nonexistent/namespace".into()),
        interface: interface.to_owned(),
        arguments: None,
        folders: Vec::new(),
        version: rig_cni::Version::V1_1_0,
        network: "n".to_owned(),
        config: config.as_object().unwrap().clone(),
        previous: None,
    }
}

fn config() -> Value {
    json!({ "cniVersion": "1.1.0", "name": "n", "type": "netrig", "network": "red", "ipam": { "type": "host-local" } })
}

fn plan(leased: &Value) -> Result<ContainerInterface, PluginError> {
    let call = call("c", "eth0", &config());
    let subnet = |prefix: &str, gateway: &str| SubnetTerms {
        prefix: prefix.parse().unwrap(),
        gateway: gateway.parse().unwrap(),
    };
    let terms = NetworkTerms {
        subnets: vec![subnet("10.1.0.0/24", "10.1.0.254"), subnet("fd00:1::/64", "fd00:1::1")],
        mtu: 1450,
        security_groups: Default::default(),
    };
    let mut leased = leased.clone();
    leased["cniVersion"] = json!("1.1.0");
    let mut result: AddResult = serde_json::from_value(leased.clone()).unwrap();
    result.object = leased.as_object().unwrap().clone();
    ContainerInterface::plan(&call, &PluginConfig::of(&call).unwrap(), &terms, &result)
}

#[test]
fn names_are_short_and_each_attachments_own() {
    let long = "0123456789abcdef".repeat(4);
    let of = |container: &str, interface: &str| {
        let call = call(container, interface, &config());
        (device(&call), name(&call))
    };
    let (near, at_router) = of(&long, "a-name-of-15.ch");
    assert!(near.len() == 15 && at_router.len() <= 64, "{near} {at_router}");
    assert!(at_router.starts_with("0123456789abcdef01234567.a-name-of-15.ch."));
    assert_ne!(of(&long, "eth0"), of(&long, "eth1"));
    assert_ne!(of(&format!("{long}1"), "eth0").0, of(&format!("{long}2"), "eth0").0);
    assert_ne!(of("ab", "c").0, of("a", "bc").0);
    assert!(of("c", "a'b<>").1.starts_with("c.a_b__."), "what the router takes for no name");
}

#[test]
fn addresses_and_routes_are_planned_by_the_router_s_gateway() {
    let planned =
        plan(&json!({ "ips": [{ "address": "10.1.0.5/24", "gateway": "10.1.0.1" }, { "address": "fd00:1::5/64" }],
                                "routes": [{ "dst": "10.9.0.0/16" }, { "dst": "10.8.0.0/16", "gw": "10.1.0.9" }] }));
    let planned = planned.unwrap();
    assert_eq!(planned.mtu, 1450);
    let routes: Vec<String> = planned.routes.iter().map(|route| format!("{} {}", route.to, route.gateway)).collect();
    let expected = ["10.9.0.0/16 10.1.0.254", "10.8.0.0/16 10.1.0.9", "0.0.0.0/0 10.1.0.254", "::/0 fd00:1::1"];
    assert_eq!(routes, expected);
    let own =
        plan(&json!({ "ips": [{ "address": "10.1.0.5/24" }], "routes": [{ "dst": "0.0.0.0/0", "gw": "10.1.0.9" }] }));
    assert_eq!(own.unwrap().routes.len(), 1, "a default route that is said is the only one");
}

#[test]
fn leases_that_are_of_no_use_are_refused() {
    let refused = |leased: Value| plan(&leased).unwrap_err();
    assert_eq!(refused(json!({ "ips": [] })).msg, "IPAM has leased no address");
    let elsewhere = refused(json!({ "ips": [{ "address": "10.2.0.5/24" }] }));
    assert!(elsewhere.msg.contains("in no subnet of network 'red'") && elsewhere.details.contains("10.1.0.0/24"));
    let table =
        refused(json!({ "ips": [{ "address": "10.1.0.5/24" }], "routes": [{ "dst": "10.9.0.0/16", "table": 7 }] }));
    assert_eq!((table.code, table.msg.contains("'table'")), (code::UNSUPPORTED_FIELD, true));
    assert!(
        refused(json!({ "ips": [{ "address": "10.1.0.5/24" }], "routes": [{ "dst": "::/0" }] })).msg.contains("family")
    );
}

#[test]
fn configurations_are_read_strictly() {
    let of = |key: &str, value: Value| {
        let mut config = config();
        config[key] = value;
        PluginConfig::of(&call("c", "eth0", &config))
    };
    let good = of("security_groups", json!(["web"])).unwrap();
    assert!(good.security_groups.contains("web") && good.network == "red" && good.mtu.is_none());
    assert_eq!(of("mtu", json!(9000)).unwrap().mtu, Some(9000));
    assert_eq!(of("runtimeConfig", json!({ "mac": "02:00:00:00:00:05" })).unwrap().mac, Some([2, 0, 0, 0, 0, 5]));
    for (key, value, code) in [
        ("network", Value::Null, code::WRONG_CONFIGURATION),
        ("mtu", json!("big"), code::WRONG_CONFIGURATION),
        ("mtu", json!(100), code::WRONG_CONFIGURATION),
        ("security_groups", json!([1]), code::WRONG_CONFIGURATION),
        ("runtimeConfig", json!({ "mac": "x" }), code::WRONG_CONFIGURATION),
        ("ipam", json!({}), code::WRONG_CONFIGURATION),
        ("ipam", json!({ "type": "../x" }), code::WRONG_CONFIGURATION),
        ("networks", json!("red"), code::UNSUPPORTED_FIELD),
        ("ipMasq", json!(true), code::UNSUPPORTED_FIELD),
    ] {
        let error = of(key, value.clone()).unwrap_err();
        assert_eq!(error.code, code, "{key} {value}: {error}");
    }
}

#[test]
fn what_is_wrong_is_told_before_anything_is_done() {
    let mut chained = call("c", "eth0", &config());
    let previous = json!({ "cniVersion": "1.1.0", "interfaces": [] });
    chained.previous = Some(serde_json::from_value(previous).unwrap());
    let error = VrouterPlugin.add(&chained).unwrap_err();
    assert!(error.code == code::WRONG_CONFIGURATION && error.msg.contains("make it the first"), "{error}");
    let error = VrouterPlugin.add(&call("c", "eth0", &config())).unwrap_err();
    assert_eq!(error.code, code::UNKNOWN_CONTAINER, "{error}");
    let own = PluginCall { namespace: Some("/proc/self/ns/net".into()), ..call("c", "eth0", &config()) };
    assert!(VrouterPlugin.add(&own).unwrap_err().msg.contains("the node's own"));
}
