//! Whatever file is read becomes a configuration that the datapath takes.

use std::fmt::Write;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
struct Interface {
    node: usize,
    network: usize,
    groups: Vec<usize>,
    shares: bool,
    routes: bool,
    most_flows: Option<u32>,
}

#[derive(Debug, Clone)]
struct File {
    encapsulation: Vec<usize>,
    nodes: usize,
    /// Whether it is dual-stack, and whether it has the policy.
    networks: Vec<(bool, bool)>,
    interfaces: Vec<Interface>,
    /// Rules in and, unless everything may go, out: by protocol and remote.
    groups: Vec<(GroupRules, Option<GroupRules>)>,
    /// Source, destination, protocol, whether it allows.
    rules: Vec<(usize, usize, usize, bool)>,
}

type GroupRules = Vec<(usize, usize)>;

const GROUPS: usize = 3;
const PROTOCOLS: [&str; 4] =
    ["", "protocol = 'tcp', ports = [22, '80-90'], ", "protocol = 'icmp', types = 8, ", "protocol = 'udp', "];
const REMOTES: [&str; 5] = [
    "",
    "remote_prefix = '10.0.0.0/8', ",
    "remote_prefix = 'fd00::/16', ",
    "remote_group = 'group-0', ",
    "remote_group = 'group-1', ",
];

impl File {
    fn text(&self) -> String {
        let names = self.encapsulation.iter().map(|way| format!("'{}'", Encapsulation::ALL[*way].name()));
        let mut text = format!("[router]\nencapsulation = [{}]\n", names.collect::<Vec<_>>().join(", "));
        for node in 0..self.nodes {
            write!(text, "[[node]]\nname = 'n{node}'\naddress = '192.0.2.{}'\n", node + 1).unwrap();
        }
        for (n, (dual, policy)) in self.networks.iter().enumerate() {
            let ipv6 = if *dual { format!(", 'fd00:{n}::/64'") } else { String::new() };
            let policies = if *policy { "policies = ['p']\n" } else { "" };
            write!(text, "[[network]]\nname = 'net{n}'\nsubnets = ['10.{n}.0.0/24'{ipv6}]\n{policies}").unwrap();
        }
        for (n, interface) in self.interfaces.iter().enumerate() {
            let network = interface.network % self.networks.len();
            let ipv6 =
                if self.networks[network].0 { format!(", 'fd00:{network}::{:x}'", n + 2) } else { String::new() };
            let groups: BTreeSet<String> = interface.groups.iter().map(|group| format!("'group-{group}'")).collect();
            let groups = groups.into_iter().collect::<Vec<_>>().join(", ");
            write!(
                text,
                "[[interface]]\nname = 'i{n}'\nnode = 'n{}'\nnetwork = 'net{network}'\ndevice = 'v{n}'\n\
                 addresses = ['10.{network}.0.{}'{ipv6}]\nsecurity_groups = [{groups}]\n",
                interface.node % self.nodes,
                n + 2
            )
            .unwrap();
            if interface.shares {
                writeln!(text, "allowed_addresses = ['10.{network}.0.200']").unwrap();
            }
            if let Some(most) = interface.most_flows {
                writeln!(text, "most_flows = {most}").unwrap();
            }
            if interface.routes {
                write!(text, "[[route]]\nnetwork = 'net{network}'\nprefix = '172.16.{n}.0/24'\nvia = ['i{n}']\n")
                    .unwrap();
            }
        }
        for (n, (inward, outward)) in self.groups.iter().enumerate() {
            let rules = |rules: &[(usize, usize)]| -> String {
                let rule = |(protocol, remote): &(usize, usize)| {
                    format!("{{ {}{}}}, ", PROTOCOLS[*protocol], REMOTES[*remote])
                };
                rules.iter().map(rule).collect::<String>().replace(", }", " }")
            };
            write!(text, "[[security_group]]\nname = 'group-{n}'\nin = [{}]\n", rules(inward)).unwrap();
            if let Some(outward) = outward {
                writeln!(text, "out = [{}]", rules(outward)).unwrap();
            }
        }
        text.push_str("[[policy]]\nname = 'p'\nrules = [");
        for (source, destination, protocol, allow) in &self.rules {
            // Names only of networks that have the policy: others would have to have it.
            let having: Vec<usize> = (0..self.networks.len()).filter(|n| self.networks[*n].1).collect();
            let end = |n: &usize| match (n % 4, having.get(n / 4)) {
                (0 | 1, Some(network)) => format!("net{network}"),
                (2, _) => "10.1.0.0/24".to_owned(),
                _ => "any".to_owned(),
            };
            let action = if *allow { "allow" } else { "deny" };
            write!(
                text,
                "{{ {}action = '{action}', source = '{}', destination = '{}', direction = '>' }},",
                PROTOCOLS[*protocol],
                end(source),
                end(destination)
            )
            .unwrap();
        }
        text.push_str("]\n");
        text
    }
}

