//! Two nodes with a wire between them and containers behind them, and `netrig vrouter` as a user runs it.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;
use rustix::process::Signal;

use super::world::until;

/// How long a test waits for an event, so that it passes on a busy machine, too.
pub const TIMEOUT: Duration = Duration::from_secs(60);
pub const PORT: u16 = 8080;
/// The addresses of the client and of the web server.
pub const ADDRESSES: [&str; 2] = ["10.1.0.11", "10.2.0.11"];
pub const WEB: &str = "02:00:00:00:00:02";

/// `client` is behind node a, by name a namespace of ip-netns(8), and `web` is behind node b.
pub struct Lab {
    pub nodes: [NetNs; 2],
    pub client: NetNs,
    pub web: NetNs,
    pub directory: tempfile::TempDir,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[track_caller]
pub fn run(ns: &NetNs, arguments: &str) {
    let mut command = Command::new("ip");
    let output = in_namespace(command.args(arguments.split(' ')), ns).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Lab {
    /// To be called in a world of the test's own (see [`super::world::own`]).
    pub fn new() -> Self {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "none", "/run"]).status().unwrap();
        assert!(mounted.success(), "no /run of its own");
        let here = NetNs::of_current_thread().unwrap();
        run(&here, "netns add client");
        let lab = Self {
            nodes: [NetNs::create().unwrap(), NetNs::create().unwrap()],
            client: NetNs::open("/run/netns/client").unwrap(),
            web: NetNs::create().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        };
        let [a, b] = &lab.nodes;
        let pair = VethPair { name: "wire", peer: "wire", peer_ns: b, queues: 1, mtu: 1500 };
        Netlink::open(a).unwrap().add_veth(&pair).unwrap();
        for (node, address) in [(a, "192.0.2.1"), (b, "192.0.2.2")] {
            let mut netlink = Netlink::open(node).unwrap();
            netlink.add_address("wire", ip(address), 24).unwrap();
            netlink.set_up("wire").unwrap();
        }
        lab.serve(SocketAddr::new(ip("0.0.0.0"), PORT));
        lab.plug(0, "toclient", &lab.client, "02:00:00:00:00:01");
        lab
    }

