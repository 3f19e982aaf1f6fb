//! Cases that have a name, each a packet for one of two nodes: tests hold them against the model, `cargo xtask bench vrouter` times
//! them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rig_datapath::vrouter::{Action, Encapsulation, List, Policy, ROUTER_MAC, Rule, Side, Verdict};
use rig_wire::arp::{Arp, Operation};
use rig_wire::ethernet::{self, Mac, ethertype};
use rig_wire::protocol;
use rig_wire::tcp::flags::{ACK, SYN};

use super::frames;
use super::lab::{Lab, Node, mac_of, v4_of, v6_of};
use super::outer::{at, framed, rule, tcp, wrapped};

/// What the node's containers' packets are held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rules {
    /// No flows are remembered either.
    Nothing,
    /// No lists.
    #[default]
    Flows,
    /// Lists of so many rules each.
    Lists(u16),
}

/// A frame, the node and interface that it comes by, and what becomes of it.
pub struct Case {
    pub name: String,
    pub rules: Rules,
    pub node: usize,
    pub side: Side,
    pub interface: &'static str,
    pub frame: Vec<u8>,
    pub verdict: Verdict,
    /// Where the frame has its source port, if each repetition is to be of a flow of its own.
    pub port_at: Option<u32>,
}

/// Where TCP's source port is, behind Ethernet and IPv4.
const SOURCE_PORT: u32 = 34;

impl Case {
    /// Of the first container of the first node.
    fn of_container(name: &str, packet: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            rules: Rules::default(),
            node: 0,
            side: Side::Container,
            interface: "c0",
            frame: framed(mac_of(0, 0), ROUTER_MAC, packet),
            verdict: Verdict::Redirect,
            port_at: None,
        }
    }

    fn known(name: &str, from: impl Into<IpAddr>, to: impl Into<IpAddr>) -> Self {
        Self::of_container(name, &tcp(ACK, at(from, 1000), at(to, 80)))
    }

    fn unheld(self) -> Self {
        Self { rules: Rules::Nothing, name: format!("{}, no rules and no flows", self.name), ..self }
    }

    fn new(name: &str, rules: Rules, to: SocketAddr) -> Self {
        let packet = tcp(SYN, at(v4_of(0, 0), 1000), to);
        Self { rules, port_at: Some(SOURCE_PORT), ..Self::of_container(name, &packet) }
    }

    /// What comes to the second node.
    fn of_underlay(name: &str, packet: &[u8]) -> Self {
        let frame = framed(Mac([2; 6]), Mac([4; 6]), packet);
        Self { node: 1, side: Side::Underlay, interface: "wire", frame, ..Self::of_container(name, packet) }
    }

    fn dropped(self) -> Self {
        Self { verdict: Verdict::Drop, ..self }
    }
}

/// In an order in which those of the same rules are together.
pub fn all(encapsulation: Encapsulation) -> Vec<Case> {
    let inner = tcp(ACK, at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80));
    let outer = wrapped(encapsulation, &inner, 64, 50000, 0);
    let inner6 = tcp(ACK, at(v6_of(0, 0), 1000), at(v6_of(1, 0), 80));
    let mut stranger = outer.clone();
    stranger[15] = 77;
    let mut all = vec![
        Case::known("encapsulate, a known flow", v4_of(0, 0), v4_of(1, 0)),
        Case::known("encapsulate, a known flow of IPv6", v6_of(0, 0), v6_of(1, 0)),
        Case::of_underlay("decapsulate, a known flow", &outer),
        Case::of_underlay("decapsulate, a known flow of IPv6", &wrapped(encapsulation, &inner6, 64, 50000, 0)),
        Case::of_underlay("from an address that is not a peer", &stranger).dropped(),
    ];
    let unheld =
        [Case::of_container("encapsulate", &inner).unheld(), Case::of_underlay("decapsulate", &outer).unheld()];
    if encapsulation != Encapsulation::MplsOverUdp {
        all.extend(unheld);
        return all;
    }
    let (b, gateway) = (at(v4_of(0, 1), 80), Ipv4Addr::new(10, 7, 0, 1));
    let forged = tcp(SYN, at(v4_of(0, 1), 1000), at(v4_of(1, 0), 80));
    all.extend([
        Case::known("to a container of the node, a known flow", v4_of(0, 0), v4_of(0, 1)),
        Case::of_container("a ping to the gateway", &ping(gateway)),
        Case { frame: question(gateway), ..Case::of_container("a question for the gateway's address", &forged) },
        Case::of_container("from the address of another", &forged).dropped(),
        Case::new("new flow, no rules", Rules::Flows, b),
        Case::new("new flow, 10 rules out and 10 in", Rules::Lists(10), b),
        Case::new("new flow, 1000 rules out and 1000 in", Rules::Lists(1000), b),
        Case {
            port_at: None,
            ..Case::new("refused by the 999th of 1000 rules", Rules::Lists(1000), at(v4_of(0, 1), 2023))
        }
        .dropped(),
    ]);
    all.extend(unheld);
    all.extend([
        Case::known("to a container of the node", v4_of(0, 0), v4_of(0, 1)).unheld(),
        Case::of_container("from the address of another", &forged).dropped().unheld(),
    ]);
    all
}

fn ping(to: Ipv4Addr) -> Vec<u8> {
    let mut echo = [0; 64];
    let length = rig_wire::icmp::write_echo(&mut echo, 8, (7, 1), b"ping").unwrap();
    frames::ip(v4_of(0, 0).into(), to.into(), protocol::ICMP, 64, &echo[..length])
}

fn question(target: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0; 42];
    let header =
        ethernet::Header { destination: Mac::BROADCAST, source: mac_of(0, 0), vlan: None, ethertype: ethertype::ARP };
    header.write(&mut frame).unwrap();
    let (sender, target) = ((mac_of(0, 0), v4_of(0, 0)), (Mac::default(), target));
    Arp { operation: Operation::Request, sender, target }.write(&mut frame[ethernet::HEADER..]).unwrap();
    frame
}

/// So many, of which the last allows.
fn rules(count: u16) -> List {
    let deny = |number: u16| Rule {
        remote: [format!("100.64.{}.{}/28", number / 16, number % 16 * 16).parse().unwrap()].into(),
        ..rule(Some(protocol::TCP), 1024 + number..=1024 + number, Action::Deny)
    };
    let mut all: Vec<Rule> = (1..count).map(deny).collect();
    // The one but last is for all addresses.
    if let Some(last) = all.last_mut() {
        last.remote.clear();
    }
    all.push(rule(None, 0..=u16::MAX, Action::Allow));
    List { rules: all, otherwise: Action::Deny }
}

/// Gives all containers of a node the rules of a case.
pub fn set_rules(node: &mut Node, against: Rules) {
    let lists = if let Rules::Lists(count) = against { Some((1, rules(count))) } else { None };
    node.config.lists = lists.into_iter().collect::<BTreeMap<_, _>>();
    let lists: Vec<u32> = node.config.lists.keys().copied().collect();
    for interface in node.config.interfaces.values_mut() {
        let policy = Policy { outward: lists.clone(), inward: lists.clone(), most_flows: None };
        interface.policy = (against != Rules::Nothing).then_some(policy);
    }
    node.apply();
}

/// Gives the nodes the rules of a case where they have others.
pub fn prepare(lab: &mut Lab, case: &Case, before: &mut Rules) {
    if case.rules != *before {
        for node in &mut lab.nodes {
            set_rules(node, case.rules);
        }
        *before = case.rules;
    }
}
