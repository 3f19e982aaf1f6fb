//! Which weights the backends of a service have, by their health: quorum, sorry servers, slow start.

use super::check::{BelowQuorum, PoolRules};

/// A backend as its service's rules see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// 0 where it was given no connections by its settings.
    pub weight: u32,
    pub is_sorry: bool,
    pub is_up: bool,
    /// Of its weight, while it starts slowly: 1 to 10.
    pub tenths: u32,
}

/// What a pool comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolWeights {
    /// In the order of the members; `None` for one that is down and used for nothing.
    pub weights: Vec<Option<u32>>,
    pub has_quorum: bool,
    /// Of healthy backends.
    pub healthy_weight: u64,
}

impl PoolRules {
    /// What is used below the quorum. Sorry servers are no help where none of them has a weight: then what is healthy goes on.
    pub fn below(&self, has_sorry: bool) -> BelowQuorum {
        match self.below_quorum {
            None | Some(BelowQuorum::Sorry) if has_sorry => BelowQuorum::Sorry,
            None | Some(BelowQuorum::Sorry) => BelowQuorum::Healthy,
            Some(below) => below,
        }
    }
}

/// Weights are multiplied by this while a backend starts slowly, so that there are tenths of 1. Only those below it: larger ones have tenths.
const FINER: u32 = 10;

