//! From the letter of a suite file to a [`Suite`]: every name looked up, every unit and range checked, once.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use rig_cli::mistakes::{self, FileError};
use rig_cli::source::{Source, Spanned};
use rig_facts::claim::{Claim, ClaimError, FigureError, FigureRef, Metric, Side};
use rig_facts::figures::check;
use rig_facts::figures::dut::check as check_dut;
use rig_facts::figures::phases::check_phase;
use rig_facts::record::SearchedRate;
use rig_stats::units::{Percent, Span};
use rig_testbed::topology::{Endpoint, Path, Topology, TopologyError, WireOptions, check_name};

use super::file::{
    AaFile, AnswerFile, AnswerPartFile, Defaults, Endpoints, Quick, QuickSearchFile, ReceiverCpus, ScenarioFile,
    SuiteFile, WireFile,
};
use super::load::{
    ErrorLocation, LoadError, LoadFile, LoadKind, LoadPair, LoadSource, UnderFile, ends, error, validate, value,
};
use super::packets::{self, PortOf};
use super::workers::Duts;
use super::{
    Answer, AnswerClaim, PacketTraffic, QuickSearch, Repeat, RequestedLoad, Scenario, Suite, Timing, Traffic,
    TwinChoice,
};
use crate::checks::Procedure;

pub(super) fn resolve(file: &str, text: &str, purpose: Purpose) -> Result<Suite> {
    let source = Source { file, text };
    let read = source.read()?;
    Resolver { source, purpose }.suite(read)
}

/// What a suite is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Run,
    /// It was run: what only keeps a run from being made is no fault.
    Report,
}

pub(super) struct Resolver<'a> {
    source: Source<'a>,
    purpose: Purpose,
}

pub(super) type Result<T, E = FileError> = std::result::Result<T, E>;

