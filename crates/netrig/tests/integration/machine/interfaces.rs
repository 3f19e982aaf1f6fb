//! Interfaces that a host has: told, shared, taken into a node, and given back as they were, however netrig ends.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Channels, Offload};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::piped::PipedProcess;
use rig_sys::process::in_namespace;
use rig_testbed::host::protocol::PROTOCOL;
use rig_testbed::host::{Host, Program, Remote};
use rig_testbed::plan::{Interface, Link, NamespacePlan, Node, Plan, Sysctl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::world::{self, NETRIG, RandomSource};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A host's network namespace with `uplink`, which leads to `far` of another one, and the directory in which netrig's processes find each other.
struct Lab {
    own: NetNs,
    far: NetNs,
    run: tempfile::TempDir,
}

/// All that is to be as it was.
#[derive(Debug, Clone, PartialEq)]
struct NamespaceState {
    addresses: Value,
    routes: Vec<Value>,
    links: Value,
    neighbors: Value,
    sysctls: BTreeMap<String, String>,
    features: BTreeMap<String, bool>,
    device: BTreeMap<String, String>,
}

impl Lab {
    /// `None`, said aloud, without the programs that are used.
    fn new() -> Option<Self> {
        for program in ["ip", "nsenter"] {
            if let Err(error) = Command::new(program).arg("-V").output() {
                skip(Lack::Program(program), error);
                return None;
            }
        }
        let [own, far] = [(); 2].map(|()| NetNs::create().unwrap());
        let mut netlinks = [&own, &far].map(|ns| Netlink::open(ns).unwrap());
        for netlink in &mut netlinks {
            netlink.set_up("lo").unwrap();
        }
        netlinks[0].add_veth(&VethPair { name: "uplink", peer: "far", peer_ns: &far, queues: 2, mtu: 1500 }).unwrap();
        let lab = Self { own, far, run: tempfile::tempdir().unwrap() };
        lab.ip_far("link set far up mtu 9000");
        lab.ip_far("address add 10.9.0.2/24 dev far");
        lab.ip_far("address add 192.0.2.2/24 dev far");
        for line in [
            "link set uplink mtu 1600 up",
            "address add 192.0.2.1/24 brd + dev uplink",
            "address add 192.0.2.9/24 dev uplink",
            "address add 198.51.100.1/24 dev uplink noprefixroute",
            "address add 2001:db8::1/64 dev uplink",
            "address add 2001:db8::9/64 dev uplink nodad",
            "route add 10.1.0.0/16 via 192.0.2.254 metric 50 src 192.0.2.9",
            "route add 10.2.0.0/16 dev uplink table 77",
            "-6 route add 2001:db8:5::/48 via 2001:db8::ff metric 30",
            "neighbor add 192.0.2.254 lladdr 02:00:00:00:00:fe dev uplink nud permanent",
        ] {
            lab.ip(line);
        }
        lab.own.set_interface_sysctl("uplink", "ipv4/conf/rp_filter", "2").unwrap();
        lab.own.set_interface_sysctl("uplink", "ipv6/conf/accept_ra", "0").unwrap();
        lab.own.sysfs().unwrap().write("uplink", "queues/rx-1/rps_cpus", "1").unwrap();
        ethtool::set(&lab.own, "uplink", Offload::Gro, true).unwrap();
        // Until the kernel knows that nobody else has these addresses.
        lab.settled();
        Some(lab)
    }

    #[track_caller]
    fn ip(&self, line: &str) -> String {
        ip(&self.own, line)
    }

    fn ip_far(&self, line: &str) {
        ip(&self.far, line);
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ip(line)).unwrap()
    }

    fn shown(&self) -> NamespaceState {
        let families = ["-4", "-6"].map(|family| self.json(&format!("-j {family} route show table all")));
        NamespaceState {
            addresses: self.json("-j address"),
            routes: families.to_vec(),
            links: self.json("-j -d link"),
            neighbors: self.json("-j neighbor show nud permanent"),
            sysctls: self.own.interface_sysctls("uplink").unwrap(),
            features: ethtool::wanted_features(&self.own, "uplink").unwrap(),
            device: self.own.sysfs().unwrap().device_settings("uplink").unwrap(),
        }
    }

    /// What there is when no address is looked for at others any more.
    #[track_caller]
    fn settled(&self) -> NamespaceState {
        let done = || (!self.ip("address").contains("tentative")).then(|| self.shown());
        world::until(TIMEOUT, done).expect("the kernel looks for duplicates of addresses")
    }

    fn command(&self) -> Command {
        let namespace = format!("--net=/proc/{}/fd/{}", std::process::id(), self.own.raw_fd());
        let mut command = Command::new("nsenter");
        command.arg(namespace).args([NETRIG, "host"]).env("NETRIG_RUN", self.run.path());
        command
    }

    fn host(&self) -> Remote {
        Remote::start("near", &mut self.command()).unwrap()
    }

    /// What a host that begins and ends says on standard error.
    fn said_by_a_host(&self) -> String {
        let output = self.command().stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        world::text(&output.stderr)
    }

    fn journals(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.run.path().join("interfaces")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    #[track_caller]
    fn assert_as_before(&self, before: &NamespaceState, when: &str) {
        let now = self.settled();
        // Of much text, what differs.
        let lines = |shown: &NamespaceState| format!("{shown:#?}").lines().map(ToOwned::to_owned).collect::<Vec<_>>();
        let (was, is) = (lines(before), lines(&now));
        let only = |own: &[String], other: &[String]| {
            own.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>().join("\n")
        };
        assert!(was == is, "{when}\nwas\n{}\nis\n{}", only(&was, &is), only(&is, &was));
        assert_eq!(self.journals(), Vec::<PathBuf>::new(), "{when}");
    }

    /// Why a new host does not take it.
    fn refusal(&self, plan: &Plan) -> String {
        let mut host = self.host();
        let error = format!("{:#}", host.apply(plan).unwrap_err());
        host.tear_down().unwrap();
        error
    }
}

#[track_caller]
fn ip(ns: &NetNs, line: &str) -> String {
    let output = in_namespace(Command::new("ip").args(line.split(' ')), ns).output().unwrap();
    world::expect(&output, 0).0
}

/// A node with the host's `uplink`, and all that can be changed of it.
fn plan(shared: bool) -> Plan {
    let mut interface = Interface::new("eth0", Link::OfHost { name: "uplink".into(), shared });
    interface.addresses = vec!["10.9.0.1/24".parse().unwrap(), "fd00:9::1/64".parse().unwrap()];
    if !shared {
        interface.mtu = Some(1400);
        interface.queues = 2;
        interface.offloads = BTreeMap::from([(Offload::Tso, false), (Offload::Gro, false)]);
        interface.features = BTreeMap::from([("tx-checksum-ip-generic".into(), false)]);
        interface.steering = Some(CpuSet::new([0]));
        interface.qdisc = Some("pfifo".into());
    }
    let space = NamespacePlan {
        name: "a".into(),
        interfaces: vec![interface],
        sysctls: vec![Sysctl::new("net.ipv4.ip_forward", "1")],
        chosen: vec![Sysctl::new("net.ipv4.conf.eth0.rp_filter", "1")],
        ..NamespacePlan::default()
    };
    let node = Node { name: "a".into(), spaces: vec![space], ..Node::default() };
    Plan { nodes: vec![node], wires: Vec::new() }
}

/// Asserts that node `a` reaches what is behind the interface.
#[track_caller]
fn assert_reaches(lab: &Lab, host: &Remote) {
    let listener = lab.far.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 5001)).unwrap()).unwrap();
    let knock = Program::at("bash", &["-c", "exec 3<>/dev/tcp/10.9.0.2/5001"]);
    let PipedProcess { stdin: _, mut life, .. } = host.start("a", &knock).unwrap();
    assert!(life.wait().unwrap().success());
    let (_, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), Ipv4Addr::new(10, 9, 0, 1));
}

