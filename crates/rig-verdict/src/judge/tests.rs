//! Claims about runs that are made up: what counts as evidence, and how often the verdicts are wrong.

use rig_facts::record::{CpuUse, NodeShare};
use rig_stats::blocks::sequential::looks;

use super::*;
use crate::fixture::draws::{Draws, carried};

fn claims(expressions: &[&str]) -> Vec<Claim> {
    expressions.iter().map(|expression| Claim::parse("x", expression).unwrap()).collect()
}

/// Blocks of A and B on a machine whose speed wanders by `wander` between blocks, with a ratio B / A.
fn run(draws: &mut Draws, blocks: u32, ratio: f64, wander: f64, scatter: f64) -> Vec<TrialRecord> {
    let mut trials = Vec::new();
    for block in 1..=blocks {
        let speed = 1000.0 * (wander * draws.normal()).exp();
        for (id, factor) in [("A", 1.0), ("B", ratio)] {
            trials.push(carried(id, Some(block), speed * factor * (scatter * draws.normal()).exp()));
        }
    }
    trials
}

fn fixed() -> Rule {
    Rule { level: Level::default(), planned: None, is_over: true }
}

fn rule_on(expressions: &[&str], trials: &[TrialRecord], rule: &Rule) -> Vec<Ruling> {
    let claims = claims(expressions);
    judge(&claims.iter().collect::<Vec<_>>(), trials, rule)
}

#[test]
fn blocks_decide_what_independent_samples_cannot() {
    let trials = run(&mut Draws(1), 10, 0.9, 0.15, 0.005);
    let claim = ["B.throughput <= 0.95 * A.throughput"];
    let by_block = &rule_on(&claim, &trials, &fixed())[0];
    assert_eq!((by_block.judgement.verdict, by_block.evidence), (Verdict::Holds, Evidence::Blocks(10)));
    assert!(by_block.judgement.words.contains("10 blocks"), "{}", by_block.judgement.words);
    let old: Vec<TrialRecord> = trials.into_iter().map(|trial| TrialRecord { block: None, ..trial }).collect();
    let without = &rule_on(&claim, &old, &fixed())[0];
    assert_eq!((without.judgement.verdict, without.evidence), (Verdict::Undecided, Evidence::Samples));
    assert!(without.judgement.words.contains("the run has no blocks"), "{}", without.judgement.words);
}

/// Programs tell it from what readers are told: both say that the claim does not hold here, and whose claim it is.
#[test]
fn what_a_study_found_elsewhere_is_refuted_and_said_to_differ() {
    let trials = run(&mut Draws(1), 10, 0.9, 0.15, 0.005);
    let expressions = ["B.throughput >= A.throughput", "B.throughput < A.throughput"];
    let data = |is_studys| -> Vec<(Verdict, bool)> {
        let rulings = rule_on(&expressions, &trials, &fixed());
        let of =
            |(claim, ruling): (&Claim, &Ruling)| ClaimData::new(claim, ruling, ruling.judgement.verdict, is_studys);
        let said = claims(&expressions).iter().zip(&rulings).map(of).collect::<Vec<_>>();
        said.iter().map(|one| (one.verdict, one.differs_from_study)).collect()
    };
    assert_eq!(data(true), [(Verdict::Refuted, true), (Verdict::Holds, false)]);
    assert_eq!(data(false), [(Verdict::Refuted, false), (Verdict::Holds, false)]);
}

#[test]
fn ratios_in_answers_and_tables_are_paired_as_claims_are() {
    let trials = run(&mut Draws(1), 10, 0.9, 0.15, 0.005);
    let value = |expression: &str, trials: &[TrialRecord]| {
        let value = value(&Claim::value(expression).unwrap(), trials, Level::default());
        let interval = value.interval.unwrap();
        (value.effect.unwrap(), interval.high / interval.low - 1.0)
    };
    let (ratio, width) = value("100 * B.throughput / A.throughput", &trials);
    assert!((ratio - 90.0).abs() < 0.5 && width < 0.02, "{ratio} {width}");
    // One scenario is held against nothing: its mean is uncertain by all that the machine does.
    assert!(value("B.throughput", &trials).1 > 0.1);
    let old: Vec<TrialRecord> = trials.into_iter().map(|trial| TrialRecord { block: None, ..trial }).collect();
    assert!(value("B.throughput / A.throughput", &old).1 > 0.1);
}

