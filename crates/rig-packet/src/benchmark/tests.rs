use std::convert::Infallible;

use super::*;

/// A device that forwards `rate` frames per second and has a buffer of so many.
#[derive(Debug, Clone, Copy)]
struct Device {
    rate: f64,
    buffer: f64,
    /// What its generator can send.
    generator: f64,
}

impl Device {
    fn offer(self, stream: Stream) -> Arrivals {
        let sends = |rate: f64| rate.min(self.generator) * stream.duration.as_secs_f64();
        let sent = sends(stream.rate).round();
        let forwarded = self.rate * stream.duration.as_secs_f64() + self.buffer;
        let lost = (sent - forwarded.floor()).max(0.0);
        let then = stream.then.map_or(0.0, sends).round();
        // A full buffer takes what is forwarded meanwhile: nothing more is lost once less is sent.
        Arrivals {
            sent: (sent + then) as u64,
            received: (sent - lost + then) as u64,
            delay: Some(Delay { frames: sent as u64, mean_ns: 1e9 / self.rate, ..Delay::default() }),
            lost_until: (lost > 0.0).then_some(Duration::ZERO),
        }
    }

    fn results(self, plan: &Benchmark, line: Option<f64>) -> Results {
        let max = MaxRate { generator: self.generator, line };
        let (results, Ok(())) = plan.run(max, |stream| Ok::<_, Infallible>(self.offer(stream)));
        results
    }
}

fn plan() -> Benchmark {
    let second = Duration::from_secs(1);
    Benchmark {
        standard: Standard::Rfc2544,
        tests: vec![Test::Throughput, Test::Latency, Test::FrameLoss, Test::BackToBack, Test::Recovery],
        goals: vec![Goal::rfc2544(60 * second, second, 0.005)],
        duration: 60 * second,
        latency_trials: 20,
        bursts: 50,
        burst_max: 2 * second,
        recoveries: 3,
    }
}

#[test]
fn the_maximum_rates_are_those_of_the_rfc() {
    // RFC 2544, appendix B: Ethernet of 10 Mbit/s.
    let sizes = [(64, 14_880), (128, 8445), (256, 4528), (512, 2349), (1024, 1197), (1280, 961), (1518, 812)];
    for (frame, rate) in sizes {
        assert_eq!(line_rate(10_000_000, frame).floor() as u32, rate, "{frame} bytes");
    }
}

#[test]
fn a_device_is_benchmarked() {
    let device = Device { rate: 500_000.0, buffer: 1000.0, generator: 1e6 };
    let results = device.results(&plan(), None);
    let throughput = results.throughput().unwrap();
    assert!((throughput / 500_000.0 - 1.0).abs() < 0.006, "{:?}", results.goals);
    assert!(!results.is_generator_bound(MaxRate { generator: 1e6, line: None }));
    assert_eq!(results.latency.len(), 20);
    let losses: Vec<(u64, u64)> =
        results.frame_loss.iter().map(|at| (at.rate as u64, (at.loss_ratio() * 1000.0).round() as u64)).collect();
    let expected = [(1_000_000, 500), (900_000, 444), (800_000, 375), (700_000, 286), (600_000, 167)];
    assert_eq!(losses[..5], expected);
    assert_eq!(losses[5..], [(500_000, 0), (400_000, 0)], "two in a row without loss end it");
    // A burst of n at twice the rate fills the buffer with n / 2.
    let bursts = results.back_to_back.unwrap();
    let (mean, least, most, deviation) = bursts.summary().unwrap();
    assert!((1960.0..=2001.0).contains(&mean) && least == most && deviation == 0.0, "{bursts:?}");
    assert_eq!((bursts.bursts.len(), bursts.unbounded), (50, 0));
    let (implied, corrected) = bursts.buffer_time(1e6, throughput).unwrap();
    assert!((implied - 0.002).abs() < 0.000_05 && (corrected - 0.001).abs() < 0.000_05, "{implied} {corrected}");
    let recovery = results.recovery[0];
    assert_eq!((recovery.reduced, recovery.seconds), ((recovery.overload / 2.0).round(), Some(0.0)));
    assert!((recovery.overload / throughput - 1.1).abs() < 0.001);
}

