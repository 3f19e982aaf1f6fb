//! Which CPUs each node owns.

use rig_sys::cpu::CpuSet;
use rig_sys::{Error, Result};

/// Which CPUs each node owns: an equal share each, so that a node is the same machine in every scenario of a suite.
///
/// `cores` are those that have several threads ([`rig_sys::cpu::shared_cores`]); any other CPU counts as a core of its
/// own. A core goes to one node as long as that can be done without giving a node fewer CPUs; see [`split_cores`].
///
/// # Errors
/// When there are fewer CPUs than nodes.
pub fn share_cpus(available: &CpuSet, cores: &[CpuSet], nodes: usize) -> Result<Vec<CpuSet>> {
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
        let shares = share_cpus(&available.parse().unwrap(), &cores, nodes).unwrap();
        let split = split_cores(&shares, &cores).map(ToString::to_string).collect();
        (shares.iter().map(ToString::to_string).collect(), split)
    }

    #[test]
    fn without_a_word_about_cores_nodes_share_the_cpus_in_their_order() {
        assert_eq!(share_cpus(&set([0, 1, 2, 3, 4]), &[], 2).unwrap(), [set([0, 1]), set([2, 3])]);
        assert_eq!(share_cpus(&set([0, 1, 2]), &[], 1).unwrap(), [set([0, 1, 2])]);
        let error = share_cpus(&set([7]), &[], 2).unwrap_err().to_string();
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
    fn shares_are_equal_and_nobody_elses() {
        for count in 2..=12 {
            for threads in [1, 2, 4] {
                let cores: Vec<CpuSet> =
                    (0..count).step_by(threads).map(|first| CpuSet::new(first..first + threads as u32)).collect();
                let available = CpuSet::new(0..count);
                for nodes in 1..=count as usize {
                    let shares = share_cpus(&available, &cores, nodes).unwrap();
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
