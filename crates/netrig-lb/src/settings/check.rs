//! `[service.check]`, and what backends say of their checks: read, written, and compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use rig_cli::mistakes::FileError;
use rig_cli::source::Source;
use rig_datapath::balancer::Scheduler;
use rig_stats::units::{Percent, Span};
use rustls::pki_types::ServerName;
use toml::Spanned;

use crate::health::check::{
    BEGINNINGS, BELOW_QUORUM, BackendCheck, Beginning, BelowQuorum, Check, DESTINATIONS, Destination, DnsQuestion,
    Exchange, HttpRequest, ON_FAILURE, OnFailure, PROBES, PoolRules, Probe, ProgramCall, RECORD_TYPES, RecordType,
    TlsRules, name_in, status_text,
};
use crate::message::ForwardingMethod;
use crate::settings::Backend;

type Result<T, E = FileError> = std::result::Result<T, E>;

const DAY: Duration = Duration::from_secs(86_400);
/// Bytes that are sent or looked for at most: what one datagram or a first segment carries everywhere.
const LONGEST_TEXT: usize = 1024;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckFile {
    kind: Spanned<String>,
    to: Option<Spanned<String>>,
    port: Option<Spanned<u32>>,
    source: Option<Spanned<String>>,
    interval: Option<Spanned<Span>>,
    interval_down: Option<Spanned<Span>>,
    timeout: Option<Spanned<Span>>,
    rise: Option<Spanned<u32>>,
    fall: Option<Spanned<u32>>,
    jitter: Option<Spanned<Percent>>,
    begin: Option<Spanned<String>>,
    failed: Option<Spanned<String>>,
    quorum: Option<Spanned<u32>>,
    hysteresis: Option<Spanned<u32>>,
    below_quorum: Option<Spanned<String>>,
    slow_start: Option<Spanned<Span>>,
    send: Option<Spanned<String>>,
    expect: Option<Spanned<String>>,
    path: Option<Spanned<String>>,
    host: Option<Spanned<String>>,
    status: Option<Spanned<String>>,
    body: Option<Spanned<String>>,
    verify: Option<Spanned<bool>>,
    ca: Option<Spanned<PathBuf>>,
    server_name: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    record: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
    environment: Option<Spanned<BTreeMap<String, String>>>,
}

/// What the service says that decides which checks it can have.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckedService {
    pub forward: Option<ForwardingMethod>,
    pub scheduler: Scheduler,
    pub has_sorry: bool,
    /// Whether all has to fit together: commands may have changed what a check once fitted.
    pub complete: bool,
}

struct Reader<'a> {
    source: &'a Source<'a>,
    file: &'a CheckFile,
}

/// Reads the check of a service.
pub(super) fn read(source: &Source<'_>, said: &Spanned<CheckFile>, service: CheckedService) -> Result<Check> {
    let reader = Reader { source, file: said.get_ref() };
    reader.check(service)
}

