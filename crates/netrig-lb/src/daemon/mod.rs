//! The control plane: `netrig lb run`.
//!
//! ```text
//! lock ─ bpf file system ─ tables (new or resumed) ─ rules ─ attach ─ rig_service::serve, Engine ─ detach or leave
//! ```

mod access;
mod advice;
mod announce;
mod capture;
mod counts;
mod devices;
mod drains;
mod engine;
pub(super) mod health;
pub(super) mod keep;
mod outliers;
mod pace;
pub(super) mod placed;
mod sources;
mod status;
mod syn_proxy;
mod trace;
mod workers;

pub(super) use self::pace::ROUND;

use std::fmt::Write;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure, in_words};
use rig_datapath::balancer::Balancer;
use rig_service::files::ServiceFiles;
use rig_service::{Started, Waker, http, serve, serve_on_stdio};
use rig_stats::units::counted;
use rig_sys::socket::NamedAddress;
use tracing::{info, warn};

use self::counts::Counts;
use self::devices::Devices;
use self::drains::Drains;
use self::engine::{Engine, LastErrors, Options};
use self::health::HealthChecks;
use self::keep::Pins;
use self::pace::SweepPace;
use self::placed::Placements;
use self::syn_proxy::{SynProxies, refuse_generic};
use super::bgp::Announcer;
use super::instance::{self, BALANCER, Name};
use super::settings::{Completeness, Device, Settings, Start, Workers, read_key, read_secret};
use super::sync::Sync;

/// What the command line of `run` says.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) file: Option<PathBuf>,
    pub(super) name: Name,
    pub(super) persist: bool,
    pub(super) overlay: Overlay,
}

/// What the command line says in place of the file, or beside it.
#[derive(Debug, Clone, Default)]
pub(super) struct Overlay {
    /// In addition to the file's.
    pub(super) devices: Vec<String>,
    /// For all devices.
    pub(super) generic: bool,
    pub(super) connections: Option<u32>,
    pub(super) workers: Option<Workers>,
    pub(super) metrics: Option<SocketAddr>,
}

impl Overlay {
    pub(super) fn over(&self, mut settings: Settings) -> Settings {
        for name in &self.devices {
            if !settings.start.devices.iter().any(|device| device.name == *name) {
                settings.start.devices.push(Device { name: name.clone(), generic: self.generic });
            }
        }
        if let Some(workers) = &self.workers {
            settings.start.workers.clone_from(workers);
        }
        settings.start.metrics = self.metrics.or(settings.start.metrics);
        if let Some(connections) = self.connections {
            settings.start.sizes.connections = connections;
        }
        settings
    }
}

impl Start {
    /// What differs and needs a restart.
    fn differences(&self, new: &Self) -> Vec<String> {
        let mut said = Vec::new();
        let mut differs = |what: &str, differs: bool| {
            if differs {
                said.push(format!("`{what}` has changed in the file, which needs a restart"));
            }
        };
        differs("connections", self.sizes.connections != new.sizes.connections);
        let room = |start: &Self| {
            let sizes = &start.sizes;
            (sizes.services, sizes.backends, sizes.local_addresses, sizes.list_entries, sizes.prefixes, sizes.sources)
        };
        differs("[room]", room(self) != room(new));
        differs("workers", self.workers != new.workers);
        differs("hand_over", self.hand_over != new.hand_over);
        differs("metrics", self.metrics != new.metrics);
        differs("[bgp]", self.bgp != new.bgp);
        differs("[sync]", self.sync != new.sync || self.sizes.ports != new.sizes.ports);
        said
    }
}

/// Runs the balancer until it is told to stop.
pub(super) fn run(run: &Run) -> Result<Exit, Failure> {
    let from_file = run.file.as_ref().map(|file| Settings::load(file, Completeness::Required)).transpose()?;
    let files = instance::files(&run.name);
    let taken = |process: &str| keep::taken(files.instance(), process);
    serve(&files, taken, |waker| start(run, &files, from_file, waker))
}

/// Runs the balancer for the process that has started it, with settings that come from there.
pub(super) fn run_on_stdio(run: &Run) -> Result<Exit, Failure> {
    serve_on_stdio(&BALANCER, |settings, waker| {
        let settings = run.overlay.over(Settings::parse(engine::TEXT, settings, Completeness::Required)?);
        begin(run, None, settings, waker)
    })
}

