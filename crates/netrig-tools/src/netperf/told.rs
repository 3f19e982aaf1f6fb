//! What a test of netperf found, as a run keeps it.

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::figures::statistic;
use rig_facts::record::{ToolRun, ToolTrial};

use super::VERSION;
use super::figures::{EndFigures, Figures};
use super::units::Unit;
use super::values::{Direction, Transport};
use crate::store_run::{ToolTest, tidy};

const TOOL: &str = "netperf";

/// What a test does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestKind {
    pub transport: Transport,
    pub direction: Direction,
    pub connects: bool,
}

impl TestKind {
    /// As netrig's own tests of the kind are called.
    pub fn name(self) -> String {
        let transport = self.transport.word().to_ascii_lowercase();
        let what = match (self.direction.transmits, self.direction.receives) {
            (true, true) if self.connects => "crr",
            (true, true) => "rr",
            (true, false) => "stream",
            (false, true) if self.transport.is_datagram() => "stream-reverse",
            (false, true) => "maerts",
            (false, false) => "cc",
        };
        format!("{transport}-{what}")
    }
}

/// What a test found, in netrig's units: bits and microseconds. Of two, the first is netperf's, the second netserver's.
#[derive(Debug, Default)]
pub struct NetperfResult {
    pub seconds: Option<f64>,
    /// What arrived, of a test one way; what each end sent and received by its own count.
    pub throughput: Option<f64>,
    pub sent: [Option<f64>; 2],
    pub received: [Option<f64>; 2],
    pub transactions: Option<f64>,
    pub cpu: [Option<f64>; 2],
    /// For each KiB, or each transaction.
    pub demand: [Option<f64>; 2],
    pub demand_of_transactions: bool,
    pub retransmits: [Option<f64>; 2],
    pub datagrams: [Option<f64>; 2],
    pub latencies: Vec<(Statistic, f64)>,
    pub server: Option<String>,
    pub settings: Vec<(String, String)>,
    pub machine: Vec<(String, String)>,
    pub notes: Vec<String>,
}

impl NetperfResult {
    pub fn test(self, kind: TestKind) -> ToolTest {
        let mut trial = ToolTrial { seconds: self.seconds, notes: self.notes, ..ToolTrial::default() };
        let is_one_way = kind.direction.is_one_way();
        let sides = match (is_one_way, kind.direction.transmits) {
            (true, true) => [Side::Sender, Side::Receiver],
            (true, false) => [Side::Receiver, Side::Sender],
            (false, _) => [Side::Local, Side::Remote],
        };
        if is_one_way {
            let (sender, receiver) = if kind.direction.transmits { (0, 1) } else { (1, 0) };
            trial.add(Side::Receiver, Metric::Throughput, self.received[receiver].or(self.throughput));
            trial.add(Side::Sender, Metric::Throughput, self.sent[sender]);
            trial.add(Side::Sender, Metric::Datagrams, self.datagrams[sender]);
            trial.add(Side::Receiver, Metric::Datagrams, self.datagrams[receiver]);
        } else {
            trial.add(Side::Local, Metric::Transactions, self.transactions);
            for (statistic, us) in self.latencies {
                trial.add(Side::Local, Metric::Latency(statistic), us);
            }
        }
        for (at, side) in sides.into_iter().enumerate() {
            let demand = if self.demand_of_transactions { Metric::TransactionDemand } else { Metric::ServiceDemand };
            trial.add(side, Metric::Cpu, self.cpu[at]);
            trial.add(side, demand, self.demand[at]);
            if !kind.transport.is_datagram() {
                trial.add(side, Metric::Retransmits, self.retransmits[at]);
            }
        }
        let run = ToolRun {
            tool: TOOL.to_owned(),
            test: kind.name(),
            server: self.server,
            settings: self.settings,
            machine: self.machine,
            ..ToolRun::default()
        };
        ToolTest { run, trial }
    }
}

