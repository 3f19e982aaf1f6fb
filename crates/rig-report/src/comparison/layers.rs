//! In which layers changes of CPU time lie.

use rig_facts::layers::{LayerDifference, MUCH_UNKNOWN};
use rig_stats::compare::Verdict;
use rig_stats::confidence::Level;
use rig_verdict::compare::{Comparison, LayerComparison};

use crate::build::layers::{change, decimals, shown};
use crate::document::{Block, Cell, Column, Flame, FlameBefore, Label, Number, Row, Table};

/// Layers that one sentence names.
const NAMED: usize = 6;

/// A sentence for each end whose CPU time is better or worse, and for others with layers that changed surely among all of the comparison:
/// of so many, some lie beyond their own interval by chance.
pub(super) fn blocks(comparison: &Comparison, level: u8) -> Vec<Block> {
    let all = comparison.layers.iter().map(|one| one.changes.parts.len()).sum();
    let confidence = Level::new(comparison.method.confidence_level_percent).unwrap_or_default();
    let sure = |part: &LayerDifference| part.is_sure_among(all, confidence);
    let items: Vec<String> = comparison.layers.iter().filter_map(|one| sentence(one, &sure)).collect();
    if comparison.layers.is_empty() {
        return Vec::new();
    }
    let mut notices = Vec::new();
    if comparison.layers.iter().any(|one| !one.changes.same_map) {
        notices.push(Block::warning(
            "The runs divided their stacks by different maps from functions to layers: parts may have moved between layers.",
        ));
    }
    if comparison.layers.iter().any(|one| !one.changes.same_clock) {
        notices.push(Block::warning(
            "One run sampled its stacks by CPU cycles, the other by the kernel's timer, which sees less of interrupts and more of \
             what a hypervisor does: parts may have moved between layers.",
        ));
    }
    let unknown: Vec<String> = comparison
        .layers
        .iter()
        .filter(|one| one.unknown_percent > MUCH_UNKNOWN)
        .map(|one| format!("{} {} ({:.1} %)", one.scenario, one.changes.end, one.unknown_percent))
        .collect();
    if !unknown.is_empty() {
        notices.push(Block::warning(format!("Much of the time has no layer: {}.", unknown.join(", "))));
    }
    match items.is_empty() {
        true => {
            let text = "No layer changed by more than chance explains; what each took is with the figures.";
            notices.push(Block::paragraph(text));
            notices
        }
        false => {
            let heading = Block::heading(level, "Changes by layer");
            [heading].into_iter().chain(notices).chain([Block::List { items }]).collect()
        }
    }
}

/// `B sender: +0.031 (0.010 to 0.052) µs/KB; by more than its interval Netfilter +0.021 (0.015 to 0.027)`
fn sentence(one: &LayerComparison, sure_among_all: &dyn Fn(&LayerDifference) -> bool) -> Option<String> {
    let unit = &one.changes.unit;
    let changed = matches!(one.verdict, Some(Verdict::Better | Verdict::Worse));
    let is_sure = |part: &&LayerDifference| if changed { part.is_sure() } else { sure_among_all(part) };
    let mut sure: Vec<&LayerDifference> = one.changes.parts.iter().filter(is_sure).collect();
    if sure.is_empty() && !changed {
        return None;
    }
    sure.sort_by(|one, other| other.difference.abs().total_cmp(&one.difference.abs()));
    let signed = |value: f64| {
        let text = Number::new(value, decimals(unit)).to_string();
        if value > 0.0 { format!("+{text}") } else { text }
    };
    let amount = |part: &LayerDifference| match (part.low, part.high) {
        (Some(low), Some(high)) => format!("{} ({} to {})", signed(part.difference), signed(low), signed(high)),
        _ => signed(part.difference),
    };
    let total = &one.changes.total;
    let whole = format!("{} {}: {} {}", one.scenario, one.changes.end, amount(total), shown(unit));
    let parts: Vec<String> = sure.iter().take(NAMED).map(|part| format!("{} {}", part.title, amount(part))).collect();
    Some(match parts.is_empty() {
        true => format!("{whole}; no single layer changed by more than its interval"),
        false => format!("{whole}; by more than its interval {}", parts.join(", ")),
    })
}

/// All parts, and the stacks coloured by their change.
pub(super) fn details(comparison: &Comparison) -> Vec<Block> {
    let of = |one: &LayerComparison| {
        let mut blocks = vec![Block::Table(table(one))];
        if let Some((old, new)) = &one.profiles {
            blocks.push(Block::Flame(Flame {
                title: format!("{} {}, new against old", one.scenario, one.changes.end),
                profile: new.clone(),
                before: Some(FlameBefore {
                    profile: old.clone(),
                    unit: one.changes.unit.clone(),
                    old_total: one.changes.total.old,
                    new_total: one.changes.total.new,
                }),
            }));
        }
        blocks
    };
    comparison.layers.iter().flat_map(of).collect()
}

fn table(one: &LayerComparison) -> Table {
    let unit = shown(&one.changes.unit);
    let places = decimals(&one.changes.unit);
    let mut table = Table::new(format!("CPU time of {} by layer, {}", one.scenario, one.changes.end), "Layer");
    table.columns =
        ["old", "new", "change"].map(|head| Column::number(Label::new(head), Some(&unit))).into_iter().collect();
    let row = |part: &LayerDifference| Row {
        label: part.title.clone(),
        unit: None,
        cells: vec![Cell::number(part.old, places), Cell::number(part.new, places), change(part, &one.changes.unit)],
    };
    table.rows = one.changes.parts.iter().chain([&one.changes.total]).map(row).collect();
    table
}

