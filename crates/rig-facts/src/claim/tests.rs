use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rig_stats::sample::Resolution;

use super::*;

fn claim(expression: &str) -> Claim {
    Claim::parse("", expression).unwrap_or_else(|e| panic!("{expression}: {e}"))
}

fn error(expression: &str) -> ClaimError {
    match Claim::parse("", expression) {
        Ok(claim) => panic!("{expression} is read as {claim:?}"),
        Err(error) => error,
    }
}

/// Judges with 95 % confidence; `figures` are given by name.
fn judge(expression: &str, figures: &[(&str, &[f64])]) -> Judgement {
    claim(expression).evaluate(Level::default(), &|wanted| {
        figures.iter().find(|(name, _)| wanted.to_string() == *name).map(|(_, values)| values.to_vec().into())
    })
}

/// Judges where the figures of these scenarios are at least what they are.
fn judge_limits(expression: &str, figures: &[(&str, &[f64])], bound: &[&str]) -> Judgement {
    claim(expression).evaluate(Level::default(), &|wanted| {
        let (_, values) = figures.iter().find(|(id, _)| wanted.scenario == *id)?;
        let bound = bound.contains(&wanted.scenario.as_str()).then_some(Bound::AtLeast);
        Some(Sample::from(values.to_vec()).with(Resolution::EXACT, bound))
    })
}

fn verdict(expression: &str, figures: &[(&str, &[f64])]) -> Verdict {
    judge(expression, figures).verdict
}

/// The value of the left side, with figures `A.throughput` = 2, `B.throughput` = 3, `C.throughput` = 5.
fn value(left: &str) -> f64 {
    let claim = claim(&format!("{left} >= 0 * ({left})"));
    let values: Vec<_> = claim
        .figures()
        .iter()
        .map(|figure| match figure.scenario.as_str() {
            "A" => 2.0,
            "B" => 3.0,
            _ => 5.0,
        })
        .collect();
    claim.left.value(&values)
}

fn near(actual: f64, expected: f64) {
    assert!((actual - expected).abs() <= 1e-4 * expected.abs(), "{actual} is not {expected}");
}

/// Where the generator set the limit, more may be possible: that proves a floor and refutes none.
#[test]
fn a_limit_of_the_generator_proves_at_least_and_refutes_nothing() {
    let figures: [(&str, &[f64]); 3] =
        [("A", &[100.0, 101.0, 99.0]), ("B", &[50.0, 50.5, 49.5]), ("C", &[200.0, 201.0, 199.0])];
    let verdict = |expression: &str, bound: &[&str]| judge_limits(expression, &figures, bound).verdict;
    assert_eq!(verdict("A.limit >= 1.5 * B.limit", &["A"]), Verdict::Holds);
    assert_eq!(verdict("A.limit >= 3 * B.limit", &["A"]), Verdict::Undecided);
    assert_eq!(verdict("A.limit >= 3 * B.limit", &[]), Verdict::Refuted);
    assert_eq!(verdict("A.limit <= 3 * B.limit", &["A"]), Verdict::Undecided);
    assert_eq!(verdict("A.limit <= 1.5 * B.limit", &["A"]), Verdict::Refuted);
    assert_eq!(verdict("A.limit within 0.1 .. 900", &["A"]), Verdict::Undecided);
    // As the divisor it proves the other way round.
    assert_eq!(verdict("A.limit >= 1.5 * B.limit", &["B"]), Verdict::Undecided);
    assert_eq!(verdict("A.limit <= 3 * B.limit", &["B"]), Verdict::Holds);
    for expression in ["A.limit >= 1.5 * B.limit", "A.limit >= 3 * B.limit", "A.limit - B.limit >= 10"] {
        assert_eq!(verdict(expression, &["A", "B"]), Verdict::Undecided, "{expression}");
    }
    assert_eq!(verdict("A.limit + B.limit >= 100", &["A", "B"]), Verdict::Holds);
    // The larger of both is known, and the other may be larger still.
    assert_eq!(verdict("max(A.limit, C.limit) <= 300", &["A"]), Verdict::Undecided);
    let judgement = judge_limits("A.limit >= 3 * B.limit", &figures, &["A"]);
    assert_eq!(judgement.bound, Some(Bound::AtLeast));
    assert!(judgement.words.contains("is >= 2.00 ("), "{}", judgement.words);
    assert!(judgement.words.ends_with("the true value may lie anywhere beyond it"), "{}", judgement.words);
}

