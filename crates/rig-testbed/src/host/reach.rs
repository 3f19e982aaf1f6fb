//! Hosts that a command line reaches: `ssh`, `docker exec -i` and any other that gives two streams of bytes. netrig is copied there once, by its
//! hash, and is what the command line runs from then on.
//!
//! ```text
//! runner                         ssh web1 'exec /bin/sh -c ...'   |   docker exec -i web1 /bin/sh -c ...
//!                     <--------- netrig-copy need x86_64          where a program of this hash is not there yet
//! the program  --------------->
//!                     <--------- netrig-copy ready
//!                                exec sudo -n ~/.cache/netrig/programs/HASH host
//! Greeting  ------------------>
//!                     <--------- Greeting                         from here on host/protocol.rs
//! ```
//! What login shells print before is passed over.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rig_cli::visible::visible_line;
use rig_lines::{Error, Greeting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::process_client::silence;

/// Longest time for a host to say something before it greets: to log in, to find the program, to become root.
const PATIENCE: Duration = Duration::from_secs(15);
/// Longest time in which nothing of the program is taken while it is copied.
const COPYING_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that a host may print before it greets.
const MOST_NOISE: usize = 64 << 10;
/// What a line begins with that the script on the host prints.
const MARK: &str = "netrig-copy ";
/// What a line begins with that may be a greeting.
const GREETING: &[u8] = br#"{"protocol":"#;
/// Of ssh(1): it asks for nothing, and gives a connection up that is silent for 15 s.
const SSH: [&str; 10] = [
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
    "--",
];

/// How a host is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAccess {
    /// For records and messages.
    pub name: String,
    /// A command line without what it shall run there.
    pub command: Vec<String>,
    pub takes: CommandForm,
    /// netrig on the host; without one the program of this process is copied there.
    pub program: Option<String>,
    /// What is copied instead, for a host of another architecture.
    pub binary: Option<PathBuf>,
    /// In front of the program: `sudo -n`.
    pub run_as: Vec<String>,
    /// What users tell it apart by, for records.
    pub labels: BTreeMap<String, String>,
}

/// How a command line takes what it shall run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandForm {
    /// As a line for the user's login shell there, as ssh(1).
    ShellLine,
    /// As a program and its arguments, as `docker exec`.
    Words,
}

impl HostAccess {
    /// A destination of ssh(1), with the user's configuration: a host of it, `user@host`, or `ssh://user@host:port`; options may stand before it.
    pub fn ssh(name: &str, words: &[String]) -> Self {
        let (options, destination) = words.split_at(words.len().saturating_sub(1));
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let command = [words(&["ssh"]), options.to_vec(), words(&SSH), destination.to_vec()].concat();
        Self { takes: CommandForm::ShellLine, ..Self::command(name, command) }
    }

    /// A command line that runs there what more words say.
    pub fn command(name: &str, command: Vec<String>) -> Self {
        let takes = CommandForm::Words;
        Self {
            name: name.to_owned(),
            command,
            takes,
            program: None,
            binary: None,
            run_as: Vec::new(),
            labels: BTreeMap::new(),
        }
    }

    /// What is to be started here, for a program of `copied` that is copied unless it is there.
    pub(super) fn to_start(&self, copied: Option<&Binary>) -> Result<Command> {
        let Some((first, rest)) = self.command.split_first() else { bail!("host {}: its command is empty", self.name) };
        let mut command = Command::new(first);
        command.args(rest);
        let run_as = self.run_as.iter().map(String::as_str);
        match (copied, &self.program, self.takes) {
            (Some(binary), _, form) => {
                let script = script(binary, &shell_line(run_as)?);
                match form {
                    CommandForm::ShellLine => command.arg(format!("exec /bin/sh -c '{script}'")),
                    CommandForm::Words => command.args(["/bin/sh", "-c", &script]),
                };
            }
            (None, program, form) => {
                let program = program.as_deref().unwrap_or("netrig");
                let words = run_as.chain([program, "host"]);
                match form {
                    CommandForm::ShellLine => command.arg(format!("exec {}", shell_line(words)?)),
                    CommandForm::Words => command.args(words),
                };
            }
        }
        Ok(command)
    }

