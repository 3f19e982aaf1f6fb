//! Loads of kind `packets`: what suite files say, and what the two ends run.

use std::ops::RangeInclusive;
use std::time::Duration;

use rig_cli::source::Spanned;
use rig_facts::record::SearchedRate;
use rig_packet::http as message;
use rig_packet::http::Method;
use rig_packet::plan::Driver;
use rig_packet::search::Search;
use rig_packet::{
    Client, CloseMethod, Flood, FloodPackets, Load as Opening, MessageEnd, Payload, RequestRepeat, TcpTimes, TupleOrder,
};
use rig_stats::units::{Bytes, PerSecond};
use rig_testbed::topology::Pool;
use schemars::JsonSchema;
use serde::Deserialize;

use super::load::{ErrorLocation, LoadError, LoadFile, error, value};
use super::{Exchange, Message, PacketLoad, QuickSearch, RequestedLoad, TcpExchange};

mod benchmark;
mod ports;
mod search;
mod threads;

pub(super) use self::benchmark::BenchmarkFile;
pub use self::benchmark::BenchmarkPlan;
pub use self::ports::{PortOf, at_port};
pub(super) use self::ports::{check_path, flood_beside};
pub(super) use self::search::{SearchFile, check_search};
pub use self::threads::PacketThreads;
pub(super) use self::threads::{PacketThreadsFile, with_lanes};

/// Of loads that do not say it.
const MESSAGE: u32 = 64;
const RETRANSMIT: Duration = Duration::from_millis(200);
const RETRIES: u8 = 3;
const SEND_WINDOW: u8 = 4;
/// Where clients' ports begin by default: below are those that a network may treat in its own way.
const CLIENT_PORTS: RangeInclusive<u16> = 1024..=65_535;
/// That of the test frames of RFC 2544, C.2.6.4.
const STREAM_PORT: u16 = 49_184;
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

/// Whether a load is a flood, and of which packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected true, false, \"ack\" or \"mixed\"")]
#[schemars(rename = "Flood")]
pub(super) enum FloodFile {
    Whether(bool),
    Of(FloodPackets),
}

/// The packets of a load that is a flood.
fn flood_of(load: &LoadFile) -> Option<FloodPackets> {
    match value(&load.flood)? {
        FloodFile::Whether(true) => Some(FloodPackets::First),
        FloodFile::Whether(false) => None,
        FloodFile::Of(packets) => Some(packets),
    }
}

impl From<PortsFile> for RangeInclusive<u16> {
    fn from(ports: PortsFile) -> Self {
        match ports {
            PortsFile::One(port) => port..=port,
            PortsFile::Range([first, last]) => first..=last,
        }
    }
}

/// What a packet load needs of its testbed, and how its rate is found.
#[derive(Debug, Clone, PartialEq)]
pub struct PacketTraffic {
    pub client_addresses: u32,
    pub server_addresses: u32,
    pub driver: Driver,
    pub workers: PacketThreads,
    pub search: Option<SearchPlan>,
    /// Bytes of the frames that are sent one way.
    pub frame: Option<u32>,
    pub benchmark: Option<BenchmarkPlan>,
    /// A flood beside another load of packets: it comes by a wire of its own, and what it reaches are the servers of that load.
    pub beside: bool,
}

impl PacketTraffic {
    /// Whether its rate is found in the trial.
    pub fn is_searched(&self) -> bool {
        self.search.is_some() || self.benchmark.is_some()
    }
}

/// A search before the window, which then runs at the rate found or a share of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchPlan {
    pub of: SearchedRate,
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
pub(super) fn asked(load: &LoadFile) -> Result<(PacketLoad, PacketTraffic), LoadError> {
    let Some(protocol) = value(&load.protocol) else {
        return error(&[], "the load has no protocol", "write protocol = \"tcp\", \"udp\" or \"http\"");
    };
    let search = load.search.as_ref().map(|search| search::plan(search.get_ref(), load)).transpose()?;
    let workers = load.workers.as_ref().map_or(Ok(PacketThreads::ONE), PacketThreads::try_from)?;
    let frame = benchmark::frame(load)?;
    let benchmark = load.benchmark.as_ref().map(|file| benchmark::plan(file.get_ref())).transpose()?;
    let client = client(load, search.as_ref(), benchmark.is_some())?;
    workers.check_held(&client)?;
    if let (Some(_), Protocol::Tcp | Protocol::Http) = (frame, protocol) {
        return error(&["frame"], "frames of a size over another protocol than UDP", "write protocol = \"udp\"");
    }
    let exchange = match protocol {
        Protocol::Tcp => tcp(load, plain(load)?)?,
        Protocol::Http => tcp(load, http(load, client.repeat.is_none())?)?,
        Protocol::Udp if let Some(bytes) = frame => Exchange::Frames { bytes },
        Protocol::Udp => udp(load)?,
    };
    let traffic = PacketTraffic {
        client_addresses: addresses("client_addresses", &load.client_addresses)?,
        server_addresses: addresses("server_addresses", &load.server_addresses)?,
        driver: value(&load.driver).unwrap_or_default(),
        workers,
        search,
        frame,
        benchmark,
        beside: false,
    };
    Ok((PacketLoad { client, exchange }, traffic))
}

