use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::normal::NormalVariates;
use crate::sample::Resolution;

fn level(percent: f64) -> Level {
    Level::new(percent).unwrap()
}

fn sample(values: &[f64]) -> Sample {
    values.to_vec().into()
}

fn watched(sample: &Sample) -> GoalFigure<'_> {
    GoalFigure { sample, floor: 0.0 }
}

/// Two-sided critical values as printed in tables of Student's distribution.
#[test]
fn quantiles_agree_with_the_tables() {
    let table = [
        (90.0, 1.0, 6.314),
        (95.0, 1.0, 12.706),
        (95.0, 2.0, 4.303),
        (95.0, 3.0, 3.182),
        (95.0, 4.0, 2.776),
        (95.0, 9.0, 2.262),
        (95.0, 29.0, 2.045),
        (95.0, 120.0, 1.980),
        (99.0, 1.0, 63.657),
        (99.0, 2.0, 9.925),
        (99.0, 9.0, 3.250),
        (99.0, 29.0, 2.756),
        (99.9, 2.0, 31.599),
    ];
    for (percent, degrees, expected) in table {
        let t = level(percent).student_t(degrees);
        assert!((t - expected).abs() < 0.000_51, "t({percent} %, {degrees}) = {t}, the tables say {expected}");
    }
}

/// One and two degrees of freedom have closed forms, for any level.
#[test]
fn quantiles_agree_with_the_closed_forms() {
    for percent in [50.0, 68.27, 90.0, 99.0, 99.9, 99.99] {
        let p = 0.5 + percent / 200.0;
        let one = (std::f64::consts::PI * (p - 0.5)).tan();
        let two = (2.0 * p - 1.0) / (2.0 * p * (1.0 - p)).sqrt();
        assert!((level(percent).student_t(1.0) / one - 1.0).abs() < 1e-6, "{percent}");
        assert!((level(percent).student_t(2.0) / two - 1.0).abs() < 1e-6, "{percent}");
    }
}

#[test]
fn a_mean_interval_by_hand() {
    // mean 100, s = 2, n = 3: 100 +- 4.302653 * 2 / sqrt(3)
    let interval = level(95.0).mean_interval(&sample(&[98.0, 100.0, 102.0])).unwrap();
    assert!((interval.high - 104.968_275).abs() < 1e-5, "{interval:?}");
    assert!((interval.low - 95.031_725).abs() < 1e-5, "{interval:?}");
    assert!(interval.contains(100.0) && !interval.contains(105.0));
    assert_eq!(level(95.0).mean_interval(&sample(&[5.0])), None);
    assert_eq!(level(95.0).mean_interval(&sample(&[])), None);
    let exact = level(95.0).mean_interval(&sample(&[5.0, 5.0])).unwrap();
    assert_eq!((exact.low, exact.high, exact.width()), (5.0, 5.0, 0.0));
}

/// netperf's loop computes from population sums: w = 2 * t * sqrt((sum x^2 / n - mean^2) / (n - 1)) / mean.
#[test]
fn the_relative_width_is_netperfs() {
    // By hand: mean 941.0, sum of squared deviations 26, population variance 26 / 3,
    // w = 2 * 4.303 * sqrt(26 / 3 / 2) / 941 = 0.019038
    let values = [938.0, 940.0, 945.0];
    let w = level(95.0).relative_width(&sample(&values)).unwrap();
    assert!((w - 0.019_038).abs() < 2e-6, "{w}");
    // 99 %: 2 * 9.925 * 2.081666 / 941 = 0.043912
    let w = level(99.0).relative_width(&sample(&values)).unwrap();
    assert!((w - 0.043_912).abs() < 2e-6, "{w}");
    // A mean below zero has a width as well.
    let w = level(95.0).relative_width(&sample(&[-938.0, -940.0, -945.0])).unwrap();
    assert!((w - 0.019_038).abs() < 2e-6, "{w}");
}

