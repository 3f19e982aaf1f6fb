//! iperf3's options: their names, what they take, and what they set.

use rig_sys::socket::Dscp;

use super::error::{Code, TestError};
use super::settings::{
    AuthenticationSettings, Family, Flow, KeepAlive, LONGEST_DATAGRAM, LONGEST_MESSAGE, MOST_STREAMS, MOST_WINDOW,
    NetworkSettings, OutputSettings, Protocol, Role, SCTP_LENGTH, SCTP_SEGMENTS, SHORTEST_DATAGRAM, ServerSettings,
    Settings, TCP_LENGTH, TestSettings, UDP_RATE,
};
use super::units::{self, Format};

/// Which role an option is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Both,
    Client,
    Server,
    /// Not honoured: why.
    Refused(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    None,
    Needed(&'static str),
    /// After `=`, if at all.
    Optional(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Without the dashes.
    pub long: &'static str,
    pub short: Option<char>,
    pub argument: Argument,
    pub scope: Scope,
    pub help: &'static str,
}

const fn flag(long: &'static str, short: Option<char>, scope: Scope, help: &'static str) -> OptionSpec {
    OptionSpec { long, short, argument: Argument::None, scope, help }
}

const fn with(
    long: &'static str,
    short: Option<char>,
    value: &'static str,
    scope: Scope,
    help: &'static str,
) -> OptionSpec {
    OptionSpec { long, short, argument: Argument::Needed(value), scope, help }
}

const fn may(
    long: &'static str,
    short: Option<char>,
    value: &'static str,
    scope: Scope,
    help: &'static str,
) -> OptionSpec {
    OptionSpec { long, short, argument: Argument::Optional(value), scope, help }
}

const NO_FILE: Scope = Scope::Refused("payload comes from memory; to move a file use another tool");

const STORE_RUN: &str = "store-run";
const SERVER_STORES_NOTHING: &str = "a server's tests are its clients': the client stores its own";

/// Every option of iperf3 3.21, and `--one-at-a-time` and `--store-run`, which are netrig's.
pub const TABLE: &[OptionSpec] = &[
    flag("server", Some('s'), Scope::Both, "be the server"),
    with("client", Some('c'), "HOST[%DEV]", Scope::Both, "be a client of the server on HOST"),
    with("port", Some('p'), "N", Scope::Both, "port of the server, 5201"),
    with("format", Some('f'), "kmgtKMGT", Scope::Both, "unit of rates: bits in lower case, bytes in upper case"),
    with("interval", Some('i'), "S", Scope::Both, "seconds between reports, 1; 0 for none, else 0.1 to 60"),
    with("pidfile", Some('I'), "FILE", Scope::Both, "write the process's number to FILE"),
    with("file", Some('F'), "FILE", NO_FILE, "payload of a file"),
    with("affinity", Some('A'), "N[,M]", Scope::Both, "run on CPU N; the server on CPU M for this test"),
    with("bind", Some('B'), "HOST[%DEV]", Scope::Both, "use the address HOST of this machine, and interface DEV"),
    with("bind-dev", None, "DEV", Scope::Both, "use interface DEV (SO_BINDTODEVICE)"),
    flag("verbose", Some('V'), Scope::Both, "print more"),
    flag("json", Some('J'), Scope::Both, "print one JSON object"),
    flag("json-stream", None, Scope::Both, "print JSON objects, one a line, as things happen"),
    flag("json-stream-full-output", None, Scope::Both, "with --json-stream, print the one object, too"),
    with("logfile", None, "FILE", Scope::Both, "append what is printed to FILE instead"),
    flag("forceflush", None, Scope::Both, "flush after each report; netrig always does"),
    may("timestamps", None, "FORMAT", Scope::Both, "begin each line with the time, in strftime(3)'s FORMAT"),
    with("rcv-timeout", None, "MS", Scope::Both, "give up when nothing arrives for so long, 120000"),
    with("snd-timeout", None, "MS", Scope::Both, "give up when data is not acknowledged for so long"),
    may("cntl-ka", None, "IDLE/INTV/CNT", Scope::Both, "keepalives on the control connection"),
    flag("mptcp", Some('m'), Scope::Both, "MPTCP in the place of TCP"),
    may("debug", Some('d'), "LEVEL", Scope::Both, "print the messages of the protocol on standard error"),
    flag("version", Some('v'), Scope::Both, "print the version and end"),
    flag("help", Some('h'), Scope::Both, "print this and end"),
    flag("daemon", Some('D'), Scope::Server, "run in the background"),
    flag("one-off", Some('1'), Scope::Server, "serve one client and end"),
    flag("one-at-a-time", None, Scope::Server, "refuse further clients during a test, as iperf3 does"),
    with(
        "server-bitrate-limit",
        None,
        "N[KMG][/S]",
        Scope::Server,
        "end tests above this rate, averaged over S seconds, 5",
    ),
    with("server-max-duration", None, "S", Scope::Server, "refuse tests that are longer"),
    with("idle-timeout", None, "S", Scope::Server, "begin anew (with -1: end) after so long without a client"),
    with(
        "rsa-private-key-path",
        None,
        "FILE",
        Scope::Server,
        "let only users test who show their password, encrypted for it",
    ),
    with("authorized-users-path", None, "FILE", Scope::Server, "these users: lines of NAME,SHA-256 of {NAME}PASSWORD"),
    with("time-skew-threshold", None, "S", Scope::Server, "what their clocks may differ by, 10"),
    flag("use-pkcs1-padding", None, Scope::Both, "encrypt as versions before 3.17 do; both ends alike"),
    flag("udp", Some('u'), Scope::Client, "UDP in the place of TCP"),
    with("connect-timeout", None, "MS", Scope::Client, "give up when the server does not answer for so long"),
    with(
        "bitrate",
        Some('b'),
        "N[KMG][/B]",
        Scope::Client,
        "bits per second of each stream, 0 for no limit; B blocks at a time",
    ),
    with("pacing-timer", None, "US", Scope::Client, "told to old servers, which use it; nothing here does"),
    with("fq-rate", None, "N[KMG]", Scope::Client, "bits per second that the kernel lets leave (fq)"),
    flag("no-fq-socket-pacing", None, Scope::Client, "as --fq-rate 0"),
    with("time", Some('t'), "S", Scope::Client, "seconds, 10; 0 for no end"),
    with("bytes", Some('n'), "N[KMG]", Scope::Client, "send so many bytes in the place of -t"),
    with("blockcount", Some('k'), "N[KMG]", Scope::Client, "send so many blocks in the place of -t"),
    with("length", Some('l'), "N[KMG]", Scope::Client, "bytes of a block: 128K over TCP, what the path takes over UDP"),
    with("cport", None, "N", Scope::Client, "the first stream's port; each further one has the next"),
    with("parallel", Some('P'), "N", Scope::Client, "streams, 1"),
    flag("reverse", Some('R'), Scope::Client, "the server sends"),
    flag("bidir", None, Scope::Client, "both send"),
    with("window", Some('w'), "N[KMG]", Scope::Client, "socket buffers of both ends"),
    with("congestion", Some('C'), "NAME", Scope::Client, "congestion control"),
    with("set-mss", Some('M'), "N", Scope::Client, "maximum segment size"),
    flag("no-delay", Some('N'), Scope::Client, "TCP_NODELAY"),
    flag("version4", Some('4'), Scope::Both, "IPv4 only"),
    flag("version6", Some('6'), Scope::Both, "IPv6 only"),
    with("tos", Some('S'), "N", Scope::Client, "type of service, 0 to 255, 0x and 0 for other bases"),
    with("dscp", None, "N", Scope::Client, "the upper six bits of it, or a name: ef, cs1, af11"),
    with("flowlabel", Some('L'), "N", Scope::Client, "IPv6 flow label"),
    flag("zerocopy", Some('Z'), Scope::Client, "send with sendfile(2)"),
    flag("skip-rx-copy", None, Scope::Client, "receive with MSG_TRUNC, so that nothing is copied"),
    with("omit", Some('O'), "S", Scope::Client, "count only what comes after so many seconds"),
    with("title", Some('T'), "TEXT", Scope::Client, "begin each line with TEXT"),
    with("extra-data", None, "TEXT", Scope::Client, "a member of the JSON of both ends"),
    flag("get-server-output", None, Scope::Client, "print what the server printed, too"),
    flag("udp-counters-64bit", None, Scope::Client, "number datagrams with 64 bits"),
    flag("gsro", None, Scope::Client, "ask the server to use GSO and GRO; netrig does wherever the kernel can"),
    flag("repeating-payload", None, Scope::Client, "digits as payload, in the place of random bytes"),
    flag("dont-fragment", None, Scope::Client, "set IPv4's flag of that name, UDP"),
    may(STORE_RUN, None, "LABEL", Scope::Client, "keep the test as a run of netrig's"),
    flag("sctp", None, Scope::Client, "SCTP in the place of TCP"),
    with("xbind", Some('X'), "HOST", Scope::Both, "an address of this machine for SCTP; once for each"),
    with("nstreams", None, "N", Scope::Client, "streams of an SCTP association"),
    with(
        "username",
        None,
        "NAME",
        Scope::Client,
        "a user of the server; the password is in IPERF3_PASSWORD, or asked for",
    ),
    with("rsa-public-key-path", None, "FILE", Scope::Client, "the server's public key, for the password"),
];

/// Names that mean another.
const ALIASES: [(&str, &str); 2] = [("bandwidth", "bitrate"), ("linux-congestion", "congestion")];

/// What a command line comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Parsed {
    Run(Box<Settings>),
    Help,
    Version,
}

/// Why a command line is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// In getopt(3)'s words, after which the usage follows.
    #[error("{0}")]
    Usage(String),
    /// The original's words.
    #[error("parameter error - {0}")]
    Value(#[from] TestError),
    #[error("parameter error - {option} is not honoured: {why}")]
    Refused { option: String, why: &'static str },
}

impl From<Code> for OptionError {
    fn from(code: Code) -> Self {
        Self::Value(code.into())
    }
}

/// An option that was given, with its value.
struct Given<'a> {
    spec: &'static OptionSpec,
    value: Option<&'a str>,
}

fn by_long(name: &str) -> Result<&'static OptionSpec, OptionError> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    if let Some(exact) = TABLE.iter().find(|spec| spec.long == name) {
        return Ok(exact);
    }
    // getopt_long(3): a beginning that only one option has will do.
    let mut beginning = TABLE.iter().filter(|spec| spec.long.starts_with(name) && !name.is_empty());
    match (beginning.next(), beginning.next()) {
        (Some(spec), None) => Ok(spec),
        (Some(_), Some(_)) => Err(OptionError::Usage(format!("option '--{name}' is ambiguous"))),
        _ => Err(OptionError::Usage(format!("unrecognized option '--{name}'"))),
    }
}

