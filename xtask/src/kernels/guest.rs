//! A virtual machine that runs checks and ends.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::checks::{Check, OBJECTS_LOG, Outcome};
use super::image::Kernel;
use super::machine::Machine;
use super::segment::{Segment, Tap};
use super::{initramfs, seconds};

/// Until the first program runs; emulation beside a build takes a minute.
pub const BOOT_LIMIT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// What Linux writes to its log when it has found a fault of its own.
const FAULTS: [&str; 7] =
    ["BUG:", "Oops", "Kernel panic", "general protection fault", "WARNING: CPU", "blocked for more than", "rcu: INFO"];
/// Lines of the console that a message shows.
const SHOWN_LINES: usize = 20;

/// What a guest's shell runs first, and last. Nothing makes /dev/net/tun there before its module is loaded.
const PRELUDE: &str = "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TERM=dumb
cd /run/checks
ulimit -n 65536
/bin/busybox ip link set lo up
modprobe virtio_net
modprobe tun
";
const END: &str = "dmesg > dmesg.log\ntouch complete\nsync\necho o > /proc/sysrq-trigger\nsleep 60\n";

#[derive(Debug)]
pub struct Guest<'a> {
    pub kernel: &'a Kernel,
    /// Without what another guest has written, but logs of other checks; what the guest writes is left there.
    pub directory: &'a Path,
    pub cpus: u32,
    pub memory_mib: u32,
    pub cards: Vec<Card<'a>>,
    /// What the check of all programs left on this kernel, where that was run before.
    pub objects: Option<&'a Path>,
    /// What its clock says when it starts, as QEMU's `-rtc base=` has it; the time of day, where none is given.
    pub clock: Option<&'a str>,
}

/// A network card of a guest; the guest's first is eth0.
#[derive(Debug)]
pub enum Card<'a> {
    /// With receive-side scaling over as many queues as the tap has.
    Plugged { segment: &'a Segment, tap: Tap },
    /// Joined to another guest's: the socket of this one and that of the other.
    Joined { here: PathBuf, there: PathBuf },
}

/// A guest that has been started; it is ended when it is dropped.
#[derive(Debug)]
pub struct RunningGuest {
    pub release: String,
    /// The directory that it and this machine share.
    pub shared: PathBuf,
    child: Child,
    console: PathBuf,
    monitor: PathBuf,
}

