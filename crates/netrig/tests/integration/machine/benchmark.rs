//! Frames of a size one way, and the benchmarks made of them.

use std::time::Duration;

use rig_facts::claim::{Metric, Side};
use rig_facts::figures::figure;
use rig_facts::record::TrialRecord;
use rig_load::record::{End, WorkerRecord};
use rig_packet::benchmark::Purpose;
use rig_run::run::{Execute, Rig};
use rig_suite::suite::Suite;

use super::world;

fn suite(path: &str, (from, to): (&str, &str), load: &str) -> Suite {
    let text = format!(
        "name = 's'\ntitle = 'S'\n[defaults]\nwindow = '200ms'\nwarm_up = '0s'\ncool_down = '0s'\n\
         [testbed.two]\nnodes = ['a', 'b']\nwire = {{}}\n\
         [[scenario]]\nid = 'S'\nname = 'S'\ntestbed = 'two'\npath = '{path}'\nfrom = '{from}'\nto = '{to}'\n\
         load = {{ kind = 'packets', protocol = 'udp', {load} }}\n"
    );
    Suite::parse("s.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

fn trial(rig: &mut Rig, suite: &Suite) -> TrialRecord {
    rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ()).unwrap_or_else(|error| panic!("{error:#}"))
}

fn worker(record: &TrialRecord, end: End) -> &WorkerRecord {
    record.workers.iter().find(|worker| worker.end() == end).unwrap()
}

fn total(record: &TrialRecord, end: End, name: &str) -> u64 {
    worker(record, end).packets.as_ref().unwrap().total.get(name).copied().unwrap_or(0)
}

#[test]
fn frames_have_the_size_that_is_asked_for() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        for frame in [64, 1518] {
            let record =
                trial(&mut rig, &suite("raw", ("a", "b"), &format!("frame = {frame}, connections_per_second = 1000")));
            let sent = total(&record, End::Connect, "udpTx");
            assert!(
                (100..=200).contains(&sent),
                "200 ms at 1000 a second, less what a busy machine does not send in time: {sent}"
            );
            assert_eq!(total(&record, End::Listen, "udpRx"), sent);
            assert_eq!(total(&record, End::Listen, "udpTx"), 0, "nothing is answered");
            // An ARP message has 42 bytes.
            let bits = total(&record, End::Connect, "bitsTx") - total(&record, End::Connect, "arpTx") * 42 * 8;
            assert_eq!(bits, sent * (frame - 4) * 8, "without the check sequence");
        }
    });
}

#[test]
fn a_path_is_benchmarked() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        let load = "frame = 64, benchmark = { standard = 'rfc2544', step = '100ms', latency_trials = 1, bursts = 1, burst = '100ms', \
                    recoveries = 1, goals = [{ loss = '50%', width = '20%' }] }";
        let suite = suite("bridge", ("a/sender", "b/receiver"), load);
        let record = trial(&mut rig, &suite);
        let benchmark = record.benchmark.as_ref().unwrap();
        assert!(benchmark.max.generator >= 1000.0 && benchmark.max.line.is_none(), "{:?}", benchmark.max);
        let results = &benchmark.results;
        for at in &results.trials {
            assert!(at.received <= at.sent, "{at:?}");
            assert!(at.sent as f64 <= at.rate * at.seconds + 1.0, "no more than was to be sent: {at:?}");
        }
        assert!(results.frame_loss.iter().all(|at| at.purpose == Purpose::FrameLoss));
        let held = benchmark.throughput().expect("ten frames a second lose less than one in two");
        assert_eq!(figure(&record, Side::Local, Metric::Limit), Some(held));
        let window = Duration::from_nanos(record.window_end_ns - record.window_begin_ns);
        assert!(window >= Duration::from_millis(150), "the window is a trial at the throughput: {window:?}");
        assert_eq!((results.latency.len(), results.recovery.len()), (1, 1));
        let delay = results.latency[0];
        assert!(delay.frames > 0 && delay.min_ns <= delay.median_ns && delay.median_ns <= delay.max_ns, "{delay:?}");
    });
}
