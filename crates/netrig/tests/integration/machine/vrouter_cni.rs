//! The vRouter as a plug-in of CNI: containers that a runtime adds to a running router.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rig_cni::{AddResult, Attachment, Conflist, Failure, Operation, ResultCache, Runtime};
use rig_skip::{Lack, skip};
use rig_suite::checks::{Procedure, Verdict};
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use serde_json::{Value, json};

use super::cni::{Bench, installed};
use super::world::{self, expect, netrig, until};

const SOON: Duration = Duration::from_secs(30);
/// How long a container that must not reach another tries.
const IN_VAIN: Duration = Duration::from_millis(700);

const FILE: &str = r#"
[router]
plugged = 8

[[node]]
name = "a"
address = "192.0.2.1"

[[network]]
name = "red"
subnets = ["10.1.0.0/24", "fd00:1::/64"]

[[network]]
name = "blue"
subnets = ["10.2.0.0/24"]
"#;

/// A node of the test's own, with a router and a folder of plug-ins.
struct Node {
    folder: tempfile::TempDir,
}

impl Node {
    /// To be called in a world of the test's own.
    fn new(plugins: &str) -> Self {
        for folder in ["/run", "/var/lib"] {
            let mounted = Command::new("mount").args(["-t", "tmpfs", "none", folder]).status().unwrap();
            assert!(mounted.success(), "no {folder} of its own");
        }
        let folder = tempfile::tempdir().unwrap();
        let node = Self { folder };
        fs::create_dir(node.path("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_netrig"), node.path("bin/netrig")).unwrap();
        for plugin in ["host-local", "bandwidth", "portmap", "tuning"] {
            symlink(Path::new(plugins).join(plugin), node.path("bin").join(plugin)).unwrap();
        }
        fs::write(node.path("vrouter.toml"), FILE).unwrap();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self) -> Router {
        self.start_with(&[])
    }

    fn start_with(&self, more: &[&str]) -> Router {
        let log = fs::File::create(self.path("log")).unwrap();
        let mut command = netrig();
        command.args(["vrouter", "run"]).arg(self.path("vrouter.toml")).args(["--node", "a"]).args(more);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let router = Router(child);
        let said = || fs::read_to_string(self.path("log")).unwrap();
        let is_ready = until(SOON, || said().contains("ready: ").then_some(()));
        assert!(is_ready.is_some(), "{}", said());
        router
    }

    /// A network of plug-ins, the first of them netrig's.
    fn runtime(&self, name: &str, own: &Value, more: &[Value]) -> Runtime {
        let mut first = own.clone();
        first["type"] = json!("netrig");
        let plugins: Vec<Value> = [first].iter().chain(more).cloned().collect();
        let text =
            json!({ "cniVersion": "1.1.0", "cniVersions": ["1.0.0"], "name": name, "plugins": plugins }).to_string();
        let network = Conflist::parse(&text).unwrap();
        let cache = ResultCache::at(self.path("cache"));
        Runtime::new(&text, network, vec![self.path("bin")], cache, SOON).unwrap()
    }

    fn red(&self) -> Runtime {
        let ranges = json!([[{ "subnet": "10.1.0.0/24" }], [{ "subnet": "fd00:1::/64" }]]);
        self.runtime("red", &json!({ "network": "red", "ipam": { "type": "host-local", "ranges": ranges } }), &[])
    }

    fn blue(&self) -> Runtime {
        let ipam = json!({ "type": "host-local", "subnet": "10.2.0.0/24" });
        self.runtime("blue", &json!({ "network": "blue", "node": "a", "ipam": ipam }), &[])
    }

