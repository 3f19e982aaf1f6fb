//! Programs in containers that run, with standard streams of this process.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::http::escaped;
use crate::{Engine, EngineError, Result};

/// How often the exit status of a program is asked for, and how long it is waited for between.
const STATUS_TRIES: u32 = 40;
const STATUS_PAUSE: Duration = Duration::from_millis(50);

/// The header of a piece of output (Engine API, "Attach to a container": stream format).
const HEADER: usize = 8;

/// Runs a command in a container, as `docker exec --interactive`, with the standard streams of this process, and waits for its end: its
/// exit status.
///
/// # Errors
/// When the engine refuses it, or is lost.
pub fn run_in_container(engine: &Engine, container: &str, command: &[String]) -> Result<u8> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Created {
        id: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Ended {
        exit_code: Option<i64>,
    }
    let what = format!("run a program in container {container}");
    let body = json!({ "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Tty": false, "Cmd": command });
    let Created { id } = engine.ask(&what, "POST", &format!("/containers/{}/exec", escaped(container)), Some(&body))?;
    let at = format!("/exec/{}", escaped(&id));
    let (stream, rest) = engine.upgrade(&what, &format!("{at}/start"), &json!({ "Detach": false, "Tty": false }))?;
    let lost = |why| EngineError::Lost { what: what.clone(), why };
    feed(stream.try_clone().map_err(lost)?).map_err(lost)?;
    divide(io::Cursor::new(rest).chain(stream), io::stdout().lock(), io::stderr().lock()).map_err(lost)?;
    // The stream may end a moment before the engine knows that the program has.
    for _ in 0..STATUS_TRIES {
        let Ended { exit_code } = engine.ask(&what, "GET", &format!("{at}/json"), None)?;
        if let Some(code) = exit_code {
            return Ok(u8::try_from(code).unwrap_or(u8::MAX));
        }
        thread::sleep(STATUS_PAUSE);
    }
    Err(EngineError::Garbled { what, why: "the program has ended, and there is no exit status".to_owned() })
}

/// Sends what comes on standard input, from a thread of its own, and the end of it.
fn feed(mut to: UnixStream) -> io::Result<()> {
    let feeding = move || {
        let mut from = io::stdin().lock();
        let mut chunk = vec![0; 64 << 10];
        loop {
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) if to.write_all(&chunk[..count]).is_err() => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    };
    thread::Builder::new().name("stdin".into()).spawn(feeding).map(drop)
}

/// Divides a stream into both outputs until it ends.
fn divide(mut from: impl Read, mut stdout: impl Write, mut stderr: impl Write) -> io::Result<()> {
    let mut header = [0; HEADER];
    let mut chunk = vec![0; 64 << 10];
    loop {
        match from.read(&mut header[..1]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        from.read_exact(&mut header[1..])?;
        let [stream, _, _, _, length @ ..] = header;
        let mut left = u32::from_be_bytes(length) as usize;
        while left > 0 {
            let piece = &mut chunk[..left.min(64 << 10)];
            from.read_exact(piece)?;
            match stream {
                2 => stderr.write_all(piece)?,
                _ => {
                    stdout.write_all(piece)?;
                    stdout.flush()?;
                }
            }
            left -= piece.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_come_in_one_stream() {
        let piece = |stream: u8, text: &str| {
            [&[stream, 0, 0, 0][..], &(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
        };
        let long = "x".repeat(200_000);
        let bytes = [piece(1, "out "), piece(2, "err"), piece(1, &long), piece(2, "")].concat();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        divide(&bytes[..], &mut out, &mut err).unwrap();
        assert_eq!((String::from_utf8(out).unwrap(), err), (format!("out {long}"), b"err".to_vec()));
        let cut = divide(&bytes[..bytes.len() / 2], io::sink(), io::sink()).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
