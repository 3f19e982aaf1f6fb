//! Loads of kind `packets`: what suite files say, and what the two ends run.

use std::ops::RangeInclusive;
use std::time::Duration;

use rig_facts::record::Searched;
use rig_packet::http as message;
use rig_packet::http::Method;
use rig_packet::plan::Driver;
use rig_packet::search::Search;
use rig_packet::{Client, Close, Expect, Flood, Load as Opening, Payload, Repeat, TcpTimes, Walk};
use rig_stats::units::{PerSecond, Percent, Span};
use rig_testbed::topology::Pool;
use schemars::JsonSchema;
use serde::Deserialize;

use super::load::{LoadError, PacketLoadKeys, error};
use super::{AskedLoad, Exchange, Message, PacketLoad, QuickSearch, TcpExchange};

mod ports;
mod threads;

pub(super) use self::ports::check_path;
pub use self::ports::{PortOf, at_port};
pub use self::threads::PacketThreads;
pub(super) use self::threads::{PacketThreadsFile, with_lanes};

/// Of loads that do not say it.
const MESSAGE: u64 = 64;
/// How long the opening of the connections that a search holds may take: a step must not consist of it.
const OPENING_MAX: Duration = Duration::from_secs(60);
const RETRANSMIT: Duration = Duration::from_millis(200);
const RETRIES: u8 = 3;
const STEP: Duration = Duration::from_secs(1);
/// The share of late beginnings from which a rate counts as not held. A generator that cannot keep up falls behind for good, so
/// that soon everything begins late; one that loses the CPU to other programs now and then is late meanwhile, and catches up.
const LATE: f64 = 0.5;
const SEND_WINDOW: u8 = 4;
/// Where clients' ports begin by default: below are those that a network may treat in its own way.
const CLIENT_PORTS: RangeInclusive<u16> = 1024..=65_535;
const SERVER_PORTS: RangeInclusive<u16> = 80..=80;
/// The largest body of an HTTP response, which travels to its worker as it is: the plan has room for it.
const BODY: u32 = 64 << 10;

/// What packets speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Protocol {
    Tcp,
    Udp,
    /// HTTP/1.1 over TCP.
    Http,
}

/// A port, or the first and the last of several.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a port such as 80, or the first and the last of several: [80, 89]")]
#[schemars(rename = "Ports")]
pub(super) enum PortsFile {
    One(u16),
    Range([u16; 2]),
}

impl From<PortsFile> for RangeInclusive<u16> {
    fn from(ports: PortsFile) -> Self {
        match ports {
            PortsFile::One(port) => port..=port,
            PortsFile::Range([first, last]) => first..=last,
        }
    }
}

/// `"loss-free"`, or a table with that as its goal.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected \"loss-free\", or a table such as { goal = \"loss-free\", start = 1000, growth = 2, \
                 precision = \"2%\", step = \"1s\", most = 1e6, late = \"1%\", \
                 measure_at = \"100%\", raise = \"hold\" }"
)]
#[schemars(rename = "SearchOrGoal")]
pub(super) enum SearchFile {
    Goal(Goal),
    Table(SearchTable),
}

/// What a search looks for.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[schemars(rename = "SearchGoal")]
pub(super) enum Goal {
    /// The highest rate without loss.
    #[serde(rename = "loss-free")]
    LossFree,
}

/// How a limit is searched.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Search")]
pub(super) struct SearchTable {
    #[expect(dead_code, reason = "there is one goal, and a file names it")]
    pub goal: Goal,
    /// The first value that is tried; 1000 by default, of requests and of held connections the load's own, in place of this key.
    pub start: Option<Searchable>,
    /// Factor by which the value is raised until there is loss; 2 by default.
    #[schemars(example = 1.5)]
    pub growth: Option<f64>,
    /// How close a value without loss and one with loss have to be; 2% by default.
    pub precision: Option<Percent>,
    /// How long each value is tried; 1s by default.
    pub step: Option<Span>,
    /// The highest value that is tried; without it none, of held connections as many as there are addresses and ports for, and as are
    /// opened within 60 s.
    pub most: Option<Searchable>,
    /// Share of connections and requests that may begin late; 50% by default.
    pub late: Option<Percent>,
    /// The window's rate as a share of the limit; 100% by default.
    pub measure_at: Option<Percent>,
    /// What is raised; without it `requests_per_second` where the load has it, else `connections_per_second`.
    pub raise: Option<Raise>,
}

/// Where a search begins or ends: its own check says what is wrong with a number.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Searchable {
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
pub(super) enum Raise {
    ConnectionsPerSecond,
    RequestsPerSecond,
    Hold,
}

