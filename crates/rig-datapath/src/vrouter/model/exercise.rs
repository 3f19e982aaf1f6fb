//! The model against arbitrary packets, for a fuzzer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;

use ipnet::IpNet;
use rig_wire::ethernet::Mac;

use super::super::config::{
    Action, Config, Encapsulation, Flood, FlowActions, Interface, List, NextHop, Peer, Policy, Rule, Tunnel, Underlay,
    Vni, Vrf,
};
use super::super::sweep::Timeouts;
use super::super::trial::{Side, Verdict};
use super::Model;

const FLOWS: usize = 32;
/// Of the interface that a script's packets from other routers come by.
const UNDERLAY: u32 = (b'u' - b'0') as u32;
const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const OTHER_PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// Two containers here, of which one has rules, and one elsewhere; routes of every kind.
fn config() -> Config {
    let v4 = |host: u8| IpAddr::from([10, 7, 0, host]);
    let v6 = |host: u8| IpAddr::from(Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, host.into()));
    let mac = |host: u8| Mac([2, 0, 0, 0, 0, host]);
    let tunnel = |encapsulation, label| NextHop::Tunnel(Tunnel { peer: PEER, encapsulation, label, mac: mac(20) });
    let mut vrf = Vrf::default();
    for address in [v4, v6 as fn(u8) -> IpAddr] {
        let next_hops = vec![NextHop::Interface(2), tunnel(Encapsulation::Vxlan, 7)];
        vrf.routes.extend([
            (address(1).into(), NextHop::Gateway),
            (address(10).into(), NextHop::Interface(1)),
            (address(11).into(), NextHop::Interface(2)),
            (address(20).into(), tunnel(Encapsulation::MplsOverUdp, 100)),
            (address(21).into(), tunnel(Encapsulation::MplsOverGre, 101)),
            (address(50).into(), NextHop::Ecmp(next_hops)),
            (address(51).into(), NextHop::Vrf(1)),
            (address(52).into(), NextHop::Discard),
        ]);
    }
    vrf.routes.extend(["0.0.0.0/0", "::/0"].iter().filter_map(|all| {
        let all: IpNet = all.parse().ok()?;
        Some((all, tunnel(Encapsulation::Vxlan, 7)))
    }));
    vrf.macs.extend([(mac(10), NextHop::Interface(1)), (mac(11), NextHop::Interface(2))]);
    vrf.macs.insert(mac(20), tunnel(Encapsulation::Vxlan, 7));
    vrf.flood = Some(Flood {
        members: [1, 2].into(),
        label: Some(103),
        peers: BTreeMap::from([(PEER, (Encapsulation::MplsOverUdp, 107)), (OTHER_PEER, (Encapsulation::Vxlan, 7))]),
        unknown_unicast: true,
    });
    let rule = |protocol, ports, action| Rule {
        protocol: Some(protocol),
        ports,
        remote: BTreeSet::new(),
        action,
        flow_actions: FlowActions::default(),
    };
    let rules = vec![rule(6, 0..=1023, Action::Allow), rule(1, 8..=8, Action::Allow), rule(17, 9..=9, Action::Deny)];
    let policy = Policy { outward: vec![1], inward: vec![1], most_flows: NonZeroU32::new(8) };
    let interface = |number: u8, policy| Interface {
        index: number.into(),
        vrf: 1,
        mac: mac(9 + number),
        any_mac: number == 2,
        gateway: Some(Ipv4Addr::new(10, 7, 0, 1)),
        gateway6: Some(Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 1)),
        policy,
        mirror: None,
        fat: BTreeSet::new(),
        serves_dhcp: false,
    };
    Config {
        underlay: Some(Underlay {
            address: OWN,
            peers: [PEER, OTHER_PEER].map(|peer| (peer, Peer { interface: UNDERLAY, gateway: peer, mtu: 600 })).into(),
            strict: true,
        }),
        vrfs: BTreeMap::from([(1, Arc::new(vrf))]),
        interfaces: BTreeMap::from([(1, interface(1, Some(policy))), (2, interface(2, None))]),
        labels: BTreeMap::from([(100, NextHop::Interface(1)), (101, NextHop::Vrf(1)), (102, NextHop::Discard)]),
        vnis: BTreeMap::from([(7, Vni::Vrf(1)), (8, Vni::Interface(2))]),
        lists: BTreeMap::from([(1, List { rules, otherwise: Action::Allow })]),
        ..Config::default()
    }
}

/// Plays a script: a byte that says what happens, one for how long it is, and for packets as many times 8 bytes of a frame. How
/// many packets went out.
///
/// # Panics
/// When what goes out is not counted, or more comes out of a packet than a tunnel's header.
pub fn exercise(script: &[u8]) -> u64 {
    let (mut model, config) = (Model::new(FLOWS), config());
    model.apply(&config);
    let (mut rest, mut tick, mut sent) = (script, 1_u32, 0);
    while let [what, many, following @ ..] = rest {
        let (frame, behind) = following.split_at(following.len().min(usize::from(*many) * 8));
        let side = match what {
            b'0'..=b'3' => Side::Container,
            b'u' => Side::Underlay,
            b'l' => {
                (tick, rest) = (tick.saturating_add((*many).into()), following);
                continue;
            }
            b's' => {
                model.sweep(&Timeouts::default(), false, tick);
                rest = following;
                continue;
            }
            _ => {
                model.apply(&config);
                rest = following;
                continue;
            }
        };
        let before = model.drops().values().sum::<u64>();
        let outcome = model.packet(side, u32::from(*what).saturating_sub(b'0'.into()), frame, tick);
        let counted = model.drops().values().sum::<u64>() - before;
        // Of copies those that are refused are counted by themselves.
        assert!(outcome.reason.is_none() || counted > 0);
        assert!(counted <= 1 || outcome.copies.len() as u64 + counted <= 4);
        assert_eq!(outcome.verdict == Verdict::Redirect, outcome.out.is_some());
        // The most that is added is an ICMP error's headers to 128 bytes of a packet, or VXLAN's.
        assert!(outcome.frame.len() <= frame.len() + 50);
        sent += u64::from(outcome.verdict == Verdict::Redirect) + outcome.copies.len() as u64;
        rest = behind;
    }
    assert!(model.flows().len() <= FLOWS);
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_configuration_is_a_valid_one() {
        assert!(config().validate().is_ok());
    }

    #[test]
    fn what_is_no_script_is_none() {
        assert_eq!(exercise(b""), 0);
        assert_eq!(exercise(b"0"), 0);
        assert_eq!(exercise(b"0\xffshort"), 0);
    }
}
