//! Outputs of other tools, as `netrig import` reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    netrig_tools::import::exercise(text);
});
