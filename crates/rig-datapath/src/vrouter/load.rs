//! The programs and their tables.

use std::path::Path;

use libbpf_rs::{Object, ObjectBuilder};

use crate::Error;
use crate::libbpf_log;
use crate::maps::Map;
use crate::objects::{Objects, objects};
use crate::rights::check_may_load;

use super::keep::{self, KEPT};
use super::shape::{self, Control, DropCounts, LOGGED};
use super::sizes::Sizes;

static OBJECTS: Objects = objects!("vrouter");
/// Of new kernels, with the programs that benchmarks run.
pub(super) static BENCH_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vrouter_bench.bpf.o"));
/// Of all programs together.
const NAME: &str = "vrouter";
/// The programs for packets of containers, and for those of tunnels.
pub(super) const FROM_CONTAINER: &str = "from_container";
pub(super) const FROM_UNDERLAY: &str = "from_underlay";
/// The program for copies that go to analysers.
pub(super) const TO_ANALYSER: &str = "to_analyser";
/// The program that drops all packets of an interface without a router, and leads them to [`FROM_CONTAINER`] with one.
pub(super) const CLOSED: &str = "closed";
pub(super) const SWEEP: &str = "sweep_flows";
/// Of old kernels, before it.
pub(super) const NOTE_SHARES: &str = "note_shares";

/// The maps, by their names in bpf/vrouter/maps.h.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) controls: Map,
    pub(super) router_program: Map,
    pub(super) interface_of: Map,
    pub(super) interfaces: Map,
    pub(super) next_hops: Map,
    pub(super) ways: Map,
    pub(super) members: Map,
    pub(super) hosts: Map,
    pub(super) prefixes: Map,
    pub(super) macs: Map,
    pub(super) labels: Map,
    pub(super) vnis: Map,
    pub(super) peers: Map,
    pub(super) lists: Map,
    pub(super) cuts: Map,
    pub(super) bounds: Map,
    pub(super) rows: Map,
    pub(super) alsos: Map,
    pub(super) flows: Map,
    pub(super) fragments: Map,
    pub(super) fat: Map,
    pub(super) begun: Map,
    pub(super) ended: Map,
    pub(super) ended_early: Map,
    pub(super) traffic: Map,
    pub(super) copied: Map,
    pub(super) drops: Map,
    pub(super) dropped: Map,
    pub(super) analysers: Map,
    pub(super) mirrored: Map,
    pub(super) log_counts: Map,
    pub(super) log_turns: Map,
}

impl Tables {
    fn of(object: &Object) -> Result<Self, Error> {
        let map = |name, value| Map::of(object, name, value);
        let number = size_of::<u32>();
        Ok(Self {
            controls: map("controls", size_of::<Control>())?,
            router_program: map("router_program", number)?,
            interface_of: map("interface_of", number)?,
            interfaces: map("interfaces", size_of::<shape::Interface>())?,
            next_hops: map("next_hops", size_of::<shape::NextHop>())?,
            ways: map("ways", size_of::<shape::EcmpRoutes>())?,
            members: map("members", size_of::<shape::Members>())?,
            hosts: map("hosts", size_of::<shape::Route>())?,
            prefixes: map("prefixes", size_of::<shape::Route>())?,
            macs: map("macs", size_of::<shape::Route>())?,
            labels: map("labels", number)?,
            vnis: map("vnis", number)?,
            peers: map("peers", size_of::<shape::Peer>())?,
            lists: map("lists", size_of::<shape::List>())?,
            cuts: map("cuts", size_of::<shape::Cut>())?,
            bounds: map("bounds", size_of::<shape::Bound>())?,
            rows: map("rows", size_of::<shape::Row>())?,
            alsos: map("alsos", number)?,
            flows: map("flows", size_of::<shape::Flow>())?,
            fragments: map("fragments", size_of::<u64>())?,
            fat: map("fat", number)?,
            begun: map("begun", size_of::<u64>())?,
            ended: map("ended", size_of::<u64>())?,
            ended_early: map("ended_early", size_of::<u64>())?,
            traffic: map("traffic", size_of::<shape::Traffic>())?,
            copied: map("copied", size_of::<shape::CopyCount>())?,
            drops: map("drops", size_of::<DropCounts>())?,
            dropped: map("dropped", size_of::<shape::DroppedPacket>())?,
            analysers: map("analysers", size_of::<shape::Analyser>())?,
            mirrored: map("mirrored", size_of::<shape::MirrorCount>())?,
            log_counts: map("log_counts", size_of::<u64>())?,
            log_turns: map("log_turns", size_of::<u64>())?,
        })
    }
}

/// Elements of the maps that are sized.
pub(super) fn entries_of(name: &str, sizes: &Sizes, cpus: u32) -> Option<u32> {
    Some(match name {
        "interface_of" => sizes.interfaces,
        "interfaces" | "begun" | "ended" | "ended_early" | "short_of_share" | "told" | "log_turns" | "traffic"
        | "copied" | "copying" | "cutting" | "drops" => sizes.interfaces + 1,
        "next_hops" => sizes.next_hops,
        "ways" => sizes.ways,
        "members" | "copying_in" => sizes.floods,
        "hosts" => sizes.hosts,
        "prefixes" => sizes.prefixes,
        "macs" => sizes.macs,
        "vnis" => sizes.vnis,
        "peers" => sizes.peers,
        "lists" => sizes.lists,
        "cuts" => sizes.cuts,
        "bounds" => sizes.bounds,
        "rows" => sizes.rows,
        "alsos" => sizes.alsos,
        "fat" => sizes.fat,
        "flows" => sizes.flows,
        "dropped" => cpus * LOGGED,
        _ => return None,
    })
}

/// The object for the running kernel.
pub(super) fn for_running() -> Result<&'static [u8], Error> {
    OBJECTS.for_running(NAME)
}

/// Loads the programs with empty tables, but for those that are kept in a directory.
pub(super) fn load(sizes: &Sizes, object: &[u8], kept: Option<&Path>) -> Result<(Object, Tables), Error> {
    check_may_load()?;
    // Which of them it is that the kernel refuses libbpf says.
    let program = NAME;
    let failed = |source| Error::Load { program, source };
    let cpus = libbpf_rs::num_possible_cpus().map_err(failed)? as u32;
    let mut builder = ObjectBuilder::default();
    builder.name(NAME).map_err(failed)?;
    let mut open = builder.open_memory(object).map_err(failed)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(directory) = kept.filter(|_| KEPT.contains(&name.as_str())) {
            let otherwise = || Error::PinnedOtherwise { path: directory.display().to_string() };
            let value = map.value_size();
            map.reuse_pinned_map(directory.join(&name)).map_err(|_| otherwise())?;
            // Of another version. The programs would be refused with it, in words of the kernel's.
            if map.value_size() != value {
                return Err(otherwise());
            }
        } else if let Some(entries) = entries_of(&name, sizes, cpus) {
            let refused = |source| Error::Map { map: "of the vRouter", operation: "size", source };
            map.set_max_entries(entries).map_err(refused)?;
        }
    }
    let object = libbpf_log::load(open, program)?;
    let tables = Tables::of(&object)?;
    match kept.filter(|_| !keep::are_of(&tables, sizes)) {
        Some(directory) => Err(Error::PinnedOtherwise { path: directory.display().to_string() }),
        None => Ok((object, tables)),
    }
}
