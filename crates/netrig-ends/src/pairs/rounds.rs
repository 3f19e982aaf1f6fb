//! When each pair is tested: in rounds, in which each host is in one pair at most.

/// All pairs of so many hosts, in the fewest rounds: one less than hosts, or as many as hosts where their number is odd, and one then rests in
/// each round. The circle method of round-robin tournaments (E. Lucas, Récréations mathématiques II, 1883): all but the last host turn
/// by one place from round to round, and those that face each other are a pair.
pub fn rounds(hosts: usize) -> Vec<Vec<(usize, usize)>> {
    let places = hosts + hosts % 2;
    let turning = places.saturating_sub(1);
    let facing = |round: usize| {
        let others = (1..places / 2).map(|apart| [(round + apart) % turning, (round + turning - apart) % turning]);
        let all = [[round, turning]].into_iter().chain(others);
        all.map(|[one, other]| (one.min(other), one.max(other))).filter(|(_, last)| *last < hosts).collect::<Vec<_>>()
    };
    (0..turning).map(facing).filter(|round| !round.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_pair_is_in_one_round_and_no_host_twice_in_one() {
        for hosts in 0..=101 {
            let rounds = rounds(hosts);
            let fewest = if hosts < 2 { 0 } else { hosts - 1 + hosts % 2 };
            assert_eq!(rounds.len(), fewest, "{hosts} hosts");
            let mut all = BTreeSet::new();
            for round in &rounds {
                let mut busy = BTreeSet::new();
                for (one, other) in round {
                    assert!(busy.insert(one) && busy.insert(other), "{hosts} hosts: {round:?}");
                    assert!(one < other && all.insert((*one, *other)), "{hosts} hosts: {one} and {other} again");
                }
            }
            assert_eq!(all.len(), hosts * hosts.saturating_sub(1) / 2, "{hosts} hosts");
        }
    }
}
