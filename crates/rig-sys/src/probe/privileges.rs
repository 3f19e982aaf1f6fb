//! What the process may do, and what its machine lets a process without privileges do.

use std::fs;

/// Privileges of this process (capabilities(7)) and the switches for user namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Privileges {
    /// Effective user, as the process's own user namespace numbers it.
    pub user: u32,
    pub net_admin: bool,
    pub sys_admin: bool,
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

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

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
        let capabilities = field("CapEff").and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
        let has = |capability: u32| capabilities & 1 << capability != 0;
        let user = field("Uid").and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
        // The initial user namespace maps every id to itself (user_namespaces(7)).
        let initial = uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        Self {
            user: user.unwrap_or(u32::MAX),
            net_admin: has(CAP_NET_ADMIN),
            sys_admin: has(CAP_SYS_ADMIN),
            in_user_namespace: !initial,
            filtered: field("Seccomp").is_some_and(|mode| mode.trim() == "2"),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIAL: &str = "         0          0 4294967295\n";

    #[test]
    fn the_capabilities_are_read_from_the_mask() {
        let status =
            |mask: &str, seccomp: u8| format!("Name:\tx\nUid:\t7\t8\t9\t9\nCapEff:\t{mask}\nSeccomp:\t{seccomp}\n");
        let root = Privileges::parse(&status("000001ffffffffff", 0), INITIAL);
        assert!(root.net_admin && root.sys_admin && !root.in_user_namespace && !root.filtered);
        assert_eq!(root.user, 8);
        let net_only = Privileges::parse(&status("0000000000001000", 2), INITIAL);
        assert!(net_only.net_admin && !net_only.sys_admin && net_only.filtered);
        let nothing = Privileges::parse(&status("0000000000000000", 0), "0 1000 1");
        assert!(!nothing.net_admin && nothing.in_user_namespace);
    }
}
