//! The highest rate without loss, found by runs one after the other: each begins from nothing, so that what an overload
//! left behind is in no later one.

use std::time::Duration;

use anyhow::anyhow;
use rig_load::driver::Cancel;
use rig_load::packet::search::{Finder, GeneratorBound, Loss, Outcome, Purpose, Search, generator_bound, losses};
use rig_load::packet::{Client, Service};

use super::console::Console;
use super::record::purpose;
use super::resolve::Job;
use super::run::{self, Finished};
use super::statistics::thousands;
use crate::exit::{Exit, Failure, OrExit};

/// How long a rate is offered before the last confirmation.
const STEP: Duration = Duration::from_secs(2);
/// In each run, so that not all of a rate comes at once.
const RAMP: Duration = Duration::from_millis(200);

/// What a search found.
#[derive(Debug)]
pub struct Found {
    pub of: &'static str,
    pub outcome: Outcome,
    /// Whether the rate held is the generator's own limit.
    pub bound: Option<GeneratorBound>,
    pub last: Finished,
}

/// What the rate is of that is searched.
fn of(client: &Client) -> Result<&'static str, Failure> {
    match (client.repeat, client.load.hold) {
        (Some(repeat), _) if repeat.rate.is_some() => Ok("requests"),
        (_, Some(_)) => Err(Failure::new(
            Exit::BadInput,
            anyhow!("--search: with `cc` the number of connections is given; add `rps` to search the rate of requests"),
        )),
        _ if client.flood.is_some() => Ok("packets"),
        _ => Ok("connections"),
    }
}

/// Searches from the file's own rate on; each rate is offered for some seconds, the result for `hold`. `None`: stopped.
pub fn search(job: &Job, hold: Duration, cancel: &Cancel, console: &mut Console) -> Result<Option<Found>, Failure> {
    let Some(client) = job.packets.service.client() else {
        let why = "--search: a server offers nothing: search at the client";
        return Err(Failure::new(Exit::BadInput, anyhow!(why)));
    };
    let of = of(client)?;
    let start = client.repeat.and_then(|repeat| repeat.rate).unwrap_or(client.load.rate);
    let plan = Search { start, growth: 2.0, precision: 0.02, most: None, late: 0.01 };
    let mut finder = Finder::new(plan).or_exit(Exit::BadInput)?;
    let (mut last, mut busy) = (None, 0.0);
    while let Some(offer) = finder.next() {
        let mut packets = job.packets.clone();
        let client = match &mut packets.service {
            Service::TcpClient(tcp) => &mut tcp.client,
            Service::UdpClient(udp) => &mut udp.client,
            Service::TcpServer(_) | Service::UdpServer(_) => return Ok(None),
        };
        match &mut client.repeat {
            Some(repeat) if repeat.rate.is_some() => repeat.rate = Some(offer.rate),
            _ => client.load.rate = offer.rate,
        }
        client.load.ramp = RAMP;
        packets.course.wait = Duration::ZERO;
        packets.course.duration = RAMP + if offer.purpose == Purpose::Confirm { hold } else { STEP };
        let Some(finished) = run::run(job, &packets, cancel, console)? else { return Ok(None) };
        if finished.interrupted {
            return Ok(None);
        }
        let lost = lost(&finished, plan.late);
        let words: Vec<String> = lost.iter().map(ToString::to_string).collect();
        let verdict = if words.is_empty() { "carried".to_owned() } else { words.join(", ") };
        let rate = thousands(offer.rate.round() as u64);
        console.print(&format!("{:<8} {rate:>15} {of}/s  {verdict}\n", purpose(offer.purpose)));
        if offer.purpose == Purpose::Confirm && lost.is_empty() {
            busy = finished.busiest();
        }
        finder.report(lost);
        last = Some(finished);
    }
    Ok(finder.outcome().zip(last).map(|(outcome, last)| {
        let bound = outcome.held.and_then(|held| generator_bound(held, None, busy));
        Found { of, outcome, bound, last }
    }))
}

fn lost(finished: &Finished, late: f64) -> Vec<Loss> {
    let counters = &finished.outcome.totals.counters;
    let count = |name: &str| counters.fields().find(|(field, _)| *field == name).map_or(0, |(_, value)| value);
    let mut all = losses("client", count, late);
    let nic = finished.nic;
    for (name, count) in [("ierrors", nic.ierrors), ("oerrors", nic.oerrors), ("imissed", nic.imissed)] {
        if count > 0 {
            all.push(Loss { counter: format!("client {name}"), count });
        }
    }
    all
}
