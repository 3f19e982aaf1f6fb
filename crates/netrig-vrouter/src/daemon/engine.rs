//! The router with its settings: what is asked is answered here, and what changes is put in force.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure, in_words};
use rig_datapath::vrouter::Router;
use rig_service::{Counters, End, KernelEventFilter, Refusal, Replies, Service, refusal};
use rig_sys::netlink::Event as Change;
use tracing::{info, warn};

use super::addresses::Addresses;
use super::finder::{Finder, FoundDevices};
use super::logging::Logging;
use super::persistence::{self, RestoredRouter};
use super::plugged::{self, LoadedSettings};
use super::sources::{Sources, SpeakerSession};
use super::sweeping::SweepThread;
use super::{ExitPolicy, REST, TEXT, addresses, refused};
use crate::compile::{CompiledConfig, Numbers, compile};
use crate::instance::files;
use crate::message::{FlowEntry, FlowFilter, Reply, Request};
use crate::routes::{RouteSource, RouteTable};
use crate::settings::{Settings, SettingsText, changes};
use crate::{filter, lookup, metrics};

/// How often what lacks is looked for.
const SECOND: Duration = Duration::from_secs(1);
/// What a configuration has taken away is unused after about this time.
const GRACE: Duration = Duration::from_millis(20);
/// Flows of one line of an answer.
const BATCH: usize = 4096;

pub(super) struct Engine {
    /// What the settings are made of, but not these, which are taken out of it.
    pub(super) loaded: LoadedSettings,
    pub(super) node: String,
    pub(super) settings: Settings,
    pub(super) sources: Sources,
    speaking: SpeakerSession,
    /// Routers that routes lead to.
    pub(super) others: BTreeSet<Ipv4Addr>,
    table: RouteTable,
    pub(super) numbers: Numbers,
    /// Where they are kept, by a router that persists.
    kept: Option<PathBuf>,
    pub(super) found: FoundDevices,
    pub(super) compiled: CompiledConfig,
    pub(super) router: Router,
    pub(super) sweeping: SweepThread,
    pub(super) logging: Logging,
    /// Connections that the table was made for.
    pub(super) room: u32,
    finder: Finder,
    addresses: Addresses,
    pub(super) begun: Instant,
    /// What was last in the way of putting something in force.
    pub(super) trouble: Option<String>,
    /// When what lacks is looked for.
    next_look: Instant,
    /// When the speaker's routes are.
    learn_at: Instant,
    /// When it is tried to give free what the last configuration has taken away.
    release_at: Option<Instant>,
    after: ExitPolicy,
}

impl Engine {
    pub(super) fn start(
        mut loaded: LoadedSettings,
        node: &str,
        begun: RestoredRouter,
        speaking: SpeakerSession,
        after: ExitPolicy,
    ) -> Result<Self, Failure> {
        let RestoredRouter { router, numbers, kept } = begun;
        let settings = std::mem::take(&mut loaded.settings);
        let sweeping = SweepThread::start(router.sweeper(), settings.router.timeouts, settings.router.flows);
        let logging = Logging::start(router.log().map_err(refused)?);
        let mut engine = Self {
            sources: Sources::new(&settings, node),
            speaking,
            others: BTreeSet::new(),
            table: RouteTable::default(),
            numbers,
            kept,
            found: FoundDevices::default(),
            compiled: CompiledConfig::default(),
            room: settings.router.flows,
            router,
            sweeping: sweeping.context("start a thread").or_exit(Exit::Failed)?,
            logging: logging.context("start a thread").or_exit(Exit::Failed)?,
            finder: Finder::here().or_exit(Exit::Failed)?,
            addresses: Addresses::default(),
            begun: Instant::now(),
            trouble: None,
            next_look: Instant::now() + SECOND,
            learn_at: Instant::now(),
            release_at: None,
            after,
            loaded,
            node: node.to_owned(),
            settings: Settings::default(),
        };
        engine.speaking.order(&settings, &mut engine.sources.bgp).context("start a thread").or_exit(Exit::Failed)?;
        engine.speaking.begin(&settings, &mut engine.sources.bgp);
        engine.begin_with(settings).or_exit(Exit::BadInput)?;
        for line in &engine.compiled.notes {
            warn!("{line}");
        }
        Ok(engine)
    }

