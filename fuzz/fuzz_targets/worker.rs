//! Orders and events between a worker and its driver.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    rig_load::protocol::exercise(data);
});
