//! Checks between two guests with different kernels, whose cards are joined and whose clocks tell different times.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::checks::{Check, Outcome};
use super::dperf;
use super::guest::{Card, Ended, Guest, GuestRecord};
use super::image::Kernel;
use super::machine::{Machine, Task};
use super::{commands, empty, suite};

/// Something that is run between two guests: what it has found, in words.
#[derive(Debug)]
pub struct PairCheck {
    pub name: &'static str,
    pub about: &'static str,
    run: fn(&mut Pair) -> Result<String>,
}

pub const CHECKS: [PairCheck; 8] = [
    PairCheck {
        name: "pair tests",
        about: "`netrig stream`, `rr` and `udp` between this kernel and another one, in both directions",
        run: tests_in_both_directions,
    },
    PairCheck {
        name: "pair link down in a test",
        about: "the link is down for 10 s while `netrig stream` measures: it ends and says what was carried",
        run: link_down_while_measuring,
    },
    PairCheck {
        name: "pair link down at the start",
        about: "the link is down when a client connects: it ends and says why, and the server serves the next one",
        run: link_down_while_connecting,
    },
    PairCheck {
        name: "pair dperf",
        about: "dperf's client on this kernel and its server on the other one count the same",
        run: dperf,
    },
    PairCheck {
        name: "pair suite",
        about: "`netrig hosts check`, and `netrig run layers` with a node on each of two machines, one of them reached by ssh",
        run: suite::run,
    },
    PairCheck {
        name: "pair runner killed",
        about: "kill -9 of such a run while its load runs: the other machine is as before",
        run: suite::killed,
    },
    PairCheck {
        name: "pair commands",
        about: "the commands of docs/MACHINES.md, a suite over cards that are taken and `netrig run pairs` among them; what they print is written there",
        run: commands::run,
    },
    PairCheck {
        name: "pair cards given back",
        about: "kill -9 of the runner, and of the other machine's host, while a node has a virtio-net card: it is as before",
        run: commands::killed,
    },
];

/// Years from what the other guest's clock says.
const OTHER_CLOCK: &str = "2030-02-03T04:05:06";
/// Of a command that takes seconds; emulation beside a build is slow.
pub const LIMIT: Duration = Duration::from_secs(180);
/// Of both ends, for guests that are there for a minute.
const KEY: &str = "bmV0cmlnIG9mIHR3byBtYWNoaW5lcywgYm90aCBvZiB0aGVt\n";
/// Between the starts of the guests.
const APART: Duration = Duration::from_secs(4);
/// What their clocks may go apart during the tests.
const DRIFT: Duration = Duration::from_millis(100);
const LINK_DOWN: Duration = Duration::from_secs(10);

pub struct Pair {
    pub netrig: String,
    /// With the kernel that is tried.
    pub near: Machine,
    pub far: Machine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Near,
    Far,
}

