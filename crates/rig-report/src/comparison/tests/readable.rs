//! Figures of a comparison in the units of people, and doubts in their words, in every place.

use super::*;

/// The throughput of B, whose change is shown as a difference.
fn throughput(effect: impl Fn(EffectData) -> EffectData) -> FigureComparison {
    let comparison = compared(&run(1, &FAST), &run(2, &SLOW));
    let mut figure = figure(&comparison, "B", "throughput").clone();
    figure.effect = figure.effect.map(effect);
    figure
}

fn difference_of(value: f64, low: Option<f64>, high: Option<f64>) -> String {
    change(&throughput(|effect| EffectData { kind: Kind::Difference, value, low, high, ..effect }))
}

#[test]
fn differences_are_scaled_and_rounded_as_figures_are() {
    assert_eq!(
        difference_of(-1.2345e9, Some(-1.5e9), Some(-0.9e9)),
        "-1.23 Gbit/s (-1.50 to -0.90), from 1.00 Gbit/s to 800 Mbit/s"
    );
    // By the largest of its ends, that all have one unit.
    assert_eq!(
        difference_of(2.5e8, Some(-1e9), Some(1.5e9)),
        "+0.2 Gbit/s (-1.0 to +1.5), from 1.00 Gbit/s to 800 Mbit/s"
    );
    assert_eq!(
        difference_of(1.2345e10, Some(1.1e10), None),
        "+12.3 Gbit/s (+11.0 or more), from 1.00 Gbit/s to 800 Mbit/s"
    );
}

#[test]
fn noise_floors_of_differences_have_the_unit_too() {
    let comparison = compared(&run(1, &FAST), &run(2, &SLOW));
    let floor = |effect: EffectData| EffectData { kind: Kind::Difference, noise_floor: Some(1.2345e9), ..effect };
    let mut known = comparison.clone();
    known.figures.iter_mut().for_each(|figure| figure.effect = figure.effect.map(floor));
    let cells = row(&throughput(floor), &known).cells;
    assert!(cells.contains(&Cell::text("±1.23 Gbit/s")), "{cells:?}");
}

#[test]
fn two_values_each_have_their_unit() {
    let mut figure = throughput(|effect| effect);
    let old = Some(TwoModesData { low: 9.5e8, high: 1.3e9, share_high: 0.5 });
    figure.modes = Some(ModesData { old, new: None, share_p: None });
    let words = change(&figure);
    let expected = "; two-valued: 950 Mbit/s or 1.30 Gbit/s (50 % of the trials), then one value";
    assert!(words.ends_with(expected), "{words}");
}

/// Figures in bits are shown in megabits, those of the ends and those of the device under test.
#[test]
fn every_rate_of_bits_is_shown_in_the_unit_that_it_has() {
    for metric in Metric::ALL {
        let is_bits = metric.unit() == "bit/s";
        assert_eq!(unit(metric) == "Mbit/s", is_bits, "{metric}");
        assert_eq!(in_unit(metric, 1e6), if is_bits { 1.0 } else { 1e6 }, "{metric}");
    }
}

#[test]
fn what_disturbed_both_runs_is_told() {
    let with = |id, flags: &[&str]| {
        let mut run = run(id, &FAST);
        let flags: Vec<_> = flags.iter().map(|flag| json!({"flag": flag, "node": "a", "percent": 5.0})).collect();
        run.scenarios[1].trials.iter_mut().for_each(|trial| trial["flags"] = json!(flags));
        run
    };
    let comparison = compared(&with(1, &["stolen", "generator-bound"]), &with(2, &["stolen", "saturated"]));
    let all = FlagCount { trials: 4, of: 4 };
    assert_eq!(comparison.doubts, [Doubt { scenario: "B".into(), flag: "stolen".into(), old: all, new: all }]);
    assert_eq!(difference(&comparison, "Trials of B flagged stolen"), None, "it is no difference");
    assert_eq!(difference(&comparison, "Trials of B flagged saturated"), Some(("0 of 4", "4 of 4")));
    let text = in_markdown(&document(&comparison));
    assert!(text.contains("Doubts about both") && text.contains("B: the hypervisor took CPU time"), "{text}");
    assert!(text.contains("; in how many trials a node's or machine's CPUs were all busy (B)."), "{text}");
    assert!(text.contains("Trials of B in which a node's or machine's CPUs were all busy"), "{text}");
    assert!(!text.contains("flagged"), "{text}");
    assert!(compared(&run(1, &FAST), &with(2, &["stolen"])).doubts.is_empty());
}