    /// What is sent to the web server there comes back.
    pub fn serve(&self, at: SocketAddr) {
        let listener = self.web.run(|| TcpListener::bind(at).unwrap()).unwrap();
        // It ends with the test's world.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || echo(stream));
            }
        });
    }

    /// A container's link, whose end at the node is `name`.
    pub fn plug(&self, node: usize, name: &str, container: &NetNs, mac: &str) {
        self.plug_as(node, name, container, mac, ADDRESSES[node]);
    }

    pub fn plug_as(&self, node: usize, name: &str, container: &NetNs, mac: &str, address: &str) {
        let mut netlink = Netlink::open(&self.nodes[node]).unwrap();
        netlink.add_veth(&VethPair { name, peer: "eth0", peer_ns: container, queues: 1, mtu: 1400 }).unwrap();
        netlink.set_up(name).unwrap();
        run(container, &format!("link set eth0 address {mac}"));
        let mut inside = Netlink::open(container).unwrap();
        inside.add_address("eth0", ip(address), 24).unwrap();
        inside.set_up("eth0").unwrap();
        inside.set_up("lo").unwrap();
        inside.add_route(ip("0.0.0.0"), 0, ip(&ADDRESSES[node].replace(".11", ".1"))).unwrap();
    }

    pub fn plug_web(&self) {
        self.plug(1, "toweb", &self.web, WEB);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file of both nodes; the web server takes TCP to these ports.
    pub fn file(&self, ports: &str) -> String {
        let path = self.path("vrouter.toml");
        fs::write(&path, FILE.replace("PORTS", ports)).unwrap();
        path.display().to_string()
    }

    /// A file of its own.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// netrig in the namespace of a node.
    pub fn command(&self, node: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.arg("vrouter").args(arguments).env("NETRIG_RUN", self.path("run")).stdin(Stdio::null());
        in_namespace(&mut command, &self.nodes[node]);
        command
    }

    /// The outputs of a command that ends with `status`.
    #[track_caller]
    pub fn netrig(&self, status: i32, node: usize, arguments: &[&str]) -> (String, String) {
        let output = self.command(node, arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(status), "{arguments:?}:\n{out}\n{said}");
        (out, said)
    }

    #[track_caller]
    pub fn json(&self, node: &str, arguments: &[&str]) -> serde_json::Value {
        let (out, _) = self.netrig(0, 0, &[arguments, &["--json", "--node", node]].concat());
        serde_json::from_str(&out).unwrap()
    }

    /// Packets that node b has dropped for a reason.
    pub fn dropped(&self, reason: &str) -> u64 {
        let drops = self.json("b", &["dropstats"]);
        let drop = drops.as_array().unwrap().iter().find(|drop| drop["reason"] == reason);
        drop.unwrap()["packets"].as_u64().unwrap()
    }

    /// Runs the router of a node until it is ready.
    #[track_caller]
    pub fn start(&self, node: usize, file: &str) -> Daemon {
        self.start_with(node, file, &[])
    }

    #[track_caller]
    pub fn start_with(&self, node: usize, file: &str, more: &[&str]) -> Daemon {
        let name = ["a", "b"][node];
        let log = self.path(&format!("{name}.log"));
        let out = fs::File::create(&log).unwrap();
        let mut command = self.command(node, &[&["run", file, "--node", name], more].concat());
        command.stdout(out.try_clone().unwrap()).stderr(out);
        let running = Daemon { child: command.spawn().unwrap(), log };
        running.says("ready: ");
        running
    }

    /// A connection from the client to the web server.
    #[track_caller]
    pub fn connect(&self) -> TcpStream {
        self.connect_to(SocketAddr::new(ip(ADDRESSES[1]), PORT))
    }

    #[track_caller]
    pub fn connect_to(&self, to: SocketAddr) -> TcpStream {
        let attempt = || self.client.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap().ok();
        let stream = until(TIMEOUT, attempt).expect("no server answers");
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    pub fn try_connect(&self, time_limit: Duration) -> std::io::Result<TcpStream> {
        let to = SocketAddr::new(ip(ADDRESSES[1]), PORT);
        self.client.run(|| TcpStream::connect_timeout(&to, time_limit)).unwrap()
    }

    /// Waits until no router answers a container's ARP request for its gateway.
    #[track_caller]
    pub fn is_left_alone(&self, container: &NetNs, to: &str) {
        let to = SocketAddr::new(ip(to), PORT);
        let left = until(TIMEOUT, || {
            run(container, "neigh flush dev eth0");
            let error = container.run(|| TcpStream::connect_timeout(&to, TIMEOUT)).unwrap().err()?;
            (error.kind() == std::io::ErrorKind::HostUnreachable).then_some(())
        });
        assert!(left.is_some(), "the gateway is still there");
    }
}

/// Where something is pinned for routers of this node, of any run directory.
pub fn pins(node: &str) -> Vec<PathBuf> {
    let directories = fs::read_dir("/sys/fs/bpf").unwrap().map(|entry| entry.unwrap().path());
    let of_node = directories.map(|directory| directory.join(node));
    of_node.filter(|pins| fs::read_dir(pins).is_ok_and(|pinned| pinned.count() > 0)).collect()
}

pub fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 65536];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}

/// What is sent comes back.
#[track_caller]
pub fn exchange(stream: &mut TcpStream) {
    let sent: Vec<u8> = (0..100_000_u32).map(|n| (n * 7) as u8).collect();
    let mut back = vec![0; sent.len()];
    thread::scope(|scope| {
        let mut to = stream.try_clone().unwrap();
        let sent = &sent;
        scope.spawn(move || to.write_all(sent).unwrap());
        stream.read_exact(&mut back).unwrap();
    });
    assert!(sent == back, "other bytes came back");
}

pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Waits until it has said something.
    #[track_caller]
    pub fn says(&self, what: &str) {
        let said = || fs::read_to_string(&self.log).unwrap();
        let heard = until(TIMEOUT, || said().contains(what).then_some(()));
        assert!(heard.is_some(), "it does not say '{what}': {}", said());
    }

    pub fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The status that it ends with by itself.
    #[track_caller]
    pub fn ended(&mut self) -> Option<i32> {
        until(TIMEOUT, || self.child.try_wait().unwrap()).expect("it does not end").code()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

const FILE: &str = r#"
[[node]]
name = "a"
address = "192.0.2.1"
[[node]]
name = "b"
address = "192.0.2.2"

[[network]]
name = "red"
subnets = ["10.1.0.0/24"]
policies = ["both"]
[[network]]
name = "blue"
subnets = ["10.2.0.0/24"]
policies = ["both"]
[[policy]]
name = "both"
rules = [{ action = "allow", source = "red", destination = "blue" }]

[[interface]]
name = "client"
node = "a"
network = "red"
namespace = "client"
addresses = ["10.1.0.11"]
mac = "02:00:00:00:00:01"
[[interface]]
name = "web"
node = "b"
network = "blue"
device = "toweb"
addresses = ["10.2.0.11"]
mac = "02:00:00:00:00:02"
security_groups = ["web"]

[[security_group]]
name = "web"
in = [{ protocol = "tcp", ports = PORTS }]
"#;