    /// Names of interfaces that the router lists.
    fn listed(&self) -> Vec<String> {
        let (out, _) = expect(&netrig().args(["vrouter", "vif", "--list", "--json"]).output().unwrap(), 0);
        let listed: Value = serde_json::from_str(&out).unwrap();
        listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Interfaces that are not there before, leases, and what the router keeps.
    #[track_caller]
    fn has_nothing_left(&self) {
        assert_eq!(devices(), ["lo"]);
        assert_eq!(leases(), [""; 0]);
        let kept = fs::read_to_string("/run/netrig/vrouter/a.plugged").unwrap_or_default();
        assert!(kept.is_empty() || kept == "{}", "{kept}");
    }
}

fn devices() -> Vec<String> {
    let links = Netlink::here().unwrap().links().unwrap();
    // Tunnel devices that come with a kernel's modules are in each namespace.
    links
        .into_iter()
        .filter(|link| link.kind.as_deref() == Some("veth") || link.name == "lo")
        .map(|link| link.name)
        .collect()
}

/// Addresses that host-local has leased, of all networks.
fn leases() -> Vec<String> {
    let networks = fs::read_dir("/var/lib/cni/networks").into_iter().flatten().flatten();
    let files = networks.flat_map(|network| fs::read_dir(network.path()).into_iter().flatten().flatten());
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    let mut leases: Vec<String> = names.filter(|name| !name.starts_with("last_") && name != "lock").collect();
    leases.sort();
    leases
}

struct Router(Child);

impl Router {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// A namespace of ip-netns(8), as a runtime makes it.
fn container(name: &str) -> Attachment {
    ip(&["netns", "add", name]);
    ip(&["-n", name, "link", "set", "lo", "up"]);
    Attachment::new(name, Path::new("/run/netns").join(name), "eth0")
}

#[track_caller]
fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", world::text(&output.stderr));
}

fn inside(attachment: &Attachment) -> NetNs {
    NetNs::open(&attachment.namespace).unwrap()
}

#[track_caller]
fn added(runtime: &Runtime, attachment: &Attachment) -> AddResult {
    runtime.add(attachment).outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

/// The error that an operation ends with, its code first.
#[track_caller]
fn error<T>(operation: Operation<T>) -> (i64, String) {
    match operation.outcome {
        Err(rig_cni::PluginFailure { failure: Failure::Refused(error), .. }) => (error.code, error.to_string()),
        Err(failure) => panic!("no error as the specification has it: {failure}"),
        Ok(_) => panic!("it succeeded"),
    }
}

#[track_caller]
fn done(operation: Operation<()>) {
    operation.outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// What is sent to a container's addresses comes back, as long as it is there.
fn serve(attachment: &Attachment, result: &AddResult) -> Vec<SocketAddr> {
    let addresses: Vec<IpAddr> = result.addresses().into_iter().map(|(address, _)| address).collect();
    serve_in(&inside(attachment), &addresses)
}

/// The same of a namespace.
pub fn serve_in(namespace: &NetNs, addresses: &[IpAddr]) -> Vec<SocketAddr> {
    let served: Vec<SocketAddr> = addresses.iter().map(|address| SocketAddr::new(*address, 8080)).collect();
    for at in &served {
        // An address of IPv6 is not its own before nobody else has claimed it.
        let bind = || namespace.run(|| TcpListener::bind(at)).unwrap().ok();
        let listener = until(SOON, bind).unwrap_or_else(|| panic!("{at} cannot be listened at"));
        // It ends with the test's world.
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let mut reader = stream.try_clone().unwrap();
                    let _ = std::io::copy(&mut reader, &mut stream);
                });
            }
        });
    }
    served
}

fn try_connect(from: &Attachment, to: SocketAddr, time_limit: Duration) -> std::io::Result<TcpStream> {
    connect_in(&inside(from), to, time_limit)
}

/// Within a time in which one that is reached answers.
pub fn reaches_in_vain(from: &NetNs, to: SocketAddr) -> bool {
    connect_in(from, to, IN_VAIN).is_err()
}

fn connect_in(from: &NetNs, to: SocketAddr, time_limit: Duration) -> std::io::Result<TcpStream> {
    from.run(|| TcpStream::connect_timeout(&to, time_limit)).unwrap()
}

