//! The figures of loads that make their packets themselves.

use rig_load::record::PacketRecord;

use super::{first_byte, handshake, per_second, statistic, workers};
use crate::asked_load::PacketLoad;
use crate::claim::{FigureError, FigureRef, Metric, Side};
use crate::record::TrialRecord;

/// The figures that no other load has.
pub(super) fn is_own(metric: Metric) -> bool {
    matches!(
        metric,
        Metric::Connections
            | Metric::Concurrent
            | Metric::Failed
            | Metric::PacketsOut
            | Metric::PacketsIn
            | Metric::BitsOut
            | Metric::BitsIn
            | Metric::Drops
            | Metric::Late
            | Metric::Busy
            | Metric::DropsOut
            | Metric::Limit
            | Metric::LimitHeld
            | Metric::Handshake(_)
            | Metric::FirstByte(_)
    )
}

/// Whether the record is a packet load's, which does not have the figure although its counters would give one.
pub(super) fn leave_out(record: &TrialRecord, metric: Metric) -> bool {
    let mut packets = record.workers.iter().filter(|w| !w.background).filter_map(|worker| worker.packets.as_ref());
    let has = |name: &str, packets: &PacketRecord| packets.total.get(name).is_some_and(|count| *count > 0);
    match metric {
        // Its workers never rest.
        Metric::TransactionDemand => packets.next().is_some(),
        Metric::Loss => packets.any(|one| has("tcpTx", one)),
        Metric::Retransmits => packets.any(|one| has("udpTx", one)),
        _ => false,
    }
}

pub(super) fn figure(record: &TrialRecord, side: Side, metric: Metric) -> Option<f64> {
    let rate = |name| per_second(record, side, |worker| Some(worker.packets.as_ref()?.count(name)));
    let records: Vec<&PacketRecord> =
        workers(record, side).map(|worker| worker.packets.as_ref()).collect::<Option<_>>()?;
    if records.is_empty() {
        return None;
    }
    let sum = |count: &dyn Fn(&PacketRecord) -> u64| Some(records.iter().map(|one| count(one)).sum::<u64>() as f64);
    match metric {
        Metric::Connections => rate("skOpen"),
        Metric::Concurrent => sum(&|one| one.open),
        Metric::Failed => sum(&failed),
        Metric::PacketsOut => rate("pktTx"),
        Metric::PacketsIn => rate("pktRx"),
        Metric::BitsOut => rate("bitsTx"),
        Metric::BitsIn => rate("bitsRx"),
        Metric::Drops => sum(&dropped),
        Metric::DropsOut => rate("dropTx"),
        Metric::Late => sum(&|one| one.count("late")),
        Metric::Busy => Some(100.0 * records.iter().map(|one| one.busy()).fold(0.0, f64::max)),
        Metric::Handshake(of) => statistic(&handshake([record]), of),
        Metric::FirstByte(of) => statistic(&first_byte([record]), of),
        _ => None,
    }
}

/// Connections of the window that came to nothing; what the window began, its end may find out later.
pub fn failed(record: &PacketRecord) -> u64 {
    record.count_since("skErr") + record.count_since("noSocket")
}

/// Frames that found no room at the end's own port, those of the window that were to be sent and all that came.
pub fn dropped(record: &PacketRecord) -> u64 {
    record.count("dropTx") + record.ports.iter().flat_map(|port| port.drops.values()).sum::<u64>()
}

/// Segments of the window that were sent again. An acknowledgment is sent again because its segment was.
pub fn sent_again(record: &PacketRecord) -> u64 {
    ["synRt", "finRt", "pushRt"].map(|name| record.count(name)).iter().sum()
}

/// Whether trials of the load have the figure.
pub(super) fn check(packets: &PacketLoad, figure: &FigureRef) -> Result<(), FigureError> {
    let FigureRef { scenario, side, metric, .. } = figure;
    let refuse = |what: String, hint: &str| Err(FigureError { what, hint: hint.to_owned() });
    let lacks = |hint: &str| refuse(format!("scenario `{scenario}` is packets and has no {metric}"), hint);
    let (is_tcp, is_flood) = (packets.is_tcp(), packets.client.flood.is_some());
    match metric {
        Metric::BackgroundThroughput => return Ok(()),
        Metric::Throughput | Metric::ServiceDemand => return lacks("bits_out and bits_in are what its frames carry"),
        Metric::TransactionDemand => {
            return lacks("its workers never rest: busy says how much of their time they need");
        }
        Metric::Datagrams => return lacks("packets_out and packets_in are its frames"),
        Metric::Reordered | Metric::Duplicated | Metric::Jitter | Metric::Delay(_) => {
            return lacks("only udp-stream has it");
        }
        Metric::Transactions | Metric::Latency(_) | Metric::FirstByte(_) if is_flood => {
            return refuse(
                format!("nobody answers the flood of scenario `{scenario}`"),
                "its figures are packets_out and packets_in",
            );
        }
        Metric::Loss if is_tcp || is_flood => {
            return lacks(
                "TCP sends again what is lost: retransmits counts it; of a flood compare local.packets_out \
                          with remote.packets_in",
            );
        }
        Metric::Loss if *side != Side::Local => {
            return refuse(
                format!("the requests that scenario `{scenario}` lost are counted where they were sent"),
                "write `local` for its side",
            );
        }
        Metric::Retransmits if !is_tcp => return lacks("UDP sends nothing again: loss says what was not answered"),
        Metric::Handshake(_) | Metric::FirstByte(_) if !is_tcp => return lacks("UDP has latency_p50 and its like"),
        Metric::Connections | Metric::Concurrent | Metric::Failed if *side == Side::Remote && !is_tcp => {
            return refuse(format!("the UDP server of scenario `{scenario}` keeps no connections"), "write `local`");
        }
        _ => {}
    }
    match side {
        Side::Sender | Side::Receiver => refuse(
            format!("packets of scenario `{scenario}` go both ways, so it has no {side}"),
            "write `local` for the end that connects or `remote` for the one that listens",
        ),
        Side::Local | Side::Remote => Ok(()),
    }
}
