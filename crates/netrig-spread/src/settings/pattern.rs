//! Names of interfaces with `*` and `?`, as shells match names of files.

use std::fmt;
use std::str::FromStr;

/// At most 64 bytes, without slashes and spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    pub fn matches(&self, name: &str) -> bool {
        matches(self.0.as_bytes(), name.as_bytes())
    }

    /// Whether it is the name of one interface.
    pub fn is_name(&self) -> bool {
        !self.0.contains(['*', '?'])
    }
}

/// `*` is any number of bytes, `?` is one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    // Where to go on when what followed the last `*` does not fit.
    let mut star = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((of_star, taken)) = star else { return false };
                star = Some((of_star, taken + 1));
                at = of_star + 1;
                in_name = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty()
            || text.len() > 64
            || text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control())
        {
            return Err(format!("'{text}' is not a name of an interface, nor a pattern of names such as veth*"));
        }
        Ok(Self(text.to_owned()))
    }
}