#[track_caller]
fn reaches(from: &Attachment, to: &[SocketAddr]) {
    reaches_from(&inside(from), to);
}

#[track_caller]
pub fn reaches_from(from: &NetNs, to: &[SocketAddr]) {
    for to in to {
        let stream = until(SOON, || connect_in(from, *to, Duration::from_secs(2)).ok());
        let mut stream = stream.unwrap_or_else(|| panic!("{to} is not reached"));
        let (sent, mut back) = ([7; 100_000], vec![0; 100_000]);
        thread::scope(|scope| {
            let mut writer = stream.try_clone().unwrap();
            scope.spawn(move || writer.write_all(&sent).unwrap());
            stream.read_exact(&mut back).unwrap();
        });
        assert!(back == sent);
    }
}

/// Runs a test on a node of its own, where there is a plug-in for addresses.
fn on_a_node(test: impl FnOnce(&Node)) {
    let Some(folder) = installed() else { return };
    if !Path::new(folder).join("host-local").is_file() {
        return skip(Lack::Program("host-local"), "the plug-in for addresses is not installed");
    }
    world::own(|| test(&Node::new(folder)));
}

#[test]
fn containers_of_a_network_reach_each_other_and_outlive_the_router() {
    on_a_node(|node| {
        let (red, blue) = (node.red(), node.blue());
        let mut router = node.start();
        done(red.status().unwrap());
        let [one, two, other] = ["one", "two", "other"].map(container);
        let result = added(&red, &one);
        let names: Vec<&str> = result.interfaces.iter().map(|one| one.name.as_str()).collect();
        assert!(names[0].starts_with("nr") && names[1] == "eth0", "{names:?}");
        assert_eq!(result.interfaces[1].mtu, Some(1500));
        let web = serve(&two, &added(&red, &two));
        let others = serve(&other, &added(&blue, &other));
        assert_eq!((web.len(), node.listed().len()), (2, 3));
        reaches(&one, &web);
        assert!(try_connect(&other, web[0], IN_VAIN).is_err() && try_connect(&one, others[0], IN_VAIN).is_err());
        for (runtime, attachment) in [(&red, &one), (&red, &two), (&blue, &other)] {
            done(runtime.check(attachment).unwrap());
        }

        // A second ADD is refused, and takes nothing away.
        let before = leases();
        assert!(error(red.add(&one)).1.contains("has interface eth0 already"));
        assert_eq!(leases(), before);
        reaches(&one, &web);

        // A file that the plug-in's interfaces do not fit is refused by name.
        let file = node.path("vrouter.toml");
        fs::write(&file, FILE.replace("10.1.0.0/24", "10.9.0.0/24")).unwrap();
        let (_, said) = expect(&netrig().args(["vrouter", "reload"]).output().unwrap(), 2);
        assert!(said.contains("of a plug-in: 10.1.0.") && said.contains("'one.eth0."), "{said}");
        fs::write(&file, format!("{FILE}\n[[security_group]]\nname = \"web\"\n")).unwrap();
        expect(&netrig().args(["vrouter", "reload"]).output().unwrap(), 0);
        assert_eq!(node.listed().len(), 3);

        // Without the router nobody is added, and who goes leaves nothing.
        router.kill();
        let late = container("late");
        assert_eq!(error(red.status().unwrap()).0, 50);
        assert_eq!(error(red.add(&late)).0, 11);
        done(red.del(&late));
        done(blue.del(&other));
        let mut router = node.start();
        reaches(&one, &web);
        assert_eq!(node.listed().len(), 2, "that of the container that has gone is not looked for");
        done(red.check(&one).unwrap());

        // A container that was lost sight of, and one whose namespace has gone.
        let lost = container("lost");
        added(&red, &lost);
        red.cache().forget("red", &lost).unwrap();
        ip(&["netns", "del", "lost"]);
        done(red.gc(&[one.clone(), two.clone()]).unwrap());
        assert_eq!(node.listed().len(), 2);
        reaches(&one, &web);
        ip(&["netns", "del", "one"]);
        for _ in 0..2 {
            done(red.del(&one));
        }
        done(red.del(&two));
        done(red.del(&two));
        assert_eq!(node.listed(), [""; 0]);
        node.has_nothing_left();
        router.kill();
    });
}

