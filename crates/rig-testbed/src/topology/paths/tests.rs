use std::collections::BTreeSet;

use super::*;

/// The path of this name.
pub(crate) fn named(name: &str) -> Path {
    name.parse().unwrap()
}

#[test]
fn paths_have_names_of_their_own_and_are_written_by_them() {
    let names: BTreeSet<&str> = Path::all().map(Path::name).collect();
    assert_eq!(names.len(), REGISTRY.len());
    for path in Path::all() {
        let json = serde_json::to_string(&path).unwrap();
        assert_eq!(json, format!("\"{path}\""));
        assert_eq!(serde_json::from_str::<Path>(&json).unwrap(), path);
    }
    let error = "tunnel".parse::<Path>().unwrap_err();
    assert!(error.hint.starts_with("paths are raw, etun, bridge, macvlan, "), "{error}");
    assert!(serde_json::from_str::<Path>("\"tunnel\"").is_err());
}

#[test]
fn each_path_makes_its_smallest_testbed_and_knows_one_without_anything() {
    for path in Path::all() {
        let (topology, ends) = Topology::smallest(path).unwrap();
        match path.addresses_are_given() {
            true => assert_eq!(topology.address(&ends[0]), None, "{path}"),
            false => assert_ne!(topology.address(&ends[0]), topology.address(&ends[1]), "{path}"),
        }
        let bare = path.without_anything();
        assert!(bare.is_bare() && bare.is_of_three() == path.is_of_three(), "{path}: {bare}");
        assert_eq!(path.is_bare(), bare == path, "{path}");
    }
}

#[test]
fn what_a_path_inside_one_node_cannot_have_is_refused_with_the_reason() {
    let topology = |path: &str, nodes: &[&str], ends: &[&str]| {
        let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        let ends: Vec<Endpoint> = ends.iter().map(|end| end.parse().unwrap()).collect();
        let wire = (nodes.len() > 1).then(crate::topology::WireOptions::default);
        Topology::new(&nodes, wire, named(path), &ends)
    };
    assert!(topology("veth", &["a"], &["a/x", "a/y"]).is_ok() && topology("cni", &["a"], &["a/x", "a/y"]).is_ok());
    let three = topology("veth", &["a"], &["a/x", "a/y", "a/z"]).unwrap_err().to_string();
    assert!(three.contains("a veth pair has two ends"), "{three}");
    let two = topology("cni", &["a", "b"], &["a/x", "b/y"]).unwrap_err().to_string();
    assert!(two.contains("a plug-in joins containers of one machine"), "{two}");
}

#[test]
fn each_path_is_explained() {
    let manual = include_str!("../../../../../docs/REFERENCE.md");
    for path in Path::all() {
        assert!(manual.contains(&format!("| `{path}` | ")), "docs/REFERENCE.md has no row for path {path}");
    }
}
