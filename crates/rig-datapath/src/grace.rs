//! Waiting until no program reads what was there before a change.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::Error;

const MAP: &str = "grace";

/// A control plane's way to wait for programs. When an element of a map of maps is updated, the kernel returns once every
/// program that may have seen the old one has ended (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c, since Linux 5.0): an RCU
/// grace period. membarrier(2) gives one, too, but refuses on machines with `nohz_full`.
#[derive(Debug)]
pub(crate) struct GracePeriod {
    inner: MapHandle,
    outer: MapHandle,
}

impl GracePeriod {
    pub(crate) fn new() -> Result<Self, Error> {
        let create = |kind, options: &bpf_map_create_opts| {
            MapHandle::create(kind, Some(MAP), 4, 4, 1, options).map_err(|source| Error::Map {
                map: MAP,
                operation: "create",
                source,
            })
        };
        let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..Default::default() };
        let inner = create(MapType::Array, &options)?;
        let options = bpf_map_create_opts { inner_map_fd: inner.as_fd().as_raw_fd() as u32, ..options };
        let outer = create(MapType::ArrayOfMaps, &options)?;
        Ok(Self { inner, outer })
    }

    /// Returns when every program that runs now has ended, some milliseconds later.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        let inner = self.inner.as_fd().as_raw_fd().to_ne_bytes();
        self.outer.update(&0_u32.to_ne_bytes(), &inner, MapFlags::ANY).map_err(|source| Error::Map {
            map: MAP,
            operation: "update",
            source,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use rig_skip::{Lack, skip};

    use crate::rights::check_may_trace;

    use super::*;

    #[test]
    fn a_grace_period_ends() {
        if let Err(error) = check_may_trace() {
            return skip(Lack::Root, error);
        }
        let grace = GracePeriod::new().unwrap();
        (0..3).for_each(|_| grace.wait().unwrap());
    }
}