fn pid_of_host() -> Pid {
    let found = world::processes().into_iter().find(|process| process.command.ends_with(" host"));
    Pid::from_raw(found.expect("a host runs").pid as i32).unwrap()
}

#[test]
fn a_host_tells_what_it_has_and_what_it_needs_itself() {
    world::own(|| {
        let Some(lab) = Lab::new() else { return };
        lab.ip("link add inner type vxlan id 5 dstport 4789");
        let host = lab.host();
        let all = host.interfaces().unwrap();
        let [uplink] = &all[..] else { panic!("{all:?}") };
        assert_eq!((&*uplink.name, uplink.mtu, uplink.up, &uplink.in_use), ("uplink", 1600, true, &None));
        let addresses: Vec<String> = uplink.addresses.iter().map(ToString::to_string).collect();
        for address in ["192.0.2.1/24", "192.0.2.9/24", "198.51.100.1/24", "2001:db8::1/64", "2001:db8::9/64"] {
            assert!(addresses.iter().any(|own| own == address), "{addresses:?}");
        }
        assert_eq!(addresses.len(), 5, "one of link scope is told");
        let shown = lab.json("-j link show uplink");
        assert_eq!(shown[0]["address"], uplink.mac.to_string());
        let of = |name: &str| host.interfaces().unwrap().into_iter().find(|own| own.name == name).unwrap();
        let why = |name: &str| of(name).in_use.unwrap_or_default();
        lab.ip("link set uplink down");
        assert!(!of("uplink").up);
        lab.ip("link set uplink up");
        lab.ip("link add above link uplink type macvlan");
        assert_eq!((&*why("uplink"), &*why("above")), ("above stands on it", ""));
        lab.ip("link delete above");
        lab.ip("link add tunnel type vxlan id 6 dev uplink dstport 4790");
        assert_eq!(why("uplink"), "tunnel stands on it");
        lab.ip("link delete tunnel");
        lab.ip("link add br0 type bridge");
        lab.ip("link set uplink master br0");
        assert_eq!((&*why("uplink"), &*why("br0")), ("it is a port of br0", "uplink is a port of it"));
        lab.ip("link set uplink nomaster");
        assert!(why("br0").contains("kind bridge"), "{}", why("br0"));
        assert_eq!(of("uplink").in_use, None);
        Netlink::open(&lab.own).unwrap().set_qdisc("uplink", "pfifo").unwrap();
        assert!(why("uplink").contains("tc(8)"), "{}", why("uplink"));
    });
}