/// What a packet load needs of its testbed, and how its rate is found.
#[derive(Debug, Clone, PartialEq)]
pub struct PacketTraffic {
    pub client_addresses: u32,
    pub server_addresses: u32,
    pub driver: Driver,
    pub workers: PacketThreads,
    pub search: Option<SearchPlan>,
}

/// A search before the window, which then runs at the rate found or a share of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchPlan {
    pub of: Searched,
    pub options: Search,
    pub step: Duration,
    /// 0 to 1.
    pub measure_at: f64,
}

impl SearchPlan {
    /// This search as a quick run makes it.
    pub(super) fn hastened(self, quick: QuickSearch) -> Self {
        let precision = quick.precision.unwrap_or(self.options.precision);
        let options = Search { precision, ..self.options };
        Self { step: quick.step.unwrap_or(self.step), options, ..self }
    }
}

/// What the load is at both ends, and what it needs of a testbed.
pub(super) fn asked(load: &PacketLoadKeys) -> Result<(PacketLoad, PacketTraffic), LoadError> {
    let Some(protocol) = load.packets.protocol else {
        return error("the load has no protocol", "write protocol = \"tcp\", \"udp\" or \"http\"");
    };
    let search = load.packets.search.map(|search| searched(search, load)).transpose()?;
    let workers = load.packets.workers.map_or(Ok(PacketThreads::ONE), PacketThreads::try_from)?;
    let client = client(load, search.as_ref())?;
    workers.check_held(&client)?;
    let exchange = match protocol {
        Protocol::Tcp => tcp(load, plain(load)?)?,
        Protocol::Http => tcp(load, http(load, client.repeat.is_none())?)?,
        Protocol::Udp => udp(load)?,
    };
    let traffic = PacketTraffic {
        client_addresses: addresses("client_addresses", load.packets.client_addresses)?,
        server_addresses: addresses("server_addresses", load.packets.server_addresses)?,
        driver: load.packets.driver.unwrap_or_default(),
        workers,
        search,
    };
    Ok((PacketLoad { client, exchange }, traffic))
}

fn addresses(key: &str, asked: Option<u32>) -> Result<u32, LoadError> {
    let asked = asked.unwrap_or(1);
    if (1..=Pool::SIZE).contains(&asked) {
        return Ok(asked);
    }
    error(format!("{key} = {asked}"), format!("each endpoint has 1 to {} addresses", Pool::SIZE))
}

fn client(load: &PacketLoadKeys, search: Option<&SearchPlan>) -> Result<Client, LoadError> {
    let given = load.packets.connections_per_second.map(PerSecond::get);
    let searches = |what| search.filter(|search| search.of == what).map(|search| search.options.start);
    let rate = match (given, searches(Searched::Connections)) {
        (Some(rate), None) | (None, Some(rate)) => rate,
        (None, None) => {
            return error(
                "the load has no rate of connections",
                "write for instance connections_per_second = 10000, or search = \"loss-free\"",
            );
        }
        (Some(_), Some(_)) => {
            return error(
                "a rate of connections that is searched for, too",
                "remove 'connections_per_second', or search for requests: give 'requests_per_second' as the start",
            );
        }
    };
    if load.packets.flood == Some(true) {
        for (key, given) in
            [("requests", load.packets.requests.is_some()), ("interval", load.packets.interval.is_some())]
        {
            if given {
                return error(format!("a flood with '{key}'"), "a flood sends first packets only: remove one of them");
            }
        }
    }
    Ok(Client {
        ports: load.packets.client_ports.map_or(CLIENT_PORTS, Into::into),
        server_ports: load.packets.server_ports.map_or(SERVER_PORTS, Into::into),
        load: Opening {
            ramp: load.packets.ramp.map_or(Duration::ZERO, |ramp| ramp.0),
            hold: load.packets.hold,
            launch: load.packets.launch,
            ..Opening::new(rate)
        },
        repeat: repeat(load)?,
        walk: if load.packets.hop == Some(true) { Walk::Hop } else { Walk::Ports },
        flood: (load.packets.flood == Some(true)).then(Flood::default),
    })
}

fn repeat(load: &PacketLoadKeys) -> Result<Option<Repeat>, LoadError> {
    let rate = load.packets.requests_per_second.map(PerSecond::get);
    if rate.is_some() && load.packets.interval.is_some() {
        return error(
            "both 'interval' and 'requests_per_second'",
            "an interval is each connection's own, a rate that of all together: remove one",
        );
    }
    if rate.is_some() && load.packets.hold.is_none() {
        return error(
            "'requests_per_second' without 'hold'",
            "give the number of open connections, for instance hold = 1000",
        );
    }
    let several = load.packets.requests.is_some_and(|requests| requests > 1);
    if !several
        && rate.is_none()
        && load.packets.interval.is_none()
        && load.packets.pipeline.is_none()
        && load.packets.hold.is_none()
    {
        return Ok(None);
    }
    if load.packets.hold.is_some() && rate.is_none() && load.packets.interval.is_none() {
        return error(
            "'hold' without 'interval'",
            "give how often a held connection asks, for instance interval = \"1s\", or requests_per_second",
        );
    }
    Ok(Some(Repeat {
        interval: load.packets.interval.map_or(Duration::ZERO, |interval| interval.0),
        requests: load.packets.requests,
        rate,
        pipeline: load.packets.pipeline.unwrap_or(1),
    }))
}

