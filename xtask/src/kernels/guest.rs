//! A virtual machine that runs checks and ends.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::checks::{Check, Outcome};
use super::image::Kernel;
use super::{initramfs, seconds};

/// Until the first program runs; emulation beside a build takes a minute.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// What Linux writes to its log when it has found a fault of its own.
const FAULTS: [&str; 7] =
    ["BUG:", "Oops", "Kernel panic", "general protection fault", "WARNING: CPU", "blocked for more than", "rcu: INFO"];
/// Lines of the console that a message shows.
const SHOWN_LINES: usize = 20;

#[derive(Debug)]
pub struct Guest<'a> {
    pub kernel: &'a Kernel,
    /// Empty; what the guest writes is left there.
    pub directory: &'a Path,
    pub cpus: u32,
    pub memory_mib: u32,
}

/// What a guest has left.
#[derive(Debug)]
pub struct GuestRecord {
    pub release: String,
    pub duration: Duration,
    /// In the checks' order.
    pub outcomes: Vec<(Check, Outcome, Duration)>,
    /// Why it did not come to its end by itself.
    pub cut_short: Option<String>,
    /// Lines of the kernel's log that tell of faults.
    pub faults: Vec<String>,
}

impl GuestRecord {
    pub fn has_failed(&self) -> bool {
        self.cut_short.is_some()
            || !self.faults.is_empty()
            || self.outcomes.iter().any(|(_, outcome, _)| outcome.is_failure())
    }
}

impl fmt::Display for GuestRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linux {}: {}", self.release, seconds(self.duration))?;
        for (check, outcome, duration) in &self.outcomes {
            writeln!(f, "  {}: {outcome} ({})", check.name, seconds(*duration))?;
        }
        for fault in &self.faults {
            writeln!(f, "  the kernel's log: {fault}")?;
        }
        match &self.cut_short {
            Some(why) => writeln!(f, "  FAILED: {why}"),
            None => Ok(()),
        }
    }
}

