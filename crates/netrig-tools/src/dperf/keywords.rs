//! The keywords: what each takes and what it sets. The manual is made of the same table.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::time::Duration;

use rig_packet::AddressStride;
use rig_packet::plan::{Driver, VxlanPlan};

use super::language::Refusal;
use super::settings::{Device, LogLevel, Port, Protocol, Settings};
use super::values::{address, byte, count, cpus, long_time, mac, nth, range, rate, short_time, whole};

/// `None`, or a warning.
pub type Set = Result<Option<String>, Refusal>;

#[derive(Debug)]
pub struct Keyword {
    pub name: &'static str,
    pub arguments: &'static str,
    pub default: &'static str,
    pub help: &'static str,
    /// How many arguments.
    pub count: RangeInclusive<usize>,
    pub repeats: bool,
    /// Whose word it is.
    pub origin: KeywordOrigin,
    pub set: fn(&mut Settings, &[&str], usize) -> Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeywordOrigin {
    Dperf,
    Netrig,
}

/// A keyword of dperf's that is said at most once.
const fn word(
    name: &'static str,
    arguments: &'static str,
    default: &'static str,
    count: RangeInclusive<usize>,
    help: &'static str,
    set: fn(&mut Settings, &[&str], usize) -> Set,
) -> Keyword {
    Keyword { name, arguments, default, help, count, repeats: false, origin: KeywordOrigin::Dperf, set }
}

impl Keyword {
    const fn repeated(self) -> Self {
        Self { repeats: true, ..self }
    }

