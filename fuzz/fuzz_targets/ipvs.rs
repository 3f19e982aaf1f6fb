//! A datagram of generic netlink, as a program under `netrig lb ipvs` sends it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    netrig_lb::exercise::ipvs(data);
});
