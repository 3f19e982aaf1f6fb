//! The balancer with its rules: what is asked is answered here, one after the other, and what is due is done in between.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use rig_cli::exit::{Exit, Failure, both, in_words};
use rig_datapath::balancer::{Balancer, BalancerHandle, Drop, PortShare};
use rig_service::files::ServiceFiles;
use rig_service::{Counters, End, Refusal, Replies, Service};
use rig_stats::units::counted;
use tracing::{info, warn};

use super::counts::{Counts, Snapshot, key_of};
use super::devices::Devices;
use super::drains::Drains;
use super::health::HealthChecks;
use super::introduction;
use super::keep::{self, Pins};
use super::pace::SweepPace;
use super::sources;
use super::status::{count_busy, list};
use super::syn_proxy::{SynProxies, refuse_generic};
use crate::bgp::Announcer;
use crate::instance::Name;
use crate::message::{Reply, Request};
use crate::metrics;
use crate::settings::{
    Access, Completeness, Rules, ServiceText, Settings, Start, changes, passes_in_time, protocol, read_secret,
};
use crate::sync::Sync;
use crate::sync::board::SyncEvent;

/// What settings are called that come as text.
pub(super) const TEXT: &str = "settings";
/// What is due once a second.
const SECOND: Duration = Duration::from_secs(1);

pub(super) struct Engine {
    pub(super) name: Name,
    /// Of a balancer of the machine.
    pub(super) files: Option<ServiceFiles>,
    pub(super) balancer: Balancer,
    pub(super) devices: Devices,
    /// As it is in force, but for services that lack something.
    pub(super) rules: Rules,
    pub(super) health: HealthChecks,
    /// As it was started, the command line's say included.
    pub(super) start: Start,
    pub(super) options: Options,
    /// Where it persists.
    pub(super) pins: Option<Pins>,
    pub(super) begun: Instant,
    /// Of all maps, bytes.
    pub(super) memory: u64,
    /// Commands that have changed the rules since they were read from a file.
    pub(super) edits: u32,
    /// How often the rules were read again since it was started.
    pub(super) reloads: u64,
    pub(super) counts: Counts,
    pub(super) pace: SweepPace,
    /// When that is due which is done once a second.
    pub(super) second: Instant,
    /// Whether it goes on with what another control plane has left.
    pub(super) resumed: bool,
    /// Whether it ends although it persists.
    pub(super) detaches: bool,
    pub(super) troubles: LastErrors,
    pub(super) syn_proxies: SynProxies,
    /// The thread that shares connections.
    pub(super) sync: Option<Sync>,
    /// The thread that has addresses announced.
    pub(super) announcer: Option<Announcer>,
    pub(super) drains: Drains,
    /// It was told that it is not to be sent packets.
    pub(super) withdrawn: bool,
}

/// What stands in the way of work that is done again and again.
#[derive(Debug, Default)]
pub(super) struct LastErrors {
    neighbors: LastError,
    sweeping: LastError,
    counting: LastError,
    health: LastError,
    checking: LastError,
    keeping: LastError,
    syn_proxy: LastError,
    persistence: LastError,
    sync: LastError,
    bgp: LastError,
}

/// What was last said of one, so that it is said once.
#[derive(Debug, Default)]
pub(super) struct LastError(Option<String>);

impl LastError {
    /// Notes how it went; what is to be said of it.
    pub(super) fn now(&mut self, trouble: Option<String>) -> Option<&str> {
        if self.0 == trouble {
            return None;
        }
        self.0 = trouble;
        self.0.as_deref()
    }

