//! Both sides of iperf3's control connection.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    netrig_tools::iperf3::control::fuzz(data);
});
