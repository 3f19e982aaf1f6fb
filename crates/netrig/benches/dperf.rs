//! Short HTTP connections as users of `netrig dperf` drive them: two processes with files as dperf's own, each on a CPU of
//! its own, in two namespaces that a veth pair joins. The rate rises for ten seconds; what is told of it is the highest
//! second before anything was lost, and the highest at all.
//!
//! `cargo xtask bench dperf [ROUNDS] [TOOL...]`, as root, on a machine that does nothing else.
//!
//! `dperf` runs beside it, over AF_XDP on the same pair, if it is on PATH. As it is it takes PCI devices only: it has to be
//! built so that for a port whose name begins with `net_` it gives DPDK `--vdev NAME,$DPERF_VDEV` in place of the PCI
//! address, and beyond that the words of `$DPERF_EAL`, e.g. `--no-pci --in-memory -m 1300`.

mod support;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use rig_datapath::napi::{self, Urgency};
use rig_stats::sample::Sample;
use rig_sys::cpu::CpuSet;
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::{die_with_parent, in_namespace};
use support::{Peer, arguments, median, on_path, progress};

const ROUNDS: usize = 3;
/// Seconds in which the rate rises; dperf takes no fewer.
const RAMP: u32 = 10;
/// Counters that tell of a loss.
const LOSSES: [&str; 6] = ["dropTx", "synRt", "finRt", "ackRt", "pushRt", "skErr"];
const NEAR: &str = "near";
const FAR: &str = "far";

/// A tool, and the rate that it is to reach in the end: above what it can.
struct Tool {
    name: &'static str,
    how: Generator,
    rate: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Generator {
    Netrig,
    /// With a thread for each interface that receives for it, on the CPU of its node: frames then leave by the socket.
    Threaded,
    Dperf,
}

const TOOLS: [Tool; 3] = [
    Tool { name: "netrig dperf", how: Generator::Netrig, rate: 800_000 },
    Tool { name: "netrig dperf, AF_XDP both ways, threaded", how: Generator::Threaded, rate: 400_000 },
    Tool { name: "dperf, AF_XDP both ways", how: Generator::Dperf, rate: 400_000 },
];

/// Connections per second.
#[derive(Default)]
struct ConnectionRates {
    /// Opened in the highest second before one with a loss.
    clean: Sample,
    /// Answered in the highest second. Closed ones would be those that were given up, too.
    most: Sample,
}

fn main() -> Result<()> {
    let (rounds, wanted) = arguments(ROUNDS);
    let cpus = CpuSet::allowed()?;
    let &[client, server, ..] = cpus.as_slice() else {
        bail!("client and server need a CPU each, and this process may use only {cpus}");
    };
    let chosen = |tool: &&Tool| wanted.is_empty() || wanted.iter().any(|word| tool.name.contains(word.as_str()));
    let (present, absent): (Vec<&Tool>, Vec<&Tool>) =
        TOOLS.iter().filter(chosen).partition(|tool| tool.how != Generator::Dperf || on_path("dperf"));
    for tool in absent {
        println!("{} is not on PATH: left out", tool.name);
    }
    let mut outcomes: Vec<ConnectionRates> = present.iter().map(|_| ConnectionRates::default()).collect();
    for round in 1..=rounds {
        for (tool, outcome) in present.iter().zip(&mut outcomes) {
            progress(round, rounds, tool.name);
            match measure(tool, [client, server]) {
                Ok((clean, most)) => {
                    outcome.clean.push(clean);
                    outcome.most.push(most);
                }
                Err(error) => println!("{}, round {round}: {error:#}", tool.name),
            }
        }
    }
    eprintln!();
    println!("short HTTP connections over a veth pair, thousands a second; medians of {rounds} rounds (least .. most)");
    println!("{}", table(&present, &outcomes));
    Ok(())
}

/// The highest second without loss, and the highest.
fn measure(tool: &Tool, cpus: [u32; 2]) -> Result<(f64, f64)> {
    let [a, b] = [NetNs::create()?, NetNs::create()?];
    let mut links = [Netlink::open(&a)?, Netlink::open(&b)?];
    links[0].add_veth(&VethPair { name: NEAR, peer: FAR, peer_ns: &b, queues: 1, mtu: 1500 })?;
    links[0].set_up(NEAR)?;
    links[1].set_up(FAR)?;
    for (link, name) in links.iter().zip([NEAR, FAR]) {
        while !link.is_operational(name)? {
            thread::sleep(Duration::from_millis(1));
        }
    }
    if tool.how == Generator::Threaded {
        napi::place(&a, NEAR, &cpus[..1], Urgency::RealTime(1))?;
        napi::place(&b, FAR, &cpus[1..], Urgency::RealTime(1))?;
    }
    let directory = tempfile::tempdir()?;
    let said = directory.path().join("client.out");
    let _server = start(tool, directory.path(), &b, FAR, &file(tool, FAR, cpus[1]), Stdio::null())?;
    let output = File::create(&said)?;
    let mut client = start(tool, directory.path(), &a, NEAR, &file(tool, NEAR, cpus[0]), output.into())?;
    // Its exit status tells of losses, which there are in the end.
    client.0.wait()?;
    read(&fs::read_to_string(&said)?).context("no second of the client's output tells of a connection")
}

/// The configuration of an end.
fn file(tool: &Tool, interface: &str, cpu: u32) -> String {
    let port = if tool.how == Generator::Dperf { "net_af_xdp00" } else { interface };
    let (mode, own, gateway, more) = match interface {
        NEAR => {
            let course = format!("cps {}\nslow_start {RAMP}\nwait 1\nduration 2s\n", tool.rate);
            ("client", "10.0.0.1", "10.0.0.2", course)
        }
        _ => ("server", "10.0.0.2", "10.0.0.1", "duration 60s\n".to_owned()),
    };
    format!(
        "mode {mode}\ncpu {cpu}\nport {port} {own} {gateway}\nclient 10.0.1.1 50\nserver 10.0.2.1 1\nprotocol http\n{more}"
    )
}

fn start(tool: &Tool, directory: &Path, ns: &NetNs, interface: &str, file: &str, output: Stdio) -> Result<Peer> {
    let path = directory.join(format!("{interface}.conf"));
    fs::write(&path, file)?;
    let mut command = match tool.how {
        Generator::Dperf => {
            let mut command = Command::new("dperf");
            command.env("DPERF_VDEV", format!("iface={interface},start_queue=0,queue_count=1"));
            command
        }
        Generator::Netrig | Generator::Threaded => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
            command.arg("dperf");
            command
        }
    };
    command.arg("-c").arg(&path).current_dir(directory).stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
    let child: io::Result<_> = in_namespace(die_with_parent(&mut command), ns).spawn();
    Ok(Peer(child.with_context(|| format!("start {}", tool.name))?))
}

