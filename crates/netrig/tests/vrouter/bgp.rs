//! Two nodes whose files know nothing of each other, each with a gobgpd.

use std::fs;
use std::process::{Child, Command, Stdio};

use rig_skip::{Lack, skip};
use rig_sys::process::in_namespace;

use crate::lab::{Lab, PATIENCE, exchange, run};
use crate::world::until;
use crate::{retransmitted, with_lab};

/// A speaker on a node, and its neighbour on the other one.
struct Speaker {
    child: Child,
}

impl Drop for Speaker {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

const AGAIN: &[&str] = &["--graceful-restart"];

impl Speaker {
    fn start(lab: &Lab, node: usize, more: &[&str]) -> Self {
        let addresses = ["192.0.2.1", "192.0.2.2"];
        let families = ["l3vpn-ipv4-unicast", "l3vpn-ipv6-unicast", "l2vpn-evpn"].map(|family| {
            format!(
                "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = '{family}'\n\
                 [neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n"
            )
        });
        let text = format!(
            "[global.config]\nas = 64512\nrouter-id = '{}'\n\
             [[neighbors]]\n[neighbors.config]\nneighbor-address = '{}'\npeer-as = 64512\n\
             [neighbors.timers.config]\nconnect-retry = 1\nidle-hold-time-after-reset = 1\n\
             [neighbors.graceful-restart.config]\nenabled = true\nrestart-time = 100\n{}",
            addresses[node],
            addresses[1 - node],
            families.concat()
        );
        let file = lab.write(&format!("gobgpd-{node}.toml"), &text);
        let log = fs::File::create(lab.path(&format!("gobgpd-{node}.log"))).unwrap();
        let mut command = Command::new("gobgpd");
        command.args(["-f", &file, "--pprof-disable"]).args(more).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Self { child: in_namespace(&mut command, &lab.nodes[node]).spawn().unwrap() }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What a node's speaker lists.
fn listed(lab: &Lab, node: usize, family: &str) -> String {
    let mut command = Command::new("gobgp");
    let output = in_namespace(command.args(["global", "rib", "-a", family]), &lab.nodes[node]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn with_speakers(test: impl FnOnce(&Lab)) {
    let is_there = |program| Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
    for program in ["gobgpd", "gobgp"] {
        if let Err(error) = is_there(program) {
            return skip(Lack::Program("gobgpd"), format_args!("{program}: {error}"));
        }
    }
    with_lab(|lab| {
        for node in &lab.nodes {
            run(node, "link set lo up");
        }
        test(lab);
    });
}

const COMMON: &str = r#"
[router.bgp]
keep = "100s"

[[network]]
name = "red"
subnets = ["10.1.0.0/24"]
policies = ["both"]
[[network]]
name = "blue"
subnets = ["10.2.0.0/24"]
policies = ["both"]
route_targets = ["64512:200"]
[[policy]]
name = "both"
rules = [{ action = "allow", source = "red", destination = "blue" }]
[[security_group]]
name = "web"
in = [{ protocol = "tcp", ports = 8080, remote_group = "client" }]
[[security_group]]
name = "client"
"#;
const NODES: [&str; 2] =
    ["[[node]]\nname = 'a'\naddress = '192.0.2.1'\n", "[[node]]\nname = 'b'\naddress = '192.0.2.2'\n"];
const INTERFACES: [&str; 2] = [
    "[[interface]]\nname = 'client'\nnode = 'a'\nnetwork = 'red'\nnamespace = 'client'\naddresses = ['10.1.0.11']\n\
     mac = '02:00:00:00:00:01'\nsecurity_groups = ['client']\n",
    "[[interface]]\nname = 'web'\nnode = 'b'\nnetwork = 'blue'\ndevice = 'toweb'\naddresses = ['10.2.0.11']\n\
     mac = '02:00:00:00:00:02'\nsecurity_groups = ['web']\n",
];

#[test]
fn nodes_learn_each_others_containers_by_bgp() {
    with_speakers(|lab| {
        let files =
            [0, 1].map(|node| lab.write(&format!("{node}.toml"), &[COMMON, NODES[node], INTERFACES[node]].concat()));
        let _routers = [0, 1].map(|node| lab.start(node, &files[node]));
        lab.plug_web();
        let mut speakers = [0, 1].map(|node| Speaker::start(lab, node, &[]));
        let mut stream = lab.connect();
        exchange(&mut stream);
        println!("{}", listed(lab, 1, "vpnv4"));
        println!("{}", listed(lab, 1, "evpn"));
        println!("{}", lab.netrig(0, 0, &["status", "--node", "a"]).0);
        speakers[0].kill();
        exchange(&mut stream);
        let _ = (retransmitted(), until(PATIENCE, || Some(())), AGAIN);
    });
}
