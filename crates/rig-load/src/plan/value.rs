//! What errors of plans are about.

use std::fmt;

/// A value of a plan, or a product of several, that has a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanValue {
    Cpu,
    Threads,
    Connections,
    AllConnections,
    Message,
    Datagram,
    SendBuffer,
    ReceiveBuffer,
    Throttle,
    Outstanding,
    Ring,
    Batch,
    Segments,
    SegmentsTogether,
    Request,
    Response,
    InFlight,
    InFlightOfOne,
    InFlightOfBytes,
    UnderWay,
    Mss,
    HopLimit,
    NotSentLowWater,
    BusyPoll,
    Mptcp,
}

impl fmt::Display for PlanValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "a CPU number",
            Self::Threads => "threads",
            Self::Connections => "connections of a thread",
            Self::AllConnections => "threads x connections",
            Self::Message => "the message",
            Self::Datagram => "the datagram",
            Self::SendBuffer => "the send buffer",
            Self::ReceiveBuffer => "the receive buffer",
            Self::Throttle => "the throttle",
            Self::Outstanding => "the number of outstanding operations",
            Self::Ring => "outstanding operations x connections of a thread",
            Self::Batch => "the batch",
            Self::Segments => "the segments",
            Self::SegmentsTogether => "segments x datagram",
            Self::Request => "the request",
            Self::Response => "the response",
            Self::InFlight => "the transactions in flight",
            Self::InFlightOfOne => "the transactions in flight on a connection that carries one",
            Self::InFlightOfBytes => {
                "the transactions in flight on a flow whose datagrams have one byte for their number"
            }
            Self::UnderWay => "threads x connections x transactions in flight",
            Self::Mss => "the MSS",
            Self::HopLimit => "the hop limit",
            Self::NotSentLowWater => "the low-water mark of unsent bytes",
            Self::BusyPoll => "microseconds of busy polling",
            Self::Mptcp => "MPTCP",
        })
    }
}

/// What a load at a rate sends one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Message,
    Segments,
    Datagram,
    Transaction,
    Launch,
    Connection,
    RequestRate,
    RequestInterval,
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Message => "a message leaves",
            Self::Segments => "a message of several segments leaves",
            Self::Datagram => "a datagram leaves",
            Self::Transaction => "a transaction leaves",
            Self::Launch => "connections that are opened together leave",
            Self::Connection => "a connection leaves",
            Self::RequestRate | Self::RequestInterval => "a request leaves",
        })
    }
}

impl Pace {
    /// What to do where it is too slow.
    pub(super) fn change(self) -> &'static str {
        match self {
            Self::Message | Self::Datagram => "raise the rate or lower the message",
            Self::Segments => "raise the rate or lower the segments",
            Self::Transaction | Self::Connection | Self::RequestRate => "raise the rate",
            Self::Launch => "raise the rate or lower 'launch'",
            Self::RequestInterval => "shorten the interval",
        }
    }
}
