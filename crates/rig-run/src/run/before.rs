//! Carrying out what is to be run inside nodes before a trial.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rig_cli::exit::StoppedByUser;
use rig_cli::visible::visible_line;
use rig_facts::record::PreTrialCommand;
use rig_load::driver::Cancel;
use rig_sys::piped::PipedProcess;
use rig_testbed::host::{Host, Program};

/// How often the wait for a command checks whether the user stopped the run.
const LOOK: Duration = Duration::from_millis(50);
/// How many of the last bytes of a command's output are kept: the end says what was wrong.
const KEPT: usize = 2000;

/// Runs commands one after the other, each in its node. Processes that they leave running end with them.
///
/// # Errors
/// When a command does not succeed, with its words. [`StoppedByUser`] when the user stopped it.
pub(super) fn carry_out(host: &dyn Host, commands: &[PreTrialCommand], cancel: &Cancel) -> Result<()> {
    for one in commands {
        carry_out_one(host, one, cancel).with_context(|| format!("the command before the trial in {}", one.node))?;
    }
    Ok(())
}

fn carry_out_one(host: &dyn Host, PreTrialCommand { node, command }: &PreTrialCommand, cancel: &Cancel) -> Result<()> {
    let PipedProcess { stdin, stdout, stderr, mut life } = host.start(node, &Program::netrig(&["inside", command]))?;
    drop(stdin);
    let [said, wrong] = [stdout, stderr].map(|pipe| heard(File::from(pipe)));
    let said = loop {
        match said.recv_timeout(LOOK) {
            Ok(said) => break said,
            Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                life.kill().and_then(|()| life.wait()).context("stop it")?;
                return Err(StoppedByUser.into());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break String::new(),
        }
    };
    let status = life.wait().context("wait for it")?;
    if status.success() {
        return Ok(());
    }
    let wrong = wrong.recv().unwrap_or_default();
    let why = match in_a_line(wrong.trim_start_matches("netrig: ")) {
        why if why.is_empty() => format!("`{command}` ended with {status}"),
        why => why,
    };
    Err(match in_a_line(&said) {
        said if said.is_empty() => anyhow!(why),
        said => anyhow!("{why}: {said}"),
    })
}

fn in_a_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    visible_line(&lines.collect::<Vec<_>>().join("; ")).into_owned()
}

/// The last of what comes by a pipe, once its other end is closed.
fn heard(mut pipe: File) -> Receiver<String> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match pipe.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(length) => kept.extend_from_slice(&buffer[..length]),
            }
            kept.drain(..kept.len().saturating_sub(KEPT));
        }
        // The runner has dropped the receiver when the command succeeded.
        let _ = tell.send(String::from_utf8_lossy(&kept).into_owned());
    });
    told
}
