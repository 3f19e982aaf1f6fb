//! Which loads have which figures; where one has not, why not and what to write instead.

use rig_load::plan::{Datagrams, Flow, TcpStream};

use super::reference::{FigureError, FigureRef, Side};
use super::table::FigureOwner;
use crate::requested_load::{PacketLoad, RequestedLoad};

/// A figure that is asked of trials of a load.
#[derive(Debug)]
pub struct Case<'a> {
    load: &'a RequestedLoad,
    figure: &'a FigureRef,
}

/// Whether trials of `load` have the figure.
///
/// # Errors
/// Why not, and what to write instead.
pub fn check(load: &RequestedLoad, figure: &FigureRef) -> Result<(), FigureError> {
    let (case, row) = (Case { load, figure }, figure.metric.row());
    match (row.owner, case.packets()) {
        (FigureOwner::Packets, None) => case.lacks("only packets has it"),
        _ => (row.check)(&case),
    }
}

const OTHER_SIDE: &str = "write `local` for the end that connects or `remote` for the one that listens";
const OF_REQUESTS: &str = "its figures are transactions, transaction_demand and latency_p50 to latency_p99_99";
const OF_PAYLOAD: &str = "its figures are throughput and service_demand";
const ONLY_DATAGRAMS: &str = "only udp-stream has it";

impl Case<'_> {
    /// Of loads whose payload is a stream or datagrams, the way that it goes.
    fn flow(&self) -> Option<Flow> {
        match self.load {
            RequestedLoad::TcpStream(TcpStream { flow, .. }) | RequestedLoad::UdpStream(Datagrams { flow, .. }) => {
                Some(*flow)
            }
            _ => None,
        }
    }

    fn packets(&self) -> Option<&PacketLoad> {
        match self.load {
            RequestedLoad::Packets(packets) => Some(packets),
            _ => None,
        }
    }

    fn is_udp_stream(&self) -> bool {
        matches!(self.load, RequestedLoad::UdpStream(_))
    }

    fn refuse(&self, what: impl FnOnce(&str, Side) -> String, hint: &str) -> Result<(), FigureError> {
        Err(FigureError { what: what(&self.figure.scenario, self.figure.side), hint: hint.to_owned() })
    }

    fn lacks(&self, hint: &str) -> Result<(), FigureError> {
        let (load, metric) = (self.load.name(), self.figure.metric);
        self.refuse(|scenario, _| format!("scenario `{scenario}` is {load} and has no {metric}"), hint)
    }

    /// Refuses requests of a side that did not send them.
    fn lost_elsewhere(&self) -> Result<(), FigureError> {
        let what = |scenario: &str, _| {
            format!("the requests that scenario `{scenario}` lost are counted where they were sent")
        };
        self.refuse(what, "write `local` for its side")
    }

    /// Refuses figures of answers where nothing answers.
    fn unanswered(&self) -> Result<(), FigureError> {
        let what = |scenario: &str, _| format!("nobody answers the flood of scenario `{scenario}`");
        self.refuse(what, "its figures are packets_out and packets_in")
    }
}

/// Any load; a sender and a receiver have those alone whose payload goes one way.
pub fn any(case: &Case<'_>) -> Result<(), FigureError> {
    if matches!(case.figure.side, Side::Local | Side::Remote) {
        return Ok(());
    }
    if case.packets().is_some() {
        let what = |scenario: &str, side| format!("packets of scenario `{scenario}` go both ways, so it has no {side}");
        return case.refuse(what, OTHER_SIDE);
    }
    match case.flow() {
        Some(Flow::Forward | Flow::Reverse) => Ok(()),
        Some(Flow::Both) | None => {
            let what =
                |scenario: &str, side| format!("payload of scenario `{scenario}` goes both ways, so it has no {side}");
            case.refuse(what, OTHER_SIDE)
        }
    }
}

/// Of no load of its own: nothing is asked of it.
pub fn none(_: &Case<'_>) -> Result<(), FigureError> {
    Ok(())
}

/// What other tools' outputs alone tell.
pub fn told(case: &Case<'_>) -> Result<(), FigureError> {
    case.lacks("only other tools' tests have it; cpu is that of the whole node")
}

