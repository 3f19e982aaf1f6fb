//! `netrig lb run | check | reload | flush | stop | save`.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::{note, print};
use rig_service::AskError;
use rig_service::lock::Lock;
use rig_service::log::LogOptions;
use rig_stats::units::{PerSecond, Span, counted};
use rig_sys::netlink::Netlink;
use rig_sys::socket::{NamedAddress, parse_address};

use super::access_text;
use super::capacity::{CapacityNeed, Load};
use super::client::{self, ask};
use super::daemon::keep::{remove_all, taken};
use super::daemon::{self, Overlay, Run};
use super::instance::{Name, files};
use super::message::{Reply, Request, RuleChange, ServiceKey};
use super::settings::{Completeness, Device, ServiceText, Settings, Workers, parse_prefix};
use super::views::{NameOption, print_json, service_of};

#[derive(Debug, Subcommand)]
pub enum Control {
    /// Run the balancer in the foreground, until Ctrl-C or `netrig lb stop`
    ///
    /// On SIGHUP it reads its file again. docs/BALANCER.md describes the file.
    #[command(
        after_help = "Examples:\n  netrig lb run lb.toml --persist\n  netrig lb run --device eth0    rules by ipvsadm's options"
    )]
    Run(RunArgs),
    /// Check a configuration file and show what it would do; changes nothing
    ///
    /// Ends with status 2 when the file is wrong, with 1 when its tables, local addresses or limits are too small for the rate that is
    /// asked for, and with 3 when it names devices, CPUs, addresses or secrets that cannot be had here.
    #[command(after_help = "Examples:\n  netrig lb check lb.toml\n  netrig lb check --rate 100k --lasts 2s lb.toml")]
    Check {
        /// The configuration file
        file: PathBuf,
        /// Also check its sizes against this many new connections a second, over all services alike, e.g. 100k
        #[arg(long, value_name = "N")]
        rate: Option<PerSecond>,
        /// How long a connection lasts until both ends have closed it, e.g. 2s [default: 0s]
        #[arg(long, value_name = "SPAN", requires = "rate")]
        lasts: Option<Span>,
    },
    /// Make the running balancer read its file again: no connection is lost, and a bad file changes nothing
    #[command(after_help = "Examples:\n  netrig lb reload")]
    Reload {
        #[command(flatten)]
        which: NameOption,
    },
    /// End connections at once, and say how many: of a service, of a backend, or all
    ///
    /// Later packets belong to no connection: a client's datagram or SYN begins another one, other TCP packets are answered with
    /// a reset where the service's address is this machine's own.
    #[command(after_help = "Examples:\n  netrig lb flush 192.0.2.1:80 --backend 10.0.0.2:80\n  netrig lb flush --all")]
    Flush {
        #[command(flatten)]
        which: NameOption,
        /// The service: tcp 192.0.2.1:80, udp `[2001:db8::1]:53`; tcp by default
        #[arg(conflicts_with = "all")]
        service: Vec<String>,
        /// Only of this backend, in all services or in the one that is named
        #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "all")]
        backend: Option<SocketAddr>,
        /// All connections
        #[arg(long)]
        all: bool,
    },
    /// Withdraw its addresses and be not ready; packets that come are balanced
    ///
    /// It holds until `netrig lb announce`, or until the control plane is started again.
    #[command(after_help = "Examples:\n  netrig lb withdraw")]
    Withdraw {
        #[command(flatten)]
        which: NameOption,
    },
    /// Say that packets can come here again, after `withdraw`
    #[command(after_help = "Examples:\n  netrig lb announce")]
    Announce {
        #[command(flatten)]
        which: NameOption,
    },
    /// Who may begin connections: list, add or remove prefixes
    ///
    /// The longest prefix decides that a client's address is in, of the service's lists and of those for all services; with an allow
    /// list, who is in none may not. What is established goes on. A reload restores what the file says; `netrig lb save` writes this.
    #[command(
        after_help = "Examples:\n  netrig lb access\n  netrig lb access deny 198.51.100.0/24 2001:db8:bad::/48\n  \
                      netrig lb access remove 198.51.100.0/24\n  netrig lb access allow 10.0.0.0/8 --service 192.0.2.1:80"
    )]
    Access {
        #[command(flatten)]
        which: NameOption,
        /// What to do with the prefixes [default: list those there are]
        #[arg(requires = "prefixes")]
        change: Option<AccessChange>,
        /// IPv4 or IPv6, as 198.51.100.0/24, or an address
        #[arg(value_name = "PREFIX", value_parser = parse_prefix)]
        prefixes: Vec<IpNet>,
        /// In the lists of this service, not in those for all (listed with them): 'tcp 192.0.2.1:80'; tcp by default
        #[arg(long, value_name = "SERVICE")]
        service: Option<String>,
        /// Print the list as JSON: `service`, `prefix`, `allows` and `packets` of each
        #[arg(long, conflicts_with = "change")]
        json: bool,
    },
    /// End the control plane; without --persist the balancer ends with it
    #[command(
        after_help = "Examples:\n  netrig lb stop --detach          the balancer too, where it persists\n  netrig lb stop --drain 30s       after its packets have gone to others"
    )]
    Stop {
        #[command(flatten)]
        which: NameOption,
        /// End the balancer, too, where it persists: connections are lost
        #[arg(long)]
        detach: bool,
        /// Withdraw first, and wait until 1 % of the connections that have packets still have some, but no longer than this, e.g. 30s
        #[arg(long, value_name = "SPAN")]
        drain: Option<Span>,
    },
    /// Write the configuration in force as a file
    #[command(after_help = "Examples:\n  netrig lb save lb.toml")]
    Save {
        #[command(flatten)]
        which: NameOption,
        /// The file to write [default: -, standard output]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AccessChange {
    Allow,
    Deny,
    Remove,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The configuration file; without it, rules come by -A, -a and the like
    file: Option<PathBuf>,
    #[command(flatten)]
    which: NameOption,
    /// Keep balancing when the control plane ends; started again, it takes over all connections
    #[arg(long)]
    persist: bool,
    /// A network device to balance on, beside the file's; can be repeated
    #[arg(long = "device", value_name = "DEV")]
    devices: Vec<String>,
    /// Take devices whose driver has no XDP, too: several times slower
    #[arg(long)]
    generic: bool,
    /// Room for this many connections at a time, 120 bytes each, in place of the file's [default: 1048576]
    #[arg(long, value_name = "N")]
    connections: Option<u32>,
    /// CPUs that run the program: the N highest numbered that this process may use, in place of the file's
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroU32>,
    /// Serve metrics for Prometheus at http://ADDR/metrics, e.g. 127.0.0.1:9180, in place of the file's
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    metrics: Option<SocketAddr>,
    /// Take the settings from standard input, be asked there, and end with it
    #[arg(long, hide = true, conflicts_with_all = ["file", "persist"])]
    on_stdio: bool,
    #[command(flatten)]
    log: LogOptions,
}

