//! Which of a few things rows had over time: a strip each, of rectangles in the values' colours.

use std::collections::{BTreeMap, BTreeSet};

use super::canvas::{Anchor, Area, Plane, Rise};
use super::course::{draw_time, round_steps};
use super::svg::{AXIS, LABEL_LINE, Role, SMALL, Shape, fit, style, text_width};
use crate::document::{StripRow, Strips};
use crate::text::{clean_line, significant};

/// Room for the phases' names.
const PHASES: i32 = 24;
/// Room for half of the last figure of the axis.
const RIGHT: i32 = 24;
/// More rows than these are drawn closer together.
const MANY: usize = 32;
/// Spans and marks of a row that are written out one by one in its text.
const FEW: usize = 6;

/// Where the strips stand.
struct Rows {
    /// The top of the first row, with its label where that is above it.
    top: i32,
    /// From the left edge to the strips.
    left: i32,
    /// Height of a label above its strip; 0 where labels stand left of the strips.
    label: i32,
    strip: i32,
    gap: i32,
    /// Size of the words in the strips.
    font: i32,
}

impl Rows {
    fn new(chart: &Strips, shape: Shape) -> Self {
        let widest = chart.rows.iter().map(|row| text_width(&clean_line(&row.label), SMALL)).max().unwrap_or(0);
        let (left, label) = match shape {
            Shape::Wide => (widest.min(220) + 10, 0),
            Shape::Narrow if widest <= 80 => (widest + 8, 0),
            Shape::Narrow => (8, LABEL_LINE),
        };
        let top = if chart.phases().next().is_some() { PHASES } else { 6 };
        let (strip, gap, font) = if chart.rows.len() > MANY { (12, 4, 10) } else { (18, 6, SMALL) };
        Self { top, left, label, strip, gap, font }
    }

    /// Upper edge of the strip of a row.
    fn strip_top(&self, row: usize) -> i32 {
        self.top + row as i32 * (self.label + self.strip + self.gap) + self.label
    }

    /// Where the axis is: below the last row.
    fn bottom(&self, rows: usize) -> i32 {
        self.strip_top(rows) - self.label
    }
}

pub(super) fn height(chart: &Strips, shape: Shape) -> i32 {
    Rows::new(chart, shape).bottom(chart.rows.len().max(1)) + AXIS
}

pub(super) fn draw(chart: &Strips, shape: Shape, area: &Area) {
    let rows = Rows::new(chart, shape);
    let end = chart.end().unwrap_or(1.0);
    let plane = Plane::within(area, [rows.top, RIGHT, AXIS, rows.left], 0.0..end, 0.0..1.0);
    let place = |at: f64| plane.at((at, 0.0));
    let x = |at: f64| place(at).0;
    let (left, bottom) = place(0.0);
    let right = x(end);
    for tick in round_steps(end) {
        area.line([(x(tick), rows.top), (x(tick), bottom)], Role::Grid, 1);
    }
    let names = short_names(chart);
    for (i, row) in chart.rows.iter().enumerate() {
        let top = rows.strip_top(i);
        let middle = top + rows.strip / 2;
        let (at, room) = if rows.label > 0 {
            ((left + 4, top - rows.label / 2 - 1), shape.width() - left - 4)
        } else {
            ((0, middle), left - 8)
        };
        let ink = style(SMALL, Role::Ink, Anchor::Start, Rise::Center);
        area.text(&fit(&clean_line(&row.label), SMALL, room), at, ink);
        // Where the row had none, a thin line leads the eye on.
        area.line([(left, middle), (right, middle)], Role::Grid, 1);
        for (value, begin, end) in pixels(chart, row, x) {
            let shape = [(begin, top), (end, top + rows.strip)];
            area.rectangle(shape, Role::Value(value));
            if let Some(name) = names[value].iter().find(|name| text_width(name, rows.font) + 6 <= end - begin) {
                let words = style(rows.font, Role::OnValue, Anchor::Start, Rise::Center);
                area.text(&name.clone(), (begin + 3, middle), words);
            }
        }
        for mark in row.marks().map(x).collect::<BTreeSet<i32>>() {
            area.line([(mark, top - 3), (mark, top + rows.strip / 3)], Role::Ink, 1);
        }
    }
    draw_time(area, place, end, chart.phases(), 4);
    let name = style(SMALL, Role::Muted, Anchor::Middle, Rise::Top);
    area.text(&clean_line(&chart.x.to_string()), (i32::midpoint(left, right), bottom + 22), name);
}

