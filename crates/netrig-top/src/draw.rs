//! A view on a screen of a size: as lines, each of them no longer than the screen is wide.

mod cells;
mod table;

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use self::table::lines;
use crate::theme::Theme;
use crate::view::{Side, StatusNote, Table, TextStyle, View};

/// From so many columns on there are two tables side by side.
const TWO_ABREAST: u16 = 150;
const GAP: u16 = 3;
/// Lines between two machines.
const BETWEEN: u16 = 1;

/// All of it, from the top, of several machines one below the other; at most `height` lines.
pub fn compose(views: &[View], theme: Theme, width: u16, height: u16) -> Vec<Line<'static>> {
    let keys = u16::from(height >= 4);
    let room = height.saturating_sub(keys);
    let mut all = Vec::new();
    match views {
        [view] => all = block(view, theme, width, room),
        [view, ..] if view.help.is_some() => all = block(view, theme, width, room),
        _ => {
            let wanted: Vec<u16> =
                views.iter().map(|view| block(view, theme, width, room).len() as u16 + BETWEEN).collect();
            for ((view, wanted), height) in views.iter().zip(&wanted).zip(divided(&wanted, room)) {
                let end = all.len() + usize::from(height);
                // With all that it wants, its notes may be more than a third of it.
                let own = if height < *wanted { height.saturating_sub(BETWEEN) } else { room };
                all.extend(block(view, theme, width, own));
                all.resize(end.min(room.into()), Line::default());
            }
        }
    }
    if keys > 0 {
        all.resize(room.into(), Line::default());
        let most = views.iter().max_by_key(|view| view.keys.len());
        all.push(most.map_or_else(Line::default, |view| foot(view, width)));
    }
    all.truncate(if width == 0 { 0 } else { height.into() });
    all
}

/// One machine, without keys; at most `height` lines.
pub fn block(view: &View, theme: Theme, width: u16, height: u16) -> Vec<Line<'static>> {
    let mut all = head(view, theme, width, height);
    let left = height.saturating_sub(all.len() as u16);
    match view.help {
        Some(help) => {
            let lines: Vec<Line<'static>> = help.iter().flat_map(|(what, text)| explained(what, text, width)).collect();
            let from = view.scroll.min(lines.len().saturating_sub(left.into()));
            all.extend(lines.into_iter().skip(from).take(left.into()));
        }
        None if width >= TWO_ABREAST => abreast(&mut all, view, theme, width, left),
        None => stacked(&mut all, &view.tables.iter().collect::<Vec<_>>(), view.scroll, theme, width, left),
    }
    all.truncate(if width == 0 { 0 } else { height.into() });
    for line in all.iter_mut().filter(|line| line.width() > width.into()) {
        // On a screen of a few columns.
        *line = Line::raw(cells::clip(&line.to_string(), width));
    }
    all
}

/// Of a height, to each what it wants, or an equal share of what the smaller ones leave.
fn divided(wanted: &[u16], height: u16) -> Vec<u16> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|number| wanted[*number]);
    let (mut given, mut left) = (vec![0; wanted.len()], height);
    for (done, number) in order.iter().enumerate() {
        given[*number] = wanted[*number].min(left / (order.len() - done) as u16);
        left -= given[*number];
    }
    given
}

fn style(tone: TextStyle, theme: Theme) -> Style {
    match tone {
        TextStyle::Plain => Style::new(),
        TextStyle::Faint => Style::new().add_modifier(Modifier::DIM),
        TextStyle::Alarm if theme.colour => Style::new().fg(ratatui::style::Color::Red),
        TextStyle::Bold | TextStyle::Alarm => Style::new().add_modifier(Modifier::BOLD),
    }
}