    pub(super) fn last(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// What the command line says beside the file, which holds at each reload.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) file: Option<PathBuf>,
    pub(super) overlay: super::Overlay,
}

/// What the client is told of an error.
pub(super) fn refusal(error: anyhow::Error) -> Refusal {
    match error.downcast_ref() {
        Some(rig_datapath::Error::NoRoom { what, room, wanted }) => {
            Refusal::new(format!("there is room for {room} {what}, and {wanted} are wanted"), raise_room(what))
        }
        _ => rig_service::refusal(error),
    }
}

/// Which key of the file makes a table larger in which there was no room for so many of these.
pub(super) fn raise_room(what: &str) -> Option<String> {
    let keys = [
        ("services", "services"),
        ("backends", "backends"),
        ("local addresses", "local_addresses"),
        ("entries of schedules", "schedule_entries"),
        ("prefixes", "prefixes"),
    ];
    let (_, key) = keys.iter().find(|(of, _)| *of == what)?;
    let waits = match *key {
        "schedule_entries" => "",
        _ => " (what was removed counts until its last connection has ended)",
    };
    Some(format!(
        "raise `{key}` in [room] of the file{waits}. It needs a restart: with --persist `netrig lb stop --detach` first, which \
         loses the connections"
    ))
}

/// Those that have no lists of their own any more because they were removed, whether they were added again or not.
fn services_that_lost_lists(
    edits: &[crate::message::RuleChange],
    before: &Rules,
    after: &Rules,
) -> Vec<crate::message::ServiceKey> {
    use crate::message::RuleChange as R;
    let removed = |key| {
        edits
            .iter()
            .any(|edit| matches!(edit, R::Clear) || matches!(edit, R::DeleteService { service } if *service == key))
    };
    let has = |rules: &Rules, key| rules.service(key).is_some_and(|service| service.access != Access::default());
    let keys = before.services.iter().map(|service| service.key);
    keys.filter(|key| removed(*key) && has(before, *key) && !has(after, *key)).collect()
}

/// What is left when the control plane has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterExit {
    /// What persists stays.
    Balancing,
    /// Packets are balanced no more.
    Nothing,
}

/// What is counted in the tables of a balancer.
pub(super) fn counters(tables: &BalancerHandle) -> Result<Counters, rig_datapath::Error> {
    // The SYN proxy answers first packets itself, and what comes while a backend is waited for comes again: nothing of it is lost.
    let is_lost = |reason: &Drop| !matches!(reason, Drop::SynAnswered | Drop::ProxyWaits);
    let drops = tables.drops()?.into_iter().filter(|(reason, _)| is_lost(reason));
    let drops = drops.map(|(reason, count)| (reason.text().to_owned(), count));
    let mut counters = Counters { drops: drops.collect(), ..Counters::default() };
    for service in tables.services()? {
        let traffic = service.traffic;
        for (name, count) in [
            ("connections", traffic.connections),
            ("in_packets", traffic.in_packets),
            ("in_bytes", traffic.in_bytes),
            ("out_packets", traffic.out_packets),
            ("out_bytes", traffic.out_bytes),
        ] {
            *counters.counts.entry(name.to_owned()).or_insert(0) += count;
        }
    }
    let passed = tables.passes()?.iter().map(|(_, count)| count).sum();
    counters.counts.insert("passed_packets".to_owned(), passed);
    Ok(counters)
}

impl Service for Engine {
    type Request = Request;
    type Reply = Reply;

    fn introduction(&self) -> String {
        introduction(self)
    }

