//! What is printed before and after a test, and what goes to files.

use anyhow::Context;
use rig_cli::exit::{Exit, ExitContext, Failure};

use super::console::Console;
use super::test_plan::{Layout, TestPlan};
use super::{linux_file, linux_text, windows_text};
use crate::counters::cpu_mhz;
use crate::test_run::Measurement;

/// Figures that only one end has.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectionFigures {
    /// A sender's connections.
    pub connections: Option<usize>,
    /// Mean of a TCP sender's smoothed round-trip times.
    pub rtt_us: Option<u32>,
}

/// A test's results with all that its figures are made of.
#[derive(Debug, Clone, Copy)]
pub struct Results<'a> {
    pub plan: &'a TestPlan,
    pub measured: &'a Measurement,
    pub extra: ConnectionFigures,
    pub mhz: Option<f64>,
}

impl Results<'_> {
    /// Payload bytes per second.
    pub fn rate(&self) -> f64 {
        over(self.measured.bytes() as f64, self.measured.seconds())
    }

    /// CPU cycles of the whole machine for each payload byte, from `busy`, the part of its CPUs' time that was used.
    pub fn cycles_per_byte(&self, busy: f64) -> f64 {
        let hertz = self.mhz.unwrap_or(0.0) * 1e6 * self.measured.machine.end.cpus as f64;
        over(hertz * self.measured.seconds() * busy, self.measured.bytes() as f64)
    }
}

/// A quotient that is 0 where there is nothing to divide by, as in the originals.
pub fn over(numerator: f64, denominator: f64) -> f64 {
    if denominator > 0.0 { numerator / denominator } else { 0.0 }
}

/// The version, with verbose output the parameters, and remarks about what is done otherwise.
pub fn opening(plan: &TestPlan, console: &Console) {
    match &plan.layout {
        Layout::Linux(output) => linux_text::opening(plan, output, console),
        Layout::Windows(output) => windows_text::opening(plan, output, console),
    }
    plan.remarks.iter().for_each(|remark| console.remark(remark));
}

/// The results, wherever they are asked for.
pub fn write(
    plan: &TestPlan,
    measured: &Measurement,
    extra: &ConnectionFigures,
    console: &Console,
) -> Result<(), Failure> {
    let results = Results { plan, measured, extra: *extra, mhz: cpu_mhz() };
    // Not in the original's layout: beside it.
    if plan.verbose {
        rig_cli::streams::note(format_args!("ntttcp: CPU time: {}", measured.machine.accounting().words()));
    }
    match &plan.layout {
        Layout::Linux(output) => {
            if results.mhz.is_none() {
                console.error("/proc/cpuinfo shows no CPU speed: cycles/byte is 0");
            }
            linux_text::results(&results, output, console);
            if let Some(path) = &output.xml {
                std::fs::write(path, linux_file::xml(&results, output))
                    .with_context(|| format!("write {}", path.display()))
                    .or_exit(Exit::Failed)?;
            }
            if let Some(path) = &output.json {
                std::fs::write(path, linux_file::json(&results, output))
                    .with_context(|| format!("write {}", path.display()))
                    .or_exit(Exit::Failed)?;
            }
        }
        Layout::Windows(output) => match &output.xml {
            None => console.plain(&windows_text::results(&results, output)),
            Some(path) => {
                use std::io::Write;
                let text = windows_text::xml(&results, output);
                let append = || {
                    let mut file = std::fs::File::options().append(true).create(true).open(path)?;
                    file.write_all(text.as_bytes())
                };
                append().with_context(|| format!("write {}", path.display())).or_exit(Exit::Failed)?;
            }
        },
    }
    Ok(())
}