#[test]
fn an_interface_that_was_added_is_closed_once_the_router_is_killed() {
    on_a_node(|node| {
        let red = node.red();
        let mut router = node.start();
        let [one, two] = ["one", "two"].map(container);
        let device = added(&red, &one).interfaces[0].name.clone();
        let web = serve(&two, &added(&red, &two));
        reaches(&one, &web);
        // A service of the node, and ways to it that need no router.
        ip(&["addr", "add", "192.0.2.1/32", "dev", &device]);
        ip(&["route", "add", "10.1.0.2/32", "dev", &device]);
        ip(&["-n", "one", "route", "add", "192.0.2.1/32", "dev", "eth0"]);
        let service = TcpListener::bind("192.0.2.1:9000").unwrap();
        let own = service.local_addr().unwrap();
        assert!(try_connect(&one, own, IN_VAIN).is_err(), "past the router");
        router.kill();
        assert!(try_connect(&one, own, IN_VAIN).is_err(), "without a router");
        assert!(try_connect(&one, web[0], IN_VAIN).is_err(), "what the router was told goes on");
        // It is the filter that is in the way, and nothing else.
        expect(&netrig().args(["vrouter", "release", "--node", "a"]).output().unwrap(), 0);
        assert!(until(SOON, || try_connect(&one, own, IN_VAIN).ok()).is_some(), "released");

        let mut router = node.start();
        reaches(&one, &web);
        [&one, &two].into_iter().for_each(|attachment| done(red.del(attachment)));
        node.has_nothing_left();
        router.kill();
    });
}

#[test]
fn containers_that_came_outlive_a_router_that_persists_and_those_that_went_meanwhile_are_forgotten() {
    on_a_node(|node| {
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]).status().unwrap();
        assert!(mounted.success(), "no bpf file system of its own");
        let red = node.red();
        let persist = || node.start_with(&["--persist"]);
        let mut router = persist();
        let [one, two, gone] = ["one", "two", "gone"].map(container);
        let web = serve(&two, &added(&red, &two));
        [&one, &gone].into_iter().for_each(|attachment| drop(added(&red, attachment)));
        reaches(&one, &web);
        reaches(&gone, &web);

        router.kill();
        reaches(&one, &web);
        let late = container("late");
        let (code, told) = error(red.add(&late));
        assert!(code == 11 && told.contains("no router runs here: start it"), "{told}");
        done(red.del(&late));
        done(red.del(&gone));
        assert_eq!(leases().len(), 4, "of both families");
        reaches(&one, &web);

        for _ in 0..2 {
            router = persist();
            assert_eq!(node.listed().len(), 2);
            reaches(&one, &web);
            router.kill();
        }
        let mut router = persist();
        added(&red, &late);
        reaches(&late, &web);
        done(red.check(&one).unwrap());
        [&one, &two, &late].into_iter().for_each(|attachment| done(red.del(attachment)));
        node.has_nothing_left();
        router.kill();
        expect(&netrig().args(["vrouter", "release", "--node", "a"]).output().unwrap(), 0);
        assert!(!Path::new("/sys/fs/bpf/netrig").exists(), "pins are left");
    });
}

/// What of a router grows with what it is asked, beside its memory.
#[derive(Debug, PartialEq)]
struct Footprint {
    descriptors: usize,
    threads: usize,
    interfaces: usize,
    next_hops: usize,
    flows: usize,
}

