//! Messages of netperf's control connection, and its command line.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    netrig_tools::netperf::fuzz(data);
});