/// Ending takes a moment: tables of gigabytes are given back.
const ENDING: Duration = Duration::from_secs(30);

pub fn execute(control: Control) -> Result<Exit, Failure> {
    match control {
        Control::Run(RunArgs {
            file,
            which,
            persist,
            devices,
            generic,
            connections,
            workers,
            metrics,
            on_stdio,
            log,
        }) => {
            log.begin();
            let workers = workers.map(Workers::Count);
            let overlay = Overlay { devices, generic, connections, workers, metrics };
            let run = Run { file, name: which.chosen()?, persist, overlay };
            if on_stdio { daemon::run_on_stdio(&run) } else { daemon::run(&run) }
        }
        Control::Check { file, rate, lasts } => {
            let lasts = lasts.map_or(Duration::ZERO, |lasts| lasts.0);
            check(&file, rate.map(|rate| Load { rate: rate.get(), lasts }))
        }
        Control::Reload { which } => done(Reply::Done(client::client(&which.chosen()?).reload()?)),
        Control::Flush { which, service, backend, all } => {
            let service = service_of(&service)?;
            if service.is_none() && backend.is_none() && !all {
                let error = anyhow!("choose whose connections: a service, --backend ADDRESS:PORT, or --all");
                return Err(Failure::new(Exit::BadInput, error));
            }
            done(ask(&which.chosen()?, &Request::Flush { service, backend })?)
        }
        Control::Withdraw { which } => done(ask(&which.chosen()?, &Request::Withdraw)?),
        Control::Announce { which } => done(ask(&which.chosen()?, &Request::Announce)?),
        Control::Stop { which, detach, drain } => {
            let name = which.chosen()?;
            drain.map(|drain| drained(&name, drain.0)).transpose()?;
            stop(&name, detach)
        }
        Control::Access { which, change, prefixes, service, json } => {
            let service = service_of(&service.into_iter().collect::<Vec<_>>())?;
            access(&which.chosen()?, change, &prefixes, service, json)
        }
        Control::Save { which, file } => save(&which.chosen()?, file.as_deref()),
    }
}