    const fn ours(self) -> Self {
        Self { origin: KeywordOrigin::Netrig, ..self }
    }
}

/// Seconds: sixteen times as long is the engine's limit.
const LONGEST_TIMEOUT: u64 = 137;

fn done() -> Set {
    Ok(None)
}

fn no(reason: &str) -> Set {
    Err(Refusal::Keyword(reason.to_owned()))
}

fn seconds(text: &str, range: RangeInclusive<u64>) -> Result<Duration, String> {
    whole(text, range).map(Duration::from_secs)
}

fn client_ports(settings: &mut Settings, words: &[&str]) -> Result<(), Refusal> {
    if settings.client_ports.is_some() {
        let line = ["client_port_range", "lport_range"].iter().filter_map(|keyword| settings.line(keyword)).min();
        let line = line.map_or(String::new(), |line| format!("line {line} "));
        return Err(Refusal::Keyword(format!("{line}sets the same under its other name: remove one of them")));
    }
    let (first, last) = match *words {
        [first, last] => (first, Some(last)),
        // dperf takes both ends in one word, too.
        _ => words[0].split_once('-').map_or((words[0], None), |(first, last)| (first, Some(last))),
    };
    let first = whole(first, 1..=65_535)?;
    let last = last.map_or(Ok(65_535), |last| whole(last, 1..=65_535))?;
    if first > last {
        return Err(Refusal::Value(format!("{first} is above {last}")));
    }
    settings.client_ports = Some((first, last));
    Ok(())
}

fn device(text: &str) -> Result<Device, Refusal> {
    if text.starts_with("bond") && text.contains(':') {
        return Err(Refusal::Keyword(
            "netrig makes no bonds: make one with `ip link add bond0 type bond` and name it here".into(),
        ));
    }
    let hex = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|c| c.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split([':', '.']).collect();
    if let [domain, bus, slot, function] = parts[..]
        && hex(domain, 4)
        && hex(bus, 2)
        && hex(slot, 2)
        && hex(function, 1)
    {
        return Ok(Device::Pci(text.to_ascii_lowercase()));
    }
    // What the kernel takes as an interface's name: dev_valid_name() of net/core/dev.c.
    if text.len() < 16 && !text.contains(['/', ':']) && text != "." && text != ".." {
        return Ok(Device::Interface(text.to_owned()));
    }
    Err(Refusal::Value(format!("'{text}' is neither an interface's name nor a PCI address as in 0000:04:00.0")))
}

fn port(settings: &mut Settings, words: &[&str], line: usize) -> Set {
    let (device, own, gateway) = (device(words[0])?, address(words[1])?, address(words[2])?);
    let mac = words.get(3).map(|text| mac(text)).transpose()?;
    if own.is_ipv4() != gateway.is_ipv4() {
        return Err(Refusal::Value(format!("{own} and {gateway} are not of the same family")));
    }
    if own == gateway {
        return Err(Refusal::Value(format!("{own} cannot be its own gateway")));
    }
    settings.ports.push((line, Port { device, address: own, gateway, mac }));
    done()
}

fn vxlan(settings: &mut Settings, words: &[&str], line: usize) -> Set {
    let tunnel_end = |first, count| match range(first, count) {
        Ok(rig_packet::plan::Range { first: std::net::IpAddr::V4(first), count }) => Ok((first, count)),
        Ok(_) => Err(format!("'{first}' is not an IPv4 address, and tunnels go over IPv4")),
        Err(error) => Err(error),
    };
    let (local, local_count) = tunnel_end(words[3], words[4])?;
    let (remote, remote_count) = tunnel_end(words[5], words[6])?;
    let plan = VxlanPlan {
        vni: whole(words[0], 1..=(1 << 24) - 1)?,
        inner_source: mac(words[1])?,
        inner_destination: mac(words[2])?,
        local,
        local_count,
        remote,
        remote_count,
    };
    settings.vxlans.push((line, plan));
    done()
}

fn stride(settings: &mut Settings, words: &[&str], line: usize) -> Set {
    let stride = AddressStride {
        first: address(words[0])?,
        step: whole(words[1], 1..=u32::MAX)?,
        count: whole(words[2], 1..=65_536)?,
    };
    let span = u64::from(stride.step) * u64::from(stride.count - 1);
    nth(stride.first, span).ok_or_else(|| "the addresses go beyond the last possible one".to_owned())?;
    settings.destinations.push((line, stride));
    done()
}

/// `name` without arguments, which sets a flag.
macro_rules! flag {
    ($field:ident) => {
        |settings, _, _| {
            settings.$field = true;
            done()
        }
    };
}

/// `name` with one argument, which a function of it sets.
macro_rules! value {
    ($field:ident, $read:expr) => {
        |settings, words, _| {
            settings.$field = $read(words[0])?;
            done()
        }
    };
}

/// All, in the order of the manual.
pub static KEYWORDS: &[Keyword] = &[
    word("mode", "client|server", "client", 1..=1, "Which end this is.", |settings, words, _| {
        settings.server = match words[0] {
            "client" => false,
            "server" => true,
            other => return Err(Refusal::Value(format!("'{other}' is not a mode"))),
        };
        done()
    }),
    word("cpu", "N|N-M ...", "", 1..=31, "CPUs, one thread on each; as many for each port.", |settings, words, _| {
        settings.cpus = cpus(words)?;
        done()
    }),
    word(
        "port",
        "Interface|PCI Address Gateway [Gateway-MAC]",
        "",
        3..=4,
        "An interface, by its name or its PCI address, and the router that all packets go to.",
        port,
    )
    .repeated(),
    word(
        "client",
        "Address N [Address ...]",
        "",
        2..=31,
        "N addresses from the first, and single ones. A client has one such line for each port.",
        |settings, words, line| {
            let mut ranges = vec![range(words[0], words[1])?];
            for single in &words[2..] {
                ranges.push(range(single, "1")?);
            }
            settings.clients.push((line, ranges));
            done()
        },
    )
    .repeated(),
    word("server", "Address N", "", 2..=2, "N addresses from the first; one line for each port.", |settings, words, line| {
        settings.servers.push((line, range(words[0], words[1])?));
        done()
    })
    .repeated(),
    word("listen", "Port N", "80 1", 2..=2, "N ports of the servers from the first.", |settings, words, _| {
        let (first, count) = (whole(words[0], 1..=65_535)?, whole(words[1], 1..=65_535)?);
        if u32::from(first) + u32::from(count) - 1 > 65_535 {
            return Err(Refusal::Value(format!("{count} ports from {first} go beyond 65535")));
        }
        settings.listen = Some((first, count));
        done()
    }),
    word("client_port_range", "First[-Last] | First Last", "1 65535", 1..=2, "Source ports of clients.", |settings, words, _| {
        client_ports(settings, words)?;
        done()
    }),
    word("lport_range", "First[-Last] | First Last", "", 1..=2, "The old name of client_port_range.", |settings, words, _| {
        client_ports(settings, words)?;
        Ok(Some("deprecated, write client_port_range".into()))
    }),
    word(
        "duration",
        "Time",
        "60",
        1..=1,
        "How long, after slow_start: 1.5d, 2h, 3.5m, 100s or 100.",
        value!(duration, |text| long_time(text).map(Some)),
    ),
    word(
        "slow_start",
        "Seconds[0-600]",
        "30",
        1..=1,
        "How long a client's rate rises; 0: not at all.",
        value!(slow_start, |text| seconds(text, 0..=600).map(Some)),
    ),
    word(
        "wait",
        "Seconds",
        "3",
        1..=1,
        "How long a client is silent before slow_start.",
        value!(wait, |text| seconds(text, 0..=86_400).map(Some)),
    ),
    word(
        "cps",
        "N[k|m]",
        "1000 with cc",
        1..=1,
        "New connections per second of all threads together.",
        value!(cps, |text| rate(text).map(Some)),
    ),
    word(
        "cc",
        "N[k|m]",
        "",
        1..=1,
        "Connections to hold open; needs keepalive.",
        value!(cc, |text| count(text, 1..=10_000_000_000).map(Some)),
    ),
    word(
        "keepalive",
        "Interval [N]",
        "",
        1..=2,
        "Client: a request each 10us, 1ms, 1s or so of every connection, 0s: at once after a response; N requests, or \
         without end. Server: how long a connection may be silent, besides four retransmission time-outs.",
        |settings, words, _| {
            let requests = words.get(1).map_or(Ok(0), |text| count_or_zero(text, 32_767))?;
            settings.keepalive = Some((short_time(words[0])?, (requests > 0).then_some(requests as u16)));
            done()
        },
    ),
    word(
        "pipeline",
        "N[0-100]",
        "0",
        1..=1,
        "UDP client: so many datagrams back to back each time.",
        value!(pipeline, |text| whole(text, 0..=100).map(Some)),
    ),
    word("flood", "", "", 0..=0, "Client: first packets only, and no answer is waited for.", flag!(flood)),
    word(
        "change_dip",
        "Address Step N",
        "",
        3..=3,
        "With flood: packets go to these destinations in turn.",
        stride,
    )
    .repeated(),
    word(
        "launch_num",
        "N[1-1024]",
        "each at its time",
        1..=1,
        "So many connections of a thread are opened together.",
        value!(launch, |text| whole(text, 1..=1024).map(Some)),
    ),
    word(
        "client_hop",
        "",
        "",
        0..=0,
        "Each connection has another client address and another port.",
        flag!(client_hop),
    ),
    word("protocol", "tcp|udp|http", "tcp", 1..=1, "", |settings, words, _| {
        settings.protocol = match words[0] {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "http" => Protocol::Http,
            other => return Err(Refusal::Value(format!("'{other}' is not a protocol"))),
        };
        done()
    }),
    word(
        "payload_size",
        "N[k|m] [N ...]",
        "85 (request), 99 (response), 18 (UDP)",
        1..=31,
        "Bytes of a request or response: from 85 on it is HTTP, below filler. A TCP server may have up to 1 GiB, and a \
         server one size for each CPU.",
        |settings, words, _| {
            let sizes = words.iter().map(|text| count(text, 1..=1 << 30));
            settings.payload_sizes = sizes.collect::<Result<_, _>>()?;
            done()
        },
    ),
    word("packet_size", "N", "", 1..=1, "Bytes of a whole frame; the old way to say payload_size.", |settings, words, _| {
        settings.packet_size = Some(count(words[0], 1..=9724)?);
        Ok(Some("deprecated, write payload_size; taken as the size of frames that it was until dperf 1.8".into()))
    }),
    word("payload_random", "", "", 0..=0, "Letters instead of 'a' as filler, the same in each run.", flag!(payload_random)),
    word(
        "payload_file",
        "Path",
        "",
        1..=1,
        "The bytes of a request or response, whatever they are.",
        value!(payload_file, |text: &str| Ok::<_, Refusal>(Some(text.into()))),
    ),
    word(
        "http_host",
        "Name",
        "dperf",
        1..=1,
        "HTTP client: the Host field, up to 127 characters.",
        value!(http_host, |text: &str| if text.len() < 128 {
            Ok(Some(text.to_owned()))
        } else {
            Err(format!("{} characters", text.len()))
        }),
    ),
    word(
        "http_path",
        "/Path",
        "/",
        1..=1,
        "HTTP client: what is asked for, up to 255 characters.",
        value!(http_path, |text: &str| if text.starts_with('/') && text.len() < 256 {
            Ok(Some(text.to_owned()))
        } else {
            Err(format!("'{text}' does not begin with '/' or has more than 255 characters"))
        }),
    ),
    word("http_method", "GET|POST", "GET", 1..=1, "HTTP client.", |settings, words, _| {
        settings.post = match words[0] {
            "GET" => false,
            "POST" => true,
            other => return Err(Refusal::Value(format!("'{other}' is not supported"))),
        };
        done()
    }),
    word(
        "send_window",
        "N[2-16]",
        "4",
        1..=1,
        "Server: segments of a large response that are under way.",
        value!(send_window, |text| whole(text, 2..=16).map(Some)),
    ),
    word(
        "mss",
        "N[88-9670]",
        "what fits the MTU",
        1..=1,
        "Bytes of a segment, announced and kept to.",
        value!(mss, |text| whole(text, 88..=9670).map(Some)),
    ),
    word("jumbo", "[MTU 9000-9710]", "off, or 9710", 0..=1, "Frames of more than 1500 bytes.", |settings, words, _| {
        settings.jumbo = Some(words.first().map_or(Ok(9710), |text| whole(text, 9000..=9710))?);
        done()
    }),
    word(
        "tx_burst",
        "N[1-1024]",
        "256",
        1..=1,
        "The most packets that are handed over together.",
        value!(tx_burst, |text| whole(text, 1..=1024).map(Some)),
    ),
    word("fast_close", "", "", 0..=0, "TCP client: a reset right after the response.", flag!(fast_close)),
    word(
        "disable_ack",
        "",
        "",
        0..=0,
        "TCP client: responses are acknowledged with the next request only, however late it is.",
        flag!(disable_ack),
    ),
    word(
        "retransmit_timeout",
        "Seconds[2-137]",
        "2",
        1..=1,
        "Until the first of three retransmissions; twice as long until each further one.",
        |settings, words, _| {
            let timeout = whole(words[0], 2..=300)?;
            if timeout > LONGEST_TIMEOUT {
                return Err(Refusal::Value(format!(
                    "{timeout} s, doubled with each retransmission, is longer than a connection's age can be told for"
                )));
            }
            settings.retransmit_timeout = Some(Duration::from_secs(timeout));
            done()
        },
    ),
    word("tcp_rst", "0|1", "1", 1..=1, "Whether segments without a connection are answered by a reset.", |settings, words, _| {
        settings.no_resets = whole(words[0], 0..=1)? == 0;
        done()
    }),
    word(
        "vlan",
        "ID[1-4094]",
        "",
        1..=1,
        "The tag of all frames.",
        value!(vlan, |text| whole(text, 1..=4094).map(Some)),
    ),
    word(
        "vxlan",
        "VNI Inner-Source-MAC Inner-Destination-MAC Local-VTEP N Remote-VTEP N",
        "",
        7..=7,
        "A tunnel that all packets of a port go through, over IPv4; one line for each port. One local end for each thread, \
         one remote end or as many.",
        vxlan,
    )
    .repeated(),
    word("tos", "N[0-255 or 0x00-0xff]", "0", 1..=1, "Type of service, traffic class.", value!(tos, |text| byte(text).map(Some))),
    word(
        "neigh_ignore",
        "",
        "",
        0..=0,
        "Questions for MAC addresses are answered for the port's address alone: a real server behind direct routing.",
        flag!(neigh_ignore),
    ),
    word(
        "rss",
        "",
        "",
        0..=2,
        "Workers use what the interface's receive-side scaling brings them. That is always so where it is known.",
        |_, words, _| Ok((!words.is_empty()).then(|| "its arguments are deprecated and ignored".into())),
    ),
    word(
        "flow_isolate",
        "",
        "",
        0..=0,
        "What is not for the load stays with the kernel. That is always so.",
        |_, _, _| done(),
    ),
    word("kni", "[Name]", "", 0..=1, "Ignored, with a warning: the interface stays with the kernel.", |_, _, _| {
        Ok(Some("ignored: the interface itself stays with the kernel, so that no second one is made for other traffic".into()))
    }),
    word("socket_mem", "N[,N ...]", "", 1..=1, "Ignored, with a warning: huge pages are not needed.", |_, _, _| {
        Ok(Some("ignored: memory is taken as it is needed, without huge pages".into()))
    }),
    word("simd512", "", "", 0..=0, "Refused: it is for DPDK's drivers.", |_, _, _| {
        no("it chooses instructions of DPDK's drivers, which are not used here: remove the line")
    }),
    word(
        "log_level",
        "error|warn|info|debug",
        "info",
        1..=1,
        "Which messages go to standard error.",
        |settings, words, _| {
            settings.log_level = match words[0] {
                "error" => LogLevel::Error,
                "warn" => LogLevel::Warn,
                "info" => LogLevel::Info,
                "debug" => LogLevel::Debug,
                other => return Err(Refusal::Value(format!("'{other}' is not a level"))),
            };
            done()
        },
    ),
    word(
        "daemon",
        "",
        "",
        0..=0,
        "Runs in the background and writes to /var/log/dperf/dperf-ctl-client.log or -server.log.",
        flag!(daemon),
    ),
    word("quiet", "", "", 0..=0, "No statistics each second.", flag!(quiet)),
    word("clear_screen", "", "", 0..=0, "Each second's statistics take the place of the last.", flag!(clear_screen)),
    word(
        "rps",
        "N[k|m]",
        "",
        1..=1,
        "Requests per second of all connections together, in place of the interval of keepalive.",
        value!(rps, |text| rate(text).map(Some)),
    )
    .ours(),
    word(
        "pps",
        "N[k|m]",
        "",
        1..=1,
        "UDP and flood: packets per second that are sent.",
        value!(pps, |text| rate(text).map(Some)),
    )
    .ours(),
    word(
        "driver",
        "auto|xdp|xdp-generic|packet",
        "auto",
        1..=1,
        "How packets are exchanged with the interface: AF_XDP in its driver, AF_XDP in the generic hook, or AF_PACKET.",
        |settings, words, _| {
            settings.driver = match words[0] {
                "auto" => Driver::Auto,
                "xdp" => Driver::Xdp,
                "xdp-generic" => Driver::XdpGeneric,
                "packet" => Driver::Packet,
                other => return Err(Refusal::Value(format!("'{other}' is not a driver"))),
            };
            done()
        },
    )
    .ours(),
    word(
        "busy_poll",
        "N[1-1024]",
        "off",
        1..=1,
        "AF_XDP: the threads drive their queues themselves, so many packets at a time, in place of interrupts.",
        value!(busy_poll, |text| whole(text, 1..=1024).map(Some)),
    )
    .ours(),
];

fn count_or_zero(text: &str, most: u64) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { count(text, 1..=most) }
}

/// The manual: every keyword with what it takes.
pub fn manual() -> String {
    let mut text = String::new();
    for (origin, title) in [(KeywordOrigin::Dperf, ""), (KeywordOrigin::Netrig, "\nNot in dperf:\n")] {
        text.push_str(title);
        for keyword in KEYWORDS.iter().filter(|keyword| keyword.origin == origin) {
            let usage = [keyword.name, keyword.arguments].join(" ");
            let _ = write!(text, "{}", usage.trim_end());
            if !keyword.default.is_empty() {
                let _ = write!(text, "  (default {})", keyword.default);
            }
            let repeats = if keyword.repeats { " Can be repeated." } else { "" };
            let help = format!("{}{repeats}", keyword.help);
            text.push('\n');
            if !help.is_empty() {
                let options = textwrap::Options::new(100).initial_indent("    ").subsequent_indent("    ");
                text.push_str(&textwrap::fill(&help, options));
                text.push('\n');
            }
        }
    }
    text
}