impl Guest<'_> {
    /// Boots it, and returns when it has ended or was ended.
    pub fn run(&self, checks: &[Check]) -> Result<GuestRecord> {
        let initramfs = self.directory.join("initramfs");
        initramfs::write(self.kernel, &initramfs)?;
        let shared = self.directory.join("checks");
        fs::create_dir(&shared)?;
        fs::write(shared.join("main"), script(checks))?;
        let console = self.directory.join("console.log");
        let begin = Instant::now();
        let mut child =
            self.command(&initramfs, &shared, &console).spawn().context("cannot start qemu-system-x86_64")?;
        let cut_short = self.watch(&mut child, checks, &shared);
        // It has ended, or shall.
        let _ = child.kill();
        child.wait()?;
        let cut_short = cut_short?.map(|why| format!("{why}\n{}", last_lines(&console)));
        let mut outcomes = Vec::new();
        for check in checks {
            let ended = status(&shared, check);
            let outcome = ended.map_or(Outcome::NotReached, |(status, _)| check.judge(status, &shared));
            let duration = ended.map_or(Duration::ZERO, |(_, duration)| duration);
            outcomes.push((check.clone(), outcome, duration));
        }
        let log = fs::read(shared.join("dmesg.log")).unwrap_or_default();
        Ok(GuestRecord {
            release: self.kernel.release.clone(),
            duration: begin.elapsed(),
            outcomes,
            cut_short,
            faults: faults(&String::from_utf8_lossy(&log)),
        })
    }

    /// Why it was ended before its end.
    fn watch(&self, child: &mut Child, checks: &[Check], shared: &Path) -> Result<Option<String>> {
        let release = &self.kernel.release;
        let mut end = Instant::now() + BOOT_LIMIT;
        let mut seen = BTreeMap::new();
        loop {
            let ended = child.try_wait()?.is_some();
            for check in checks {
                if !seen.contains_key(&check.name) && shared.join(check.file("begun")).exists() {
                    seen.insert(check.name.clone(), false);
                    end = Instant::now() + check.limit + Duration::from_secs(60);
                }
                if let Some((status, duration)) = status(shared, check)
                    && seen.insert(check.name.clone(), true) != Some(true)
                {
                    eprintln!(
                        "Linux {release}: {}: {} ({})",
                        check.name,
                        check.judge(status, shared),
                        seconds(duration)
                    );
                    end = Instant::now() + BOOT_LIMIT;
                }
            }
            if ended {
                let complete = shared.join("complete").exists();
                return Ok((!complete).then(|| "it ended before its last check".to_owned()));
            }
            if Instant::now() > end {
                return Ok(Some("it hangs, and was ended".to_owned()));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn command(&self, initramfs: &Path, shared: &Path, console: &Path) -> Command {
        // No guest outlives this program.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-accel"]);
        command
            .arg(format!("tcg,thread={}", if is_safe_on_threads(&self.kernel.release) { "multi" } else { "single" }));
        command.args(["-cpu", "max", "-smp", &self.cpus.to_string(), "-m", &self.memory_mib.to_string()]);
        command.args(["-display", "none", "-monitor", "none", "-no-reboot", "-nodefaults"]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.arg("-kernel").arg(&self.kernel.image).arg("-initrd").arg(initramfs);
        command.args(["-append", "console=ttyS0 panic=-1 quiet mitigations=off"]);
        for (tag, path, more) in [
            ("root", Path::new("/"), ",readonly=on,multidevs=remap"),
            ("modules", &self.kernel.modules, ",readonly=on"),
            ("checks", shared, ""),
        ] {
            command.arg("-virtfs");
            command.arg(format!("local,path={},mount_tag={tag},security_model=none{more}", path.display()));
        }
        command.stdin(Stdio::null());
        command
    }
}

/// A thread for each emulated CPU: from 6.12 on the kernel's patching of its own text then makes it stop at a breakpoint of its own.
fn is_safe_on_threads(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version < (6, 12)
}

/// What the guest runs. A file tells that a check has begun, another one how it ended and how long it took in seconds.
fn script(checks: &[Check]) -> String {
    let mut script = String::from(
        "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TERM=dumb\n\
         cd /run/checks\n\
         /bin/busybox ip link set lo up\n\
         now() { /bin/busybox cut -d ' ' -f 1 /proc/uptime; }\n",
    );
    for check in checks {
        script += &format!(
            "now > {begun}\n( {command} ) > {log} 2>&1 < /dev/null\necho \"$? $(now)\" > part; mv part {status}\n",
            begun = check.file("begun"),
            command = check.command,
            log = check.file("log"),
            status = check.file("status"),
        );
    }
    script + "dmesg > dmesg.log\ntouch complete\nsync\necho o > /proc/sysrq-trigger\nsleep 60\n"
}

/// The exit status of a check that has ended, and how long it took.
fn status(shared: &Path, check: &Check) -> Option<(i32, Duration)> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let begun = number(&fs::read_to_string(shared.join(check.file("begun"))).ok()?)?;
    let text = fs::read_to_string(shared.join(check.file("status"))).ok()?;
    let (status, ended) = text.split_once(' ')?;
    Some((status.parse().ok()?, Duration::try_from_secs_f64(number(ended)? - begun).ok()?))
}

fn faults(log: &str) -> Vec<String> {
    log.lines().filter(|line| FAULTS.iter().any(|fault| line.contains(fault))).map(str::to_owned).collect()
}

fn last_lines(console: &PathBuf) -> String {
    let bytes = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    format!("  its console, {}, ends with:\n    {}", console.display(), shown.join("\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_safe_on_threads("5.10.0-46-amd64"));
        assert!(is_safe_on_threads("6.1.0-50-amd64"));
        assert!(!is_safe_on_threads("6.12.117+deb13-amd64"));
        assert!(!is_safe_on_threads("7.0.1"));
    }

    #[test]
    fn faults_of_the_kernel_are_found_in_its_log() {
        let log = "[    1.0] virtio_net: fine\n[    2.0] BUG: kernel NULL pointer dereference, address: 0\n";
        assert_eq!(faults(log), ["[    2.0] BUG: kernel NULL pointer dereference, address: 0"]);
    }
}
