//! The ends of load, and their names.

use std::fmt;
use std::str::FromStr;

use super::TopologyError;

/// Where load comes from or goes to: a node, or a container in it. Written `node` or `node/container`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub node: String,
    pub container: Option<String>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.container {
            None => f.write_str(&self.node),
            Some(container) => write!(f, "{}/{container}", self.node),
        }
    }
}

impl FromStr for Endpoint {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (node, container) = match text.split_once('/') {
            None => (text, None),
            Some((node, container)) => (node, Some(container)),
        };
        for name in std::iter::once(node).chain(container) {
            check_name(name)?;
        }
        Ok(Self { node: node.to_owned(), container: container.map(str::to_owned) })
    }
}

/// Names become parts of messages, file names and addresses of endpoints, so they are kept simple.
pub fn check_name(name: &str) -> Result<(), TopologyError> {
    let good = (1..=32).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && name.as_bytes()[0].is_ascii_alphanumeric();
    if good {
        return Ok(());
    }
    Err(TopologyError::new(
        format!("'{name}' is not a name"),
        "use 1 to 32 letters, digits, '-' or '_', beginning with a letter or digit",
    ))
}
