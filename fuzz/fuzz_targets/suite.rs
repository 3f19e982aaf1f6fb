//! Suite files.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        // An error is an answer; a panic is not.
        let _ = rig_suite::suite::Suite::parse("fuzz.toml", text).map_err(|error| error.to_string());
    }
});
