//! A run, a comparison, or a test between two machines, as OpenMetrics 1.0 text (<https://github.com/prometheus/OpenMetrics>, specification/OpenMetrics.md),
//! for example for node_exporter's textfile collector or a push gateway.
//!
//! All metrics are gauges: a run is over, and a figure is a value, not a counter. Samples carry no timestamp, since the
//! receiver stamps them; when the run was made is a metric of its own.

use std::io;

use rig_service::openmetrics::Exposition;
use rig_stats::sample::Bound;
use rig_verdict::compare::Comparison;
use rig_verdict::export::{FigureData, RunData};
use serde::Deserialize;

use super::document::Document;

/// What a document says as metrics.
#[derive(Default)]
struct Metrics(Exposition);

/// What is read of a test between two machines.
#[derive(Deserialize)]
struct TestData {
    test: String,
    host: String,
    figures: Vec<TestFigure>,
}

#[derive(Deserialize)]
struct TestFigure {
    end: String,
    metric: String,
    unit: String,
    mean: f64,
    low: Option<f64>,
    high: Option<f64>,
}

/// Writes `document`.
///
/// # Errors
/// Those of `out`; and [`io::ErrorKind::InvalidInput`] when the document's data is no run, comparison or test.
pub fn write(document: &Document, out: &mut dyn io::Write) -> io::Result<()> {
    let unsupported = |error| io::Error::new(io::ErrorKind::InvalidInput, format!("no run to export: {error}"));
    let mut metrics = Metrics::default();
    match document.data["kind"].as_str() {
        Some("comparison") => {
            metrics.comparison(&serde_json::from_value(document.data.clone()).map_err(unsupported)?);
        }
        Some("test") => {
            metrics.test(&serde_json::from_value(document.data.clone()).map_err(unsupported)?);
        }
        Some(_) => {
            let run: RunData = serde_json::from_value(document.data.clone()).map_err(unsupported)?;
            metrics.run(&run);
            if let Some(comparison) = &run.comparison {
                metrics.comparison(comparison);
            }
        }
        // A document without figures for programs.
        None => {}
    }
    write!(out, "{}", metrics.0)
}

impl Metrics {
    fn run(&mut self, data: &RunData) {
        let (suite, run) = (data.run.suite.as_str(), data.run.id.as_str());
        let environment = &data.environment;
        let labels = [
            ("suite", suite),
            ("run", run),
            ("netrig_version", &environment.netrig_version),
            ("kernel", &environment.kernel),
            ("cpu_model", &environment.cpu_model),
            ("congestion_control", &environment.congestion_control),
        ];
        self.0.add("info", "run", "", "The run that the figures are of, and its machine.", &labels, 1.0);
        let started = data.run.started_unix_ms as f64 / 1000.0;
        let own = [("suite", suite), ("run", run)];
        self.0.gauge("run_start", "seconds", "When the run began, since the Unix epoch.", &own, started);
        for scenario in &data.scenarios {
            let labels = [("suite", suite), ("scenario", &scenario.id)];
            let trials = scenario.trials.len() as f64;
            self.0.gauge("trials", "", "Trials of the scenario.", &labels, trials);
            for figure in &scenario.figures {
                self.figure(suite, &scenario.id, figure);
            }
        }
    }

    fn figure(&mut self, suite: &str, scenario: &str, figure: &FigureData) {
        let mut labels = vec![("suite", suite), ("scenario", scenario), ("side", figure.side.as_str())];
        labels.extend(figure.bound.map(|bound| match bound {
            Bound::AtLeast => ("bound", "at-least"),
            Bound::AtMost => ("bound", "at-most"),
            Bound::Open => ("bound", "open"),
        }));
        self.mean(&figure.metric, &figure.unit, &labels, figure.mean, [figure.low, figure.high]);
    }

