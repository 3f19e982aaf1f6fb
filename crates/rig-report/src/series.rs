//! Counters over time as CSV: one line for each counter of each reading, which spreadsheets and data tools read without
//! reshaping. Why not a column for each counter: docs/decisions/time-series.md.

use std::borrow::Cow;
use std::io;

use rig_facts::record::track;
use rig_facts::record::{AgentRecord, PhaseRecord, TrialRecord};
use rig_stats::series::Track;
use rig_verdict::view::RunView;

use super::csv::write_row;

/// `begin_s` and `end_s` are seconds from the window's begin; `value` is what the counter rose by meanwhile, or of latencies
/// what the percentile was; `per_second` is empty where that says nothing.
const HEAD: [&str; 10] =
    ["scenario", "trial", "phase", "of", "name", "counter", "begin_s", "end_s", "value", "per_second"];

/// Writes what was counted over time in all trials of a run. A counter that stayed zero for a whole trial is left out.
///
/// # Errors
/// Those of `out`, unchanged: a reader that went away shows as [`io::ErrorKind::BrokenPipe`].
pub fn write(run: &RunView, out: &mut dyn io::Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    write_row(&mut csv, HEAD)?;
    for trial in run.scenarios.iter().flat_map(|scenario| &scenario.trials) {
        for (of, name, track) in tracks(trial) {
            write_track(&mut csv, trial, (of, &name), &track)?;
        }
    }
    csv.flush()
}

/// Everything that was read over time in a trial: whose it is, its name, and the readings. Where nothing was sampled, there
/// are the samples that workers send to the progress line.
fn tracks(trial: &TrialRecord) -> Vec<(&'static str, Cow<'_, str>, Cow<'_, Track>)> {
    let mut tracks = Vec::new();
    for (index, worker) in trial.workers.iter().enumerate() {
        let of = if worker.background { "background worker" } else { "worker" };
        let series = trial.series.as_ref().and_then(|series| series.workers.get(index));
        let name = Cow::Borrowed(worker.name.as_str());
        tracks.push((of, name, series.map_or_else(|| Cow::Owned(track(&worker.samples)), Cow::Borrowed)));
    }
    let nodes = trial.series.iter().flat_map(|series| trial.nodes.iter().zip(&series.nodes));
    tracks.extend(nodes.map(|(node, track)| ("node", Cow::Borrowed(node.name.as_str()), Cow::Borrowed(track))));
    let agents = trial.series.iter().flat_map(|series| trial.agents.iter().zip(&series.agents));
    let name = |agent: &AgentRecord| Cow::Owned(format!("{} on {}", agent.name, agent.node));
    tracks.extend(agents.map(|(agent, track)| ("datapath", name(agent), Cow::Borrowed(track))));
    tracks
}

fn write_track(
    csv: &mut csv::Writer<&mut dyn io::Write>,
    trial: &TrialRecord,
    (of, name): (&str, &str),
    track: &Track,
) -> io::Result<()> {
    let ordinal = trial.ordinal.to_string();
    let begin_ns = trial.series.as_ref().map_or(trial.window_begin_ns, |series| series.begin_ns);
    for (counter, column) in &track.columns {
        for (interval, value) in track.intervals().zip(column.values()) {
            let (begin, end) = (format!("{:.6}", interval.start), format!("{:.6}", interval.end));
            let middle_ns = begin_ns + (f64::midpoint(interval.start, interval.end) * 1e9) as u64;
            let phase = trial.phases.iter().find(|phase| is_in(phase, middle_ns)).map_or("", |phase| &phase.name);
            let length = interval.end - interval.start;
            let rate = match is_counter(counter) && length > 0.0 {
                true => format!("{:.3}", *value as f64 / length),
                false => String::new(),
            };
            let value = value.to_string();
            let record = [&trial.scenario, &ordinal, phase, of, name, counter, &begin, &end, &value, &rate];
            write_row(csv, record)?;
        }
    }
    Ok(())
}

fn is_in(phase: &PhaseRecord, at_ns: u64) -> bool {
    (phase.begin_ns..phase.end_ns).contains(&at_ns)
}

/// Whether a column says how much a counter rose; the others are percentiles.
fn is_counter(name: &str) -> bool {
    !(name.starts_with("latency_") && name.ends_with("_ns"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rig_facts::fixture::with_phases;
    use rig_verdict::fixture;

    use super::*;

    fn lines(run: &RunView) -> Vec<Vec<String>> {
        let mut text = Vec::new();
        write(run, &mut text).unwrap();
        let mut csv = csv::Reader::from_reader(text.as_slice());
        assert_eq!(csv.headers().unwrap(), &HEAD[..]);
        csv.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn every_reading_is_a_line_with_its_moment_and_phase() {
        let mut run = fixture::run_view();
        run.scenarios.truncate(1);
        run.scenarios[0].trials.truncate(2);
        let trials = std::mem::take(&mut run.scenarios[0].trials);
        run.scenarios[0].trials = trials.into_iter().map(with_phases).collect();
        let lines = lines(&run);
        // Two trials of two workers and two nodes, each with one counter and four readings.
        assert_eq!(lines.len(), 2 * 4 * 4);
        assert_eq!(
            lines[2],
            ["A", "1", "after", "worker", "a/sender", "bytes", "1.000000", "1.500000", "2000", "4000.000"]
        );
        assert_eq!(
            lines[11],
            ["A", "1", "after", "node", "a", "cpu0_busy_us", "1.500000", "2.000000", "500000", "1000000.000"]
        );
        assert_eq!(lines[16][1], "2");
        // What an interval of a rate carried is what was counted.
        let sum: u64 = lines.iter().filter(|line| line[5] == "bytes").map(|line| line[8].parse::<u64>().unwrap()).sum();
        assert_eq!(sum, 2 * 2 * 7000);
    }

    #[test]
    fn a_plain_window_has_what_workers_said_meanwhile() {
        let lines = lines(&fixture::run_view());
        assert!(lines.iter().all(|line| line[2].is_empty() && line[3] == "worker" && line[5] == "bytes"), "{lines:?}");
        let trials: BTreeSet<(&str, &str)> = lines.iter().map(|line| (&*line[0], &*line[1])).collect();
        assert_eq!(trials.len(), 15);
    }

    #[test]
    fn percentiles_have_no_rate() {
        assert!(is_counter("latency_count") && is_counter("cpu0_busy_us") && !is_counter("latency_p99_ns"));
    }
}
