//! The end of what a process writes to standard error, read all the time: a process waits when its pipe is full.

use std::io::{self, PipeReader, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How much is kept, bytes.
const KEPT: usize = 4096;
/// How long the reader may take to come to the end of the pipe.
const LAG: Duration = Duration::from_millis(200);

/// Read by a thread that ends when the other end of the pipe is closed.
#[derive(Debug)]
pub(super) struct Errors {
    tail: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Errors {
    pub(super) fn of(mut pipe: PipeReader) -> io::Result<Self> {
        let tail = Arc::<Mutex<Vec<u8>>>::default();
        let kept = Arc::clone(&tail);
        let read = move || {
            let mut chunk = [0; KEPT];
            loop {
                match pipe.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(bytes) => {
                        let mut tail = kept.lock().unwrap_or_else(PoisonError::into_inner);
                        tail.extend_from_slice(&chunk[..bytes]);
                        let excess = tail.len().saturating_sub(KEPT);
                        tail.drain(..excess);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        };
        Ok(Self { tail, reader: thread::Builder::new().name("errors".into()).spawn(read)? })
    }

    /// What came last, without notices: of its version, before what is wrong.
    pub(super) fn last_lines(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("[NOTICE]")).collect();
        let lines = lines.join("\n");
        if lines.trim().is_empty() { "it said nothing".to_owned() } else { lines.trim().to_owned() }
    }

    /// What came last from a process that has ended: all of it has been read then.
    pub(super) fn all_that_came(&self) -> String {
        let deadline = Instant::now() + LAG;
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        self.last_lines()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_says_much_is_not_held_up_and_its_last_words_are_kept() {
        let (said, says) = io::pipe().unwrap();
        let errors = Errors::of(said).unwrap();
        let mut command = Command::new("sh");
        // More than any pipe holds.
        command
            .args(["-c", "yes chatter | head -c 3000000 >&2; echo '[NOTICE] version 1' >&2; echo farewell >&2; exit 3"])
            .stdin(Stdio::null());
        let status = command.stderr(says).status().unwrap();
        drop(command);
        assert_eq!(status.code(), Some(3));
        let last = errors.all_that_came();
        assert!(last.ends_with("chatter\nfarewell") && last.len() <= KEPT, "{last}");
    }
}
