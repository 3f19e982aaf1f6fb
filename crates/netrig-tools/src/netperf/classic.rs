//! netperf's layouts before the selectors: a banner, titles and rows of columns.

use std::fmt::Write as _;

use super::figures::Figures;
use super::options::Options;
use super::units::Unit;
use super::values::{Family, Transport};
use rig_stats::histogram::Histogram;

/// The name of a test in its banner.
fn title(options: &Options) -> String {
    let transport = options.transport.word();
    let what = match options.test.split_once('_').map_or("", |(_, rest)| rest) {
        _ if options.test == "OMNI" => return format!("OMNI {} TEST", options.direction.word(options.connects)),
        "STREAM" => format!("{transport} STREAM"),
        "MAERTS" => format!("{transport} MAERTS"),
        "SENDFILE" => format!("{transport} SENDFILE"),
        "CRR" => format!("{transport} Connect/Request/Response"),
        "CC" => format!("{transport} Connect/Close"),
        _ => format!("{transport} REQUEST/RESPONSE"),
    };
    format!("MIGRATED {what} TEST")
}

/// An end of the data connection as the banner has it: the name that was given, the address, port and family.
#[derive(Debug, Clone)]
pub struct BannerEnd {
    pub name: String,
    pub address: String,
    pub port: u16,
    pub family: Family,
}

/// The line before a test.
pub fn banner(options: &Options, source: &BannerEnd, destination: &BannerEnd) -> String {
    let mut line = title(options);
    for (word, end) in [("from", source), ("to", destination)] {
        let _ = write!(line, " {word} {} ({}) port {} {}", end.name, end.address, end.port, end.family);
    }
    if let Some(confidence) = &options.confidence {
        let only = if confidence.result_only { " on result only" } else { "" };
        let _ = write!(line, " : +/-{:.3}% @ {:>2}% conf. {only}", confidence.width / 0.02, confidence.level);
    }
    let mut item = |on: bool, text: &str| {
        if on {
            let _ = write!(line, " : {text}");
        }
    };
    item(options.no_delay, "nodelay");
    item(options.no_control, "no control");
    item(options.verbosity > 1, "histogram");
    item(options.bursts.local.is_some() || options.bursts.remote.is_some(), "interval");
    item(options.demo.is_some(), "demo");
    let exchanges = options.direction.transmits && options.direction.receives && !options.connects;
    item(exchanges && options.test != "OMNI", &format!("first burst {}", options.first_burst));
    item(options.cpu.local.is_some() || options.cpu.remote.is_some(), "cpu bind");
    line + "\n"
}

/// Titles and rows of a test.
pub fn report(f: &Figures<'_>) -> String {
    let mut out = String::new();
    if f.unconfident {
        out += &unconfident(f);
    }
    match f.options.verbosity {
        0 => out += &one_number(f),
        _ if f.options.transport.is_datagram() && f.options.direction.is_one_way() => out += &datagrams(f),
        _ if f.options.direction.is_one_way() => out += &stream(f),
        _ => out += &transactions(f),
    }
    if f.options.verbosity > 1 {
        out += &more(f);
    }
    out
}

/// Why a result is doubtful.
pub fn unconfident(f: &Figures<'_>) -> String {
    let widths = &f.widths;
    format!(
        "!!! WARNING\n\
         !!! Desired confidence was not achieved within the specified iterations.\n\
         !!! This implies that there was variability in the test environment that\n\
         !!! must be investigated before going further.\n\
         !!! Confidence intervals: Throughput      : {:4.3}%\n\
         !!!                       Local CPU util  : {:4.3}%\n\
         !!!                       Remote CPU util : {:4.3}%\n\n",
        widths.throughput, widths.local_cpu, widths.remote_cpu
    )
}

fn with_cpu(f: &Figures<'_>) -> bool {
    f.options.cpu_usage.local || f.options.cpu_usage.remote
}

/// Beside the numbers where there are no titles that could say what it is. Connections have none.
fn brand<'a>(f: &'a Figures<'_>) -> &'a str {
    f.options.brand.as_deref().filter(|_| !f.options.headers).unwrap_or_default()
}

