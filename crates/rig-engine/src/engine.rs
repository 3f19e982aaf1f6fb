//! An engine at its socket, and what it has of a caller's.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::http::{self, connect, escaped, exchange, request_head};
use crate::{EngineError, Result};

/// The version of the API that is spoken where an engine has it: that of Docker 20.10.
const VERSION: (u32, u32) = (1, 41);

/// Longest time until a container that ends is in nothing's way.
const REMOVAL_LIMIT: Duration = Duration::from_secs(5);

/// By which an engine's things are found again.
pub type Labels = BTreeMap<String, String>;

/// An engine that answers.
#[derive(Debug, Clone)]
pub struct Engine {
    socket: PathBuf,
    version: Version,
    /// Of all paths, e.g. `/v1.41`.
    prefix: String,
}

/// What an engine is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Version {
    /// Its own, e.g. `20.10.24`.
    pub version: String,
    pub api_version: String,
    /// The oldest version of the API that it speaks.
    #[serde(rename = "MinAPIVersion", default)]
    pub oldest_api: Option<String>,
    /// As Go calls it, e.g. `amd64`.
    #[serde(default)]
    pub arch: String,
    #[serde(default)]
    components: Vec<Component>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Component {
    name: String,
}

impl Version {
    /// E.g. `Docker 20.10.24`.
    pub fn words(&self) -> String {
        let is_podman = self.components.iter().any(|component| component.name.starts_with("Podman"));
        format!("{} {}", if is_podman { "Podman" } else { "Docker" }, self.version)
    }

    /// What is spoken with it.
    fn spoken(&self) -> String {
        let number = |text: &str| {
            let (major, minor) = text.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        };
        let newest = number(&self.api_version).unwrap_or(VERSION);
        let oldest = self.oldest_api.as_deref().and_then(number).unwrap_or(VERSION);
        let (major, minor) = VERSION.min(newest).max(oldest);
        format!("/v{major}.{minor}")
    }
}

impl Engine {
    /// Asks what engine answers at a socket.
    ///
    /// # Errors
    /// When there is none, this user may not ask it, or what answers is none.
    pub fn at(socket: &Path) -> Result<Self> {
        let what = "ask for its version";
        let body = send(socket, what, "GET", "/version", None)?;
        let version: Version = understood(what, &body)?;
        Ok(Self { socket: socket.to_owned(), prefix: version.spoken(), version })
    }

    pub fn version(&self) -> &Version {
        &self.version
    }

