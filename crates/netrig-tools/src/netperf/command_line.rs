//! The command line of netperf(1): global options, and after `--` those of the test.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::getopt::{CommandLine, GetoptError, GivenOption};
use super::options::{Bursts, Confidence, DataAddress, Layout, Length, OptionError, Options, Request};
use super::units::Unit;
use super::values::{
    Direction, Family, SendReceive, Sides, Transport, convert, explicit_pair, leading_float, leading_number,
    microseconds, pair, type_of_service,
};

const GLOBAL: &str = "A:a:b:B:CcdD:f:F:H:hi:I:jk:K:l:L:n:NO:o:P:p:rSs:t:T:v:VW:w:y:Y:Z:46";
const TEST: &str = "aBb:cCd:De:fFgG:hH:i:Ij:kK:l:L:m:M:nNoOp:P:q:r:R:s:S:t:T:u:UVw:W:46";

/// Iterations of the confidence loop, as netperf bounds them.
const ITERATIONS: std::ops::RangeInclusive<i64> = 3..=30;

fn refuse<T>(words: impl Into<String>) -> Result<T, OptionError> {
    Err(OptionError(words.into()))
}

/// Reads the words behind the program's name.
///
/// # Errors
/// A value that has no meaning, or an option that has none here, by its name.
pub fn parse(arguments: &[OsString]) -> Result<Request, OptionError> {
    let mut words = CommandLine::new(arguments);
    let mut options = Options::of(arguments);
    let mut result_only = false;
    loop {
        match words.option(GLOBAL) {
            Ok(None) => break,
            // It says something of the loop that `-I` or `-i` begins, which may come after it.
            Ok(Some(option)) if option.letter == 'r' => result_only = true,
            Ok(Some(option)) => {
                if let Some(request) = global(&mut options, &option, &mut words)? {
                    return Ok(request);
                }
            }
            Err(error) => return Ok(usage(&error)),
        }
    }
    let by_test = named_test(&mut options)?;
    loop {
        match words.option(TEST) {
            Ok(None) => break,
            Ok(Some(option)) => {
                if let Some(request) = test(&mut options, &option, &mut words, by_test)? {
                    return Ok(request);
                }
            }
            // netperf goes on here, and measures something else than was asked for.
            Err(error) => return Ok(usage(&error)),
        }
    }
    for stray in &words.strays {
        options.remarks.push(format!("'{stray}' belongs to no option and changes nothing"));
    }
    if let Some(confidence) = &mut options.confidence {
        confidence.result_only = result_only;
    }
    finish(options)
}

fn usage(error: &GetoptError) -> Request {
    Request::Usage(Some(format!("netperf: {error}")))
}

