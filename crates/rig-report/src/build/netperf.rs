//! One scenario as netperf prints a test (netperf 2.7.1, its "classic" output with CPU figures of both ends).
//!
//! Figures are means over the trials; [`DIFFERS`] says where they are not what netperf would count.

use std::net::SocketAddr;

use rig_facts::claim::{Metric, Side};
use rig_facts::figures::{self, Kind};
use rig_facts::record::TrialRecord;
use rig_load::plan::{Datagrams, Flow, Load, TcpStream, Transactions};
use rig_load::record::{ConnectionRecord, DatagramRecord};
use rig_stats::confidence::Goal;
use rig_suite::suite::LayoutColumn;
use rig_verdict::view::{Certainty, RunView, ScenarioView};

use super::results::STUDY;
use crate::document::Block;

pub(super) const DIFFERS: &str = "means over the trials. Elapsed is the window, after a warm-up; netperf counts from the \
    first byte to the last. Throughput of TCP is what the receiver took in the window, netperf's what was sent until all \
    had arrived. CPU (S: from /proc/stat) is that of the node's own CPUs, netperf's that of the host. Service demand \
    divides an end's CPU time by what that end carried, netperf by what the test carried. Sizes of sockets are those of \
    the first connection at its end, when the kernel may have raised them; netperf asks at the begin";

/// `None` without trials, and of a load that netperf has no test for.
pub(super) fn block(view: &RunView, column: &LayoutColumn, scenario: &ScenarioView) -> Option<Block> {
    let test = Test { view, column, scenario, kind: Kind::of(&scenario.plan)?, first: scenario.trials.first()? };
    let (name, table) = match &scenario.plan {
        Load::TcpStream(TcpStream { flow: Flow::Forward, message, .. }) => {
            ("TCP STREAM TEST", test.stream(["Send", "Recv"], *message))
        }
        Load::TcpStream(TcpStream { flow: Flow::Reverse, message, .. }) => {
            ("TCP MAERTS TEST", test.stream(["Recv", "Send"], *message))
        }
        Load::UdpStream(Datagrams { flow: Flow::Forward, message, .. }) => {
            ("UDP UNIDIRECTIONAL SEND TEST", test.datagrams(*message))
        }
        Load::TcpRr(load) => ("TCP REQUEST/RESPONSE TEST", test.transactions(load)),
        Load::TcpCrr(load) => ("TCP Connect/Request/Response TEST", test.transactions(load)),
        Load::UdpRr(load) => ("UDP REQUEST/RESPONSE TEST", test.transactions(load)),
        Load::TcpStream(_) | Load::UdpStream(_) | Load::Packets(_) | Load::Idle => return None,
    };
    let head = format!("{name} {}{}\n{}", test.ends(), test.confidence(), test.warning());
    let together = match scenario.plan.shape() {
        (1, 1) if figures::workers(test.first, Side::Local).count() == 1 => "",
        // netperf has one connection.
        _ => ", all connections together",
    };
    let caption = format!("{} ({}){together}", column.head, scenario.id);
    Some(Block::Preformatted { caption: Some(caption), text: head + &table })
}

struct Test<'a> {
    view: &'a RunView,
    column: &'a LayoutColumn,
    scenario: &'a ScenarioView,
    kind: Kind,
    first: &'a TrialRecord,
}

/// `value` in at least `width` characters, blank where there is none; to the left where `width` is negative.
fn show(value: Option<f64>, width: isize, decimals: usize) -> String {
    let text = value.map(|value| format!("{value:.decimals$}")).unwrap_or_default();
    let room = width.unsigned_abs();
    if width < 0 { format!("{text:<room$}") } else { format!("{text:>room$}") }
}

/// What netperf prints in place of a CPU figure that it does not have.
const UNKNOWN: f64 = -1.0;

/// Where the figures of a row come from.
#[derive(Clone, Copy, PartialEq)]
enum FigureSource {
    Trials,
    Publication,
}

