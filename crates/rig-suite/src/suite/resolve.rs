//! From the letter of a suite file to a [`Suite`]: every name looked up, every unit and range checked, once.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use rig_cli::mistakes;
use rig_facts::claim::{Claim, ClaimError, FigureError, FigureRef, Metric, Side};
use rig_facts::figures::check;
use rig_facts::figures::dut::check as check_dut;
use rig_facts::figures::phases::check_phase;
use rig_facts::record::Searched;
use rig_stats::units::{Percent, Span};
use rig_testbed::topology::{Endpoint, Path, Topology, TopologyError, WireOptions, check_name};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{
    AaFile, AnswerFile, AnswerPartFile, Defaults, OneOrMany, Quick, QuickSearchFile, ReceiverCpus, ScenarioFile,
    SuiteFile, WireFile,
};
use super::keys;
use super::load::{LoadError, LoadKind, LoadPair, LoadTable, ends, error, validate};
use super::packets::{self, PortOf};
use super::workers::Duts;
use super::{Answer, AskedLoad, Part, QuickSearch, Repeat, Scenario, Suite, SuiteError, Timing, Traffic, Twin};
use crate::checks::Procedure;

pub(super) fn resolve(file: &str, text: &str, purpose: Purpose) -> Result<Suite, SuiteError> {
    let wrong = |error: toml::de::Error| {
        let (what, hint) = mistakes::of_serde(error.message());
        SuiteError { file: file.to_owned(), line: error.span().map(|span| mistakes::line(text, &span)), what, hint }
    };
    let tables = DeTable::parse(text).map_err(wrong)?;
    let read = SuiteFile::deserialize(toml::Deserializer::from(tables.clone())).map_err(wrong)?;
    Resolver { file, text, tables: tables.into_inner(), purpose }.suite(read)
}

/// What a suite is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Run,
    /// It was run: what only keeps a run from being made is no fault.
    Report,
}

pub(super) struct Resolver<'a> {
    file: &'a str,
    text: &'a str,
    /// All that the file says, with its places.
    tables: DeTable<'a>,
    purpose: Purpose,
}

pub(super) type Result<T, E = SuiteError> = std::result::Result<T, E>;

/// A scenario as the file has it, with the tables of its loads.
struct Said<'f, 'a> {
    scenario: &'f ScenarioFile,
    load: Option<LoadTable<'a>>,
    under: Option<LoadTable<'a>>,
}

impl<'a> Resolver<'a> {
    fn suite(&self, file: SuiteFile) -> Result<Suite> {
        check_name(file.name.get_ref()).map_err(|e| self.topology_error(file.name.span(), e))?;
        let timing = self.timing(&file.defaults)?;
        self.testbeds(&file)?;
        let quick = file.quick.as_ref().map(|quick| self.quick(quick)).transpose()?;
        let scenarios = self.scenarios(&file)?;
        let quick_search =
            file.quick.as_ref().map_or(Ok(QuickSearch::default()), |q| self.quick_search(q, &scenarios))?;
        let known: BTreeSet<&str> = scenarios.iter().map(|s| s.id.as_str()).collect();
        if let Some(baseline) = &file.baseline {
            self.known_scenario(&known, baseline)?;
        }
        let twin = self.twin(&known, file.aa.as_ref())?;
        let tables = file.table.iter().map(|table| self.table(&scenarios, table)).collect::<Result<_>>()?;
        let answers =
            file.answer.iter().map(|answer| self.answer(&known, &scenarios, answer)).collect::<Result<_>>()?;
        let claims = file
            .claim
            .iter()
            .map(|claim| {
                let parsed = Claim::parse(&claim.text, claim.holds.get_ref());
                self.known_figures(&known, &scenarios, &claim.holds, parsed)
            })
            .collect::<Result<_>>()?;
        Ok(Suite {
            name: file.name.into_inner(),
            title: file.title,
            question: file.question,
            answers,
            about: file.about,
            study: file.study,
            gate: file.gate,
            file: self.file.to_owned(),
            text: self.text.to_owned(),
            baseline: file.baseline.map(Spanned::into_inner),
            twin,
            timing,
            quick,
            quick_search,
            quick_trials: file.quick.as_ref().map(|quick| quick.get_ref().trials),
            nodes: scenarios
                .iter()
                .filter(|s| !s.topology.shares_cpus())
                .map(|s| s.topology.share_count())
                .max()
                .unwrap_or(0),
            scenarios,
            tables,
            claims,
        })
    }

