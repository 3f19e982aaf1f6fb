//! Which CPUs each node owns.

use std::collections::BTreeMap;
use std::io;

use rig_sys::cpu::CpuSet;
use rig_sys::{Error, Result};

use super::Dut;
use super::topology::{Node, Topology};

/// Which CPUs each node owns: an equal share each, so that a node is the same machine in every scenario of a suite.
///
/// `cores` are those that have several threads ([`rig_sys::cpu::shared_cores`]); any other CPU counts as a core of its
/// own. A core goes to one node as long as that can be done without giving a node fewer CPUs; see [`split_cores`].
///
/// # Errors
/// When there are fewer CPUs than nodes.
pub fn partition_cpus(available: &CpuSet, cores: &[CpuSet], nodes: usize) -> Result<Vec<CpuSet>> {
    let share = available.len() / nodes.max(1);
    if share == 0 {
        let reason = format!(
            "{nodes} nodes need a CPU each, and netrig may use only {} (CPUs {available}): name more with --cpus, or use a \
             machine, container or cgroup that has more",
            available.len()
        );
        return Err(Error::new("give each node its CPUs", std::io::Error::other(reason)));
    }
    let mut rest = by_core(available, cores);
    let shares = (0..nodes).map(|node| {
        let own: Vec<u32> = rest.drain(..share).collect();
        // What is left of the core that this node's share ends in stays unused if the other nodes can do without it.
        let left = core_of(own[share - 1], cores).iter().filter(|cpu| rest.contains(cpu)).count();
        if rest.len() >= left + share * (nodes - node - 1) {
            rest.drain(..left);
        }
        CpuSet::new(own)
    });
    Ok(shares.collect())
}

/// Which CPUs the nodes of a suite's testbeds own.
#[derive(Debug, Clone)]
pub struct Placement(Machines);

#[derive(Debug, Clone)]
enum Machines {
    /// One, which the nodes share.
    One(Shares),
    /// One for each node, by its name, and how many wires there may be in place of one.
    Each(BTreeMap<String, CpuSet>, u32),
}

/// How nodes share a machine.
#[derive(Debug, Clone)]
struct Shares {
    /// An equal share for each node, see [`partition_cpus`]; none when no testbed of the suite has such.
    equal: Vec<CpuSet>,
    /// All, threads of a core side by side.
    all: Vec<u32>,
}

/// The CPUs of client, DUT and server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreeNodes {
    /// Of client and server together.
    pub ends: CpuSet,
    pub dut: CpuSet,
    /// CPUs that DUT and ends have in common, because the machine has too few.
    pub shared: CpuSet,
}

impl Placement {
    /// `nodes` is the most nodes that share the machine equally (`Suite::nodes`, [`Topology::share_count`]); `cores` as for
    /// [`partition_cpus`].
    ///
    /// # Errors
    /// When there are fewer CPUs than nodes.
    pub fn new(available: &CpuSet, cores: &[CpuSet], nodes: usize) -> Result<Self> {
        Ok(Self(Machines::One(Shares::new(available, cores, nodes)?)))
    }

    /// Each node has a machine of its own, with these CPUs, and so many interfaces for what one wire would be.
    pub fn of_machines(nodes: BTreeMap<String, CpuSet>, lanes: u32) -> Self {
        Self(Machines::Each(nodes, lanes))
    }

    /// The CPUs of each node of `topology`, in the nodes' order; of a DUT, those that `dut` asks for.
    ///
    /// # Errors
    /// When there are fewer CPUs than nodes, or than the DUT has workers.
    pub fn of(&self, topology: &Topology, dut: Option<Dut>) -> Result<Vec<CpuSet>> {
        match &self.0 {
            Machines::One(shares) => shares.of(topology, dut),
            Machines::Each(nodes, _) => of_machines(nodes, topology, dut),
        }
    }

    /// Whether a DUT can have so many workers here, each on a CPU of its own. Where each node has its machine, [`Self::of`] tells.
    pub fn has_cpus_for(&self, workers: u32) -> bool {
        match &self.0 {
            Machines::One(shares) => shares.has_cpus_for(workers),
            Machines::Each(..) => true,
        }
    }

