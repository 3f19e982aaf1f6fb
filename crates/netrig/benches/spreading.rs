//! What the receive spreader keeps of its promises on this machine's CPUs: order over moves, time to full rate, CPU time and
//! latency at low load, throughput at full load, beside what the kernel does by itself, irqbalance, and plain RPS. And what
//! the simulator has of larger machines: CPUs beside the fewest that would do and beside RSS++, throughput at full load.
//!
//! `cargo xtask bench spreading [TRIALS [SECONDS]]`, as root; `cargo xtask bench spreading simulated` has the simulator's rows
//! alone, and needs no privilege. Everything happens in namespaces of its own, over a veth pair whose sender
//! segments itself, as packets come from a wire.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints")]

use std::collections::BTreeMap;
use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netrig_spread::actuator::Kind;
use netrig_spread::message::Status;
use rig_datapath::cputime::{CpuTime, Times};
use rig_spread::Mode;
use rig_spread::simulate::{self, Row, Rule, Scenario, scenarios};
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::{die_with_parent, in_namespace};
use serde_json::{Value, json};

#[path = "../tests/integration/stdio.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "a benchmark ends where something fails, and asks less than tests do")]
mod stdio;

use self::stdio::Conversation;

const QUEUES: u32 = 8;
const FLOWS: usize = 8;
/// Of all flows together, bytes per second: a tenth of what a CPU does here, or less.
const LOW: u64 = 60_000_000;
const NAME: &str = "in0";
const SENDER: [u8; 4] = [10, 9, 0, 1];
const RECEIVER: [u8; 4] = [10, 9, 0, 2];

struct Lab {
    sender: NetNs,
    receiver: NetNs,
}

impl Lab {
    fn new() -> Result<Self> {
        let lab = Self { sender: NetNs::create()?, receiver: NetNs::create()? };
        let mut netlink = Netlink::open(&lab.sender)?;
        netlink.add_veth(&VethPair { name: NAME, peer: NAME, peer_ns: &lab.receiver, queues: QUEUES, mtu: 1500 })?;
        for (ns, address) in [(&lab.sender, SENDER), (&lab.receiver, RECEIVER)] {
            let mut netlink = Netlink::open(ns)?;
            netlink.add_address(NAME, address.into(), 24)?;
            netlink.set_up(NAME)?;
        }
        for offload in [Offload::Tso, Offload::Gso] {
            ethtool::set(&lab.sender, NAME, offload, false)?;
        }
        Ok(lab)
    }
}

/// What decides where packets are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Arm {
    /// The kernel by itself.
    Kernel,
    Irqbalance,
    /// RPS over all CPUs.
    Rps,
    /// The kernel by itself with receive offload, which merges segments: what polling in place is.
    Gro,
    StaticVrss,
    Dynamic,
}

impl Arm {
    const ALL: [Self; 6] = [Self::Kernel, Self::Irqbalance, Self::Rps, Self::Gro, Self::StaticVrss, Self::Dynamic];

    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Irqbalance => "irqbalance",
            Self::Rps => "RPS, all CPUs",
            Self::Gro => "kernel, GRO",
            Self::StaticVrss => "static-vrss",
            Self::Dynamic => "dynamic",
        }
    }
}

/// In force as long as it lives.
struct ActiveSetup<'a> {
    lab: &'a Lab,
    spreader: Option<Spreader>,
    irqbalance: Option<Child>,
    masked: bool,
}

impl<'a> ActiveSetup<'a> {
    fn new(lab: &'a Lab, arm: Arm) -> Result<Self> {
        let mut new = Self { lab, spreader: None, irqbalance: None, masked: false };
        match arm {
            Arm::Kernel => {}
            Arm::Irqbalance => {
                let mut command = Command::new("irqbalance");
                command.args(["--foreground", "--interval", "1"]).stdout(Stdio::null()).stderr(Stdio::null());
                new.irqbalance = Some(command.spawn().context("start irqbalance")?);
            }
            Arm::Rps => {
                ethtool::set(&lab.receiver, NAME, Offload::Gro, true)?;
                new.mask(&CpuSet::online()?)?;
                new.masked = true;
            }
            Arm::Gro => {
                ethtool::set(&lab.receiver, NAME, Offload::Gro, true)?;
                new.masked = true;
            }
            Arm::StaticVrss => new.spreader = Some(spread(lab, Mode::StaticVrss)?),
            Arm::Dynamic => new.spreader = Some(spread(lab, Mode::Dynamic)?),
        }
        Ok(new)
    }