impl Reader<'_> {
    fn check(&self, service: CheckedService) -> Result<Check> {
        let file = self.file;
        let probe = self.probe()?;
        let direct = matches!(service.forward, Some(ForwardingMethod::Route | ForwardingMethod::Tunnel));
        let is_command = matches!(probe, Probe::Command(_));
        let usual = if direct && !is_command { Destination::Service } else { Destination::Backend };
        let to = self.named(&file.to, "destination of checks", &DESTINATIONS)?.unwrap_or(usual);
        if let (Destination::Service, Some(said), true) = (to, &file.to, service.complete) {
            let why = match () {
                () if is_command => "a command's packets are its own: it is told both addresses in its environment",
                () if !direct => {
                    "with this way to forward, backends do not have the service's address: only route and tunnel \
                     leave it in packets"
                }
                () => "",
            };
            if !why.is_empty() {
                return Err(self.error(said.span(), "checks to the service's own address", why));
            }
        }
        let usual = Check::new(probe, to);
        let second = Duration::from_secs(1);
        let milliseconds = Duration::from_millis;
        let interval = self.span("interval", &file.interval, (milliseconds(100), DAY))?.unwrap_or(usual.interval);
        let check = Check {
            port: self.port()?,
            source: self.address()?,
            interval,
            interval_down: self
                .span("interval_down", &file.interval_down, (milliseconds(100), DAY))?
                .unwrap_or(interval),
            timeout: self.span("timeout", &file.timeout, (milliseconds(10), 300 * second))?.unwrap_or(usual.timeout),
            rise: self.number("rise", &file.rise, (1, 100))?.unwrap_or(usual.rise),
            fall: self.number("fall", &file.fall, (1, 100))?.unwrap_or(usual.fall),
            jitter: self.jitter()?.unwrap_or(usual.jitter),
            begin: self.named(&file.begin, "beginning", &BEGINNINGS)?.unwrap_or(usual.begin),
            failed: self.named(&file.failed, "way with failed backends", &ON_FAILURE)?.unwrap_or(usual.failed),
            pool: self.pool(service)?,
            ..usual
        };
        self.unless_fitting(&check)?;
        Ok(check)
    }

    /// What cannot be carried out together.
    fn unless_fitting(&self, check: &Check) -> Result<()> {
        let no_port = matches!(check.probe, Probe::Icmp | Probe::Command(_));
        if let Some(port) = self.file.port.as_ref().filter(|_| no_port) {
            let what = format!("'port' of a check by {}", check.probe.name());
            return Err(self.error(port.span(), what, "remove it: what is sent has no port"));
        }
        if let (Probe::Command(_), Some(source)) = (&check.probe, &self.file.source) {
            let hint = "remove it, and have the command choose: its packets are its own";
            return Err(self.error(source.span(), "'source' of a check by command", hint));
        }
        Ok(())
    }

    fn pool(&self, service: CheckedService) -> Result<PoolRules> {
        let file = self.file;
        let quorum = self.number("quorum", &file.quorum, (1, u32::MAX))?.unwrap_or(1);
        let hysteresis = self.number("hysteresis", &file.hysteresis, (0, u32::MAX))?.unwrap_or(0);
        if let Some(said) = file.hysteresis.as_ref().filter(|_| hysteresis >= quorum) {
            let what = format!("a hysteresis of {hysteresis} with a quorum of {quorum}");
            return Err(self.error(said.span(), what, "choose less than the quorum, which else is never missed"));
        }
        let below_quorum = self.named(&file.below_quorum, "way below the quorum", &BELOW_QUORUM)?;
        let lacks_sorry = service.complete && !service.has_sorry;
        if let (Some(said), Some(BelowQuorum::Sorry), true) = (&file.below_quorum, below_quorum, lacks_sorry) {
            let hint = "add one: { address = \"10.0.0.99\", sorry = true }";
            return Err(self.error(said.span(), "no backend is a sorry server", hint));
        }
        let slow_start = self.span("slow_start", &file.slow_start, (Duration::ZERO, DAY))?.unwrap_or_default();
        let unweighted = service.complete && ignores_weights(service.scheduler);
        if let Some(said) = file.slow_start.as_ref().filter(|_| unweighted && !slow_start.is_zero()) {
            let hint = "choose a scheduler that looks at weights: wrr, wlc, sh, mh";
            return Err(self.error(said.span(), "'slow_start' of a service whose scheduler ignores weights", hint));
        }
        Ok(PoolRules { quorum, hysteresis, below_quorum, slow_start })
    }

    fn probe(&self) -> Result<Probe> {
        let file = self.file;
        let kind = file.kind.get_ref().as_str();
        if !PROBES.contains(&kind) {
            let hint = format!("choose one of {}", PROBES.join(", "));
            return Err(self.error(file.kind.span(), format!("there is no check by '{kind}'"), &hint));
        }
        let of_kinds = [
            ("send", span(&file.send), "tcp udp"),
            ("expect", span(&file.expect), "tcp udp"),
            ("path", span(&file.path), "http https"),
            ("host", span(&file.host), "http https"),
            ("status", span(&file.status), "http https"),
            ("body", span(&file.body), "http https"),
            ("verify", span(&file.verify), "https"),
            ("ca", span(&file.ca), "https"),
            ("server_name", span(&file.server_name), "https"),
            ("name", span(&file.name), "dns"),
            ("record", span(&file.record), "dns"),
            ("command", span(&file.command), "command"),
            ("environment", span(&file.environment), "command"),
        ];
        for (key, span, kinds) in of_kinds {
            if let Some(span) = span.filter(|_| !kinds.split(' ').any(|known| known == kind)) {
                let hint = format!("remove it: it belongs to checks by {}", kinds.replace(' ', " and "));
                return Err(self.error(span, format!("'{key}' of a check by {kind}"), &hint));
            }
        }
        Ok(match kind {
            "tcp" => Probe::Tcp(self.exchange(true)?),
            "http" => Probe::Http(self.http()?),
            "https" => Probe::Https(self.http()?, self.tls()?),
            "udp" => Probe::Udp(self.exchange(false)?),
            "dns" => Probe::Dns(self.question()?),
            "icmp" => Probe::Icmp,
            _ => Probe::Command(self.program()?),
        })
    }

    fn exchange(&self, is_stream: bool) -> Result<Exchange> {
        let bytes = |said: &Option<Spanned<String>>| -> Result<Vec<u8>> {
            let Some(said) = said else { return Ok(Vec::new()) };
            let bytes = decode(said.get_ref()).filter(|bytes| bytes.len() <= LONGEST_TEXT);
            let hint = format!("write text, or bytes as \"0x0d0a\", up to {LONGEST_TEXT} bytes");
            bytes.ok_or_else(|| self.error(said.span(), format!("'{}'", shown(said.get_ref())), &hint))
        };
        let exchange = Exchange { send: bytes(&self.file.send)?, expect: bytes(&self.file.expect)? };
        if let Some(send) = self.file.send.as_ref().filter(|_| is_stream && exchange.expect.is_empty()) {
            let hint = "say what is expected: expect = \"+PONG\"; without both, a connection is enough";
            return Err(self.error(send.span(), "'send' without 'expect' of a check by tcp", hint));
        }
        Ok(exchange)
    }

    fn http(&self) -> Result<HttpRequest> {
        let file = self.file;
        let text = |said: &Option<Spanned<String>>, what: &str, good: fn(&str) -> bool, hint: &str| match said {
            Some(said) if !good(said.get_ref()) || said.get_ref().len() > LONGEST_TEXT => {
                Err(self.error(said.span(), format!("'{}' is not {what}", shown(said.get_ref())), hint))
            }
            said => Ok(said.as_ref().map(|said| said.get_ref().clone())),
        };
        let visible = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let path = text(
            &file.path,
            "a path",
            |text| text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic()),
            "begin it with '/'; what is not visible ASCII has to be percent-encoded",
        )?;
        let host = text(&file.host, "a host", visible, "write a name, with a port where it needs one")?;
        let body = text(&file.body, "a text to look for", |text| !text.is_empty(), "write 1 to 1024 bytes")?;
        let status = match &file.status {
            None => vec![(200, 399)],
            Some(said) => statuses(said.get_ref()).ok_or_else(|| {
                let what = format!("'{}' are not status codes", shown(said.get_ref()));
                self.error(said.span(), what, "write \"200-399\" or \"200,204,301-302\", each 100 to 599")
            })?,
        };
        Ok(HttpRequest { path: path.unwrap_or_else(|| "/".to_owned()), host, status, body })
    }

    fn tls(&self) -> Result<TlsRules> {
        let file = self.file;
        if let Some(said) = file.ca.as_ref().filter(|said| !said.get_ref().is_absolute()) {
            let what = format!("'{}' is not a file's whole path", shown(&said.get_ref().to_string_lossy()));
            return Err(self.error(said.span(), what, "write the path from / on of a file of PEM"));
        }
        let verify = file.verify.as_ref().map_or(file.ca.is_some(), |said| *said.get_ref());
        if let Some(said) = file.ca.as_ref().filter(|_| !verify) {
            let hint = "remove it, or 'verify = false': without verification nobody's certificate is looked at";
            return Err(self.error(said.span(), "'ca' of a check that does not verify", hint));
        }
        if let Some(said) =
            file.server_name.as_ref().filter(|said| ServerName::try_from(said.get_ref().as_str()).is_err())
        {
            let what = format!("'{}' is not a name of a server", shown(said.get_ref()));
            return Err(self.error(said.span(), what, "write a name of DNS, or an address, without a port"));
        }
        let server_name = file.server_name.as_ref().map(|said| said.get_ref().clone());
        Ok(TlsRules { verify, ca: file.ca.as_ref().map(|said| said.get_ref().clone()), server_name })
    }

    fn question(&self) -> Result<DnsQuestion> {
        let file = self.file;
        let name = match &file.name {
            None => String::new(),
            Some(said) => {
                let name = said.get_ref().trim_end_matches('.');
                // RFC 1035, 2.3.4.
                let label =
                    |label: &str| (1..64).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_graphic());
                if name.len() > 253 || !(name.is_empty() || name.split('.').all(label)) {
                    let what = format!("'{}' is not a name of DNS", shown(said.get_ref()));
                    return Err(self.error(said.span(), what, "write it as example.com; \".\" is the root"));
                }
                name.to_owned()
            }
        };
        let record = self.named(&file.record, "record", &RECORD_TYPES)?.unwrap_or(RecordType(6));
        Ok(DnsQuestion { name, record })
    }

    fn program(&self) -> Result<ProgramCall> {
        let file = self.file;
        let hint = "write the program's path and its arguments: command = [\"/usr/local/bin/check\", \"-v\"]";
        let Some(command) = &file.command else {
            return Err(self.error(file.kind.span(), "a check by command without 'command'", hint));
        };
        let words = command.get_ref();
        if words.first().is_none_or(|program| !program.starts_with('/')) || words.iter().any(|word| word.contains('\0'))
        {
            return Err(self.error(command.span(), "'command' has to begin with a program's whole path", hint));
        }
        let mut environment = Vec::new();
        if let Some(said) = &file.environment {
            for (name, value) in said.get_ref() {
                if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') || name.starts_with("NETRIG_")
                {
                    let hint = "names have no '=', and those that begin with NETRIG_ are netrig's";
                    return Err(self.error(said.span(), format!("'{}' in the environment", shown(name)), hint));
                }
                environment.push((name.clone(), value.clone()));
            }
        }
        Ok(ProgramCall { words: words.clone(), environment })
    }

    fn port(&self) -> Result<Option<u16>> {
        let Some(port) = self.number("port", &self.file.port, (1, 65_535))? else { return Ok(None) };
        Ok(u16::try_from(port).ok())
    }

    fn address(&self) -> Result<Option<IpAddr>> {
        let Some(said) = &self.file.source else { return Ok(None) };
        let address = said.get_ref().parse().map_err(|_| {
            let what = format!("'{}' is not an IP address", shown(said.get_ref()));
            self.error(said.span(), what, "write an address of this machine")
        })?;
        Ok(Some(address))
    }

    fn jitter(&self) -> Result<Option<u32>> {
        let Some(said) = &self.file.jitter else { return Ok(None) };
        let percent = said.get_ref().get();
        if percent > 50.0 || percent.fract() != 0.0 {
            return Err(self.error(
                said.span(),
                format!("a jitter of {percent}%"),
                "choose a whole number of 0% to 50%",
            ));
        }
        Ok(Some(percent as u32))
    }

    fn span(
        &self,
        key: &str,
        said: &Option<Spanned<Span>>,
        (least, most): (Duration, Duration),
    ) -> Result<Option<Duration>> {
        let Some(said) = said else { return Ok(None) };
        let Span(span) = *said.get_ref();
        if span < least || span > most {
            let hint = format!("choose {} to {}", Span(least), Span(most));
            return Err(self.error(said.span(), format!("'{key}' of {}", Span(span)), &hint));
        }
        Ok(Some(span))
    }

    fn number(&self, key: &str, said: &Option<Spanned<u32>>, (least, most): (u32, u32)) -> Result<Option<u32>> {
        let Some(said) = said else { return Ok(None) };
        let number = *said.get_ref();
        if !(least..=most).contains(&number) {
            let hint = format!("choose {least} to {most}");
            return Err(self.error(said.span(), format!("'{key}' of {number}"), &hint));
        }
        Ok(Some(number))
    }

    fn named<T: Copy>(&self, said: &Option<Spanned<String>>, what: &str, known: &[(&str, T)]) -> Result<Option<T>> {
        let Some(said) = said else { return Ok(None) };
        let named = known.iter().find(|(name, _)| name == said.get_ref());
        let (_, value) = named.ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let hint = format!("choose one of {}", names.join(", "));
            self.error(said.span(), format!("there is no {what} '{}'", shown(said.get_ref())), &hint)
        })?;
        Ok(Some(*value))
    }

    fn error(&self, span: Range<usize>, what: impl Into<String>, hint: &str) -> FileError {
        self.source.error(span, what, Some(hint))
    }
}