#[cfg(test)]
mod tests {
    use rig_facts::fixture::with_layers;
    use rig_stats::units::Percent;
    use rig_verdict::compare::{Input, Options, compare};
    use rig_verdict::export::data;
    use rig_verdict::fixture::run_view;

    use super::*;
    use crate::comparison::document;

    /// The run with so much more of netfilter in scenario B.
    fn input(id: &str, extra: u64) -> Input {
        let mut view = run_view();
        view.id = id.to_owned();
        view.started_unix_ms += i64::try_from(extra).unwrap();
        for scenario in &mut view.scenarios {
            let own = if scenario.id == "B" { extra } else { 0 };
            let trials = std::mem::take(&mut scenario.trials);
            scenario.trials = trials.into_iter().map(|trial| with_layers(trial, own)).collect();
        }
        Input { name: format!("run {id}"), data: data(&view) }
    }

    fn compared(extra: u64) -> Comparison {
        let options = Options {
            level: Default::default(),
            minimum: Percent::new(5.0).unwrap(),
            only: Vec::new(),
            metrics: Vec::new(),
        };
        compare(&input("1", 0), &input("2", extra), &[], &options).unwrap()
    }

    fn items(blocks: &[Block]) -> Vec<&str> {
        let lists =
            blocks.iter().filter_map(|block| if let Block::List { items } = block { Some(items) } else { None });
        lists.flatten().map(String::as_str).collect()
    }

    #[test]
    fn a_change_is_explained_by_the_layers_in_which_it_lies() {
        let mut comparison = compared(300);
        for one in &mut comparison.layers {
            one.verdict = Some(if one.scenario == "B" { Verdict::Worse } else { Verdict::Undecided });
        }
        let told = blocks(&comparison, 2);
        let of_b: Vec<&str> = items(&told).into_iter().filter(|item| item.starts_with("B sender")).collect();
        assert_eq!(of_b.len(), 1, "{told:#?}");
        assert!(of_b[0].contains("Netfilter +") && of_b[0].contains("Socket, TCP and UDP -"), "{of_b:?}");
        assert!(!items(&told).iter().any(|item| item.starts_with("A ")), "{told:#?}");
        let document = document(&comparison);
        let flames =
            document.details.iter().filter(|block| matches!(block, Block::Flame(flame) if flame.before.is_some()));
        let flames: Vec<&Block> = flames.collect();
        assert_eq!(flames.len(), comparison.layers.len());
        let Some(Block::Flame(flame)) = flames.first() else { panic!("no flame graph") };
        let stacks = crate::csv::of_flame(flame).unwrap();
        let samples = |run: &str| stacks.lines().filter(|line| line.contains(&format!(",{run} samples,"))).count();
        let before = flame.before.as_ref().unwrap();
        assert_eq!(
            (samples("old"), samples("new")),
            (before.profile.stacks.len(), flame.profile.stacks.len()),
            "{stacks}"
        );
    }

    /// Time has moved from one layer to another, and the end takes as much as before.
    #[test]
    fn of_an_end_that_is_the_same_only_what_is_sure_among_all_layers_is_named() {
        let mut comparison = compared(300);
        assert!(comparison.layers.iter().all(|one| one.verdict == Some(Verdict::Same)), "{:#?}", comparison.layers);
        let named = |comparison: &Comparison, layer: &str| {
            items(&blocks(comparison, 2)).into_iter().any(|item| item.starts_with("B sender") && item.contains(layer))
        };
        let part = comparison
            .layers
            .iter_mut()
            .filter(|one| one.scenario == "B" && one.changes.end.name() == "sender")
            .flat_map(|one| &mut one.changes.parts)
            .find(|part| part.title == "Netfilter")
            .unwrap();
        // Beyond its own interval, by 1.25 times its half.
        (part.difference, part.low, part.high) = (0.10, Some(0.02), Some(0.18));
        assert!(!named(&comparison, "Netfilter"));
        let changed = |one: &&mut LayerComparison| one.scenario == "B";
        comparison.layers.iter_mut().filter(changed).for_each(|one| one.verdict = Some(Verdict::Worse));
        assert!(named(&comparison, "Netfilter"));
        comparison.layers.iter_mut().filter(changed).for_each(|one| one.verdict = Some(Verdict::Undecided));
        let part = comparison
            .layers
            .iter_mut()
            .filter(|one| one.scenario == "B")
            .flat_map(|one| &mut one.changes.parts)
            .filter(|part| part.title == "Netfilter");
        part.for_each(|part| (part.difference, part.low, part.high) = (0.10, Some(0.08), Some(0.12)));
        assert!(named(&comparison, "Netfilter"));
    }

    #[test]
    fn runs_alike_have_no_layer_to_name() {
        let comparison = compared(1);
        let told = blocks(&comparison, 2);
        assert!(
            told.iter().any(|block| matches!(block, Block::Paragraph { text } if text.starts_with("No layer changed"))),
            "{told:#?}"
        );
        assert!(told.iter().all(|block| !matches!(block, Block::Notice { .. })), "{told:#?}");
        let mut by_cycles = comparison.clone();
        by_cycles.layers[0].changes.same_clock = false;
        let said = |block: &Block| matches!(block, Block::Notice { text, .. } if text.contains("by CPU cycles"));
        assert!(blocks(&by_cycles, 2).iter().any(said));
        let mut moved = comparison;
        moved.layers[0].changes.same_map = false;
        assert!(blocks(&moved, 2).iter().any(|block| matches!(block, Block::Notice { .. })));
    }
}
