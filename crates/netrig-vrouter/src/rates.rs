//! How fast counters rise: `vif --rate` and `flow -r`, which go on until they are stopped.

use std::env;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::{note, print_as_it_is, print_on};
use rig_cli::visible::visible;
use rig_datapath::vrouter::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::{InterfaceEntry, ReasonCount, Status};

/// Of all interfaces, or of the one that was asked for, between two readings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceRates {
    pub node: String,
    /// From the reading before to this one.
    pub seconds: f64,
    pub interfaces: Vec<InterfaceRate>,
}

/// Per second. A packet that is still to be cut into segments is one; bits with Ethernet headers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceRate {
    /// The interface's number on its node.
    pub number: u32,
    pub name: String,
    /// From the container.
    pub in_packets: f64,
    pub in_bits: f64,
    /// To the container.
    pub out_packets: f64,
    pub out_bits: f64,
    /// Packets that were dropped.
    pub drops: f64,
}

/// Of connections between two readings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowRates {
    pub node: String,
    /// From the reading before to this one.
    pub seconds: f64,
    /// Connections that are remembered.
    pub connections: u64,
    /// Connections that were let through and remembered, per second.
    pub begun: f64,
    /// Connections that have ended, per second.
    pub ended: f64,
    /// Packets that could not begin one, by rules, by limits or because the table is full, per second.
    pub refused: f64,
}

/// The time between two readings; none where they are not of one process.
fn between(before: &Status, now: &Status) -> Option<f64> {
    let ms = now.uptime_ms.checked_sub(before.uptime_ms).filter(|_| before.process == now.process);
    ms.filter(|ms| *ms > 0).map(|ms| ms as f64 / 1000.0)
}

/// Of all interfaces, or of one, by its number. What came in the meantime is not among them.
pub fn of_interfaces(before: &Status, now: &Status, one: Option<u32>) -> Option<InterfaceRates> {
    let seconds = between(before, now)?;
    let rate = |interface: &InterfaceEntry| {
        let earlier =
            before.interfaces.iter().find(|one| one.number == interface.number && one.name == interface.name)?;
        let rise = |count: fn(&InterfaceEntry) -> u64| count(interface).saturating_sub(count(earlier)) as f64 / seconds;
        Some(InterfaceRate {
            number: interface.number,
            name: interface.name.clone(),
            in_packets: rise(|one| one.in_packets),
            in_bits: rise(|one| one.in_bytes) * 8.0,
            out_packets: rise(|one| one.out_packets),
            out_bits: rise(|one| one.out_bytes) * 8.0,
            drops: rise(|one| one.drops.iter().map(|drop| drop.packets).sum()),
        })
    };
    let wanted = now.interfaces.iter().filter(|interface| one.is_none_or(|one| one == interface.number));
    Some(InterfaceRates { node: now.node.clone(), seconds, interfaces: wanted.filter_map(rate).collect() })
}

/// Reasons for which a packet begins no flow.
const REFUSED: [Reason; 3] = [Reason::Policy, Reason::NewFlows, Reason::FlowTableFull];

pub(crate) fn is_refusal(drop: &ReasonCount) -> bool {
    REFUSED.iter().any(|reason| reason.number() == drop.number)
}

pub fn of_flows(before: &Status, now: &Status) -> Option<FlowRates> {
    let seconds = between(before, now)?;
    let rise = |count: fn(&Status) -> u64| count(now).saturating_sub(count(before)) as f64 / seconds;
    let refused = |status: &Status| status.drops.iter().filter(|drop| is_refusal(drop)).map(|drop| drop.packets).sum();
    Some(FlowRates {
        node: now.node.clone(),
        seconds,
        connections: now.flows.connections,
        begun: rise(|status| status.flows.begun),
        ended: rise(|status| status.flows.begun.saturating_sub(status.flows.connections)),
        refused: rise(refused),
    })
}

/// The kind of interface that containers have.
const VIRTUAL: &str = "Virtual: ";

