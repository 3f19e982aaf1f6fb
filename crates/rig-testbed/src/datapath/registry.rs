//! The datapaths that a program has.

use anyhow::Result;

use super::{Datapath, Machine, Settings};
use crate::requirements::{MachineChecks, Missing};

/// Datapaths by name. The binary hands one on: what makes trials knows none of them by itself.
#[derive(Debug, Clone, Copy)]
pub struct DatapathRegistry(&'static [&'static dyn Datapath]);

impl DatapathRegistry {
    pub const fn new(datapaths: &'static [&'static dyn Datapath]) -> Self {
        Self(datapaths)
    }

    pub fn find(&self, name: &str) -> Option<&'static dyn Datapath> {
        self.all().find(|datapath| datapath.name() == name)
    }

    pub fn all(&self) -> impl Iterator<Item = &'static dyn Datapath> + use<> {
        self.0.iter().copied()
    }

    /// What a machine has to have for each.
    pub const fn on(self, machine: Machine) -> DatapathRequirements {
        DatapathRequirements { datapaths: self, machine }
    }

    /// Their names, for messages.
    pub fn names(&self) -> String {
        self.all().map(Datapath::name).collect::<Vec<_>>().join(", ")
    }
}

/// What a machine has to have for datapaths.
#[derive(Debug, Clone, Copy)]
pub struct DatapathRequirements {
    datapaths: DatapathRegistry,
    machine: Machine,
}

impl MachineChecks for DatapathRequirements {
    fn missing(&self, name: &str, settings: &Settings) -> Option<Missing> {
        self.datapaths.find(name).and_then(|datapath| datapath.missing(&self.machine, settings))
    }

    fn try_out(&self, name: &str) -> Result<()> {
        self.datapaths.find(name).map_or(Ok(()), Datapath::try_out)
    }
}