    fn answer(&mut self, request: Request, replies: Replies<Reply>) -> ControlFlow<Replies<Reply>> {
        let answer = match request {
            Request::Status => self.status().map(|status| Reply::Status(Box::new(status))),
            Request::Edit(edit) => self.edit(std::slice::from_ref(&edit)).map(Reply::Done),
            Request::Edits(edits) => self.edit(&edits).map(Reply::Done),
            Request::Zero(service) => self.zero(service).map(Reply::Done),
            Request::Flush { service, backend } => self.flush(service, backend).map(Reply::Ended),
            Request::Reloads => Ok(Reply::Count(self.reloads)),
            Request::Configuration => Ok(Reply::Text(self.settings().to_toml())),
            Request::Connections(filter) => {
                list(self.balancer.handle(), filter, replies);
                return ControlFlow::Continue(());
            }
            Request::Withdraw => Ok(Reply::Done(self.set_withdrawn(true))),
            Request::Announce => Ok(Reply::Done(self.set_withdrawn(false))),
            Request::Busy { within_ms } => {
                count_busy(self.balancer.handle(), Duration::from_millis(within_ms), replies);
                return ControlFlow::Continue(());
            }
            Request::Capture(order) => {
                self.capture(&order, replies);
                return ControlFlow::Continue(());
            }
            Request::Sources(filter) => {
                sources::list(self.balancer.handle(), &self.rules, filter, replies);
                return ControlFlow::Continue(());
            }
            Request::Access => {
                self.list_access(replies);
                return ControlFlow::Continue(());
            }
            Request::Trace(traced) => self.trace(&traced).map(|trace| Reply::Trace(Box::new(trace))),
            Request::Stop { detach } => {
                self.detaches = detach;
                return ControlFlow::Break(replies);
            }
        };
        replies.finish(answer.map_err(refusal));
        ControlFlow::Continue(())
    }

    fn reload(&mut self, settings: Option<&str>) -> Result<Vec<String>, Refusal> {
        self.read_again(settings).map_err(refusal)
    }

    fn due(&self) -> Instant {
        let due = self.pace.next().min(self.second);
        let due = self.drains.due().map_or(due, |drain| drain.min(due));
        self.health.due().map_or(due, |health| health.min(due))
    }

    fn woken(&mut self) {
        self.health.woken();
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if now >= self.pace.next() {
            self.sweep();
        }
        let each_second = now >= self.second;
        if each_second {
            self.second = now + SECOND;
            self.each_second();
        }
        self.end_drains(now);
        let failed = each_second && self.troubles.health.last().is_some();
        if self.health.is_due(now, each_second) || failed {
            self.follow_health();
        }
    }

    fn metrics(&mut self) -> anyhow::Result<String> {
        Ok(metrics::render(&self.status()?))
    }

    fn counters(&mut self) -> anyhow::Result<Counters> {
        Ok(counters(&self.balancer)?)
    }

    fn stop(mut self, end: End<Reply>) -> Result<Exit, Failure> {
        let left = match (&self.pins, &end) {
            (None, _) => AfterExit::Nothing,
            // What was there before stays, with its connections.
            (Some(_), End::Failure) if !self.resumed => AfterExit::Nothing,
            (Some(_), _) if self.detaches => AfterExit::Nothing,
            (Some(_), _) => AfterExit::Balancing,
        };
        if left == AfterExit::Balancing {
            self.keep_health();
        }
        let Self { files, mut devices, balancer, pins, health, sync, announcer, .. } = self;
        // Before packets that come find nothing.
        if let (Some(announcer), AfterExit::Nothing) = (announcer, left) {
            announcer.withdraw();
        }
        drop(health);
        drop(sync);
        if left == AfterExit::Nothing {
            if let Some(files) = files.filter(|_| pins.is_some()) {
                keep::remove_all(&files)?;
            }
            devices.unplace();
        }
        drop(devices);
        // Where the programs go on: nobody reads what they would capture. Where it does not succeed, they find so themselves.
        let _ = balancer.handle().end_capture();
        drop(balancer);
        if let End::Request(replies) = end {
            let what = match left {
                AfterExit::Balancing => {
                    "the control plane has ended; packets go on being balanced, and connections do not expire until it is started \
                     again by `netrig lb run --persist`"
                }
                AfterExit::Nothing => "the balancer has ended",
            };
            replies.answer(Reply::Done(vec![what.to_owned()]));
        }
        Ok(Exit::Done)
    }
}

impl Engine {
    fn sweep(&mut self) {
        let (begun, places) = (Instant::now(), self.pace.slice());
        let swept = self.balancer.sweep(places);
        let (live, short) = swept.as_ref().map_or((0, false), |swept| (swept.live, swept.short));
        self.pace.swept(places, live, short, (begun, Instant::now()));
        let trouble = swept
            .err()
            .map(|error| format!("cannot sweep the table, connections do not expire: {}", in_words(&error.into())));
        self.troubles.sweeping.now(trouble).into_iter().for_each(|line| warn!("{line}"));
    }