#[test]
fn what_is_undecided_says_how_many_blocks_it_takes() {
    let trials = run(&mut Draws(2), 6, 0.97, 0.1, 0.05);
    let ruling = &rule_on(&["B.throughput <= 1.0 * A.throughput"], &trials, &fixed())[0];
    assert_eq!(ruling.judgement.verdict, Verdict::Undecided, "{}", ruling.judgement.words);
    assert!(ruling.blocks_needed.is_some_and(|needed| needed > 6), "{ruling:?}");
    assert!(ruling.judgement.words.contains("blocks in all should decide it"), "{}", ruling.judgement.words);
}

/// Three of four blocks at one value and the fourth at another: their centre is above 1, and says nothing of the fourth.
#[test]
fn a_ratio_of_two_values_is_decided_only_where_both_agree() {
    let mut draws = Draws(4);
    let mut of_two = |low: f64| -> Ruling {
        let trials: Vec<TrialRecord> = (1..=16)
            .flat_map(|block| {
                let ratio = if block % 4 == 0 { low } else { 1.5 };
                run(&mut draws, 1, ratio, 0.0, 0.002)
                    .into_iter()
                    .map(move |trial| TrialRecord { block: Some(block), ..trial })
            })
            .collect();
        rule_on(&["B.throughput > A.throughput"], &trials, &fixed()).remove(0)
    };
    let apart = of_two(0.95);
    let words = &apart.judgement.words;
    assert_eq!(apart.judgement.verdict, Verdict::Undecided, "{words}");
    assert!(words.contains("two-valued, about 0.9") && words.contains("in 4 blocks and 1.5"), "{words}");
    assert!(words.contains("in 12; one of the two is on either side"), "{words}");
    assert_eq!(apart.blocks_needed, None);
    let together = of_two(1.2);
    assert_eq!(together.judgement.verdict, Verdict::Holds, "{}", together.judgement.words);
}

#[test]
fn fewer_than_three_blocks_or_trials_decide_nothing() {
    let claim = ["B.throughput <= 0.9 * A.throughput"];
    for (blocks, expected) in [(2, Verdict::Undecided), (3, Verdict::Holds)] {
        let trials = run(&mut Draws(5), blocks, 0.5, 0.0, 0.0001);
        let old: Vec<TrialRecord> = trials.iter().map(|trial| TrialRecord { block: None, ..trial.clone() }).collect();
        for trials in [trials, old] {
            let judgement = &rule_on(&claim, &trials, &fixed())[0].judgement;
            assert_eq!(judgement.verdict, expected, "{}", judgement.words);
            assert_eq!(judgement.words.contains("fewer than 3"), blocks == 2, "{}", judgement.words);
        }
    }
}

#[test]
fn scenarios_that_share_few_blocks_count_as_independent() {
    let mut trials = run(&mut Draws(3), 3, 0.5, 0.0, 0.01);
    trials.extend((4..=10).map(|block| carried("A", Some(block), 1000.0)));
    let ruling = &rule_on(&["B.throughput <= 0.9 * A.throughput"], &trials, &fixed())[0];
    assert_eq!(ruling.evidence, Evidence::Samples);
    assert!(ruling.judgement.words.contains("share too few blocks"), "{}", ruling.judgement.words);
}

/// A scenario rests once its claims are decided, and others of the claim go on.
#[test]
fn blocks_until_a_scenario_rests_belong_together() {
    let mut trials = run(&mut Draws(8), 6, 0.9, 0.2, 0.005);
    let mut draws = Draws(9);
    trials.extend((7..=102).map(|block| carried("A", Some(block), 1000.0 * (0.2 * draws.normal()).exp())));
    let ruling = &rule_on(&["B.throughput <= 0.95 * A.throughput"], &trials, &fixed())[0];
    assert_eq!((ruling.judgement.verdict, ruling.evidence), (Verdict::Holds, Evidence::Blocks(6)), "{ruling:?}");
}

