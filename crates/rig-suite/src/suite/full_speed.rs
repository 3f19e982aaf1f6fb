//! Whether a load is meant to take all the CPU time that there is.

use std::collections::BTreeSet;

use rig_facts::claim::Metric;
use rig_facts::programme::Phase;
use rig_facts::requested_load::RequestedLoad;
use rig_load::plan::{Direction, End, Schedule, TcpStream, Transactions};

use super::{PacketTraffic, Scenario};

impl Scenario {
    /// The nodes whose CPUs are full by intention: what a busy CPU limits there is what was asked for, and no reason to doubt it.
    ///
    /// - Of a load without a rate, over a wire without one, all nodes: how fast the CPUs carry it is the question. Where latency is the
    ///   question, because transactions go one by one, `watch` names latencies or another load runs meanwhile, none: there a busy CPU
    ///   makes them wait.
    /// - Of datagrams without a rate over a wire that has one, the sender: nothing holds it back but its own CPU.
    /// - Of a search for the highest rate, the device under test.
    pub fn filled(&self) -> BTreeSet<&str> {
        let Self { topology, traffic, .. } = self;
        if traffic.packets.as_ref().is_some_and(PacketTraffic::is_searched) {
            let is_end = |node: &str| traffic.pairs.iter().any(|(from, to)| from.node == node || to.node == node);
            let nodes = topology.nodes().iter().map(|node| node.name.as_str());
            return nodes.filter(|node| !is_end(node)).collect();
        }
        let is_told = self.programme.phases.iter().flat_map(Phase::rates).next().is_some();
        let waits = self.watched.iter().any(|(_, metric)| matches!(metric, Metric::Latency(_)));
        if self.under.is_some() || is_told || waits || !goes_by_itself(&traffic.connect) {
            return BTreeSet::new();
        }
        if topology.wire().is_none_or(|wire| wire.rate.is_none()) {
            return topology.nodes().iter().map(|node| node.name.as_str()).collect();
        }
        let RequestedLoad::UdpStream(datagrams) = &traffic.connect else { return BTreeSet::new() };
        let sends = |end: End| matches!(datagrams.flow.direction(end), Direction::Send | Direction::Both);
        let ends = traffic.pairs.iter().flat_map(|(from, to)| [(from, End::Connect), (to, End::Listen)]);
        ends.filter(|(_, end)| sends(*end)).map(|(place, _)| place.node.as_str()).collect()
    }
}

/// Whether nothing but CPUs and the path says how fast the load goes.
fn goes_by_itself(load: &RequestedLoad) -> bool {
    match load {
        RequestedLoad::TcpStream(TcpStream { throttle, .. }) => throttle.is_none(),
        RequestedLoad::UdpStream(datagrams) => datagrams.throttle.is_none(),
        RequestedLoad::TcpRr(load) | RequestedLoad::TcpCrr(load) | RequestedLoad::UdpRr(load) => {
            load.schedule == Schedule::Closed && under_way(load) > 1
        }
        RequestedLoad::Packets(_) | RequestedLoad::Idle => false,
    }
}

/// Transactions under way at once.
fn under_way(load: &Transactions) -> u32 {
    load.total_connections().saturating_mul(load.in_flight)
}

#[cfg(test)]
mod tests {
    use crate::suite::Suite;

    fn filled(load: &str, wire: &str, more: &str) -> Vec<String> {
        let text = format!(
            "name = \"s\"\ntitle = \"S\"\n[defaults]\nwindow = \"1s\"\nwarm_up = \"0s\"\ncool_down = \"0s\"\n\
             confidence = {{ level = \"95%\", width = \"5%\", min = 3, max = 4 }}\n\
             [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{ {wire} }}\n\
             [[scenario]]\nid = \"A\"\nname = \"A\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
             load = {{ {load} }}\n{more}"
        );
        let suite = Suite::parse("s.toml", &text).unwrap();
        suite.scenarios[0].filled().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn loads_without_a_rate_fill_cpus() {
        let stream = "kind = \"tcp-stream\", message = \"128k\"";
        assert_eq!(filled(stream, "mtu = 1500", ""), ["a", "b"]);
        assert!(filled(stream, "mtu = 1500, rate = \"1gbit\"", "").is_empty(), "the wire is to be the limit");
        assert!(
            filled("kind = \"tcp-stream\", message = \"128k\", throttle = \"100MB/s\"", "mtu = 1500", "").is_empty()
        );
        let udp = "kind = \"udp-stream\", message = \"1400\"";
        assert_eq!(filled(udp, "mtu = 1500", ""), ["a", "b"]);
        assert_eq!(filled(udp, "mtu = 1500, rate = \"1gbit\"", ""), ["a"], "nothing holds the sender back");
    }

    #[test]
    fn where_latency_is_asked_for_none_is_to_be_full() {
        let rr = |more: &str| filled(&format!("kind = \"tcp-rr\"{more}"), "mtu = 1500", "");
        assert!(rr("").is_empty(), "one at a time");
        assert_eq!(rr(", connections = 16"), ["a", "b"]);
        assert!(rr(", connections = 16, rate = 1000").is_empty());
        let many = "kind = \"tcp-rr\", connections = 16";
        assert!(filled(many, "mtu = 1500", "watch = [\"latency_p99\"]").is_empty());
        let under = "under = { kind = \"tcp-stream\", message = \"128k\" }";
        assert!(filled(many, "mtu = 1500", under).is_empty());
    }
}