    /// Puts in force what checks have come to.
    fn follow_health(&mut self) {
        let applied = self.health.apply(&mut self.balancer, &self.rules);
        let trouble = applied.err().map(|error| {
            let why = in_words(&refusal(error.into()).into());
            format!("what checks have come to is not in force, and is tried again each second: {why}")
        });
        self.troubles.health.now(trouble).into_iter().for_each(|line| warn!("{line}"));
        self.keep_health();
        self.follow_bgp();
    }

    fn keep_health(&mut self) {
        let trouble = self.health.write_down().err();
        let trouble =
            trouble.map(|error| format!("a restart will not know which backends are down: {}", in_words(&error)));
        self.troubles.keeping.now(trouble).into_iter().for_each(|line| warn!("{line}"));
    }

    /// Ends what is left of backends whose time to drain is over.
    fn end_drains(&mut self, now: Instant) {
        for (service, backend) in self.drains.take_over(now) {
            let shown = ServiceText(service);
            let unnamed = self.withdraw_id(service, backend);
            match both(self.flush(Some(service), Some(backend)), unnamed) {
                Ok(ended) => {
                    let ended =
                        counted(ended, "connection was left, and has ended", "connections were left, and have ended");
                    info!("{shown}: backend {backend} has drained to its deadline: {ended}");
                }
                Err(error) => warn!("{shown}: backend {backend} has drained to its deadline: {}", in_words(&error)),
            }
        }
    }

    /// Has no connection ID of QUIC name a backend any more, so that what ends there does not begin again.
    fn withdraw_id(
        &mut self,
        service: crate::message::ServiceKey,
        backend: std::net::SocketAddr,
    ) -> anyhow::Result<()> {
        let mut rules = self.rules.clone();
        let own = rules.services.iter_mut().filter(|own| own.key == service).flat_map(|own| &mut own.backends);
        let Some(own) = own.filter(|own| own.quic_id.is_some()).find(|own| own.address == backend) else {
            return Ok(());
        };
        own.drained = true;
        self.put_in_force(rules).map(drop)
    }

    fn set_withdrawn(&mut self, withdrawn: bool) -> Vec<String> {
        let was = std::mem::replace(&mut self.withdrawn, withdrawn);
        let said = match (was, withdrawn) {
            (false, true) => "it is withdrawn: it is not ready, and goes on with the packets that come",
            (true, false) => "it is announced again",
            (_, true) => "it is withdrawn already",
            (_, false) => "it is announced already",
        };
        if was != withdrawn {
            info!("{said}");
            self.follow_bgp();
        }
        vec![said.to_owned()]
    }

    fn follow_sync(&mut self) {
        let Some(sync) = &self.sync else { return };
        let (events, trouble) = sync.take_events();
        for event in events {
            match event {
                SyncEvent::Met(peer) => info!("balancer {peer} is there, and is told of all connections"),
                SyncEvent::Silent(peer) => warn!("balancer {peer} is silent: connections are not shared with it"),
                SyncEvent::SamePorts(peer, PortShare { share, of }) => warn!(
                    "balancer {peer} has the same share of local ports, {share}/{of}: where it has the same local addresses, \
                     connections meet"
                ),
            }
        }
        self.troubles.sync.now(trouble).into_iter().for_each(|line| warn!("{line}"));
    }

    fn ask_for_neighbors(&mut self) {
        let trouble = self.balancer.ask_for_neighbors().err().map(|error| in_words(&error.into()));
        self.troubles.neighbors.now(trouble).into_iter().for_each(|line| warn!("{line}"));
    }