    /// Of containers that have other MAC addresses than before, or than the file says.
    fn tell_addresses(&mut self) {
        // What cannot be read now can be the next time.
        let Ok(sources) = self.router.sources() else { return };
        for (number, before, now) in self.addresses.news(&sources, Instant::now()) {
            let name = self.numbers.interfaces.iter().find(|(_, known)| *known == number).map(|(name, _)| name);
            let known = name.and_then(|name| Some((name, self.settings.interfaces.get(name)?)));
            let line = known.and_then(|(name, interface)| addresses::words(name, interface, before, now));
            if let Some(line) = line.filter(|line| !self.compiled.notes.contains(line)) {
                warn!("{line}");
            }
        }
    }

    /// Looks for all that the settings and routes name, and puts it in force.
    pub(super) fn begin_with(&mut self, settings: Settings) -> anyhow::Result<()> {
        let mut sources = self.sources.clone();
        sources.reload(&settings);
        let found = self.finder.look(&settings, &self.node, &sources.others());
        self.put_in_force(settings, sources, found)
    }

    /// Has the datapath do what the settings say of what there is. The programs are on all interfaces then that they can be
    /// put on; others are tried again.
    ///
    /// # Errors
    /// All is as it was.
    fn put_in_force(&mut self, settings: Settings, mut sources: Sources, found: FoundDevices) -> anyhow::Result<()> {
        let mut table = self.table.clone();
        for update in sources.updates()? {
            table.apply(update);
        }
        let mut numbers = self.numbers.clone();
        let compiled = compile(&settings, &self.node, &found.site, &table, &mut numbers)?;
        if compiled.config != self.compiled.config || self.settings != settings {
            if let Some(path) = &self.kept {
                persistence::keep_numbers(path, &numbers)?;
            }
            let mut logging = self.logging.hold();
            self.router.apply_at_once(&compiled.config)?;
            self.release_at = Some(Instant::now() + GRACE);
            logging.learn(&self.router, &compiled.config, &numbers);
        }
        self.sweeping.set(settings.router.timeouts);
        let given_back = self.given_back(&settings, &found);
        self.others = sources.others();
        (self.settings, self.found, self.compiled) = (settings, found, compiled);
        (self.sources, self.table, self.numbers) = (sources, table, numbers);
        let mut done = self.router.attach();
        // Programs are off them by now.
        for interface in given_back {
            done = done.and(self.router.give_back(interface));
        }
        self.say_trouble(done.err().map(|error| in_words(&error.into())));
        Ok(())
    }

    /// Interfaces here that new settings have no more. What they have and is not found stays closed.
    fn given_back(&self, settings: &Settings, found: &FoundDevices) -> Vec<u32> {
        let before = self.found.site.interfaces.iter();
        // A plug-in's goes with its container: what is left of it for a moment is nobody's to use.
        let of_file = before.filter(|(name, _)| !self.loaded.plugged.contains_key(*name));
        let gone = of_file.filter(|(name, _)| settings.interfaces_of(&self.node).all(|(kept, _)| kept != *name));
        let is_other = |index: &u32| found.site.interfaces.values().all(|other| other.index != *index);
        gone.map(|(_, there)| there.index).filter(is_other).collect()
    }

    /// After the speaker has told something, or to see what is to be forgotten.
    fn learn(&mut self) {
        if !self.speaking.hear(&self.settings, &mut self.sources.bgp) {
            return;
        }
        let mut sources = self.sources.clone();
        sources.reload(&self.settings);
        if !sources.bgp.has_news() {
            return;
        }
        let others = sources.others();
        let found = match others == self.others {
            true => self.found.clone(),
            false => self.finder.look(&self.settings, &self.node, &others),
        };
        self.take(sources, found);
    }

    fn say_trouble(&mut self, trouble: Option<String>) {
        if let Some(what) = trouble.as_ref().filter(|_| trouble != self.trouble) {
            warn!("{what}");
        }
        self.trouble = trouble;
    }

    /// After something has changed in the kernel, or to see whether what lacks is there.
    fn look_again(&mut self) {
        if self.trouble.is_none() {
            // Routes are those that are in force, and there may be very many.
            let found = self.finder.look(&self.settings, &self.node, &self.others);
            if found != self.found {
                self.take(self.sources.clone(), found);
            }
            return;
        }
        let mut sources = self.sources.clone();
        sources.reload(&self.settings);
        let found = self.finder.look(&self.settings, &self.node, &sources.others());
        self.take(sources, found);
    }

