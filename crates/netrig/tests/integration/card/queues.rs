//! Queues, interrupts and offloads of a card, as netrig has them and as the kernel's own files and ethtool(8) do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;

use rig_datapath::napi;
use rig_skip::{Lack, skip};
use rig_sys::ethtool::{self, Flow, Offload};
use rig_sys::interrupts;
use rig_sys::piped::PipedProcess;
use rig_testbed::host::{Host, Program, Remote};
use rig_testbed::plan::{Interface, Link, NamespacePlan, Node, Plan};
use rig_testbed::receive_queues::{HashedBy, ReceiveQueues};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Cable, FAR_ADDRESS, run, send};
use crate::spread::lab::ADDRESS;
use crate::world::{NETRIG, netrig, processes, until};

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

/// What decides where the card receives.
#[derive(Debug, PartialEq)]
struct Receiving {
    queues: String,
    /// Table, key and function.
    hash: String,
    interrupts: BTreeMap<String, String>,
}

impl Receiving {
    fn of(cable: &Cable) -> Self {
        let told = |option: &str| run(cable.here(), &["ethtool", option, &cable.card]);
        let interrupts = interrupts::affinities(cable.here(), &cable.card);
        Self { queues: told("-l"), hash: told("-x"), interrupts }
    }
}

/// A host, here, whose node has the card, of which all that decides where it receives is another one then: it has so many queues, of which the
/// last gets all.
fn host_that_changes_all(cable: &Cable, queues: usize) -> Remote {
    let zeros = vec!["0"; queues - 1].join(" ");
    let mut host = Remote::start("here", &mut cable.netrig(false, &["host"])).unwrap();
    let interface = Interface::new("eth9", Link::OfHost { name: cable.card.clone(), shared: false });
    let space = NamespacePlan { name: "a".into(), interfaces: vec![interface], ..NamespacePlan::default() };
    let node = Node { name: "a".into(), spaces: vec![space], ..Node::default() };
    host.apply(&Plan { nodes: vec![node], wires: Vec::new() }).unwrap();
    let key = ["a5"; 40].join(":");
    for line in [
        // The kernel refuses fewer queues than a table that was set leads to.
        "ethtool -X eth9 default".to_owned(),
        format!("ethtool -L eth9 combined {queues}"),
        format!("ethtool -X eth9 hkey {key}"),
        format!("ethtool -X eth9 weight {zeros} 1"),
        "for i in /sys/class/net/eth9/device/../msi_irqs/*; do echo 0 >/proc/irq/${i##*/}/smp_affinity_list; done; true".to_owned(),
    ] {
        let script = format!("PATH=$PATH:/usr/sbin:/sbin; mount -t sysfs none /sys; {line}");
        let PipedProcess { stdin: _, stderr, mut life, .. } = host.start("a", &Program::at("unshare", &["-m", "sh", "-c", &script])).unwrap();
        let mut said = String::new();
        let status = life.wait().unwrap();
        fs::File::from(stderr).read_to_string(&mut said).unwrap();
        assert!(status.success(), "{line}: {said}");
    }
    host
}