fn one_number(f: &Figures<'_>) -> String {
    let datagrams = f.options.transport.is_datagram() && f.options.direction.is_one_way();
    let end = if f.options.cpu_usage.local { &f.local } else { &f.remote };
    match with_cpu(f) {
        true if datagrams => format!("{:6.2} {}\n", end.service_demand, f.local.cpu_method),
        true if f.options.connects => format!("{:6.3}\n", end.service_demand),
        true => format!("{:6.3} {} {}\n", end.service_demand, end.cpu_method, brand(f)),
        false if datagrams => format!("{:7.2}\n", f.byte_rate(f.local.bytes_sent)),
        false if f.options.connects => format!("{:7.2}\n", f.throughput),
        false => format!("{:7.2} {}\n", f.throughput, brand(f)),
    }
}

fn stream(f: &Figures<'_>) -> String {
    let sends = f.options.direction.transmits;
    let mut out = String::new();
    let (receiver, sender) = if sends { (&f.remote, &f.local) } else { (&f.local, &f.remote) };
    let unit = f.unit.name();
    let methods = (f.local.cpu_method, f.remote.cpu_method);
    if f.options.headers && with_cpu(f) {
        let ways = if sends { "Send     Recv     Send    Recv" } else { "Recv     Send     Recv    Send" };
        let _ = write!(
            out,
            "Recv   Send    Send                          Utilization       Service Demand\n\
             Socket Socket  Message  Elapsed              {ways}\n\
             Size   Size    Size     Time     Throughput  local    remote   local   remote\n\
             bytes  bytes   bytes    secs.    {unit:<8}/s  % {}      % {}      us/KB   us/KB\n\n",
            methods.0, methods.1
        );
    } else if f.options.headers {
        let _ = write!(
            out,
            "Recv   Send    Send                          \n\
             Socket Socket  Message  Elapsed              \n\
             Size   Size    Size     Time     Throughput  \n\
             bytes  bytes   bytes    secs.    {unit}/sec  \n\n"
        );
    }
    let _ = write!(
        out,
        "{:6} {:6} {:6}    {:<6.2}",
        receiver.buffer.receive, sender.buffer.send, sender.send_size, f.elapsed
    );
    if with_cpu(f) {
        let _ = writeln!(
            out,
            "     {:7.2}   {:<6.2}   {:<6.2}   {:<6.3}  {:<6.3} {}",
            f.throughput,
            f.local.cpu_percent,
            f.remote.cpu_percent,
            f.local.service_demand,
            f.remote.service_demand,
            brand(f)
        );
    } else {
        let _ = writeln!(out, "   {:7.2}   {}", f.throughput, brand(f));
    }
    out
}

fn transactions(f: &Figures<'_>) -> String {
    let mut out = String::new();
    let (request, response) = (f.options.request.map_or(-1, i64::from), f.options.response.map_or(-1, i64::from));
    let (local, remote) = (&f.local, &f.remote);
    let connects = f.options.connects;
    if f.options.headers && with_cpu(f) {
        // Tests of connections leave out how CPU time was found.
        let method = |method: char| if connects { ' ' } else { method };
        let (what, each, unit) = match f.unit {
            _ if connects => ("Trans. ", "Rate    ".to_owned(), "Tr"),
            Unit::Transactions => ("Trans. ", "Rate    ".to_owned(), "Tr"),
            Unit::Microseconds => ("Latency", "usecs   ".to_owned(), "Tr"),
            unit => ("Tput   ", format!("{:<8.8}", unit.name()), "KB"),
        };
        let per = if f.unit == Unit::Microseconds { "per tran" } else { "per sec " };
        let _ = write!(
            out,
            "Local /Remote\n\
             Socket Size   Request Resp.  Elapsed {what}  CPU    CPU    S.dem   S.dem\n\
             Send   Recv   Size    Size   Time    {each} local  remote local   remote\n\
             bytes  bytes  bytes   bytes  secs.   {per} % {}    % {}    us/{unit}   us/{unit}\n\n",
            method(local.cpu_method),
            method(remote.cpu_method)
        );
    } else if f.options.headers && (f.unit == Unit::Transactions || connects) {
        out += "Local /Remote\n\
                Socket Size   Request  Resp.   Elapsed  Trans.\n\
                Send   Recv   Size     Size    Time     Rate         \n\
                bytes  Bytes  bytes    bytes   secs.    per sec   \n\n";
    } else if f.options.headers {
        let _ = write!(
            out,
            "Local /Remote\n\
             Socket Size   Request  Resp.   Elapsed  \n\
             Send   Recv   Size     Size    Time     Throughput \n\
             bytes  Bytes  bytes    bytes   secs.    {}/sec   \n\n",
            f.unit.name()
        );
    }
    if with_cpu(f) {
        let _ = write!(
            out,
            "{:<6} {:<6} {request:<6}  {response:<6} {:<6.2}  {:<6.2}  {:<6.2} {:<6.2} {:<6.3}  {:<6.3}",
            local.buffer.send,
            local.buffer.receive,
            f.elapsed,
            f.throughput,
            local.cpu_percent,
            remote.cpu_percent,
            local.service_demand,
            remote.service_demand
        );
        let _ = if connects { writeln!(out) } else { writeln!(out, " {}", brand(f)) };
    } else {
        let _ = write!(
            out,
            "{:<6} {:<6} {request:<6}   {response:<6}  {:<6.2}   {:7.2}   ",
            local.buffer.send, local.buffer.receive, f.elapsed, f.throughput
        );
        let _ = if connects { writeln!(out) } else { writeln!(out, "{}", brand(f)) };
    }
    let _ = writeln!(out, "{:<6} {:<6}", remote.buffer.send, remote.buffer.receive);
    out
}

