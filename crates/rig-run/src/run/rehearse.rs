//! What the kernel refuses of a suite's testbeds is known before a trial is made.

use anyhow::{Context, Result};
use rig_suite::suite::Suite;
use rig_testbed::Testbed;

use super::Rig;

impl Rig {
    /// Builds the testbeds of the suite on which something is set, and takes them down.
    ///
    /// # Errors
    /// What the kernel refused, with the scenario.
    pub fn rehearse(&mut self, suite: &Suite) -> Result<()> {
        let placement = self.placement().clone();
        let (host, _) = self.parts();
        for scenario in suite.scenarios.iter().filter(|scenario| !scenario.topology.chosen().is_empty()) {
            let scenario = &scenario.on(&placement)?;
            let shares = placement.of(&scenario.topology, scenario.dut)?;
            let testbed = Testbed::build_on(host, &scenario.topology, &shares);
            testbed.with_context(|| format!("set up the testbed of scenario '{}'", scenario.id))?.tear_down()?;
        }
        Ok(())
    }
}
