//! The datapaths that netrig has, each a module that knows nothing of the others and of suites, and a line of [`ALL`].

#![forbid(unsafe_code)]

mod arguments;
mod balancer;
mod cni;
mod docker;
mod haproxy;
mod ipvs;
mod nftables;
mod node;
mod outage;
mod spin;
mod spreader;
mod vrouter;

use rig_testbed::datapath::{DatapathRegistry, DatapathRequest, Mistake, Settings};

/// All of them.
pub const ALL: DatapathRegistry = DatapathRegistry::new(&[
    &balancer::Balancer,
    &nftables::Nftables,
    &haproxy::Haproxy,
    &ipvs::Ipvs,
    &vrouter::Vrouter,
    &cni::Cni,
    &docker::Docker,
    &spreader::Spreader,
    &outage::Outage,
    &spin::SpinDatapath,
]);

/// Weight of each backend: they are alike.
const WEIGHT: u32 = 100;
/// How long connections are remembered, seconds: the study's figures, which are DPVS's.
const ESTABLISHED: u32 = 90;
const SYN_RECEIVED: u32 = 30;
const CLOSING: u32 = 7;
const DATAGRAMS: u32 = 300;

/// What is wrong where something that takes no settings, and carries clients' connections to servers, is asked for.
fn carries_as_it_is(name: &str, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
    stands_between(name, asked)?;
    match asked.settings.keys().next() {
        None => Ok(()),
        Some(key) => Err(Mistake::new(format!("{name} has no setting '{key}'"), "remove it").at(key)),
    }
}

fn stands_between(name: &str, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
    if asked.services.is_some() {
        return Ok(());
    }
    let what = format!("{name} carries connections of clients to servers, and this node is not between such");
    Err(Mistake::new(what, format!("use path {name}")))
}

/// Settings of what has none.
fn none() -> Settings {
    Settings::new()
}
