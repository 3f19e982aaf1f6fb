//! Both sides of the sync protocol of NTttcp for Linux.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    netrig_tools::ntttcp::sync::fuzz(data);
});