    fn twin(&self, known: &BTreeSet<&str>, file: Option<&Spanned<AaFile>>) -> Result<Twin> {
        Ok(match file.map(Spanned::get_ref) {
            None | Some(AaFile::Whether(true)) => Twin::Chosen,
            Some(AaFile::Whether(false)) => Twin::None,
            Some(AaFile::Scenario(id)) => {
                let span = file.map(Spanned::span).unwrap_or_default();
                self.known_scenario(known, &Spanned::new(span, id.clone()))?;
                Twin::Named(id.clone())
            }
        })
    }

    /// An expression of figures that there are.
    fn known_figures(
        &self,
        known: &BTreeSet<&str>,
        scenarios: &[Scenario],
        said: &Spanned<String>,
        parsed: Result<Claim, ClaimError>,
    ) -> Result<Claim> {
        let span = said.span();
        let parsed = parsed.map_err(|e| {
            let unknown = self.unknown_scenario(known, said);
            unknown.unwrap_or_else(|| self.error(span.clone(), e.to_string(), None))
        })?;
        for figure in parsed.figures() {
            self.known_scenario(known, &Spanned::new(span.clone(), figure.scenario.clone()))?;
            for scenario in scenarios.iter().filter(|scenario| scenario.id == figure.scenario) {
                self.check_figure(span.clone(), scenario, figure)?;
            }
        }
        Ok(parsed)
    }

    fn answer(&self, known: &BTreeSet<&str>, scenarios: &[Scenario], file: &AnswerFile) -> Result<Answer> {
        let part = |part: &AnswerPartFile| {
            let value = Claim::value(part.value.get_ref());
            let value = self.known_figures(known, scenarios, &part.value, value)?;
            Ok(Part { value, text: part.text.clone() })
        };
        let parts = file.parts.iter().map(part).collect::<Result<_>>()?;
        Ok(Answer { text: file.text.clone(), unit: file.unit.clone(), parts })
    }

    fn timing(&self, defaults: &Spanned<Defaults>) -> Result<Timing> {
        let d = defaults.get_ref();
        let phases = [d.window.get_ref().0, d.warm_up.0, d.cool_down.0];
        Timing::new(phases[0], phases[1], phases[2], Repeat::Until(d.confidence)).map_err(|e| {
            let key = ["window", "warm_up", "cool_down"].into_iter().zip(phases).find(|(_, phase)| e.is_of(*phase));
            let at = key.and_then(|(key, _)| keys::of(&self.tables, &["defaults", key]));
            self.error(at.unwrap_or_else(|| d.window.span()), e.what, Some(e.hint))
        })
    }

    /// Mistakes of a testbed that any scenario in it would have are told at the testbed, not at a scenario.
    fn testbeds(&self, file: &SuiteFile) -> Result<()> {
        for (name, testbed) in &file.testbed {
            let nodes = &testbed.nodes;
            Topology::check_nodes(nodes.get_ref()).map_err(|e| self.topology_error(nodes.span(), e))?;
            let Some(wire) = &testbed.wire else { continue };
            let at = |key: &&str| keys::of(&self.tables, &["testbed", name, "wire", key]);
            let check = |wire: &WireFile| options(wire, &WireFile::default()).check();
            let Err(error) = check(wire) else { continue };
            // The key without which all is well.
            let without = [
                ("mtu", WireFile { mtu: None, ..*wire }),
                ("rate", WireFile { rate: None, ..*wire }),
                ("queues", WireFile { queues: None, ..*wire }),
            ];
            let changes = |wire: &WireFile| check(wire).as_ref() != Err(&error);
            let key = without.into_iter().find(|(_, wire)| changes(wire)).map(|(key, _)| key);
            let span = key.as_ref().and_then(at).unwrap_or_else(|| nodes.span());
            return Err(self.topology_error(span, error));
        }
        Ok(())
    }

