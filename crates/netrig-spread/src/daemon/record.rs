//! What was seen, in a file, for `netrig spread simulate --replay`.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rig_spread::trace::{Line, TraceStep, write};
use rig_spread::{Config, Observation, State};
use tracing::error;

/// A file that is being written; it ends with the first line that does not find room.
#[derive(Debug)]
pub(super) struct Record {
    file: Option<BufWriter<File>>,
}

impl Record {
    /// `DIRECTORY/INTERFACE.jsonl`.
    ///
    /// # Errors
    /// When it cannot be made, as one that is there.
    pub(super) fn create(directory: &Path, interface: &str) -> anyhow::Result<Self> {
        let path = directory.join(format!("{interface}.jsonl"));
        let file = File::create_new(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self { file: Some(BufWriter::new(file)) })
    }

    /// Goes on in a file that this process has made.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub(super) fn go_on(directory: &Path, interface: &str) -> anyhow::Result<Self> {
        let path = directory.join(format!("{interface}.jsonl"));
        let file = File::options().append(true).open(&path).with_context(|| format!("go on in {}", path.display()))?;
        Ok(Self { file: Some(BufWriter::new(file)) })
    }

    pub(super) fn begin(mut self, config: &Config, state: &State) -> Self {
        self.line(&Line::Config(Box::new(config.clone())));
        self.line(&Line::State(Box::new(state.clone())));
        self
    }

    pub(super) fn config(&mut self, config: &Config) {
        self.line(&Line::Config(Box::new(config.clone())));
    }

    pub(super) fn seen(&mut self, now: Duration, observation: &Observation) {
        self.line(&Line::Seen(TraceStep { now, observation: observation.clone() }));
    }

    pub(super) fn failed(&mut self, entry: Option<u32>) {
        self.line(&Line::Failed { entry });
    }

    pub(super) fn polled(&mut self, in_place: bool, now: Duration) {
        self.line(&Line::Polled { in_place, now });
    }

    fn line(&mut self, line: &Line) {
        if let Some(file) = &mut self.file
            && let Err(error) = write(file, line)
        {
            error!("recording has stopped: {error}");
            self.file = None;
        }
    }
}
