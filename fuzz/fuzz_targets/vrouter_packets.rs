//! Packets for the vRouter's rules: scripts of `rig_datapath::vrouter::model::exercise`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    rig_datapath::vrouter::model::exercise(data);
});
