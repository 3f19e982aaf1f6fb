//! The selectors of `-o`, `-k` and `-O`, in netperf's order.

use std::collections::HashMap;
use std::sync::LazyLock;

use rig_stats::histogram::Histogram;

use super::figures::{EndFigures, Figures};
use super::options::Bursts;
use super::wire::CpuShares;

/// One selector: its name, the words that head its column, one below the other, and its value.
type Selector = (&'static str, &'static [&'static str], fn(&Figures<'_>) -> String);

/// The most lines that a heading has.
pub const HEADING_LINES: usize = 4;

/// Places in the table by names and whole headings, in lower case.
static BY_NAME: LazyLock<HashMap<String, usize>> = LazyLock::new(|| {
    let mut places = HashMap::new();
    for (at, (name, heading, _)) in SELECTORS.iter().enumerate() {
        for text in [(*name).to_owned(), heading.join(" ")] {
            places.entry(text.to_ascii_lowercase()).or_insert(at);
        }
    }
    places
});

/// Stands for a word that is no selector.
const UNKNOWN: usize = 0;

/// A selector by its place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectorIndex(usize);

impl SelectorIndex {
    /// By its name or its whole heading, in any case; `None` for what is neither.
    pub fn of(text: &str) -> Option<Self> {
        BY_NAME.get(&text.to_ascii_lowercase()).copied().map(Self)
    }

    /// All from one to another, by their names.
    pub fn range(first: &str, last: &str) -> Vec<Self> {
        let at = |name| Self::of(name).map_or(UNKNOWN, |index| index.0);
        (at(first)..=at(last)).map(Self).collect()
    }

    /// What stands where a selector is not known: an empty column.
    pub fn none() -> Self {
        Self(UNKNOWN)
    }

    pub fn name(self) -> &'static str {
        SELECTORS[self.0].0
    }

    pub fn heading(self) -> &'static [&'static str] {
        SELECTORS[self.0].1
    }

    pub fn value(self, figures: &Figures<'_>) -> String {
        SELECTORS[self.0].2(figures)
    }

    /// Whether latencies have to be measured for it.
    pub fn is_latency(self) -> bool {
        self.name().ends_with("_LATENCY") && self.name() != "RT_LATENCY"
    }
}

/// All names, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    SELECTORS.iter().map(|(name, _, _)| *name)
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn two(value: f64) -> String {
    format!("{value:.2}")
}

fn three(value: f64) -> String {
    format!("{value:.3}")
}

fn whole(value: f64) -> String {
    format!("{}", value.floor() as i64)
}

fn flag(on: bool) -> String {
    text(if on { "1" } else { "0" })
}

/// What an option asked for, -1 without.
fn asked(value: Option<u32>) -> String {
    value.map_or_else(unknown, |value| value.to_string())
}

fn unknown() -> String {
    text("-1")
}

fn each(bytes: u64, calls: u64) -> String {
    two(if calls == 0 { 0.0 } else { bytes as f64 / calls as f64 })
}

fn share(end: &EndFigures, of: impl Fn(&CpuShares) -> f32) -> String {
    two(end.cpu.as_ref().map_or(-1.0, |cpu| f64::from(of(cpu))))
}

fn percentile(f: &Figures<'_>, percent: f64) -> String {
    whole(f.latency_us(|latencies| latencies.percentile(percent).map(|ns| ns as f64)))
}

/// -1 without a confidence loop.
fn width(f: &Figures<'_>, percent: f64) -> String {
    three(if f.options.confidence.is_some() { percent } else { -1.0 })
}

fn interval(bursts: Option<Bursts>) -> String {
    bursts.map_or(0, |bursts| bursts.interval.as_micros()).to_string()
}

fn burst(bursts: Option<Bursts>) -> String {
    bursts.map_or(0, |bursts| bursts.sends).to_string()
}

