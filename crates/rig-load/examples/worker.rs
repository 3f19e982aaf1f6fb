//! The smallest worker process: everything that [`rig_load::driver`] needs at the other end of its pipes.
//!
//! ```text
//! cargo build -p rig-load --example worker
//! ```

use std::process::ExitCode;

use rig_load::worker::{self, WorkerError};

fn main() -> ExitCode {
    match worker::run(std::io::stdin(), std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        // The driver knows: it was told, or it closed the pipe itself.
        Err(WorkerError::Failed { .. } | WorkerError::Abandoned) => ExitCode::FAILURE,
        Err(error @ WorkerError::Report(_)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
