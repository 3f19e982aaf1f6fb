//! Devices under test: what a scenario says of one, the rows that a list of workers makes, and tables of such rows.

use std::collections::BTreeSet;
use std::fmt;

use rig_cli::forms::OneOrMany;
use rig_cli::source::Spanned;
use rig_facts::claim::{Metric, Side};
use rig_facts::record::SearchedRate;
use rig_stats::units::counted;
use rig_testbed::Dut;
use rig_testbed::topology::{Path, Pool};

use super::file::{PlatformFile, ScenarioFile, TableFile, WorkersRowFile};
use super::resolve::{Resolver, Result};
use super::{Published, Scenario};

/// More workers than any machine has CPUs are a mistake.
const WORKERS_MAX: u32 = 1024;

/// Scenarios by the workers of their device under test, with what was published.
#[derive(Debug, Clone, PartialEq)]
pub struct Workers {
    /// What was raised until something was lost: connections a second, or connections held.
    pub raised: SearchedRate,
    pub cases: Vec<WorkersCase>,
    /// By workers, in the file's order.
    pub reference: Vec<(u32, Published)>,
}

/// One device under test, or none.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkersCase {
    pub head: String,
    /// The workers of each row with its scenario; without workers where nothing stands between the ends.
    pub rows: Vec<(Option<u32>, String)>,
}

/// A column of such a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkersColumn {
    /// As studies write it; bits where they write bytes, so that rates have one unit.
    pub head: &'static str,
    /// What the file calls it in a published row.
    key: &'static str,
    pub side: Side,
    pub metric: Metric,
    /// What one of a published row is of [`Metric::unit`], e.g. 8 where studies write bytes.
    pub per: f64,
    /// Where it is counted.
    pub end: WorkersEnd,
    /// What it counts: `packets received`.
    pub counts: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkersEnd {
    Client,
    Dut,
}

impl fmt::Display for WorkersEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "the client",
            Self::Dut => "the device under test",
        })
    }
}

impl Workers {
    /// The columns after that of the workers, in the order of studies.
    pub fn columns(&self) -> Vec<WorkersColumn> {
        let column = |end, head, key, metric, per, counts| WorkersColumn {
            head,
            key,
            side: Side::Local,
            metric,
            per,
            end,
            counts,
        };
        let client = |head, key, metric, counts| column(WorkersEnd::Client, head, key, metric, 1.0, counts);
        let dut = |head, key, metric, per, counts| column(WorkersEnd::Dut, head, key, metric, per, counts);
        let connections =
            dut("connections", "connections", Metric::DutConnections, 1.0, "those it knew when the window ended");
        let (first, last) = match self.raised {
            SearchedRate::Connections => {
                (client("cps", "cps", Metric::Limit, "the most new connections without loss"), Some(connections))
            }
            SearchedRate::Requests => {
                (client("requests", "requests", Metric::Limit, "the most requests without loss"), Some(connections))
            }
            SearchedRate::Held => {
                (client("connections", "connections", Metric::LimitHeld, "the most held open without loss"), None)
            }
        };
        let dut = [
            dut("ipackets", "ipackets", Metric::DutPacketsIn, 1.0, "packets received"),
            dut("opackets", "opackets", Metric::DutPacketsOut, 1.0, "packets sent"),
            dut("ibits", "ibytes", Metric::DutBitsIn, 8.0, "bits received"),
            dut("obits", "obytes", Metric::DutBitsOut, 8.0, "bits sent"),
        ];
        let client = [
            client("client:pktRx", "pkt_rx", Metric::PacketsIn, "packets received"),
            client("client:pktTx", "pkt_tx", Metric::PacketsOut, "packets sent"),
            client("client:bitsRx", "bits_rx", Metric::BitsIn, "bits received"),
            client("client:bitsTx", "bits_tx", Metric::BitsOut, "bits sent"),
            client("client:dropTx", "drop_tx", Metric::DropsOut, "packets not sent for lack of room"),
        ];
        [first].into_iter().chain(dut).chain(last).chain(client).collect()
    }
}