/// Told of a check when it has ended, and how long it took.
pub type Ended<'a> = &'a dyn Fn(&Check, &Outcome, Duration) -> Result<()>;

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
    pub fn new(kernel: &Kernel) -> Self {
        Self {
            release: kernel.release.clone(),
            duration: Duration::ZERO,
            outcomes: Vec::new(),
            cut_short: None,
            faults: Vec::new(),
        }
    }

    /// One check.
    pub fn of(kernel: &Kernel, check: &Check, outcome: Outcome, duration: Duration) -> Self {
        Self { outcomes: vec![(check.clone(), outcome, duration)], ..Self::new(kernel) }
    }

    /// Adds what another guest with the same kernel has left.
    pub fn add(&mut self, other: Self) {
        self.duration += other.duration;
        self.outcomes.extend(other.outcomes);
        self.faults.extend(other.faults);
        self.cut_short = match (self.cut_short.take(), other.cut_short) {
            (Some(one), Some(other)) => Some(format!("{one}\n{other}")),
            (one, other) => one.or(other),
        };
    }

    /// Ends a machine of its checks.
    pub fn end(&mut self, machine: Machine) -> Result<()> {
        let (cut_short, faults) = machine.shut_down()?;
        self.cut_short = self.cut_short.take().or(cut_short);
        self.faults.extend(faults);
        Ok(())
    }

    pub fn has_reached_any(&self) -> bool {
        self.outcomes.iter().any(|(_, outcome, _)| *outcome != Outcome::NotReached)
    }

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
    /// Boots it; `main` is what its shell runs.
    pub fn boot(&self, main: &str) -> Result<RunningGuest> {
        let initramfs = self.directory.join("initramfs");
        initramfs::write(self.kernel, &initramfs)?;
        let shared = self.directory.join("checks");
        fs::create_dir_all(&shared)?;
        if let Some(log) = self.objects.filter(|log| log.exists()) {
            fs::copy(log, shared.join(OBJECTS_LOG))?;
        }
        fs::write(shared.join("main"), format!("{PRELUDE}{main}{END}"))?;
        let console = self.directory.join("console.log");
        // The path of a socket has 107 characters at most.
        static BOOTED: AtomicU32 = AtomicU32::new(0);
        let number = BOOTED.fetch_add(1, Ordering::Relaxed);
        let monitor = std::env::temp_dir().join(format!("netrig-guest-{}-{number}", std::process::id()));
        let _ = fs::remove_file(&monitor);
        let log = self.directory.join("qemu.log");
        let log = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = self.command(&initramfs, &shared, &console, &monitor);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let child = child.context("cannot start qemu-system-x86_64")?;
        Ok(RunningGuest { release: self.kernel.release.clone(), shared, child, console, monitor })
    }

    /// Boots it, and returns when it has ended or was ended; `ended` is told of each check when it ends.
    pub fn run(&self, checks: &[Check], ended: Ended<'_>) -> Result<GuestRecord> {
        let begin = Instant::now();
        let mut running = self.boot(&script(checks))?;
        let cut_short = running.watch(checks, ended)?;
        running.end();
        let mut outcomes = Vec::new();
        for check in checks {
            let (outcome, duration) = match status(&running.shared, check) {
                Some((status, duration)) => (check.judge(status, &running.shared), duration),
                None if running.has_begun(check) => {
                    (Outcome::Failed { what: "the guest ended in it".to_owned(), why: Vec::new() }, Duration::ZERO)
                }
                None => (Outcome::NotReached, Duration::ZERO),
            };
            outcomes.push((check.clone(), outcome, duration));
        }
        Ok(GuestRecord {
            release: self.kernel.release.clone(),
            duration: begin.elapsed(),
            outcomes,
            cut_short: cut_short.map(|why| format!("{why}\n{}", running.last_lines())),
            faults: running.faults(),
        })
    }

    fn command(&self, initramfs: &Path, shared: &Path, console: &Path, monitor: &Path) -> Command {
        // No guest outlives this program.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        let segment = self.cards.iter().find_map(|card| match card {
            Card::Plugged { segment, .. } => Some(segment),
            Card::Joined { .. } => None,
        });
        command.args(segment.map(|segment| segment.entrance()).iter().flatten());
        // With a thread for each emulated CPU both stop for ever where the kernel patches its own text, which it does with each XDP program.
        command.args(["qemu-system-x86_64", "-accel", "tcg,thread=single"]);
        command.args(["-cpu", "max", "-smp", &self.cpus.to_string(), "-m", &self.memory_mib.to_string()]);
        command.args(["-display", "none", "-no-reboot", "-nodefaults"]);
        command.arg("-monitor").arg(format!("unix:{},server=on,wait=off", monitor.display()));
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.arg("-kernel").arg(&self.kernel.image).arg("-initrd").arg(initramfs);
        command.args(["-append", "console=ttyS0 panic=-1 quiet mitigations=off"]);
        if let Some(clock) = self.clock {
            command.args(["-rtc", &format!("base={clock}")]);
        }
        for (tag, path, more) in [
            ("root", Path::new("/"), ",readonly=on,multidevs=remap"),
            ("modules", &self.kernel.modules, ",readonly=on"),
            ("checks", shared, ""),
        ] {
            command.arg("-virtfs");
            command.arg(format!("local,path={},mount_tag={tag},security_model=none{more}", path.display()));
        }
        for (number, card) in self.cards.iter().enumerate() {
            command.args(card.arguments(number));
        }
        command
    }
}

impl Card<'_> {
    /// Of QEMU, for the guest's card of this number.
    fn arguments(&self, number: usize) -> [String; 4] {
        let (backend, device, owner) = match self {
            Self::Plugged { tap: Tap { name, queues }, .. } => (
                format!("tap,ifname={name},script=no,downscript=no,queues={queues},vhost=off"),
                // Two vectors for each queue pair, and two of the card.
                format!(",mq=on,vectors={},rss=on,hash=on", 2 * queues + 2),
                // Taps of a segment have names that end in numbers.
                name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0),
            ),
            Self::Joined { here, there } => (
                format!(
                    "dgram,local.type=unix,local.path={},remote.type=unix,remote.path={}",
                    here.display(),
                    there.display()
                ),
                String::new(),
                // Both guests have addresses of their own.
                if here < there { 1 } else { 2 },
            ),
        };
        [
            "-netdev".to_owned(),
            format!("{backend},id=net{number}"),
            "-device".to_owned(),
            format!(
                "virtio-net-pci,id=card{number},netdev=net{number},mac=52:54:00:00:{owner:02x}:{number:02x}{device}"
            ),
        ]
    }
}

