//! The vRouter as a network driver of Docker: containers of engines on nodes of their own.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rig_skip::{Lack, skip};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;

use super::docker::is_installed;
use super::vrouter_cni::{reaches_from, reaches_in_vain, serve_in};
use super::world::{self, NETRIG, until};

/// An engine that starts on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// Folders of which each node has its own. All but Docker's are on every machine.
const OWN: [&str; 5] = ["/run", "/var/lib", "/var/log", "/opt", "/etc/docker"];

const NETWORKS: &str = r#"
[[network]]
name = "red"
subnets = ["10.1.0.0/24", "fd00:1::/64"]

[[network]]
name = "blue"
subnets = ["10.2.0.0/24"]
encapsulation = ["vxlan"]

[[security_group]]
name = "shut"
"#;

/// Whether there is all that a test with containers needs.
fn is_equipped(more: &[&'static str]) -> bool {
    if !is_installed() {
        return false;
    }
    for program in ["docker", "busybox"].iter().chain(more) {
        let found = Command::new(program).arg("--help").stdin(Stdio::null()).output();
        if let Err(error) = found {
            skip(Lack::Program(program), format_args!("{program}: {error}"));
            return false;
        }
    }
    true
}

/// A program of a node, which is killed with the value.
struct Program(Child);

impl Program {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// A network namespace with files of its own, and what runs there.
struct Node {
    name: &'static str,
    folder: PathBuf,
    namespace: NetNs,
    /// Holds the namespaces.
    holder: Program,
}

impl Node {
    fn new(folder: &Path, name: &'static str) -> Self {
        let folder = folder.join(name);
        fs::create_dir(&folder).unwrap();
        let mounts = OWN.map(|own| format!("mkdir -p {own} && mount -t tmpfs none {own}")).join(" && ");
        let script = format!("{mounts} && echo ready && exec sleep 100000");
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut said).expect("a node has files of its own");
        let namespace = NetNs::open(format!("/proc/{}/ns/net", child.id())).unwrap();
        Netlink::open(&namespace).unwrap().set_up("lo").unwrap();
        Self { name, folder, namespace, holder: Program(child) }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let of = self.holder.0.id().to_string();
        command.args(["--target", &of, "--net", "--mount", program]).stdin(Stdio::null());
        command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap())).env_remove("DOCKER_HOST");
        command
    }

    /// A program that goes on; what it says is in a file of its name.
    fn start(&self, name: &str, mut command: Command) -> Program {
        let log = fs::File::options().create(true).append(true).open(self.folder.join(name)).unwrap();
        Program(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    /// The same of netrig, until it says that it is ready.
    #[track_caller]
    fn start_netrig(&self, name: &str, arguments: &[&str]) -> Program {
        let said = || fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let before = said().len();
        let mut command = self.command(NETRIG);
        command.arg("vrouter").args(arguments).args(["--node", self.name]);
        let program = self.start(name, command);
        let is_ready = until(SOON, || said()[before..].contains("ready: ").then_some(()));
        assert!(is_ready.is_some(), "{name} of {}: {}", self.name, said());
        program
    }

    #[track_caller]
    fn start_router(&self) -> Program {
        self.start_netrig("router", &["run", self.folder.join("vrouter.toml").to_str().unwrap()])
    }

    #[track_caller]
    fn start_driver(&self) -> Program {
        self.start_netrig("driver", &["docker"])
    }

    #[track_caller]
    fn start_engine(&self) -> Program {
        let mut command = self.command("dockerd");
        command.args(["--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", &format!("/{}", cgroup())]);
        let engine = self.start("dockerd", command);
        let answers = || self.command("docker").arg("version").output().unwrap().status.success().then_some(());
        let log = || fs::read_to_string(self.folder.join("dockerd")).unwrap();
        assert!(until(SOON, answers).is_some(), "{}", log());
        engine
    }

    /// Kills an engine, with which its containerd ends.
    fn kill_engine(&self, engine: &mut Program) {
        engine.kill();
        let pid = self.file("/run/docker/containerd/containerd.pid").trim().parse().ok().and_then(Pid::from_raw);
        // This test is the first process of its world, and has to hear of it: an engine takes what nobody has heard of for one that runs.
        let has_ended = || waitpid(pid, WaitOptions::NOHANG).unwrap();
        assert!(pid.is_some() && until(SOON, has_ended).is_some(), "containerd ends");
    }

    /// The outputs of `docker` with these words.
    #[track_caller]
    fn docker(&self, status: i32, words: &str) -> String {
        let output = self.command("docker").args(words.split_whitespace()).output().unwrap();
        let said = world::text(&output.stdout) + &world::text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "docker {words}: {said}");
        said
    }

    /// An image with a program that waits.
    fn import(&self) {
        let root = self.folder.join("root");
        fs::create_dir(&root).unwrap();
        let script = format!(
            "cp \"$(command -v busybox)\" {0}/busybox && tar -C {0} -c busybox | docker import - waits",
            root.display()
        );
        let output = self.command("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{}", world::text(&output.stderr));
    }

    /// Runs a container with these words for `docker run`.
    #[track_caller]
    fn run(&self, name: &str, words: &str) -> Container {
        self.docker(0, &format!("run --detach --name {name} {words} waits /busybox sleep 100000"));
        self.container(name)
    }

    /// That it does not run, what Docker says, and nothing of it left.
    #[track_caller]
    fn runs_not(&self, words: &str) -> String {
        let said = self.docker(125, &format!("run --detach --name refused {words} waits /busybox sleep 100000"));
        self.docker(0, "rm --force refused");
        said
    }

    #[track_caller]
    fn container(&self, name: &str) -> Container {
        let told: Value = serde_json::from_str(&self.docker(0, &format!("inspect {name}"))).unwrap();
        let pid = told[0]["State"]["Pid"].as_u64().unwrap();
        let networks = told[0]["NetworkSettings"]["Networks"].as_object().unwrap().values();
        let texts = networks.flat_map(|one| [&one["IPAddress"], &one["GlobalIPv6Address"]]);
        let addresses = texts.filter_map(|text| text.as_str()?.parse().ok()).collect();
        Container { namespace: NetNs::open(format!("/proc/{pid}/ns/net")).unwrap(), addresses }
    }

    /// Names of its devices.
    fn devices(&self) -> BTreeSet<String> {
        Netlink::open(&self.namespace).unwrap().links().unwrap().into_iter().map(|link| link.name).collect()
    }

    /// Interfaces that the router lists.
    #[track_caller]
    fn listed(&self) -> usize {
        let output = self.command(NETRIG).args(["vrouter", "vif", "--list", "--json"]).output().unwrap();
        let listed: Value = serde_json::from_slice(&output.stdout).expect("the router answers");
        listed.as_array().unwrap().len()
    }

    /// What a file of the node's own has.
    fn file(&self, path: &str) -> String {
        let output = self.command("cat").arg(path).output().unwrap();
        world::text(&output.stdout)
    }

    /// Devices as before, and nothing kept.
    #[track_caller]
    fn has_nothing_left(&self, before: &BTreeSet<String>) {
        assert_eq!(self.devices(), *before);
        let plugged = self.file(&format!("/run/netrig/vrouter/{}.plugged", self.name));
        assert!(plugged.is_empty() || plugged == "{}", "{plugged}");
    }
}

