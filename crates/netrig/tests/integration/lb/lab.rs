//! A client, a balancer and a server in network namespaces, and `netrig lb` as a user runs it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, net};

use rig_datapath::napi;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;
use rig_sys::xdp;

use super::world::until;

/// What must come may take this long on a machine that is busy with other things.
pub const TIMEOUT: Duration = Duration::from_secs(60);
pub const SERVICE: &str = "10.9.0.1:80";
pub const SERVERS: [&str; 2] = ["10.2.0.2", "10.2.0.3"];
pub const PORT: u16 = 8080;

pub struct Lab {
    pub balancer: NetNs,
    pub client: NetNs,
    pub server: NetNs,
    pub directory: tempfile::TempDir,
    ends: Arc<AtomicBool>,
}

/// `(interface, its address)` of the balancer, towards the client and towards the server.
const CLIENT_SIDE: (&str, &str) = ("lb0", "10.1.0.1");
const SERVER_SIDE: (&str, &str) = ("lb1", "10.2.0.1");

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl Lab {
    /// To be called in a world of the test's own (see [`super::world::own`]).
    pub fn new() -> Self {
        let lab = Self {
            balancer: NetNs::create().unwrap(),
            client: NetNs::create().unwrap(),
            server: NetNs::create().unwrap(),
            directory: tempfile::tempdir().unwrap(),
            ends: Arc::default(),
        };
        lab.balancer.sysctl("net.ipv4.ip_forward", "1").unwrap();
        lab.link(CLIENT_SIDE, &lab.client, &["10.1.0.2"]);
        lab.link(SERVER_SIDE, &lab.server, &SERVERS);
        for server in SERVERS {
            let at = SocketAddr::new(ip(server), PORT);
            let listener = lab.server.run(|| TcpListener::bind(at).unwrap()).unwrap();
            lab.serve(listener);
        }
        lab
    }

    /// A link between the balancer and `peer`, with a default route back.
    fn link(&self, (name, address): (&str, &str), peer: &NetNs, addresses: &[&str]) {
        let mut here = Netlink::open(&self.balancer).unwrap();
        here.add_veth(&VethPair { name, peer: "eth0", peer_ns: peer, queues: 1, mtu: 1500 }).unwrap();
        here.add_address(name, ip(address), 24).unwrap();
        here.set_up(name).unwrap();
        let mut there = Netlink::open(peer).unwrap();
        for address in addresses {
            there.add_address("eth0", ip(address), 24).unwrap();
        }
        there.set_up("eth0").unwrap();
        there.set_up("lo").unwrap();
        xdp::take_redirected(peer, "eth0", true).unwrap();
        let up = until(TIMEOUT, || here.is_operational(name).unwrap().then_some(()));
        assert!(up.is_some(), "{name} does not come up");
        let up = until(TIMEOUT, || there.is_operational("eth0").unwrap().then_some(()));
        assert!(up.is_some(), "the peer of {name} does not come up");
        there.add_route(ip("0.0.0.0"), 0, ip(address)).unwrap();
    }

    /// Says what it hears until the lab is gone.
    pub fn serve(&self, listener: TcpListener) {
        listener.set_nonblocking(true).unwrap();
        let ends = Arc::clone(&self.ends);
        thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                if let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(false).unwrap();
                    thread::spawn(move || echo(stream));
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
    }

    /// Takes the link towards the client away.
    pub fn unplug(&self) {
        self.ip(&format!("link delete {}", CLIENT_SIDE.0));
    }

    /// Runs `ip` on the balancer's machine.
    #[track_caller]
    pub fn ip(&self, arguments: &str) {
        let mut command = Command::new("ip");
        let status = in_namespace(command.args(arguments.split(' ')), &self.balancer).status().unwrap();
        assert!(status.success(), "ip {arguments}");
    }

    /// Another device of the balancer, with so many queues, whose peer is not used.
    pub fn add_device(&self, name: &str, queues: u32) {
        let mut here = Netlink::open(&self.balancer).unwrap();
        let peer = format!("{name}peer");
        here.add_veth(&VethPair { name, peer: &peer, peer_ns: &self.balancer, queues, mtu: 1500 }).unwrap();
        here.set_up(&peer).unwrap();
        here.set_up(name).unwrap();
    }

    /// Whether the queues of a device of the balancer have threads on these CPUs in turn; none at all for no CPUs.
    pub fn is_placed(&self, device: &str, cpus: &[u32]) -> bool {
        let threaded = self.balancer.sysfs().unwrap().read(device, "threaded").unwrap();
        let gro = ethtool::get(&self.balancer, device, Offload::Gro).unwrap();
        match cpus {
            [] => threaded == "0" && !gro,
            // The threads may be exchanged just now.
            cpus => napi::is_placed(&self.balancer, device, cpus).is_ok_and(|placed| placed == Some(true)),
        }
    }

    pub fn plug(&self) {
        self.link(CLIENT_SIDE, &self.client, &["10.1.0.2"]);
    }

    /// netrig in the balancer's namespace.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.arg("lb").args(arguments).env("NETRIG_RUN", self.directory.path()).stdin(Stdio::null());
        in_namespace(&mut command, &self.balancer);
        command
    }

    /// The outputs of a command that ends with `status`.
    #[track_caller]
    pub fn netrig(&self, status: i32, arguments: &[&str]) -> (String, String) {
        let Output { status: ended, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, said) = (text(&stdout), text(&stderr));
        assert_eq!(ended.code(), Some(status), "{arguments:?}:\n{out}\n{said}");
        (out, said)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// A file with one service whose backends are `backends`.
    pub fn file(&self, backends: &str) -> String {
        let text = format!(
            "devices = [\"lb0\", \"lb1\"]\nconnections = 10_000\n[[service]]\nlisten = \"tcp {SERVICE}\"\nscheduler = \
             \"rr\"\nlocal = \"10.8.0.1-10.8.0.4\"\nbackend = [{backends}]\n"
        );
        self.write("lb.toml", &text)
    }

    /// Runs the balancer until it is ready.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Daemon {
        self.run_where(arguments, |_| {})
    }

    /// [`Self::run`] with a command that `say` has changed.
    #[track_caller]
    pub fn run_where(&self, arguments: &[&str], say: impl FnOnce(&mut Command)) -> Daemon {
        let running = self.begin_where(arguments, say);
        let ready = until(TIMEOUT, || running.said().contains("ready: ").then_some(()));
        assert!(ready.is_some(), "it does not come up: {}", running.said());
        running
    }

    /// Runs the balancer.
    pub fn begin(&self, arguments: &[&str]) -> Daemon {
        self.begin_where(arguments, |_| {})
    }

    fn begin_where(&self, arguments: &[&str], say: impl FnOnce(&mut Command)) -> Daemon {
        let log = self.path(&format!("log{}", fs::read_dir(self.directory.path()).unwrap().count()));
        let file = fs::File::create(&log).unwrap();
        let mut command = self.command(&[&["run"], arguments].concat());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        say(&mut command);
        Daemon { child: command.spawn().unwrap(), log }
    }

    /// A connection to the service, once the balancer has learnt its neighbours.
    pub fn connect(&self) -> TcpStream {
        let at: SocketAddr = SERVICE.parse().unwrap();
        let attempt = || self.client.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(5))).unwrap().ok();
        let stream = until(TIMEOUT, attempt).unwrap_or_else(|| panic!("no backend answers at {SERVICE}"));
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Whether the service answers.
    pub fn answers(&self) -> bool {
        let at: SocketAddr = SERVICE.parse().unwrap();
        self.client.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(3))).unwrap().is_ok()
    }

    /// Exchanges messages on connections of its own until it is asked how that went.
    pub fn talk(&self, connections: usize) -> Conversations {
        let mut streams: Vec<TcpStream> = (0..connections).map(|_| self.connect()).collect();
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let talking = thread::spawn(move || {
            let mut exchanges = 0;
            while !told.load(Ordering::Relaxed) {
                for stream in &mut streams {
                    exchange(stream, 1000)?;
                }
                exchanges += 1;
                thread::sleep(Duration::from_millis(5));
            }
            Ok(exchanges)
        });
        Conversations { ends, talking }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

pub fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 65536];
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 || stream.write_all(&buffer[..read]).is_err() {
            let _ = stream.shutdown(net::Shutdown::Both);
            return;
        }
    }
}

