//! The receive spreader on a card.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netrig_spread::actuator::{Kind, probe};
use rig_datapath::napi;
use rig_skip::{Lack, skip};
use rig_sys::interrupts;
use rustix::process::Signal;

use super::{Cable, run, send};
use crate::spread::lab::TIMEOUT;
use crate::world::until;

/// The CPU that each entry is on by the card's table and the interrupts of its queues.
fn placed(cable: &Cable) -> Vec<i64> {
    let napis = napi::of(cable.here(), &cable.card).unwrap();
    let cpu = |&queue: &u32| {
        let cpus = interrupts::cpus_of(napis[queue as usize].irq.unwrap()).unwrap();
        i64::from(cpus.as_slice()[0])
    };
    cable.table().iter().map(cpu).collect()
}

/// The CPU that each entry is on by the spreader.
fn shown(cable: &Cable) -> Vec<i64> {
    let status = cable.lab.json();
    let entries = status["interfaces"][0]["entries"].as_array().unwrap();
    entries.iter().map(|entry| entry["receive_processor"].as_i64().unwrap()).collect()
}

#[test]
fn it_finds_what_could_move_the_cards_receive_work() {
    let Some(cable) = Cable::with_table() else { return };
    let probed = probe(&cable.card).unwrap();
    let kinds: Vec<(Kind, usize)> = probed.prospects.iter().map(|one| (one.kind, one.entries as usize)).collect();
    assert!(kinds.contains(&(Kind::Rss, cable.table().len())), "{probed:?}");
    assert!(kinds.contains(&(Kind::Rps, cable.queues())), "{probed:?}");
    assert!(kinds.contains(&(Kind::Observe, 0)), "{probed:?}");
}

#[test]
fn entries_of_the_table_are_where_it_puts_them_and_so_are_the_packets() {
    let Some(cable) = Cable::with_table() else { return };
    let before = cable.table();
    let (flows, to) = cable.flows(64);
    let mut spreader = cable.lab.start(&[&cable.card, "--actuator", "rss", "--mode", "static-vrss"]);
    let cpus = shown(&cable);
    assert_eq!(cpus.len(), before.len());
    assert_eq!(placed(&cable), cpus);
    let used: BTreeSet<i64> = cpus.iter().copied().collect();
    assert_eq!(used.len(), cable.queues(), "{cpus:?}");
    let received = cable.received();
    send(&flows, &to, 4);
    if let Some((before, now)) = received.zip(cable.received()) {
        assert!(now.iter().zip(&before).all(|(now, before)| now > before), "{before:?} {now:?}");
    }
    let counted = until(TIMEOUT, || {
        let status = cable.lab.json();
        let entries = status["interfaces"][0]["entries"].as_array().unwrap();
        let packets: u64 = entries.iter().map(|entry| entry["packets"].as_u64().unwrap()).sum();
        (packets == 256).then_some(())
    });
    assert!(counted.is_some(), "{}", cable.lab.json());

    // All on one CPU, while packets come.
    cable.lab.netrig(0, &["set", &cable.card, "--mode", "static-vmq"]);
    let moved = until(TIMEOUT, || {
        send(&flows[..1], &to, 1);
        let cpus = shown(&cable);
        (cpus.iter().all(|cpu| *cpu == cpus[0]) && placed(&cable) == cpus).then_some(())
    });
    assert!(moved.is_some(), "{:?} {:?}", shown(&cable), cable.table());
    let queue = cable.table()[0] as usize;
    let received = cable.received();
    send(&flows, &to, 4);
    if let Some((before, now)) = received.zip(cable.received()) {
        assert_eq!(now[queue] - before[queue], 256, "{before:?} {now:?}");
        assert_eq!(now.iter().sum::<u64>() - before.iter().sum::<u64>(), 256);
    }

    spreader.signal(Signal::TERM);
    spreader.ended(Some(0));
    assert_eq!(cable.table(), before);
}