fn access(
    name: &Name,
    change: Option<AccessChange>,
    prefixes: &[IpNet],
    service: Option<ServiceKey>,
    json: bool,
) -> Result<Exit, Failure> {
    let Some(change) = change else {
        let mut entries = client::access(name)?;
        if let Some(key) = service {
            if !client::status(name)?.services.iter().any(|known| known.key == key) {
                let error = anyhow!("No such service: {}", ServiceText(key));
                return Err(Failure::new(Exit::BadInput, error));
            }
            // Those of all decide for it, too.
            entries.retain(|entry| entry.service.is_none_or(|of| of == key));
        }
        if json {
            print_json(&entries)?;
        } else {
            print(&access_text::write(&entries))?;
        }
        return Ok(Exit::Done);
    };
    let change = |prefix: &IpNet| {
        let prefix = *prefix;
        match change {
            AccessChange::Allow => RuleChange::Allow { service, prefix },
            AccessChange::Deny => RuleChange::Deny { service, prefix },
            AccessChange::Remove => RuleChange::RemovePrefix { service, prefix },
        }
    };
    done(ask(name, &Request::Edits(prefixes.iter().map(change).collect()))?)
}

fn done(reply: Reply) -> Result<Exit, Failure> {
    match reply {
        Reply::Done(said) => print(&said.into_iter().map(|line| line + "\n").collect::<String>())?,
        Reply::Ended(count) => {
            print(&format!("{}\n", counted(count, "connection has ended", "connections have ended")))?;
        }
        _ => {}
    }
    Ok(Exit::Done)
}

fn check(file: &Path, load: Option<Load>) -> Result<Exit, Failure> {
    let settings = Settings::load(file, Completeness::Required)?;
    daemon::refuse(&settings)?;
    let lacks = daemon::lacks(&settings);
    let sizes = settings.start.sizes;
    let memory = sizes.memory_here().or_exit(Exit::Failed)?.total();
    let netlink = Netlink::here().context("ask the kernel which network devices there are").or_exit(Exit::Failed)?;
    let is_missing = |device: &Device| netlink.index(&device.name).is_err();
    let missing = settings.start.devices.iter().filter(|device| is_missing(device)).count();
    let verdict = match (missing, lacks.here.is_empty()) {
        (0, true) => "correct",
        (1, true) => "correct, but a device is missing here",
        (_, true) => "correct, but devices are missing here",
        (_, false) => "correct, but not all that it names can be had here",
    };
    let mut text = format!("{}: {verdict}\n", file.display());
    text.push_str(&format!("  table for {}\n", daemon::memory_words(sizes.connections.into(), memory)));
    for device in &settings.start.devices {
        let generic = if device.generic { ", in generic mode where its driver has no XDP" } else { "" };
        let missing = if is_missing(device) { ": there is none in this network namespace, see `ip link`" } else { "" };
        text.push_str(&format!("  device {}{generic}{missing}\n", device.name));
    }
    if settings.start.devices.is_empty() {
        text.push_str("  no devices: give `netrig lb run` some with --device\n");
    }
    match &settings.start.workers {
        Workers::Unplaced => {}
        Workers::Count(count) => {
            text.push_str(&format!("  {}\n", counted(count.get(), "worker", "workers")));
        }
        Workers::Cpus(cpus) => text.push_str(&format!("  workers on CPUs {cpus}\n")),
    }
    if let Some(sync) = &settings.start.sync {
        let peers = counted(sync.peers.len(), "peer", "peers");
        text.push_str(&format!("  shares connections with {peers}, at {}\n", sync.address));
    }
    if let Some(bgp) = &settings.start.bgp {
        text.push_str(&format!("  announces addresses through {}\n", bgp.speaker));
    }
    if let Some(metrics) = settings.start.metrics {
        text.push_str(&format!("  metrics at http://{}/metrics\n", NamedAddress::from(metrics)));
    }
    text.extend(lacks.here.iter().map(|lack| format!("  cannot be had: {lack}\n")));
    text.extend(lacks.unseen.iter().map(|lack| format!("  not looked at: {lack}\n")));
    text.push_str(&daemon::services(&settings.rules));
    text.extend(load.map(|load| load.words(&settings)));
    print(&text)?;
    Ok(match load {
        Some(load) if !load.needs(&settings).iter().all(CapacityNeed::is_met) => Exit::Refuted,
        _ if missing == 0 && lacks.here.is_empty() => Exit::Done,
        _ => Exit::Lacking,
    })
}

/// A connection has packets if one has come within so many milliseconds.
const BUSY_MS: u64 = 3000;
/// How often it is looked how many have.
const LOOK: Duration = Duration::from_millis(500);

