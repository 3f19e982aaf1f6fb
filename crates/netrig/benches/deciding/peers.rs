//! How long netrig and its peers take to tell what a veth pair adds to the CPU time of a transaction, on the same paths.
//!
//! netperf repeats its test until its own interval is narrow (`-I`, `-i`, at most 30 times 2 s); `perf stat` counts the CPU
//! time of its process for a number of transactions. Both know one path at a time, so each has to be known more closely than the
//! ratio.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rig_stats::sample::Sample;

use crate::support::on_path;
use crate::{Bench, change, claims, line, width};

/// netrig tries ever longer runs, up to this; seconds.
const LONGEST: f64 = 480.0;
const FIRST: f64 = 15.0;
const LONGER: f64 = 1.5;
/// Seconds of a run of netperf, and how many runs it may make: the most that netperf allows.
const RUN: u32 = 2;
const RUNS: usize = 30;
/// What perf takes the mean of, at least and at most, and the transactions of each.
const REPEATS: std::ops::RangeInclusive<usize> = 5..=60;
const TRANSACTIONS: &str = "-10000";
/// By which each path has to be known more closely than their ratio: both are independent and alike.
const OF_TWO: f64 = std::f64::consts::SQRT_2;

pub fn measure(bench: &Bench, numbers: &[f64]) -> Result<()> {
    let percent = numbers.first().copied().unwrap_or(5.0);
    let wanted = percent / 100.0;
    let suite = change::veth_pair();
    let mut seconds = FIRST;
    let begun = Instant::now();
    let narrow = loop {
        let run = bench.run_text(&suite, seconds)?;
        let reached = claims(&run).filter_map(width).next();
        if reached.is_some_and(|width| width <= wanted) {
            break Some(seconds);
        }
        seconds *= LONGER;
        if seconds > LONGEST {
            break None;
        }
    };
    let told = narrow.map_or(format!("> {LONGEST} s"), |seconds| format!("{seconds:.0} s"));
    line(&format!("netrig run --budget, ratio to +-{percent} %"), "", &told);
    line("... with the shorter runs that were tried before", "", &format!("{:.0} s", begun.elapsed().as_secs_f64()));

    for program in ["netperf", "netserver"] {
        if !on_path(program) {
            println!("{program} is not on PATH: no peer to hold this against");
            return Ok(());
        }
    }
    let both = ["plain", "more"];
    let tests = both.map(|scenario| Paths::up(bench, scenario).and_then(|paths| paths.netperf(percent / OF_TWO)));
    let [plain, more] = tests;
    report(&format!("netperf -I -i, each path to +-{:.1} %", percent / OF_TWO), [plain?, more?]);
    if !on_path("perf") {
        println!("perf is not on PATH: no peer to hold this against");
        return Ok(());
    }
    let tests = both.map(|scenario| Paths::up(bench, scenario).and_then(|paths| paths.perf(wanted / OF_TWO)));
    let [plain, more] = tests;
    report(&format!("perf stat around netperf, each path to +-{:.1} %", percent / OF_TWO), [plain?, more?]);
    Ok(())
}

/// What a peer took, and whether it came that far.
struct PeerTime {
    time: Duration,
    narrow: bool,
}

fn report(what: &str, [plain, more]: [PeerTime; 2]) {
    let more_than = if plain.narrow && more.narrow { "" } else { "> " };
    line(what, "", &format!("{more_than}{:.0} s", (plain.time + more.time).as_secs_f64()));
}

/// A testbed that is up, with netserver on its second node; all of it goes with this.
struct Paths {
    from: &'static str,
    to: String,
    server: Child,
}

const NAME: &str = "deciding-peers";

impl Paths {
    fn up(bench: &Bench, scenario: &str) -> Result<Self> {
        let what = format!("{}/{scenario}", bench.write(&change::veth_pair())?);
        netrig(&["up", &what, "--name", NAME])?;
        let from = if scenario == "plain" { "a" } else { "a/one" };
        let listed = netrig(&["shell", "b", "--name", NAME, "ip", "-4", "-o", "address", "show", "scope", "global"])?;
        let to =
            listed.split_whitespace().find_map(|word| word.split_once('/')).context("find the server's address")?;
        let server = shell("b", &["netserver", "-D", "-4"]).stdout(Stdio::null()).spawn().context("start netserver")?;
        std::thread::sleep(Duration::from_millis(500));
        Ok(Self { from, to: to.0.to_owned(), server })
    }

    fn netperf(&self, percent: f64) -> Result<PeerTime> {
        // netperf wants the whole interval's width, in whole percent.
        let width = format!("95,{:.0}", (2.0 * percent).max(1.0));
        let (runs, run) = (format!("{RUNS},3"), RUN.to_string());
        let words =
            ["netperf", "-H", &self.to, "-t", "TCP_RR", "-l", &run, "-c", "-C", "-I", &width, "-i", &runs, "-P", "1"];
        let begun = Instant::now();
        let output = shell(self.from, &words).output().context("run netperf")?;
        let time = begun.elapsed();
        if !output.status.success() {
            bail!("netperf: {}", String::from_utf8_lossy(&output.stderr));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        Ok(PeerTime { time, narrow: !said.contains("Desired confidence was not achieved") })
    }

    /// CPU time of netperf's process for so many transactions, until two standard errors of the mean are narrow.
    fn perf(&self, wanted: f64) -> Result<PeerTime> {
        let words = [
            "perf",
            "stat",
            "-x",
            ",",
            "-e",
            "task-clock",
            "--",
            "netperf",
            "-H",
            &self.to,
            "-t",
            "TCP_RR",
            "-l",
            TRANSACTIONS,
        ];
        let begun = Instant::now();
        let mut sample = Sample::default();
        for done in 1..=*REPEATS.end() {
            let output = shell(self.from, &words).output().context("run perf stat")?;
            if !output.status.success() {
                bail!("perf stat: {}", String::from_utf8_lossy(&output.stderr));
            }
            let said = String::from_utf8_lossy(&output.stderr);
            let counted = said.lines().find_map(|line| line.split(',').next()?.parse::<f64>().ok());
            sample.push(counted.context("find the CPU time that perf counted")?);
            let half = sample.standard_error().zip(sample.mean()).map(|(error, mean)| 2.0 * error / mean);
            if done >= *REPEATS.start() && half.is_some_and(|half| half <= wanted) {
                return Ok(PeerTime { time: begun.elapsed(), narrow: true });
            }
        }
        Ok(PeerTime { time: begun.elapsed(), narrow: false })
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        // What is not ended here goes with the namespaces.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = netrig(&["down", NAME]);
    }
}

fn shell(place: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.args(["shell", "--name", NAME, place, "--"]).args(words).stdin(Stdio::null());
    command
}

fn netrig(words: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_netrig")).args(words).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        bail!("netrig {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
