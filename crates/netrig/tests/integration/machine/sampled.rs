//! Stacks of CPUs, sampled by the host that has them: this process, or another.

use std::fs;
use std::process::Command;

use rig_facts::flame::{HERTZ, PROGRAM};
use rig_facts::record::{Profile, TrialRecord};
use rig_facts::store::Store;
use rig_skip::{Lack, skip};

use super::agent_processes::HOSTS;
use super::world::{self, expect, netrig};

/// What a run leaves, made on a host, and its report as a page.
fn run_on(host: &str) -> (TrialRecord, String) {
    let directory = tempfile::tempdir().unwrap();
    let (store, suite) = (directory.path().join("runs.sqlite"), directory.path().join("balancer.toml"));
    fs::write(&suite, world::balancer_at_a_rate()).unwrap();
    let options = ["--quick", "--trials", "1", "--window", "500ms", "--no-aa", "--only", "cps-balancer-1", "--layers"];
    let mut command = netrig();
    command.arg("run").arg(&suite).args(["--host", host]).args(options).arg("--store").arg(&store);
    expect(&command.output().unwrap(), 0);
    let (page, _) = expect(&netrig().args(["report", "--format", "html", "--store"]).arg(&store).output().unwrap(), 0);
    let store = Store::open_to_read(&store).unwrap();
    (store.run(store.latest().unwrap()).unwrap().trials.remove(0), page)
}

fn has(profile: &Profile, is_one: impl Fn(&str) -> bool) -> bool {
    profile.stacks.iter().any(|(stack, _)| is_one(stack))
}

#[test]
fn each_host_gives_the_same_kind_of_flame_graph() {
    if let Err(error) = rig_sys::perf::probe() {
        return skip(Lack::Sampling, error);
    }
    world::own_among_processes(|| {
        if world::rig().is_none() {
            return;
        }
        let [(local, page), (child, page_of_child)] = HOSTS.map(run_on);
        let of_dut = |trial: &TrialRecord| trial.dut.as_ref().unwrap().profile.clone().unwrap();
        let (one, other) = (of_dut(&local), of_dut(&child));
        assert_eq!((one.hertz, one.clock, &one.cpus), (other.hertz, other.clock, &other.cpus));
        assert_eq!(one.hertz, HERTZ);
        for (profile, page) in [(&one, &page), (&other, &page_of_child)] {
            let what = || format!("{:#?}", profile.stacks);
            assert_eq!(profile.samples, profile.stacks.iter().map(|(_, count)| count).sum::<u64>());
            // The balancer's program by its name.
            let is_program = |frame: &str| frame.starts_with("bpf:balance") && frame.ends_with(PROGRAM);
            assert!(has(profile, |stack| stack.split(';').any(is_program)), "{}", what());
            assert!(page.contains("figure class=\"flame\""), "no flame graph");
        }
        for trial in [&local, &child] {
            let layers = trial.layers.as_ref().unwrap();
            for name in ["client", "server"] {
                let node = layers.nodes.iter().find(|node| node.node == name).unwrap();
                let profile = node.profile.as_ref().unwrap();
                // This program's: those of others, such as a test that runs beside this one, have that in front.
                let is_worker = |stack: &str| stack.starts_with("packets-");
                assert!(has(profile, is_worker), "{:#?}", profile.stacks);
            }
        }
    });
}

#[test]
fn each_host_says_alike_why_stacks_are_not_sampled() {
    world::own(|| {
        let few_rights = ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin"];
        let by = |program: &str| {
            let mut command = Command::new(few_rights[0]);
            command.arg(few_rights[1]).arg(program);
            command
        };
        if !world::is_root() || !by("true").status().is_ok_and(|status| status.success()) {
            return skip(Lack::Program("util-linux"), "rights cannot be taken away");
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("suite.toml");
        let text = "name = \"sampled\"\ntitle = \"Sampled\"\n\
             [defaults]\nwindow = \"100ms\"\nwarm_up = \"0s\"\ncool_down = \"0s\"\n\
             [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {}\n\
             [[scenario]]\nid = \"A\"\nname = \"A\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
             load = { kind = \"tcp-stream\", message = \"16k\" }\n";
        for (profile, options) in [("profile = true\n", &[][..]), ("", &["--layers"])] {
            fs::write(&file, format!("{text}{profile}")).unwrap();
            let said = HOSTS.map(|host| {
                let mut command = by(env!("CARGO_BIN_EXE_netrig"));
                command.arg("run").arg(&file).args(["--host", host, "--store", "/dev/null"]).args(options);
                expect(&command.output().unwrap(), 3).1
            });
            assert!(said[0].contains("sample the stacks of CPU") && said[0].contains("CAP_PERFMON"), "{}", said[0]);
            assert_eq!(said[0], said[1], "{profile}");
        }
        world::assert_nothing_left("of what was refused");
    });
}
