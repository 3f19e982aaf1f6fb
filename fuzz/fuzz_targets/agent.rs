//! What a runner and an agent say to each other.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    rig_testbed::datapath::protocol::exercise(data);
});
