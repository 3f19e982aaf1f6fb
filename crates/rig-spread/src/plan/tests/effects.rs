//! What came of moves, and which are taken back.

use super::*;

#[test]
fn moves_that_bring_losses_are_taken_back() {
    let mut bed = TestMachine::new(8);
    bed.all(0.7);
    bed.run(1.9);
    // The base cannot hold what it says it can.
    bed.lost.insert(1, 200);
    let back = |bed: &TestMachine| {
        bed.events.iter().any(|(_, event)| matches!(event, Event::Undone { reason: Regression::Losses { .. }, .. }))
    };
    bed.lost.clear();
    while bed.cpus() != [1] {
        bed.plan_once();
    }
    bed.lost.insert(1, 200);
    // Hot by its losses, it would give away its entries; the undoing comes with the second that the moves are watched.
    bed.tuning.looks = 10_000;
    bed.configure();
    bed.run(1.3);
    assert!(back(&bed), "{:?}", bed.events);
    assert_eq!(bed.cpus().len(), 8);
    assert!(bed.moves.iter().any(|(_, done)| done.why == MoveReason::Undo));
    assert_eq!(bed.state.hold, Duration::from_secs(6));
}

#[test]
fn entries_that_got_slower_where_the_rest_did_not_go_back_and_that_cpu_is_avoided() {
    let mut bed = TestMachine::new(8);
    bed.all(0.7);
    bed.run(10.0);
    bed.speed.insert(2, 0.5);
    bed.all(1.1);
    bed.run(1.5);
    let undone = |event: &Event| matches!(event, Event::Undone { reason: Regression::MovedEntries { .. }, .. });
    assert!(bed.has(undone), "{:?}", bed.events);
    bed.run(5.0);
    assert!(!bed.cpus().contains(&2), "{:?}", bed.cpus());
}

#[test]
fn a_load_that_falls_after_moves_is_no_reason_to_take_them_back() {
    for share in [0.8, 0.5, 0.1] {
        let mut bed = TestMachine::new(8);
        bed.all(0.7);
        bed.run(10.0);
        bed.all(1.4);
        std::iter::repeat_with(|| bed.plan_once()).find(|moves| !moves.is_empty()).unwrap();
        bed.all(1.4 * share);
        bed.run(1.5);
        assert!(!bed.has(|event| matches!(event, Event::Undone { .. })), "{share}: {:?}", bed.events);
    }
}

#[test]
fn moves_after_which_less_is_done_while_packets_wait_are_taken_back() {
    let mut bed = TestMachine::new(8);
    bed.all(0.7);
    while bed.cpus() != [1] {
        bed.plan_once();
    }
    // The base has other work from now on, and is full: what was carried before is no longer.
    bed.other.insert(1, 0.6);
    // As above: the undoing comes before the CPU counts as hot.
    bed.tuning.looks = 10_000;
    bed.configure();
    bed.run(1.3);
    let undone = |event: &Event| matches!(event, Event::Undone { reason: Regression::Throughput { .. }, .. });
    assert!(bed.has(undone), "{:?}", bed.events);
    assert_eq!(bed.cpus().len(), 8);
}

#[test]
fn what_came_of_each_move_is_told_whatever_it_was_for() {
    let mut bed = TestMachine::new(16);
    bed.all(0.7);
    let told = |bed: &TestMachine| -> BTreeSet<(u32, u32)> {
        let effects = bed.events.iter().filter_map(|(_, event)| match event {
            Event::Effect { cpu, entries, base: false, .. } => Some(entries.iter().map(|entry| (*entry, *cpu))),
            _ => None,
        });
        effects.flatten().collect()
    };
    let moved = |bed: &TestMachine| -> BTreeSet<(u32, u32)> {
        bed.moves.iter().filter_map(|(_, done)| Some((done.entry?, done.to))).collect()
    };
    let mut all = BTreeSet::new();
    let mut change = |bed: &mut TestMachine, why: MoveReason, do_it: &dyn Fn(&mut TestMachine)| {
        bed.forget();
        do_it(bed);
        bed.run(8.0);
        assert_eq!(bed.whys(), [why]);
        assert_eq!(told(bed), moved(bed), "{why}");
        all.extend(bed.whys());
    };
    change(&mut bed, MoveReason::Coalesce, &|_| {});
    change(&mut bed, MoveReason::Park, &|bed| bed.all(0.0));
    change(&mut bed, MoveReason::Mode, &|bed| {
        bed.settings.mode = Mode::StaticVmq;
        bed.configure();
    });
    change(&mut bed, MoveReason::CpuOffline, &|bed| {
        bed.machine.cpus[1].online = false;
        bed.configure();
    });
    assert_eq!(all.len(), 4);
    // A move that was refused has no effect.
    let mut refused = TestMachine::new(16);
    refused.all(0.7);
    while refused.cpus() != [1] {
        refused.plan_once();
    }
    let entry = refused.moves[0].1.entry;
    refused.state = refused.state.clone().failed(entry);
    refused.run(1.5);
    assert!(!told(&refused).iter().any(|(named, _)| Some(*named) == entry), "{:?}", told(&refused));
}
