#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

mod random;

use std::net::IpAddr;
use std::num::NonZeroU32;

use ipnet::IpNet;
use rig_datapath::vrouter::{Action, Flood, FlowActions, List, MOST_MEMBERS, MOST_RULES, Peer, Rule, Tunnel, Underlay};

use super::*;
use crate::routes::{Destination, FileRoutes, RouteKey, RouteSource, RouteUpdate};

/// Two nodes with a container each in network red, and one in network blue on node b.
const TWO: &str = r#"
[[node]]
name = "a"
address = "192.0.2.1"
[[node]]
name = "b"
address = "192.0.2.2"
mtu = 1400

[[network]]
name = "red"
subnets = ["10.1.0.0/24", "fd00:1::/64"]
vni = 100
[[network]]
name = "blue"
subnets = ["10.2.0.0/24"]
vni = 200

[[interface]]
name = "red-a"
node = "a"
network = "red"
device = "v1"
addresses = ["10.1.0.11", "fd00:1::11"]
mac = "02:00:00:00:00:0a"
label = 101
[[interface]]
name = "red-b"
node = "b"
network = "red"
device = "v1"
addresses = ["10.1.0.12", "fd00:1::12"]
mac = "02:00:00:00:00:0b"
label = 102
[[interface]]
name = "blue-b"
node = "b"
network = "blue"
device = "v2"
addresses = ["10.2.0.12"]
mac = "02:00:00:00:00:0c"
label = 103
"#;

const CONNECTED: &str = "[[policy]]\nname = 'p'\nrules = [\n\
    { action = 'allow', protocol = 'tcp', ports = 80, source = 'red', destination = 'blue', direction = '>' },\n\
    { action = 'deny', protocol = 'icmp', source = 'red', destination = 'blue' },\n]\n";