/// In bits per second.
pub fn bits(unit: Unit, value: f64) -> Option<f64> {
    match unit {
        Unit::Bits(power) => Some(value * 10_f64.powi(power as i32)),
        Unit::Bytes(power) => Some(value * 8.0 * 1024_f64.powi(power as i32)),
        Unit::Transactions | Unit::Microseconds => None,
    }
}

/// What netrig's own test found, iteration by iteration.
pub fn of_figures(f: &Figures<'_>) -> ToolTest {
    let (options, ends) = (f.options, [&f.local, &f.remote]);
    let is_one_way = options.direction.is_one_way();
    let rate = |amount: u64| (amount > 0 && f.elapsed > 0.0).then(|| amount as f64 / f.elapsed);
    let of_bytes = |of: fn(&EndFigures) -> u64| ends.map(|end| rate(of(end)).map(|bytes| bytes * 8.0));
    let calls = |sends: bool, end: &EndFigures| rate(if sends { end.send_calls } else { end.receive_calls });
    let transmits = options.direction.transmits;
    let latencies = f.latencies.as_ref().filter(|_| !is_one_way).map(|histogram| {
        Statistic::ALL.into_iter().filter_map(|of| Some((of, statistic(histogram, of)?))).collect::<Vec<_>>()
    });
    let round_trip = (!is_one_way && f.round_trip > 0.0).then_some((Statistic::Mean, f.round_trip));
    let size = |name: &str, bytes: Option<i64>| {
        bytes.filter(|bytes| *bytes > 0).map(|bytes| (name.to_owned(), format!("{bytes} bytes")))
    };
    let own = |text: &str, is: bool| is.then(|| (text.to_owned(), "1".to_owned()));
    let control = |name: &str, end: &EndFigures| {
        let algorithm = tidy(&end.congestion_control);
        let is_known = !["", "0", "-1", "Deprecated"].contains(&algorithm.as_str());
        is_known.then(|| (name.to_owned(), algorithm))
    };
    let asked = |bytes: Option<u32>| bytes.map(i64::from);
    let sender = if transmits { &f.local } else { &f.remote };
    let settings = [
        size("request", asked(options.request)),
        size("response", asked(options.response)),
        (!is_one_way && options.first_burst > 0).then(|| ("burst".to_owned(), options.first_burst.to_string())),
        size("local send buffer", asked(options.buffer.local.send)),
        size("local receive buffer", asked(options.buffer.local.receive)),
        size("remote send buffer", asked(options.buffer.remote.send)),
        size("remote receive buffer", asked(options.buffer.remote.receive)),
        own("local TCP_NODELAY", f.local.no_delay),
        own("remote TCP_NODELAY", f.remote.no_delay),
        control("local congestion control", &f.local),
        control("remote congestion control", &f.remote),
        size("MSS", Some(f.segment_size)),
        size("send size", Some(sender.send_size).filter(|_| is_one_way)),
    ];
    let told = NetperfResult {
        seconds: Some(f.elapsed),
        throughput: bits(f.unit, f.throughput),
        sent: of_bytes(|end| end.bytes_sent),
        received: of_bytes(|end| end.bytes_received),
        transactions: (!is_one_way).then_some(f.transaction_rate),
        // Below 0 where they were not measured.
        cpu: ends.map(|end| Some(end.cpu_percent)),
        demand: ends.map(|end| Some(end.service_demand)),
        demand_of_transactions: f.unit.counts_transactions(),
        retransmits: ends.map(|end| Some(end.retransmissions as f64)),
        datagrams: match options.transport.is_datagram() && is_one_way {
            true => [calls(transmits, &f.local), calls(!transmits, &f.remote)],
            false => [None, None],
        },
        latencies: latencies.unwrap_or_default().into_iter().chain(round_trip).collect(),
        server: Some(f.destination.host.clone()),
        settings: settings.into_iter().flatten().collect(),
        machine: Vec::new(),
        notes: Vec::new(),
    };
    let kind = TestKind { transport: options.transport, direction: options.direction, connects: options.connects };
    let mut test = told.test(kind);
    test.run.version = Some(format!("{VERSION} (netrig {})", env!("CARGO_PKG_VERSION")));
    test
}
