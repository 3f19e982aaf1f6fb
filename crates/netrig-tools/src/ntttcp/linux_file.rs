//! The XML and JSON of ntttcp-for-linux 1.4.3, field for field.
//!
//! Every value of the JSON is a string, as in the original; KB and MB are decimal. Fields that only Windows measures are
//! 0 there and here. What differs from the original: characters that would break the format are escaped, and a thread's
//! MB/s has no stray unit behind it.

use std::fmt::Write;

use rig_load::worker::embedded::Protocol;
use serde_json::{Value, json};

use super::linux_text::{RETRANSMISSIONS, cycles, device, retransmission_rates};
use super::report::Results;
use super::test_plan::{LinuxOutput, Role};
use crate::counters::Difference;

/// What the original calls itself in files.
const VERSION: &str = "5.33-linux";

/// XML as the originals indent it: a tab for each level.
#[derive(Debug, Default)]
pub struct XmlWriter {
    text: String,
    depth: usize,
}

impl XmlWriter {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.indent();
        self.text.push('<');
        self.text.push_str(name);
        for (attribute, value) in attributes {
            // Writing to a string cannot fail.
            let _ = write!(self.text, " {attribute}=\"{}\"", escaped(value));
        }
        self.text.push_str(">\n");
        self.depth += 1;
    }

    pub fn close(&mut self, name: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.indent();
        let _ = writeln!(self.text, "</{name}>");
    }

    pub fn leaf(&mut self, name: &str, metric: Option<&str>, value: &str) {
        self.indent();
        let metric = metric.map(|metric| format!(" metric=\"{metric}\"")).unwrap_or_default();
        let _ = writeln!(self.text, "<{name}{metric}>{}</{name}>", escaped(value));
    }

    fn indent(&mut self) {
        self.text.extend(std::iter::repeat_n('\t', self.depth));
    }

    pub fn text(self) -> String {
        self.text
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The output of `uname -a`, less the parts that only the C library knows.
fn operating_system() -> String {
    let name = rustix::system::uname();
    let parts = [name.sysname(), name.nodename(), name.release(), name.version(), name.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ") + " GNU/Linux"
}

/// The parameters: the name in XML, the name in JSON, the value.
fn parameters(results: &Results<'_>) -> Vec<(&'static str, &'static str, String)> {
    let plan = results.plan;
    let flag = |given: bool| if given { "True" } else { "False" }.to_owned();
    let (no, zero) = (|| flag(false), || "0".to_owned());
    let size = |role: Role, default: u32| if plan.role == role { plan.message } else { default }.to_string();
    vec![
        ("send_socket_buff", "sendSocketBuff", size(Role::Sender, 128 << 10)),
        ("recv_socket_buff", "recvSocketBuff", size(Role::Receiver, 64 << 10)),
        ("port", "port", plan.port.to_string()),
        ("sync_port", "syncPort", (plan.port - 1).to_string()),
        ("no_sync", "noSync", flag(!plan.sync)),
        ("wait_timeout_milliseconds", "waitTimeoutMilliseconds", zero()),
        ("async", "async", no()),
        ("verbose", "verbose", flag(plan.verbose)),
        ("wsa", "wsa", no()),
        ("use_ipv6", "useIpv6", flag(plan.ipv6)),
        ("udp", "udp", flag(plan.protocol == Protocol::Udp)),
        ("verify_data", "verifyData", no()),
        ("wait_all", "waitAll", no()),
        ("run_time", "runTime", plan.seconds().unwrap_or(0).to_string()),
        ("warmup_time", "warmupTime", plan.warm_up.to_string()),
        ("cooldown_time", "cooldownTime", plan.cool_down.to_string()),
        ("dash_n_timeout", "dashNTimeout", zero()),
        ("bind_sender", "bindSender", no()),
        ("sender_name", "senderName", "NA".into()),
        ("max_active_threads", "maxActiveThreads", zero()),
        ("tp", "tp", no()),
        ("no_stdio_buffer", "noStdioBuffer", no()),
        ("throughput_Bpms", "throughputBpms", zero()),
        ("cpu_burn", "cpuBurn", zero()),
        ("latency_measurement", "latencyMeasurement", no()),
        ("use_io_compl_ports", "useIOComplPorts", "NA".into()),
        ("cpu_from_idle_flag", "cpuFromIdleFlag", no()),
        ("get_estats", "getEstats", no()),
        ("qos_flag", "qosFlag", no()),
        ("jitter_measurement", "jitterMeasurement", no()),
        ("packet_spacing", "packetSpacing", zero()),
    ]
}

fn three(value: f64) -> String {
    format!("{value:.3}")
}

fn percent(machine: &Difference, part: impl Fn(&rig_sys::counters::CpuTicks) -> u64) -> String {
    format!("{:.2}", machine.cpu_share(part) * 100.0)
}

/// KB/s, MB/s and mbps of a rate in bytes per second.
fn rates(rate: f64) -> [(&'static str, String); 3] {
    [("KB/s", three(rate / 1e3)), ("MB/s", three(rate / 1e6)), ("mbps", three(rate * 8.0 / 1e6))]
}

pub fn xml(results: &Results<'_>, output: &LinuxOutput) -> String {
    let Results { plan, measured, extra, mhz } = results;
    let (seconds, machine) = (measured.seconds(), &measured.machine);
    let root = if plan.role == Role::Sender { "ntttcps" } else { "ntttcpr" };
    let mut xml = XmlWriter::new();
    xml.open(root, &[("computername", &host_name()), ("version", VERSION)]);
    xml.open("parameters", &[]);
    parameters(results).iter().for_each(|(name, _, value)| xml.leaf(name, None, value));
    xml.close("parameters");
    if plan.verbose {
        for (index, thread) in measured.threads.iter().enumerate() {
            xml.open("thread", &[("index", &index.to_string())]);
            xml.leaf("realtime", Some("s"), &three(seconds));
            let rate = super::report::over(thread.bytes as f64, seconds);
            rates(rate).iter().for_each(|(metric, value)| xml.leaf("throughput", Some(metric), value));
            xml.leaf("avg_bytes_per_compl", Some("B"), "0.000");
            xml.close("thread");
        }
    }
    if let Some(connections) = extra.connections {
        xml.leaf("conns_tested", None, &connections.to_string());
    }
    let [_, (mb, in_mb), (mbps, in_mbps)] = rates(results.rate());
    let (sent, received, interrupts, per_second, packets_each) = device(results);
    let zero = || "0.000".to_owned();
    for (name, metric, value) in [
        ("total_bytes", Some("MB"), format!("{:.6}", measured.bytes() as f64 / 1e6)),
        ("realtime", Some("s"), format!("{seconds:.6}")),
        ("avg_bytes_per_compl", Some("B"), zero()),
        ("threads_avg_bytes_per_compl", Some("B"), zero()),
        ("avg_frame_size", Some("B"), zero()),
        ("throughput", Some(mb), in_mb),
        ("throughput", Some(mbps), in_mbps),
        ("throughput", Some("Bps"), three(results.rate())),
        ("total_buffers", None, zero()),
        ("throughput", Some("buffers/s"), zero()),
        ("avg_packets_per_interrupt", Some("packets/interrupt"), three(packets_each)),
        ("interrupts", Some("count/sec"), three(per_second)),
        ("total_interrupts", Some("count"), interrupts.to_string()),
        ("dpcs", Some("count/sec"), zero()),
        ("avg_packets_per_dpc", Some("packets/dpc"), zero()),
        ("packets_sent", None, sent.to_string()),
        ("packets_received", None, received.to_string()),
        ("packets_retransmitted", None, machine.protocol("Tcp.RetransSegs").to_string()),
        ("errors", None, "0".into()),
        ("bufferCount", None, "0".into()),
        ("bufferLen", None, "0".into()),
    ] {
        xml.leaf(name, metric, &value);
    }
    if output.tcp_retransmissions {
        xml.leaf("tcp_retransmits", Some("retrans_segs"), &machine.protocol("Tcp.RetransSegs").to_string());
        for ((_, name, _), rate) in RETRANSMISSIONS.iter().zip(retransmission_rates(results)) {
            xml.leaf("tcp_retransmits", Some(name), &format!("{rate:.2}"));
        }
    }
    for (name, metric, value) in [
        ("cpu_cores", Some("cpu cores"), machine.end.cpus.to_string()),
        ("cpu_speed", Some("MHz"), three(mhz.unwrap_or(0.0))),
        ("user", Some("%"), percent(machine, |c| c.user)),
        ("system", Some("%"), percent(machine, |c| c.system)),
        ("idle", Some("%"), percent(machine, |c| c.idle)),
        ("iowait", Some("%"), percent(machine, |c| c.iowait)),
        ("softirq", Some("%"), percent(machine, |c| c.softirq)),
        ("cycles_per_byte", Some("cycles/byte"), format!("{:.2}", cycles(results))),
        ("cpu_busy_all", Some("%"), format!("{:.2}", machine.process_share() * 100.0)),
        ("io", None, "0".into()),
    ] {
        xml.leaf(name, metric, &value);
    }
    if plan.verbose
        && let Some(rtt) = extra.rtt_us
    {
        xml.leaf("tcp_average_rtt", Some("us"), &rtt.to_string());
    }
    xml.leaf("os", None, &operating_system());
    // Not of the original.
    xml.leaf("cpu_accounting", None, machine.accounting().words());
    xml.close(root);
    xml.text()
}

fn metric(metric: &str, value: impl Into<String>) -> Value {
    let value: String = value.into();
    json!({"metric": metric, "value": value})
}

pub fn json(results: &Results<'_>, output: &LinuxOutput) -> String {
    let Results { plan, measured, extra, .. } = results;
    let (seconds, machine) = (measured.seconds(), &measured.machine);
    let zero = "0.000";
    let parameters: serde_json::Map<String, Value> =
        parameters(results).into_iter().map(|(_, name, value)| (name.to_owned(), Value::String(value))).collect();
    let [_, (mb, in_mb), (mbps, in_mbps)] = rates(results.rate());
    let (sent, received, interrupts, per_second, packets_each) = device(results);
    let retransmitted = machine.protocol("Tcp.RetransSegs");
    let mut body = json!({
        "computername": host_name(),
        "version": VERSION,
        "parameters": parameters,
        "totalBytes": metric("MB", format!("{:.6}", measured.bytes() as f64 / 1e6)),
        "realTime": metric("s", format!("{seconds:.6}")),
        "avgBytesPerCompl": metric("B", zero),
        "threadsAvgBytesPerCompl": metric("B", zero),
        "avgFrameSize": metric("B", zero),
        "throughputs": [
            metric(mb, in_mb),
            metric(mbps, in_mbps),
            metric("Bps", three(results.rate())),
            metric("buffer/s", zero),
        ],
        "totalBuffers": zero,
        "avgPacketsPerInterrupt": metric("packets/interrupt", three(packets_each)),
        "interrupt": metric("count/sec", three(per_second)),
        "interruptTotal": metric("count", interrupts.to_string()),
        "dpcs": metric("count/sec", zero),
        "avgPacketsPerDpc": metric("packets/dpc", zero),
        "cycles": metric("cycles/byte", three(cycles(results))),
        "packetsSent": sent.to_string(),
        "packetsReceived": received.to_string(),
        "packets_retransmitted": retransmitted.to_string(),
        "errors": "0",
        "cpu": metric("%", three(machine.process_share() * 100.0)),
        "bufferCount": "0",
        "bufferLen": "0",
        "io": "0",
        "os": operating_system(),
        // Not of the original.
        "cpuAccounting": machine.accounting().words(),
    });
    if plan.verbose {
        let thread = |(index, thread): (usize, &rig_load::worker::embedded::Counts)| {
            let rate = super::report::over(thread.bytes as f64, seconds);
            json!({
                "index": index.to_string(),
                "realTime": metric("s", three(seconds)),
                "throughputs": rates(rate).map(|(unit, value)| metric(unit, value)),
                "avgBytesPerCompl": metric("B", zero),
            })
        };
        body["threads"] = measured.threads.iter().enumerate().map(thread).collect();
        if let Some(rtt) = extra.rtt_us {
            body["tcpAverageRtt metric"] = format!("{rtt} us").into();
        }
    }
    if output.tcp_retransmissions {
        let rates = RETRANSMISSIONS.iter().zip(retransmission_rates(results));
        let each = rates.map(|((_, name, _), rate)| metric(name, format!("{rate:.2}")));
        body["tcp_retransmits"] =
            std::iter::once(metric("retrans_segs", retransmitted.to_string())).chain(each).collect();
    }
    let root = if plan.role == Role::Sender { "ntttcps" } else { "ntttcpr" };
    // A value of strings and maps always serializes.
    serde_json::to_string_pretty(&json!({ root: body })).unwrap_or_default() + "\n"
}
