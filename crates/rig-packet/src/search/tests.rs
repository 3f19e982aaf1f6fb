use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::Counters;

fn search(start: f64) -> Search {
    Search { start, growth: 2.0, precision: 0.02, most: None, late: 0.01 }
}

/// Searches in a system that loses where `loses` says so.
fn run(search: Search, mut loses: impl FnMut(RateOffer) -> bool) -> SearchResult {
    let mut finder = RateSearch::new(search).unwrap();
    while let Some(offer) = finder.next() {
        let loss = Loss { counter: "local synRt".into(), count: 1 };
        finder.report(if loses(offer) { vec![loss] } else { Vec::new() });
    }
    finder.outcome().unwrap()
}

#[test]
fn a_sharp_limit_is_found_in_the_order_told() {
    let found = run(Search { precision: 0.1, ..search(100.0) }, |offer| offer.rate > 1000.0);
    let steps: Vec<(u64, StepPurpose, u32)> =
        found.steps.iter().map(|step| (step.rate.round() as u64, step.purpose, step.attempt)).collect();
    assert_eq!(
        steps,
        [
            (100, StepPurpose::Raise, 1),
            (200, StepPurpose::Raise, 1),
            (400, StepPurpose::Raise, 1),
            (800, StepPurpose::Raise, 1),
            (1600, StepPurpose::Raise, 1),
            (1600, StepPurpose::Raise, 2),
            (1131, StepPurpose::Bisect, 1),
            (1131, StepPurpose::Bisect, 2),
            (951, StepPurpose::Bisect, 1),
            (1037, StepPurpose::Bisect, 1),
            (1037, StepPurpose::Bisect, 2),
            (951, StepPurpose::Confirm, 1),
        ]
    );
    assert_eq!((found.ending, found.held.map(f64::round)), (SearchEnding::Found, Some(951.0)));
}

#[test]
fn a_highest_rate_that_is_held_ends_the_search() {
    let found = run(Search { most: Some(700.0), ..search(100.0) }, |_| false);
    assert_eq!((found.ending, found.held, found.lost), (SearchEnding::Ceiling, Some(700.0), None));
    assert_eq!(found.steps.last().unwrap().purpose, StepPurpose::Confirm);
    // The first rate may be the highest.
    let found = run(Search { most: Some(100.0), ..search(100.0) }, |_| false);
    assert_eq!((found.ending, found.steps.len()), (SearchEnding::Ceiling, 2));
}

#[test]
fn what_carries_nothing_is_given_up() {
    let found = run(search(1000.0), |_| true);
    assert_eq!((found.ending, found.held), (SearchEnding::Nothing, None));
    assert!(found.steps.iter().all(|step| step.rate >= 1.0));
    let lowest = |start| run(search(start), |_| true).steps.last().map(|step| step.rate);
    assert_eq!(lowest(1024.0 * 1024.0), Some(1024.0));
    assert_eq!([lowest(50.0), lowest(0.5)], [Some(50.0 / 32.0), Some(0.5)], "a step of a few seconds offers something");
}

#[test]
fn a_confirmation_that_fails_steps_down() {
    // Steps are too short to see that the system loses from 900 on.
    let loses = |offer: RateOffer| offer.rate > if offer.purpose == StepPurpose::Confirm { 900.0 } else { 1000.0 };
    let found = run(search(100.0), loses);
    let held = found.held.unwrap();
    assert!((900.0 * 0.98..=900.0).contains(&held), "{held}");
    assert!(found.lost.unwrap() <= held * 1.03, "the rate above was tried: {found:?}");
}

#[test]
fn a_system_that_holds_nothing_for_long_ends_the_search() {
    let found = run(search(100.0), |offer| offer.purpose == StepPurpose::Confirm);
    assert_eq!(found.held, None);
    assert!(matches!(found.ending, SearchEnding::Nothing | SearchEnding::Exhausted), "{:?}", found.ending);
}

#[test]
fn one_bad_step_does_not_decide_and_is_told() {
    let mut n = 0;
    let found = run(search(100.0), |offer| {
        n += 1;
        n == 2 || offer.rate > 1000.0
    });
    assert!((980.0..=1000.0).contains(&found.held.unwrap()), "{found:?}");
    let twice: Vec<bool> = found.steps.iter().filter(|s| s.rate == 200.0).map(Step::is_clean).collect();
    assert_eq!(twice, [false, true]);
}