/// Words to options. What belongs to none is passed over, as the original does.
fn split(words: &[String]) -> Result<Vec<Given<'_>>, OptionError> {
    let mut given = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let spec = by_long(name)?;
            let value = match (spec.argument, value) {
                (Argument::None, Some(_)) => {
                    return Err(OptionError::Usage(format!("option '--{}' doesn't allow an argument", spec.long)));
                }
                (Argument::Needed(_), None) => Some(
                    words
                        .next()
                        .ok_or_else(|| OptionError::Usage(format!("option '--{}' requires an argument", spec.long)))?,
                ),
                (_, value) => value,
            };
            given.push(Given { spec, value });
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            for (at, letter) in letters.char_indices() {
                let unknown = || OptionError::Usage(format!("invalid option -- '{letter}'"));
                let spec = TABLE.iter().find(|spec| spec.short == Some(letter)).ok_or_else(unknown)?;
                let rest = &letters[at + letter.len_utf8()..];
                if let Argument::Needed(_) = spec.argument {
                    let missing = || OptionError::Usage(format!("option requires an argument -- '{letter}'"));
                    let value = if rest.is_empty() { words.next().ok_or_else(missing)? } else { rest };
                    given.push(Given { spec, value: Some(value) });
                    break;
                }
                given.push(Given { spec, value: None });
            }
        }
    }
    Ok(given)
}