    /// Why it is not reached, of what is said about the process that would have been it; with what may be done, and what a user can try.
    pub(super) fn not_reached(&self, said: &str) -> String {
        let Self { name, command, .. } = self;
        let said = said.strip_prefix(&format!("host {name}")).map_or(said, |rest| rest.trim_start_matches([':', ' ']));
        // What ended is the command line, and not the host.
        let ended = said.strip_prefix("died ").zip(command.first());
        let said = ended.map_or_else(|| said.to_owned(), |(how, program)| format!("{program} ended {how}"));
        let hint = HINTS.iter().find(|(words, _)| said.contains(words)).map(|(_, hint)| format!(": {hint}"));
        format!("host {name} is not reached: {said}{}; by hand: {} true", hint.unwrap_or_default(), command.join(" "))
    }
}

/// What ssh(1), sudo(8) and shells say, and what to do about it.
const HINTS: [(&str, &str); 6] = [
    ("Permission denied (", "nobody is asked for a password: have a key, or an agent, log in there (ssh-copy-id)"),
    ("Host key verification failed", "log in once by hand, and look at its key"),
    ("Could not resolve hostname", "hosts.toml, ssh's configuration and DNS do not have that name"),
    ("sudo: a password is required", "a line of sudoers allows it without: USER ALL=(root) NOPASSWD: ALL"),
    ("sudo: not found", "without `become` netrig is what the user is who logs in"),
    (
        "cannot keep the program there",
        "XDG_CACHE_HOME, or HOME, is where it would be; `program` in hosts.toml names one that is there",
    ),
];

/// Words for any shell. Those that would need quotes are refused, for shells quote differently.
fn shell_line<'a>(words: impl Iterator<Item = &'a str>) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./=:@%+-,".contains(c);
    let words: Vec<&str> = words.collect();
    match words.iter().find(|word| word.is_empty() || !word.chars().all(plain)) {
        Some(word) => bail!(
            "'{word}' has characters that shells read in different ways: letters, digits and _./=:@%+-, are taken"
        ),
        None => Ok(words.join(" ")),
    }
}

/// For /bin/sh, in one line without single quotes or exclamation marks, which users' own shells would read in the line that it is put into.
fn script(binary: &Binary, run_as: &str) -> String {
    let Binary { bytes, hash, .. } = binary;
    let (length, mark) = (bytes.len(), MARK.trim_end());
    format!(
        "d=${{XDG_CACHE_HOME:-$HOME/.cache}}/netrig/programs; p=$d/{hash}; test -x \"$p\" || {{ umask 077; mkdir -p \"$d\" && echo && \
         echo {mark} need $(uname -m) && head -c {length} >\"$p.$$\" && \
         test \"$(sha256sum <\"$p.$$\" | cut -d \" \" -f 1)\" = {hash} && chmod 700 \"$p.$$\" && mv -f \"$p.$$\" \"$p\" || \
         {{ s=$?; rm -f \"$p.$$\"; echo; echo {mark} failed; exit $s; }}; \
         find \"$d\" -type f -mtime +30 -exec rm -f {{}} + 2>/dev/null; }}; touch \"$p\" 2>/dev/null; \
         echo; echo {mark} ready; exec {run_as} \"$p\" host"
    )
}

/// A program that can be copied.
pub(super) struct Binary {
    bytes: Vec<u8>,
    /// SHA-256, in hexadecimal digits.
    hash: String,
    /// As `uname -m` calls what it is for; `None` where that has no name here.
    machine: Option<&'static str>,
}

/// Those that are being copied: to many hosts at a time, one is read once.
static BINARIES: Mutex<BTreeMap<PathBuf, Weak<Binary>>> = Mutex::new(BTreeMap::new());

impl Binary {
    pub(super) fn shared(path: &Path) -> Result<Arc<Self>> {
        let mut all = BINARIES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(path).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let binary = Arc::new(Self::read(path)?);
        all.insert(path.to_owned(), Arc::downgrade(&binary));
        Ok(binary)
    }

    fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let hash = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let machine = machine_of(&bytes).with_context(|| format!("{} is no program of Linux (ELF)", path.display()))?;
        Ok(Self { bytes, hash, machine })
    }

    /// Whether it is for the machine that calls itself so.
    fn is_for(&self, machine: &str) -> bool {
        self.machine.is_none_or(|own| own == machine || (own == "arm" && machine.starts_with("arm")))
    }
}

