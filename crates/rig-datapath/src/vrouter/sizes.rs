//! How large the tables are.

use crate::Error;

/// Elements of the vRouter's tables, which are made when it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Containers' interfaces, up to 2^24 - 1; 828 bytes each, and 760 more for each CPU.
    pub interfaces: u32,
    pub next_hops: u32,
    /// Next hops with several ways.
    pub ways: u32,
    /// Networks whose frames to all are copied, 4,104 bytes each; twice as many as there are at a time, as of lists.
    pub floods: u32,
    /// Routes to single addresses; memory is taken as they come.
    pub hosts: u32,
    /// Other routes; memory is taken as they come.
    pub prefixes: u32,
    /// MAC addresses; memory is taken as they come.
    pub macs: u32,
    /// VXLAN network identifiers.
    pub vnis: u32,
    /// Other routers.
    pub peers: u32,
    /// Lists of rules, twice as many as there are at a time: a changed one is made beside the old one.
    pub lists: u32,
    /// Ranges of addresses of all lists, 24 bytes each.
    pub cuts: u32,
    /// Ranges of ports of all lists, 8 bytes each.
    pub bounds: u32,
    /// Rows of rules of all lists, 128 bytes each.
    pub rows: u32,
    /// Rules of all lists in which a rule has more done than to allow or to deny, 4 bytes each.
    pub alsos: u32,
    /// Services of all interfaces whose flows are fat; memory is taken as they come.
    pub fat: u32,
    /// Directions of flows, two for each connection, 168 bytes each.
    pub flows: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            interfaces: 1024,
            next_hops: 8192,
            ways: 256,
            floods: 256,
            hosts: 1 << 20,
            prefixes: 1 << 16,
            macs: 1 << 16,
            vnis: 4096,
            peers: 4096,
            lists: 2048,
            cuts: 1 << 16,
            bounds: 1 << 16,
            rows: 1 << 16,
            alsos: 1 << 16,
            fat: 1 << 16,
            flows: 1 << 18,
        }
    }
}

impl Sizes {
    pub(super) fn validate(&self) -> Result<(), Error> {
        let all = [
            ("interfaces", self.interfaces),
            ("next hops", self.next_hops),
            ("next hops with several ways", self.ways),
            ("networks with frames to all", self.floods),
            ("routes to addresses", self.hosts),
            ("routes", self.prefixes),
            ("MAC addresses", self.macs),
            ("network identifiers", self.vnis),
            ("peers", self.peers),
            ("lists of rules", self.lists),
            ("ranges of addresses", self.cuts),
            ("ranges of ports", self.bounds),
            ("rows of rules", self.rows),
            ("rules that log", self.alsos),
            ("services with fat flows", self.fat),
            ("flows", self.flows),
        ];
        match all.into_iter().find(|(_, size)| *size == 0) {
            Some((what, _)) => Err(Error::NoRoom { what, room: 0, wanted: 1 }),
            None if self.interfaces >= 1 << 24 => {
                Err(Error::NoRoom { what: "interfaces", room: (1 << 24) - 1, wanted: self.interfaces as usize })
            }
            None => Ok(()),
        }
    }
}