/// Blocks of A and B, which costs 10 % more CPU time; in every third trial other programs had some, too.
fn disturbed(is_known: bool) -> Vec<TrialRecord> {
    let mut draws = Draws(10);
    let mut trials = Vec::new();
    for block in 1..=12 {
        for (id, cost) in [("A", 20.0), ("B", 22.0)] {
            let mut record = carried(id, Some(block), 1000.0);
            let own = cost * (0.005 * draws.normal()).exp();
            let others = if (block + u32::from(id == "B")) % 3 == 0 { 40.0 * draws.uniform() } else { 0.0 };
            for node in &mut record.nodes {
                for cpu in &mut node.cpus {
                    let none = CpuUse { cpu: cpu.cpu, ..Default::default() };
                    *cpu = CpuUse { system: own + others, softirq: 2.0, idle: 98.0 - own - others, ..none };
                }
                let processes = own * node.cpus.len() as f64;
                node.share = is_known.then_some(NodeShare { processes, ..Default::default() });
            }
            trials.push(record);
        }
    }
    trials
}

#[test]
fn the_time_of_other_programs_is_taken_out() {
    let claim = ["B.sender.cpu <= 1.2 * A.sender.cpu"];
    let known = &rule_on(&claim, &disturbed(true), &fixed())[0];
    assert_eq!((known.judgement.verdict, known.adjusted_for), (Verdict::Holds, Some("other programs")));
    let effect = known.judgement.effect.unwrap();
    assert!((effect - 24.0 / 22.0).abs() < 0.01, "{effect}");
    assert!(known.judgement.words.contains("adjusted for other programs"), "{}", known.judgement.words);
    let unknown = &rule_on(&claim, &disturbed(false), &fixed())[0];
    assert_eq!((unknown.judgement.verdict, unknown.adjusted_for), (Verdict::Undecided, None));
}

/// What is said of the time that a decision takes is about right: with so many blocks most such runs decide.
#[test]
fn as_many_blocks_as_were_said_decide() {
    let (mut draws, mut said, mut decided) = (Draws(11), 0, 0);
    let claim = ["B.throughput <= 1.0 * A.throughput"];
    for _ in 0..60 {
        let first = &rule_on(&claim, &run(&mut draws, 8, 0.96, 0.1, 0.05), &fixed())[0];
        if let Some(needed) = first.blocks_needed.filter(|needed| *needed < 60) {
            said += 1;
            let ruling = &rule_on(&claim, &run(&mut draws, needed, 0.96, 0.1, 0.05), &fixed())[0];
            decided += u32::from(ruling.is_decided());
        }
    }
    assert!(said >= 20 && 3 * decided >= said, "{decided} of {said}");
}

#[test]
fn what_is_not_sure_enough_among_many_needs_more_than_one_block() {
    let ratio = |block: u32| f64::exp(-0.035 + if block.is_multiple_of(2) { 0.04 } else { -0.04 });
    let both = |block| [carried("A", Some(block), 1000.0), carried("B", Some(block), 1000.0 * ratio(block))];
    let trials: Vec<TrialRecord> = (1..=10).flat_map(both).collect();
    let claim = "B.throughput <= 1.0 * A.throughput";
    let alone = &rule_on(&[claim], &trials, &fixed())[0];
    let among = &rule_on(&[claim; 18], &trials, &fixed())[0];
    assert_eq!(among.judgement.verdict, Verdict::Undecided, "{}", among.judgement.words);
    let needed = among.blocks_needed.unwrap();
    assert!(alone.is_decided() || needed > alone.blocks_needed.unwrap(), "{alone:?} {needed}");
    assert!(
        needed > 13 && among.judgement.words.contains(&format!("about {needed} blocks")),
        "{}",
        among.judgement.words
    );
}

#[test]
fn a_single_block_decides_nothing_but_facts() {
    let trials = run(&mut Draws(4), 1, 0.5, 0.0, 0.01);
    let ruling = &rule_on(&["B.throughput <= 0.9 * A.throughput"], &trials, &fixed())[0];
    assert_eq!(ruling.judgement.verdict, Verdict::Undecided);
    assert!(ruling.judgement.words.contains("a single block"), "{}", ruling.judgement.words);
    let is_fact = |expression: &str| claims(&[expression])[0].is_fact();
    assert!(is_fact("A.failed <= 0") && is_fact("A.packets_out <= 3.03 * A.connections"));
    assert!(is_fact("A.concurrent >= 9900"));
    for sampled in ["A.connections >= 100", "A.packets_out <= B.packets_out", "A.throughput <= 1mbit"] {
        assert!(!is_fact(sampled), "{sampled}");
    }
    let fact = |values: &[f64]| {
        let trials: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
        claims(&["A.failed <= 0"])[0].evaluate_fact(&trials).unwrap()
    };
    assert_eq!(fact(&[0.0]).verdict, Verdict::Holds);
    let failed = fact(&[0.0, 0.0, 3.0]);
    assert_eq!(failed.verdict, Verdict::Refuted);
    assert!(failed.words.contains("1 of 3 do not hold"), "{}", failed.words);
}