impl fmt::Debug for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binary").field("hash", &self.hash).field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// By e_machine of elf(5), whose bytes are in the order that EI_DATA says.
fn machine_of(bytes: &[u8]) -> Option<Option<&'static str>> {
    const BIG_ENDIAN: u8 = 2;
    let header = bytes.get(..20).filter(|header| header.starts_with(b"\x7fELF"))?;
    let machine = [header[18], header[19]];
    let is_big = header[5] == BIG_ENDIAN;
    Some(match if is_big { u16::from_be_bytes(machine) } else { u16::from_le_bytes(machine) } {
        3 => Some("i686"),
        21 if is_big => Some("ppc64"),
        21 => Some("ppc64le"),
        22 => Some("s390x"),
        40 => Some("arm"),
        62 => Some("x86_64"),
        183 => Some("aarch64"),
        243 => Some("riscv64"),
        258 => Some("loongarch64"),
        _ => None,
    })
}

/// Both streams of a host that has not greeted yet.
pub(super) struct Opening<'a> {
    stdin: &'a mut ChildStdin,
    stdout: &'a ChildStdout,
    /// What was read behind the last line.
    heard: Vec<u8>,
    /// What was passed over.
    noise: Vec<u8>,
    /// It is given up once there is something to be read from this.
    stop: Option<BorrowedFd<'a>>,
}

impl<'a> Opening<'a> {
    pub(super) fn new(stdin: &'a mut ChildStdin, stdout: &'a ChildStdout, stop: Option<BorrowedFd<'a>>) -> Self {
        Self { stdin, stdout, heard: Vec::new(), noise: Vec::new(), stop }
    }

    /// Copies what is to be copied and is not there, and returns what was read from the greeting on.
    ///
    /// # Errors
    /// When it does not come to a greeting, with what came instead.
    pub(super) fn until_greeting(mut self, copied: Option<&Binary>) -> Result<Vec<u8>, Error> {
        loop {
            let line = self.line()?;
            if line.starts_with(GREETING) && serde_json::from_slice::<Greeting>(&line).is_ok() {
                return Ok([&line[..], b"\n", &self.heard].concat());
            }
            let word = std::str::from_utf8(&line).ok().and_then(|line| line.trim_end().strip_prefix(MARK));
            match (word.map(|word| word.split_once(' ').unwrap_or((word, ""))), copied) {
                (Some(("need", machine)), Some(binary)) if binary.is_for(machine) => self.copy(&binary.bytes)?,
                (Some(("need", machine)), Some(binary)) => {
                    return Err(io::Error::new(io::ErrorKind::Unsupported, format!(
                        "is a machine of {machine}, and the program is for {}: name one for it: `binary = \"FILE\"` in hosts.toml, --pod-binary FILE for pods",
                        binary.machine.unwrap_or("another")
                    ))
                    .into());
                }
                (Some(("ready", _)), _) => {}
                (Some(("failed", _)), _) => {
                    return Err(io::Error::other("cannot keep the program there").into());
                }
                _ => self.pass_over(&line)?,
            }
        }
    }

    fn pass_over(&mut self, line: &[u8]) -> Result<(), Error> {
        self.noise.extend_from_slice(line);
        self.noise.push(b'\n');
        if self.noise.len() > MOST_NOISE {
            return Err(Error::NoGreeting { start: self.noise_begins() });
        }
        Ok(())
    }

    /// For a message.
    fn noise_begins(&self) -> String {
        const SHOWN: usize = 200;
        let text = String::from_utf8_lossy(&self.noise[..self.noise.len().min(SHOWN)]).into_owned();
        visible_line(text.trim()).to_string()
    }

