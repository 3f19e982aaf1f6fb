use std::collections::BTreeMap;

use rig_facts::fixture;
use rig_facts::programme::ScenarioLoad;
use rig_facts::record::{
    AgentRecord, CommandRecord, InterfaceDelta, NodeRecord, PhaseEnd, PhaseRecord, RateRecord, Series,
};
use rig_load::record::{Direction, ThreadRecord};
use rig_spread::MoveReason;
use rig_spread::history::{EntryMove, History};
use rig_stats::series::Track;
use rig_testbed::datapath::{Counters, State};
use serde_json::json;

use super::*;

/// Phases of ten seconds each, a reading each 100 ms.
const LENGTH_NS: u64 = 10 * SECOND_NS;
const STEP_US: u64 = 100_000;

/// What a trial of the guide leaves where all is as it should be, on two CPUs; packets of 1,000 bytes, 10 us each.
struct GuideTrial {
    /// Packets per second in each phase.
    rates: [f64; 11],
    moves: Vec<EntryMove>,
    table: Vec<Option<u32>>,
    dropped: u64,
    distributes: bool,
    cpus: Vec<u32>,
    /// What a packet costs where it is spread, and on one CPU, ns.
    costs: [u64; 2],
    /// How long a burst takes to come to its rate, seconds: from parked, from one CPU.
    ramps: [f64; 2],
}

impl Default for GuideTrial {
    fn default() -> Self {
        let low = 10_000.0;
        let full = 80_000.0;
        let begin = |phase: &str| begin_of(phase);
        let all = |at_ns: u64, from: &[u32; 4], to: &[u32; 4], why: MoveReason| -> Vec<EntryMove> {
            let moved = (0..4).filter(|entry| from[*entry] != to[*entry]);
            moved
                .map(|entry| EntryMove {
                    at_ns,
                    entry: entry as u32,
                    from: from[entry],
                    to: to[entry],
                    why,
                    paid: true,
                })
                .collect()
        };
        let (spread, one) = ([0, 1, 0, 1], [0, 0, 0, 0]);
        let moves = [
            all(begin(COALESCE) + 3 * SECOND_NS, &spread, &one, MoveReason::Coalesce),
            all(begin(STOPPED) + SECOND_NS, &one, &spread, MoveReason::Park),
            all(begin(LOW_AGAIN) + 5 * SECOND_NS, &spread, &one, MoveReason::Coalesce),
            all(begin(BURST_COALESCED) + SECOND_NS / 10, &one, &spread, MoveReason::Expand),
        ]
        .concat();
        Self {
            rates: [0.0, low, full, low, low, 3.0 * low, 0.0, full, full, low, full],
            moves,
            table: spread.map(Some).to_vec(),
            dropped: 0,
            distributes: false,
            cpus: vec![0, 1],
            costs: [12_000, 10_000],
            ramps: [0.1, 0.3],
        }
    }
}

fn begin_of(phase: &str) -> u64 {
    PHASES.iter().position(|one| *one == phase).unwrap() as u64 * LENGTH_NS
}

