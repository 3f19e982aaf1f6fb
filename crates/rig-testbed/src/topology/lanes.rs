//! Several wires between an end and what is beside it, on the paths of three nodes: a lane for each packet worker of an
//! end, with addresses that are its own from end to end, so that no two workers ever share a queue, a neighbour or a flow.
//!
//! Lane 0 is what there is without any of this: its interfaces and addresses do not depend on how many lanes there are.

use std::net::IpAddr;

use super::address::DUTS_POOL;
use super::{Endpoint, Pool, Topology, TopologyError};

/// The interface of an end on a lane.
pub fn uplink(lane: u32) -> String {
    format!("eth{lane}")
}

/// The interface of a node on its wire to another, where each two have one.
pub fn uplink_to(node: usize, other: usize) -> String {
    uplink(if other < node { other } else { other.saturating_sub(1) } as u32)
}

/// The DUT's interface towards the client on a lane.
pub fn client_link(lane: u32) -> String {
    format!("eth{}", 2 * lane)
}

/// The DUT's interface towards the server on a lane.
pub fn server_link(lane: u32) -> String {
    format!("eth{}", 2 * lane + 1)
}

impl Topology {
    /// Lanes that a testbed may have. Subnets are numbered by them, in 8 bits with room for others.
    pub const LANES_MAX: u32 = 64;

    /// This testbed with so many wires in place of each.
    ///
    /// # Errors
    /// When its path or its wire does not allow it.
    pub fn with_lanes(self, lanes: u32) -> Result<Self, TopologyError> {
        let several = "several workers at each end";
        if !(1..=Self::LANES_MAX).contains(&lanes) {
            let hint = format!("each has a wire of its own: choose 1 to {}", Self::LANES_MAX);
            return Err(TopologyError::new(format!("{lanes} workers at each end"), hint));
        }
        if lanes > 1 && !self.path.is_of_three() {
            let hint = "only client, DUT and server have several wires: use one worker, or several queues";
            return Err(TopologyError::new(format!("{several} of path {}", self.path), hint));
        }
        if lanes > 1 && self.wire.is_some_and(|wire| wire.rate.is_some()) {
            let hint = "each worker has a wire of its own, and a rate is one wire's: remove it, or use one worker";
            return Err(TopologyError::new(format!("{several} of a wire with a rate"), hint));
        }
        Ok(Self { lanes, ..self })
    }

    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// This testbed with a wire more between client and DUT, behind those of the lanes, for a flood beside a load: no server is behind it.
    ///
    /// # Errors
    /// When nothing stands between client and server.
    pub fn with_flood(self) -> Result<Self, TopologyError> {
        if !self.path.has_dut() {
            let hint = "use a path with a device under test, such as balancer";
            return Err(TopologyError::new(format!("a flood beside a load on path {}", self.path), hint));
        }
        Ok(Self { flooded: true, ..self })
    }

    /// The wire of a flood, numbered as lanes are.
    pub fn flood_lane(&self) -> Option<u32> {
        self.flooded.then_some(self.lanes)
    }

    /// Wires between client and DUT.
    pub fn client_wires(&self) -> u32 {
        self.lanes + u32::from(self.flooded)
    }

    /// What an address of a wire is on the same wire of another lane.
    pub fn on_lane(&self, address: IpAddr, lane: u32) -> IpAddr {
        // The client's and the server's wire of a lane have subnets that follow each other.
        shifted(address, 2 * lane)
    }

    /// The pool of an endpoint's worker; that of lane 0 is [`Self::pool`].
    pub fn lane_pool(&self, endpoint: &Endpoint, lane: u32) -> Option<Pool> {
        let Pool(first) = self.pool(endpoint)?;
        // The DUT's pool comes after the first.
        let number = if lane == 0 { 0 } else { u32::from(DUTS_POOL) + lane };
        Some(Pool(shifted(first, number)))
    }

    /// How many of `total` addresses are a lane's.
    pub fn part(&self, total: u32, lane: u32) -> u32 {
        total / self.lanes + u32::from(lane < total % self.lanes)
    }

    /// `total` addresses of an endpoint, of its lanes in turn: a load that uses them one after the other keeps the workers of all
    /// lanes busy.
    pub fn addresses(&self, endpoint: &Endpoint, total: u32) -> Option<Vec<IpAddr>> {
        let pools: Vec<Pool> = (0..self.lanes).map(|lane| self.lane_pool(endpoint, lane)).collect::<Option<_>>()?;
        let rows = (1..=total.div_ceil(self.lanes)).flat_map(|host| pools.iter().map(move |pool| pool.at(host)));
        Some(rows.take(total as usize).collect())
    }
}