/// Withdraws, and waits until few connections have packets, or it has waited for so long.
fn drained(name: &Name, most: Duration) -> Result<(), Failure> {
    let busy = || match ask(name, &Request::Busy { within_ms: BUSY_MS })? {
        Reply::Count(busy) => Ok(busy),
        _ => Err(Failure::from(client::foreign(name))),
    };
    let begun = Instant::now();
    let first = busy()?;
    ask(name, &Request::Withdraw)?;
    loop {
        let (left, waited) = (busy()?, begun.elapsed());
        if left * 100 <= first || waited >= most {
            let has = counted(left, "connection has", "connections have");
            note(format_args!("{has} packets after {}, of {first}", Span(Duration::from_secs(waited.as_secs()))));
            return Ok(());
        }
        thread::sleep(LOOK.min(most - waited));
    }
}

fn stop(name: &Name, detach: bool) -> Result<Exit, Failure> {
    let files = files(name);
    match ask(name, &Request::Stop { detach }) {
        Ok(reply) => {
            if !Lock::wait_until_free(&files.lock_file(), ENDING) {
                let error = anyhow!("balancer {name} was told to end, but its process is still there");
                return Err(Failure::new(Exit::Failed, error));
            }
            done(reply)
        }
        // What persists without a control plane can be removed without one.
        Err(AskError::NotRunning { .. } | AskError::Unattended { .. }) if detach => {
            let _lock = files.lock(|process| taken(files.instance(), process))?;
            if !remove_all(&files)? {
                let error = anyhow!("no balancer named {name} runs or persists here: there is nothing to stop");
                return Err(Failure::new(Exit::Lacking, error));
            }
            print(&format!("removed what balancer {name} had left running\n"))?;
            Ok(Exit::Done)
        }
        Err(error) => Err(error.into()),
    }
}

fn save(name: &Name, file: Option<&Path>) -> Result<Exit, Failure> {
    let Reply::Text(text) = ask(name, &Request::Configuration)? else {
        return Err(client::foreign(name).into());
    };
    let Some(file) = file.filter(|file| !is_standard_output(file)) else {
        print(&text)?;
        return Ok(Exit::Done);
    };
    replace(file, text.as_bytes()).with_context(|| format!("write {}", file.display())).or_exit(Exit::Failed)?;
    note(format_args!("written to {}", file.display()));
    Ok(Exit::Done)
}

/// Also what a shell has opened: it may go on behind what is there, and others may write behind that.
fn is_standard_output(file: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).map(|about| (about.dev(), about.ino())).ok();
    file.as_os_str() == "-" || of(file).is_some_and(|own| of(Path::new("/proc/self/fd/1")) == Some(own))
}

/// Whole or not at all, where it is a file or becomes one; what links lead to, and links stay.
fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let (permissions, file) = match fs::metadata(file) {
        Ok(before) if before.is_file() => (Some(before.permissions()), fs::canonicalize(file)?),
        // A device or a pipe.
        Ok(_) => return fs::OpenOptions::new().write(true).open(file)?.write_all(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (None, end_of_links(file)?),
        Err(error) => return Err(error),
    };
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut whole = tempfile::NamedTempFile::new_in(directory)?;
    whole.write_all(text)?;
    if let Some(permissions) = permissions {
        whole.as_file().set_permissions(permissions)?;
    }
    whole.persist(&file)?;
    Ok(())
}

/// Where links lead whose last one leads to nothing yet.
fn end_of_links(file: &Path) -> io::Result<PathBuf> {
    // As many as the kernel follows: path_resolution(7).
    const MOST: usize = 40;
    let mut at = file.to_owned();
    for _ in 0..MOST {
        match fs::read_link(&at) {
            // From the directory of the link, where it is no whole path.
            Ok(to) => at = at.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(at),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_is_saved_is_where_links_lead_and_goes_into_what_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        replace(&at("new"), b"first").unwrap();
        fs::set_permissions(at("new"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("new", at("link")).unwrap();
        replace(&at("link"), b"second").unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(at("new")).unwrap(), "second");
        assert_eq!(fs::metadata(at("new")).unwrap().permissions().mode() & 0o777, 0o640);
        fs::create_dir(at("folder")).unwrap();
        symlink("../later", at("folder/second")).unwrap();
        symlink("folder/second", at("dangling")).unwrap();
        replace(&at("dangling"), b"later").unwrap();
        assert!(fs::symlink_metadata(at("dangling")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(at("later")).unwrap(), "later");
        replace(Path::new("/dev/null"), b"third").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let (mut reader, writer) = io::pipe().unwrap();
        let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        replace(Path::new(&by_number), b"fourth").unwrap();
        drop(writer);
        let mut read = String::new();
        io::Read::read_to_string(&mut reader, &mut read).unwrap();
        assert_eq!(read, "fourth");
        assert!(replace(folder.path(), b"").is_err());
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 5);
    }
}
