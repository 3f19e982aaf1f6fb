//! What runs, interval by interval, on standard error.

use std::net::SocketAddr;

use anyhow::Result;
use netrig_ends::client::Watch;
use netrig_ends::client_session::{NAME, Test, TestRecords};
use netrig_ends::partial::PartialIntervals;
use rig_cli::streams::note;
use rig_facts::record::Environment;
use rig_load::plan::Load;
use rig_load::record::Sample;
use rig_stats::units::{bits_at_a_glance, rate_at_a_glance};
use rig_sys::socket::NamedAddress;

/// Shows each interval once both ends have told of it.
#[derive(Debug)]
pub struct IntervalDisplay {
    load: Load,
    seconds: f64,
    trials: u32,
    quiet: bool,
    trial: u32,
    /// Samples that the other end has none for yet: of the client, and of the server.
    waiting: [Vec<Sample>; 2],
    /// All of the trial that runs.
    partial: PartialIntervals,
    server: Option<(NamedAddress, Environment)>,
}

impl IntervalDisplay {
    pub fn new(test: &Test, trials: u32, quiet: bool) -> Self {
        let seconds = test.phases.window.as_secs_f64();
        let (load, waiting) = (test.client.clone(), Default::default());
        Self { load, seconds, trials, quiet, trial: 1, waiting, partial: PartialIntervals::default(), server: None }
    }

    /// The server, once it has introduced itself.
    pub fn server(&self) -> Option<&(NamedAddress, Environment)> {
        self.server.as_ref()
    }

    /// What is known of the trial that was running last, unless it is done.
    pub fn partial(&self) -> &PartialIntervals {
        &self.partial
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            note(text);
        }
    }

    fn show(&self, client: &Sample, server: &Sample) {
        let trial = if self.trials > 1 { format!("#{} ", self.trial) } else { String::new() };
        let at = client.at_ns as f64 / 1e9;
        let figures = [("client", client), ("server", server)].map(|(end, sample)| {
            let span = sample.span_ns.max(1) as f64 / 1e9;
            let rate = |count: u64| count as f64 / span;
            let figure = match &self.load {
                Load::TcpRr(_) | Load::TcpCrr(_) | Load::UdpRr(_) => {
                    format!("{:>15}", rate_at_a_glance(rate(sample.units)))
                }
                Load::TcpStream(_) | Load::UdpStream(_) | Load::Packets(_) | Load::Idle => {
                    let bytes = sample.bytes.saturating_add(sample.bytes_in);
                    format!("{:>11}", bits_at_a_glance(rate(bytes) * 8.0))
                }
            };
            format!("{end} {figure}")
        });
        let lost = client.lost.saturating_add(server.lost);
        let retransmits = u64::from(client.retransmits) + u64::from(server.retransmits);
        let trouble = [(retransmits, "retransmits"), (lost, "lost")]
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("  {n} {what}"))
            .collect::<String>();
        self.say(&format!("{trial}{at:>6.1} of {:.1} s  {}{trouble}", self.seconds, figures.join("  ")));
    }
}

impl Watch for IntervalDisplay {
    fn connected(&mut self, address: SocketAddr, machine: &Environment) -> Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        let address = NamedAddress::from(address);
        self.say(&format!("Connected to {address}: {} for {:.1} s", self.load.name(), self.seconds));
        self.server = Some((address, machine.clone()));
        Ok(())
    }

    fn interim(&mut self, end: &'static str, sample: &Sample) {
        self.partial.add(end, sample);
        self.waiting[usize::from(end != NAME)].push(*sample);
        let [client, server] = &mut self.waiting;
        if !client.is_empty() && !server.is_empty() {
            let (client, server) = (client.remove(0), server.remove(0));
            self.show(&client, &server);
        }
    }

    fn done(&mut self, _: &TestRecords) -> Result<()> {
        self.waiting = Default::default();
        self.partial = PartialIntervals::default();
        self.trial += 1;
        Ok(())
    }
}
