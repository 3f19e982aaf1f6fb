//! What the process may do, and what its machine lets a process without privileges do.

use serde::{Deserialize, Serialize};
use std::fs;

/// The user of the process, its confinement, and the switches for user namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Privileges {
    /// Effective user, as the process's own user namespace numbers it.
    pub user: u32,
    /// The process's users are not the machine's: it lives in a user namespace, as in a rootless container.
    pub in_user_namespace: bool,
    /// A seccomp filter watches the system calls (PR_SET_SECCOMP), as in most containers.
    pub filtered: bool,
    /// `kernel.unprivileged_userns_clone` (Debian and derivatives).
    pub user_namespaces_for_all: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu).
    pub restricted_by_apparmor: Option<u64>,
    /// `user.max_user_namespaces`.
    pub user_namespaces_max: Option<u64>,
}

impl Privileges {
    pub fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let sysctl = |path: &str| fs::read_to_string(format!("/proc/sys/{path}")).ok()?.trim().parse().ok();
        Self {
            user_namespaces_for_all: sysctl("kernel/unprivileged_userns_clone"),
            restricted_by_apparmor: sysctl("kernel/apparmor_restrict_unprivileged_userns"),
            user_namespaces_max: sysctl("user/max_user_namespaces"),
            ..Self::parse(&status, &map)
        }
    }

    fn parse(status: &str, uid_map: &str) -> Self {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let user = field("Uid").and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
        // The initial user namespace maps every id to itself (user_namespaces(7)).
        let initial = uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        Self {
            user: user.unwrap_or(u32::MAX),
            in_user_namespace: !initial,
            filtered: field("Seccomp").is_some_and(|mode| mode.trim() == "2"),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_told_from_its_status_and_its_id_map() {
        let status = |seccomp: u8| format!("Name:\tx\nUid:\t7\t8\t9\t9\nSeccomp:\t{seccomp}\nSeccomp_filters:\t0\n");
        let plain = Privileges::parse(&status(0), "         0          0 4294967295\n");
        assert_eq!(plain, Privileges { user: 8, ..Privileges::default() });
        let contained = Privileges::parse(&status(2), "0 1000 1");
        assert!(contained.filtered && contained.in_user_namespace);
    }
}