/// A figure of a block: thousands are separated, and dperf writes those that tell of a loss in colour.
fn number(word: &str) -> Option<u64> {
    let plain = word.rsplit_once("\x1b[0m").map_or(word, |(coloured, _)| coloured);
    let plain =
        plain.strip_prefix("\x1b[").map_or(plain, |rest| rest.split_once('m').map_or(rest, |(_, figure)| figure));
    plain.replace(',', "").parse().ok()
}

/// What the blocks of each second say; both tools have the same. `None` when there was no connection.
fn read(output: &str) -> Option<(f64, f64)> {
    let seconds = output.split("Total Numbers").next()?.split("seconds ").skip(1);
    let value = |second: &str, name: &str| {
        let mut words = second.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).and_then(number).unwrap_or(0)
    };
    let (mut clean, mut most, mut lost) = (0, 0, false);
    for second in seconds {
        lost |= LOSSES.iter().any(|name| value(second, name) > 0);
        clean = if lost { clean } else { clean.max(value(second, "skOpen")) };
        most = most.max(value(second, "http2XX"));
    }
    (most > 0).then_some((clean as f64, most as f64))
}

fn table(tools: &[&Tool], outcomes: &[ConnectionRates]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "tool",
        "before the first loss",
        "at most",
        "the first's to its",
        "",
    ]);
    let span = |sample: &Sample| {
        let mut text = format!("{:.0}", median(sample) / 1e3);
        if let (Some(least), Some(most)) = (sample.min(), sample.max()) {
            let _ = write!(text, " ({:.0} .. {:.0})", least / 1e3, most / 1e3);
        }
        text
    };
    for (tool, outcome) in tools.iter().zip(outcomes) {
        let ratio =
            |of: fn(&ConnectionRates) -> &Sample| format!("{:.2}", median(of(&outcomes[0])) / median(of(outcome)));
        table.add_row([
            tool.name.to_owned(),
            span(&outcome.clean),
            span(&outcome.most),
            ratio(|outcome| &outcome.clean),
            ratio(|outcome| &outcome.most),
        ]);
    }
    for column in 1..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
