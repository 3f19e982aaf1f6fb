#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

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
    assert_eq!(one.place, Place::Container { name: "web".to_owned(), device: "eth0".to_owned() });
    assert_eq!(other.place, Place::Namespace { name: "blue1".to_owned(), device: "veth0".to_owned() });
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

/// What follows `BASE`, what is said of it in which line, and what of the next step.
#[test]
fn mistakes_are_named_with_their_line_and_the_next_step() {
    assert_eq!(lines_of(BASE), 29);
    let red_b = |more: &str| format!("{RED_B}{more}");
    let policy = |rule: &str| format!("[[policy]]\nname = 'p'\nrules = [\n{rule}]\n");
    let group = |rule: &str| format!("[[security_group]]\nname = 'g'\nin = [\n{rule}]\n");
    let analyser = |more: &str| format!("[[analyser]]\nname = 'x'\n{more}\n");
    let fat = |flow: &str| red_b(&format!("addresses = ['10.1.0.12']\nfat_flows = [{{ {flow} }}]"));
    let network = |more: &str| format!("[[network]]\nname = 'green'\n{more}");
    let cases: Vec<(String, &str, &str)> = vec![
        // The letter.
        ("[[nodes]]\n".into(), "30: unknown field `nodes`", "did you mean `node`?"),
        (red_b("adresses = []"), "35: unknown field `adresses`", "did you mean `addresses`?"),
        ("[router]\nmac = 5\n".into(), "31: invalid type", ""),
        ("x = ".into(), "30: ", ""),
        // Routes by BGP.
        (
            "[router.bgp]\ngobgp = '127.0.0.1'\n".into(),
            "31: '127.0.0.1' is not an address of a speaker's API",
            "unix:/run",
        ),
        ("[router.bgp]\nas = 70000\n".into(), "31: 70000 is not a number of an autonomous system", "1 to 65535"),
        ("[router.bgp]\nkeep = '2h'\n".into(), "31: routes that are kept for 7200s", "choose 0 s to 1 h"),
        (
            network("subnets = ['10.3.0.0/24']\nroute_targets = ['1:1']"),
            "33: 'route_targets' is for",
            "add [router.bgp]",
        ),
        ("[[security_group]]\nname = 'g'\nid = 1\n".into(), "32: 'id' is for routes by BGP", "add [router.bgp]"),
        (
            "[[node]]\nname = 'c'\naddress = '192.0.2.3'\nbgp = true\n".into(),
            "33: 'bgp' is for routes by BGP",
            "add [router.bgp]",
        ),
        (
            network("subnets = ['10.3.0.0/24']\nroute_targets = ['x']\n[router.bgp]\n"),
            "33: 'x' is not a route target",
            "64512:100",
        ),
        (
            "[[security_group]]\nname = 'g'\nid = 1\n[[security_group]]\nname = 'h'\nid = 1\n[router.bgp]\n".into(),
            "35: security groups 'g' and 'h' have one id, 1",
            "set 'id' of one of them",
        ),
        // Names.
        ("[[node]]\nname = 'a'\naddress = '192.0.2.3'\n".into(), "31: node 'a' is listed twice", "rename or remove"),
        (
            "[[node]]\nname = 'a b'\naddress = '192.0.2.3'\n".into(),
            "31: 'a b' is not a name for node",
            "letters, digits",
        ),
        ("[[network]]\nname = 'any'\nsubnets = ['10.3.0.0/24']\n".into(), "31: 'any' is not a name", "another one"),
        (
            "[[interface]]\nname = 'x'\nnode = 'aa'\nnetwork = 'red'\ndevice = 'v'\naddresses = ['10.1.0.12']\n".into(),
            "32: there is no node 'aa'",
            "did you mean 'a'?",
        ),
        (
            "[[interface]]\nname = 'x'\nnode = 'a'\nnetwork = 'green'\ndevice = 'v'\naddresses = ['10.1.0.12']\n"
                .into(),
            "33: there is no network 'green'",
            "add a [[network]] with this name",
        ),
        (
            red_b("addresses = ['10.1.0.12']\nsecurity_groups = ['web']"),
            "36: there is no security group 'web'",
            "[[security_group]]",
        ),
        (network("subnets = ['10.3.0.0/24']\npolicies = ['p']"), "33: there is no policy 'p'", "[[policy]]"),
        (
            "[router]\nkey_file = 'vrouter.key'\n".into(),
            "31: the key file 'vrouter.key' is of no use: other files are not read for a text alone",
            "head -c 32 /dev/urandom",
        ),
        // Not built.
        ("[router]\ndhcp = true\n".into(), "31: answering DHCP is not supported", "remove this key"),
        (network("subnets = ['10.3.0.0/24']\ndns = '192.0.2.53'"), "33: answering DNS is not supported", "remove"),
        (
            network("subnets = ['10.3.0.0/24']\nbroadcast = false\nflood_unknown_unicast = true"),
            "34: network 'green' copies frames to unknown addresses to all, and none to all",
            "remove broadcast = false",
        ),
        (
            network("subnets = ['10.3.0.0/24']\nbroadcast = false\nlabel = 300"),
            "34: network 'green' has a label for frames to all, and copies none to all",
            "remove broadcast = false",
        ),
        // Fat flows.
        (fat("protocol = 'icmp', port = 8"), "36: fat flows of a protocol without ports", "tcp or udp"),
        (fat("protocol = 'any', port = 8"), "36: fat flows of a protocol without ports", "tcp or udp"),
        (fat("protocol = 'udp', port = 0"), "36: 0 is not a port of a service", "rules need it"),
        (fat("protocol = 'udp'"), "36: missing field `port`", ""),
        (
            fat("protocol = 'udp', port = 53, ignore = 'source'"),
            "36: fat flows of many addresses are not supported: rules and next hops are for addresses",
            "remove this key",
        ),
        // Analysers.
        (red_b("addresses = ['10.1.0.12']\nmirror = 'x'"), "36: there is no analyser 'x'", "[[analyser]]"),
        (
            analyser("address = '192.0.2.1'"),
            "32: analyser 'x' is at node 'a', whose router takes UDP to port 4789",
            "port",
        ),
        (analyser("address = 'fd00::1'"), "32: 'fd00::1' is not an IPv4 address", "IPv4"),
        (analyser("address = '224.0.0.1'"), "32: 224.0.0.1 cannot be an analyser's address", "at which"),
        (analyser("address = '198.51.100.2'\nport = 0"), "33: 0 is not a port", "65535"),
        (analyser("address = '198.51.100.2'\nvni = 16777216"), "33: 16777216 is not a VXLAN", "16777215"),
        (
            policy("{ action = 'allow', source = 'any', destination = 'any', mirror = 'y' },\n")
                + &analyser("address = '198.51.100.2'"),
            "33: there is no analyser 'y'",
            "[[analyser]]",
        ),
        (
            policy("{ action = 'deny', source = 'any', destination = 'any', mirror = 'x' },\n")
                + &analyser("address = '198.51.100.2'"),
            "33: 'mirror' of a rule that denies",
            "log",
        ),
        (group("{ log = 'yes' },\n"), "33: invalid type: string \"yes\", expected a boolean", ""),
        // The router.
        ("[router]\nmac = '01:00:00:00:00:00'\n".into(), "31: '01:00:00:00:00:00' is not a MAC address", "02:00:00"),
        ("[router]\nmac = '0:0:0:0:0:1'\n".into(), "31: '0:0:0:0:0:1' is not a MAC", "02:00:00"),
        (
            "[router]\nencapsulation = ['geneve']\n".into(),
            "31: there is no encapsulation 'geneve'",
            "mplsoudp, mplsogre, vxlan",
        ),
        ("[router]\nencapsulation = ['vxlan', 'vxlan']\n".into(), "31: 'vxlan' is listed twice", "remove"),
        ("[router]\nencapsulation = []\n".into(), "31: no encapsulation", "choose from"),
        ("[router]\nflows = 10\n".into(), "31: a table for 10 flows", "1024"),
        ("[router.timeouts]\nopening = '10ms'\n".into(), "31: timeout 'opening' of 10ms", "30 days"),
        ("[router.timeouts]\nunanswered = '0s'\n".into(), "31: timeout 'unanswered' of", "30 days"),
        ("[router.timeouts]\ntcp = '10s'\n".into(), "31: unknown field `tcp`", "established"),
        // Nodes.
        ("[[node]]\nname = 'c'\naddress = 'fd00::1'\n".into(), "32: 'fd00::1' is not an IPv4 address", "192.0.2.1"),
        (
            "[[node]]\nname = 'c'\naddress = '127.0.0.1'\n".into(),
            "32: 127.0.0.1 cannot be a machine's address",
            "reach",
        ),
        (
            "[[node]]\nname = 'c'\naddress = '192.0.2.2'\n".into(),
            "32: nodes 'b' and 'c' have one address, 192.0.2.2",
            "each its own",
        ),
        ("[[node]]\nname = 'c'\naddress = '192.0.2.3'\nmtu = 500\n".into(), "33: an MTU of 500 bytes", "576"),
        (
            "[[node]]\nname = 'c'\naddress = '192.0.2.3'\ninterface = 'a/b'\n".into(),
            "33: 'a/b' is not a network",
            "ip link",
        ),
        // Networks.
        (network("subnets = []"), "32: network 'green' has no subnet", "10.1.0.0/24"),
        (network("subnets = ['10.3.0.0']"), "32: '10.3.0.0' is not a prefix", "10.1.0.0/24"),
        (network("subnets = ['10.3.0.1/24']"), "32: 10.3.0.1/24 has bits behind", "write 10.3.0.0/24"),
        (network("subnets = ['::ffff:10.0.0.0/120']"), "32: '::ffff:10.0.0.0/120' is IPv4, mapped", "as IPv4"),
        (network("subnets = ['224.0.0.0/24']"), "32: 224.0.0.0/24 is not for containers", "unicast"),
        (network("subnets = ['fe80::/64']"), "32: fe80::/64 is not for containers", "unicast"),
        (network("subnets = ['10.3.0.0/31']"), "32: 10.3.0.0/31 has no room", "shorter"),
        (
            network("subnets = [\n'10.3.0.0/16',\n'10.3.1.0/24']"),
            "34: subnets 10.3.0.0/16 and 10.3.1.0/24 of",
            "remove one",
        ),
        (
            network("subnets = [{ prefix = '10.3.0.0/24', gateway = '10.4.0.1' }]"),
            "32: '10.4.0.1' is not a gateway of 10.3.0.0/24",
            "such as 10.3.0.1",
        ),
        (
            network("subnets = [{ prefix = '10.3.0.0/24', gateway = '10.3.0.255' }]"),
            "32: '10.3.0.255' is not a gateway",
            "",
        ),
        (network("subnets = [{ prefix = '10.3.0.0/24', gate = '10.3.0.2' }]"), "32: unknown field `gate`", "gateway"),
        (network("subnets = ['10.3.0.0/24']\nvni = 0"), "33: 0 is not a VXLAN network identifier", "1 to 16777215"),
        (
            format!(
                "[[network]]\nname = 'n'\nsubnets = ['10.3.0.0/24']\nvni = 7\n{}",
                network("subnets = ['10.4.0.0/24']\nvni = 7")
            ),
            "37: networks 'n' and 'green' have one VNI, 7",
            "leave it out",
        ),
        // Interfaces.
        (red_b("addresses = []"), "35: interface 'red-b' has no address", "at least one"),
        (red_b("addresses = ['10.1.0.12/24']"), "35: '10.1.0.12/24' is not an IP address", "without a prefix length"),
        (
            red_b("addresses = [\n'10.2.0.12']"),
            "36: 10.2.0.12 is in no subnet of network 'red'",
            "10.1.0.0/24, fd00:1::/64",
        ),
        (red_b("addresses = ['10.1.0.1']"), "35: 10.1.0.1 is the gateway of network 'red'", "10.1.0.0/24"),
        (red_b("addresses = ['10.1.0.255']"), "35: 10.1.0.255 names no host of 10.1.0.0/24", "another one"),
        (red_b("addresses = ['10.1.0.11']"), "35: 10.1.0.11 is an address of 'red-a' already", "'allowed_addresses'"),
        (red_b("addresses = ['10.1.0.12', '10.1.0.12']"), "35: 10.1.0.12 is an address of 'red-b' already", ""),
        (
            red_b("addresses = ['10.1.0.12']\nallowed_addresses = ['10.1.0.11']"),
            "36: 10.1.0.11 is an address of 'red-a' already",
            "'allowed_addresses'",
        ),
        (red_b("addresses = ['10.1.0.12']\nlabel = 15"), "36: 15 is not a label", "16 to 1048575"),
        (
            format!(
                "{}\n[[network]]\nname = 'green'\nsubnets = ['10.3.0.0/24']\nlabel = 1048576",
                red_b("addresses = ['10.1.0.12']")
            ),
            "39: 1048576 is not a label",
            "16 to 1048575",
        ),
        (
            format!(
                "{}\n[[network]]\nname = 'green'\nsubnets = ['10.3.0.0/24']\nlabel = 20\n[[interface]]\nname = 'x'\nnode = 'b'\nnetwork = 'green'\ndevice = 'v'\naddresses = ['10.3.0.13']",
                red_b("addresses = ['10.1.0.12']\nlabel = 20")
            ),
            "40: 'red-b' and network 'green' of node 'b' have one label, 20",
            "leave it out",
        ),
        (red_b("addresses = ['10.1.0.12']\nvni = 0"), "36: 0 is not a VXLAN network identifier", "1 to 16777215"),
        (
            format!(
                "{}\n[[network]]\nname = 'green'\nsubnets = ['10.3.0.0/24']\nvni = 7",
                red_b("addresses = ['10.1.0.12']\nvni = 7")
            ),
            "36: network 'green' and 'red-b' have one VXLAN network identifier, 7",
            "leave it out",
        ),
        (
            format!(
                "{}\n[[network]]\nname = 'green'\nsubnets = ['10.3.0.0/24']\nencapsulation = ['mplsoudp']\n[[interface]]\nname = 'x'\nnode = 'b'\nnetwork = 'green'\ndevice = 'v'\naddresses = ['10.3.0.13']\nvni = 8",
                red_b("addresses = ['10.1.0.12']")
            ),
            "46: 'x' has a VXLAN network identifier, and network 'green' on node 'b' does no VXLAN",
            "leave it out",
        ),
        (
            red_b("addresses = ['10.1.0.12']\nmac = '00:00:5e:00:01:00'"),
            "36: 00:00:5e:00:01:00 is the router's",
            "leave it out",
        ),
        (
            format!(
                "{RED_B}addresses = ['10.1.0.12']\nmac = '02:00:00:00:00:09'\n[[interface]]\nname = 'x'\nnode = 'a'\nnetwork = 'red'\ndevice = 'v'\naddresses = ['10.1.0.13']\nmac = '02:00:00:00:00:09'"
            ),
            "43: 'red-b' and 'x' of network 'red' have one MAC address, 02:00:00:00:00:09",
            "leave it out",
        ),
        (
            format!(
                "{RED_B}addresses = ['10.1.0.12']\nlabel = 20\n[[interface]]\nname = 'x'\nnode = 'b'\nnetwork = 'red'\ndevice = 'v'\naddresses = ['10.1.0.13']\nlabel = 20"
            ),
            "43: 'red-b' and 'x' of node 'b' have one label, 20",
            "leave it out",
        ),
        (
            "[[interface]]\nname = 'x'\nnode = 'a'\nnetwork = 'red'\naddresses = ['10.1.0.13']".into(),
            "31: where is interface 'x'?",
            "namespace = ",
        ),
        (red_b("addresses = ['10.1.0.12']\nnamespace = 'x'\ncontainer = 'y'"), "37: 'red-b' is at two places", "once"),
        (red_b("addresses = ['10.1.0.12']\nnamespace = '../x'"), "36: '../x' is not a name of a namespace", "ip netns"),
        (
            "[[interface]]\nname = 'x'\nnode = 'a'\nnetwork = 'red'\ndevice = 'veth-red-a'\naddresses = ['10.1.0.13']"
                .into(),
            "31: 'red-a' and 'x' are the same device of node 'a'",
            "another device",
        ),
        // Security groups and policies.
        (group("{ protocol = 'tpc' },\n"), "33: there is no protocol 'tpc'", "tcp, udp"),
        (group("{ protocol = 256 },\n"), "33: there is no protocol '256'", "to 255"),
        (group("{ ports = 80 },\n"), "33: 'ports' of a rule that is not for tcp or udp", "set protocol"),
        (group("{ protocol = 'tcp', types = 8 },\n"), "33: 'types' of a rule that is not for icmp", "set protocol"),
        (group("{ protocol = 'tcp', ports = '90-80' },\n"), "33: '90-80' is none of 'ports'", "8000-8010"),
        (group("{ protocol = 'tcp', ports = 65536 },\n"), "33: '65536' is none of 'ports'", "65535"),
        (group("{ protocol = 'icmp', types = 256 },\n"), "33: '256' is none of 'types'", "255"),
        (group("{ protocol = 'tcp', ports = [] },\n"), "33: a rule with 0 of 'ports'", "leave it out"),
        (group("{ protocol = 'tcp', ports = true },\n"), "33: expected a number, a string", ""),
        (group("{ remote_group = 'h' },\n"), "33: there is no security group 'h'", ""),
        (group("{ remote_prefix = '10.0.0.1/8' },\n"), "33: 10.0.0.1/8 has bits behind", "write 10.0.0.0/8"),
        (group("{ remote_prefix = '10.0.0.0/8', remote_group = 'g' },\n"), "33: a rule with both", "for each"),
        (
            policy("{ action = 'pass', source = 'any', destination = 'any' },\n"),
            "33: unknown variant `pass`",
            "`allow`",
        ),
        (
            policy("{ action = 'deny', source = 'rde', destination = 'any' },\n"),
            "33: there is no network 'rde'",
            "'red'",
        ),
        (
            policy("{ action = 'deny', source = 'red', destination = 'any', direction = '<' },\n"),
            "33: unknown variant `<`",
            "`>`",
        ),
        (
            policy("{ action = 'allow', protocol = 'tcp', ports = 80, source = 'red', destination = 'blue' },\n"),
            "33: ports are the destination's, and '<>' has two",
            "direction = \">\"",
        ),
        // Routes.
        (
            "[[route]]\nnetwork = 'red'\nprefix = '10.9.0.0/16'\nvia = []".into(),
            "33: a route to 10.9.0.0/16 by 0",
            "1 to 64",
        ),
        ("[[route]]\nnetwork = 'red'\nprefix = '10.9.0.0/16'\nvia = ['x']".into(), "33: there is no interface 'x'", ""),
        (
            "[[route]]\nnetwork = 'blue'\nprefix = '10.9.0.0/16'\nvia = ['red-a']".into(),
            "33: interface 'red-a' is not of network 'blue'",
            "one that is",
        ),
        (
            "[[route]]\nnetwork = 'red'\nprefix = '10.1.0.0/24'\nvia = ['red-a']".into(),
            "32: 10.1.0.0/24 is a subnet",
            "behind",
        ),
        (
            "[[route]]\nnetwork = 'red'\nprefix = '10.1.0.1/32'\nvia = ['red-a']".into(),
            "32: 10.1.0.1/32 is the address",
            "",
        ),
        (
            "[[route]]\nnetwork = 'red'\nprefix = '224.0.0.0/8'\nvia = ['red-a']".into(),
            "32: 224.0.0.0/8 is multicast",
            "",
        ),
        (
            "[[route]]\nnetwork = 'red'\nprefix = '10.9.0.0/16'\nvia = ['red-a', 'red-a']".into(),
            "33: 'red-a' is listed twice",
            "",
        ),
        (
            "[[route]]\nnetwork = 'red'\nprefix = '10.9.0.0/16'\nvia = ['red-a']\n".repeat(2),
            "36: network 'red' has two routes to 10.9.0.0/16",
            "via = [",
        ),
    ];
    let mut wrong = Vec::new();
    for (more, what, hint) in cases {
        let said = refused(&format!("{BASE}{more}"));
        if !said.starts_with(&format!("vrouter.toml:{what}")) || !said.contains(hint) {
            wrong.push(format!("{more}\n  says:  {said}\n  lacks: {what} ... {hint}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whole files, where what is wrong is between things.
#[test]
fn what_does_not_fit_together_is_named_on_both_sides() {
    let base = |red: &str, blue: &str, more: &str| {
        let text = BASE.replace("name = \"red\"\n", &format!("name = \"red\"\n{red}\n"));
        format!("{}{BLUE_B}{more}", text.replace("name = \"blue\"\n", &format!("name = \"blue\"\n{blue}\n")))
    };
    let allow = "[[policy]]\nname = 'p'\nrules = [{ action = 'allow', source = 'red', destination = 'blue' }]\n";
    let p = "policies = ['p']";
    let said = refused(&base(p, "", allow));
    assert!(
        said.starts_with("vrouter.toml:12: policy 'p' connects network 'red' with 'blue', and no policy of"),
        "{said}"
    );
    assert!(said.contains("add policies = [\"p\"] to network 'blue'"), "{said}");
    parse(&base(p, p, allow));
    // Who is not connected may have the same addresses.
    let same = |text: String| text.replace("10.2.0.", "10.1.0.");
    parse(&same(base("", "", "")));
    let said = refused(&same(base(p, p, allow)));
    assert!(
        said.contains("'blue' and 'red' are connected, and their subnets 10.1.0.0/24 and 10.1.0.0/24 overlap"),
        "{said}"
    );
    assert!(said.starts_with("vrouter.toml:13: networks"), "{said}");
    // Addresses of one behind a route of the other; both behind one's.
    let route = "[[route]]\nnetwork = 'blue'\nprefix = '10.1.0.64/26'\nvia = ['blue-b']\n";
    parse(&base("", "", route));
    let said = refused(&base(p, p, &format!("{allow}{route}")));
    assert!(
        said.contains(
            "'red' and 'blue' are connected, and the route of 'blue' to 10.1.0.64/26 is to a part of 10.1.0.0/24"
        ),
        "{said}"
    );

    let vxlan = |node: &str, can: &str| {
        let text = format!("{BASE}{RED_B}addresses = ['10.1.0.12']\n");
        text.replace(&format!("name = \"{node}\"\n"), &format!("name = \"{node}\"\n{can}\n"))
    };
    parse(&vxlan("a", "encapsulations = ['vxlan']"));
    let only = vxlan("a", "encapsulations = ['vxlan']")
        .replace("name = \"red\"", "name = \"red\"\nencapsulation = ['mplsoudp']");
    let said = refused(&only);
    assert!(
        said.starts_with(
            "vrouter.toml:3: nodes 'a' and 'b' have no encapsulation in common for network 'red': it wants mplsoudp, they \
             can vxlan and mplsoudp, mplsogre, vxlan"
        ),
        "{said}"
    );
    parse(&vxlan("b", "mtu = 1312"));
    let said = refused(&vxlan("b", "mtu = 1311"));
    assert!(
        said.starts_with("vrouter.toml:7: node 'b': an MTU of 1311 bytes leaves 1279 for packets of network 'red'"),
        "{said}"
    );
    assert!(said.contains("IPv6 needs 1280\n  raise the MTU of the underlay to at least 1312"), "{said}");
    parse(&vxlan("b", "mtu = 620").replace(", \"fd00:1::/64\"", "").replace("    \"fd00:1::11\",\n", ""));
}

#[test]
fn what_cannot_be_said_in_lists_is_refused() {
    let text = |prefix: &str| {
        let rule = format!("{{ action = 'deny', source = '{prefix}', destination = 'any', direction = '>' }}");
        let base = BASE.replace("name = \"red\"\n", "name = \"red\"\npolicies = ['p']\n");
        format!("{base}{RED_B}addresses = ['10.1.0.12', '10.1.0.70']\n[[policy]]\nname = 'p'\nrules = [{rule}]\n")
    };
    parse(&text("10.1.0.0/24"));
    parse(&text("10.1.0.128/25"));
    let said = refused(&text("10.1.0.64/26"));
    assert!(
        said.contains("policy 'p' has a rule for 10.1.0.64/26, and interface 'red-b' has addresses inside and"),
        "{said}"
    );

    let ports = |count: usize| (1..=count).map(|port| port.to_string()).collect::<Vec<_>>().join(", ");
    let with_rules = |count| {
        let group = format!(
            "[[security_group]]\nname = 'g'\nin = [{{ protocol = 'tcp', ports = [{}] }}, {{}}]\n",
            ports(count)
        );
        format!("{BASE}{RED_B}addresses = ['10.1.0.12']\nsecurity_groups = ['g']\n{group}")
    };
    parse(&with_rules(1023));
    let said = refused(&with_rules(1024));
    assert!(said.contains("the security groups of interface 'red-b' have 1025 rules in one direction"), "{said}");
    assert!(said.contains("1024 are the most"), "{said}");
}

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