struct Container {
    namespace: NetNs,
    addresses: Vec<IpAddr>,
}

impl Container {
    fn serve(&self) -> Vec<SocketAddr> {
        serve_in(&self.namespace, &self.addresses)
    }
}

/// That containers of this world's engines are in, by a name that no other world's have.
fn cgroup() -> String {
    let world = fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
    format!("test-{}", world.trim_matches(|c: char| !c.is_ascii_digit()))
}

/// Containers' cgroups outlive their engine.
struct Cgroups;

impl Drop for Cgroups {
    fn drop(&mut self) {
        let all = format!("find /sys/fs/cgroup -depth -type d -path '*/{}*'", cgroup());
        let ended = format!("for own in $({all}); do cat $own/cgroup.procs; done | xargs --no-run-if-empty kill -9");
        // Those of a test that has failed run yet.
        let script = format!(
            "{ended}; for i in $(seq 100); do {all} -exec rmdir {{}} + 2> /dev/null; {all} | grep -q . || break; sleep 0.1; done"
        );
        let _told = Command::new("sh").args(["-c", &script]).status();
    }
}

const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// The two speakers of BGP know each other.
fn speaker(node: usize) -> String {
    let families = ["l3vpn-ipv4-unicast", "l3vpn-ipv6-unicast", "l2vpn-evpn"]
        .map(|family| format!("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = '{family}'\n"));
    // Two that call each other at once may refuse each other again and again: one only answers.
    let passive = if node == 1 { "[neighbors.transport.config]\npassive-mode = true\n" } else { "" };
    format!(
        "[global.config]\nas = 64512\nrouter-id = '{}'\n[[neighbors]]\n[neighbors.config]\nneighbor-address = '{}'\n\
         peer-as = 64512\n[neighbors.timers.config]\nconnect-retry = 1\nidle-hold-time-after-reset = 1\n{passive}{}",
        ADDRESSES[node],
        ADDRESSES[1 - node],
        families.concat()
    )
}

