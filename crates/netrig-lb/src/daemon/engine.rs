//! The balancer with its rules: what is asked is answered here, one after the other, and what is due is done in between.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rig_cli::exit::in_words;
use rig_cli::streams::note;
use rig_datapath::balancer::Balancer;
use rig_service::files::ServiceFiles;
use rig_stats::units::counted;

use super::counts::{Counts, Snapshot, key_of};
use super::devices::Devices;
use super::keep::{self, Pins};
use super::pace::Pace;
use super::socket::{Ask, Event};
use super::status::list;
use crate::message::{Reply, Request};
use crate::settings::{Completeness, Rules, Settings, Shown, Start, changes, protocol};

/// What is due once a second.
const SECOND: Duration = Duration::from_secs(1);

pub(super) struct Engine {
    pub(super) files: ServiceFiles,
    pub(super) balancer: Balancer,
    pub(super) devices: Devices,
    /// As it is in force, but for services that lack something.
    pub(super) rules: Rules,
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
    pub(super) counts: Counts,
    pub(super) pace: Pace,
    pub(super) troubles: Troubles,
    pub(super) voice: Voice,
}

/// To whom it is told what happens.
#[derive(Debug, Clone, Default)]
pub(super) enum Voice {
    /// To who reads standard error.
    #[default]
    Aloud,
    /// To the program that runs it, when it asks.
    Kept(Arc<Mutex<Vec<String>>>),
}

impl Voice {
    pub(super) fn say(&self, line: impl Display) {
        match self {
            Self::Aloud => note(line),
            Self::Kept(said) => {
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                // What goes on for hours is told once a second at most; nobody reads so much.
                if said.len() < MOST_KEPT {
                    said.push(line.to_string());
                }
            }
        }
    }
}

/// Lines.
const MOST_KEPT: usize = 1000;

/// What stands in the way of work that is done again and again.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    neighbors: Trouble,
    sweeping: Trouble,
    counting: Trouble,
}

/// What was last said of one, so that it is said once.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<String>);

impl Trouble {
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

/// Nothing was done.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) what: String,
    pub(super) hint: Option<String>,
    /// Which of several changes is the one that cannot be made, counted from 0.
    pub(super) edit: Option<usize>,
}

impl Refusal {
    pub(super) fn new(what: impl Into<String>, hint: Option<String>) -> Self {
        Self { what: what.into(), hint, edit: None }
    }

    pub(super) fn error(self) -> anyhow::Error {
        let Self { what, hint, .. } = self;
        anyhow!("{what}{}", hint.map(|hint| format!(": {hint}")).unwrap_or_default())
    }

    /// What whoever asked is told.
    pub(super) fn reply(self) -> Reply {
        let Self { what, hint, edit } = self;
        Reply::Refused { what, hint, edit }
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast_ref() {
            Some(rig_datapath::Error::NoRoom { what, room, wanted }) => {
                Self::new(format!("there is room for {room} {what}, and {wanted} are wanted"), raise_room(what))
            }
            _ => Self::new(in_words(&error), None),
        }
    }
}

impl From<rig_datapath::Error> for Refusal {
    fn from(error: rig_datapath::Error) -> Self {
        anyhow::Error::new(error).into()
    }
}