#[test]
fn entries_come_together_under_little_load_and_part_again_without_any() {
    let Some(cable) = Cable::with_table() else { return };
    let before = cable.table();
    let (flows, to) = cable.flows(8);
    let mut spreader = cable.lab.start(&[&cable.card, "--actuator", "rss", "--mode", "dynamic"]);
    let on = || shown(&cable).into_iter().collect::<BTreeSet<i64>>().len();
    let (ends, mut table) = (AtomicBool::new(false), Vec::new());
    let coalesced = thread::scope(|scope| {
        scope.spawn(|| {
            // An end of its own, for where the test fails.
            let begin = Instant::now();
            while !ends.load(Ordering::Relaxed) && begin.elapsed() < 2 * TIMEOUT {
                send(&flows, &to, 1);
                thread::sleep(Duration::from_millis(10));
            }
        });
        let coalesced = until(TIMEOUT, || {
            // Each look takes a slow machine's CPUs for so long that entries leave them as hot: there are few of them, and the spreader is
            // asked when the table says that its entries are together.
            thread::sleep(Duration::from_millis(500));
            table = cable.table();
            (table.iter().collect::<BTreeSet<_>>().len() == 1 && on() == 1).then_some(())
        });
        ends.store(true, Ordering::Relaxed);
        coalesced
    });
    assert!(coalesced.is_some(), "{table:?} {}", cable.lab.json());
    let parked = until(TIMEOUT, || (on() == cable.queues()).then_some(()));
    assert!(parked.is_some(), "{}", cable.lab.json());
    assert_eq!(placed(&cable), shown(&cable));
    spreader.signal(Signal::TERM);
    spreader.ended(Some(0));
    assert_eq!(cable.table(), before);
}

#[test]
fn queues_that_are_switched_off_are_left_out_and_taken_when_they_are_on() {
    let Some(cable) = Cable::with_table() else { return };
    let all = cable.queues();
    let switch = |queues: usize| {
        // ethtool(8) takes nothing to do as a failure.
        if cable.queues() != queues {
            run(cable.here(), &["ethtool", "-L", &cable.card, "combined", &queues.to_string()]);
        }
    };
    switch(2);
    // Drivers give each queue a CPU of its own when there are as many queues as CPUs; else all may come to one.
    let napis = napi::of(cable.here(), &cable.card).unwrap();
    let interrupts: Vec<u32> = napis.iter().map(|napi| napi.irq.unwrap()).collect();
    for (cpu, interrupt) in interrupts.iter().enumerate() {
        fs::write(format!("/proc/irq/{interrupt}/smp_affinity_list"), cpu.to_string()).unwrap();
    }
    // An interrupt moves when it comes the next time.
    let (flows, to) = cable.flows(64);
    let moved = until(TIMEOUT, || {
        send(&flows, &to, 1);
        let cpus = interrupts.iter().filter_map(|interrupt| Some(interrupts::cpus_of(*interrupt)?.as_slice().to_vec()));
        (cpus.collect::<BTreeSet<_>>().len() == 2).then_some(())
    });
    assert!(moved.is_some(), "interrupts {interrupts:?} stay where they were");
    let mut spreader = cable.lab.start(&[&cable.card, "--actuator", "rss", "--mode", "static-vrss"]);
    for queues in [2, all] {
        let mut seen = (Vec::new(), Vec::new());
        let taken = until(TIMEOUT, || {
            let is_taken = cable.lab.json()["interfaces"].as_array().is_some_and(|all| !all.is_empty());
            seen = (if is_taken { shown(&cable) } else { Vec::new() }, placed(&cable));
            let (shown, placed) = &seen;
            (shown.iter().collect::<BTreeSet<_>>().len() == queues && placed == shown).then_some(())
        });
        if taken.is_none() {
            let table = cable.table();
            switch(all);
            panic!("{queues} queues: shown and placed {seen:?} by {table:?}\n{}", spreader.said());
        }
        switch(all);
    }
    spreader.signal(Signal::TERM);
    spreader.ended(Some(0));
}

#[test]
fn threads_poll_the_cards_queues_on_the_cpus_that_they_are_put_on() {
    if let Err(why) = napi::may_place() {
        return skip(Lack::ReceiveThreads, why);
    }
    let Some(cable) = Cable::find() else { return };
    let mut spreader = cable.lab.start(&[&cable.card, "--actuator", "napi", "--mode", "static-vrss", "--cpus", "0-1"]);
    let threads = || -> Vec<i64> {
        let napis = napi::of(cable.here(), &cable.card).unwrap();
        let cpus = napis.iter().map(|napi| napi::cpus_of_thread(napi.thread.unwrap()).unwrap());
        cpus.map(|cpus| i64::from(cpus.as_slice()[0])).collect()
    };
    assert_eq!(threads(), shown(&cable));
    let (flows, to) = cable.flows(64);
    send(&flows, &to, 4);
    let counted = until(TIMEOUT, || {
        let status = cable.lab.json();
        let entries = status["interfaces"][0]["entries"].as_array().unwrap();
        let packets: u64 = entries.iter().map(|entry| entry["packets"].as_u64().unwrap()).sum();
        (packets >= 256).then_some(())
    });
    assert!(counted.is_some(), "{}", cable.lab.json());
    spreader.signal(Signal::TERM);
    spreader.ended(Some(0));
    assert_eq!(cable.lab.receiver.sysfs().unwrap().read(&cable.card, "threaded").unwrap(), "0");
}
