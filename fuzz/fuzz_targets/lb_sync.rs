//! Messages that balancers send each other of their connections.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    netrig_lb::exercise::sync(data);
});
