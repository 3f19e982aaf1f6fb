//! What becomes of moves that the kernel refuses, over an actuator that has one entry it does not move.

use std::sync::Arc;
use std::time::Duration;

use rig_skip::{Lack, skip};
use rig_spread::{Abilities, EntryObservation, Mode, Order};
use rig_sys::netns::NetNs;

use super::*;
use crate::actuator::{Kind, SavedState};

const ENTRIES: usize = 4;
const STUCK: usize = 3;

/// All its entries are on CPU 1 at first.
#[derive(Debug)]
struct StuckActuator {
    table: Vec<u32>,
    received_by: BTreeMap<u32, u64>,
}

impl Actuator for StuckActuator {
    fn kind(&self) -> Kind {
        Kind::Rps
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            entries: ENTRIES as u32,
            single_moves: true,
            order: Order::Bounded,
            distributes: true,
            base_moves: false,
            receiver_spreads: true,
            received_by: None,
            in_place: false,
            only_cpus: None,
        }
    }

    fn queues(&self) -> usize {
        ENTRIES
    }

    fn placed(&self) -> anyhow::Result<Vec<Option<u32>>> {
        Ok(self.table.iter().copied().map(Some).collect())
    }

    fn apply(&mut self, placings: &[EntryMove]) -> Vec<anyhow::Result<()>> {
        let put = |placing: &EntryMove| {
            if placing.entry == STUCK && self.table[STUCK] != placing.cpu {
                anyhow::bail!("it is nailed down");
            }
            self.table[placing.entry] = placing.cpu;
            Ok(())
        };
        placings.iter().map(put).collect()
    }

    fn seen(&mut self, _: &Reading, _: &Reading) -> Vec<EntryObservation> {
        vec![EntryObservation::default(); ENTRIES]
    }

    fn distributing(&self, _: &Reading, _: &Reading, _: u32) -> Duration {
        Duration::ZERO
    }

    fn received_by(&self, _: &Reading, _: &Reading) -> BTreeMap<u32, u64> {
        self.received_by.clone()
    }

    fn processing(&self, _: &Reading, _: &Reading, _: u32) -> Duration {
        Duration::ZERO
    }

    fn is_intact(&self) -> bool {
        true
    }

    fn before(&self) -> SavedState {
        SavedState::Nothing { interface: "lo".to_owned() }
    }
}

/// A port whose entries are to be on CPU 0, if this machine lets us have one.
fn port(received_by: &[(u32, u64)]) -> Option<(Port, LogEvents)> {
    let ns = NetNs::of_current_thread().unwrap();
    let Ok(sysfs) = ns.sysfs() else {
        skip(Lack::Root, "a namespace's interfaces are looked at in a mount of sysfs");
        return None;
    };
    if rig_sys::cpu::CpuSet::online().unwrap().len() < 2 {
        skip(Lack::Cpus, "what is moved needs two CPUs");
        return None;
    }
    let device = Device { ns: Arc::new(ns), sysfs: Arc::new(sysfs), name: "lo".to_owned() };
    let mut rule = Rule::of("lo".parse().unwrap());
    rule.settings.mode = Mode::StaticVmq;
    (rule.settings.base, rule.settings.cpus) = (Some(0), Some(vec![0, 1]));
    let actuator = StuckActuator { table: vec![1; ENTRIES], received_by: received_by.iter().copied().collect() };
    Some(Port::new(device, 1, 0, Box::new(actuator), Vec::new(), rule, Duration::ZERO).unwrap())
}

fn processors(port: &Port, now: Duration) -> Vec<i64> {
    port.status(now).entries.iter().map(|entry| entry.receive_processor).collect()
}

fn look(port: &mut Port, now: Duration) -> LogEvents {
    let reading = |at: Duration| Reading { at: at.as_nanos() as u64, ..Reading::default() };
    port.look(&reading(now), &reading(now + Duration::from_millis(10)), &Losses::default(), now)
}

fn failures(told: &LogEvents) -> usize {
    told.iter().filter(|what| matches!(what, LogEvent::Failed { why, .. } if why.contains("nailed down"))).count()
}

#[test]
fn what_is_refused_at_first_is_shown_where_it_is_and_asked_for_again_later() {
    let Some((mut port, told)) = port(&[]) else { return };
    assert_eq!(failures(&told), 1);
    assert_eq!(processors(&port, Duration::ZERO), [0, 0, 0, 1]);
    // At once nothing is asked again; after a while it is, and it still stays.
    assert_eq!(failures(&look(&mut port, Duration::from_secs(1))), 0);
    let retry = port.config.tuning.retry.0 + Duration::from_secs(1);
    assert_eq!(failures(&look(&mut port, retry)), 1);
    assert_eq!(processors(&port, retry), [0, 0, 0, 1]);
    assert_eq!(port.status(retry).moves.failed, 2);
}

#[test]
fn a_move_that_is_refused_later_is_told_and_taken_back() {
    let Some((mut port, _)) = port(&[]) else { return };
    let mut rule = port.rule.clone();
    rule.settings.base = Some(1);
    let now = Duration::from_secs(100);
    port.configure(rule, now).unwrap();
    // The one that is stuck is there already.
    assert_eq!(failures(&look(&mut port, now)), 0);
    assert_eq!(processors(&port, now), [1; 4]);
    let mut rule = port.rule.clone();
    rule.settings.base = Some(0);
    port.configure(rule, now).unwrap();
    let told = look(&mut port, now + Duration::from_secs(1));
    assert_eq!(failures(&told), 1);
    assert_eq!(told.iter().filter(|what| matches!(what, LogEvent::Moved(_))).count(), 3);
    assert_eq!(processors(&port, now), [0, 0, 0, 1]);
}

#[test]
fn the_cpu_that_receives_is_that_of_most_packets_of_a_second_and_does_not_flap() {
    let Some((mut port, _)) = port(&[(0, 40), (1, 180)]) else { return };
    assert!(!port.learn_receiver(), "nothing was seen");
    look(&mut port, Duration::from_secs(1));
    assert!(port.learn_receiver());
    assert_eq!(port.status(Duration::ZERO).received_by, Some(1));
    assert!(!port.learn_receiver(), "a second without packets says nothing");
    for (packets, other) in [([(0, 5), (1, 1)], false), ([(0, 110), (1, 100)], false), ([(0, 200), (1, 100)], true)] {
        port.first_on = packets.into();
        assert_eq!(port.learn_receiver(), other, "{packets:?}");
    }
    assert_eq!(port.status(Duration::ZERO).received_by, Some(0));
}