#[test]
fn an_effect_cannot_lie_where_its_figure_cannot() {
    let judge = |expression, values: &[f64]| judge(expression, &[(expression.split(' ').next().unwrap(), values)]);
    let interval = judge("A.sender.cpu <= 50", &[10.0, 90.0]).interval.unwrap();
    assert_eq!((interval.low, interval.high), (0.0, 100.0));
    let interval = judge("A.throughput >= 1Mbit", &[1e6, 5e6]).interval.unwrap();
    assert!(interval.low == 0.0 && interval.high > 6e6, "{interval:?}");
}

#[test]
fn operators_bind_as_usual() {
    assert_eq!(value("A.throughput + B.throughput * 5"), 17.0);
    assert_eq!(value("(A.throughput + B.throughput) * 5"), 25.0);
    assert_eq!(value("C.throughput - B.throughput - A.throughput"), 0.0);
    assert_eq!(value("C.throughput - (B.throughput - A.throughput)"), 4.0);
    assert_eq!(value("C.throughput / B.throughput / 2"), 5.0 / 3.0 / 2.0);
    assert_eq!(value("C.throughput / (B.throughput / 2)"), 5.0 / 1.5);
    assert_eq!(value("-A.throughput + C.throughput"), 3.0);
    assert_eq!(value("C.throughput * -2"), -10.0);
    assert_eq!(value("min(A.throughput, B.throughput, C.throughput)"), 2.0);
    assert_eq!(value("max(A.throughput, B.throughput + A.throughput * 2, C.throughput)"), 7.0);
    assert_eq!(value("2e1 * A.throughput * 0.5"), 20.0);
}

#[test]
fn figures_are_named_once_in_order_of_appearance() {
    let claim = claim("D.sender.cpu / A-1.throughput <= D.sender.cpu / B_2.receiver.throughput");
    let names: Vec<_> = claim.figures().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["D.sender.cpu", "A-1.throughput", "B_2.throughput"]);
}

#[test]
fn functions_and_keywords_may_name_scenarios() {
    let claim = claim("min.throughput / max.throughput within 1..2");
    assert_eq!(claim.figures().len(), 2);
    assert_eq!(claim.test, Test::Within { low: 1.0, high: 2.0 });
    assert_eq!(self::claim("within.throughput within 1Mbit .. 2Mbit").figures().len(), 1);
}

#[test]
fn text_and_expression_are_kept() {
    let claim = Claim::parse("The overlay is cheap", "D.throughput > B.throughput").unwrap();
    assert_eq!((claim.text(), claim.expression()), ("The overlay is cheap", "D.throughput > B.throughput"));
}