#[test]
fn impossible_searches_are_refused() {
    let refused = |search: Search, word: &str| {
        let error = RateSearch::new(search).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    for start in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(search(start), "first rate");
    }
    refused(Search { growth: 1.0, ..search(1.0) }, "growth");
    refused(Search { growth: f64::NAN, ..search(1.0) }, "growth");
    refused(Search { precision: 0.0, ..search(1.0) }, "precision");
    refused(Search { most: Some(0.5), ..search(1.0) }, "highest rate");
    refused(Search { late: 1.5, ..search(1.0) }, "late");
}

#[test]
fn losses_are_those_of_counters_that_there_are() {
    let names: Vec<&str> = Counters::default().fields().map(|(name, _)| name).collect();
    for name in LOSSES.into_iter().chain(["late", "skOpen", "tcpReq", "udpTx"]) {
        assert!(names.contains(&name), "{name}");
    }
}

/// A generator that is late above a certain rate, with every system under test.
#[test]
fn a_generator_that_is_late_bounds_itself_and_nothing_else() {
    let found = |late_from: f64, lost_from: f64| {
        let mut finder = RateSearch::new(search(1000.0)).unwrap();
        while let Some(offer) = finder.next() {
            let of = |counter: &str, from| (offer.rate >= from).then(|| Loss { counter: counter.into(), count: 7 });
            finder
                .report([of("client late", late_from), of("client synRt", lost_from)].into_iter().flatten().collect());
        }
        finder.outcome().unwrap()
    };
    let own = found(5000.0, 1e9);
    assert!(own.is_late() && own.generator_bound(None, 0.1) == Some(GeneratorBound::Late), "{own:?}");
    let both = found(9000.0, 5000.0);
    assert!(!both.is_late() && both.generator_bound(None, 0.1).is_none(), "{both:?}");
    let never = found(0.0, 1e9);
    assert_eq!((never.ending, never.held, never.is_late()), (SearchEnding::Nothing, None, true));
}

#[test]
fn a_search_that_is_stopped_says_what_it_knows() {
    let mut finder = RateSearch::new(search(1000.0)).unwrap();
    finder.report(Vec::new());
    finder.report(Vec::new());
    finder.stop();
    let outcome = finder.outcome().unwrap();
    assert_eq!((outcome.ending, outcome.held, outcome.steps.len()), (SearchEnding::Stopped, None, 2));
    assert_eq!(finder.next(), None);
}

#[test]
fn every_loss_counts_and_lateness_from_its_share_on() {
    let of = |counts: &[(&str, u64)], late| {
        let count = |name: &str| counts.iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| *count);
        losses("local", count, late).iter().map(Loss::to_string).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(of(&[("skOpen", 1000), ("tcpRsp", 1000)], 0.0), "");
    assert_eq!(of(&[("skOpen", 1000), ("synRt", 1), ("skErr", 2)], 0.0), "local synRt 1, local skErr 2");
    let unseen = [("skOpen", 1000), ("httpErr", 3), ("skUnfinished", 1), ("udpLate", 2), ("udpUnnumbered", 9)];
    assert_eq!(of(&unseen, 0.0), "local udpLate 2, local skUnfinished 1, local httpErr 3");
    assert_eq!(of(&[("skOpen", 1000), ("late", 10)], 0.01), "");
    assert_eq!(of(&[("skOpen", 1000), ("late", 11)], 0.01), "local late 11");
    assert_eq!(of(&[("skOpen", 1), ("tcpReq", 10_000), ("late", 11)], 0.01), "");
    assert_eq!(of(&[("late", 1)], 0.01), "local late 1");
}

#[test]
fn what_is_near_the_generators_own_limit_is_its_own() {
    assert_eq!(generator_bound(90.0, Some(100.0), 0.5), Some(GeneratorBound::Limit(0.9)));
    assert_eq!(generator_bound(89.0, Some(100.0), 0.5), None);
    assert_eq!(generator_bound(89.0, Some(100.0), 0.95), Some(GeneratorBound::Busy(0.95)));
    assert_eq!(generator_bound(89.0, None, 0.5), None);
    assert_eq!(generator_bound(89.0, Some(0.0), 0.5), None);
}

