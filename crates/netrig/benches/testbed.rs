//! How long a testbed of two nodes takes to build and to vanish, for each path.
//!
//! *Up* lasts until the first connection between the endpoints stands. *Down* lasts from the moment that the testbed is
//! dropped until the kernel has removed its interfaces, watched from the receiver's node, whose namespace is kept for
//! that long. Then what it costs to read the counters of 1, 2 and 3 nodes once, as a sampler does over and over, and how long it
//! takes to ask an agent for its counters, by the runner's own host and by one that is another process. Run it with
//! `cargo xtask bench testbed [ROUNDS]`.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rig_stats::sample::Sample;
use rig_sys::clock::{monotonic_ns, own_cpu_ns};
use rig_sys::counters::NamespaceCounters;
use rig_sys::cpu::{CpuSet, shared_cores};
use rig_sys::netns::NetNs;
use rig_testbed::datapath::{self, Site};
use rig_testbed::host::{Host, Local, Remote};
use rig_testbed::topology::{Endpoint, Layout, Path, Topology};
use rig_testbed::{Placement, Testbed, partition_cpus};
use serde_json::json;

const ROUNDS: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(5);
const PORT: u16 = 5001;
/// Readings of a sampler, and how far apart: caches are as cold as between the readings of a trial.
const READINGS: usize = 200;
const APART: Duration = Duration::from_millis(10);

fn main() -> Result<()> {
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS);
    let cpus = partition_cpus(&CpuSet::allowed()?, &shared_cores(), 2)?;
    // What a path's datapath takes to begin is that datapath's.
    let paths = Path::plain().filter(|path| path.layout() != Layout::One && path.datapath().is_none());
    let mut results: Vec<(Path, Sample, Sample)> =
        paths.map(|path| (path, Sample::default(), Sample::default())).collect();
    for _ in 0..rounds {
        for (path, up, down) in &mut results {
            let (built, gone) = measure(*path, &cpus).with_context(|| format!("path {path}"))?;
            up.push(built.as_secs_f64() * 1e3);
            down.push(gone.as_secs_f64() * 1e3);
        }
    }
    println!("Medians of {rounds} interleaved rounds, milliseconds (worst in brackets); the target is 100 for each.");
    for (path, up, down) in &results {
        println!("{path:<8}  up {}  down {}", figures(up), figures(down));
    }
    readings()?;
    agents()
}

/// CPU time of a reading of all counters that are sampled. At an interval of a hundred times as much, reading takes 1 % of a
/// CPU.
fn readings() -> Result<()> {
    let mut host = Local::new()?;
    println!("\nOne reading of the sampler, microseconds of CPU time, median of {READINGS} (worst in brackets);");
    println!("CPU time is {}.", host.environment()?.cpu_time.unwrap_or_default());
    for nodes in 1..=3 {
        let sized = |path: Path| Topology::smallest(path).ok().filter(|(topology, _)| topology.nodes().len() == nodes);
        let (topology, _) = Path::all().find_map(sized).context("no path of so many nodes")?;
        let cpus = Placement::new(&CpuSet::allowed()?, &shared_cores(), nodes.min(2))?.of(&topology, None)?;
        let testbed = Testbed::build_on(&mut host, &topology, &cpus)?;
        testbed.host().start_sampling()?;
        let mut each = Sample::default();
        for _ in 0..READINGS {
            std::thread::sleep(APART);
            let begun = own_cpu_ns();
            testbed.host().sample()?;
            each.push((own_cpu_ns() - begun) as f64 / 1e3);
        }
        println!("{nodes} nodes ({})  {}", topology.path(), figures(&each));
    }
    Ok(())
}

fn figures(sample: &Sample) -> String {
    let show = |value: Option<f64>| value.unwrap_or(f64::NAN);
    format!("{:6.1} ({:6.1})", show(sample.median()), show(sample.max()))
}

fn measure(path: Path, cpus: &[CpuSet]) -> Result<(Duration, Duration)> {
    let (topology, ends) = Topology::smallest(path)?;

    let begun = Instant::now();
    let testbed = Testbed::build(&topology, cpus)?;
    let address = SocketAddr::from((topology.address(&ends[1]).context("no address")?, PORT));
    let place = |end: &Endpoint| testbed.endpoint(end).map(|(place, _)| place).context("no endpoint");
    let listener = place(&ends[1])?.ns.run(|| TcpListener::bind(address))??;
    let stream = place(&ends[0])?.ns.run(|| TcpStream::connect_timeout(&address, TIMEOUT))??;
    let up = begun.elapsed();
    drop((listener, stream));

    let node = testbed.namespaces(1).next().context("no second node")?;
    let kept = NetNs::open(format!("/proc/self/fd/{}", node.ns.raw_fd()))?;
    let counters = NamespaceCounters::open(&kept)?;
    let begun = Instant::now();
    drop(testbed);
    // The wire goes with its other end, whose namespace nothing holds any more.
    while counters.interfaces()?.contains_key(rig_testbed::UPLINK) {
        if begun.elapsed() > TIMEOUT {
            bail!("its interfaces do not vanish");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok((up, begun.elapsed()))
}

/// How long it takes to ask an agent for its counters, and how long after it was asked it has stamped its clock: what is behind the
/// stamp is no part of a window.
fn agents() -> Result<()> {
    println!("\nAn agent is asked for its counters, microseconds, median of {READINGS} (worst in brackets):");
    let netrig = std::path::Path::new(env!("CARGO_BIN_EXE_netrig"));
    let hosts: [Box<dyn Host>; 2] =
        [Box::new(Local::uncounted()?.with_program(netrig.to_owned())), Box::new(Remote::child(netrig)?)];
    for mut host in hosts {
        let name = host.name().to_owned();
        for (datapath_name, path, settings) in
            [("spin", "raw", json!({ "time_ns": 100 })), ("vrouter", "vrouter", json!({}))]
        {
            let (topology, _) = Topology::smallest(path.parse()?)?;
            let cpus = partition_cpus(&CpuSet::allowed()?, &shared_cores(), 2)?;
            let testbed = Testbed::build_on(host.as_mut(), &topology, &cpus)?;
            let site = Site::new(&testbed, 0, None)?;
            let kind = rig_datapaths::ALL.find(datapath_name).context("find a datapath")?;
            let mut agent =
                datapath::start(testbed.host(), kind, &site, &serde_json::from_value(settings)?)?.attached()?;
            let [mut stamped, mut answered, mut cost] = [(); 3].map(|()| Sample::default());
            for _ in 0..READINGS {
                thread::sleep(APART);
                let asked_ns = monotonic_ns();
                let reading = agent.counters()?;
                answered.push((monotonic_ns() - asked_ns) as f64 / 1e3);
                stamped.push(reading.at_ns.saturating_sub(asked_ns) as f64 / 1e3);
                cost.push(reading.cost_ns as f64 / 1e3);
            }
            let [stamped, answered, cost] = [stamped, answered, cost].map(|sample| figures(&sample));
            println!(
                "{:<8} on host {name:<6}  stamped after {stamped}  answered after {answered}  CPU time {cost}",
                kind.name()
            );
            agent.detach()?;
        }
    }
    Ok(())
}