#[test]
fn errors_point_at_the_column() {
    let cases = [
        ("", 1, "a figure or a number is expected, the end of the expression found"),
        ("D.throughput", 13, "the expression compares nothing"),
        ("D.throughput >=", 16, "a figure or a number is expected, the end of the expression found"),
        ("D.troughput >= 1Mbit", 3, "unknown metric `troughput`"),
        ("D.burst.middle.cpu >= 1", 9, "unknown side `middle`"),
        ("D.middle.cpu >= 1", 10, "`D.middle.cpu` does not say whose cpu it is"),
        ("1 + D.cpu >= 1", 7, "`D.cpu` does not say whose cpu it is"),
        ("1 + D >= 1", 5, "`D` is not a figure"),
        ("a.b.c.d.e >= 1", 1, "`a.b.c.d.e` has too many parts"),
        ("D. >= 1", 4, "a side or a metric is expected after `.`, `>=` found"),
        ("D.throughput == B.throughput", 14, "unexpected `=`"),
        ("D.throughput >= 0.9B.throughput", 17, "`0.9B` is not a bit rate: the unit `B` is unknown"),
        ("2D.throughput >= 1Mbit", 1, "`2D` is not a bit rate"),
        ("D.throughput >= 90%", 19, "unexpected `%`"),
        ("D.throughput \u{2265} 1Mbit", 14, "unexpected `\u{2265}`"),
        ("\u{e4}.throughput > 1Mbit", 1, "unexpected `\u{e4}`"),
        ("(D.throughput >= 1Mbit", 15, "`)` is expected, `>=` found"),
        ("(D.throughput / 2", 18, "`)` is expected, the end of the expression found"),
        ("D.throughput) >= 1Mbit", 13, "an operator or a comparison is expected, `)` found"),
        ("D.throughput B.throughput", 14, "an operator or a comparison is expected, `B` found"),
        ("1Mbit <= D.throughput <= 2Mbit", 23, "there is a second comparison"),
        ("D.throughput >= 1Mbit 2", 23, "the end of the expression is expected, `2` found"),
        ("2 >= 1", 1, "the expression names no figure"),
        ("D.retransmits / 0 >= 1", 17, "division by zero"),
        ("D.retransmits / (1 - 1) >= 1", 17, "division by zero"),
        ("D.retransmits >= 1e999", 18, "the number `1e999` is too large"),
        ("D.retransmits >= 1e300 * 1e300", 18, "the number is too large"),
        ("avg(D.throughput) >= 1Mbit", 1, "unknown function `avg`"),
        ("min() >= 1", 5, "a figure or a number is expected, `)` found"),
        ("min(D.throughput, B.retransmits) >= 1Mbit", 17, "a throughput and a plain number cannot be compared"),
        ("min(D.throughput B.throughput) >= 1Mbit", 18, "`)` is expected, `B` found"),
        ("D.throughput >= 600", 14, "a throughput and a plain number cannot be compared"),
        ("D.throughput + 1 >= 600Mbit", 14, "a throughput and a plain number cannot be added"),
        ("D.throughput - 1 >= 600Mbit", 14, "a throughput and a plain number cannot be subtracted"),
        ("D.throughput * B.throughput >= 1", 29, "a value with another power of throughput and a plain number"),
        ("D.throughput within 4Mbit .. 3Mbit", 21, "the lower bound of `within` is above the upper one"),
        ("D.throughput within 4Mbit", 26, "`..` is expected, the end of the expression found"),
        ("D.throughput within 0bit .. B.throughput", 29, "a bound of `within` names a figure"),
        ("3 within 1 .. 4", 1, "the value before `within` names no figure"),
        ("D.latency_p99 <= 100", 15, "a time and a plain number cannot be compared"),
        ("D.latency_p99 <= 600Mbit", 15, "a time and a throughput cannot be compared"),
        ("D.jitter * D.throughput >= 1", 25, "a product of throughputs and times and a plain number"),
        ("D.sender.transactions > 1", 3, "the sender has no transactions"),
        ("D.jitter <= 0.1ns", 13, "`0.1ns` is not a length of time: it is not a whole number of nanoseconds"),
        ("D.throughput-B.throughput > 0bit", 3, "unknown side `throughput-B`"),
        ("D.throughput - B.throughput- > 0bit", 18, "unknown metric `throughput-`"),
    ];
    for (expression, column, what) in cases {
        let error = error(expression);
        assert!(error.what.starts_with(what), "{expression}: {error}");
        assert_eq!(error.column, column, "{expression}: {error}");
        assert!(!error.hint.is_empty());
    }
}

#[test]
fn errors_read_well() {
    assert_eq!(
        error("D.throughput-B.throughput > 0bit").to_string(),
        "column 3: unknown side `throughput-B`; \
         a `-` inside a name belongs to the name: put spaces around it to subtract"
    );
    assert_eq!(
        error("B.cpu <= 50").to_string(),
        "column 3: `B.cpu` does not say whose cpu it is; write `B.local.cpu` for the end that connects, or \
         `B.remote.cpu` for the one that listens; a load that goes one way also has a `sender` and a `receiver`"
    );
    assert_eq!(
        error("D.throughput >= 600").to_string(),
        "column 14: a throughput and a plain number cannot be compared; \
         give a number that means a throughput its unit, for example `600Mbit`"
    );
}

#[test]
fn times_are_compared_with_times() {
    let figures: &[(&str, &[f64])] = &[("D.latency_p99", &[90.0, 91.0, 92.0]), ("B.latency_p99", &[50.0, 50.0, 50.0])];
    let judgement = judge("D.latency_p99 <= 0.1ms", figures);
    assert_eq!((judgement.verdict, judgement.unit), (Verdict::Holds, EffectUnit::Microseconds));
    assert_eq!(judgement.threshold, Threshold::AtMost(100.0));
    assert!(judgement.words.starts_with("D.latency_p99 is 91us (95 % interval"), "{}", judgement.words);
    assert!(judgement.words.ends_with("claimed at most 100us"), "{}", judgement.words);
    assert_eq!(verdict("D.latency_p99 <= B.latency_p99 + 50us", figures), Verdict::Holds);
    assert_eq!(verdict("D.latency_p99 <= 1.5 * B.latency_p99", figures), Verdict::Refuted);
    let show = |us| EffectUnit::Microseconds.show(us);
    assert_eq!([show(0.0), show(12.345), show(-1500.0), show(2.5e6)], ["0us", "12.35us", "-1.5ms", "2.5s"]);
}

