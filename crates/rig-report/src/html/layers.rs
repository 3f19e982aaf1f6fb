//! Bars made of many parts: eight colours, then the same with lines over them, and names where there is room.

use super::canvas::{Anchor, Area, Rise};
use super::svg::{BAR, Role, SMALL, Shape, StackRows, VALUES, draw_stacks, fit, style, text_width};
use crate::document::Stacked;
use crate::text::clean_line;

/// Pixels between the lines of a part, by how often the colours have been through.
const SPACING: [Option<i32>; 3] = [None, Some(7), Some(3)];

/// How a part is told from others.
pub fn role(part: usize) -> Role {
    match part / VALUES % SPACING.len() {
        0 => Role::Value(part),
        1 => Role::Lined(part),
        _ => Role::Crowded(part),
    }
}

/// The parts that any bar has, with their roles.
pub fn legend(chart: &Stacked) -> Vec<(Role, String)> {
    let is_there = |part: usize| chart.rows.iter().any(|row| row.values.get(part).is_some_and(|value| *value > 0.0));
    let parts = chart.parts.iter().enumerate().filter(|(part, _)| is_there(*part));
    parts.map(|(part, name)| (role(part), clean_line(name))).collect()
}

/// Each bar in words, its largest parts first.
pub fn words(chart: &Stacked) -> String {
    chart
        .rows
        .iter()
        .map(|row| {
            let parts: Vec<String> = crate::text::largest(chart, row, usize::MAX)
                .into_iter()
                .map(|(name, share)| format!("{name} {share:.1} %"))
                .collect();
            format!("{}: {}, of which {}. ", row.label, row.figure, parts.join(", "))
        })
        .collect()
}

pub fn height(chart: &Stacked, shape: Shape) -> i32 {
    StackRows::new(chart, shape).height()
}

pub fn draw(chart: &Stacked, shape: Shape, area: &Area) {
    draw_stacks(chart, shape, area, 58, |part, (begin, end), top| {
        area.rectangle([(begin, top), (end, top + BAR)], Role::Value(part));
        let name = chart.parts.get(part).map(|name| clean_line(name)).unwrap_or_default();
        let needed = text_width(&name, SMALL) + 6;
        let has_name = needed <= end - begin;
        if let Some(spacing) = SPACING[part / VALUES % SPACING.len()] {
            // Behind the name there are none.
            let from = if has_name { begin + needed } else { begin + spacing / 2 };
            for at in (from..end).step_by(spacing as usize) {
                area.line([(at, top), (at, top + BAR)], Role::OnValue, 1);
            }
        }
        if has_name {
            let on_value = style(SMALL, Role::OnValue, Anchor::Start, Rise::Center);
            area.text(&fit(&name, SMALL, end - begin), (begin + 3, top + BAR / 2), on_value);
        }
    });
}
