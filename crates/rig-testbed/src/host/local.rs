//! This machine as a host: its nodes are namespaces of this process.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rig_datapath::cputime::{Member, Place as Counted};
use rig_sys::clock::monotonic_ns;
use rig_sys::cpu::{CpuSet, shared_cores};
use rig_sys::process::{die_with_parent, in_namespace};

use super::{Facts, Host, Mark, Window};
use crate::accounting::Accountant;
use crate::meter::Reading;
use crate::namespaces::{Namespaces, NodeSpaces};
use crate::plan::Plan;

/// Nodes in namespaces of this process, and their counters.
#[derive(Debug)]
pub struct Local {
    nodes: Namespaces,
    accountant: Accountant,
    /// By node, where its CPU time is counted apart, with what belongs to it.
    counted: Vec<(Option<Counted>, Vec<Member>)>,
    marks: BTreeMap<u64, Reading>,
    next: u64,
}

impl Local {
    /// CPU time is counted from now on.
    pub fn new() -> Self {
        Self {
            nodes: Namespaces::default(),
            accountant: Accountant::start(),
            counted: Vec::new(),
            marks: BTreeMap::new(),
            next: 0,
        }
    }

    fn marked(&self, mark: Mark) -> Result<&Reading> {
        self.marks.get(&mark.number).context("find counters that were read: the mark is forgotten")
    }

    fn count_apart(&mut self) -> Result<()> {
        self.count_together();
        for node in self.nodes.nodes() {
            let members = node.places().iter().map(|place| Ok(Member::Namespace(place.ns.inode()?)));
            let members = members.collect::<Result<Vec<Member>>>()?;
            self.counted.push((self.accountant.watch(members.iter().copied()), members));
        }
        Ok(())
    }

    fn count_together(&mut self) {
        for (place, members) in self.counted.drain(..) {
            if let Some(place) = place {
                self.accountant.forget(place, members);
            }
        }
    }
}

impl Default for Local {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for Local {
    fn facts(&self) -> Result<Facts> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").context("read the kernel's release")?;
        Ok(Facts {
            kernel: kernel.trim().to_owned(),
            cpus: CpuSet::allowed()?,
            cores: shared_cores(),
            accounting: self.accountant.words(),
        })
    }

    fn apply(&mut self, part: &Plan) -> Result<()> {
        self.nodes.apply(part)?;
        self.count_apart()
    }

    fn command(&self, space: &str, program: &Path) -> Result<Command> {
        let mut places = self.nodes.nodes().iter().flat_map(NodeSpaces::places);
        let place = places.find(|place| place.name == space).with_context(|| format!("find {space}"))?;
        let mut command = Command::new(program);
        in_namespace(die_with_parent(&mut command), &place.ns);
        Ok(command)
    }

    fn now(&self) -> Result<u64> {
        Ok(monotonic_ns())
    }

    fn mark(&mut self) -> Result<Mark> {
        let reading = Reading::of(self.nodes.nodes(), &self.accountant)?;
        let mark = Mark { number: self.next, at_ns: reading.at_ns };
        self.next += 1;
        self.marks.insert(mark.number, reading);
        Ok(mark)
    }

    fn between(&self, begin: Mark, end: Mark) -> Result<Window> {
        let (begin, end) = (self.marked(begin)?, self.marked(end)?);
        let places: Vec<Option<Counted>> = self.counted.iter().map(|(place, _)| *place).collect();
        Ok(Window { nodes: begin.until_of(end, self.nodes.nodes(), &places), throttled_us: begin.throttled_until(end) })
    }

    fn forget(&mut self, mark: Mark) -> Result<()> {
        self.marks.remove(&mark.number);
        Ok(())
    }

    fn tear_down(&mut self) -> Result<()> {
        self.count_together();
        self.marks.clear();
        self.nodes = Namespaces::default();
        Ok(())
    }
}
