#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

mod mistakes;

use std::time::Duration;

use super::*;

#[track_caller]
fn parse(text: &str) -> Settings {
    Settings::parse("vrouter.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn refused(text: &str) -> String {
    match Settings::parse("vrouter.toml", text) {
        Ok(_) => panic!("is let through:\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// Each case begins with it; the next line is the thirtieth.
const BASE: &str = r#"
[[node]]
name = "a"
address = "192.0.2.1"

[[node]]
name = "b"
address = "192.0.2.2"

[[network]]
name = "red"
subnets = ["10.1.0.0/24", "fd00:1::/64"]

[[network]]
name = "blue"
subnets = ["10.2.0.0/24"]

[[interface]]
name = "red-a"
node = "a"
network = "red"
device = "veth-red-a"
addresses = [
    "10.1.0.11",
    "fd00:1::11",
]


# The next line is the thirtieth.
"#;

fn lines_of(text: &str) -> usize {
    text.matches('\n').count()
}

#[test]
fn a_file_says_what_it_looks_like() {
    let settings = parse(
        r#"
[router]
mac = "00:00:5e:00:01:01"
encapsulation = ["vxlan", "mplsoudp"]
flows = 1_000_000
most_flows = 5000
timeouts = { established = "2h", other = "30s" }

[[node]]
name = "a"
address = "192.0.2.1"
interface = "eth1"
encapsulations = ["vxlan"]
mtu = 9000

[[network]]
name = "red"
subnets = ["10.1.0.0/24", { prefix = "fd00:1::/64", gateway = "fd00:1::ffff" }]
vni = 100
policies = ["web"]
encapsulation = ["mplsogre", "vxlan"]

[[network]]
name = "blue"
subnets = ["10.2.0.0/16"]
policies = ["web"]

[[interface]]
name = "red-1"
node = "a"
network = "red"
container = "web"
addresses = ["10.1.0.11", "fd00:1::11"]
allowed_addresses = ["10.1.0.100"]
mac = "02:00:00:00:00:01"
label = 1000
security_groups = ["web"]
most_flows = 0

[[interface]]
name = "blue-1"
node = "a"
network = "blue"
namespace = "blue1"
device = "veth0"
addresses = ["10.2.0.11"]

[[security_group]]
name = "web"
in = [
    { protocol = "tcp", ports = [80, "8000-8010"] },
    { protocol = "icmp", types = 8, remote_prefix = "10.0.0.0/8" },
    { remote_group = "web" },
]

[[security_group]]
name = "closed"
out = []

[[policy]]
name = "web"
rules = [
    { action = "deny", protocol = "udp", source = "any", destination = "10.2.0.0/28", direction = ">" },
    { action = "allow", source = "red", destination = "blue" },
]

[[route]]
network = "blue"
prefix = "0.0.0.0/0"
via = ["blue-1"]
"#,
    );
    let (router, node) = (&settings.router, &settings.nodes["a"]);
    assert_eq!((router.mac.to_string(), router.flows), ("00:00:5e:00:01:01".to_owned(), 1_000_000));
    assert_eq!(router.encapsulation, [Encapsulation::Vxlan, Encapsulation::MplsOverUdp]);
    let timeouts =
        Timeouts { established: Duration::from_secs(7200), other: Duration::from_secs(30), ..Timeouts::default() };
    assert_eq!(router.timeouts, timeouts);
    assert_eq!((node.interface.as_deref(), node.mtu, node.encapsulations.len()), (Some("eth1"), Some(9000), 1));
    let (red, blue) = (&settings.networks["red"], &settings.networks["blue"]);
    assert_eq!(red.vni, 100);
    assert_eq!(red.subnets[0].gateway, "10.1.0.1".parse::<IpAddr>().unwrap());
    assert_eq!(red.subnets[1].gateway, "fd00:1::ffff".parse::<IpAddr>().unwrap());
    assert_eq!(red.encapsulation, [Encapsulation::MplsOverGre, Encapsulation::Vxlan]);
    assert_eq!(blue.encapsulation, router.encapsulation);
    assert_eq!(red.connected, BTreeSet::from(["blue".to_owned()]));
    assert_eq!(blue.routes["0.0.0.0/0".parse::<IpNet>().as_ref().unwrap()], ["blue-1"]);
    let (one, other) = (&settings.interfaces["red-1"], &settings.interfaces["blue-1"]);
    assert_eq!(one.place, InterfaceLocation::Container { name: "web".to_owned(), device: "eth0".to_owned() });
    assert_eq!(other.place, InterfaceLocation::Namespace { name: "blue1".to_owned(), device: "veth0".to_owned() });
    assert_eq!((one.label, one.mac.to_string(), one.most_flows), (1000, "02:00:00:00:00:01".to_owned(), Some(0)));
    assert_eq!((one.addresses.len(), one.all_addresses().count(), other.most_flows), (2, 3, Some(5000)));
    assert_eq!((one.any_mac, other.any_mac, other.mac.0[0]), (false, true, 2));
    let web = &settings.security_groups["web"];
    assert_eq!(web.inward[0].packets, Packets { protocol: Some(6), ports: vec![80..=80, 8000..=8010] });
    assert_eq!(web.inward[1].remote, Remote::Prefix("10.0.0.0/8".parse().unwrap()));
    assert_eq!(web.inward[2].packets, Packets { protocol: None, ports: vec![0..=65535] });
    assert_eq!((&web.outward, &settings.security_groups["closed"].outward), (&None, &Some(Vec::new())));
    let rules = &settings.policies["web"].rules;
    assert_eq!((rules[0].action, rules[0].both_ways, rules[1].both_ways), (Action::Deny, false, true));
    assert_eq!(rules[0].orientations().count() + rules[1].orientations().count(), 3);
}

const RED_B: &str = "[[interface]]\nname = 'red-b'\nnode = 'b'\nnetwork = 'red'\ndevice = 'veth1'\n";
const BLUE_B: &str =
    "[[interface]]\nname = 'blue-b'\nnode = 'b'\nnetwork = 'blue'\ndevice = 'veth2'\naddresses = ['10.2.0.12']\n";

#[test]
fn routes_come_by_bgp_where_the_file_says_so() {
    let plain = parse(BASE);
    assert!(plain.router.bgp.is_none() && !plain.by_bgp("a", "b") && plain.networks["red"].import.is_empty());
    let settings = parse(&format!("{BASE}[router.bgp]\n"));
    let bgp = settings.router.bgp.as_ref().unwrap();
    assert_eq!(
        (bgp.gobgp.as_str(), bgp.autonomous_system, bgp.keep),
        ("127.0.0.1:50051", 64512, Duration::from_secs(120))
    );
    assert!(settings.by_bgp("a", "b"));
    let red = &settings.networks["red"];
    assert_eq!((&red.import, &red.export), (&[Assigned::TwoOctets(64512, red.vni)].into(), &red.import));

    let said = BASE
        .replace("name = \"red\"", "name = \"red\"\nroute_targets = ['64513:1']\nimport_targets = ['192.0.2.9:2']")
        .replace("name = \"b\"", "name = \"b\"\nbgp = false");
    let more = "[router.bgp]\ngobgp = 'unix:/run/gobgpd.sock'\nas = 65000\nkeep = '10s'\n\
                [[security_group]]\nname = 'web'\nid = 7\n";
    let settings = parse(&format!("{said}{more}"));
    let (red, blue) = (&settings.networks["red"], &settings.networks["blue"]);
    let (one, two) = (Assigned::TwoOctets(64513, 1), Assigned::ByAddress("192.0.2.9".parse().unwrap(), 2));
    assert_eq!((&red.import, &red.export), (&[one, two].into(), &[one].into()));
    assert_eq!(blue.export, [Assigned::TwoOctets(65000, blue.vni)].into());
    assert_eq!((settings.security_groups["web"].id, settings.by_bgp("a", "b")), (7, false));
    assert!(settings.interfaces["red-a"].distinguisher > 0);
}

#[test]
fn addresses_can_be_shared_where_all_say_so() {
    let text = format!("{BASE}{RED_B}addresses = ['10.1.0.12']\nallowed_addresses = ['10.1.0.100']\n");
    let shared = text.replace("# The next", "allowed_addresses = [\"10.1.0.100\"]\n# The next");
    let settings = parse(&shared);
    let hundred: IpAddr = "10.1.0.100".parse().unwrap();
    assert!(settings.interfaces.values().all(|interface| interface.allowed_addresses.contains(&hundred)));
}

#[test]
fn any_connects_those_who_want_to_be() {
    let text = "[[node]]\nname = 'a'\naddress = '192.0.2.1'\n".to_owned()
        + &["red", "green", "blue"]
            .iter()
            .enumerate()
            .map(|(n, name)| {
                let policy = if *name == "blue" { "" } else { "policies = ['p']\n" };
                format!("[[network]]\nname = '{name}'\nsubnets = ['10.{n}.0.0/24']\n{policy}")
            })
            .collect::<String>()
        + "[[policy]]\nname = 'p'\nrules = [{ action = 'allow', source = 'any', destination = 'any' }]\n";
    let text = text.replace("10.0.0", "10.9.0");
    let settings = parse(&text);
    let connected = |name: &str| settings.networks[name].connected.iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!((connected("red"), connected("green"), connected("blue")), (vec!["green"], vec!["red"], vec![]));
}

/// docs/VROUTER.md, whose keys people copy.
#[test]
fn the_manual_is_true() {
    let manual = include_str!("../../../../docs/VROUTER.md");
    let example = manual.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let settings = parse(example);
    assert_eq!((settings.nodes.len(), settings.networks.len(), settings.interfaces.len()), (2, 2, 2));
    assert!(settings.networks["red"].connected.contains("blue"));
    let bgp = manual.split("```toml\n").nth(2).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(parse(bgp).router, parse("[router.bgp]\n").router, "its values are the defaults");
    for (protocol, _) in rules::PROTOCOLS {
        assert!(manual.contains(&format!("`{protocol}`")), "{protocol}");
    }
}

#[test]
fn networks_that_one_can_reach_are_told_apart() {
    let text = |blue: &str, more: &str| {
        let network = |name: &str, subnet: &str| {
            format!("[[network]]\nname = '{name}'\nsubnets = ['{subnet}']\npolicies = ['{name}']\n")
        };
        let policy = |name: &str, rules: &str| format!("[[policy]]\nname = '{name}'\nrules = [{rules}]\n");
        let with = |name: &str| format!("{{ action = 'allow', source = 'red', destination = '{name}' }},");
        let interface = |name: &str, address: &str| {
            format!(
                "[[interface]]\nname = '{name}-1'\nnode = 'a'\nnetwork = '{name}'\ndevice = 'v-{name}'\n\
                 addresses = ['{address}']\n[[route]]\nnetwork = '{name}'\nprefix = '0.0.0.0/0'\nvia = ['{name}-1']\n"
            )
        };
        "[[node]]\nname = 'a'\naddress = '192.0.2.1'\n".to_owned()
            + &network("red", "10.1.0.0/24")
            + &network("blue", blue)
            + &network("green", "10.3.0.0/24")
            + &policy("red", &(with("blue") + &with("green")))
            + &policy("blue", &with("blue"))
            + &policy("green", &with("green"))
            + &more
                .split(' ')
                .filter(|more| !more.is_empty())
                .map(|more| {
                    let (name, address) = more.split_once('=').unwrap();
                    interface(name, address)
                })
                .collect::<String>()
    };
    parse(&text("10.2.0.0/24", ""));
    let said = refused(&text("10.0.0.0/15", ""));
    assert!(
        said.contains("'blue' and 'red' are connected, and their subnets 10.0.0.0/15 and 10.1.0.0/24 overlap"),
        "{said}"
    );
    let said = refused(&text("10.3.0.0/16", ""));
    assert!(
        said.contains(
            "'blue' and 'green' are both connected with 'red', and their subnets 10.3.0.0/16 and 10.3.0.0/24"
        ),
        "{said}"
    );
    // Its own route to everything is nearer than another's; two others' are equally near.
    let settings = parse(&text("10.2.0.0/24", "red=10.1.0.9 green=10.3.0.9"));
    assert_eq!(settings.networks["red"].connected.len(), 2);
    let said = refused(&text("10.2.0.0/24", "blue=10.2.0.9 green=10.3.0.9"));
    assert!(
        said.contains("'blue' and 'green' are both connected with 'red', and both have a route to 0.0.0.0/0"),
        "{said}"
    );
    parse(&text("10.2.0.0/24", "red=10.1.0.9 blue=10.2.0.9 green=10.3.0.9"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let directory = std::path::Path::new("/proc/self/none.toml");
    assert!(Settings::load(directory).unwrap_err().to_string().starts_with("/proc/self/none.toml: cannot read it"));
}
