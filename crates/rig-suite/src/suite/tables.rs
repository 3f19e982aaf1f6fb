//! The `[[table]]`s of a suite file.

use std::collections::BTreeSet;
use std::ops::Range;

use rig_cli::source::Spanned;
use rig_facts::claim::{Metric, Side};
use rig_load::plan::{Datagrams, Flow, TcpStream};
use rig_stats::units::BitRate;

use super::file::{CaseFile, ColumnFile, LayoutFile, NetperfEndFile, NetperfFile, TableFile};
use super::resolve::{Resolver, Result};
use super::{Form, Layout, LayoutColumn, Overview, OverviewCase, Published, RequestedLoad, Scenario};

impl Resolver<'_> {
    pub(super) fn table(&self, scenarios: &[Scenario], table: &TableFile) -> Result<Layout> {
        self.no_strange_keys(table)?;
        let form = match table.layout {
            LayoutFile::Columns => {
                let columns = self.key(table, "columns", &table.columns)?;
                Form::Columns(columns.iter().map(|column| self.column(scenarios, column)).collect::<Result<_>>()?)
            }
            LayoutFile::Netperf => {
                let cases = self.key(table, "cases", &table.cases)?;
                Form::Netperf(cases.iter().map(|case| self.netperf(scenarios, case)).collect::<Result<_>>()?)
            }
            LayoutFile::Overview => Form::Overview(self.overview(scenarios, table)?),
            LayoutFile::Workers => Form::Workers(self.workers(scenarios, table)?),
            LayoutFile::Platform => {
                Form::Platform(self.key(table, "machines", &table.machines)?.iter().map(Into::into).collect())
            }
        };
        let (title, source, notes) = (table.title.get_ref().clone(), table.source.clone(), table.notes.clone());
        Ok(Layout { title, source, notes, form })
    }

    /// Refuses keys of other layouts.
    fn no_strange_keys(&self, table: &TableFile) -> Result<()> {
        let (layout, own, hint): (_, &[&str], _) = match table.layout {
            LayoutFile::Columns => {
                ("columns", &["columns"], "write layout = \"netperf\" or \"overview\", or remove it")
            }
            LayoutFile::Netperf => ("netperf", &["cases"], "it has cases, each with head, scenario and reference"),
            LayoutFile::Overview => {
                let own = &["cases", "tests", "baseline"];
                ("overview", own, "it has tests, baseline and cases, each with head and scenarios")
            }
            LayoutFile::Workers => {
                ("workers", &["cases", "reference"], "it has cases, each with head and scenario, and published rows")
            }
            LayoutFile::Platform => ("platform", &["machines"], "it has machines"),
        };
        let given = [
            ("cases", table.cases.as_ref().map(Spanned::span)),
            ("columns", table.columns.as_ref().map(Spanned::span)),
            ("tests", table.tests.as_ref().map(Spanned::span)),
            ("baseline", table.baseline.as_ref().map(Spanned::span)),
            ("reference", table.reference.as_ref().and_then(|rows| rows.first()).map(Spanned::span)),
            ("machines", table.machines.as_ref().map(Spanned::span)),
        ];
        match given.into_iter().find_map(|(key, span)| Some((key, span?)).filter(|(key, _)| !own.contains(key))) {
            None => Ok(()),
            Some((key, span)) => {
                Err(self.error(span, format!("a table in the layout '{layout}' has no {key}"), Some(hint)))
            }
        }
    }

    pub(super) fn key<'k, T>(
        &self,
        table: &TableFile,
        name: &str,
        key: &'k Option<Spanned<Vec<T>>>,
    ) -> Result<&'k [T]> {
        match key {
            Some(list) if !list.get_ref().is_empty() => Ok(list.get_ref()),
            _ => {
                let span = key.as_ref().map_or_else(|| table.title.span(), Spanned::span);
                let what = format!("the table '{}' has no {name}", table.title.get_ref());
                Err(self.error(span, what, Some(&format!("add its {name}"))))
            }
        }
    }

    fn column(&self, scenarios: &[Scenario], column: &ColumnFile) -> Result<LayoutColumn> {
        self.scenario_of(scenarios, &column.scenario)?;
        let sides = [(Side::Sender, column.sender), (Side::Receiver, column.receiver)];
        let figures = sides.into_iter().filter_map(|(side, published)| Some((side, published?)));
        Ok(LayoutColumn {
            head: column.head.clone(),
            scenario: column.scenario.get_ref().clone(),
            published: figures
                .flat_map(|(side, published)| {
                    [(side, Metric::Throughput, published.throughput.as_f64()), (side, Metric::Cpu, published.cpu)]
                })
                .collect(),
        })
    }

    fn netperf(&self, scenarios: &[Scenario], case: &CaseFile) -> Result<LayoutColumn> {
        if let Some(list) = &case.scenarios {
            let what = "a case of the netperf layout has one scenario, not a list";
            return Err(self.error(list.span(), what, Some("write scenario = \"...\"")));
        }
        let Some(id) = &case.scenario else {
            let what = format!("the case '{}' has no scenario", case.head.get_ref());
            return Err(self.error(case.head.span(), what, Some("write scenario = \"...\"")));
        };
        let load = self.scenario_of(scenarios, id)?.plan();
        self.known_to_netperf(id, &load)?;
        let reference = case.reference.as_ref().map(|r| self.published(&load, r.span(), *r.get_ref()));
        Ok(LayoutColumn {
            head: case.head.get_ref().clone(),
            scenario: id.get_ref().clone(),
            published: reference.transpose()?.unwrap_or_default(),
        })
    }

    /// Refuses loads that netperf has no classic test for.
    fn known_to_netperf(&self, id: &Spanned<String>, load: &RequestedLoad) -> Result<()> {
        let (RequestedLoad::TcpStream(TcpStream { flow, .. }) | RequestedLoad::UdpStream(Datagrams { flow, .. })) =
            load
        else {
            return Ok(());
        };
        let known = match load {
            RequestedLoad::TcpStream(_) => *flow != Flow::Both,
            _ => *flow == Flow::Forward,
        };
        if known {
            return Ok(());
        }
        let way = if *flow == Flow::Both { "both ways" } else { "backwards" };
        let what = format!("netperf has no test for {} {way}, the load of scenario '{}'", load.name(), id.get_ref());
        Err(self.error(id.span(), what, Some("show this scenario in a table of columns")))
    }

    fn published(&self, load: &RequestedLoad, span: Range<usize>, reference: NetperfFile) -> Result<Published> {
        let is_stream = matches!(load, RequestedLoad::TcpStream(_) | RequestedLoad::UdpStream(_));
        let is_udp_stream = matches!(load, RequestedLoad::UdpStream(_));
        let misplaced = [
            ("throughput", reference.throughput.is_some() && !is_stream),
            ("sent", reference.sent.is_some() && !is_udp_stream),
            ("transactions", reference.transactions.is_some() && is_stream),
        ];
        if let Some((key, _)) = misplaced.into_iter().find(|(_, misplaced)| *misplaced) {
            let hint = match (is_udp_stream, is_stream) {
                (true, _) => "it has sent, throughput, local and remote",
                (_, true) => "it has throughput, local and remote",
                _ => "it has transactions, local and remote",
            };
            return Err(self.error(span, format!("{} has no {key}", load.name()), Some(hint)));
        }
        let demand = if is_stream { Metric::ServiceDemand } else { Metric::TransactionDemand };
        let end = |side, end: Option<NetperfEndFile>| {
            let value = |get: fn(NetperfEndFile) -> Option<f64>| end.and_then(get);
            [(side, Metric::Cpu, value(|e| e.cpu)), (side, demand, value(|e| e.demand))]
        };
        let rates = [
            (Side::Receiver, Metric::Throughput, reference.throughput.map(BitRate::as_f64)),
            (Side::Sender, Metric::Throughput, reference.sent.map(BitRate::as_f64)),
            (Side::Local, Metric::Transactions, reference.transactions),
        ];
        let all = rates.into_iter().chain(end(Side::Local, reference.local)).chain(end(Side::Remote, reference.remote));
        let figures: Vec<_> = all.filter_map(|(side, metric, value)| Some((side, metric, value?))).collect();
        if let Some((.., value)) = figures.iter().find(|(.., value)| !(value.is_finite() && *value >= 0.0)) {
            let hint = "leave out what was not measured, also where netperf printed -1";
            return Err(self.error(span, format!("a published figure of {value}"), Some(hint)));
        }
        Ok(figures.into_iter().collect())
    }

    fn overview(&self, scenarios: &[Scenario], table: &TableFile) -> Result<Overview> {
        let tests = self.key(table, "tests", &table.tests)?;
        let cases = self.key(table, "cases", &table.cases)?;
        let Some(baseline) = &table.baseline else {
            let what = format!("the overview '{}' has no baseline", table.title.get_ref());
            return Err(self.error(table.title.span(), what, Some("write baseline = \"HEAD OF A CASE\"")));
        };
        let heads: Vec<&str> = cases.iter().map(|case| case.head.get_ref().as_str()).collect();
        if !heads.contains(&baseline.get_ref().as_str()) {
            let hint = format!("the overview's cases are {}", heads.join(", "));
            return Err(self.error(baseline.span(), format!("no case '{}'", baseline.get_ref()), Some(&hint)));
        }
        let mut seen = BTreeSet::new();
        let cases = cases
            .iter()
            .map(|case| {
                if !seen.insert(case.head.get_ref()) {
                    let what = format!("there are two cases '{}'", case.head.get_ref());
                    return Err(self.error(case.head.span(), what, Some("give each case a head of its own")));
                }
                self.overview_case(scenarios, tests, case)
            })
            .collect::<Result<_>>()?;
        Ok(Overview { tests: tests.to_vec(), cases, baseline: baseline.get_ref().clone() })
    }

    fn overview_case(&self, scenarios: &[Scenario], tests: &[String], case: &CaseFile) -> Result<OverviewCase> {
        let single = case.scenario.as_ref().map(Spanned::span).or(case.reference.as_ref().map(Spanned::span));
        if let Some(span) = single {
            let hint = "write scenarios = [...]; references are taken from the tables of the netperf layout";
            return Err(self.error(span, "a case of an overview has a list of scenarios and no reference", Some(hint)));
        }
        let list = case.scenarios.as_ref().map(Spanned::get_ref).map_or(&[][..], Vec::as_slice);
        if list.len() != tests.len() {
            let span = case.scenarios.as_ref().map_or_else(|| case.head.span(), Spanned::span);
            let what =
                format!("the case '{}' has {} scenarios for {} tests", case.head.get_ref(), list.len(), tests.len());
            return Err(self.error(span, what, Some("name the scenario of each test, in the order of the tests")));
        }
        for id in list {
            let two_way = matches!(
                self.scenario_of(scenarios, id)?.plan(),
                RequestedLoad::TcpStream(TcpStream { flow: Flow::Both, .. })
                    | RequestedLoad::UdpStream(Datagrams { flow: Flow::Both, .. })
            );
            if two_way {
                let what = format!("scenario '{}' goes both ways and has no single throughput", id.get_ref());
                return Err(self.error(id.span(), what, Some("show this scenario in a table of columns")));
            }
        }
        let scenarios = list.iter().map(|id| id.get_ref().clone()).collect();
        Ok(OverviewCase { head: case.head.get_ref().clone(), scenarios })
    }

    fn scenario_of<'s>(&self, scenarios: &'s [Scenario], id: &Spanned<String>) -> Result<&'s Scenario> {
        let known: BTreeSet<&str> = scenarios.iter().map(|scenario| scenario.id.as_str()).collect();
        self.known_scenario(&known, id)?;
        let found = scenarios.iter().find(|scenario| scenario.id == *id.get_ref());
        found.ok_or_else(|| self.error(id.span(), format!("no scenario '{}'", id.get_ref()), None))
    }
}
