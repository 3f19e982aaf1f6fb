#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use super::*;

const ENDPOINT: &str = "f634a8b1b4a3a5ee7b3c6d9ee92cd0c7e84d43711c13aa9e2966d414d022a401";

/// With a router that does not run.
fn with_driver(test: impl FnOnce(&Driver)) {
    let folder = tempfile::tempdir().unwrap();
    let networks = NetworkStore::open(&folder.path().join("state.json")).unwrap();
    networks.add("n1", network()).unwrap();
    test(&Driver::new("nowhere-else", networks));
}

fn network() -> DockerNetwork {
    DockerNetwork {
        network: "red".to_owned(),
        security_groups: BTreeSet::new(),
        mtu: None,
        gateways: ["10.1.0.1".parse().unwrap(), "fd00:1::1".parse().unwrap()].into(),
        routes: vec!["10.2.0.0/16".parse().unwrap()],
        gateway_bridge: false,
        internal: false,
    }
}

fn called(driver: &Driver, path: &str, body: &str) -> (CallStatus, Value) {
    let CallAnswer { status, content, body } =
        driver.answer(&Call { path: path.to_owned(), body: body.as_bytes().to_vec() });
    assert_eq!(content, CONTENT);
    (status, serde_json::from_str(&body).unwrap())
}