    fn quick(&self, quick: &Spanned<Quick>) -> Result<Timing> {
        let q = quick.get_ref();
        if !(1..=100).contains(&q.trials) {
            return Err(self.error(quick.span(), format!("{} trials", q.trials), Some("choose 1 to 100")));
        }
        let most = q.trials_for_claims.unwrap_or(q.trials);
        if !(q.trials..=100).contains(&most) {
            let hint = format!("choose {} to 100, `trials` or more", q.trials);
            return Err(self.error(quick.span(), format!("{most} trials for claims"), Some(&hint)));
        }
        Timing::new(q.window.0, q.warm_up.0, q.cool_down.0, Repeat::Times(most))
            .map_err(|e| self.error(quick.span(), e.what, Some(e.hint)))
    }

    fn quick_search(&self, quick: &Spanned<Quick>, scenarios: &[Scenario]) -> Result<QuickSearch> {
        let Some(QuickSearchFile { step, precision }) = quick.get_ref().search else {
            return Ok(QuickSearch::default());
        };
        let mut searches = scenarios.iter().filter_map(|scenario| scenario.traffic.packets.as_ref()?.search).peekable();
        if searches.peek().is_none() {
            let what = "quick has a search, and no load of the suite has";
            return Err(self.error(quick.span(), what, Some("remove it")));
        }
        let quick_search = QuickSearch { step: step.map(|step| step.0), precision: precision.map(Percent::fraction) };
        for search in searches {
            packets::check_search(&search.hastened(quick_search)).map_err(|e| self.load_error(quick.span(), e))?;
        }
        Ok(quick_search)
    }

    fn scenarios(&self, file: &SuiteFile) -> Result<Vec<Scenario>> {
        let defaults = self.default_load();
        defaults.check().map_err(|e| self.load_error(defaults.span(), e))?;
        self.not_too_many(file)?;
        let all = self.said(file);
        let mut ids = BTreeSet::new();
        let mut scenarios = Vec::with_capacity(all.len());
        for said in &all {
            let id = &said.scenario.id;
            if !rig_facts::claim::is_scenario_id(id.get_ref()) {
                let hint = "use letters, digits, '_' and '-', beginning with a letter: claims refer to it";
                return Err(self.error(id.span(), format!("'{}' is not a scenario id", id.get_ref()), Some(hint)));
            }
            if !ids.insert(id.get_ref().clone()) {
                let what = format!("scenario '{}' is described twice", id.get_ref());
                return Err(self.error(id.span(), what, Some("give each scenario an id of its own")));
            }
            let (one, duts) = self.scenario(file, &all, said)?;
            let variants = self.with_set(&one, &said.scenario.set)?;
            for row in variants.into_iter().flat_map(|variant| self.rows(variant, &duts)) {
                if row.id != *id.get_ref() && !ids.insert(row.id.clone()) {
                    let what = format!("scenario '{}' is a row of '{}' and described besides", row.id, id.get_ref());
                    return Err(self.error(id.span(), what, Some("give one of them another id")));
                }
                scenarios.push(row);
            }
        }
        if scenarios.is_empty() {
            return Err(self.error(file.name.span(), "a suite without scenarios", Some("add a [[scenario]]")));
        }
        self.no_idle_defaults(&defaults, &all)?;
        Ok(scenarios)
    }

