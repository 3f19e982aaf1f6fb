//! The command line of ntttcp-for-linux 1.4.3.
//!
//! It is read as getopt_long(3) does: letters may stand together behind one dash, a value may follow its letter at once,
//! a long option may be shortened as long as it stays unique, and `--` ends the options.

use std::time::Duration;

use rig_load::worker::embedded::Protocol;

use super::Dialect;
use super::options::{OptionError, OptionSpec, OptionUse, Value, bad, file, mapping, number, scaled, small, source};
use super::test_plan::{LONGEST, Layout, Length, LinuxOutput, Mapping, Role, TestPlan};

const PORTS: u32 = 512;
const THREADS_PER_PORT: u32 = 25_600;
const CONNECTIONS_PER_THREAD: u32 = 1000;
const SOURCE_PORT: u16 = 25_001;
/// A UDP datagram's payload at most: 65 535 bytes less the headers of IPv4 and UDP.
const DATAGRAM: u32 = 65_507;
const LOG: &str = "ntttcp-for-linux-log";

const fn spec(name: &'static str, value: Value, help: &'static str) -> OptionSpec {
    OptionSpec { name, value, use_of_it: OptionUse::Honoured, help }
}

/// Every option of the original.
pub const OPTIONS: [OptionSpec; 35] = [
    spec("-r", Value::Optional("address"), "receive, listening on this address"),
    spec("-s", Value::Optional("address"), "send to the receiver at this address"),
    spec("-D", Value::None, "in the background: writes the files asked for"),
    spec("-M", Value::None, "receiver: several senders, the last with -L"),
    spec("-L", Value::None, "sender: the last of several"),
    spec("-e", Value::None, "receiver: use epoll (it always does)"),
    spec("-H", Value::None, "receiver: test after test, until Ctrl-C"),
    spec("-P", Value::Needed("ports"), "of the receiver, a thread each [16, at most 512]"),
    spec("-a", Value::Needed("address"), "sender: source address, and its interface"),
    spec("-n", Value::Needed("threads"), "sender: threads for each port of the receiver [4]"),
    spec("-l", Value::Needed("connections"), "sender: for each thread [1, at most 1000]"),
    spec("-6", Value::None, "IPv6 instead of IPv4"),
    spec("-u", Value::None, "UDP instead of TCP"),
    spec("-p", Value::Needed("port"), "first port; control is on the one below [5001]"),
    spec("-f", Value::Optional("port"), "sender: first source port [25001]; 0: any"),
    spec("-b", Value::Needed("n[KMG]"), "bytes of a send [128K], of a receive [64K]"),
    spec("-B", Value::Needed("n[KMG]"), "sender: bits/s of all threads together"),
    spec("-W", Value::Needed("seconds"), "warm-up [0]"),
    spec("-t", Value::Needed("seconds"), "test, 0 without end [60]"),
    spec("-C", Value::Needed("seconds"), "cool-down [0]"),
    spec("-N", Value::None, "no synchronisation: start at once"),
    spec("-O", Value::Optional("file"), "copy the log to it [ntttcp-for-linux-log.log]"),
    spec("-x", Value::Optional("file"), "results as XML [ntttcp-for-linux-log.xml]"),
    spec("-j", Value::Optional("file"), "results as JSON [ntttcp-for-linux-log.json]"),
    spec("-Q", Value::None, "no line of the present throughput"),
    spec("-V", Value::None, "parameters, connections, threads, round-trip time"),
    spec("-h", Value::None, "this help"),
    spec("-m", Value::Needed("ports,CPU,address"), "all in one, CPU * for any; a thread for each port"),
    spec("--show-tcp-retrans", Value::None, "retransmissions by kind"),
    spec("--show-nic-packets", Value::Needed("interface"), "packets of this interface"),
    spec("--show-dev-interrupts", Value::Needed("text"), "of lines of /proc/interrupts with this text"),
    spec("--fq-rate-limit", Value::Needed("n[KMG]"), "sender: bits/s of all, kept by the kernel"),
    spec("--no-delay", Value::None, "TCP_NODELAY"),
    // netrig's own, in both dialects.
    spec("--dialect", Value::Needed("linux|windows"), "whose options these are"),
    spec("--help", Value::None, "this help"),
];

