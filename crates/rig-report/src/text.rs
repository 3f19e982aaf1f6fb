//! What all writers do with words.

use std::borrow::Cow;

use rig_cli::visible::visible;
use textwrap::core::display_width;

use super::document::{Cell, Label, Stacked, StackedRow, Table, Verdict, with_unit};

/// The text with what would drive a terminal, reorder a line or break XML made visible; tabs become spaces.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.contains(['\t', '\r']) {
        let text = text.replace("\r\n", "\n").replace('\t', "    ");
        return Cow::Owned(visible(&text).into_owned());
    }
    visible(text)
}

/// [`clean`] on one line.
pub fn clean_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands after a number with a blank between.
const UNITS: [&str; 26] = [
    "%",
    "bit/s",
    "kbit/s",
    "Mbit/s",
    "Gbit/s",
    "1/s",
    "thousand/s",
    "million/s",
    "ns",
    "µs",
    "us",
    "ms",
    "s",
    "min",
    "h",
    "ns/KB",
    "µs/KB",
    "µs/Tr",
    "B",
    "KB",
    "MB",
    "GB",
    "KiB",
    "MiB",
    "GiB",
    "bytes",
];

/// Prose in which no line ends between a number and its unit.
pub fn unparted(text: &str) -> String {
    let is_number = |word: &str| {
        let word = word.trim_start_matches(|c: char| "(±+-−<>=≤≥~≈×".contains(c));
        word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(|c: char| c.is_ascii_digit())
    };
    let is_unit = |word: &str| {
        let word = word.split_once('\n').map_or(word, |(word, _)| word);
        UNITS.contains(&word.trim_end_matches([',', '.', ';', ':', ')', '?', '!']))
    };
    let mut unparted = String::with_capacity(text.len());
    let mut before = None;
    for word in text.split(' ') {
        if let Some(before) = before {
            unparted.push(if is_number(before) && is_unit(word) { '\u{a0}' } else { ' ' });
        }
        unparted.push_str(word);
        before = word.lines().last().or(Some(word));
    }
    unparted
}

/// `text` in at most `width` columns, the rest replaced by an ellipsis.
pub fn shorten(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        short.push(c);
        if display_width(&short) + 1 > width {
            short.pop();
            break;
        }
    }
    let mut short = short.trim_end().to_owned();
    if width > 0 {
        short.push('…');
    }
    short
}

/// `text` followed by spaces up to `width` columns.
pub fn pad(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(display_width(text))))
}

/// `text` after spaces up to `width` columns.
pub fn pad_left(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(display_width(text))))
}

/// `value` to about three digits, for figures of all magnitudes in one row.
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// What stands in texts in the place of a flame graph.
pub const FLAME: &str = "the flame graph is in the report as HTML (--format html).";

/// What stands in place of a figure that is missing.
pub const MISSING: &str = "–";

/// Why cells of the table are missing: each reason once, with the cells it stands for.
pub fn missing_notes(table: &Table) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for row in &table.rows {
        for (column, cell) in table.columns.iter().zip(&row.cells) {
            let Cell::Missing { why } = cell else { continue };
            let place = format!("{} of {}", row.label, column.label.head);
            match reasons.iter_mut().find(|(reason, _)| reason == why) {
                Some((_, places)) => places.push(place),
                None => reasons.push((why, vec![place])),
            }
        }
    }
    let alone = reasons.len() == 1;
    let note = |(why, places): (&str, Vec<String>)| match (alone, places.len()) {
        (true, _) => format!("{MISSING} {why}"),
        (false, 1..=3) => format!("{MISSING} {}: {why}", places.join(", ")),
        (false, n) => format!("{MISSING} {} and {} more: {why}", places[..2].join(", "), n - 2),
    };
    reasons.into_iter().map(note).collect()
}

/// The row's label with its unit.
pub fn row_label(row: &super::document::Row) -> String {
    clean_line(&with_unit(&row.label, row.unit.as_deref()))
}

/// The column's short name with its unit.
pub fn column_head(column: &super::document::Column) -> String {
    clean_line(&with_unit(&column.label.head, column.unit.as_deref()))
}

pub fn subhead(label: &Label) -> Option<String> {
    label.subhead.as_deref().map(clean_line).filter(|s| !s.is_empty())
}

/// A sign that tells a verdict without colour.
pub fn sign(verdict: Verdict) -> char {
    match verdict {
        Verdict::Holds => '✓',
        Verdict::Refuted => '✗',
        Verdict::Differs => '≠',
        Verdict::Undecided => '?',
    }
}

/// The largest parts of a bar with their shares, percent, largest first, without those that it has not.
pub fn largest(chart: &Stacked, row: &StackedRow, most: usize) -> Vec<(String, f64)> {
    let whole: f64 = row.values.iter().sum();
    let mut parts: Vec<(String, f64)> = chart
        .parts
        .iter()
        .zip(&row.values)
        .filter(|(_, value)| **value > 0.0)
        .map(|(name, value)| (clean_line(name), 100.0 * value / whole))
        .collect();
    parts.sort_by(|one, other| other.1.total_cmp(&one.1));
    parts.truncate(most);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit_stay_in_one_line() {
        for (text, expected) in [
            ("36.7 Gbit/s ±1.1 % of 10 s", "36.7_Gbit/s ±1.1_% of 10_s"),
            ("is 1.3 (95 % interval 1 to 2), 12 trials", "is 1.3 (95_% interval 1 to 2), 12 trials"),
            ("(±5 %), >=12.6 thousand/s.", "(±5_%), >=12.6_thousand/s."),
            ("A s, p99 is 3, B % and  2  %", "A s, p99 is 3, B % and  2  %"),
            ("1\n2 ms\nx", "1\n2_ms\nx"),
            ("", ""),
        ] {
            assert_eq!(unparted(text).replace('\u{a0}', "_"), expected);
        }
    }
}