/// The title, and as many notes as a third of the screen takes.
fn head(view: &View, theme: Theme, width: u16, height: u16) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let wrapped = |text: &str, style: Style| -> Vec<Line<'static>> {
        let text = cells::clean(text, theme);
        let lines = textwrap::wrap(&text, textwrap::Options::new(usize::from(width.max(1))).subsequent_indent("  "));
        lines.into_iter().map(|line| Line::styled(line.into_owned(), style)).collect()
    };
    let mut all = wrapped(&view.title, bold);
    for StatusNote { tone, text } in &view.notes {
        all.extend(wrapped(text, style(*tone, theme)));
    }
    let most = if view.tables.is_empty() { height } else { (height / 3).max(3) }.min(height);
    if all.len() > most.into() {
        all.truncate(most.into());
        if let Some(last) = all.last_mut() {
            let shorter = cells::clip(&last.to_string(), width.saturating_sub(4));
            *last = Line::styled(format!("{shorter} ..."), style(TextStyle::Faint, theme));
        }
    }
    all
}

fn explained(what: &str, text: &str, width: u16) -> Vec<Line<'static>> {
    let first = format!("{what:<18}");
    let options = textwrap::Options::new(usize::from(width.max(1)))
        .initial_indent(&first)
        .subsequent_indent("                  ");
    if text.is_empty() {
        return vec![Line::default()];
    }
    textwrap::wrap(text, options).into_iter().map(|line| Line::raw(line.into_owned())).collect()
}

/// Keys, as many as there is room for.
fn foot(view: &View, width: u16) -> Line<'static> {
    let mut text = String::new();
    for key in &view.keys {
        let gap = if text.is_empty() { 0 } else { 2 };
        if text.len() + gap + key.len() > width.into() {
            break;
        }
        text.push_str(&"  "[..gap]);
        text.push_str(key);
    }
    Line::styled(text, Style::new().add_modifier(Modifier::DIM))
}

/// Divides a height that may not suffice among tables: those that need little get it, the others share the rest. Tables that get
/// too little for a single row are left out, the last first.
fn heights(tables: &[&Table], height: u16) -> Vec<u16> {
    let mut wants: Vec<u16> = tables.iter().map(|table| (table.rows.len() as u16).saturating_add(2)).collect();
    if wants.iter().map(|want| u32::from(*want)).sum::<u32>() > height.into() {
        wants.iter_mut().zip(tables).filter(|(_, table)| table.spare).for_each(|(want, _)| *want = 0);
    }
    loop {
        let given = divided(&wants, height);
        let starved = |table: &usize| wants[*table] > given[*table] && given[*table] < 3;
        match (0..wants.len()).rev().find(starved) {
            Some(last) if wants.iter().filter(|want| **want > 0).count() > 1 => wants[last] = 0,
            _ => return given,
        }
    }
}

fn stacked(all: &mut Vec<Line<'static>>, tables: &[&Table], scroll: usize, theme: Theme, width: u16, height: u16) {
    for (table, height) in tables.iter().zip(heights(tables, height)) {
        all.extend(lines(table, scroll, theme, width, height));
    }
}

fn abreast(all: &mut Vec<Line<'static>>, view: &View, theme: Theme, width: u16, height: u16) {
    let on = |side: Side| view.tables.iter().filter(move |table| table.side == side).collect::<Vec<_>>();
    let whole = on(Side::Whole);
    let before = all.len();
    let most = if whole.len() == view.tables.len() { height } else { height / 3 };
    stacked(all, &whole, view.scroll, theme, width, most);
    let height = height - (all.len() - before) as u16;
    let half = (width - GAP) / 2;
    let side = |side: Side, width: u16| {
        let mut lines = Vec::new();
        stacked(&mut lines, &on(side), view.scroll, theme, width, height);
        lines
    };
    let (left, right) = (side(Side::Left, half), side(Side::Right, width - GAP - half));
    for n in 0..left.len().max(right.len()) {
        let mut line = left.get(n).cloned().unwrap_or_default();
        let pad = usize::from(half + GAP).saturating_sub(line.width());
        // A line's own style would be its neighbour's, too.
        let style = line.style;
        for span in &mut line.spans {
            span.style = style.patch(span.style);
        }
        line.style = Style::new();
        line.push_span(Span::raw(" ".repeat(pad)));
        if let Some(other) = right.get(n) {
            line.spans.extend(
                other.spans.iter().map(|span| Span::styled(span.content.clone(), other.style.patch(span.style))),
            );
        }
        all.push(line);
    }
}

#[cfg(test)]
mod tests;