/// Whether a scheduler gives all backends the same, so that there is no slow start.
pub(super) fn ignores_weights(scheduler: Scheduler) -> bool {
    matches!(scheduler, Scheduler::RoundRobin | Scheduler::LeastConnections)
}

/// Whether probes go to the service's own address.
pub(super) fn is_direct(check: &Check, forward: Option<ForwardingMethod>) -> bool {
    check.to == Destination::Service && matches!(forward, Some(ForwardingMethod::Route | ForwardingMethod::Tunnel))
}

/// A quorum that its backends do not have even when all are healthy, with a way out. Those that drain count: they come back.
pub(super) fn quorum_never_met(check: &Check, backends: &[Backend]) -> Option<(String, &'static str)> {
    let PoolRules { quorum, hysteresis, .. } = check.pool;
    let needed = u64::from(quorum) + u64::from(hysteresis);
    let mut servers = backends.iter().filter(|backend| !backend.sorry).peekable();
    // Without one, they are still to come.
    servers.peek()?;
    let weight: u64 = servers.map(|backend| u64::from(backend.weight)).sum();
    let what =
        format!("a quorum of {quorum} with a hysteresis of {hysteresis}, and backends with a weight of {weight}");
    let hint = "choose a sum of at most the weight of all backends that are no sorry servers: else it is never met";
    (needed > weight.max(1)).then_some((what, hint))
}

