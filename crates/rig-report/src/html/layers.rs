//! Bars made of many parts: eight colours, then the same with lines over them, and names where there is room.

use plotters::element::{PathElement, Rectangle, Text};
use plotters::prelude::Color;
use plotters::style::text_anchor::{HPos, VPos};

use super::svg::{
    Area, BAR, Drawn, FONT, Role, SMALL, Shape, StackRows, VALUES, draw_label, draw_scale, fit, gutter, stroke, style,
    text_width,
};
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

pub fn height(chart: &Stacked, shape: Shape) -> u32 {
    StackRows::new(chart, shape).height()
}

pub fn draw(chart: &Stacked, shape: Shape, area: &Area) -> Drawn {
    let rows = StackRows::new(chart, shape);
    let left = gutter(chart.rows.iter().map(|row| &row.label), shape);
    let limit = if chart.limit > 0.0 { chart.limit } else { 1.0 };
    let x = draw_scale(area, shape.ticks(), limit, &chart.axis.to_string(), left, 58)?;
    let mut head = None;
    for (i, row) in chart.rows.iter().enumerate() {
        let first = shape == Shape::Narrow || head != Some(&row.label.head);
        head = Some(&row.label.head);
        let room = if shape == Shape::Wide { left - 12 } else { shape.width() as i32 };
        draw_label(area, &row.label, first, 0, rows.label_y(i), room)?;
        let top = rows.bar_top(i);
        let mut sum = 0.0;
        for (part, value) in row.values.iter().enumerate() {
            let begin = x(sum);
            sum += value.max(0.0);
            let end = x(sum);
            let end = if end - begin > 2 { end - 1 } else { end };
            if end <= begin {
                continue;
            }
            area.draw(&Rectangle::new([(begin, top), (end, top + BAR)], Role::Value(part).colour().filled()))?;
            let name = chart.parts.get(part).map(|name| clean_line(name)).unwrap_or_default();
            let needed = text_width(&name, SMALL) + 6;
            let has_name = needed <= end - begin;
            if let Some(spacing) = SPACING[part / VALUES % SPACING.len()] {
                // Behind the name there are none.
                let from = if has_name { begin + needed } else { begin + spacing / 2 };
                for at in (from..end).step_by(spacing as usize) {
                    area.draw(&PathElement::new([(at, top), (at, top + BAR)], stroke(Role::OnValue, 1)))?;
                }
            }
            if has_name {
                let on_value = style(SMALL, Role::OnValue, HPos::Left, VPos::Center);
                area.draw(&Text::new(fit(&name, SMALL, end - begin), (begin + 3, top + BAR / 2), on_value))?;
            }
        }
        let ink = style(FONT, Role::Ink, HPos::Left, VPos::Center);
        area.draw(&Text::new(row.figure.to_string(), (x(sum) + 6, top + BAR / 2), ink))?;
    }
    Ok(())
}
