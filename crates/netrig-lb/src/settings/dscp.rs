//! What a service's backends get for a DSCP, by the words that files have for it.

use rig_sys::socket::{Dscp, DscpError};

/// That which packets come with.
const KEEP: &str = "keep";

/// What else there is than what a mistake names.
pub const OR_KEEP: &str = "or say keep, as it is by default";

/// `keep` is `None`.
pub fn dscp(text: &str) -> Result<Option<Dscp>, DscpError> {
    if text == KEEP { Ok(None) } else { text.parse().map(Some) }
}

pub fn dscp_name(dscp: Option<Dscp>) -> String {
    dscp.map_or(KEEP.to_owned(), |dscp| dscp.to_string())
}

#[derive(Debug, serde::Deserialize)]
#[serde(untagged, expecting = "\"keep\", a name such as \"ef\", or a number from 0 to 63")]
pub(super) enum DscpFile {
    Number(i64),
    Text(String),
}

impl DscpFile {
    pub(super) fn read(&self) -> Result<Option<Dscp>, DscpError> {
        match self {
            Self::Number(number) => dscp(&number.to_string()),
            Self::Text(text) => dscp(text),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use crate::message::{Protocol, RuleChange, ServiceKey, ServiceOptions};
    use crate::settings::{Completeness, Settings};

    fn read(says: &str) -> Result<Settings, String> {
        let text = format!("[[service]]\nlisten = ['tcp 192.0.2.1:80', 'udp 192.0.2.1:80']\nforward = 'nat'\n{says}");
        Settings::parse("lb.toml", &text, Completeness::Optional).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_read_and_written_by_name_or_number() {
        for (says, number, writes) in [
            ("", None, None),
            ("dscp = 'keep'", None, None),
            ("dscp = 'EF'", Some(46), Some("dscp = \"ef\"")),
            ("dscp = 46", Some(46), Some("dscp = \"ef\"")),
            ("dscp = 0", Some(0), Some("dscp = \"cs0\"")),
            ("dscp = '0x3f'", Some(63), Some("dscp = \"63\"")),
        ] {
            let settings = read(says).unwrap();
            let config = settings.rules.config(1024);
            let in_force: Vec<Option<u8>> =
                settings.rules.services.iter().map(|service| service.dscp.map(u8::from)).collect();
            assert_eq!(in_force, [number; 2], "{says}");
            assert_eq!(config.services.iter().map(|of| of.dscp.map(u8::from)).collect::<Vec<_>>(), in_force);
            let text = settings.to_toml();
            assert_eq!(text.lines().find(|line| line.starts_with("dscp")), writes);
            assert_eq!(Settings::parse("lb.toml", &text, Completeness::Optional).unwrap().rules, settings.rules);
        }
        for (says, why) in [
            ("dscp = 64", "'64' is no DSCP"),
            ("dscp = -1", "'-1' is no DSCP"),
            ("dscp = 'Keep'", "'Keep' is no DSCP"),
            ("dscp = true", "\"keep\", a name such as \"ef\", or a number from 0 to 63"),
        ] {
            let refused = read(says).unwrap_err();
            assert!(refused.contains(why) && refused.contains("lb.toml:4"), "{refused}");
        }
    }

    #[test]
    fn a_command_changes_it() {
        let before = read("dscp = 'ef'").unwrap().rules;
        let service = ServiceKey { protocol: Protocol::Udp, address: "192.0.2.1:80".parse().unwrap() };
        let edited = |dscp: &str| {
            let mut rules = before.clone();
            let options = ServiceOptions { dscp: Some(dscp.to_owned()), ..ServiceOptions::default() };
            rules.edit(&RuleChange::EditService { service, options }).map(|()| rules)
        };
        let of = |dscp: &str| edited(dscp).unwrap().services.iter().map(|of| of.dscp.map(u8::from)).collect::<Vec<_>>();
        assert_eq!(of("af41"), [Some(46), Some(34)]);
        assert_eq!(of("keep"), [Some(46), None]);
        assert_eq!(edited("af51").unwrap_err().to_string().split(':').next(), Some("'af51' is no DSCP"));
        let said = crate::settings::changes(&before, &edited("keep").unwrap());
        assert_eq!(said, ["udp 192.0.2.1:80: dscp is now keep, of connections that there are, too"]);
    }
}
