//! The packet engine against a peer that does anything: scripts of `rig_packet::exercise`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    rig_packet::exercise(data);
});
