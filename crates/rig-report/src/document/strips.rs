//! Which of a few things rows had over time.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Axis, PhaseSpan};

/// Which of a few things each row had, over time: for instance the CPU of each entry of a table. Time begins with 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Strips {
    pub title: String,
    pub x: Axis,
    /// What the values are, e.g. `CPU`.
    pub of: String,
    /// Names of the values, by their numbers.
    pub values: Vec<String>,
    pub rows: Vec<StripRow>,
    /// In their order.
    pub phases: Vec<PhaseSpan>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StripRow {
    pub label: String,
    /// In their order, without gaps being required.
    pub spans: Vec<StripSpan>,
    /// Moments that are marked, e.g. moves.
    pub marks: Vec<f64>,
}

/// A stretch of time with one value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StripSpan {
    pub from: f64,
    pub to: f64,
    /// Its place among the chart's values.
    pub value: usize,
}

impl Strips {
    /// What writers show of `row`, in the order of time: no span that is no stretch of time from 0 on, and none of a value
    /// that has no name. Spans of the same value that touch are one.
    pub fn spans(&self, row: &StripRow) -> Vec<StripSpan> {
        let is_shown = |span: &&StripSpan| is_stretch(span.from, span.to) && span.value < self.values.len();
        let mut spans: Vec<StripSpan> = row.spans.iter().filter(is_shown).copied().collect();
        spans.sort_by(|a, b| a.from.total_cmp(&b.from));
        spans.dedup_by(|next, last| {
            let is_more = next.value == last.value && next.from <= last.to;
            if is_more {
                last.to = last.to.max(next.to);
            }
            is_more
        });
        spans
    }

    /// The phases that are stretches of time.
    pub fn phases(&self) -> impl Iterator<Item = &PhaseSpan> {
        self.phases.iter().filter(|phase| is_stretch(phase.from, phase.to))
    }

    /// When the last of what is shown ends; nothing where nothing is.
    pub fn end(&self) -> Option<f64> {
        let spans = self.rows.iter().flat_map(|row| self.spans(row)).map(|span| span.to);
        let marks = self.rows.iter().flat_map(StripRow::marks);
        let ends = spans.chain(marks).chain(self.phases().map(|phase| phase.to));
        ends.filter(|end| *end > 0.0).reduce(f64::max)
    }

    /// A value with what it is, `CPU 3`, unless its name says so itself.
    pub fn name(&self, value: usize) -> String {
        let name = self.values.get(value).map_or("", String::as_str);
        if name.to_lowercase().starts_with(&self.of.to_lowercase()) {
            name.to_owned()
        } else {
            format!("{} {name}", self.of)
        }
    }

    /// The numbers in the values' names, `3` of `CPU 3`, if each name is words and a number that no other has.
    pub fn numbers(&self) -> Option<Vec<usize>> {
        let number = |name: &String| {
            let words = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let is_words = words.chars().all(|c| c.is_alphabetic() || c == ' ');
            name[words.len()..].parse().ok().filter(|_| is_words)
        };
        let numbers: Vec<usize> = self.values.iter().map(number).collect::<Option<_>>()?;
        (numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len()).then_some(numbers)
    }
}

impl StripRow {
    /// The marks that are moments from 0 on.
    pub fn marks(&self) -> impl Iterator<Item = f64> {
        self.marks.iter().copied().filter(|at| at.is_finite() && *at >= 0.0)
    }
}

fn is_stretch(from: f64, to: f64) -> bool {
    (0.0..to).contains(&from) && to.is_finite()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn strips(values: &[&str], spans: &[(f64, f64, usize)], marks: &[f64]) -> Strips {
        let spans = spans.iter().map(|&(from, to, value)| StripSpan { from, to, value }).collect();
        Strips {
            title: "CPU of each entry".to_owned(),
            x: Axis::new("Time", "s"),
            of: "CPU".to_owned(),
            values: values.iter().map(|&name| name.to_owned()).collect(),
            rows: vec![StripRow { label: "entry 0".to_owned(), spans, marks: marks.to_vec() }],
            phases: Vec::new(),
        }
    }

    fn shown(chart: &Strips) -> Vec<(f64, f64, usize)> {
        chart.spans(&chart.rows[0]).iter().map(|span| (span.from, span.to, span.value)).collect()
    }

    #[test]
    fn what_is_no_stretch_of_time_is_left_out() {
        let nothing = [
            (f64::NAN, 9.0, 0),
            (1.0, f64::NAN, 0),
            (-1.0, 9.0, 0),
            (f64::NEG_INFINITY, 9.0, 0),
            (1.0, f64::INFINITY, 0),
            (9.0, 1.0, 0),
            (3.0, 3.0, 0),
            (1.0, 9.0, 2),
        ];
        let chart = strips(&["0", "1"], &nothing, &[f64::NAN, -1.0, f64::INFINITY, 0.0]);
        assert_eq!((shown(&chart), chart.end()), (vec![], None));
        assert_eq!(chart.rows[0].marks().collect::<Vec<_>>(), [0.0]);
        let among = [&[(0.0, 2.0, 1)], &nothing[..], &[(2.0, 4.0, 0)]].concat();
        let chart = strips(&["0", "1"], &among, &[5.0]);
        assert_eq!((shown(&chart), chart.end()), (vec![(0.0, 2.0, 1), (2.0, 4.0, 0)], Some(5.0)));
    }

    #[test]
    fn phases_that_are_no_stretches_of_time_are_left_out() {
        let mut chart = strips(&["0"], &[(0.0, 1.0, 0)], &[]);
        let phase = |label: &str, from, to| PhaseSpan { label: label.to_owned(), from, to };
        chart.phases = vec![phase("a", f64::NAN, 9.0), phase("b", 9.0, 2.0), phase("c", 1.0, 3.0)];
        assert_eq!(chart.phases().map(|phase| phase.label.as_str()).collect::<Vec<_>>(), ["c"]);
        assert_eq!(chart.end(), Some(3.0));
    }

    #[test]
    fn touching_spans_of_a_value_are_one() {
        let chart = strips(&["0", "1"], &[(4.0, 5.0, 0), (0.0, 1.0, 0), (1.0, 2.0, 0), (2.0, 3.0, 1)], &[]);
        assert_eq!(shown(&chart), [(0.0, 2.0, 0), (2.0, 3.0, 1), (4.0, 5.0, 0)]);
    }

    #[test]
    fn values_are_named_by_what_they_are() {
        let chart = strips(&["0", "cpu 1", "node <b>"], &[], &[]);
        assert_eq!([0, 1, 2].map(|value| chart.name(value)), ["CPU 0", "cpu 1", "CPU node <b>"]);
    }

    #[test]
    fn names_have_numbers_where_they_are_words_and_a_number() {
        let numbers = |values: &[&str]| strips(values, &[], &[]).numbers();
        assert_eq!(numbers(&["4", "CPU 5", "cpu12"]), Some(vec![4, 5, 12]));
        for none in
            [&["4", "04"][..], &["1.5", "2"], &["-1"], &["a", "1"], &["3 of 4"], &["99999999999999999999"], &[""]]
        {
            assert_eq!(numbers(none), None, "{none:?}");
        }
    }
}
