//! What the running balancer is looked at with: `netrig lb status | drops | trace | metrics`.

use clap::{Args, Subcommand};

use crate::exit::{Exit, Failure};

#[derive(Debug, Subcommand)]
pub enum View {
    /// Devices, workers, table, services and their rates on one screen
    Status {
        #[command(flatten)]
        which: Which,
        /// Print it as docs/schema/lb-status.json describes it
        #[arg(long)]
        json: bool,
    },
}

/// The running balancer that is asked.
#[derive(Debug, Args)]
pub struct Which {
    /// The balancer's name, when several run [default: $NETRIG_LB, or `lb`]
    #[arg(long)]
    pub name: Option<String>,
}

pub fn execute(view: &View) -> Result<Exit, Failure> {
    let View::Status { which, json } = view;
    todo!("{which:?} {json}")
}