    /// Keys of loads that have not got them themselves; none where the file has no such defaults.
    fn default_load(&self) -> LoadTable<'a> {
        let table =
            |value: &Spanned<DeValue<'a>>| value.get_ref().as_table().and_then(|table| table.get("load").cloned());
        self.tables.get("defaults").and_then(table).and_then(|load| LoadTable::of(&load)).unwrap_or_default()
    }

    fn said<'f>(&self, file: &'f SuiteFile) -> Vec<Said<'f, 'a>> {
        let tables = self.tables.get("scenario").and_then(|all| all.get_ref().as_array());
        let load = |table: &Spanned<DeValue<'a>>, key: &str| LoadTable::of(table.get_ref().as_table()?.get(key)?);
        let said = |(scenario, table): (&'f ScenarioFile, _)| Said {
            scenario,
            load: load(table, "load"),
            under: load(table, "under"),
        };
        file.scenario.iter().zip(tables.into_iter().flat_map(|tables| tables.iter())).map(said).collect()
    }

    /// A default that no load can have is a mistake: nothing would come of it.
    fn no_idle_defaults(&self, defaults: &LoadTable<'a>, all: &[Said<'_, 'a>]) -> Result<()> {
        let kind = |load: &LoadTable<'a>| load.kind().ok().flatten();
        let kind_of = |load: Option<&LoadTable<'a>>| load.and_then(kind).or_else(|| kind(defaults));
        let loads = all.iter().flat_map(|said| [Some(said.load.as_ref()), said.under.as_ref().map(Some)]);
        let kinds: Vec<LoadKind> = loads.flatten().filter_map(kind_of).collect();
        let used = |key: &str| kinds.iter().any(|kind| kind.keys().contains(&key));
        match defaults.given().find(|key| !used(key)) {
            None => Ok(()),
            Some(idle) => {
                let what = format!("no load of the suite has '{idle}'");
                let span = defaults.place(idle).unwrap_or_else(|| defaults.span());
                Err(self.error(span, what, Some("remove it, or give it to a load of a kind that has it")))
            }
        }
    }

    /// The scenario without its device under test, and what that is to be.
    fn scenario(&self, file: &SuiteFile, all: &[Said<'_, 'a>], said: &Said<'_, 'a>) -> Result<(Scenario, Duts)> {
        let scenario = said.scenario;
        let Some(testbed) = file.testbed.get(scenario.testbed.get_ref()) else {
            let names: Vec<&str> = file.testbed.keys().map(String::as_str).collect();
            let what = format!("no testbed '{}'", scenario.testbed.get_ref());
            let hint = format!("the file's testbeds are: {}", names.join(", "));
            return Err(self.error(scenario.testbed.span(), what, Some(&hint)));
        };
        let path: Path = scenario.path.get_ref().parse().map_err(|e| self.topology_error(scenario.path.span(), e))?;
        let pairs = self.pairs(&scenario.from, &scenario.to)?;
        let defaults = &self.default_load();
        let load = self.load_of(all, said)?;
        let span = load.map_or_else(|| scenario.id.span(), LoadTable::span);
        let of = Blamed { span, own: load.cloned().unwrap_or_default(), defaults };
        let mut traffic = self.traffic(&of, pairs)?;
        let mut under = said.under.as_ref().map(|under| self.under(under, defaults, &traffic)).transpose()?;
        let wire = self.wire(testbed.wire.as_ref(), scenario)?;
        let in_order: Vec<Endpoint> = std::iter::once(&traffic)
            .chain(under.iter().map(|(under, _)| under))
            .flat_map(Traffic::endpoints)
            .collect();
        let networks = scenario.networks.as_ref().map_or(1, |networks| *networks.get_ref());
        let mut topology = Topology::of_networks(networks, testbed.nodes.get_ref(), wire, path, &in_order)
            .and_then(|topology| topology.with_family(scenario.family.unwrap_or(testbed.family)))
            .map_err(|e| self.topology_error(networks_or_path(scenario, path, networks), e))?;
        for (traffic, at) in std::iter::once((&traffic, scenario.to.span()))
            .chain(under.iter().map(|(under, of)| (under, of.span.clone())))
        {
            for (from, to) in &traffic.pairs {
                topology.check_pair(from, to).map_err(|e| self.topology_error(at.clone(), e))?;
            }
        }
        if let Some(receiver) = &testbed.receiver_cpus {
            let ReceiverCpus::All = receiver.get_ref();
            topology =
                topology.with_all_cpus_for_receiver().map_err(|e| self.topology_error(scenario.path.span(), e))?;
        }
        let duts = self.duts(scenario, path)?;
        for (traffic, of) in
            std::iter::once((&mut traffic, &of)).chain(under.iter_mut().map(|(under, of)| (under, &*of)))
        {
            let pairs = traffic.pairs.clone();
            let again = |load: &LoadTable<'a>, defaults: &LoadTable<'a>| {
                packets::with_lanes(topology.clone(), &mut loaded(load, defaults, pairs.clone())?).map(drop)
            };
            let joined = packets::with_lanes(topology.clone(), traffic);
            topology = joined.map_err(|e| self.blame(of, e, again))?;
        }
        for (traffic, of) in std::iter::once((&traffic, &of)).chain(under.iter().map(|(under, of)| (under, of))) {
            let again = |load: &LoadTable<'a>, defaults: &LoadTable<'a>| {
                let mut traffic = loaded(load, defaults, traffic.pairs.clone())?;
                let topology = packets::with_lanes(topology.clone(), &mut traffic)?;
                check_packets(file, &traffic, &topology)
            };
            check_packets(file, traffic, &topology).map_err(|e| self.blame(of, e, again))?;
        }
        if let Some((under, of)) = &under
            && under.packets.as_ref().is_some_and(|packets| packets.search.is_some())
        {
            let what = "a search under another load";
            return Err(self.error(of.span.clone(), what, Some("search with the scenario's own load")));
        }
        let (under, of_under) = under.unzip();
        let mut datapaths = self.datapaths(scenario, &topology)?;
        self.check_shared(scenario, &traffic, under.as_ref())?;
        let programme = self.programme(scenario, &traffic, under.as_ref(), &datapaths)?;
        self.note_commands(scenario, &mut datapaths);
        let before = self.before(&scenario.before, &topology)?;
        let checks = scenario.checks.as_ref().map(|checks| *checks.get_ref());
        let profile = !path.has_dut() && scenario.profile.as_ref().is_some_and(|profile| *profile.get_ref());
        let mut resolved = Scenario {
            id: scenario.id.get_ref().clone(),
            name: scenario.name.clone(),
            about: scenario.about.clone(),
            notes: scenario.notes.clone(),
            topology,
            dut: None,
            profile,
            datapaths,
            row_of: None,
            twin_of: None,
            trials_max: None,
            before,
            watched: traffic.goal(),
            traffic,
            under,
            programme,
            checks,
        };
        if let Some(checks) = &scenario.checks {
            self.check_procedure(checks, &resolved)?;
        }
        if self.purpose == Purpose::Run {
            self.check_windows(file, &resolved, &of, of_under.as_ref())?;
        }
        for watch in &scenario.watch {
            let figure: FigureRef = format!("{}.{}", resolved.id, watch.get_ref())
                .parse()
                .map_err(|e: FigureError| self.error(watch.span(), e.what, Some(&e.hint)))?;
            self.check_figure(watch.span(), &resolved, &figure)?;
            if let Some(phase) = &figure.phase {
                let what = format!("'watch' names phase '{phase}'");
                return Err(self.error(
                    watch.span(),
                    what,
                    Some("trials are repeated until figures of the window are certain"),
                ));
            }
            resolved.watched.push((figure.side, figure.metric));
        }
        Ok((resolved, duts))
    }

    /// The load that the scenario has of its own, or that of the one that it names.
    fn load_of<'s>(&self, all: &'s [Said<'_, 'a>], said: &'s Said<'_, 'a>) -> Result<Option<&'s LoadTable<'a>>> {
        let Some(of) = &said.scenario.load_of else { return Ok(said.load.as_ref()) };
        if said.load.is_some() {
            let hint = "a scenario has a load of its own, or that of another: remove one of them";
            return Err(self.error(of.span(), "both 'load' and 'load_of'", Some(hint)));
        }
        let id = |other: &'s Said<'_, 'a>| other.scenario.id.get_ref();
        let Some(other) = all.iter().find(|other| id(other) == of.get_ref()) else {
            let known: Vec<&str> = all.iter().map(|other| id(other).as_str()).collect();
            let hint = format!("the suite's scenarios are {}", mistakes::some(&known));
            return Err(self.error(of.span(), format!("no scenario '{}'", of.get_ref()), Some(&hint)));
        };
        if other.load.is_none() {
            let what = format!("scenario '{}' has no load of its own", of.get_ref());
            return Err(self.error(of.span(), what, Some("name the scenario that describes the load")));
        }
        Ok(other.load.as_ref())
    }

    /// Refuses a figure that trials of the scenario do not have.
    fn check_figure(&self, span: Range<usize>, scenario: &Scenario, figure: &FigureRef) -> Result<()> {
        if figure.metric == Metric::BackgroundThroughput && scenario.under.is_none() {
            let what = format!("nothing runs under scenario '{}'", scenario.id);
            return Err(self.error(span, what, Some("give it an `under` load, or name another figure")));
        }
        if let Some(phase) = &figure.phase
            && scenario.programme.phase(phase).is_none()
        {
            return Err(self.no_phase(span, scenario, phase));
        }
        check_phase(&scenario.traffic.connect, figure).map_err(|e| self.error(span.clone(), e.what, Some(&e.hint)))?;
        if figure.metric == Metric::Limit && scenario.traffic.packets.is_none() && scenario.programme.needs_limit() {
            // The limit is measured with the load without its rate.
            return Ok(());
        }
        let searched = scenario.traffic.packets.as_ref().and_then(|packets| packets.search).map(|search| search.of);
        if matches!(figure.metric, Metric::Limit | Metric::LimitHeld) && scenario.traffic.packets.is_some() {
            let is_held = figure.metric == Metric::LimitHeld;
            match searched {
                Some(of) if (of == Searched::Held) == is_held => {}
                Some(of) => {
                    let what = format!("what is searched in scenario '{}' is {of}", scenario.id);
                    let hint = if is_held { "write limit" } else { "write limit_held" };
                    return Err(self.error(span, what, Some(hint)));
                }
                None => {
                    let what = format!("no limit is searched in scenario '{}'", scenario.id);
                    return Err(self.error(span, what, Some("give its load search = \"loss-free\"")));
                }
            }
        }
        check(&scenario.traffic.connect, figure)
            .and_then(|()| check_dut(scenario.topology.path().has_dut(), figure))
            .map_err(|e| self.error(span, e.what, Some(&e.hint)))
    }

    fn no_phase(&self, span: Range<usize>, scenario: &Scenario, phase: &str) -> SuiteError {
        let names = scenario.programme.phases.iter().map(|phase| phase.name.as_str()).filter(|name| !name.is_empty());
        let names: Vec<&str> = names.collect();
        let sides = Side::ALL.map(Side::name);
        let known = match (mistakes::closest(phase, names.iter().copied().chain(sides)), names.as_slice()) {
            (Some(meant), _) => format!("did you mean {meant}?"),
            (None, []) => format!("the scenario has no phases; a side is one of {}", sides.join(", ")),
            (None, names) => format!("its phases are {}", names.join(", ")),
        };
        self.error(span, format!("no phase '{phase}' in scenario '{}'", scenario.id), Some(&known))
    }

    fn traffic(&self, of: &Blamed<'_, 'a>, pairs: Vec<(Endpoint, Endpoint)>) -> Result<Traffic> {
        let again = |load: &LoadTable<'a>, defaults: &LoadTable<'a>| loaded(load, defaults, Vec::new()).map(drop);
        loaded(&of.own, of.defaults, pairs).map_err(|e| self.blame(of, e, again))
    }

    /// The error at the line of what caused it: of the load, or of a default without which it would not be. What the load
    /// says itself comes first. `again` tries another load with other defaults.
    pub(super) fn blame(
        &self,
        of: &Blamed<'_, 'a>,
        error: LoadError,
        again: impl Fn(&LoadTable<'a>, &LoadTable<'a>) -> Result<(), LoadError>,
    ) -> SuiteError {
        if error.at.is_some() {
            return self.load_error(of.span.clone(), error);
        }
        let gone = |key: &str, tried: Result<(), LoadError>| match tried {
            Ok(()) => true,
            // What must be there is missed then; the error that is looked for names it.
            Err(other) => other != error && error.what.contains(key),
        };
        let is_own = |key: &str| of.own.place(key).is_some();
        let at_own = of.own.given().any(|key| gone(key, again(&of.own.without(key), &of.defaults.without(key))));
        let mut defaults = of.defaults.given().filter(|key| !is_own(key));
        let mut at_default = || defaults.find(|key| gone(key, again(&of.own, &of.defaults.without(key))));
        let key = if at_own { None } else { at_default() };
        let span = key.and_then(|key| of.defaults.place(key));
        self.load_error(span.unwrap_or_else(|| of.span.clone()), error)
    }

    /// An interface is the port of one packet load at most.
    fn check_shared(&self, scenario: &ScenarioFile, traffic: &Traffic, under: Option<&Traffic>) -> Result<()> {
        let (Some(_), Some(under), Some(file)) = (&traffic.packets, under, &scenario.under) else { return Ok(()) };
        let mut endpoints = traffic.endpoints();
        match endpoints.find(|endpoint| under.packets.is_some() && under.endpoints().any(|other| other == *endpoint)) {
            None => Ok(()),
            Some(both) => {
                let what = format!("two loads of packets at {both}");
                let hint =
                    "each takes the interface for itself: give the load under it endpoints of its own, or sockets";
                Err(self.error(file.span(), what, Some(hint)))
            }
        }
    }

    /// The load that runs under `main`, between the same endpoints or others, and what the file says of it.
    fn under<'d>(
        &self,
        under: &LoadTable<'a>,
        defaults: &'d LoadTable<'a>,
        main: &Traffic,
    ) -> Result<(Traffic, Blamed<'d, 'a>)> {
        let span = under.span();
        let mut own = under.clone();
        let mut end = |key| own.take::<OneOrMany>(key).map_err(|e| self.load_error(span.clone(), e));
        let pairs = match (end("from")?, end("to")?) {
            (None, None) => main.pairs.clone(),
            (Some(from), Some(to)) => self.pairs(&from, &to)?,
            _ => {
                let hint = "write both, or neither to have it run between the scenario's own";
                return Err(self.error(span, "only one of 'from' and 'to'", Some(hint)));
            }
        };
        let of = Blamed { span, own, defaults };
        Ok((self.traffic(&of, pairs)?, of))
    }

    fn pairs(&self, from: &Spanned<OneOrMany>, to: &Spanned<OneOrMany>) -> Result<Vec<(Endpoint, Endpoint)>> {
        let (connecting, listening) = (self.endpoints(from)?, self.endpoints(to)?);
        if connecting.len() != listening.len() {
            let what = format!("{} senders and {} receivers", connecting.len(), listening.len());
            return Err(self.error(to.span(), what, Some("name a receiver for each sender")));
        }
        let mut endpoints: Vec<&Endpoint> = connecting.iter().chain(&listening).collect();
        endpoints.sort();
        if let Some(twice) = endpoints.windows(2).find(|pair| pair[0] == pair[1]) {
            let what = format!("endpoint {} is used twice", twice[0]);
            return Err(self.error(to.span(), what, Some("give each sender and receiver its own endpoint")));
        }
        Ok(connecting.into_iter().zip(listening).collect())
    }

    fn endpoints(&self, names: &Spanned<OneOrMany>) -> Result<Vec<Endpoint>> {
        let list = names.get_ref().list();
        if list.is_empty() {
            return Err(self.error(names.span(), "an empty list of endpoints", Some("name at least one")));
        }
        list.iter().map(|name| name.parse().map_err(|e| self.topology_error(names.span(), e))).collect()
    }

    /// Whether a scenario carries out the procedure whose checks are to be made.
    fn check_procedure(&self, procedure: &Spanned<Procedure>, scenario: &Scenario) -> Result<()> {
        let (datapath, phases) = procedure.get_ref().asks();
        if !scenario.datapaths.iter().any(|one| one.name == datapath) {
            let what = format!("scenario '{}' has no datapath '{datapath}'", scenario.id);
            let hint = format!("give it [[scenario.datapath]] with name = \"{datapath}\" on the receiver's node");
            return Err(self.error(procedure.span(), what, Some(&hint)));
        }
        let own = scenario.programme.phases.iter().map(|phase| phase.name.as_str());
        if !own.eq(phases.iter().copied()) {
            let what = format!("scenario '{}' has not the phases of the procedure", scenario.id);
            return Err(self.error(
                procedure.span(),
                what,
                Some(&format!("its phases are to be {}", phases.join(", "))),
            ));
        }
        Ok(())
    }

    /// The testbed's wire with what the scenario changes of it.
    fn wire(&self, testbed: Option<&WireFile>, scenario: &ScenarioFile) -> Result<Option<WireOptions>> {
        let change = scenario.wire.as_ref().map(|wire| *wire.get_ref());
        let Some(base) = testbed else {
            return match &scenario.wire {
                None => Ok(None),
                Some(wire) => {
                    let what = format!("testbed '{}' has no wire to change", scenario.testbed.get_ref());
                    Err(self.error(wire.span(), what, Some("give the testbed a wire or remove this")))
                }
            };
        };
        Ok(Some(options(&change.unwrap_or_default(), base)))
    }

    /// The first scenario named in an unreadable claim that the suite does not have. This is told instead of the claim's own
    /// error, which would be about a figure of a scenario that does not exist.
    fn unknown_scenario(&self, known: &BTreeSet<&str>, claim: &Spanned<String>) -> Option<SuiteError> {
        let words = claim.get_ref().split(|c: char| !c.is_ascii_alphanumeric() && !"_-.".contains(c));
        let ids = words.filter_map(|word| word.split_once('.')).map(|(id, _)| id);
        let mut errors = ids
            .filter(|id| rig_facts::claim::is_scenario_id(id))
            .map(|id| self.known_scenario(known, &Spanned::new(claim.span(), id.to_owned())));
        errors.find_map(Result::err)
    }

    pub(super) fn known_scenario(&self, known: &BTreeSet<&str>, id: &Spanned<String>) -> Result<()> {
        if known.contains(id.get_ref().as_str()) {
            return Ok(());
        }
        let list: Vec<&str> = known.iter().copied().collect();
        let hint = format!("the suite's scenarios are {}", mistakes::some(&list));
        Err(self.error(id.span(), format!("no scenario '{}'", id.get_ref()), Some(&hint)))
    }

    fn load_error(&self, span: Range<usize>, error: LoadError) -> SuiteError {
        self.error(error.at.unwrap_or(span), error.what, error.hint.as_deref())
    }

    fn topology_error(&self, span: Range<usize>, error: TopologyError) -> SuiteError {
        self.error(span, error.what, Some(&error.hint))
    }

    pub(super) fn error(&self, span: Range<usize>, what: impl Into<String>, hint: Option<&str>) -> SuiteError {
        SuiteError {
            file: self.file.to_owned(),
            line: Some(self.line(span)),
            what: what.into(),
            hint: hint.map(str::to_owned),
        }
    }

    pub(super) fn line(&self, span: Range<usize>) -> usize {
        mistakes::line(self.text, &span)
    }
}