#[test]
fn no_relative_width_without_a_mean() {
    assert_eq!(level(95.0).relative_width(&sample(&[-1.0, 1.0])), None);
    assert_eq!(level(95.0).relative_width(&sample(&[1.0])), None);
    assert_eq!(level(95.0).relative_width(&sample(&[0.0, 0.0])), Some(0.0));
}

#[test]
fn the_interval_covers_the_true_mean_as_often_as_it_says() {
    let mut normal = NormalVariates(20_240_607);
    for (percent, range) in [(95.0, 3720..3880), (99.0, 3920..3996)] {
        let covered = (0..4000)
            .filter(|_| level(percent).mean_interval(&normal.draws(5, 40.0, 7.0).into()).unwrap().contains(40.0))
            .count();
        assert!(range.contains(&covered), "{covered} of 4000 at {percent} %");
    }
}

/// The price of stopping early that the module's text speaks of, at the scatter for which it is about the highest.
#[test]
fn stopping_at_the_goal_costs_some_coverage() {
    let coverage = |min| {
        let goal = Goal::new(Level::default(), Width::default(), min, 10).unwrap();
        let mut normal = NormalVariates(7);
        let covered = (0..4000)
            .filter(|_| {
                let mut sample = Sample::default();
                while goal.decide(&[watched(&sample)]) == Decision::More {
                    sample.push(normal.draw(100.0, 4.0));
                }
                goal.level.mean_interval(&sample).unwrap().contains(100.0)
            })
            .count();
        covered as f64 / 40.0
    };
    let (eager, patient) = (coverage(3), coverage(8));
    assert!((88.5..91.5).contains(&eager) && patient > 93.0, "{eager} % and {patient} %");
}

#[test]
fn levels_read() {
    assert_eq!("95".parse::<Level>().unwrap().percent(), 95.0);
    assert_eq!("99.9%".parse::<Level>().unwrap().to_string(), "99.9%");
    for bad in ["0.95", "100", "-1", "high", ""] {
        assert!(bad.parse::<Level>().is_err(), "{bad}");
    }
    assert!(Level::new(f64::NAN).is_err());
    assert_eq!(
        Level::new(0.95).unwrap_err().to_string(),
        "a confidence level of 0.95 % is out of range, from 50 to less than 100; write for example `95`"
    );
}

#[test]
fn widths_are_full_widths_unless_they_say_plus_minus() {
    for text in ["5%", "5", "+-2.5%", "\u{b1}2.5 %", " +-2.5%"] {
        assert_eq!(text.parse::<Width>().unwrap().fraction(), 0.05, "{text}");
    }
    assert_eq!("5%".parse::<Width>().unwrap().to_string(), "+-2.5%");
    assert_eq!("0%".parse::<Width>(), Err(ConfidenceError::ZeroWidth));
    assert!("-5%".parse::<Width>().is_err());
    assert!("+2.5%".parse::<Width>().is_err());
    assert!(Width::full(f64::INFINITY).is_err());
    assert_eq!(Width::default(), "5%".parse().unwrap());
}