/// The address of the same host number, but `subnets` subnets further; the subnets have the size of those of wires and pools.
fn shifted(address: IpAddr, subnets: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => std::net::Ipv4Addr::from_bits(address.to_bits() + (subnets << 8)).into(),
        IpAddr::V6(address) => std::net::Ipv6Addr::from_bits(address.to_bits() + (u128::from(subnets) << 64)).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{DUT, Family, Path, WireOptions};
    use super::*;
    use crate::topology::paths::tests::named;

    fn three(path: Path, wire: WireOptions) -> Topology {
        let names = ["client", "lb", "server"].map(str::to_owned);
        Topology::new(&names, Some(wire), path, &ends()).unwrap()
    }

    fn ends() -> [Endpoint; 2] {
        ["client", "server"].map(|end| end.parse().unwrap())
    }

    #[test]
    fn lanes_that_cannot_be_are_refused_with_a_next_step() {
        let refused = |topology: Topology, lanes, expected: &str| {
            let error = topology.with_lanes(lanes).unwrap_err();
            assert!(error.to_string().contains(expected), "{error} lacks '{expected}'");
        };
        refused(three(named("direct"), WireOptions::default()), 0, "choose 1 to 64");
        refused(three(named("balancer"), WireOptions::default()), 65, "65 workers");
        refused(three(named("nftables"), WireOptions { rate: Some(1 << 30), ..Default::default() }), 2, "with a rate");
        let raw = ["a".parse().unwrap(), "b".parse().unwrap()];
        let raw = Topology::new(&["a".into(), "b".into()], Some(WireOptions::default()), named("raw"), &raw).unwrap();
        assert!(raw.clone().with_lanes(1).is_ok());
        refused(raw, 2, "path raw");
    }

    #[test]
    fn the_first_lane_is_what_there_is_without_others() {
        let one = three(named("ipvs"), WireOptions::default());
        let many = one.clone().with_lanes(8).unwrap();
        for end in ends() {
            assert_eq!(many.lane_pool(&end, 0), one.pool(&end));
            assert_eq!(one.addresses(&end, 9).unwrap(), one.pool(&end).unwrap().addresses(9).collect::<Vec<_>>());
        }
        assert_eq!(many.on_lane(one.dut_address().addr(), 0), one.dut_address().addr());
        assert_eq!((&uplink(0)[..], &client_link(0)[..], &server_link(0)[..]), ("eth0", "eth0", "eth1"));
    }

    #[test]
    fn no_two_lanes_share_an_address_or_a_subnet() {
        let subnet = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits() >> 8),
            IpAddr::V6(address) => address.to_bits() >> 64,
        };
        for family in [Family::Ipv4, Family::Ipv6] {
            let topology = three(named("balancer"), WireOptions::default()).with_family(family).unwrap();
            let topology = topology.with_lanes(Topology::LANES_MAX).unwrap();
            let mut subnets: BTreeSet<u128> =
                [topology.virtual_pool(), topology.local_pool()].map(|pool| subnet(pool.first())).into();
            for lane in 0..topology.lanes() {
                let pools = ends().map(|end| topology.lane_pool(&end, lane).unwrap().first());
                let wires = [topology.node_address(DUT).addr(), topology.dut_address().addr()];
                subnets.extend(pools.into_iter().chain(wires.map(|wire| topology.on_lane(wire, lane))).map(subnet));
            }
            assert_eq!(subnets.len(), 2 + 4 * Topology::LANES_MAX as usize, "{family:?}");
        }
    }

    #[test]
    fn addresses_are_divided_over_the_lanes() {
        let topology = three(named("balancer"), WireOptions::default()).with_lanes(3).unwrap();
        assert_eq!([0, 1, 2].map(|lane| topology.part(8, lane)), [3, 3, 2]);
        let [_, server] = ends();
        let all = topology.addresses(&server, 8).unwrap();
        let by_lanes: BTreeSet<IpAddr> = (0..3)
            .flat_map(|lane| topology.lane_pool(&server, lane).unwrap().addresses(topology.part(8, lane)))
            .collect();
        assert_eq!(all.iter().copied().collect::<BTreeSet<_>>(), by_lanes);
        assert_eq!(
            all[..4].iter().map(IpAddr::to_string).collect::<Vec<_>>(),
            ["198.19.0.1", "198.19.2.1", "198.19.3.1", "198.19.0.2"]
        );
    }
}
