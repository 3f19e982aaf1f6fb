//! Files of `--layers=FILE`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        rig_facts::layers::exercise(text);
    }
});