/// A load as the file writes it, which is to blame for what is wrong with it unless a default is.
pub(super) struct Blamed<'d, 'a> {
    span: Range<usize>,
    own: LoadTable<'a>,
    defaults: &'d LoadTable<'a>,
}

pub(super) fn loaded(
    load: &LoadTable<'_>,
    defaults: &LoadTable<'_>,
    pairs: Vec<(Endpoint, Endpoint)>,
) -> Result<Traffic, LoadError> {
    let LoadPair { connect, listen, packets } = ends(&load.complete(defaults)?)?;
    Ok(Traffic { pairs, connect, listen, packets })
}

/// Whether the testbed can carry the packets, and the engine make them.
fn check_packets(file: &SuiteFile, traffic: &Traffic, topology: &Topology) -> Result<(), LoadError> {
    let Some(packets) = &traffic.packets else { return Ok(()) };
    packets::check_path(packets, topology)?;
    let quick = file.quick.as_ref().map(|quick| quick.get_ref().warm_up);
    let warm_up = quick.into_iter().chain([file.defaults.get_ref().warm_up]).map(|warm_up| warm_up.0).min();
    let ramp = packets::ramp(&traffic.connect);
    if let Some(warm_up) = warm_up.filter(|warm_up| ramp > *warm_up) {
        let what = format!("a ramp of {} in a warm-up of {}", Span(ramp), Span(warm_up));
        return error(what, "the rate would still rise inside the window: choose a longer warm-up, quick's too");
    }
    for (from, to) in &traffic.pairs {
        let run = |load: &AskedLoad, own, peer, is_client| {
            let end = PortOf { own, peer, is_client, cpus: &[], peer_macs: &[], dut: None, lasts: Duration::ZERO };
            load.try_map(|load| packets::at_port(load, packets, topology, &end).ok_or(())).ok()
        };
        let ends = (run(&traffic.connect, from, to, true), run(&traffic.listen, to, from, false));
        let (Some(connect), Some(listen)) = ends else { continue };
        validate(&connect, &listen)?;
    }
    Ok(())
}

/// Where a scenario says what its topology cannot be: how many networks, unless it may have so many.
fn networks_or_path(scenario: &ScenarioFile, path: Path, networks: u32) -> Range<usize> {
    let said = scenario.networks.as_ref().filter(|_| Topology::check_networks(networks, path).is_err());
    said.map_or_else(|| scenario.path.span(), Spanned::span)
}

/// What `change` says of a wire, what it leaves open from `base`, and what both do as it is with every wire.
fn options(change: &WireFile, base: &WireFile) -> WireOptions {
    let standard = WireOptions::default();
    let segmentation_offload = change.segmentation_offload.or(base.segmentation_offload);
    WireOptions {
        rate: change.rate.or(base.rate).map(|rate| rate.0),
        mtu: change.mtu.or(base.mtu).unwrap_or(standard.mtu),
        segmentation_offload: segmentation_offload.unwrap_or(standard.segmentation_offload),
        queues: change.queues.or(base.queues).unwrap_or(standard.queues),
    }
}
