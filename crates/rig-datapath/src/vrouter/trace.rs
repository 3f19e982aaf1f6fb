//! What the programs would do with a packet, found out by themselves: they run upon the router's tables, and upon copies of those
//! that they change.

use std::net::IpAddr;
use std::ops::ControlFlow;

use libbpf_rs::{ObjectBuilder, OpenMapMut};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::maps::Map;
use crate::objects::{Objects, objects};
use crate::plain::Address;
use crate::rights::check_may_load;
use crate::{Error, libbpf_log};

use super::control::Router;
use super::load::entries_of;
use super::reason::Reason;
use super::shape::{self, FlowKey};
use super::trial::{self, Side, Verdict};

static OBJECTS: Objects = objects!("vrouter_trace");
const NAME: &str = "vrouter trace";
/// Maps that programs only read.
const SHARED: [&str; 18] = [
    "controls",
    "interface_of",
    "next_hops",
    "ways",
    "members",
    "hosts",
    "prefixes",
    "macs",
    "labels",
    "vnis",
    "peers",
    "lists",
    "cuts",
    "bounds",
    "rows",
    "alsos",
    "fat",
    "analysers",
];
/// Room for the flow that a packet begins.
const NEW_FLOWS: usize = 16;

/// What a program would do with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// Also of one whose sender is told by ICMP, which leaves in its place.
    pub reason: Option<Reason>,
    /// The whole frame, as it leaves or stays; its link-layer addresses where it goes into a tunnel are still to come.
    pub frame: Vec<u8>,
}

impl Router {
    /// What would happen to a packet between these addresses: see [`test_run`](Self::test_run) for `frame` and `interface`. Neither
    /// flows nor counters change, and nothing is sent. How often senders were told of late that packets are too big, how many copies
    /// and pieces of an interface's packets were made of late, and first fragments are not considered.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel has no room for copies of the tables.
    pub fn trace(&self, side: Side, frame: &[u8], interface: u32, between: [IpAddr; 2]) -> Result<Decision, Error> {
        check_may_load()?;
        let flows = self.flows_between(between);
        let failed = |source| Error::Load { program: NAME, source };
        let cpus = libbpf_rs::num_possible_cpus().map_err(failed)? as u32;
        let mut builder = ObjectBuilder::default();
        builder.name("vrouter_trace").map_err(failed)?;
        let mut open = builder.open_memory(OBJECTS.for_running(NAME)?).map_err(failed)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let size = |map: &mut OpenMapMut<'_>, entries| {
                map.set_max_entries(entries).map_err(|source| Error::Map {
                    map: "of the trace",
                    operation: "size",
                    source,
                })
            };
            match SHARED.into_iter().find(|shared| *shared == name) {
                Some(shared) => {
                    let theirs = Map::any(&self.object, shared)?;
                    let refused = |source| Error::Map { map: shared, operation: "share", source };
                    map.reuse_fd(theirs.as_fd()).map_err(refused)?;
                }
                None if name == "flows" => size(&mut map, (flows.len() + NEW_FLOWS) as u32)?,
                None => {
                    if let Some(entries) = entries_of(&name, &self.sizes, cpus) {
                        size(&mut map, entries)?;
                    }
                }
            }
        }
        for mut program in open.progs_mut() {
            let is_wanted = program.name() == side.program();
            program.set_autoload(is_wanted);
        }
        let object = libbpf_log::load(open, NAME)?;

        let interfaces = Map::of(&object, "interfaces", size_of::<shape::Interface>())?;
        copy::<shape::Interface>(&self.tables.interfaces, &interfaces)?;
        for (name, from) in [("begun", &self.tables.begun), ("ended", &self.tables.ended)] {
            copy::<u64>(from, &Map::of(&object, name, size_of::<u64>())?)?;
        }
        let to = Map::of(&object, "flows", size_of::<shape::Flow>())?;
        for (key, flow) in &flows {
            to.set(key, flow)?;
        }
        let outcome = trial::run(&object, side.program(), frame, trial::FrameMetadata::of(interface), 1)?;
        let dropped = Map::of(&object, "dropped", size_of::<shape::DroppedPacket>())?;
        let mut reason = None;
        dropped.each(|_, one: shape::DroppedPacket| {
            if one.time > 0 {
                reason = Reason::ALL.iter().copied().find(|reason| reason.number() == u32::from(one.reason));
            }
            ControlFlow::Continue(())
        })?;
        Ok(Decision { verdict: outcome.verdict, reason, frame: outcome.frame })
    }

    /// Flows that a packet between these addresses may be of, of either direction, an error about it included.
    fn flows_between(&self, between: [IpAddr; 2]) -> Vec<(FlowKey, shape::Flow)> {
        let ends = between.map(Address::from);
        let mut all = self.tables.flows.entries_of_hash::<FlowKey, shape::Flow>();
        all.retain(|(key, _)| ends.contains(&key.source) && ends.contains(&key.destination));
        all
    }
}

/// All elements of an array.
fn copy<V: FromBytes + IntoBytes + Immutable>(from: &Map, to: &Map) -> Result<(), Error> {
    let mut all: Vec<V> = Vec::with_capacity(from.entries() as usize);
    from.each(|_, value| {
        all.push(value);
        ControlFlow::Continue(())
    })?;
    to.set_range(0, &all)
}
