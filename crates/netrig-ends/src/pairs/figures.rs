//! What was measured of each pair, and why some are slower than others.

use std::collections::BTreeMap;

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::figures::sample;
use rig_facts::record::{Environment, Flag, TrialRecord, TwoMachineFlag};
use rig_stats::sample::Sample;
use rig_stats::units::bits_at_a_glance;
use rig_suite::pairs::{PairLoad, PairScenario, PairedHost, PairsTest};

/// A direction is slow that carries less than this share of what half of all directions carry.
pub const SLOW: f64 = 0.8;
/// A round trip is long that takes so many times what half of all take.
const LONG: f64 = 1.5;
/// Of what a host sends or receives, so much of the median of all is slow as a whole.
const SLOW_HOST: f64 = 0.9;
/// Segments that are sent again, of all, that are worth a word.
const RESENT: f64 = 1e-4;

/// What was measured from one host to another. Means of the trials, where there are several.
#[derive(Debug, Clone, PartialEq)]
pub struct PairFigures {
    pub scenario: PairScenario,
    /// Payload that the receiver's processes read, bits per second.
    pub throughput: Option<f64>,
    /// CPU time that was not idle, percent of all CPUs of the sender, and of the receiver.
    pub cpu: [Option<f64>; 2],
    /// Segments that the sending host sent again, of all that it sent.
    pub resent: Option<f64>,
    /// Median and 99th percentile of transactions between the two, microseconds; those of both directions are the same.
    pub latency: Option<[f64; 2]>,
    /// What the reader should know of the trials, in words.
    pub doubts: Vec<String>,
}

/// What all pairs together say.
#[derive(Debug, Clone, PartialEq)]
pub struct AllPairs {
    /// All directions, in the order of the hosts.
    pub pairs: Vec<PairFigures>,
    /// Half of all directions carry more, bits per second.
    pub throughput: Option<f64>,
    /// Half of all pairs have a longer median, microseconds.
    pub latency: Option<f64>,
    /// What each host sends to others, and receives from them: the medians, bits per second.
    pub hosts: Vec<[Option<f64>; 2]>,
}

/// A direction that is slower than others, and what tells why.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowPair<'a> {
    pub figures: &'a PairFigures,
    /// Of the median of all directions.
    pub share: f64,
    pub reasons: Vec<String>,
}

impl AllPairs {
    pub fn of(test: &PairsTest, trials: &[TrialRecord]) -> Self {
        let mut by_scenario: BTreeMap<&str, Vec<&TrialRecord>> = BTreeMap::new();
        for trial in trials {
            by_scenario.entry(&trial.scenario).or_default().push(trial);
        }
        let of = |scenario| by_scenario.get(test.id(scenario).as_str()).map_or(&[][..], Vec::as_slice);
        let directions = test.scenarios().into_iter().filter(|scenario| scenario.load == PairLoad::Stream);
        let pairs: Vec<PairFigures> = directions
            .map(|scenario| {
                let PairScenario { from, to, .. } = scenario;
                let (from, to) = (from.min(to), from.max(to));
                PairFigures::of(test, scenario, of(scenario), of(PairScenario { from, to, load: PairLoad::Rr }))
            })
            .collect();
        let throughputs = |which: &dyn Fn(PairScenario) -> bool| {
            median(pairs.iter().filter(|pair| which(pair.scenario)).filter_map(|pair| pair.throughput))
        };
        let of_host = |host: usize| [throughputs(&|of| of.from == host), throughputs(&|of| of.to == host)];
        let hosts = (0..test.hosts.len()).map(of_host).collect();
        let once = pairs.iter().filter(|pair| pair.scenario.from < pair.scenario.to);
        let latency = median(once.filter_map(|pair| pair.latency).map(|[half, _]| half));
        Self { throughput: throughputs(&|_| true), latency, hosts, pairs }
    }

    /// From one host to another.
    pub fn between(&self, from: usize, to: usize) -> Option<&PairFigures> {
        self.pairs.iter().find(|pair| (pair.scenario.from, pair.scenario.to) == (from, to))
    }

