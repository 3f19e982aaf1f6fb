//! Control messages that only a holder of the key can have written: a pre-shared key, a nonce of each end, and a message
//! authentication code before each line.
//!
//! ```text
//! line = 64 hexadecimal digits of the code, a space, the frame's JSON, a line feed
//! code = HMAC-SHA-256(key of this direction, number of the line in this direction as 8 bytes || JSON)      (RFC 2104)
//! key  = HKDF-SHA-256(salt = server's nonce || client's nonce, secret = the file's key,
//!                     info = direction || SHA-256(the server's welcome, without the line feed)), 64 bytes  (RFC 5869)
//! ```
//! The nonces make each connection's keys its own, so that nothing said before can be said again; the numbers keep lines
//! in their order and make one that is missing known with the next; each direction has a key of its own, so that nothing
//! can be sent back to its sender; and the welcome is part of the keys, so that it cannot have been changed. Codes
//! are compared in constant time. Nothing is encrypted, and the load itself is not authenticated.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Bytes of a key file, white space at its ends not counted. The least is what 128 random bits take in hexadecimal
/// digits.
const SHORTEST: usize = 32;
const LONGEST: u64 = Key::LONGEST;

/// Bytes of a nonce and of a code.
const SIZE: usize = 32;

/// What stands before the JSON.
pub const PREFIX: usize = 2 * SIZE + 1;

const FROM_CLIENT: &[u8] = b"netrig control, client to server";
const FROM_SERVER: &[u8] = b"netrig control, server to client";

/// How to make a key file.
pub const RECIPE: &str = "(umask 077; head -c 32 /dev/urandom | base64 > FILE)";

/// A pre-shared key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(...)")
    }
}

/// Why a file gives no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("read the key: {0}: make a key with `{RECIPE}` and bring it to the other machine")]
    Read(#[source] io::Error),
    #[error("the key is not a regular file")]
    NoFile,
    #[error("the key belongs to user {owner}, neither to root nor to the user who runs netrig: `chown` it")]
    Owner { owner: u32 },
    #[error("others may read or write the key (mode {mode:04o}): `chmod 600` it, or make another if others have")]
    Mode { mode: u32 },
    #[error("the key has {length} bytes, it needs {SHORTEST} to {LONGEST}: make one with `{RECIPE}`")]
    Length { length: usize },
}

impl Key {
    /// Bytes of a key at most.
    pub const LONGEST: u64 = 4096;

    /// The text of a new key: 256 random bits in hexadecimal digits.
    ///
    /// # Errors
    /// When the kernel has no random numbers.
    pub fn new_text() -> io::Result<String> {
        Nonce::draw().map(|Nonce(bytes)| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads a key from a file that only its owner may read. White space at its ends is no part of the key, so that it may
    /// be written with an editor.
    ///
    /// # Errors
    /// Why it gives no key.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        // Opening a FIFO must not wait for its other end.
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(KeyError::Read)?;
        // The opened file is checked, not the path, which may be replaced meanwhile.
        let metadata = file.metadata().map_err(KeyError::Read)?;
        if !metadata.is_file() {
            return Err(KeyError::NoFile);
        }
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return Err(KeyError::Owner { owner });
        }
        if mode & 0o077 != 0 {
            return Err(KeyError::Mode { mode });
        }
        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(KeyError::Read)?;
        Self::new(&bytes)
    }

    /// # Errors
    /// When it is too short to be a secret, or too long.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyError> {
        let key = bytes.trim_ascii();
        let fits = key.len() >= SHORTEST && bytes.len() as u64 <= LONGEST;
        if fits { Ok(Self(key.to_vec())) } else { Err(KeyError::Length { length: key.len() }) }
    }
}

/// A number that is used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce([u8; SIZE]);

impl Nonce {
    /// # Errors
    /// When the kernel has no random numbers.
    pub fn draw() -> io::Result<Self> {
        let mut bytes = [0; SIZE];
        getrandom::fill(&mut bytes).map_err(io::Error::from)?;
        Ok(Self(bytes))
    }

    /// For tests and scripts that have to play the same way each time.
    pub const fn fixed(byte: u8) -> Self {
        Self([byte; SIZE])
    }
}

impl Serialize for Nonce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hexadecimal(&self.0))
    }
}

impl<'de> Deserialize<'de> for Nonce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        bytes(text.as_bytes()).map(Self).ok_or_else(|| serde::de::Error::custom("a nonce has 64 hexadecimal digits"))
    }
}

/// Whose lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Server,
    Client,
}

/// The codes of one direction of a connection.
struct Chain {
    code: Hmac<Sha256>,
    /// Lines so far.
    count: u64,
}

impl Chain {
    /// The code of the next line, not finished.
    fn next(&mut self, json: &[u8]) -> Hmac<Sha256> {
        let mut code = self.code.clone();
        code.update(&self.count.to_be_bytes());
        code.update(json);
        self.count += 1;
        code
    }
}

/// Seals what one end sends and opens what it receives.
pub struct Seal {
    sent: Chain,
    received: Chain,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seal({} sent, {} received)", self.sent.count, self.received.count)
    }
}

/// A line that was not written for this place in the conversation by a peer with the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("a line without a seal")]
    Missing,
    #[error("a line whose seal does not fit: another key, or a line that was changed, repeated or left out")]
    Wrong,
}

