//! Container engines, which know the processes of containers.

use std::io::{ErrorKind, Read};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Those that are asked, in turn. Both have the same words for it.
const ENGINES: [&str; 2] = ["docker", "podman"];
/// An engine that has not answered by then is left.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The first process of a running container.
pub(super) fn process_of(container: &str) -> Result<u32, String> {
    let mut there = false;
    for engine in ENGINES {
        match ask(engine, container) {
            Ok(Some(0)) => return Err(format!("container '{container}' does not run")),
            Ok(Some(process)) => return Ok(process),
            Ok(None) => there = true,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{engine} cannot be asked for container '{container}': {error}")),
        }
    }
    Err(match there {
        true => format!("there is no container '{container}'"),
        false => format!("container '{container}' cannot be looked up: there is neither docker nor podman"),
    })
}

fn ask(engine: &str, container: &str) -> std::io::Result<Option<u32>> {
    let mut child = Command::new(engine)
        .args(["inspect", "--type", "container", "--format", "{{.State.Pid}}", container])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill()?;
                child.wait()?;
                return Err(ErrorKind::TimedOut.into());
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut text)?;
    }
    Ok(text.trim().parse().ok().filter(|_| status.success()))
}
