//! Whether a record that came over the wire can be what a worker saw: figures are computed from it.

use rig_load::plan::{Load, Phases};
use rig_load::record::{Direction, WorkerRecord};

use super::machine::MachineUse;
use super::wire::ServerResult;

/// More than any machine moves in a day, and small enough that thousands of such numbers can be added.
const MOST: u64 = 1 << 50;
/// Samples beyond those that the interval makes up.
const SPARE_SAMPLES: u64 = 2;
/// CPUs of a machine (the size of the C library's `cpu_set_t`).
const CPUS: usize = 1024;

/// Refuses a record of the server that does not fit the test.
///
/// # Errors
/// What does not fit, in words.
pub fn check(done: &ServerResult, load: &Load, phases: &Phases, direction: Direction) -> Result<(), &'static str> {
    let ServerResult { record, machine } = done;
    let fits = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    let (threads, connections) = load.shape();
    fits(record.direction == direction, "the direction of its load")?;
    // Both ways take a thread each.
    let ways = if direction == Direction::Both { 2 } else { 1 };
    fits(record.threads.len() as u64 <= ways * u64::from(threads), "the number of its threads")?;
    fits(record.connections.len() as u64 <= u64::from(threads) * u64::from(connections), "the number of connections")?;
    fits(record.samples.len() as u64 <= most_samples(phases), "the number of its samples")?;
    fits(record.window_begin_ns < record.window_end_ns, "its window")?;
    fits(record.window_end_ns - record.window_begin_ns < MOST, "its window")?;
    fits(counts(record).chain(machine_counts(machine)).all(|count| count <= MOST), "a count")?;
    fits(machine.begin_ns <= machine.end_ns && machine.cpus.len() <= CPUS, "the use of the machine")?;
    let share = machine.share.iter().flat_map(|share| [share.processes, share.network, share.queues]);
    let most = 100.5 * machine.cpus.len() as f64;
    fits(share.into_iter().all(|percent| (0.0..=most).contains(&percent)), "the use of its CPUs")?;
    fits(percentages(machine).all(|percent| (0.0..=100.5).contains(&percent)), "the use of a CPU")
}

/// The most samples that an end can have of a window.
pub fn most_samples(phases: &Phases) -> u64 {
    let samples = phases.window.as_nanos() / phases.interval.as_nanos().max(1);
    u64::try_from(samples).unwrap_or(u64::MAX).saturating_add(SPARE_SAMPLES)
}

fn counts(record: &WorkerRecord) -> impl Iterator<Item = u64> {
    let connections =
        record.connections.iter().flat_map(|c| [c.bytes, c.bytes_in, c.operations, c.total_bytes, c.total_bytes_in]);
    let threads = record.threads.iter().flat_map(|t| [t.bytes, t.operations, t.cpu_ns]);
    let samples = record.samples.iter().flat_map(|s| [s.bytes, s.bytes_in, s.units, s.lost, s.at_ns, s.span_ns]);
    let transactions =
        record.transactions.iter().flat_map(|t| [t.completed, t.lost, t.failed, t.overdue, t.unanswered, t.window_ns]);
    let datagrams = record.datagrams.iter().flat_map(|d| {
        [d.sent, d.send_errors, d.received, d.lost, d.reordered, d.duplicated, d.late, d.malformed, d.calls]
    });
    let whole = [record.process_cpu.user_ns, record.process_cpu.system_ns, record.zerocopy_copied];
    connections.chain(threads).chain(samples).chain(transactions).chain(datagrams).chain(whole)
}

fn machine_counts(machine: &MachineUse) -> impl Iterator<Item = u64> {
    let cpus = machine.cpus.iter().flat_map(|c| [c.packets_processed, c.backlog_drops, c.time_squeezes]);
    let p = &machine.protocol;
    cpus.chain([
        p.tcp_segments_out,
        p.tcp_segments_in,
        p.tcp_retransmitted_segments,
        p.tcp_in_errors,
        p.ip_in_discards,
        p.ip_out_discards,
        p.udp_receive_buffer_errors,
    ])
}

fn percentages(machine: &MachineUse) -> impl Iterator<Item = f64> {
    let shares = machine.cpus.iter().flat_map(|c| [c.user, c.system, c.softirq, c.irq, c.steal, c.idle]);
    shares.chain(machine.cpus.iter().flat_map(|c| [c.busy_by_ticks, c.counting]).flatten())
}