impl GuideTrial {
    fn record(&self) -> TrialRecord {
        let history = History {
            interface: "eth0".into(),
            actuator: "napi".into(),
            distributes: self.distributes,
            exact_order: true,
            base: 0,
            table: self.table.clone(),
            at_ns: 11 * LENGTH_NS,
            moves: self.moves.clone(),
            lost: 0,
        };
        let (mut agent, mut receiver) = (Track::default(), Track::default());
        let mut total = BTreeMap::<String, u64>::new();
        for step in 0..11 * LENGTH_NS / 1000 / STEP_US {
            let at_ns = (step * STEP_US + STEP_US / 2) * 1000;
            let phase = (at_ns / LENGTH_NS) as usize;
            let into = (at_ns % LENGTH_NS) as f64 / 1e9;
            let ramp = match PHASES[phase] {
                BURST => self.ramps[0],
                BURST_COALESCED => self.ramps[1],
                _ => 0.0,
            };
            let packets = if into < ramp { 0.0 } else { self.rates[phase] * STEP_US as f64 / 1e6 };
            receiver.push(STEP_US, [("bytes", (packets * 1000.0) as u64)]);
            let mut counts = BTreeMap::<String, u64>::new();
            let table = history.table_at(at_ns);
            for (entry, cpu) in table.iter().enumerate() {
                let own = (packets / table.len() as f64) as u64;
                counts.insert(format!("entry{entry}_packets"), own);
                let cpu = cpu.unwrap();
                *counts.entry(format!("cpu{cpu}_packets")).or_default() += own;
                // Two CPUs take more than one does for the same.
                let each = self.costs[usize::from(distinct(&table).len() == 1)];
                *counts.entry(format!("cpu{cpu}_processing_ns")).or_default() += own * each;
            }
            agent.push(STEP_US, counts.iter().map(|(name, count)| (name.as_str(), *count)));
            counts.into_iter().for_each(|(name, count)| *total.entry(name).or_default() += count);
        }
        let cpu = |cpu: u32| json!({ "cpu": cpu, "base": cpu == 0, "distributing_ns": u64::from(self.distributes), "processing_ns": 1, "other_ns": 1 });
        let settings = json!({ "mode": "static-vrss", "max_queue_pairs": 2, "base": 0, "cpus": [0, 1] });
        let cpus: Vec<_> = self.cpus.iter().map(|number| cpu(*number)).collect();
        let interface = json!({ "requested": settings, "effective": settings, "differences": [], "cpus": cpus });
        let status = json!({ "uptime_ms": 110_000, "interfaces": [interface] });
        let state = State {
            more: [("histories".to_owned(), json!([history])), ("status".to_owned(), status.clone())]
                .into_iter()
                .collect(),
            ..State::default()
        };
        let agent_record = AgentRecord {
            read_ns: None,
            name: SPREADER.into(),
            node: "receiver".into(),
            version: String::new(),
            cpus: self.cpus.clone(),
            settings: [("tuning".to_owned(), serde_json::to_value(Tuning::default()).unwrap())].into_iter().collect(),
            counters: Counters { counts: total.clone(), drops: Vec::new() },
            state,
            begun: None,
            dropped: None,
        };
        let mut trial = fixture::trial(&fixture::TrialOptions { samples: 8, ..Default::default() });
        (trial.window_begin_ns, trial.window_end_ns) = (0, 11 * LENGTH_NS);
        let command = |name: &str, begin_ns: u64| CommandRecord {
            datapath: SPREADER.into(),
            command: name.into(),
            arguments: serde_json::Map::new(),
            told_ns: begin_ns,
            answered_ns: begin_ns + 1_000_000,
            answers: vec![("receiver".into(), status.clone())],
        };
        for worker in &mut trial.workers {
            worker.threads = vec![ThreadRecord { bytes: 0, operations: 0, cpu_ns: 0 }];
        }
        let threads = trial.workers.iter().filter(|worker| worker.direction == Direction::Send).count() as f64;
        let node = |interface: &str, rx_packets: u64, tx_dropped: u64| NodeRecord {
            name: "receiver".into(),
            cpus: Vec::new(),
            interfaces: vec![InterfaceDelta {
                name: format!("receiver:{interface}"),
                rx_packets,
                rx_bytes: rx_packets * 1000,
                tx_dropped,
                ..InterfaceDelta::default()
            }],
            protocol: Default::default(),
            share: None,
        };
        let received: u64 = (0..2).filter_map(|cpu| total.get(&format!("cpu{cpu}_packets"))).sum();
        trial.nodes = vec![node("eth0", received, 0)];
        let phase = |(at, name): (usize, &&str)| {
            let begin_ns = at as u64 * LENGTH_NS;
            PhaseRecord {
                name: (*name).into(),
                begin_ns,
                end_ns: begin_ns + LENGTH_NS,
                ended: PhaseEnd::Time,
                rates: vec![RateRecord {
                    load: ScenarioLoad::Own,
                    per_second: self.rates[at] * 1000.0 / threads,
                    share: None,
                }],
                commands: match *name {
                    // The phases here are longer than the guide's.
                    IDLE => vec![command("set", begin_ns + LENGTH_NS - 2 * SECOND_NS)],
                    COALESCE => vec![command("set", begin_ns)],
                    STATIC_LOW | FULL => vec![command("status", begin_ns)],
                    _ => Vec::new(),
                },
                nodes: vec![node("eth0", 0, if *name == COALESCE { self.dropped } else { 0 })],
            }
        };
        trial.phases = PHASES.iter().enumerate().map(phase).collect();
        let workers = trial.workers.iter().map(|worker| match worker.direction {
            Direction::Receive => receiver.clone().finished(),
            _ => Track::default(),
        });
        trial.series = Some(Series {
            begin_ns: 0,
            interval_us: STEP_US,
            workers: workers.collect(),
            nodes: Vec::new(),
            agents: vec![agent.finished()],
            cost_us: 0,
        });
        for worker in &mut trial.workers {
            let of_phase = worker.phases.first().cloned().unwrap_or_default();
            worker.phases = vec![of_phase; 11];
        }
        trial.agents = vec![agent_record];
        trial
    }

    fn verdicts(&self) -> BTreeMap<String, (Verdict, String)> {
        judge(&self.record()).into_iter().map(|check| (check.name, (check.verdict, check.seen))).collect()
    }
}

/// The checks that fail where a story differs from the one in which none does.
fn failing(story: &GuideTrial) -> Vec<String> {
    story.verdicts().into_iter().filter(|(_, (verdict, _))| *verdict == Verdict::Failed).map(|(name, _)| name).collect()
}

