//! Packets are given to CPUs by their hash, and stay in order while buckets move.

mod buckets;
mod order;
mod traffic;

use rig_datapath::Error;
use rig_datapath::steer::{Options, Steer};
use rig_skip::{Lack, skip};

/// The programs; unless this machine does not let them in, which is said.
fn load(options: Options) -> Option<Steer> {
    match Steer::load(options, 0) {
        Ok(steer) => Some(steer),
        Err(Error::NotPermitted(_)) => {
            skip(Lack::Root, "eBPF programs need it");
            None
        }
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}
