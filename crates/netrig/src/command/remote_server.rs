//! `netrig serve` on a host that a command line reaches, for one run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use netrig_ends::server::Family;
use rig_cli::exit::StoppedByUser;
use rig_load::driver::Cancel;
use rig_sys::piped::{PipedProcess, ProcessHandle};
use rig_testbed::host::{Host, HostInterface, Local, Program, Remote};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Deserialize;

use super::hosts::NamedHost;
use super::pairs::ServerPorts;

/// How long a server may take until it listens, and what is asked of a host until it has answered.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A process that is killed when it is not needed any more.
#[derive(Debug)]
pub struct Killed(pub Box<dyn ProcessHandle>);

impl Drop for Killed {
    fn drop(&mut self) {
        // It fails where the process has ended.
        let _ = self.0.kill();
    }
}

/// A server for all that have the key; it ends with its standard input.
pub struct RemoteServer {
    pub port: u16,
    _stdin: Box<dyn Write + Send>,
    _life: Killed,
    // What it says is read no more; what comes of it waits here.
    _outputs: [OwnedFd; 2],
}

impl RemoteServer {
    /// Starts it in the host's own network namespace. Port 0 lets the kernel there choose.
    ///
    /// # Errors
    /// What it says why it cannot, and where it says nothing in time.
    pub fn start(remote: &Remote, ports: ServerPorts, key: &str, cancel: &Cancel) -> Result<Self> {
        /// What it says of itself, on standard output.
        #[derive(Deserialize)]
        struct Listening {
            port: u16,
        }
        let ServerPorts { control, data } = ports;
        let (port, data) = (control.to_string(), data.map(|port| port.to_string()));
        let data = data.as_deref().map_or_else(Vec::new, |port| vec!["--data-port", port]);
        // Who has the key is the one that has started it: it has no limits but those that the kernel has.
        let limits =
            ["--max-time", "24h", "--max-threads", "100000", "--max-connections", "1000000", "--max-memory", "1T"];
        let arguments = [&["serve", "--on-stdio", "--key-file", "-", "--port", &port], &limits[..], &data].concat();
        let program = Program::netrig(&arguments);
        let PipedProcess { mut stdin, stdout, stderr, life } = remote.start_beside(&program)?;
        let life = Killed(life);
        // One that ended at once says why.
        let _ = writeln!(stdin, "{key}");
        let deadline = Instant::now() + PATIENCE;
        let line = read(&stdout, deadline, cancel, |text| text.contains(&b'\n'))?;
        let Ok(Listening { port }) = serde_json::from_slice(&line) else {
            let said = read(&stderr, deadline, cancel, |_| false)?;
            bail!("start a server: {}", last_line(&said).unwrap_or("it says nothing"));
        };
        Ok(Self { port, _stdin: stdin, _life: life, _outputs: [stdout, stderr] })
    }
}

/// Reaches a host, unless that is cancelled.
///
/// # Errors
/// As [`Remote::reach`], and [`StoppedByUser`].
pub fn reach(host: &NamedHost, program: &Path, cancel: &Cancel) -> Result<Remote> {
    let reached = Remote::reach_unless(&host.access, program, Some(cancel.as_fd()));
    reached.map_err(|error| if cancel.is_cancelled() { StoppedByUser.into() } else { error })
}

/// A host with a server that this machine's clients reach.
pub struct ServingHost {
    pub server: RemoteServer,
    /// Of hosts.toml.
    pub labels: BTreeMap<String, String>,
    // It ends what runs there, so it goes last.
    remote: Remote,
}

impl ServingHost {
    /// Reaches a host, and starts a server there.
    ///
    /// # Errors
    /// Why it is not reached, and what the server says.
    pub fn start(host: &NamedHost, program: &Path, port: u16, key: &str, cancel: &Cancel) -> Result<Self> {
        let remote = reach(host, program, cancel)?;
        let server = RemoteServer::start(&remote, ServerPorts { control: port, data: None }, key, cancel)
            .with_context(|| format!("on host {}", host.name))?;
        Ok(Self { server, labels: host.access.labels.clone(), remote })
    }