fn file() -> impl Strategy<Value = File> {
    let interface = (
        0_usize..3,
        0_usize..4,
        prop::collection::vec(0..GROUPS, 0..3),
        any::<bool>(),
        any::<bool>(),
        any::<Option<u32>>(),
    )
        .prop_map(|(node, network, groups, shares, routes, most_flows)| Interface {
            node,
            network,
            groups,
            shares,
            routes,
            most_flows,
        });
    let rules = || prop::collection::vec((0..PROTOCOLS.len(), 0..REMOTES.len()), 0..4);
    (
        Just((0..Encapsulation::ALL.len()).collect::<Vec<_>>()).prop_shuffle(),
        1_usize..4,
        prop::collection::vec(any::<(bool, bool)>(), 1..5),
        prop::collection::vec(interface, 0..12),
        prop::collection::vec((rules(), prop::option::of(rules())), GROUPS),
        prop::collection::vec((0_usize..16, 0_usize..16, 0..PROTOCOLS.len(), any::<bool>()), 0..5),
    )
        .prop_map(|(encapsulation, nodes, networks, interfaces, groups, rules)| File {
            encapsulation,
            nodes,
            networks,
            interfaces,
            groups,
            rules,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_read_is_what_a_datapath_takes(file in file()) {
        let text = file.text();
        let settings = Settings::parse("vrouter.toml", &text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let mut labels = BTreeSet::new();
        for name in settings.nodes.keys() {
            let mut numbers = Numbers::default();
            let config = compiled(&settings, name, &mut numbers);
            // Nothing is lost: each interface of each network that is reached has its route.
            for (network, _) in settings.networks_of(name) {
                let vrf = &config.vrfs[&numbers.vrfs.get(network).unwrap()];
                for interface in settings.interfaces.values().filter(|interface| interface.network == *network) {
                    for address in interface.all_addresses() {
                        prop_assert!(vrf.routes.contains_key(&IpNet::from(address)), "{address} in {network} of {name}\n{text}");
                    }
                }
            }
            for (number, interface) in settings.interfaces_of(name) {
                prop_assert!(labels.insert((name.clone(), interface.label)), "{number}");
                prop_assert!(config.labels.contains_key(&interface.label));
            }
            // The same again is the same, and a later node moves no number.
            prop_assert_eq!(&compiled(&settings, name, &mut numbers.clone()), &config);
            let more = format!(
                "{text}[[network]]\nname = 'more'\nsubnets = ['10.99.0.0/24']\n[[interface]]\nname = 'a-more'\nnode = 'n0'\n\
                 network = 'more'\ndevice = 'vm'\naddresses = ['10.99.0.2']\nsecurity_groups = ['group-0']\n"
            );
            let more = Settings::parse("vrouter.toml", &more).unwrap();
            let with_more = compiled(&more, name, &mut numbers);
            for (number, interface) in &config.interfaces {
                let after = &with_more.interfaces[number];
                prop_assert_eq!((after.vrf, after.mac, &after.policy), (interface.vrf, interface.mac, &interface.policy));
            }
            prop_assert!(config.labels.iter().all(|(label, next_hop)| with_more.labels.get(label) == Some(next_hop)));
            prop_assert!(config.vnis.iter().all(|(vni, vrf)| with_more.vnis.get(vni) == Some(vrf)));
            // A list says the same unless it names members, of whom there is one more elsewhere.
            prop_assert!(config.lists.iter().all(|(number, list)| with_more.lists.get(number) == Some(list)));
        }
    }
}

/// Lines of a file in another order, twice, or not at all, and numbers changed: what people do by accident.
fn damaged(text: &str, damage: &[(usize, usize, u8)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (one, other, how) in damage {
        let (one, other) = (one % lines.len(), other % lines.len());
        match how % 4 {
            0 => lines.swap(one, other),
            1 => lines[one] = lines[other].clone(),
            2 => lines[one].clear(),
            _ => {
                let digit = char::from(b'0' + (other % 10) as u8);
                lines[one] = lines[one].chars().map(|c| if c.is_ascii_digit() { digit } else { c }).collect();
            }
        }
    }
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_damaged_is_refused_or_is_what_a_datapath_takes(
        file in file(),
        damage in prop::collection::vec(any::<(usize, usize, u8)>(), 1..4),
    ) {
        let text = damaged(&file.text(), &damage);
        match Settings::parse("vrouter.toml", &text) {
            Err(error) => prop_assert!(error.line.is_some() && !error.what.is_empty(), "{error}\n{text}"),
            Ok(settings) => {
                for name in settings.nodes.keys() {
                    compiled(&settings, name, &mut Numbers::default());
                }
            }
        }
    }
}
