//! An overview as lines: a bar for the first panel, and the figures of all.

use textwrap::core::display_width;

use super::{bar, label_width};
use crate::document::{Number, Overview};
use crate::paint::{Colour, TerminalStyle};
use crate::text::{MISSING, clean_line, pad, pad_left, shorten};

/// The narrowest bar that says something.
const LEAST_BAR: usize = 6;

pub(super) fn render(chart: &Overview, width: usize, paint: TerminalStyle) -> Vec<String> {
    let labels: Vec<String> = chart.rows.iter().map(|row| clean_line(&row.label.to_string())).collect();
    let label_width = label_width(labels.iter().map(String::as_str), width);
    let figures = |with_interval: bool| -> Vec<Vec<String>> {
        let text = |number: &Option<Number>| match number {
            Some(number) if with_interval => number.with_words(),
            Some(number) => number.to_string(),
            None => MISSING.to_owned(),
        };
        chart.rows.iter().map(|row| row.numbers.iter().map(text).collect()).collect()
    };
    let heads: Vec<String> = (1..=chart.panels.len()).map(|number| format!("[{number}]")).collect();
    let widths = |texts: &[Vec<String>]| -> Vec<usize> {
        let of = |i: usize| texts.iter().filter_map(move |row| row.get(i)).map(|text| display_width(text));
        (0..heads.len()).map(|i| of(i).max().unwrap_or(0).max(heads[i].len())).collect()
    };
    let room = |widths: &[usize]| width.saturating_sub(label_width + widths.iter().map(|w| w + 2).sum::<usize>() + 2);
    // Where there is no room for the intervals the bar has none either.
    let mut texts = figures(true);
    if room(&widths(&texts)) < LEAST_BAR {
        texts = figures(false);
    }
    let widths = widths(&texts);
    let room = room(&widths);
    let first = |i: usize| chart.rows[i].numbers.first().copied().flatten();
    let reach = |number: Number| [Some(number.value), number.reference].into_iter().flatten().fold(0.0, f64::max);
    let limit = (0..chart.rows.len()).filter_map(first).map(reach).fold(0.0, f64::max);
    let columns = |cells: &[String]| -> String {
        cells.iter().zip(&widths).map(|(cell, width)| format!("  {}", pad_left(cell, *width))).collect()
    };
    let mut out = Vec::new();
    let blank = if room >= LEAST_BAR { room + 2 } else { 0 };
    out.push(paint.dim(format!("{}{}", " ".repeat(label_width + blank), columns(&heads)).trim_end()));
    for (i, label) in labels.iter().enumerate() {
        let drawn = match (first(i), room >= LEAST_BAR) {
            (_, false) => String::new(),
            (Some(number), true) => {
                let bar = bar(number.value, number.reference, limit, room);
                format!("  {}", paint.colour(Colour::Blue, &bar))
            }
            (None, true) => " ".repeat(blank),
        };
        out.push(format!("{}{drawn}{}", pad(&shorten(label, label_width), label_width), columns(&texts[i])));
    }
    let mark = chart.reference.as_ref().filter(|_| room >= LEAST_BAR);
    for (i, (head, panel)) in heads.iter().zip(&chart.panels).enumerate() {
        let study = mark.filter(|_| i == 0).map_or(String::new(), |name| format!(", ┃ {}", clean_line(name)));
        let line = format!("{head} {}{study}", clean_line(&panel.to_string()));
        out.extend(textwrap::wrap(&line, width).iter().map(|line| paint.dim(line)));
    }
    out
}
