//! Whether this process may load programs.

use crate::{Error, libbpf_log};

/// Refuses a process without the right to load programs before libbpf is asked, which would find out by trying and say so
/// on standard error in its own words. The kernel's answer to a program that it does not find safe is the same "permission
/// denied".
pub(crate) fn check_may_load() -> Result<(), Error> {
    check_capabilities(CAP_BPF)
}

/// As [`check_may_load`], for programs that look into the kernel.
pub(crate) fn check_may_trace() -> Result<(), Error> {
    check_capabilities(CAP_BPF | CAP_PERFMON)
}

fn check_capabilities(wanted: u64) -> Result<(), Error> {
    libbpf_log::listen();
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    match is_permitted(&read("/proc/self/uid_map"), &read("/proc/self/status"), wanted) {
        true => Ok(()),
        false => Err(Error::NotPermitted(std::io::ErrorKind::PermissionDenied.into())),
    }
}

// linux/capability.h
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

/// Whether there are all of `wanted`, or CAP_SYS_ADMIN, which includes them (capabilities(7)), of the machine and not of a
/// user namespace, where none counts (user_namespaces(7)).
fn is_permitted(uid_map: &str, status: &str, wanted: u64) -> bool {
    let is_machines = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    is_machines && mask.is_some_and(|mask| mask & CAP_SYS_ADMIN != 0 || mask & wanted == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_of_a_user_namespace_load_nothing() {
        const MACHINE: &str = "         0          0 4294967295\n";
        let status = |mask: &str| format!("Name:\tx\nCapEff:\t{mask}\nCapBnd:\t000001ffffffffff\n");
        let may_load = |uid_map, status: &str| is_permitted(uid_map, status, CAP_BPF);
        assert!(may_load(MACHINE, &status("000001ffffffffff")));
        assert!(may_load(MACHINE, &status("0000008000000000")), "CAP_BPF alone");
        assert!(may_load(MACHINE, &status("0000000000200000")), "CAP_SYS_ADMIN alone");
        assert!(!may_load(MACHINE, &status("0000000000001000")), "CAP_NET_ADMIN alone");
        assert!(!may_load("         0      65534          1\n", &status("000001ffffffffff")));
        assert!(!may_load("", ""));
        let may_trace = |status: &str| is_permitted(MACHINE, status, CAP_BPF | CAP_PERFMON);
        assert!(!may_trace(&status("0000008000000000")), "CAP_BPF alone");
        assert!(may_trace(&status("000000c000000000")), "with CAP_PERFMON");
        assert!(may_trace(&status("0000000000200000")), "CAP_SYS_ADMIN alone");
    }
}