#[test]
fn size_and_depth_are_limited() {
    let nested = |depth: usize| format!("{}D.retransmits{} > 1", "(".repeat(depth), ")".repeat(depth));
    assert!(Claim::parse("", &nested(30)).is_ok());
    assert!(error(&nested(40)).what.contains("levels of parentheses"));
    let long = format!("D.retransmits{} > 1", " + 1".repeat(240));
    assert!(Claim::parse("", &long).is_ok());
    assert!(error(&format!("D.retransmits{} > 1", " + 1".repeat(250))).what.contains("longer than 1000"));
}

/// D / B = 0.91; the relative error of D's mean is 1 / sqrt(3) / 91, B has none; t(95 %, 2) = 4.302653:
/// 0.91 / 1.027674 to 0.91 * 1.027674.
#[test]
fn a_ratio_of_two_scenarios_by_hand() {
    let figures: &[(&str, &[f64])] = &[("D.throughput", &[90e6, 91e6, 92e6]), ("B.throughput", &[1e8, 1e8, 1e8])];
    let judgement = judge("D.throughput >= 0.9 * B.throughput", figures);
    assert_eq!(judgement.verdict, Verdict::Undecided);
    assert_eq!(judgement.effect_is, "D.throughput / B.throughput");
    assert_eq!(judgement.threshold, Threshold::AtLeast(0.9));
    near(judgement.effect.unwrap(), 0.91);
    near(judgement.interval.unwrap().low, 0.885_495);
    near(judgement.interval.unwrap().high, 0.935_183);
    assert_eq!(
        judgement.words,
        "D.throughput / B.throughput is 0.910 (95 % interval 0.885 to 0.935), claimed at least 0.9; \
         the claimed value is inside the interval; more trials would narrow it"
    );
    for (expression, expected) in [
        ("D.throughput >= 0.88 * B.throughput", Verdict::Holds),
        ("D.throughput >= 0.94 * B.throughput", Verdict::Refuted),
        ("D.throughput < 0.94 * B.throughput", Verdict::Holds),
        ("D.throughput < 0.88 * B.throughput", Verdict::Refuted),
        ("B.throughput * 0.88 <= D.throughput", Verdict::Holds),
        ("D.throughput / B.throughput > 0.88", Verdict::Holds),
        ("0.94 > D.throughput / B.throughput", Verdict::Holds),
        ("D.throughput / B.throughput within 0.88 .. 0.94", Verdict::Holds),
        ("D.throughput / B.throughput within 0.9 .. 0.94", Verdict::Undecided),
        ("D.throughput / B.throughput within 0.94 .. 1", Verdict::Refuted),
        ("D.throughput / B.throughput within 0.1 .. 0.88", Verdict::Refuted),
        ("D.throughput >= 80Mbit", Verdict::Holds),
        ("D.throughput >= 90Mbit", Verdict::Undecided),
        ("D.throughput >= 94Mbit/s", Verdict::Refuted),
        ("max(D.throughput, B.throughput) <= 100Mbit", Verdict::Holds),
    ] {
        assert_eq!(verdict(expression, figures), expected, "{expression}");
    }
}

#[test]
fn both_factors_make_the_threshold() {
    let figures: &[(&str, &[f64])] = &[("A.throughput", &[6.0, 6.0, 6.0]), ("B.throughput", &[4.0, 4.0, 4.0])];
    let judgement = judge("2 * A.throughput / 4 >= B.throughput * 0.75", figures);
    assert_eq!(judgement.effect_is, "A.throughput / B.throughput");
    assert_eq!(judgement.threshold, Threshold::AtLeast(1.5));
    assert_eq!((judgement.effect, judgement.verdict), (Some(1.5), Verdict::Holds));
    assert_eq!(verdict("2 * A.throughput / 4 > B.throughput * 0.75", figures), Verdict::Refuted);
    let judgement = judge("A.throughput >= 2 * (B.throughput + 1Mbit)", figures);
    assert_eq!(judgement.effect_is, "A.throughput / (B.throughput + 1Mbit)");
    assert_eq!(judgement.threshold, Threshold::AtLeast(2.0));
    // A factor with a unit stays where it is.
    let judgement = judge("A.throughput * 1Mbit >= B.throughput * B.throughput", figures);
    assert_eq!(judgement.effect_is, "A.throughput * 1Mbit / (B.throughput * B.throughput)");
}