impl Footprint {
    fn of(router: &Router) -> Self {
        let count = |arguments: &[&str]| {
            let (out, _) = expect(&netrig().arg("vrouter").args(arguments).output().unwrap(), 0);
            let listed: Value = serde_json::from_str(&out).unwrap();
            listed.as_array().unwrap_or_else(|| panic!("{listed}")).len()
        };
        let of_process = |what: &str| fs::read_dir(format!("/proc/{}/{what}", router.0.id())).unwrap().count();
        Self {
            descriptors: of_process("fd"),
            threads: of_process("task"),
            interfaces: count(&["vif", "--list", "--json"]),
            next_hops: count(&["nh", "--list", "--json"]),
            flows: count(&["flow", "-l", "--json"]),
        }
    }
}

/// Resident memory, KiB.
fn memory_of(router: &Router) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", router.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// `NETRIG_TEST_PODS` says of how many containers, which come and go ten at a time; 100 without it.
#[test]
fn nothing_grows_with_the_containers_that_come_and_go() {
    const AT_ONCE: usize = 10;
    /// KiB: what a process takes at once from the kernel may be more than one container needs.
    const ALLOWED: u64 = 1024;
    /// Of which one has to do without more: threads that meet for the first time take memory of their own.
    const ROUNDS: usize = 3;
    let count: usize = std::env::var("NETRIG_TEST_PODS").map_or(100, |text| text.parse().unwrap());
    on_a_node(|node| {
        fs::write(node.path("vrouter.toml"), FILE.replace("plugged = 8", "plugged = 16")).unwrap();
        let red = node.red();
        let mut router = node.start();
        let stays = container("stays");
        let web = serve(&stays, &added(&red, &stays));
        let sandboxes: Vec<Attachment> = (0..AT_ONCE).map(|place| container(&format!("pod{place}"))).collect();
        let come_and_go = |from: usize| {
            let come = |place: usize| {
                let attachment = Attachment::new(format!("pod-{}", from + place), &sandboxes[place].namespace, "eth0");
                added(&red, &attachment);
                if place == 0 {
                    reaches(&attachment, &web[..1]);
                }
                done(red.del(&attachment));
            };
            thread::scope(|scope| (0..AT_ONCE).for_each(|place| drop(scope.spawn(move || come(place)))));
        };
        come_and_go(0);
        // What is taken away is given free a moment later.
        let settled = |wanted: Option<&Footprint>| {
            let is_it = || {
                let now = Footprint::of(&router);
                thread::sleep(Duration::from_millis(100));
                (now == Footprint::of(&router) && wanted.is_none_or(|wanted| now == *wanted)).then_some(now)
            };
            until(SOON, is_it).unwrap_or_else(|| panic!("{:?}, and was {wanted:?}", Footprint::of(&router)))
        };
        let before = settled(None);
        let left = (devices(), leases());
        let mut grown = Vec::new();
        for _ in 0..ROUNDS {
            let memory = memory_of(&router);
            (0..count).step_by(AT_ONCE).for_each(|done| come_and_go(AT_ONCE + done));
            settled(Some(&before));
            assert_eq!((devices(), leases()), left);
            let now = memory_of(&router);
            println!("{count} containers: {memory} KiB before, {now} KiB after");
            grown.push(now.saturating_sub(memory));
            if now <= memory + ALLOWED {
                break;
            }
        }
        assert!(grown.last() <= Some(&ALLOWED), "KiB that {count} containers in turn have left: {grown:?}");
        done(red.del(&stays));
        node.has_nothing_left();
        router.kill();
    });
}