    fn each_second(&mut self) {
        self.ask_for_neighbors();
        let trouble = self.health.revive();
        self.troubles.checking.now(trouble).into_iter().for_each(|line| warn!("{line}"));
        self.devices.watch(&mut self.balancer).iter().for_each(|line| info!("{line}"));
        let (said, trouble) = self.syn_proxies.tend(&self.balancer, Instant::now());
        said.iter().for_each(|line| info!("{line}"));
        let trouble = trouble.map(|why| format!("cannot tend the SYN proxy: {why}"));
        self.troubles.syn_proxy.now(trouble).into_iter().for_each(|line| warn!("{line}"));
        self.forget_sources();
        self.follow_sync();
        self.follow_bgp();
        let trouble = self.bgp_trouble();
        self.troubles.bgp.now(trouble).into_iter().for_each(|line| warn!("{line}"));
        let snapshot = Snapshot::take(&self.balancer).map(|snapshot| {
            self.health.look_for_outliers(&self.rules, &snapshot);
            self.counts.sample(snapshot);
        });
        let trouble = snapshot.err().map(|error| format!("cannot read counters: {}", in_words(&error.into())));
        self.troubles.counting.now(trouble).into_iter().for_each(|line| warn!("{line}"));
    }

    /// Makes room for other sources of services with persistence, each 10 s, of those that the last whole round of the sweep has not renewed.
    fn forget_sources(&mut self) {
        let Some(since) = self.pace.last() else { return };
        let has_some = self.rules.services.iter().any(|service| service.persistence.timeout.is_some());
        if !has_some || !self.begun.elapsed().as_secs().is_multiple_of(10) {
            return;
        }
        let trouble = self.balancer.forget_sources_that_are_over(since.elapsed()).err();
        let trouble =
            trouble.map(|error| format!("sources whose persistence is over stay: {}", in_words(&error.into())));
        self.troubles.persistence.now(trouble).into_iter().for_each(|line| warn!("{line}"));
    }

    /// All that a file would say of what is in force.
    pub(super) fn settings(&self) -> Settings {
        let start = Start { devices: self.devices.wanted(), ..self.start.clone() };
        Settings { start, rules: self.rules.clone() }
    }

    fn edit(&mut self, edits: &[crate::message::RuleChange]) -> anyhow::Result<Vec<String>> {
        let mut rules = self.rules.clone();
        for (at, edit) in edits.iter().enumerate() {
            rules.edit(edit).map_err(|error| Refusal {
                edit: Some(at),
                ..Refusal::new(error.to_string(), Some(error.hint().to_owned()))
            })?;
        }
        let without_lists = services_that_lost_lists(edits, &self.rules, &rules);
        let put = self.put_in_force(rules);
        let mut said = put.map_err(|error| Refusal { edit: self.first_impossible(edits), ..refusal(error) })?;
        self.edits += edits.len() as u32;
        self.drains.edited(edits, &self.rules, Instant::now());
        for key in without_lists {
            let line = format!("{}: its allow and deny lists went with it when it was removed", ServiceText(key));
            warn!("{line}");
            said.push(line);
        }
        Ok(said)
    }

    /// Which of these changes makes the rules impossible that were possible before it: what is wrong may be wrong of all together
    /// only, and of one that makes it so the line can be told.
    fn first_impossible(&self, edits: &[crate::message::RuleChange]) -> Option<usize> {
        let room = self.balancer.sizes().connections;
        let possible = |count: usize| {
            let mut rules = self.rules.clone();
            edits[..count].iter().all(|edit| rules.edit(edit).is_ok())
                && self.balancer.check(&rules.config(room)).is_ok()
        };
        let (mut possible_with, mut impossible_with) = (0, edits.len());
        if !possible(possible_with) || possible(impossible_with) {
            return None;
        }
        while impossible_with - possible_with > 1 {
            let middle = possible_with.midpoint(impossible_with);
            if possible(middle) { possible_with = middle } else { impossible_with = middle }
        }
        Some(possible_with)
    }

