//! What `netrig lb import` reads: lines of ipvsadm-save, and keepalived.conf.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        netrig_lb::exercise::imported(text);
    }
});