/// What a command line comes to.
pub type ParsedPlan = Option<Box<TestPlan>>;

/// Options and their values in order.
fn words(arguments: &[String]) -> Result<Vec<(&'static OptionSpec, Option<String>)>, OptionError> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(word) = arguments.get(at) {
        at += 1;
        if word == "--" {
            return arguments.get(at).map_or(Ok(found), |stray| Err(OptionError::Stray(stray.clone())));
        }
        if word.starts_with("--") {
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let spec = long(name)?;
            let value = match (spec.value, attached) {
                (Value::None, Some(value)) => return Err(OptionError::NeedlessValue { option: name.into(), value }),
                (Value::None, None) => None,
                (_, Some(value)) => Some(value),
                (Value::Needed(what), None) => Some(next(arguments, &mut at, name, what)?),
                (Value::Optional(_) | Value::Several(_), None) => optional(arguments, &mut at),
            };
            found.push((spec, value));
            continue;
        }
        let Some(mut letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Err(OptionError::Stray(word.clone()));
        };
        while let Some(letter) = letters.chars().next() {
            let name = format!("-{letter}");
            letters = &letters[letter.len_utf8()..];
            let spec = short(&name)?;
            let value = match spec.value {
                Value::None => None,
                _ if !letters.is_empty() => Some(std::mem::take(&mut letters).to_owned()),
                Value::Needed(what) => Some(next(arguments, &mut at, &name, what)?),
                Value::Optional(_) | Value::Several(_) => optional(arguments, &mut at),
            };
            found.push((spec, value));
        }
    }
    Ok(found)
}

fn next(arguments: &[String], at: &mut usize, option: &str, value: &'static str) -> Result<String, OptionError> {
    *at += 1;
    arguments.get(*at - 1).cloned().ok_or_else(|| OptionError::NoValue { option: option.into(), value })
}

fn optional(arguments: &[String], at: &mut usize) -> Option<String> {
    let value = arguments.get(*at).filter(|word| !word.is_empty() && !word.starts_with('-'))?;
    *at += 1;
    Some(value.clone())
}

fn unknown(option: &str) -> OptionError {
    OptionError::Unknown { option: option.into(), dialect: Dialect::Linux }
}

fn short(name: &str) -> Result<&'static OptionSpec, OptionError> {
    OPTIONS.iter().find(|spec| spec.name == name).ok_or_else(|| unknown(name))
}

fn long(name: &str) -> Result<&'static OptionSpec, OptionError> {
    if let Some(spec) = OPTIONS.iter().find(|spec| spec.name == name) {
        return Ok(spec);
    }
    let mut fits = OPTIONS.iter().filter(|spec| name.len() > 2 && spec.name.starts_with(name));
    match (fits.next(), fits.next()) {
        (Some(spec), None) => Ok(spec),
        (Some(one), Some(other)) => {
            Err(OptionError::Conflict(format!("{name} may be {} or {}: write more of it", one.name, other.name)))
        }
        (None, _) => Err(unknown(name)),
    }
}

/// The command line as a test; `None` when it asks for help. `cpus` are those that the process may use.
pub fn parse(arguments: &[String], cpus: &[u32]) -> Result<ParsedPlan, OptionError> {
    let words = words(arguments)?;
    if words.iter().any(|(spec, _)| matches!(spec.name, "-h" | "--help")) {
        return Ok(None);
    }
    let mut reading = Reading::default();
    for (spec, value) in words {
        reading.take(spec.name, value.as_deref(), cpus)?;
    }
    reading.finish().map(|plan| Some(Box::new(plan)))
}

/// The values so far; `None` where the default depends on others.
#[derive(Debug, Default)]
struct Reading {
    receives: bool,
    sends: bool,
    address: Option<String>,
    mapped: bool,
    cpu: Option<u32>,
    ports: Option<u32>,
    threads_per_port: Option<u32>,
    connections: Option<u32>,
    flags: Vec<&'static str>,
    source: Option<rig_sys::socket::ZonedAddress>,
    port: Option<u16>,
    source_port: Option<u16>,
    message: Option<u32>,
    limit: Option<u64>,
    fq_limit: Option<u64>,
    warm_up: u32,
    seconds: Option<u32>,
    cool_down: u32,
    output: LinuxOutput,
}

