//! A dockerd of a node's own.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rig_engine::{Engine, EngineError};
use rig_sys::identity::ProcessIdentity;
use rig_sys::mounts::{enter_with_own, show_own_processes};

use super::DockerSettings;
use super::owner::{CGROUPS, cgroup};
use crate::node::spawn;

/// Where an engine keeps what is not to be the machine's.
const OWN: [&str; 10] = [
    "/run",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/opt/containerd",
    "/etc/docker",
    "/etc/containerd",
    "/var/log",
    "/tmp",
    "/var/tmp",
    "/dev/shm",
];
pub(super) const SOCKET: &str = "/run/docker.sock";
const LOG: &str = "/var/log/dockerd.log";
/// Where root's programs are, which not every root has on its path.
const FOLDERS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Longest time until it answers: a second on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// An engine that ends with the value.
#[derive(Debug)]
pub(super) struct Daemon(Child);

impl Daemon {
    /// Starts one in the calling process's network namespace, whose files and processes are this process's own from now on.
    ///
    /// # Errors
    /// When it does not start, with what it said last.
    pub(super) fn start(own: &DockerSettings, owner: &ProcessIdentity) -> Result<(Self, Engine)> {
        enter_with_own(&OWN.map(Path::new), &[Path::new(CGROUPS)])?;
        show_own_processes()?;
        let log = File::create(LOG).context("make a log for dockerd")?;
        let mut command = Command::new("dockerd");
        command
            .args(["--host", &format!("unix://{SOCKET}"), "--exec-opt", "native.cgroupdriver=cgroupfs"])
            .args(["--cgroup-parent", &cgroup(owner), "--pidfile", "/run/docker.pid"])
            .arg(format!("--userland-proxy={}", own.userland_proxy.unwrap_or(true)))
            .env("PATH", std::env::var("PATH").map_or(FOLDERS.to_owned(), |path| format!("{path}:{FOLDERS}")))
            // Settings for clients of the machine's engine are nothing to it.
            .env_remove("DOCKER_HOST")
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share a log")?)
            .stderr(log);
        let mut daemon = Self(spawn(&mut command).context("start dockerd (apt-get install docker.io)")?);
        let engine = daemon.answers()?;
        Ok((daemon, engine))
    }

    fn answers(&mut self) -> Result<Engine> {
        let began = Instant::now();
        loop {
            let absent = match Engine::at(Path::new(SOCKET)) {
                Ok(engine) => return Ok(engine),
                Err(error @ EngineError::Absent { .. }) => error,
                Err(error) => return Err(error).context("ask dockerd"),
            };
            if let Some(status) = self.0.try_wait().context("wait for dockerd")? {
                bail!("dockerd ended with {status}: {}", last_words());
            }
            if began.elapsed() > START_LIMIT {
                return Err(absent).context(format!("wait for dockerd, which says: {}", last_words()));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The last that is no mere notice in its log.
fn last_words() -> String {
    let log = fs::read_to_string(LOG).unwrap_or_default();
    let told: Vec<&str> = log.lines().filter(|line| !line.contains("level=info")).collect();
    told[told.len().saturating_sub(3)..].join("; ")
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // What it has started ends with this process's namespace of processes.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
