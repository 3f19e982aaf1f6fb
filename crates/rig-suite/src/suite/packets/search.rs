//! Searches for a limit as suite files write them.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use rig_cli::source::Spanned;
use rig_facts::record::SearchedRate;
use rig_packet::search::Search;
use rig_stats::units::{PerSecond, Percent, Span};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::super::load::{ErrorLocation, LoadError, LoadFile, error, key_of_search, value};
use super::{CLIENT_PORTS, PortsFile, SERVER_PORTS, SearchPlan, addresses, flood_of};

/// How long the opening of the connections that a search holds may take: a step must not consist of it.
const OPENING_MAX: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_secs(1);
/// The share of late beginnings from which a rate counts as not held. A generator that cannot keep up falls behind for good, so
/// that soon everything begins late; one that loses the CPU to other programs now and then is late meanwhile, and catches up.
const LATE: f64 = 0.5;

/// `"loss-free"`, or a table with that as its goal.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged, rename = "SearchOrGoal")]
pub(in crate::suite) enum SearchFile {
    Goal(Goal),
    Table(Box<SearchTable>),
}

/// What a search looks for.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[schemars(rename = "SearchGoal")]
pub(in crate::suite) enum Goal {
    /// The highest rate without loss.
    #[default]
    #[serde(rename = "loss-free")]
    LossFree,
}

/// How a limit is searched.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Search")]
pub(in crate::suite) struct SearchTable {
    #[expect(dead_code, reason = "there is one goal, and a file names it")]
    goal: Goal,
    /// The first value that is tried; 1000 by default, of requests and of held connections the load's own, in place of this key.
    start: Option<Spanned<Searchable>>,
    /// Factor by which the value is raised until there is loss; 2 by default.
    #[schemars(example = 1.5)]
    growth: Option<Spanned<f64>>,
    /// How close a value without loss and one with loss have to be; 2% by default.
    precision: Option<Spanned<Percent>>,
    /// How long each value is tried; 1s by default.
    step: Option<Spanned<Span>>,
    /// The highest value that is tried; without it none, of held connections as many as there are addresses and ports for, and as are
    /// opened within 60 s.
    most: Option<Spanned<Searchable>>,
    /// Share of connections and requests that may begin late; 50% by default.
    late: Option<Spanned<Percent>>,
    /// The window's rate as a share of the limit; 100% by default.
    measure_at: Option<Spanned<Percent>>,
    /// What is raised; without it `requests_per_second` where the load has it, else `connections_per_second`.
    raise: Option<Spanned<Raise>>,
}

// By hand, so that a mistake in a table is told with its own line.
impl<'de> Deserialize<'de> for SearchFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GoalOrTableVisitor;

        impl<'de> Visitor<'de> for GoalOrTableVisitor {
            type Value = SearchFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"loss-free\", or a table such as { goal = \"loss-free\", start = 1000, growth = 2, precision = \"2%\", \
                     step = \"1s\", most = 1e6, late = \"1%\", measure_at = \"100%\", raise = \"hold\" }",
                )
            }

            fn visit_str<E: de::Error>(self, goal: &str) -> Result<SearchFile, E> {
                match goal {
                    "loss-free" => Ok(SearchFile::Goal(Goal::LossFree)),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SearchFile, A::Error> {
                let table = SearchTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(SearchFile::Table(Box::new(table)))
            }
        }

        deserializer.deserialize_any(GoalOrTableVisitor)
    }
}

/// Where a search begins or ends: its own check says what is wrong with a number.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::suite) enum Searchable {
    Number(f64),
    Text(PerSecond),
}

impl Searchable {
    fn get(self) -> f64 {
        match self {
            Self::Number(number) => number,
            Self::Text(rate) => rate.get(),
        }
    }
}

/// The key of the load that a search raises; the rate of requests where there is one, else that of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::suite) enum Raise {
    ConnectionsPerSecond,
    RequestsPerSecond,
    Hold,
}

