//! What a report begins with.

use super::*;

/// An A/A check is a line below the claims, and a doubt where it finds more than chance explains.
#[test]
fn an_aa_check_is_told_in_a_line() {
    let figure = |metric: &str, verdict| AaFigure {
        side: "sender".into(),
        metric: metric.into(),
        verdict,
        ratio: 1.082,
        low: Some(1.06),
        high: Some(1.1),
    };
    let mut view = run_view();
    let mut check = AaData {
        scenario: "A".into(),
        blocks: 8,
        allowed_percent: 5.0,
        more_than_chance: false,
        figures: vec![figure("cpu", AaVerdict::Same), figure("throughput", AaVerdict::Undecided)],
    };
    view.aa = Some(check.clone());
    let line = "A/A check: 2 figures of A compared with itself in 8 blocks: 0 were called different (by chance alone it may be \
                5 % of them); 1 is the same to within 5 %.";
    assert!(document(&view).lead.contains(&Block::paragraph(line)));
    for cpu in view.scenarios[0].trials.iter_mut().flat_map(|trial| &mut trial.nodes).flat_map(|node| &mut node.cpus) {
        cpu.counting = Some(0.25);
    }
    let cost = "took 0.25 % of the CPUs' time, at most 0.25 % of one CPU: it is in these figures.";
    let of_both = format!("{line} Counting CPU time exactly in both {cost}");
    assert!(document(&view).lead.contains(&Block::paragraph(of_both)));
    assert!(document(&view).lead.contains(&Block::paragraph(format!("Counting CPU time exactly {cost}"))));
    for cpu in view.scenarios[0].trials.iter_mut().flat_map(|trial| &mut trial.nodes).flat_map(|node| &mut node.cpus) {
        cpu.counting = None;
    }
    check.figures[1].verdict = AaVerdict::Differs;
    check.more_than_chance = true;
    view.aa = Some(check);
    let line = "A/A check: 2 figures of A compared with itself in 8 blocks: 1 was called different (by chance alone it may be \
                5 % of them), more than chance explains (sender throughput by 1.082): verdicts of this run are less sure than \
                they say.";
    let document = document(&view);
    assert!(document.lead.contains(&Block::warning(line)));
    assert!(document.details.contains(&Block::paragraph(line)), "among the doubts");
}

/// Of a run whose scenarios have one trial each, with a claim that nothing could tell.
fn seen() -> RunView {
    let mut view = run_view();
    view.scenarios.iter_mut().for_each(|scenario| scenario.trials.truncate(1));
    for claim in &mut view.claims {
        claim.verdict = Verdict::Undecided;
        if let Some(effect) = &mut claim.effect {
            effect.interval = None;
            claim.open = Some(Open::SingleTrial);
        }
    }
    let refused = |text: &str, reason: &str| Claim {
        text: text.into(),
        effect: None,
        open: Some(Open::Refused { reason: reason.into() }),
        ..view.claims[0].clone()
    };
    let more = [refused("Ten are faster", "too few CPUs"), refused("... and 16", "too few CPUs")];
    view.claims.extend(more);
    view
}

#[test]
fn the_headline_answers_the_question() {
    let view = run_view();
    let headline = document(&view).headline.unwrap();
    assert_eq!(headline.question.as_deref(), Some(&*view.question));
    assert_eq!(
        headline.answer,
        "A virtual switch reduces throughput by a factor of 3 to 4: no, 1.31 (1.28 to 1.33), claimed from 3 to 4. Of 3 \
         claims 1 holds, 1 is refuted, 1 is undecided."
    );
    assert_eq!(headline.caution, None, "few trials carry a doubt");
    let told = |block: &&Block| matches!(block, Block::Notice { text, .. } if text.contains(" of 15 trials carr"));
    assert_eq!(document(&view).brief("").lead.iter().filter(told).count(), 1, "but they are told");
    let mut view = view;
    view.answer = Some("Containers keep 76 % (75 to 78).".into());
    let answer = document(&view).headline.unwrap().answer;
    assert_eq!(answer, "Containers keep 76 % (75 to 78). Of 3 claims 1 holds, 1 is refuted, 1 is undecided.");
    view.answer = None;
    view.claims.clear();
    let answer = document(&view).headline.unwrap().answer;
    assert!(
        answer
            .starts_with("Throughput kept, B = 100: highest 131 % ±3.4 % (A Raw <no switch>), lowest 6.93 % ±3.4 % (E"),
        "{answer}"
    );
    view.scenarios.iter_mut().for_each(|scenario| scenario.trials.clear());
    assert_eq!(document(&view).headline.unwrap().answer, "Nothing was measured.");
}

