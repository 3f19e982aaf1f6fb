//! What it takes and leaves, is told and tells, where it is of no importance who else has the CPUs.

use std::fs;
use std::process::{Command, Stdio};

use rig_sys::process::in_namespace;
use rustix::process::Signal;

use super::lab::TIMEOUT;
use super::load::{becomes, ip_link, on, under_load};
use super::with_lab;
use super::world::{Unprivileged, until};

#[test]
fn what_is_for_one_machine_with_one_queue_is_spread_only_when_that_is_asked_for() {
    with_lab(|lab| {
        let why = "what is behind the interface has a single queue, and independent_host_spreading is off";
        let mut spreader = lab.start(&["in0", "--cpus", "0-1", "--mode", "static-vrss"]);
        becomes(lab, "spread", |interface| on(interface) == [0, 1]);
        for arguments in ["link add br0 type bridge", "tuntap add tap0 mode tap", "link set in0 master br0"] {
            ip_link(&lab.receiver, arguments);
        }
        // Told while it runs, as links change.
        ip_link(&lab.receiver, "link set tap0 master br0");
        becomes(lab, "on one CPU", |interface| on(interface).len() == 1);
        let (said, _) = lab.netrig(0, &["get", "in0"]);
        assert!(said.contains(why), "{said}");
        lab.netrig(0, &["set", "in0", "--independent-host-spreading", "true"]);
        becomes(lab, "spread when asked for", |interface| on(interface) == [0, 1]);
        lab.netrig(0, &["set", "in0", "--independent-host-spreading", "false"]);
        becomes(lab, "on one CPU again", |interface| on(interface).len() == 1);
        // Two machines have a queue each.
        ip_link(&lab.receiver, "tuntap add tap1 mode tap");
        ip_link(&lab.receiver, "link set tap1 master br0");
        becomes(lab, "spread for two", |interface| on(interface) == [0, 1]);
        ip_link(&lab.receiver, "link del tap0");
        becomes(lab, "for one again", |interface| on(interface).len() == 1);
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
    });
}

#[test]
fn a_killed_spreader_leaves_no_masks_and_no_program() {
    with_lab(|lab| {
        let before = lab.as_it_is("in0");
        for kind in ["rps", "cpumap", "cpumap-bounded"] {
            let mut spreader = lab.start(&["in0", "--actuator", kind, "--mode", "static-vrss", "--cpus", "0-1"]);
            under_load(lab, 0, || {
                assert_eq!(lab.json()["interfaces"][0]["actuator"], kind);
                spreader.signal(Signal::KILL);
                spreader.ended(None);
            });
            let restored = until(TIMEOUT, || (lab.as_it_is("in0") == before).then_some(()));
            assert!(restored.is_some(), "after {kind}: {:?}", lab.as_it_is("in0"));
            // With a program still there, it could have none.
            let could = || {
                let (could, _) = lab.netrig(0, &["probe", "in0"]);
                could.contains("\n  cpumap (when it is named): ").then_some(())
            };
            assert!(until(TIMEOUT, could).is_some(), "after {kind}: {}", lab.netrig(0, &["probe", "in0"]).0);
        }
    });
}

#[test]
fn an_interface_that_disappears_under_load_is_left_and_taken_when_it_is_back() {
    with_lab(|lab| {
        let mut spreader = lab.start(&["in*", "--cpus", "0-1"]);
        under_load(lab, 0, || {
            becomes(lab, "packets", |interface| interface["received"]["packets"].as_u64() > Some(1000));
            lab.unplug("in0");
            spreader.says("in0: left: gone");
        });
        lab.plug("in0");
        let again = until(TIMEOUT, || (spreader.said().matches("in0: taken by").count() == 2).then_some(()));
        assert!(again.is_some(), "{}", spreader.said());
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
    });
}

#[test]
fn events_are_followed_to_the_end_of_the_spreader() {
    with_lab(|lab| {
        let mut spreader = lab.start(&["in0", "--mode", "static-vmq", "--base", "0", "--cpus", "0-1"]);
        let seen = lab.path("events");
        let mut command = lab.command(&["events", "in0", "--follow"]);
        let mut follower = command.stdout(fs::File::create(&seen).unwrap()).stderr(Stdio::inherit()).spawn().unwrap();
        let says = |what: &str| {
            let heard = until(TIMEOUT, || fs::read_to_string(&seen).unwrap().contains(what).then_some(()));
            assert!(heard.is_some(), "no '{what}': {}", fs::read_to_string(&seen).unwrap());
        };
        says("in0 taken by");
        lab.netrig(0, &["set", "in0", "--base", "1"]);
        says("from CPU 0 to 1: mode");
        says("went there");
        assert!(follower.try_wait().unwrap().is_none(), "it has ended while the spreader runs");
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
        let ended = until(TIMEOUT, || follower.try_wait().unwrap());
        assert_eq!(ended.map(|status| status.code()), Some(Some(0)));
    });
}

#[test]
fn a_file_that_is_read_again_takes_nothing_from_the_command_line_and_any_takes_back_what_was_set() {
    with_lab(|lab| {
        lab.plug("in1");
        let file = lab.path("spread.toml");
        fs::write(&file, "[[interface]]\nname = \"in0\"\nmode = \"static-vrss\"\n").unwrap();
        let file = file.display().to_string();
        let mut spreader = lab.start(&["in1", "--mode", "static-vmq", "--base", "1", "--file", &file]);
        let modes = || -> Vec<String> {
            let interfaces = lab.json()["interfaces"].as_array().unwrap().clone();
            interfaces.iter().map(|one| format!("{} {}", one["name"], one["requested"]["mode"])).collect()
        };
        let both = ["\"in0\" \"static-vrss\"", "\"in1\" \"static-vmq\""];
        assert_eq!(modes(), both);
        lab.netrig(0, &["reload"]);
        assert_eq!(modes(), both, "{}", spreader.said());
        assert!(!spreader.said().contains("left"), "{}", spreader.said());

        let requested = |key: &str| lab.json()["interfaces"][1]["requested"][key].clone();
        lab.netrig(0, &["set", "in1", "--base", "0", "--cpus", "0"]);
        assert_eq!((requested("base"), requested("cpus")), (0.into(), serde_json::json!([0])));
        lab.netrig(0, &["set", "in1", "--base", "any", "--cpus", "any"]);
        assert_eq!((requested("base"), requested("cpus")), Default::default());
        let (_, said) = lab.netrig(2, &["set", "in1", "--base", "some"]);
        assert!(said.contains("neither 'any' nor a value"), "{said}");
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
    });
}

#[test]
fn without_privilege_it_says_what_it_lacks_and_takes_nothing() {
    with_lab(|lab| {
        let user = Unprivileged::new(true);
        // The namespace is entered as root, and then root's rights are given up.
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(user.path("netrig"));
        command.args(["spread", "run", "in0"]).env("NETRIG_RUN", user.path("run")).current_dir("/");
        let before = lab.as_it_is("in0");
        let output = in_namespace(&mut command, &lab.receiver).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("run netrig as root, or give it CAP_BPF"), "{said}");
        assert_eq!(lab.as_it_is("in0"), before);
    });
}