fn parse(text: &str) -> Settings {
    Settings::parse("vrouter.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn connected() -> String {
    let policies = TWO.replace("name = \"red\"", "name = \"red\"\npolicies = ['p']");
    policies.replace("name = \"blue\"", "name = \"blue\"\npolicies = ['p']") + CONNECTED
}

/// All that the settings name is there.
pub(super) fn site(settings: &Settings, node: &str) -> Site {
    let interfaces = settings.interfaces_of(node).zip(10..);
    let interfaces = interfaces.map(|((name, _), index)| (name.clone(), KernelInterface { index, mac: None }));
    let others = settings.nodes.iter().filter(|(name, _)| *name != node).map(|(_, node)| node.address);
    let peer = |address| (address, Peer { interface: 2, gateway: address, mtu: 1500 });
    Site { interfaces: interfaces.collect(), peers: others.map(peer).collect(), ..Site::default() }
}

pub(super) fn table(settings: &Settings, node: &str) -> RouteTable {
    let mut table = RouteTable::default();
    for update in FileRoutes::new(settings, node).updates().unwrap() {
        assert!(table.apply(update));
    }
    table
}

#[track_caller]
pub(super) fn compiled(settings: &Settings, node: &str, numbers: &mut Numbers) -> Config {
    let compiled = compile(settings, node, &site(settings, node), &table(settings, node), numbers).unwrap();
    assert_eq!(compiled.notes, BTreeSet::new());
    compiled.config.validate().unwrap_or_else(|error| panic!("{error}: {:#?}", compiled.config));
    compiled.config
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

fn to_b(encapsulation: Encapsulation, label: u32, last: u8) -> NextHop {
    // MPLS carries a packet for one address without its frame.
    let mac = if encapsulation == Encapsulation::Vxlan { mac(last) } else { Mac::default() };
    NextHop::Tunnel(Tunnel { peer: "192.0.2.2".parse().unwrap(), encapsulation, label, mac })
}

#[test]
fn an_address_of_an_interface_here_is_nobody_elses() {
    let settings = parse(TWO);
    let mut routes = table(&settings, "a");
    let theirs = routes.iter().find(|route| route.key.destination == Destination::Prefix(net("10.1.0.12/32")));
    let mut route = theirs.unwrap().clone();
    route.key.destination = Destination::Prefix(net("10.1.0.11/32"));
    assert!(routes.apply(RouteUpdate::Announce(route)));
    let mut numbers = Numbers::default();
    let compiled = compile(&settings, "a", &site(&settings, "a"), &routes, &mut numbers).unwrap();
    let said = "192.0.2.2 has 10.1.0.11 of network 'red', too, which is interface 'red-a' here";
    assert_eq!(compiled.notes, BTreeSet::from([said.to_owned()]));
    assert_eq!(compiled.config, self::compiled(&settings, "a", &mut numbers));
}

#[test]
fn containers_of_one_node_and_network_reach_each_other_without_an_underlay() {
    let text = TWO
        .replace("node = \"b\"", "node = \"a\"")
        .replace("device = \"v1\"\naddresses = [\"10.1.0.12\"", "device = \"v3\"\naddresses = [\"10.1.0.12\"");
    let alone = text.replace("[[node]]\nname = \"b\"\naddress = \"192.0.2.2\"\nmtu = 1400\n", "");
    let settings = parse(&alone);
    let mut numbers = Numbers::default();
    let config = compiled(&settings, "a", &mut numbers);
    assert_eq!((&config.underlay, config.vrfs.len(), config.lists.len()), (&None, 2, 0));
    let [red, blue] = ["red", "blue"].map(|name| &config.vrfs[&numbers.vrfs.get(name).unwrap()]);
    let [red_a, red_b, blue_b] =
        ["red-a", "red-b", "blue-b"].map(|name| NextHop::Interface(numbers.interfaces.get(name).unwrap()));
    let routes: BTreeMap<IpNet, NextHop> = [
        ("10.1.0.1/32", &NextHop::Gateway),
        ("10.1.0.11/32", &red_a),
        ("10.1.0.12/32", &red_b),
        ("fd00:1::1/128", &NextHop::Gateway),
        ("fd00:1::11/128", &red_a),
        ("fd00:1::12/128", &red_b),
    ]
    .map(|(prefix, next_hop)| (net(prefix), next_hop.clone()))
    .into();
    assert_eq!(red.routes, routes);
    assert_eq!(red.macs, BTreeMap::from([(mac(0xa), red_a.clone()), (mac(0xb), red_b)]));
    assert_eq!(blue.routes.len(), 2);
    assert_eq!(config.labels, BTreeMap::from([(101, red_a), (102, NextHop::Interface(3)), (103, blue_b)]));
    let interface = &config.interfaces[&numbers.interfaces.get("red-a").unwrap()];
    assert_eq!(interface.gateway.map(IpAddr::V4), "10.1.0.1".parse().ok());
    assert_eq!(interface.gateway6.map(IpAddr::V6), "fd00:1::1".parse().ok());
    assert_eq!((interface.index, interface.mac, &interface.policy), (11, mac(0xa), &None));
}

#[test]
fn another_nodes_container_is_behind_a_tunnel_of_each_encapsulation() {
    for (encapsulation, label) in
        [(Encapsulation::MplsOverUdp, 102), (Encapsulation::MplsOverGre, 102), (Encapsulation::Vxlan, 100)]
    {
        let name = encapsulation.name();
        // Two ways to say it: what is preferred, and what the other node can do.
        for text in [
            TWO.replace("name = \"red\"", &format!("name = \"red\"\nencapsulation = ['{name}']")),
            TWO.replace("mtu = 1400", &format!("encapsulations = ['{name}']\nmtu = 1400")),
        ] {
            let settings = parse(&text);
            let mut numbers = Numbers::default();
            let config = compiled(&settings, "a", &mut numbers);
            let red = numbers.vrfs.get("red").unwrap();
            let tunnel = to_b(encapsulation, label, 0xb);
            assert_eq!(config.vrfs[&red].routes[&net("10.1.0.12/32")], tunnel);
            assert_eq!(config.vrfs[&red].routes[&net("fd00:1::12/128")], tunnel);
            assert_eq!(config.vrfs[&red].macs[&mac(0xb)], tunnel);
            // Whatever it sends by, it takes what comes.
            assert_eq!(config.vnis, BTreeMap::from([(100, Vni::Vrf(red))]));
            assert_eq!(config.labels, BTreeMap::from([(101, NextHop::Interface(1))]));
            let peer = Peer { interface: 2, gateway: "192.0.2.2".parse().unwrap(), mtu: 1400 };
            let underlay = Underlay {
                address: "192.0.2.1".parse().unwrap(),
                peers: BTreeMap::from([(peer.gateway, peer)]),
                strict: true,
            };
            assert_eq!(config.underlay, Some(underlay));
            // No container of blue is here.
            assert_eq!(config.vrfs.len(), 1);
        }
    }
}

#[test]
fn a_policy_connects_networks_and_says_what_they_may_send() {
    let settings = parse(&connected());
    let (mut of_a, mut of_b) = (Numbers::default(), Numbers::default());
    let (a, b) = (compiled(&settings, "a", &mut of_a), compiled(&settings, "b", &mut of_b));
    // Node a has the table of blue for what red sends there, and takes nothing for it.
    let (red, blue) = (of_a.vrfs.get("red").unwrap(), of_a.vrfs.get("blue").unwrap());
    assert_eq!(a.vrfs[&red].routes[&net("10.2.0.0/24")], NextHop::Vrf(blue));
    let expected =
        [(net("10.2.0.1/32"), NextHop::Gateway), (net("10.2.0.12/32"), to_b(Encapsulation::MplsOverUdp, 103, 0xc))];
    assert_eq!(a.vrfs[&blue].routes, BTreeMap::from(expected));
    assert_eq!((a.vrfs[&blue].macs.len(), a.vnis.len()), (0, 1));
    let (red, blue) = (of_b.vrfs.get("red").unwrap(), of_b.vrfs.get("blue").unwrap());
    assert_eq!(b.vrfs[&blue].routes[&net("10.1.0.0/24")], NextHop::Vrf(red));
    assert_eq!(b.vrfs[&blue].routes[&net("fd00:1::/64")], NextHop::Vrf(red));
    assert_eq!(b.vrfs[&red].routes[&net("10.2.0.0/24")], NextHop::Vrf(blue));

    let list = |config: &Config, numbers: &Numbers, interface: &str, inward: bool| -> List {
        let number = numbers.interfaces.get(interface).unwrap();
        let policy = config.interfaces[&number].policy.clone().unwrap();
        let lists = if inward { policy.inward } else { policy.outward };
        assert_eq!(lists.len(), 1);
        config.lists[&lists[0]].clone()
    };
    let rule = |protocol, ports, remote: &[&str], action| Rule {
        protocol,
        ports,
        remote: remote.iter().map(|remote| net(remote)).collect(),
        action,
        flow_actions: FlowActions::default(),
    };
    let (reds, blues) = (["10.1.0.0/24", "fd00:1::/64"], ["10.2.0.0/24"]);
    let list_of = |rules| List { rules, otherwise: Action::Deny };
    let icmp = |remote| rule(Some(1), 0..=65535, remote, Action::Deny);
    let own = |remote: &[&str]| rule(None, 0..=65535, remote, Action::Allow);
    let http = |remote| rule(Some(6), 80..=80, remote, Action::Allow);
    // To all, and from who has no address yet, is within the network, too.
    let with = |remote: &[&'static str], more: [&'static str; 3]| [remote, &more].concat();
    let to_all = |remote: &[&'static str]| own(&with(remote, ["255.255.255.255/32", "224.0.0.0/4", "ff00::/8"]));
    let from_all = |remote: &[&'static str]| own(&with(remote, ["0.0.0.0/32", "::/128", "fe80::/10"]));
    assert_eq!(list(&a, &of_a, "red-a", false), list_of(vec![http(&blues), icmp(&blues), to_all(&reds)]));
    assert_eq!(list(&a, &of_a, "red-a", true), list_of(vec![icmp(&blues), from_all(&reds)]));
    assert_eq!(list(&b, &of_b, "blue-b", false), list_of(vec![icmp(&reds), to_all(&blues)]));
    assert_eq!(list(&b, &of_b, "blue-b", true), list_of(vec![http(&reds), icmp(&reds), from_all(&blues)]));

    let quiet = parse(&connected().replace("vni = 100", "vni = 100\nbroadcast = false"));
    let (mut of_a, mut of_b) = (Numbers::default(), Numbers::default());
    let (a, b) = (compiled(&quiet, "a", &mut of_a), compiled(&quiet, "b", &mut of_b));
    assert_eq!(list(&a, &of_a, "red-a", true), list_of(vec![icmp(&blues), own(&reds)]));
    assert_eq!(a.vrfs[&of_a.vrfs.get("red").unwrap()].flood, None);
    assert!(b.vrfs[&of_b.vrfs.get("blue").unwrap()].flood.is_some());
}

#[test]
fn frames_to_all_go_to_members_here_and_to_nodes_as_the_network_prefers() {
    let flood = |text: &str, node: &str, network: &str| {
        let mut numbers = Numbers::default();
        let config = compiled(&parse(text), node, &mut numbers);
        config.vrfs[&numbers.vrfs.get(network).unwrap()].flood.clone()
    };
    let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse::<Ipv4Addr>().unwrap());
    let (udp, gre, vxlan) = (Encapsulation::MplsOverUdp, Encapsulation::MplsOverGre, Encapsulation::Vxlan);
    let two = &TWO.replace("vni = 100", "vni = 100\nlabel = 199");
    let expected = |label, peer: (Encapsulation, u32), unknown_unicast| {
        Some(Flood { members: [1].into(), label, peers: [(b, peer)].into(), unknown_unicast })
    };
    assert_eq!(flood(two, "a", "red"), expected(Some(199), (udp, 199), false));
    assert_eq!(flood(two, "b", "red").map(|flood| flood.peers), Some([(a, (udp, 199))].into()));
    // What is left out both nodes draw alike.
    let drawn = parse(TWO).network_on("b", "red").unwrap().label;
    assert_eq!(flood(TWO, "a", "red").map(|flood| flood.peers), Some([(b, (udp, drawn))].into()));
    // No other node has a container of it.
    assert_eq!(flood(TWO, "b", "blue").map(|flood| flood.peers), Some(BTreeMap::new()));
    for (prefers, label, peer) in [
        ("'mplsoudp'", Some(199), (udp, 199)),
        ("'mplsogre', 'mplsoudp'", Some(199), (gre, 199)),
        ("'vxlan', 'mplsoudp'", Some(199), (vxlan, 100)),
        ("'vxlan'", None, (vxlan, 100)),
    ] {
        let with = two.replace("vni = 100", &format!("vni = 100\nencapsulation = [{prefers}]"));
        assert_eq!(flood(&with, "a", "red"), expected(label, peer, false), "{prefers}");
    }
    // As the other node can, and as this one can.
    let without = two.replace("mtu = 1400", "encapsulations = ['vxlan', 'mplsogre']");
    assert_eq!(flood(&without, "a", "red"), expected(Some(199), (gre, 199), false));
    assert_eq!(flood(&without, "b", "red").map(|flood| flood.peers), Some([(a, (gre, 199))].into()));
    let without = two.replace("mtu = 1400", "encapsulations = ['vxlan']");
    assert_eq!(flood(&without, "a", "red"), expected(Some(199), (vxlan, 100), false));
    assert_eq!(flood(&without, "b", "red").unwrap().label, None);
    let unknown = two.replace("vni = 100", "vni = 100\nflood_unknown_unicast = true");
    assert_eq!(flood(&unknown, "a", "red"), expected(Some(199), (udp, 199), true));
    assert_eq!(flood(&TWO.replace("vni = 100", "vni = 100\nbroadcast = false"), "a", "red"), None);
}

#[test]
fn of_several_routes_of_one_node_to_all_the_preferred_one_is_taken() {
    let text = TWO.replace("vni = 100", "vni = 100\nencapsulation = ['mplsogre', 'vxlan', 'mplsoudp']");
    let settings = parse(&text);
    let b: Ipv4Addr = "192.0.2.2".parse().unwrap();
    let route = |origin: &str, ways: &[(Encapsulation, u32)]| Route {
        key: RouteKey { network: "red".to_owned(), destination: Destination::All, origin: origin.to_owned() },
        node: b,
        encapsulations: ways.iter().copied().collect(),
        mac: Mac::default(),
        security_groups: BTreeSet::new(),
    };
    let (udp, gre, vxlan) = (Encapsulation::MplsOverUdp, Encapsulation::MplsOverGre, Encapsulation::Vxlan);
    let peers = |routes: &[Route]| {
        let (mut numbers, routes) = (Numbers::default(), routes.iter().cloned().collect());
        let compiled = compile(&settings, "a", &site(&settings, "a"), &routes, &mut numbers).unwrap();
        compiled.config.validate().unwrap();
        assert_eq!(compiled.notes, BTreeSet::new());
        let vrf = &compiled.config.vrfs[&numbers.vrfs.get("red").unwrap()];
        vrf.flood.clone().unwrap().peers.into_values().collect::<Vec<_>>()
    };
    let (of_labels, of_identifiers) = (route("1", &[(udp, 700), (gre, 700)]), route("2", &[(vxlan, 100)]));
    assert_eq!(peers(&[of_labels.clone(), of_identifiers.clone()]), [(gre, 700)]);
    assert_eq!(peers(&[route("1", &[(udp, 700)]), of_identifiers.clone()]), [(vxlan, 100)]);
    // A label that does not exist is none.
    for odd in [0, 3, 15, 1 << 20] {
        assert_eq!(peers(&[route("1", &[(gre, odd)]), of_identifiers.clone()]), [(vxlan, 100)], "{odd}");
    }
    assert_eq!(peers(&[route("1", &[(gre, 3)]), route("2", &[(vxlan, 1 << 24)])]), []);
}

#[test]
fn more_members_than_frames_are_copied_to_are_refused_or_noted() {
    let one = |number: usize| {
        let (high, low) = (number / 256, number % 256);
        format!(
            "[[interface]]\nname = 'm{number}'\nnode = 'a'\nnetwork = 'red'\ndevice = 'w{number}'\naddresses = ['10.1.{high}.{low}']\n"
        )
    };
    let many: String = (20..20 + MOST_MEMBERS - 1).map(one).collect();
    let text = TWO.replace("10.1.0.0/24", "10.1.0.0/16") + &many;
    let error = Settings::parse("vrouter.toml", &text).unwrap_err().to_string();
    assert!(error.contains("has 512 interfaces on node 'a' and 1 other nodes"), "{error}");
    assert!(error.contains("broadcast = false"), "{error}");
    parse(&text.replace("vni = 100", "vni = 100\nbroadcast = false"));
    // Without the other node they are as many as may be; who is learned then is left out.
    let mut settings = parse(&text.replace("vni = 100", "vni = 100\nbroadcast = false"));
    settings.networks.get_mut("red").unwrap().broadcast = true;
    let mut numbers = Numbers::default();
    let compiled = compile(&settings, "a", &site(&settings, "a"), &table(&settings, "a"), &mut numbers).unwrap();
    assert!(compiled.notes.iter().any(|note| note.contains("of 513 interfaces here and other nodes 512 get")));
    compiled.config.validate().unwrap();
}

#[test]
fn rules_for_prefixes_are_for_the_interfaces_that_are_there() {
    let text = TWO.replace(
        "node = \"b\"\nnetwork = \"red\"\ndevice = \"v1\"",
        "node = \"a\"\nnetwork = \"red\"\ndevice = \"v3\"",
    );
    let text = text.replace("name = \"red\"", "name = \"red\"\npolicies = ['q']")
        + "[[policy]]\nname = 'q'\nrules = [\n\
           { action = 'deny', source = '10.1.0.12/32', destination = 'any', direction = '>' },\n\
           { action = 'allow', source = 'fd00:1::/64', destination = '10.0.0.0/8', direction = '>' },\n]\n";
    let settings = parse(&text);
    let mut numbers = Numbers::default();
    let config = compiled(&settings, "a", &mut numbers);
    let outward = |name: &str| {
        let policy = config.interfaces[&numbers.interfaces.get(name).unwrap()].policy.as_ref().unwrap();
        config.lists[&policy.outward[0]].rules.clone()
    };
    // IPv4 addresses talk with IPv4 addresses, and an IPv6 address with none.
    assert_eq!(outward("red-a").len(), 1);
    let rules = outward("red-b");
    assert_eq!(
        (rules.len(), rules[0].action, &rules[0].remote),
        (2, Action::Deny, &BTreeSet::from([net("0.0.0.0/0")]))
    );
}

#[test]
fn a_group_as_remote_is_the_addresses_of_its_members_on_all_nodes() {
    let groups = "[[security_group]]\nname = 'web'\nin = [\n\
        { protocol = 'tcp', ports = [80, 443], remote_group = 'web' },\n{ remote_group = 'nobody' },\n\
        { protocol = 'icmp', remote_prefix = '10.0.0.0/8' },\n]\n\
        [[security_group]]\nname = 'nobody'\nout = [{ protocol = 'udp', ports = 53 }]\n";
    let text = TWO.replace("label = 101", "label = 101\nsecurity_groups = ['web']\nallowed_addresses = ['10.1.0.100']");
    let text = text.replace("label = 102", "label = 102\nsecurity_groups = ['web']");
    // Not connected: its address may be another container's.
    let text = text.replace("label = 103", "label = 103\nsecurity_groups = ['web']") + groups;
    let settings = parse(&text);
    let mut numbers = Numbers::default();
    let config = compiled(&settings, "a", &mut numbers);
    let policy = config.interfaces[&1].policy.clone().unwrap();
    assert_eq!((policy.outward.len(), policy.inward.len()), (0, 1));
    let list = &config.lists[&policy.inward[0]];
    let members: BTreeSet<IpNet> =
        ["10.1.0.11/32", "10.1.0.100/32", "fd00:1::11/128", "10.1.0.12/32", "fd00:1::12/128"].map(net).into();
    let of = |rule: &Rule| (rule.protocol, *rule.ports.start(), rule.remote.clone());
    let ten = BTreeSet::from([net("10.0.0.0/8")]);
    let rules: Vec<_> = list.rules.iter().map(of).collect();
    assert_eq!(rules, [(Some(6), 80, members.clone()), (Some(6), 443, members), (Some(1), 0, ten)]);
    assert_eq!(list.otherwise, Action::Deny);

    // Several groups allow what any of them allows; what one of them lets out wholly needs no list.
    let both =
        parse(&text.replace("security_groups = ['web']\nallowed", "security_groups = ['web', 'nobody']\nallowed"));
    let policy = compiled(&both, "a", &mut numbers).interfaces[&1].policy.clone().unwrap();
    assert_eq!((policy.outward.len(), policy.inward.len()), (0, 1));
    let only = parse(&text.replace("security_groups = ['web']\nallowed", "security_groups = ['nobody']\nallowed"));
    let config = compiled(&only, "a", &mut numbers);
    let policy = config.interfaces[&1].policy.clone().unwrap();
    assert_eq!((policy.outward.len(), policy.inward.len()), (1, 1));
    // Nothing comes in by a group that says nothing of it.
    assert_eq!(config.lists[&policy.inward[0]], List { rules: Vec::new(), otherwise: Action::Deny });
    assert_eq!(config.lists[&policy.outward[0]].rules.len(), 1);
}

#[test]
fn rules_that_log_do_so_in_both_kinds_of_lists() {
    let groups = "[[security_group]]\nname = 'g'\nin = [{ protocol = 'tcp', ports = [80, 443], log = true }, {}]\n";
    let text = connected().replace("label = 103", "label = 103\nsecurity_groups = ['g']") + groups;
    let text = text.replace("{ action = 'deny', protocol = 'icmp'", "{ log = true, action = 'deny', protocol = 'icmp'");
    let (settings, mut numbers) = (parse(&text), Numbers::default());
    let config = compiled(&settings, "b", &mut numbers);
    let policy = config.interfaces[&numbers.interfaces.get("blue-b").unwrap()].policy.clone().unwrap();
    let logs = |list: &u32| config.lists[list].rules.iter().map(|rule| rule.flow_actions.log).collect::<Vec<_>>();
    let inward: Vec<_> = policy.inward.iter().map(logs).collect();
    assert_eq!(inward, [vec![true, true, false], vec![false, true, false]]);
    assert_eq!(policy.outward.iter().map(logs).collect::<Vec<_>>(), [[true, false]]);
}

#[test]
fn analysers_are_named_by_rules_and_interfaces() {
    let analysers = "[[analyser]]\nname = 'one'\naddress = '198.51.100.2'\n\
                     [[analyser]]\nname = 'two'\naddress = '198.51.100.3'\nport = 9\nvni = 7\n";
    let text = connected().replace("label = 103", "label = 103\nmirror = 'two'") + analysers;
    let text =
        text.replace("{ action = 'allow', protocol = 'tcp'", "{ mirror = 'one', action = 'allow', protocol = 'tcp'");
    let (settings, mut numbers) = (parse(&text), Numbers::default());
    let mut site = site(&settings, "b");
    let peer = Peer { interface: 3, gateway: "192.0.2.254".parse().unwrap(), mtu: 1400 };
    site.peers.insert("198.51.100.3".parse().unwrap(), peer);
    let compiled = compile(&settings, "b", &site, &table(&settings, "b"), &mut numbers).unwrap();
    compiled.config.validate().unwrap();
    let notes: Vec<&String> = compiled.notes.iter().collect();
    assert_eq!(notes, ["analyser 'one': there is no way to 198.51.100.2, and so no copies"]);
    let config = compiled.config;
    let ways: Vec<_> = config.analysers.values().map(|one| (one.port, one.vni, one.peer)).collect();
    assert_eq!(ways, [(4789, 0, None), (9, 7, Some(peer))]);
    assert!(config.analysers.values().all(|one| one.source == settings.nodes["b"].address));
    let interface = &config.interfaces[&numbers.interfaces.get("blue-b").unwrap()];
    assert_eq!(interface.mirror, Some(2));
    let inward = &config.lists[&interface.policy.as_ref().unwrap().inward[0]];
    let mirrors: Vec<_> = inward.rules.iter().map(|rule| rule.flow_actions.mirror).collect();
    assert_eq!(mirrors[..2], [Some(1), None]);
    // Who is mirrored has flows, with rules or without.
    let alone = parse(&(TWO.replace("label = 103", "label = 103\nmirror = 'two'") + analysers));
    let config = compile(&alone, "b", &site, &table(&alone, "b"), &mut numbers).unwrap().config;
    let policies: Vec<bool> = config.interfaces.values().map(|interface| interface.policy.is_some()).collect();
    assert_eq!(policies.iter().filter(|is| **is).count(), 1);
}

#[test]
fn fat_flows_are_those_of_interfaces_and_of_their_networks() {
    let text = TWO
        .replace("name = \"red\"\nsub", "name = \"red\"\nfat_flows = [{ protocol = 'udp', port = 53 }]\nsub")
        .replace("label = 102", "label = 102\nfat_flows = [{ protocol = 6, port = 80 }]");
    let (settings, mut numbers) = (parse(&text), Numbers::default());
    let config = compiled(&settings, "b", &mut numbers);
    config.validate().unwrap();
    let of = |name: &str| {
        let interface = &config.interfaces[&numbers.interfaces.get(name).unwrap()];
        assert_eq!(interface.policy.is_some(), !interface.fat.is_empty());
        interface.fat.iter().map(|service| (service.protocol, service.port)).collect::<Vec<_>>()
    };
    assert_eq!((of("red-b"), of("blue-b")), (vec![(6, 80), (17, 53)], vec![]));
}

#[test]
fn interfaces_with_the_same_groups_share_a_list() {
    let groups = "[[security_group]]\nname = 'g'\nin = [{ protocol = 'tcp' }]\n";
    let text = TWO.replace("label = 102", "label = 102\nsecurity_groups = ['g']\nmost_flows = 9");
    let text = text.replace("label = 103", "label = 103\nsecurity_groups = ['g']") + groups;
    let config = compiled(&parse(&text), "b", &mut Numbers::default());
    assert_eq!(config.lists.len(), 1);
    let flows: Vec<_> =
        config.interfaces.values().map(|interface| interface.policy.as_ref().unwrap().most_flows).collect();
    assert_eq!(flows, [None, NonZeroU32::new(9)]);
    // Who says nothing has its part of the table, and who says 0 all of it; who is alone, too.
    assert_eq!(config.most_flows, NonZeroU32::new(131_072 / 2));
    let unlimited = compiled(&parse(&text.replace("most_flows = 9", "most_flows = 0")), "b", &mut Numbers::default());
    let flows: Vec<_> =
        unlimited.interfaces.values().map(|interface| interface.policy.as_ref().unwrap().most_flows).collect();
    assert_eq!(flows, [None, Some(NonZeroU32::MAX)]);
    assert_eq!(compiled(&parse(TWO), "a", &mut Numbers::default()).most_flows, None);
    let shares = [1, 2, 8, 1000].map(|interfaces| parse(TWO).router.share_of_flows(interfaces));
    assert_eq!(shares, [131_072, 65_536, 16_384, 16_384]);
    // In networks of their own where a rule names members.
    let config =
        compiled(&parse(&text.replace("{ protocol = 'tcp' }", "{ remote_group = 'g' }")), "b", &mut Numbers::default());
    assert_eq!(config.lists.len(), 2);
}

#[test]
fn several_ways_to_one_address_or_prefix_are_all_taken() {
    let text = TWO
        .replace("label = 101", "label = 101\nallowed_addresses = ['10.1.0.100']")
        .replace("label = 102", "label = 102\nallowed_addresses = ['10.1.0.100']")
        + "[[route]]\nnetwork = 'red'\nprefix = '0.0.0.0/0'\nvia = ['red-a', 'red-b']\n";
    let settings = parse(&text);
    let config = compiled(&settings, "a", &mut Numbers::default());
    let ways = NextHop::Ecmp(vec![NextHop::Interface(1), to_b(Encapsulation::MplsOverUdp, 102, 0xb)]);
    assert_eq!(config.vrfs[&1].routes[&net("10.1.0.100/32")], ways);
    assert_eq!(config.vrfs[&1].routes[&net("0.0.0.0/0")], ways);
    // Addresses that no container has are not behind the route to everything.
    assert_eq!(config.vrfs[&1].routes[&net("10.1.0.0/24")], NextHop::Discard);
    assert_eq!(config.vrfs[&1].routes.get(&net("fd00:1::/64")), None);
}

#[test]
fn a_route_to_everything_reaches_connected_networks_and_closes_their_subnets() {
    let text = connected() + "[[route]]\nnetwork = 'blue'\nprefix = '0.0.0.0/0'\nvia = ['blue-b']\n";
    let settings = parse(&text);
    let mut numbers = Numbers::default();
    let config = compiled(&settings, "b", &mut numbers);
    let [red, blue] = ["red", "blue"].map(|name| numbers.vrfs.get(name).unwrap());
    let everything = net("0.0.0.0/0");
    assert_eq!(config.vrfs[&red].routes[&everything], NextHop::Vrf(blue));
    assert_eq!(config.vrfs[&red].routes[&net("10.1.0.0/24")], NextHop::Discard);
    assert_eq!(config.vrfs[&blue].routes[&net("10.2.0.0/24")], NextHop::Discard);
    assert_eq!(config.vrfs[&blue].routes[&net("10.1.0.0/24")], NextHop::Vrf(red));
}

#[test]
fn what_is_not_there_is_left_out_and_told() {
    let settings = parse(TWO);
    let mut site = site(&settings, "b");
    site.interfaces.get_mut("red-b").unwrap().mac = Some(mac(0x77));
    site.interfaces.remove("blue-b");
    site.peers.clear();
    let compiled = compile(&settings, "b", &site, &table(&settings, "b"), &mut Numbers::default()).unwrap();
    let notes: Vec<&str> = compiled.notes.iter().map(String::as_str).collect();
    let expected = [
        "interface 'blue-b' is not there yet",
        "interface 'red-b' has MAC address 02:00:00:00:00:77, and the file says 02:00:00:00:00:0b: frames from \
         02:00:00:00:00:77 are dropped",
        "node 'a': there is no way to 192.0.2.1, and so none to its containers",
    ];
    assert_eq!(notes, expected);
    let config = compiled.config;
    assert_eq!((config.interfaces.len(), config.labels.len(), config.vrfs.len()), (1, 1, 2));
    assert!(config.vrfs.values().flat_map(|vrf| vrf.routes.values()).all(|next| !matches!(next, NextHop::Tunnel(_))));
    config.validate().unwrap();

    let twice = KernelInterface { index: 5, mac: None };
    site.interfaces = [("red-b".to_owned(), twice), ("blue-b".to_owned(), twice)].into();
    let compiled = compile(&settings, "b", &site, &table(&settings, "b"), &mut Numbers::default()).unwrap();
    assert!(compiled.notes.iter().any(|note| note.contains("'red-b' is the same of the kernel's as 'blue-b'")));
    compiled.config.validate().unwrap();

    let unknown = compile(&settings, "c", &site, &RouteTable::default(), &mut Numbers::default()).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no node 'c' in the settings: choose from a, b");
}

#[test]
fn a_way_that_is_too_narrow_is_told() {
    let settings = parse(TWO);
    let mut site = site(&settings, "b");
    site.peers.values_mut().for_each(|peer| peer.mtu = 1300);
    let compiled = compile(&settings, "b", &site, &table(&settings, "b"), &mut Numbers::default()).unwrap();
    let notes: Vec<&str> = compiled.notes.iter().map(String::as_str).collect();
    let told = "the way to 192.0.2.1: an MTU of 1300 bytes leaves 1268 for packets of network 'red' in mplsoudp, and IPv6 needs \
                1280";
    assert_eq!(notes, [told]);
    assert!(compiled.config.vrfs[&2].routes.contains_key(&net("10.1.0.11/32")));
}

/// What others announce was written by others.
#[test]
fn routes_that_make_no_sense_are_left_out_and_told() {
    let settings = parse(TWO);
    let good = table(&settings, "a").iter().find(|route| route.key.origin == "red-b").unwrap().clone();
    let with = |change: fn(&mut Route)| {
        let mut route = good.clone();
        change(&mut route);
        let mut routes = RouteTable::default();
        routes.apply(RouteUpdate::Announce(route));
        let compiled = compile(&settings, "a", &site(&settings, "a"), &routes, &mut Numbers::default()).unwrap();
        compiled.config.validate().unwrap();
        let tunnels = compiled.config.vrfs.values().flat_map(|vrf| vrf.routes.values().chain(vrf.macs.values()));
        (tunnels.filter(|next| matches!(next, NextHop::Tunnel(_))).count(), compiled.notes.into_iter().next())
    };
    let told = |change: fn(&mut Route), note: &str| {
        let (tunnels, notes) = with(change);
        assert_eq!((tunnels, notes.as_deref()), (0, Some(note)));
    };
    assert_eq!(with(|_| ()), (1, None));
    told(|route| route.key.network = "green".into(), "192.0.2.2 has routes of a network 'green', which does not exist");
    told(
        |route| route.encapsulations = [(Encapsulation::MplsOverUdp, 3)].into(),
        "192.0.2.2 has a route of network 'red' with label 3, which does not exist",
    );
    told(
        |route| route.encapsulations = [(Encapsulation::Vxlan, 1 << 24)].into(),
        "192.0.2.2 has a route of network 'red' with label 16777216, which does not exist",
    );
    told(
        |route| route.key.destination = crate::routes::Destination::Prefix(net("::ffff:10.1.0.11/128")),
        "192.0.2.2 has a route to ::ffff:10.1.0.11/128 of network 'red', which is not a prefix of containers",
    );
    told(
        |route| route.encapsulations.clear(),
        "192.0.2.2 has routes of network 'red' in no encapsulation that this node can do",
    );
    told(
        |route| route.node = "192.0.2.99".parse().unwrap(),
        "a node: there is no way to 192.0.2.99, and so none to its containers",
    );
    // Neither the gateway nor this node is anywhere else.
    let gateway =
        with(|route| route.key.destination = crate::routes::Destination::Prefix("10.1.0.1/32".parse().unwrap()));
    assert_eq!(gateway, (0, None));
    assert_eq!(with(|route| route.node = "192.0.2.1".parse().unwrap()), (0, None));
    // A prefix from outside, as a gateway to the world has it.
    assert_eq!(
        with(|route| route.key.destination = crate::routes::Destination::Prefix("::/0".parse().unwrap())),
        (1, None)
    );
}

#[test]
fn nobodys_number_changes_when_somebody_is_added() {
    let settings = parse(&connected());
    let mut numbers = Numbers::default();
    compiled(&settings, "b", &mut numbers);
    let before = numbers.clone();
    // All of it sorts before what is there.
    let more = "[[network]]\nname = 'an'\nsubnets = ['10.3.0.0/24']\npolicies = ['a']\n\
        [[interface]]\nname = 'an-1'\nnode = 'b'\nnetwork = 'an'\ndevice = 'v9'\naddresses = ['10.3.0.9']\n\
        security_groups = ['a']\n[[security_group]]\nname = 'a'\n[[policy]]\nname = 'a'\nrules = []\n";
    let settings = parse(&format!("{}{more}", connected()));
    compiled(&settings, "b", &mut numbers);
    for (old, new) in
        [(&before.vrfs, &numbers.vrfs), (&before.interfaces, &numbers.interfaces), (&before.lists, &numbers.lists)]
    {
        assert!(old.iter().count() > 0 && old.iter().all(|(name, number)| new.get(name) == Some(number)));
        assert!(new.iter().count() > old.iter().count());
    }
}

#[test]
fn as_many_rules_as_a_list_has_are_taken() {
    let ports: Vec<String> = (1..MOST_RULES).map(|port| port.to_string()).collect();
    let rules = format!(
        "{{ action = 'deny', protocol = 'tcp', ports = [{}], source = 'any', destination = 'any', direction = '>' }}",
        ports.join(",")
    );
    let text = TWO.replace("name = \"red\"", "name = \"red\"\npolicies = ['p']");
    let policy = |rules: &str| format!("{text}[[policy]]\nname = 'p'\nrules = [{rules}]\n");
    let config = compiled(&parse(&policy(&rules)), "a", &mut Numbers::default());
    assert!(config.lists.values().all(|list| list.rules.len() == MOST_RULES));
    let one_more = format!("{rules}, {{ action = 'deny', source = 'any', destination = 'any' }}");
    let error = Settings::parse("vrouter.toml", &policy(&one_more)).unwrap_err().to_string();
    assert!(error.contains("the policies of the network of interface 'red-a' have 1025 rules"), "{error}");
}