#[rustfmt::skip]
static SELECTORS: &[Selector] = &[
    ("OUTPUT_NONE", &[" "], |_| text(" ")),
    ("SOCKET_TYPE", &["Socket", "Type"], |f| text(f.options.transport.socket_type().0)),
    ("PROTOCOL", &["Protocol"], |f| text(f.options.transport.word())),
    ("DIRECTION", &["Direction"], |f| text(f.options.direction.word(f.options.connects))),
    ("ELAPSED_TIME", &["Elapsed", "Time", "(sec)"], |f| two(f.elapsed)),
    ("THROUGHPUT", &["Throughput"], |f| two(f.throughput)),
    ("THROUGHPUT_UNITS", &["Throughput", "Units"], |f| format!("{}/s", f.unit.name())),
    ("LSS_SIZE_REQ", &["Local", "Send Socket", "Size", "Requested"], |f| asked(f.local.buffer_asked.send)),
    ("LSS_SIZE", &["Local", "Send Socket", "Size", "Initial"], |f| f.local.buffer.send.to_string()),
    ("LSS_SIZE_END", &["Local", "Send Socket", "Size", "Final"], |f| f.local.buffer_end.send.to_string()),
    ("LSR_SIZE_REQ", &["Local", "Recv Socket", "Size", "Requested"], |f| asked(f.local.buffer_asked.receive)),
    ("LSR_SIZE", &["Local", "Recv Socket", "Size", "Initial"], |f| f.local.buffer.receive.to_string()),
    ("LSR_SIZE_END", &["Local", "Recv Socket", "Size", "Final"], |f| f.local.buffer_end.receive.to_string()),
    ("RSS_SIZE_REQ", &["Remote", "Send Socket", "Size", "Requested"], |f| asked(f.remote.buffer_asked.send)),
    ("RSS_SIZE", &["Remote", "Send Socket", "Size", "Initial"], |f| f.remote.buffer.send.to_string()),
    ("RSS_SIZE_END", &["Remote", "Send Socket", "Size", "Final"], |f| f.remote.buffer_end.send.to_string()),
    ("RSR_SIZE_REQ", &["Remote", "Recv Socket", "Size", "Requested"], |f| asked(f.remote.buffer_asked.receive)),
    ("RSR_SIZE", &["Remote", "Recv Socket", "Size", "Initial"], |f| f.remote.buffer.receive.to_string()),
    ("RSR_SIZE_END", &["Remote", "Recv Socket", "Size", "Final"], |f| f.remote.buffer_end.receive.to_string()),
    ("LOCAL_SEND_SIZE", &["Local", "Send", "Size"], |f| f.local.send_size.to_string()),
    ("LOCAL_RECV_SIZE", &["Local", "Recv", "Size"], |f| f.local.receive_size.to_string()),
    ("REMOTE_SEND_SIZE", &["Remote", "Send", "Size"], |f| f.remote.send_size.to_string()),
    ("REMOTE_RECV_SIZE", &["Remote", "Recv", "Size"], |f| f.remote.receive_size.to_string()),
    ("REQUEST_SIZE", &["Request", "Size", "Bytes"], |f| asked(f.options.request)),
    ("RESPONSE_SIZE", &["Response", "Size", "Bytes"], |f| asked(f.options.response)),
    ("LOCAL_CPU_UTIL", &["Local", "CPU", "Util", "%"], |f| two(f.local.cpu_percent)),
    ("LOCAL_CPU_PERCENT_USER", &["Local", "CPU", "User", "%"], |f| share(&f.local, |cpu| cpu.user)),
    ("LOCAL_CPU_PERCENT_SYSTEM", &["Local", "CPU", "System", "%"], |f| share(&f.local, |cpu| cpu.system)),
    ("LOCAL_CPU_PERCENT_IOWAIT", &["Local", "CPU", "I/O", "%"], |f| share(&f.local, |cpu| cpu.iowait)),
    ("LOCAL_CPU_PERCENT_IRQ", &["Local", "CPU", "IRQ", "%"], |f| share(&f.local, |cpu| cpu.irq)),
    ("LOCAL_CPU_PERCENT_SWINTR", &["Local", "CPU", "swintr", "%"], |f| share(&f.local, |cpu| cpu.softirq)),
    ("LOCAL_CPU_METHOD", &["Local", "CPU", "Util", "Method"], |f| f.local.cpu_method.to_string()),
    ("LOCAL_SD", &["Local", "Service", "Demand"], |f| three(f.local.service_demand)),
    ("REMOTE_CPU_UTIL", &["Remote", "CPU", "Util", "%"], |f| two(f.remote.cpu_percent)),
    ("REMOTE_CPU_PERCENT_USER", &["Remote", "CPU", "User", "%"], |f| share(&f.remote, |cpu| cpu.user)),
    ("REMOTE_CPU_PERCENT_SYSTEM", &["Remote", "CPU", "System", "%"], |f| share(&f.remote, |cpu| cpu.system)),
    ("REMOTE_CPU_PERCENT_IOWAIT", &["Remote", "CPU", "I/O", "%"], |f| share(&f.remote, |cpu| cpu.iowait)),
    ("REMOTE_CPU_PERCENT_IRQ", &["Remote", "CPU", "IRQ", "%"], |f| share(&f.remote, |cpu| cpu.irq)),
    ("REMOTE_CPU_PERCENT_SWINTR", &["Remote", "CPU", "swintr", "%"], |f| share(&f.remote, |cpu| cpu.softirq)),
    ("REMOTE_CPU_METHOD", &["Remote", "CPU", "Util", "Method"], |f| f.remote.cpu_method.to_string()),
    ("REMOTE_SD", &["Remote", "Service", "Demand"], |f| three(f.remote.service_demand)),
    ("SD_UNITS", &["Service", "Demand", "Units"], |f| text(f.service_demand_unit())),
    ("CONFIDENCE_LEVEL", &["Confidence", "Level", "Percent"], |f| f.options.confidence.map_or(0, |c| c.level).to_string()),
    ("CONFIDENCE_INTERVAL", &["Confidence", "Width", "Target"], |f| format!("{:.6}", f.options.confidence.map_or(-1.0, |c| c.width * 100.0))),
    ("CONFIDENCE_ITERATION", &["Confidence", "Iterations", "Run"], |f| f.iterations.to_string()),
    ("THROUGHPUT_CONFID", &["Throughput", "Confidence", "Width (%)"], |f| width(f, f.widths.throughput)),
    ("LOCAL_CPU_CONFID", &["Local", "CPU", "Confidence", "Width (%)"], |f| width(f, f.widths.local_cpu)),
    ("REMOTE_CPU_CONFID", &["Remote", "CPU", "Confidence", "Width (%)"], |f| width(f, f.widths.remote_cpu)),
    ("TRANSACTION_RATE", &["Transaction", "Rate", "Tran/s"], |f| three(f.transaction_rate)),
    ("RT_LATENCY", &["Round", "Trip", "Latency", "usec/tran"], |f| three(f.round_trip)),
    ("BURST_SIZE", &["Initial", "Burst", "Requests"], |f| f.options.first_burst.to_string()),
    ("LOCAL_TRANSPORT_RETRANS", &["Local", "Transport", "Retransmissions"], |f| f.local.retransmissions.to_string()),
    ("REMOTE_TRANSPORT_RETRANS", &["Remote", "Transport", "Retransmissions"], |f| f.remote.retransmissions.to_string()),
    ("TRANSPORT_MSS", &["Transport", "MSS", "bytes"], |f| f.segment_size.to_string()),
    ("LOCAL_SEND_THROUGHPUT", &["Local", "Send", "Throughput"], |f| two(f.byte_rate(f.local.bytes_sent))),
    ("LOCAL_RECV_THROUGHPUT", &["Local", "Recv", "Throughput"], |f| two(f.byte_rate(f.local.bytes_received))),
    ("REMOTE_SEND_THROUGHPUT", &["Remote", "Send", "Throughput"], |f| two(f.byte_rate(f.remote.bytes_sent))),
    ("REMOTE_RECV_THROUGHPUT", &["Remote", "Recv", "Throughput"], |f| two(f.byte_rate(f.remote.bytes_received))),
    ("LOCAL_CPU_BIND", &["Local", "CPU", "Bind"], |f| asked(f.local.bound_to)),
    ("LOCAL_CPU_COUNT", &["Local", "CPU", "Count"], |f| f.local.cpus.to_string()),
    ("LOCAL_CPU_PEAK_UTIL", &["Local", "Peak", "Per CPU", "Util %"], |f| share(&f.local, |cpu| cpu.peak)),
    ("LOCAL_CPU_PEAK_ID", &["Local", "Peak", "Per CPU", "ID"], |f| f.local.cpu.map_or(-1, |cpu| cpu.peak_cpu).to_string()),
    ("LOCAL_CPU_MODEL", &["Local", "CPU", "Model"], |_| text("Deprecated")),
    ("LOCAL_CPU_FREQUENCY", &["Local", "CPU", "Frequency", "MHz"], |_| unknown()),
    ("REMOTE_CPU_BIND", &["Remote", "CPU", "Bind"], |f| asked(f.remote.bound_to)),
    ("REMOTE_CPU_COUNT", &["Remote", "CPU", "Count"], |f| f.remote.cpus.to_string()),
    ("REMOTE_CPU_PEAK_UTIL", &["Remote", "Peak", "Per CPU", "Util %"], |f| share(&f.remote, |cpu| cpu.peak)),
    ("REMOTE_CPU_PEAK_ID", &["Remote", "Peak", "Per CPU", "ID"], |f| f.remote.cpu.map_or(-1, |cpu| cpu.peak_cpu).to_string()),
    ("REMOTE_CPU_MODEL", &["Remote", "CPU", "Model"], |_| text("Deprecated")),
    ("REMOTE_CPU_FREQUENCY", &["Remote", "CPU", "Frequency", "MHz"], |_| unknown()),
    ("SOURCE_PORT", &["Source", "Port"], |f| f.source.port.to_string()),
    ("SOURCE_ADDR", &["Source", "Address"], |f| f.source.host.clone()),
    ("SOURCE_FAMILY", &["Source", "Family"], |f| f.source.family.to_string()),
    ("DEST_PORT", &["Destination", "Port"], |f| f.destination.port.to_string()),
    ("DEST_ADDR", &["Destination", "Address"], |f| f.destination.host.clone()),
    ("DEST_FAMILY", &["Destination", "Family"], |f| f.destination.family.to_string()),
    ("LOCAL_SEND_CALLS", &["Local", "Send", "Calls"], |f| f.local.send_calls.to_string()),
    ("LOCAL_RECV_CALLS", &["Local", "Recv", "Calls"], |f| f.local.receive_calls.to_string()),
    ("LOCAL_BYTES_PER_RECV", &["Local", "Bytes", "Per", "Recv"], |f| each(f.local.bytes_received, f.local.receive_calls)),
    ("LOCAL_BYTES_PER_SEND", &["Local", "Bytes", "Per", "Send"], |f| each(f.local.bytes_sent, f.local.send_calls)),
    ("LOCAL_BYTES_SENT", &["Local", "Bytes", "Sent"], |f| f.local.bytes_sent.to_string()),
    ("LOCAL_BYTES_RECVD", &["Local", "Bytes", "Received"], |f| f.local.bytes_received.to_string()),
    ("LOCAL_BYTES_XFERD", &["Local", "Bytes", "Xferred"], |f| f.local.bytes_sent.saturating_add(f.local.bytes_received).to_string()),
    ("LOCAL_SEND_OFFSET", &["Local", "Send", "Offset"], |f| f.local.offset.send.to_string()),
    ("LOCAL_RECV_OFFSET", &["Local", "Recv", "Offset"], |f| f.local.offset.receive.to_string()),
    ("LOCAL_SEND_ALIGN", &["Local", "Send", "Alignment"], |f| f.local.alignment.send.to_string()),
    ("LOCAL_RECV_ALIGN", &["Local", "Recv", "Alignment"], |f| f.local.alignment.receive.to_string()),
    ("LOCAL_SEND_WIDTH", &["Local", "Send", "Width"], |f| f.local.width.send.to_string()),
    ("LOCAL_RECV_WIDTH", &["Local", "Recv", "Width"], |f| f.local.width.receive.to_string()),
    ("LOCAL_SEND_DIRTY_COUNT", &["Local", "Send", "Dirty", "Count"], |_| unknown()),
    ("LOCAL_RECV_DIRTY_COUNT", &["Local", "Recv", "Dirty", "Count"], |_| unknown()),
    ("LOCAL_RECV_CLEAN_COUNT", &["Local", "Recv", "Clean", "Count"], |_| unknown()),
    ("LOCAL_NODELAY", &["Local", "NODELAY"], |f| flag(f.local.no_delay)),
    ("LOCAL_CORK", &["Local", "Cork"], |f| flag(f.local.cork)),
    ("REMOTE_SEND_CALLS", &["Remote", "Send", "Calls"], |f| f.remote.send_calls.to_string()),
    ("REMOTE_RECV_CALLS", &["Remote", "Recv", "Calls"], |f| f.remote.receive_calls.to_string()),
    ("REMOTE_BYTES_PER_RECV", &["Remote", "Bytes", "Per", "Recv"], |f| each(f.remote.bytes_received, f.remote.receive_calls)),
    ("REMOTE_BYTES_PER_SEND", &["Remote", "Bytes", "Per", "Send"], |f| each(f.remote.bytes_sent, f.remote.send_calls)),
    ("REMOTE_BYTES_SENT", &["Remote", "Bytes", "Sent"], |f| f.remote.bytes_sent.to_string()),
    ("REMOTE_BYTES_RECVD", &["Remote", "Bytes", "Received"], |f| f.remote.bytes_received.to_string()),
    ("REMOTE_BYTES_XFERD", &["Remote", "Bytes", "Xferred"], |f| f.remote.bytes_sent.saturating_add(f.remote.bytes_received).to_string()),
    ("REMOTE_SEND_OFFSET", &["Remote", "Send", "Offset"], |f| f.remote.offset.send.to_string()),
    ("REMOTE_RECV_OFFSET", &["Remote", "Recv", "Offset"], |f| f.remote.offset.receive.to_string()),
    ("REMOTE_SEND_ALIGN", &["Remote", "Send", "Alignment"], |f| f.remote.alignment.send.to_string()),
    ("REMOTE_RECV_ALIGN", &["Remote", "Recv", "Alignment"], |f| f.remote.alignment.receive.to_string()),
    ("REMOTE_SEND_WIDTH", &["Remote", "Send", "Width"], |f| f.remote.width.send.to_string()),
    ("REMOTE_RECV_WIDTH", &["Remote", "Recv", "Width"], |f| f.remote.width.receive.to_string()),
    ("REMOTE_SEND_DIRTY_COUNT", &["Remote", "Send", "Dirty", "Count"], |_| unknown()),
    ("REMOTE_RECV_DIRTY_COUNT", &["Remote", "Recv", "Dirty", "Count"], |_| unknown()),
    ("REMOTE_RECV_CLEAN_COUNT", &["Remote", "Recv", "Clean", "Count"], |_| unknown()),
    ("REMOTE_NODELAY", &["Remote", "NODELAY"], |f| flag(f.remote.no_delay)),
    ("REMOTE_CORK", &["Remote", "Cork"], |f| flag(f.remote.cork)),
    ("LOCAL_SYSNAME", &["Local", "Sysname"], |_| text("Deprecated")),
    ("LOCAL_SYSTEM_MODEL", &["Local", "System", "Model"], |_| text("Deprecated")),
    ("LOCAL_RELEASE", &["Local", "Release"], |_| text("Deprecated")),
    ("LOCAL_VERSION", &["Local", "Version"], |_| text("Deprecated")),
    ("LOCAL_MACHINE", &["Local", "Machine"], |_| text("Deprecated")),
    ("REMOTE_SYSNAME", &["Remote", "Sysname"], |_| text("Deprecated")),
    ("REMOTE_SYSTEM_MODEL", &["Remote", "System", "Model"], |_| text("Deprecated")),
    ("REMOTE_RELEASE", &["Remote", "Release"], |_| text("Deprecated")),
    ("REMOTE_VERSION", &["Remote", "Version"], |_| text("Deprecated")),
    ("REMOTE_MACHINE", &["Remote", "Machine"], |_| text("Deprecated")),
    ("LOCAL_INTERFACE_NAME", &["Local", "Interface", "Name"], |_| text("Deprecated")),
    ("LOCAL_INTERFACE_VENDOR", &["Local", "Interface", "Vendor"], |_| text("0xfffffffe")),
    ("LOCAL_INTERFACE_DEVICE", &["Local", "Interface", "Device"], |_| text("0xfffffffe")),
    ("LOCAL_INTERFACE_SUBVENDOR", &["Local", "Interface", "Subvendor"], |_| text("0xfffffffe")),
    ("LOCAL_INTERFACE_SUBDEVICE", &["Local", "Interface", "Subdevice"], |_| text("0xfffffffe")),
    ("LOCAL_DRIVER_NAME", &["Local", "Driver", "Name"], |_| text("Deprecated")),
    ("LOCAL_DRIVER_VERSION", &["Local", "Driver", "Version"], |_| text("Deprecated")),
    ("LOCAL_DRIVER_FIRMWARE", &["Local", "Driver", "Firmware"], |_| text("Deprecated")),
    ("LOCAL_DRIVER_BUS", &["Local", "Driver", "Bus"], |_| text("Deprecated")),
    ("LOCAL_INTERFACE_SLOT", &["Local", "Interface", "Slot"], |_| text("Deprecated")),
    ("REMOTE_INTERFACE_NAME", &["Remote", "Interface", "Name"], |_| text("Deprecated")),
    ("REMOTE_INTERFACE_VENDOR", &["Remote", "Interface", "Vendor"], |_| text("0xfffffffe")),
    ("REMOTE_INTERFACE_DEVICE", &["Remote", "Interface", "Device"], |_| text("0xfffffffe")),
    ("REMOTE_INTERFACE_SUBVENDOR", &["Remote", "Interface", "Subvendor"], |_| text("0xfffffffe")),
    ("REMOTE_INTERFACE_SUBDEVICE", &["Remote", "Interface", "Subdevice"], |_| text("0xfffffffe")),
    ("REMOTE_DRIVER_NAME", &["Remote", "Driver", "Name"], |_| text("Deprecated")),
    ("REMOTE_DRIVER_VERSION", &["Remote", "Driver", "Version"], |_| text("Deprecated")),
    ("REMOTE_DRIVER_FIRMWARE", &["Remote", "Driver", "Firmware"], |_| text("Deprecated")),
    ("REMOTE_DRIVER_BUS", &["Remote", "Driver", "Bus"], |_| text("Deprecated")),
    ("REMOTE_INTERFACE_SLOT", &["Remote", "Interface", "Slot"], |_| text("Deprecated")),
    ("LOCAL_INTERVAL_USECS", &["Local", "Interval", "Usecs"], |f| interval(f.local.bursts)),
    ("LOCAL_INTERVAL_BURST", &["Local", "Interval", "Burst"], |f| burst(f.local.bursts)),
    ("REMOTE_INTERVAL_USECS", &["Remote", "Interval", "Usecs"], |f| interval(f.remote.bursts)),
    ("REMOTE_INTERVAL_BURST", &["Remote", "Interval", "Burst"], |f| burst(f.remote.bursts)),
    ("LOCAL_SECURITY_TYPE_ID", &["Local", "OS", "Security", "Type ID"], |_| unknown()),
    ("LOCAL_SECURITY_TYPE", &["Local", "OS", "Security", "Type"], |_| text("Deprecated")),
    ("LOCAL_SECURITY_ENABLED_NUM", &["Local", "OS", "Security", "Enabled Num"], |_| unknown()),
    ("LOCAL_SECURITY_ENABLED", &["Local", "OS", "Security", "Enabled"], |_| text("Deprecated")),
    ("LOCAL_SECURITY_SPECIFIC", &["Local", "OS", "Security", "Specific"], |_| text("Deprecated")),
    ("REMOTE_SECURITY_TYPE_ID", &["Remote", "OS", "Security", "Type"], |_| unknown()),
    ("REMOTE_SECURITY_TYPE", &["Remote", "OS", "Security", "Type"], |_| text("Deprecated")),
    ("REMOTE_SECURITY_ENABLED_NUM", &["Remote", "OS", "Security", "Enabled"], |_| unknown()),
    ("REMOTE_SECURITY_ENABLED", &["Remote", "OS", "Security", "Enabled"], |_| text("Deprecated")),
    ("REMOTE_SECURITY_SPECIFIC", &["Remote", "OS", "Security", "Specific"], |_| text("Deprecated")),
    ("RESULT_BRAND", &["Result", "Tag"], |f| quoted(f.options.brand.as_deref().unwrap_or_default())),
    ("UUID", &["Test", "UUID"], |f| f.options.uuid.clone()),
    ("MIN_LATENCY", &["Minimum", "Latency", "Microseconds"], |f| whole(f.latency_us(|h| h.min().map(|ns| ns as f64)))),
    ("MAX_LATENCY", &["Maximum", "Latency", "Microseconds"], |f| whole(f.latency_us(|h| h.max().map(|ns| ns as f64)))),
    ("P50_LATENCY", &["50th", "Percentile", "Latency", "Microseconds"], |f| percentile(f, 50.0)),
    ("P90_LATENCY", &["90th", "Percentile", "Latency", "Microseconds"], |f| percentile(f, 90.0)),
    ("P99_LATENCY", &["99th", "Percentile", "Latency", "Microseconds"], |f| percentile(f, 99.0)),
    ("MEAN_LATENCY", &["Mean", "Latency", "Microseconds"], |f| two(f.latency_us(Histogram::mean))),
    ("STDDEV_LATENCY", &["Stddev", "Latency", "Microseconds"], |f| two(f.latency_us(Histogram::standard_deviation))),
    ("LOCAL_SOCKET_PRIO", &["Local", "Socket", "Priority"], |f| f.local.priority.to_string()),
    ("REMOTE_SOCKET_PRIO", &["Remote", "Socket", "Priority"], |f| f.remote.priority.to_string()),
    ("LOCAL_SOCKET_TOS", &["Local", "Socket", "TOS"], |f| format!("0x{:02x}", f.local.type_of_service as i32)),
    ("REMOTE_SOCKET_TOS", &["Remote", "Socket", "TOS"], |f| format!("0x{:02x}", f.remote.type_of_service as i32)),
    ("LOCAL_CONG_CONTROL", &["Local", "Congestion", "Control", "Algorithm"], |f| f.local.congestion_control.clone()),
    ("REMOTE_CONG_CONTROL", &["Remote", "Congestion", "Control", "Algorithm"], |f| f.remote.congestion_control.clone()),
    ("LOCAL_FILL_FILE", &["Local", "Fill", "File"], |f| f.local.fill_file.clone()),
    ("REMOTE_FILL_FILE", &["Remote", "Fill", "File"], |f| f.remote.fill_file.clone()),
    ("COMMAND_LINE", &["Command", "Line"], |f| quoted(&f.options.command_line)),
    ("OUTPUT_END", &["This", "Is", "The", "End"], |_| String::new()),
];
