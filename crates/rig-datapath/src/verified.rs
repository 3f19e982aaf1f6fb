//! How many instructions the kernel's verifier walks through for each program, of at most a million (bpf(2)): verified.txt has
//! what was measured on one kernel with one compiler, and this holds the programs against it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use rig_skip::{Lack, skip};

use crate::Error;
use crate::balancer::{self, Balancer, Spreading, replay, stages};
use crate::cputime::CpuTime;
use crate::kernel;
use crate::libbpf_log::loaded;
use crate::objects::OLD_PROGRAMS;
use crate::receive::Receive;
use crate::rights::check_may_trace;
use crate::spin::Spin;
use crate::steer::{Options, Steer};
use crate::vrouter::{self, Router};

/// What no program may need on any kernel.
const MOST: u64 = 900_000;
const RECORD: &str = include_str!("verified.txt");
/// Set to 1, it has the record written anew.
const WRITE: &str = "NETRIG_WRITE_VERIFIED";

/// Small tables load sooner.
fn few() -> balancer::Sizes {
    balancer::Sizes { connections: 1 << 12, ..balancer::Sizes::default() }
}

type Loading = fn() -> Result<(), Error>;

/// What programs are loaded for, and how they are. Those of benchmarks first: what has the name of a program that users run is that one.
const ALL: [(&str, Loading); 10] = [
    ("benchmarks", || {
        stages::load(few())?;
        replay::load(few())?;
        vrouter::replay::load(vrouter::Sizes::default()).map(|_| ())
    }),
    ("balancer", || {
        let mut balancer = Balancer::load(few())?;
        balancer.spread_over(&Spreading::Queues { workers: vec![0], receiver: None, packets: 64 })?;
        // An Ethernet frame of no IP packet.
        balancer.trace(&[0; 64], None).map(|_| ())
    }),
    ("vrouter", || {
        let router = Router::load(vrouter::Sizes::default())?;
        let loopback = 1;
        for side in [vrouter::Side::Container, vrouter::Side::Underlay] {
            router.trace(side, &[0; 64], loopback, [Ipv4Addr::UNSPECIFIED.into(); 2])?;
        }
        Ok(())
    }),
    ("spreader", || Steer::load(Options { queues: 1, packets: 64, strict: false, completes: true }, 0).map(|_| ())),
    ("receiver", || balancer::receiver::load().map(|_| ())),
    ("datagrams", || balancer::datagrams::load(&balancer::DatagramSettings::default()).map(|_| ())),
    ("queues", || crate::napi::load().map(|_| ())),
    ("receive", || Receive::attach().map(|_| ())),
    ("cpu time", || CpuTime::attach().map(|_| ())),
    ("spin", || Spin::load(Duration::from_micros(1)).map(|_| ())),
];

/// The lines of the record that say whose it is.
fn origin() -> String {
    let (major, minor) = kernel::version().unwrap_or_default();
    format!("Linux {major}.{minor}\n{}\n", env!("CLANG_VERSION"))
}

/// Programs that need more than they did where the record is of this kernel and compiler, and more than any may.
fn grown(now: &BTreeMap<String, u64>, record: &str, origin: &str) -> Vec<String> {
    let before: BTreeMap<&str, u64> = match record.strip_prefix(origin) {
        Some(lines) => lines
            .lines()
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
            .collect(),
        None => BTreeMap::new(),
    };
    let is_of_here = record.starts_with(origin);
    let judge = |(name, verified): (&String, &u64)| match before.get(name.as_str()) {
        _ if *verified > MOST => Some(format!("{name}: {verified}, of {MOST} at most")),
        Some(before) if *verified * 10 > before * 11 => Some(format!("{name}: {verified}, after {before}")),
        None if is_of_here => Some(format!("{name}: {verified}, and the record does not have it")),
        _ => None,
    };
    now.iter().filter_map(judge).collect()
}

/// An error and what it comes from.
fn causes(error: &dyn std::error::Error) -> String {
    let rest = error.source().map(|source| format!(": {}", causes(source)));
    format!("{error}{}", rest.unwrap_or_default())
}

#[test]
fn the_verifier_has_no_more_to_do_than_it_had() {
    if let Err(error) = check_may_trace() {
        return skip(Lack::Root, error);
    }
    let mut is_whole = true;
    for (feature, load) in ALL {
        match load() {
            Ok(()) => (),
            Err(error @ Error::Helper { .. }) => {
                skip(Lack::Kernel, format!("{feature}: {}", causes(&error)));
                is_whole = false;
            }
            Err(error) => panic!("{feature}: {}", causes(&error)),
        }
    }
    let now = loaded::LOADED.take();
    assert!(now.len() > 30 || !is_whole, "{now:?}");
    let mut text = origin();
    for (name, verified) in &now {
        writeln!(text, "{name} {verified}").unwrap();
    }
    if std::env::var_os(WRITE).is_some_and(|value| value == "1") {
        return std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/verified.txt"), text).unwrap();
    }
    println!("{text}");
    let has_old_programs = std::env::var_os(OLD_PROGRAMS).is_some();
    let grown = grown(&now, if has_old_programs { "" } else { RECORD }, &origin());
    assert!(
        grown.is_empty(),
        "{}\nwhere that is worth it: {WRITE}=1 cargo test -p rig-datapath --lib verified",
        grown.join("\n")
    );
}

#[test]
fn programs_for_old_kernels_are_verified_on_a_new_one() {
    let mut test = std::process::Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "verified::the_verifier_has_no_more_to_do_than_it_had"]).env(OLD_PROGRAMS, "1");
    let output = test.env_remove(WRITE).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_program_that_has_grown_by_more_than_a_tenth_is_found() {
    let now = |verified| BTreeMap::from([("balance/balance".to_owned(), verified)]);
    let record = "Linux 6.18\nclang 14\nbalance/balance 1000\nvrouter trace/from_underlay 1000\n";
    let here = "Linux 6.18\nclang 14\n";
    assert_eq!(grown(&now(1100), record, here), Vec::<String>::new());
    assert_eq!(grown(&now(1101), record, here), ["balance/balance: 1101, after 1000"]);
    assert_eq!(grown(&now(1101), record, "Linux 6.1\nclang 14\n"), Vec::<String>::new());
    assert_eq!(grown(&now(900_001), record, "Linux 6.1\nclang 14\n").len(), 1);
    let of_two_words = |verified| BTreeMap::from([("vrouter trace/from_underlay".to_owned(), verified)]);
    assert_eq!(grown(&of_two_words(1100), record, here), Vec::<String>::new());
    assert_eq!(grown(&of_two_words(1101), record, here).len(), 1);
    let other = BTreeMap::from([("spread/spread".to_owned(), 1)]);
    assert_eq!(grown(&other, record, here).len(), 1);
}
