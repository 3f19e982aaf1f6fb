//! What a runner and the program of a host say to each other.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    rig_testbed::host::protocol::exercise(data);
});
