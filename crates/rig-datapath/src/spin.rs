//! A known time spent on each packet that interfaces receive (bpf/measure/spin.bpf.c).

use std::fmt;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::{Object, ObjectBuilder};
use rig_sys::tc::{Attached, Hook, Owner};
use zerocopy::{FromBytes, IntoBytes};

use crate::maps::Map;
use crate::object::program;
use crate::objects::{Objects, objects};
use crate::rights::check_may_load;
use crate::{Error, libbpf_log};

static OBJECTS: Objects = objects!("spin");
const SPIN: &str = "spin";
/// Behind a vRouter's.
const OWNER: Owner = Owner { name: "netrig spin", handle: 0x6e74_0002, preference: 3 };

/// As bpf/measure/spin.h has it.
#[derive(Debug, Clone, Copy, FromBytes)]
#[repr(C)]
struct SpinCount {
    packets: u64,
    time: u64,
}

/// What a test holds against the program's types.
#[cfg(test)]
pub(crate) fn layouts() -> Vec<crate::plain::layout::Layout> {
    vec![crate::plain::layout::layout!(SpinCount { packets, time })]
}

/// What was spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpinTime {
    pub packets: u64,
    pub time: Duration,
}

/// The program, on interfaces for as long as this is there. A packet is what the interface hands up: segments that were merged
/// before are one.
pub struct Spin {
    /// Before the object, whose program they keep, goes.
    on: Vec<Attached>,
    object: Object,
    spun: Map,
}

impl fmt::Debug for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spin").field("on", &self.on).finish_non_exhaustive()
    }
}

impl Spin {
    /// What a packet may cost, in nanoseconds.
    pub const TIME_NS: RangeInclusive<u64> = 1..=100_000;

    /// Loads the program, which spends `time` on each packet, to the next look at the clock (some 30 ns).
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without CAP_BPF, [`Error::Load`] where the kernel refuses it.
    pub fn load(time: Duration) -> Result<Self, Error> {
        check_may_load()?;
        let failed = |source| Error::Load { program: SPIN, source };
        let mut builder = ObjectBuilder::default();
        let mut open = builder.name(SPIN).map_err(failed)?.open_memory(OBJECTS.for_running(SPIN)?).map_err(failed)?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy() == ".rodata.spinning" {
                let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(*Self::TIME_NS.end());
                map.set_initial_value(time_ns.as_bytes()).map_err(|source| Error::Map {
                    map: "spinning",
                    operation: "set",
                    source,
                })?;
            }
        }
        let object = libbpf_log::load(open, SPIN)?;
        let spun = Map::of(&object, "spun", size_of::<SpinCount>())?;
        Ok(Self { on: Vec::new(), object, spun })
    }

    /// Puts it on an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::Attach`]: no such interface.
    pub fn attach(&mut self, interface: u32) -> Result<(), Error> {
        let attached = Attached::attach(program(&self.object, SPIN)?.as_fd(), interface, Hook::Ingress, &OWNER);
        self.on.push(attached.map_err(|source| Error::Attach {
            interface,
            reason: "is there such an interface?".to_owned(),
            source: source.into(),
        })?);
        Ok(())
    }

    /// What was spent since it was loaded.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn spun(&self) -> Result<SpinTime, Error> {
        let counts = self.spun.per_cpu::<SpinCount>(0)?;
        Ok(counts.iter().fold(SpinTime::default(), |sum, count| SpinTime {
            packets: sum.packets + count.packets,
            time: sum.time + Duration::from_nanos(count.time),
        }))
    }
}
