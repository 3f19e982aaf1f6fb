//! A guest that runs commands while it is up, so that several machines take part in one check: each command is a [`Task`], with its
//! output and its status.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::guest::{BOOT_LIMIT, Guest, RunningGuest};

/// Runs each file `N.task` as it comes, as a process group whose number is in `N.group`, until there is a file `end`. What is moved into
/// place is whole.
const MAIN: &str = "touch ready
number=1
while [ ! -e end ]; do
    if [ -e $number.task ]; then
        ( setsid --wait sh -c 'echo $$ > $0.group; exec sh ./$0.task' $number > $number.log 2>&1 < /dev/null
          echo $? > $number.part; mv $number.part $number.status ) &
        number=$((number + 1))
    else
        /bin/busybox usleep 100000
    fi
done
";
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const SHUT_DOWN_LIMIT: Duration = Duration::from_secs(60);
/// From SIGTERM to a command's end; then it is killed.
const END_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Machine {
    guest: RunningGuest,
    tasks: u32,
    /// Those whose end has not been seen.
    running: Vec<Task>,
}

/// A command that a machine was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    number: u32,
}

/// What a command left.
#[derive(Debug)]
pub struct TaskOutput {
    pub status: i32,
    /// Both outputs.
    pub text: String,
}

impl Machine {
    pub fn boot(guest: &Guest<'_>) -> Result<Self> {
        Ok(Self { guest: guest.boot(MAIN)?, tasks: 0, running: Vec::new() })
    }

    /// Waits until it takes commands.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let end = Instant::now() + BOOT_LIMIT;
        while !self.guest.shared.join("ready").exists() {
            self.check()?;
            if Instant::now() > end {
                bail!("it does not boot\n{}", self.guest.last_lines());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// That it is still there.
    fn check(&mut self) -> Result<()> {
        if self.guest.has_ended()? {
            bail!("the guest has ended\n{}", self.guest.last_lines());
        }
        Ok(())
    }

    /// Begins a command, for a shell.
    pub fn start(&mut self, command: &str) -> Result<Task> {
        self.check()?;
        self.tasks += 1;
        let task = Task { number: self.tasks };
        let file = self.file(task, "task");
        let part = file.with_extension("new");
        fs::write(&part, command).with_context(|| format!("cannot write {}", part.display()))?;
        fs::rename(&part, &file)?;
        self.running.push(task);
        Ok(task)
    }

    /// What it has written so far.
    pub fn log(&self, task: Task) -> String {
        String::from_utf8_lossy(&fs::read(self.file(task, "log")).unwrap_or_default()).into_owned()
    }

    /// Waits for the end of a command.
    ///
    /// # Errors
    /// Where there is none in time, with what the command has written.
    pub fn wait(&mut self, task: Task, limit: Duration) -> Result<TaskOutput> {
        let end = Instant::now() + limit;
        loop {
            if let Ok(status) = fs::read_to_string(self.file(task, "status")) {
                self.running.retain(|running| *running != task);
                return Ok(TaskOutput { status: status.trim().parse()?, text: self.log(task) });
            }
            self.check()?;
            if Instant::now() > end {
                let command = fs::read_to_string(self.file(task, "task")).unwrap_or_default();
                bail!("no end within {} s of `{command}`: {}", limit.as_secs(), self.log(task));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until a command has written `words`.
    pub fn wait_for(&mut self, task: Task, words: &str, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        while !self.log(task).contains(words) {
            let has_ended = self.file(task, "status").exists();
            self.check()?;
            if has_ended || Instant::now() > end {
                bail!("no `{words}`: {}", self.log(task));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Runs a command that has to end well; what it has written.
    pub fn run(&mut self, command: &str, limit: Duration) -> Result<String> {
        let task = self.start(command)?;
        let output = self.wait(task, limit)?;
        if output.status != 0 {
            bail!("`{command}` ends with status {}: {}", output.status, output.text);
        }
        Ok(output.text)
    }

    /// Asks a command and what it has started to end (SIGTERM), and waits for it.
    ///
    /// # Errors
    /// Where it had to be killed.
    pub fn end(&mut self, task: Task) -> Result<TaskOutput> {
        self.signal(task, "TERM")?;
        let ended = self.wait(task, END_LIMIT);
        if ended.is_err() {
            self.signal(task, "KILL")?;
            self.wait(task, END_LIMIT)?;
        }
        ended
    }

    /// Ends what still runs, by force where it has to be.
    ///
    /// # Errors
    /// Where the guest has ended.
    pub fn end_all(&mut self) -> Result<()> {
        for task in self.running.clone() {
            let _ = self.end(task);
            self.check()?;
        }
        Ok(())
    }

    fn signal(&mut self, task: Task, signal: &str) -> Result<()> {
        // One that has ended since has no group any more.
        self.run(&format!("kill -s {signal} -- -$(cat {}.group) || true", task.number), END_LIMIT).map(drop)
    }

    /// Switches the link of its first card, as one who pulls the plug.
    pub fn set_link(&self, up: bool) -> Result<()> {
        self.guest.tell_emulator(&format!("set_link card0 {}", if up { "on" } else { "off" }))
    }

    /// Ends it: why it had to be ended, if it had, and lines of the kernel's log that tell of faults.
    pub fn shut_down(mut self) -> Result<(Option<String>, Vec<String>)> {
        fs::write(self.guest.shared.join("end"), "")?;
        let cut_short = self.guest.wait(SHUT_DOWN_LIMIT)?;
        Ok((cut_short, self.guest.faults()))
    }

    pub fn release(&self) -> &str {
        &self.guest.release
    }

    fn file(&self, task: Task, extension: &str) -> std::path::PathBuf {
        self.guest.shared.join(format!("{}.{extension}", task.number))
    }
}
