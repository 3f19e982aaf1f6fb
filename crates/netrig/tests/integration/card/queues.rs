//! Queues, interrupts and offloads of a card, as netrig has them and as the kernel's own files and ethtool(8) do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rig_datapath::napi;
use rig_sys::ethtool::{self, Offload};
use rig_sys::interrupts;
use serde_json::Value;

use super::{Cable, run, send};
use crate::world::{netrig, until};

/// Interrupts so far by number, and the name of each, as /proc/interrupts has them.
fn interrupts_so_far() -> BTreeMap<u32, (u64, String)> {
    let text = fs::read_to_string("/proc/interrupts").unwrap();
    let line = |line: &str| {
        let (number, rest) = line.trim().split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let count = words.iter().map_while(|word| word.parse::<u64>().ok()).sum();
        Some((number.parse().ok()?, (count, (*words.last()?).to_owned())))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn each_queue_has_the_interrupt_that_comes_when_it_receives() {
    let Some(cable) = Cable::find() else { return };
    let napis = napi::of(cable.here(), &cable.card).unwrap();
    assert!(napis.len() >= cable.queues(), "{napis:?}");
    let irqs: Vec<u32> = napis.iter().take(cable.queues()).map(|napi| napi.irq.unwrap()).collect();
    assert_eq!(irqs.iter().collect::<BTreeSet<_>>().len(), irqs.len(), "{irqs:?}");
    let (flows, to) = cable.flows(64);
    let Some(received) = cable.received() else { return };
    let interrupts = interrupts_so_far();
    send(&flows, &to, 4);
    let interrupts_now = interrupts_so_far();
    let Some(received_now) = cable.received() else { return };
    let mut used = 0;
    for (queue, irq) in irqs.iter().enumerate() {
        let name = &interrupts[irq].1;
        assert!(name.ends_with(&queue.to_string()), "queue {queue} has interrupt {irq}, which is {name}");
        let packets = received_now[queue] - received[queue];
        let came = interrupts_now[irq].0 - interrupts[irq].0;
        // One may bring several packets, and packets never come without one.
        assert!(came <= packets && (came > 0) == (packets > 0), "queue {queue}: {packets} packets, {came} interrupts");
        used += usize::from(packets > 0);
    }
    assert_eq!(used, cable.queues(), "64 flows reach all queues: {received:?} {received_now:?}");
    assert_eq!(received_now.iter().sum::<u64>() - received.iter().sum::<u64>(), 256);
}

#[test]
fn interrupts_are_where_they_are_put() {
    let Some(cable) = Cable::find() else { return };
    let napis = napi::of(cable.here(), &cable.card).unwrap();
    let irq = napis[1].irq.unwrap();
    let file = format!("/proc/irq/{irq}/smp_affinity_list");
    let before = fs::read_to_string(&file).unwrap();
    for cpu in [1, 0] {
        fs::write(&file, cpu.to_string()).unwrap();
        // At once, though the kernel moves it when it comes the next time.
        assert_eq!(interrupts::cpus_of(irq).unwrap().as_slice(), [cpu]);
    }
    fs::write(&file, before.trim()).unwrap();
}

#[test]
fn the_live_view_counts_each_queue_as_its_driver_does() {
    let Some(cable) = Cable::find() else { return };
    let output = cable.lab.path("samples");
    let mut command = netrig();
    command.args(["top", &cable.card, "--json", "--interval", "1s", "--count", "1000"]);
    let mut view = command.stdout(fs::File::create(&output).unwrap()).spawn().unwrap();
    let samples = || -> Vec<Value> {
        let text = fs::read_to_string(&output).unwrap();
        text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
    };
    let next = |after: usize| until(super::TIMEOUT, || (samples().len() > after).then_some(())).unwrap();
    next(0);
    let (flows, to) = cable.flows(64);
    let before = cable.received();
    send(&flows, &to, 4);
    let counted = before
        .zip(cable.received())
        .map(|(before, now)| now.iter().zip(before).map(|(now, before)| now - before).collect::<Vec<u64>>());
    // The next one may have been read before the last of them.
    next(samples().len() + 1);
    view.kill().unwrap();
    view.wait().unwrap();
    let mut seen = vec![0.0; cable.queues()];
    let mut cpus = vec![-1; cable.queues()];
    for sample in samples() {
        let seconds = sample["seconds"].as_f64().unwrap();
        let interface = &sample["interfaces"][0];
        assert_eq!(interface["counted_by"], "programs");
        for (queue, entry) in interface["entries"].as_array().unwrap().iter().take(seen.len()).enumerate() {
            seen[queue] += entry["packets_per_s"].as_f64().unwrap() * seconds;
            cpus[queue] = entry["receive_processor"].as_i64().unwrap();
        }
    }
    // Queues are read a while after the sample's own time, so that their interval is not exactly the sample's.
    let alike = |(seen, counted): (&f64, &u64)| (seen - *counted as f64).abs() < 1.0 + *counted as f64 / 20.0;
    if let Some(counted) = counted {
        assert!(seen.iter().zip(&counted).all(alike), "{seen:?} {counted:?}");
    }
    assert!(seen.iter().all(|packets| *packets > 0.0), "{seen:?}");
    let napis = napi::of(cable.here(), &cable.card).unwrap();
    for (napi, cpu) in napis.iter().zip(cpus) {
        let expected = interrupts::cpus_of(napi.irq.unwrap()).unwrap();
        assert!(expected.as_slice().iter().any(|&expected| i64::from(expected) == cpu), "{napi:?} is polled by {cpu}");
    }
}

#[test]
fn offloads_are_read_and_switched_as_ethtool_has_them() {
    let Some(cable) = Cable::find() else { return };
    let names = [
        (Offload::Tso, "tcp-segmentation-offload"),
        (Offload::Gso, "generic-segmentation-offload"),
        (Offload::Gro, "generic-receive-offload"),
        (Offload::Checksum, "tx-checksumming"),
    ];
    let told = |name: &str| {
        let text = run(cable.here(), &["ethtool", "-k", &cable.card]);
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": ").map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).starts_with("on")
    };
    for (offload, name) in names {
        let before = ethtool::get(cable.here(), &cable.card, offload).unwrap();
        assert_eq!(before, told(name), "{name}");
        for on in [!before, before] {
            ethtool::set(cable.here(), &cable.card, offload, on).unwrap();
            assert_eq!([ethtool::get(cable.here(), &cable.card, offload).unwrap(), told(name)], [on; 2], "{name}");
        }
    }
    // Segmentation needs checksums, which were away for a moment.
    ethtool::set(cable.here(), &cable.card, Offload::Tso, true).unwrap();
    assert_eq!(ethtool::takes_tags_off(&cable.card).unwrap(), told("rx-vlan-offload"));
}
