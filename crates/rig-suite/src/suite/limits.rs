//! How much a suite may be: what is read is bounded before anything is made of it.

use super::file::SuiteFile;
use super::resolve::{Resolver, Result};

/// The longest suite file, bytes.
pub(super) const SIZE_MAX: u64 = 4 << 20;
/// Scenarios of a suite, each row of a list of workers counted.
const SCENARIOS_MAX: usize = 1000;

impl Resolver<'_> {
    /// Before anything is made of them: each is a testbed, a load and figures.
    pub(super) fn not_too_many(&self, file: &SuiteFile) -> Result<()> {
        let mut wanted = 0;
        for scenario in &file.scenario {
            // An empty list is refused when it is read.
            wanted += scenario.workers.as_ref().map_or(1, |workers| workers.get_ref().len().max(1));
            if wanted > SCENARIOS_MAX {
                let what = format!("more than {SCENARIOS_MAX} scenarios, those of lists of workers included");
                return Err(self.error(scenario.id.span(), what, Some("divide them among several suites")));
            }
        }
        Ok(())
    }
}