/// Two nodes with a wire between them, each with a speaker, and networks of both.
fn two_nodes(folder: &Path) -> ([Node; 2], Vec<Program>) {
    let nodes = [Node::new(folder, "a"), Node::new(folder, "b")];
    let pair = VethPair { name: "wire", peer: "wire", peer_ns: &nodes[1].namespace, queues: 1, mtu: 1500 };
    Netlink::open(&nodes[0].namespace).unwrap().add_veth(&pair).unwrap();
    let mut speakers = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let mut netlink = Netlink::open(&node.namespace).unwrap();
        netlink.add_address("wire", ADDRESSES[number].parse().unwrap(), 24).unwrap();
        netlink.set_up("wire").unwrap();
        let own = format!("[[node]]\nname = \"{}\"\naddress = \"{}\"\n", node.name, ADDRESSES[number]);
        fs::write(node.folder.join("vrouter.toml"), format!("[router.bgp]\n{own}{NETWORKS}")).unwrap();
        fs::write(node.folder.join("gobgpd.toml"), speaker(number)).unwrap();
        let mut command = node.command("gobgpd");
        command.args(["--pprof-disable", "-f"]).arg(node.folder.join("gobgpd.toml"));
        speakers.push(node.start("gobgpd", command));
    }
    (nodes, speakers)
}

