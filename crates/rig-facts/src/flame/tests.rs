use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_testbed::stacks::Profiler;

use super::*;
use crate::record::Profile;

fn profile(stacks: &[(&str, u64)]) -> Profile {
    Profile {
        hertz: HERTZ,
        cpus: vec![1],
        samples: stacks.iter().map(|(_, count)| count).sum(),
        stacks: stacks.iter().map(|(stack, count)| ((*stack).to_owned(), *count)).collect(),
        ..Profile::default()
    }
}

#[test]
fn the_picture_shows_work_and_says_how_much_was_idle() {
    let stacks = [("ksoftirqd/1;net_rx_action_[k];bpf:balance_[j]", 60), ("haproxy;<A & B>::run", 20), (IDLE, 20)];
    let drawn = svg(&profile(&stacks), "One <worker>").unwrap();
    for text in
        ["bpf:balance", "&lt;A &amp; B&gt;::run", "One &lt;worker&gt;", "CPU 1, 100 samples at 499 Hz; 20.0 % idle"]
    {
        assert!(drawn.contains(text), "no {text} in {drawn}");
    }
    assert!(drawn.contains("<script") && !drawn.contains(IDLE), "{drawn}");
    // What the addition to the script stands on, which is another program's.
    for text in ["function search_prompt()", "function search(term)", "searching = 0", ".hide { display:none; }"] {
        assert!(drawn.contains(text), "no {text} in {drawn}");
    }
    assert!(drawn.trim_end().ends_with("]]></script>\n</svg>"), "{drawn}");
    assert_eq!(drawn, svg(&profile(&stacks), "One <worker>").unwrap(), "the same record gives the same picture");
}

#[test]
fn an_idle_profile_is_no_picture() {
    let error = svg(&profile(&[(IDLE, 7)]), "x").unwrap_err();
    assert_eq!(error.to_string(), "CPUs [1] were idle in all of 7 samples");
}

/// Not inlined, and not to be folded with another function of the same code.
#[inline(never)]
fn spin_for_the_flame_graph(limit: Instant, cpu_time: Duration) -> u64 {
    let spent = || Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)).unwrap();
    let begin = spent();
    let mut turns = 1_u64;
    while spent() - begin < cpu_time && Instant::now() < limit {
        // Long enough that asking for the time is nothing beside it, and without calls, whose functions would be counted
        // for themselves. A compiler has no shorter form of it (xorshift).
        let mut turn = 0;
        while turn < 1_000_000 {
            turns ^= turns << 13;
            turns ^= turns >> 7;
            turns ^= turns << 17;
            turn += 1;
        }
        std::hint::black_box(turns);
    }
    turns
}

#[test]
fn a_busy_loop_is_found_by_its_name() {
    if let Err(error) = rig_sys::perf::probe() {
        return skip(Lack::Sampling, error);
    }
    let cpus = CpuSet::allowed().unwrap();
    let profiler = Profiler::start(&cpus, HERTZ).unwrap();
    spin_for_the_flame_graph(Instant::now() + Duration::from_secs(60), Duration::from_millis(400));
    // The loop itself asks nothing of the kernel, which a quiet machine has no other work for.
    let mut zeros = vec![0; 1 << 20];
    for _ in 0..2000 {
        File::open("/dev/zero").unwrap().read_exact(&mut zeros).unwrap();
    }
    let profile = Profile::of(&profiler.stop().unwrap().folded(), &cpus);
    let found: u64 =
        profile.stacks.iter().filter(|(stack, _)| stack.contains("spin_for_the_flame_graph")).map(|(_, n)| n).sum();
    assert!(found > 20, "{found} of {}: {:#?}", profile.samples, profile.stacks);
    assert_eq!(profile.samples, profile.stacks.iter().map(|(_, count)| count).sum::<u64>());
    if profile.notes.is_empty() {
        assert!(profile.stacks.iter().any(|(stack, _)| stack.contains(KERNEL)), "{:#?}", profile.stacks);
    }
    assert!(svg(&profile, "A busy loop").unwrap().contains("spin_for_the_flame_graph"));
}

/// This program once more, as another process.
#[test]
fn a_process_that_has_ended_keeps_its_names() {
    const SPIN: &str = "NETRIG_TEST_SPINS";
    if std::env::var_os(SPIN).is_some() {
        spin_for_the_flame_graph(Instant::now() + Duration::from_secs(60), Duration::MAX);
        return;
    }
    if let Err(error) = rig_sys::perf::probe() {
        return skip(Lack::Sampling, error);
    }
    let cpus = CpuSet::allowed().unwrap();
    let profiler = Profiler::start(&cpus, HERTZ).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "flame::tests::a_process_that_has_ended_keeps_its_names"]).env(SPIN, "");
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let ticks = || {
        let line = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        line.rsplit(')').next().unwrap().split_whitespace().nth(11).unwrap().parse::<u64>().unwrap()
    };
    while ticks() < 50 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let sampled = profiler.stop().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let profile = Profile::of(&sampled.folded(), &cpus);
    let of_it = |stack: &str| stack.starts_with("flame::tests::a") && stack.contains("spin_for_the_flame_graph");
    let found: u64 = profile.stacks.iter().filter(|(stack, _)| of_it(stack)).map(|(_, count)| count).sum();
    assert!(found > 20, "{found} of {}: {:#?}", profile.samples, profile.stacks);
}

#[test]
fn a_machine_that_does_not_let_stacks_be_sampled_gives_a_profile_that_says_so() {
    let nowhere = CpuSet::new([CpuSet::MAX]);
    let error = Profiler::start(&nowhere, HERTZ).unwrap_err();
    let profile = Profile::of(&FoldedStacks::nothing(HERTZ, &error), &nowhere);
    assert_eq!((profile.samples, profile.cpus.as_slice()), (0, &[CpuSet::MAX][..]));
    assert_eq!(profile.notes, [format!("No stacks could be sampled: {error}.")]);
}

#[test]
fn a_change_is_told_by_colours() {
    let old = profile(&[("load;send_[k]", 50), ("load;gone_[k]", 50), (IDLE, 300)]);
    let new = profile(&[("load;send_[k]", 10), ("load;came_[k]", 10), (IDLE, 1)]);
    let change = ProfilePair { old: &old, new: &new, totals: (2.0, 4.0) };
    let drawn = svg_of_change(&change, "us/KB", "New against old").unwrap();
    for text in ["2.000 us/KB before, 4.000 after; 400 and 21 samples", "ps/KB", "came"] {
        assert!(drawn.contains(text), "no {text} in {drawn}");
    }
    // Half of 4 us against half of 2: it doubled, though there are far fewer samples.
    let told = drawn.lines().find(|line| line.contains("<title>send_[k]") || line.contains("<title>send ")).unwrap();
    assert!(told.contains("2,000,000 ps/KB") && told.contains("+25.00%"), "{told}");
    let idle = ProfilePair { old: &profile(&[(IDLE, 3)]), ..change };
    assert!(matches!(svg_of_change(&idle, "us/KB", "x"), Err(FlameError::Idle { samples: 3, .. })));
}