    /// The direction that carries least, with what tells why, whether or not it is much less than the others.
    pub fn slowest(&self, test: &PairsTest, machines: &BTreeMap<String, Environment>) -> Option<SlowPair<'_>> {
        let known = self.pairs.iter().filter(|pair| pair.throughput.is_some());
        let slowest = known
            .min_by(|one, other| one.throughput.partial_cmp(&other.throughput).unwrap_or(std::cmp::Ordering::Equal))?;
        self.slow(slowest, test, machines)
    }

    /// All directions that carry much less than half of all do, the slowest first.
    pub fn all_slow(&self, test: &PairsTest, machines: &BTreeMap<String, Environment>) -> Vec<SlowPair<'_>> {
        let mut all: Vec<_> = self.pairs.iter().filter_map(|pair| self.slow(pair, test, machines)).collect();
        all.retain(|slow| slow.share < SLOW);
        all.sort_by(|one, other| one.share.total_cmp(&other.share));
        all
    }

    fn slow<'a>(
        &'a self,
        pair: &'a PairFigures,
        test: &PairsTest,
        machines: &BTreeMap<String, Environment>,
    ) -> Option<SlowPair<'a>> {
        let share = pair.throughput? / self.throughput.filter(|median| *median > 0.0)?;
        let mut reasons = Vec::new();
        if share < SLOW {
            reasons.extend(self.of_hosts(pair, test));
            reasons.extend(cards(pair, test, machines));
        }
        reasons.extend(pair.resent.filter(|resent| *resent > RESENT).map(|resent| {
            format!(
                "{} % of the segments that {} sent were sent again",
                three_digits(resent * 100.0),
                test.hosts[pair.scenario.from].name
            )
        }));
        if let (Some([half, _]), Some(median)) = (pair.latency, self.latency)
            && half > LONG * median
        {
            reasons
                .push(format!("a round trip takes {half:.1} us, where half of all pairs take {median:.1} us or less"));
        }
        reasons.extend(pair.doubts.iter().cloned());
        Some(SlowPair { figures: pair, share, reasons })
    }

    /// Where not the pair is slow, but all that one of its hosts sends or receives.
    fn of_hosts(&self, pair: &PairFigures, test: &PairsTest) -> Vec<String> {
        let PairScenario { from, to, .. } = pair.scenario;
        // A host in one pair alone is not told from the pair.
        if test.paired().len() < 3 {
            return Vec::new();
        }
        let slow = |host: usize, way: usize, does: &str| {
            let (own, all) = (self.hosts[host][way]?, self.throughput?);
            let name = &test.hosts[host].name;
            (own < SLOW_HOST * all).then(|| {
                format!(
                    "all that {name} {does} is slow: half of it below {}, of all pairs {}",
                    bits_at_a_glance(own).trim(),
                    bits_at_a_glance(all).trim()
                )
            })
        };
        [slow(from, 0, "sends"), slow(to, 1, "receives")].into_iter().flatten().collect()
    }
}

impl PairFigures {
    fn of(test: &PairsTest, scenario: PairScenario, stream: &[&TrialRecord], rr: &[&TrialRecord]) -> Self {
        let mean = |trials: &[&TrialRecord], side, metric| sample(trials.iter().copied(), side, metric).mean();
        let latency = |of| mean(rr, Side::Local, Metric::Latency(of));
        let sent = |count: fn(&rig_testbed::node::ProtocolDelta) -> u64| {
            stream.iter().filter_map(|trial| trial.nodes.first()).map(|node| count(&node.protocol)).sum::<u64>() as f64
        };
        let (all, again) = (sent(|of| of.tcp_segments_out), sent(|of| of.tcp_retransmitted_segments));
        let names = [scenario.from, scenario.to].map(|host| test.hosts[host].name.as_str());
        let mut doubts: Vec<String> = Vec::new();
        for flag in
            stream.iter().flat_map(|trial| &trial.flags).filter(|flag| !matches!(flag, Flag::TicksDiffer { .. }))
        {
            let words =
                TwoMachineFlag(flag).to_string().replace("the client", names[0]).replace("the server", names[1]);
            // Of several trials the first one speaks.
            if !doubts.iter().any(|doubt| is_alike(doubt, &words)) {
                doubts.push(words);
            }
        }
        Self {
            scenario,
            throughput: mean(stream, Side::Receiver, Metric::Throughput),
            cpu: [Side::Sender, Side::Receiver].map(|side| mean(stream, side, Metric::Cpu)),
            resent: (all > 0.0).then(|| again / all),
            latency: latency(Statistic::P50).zip(latency(Statistic::P99)).map(|(half, most)| [half, most]),
            doubts,
        }
    }
}

/// Whether two sentences differ by their numbers alone.
fn is_alike(one: &str, other: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect::<String>();
    letters(one) == letters(other)
}

/// What sets the cards of a pair apart from those of most hosts.
fn cards(pair: &PairFigures, test: &PairsTest, machines: &BTreeMap<String, Environment>) -> Vec<String> {
    const DECIDE: [&str; 2] = ["speed", "duplex"];
    let values = |host: usize, fact: &str| -> Vec<&str> {
        let PairedHost { name, interfaces, .. } = &test.hosts[host];
        let cards = machines.get(name).into_iter().flat_map(|machine| &machine.cards);
        let carries = cards.filter(|(name, _)| interfaces.contains(*name));
        carries.filter_map(|(_, card)| card.get(fact)).map(String::as_str).collect()
    };
    let mut said = Vec::new();
    for fact in DECIDE {
        let of_all: Vec<Vec<&str>> = test.paired().into_iter().map(|host| values(host, fact)).collect();
        let count = |value: &Vec<&str>| of_all.iter().filter(|of| *of == value).count();
        let Some(most) = of_all.iter().max_by_key(|value| count(value)).filter(|most| count(most) * 2 > of_all.len())
        else {
            continue;
        };
        for host in [pair.scenario.from, pair.scenario.to] {
            let own = values(host, fact);
            if own != *most && !own.is_empty() && !most.is_empty() {
                let name = &test.hosts[host].name;
                said.push(format!(
                    "the {fact} of {name}'s card is {}, of most hosts' {}",
                    own.join(", "),
                    most.join(", ")
                ));
            }
        }
    }
    said
}

