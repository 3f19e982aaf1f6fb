//! The statistics that dperf prints: a block each second, and `Total Numbers` at the end.
//!
//! The layout is that of dperf's net_stats.c: names with numbers in groups of three digits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::record::{ToolRun, ToolTrial};

use super::lines::{number, with_commas};
use super::{Mistake, Outputs, check_count};
use crate::store_run::{ToolTest, tidy};

/// A line that nothing else writes.
pub fn is_of(line: &str) -> bool {
    let line = &*without_colours(line);
    is_second(line) || is_total(line) || line.starts_with("pktRx ")
}

/// Without the sequences that set colours (SGR of ECMA-48): dperf marks errors with them.
fn without_colours(line: &str) -> Cow<'_, str> {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default();
    if first.len() == line.len() {
        return line.into();
    }
    let mut text = first.to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(part.len());
        text += part[end..].strip_prefix('m').unwrap_or(part);
    }
    text.into()
}

fn is_second(line: &str) -> bool {
    line.starts_with("seconds ") && line.contains(" cpuUsage")
}

fn is_total(line: &str) -> bool {
    line.trim_end().trim_end_matches(':').eq_ignore_ascii_case("total numbers")
}

/// One block.
#[derive(Default)]
struct Counts {
    line: usize,
    is_total: bool,
    /// Since the test began.
    second: Option<f64>,
    /// Percent of each thread.
    busy: Vec<f64>,
    counters: BTreeMap<String, f64>,
}

pub fn read(text: &str) -> Result<Outputs, Mistake> {
    let mut tests = Vec::new();
    let mut blocks: Vec<Counts> = Vec::new();
    let mut version = Version::default();
    for (at, line) in text.lines().enumerate() {
        let line = &*without_colours(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(first) = words.first() else { continue };
        let line_number = at + 1;
        if is_second(line) {
            let second = words.get(1).and_then(|word| with_commas(word));
            let begins_again = |last: &Counts| last.second.zip(second).is_some_and(|(last, second)| second <= last);
            let is_over = blocks.last().is_some_and(|last| last.is_total || begins_again(last));
            if is_over {
                check_count(tests.len())?;
                tests.push(test(&std::mem::take(&mut blocks), version.take())?);
            }
            let busy = words.iter().skip_while(|word| **word != "cpuUsage").skip(1).filter_map(|word| number(word));
            blocks.push(Counts { line: line_number, second, busy: busy.collect(), ..Counts::default() });
        } else if is_total(line) {
            blocks.push(Counts { line: line_number, is_total: true, ..Counts::default() });
        } else if words.ends_with(&["Test", "Finished"]) {
            version.is_netrig = *first == "netrig";
        } else if let ["Version:", number] = words.as_slice() {
            version.number = Some(tidy(number));
        } else if let Some(block) = blocks.last_mut()
            && first.starts_with(|c: char| c.is_ascii_lowercase())
        {
            counters(block, &words, line_number)?;
        }
    }
    if !blocks.is_empty() {
        tests.push(test(&blocks, version.take())?);
    }
    if tests.is_empty() {
        return Err(Mistake::at(1, "expected `seconds N cpuUsage ...`, the first line of a second of dperf's"));
    }
    Ok(Outputs { tests, failed: Vec::new() })
}

/// What stands above a total.
#[derive(Default)]
struct Version {
    number: Option<String>,
    is_netrig: bool,
}

impl Version {
    fn take(&mut self) -> Option<String> {
        let Self { number, is_netrig } = std::mem::take(self);
        number.map(|number| if is_netrig { format!("of netrig {number}") } else { number })
    }
}

/// Names and numbers in turn. A line that is no such row, as of messages between the seconds, has nothing to say.
fn counters(block: &mut Counts, words: &[&str], line: usize) -> Result<(), Mistake> {
    const KNOWN: [&str; 13] = [
        "pktRx", "arpRx", "icmpRx", "tcpRx", "udpRt", "synRx", "synRt", "tcpDrop", "skOpen", "tcpReq", "httpGet",
        "tosRx", "ierrors",
    ];
    if !KNOWN.contains(&words[0]) {
        return Ok(());
    }
    for pair in words.chunks(2) {
        let [name, value] = pair else { break };
        let value =
            with_commas(value).ok_or_else(|| Mistake::at(line, format!("expected a number behind `{name}`")))?;
        block.counters.insert((*name).to_owned(), value);
    }
    Ok(())
}

/// The value in the middle of the seconds that have it: what a ramp at the begin and the last second do not move.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
    }
}

