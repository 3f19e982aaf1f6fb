//! The command line of NTttcp for Windows 5.40.
//!
//! Every option is a word of its own, upper and lower case are the same, and values are the words that follow.

use std::fs;
use std::time::Duration;

use rig_load::worker::embedded::Protocol;
use rig_sys::cpu::CpuSet;

use super::Dialect;
use super::options::{OptionError, OptionSpec, OptionUse, Value, bad, file, mapping, number, small, source};
use super::test_plan::{LONGEST, Layout, Length, Role, TestPlan, WindowsOutput};

/// Threads of all mappings; with synchronisation one less, as in the original.
const THREADS: u32 = 1000;
/// Buffers when neither -n nor -t says how many.
const BUFFERS: u64 = 20 << 10;
/// The most seconds that -n may take without -t.
const AT_MOST: u32 = 3 * 3600;
const DATAGRAM: u32 = 65_507;

const fn honoured(name: &'static str, value: Value, help: &'static str) -> OptionSpec {
    OptionSpec { name, value, use_of_it: OptionUse::Honoured, help }
}

const fn refused(name: &'static str, value: Value, help: &'static str, why: &'static str) -> OptionSpec {
    OptionSpec { name, value, use_of_it: OptionUse::Refused(why), help }
}

/// Every option of the original.
pub const OPTIONS: [OptionSpec; 46] = [
    honoured("-s", Value::None, "send"),
    honoured("-r", Value::None, "receive"),
    honoured("-l", Value::Needed("n[K|M]"), "bytes for each send or receive [TCP 64K, UDP 128]"),
    honoured("-n", Value::Needed("n[K|M]"), "buffers that each thread sends [20K when there is no -t]"),
    honoured("-p", Value::Needed("port"), "first port; each thread has the next [5001]"),
    refused(
        "-sp",
        Value::None,
        "let the receiver hand out the ports",
        "a receiver of netrig serves any number of connections on fixed ports: leave it out at both ends",
    ),
    honoured("-ns", Value::None, "no synchronisation: the way to talk to NTttcp for Windows"),
    honoured("-to", Value::Needed("ms"), "give up when nothing happens for so long, 0 never [600000]"),
    honoured("-a", Value::Optional("n"), "n sends or receives outstanding on each connection, by io_uring [2]"),
    honoured("-rb", Value::Needed("n[K|M]"), "SO_RCVBUF; negative leaves it to the kernel"),
    honoured("-sb", Value::Needed("n[K|M]"), "SO_SNDBUF; negative leaves it to the kernel"),
    honoured("-ndl", Value::None, "TCP_NODELAY"),
    honoured("-u", Value::None, "UDP instead of TCP"),
    refused(
        "-w",
        Value::None,
        "WSASend and WSARecv",
        "it chooses between two calls of Winsock: leave it out, -a alone has several I/Os outstanding here",
    ),
    refused(
        "-rt",
        Value::None,
        "round trips",
        "ntttcp measures no round trips here: use `netrig rr` at both ends, which keeps the whole distribution of \
         latency",
    ),
    refused(
        "-d",
        Value::None,
        "verify the data",
        "looking at every byte changes what is measured, and TCP and UDP carry checksums: leave it out",
    ),
    honoured("-t", Value::Needed("seconds"), "duration; with -n the most that it may take"),
    honoured("-cd", Value::Needed("seconds"), "cool-down [0]"),
    honoured("-wu", Value::Needed("seconds"), "warm-up [0]"),
    honoured("-v", Value::None, "verbose"),
    honoured("-6", Value::None, "IPv6 instead of IPv4"),
    refused(
        "-wa",
        Value::None,
        "MSG_WAITALL",
        "receives here take what has come, and bytes are counted the same: leave it out, and choose -l for their size",
    ),
    honoured("-nic", Value::Needed("address"), "sender: source address, and the interface that owns it"),
    honoured("-xml", Value::Optional("file"), "append the results to a file as XML, and print none [xml.txt]"),
    honoured("-na", Value::Needed("node"), "run on the CPUs of a NUMA node, where -m names no CPU"),
    honoured("-hpt", Value::None, "no lines for each thread"),
    refused(
        "-uso",
        Value::Needed("bytes"),
        "UDP segmentation offload",
        "ntttcp sends one datagram a call here: use `netrig udp --gso N` at both ends",
    ),
    refused(
        "-uro",
        Value::None,
        "UDP receive coalescing",
        "ntttcp receives one datagram a call here: use `netrig udp --gro` at both ends",
    ),
    refused(
        "-uc",
        Value::None,
        "unconnected UDP sockets",
        "the sender's sockets are connected, which is the cheaper way on Linux: leave it out",
    ),
    refused(
        "-x",
        Value::Optional("n"),
        "TransmitPackets",
        "Linux has no such call: leave it out, or use `netrig stream --send-mode sendfile` at both ends",
    ),
    refused("-hv", Value::None, "Hyper-V sockets", "AF_HYPERV exists on Windows only: give IP addresses"),
    honoured("-nsb", Value::None, "no output is held back (it never is)"),
    honoured("-thr", Value::Needed("KB/s"), "sender: limit of each thread, in units of 1024 bytes"),
    refused(
        "-brn",
        Value::Needed("n"),
        "burn CPU after each I/O",
        "netrig keeps its own use of the CPU low: run a load of your own beside it",
    ),
    refused(
        "-lm",
        Value::None,
        "latency of each I/O",
        "the time that a send takes to return is no latency of the network: use `netrig rr` at both ends",
    ),
    refused(
        "-icp",
        Value::Needed("n"),
        "I/O completion ports",
        "Linux has none: leave it out, -a uses io_uring with one thread for each connection",
    ),
    refused(
        "-cfi",
        Value::None,
        "CPU use from idle cycles",
        "Linux accounts CPU time exactly: leave it out, the CPU figures come from /proc/stat",
    ),
    refused(
        "-es",
        Value::None,
        "EStats of TCP",
        "it is an interface of Windows: leave it out, and look at TCP_INFO with `ss -ti` while the test runs",
    ),
    refused(
        "-sam",
        Value::Needed("seconds"),
        "a result every so often",
        "only whole tests are recorded: use `netrig stream --interval`, which keeps samples inside the window",
    ),
    refused(
        "-qos",
        Value::Needed("0-5"),
        "QoS traffic type",
        "it is an interface of Windows: leave it out, and set the DSCP with nftables or tc",
    ),
    refused(
        "-jm",
        Value::Optional("file"),
        "jitter of arrival",
        "ntttcp stamps no packets here: use `netrig udp` at both ends, which reports jitter",
    ),
    refused("-ps", Value::Needed("ms"), "pause between sends", "it belongs to -jm: use -thr for a rate"),
    honoured(
        "-m",
        Value::Several("threads,CPU,receiver"),
        "mappings: threads (each a connection and a port), CPU or *, receiver",
    ),
    honoured("-h", Value::None, "this help"),
    honoured("--help", Value::None, "this help"),
    // netrig's own, in both dialects.
    honoured("--dialect", Value::Needed("linux|windows"), "whose options these are"),
];

