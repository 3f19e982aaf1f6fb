//! What stands in the way where the kernel refuses something, named as what it is: a limit, a capability that even root may lack,
//! a file system that is read-only.

use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

use rustix::process::{Resource, getrlimit};

/// A capability (linux/capability.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    SysAdmin = 21,
    SysNice = 23,
    Perfmon = 38,
    Bpf = 39,
}

use Capability::{Bpf, NetAdmin, NetRaw, Perfmon, SysAdmin, SysNice};

/// All that netrig uses.
const ALL: [Capability; 6] = [SysAdmin, NetAdmin, NetRaw, SysNice, Bpf, Perfmon];
/// What loads programs and has them count.
pub const PROGRAMS: &[Capability] = &[Bpf, NetAdmin, Perfmon];
/// What opens AF_XDP sockets and attaches the programs that go with them.
pub const XDP: &[Capability] = &[Bpf, NetAdmin, NetRaw];
/// What makes namespaces, and all that is in them.
pub const NAMESPACES: &[Capability] = &[SysAdmin, NetAdmin];

impl Capability {
    fn name(self) -> &'static str {
        match self {
            NetAdmin => "CAP_NET_ADMIN",
            NetRaw => "CAP_NET_RAW",
            SysAdmin => "CAP_SYS_ADMIN",
            SysNice => "CAP_SYS_NICE",
            Perfmon => "CAP_PERFMON",
            Bpf => "CAP_BPF",
        }
    }
}

/// Rights of a process, as the kernel checks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessRights {
    /// Its effective user.
    pub user: u32,
    /// Effective capabilities, as bits.
    pub capabilities: u64,
    /// Files that it may have open.
    pub files: Option<u64>,
    /// Bytes that it may lock in memory.
    pub locked: Option<u64>,
}

static BEFORE: OnceLock<ProcessRights> = OnceLock::new();

/// The variable by which a process tells one that it starts in its user namespace what rights there were outside of it.
const OUTSIDE: &str = "NETRIG_RIGHTS";

/// Remembers the rights of this process: in a user namespace of its own every process is root with all capabilities. Of one that was
/// started in such a namespace, those of the process that made it.
pub fn remember() {
    let outside = env::var(OUTSIDE).ok().and_then(|text| ProcessRights::outside(&text));
    let _ = BEFORE.set(outside.unwrap_or_else(ProcessRights::now));
}

/// Has `command`, another netrig, give the same advice as this process.
pub fn pass_on(command: &mut Command) -> &mut Command {
    let ProcessRights { user, capabilities, .. } = ProcessRights::here();
    command.env(OUTSIDE, format!("{user} {capabilities:x}"))
}

impl ProcessRights {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let user = field("Uid").and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
        let capabilities = field("CapEff").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        Self {
            user: user.unwrap_or(u32::MAX),
            capabilities: capabilities.unwrap_or(0),
            files: getrlimit(Resource::Nofile).current,
            locked: getrlimit(Resource::Memlock).current,
        }
    }

    /// As [`pass_on`] tells them.
    fn outside(text: &str) -> Option<Self> {
        let (user, capabilities) = text.split_once(' ')?;
        let (user, capabilities) = (user.parse().ok()?, u64::from_str_radix(capabilities, 16).ok()?);
        Some(Self { user, capabilities, ..Self::now() })
    }

    /// Of this process, before it entered a user namespace of its own.
    pub fn here() -> Self {
        let now = Self::now();
        BEFORE.get().map_or(now, |before| Self { files: now.files, locked: now.locked, ..*before })
    }

    fn lacks(&self, of: &[Capability]) -> Vec<&'static str> {
        // CAP_SYS_ADMIN includes what was divided off it (capabilities(7)).
        let has = |one: Capability| {
            self.capabilities & (1 << one as u64) != 0
                || matches!(one, Bpf | Perfmon) && self.capabilities & (1 << SysAdmin as u64) != 0
        };
        of.iter().filter(|one| !has(**one)).map(|one| one.name()).collect()
    }

    /// Advice for a lack of rights: to be root, or which capability even root lacks here.
    pub fn rights(&self, wanted: &[Capability]) -> String {
        let mut once: Vec<Capability> = Vec::new();
        wanted.iter().for_each(|one| once.extend((!once.contains(one)).then_some(one)));
        let all = once.iter().map(|one| one.name()).collect();
        match self.lacks(&once) {
            lacks if self.user == 0 && !lacks.is_empty() => {
                let names = listed(lacks);
                format!("root lacks {names} here, as in a container: start it with that (`docker run --privileged`)")
            }
            // A user namespace's root has them all, and none counts for the machine.
            _ if self.user == 0 => "run as root of the machine, outside of user namespaces".to_owned(),
            _ => format!("run netrig as root, or give it {}", listed(all)),
        }
    }

    /// What to do about an errno; `None` where it is none of a limit or of rights.
    pub fn errno(&self, errno: i32) -> Option<String> {
        Some(match errno {
            libc::EMFILE => {
                let most = self.files.map_or_else(|| "too few".to_owned(), |files| files.to_string());
                format!("this process may have {most} files open: raise the limit, e.g. `ulimit -n 4096`")
            }
            libc::ENFILE => "the machine has as many files open as it may: raise the sysctl fs.file-max".to_owned(),
            libc::EROFS => "that file system is read-only: name a place that can be written to".to_owned(),
            libc::ENOMEM => match self.locked {
                Some(bytes) if self.capabilities & (1 << SysAdmin as u64) == 0 => format!(
                    "memory is short, or this process may lock no more than {} KiB of it: raise `ulimit -l`",
                    bytes / 1024
                ),
                _ => "memory is short: free some, or raise the limit of the cgroup (memory.max)".to_owned(),
            },
            libc::EPERM if self.user == 0 && !self.lacks(&ALL).is_empty() => self.rights(&ALL),
            _ => return None,
        })
    }
}

