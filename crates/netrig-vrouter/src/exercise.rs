//! Settings from bytes of a fuzzer.

use std::collections::{BTreeMap, BTreeSet};

use rig_datapath::vrouter::Peer;
use rig_datapath::vrouter::model::Model;

use crate::bgp::exchanged;
use crate::check::would_do;
use crate::compile::{KernelInterface, Numbers, Site, compile};
use crate::routes::{FileRoutes, RouteSource, RouteTable};
use crate::settings::Settings;

/// Where everything of the settings is that a node is asked for, or nothing.
fn site(settings: &Settings, name: &str, is_there: bool) -> Site {
    let mut site = Site { notes: BTreeSet::from(["made up".to_owned()]), ..Site::default() };
    if !is_there {
        return site;
    }
    let interfaces = settings.interfaces_of(name).zip(1..);
    site.interfaces =
        interfaces.map(|((name, own), index)| (name.clone(), KernelInterface { index, mac: Some(own.mac) })).collect();
    let peers = settings.nodes.values().map(|node| {
        let mtu = node.mtu.unwrap_or(1500);
        (node.address, Peer { interface: 1_000_000, gateway: node.address, mtu })
    });
    site.peers = peers.collect::<BTreeMap<_, _>>();
    site.peers.extend(
        settings
            .analysers
            .values()
            .map(|analyser| (analyser.address, Peer { interface: 1_000_001, gateway: analyser.address, mtu: 1500 })),
    );
    site
}

/// Reads settings, as a file has them, and makes each node's configuration of them, with all that they name and with nothing of
/// it. An error is an answer. How many configurations there were.
///
/// # Panics
/// When one of them is none that the datapath takes.
pub fn exercise(text: &str) -> usize {
    let Ok(settings) = Settings::parse("vrouter.toml", text).map_err(|error| error.to_string()) else { return 0 };
    let mut count = 0;
    for name in settings.nodes.keys() {
        let (mut numbers, mut routes) = (Numbers::default(), RouteTable::default());
        let of_file = FileRoutes::new(&settings, name).updates().unwrap_or_default();
        let by_bgp = exchanged(&settings, name).since(&RouteTable::default());
        for update in of_file.into_iter().chain(by_bgp) {
            routes.apply(update);
        }
        assert!(!would_do(&settings, name).is_empty());
        for is_there in [true, false, true] {
            let site = site(&settings, name, is_there);
            let Ok(compiled) = compile(&settings, name, &site, &routes, &mut numbers) else { continue };
            let verdict = compiled.config.validate();
            assert!(verdict.is_ok(), "{verdict:?}");
            Model::new(1).apply(&compiled.config);
            count += 1;
        }
    }
    count
}