#[test]
fn a_device_at_line_rate_has_no_longest_burst() {
    let line = line_rate(1_000_000_000, 512);
    let device = Device { rate: 1e6, buffer: 10.0, generator: 2e6 };
    let results = device.results(&plan(), Some(line));
    assert_eq!(results.throughput(), Some(line.floor()));
    assert_eq!(results.back_to_back, None, "RFC 9004, 5");
    let max = MaxRate { generator: 2e6, line: Some(line) };
    assert!(!results.is_generator_bound(max), "it carries what the link does");
    assert_eq!(results.recovery[0].seconds, None, "the link's rate is no overload");
    let losses: Vec<u64> = results.frame_loss.iter().map(|at| at.rate as u64).collect();
    assert_eq!(losses, [line.floor() as u64, (line * 0.9).floor() as u64]);
}

#[test]
fn what_the_generator_cannot_send_is_no_limit_of_the_device() {
    let device = Device { rate: 1e9, buffer: 0.0, generator: 1e6 };
    // What works on the sender's CPU keeps it from sending as much as it does alone.
    let alone = MaxRate { generator: 2e6, line: None };
    let (results, Ok(())) = plan().run(alone, |stream| Ok::<_, Infallible>(device.offer(stream)));
    assert!(results.is_held_back() && !results.is_generator_bound(alone), "{:?}", results.goals);
    assert!((results.throughput().unwrap() / 1e6 - 1.0).abs() < 0.006);
    let fast = Device { rate: 1e9, buffer: 0.0, generator: 1e6 };
    let results = fast.results(&plan(), Some(line_rate(10_000_000_000, 64)));
    assert!(results.is_generator_bound(MaxRate { generator: 1e6, line: Some(14_880_952.0) }));
    assert!(results.frame_loss.is_empty(), "10 % of the link's rate is more than it can send");
}

#[test]
fn a_device_that_forwards_nothing_has_no_throughput() {
    let results = Device { rate: 0.0, buffer: 0.0, generator: 1e6 }.results(&plan(), None);
    assert_eq!(results.throughput(), None);
    assert!(results.latency.is_empty() && results.back_to_back.is_none() && results.recovery.is_empty());
    assert_eq!(results.frame_loss.len(), 10);
}

#[test]
fn an_error_ends_it_and_takes_nothing_of_what_was_found() {
    let device = Device { rate: 500_000.0, buffer: 1000.0, generator: 1e6 };
    let whole = device.results(&plan(), None);
    let tests = [Purpose::Search, Purpose::Latency, Purpose::FrameLoss, Purpose::BackToBack, Purpose::Recovery];
    // Of each kind of test the second stream fails.
    for (before, purpose) in tests.into_iter().enumerate() {
        let mut made = 0;
        let (results, ended) = plan().run(MaxRate { generator: 1e6, line: None }, |stream| {
            made += u32::from(stream.purpose == purpose);
            if made == 2 { Err("lost") } else { Ok(device.offer(stream)) }
        });
        assert_eq!(ended, Err("lost"));
        assert_eq!(results.trials, whole.trials[..results.trials.len()]);
        assert_eq!(results.trials.iter().filter(|trial| trial.purpose == purpose).count(), 1);
        let expected = Results {
            goals: if before > 0 { whole.goals.clone() } else { Vec::new() },
            latency: if before > 1 { whole.latency.clone() } else { Vec::new() },
            frame_loss: if before > 2 { whole.frame_loss.clone() } else { Vec::new() },
            back_to_back: whole.back_to_back.clone().filter(|_| before > 3),
            recovery: Vec::new(),
            trials: results.trials.clone(),
        };
        assert_eq!(results, expected, "{purpose:?}");
    }
}
