//! One plug-in, called once.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rig_sys::process::{die_with_parent, has_ended, in_own_group, kill_group};
use serde_json::Value;

use crate::PluginError;

/// What a plug-in is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

impl Command {
    /// GC and STATUS came with 1.1.0.
    pub(crate) fn is_of_1_0_0(self) -> bool {
        !matches!(self, Self::Gc | Self::Status)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        })
    }
}

/// A plug-in that did not do what it was called for.
#[derive(Debug, thiserror::Error)]
#[error("{command} of plug-in {plugin} {failure}{}", said(.stderr))]
pub struct PluginFailure {
    pub plugin: String,
    pub command: Command,
    pub failure: Failure,
    /// The end of what it wrote on standard error.
    pub stderr: String,
}

/// How a plug-in failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("cannot be called: there is no such program in {}: install it, or name the folder that has it", folders(.searched))]
    NotFound { searched: Vec<PathBuf> },
    #[error("cannot be called: {path}: {why}", path = .path.display())]
    NotStarted { path: PathBuf, why: std::io::Error },
    /// Its answer is good, and the runtime cannot keep it, as CHECK and DEL need it.
    #[error("cannot be kept in {folder}: {why}", folder = .folder.display())]
    NotKept { folder: PathBuf, why: std::io::Error },
    #[error("took longer than {} s, and was killed", .after.as_secs_f64())]
    TimedOut { after: Duration },
    /// It reports an error, as the specification has it.
    #[error("failed: {0}")]
    Refused(PluginError),
    #[error("ended with {status}, without an error in JSON{}", wrote(.output))]
    Died { status: ExitStatus, output: String },
    #[error("ended with status 0, and reports an error: {0}")]
    ErrorInSuccess(PluginError),
    #[error("ended with status 0, and what it wrote is no result: {why}{}", wrote(.output))]
    NoResult { why: String, output: String },
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; on standard error: {stderr}") }
}

fn wrote(output: &str) -> String {
    if output.is_empty() { "; it wrote nothing".to_owned() } else { format!("; it wrote: {output}") }
}

