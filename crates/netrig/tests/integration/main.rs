//! All tests of this crate that stand outside of it: one executable, which is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

mod benches;
mod card;
mod cli;
mod compare;
mod corpus;
mod doctor;
mod dperf;
mod ends;
mod import;
mod iperf3;
mod ipvsadm;
mod lb;
mod lb_e2e;
mod machine;
mod netperf;
mod ntttcp;
#[path = "../../../rig-datapath/tests/integration/pool.rs"]
mod pool;
mod sctp;
mod spread;
mod stdio;
mod store;
mod suite_schema;
mod top;
mod units;
mod vrouter;
mod workspace;
mod world;
