//! Plans for nodes on different machines: where a wire leads from one to another, there are interfaces of theirs.

use anyhow::{Context, Result, bail};

use super::HostInterface;
use crate::placement::DUT_NODE;
use crate::plan::{InterfaceRef, Link, Mac, Plan};

/// A machine that has one node.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub node: &'a str,
    /// As users call it.
    pub host: &'a str,
    /// Interfaces that are taken for the node, one for each of its wires. Without any, those that lead to the other machines are shared.
    pub taken: &'a [String],
    pub interfaces: &'a [HostInterface],
}

/// Which of these has a node.
pub(super) fn machine_of<'a>(node: &str, mut nodes: impl Iterator<Item = &'a str> + Clone) -> Result<usize> {
    let own = nodes.clone().position(|own| own == node);
    let own = own.or_else(|| nodes.position(|own| own == DUT_NODE));
    own.with_context(|| format!("node {node} has no host: --on {node}=HOST"))
}

/// Replaces wires by interfaces of the machines, and has hardware addresses of this `number`.
///
/// # Errors
/// Why the machines' network cannot be what the plan has between nodes.
pub(super) fn arrange(mut plan: Plan, machines: &[Machine<'_>], number: u16) -> Result<Plan> {
    for space in plan.nodes.iter_mut().flat_map(|node| &mut node.spaces) {
        let own = space.interfaces.iter_mut().filter_map(|own| own.mac.as_mut());
        for mac in own.chain(space.neighbours.iter_mut().map(|neighbour| &mut neighbour.mac)) {
            *mac = numbered(*mac, number);
        }
    }
    let mut wires = vec![0; machines.len()];
    for wire in std::mem::take(&mut plan.wires) {
        let end = |at: &InterfaceRef| {
            let node = at.space.split('/').next().unwrap_or(&at.space);
            machine_of(node, machines.iter().map(|machine| machine.node))
        };
        let numbers = [end(&wire.ends[0])?, end(&wire.ends[1])?];
        let ends = numbers.map(|number| &machines[number]);
        let taken = [ends[0].taken_for(wires[numbers[0]])?, ends[1].taken_for(wires[numbers[1]])?];
        numbers.iter().for_each(|number| wires[*number] += 1);
        let given = network(ends, taken)?;
        for ((at, machine), given) in wire.ends.iter().zip(ends).zip(given) {
            join(&mut plan, at, machine, given)?;
        }
    }
    Ok(plan)
}

impl<'a> Machine<'a> {
    /// The interface that is taken for a wire of its node, by the number of the wire; none where one is shared.
    fn taken_for(&self, wire: usize) -> Result<Option<&'a HostInterface>> {
        if self.taken.is_empty() {
            return Ok(None);
        }
        let Some(name) = self.taken.get(wire) else {
            bail!(
                "node {} has more wires than interfaces are named for it: name one for each, --on {}={}:{},..., or none, to \
                 share what leads to the other hosts",
                self.node,
                self.node,
                self.host,
                self.taken.join(",")
            );
        };
        let Some(found) = self.interfaces.iter().find(|own| own.name == *name) else {
            let names: Vec<&str> = self.interfaces.iter().map(|own| own.name.as_str()).collect();
            bail!("{} has no interface {name}: it has {}", self.host, names.join(", "));
        };
        if let Some(why) = &found.in_use {
            bail!("{name} of {} cannot be taken: {why}", self.host);
        }
        Ok(Some(found))
    }
}

/// The interfaces by which two nodes reach each other, where those that are `taken` are known.
fn network<'a>(ends: [&Machine<'a>; 2], taken: [Option<&'a HostInterface>; 2]) -> Result<[&'a HostInterface; 2]> {
    let [near, far] = ends;
    // It is the user's word that a cable or a switch joins them.
    if let [Some(one), Some(other)] = taken {
        return Ok([one, other]);
    }
    let may_be = |machine: &Machine<'a>, taken: Option<&'a HostInterface>| match taken {
        Some(taken) => vec![taken],
        None => machine.interfaces.iter().filter(|own| own.up).collect(),
    };
    let joined = |(one, other): &(&HostInterface, &HostInterface)| {
        one.addresses.iter().any(|own| other.addresses.iter().any(|far| own.trunc() == far.trunc()))
    };
    let of_far = may_be(far, taken[1]);
    let all = may_be(near, taken[0]).into_iter().flat_map(|one| of_far.iter().map(move |other| (one, *other)));
    let common: Vec<_> = all.filter(joined).collect();
    let how = || format!("name an interface of each, --on {}={}:INTERFACE", near.node, near.host);
    match common.as_slice() {
        [(one, other)] => Ok([one, other]),
        [] => bail!(
            "{} and {} have no network in common, and a router between them does not know the addresses that nodes have: {} that \
             a cable or a switch joins; `netrig run pairs` and `netrig stream --on` go through routers",
            near.host,
            far.host,
            how()
        ),
        several => {
            let pairs: Vec<String> =
                several.iter().map(|(one, other)| format!("{} with {}", one.name, other.name)).collect();
            let pairs = pairs.join(", ");
            bail!("{} and {} have more than one network in common ({pairs}): {}", near.host, far.host, how())
        }
    }
}

