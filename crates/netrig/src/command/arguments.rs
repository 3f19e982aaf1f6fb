//! Options that several subcommands have.

use std::path::PathBuf;

use clap::Args;
use rig_facts::claim::Metric;
use rig_report::Format;
use rig_stats::confidence::Level;
use rig_stats::units::Percent;

#[derive(Debug, Args)]
pub struct StoreArgs {
    /// The file that keeps the runs
    ///
    /// By default $NETRIG_STORE, or netrig/runs.sqlite in the user's data directory.
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

impl StoreArgs {
    /// What a command that is told to the user ends with, so that it finds the same runs.
    pub fn words(&self) -> String {
        self.store.as_ref().map_or_else(String::new, |path| format!(" --store {}", path.display()))
    }
}

#[derive(Debug, Args)]
pub struct OutputArgs {
    /// How to write the report
    #[arg(long, value_enum, default_value = "terminal")]
    pub format: Format,
    /// Write it to this file, not to standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// In the help of `run`, which has more options, these stand apart.
pub const HEADING: &str = "Comparison";

#[derive(Debug, Args)]
pub struct JudgeArgs {
    /// Compare only these metrics, e.g. throughput,cpu
    #[arg(long, help_heading = HEADING, value_delimiter = ',', value_name = "METRICS")]
    pub metrics: Vec<Metric>,
    /// The least change that matters [default: 5%]
    #[arg(long, help_heading = HEADING, value_name = "PERCENT")]
    pub min_effect: Option<Percent>,
    /// Confidence of the comparison's intervals [default: 95%]
    #[arg(long, help_heading = HEADING, value_name = "PERCENT", hide_short_help = true)]
    pub level: Option<Level>,
    /// Status 5 where the worst is an undecided figure
    #[arg(long, help_heading = HEADING)]
    pub fail_on_undecided: bool,
}
