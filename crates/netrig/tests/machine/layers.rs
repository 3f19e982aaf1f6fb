//! What each layer costs, by stacks sampled on this machine.

use rig_skip::{Lack, skip};
use rig_stats::confidence::Level;
use rig_study::layers::{LayersData, MUCH_UNKNOWN, Map, of_scenario};
use rig_study::record::TrialRecord;
use rig_study::run::Execute;
use rig_study::suite::Suite;

use crate::world;

/// A stream without segmentation offload, so that every layer has its part of each packet.
fn suite(path: &str, from: &str, to: &str) -> Suite {
    let text = format!(
        "name = \"by-layer\"\ntitle = \"By layer\"\n\
         [defaults]\nwindow = \"500ms\"\nwarm_up = \"50ms\"\ncool_down = \"20ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{ segmentation_offload = false }}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"{path}\"\nfrom = \"{from}\"\nto = \"{to}\"\n\
         load = {{ kind = \"tcp-stream\", message = \"16k\" }}\n"
    );
    Suite::parse("by-layer.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// The trial of a path with its samples; `None` where the machine gives none, which is told.
fn sampled(path: &str, from: &str, to: &str) -> Option<TrialRecord> {
    let mut rig = world::rig()?;
    if let Err(error) = rig.divide_by(Map::built_in()) {
        skip(Lack::Sampling, format_args!("{error:#}"));
        return None;
    }
    let suite = suite(path, from, to);
    Some(rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ()).unwrap())
}

fn percent(ends: &[LayersData], layer: &str) -> f64 {
    let parts = ends.iter().flat_map(|end| &end.parts).filter(|part| part.layer == layer);
    parts.map(|part| part.percent).fold(0.0, f64::max)
}

#[test]
fn the_layers_of_each_path_have_their_part_and_all_parts_add_up() {
    world::own_among_processes(|| {
        let paths = [
            ("raw", "a", "b", "ip"),
            ("etun", "a/sender", "b/receiver", "veth"),
            ("bridge", "a/sender", "b/receiver", "bridge"),
            ("macvlan", "a/sender", "b/receiver", "macvlan"),
            ("vxlan", "a/sender", "b/receiver", "vxlan"),
        ];
        for (path, from, to, layer) in paths {
            let Some(record) = sampled(path, from, to) else { return };
            let layers = record.layers.as_ref().unwrap();
            assert_eq!(layers.map, Map::built_in().digest());
            let ends = of_scenario(std::slice::from_ref(&record), Level::default());
            assert_eq!(ends.len(), 2, "{path}: {ends:#?}");
            for end in &ends {
                let sum: f64 = end.parts.iter().map(|part| part.mean).sum();
                assert!((sum - end.total).abs() <= 1e-9 * end.total, "{path}: {end:#?}");
                assert!(end.unknown_percent <= MUCH_UNKNOWN, "{path}: {end:#?}");
                // With offload switched off no stream of half a second leaves its CPU idle.
                assert!(end.samples > 50, "{path}: {end:#?}");
            }
            assert!(percent(&ends, layer) > 0.0, "{path} has no {layer}: {ends:#?}");
            assert!(percent(&ends, "socket") > 0.0 && percent(&ends, "copy") > 0.0, "{path}: {ends:#?}");
            // What the path does not have takes no time: of a stray packet at most.
            for other in ["bridge", "macvlan", "vxlan"].iter().filter(|other| **other != layer) {
                let is_below = path == "vxlan" && *other == "bridge";
                assert!(is_below || percent(&ends, other) < 1.0, "{path} has {other}: {ends:#?}");
            }
            let profile = layers.nodes[0].profile.as_ref().unwrap();
            assert!(!profile.stacks.is_empty());
        }
    });
}

/// The window that is measured has no samples of its own: what it counts is what it would count without.
#[test]
fn sampling_has_a_window_of_its_own() {
    world::own_among_processes(|| {
        let Some(record) = sampled("bridge", "a/sender", "b/receiver") else { return };
        let layers = record.layers.unwrap();
        assert!(layers.window_begin_ns >= record.window_end_ns, "{layers:?}");
        assert!(layers.totals.iter().all(|(_, total)| *total > 0.0) && layers.totals.len() >= 2, "{layers:?}");
    });
}
