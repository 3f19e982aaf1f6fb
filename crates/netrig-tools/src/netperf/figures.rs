//! What a test found, as its outputs have it.

use rig_stats::histogram::Histogram;

use super::options::{Bursts, Options};
use super::units::Unit;
use super::values::SendReceive;
use super::wire::CpuShares;

/// What one end was asked for, had and did. Sizes are bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndFigures {
    pub buffer_asked: SendReceive<Option<u32>>,
    /// Before the load and after it, as the kernel tells them.
    pub buffer: SendReceive<i64>,
    pub buffer_end: SendReceive<i64>,
    pub send_size: i64,
    pub receive_size: i64,
    pub width: SendReceive<u32>,
    pub alignment: SendReceive<u32>,
    pub offset: SendReceive<u32>,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub send_calls: u64,
    pub receive_calls: u64,
    pub failed_sends: u64,
    /// CPU time of all CPUs together; `None` where it was not measured.
    pub cpu: Option<CpuShares>,
    /// Of the confidence loop: means of its iterations, -1 where they were not measured.
    pub cpu_percent: f64,
    pub service_demand: f64,
    /// `U` where CPU time was not measured.
    pub cpu_method: char,
    pub cpus: u32,
    pub bound_to: Option<u32>,
    pub no_delay: bool,
    pub cork: bool,
    pub bursts: Option<Bursts>,
    pub priority: i64,
    pub type_of_service: i64,
    pub congestion_control: String,
    pub fill_file: String,
    /// -1 where the transport counts none.
    pub retransmissions: i64,
}

/// The address of an end of the data connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataEnd {
    pub host: String,
    pub port: u16,
    pub family: u32,
}

/// Widths of confidence intervals, percent of the mean.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Widths {
    pub throughput: f64,
    pub local_cpu: f64,
    pub remote_cpu: f64,
}

/// All of a test.
#[derive(Debug, Clone)]
pub struct Figures<'a> {
    pub options: &'a Options,
    pub unit: Unit,
    pub local: EndFigures,
    pub remote: EndFigures,
    pub source: DataEnd,
    pub destination: DataEnd,
    /// Seconds, and throughput in `unit`: means of the iterations.
    pub elapsed: f64,
    pub throughput: f64,
    /// Per second.
    pub transaction_rate: f64,
    /// Microseconds.
    pub round_trip: f64,
    /// Iterations of the confidence loop.
    pub iterations: u32,
    pub widths: Widths,
    /// Whether the confidence loop came to its end without what it was asked for.
    pub unconfident: bool,
    /// TCP_MAXSEG, -1 without.
    pub segment_size: i64,
    pub latencies: Option<Histogram>,
}

impl Figures<'_> {
    /// Throughput of `bytes` in the unit of the test; with transactions in 10^6 bits/s.
    pub fn byte_rate(&self, bytes: u64) -> f64 {
        let unit = if self.unit.counts_transactions() { Unit::Bits(6) } else { self.unit };
        unit.rate(bytes as f64, self.elapsed)
    }

    /// `usec/Tran` or `usec/KB`
    pub fn service_demand_unit(&self) -> &'static str {
        if self.unit.counts_transactions() { "usec/Tran" } else { "usec/KB" }
    }

    /// Microseconds, 0 without a value.
    pub fn latency_us(&self, of: impl Fn(&Histogram) -> Option<f64>) -> f64 {
        self.latencies.as_ref().and_then(of).unwrap_or_default() / 1000.0
    }
}

/// Microseconds of CPU time for each KiB or transaction, of all CPUs together.
///
/// netperf's manual, "service demand": utilization x CPUs x time / amount.
pub fn service_demand(unit: Unit, cpu: &CpuShares, amount: f64, seconds: f64) -> f64 {
    let amount = if unit.counts_transactions() { amount } else { amount / 1024.0 };
    f64::from(cpu.busy) / 100.0 * f64::from(cpu.cpus) * seconds * 1e6 / amount
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_demand_is_cpu_time_for_each_unit() {
        let cpu = CpuShares { busy: 50.0, cpus: 4, ..CpuShares::default() };
        let of_transactions = service_demand(Unit::Transactions, &cpu, 1_000_000.0, 10.0);
        assert!((of_transactions - 20.0).abs() < 1e-9, "2 CPUs for 10 s are 20 s");
        let of_bytes = service_demand(Unit::Bits(6), &cpu, 1024.0 * 1000.0, 10.0);
        assert!((of_bytes - 20_000.0).abs() < 1e-6);
    }
}