impl Test<'_> {
    /// `from HOST (ADDRESS) port 0 AF_INET to HOST (ADDRESS) port 0 AF_INET`; the port is the one asked for, any.
    fn ends(&self) -> String {
        let end = |side| {
            let worker = figures::workers(self.first, side).next();
            let address = worker.and_then(|w| w.connections.first()?.local.parse::<SocketAddr>().ok());
            let family = if address.is_some_and(|a| a.is_ipv6()) { "AF_INET6" } else { "AF_INET" };
            let address = address.map_or(String::new(), |a| a.ip().to_string());
            format!("{} ({address}) port 0 {family}", worker.map_or("", |w| &w.name))
        };
        format!("from {} to {}", end(Side::Local), end(Side::Remote))
    }

    fn confidence(&self) -> String {
        let Some(Goal { level, width, .. }) = self.view.goal else { return String::new() };
        format!(" : +/-{}% @ {}% conf.", width.fraction() * 50.0, level.percent())
    }

    /// What netperf says when the intervals stayed too wide: each in full width, percent of the mean.
    fn warning(&self) -> String {
        if self.view.goal.is_none() || matches!(self.scenario.certainty, Certainty::Reached | Certainty::Fixed) {
            return String::new();
        }
        let width = |(side, metric): (Side, Metric)| {
            let sample = figures::sample(&self.scenario.trials, side, metric);
            let width = self.view.level.relative_width(&sample);
            width.map_or_else(|| "unknown".to_owned(), |width| format!("{:.3}%", 100.0 * width))
        };
        format!(
            "!!! WARNING\n\
             !!! Desired confidence was not achieved within the specified iterations.\n\
             !!! This implies that there was variability in the test environment that\n\
             !!! must be investigated before going further.\n\
             !!! Confidence intervals: Throughput      : {}\n\
             !!!                       Local CPU util  : {}\n\
             !!!                       Remote CPU util : {}\n\n",
            width(self.kind.rates()[0]),
            width((Side::Local, Metric::Cpu)),
            width((Side::Remote, Metric::Cpu)),
        )
    }

    fn value(&self, from: FigureSource, side: Side, metric: Metric) -> Option<f64> {
        match from {
            FigureSource::Trials => figures::sample(&self.scenario.trials, side, metric).mean(),
            FigureSource::Publication => self.column.published.get(side, metric),
        }
    }

    /// 10^6 bits per second.
    fn rate(&self, from: FigureSource, side: Side) -> Option<f64> {
        self.value(from, side, Metric::Throughput).map(|rate| rate / 1e6)
    }

    fn cpu(&self, from: FigureSource, side: Side) -> Option<f64> {
        self.value(from, side, Metric::Cpu).or((from == FigureSource::Trials).then_some(UNKNOWN))
    }

    fn demand(&self, from: FigureSource, side: Side) -> Option<f64> {
        self.value(from, side, self.kind.demand()).or((from == FigureSource::Trials).then_some(UNKNOWN))
    }

    /// Mean length of the windows, seconds.
    fn elapsed(&self) -> f64 {
        let trials = &self.scenario.trials;
        trials.iter().map(TrialRecord::seconds).sum::<f64>() / trials.len() as f64
    }

    /// Size of a socket buffer as the kernel tells it.
    fn buffer(&self, side: Side, size: fn(&ConnectionRecord) -> u32) -> u32 {
        figures::workers(self.first, side).find_map(|worker| worker.connections.first()).map_or(0, size)
    }

    /// The table's row with the published figures, if there are any.
    fn published(&self, row: impl FnOnce(FigureSource) -> String) -> String {
        if self.column.published.is_empty() { String::new() } else { row(FigureSource::Publication) }
    }

    /// `ways` is what the local and the remote end do.
    fn stream(&self, ways: [&str; 2], message: u32) -> String {
        let [local, remote] = ways;
        let title = format!(
            "Recv   Send    Send                          Utilization       Service Demand\n\
             Socket Socket  Message  Elapsed              {local:<8} {remote:<8} {local:<7} {remote}\n\
             Size   Size    Size     Time     Throughput  local    remote   local   remote\n\
             bytes  bytes   bytes    secs.    10^6bits/s  % S      % S      us/KB   us/KB\n\n"
        );
        let figures = |from| {
            format!(
                "{}   {}   {}   {}  {}",
                show(self.rate(from, Side::Receiver), 7, 2),
                show(self.cpu(from, Side::Local), -6, 2),
                show(self.cpu(from, Side::Remote), -6, 2),
                show(self.demand(from, Side::Local), -6, 3),
                show(self.demand(from, Side::Remote), -6, 3),
            )
        };
        let receive = self.buffer(Side::Receiver, |c| c.receive_buffer);
        let send = self.buffer(Side::Sender, |c| c.send_buffer);
        // Sizes of more than six digits take their room from the next column.
        let sizes = format!("{receive:>6} {send:>6}");
        let room = 20usize.saturating_sub(sizes.len() + 1);
        let own =
            format!("{sizes} {message:>room$}    {:<6.2}     {}\n", self.elapsed(), figures(FigureSource::Trials));
        title + &own + &self.published(|from| format!("{STUDY:<35}{}\n", figures(from)))
    }

    fn datagrams(&self, message: u32) -> String {
        let title = "Socket  Message  Elapsed      Messages                   CPU      Service\n\
                     Size    Size     Time         Okay Errors   Throughput   Util     Demand\n\
                     bytes   bytes    secs            #      #   10^6bits/sec % SS     us/KB\n\n";
        let mean = |side, count: fn(&DatagramRecord) -> u64| {
            let counted = |trial| figures::workers(trial, side).filter_map(|w| w.datagrams.as_ref()).map(count);
            let all: u64 = self.scenario.trials.iter().flat_map(counted).sum();
            all as f64 / self.scenario.trials.len() as f64
        };
        let figures = |from, side, end| {
            format!(
                "{}     {}   {}",
                show(self.rate(from, side), 7, 1),
                show(self.cpu(from, end), -6, 2),
                show(self.demand(from, end), -6, 3)
            )
        };
        let elapsed = self.elapsed();
        let send = format!("{:>6}", self.buffer(Side::Sender, |c| c.send_buffer));
        let receive = format!("{:>6}", self.buffer(Side::Receiver, |c| c.receive_buffer));
        let room = 14usize.saturating_sub(send.len() + 1);
        let own = format!(
            "{send} {message:>room$}   {elapsed:<7.2}   {:>7.0} {:>6.0}    {}\n{receive:<17}{elapsed:<7.2}   {:>7.0}{}{}\n",
            mean(Side::Sender, |d| d.sent),
            mean(Side::Sender, |d| d.send_errors),
            figures(FigureSource::Trials, Side::Sender, Side::Local),
            mean(Side::Receiver, |d| d.received),
            " ".repeat(11),
            figures(FigureSource::Trials, Side::Receiver, Side::Remote),
        );
        let published = |from| {
            let (sent, received) =
                (figures(from, Side::Sender, Side::Local), figures(from, Side::Receiver, Side::Remote));
            format!("{STUDY:<45}{sent}\n{}{received}\n", " ".repeat(45))
        };
        title.to_owned() + &own + &self.published(published)
    }

    fn transactions(&self, load: &Transactions) -> String {
        let title = "Local /Remote\n\
                     Socket Size   Request Resp.  Elapsed Trans.   CPU    CPU    S.dem   S.dem\n\
                     Send   Recv   Size    Size   Time    Rate     local  remote local   remote\n\
                     bytes  bytes  bytes   bytes  secs.   per sec  % S    % S    us/Tr   us/Tr\n\n";
        let figures = |from| {
            format!(
                "{}  {} {} {}  {}",
                show(self.value(from, Side::Local, Metric::Transactions), -7, 2),
                show(self.cpu(from, Side::Local), -6, 2),
                show(self.cpu(from, Side::Remote), -6, 2),
                show(self.demand(from, Side::Local), -6, 3),
                show(self.demand(from, Side::Remote), -6, 3),
            )
        };
        let buffers = |side| {
            let (send, receive) = (self.buffer(side, |c| c.send_buffer), self.buffer(side, |c| c.receive_buffer));
            format!("{send:<6} {receive:<6}")
        };
        let sizes = format!("{} {}", buffers(Side::Local), load.request);
        let own = format!(
            "{sizes:<21} {:<6} {:<6.2}  {}\n{}\n",
            load.response,
            self.elapsed(),
            figures(FigureSource::Trials),
            buffers(Side::Remote),
        );
        title.to_owned() + &own + &self.published(|from| format!("{STUDY:<37}{}\n", figures(from)))
    }
}