fn number<T: TryFrom<i64>>(text: &str, least: i64, most: i64, code: Code) -> Result<T, OptionError> {
    let number = units::leading_integer(text).filter(|number| (least..=most).contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| code.into())
}

/// strtol(3) with base 0.
fn any_base(text: &str) -> Option<i64> {
    let lower = text.trim().to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        i64::from_str_radix(hex, 16).ok()
    } else if lower.len() > 1 && lower.starts_with('0') {
        i64::from_str_radix(&lower[1..], 8).ok()
    } else {
        lower.parse().ok()
    }
}

/// A code point by number or name, as a type of service.
fn dscp(text: &str) -> Option<u32> {
    if let Some(named) = Dscp::of_name(text) {
        return Some(named.type_of_service().into());
    }
    match text.to_ascii_lowercase().as_str() {
        // VOICE-ADMIT, RFC 5865.
        "va" => Some(44 << 2),
        "lowdelay" => Some(0x10),
        "throughput" => Some(0x08),
        "reliability" => Some(0x04),
        _ => any_base(text).filter(|code| (0..=63).contains(code)).map(|code| (code as u32) << 2),
    }
}

/// A host with an interface after `%`. The interface of a link-local address belongs to the address.
fn with_device(text: &str) -> (String, Option<String>) {
    match text.split_once('%') {
        Some((host, device)) if !host.to_ascii_lowercase().starts_with("fe80:") => {
            (host.to_owned(), Some(device.to_owned()))
        }
        _ => (text.to_owned(), None),
    }
}