/// The reader's question comes first: claims of a study that differ here are one line, which the reader can unfold.
#[test]
fn below_an_answer_claims_that_differ_from_the_study_are_one_line() {
    let mut view = run_view();
    view.answer = Some("Containers keep 76 % (75 to 78).".into());
    let refuted =
        view.claims.iter().position(|claim| claim.open.is_none() && claim.verdict == Verdict::Refuted).unwrap();
    view.claims[refuted].verdict = Verdict::Differs;
    let document = document(&view);
    assert_eq!(document.headline.as_ref().unwrap().answer, "Containers keep 76 % (75 to 78).");
    let place = |wanted: fn(&Block) -> bool| document.lead.iter().position(wanted).unwrap();
    let folded = place(|block| matches!(block, Block::Folded { .. }));
    assert!(folded < place(|block| matches!(block, Block::Figure(_))), "above the chart");
    let Block::Folded { summary, blocks } = &document.lead[folded] else { unreachable!() };
    assert_eq!(summary, "Of 3 claims 1 holds, 1 differs from the study, 1 is undecided.");
    assert_eq!(blocks, &[Block::Claims { claims: vec![view.claims[refuted].clone()] }]);
    let text = |block: &Block| serde_json::to_string(block).unwrap();
    let told = document.lead.iter().filter(|block| text(block).contains(&view.claims[refuted].text)).count();
    assert_eq!(told, 1, "told once");
    let brief = document.brief("");
    assert!(!brief.lead.iter().any(|block| text(block).contains(&view.claims[refuted].text)), "folded");
}

/// A run with sampled stacks shows the costs by layer also in its brief report; a table too wide for a screen is a line there.
#[test]
fn costs_by_layer_are_in_the_brief_report_of_a_run_that_sampled_them() {
    let mut view = run_view();
    let has_layers = |document: &Document| {
        let is_chart = |block: &&Block| matches!(block, Block::Figure(Chart::Layers(_)));
        document.lead.iter().filter(is_chart).count()
    };
    assert_eq!(has_layers(&document(&view).brief("")), 0);
    for scenario in &mut view.scenarios {
        scenario.trials = scenario.trials.drain(..).map(|trial| rig_facts::fixture::with_layers(trial, 0)).collect();
    }
    let whole = document(&view);
    let tables = |document: &Document| {
        let of = |block: &Block| matches!(block, Block::Table(table) if table.caption.starts_with("CPU time added to"));
        document.outer_blocks().filter(|block| of(block)).count()
    };
    assert_eq!((has_layers(&whole), tables(&whole)), (1, 1), "told once in all");
    let brief = whole.clone().brief("");
    assert_eq!((has_layers(&brief), tables(&brief)), (1, 0));
    let line = |block: &Block| matches!(block, Block::Folded { summary, .. } if summary.ends_with(" columns"));
    assert!(brief.lead.iter().any(line), "{:?}", brief.lead);

    let flames = |document: &Document| {
        document
            .all_blocks()
            .filter_map(|block| if let Block::Flame(flame) = block { Some(flame.title.clone()) } else { None })
            .collect::<Vec<_>>()
    };
    assert!(flames(&whole).contains(&"Containers, node b".to_owned()), "{:?}", flames(&whole));
    view.scenarios.retain(|scenario| ["A", "B"].contains(&scenario.id.as_str()));
    assert_eq!(tables(&document(&view).brief("")), 1, "two columns have room");
}

