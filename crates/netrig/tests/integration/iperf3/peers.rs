//! Clients and servers of a test.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::ntttcp::process::{Process, ProcessOutput, free_base, until_listening};

/// Who is an end.
#[derive(Debug, Clone)]
pub enum Peer {
    Netrig,
    Original(PathBuf),
}

impl Peer {
    pub fn command(&self) -> Command {
        match self {
            Self::Netrig => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
                command.arg("iperf3");
                command
            }
            Self::Original(path) => Command::new(path),
        }
    }
}

/// The original, if it is on PATH.
pub fn original() -> Option<Peer> {
    let paths = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&paths).map(|dir| dir.join("iperf3")).find(|path| path.is_file());
    let told = found.as_ref().and_then(|path| Command::new(path).arg("--version").output().ok());
    match told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()) {
        Some(text) if text.starts_with("iperf 3.") && !text.contains("netrig") => found.map(Peer::Original),
        _ => {
            rig_skip::skip(rig_skip::Lack::Program("iperf3"), "no iperf3 on PATH");
            None
        }
    }
}

/// A server that is up.
pub struct Server {
    pub process: Process,
    pub port: u16,
}

pub fn serve(peer: &Peer, options: &str, home: &Path) -> Server {
    let port = free_base(1);
    let process = Process::start(&mut peer.command(), &format!("-s -p {port} {options}"), home);
    until_listening(port);
    Server { process, port }
}

pub fn client(peer: &Peer, port: u16, options: &str, home: &Path) -> Process {
    Process::start(&mut peer.command(), &format!("-c 127.0.0.1 -p {port} {options}"), home)
}

/// One test: what the client and what the server said.
#[track_caller]
pub fn pair(server: &Peer, server_options: &str, of_client: &Peer, options: &str) -> (ProcessOutput, ProcessOutput) {
    let home = tempfile::tempdir().unwrap();
    let Server { process, port } = serve(server, &format!("-1 {server_options}"), home.path());
    let client = client(of_client, port, options, home.path()).end();
    (client, process.end())
}

/// The client's JSON of a test that succeeds.
#[track_caller]
pub fn json(server: &Peer, client: &Peer, options: &str) -> Value {
    let (client, server) = pair(server, "", client, &format!("{options} -J"));
    assert_eq!(client.status, Some(0), "{options}: {client:#?}\n{server:#?}");
    serde_json::from_str(&client.out).unwrap_or_else(|error| panic!("{options}: {error}: {client:#?}"))
}