#[test]
fn a_single_figure_has_the_interval_of_its_mean() {
    let values = [40.0, 41.0, 42.0];
    let judgement = judge("B.sender.cpu <= 50", &[("B.sender.cpu", &values)]);
    let expected = Level::default().mean_interval(&values.to_vec().into()).unwrap();
    near(judgement.interval.unwrap().low, expected.low);
    near(judgement.interval.unwrap().high, expected.high);
    assert_eq!(judgement.verdict, Verdict::Holds);
    assert_eq!(judgement.words, "B.sender.cpu is 41.0 (95 % interval 38.5 to 43.5), claimed at most 50");
}

/// Differences of the pairs: 10, 20, 15 Mbit/s; mean 15, s = 5, half width 4.302653 * 5 / sqrt(3) = 12.4207.
#[test]
fn a_difference_by_hand() {
    let figures: &[(&str, &[f64])] =
        &[("B.sender.throughput", &[110e6, 220e6, 315e6]), ("B.throughput", &[100e6, 200e6, 300e6])];
    let judgement = judge("B.sender.throughput - B.throughput > 0bit", figures);
    assert_eq!((judgement.verdict, judgement.unit), (Verdict::Holds, EffectUnit::BitsPerSecond));
    near(judgement.effect.unwrap(), 15e6);
    near(judgement.interval.unwrap().low, 2.579_31e6);
    assert_eq!(
        judgement.words,
        "B.sender.throughput - B.throughput is 15.0Mbit/s (95 % interval 2.58Mbit/s to 27.4Mbit/s), \
         claimed more than 0bit/s"
    );
}

/// The trials of a scenario vary together: paired, the ratio of its sides is known well; between scenarios it is not.
#[test]
fn figures_of_one_scenario_are_paired() {
    let (one, other) = ([10.0, 20.0, 30.0], [11.0, 22.2, 33.0]);
    let paired: &[(&str, &[f64])] = &[("A.sender.cpu", &one), ("A.receiver.cpu", &other)];
    assert_eq!(verdict("A.sender.cpu < A.receiver.cpu", paired), Verdict::Holds);
    let apart: &[(&str, &[f64])] = &[("A.sender.cpu", &one), ("B.receiver.cpu", &other)];
    assert_eq!(verdict("A.sender.cpu < B.receiver.cpu", apart), Verdict::Undecided);
}

#[test]
fn zeros_make_it_a_difference() {
    let figures: &[(&str, &[f64])] = &[("A.retransmits", &[0.0, 0.0, 0.0]), ("B.retransmits", &[550.0, 560.0, 0.0])];
    let judgement = judge("A.retransmits <= 2 * B.retransmits", figures);
    assert_eq!(judgement.effect_is, "A.retransmits - 2 * B.retransmits");
    assert_eq!((judgement.threshold, judgement.verdict), (Threshold::AtMost(0.0), Verdict::Undecided));
    assert_eq!(verdict("A.retransmits <= 0", figures), Verdict::Holds);
    assert_eq!(verdict("A.retransmits < 0", figures), Verdict::Refuted);
    assert_eq!(verdict("A.retransmits < 1", figures), Verdict::Holds);
}

#[test]
fn what_is_missing_is_named() {
    let judgement = judge("D.throughput >= 0.9 * B.throughput + C.throughput", &[("B.throughput", &[1e8, 1e8, 1e8])]);
    assert_eq!(judgement.verdict, Verdict::Undecided);
    assert_eq!((judgement.effect, judgement.interval), (None, None));
    assert_eq!(judgement.words, "not measured: D.throughput, C.throughput");
    let empty: &[(&str, &[f64])] = &[("D.throughput", &[])];
    assert_eq!(judge("D.throughput >= 1Mbit", empty).words, "not measured: D.throughput");
}