/// `vif --rate`: Contrail's columns, with bits and what was dropped in place of errors.
pub fn interfaces(rates: &InterfaceRates) -> String {
    let mut text = String::new();
    let longest = rates.interfaces.iter().map(|rate| rate.name.chars().count()).max().unwrap_or(0);
    let width = (VIRTUAL.len() + longest + 2).max(30);
    // Writing to a string does not fail.
    let mut row = |cells: [&str; 7]| {
        let [name, number, in_packets, in_bits, out_packets, out_bits, drops] = cells;
        let _ = writeln!(
            text,
            "{name:<width$}{number:<10}{in_packets:>12}{in_bits:>16}{out_packets:>14}{out_bits:>16}{drops:>12}"
        );
    };
    row(["Interface name", "VIF ID", "RX", "", "TX", "", "Drops"]);
    row(["", "", "Packets/s", "Bits/s", "Packets/s", "Bits/s", "Packets/s"]);
    for rate in &rates.interfaces {
        let count = |value: f64| format!("{value:.0}");
        let (inward, outward) =
            ([rate.in_packets, rate.in_bits].map(count), [rate.out_packets, rate.out_bits].map(count));
        let number = format!("vif0/{}", rate.number);
        let name = format!("{VIRTUAL}{}", rate.name);
        row([&name, &number, &inward[0], &inward[1], &outward[0], &outward[1], &count(rate.drops)]);
    }
    text
}

/// `flow -r`: Contrail's line, per second; forward entries that were made and removed, and what was refused.
pub fn flows(rates: &FlowRates) -> String {
    let FlowRates { connections, begun, ended, refused, .. } = rates;
    let all = begun + ended;
    format!(
        "Connections = {connections:8} Rate = {all:6.0}/s (Fwd = {begun:8.0}/s Del = {ended:8.0}/s Refused = \
         {refused:8.0}/s)\n"
    )
}

/// How often is read, and how many times.
#[derive(Debug, Clone, Copy)]
pub struct RefreshPace {
    pub interval: Duration,
    /// Until it is stopped, without.
    pub count: Option<u64>,
}

/// Shows what was between each two readings until enough was shown, it is stopped by Ctrl-C, or its output is closed. Where
/// `shown` has nothing, readings are not of one router, and it begins again.
///
/// # Errors
/// When the router does not answer any more.
pub fn repeat(
    pace: RefreshPace,
    status: impl FnMut() -> Result<Status, Failure>,
    shown: impl Fn(&Status, &Status) -> Result<Option<String>, Failure>,
) -> Result<Exit, Failure> {
    let (stop, stopped) = mpsc::channel();
    let caught = rig_sys::signal::on_stop_signal(move || {
        let _ended = stop.send(());
    });
    caught.context("catch signals").or_exit(Exit::Failed)?;
    until(&stopped, pace, status, shown)
}

fn until(
    stopped: &Receiver<()>,
    pace: RefreshPace,
    mut status: impl FnMut() -> Result<Status, Failure>,
    shown: impl Fn(&Status, &Status) -> Result<Option<String>, Failure>,
) -> Result<Exit, Failure> {
    let mut before = status()?;
    let mut next = Instant::now();
    let mut left = pace.count;
    while left != Some(0) {
        next += pace.interval;
        match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
        // Who was held up shows one after the other, and does not catch up.
        next = next.max(Instant::now());
        let now = status()?;
        match shown(&before, &now)? {
            Some(text) if !print_table(&text)? => break,
            Some(_) => left = left.map(|left| left - 1),
            None => note("the router was started again, and so is this"),
        }
        before = now;
    }
    Ok(Exit::Done)
}

/// To the terminal's first line, and erase all below (ECMA-48).
const HOME: &str = "\x1b[H\x1b[J";