/// The search that a load asks for.
pub(super) fn plan(file: &SearchFile, load: &LoadFile) -> Result<SearchPlan, LoadError> {
    let goal_only = SearchTable::default();
    let table = match file {
        SearchFile::Goal(_) => &goal_only,
        SearchFile::Table(table) => table,
    };
    if flood_of(load).is_some() {
        let what = "a search with a flood";
        return error(&["search"], what, "nobody answers a flood, so that its loss is not seen by who sends it");
    }
    let of = raised(&table.raise, load)?;
    let (key, given) = match of {
        SearchedRate::Connections => ("", None),
        SearchedRate::Requests => ("requests_per_second", value(&load.requests_per_second).map(PerSecond::get)),
        SearchedRate::Held => ("hold", value(&load.hold).map(f64::from)),
    };
    if let (Some(_), Some(start)) = (given, &table.start) {
        let hint = format!("'{key}' is where the search begins: remove 'start'");
        return Err(LoadError {
            what: "two first values".into(),
            hint: Some(hint),
            at: ErrorLocation::Span(start.span()),
        });
    }
    let most = value(&table.most).map(Searchable::get);
    let most = match of {
        SearchedRate::Held => Some(most_held(load)?.min(most.unwrap_or(f64::MAX))),
        SearchedRate::Connections | SearchedRate::Requests => most,
    };
    let share = |percent: &Option<Spanned<Percent>>, default: f64| value(percent).map_or(default, Percent::fraction);
    let plan = SearchPlan {
        of,
        options: Search {
            start: given.or(value(&table.start).map(Searchable::get)).unwrap_or(1000.0),
            growth: value(&table.growth).unwrap_or(2.0),
            precision: share(&table.precision, 0.02),
            most,
            late: share(&table.late, LATE),
        },
        step: value(&table.step).map_or(STEP, |step| step.0),
        measure_at: share(&table.measure_at, 1.0),
    };
    check_search(&plan).map_err(|wrong| {
        let spans = [
            ("start", table.start.as_ref().map(Spanned::span)),
            ("growth", table.growth.as_ref().map(Spanned::span)),
            ("precision", table.precision.as_ref().map(Spanned::span)),
            ("step", table.step.as_ref().map(Spanned::span)),
            ("most", table.most.as_ref().map(Spanned::span)),
            ("late", table.late.as_ref().map(Spanned::span)),
            ("measure_at", table.measure_at.as_ref().map(Spanned::span)),
        ];
        let span = spans.into_iter().find(|(key, _)| *key == wrong.key).and_then(|(_, span)| span);
        // Where it begins may be what the load has already.
        let at = span.map_or(ErrorLocation::Keys(&["requests_per_second", "hold", "search"]), ErrorLocation::Span);
        LoadError { what: wrong.what, hint: wrong.hint, at }
    })?;
    Ok(plan)
}

/// Why a search cannot be made.
pub(in crate::suite) struct SearchFault {
    /// Of the search's table.
    key: &'static str,
    pub what: String,
    pub hint: Option<String>,
}

/// Refuses a search that cannot be made.
pub(in crate::suite) fn check_search(plan: &SearchPlan) -> Result<(), SearchFault> {
    let fault = |key, what: String, hint: &str| Err(SearchFault { key, what, hint: Some(hint.to_owned()) });
    plan.options.check().map_err(|error| SearchFault {
        key: key_of_search(&error),
        what: format!("the search has {error}"),
        hint: None,
    })?;
    if plan.step < Duration::from_millis(100) || plan.step > Duration::from_secs(600) {
        return fault("step", format!("steps of {}", Span(plan.step)), "choose 100ms to 10m");
    }
    if !(plan.measure_at > 0.0 && plan.measure_at <= 1.0) {
        let what = format!("a window at {} % of the limit", plan.measure_at * 100.0);
        return fault("measure_at", what, "choose more than 0% to 100%");
    }
    Ok(())
}

/// What a search of this load raises.
fn raised(raise: &Option<Spanned<Raise>>, load: &LoadFile) -> Result<SearchedRate, LoadError> {
    let wrong = |what: &str, hint: &str| {
        let at = raise.as_ref().map_or(ErrorLocation::Keys(&["search"]), |raise| ErrorLocation::Span(raise.span()));
        Err(LoadError { what: what.to_owned(), hint: Some(hint.to_owned()), at })
    };
    match (value(raise), load.requests_per_second.is_some()) {
        (None, true) | (Some(Raise::RequestsPerSecond), true) => Ok(SearchedRate::Requests),
        (None, false) | (Some(Raise::ConnectionsPerSecond), false) => Ok(SearchedRate::Connections),
        (Some(Raise::RequestsPerSecond), false) => wrong(
            "a search that raises 'requests_per_second', which the load has not",
            "give it: the search begins there",
        ),
        (Some(Raise::ConnectionsPerSecond), true) => wrong(
            "a search that raises 'connections_per_second' beside 'requests_per_second'",
            "requests are what it would raise: remove one of them",
        ),
        (Some(Raise::Hold), true) => wrong(
            "a search that raises 'hold' beside 'requests_per_second'",
            "more connections would share the same requests: give each an interval of its own, e.g. interval = \"2ms\"",
        ),
        (Some(Raise::Hold), false) if load.hold.is_none() => {
            wrong("a search that raises 'hold', which the load has not", "give it: the search begins there")
        }
        (Some(Raise::Hold), false) if load.connections_per_second.is_none() => wrong(
            "a search that raises 'hold' without a rate at which connections are opened",
            "write for instance connections_per_second = 3000",
        ),
        (Some(Raise::Hold), false) => Ok(SearchedRate::Held),
    }
}

/// The most connections that are worth trying to hold: as many as there are pairs of addresses and ports for, and as are
/// opened within [`OPENING_MAX`].
fn most_held(load: &LoadFile) -> Result<f64, LoadError> {
    let ports = |given: Option<PortsFile>, standard| {
        let ports = given.map_or(standard, RangeInclusive::from);
        f64::from(ports.end().saturating_sub(*ports.start())) + 1.0
    };
    let pairs = f64::from(addresses("client_addresses", &load.client_addresses)?)
        * ports(value(&load.client_ports), CLIENT_PORTS)
        * f64::from(addresses("server_addresses", &load.server_addresses)?)
        * ports(value(&load.server_ports), SERVER_PORTS);
    let opened = value(&load.connections_per_second).map_or(f64::MAX, |rate| rate.get() * OPENING_MAX.as_secs_f64());
    Ok(pairs.min(opened).floor())
}
