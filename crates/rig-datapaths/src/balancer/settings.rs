//! From what a suite says to what `lb.toml` would say: its keys are that file's, read by what reads that file.

use std::net::{IpAddr, Ipv4Addr};

use netrig_lb::settings::{Completeness, FORWARDS};
use rig_sys::cpu::CpuSet;
use rig_testbed::datapath::{DatapathRequest, Mistake, RequestedServices, Services, Settings};
use serde_json::{Value, json};
use toml::Table;

/// Keys of the file itself, of each of its services, and of each backend.
const OF_FILE: [&str; 6] = ["connections", "room", "service_limit", "policy", "timeouts", "hand_over"];
const OF_SERVICE: [&str; 19] = [
    "scheduler",
    "forward",
    "limit",
    "expire",
    "sloppy_tcp",
    "reuse",
    "syn_proxy",
    "client_address",
    "dscp",
    "allow",
    "deny",
    "check",
    "source_limit",
    "source_rate",
    "source_burst",
    "source_prefix4",
    "source_prefix6",
    "new_rate",
    "new_burst",
];
const OF_BACKEND: [&str; 1] = ["weight"];

/// What holds where a suite says nothing: the study's figures, which are DPVS's, and a testbed's needs.
fn usual() -> Settings {
    let Value::Object(usual) = json!({
        "scheduler": "rr",
        "forward": "full-nat",
        "weight": 100,
        // Some seconds of closed ones at the highest rates, and all that the study holds open.
        "connections": 1 << 21,
        // All services are one load, which may fill the table.
        "service_limit": 0,
        // Interfaces stand for network cards, whose queues are worked off elsewhere (docs/decisions/three-nodes.md). Room for
        // some ten milliseconds of a worker's work, as virtual machines may lose their CPU so long; and before others of
        // its CPU, which would have it for longer than there is room.
        "hand_over": { "queue": 16_384, "priority": 1 },
    }) else {
        return Settings::new();
    };
    usual
}

/// What a suite says, over what holds where it does not.
pub(super) fn in_force(said: &Settings) -> Settings {
    let mut all = usual();
    all.extend(said.clone());
    all
}

/// The text of the file of a balancer between clients and servers.
pub(super) fn text(
    settings: &Settings,
    services: &Services,
    devices: &[String],
    cpus: &CpuSet,
) -> Result<String, Mistake> {
    let known = || OF_FILE.iter().chain(&OF_SERVICE).chain(&OF_BACKEND);
    if let Some(key) = settings.keys().find(|key| known().all(|other| other != key)) {
        let names: Vec<&str> = known().copied().collect();
        let hint = format!("a suite may set these of lb.toml: {}", names.join(", "));
        return Err(Mistake::new(format!("balancer has no setting '{key}'"), hint).at(key));
    }
    let forward = settings.get("forward").and_then(Value::as_str).unwrap_or_default();
    if FORWARDS.iter().any(|(name, _)| *name == forward) && !matches!(forward, "full-nat" | "nat") {
        let what = format!("forward = \"{forward}\": servers of a testbed do not have the service's address");
        return Err(Mistake::new(what, "choose full-nat or nat").at("forward"));
    }
    let part = |keys: &[&str]| -> Result<Table, Mistake> {
        let of = settings.iter().filter(|(key, _)| keys.contains(&key.as_str()));
        let of: Settings = of.map(|(key, value)| (key.clone(), value.clone())).collect();
        Table::try_from(of).map_err(|error| Mistake { key: None, what: error.to_string(), hint: None })
    };
    let backend = |address: &IpAddr| -> Result<toml::Value, Mistake> {
        let mut table = part(&OF_BACKEND)?;
        // Without a port: that of the service.
        let bare = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        table.insert("address".to_owned(), bare.into());
        Ok(table.into())
    };
    let mut service = part(&OF_SERVICE)?;
    let listen = services.addresses.iter().map(|address| format!("{} {address}", services.protocol.name()));
    service.insert("listen".to_owned(), listen.collect::<Vec<_>>().into());
    service.insert("backend".to_owned(), services.backends.iter().map(backend).collect::<Result<Vec<_>, _>>()?.into());
    if forward != "nat" {
        let local = services.local.iter().map(IpAddr::to_string);
        service.insert("local".to_owned(), local.collect::<Vec<_>>().into());
    }
    let mut file = part(&OF_FILE)?;
    file.insert("devices".to_owned(), devices.to_vec().into());
    file.insert("cpus".to_owned(), cpus.to_string().into());
    file.insert("service".to_owned(), vec![toml::Value::from(service)].into());
    Ok(file.to_string())
}

/// What that file says.
fn file(
    settings: &Settings,
    services: &Services,
    devices: &[String],
    cpus: &CpuSet,
) -> Result<netrig_lb::settings::Settings, Mistake> {
    let text = text(settings, services, devices, cpus)?;
    netrig_lb::settings::Settings::parse("the balancer's settings", &text, Completeness::Required)
        .map_err(|error| Mistake { key: None, what: error.what, hint: error.hint })
}

