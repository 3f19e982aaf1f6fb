//! The log of ntttcp-for-linux 1.4.3: its labels, units and order.
//!
//! Throughput is payload bits per second of the measured part in steps of 1000. `cycles/byte` and the shares of CPU
//! time are of the whole machine; `cpu busy (all)` is this process's CPU time, where 100 % is one CPU. Retransmissions
//! are those of the network namespace (RFC 4022 tcpRetransSegs), not of these connections alone.

use rig_load::worker::embedded::Protocol;

use super::console::Console;
use super::report::{Results, over};
use super::test_plan::{Length, LinuxOutput, Role, TestPlan};

const RULE: &str = "---------------------------------------------------------";

/// A throughput in the largest unit that leaves it above 1, up to Gbps.
pub fn throughput(bytes: u64, seconds: f64) -> String {
    let mut rate = over(bytes as f64 * 8.0, seconds);
    let mut units = ["bps", "Kbps", "Mbps", "Gbps"].into_iter().peekable();
    let mut unit = units.next().unwrap_or_default();
    while rate > 1000.0 && units.peek().is_some() {
        rate /= 1000.0;
        unit = units.next().unwrap_or_default();
    }
    format!("{rate:.2}{unit}")
}

/// The counters of `--show-tcp-retrans`: the text's label, the files' name, and the kernel's name.
pub const RETRANSMISSIONS: [(&str, &str, &str); 7] = [
    ("retrans_segments/sec", "retrans_segments_per_sec", "Tcp.RetransSegs"),
    ("lost_retrans/sec", "lost_retrans_per_sec", "TcpExt.TCPLostRetransmit"),
    ("syn_retrans/sec", "syn_retrans_per_sec", "TcpExt.TCPSynRetrans"),
    ("fast_retrans/sec", "fast_retrans_per_sec", "TcpExt.TCPFastRetrans"),
    ("forward_retrans/sec", "forward_retrans_per_sec", "TcpExt.TCPForwardRetrans"),
    ("slowStart_retrans/sec", "slowStart_retrans_per_sec", "TcpExt.TCPSlowStartRetrans"),
    ("retrans_fail/sec", "retrans_fail_per_sec", "TcpExt.TCPRetransFail"),
];

/// The rates of [`RETRANSMISSIONS`], per second.
pub fn retransmission_rates(results: &Results<'_>) -> [f64; 7] {
    let machine = &results.measured.machine;
    RETRANSMISSIONS.map(|(_, _, kernel)| {
        let count = if kernel.starts_with("TcpExt") { machine.extension(kernel) } else { machine.protocol(kernel) };
        over(count as f64, machine.seconds())
    })
}

/// Packets of the chosen interface, sent and received, and interrupts of the chosen devices: total, per second, and
/// packets for each.
pub fn device(results: &Results<'_>) -> (u64, u64, u64, f64, f64) {
    let machine = &results.measured.machine;
    let (sent, received) = (machine.of(|s| s.packets.0), machine.of(|s| s.packets.1));
    let interrupts = machine.of(|s| s.chosen_interrupts);
    let per_second = over(interrupts as f64, machine.seconds());
    (sent, received, interrupts, per_second, over((sent + received) as f64, interrupts as f64))
}

/// The first line of the output.
pub const TITLE: &str = concat!("NTTTCP for Linux 1.4.3 (netrig ", env!("CARGO_PKG_VERSION"), ")");

pub fn opening(plan: &TestPlan, output: &LinuxOutput, console: &Console) {
    console.plain(TITLE);
    console.plain(RULE);
    if plan.verbose {
        parameters(plan, output).iter().for_each(|line| console.plain(line));
        console.plain(RULE);
    }
}