/// A machine that others use too: each step loses something by `noise` at any rate, a longer confirmation so much more often;
/// and near its limit the system loses now and then, the more the nearer.
struct SharedMachine {
    limit: f64,
    noise: f64,
    random: Xoshiro256PlusPlus,
}

impl SharedMachine {
    fn loses(&mut self, offer: RateOffer) -> bool {
        let seconds = if offer.purpose == StepPurpose::Confirm { 3.0 } else { 1.0 };
        let over = offer.rate / self.limit - 1.0;
        // Losses per second: a thousandth of one 2 % below the limit, one at it, a thousand 2 % above.
        let rate = 1000f64.powf((over / 0.02).clamp(-10.0, 10.0)) - (1.0 - self.noise).ln();
        self.random.random::<f64>() < 1.0 - (-rate * seconds).exp()
    }
}

/// Searches on a shared machine give the same within 5 %: the bound of the whole, checked over many seeds.
#[test]
fn searches_repeat_within_five_percent_on_a_shared_machine() {
    let (mut outliers, mut steps) = (Vec::new(), 0);
    const RUNS: u64 = 2000;
    for seed in 0..RUNS {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut system = SharedMachine { limit: 123_456.0, noise: 0.02, random };
        let found = run(search(1000.0), |offer| system.loses(offer));
        let held = found.held.unwrap();
        assert!(held < system.limit * 1.02, "seed {seed}: {held} is above the limit");
        steps += found.steps.len();
        if held < system.limit * 0.95 {
            outliers.push((seed, held));
        }
    }
    // A rate far below the limit loses twice in a row by noise with 0.02^2 in a step.
    assert!(outliers.len() as f64 <= 0.02 * RUNS as f64, "{} of {RUNS}: {outliers:?}", outliers.len());
    let mean = steps as f64 / RUNS as f64;
    assert!(mean < 25.0, "{mean} steps a search");
}

proptest! {
    /// With any limit and any options, a sharp limit is found within the precision, and never exceeded.
    #[test]
    fn a_limit_is_found_within_the_precision(
        limit in 1.0f64..1e8,
        start in 1.0f64..1e8,
        growth in 1.05f64..16.0,
        precision in 0.001f64..0.5,
    ) {
        prop_assume!(limit >= growth * (start / 1024.0).max(1.0) && (limit / start).ln() / growth.ln() < 60.0);
        let found = run(Search { growth, precision, ..search(start) }, |offer| offer.rate > limit);
        if found.ending == SearchEnding::Exhausted {
            // Only a growth of a few percent over a long way takes so many steps.
            prop_assert!(found.steps.len() == STEPS);
        } else {
            let held = found.held.unwrap();
            prop_assert!(held <= limit && held >= limit / (1.0 + precision) * 0.999_999, "{} of {}", held, limit);
            prop_assert!(found.lost.unwrap() > limit);
        }
    }

    /// With any verdicts the search ends, nothing above the highest rate is offered, no rate is tried more than
    /// twice in a row, and what is given as held is the highest that a confirmation carried.
    #[test]
    fn every_search_ends(
        verdicts in prop::collection::vec(any::<bool>(), STEPS),
        most in prop::option::of(100.0f64..1e6),
    ) {
        let mut verdicts = verdicts.into_iter();
        let found = run(Search { most, ..search(100.0) }, |_| verdicts.next().unwrap());
        prop_assert!(found.steps.len() <= STEPS);
        for step in &found.steps {
            prop_assert!(step.rate <= most.unwrap_or(f64::MAX));
            prop_assert!((1..=ATTEMPTS).contains(&step.attempt));
        }
        for pair in found.steps.windows(2) {
            let again = !pair[0].is_clean() && pair[0].attempt < ATTEMPTS;
            prop_assert_eq!(again, pair[1].attempt > 1);
            prop_assert!(!again || pair[0].rate == pair[1].rate);
        }
        let confirmed = found.steps.iter().filter(|step| step.is_clean() && step.purpose == StepPurpose::Confirm);
        let highest = confirmed.map(|step| step.rate).reduce(f64::max);
        prop_assert_eq!(found.held, highest);
        match found.held {
            Some(held) => prop_assert!(found.lost.is_none_or(|lost| lost > held)),
            None => prop_assert!(matches!(found.ending, SearchEnding::Nothing | SearchEnding::Exhausted)),
        }
    }
}