impl Resolver<'_> {
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
            file: self.source.file.to_owned(),
            text: self.source.text.to_owned(),
            baseline: file.baseline.map(Spanned::into_inner),
            twin,
            timing,
            quick,
            quick_search,
            quick_trials: file.quick.as_ref().map(|quick| *quick.get_ref().trials.get_ref()),
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

    fn twin(&self, known: &BTreeSet<&str>, file: Option<&Spanned<AaFile>>) -> Result<TwinChoice> {
        Ok(match file.map(Spanned::get_ref) {
            None | Some(AaFile::Whether(true)) => TwinChoice::Chosen,
            Some(AaFile::Whether(false)) => TwinChoice::None,
            Some(AaFile::Scenario(id)) => {
                let span = file.map(Spanned::span).unwrap_or_default();
                self.known_scenario(known, &Spanned::new(span, id.clone()))?;
                TwinChoice::Named(id.clone())
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
            Ok(AnswerClaim { value, text: part.text.clone() })
        };
        let parts = file.parts.iter().map(part).collect::<Result<_>>()?;
        Ok(Answer { text: file.text.clone(), unit: file.unit.clone(), parts })
    }

    fn timing(&self, defaults: &Spanned<Defaults>) -> Result<Timing> {
        let d = defaults.get_ref();
        let phases = [&d.window, &d.warm_up, &d.cool_down];
        self.phases(phases, Repeat::Until(d.confidence))
    }

    fn phases(&self, phases: [&Spanned<Span>; 3], repeat: Repeat) -> Result<Timing> {
        let [window, warm_up, cool_down] = phases.map(|phase| phase.get_ref().0);
        Timing::new(window, warm_up, cool_down, repeat).map_err(|e| {
            let key = phases.into_iter().find(|phase| e.is_of(phase.get_ref().0)).unwrap_or(phases[0]);
            self.error(key.span(), e.what, Some(e.hint))
        })
    }

    /// Mistakes of a testbed that any scenario in it would have are told at the testbed, not at a scenario.
    fn testbeds(&self, file: &SuiteFile) -> Result<()> {
        for testbed in file.testbed.values() {
            let nodes = &testbed.nodes;
            Topology::check_nodes(nodes.get_ref()).map_err(|e| self.topology_error(nodes.span(), e))?;
            testbed.wire.as_ref().map_or(Ok(()), |wire| self.check_wire(wire))?;
        }
        Ok(())
    }

    fn check_wire(&self, WireFile { mtu, rate, queues, segmentation_offload: _ }: &WireFile) -> Result<()> {
        if let Some(mtu) = mtu {
            WireOptions::check_mtu(*mtu.get_ref()).map_err(|e| self.topology_error(mtu.span(), e))?;
        }
        if let Some(queues) = queues {
            WireOptions::check_queues(*queues.get_ref()).map_err(|e| self.topology_error(queues.span(), e))?;
        }
        if let Some(rate) = rate {
            WireOptions::check_rate(rate.get_ref().0).map_err(|e| self.topology_error(rate.span(), e))?;
        }
        Ok(())
    }

    fn quick(&self, quick: &Spanned<Quick>) -> Result<Timing> {
        let q = quick.get_ref();
        let trials = *q.trials.get_ref();
        if !(1..=100).contains(&trials) {
            return Err(self.error(q.trials.span(), format!("{trials} trials"), Some("choose 1 to 100")));
        }
        if let Some(most) = q.trials_for_claims.as_ref().filter(|most| !(trials..=100).contains(most.get_ref())) {
            let hint = format!("choose {trials} to 100, `trials` or more");
            return Err(self.error(most.span(), format!("{} trials for claims", most.get_ref()), Some(&hint)));
        }
        let most = value(&q.trials_for_claims).unwrap_or(trials);
        self.phases([&q.window, &q.warm_up, &q.cool_down], Repeat::Times(most))
    }

    fn quick_search(&self, quick: &Spanned<Quick>, scenarios: &[Scenario]) -> Result<QuickSearch> {
        let Some(file) = &quick.get_ref().search else { return Ok(QuickSearch::default()) };
        let QuickSearchFile { step, precision } = *file.get_ref();
        let packets = || scenarios.iter().filter_map(|scenario| scenario.traffic.packets.as_ref());
        let searches = packets().filter_map(|packets| packets.search);
        if !packets().any(PacketTraffic::is_searched) {
            let what = "quick has a search, and no load of the suite has";
            return Err(self.error(file.span(), what, Some("remove it")));
        }
        if precision.is_some() && packets().all(|packets| packets.search.is_none()) {
            let hint = "remove it: the width of a benchmark is that of its goals";
            return Err(self.error(
                file.span(),
                "a precision of searches, and the suite has benchmarks only",
                Some(hint),
            ));
        }
        let quick_search = QuickSearch { step: step.map(|step| step.0), precision: precision.map(Percent::fraction) };
        for search in searches {
            packets::check_search(&search.hastened(quick_search))
                .map_err(|e| self.error(file.span(), e.what, e.hint.as_deref()))?;
        }
        Ok(quick_search)
    }

    fn scenarios(&self, file: &SuiteFile) -> Result<Vec<Scenario>> {
        self.not_too_many(file)?;
        let mut ids = BTreeSet::new();
        let mut scenarios = Vec::with_capacity(file.scenario.len());
        for scenario in &file.scenario {
            let id = &scenario.id;
            if !rig_facts::claim::is_scenario_id(id.get_ref()) {
                let hint = "use letters, digits, '_' and '-', beginning with a letter: claims refer to it";
                return Err(self.error(id.span(), format!("'{}' is not a scenario id", id.get_ref()), Some(hint)));
            }
            if !ids.insert(id.get_ref().clone()) {
                let what = format!("scenario '{}' is described twice", id.get_ref());
                return Err(self.error(id.span(), what, Some("give each scenario an id of its own")));
            }
            let (one, duts) = self.scenario(file, scenario)?;
            let variants = self.with_set(&one, &scenario.set)?;
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
        self.no_idle_defaults(file)?;
        Ok(scenarios)
    }

    /// A default that no load can have is a mistake: nothing would come of it.
    fn no_idle_defaults(&self, file: &SuiteFile) -> Result<()> {
        let Some(defaults) = &file.defaults.get_ref().load else { return Ok(()) };
        let kind_of = |load: Option<&LoadFile>| {
            load.and_then(|load| value(&load.kind)).or_else(|| value(&defaults.get_ref().kind))
        };
        let loads = file.scenario.iter().flat_map(|scenario| {
            let own = scenario.load.as_ref().map(Spanned::get_ref);
            [Some(own), scenario.under.as_ref().map(|under| Some(&under.get_ref().load))]
        });
        let kinds: Vec<LoadKind> = loads.flatten().filter_map(kind_of).collect();
        let used = |key: &str| kinds.iter().any(|kind| kind.keys().any(|known| known == key));
        match defaults.get_ref().given().find(|(key, _)| !used(key)) {
            None => Ok(()),
            Some((idle, span)) => {
                let what = format!("no load of the suite has '{idle}'");
                Err(self.error(span, what, Some("remove it, or give it to a load of a kind that has it")))
            }
        }
    }

    /// The scenario without its device under test, and what that is to be.
    fn scenario(&self, file: &SuiteFile, scenario: &ScenarioFile) -> Result<(Scenario, Duts)> {
        let Some(testbed) = file.testbed.get(scenario.testbed.get_ref()) else {
            let names: Vec<&str> = file.testbed.keys().map(String::as_str).collect();
            let what = format!("no testbed '{}'", scenario.testbed.get_ref());
            let hint = format!("the file's testbeds are: {}", names.join(", "));
            return Err(self.error(scenario.testbed.span(), what, Some(&hint)));
        };
        let path: Path = scenario.path.get_ref().parse().map_err(|e| self.topology_error(scenario.path.span(), e))?;
        let pairs = self.pairs(&scenario.from, &scenario.to)?;
        let defaults = file.defaults.get_ref().load.as_ref().map(Spanned::get_ref);
        let load = self.load_of(&file.scenario, scenario)?;
        let of = LoadSource {
            span: load.map_or_else(|| scenario.id.span(), Spanned::span),
            own: load.map(Spanned::get_ref),
            defaults,
        };
        let mut traffic = self.traffic(&of, pairs)?;
        let mut under = scenario.under.as_ref().map(|under| self.under(under, defaults, &traffic)).transpose()?;
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
        topology = packets::with_lanes(topology, &mut traffic).map_err(|e| self.load_error(&of, e))?;
        if let Some((under, of)) = &mut under {
            let shared = path.is_of_three() && traffic.packets.is_some() && under.packets.is_some();
            let with = if shared { packets::flood_beside } else { packets::with_lanes };
            topology = with(topology, under).map_err(|e| self.load_error(of, e))?;
        }
        for (traffic, of) in std::iter::once((&traffic, &of)).chain(under.iter().map(|(under, of)| (under, of))) {
            check_packets(file, traffic, &topology).map_err(|e| self.load_error(of, e))?;
        }
        if let Some((under, of)) = &under
            && under.packets.as_ref().is_some_and(PacketTraffic::is_searched)
        {
            let what = "a search under another load";
            return Err(self.error(
                of.span_of(&ErrorLocation::Keys(&["search", "benchmark"])),
                what,
                Some("search with the scenario's own load"),
            ));
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
    fn load_of<'f>(
        &self,
        all: &'f [ScenarioFile],
        scenario: &'f ScenarioFile,
    ) -> Result<Option<&'f Spanned<LoadFile>>> {
        let Some(of) = &scenario.load_of else { return Ok(scenario.load.as_ref()) };
        if scenario.load.is_some() {
            let hint = "a scenario has a load of its own, or that of another: remove one of them";
            return Err(self.error(of.span(), "both 'load' and 'load_of'", Some(hint)));
        }
        let Some(other) = all.iter().find(|other| other.id.get_ref() == of.get_ref()) else {
            let known: Vec<&str> = all.iter().map(|other| other.id.get_ref().as_str()).collect();
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
        if figure.metric.is_background() && scenario.under.is_none() {
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
                None if !is_held
                    && scenario.traffic.packets.as_ref().is_some_and(|packets| packets.benchmark.is_some()) => {}
                Some(of) if (of == SearchedRate::Held) == is_held => {}
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

    fn no_phase(&self, span: Range<usize>, scenario: &Scenario, phase: &str) -> FileError {
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

    fn traffic(&self, of: &LoadSource<'_>, pairs: Vec<(Endpoint, Endpoint)>) -> Result<Traffic> {
        let read = of.read().and_then(|(kind, load)| ends(kind, &load));
        let LoadPair { connect, listen, packets } = read.map_err(|e| self.load_error(of, e))?;
        Ok(Traffic { pairs, connect, listen, packets })
    }

    /// An interface is the port of one packet load at most.
    fn check_shared(&self, scenario: &ScenarioFile, traffic: &Traffic, under: Option<&Traffic>) -> Result<()> {
        let (Some(_), Some(under), Some(file)) = (&traffic.packets, under, &scenario.under) else { return Ok(()) };
        let mut endpoints = traffic.endpoints();
        let takes = under.packets.as_ref().is_some_and(|packets| !packets.beside);
        match endpoints.find(|endpoint| takes && under.endpoints().any(|other| other == *endpoint)) {
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
    fn under<'f>(
        &self,
        file: &'f Spanned<UnderFile>,
        defaults: Option<&'f LoadFile>,
        main: &Traffic,
    ) -> Result<(Traffic, LoadSource<'f>)> {
        let UnderFile { from, to, load } = file.get_ref();
        let pairs = match (from, to) {
            (None, None) => main.pairs.clone(),
            (Some(from), Some(to)) => self.pairs(from, to)?,
            _ => {
                let hint = "write both, or neither to have it run between the scenario's own";
                return Err(self.error(file.span(), "only one of 'from' and 'to'", Some(hint)));
            }
        };
        let of = LoadSource { span: file.span(), own: Some(load), defaults };
        Ok((self.traffic(&of, pairs)?, of))
    }

    fn pairs(&self, from: &Spanned<Endpoints>, to: &Spanned<Endpoints>) -> Result<Vec<(Endpoint, Endpoint)>> {
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

    fn endpoints(&self, names: &Spanned<Endpoints>) -> Result<Vec<Endpoint>> {
        if names.get_ref().is_empty() {
            return Err(self.error(names.span(), "an empty list of endpoints", Some("name at least one")));
        }
        let each = names.get_ref().each(names.span()).into_iter();
        each.map(|(span, name)| name.parse().map_err(|e| self.topology_error(span, e))).collect()
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
        let Some(base) = testbed else {
            return match &scenario.wire {
                None => Ok(None),
                Some(wire) => {
                    let what = format!("testbed '{}' has no wire to change", scenario.testbed.get_ref());
                    Err(self.error(wire.span(), what, Some("give the testbed a wire or remove this")))
                }
            };
        };
        let Some(change) = &scenario.wire else { return Ok(Some(options(&WireFile::default(), base))) };
        self.check_wire(change.get_ref())?;
        Ok(Some(options(change.get_ref(), base)))
    }

    /// The first scenario named in an unreadable claim that the suite does not have. This is told instead of the claim's own
    /// error, which would be about a figure of a scenario that does not exist.
    fn unknown_scenario(&self, known: &BTreeSet<&str>, claim: &Spanned<String>) -> Option<FileError> {
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

    pub(super) fn load_error(&self, of: &LoadSource<'_>, error: LoadError) -> FileError {
        self.error(of.span_of(&error.at), error.what, error.hint.as_deref())
    }

    fn topology_error(&self, span: Range<usize>, error: TopologyError) -> FileError {
        self.error(span, error.what, Some(&error.hint))
    }

    pub(super) fn error(&self, span: Range<usize>, what: impl Into<String>, hint: Option<&str>) -> FileError {
        self.source.error(span, what, hint)
    }

    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        self.source.line(span)
    }
}

/// Whether the testbed can carry the packets, and the engine make them.
fn check_packets(file: &SuiteFile, traffic: &Traffic, topology: &Topology) -> Result<(), LoadError> {
    let Some(packets) = &traffic.packets else { return Ok(()) };
    packets::check_path(packets, topology)?;
    let quick = file.quick.as_ref().map(|quick| &quick.get_ref().warm_up);
    let warm_up = quick.into_iter().chain([&file.defaults.get_ref().warm_up]).map(|warm_up| warm_up.get_ref().0).min();
    let ramp = packets::ramp(&traffic.connect);
    if let Some(warm_up) = warm_up.filter(|warm_up| ramp > *warm_up) {
        let what = format!("a ramp of {} in a warm-up of {}", Span(ramp), Span(warm_up));
        return error(
            &["ramp"],
            what,
            "the rate would still rise inside the window: choose a longer warm-up, quick's too",
        );
    }
    for (from, to) in &traffic.pairs {
        let run = |load: &RequestedLoad, own, peer, is_client| {
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
    fn of<T: Copy>(change: &Option<Spanned<T>>, base: &Option<Spanned<T>>) -> Option<T> {
        value(change).or_else(|| value(base))
    }
    let standard = WireOptions::default();
    let segmentation_offload = change.segmentation_offload.or(base.segmentation_offload);
    WireOptions {
        rate: of(&change.rate, &base.rate).map(|rate| rate.0),
        mtu: of(&change.mtu, &base.mtu).unwrap_or(standard.mtu),
        segmentation_offload: segmentation_offload.unwrap_or(standard.segmentation_offload),
        queues: of(&change.queues, &base.queues).unwrap_or(standard.queues),
    }
}
