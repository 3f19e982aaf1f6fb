//! Arguments of commands that several datapaths have.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A service or a backend.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a number from 1 on, or an address")]
pub(crate) enum NumberOrAddress {
    Number(usize),
    Address(String),
}

/// The weight of a backend of a service, or of all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Weight {
    pub(crate) service: Option<NumberOrAddress>,
    pub(crate) backend: NumberOrAddress,
    pub(crate) weight: u32,
}

/// What a command without arguments takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoArguments {}

/// A command's arguments, of which there may be none.
pub(crate) fn read<T: DeserializeOwned>(arguments: &Value) -> Result<T> {
    let arguments = if arguments.is_null() { json!({}) } else { arguments.clone() };
    serde_json::from_value(arguments).context("read its arguments")
}

/// Whether the service or backend with this index and address is meant; all are where none is named.
pub(crate) fn is_meant(which: Option<&NumberOrAddress>, index: usize, address: SocketAddr) -> bool {
    match which {
        None => true,
        Some(NumberOrAddress::Number(number)) => *number == index + 1,
        Some(NumberOrAddress::Address(text)) => match text.parse::<SocketAddr>() {
            Ok(wanted) => wanted == address,
            Err(_) => text.parse::<IpAddr>().is_ok_and(|wanted| wanted == address.ip()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_and_backends_are_named_by_number_or_address() {
        let address: SocketAddr = "198.19.0.2:80".parse().unwrap();
        let text = |text: &str| NumberOrAddress::Address(text.to_owned());
        assert!(is_meant(None, 7, address));
        for which in [NumberOrAddress::Number(2), text("198.19.0.2"), text("198.19.0.2:80")] {
            assert!(is_meant(Some(&which), 1, address), "{which:?}");
        }
        for which in [NumberOrAddress::Number(1), text("198.19.0.3"), text("198.19.0.2:81"), text("first")] {
            assert!(!is_meant(Some(&which), 1, address), "{which:?}");
        }
        let read = |arguments: Value| read::<Weight>(&arguments).map_err(|error| format!("{error:#}"));
        assert_eq!(read(json!({"backend": 2, "weight": 0})).unwrap().backend, NumberOrAddress::Number(2));
        assert_eq!(read(json!({"backend": "::1", "weight": 0})).unwrap().backend, text("::1"));
        assert!(read(json!({"backend": -1, "weight": 0})).unwrap_err().contains("a number from 1 on"));
        assert!(read(json!({"backend": 1, "wait": 0})).unwrap_err().contains("unknown field `wait`"));
    }
}
