//! Flows: what was let through once, which answers may come without asking the rules, and when they end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use rig_wire::protocol::{ICMP, ICMPV6, TCP, UDP};

use super::super::config::{Action, Config, List, NextHop, Service};
use super::super::reason::Reason;
use super::super::shape::TICK_SHIFT;
use super::super::sweep::Timeouts;
use super::packet::{Packet, Tuple, query_of};
use super::route::{self, Ingress};
use super::{FlowEntry, Step};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Packets of one direction: by the interface that they come from, or that they go to where they come by a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) interface: u32,
    pub(super) tuple: Tuple,
}

/// TCP's flags so far, of the client and of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TcpFlags {
    pub(super) syn: [bool; 2],
    pub(super) fin: [bool; 2],
    pub(super) rst: bool,
}

/// One direction of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flow {
    /// The direction of the packet that began it.
    pub(super) forward: bool,
    pub(super) denied: bool,
    /// Of all ports of the client.
    pub(super) fat: bool,
    /// Of the configuration under which it was let through.
    epoch: u32,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) reverse_interface: u32,
    next_hop: NextHop,
    pub(super) tunnel_port: u16,
    pub(super) tcp: TcpFlags,
    tick: u32,
    /// What was logged of it last, with the direction that began it.
    told: Option<bool>,
    mirror: Option<u8>,
}

/// Where a packet goes, and what its tunnel packet has for a source port.
#[derive(Debug, Clone)]
pub(super) struct Resolution {
    pub(super) next_hop: NextHop,
    pub(super) tunnel_port: u16,
    /// The analyser that gets a copy.
    pub(super) mirror: Option<u8>,
}

#[derive(Debug)]
pub(super) struct Flows {
    capacity: usize,
    pub(super) all: BTreeMap<Key, Flow>,
    /// Ports, and the type of ICMP, of packets in pieces, which their first piece has.
    pieces: HashMap<(Key, u32), (u16, u16, u8)>,
    epoch: u32,
    /// What decided about the packet that came last.
    pub(super) steps: Vec<Step>,
    pub(super) logged: Vec<RuleRecord>,
}

/// As [`LogRecord`](super::super::LogRecord) has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleRecord {
    pub interface: u32,
    pub sends: bool,
    pub list: u32,
    pub rule: u16,
    pub action: Action,
    pub let_through: bool,
    pub protocol: u8,
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

impl From<super::super::LogRecord> for RuleRecord {
    fn from(one: super::super::LogRecord) -> Self {
        let super::super::LogRecord { interface, sends, list, rule, action, let_through, protocol, .. } = one;
        Self {
            interface,
            sends,
            list,
            rule,
            action,
            let_through,
            protocol,
            source: one.source,
            destination: one.destination,
        }
    }
}

/// What a list says: the first rule that matches, and what is done.
fn decided(list: &List, remote: IpAddr, protocol: u8, port: u16) -> (Option<usize>, Action) {
    let rule = list.rules.iter().position(|rule| {
        rule.protocol.is_none_or(|of| of == protocol)
            && rule.ports.contains(&port)
            && (rule.remote.is_empty() || rule.remote.iter().any(|prefix| prefix.contains(&remote)))
    });
    (rule, rule.map_or(list.otherwise, |rule| list.rules[rule].action))
}

/// Whether the rules allow a connection: those for packets of the interface that begins it, and those for packets to the other one, as far
/// as these are on this node.
pub(super) fn is_let_through(
    config: &Config,
    tuple: &Tuple,
    icmp: u8,
    from: Option<u32>,
    to: Option<u32>,
    steps: &mut Vec<Step>,
) -> bool {
    let port = if matches!(tuple.protocol, ICMP | ICMPV6) { icmp.into() } else { tuple.destination_port };
    let mut all = |interface: Option<u32>, sends: bool, remote| {
        let number = interface.unwrap_or_default();
        let policy = config.interfaces.get(&number).and_then(|interface| interface.policy.as_ref());
        let lists = policy.map_or(&[][..], |policy| if sends { &policy.outward } else { &policy.inward });
        lists.iter().filter_map(|number| Some((*number, config.lists.get(number)?))).all(|(list, says)| {
            let (rule, action) = decided(says, remote, tuple.protocol, port);
            steps.push(Step::List { interface: number, sends, list, rule, action });
            action == Action::Allow
        })
    };
    all(from, true, tuple.destination) && all(to, false, tuple.source)
}

