//! A check between three guests on one segment: dperf's client, the balancer with the kernel that is tried, dperf's server.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::checks::{Check, Outcome};
use super::guest::{Card, Ended, Guest, GuestRecord};
use super::image::Kernel;
use super::machine::Machine;
use super::pair::{LIMIT, partner};
use super::segment::{Segment, Tap};
use super::{dperf, empty};

pub const NAME: &str = "three dperf";
pub const ABOUT: &str = "dperf's client and server on two other machines count the same, and so does `netrig lb run` in this kernel's driver between them";

/// A balancer's program in the driver of virtio_net wants a queue for each CPU beside those of the network stack.
const TAPS: [Tap; 3] =
    [Tap { name: "tap0", queues: 1 }, Tap { name: "tap1", queues: 4 }, Tap { name: "tap2", queues: 1 }];
/// The balancer has one card, by which packets come and leave.
const PREPARE: &str =
    "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0
ip address add 10.99.0.3/24 dev eth0 && ip link set eth0 up
ip route add 10.99.1.0/24 via 10.99.0.1 && ip route add 10.99.2.0/24 via 10.99.0.2
";
const SETTINGS: &str = "devices = [\"eth0\"]
connections = 16384
[[service]]
listen = \"tcp 10.10.0.1:80\"
local = \"10.10.0.2\"
backend = [{ address = \"10.99.2.1:80\" }, { address = \"10.99.2.2:80\" }]
";

/// Boots the three, runs the check and ends them.
pub fn run(kernel: &Kernel, directory: &Path, netrig: &Path, check: &Check, ended: Ended<'_>) -> Result<GuestRecord> {
    let begin = Instant::now();
    let partner = partner(kernel)?;
    let segment = Segment::new(&TAPS)?;
    let mut machines = Vec::new();
    for ((name, kernel), tap) in
        [("client", &partner), ("balancer", kernel), ("server", &partner)].into_iter().zip(TAPS)
    {
        let directory = directory.join(name);
        empty(&directory)?;
        let cards = vec![Card::Plugged { segment: &segment, tap }];
        let guest =
            Guest { kernel, directory: &directory, cpus: 2, memory_mib: 1500, cards, objects: None, clock: None };
        machines.push(Machine::boot(&guest)?);
    }
    let mut machines = <[Machine; 3]>::try_from(machines).map_err(|_| anyhow!("three machines"))?;
    let outcome = Outcome::from(balanced(&mut machines, &netrig.display().to_string()));
    ended(check, &outcome, begin.elapsed())?;
    let mut record = GuestRecord::new(kernel);
    record.outcomes.push((check.clone(), outcome, begin.elapsed()));
    for mut machine in machines {
        let _ = machine.end_all();
        record.end(machine)?;
    }
    record.duration = begin.elapsed();
    Ok(record)
}

fn balanced([client, balancer, server]: &mut [Machine; 3], netrig: &str) -> Result<String> {
    for machine in [&mut *client, &mut *balancer, &mut *server] {
        machine.wait_until_ready()?;
    }
    balancer.run(PREPARE, LIMIT)?;
    let settings = SETTINGS.replace('\n', "\\n");
    let run = format!("cd /run/checks; printf '{settings}' > lb.toml; exec {netrig} lb run lb.toml");
    let balancing = balancer.start(&run)?;
    balancer.wait_for(balancing, "\nready", LIMIT)?;
    let link = balancer.run("ip link show eth0", LIMIT)?;
    if !link.split_whitespace().any(|word| word == "xdp") {
        bail!("its program is not in the driver: {link}{}", balancer.log(balancing));
    }
    for machine in [&mut *client, &mut *server] {
        machine.run("ip link set eth0 up", LIMIT)?;
    }
    let flows = "client 10.10.0.2 1\nserver 10.99.2.1 2\n";
    let serving = dperf::start_server(server, netrig, &dperf::server("10.99.0.2 10.99.0.3", flows))?;
    let flows = "client 10.99.1.1 10\nserver 10.10.0.1 1\n";
    let asked = client.run(&dperf::command(netrig, &dperf::client("10.99.0.1 10.99.0.3", flows)), LIMIT);
    let asked = asked.with_context(|| format!("the balancer: {}", balancer.log(balancing)))?;
    thread::sleep(Duration::from_secs(1));
    let listing = balancer.run(&format!("{netrig} lb -L -n --json"), LIMIT)?;
    let served = server.end(serving)?;
    balancer.end(balancing)?;
    let connections = dperf::connections(&asked, &served.text)?;
    let listing: Value = serde_json::from_str(&listing).with_context(|| format!("no listing: {listing}"))?;
    let counted = &listing["services"][0]["counters"]["connections"];
    if *counted != connections {
        bail!("the balancer has counted {counted} of {connections} connections");
    }
    Ok(format!("{connections} connections, by Linux {} and {}", client.release(), balancer.release()))
}
