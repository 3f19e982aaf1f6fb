//! netrig on the machine itself: namespaces, processes, signals. Everything that needs privileges or looks at the whole
//! machine is in this one binary, one test at a time; see [`world`] for how a test gets a world of its own.

mod agent_processes;
mod agents;
mod attribution;
mod bench;
mod benchmark;
mod cni;
mod docker;
mod dut;
mod files;
mod host;
mod inside;
mod interfaces;
mod iperf3;
mod kept;
mod killed;
mod lacking;
mod lanes;
mod layers;
mod ledger;
mod limits;
mod loads;
mod on_hosts;
mod packets;
mod pairs;
mod paths;
mod pods;
mod programme;
mod reach;
mod rootless;
mod sampled;
mod set;
mod spin;
mod spreader;
mod stalled;
mod turns;
mod vrouter;
mod vrouter_cni;
mod vrouter_docker;

use crate::world;