fn datagrams(f: &Figures<'_>) -> String {
    let mut out = String::new();
    let unit = f.unit.name();
    let (local, remote) = (&f.local, &f.remote);
    let (sent, received) = (f.byte_rate(local.bytes_sent), f.byte_rate(remote.bytes_received));
    let (methods, failed) = ((local.cpu_method, remote.cpu_method), local.failed_sends);
    if with_cpu(f) {
        if f.options.headers {
            let _ = write!(
                out,
                "Socket  Message  Elapsed      Messages                   CPU      Service\n\
                 Size    Size     Time         Okay Errors   Throughput   Util     Demand\n\
                 bytes   bytes    secs            #      #   {unit}/sec % {}{}     us/KB\n\n",
                methods.0, methods.1
            );
        }
        let _ = write!(
            out,
            "{:6}  {:6}   {:<7.2}   {:7} {failed:6}    {sent:7.1}     {:<6.2}   {:<6.3}\n\
             {:6}           {:<7.2}   {:7}           {received:7.1}     {:<6.2}   {:<6.3}\n\n",
            local.buffer.send,
            local.send_size,
            f.elapsed,
            local.send_calls,
            local.cpu_percent,
            local.service_demand,
            remote.buffer.receive,
            f.elapsed,
            remote.receive_calls,
            remote.cpu_percent,
            remote.service_demand
        );
        return out;
    }
    if f.options.headers {
        let _ = write!(
            out,
            "Socket  Message  Elapsed      Messages                \n\
             Size    Size     Time         Okay Errors   Throughput\n\
             bytes   bytes    secs            #      #   {unit}/sec\n\n"
        );
    }
    let _ = write!(
        out,
        "{:6}  {:6}   {:<7.2}   {:7} {failed:6}    {sent:7.2}\n\
         {:6}           {:<7.2}   {:7}           {received:7.2}\n\n",
        local.buffer.send,
        local.send_size,
        f.elapsed,
        local.send_calls,
        remote.buffer.receive,
        f.elapsed,
        remote.receive_calls
    );
    out
}