/// Of runs with two equal scenarios, how many claims of each kind are answered wrongly.
fn wrong(rounds: u32, expressions: &[&str], planned: Option<u32>, blocks: u32) -> Vec<f64> {
    let mut draws = Draws(5);
    let mut wrong = vec![0; expressions.len()];
    let rule = Rule { level: Level::default(), planned, is_over: true };
    for _ in 0..rounds {
        let trials = run(&mut draws, blocks, 1.0, 0.1, 0.03);
        for (count, ruling) in wrong.iter_mut().zip(rule_on(expressions, &trials, &rule)) {
            *count += u32::from(ruling.is_decided());
        }
    }
    wrong.into_iter().map(|count| f64::from(count) / f64::from(rounds)).collect()
}

/// Claims with their threshold at the truth are decided as seldom as the level says, looked at once or several times; of
/// several together hardly any is.
#[test]
fn errors_are_as_rare_as_promised() {
    let one = ["B.throughput >= 1.0 * A.throughput"];
    for planned in [None, Some(12)] {
        let rate = wrong(300, &one, planned, 12)[0];
        // Two sides of 2.5 % each, with three standard deviations of 300.
        assert!(rate <= 0.088, "{planned:?}: {rate}");
    }
    let many = [
        "B.throughput >= 1.0 * A.throughput",
        "A.throughput >= 1.0 * B.throughput",
        "B.throughput <= 1.0 * A.throughput",
    ];
    let rates = wrong(300, &many, None, 12);
    assert!(rates.iter().all(|rate| *rate <= 0.05), "{rates:?}");
}

#[test]
fn what_a_look_decided_stays_decided() {
    let mut draws = Draws(6);
    let mut trials = run(&mut draws, 18, 0.8, 0.1, 0.02);
    let claim = ["B.throughput <= 1.0 * A.throughput"];
    let early = Rule { level: Level::default(), planned: Some(30), is_over: false };
    let before: Vec<TrialRecord> = trials.iter().filter(|trial| trial.block <= Some(12)).cloned().collect();
    assert!(looks(30).contains(&12));
    assert_eq!(
        rule_on(&claim, &before, &early)[0].judgement.verdict,
        Verdict::Holds,
        "by the look after 6 blocks or 12"
    );
    // Trials that are made later, for other claims, do not take the verdict back.
    trials.extend((19..=30).flat_map(|block| [carried("A", Some(block), 100.0), carried("B", Some(block), 300.0)]));
    let over = Rule { is_over: true, ..early };
    let ruling = &rule_on(&claim, &trials, &over)[0];
    assert_eq!(ruling.judgement.verdict, Verdict::Holds);
    assert!(ruling.judgement.words.contains("decided after"), "{}", ruling.judgement.words);
    // Without looks it is another question.
    assert_ne!(rule_on(&claim, &trials, &fixed())[0].judgement.verdict, Verdict::Holds);
}

#[test]
fn equality_within_a_margin_can_hold() {
    let trials = run(&mut Draws(7), 12, 1.0, 0.1, 0.02);
    let ruling = &rule_on(&["B.throughput / A.throughput within 0.95 .. 1.05"], &trials, &fixed())[0];
    assert_eq!(ruling.judgement.verdict, Verdict::Holds, "{}", ruling.judgement.words);
    let trials = run(&mut Draws(7), 12, 1.2, 0.1, 0.02);
    let ruling = &rule_on(&["B.throughput / A.throughput within 0.95 .. 1.05"], &trials, &fixed())[0];
    assert_eq!(ruling.judgement.verdict, Verdict::Refuted, "{}", ruling.judgement.words);
}

fn without_blocks(trials: Vec<TrialRecord>) -> Vec<TrialRecord> {
    trials.into_iter().map(|trial| TrialRecord { block: None, ..trial }).collect()
}

