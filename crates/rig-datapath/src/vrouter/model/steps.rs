//! What decided about a packet, in the order in which it was looked at.

use std::net::Ipv4Addr;

use ipnet::IpNet;
use rig_wire::ethernet::Mac;

use super::super::config::{Action, Encapsulation, NextHop};
use super::FlowEntry;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It comes out of a tunnel, with the label or network identifier of something here.
    Tunnel { peer: Ipv4Addr, encapsulation: Encapsulation, label: u32 },
    /// It is bridged to the owner of its destination's MAC address.
    Bridge { vrf: u32, mac: Mac, to: NextHop },
    /// A route that it takes; one that leads to another table is followed by that one's.
    Route { vrf: u32, prefix: IpNet, to: NextHop },
    /// It is of a flow as it was before, or of none.
    Flow(Option<FlowEntry>),
    /// A route that answers to it would take, which is the way by which it must have come.
    Back { vrf: u32, prefix: IpNet, to: NextHop },
    /// A list of rules that the connection is held against: that of what an interface sends or receives.
    List {
        interface: u32,
        sends: bool,
        list: u32,
        /// The place of the first that matches, from 0; none where none does.
        rule: Option<usize>,
        action: Action,
    },
    /// A connection that is new, and is remembered.
    Begun,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use rig_wire::protocol::TCP;
    use rig_wire::{ipv4, tcp};

    use super::super::super::config::{Config, FlowActions, Interface, List, Policy, ROUTER_MAC, Rule, Vrf};
    use super::super::super::trial::{Side, Verdict};
    use super::super::Model;
    use super::*;

    const OWN: [u8; 4] = [10, 7, 0, 10];
    const OTHER: [u8; 4] = [10, 7, 0, 11];

    /// Of two networks; the second takes TCP to ports below 1,024.
    fn config() -> Config {
        let interface = |index, policy| Interface {
            index,
            vrf: index,
            mac: Mac([2, 0, 0, 0, 0, index as u8]),
            any_mac: true,
            gateway: None,
            gateway6: None,
            policy,
            mirror: None,
            fat: BTreeSet::new(),
            serves_dhcp: false,
        };
        let vrf = |routes: &[(&str, NextHop)]| {
            let routes = routes.iter().map(|(prefix, to)| (prefix.parse().unwrap(), to.clone())).collect();
            Arc::new(Vrf { routes, ..Vrf::default() })
        };
        let rule = |ports, action| Rule {
            protocol: Some(TCP),
            ports,
            remote: BTreeSet::new(),
            action,
            flow_actions: FlowActions::default(),
        };
        let rules = vec![rule(23..=23, Action::Deny), rule(0..=1023, Action::Allow)];
        Config {
            vrfs: BTreeMap::from([
                (1, vrf(&[("10.7.0.10/32", NextHop::Interface(1)), ("10.7.0.0/24", NextHop::Vrf(2))])),
                (2, vrf(&[("10.7.0.11/32", NextHop::Interface(2)), ("10.7.0.0/24", NextHop::Vrf(1))])),
            ]),
            interfaces: BTreeMap::from([
                (1, interface(1, None)),
                (2, interface(2, Some(Policy { inward: vec![9], ..Policy::default() }))),
            ]),
            lists: BTreeMap::from([(9, List { rules, otherwise: Action::Deny })]),
            ..Config::default()
        }
    }

    fn frame(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
        let mut frame = [&ROUTER_MAC.0[..], &[2, 0, 0, 0, 0, 1], &[8, 0]].concat();
        frame.resize(14 + ipv4::HEADER + tcp::HEADER, 0);
        let (source, destination) = (source.into(), destination.into());
        let header = ipv4::Header { source, destination, protocol: TCP, ttl: 64, tos: 0 };
        header.write(&mut frame[14..], tcp::HEADER).unwrap();
        for (at, port) in [34, 36].into_iter().zip(ports) {
            frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
        }
        // The length of the header, and a SYN.
        (frame[46], frame[47]) = (0x50, 0x02);
        frame
    }

    #[test]
    fn all_that_decides_about_a_packet_is_told_in_its_order() {
        let mut model = Model::new(16);
        model.apply(&config());
        let prefix = |text: &str| text.parse().unwrap();
        let list = |rule, action| Step::List { interface: 2, sends: false, list: 9, rule, action };
        let ways = [
            Step::Flow(None),
            Step::Back { vrf: 1, prefix: prefix("10.7.0.10/32"), to: NextHop::Interface(1) },
            Step::Route { vrf: 1, prefix: prefix("10.7.0.0/24"), to: NextHop::Vrf(2) },
            Step::Route { vrf: 2, prefix: prefix("10.7.0.11/32"), to: NextHop::Interface(2) },
        ];
        for (port, decides) in [
            (80, vec![list(Some(1), Action::Allow), Step::Begun]),
            (23, vec![list(Some(0), Action::Deny)]),
            (8080, vec![list(None, Action::Deny)]),
        ] {
            let outcome = model.packet(Side::Container, 1, &frame(OWN, OTHER, [40000, port]), 0);
            assert_eq!(outcome.verdict == Verdict::Redirect, decides.len() == 2);
            assert_eq!(model.steps(), [&ways[..], &decides].concat());
        }
        // It is known now, and nothing is looked up.
        let known = model.flows();
        model.packet(Side::Container, 1, &frame(OWN, OTHER, [40000, 80]), 0);
        let forward = known.iter().find(|known| known.forward).copied();
        assert!(matches!(model.steps(), [Step::Flow(Some(_))]), "{:?}", model.steps());

        // A model that takes flows over comes to the same, and says which rules are the reason.
        let mut other = Model::new(16);
        other.apply(&config());
        other.remember(known.clone(), 0);
        assert_eq!(other.flows(), known);
        let answer = frame(OTHER, OWN, [80, 40000]);
        for (side, frame) in [(1, frame(OWN, OTHER, [40000, 80])), (2, answer)] {
            let outcomes = [&mut model, &mut other].map(|model| model.packet(Side::Container, side, &frame, 0));
            assert_eq!(outcomes[0], outcomes[1]);
            assert_eq!(outcomes[0].verdict, Verdict::Redirect);
        }
        assert!(other.steps().contains(&list(Some(1), Action::Allow)), "{:?}", other.steps());
        let denied = forward.map(|known| FlowEntry { denied: true, ..known });
        let without =
            Config { lists: BTreeMap::from([(9, List { rules: Vec::new(), otherwise: Action::Deny })]), ..config() };
        let mut strict = Model::new(16);
        strict.apply(&without);
        strict.remember(denied, 0);
        let outcome = strict.packet(Side::Container, 1, &frame(OWN, OTHER, [40000, 80]), 0);
        assert_eq!((outcome.verdict, strict.steps().last()), (Verdict::Drop, Some(&list(None, Action::Deny))));
    }
}
