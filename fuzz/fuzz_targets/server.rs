//! The server's side of the control protocol of tests between two ends: scripts of `netrig_ends::fuzz`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    netrig_ends::fuzz::server(data);
});