fn global(
    options: &mut Options,
    option: &GivenOption,
    words: &mut CommandLine,
) -> Result<Option<Request>, OptionError> {
    let value = option.value.as_str();
    let starts_with_digit = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
    match option.letter {
        'V' => return Ok(Some(Request::Version)),
        'a' => set_ways(&mut options.alignment.local, value, 1 << 26, "-a")?,
        'A' => set_ways(&mut options.alignment.remote, value, 1 << 26, "-A")?,
        'o' => set_ways(&mut options.offset.local, value, 1 << 26, "-o")?,
        'O' => set_ways(&mut options.offset.remote, value, 1 << 26, "-O")?,
        'c' | 'C' => {
            // A rate of the CPU, which its time is counted without.
            words.next_if(starts_with_digit);
            let usage = &mut options.cpu_usage;
            *(if option.letter == 'c' { &mut usage.local } else { &mut usage.remote }) = true;
        }
        'D' => {
            let seconds = explicit_pair(value).0.map_or(1.0, leading_float).abs();
            if seconds == 0.0 || seconds > 86_400.0 {
                return refuse(format!("-D {value}: the time between interim results is above 0 and up to 86400 s"));
            }
            options.demo = Some(Duration::from_secs_f64(seconds));
        }
        'f' => {
            let unit = value.chars().next().and_then(Unit::of);
            options.unit = Some(unit.ok_or_else(|| OptionError(format!("-f {value}: one of g m k b G M K B x u")))?);
        }
        'F' => {
            let (local, remote) = explicit_pair(value);
            options.fill_file = Sides { local: local.map(PathBuf::from), remote: remote.map(PathBuf::from) };
            if remote.is_some_and(|path| path.len() > super::wire::LONGEST_FILL_FILE) {
                return refuse(format!(
                    "-F: the remote file's name has at most {} bytes",
                    super::wire::LONGEST_FILL_FILE
                ));
            }
        }
        'i' => {
            let (most, least) = pair(value);
            let bounded = |text: Option<&str>| {
                text.map(|text| convert(text).clamp(*ITERATIONS.start(), *ITERATIONS.end()) as u32)
            };
            let confidence = confidence(options, 99);
            confidence.most = bounded(most).unwrap_or(confidence.most);
            confidence.least = bounded(least).unwrap_or(confidence.least);
            confidence.most = confidence.most.max(confidence.least);
        }
        'I' => {
            let (level, width) = pair(value);
            let level = level.map_or(99, convert);
            if level != 95 && level != 99 {
                return refuse("Only 95% and 99% confidence level is supported");
            }
            // A level alone is no width.
            let width = width.filter(|_| value.contains(',')).map(leading_float);
            if width.is_some_and(|width| width <= 0.0) {
                return refuse(format!("-I {value}: the width is a percentage above 0"));
            }
            let confidence = confidence(options, level as u32);
            confidence.level = level as u32;
            confidence.width = width.map_or(confidence.width, |width| width / 100.0);
        }
        'j' => options.statistics = true,
        'k' | 'K' => {
            return refuse(format!("-{}: dirtying or reading buffers between calls is not built in", option.letter));
        }
        // How many CPUs there are, which Linux tells; more output, of which there is none.
        'n' | 'd' => {}
        'N' => options.no_control = true,
        'P' => options.headers = convert(value) != 0,
        'S' => options.keep_alive = true,
        's' => options.wait = Duration::from_secs(whole(value, 86_400, "-s")?.into()),
        't' => options.test = value.to_ascii_uppercase(),
        'T' => {
            let (local, remote) = pair(value);
            let cpu = |text: Option<&str>| text.map(|text| whole(text, 4095, "-T")).transpose();
            options.cpu = Sides { local: cpu(local)?, remote: cpu(remote)? };
        }
        'W' => set_ways(&mut options.width, value, 1 << 16, "-W")?,
        'y' => {
            let (local, remote) = pair(value);
            let priority = |text: Option<&str>| text.map(|text| whole(text, 1 << 20, "-y")).transpose();
            options.priority = Sides { local: priority(local)?, remote: priority(remote)? };
        }
        'Y' => {
            let (local, remote) = pair(value);
            let service = |text: Option<&str>| {
                let of = |text| {
                    type_of_service(text).ok_or_else(|| {
                        OptionError(format!("-Y {text}: a name as CS5, AF41, EF, or a number up to 0xff"))
                    })
                };
                text.map(of).transpose()
            };
            options.type_of_service = Sides { local: service(local)?, remote: service(remote)? };
        }
        'Z' => options.passphrase = Some(value.to_owned()),
        'l' => options.length = length(value, &mut options.remarks)?,
        'v' => options.verbosity = convert(value),
        'p' => {
            let (remote, local) = explicit_pair(value);
            set_text(&mut options.port.remote, remote);
            set_text(&mut options.port.local, local);
        }
        'H' => options.control.remote = address(value, &mut options.remarks),
        'L' => options.control.local = address(value, &mut options.remarks),
        'w' | 'b' => set_bursts(options, option.letter, value)?,
        'B' => options.brand = Some(value.to_owned()),
        '4' | '6' => {
            let family = if option.letter == '4' { Family::Inet } else { Family::Inet6 };
            options.control.local.family = family;
            options.control.remote.family = family;
        }
        // -h
        _ => return Ok(Some(Request::Usage(None))),
    }
    Ok(None)
}

/// `-l`: seconds, or where it is negative units.
fn length(value: &str, remarks: &mut Vec<String>) -> Result<Length, OptionError> {
    let number = convert(value);
    let amount = u32::try_from(number.unsigned_abs()).ok().filter(|&amount| i32::try_from(amount).is_ok());
    let Some(amount) = amount else { return refuse(format!("-l {value}: up to {}", i32::MAX)) };
    let digits = value.trim_start_matches('-');
    if digits.contains(|letter: char| !letter.is_ascii_digit()) {
        let meant = if number < 0 { "units" } else { "s" };
        remarks.push(format!(
            "-l {value} is {amount} {meant}: netperf knows no units of time, and K, M, G, k, m, g anywhere multiply"
        ));
    }
    Ok(if number < 0 { Length::Units(amount) } else { Length::Seconds(amount) })
}

fn confidence(options: &mut Options, level: u32) -> &mut Confidence {
    let default = Confidence { level, width: 0.05, least: 3, most: 10, result_only: false };
    options.confidence.get_or_insert(default)
}