impl End {
    pub fn address(self) -> &'static str {
        match self {
            Self::Near => "10.7.0.1",
            Self::Far => "10.7.0.2",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

impl Pair {
    pub fn at(&mut self, end: End) -> &mut Machine {
        match end {
            End::Near => &mut self.near,
            End::Far => &mut self.far,
        }
    }

    /// A command of netrig, with a store of its own.
    pub fn command(&self, arguments: &str) -> String {
        format!("exec env XDG_DATA_HOME=/tmp/data {} {arguments}", self.netrig)
    }

    fn serve(&mut self, end: End) -> Result<Task> {
        let command = self.command("serve --key-file /run/checks/key");
        let task = self.at(end).start(&command)?;
        self.at(end).wait_for(task, "serves on", LIMIT)?;
        Ok(task)
    }

    /// Ends what a check has left, and joins the cards again.
    fn put_back(&mut self) -> Result<()> {
        self.near.set_link(true)?;
        self.near.end_all()?;
        self.far.end_all()
    }

    /// A test whose client is at `end`.
    fn client(&self, end: End, test: &str) -> String {
        let (kind, options) = test.split_once(' ').unwrap_or((test, ""));
        let host = end.other().address();
        self.command(&format!("{kind} --client {host} --key-file /run/checks/key --quiet --format json {options}"))
    }
}

/// Boots both, runs the checks and ends them.
pub fn run(
    kernel: &Kernel,
    directory: &Path,
    netrig: &Path,
    checks: &[Check],
    ended: Ended<'_>,
) -> Result<GuestRecord> {
    let begin = Instant::now();
    let partner = partner(kernel)?;
    // Paths of sockets have 107 characters at most.
    let sockets = tempfile::tempdir()?;
    let [here, there] = ["near", "far"].map(|name| sockets.path().join(name));
    let mut machines = Vec::new();
    for (name, kernel, ends, clock) in
        [("near", kernel, [&here, &there], None), ("far", &partner, [&there, &here], Some(OTHER_CLOCK))]
    {
        let directory = directory.join(name);
        empty(&directory)?;
        // The second of each is for the checks to take.
        let joined = |number: u8| {
            let [here, there] = ends.map(|end| end.with_extension(number.to_string()));
            Card::Joined { here, there }
        };
        let cards = vec![joined(0), joined(1)];
        let guest = Guest { kernel, directory: &directory, cpus: 2, memory_mib: 1500, cards, objects: None, clock };
        machines.push(Machine::boot(&guest)?);
        thread::sleep(APART);
        let key = directory.join("checks/key");
        fs::write(&key, KEY)?;
        fs::set_permissions(&key, Permissions::from_mode(0o600))?;
    }
    let [near, far] = <[Machine; 2]>::try_from(machines).map_err(|_| anyhow!("two machines"))?;
    let mut pair = Pair { netrig: netrig.display().to_string(), near, far };
    let mut record = GuestRecord::new(kernel);
    let mut ready = prepare(&mut pair);
    for check in checks {
        let Some(between) = CHECKS.iter().find(|one| one.name == check.name) else { continue };
        let begin = Instant::now();
        let outcome = match &ready {
            Err(_) => Outcome::NotReached,
            Ok(()) => Outcome::from((between.run)(&mut pair)),
        };
        // The next check finds nothing of a failed one.
        if let (Ok(()), Outcome::Failed { .. }) = (&ready, &outcome) {
            ready = pair.put_back();
        }
        ended(check, &outcome, begin.elapsed())?;
        record.outcomes.push((check.clone(), outcome, begin.elapsed()));
    }
    record.cut_short = ready.err().map(|error| format!("{error:#}"));
    for machine in [pair.near, pair.far] {
        record.end(machine)?;
    }
    record.duration = begin.elapsed();
    Ok(record)
}

/// Another kernel.
pub fn partner(kernel: &Kernel) -> Result<Kernel> {
    Kernel::get(if kernel.release.starts_with("6.1.") { "6.12" } else { "6.1" })
}

/// Waits for both, and gives them addresses.
fn prepare(pair: &mut Pair) -> Result<()> {
    for end in [End::Near, End::Far] {
        let machine = pair.at(end);
        machine.wait_until_ready()?;
        let command = format!("ip address add {}/24 dev eth0 && ip link set eth0 up", end.address());
        machine.run(&command, LIMIT).with_context(|| machine.release().to_owned())?;
    }
    Ok(())
}

/// The report of a test that has ended well.
fn report(text: &str) -> Result<Value> {
    // Remarks stand before it.
    let json = text.find("\n{").map_or(text, |at| &text[at..]);
    serde_json::from_str(json).with_context(|| format!("no report: {text}"))
}

fn tests_in_both_directions(pair: &mut Pair) -> Result<String> {
    let tests = [
        "stream --time 2s --warm-up 500ms",
        "stream --time 2s --warm-up 500ms --reverse",
        "rr --time 2s --warm-up 500ms",
        "rr --time 2s --warm-up 500ms --udp",
        "udp --time 2s --warm-up 500ms --rate 10mbit",
    ];
    let mut count = 0;
    let mut offsets = Vec::new();
    for end in [End::Near, End::Far] {
        let server = pair.serve(end.other())?;
        for test in tests {
            let command = pair.client(end, test);
            let text = pair.at(end).run(&command, LIMIT)?;
            let data = report(&text)?["data"].take();
            let kernels = [(end, &data["client"]["kernel"]), (end.other(), &data["server"]["kernel"])];
            for (end, kernel) in kernels {
                if !kernel.as_str().is_some_and(|kernel| kernel.starts_with(pair.at(end).release())) {
                    bail!("`{test}`: the {end:?} end is Linux {kernel}");
                }
            }
            let figures = data["figures"].as_array().map_or(&[][..], Vec::as_slice);
            let carried = figures.iter().filter(|one| one["metric"] == "throughput" || one["metric"] == "transactions");
            let carried: Vec<f64> = carried.filter_map(|one| one["mean"].as_f64()).collect();
            if carried.is_empty() || carried.iter().any(|mean| *mean <= 0.0) {
                bail!("`{test}`: {carried:?} was carried: {}", data["figures"]);
            }
            let clocks = |field: &str| data["clocks"][0][field].as_i64().context("clocks were not compared");
            offsets.push((end, clocks("offset_ns")?, clocks("bound_ns")?));
            count += 1;
        }
        pair.at(end.other()).end(server)?;
    }
    // The clocks count from each guest's start. What one end says of the other is what that says of it.
    let of = |end| offsets.iter().filter(move |one| one.0 == end);
    for (near, far) in of(End::Near).zip(of(End::Far)) {
        let apart = Duration::from_nanos((near.1 + far.1).unsigned_abs());
        let bounds = Duration::from_nanos((near.2 + far.2).unsigned_abs());
        if apart > bounds + DRIFT || Duration::from_nanos(near.1.unsigned_abs()) <= bounds {
            bail!("clocks that do not begin together: {near:?} {far:?}");
        }
    }
    Ok(format!("{count} tests with Linux {}", pair.far.release()))
}

fn link_down_while_measuring(pair: &mut Pair) -> Result<String> {
    let server = pair.serve(End::Far)?;
    let command = pair.client(End::Near, "stream --time 20s --warm-up 500ms");
    let client = pair.near.start(&command)?;
    // The server says so when a test is asked for; then connections are opened.
    pair.far.wait_for(server, "tcp-stream for", LIMIT)?;
    thread::sleep(Duration::from_secs(8));
    pair.near.set_link(false)?;
    thread::sleep(LINK_DOWN);
    pair.near.set_link(true)?;
    let output = pair.near.wait(client, LIMIT)?;
    let said = output.text.lines().last().unwrap_or_default().chars().take(200).collect::<String>();
    pair.at(End::Far).end(server)?;
    match output.status {
        0 => {
            report(&output.text)?;
            Ok("the test goes on when the link is back".to_owned())
        }
        // No trial was complete.
        4 if !said.is_empty() => Ok(format!("the test ends: {said}")),
        other => bail!("status {other}: {}", output.text),
    }
}

fn link_down_while_connecting(pair: &mut Pair) -> Result<String> {
    let server = pair.serve(End::Far)?;
    pair.near.set_link(false)?;
    let command = pair.client(End::Near, "rr --time 2s --warm-up 500ms");
    let client = pair.near.start(&command)?;
    let output = pair.near.wait(client, LIMIT);
    pair.near.set_link(true)?;
    let output = output?;
    if output.status == 0 || !output.text.contains(End::Far.address()) {
        bail!("status {} without a link: {}", output.status, output.text);
    }
    pair.near.run(&command, LIMIT)?;
    pair.at(End::Far).end(server)?;
    Ok("refused with its reason, and served after".to_owned())
}

fn dperf(pair: &mut Pair) -> Result<String> {
    let wire = "client 10.99.1.1 10\nserver 10.99.2.1 2\n";
    let server = dperf::server("10.99.0.2 10.99.0.1", wire);
    let serving = dperf::start_server(&mut pair.far, &pair.netrig, &server)?;
    let asked = pair.near.run(&dperf::command(&pair.netrig, &dperf::client("10.99.0.1 10.99.0.2", wire)), LIMIT)?;
    let served = pair.far.end(serving)?;
    Ok(format!("{} connections", dperf::connections(&asked, &served.text)?))
}
