//! What is left of a trial that was stopped inside its window: the interim samples of both ends.

use std::time::Duration;

use rig_facts::claim::Metric;
use rig_load::plan::{Datagrams, Flow, Load, TcpStream};
use rig_load::record::Sample;

use super::client_session::NAME;

/// The intervals that both ends told of, from the window's begin. CPU time and latency are counted at the window's end and
/// in the load threads, so that a trial that was stopped has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PartialIntervals {
    /// Of the client, and of the server.
    ends: [Vec<Sample>; 2],
}

impl PartialIntervals {
    /// Adds what an end has told of.
    pub fn add(&mut self, end: &str, sample: &Sample) {
        self.ends[usize::from(end != NAME)].push(*sample);
    }

    /// Whole intervals of both ends.
    fn intervals(&self) -> usize {
        self.ends.iter().map(Vec::len).min().unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.intervals() == 0
    }

    /// How much of the window the intervals cover, by the client's clock.
    pub fn covered(&self) -> Duration {
        let last = self.intervals().checked_sub(1).and_then(|last| self.ends[0].get(last));
        Duration::from_nanos(last.map_or(0, |sample| sample.at_ns))
    }

    /// A figure of the client and of the server, in the unit of the metric; `None` when samples of such a load do not
    /// have it.
    pub fn figure(&self, load: &Load, metric: Metric) -> Option<[f64; 2]> {
        let both_ways = matches!(
            load,
            Load::TcpStream(TcpStream { flow: Flow::Both, .. }) | Load::UdpStream(Datagrams { flow: Flow::Both, .. })
        );
        let is_rate = metric != Metric::Retransmits;
        let count = |sample: &Sample| match (metric, load) {
            // As in a whole trial: where payload goes both ways, an end's throughput is what it received.
            (Metric::Throughput, Load::TcpStream(_) | Load::UdpStream(_)) => {
                Some(if both_ways { sample.bytes_in } else { sample.bytes } as f64 * 8.0)
            }
            (Metric::Transactions, Load::TcpRr(_) | Load::TcpCrr(_) | Load::UdpRr(_))
            | (Metric::Datagrams, Load::UdpStream(_)) => Some(sample.units as f64),
            (Metric::Retransmits, Load::TcpStream(_) | Load::TcpRr(_) | Load::TcpCrr(_)) => {
                Some(sample.retransmits.into())
            }
            _ => None,
        };
        let mut figures = [0.0; 2];
        for (figure, samples) in figures.iter_mut().zip(&self.ends) {
            let samples = &samples[..self.intervals()];
            let total: f64 = samples.iter().map(count).sum::<Option<f64>>()?;
            let seconds = samples.iter().map(|sample| sample.span_ns as f64 / 1e9).sum::<f64>();
            *figure = if is_rate { total / seconds } else { total };
        }
        figures.iter().all(|figure| figure.is_finite()).then_some(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fuzz, server_session};
    use super::*;

    fn sample(at_ns: u64, bytes: u64, retransmits: u32) -> Sample {
        Sample {
            at_ns,
            span_ns: 500_000_000,
            bytes,
            bytes_in: 0,
            units: 0,
            lost: 0,
            rtt_us: 0,
            congestion_window: 0,
            retransmits,
            latency: None,
        }
    }

    #[test]
    fn only_intervals_of_both_ends_count() {
        let load = fuzz::test().client;
        let mut partial = PartialIntervals::default();
        partial.add(NAME, &sample(500_000_000, 1_000_000, 1));
        assert!(partial.is_empty());
        assert_eq!(partial.figure(&load, Metric::Throughput), None);
        partial.add(server_session::NAME, &sample(500_000_000, 900_000, 0));
        partial.add(NAME, &sample(1_000_000_000, 2_000_000, 2));
        assert_eq!(partial.covered(), Duration::from_millis(500));
        assert_eq!(partial.figure(&load, Metric::Throughput), Some([16e6, 14.4e6]));
        partial.add(server_session::NAME, &sample(1_000_000_000, 2_000_000, 0));
        assert_eq!(partial.covered(), Duration::from_secs(1));
        assert_eq!(partial.figure(&load, Metric::Throughput), Some([24e6, 23.2e6]));
        assert_eq!(partial.figure(&load, Metric::Retransmits), Some([3.0, 0.0]));
        assert_eq!(partial.figure(&load, Metric::Cpu), None);
    }
}
