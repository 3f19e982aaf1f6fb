//! Checks of keepalived as one of a service's.

use std::net::IpAddr;
use std::time::Duration;

use super::Imported;
use super::tree::{Block, SourceLine};
use crate::health::check::{
    BackendCheck, Check, Destination, DnsQuestion, Exchange, HttpRequest, Probe, ProgramCall, RECORD_TYPES, TlsRules,
};

/// What a virtual server says for all of its checks, and a real server over that.
#[derive(Debug, Clone, Default)]
pub(super) struct CheckDefaults {
    delay_loop: Option<Duration>,
    connect_timeout: Option<Duration>,
    retry: Option<u32>,
    virtualhost: Option<String>,
}

/// Seconds with decimals, as keepalived has them, within what a check here may have.
fn seconds(said: &Block, bounds: (Duration, Duration), imported: &mut Imported) -> Option<Duration> {
    let text = said.word(1).unwrap_or_default();
    let time = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let Some(time) = time else {
        imported.note(&said.place, format_args!("{} '{text}' is no time", said.name()));
        return None;
    };
    // Spans are written in whole milliseconds.
    let time = Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let kept = time.clamp(bounds.0, bounds.1);
    if kept != time {
        imported.note(&said.place, format_args!("{} {text}: {} s stands here", said.name(), kept.as_secs_f64()));
    }
    Some(kept)
}

/// The value of a line, where it is a number.
pub(super) fn number(said: &Block, imported: &mut Imported) -> Option<u32> {
    let text = said.word(1).unwrap_or_default();
    let number = text.parse().ok();
    if number.is_none() {
        imported.note(&said.place, format_args!("{} '{text}' is no number, and is left out", said.name()));
    }
    number
}

const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(86_400));
const TIMEOUTS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(300));

impl CheckDefaults {
    /// Takes a line that is about checks. `false` for one that is not.
    pub(super) fn take(&mut self, said: &Block, imported: &mut Imported) -> bool {
        match said.name() {
            "delay_loop" => self.delay_loop = seconds(said, INTERVALS, imported).or(self.delay_loop),
            "connect_timeout" => self.connect_timeout = seconds(said, TIMEOUTS, imported).or(self.connect_timeout),
            "retry" | "nb_get_retry" => {
                self.retry = number(said, imported).or(self.retry);
            }
            "virtualhost" => self.virtualhost = said.word(1).map(str::to_owned).or(self.virtualhost.take()),
            // Retries come at `interval`, and first probes are spread, as said in docs/BALANCER.md.
            "delay_before_retry" | "warmup" => {}
            _ => return false,
        }
        true
    }
}

/// The names of checks.
pub(super) const CHECKS: [&str; 11] = [
    "TCP_CHECK",
    "HTTP_GET",
    "SSL_GET",
    "SMTP_CHECK",
    "DNS_CHECK",
    "UDP_CHECK",
    "PING_CHECK",
    "MISC_CHECK",
    "BFD_CHECK",
    "FILE_CHECK",
    "CHECK_NONE",
];

/// What a check of a real server is here; `None` where it has no equal.
pub(super) fn read(said: &Block, defaults: &CheckDefaults, imported: &mut Imported) -> Option<(Check, BackendCheck)> {
    let (probe, retry) = probe(said, defaults, imported)?;
    let mut own = defaults.clone();
    let (mut address, mut port, mut source): (Option<IpAddr>, Option<u16>, Option<IpAddr>) = (None, None, None);
    let within = |line: &&Block| line.name() == "host";
    let of_host = said.within.iter().filter(within).flat_map(|host| &host.within);
    for line in said.within.iter().chain(of_host) {
        let value = line.word(1).unwrap_or_default();
        match line.name() {
            "connect_ip" => {
                address = value.parse().ok();
                if address.is_none() {
                    imported
                        .note(&line.place, format_args!("connect_ip {value}: no address, the server's stands here"));
                }
            }
            "connect_port" => {
                port = value.parse().ok().filter(|port| *port != 0);
                if port.is_none() {
                    let instead = "no number of a port, the server's stands here";
                    imported.note(&line.place, format_args!("connect_port {value}: {instead}"));
                }
            }
            "bindto" | "bind_if" => {
                source = value.parse().ok();
                if source.is_none() {
                    imported.note(&line.place, format_args!("bindto {value}: no address"));
                }
            }
            "misc_timeout" => own.connect_timeout = seconds(line, TIMEOUTS, imported),
            "url" | "misc_path" | "type" | "name" | "payload" | "require_reply" | "host" | "enable_sni" => {}
            _ if own.take(line, imported) => {}
            other => imported.note(&line.place, format_args!("{other} of {}: has no equal", said.name())),
        }
    }
    let mut check = Check::new(probe, Destination::Backend);
    let (portless, commanded) = match check.probe {
        Probe::Icmp => (true, false),
        Probe::Command(_) => (true, true),
        _ => (false, false),
    };
    check.source = source.filter(|_| !commanded);
    check.interval = own.delay_loop.unwrap_or(Duration::from_secs(60));
    check.interval_down = check.interval;
    check.timeout = own.connect_timeout.unwrap_or(Duration::from_secs(5));
    check.rise = 1;
    let retry = own.retry.unwrap_or(retry);
    check.fall = retry.saturating_add(1).clamp(1, 100);
    if retry >= 100 {
        imported.note(&said.place, format_args!("retry {retry}: fall = 100 stands here"));
    }
    let at = match (address, port.filter(|_| !portless)) {
        (None, None) => BackendCheck::AsService,
        _ if commanded => BackendCheck::AsService,
        (address, port) => BackendCheck::At { address, port },
    };
    Some((check, at))
}