/// Records of the rules that log and have decided about a packet.
pub(super) fn logged(config: &Config, steps: &[Step], of: Tuple, let_through: bool) -> Vec<RuleRecord> {
    let end = |address, port| SocketAddr::new(address, port);
    let one = |step: &Step| match step {
        Step::List { interface, sends, list, rule: Some(rule), action }
            if config.lists[list].rules[*rule].flow_actions.log =>
        {
            Some(RuleRecord {
                interface: *interface,
                sends: *sends,
                list: *list,
                rule: *rule as u16,
                action: *action,
                let_through,
                protocol: of.protocol,
                source: end(of.source, of.source_port),
                destination: end(of.destination, of.destination_port),
            })
        }
        _ => None,
    };
    steps.iter().filter_map(one).collect()
}

/// Whether a packet is for a service of an interface's whose flows are fat.
fn is_fat(config: &Config, p: &Packet, interface: u32) -> bool {
    let service = Service { protocol: p.tuple.protocol, port: p.tuple.destination_port };
    config.interfaces.get(&interface).is_some_and(|interface| interface.fat.contains(&service))
}

/// The analyser of the first rule that has one, else of the sender, else of the receiver.
fn mirror(config: &Config, steps: &[Step], ends: [Option<u32>; 2]) -> Option<u8> {
    let by_rules = steps.iter().find_map(|step| match step {
        Step::List { list, rule: Some(rule), .. } => config.lists[list].rules[*rule].flow_actions.mirror,
        _ => None,
    });
    by_rules.or_else(|| ends.iter().flatten().find_map(|number| config.interfaces.get(number)?.mirror))
}

/// Routes that a packet takes.
pub(super) fn route_steps(config: &Config, vrf: u32, to: IpAddr) -> impl Iterator<Item = Step> {
    let routes = route::routes(config, vrf, to);
    routes.map(|(vrf, prefix, to)| Step::Route { vrf, prefix: *prefix, to: to.clone() })
}