/// Digits behind the point, so that three of the value are significant.
pub fn decimals(value: f64) -> u8 {
    let magnitude = value.abs().log10().floor();
    if magnitude.is_finite() { (2.0 - magnitude).clamp(0.0, 6.0) as u8 } else { 0 }
}

pub fn three_digits(value: f64) -> String {
    format!("{value:.*}", decimals(value).into())
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    Sample::from(values.collect::<Vec<f64>>()).median()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    /// Four hosts; each direction carries what `rate` says, Gbit/s.
    fn pairs(rate: impl Fn(usize, usize) -> f64) -> (PairsTest, AllPairs) {
        let host = |number: usize| PairedHost {
            name: format!("h{number}"),
            addresses: Default::default(),
            interfaces: ["eth0".to_owned()].into(),
            labels: Default::default(),
            left_out: None,
        };
        let load = rig_load::plan::Load::Idle;
        let test = PairsTest { hosts: (0..4).map(host).collect(), stream: load.clone(), rr: load, pods: None };
        let mut all = AllPairs::of(&test, &[]);
        for pair in &mut all.pairs {
            pair.throughput = Some(rate(pair.scenario.from, pair.scenario.to) * 1e9);
            pair.latency = Some([20.0, 40.0]);
        }
        let of = |which: &dyn Fn(&PairFigures) -> bool| {
            median(all.pairs.iter().filter(|pair| which(pair)).filter_map(|pair| pair.throughput))
        };
        let hosts =
            (0..4).map(|host| [of(&|pair| pair.scenario.from == host), of(&|pair| pair.scenario.to == host)]).collect();
        (test, AllPairs { throughput: of(&|_| true), latency: Some(20.0), hosts, ..all })
    }

    #[test]
    fn a_pair_is_slow_by_itself_or_with_all_of_a_host() {
        let (test, all) = pairs(|from, to| if (from, to) == (1, 2) { 2.0 } else { 10.0 });
        let slow = all.all_slow(&test, &BTreeMap::new());
        assert_eq!(slow.len(), 1);
        assert_eq!((slow[0].share, slow[0].reasons.len()), (0.2, 0), "{:?}", slow[0].reasons);

        let (test, all) = pairs(|from, _| if from == 3 { 1.0 } else { 10.0 });
        let slow = all.all_slow(&test, &BTreeMap::new());
        assert_eq!(slow.len(), 3);
        for one in slow {
            assert_eq!(
                one.reasons,
                ["all that h3 sends is slow: half of it below 1.00 Gbit/s, of all pairs 10.0 Gbit/s"]
            );
        }
    }

    #[test]
    fn what_was_counted_of_a_slow_pair_is_told() {
        let (test, mut all) = pairs(|from, to| if (from, to) == (0, 1) { 5.0 } else { 10.0 });
        all.pairs[0].resent = Some(0.0123);
        all.pairs[0].latency = Some([90.0, 100.0]);
        let card = |speed: &str| Environment {
            cards: [("eth0", speed), ("docker0", "10000 Mbit/s")]
                .map(|(name, speed)| (name.to_owned(), [("speed".to_owned(), speed.to_owned())].into()))
                .into(),
            ..Environment::default()
        };
        let speeds = ["25000 Mbit/s", "1000 Mbit/s", "25000 Mbit/s", "25000 Mbit/s"];
        let machines = speeds.iter().enumerate().map(|(host, speed)| (format!("h{host}"), card(speed))).collect();
        assert_eq!(
            all.slowest(&test, &machines).unwrap().reasons,
            [
                "the speed of h1's card is 1000 Mbit/s, of most hosts' 25000 Mbit/s",
                "1.23 % of the segments that h0 sent were sent again",
                "a round trip takes 90.0 us, where half of all pairs take 20.0 us or less",
            ]
        );
    }

    #[test]
    fn nothing_measured_has_no_slowest() {
        let (test, mut all) = pairs(|_, _| 10.0);
        all.throughput = None;
        all.pairs.iter_mut().for_each(|pair| pair.throughput = None);
        assert_eq!(all.slowest(&test, &BTreeMap::new()), None);
    }
}