/// What is wrong with what a suite asks, found with addresses for those that a testbed would have.
pub(super) fn validate(asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
    let Some(RequestedServices { protocol, addresses, local }) = asked.services else { return Ok(()) };
    let from = |first: [u8; 4], count: u32| {
        let first = Ipv4Addr::from(first).to_bits();
        (first + 1..=first + count).map(|address| IpAddr::from(Ipv4Addr::from_bits(address)))
    };
    let services = Services {
        protocol,
        addresses: from([198, 18, 1, 0], addresses).map(|address| (address, 80).into()).collect(),
        backends: from([198, 19, 0, 0], 1).collect(),
        local: from([198, 18, 2, 0], local.unwrap_or(1)).collect(),
        clients: "client".to_owned(),
        servers: "server".to_owned(),
    };
    let check = |said: &Settings| file(&in_force(said), &services, &["eth0".to_owned()], &CpuSet::new([0]));
    let file = Mistake::blamed(asked.settings, check)?;
    let translates = file.rules.services.iter().any(|service| !service.local.is_empty());
    if local.is_some() && !translates {
        let what = "'local_addresses' with forward = \"nat\", which leaves packets their clients' addresses";
        return Err(Mistake::new(what, "remove it").at("local_addresses"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use netrig_lb::settings::{HandOver, Workers, scheduler_name};
    use rig_testbed::datapath::Protocol;

    use super::*;

    fn settings(value: Value) -> Settings {
        let Value::Object(settings) = value else { panic!("{value}") };
        settings
    }

    fn check_for(protocol: Protocol, value: Value, local: Option<u32>) -> Result<(), Mistake> {
        let settings = settings(value);
        validate(&DatapathRequest {
            settings: &settings,
            services: Some(RequestedServices { protocol, addresses: 8, local }),
        })
    }

    fn check(value: Value, local: Option<u32>) -> Result<(), Mistake> {
        check_for(Protocol::Udp, value, local)
    }

    #[test]
    fn a_balancer_of_which_nothing_is_said_is_the_study_s() {
        let services = Services {
            protocol: Protocol::Tcp,
            addresses: vec!["198.18.1.1:80".parse().unwrap(), "198.18.1.1:81".parse().unwrap()],
            backends: vec!["198.19.0.1".parse().unwrap(), "198.19.0.2".parse().unwrap()],
            local: vec!["198.18.2.1".parse().unwrap()],
            clients: "c".into(),
            servers: "s".into(),
        };
        let devices = ["eth0".to_owned(), "eth1".to_owned()];
        let file = file(&usual(), &services, &devices, &CpuSet::new([2, 3])).unwrap();
        let start = &file.start;
        assert_eq!(start.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["eth0", "eth1"]);
        assert_eq!(start.workers, Workers::Cpus(CpuSet::new([2, 3])));
        assert_eq!(start.hand_over, Some(HandOver { queue: 16_384, priority: Some(1) }));
        assert_eq!(start.sizes.connections, 1 << 21);
        // As the datapath has them.
        let config = file.rules.config(start.sizes.connections);
        assert_eq!(config.services.len(), 2);
        let service = &config.services[1];
        assert_eq!(service.address.to_string(), "198.18.1.1:81");
        assert_eq!(scheduler_name(service.scheduler), "rr");
        assert_eq!((service.limit, service.sloppy_tcp, service.forward.name()), (None, false, "fullnat"));
        let backends: Vec<_> = service.backends.iter().map(|one| (one.address.to_string(), one.weight)).collect();
        assert_eq!(backends, [("198.19.0.1:81".to_owned(), 100), ("198.19.0.2:81".to_owned(), 100)]);
        assert_eq!(service.timeouts, Default::default());
    }

    #[test]
    fn settings_are_those_of_the_file_with_its_mistakes() {
        check_for(
            Protocol::Tcp,
            json!({"scheduler": "mh", "expire": "quiescent", "limit": 7, "sloppy_tcp": true, "reuse": "keep", "connections": 4096,
                     "timeouts": {"established": "10m"}, "hand_over": {"queue": 1}, "weight": 0}),
            Some(50),
        )
        .unwrap();
        check(json!({"forward": "nat"}), None).unwrap();
        check(json!({"dscp": "ef"}), None).unwrap();
        for (wrong, key, word) in [
            (json!({"weight": 1, "scheduler": "xx"}), "scheduler", "choose one of rr"),
            (json!({"connections": 3}), "connections", "3"),
            (json!({"reuse": "keep"}), "reuse", "UDP"),
            (json!({"dscp": 64}), "dscp", "is no DSCP"),
            (json!({"sloppy_tcp": true}), "sloppy_tcp", "UDP"),
            (json!({"forward": "route"}), "forward", "full-nat or nat"),
            (json!({"forward": "sideways"}), "forward", "sideways"),
            (json!({"limit": "many"}), "limit", "many"),
            (json!({"hand_over": {"queue": 0}, "weight": 3}), "hand_over", "queue"),
            (json!({"hand_over": {"priority": 100}}), "hand_over", "priority"),
            (json!({"timeouts": {"forever": "1s"}}), "timeouts", "forever"),
            (json!({"weight": 70_000}), "weight", "70000"),
            (json!({"devices": ["eth7"]}), "devices", "no setting 'devices'"),
        ] {
            let mistake = check(wrong.clone(), None).unwrap_err();
            assert_eq!(mistake.key.as_deref(), Some(key), "{wrong}: {mistake}");
            assert!(mistake.to_string().contains(word), "{wrong}: {mistake}");
        }
        let local = check(json!({"forward": "nat"}), Some(3)).unwrap_err();
        assert_eq!(local.key.as_deref(), Some("local_addresses"), "{local}");
    }
}