impl RunningGuest {
    /// Until the guest has ended by itself; why it was ended before, if it was.
    fn watch(&mut self, checks: &[Check], ended: Ended<'_>) -> Result<Option<String>> {
        let mut end = Instant::now() + BOOT_LIMIT;
        let mut seen = BTreeMap::new();
        loop {
            let has_ended = self.child.try_wait()?.is_some();
            for check in checks {
                if !seen.contains_key(&check.name) && self.has_begun(check) {
                    seen.insert(check.name.clone(), false);
                    end = Instant::now() + check.limit + Duration::from_secs(60);
                }
                if let Some((status, duration)) = status(&self.shared, check)
                    && seen.insert(check.name.clone(), true) != Some(true)
                {
                    ended(check, &check.judge(status, &self.shared), duration)?;
                    end = Instant::now() + BOOT_LIMIT;
                }
            }
            if has_ended {
                return Ok((!self.is_complete()).then(|| "it ended before its last check".to_owned()));
            }
            if Instant::now() > end {
                return Ok(Some("it hangs, and was ended".to_owned()));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn has_begun(&self, check: &Check) -> bool {
        self.shared.join(check.file("begun")).exists()
    }

    /// Whether it has run its script to the end.
    fn is_complete(&self) -> bool {
        self.shared.join("complete").exists()
    }

    /// What its emulator is told by its monitor.
    pub fn tell_emulator(&self, command: &str) -> Result<()> {
        let mut monitor = UnixStream::connect(&self.monitor).context("cannot reach the emulator's monitor")?;
        writeln!(monitor, "{command}")?;
        // It has read the command when it shows its prompt again.
        monitor.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut answer = Vec::<u8>::new();
        while answer.windows(7).filter(|bytes| bytes == b"(qemu) ").count() < 2 {
            let mut bytes = [0; 512];
            match monitor.read(&mut bytes)? {
                0 => bail!("the emulator's monitor has gone"),
                count => answer.extend(&bytes[..count]),
            }
        }
        Ok(())
    }

    /// Waits for its end, which something else has asked for; why it had to be ended, if it had.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<String>> {
        let end = Instant::now() + limit;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                self.end();
                return Ok(Some(format!("it hangs, and was ended\n{}", self.last_lines())));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok((!self.is_complete()).then(|| format!("it ended too early\n{}", self.last_lines())))
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.monitor);
    }

    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Lines of the kernel's log that tell of faults.
    pub fn faults(&self) -> Vec<String> {
        let log = fs::read(self.shared.join("dmesg.log")).unwrap_or_default();
        faults(&String::from_utf8_lossy(&log))
    }

    pub fn last_lines(&self) -> String {
        let bytes = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        format!("  its console, {}, ends with:\n    {}", self.console.display(), shown.join("\n    "))
    }
}

impl Drop for RunningGuest {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the guest runs. A file tells that a check has begun, another one how it ended and how long it took in seconds.
fn script(checks: &[Check]) -> String {
    let mut script = String::from("now() { /bin/busybox cut -d ' ' -f 1 /proc/uptime; }\n");
    for check in checks {
        script += &format!(
            "now > {begun}\n( {command} ) > {log} 2>&1 < /dev/null\necho \"$? $(now)\" > part; mv part {status}\n",
            begun = check.file("begun"),
            command = check.command,
            log = check.file("log"),
            status = check.file("status"),
        );
    }
    script
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_kernel_are_found_in_its_log() {
        let log = "[    1.0] virtio_net: fine\n[    2.0] BUG: kernel NULL pointer dereference, address: 0\n";
        assert_eq!(faults(log), ["[    2.0] BUG: kernel NULL pointer dereference, address: 0"]);
    }
}
