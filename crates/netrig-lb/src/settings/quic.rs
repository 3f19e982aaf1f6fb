//! Services whose backends are named by connection IDs of QUIC.

use std::fmt;
use std::ops::Range;

use rig_cli::forms::TextOrTable;
use rig_datapath::balancer::QuicIds;
use serde::Deserialize;
use toml::Spanned;

use super::file::{BackendFile, ServiceFile};
use super::misfit::Misfit;
use super::rules::Service;
use crate::message::{Protocol, Quic};

/// What takes it away, of a service and of a backend.
pub const OFF: &str = "off";

pub(super) const TCP: Misfit = Misfit::fixed("quic of a TCP service", "remove it: QUIC is over UDP");
const NO_IDS: Misfit = Misfit::fixed(
    "a backend has a quic_id, and the service has no quic",
    "say how connection IDs are made: quic = { configuration = 0, id_length = 2 }, or --quic 0/2",
);
const TOO_LONG: Misfit =
    Misfit::fixed("a quic_id has more bytes than id_length says", "choose a lower one, or a longer id_length, up to 7");
const TWICE: Misfit = Misfit::fixed("two backends have the same quic_id", "give each its own");
const RANGE: Misfit = Misfit::fixed(
    "connection IDs of QUIC cannot be so",
    "choose a configuration of 0 to 6, and 1 to 7 bytes for the server's ID",
);

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuicFile {
    pub configuration: u8,
    pub id_length: u8,
}

impl From<QuicFile> for Quic {
    fn from(QuicFile { configuration, id_length }: QuicFile) -> Self {
        Self { configuration, id_length }
    }
}

impl From<QuicIds> for Quic {
    fn from(QuicIds { configuration, length: id_length }: QuicIds) -> Self {
        Self { configuration, id_length }
    }
}

/// `0/2`: the configuration's number and the bytes of servers' IDs.
impl fmt::Display for Quic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id_length {
            0 => f.write_str(OFF),
            length => write!(f, "{}/{length}", self.configuration),
        }
    }
}

/// Of a file, in which what is off is left out.
///
/// # Errors
/// When there is no such number of a configuration, or length.
pub(super) fn of_file(said: QuicFile) -> Result<QuicIds, Misfit> {
    ids(said.into())?.ok_or(RANGE)
}

/// # Errors
/// When there is no such number of a configuration, or length.
pub(super) fn ids(Quic { configuration, id_length: length }: Quic) -> Result<Option<QuicIds>, Misfit> {
    match QuicIds::CONFIGURATIONS.contains(&configuration) && QuicIds::LENGTHS.contains(&length) {
        true => Ok(Some(QuicIds { configuration, length })),
        false if length == 0 => Ok(None),
        false => Err(RANGE),
    }
}

/// As it is written, or `off`.
///
/// # Errors
/// When it is not that.
pub fn quic(text: &str) -> Result<Quic, Misfit> {
    if text == OFF {
        return Ok(Quic { configuration: 0, id_length: 0 });
    }
    let parts = text.split_once('/').and_then(|(number, length)| Some((number.parse().ok()?, length.parse().ok()?)));
    let (configuration, id_length) = parts.filter(|(_, length)| *length > 0).ok_or(RANGE)?;
    let quic = Quic { configuration, id_length };
    ids(quic).map(|_| quic)
}