/// With how often it is made again by default.
fn probe(said: &Block, defaults: &CheckDefaults, imported: &mut Imported) -> Option<(Probe, u32)> {
    let place = &said.place;
    match said.name() {
        "TCP_CHECK" => Some((Probe::Tcp(Exchange::default()), 1)),
        "HTTP_GET" => Some((Probe::Http(http(said, defaults, imported)), 1)),
        "SSL_GET" => {
            let request = http(said, defaults, imported);
            if request.host.is_some() && said.find("enable_sni").is_none() {
                let instead = "here the host is asked for in the handshake, too";
                imported.note(place, format_args!("SSL_GET without enable_sni: {instead}"));
            }
            Some((Probe::Https(request, TlsRules::default()), 1))
        }
        "SMTP_CHECK" => {
            imported.note(place, "SMTP_CHECK: the greeting 220 is looked for, and nothing said");
            Some((Probe::Tcp(Exchange { expect: b"220".to_vec(), ..Exchange::default() }), 1))
        }
        "DNS_CHECK" => {
            let kind = said.value("type").unwrap_or("SOA");
            let record = RECORD_TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(kind));
            let Some((_, record)) = record else {
                imported.note(place, format_args!("DNS_CHECK type {kind}: is not asked for here"));
                return None;
            };
            let name = said.value("name").unwrap_or(".").trim_end_matches('.').to_owned();
            Some((Probe::Dns(DnsQuestion { name, record: *record }), 3))
        }
        "UDP_CHECK" => {
            if said.find("require_reply").is_none() {
                imported.note(place, "UDP_CHECK without require_reply: here an answer has to come");
            }
            if said.find("payload").is_some() {
                imported.note(place, "payload of UDP_CHECK: write it as `send` of the check");
            }
            Some((Probe::Udp(Exchange::default()), 1))
        }
        "PING_CHECK" => Some((Probe::Icmp, 1)),
        "MISC_CHECK" => {
            if let Some(dynamic) = said.find("misc_dynamic") {
                let why =
                    "exit status 2 to 255, a weight there, would be a failure here: the backend is taken to be healthy";
                imported.note(&dynamic.place, format_args!("misc_dynamic of MISC_CHECK: {why}"));
                return None;
            }
            if let Some(user) = said.find("user") {
                imported.note(&user.place, "user of MISC_CHECK: the command runs as the balancer does");
            }
            let said_words = said.find("misc_path").map_or(&[][..], |line| &line.words[1..]);
            let path = said_words.join(" ");
            // One text in quotation marks is a command with its arguments, as a shell has them; several words are that already.
            let words = match said_words {
                [all] => shlex::split(all),
                words => Some(words.to_vec()),
            };
            let Some(words) = words else {
                imported.note(place, format_args!("misc_path '{path}': its quotation marks do not match"));
                return None;
            };
            if words.first().is_none_or(|program| !program.starts_with('/')) {
                imported.note(place, format_args!("misc_path '{path}': a command is named by its whole path"));
                return None;
            }
            Some((Probe::Command(ProgramCall { words, environment: Vec::new() }), 0))
        }
        other => {
            imported.note(place, format_args!("{other}: has no equal; the backend is taken to be healthy"));
            None
        }
    }
}

fn http(said: &Block, defaults: &CheckDefaults, imported: &mut Imported) -> HttpRequest {
    let urls: Vec<&Block> = said.within.iter().filter(|line| line.name() == "url").collect();
    let mut host = said.value("virtualhost").map(str::to_owned).or_else(|| defaults.virtualhost.clone());
    let mut request = HttpRequest { path: "/".to_owned(), host: None, status: vec![(200, 299)], body: None };
    for line in urls.first().into_iter().flat_map(|url| &url.within) {
        match line.name() {
            "path" => request.path = line.word(1).unwrap_or("/").to_owned(),
            "status_code" => {
                let codes = line.words[1..].iter().map(|word| code(word));
                match codes.collect::<Option<Vec<_>>>().filter(|codes| !codes.is_empty()) {
                    Some(codes) => request.status = codes,
                    None => imported.note(&line.place, format_args!("'{}' are no status codes", line.words.join(" "))),
                }
            }
            "virtualhost" => host = line.word(1).map(str::to_owned),
            "digest" => {
                imported
                    .note(&line.place, "digest: there is a text that has to be in the body (`body`), and no digest");
            }
            "regex" => imported
                .note(&line.place, "regex: there is a text that has to be in the body (`body`), and no expression"),
            other => imported.note(&line.place, format_args!("{other} of url: has no equal")),
        }
    }
    if let Some(second) = urls.get(1) {
        imported.note(&second.place, "a second url: a check asks one");
    }
    request.host = host;
    request
}

fn code(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    ((100..=999).contains(&first) && (first..=999).contains(&last)).then_some((first, last))
}

/// Says that servers of a service are checked in different ways.
pub(super) fn differs(place: &SourceLine, imported: &mut Imported) {
    imported.note(place, "its check is another one than the first server's, which is the service's here");
}