#[test]
fn where_all_is_as_it_should_be_no_check_fails_and_each_says_what_was_seen() {
    let verdicts = GuideTrial::default().verdicts();
    let of = |wanted: Verdict| -> Vec<&str> {
        verdicts.iter().filter(|(_, (verdict, _))| *verdict == wanted).map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(of(Verdict::Failed), [""; 0], "{verdicts:#?}");
    assert_eq!(of(Verdict::Unknown), [""; 0], "{verdicts:#?}");
    // Two CPUs, threads that distribute nothing, a wire without a rate.
    assert_eq!(of(Verdict::Lacking), ["V13", "V15", "V17", "V30"]);
    assert!(verdicts.values().all(|(_, seen)| !seen.is_empty()));
    assert_eq!(verdicts["V20"].1, "all on CPU 0, the base, after 3.0 s");
    assert_eq!(verdicts["V24"].1, "CPUs 0, 0.30 CPUs' worth of work: 1 needed");
}

#[test]
fn each_check_fails_by_what_it_is_about() {
    let story = GuideTrial::default;
    let moved = |at_ns| EntryMove { at_ns, entry: 0, from: 0, to: 1, why: MoveReason::Rebalance, paid: true };
    // Static spreading that moves.
    let mut moves = story().moves;
    moves.insert(0, moved(begin_of(STATIC_LOW) + 5 * SECOND_NS));
    moves.insert(1, EntryMove { from: 1, to: 0, ..moved(begin_of(STATIC_LOW) + 6 * SECOND_NS) });
    assert_eq!(failing(&GuideTrial { moves, ..story() }), ["V10"]);
    // Never coalesced: nothing that depends on it can be said.
    let stays = |except: &[MoveReason]| -> Vec<EntryMove> {
        story().moves.into_iter().filter(|m| !except.contains(&m.why)).collect()
    };
    let never = GuideTrial { moves: stays(&[MoveReason::Coalesce, MoveReason::Park, MoveReason::Expand]), ..story() };
    let verdicts = never.verdicts();
    assert_eq!(failing(&never), ["V20"]);
    assert_eq!([verdicts["V11"].0, verdicts["V21"].0, verdicts["V22"].0], [Verdict::Unknown; 3]);
    // Nothing parks.
    let mut unparked = stays(&[MoveReason::Park]);
    unparked.retain(|moved| moved.at_ns < begin_of(STOPPED));
    let unparked = GuideTrial { moves: unparked, table: vec![Some(0); 4], ..story() };
    assert!(failing(&unparked).contains(&"V27".to_owned()), "{:?}", failing(&unparked));
    // Packets are lost.
    assert_eq!(failing(&GuideTrial { dropped: 1, ..story() }), ["V19"]);
    // A burst that takes long.
    assert_eq!(failing(&GuideTrial { ramps: [0.4, 0.6], ..story() }), ["V28"]);
    assert_eq!(failing(&GuideTrial { ramps: [0.2, 0.0], ..story() }), ["V28"]);
    // What goes on when all is stopped.
    let mut rates = story().rates;
    rates[6] = 1000.0;
    assert_eq!(failing(&GuideTrial { rates, ..story() }), ["V26"]);
    // A base that only distributes is asked for where there is one.
    assert_eq!(failing(&GuideTrial { distributes: true, ..story() }), ["V17"]);
}

/// What is wrong with a trial of which a check has to fail.
fn wrong(check: &str) -> TrialRecord {
    let mut story = GuideTrial::default();
    let moved = |at_ns, from, to| EntryMove { at_ns, entry: 0, from, to, why: MoveReason::Rebalance, paid: true };
    let without = |story: &mut GuideTrial, why: &[MoveReason]| story.moves.retain(|moved| !why.contains(&moved.why));
    let back_and_forth = |story: &mut GuideTrial, at_ns: u64, from, to| {
        story.moves.push(moved(at_ns, from, to));
        story.moves.push(moved(at_ns + SECOND_NS / 2, to, from));
        story.moves.sort_by_key(|moved| moved.at_ns);
    };
    match check {
        "V04" => story.rates[0] = 1000.0,
        "V09" | "V27" => (story.table, story.moves) = (vec![Some(0); 4], Vec::new()),
        "V10" => back_and_forth(&mut story, begin_of(STATIC_LOW) + 5 * SECOND_NS, 0, 1),
        "V11" => story.costs = [10_000; 2],
        "V13" => (story.cpus, story.rates[2]) = ((0..4).collect(), 90_000.0),
        "V14" => back_and_forth(&mut story, begin_of(STATIC_FULL) + 5 * SECOND_NS, 0, 1),
        "V15" => story.cpus = (0..4).collect(),
        "V17" | "V16" => story.distributes = true,
        "V19" => story.dropped = 1,
        "V20" => without(&mut story, &[MoveReason::Coalesce, MoveReason::Park, MoveReason::Expand]),
        "V21" => story.rates[4] = 12_000.0,
        "V22" => {
            let early = |moved: &&mut EntryMove| moved.at_ns > begin_of(LOW_AGAIN) && moved.why == MoveReason::Coalesce;
            story.moves.iter_mut().filter(early).for_each(|moved| moved.at_ns = begin_of(LOW_AGAIN) + SECOND_NS);
        }
        "V24" => {
            (story.cpus, story.table) = ((0..4).collect(), (0..4).map(Some).collect());
            story.moves.clear();
        }
        "V25" => story.rates[5] = 95_000.0,
        "V26" => story.rates[6] = 1000.0,
        "V28" => story.ramps = [0.4, 0.6],
        "V30" => (story.distributes, story.cpus) = (true, (0..4).collect()),
        "V31" => back_and_forth(&mut story, begin_of(FULL) + 8 * SECOND_NS, 0, 1),
        _ => {}
    }
    let mut trial = story.record();
    let phase = |trial: &mut TrialRecord, name: &str| trial.phases.iter().position(|phase| phase.name == name).unwrap();
    let twice = |trial: &mut TrialRecord, name: &str| {
        let at = phase(trial, name);
        trial.phases[at].rates[0].per_second *= 2.0;
    };
    let told = |trial: &mut TrialRecord, pointer: &str, value: Value| {
        let at = phase(trial, STATIC_LOW);
        *trial.phases[at].commands[0].answers[0].1.pointer_mut(pointer).unwrap() = value;
    };
    let more = |trial: &mut TrialRecord, of: &str, pointer: &str, value: Value| {
        *trial.agents[0].state.more.get_mut(of).unwrap().pointer_mut(pointer).unwrap() = value;
    };
    match check {
        "V01" => more(&mut trial, "histories", "/0/table", json!([0])),
        "V02" => trial.nodes[0].interfaces[0].rx_packets *= 2,
        "V03" => more(&mut trial, "histories", "/0/table/0", Value::Null),
        "V05" => told(&mut trial, "/interfaces/0/requested/mode", json!("dynamic")),
        "V06" => told(&mut trial, "/interfaces/0/effective/mode", json!("dynamic")),
        "V07" => told(&mut trial, "/interfaces/0/requested/max_queue_pairs", json!(16)),
        "V08" => twice(&mut trial, STATIC_LOW),
        "V12" => more(&mut trial, "status", "/interfaces/0/cpus/0/other_ns", json!(200 * SECOND_NS)),
        "V16" => {
            trial.agents[0].counters.counts.insert("cpu1_distributing_ns".to_owned(), 1);
        }
        "V18" => twice(&mut trial, STATIC_BACK),
        "V23" => twice(&mut trial, SECOND),
        "V29" => {
            let at = phase(&mut trial, FULL);
            let status = &mut trial.phases[at].commands[0];
            status.answered_ns = status.told_ns + 2 * SECOND_NS;
        }
        _ => {}
    }
    trial
}

#[test]
fn each_of_the_checks_can_fail() {
    for (name, ..) in CHECKS {
        let found = judge(&wrong(name)).into_iter().find(|check| check.name == name).unwrap();
        assert_eq!(found.verdict, Verdict::Failed, "{name}: {}", found.seen);
    }
}

#[test]
fn what_cannot_move_anything_is_lacking_only_with_a_reason() {
    let mut trial = wrong("");
    let more = &mut trial.agents[0].state.more;
    more.get_mut("histories").unwrap()[0]["actuator"] = json!("observe");
    let first = |trial: &TrialRecord| judge(trial).remove(0);
    assert_eq!(first(&trial).verdict, Verdict::Failed);
    let interface = &mut trial.agents[0].state.more.get_mut("status").unwrap()["interfaces"][0];
    interface["effective"]["mode"] = json!("static-vmq");
    interface["differences"] = json!([{ "difference": { "setting": "mode", "reason": "nothing can move" } }]);
    assert_eq!(first(&trial).verdict, Verdict::Lacking);
    assert!(first(&trial).seen.contains("nothing can move"));
}

#[test]
fn a_trial_that_does_not_tell_fails_nothing() {
    let mut trial = GuideTrial::default().record();
    trial.phases.truncate(3);
    let checks = judge(&trial);
    assert_eq!(checks.len(), 31);
    let known = |name: &str| checks.iter().find(|check| check.name == name).unwrap().verdict;
    assert_eq!([known("V08"), known("V20"), known("V31")], [Verdict::Passed, Verdict::Unknown, Verdict::Unknown]);
    trial.agents.clear();
    assert!(judge(&trial).iter().all(|check| check.verdict == Verdict::Unknown));
}
