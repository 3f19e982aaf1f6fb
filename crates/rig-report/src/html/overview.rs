//! An overview: a panel of bars with intervals for each quantity, side by side or, on a phone, one below the other.

use textwrap::wrap;

use super::canvas::{Anchor, Area, Rise};
use super::svg::{
    AXIS, LABEL_LINE, Role, SMALL, Shape, columns, draw_bar, draw_label, draw_mark, draw_scale, draw_value, gutter,
    style, text_width,
};
use crate::document::{Number, Overview};
use crate::text::clean_line;

const BAR: i32 = 13;
/// From one row to the next where labels stand beside the bars.
const ROW: i32 = 25;
/// A line of a panel's name, which stands above it.
const HEAD_LINE: i32 = 15;
/// Numbers along a panel's scale, about: panels are narrow in both shapes.
const TICKS: usize = 4;
/// Between panels.
const GAP: i32 = 14;

fn row_height(shape: Shape) -> i32 {
    match shape {
        Shape::Wide => ROW,
        Shape::Narrow => LABEL_LINE + BAR + 7,
    }
}

/// Pixels of a panel's width, with the gap that follows it.
fn panel_width(chart: &Overview, shape: Shape) -> i32 {
    match shape {
        Shape::Wide => (shape.width() - labels_width(chart, shape)) / chart.panels.len().max(1) as i32,
        Shape::Narrow => shape.width(),
    }
}

fn labels_width(chart: &Overview, shape: Shape) -> i32 {
    gutter(chart.rows.iter().map(|row| &row.label), shape)
}

/// A panel's name in as many lines as it takes: at its end stands the unit.
fn head(chart: &Overview, panel: usize, shape: Shape) -> Vec<String> {
    let name = clean_line(&chart.panels[panel].to_string());
    wrap(&name, columns(SMALL, panel_width(chart, shape))).into_iter().map(String::from).collect()
}

/// Room for the panels' names above them.
fn head_height(chart: &Overview, shape: Shape) -> i32 {
    let lines = (0..chart.panels.len()).map(|panel| head(chart, panel, shape).len()).max().unwrap_or(1);
    9 + lines as i32 * HEAD_LINE
}

fn panel_height(chart: &Overview, shape: Shape) -> i32 {
    head_height(chart, shape) + chart.rows.len() as i32 * row_height(shape) + AXIS
}

pub(super) fn height(chart: &Overview, shape: Shape) -> i32 {
    let panels = match shape {
        Shape::Wide => 1,
        Shape::Narrow => chart.panels.len().max(1) as i32,
    };
    panels * panel_height(chart, shape)
}

pub(super) fn draw(chart: &Overview, shape: Shape, area: &Area<'_>) {
    let labels = labels_width(chart, shape);
    let head = head_height(chart, shape);
    match shape {
        Shape::Wide => {
            for (i, row) in chart.rows.iter().enumerate() {
                draw_label(area, &row.label, true, 0, head + i as i32 * ROW + ROW / 2, labels - 12);
            }
            let each = panel_width(chart, shape);
            for panel in 0..chart.panels.len() {
                let left = labels + panel as i32 * each;
                draw_panel(chart, panel, shape, area, (left, left + each - GAP));
            }
        }
        Shape::Narrow => {
            let mut rest = area.clone();
            for panel in 0..chart.panels.len() {
                let (own, below) = rest.split(panel_height(chart, shape));
                draw_panel(chart, panel, shape, &own, (0, shape.width()));
                for (i, row) in chart.rows.iter().enumerate() {
                    let y = head + i as i32 * row_height(shape) + LABEL_LINE / 2;
                    draw_label(&own, &row.label, true, 0, y, shape.width());
                }
                rest = below;
            }
        }
    }
}

fn draw_panel(chart: &Overview, panel: usize, shape: Shape, area: &Area<'_>, (left, right): (i32, i32)) {
    let numbers = || chart.rows.iter().map(|row| row.numbers.get(panel).copied().flatten());
    let reach = |n: Number| [Some(n.value), n.interval.map(|i| i.high), n.reference].into_iter().flatten();
    let limit = numbers().flatten().flat_map(reach).fold(0.0, f64::max);
    let limit = if limit > 0.0 { limit * 1.01 } else { 1.0 };
    let texts = numbers().flatten().map(|n| text_width(&n.with_words(), SMALL));
    let room = texts.max().unwrap_or(0) + 10;
    let below = head_height(chart, shape);
    for (i, line) in (0..).zip(head(chart, panel, shape)) {
        area.text(&line, (left, 2 + i * HEAD_LINE), style(SMALL, Role::Ink, Anchor::Start, Rise::Top));
    }
    let total = area.width;
    // Its lines end below the name.
    let (_, bars) = area.split(below - 4);
    let x = draw_scale(&bars, TICKS, limit, "", left, total - right + room);
    let names = if shape == Shape::Narrow { LABEL_LINE } else { (ROW - BAR) / 2 };
    for (i, number) in numbers().enumerate() {
        let Some(number) = number else { continue };
        let top = below + i as i32 * row_height(shape) + names;
        let middle = top + BAR / 2;
        let mut edge = draw_bar(area, &x, &number, Role::Series(panel), (top, BAR));
        // With its interval on a phone too: the names stand above the bars, so that there is room.
        let text = number.with_words();
        if let Some(reference) = number.reference {
            let at = x(reference);
            draw_mark(area, at, (top, BAR));
            if (edge - 4..edge + 12 + text_width(&text, SMALL)).contains(&at) {
                edge = at + 2;
            }
        }
        draw_value(area, &text, SMALL, (edge + 6, middle));
    }
}