    fn mask(&self, cpus: &CpuSet) -> Result<()> {
        let sysfs = self.lab.receiver.sysfs()?;
        for queue in 0..QUEUES {
            sysfs.write(NAME, &format!("queues/rx-{queue}/rps_cpus"), &cpus.mask())?;
        }
        Ok(())
    }
}

impl Drop for ActiveSetup<'_> {
    fn drop(&mut self) {
        if let Some(irqbalance) = &mut self.irqbalance {
            let _gone = irqbalance.kill();
            let _gone = irqbalance.wait();
        }
        if self.masked {
            let _gone = self.mask(&CpuSet::default());
            let _gone = ethtool::set(&self.lab.receiver, NAME, Offload::Gro, false);
        }
    }
}

fn spread(lab: &Lab, mode: Mode) -> Result<Spreader> {
    spread_by(lab, Kind::Napi, mode)
}

fn spread_by(lab: &Lab, kind: Kind, mode: Mode) -> Result<Spreader> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.args(["spread", "run", "--on-stdio"]);
    let command = in_namespace(die_with_parent(&mut command), &lab.receiver);
    let mut conversation = Conversation::begin(command, "netrig-spread");
    let (actuator, mode) = (kind.to_string(), mode.name());
    conversation.starts(&format!("[[interface]]\nname = \"{NAME}\"\nactuator = \"{actuator}\"\nmode = \"{mode}\"\n"));
    Ok(Spreader(Some(conversation)))
}

/// `netrig spread run`, until it is dropped.
struct Spreader(Option<Conversation>);

impl Spreader {
    fn ask(&mut self, request: &Value) -> Result<Value> {
        let spreader = self.0.as_mut().context("it has ended")?;
        let mut answer = spreader.asks(&json!({ "ask": request })).map_err(|why| anyhow::anyhow!("{why}"))?;
        Ok(answer["answer"].take())
    }

    fn status(&mut self) -> Result<Status> {
        Ok(serde_json::from_value(self.ask(&json!("Status"))?["Status"].take())?)
    }
}

impl Drop for Spreader {
    fn drop(&mut self) {
        self.0.take().map(Conversation::ends);
    }
}

/// Bytes per second of all flows together; none: as much as goes.
type Rate = Option<u64>;

/// Streams from one end to the other until it is dropped.
struct Streams {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Streams {
    fn begin(lab: &Lab, rate: Rate) -> Result<Self> {
        let listener = lab.receiver.run(|| TcpListener::bind((std::net::Ipv4Addr::from(RECEIVER), 0)))??;
        let at = listener.local_addr()?;
        let (stop, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut threads = Vec::new();
        for _ in 0..FLOWS {
            let mut to = lab.sender.run(|| TcpStream::connect(at))??;
            let (mut from, _) = listener.accept()?;
            let stopped = stop.clone();
            threads.push(thread::spawn(move || {
                // Small pieces at low rate, so that packets come as a stream does and not in bursts.
                let chunk = vec![0; if rate.is_some() { 1448 * 4 } else { 64 << 10 }];
                let each = rate.map(|rate| Duration::from_secs_f64(chunk.len() as f64 * FLOWS as f64 / rate as f64));
                let mut next = Instant::now();
                while !stopped.load(Ordering::Relaxed) && to.write_all(&chunk).is_ok() {
                    if let Some(each) = each {
                        next += each;
                        thread::sleep(next.saturating_duration_since(Instant::now()));
                    }
                }
            }));
            let count = received.clone();
            threads.push(thread::spawn(move || {
                let mut buffer = vec![0; 256 << 10];
                while let Ok(read @ 1..) = from.read(&mut buffer) {
                    count.fetch_add(read as u64, Ordering::Relaxed);
                }
            }));
        }
        Ok(Self { stop, received, threads })
    }

    fn bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

/// One of a thousand a second: how long they take to the other end and back, microseconds.
fn pings(lab: &Lab, time: Duration) -> Result<Vec<f64>> {
    let echo = lab.receiver.run(|| UdpSocket::bind((std::net::Ipv4Addr::from(RECEIVER), 0)))??;
    let to = echo.local_addr()?;
    let asker = lab.sender.run(|| UdpSocket::bind((std::net::Ipv4Addr::from(SENDER), 0)))??;
    asker.connect(to)?;
    asker.set_read_timeout(Some(Duration::from_millis(500)))?;
    echo.set_read_timeout(Some(Duration::from_millis(500)))?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut datagram = [0; 64];
            while !done.load(Ordering::Relaxed) {
                if let Ok((length, from)) = echo.recv_from(&mut datagram) {
                    let _gone = echo.send_to(&datagram[..length], from);
                }
            }
        });
        let mut found = Vec::new();
        let begun = Instant::now();
        let mut next = begun;
        while begun.elapsed() < time {
            let sent = Instant::now();
            asker.send(&[0; 32])?;
            if asker.recv(&mut [0; 64]).is_ok() {
                found.push(sent.elapsed().as_secs_f64() * 1e6);
            }
            next += Duration::from_millis(1);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        done.store(true, Ordering::Relaxed);
        Ok(found)
    })
}