    /// Puts in force what is known now, and tells what is new.
    fn take(&mut self, sources: Sources, found: FoundDevices) {
        let (notes, devices) = (self.compiled.notes.clone(), self.found.devices.clone());
        if let Err(error) = self.put_in_force(self.settings.clone(), sources, found) {
            return self.say_trouble(Some(in_words(&error)));
        }
        for (name, device) in self.found.devices.iter().filter(|(name, _)| !devices.contains_key(*name)) {
            info!("interface '{name}' is there: {device}");
        }
        new_notes(&notes, &self.compiled.notes).for_each(|line| warn!("{line}"));
    }

    fn read_again(&mut self, text: Option<&str>) -> anyhow::Result<Vec<String>> {
        let text = match (text, &self.loaded.file) {
            (Some(text), _) => SettingsText::of(TEXT, text),
            (None, Some(file)) => SettingsText::load(file).map_err(plugged::refused)?,
            (None, None) => return Err(Refusal::new("it runs without a file", None).into()),
        };
        let settings = text.with_plugged(&self.node, &self.loaded.plugged).map_err(plugged::refused)?;
        settings.node(&self.node)?;
        let mut said = changes::between(&self.settings, &settings);
        if settings.router.flows != self.room {
            said.push(format!(
                "`flows` is no longer the {} that the table was made for, which needs a restart",
                self.room
            ));
        }
        self.finder.forget();
        let notes = self.compiled.notes.clone();
        self.begin_with(settings).map_err(|error| {
            let hint = "restart it: its tables are made for what it begins with";
            Refusal::new(in_words(&error), lacks_room(&error).then(|| hint.to_owned()))
        })?;
        self.loaded.text = text;
        self.announce()?;
        said.extend(new_notes(&notes, &self.compiled.notes).cloned());
        said.extend(self.trouble.clone());
        Ok(said)
    }

    /// Has the speaker of BGP tell others of the interfaces that there are now.
    pub(super) fn announce(&mut self) -> anyhow::Result<()> {
        self.speaking.order(&self.settings, &mut self.sources.bgp).context("start a thread")
    }

    fn routes(&self, vrf: Option<u32>) -> anyhow::Result<Vec<crate::message::Table>> {
        let tables = self.tables(vrf);
        match vrf.filter(|_| tables.is_empty()) {
            Some(vrf) => Err(anyhow!("there is no VRF {vrf} here: `netrig vrouter status` lists them")),
            None => Ok(tables),
        }
    }
}

impl Service for Engine {
    type Request = Request;
    type Reply = Reply;

    const WATCHES: Option<KernelEventFilter> = Some(KernelEventFilter {
        what: "links and routes",
        concerns: |change| !matches!(change, Change::Neighbor { .. } | Change::Interface),
    });

    fn introduction(&self) -> String {
        let (there, all) = (self.found.devices.len(), self.settings.interfaces_of(&self.node).count());
        let peers = self.found.site.peers.len();
        let nodes = peers + self.found.site.unreached.len();
        let pinned = self.kept.as_ref().map(|_| format!("; pinned in {}", files(&self.node).pins().display()));
        format!(
            "ready: node {}; {there} of {all} interfaces are there, {peers} of {nodes} other nodes are reached{}\n",
            self.node,
            pinned.unwrap_or_default()
        )
    }

    fn answer(&mut self, request: Request, replies: Replies<Reply>) -> ControlFlow<Replies<Reply>> {
        let answer = match request {
            Request::Status => self.status().map(|status| Reply::Status(Box::new(status))),
            Request::Routes(vrf) => self.routes(vrf).map(Reply::Routes),
            Request::Route { vrf, to } => self.routes(Some(vrf)).and_then(|tables| {
                let found = tables.into_iter().find_map(|table| lookup::narrowed(table, to));
                let found = found.ok_or_else(|| anyhow!("there is no route to {to} in VRF {vrf}"))?;
                Ok(Reply::Routes(vec![found]))
            }),
            Request::Trace(traced) => self.trace(&traced).map(|trace| Reply::Trace(Box::new(trace))),
            Request::Log { from } => self.log_counts().map(|counts| Reply::Log(self.logging.hold().from(from, counts))),
            Request::Network(name) => self.terms(&name),
            Request::Plug { name, interface } => self.plug(&name, interface),
            Request::Unplug { name } => self.unplug(&name),
            Request::Plugged => Ok(self.plugged()),
            Request::Flows => {
                list(self.flows(), None, replies);
                return ControlFlow::Continue(());
            }
            Request::FlowsOf(filter) => {
                list(self.flows(), Some(filter), replies);
                return ControlFlow::Continue(());
            }
        };
        replies.finish(answer.map_err(refusal));
        ControlFlow::Continue(())
    }

