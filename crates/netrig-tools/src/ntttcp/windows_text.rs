//! The tables and the XML of NTttcp for Windows 5.40: its headings, units and order.
//!
//! KB and MB are 1024 and 1 048 576 bytes, mbps is decimal. Where Windows counts what Linux does not have, the nearest
//! counter stands in its column: DPCs are softirqs of receive processing (NET_RX), interrupts are all of the machine's
//! device interrupts, packets are the TCP segments (RFC 4022) or UDP datagrams (RFC 4113) of the network namespace.

use rig_load::worker::embedded::Protocol;

use super::console::Console;
use super::report::{Results, over};
use super::test_plan::{Length, Role, TestPlan, WindowsOutput};

const VERSION: &str = "5.40";
const KB: f64 = 1024.0;
const MB: f64 = 1024.0 * 1024.0;
/// The original's number of buffers when -t says how long: as many as fit.
const BUFFERS_WITH_TIME: u64 = i64::MAX as u64;

pub fn opening(plan: &TestPlan, output: &WindowsOutput, console: &Console) {
    console.plain(&format!("Copyright Version {VERSION} (netrig {})", env!("CARGO_PKG_VERSION")));
    if plan.verbose {
        parameters(plan, output).into_iter().for_each(|(name, value)| console.plain(&format!("{name}: {value}")));
        for (index, mapping) in plan.mappings.iter().enumerate() {
            let cpu = mapping.cpu.map_or_else(|| "*".to_owned(), |cpu| cpu.to_string());
            console.plain(&format!("mapping[{index}]: {},{cpu},{}", mapping.ports, mapping.host));
        }
    }
}

fn parameters(plan: &TestPlan, output: &WindowsOutput) -> Vec<(&'static str, String)> {
    let flag = |given: bool| u8::from(given).to_string();
    vec![
        ("buffers_length", plan.message.to_string()),
        ("num_buffers_to_send", buffers(plan).to_string()),
        ("send_socket_buff", output.send_buffer.to_string()),
        ("recv_socket_buff", output.receive_buffer.to_string()),
        ("port", plan.port.to_string()),
        ("no_sync", flag(!plan.sync)),
        ("wait_timeout_milliseconds", output.timeout_ms.to_string()),
        ("async_flag", flag(plan.outstanding.is_some())),
        ("verbose_flag", flag(plan.verbose)),
        ("use_ipv6_flag", flag(plan.ipv6)),
        ("send_flag", flag(plan.role == Role::Sender)),
        ("udp_flag", flag(plan.protocol == Protocol::Udp)),
        ("run_time", run_time_ms(plan).to_string()),
        ("warmup_time", (u64::from(plan.warm_up) * 1000).to_string()),
        ("cooldown_time", (u64::from(plan.cool_down) * 1000).to_string()),
        ("dash_n_timeout", dash_n_ms(plan).to_string()),
        ("bind_sender_flag", flag(plan.source.is_some())),
        ("no_delay", flag(plan.no_delay)),
        ("throughput_Bpms", output.throughput_bytes_per_ms.to_string()),
    ]
}

fn buffers(plan: &TestPlan) -> u64 {
    match plan.length {
        Length::Messages { each, .. } => each,
        _ => BUFFERS_WITH_TIME,
    }
}

fn run_time_ms(plan: &TestPlan) -> u64 {
    match plan.length {
        Length::Seconds(seconds) => u64::from(seconds) * 1000,
        _ => 0,
    }
}

fn dash_n_ms(plan: &TestPlan) -> u64 {
    match plan.length {
        Length::Messages { at_most, .. } => u64::from(at_most) * 1000,
        _ => 0,
    }
}

/// The figures that both outputs have.
struct Figures {
    seconds: f64,
    bytes: f64,
    rate: f64,
    sent: u64,
    received: u64,
    retransmitted: u64,
    errors: u64,
    frame: f64,
    softirqs: f64,
    interrupts: f64,
    /// Percent, the mean over the CPUs of what was not idle.
    cpu: f64,
    cycles: f64,
}

