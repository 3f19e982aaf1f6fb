//! Who may test: a name, a password and the time, encrypted for the server's key.
//!
//! The format is that of esnet/iperf's `src/iperf_auth.c`: `user: NAME\npwd:  PASSWORD\nts:   SECONDS`, with RSAES-OAEP (RFC 8017, SHA-1) since 3.17, with
//! RSAES-PKCS1-v1_5 before and where it is asked for, in base64. The server's file of users has lines of `NAME,HASH`; the hash is SHA-256 of
//! `{NAME}PASSWORD` in hexadecimal.

use std::env::VarError;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rig_load::driver::Cancel;
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::pkcs8::{DecodePrivateKey, DecodePublicKey};
use rsa::{PrivateKey, PublicKey};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::error::{Code, TestError};
use super::settings::AuthenticationSettings;
use super::wait::wait;

/// What clients' clocks may differ by where nothing was said, seconds.
pub const CLOCK_SKEW: i64 = 10;
/// What stands where a token would.
pub const NOT_SHOWN: &str = "not shown";
/// Where clients have their password, if they are not to be asked.
const PASSWORD: &str = "IPERF3_PASSWORD";
/// A file of keys or of users that is larger is none.
const MOST_BYTES: u64 = 4 << 20;

/// What a client shows to the server.
#[derive(Clone)]
pub struct Credentials {
    username: String,
    password: String,
    key: PublicKey,
    pkcs1_padding: bool,
}

/// Whom a server lets test.
#[derive(Clone)]
pub struct Authorizer {
    key: PrivateKey,
    users: String,
    skew: i64,
    pkcs1_padding: bool,
}

// Neither is to stand in a log.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").field("users", &self.users).finish_non_exhaustive()
    }
}

fn read(path: &str, code: Code) -> Result<String, TestError> {
    let read = || -> io::Result<String> {
        // A pipe would be empty the second time, and hold up who reads it.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(io::Error::other(format!("it has more than {MOST_BYTES} bytes")));
        }
        // A line in another encoding is nobody's name.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().map_err(|error| {
        let why = super::error::without_number(&error.to_string());
        TestError::with(code, format!("{path}: {why}"))
    })
}

/// A line from the terminal that does not show what is typed; a signal ends the question.
fn ask_for_password() -> io::Result<String> {
    let cancel = Cancel::on_stop_signal().map_err(io::Error::other)?;
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    let mut stderr = io::stderr();
    let mut line = String::new();
    let mut read = || {
        write!(stderr, "Password: ")?;
        stderr.flush()?;
        wait(&mut [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&cancel, PollFlags::IN)], None)?;
        if cancel.is_cancelled() {
            return Err(Errno::INTR.into());
        }
        stdin.lock().read_line(&mut line)
    };
    let read = read();
    // The terminal is as it was, whatever was read.
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    let _ = writeln!(stderr);
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

impl Credentials {
    /// What a client's options name; the password is in the environment or asked for. `None` where they name nothing.
    ///
    /// # Errors
    /// When only a part of it is there.
    pub fn read(asked: &AuthenticationSettings) -> Result<Option<Self>, TestError> {
        let code = Code::CLIENT_AUTH;
        let (username, path) = match (&asked.username, &asked.public_key) {
            (None, None) => return Ok(None),
            (Some(username), Some(path)) => (username.clone(), path),
            _ => return Err(code.into()),
        };
        let key = PublicKey::from_public_key_pem(&read(path, code)?);
        let key =
            key.map_err(|error| TestError::with(code, format!("{path} has no public key of RSA in PEM: {error}")))?;
        let password = match std::env::var(PASSWORD) {
            Ok(password) => password,
            Err(VarError::NotUnicode(_)) => {
                return Err(TestError::with(code, format!("{PASSWORD} is no text in UTF-8")));
            }
            Err(VarError::NotPresent) => ask_for_password().map_err(|error| {
                let why = match error.kind() {
                    io::ErrorKind::Interrupted => "it was asked for, and a signal came".to_owned(),
                    _ => format!("{PASSWORD} has no password, and there is no terminal to ask at: {error}"),
                };
                TestError::with(code, why)
            })?,
        };
        Ok(Some(Self { username, password, key, pkcs1_padding: asked.pkcs1_padding }))
    }

