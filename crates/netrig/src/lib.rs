//! netrig's parts; the binary in `main.rs` is their table of contents.
#![forbid(unsafe_code)]

pub mod cli;
pub mod command;
pub mod doctor;
pub mod manual;
pub mod tool;

use rig_cli::schema::Schema;
use rig_testbed::host::Build;

/// The JSON Schemas of suite files and of what is published, by file name in docs/schema.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    let ([doctor], [hosts, hosts_check]) = (doctor::schemas(), command::hosts::schemas());
    let suite = [("suite.json", rig_suite::suite::schema()), doctor, hosts, hosts_check];
    let services = [&netrig_lb::schemas()[..], &netrig_vrouter::schemas(), &netrig_spread::schemas()].concat();
    let services = [services, netrig_top::schemas().to_vec()].concat();
    let all = [&suite[..], &rig_verdict::export::schemas(), &netrig_tools::schemas(), &services];
    all.concat()
}

/// What this program was built from.
pub const BUILD: Build = Build { id: env!("NETRIG_BUILD"), commit: env!("NETRIG_COMMIT") };

#[cfg(test)]
mod tests {
    use super::BUILD;

    #[test]
    fn a_build_is_named_by_its_sources_and_its_compiler() {
        let source = BUILD.id.split(", ").next();
        assert!(BUILD.id.contains("rustc ") && source.is_some_and(|source| source.len() == 16), "{}", BUILD.id);
    }
}
