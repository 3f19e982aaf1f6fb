//! Two nodes whose files know nothing of each other, each with a gobgpd.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use rig_skip::{Lack, skip};
use rig_sys::process::in_namespace;
use rustix::process::Signal;
use serde_json::Value;

use super::flood::{ask, socket};
use super::lab::{Lab, TIMEOUT, exchange, run};
use super::with_lab;
use super::world::until;

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

impl Speaker {
    /// With the other node's speaker as its neighbour.
    fn start(lab: &Lab, node: usize, more: &[&str]) -> Self {
        let addresses = ["192.0.2.1", "192.0.2.2"];
        // GoBGP 3.10 ends with a nil pointer where EVPN has graceful restart and the neighbour goes.
        let graceful = "[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n";
        let families = [("l3vpn-ipv4-unicast", graceful), ("l3vpn-ipv6-unicast", graceful), ("l2vpn-evpn", "")];
        let families = families.map(|(family, graceful)| {
            format!("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = '{family}'\n{graceful}")
        });
        // Two that call each other at once may refuse each other again and again: one only answers.
        let passive = if node == 1 { "[neighbors.transport.config]\npassive-mode = true\n" } else { "" };
        let text = format!(
            "[global.config]\nas = 64512\nrouter-id = '{}'\n\
             [[neighbors]]\n[neighbors.config]\nneighbor-address = '{}'\npeer-as = 64512\n\
             [neighbors.timers.config]\nconnect-retry = 1\nidle-hold-time-after-reset = 1\n\
             [neighbors.graceful-restart.config]\nenabled = true\nrestart-time = 100\n{passive}{}",
            addresses[node],
            addresses[1 - node],
            families.concat()
        );
        Self::start_with(lab, node, &text, more)
    }

