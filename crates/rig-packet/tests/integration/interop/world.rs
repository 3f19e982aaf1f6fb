//! Two namespaces: an engine in the one, the kernel in the other.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rig_packet::device::{self, Device, Options};
use rig_packet::plan::{Capture, Driver, GatewayPlan, PortPlan, Range, ThreadPlan};
use rig_packet::{
    AnswerScope, Clock, Config, Counters, Engine, Family, Gateway, Latencies, Link, Monotonic, PassAction, PassResult,
    Port, Service, V4, V6, drive,
};
use rig_skip::{Lack, skip};
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::{self, NetNs};
use rig_wire::ethernet::Mac;

/// What must come may take this long, on a machine that is busy with other things.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A family with the addresses of the two ends.
pub trait Hosts: Family<Address: Into<IpAddr> + Debug> {
    const ENGINE: Self::Address;
    const KERNEL: Self::Address;
    const PREFIX: u8;
}

impl Hosts for V4 {
    const ENGINE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
    const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
    const PREFIX: u8 = 24;
}

impl Hosts for V6 {
    const ENGINE: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1);
    const KERNEL: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2);
    const PREFIX: u8 = 64;
}

/// Whether `program` is here.
pub fn has(program: &str, ask: &str) -> bool {
    Command::new(program)
        .arg(ask)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

pub struct InteropLab<F: Hosts> {
    pub kernel: NetNs,
    port: Option<Device>,
    mac: Mac,
    _engine: NetNs,
    family: std::marker::PhantomData<F>,
}

impl<F: Hosts> InteropLab<F> {
    /// `None` where it cannot be built, which has been said.
    pub fn new(driver: Driver) -> Option<Self> {
        if rig_sys::process::user_id() != 0 || !netns::may_create_namespaces() {
            skip(Lack::Root, "ports and namespaces need it");
            return None;
        }
        let [engine, kernel] = [NetNs::create().unwrap(), NetNs::create().unwrap()];
        let mut links = [Netlink::open(&engine).unwrap(), Netlink::open(&kernel).unwrap()];
        let pair = VethPair { name: "engine", peer: "kernel", peer_ns: &kernel, queues: 1, mtu: 1500 };
        links[0].add_veth(&pair).unwrap();
        // Frames are to be those of a wire.
        for offload in [Offload::Tso, Offload::Gso] {
            ethtool::set(&kernel, "kernel", offload, false).unwrap();
        }
        links[1].add_address("kernel", F::KERNEL.into(), F::PREFIX).unwrap();
        for (link, name) in links.iter_mut().zip(["engine", "kernel"]) {
            link.set_up(name).unwrap();
        }
        links[1].set_up("lo").unwrap();
        until(|| links.iter().zip(["engine", "kernel"]).all(|(link, name)| link.is_operational(name).unwrap()));
        let mut opened = engine.run(|| device::open(&plan::<F>(driver), &Options::default())).unwrap().unwrap();
        let (port, mac) = (opened.devices.pop(), opened.mac);
        Some(Self { kernel, port, mac, _engine: engine, family: std::marker::PhantomData })
    }

    fn config(&self, service: Service) -> Config<F> {
        let link = Link {
            mac: self.mac,
            address: F::ENGINE,
            answer: AnswerScope::All,
            announce: false,
            vlan: None,
            gateway: Gateway::Address(F::KERNEL),
            hop_limit: 64,
            tos: 0,
            verify: true,
            tunnel: None,
        };
        let (local, remote) = (vec![(F::ENGINE, 1)], vec![(F::KERNEL, 1)]);
        Config { link, local, remote, capacity: 10_000, service, steering: None }
    }

    /// Runs a client until it has closed `connections`, and winds it down.
    pub fn client(&mut self, service: Service, connections: u64) -> (Counters, Latencies) {
        self.run(service, move |engine| engine.counters().sk_close >= connections)
    }

    /// Runs a server while `work` is done beside it, in the kernel's namespace.
    pub fn server<T: Send>(&mut self, service: Service, work: impl FnOnce() -> T + Send) -> (Counters, T) {
        let done = AtomicBool::new(false);
        let kernel = NetNs::open(format!("/proc/self/fd/{}", self.kernel.raw_fd())).unwrap();
        thread::scope(|scope| {
            let result = scope.spawn(|| {
                let result = kernel.run(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)));
                done.store(true, Ordering::Relaxed);
                result.unwrap()
            });
            let (counters, _) = self.run(service, |_| done.load(Ordering::Relaxed));
            let result = result.join().unwrap().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (counters, result)
        })
    }

    /// Runs an engine until `done`, and then until nothing is open.
    fn run(&mut self, service: Service, mut done: impl FnMut(&Engine<F>) -> bool) -> (Counters, Latencies) {
        let mut engine = Engine::new(self.config(service), Monotonic.now()).unwrap();
        let begin = Instant::now();
        let mut winding = false;
        let mut go_on = |engine: &mut Engine<F>, _| {
            if !winding && (done(engine) || begin.elapsed() > TIMEOUT) {
                winding = true;
                engine.wind_down();
            }
            // Others want the CPU too.
            thread::yield_now();
            if winding && (engine.counters().sk_con() == 0 || begin.elapsed() >= 2 * TIMEOUT) {
                return PassAction::Stop;
            }
            PassAction::Rested
        };
        fn on<F: Family>(
            engine: &mut Engine<F>,
            port: &mut impl Port,
            go_on: impl FnMut(&mut Engine<F>, PassResult) -> PassAction,
        ) {
            drive(engine, port, &mut Monotonic, go_on);
        }
        match self.port.as_mut().unwrap() {
            Device::Xdp(port) => on(&mut engine, port, &mut go_on),
            Device::Live(port) => on(&mut engine, port, &mut go_on),
            Device::Packet(port) => on(&mut engine, port, &mut go_on),
        }
        assert!(engine.is_ready(), "the kernel does not say where it is: {:?}", engine.counters());
        (engine.counters().clone(), engine.latencies().clone())
    }
}

fn plan<F: Hosts>(driver: Driver) -> PortPlan {
    PortPlan {
        interface: "engine".into(),
        driver,
        address: F::ENGINE.into(),
        gateway: GatewayPlan::Address(F::KERNEL.into()),
        vlan: None,
        vxlan: None,
        local: vec![Range { first: F::ENGINE.into(), count: 1 }],
        remote: vec![Range { first: F::KERNEL.into(), count: 1 }],
        threads: vec![ThreadPlan { cpu: None, queue: 0, response: None }],
        mtu: 1500,
        live: true,
        burst: 64,
        take: Capture::All,
        answer: AnswerScope::All,
        hop_limit: 64,
        tos: 0,
    }
}

/// Waits for what must come.
#[track_caller]
pub fn until(mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_there() {
        assert!(Instant::now() < deadline, "it does not come");
        thread::sleep(Duration::from_millis(5));
    }
}