/// CPU seconds that all CPUs were busy so far, by switches of tasks and interrupts: the kernel's own times, which it
/// samples at ticks, are off by a multiple at low load.
fn busy(time: &CpuTime) -> Result<f64> {
    Ok(time.read()?.0.values().map(Times::busy).sum::<u64>() as f64 / 1e9)
}

/// What an arm did in a trial.
struct Trial {
    /// CPU seconds per GB at low load.
    cost: f64,
    p99: f64,
    /// Gbit/s.
    full: f64,
    /// To 95 % of full rate from idle, ms.
    t95: f64,
}

fn trial(lab: &Lab, arm: Arm, clock: &CpuTime, time: Duration) -> Result<(Trial, Option<Status>)> {
    let mut in_force = ActiveSetup::new(lab, arm)?;
    // Idle for long enough to be parked.
    thread::sleep(Duration::from_millis(1500));
    let streams = Streams::begin(lab, Some(LOW))?;
    // Until it has coalesced, where it does.
    thread::sleep(Duration::from_secs(4));
    let (bytes, cpu) = (streams.bytes(), busy(clock)?);
    let mut pings = pings(lab, time)?;
    let (bytes, cpu) = (streams.bytes() - bytes, busy(clock)? - cpu);
    drop(streams);
    ensure!(!pings.is_empty(), "no answer came back");
    pings.sort_by(f64::total_cmp);
    let p99 = pings[(pings.len() * 99 / 100).min(pings.len() - 1)];
    thread::sleep(Duration::from_millis(2500));
    let (full, t95) = burst(lab, time)?;
    let status = in_force.spreader.as_mut().map(Spreader::status).transpose()?;
    Ok((Trial { cost: cpu / (bytes as f64 / 1e9), p99, full, t95 }, status))
}

/// Gbit/s of the last half, and how long it took to 95 % of it, ms.
fn burst(lab: &Lab, time: Duration) -> Result<(f64, f64)> {
    const BIN: Duration = Duration::from_millis(10);
    let begun = Instant::now();
    let streams = Streams::begin(lab, None)?;
    let mut bins = vec![(Duration::ZERO, 0)];
    while begun.elapsed() < time {
        thread::sleep(BIN);
        bins.push((begun.elapsed(), streams.bytes()));
    }
    ensure!(bins.len() > 8, "this machine is too busy to look every {BIN:?}");
    let rate = |from: (Duration, u64), to: (Duration, u64)| (to.1 - from.1) as f64 / (to.0 - from.0).as_secs_f64();
    let last = bins[bins.len() - 1];
    let full = rate(bins[bins.len() / 2], last);
    // Over three bins: one is less than what a receiver takes at once.
    let reached = bins.windows(4).find(|bins| rate(bins[0], bins[3]) >= 0.95 * full);
    let reached = reached.map_or(time, |bins| bins[3].0);
    Ok((full * 8.0 / 1e9, reached.as_secs_f64() * 1e3))
}