/// Replaces an end of a wire by an interface of its node's machine.
fn join(plan: &mut Plan, at: &InterfaceRef, machine: &Machine<'_>, given: &HostInterface) -> Result<()> {
    let Machine { node, host, taken, .. } = machine;
    let HostInterface { name, mtu, mac, .. } = given;
    let shared = taken.is_empty();
    let space = plan.nodes.iter_mut().flat_map(|node| &mut node.spaces).find(|space| space.name == at.space);
    let own = space.and_then(|space| space.interfaces.iter_mut().find(|own| own.name == at.interface));
    let own = own.with_context(|| format!("find {}:{} in the plan", at.space, at.interface))?;
    let to_take = format!("name it, --on {node}={host}:{name}, and it is taken and given back");
    if shared && own.bridge.is_some() {
        bail!("an interface over {name} of {host} receives nothing for a bridge's other ports: {to_take}");
    }
    if shared && !own.offloads.is_empty() {
        bail!("the offloads of {name} are those of {host}: {to_take}");
    }
    if let Some(wanted) = own.mtu.filter(|wanted| shared && wanted > mtu) {
        bail!("{name} of {host} has an MTU of {mtu} bytes, and the wire is to have {wanted}: {to_take}");
    }
    if own.queues > 1 {
        bail!("the wire is to have {} queues, and those of {name} of {host} are its driver's", own.queues);
    }
    own.link = Link::OfHost { name: name.clone(), shared };
    // Its CPUs are those that its interrupts come to.
    own.steering = None;
    if !shared {
        own.mac = Some(*mac);
    }
    Ok(())
}

/// An address that no testbed of another number has; those that are planned differ in other bytes.
fn numbered(mac: Mac, number: u16) -> Mac {
    let [high, low] = number.to_be_bytes();
    let mut bytes = mac.0;
    bytes[1] ^= high;
    bytes[4] ^= low;
    Mac(bytes)
}

#[cfg(test)]
mod tests {
    use rig_sys::cpu::CpuSet;

    use super::*;
    use crate::topology::{Path, Topology};

    fn interface(name: &str, address: &str) -> HostInterface {
        HostInterface {
            name: name.to_owned(),
            mac: Mac([6, 0, 0, 0, 0, name.len() as u8]),
            mtu: 1500,
            up: true,
            addresses: address.parse().into_iter().collect(),
            in_use: None,
        }
    }

    /// The smallest plan of a path on two or three machines: the interfaces that nodes get, or why they get none.
    fn arranged(path: &str, machines: &[(&str, &[&str], &[HostInterface])]) -> Result<Vec<String>, String> {
        let (topology, _) = Topology::smallest(path.parse().unwrap()).unwrap();
        let plan = topology.plan(&vec![CpuSet::default(); topology.nodes().len()]);
        let taken: Vec<Vec<String>> =
            machines.iter().map(|(_, taken, _)| taken.iter().map(ToString::to_string).collect()).collect();
        let machines: Vec<Machine<'_>> = machines
            .iter()
            .zip(&taken)
            .map(|((node, _, interfaces), taken)| Machine { node, host: "web", taken, interfaces })
            .collect();
        let plan = arrange(plan, &machines, 0x0102).map_err(|error| error.to_string())?;
        assert!(plan.wires.is_empty());
        let of_host = |space: &str, own: &crate::plan::Interface| match &own.link {
            Link::OfHost { name, shared } => {
                Some(format!("{space}:{} {} {name}", own.name, if *shared { "over" } else { "is" }))
            }
            _ => None,
        };
        Ok(plan
            .spaces()
            .flat_map(|space| space.interfaces.iter().filter_map(|own| of_host(&space.name, own)))
            .collect())
    }