/// What [`in_place()`] made, or a line; `false` when its output is closed.
fn print_table(text: &str) -> Result<bool, Failure> {
    match text.strip_prefix(HOME) {
        Some(table) => print_as_it_is(&format!("{HOME}{}", visible(table))),
        None => print_on(text),
    }
}

/// A table in place of the one before: on a terminal where that was, else behind it with an empty line between.
pub fn in_place(text: &str) -> String {
    let terminal = io::stdout().is_terminal() && env::var_os("TERM").is_some_and(|terminal| terminal != "dumb");
    if terminal { format!("{HOME}{text}") } else { format!("{text}\n") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::fixture;

    fn two() -> [Status; 2] {
        let before = fixture::status();
        let mut now = before.clone();
        now.uptime_ms += 2000;
        now.flows.begun += 30;
        now.flows.connections += 10;
        let one = &mut now.interfaces[0];
        one.in_packets += 2000;
        one.in_bytes += 2_500_000;
        one.out_packets += 5;
        one.out_bytes += 500;
        one.drops[0].packets += 7;
        now.drops.iter_mut().for_each(|drop| drop.packets += if drop.reason == "policy" { 7 } else { 1 });
        [before, now]
    }

    #[test]
    fn rates_are_what_counters_rose_by_each_second() {
        let [before, now] = two();
        let rates = of_interfaces(&before, &now, None).unwrap();
        assert_eq!((rates.seconds, rates.interfaces.len()), (2.0, 2));
        let InterfaceRate { in_packets, in_bits, out_packets, out_bits, drops, .. } = rates.interfaces[0];
        assert_eq!([in_packets, in_bits, out_packets, out_bits, drops], [1000.0, 10e6, 2.5, 2000.0, 3.5]);
        insta::assert_snapshot!("vif-rate", interfaces(&rates));
        let one = of_interfaces(&before, &now, Some(2)).unwrap();
        assert_eq!(one.interfaces, rates.interfaces[1..]);

        let rates = of_flows(&before, &now).unwrap();
        // Of the rules' reason 7, of the two other ones 1 each.
        assert_eq!((rates.begun, rates.ended, rates.refused), (15.0, 10.0, 4.5));
        insta::assert_snapshot!("flow-rate", flows(&rates));
    }

    #[test]
    fn readings_of_two_processes_have_no_rate() {
        let [before, now] = two();
        let other = Status { process: now.process + 1, ..now.clone() };
        assert_eq!(of_interfaces(&before, &other, None), None);
        assert_eq!(of_flows(&before, &other), None);
        assert_eq!(of_flows(&now, &before), None);
        assert_eq!(of_flows(&now, &now), None);
    }

    #[test]
    fn an_interface_that_has_just_come_has_no_rate_yet() {
        let [mut before, now] = two();
        before.interfaces[0].name = "another".to_owned();
        let rates = of_interfaces(&before, &now, None).unwrap();
        assert_eq!(rates.interfaces.iter().map(|one| one.number).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn it_ends_when_enough_was_shown() {
        let [before, now] = two();
        let mut readings = [before.clone(), now.clone(), before, now].into_iter();
        let pace = RefreshPace { interval: Duration::from_millis(1), count: Some(2) };
        let mut read = 0;
        let status = || {
            read += 1;
            Ok(readings.next().unwrap())
        };
        // The third is earlier than the second: it is not shown.
        let (_stop, stopped) = mpsc::channel();
        let ended = until(&stopped, pace, status, |before, now| Ok(of_flows(before, now).map(|_| String::new())));
        assert_eq!(ended.unwrap(), Exit::Done);
        assert_eq!(read, 4);
    }

    #[test]
    fn it_ends_when_it_is_stopped() {
        let (stop, stopped) = mpsc::channel();
        stop.send(()).unwrap();
        let pace = RefreshPace { interval: Duration::from_secs(3600), count: None };
        let ended = until(&stopped, pace, || Ok(fixture::status()), |_, _| panic!("nothing is to be shown"));
        assert_eq!(ended.unwrap(), Exit::Done);
    }
}