fn addresses(key: &str, asked: &Option<Spanned<u32>>) -> Result<u32, LoadError> {
    match asked {
        None => Ok(1),
        Some(asked) if (1..=Pool::SIZE).contains(asked.get_ref()) => Ok(*asked.get_ref()),
        Some(asked) => {
            let hint = format!("each endpoint has 1 to {} addresses", Pool::SIZE);
            Err(LoadError {
                at: ErrorLocation::Span(asked.span()),
                what: format!("{key} = {}", asked.get_ref()),
                hint: Some(hint),
            })
        }
    }
}

/// `benchmarked`: the rate is that of a benchmark's trials.
fn client(load: &LoadFile, search: Option<&SearchPlan>, benchmarked: bool) -> Result<Client, LoadError> {
    let given = value(&load.connections_per_second).map(PerSecond::get);
    if benchmarked && given.is_some() {
        let hint = "a benchmark finds the rates: remove it, or 'benchmark'";
        return error(&["connections_per_second"], "a benchmark with a rate of its own", hint);
    }
    let given = given.or(benchmarked.then_some(1000.0));
    let searches = |what| search.filter(|search| search.of == what).map(|search| search.options.start);
    let rate = match (given, searches(SearchedRate::Connections)) {
        (Some(rate), None) | (None, Some(rate)) => rate,
        (None, None) => {
            return error(
                &[],
                "the load has no rate of connections",
                "write for instance connections_per_second = 10000, or search = \"loss-free\"",
            );
        }
        (Some(_), Some(_)) => {
            return error(
                &["connections_per_second"],
                "a rate of connections that is searched for, too",
                "remove 'connections_per_second', or search for requests: give 'requests_per_second' as the start",
            );
        }
    };
    let flood = flood_of(load);
    if flood.is_some() {
        let hint = "a flood asks nothing twice: remove one of them";
        if load.requests.is_some() {
            return error(&["requests"], "a flood with 'requests'", hint);
        }
        if load.interval.is_some() {
            return error(&["interval"], "a flood with 'interval'", hint);
        }
    }
    let stamped = load.frame.is_some();
    // Frames of a size are one stream, unless more is asked for (RFC 2544, 11).
    let ports = if stamped { STREAM_PORT..=STREAM_PORT } else { CLIENT_PORTS };
    Ok(Client {
        ports: value(&load.client_ports).map_or(ports, Into::into),
        server_ports: value(&load.server_ports).map_or(SERVER_PORTS, Into::into),
        load: Opening {
            ramp: value(&load.ramp).map_or(Duration::ZERO, |ramp| ramp.0),
            hold: value(&load.hold),
            launch: value(&load.launch),
            ..Opening::new(rate)
        },
        repeat: repeat(load)?,
        walk: if value(&load.hop) == Some(true) { TupleOrder::Hop } else { TupleOrder::Ports },
        flood: (stamped || flood.is_some()).then(|| Flood {
            packets: flood.unwrap_or_default(),
            stamped,
            ..Flood::default()
        }),
    })
}

fn repeat(load: &LoadFile) -> Result<Option<RequestRepeat>, LoadError> {
    let rate = value(&load.requests_per_second).map(PerSecond::get);
    if rate.is_some() && load.interval.is_some() {
        return error(
            &["interval"],
            "both 'interval' and 'requests_per_second'",
            "an interval is each connection's own, a rate that of all together: remove one",
        );
    }
    if rate.is_some() && load.hold.is_none() {
        return error(
            &["requests_per_second"],
            "'requests_per_second' without 'hold'",
            "give the number of open connections, for instance hold = 1000",
        );
    }
    let several = value(&load.requests).is_some_and(|requests| requests > 1);
    if !several && rate.is_none() && load.interval.is_none() && load.pipeline.is_none() && load.hold.is_none() {
        return Ok(None);
    }
    if load.hold.is_some() && rate.is_none() && load.interval.is_none() {
        return error(
            &["hold"],
            "'hold' without 'interval'",
            "give how often a held connection asks, for instance interval = \"1s\", or requests_per_second",
        );
    }
    Ok(Some(RequestRepeat {
        interval: value(&load.interval).map_or(Duration::ZERO, |interval| interval.0),
        requests: value(&load.requests),
        rate,
        pipeline: value(&load.pipeline).unwrap_or(1),
    }))
}