/// What is drawn of a row: a value, and from which pixel to which. None is narrower than a pixel; of what begins and ends in a
/// pixel that is drawn already, nothing is.
fn pixels(chart: &Strips, row: &StripRow, x: impl Fn(f64) -> i32) -> Vec<(usize, i32, i32)> {
    let mut drawn = Vec::new();
    let mut free = i32::MIN;
    for span in chart.spans(row) {
        let begin = x(span.from).max(free);
        let end = x(span.to).max(x(span.from) + 1);
        if begin >= end {
            continue;
        }
        // A gap of one pixel keeps neighbours of similar colours apart.
        let end = if end - begin > 2 { end - 1 } else { end };
        free = end;
        drawn.push((span.value, begin, end));
    }
    drawn
}

/// What is written for each value: its name, and where there is less room the number in it.
fn short_names(chart: &Strips) -> Vec<Vec<String>> {
    let numbers = chart.numbers();
    let short = |(value, name): (usize, &String)| {
        let number = numbers.as_ref().map(|numbers| numbers[value].to_string());
        [clean_line(name)].into_iter().chain(number).filter(|name| !name.is_empty()).collect()
    };
    chart.values.iter().enumerate().map(short).collect()
}

/// The chart in words: of each row what it had when, or for how long where there is much of it.
pub(super) fn words(chart: &Strips) -> String {
    let mut words = String::new();
    for phase in chart.phases() {
        words += &format!("{} from {} to {}. ", phase.label, significant(phase.from), significant(phase.to));
    }
    for row in &chart.rows {
        let spans = chart.spans(row);
        let mut parts: Vec<String> = if spans.len() <= FEW {
            let times = |from, to| format!("from {} to {}", significant(from), significant(to));
            spans.iter().map(|span| format!("{} {}", chart.name(span.value), times(span.from, span.to))).collect()
        } else {
            let mut times: BTreeMap<usize, f64> = BTreeMap::new();
            for span in &spans {
                *times.entry(span.value).or_default() += span.to - span.from;
            }
            let totals = times.iter().map(|(value, time)| format!("{} for {}", chart.name(*value), significant(*time)));
            totals.chain([format!("in {} stretches", spans.len())]).collect()
        };
        if parts.is_empty() {
            parts.push("none".to_owned());
        }
        let marks: Vec<String> = row.marks().map(significant).collect();
        if marks.len() > FEW {
            parts.push(format!("{} marks", marks.len()));
        } else if !marks.is_empty() {
            parts.push(format!("marked at {}", marks.join(" and ")));
        }
        words += &format!("{}: {}. ", row.label, parts.join(", "));
    }
    words
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::super::STYLE;
    use super::super::parse::Element;
    use super::super::svg::{self, VALUES};
    use super::*;
    use crate::document::{Chart, StripSpan};
    use crate::fixture;

    fn row(label: &str, spans: &[(f64, f64, usize)], marks: &[f64]) -> StripRow {
        let spans = spans.iter().map(|&(from, to, value)| StripSpan { from, to, value }).collect();
        StripRow { label: label.to_owned(), spans, marks: marks.to_vec() }
    }

    fn chart(values: usize, rows: Vec<StripRow>) -> Strips {
        Strips { values: (0..values).map(|cpu| format!("CPU {cpu}")).collect(), rows, ..fixture::strips() }
    }

    fn drawn(chart: &Strips, shape: Shape) -> Element {
        let drawing = svg::draw(&Chart::Strips(chart.clone()), shape);
        assert_eq!((drawing.width, drawing.height), (shape.width(), height(chart, shape)));
        let (svg, errors) = Element::parse(&drawing.elements);
        assert!(errors.is_empty(), "{errors:?}");
        svg
    }

    fn number(element: &Element, name: &str) -> i32 {
        element.attribute(name).unwrap().parse().unwrap()
    }

    /// The value of each rectangle, where it begins and ends, and its upper edge.
    fn rectangles(svg: &Element) -> Vec<(usize, i32, i32, i32)> {
        let all = svg.named(&["rect"]).into_iter().map(|rect| {
            let value = rect.attribute("fill").unwrap().strip_prefix("var(--v").unwrap().strip_suffix(')').unwrap();
            let left = number(rect, "x");
            (value.parse().unwrap(), left, left + number(rect, "width"), number(rect, "y"))
        });
        all.collect()
    }

    /// Words with where they begin or have their middle.
    fn texts(svg: &Element, colour: &str) -> Vec<(String, i32)> {
        let colour = format!("var({colour})");
        let own = svg.named(&["text"]).into_iter().filter(|text| text.attribute("fill") == Some(&colour));
        own.map(|text| (text.text().trim().to_owned(), number(text, "x"))).collect()
    }

    #[test]
    fn a_strip_looks_as_it_did() {
        let small = chart(2, vec![row("entry <0>", &[(0.0, 4.0, 0), (4.0, 9.0, 1)], &[4.0])]);
        let drawing = svg::draw(&Chart::Strips(small), Shape::Wide);
        insta::assert_snapshot!("strip.svg", drawing.elements);
    }

    /// Spans begin and end above the figures of the axis that tell when they did.
    #[test]
    fn spans_are_where_the_axis_says() {
        let chart = chart(
            3,
            vec![row("a", &[(0.0, 4.0, 0), (4.0, 8.0, 2)], &[6.0]), row("b", &[(2.0, 6.0, 1), (8.0, 10.0, 0)], &[])],
        );
        for shape in [Shape::Wide, Shape::Narrow] {
            let svg = drawn(&chart, shape);
            let figures = texts(&svg, "--muted");
            let at = |moment: &str| figures.iter().find(|(figure, _)| figure == moment).unwrap().1;
            let found = rectangles(&svg);
            let rows = [found[0].3, found[2].3];
            assert!(rows[0] < rows[1]);
            // Wide ones leave a pixel to their neighbours.
            let expected = [(0, "0", "4", 0), (2, "4", "8", 0), (1, "2", "6", 1), (0, "8", "10", 1)]
                .map(|(value, from, to, row)| (value, at(from), at(to) - 1, rows[row]));
            assert_eq!(found, expected);
            let marks = svg.named(&["polyline", "line", "path"]).into_iter();
            let marks: Vec<_> = marks.filter(|line| line.attribute("stroke") == Some("var(--ink)")).collect();
            let [mark] = marks[..] else { panic!("{marks:?}") };
            let points = mark.attribute("points").map(str::to_owned);
            let points = points.unwrap_or_else(|| mark.attribute("x1").unwrap().to_owned() + ",");
            assert!(points.starts_with(&format!("{},", at("6"))), "{points}");
        }
    }

    /// The whole name where there is room for it, otherwise its number, otherwise nothing.
    #[test]
    fn what_is_wide_enough_says_its_value() {
        let spans = [(0.0, 3.0, 10), (3.0, 3.4, 11), (3.4, 3.45, 3), (3.45, 10.0, 11)];
        let svg = drawn(&chart(12, vec![row("a", &spans, &[])]), Shape::Wide);
        let words: Vec<String> = texts(&svg, "--on-value").into_iter().map(|(word, _)| word).collect();
        assert_eq!(words, ["CPU 10", "11", "CPU 11"]);
        for (value, left, right, _) in rectangles(&svg) {
            assert!(value < VALUES && right > left);
        }
    }

    #[test]
    fn nothing_is_drawn_twice_or_outside() {
        let pixel = |at: f64| at as i32;
        let many: Vec<_> =
            (0..10_000).map(|i| (f64::from(i) * 0.01, f64::from(i + 1) * 0.01, i as usize % 2)).collect();
        let dense = pixels(&chart(2, vec![]), &row("a", &many, &[]), pixel);
        assert_eq!(dense.len(), 100);
        assert!(dense.iter().enumerate().all(|(i, (_, from, to))| (*from, *to) == (i as i32, i as i32 + 1)));
        let brief = pixels(&chart(2, vec![]), &row("a", &[(1.2, 1.4, 0), (1.4, 9.0, 1)], &[]), pixel);
        assert_eq!(brief, [(0, 1, 2), (1, 2, 8)]);
        let long = "an entry whose name is far too long for any place <b>";
        for rows in [1, 256] {
            let spans = [(0.0, 9.0, 0), (9.0, 11.0, 63)];
            let chart = chart(64, (0..rows).map(|i| row(&format!("{long} {i}"), &spans, &[10.0])).collect());
            for shape in [Shape::Wide, Shape::Narrow] {
                let svg = drawn(&chart, shape);
                let found = rectangles(&svg);
                assert_eq!(found.len(), 2 * rows);
                let bottom = height(&chart, shape) - AXIS;
                assert!(found.iter().all(|(_, left, right, top)| {
                    *left >= 0 && *right <= shape.width() && (0..bottom).contains(top)
                }));
            }
        }
    }

    #[test]
    fn the_words_say_what_each_row_had() {
        let phases = "steady <b> from 0.00 to 6.00. burst from 6.00 to 10.0. ";
        let rows = [
            "entry 0: CPU 0 from 0.00 to 4.00, CPU 1 from 4.00 to 10.0, marked at 4.00. ",
            "entry <1> & | co: CPU <b>2</b> | `a` from 0.00 to 2.50, CPU 0 from 6.00 to 10.0, marked at 2.50 and 6.00. ",
            "容器 と ネットワーク: CPU 0 for 3.75, CPU 1 for 2.50, CPU <b>2</b> | `a` for 3.75, in 8 stretches, 7 marks. ",
            "nothing: none. ",
        ];
        assert_eq!(words(&fixture::strips()), format!("{phases}{}", rows.concat()));
    }

    /// Red, green and blue of a variable in each of the style sheet's schemes that has it, linear, from 0 to 1.
    fn colours(variable: &str) -> Vec<[f64; 3]> {
        let name = format!("{variable}: #");
        let hex = |rest: &str| [0, 2, 4].map(|i| f64::from(u8::from_str_radix(&rest[i..i + 2], 16).unwrap()) / 255.0);
        let values = STYLE.split(&name).skip(1).map(hex);
        let linear = |c: f64| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        values.map(|colour| colour.map(linear)).collect()
    }

    fn times(matrix: [[f64; 3]; 3], colour: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row.iter().zip(colour).map(|(factor, part)| factor * part).sum())
    }

    /// A place in Oklab (https://bottosson.github.io/posts/oklab/), where distance is difference as it is seen.
    fn oklab(linear: [f64; 3]) -> [f64; 3] {
        const LMS: [[f64; 3]; 3] = [
            [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
            [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
            [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
        ];
        const LAB: [[f64; 3]; 3] = [
            [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
            [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
            [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
        ];
        times(LAB, times(LMS, linear.map(|part| part.clamp(0.0, 1.0))).map(f64::cbrt))
    }

    /// All sight, and without the cones for red, green and blue (Machado, Oliveira and Fernandes 2009, severity 1).
    const SIGHT: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ];

    /// In Oklab a difference of 0.02 is about the least that is seen.
    #[test]
    fn colours_differ_for_all_eyes() {
        let all: Vec<[f64; 3]> = (0..VALUES).flat_map(|i| colours(&format!("--v{i}"))).collect();
        assert_eq!(all.len(), VALUES, "one for both schemes");
        for (eye, sight) in SIGHT.into_iter().enumerate() {
            let seen: Vec<[f64; 3]> = all.iter().map(|colour| oklab(times(sight, *colour))).collect();
            for (i, one) in seen.iter().enumerate() {
                for (j, other) in seen.iter().enumerate().skip(i + 1) {
                    let apart = one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                    assert!(apart > 0.12, "--v{i} and --v{j} to eye {eye}: {apart:.3}");
                }
            }
        }
    }

    /// WCAG 2.2, success criterion 1.4.3: 4.5 to 1 for text.
    #[test]
    fn words_on_colours_can_be_read() {
        let luminance = |colour: [f64; 3]| times([[0.2126, 0.7152, 0.0722]; 3], colour)[0];
        let [words] = colours("--on-value")[..] else { panic!("one for both schemes") };
        for i in 0..VALUES {
            let ground = luminance(colours(&format!("--v{i}"))[0]);
            let (light, dark) = (ground.max(luminance(words)), ground.min(luminance(words)));
            assert!((light + 0.05) / (dark + 0.05) >= 4.5, "--v{i}");
        }
    }
}
