//! netrig's own balancer as XDP programs on both wires.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rig_datapath::balancer::{
    Attachment, Back, Backend, BackendStatus, Balancer, Config, Expire, Forward, Generic, Handle, MOST_PACKETS,
    Protocol as Carried, Scheduler, Service, Sizes, Spreading,
};
use rig_sys::cpu::run_before_others;
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;

use super::{Carrier, Job, Protocol, State, WEIGHT};
use crate::record::{MiddleBackend, MiddleService};

/// Room for connections: some seconds of closed ones at the highest rates, and all that the study holds open.
const CONNECTIONS: u32 = 1 << 21;
/// How long a round through the connection table takes, and of how many parts it is made: nothing else runs on the CPU
/// during one, some tens of microseconds.
const ROUND: Duration = Duration::from_secs(2);
const PARTS: u32 = 1000;
/// Of real time, see sched(7).
const WORKERS_PRIORITY: u8 = 1;
const ASK: Duration = Duration::from_secs(1);

/// The balancer at work, and the thread that keeps it.
#[derive(Debug)]
pub struct Balancing {
    balancer: Balancer,
    keeper: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
    _attachments: Vec<Attachment>,
}

impl Balancing {
    pub fn start(job: &Job, ns: &NetNs) -> Result<Self> {
        let sizes = Sizes { connections: CONNECTIONS, ..Sizes::default() };
        let mut balancer = Balancer::load(sizes)?;
        let service = |address: &std::net::SocketAddr| Service {
            protocol: match job.protocol {
                Protocol::Tcp => Carried::Tcp,
                Protocol::Udp => Carried::Udp,
            },
            address: *address,
            scheduler: Scheduler::RoundRobin,
            forward: Forward::FullNat { local: job.local.clone() },
            backends: job
                .backends_of(*address)
                .map(|address| Backend { address, weight: WEIGHT, limit: None })
                .collect(),
            limit: None,
            timeouts: Default::default(),
            expire: Expire::Never,
            sloppy_tcp: false,
        };
        balancer.apply(&Config { services: job.services.iter().map(service).collect(), ..Config::default() })?;
        // What is turned round on veth wakes no peer without an XDP program.
        balancer.set_back(Back::Redirect)?;
        balancer.spread_over(&Spreading::Queues {
            workers: job.workers.as_slice().to_vec(),
            receiver: None,
            // Some ten milliseconds of a worker's work, as virtual machines may lose their CPU so long.
            packets: MOST_PACKETS,
        })?;
        // Others of its CPU would have it for longer than there is room in a queue.
        for thread in balancer.queue_threads()? {
            run_before_others(thread, WORKERS_PRIORITY)?;
        }
        // Who cannot be asked for shows as drops for want of a neighbour.
        let _ = ns.run(|| balancer.ask_for_neighbors())?;
        let links = Netlink::open(ns)?;
        let mut attach = |link: &str| -> Result<Attachment> {
            let index = links.index(link)?;
            Ok(ns.run(|| balancer.attach(index, Generic::Refused))??)
        };
        let links = job.client_links.iter().chain(&job.server_links);
        let attachments = links.map(|link| attach(link)).collect::<Result<_>>()?;
        let (handle, control) = (balancer.handle(), job.control.clone());
        let over = Arc::<AtomicBool>::default();
        let mut keeping = Self { balancer, keeper: None, over: Arc::clone(&over), _attachments: attachments };
        // Its own handle: the testbed's goes with the testbed, perhaps before the thread has ended.
        let ns = ns.try_clone()?;
        let (say, said) = mpsc::channel();
        let body = move || {
            // Without its namespace it could only ask the wrong network.
            let entered = ns.enter().and_then(|()| control.apply());
            let goes_on = entered.is_ok();
            if say.send(entered).is_ok() && goes_on {
                keep(&handle, &over);
            }
        };
        keeping.keeper = Some(thread::Builder::new().name("balancer".into()).spawn(body).context("start a thread")?);
        said.recv().context("hear from a thread")??;
        Ok(keeping)
    }
}

/// Ends silent connections, and has the kernel ask where the servers are.
fn keep(balancer: &Handle, over: &AtomicBool) {
    let mut next_ask = Instant::now();
    while !over.load(Ordering::Relaxed) {
        if Instant::now() >= next_ask {
            let _ = balancer.ask_for_neighbors();
            next_ask = Instant::now() + ASK;
        }
        let _ = balancer.sweep(balancer.places().div_ceil(PARTS));
        thread::sleep(ROUND / PARTS);
    }
}

impl Drop for Balancing {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Carrier for Balancing {
    fn system(&self) -> Result<String> {
        Ok(format!("netrig {}, XDP native on veth, FullNAT", env!("CARGO_PKG_VERSION")))
    }

    fn drops(&self) -> Result<Vec<(String, u64)>> {
        let drops = self.balancer.drops()?;
        Ok(drops.into_iter().map(|(reason, count)| (reason.text().to_owned(), count)).collect())
    }

    fn state(&self) -> Result<State> {
        let services = self.balancer.services()?;
        let of_backend = |backend: &BackendStatus| MiddleBackend {
            address: backend.address.to_string(),
            forward: "FullNat".to_owned(),
            weight: WEIGHT,
            active: backend.active.into(),
            inactive: backend.inactive.into(),
        };
        let services: Vec<MiddleService> = services
            .iter()
            .map(|service| MiddleService {
                protocol: match service.protocol {
                    Carried::Tcp => "TCP".to_owned(),
                    Carried::Udp => "UDP".to_owned(),
                },
                address: service.address.to_string(),
                scheduler: "rr".to_owned(),
                backends: service.backends.iter().map(of_backend).collect(),
            })
            .collect();
        let connections =
            services.iter().flat_map(|service| &service.backends).map(|backend| backend.active + backend.inactive);
        Ok(State {
            connections: Some(connections.sum()),
            memory_bytes: Some(self.balancer.memory()?.total()),
            services,
        })
    }
}