fn sizes(load: &PacketLoadKeys) -> Result<(u32, u32), LoadError> {
    let size = |key: &str, given: Option<rig_stats::units::Bytes>| {
        let bytes = given.map_or(MESSAGE, |bytes| bytes.0);
        u32::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes > 0)
            .map_or_else(|| error(format!("a {key} of {bytes} bytes"), "give 1 byte to 1 GiB"), Ok)
    };
    Ok((size("request", load.exchange.request)?, size("response", load.exchange.response)?))
}

/// Request and response.
type Messages = [Message; 2];

fn plain(load: &PacketLoadKeys) -> Result<Messages, LoadError> {
    let (request, response) = sizes(load)?;
    Ok([request, response].map(|bytes| Message { payload: Payload::Filler(bytes), complete: Expect::Bytes(bytes) }))
}

/// `once`: a connection has one request.
fn http(load: &PacketLoadKeys, once: bool) -> Result<Messages, LoadError> {
    let (request, response) = sizes(load)?;
    if load.exchange.request.is_some() && (request as usize) < message::REQUEST {
        return error(format!("an HTTP request of {request} bytes"), format!("it takes at least {}", message::REQUEST));
    }
    if response > BODY {
        return error(format!("a body of {response} bytes"), format!("an HTTP response has at most {BODY}"));
    }
    let request = message::request(Method::Get, "netrig", "/", request as usize);
    let response = message::response(&vec![b'a'; response as usize], once);
    Ok([request, response].map(|bytes| Message { payload: bytes.into(), complete: Expect::Http }))
}

fn tcp(load: &PacketLoadKeys, [request, response]: Messages) -> Result<Exchange, LoadError> {
    refuse("tcp", &[("timeout", load.timeout.timeout.is_some()), ("pipeline", load.packets.pipeline.is_some())])?;
    Ok(Exchange::Tcp(TcpExchange {
        times: TcpTimes {
            retransmit: load.packets.retransmit.map_or(RETRANSMIT, |time| time.0),
            retries: load.packets.retries.unwrap_or(RETRIES),
            time_wait: Duration::ZERO,
        },
        request,
        response,
        close: load.packets.close.unwrap_or(Close::Fin),
        window: load.packets.send_window.unwrap_or(SEND_WINDOW),
    }))
}

fn udp(load: &PacketLoadKeys) -> Result<Exchange, LoadError> {
    let only_tcp = [
        ("close", load.packets.close.is_some()),
        ("retransmit", load.packets.retransmit.is_some()),
        ("retries", load.packets.retries.is_some()),
        ("send_window", load.packets.send_window.is_some()),
    ];
    refuse("udp", &only_tcp)?;
    let (request, response) = sizes(load)?;
    let timeout = load.timeout.timeout.map_or(RETRANSMIT, |time| time.0);
    Ok(Exchange::Udp { request: Payload::Filler(request), response: Payload::Filler(response), timeout })
}

fn refuse(protocol: &str, keys: &[(&str, bool)]) -> Result<(), LoadError> {
    match keys.iter().find(|(_, given)| *given) {
        Some((key, _)) => error(format!("packets over {protocol} have no '{key}'"), "remove it"),
        None => Ok(()),
    }
}

fn searched(file: SearchFile, load: &PacketLoadKeys) -> Result<SearchPlan, LoadError> {
    let table = match file {
        SearchFile::Goal(goal) => SearchTable {
            goal,
            start: None,
            growth: None,
            precision: None,
            step: None,
            most: None,
            late: None,
            measure_at: None,
            raise: None,
        },
        SearchFile::Table(table) => table,
    };
    if load.packets.flood == Some(true) {
        return error("a search with a flood", "nobody answers a flood, so that its loss is not seen by who sends it");
    }
    let of = raised(table.raise, load)?;
    let (key, given) = match of {
        Searched::Connections => ("", None),
        Searched::Requests => ("requests_per_second", load.packets.requests_per_second.map(PerSecond::get)),
        Searched::Held => ("hold", load.packets.hold.map(f64::from)),
    };
    if given.is_some() && table.start.is_some() {
        return error("two first values", format!("'{key}' is where the search begins: remove 'start'"));
    }
    let most = match of {
        Searched::Held => Some(most_held(load)?.min(table.most.map_or(f64::MAX, Searchable::get))),
        Searched::Connections | Searched::Requests => table.most.map(Searchable::get),
    };
    let share = |percent: Option<Percent>, default: f64| percent.map_or(default, Percent::fraction);
    let plan = SearchPlan {
        of,
        options: Search {
            start: given.or(table.start.map(Searchable::get)).unwrap_or(1000.0),
            growth: table.growth.unwrap_or(2.0),
            precision: share(table.precision, 0.02),
            most,
            late: share(table.late, LATE),
        },
        step: table.step.map_or(STEP, |step| step.0),
        measure_at: share(table.measure_at, 1.0),
    };
    check_search(&plan)?;
    Ok(plan)
}