/// Sends so many bytes, which must come back.
pub fn exchange(stream: &mut TcpStream, length: usize) -> io::Result<()> {
    let sent: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
    stream.write_all(&sent)?;
    let mut back = vec![0; length];
    stream.read_exact(&mut back)?;
    assert!(sent == back, "other bytes came back");
    Ok(())
}

/// Conversations that go on.
pub struct Conversations {
    ends: Arc<AtomicBool>,
    talking: JoinHandle<io::Result<u32>>,
}

impl Conversations {
    /// Panics when one of them has broken.
    #[track_caller]
    pub fn end(self) -> u32 {
        self.ends.store(true, Ordering::Relaxed);
        let exchanges = self.talking.join().unwrap();
        exchanges.unwrap_or_else(|error| panic!("a connection has broken: {error}"))
    }

    #[track_caller]
    pub fn goes_on(&self) {
        assert!(!self.talking.is_finished(), "a connection has broken");
    }
}

/// A control plane.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// One whose output goes to this file.
    pub fn new(child: Child, log: PathBuf) -> Self {
        Self { child, log }
    }

    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The status that it ends with by itself.
    #[track_caller]
    pub fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.said());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Where something is pinned for balancers of this name, of any run directory.
pub fn pins(name: &str) -> Vec<PathBuf> {
    let directories = fs::read_dir("/sys/fs/bpf").unwrap().map(|entry| entry.unwrap().path());
    let of_name = directories.map(|directory| directory.join(name));
    of_name.filter(|pins| pins.display().to_string().contains("/netrig") && pins.exists()).collect()
}

pub fn is_pinned(name: &str) -> bool {
    !pins(name).is_empty()
}