    fn reload(&mut self, settings: Option<&str>) -> Result<Vec<String>, Refusal> {
        self.read_again(settings).map_err(refusal)
    }

    fn due(&self) -> Instant {
        self.next_look.min(self.learn_at).min(self.release_at.unwrap_or(self.next_look))
    }

    fn tick(&mut self) {
        if self.release_at.is_some_and(|at| Instant::now() >= at) {
            if let Err(error) = self.router.release_if_unused() {
                warn!("{}", in_words(&error.into()));
            }
            self.release_at = self.router.has_unreleased().then(|| Instant::now() + GRACE);
        }
        if Instant::now() >= self.learn_at {
            // What is remembered is looked at each second, too.
            self.learn_at = Instant::now() + SECOND;
            self.learn();
        }
        if Instant::now() >= self.next_look {
            self.next_look = Instant::now() + SECOND;
            self.router.forget_left();
            if self.trouble.is_some() || self.found.lacks_something() {
                self.look_again();
            }
            self.tell_addresses();
        }
    }

    fn changed(&mut self) {
        self.look_again();
    }

    fn woken(&mut self) {
        self.learn_at = self.learn_at.min(Instant::now() + REST);
    }

    fn metrics(&mut self) -> anyhow::Result<String> {
        Ok(metrics::render(&self.status()?))
    }

    fn counters(&mut self) -> anyhow::Result<Counters> {
        let drops = self.router.drops()?.into_iter().map(|(reason, count)| (reason.text().to_owned(), count));
        let mut counters = Counters { drops: drops.collect(), ..Counters::default() };
        for (_, number) in self.numbers.interfaces.iter() {
            let traffic = self.router.traffic(number)?;
            for (name, count) in [
                ("in_packets", traffic.in_packets),
                ("in_bytes", traffic.in_bytes),
                ("out_packets", traffic.out_packets),
                ("out_bytes", traffic.out_bytes),
            ] {
                *counters.counts.entry(name.to_owned()).or_insert(0) += count;
            }
        }
        Ok(counters)
    }

    fn stop(self, _end: End<Reply>) -> Result<Exit, Failure> {
        let ExitPolicy { persist, fail_open } = self.after;
        if persist {
            info!(
                "the router has ended, and its last configuration stays in force: run it again with --persist, or end it with \
                 `netrig vrouter release`"
            );
        } else if !fail_open {
            info!(
                "the router has ended, and its containers' interfaces stay closed: run it again, or open them with `netrig vrouter \
                 release --node {}`",
                self.node
            );
        }
        Ok(Exit::Done)
    }
}

pub(super) fn lacks_room(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(rig_datapath::Error::NoRoom { .. }))
}

fn new_notes<'a>(before: &'a BTreeSet<String>, now: &'a BTreeSet<String>) -> impl Iterator<Item = &'a String> {
    now.difference(before)
}

/// Sends flows a batch at a time, on a thread of its own: clients read as fast as they can.
fn list(mut flows: Vec<FlowEntry>, filter: Option<FlowFilter>, to: Replies<Reply>) {
    let work = move || {
        filter::number(&mut flows);
        if let Some(filter) = filter {
            flows.retain(|flow| filter.takes(flow));
        }
        let last = flows.split_off(flows.len().saturating_sub(1) / BATCH * BATCH);
        for batch in flows.chunks(BATCH) {
            if to.part(Reply::Flows(batch.to_vec())).is_err() {
                return;
            }
        }
        to.answer(Reply::Flows(last));
    };
    // The client is told that it is not answered.
    let _unanswered = std::thread::Builder::new().name("list".into()).spawn(work);
}