impl Reading {
    fn take(&mut self, name: &'static str, value: Option<&str>, cpus: &[u32]) -> Result<(), OptionError> {
        let text = value.unwrap_or_default();
        match name {
            "-r" | "-s" => {
                if name == "-r" {
                    self.receives = true;
                } else {
                    self.sends = true;
                }
                if let Some(address) = value {
                    self.address = Some(address.into());
                }
            }
            "-P" => self.ports = Some(small(name, text, 1, PORTS)?),
            "-a" => self.source = Some(source(name, text)?),
            "-n" => self.threads_per_port = Some(small(name, text, 1, THREADS_PER_PORT)?),
            "-l" => self.connections = Some(small(name, text, 1, CONNECTIONS_PER_THREAD)?),
            "-p" => self.port = Some(number(name, text, 2, 65_535)? as u16),
            "-f" => self.source_port = value.map_or(Ok(Some(SOURCE_PORT)), |text| source_port(name, text))?,
            "-b" => self.message = Some(scaled(name, text, 1024.0, 1, 64 << 20)? as u32),
            "-B" => self.limit = Some(scaled(name, text, 1000.0, 0, 100_000_000_000_000)?).filter(|&limit| limit > 0),
            "--fq-rate-limit" => {
                self.fq_limit = Some(scaled(name, text, 1000.0, 0, 100_000_000_000_000)?).filter(|&limit| limit > 0);
            }
            "-W" => self.warm_up = small(name, text, 0, LONGEST / 4)?,
            "-t" => self.seconds = Some(small(name, text, 0, LONGEST / 2)?),
            "-C" => self.cool_down = small(name, text, 0, LONGEST / 4)?,
            "-O" => self.output.console_log = Some(file(name, value.unwrap_or(&format!("{LOG}.log")))?),
            "-x" => self.output.xml = Some(file(name, value.unwrap_or(&format!("{LOG}.xml")))?),
            "-j" => self.output.json = Some(file(name, value.unwrap_or(&format!("{LOG}.json")))?),
            "-m" => {
                if self.mapped {
                    return Err(bad(name, text, "NTttcp for Linux takes one mapping only"));
                }
                let Mapping { ports, cpu, host } = mapping(text, PORTS, cpus)?;
                (self.mapped, self.ports, self.cpu, self.address) = (true, Some(ports), cpu, Some(host));
                // A mapping overrides an -n before it, but not one after it, as in the original.
                self.threads_per_port = Some(1);
            }
            "--show-nic-packets" => {
                let path = std::path::Path::new("/sys/class/net").join(text).join("statistics");
                if text.is_empty() || text.contains('/') || !path.is_dir() {
                    return Err(bad(name, text, "there is no such interface here (see `ip link`)"));
                }
                self.output.interface = Some(text.into());
            }
            "--show-dev-interrupts" if text.is_empty() => return Err(bad(name, text, "it needs a text to look for")),
            "--show-dev-interrupts" => self.output.interrupts = Some(text.into()),
            "--show-tcp-retrans" => self.output.tcp_retransmissions = true,
            // The dialect was chosen before these options are read.
            "--dialect" => {}
            flag => self.flags.push(flag),
        }
        Ok(())
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    fn finish(self) -> Result<TestPlan, OptionError> {
        let conflict = |words: &str| Err(OptionError::Conflict(words.into()));
        let mut remarks = Vec::new();
        let role = match (self.receives, self.sends) {
            (true, true) => return conflict("-r and -s exclude each other: this end receives or sends"),
            (false, true) => Role::Sender,
            (true, false) => Role::Receiver,
            (false, false) => {
                remarks.push("no role specified. use receiver role".into());
                Role::Receiver
            }
        };
        let sender_only = [
            ("-a", self.source.is_some()),
            ("-L", self.has("-L")),
            ("-B", self.limit.is_some()),
            ("-f", self.source_port.is_some()),
            ("-l", self.connections.is_some()),
            ("--fq-rate-limit", self.fq_limit.is_some()),
        ];
        let receiver_only = [("-M", self.has("-M")), ("-e", self.has("-e")), ("-H", self.has("-H"))];
        let (misplaced, whose) = match role {
            Role::Receiver => (sender_only.iter().find(|(_, given)| *given), "sender (-s)"),
            Role::Sender => (receiver_only.iter().find(|(_, given)| *given), "receiver (-r)"),
        };
        if let Some((option, _)) = misplaced {
            return conflict(&format!("{option} is for the {whose} only: leave it out here"));
        }
        let protocol = if self.has("-u") { Protocol::Udp } else { Protocol::Tcp };
        if protocol == Protocol::Udp && self.has("--no-delay") {
            return conflict("--no-delay is an option of TCP, and -u asks for UDP");
        }
        let mut message = self.message.unwrap_or(match role {
            Role::Receiver => 64 << 10,
            Role::Sender => 128 << 10,
        });
        if protocol == Protocol::Udp && role == Role::Sender && message > DATAGRAM {
            remarks.push("the UDP send size is too big. use the max value".into());
            message = DATAGRAM;
        }
        let ipv6 = self.has("-6");
        let any = if ipv6 { "::" } else { "0.0.0.0" };
        if self.address.is_none() && role == Role::Sender {
            return conflict("-s needs the receiver's address, as in -s 10.0.1.4");
        }
        let host = self.address.clone().unwrap_or_else(|| any.into());
        let (ports, threads_per_port) = (self.ports.unwrap_or(16), self.threads_per_port.unwrap_or(4));
        let connections = self.connections.unwrap_or(1);
        let mut fq_limit = self.fq_limit;
        if self.limit.is_some() {
            remarks.push("Warning! '-B' is specified and the network bandwidth may be limited".into());
            if fq_limit.take().is_some() {
                remarks.push("ignore '--fq-rate-limit' as '-B' is specified".into());
            }
        } else if fq_limit.is_some() {
            remarks.push("Warning! '--fq-rate-limit' is specified and the network bandwidth may be limited".into());
        }
        let threads = u64::from(ports) * u64::from(threads_per_port);
        let each = |limit: u64, parts: u64, option| match limit / parts / 8 {
            0 => {
                Err(OptionError::Conflict(format!("{option}: less than a byte per second is left for each of {parts}")))
            }
            bytes => Ok(bytes),
        };
        let throttle = self.limit.map(|limit| each(limit, threads, "-B")).transpose()?;
        let pacing =
            fq_limit.map(|limit| each(limit, threads * u64::from(connections), "--fq-rate-limit")).transpose()?;
        let length = match self.seconds.unwrap_or(60) {
            0 => {
                remarks.push("running test in continuous mode. please monitor throughput by other tools".into());
                Length::Endless
            }
            seconds => Length::Seconds(seconds),
        };
        let port = self.port.unwrap_or(5001);
        if u32::from(port) + ports - 1 > 65_535 {
            return conflict(&format!("{ports} ports from {port} would go beyond 65535: lower -p or -P"));
        }
        Ok(TestPlan {
            role,
            mappings: vec![Mapping { ports, cpu: None, host }],
            threads_per_port,
            connections_per_thread: connections,
            ipv6,
            protocol,
            port,
            sync: !self.has("-N"),
            message,
            send_buffer: None,
            receive_buffer: None,
            no_delay: self.has("--no-delay"),
            outstanding: None,
            throttle,
            pacing,
            warm_up: self.warm_up,
            length,
            cool_down: self.cool_down,
            source: self.source,
            source_port: self.source_port,
            many: self.has("-M"),
            last: self.has("-L"),
            hold: self.has("-H"),
            daemon: self.has("-D"),
            // One mapping, one CPU: the whole process has it.
            cpus: Vec::from_iter(self.cpu),
            connect_timeout: Duration::from_secs(30),
            time_limit: Duration::from_secs(1),
            stall_timeout: None,
            verbose: self.has("-V"),
            quiet: self.has("-Q"),
            layout: Layout::Linux(LinuxOutput { epoll: self.flags.contains(&"-e"), ..self.output }),
            remarks,
        })
    }
}

/// 0 leaves the choice to the kernel, and what needs privilege becomes the default, as in the original.
fn source_port(option: &str, text: &str) -> Result<Option<u16>, OptionError> {
    Ok(match number(option, text, 0, 65_535)? as u16 {
        0 => None,
        1..=1024 => Some(SOURCE_PORT),
        port => Some(port),
    })
}
