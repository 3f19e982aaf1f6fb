//! `netrig lb receive`: at a backend, programs are told the addresses of clients that a balancer tells of.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use ipnet::IpNet;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams;
use rig_datapath::balancer::{AddressReceiver, DatagramReceiver, DatagramSettings, MOST_TRUSTED};
use rig_service::manager;
use rig_sys::netlink::Netlink;
use rig_sys::signal;

use crate::ipvsadm::MAX_TIMEOUT;
use crate::settings::parse_prefix;

#[derive(Debug, Args)]
pub struct ReceiveArgs {
    /// Whose word is taken: a prefix with the balancers' local addresses, e.g. 10.0.0.200/29 or 2001:db8::8; can be repeated. Who
    /// else can connect from there can say that it is any client, also by a service there that tells nothing
    #[arg(long, value_name = "CIDR", required = true, value_parser = parse_prefix)]
    from: Vec<IpNet>,
    /// Of whose programs, and those of all cgroups below: a directory of cgroup v2 [default: all of the machine's]
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// UDP as well, of services with client_address = "uoa": what comes in by this device; can be repeated. Without one such a service's
    /// datagrams do not arrive
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// How many clients of UDP are known at most, 400 bytes each
    #[arg(long, value_name = "N", default_value_t = 65_536, requires = "device",
        value_parser = clap::value_parser!(u32).range(1024..=i64::from(DatagramSettings::MOST_CLIENTS)))]
    udp_clients: u32,
    /// For how long a client of UDP is known without a datagram: no longer than the balancers' timeout of udp
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "device",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TIMEOUT)))]
    udp_idle: u32,
}

impl ReceiveArgs {
    /// The numbers of the devices.
    fn interfaces(&self) -> Result<Vec<u32>, Failure> {
        let mut interfaces = Vec::new();
        if self.device.is_empty() {
            return Ok(interfaces);
        }
        let netlink = Netlink::here().context("ask the kernel for devices").or_exit(Exit::Failed)?;
        for name in &self.device {
            let link = netlink.link(name).with_context(|| format!("--device {name}")).or_exit(Exit::Lacking)?;
            if !link.is_ethernet && name != "lo" {
                let error = anyhow!("--device {name} is none of Ethernet: what comes in by others is not taken off");
                return Err(Failure::new(Exit::BadInput, error));
            }
            if !interfaces.contains(&link.index) {
                interfaces.push(link.index);
            }
        }
        Ok(interfaces)
    }

    /// For UDP, where there is a device.
    fn datagrams(&self, cgroup: &Path) -> Result<Option<DatagramReceiver>, Failure> {
        let interfaces = self.interfaces()?;
        if interfaces.is_empty() {
            return Ok(None);
        }
        let idle = Duration::from_secs(self.udp_idle.into());
        let settings = DatagramSettings { clients: self.udp_clients, idle };
        let mut datagrams = DatagramReceiver::load(&self.from, &settings).or_exit(Exit::Lacking)?;
        // Before anything is taken off: who is told can answer.
        datagrams.serve(cgroup).or_exit(Exit::Lacking)?;
        for interface in interfaces {
            datagrams.attach(interface).or_exit(Exit::Lacking)?;
        }
        Ok(Some(datagrams))
    }
}

/// Where a table of mounts says that the hierarchy of cgroup v2 is (proc_pid_mounts(5)).
fn root_cgroup(mounts: &str) -> Option<&Path> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let path = fields.next()?;
        (fields.next()? == "cgroup2").then_some(Path::new(path))
    })
}

pub fn execute(arguments: &ReceiveArgs) -> Result<Exit, Failure> {
    if arguments.from.len() > MOST_TRUSTED {
        let error = anyhow!("--from names {} prefixes, and {MOST_TRUSTED} are the most", arguments.from.len());
        return Err(Failure::new(Exit::BadInput, error));
    }
    let mapped = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();
    if let Some(both) = arguments.from.iter().find(|from| from.prefix_len() < 96 && from.contains(&IpAddr::V6(mapped)))
    {
        let error = anyhow!("--from {both} is of IPv6 and has all of IPv4 in it: say 0.0.0.0/0 for that, and 2000::/3");
        return Err(Failure::new(Exit::BadInput, error));
    }
    let cgroup = match &arguments.cgroup {
        Some(path) => path.clone(),
        None => {
            let mounts =
                fs::read_to_string("/proc/self/mounts").context("read /proc/self/mounts").or_exit(Exit::Lacking)?;
            let root =
                root_cgroup(&mounts).ok_or_else(|| anyhow!("no cgroup v2 is mounted: mount -t cgroup2 none PATH"));
            root.or_exit(Exit::Lacking)?.to_owned()
        }
    };
    let (stop, stopped) = mpsc::channel();
    let end = move || {
        // Who waits for it is there as long as this process.
        let _ = stop.send(());
    };
    signal::on_stop_signal(end).context("take signals").or_exit(Exit::Failed)?;
    let receiver = AddressReceiver::attach(&cgroup, &arguments.from).or_exit(Exit::Lacking)?;
    let datagrams = arguments.datagrams(&cgroup)?;
    let prefixes: Vec<String> = arguments.from.iter().map(ToString::to_string).collect();
    let of_udp = match &datagrams {
        Some(_) => {
            let mut devices = arguments.device.clone();
            devices.dedup();
            format!("of UDP by {}", devices.join(", "))
        }
        None => "of UDP none without --device".to_owned(),
    };
    let begun = format!(
        "ready: programs of {} see the clients that {} tell of; {of_udp}\n",
        cgroup.display(),
        prefixes.join(", ")
    );
    streams::print(&begun)?;
    manager::ready();
    // The sender lives in the thread of signals.
    let _ = stopped.recv();
    manager::stopping();
    let seen = receiver.receptions().or_exit(Exit::Failed)?;
    let ended = format!(
        "accepted: {} of clients that were told, {} without, {} from others{}\n",
        seen.told,
        seen.without,
        seen.others,
        if seen.no_memory > 0 { format!(", {} without memory", seen.no_memory) } else { String::new() }
    );
    streams::print(&ended)?;
    if let Some(datagrams) = datagrams {
        let seen = datagrams.counts().or_exit(Exit::Failed)?;
        streams::print(&format!(
            "datagrams: {} that told a client, {} of such clients, {} without, {} from others, {} broken\n",
            seen.told, seen.known, seen.unknown, seen.others, seen.broken
        ))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_of_version_2_is_found() {
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(root_cgroup(hybrid), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(root_cgroup("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"), Some(Path::new("/sys/fs/cgroup")));
        assert_eq!(root_cgroup("proc /proc proc rw 0 0\n"), None);
    }
}