impl Flows {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, all: BTreeMap::new(), pieces: HashMap::new(), epoch: 0, steps: Vec::new(), logged: Vec::new() }
    }

    /// Routes and rules are others from now on: each flow is held against them with its next packet.
    pub(super) fn turn_over(&mut self) {
        self.epoch += 1;
    }

    /// Has flows that another router has; each is held against routes and rules with its next packet.
    pub(super) fn remember(&mut self, known: &FlowEntry, tick: u32) {
        let tuple = Tuple {
            protocol: known.protocol,
            source: known.source.ip(),
            destination: known.destination.ip(),
            source_port: known.source.port(),
            destination_port: known.destination.port(),
        };
        let flow = Flow {
            forward: known.forward,
            denied: known.denied,
            fat: known.fat,
            epoch: self.epoch.wrapping_sub(1),
            packets: known.packets,
            bytes: known.bytes,
            reverse_interface: known.reverse_interface,
            next_hop: NextHop::Discard,
            tunnel_port: known.tunnel_port,
            tcp: TcpFlags::default(),
            tick,
            told: None,
            mirror: None,
        };
        self.all.insert(Key { interface: known.interface, tuple }, flow);
    }

    /// Connections of an interface, both directions of each as one.
    pub(super) fn connections(&self, interface: u32) -> usize {
        self.all.iter().filter(|(key, flow)| key.interface == interface && flow.forward).count()
    }

    /// The way of a packet of an interface's that has a policy, or that goes to one.
    pub(super) fn follow(
        &mut self,
        config: &Config,
        p: &mut Packet,
        interface: u32,
        by: Ingress,
        tick: u32,
    ) -> Result<Resolution, Reason> {
        self.join_pieces(p, interface)?;
        let mut key = Key { interface, tuple: p.tuple };
        if let Some(fat) = self.fat(p, interface).filter(|_| !self.all.contains_key(&key)) {
            (key, p.tuple) = (fat, fat.tuple);
        }
        let known = self.all.get(&key);
        self.steps.push(Step::Flow(known.map(|flow| FlowEntry::of(&key, flow))));
        if p.is_error && known.is_none() {
            return Err(Reason::Policy);
        }
        if known.is_none_or(|flow| flow.epoch != self.epoch)
            && let Some(unremembered) = self.decide(config, p, key, by, tick)?
        {
            return Ok(unremembered);
        }
        let key = Key { interface, tuple: p.tuple };
        let flow = self.all.get_mut(&key).ok_or(Reason::InvalidIf)?;
        if flow.denied {
            return Err(Reason::FlowActionDrop);
        }
        flow.packets += 1;
        flow.bytes += p.length as u64;
        flow.tick = tick;
        let resolution =
            Resolution { next_hop: flow.next_hop.clone(), tunnel_port: flow.tunnel_port, mirror: flow.mirror };
        if key.tuple.protocol == TCP && !p.is_error && !flow.fat {
            self.note_tcp(key, p.tcp_flags);
        }
        Ok(resolution)
    }

    /// The fat flow that a packet is of. A server cannot begin a TCP connection by it.
    fn fat(&self, p: &Packet, interface: u32) -> Option<Key> {
        if ![TCP, UDP].contains(&p.tuple.protocol) {
            return None;
        }
        let with = |tuple| Key { interface, tuple };
        let asks = with(Tuple { source_port: 0, ..p.tuple });
        let answers = with(Tuple { destination_port: 0, ..p.tuple });
        let is = |key: &Key, forward| self.all.get(key).is_some_and(|flow| flow.fat && flow.forward == forward);
        if is(&asks, true) {
            return Some(asks);
        }
        (is(&answers, false) && p.tcp_flags & (SYN | ACK) != SYN).then_some(answers)
    }

    /// A packet that has been cut is none of its flow's: its pieces are.
    pub(super) fn uncount(&mut self, p: &Packet, interface: u32) {
        if let Some(flow) = self.all.get_mut(&Key { interface, tuple: p.tuple }) {
            flow.packets -= 1;
            flow.bytes -= p.length as u64;
        }
    }

    /// A piece behind the first has its ports from that one (RFC 791, 3.2), which has come before.
    pub(super) fn join_pieces(&mut self, p: &mut Packet, interface: u32) -> Result<(), Reason> {
        let Some(fragment) = p.fragment else { return Ok(()) };
        let whose = (Key { interface, tuple: p.tuple.without_ports() }, fragment.identification);
        if fragment.later {
            let ports = self.pieces.get(&whose).ok_or(Reason::Fragments)?;
            (p.tuple.source_port, p.tuple.destination_port, p.icmp) = *ports;
        } else {
            self.pieces.insert(whose, (p.tuple.source_port, p.tuple.destination_port, p.icmp));
        }
        Ok(())
    }

    /// The way back to a sender; see [`route::way_back`].
    pub(super) fn came_by(
        &mut self,
        config: &Config,
        vrf: u32,
        source: IpAddr,
        by: Ingress,
    ) -> Result<NextHop, Reason> {
        let back = route::routes(config, vrf, source);
        self.steps.extend(back.map(|(vrf, prefix, to)| Step::Back { vrf, prefix: *prefix, to: to.clone() }));
        route::way_back(config, vrf, source, by)
    }

    /// Looks up a packet's routes and rules. Afterwards it is of a flow, unless the router itself answers it.
    fn decide(
        &mut self,
        config: &Config,
        p: &mut Packet,
        key: Key,
        by: Ingress,
        tick: u32,
    ) -> Result<Option<Resolution>, Reason> {
        let vrf = config.interfaces.get(&key.interface).ok_or(Reason::InvalidIf)?.vrf;
        // To oneself: both directions would be the same (CVE-1999-0016).
        if p.tuple.source == p.tuple.destination {
            return Err(Reason::InvalidSource);
        }
        let known = self.all.get(&key);
        let mut fat = known.is_some_and(|flow| flow.fat);
        let is_new = known.is_none();
        if is_new && is_fat(config, p, key.interface) {
            (fat, p.tuple.source_port) = (true, 0);
        }
        let back = self.came_by(config, vrf, p.tuple.source, by)?;
        let steps = &mut self.steps;
        let hash = route::hash(&p.tuple, p.tuple.protocol);
        let tunnel_port = route::tunnel_port(hash);
        let next_hop = match by {
            Ingress::Peer(_) => NextHop::Interface(key.interface),
            Ingress::Interface(_) => {
                steps.extend(route_steps(config, vrf, p.tuple.destination));
                route::resolve(config, vrf, p.tuple.destination, hash)?
            }
        };
        if let (true, false, Ingress::Interface(_), NextHop::Interface(other)) = (is_new, fat, by, &next_hop)
            && is_fat(config, p, *other)
        {
            let tuple = Tuple { source_port: 0, ..p.tuple };
            // Several ways are chosen from by the key: it still has to go there.
            let hash = route::hash(&tuple, tuple.protocol);
            if route::resolve(config, vrf, tuple.destination, hash).as_ref() == Ok(&next_hop) {
                (fat, p.tuple) = (true, tuple);
            }
        }
        let key = Key { tuple: p.tuple, ..key };
        if next_hop == NextHop::Gateway {
            return Ok(Some(Resolution { next_hop, tunnel_port, mirror: None }));
        }
        let (from, to) = match (by, &next_hop) {
            (Ingress::Peer(_), _) => (None, Some(key.interface)),
            (Ingress::Interface(_), NextHop::Interface(other)) => (Some(key.interface), Some(*other)),
            (Ingress::Interface(_), _) => (Some(key.interface), None),
        };
        let reverse_interface = if let NextHop::Interface(other) = next_hop { other } else { key.interface };
        let forward = self.all.get(&key).is_none_or(|flow| flow.forward);
        let asked = steps.len();
        // Rules are for the direction that began it.
        let is_allowed = match forward {
            true => is_let_through(config, &p.tuple, p.icmp, from, to, steps),
            false => {
                let request = query_of(p.icmp, p.is_v6());
                is_let_through(config, &p.tuple.reversed(), request, to, from, steps)
            }
        };
        let logged = logged(config, &steps[asked..], if forward { p.tuple } else { p.tuple.reversed() }, is_allowed);
        let mirror = mirror(config, &steps[asked..], if forward { [from, to] } else { [to, from] });
        let answers = Key { interface: reverse_interface, tuple: p.tuple.reversed() };
        // What was logged of it last is kept with the direction that began it.
        let is_known = self.all.contains_key(&key);
        let began = if forward || !self.all.contains_key(&answers) { key } else { answers };
        match self.all.get_mut(&began).filter(|_| is_known) {
            Some(flow) if !logged.is_empty() && flow.told != Some(is_allowed) => {
                flow.told = Some(is_allowed);
                self.logged.extend(&logged);
            }
            None if !is_allowed => self.logged.extend(&logged),
            _ => {}
        }
        if !is_allowed {
            let Some(flow) = self.all.get_mut(&key) else { return Err(Reason::Policy) };
            (flow.denied, flow.epoch) = (true, self.epoch);
            return Err(Reason::FlowActionDrop);
        }
        let new = Flow {
            forward: true,
            denied: false,
            fat,
            epoch: self.epoch,
            packets: 0,
            bytes: 0,
            reverse_interface,
            next_hop: next_hop.clone(),
            tunnel_port,
            tcp: TcpFlags::default(),
            tick,
            told: (!logged.is_empty()).then_some(true),
            mirror,
        };
        let answer = Flow {
            forward: false,
            told: None,
            reverse_interface: key.interface,
            next_hop: back,
            tunnel_port: route::tunnel_port(route::hash(&answers.tuple, p.tuple.protocol)),
            ..new.clone()
        };
        if let Some(flow) = self.all.get_mut(&key) {
            let moved = forward && flow.reverse_interface != reverse_interface;
            (flow.next_hop, flow.reverse_interface) = (next_hop, reverse_interface);
            (flow.denied, flow.epoch, flow.mirror) = (false, self.epoch, mirror);
            // Answers come by another way than before.
            if moved && (self.all.len() < self.capacity || self.all.contains_key(&answers)) {
                self.enter_back(answers, answer);
            }
            return Ok(None);
        }
        if Self::most(config, key.interface).is_some_and(|most| self.connections(key.interface) >= most.get() as usize)
        {
            return Err(Reason::NewFlows);
        }
        let wanted = 1 + usize::from(!self.all.contains_key(&answers));
        if self.all.len() + wanted > self.capacity {
            return Err(Reason::FlowTableFull);
        }
        self.enter_back(answers, answer);
        self.all.insert(key, new);
        self.steps.push(Step::Begun);
        self.logged.extend(logged);
        Ok(None)
    }

    /// Enters the direction of the answers. One that is there already answers the client's present interface, even if another one
    /// asked before.
    fn enter_back(&mut self, key: Key, answer: Flow) {
        let reverse_interface = answer.reverse_interface;
        let there = self.all.entry(key).or_insert(answer);
        if !there.forward {
            there.reverse_interface = reverse_interface;
        }
    }

    fn note_tcp(&mut self, key: Key, flags: u8) {
        let Some(flow) = self.all.get(&key) else { return };
        let (forward, other) = (flow.forward, Key { interface: flow.reverse_interface, tuple: key.tuple.reversed() });
        let Some(began) = self.all.get_mut(if forward { &key } else { &other }) else { return };
        let (seen, who) = (&mut began.tcp, usize::from(!forward));
        // A connection that is opened anew with the same ports is another one.
        if forward && flags & SYN != 0 && (seen.rst || seen.fin[0] || seen.fin[1]) {
            *seen = TcpFlags::default();
        }
        seen.syn[who] |= flags & SYN != 0;
        seen.fin[who] |= flags & FIN != 0;
        seen.rst |= flags & RST != 0;
    }

    /// The flows that an interface may have.
    fn most(config: &Config, interface: u32) -> Option<NonZeroU32> {
        let own = config.interfaces.get(&interface).and_then(|interface| interface.policy.as_ref()?.most_flows);
        own.or(config.most_flows)
    }

    /// Whether an interface has more than three quarters of these.
    fn share_runs_short(&self, config: &Config, interface: u32) -> bool {
        Self::most(config, interface).is_some_and(|most| self.connections(interface) * 4 > most.get() as usize * 3)
    }

    /// Ends connections that have been silent for too long, both directions together; how many.
    pub(super) fn sweep(&mut self, config: &Config, timeouts: &Timeouts, runs_short: bool, tick: u32) -> usize {
        let silent = |flow: &Flow| Duration::from_nanos(u64::from(tick.saturating_sub(flow.tick)) << TICK_SHIFT);
        let keys: Vec<Key> = self.all.keys().copied().collect();
        let of_interfaces = config.interfaces.keys().filter(|number| self.share_runs_short(config, **number));
        let short: BTreeSet<u32> = of_interfaces.copied().collect();
        let mut ended = 0;
        for key in keys {
            let Some(flow) = self.all.get(&key) else { continue };
            let reverse = Key { interface: flow.reverse_interface, tuple: key.tuple.reversed() };
            // One whose answers come from another interface by now has a direction of its own there; of two that have both
            // begun, or that are both answers, each ends by itself.
            let is_its_other =
                |other: &&Flow| other.reverse_interface == key.interface && other.forward != flow.forward;
            let other = self.all.get(&reverse).filter(is_its_other);
            // The direction that began it speaks for both.
            if !flow.forward && other.is_some() {
                continue;
            }
            let quiet = other.map_or(silent(flow), |other| silent(flow).min(silent(other)));
            let is_unanswered = flow.forward && other.is_some_and(|other| other.packets == 0);
            let longest = timeout(timeouts, key.tuple.protocol, flow.tcp);
            let ends_early = is_unanswered && (runs_short || short.contains(&key.interface));
            let longest = if ends_early { longest.min(timeouts.unanswered) } else { longest };
            if quiet >= longest {
                if other.is_some() {
                    self.all.remove(&reverse);
                }
                self.all.remove(&key);
                ended += 1;
            }
        }
        ended
    }
}

fn timeout(timeouts: &Timeouts, protocol: u8, tcp: TcpFlags) -> Duration {
    match protocol {
        TCP if tcp.rst || tcp.fin == [true, true] => timeouts.closed,
        TCP if tcp.syn == [true, false] => timeouts.opening,
        TCP => timeouts.established,
        _ => timeouts.other,
    }
}