fn test(blocks: &[Counts], version: Option<String>) -> Result<ToolTest, Mistake> {
    let seconds: Vec<&Counts> = blocks.iter().filter(|block| !block.is_total).collect();
    let total = blocks.iter().rev().find(|block| block.is_total);
    if seconds.is_empty() || seconds.iter().all(|block| block.counters.is_empty()) {
        let line = blocks.first().map_or(1, |block| block.line);
        return Err(Mistake::at(line, "expected seconds with counters such as pktRx before the total"));
    }
    let each = |name: &str| median(seconds.iter().filter_map(|block| block.counters.get(name).copied()));
    let sum = |name: &str| match total {
        Some(total) => total.counters.get(name).copied(),
        None => {
            let all: Vec<f64> = seconds.iter().filter_map(|block| block.counters.get(name).copied()).collect();
            (!all.is_empty()).then(|| all.iter().sum())
        }
    };
    let is_udp = each("udpTx").is_some_and(|sent| sent > 0.0) || (each("synRx").is_none() && each("udpRt").is_some());
    let side = Side::Local;
    let mut trial = ToolTrial { seconds: Some(seconds.len() as f64), ..ToolTrial::default() };
    for (metric, name) in [
        (Metric::PacketsOut, "pktTx"),
        (Metric::PacketsIn, "pktRx"),
        (Metric::BitsOut, "bitsTx"),
        (Metric::BitsIn, "bitsRx"),
        (Metric::DropsOut, "dropTx"),
        (Metric::Connections, "skOpen"),
        (Metric::Concurrent, "skCon"),
        (Metric::Transactions, if each("http2XX").is_some() { "http2XX" } else { "tcpRsp" }),
    ] {
        trial.add(side, metric, each(name));
    }
    trial.add(side, Metric::Failed, sum("skErr"));
    trial.add(side, Metric::Drops, sum("dropTx").map(|out| out + sum("imissed").unwrap_or(0.0)));
    let again: Vec<f64> = ["synRt", "finRt", "ackRt", "pushRt"].into_iter().filter_map(sum).collect();
    if !is_udp && !again.is_empty() {
        trial.add(side, Metric::Retransmits, again.iter().sum::<f64>());
    }
    let rtt = median(seconds.iter().filter_map(|block| block.counters.get("rtt(us)").copied()).filter(|us| *us > 0.0));
    trial.add(side, Metric::Handshake(Statistic::Mean), rtt.filter(|_| !is_udp));
    let busiest = seconds.iter().filter_map(|block| block.busy.iter().copied().reduce(f64::max));
    trial.add(side, Metric::Busy, median(busiest));
    let threads = seconds.iter().map(|block| block.busy.len()).max().unwrap_or(0);
    trial.notes.push(
        "Rates are those of the middle second of all; which end wrote it the output does not say, and its figures stand as local."
            .to_owned(),
    );
    if total.is_none() {
        trial.notes.push("The output has no total: it was broken off, and counts are sums of its seconds.".to_owned());
    }
    let settings = (threads > 0).then(|| ("threads".to_owned(), threads.to_string()));
    let run = ToolRun {
        tool: "dperf".to_owned(),
        version,
        test: if is_udp { "packets-udp" } else { "packets-tcp" }.to_owned(),
        settings: settings.into_iter().collect(),
        ..ToolRun::default()
    };
    Ok(ToolTest { run, trial })
}