/// `-v 2`
fn more(f: &Figures<'_>) -> String {
    let (local, remote) = (&f.local, &f.remote);
    let sends = f.options.direction.transmits;
    let each = |bytes: u64, calls: u64| if calls == 0 { 0.0 } else { bytes as f64 / calls as f64 };
    let mut out = String::new();
    match (f.options.direction.is_one_way(), f.options.transport) {
        (true, Transport::Udp | Transport::UdpLite) => {}
        (true, _) => {
            let (ours, theirs) = if sends { ("Send", "Recv") } else { ("Recv", "Send") };
            let (bytes, calls) =
                if sends { (local.bytes_sent, local.send_calls) } else { (local.bytes_received, local.receive_calls) };
            let (their_bytes, their_calls) =
                if sends { (bytes, remote.receive_calls) } else { (remote.bytes_sent, remote.send_calls) };
            let (alignment, offset) = match sends {
                true => ((local.alignment.send, remote.alignment.receive), (local.offset.send, remote.offset.receive)),
                false => ((local.alignment.receive, remote.alignment.send), (local.offset.receive, remote.offset.send)),
            };
            let _ = write!(
                out,
                "\nAlignment      Offset         Bytes    Bytes       {ours}s   Bytes    {theirs}s\n\
                 Local  Remote  Local  Remote  Xfered   Per                 Per\n\
                 {ours}   {theirs}    {ours}   {theirs}             {ours} (avg)          {theirs} (avg)\n\
                 {:5}   {:5}  {:5}   {:5} {bytes:6}  {:6.2}    {calls:6}   {:6.2} {their_calls:6}\n",
                alignment.0,
                alignment.1,
                offset.0,
                offset.1,
                each(bytes, calls),
                each(their_bytes, their_calls),
            );
            let _ = write!(out, "\nMaximum\nSegment\nSize (bytes)\n{:6}\n", f.segment_size);
        }
        (false, _) => {
            let unit = if f.unit.counts_transactions() { Unit::Bits(6) } else { f.unit };
            let rate = |size: Option<u32>| unit.rate(f.transaction_rate * f64::from(size.unwrap_or(0)), 1.0);
            let place = format!(
                "{:5}  {:5}   {:5}  {:5}",
                local.alignment.send, remote.alignment.receive, local.offset.send, remote.offset.receive
            );
            if f.options.connects {
                let _ = write!(
                    out,
                    "\nAlignment      Offset\nLocal  Remote  Local  Remote\nSend   Recv    Send   Recv\n{place}\n"
                );
            } else if f.options.transport == Transport::Tcp {
                let _ = write!(
                    out,
                    "Alignment      Offset         RoundTrip  Trans    Throughput\n\
                     Local  Remote  Local  Remote  Latency    Rate     {:<8}/s\n\
                     Send   Recv    Send   Recv    usec/Tran  per sec  Outbound   Inbound\n\
                     {place}   {:<6.3}   {:<6.3} {:<6.3}    {:<6.3}\n",
                    unit.name(),
                    f.round_trip,
                    f.transaction_rate,
                    rate(f.options.request),
                    rate(f.options.response)
                );
            }
        }
    }
    out + &histogram(f)
}

/// How many latencies fell into each tenth of a power of ten of microseconds.
pub fn histogram(f: &Figures<'_>) -> String {
    let Some(latencies) = &f.latencies else { return String::new() };
    let what = match (f.options.direction.transmits, f.options.direction.receives) {
        (true, false) => "time spent in send() call",
        (false, true) => "time spent in recv() call",
        (true, true) if f.options.connects => "connect/request/response/close times",
        (true, true) => "request/response times",
        (false, false) => "connect/close times",
    };
    format!("\nHistogram of {what}\n{}", rows(latencies))
}

const ROWS: [&str; 8] =
    ["UNIT_USEC", "TEN_USEC", "HUNDRED_USEC", "UNIT_MSEC", "TEN_MSEC", "HUNDRED_MSEC", "UNIT_SEC", "TEN_SEC"];

fn rows(latencies: &Histogram) -> String {
    let (mut counts, mut beyond) = ([[0_u64; 10]; ROWS.len()], 0);
    for (ns, count) in latencies.values() {
        let us = ns / 1000;
        let power = us.checked_ilog10().unwrap_or(0);
        match counts.get_mut(power as usize) {
            Some(row) => row[(us / 10_u64.pow(power)) as usize] += count,
            None => beyond += count,
        }
    }
    let mut out = String::new();
    for (name, row) in ROWS.iter().zip(counts) {
        let cells: Vec<String> = row.iter().map(|count| format!(": {count:4}")).collect();
        let _ = writeln!(out, "{name:<14}{}", cells.concat());
    }
    let _ = write!(out, ">100_SECS: {beyond}\nHIST_TOTAL:      {}\n", latencies.count());
    out
}