    fn start_with(lab: &Lab, node: usize, text: &str, more: &[&str]) -> Self {
        let file = lab.write(&format!("gobgpd-{node}.toml"), text);
        let log = fs::File::create(lab.path(&format!("gobgpd-{node}.log"))).unwrap();
        let mut command = Command::new("gobgpd");
        // Without a file it waits to be configured by gobgp.
        let with = if text.is_empty() { Vec::new() } else { vec!["-f", &file] };
        command.arg("--pprof-disable").args(with).args(more).stdin(Stdio::null());
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
subnets = ["10.1.0.0/24", "fd00:1::/64"]
policies = ["both"]
[[network]]
name = "blue"
subnets = ["10.2.0.0/24", "fd00:2::/64"]
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
    "[[interface]]\nname = 'client'\nnode = 'a'\nnetwork = 'red'\nnamespace = 'client'\naddresses = ['10.1.0.11', 'fd00:1::11']\n\
     mac = '02:00:00:00:00:01'\nsecurity_groups = ['client']\n",
    "[[interface]]\nname = 'web'\nnode = 'b'\nnetwork = 'blue'\ndevice = 'toweb'\naddresses = ['10.2.0.11', 'fd00:2::11']\n\
     mac = '02:00:00:00:00:02'\nsecurity_groups = ['web']\n",
];

/// The file of a node: what all nodes have, and its own.
fn file(lab: &Lab, node: usize, more: &str) -> String {
    lab.write(&format!("{node}.toml"), &[COMMON, NODES[node], INTERFACES[node], more].concat())
}

/// Waits until it is so.
#[track_caller]
fn comes(what: &str, mut is: impl FnMut() -> Result<(), String>) {
    let mut last = String::new();
    let came = until(TIMEOUT, || is().map_err(|seen| last = seen).ok());
    assert!(came.is_some(), "{what} does not come: {last}");
}

/// Waits until a speaker lists all of these.
#[track_caller]
fn lists(lab: &Lab, node: usize, family: &str, all: &[&str]) {
    comes("a route", || {
        let seen = listed(lab, node, family);
        if all.iter().all(|what| seen.contains(what)) { Ok(()) } else { Err(seen) }
    });
}

/// Waits until its status says of a node's speaker what is looked for.
#[track_caller]
fn speaker(lab: &Lab, node: &str, is: impl Fn(&Value) -> bool) {
    let mut last = Value::Null;
    let came = until(TIMEOUT, || {
        last = lab.json(node, &["status"])["speaker"].clone();
        is(&last).then_some(())
    });
    let all = || ["vpnv4", "evpn"].map(|family| listed(lab, usize::from(node == "b"), family)).concat();
    assert!(came.is_some(), "a speaker's state does not come: {last:#}\n{}", all());
}

/// What node a reaches by tunnels, with their encapsulation.
fn tunnels(lab: &Lab) -> BTreeSet<(String, String)> {
    let status = lab.json("a", &["status"]);
    let list = |value: &Value| value.as_array().unwrap().clone();
    let next_hops = list(&status["next_hops"]);
    let encapsulation = |route: &Value| {
        let next_hop = next_hops.iter().find(|next_hop| next_hop["number"] == route["next_hop"])?;
        Some(next_hop["leads"]["tunnel"]["encapsulation"].as_str()?.to_owned())
    };
    let networks = list(&status["networks"]).into_iter();
    let tables = networks.flat_map(|network| list(&lab.json("a", &["rt", "--dump", &network["vrf"].to_string()])));
    let routes = tables.flat_map(|table| list(&table["routes"]));
    routes.filter_map(|route| Some((route["prefix"].as_str()?.to_owned(), encapsulation(&route)?))).collect()
}

/// Waits until node a has these tunnels alone.
#[track_caller]
fn reaches(lab: &Lab, encapsulation: &str, prefixes: &[&str]) {
    let wanted = prefixes.iter().map(|prefix| ((*prefix).to_owned(), encapsulation.to_owned())).collect();
    comes("a way", || {
        let seen = tunnels(lab);
        if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
    });
}

#[test]
fn nodes_learn_each_others_containers_by_bgp() {
    with_speakers(|lab| {
        let files = [0, 1].map(|node| file(lab, node, ""));
        let (said, _) = lab.netrig(0, 0, &["check", &files[0]]);
        assert!(said.contains("routes by BGP: 7 of its own, through the speaker 127.0.0.1:50051"), "{said}");
        assert!(said.contains("route targets: import 64512:200, export 64512:200"), "{said}");
        let (said, _) = lab.netrig(3, 0, &["check", &files[0], "--node", "a"]);
        assert!(said.contains("not here: speaker 127.0.0.1:50051: Connection refused"), "{said}");
        let routers = [0, 1].map(|node| lab.start(node, &files[node]));
        routers[0].says("speaker 127.0.0.1:50051: Connection refused");
        lab.plug_web();
        for (container, own) in [(&lab.client, "fd00:1::11"), (&lab.web, "fd00:2::11")] {
            run(container, &format!("address add {own}/64 dev eth0 nodad"));
            run(container, &format!("route add default via {}", own.replace("11", "1")));
        }
        let v6 = "[fd00:2::11]:8080".parse().unwrap();
        lab.serve(v6);

        // Both families, over MPLS and under a security group of which each node knows its own members alone.
        let _speakers = [0, 1].map(|node| Speaker::start(lab, node, &[]));
        for router in &routers {
            router.says("speaker 127.0.0.1:50051: AS 64512");
        }
        exchange(&mut lab.connect());
        exchange(&mut lab.connect_to(v6));
        let learned = ["10.2.0.11/32", "fd00:2::11/128"];
        reaches(lab, "mplsoudp", &learned);
        lists(lab, 1, "vpnv4", &["192.0.2.1:", ":10.1.0.11/32", "192.0.2.2:", ":10.2.0.11/32", "[MPLS in UDP], [GRE]"]);
        lists(lab, 1, "vpnv6", &["192.0.2.1:", ":fd00:1::11/128", ":fd00:2::11/128", "64512:200"]);
        let red = "[mac:02:00:00:00:00:01]";
        lists(lab, 1, "evpn", &[&format!("{red}[ip:10.1.0.11]"), &format!("{red}[ip:<nil>]"), "[VXLAN]"]);
        lists(lab, 1, "evpn", &["[type:multicast]", "[ip:192.0.2.1]", "type: ingress-repl"]);
        speaker(lab, "a", |seen| {
            (&seen["announced"], &seen["learned"], &seen["stale"]) == (&7.into(), &7.into(), &0.into())
        });
        let (said, _) = lab.netrig(0, 0, &["status", "--node", "a"]);
        assert!(
            said.contains("AS 64512, identifier 192.0.2.1; 7 routes announced, 7 learned, 0 of them stale"),
            "{said}"
        );
        assert!(said.contains("peer a node, 192.0.2.2: via 192.0.2.2 by wire"), "{said}");
        lab.netrig(0, 0, &["check", &files[0], "--node", "a"]);

        // What is behind an interface comes with its node's next reload, and another encapsulation with it.
        let reload = |more: &str| {
            file(lab, 1, more);
            lab.netrig(0, 1, &["reload", "--node", "b"]);
        };
        reload("[[route]]\nnetwork = 'blue'\nprefix = '10.9.0.0/16'\nvia = ['web']\n");
        reaches(lab, "mplsoudp", &["10.2.0.11/32", "10.9.0.0/16", "fd00:2::11/128"]);
        let text = fs::read_to_string(&files[1]).unwrap();
        fs::write(&files[1], text.replace("name = 'b'", "name = 'b'\nencapsulations = ['vxlan']")).unwrap();
        lab.netrig(0, 1, &["reload", "--node", "b"]);
        reaches(lab, "vxlan", &["10.2.0.11/32", "10.9.0.0/16", "fd00:2::11/128"]);
        lists(lab, 0, "evpn", &["[type:Prefix]", "[prefix:10.9.0.0/16]", "02:00:00:00:00:02"]);
        exchange(&mut lab.connect());
        run(&lab.web, "address add 10.9.0.1/32 dev lo");
        exchange(&mut lab.connect_to("10.9.0.1:8080".parse().unwrap()));
        exchange(&mut lab.connect_to(v6));

        // An interface that goes from the file.
        lab.write("1.toml", &[COMMON, NODES[1]].concat());
        lab.netrig(0, 1, &["reload", "--node", "b"]);
        reaches(lab, "", &[]);
        speaker(lab, "b", |seen| seen["announced"] == 0);

        // A router that ends, and what one that was killed has left behind.
        let [mut a, mut b] = routers;
        reload("");
        reaches(lab, "mplsoudp", &learned);
        b.kill();
        lab.write("1.toml", &[COMMON, NODES[1]].concat());
        b = lab.start(1, &files[1]);
        reaches(lab, "", &[]);
        lists(lab, 1, "vpnv4", &[":10.1.0.11/32"]);
        a.signal(Signal::TERM);
        assert_eq!(a.ended(), Some(0));
        comes("an empty table", || {
            let seen = listed(lab, 1, "vpnv4") + &listed(lab, 1, "evpn");
            if seen.contains("192.0.2.1") { Err(seen) } else { Ok(()) }
        });
        drop(b);
    });
}

/// Both containers are of one network, whose nodes take VXLAN alone.
const ONE_NETWORK: &str = r#"
[router]
encapsulation = ["vxlan"]
[router.bgp]
[[network]]
name = "red"
subnets = ["10.1.0.0/24", "10.2.0.0/24"]
vni = 4242
"#;

/// The interface of a node, in it, without groups and IPv6.
fn of_one_network(node: usize) -> String {
    let mut text = INTERFACES[node].replace("blue", "red");
    for what in [", 'fd00:1::11'", ", 'fd00:2::11'", "security_groups = ['client']\n", "security_groups = ['web']\n"] {
        text = text.replace(what, "");
    }
    // The server answers to a broadcast frame, which only a container that is a DHCP server may do.
    if node == 1 { text + "dhcp_server = true\n" } else { text }
}

/// A node announces by a route of type 3 that it takes broadcast frames, and such a route of another speaker is understood.
#[test]
fn frames_to_all_go_where_routes_of_type_3_are_from() {
    with_speakers(|lab| {
        let text = |node: usize| [ONE_NETWORK, NODES[node], &of_one_network(node)].concat();
        let files = [0, 1].map(|node| lab.write(&format!("{node}.toml"), &text(node)));
        let _a = lab.start(0, &files[0]);
        let mut b = lab.start(1, &files[1]);
        lab.plug_web();
        let _speakers = [0, 1].map(|node| Speaker::start(lab, node, &[]));
        let (client, server) = (socket(&lab.client, 68), socket(&lab.web, 67));
        until(TIMEOUT, || ask(&client, &server)).expect("no server hears the broadcast");
        let own = "[type:multicast][rd:192.0.2.2:";
        lists(lab, 0, "evpn", &[own, "type: ingress-repl, label: 4242, tunnel-id: 192.0.2.2"]);

        // A node without broadcast withdraws the route, and unicast reaches it as before.
        lab.write("1.toml", &text(1).replace("vni = 4242", "vni = 4242\nbroadcast = false"));
        lab.netrig(0, 1, &["reload", "--node", "b"]);
        comes("an end of it", || {
            let seen = listed(lab, 0, "evpn");
            if seen.contains(own) { Err(seen) } else { Ok(()) }
        });
        comes("a network of one", || {
            let (seen, _) = lab.netrig(0, 0, &["rt", "--dump", "1", "--family", "bridge", "--node", "a"]);
            let to_all = seen.lines().find(|line| line.starts_with("ff:ff:ff:ff:ff:ff")).unwrap_or_default();
            let hop = to_all.split_whitespace().last().unwrap_or_default().to_owned();
            // The next hop may go between the two questions.
            let told = lab.command(0, &["nh", "--get", &hop, "--node", "a"]).output().unwrap();
            let seen = String::from_utf8_lossy(&told.stdout).into_owned();
            if !told.status.success() || seen.contains("(4242)") { Err(seen) } else { Ok(()) }
        });
        assert_eq!(ask(&client, &server), None);
        exchange(&mut lab.connect());

        // In place of node b the kernel's own VXLAN; its routes are added at the speaker by gobgp.
        b.signal(Signal::TERM);
        b.ended();
        let kernel = &lab.nodes[1];
        let device = "type vxlan id 4242 dstport 4789 local 192.0.2.2 remote 192.0.2.1 dev wire";
        run(kernel, &format!("link add vxlan0 mtu 1400 {device}"));
        run(kernel, "addr add 10.2.0.12/8 dev vxlan0");
        run(kernel, "link set vxlan0 up");
        let mut add = Command::new("gobgp");
        add.args("global rib add -a evpn multicast 192.0.2.2 etag 0 rd 64512:7 rt 64512:4242".split(' '));
        add.args("encap vxlan nexthop 192.0.2.2 pmsi ingress-repl 4242 192.0.2.2".split(' '));
        let added = in_namespace(&mut add, kernel).output().unwrap();
        assert!(added.status.success(), "{added:?}");
        lists(lab, 0, "evpn", &["[type:multicast][rd:64512:7]"]);
        let server = socket(kernel, 67);
        let hears = || {
            client.send_to(b"who?", ("255.255.255.255", 67)).unwrap();
            server.recv_from(&mut [0; 10]).ok().map(|_| ())
        };
        until(TIMEOUT, hears).expect("the kernel hears no container");
    });
}

/// The labels of two files are each node's own, and are told by a route that has no network identifier.
#[test]
fn frames_to_all_go_by_the_label_that_a_route_of_type_3_has() {
    with_speakers(|lab| {
        let text = |node: usize| {
            let network = ONE_NETWORK.replace("[\"vxlan\"]", "[\"mplsogre\", \"vxlan\"]");
            let network = network.replace("vni = 4242", &format!("vni = 4242\nlabel = {}", 300 + node));
            [&network, NODES[node], &of_one_network(node)].concat()
        };
        let files = [0, 1].map(|node| lab.write(&format!("{node}.toml"), &text(node)));
        let _a = lab.start(0, &files[0]);
        let _b = lab.start(1, &files[1]);
        lab.plug_web();
        let _speakers = [0, 1].map(|node| Speaker::start(lab, node, &[]));
        let (client, server) = (socket(&lab.client, 68), socket(&lab.web, 67));
        until(TIMEOUT, || ask(&client, &server)).expect("no server hears the broadcast");
        // The speaker shows all 24 bits of the field, of which the label has the upper 20.
        let of = |field: u32| format!("type: ingress-repl, label: {field}, tunnel-id: 192.0.2.2");
        lists(lab, 0, "evpn", &[&of(301 << 4), &of(4242), "[GRE]", "[VXLAN]"]);
        let member = |label: &str| {
            comes(label, || {
                let (seen, _) = lab.netrig(0, 0, &["nh", "--list", "--node", "a"]);
                let to_all = seen.split("Id:").find(|hop| hop.contains("Multicast")).unwrap_or_default();
                if to_all.contains(label) { Ok(()) } else { Err(seen) }
            });
        };
        member("(301)");

        // A node that no longer has this encapsulation is sent to with the other one.
        lab.write("1.toml", &text(1).replace("name = 'b'", "name = 'b'\nencapsulations = ['vxlan']"));
        lab.netrig(0, 1, &["reload", "--node", "b"]);
        member("(4242)");
        until(TIMEOUT, || ask(&client, &server)).expect("no server hears it any more");
    });
}

/// By reason; frames to all and questions for routers are no loss.
fn dropped(lab: &Lab, node: &str) -> Vec<(String, u64)> {
    let drops = lab.json(node, &["dropstats"]);
    let drop = |drop: &Value| (drop["reason"].as_str().unwrap().to_owned(), drop["packets"].as_u64().unwrap());
    drops
        .as_array()
        .unwrap()
        .iter()
        .map(drop)
        .filter(|(reason, _)| !["l2_no_route", "unanswered"].contains(&reason.as_str()))
        .collect()
}

/// Between two messages: far below what is noticed as a stall, and both CPUs are left to the routers.
const PAUSE: Duration = Duration::from_millis(2);

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_speaker_that_restarts_is_waited_for() {
    with_speakers(|lab| {
        let files = [0, 1].map(|node| file(lab, node, ""));
        let routers = [0, 1].map(|node| lab.start(node, &files[node]));
        lab.plug_web();
        let mut speakers = [0, 1].map(|node| Speaker::start(lab, node, &[]));
        let mut stream = lab.connect();
        for node in ["a", "b"] {
            speaker(lab, node, |seen| seen["learned"] == 7);
        }
        // Neither router drops anything meanwhile; TCP itself sends again what it only believes to be lost.
        let dropped = || ["a", "b"].map(|node| dropped(lab, node));
        let dropped_before = dropped();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            // However it ends.
            let end = End(&done);
            let busy = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    exchange(&mut stream);
                    thread::sleep(PAUSE);
                }
            });
            for (node, name) in ["a", "b"].into_iter().enumerate() {
                speakers[node].kill();
                speaker(lab, name, |seen| seen["autonomous_system"].is_null() && seen["stale"] == 7);
                exchange(&mut lab.connect());
                speakers[node] = Speaker::start(lab, node, &["--graceful-restart"]);
                speaker(lab, name, |seen| seen["learned"] == 7 && seen["stale"] == 0 && seen["announced"] == 7);
                let other = ["b", "a"][node];
                speaker(lab, other, |seen| seen["learned"] == 7 && seen["stale"] == 0);
            }
            drop(end);
            busy.join().unwrap();
        });
        assert_eq!(dropped(), dropped_before);

        // A speaker that does not come back is not waited for longer than the file says.
        let text = fs::read_to_string(&files[0]).unwrap();
        fs::write(&files[0], text.replace("keep = \"100s\"", "keep = \"1s\"")).unwrap();
        lab.netrig(0, 0, &["reload", "--node", "a"]);
        speakers[0].kill();
        routers[0].says("routes that the speaker did not announce again are withdrawn");
        reaches(lab, "", &[]);
    });
}