/// A machine that published figures were measured on, line by line: what, and which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    pub head: String,
    pub cpu: String,
    pub memory: String,
    pub network: String,
    pub system: String,
    pub software: String,
}

/// The DUTs of a scenario: none, one, or one for each number of workers of a list.
pub(super) enum Duts {
    None,
    One(Dut),
    Rows(Vec<Dut>),
}

impl Resolver<'_> {
    /// What the scenario says of the device under test, which has to be one of a path that has such.
    pub(super) fn duts(&self, scenario: &ScenarioFile, path: Path) -> Result<Duts> {
        if !path.has_dut() {
            let given = [
                ("workers", scenario.workers.as_ref().map(Spanned::span)),
                ("service_addresses", scenario.service_addresses.as_ref().map(Spanned::span)),
                ("local_addresses", scenario.local_addresses.as_ref().map(Spanned::span)),
            ];
            return match given.into_iter().find_map(|(key, span)| Some((key, span?))) {
                None => Ok(Duts::None),
                Some((key, span)) => {
                    let paths: Vec<&str> = Path::all().filter(|p| p.has_dut()).map(Path::name).collect();
                    let what = format!("'{key}' on path {path}, which has no device under test");
                    let hint = format!("remove it, or use path {}", paths.join(", "));
                    Err(self.error(span, what, Some(&hint)))
                }
            };
        }
        let addresses = |key: &str, given: &Option<Spanned<u32>>| match given {
            None => Ok(1),
            Some(given) if (1..=Pool::SIZE).contains(given.get_ref()) => Ok(*given.get_ref()),
            Some(given) => {
                let what = format!("{key} = {}", given.get_ref());
                Err(self.error(given.span(), what, Some(&format!("a node has 1 to {} of them", Pool::SIZE))))
            }
        };
        let dut = Dut {
            workers: 1,
            service_addresses: addresses("service_addresses", &scenario.service_addresses)?,
            local_addresses: addresses("local_addresses", &scenario.local_addresses)?,
            profile: scenario.profile.as_ref().is_some_and(|profile| *profile.get_ref()),
        };
        let Some(workers) = &scenario.workers else { return Ok(Duts::One(dut)) };
        let list: Vec<u32> = workers.get_ref().iter().copied().collect();
        if list.is_empty() {
            let hint = "write for instance workers = [1, 2, 4]";
            return Err(self.error(workers.span(), "an empty list of workers", Some(hint)));
        }
        if let Some(wrong) = list.iter().find(|n| !(1..=WORKERS_MAX).contains(*n)) {
            let hint = format!("choose 1 to {WORKERS_MAX}: each is a CPU");
            return Err(self.error(workers.span(), format!("{wrong} workers"), Some(&hint)));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = list.iter().find(|n| !seen.insert(**n)) {
            let what = format!("the list has {twice} workers twice");
            return Err(self.error(workers.span(), what, Some("each number is a row: give it once")));
        }
        let with = |workers: &u32| Dut { workers: *workers, ..dut };
        Ok(match workers.get_ref() {
            OneOrMany::One(workers) => Duts::One(with(workers)),
            OneOrMany::Many(_) => Duts::Rows(list.iter().map(with).collect()),
        })
    }

    /// The scenario once for each dut: rows have the scenario's id and name with their workers.
    pub(super) fn rows(&self, scenario: Scenario, duts: &Duts) -> Vec<Scenario> {
        let row = |dut: &Dut| {
            let workers = dut.workers;
            Scenario {
                id: format!("{}-{workers}", scenario.id),
                name: format!("{}, {}", scenario.name, counted(workers, "worker", "workers")),
                dut: Some(*dut),
                row_of: Some(scenario.id.clone()),
                ..scenario.clone()
            }
        };
        match duts {
            Duts::None => vec![scenario],
            Duts::One(dut) => vec![Scenario { dut: Some(*dut), ..scenario }],
            Duts::Rows(duts) => duts.iter().map(row).collect(),
        }
    }

    pub(super) fn workers(&self, scenarios: &[Scenario], table: &TableFile) -> Result<Workers> {
        let listed = self.key(table, "cases", &table.cases)?;
        let mut raised = None;
        let mut cases = Vec::with_capacity(listed.len());
        for case in listed {
            let unwanted = [case.scenarios.as_ref().map(Spanned::span), case.reference.as_ref().map(Spanned::span)];
            if let Some(span) = unwanted.into_iter().flatten().next() {
                let hint = "write scenario = \"ID\", of which all rows are shown; what was published is the table's";
                return Err(self.error(span, "a case of this layout has head and scenario", Some(hint)));
            }
            let Some(id) = &case.scenario else {
                let what = format!("the case '{}' has no scenario", case.head.get_ref());
                return Err(self.error(case.head.span(), what, Some("write scenario = \"ID\"")));
            };
            let rows = self.rows_of(scenarios, id)?;
            for row in &rows {
                let search = row.traffic.packets.as_ref().and_then(|packets| packets.search.as_ref());
                let Some(search) = search else {
                    let what = format!("no limit is searched in scenario '{}'", row.id);
                    return Err(self.error(id.span(), what, Some("give its load search = \"loss-free\"")));
                };
                if *raised.get_or_insert(search.of) != search.of {
                    let what = format!("scenario '{}' raises other things than those before it", row.id);
                    return Err(self.error(id.span(), what, Some("give it a table of its own")));
                }
            }
            cases.push(WorkersCase {
                head: case.head.get_ref().clone(),
                rows: rows.iter().map(|row| (row.dut.map(|dut| dut.workers), row.id.clone())).collect(),
            });
        }
        let mut workers = Workers { raised: raised.unwrap_or(SearchedRate::Connections), cases, reference: Vec::new() };
        let columns = workers.columns();
        for row in table.reference.iter().flatten() {
            let published = self.published_row(&columns, row)?;
            workers.reference.push((row.get_ref().workers, published));
        }
        Ok(workers)
    }

    /// The scenario, or its rows.
    fn rows_of<'s>(&self, scenarios: &'s [Scenario], id: &Spanned<String>) -> Result<Vec<&'s Scenario>> {
        let rows: Vec<&Scenario> = scenarios
            .iter()
            .filter(|scenario| scenario.row_of.as_ref().unwrap_or(&scenario.id) == id.get_ref())
            .collect();
        if !rows.is_empty() {
            return Ok(rows);
        }
        let known: BTreeSet<&str> =
            scenarios.iter().map(|scenario| scenario.row_of.as_ref().unwrap_or(&scenario.id).as_str()).collect();
        self.known_scenario(&known, id).map(|()| rows)
    }

    fn published_row(&self, columns: &[WorkersColumn], row: &Spanned<WorkersRowFile>) -> Result<Published> {
        let mut figures = Vec::new();
        for (key, value) in &row.get_ref().figures {
            let Some(column) = columns.iter().find(|column| column.key == key.as_str()) else {
                let known: Vec<&str> = columns.iter().map(|column| column.key).collect();
                let hint = format!("a published row has workers, and of {} those that are known", known.join(", "));
                return Err(self.error(row.span(), format!("no column '{key}' in this table"), Some(&hint)));
            };
            if !(value.is_finite() && *value >= 0.0) {
                return Err(self.error(row.span(), format!("a published {key} of {value}"), Some("leave it out")));
            }
            figures.push((column.side, column.metric, value * column.per));
        }
        Ok(figures.into_iter().collect())
    }
}

impl From<&PlatformFile> for Platform {
    fn from(file: &PlatformFile) -> Self {
        let PlatformFile { head, cpu, memory, network, system, software } = file.clone();
        Self { head, cpu, memory, network, system, software }
    }
}

#[cfg(test)]
mod tests;