/// A number, also in hexadecimal digits behind `0x`; `off` is `None`.
///
/// # Errors
/// When it is not that.
pub fn quic_id(text: &str) -> Result<Option<u64>, Misfit> {
    let number = match text.strip_prefix("0x") {
        _ if text == OFF => return Ok(None),
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let wrong = |_| Misfit::of(format!("'{text}' is no server ID"), "write a number, 7 or 0x7, or off");
    number.map(Some).map_err(wrong)
}

impl Service {
    /// Why it cannot have the `quic` that it has, or its backends their IDs.
    pub fn quic_misfit(&self) -> Option<Misfit> {
        let mut ids: Vec<u64> = self.backends.iter().filter_map(|backend| backend.quic_id).collect();
        ids.sort_unstable();
        if self.key.protocol == Protocol::Tcp && (self.quic.is_some() || !ids.is_empty()) {
            return Some(TCP);
        }
        let Some(quic) = self.quic else { return (!ids.is_empty()).then_some(NO_IDS) };
        match () {
            () if ids.iter().any(|id| *id > quic.most()) => Some(TOO_LONG),
            () if ids.windows(2).any(|two| two[0] == two[1]) => Some(TWICE),
            () => None,
        }
    }
}

/// Where a file has what does not fit.
pub(super) fn span_of(said: &ServiceFile) -> Option<Range<usize>> {
    let has_one = |backend: &&Spanned<TextOrTable<BackendFile>>| matches!(backend.get_ref(), TextOrTable::Table(table) if table.quic_id.is_some());
    let of_backend = || said.backend.iter().find(has_one).map(Spanned::span);
    said.quic.as_ref().map(Spanned::span).or_else(of_backend)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::super::rules::{EditError, Rules};
    use super::*;
    use crate::message::{BackendOptions, ForwardingMethod, RuleChange, ServiceKey, ServiceOptions};
    use crate::settings::{Completeness, Settings};

    fn read(says: &str) -> Result<Settings, String> {
        let text = format!("[[service]]\nlisten = 'udp 192.0.2.1:443'\nforward = 'route'\n{says}");
        Settings::parse("lb.toml", &text, Completeness::Optional).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_read_and_written() {
        let backends =
            "backend = [{ address = '10.0.0.1', quic_id = 0x0102 }, { address = '10.0.0.2', quic_id = 3 }, '10.0.0.3']";
        let settings = read(&format!("quic = {{ configuration = 1, id_length = 2 }}\n{backends}")).unwrap();
        let config = settings.rules.config(1024);
        let service = &config.services[0];
        assert_eq!(service.quic, Some(QuicIds { configuration: 1, length: 2 }));
        let ids: Vec<_> = service.backends.iter().map(|backend| backend.quic_id).collect();
        assert_eq!(ids, [Some(0x102), Some(3), None]);
        config.validate().unwrap();
        let written = settings.to_toml();
        assert!(written.contains("quic = { configuration = 1, id_length = 2 }"), "{written}");
        assert_eq!(Settings::parse("lb.toml", &written, Completeness::Optional).unwrap().rules, settings.rules);
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_line() {
        let one = "backend = [{ address = '10.0.0.1', quic_id = 256 }]";
        for (says, why) in [
            (one.to_owned(), "lb.toml:4: a backend has a quic_id, and the service has no quic"),
            (format!("quic = {{ configuration = 0, id_length = 1 }}\n{one}"), "lb.toml:4: a quic_id has more bytes"),
            ("quic = { configuration = 7, id_length = 1 }".to_owned(), "lb.toml:4: connection IDs of QUIC cannot be so"),
            ("quic = { configuration = 0, id_length = 8 }".to_owned(), "lb.toml:4: connection IDs of QUIC cannot be so"),
            ("quic = { configuration = 0, id_length = 0 }".to_owned(), "lb.toml:4: connection IDs of QUIC cannot be so"),
            ("quic = { configuration = 0 }".to_owned(), "missing field `id_length`"),
            (
                "quic = { configuration = 0, id_length = 1 }\nbackend = [{ address = '10.0.0.1-10.0.0.2', quic_id = 1 }]"
                    .to_owned(),
                "two backends have the same quic_id",
            ),
        ] {
            let error = read(&says).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let of = |listen: &str| {
            let quic = "quic = { configuration = 0, id_length = 1 }\nbackend = [{ address = '10.0.0.1', quic_id = 1 }]";
            let text = format!("[[service]]\nlisten = [{listen}]\nforward = 'route'\n{quic}");
            Settings::parse("lb.toml", &text, Completeness::Optional).map_err(|error| error.to_string())
        };
        let error = of("'tcp 192.0.2.1:443'").unwrap_err();
        assert!(error.contains("lb.toml:4: quic of a TCP service"), "{error}");
        let both = of("'tcp 192.0.2.1:443', 'udp 192.0.2.1:443'").unwrap();
        let has: Vec<_> =
            both.rules.services.iter().map(|service| (service.quic.is_some(), service.backends[0].quic_id)).collect();
        assert_eq!(has, [(false, None), (true, Some(1))]);
    }

    #[test]
    fn commands_change_it() {
        let key = |protocol| ServiceKey { protocol, address: "192.0.2.1:443".parse().unwrap() };
        let service = key(Protocol::Udp);
        let options = |configuration, id_length| {
            let quic = Quic { configuration, id_length };
            ServiceOptions { quic: Some(quic), ..ServiceOptions::default() }
        };
        let mut rules = Rules::default();
        let of_tcp = RuleChange::AddService { service: key(Protocol::Tcp), options: options(0, 2) };
        assert_eq!(rules.edit(&of_tcp), Err(EditError::Misfit(TCP)));
        rules.edit(&RuleChange::AddService { service, options: options(0, 1) }).unwrap();
        let add = |host: u8, id: &str| RuleChange::AddBackend {
            service,
            backend: std::net::SocketAddr::new([10, 0, 0, host].into(), 443),
            options: BackendOptions {
                forward: Some(ForwardingMethod::Route),
                quic_id: Some(id.to_owned()),
                ..BackendOptions::default()
            },
        };
        rules.edit(&add(1, "0xff")).unwrap();
        let before = rules.clone();
        for (change, why) in [
            (add(2, "255"), TWICE),
            (add(2, "256"), TOO_LONG),
            (RuleChange::EditService { service, options: options(0, 0) }, NO_IDS),
            (RuleChange::EditService { service, options: options(9, 1) }, RANGE),
        ] {
            assert_eq!(rules.edit(&change), Err(EditError::Misfit(why)));
            assert_eq!(rules, before);
        }
        assert!(rules.edit(&add(2, "x")).unwrap_err().to_string().contains("'x' is no server ID"));
        rules.edit(&RuleChange::EditService { service, options: options(2, 3) }).unwrap();
        rules.edit(&add(2, "256")).unwrap();
        let ids: Vec<_> = rules.services[0].backends.iter().map(|backend| backend.quic_id).collect();
        let quic = Quic::from(rules.services[0].quic.unwrap());
        assert_eq!((quic.to_string(), ids), ("2/3".to_owned(), vec![Some(255), Some(256)]));
        for (text, read) in
            [("2/3", Some((2, 3))), ("off", Some((0, 0))), ("7/1", None), ("0/0", None), ("0/8", None), ("2", None)]
        {
            let read = read.map(|(configuration, id_length)| Quic { configuration, id_length });
            assert_eq!(super::quic(text).ok(), read, "{text}");
        }
    }
}