    /// Without its end.
    fn line(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let rest = self.heard.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.heard, rest);
                line.pop();
                return Ok(line);
            }
            if self.heard.len() > MOST_NOISE {
                let begin = std::mem::take(&mut self.heard);
                self.pass_over(&begin)?;
            }
            if !is_ready(self.stdout, PollFlags::IN, PATIENCE, self.stop)? {
                return Err(match self.noise.trim_ascii().is_empty() {
                    true => silence(PATIENCE).into(),
                    false => Error::NoGreeting { start: self.noise_begins() },
                });
            }
            let mut chunk = [0; 4096];
            match rustix::io::read(self.stdout, &mut chunk) {
                Ok(0) => {
                    self.noise.append(&mut self.heard);
                    return Err(match self.noise.trim_ascii().is_empty() {
                        true => Error::Ended,
                        false => Error::NoGreeting { start: self.noise_begins() },
                    });
                }
                Ok(count) => self.heard.extend_from_slice(&chunk[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }

    fn copy(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let flags = fcntl_getfl(&*self.stdin).map_err(io::Error::from)?;
        fcntl_setfl(&*self.stdin, flags | OFlags::NONBLOCK).map_err(io::Error::from)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stdin.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !is_ready(&*self.stdin, PollFlags::OUT, COPYING_PATIENCE, self.stop)? {
                        return Err(silence(COPYING_PATIENCE).into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        fcntl_setfl(&*self.stdin, flags).map_err(io::Error::from)?;
        Ok(())
    }
}

/// Whether it is before so long, unless it is to stop.
fn is_ready(stream: impl AsFd, flags: PollFlags, patience: Duration, stop: Option<BorrowedFd<'_>>) -> io::Result<bool> {
    let limit = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
    let stop = stop.as_ref().map(|stop| PollFd::new(stop, PollFlags::IN));
    let mut waited: Vec<PollFd<'_>> = stop.into_iter().chain([PollFd::new(&stream, flags)]).collect();
    loop {
        match poll(&mut waited, Some(&limit)) {
            Err(Errno::INTR) => {}
            Ok(_) if waited.len() > 1 && !waited[0].revents().is_empty() => {
                return Err(io::Error::other("was given up before it had greeted"));
            }
            Ok(ready) => return Ok(ready > 0),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    fn line(access: &HostAccess, copied: Option<&Binary>) -> Vec<String> {
        let command = access.to_start(copied).unwrap();
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        all.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn ssh_hands_a_line_to_a_shell_and_others_take_words() {
        let mut ssh = HostAccess::ssh("web1", &words(&["-p", "2222", "me@web1"]));
        ssh.program = Some("/opt/netrig".to_owned());
        ssh.run_as = words(&["sudo", "-n"]);
        let line_of_ssh = line(&ssh, None);
        assert_eq!(line_of_ssh[..3], ["ssh", "-p", "2222"]);
        assert_eq!(line_of_ssh[line_of_ssh.len() - 3..], ["--", "me@web1", "exec sudo -n /opt/netrig host"]);
        let docker = HostAccess::command("box", words(&["docker", "exec", "-i", "box"]));
        assert_eq!(line(&docker, None), ["docker", "exec", "-i", "box", "netrig", "host"]);
        ssh.program = Some("/opt/net rig".to_owned());
        assert!(ssh.to_start(None).unwrap_err().to_string().contains("net rig"));
        assert!(HostAccess::command("none", Vec::new()).to_start(None).is_err());
    }

    #[test]
    fn who_does_not_reach_a_host_is_told_why_and_what_to_do() {
        let ssh = HostAccess::ssh("web1", &words(&["me@web1"]));
        let said = "host web1 died (exit status: 255): ssh: Could not resolve hostname web1: Name or service not known";
        let told = ssh.not_reached(said);
        assert!(
            told.starts_with(
                "host web1 is not reached: ssh ended (exit status: 255): ssh: Could not resolve hostname web1: Name or \
                 service not known: hosts.toml, ssh's configuration and DNS do not have that name; by hand: ssh -T"
            ),
            "{told}"
        );
        assert!(told.ends_with("-- me@web1 true"), "{told}");
        let told = ssh.not_reached("host web1: no greeting of netrig's: 'hello'");
        assert!(told.starts_with("host web1 is not reached: no greeting of netrig's: 'hello'; by hand:"), "{told}");
        assert!(ssh.not_reached("start ssh").starts_with("host web1 is not reached: start ssh;"));
    }

    #[test]
    fn a_program_is_for_the_machine_that_its_header_names() {
        let own = Binary::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.is_for(&rustix::system::uname().machine().to_string_lossy()));
        assert!(!own.is_for("vax"), "{own:?}");
        assert_eq!(own.hash.len(), 64);
        assert!(Binary::read(Path::new("/proc/version")).unwrap_err().to_string().contains("no program"));
    }

    #[test]
    fn the_script_can_stand_in_any_shells_quotes() {
        let binary = Binary { bytes: vec![0; 3], hash: "ab12".to_owned(), machine: None };
        let script = script(&binary, "sudo -n");
        assert!(!script.contains(['\'', '!', '\n']), "{script}");
    }
}