impl Figures {
    fn of(results: &Results<'_>) -> Self {
        let Results { plan, measured, .. } = results;
        let machine = &measured.machine;
        let [sent, received, retransmitted, errors] = match (plan.protocol, plan.ipv6) {
            (Protocol::Tcp, _) => {
                ["Tcp.OutSegs", "Tcp.InSegs", "Tcp.RetransSegs", "Tcp.InErrs"].map(|n| machine.protocol(n))
            }
            (Protocol::Udp, false) => {
                let [sent, received, errors] =
                    ["Udp.OutDatagrams", "Udp.InDatagrams", "Udp.InErrors"].map(|n| machine.protocol(n));
                [sent, received, 0, errors]
            }
            (Protocol::Udp, true) => {
                let [sent, received, errors] =
                    ["Udp6OutDatagrams", "Udp6InDatagrams", "Udp6InErrors"].map(|n| machine.version6(n));
                [sent, received, 0, errors]
            }
        };
        let bytes = measured.bytes() as f64;
        let busy = 1.0 - machine.cpu_share(|c| c.idle + c.iowait);
        Self {
            seconds: measured.seconds(),
            bytes,
            rate: results.rate(),
            sent,
            received,
            retransmitted,
            errors,
            frame: over(bytes, if plan.role == Role::Sender { sent } else { received } as f64),
            softirqs: machine.of(|s| s.receive_softirqs) as f64,
            interrupts: machine.of(|s| s.interrupts) as f64,
            cpu: busy * 100.0,
            cycles: results.cycles_per_byte(busy),
        }
    }
}

/// The tables.
pub fn results(results: &Results<'_>, output: &WindowsOutput) -> String {
    let Results { plan, measured, .. } = results;
    let f = Figures::of(results);
    let mut text = String::new();
    let mut line = |line: String| text.push_str(&(line + "\n"));
    if !output.hide_threads {
        line("\n\nThread  Time(s) Throughput(KB/s) Avg B / Compl".into());
        line("======  ======= ================ =============".into());
        for (index, thread) in measured.threads.iter().enumerate() {
            let (bytes, operations) = (thread.bytes as f64, thread.operations as f64);
            let (rate, each) = (over(bytes, f.seconds) / KB, over(bytes, operations));
            line(format!("{index:>6} {:>8.3} {rate:>16.3} {each:>13.3}", f.seconds));
        }
    }
    line("\n\n#####  Totals:  #####".into());
    line("\n\n   Bytes(MEG)    realtime(s) Avg Frame Size Throughput(MB/s)".into());
    line("================ =========== ============== ================".into());
    line(format!("{:>16.6} {:>11.3} {:>14.3} {:>16.3}", f.bytes / MB, f.seconds, f.frame, f.rate / MB));
    let buffers = f.bytes / f64::from(plan.message);
    line("\n\nThroughput(Buffers/s) Cycles/Byte       Buffers".into());
    line("===================== =========== =============".into());
    line(format!("{:>21.3} {:>11.3} {buffers:>13.3}", over(buffers, f.seconds), f.cycles));
    line("\n\nDPCs(count/s) Pkts(num/DPC)   Intr(count/s) Pkts(num/intr)".into());
    line("============= ============= =============== ==============".into());
    line(format!(
        "{:>13.3} {:>13.3}   {:>13.3}  {:>13.3}",
        over(f.softirqs, f.seconds),
        over(f.received as f64, f.softirqs),
        over(f.interrupts, f.seconds),
        over(f.received as f64, f.interrupts)
    ));
    line("\n\nPackets Sent Packets Received Retransmits Errors Avg. CPU %".into());
    line("============ ================ =========== ====== ==========".into());
    line(format!("{:>12} {:>16} {:>11} {:>6} {:>10.3}", f.sent, f.received, f.retransmitted, f.errors, f.cpu));
    text
}