#[test]
fn containers_of_two_nodes_reach_each_other_and_outlive_every_daemon() {
    if !is_equipped(&["gobgpd"]) {
        return;
    }
    world::own(|| {
        let folder = tempfile::tempdir().unwrap();
        let _cgroups = Cgroups;
        let (nodes, _speakers) = two_nodes(folder.path());
        let [a, b] = &nodes;
        let mut router = a.start_router();
        let _router = b.start_router();
        let mut driver = a.start_driver();
        let _driver = b.start_driver();
        let mut engine = a.start_engine();
        let _engine = b.start_engine();
        nodes.iter().for_each(Node::import);
        let before = [a, b].map(Node::devices);
        // Each engine gives addresses of a part of the subnet.
        for (node, range, range6) in [(a, "10.1.0.64/26", "fd00:1::a000/116"), (b, "10.1.0.128/26", "fd00:1::b000/116")]
        {
            let pools = format!(
                "--subnet 10.1.0.0/24 --ip-range {range} --gateway 10.1.0.1 --ipv6 --subnet fd00:1::/64 --ip-range {range6} \
                 --gateway fd00:1::1"
            );
            node.docker(0, &format!("network create --driver netrig -o network=red {pools} red"));
            let pool =
                format!("--subnet 10.2.0.0/24 --ip-range {} --gateway 10.2.0.1", range.replace("10.1.", "10.2."));
            node.docker(0, &format!("network create --driver netrig -o network=blue {pool} blue"));
        }
        let client = a.run("client", "--network red");
        let web = b.run("web", "--network red").serve();
        let other = a.run("other", "--network blue");
        let others = b.run("others", "--network blue").serve();
        assert_eq!((web.len(), others.len(), a.listed(), b.listed()), (2, 1, 2, 2));
        reaches_from(&client.namespace, &web);
        reaches_from(&other.namespace, &others);
        assert!(reaches_in_vain(&client.namespace, others[0]) && reaches_in_vain(&other.namespace, web[0]));
        // What fits the tunnels, and nothing of Docker's own beside it.
        let links = |container: &Container| Netlink::open(&container.namespace).unwrap().links().unwrap();
        let mtu_of = |container: &Container| links(container).iter().find(|link| link.name == "eth0").unwrap().mtu;
        assert_eq!((mtu_of(&client), mtu_of(&other)), (1450, 1450));
        let names: Vec<String> = links(&client).into_iter().map(|link| link.name).collect();
        assert!(!names.contains(&"eth1".to_owned()), "{names:?}");
        assert!(!a.docker(0, "network ls").contains("docker_gwbridge"));

        // Without the driver and the router nothing stops; with them again, there are containers again.
        driver.kill();
        router.kill();
        router = a.start_router();
        reaches_from(&client.namespace, &web);
        driver = a.start_driver();
        let late = a.run("late", "--network red");
        reaches_from(&late.namespace, &web);
        a.docker(0, "rm --force late");
        assert_eq!(a.listed(), 2);

        // An engine that is killed says nothing of its containers, which end with it: one whose devices have gone, and one whose are there yet,
        // because its namespace is held here.
        drop(client);
        a.kill_engine(&mut engine);
        engine = a.start_engine();
        a.docker(0, "start client other");
        reaches_from(&a.container("client").namespace, &web);
        reaches_from(&a.container("other").namespace, &others);
        assert_eq!(a.listed(), 2);
        drop(other);

        for (node, names) in [(a, "client other"), (b, "web others")] {
            node.docker(0, &format!("rm --force {names}"));
            node.docker(0, "network rm red blue");
        }
        for (node, before) in nodes.iter().zip(&before) {
            node.has_nothing_left(before);
            assert_eq!(node.file(&format!("/var/lib/netrig/docker/{}.json", node.name)), "{}");
        }
        for program in [&mut engine, &mut driver, &mut router] {
            program.kill();
        }
    });
}