/// Rows of the simulator: CPUs of all scenarios, and throughput of machines of 8 to 64 CPUs.
fn simulated() {
    let all = simulate::all(40);
    let report = simulate::report(&all, &[Rule::Dynamic, Rule::RssPlusPlus], false);
    let mean = |rule: Rule| report.means.iter().find(|mean| mean.rule == rule).map_or(f64::NAN, |mean| mean.ratio);
    println!(
        "\nsimulated, 40 CPUs: CPUs to the fewest that would do: {:.2} (target 1.15), RSS++ {:.2}",
        mean(Rule::Dynamic),
        mean(Rule::RssPlusPlus)
    );
    println!("{:<6} {:>8} {:>8} {:>9} {:>9}  target: no more than RSS++", "", "dynamic", "RSS++", "carried", "RSS++");
    let of = |name: &str, rule: Rule| report.rows.iter().find(|row| row.scenario == name && row.rule == rule);
    let mut more = Vec::new();
    for scenario in &all {
        let pair = (of(&scenario.name, Rule::Dynamic), of(&scenario.name, Rule::RssPlusPlus));
        let (Some(ours), Some(theirs)) = pair else { continue };
        // Where less is carried, fewer CPUs are no merit: what is compared then are CPUs for what is carried.
        let fair = |row: &Row| row.cpus / row.carried.max(0.01);
        let verdict = if ours.cpus <= theirs.cpus + 0.005 {
            "met"
        } else if fair(ours) <= fair(theirs) * 1.01 {
            more.push(scenario.name.as_str());
            "more, for more that is carried"
        } else {
            more.push(scenario.name.as_str());
            "MORE"
        };
        println!(
            "{:<6} {:>8.2} {:>8.2} {:>8.1}% {:>8.1}%  {verdict}",
            scenario.name,
            ours.cpus,
            theirs.cpus,
            ours.carried * 100.0,
            theirs.carried * 100.0
        );
    }
    println!("more CPUs than RSS++ in {} of {}: {}", more.len(), all.len(), more.join(", "));
    println!("\nsimulated, full load from idle, costs of the guide: dynamic to static-vrss (target 1.4)");
    for cpus in [8, 16, 32, 64] {
        let scenario = Scenario::new("full", "full load", cpus)
            .then(0.0, Duration::from_secs(2))
            .then(scenarios::FULL, Duration::from_secs(20));
        let bits = |rule| simulate::run(&scenario, rule).phases.last().map_or(f64::NAN, |phase| phase.bits);
        let (dynamic, fixed) = (bits(Rule::Dynamic), bits(Rule::StaticVrss));
        println!("{cpus:>3} CPUs {:>6.2} ({:.1} to {:.1} Gbit/s)", dynamic / fixed, dynamic / 1e9, fixed / 1e9);
    }
}

/// Datagrams of 16 flows under moves: how many came, how many behind a later one, and moves a minute.
fn order(lab: &Lab, kind: Kind, time: Duration) -> Result<(u64, u64, f64)> {
    let mut spreader = spread_by(lab, kind, Mode::StaticVmq)?;
    let to = lab.receiver.run(|| UdpSocket::bind((std::net::Ipv4Addr::from(RECEIVER), 0)))??;
    to.set_read_timeout(Some(Duration::from_millis(100)))?;
    let at = to.local_addr()?;
    let mut flows = Vec::new();
    for _ in 0..16 {
        let from = lab.sender.run(|| UdpSocket::bind((std::net::Ipv4Addr::from(SENDER), 0)))??;
        from.connect(at)?;
        flows.push(from);
    }
    let done = AtomicBool::new(false);
    let begun = Instant::now();
    let (received, reordered) = thread::scope(|scope| -> Result<(u64, u64)> {
        scope.spawn(|| {
            for sequence in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                for flow in &flows {
                    let _full = flow.send(&sequence.to_be_bytes());
                }
                // Some 60,000 datagrams a second.
                thread::sleep(Duration::from_micros(200));
            }
        });
        let receive = scope.spawn(|| {
            let mut last: BTreeMap<SocketAddr, u64> = BTreeMap::new();
            let (mut received, mut reordered) = (0, 0);
            let mut datagram = [0; 8];
            while !done.load(Ordering::Relaxed) {
                let Ok((8, from)) = to.recv_from(&mut datagram) else { continue };
                let sequence = u64::from_be_bytes(datagram);
                let highest = last.entry(from).or_default();
                reordered += u64::from(sequence < *highest);
                *highest = sequence.max(*highest);
                received += 1;
            }
            (received, reordered)
        });
        let mut base = 0;
        while begun.elapsed() < time {
            base = 1 - base;
            spreader.ask(&json!({ "Set": { "interface": NAME, "changes": { "base": base } } }))?;
            thread::sleep(Duration::from_millis(40));
        }
        done.store(true, Ordering::Relaxed);
        receive.join().map_err(|_| anyhow::anyhow!("the receiver has failed"))
    })?;
    let status = spreader.status()?;
    let moves: u64 = status.interfaces[0].moves.total.values().sum();
    Ok((received, reordered, moves as f64 / begun.elapsed().as_secs_f64() * 60.0))
}

/// From all on one CPU to full rate, ms; and moves a minute while the load is the same.
fn coalesced(lab: &Lab, time: Duration) -> Result<(f64, f64, Status)> {
    let mut spreader = spread(lab, Mode::Dynamic)?;
    let streams = Streams::begin(lab, Some(LOW))?;
    thread::sleep(Duration::from_secs(5));
    let moves = |status: &Status| status.interfaces[0].moves.total.values().sum::<u64>();
    let before = spreader.status()?;
    thread::sleep(time * 3);
    let after = spreader.status()?;
    let late = (moves(&after) - moves(&before)) as f64 / (time * 3).as_secs_f64() * 60.0;
    let (_, t95) = burst(lab, time)?;
    drop(streams);
    Ok((t95, late, spreader.status()?))
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[odd / 2],
        even => (values[even / 2 - 1] + values[even / 2]) / 2.0,
    }
}

