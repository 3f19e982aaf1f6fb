//! dperf's configuration language.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    netrig_tools::dperf::fuzz(data);
});