    /// How many packet workers client and server can have each, so that every worker has a CPU of the ends for itself; where
    /// there is only one, both have it.
    pub fn of_each_end(&self) -> u32 {
        let cpus = match &self.0 {
            Machines::One(shares) => (shares.all.len() - shares.all.len() / 2) / 2,
            Machines::Each(nodes, lanes) => {
                let cpus = nodes.values().map(CpuSet::len).min().unwrap_or_default();
                cpus.min(*lanes as usize)
            }
        };
        u32::try_from(cpus).unwrap_or(u32::MAX).max(1)
    }

    /// The equal shares; of a suite without such, those of client, DUT and server. Where each node has its machine, those of all.
    pub fn all(&self) -> Vec<CpuSet> {
        match &self.0 {
            Machines::One(shares) => shares.all_shares(),
            Machines::Each(nodes, _) => nodes.values().cloned().collect(),
        }
    }
}

/// Stands for the node between client and server, which scenarios call by its datapath.
pub(crate) const DUT_NODE: &str = "dut";

/// The CPUs of the nodes' machines; of a DUT's, as many as it has workers.
fn of_machines(nodes: &BTreeMap<String, CpuSet>, topology: &Topology, dut: Option<Dut>) -> Result<Vec<CpuSet>> {
    let workers = topology.dut().map(|node| (node, dut.map_or(1, |dut| dut.workers) as usize));
    let of = |(number, node): (usize, &Node)| {
        let refuse = |operation: String, reason| Error::new(operation, io::Error::other(reason));
        let workers = workers.filter(|(dut, _)| *dut == number);
        let of_dut = workers.and_then(|_| nodes.get(DUT_NODE));
        let cpus = nodes.get(&node.name).or(of_dut).ok_or_else(|| {
            let named = if workers.is_some() { DUT_NODE } else { &node.name };
            refuse(format!("find the host of node {}", node.name), format!("there is none: --on {named}=HOST"))
        })?;
        match workers {
            Some((_, workers)) if workers > cpus.len() => {
                let operation = format!("give each of {workers} workers of node {} a CPU", node.name);
                Err(refuse(operation, format!("its machine has {} for netrig", cpus.len())))
            }
            Some((_, workers)) => Ok(CpuSet::new(cpus.as_slice().iter().copied().take(workers))),
            None => Ok(cpus.clone()),
        }
    };
    topology.nodes().iter().enumerate().map(of).collect()
}

impl Shares {
    fn new(available: &CpuSet, cores: &[CpuSet], nodes: usize) -> Result<Self> {
        Ok(Self { equal: partition_cpus(available, cores, nodes)?, all: by_core(available, cores) })
    }

    fn of(&self, topology: &Topology, dut: Option<Dut>) -> Result<Vec<CpuSet>> {
        if topology.receiver_has_all() {
            let second_half = self.all[self.all.len() / 2..].iter().copied();
            return Ok(vec![CpuSet::new(second_half), CpuSet::new(self.all.iter().copied())]);
        }
        if !topology.path().is_of_three() {
            let own = |share: usize| self.equal.get(share).cloned().unwrap_or_default();
            return Ok(topology.shares().into_iter().map(own).collect());
        }
        let workers = dut.map_or(1, |dut| dut.workers);
        let three = self.three(workers)?;
        Ok(match topology.path().has_dut() {
            true => vec![three.ends.clone(), three.dut, three.ends],
            false => vec![three.ends.clone(), three.ends],
        })
    }

    /// The CPUs of client, DUT and server, of which the DUT has `workers`: those from the first on. The ends own
    /// the second half of all CPUs, however many the DUT has, so that scenarios with many workers and with few compare;
    /// workers that do not find room in the first half share the ends'.
    ///
    /// # Errors
    /// When there are fewer CPUs than workers.
    fn three(&self, workers: u32) -> Result<ThreeNodes> {
        if !self.has_cpus_for(workers) {
            let reason = format!("the machine has {} for netrig: name more with --cpus", self.all.len());
            let operation = format!("give each of {workers} workers a CPU");
            return Err(Error::new(operation, std::io::Error::other(reason)));
        }
        let ends = CpuSet::new(self.all[self.all.len() / 2..].iter().copied());
        let dut = CpuSet::new(self.all.iter().copied().take(workers as usize));
        let shared = dut.without(&dut.without(&ends));
        Ok(ThreeNodes { ends, dut, shared })
    }