fn main() -> Result<()> {
    if env::args().any(|argument| argument == "simulated") {
        simulated();
        return Ok(());
    }
    let numbers: Vec<f64> = env::args().filter_map(|argument| argument.parse().ok()).collect();
    let trials = numbers.first().map_or(5, |&trials| trials as usize);
    let time = Duration::from_secs_f64(numbers.get(1).copied().unwrap_or(3.0));
    ensure!(CpuSet::online()?.len() >= 2, "what is spread needs two CPUs");
    let lab = Lab::new().context("make namespaces (this takes root)")?;
    let clock = CpuTime::attach().context("count CPU time")?;
    let has_irqbalance = Command::new("irqbalance").arg("--version").output().is_ok();
    if !has_irqbalance {
        println!("irqbalance is not on PATH: without it");
    }
    let arms = Arm::ALL.into_iter().filter(|arm| *arm != Arm::Irqbalance || has_irqbalance);
    let arms: Vec<Arm> = arms.collect();

    for kind in [Kind::Napi, Kind::Cpumap] {
        let (received, reordered, per_minute) = order(&lab, kind, time)?;
        println!(
            "order, {kind}: {received} datagrams under {per_minute:.0} moves a minute, {reordered} reordered (target 0 of >= 1000)"
        );
    }

    let mut all: BTreeMap<Arm, Vec<Trial>> = BTreeMap::new();
    let mut share = Vec::new();
    for round in 0..trials {
        for at in 0..arms.len() {
            // Each has each place in a round as often.
            let arm = arms[(at + round) % arms.len()];
            let (trial, status) = trial(&lab, arm, &clock, time)
                .or_else(|_| trial(&lab, arm, &clock, time))
                .with_context(|| format!("{}, round {}", arm.name(), round + 1))?;
            eprintln!(
                "round {}, {}: {:.3} CPU s/GB, {:.0} us, {:.2} Gbit/s, {:.0} ms",
                round + 1,
                arm.name(),
                trial.cost,
                trial.p99,
                trial.full,
                trial.t95
            );
            all.entry(arm).or_default().push(trial);
            share.extend(
                status
                    .filter(|_| arm == Arm::Dynamic)
                    .map(|status| status.own.cpu_ns as f64 / (status.uptime_ms as f64 * 1e6)),
            );
        }
    }
    println!("\n{:<14} {:>10} {:>8} {:>9} {:>9}", "medians", "CPU s/GB", "p99 us", "Gbit/s", "t95 ms");
    let of = |arm: Arm, value: fn(&Trial) -> f64| median(all[&arm].iter().map(value));
    for &arm in &arms {
        println!(
            "{:<14} {:>10.3} {:>8.0} {:>9.2} {:>9.0}",
            arm.name(),
            of(arm, |trial| trial.cost),
            of(arm, |trial| trial.p99),
            of(arm, |trial| trial.full),
            of(arm, |trial| trial.t95)
        );
    }
    let paired = |over: Arm, value: fn(&Trial) -> f64| {
        median(all[&Arm::Dynamic].iter().zip(&all[&over]).map(|(dynamic, other)| value(dynamic) / value(other)))
    };
    println!("\ndynamic to     {:>10} {:>8} {:>9}", "CPU s/GB", "p99 us", "Gbit/s");
    for &arm in arms.iter().filter(|arm| **arm != Arm::Dynamic) {
        println!(
            "{:<14} {:>10.3} {:>8.3} {:>9.3}",
            arm.name(),
            paired(arm, |trial| trial.cost),
            paired(arm, |trial| trial.p99),
            paired(arm, |trial| trial.full)
        );
    }
    println!("(targets, to static-vrss: CPU <= 0.85, p99 <= 1.1, Gbit/s >= 1.0; to the others never worse)");

    let mut from_coalesced = Vec::new();
    let mut late = Vec::new();
    for _ in 0..trials {
        let (t95, moves, _) = coalesced(&lab, time)?;
        from_coalesced.push(t95);
        late.push(moves);
    }
    println!("\nfrom coalesced to 95 % of full rate: {:.0} ms (target 300)", median(from_coalesced));
    println!("moves at constant load: {:.1} a minute (target 0)", median(late));
    println!("the spreader itself: {:.2} % of a CPU (target 0.5)", median(share) * 100.0);
    simulated();
    Ok(())
}