#[track_caller]
fn error(driver: &Driver, method: &str, body: &Value) -> String {
    let (status, answer) = called(driver, &format!("/NetworkDriver.{method}"), &body.to_string());
    assert_eq!(status, CallStatus::Ok);
    answer["Err"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn calls_that_need_no_router_are_answered() {
    with_driver(|driver| {
        let ok = |path: &str, body: &str| {
            let (status, answer) = called(driver, path, body);
            assert_eq!((status, answer.get("Err")), (CallStatus::Ok, None), "{path}");
            answer
        };
        assert_eq!(ok("/Plugin.Activate", ""), json!({ "Implements": ["NetworkDriver"] }));
        assert_eq!(ok("/NetworkDriver.GetCapabilities", "")["Scope"], "local");
        let asked = json!({ "Options": { "com.docker.network.generic": { "network": "red" } } }).to_string();
        assert_eq!(ok("/NetworkDriver.GwAllocCheck", &asked), json!({ "SkipIPv4": false, "SkipIPv6": false }));
        for method in ["RevokeExternalConnectivity", "FreeNetwork", "DiscoverNew", "DiscoverDelete"] {
            assert_eq!(ok(&format!("/NetworkDriver.{method}"), "{}"), json!({}));
        }
        let of = json!({ "NetworkID": "n1", "EndpointID": ENDPOINT }).to_string();
        assert_eq!(ok("/NetworkDriver.ProgramExternalConnectivity", &of), json!({}));
        assert_eq!(ok("/NetworkDriver.EndpointOperInfo", &of)["Value"]["netrig.device"], "nrf634a8b1b4a3a");
        assert_eq!(ok("/NetworkDriver.DeleteNetwork", &json!({ "NetworkID": "n1" }).to_string()), json!({}));
        assert_eq!(driver.networks.len(), 0);
    });
}

#[test]
fn what_is_no_call_of_the_protocol_is_not_answered_as_one() {
    with_driver(|driver| {
        for path in ["/NetworkDriver.Unheard", "/Plugin.Deactivate", "/", "/IpamDriver.GetCapabilities"] {
            assert_eq!(called(driver, path, "{}").0, CallStatus::NotFound, "{path}");
        }
        for body in ["", "nonsense", "[]", "{}", r#"{"NetworkID":5}"#] {
            assert_eq!(called(driver, "/NetworkDriver.CreateNetwork", body).0, CallStatus::BadRequest, "{body}");
        }
    });
}

#[test]
fn what_cannot_be_done_is_told_in_words() {
    with_driver(|driver| {
        let network =
            |options: Value| json!({ "NetworkID": "n2", "Options": { "com.docker.network.generic": options } });
        let said = error(driver, "CreateNetwork", &network(json!({ "network": "red" })));
        assert!(said.contains("the router of node 'nowhere-else' does not run here: start it with"), "{said}");
        let said = error(driver, "CreateNetwork", &network(json!({ "colour": "red" })));
        assert!(said.contains("'colour' is none of netrig's networks"), "{said}");
        assert!(error(driver, "AllocateNetwork", &json!({})).contains("scope local"));
        let endpoint = |network: &str, endpoint: &str, address: &str, options: Value| json!({ "NetworkID": network, "EndpointID": endpoint, "Interface": { "Address": address }, "Options": options });
        for (body, words) in [
            (endpoint("n2", ENDPOINT, "10.1.0.2/24", json!({})), "network n2 is not known here"),
            (endpoint("n1", "../x", "10.1.0.2/24", json!({})), "no endpoint's identifier"),
            (endpoint("n1", ENDPOINT, "10.1.0.2", json!({})), "no address with a prefix"),
            (endpoint("n1", ENDPOINT, "", json!({})), "Docker gives no address"),
            (
                endpoint("n1", ENDPOINT, "10.1.0.2/24", json!({ "group": "x" })),
                "option 'group' is none of netrig's endpoints",
            ),
            (endpoint("n1", ENDPOINT, "10.1.0.2/24", json!({})), "does not run here"),
        ] {
            let said = error(driver, "CreateEndpoint", &body);
            assert!(said.contains(words), "{said}");
        }
        let ports = json!({ "com.docker.network.portmap": [{ "Port": 80 }] });
        let said = error(driver, "ProgramExternalConnectivity", &endpoint("n1", ENDPOINT, "", ports));
        assert!(said.contains("gwbridge=true"), "{said}");
    });
}

#[test]
fn pools_are_of_the_networks_subnets_and_have_the_routers_gateway() {
    let subnet = |prefix: &str, gateway: &str| SubnetTerms {
        prefix: prefix.parse().unwrap(),
        gateway: gateway.parse().unwrap(),
    };
    let subnets = vec![subnet("10.1.0.0/24", "10.1.0.1"), subnet("fd00:1::/64", "fd00:1::1")];
    let terms = NetworkTerms { subnets, mtu: 1450, security_groups: ["web".to_owned()].into() };
    let of =
        |pool: &str, own: &str| gateway("red", &terms, &PoolData { pool: pool.to_owned(), gateway: own.to_owned() });
    assert_eq!(of("10.1.0.0/24", "10.1.0.1/24"), Ok("10.1.0.1".parse().unwrap()));
    assert_eq!(of("fd00:1::/64", "fd00:1::1/64"), Ok("fd00:1::1".parse().unwrap()));
    for (pool, own, said) in [
        (
            "172.18.0.0/16",
            "172.18.0.1/16",
            "172.18.0.0/16 is in no subnet of network 'red': say --subnet, of 10.1.0.0/24, fd00:1::/64",
        ),
        ("10.1.0.0/16", "10.1.0.1/16", "in no subnet"),
        ("10.1.0.0/24", "10.1.0.128/24", "say --gateway 10.1.0.1"),
        ("10.1.0.0/24", "", "say --gateway 10.1.0.1"),
        ("nonsense", "", "no subnet"),
    ] {
        let error = of(pool, own).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(has_groups(&terms, &["web".to_owned()].into()), Ok(()));
    let unknown = has_groups(&terms, &["db".to_owned()].into()).unwrap_err();
    assert!(unknown.contains("no security group 'db'") && unknown.ends_with("there is web"), "{unknown}");
}

#[test]
fn containers_have_the_routers_gateway_or_dockers_own_bridge() {
    let of = |network: &DockerNetwork| serde_json::to_value(joined("nc1".to_owned(), network)).unwrap();
    let route = json!([{ "Destination": "10.2.0.0/16", "RouteType": 0, "NextHop": "10.1.0.1" }]);
    assert_eq!(
        of(&network()),
        json!({ "InterfaceName": { "SrcName": "nc1", "DstPrefix": "eth" }, "Gateway": "10.1.0.1", "GatewayIPv6": "fd00:1::1",
                "StaticRoutes": route, "DisableGatewayService": true })
    );
    let bridged = of(&DockerNetwork { gateway_bridge: true, ..network() });
    assert_eq!((&bridged["Gateway"], &bridged["GatewayIPv6"]), (&json!(""), &json!("")));
    assert_eq!((&bridged["StaticRoutes"], &bridged["DisableGatewayService"]), (&route, &json!(false)));
    let internal = of(&DockerNetwork { internal: true, routes: Vec::new(), ..network() });
    assert_eq!((&internal["Gateway"], &internal["DisableGatewayService"]), (&json!(""), &json!(true)));
}