/// Payload of streams and datagrams.
pub fn payload(case: &Case<'_>) -> Result<(), FigureError> {
    match (case.packets(), case.flow()) {
        (Some(_), _) => case.lacks("bits_out and bits_in are what its frames carry"),
        (None, None) => case.lacks(OF_REQUESTS),
        (None, Some(_)) => any(case),
    }
}

/// Answers to requests.
pub fn answers(case: &Case<'_>) -> Result<(), FigureError> {
    match (case.packets(), case.flow()) {
        (Some(packets), _) if packets.client.flood.is_some() => case.unanswered(),
        (None, Some(_)) => case.lacks(OF_PAYLOAD),
        _ => any(case),
    }
}

/// What an answer costs.
pub fn cost_of_answers(case: &Case<'_>) -> Result<(), FigureError> {
    match case.packets() {
        Some(_) => case.lacks("its workers never rest: busy says how much of their time they need"),
        None => answers(case),
    }
}

/// Segments of TCP.
pub fn segments(case: &Case<'_>) -> Result<(), FigureError> {
    match case.load {
        RequestedLoad::UdpStream(_) | RequestedLoad::UdpRr(_) => {
            case.lacks("UDP sends nothing again: loss says what did not arrive")
        }
        RequestedLoad::Packets(packets) if !packets.is_tcp() => {
            case.lacks("UDP sends nothing again: loss says what was not answered")
        }
        _ => any(case),
    }
}

/// Datagrams at either end.
pub fn datagrams(case: &Case<'_>) -> Result<(), FigureError> {
    match case.load {
        RequestedLoad::UdpStream(_) => any(case),
        RequestedLoad::Packets(_) => case.lacks("packets_out and packets_in are its frames"),
        _ => case.lacks(ONLY_DATAGRAMS),
    }
}

/// Datagrams where they arrive.
pub fn arrivals(case: &Case<'_>) -> Result<(), FigureError> {
    if !case.is_udp_stream() {
        return case.lacks(ONLY_DATAGRAMS);
    }
    let receives = matches!(
        (case.figure.side, case.flow()),
        (Side::Receiver, _)
            | (_, Some(Flow::Both))
            | (Side::Local, Some(Flow::Reverse))
            | (Side::Remote, Some(Flow::Forward))
    );
    if !receives {
        let what = |scenario: &str, side| format!("the {side} end of scenario `{scenario}` receives nothing");
        return case.refuse(what, "name the end that receives");
    }
    any(case)
}

/// Datagrams that did not arrive, and requests over UDP that were not answered.
pub fn loss(case: &Case<'_>) -> Result<(), FigureError> {
    match case.load {
        RequestedLoad::UdpStream(_) => return arrivals(case),
        RequestedLoad::Packets(packets) if packets.is_tcp() || packets.client.flood.is_some() => {
            return case.lacks(
                "TCP sends again what is lost: retransmits counts it; of a flood compare local.packets_out \
                 with remote.packets_in",
            );
        }
        RequestedLoad::Packets(_) | RequestedLoad::UdpRr(_) => {}
        _ => return case.lacks("only udp-stream and udp-rr have it"),
    }
    if case.figure.side == Side::Local { any(case) } else { case.lost_elsewhere() }
}

/// Connections of packets.
pub fn connections(case: &Case<'_>) -> Result<(), FigureError> {
    if case.figure.side == Side::Remote && case.packets().is_some_and(|packets| !packets.is_tcp()) {
        let what = |scenario: &str, _| format!("the UDP server of scenario `{scenario}` keeps no connections");
        return case.refuse(what, "write `local`");
    }
    any(case)
}

/// Handshakes of TCP connections of packets.
pub fn handshake(case: &Case<'_>) -> Result<(), FigureError> {
    match case.packets() {
        Some(packets) if !packets.is_tcp() => case.lacks("UDP has latency_p50 and its like"),
        _ => any(case),
    }
}

/// First bytes of answers over TCP connections of packets.
pub fn first_byte(case: &Case<'_>) -> Result<(), FigureError> {
    match case.packets() {
        Some(packets) if packets.client.flood.is_some() => case.unanswered(),
        _ => handshake(case),
    }
}