fn folders(searched: &[PathBuf]) -> String {
    searched.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A call of a plug-in.
#[derive(Debug)]
pub(crate) struct Invocation<'a> {
    pub plugin: &'a str,
    pub command: Command,
    pub folders: &'a [PathBuf],
    /// Environment variables of the call, beside its command and path.
    pub parameters: Vec<(&'static str, OsString)>,
    pub input: &'a Value,
    pub time_limit: Duration,
}

/// Bytes that are read of each stream of a plug-in; what is more is thrown away.
const STREAM_MAX: u64 = 1 << 20;
/// Characters of a plug-in's output that errors have.
const EXCERPT: usize = 400;
/// How often an end is looked for after the plug-in has closed its streams, which it mostly does by ending.
const STEP: Duration = Duration::from_micros(100);

/// The program of a plug-in.
fn find_plugin(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

impl Invocation<'_> {
    /// Calls it; what it wrote, `None` where that is nothing. The plug-in has ended then, and what it has left running in its process
    /// group is killed.
    pub fn call(&self) -> Result<Option<Value>, PluginFailure> {
        let failed =
            |failure, stderr| PluginFailure { plugin: self.plugin.to_owned(), command: self.command, failure, stderr };
        let Some(path) = find_plugin(self.plugin, self.folders) else {
            return Err(failed(Failure::NotFound { searched: self.folders.to_vec() }, String::new()));
        };
        let Streams { status, stdout, stderr } = match self.streams(&path) {
            Ok(streams) => streams,
            Err(why) => return Err(failed(Failure::NotStarted { path, why }, String::new())),
        };
        let stderr = excerpt(&stderr);
        let Some(status) = status else {
            return Err(failed(Failure::TimedOut { after: self.time_limit }, stderr));
        };
        let output: Result<Value, String> = serde_json::from_slice(&stdout).map_err(|error| error.to_string());
        let error = output.as_ref().ok().and_then(PluginError::of);
        match (status.success(), error, output) {
            (true, Some(error), _) => Err(failed(Failure::ErrorInSuccess(error), stderr)),
            (false, Some(error), _) => Err(failed(Failure::Refused(error), stderr)),
            (false, None, _) => Err(failed(Failure::Died { status, output: excerpt(&stdout) }, stderr)),
            (true, None, _) if stdout.trim_ascii().is_empty() => Ok(None),
            (true, None, Ok(value)) => Ok(Some(value)),
            // As libcni, which takes no result of these.
            (true, None, Err(_)) if !matches!(self.command, Command::Add | Command::Version) => Ok(None),
            (true, None, Err(why)) => Err(failed(Failure::NoResult { why, output: excerpt(&stdout) }, stderr)),
        }
    }

    fn streams(&self, path: &Path) -> std::io::Result<Streams> {
        let input = serde_json::to_vec(self.input)?;
        let mut command = std::process::Command::new(path);
        command.env("CNI_COMMAND", self.command.to_string()).env("CNI_PATH", search_path(self.folders)?);
        // What an earlier runtime has left there is not this one's.
        for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"] {
            command.env_remove(name);
        }
        command.envs(self.parameters.iter().map(|(name, value)| (*name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = Instant::now();
        let mut child = die_with_parent(in_own_group(&mut command)).spawn()?;
        let (done, readers) = channel();
        let streams = start_streams(&mut child, input, &done);
        drop(done);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let has_ended = streams.is_ok()
            && hear(&readers, (began, self.time_limit), &mut stdout, &mut stderr)
            && wait(&child, began, self.time_limit)?;
        // Also what it has left behind. Until it is waited for no other process has its number.
        kill_group(child.id())?;
        let status = child.wait()?;
        streams?;
        if !has_ended {
            // What was read until then may say why it hung.
            hear(&readers, (Instant::now(), Duration::from_millis(200)), &mut stdout, &mut stderr);
        }
        Ok(Streams { status: has_ended.then_some(status), stdout, stderr })
    }
}

/// What a plug-in left; no status of one that was killed.
struct Streams {
    status: Option<ExitStatus>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Stream {
    Output,
    Error,
}

fn search_path(folders: &[PathBuf]) -> std::io::Result<OsString> {
    std::env::join_paths(folders).map_err(std::io::Error::other)
}

/// Writes and reads a child's streams, each on a thread of its own.
fn start_streams(child: &mut Child, input: Vec<u8>, done: &Sender<(Stream, Vec<u8>)>) -> std::io::Result<()> {
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read all of it is not waited for.
        thread::Builder::new().spawn(move || drop(stdin.write_all(&input)))?;
    }
    read(child.stdout.take(), Stream::Output, done)?;
    read(child.stderr.take(), Stream::Error, done)
}

/// Reads a stream to its end.
fn read(
    stream: Option<impl Read + Send + 'static>,
    which: Stream,
    done: &Sender<(Stream, Vec<u8>)>,
) -> std::io::Result<()> {
    let Some(mut stream) = stream else { return Ok(()) };
    let done = done.clone();
    let read = move || {
        let mut bytes = Vec::new();
        let _ = stream.by_ref().take(STREAM_MAX).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        let _ = done.send((which, bytes));
    };
    thread::Builder::new().spawn(read).map(drop)
}

/// Takes what the readers have read; whether all have come to an end in time.
fn hear(
    readers: &Receiver<(Stream, Vec<u8>)>,
    (began, time_limit): (Instant, Duration),
    stdout: &mut Vec<u8>,
    stderr: &mut Vec<u8>,
) -> bool {
    loop {
        match readers.recv_timeout(time_limit.saturating_sub(began.elapsed())) {
            Ok((Stream::Output, bytes)) => *stdout = bytes,
            Ok((Stream::Error, bytes)) => *stderr = bytes,
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

/// Whether it has ended in time; its status is not taken.
fn wait(child: &Child, began: Instant, time_limit: Duration) -> std::io::Result<bool> {
    loop {
        match has_ended(child.id())? {
            true => return Ok(true),
            false if began.elapsed() > time_limit => return Ok(false),
            false => thread::sleep(STEP),
        }
    }
}

fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    match text.char_indices().nth_back(EXCERPT - 1) {
        Some((at, _)) if at > 0 => format!("...{}", &text[at..]),
        _ => text.to_owned(),
    }
}

impl PluginFailure {
    pub(crate) fn no_result(plugin: &str, command: Command, why: String, output: &Value) -> Self {
        let output = if output.is_null() { String::new() } else { excerpt(output.to_string().as_bytes()) };
        let failure = Failure::NoResult { why, output };
        Self { plugin: plugin.to_owned(), command, failure, stderr: String::new() }
    }
}

/// A parameter as an environment variable.
pub(crate) fn parameter(name: &'static str, value: impl AsRef<OsStr>) -> (&'static str, OsString) {
    (name, value.as_ref().to_owned())
}