#[test]
fn what_one_trial_showed_is_seen_and_not_judged() {
    let document = document(&seen());
    let answer = &document.headline.as_ref().unwrap().answer;
    assert!(
        answer.ends_with(
            ": 1.31, claimed from 3 to 4, as seen in one trial. Of 5 claims 1 has one trial for it, 1 has one trial \
             against it, 3 are undecided."
        ),
        "{answer}"
    );
    let claims: Vec<&Vec<Claim>> = document
        .lead
        .iter()
        .filter_map(|block| if let Block::Claims { claims } = block { Some(claims) } else { None })
        .collect();
    assert_eq!(claims[0][1].words, "C.throughput is 1.2 × B.throughput in one trial; claimed more than 1");
}

#[test]
fn open_claims_are_one_line_for_each_reason() {
    let document = document(&seen());
    let folded: Vec<&str> = document
        .lead
        .iter()
        .filter_map(|block| if let Block::Folded { summary, .. } = block { Some(summary.as_str()) } else { None })
        .collect();
    let expected =
        ["1 claim was not measured: the run has no figures for a scenario", "2 claims were not decided: too few CPUs"];
    assert_eq!(folded, expected);
    let brief = document.brief("more");
    assert!(brief.all_blocks().all(|block| !matches!(block, Block::Table(_))));
    assert_eq!(brief.lead.iter().filter(|block| matches!(block, Block::Folded { .. })).count(), 2);
}

#[test]
fn a_screen_has_claims_of_each_verdict_and_counts_the_others() {
    let mut view = run_view();
    let first = view.claims[0].clone();
    let of = |place: usize, verdict| Claim { text: format!("Claim {place}"), verdict, open: None, ..first.clone() };
    view.claims = (1..=9).map(|place| of(place, Verdict::Refuted)).chain([of(10, Verdict::Holds)]).collect();
    let brief = document(&view).brief("more");
    let shown: Vec<&Claim> = brief
        .lead
        .iter()
        .filter_map(|block| if let Block::Claims { claims } = block { Some(claims) } else { None })
        .flatten()
        .collect();
    assert_eq!(shown.len(), 8);
    assert!(shown.iter().any(|claim| claim.text == "Claim 10"), "{shown:#?}");
    let folded = |block: &Block| matches!(block, Block::Folded { summary, .. } if summary == "2 more claims");
    assert!(brief.lead.iter().any(folded), "{:#?}", brief.lead);
}

/// A claim that goes on with one that stands elsewhere says whose it is.
#[test]
fn a_claim_that_goes_on_is_whole() {
    let mut view = run_view();
    view.claims[1].text = "... and without the wire".into();
    view.claims[1].open = Some(Open::Across);
    let document = document(&view);
    let Some(Block::Folded { summary, blocks }) =
        document.lead.iter().find(|block| matches!(block, Block::Folded { .. }))
    else {
        panic!("{:?}", document.lead)
    };
    assert!(summary.starts_with("1 claim was not decided: the claimed value is inside"), "{summary}");
    let [Block::Claims { claims }] = blocks.as_slice() else { panic!("{blocks:?}") };
    assert_eq!(claims[0].text, "A virtual switch reduces throughput by a factor of 3 to 4 ... and without the wire");
}