#[test]
fn a_speaker_that_cannot_be_used_is_told_with_the_reason() {
    with_speakers(|lab| {
        let file = file(lab, 0, "");
        let check = |status: Option<i32>, what: &str| {
            comes("an answer", || {
                let output = lab.command(0, &["check", &file, "--node", "a"]).output().unwrap();
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                if output.status.code() == status && said.contains(what) { Ok(()) } else { Err(said) }
            });
        };
        let start = |text: &str, more: &[&str]| Speaker::start_with(lab, 0, text, more);
        let silent = start("", &[]);
        check(Some(3), "not here: speaker 127.0.0.1:50051: it has no AS yet: give it 'as' and 'router-id'");
        drop(silent);
        let global = "[global.config]\nas = 65000\nrouter-id = '192.0.2.1'\nport = -1\n";
        let several = start(&format!("{global}[global.use-multiple-paths.config]\nenabled = true\n"), &[]);
        check(Some(3), "not here: speaker 127.0.0.1:50051: its use-multiple-paths is on");
        let a = lab.start(0, &file);
        a.says("speaker 127.0.0.1:50051: its use-multiple-paths is on");
        speaker(lab, "a", |seen| seen["trouble"].as_str().is_some_and(|why| why.contains("use-multiple-paths")));
        drop(several);

        // Another one, by its socket, is asked from the reload on, and none after the one behind it.
        let socket = lab.path("gobgpd.sock").display().to_string();
        let _good = start(global, &["--api-hosts", &format!("unix://{socket}")]);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("[router.bgp]", &format!("[router.bgp]\ngobgp = \"unix:{socket}\""))).unwrap();
        check(Some(0), "routes by BGP: 7 of its own, through the speaker unix:");
        lab.netrig(0, 0, &["reload", "--node", "a"]);
        speaker(lab, "a", |seen| seen["autonomous_system"] == 65000 && seen["announced"] == 7);
        let alone = text.replace("[router.bgp]\nkeep = \"100s\"", "").replace("route_targets = [\"64512:200\"]", "");
        fs::write(&file, alone).unwrap();
        lab.netrig(0, 0, &["reload", "--node", "a"]);
        assert!(lab.json("a", &["status"])["speaker"].is_null());
    });
}
