//! `netrig netperf`, `netrig netserver` and `netrig iperf3` beside the originals: the same command lines, each pair of programs with
//! itself, in turn, between two nodes.
//!
//! The result is the program's own; CPU time is that of both nodes' CPUs over the whole of the command, divided by what was moved. With
//! `mixed` among the arguments each client meets the other's server, too. Originals that are not on PATH are named and left out. Run it
//! with `cargo xtask bench originals [ROUNDS] [PART OF A NAME...]`, on a machine that does nothing else.

mod support;

use std::fmt::Write as _;
use std::io::Read;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use rig_stats::sample::Sample;
use serde_json::Value;
use support::rounds::Failures;
use support::{CONGESTION_CONTROL, TwoNodeTestbed, arguments, on_path, progress};

const ROUNDS: usize = 5;
const NETRIG: &str = env!("CARGO_BIN_EXE_netrig");
/// Seconds of each command.
const TIME: &str = "3";
/// Seconds after which a command is ended that has not ended by itself, as coreutils' timeout(1) does it.
const LONGEST: &str = "30";

/// Whose program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    Ours,
    Theirs,
}

/// What both makers' programs are told.
struct Case {
    name: &'static str,
    /// The test of netperf; `None` is iperf3.
    test: Option<&'static str>,
    /// The client's options beside those.
    options: &'static [&'static str],
    /// What ours has to have of theirs: throughput at least, CPU time for the same amount at most.
    least: f64,
    most_cpu: Option<f64>,
}

const fn netperf(test: &'static str, options: &'static [&'static str], least: f64, most_cpu: Option<f64>) -> Case {
    Case { name: test, test: Some(test), options, least, most_cpu }
}

const fn iperf3(name: &'static str, options: &'static [&'static str], least: f64, most_cpu: Option<f64>) -> Case {
    Case { name, test: None, options, least, most_cpu }
}

const CASES: [Case; 9] = [
    netperf("TCP_STREAM", &["-k", "THROUGHPUT"], 1.05, Some(1.0)),
    netperf("TCP_MAERTS", &["-k", "THROUGHPUT"], 1.05, Some(1.0)),
    netperf("TCP_RR", &["-k", "THROUGHPUT"], 1.0, None),
    netperf("TCP_CRR", &["-k", "THROUGHPUT"], 1.0, None),
    netperf("UDP_STREAM", &["-k", "REMOTE_RECV_THROUGHPUT", "-m", "1400", "-R", "1"], 1.2, None),
    netperf("UDP_RR", &["-k", "THROUGHPUT"], 1.0, None),
    iperf3("iperf3", &[], 1.05, Some(1.0)),
    iperf3("iperf3 -P 8", &["-P", "8"], 1.0, None),
    iperf3("iperf3 -u -b 0", &["-u", "-b", "0"], 2.0, None),
];

impl Case {
    fn programs(&self, maker: Maker, server: bool) -> Vec<&'static str> {
        let tool = match (self.test.is_some(), server) {
            (true, true) => "netserver",
            (true, false) => "netperf",
            (false, _) => "iperf3",
        };
        if maker == Maker::Ours { vec![NETRIG, tool] } else { vec![tool] }
    }

    fn server(&self, maker: Maker) -> Vec<&'static str> {
        let options: &[&str] = if self.test.is_some() { &["-D"] } else { &["-s", "-1"] };
        [self.programs(maker, true), options.to_vec()].concat()
    }

    fn client(&self, maker: Maker) -> Vec<&'static str> {
        let options = match self.test {
            Some(test) => vec!["-H", "{}", "-P", "0", "-l", TIME, "-t", test, "--"],
            None => vec!["-c", "{}", "-J", "-t", TIME],
        };
        [vec!["timeout", LONGEST], self.programs(maker, false), options, self.options.to_vec()].concat()
    }

    fn is_present(&self) -> bool {
        [true, false].iter().all(|&server| on_path(self.programs(Maker::Theirs, server)[0]))
    }

    /// The client's own result, in whatever unit both makers have.
    fn result(&self, said: &str) -> Result<f64> {
        if self.test.is_some() {
            let line = said.lines().find_map(|line| line.split_once("THROUGHPUT="));
            return line.context("no throughput")?.1.trim().parse().context("the throughput");
        }
        let report: Value = serde_json::from_str(said).context("the report")?;
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
        let udp = || {
            Some(
                report["end"]["sum"]["bits_per_second"].as_f64()?
                    * (1.0 - report["end"]["sum"]["lost_percent"].as_f64()? / 100.0),
            )
        };
        match rate.filter(|_| !self.options.contains(&"-u")).or_else(udp).or(rate) {
            Some(rate) => Ok(rate),
            None => bail!("no rate: {report}"),
        }
    }
}

