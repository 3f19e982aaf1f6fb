//! Two namespaces with a veth pair between them, and `netrig spread` as a user runs it in the one that receives.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;
use rustix::process::Signal;

use super::world::{expect, until};

/// How long a test waits for an event, so that it passes on a busy machine, too.
pub const TIMEOUT: Duration = Duration::from_secs(60);
pub const QUEUES: u32 = 8;
/// The address of the end that receives.
pub const ADDRESS: &str = "10.9.0.2";
pub const PORT: u16 = 9000;

pub struct Lab {
    pub sender: NetNs,
    pub receiver: NetNs,
    pub directory: tempfile::TempDir,
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl Lab {
    pub fn new() -> Self {
        let lab = Self {
            sender: NetNs::create().unwrap(),
            receiver: NetNs::create().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        };
        lab.plug("in0");
        Netlink::open(&lab.sender).unwrap().add_address("in0", ip("10.9.0.1"), 24).unwrap();
        Netlink::open(&lab.receiver).unwrap().add_address("in0", ip(ADDRESS), 24).unwrap();
        lab
    }

    /// Another pair, of the same name at both ends.
    pub fn plug(&self, name: &str) {
        let mut netlink = Netlink::open(&self.sender).unwrap();
        let pair = VethPair { name, peer: name, peer_ns: &self.receiver, queues: QUEUES, mtu: 1500 };
        netlink.add_veth(&pair).unwrap();
        netlink.set_up(name).unwrap();
        Netlink::open(&self.receiver).unwrap().set_up(name).unwrap();
        // With segmentation left to the receiver it would take packets past its queues.
        for offload in [Offload::Tso, Offload::Gso] {
            ethtool::set(&self.sender, name, offload, false).unwrap();
        }
    }

    pub fn unplug(&self, name: &str) {
        let mut command = Command::new("ip");
        assert!(in_namespace(command.args(["link", "del", name]), &self.sender).status().unwrap().success());
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `netrig spread` in the namespace that receives.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.arg("spread").args(arguments).env("NETRIG_RUN", self.path("run")).stdin(Stdio::null());
        in_namespace(&mut command, &self.receiver);
        command
    }

    /// The outputs of a command that ends with `status`.
    #[track_caller]
    pub fn netrig(&self, status: i32, arguments: &[&str]) -> (String, String) {
        expect(&self.command(arguments).output().unwrap(), status)
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.netrig(0, &["show", "--json"]).0).unwrap()
    }

    /// Runs the spreader until it is ready.
    #[track_caller]
    pub fn start(&self, arguments: &[&str]) -> Daemon {
        let log = self.path("log");
        let out = fs::File::create(&log).unwrap();
        let mut command = self.command(&[&["run"], arguments].concat());
        command.stdout(out.try_clone().unwrap()).stderr(out);
        let running = Daemon { child: command.spawn().unwrap(), log };
        running.says("ready: ");
        running
    }

    /// How the kernel has an interface: whether threads receive, whether it merges segments, and its masks.
    pub fn as_it_is(&self, interface: &str) -> (String, bool, Vec<String>) {
        let sysfs = self.receiver.sysfs().unwrap();
        let masks = (0..QUEUES).map(|queue| sysfs.read(interface, &format!("queues/rx-{queue}/rps_cpus")).unwrap());
        let gro = ethtool::get(&self.receiver, interface, Offload::Gro).unwrap();
        (sysfs.read(interface, "threaded").unwrap(), gro, masks.collect())
    }

    /// Sockets that send to the one that is told last, each of a flow of its own.
    pub fn flows(&self, count: usize) -> (Vec<UdpSocket>, UdpSocket) {
        let to = self.receiver.run(|| UdpSocket::bind((ip(ADDRESS), PORT)).unwrap()).unwrap();
        let from = || self.sender.run(|| UdpSocket::bind((ip("10.9.0.1"), 0)).unwrap()).unwrap();
        let flows: Vec<UdpSocket> = (0..count).map(|_| from()).collect();
        for flow in &flows {
            flow.connect((ip(ADDRESS), PORT)).unwrap();
        }
        (flows, to)
    }
}

pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has said something.
    #[track_caller]
    pub fn says(&self, what: &str) {
        let heard = until(TIMEOUT, || self.said().contains(what).then_some(()));
        assert!(heard.is_some(), "it does not say '{what}', but:\n{}", self.said());
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&mut self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ended(mut self, status: Option<i32>) {
        let ended = until(TIMEOUT, || self.child.try_wait().unwrap()).expect("it does not end");
        assert_eq!(ended.code(), status, "{}", self.said());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