/// `CAP_BPF and CAP_PERFMON`.
fn listed(names: Vec<&str>) -> String {
    match names.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// What to do where this process lacks rights.
pub fn rights(wanted: &[Capability]) -> String {
    ProcessRights::here().rights(wanted)
}

/// Advice for an error text, by the kernel's error number in it: the error may have come from another process.
pub fn in_words(words: &str) -> Option<String> {
    let numbers = words.split("(os error ").skip(1).filter_map(|rest| rest.split(')').next()?.parse().ok());
    let had = ProcessRights::here();
    if words.contains("namespace") && words.contains(&format!("(os error {})", libc::ENOSPC)) {
        let kind = if words.contains("user namespace:") { "user" } else { "net" };
        return Some(format!("the user may have no more namespaces: raise the sysctl user.max_{kind}_namespaces"));
    }
    numbers.into_iter().find_map(|errno| had.errno(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: u64 = 0x1ff_ffff_ffff;

    fn had(user: u32, capabilities: u64) -> ProcessRights {
        ProcessRights { user, capabilities, files: Some(30), locked: Some(64 * 1024) }
    }

    #[test]
    fn limits_are_named_as_what_they_are() {
        let root = had(0, EVERYTHING);
        let said = root.errno(libc::EMFILE).unwrap();
        assert!(said.contains("30 files open") && said.contains("ulimit -n"), "{said}");
        assert!(root.errno(libc::EROFS).unwrap().contains("read-only"));
        assert!(root.errno(libc::ENOMEM).unwrap().contains("memory.max"));
        assert!(had(1000, 0).errno(libc::ENOMEM).unwrap().contains("64 KiB"));
        assert!(root.errno(libc::EPERM).is_none() && root.errno(libc::EINVAL).is_none());
        assert!(had(1000, 0).errno(libc::EPERM).is_none(), "who asked says that root is needed");
    }

    #[test]
    fn root_is_told_what_it_lacks_and_not_to_be_root() {
        let said = had(0, EVERYTHING & !(1 << 39 | 1 << 21)).rights(PROGRAMS);
        assert!(said.starts_with("root lacks CAP_BPF here") && !said.contains("as root"), "{said}");
        // CAP_SYS_ADMIN loads programs by itself.
        assert!(had(0, EVERYTHING & !(1 << 39)).rights(PROGRAMS).contains("root of the machine"));
        let said = had(0, 0).errno(libc::EPERM).unwrap();
        assert!(said.contains("CAP_SYS_ADMIN, CAP_NET_ADMIN") && said.contains("and CAP_PERFMON"), "{said}");
        let said = had(1000, 0).rights(PROGRAMS);
        assert_eq!(said, "run netrig as root, or give it CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON");
    }

    #[test]
    fn rights_outside_of_a_namespace_are_passed_on() {
        let mut command = Command::new("netrig");
        pass_on(&mut command);
        let told = command.get_envs().find(|(name, _)| *name == OUTSIDE).unwrap().1.unwrap().to_str().unwrap();
        let (had, here) = (ProcessRights::outside(told).unwrap(), ProcessRights::here());
        assert_eq!((had.user, had.capabilities), (here.user, here.capabilities));
        assert!(["", "0", "0 x", "-1 0"].iter().all(|odd| ProcessRights::outside(odd).is_none()));
    }

    #[test]
    fn what_two_things_need_is_named_once() {
        let said = had(1000, 0).rights(&[XDP, NAMESPACES].concat());
        assert_eq!(said, "run netrig as root, or give it CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN");
    }

    #[test]
    fn an_error_is_known_by_its_number_whoever_wrote_it() {
        assert!(in_words("create a namespace: Too many open files (os error 24)").unwrap().contains("files open"));
        assert_eq!(in_words("Invalid argument (os error 22)"), None);
        assert_eq!(in_words("(os error many)"), None);
        let no_more = in_words("create a network namespace: No space left on device (os error 28)").unwrap();
        assert!(no_more.contains("user.max_net_namespaces"), "{no_more}");
        let no_more = in_words("create a user namespace: No space left on device (os error 28)").unwrap();
        assert!(no_more.contains("user.max_user_namespaces"), "{no_more}");
        assert_eq!(in_words("write the page: No space left on device (os error 28)"), None);
    }
}
