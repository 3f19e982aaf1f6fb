//! Reading the counters at the window's edges and in between.

use rig_sys::clock::{monotonic_ns, process_cpu_ns};
use rig_sys::socket::{self, Buffer, TcpInfo};

use super::load_threads::LoadThreads;
use super::reading_times::DueReadings;
use super::{ErrorContext, WorkerError};
use crate::engine::datagrams::Findings;
use crate::engine::{Connection, CounterValues, Snapshot};
use crate::plan::{Engine, Load, ReceiveMode, SendMode, WorkerPlan};
use crate::record::{
    ConnectionRecord, CpuTime, Direction, Sample, TcpState, ThreadRecord, TransactionRecord, WorkerPhase, WorkerRecord,
};

/// Everything at one moment.
#[derive(Debug, Clone)]
struct Reading {
    at_ns: u64,
    /// What was sent, or received where nothing is sent, or exchanged.
    counts: Vec<CounterValues>,
    /// What was received, where something is sent too.
    inbound: Vec<CounterValues>,
    thread_cpu_ns: Vec<u64>,
    process_cpu_ns: (u64, u64),
    tcp: Vec<TcpState>,
    latencies: Snapshot,
}

impl Reading {
    /// The clock and the byte counts come first and together: throughput is made of them.
    fn take(load_threads: &LoadThreads) -> Self {
        let at_ns = monotonic_ns();
        let counts = match load_threads.direction() {
            Direction::Receive => load_threads.connections().iter().map(|c| c.inbound.read()).collect(),
            _ => load_threads.connections().iter().map(|c| c.tally.read()).collect(),
        };
        let inbound = match load_threads.direction() {
            Direction::Both => load_threads.connections().iter().map(|c| c.inbound.read()).collect(),
            _ => vec![CounterValues::default(); load_threads.connections().len()],
        };
        let process_cpu_ns = process_cpu_ns();
        let thread_cpu_ns = load_threads.cpu_ns();
        let tcp_state = if load_threads.is_udp() { |_: &Connection| TcpState::default() } else { tcp_state };
        let tcp = load_threads.connections().iter().map(tcp_state).collect();
        Self { at_ns, counts, inbound, thread_cpu_ns, process_cpu_ns, tcp, latencies: load_threads.latencies() }
    }

    fn bytes(&self) -> u64 {
        self.counts.iter().map(|c| c.bytes).sum()
    }

    fn bytes_in(&self) -> u64 {
        self.inbound.iter().map(|c| c.bytes).sum()
    }

    /// Datagrams sent, or received where nothing is sent.
    fn units(&self) -> u64 {
        self.counts.iter().map(|c| c.units).sum()
    }

    fn lost(&self) -> u64 {
        self.counts.iter().chain(&self.inbound).map(|c| c.lost).sum()
    }

    fn operations(&self) -> u64 {
        self.counts.iter().map(|c| c.operations).sum()
    }

    fn cpu_since(&self, before: &Self) -> CpuTime {
        CpuTime {
            user_ns: self.process_cpu_ns.0 - before.process_cpu_ns.0,
            system_ns: self.process_cpu_ns.1 - before.process_cpu_ns.1,
        }
    }

    fn retransmits(&self) -> u32 {
        self.tcp.iter().fold(0, |sum, tcp| sum.wrapping_add(tcp.total_retransmits))
    }
}

#[derive(Debug)]
pub(super) struct Observer {
    begin: Reading,
    last: Reading,
    samples: Vec<Sample>,
    /// Between the phases, where there are several.
    marks: Vec<Reading>,
}

impl Observer {
    pub(super) fn begin(load_threads: &LoadThreads) -> Self {
        let begin = Reading::take(load_threads);
        Self { last: begin.clone(), begin, samples: Vec::new(), marks: Vec::new() }
    }

    /// Reads what is due. Gives the sample, if one is.
    pub(super) fn look(&mut self, load_threads: &LoadThreads, due: DueReadings) -> Option<Sample> {
        let now = Reading::take(load_threads);
        if due.mark {
            self.marks.push(now.clone());
        }
        due.sample.then(|| self.sample(load_threads, now))
    }