#[test]
fn an_interface_that_was_taken_is_given_back_as_it_was_however_the_host_ends() {
    world::own(|| {
        let Some(lab) = Lab::new() else { return };
        let before = lab.settled();
        let mut host = lab.host();
        for _ in 0..2 {
            host.apply(&plan(false)).unwrap();
            assert!(!lab.ip("link").contains("uplink"), "it is still the host's");
            assert_eq!(lab.journals().len(), 1);
            assert_reaches(&lab, &host);
            let refusal = lab.refusal(&plan(false));
            assert!(refusal.contains("uplink") && refusal.contains("process "), "{refusal}");
            assert!(lab.refusal(&plan(true)).contains("has taken it"));
            host.tear_down().unwrap();
            lab.assert_as_before(&before, "after it was torn down");
        }
        host.apply(&plan(false)).unwrap();
        drop(host);
        lab.assert_as_before(&before, "after the host's input has ended");

        let mut host = lab.host();
        host.apply(&plan(false)).unwrap();
        let busy = host.start("a", &Program::at("sleep", &["60"])).unwrap();
        kill_process(pid_of_host(), Signal::TERM).unwrap();
        let gone = world::until(TIMEOUT, || world::processes().is_empty().then_some(()));
        assert!(gone.is_some(), "it does not end: {:?}", world::processes());
        lab.assert_as_before(&before, "after the host was told to stop");
        assert!(host.facts().is_err());
        drop((busy, host));

        // What cannot be built leaves nothing either.
        let mut impossible = plan(false);
        impossible.nodes[0].spaces[0].chosen.push(Sysctl::new("net.ipv4.there_is_none", "1"));
        assert!(lab.refusal(&impossible).contains("there_is_none"));
        lab.assert_as_before(&before, "after a plan that was refused");
        // One that was down stays so.
        lab.ip("link set uplink down");
        let before = lab.settled();
        let mut host = lab.host();
        host.apply(&plan(false)).unwrap();
        host.tear_down().unwrap();
        // It gets its queueing discipline when it comes up.
        let mut now = lab.settled();
        for link in now.links.as_array_mut().unwrap() {
            if link["ifname"] == "uplink" {
                link["qdisc"] = "noqueue".into();
            }
        }
        now.addresses.clone_from(&before.addresses);
        assert_eq!(now, before);
    });
}