/// The XML of one test, which is appended to what the file has.
pub fn xml(results: &Results<'_>, output: &WindowsOutput) -> String {
    let Results { plan, measured, .. } = results;
    let f = Figures::of(results);
    let root = if plan.role == Role::Sender { "ntttcps" } else { "ntttcpr" };
    let mut xml = super::linux_file::XmlWriter::new();
    xml.open(root, &[("computername", &super::linux_file::host_name()), ("version", VERSION)]);
    xml.open("parameters", &[]);
    let flag = |given: bool| if given { "True" } else { "False" }.to_owned();
    let source = plan.source.map(|source| source.to_string()).unwrap_or_default();
    for (name, value) in [
        ("send_socket_buff", output.send_buffer.to_string()),
        ("recv_socket_buff", output.receive_buffer.to_string()),
        ("port", plan.port.to_string()),
        ("sync_port", flag(false)),
        ("no_sync", flag(!plan.sync)),
        ("wait_timeout_milliseconds", output.timeout_ms.to_string()),
        ("async", flag(plan.outstanding.is_some())),
        ("verbose", flag(plan.verbose)),
        ("wsa", flag(false)),
        ("use_ipv6", flag(plan.ipv6)),
        ("udp", flag(plan.protocol == Protocol::Udp)),
        ("udp_unconnected", flag(false)),
        ("verify_data", flag(false)),
        ("wait_all", flag(false)),
        ("run_time", run_time_ms(plan).to_string()),
        ("warmup_time", (u64::from(plan.warm_up) * 1000).to_string()),
        ("cooldown_time", (u64::from(plan.cool_down) * 1000).to_string()),
        ("dash_n_timeout", dash_n_ms(plan).to_string()),
        ("bind_sender", flag(plan.source.is_some())),
        ("sender_name", source),
        ("max_active_threads", plan.threads().to_string()),
        ("udp_uso_size", "0".into()),
        ("udp_receive_coalescing", "0".into()),
        ("tp", flag(false)),
        ("use_hvsocket_flag", flag(false)),
        ("no_stdio_buffer", flag(true)),
        ("throughput_Bpms", output.throughput_bytes_per_ms.to_string()),
        ("cpu_burn", "0".into()),
        ("latency_measurement", flag(false)),
        ("use_io_compl_ports", flag(false)),
        ("cpu_from_idle_flag", flag(false)),
        ("get_estats", flag(false)),
        ("qos_flag", flag(false)),
        ("jitter_measurement", flag(false)),
        ("packet_spacing", "0".into()),
    ] {
        xml.leaf(name, None, &value);
    }
    xml.close("parameters");
    let three = |value: f64| format!("{value:.3}");
    let rates = |xml: &mut super::linux_file::XmlWriter, rate: f64| {
        xml.leaf("throughput", Some("KB/s"), &three(rate / KB));
        xml.leaf("throughput", Some("MB/s"), &three(rate / MB));
        xml.leaf("throughput", Some("mbps"), &three(rate * 8.0 / 1e6));
        xml.leaf("throughput", Some("Bps"), &format!("{rate:.1}"));
    };
    if !output.hide_threads {
        for (index, thread) in measured.threads.iter().enumerate() {
            xml.open("thread", &[("index", &index.to_string())]);
            xml.leaf("realtime", Some("s"), &three(f.seconds));
            rates(&mut xml, over(thread.bytes as f64, f.seconds));
            xml.leaf("avg_bytes_per_compl", Some("B"), &three(over(thread.bytes as f64, thread.operations as f64)));
            xml.close("thread");
        }
    }
    let each = |thread: &rig_load::worker::embedded::Counts| over(thread.bytes as f64, thread.operations as f64);
    let mean_each = over(measured.threads.iter().map(each).sum(), measured.threads.len() as f64);
    let buffers = f.bytes / f64::from(plan.message);
    for (name, metric, value) in [
        ("total_bytes", Some("MB"), format!("{:.6}", f.bytes / MB)),
        ("realtime", Some("s"), format!("{:.6}", f.seconds)),
        ("avg_bytes_per_compl", Some("B"), three(over(f.bytes, measured.operations() as f64))),
        ("threads_avg_bytes_per_compl", Some("B"), three(mean_each)),
        ("avg_frame_size", Some("B"), three(f.frame)),
        ("throughput", Some("MB/s"), three(f.rate / MB)),
        ("throughput", Some("mbps"), three(f.rate * 8.0 / 1e6)),
        ("throughput", Some("Bps"), format!("{:.1}", f.rate)),
        ("total_buffers", None, three(buffers)),
        ("throughput", Some("buffers/s"), three(over(buffers, f.seconds))),
        ("avg_packets_per_interrupt", Some("packets/interrupt"), three(over(f.received as f64, f.interrupts))),
        ("interrupts", Some("count/sec"), three(over(f.interrupts, f.seconds))),
        ("dpcs", Some("count/sec"), three(over(f.softirqs, f.seconds))),
        ("avg_packets_per_dpc", Some("packets/dpc"), three(over(f.received as f64, f.softirqs))),
        ("cycles", Some("cycles/byte"), three(f.cycles)),
        ("packets_sent", None, f.sent.to_string()),
        ("packets_received", None, f.received.to_string()),
        ("packets_retransmitted", None, f.retransmitted.to_string()),
        ("errors", None, f.errors.to_string()),
        ("cpu", Some("%"), three(f.cpu)),
        ("num_processors", None, measured.machine.end.cpus.to_string()),
        ("bufferCount", None, self::buffers(plan).to_string()),
        ("bufferLen", None, plan.message.to_string()),
        ("io", None, plan.outstanding.unwrap_or(2).to_string()),
        // Not of the original.
        ("cpu_accounting", None, measured.machine.accounting().words().into()),
    ] {
        xml.leaf(name, metric, &value);
    }
    xml.close(root);
    xml.text()
}