#[test]
fn the_whole_is_doubted_where_nearly_every_trial_is() {
    let mut view = run_view();
    let flag = rig_facts::record::Flag::Stolen { node: "a".into(), percent: 9.0 };
    view.scenarios.iter_mut().flat_map(|s| &mut s.trials).for_each(|trial| trial.flags.push(flag.clone()));
    let caution = document(&view).headline.unwrap().caution.unwrap();
    assert_eq!(
        caution,
        "Each of the 15 trials carries a doubt: at worst the hypervisor took 9.0 % of node a's CPU time. Next: use a host with \
         CPUs of its own, or more blocks (--budget)."
    );
    view.scenarios[0].trials[0].flags.clear();
    assert!(document(&view).headline.unwrap().caution.unwrap().starts_with("14 of 15 trials carry a doubt"));
    let flags_of = |view: &mut RunView, doubted: usize| {
        let trials = view.scenarios.iter_mut().flat_map(|s| &mut s.trials).enumerate();
        trials.for_each(|(i, trial)| trial.flags = if i < doubted { vec![flag.clone()] } else { Vec::new() });
    };
    flags_of(&mut view, 8);
    assert!(document(&view).headline.unwrap().caution.unwrap().starts_with("8 of 15 trials carry a doubt"));
    flags_of(&mut view, 7);
    assert_eq!(document(&view).headline.unwrap().caution, None, "told below");
    flags_of(&mut view, 14);
    // What follows from it does not stand in its place.
    let full = rig_facts::record::Flag::Saturated { node: "a".into(), percent: 100.0 };
    view.scenarios.iter_mut().flat_map(|s| &mut s.trials).for_each(|trial| {
        if !trial.flags.is_empty() {
            trial.flags.insert(0, full.clone());
        }
    });
    let caution = document(&view).headline.unwrap().caution.unwrap();
    assert!(caution.contains("the hypervisor took"), "{caution}");
    view.set_apart = Some(SetApart { slower_percent: 23.4, usual_runs: 5 });
    let caution = document(&view).headline.unwrap().caution.unwrap();
    let apart = "Another machine by calibration: the same arithmetic was 23 % slower than in 5 runs of this store.";
    assert!(caution.starts_with(apart) && caution.contains(" 14 of 15 trials carry a doubt"), "{caution}");
}

#[test]
fn of_a_single_test_the_baseline_is_on_the_chart_too() {
    let rows = |view: &RunView| {
        let document = document(view);
        let Some(Block::Figure(Chart::Overview(chart))) =
            document.lead.into_iter().find(|block| matches!(block, Block::Figure(_)))
        else {
            panic!("no chart")
        };
        chart
            .rows
            .iter()
            .map(|row| (row.label.to_string(), row.numbers[0].map(|number| number.value)))
            .collect::<Vec<_>>()
    };
    let mut view = netperf_view();
    assert!(rows(&view).iter().all(|(label, _)| !label.contains("no namespace")), "{:?}", rows(&view));
    view.scenarios.retain(|scenario| ["none-tcp-rr", "etun-tcp-rr"].contains(&scenario.id.as_str()));
    let rows = rows(&view);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(rows[0], ("TCP_RR no namespace".to_owned(), Some(100.0)));
    assert!(rows[1].0.contains("etun"), "{rows:?}");
}

/// Both ends on one node are counted once: 98 % of its CPU time at 14,200 Mbit/s.
#[test]
fn the_overview_holds_each_scenario_against_the_baseline() {
    let document = document(&run_view());
    let Some(Block::Figure(Chart::Overview(chart))) =
        document.lead.iter().find(|block| matches!(block, Block::Figure(_)))
    else {
        panic!("{:?}", document.lead)
    };
    let number = |id: &str, panel: usize| {
        let row = chart.rows.iter().find(|row| row.label.head == id).unwrap();
        row.numbers[panel].unwrap()
    };
    assert_eq!((number("B", 0).value, number("B", 0).interval), (100.0, None));
    let kept = number("D", 0);
    assert!((kept.value - 100.0 * 8.1 / 17.9).abs() < 0.1 && kept.interval.is_some(), "{kept:?}");
    assert!((kept.reference.unwrap() - 100.0 * 657.52 / 1592.698).abs() < 0.1, "{kept:?}");
    let together = number("C", 1).value;
    assert!((together - 0.98 / (14.2 / 8.0)).abs() < 0.01, "{together}");
    let apart = number("B", 1).value;
    assert!((apart - (0.71 + 0.975) / (17.9 / 8.0)).abs() < 0.01, "{apart}");
}