#[test]
fn what_cannot_be_added_is_told_and_leaves_nothing() {
    on_a_node(|node| {
        let _router = node.start();
        let one = container("one");
        let ipam = json!({ "type": "host-local", "subnet": "10.1.0.0/24" });
        let of = |own: &Value| node.runtime("n", own, &[]);
        let cases = [
            (json!({ "network": "green", "ipam": ipam }), 100, "there is no network 'green'"),
            (json!({ "network": "red", "ipam": ipam, "node": "b" }), 11, "the router of node 'b' does not run here"),
            (json!({ "network": "red", "ipam": ipam, "security_groups": ["none"] }), 100, "no security group 'none'"),
            (json!({ "network": "blue", "ipam": ipam }), 100, "in no subnet of network 'blue'"),
            (json!({ "network": "red" }), 7, "names no plug-in for addresses"),
            (json!({ "network": "red", "ipam": { "type": "nowhere" } }), 7, "no such program"),
            (json!({ "network": "red", "ipam": { "type": "host-local" } }), 999, "IPAM plug-in host-local: "),
            (json!({ "network": "red", "ipam": ipam, "mtu": 5 }), 7, "'mtu'"),
        ];
        for (own, code, said) in cases {
            let (found, told) = error(of(&own).add(&one));
            assert!(told.contains(said), "{told}");
            // Other plug-ins' codes are their own.
            assert!(found == code || code == 999, "{told}");
            node.has_nothing_left();
            assert!(Netlink::open(&inside(&one)).unwrap().link("eth0").is_err());
        }
        let nowhere = Attachment::new("nowhere", "/run/netns/nowhere", "eth0");
        let red = node.red();
        assert_eq!(error(red.add(&nowhere)).0, 3);
        done(red.del(&nowhere));
        // As many as there is room for, and one more.
        let all: Vec<Attachment> = (0..9).map(|number| container(&format!("c{number}"))).collect();
        for attachment in &all[..8] {
            added(&red, attachment);
        }
        let (code, told) = error(red.add(&all[8]));
        assert!(code == 100 && told.contains("room for 8"), "{told}");
        for attachment in &all {
            done(red.del(attachment));
        }
        node.has_nothing_left();
    });
}

#[test]
fn what_the_specification_asks_of_plug_ins_holds_of_it() {
    let Some(folder) = installed() else { return };
    world::own(|| {
        let bench = Bench::new();
        let bin = bench.path("bin");
        fs::create_dir(&bin).unwrap();
        symlink(Path::new(folder).join("host-local"), bin.join("host-local")).unwrap();
        fs::write(bin.join("vrouter.toml"), FILE.replace("plugged = 8", "plugged = 64")).unwrap();
        // The router runs in the node, where the first call of the plug-in starts it, and where folders such as /tmp are empty but for that of
        // the plug-ins.
        let netrig = bin.join("program");
        let mut link = Command::new("sh");
        link.args(["-c", "ln \"$0\" \"$1\" 2> /dev/null || cp \"$0\" \"$1\"", env!("CARGO_BIN_EXE_netrig")])
            .arg(&netrig);
        assert!(link.status().unwrap().success());
        let netrig = netrig.display();
        let script = format!(
            "#!/bin/sh\nif [ $CNI_COMMAND = VERSION ] && ! [ -S /run/netrig/vrouter/a.sock ]; then\n\
             setsid {netrig} vrouter run {bin}/vrouter.toml --node a > /dev/null 2>&1 < /dev/null &\n\
             until [ -S /run/netrig/vrouter/a.sock ]; do sleep 0.05; done\nfi\nexec {netrig}\n",
            bin = bin.display()
        );
        let mut writer = Command::new("sh");
        writer.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(bin.join("netrig")).stdin(Stdio::piped());
        let mut writer = writer.spawn().unwrap();
        writer.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        let plugin =
            json!({ "type": "netrig", "network": "red", "ipam": { "type": "host-local", "subnet": "10.1.0.0/24" } });
        let network = json!({ "cniVersion": "1.1.0", "name": "tested", "plugins": [plugin] });
        let phases =
            "[[scenario.phase]]\nname = \"operations\"\ncommand = [{ datapath = \"cni\", name = \"conform\" }]\n";
        let (said, trial) = bench.run(&network, "", phases, &bin);
        let trial = trial.unwrap_or_else(|| panic!("no trial: {said}"));
        let checks = Procedure::Cni.judge(std::slice::from_ref(&trial));
        let others: Vec<_> = checks.iter().filter(|check| check.verdict != Verdict::Passed).collect();
        assert!(!checks.is_empty() && others.is_empty(), "{others:#?}");
        world::assert_nothing_left("of a network of netrig's plug-in");
    });
}