fn rate_and_slash(text: &str) -> Result<(u64, Option<&str>), OptionError> {
    let (rate, slash) = text.split_once('/').map_or((text, None), |(rate, rest)| (rate, Some(rest)));
    Ok((units::rate(rate)?, slash))
}

/// What a 32-bit size comes to; larger ones are too large for every option that has one.
fn small(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Reads a command line.
///
/// # Errors
/// See [`OptionError`].
pub fn parse(words: &[String]) -> Result<Parsed, OptionError> {
    let given = split(words)?;
    let mut role = None;
    let mut host = String::new();
    let mut test = TestSettings::default();
    let mut output = OutputSettings {
        format: Format::Adaptive,
        verbose: false,
        json: false,
        json_stream: false,
        json_full: false,
        log_file: None,
        force_flush: false,
        timestamps: None,
        debug: false,
    };
    let mut network = NetworkSettings { port: 5201, receive_timeout_ms: 120_000, ..NetworkSettings::default() };
    let mut server = ServerSettings { limit_interval: 5.0, ..ServerSettings::default() };
    let mut authentication = AuthenticationSettings::default();
    let (mut interval, mut affinity, mut pid_file, mut store_run) = (1.0, None, None, None);
    let (mut rate, mut time, mut length, mut receive_timeout) = (None, None, 0, false);
    let mut warnings = Vec::new();
    for Given { spec, value } in &given {
        if let Scope::Refused(why) = spec.scope {
            return Err(OptionError::Refused { option: format!("--{}", spec.long), why });
        }
        let value = value.unwrap_or_default();
        match spec.long {
            "server" | "client" => {
                let asked = if spec.long == "server" { Role::Server } else { Role::Client };
                if role.is_some_and(|role| role != asked) {
                    return Err(Code::BOTH_ROLES.into());
                }
                role = Some(asked);
                if asked == Role::Client {
                    let device;
                    (host, device) = with_device(value);
                    network.device = device.or(network.device);
                }
            }
            "port" => network.port = number(value, 1, 65_535, Code::PORT)?,
            "format" => output.format = Format::of(value)?,
            "interval" => {
                interval = value
                    .parse::<f64>()
                    .ok()
                    .filter(|s| *s == 0.0 || (0.1..=60.0).contains(s))
                    .ok_or(Code::INTERVAL)?;
            }
            "pidfile" => pid_file = Some(value.to_owned()),
            "affinity" => {
                let (own, servers) = value.split_once(',').map_or((value, None), |(own, rest)| (own, Some(rest)));
                affinity = Some(number(own, 0, 1023, Code::AFFINITY)?);
                test.server_affinity = servers.map(|cpu| number(cpu, 0, 1023, Code::AFFINITY)).transpose()?;
            }
            "bind" => {
                let (address, device) = with_device(value);
                network.bind = Some(address);
                network.device = device.or(network.device);
            }
            "bind-dev" => network.device = Some(value.to_owned()),
            "verbose" => output.verbose = true,
            "json" => output.json = true,
            "json-stream" => (output.json, output.json_stream) = (true, true),
            "json-stream-full-output" => output.json_full = true,
            "logfile" => output.log_file = Some(value.to_owned()),
            "forceflush" => output.force_flush = true,
            "timestamps" => {
                output.timestamps = Some(if value.is_empty() { "%c " } else { value }.to_owned());
            }
            "rcv-timeout" => {
                receive_timeout = true;
                network.receive_timeout_ms = number(value, 100, 86_400_000, Code::RECEIVE_TIMEOUT)?;
            }
            "snd-timeout" => network.send_timeout_ms = number(value, 0, 86_400_000, Code::SEND_TIMEOUT)?,
            "cntl-ka" => network.keep_alive = Some(keep_alive(value)?),
            "mptcp" => (test.mptcp, test.protocol) = (true, Protocol::Tcp),
            "debug" => output.debug = true,
            "version" => return Ok(Parsed::Version),
            "help" => return Ok(Parsed::Help),
            "daemon" => server.daemon = true,
            "one-off" => server.one_off = true,
            "one-at-a-time" => server.one_at_a_time = true,
            "server-bitrate-limit" => {
                let (limit, seconds) = rate_and_slash(value)?;
                server.bitrate_limit = limit;
                if let Some(seconds) = seconds {
                    let valid = |s: &f64| *s == 0.0 || (0.1..=60.0).contains(s);
                    server.limit_interval = seconds.parse::<f64>().ok().filter(valid).ok_or(Code::TOTAL_INTERVAL)?;
                }
            }
            "server-max-duration" => server.max_duration = number(value, 0, 86_400, Code::DURATION)?,
            "idle-timeout" => server.idle_timeout = Some(number(value, 1, 86_400, Code::IDLE_TIMEOUT)?),
            "rsa-private-key-path" => authentication.private_key = Some(value.to_owned()),
            "authorized-users-path" => authentication.users = Some(value.to_owned()),
            "time-skew-threshold" => authentication.skew = Some(number(value, 1, i32::MAX.into(), Code::SKEW)?),
            "use-pkcs1-padding" => authentication.pkcs1_padding = true,
            "username" => authentication.username = Some(value.to_owned()),
            "rsa-public-key-path" => authentication.public_key = Some(value.to_owned()),
            "udp" => test.protocol = Protocol::Udp,
            "sctp" => test.protocol = Protocol::Sctp,
            "xbind" => network.sctp_binds.push(value.to_owned()),
            "nstreams" => test.sctp_streams = number(value, 1, u16::MAX.into(), Code::SCTP_STREAMS)?,
            "connect-timeout" => network.connect_timeout_ms = Some(units::size(value)?),
            "bitrate" => {
                let (asked, burst) = rate_and_slash(value)?;
                rate = Some(asked);
                if let Some(burst) = burst {
                    test.burst = number(burst, 1, 1000, Code::BURST)?;
                }
            }
            "pacing-timer" => test.pacing_timer = units::size(value)?,
            "fq-rate" => test.fq_rate = units::rate(value)?,
            "no-fq-socket-pacing" => {
                test.fq_rate = 0;
                warnings.push("--no-fq-socket-pacing is deprecated".to_owned());
            }
            "time" => time = Some(number(value, 0, 86_400, Code::DURATION)?),
            "bytes" => test.bytes = units::size(value)?,
            "blockcount" => test.blocks = units::size(value)?,
            "length" => length = units::size(value)?,
            "cport" => network.client_port = Some(number(value, 1, 65_535, Code::PORT)?),
            "parallel" => test.parallel = number(value, 1, MOST_STREAMS.into(), Code::STREAMS)?,
            "reverse" | "bidir" => {
                let asked = if spec.long == "reverse" { Flow::Reverse } else { Flow::Both };
                if test.flow != Flow::Forward && test.flow != asked {
                    return Err(Code::REVERSE_AND_BIDIR.into());
                }
                test.flow = asked;
            }
            "window" => {
                test.window = small(units::size(value)?);
                if test.window > MOST_WINDOW {
                    return Err(Code::BUFFER_SIZE.into());
                }
            }
            "congestion" => test.congestion = Some(value.to_owned()),
            "set-mss" => test.mss = number(value, 0, 32_767, Code::MSS)?,
            "no-delay" => test.no_delay = true,
            "version4" => network.family = Some(Family::V4),
            "version6" => network.family = Some(Family::V6),
            "tos" => {
                let tos = any_base(value).filter(|tos| (0..=255).contains(tos)).ok_or(Code::TOS)?;
                test.tos = tos as u32;
            }
            "dscp" => test.tos = dscp(value).ok_or(Code::DSCP)?,
            "flowlabel" => {
                let label =
                    any_base(value).filter(|label| (1..=0xf_ffff).contains(label)).ok_or(Code::SET_FLOW_LABEL)?;
                test.flow_label = label as u32;
            }
            "zerocopy" => test.zerocopy = true,
            "skip-rx-copy" => test.skip_rx_copy = true,
            "omit" => test.omit = number(value, 0, 600, Code::OMIT)?,
            "title" => test.title = Some(value.to_owned()),
            "extra-data" => test.extra_data = Some(value.to_owned()),
            "get-server-output" => test.get_server_output = true,
            "udp-counters-64bit" => test.udp_counters_64bit = true,
            "gsro" => test.gsro = true,
            "repeating-payload" => test.repeating_payload = true,
            "dont-fragment" => test.dont_fragment = true,
            STORE_RUN => store_run = Some(Some(value.to_owned()).filter(|label| !label.is_empty())),
            other => return Err(OptionError::Usage(format!("unrecognized option '--{other}'"))),
        }
    }
    let role = role.ok_or(Code::NO_ROLE)?;
    if role == Role::Server && store_run.is_some() {
        return Err(OptionError::Refused { option: format!("--{STORE_RUN}"), why: SERVER_STORES_NOTHING });
    }
    let foreign = if role == Role::Client { Scope::Server } else { Scope::Client };
    let has_foreign = given.iter().any(|given| given.spec.scope == foreign);
    if has_foreign || (role == Role::Server && test.server_affinity.is_some()) {
        return Err(if role == Role::Client { Code::SERVER_ONLY } else { Code::CLIENT_ONLY }.into());
    }
    if receive_timeout && role == Role::Client && test.flow == Flow::Forward {
        return Err(Code::RECEIVE_TIMEOUT_SENDING.into());
    }
    test.length = checked_length(test.protocol, small(length))?;
    test.rate = rate.unwrap_or(if test.protocol == Protocol::Udp { UDP_RATE } else { 0 });
    let ends = [time.is_some(), test.bytes != 0, test.blocks != 0];
    if ends.iter().filter(|given| **given).count() > 1 {
        return Err(Code::END_CONDITIONS.into());
    }
    test.time = time.unwrap_or(if test.bytes != 0 || test.blocks != 0 { 0 } else { 10 });
    let (guarded, key) = match role {
        Role::Server => {
            (authentication.private_key.is_some() || authentication.users.is_some(), "rsa-private-key-path")
        }
        Role::Client => (authentication.username.is_some() || authentication.public_key.is_some(), "username"),
    };
    for (given, option) in
        [(authentication.skew.is_some(), "time-skew-threshold"), (authentication.pkcs1_padding, "use-pkcs1-padding")]
    {
        if given && !guarded {
            warnings.push(format!("--{option} has a meaning with --{key} only"));
        }
    }
    let over = |protocol: Protocol| test.protocol == protocol;
    let [over_tcp, over_udp] = [("TCP", over(Protocol::Tcp)), ("UDP", over(Protocol::Udp))];
    let (over_sctp, over_either) =
        (("SCTP", over(Protocol::Sctp) || role == Role::Server), ("TCP and SCTP", test.protocol.connects()));
    let over_stack = ("TCP and UDP", !over(Protocol::Sctp));
    for (given, option, (name, has_meaning)) in [
        (test.zerocopy, "--zerocopy", over_tcp),
        (test.congestion.is_some(), "--congestion", over_tcp),
        (test.mss != 0, "--set-mss", over_either),
        (test.no_delay, "--no-delay", over_either),
        (test.mptcp, "--mptcp", over_tcp),
        (test.udp_counters_64bit, "--udp-counters-64bit", over_udp),
        (test.gsro, "--gsro", over_udp),
        (test.skip_rx_copy, "--skip-rx-copy", over_stack),
        (test.fq_rate != 0, "--fq-rate", over_stack),
        (test.flow_label != 0, "--flowlabel", over_stack),
        (test.dont_fragment, "--dont-fragment", over_udp),
        (test.sctp_streams != 0, "--nstreams", over_sctp),
        (!network.sctp_binds.is_empty(), "--xbind", over_sctp),
    ] {
        if given && !has_meaning {
            warnings.push(format!("{option} has a meaning over {name} only"));
        }
    }
    if over(Protocol::Sctp) {
        if test.mss != 0 && !SCTP_SEGMENTS.contains(&test.mss) {
            warnings.push(format!(
                "--set-mss is passed over: SCTP has segments of {} bytes or more here",
                SCTP_SEGMENTS.start()
            ));
        } else if test.mss != 0 && test.flow != Flow::Forward {
            warnings.push("--set-mss holds for what the client sends: SCTP agrees on none".to_owned());
        }
        if network.send_timeout_ms != 0 {
            warnings.push("--snd-timeout holds for the control connection alone: SCTP has none".to_owned());
        }
    }
    if output.json && output.format != Format::Adaptive {
        warnings.push("Report format (-f) flag ignored with JSON output (-J)".to_owned());
    }
    if output.json && output.verbose {
        warnings.push("Verbose output (-v) may interfere with JSON output (-J)".to_owned());
    }
    Ok(Parsed::Run(Box::new(Settings {
        role,
        host,
        test,
        output,
        network,
        server,
        authentication,
        interval,
        affinity,
        pid_file,
        store_run,
        warnings,
    })))
}

/// The length that a test has, where 0 leaves it to the protocol.
pub fn checked_length(protocol: Protocol, length: u32) -> Result<u32, TestError> {
    match protocol {
        Protocol::Tcp if length == 0 => Ok(TCP_LENGTH),
        Protocol::Sctp if length == 0 => Ok(SCTP_LENGTH),
        Protocol::Udp if length != 0 && !(SHORTEST_DATAGRAM..=LONGEST_DATAGRAM).contains(&length) => {
            Err(if length > LONGEST_MESSAGE { Code::BLOCK_SIZE } else { Code::DATAGRAM_SIZE }.into())
        }
        _ if length > LONGEST_MESSAGE => Err(Code::BLOCK_SIZE.into()),
        _ => Ok(length),
    }
}

fn keep_alive(text: &str) -> Result<KeepAlive, OptionError> {
    let mut parts = text.splitn(3, '/').map(|part| match part {
        "" => Ok(0),
        part => number(part, 0, 32_767, Code::KEEPALIVE),
    });
    let mut next = || parts.next().unwrap_or(Ok(0));
    let (idle, interval, count) = (next()?, next()?, next()?);
    let keep_alive = KeepAlive { idle, interval, count };
    if idle != 0 && idle <= count.saturating_mul(interval) {
        return Err(Code::KEEPALIVE.into());
    }
    Ok(keep_alive)
}

/// What `-h` prints.
pub fn help() -> String {
    let mut text = String::from("Usage: iperf3 [-s|-c host] [options]\n       iperf3 [-h|--help] [-v|--version]\n");
    let group_of = |scope: &Scope| match scope {
        Scope::Both => "Server or client",
        Scope::Server => "Server",
        Scope::Client => "Client",
        Scope::Refused(_) => "Refused, with the reason",
    };
    for title in ["Server or client", "Server", "Client", "Refused, with the reason"] {
        text += &format!("\n{title}:\n");
        for spec in TABLE.iter().filter(|spec| group_of(&spec.scope) == title) {
            let short = spec.short.map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
            let name = match spec.argument {
                Argument::None => format!("{short}--{}", spec.long),
                Argument::Needed(value) => format!("{short}--{} {value}", spec.long),
                Argument::Optional(value) => format!("{short}--{}[={value}]", spec.long),
            };
            let about = match spec.scope {
                Scope::Refused(why) => why,
                _ => spec.help,
            };
            text += &format!("  {name:<34} {about}\n");
        }
    }
    text += "\nK, M, G and T are powers of 1024 in sizes and of 1000 in rates. docs/IPERF3.md says what differs from iperf3.\n";
    text
}

/// What follows a wrong command line on standard error.
pub const SHORT_USAGE: &str = "Usage: iperf3 [-s|-c host] [options]\nTry `iperf3 --help' for more information.\n";