    fn test(&mut self, data: &TestData) {
        for TestFigure { end, metric, unit, mean, low, high } in &data.figures {
            let labels = [("test", data.test.as_str()), ("host", &data.host), ("end", end)];
            self.mean(metric, unit, &labels, *mean, [*low, *high]);
        }
    }

    /// A figure's mean and the bounds of its interval.
    fn mean(
        &mut self,
        metric: &str,
        its_unit: &str,
        labels: &[(&str, &str)],
        mean: f64,
        [low, high]: [Option<f64>; 2],
    ) {
        let unit = unit(its_unit);
        let words = metric.replace('_', " ");
        let help = format!("Mean {words} over the trials.");
        self.0.gauge(metric, &unit, &help, labels, mean);
        for (bound, value, which) in [("low", low, "Lower"), ("high", high, "Upper")] {
            let Some(value) = value else { continue };
            let help = format!("{which} end of the confidence interval of the mean {words}.");
            self.0.gauge(&format!("{metric}_{bound}"), &unit, &help, labels, value);
        }
    }

    fn comparison(&mut self, comparison: &Comparison) {
        let suite = comparison.new.suite.as_str();
        let (old, new) = (comparison.old.name.as_str(), comparison.new.name.as_str());
        let runs = [("suite", suite), ("old", old), ("new", new)];
        self.0.add("info", "comparison", "", "The two runs that were compared.", &runs, 1.0);
        for figure in &comparison.figures {
            let labels = [
                ("suite", suite),
                ("scenario", figure.scenario.as_str()),
                ("side", figure.side.as_str()),
                ("metric", figure.metric.as_str()),
            ];
            // A state set: one sample for each state, 1 for the one that holds.
            for verdict in ["better", "worse", "same", "undecided"] {
                let holds = f64::from(u8::from(figure.verdict.to_string() == verdict));
                let states = [&labels[..], &[("netrig_comparison_verdict", verdict)]].concat();
                self.0.add("stateset", "comparison_verdict", "", "What became of the figure.", &states, holds);
            }
            let Some(effect) = &figure.effect else { continue };
            let kind = if effect.kind == rig_stats::compare::Kind::Ratio { "ratio" } else { "difference" };
            let help = match kind {
                "ratio" => "New mean to old mean",
                _ => "New mean less old mean, in the unit of the metric",
            };
            for (bound, value, of) in [
                ("", Some(effect.value), ""),
                ("_low", effect.low, ", lower end of the confidence interval"),
                ("_high", effect.high, ", upper end of the confidence interval"),
            ] {
                let Some(value) = value else { continue };
                let (name, unit) = match kind {
                    "ratio" => (format!("comparison_effect{bound}"), "ratio"),
                    _ => (format!("comparison_difference{bound}"), ""),
                };
                self.0.gauge(&name, unit, &format!("{help}{of}."), &labels, value);
            }
        }
    }
}

/// A unit as a word of a metric's name: `bit/s` is `bits_per_second`.
fn unit(unit: &str) -> String {
    let word = |text: &str, plural: bool| {
        let (one, many) = match text.trim() {
            "bit" => ("bit", "bits"),
            "s" => ("second", "seconds"),
            "ms" => ("millisecond", "milliseconds"),
            "us" | "µs" => ("microsecond", "microseconds"),
            "ns" => ("nanosecond", "nanoseconds"),
            // netperf's K is 1024.
            "KB" => ("kibibyte", "kibibytes"),
            "B" => ("byte", "bytes"),
            "%" => ("percent", "percent"),
            "% of a CPU" => ("percent_of_a_cpu", "percent_of_a_cpu"),
            "Tr" => ("transaction", "transactions"),
            other => return other.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect(),
        };
        if plural { many } else { one }.to_owned()
    };
    let mut parts = unit.split('/');
    // Of `1/s` only the second part is a word.
    let first = parts.next().filter(|part| *part != "1").map(|part| word(part, true));
    let words = first.into_iter().chain(parts.map(|part| format!("per_{}", word(part, false))));
    words.collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests;