fn address(value: &str, remarks: &mut Vec<String>) -> DataAddress {
    let (host, family) = explicit_pair(value);
    let known = family.map(|family| Family::of(family).ok_or(family));
    if let Some(Err(family)) = known {
        remarks.push(format!("'{family}' is no family of addresses (4, 6, inet, inet6): either may be used"));
    }
    DataAddress { host: host.map(str::to_owned), family: known.and_then(Result::ok).unwrap_or_default() }
}

fn set_text(field: &mut String, value: Option<&str>) {
    if let Some(value) = value {
        value.clone_into(field);
    }
}

fn set_ways(field: &mut SendReceive<u32>, value: &str, most: u32, name: &str) -> Result<(), OptionError> {
    let (send, receive) = pair(value);
    let number = |text: Option<&str>| text.map(|text| whole(text, most, name)).transpose();
    field.send = number(send)?.unwrap_or(field.send);
    field.receive = number(receive)?.unwrap_or(field.receive);
    Ok(())
}

/// A number as `convert` has it, from 0 on.
fn whole(value: &str, most: u32, name: &str) -> Result<u32, OptionError> {
    let number = u32::try_from(convert(value)).ok().filter(|&number| number <= most);
    number.ok_or_else(|| OptionError(format!("{name} {value}: a number from 0 to {most}")))
}

fn set_bursts(options: &mut Options, letter: char, value: &str) -> Result<(), OptionError> {
    let (local, remote) = explicit_pair(value);
    let name = format!("-{letter}");
    for (side, text) in [(&mut options.bursts.local, local), (&mut options.bursts.remote, remote)] {
        let Some(text) = text else { continue };
        let now = side.unwrap_or(Bursts { sends: 0, interval: Duration::from_millis(1) });
        *side = Some(match letter {
            'b' => Bursts { sends: whole(text, 1 << 30, &name)?, ..now },
            _ => {
                let us = u64::try_from(microseconds(text)).ok().filter(|us| (1..=3_600_000_000).contains(us));
                let us =
                    us.ok_or_else(|| OptionError(format!("-w {text}: a time up to an hour, as 10, 10ms, 500us, 1s")))?;
                Bursts { interval: Duration::from_micros(us), ..now }
            }
        });
    }
    Ok(())
}

/// What the test's name says. True where the options of the test may say more: test OMNI.
fn named_test(options: &mut Options) -> Result<bool, OptionError> {
    let both = Direction { transmits: true, receives: true };
    let send = Direction { transmits: true, receives: false };
    let receive = Direction { transmits: false, receives: true };
    let (transport, rest) = match options.test.split_once('_') {
        Some(("UDP", rest)) => (Transport::Udp, rest),
        Some(("SCTP", rest)) => (Transport::Sctp, rest),
        Some(("TCP", rest)) => (Transport::Tcp, rest),
        _ => (Transport::Tcp, options.test.as_str()),
    };
    let (direction, connects, implicit) = match (transport, rest) {
        (_, "STREAM") => (send, false, false),
        (Transport::Tcp, "MAERTS") => (receive, false, false),
        (Transport::Tcp, "SENDFILE") => {
            options.sends_file = true;
            (send, false, false)
        }
        (_, "RR") => (both, false, false),
        (Transport::Tcp, "CRR") => (both, true, false),
        (Transport::Tcp, "CC") => (Direction::default(), true, false),
        (_, "OMNI" | "UUID") => {
            options.layout = Layout::Columns;
            (Direction::default(), false, true)
        }
        (_, "LOC_CPU" | "REM_CPU" | "CPU") => {
            return refuse(format!(
                "test {}: netrig counts CPU time, and has no rate of an idle CPU to find first",
                options.test
            ));
        }
        _ => {
            return refuse(format!(
                "The test you requested ({}) is unknown to this netperf: TCP_STREAM, TCP_MAERTS, TCP_SENDFILE, TCP_RR, TCP_CRR, TCP_CC, \
                 UDP_STREAM, UDP_RR, SCTP_STREAM, SCTP_RR, OMNI, UUID",
                options.test
            ));
        }
    };
    options.transport = transport;
    options.direction = direction;
    options.connects = connects;
    if direction == both {
        (options.request, options.response) = (Some(1), Some(1));
    }
    Ok(implicit)
}