pub fn find(word: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.name.eq_ignore_ascii_case(word))
}

/// A number that k, K, m or M may follow, in steps of 1024.
pub fn memory(option: &str, text: &str, least: i64, most: i64) -> Result<i64, OptionError> {
    let why = || format!("write a number from {least} to {most}, which K or M may follow, as in 128k");
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1024),
        Some((at, 'm' | 'M')) => (&text[..at], 1024 * 1024),
        _ => (text, 1),
    };
    let value = digits.parse::<i64>().ok().and_then(|value| value.checked_mul(factor));
    value.filter(|value| (least..=most).contains(value)).ok_or_else(|| bad(option, text, why()))
}

/// Options and their values in order.
fn words(arguments: &[String]) -> Result<Vec<(&'static OptionSpec, Vec<String>)>, OptionError> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(word) = arguments.get(at) {
        at += 1;
        if let Some(value) = word.strip_prefix("--dialect=") {
            found.extend(find("--dialect").map(|spec| (spec, vec![value.to_owned()])));
            continue;
        }
        if !word.starts_with('-') {
            return Err(OptionError::Stray(word.clone()));
        }
        let spec =
            find(word).ok_or_else(|| OptionError::Unknown { option: word.clone(), dialect: Dialect::Windows })?;
        let mut values = Vec::new();
        let follows = |at: usize| arguments.get(at).filter(|word| !word.starts_with('-'));
        match spec.value {
            Value::None => {}
            Value::Needed(value) => {
                let text = arguments.get(at).ok_or_else(|| OptionError::NoValue { option: word.clone(), value })?;
                values.push(text.clone());
                at += 1;
            }
            Value::Optional(_) => {
                values.extend(follows(at).cloned());
                at += values.len();
            }
            Value::Several(value) => {
                while let Some(text) = follows(at) {
                    values.push(text.clone());
                    at += 1;
                }
                if values.is_empty() {
                    return Err(OptionError::NoValue { option: word.clone(), value });
                }
            }
        }
        found.push((spec, values));
    }
    Ok(found)
}