    fn zero(&mut self, service: Option<crate::message::ServiceKey>) -> anyhow::Result<Vec<String>> {
        if let Some(key) = service
            && self.rules.service(key).is_none()
        {
            let hint = Some("list services with -L -n".to_owned());
            return Err(Refusal::new(format!("No such service: {}", ServiceText(key)), hint).into());
        }
        self.counts.zero(&Snapshot::take(&self.balancer)?, service);
        Ok(Vec::new())
    }

    fn flush(
        &self,
        service: Option<crate::message::ServiceKey>,
        backend: Option<std::net::SocketAddr>,
    ) -> anyhow::Result<u64> {
        // Those that were removed and still have connections are among them.
        let known = self.balancer.services()?;
        let of: Vec<_> = known.iter().filter(|status| service.is_none_or(|key| key == key_of(status))).collect();
        let hint = || Some("list them with -L -n, and connections with -L -c -n".to_owned());
        if let Some(key) = service.filter(|_| of.is_empty()) {
            return Err(Refusal::new(format!("No such service: {}", ServiceText(key)), hint()).into());
        }
        let has = |address| of.iter().any(|status| status.backends.iter().any(|backend| backend.address == address));
        if let Some(address) = backend.filter(|address| !has(*address)) {
            return Err(Refusal::new(format!("No such destination: {address}"), hint()).into());
        }
        Ok(self.balancer.flush(service.map(|key| (protocol(key.protocol), key.address)), backend)?)
    }

    /// All or nothing. Says which services are not in force, and which are from now on.
    pub(super) fn put_in_force(&mut self, rules: Rules) -> anyhow::Result<Vec<String>> {
        rules.config(self.balancer.sizes().connections).validate()?;
        refuse_generic(&rules, self.devices.generic(), self.devices.may_be_generic())?;
        if let Some(sync) = &self.start.sync {
            passes_in_time(sync, &rules).map_err(anyhow::Error::msg)?;
        }
        let secret = rules.syn_proxy_secret.as_deref().map(read_secret).transpose()?;
        // Before a service answers by another one's.
        let before = secret.map(|secret| self.balancer.set_cookie_secret(secret)).transpose()?;
        if let Err(error) = self.health.apply(&mut self.balancer, &rules) {
            // Half of it may be done.
            self.health.apply(&mut self.balancer, &self.rules).unwrap_or_else(|error| {
                warn!("the rules in force are incomplete: {}", in_words(&error.into()));
            });
            if let Some(before) = before {
                self.balancer.set_cookie_secret(before)?;
            }
            return Err(error.into());
        }
        self.ask_for_neighbors();
        let mut said = Vec::new();
        for service in &rules.services {
            let (shown, before) = (ServiceText(service.key), self.rules.service(service.key));
            match service.lacks() {
                // What others lack was said when it came to that.
                Some(lacks) if before != Some(service) => {
                    said.push(format!("{shown} is not in force: it lacks {lacks}"));
                }
                None if before.is_some_and(|before| before.lacks().is_some()) => {
                    said.push(format!("{shown} is in force"));
                }
                _ => {}
            }
        }
        self.rules = rules;
        self.drains.retain(&self.rules);
        self.follow_bgp();
        said.extend(self.health.watch(&self.rules).err().map(|error| in_words(&error)));
        self.keep_health();
        said.extend(self.write_down().err());
        Ok(said)
    }

    /// Keeps the configuration for the next control plane, where the balancer persists.
    pub(super) fn write_down(&self) -> Result<(), String> {
        let Some(files) = self.files.as_ref().filter(|_| self.pins.is_some()) else { return Ok(()) };
        let path = files.configuration();
        keep::write_configuration(files, &self.settings().to_toml())
            .with_context(|| format!("write {}: a restart will not know of this", path.display()))
            .map_err(|error| in_words(&error))
    }

