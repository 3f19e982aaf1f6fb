//! A table in a width and a height.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use textwrap::core::display_width;

use super::cells::{bar, clean, clip, heat, legend, spark};
use super::style;
use crate::theme::Theme;
use crate::view::{Cell, Table, TextStyle, Width};

/// A title, heads and rows; where rows do not fit, the last line says how many.
pub fn lines(table: &Table, scroll: usize, theme: Theme, width: u16, height: u16) -> Vec<Line<'static>> {
    let fitted = fit(table, width);
    let mut all = vec![title(table, theme, width), heads(table, &fitted, theme, width)];
    let room = usize::from(height).saturating_sub(all.len());
    let more = table.rows.len() > room;
    let shown = if more { room.saturating_sub(1) } else { room };
    let from = scroll.min(table.rows.len().saturating_sub(shown));
    for (at, row) in table.rows.iter().enumerate().skip(from).take(shown) {
        let line = of_row(table, &fitted, row, theme, width);
        let chosen = table.chosen == Some(at);
        all.push(if chosen { line.style(Style::new().add_modifier(Modifier::REVERSED)) } else { line });
    }
    if more && room > 0 {
        let text = match (from, table.rows.len() - from - shown) {
            (0, below) => format!("{below} more below"),
            (above, 0) => format!("{above} more above"),
            (above, below) => format!("{above} more above, {below} below"),
        };
        all.push(Line::styled(clip(&text, width), style(TextStyle::Faint, theme)));
    }
    all.truncate(height.into());
    all
}

fn title(table: &Table, theme: Theme, width: u16) -> Line<'static> {
    let rule = theme.rule();
    let text = clip(&format!("{rule} {}", clean(&table.title, theme)), width);
    let mut line = Line::from(Span::styled(text, Style::new().add_modifier(Modifier::BOLD)));
    if let Some(names) = table.legend {
        let spans = legend(names, theme);
        if line.width() + spans.iter().map(Span::width).sum::<usize>() <= width.into() {
            line.spans.extend(spans);
        }
    }
    let left = usize::from(width).saturating_sub(line.width() + 1);
    if left > 0 {
        line.push_span(Span::raw(format!(" {}", rule.to_string().repeat(left))));
    }
    line
}

/// Columns that there is room for, and what is between two of them.
struct ColumnLayout {
    /// Which, and how wide.
    columns: Vec<(usize, usize)>,
    gap: usize,
}

fn fit(table: &Table, width: u16) -> ColumnLayout {
    let width = usize::from(width);
    let texts = |at: usize| {
        let texts = table.rows.iter().filter_map(|row| match row.get(at) {
            Some(Cell::Text(text, _)) => Some(display_width(text)),
            _ => None,
        });
        texts.max()
    };
    let head = |at: usize| table.columns[at].head.len();
    let least = |at: usize| match table.columns[at].width {
        Width::Between(least, _) => usize::from(least).min(texts(at).map_or(usize::MAX, |text| text.max(head(at)))),
        Width::Right | Width::Left => texts(at).unwrap_or(0).max(head(at)),
    };
    let mut columns: Vec<(usize, usize)> = (0..table.columns.len()).map(|at| (at, least(at))).collect();
    let taken = |columns: &[(usize, usize)], gap: usize| {
        columns.iter().map(|(_, width)| width + gap).sum::<usize>().saturating_sub(gap)
    };
    while taken(&columns, 1) > width && columns.len() > 1 {
        let worst = columns.iter().max_by_key(|(at, _)| table.columns[*at].rank).map(|(at, _)| *at);
        columns.retain(|(at, _)| Some(*at) != worst);
    }
    let gap = if taken(&columns, 2) <= width { 2 } else { 1 };
    // What is left goes to those that can use it.
    let mut left = width.saturating_sub(taken(&columns, gap));
    let elastic = |at: usize| matches!(table.columns[at].width, Width::Between(..));
    let mut waiting = columns.iter().filter(|(at, _)| elastic(*at)).count();
    for (at, wide) in columns.iter_mut().filter(|(at, _)| elastic(*at)) {
        if let Width::Between(_, most) = table.columns[*at].width {
            let most = usize::from(most).min(texts(*at).map_or(usize::MAX, |text| text.max(head(*at))));
            let more = (left / waiting).min(most.saturating_sub(*wide));
            *wide += more;
            left -= more;
        }
        waiting -= 1;
    }
    ColumnLayout { columns, gap }
}

/// A text at its side of a column.
fn padded(text: &str, wide: usize, right: bool) -> String {
    let text = clip(text, wide as u16);
    let pad = " ".repeat(wide.saturating_sub(display_width(&text)));
    if right { pad + &text } else { text + &pad }
}

fn heads(table: &Table, fitted: &ColumnLayout, theme: Theme, width: u16) -> Line<'static> {
    let mut text = String::new();
    for (at, wide) in &fitted.columns {
        if !text.is_empty() {
            text.push_str(&" ".repeat(fitted.gap));
        }
        let column = &table.columns[*at];
        text.push_str(&padded(column.head, *wide, column.width == Width::Right));
    }
    Line::styled(clip(text.trim_end(), width), style(TextStyle::Faint, theme))
}

fn of_row(table: &Table, fitted: &ColumnLayout, row: &[Cell], theme: Theme, width: u16) -> Line<'static> {
    let mut line = Line::default();
    for (at, wide) in &fitted.columns {
        if !line.spans.is_empty() {
            line.push_span(" ".repeat(fitted.gap));
        }
        // A single column may be wider than the screen.
        let wide = (*wide).min(width.into());
        match row.get(*at) {
            Some(Cell::Text(text, tone)) => {
                let right = table.columns[*at].width == Width::Right;
                line.push_span(Span::styled(padded(&clean(text, theme), wide, right), style(*tone, theme)));
            }
            Some(Cell::Bar(shares)) => line.spans.extend(bar(*shares, theme, wide as u16)),
            Some(Cell::Spark(track, full)) => {
                line.push_span(padded(&spark(track, *full, theme, wide as u16), wide, false));
            }
            Some(Cell::Heat(track)) => {
                line.spans.extend(heat(track, theme, wide as u16));
                line.push_span(" ".repeat(wide.saturating_sub(crate::history::SECONDS)));
            }
            None => line.push_span(" ".repeat(wide)),
        }
    }
    line
}