    fn sample(&mut self, load_threads: &LoadThreads, now: Reading) -> Sample {
        let connections = now.tcp.len().max(1) as u64;
        let sample = Sample {
            at_ns: now.at_ns - self.begin.at_ns,
            span_ns: now.at_ns - self.last.at_ns,
            bytes: now.bytes() - self.last.bytes(),
            bytes_in: now.bytes_in() - self.last.bytes_in(),
            units: match load_threads.direction() {
                Direction::Request | Direction::Respond => now.operations() - self.last.operations(),
                _ => now.units() - self.last.units(),
            },
            lost: now.lost().saturating_sub(self.last.lost()),
            rtt_us: (now.tcp.iter().map(|tcp| u64::from(tcp.rtt_us)).sum::<u64>() / connections) as u32,
            congestion_window: now.tcp.iter().fold(0, |sum, tcp| sum.saturating_add(tcp.congestion_window)),
            retransmits: now.retransmits().wrapping_sub(self.last.retransmits()),
            latency: now.latencies.since(&self.last.latencies),
        };
        self.samples.push(sample);
        self.last = now;
        sample
    }

    /// The record of the window that ended with the last sample. The threads have stopped.
    pub(super) fn record(self, plan: &WorkerPlan, load_threads: &LoadThreads) -> Result<WorkerRecord, WorkerError> {
        let Self { begin, last: end, samples, marks } = self;
        let connections = load_threads
            .connections()
            .iter()
            .enumerate()
            .map(|(i, connection)| connection_record(connection, &begin, &end, i, load_threads))
            .collect::<Result<Vec<_>, _>>()?;
        // In a two-way load the second half of the threads receives over the connections of the first half.
        let groups = match load_threads.direction() {
            Direction::Both => begin.thread_cpu_ns.len() / 2,
            _ => begin.thread_cpu_ns.len(),
        };
        let threads = begin.thread_cpu_ns.iter().zip(&end.thread_cpu_ns).enumerate().map(|(i, (before, after))| {
            let (before_in, after_in) =
                if i < groups { (&begin.counts, &end.counts) } else { (&begin.inbound, &end.inbound) };
            let moved = |of: fn(&CounterValues) -> u64| {
                let mine = connections.iter().zip(before_in.iter().zip(after_in));
                mine.filter(|(c, _)| c.thread as usize == i % groups).map(|(_, (b, a))| of(a) - of(b)).sum()
            };
            ThreadRecord {
                bytes: moved(|count| count.bytes),
                operations: moved(|count| count.operations),
                cpu_ns: after.saturating_sub(*before),
            }
        });
        let report = load_threads.report();
        let transactions = match load_threads.direction() {
            Direction::Respond => Some(answered(&begin, &end)),
            _ => report.transactions,
        };
        let edges: Vec<&Reading> = std::iter::once(&begin).chain(&marks).chain([&end]).collect();
        let mut measured = report.phases.into_iter();
        let mut phases: Vec<WorkerPhase> =
            edges.windows(2).map(|edge| phase(load_threads, edge[0], edge[1], measured.next())).collect();
        if marks.is_empty() {
            // The window says the same.
            phases.clear();
        }
        let copied = |reading: &Reading| reading.counts.iter().map(|c| c.copied).sum::<u64>();
        let (engine, send_mode, receive_mode) = match &plan.load {
            Load::TcpStream(stream) => (stream.engine, stream.send_mode, stream.receive_mode),
            _ => (Engine::Blocking, SendMode::default(), ReceiveMode::default()),
        };
        Ok(WorkerRecord {
            name: plan.name.clone(),
            direction: load_threads.direction(),
            end: Some(plan.end()),
            background: false,
            engine,
            send_mode,
            receive_mode,
            window_begin_ns: begin.at_ns,
            window_end_ns: end.at_ns,
            process_cpu: end.cpu_since(&begin),
            threads: threads.collect(),
            zerocopy_copied: copied(&end) - copied(&begin),
            connections,
            samples,
            phases,
            transactions,
            datagrams: report.datagrams.map(Findings::into_record),
            packets: None,
            notes: report.notes,
        })
    }
}

