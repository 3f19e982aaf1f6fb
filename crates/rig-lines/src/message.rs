//! Messages, and their lines.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::start;
use crate::{Error, Refusal};

/// Something that is asked. The asking side counts from 0, and does not use a number twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request<Q> {
    pub number: u64,
    pub request: Q,
}

/// What comes back. Each request is answered or refused once, in the order in which requests came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply<A> {
    /// More of the same answer follows.
    Part { number: u64, value: A },
    /// The answer, or the last part of it.
    Answer { number: u64, value: A },
    /// It was not done.
    Refused { number: u64, why: Refusal },
    /// The answering side does not understand a line, and ends.
    Broken { why: String },
}

/// A value as a line, with its line feed.
///
/// # Errors
/// When it would be longer than `longest` bytes without that.
pub fn encode(value: &impl Serialize, longest: usize) -> Result<Vec<u8>, Error> {
    let mut line = serde_json::to_vec(value).map_err(std::io::Error::other)?;
    if line.len() > longest {
        return Err(Error::Oversized { length: line.len(), limit: longest });
    }
    line.push(b'\n');
    Ok(line)
}

/// The value of a line without its line feed.
///
/// # Errors
/// When it is no such value.
pub fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(line).map_err(|error| Error::Foreign { start: start(line), why: error.to_string() })
}

/// What a line says and its reader does not know: the first field that `value`, as it was read from it, has not. Who writes a field that is
/// null or empty says nothing by it, so that a newer one may ask an older one for what both know.
pub fn unknown_field(line: &[u8], value: &impl Serialize) -> Option<String> {
    // One that was read has a form in JSON.
    unknown(&serde_json::from_slice(line).ok()?, &serde_json::to_value(value).ok()?)
}

fn unknown(said: &Value, known: &Value) -> Option<String> {
    match (said, known) {
        (Value::Object(said), Value::Object(known)) => said.iter().find_map(|(name, said)| match known.get(name) {
            Some(known) => unknown(said, known),
            None => (!says_nothing(said)).then(|| start(name.as_bytes())),
        }),
        (Value::Array(said), Value::Array(known)) => {
            said.iter().zip(known).find_map(|(said, known)| unknown(said, known))
        }
        _ => None,
    }
}

fn says_nothing(said: &Value) -> bool {
    match said {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.values().all(says_nothing),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_does_not_know_is_named_unless_it_says_nothing() {
        #[derive(Serialize, Deserialize)]
        struct RuleAddress {
            port: u16,
        }
        #[derive(Serialize, Deserialize)]
        struct Rule {
            #[serde(flatten)]
            address: RuleAddress,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            name: Option<String>,
            #[serde(default)]
            inner: Vec<RuleAddress>,
        }
        let unknown = |line: &str| unknown_field(line.as_bytes(), &decode::<Rule>(line.as_bytes()).unwrap());
        for known in [
            r#"{"port":1}"#,
            r#"{"port":1,"name":null,"inner":[{"port":2}]}"#,
            r#"{"port":1,"name":"x","later":null,"list":[],"options":{"one":null}}"#,
        ] {
            assert_eq!(unknown(known), None, "{known}");
        }
        for (line, field) in [
            (r#"{"port":1,"later":false}"#, "later"),
            (r#"{"port":1,"inner":[{"port":2},{"port":3,"dscp":"ef"}]}"#, "dscp"),
            (r#"{"port":1,"options":{"one":null,"two":0}}"#, "options"),
        ] {
            assert_eq!(unknown(line).as_deref(), Some(field), "{line}");
        }
    }

    #[test]
    fn a_value_is_one_line_of_a_limited_length() {
        let request = Request { number: 7, request: "two\nlines".to_owned() };
        let line = encode(&request, 100).unwrap();
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        assert_eq!(decode::<Request<String>>(&line[..line.len() - 1]).unwrap(), request);
        let length = line.len() - 1;
        assert!(encode(&request, length).is_ok());
        let error = encode(&request, length - 1).unwrap_err();
        assert_eq!(error.to_string(), format!("a message of {length} bytes is longer than {}", length - 1));
        let error = decode::<Request<String>>(br#"{"number":7,"request":"x","more":1}"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `more`"), "{error}");
    }

    #[test]
    fn replies_read_back() {
        let replies: [Reply<u32>; 4] = [
            Reply::Part { number: 1, value: 2 },
            Reply::Answer { number: 1, value: 3 },
            Reply::Refused { number: 2, why: Refusal::new("not here", Some("look elsewhere".to_owned())) },
            Reply::Broken { why: "what?".to_owned() },
        ];
        for reply in replies {
            let line = encode(&reply, 1000).unwrap();
            assert_eq!(decode::<Reply<u32>>(line.trim_ascii_end()).unwrap(), reply);
        }
    }
}