/// Limits of searches and runs without blocks have no block to be judged by, and are as many questions as others are.
#[test]
fn independent_samples_are_corrected_together_with_all_others() {
    let claim = "B.throughput <= 1.0 * A.throughput";
    let trials = without_blocks(run(&mut Draws(12), 10, 0.98, 0.0, 0.025));
    let parsed = claims(&[claim]).remove(0);
    let p = parsed.least_p(&|figure| Trials::of(&trials).sample(figure));
    assert!((0.0009..0.05).contains(&p), "{p}");
    let decided = |p: f64| {
        let level = Level::new(100.0 * (1.0 - p)).unwrap();
        parsed.evaluate(level, &|figure| Trials::of(&trials).sample(figure)).verdict != Verdict::Undecided
    };
    assert!(decided(p * 1.01) && !decided(p * 0.99), "the interval of that level just ends at what is claimed");
    assert_eq!(rule_on(&[claim], &trials, &fixed())[0].judgement.verdict, Verdict::Holds);
    let among = &rule_on(&[claim; 60], &trials, &fixed())[0].judgement;
    assert_eq!(among.verdict, Verdict::Undecided);
    assert!(among.words.contains("not with enough certainty as one of 60 claims"), "{}", among.words);

    let running = Rule { planned: Some(30), is_over: false, ..fixed() };
    let early = &rule_on(&[claim], &trials, &running)[0].judgement;
    assert_eq!(early.verdict, Verdict::Undecided);
    assert!(early.words.contains("judged when the run is over"), "{}", early.words);
}

/// In how many of so many runs of equal things any of their claims is decided, of which every other has no blocks.
#[test]
fn of_claims_of_both_kinds_hardly_any_is_wrong() {
    let mut draws = Draws(13);
    let expressions = [
        "B.throughput >= 1.0 * A.throughput",
        "D.throughput >= 1.0 * C.throughput",
        "F.throughput <= 1.0 * E.throughput",
    ];
    let rounds = 200;
    let wrong = (0..rounds).filter(|_| {
        let mut trials = run(&mut draws, 8, 1.0, 0.1, 0.03);
        for [one, other] in [["C", "D"], ["E", "F"]] {
            trials.extend(without_blocks(run(&mut draws, 8, 1.0, 0.0, 0.03)).into_iter().map(|trial| {
                let scenario = if trial.scenario == "A" { one } else { other }.to_owned();
                TrialRecord { scenario, ..trial }
            }));
        }
        rule_on(&expressions, &trials, &fixed()).iter().any(Ruling::is_decided)
    });
    // 5 % of all such runs, with three standard deviations of 200.
    let wrong = wrong.count();
    println!("{wrong} of {rounds}");
    assert!(wrong <= 19, "{wrong} of {rounds}");
}

/// The surer of two is corrected for both, the other for itself alone, whichever kind they are of.
#[test]
fn blocks_and_samples_have_one_order() {
    let block = |p: f64| {
        let mut draws = Draws(14);
        // The claim whose p is nearest to the one that is wanted.
        let runs = (0..400).map(|_| run(&mut draws, 12, 0.98, 0.1, 0.025));
        let parsed = claims(&["B.throughput <= 1.0 * A.throughput"]).remove(0);
        let of = |trials: &Vec<TrialRecord>| Trials::of(trials).by_block(&parsed).unwrap();
        let away = |trials: &Vec<TrialRecord>| (of(trials).against().least() - p).abs();
        of(&runs.min_by(|one, other| away(one).total_cmp(&away(other))).unwrap())
    };
    let claim = block(0.02);
    let p = claim.two_sided(Verdict::Holds, claim.against().least());
    assert!((0.038..0.042).contains(&p), "{p}");
    let decided = |sample: f64| {
        let all = [MeasuredEvidence::Blocks(&claim), MeasuredEvidence::Samples(Verdict::Holds, sample)];
        decide(&all, &fixed()).into_iter().map(|answer| answer.unwrap().0).collect::<Vec<_>>()
    };
    if claim.interval_agrees(Verdict::Holds, Level::default()) {
        assert_eq!(decided(0.019), [Verdict::Holds; 2]);
    }
    assert_eq!(decided(0.03), [Verdict::Undecided; 2], "neither is sure enough as the first of two");
}
