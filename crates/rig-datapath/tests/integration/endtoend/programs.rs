//! Programs that are started in a namespace and end with the test.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rig_skip::{Lack, skip};
use rig_sys::netns::NetNs;
use rig_sys::process;
use tempfile::TempDir;

use super::lab::{Random, until};

/// Whether `program` is here; says aloud when it is not.
pub fn has(program: &'static str, ask: &str, package: &str) -> bool {
    let there = Command::new(program).arg(ask).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !there {
        skip(Lack::Program(program), format_args!("Debian: apt-get install {package}"));
    }
    there
}

/// Debian has it where users do not look for programs.
const NGINX: [&str; 2] = ["nginx", "/usr/sbin/nginx"];

pub fn has_web() -> bool {
    let nginx = NGINX
        .iter()
        .any(|program| Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok());
    if !nginx {
        skip(Lack::Program("nginx"), "Debian: apt-get install nginx-light");
    }
    nginx && has("curl", "--version", "curl") && has("wrk", "-v", "wrk")
}

/// The one that is here.
pub fn nginx() -> &'static str {
    NGINX.into_iter().find(|program| Command::new(program).arg("-v").output().is_ok()).unwrap()
}

/// The files that every server has.
pub struct Pages {
    directory: TempDir,
    pub names: [&'static str; 3],
}

impl Pages {
    pub fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let names = ["byte", "kilobyte", "large"];
        let mut random = Random::new(1);
        for (name, length) in names.into_iter().zip([1, 1000, 10_000_003]) {
            fs::write(directory.path().join(name), random.bytes(length)).unwrap();
        }
        Self { directory, names }
    }

    pub fn content(&self, name: &str) -> Vec<u8> {
        fs::read(self.directory.path().join(name)).unwrap()
    }
}

/// nginx in a namespace until it is dropped, on ports 80 and 8080 of all addresses.
pub struct Nginx {
    child: Child,
    _files: TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines of a configuration of nginx that keep what it writes in a folder.
pub fn temporary_paths(folder: &str) -> String {
    let of = |name| format!("{name}_temp_path {folder}/{name};\n");
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(of).concat()
}

impl Nginx {
    /// Its answers have its name in the header `X-Backend`.
    pub fn start(ns: &NetNs, name: &str, pages: &Pages) -> Self {
        let files = TempDir::new().unwrap();
        let folder = files.path().display().to_string();
        let temporary = temporary_paths(&folder);
        let config = format!(
            "user root; daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/log;
            events {{ worker_connections 4096; }}
            http {{
                access_log off; {temporary}
                server {{
                    listen 80 backlog=4096; listen [::]:80 backlog=4096;
                    listen 8080 backlog=4096; listen [::]:8080 backlog=4096;
                    root {root};
                    add_header X-Backend {name};
                }}
            }}",
            root = pages.directory.path().display()
        );
        fs::write(files.path().join("nginx.conf"), config).unwrap();
        let mut command = Command::new(nginx());
        command.args(["-p", &folder, "-c", "nginx.conf", "-e", "stderr"]).stdin(Stdio::null()).stderr(Stdio::inherit());
        process::in_namespace(&mut command, ns);
        let child = process::die_with_parent(&mut command).spawn().unwrap();
        let nginx = Self { child, _files: files };
        let here: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        until("nginx", || ns.run(|| TcpStream::connect(here).is_ok()).unwrap());
        nginx
    }
}

/// Runs a program in a namespace to its end.
pub fn run(ns: &NetNs, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    process::in_namespace(&mut command, ns);
    process::die_with_parent(&mut command).output().unwrap()
}

#[track_caller]
pub fn run_well(ns: &NetNs, program: &str, arguments: &[&str]) -> String {
    let output = run(ns, program, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {} {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A page, and the name of the server that it came from.
#[track_caller]
pub fn fetch(ns: &NetNs, url: &str, directory: &Path) -> (Vec<u8>, String) {
    let (body, headers) = (directory.join("body"), directory.join("headers"));
    let paths = [&headers, &body].map(|path| path.display().to_string());
    let arguments = ["-g", "-sS", "--fail", "--max-time", "60", "-D", &paths[0], "-o", &paths[1], url];
    run_well(ns, "curl", &arguments);
    let headers = fs::read_to_string(headers).unwrap();
    let backend = headers.lines().find_map(|line| line.strip_prefix("X-Backend: ")).unwrap_or_default();
    (fs::read(body).unwrap(), backend.trim().to_owned())
}