    /// Reads the file again, or this text: all of it comes into force, or nothing.
    fn read_again(&mut self, text: Option<&str>) -> anyhow::Result<Vec<String>> {
        let (settings, name) = match (text, &self.options.file) {
            (Some(text), _) => (Settings::parse(TEXT, text, Completeness::Required), TEXT.to_owned()),
            (None, Some(path)) => (Settings::load(path, Completeness::Required), path.display().to_string()),
            (None, None) => {
                let hint = "change it with -A, -a and the like, or start it with a file";
                return Err(Refusal::new("it runs without a configuration file", Some(hint.into())).into());
            }
        };
        let Settings { start, rules } = self.options.overlay.over(settings?);
        let wanted = start.devices.clone();
        if wanted.is_empty() {
            let hint = Some("add devices = [\"eth0\"]".to_owned());
            return Err(Refusal::new(format!("{name} names no device"), hint).into());
        }
        let before = self.devices.wanted();
        let new: Vec<_> = wanted.iter().filter(|device| !before.contains(device)).cloned().collect();
        self.devices.must_exist(&new)?;
        let mut said = changes(&self.rules, &rules);
        // New devices come first, because they can fail, and old ones go last.
        let both = before.iter().filter(|old| !wanted.iter().any(|new| new.name == old.name)).chain(&wanted).cloned();
        let more = self.devices.set(&mut self.balancer, &both.collect::<Vec<_>>());
        let more = more.map_err(|error| self.back_to(&before, error))?;
        let in_force = self.put_in_force(rules).map_err(|error| self.back_to(&before, error))?;
        self.reloads += 1;
        said.extend(more.into_iter().chain(in_force));
        said.extend(self.devices.set(&mut self.balancer, &wanted)?);
        said.extend(self.start.differences(&start));
        match std::mem::take(&mut self.edits) {
            0 => {}
            1 => said.push("the change of one command since the file was last read is undone".into()),
            count => {
                said.push(format!("the changes of {count} commands since the file was last read are undone"));
            }
        }
        said.extend(self.write_down().err());
        if said.is_empty() {
            said.push("nothing has changed".into());
        }
        Ok(said)
    }

    fn back_to(&mut self, devices: &[crate::settings::Device], why: anyhow::Error) -> anyhow::Error {
        if let Err(error) = self.devices.set(&mut self.balancer, devices) {
            warn!("{}", in_words(&error));
        }
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_go_with_their_service_are_told() {
        use crate::message::{Protocol, RuleChange as R, ServiceKey, ServiceOptions};
        let key = |host| ServiceKey { protocol: Protocol::Tcp, address: ([192, 0, 2, host], 80).into() };
        let add = |host| R::AddService { service: key(host), options: ServiceOptions::default() };
        let deny = R::Deny { service: Some(key(1)), prefix: ipnet::IpNet::new_assert([198, 51, 100, 0].into(), 24) };
        let after = |rules: &Rules, edits: &[R]| {
            let mut rules = rules.clone();
            edits.iter().for_each(|edit| assert_eq!(rules.edit(edit), Ok(())));
            rules
        };
        let rules = after(&Rules::default(), &[add(1), add(2), deny.clone()]);
        let told = |edits: &[R]| services_that_lost_lists(edits, &rules, &after(&rules, edits));
        let delete = |host| R::DeleteService { service: key(host) };
        assert_eq!(told(&[delete(1)]), [key(1)]);
        assert_eq!(told(&[R::Clear, add(1)]), [key(1)]);
        assert_eq!(told(&[delete(2)]), []);
        assert_eq!(told(&[delete(1), add(1), deny]), []);
    }

    #[test]
    fn a_trouble_is_said_once_and_again_when_it_has_come_back() {
        let (mut trouble, full) = (LastError::default(), || Some("full".to_owned()));
        assert_eq!(trouble.now(None), None);
        assert_eq!(trouble.now(full()), Some("full"));
        assert_eq!(trouble.now(full()), None);
        assert_eq!(trouble.now(Some("empty".to_owned())), Some("empty"));
        assert_eq!(trouble.now(None), None);
        assert_eq!(trouble.now(full()), Some("full"));
    }
}
