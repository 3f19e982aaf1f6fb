//! Histories with disturbed runs, and changes that the noise floor hides.

use super::*;

const FACTORS: [f64; 6] = [0.2, 0.5, 1.0, 1.7, 3.0, 6.0];

fn flagged(mut run: RunData, flag: &serde_json::Value, trials: usize) -> RunData {
    let all = run.scenarios.iter_mut().flat_map(|scenario| scenario.trials.iter_mut().take(trials));
    all.for_each(|trial| trial["flags"] = json!([flag]));
    run
}

/// Of six runs in the store so many were disturbed, all their trials.
fn history(disturbed: usize, flag: &serde_json::Value) -> Vec<RunData> {
    let steady = [1.0, 1.01, 0.99, 1.005, 0.995, 1.0];
    let one = |index: usize| {
        let is_disturbed = index < disturbed;
        let factor = if is_disturbed { FACTORS[index] } else { steady[index] };
        let run = run(3 + u32::try_from(index).unwrap(), &FAST.map(|value| value * factor));
        if is_disturbed { flagged(run, flag, FAST.len()) } else { run }
    };
    (0..FACTORS.len()).map(one).collect()
}

#[test]
fn a_large_change_is_found_however_many_runs_of_the_history_were_disturbed() {
    let flags = [
        json!({"flag": "other-load", "node": "a", "percent": 40.0}),
        json!({"flag": "stolen", "node": "a", "percent": 9.0}),
        json!({"flag": "throttled", "microseconds": 900_000}),
    ];
    let (old, new) = (run(1, &FAST), run(2, &FAST.map(|value| value / 2.55)));
    for flag in &flags {
        for disturbed in 0..=FACTORS.len() {
            let comparison = compared_with(&old, &new, &history(disturbed, flag), &options());
            let found = figure(&comparison, "B", "throughput");
            assert_eq!(found.verdict, Verdict::Worse, "{flag}, {disturbed} disturbed");
            assert_eq!(comparison.noise.disturbed.len(), disturbed);
            assert_eq!(comparison.noise.runs_like_old, 1 + FACTORS.len() - disturbed);
            let told = text(&document(&comparison));
            let words =
                if disturbed == 1 { "disturbed from outside: run 3" } else { "disturbed from outside: runs 3, " };
            assert_eq!(told.contains(words), disturbed > 0, "{told}");
        }
    }
    // What the trial says of itself is no disturbance, and a flag of a later netrig is not known to be one.
    for flag in [json!({"flag": "saturated", "node": "a", "percent": 99.0}), json!({"flag": "moon", "phase": 1})] {
        let comparison = compared_with(&old, &new, &history(6, &flag), &options());
        assert_eq!(comparison.noise.runs_like_old, 7, "{flag}");
    }
}

#[test]
fn a_disturbed_trial_of_a_sound_run_does_not_count() {
    let flag = json!({"flag": "other-load", "node": "a", "percent": 40.0});
    let (old, new) = (run(1, &FAST), run(2, &FAST.map(|value| value / 2.55)));
    let with_one = |id| flagged(run(id, &[1e7, 1e9, 1.001e9, 0.999e9]), &flag, 1);
    let comparison = compared_with(&old, &new, &[run(3, &FAST), with_one(4), with_one(5)], &options());
    assert!(comparison.noise.disturbed.is_empty());
    let floor = figure(&comparison, "B", "throughput").effect.unwrap().noise_floor.unwrap();
    assert!(floor < 1.01, "{floor}");
}

#[test]
fn what_the_floor_hides_is_told_with_the_runs_that_it_comes_from() {
    let (old, new) = (run(1, &FAST), run(2, &FAST.map(|value| value / 2.55)));
    let unexplained = [run(3, &FAST.map(|value| value * 6.0)), run(4, &FAST.map(|value| value / 2.0))];
    let comparison = compared_with(&old, &new, &unexplained, &options());
    let hidden = figure(&comparison, "B", "throughput");
    assert_eq!(hidden.verdict, Verdict::Undecided);
    let runs: Vec<&str> = hidden.noise_runs.iter().map(|run| run.run.as_str()).collect();
    assert_eq!(runs, ["1", "3", "4"]);
    let text = text(&document(&comparison));
    assert!(!text.contains("No change was found"), "{text}");
    for part in [
        "No change is decided, but",
        "Within the noise floor",
        "run 3 6.00 Gbit/s",
        "netrig ab",
        "a fault of the history",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
