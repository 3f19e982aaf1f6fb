//! Where nodes live, asked as a runner asks it: whatever crosses the seam can be sent as JSON.

use std::path::Path;
use std::process::Stdio;

use rig_sys::cpu::CpuSet;
use rig_testbed::host::{Host, Local, Mark, Window, clock_offset};
use rig_testbed::plan::Plan;
use rig_testbed::topology::{Endpoint, Topology};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::world;

/// What the other side of a wire would have of it.
fn sent<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn plan(path: &str) -> (Topology, [Endpoint; 2], Plan) {
    let (topology, ends) = Topology::smallest(path.parse().unwrap()).unwrap();
    let cpu = CpuSet::new([CpuSet::allowed().unwrap().as_slice()[0]]);
    let plan = sent(&topology.plan(&[cpu.clone(), cpu]));
    (topology, ends, plan)
}

/// What a program says that is started in a namespace.
fn said(host: &dyn Host, space: &str, program: &str, arguments: &[&str]) -> String {
    let mut command = host.command(space, Path::new(program)).unwrap();
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn nodes_are_built_entered_counted_and_removed() {
    world::own(|| {
        let namespaces = world::network_namespaces();
        let mut host = Local::new();
        let facts = sent(&host.facts().unwrap());
        assert!(!facts.kernel.is_empty() && !facts.cpus.is_empty() && !facts.accounting.is_empty(), "{facts:?}");
        for path in ["etun", "raw"] {
            let (topology, [from, to], plan) = plan(path);
            host.apply(&plan).unwrap();
            host.apply(&sent(&topology.plan_of_pools())).unwrap();
            let address = topology.address(&to).unwrap().to_string();
            let begin: Mark = sent(&host.mark().unwrap());
            // Nobody listens: each is answered by a reset.
            let knock = format!("for i in 1 2 3; do (exec 3<>/dev/tcp/{address}/5001) 2> /dev/null; done; true");
            said(&host, &from.to_string(), "bash", &["-c", &knock]);
            let end = sent(&host.mark().unwrap());
            assert!(begin.at_ns < end.at_ns);
            let window: Window = sent(&host.between(begin, end).unwrap());
            let names: Vec<&str> = window.nodes.iter().map(|node| node.name.as_str()).collect();
            assert_eq!(names, ["a", "b"]);
            for node in &window.nodes {
                let uplink = node.interfaces.iter().find(|own| own.name == format!("{}:eth0", node.name)).unwrap();
                assert!(uplink.rx_packets >= 3 && uplink.tx_packets >= 3, "{path}: {uplink:?}");
                assert_eq!(node.cpus.len(), 1, "{path}");
            }
            host.forget(begin).unwrap();
            assert!(host.between(begin, end).is_err(), "counters that nobody wants any more are kept");
            let elsewhere = host.command("a/nobody", Path::new("true"));
            assert!(elsewhere.is_err(), "a namespace that no plan named was entered");
            host.tear_down().unwrap();
            assert_eq!(world::network_namespaces(), namespaces, "{path}: a namespace is left");
            assert!(host.mark().is_ok_and(|mark| host.between(mark, mark).unwrap().nodes.is_empty()));
        }
    });
}

/// A part that names what it does not have is refused, and a host that refused goes on.
#[test]
fn a_plan_that_does_not_hold_together_is_refused_by_name() {
    world::own(|| {
        let (_, _, whole) = plan("etun");
        let refused = |change: fn(&mut Plan), named: &str| {
            let mut plan = whole.clone();
            change(&mut plan);
            let mut host = Local::new();
            let error = format!("{:#}", host.apply(&plan).unwrap_err());
            assert!(error.contains(named), "'{error}' lacks '{named}'");
            host.tear_down().unwrap();
            host.apply(&whole).unwrap();
        };
        refused(|plan| plan.wires[0].ends[1].space = "c".into(), "find c in the plan");
        refused(|plan| plan.wires[0].ends[1] = plan.wires[0].ends[0].clone(), "a wire from a to a");
        refused(|plan| drop(plan.nodes[0].spaces.pop()), "a/sender");
        refused(|plan| plan.nodes[0].spaces[0].routes[0].via = Some([192, 0, 2, 1].into()), "192.0.2.1");
    });
}

/// On one machine both clocks are the same one.
#[test]
fn the_clock_of_this_machine_is_off_by_no_more_than_its_bound() {
    let offset = clock_offset(&Local::new()).unwrap();
    assert!(offset.ns.unsigned_abs() <= offset.bound_ns, "{offset:?}");
}