    fn has_cpus_for(&self, workers: u32) -> bool {
        workers as usize <= self.all.len()
    }

    fn all_shares(&self) -> Vec<CpuSet> {
        match self.three(1) {
            Ok(three) if self.equal.is_empty() => vec![three.ends.clone(), three.dut, three.ends],
            _ => self.equal.clone(),
        }
    }
}

/// The cores of `cores` whose threads belong to more than one of `shares`: a node's work then slows another node down,
/// and no counter of the kernel shows it.
pub fn split_cores<'a>(shares: &[CpuSet], cores: &'a [CpuSet]) -> impl Iterator<Item = &'a CpuSet> {
    let owns_part = |share: &CpuSet, core: &CpuSet| core.as_slice().iter().any(|&cpu| share.contains(cpu));
    cores.iter().filter(move |core| shares.iter().filter(|share| owns_part(share, core)).count() > 1)
}

/// All of `available`, threads of a core side by side and the cores with most of them first: a core that is there in
/// part would put the borders between shares inside those that follow.
fn by_core(available: &CpuSet, cores: &[CpuSet]) -> Vec<u32> {
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for &cpu in available.as_slice() {
        if !groups.iter().any(|group| group.contains(&cpu)) {
            groups.push(core_of(cpu, cores).iter().copied().filter(|&cpu| available.contains(cpu)).collect());
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups.concat()
}

fn core_of(cpu: u32, cores: &[CpuSet]) -> Vec<u32> {
    cores.iter().find(|core| core.contains(cpu)).map_or_else(|| vec![cpu], |core| core.as_slice().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<const N: usize>(cpus: [u32; N]) -> CpuSet {
        CpuSet::new(cpus)
    }

    /// The shares as CPU lists, and the cores that are split among them.
    fn shared(available: &str, cores: &[&str], nodes: usize) -> (Vec<String>, Vec<String>) {
        let cores: Vec<CpuSet> = cores.iter().map(|core| core.parse().unwrap()).collect();
        let shares = partition_cpus(&available.parse().unwrap(), &cores, nodes).unwrap();
        let split = split_cores(&shares, &cores).map(ToString::to_string).collect();
        (shares.iter().map(ToString::to_string).collect(), split)
    }

    #[test]
    fn without_a_word_about_cores_nodes_share_the_cpus_in_their_order() {
        assert_eq!(partition_cpus(&set([0, 1, 2, 3, 4]), &[], 2).unwrap(), [set([0, 1]), set([2, 3])]);
        assert_eq!(partition_cpus(&set([0, 1, 2]), &[], 1).unwrap(), [set([0, 1, 2])]);
        let error = partition_cpus(&set([7]), &[], 2).unwrap_err().to_string();
        assert!(error.contains("2 nodes") && error.contains("CPUs 7"), "{error}");
    }

    #[test]
    fn threads_of_a_core_go_to_the_same_node_however_they_are_numbered() {
        let far = ["0,4", "1,5", "2,6", "3,7"];
        assert_eq!(shared("0-7", &far, 2), (vec!["0-1,4-5".into(), "2-3,6-7".into()], vec![]));
        let near = ["0-1", "2-3", "4-5", "6-7"];
        assert_eq!(shared("0-7", &near, 2), (vec!["0-3".into(), "4-7".into()], vec![]));
        // Only one thread of each core may be used.
        assert_eq!(shared("0-3", &far, 2), (vec!["0-1".into(), "2-3".into()], vec![]));
    }

    #[test]
    fn a_cpu_to_spare_keeps_cores_whole() {
        assert_eq!(shared("0-2", &["0-1"], 2), (vec!["0".into(), "2".into()], vec![]));
        assert_eq!(shared("0-4", &["1-2", "3-4"], 2), (vec!["1-2".into(), "3-4".into()], vec![]));
        assert_eq!(shared("0-6", &["0,3", "1,4", "2,5"], 2), (vec!["0-1,3".into(), "2,5-6".into()], vec![]));
    }

    #[test]
    fn a_core_that_has_to_be_split_is_told() {
        assert_eq!(shared("0-1", &["0-1"], 2), (vec!["0".into(), "1".into()], vec!["0-1".into()]));
        assert_eq!(
            shared("0-5", &["0,3", "1,4", "2,5"], 2),
            (vec!["0-1,3".into(), "2,4-5".into()], vec!["1,4".into()])
        );
    }

    #[test]
    fn ends_own_the_second_half_and_workers_the_rest_as_far_as_it_goes() {
        let cores = |list: &[&str]| list.iter().map(|core| core.parse().unwrap()).collect::<Vec<CpuSet>>();
        let three = |available: &str, list: &[&str], workers| {
            let three = Shares::new(&available.parse().unwrap(), &cores(list), 0).unwrap().three(workers).unwrap();
            [three.ends, three.dut, three.shared].map(|set| set.to_string())
        };
        assert_eq!(three("0-1", &[], 1), ["1", "0", ""]);
        assert_eq!(three("0-1", &[], 2), ["1", "0-1", "1"]);
        assert_eq!(three("0-2", &[], 1), ["1-2", "0", ""]);
        assert_eq!(three("0-7", &[], 4), ["4-7", "0-3", ""]);
        assert_eq!(three("0-7", &[], 6), ["4-7", "0-5", "4-5"]);
        assert_eq!(three("5", &[], 1), ["5", "5", "5"]);
        // Threads of a core stay together.
        assert_eq!(three("0-7", &["0,4", "1,5", "2,6", "3,7"], 2), ["2-3,6-7", "0,4", ""]);
        let each = |cpus| Placement::new(&CpuSet::new(0..cpus), &[], 0).unwrap().of_each_end();
        assert_eq!([1, 2, 3, 4, 6, 7, 8, 16, 64].map(each), [1, 1, 1, 1, 1, 2, 2, 4, 16]);
        let two = Shares::new(&set([0, 1]), &[], 0).unwrap();
        assert!(two.has_cpus_for(2) && !two.has_cpus_for(4));
        let error = two.three(4).unwrap_err().to_string();
        assert!(error.contains("4 workers") && error.contains("has 2"), "{error}");
    }

    #[test]
    fn a_receiver_of_all_cpus_has_the_senders_too_and_is_steered_by_nobody() {
        let pair = |path: &str| Topology::smallest(path.parse().unwrap()).unwrap().0;
        let all = pair("raw").with_all_cpus_for_receiver().unwrap();
        assert!(all.shares_cpus() && !pair("raw").shares_cpus() && pair("direct").shares_cpus());
        let of = |cpus: u32| Placement::new(&CpuSet::new(0..cpus), &[], 0).unwrap().of(&all, None).unwrap();
        assert_eq!(of(4), [set([2, 3]), set([0, 1, 2, 3])]);
        assert_eq!(of(3), [set([1, 2]), set([0, 1, 2])]);
        assert_eq!(of(1), [set([0]), set([0])]);
        let steered = |topology: &Topology| -> Vec<bool> {
            let plan = topology.plan(&[set([0]), set([0, 1])]);
            plan.nodes.iter().map(|node| node.spaces[0].interfaces[0].steering.is_some()).collect()
        };
        assert_eq!(steered(&all), [true, false]);
        assert_eq!(steered(&pair("raw")), [true, true]);
        for other in ["colocated", "balancer"] {
            let error = pair(other).with_all_cpus_for_receiver().unwrap_err().to_string();
            assert!(error.contains("for instance raw"), "{error}");
        }
    }

    #[test]
    fn shares_are_equal_and_nobody_elses() {
        for count in 2..=12 {
            for threads in [1, 2, 4] {
                let cores: Vec<CpuSet> =
                    (0..count).step_by(threads).map(|first| CpuSet::new(first..first + threads as u32)).collect();
                let available = CpuSet::new(0..count);
                for nodes in 1..=count as usize {
                    let shares = partition_cpus(&available, &cores, nodes).unwrap();
                    let all = CpuSet::new(shares.iter().flat_map(|share| share.as_slice().iter().copied()));
                    let each = count as usize / nodes;
                    assert!(shares.iter().all(|share| share.len() == each), "{count}/{threads}/{nodes}: {shares:?}");
                    assert_eq!(all.len(), each * nodes, "{count}/{threads}/{nodes}: {shares:?}");
                    assert!(all.without(&available).is_empty());
                }
            }
        }
    }
}