/// The command line as a test; `None` when it asks for help. `named` is the role that the program's name gives.
pub fn parse(arguments: &[String], named: Option<Role>, cpus: &[u32]) -> Result<super::linux::ParsedPlan, OptionError> {
    let words = words(arguments)?;
    if words.iter().any(|(spec, _)| matches!(spec.name, "-h" | "--help")) {
        return Ok(None);
    }
    if ["-s", "-r"].iter().all(|role| words.iter().any(|(spec, _)| spec.name == *role)) {
        return Err(OptionError::Conflict("-r and -s exclude each other: this end receives or sends".into()));
    }
    let mut reading = Reading { role: named, ..Reading::default() };
    for (spec, values) in words {
        if let OptionUse::Refused(why) = spec.use_of_it {
            return Err(OptionError::Refused { option: spec.name, why });
        }
        reading.take(spec.name, &values, cpus)?;
    }
    reading.finish().map(|plan| Some(Box::new(plan)))
}

#[derive(Debug, Default)]
struct Reading {
    role: Option<Role>,
    mappings: Option<Vec<super::test_plan::Mapping>>,
    length: Option<u32>,
    buffers: Option<u64>,
    port: Option<u16>,
    timeout_ms: Option<u32>,
    outstanding: Option<u32>,
    counted: bool,
    receive_buffer: Option<i64>,
    send_buffer: Option<i64>,
    seconds: Option<u32>,
    warm_up: u32,
    cool_down: u32,
    source: Option<rig_sys::socket::ZonedAddress>,
    xml: Option<std::path::PathBuf>,
    node: Option<u32>,
    kilobytes: Option<u64>,
    flags: Vec<&'static str>,
}