/// What of a check does not fit a service and its backends, with a way out.
pub(super) fn misfit(
    check: &Check,
    (service, forward): (SocketAddr, Option<ForwardingMethod>),
    backends: &[Backend],
) -> Option<(String, &'static str)> {
    let source = check.source;
    // Backends of IPv4, which are probed themselves; that all of them can be reached from it is asked once they are known.
    let may_differ = service.is_ipv6() && matches!(forward, None | Some(ForwardingMethod::FullNat));
    if let Some(source) = source.filter(|source| source.is_ipv4() != service.is_ipv4() && !may_differ) {
        return Some((format!("checks from {source} of {service}"), "choose a source of the service's family"));
    }
    if let Some(source) = source.filter(|source| *source == service.ip() && is_direct(check, forward)) {
        let hint =
            "choose another address of this machine: backends have this one, too, and would answer to themselves";
        return Some((format!("checks from the service's own address {source}"), hint));
    }
    backends.iter().find_map(|backend| {
        let BackendCheck::At { address, port } = backend.check else { return None };
        let backend = backend.address;
        if port.is_some() && check.probe == Probe::Icmp {
            let hint = "write an address alone: an echo request has no port";
            return Some((format!("a port in 'check' of backend {backend}, which is checked by icmp"), hint));
        }
        let (source, address) = (source?, address?);
        let what = || format!("checks from {source} of backend {backend} at {address}");
        (source.is_ipv4() != address.is_ipv4()).then(|| (what(), "choose addresses of one family"))
    })
}

