//! The text of wrk and wrk2.
//!
//! The layout is that of wrk.c (`main`, `print_stats_latency`) and units.c of both: times with `us`, `ms`, `s`, `m` or `h`, bytes in powers of
//! 1024, counts in powers of 1000.

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::record::{ToolRun, ToolTrial};

use super::lines::{number, with_unit};
use super::{Mistake, OutputFormat, Outputs, check_count};
use crate::store_run::{ToolTest, tidy};

/// In microseconds.
const TIMES: [(&str, f64); 5] = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7), ("h", 3.6e9)];
const KIB: f64 = 1024.0;
const BYTES: [(&str, f64); 6] = [
    ("B", 1.0),
    ("KB", KIB),
    ("MB", KIB * KIB),
    ("GB", KIB * KIB * KIB),
    ("TB", KIB * KIB * KIB * KIB),
    ("PB", KIB * KIB * KIB * KIB * KIB),
];

/// The first line of a test.
pub fn is_begin(line: &str) -> bool {
    line.starts_with("Running ") && line.contains(" test @ ")
}

/// `asked` is the tool that the user names.
pub fn read(text: &str, asked: Option<OutputFormat>) -> Result<Outputs, Mistake> {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end())).collect();
    let begins: Vec<usize> = (0..lines.len()).filter(|at| is_begin(lines[*at].1)).collect();
    if begins.is_empty() {
        return Err(Mistake::at(1, "expected `Running ... test @ URL`, wrk's first line"));
    }
    check_count(begins.len())?;
    let ends = begins.iter().skip(1).copied().chain([lines.len()]);
    let tests =
        begins.iter().zip(ends).map(|(begin, end)| test(&lines[*begin..end], asked)).collect::<Result<_, _>>()?;
    Ok(Outputs { tests, failed: Vec::new() })
}

/// Of `--latency`.
const PERCENTILES: [(&str, Statistic); 7] = [
    ("50", Statistic::P50),
    ("90", Statistic::P90),
    ("99", Statistic::P99),
    ("99.9", Statistic::P99_9),
    ("99.99", Statistic::P99_99),
    ("100", Statistic::Max),
    ("100.0", Statistic::Max),
];

/// In microseconds.
fn time(text: &str) -> Option<f64> {
    with_unit(text, &TIMES)
}

fn percentile(word: &str) -> Option<Statistic> {
    let number = word.strip_suffix('%')?;
    // wrk2 writes 99.900%.
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    PERCENTILES.iter().find(|(name, _)| *name == number).map(|(_, statistic)| *statistic)
}

fn test(lines: &[(usize, &str)], asked: Option<OutputFormat>) -> Result<ToolTest, Mistake> {
    let (begin, first) = lines[0];
    let (duration, url) =
        first["Running ".len()..].split_once(" test @ ").ok_or_else(|| Mistake::at(begin, "expected a URL"))?;
    let mut run = ToolRun {
        tool: asked.unwrap_or(OutputFormat::Wrk).name().to_owned(),
        test: "http".to_owned(),
        server: Some(tidy(url)),
        settings: vec![("time".to_owned(), tidy(duration))],
        ..ToolRun::default()
    };
    let mut trial = ToolTrial::default();
    let mut distribution = None;
    let wrong = |line: usize, what: &str| Mistake::at(line, format!("expected {what}"));
    let is_of = |run: &mut ToolRun, tool: OutputFormat, line: usize| {
        run.tool = tool.name().to_owned();
        match asked.filter(|asked| *asked != tool) {
            Some(asked) => Err(Mistake::at(line, format!("--tool {}: only {} writes this", asked.name(), tool.name()))),
            None => Ok(()),
        }
    };
    for &(at, line) in &lines[1..] {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [threads, "threads", "and", connections, "connections"] => {
                run.settings.push(("threads".to_owned(), tidy(threads)));
                run.settings.push(("connections".to_owned(), tidy(connections)));
            }
            ["Latency", mean, _, most, _] if line.starts_with("    Latency ") => {
                // Where nothing was answered wrk writes nan or 0.
                trial.add(Side::Local, Metric::Latency(Statistic::Mean), time(mean).filter(|us| *us > 0.0));
                trial.add(Side::Local, Metric::Latency(Statistic::Max), time(most).filter(|us| *us > 0.0));
            }
            ["Thread", "calibration:", ..] => is_of(&mut run, OutputFormat::Wrk2, at)?,
            ["Latency", "Distribution", rest @ ..] => {
                let is_wrk2 = rest.first() == Some(&"(HdrHistogram");
                is_of(&mut run, if is_wrk2 { OutputFormat::Wrk2 } else { OutputFormat::Wrk }, at)?;
                distribution = Some(!rest.contains(&"Uncorrected"));
            }
            ["Detailed", "Percentile", ..] => distribution = None,
            [percent, value] if distribution == Some(true) && percent.ends_with('%') => {
                let value = time(value).ok_or_else(|| wrong(at, "a time, as 1.27ms"))?;
                if let Some(statistic) = percentile(percent).filter(|_| value > 0.0) {
                    trial.add(Side::Local, Metric::Latency(statistic), value);
                }
            }
            [count, "requests", "in", span, read, "read"] => {
                distribution = None;
                let span = time(span.trim_end_matches(','));
                trial.seconds = Some(span.ok_or_else(|| wrong(at, "`N requests in 2.00s, 1.87MB read`"))? / 1e6);
                if number(count) == Some(0.0) {
                    trial.notes.push("Nothing was answered.".to_owned());
                }
                with_unit(read, &BYTES).ok_or_else(|| wrong(at, "`N requests in 2.00s, 1.87MB read`"))?;
            }
            ["Socket", "errors:", ..] | ["Non-2xx", "or", "3xx", "responses:", _] => {
                trial.notes.push(format!("{}.", tidy(line)));
            }
            ["Requests/sec:", rate] => {
                let rate = number(rate).ok_or_else(|| wrong(at, "a number behind `Requests/sec:`"))?;
                trial.add(Side::Local, Metric::Transactions, rate);
            }
            ["Transfer/sec:", rate] => {
                let rate = with_unit(rate, &BYTES).ok_or_else(|| wrong(at, "bytes behind `Transfer/sec:`"))?;
                trial.add(Side::Local, Metric::Throughput, rate * 8.0);
            }
            _ => {}
        }
    }
    if trial.figure(Side::Local, Metric::Transactions).is_none() {
        let last = lines.last().map_or(begin, |(at, _)| *at);
        return Err(wrong(last, "`Requests/sec:`: the test that begins above did not come to its end"));
    }
    Ok(ToolTest { run, trial })
}
