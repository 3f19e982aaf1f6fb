//! Work of a known amount. Other programs may run meanwhile: each amount is held against what is counted for its own process
//! or its own kind, and interrupts, which clocks of threads contain and these counts do not, are bounded by all of the CPU's.

use std::env;
use std::process::{self, Command};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, ObjectBuilder};
use rig_datapath::cputime::{Account, Kind, Member};
use rig_datapath::test_run::{Verdict, run};
use rig_skip::{Lack, skip};
use rig_sys::clock::own_cpu_ns;
use rig_sys::counters;

use super::{attach, between, stay_on_one_cpu};

const KNOWN_SOFTIRQ: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/known_softirq.bpf.o"));

fn own() -> Account {
    Account::new(0).unwrap()
}

fn spin(length: Duration) {
    let end = Instant::now() + length;
    while Instant::now() < end {}
}

/// Its CPU time, of which others may have had a part meanwhile.
fn spun(length: Duration) -> u64 {
    let before = own_cpu_ns();
    spin(length);
    own_cpu_ns() - before
}

/// How much of the CPU's time the hypervisor has taken, as exactly as /proc/stat is written: each look may be short of it by
/// nearly a unit.
fn stolen(cpu: u32) -> u64 {
    counters::cpu_ticks().unwrap()[&cpu].steal * unit()
}

fn unit() -> u64 {
    1_000_000_000 / counters::units_per_second()
}

/// Does `work` on one CPU and holds the thread's own clock against the count for its process. What a hypervisor took is in
/// the count, since no tracepoint tells, and not in the thread's clock, where the kernel knows it (paravirtual time
/// accounting): `work` has to be so long that a unit of it is less than a hundredth. It returns its CPU time by the thread's
/// clock, without sleeping and waking up: around each switch of a CPU that wakes from idle a virtual machine takes some tens
/// of microseconds, which the clock has and the count has not.
fn found_within_two_percent(work: impl FnOnce() -> u64) {
    let Some((mut counting, _alone)) = attach() else { return };
    let cpu = stay_on_one_cpu();
    // With a higher priority than other processes on this CPU.
    let _ = rustix::process::nice(-20);
    counting.watch(Member::Process(process::id()), own()).unwrap();
    let stolen_by_then = stolen(cpu);
    let before = own_cpu_ns();
    let begin = counting.read().unwrap();
    let known = work();
    let end = counting.read().unwrap();
    let after = own_cpu_ns();
    let taken = stolen(cpu).saturating_sub(stolen_by_then);
    let times = between(&begin, &end, cpu);
    let counted = times.account(own()).processes;
    let interrupts = times.of(Kind::HardInterrupt) + times.softirqs();
    let what = format!(
        "{known} to {} ns, counted {counted}, interrupts {interrupts}, {taken} to {} stolen",
        after - before,
        taken + unit()
    );
    println!("{what}; {} switches unseen", times.unseen);
    assert!(counted * 100 <= (after - before) * 101 + (taken + unit()) * 100, "{what}");
    assert!((counted + interrupts) * 100 >= known * 98, "{what}");
    // An interrupt in the middle of an addition takes some nanoseconds of it.
    let (total, whole) = (times.total(), times.at);
    assert!(total.abs_diff(whole) <= whole / 1000, "{total} of {whole} ns are counted once");
}

#[test]
fn a_spin_of_known_length() {
    found_within_two_percent(|| spun(Duration::from_millis(1500)));
}

/// Ticks of 100, 250 and 1000 Hz meet on multiples of 20 ms: each look at the clock finds this at rest.
#[test]
fn work_in_step_with_the_tick() {
    found_within_two_percent(|| {
        let end = Instant::now() + Duration::from_secs(4);
        let mut known = 0;
        while Instant::now() < end {
            let now = rig_sys::clock::monotonic_ns();
            let next = now - now % 4_000_000 + 4_500_000;
            thread::sleep(Duration::from_nanos(next - now));
            known += spun(Duration::from_millis(1));
        }
        known
    });
}

#[test]
fn softirqs_of_known_length() {
    const COUNT: u64 = 200;
    const ROUNDS: u32 = 5;
    let Some((counting, _alone)) = attach() else { return };
    let cpu = stay_on_one_cpu();
    let _ = rustix::process::nice(-20);
    let open = ObjectBuilder::default().open_memory(KNOWN_SOFTIRQ).unwrap();
    let object = match open.load() {
        Ok(object) => object,
        Err(error) => return skip(Lack::Kernel, format!("programs have timers since Linux 5.15: {error}")),
    };
    let loads = object.maps().find(|map| map.name() == "loads").unwrap();
    let key = 0_u32.to_ne_bytes();
    let word = |at: usize| -> u64 {
        let value = loads.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        u64::from_ne_bytes(value[at..at + 8].try_into().unwrap())
    };
    let of_length = |length: u64| {
        // struct load: a timer of 16 bytes, then length, pause, left, took.
        let words = [0, 0, length, 500_000, COUNT, 0_u64];
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        loads.update(&key, &value, MapFlags::ANY).unwrap();
        let begin = counting.read().unwrap();
        let outcome = run(&object, "begin", &[0; 64], None, 1).unwrap();
        assert_eq!(outcome.verdict, Verdict::Pass);
        let deadline = Instant::now() + Duration::from_secs(20);
        // The CPU is kept busy, so that its timers stay on it.
        while word(32) > 0 {
            assert!(Instant::now() < deadline, "{} softirqs are still to come", word(32));
            spin(Duration::from_millis(1));
        }
        let end = counting.read().unwrap();
        (word(40), between(&begin, &end, cpu))
    };
    let mut rounds = Vec::new();
    // What a virtual machine is kept from its CPU for is counted, too.
    let fits = (0..ROUNDS).any(|_| {
        // Each softirq takes some microseconds beside the work that it was given: it sets the clock's next interrupt, which a
        // virtual machine leaves for.
        let (none, beside) = of_length(0);
        let (took, times) = of_length(500_000);
        let took = took - none;
        let counted = times.of(Kind::HrTimer).saturating_sub(beside.of(Kind::HrTimer));
        let hard = times.of(Kind::HardInterrupt);
        rounds.push(format!(
            "{COUNT} softirqs took {took} ns, counted {counted} and {} beside their work, hard interrupts {hard}",
            beside.of(Kind::HrTimer)
        ));
        assert!(took >= COUNT * 499_000, "{rounds:?}");
        counted * 100 <= took * 102 && (counted + hard) * 100 >= took * 98
    });
    println!("{}", rounds.join("\n"));
    assert!(fits, "{rounds:?}");
}

/// In a namespace of its own a process has another number than in the kernel's first one, which tracepoints tell.
#[test]
fn a_process_is_found_by_its_number_in_its_own_namespace() {
    if attach().is_none() {
        return;
    }
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "cputime::known::a_spin_of_known_length", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("counted"), "{said}");
}