fn span<T>(said: &Option<Spanned<T>>) -> Option<Range<usize>> {
    said.as_ref().map(Spanned::span)
}

/// A text for a message.
fn shown(text: &str) -> String {
    text.escape_debug().take(60).collect()
}

/// Text, or bytes as `0x0d0a`.
fn decode(text: &str) -> Option<Vec<u8>> {
    let Some(digits) = text.strip_prefix("0x") else { return Some(text.as_bytes().to_vec()) };
    if !digits.is_ascii() || digits.len() % 2 != 0 {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// The other way.
fn encode(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with("0x") => text.to_owned(),
        _ => bytes.iter().fold("0x".to_owned(), |mut text, byte| {
            // Writing into a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

fn statuses(text: &str) -> Option<Vec<(u16, u16)>> {
    let code = |text: &str| text.trim().parse::<u16>().ok().filter(|code| (100..600).contains(code));
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (code(first)?, code(last)?);
        (first <= last).then_some((first, last))
    };
    text.split(',').map(range).collect()
}

/// What a backend says of its check.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
pub(super) enum BackendCheckFile {
    Switch(bool),
    At(String),
}

/// `false`, `"10.1.0.1:9000"`, `"10.1.0.1"`, `":9000"`.
pub(super) fn backend_check(said: &BackendCheckFile) -> Result<BackendCheck, String> {
    let text = match said {
        BackendCheckFile::Switch(true) => return Ok(BackendCheck::AsService),
        BackendCheckFile::Switch(false) => return Ok(BackendCheck::Off),
        BackendCheckFile::At(text) => text.trim(),
    };
    let wrong = || format!("'{}' is not where to check", shown(text));
    let port = |text: &str| text.parse().ok().filter(|port| *port > 0).ok_or_else(wrong);
    if let Some(digits) = text.strip_prefix(':').filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())) {
        return Ok(BackendCheck::At { address: None, port: Some(port(digits)?) });
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(BackendCheck::At { address: Some(address), port: None });
    }
    let endpoint: SocketAddr = text.parse().map_err(|_| wrong())?;
    if endpoint.port() == 0 {
        return Err(wrong());
    }
    Ok(BackendCheck::At { address: Some(endpoint.ip()), port: Some(endpoint.port()) })
}

/// As [`backend_check`] reads it.
pub(super) fn backend_check_text(check: BackendCheck) -> Option<String> {
    let text = match check {
        BackendCheck::AsService => return None,
        BackendCheck::Off => return Some("false".to_owned()),
        BackendCheck::At { address: None, port } => format!(":{}", port.unwrap_or(0)),
        BackendCheck::At { address: Some(address), port: None } => address.to_string(),
        BackendCheck::At { address: Some(address), port: Some(port) } => SocketAddr::new(address, port).to_string(),
    };
    Some(quoted(&text))
}

/// The keys of a check and their values, without those that are as by default.
pub(super) fn entries(check: &Check, forward: Option<ForwardingMethod>) -> Vec<(&'static str, String)> {
    let direct = matches!(forward, Some(ForwardingMethod::Route | ForwardingMethod::Tunnel));
    let is_command = matches!(check.probe, Probe::Command(_));
    let usual_to = if direct && !is_command { Destination::Service } else { Destination::Backend };
    let usual = Check::new(Probe::Icmp, usual_to);
    let mut entries = vec![("kind", quoted(check.probe.name()))];
    let mut add = |key, value: Option<String>| entries.extend(value.map(|value| (key, value)));
    let span = |span: Duration, usual: Duration| (span != usual).then(|| quoted(&Span(span).to_string()));
    let number = |number: u32, usual: u32| (number != usual).then(|| number.to_string());
    add("to", (check.to != usual_to).then(|| quoted(name_in(&DESTINATIONS, check.to))));
    add("port", check.port.map(|port| port.to_string()));
    add("source", check.source.map(|address| quoted(&address.to_string())));
    add("interval", span(check.interval, usual.interval));
    add("interval_down", span(check.interval_down, check.interval));
    add("timeout", span(check.timeout, usual.timeout));
    add("rise", number(check.rise, usual.rise));
    add("fall", number(check.fall, usual.fall));
    add("jitter", (check.jitter != usual.jitter).then(|| quoted(&format!("{}%", check.jitter))));
    add("begin", (check.begin != Beginning::Up).then(|| quoted(name_in(&BEGINNINGS, check.begin))));
    add("failed", (check.failed != OnFailure::Drain).then(|| quoted(name_in(&ON_FAILURE, check.failed))));
    add("quorum", number(check.pool.quorum, 1));
    add("hysteresis", number(check.pool.hysteresis, 0));
    add("below_quorum", check.pool.below_quorum.map(|below| quoted(name_in(&BELOW_QUORUM, below))));
    add("slow_start", span(check.pool.slow_start, Duration::ZERO));
    let text = |bytes: &[u8]| (!bytes.is_empty()).then(|| quoted(&encode(bytes)));
    match &check.probe {
        Probe::Tcp(Exchange { send, expect }) | Probe::Udp(Exchange { send, expect }) => {
            add("send", text(send));
            add("expect", text(expect));
        }
        Probe::Http(request) => entries.extend(http_entries(request)),
        Probe::Https(request, TlsRules { verify, ca, server_name }) => {
            add("verify", (*verify != ca.is_some()).then(|| verify.to_string()));
            add("ca", ca.as_ref().map(|file| quoted(&file.to_string_lossy())));
            add("server_name", server_name.as_deref().map(quoted));
            entries.extend(http_entries(request));
        }
        Probe::Dns(DnsQuestion { name, record }) => {
            add("name", (!name.is_empty()).then(|| quoted(name)));
            add("record", (*record != RecordType(6)).then(|| quoted(&record.to_string())));
        }
        Probe::Icmp => {}
        Probe::Command(ProgramCall { words, environment }) => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            add("command", Some(format!("[{}]", words.join(", "))));
            let pairs: Vec<String> =
                environment.iter().map(|(name, value)| format!("{} = {}", quoted(name), quoted(value))).collect();
            add("environment", (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", "))));
        }
    }
    entries
}

fn http_entries(HttpRequest { path, host, status, body }: &HttpRequest) -> Vec<(&'static str, String)> {
    let entries = [
        ("path", (path != "/").then(|| quoted(path))),
        ("host", host.as_deref().map(quoted)),
        ("status", (status[..] != [(200, 399)]).then(|| quoted(&status_text(status)))),
        ("body", body.as_deref().map(quoted)),
    ];
    entries.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
