use rig_packet::search::SearchEnding;
use rig_suite::suite::{RequestedLoad, Suite};

use super::*;

const PHASES: Phases = Phases {
    warm_up: Duration::from_millis(100),
    window: Duration::from_secs(1),
    cool_down: Duration::from_millis(50),
    interval: Duration::from_millis(200),
};

fn scenario(id: &str) -> Scenario {
    Suite::load("balancer").unwrap().scenario(id).unwrap().clone()
}

fn held(scenario: &Scenario) -> u32 {
    let RequestedLoad::Packets(packets) = &scenario.traffic.connect else { panic!("{:?}", scenario.traffic) };
    packets.client.load.hold.unwrap()
}

/// A path that carries so many connections and no more: what was offered to it and how, and what was found.
fn found(id: &str, capacity: u32, most: Option<f64>) -> (Vec<(u32, Phases)>, SearchWithObservation<u32>) {
    let scenario = scenario(id);
    let mut plan = scenario.traffic.packets.as_ref().unwrap().search.unwrap();
    plan.options.most = most.or(plan.options.most);
    let mut offers = Vec::new();
    let observe = |offered: &Scenario, phases, _| {
        offers.push((held(offered), phases));
        Ok(held(offered))
    };
    let lost = |held: &u32| match held.checked_sub(capacity) {
        None | Some(0) => Vec::new(),
        Some(more) => vec![Loss { counter: "local udpRt".into(), count: more.into() }],
    };
    let found = steps(&scenario, &plan, PHASES, observe, lost).unwrap();
    (offers, found)
}

#[test]
fn the_most_connections_that_are_held_without_loss_are_found() {
    for capacity in [10, 51, 937, 12_345] {
        let (offers, found) = found("pps-direct", capacity, None);
        let limit = found.outcome.held.unwrap();
        assert_eq!(found.outcome.ending, SearchEnding::Found, "{capacity}");
        assert!(limit <= f64::from(capacity) && limit >= f64::from(capacity) * 0.96 - 1.0, "{limit} of {capacity}");
        // What was observed is the load that was held.
        assert_eq!(found.held, Some(limit as u32));
        let (first, last) = (offers[0].0, offers[offers.len() - 1].1);
        assert_eq!((first, last.window), (50, PHASES.window), "{capacity}");
        assert!(found.outcome.steps.iter().all(|step| step.rate == step.rate.round()), "{:?}", found.outcome.steps);
    }
}

#[test]
fn connections_are_opened_before_the_window_begins() {
    let (offers, _) = found("pps-direct", 9000, None);
    for (held, phases) in offers {
        let opening = Duration::from_secs_f64(f64::from(held) / 3000.0);
        let own = phases.warm_up.checked_sub(opening).unwrap();
        assert!(own + Duration::from_micros(1) >= PHASES.warm_up, "{held}: {phases:?}");
    }
}

#[test]
fn a_search_for_connections_that_finds_no_end_stops_at_the_most() {
    let (offers, found) = found("pps-direct", u32::MAX, Some(700.0));
    assert_eq!((found.outcome.ending, found.outcome.held), (SearchEnding::Ceiling, Some(700.0)));
    assert!(offers.iter().all(|(held, _)| *held <= 700));
    // Opening takes a minute at most, however many connections the path carries.
    let (offers, found) = self::found("throughput-direct", u32::MAX, None);
    assert_eq!((found.outcome.ending, found.outcome.held), (SearchEnding::Ceiling, Some(120_000.0)));
    assert!(offers.iter().all(|(_, phases)| phases.warm_up <= PHASES.warm_up + Duration::from_secs(60)));
}

#[test]
fn a_path_that_carries_no_connection_has_no_limit() {
    let scenario = scenario("pps-direct");
    let plan = scenario.traffic.packets.as_ref().unwrap().search.unwrap();
    let all_lost = |_: &u32| vec![Loss { counter: "local udpRt".into(), count: 1 }];
    let found = steps(&scenario, &plan, PHASES, |offered, _, _| Ok(held(offered)), all_lost).unwrap();
    assert_eq!((found.outcome.ending, found.outcome.held, found.held), (SearchEnding::Nothing, None, None));
}

#[test]
fn steps_of_rates_have_the_suites_own_phases() {
    let scenario = scenario("cps-direct");
    let plan = scenario.traffic.packets.as_ref().unwrap().search.unwrap();
    let mut warm_ups = Vec::new();
    let observe = |_: &Scenario, phases: Phases, _: StepPurpose| {
        warm_ups.push(phases.warm_up);
        Ok(warm_ups.len())
    };
    let lost = |step: &usize| match step {
        1..=3 => Vec::new(),
        _ => vec![Loss { counter: "local synRt".into(), count: 1 }],
    };
    steps(&scenario, &plan, PHASES, observe, lost).unwrap();
    assert!(warm_ups.iter().all(|warm_up| *warm_up == PHASES.warm_up));
}

#[test]
fn a_rate_of_which_nothing_falls_into_a_step_is_not_tried() {
    let mut scenario = scenario("pps-direct");
    let mut plan = scenario.traffic.packets.as_ref().unwrap().search.unwrap();
    (plan.of, plan.options.start, plan.options.most, plan.step) = (SearchedRate::Connections, 8.0, None, PHASES.window);
    let RequestedLoad::Packets(packets) = &mut scenario.traffic.connect else { panic!("{:?}", scenario.traffic) };
    (packets.client.load.hold, packets.client.repeat) = (None, None);
    let mut rates = Vec::new();
    let observe = |offered: &Scenario, _, _| {
        let RequestedLoad::Packets(packets) = &offered.traffic.connect else { panic!("{:?}", offered.traffic) };
        rates.push(packets.client.load.rate);
        Ok(())
    };
    let lost = |_: &()| vec![Loss { counter: "local udpRt".into(), count: 1 }];
    let found = steps(&scenario, &plan, PHASES, observe, lost).unwrap();
    assert_eq!((found.outcome.ending, found.outcome.held), (SearchEnding::Nothing, None));
    assert!(rates.len() > 3 && rates.iter().all(|rate| *rate >= 1.0), "{rates:?}");
}