/// Begins with the settings of a file, or with what a balancer that persists has left.
fn start(
    run: &Run,
    files: &ServiceFiles,
    from_file: Option<Settings>,
    waker: Waker,
) -> Result<Started<Engine>, Failure> {
    let pins = Pins::of(files);
    if run.persist {
        pins.prepare()?.into_iter().for_each(|line| info!("{line}"));
    } else if pins.resumable() {
        return Err(Failure::new(
            Exit::BadInput,
            anyhow!(
                "a balancer named {0} persists here: go on with it by `netrig lb run --persist`, or remove it with all its \
             connections by `netrig lb stop --detach --name {0}`",
                run.name
            ),
        ));
    }
    let resumes = run.persist && pins.resumable();
    let settings = match from_file {
        Some(settings) => settings,
        None if resumes && files.configuration().exists() => {
            Settings::load(&files.configuration(), Completeness::Optional)?
        }
        None => Settings::default(),
    };
    let kept = DaemonFiles { files, pins: &pins, resumes };
    let begun = begin(run, Some(kept), run.overlay.over(settings), waker);
    if begun.is_err() && !resumes {
        Placements::recall(files).undo_but(&[]);
        if run.persist {
            // Half of something would be in the way of the next one.
            pins.remove().with_context(|| format!("remove {}", pins.directory().display())).or_exit(Exit::Failed)?;
        }
    }
    begun
}

/// What a balancer of the machine has that one of another program has not.
#[derive(Debug, Clone, Copy)]
struct DaemonFiles<'a> {
    files: &'a ServiceFiles,
    pins: &'a Pins,
    /// Whether there is something pinned to go on with.
    resumes: bool,
}

fn begin(
    run: &Run,
    kept: Option<DaemonFiles<'_>>,
    settings: Settings,
    waker: Waker,
) -> Result<Started<Engine>, Failure> {
    if settings.start.devices.is_empty() {
        let hint = "name them by --device DEV, or by devices = [\"DEV\"] in the file";
        return Err(Failure::new(Exit::BadInput, anyhow!("no network device to balance on: {hint}")));
    }
    settings.start.sizes.validate().or_exit(Exit::BadInput)?;
    let metrics = settings.start.metrics.map(http::listen).transpose().or_exit(Exit::Lacking)?;
    Ok(Started { service: build(run, kept, settings, waker)?, metrics })
}

/// What `run` refuses of a file whatever machine it is on, beyond what reading it refuses.
pub(super) fn refuse(settings: &Settings) -> Result<(), Failure> {
    let may_be = settings.start.devices.iter().find(|device| device.generic);
    refuse_generic(&settings.rules, None, may_be.map(|device| device.name.as_str())).or_exit(Exit::BadInput)
}

/// What a file names, but for devices, that is not to be had here.
#[derive(Debug, Default)]
pub(super) struct Lacks {
    /// What `run` would not find or could not use: what it is for, and why.
    pub(super) here: Vec<String>,
    /// What only its owner sees, who may be the one that will run it.
    pub(super) unseen: Vec<String>,
}

/// What `run` would not find or could not use here.
pub(super) fn lacks(settings: &Settings) -> Lacks {
    let mut lacks = Lacks::default();
    let Settings { start, rules } = settings;
    if let Err(why) = workers::cpus(&start.workers) {
        lacks.here.push(format!("workers: {why}"));
    }
    let secrets = [
        ("syn_proxy_secret", rules.syn_proxy_secret.as_deref().and_then(|file| read_secret(file).err())),
        ("[sync] key", start.sync.as_ref().and_then(|sync| read_key(&sync.key).err())),
    ];
    for (what, why) in secrets.into_iter().filter_map(|(what, why)| Some((what, why?))) {
        let lacking = if why.is_others() { &mut lacks.unseen } else { &mut lacks.here };
        lacking.push(format!("{what}: {}", in_words(&why.into())));
    }
    let addresses = [("metrics", start.metrics), ("[sync] address", start.sync.as_ref().map(|sync| sync.address))];
    for (what, mut address) in addresses.into_iter().filter_map(|(what, address)| Some((what, address?))) {
        // Of any port: the balancer that runs has the one that is named.
        address.set_port(0);
        if let Err(error) = UdpSocket::bind(address) {
            lacks.here.push(format!("{what}: {}: {error}", address.ip()));
        }
    }
    lacks
}