/// Refuses a search that cannot be made.
pub(super) fn check_search(plan: &SearchPlan) -> Result<(), LoadError> {
    plan.options.check().map_err(|e| LoadError::plain(format!("the search has {e}")))?;
    if plan.step < Duration::from_millis(100) || plan.step > Duration::from_secs(600) {
        return error(format!("steps of {}", Span(plan.step)), "choose 100ms to 10m");
    }
    if !(plan.measure_at > 0.0 && plan.measure_at <= 1.0) {
        return error(format!("a window at {} % of the limit", plan.measure_at * 100.0), "choose more than 0% to 100%");
    }
    Ok(())
}

/// What a search of this load raises.
fn raised(raise: Option<Raise>, load: &PacketLoadKeys) -> Result<Searched, LoadError> {
    match (raise, load.packets.requests_per_second.is_some()) {
        (None, true) | (Some(Raise::RequestsPerSecond), true) => Ok(Searched::Requests),
        (None, false) | (Some(Raise::ConnectionsPerSecond), false) => Ok(Searched::Connections),
        (Some(Raise::RequestsPerSecond), false) => error(
            "a search that raises 'requests_per_second', which the load has not",
            "give it: the search begins there",
        ),
        (Some(Raise::ConnectionsPerSecond), true) => error(
            "a search that raises 'connections_per_second' beside 'requests_per_second'",
            "requests are what it would raise: remove one of them",
        ),
        (Some(Raise::Hold), true) => error(
            "a search that raises 'hold' beside 'requests_per_second'",
            "more connections would share the same requests: give each an interval of its own, e.g. interval = \"2ms\"",
        ),
        (Some(Raise::Hold), false) if load.packets.hold.is_none() => {
            error("a search that raises 'hold', which the load has not", "give it: the search begins there")
        }
        (Some(Raise::Hold), false) if load.packets.connections_per_second.is_none() => error(
            "a search that raises 'hold' without a rate at which connections are opened",
            "write for instance connections_per_second = 3000",
        ),
        (Some(Raise::Hold), false) => Ok(Searched::Held),
    }
}

/// The most connections that are worth trying to hold: as many as there are pairs of addresses and ports for, and as are
/// opened within [`OPENING_MAX`].
fn most_held(load: &PacketLoadKeys) -> Result<f64, LoadError> {
    let ports = |given: Option<PortsFile>, standard| {
        let ports = given.map_or(standard, RangeInclusive::from);
        f64::from(ports.end().saturating_sub(*ports.start())) + 1.0
    };
    let pairs = f64::from(addresses("client_addresses", load.packets.client_addresses)?)
        * ports(load.packets.client_ports, CLIENT_PORTS)
        * f64::from(addresses("server_addresses", load.packets.server_addresses)?)
        * ports(load.packets.server_ports, SERVER_PORTS);
    let opened = load.packets.connections_per_second.map_or(f64::MAX, |rate| rate.get() * OPENING_MAX.as_secs_f64());
    Ok(pairs.min(opened).floor())
}

/// How long it takes to open all connections that the load holds.
pub fn opening(load: &AskedLoad) -> Duration {
    let AskedLoad::Packets(packets) = load else { return Duration::ZERO };
    let opening = &packets.client.load;
    let seconds = opening.hold.map_or(0.0, |hold| f64::from(hold) / opening.rate);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

/// How long its rate of connections rises.
pub(super) fn ramp(load: &AskedLoad) -> Duration {
    let AskedLoad::Packets(packets) = load else { return Duration::ZERO };
    packets.client.load.ramp
}

/// `load` with another value of what a search raises.
pub fn at_rate(load: &AskedLoad, of: Searched, rate: f64) -> AskedLoad {
    let mut load = load.clone();
    let AskedLoad::Packets(packets) = &mut load else { return load };
    let client = &mut packets.client;
    match (of, &mut client.repeat) {
        (Searched::Requests, Some(repeat)) => repeat.rate = Some(rate),
        (Searched::Held, _) => client.load.hold = Some(rate.round().clamp(1.0, u32::MAX.into()) as u32),
        _ => client.load.rate = rate,
    }
    load
}

#[cfg(test)]
mod tests;