    /// What it answers to a request. `what` says in words what is asked for.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        what: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T> {
        let answer = self.tell(what, method, path, body)?;
        understood(what, &answer)
    }

    pub(crate) fn tell(&self, what: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Vec<u8>> {
        send(&self.socket, what, method, &format!("{}{path}", self.prefix), body)
    }

    /// Sends a body that is no JSON, of `length` bytes.
    pub(crate) fn upload<T: DeserializeOwned>(
        &self,
        what: &str,
        path: &str,
        length: u64,
        body: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<T> {
        let head = request_head("POST", &format!("{}{path}", self.prefix), "application/x-tar", length);
        let mut stream = connect(&self.socket)?;
        let exchanged = exchange(&mut stream, &head, |stream| body(stream));
        understood(what, &checked(what, exchanged)?)
    }

    /// A connection that is a stream from now on, and what of it came with the answer.
    pub(crate) fn upgrade(
        &self,
        what: &str,
        path: &str,
        body: &Value,
    ) -> Result<(std::os::unix::net::UnixStream, Vec<u8>)> {
        let lost = |why| EngineError::Lost { what: what.to_owned(), why };
        let mut stream = connect(&self.socket)?;
        let request = http::upgrade_request(&format!("{}{path}", self.prefix), &body.to_string());
        stream.write_all(request.as_bytes()).map_err(lost)?;
        let (head, rest) = http::read_head(&mut stream).map_err(lost)?;
        // Docker upgrades; older engines, and Podman's, answer 200 and do the same.
        if !matches!(head.status, 101 | 200) {
            // The connection stays open: what more there is of the reason comes at once.
            let mut body = rest;
            let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
            let _ = stream.take(1 << 16).read_to_end(&mut body);
            return Err(refused(what, head.status, &body));
        }
        stream.set_read_timeout(None).and_then(|()| stream.set_write_timeout(None)).map_err(lost)?;
        Ok((stream, rest))
    }

    /// The ids of the containers, running or not, that have a label, with its value.
    ///
    /// # Errors
    /// When the engine does not tell.
    pub fn containers_with(&self, label: &str) -> Result<Vec<(String, String)>> {
        self.with_label("list containers", "/containers/json?all=true&", label)
    }

    /// The same of networks.
    ///
    /// # Errors
    /// When the engine does not tell.
    pub fn networks_with(&self, label: &str) -> Result<Vec<(String, String)>> {
        self.with_label("list networks", "/networks?", label)
    }

    /// The same of images.
    ///
    /// # Errors
    /// When the engine does not tell.
    pub fn images_with(&self, label: &str) -> Result<Vec<(String, String)>> {
        self.with_label("list images", "/images/json?", label)
    }

    fn with_label(&self, what: &str, path: &str, label: &str) -> Result<Vec<(String, String)>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Labelled {
            id: String,
            #[serde(default)]
            labels: Option<Labels>,
        }
        let filters = json!({ "label": [label] }).to_string();
        let all: Vec<Labelled> = self.ask(what, "GET", &format!("{path}filters={}", escaped(&filters)), None)?;
        let value = |one: Labelled| Some((one.id, one.labels?.remove(label)?));
        Ok(all.into_iter().filter_map(value).collect())
    }

    /// Removes a container, with what runs in it. One that is not there is no error.
    ///
    /// # Errors
    /// What the engine refuses.
    pub fn remove_container(&self, id: &str) -> Result<()> {
        self.remove("container", id, &format!("/containers/{}?force=true&v=true", escaped(id)))
    }

    /// Removes a network. One that is not there is no error.
    ///
    /// # Errors
    /// What the engine refuses, as of a network with containers.
    pub fn remove_network(&self, id: &str) -> Result<()> {
        self.remove("network", id, &format!("/networks/{}", escaped(id)))
    }

    /// Removes an image. One that is not there is no error.
    ///
    /// # Errors
    /// What the engine refuses, as of an image that a container has.
    pub fn remove_image(&self, id: &str) -> Result<()> {
        self.remove("image", id, &format!("/images/{}?force=true", escaped(id)))
    }

    fn remove(&self, kind: &str, id: &str, path: &str) -> Result<()> {
        let what = format!("remove {kind} {id}");
        let began = Instant::now();
        loop {
            match self.tell(&what, "DELETE", path, None) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_absent() => return Ok(()),
                // A container ends by itself at this moment: it, or what it has, is in use until the engine has removed it.
                Err(EngineError::Refused { status: 403 | 409 | 500, .. }) if began.elapsed() < REMOVAL_LIMIT => {
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn send(socket: &Path, what: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Vec<u8>> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = request_head(method, path, "application/json", body.len() as u64);
    let mut stream = connect(socket)?;
    checked(what, exchange(&mut stream, &head, |stream| stream.write_all(body.as_bytes())))
}

fn checked(what: &str, exchanged: std::io::Result<(u16, Vec<u8>)>) -> Result<Vec<u8>> {
    match exchanged {
        Ok((200..=299, body)) => Ok(body),
        Ok((status, body)) => Err(refused(what, status, &body)),
        Err(why) if why.kind() == std::io::ErrorKind::InvalidData => {
            Err(EngineError::Garbled { what: what.to_owned(), why: why.to_string() })
        }
        Err(why) => Err(EngineError::Lost { what: what.to_owned(), why }),
    }
}

/// An answer that is no success: `{"message": "..."}`.
fn refused(what: &str, status: u16, body: &[u8]) -> EngineError {
    // A chunked body has lengths around it.
    let begin = body.iter().position(|byte| *byte == b'{').unwrap_or(0);
    let end = body.iter().rposition(|byte| *byte == b'}').map_or(body.len(), |end| end + 1);
    let object: Option<Value> = body.get(begin..end).and_then(|object| serde_json::from_slice(object).ok());
    let message = object.and_then(|object| Some(object.get("message")?.as_str()?.to_owned()));
    let why = message.unwrap_or_else(|| String::from_utf8_lossy(&body[..body.len().min(200)]).trim().to_owned());
    EngineError::Refused { what: what.to_owned(), status, why }
}

fn understood<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|why| EngineError::Garbled { what: what.to_owned(), why: why.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(api: &str, oldest: Option<&str>) -> Version {
        let value = json!({ "Version": "1", "ApiVersion": api, "MinAPIVersion": oldest, "Arch": "amd64" });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_engine_is_spoken_to_in_a_version_that_it_has() {
        assert_eq!(version("1.41", Some("1.12")).spoken(), "/v1.41");
        assert_eq!(version("1.40", Some("1.12")).spoken(), "/v1.40");
        // Docker 29 no longer has those before 1.44.
        assert_eq!(version("1.52", Some("1.44")).spoken(), "/v1.44");
        assert_eq!(version("1.41", None).spoken(), "/v1.41");
        assert_eq!(version("?", None).spoken(), "/v1.41");
    }

    #[test]
    fn refusals_have_the_engines_words() {
        let error = refused("make network x", 403, br#"{"message":"network with name x already exists"}"#);
        assert_eq!(
            error.to_string(),
            "the container engine refuses to make network x: network with name x already exists (HTTP status 403)"
        );
        assert!(refused("a", 404, b"page not found\n").is_absent());
        let chunked = b"1b\r\n{\"message\":\"no such exec\"}\r\n0\r\n\r\n";
        assert!(refused("a", 409, chunked).to_string().contains("refuses to a: no such exec (HTTP"));
    }

    #[test]
    fn an_engine_of_another_architecture_gets_no_image() {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
        let engine = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let _request = stream.read(&mut [0; 4096]).unwrap();
                let body = r#"{"Version":"1","ApiVersion":"1.41","Arch":"s390x"}"#;
                write!(stream, "HTTP/1.0 200 OK\r\n\r\n{body}").unwrap();
            });
            Engine::at(&folder.path().join("s")).unwrap()
        });
        // It is not asked any more.
        drop(listener);
        let refused = engine.import(&crate::OwnImage::new().unwrap(), "x", &Labels::new()).unwrap_err().to_string();
        assert!(refused.contains("it runs s390x, and this program is of "), "{refused}");
    }

    #[test]
    fn what_is_no_engine_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        assert!(matches!(Engine::at(&socket).unwrap_err(), EngineError::Absent { .. }));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let says = |text: &'static str| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let _request = std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap();
                    let _ = stream.write_all(text.as_bytes());
                });
                Engine::at(&socket).unwrap_err()
            })
        };
        assert!(matches!(says("SSH-2.0\r\n\r\n"), EngineError::Garbled { .. }));
        assert!(matches!(says("HTTP/1.0 200 OK\r\n\r\n<html>"), EngineError::Garbled { .. }));
        assert!(matches!(says(""), EngineError::Lost { .. }));
        assert!(matches!(says("HTTP/1.0 404 Not Found\r\n\r\nno"), EngineError::Refused { status: 404, .. }));
    }
}