#[test]
fn what_decides_where_a_card_receives_is_given_back_with_it() {
    let Some(cable) = Cable::with_table() else { return };
    let all = cable.queues();
    let key = ethtool::hash_settings(&cable.card).unwrap().key;
    let other_key: Vec<u8> = key.iter().map(|byte| byte ^ 0x5a).collect();
    run(cable.here(), &["ethtool", "-X", &cable.card, "default"]);
    let of_driver = Receiving::of(&cable);
    // As one has set it, and as the driver has it.
    for is_set in [true, false] {
        if is_set {
            run(cable.here(), &["ethtool", "-L", &cable.card, "combined", &(all - 1).to_string()]);
            run(cable.here(), &["ethtool", "-X", &cable.card, "equal", &(all - 2).to_string()]);
            ethtool::set_hash_key(&cable.card, &other_key).unwrap();
            for (number, name) in interrupts::affinities(cable.here(), &cable.card).into_keys().enumerate() {
                interrupts::set_affinity(cable.here(), &cable.card, &name, &(number % all).to_string()).unwrap();
            }
        }
        let before = Receiving::of(&cable);
        let written: String = other_key.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
        assert_eq!(before.hash.contains(&written), is_set, "{before:?}");
        assert!(before.interrupts.len() >= all, "{before:?}");
        // More than there were, and fewer.
        let queues = if is_set { all } else { 2 };

        let mut host = host_that_changes_all(&cable, queues);
        host.tear_down().unwrap();
        assert_eq!(Receiving::of(&cable), before, "torn down");
        drop(host);

        let host = host_that_changes_all(&cable, queues);
        let own = format!("{NETRIG} host");
        let pid = processes().into_iter().find(|process| process.command == own).unwrap().pid;
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
        drop(host);
        let next = cable.netrig(false, &["host"]).output().unwrap();
        let said = String::from_utf8_lossy(&next.stderr);
        let told = said.contains("given back what a killed netrig left")
            && said.contains("RSS table")
            && said.contains("RSS key");
        assert!(told && next.status.success(), "{said}");
        assert_eq!(Receiving::of(&cable), before, "killed: {said}");
        if is_set {
            run(cable.here(), &["ethtool", "-X", &cable.card, "default"]);
            run(cable.here(), &["ethtool", "-L", &cable.card, "combined", &all.to_string()]);
            // virtio_net does not make the table anew for another number of queues.
            run(cable.here(), &["ethtool", "-X", &cable.card, "default"]);
            ethtool::set_hash_key(&cable.card, &key).unwrap();
            for (name, cpus) in &of_driver.interrupts {
                interrupts::set_affinity(cable.here(), &cable.card, name, cpus).unwrap();
            }
            assert_eq!(Receiving::of(&cable), of_driver);
        }
    }
    // The kernel refuses fewer queues than a table that was set leads to.
    for queues in [1, all] {
        run(cable.here(), &["ethtool", "-L", &cable.card, "combined", &queues.to_string()]);
    }
}

#[test]
fn the_queue_of_flows_is_told_ahead_where_ports_are_not_hashed() {
    let Some(cable) = Cable::with_table() else { return };
    // Written first: until then a device may spread packets otherwise than its table says.
    run(cable.here(), &["ethtool", "-X", &cable.card, "equal", &cable.queues().to_string()]);
    let told = || ReceiveQueues::of(&ethtool::card(cable.here(), &cable.card).unwrap()).unwrap();
    let by_default = told().hashed_by(Flow::UdpV4);
    if by_default == HashedBy::Unknown {
        return skip(Lack::Card, format!("the driver of {} does not tell what it hashes", cable.card));
    }
    assert_eq!(by_default, HashedBy::AddressesAndPorts);
    let output = netrig().args(["doctor", "--json"]).output().unwrap();
    let doctor: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = doctor["findings"].as_array().unwrap();
    let found = findings.iter().find(|one| one["name"] == "receive queues").unwrap()["found"].as_str().unwrap();
    assert!(found.contains(&format!("{} receives by {} queues", cable.card, cable.queues())), "{found}");

    // virtio_net tells its device what to hash only while it takes the hash of each packet from it.
    let rxhash = |on| run(cable.here(), &["ethtool", "-K", &cable.card, "rxhash", on]);
    rxhash("on");
    run(cable.here(), &["ethtool", "-N", &cable.card, "rx-flow-hash", "udp4", "sd"]);
    let receive = told();
    assert_eq!(receive.hashed_by(Flow::UdpV4), HashedBy::Addresses);
    let queue = receive.by_addresses(FAR_ADDRESS.parse().unwrap(), ADDRESS.parse().unwrap()).unwrap();
    let irq = napi::of(cable.here(), &cable.card).unwrap()[queue as usize].irq.unwrap();
    let cpus = interrupts::cpus_of(irq).map(|cpus| cpus.to_string());
    assert_eq!(receive.cpus_of(queue).map(str::to_owned), cpus);
    let (flows, to) = cable.flows(16);
    let before = cable.received();
    send(&flows, &to, 4);
    if let Some((before, now)) = before.zip(cable.received()) {
        let came: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        assert_eq!((came[queue as usize], came.iter().sum()), (64, 64_u64), "{queue}: {came:?}");
    }
    run(cable.here(), &["ethtool", "-N", &cable.card, "rx-flow-hash", "udp4", "sdfn"]);
    rxhash("off");
    run(cable.here(), &["ethtool", "-X", &cable.card, "default"]);
}