    /// By which address this machine reaches it.
    ///
    /// # Errors
    /// Where it has none of the family.
    pub fn address(&self, host: &NamedHost, family: Family) -> Result<IpAddr> {
        host.reached_at(&Local::uncounted()?.interfaces()?, &self.remote.interfaces()?, family)
    }
}

impl NamedHost {
    /// By which of its addresses a machine with the interfaces `near` reaches it: what hosts.toml says; else one on a network that both are on, or the first; of the
    /// interfaces that are named, where some are. One that the machine has itself, as bridges of containers have the same everywhere, is passed over.
    ///
    /// # Errors
    /// Where it has none.
    pub fn reached_at(&self, near: &[HostInterface], far: &[HostInterface], family: Family) -> Result<IpAddr> {
        let named = &self.interfaces;
        let may_be = far.iter().filter(|own| own.up && (named.is_empty() || named.contains(&own.name)));
        let own: Vec<&IpNet> = near.iter().flat_map(|own| &own.addresses).collect();
        let is_other = |net: &&IpNet| family.has(net.addr()) && own.iter().all(|own| own.addr() != net.addr());
        let all: Vec<&IpNet> = may_be.flat_map(|own| &own.addresses).filter(is_other).collect();
        let common = all.iter().find(|net| own.iter().any(|own| own.trunc() == net.trunc()));
        let found = self.address.or(common.or(all.first()).map(|net| net.addr()));
        let name = &self.name;
        found.with_context(|| format!("{name} has no address by which others could reach it: `address` of [host.{name}] in hosts.toml names one"))
    }
}

/// What comes until `is_whole`, or the end.
///
/// # Errors
/// [`StoppedByUser`] when cancelled, and where it takes longer.
pub fn read(from: &OwnedFd, deadline: Instant, cancel: &Cancel, is_whole: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut file = File::from(from.try_clone().context("copy a descriptor")?);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the host does not answer in time");
        }
        let mut fds = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN), PollFd::new(cancel, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::try_from(left).context("wait for a host")?)) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error).context("wait for a host"),
        }
        if !fds[1].revents().is_empty() {
            return Err(StoppedByUser.into());
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        let mut piece = [0; 16 << 10];
        let count = file.read(&mut piece).context("read what a host says")?;
        text.extend_from_slice(&piece[..count]);
        if count == 0 || is_whole(&text) {
            return Ok(text);
        }
    }
}

/// The last line of what a process wrote on standard error that says something.
pub fn last_line(text: &[u8]) -> Option<&str> {
    let said = std::str::from_utf8(text).ok()?.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(said.strip_prefix("netrig: ").unwrap_or(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addresses: &[&str]) -> HostInterface {
        HostInterface {
            name: name.to_owned(),
            mac: rig_testbed::plan::Mac([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            up: true,
            addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
            in_use: None,
        }
    }

    #[test]
    fn a_host_is_reached_on_a_common_network_or_by_its_first_address() {
        let docker = || interface("docker0", &["172.17.0.1/16"]);
        let near = [docker(), interface("eth0", &["192.0.2.1/24", "2001:db8::1/64"])];
        let at = |far: &[HostInterface], named: &[&str], family| {
            let host =
                NamedHost { interfaces: named.iter().map(ToString::to_string).collect(), ..NamedHost::ssh("web1") };
            host.reached_at(&near, far, family).map(|address| address.to_string()).ok()
        };
        let some = |address: &str| Some(address.to_owned());
        let lan =
            [docker(), interface("eth0", &["198.51.100.2/24"]), interface("eth1", &["192.0.2.2/24", "2001:db8::2/64"])];
        assert_eq!(at(&lan, &[], Family::Any), some("192.0.2.2"));
        assert_eq!(at(&lan, &[], Family::V6), some("2001:db8::2"));
        assert_eq!(at(&lan, &["eth0"], Family::Any), some("198.51.100.2"));
        // Behind a router; what both have is nobody's way.
        let routed = [docker(), interface("eth0", &["198.51.100.2/24"])];
        assert_eq!(at(&routed, &[], Family::Any), some("198.51.100.2"));
        assert_eq!(at(&routed, &[], Family::V6), None);
        assert_eq!(at(&[docker()], &[], Family::Any), None);
    }
}