    /// What proves, for a few seconds, who this is.
    ///
    /// # Errors
    /// When name and password have more bytes than the key can encrypt.
    pub fn token(&self, now: Timestamp) -> Result<String, TestError> {
        let text = format!("user: {}\npwd:  {}\nts:   {}", self.username, self.password, now.as_second());
        let encrypted = if self.pkcs1_padding {
            self.key.pkcs1v15_encrypt(text.as_bytes())
        } else {
            self.key.oaep_encrypt::<Sha1>(text.as_bytes())
        };
        let encrypted = encrypted.map_err(|error| {
            TestError::with(Code::CLIENT_AUTH, format!("name and password cannot be encrypted: {error}"))
        })?;
        Ok(STANDARD.encode(encrypted))
    }
}

/// Why a client is not let in. It is told to the server's operator, never to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it has shown no name and password")]
    NoToken,
    #[error(
        "what it has shown was not encrypted for this server's key, or with another padding (see --use-pkcs1-padding)"
    )]
    Unreadable,
    #[error("its clock is {0} s off, and {1} s are allowed (--time-skew-threshold)")]
    Skew(i64, i64),
    #[error("{0}")]
    Users(TestError),
    #[error("user '{0}' is not known, or the password is wrong")]
    Unknown(String),
}

impl Authorizer {
    /// What a server's options name. `None` where they name nothing.
    ///
    /// # Errors
    /// When only a part of it is there, or cannot be read.
    pub fn read(asked: &AuthenticationSettings) -> Result<Option<Self>, TestError> {
        let code = Code::SERVER_AUTH;
        let (path, users) = match (&asked.private_key, &asked.users) {
            (None, None) => return Ok(None),
            (Some(path), Some(users)) => (path, users.clone()),
            _ => return Err(code.into()),
        };
        read(&users, Code::USERS_FILE)?;
        let pem = read(path, code)?;
        // Either of OpenSSL's forms.
        let key = PrivateKey::from_pkcs8_pem(&pem).ok().or_else(|| PrivateKey::from_pkcs1_pem(&pem).ok());
        let key = key.ok_or_else(|| {
            TestError::with(code, format!("{path} has no private key of RSA in PEM, or one with a passphrase"))
        })?;
        let skew = asked.skew.unwrap_or(CLOCK_SKEW);
        Ok(Some(Self { key, users, skew, pkcs1_padding: asked.pkcs1_padding }))
    }

    /// Lets a client in by its token; its name.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, token: Option<&str>, now: Timestamp) -> Result<String, Refusal> {
        let token = token.ok_or(Refusal::NoToken)?;
        let encrypted = STANDARD.decode(token.trim()).map_err(|_| Refusal::Unreadable)?;
        let text = if self.pkcs1_padding {
            self.key.pkcs1v15_decrypt(&encrypted)
        } else {
            self.key.oaep_decrypt::<Sha1>(&encrypted)
        };
        let text = text.ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or(Refusal::Unreadable)?;
        let (username, password, seconds) = parts(&text).ok_or(Refusal::Unreadable)?;
        let off = now.as_second().saturating_sub(seconds);
        if off.saturating_abs() > self.skew {
            return Err(Refusal::Skew(off, self.skew));
        }
        // Read anew for each client, so that a change needs no restart.
        let users = read(&self.users, Code::USERS_FILE).map_err(Refusal::Users)?;
        if is_among(&users, username, &password_hash(username, password)) {
            Ok(username.to_owned())
        } else {
            Err(Refusal::Unknown(username.to_owned()))
        }
    }
}

/// Name, password and seconds since 1970 of a token's text.
fn parts(text: &str) -> Option<(&str, &str, i64)> {
    let mut lines = text.splitn(3, '\n');
    let username = lines.next()?.strip_prefix("user: ")?;
    let password = lines.next()?.strip_prefix("pwd:  ")?;
    let seconds = lines.next()?.strip_prefix("ts:")?.trim().parse().ok()?;
    Some((username, password, seconds))
}