/// The balancer with its rules in force, attached.
fn build(run: &Run, kept: Option<DaemonFiles<'_>>, settings: Settings, waker: Waker) -> Result<Engine, Failure> {
    let Settings { mut start, rules } = settings;
    let files = kept.map(|kept| kept.files);
    let pins = kept.filter(|_| run.persist).map(|kept| kept.pins.clone());
    let resumed = pins.as_ref().filter(|_| kept.is_some_and(|kept| kept.resumes));
    let cpus = workers::cpus(&start.workers).or_exit(Exit::Lacking)?;
    let devices = Devices::new(files, pins.clone(), run.overlay.generic, cpus, &start);
    let mut devices = devices.or_exit(Exit::Failed)?;
    if resumed.is_none() {
        devices.must_exist(&start.devices).or_exit(Exit::Lacking)?;
    }
    let balancer = match resumed {
        Some(pins) => Balancer::resume(pins.directory()),
        None => Balancer::load(start.sizes),
    };
    let mut balancer = balancer.map_err(|error| refused(error, &run.name))?;
    if resumed.is_some() {
        let (has, wanted) = (balancer.sizes().connections, start.sizes.connections);
        // Rounded up to a multiple of the CPUs.
        if has < wanted || has - wanted > 1024 {
            warn!(
                "its tables have room for {} connections; for {} end it with `netrig lb stop --detach` first",
                grouped(has.into()),
                grouped(wanted.into())
            );
            start.sizes = balancer.sizes();
        }
        let ports = balancer.sizes().ports;
        if ports != start.sizes.ports {
            warn!(
                "its share of local ports is {}/{}, as when its tables were made: for another one end it with `netrig lb stop --detach` first",
                ports.share, ports.of
            );
            start.sizes.ports = ports;
        }
    }
    if let Some(file) = &rules.syn_proxy_secret {
        balancer.set_cookie_secret(read_secret(file).or_exit(Exit::Lacking)?).or_exit(Exit::Failed)?;
    }
    let mut health = HealthChecks::new(waker, files.filter(|_| pins.is_some()), resumed.is_some());
    let applied = health.apply(&mut balancer, &rules);
    applied.map_err(|error| Failure::new(Exit::BadInput, engine::refusal(error.into())))?;
    health.watch(&rules).or_exit(Exit::Failed)?;
    // Who cannot be asked for is told within a second.
    let _ = balancer.ask_for_neighbors();
    if let Some(pins) = pins.as_ref().filter(|_| resumed.is_none()) {
        balancer.keep(pins.directory()).or_exit(Exit::Failed)?;
    }
    devices.spread(&mut balancer).or_exit(Exit::Lacking)?;
    devices.set(&mut balancer, &start.devices).or_exit(Exit::Lacking)?;
    refuse_generic(&rules, devices.generic(), devices.may_be_generic()).or_exit(Exit::BadInput)?;
    let share = |sync| Sync::start(balancer.handle(), sync, read_key(&sync.key)?, resumed.is_some());
    let sync = start.sync.as_ref().map(share).transpose();
    let sync = sync.or_exit(Exit::Lacking)?;
    let now = Instant::now();
    let mut engine = Engine {
        name: run.name.clone(),
        files: files.cloned(),
        memory: balancer.memory().or_exit(Exit::Failed)?.total(),
        pace: SweepPace::new(balancer.places(), now),
        balancer,
        devices,
        rules,
        health,
        start,
        options: Options { file: run.file.clone(), overlay: run.overlay.clone() },
        resumed: resumed.is_some(),
        pins,
        begun: now,
        edits: 0,
        reloads: 0,
        second: now,
        detaches: false,
        counts: Counts::default(),
        troubles: LastErrors::default(),
        syn_proxies: SynProxies::default(),
        sync,
        announcer: None,
        drains: Drains::default(),
        withdrawn: false,
    };
    engine.write_down().map_err(|what| Failure::new(Exit::Failed, anyhow!(what)))?;
    if let Some(bgp) = &engine.start.bgp {
        let announcer = Announcer::start(bgp, engine.announcements()).context("start the thread of BGP");
        engine.announcer = Some(announcer.or_exit(Exit::Failed)?);
    }
    Ok(engine)
}

fn refused(error: rig_datapath::Error, name: &Name) -> Failure {
    let exit = match error {
        rig_datapath::Error::NotPermitted(_) | rig_datapath::Error::Load { .. } => Exit::Lacking,
        rig_datapath::Error::PinnedOtherwise { .. } => {
            let error = anyhow!(
                "{}\n  to start anew, without its connections: netrig lb stop --detach --name {name}",
                in_words(&error.into())
            );
            return Failure::new(Exit::Lacking, error);
        }
        _ => Exit::Failed,
    };
    Failure::new(exit, error)
}