#[test]
fn an_interface_that_is_shared_stays_the_hosts_and_is_not_taken() {
    world::own(|| {
        let Some(lab) = Lab::new() else { return };
        let before = lab.settled();
        let [mut one, mut other] = [lab.host(), lab.host()];
        one.apply(&plan(true)).unwrap();
        assert_reaches(&lab, &one);
        let mut second = plan(true);
        second.nodes[0].spaces[0].interfaces[0].addresses = vec!["10.9.0.3/24".parse().unwrap()];
        other.apply(&second).unwrap();
        assert!(lab.refusal(&plan(false)).contains("another netrig uses it"));
        one.tear_down().unwrap();
        assert!(lab.refusal(&plan(false)).contains("another netrig uses it"));
        drop(other);
        one.apply(&plan(false)).unwrap();
        drop(one);
        lab.assert_as_before(&before, "after it was shared");
    });
}

#[test]
fn an_interface_that_the_host_needs_is_refused_and_left_as_it_is() {
    world::own(|| {
        let Some(lab) = Lab::new() else { return };
        lab.ip("route add default via 192.0.2.254");
        let before = lab.settled();
        let refusal = lab.refusal(&plan(false));
        assert!(refusal.contains("take interface uplink") && refusal.contains("it has the default route"), "{refusal}");
        lab.assert_as_before(&before, "with the default route");
        lab.ip("route delete default");

        let listener = lab.own.run(|| TcpListener::bind(("192.0.2.9", 5022)).unwrap()).unwrap();
        let far = lab.far.run(|| TcpStream::connect(("192.0.2.9", 5022)).unwrap()).unwrap();
        let (mut near, _) = listener.accept().unwrap();
        let before = lab.settled();
        let refusal = lab.refusal(&plan(false));
        assert!(refusal.contains("a TCP connection goes over it, here 192.0.2.9:5022"), "{refusal}");
        lab.assert_as_before(&before, "with a connection");
        near.write_all(b"still there").unwrap();
        drop((near, far, listener));
        let missing = Link::OfHost { name: "nothing".into(), shared: false };
        let mut nowhere = plan(false);
        nowhere.nodes[0].spaces[0].interfaces[0].link = missing;
        assert!(lab.refusal(&nowhere).contains("nothing"));
        assert_eq!(lab.journals(), Vec::<PathBuf>::new());
    });
}

