//! The programs and their tables.

use libbpf_rs::{Object, ObjectBuilder};

use crate::Error;
use crate::maps::Map;
use crate::rights::check_may_load;
use crate::said;

use super::shape::{self, Control, LOGGED, REASONS};
use super::sizes::Sizes;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vrouter.bpf.o"));
/// What packets of containers come to, and what those of tunnels do.
pub(super) const FROM_CONTAINER: &str = "from_container";
pub(super) const FROM_UNDERLAY: &str = "from_underlay";
pub(super) const NOTHING: &str = "nothing";

/// The maps, by their names in bpf/vrouter/maps.h.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) controls: Map,
    pub(super) interface_of: Map,
    pub(super) interfaces: Map,
    pub(super) next_hops: Map,
    pub(super) ways: Map,
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
    pub(super) flows: Map,
    pub(super) begun: Map,
    pub(super) ended: Map,
    pub(super) traffic: Map,
    pub(super) drops: Map,
    pub(super) dropped: Map,
}

impl Tables {
    fn of(object: &Object) -> Result<Self, Error> {
        let map = |name, value| Map::of(object, name, value);
        let number = size_of::<u32>();
        Ok(Self {
            controls: map("controls", size_of::<Control>())?,
            interface_of: map("interface_of", number)?,
            interfaces: map("interfaces", size_of::<shape::Interface>())?,
            next_hops: map("next_hops", size_of::<shape::NextHop>())?,
            ways: map("ways", size_of::<shape::Ways>())?,
            hosts: map("hosts", size_of::<shape::Route>())?,
            prefixes: map("prefixes", size_of::<shape::Route>())?,
            macs: map("macs", size_of::<shape::Route>())?,
            labels: map("labels", number)?,
            vnis: map("vnis", number)?,
            peers: map("peers", number)?,
            lists: map("lists", size_of::<shape::List>())?,
            cuts: map("cuts", size_of::<shape::Cut>())?,
            bounds: map("bounds", size_of::<shape::Bound>())?,
            rows: map("rows", size_of::<shape::Row>())?,
            flows: map("flows", size_of::<shape::Flow>())?,
            begun: map("begun", size_of::<u64>())?,
            ended: map("ended", size_of::<u64>())?,
            traffic: map("traffic", size_of::<shape::Traffic>())?,
            drops: map("drops", size_of::<u64>())?,
            dropped: map("dropped", size_of::<shape::Dropped>())?,
        })
    }
}

/// Elements of the maps that are sized.
fn entries_of(name: &str, sizes: &Sizes, cpus: u32) -> Option<u32> {
    Some(match name {
        "interface_of" => sizes.interfaces,
        "interfaces" | "begun" | "ended" | "traffic" => sizes.interfaces + 1,
        "drops" => (sizes.interfaces + 1) * REASONS,
        "next_hops" => sizes.next_hops,
        "ways" => sizes.ways,
        "hosts" => sizes.hosts,
        "prefixes" => sizes.prefixes,
        "macs" => sizes.macs,
        "vnis" => sizes.vnis,
        "peers" => sizes.peers,
        "lists" => sizes.lists,
        "cuts" => sizes.cuts,
        "bounds" => sizes.bounds,
        "rows" => sizes.rows,
        "flows" => sizes.flows,
        "dropped" => cpus * LOGGED,
        _ => return None,
    })
}

/// Loads both programs with empty tables.
pub(super) fn load(sizes: &Sizes) -> Result<(Object, Tables), Error> {
    check_may_load()?;
    let program = FROM_CONTAINER;
    let failed = |source| Error::Load { program, source };
    let cpus = libbpf_rs::num_possible_cpus().map_err(failed)? as u32;
    let mut builder = ObjectBuilder::default();
    builder.name("vrouter").map_err(failed)?;
    let mut open = builder.open_memory(OBJECT).map_err(failed)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(entries) = entries_of(&name, sizes, cpus) {
            let refused = |source| Error::Map { map: "of the vRouter", operation: "size", source };
            map.set_max_entries(entries).map_err(refused)?;
        }
    }
    let object = said::load(open, program)?;
    let tables = Tables::of(&object)?;
    Ok((object, tables))
}
