//! Forecasts compared with the results of simulated runs that scatter as the runs from which they were made.

use std::time::Duration;

use rig_verdict::fixture::draws::{Draws, carried};
use rig_verdict::judge::{Rule, judge};

use super::*;

const SUITE: &str = r#"
name = "x"
title = "x"
[defaults]
window = "2s"
warm_up = "100ms"
cool_down = "0s"
[quick]
window = "200ms"
warm_up = "100ms"
cool_down = "0s"
trials = 3
[testbed.two]
nodes = ["a", "b"]
wire = { mtu = 1500 }
"#;

/// Scenarios of the ratios to the first that they have in truth, and claims about each.
fn suite(ids: &[&str], claims: &[&str]) -> Suite {
    let scenario = |id: &&str| {
        format!(
            "[[scenario]]\nid = \"{id}\"\nname = \"{id}\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
             load = {{ kind = \"tcp-stream\", message = \"128k\" }}\n"
        )
    };
    let claim = |holds: &&str| format!("[[claim]]\ntext = \"{holds}\"\nholds = \"{holds}\"\n");
    let text: String = ids.iter().map(scenario).chain(claims.iter().map(claim)).collect();
    Suite::parse("x.toml", &format!("{SUITE}{text}")).unwrap()
}

/// Blocks on a machine that wanders by 10 % from one to the next; each scenario's ratio and scatter.
fn blocks(draws: &mut Draws, blocks: u32, scenarios: &[(&'static str, f64, f64)]) -> Vec<TrialRecord> {
    let mut trials = Vec::new();
    for block in 1..=blocks {
        let speed = 1000.0 * (0.1 * draws.normal()).exp();
        for (id, ratio, scatter) in scenarios {
            trials.push(carried(id, Some(block), speed * ratio * (scatter * draws.normal()).exp()));
        }
    }
    trials
}

fn forecast(suite: &Suite, seconds: u64, past: &[TrialRecord]) -> Forecast {
    let window = Some(Duration::from_secs(2));
    let learnt = if past.is_empty() { ForecastBasis::Nothing } else { ForecastBasis::Before(past.len()) };
    Forecast::of(suite, &suite.timing, Duration::from_secs(seconds), window, past, learnt).unwrap()
}

fn made(forecast: &Forecast) -> u32 {
    let Repeat::Within(budget) = forecast.timing.repeat else { panic!("a time was given") };
    budget.blocks
}

const TRUTH: [(&str, f64, f64); 3] = [("A", 1.0, 0.01), ("B", 0.7, 0.01), ("C", 0.95, 0.06)];
const CLAIMS: [&str; 3] =
    ["B.throughput <= 0.8 * A.throughput", "C.throughput <= 1.0 * A.throughput", "C.throughput >= 0.5 * A.throughput"];

#[test]
fn each_claim_is_as_wide_as_its_own_blocks_scatter() {
    let suite = suite(&["A", "B", "C"], &CLAIMS);
    let mut draws = Draws(21);
    let past = blocks(&mut draws, 20, &TRUTH);
    let forecast = forecast(&suite, 90, &past);
    let n = made(&forecast);
    assert!((10..16).contains(&n), "{n} blocks of three trials of 2.3 s");
    let rule = Rule { level: suite.level(), planned: Some(n), is_over: true };
    let claims: Vec<&Claim> = suite.claims.iter().collect();
    let runs: Vec<_> = (0..40).map(|_| judge(&claims, &blocks(&mut draws, n, &TRUTH), &rule)).collect();
    for (index, expected) in forecast.claims.iter().enumerate() {
        let half = |run: &Vec<rig_verdict::judge::Ruling>| {
            let interval = run[index].judgement.interval.unwrap();
            (interval.high / interval.low).ln() / 2.0
        };
        let median = runs.iter().map(half).collect::<Sample>().median().unwrap();
        let ratio = expected.half_width.unwrap() / median;
        assert!((0.6..1.6).contains(&ratio), "{}: {ratio}", expected.text);
    }
    let widths: Vec<f64> = forecast.claims.iter().map(|claim| claim.half_width.unwrap()).collect();
    assert!(widths[1] > 2.0 * widths[0], "C scatters more than B: {widths:?}");
}

#[test]
fn what_is_said_to_be_decided_mostly_is() {
    let suite = suite(&["A", "B", "C"], &CLAIMS);
    let claims: Vec<&Claim> = suite.claims.iter().collect();
    let (mut draws, mut decided, mut said) = (Draws(22), [0, 0], [0, 0]);
    for _ in 0..40 {
        let forecast = forecast(&suite, 60, &blocks(&mut draws, 12, &TRUTH));
        let n = made(&forecast);
        let rule = Rule { level: suite.level(), planned: Some(n), is_over: true };
        let run = judge(&claims, &blocks(&mut draws, n, &TRUTH), &rule);
        for (expected, ruling) in forecast.claims.iter().zip(run) {
            let place = usize::from(expected.is_decided.unwrap());
            said[place] += 1;
            decided[place] += u32::from(ruling.is_decided());
        }
    }
    assert!(said[0] > 20 && said[1] > 60, "{said:?}");
    assert!(decided[1] * 10 >= said[1] * 7, "said to be decided: {decided:?} of {said:?}");
    assert!(decided[0] * 10 <= said[0] * 7, "said to stay open: {decided:?} of {said:?}");
}

#[test]
fn a_forecast_says_what_few_blocks_may_leave_open() {
    let suite = suite(&["A", "B", "C"], &CLAIMS);
    let told = forecast(&suite, 30, &blocks(&mut Draws(23), 12, &TRUTH)).to_string();
    assert!(
        told.contains("2 of 3 claims are each decided by four of five such runs; these may stay undecided:"),
        "{told}"
    );
    assert!(told.contains(&format!("\n  {} (it was within ", CLAIMS[1])), "{told}");
    let nothing = forecast(&suite, 30, &[]).to_string();
    assert!(nothing.contains("from an assumed scatter of 5 %") && !nothing.contains("decide"), "{nothing}");
}

/// The third surest of three is asked as one alone, and is not decided where the one before it is not.
#[test]
fn the_correction_for_many_claims_is_expected_too() {
    let of = |distance: f64| BlockSpread { deviation: 0.1, blocks: 9, distance: Some(distance), is_ratio: true };
    let decided = |outlooks: &[BlockSpread]| -> Vec<Option<bool>> {
        expect(outlooks, 16, Level::default()).into_iter().map(|of| of.is_decided).collect()
    };
    // Of one: t(97.5 %, 15) = 2.131, and 0.842 more; of two, t(98.75 %, 15) = 2.490.
    assert_eq!(decided(&[of(0.075)]), [Some(true)]);
    assert_eq!(decided(&[of(0.074)]), [Some(false)]);
    assert_eq!(decided(&[of(0.075), of(0.084)]), [Some(true), Some(true)]);
    assert_eq!(decided(&[of(0.075), of(0.083)]), [Some(false), Some(false)]);
    let unknown = BlockSpread { distance: None, ..of(0.0) };
    assert_eq!(decided(&[of(0.083), unknown]), [Some(false), None]);
}

#[test]
fn first_blocks_have_an_eighth_of_the_time_at_most() {
    let suite = suite(&["A", "B", "C"], &CLAIMS);
    let first = |seconds| FirstBlocks::of(&suite, &suite.timing, Duration::from_secs(seconds));
    // A trial takes 0.2 s and 0.1 s of warm-up, and 0.4 s to set up.
    assert_eq!(first(50), None, "three blocks of three take 6.3 s");
    let FirstBlocks { blocks, timing, most, .. } = first(80).unwrap();
    assert_eq!((blocks, timing.phases.window, most), (3, Duration::from_millis(200), Duration::from_secs(10)));
    let words = first(80).unwrap().to_string();
    assert!(words.starts_with("3 short blocks, about 6"), "{words}");
    let told = Forecast::of(
        &suite,
        &suite.timing,
        Duration::from_secs(60),
        None,
        &super::tests::blocks(&mut Draws(24), blocks, &TRUTH),
        ForecastBasis::FirstBlocks(9),
    );
    let told = told.unwrap().to_string();
    assert!(told.contains("from the scatter of 9 short trials made first"), "{told}");
}

#[test]
fn few_blocks_that_agree_are_not_taken_at_their_word() {
    let of = |deviation: f64, blocks: usize| Some(BlockSpread { deviation, blocks, distance: None, is_ratio: true });
    let deviations = |outlooks: Vec<Option<BlockSpread>>| -> Vec<Option<f64>> {
        moderated(outlooks).into_iter().map(|of| of.map(|of| of.deviation)).collect()
    };
    // The likely variance is the middle of (0 + 0.04^2) / 2 and 0.05^2, which is 0.00165. Three blocks have 2 of 6 degrees of freedom.
    let told = deviations(vec![of(0.0, 3), None, of(0.04, 3)]);
    assert!((told[0].unwrap() - (4.0f64 * 0.00165 / 6.0).sqrt()).abs() < 1e-9, "{told:?}");
    assert!((told[2].unwrap() - ((2.0f64 * 0.0016 + 4.0 * 0.00165) / 6.0).sqrt()).abs() < 1e-9, "{told:?}");
    assert_eq!(deviations(vec![of(0.001, 6), of(0.2, 9)]), [Some(0.001), Some(0.2)]);
}