/// The weights in force. `had_quorum` is what the last time came to: what is within the hysteresis stays.
pub fn weigh(rules: &PoolRules, members: &[Member], had_quorum: bool) -> PoolWeights {
    let servers = || members.iter().filter(|member| !member.is_sorry);
    let healthy_weight: u64 = servers().filter(|member| member.is_up).map(|member| u64::from(member.weight)).sum();
    let needed = match had_quorum {
        true => rules.quorum.saturating_sub(rules.hysteresis).max(1),
        false => rules.quorum.saturating_add(rules.hysteresis),
    };
    let has_quorum = healthy_weight >= u64::from(needed);
    let below = rules.below(members.iter().any(|member| member.is_sorry && member.weight > 0));
    let is_used = |member: &Member| match (has_quorum, below) {
        (true, _) | (false, BelowQuorum::Healthy) => !member.is_sorry && member.is_up,
        (false, BelowQuorum::All) => !member.is_sorry,
        (false, BelowQuorum::Sorry) => member.is_sorry,
    };
    let starts = |member: &Member| is_used(member) && member.is_up && member.tenths < 10 && member.weight > 0;
    let largest = members.iter().map(|member| member.weight).max().unwrap_or(0);
    let scale = if members.iter().any(starts) && largest < FINER { FINER } else { 1 };
    let weight = |member: &Member| match member.weight * scale {
        0 => 0,
        whole if starts(member) => (whole * member.tenths / 10).max(1),
        whole => whole,
    };
    let weights = members
        .iter()
        .map(|member| match is_used(member) {
            true => Some(weight(member)),
            // A sorry server that is not needed is healthy and waits.
            false if member.is_sorry => Some(0),
            false if member.is_up => Some(0),
            false => None,
        })
        .collect();
    PoolWeights { weights, has_quorum, healthy_weight }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(weight: u32, is_up: bool) -> Member {
        Member { weight, is_sorry: false, is_up, tenths: 10 }
    }

    fn sorry() -> Member {
        Member { is_sorry: true, ..member(1, true) }
    }

    fn weights(rules: &PoolRules, members: &[Member]) -> Vec<Option<u32>> {
        weigh(rules, members, true).weights
    }

    #[test]
    fn what_is_down_gets_nothing_and_a_sorry_server_waits() {
        let rules = PoolRules::default();
        let members = [member(3, true), member(2, false), sorry()];
        assert_eq!(weights(&rules, &members), [Some(3), None, Some(0)]);
        assert_eq!(weights(&rules, &[member(3, false), member(2, false), sorry()]), [None, None, Some(1)]);
        // One whose weight was set to 0 makes no quorum.
        assert_eq!(weights(&rules, &[member(0, true), sorry()]), [Some(0), Some(1)]);
    }

    #[test]
    fn below_the_quorum_it_is_as_was_said() {
        let rules = |below| PoolRules { quorum: 3, below_quorum: below, ..PoolRules::default() };
        let members = [member(2, true), member(2, false)];
        assert_eq!(weights(&rules(None), &members), [Some(2), None]);
        assert_eq!(weights(&rules(Some(BelowQuorum::All)), &members), [Some(2), Some(2)]);
        let with_sorry = [members[0], members[1], sorry()];
        assert_eq!(weights(&rules(None), &with_sorry), [Some(0), None, Some(1)]);
        assert_eq!(weights(&rules(Some(BelowQuorum::Healthy)), &with_sorry), [Some(2), None, Some(0)]);
        let all = weigh(&rules(None), &[member(2, true), member(2, true), sorry()], false);
        assert_eq!((all.weights, all.has_quorum), (vec![Some(2), Some(2), Some(0)], true));
    }

    #[test]
    fn sorry_servers_without_a_weight_switch_nobody_off() {
        let drained = Member { weight: 0, ..sorry() };
        for below in [None, Some(BelowQuorum::Sorry)] {
            let rules = PoolRules { quorum: 3, below_quorum: below, ..PoolRules::default() };
            assert_eq!(weights(&rules, &[member(2, true), drained]), [Some(2), Some(0)]);
            assert_eq!(weights(&rules, &[member(2, true), drained, sorry()]), [Some(0), Some(0), Some(1)]);
        }
    }

    #[test]
    fn a_quorum_comes_and_goes_with_hysteresis() {
        let rules = PoolRules { quorum: 5, hysteresis: 2, ..PoolRules::default() };
        let has = |weight, had| weigh(&rules, &[member(weight, true)], had).has_quorum;
        assert_eq!([2, 3, 6, 7].map(|weight| has(weight, true)), [false, true, true, true]);
        assert_eq!([2, 3, 6, 7].map(|weight| has(weight, false)), [false, false, false, true]);
    }

    #[test]
    fn a_slow_start_has_tenths_of_small_weights_too() {
        let starting = Member { tenths: 3, ..member(1, true) };
        assert_eq!(weights(&PoolRules::default(), &[member(1, true), starting]), [Some(10), Some(3)]);
        let starting = Member { tenths: 1, ..member(50, true) };
        assert_eq!(weights(&PoolRules::default(), &[member(4, true), starting]), [Some(4), Some(5)]);
        // Nobody waits for one that gets nothing anyway.
        let starting = Member { tenths: 1, ..member(0, true) };
        assert_eq!(weights(&PoolRules::default(), &[member(1, true), starting]), [Some(1), Some(0)]);
    }

    fn any_member() -> impl Strategy<Value = Member> {
        (0_u32..=20, any::<bool>(), any::<bool>(), 1_u32..=10).prop_map(|(weight, is_sorry, is_up, tenths)| Member {
            weight,
            is_sorry,
            is_up,
            tenths,
        })
    }

    proptest! {
        #[test]
        fn servers_and_sorry_servers_never_get_connections_together(
            members in prop::collection::vec(any_member(), 0..12),
            quorum in 1_u32..20, hysteresis in 0_u32..5, had in any::<bool>(),
            below in prop::option::of(prop::sample::select(vec![BelowQuorum::Healthy, BelowQuorum::All, BelowQuorum::Sorry])),
        ) {
            let rules = PoolRules { quorum, hysteresis, below_quorum: below, ..PoolRules::default() };
            let pool = weigh(&rules, &members, had);
            let used = |sorry: bool| members.iter().zip(&pool.weights)
                .any(|(member, weight)| member.is_sorry == sorry && weight.is_some_and(|weight| weight > 0));
            prop_assert!(!(used(true) && used(false)));
            if pool.has_quorum {
                prop_assert!(used(false) && !used(true));
            }
            // Whatever becomes of the quorum: one that is healthy and has a weight is used, or others are in its place.
            if members.iter().any(|member| member.weight > 0 && member.is_up && !member.is_sorry) {
                prop_assert!(used(false) || used(true));
            }
            for (member, weight) in members.iter().zip(&pool.weights) {
                let in_use = weight.unwrap_or(0);
                prop_assert!(in_use <= member.weight * FINER);
                prop_assert!(in_use == 0 || member.weight > 0);
                if !member.is_up && !member.is_sorry && in_use > 0 {
                    prop_assert!(!pool.has_quorum && below == Some(BelowQuorum::All));
                }
            }
            // What was decided stays when nothing changes.
            prop_assert_eq!(weigh(&rules, &members, pool.has_quorum).has_quorum, pool.has_quorum);
        }
    }
}