    #[test]
    fn machines_share_what_leads_to_each_other_or_give_what_is_named() {
        let near = [interface("eth0", "192.0.2.1/24"), interface("eth1", "198.51.100.1/24")];
        let far = [interface("ens3", "198.51.100.2/24"), interface("lan", "203.0.113.2/24")];
        assert_eq!(
            arranged("raw", &[("a", &[], &near), ("b", &[], &far)]).unwrap(),
            ["a:eth0 over eth1", "b:eth0 over ens3"]
        );
        assert_eq!(
            arranged("raw", &[("a", &["eth0"], &near), ("b", &["lan"], &far)]).unwrap(),
            ["a:eth0 is eth0", "b:eth0 is lan"]
        );
        assert_eq!(
            arranged("raw", &[("a", &["eth1"], &near), ("b", &[], &far)]).unwrap(),
            ["a:eth0 is eth1", "b:eth0 over ens3"]
        );
        let why = |machines: &[(&str, &[&str], &[HostInterface])]| arranged("raw", machines).unwrap_err();
        assert!(why(&[("a", &["eth0"], &near), ("b", &[], &far)]).contains("no network in common"));
        assert!(why(&[("a", &["eth7"], &near), ("b", &[], &far)]).contains("no interface eth7: it has eth0, eth1"));
        assert!(why(&[("a", &[], &near), ("c", &[], &far)]).contains("node b has no host: --on b=HOST"));
        let both = [interface("eth0", "192.0.2.9/24"), interface("eth1", "198.51.100.9/24")];
        assert!(why(&[("a", &[], &near), ("b", &[], &both)]).contains("(eth0 with eth0, eth1 with eth1)"));
        let busy =
            [HostInterface { in_use: Some("it has the default route".into()), ..interface("eth0", "192.0.2.1/24") }];
        assert!(why(&[("a", &["eth0"], &busy), ("b", &["lan"], &far)]).contains("cannot be taken: it has the default"));
        let down = [HostInterface { up: false, ..interface("eth0", "192.0.2.9/24") }];
        assert!(why(&[("a", &[], &near), ("b", &[], &down)]).contains("no network in common"));
        let shared = arranged("bridge", &[("a", &[], &near), ("b", &[], &far)]).unwrap_err();
        assert!(shared.contains("a bridge's other ports: name it, --on a=web:eth1"), "{shared}");
    }

    #[test]
    fn a_node_with_two_wires_has_an_interface_for_each() {
        let of = |name: &str, address: &str| [interface(name, address)];
        let (client, server) = (of("eth1", "192.0.2.1/24"), of("eth1", "198.51.100.1/24"));
        let dut = [interface("eth1", "192.0.2.2/24"), interface("eth2", "198.51.100.2/24")];
        let on = |taken: &[&str]| {
            let ends: [&[&str]; 2] = [&["eth1"], &["eth1"]];
            arranged("balancer", &[("client", ends[0], &client), (DUT_NODE, taken, &dut), ("server", ends[1], &server)])
        };
        let mut by_two = on(&["eth1", "eth2"]).unwrap();
        by_two.sort();
        assert_eq!(by_two, ["client:eth0 is eth1", "dut:eth0 is eth1", "dut:eth1 is eth2", "server:eth0 is eth1"]);
        let of_one = on(&["eth1"]).unwrap_err();
        assert!(of_one.contains("name one for each, --on dut=web:eth1,..."), "{of_one}");
    }

    #[test]
    fn hardware_addresses_of_groups_differ_and_those_of_one_do_not_meet() {
        let planned: Vec<Mac> = (0..16_u8)
            .flat_map(|node| {
                (0..4_u8).flat_map(move |space| (0..8_u8).map(move |own| Mac([2, 0, node, space, 0, own])))
            })
            .collect();
        let of = |number: u16| planned.iter().map(move |mac| numbered(*mac, number));
        let mut all: Vec<Mac> = [0, 1, 0x0100, 0xffff].into_iter().flat_map(of).collect();
        assert!(all.iter().all(|mac| mac.0[0] == 2), "administered locally, and of one station");
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn every_path_of_two_nodes_is_arranged_or_says_why() {
        let (near, far) = ([interface("eth1", "192.0.2.1/24")], [interface("eth1", "192.0.2.2/24")]);
        for path in Path::plain() {
            let (topology, _) = Topology::smallest(path).unwrap();
            if topology.nodes().len() == 2 {
                let taken = arranged(path.name(), &[("a", &["eth1"], &near), ("b", &["eth1"], &far)]);
                assert_eq!(taken.unwrap(), ["a:eth0 is eth1", "b:eth0 is eth1"], "{path}");
                let shared = arranged(path.name(), &[("a", &[], &near), ("b", &[], &far)]);
                assert!(shared.is_ok_and(|all| all.len() == 2) || path.name() == "bridge", "{path}");
            }
        }
    }
}