#[test]
fn what_a_killed_host_left_is_given_back_when_the_next_one_starts() {
    world::own(|| {
        let Some(lab) = Lab::new() else { return };
        let before = lab.settled();
        let mut host = lab.host();
        host.apply(&plan(false)).unwrap();
        let [path] = &lab.journals()[..] else { panic!("there is one journal") };
        let journal = fs::read(path).unwrap();
        assert_eq!(lab.said_by_a_host(), "", "it is not the other's to give back");
        host.tear_down().unwrap();
        drop(host);

        // Killed before it was moved.
        fs::write(path, &journal).unwrap();
        assert_eq!(lab.said_by_a_host(), "");
        lab.assert_as_before(&before, "after nothing was to be done");
        // Killed before the journal was whole, when nothing was taken yet.
        fs::write(path, &journal[..journal.len() / 2]).unwrap();
        assert_eq!(lab.said_by_a_host(), "");
        lab.assert_as_before(&before, "after half a journal");
        // Before the machine was started anew.
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let text = String::from_utf8(journal.clone()).unwrap();
        fs::write(path, text.replace(boot.trim(), "another")).unwrap();
        lab.ip("link set uplink mtu 1300");
        assert_eq!(lab.said_by_a_host(), "");
        assert_eq!(lab.journals(), Vec::<PathBuf>::new());

        // As the kernel leaves hardware that it has sent back.
        fs::write(path, &journal).unwrap();
        lab.ip("link set uplink down");
        lab.ip("address flush dev uplink");
        lab.ip("link set uplink name eth0 mtu 1400");
        lab.ip("address add 203.0.113.1/24 dev eth0");
        lab.own.set_interface_sysctl("eth0", "ipv4/conf/rp_filter", "1").unwrap();
        ethtool::set(&lab.own, "eth0", Offload::Tso, false).unwrap();
        let one = Channels { receive: 1, transmit: 1, ..Channels::default() };
        lab.own.run(|| ethtool::set_channels("eth0", &one)).unwrap().unwrap();
        let said = lab.said_by_a_host();
        assert!(said.starts_with("uplink: given back what a killed netrig left: name, MTU 1600, up, "), "{said}");
        for part in ["addresses", "routes", "2 settings", "offload", "2 receive, 2 transmit queues"] {
            assert!(said.contains(part), "'{said}' lacks '{part}'");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
        lab.assert_as_before(&before, "after what a killed netrig left");

        // One who takes it puts it right first.
        fs::write(path, &journal).unwrap();
        lab.ip("link set uplink mtu 1400");
        lab.ip("neighbor delete 192.0.2.254 dev uplink");
        let mut host = lab.host();
        fs::write(path, &journal).unwrap();
        lab.ip("link set uplink mtu 1400");
        host.apply(&plan(false)).unwrap();
        host.tear_down().unwrap();
        lab.assert_as_before(&before, "after it was put right and taken");

        // A name that another one has is not taken from it, and said.
        fs::write(path, &journal).unwrap();
        lab.ip("link set uplink down");
        lab.ip("link set uplink name eth0");
        lab.ip("link add uplink type bridge");
        let said = lab.said_by_a_host();
        assert!(said.contains("it is not as it was: its name is eth0"), "{said}");
        assert_eq!(lab.said_by_a_host(), "", "it is tried once");
        lab.ip("link delete uplink");
        lab.ip("link set eth0 down");
        lab.ip("link set eth0 name uplink");
        lab.ip("link set uplink up");

        // Nor is it when a testbed is torn down, and the journal stays.
        for other in [vec!["uplink"], vec!["uplink", "eth0"]] {
            let before = lab.settled();
            host.apply(&plan(false)).unwrap();
            for name in &other {
                lab.ip(&format!("link add {name} type bridge"));
            }
            let error = format!("{:#}", host.tear_down().unwrap_err());
            let named = error.contains("give interface uplink back to the host") && error.contains("its name is ");
            assert!(named && error.contains("rename"), "{error}");
            for name in &other {
                lab.ip(&format!("link delete {name}"));
            }
            assert_eq!(lab.said_by_a_host(), "uplink: given back what a killed netrig left: name\n");
            lab.assert_as_before(&before, "when its name was free again");
        }

        // A veth goes with the node's namespace.
        host.apply(&plan(false)).unwrap();
        kill_process(pid_of_host(), Signal::KILL).unwrap();
        drop(host);
        let gone = || (!ip(&lab.far, "link").contains("far")).then_some(());
        world::until(TIMEOUT, gone).expect("the pair is gone with the node");
        assert_eq!(lab.said_by_a_host(), "uplink: a killed netrig had taken it, and it is not here any more\n");
        assert_eq!(lab.journals(), Vec::<PathBuf>::new());
    });
}

/// Whatever it is doing: either the interface has gone with the node, or the next host makes it what it was.
#[test]
fn a_host_that_is_killed_at_any_moment_leaves_nothing_that_is_not_given_back() {
    world::own(|| {
        let mut dice = RandomSource::new();
        for life in 0..6 {
            let Some(lab) = Lab::new() else { return };
            let before = lab.settled();
            let mut command = lab.command();
            let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let apply = serde_json::json!({"number": 0, "request": {"apply": {"plan": plan(false)}}});
            let down = serde_json::json!({"number": 1, "request": "tear-down"});
            let greeting = format!("{{\"protocol\":\"netrig-host\",\"version\":{}}}", PROTOCOL.version);
            let mut stdin = host.stdin.take().unwrap();
            stdin.write_all(format!("{greeting}\n{apply}\n{down}\n").as_bytes()).unwrap();
            let after = dice.up_to(Duration::from_millis(250));
            thread::sleep(after);
            let taken = !lab.ip("link").contains("uplink");
            host.kill().unwrap();
            host.wait().unwrap();
            let said = lab.said_by_a_host();
            let when = format!("life {life}, killed after {after:?}, taken {taken}: {said}");
            println!("{when}");
            match lab.ip("link").contains("uplink") {
                true => lab.assert_as_before(&before, &when),
                false => assert!(said.contains("not here any more") && lab.journals().is_empty(), "{when}"),
            }
        }
    });
}