#[test]
fn what_docker_is_asked_wrongly_is_told_and_leaves_nothing() {
    if !is_equipped(&[]) {
        return;
    }
    world::own(|| {
        let folder = tempfile::tempdir().unwrap();
        let _cgroups = Cgroups;
        let node = Node::new(folder.path(), "a");
        let own = "[router]\nplugged = 2\n[[node]]\nname = \"a\"\naddress = \"192.0.2.1\"\n[[interface]]\nname = \"own\"\nnode = \"a\"\n\
                   network = \"red\"\ndevice = \"absent\"\naddresses = [\"10.1.0.99\"]\n";
        fs::write(node.folder.join("vrouter.toml"), format!("{own}{NETWORKS}")).unwrap();
        let _engine = node.start_engine();
        node.import();
        let create = |words: &str| node.docker(1, &format!("network create --driver netrig {words} red"));
        let driver = node.start_driver();
        assert!(create("-o network=red --subnet 10.1.0.0/24").contains("the router of node 'a' does not run here"));
        let mut router = node.start_router();
        let before = node.devices();
        for (words, said) in [
            ("", "no network is named: there is blue, red: say -o network=NAME"),
            ("-o network=green", "there is no network 'green' in the settings: there is blue, red"),
            ("-o network=red", "is in no subnet of network 'red': say --subnet, of 10.1.0.0/24, fd00:1::/64"),
            ("-o network=red --subnet 10.1.0.0/16", "is in no subnet of network 'red'"),
            ("-o network=red --subnet 10.1.0.0/24 --gateway 10.1.0.9", "say --gateway 10.1.0.1"),
            (
                "-o network=red --subnet 10.1.0.0/24 -o security_groups=none",
                "no security group 'none' in the router's file: there is shut",
            ),
            (
                "-o network=red --subnet 10.1.0.0/24 -o security_group=shut",
                "option 'security_group' is none of netrig's",
            ),
            ("-o network=red --subnet 10.1.0.0/24 -o mtu=5", "'mtu' is '5'"),
        ] {
            let told = create(words);
            assert!(told.contains(said), "{words}: {told}");
        }
        // As many as there is room for; those of a group without rules take nothing.
        node.docker(0, "network create --driver netrig -o network=red --subnet 10.1.0.0/24 red");
        let web = node.run("web", "--network name=red,driver-opt=security_groups=shut");
        let at = web.serve();
        for (words, said) in [
            ("--network red --ip 10.1.0.99", "10.1.0.99 is an address of 'own' already"),
            ("--network name=red,driver-opt=security_groups=none", "there is no security group 'none'"),
            ("--network name=red,driver-opt=group=shut", "option 'group' is none of netrig's endpoints"),
            ("--network red --publish 8080:80", "Make the network with -o gwbridge=true"),
        ] {
            let told = node.runs_not(words);
            assert!(told.contains(said), "{words}: {told}");
        }
        let client = node.run("client", "--network red");
        assert!(reaches_in_vain(&client.namespace, at[0]));
        let full = node.runs_not("--network red");
        assert!(full.contains("3 interfaces of plug-ins, and the router has room for 2"), "{full}");
        // Without a router, who goes leaves nothing, and nobody comes.
        router.kill();
        node.docker(0, "rm --force client web");
        assert!(node.runs_not("--network red").contains("the router of node 'a' does not run here"));
        let _router = node.start_router();
        assert_eq!(node.listed(), 1);

        // With Docker's own bridge beside it, ports are published.
        node.docker(0, "network rm red");
        node.docker(0, "network create --driver netrig -o network=red -o gwbridge=true --subnet 10.1.0.0/24 red");
        let web = node.run("web", "--network red --publish 8080:8080");
        let listener = web.namespace.run(|| TcpListener::bind("0.0.0.0:8080")).unwrap().unwrap();
        let to: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let stream = until(SOON, || node.namespace.run(|| TcpStream::connect(to)).unwrap().ok());
        assert!(stream.is_some() && listener.accept().is_ok());
        node.docker(0, "rm --force web");
        node.docker(0, "network rm red docker_gwbridge");
        node.has_nothing_left(&before);
        assert_eq!(node.file("/var/lib/netrig/docker/a.json"), "{}");

        // One driver for each file, and for each socket.
        let again = node.command(NETRIG).args(["vrouter", "docker", "--node", "a"]).output().unwrap();
        assert_eq!(again.status.code(), Some(2));
        assert!(world::text(&again.stderr).contains("has the networks of /var/lib/netrig/docker/a.json"));
        let again = node.command(NETRIG).args(["vrouter", "docker", "--node", "b"]).output().unwrap();
        assert_eq!(again.status.code(), Some(3));
        assert!(world::text(&again.stderr).contains("another process listens at /run/docker/plugins/netrig.sock"));
        // Told to end, it takes its socket away.
        let mut driver = driver;
        kill_process(Pid::from_child(&driver.0), Signal::TERM).unwrap();
        assert!(driver.0.wait().unwrap().success());
        assert_eq!(node.file("/run/docker/plugins/netrig.sock"), "");
        assert!(!node.command("ls").arg("/run/docker/plugins/netrig.sock").output().unwrap().status.success());
    });
}