impl Seal {
    /// Of the end `of`. `welcome` is the server's first line without its line feed.
    pub fn new(of: End, key: &Key, server: Nonce, client: Nonce, welcome: &[u8]) -> Self {
        let salt = [server.0, client.0].concat();
        let derive = Hkdf::<Sha256>::new(Some(&salt), &key.0);
        let welcome = Sha256::digest(welcome);
        let chain = |direction| {
            // As long as a block of SHA-256, which is what HMAC works with. Two blocks of output are never too long.
            let mut derived = [0; 64];
            let done = derive.expand_multi_info(&[direction, &welcome], &mut derived);
            debug_assert!(done.is_ok());
            Chain { code: Hmac::new((&derived).into()), count: 0 }
        };
        let (client, server) = (chain(FROM_CLIENT), chain(FROM_SERVER));
        match of {
            End::Server => Self { sent: server, received: client },
            End::Client => Self { sent: client, received: server },
        }
    }

    /// The next line to send, from its JSON.
    pub fn seal(&mut self, json: &[u8]) -> Vec<u8> {
        let code = self.sent.next(json).finalize().into_bytes();
        let mut line = hexadecimal(&code).into_bytes();
        line.push(b' ');
        line.extend_from_slice(json);
        line
    }

    /// The JSON of the next line that has come.
    ///
    /// # Errors
    /// When it is not what the other end said next. Then nothing that follows can be right.
    pub fn open<'a>(&mut self, line: &'a [u8]) -> Result<&'a [u8], SealError> {
        let (code, json) = split(line).ok_or(SealError::Missing)?;
        self.received.next(json).verify_slice(&code).map_err(|_| SealError::Wrong)?;
        Ok(json)
    }
}

/// A sealed line's code and JSON; `None` when it has no seal.
pub fn split(line: &[u8]) -> Option<([u8; SIZE], &[u8])> {
    let (prefix, json) = line.split_at_checked(PREFIX)?;
    let code = bytes(prefix.strip_suffix(b" ")?)?;
    Some((code, json))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(digits: &[u8]) -> Option<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    if pairs.len() != SIZE {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const WELCOME: &[u8] = b"{\"welcome\":{}}";

    fn pair() -> (Seal, Seal) {
        let of = |end| Seal::new(end, &key(SECRET), Nonce::fixed(1), Nonce::fixed(2), WELCOME);
        (of(End::Server), of(End::Client))
    }

    #[test]
    fn what_is_sealed_is_opened_by_the_other_end() {
        let (mut server, mut client) = pair();
        for json in [&b"{}"[..], b"", b"{\"a\":1}"] {
            assert_eq!(client.open(&server.seal(json)), Ok(json));
            assert_eq!(server.open(&client.seal(json)), Ok(json));
        }
    }

    #[test]
    fn repeated_left_out_exchanged_reflected_cut_and_changed_lines_are_refused() {
        // Repeated.
        let (mut server, mut client) = pair();
        let line = client.seal(b"{\"ping\":1}");
        server.open(&line).unwrap();
        assert_eq!(server.open(&line), Err(SealError::Wrong));
        // The first left out; the second before the first.
        let (mut server, mut client) = pair();
        client.seal(b"first");
        assert_eq!(server.open(&client.seal(b"second")), Err(SealError::Wrong));
        // Sent back to its sender.
        let (_, mut client) = pair();
        let own = client.seal(b"mine");
        assert_eq!(client.open(&own), Err(SealError::Wrong));
        // Cut, and each bit changed.
        let (_, mut client) = pair();
        let line = client.seal(b"{\"go\":1}");
        for length in 0..line.len() {
            assert!(pair().0.open(&line[..length]).is_err(), "{length} bytes");
        }
        for bit in 0..8 * line.len() {
            let mut changed = line.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // An upper-case digit is the same digit.
            if !changed.eq_ignore_ascii_case(&line) || bit / 8 >= PREFIX {
                assert!(pair().0.open(&changed).is_err(), "bit {bit}");
            }
        }
        assert_eq!(pair().0.open(b"{\"hello\":{}}"), Err(SealError::Missing));
    }

    #[test]
    fn each_connection_has_keys_of_its_own() {
        let line = pair().1.seal(b"x");
        let of = |secret, server, client, welcome| {
            Seal::new(End::Server, &key(secret), Nonce::fixed(server), Nonce::fixed(client), welcome)
        };
        let mut others = [
            of("another key that is long enough!!", 1, 2, WELCOME),
            of(SECRET, 3, 2, WELCOME),
            of(SECRET, 1, 3, WELCOME),
            of(SECRET, 1, 2, b"{\"welcome\":{\"protocol\":1}}"),
        ];
        for other in &mut others {
            assert_eq!(other.open(&line), Err(SealError::Wrong));
        }
        of(SECRET, 1, 2, WELCOME).open(&line).unwrap();
        assert_ne!(Nonce::draw().unwrap(), Nonce::draw().unwrap());
    }

    #[test]
    fn a_nonce_reads_back_as_it_was() {
        let nonce = Nonce::draw().unwrap();
        let text = serde_json::to_string(&nonce).unwrap();
        assert_eq!(serde_json::from_str::<Nonce>(&text).unwrap(), nonce);
        for bad in ["\"\"", "\"0\"", &text.replace(&text[1..3], "xy")] {
            assert!(serde_json::from_str::<Nonce>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, format!("{SECRET}\n")).unwrap();
        for mode in [0o644, 0o640, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Key::read(&path).unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Key::read(&path).unwrap(), key(SECRET));
        fs::write(&path, "short").unwrap();
        let error = Key::read(&path).unwrap_err().to_string();
        assert!(error.contains("5 bytes") && error.contains("/dev/urandom"), "{error}");
        assert!(matches!(Key::read(directory.path()), Err(KeyError::NoFile)));
        assert!(matches!(Key::read(&directory.path().join("none")), Err(KeyError::Read(_))));
        assert!(!format!("{:?}", key(SECRET)).contains("0123"));
    }
}