fn parameters(plan: &TestPlan, output: &LinuxOutput) -> Vec<String> {
    let mut lines = Vec::new();
    let sends = plan.role == Role::Sender;
    let host = plan.mappings.first().map_or("", |mapping| mapping.host.as_str());
    let yes = |given: bool| if given { "yes" } else { "no" };
    let mut flag = |given: bool, text: &str| lines.extend(given.then(|| format!("*** {text}")));
    flag(!sends, "receiver role");
    flag(sends, "sender role");
    flag(plan.daemon, "run as daemon");
    flag(output.epoll, "use epoll()");
    flag(plan.hold, "hold receiver always running");
    flag(!plan.sync, "no sender/receiver synch");
    let mut value =
        |label: &str, tabs: usize, text: String| lines.push(format!("{label}:{} {text}", "\t".repeat(tabs)));
    if plan.many {
        value("multiple clients", 2, "yes".into());
    }
    if plan.last {
        value("last client", 3, "yes".into());
    }
    if sends {
        let (ports, threads, connections) = (plan.ports(), plan.threads_per_port, plan.connections_per_thread);
        value("connections", 3, format!("{ports} X {threads} X {connections}"));
    } else {
        value("ports", 4, plan.ports().to_string());
    }
    value("cpu affinity", 3, plan.cpus.first().map_or_else(|| "*".into(), ToString::to_string));
    value("server address", 3, host.into());
    if sends {
        let any = if plan.ipv6 { "::" } else { "0.0.0.0" };
        value("client address", 3, plan.source.map_or_else(|| any.into(), |source| source.to_string()));
    }
    value("domain", 4, if plan.ipv6 { "IPv6" } else { "IPv4" }.into());
    value("protocol", 3, if plan.protocol == Protocol::Tcp { "TCP" } else { "UDP" }.into());
    value("server port starting at", 1, plan.port.to_string());
    if let Some(port) = plan.source_port {
        value("client source port starting at", 1, port.to_string());
    }
    value(
        if sends { "sender socket buffer (bytes)" } else { "receiver socket buffer (bytes)" },
        1,
        plan.message.to_string(),
    );
    if let Some(throttle) = plan.throttle {
        let bits = throttle.saturating_mul(8).saturating_mul(plan.threads().into());
        value("bandwidth limit (bits/sec)", 1, bits.to_string());
    }
    if let Some(pacing) = plan.pacing {
        let connections = u64::from(plan.threads()) * u64::from(plan.connections_per_thread);
        value("fq rate limit (bits/sec)", 1, pacing.saturating_mul(8).saturating_mul(connections).to_string());
    }
    value("tcp nodelay", 1, yes(plan.no_delay).into());
    let or_no = |seconds: u32| if seconds == 0 { "no".into() } else { seconds.to_string() };
    value("test warm-up (sec)", 2, or_no(plan.warm_up));
    let length = match plan.length {
        Length::Seconds(seconds) => seconds.to_string(),
        _ => "continuous".into(),
    };
    value("test duration (sec)", 2, length);
    value("test cool-down (sec)", 2, or_no(plan.cool_down));
    value("show system tcp retransmit", 1, yes(output.tcp_retransmissions).into());
    if let Some(interface) = &output.interface {
        value("show packets for", 2, interface.clone());
    }
    if let Some(text) = &output.interrupts {
        value("show device interrupts for", 1, text.clone());
    }
    for (label, path) in [
        ("capture console output to:", &output.console_log),
        ("save output to xml file:", &output.xml),
        ("save output to json file:", &output.json),
    ] {
        if let Some(path) = path {
            value(label, 1, path.display().to_string());
        }
    }
    let enabled = |given: bool| if given { "enabled" } else { "disabled" };
    value("quiet mode", 3, enabled(plan.quiet).into());
    value("verbose mode", 3, enabled(plan.verbose).into());
    lines
}

pub fn results(results: &Results<'_>, output: &LinuxOutput, console: &Console) {
    lines(results, output).iter().for_each(|line| console.info(line));
    console.plain(RULE);
}

/// The lines of the results.
pub fn lines(results: &Results<'_>, output: &LinuxOutput) -> Vec<String> {
    let Results { plan, measured, extra, mhz } = results;
    let (seconds, machine) = (measured.seconds(), &measured.machine);
    let mut lines = Vec::new();
    let mut line = |text: String| lines.push(text);
    if plan.verbose {
        line("\tThread\tTime(s)\tThroughput".into());
        line("\t======\t=======\t==========".into());
        for (index, thread) in measured.threads.iter().enumerate() {
            line(format!("\t{index}\t {seconds:.2}\t {}", throughput(thread.bytes, seconds)));
        }
    }
    if let Some(connections) = extra.connections {
        line(format!("{connections} connections tested"));
    }
    line("#####  Totals:  #####".into());
    line(format!("test duration\t:{seconds:.2} seconds"));
    line(format!("total bytes\t:{}", measured.bytes()));
    line(format!("\t throughput\t:{}", throughput(measured.bytes(), seconds)));
    if plan.protocol == Protocol::Tcp {
        line(format!("\t retrans segs\t:{}", machine.protocol("Tcp.RetransSegs")));
    }
    if output.tcp_retransmissions {
        line("tcp retransmit:".into());
        for ((label, ..), rate) in RETRANSMISSIONS.iter().zip(retransmission_rates(results)) {
            line(format!("\t {label}\t:{rate:.2}"));
        }
    }
    let (sent, received, interrupts, per_second, packets_each) = device(results);
    if output.interface.is_some() {
        line("total packets:".into());
        line(format!("\t tx_packets\t:{sent}"));
        line(format!("\t rx_packets\t:{received}"));
    }
    if output.interrupts.is_some() {
        line("interrupts:".into());
        line(format!("\t total\t\t:{interrupts}"));
        line(format!("\t interrupts/sec\t:{per_second:.3}"));
    }
    if output.interface.is_some() && output.interrupts.is_some() {
        line(format!("\t pkts/interrupt\t:{packets_each:.2}"));
    }
    line(format!("cpu cores\t:{}", machine.end.cpus));
    line(format!("\t cpu speed\t:{:.3}MHz", mhz.unwrap_or(0.0)));
    line(format!("\t user\t\t:{:.2}%", machine.cpu_share(|c| c.user) * 100.0));
    line(format!("\t system\t\t:{:.2}%", machine.cpu_share(|c| c.system) * 100.0));
    line(format!("\t idle\t\t:{:.2}%", machine.cpu_share(|c| c.idle) * 100.0));
    line(format!("\t iowait\t\t:{:.2}%", machine.cpu_share(|c| c.iowait) * 100.0));
    line(format!("\t softirq\t:{:.2}%", machine.cpu_share(|c| c.softirq) * 100.0));
    line(format!("\t cycles/byte\t:{:.2}", cycles(results)));
    line(format!("cpu busy (all)\t:{:.2}%", machine.process_share() * 100.0));
    if plan.verbose
        && let Some(rtt) = extra.rtt_us
    {
        line(format!("tcpi rtt\t\t:{rtt} us"));
    }
    lines
}

/// What is not idle counts as used, as in the original.
pub fn cycles(results: &Results<'_>) -> f64 {
    results.cycles_per_byte(1.0 - results.measured.machine.cpu_share(|c| c.idle))
}
