//! The packet engine against a peer that does anything: scripts of `rig_load::packet::exercise`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    rig_load::packet::exercise(data);
});