/// Which key of the file makes a table larger in which there was no room for so many of these.
pub(super) fn raise_room(what: &str) -> Option<String> {
    let keys = [
        ("services", "services"),
        ("backends", "backends"),
        ("local addresses", "local_addresses"),
        ("entries of schedules", "schedule_entries"),
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

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Told to, and what persists stays.
    Leave,
    /// Packets are balanced no more.
    Detach,
}

impl Engine {
    /// Works until it is told to stop.
    pub(super) fn work(&mut self, events: &Receiver<Event>) -> (End, Option<Ask>) {
        let mut second = Instant::now();
        loop {
            let now = Instant::now();
            if now >= self.pace.next() {
                self.sweep();
            }
            if now >= second {
                second = now + SECOND;
                self.each_second();
            }
            let until = self.pace.next().min(second);
            match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Ask(Ask { request: Request::Stop { detach }, reply })) => {
                    let end = if detach || self.pins.is_none() { End::Detach } else { End::Leave };
                    return (end, Some(Ask { request: Request::Stop { detach }, reply }));
                }
                Ok(Event::Ask(ask)) => self.answer(&ask),
                Ok(Event::Reload) => match self.reload() {
                    Ok(said) => said.iter().for_each(|line| self.voice.say(format_args!("reload: {line}"))),
                    Err(Refusal { what, hint, .. }) => {
                        let hint = hint.map(|hint| format!("\n  {hint}")).unwrap_or_default();
                        self.voice.say(format_args!("reload refused, all stays as it was: {what}{hint}"));
                    }
                },
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return (if self.pins.is_some() { End::Leave } else { End::Detach }, None);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn sweep(&mut self) {
        let (begun, places) = (Instant::now(), self.pace.slice());
        let swept = self.balancer.sweep(places);
        let (live, short) = swept.as_ref().map_or((0, false), |swept| (swept.live, swept.short));
        self.pace.swept(places, live, short, (begun, Instant::now()));
        let trouble = swept
            .err()
            .map(|error| format!("cannot sweep the table, connections do not expire: {}", in_words(&error.into())));
        self.troubles.sweeping.now(trouble).into_iter().for_each(|line| self.voice.say(line));
    }

    fn ask_for_neighbors(&mut self) {
        let trouble = self.balancer.ask_for_neighbors().err().map(|error| in_words(&error.into()));
        self.troubles.neighbors.now(trouble).into_iter().for_each(|line| self.voice.say(line));
    }

    fn each_second(&mut self) {
        self.ask_for_neighbors();
        self.devices.watch(&mut self.balancer).iter().for_each(|line| self.voice.say(line));
        let snapshot = Snapshot::take(&self.balancer).map(|snapshot| self.counts.sample(snapshot));
        let trouble = snapshot.err().map(|error| format!("cannot read counters: {}", in_words(&error.into())));
        self.troubles.counting.now(trouble).into_iter().for_each(|line| self.voice.say(line));
    }

    fn answer(&mut self, ask: &Ask) {
        let reply = match &ask.request {
            Request::Status => self.status().map(|status| Reply::Status(Box::new(status))),
            Request::Edit(edit) => self.edit(std::slice::from_ref(edit)).map(Reply::Done),
            Request::Edits(edits) => self.edit(edits).map(Reply::Done),
            Request::Zero(service) => self.zero(*service).map(Reply::Done),
            Request::Flush { service, backend } => self.flush(*service, *backend).map(Reply::Done),
            Request::Reload => self.reload().map(Reply::Done),
            Request::Configuration => Ok(Reply::Text(self.settings().to_toml())),
            Request::Connections(filter) => return list(self.balancer.handle(), filter.clone(), ask.reply.clone()),
            Request::Trace(traced) => self.trace(traced).map(|trace| Reply::Trace(Box::new(trace))),
            Request::Stop { .. } => return,
        };
        let reply = reply.unwrap_or_else(Refusal::reply);
        // Whoever asked may have gone.
        let _ = ask.reply.try_send(reply);
    }

    /// All that a file would say of what is in force.
    pub(super) fn settings(&self) -> Settings {
        let start = Start { devices: self.devices.wanted(), ..self.start.clone() };
        Settings { start, rules: self.rules.clone() }
    }

    fn edit(&mut self, edits: &[crate::message::Edit]) -> Result<Vec<String>, Refusal> {
        let mut rules = self.rules.clone();
        for (at, edit) in edits.iter().enumerate() {
            rules.edit(edit).map_err(|error| Refusal {
                edit: Some(at),
                ..Refusal::new(error.to_string(), Some(error.hint().to_owned()))
            })?;
        }
        let put = self.put_in_force(rules);
        let said = put.map_err(|refusal| Refusal { edit: self.first_impossible(edits), ..refusal })?;
        self.edits += edits.len() as u32;
        Ok(said)
    }

    /// Which of these changes makes the rules impossible that were possible before it: what is wrong may be wrong of all together
    /// only, and of one that makes it so the line can be told.
    fn first_impossible(&self, edits: &[crate::message::Edit]) -> Option<usize> {
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

    fn zero(&mut self, service: Option<crate::message::ServiceKey>) -> Result<Vec<String>, Refusal> {
        if let Some(key) = service
            && self.rules.service(key).is_none()
        {
            let hint = Some("list services with -L -n".to_owned());
            return Err(Refusal::new(format!("No such service: {}", Shown(key)), hint));
        }
        self.counts.zero(&Snapshot::take(&self.balancer)?, service);
        Ok(Vec::new())
    }

    fn flush(
        &self,
        service: Option<crate::message::ServiceKey>,
        backend: Option<std::net::SocketAddr>,
    ) -> Result<Vec<String>, Refusal> {
        // Those that were removed and still have connections are among them.
        let known = self.balancer.services()?;
        let of: Vec<_> = known.iter().filter(|status| service.is_none_or(|key| key == key_of(status))).collect();
        let hint = || Some("list them with -L -n, and connections with -L -c -n".to_owned());
        if let Some(key) = service.filter(|_| of.is_empty()) {
            return Err(Refusal::new(format!("No such service: {}", Shown(key)), hint()));
        }
        let has = |address| of.iter().any(|status| status.backends.iter().any(|backend| backend.address == address));
        if let Some(address) = backend.filter(|address| !has(*address)) {
            return Err(Refusal::new(format!("No such destination: {address}"), hint()));
        }
        let ended = self.balancer.flush(service.map(|key| (protocol(key.protocol), key.address)), backend)?;
        Ok(vec![counted(ended, "connection has ended", "connections have ended")])
    }

    /// All or nothing. Says which services are not in force, and which are from now on.
    pub(super) fn put_in_force(&mut self, rules: Rules) -> Result<Vec<String>, Refusal> {
        let room = self.balancer.sizes().connections;
        let config = rules.config(room);
        config.validate().map_err(|error| Refusal::new(error.to_string(), None))?;
        if let Err(error) = self.balancer.apply(&config) {
            // Half of it may be done.
            self.balancer.apply(&self.rules.config(room)).unwrap_or_else(|error| {
                self.voice.say(format_args!("the rules in force are incomplete: {}", in_words(&error.into())));
            });
            return Err(error.into());
        }
        self.ask_for_neighbors();
        let mut said = Vec::new();
        for service in &rules.services {
            let (shown, before) = (Shown(service.key), self.rules.service(service.key));
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
        said.extend(self.write_down().err());
        Ok(said)
    }

    /// Keeps the configuration for the next control plane, where the balancer persists.
    pub(super) fn write_down(&self) -> Result<(), String> {
        if self.pins.is_none() {
            return Ok(());
        }
        let path = self.files.configuration();
        keep::write_configuration(&self.files, &self.settings().to_toml())
            .with_context(|| format!("write {}: a restart will not know of this", path.display()))
            .map_err(|error| in_words(&error))
    }

    /// Reads the file again: all of it comes into force, or nothing.
    fn reload(&mut self) -> Result<Vec<String>, Refusal> {
        let Some(path) = &self.options.file else {
            let hint = "change it with -A, -a and the like, or start it with a file";
            return Err(Refusal::new("it runs without a configuration file", Some(hint.into())));
        };
        let settings =
            Settings::load(path, Completeness::Required).map_err(|error| Refusal::new(error.to_string(), None))?;
        let Settings { start, rules } = self.options.overlay.over(settings);
        let wanted = start.devices.clone();
        if wanted.is_empty() {
            let hint = Some("add devices = [\"eth0\"]".to_owned());
            return Err(Refusal::new(format!("{} names no device", path.display()), hint));
        }
        let before = self.devices.wanted();
        let new: Vec<_> = wanted.iter().filter(|device| !before.contains(device)).cloned().collect();
        self.devices.must_exist(&new)?;
        let mut said = changes(&self.rules, &rules);
        // New devices come first, because they can fail, and old ones go last.
        let both = before.iter().filter(|old| !wanted.iter().any(|new| new.name == old.name)).chain(&wanted).cloned();
        let more = self.devices.set(&mut self.balancer, &both.collect::<Vec<_>>());
        let more = more.map_err(|error| self.back_to(&before, error.into()))?;
        let in_force = self.put_in_force(rules).map_err(|error| self.back_to(&before, error))?;
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

    fn back_to(&mut self, devices: &[crate::settings::Device], refusal: Refusal) -> Refusal {
        if let Err(error) = self.devices.set(&mut self.balancer, devices) {
            self.voice.say(in_words(&error));
        }
        refusal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_said_once_and_again_when_it_has_come_back() {
        let (mut trouble, full) = (Trouble::default(), || Some("full".to_owned()));
        assert_eq!(trouble.now(None), None);
        assert_eq!(trouble.now(full()), Some("full"));
        assert_eq!(trouble.now(full()), None);
        assert_eq!(trouble.now(Some("empty".to_owned())), Some("empty"));
        assert_eq!(trouble.now(None), None);
        assert_eq!(trouble.now(full()), Some("full"));
    }
}