/// Result, and CPU seconds for each unit of it and second.
fn measure(field: &TwoNodeTestbed, case: &Case, client: Maker, server: Maker) -> Result<(f64, f64)> {
    let _server = field.start_server(&case.server(server))?;
    let begin = field.cpu_seconds()?;
    let mut running = field.start_peer(&case.client(client), &field.sender, Stdio::piped())?;
    let mut said = String::new();
    running.0.stdout.take().context("standard output")?.read_to_string(&mut said)?;
    let status = running.0.wait()?;
    if !status.success() {
        bail!("it ended with {status}: {said}");
    }
    let result = case.result(&said)?;
    Ok((result, (field.cpu_seconds()? - begin) / result))
}

fn main() -> Result<()> {
    let (rounds, wanted) = arguments(ROUNDS);
    let mixed = wanted.iter().any(|word| word == "mixed");
    let wanted: Vec<String> = wanted.into_iter().filter(|word| word != "mixed").collect();
    let field = TwoNodeTestbed::new(CONGESTION_CONTROL)?;
    let chosen =
        CASES.iter().filter(|case| wanted.is_empty() || wanted.iter().any(|part| case.name.contains(part.as_str())));
    let (present, absent): (Vec<&Case>, Vec<&Case>) = chosen.partition(|case| case.is_present());
    for case in absent {
        println!("{}: the originals are not on PATH: left out", case.name);
    }
    let mut pairs = vec![("ours", Maker::Ours, Maker::Ours), ("theirs", Maker::Theirs, Maker::Theirs)];
    if mixed {
        pairs.push(("our client", Maker::Ours, Maker::Theirs));
        pairs.push(("our server", Maker::Theirs, Maker::Ours));
    }
    let mut found = vec![vec![Vec::new(); pairs.len()]; present.len()];
    let mut failures = Failures::default();
    for round in 1..=rounds {
        for (number, case) in present.iter().enumerate() {
            // What comes first in a round comes last in the next.
            let mut order: Vec<usize> = (0..pairs.len()).collect();
            if round % 2 == 0 {
                order.reverse();
            }
            for pair in order {
                let (name, client, server) = pairs[pair];
                progress(round, rounds, &format!("{}, {name}", case.name));
                let measured = measure(&field, case, client, server);
                found[number][pair].push(failures.heed(round, format!("{}, {name}", case.name), measured));
            }
        }
    }
    eprintln!();
    println!("{}{}", report(&present, &pairs, &found, rounds), failures.report());
    Ok(())
}

type RoundFigures = Vec<Vec<Vec<Option<(f64, f64)>>>>;

fn report(cases: &[&Case], pairs: &[(&str, Maker, Maker)], found: &RoundFigures, rounds: usize) -> String {
    let mut text = format!(
        "Ratios to the originals' own pair, medians of {rounds} interleaved rounds of {TIME} s, least and most of a round in brackets; \
         {CONGESTION_CONTROL}.\n"
    );
    for (case, found) in cases.iter().zip(found) {
        for (pair, values) in pairs.iter().zip(found).filter(|(pair, _)| pair.0 != "theirs") {
            let ratio = |of: fn(&(f64, f64)) -> f64| -> Sample {
                let both = values
                    .iter()
                    .zip(&found[1])
                    .filter_map(|(ours, theirs)| Some(of(ours.as_ref()?) / of(theirs.as_ref()?)));
                both.collect()
            };
            let say = |sample: &Sample| match (sample.median(), sample.min(), sample.max()) {
                (Some(middle), Some(least), Some(most)) => format!("{middle:.3} [{least:.3}, {most:.3}]"),
                _ => "-".to_owned(),
            };
            let (rate, cpu) = (ratio(|found| found.0), ratio(|found| found.1));
            let wanted = match case.most_cpu {
                Some(most) => format!(" (wanted: {:.2}, CPU {most:.2})", case.least),
                None => format!(" (wanted: {:.2})", case.least),
            };
            let _ = writeln!(
                text,
                "{:<15} {:<11} throughput {}, CPU time for the same {}{}",
                case.name,
                pair.0,
                say(&rate),
                say(&cpu),
                if pair.0 == "ours" { &wanted } else { "" }
            );
        }
    }
    text
}