impl Reading {
    fn take(&mut self, name: &'static str, values: &[String], cpus: &[u32]) -> Result<(), OptionError> {
        let text = values.first().map(String::as_str).unwrap_or_default();
        match name {
            "-s" => self.role = Some(Role::Sender),
            "-r" => self.role = Some(Role::Receiver),
            "-l" => self.length = Some(memory(name, text, 1, 64 << 20)? as u32),
            "-n" => self.buffers = Some(memory(name, text, 1, i64::MAX)? as u64),
            "-p" => self.port = Some(number(name, text, 2, 65_535)? as u16),
            "-to" => self.timeout_ms = Some(small(name, text, 0, i32::MAX as u32)?),
            "-a" => {
                self.counted = !values.is_empty();
                self.outstanding = Some(if values.is_empty() { 2 } else { small(name, text, 1, 63)? });
            }
            "-rb" => self.receive_buffer = Some(memory(name, text, i64::MIN, i64::from(i32::MAX / 2))?),
            "-sb" => self.send_buffer = Some(memory(name, text, i64::MIN, i64::from(i32::MAX / 2))?),
            "-t" => self.seconds = Some(small(name, text, 1, LONGEST / 2)?),
            "-wu" => self.warm_up = small(name, text, 0, LONGEST / 4)?,
            "-cd" => self.cool_down = small(name, text, 0, LONGEST / 4)?,
            "-nic" => self.source = Some(source(name, text)?),
            "-xml" => self.xml = Some(file(name, values.first().map_or("xml.txt", String::as_str))?),
            "-na" => self.node = Some(small(name, text, 0, 1023)?),
            "-thr" => self.kilobytes = Some(number(name, text, 1, 1 << 40)?),
            "-m" => {
                if self.mappings.is_some() {
                    return Err(OptionError::Conflict("-m may be given once, with all its mappings behind it".into()));
                }
                self.mappings = Some(values.iter().map(|v| mapping(v, THREADS, cpus)).collect::<Result<_, _>>()?);
            }
            "--dialect" => {}
            flag => self.flags.push(flag),
        }
        Ok(())
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    fn finish(self) -> Result<TestPlan, OptionError> {
        let conflict = |words: String| Err(OptionError::Conflict(words));
        // As in the original, which receives unless it is told to send.
        let role = self.role.unwrap_or(Role::Receiver);
        let Some(mappings) = self.mappings.clone() else {
            return conflict(
                "-m is missing: say how many threads, on which CPU, and where the receiver is, as in -m 4,*,10.0.1.4"
                    .into(),
            );
        };
        let (sync, protocol) = (!self.has("-ns"), if self.has("-u") { Protocol::Udp } else { Protocol::Tcp });
        let threads = mappings.iter().map(|mapping| mapping.ports).fold(0, u32::saturating_add);
        let most = if sync { THREADS - 1 } else { THREADS };
        if threads > most {
            return conflict(format!("-m asks for {threads} threads, and at most {most} can be had: lower it"));
        }
        let port = self.port.unwrap_or(5001);
        if u32::from(port) + threads - 1 > 65_535 {
            return conflict(format!("{threads} ports from {port} would go beyond 65535: lower -p or -m"));
        }
        if role == Role::Receiver {
            let given = [("-nic", self.source.is_some()), ("-thr", self.kilobytes.is_some())];
            if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
                return conflict(format!("{option} is for the sender (-s) only: leave it out here"));
            }
        }
        if protocol == Protocol::Udp {
            if self.outstanding.is_some() {
                return conflict("-a with -u is not honoured: datagrams go one a call here; leave -a out".into());
            }
            if self.has("-ndl") {
                return conflict("-ndl is an option of TCP, and -u asks for UDP".into());
            }
        }
        let message = self.length.unwrap_or(if protocol == Protocol::Udp { 128 } else { 64 << 10 });
        if protocol == Protocol::Udp && message > DATAGRAM {
            return conflict(format!("-l {message}: a datagram holds at most {DATAGRAM} bytes"));
        }
        let buffer = |option: &str, size: Option<i64>| match size {
            Some(0) => Err(bad(option, "0", "is not honoured: sockets on Linux always have buffers; leave it out")),
            Some(size) => Ok(u32::try_from(size).ok()),
            None => Ok(None),
        };
        let (send, receive) = (buffer("-sb", self.send_buffer)?, buffer("-rb", self.receive_buffer)?);
        let length = match (role, self.buffers, self.seconds) {
            (_, None, Some(seconds)) => Length::Seconds(seconds),
            (Role::Sender, buffers, seconds) => {
                Length::Messages { each: buffers.unwrap_or(BUFFERS), at_most: seconds.unwrap_or(AT_MOST) }
            }
            (Role::Receiver, ..) => Length::AsSender,
        };
        if length == Length::AsSender && !sync && protocol == Protocol::Udp {
            return conflict("-u with -ns shows no receiver when its sender has ended: say how long with -t".into());
        }
        let timed = matches!(length, Length::Seconds(_));
        let mut remarks = Vec::new();
        if self.counted && role == Role::Sender && self.send_buffer.is_none() {
            remarks.push("-a: Linux has no unbuffered sends, so SO_SNDBUF is left to the kernel".to_owned());
        }
        if !timed && (self.warm_up > 0 || self.cool_down > 0) {
            remarks.push("-wu and -cd are left out: they belong to -t, and not to a test that -n ends".to_owned());
        }
        let per_ms = self.kilobytes.map_or(0, |kilobytes| kilobytes * 1024 / 1000);
        let cpus = match self.node {
            Some(node) if mappings.iter().any(|mapping| mapping.cpu.is_none()) => cpus_of(node)?,
            _ => Vec::new(),
        };
        let timeout_ms = self.timeout_ms.unwrap_or(600_000);
        let timeout = Duration::from_millis(timeout_ms.into());
        Ok(TestPlan {
            role,
            mappings,
            threads_per_port: 1,
            connections_per_thread: 1,
            ipv6: self.has("-6"),
            protocol,
            port,
            sync,
            message,
            send_buffer: send,
            receive_buffer: receive,
            no_delay: self.has("-ndl"),
            outstanding: self.outstanding,
            throttle: (per_ms > 0).then_some(per_ms * 1000),
            pacing: None,
            warm_up: if timed { self.warm_up } else { 0 },
            length,
            cool_down: if timed { self.cool_down } else { 0 },
            source: self.source,
            source_port: None,
            many: false,
            last: false,
            hold: false,
            daemon: false,
            cpus,
            connect_timeout: if timeout.is_zero() { Duration::from_secs(600) } else { timeout },
            time_limit: Duration::from_secs(10),
            stall_timeout: Some(timeout).filter(|timeout| !timeout.is_zero()),
            verbose: self.has("-v"),
            quiet: true,
            layout: Layout::Windows(WindowsOutput {
                xml: self.xml.clone(),
                hide_threads: self.has("-hpt"),
                send_buffer: self.send_buffer.unwrap_or(if self.counted { 0 } else { -1 }),
                receive_buffer: self.receive_buffer.unwrap_or(-1),
                timeout_ms,
                throughput_bytes_per_ms: per_ms,
            }),
            remarks,
        })
    }
}

/// The CPUs of a NUMA node that this process may use.
fn cpus_of(node: u32) -> Result<Vec<u32>, OptionError> {
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    let name = node.to_string();
    let list =
        fs::read_to_string(&path).map_err(|error| bad("-na", &name, format!("no such node: {path}: {error}")))?;
    let cpus: CpuSet = list.trim().parse().map_err(|error| bad("-na", &name, format!("{path}: {error}")))?;
    let allowed = CpuSet::allowed().map_err(|error| bad("-na", &name, error.to_string()))?;
    let usable: Vec<u32> = cpus.as_slice().iter().copied().filter(|cpu| allowed.as_slice().contains(cpu)).collect();
    if usable.is_empty() { Err(bad("-na", &name, "this process may use no CPU of it")) } else { Ok(usable) }
}