#[test]
fn a_single_trial_decides_nothing() {
    let figures: &[(&str, &[f64])] = &[("D.throughput", &[95e6]), ("B.throughput", &[1e8, 1e8, 1e8])];
    let judgement = judge("D.throughput >= 0.5 * B.throughput", figures);
    assert_eq!((judgement.verdict, judgement.interval), (Verdict::Undecided, None));
    near(judgement.effect.unwrap(), 0.95);
    assert_eq!(
        judgement.words,
        "D.throughput / B.throughput is 0.95, claimed at least 0.5; \
         scenario D has a single trial, which gives no interval"
    );
}

#[test]
fn what_cannot_be_computed_is_undecided() {
    let zero: &[(&str, &[f64])] = &[("A.throughput", &[1e6, 2e6]), ("B.throughput", &[0.0, 0.0])];
    let judgement = judge("A.throughput / B.throughput >= 3", zero);
    assert_eq!((judgement.verdict, judgement.effect), (Verdict::Undecided, None));
    assert!(judgement.words.contains("cannot be computed: the value is not a finite number"), "{}", judgement.words);

    let uneven: &[(&str, &[f64])] = &[("A.throughput", &[1e6, 2e6]), ("A.retransmits", &[1.0, 2.0, 3.0])];
    let judgement = judge("A.retransmits * 1Mbit <= A.throughput", uneven);
    assert_eq!(judgement.verdict, Verdict::Undecided);
    assert_eq!(judgement.words, "figures of the same scenario have values of 3 and of 2 trials");

    let nan: &[(&str, &[f64])] = &[("A.throughput", &[1e6, f64::NAN])];
    assert_eq!(verdict("A.throughput >= 1bit", nan), Verdict::Undecided);
}

#[test]
fn judgements_travel() {
    let figures: &[(&str, &[f64])] = &[("A.throughput", &[90e6, 91e6, 92e6]), ("B.throughput", &[1e8])];
    for expression in [
        "A.throughput >= 90Mbit",
        "A.throughput / B.throughput within 3 .. 4",
        "C.throughput > 0bit",
        "A.throughput < B.throughput",
    ] {
        let judgement = judge(expression, figures);
        // Not through text, in which serde_json may change the last bit of a number.
        let json = serde_json::to_value(&judgement).unwrap();
        assert_eq!(serde_json::from_value::<Judgement>(json).unwrap(), judgement);
    }
    let json = serde_json::to_value(judge("A.throughput >= 80Mbit", figures)).unwrap();
    assert_eq!(json["verdict"], "holds");
    assert_eq!(json["unit"], "bits-per-second");
    assert_eq!(json["threshold"]["at-least"], 80e6);
    assert_eq!(json["interval"]["level"], 95.0);
}

#[test]
fn values_are_shown_with_four_digits() {
    let number = |value| EffectUnit::Number.show(value);
    assert_eq!(number(0.9), "0.9");
    assert_eq!(number(0.912_345), "0.9123");
    assert_eq!(number(1234.5), "1234");
    assert_eq!(number(-0.001_234_56), "-0.001235");
    assert_eq!(number(120.0), "120");
    assert_eq!(number(0.0), "0");
    assert_eq!(number(1.5e12), "1.500e12");
    let rate = |value| EffectUnit::BitsPerSecond.show(value);
    assert_eq!(rate(658.291e6), "658.3Mbit/s");
    assert_eq!(rate(-7.375_159e9), "-7.375Gbit/s");
    assert_eq!(rate(12.0), "12bit/s");
    assert_eq!(rate(f64::MAX), "1.798e308bit/s");
}

#[test]
fn values_are_shown_as_well_as_they_are_known() {
    let show = |value, low, high| {
        let interval = Interval { low, high, level: Level::default() };
        let (value, ends) = EffectUnit::Number.show_known(value, Some(interval));
        let (low, high) = ends.unwrap();
        format!("{value} ({low} to {high})")
    };
    assert_eq!(show(1.1546, 1.103, 1.179), "1.15 (1.10 to 1.18)");
    assert_eq!(show(0.9996, 0.9983, 1.0002), "0.9996 (0.9983 to 1.0002)");
    assert_eq!(show(8.37, 0.22, 16.53), "8.4 (0.2 to 16.5)");
    assert_eq!(show(212.0, 69.0, 654.0), "212 (69 to 654)");
    assert_eq!(EffectUnit::Number.show_known(0.123_45, None), ("0.123".to_owned(), None));
    assert_eq!(Threshold::AtMost(1.0 / 3.0).show(EffectUnit::Number), "at most 0.333");
    assert_eq!(Threshold::AtLeast(0.9975).show(EffectUnit::Number), "at least 0.9975");
}