fn test(
    options: &mut Options,
    option: &GivenOption,
    words: &mut CommandLine,
    by_options: bool,
) -> Result<Option<Request>, OptionError> {
    let value = option.value.as_str();
    let name = format!("-{} (of the test)", option.letter);
    match option.letter {
        '4' | '6' => {
            let family = if option.letter == '4' { Family::Inet } else { Family::Inet6 };
            options.data.local.family = family;
            options.data.remote.family = family;
        }
        'a' => options.defer_accept = true,
        'b' => options.first_burst = number(value, 1 << 20, &name)?,
        'c' => options.connects = true,
        'C' => options.cork = true,
        'd' if by_options => {
            let direction = Direction::parse(value);
            options.direction =
                direction.ok_or_else(|| OptionError(format!("-d {value}: xmit, recv, rr, or 2, 4, 6")))?;
        }
        'd' => options.remarks.push(format!("-d {value}: the name of test {} says the direction", options.test)),
        'D' => options.no_delay = true,
        'e' => {
            options.receive_timeout =
                Some(Duration::from_secs(number(value, 86_400, &name)?.into())).filter(|time| !time.is_zero());
        }
        'f' => options.keep_whole = true,
        'F' => options.fast_open = true,
        'G' => options.segment_size = Some(number(value, 65_535, &name)?),
        'H' => options.data.remote = data_address(value, &mut options.remarks)?,
        'L' => options.data.local = data_address(value, &mut options.remarks)?,
        'k' | 'o' | 'O' => {
            options.layout = match option.letter {
                'k' => Layout::Keys,
                'o' => Layout::Csv,
                _ => Layout::Columns,
            };
            options.selection = words.next_if(|word| !word.starts_with('-'));
            if options.selection.as_deref() == Some("?") {
                return Ok(Some(Request::Selectors { lines: option.letter == 'O' }));
            }
        }
        'K' => {
            let (local, remote) = pair(value);
            options.congestion_control = Sides { local: local.map(str::to_owned), remote: remote.map(str::to_owned) };
            if remote.is_some_and(|name| name.len() > super::wire::LONGEST_CONGESTION) {
                return refuse(format!(
                    "-K {value}: the name of a congestion control has at most {} bytes",
                    super::wire::LONGEST_CONGESTION
                ));
            }
        }
        'l' => return refuse("-l (of the test): no end joins a multicast group here"),
        'm' => {
            let (local, remote) = explicit_pair(value);
            set_sizes(&mut options.send_size, local, remote, &name)?;
            if by_options {
                options.direction.transmits |= local.is_some();
                options.direction.receives |= remote.is_some();
            }
        }
        'M' => {
            let (remote, local) = explicit_pair(value);
            set_sizes(&mut options.receive_size, local, remote, &name)?;
            if by_options {
                options.direction.transmits |= remote.is_some();
                options.direction.receives |= local.is_some();
            }
        }
        'N' => options.remote_connected = true,
        'p' => {
            let (least, most) = pair(value);
            let least = least.map_or(Ok(5000), |text| port(text, &name))?;
            let most = most.map_or(Ok(65_535), |text| port(text, &name))?;
            if least == 0 || least > most {
                return refuse(format!("{name} {value}: the first port, and the last"));
            }
            options.client_ports = Some((least, most));
        }
        'P' => {
            let (local, remote) = pair(value);
            options.data_port.local = local.map_or(Ok(0), |text| port(text, &name))?;
            options.data_port.remote = remote.map_or(Ok(0), |text| port(text, &name))?;
        }
        'q' => options.pacing = u64::try_from(leading_number(value)).ok().filter(|&rate| rate > 0),
        'r' => {
            let (request, response) = pair(value);
            let bytes = |text: Option<&str>| Ok(text.map(|text| size(text, &name)).transpose()?.flatten());
            options.request = bytes(request)?.or(options.request);
            options.response = bytes(response)?.or(options.response);
            if by_options {
                options.direction = Direction { transmits: true, receives: true };
            }
        }
        'R' => options.routed = Some(leading_number(value) != 0),
        's' | 'S' => {
            let (send, receive) = pair(value);
            let buffer = |text: Option<&str>| Ok(text.map(|text| size(text, &name)).transpose()?.flatten());
            let ways = SendReceive { send: buffer(send)?, receive: buffer(receive)? };
            *(if option.letter == 's' { &mut options.buffer.local } else { &mut options.buffer.remote }) = ways;
        }
        't' => match value {
            _ if value.contains("stream") => {}
            _ if value.contains("dgram") => options.transport = Transport::Udp,
            _ => return refuse(format!("-t {value}: stream or dgram")),
        },
        'T' => {
            let transport = Transport::parse(value);
            options.transport =
                transport.ok_or_else(|| OptionError(format!("-T {value}: tcp, udp, sctp or udplite")))?;
        }
        'u' => value.clone_into(&mut options.uuid),
        'U' => options.survives_failed_connects = true,
        'W' => options.width.send = whole(value, 1 << 16, &name)?,
        // write(2) instead of send(2), which are one call in the kernel on a socket; connected datagram sockets, which all are.
        'I' | 'n' => {}
        'B' => {
            return refuse(
                "-B (of the test): the address that a datagram was sent to is not asked of the kernel (IP_PKTINFO)",
            );
        }
        'g' => return refuse("-g (of the test): Linux does nothing for SO_DEBUG on these sockets"),
        'i' => return refuse("-i (of the test): netperf itself has it no longer"),
        'j' => {
            return refuse(
                "-j (of the test): netperf reads a number of connections and opens one; see `netrig stream --connections`",
            );
        }
        'V' => {
            return refuse("-V (of the test): Linux has no SO_SND_COPYAVOID; test TCP_SENDFILE sends without a copy");
        }
        'w' => return refuse("-w (of the test): netperf itself does nothing for it; the global -w has an interval"),
        // -h
        _ => return Ok(Some(Request::TestUsage)),
    }
    Ok(None)
}

