//! What the kernel refuses of a suite's testbeds is known before a trial is made.

use anyhow::{Context, Result};
use rig_suite::suite::Scenario;
use rig_testbed::host::Host;
use rig_testbed::{Placement, Testbed};

/// Builds the testbed of a scenario on which something is set, and takes it down: whether the kernel takes a setting, only that tells.
///
/// # Errors
/// What the kernel refused.
pub fn rehearse(scenario: &Scenario, placement: &Placement, host: &mut (dyn Host + 'static)) -> Result<()> {
    if scenario.topology.chosen().is_empty() {
        return Ok(());
    }
    let scenario = &scenario.on(placement)?;
    let shares = placement.of(&scenario.topology, scenario.dut)?;
    Testbed::build_on(host, &scenario.topology, &shares).context("set up the testbed")?.tear_down()
}
