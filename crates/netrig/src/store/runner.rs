//! Who writes a run, so that a reader can tell a run that works from one whose runner was killed.

use std::fs;
use std::io;

/// A process as no other will ever be: its id, when it started and in which life of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Runner {
    pub pid: u32,
    /// Clock ticks after boot (field 22 of /proc/PID/stat, proc_pid_stat(5)).
    pub start: u64,
    /// /proc/sys/kernel/random/boot_id, random(4).
    pub boot: String,
}

impl Runner {
    /// This process. The id is the one that /proc shows, which is what a reader will look for.
    pub fn this_process() -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let parse = || Some((stat.split(' ').next()?.parse().ok()?, parse_stat(&stat)?.start));
        let (pid, start) = parse().ok_or_else(|| io::Error::other(format!("cannot read /proc/self/stat: `{stat}`")))?;
        Ok(Self { pid, start, boot: boot_id()? })
    }

    pub fn is_alive(&self) -> bool {
        boot_id().is_ok_and(|boot| boot == self.boot)
            && fs::read_to_string(format!("/proc/{}/stat", self.pid))
                .ok()
                .and_then(|stat| parse_stat(&stat))
                .is_some_and(|now| now.start == self.start && !now.dead)
    }
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// A zombie or already gone.
    dead: bool,
    start: u64,
}

/// The command's name may hold spaces and parentheses: the fields are counted from its last `)`.
fn parse_stat(stat: &str) -> Option<Stat> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X");
    Some(Stat { dead, start: fields.nth(18)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_parentheses_does_not_shift_the_fields() {
        let tail = "1 2 2 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 8775 2 3";
        let of = |head: &str| parse_stat(&format!("{head} {tail}"));
        assert_eq!(of("17 (a) b (c) S"), Some(Stat { dead: false, start: 8775 }));
        assert_eq!(of("17 (gone) Z"), Some(Stat { dead: true, start: 8775 }));
        assert_eq!(parse_stat("17 (cut) S 1 2"), None);
    }

    #[test]
    fn another_start_or_another_boot_is_another_process() {
        let me = Runner::this_process().expect("/proc is mounted");
        assert_eq!(me.pid, std::process::id());
        assert!(me.is_alive());
        assert!(!Runner { start: me.start + 1, ..me.clone() }.is_alive());
        assert!(!Runner { boot: "of-yesterday".to_owned(), ..me }.is_alive());
    }
}