#[test]
fn goals_read() {
    let goal: Goal = serde_json::from_str(r#"{"level": 99, "width": "+-5%", "min": 2, "max": 4}"#).unwrap();
    assert_eq!(goal, Goal::new(level(99.0), Width::full(10.0).unwrap(), 2, 4).unwrap());
    assert_eq!(serde_json::from_str::<Goal>("{}").unwrap(), Goal::default());
    assert_eq!(serde_json::from_str::<Goal>(&serde_json::to_string(&goal).unwrap()).unwrap(), goal);
    let error = |text| serde_json::from_str::<Goal>(text).unwrap_err().to_string();
    assert!(error(r#"{"min": 5, "max": 4}"#).contains("raise `max` to 5 or lower `min`"));
    assert!(error(r#"{"min": 0}"#).contains("at least one trial"));
    assert!(error(r#"{"minimum": 3}"#).contains("unknown field `minimum`"));
    assert!(error(r#"{"level": 100}"#).contains("out of range"));
}

#[test]
fn decides_after_each_trial() {
    let goal = Goal::new(level(95.0), Width::full(5.0).unwrap(), 3, 4).unwrap();
    let decide = |values: &[f64]| goal.decide(&[watched(&sample(values))]);
    assert_eq!(decide(&[]), Decision::More);
    assert_eq!(decide(&[941.0, 941.0]), Decision::More, "no decision before `min`, however well they agree");
    assert_eq!(decide(&[938.0, 940.0, 945.0]), Decision::Reached);
    assert_eq!(decide(&[900.0, 940.0, 980.0]), Decision::More);
    let Decision::GaveUp(achieved) = decide(&[900.0, 940.0, 980.0, 940.0]) else { panic!("`max` trials are made") };
    // s = sqrt(3200 / 3), w = 2 * 3.182446 * s / 2 / 940 = 0.110573
    assert!((achieved[0].relative.unwrap() - 0.110_573).abs() < 1e-5, "{achieved:?}");
    assert!((achieved[0].absolute.unwrap() - 103.938).abs() < 1e-2, "{achieved:?}");
    assert!(!achieved[0].reached);
}

#[test]
fn every_figure_has_to_reach_the_goal() {
    let goal = Goal::new(level(95.0), Width::full(5.0).unwrap(), 3, 3).unwrap();
    let (steady, noisy) = (sample(&[938.0, 940.0, 945.0]), sample(&[10.0, 20.0, 30.0]));
    assert_eq!(goal.decide(&[watched(&steady)]), Decision::Reached);
    let Decision::GaveUp(achieved) = goal.decide(&[watched(&steady), watched(&noisy)]) else { panic!() };
    assert_eq!(achieved.iter().map(|a| a.reached).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn an_idle_cpu_is_reached_by_its_floor() {
    let goal = Goal::default();
    let idle = sample(&[0.1, 0.3, 0.2]);
    assert_eq!(goal.decide(&[watched(&idle)]), Decision::More);
    // Full width 2 * 4.302653 * 0.1 / sqrt(3) = 0.4968 percentage points.
    assert_eq!(goal.decide(&[GoalFigure { sample: &idle, floor: 1.0 }]), Decision::Reached);
    assert_eq!(goal.decide(&[GoalFigure { sample: &idle, floor: 0.49 }]), Decision::More);
    let around_zero = sample(&[-0.1, 0.1, 0.0]);
    assert_eq!(goal.decide(&[GoalFigure { sample: &around_zero, floor: 1.0 }]), Decision::Reached);
}

#[test]
fn a_single_trial_is_never_enough() {
    let goal = Goal::new(Level::default(), Width::default(), 1, 1).unwrap();
    let Decision::GaveUp(achieved) = goal.decide(&[watched(&sample(&[941.0]))]) else { panic!() };
    assert_eq!(achieved, [AchievedWidth { relative: None, absolute: None, reached: false }]);
}

#[test]
fn a_figure_that_is_not_a_number_is_never_reached() {
    let goal = Goal::new(Level::default(), Width::default(), 2, 3).unwrap();
    let broken = sample(&[941.0, f64::NAN, 941.0]);
    assert!(matches!(goal.decide(&[GoalFigure { sample: &broken, floor: 1e9 }]), Decision::GaveUp(_)));
}

proptest! {
    /// netperf's own sums, which are precise enough for such values.
    #[test]
    fn relative_width_agrees_with_netperfs_sums(values in vec(500.0..1000.0f64, 2..30)) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let population = values.iter().map(|x| x * x).sum::<f64>() / n - mean * mean;
        let netperf = 2.0 * level(95.0).student_t(n - 1.0) * (population / (n - 1.0)).sqrt() / mean;
        let ours = level(95.0).relative_width(&sample(&values)).unwrap();
        prop_assert!((ours - netperf).abs() < 1e-6, "{} {}", ours, netperf);
    }

    #[test]
    fn more_confidence_is_a_wider_interval(values in vec(-1e3..1e3f64, 2..20)) {
        let values = sample(&values);
        let (narrow, wide) = (level(95.0).mean_interval(&values).unwrap(), level(99.0).mean_interval(&values).unwrap());
        prop_assert!(wide.width() >= narrow.width());
        prop_assert!(narrow.contains(values.mean().unwrap()));
    }

    #[test]
    fn it_ends_within_min_and_max_trials(values in vec(1.0..1e3f64, 1..30), min in 1u32..10, extra in 0u32..10) {
        let goal = Goal::new(Level::default(), Width::default(), min, min + extra).unwrap();
        let made = (1..=values.len()).find(|n| goal.decide(&[watched(&sample(&values[..*n]))]) != Decision::More);
        match made {
            Some(n) => prop_assert!((min as usize..=(min + extra) as usize).contains(&n)),
            None => prop_assert!(values.len() < (min + extra) as usize),
        }
    }

    #[test]
    fn levels_and_widths_read_back(percent in 50.0..99.999f64, width in 0.001..200.0f64) {
        prop_assert_eq!(level(percent).to_string().parse(), Ok(level(percent)));
        let width = Width::full(width).unwrap();
        prop_assert_eq!(width.to_string().parse(), Ok(width));
    }
}

/// An interval cannot reach where its figure cannot be; what is left of it holds the true value as often.
#[test]
fn intervals_end_where_their_figure_does() {
    let of = |range, values: [f64; 2]| {
        let mut sample = Sample::within(range);
        sample.extend(values);
        let interval = Level::default().mean_interval(&sample).unwrap();
        (interval.low, interval.high)
    };
    assert_eq!(of(Range::PERCENT, [40.0, 70.0]), (0.0, 100.0));
    assert_eq!(of(Range::NOT_NEGATIVE, [40.0, 70.0]).0, 0.0);
    assert!(of(Range::NOT_NEGATIVE, [40.0, 70.0]).1 > 200.0);
    assert!(of(Range::ANY, [40.0, 70.0]).0 < 0.0);
    let near = of(Range::PERCENT, [99.0, 99.1]);
    assert!(near.0 > 98.0 && near.1 < 100.0, "{near:?}");
}

/// A search finds one of the rates 100, 104, 108 ... that is carried: three of the same are no certainty.
#[test]
fn equal_values_of_a_grid_are_no_exact_figure() {
    let grid = Resolution { below: 0.0, above: 8.0 };
    let same = |n: usize| Sample::from(vec![100.0; n]).with(grid, None);
    let goal = Goal::default();
    let decide = |n: usize| goal.decide(&[GoalFigure { sample: &same(n), floor: 0.0 }]);
    assert!(Level::default().relative_width(&same(3)).unwrap() > 0.08);
    assert_eq!(decide(3), Decision::More);
    assert!(matches!(decide(10), Decision::GaveUp(_)), "more trials do not make a grid finer");
    let fine = Resolution { below: 0.0, above: 4.0 };
    let fine = |n: usize| Sample::from(vec![100.0; n]).with(fine, None);
    let decide = |n: usize| goal.decide(&[GoalFigure { sample: &fine(n), floor: 0.0 }]);
    assert_eq!((decide(3), decide(8)), (Decision::More, Decision::Reached));
}

/// Limits that scatter by less than, about, and more than the grid that they are found on: the interval holds the true
/// mean as often as it says.
#[test]
fn intervals_of_a_grid_hold_the_true_mean() {
    let mut normal = NormalVariates(20_260_402);
    let step = 4.0;
    for scatter in [0.01, 0.3, 1.0, 3.0, 8.0] {
        for trials in [3, 6] {
            let held = (0..2000)
                .filter(|i| {
                    let mean = 100.0 + step * f64::from(*i) / 2000.0;
                    let floor = |x: f64| (x / step).floor() * step;
                    let found: Vec<f64> = normal.draws(trials, mean, scatter).into_iter().map(floor).collect();
                    let sample = Sample::from(found).with(Resolution { below: 0.0, above: step }, None);
                    Level::default().mean_interval(&sample).unwrap().contains(mean)
                })
                .count();
            assert!(held >= 1880, "{held} of 2000 with a scatter of {scatter} and {trials} trials");
        }
    }
}
