//! What the machine lacks is said with its remedy before anything is built.

use std::fs;
use std::process::Command;

use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;

use crate::world::{self, expect, netrig};

/// A suite of one scenario.
fn suite(path: &str, load: &str) -> String {
    format!(
        "name = \"lacking\"\ntitle = \"Lacking\"\n\
         [defaults]\nwindow = \"100ms\"\nwarm_up = \"0s\"\ncool_down = \"0s\"\n\
         [defaults.load]\nkind = \"tcp-stream\"\nmessage = \"128k\"\n{load}\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"A\"\nname = \"A\"\ntestbed = \"two\"\npath = \"{path}\"\n\
         from = \"a/sender\"\nto = \"b/receiver\"\n"
    )
}

/// A place for a suite, a store and kept testbeds, where two nodes fit.
fn place() -> Option<tempfile::TempDir> {
    if CpuSet::allowed().unwrap().len() < 2 {
        skip(Lack::Cpus, "two nodes need two CPUs");
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}

#[test]
fn a_run_with_a_congestion_control_that_is_not_there_is_refused_and_a_testbed_is_not() {
    world::own(|| {
        let Some(directory) = place() else { return };
        let [file, store] = ["suite.toml", "runs.sqlite"].map(|name| directory.path().join(name));
        fs::write(&file, suite("bridge", "congestion_control = \"no-such\"")).unwrap();
        let output = netrig().arg("run").arg(&file).arg("--store").arg(&store).output().unwrap();
        let (out, err) = expect(&output, 3);
        assert_eq!(out, "");
        for said in ["'no-such'", "sudo modprobe tcp_no-such", "reno"] {
            assert!(err.contains(said), "'{err}' lacks '{said}'");
        }
        assert!(!store.exists(), "a store was made for a run that could not be");
        let scenario = format!("{}/A", file.display());
        for arguments in [&["up", &scenario][..], &["down"]] {
            expect(&netrig().args(arguments).env("NETRIG_RUN", directory.path()).output().unwrap(), 0);
        }
        world::assert_nothing_left("by a testbed that was taken down");
    });
}

/// Containers see their sysctls mounted read-only.
#[test]
fn a_testbed_that_cannot_be_built_here_is_refused_with_the_remedy() {
    world::own(|| {
        let Some(directory) = place() else { return };
        for options in [&["--bind", "/proc/sys", "/proc/sys"][..], &["-o", "remount,bind,ro", "/proc/sys"]] {
            let output = Command::new("mount").args(options).output().unwrap();
            if !output.status.success() {
                return skip(Lack::Mounts, world::text(&output.stderr));
            }
        }
        let file = directory.path().join("suite.toml");
        fs::write(&file, suite("etun", "")).unwrap();
        let scenario = format!("{}/A", file.display());
        let output = netrig().args(["up", &scenario]).env("NETRIG_RUN", directory.path()).output().unwrap();
        let (out, err) = expect(&output, 3);
        assert_eq!(out, "");
        for said in ["no paths etun and routed", "outside the container", "netrig doctor"] {
            assert!(err.contains(said), "'{err}' lacks '{said}'");
        }
        assert_eq!(err.matches("netrig: ").count(), 1, "{err}");
        world::assert_nothing_left("by what was refused");
    });
}
