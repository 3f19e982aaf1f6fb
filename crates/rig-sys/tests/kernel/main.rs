//! rig-sys against the running kernel.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

mod interfaces;
mod namespaces;
mod processes;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use rig_skip::{Lack, skip, this_test};
use rig_sys::netns;

/// What must come may take this long.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs `body`, the whole of a test, with the privilege to create namespaces: without root by starting the test again in
/// a user namespace. Where that is forbidden it says so.
fn privileged(body: impl FnOnce()) {
    if netns::may_create_namespaces() {
        return body();
    }
    let inside = |program: &std::ffi::OsStr| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]).arg(program).stdin(Stdio::null());
        command
    };
    if !inside("true".as_ref()).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return skip(Lack::Namespaces, "neither root nor user namespaces");
    }
    let output = again(inside(env::current_exe().unwrap().as_os_str())).output().unwrap();
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

/// `command`, which ends in this test binary, made to run the calling test alone.
fn again(mut command: Command) -> Command {
    command.args(["--exact", &this_test(), "--nocapture", "--test-threads=1"]);
    command
}

/// What `look` finds, looked for until it is there; panics when it does not come.
#[track_caller]
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it does not come");
        thread::sleep(Duration::from_millis(2));
    }
}
