//! The JSON of a run, as `compare` and `--against` read it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        rig_verdict::compare::exercise(text);
    }
});
