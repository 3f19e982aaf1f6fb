//! netrig's vRouter beside an engine of the node's own, and its driver of Docker's networks: containers of all nodes in one virtual network.
//!
//! Each node's file has the other nodes' containers, whose addresses and labels follow from their places in the testbed; its own are those that
//! the engine plugs.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rig_engine::Labels;
use rig_testbed::UPLINK;
use rig_testbed::datapath::Site;
use rig_testbed::plan::Node;

use super::containers::{GATEWAY, SUBNET};
use crate::node::spawn;

/// The driver's name, which is that of its socket.
pub(super) const DRIVER: &str = "netrig";
/// The network in the router's file.
pub(super) const VIRTUAL_NETWORK: &str = "containers";
/// The label of a node's first container.
const FIRST_LABEL: u32 = 101;
/// Of a node without a wire, for which no other asks (RFC 5737).
const ALONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Programs are loaded, which takes a second on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(60);
const RUN: &str = "/run/netrig";

/// A router and a driver that end with the value.
#[derive(Debug)]
pub(super) struct Overlay {
    /// The driver first: what it is asked, it asks the router.
    _driver: OwnService,
    _router: OwnService,
}

impl Overlay {
    /// Starts them in the calling process's network namespace, where the engine is.
    ///
    /// # Errors
    /// When one does not start, with what it said last.
    pub(super) fn start(site: &Site) -> Result<Self> {
        let node = site.plan().nodes.get(site.number()).context("find the node in its plan")?;
        fs::create_dir_all("/run/docker/plugins").context("make Docker's folder of plug-ins")?;
        let file = "/run/vrouter.toml";
        fs::write(file, text(&site.plan().nodes, site.number())?).context("write the router's file")?;
        let router = OwnService::start("vrouter", &["run", file, "--node", &node.name])?;
        let driver = OwnService::start(
            "vrouter-docker",
            &["docker", "--node", &node.name, "--state", "/run/vrouter-docker.json"],
        )?;
        Ok(Self { _driver: driver, _router: router })
    }
}

/// Of a container, by the numbers of its node and of its own.
pub(super) fn address(node: usize, container: usize) -> Result<IpAddr> {
    let (node, container) = (u8::try_from(node + 1)?, u8::try_from(container + 2)?);
    Ok(Ipv4Addr::new(10, 89, node, container).into())
}

/// What the driver is told of a container.
pub(super) fn options(container: usize) -> Labels {
    Labels::from([("label".to_owned(), (FIRST_LABEL + container as u32).to_string())])
}

/// The file of a node's router.
fn text(nodes: &[Node], own: usize) -> Result<String> {
    // A policy that allows all has flows remembered, as those of the path `vrouter` are.
    let mut text = format!(
        "[router]\nencapsulation = [\"mplsoudp\"]\n\
         [[network]]\nname = \"{VIRTUAL_NETWORK}\"\nsubnets = [{{ prefix = \"{SUBNET}\", gateway = \"{GATEWAY}\" }}]\nbroadcast = false\n\
         policies = [\"all\"]\n\
         [[policy]]\nname = \"all\"\nrules = [{{ action = \"allow\", source = \"any\", destination = \"any\" }}]\n"
    );
    for (number, node) in nodes.iter().enumerate() {
        text += &format!("[[node]]\nname = \"{}\"\naddress = \"{}\"\n", node.name, underlay(node).unwrap_or(ALONE));
        for (container, space) in node.spaces.iter().skip(1).enumerate().filter(|_| number != own) {
            // Devices of other nodes are not looked for.
            text += &format!(
                "[[interface]]\nname = \"{}\"\nnode = \"{}\"\nnetwork = \"{VIRTUAL_NETWORK}\"\ndevice = \"other{container}\"\n\
                 addresses = [\"{}\"]\nlabel = {}\n",
                space.name.replace('/', "."),
                node.name,
                address(number, container)?,
                FIRST_LABEL + container as u32,
            );
        }
    }
    Ok(text)
}

/// Where a node's tunnels begin and end.
fn underlay(node: &Node) -> Option<Ipv4Addr> {
    let uplink = node.spaces.first()?.interface(UPLINK)?;
    uplink.addresses.iter().find_map(|address| match address.addr() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    })
}

/// `netrig vrouter` with a log of its own.
#[derive(Debug)]
struct OwnService(Child);

impl OwnService {
    fn start(name: &str, arguments: &[&str]) -> Result<Self> {
        let path = format!("/var/log/{name}.log");
        let log = File::create(&path).with_context(|| format!("make a log for {name}"))?;
        // This program, wherever its file is: the engine's folders may hide it.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("netrig").arg("vrouter").args(arguments).env("NETRIG_RUN", RUN).stdin(Stdio::null());
        command.stdout(log.try_clone().context("share a log")?).stderr(log);
        let mut service = Self(spawn(&mut command).with_context(|| format!("start {name}"))?);
        service.is_ready(name, Path::new(&path))?;
        Ok(service)
    }

    fn is_ready(&mut self, name: &str, log: &Path) -> Result<()> {
        let began = Instant::now();
        loop {
            let told = fs::read_to_string(log).unwrap_or_default();
            if told.lines().any(|line| line.starts_with("ready: ")) {
                return Ok(());
            }
            if let Some(status) = self.0.try_wait().with_context(|| format!("wait for {name}"))? {
                bail!("{name} ended with {status}: {}", told.trim());
            }
            if began.elapsed() > START_LIMIT {
                bail!("{name} is not ready after {START_LIMIT:?}: {}", told.trim());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for OwnService {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
