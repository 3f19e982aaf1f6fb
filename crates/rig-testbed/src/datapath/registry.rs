//! The datapaths that a program has.

use super::Datapath;

/// Datapaths by name. The binary hands one on: what makes trials knows none of them by itself.
#[derive(Debug, Clone, Copy)]
pub struct Registry(&'static [&'static dyn Datapath]);

impl Registry {
    /// Without any.
    pub const NONE: Self = Self(&[]);

    pub const fn new(datapaths: &'static [&'static dyn Datapath]) -> Self {
        Self(datapaths)
    }

    pub fn find(&self, name: &str) -> Option<&'static dyn Datapath> {
        self.all().find(|datapath| datapath.name() == name)
    }

    pub fn all(&self) -> impl Iterator<Item = &'static dyn Datapath> + use<> {
        self.0.iter().copied()
    }

    /// Their names, for messages.
    pub fn names(&self) -> String {
        self.all().map(Datapath::name).collect::<Vec<_>>().join(", ")
    }
}