#[test]
fn a_value_is_read_without_a_comparison() {
    assert!(Claim::value("100 * D.throughput / B.throughput").is_ok());
    for (expression, column, part) in [("D.throughput >= 1", 14, "`>=` found"), ("1 + 2", 1, "names no figure")] {
        let error = Claim::value(expression).unwrap_err();
        assert_eq!(error.column, column, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// Expressions of throughput figures only, so that units agree; each is a throughput.
fn throughput() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        select(vec!["A.throughput", "B.throughput", "A.sender.throughput", "C-1.throughput"]).prop_map(str::to_owned),
        (1u32..900).prop_map(|n| format!("{n}.5kbit")),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), select(vec!["+", "-"]), inner.clone()).prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
            (inner.clone(), select(vec!["*", "/"]), 1u32..9).prop_map(|(a, op, n)| format!("({a}) {op} {n}.25")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a}) * ({b}) / ({c})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a}) / (({b}) / ({c}))")),
            inner.clone().prop_map(|a| format!("-({a})")),
            (select(vec!["min", "max"]), vec(inner, 1..4)).prop_map(|(f, all)| format!("{f}({})", all.join(", "))),
        ]
    })
}

fn trials() -> impl Strategy<Value = Vec<f64>> {
    vec(0.0..1e6f64, 0..6)
}

proptest! {
    #[test]
    fn a_claim_and_its_negation_never_both_hold(
        left in throughput(), right in throughput(), a in trials(), b in trials(), c in trials(),
        (operator, negation) in select(vec![(">=", "<"), ("<=", ">"), (">", "<="), ("<", ">=")]),
    ) {
        let judge = |expression: String| Claim::parse("", &expression).map(|claim| {
            claim.evaluate(Level::default(), &|figure| match figure.scenario.as_str() {
                "A" => Some(a.clone().into()),
                "B" => Some(b.clone().into()),
                _ => Some(c.clone().into()),
            }).verdict
        });
        // An expression of numbers alone, or a division by a constant of zero, is no claim.
        if let Ok(verdict) = judge(format!("{left} {operator} {right}")) {
            let opposite = match verdict {
                Verdict::Holds => Verdict::Refuted,
                Verdict::Refuted => Verdict::Holds,
                undecided => undecided,
            };
            prop_assert_eq!(judge(format!("{left} {negation} {right}")).unwrap(), opposite);
        }
    }

    #[test]
    fn the_order_of_the_sides_does_not_matter(
        a in vec(1.0..1e6f64, 2..6), b in vec(1.0..1e6f64, 2..6), factor in 0.1..10.0f64,
    ) {
        let figures: &[(&str, &[f64])] = &[("A.throughput", &a), ("B.throughput", &b)];
        let verdict = verdict(&format!("A.throughput >= {factor} * B.throughput"), figures);
        for same in [
            format!("{factor} * B.throughput <= A.throughput"),
            format!("A.throughput / B.throughput >= {factor}"),
            format!("{factor} <= A.throughput / B.throughput"),
            format!("A.throughput / (B.throughput * {factor}) >= 1"),
        ] {
            prop_assert_eq!(self::verdict(&same, figures), verdict, "{}", same);
        }
    }

    #[test]
    fn what_is_written_reads_back_to_the_same_value(expression in throughput()) {
        if let Ok(claim) = Claim::parse("", &format!("{expression} > A.throughput")) {
            let written = claim.left.written(&claim.figures).to_string();
            let again = Claim::parse("", &format!("{written} > A.throughput")).unwrap();
            let value = |claim: &Claim| {
                let values: Vec<_> = claim.figures.iter().map(|f| f.to_string().len() as f64).collect();
                claim.left.value(&values)
            };
            let (one, other) = (value(&claim), value(&again));
            prop_assert!(one == other || one.is_nan() && other.is_nan(), "{} {} {}", written, one, other);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(
        text in "\\PC{0,40}", close in "([AB]\\.(sender\\.)?(throughput|cpu)|[-+*/(),.><= ]|[0-9]|within|min|e|Mbit|\u{e4}){0,24}",
    ) {
        for text in [text, close] {
            if let Err(error) = Claim::parse("", &text) {
                prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1, "{}", error);
            }
        }
    }
}
