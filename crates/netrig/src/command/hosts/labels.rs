//! Labels of hosts: what users tell hosts apart by, in hosts.toml and by `--host-label`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Of one host.
const MOST: usize = 16;
/// Characters of a key, and of a value.
const LONGEST: usize = 63;

/// A label that hosts are chosen by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLabel {
    key: String,
    value: String,
}

impl FromStr for HostLabel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("a label is KEY=VALUE")?;
        check("key", key)?;
        check("value", value)?;
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

impl fmt::Display for HostLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl HostLabel {
    /// Whether it is one of these.
    pub fn is_in(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.get(&self.key) == Some(&self.value)
    }
}

/// `rack=b1, role=edge`.
pub fn in_words(labels: impl IntoIterator<Item = impl fmt::Display>) -> String {
    labels.into_iter().map(|label| label.to_string()).collect::<Vec<_>>().join(", ")
}

/// The labels of a host, as `rack=b1`.
pub fn each(labels: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    labels.iter().map(|(key, value)| format!("{key}={value}"))
}

/// Refuses labels that a host may not have: what stands behind the host's name in a message.
///
/// # Errors
/// For too many, and for one that is no label.
pub fn check_all(labels: &BTreeMap<String, String>) -> Result<(), String> {
    if labels.len() > MOST {
        return Err(format!("has {} labels: {MOST} are the most", labels.len()));
    }
    let refused = |what: &str, text: &str| check(what, text).map_err(|why| format!("has a label that is none: {why}"));
    labels.iter().try_for_each(|(key, value)| refused("key", key).and_then(|()| refused("value", value)))
}

fn check(what: &str, text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_good = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(plain);
    match is_good && text.len() <= LONGEST {
        true => Ok(()),
        false => Err(format!(
            "the {what} '{}' is not 1 to {LONGEST} letters, digits, '-', '_' and '.', of which a letter or digit is the first",
            text.chars().take(LONGEST).collect::<String>().escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_key_and_a_value_of_few_plain_characters() {
        let longest = "x".repeat(LONGEST);
        for good in ["rack=b1", "zone=eu-1.a", &format!("{longest}={longest}")] {
            assert_eq!(good.parse::<HostLabel>().unwrap().to_string(), good);
        }
        for wrong in
            ["rack", "rack=", "=b1", "ra ck=b1", "rack=b1,b2", "rack=-", "rack=b1=b2", &format!("{longest}x=1")]
        {
            assert!(wrong.parse::<HostLabel>().is_err(), "{wrong}");
        }
        let labels = BTreeMap::from([("rack".to_owned(), "b1".to_owned())]);
        let is_in = |label: &str| label.parse::<HostLabel>().unwrap().is_in(&labels);
        assert!(is_in("rack=b1") && !is_in("rack=b2") && !is_in("role=b1"));
    }

    #[test]
    fn a_host_has_few_labels() {
        let of = |count: usize| (0..count).map(|number| (format!("k{number}"), "v".to_owned())).collect();
        assert_eq!(check_all(&of(MOST)), Ok(()));
        assert!(check_all(&of(MOST + 1)).unwrap_err().contains("17 labels"));
    }
}