/// The result of a phase between two readings; `measured` has the load threads' transactions.
fn phase(
    load_threads: &LoadThreads,
    begin: &Reading,
    end: &Reading,
    measured: Option<TransactionRecord>,
) -> WorkerPhase {
    let transactions = match load_threads.direction() {
        Direction::Respond => Some(answered(begin, end)),
        _ => measured,
    };
    WorkerPhase {
        begin_ns: begin.at_ns,
        end_ns: end.at_ns,
        bytes: end.bytes() - begin.bytes(),
        bytes_in: end.bytes_in() - begin.bytes_in(),
        operations: end.operations() - begin.operations(),
        retransmits: end.retransmits().wrapping_sub(begin.retransmits()),
        datagrams: end.units() - begin.units(),
        lost: end.lost().saturating_sub(begin.lost()),
        process_cpu: end.cpu_since(begin),
        transactions,
        packets: None,
    }
}

/// A responder looks at no clock; its transactions are those counted between two readings.
fn answered(begin: &Reading, end: &Reading) -> TransactionRecord {
    let (completed, window_ns) = (end.operations() - begin.operations(), end.at_ns - begin.at_ns);
    TransactionRecord { completed, window_ns, ..TransactionRecord::default() }
}

fn connection_record(
    connection: &Connection,
    begin: &Reading,
    end: &Reading,
    index: usize,
    load_threads: &LoadThreads,
) -> Result<ConnectionRecord, WorkerError> {
    let socket = &connection.socket;
    let what = || format!("read the state of the connection to {}", connection.remote);
    let (before, after) = (begin.counts[index], end.counts[index]);
    let (sent, received) = (connection.tally.read().bytes, connection.inbound.read().bytes);
    let (total_bytes, total_bytes_in) =
        if load_threads.direction() == Direction::Receive { (received, 0) } else { (sent, received) };
    let (congestion_control, mss) = if load_threads.is_udp() {
        (String::new(), 0)
    } else {
        (socket::congestion_control(socket).failing(what)?, socket::tcp_info(socket).failing(what)?.send_mss)
    };
    Ok(ConnectionRecord {
        thread: connection.thread,
        local: connection.local.clone(),
        remote: connection.remote.clone(),
        bytes: after.bytes - before.bytes,
        bytes_in: end.inbound[index].bytes - begin.inbound[index].bytes,
        operations: after.operations - before.operations,
        total_bytes,
        total_bytes_in,
        congestion_control,
        send_buffer: socket::buffer(socket, Buffer::Send).failing(what)?,
        receive_buffer: socket::buffer(socket, Buffer::Receive).failing(what)?,
        mss,
        mptcp: None,
        begin: begin.tcp[index],
        end: end.tcp[index],
    })
}

/// A connection that the peer has reset still answers; an answer that does not come counts as zeroes.
fn tcp_state(connection: &Connection) -> TcpState {
    let info = socket::tcp_info(&connection.socket).unwrap_or_default();
    let TcpInfo { rtt_us, rtt_variance_us, min_rtt_us, congestion_window, total_retransmits, .. } = info;
    TcpState {
        rtt_us,
        rtt_variance_us,
        // The kernel's value for "no measurement yet" is the largest number.
        min_rtt_us: if min_rtt_us == u32::MAX { 0 } else { min_rtt_us },
        congestion_window,
        total_retransmits,
        delivery_rate_bytes_per_second: info.delivery_rate,
        limited_by_receiver_us: info.limited_by_receiver_us,
        limited_by_send_buffer_us: info.limited_by_send_buffer_us,
        segments_out: info.segments_out,
        segments_in: info.segments_in,
        bytes_retransmitted: info.bytes_retransmitted,
    }
}