fn sizes(load: &LoadFile) -> Result<(u32, u32), LoadError> {
    let size = |key: &str, given: &Option<Spanned<Bytes>>| {
        let Some(given) = given else { return Ok(MESSAGE) };
        let bytes = given.get_ref().0;
        u32::try_from(bytes).ok().filter(|bytes| *bytes > 0).ok_or_else(|| LoadError {
            what: format!("a {key} of {bytes} bytes"),
            hint: Some("give 1 byte to 1 GiB".to_owned()),
            at: ErrorLocation::Span(given.span()),
        })
    };
    Ok((size("request", &load.request)?, size("response", &load.response)?))
}

/// Request and response.
type Messages = [Message; 2];

fn plain(load: &LoadFile) -> Result<Messages, LoadError> {
    let (request, response) = sizes(load)?;
    Ok([request, response].map(|bytes| Message { payload: Payload::Filler(bytes), complete: MessageEnd::Bytes(bytes) }))
}

/// `once`: a connection has one request.
fn http(load: &LoadFile, once: bool) -> Result<Messages, LoadError> {
    let (request, response) = sizes(load)?;
    if load.request.is_some() && (request as usize) < message::REQUEST {
        let what = format!("an HTTP request of {request} bytes");
        return error(&["request"], what, format!("it takes at least {}", message::REQUEST));
    }
    if response > BODY {
        let what = format!("a body of {response} bytes");
        return error(&["response"], what, format!("an HTTP response has at most {BODY}"));
    }
    let request = message::request(Method::Get, "netrig", "/", request as usize);
    let response = message::response(&vec![b'a'; response as usize], once);
    Ok([request, response].map(|bytes| Message { payload: bytes.into(), complete: MessageEnd::Http }))
}

fn tcp(load: &LoadFile, [request, response]: Messages) -> Result<Exchange, LoadError> {
    refuse("tcp", load, &["timeout", "pipeline"])?;
    Ok(Exchange::Tcp(TcpExchange {
        times: TcpTimes {
            retransmit: value(&load.retransmit).map_or(RETRANSMIT, |time| time.0),
            retries: value(&load.retries).unwrap_or(RETRIES),
            time_wait: Duration::ZERO,
        },
        request,
        response,
        close: value(&load.close).unwrap_or(CloseMethod::Fin),
        window: value(&load.send_window).unwrap_or(SEND_WINDOW),
    }))
}

fn udp(load: &LoadFile) -> Result<Exchange, LoadError> {
    refuse("udp", load, &["close", "retransmit", "retries", "send_window"])?;
    let (request, response) = sizes(load)?;
    let timeout = value(&load.timeout).map_or(RETRANSMIT, |time| time.0);
    Ok(Exchange::Udp { request: Payload::Filler(request), response: Payload::Filler(response), timeout })
}

fn refuse(protocol: &str, load: &LoadFile, keys: &[&str]) -> Result<(), LoadError> {
    match load.given().find(|(key, _)| keys.contains(key)) {
        Some((key, span)) => Err(LoadError {
            what: format!("packets over {protocol} have no '{key}'"),
            hint: Some("remove it".to_owned()),
            at: ErrorLocation::Span(span),
        }),
        None => Ok(()),
    }
}

/// How long it takes to open all connections that the load holds.
pub fn opening(load: &RequestedLoad) -> Duration {
    let RequestedLoad::Packets(packets) = load else { return Duration::ZERO };
    let opening = &packets.client.load;
    let seconds = opening.hold.map_or(0.0, |hold| f64::from(hold) / opening.rate);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

/// How long its rate of connections rises.
pub(super) fn ramp(load: &RequestedLoad) -> Duration {
    let RequestedLoad::Packets(packets) = load else { return Duration::ZERO };
    packets.client.load.ramp
}

/// `load` with another value of what a search raises.
pub fn at_rate(load: &RequestedLoad, of: SearchedRate, rate: f64) -> RequestedLoad {
    let mut load = load.clone();
    let RequestedLoad::Packets(packets) = &mut load else { return load };
    let client = &mut packets.client;
    match (of, &mut client.repeat) {
        (SearchedRate::Requests, Some(repeat)) => repeat.rate = Some(rate),
        (SearchedRate::Held, _) => client.load.hold = Some(rate.round().clamp(1.0, u32::MAX.into()) as u32),
        _ => client.load.rate = rate,
    }
    load
}

#[cfg(test)]
mod tests;