fn data_address(value: &str, remarks: &mut Vec<String>) -> Result<DataAddress, OptionError> {
    let address = address(value, remarks);
    match &address.host {
        Some(host) if host.contains('/') => {
            refuse(format!("{host}: random addresses of a network are not drawn; give an address without a mask"))
        }
        _ => Ok(address),
    }
}

fn set_sizes(
    field: &mut Sides<Option<u32>>,
    local: Option<&str>,
    remote: Option<&str>,
    name: &str,
) -> Result<(), OptionError> {
    if let Some(local) = local {
        field.local = size(local, name)?;
    }
    if let Some(remote) = remote {
        field.remote = size(remote, name)?;
    }
    Ok(())
}

/// Bytes of a message or a buffer; 0 leaves it to the test.
fn size(value: &str, name: &str) -> Result<Option<u32>, OptionError> {
    const MOST: u32 = 1 << 30;
    let size = u32::try_from(convert(value)).ok().filter(|&size| size <= MOST);
    let size = size.ok_or_else(|| OptionError(format!("{name} {value}: up to {MOST} bytes")))?;
    Ok(Some(size).filter(|&size| size > 0))
}

/// As atoi(3) reads it: `1460b` is 1460.
fn number(value: &str, most: u32, name: &str) -> Result<u32, OptionError> {
    let number = u32::try_from(leading_number(value)).ok().filter(|&number| number <= most);
    number.ok_or_else(|| OptionError(format!("{name} {value}: a number from 0 to {most}")))
}

fn port(text: &str, name: &str) -> Result<u16, OptionError> {
    u16::try_from(leading_number(text)).map_err(|_| OptionError(format!("{name} {text}: a port up to 65535")))
}

fn finish(mut options: Options) -> Result<Request, OptionError> {
    if options.uuid.is_empty() {
        options.uuid = super::uuid().map_err(|error| OptionError(format!("read random bytes: {error}")))?;
    }
    if options.test == "UUID" {
        return Ok(Request::Uuid(options.uuid));
    }
    if options.direction == Direction::default() && !options.connects {
        options.direction.transmits = true;
    }
    if options.direction.transmits && options.direction.receives {
        options.request = options.request.or(Some(1));
        options.response = options.response.or(Some(1));
    } else {
        (options.request, options.response) = (None, None);
    }
    if options.connects && options.direction.is_one_way() {
        return refuse("a connection for each transaction (-c) needs transactions: both directions (-d rr) or none");
    }
    if options.connects && options.transport.is_datagram() {
        return refuse("a connection for each transaction (-c) needs a transport with connections: TCP or SCTP");
    }
    if let Length::Units(_) = options.length
        && options.transport.is_datagram()
    {
        return refuse(
            "-l with a number of units: datagrams may be lost, so that the other end cannot count them; give a time",
        );
    }
    if let Some((first, last)) = options.client_ports
        && first == last
        && options.data_port.remote == first
    {
        return refuse(format!("-p {first} and -P ,{first}: the port of the server cannot be the client's only one"));
    }
    let longest = if options.transport.is_datagram() { super::LONGEST_DATAGRAM } else { u32::MAX };
    for (name, size) in [("-m", options.send_size.local), ("-r", options.request), ("-r", options.response)] {
        if size.is_some_and(|size| size > longest) {
            return refuse(format!("{name}: a datagram has at most {longest} bytes"));
        }
    }
    if options.no_control {
        options.cpu_usage.remote = false;
        if options.direction.transmits && options.direction.receives {
            options.response = options.request;
        }
    }
    options.verbosity = options.verbosity.max(0);
    Ok(Request::Test(Box::new(options)))
}