/// SHA-256 as the file of users has it.
fn password_hash(username: &str, password: &str) -> String {
    let digest = Sha256::digest(format!("{{{username}}}{password}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a file's lines have this name with this hash. All are read, so that the time says nothing of which.
fn is_among(users: &str, username: &str, hash: &str) -> bool {
    let lines = users.lines().filter(|line| !line.starts_with('#'));
    let named = lines.filter_map(|line| line.split_once(',')).filter(|(name, _)| *name == username);
    named.fold(false, |known, (_, of_file)| known | (of_file.split(',').next().unwrap_or_default().trim() == hash))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;
    use rsa::Generate;
    use rsa::pkcs1::EncodeRsaPrivateKey;
    use rsa::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
    use tempfile::NamedTempFile;

    use super::*;

    fn file(text: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn path(file: &NamedTempFile) -> Option<String> {
        Some(file.path().to_str().unwrap().to_owned())
    }

    fn key() -> PrivateKey {
        PrivateKey::try_generate().unwrap()
    }

    fn pair(
        key: &PrivateKey,
        users: &NamedTempFile,
        [client_pkcs1, server_pkcs1]: [bool; 2],
    ) -> (Credentials, Authorizer) {
        let credentials = Credentials {
            username: "mario".to_owned(),
            password: "rossi,with comma".to_owned(),
            key: key.to_public_key(),
            pkcs1_padding: client_pkcs1,
        };
        let pem = file(&key.to_pkcs8_pem(LineEnding::LF).unwrap());
        let asked = AuthenticationSettings {
            private_key: path(&pem),
            users: path(users),
            pkcs1_padding: server_pkcs1,
            ..AuthenticationSettings::default()
        };
        (credentials, Authorizer::read(&asked).unwrap().unwrap())
    }

    #[test]
    fn who_is_known_is_let_in_and_nobody_else() {
        let key = key();
        let hash = password_hash("mario", "rossi,with comma");
        let users = file(&format!("# mario,{hash}\nluigi,00\n\nno comma\nmario,{hash}\n"));
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let later = |seconds: i64| Timestamp::from_second(1_700_000_000 + seconds).unwrap();
        for padding in [false, true] {
            let (credentials, authorizer) = pair(&key, &users, [padding, padding]);
            let token = credentials.token(now).unwrap();
            assert_eq!(authorizer.check(Some(&token), later(10)), Ok("mario".to_owned()));
            assert_eq!(authorizer.check(Some(&token), later(-10)), Ok("mario".to_owned()));
            assert_eq!(authorizer.check(Some(&token), later(11)), Err(Refusal::Skew(11, 10)));
            assert_eq!(authorizer.check(Some(&token), later(-11)), Err(Refusal::Skew(-11, 10)));
            assert_eq!(authorizer.check(None, now), Err(Refusal::NoToken));
            assert_eq!(authorizer.check(Some("not base64!"), now), Err(Refusal::Unreadable));
            assert_eq!(authorizer.check(Some(""), now), Err(Refusal::Unreadable));
            let others = Credentials { password: "rossi".to_owned(), ..credentials };
            let token = others.token(now).unwrap();
            assert_eq!(authorizer.check(Some(&token), now), Err(Refusal::Unknown("mario".to_owned())));
        }
        // With OAEP at one end and PKCS #1 v1.5 at the other nobody is let in.
        for paddings in [[true, false], [false, true]] {
            let (credentials, authorizer) = pair(&key, &users, paddings);
            let token = credentials.token(now).unwrap();
            assert_eq!(authorizer.check(Some(&token), now), Err(Refusal::Unreadable));
        }
    }

    #[test]
    fn keys_are_read_in_the_forms_that_openssl_writes() {
        let key = key();
        let users = file("");
        for pem in [key.to_pkcs8_pem(LineEnding::LF).unwrap(), key.to_pkcs1_pem(LineEnding::LF).unwrap()] {
            let pem = file(&pem);
            let asked = AuthenticationSettings { private_key: path(&pem), users: path(&users), ..Default::default() };
            assert!(Authorizer::read(&asked).unwrap().is_some());
        }
        let public = file(&key.to_public_key().to_public_key_pem(LineEnding::LF).unwrap());
        let asked = AuthenticationSettings { private_key: path(&public), users: path(&users), ..Default::default() };
        let error = Authorizer::read(&asked).unwrap_err();
        assert_eq!(error.code, Code::SERVER_AUTH);
        assert!(error.to_string().contains("has no private key"), "{error}");
        let asked = AuthenticationSettings { private_key: path(&public), ..Default::default() };
        assert_eq!(Authorizer::read(&asked).unwrap_err(), TestError::from(Code::SERVER_AUTH));
        let asked = AuthenticationSettings { username: Some("mario".to_owned()), ..Default::default() };
        assert_eq!(Credentials::read(&asked).unwrap_err(), TestError::from(Code::CLIENT_AUTH));
        assert!(Credentials::read(&Default::default()).unwrap().is_none());
        assert!(Authorizer::read(&Default::default()).unwrap().is_none());
    }

    #[test]
    fn the_hash_is_the_one_of_the_original() {
        // Of `echo -n "{mario}rossi" | sha256sum`, which its README has.
        assert_eq!(password_hash("mario", "rossi"), "bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b");
    }

    proptest! {
        #[test]
        fn texts_of_any_kind_are_read_or_refused(text in ".{0,80}") {
            if let Some((username, password, seconds)) = parts(&text) {
                let again = format!("user: {username}\npwd:  {password}\nts:   {seconds}");
                prop_assert_eq!(parts(&again), Some((username, password, seconds)));
            }
        }
    }
}