/// `8,000,000`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let head = digits.len() % 3;
    let mut text = digits[..head].to_owned();
    for group in digits.as_bytes()[head..].chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.extend(group.iter().map(|&digit| char::from(digit)));
    }
    text
}

/// `8,000,000 connections: 1.04 GB`.
pub(super) fn memory_words(connections: u64, bytes: u64) -> String {
    let (size, unit) = if bytes >= 1_000_000_000 { (1e9, "GB") } else { (1e6, "MB") };
    format!("{} connections: {:.2} {unit}", grouped(connections), bytes as f64 / size)
}

fn introduction(engine: &Engine) -> String {
    let mut text = String::new();
    let how = match (engine.pins.is_some(), engine.resumed) {
        (true, true) => ", going on with the connections of the one before; it stays when this ends",
        (true, false) => "; it stays when this ends",
        (false, _) => "",
    };
    // Writing into a string does not fail.
    let _ = writeln!(text, "balancer {} (process {}){how}", engine.name, std::process::id());
    if let Some(pins) = &engine.pins {
        let _ = writeln!(text, "  pinned in {}", pins.directory().display());
    }
    let connections = engine.balancer.sizes().connections.into();
    let _ = writeln!(text, "  table for {}", memory_words(connections, engine.memory));
    text.push_str(&engine.devices.describe());
    if let Some(sync) = &engine.start.sync {
        let peers: Vec<String> = sync.peers.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "  shares connections with {}, at {}", peers.join(", "), sync.address);
    }
    if let Some(bgp) = &engine.start.bgp {
        let _ = writeln!(text, "  announces addresses through {}", bgp.speaker);
    }
    if let Some(metrics) = engine.start.metrics {
        let _ = writeln!(text, "  metrics at http://{}/metrics", NamedAddress::from(metrics));
    }
    text.push_str(&services(&engine.rules));
    let lines = advice::advice(&engine.rules, engine.devices.drivers());
    for line in lines.into_iter().chain(engine.devices.advice_of_tags()) {
        warn!("{line}");
    }
    let _ = writeln!(text, "ready: netrig lb -L -n --name {}", engine.name);
    text
}

/// A line for each service.
pub(super) fn services(rules: &super::settings::Rules) -> String {
    use super::settings::{ServiceText, forward_name, scheduler_name};
    let mut text = String::new();
    if rules.services.is_empty() {
        text.push_str("  no services yet: add them by netrig lb -A and -a, or in a file\n");
    }
    for service in &rules.services {
        let forward = service.forward.map_or("undecided", forward_name);
        let scheduler = scheduler_name(service.scheduler);
        let backends = counted(service.backends.len(), "backend", "backends");
        let _ = write!(text, "  service {}: {scheduler}, {forward}, {backends}", ServiceText(service.key));
        let _ = match service.local.len() {
            0 => Ok(()),
            locals => write!(text, ", {}", counted(locals, "local address", "local addresses")),
        };
        let _ = match service.tunnel_source {
            None => Ok(()),
            Some(prefix) => write!(text, ", outer packets from {prefix}"),
        };
        if let Some(check) = &service.check {
            let (probe, interval) = (check.probe.name(), rig_stats::units::Span(check.interval));
            let _ = write!(text, ", checked by {probe} every {interval}");
        }
        if service.outlier.is_some() {
            text.push_str(", outliers are taken out");
        }
        let _ = match service.lacks() {
            Some(lacks) => writeln!(text, "; not in force: it lacks {lacks}"),
            None => writeln!(text),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_told_with_its_source_of_outer_packets() {
        use crate::settings::{Completeness, Settings};
        let text = "[[service]]\nlisten = '192.0.2.1:80'\nbackend = ['10.0.0.1']\nforward = 'tunnel'\ntunnel_source = '172.16.0.0/16'";
        let told = Settings::parse("lb.toml", text, Completeness::Optional).map(|settings| services(&settings.rules));
        assert_eq!(
            told.ok().as_deref(),
            Some("  service tcp 192.0.2.1:80: wlc, tunnel, 1 backend, outer packets from 172.16.0.0/16\n")
        );
    }

    #[test]
    fn memory_is_told_in_words() {
        assert_eq!(memory_words(8_000_000, 1_040_000_000), "8,000,000 connections: 1.04 GB");
        assert_eq!(memory_words(64, 2_500_000), "64 connections: 2.50 MB");
        assert_eq!(grouped(1_048_576), "1,048,576");
    }
}
