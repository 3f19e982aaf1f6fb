//! Receive processing in threads.

use std::fs;

use rig_datapath::napi::{self, Urgency};
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::{self, NetNs};

/// SCHED_FIFO as /proc/PID/stat has it (proc_pid_stat(5), field 41).
const FIFO: &str = "1";

#[test]
fn receiving_threads_are_found_and_put_onto_the_cpus_that_are_named() {
    if !netns::may_create_namespaces() {
        return skip(Lack::Root, "network namespaces need it");
    }
    if let Err(why) = napi::may_place() {
        return skip(Lack::ReceiveThreads, why);
    }
    let (near, far) = (NetNs::create().unwrap(), NetNs::create().unwrap());
    let (mut here, mut there) = (Netlink::open(&near).unwrap(), Netlink::open(&far).unwrap());
    here.add_veth(&VethPair { name: "eth0", peer: "eth0", peer_ns: &far, queues: 2, mtu: 1500 }).unwrap();
    assert!(napi::place(&near, "eth0", &[0], Urgency::Normal).is_err(), "an interface that is down");
    here.set_up("eth0").unwrap();
    there.set_up("eth0").unwrap();
    let last = *CpuSet::online().unwrap().as_slice().last().unwrap();
    let cpus = [0, last];
    napi::place(&near, "eth0", &cpus, Urgency::RealTime(1)).unwrap();
    napi::place(&far, "eth0", &[last], Urgency::Normal).unwrap();
    let status = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let allowed = |pid: &u32| {
        let status = status(pid);
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        line.trim().to_owned()
    };
    let policy = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(38).unwrap().to_owned()
    };
    let threads = napi::threads(&near, "eth0").unwrap();
    assert_eq!(threads.len(), 2);
    let (first, last) = (cpus[0].to_string(), last.to_string());
    assert_eq!(threads.iter().map(allowed).collect::<Vec<_>>(), [first, last.clone()]);
    assert!(threads.iter().all(|thread| policy(thread) == FIFO));
    let others = napi::threads(&far, "eth0").unwrap();
    assert!(others.len() == 2 && others.iter().all(|thread| !threads.contains(thread)), "{others:?} {threads:?}");
    assert!(others.iter().all(|thread| allowed(thread) == last && policy(thread) == "0"));
}
