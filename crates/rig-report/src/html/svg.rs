//! Charts as SVG.

use std::cell::RefCell;

use clap::ValueEnum;
use textwrap::core::display_width;

use super::canvas::{Anchor, Area, Plane, Point, Rise, Style};
use super::{course, layers, overview, percentiles, scaling, strips};
use crate::document::{Bars, Chart, Label, Lines, Number, Stacked};
use crate::text::{clean_line, shorten};
use crate::text_chart::decimals_for;

/// The place a chart is drawn for. Text is not scaled down for a phone: the chart is laid out anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// For a page
    Wide,
    /// For a phone
    Narrow,
}

impl Shape {
    pub fn width(self) -> i32 {
        match self {
            Self::Wide => 840,
            Self::Narrow => 340,
        }
    }

    pub(super) fn ticks(self) -> usize {
        match self {
            Self::Wide => 8,
            Self::Narrow => 4,
        }
    }
}

/// What a colour is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Ink,
    Muted,
    Grid,
    Mark,
    Series(usize),
    /// A part of a stack.
    Part(usize),
    /// A value of a strip.
    Value(usize),
    /// A value's colour with lines over it, few and many; only legends have it, drawings draw the lines.
    Lined(usize),
    Crowded(usize),
    /// Words on any of the values' colours.
    OnValue,
    /// What everything stands on.
    Ground,
}

/// Numbers of series', parts' and values' colours in the style sheet; they repeat after that.
const SERIES: usize = 8;
const PARTS: usize = 6;
pub(super) const VALUES: usize = 8;

impl Role {
    /// The CSS variable.
    pub fn variable(self) -> String {
        match self {
            Self::Ink => "--ink".to_owned(),
            Self::Muted => "--muted".to_owned(),
            Self::Grid => "--line".to_owned(),
            Self::Mark => "--mark".to_owned(),
            Self::Series(i) => format!("--s{}", i % SERIES),
            Self::Part(i) => format!("--p{}", i % PARTS),
            Self::Value(i) => format!("--v{}", i % VALUES),
            Self::Lined(i) => format!("--w{}", i % VALUES),
            Self::Crowded(i) => format!("--x{}", i % VALUES),
            Self::OnValue => "--on-value".to_owned(),
            Self::Ground => "--ground".to_owned(),
        }
    }

    /// As a value of fill and stroke; lines over a value's colour are drawn by themselves.
    pub(super) fn css(self) -> String {
        let of = match self {
            Self::Lined(i) | Self::Crowded(i) => Self::Value(i),
            other => other,
        };
        format!("var({})", of.variable())
    }
}

/// A drawn chart: the elements inside `<svg>`.
#[derive(Debug)]
pub struct Drawing {
    pub width: i32,
    pub height: i32,
    pub elements: String,
}

pub fn draw(chart: &Chart, shape: Shape) -> Drawing {
    let height = match chart {
        Chart::Bars(bars) => BarRows::new(bars, shape).height(),
        Chart::Stacked(stacked) => StackRows::new(stacked, shape).height(),
        Chart::Layers(chart) => layers::height(chart, shape),
        Chart::Lines(_) => match shape {
            Shape::Wide => 220,
            Shape::Narrow => 200,
        },
        Chart::Course(_) => course::height(shape),
        Chart::Percentiles(_) => percentiles::height(shape),
        Chart::Scaling(_) => scaling::height(shape),
        Chart::Strips(chart) => strips::height(chart, shape),
        Chart::Overview(chart) => overview::height(chart, shape),
    };
    let elements = RefCell::new(String::new());
    let area = &Area::new(&elements, shape.width(), height);
    match chart {
        Chart::Bars(bars) => draw_bars(bars, shape, area),
        Chart::Stacked(stacked) => draw_stacked(stacked, shape, area),
        Chart::Layers(chart) => layers::draw(chart, shape, area),
        Chart::Lines(lines) => draw_lines(lines, shape, area),
        Chart::Course(chart) => course::draw(chart, shape, area),
        Chart::Percentiles(chart) => percentiles::draw(chart, shape, area),
        Chart::Scaling(chart) => scaling::draw(chart, shape, area),
        Chart::Strips(chart) => strips::draw(chart, shape, area),
        Chart::Overview(chart) => overview::draw(chart, shape, area),
    }
    Drawing { width: shape.width(), height, elements: elements.into_inner() }
}

pub(super) const FONT: i32 = 13;
pub(super) const SMALL: i32 = 12;
pub(super) const BAR: i32 = 16;
pub(super) const AXIS: i32 = 40;
/// Room for the label above a bar in the narrow shape.
pub(super) const LABEL_LINE: i32 = 18;

pub(super) fn style(px: i32, role: Role, anchor: Anchor, rise: Rise) -> Style {
    Style { px, role, anchor, rise, bold: false }
}

/// About how wide `text` is drawn, in pixels.
pub(super) fn text_width(text: &str, px: i32) -> i32 {
    (display_width(text) as f64 * f64::from(px) * 0.58).ceil() as i32
}

/// [`text_width`] of a heading, which is bold and so a little wider.
pub(super) fn bold_width(text: &str) -> i32 {
    // Capitals are wider still.
    let capitals = text.chars().filter(|sign| sign.is_uppercase() || *sign == '_').count() as i32;
    text_width(text, FONT) * 23 / 20 + capitals * 2
}

/// Room for names at the ends of lines: that of the widest, and at most a third of the chart.
pub(super) fn names_width<'a>(names: impl Iterator<Item = &'a str>, shape: Shape) -> i32 {
    names.map(|name| text_width(&clean_line(name), SMALL)).max().unwrap_or(0).min(shape.width() / 3)
}

/// As much of `text` as fits `room` pixels.
pub(super) fn fit(text: &str, px: i32, room: i32) -> String {
    shorten(text, columns(px, room))
}

/// Characters that fit `room` pixels.
pub(super) fn columns(px: i32, room: i32) -> usize {
    (f64::from(room.max(0)) / (f64::from(px) * 0.58)) as usize
}

/// Draws a row's label: left of the bars, or above them, where lines of the grid would cross it.
pub(super) fn draw_label(area: &Area, label: &Label, head: bool, x: i32, y: i32, room: i32) {
    let name = clean_line(&label.head);
    let shown = if head { fit(&name, FONT, room) } else { String::new() };
    let indent = if label.subhead.is_some() { bold_width(&name) + 8 } else { 0 };
    let subhead = label.subhead.as_deref().map(|subhead| fit(&clean_line(subhead), FONT, room - indent));
    let from = if head { x } else { x + indent };
    let end = subhead.as_deref().map_or(bold_width(&shown), |subhead| indent + text_width(subhead, FONT));
    let half = LABEL_LINE / 2 - 1;
    area.rectangle([(from, y - half), (x + end.min(room), y + half)], Role::Ground);
    if head {
        area.text(&shown, (x, y), Style { bold: true, ..style(FONT, Role::Ink, Anchor::Start, Rise::Center) });
    }
    if let Some(subhead) = subhead {
        let muted = style(FONT, Role::Muted, Anchor::Start, Rise::Center);
        area.text(&subhead, (x + indent, y), muted);
    }
}

pub(super) fn gutter<'a>(labels: impl Iterator<Item = &'a Label>, shape: Shape) -> i32 {
    let width = |label: &Label| {
        let subhead = label.subhead.as_deref().map_or(0, |s| text_width(&clean_line(s), FONT) + 8);
        bold_width(&clean_line(&label.head)) + subhead
    };
    match shape {
        Shape::Wide => labels.map(width).max().unwrap_or(0).min(330) + 12,
        Shape::Narrow => 0,
    }
}

/// A number of a scale: without zeros at its end.
fn tick(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Draws grid and labels of the horizontal axis; returns the mapping of values to pixels.
pub(super) fn draw_scale(
    area: &Area,
    ticks: usize,
    limit: f64,
    axis: &str,
    left: i32,
    right: i32,
) -> impl Fn(f64) -> i32 + use<> {
    let decimals = decimals_for(limit);
    // Half of the first number stands left of the axis.
    let left = left.max(text_width(&format!("{:.decimals$}", 0.0), SMALL) / 2);
    let plane = Plane::within(area, [0, right, AXIS, left], 0.0..limit, 0.0..1.0);
    let small = || style(SMALL, Role::Muted, Anchor::Middle, Rise::Top);
    let mut free = i32::MIN;
    for value in steps(limit, ticks) {
        let [bottom, top] = plane.upright(value);
        area.line([bottom, top], Role::Grid, 1);
        // Numbers do not run into each other.
        let number = tick(value, decimals);
        let half = text_width(&number, SMALL) / 2;
        if bottom.0 - half > free {
            area.text(&number, (bottom.0, bottom.1 + 5), small());
            free = bottom.0 + half + 4;
        }
    }
    area.line(plane.level(0.0), Role::Grid, 1);
    let middle = i32::midpoint(plane.left, plane.right);
    if !axis.is_empty() {
        area.text(axis, (middle, plane.bottom + 22), small());
    }
    move |value| plane.at(((value / limit).clamp(0.0, 1.0) * limit, 0.0)).0
}

/// Multiples of 1, 2 or 5 times a power of ten, from 0 to `high`: no more than `most` beside 0.
pub(super) fn steps(high: f64, most: usize) -> Vec<f64> {
    let least = high / most as f64;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= least * (1.0 - 1e-9));
    let step = step.unwrap_or(high);
    (0..=most).map(|n| n as f64 * step).filter(|tick| *tick <= high * (1.0 + 1e-9)).collect()
}

/// Where the bars of a bar chart stand.
struct BarRows {
    shape: Shape,
    series: i32,
    groups: i32,
}

impl BarRows {
    fn new(bars: &Bars, shape: Shape) -> Self {
        let series = bars.groups.iter().map(|g| g.bars.len()).max().unwrap_or(0);
        Self { shape, series: series as i32, groups: bars.groups.len() as i32 }
    }

    fn group_height(&self) -> i32 {
        let label = if self.shape == Shape::Narrow { LABEL_LINE } else { 0 };
        label + self.series * (BAR + 3) + 11
    }

    fn height(&self) -> i32 {
        self.groups * self.group_height() + 6 + AXIS
    }

    fn label_y(&self, group: i32) -> i32 {
        let top = 6 + group * self.group_height();
        match self.shape {
            Shape::Wide => top + self.series * (BAR + 3) / 2,
            Shape::Narrow => top + LABEL_LINE / 2,
        }
    }

    fn bar_top(&self, group: i32, series: i32) -> i32 {
        let label = if self.shape == Shape::Narrow { LABEL_LINE } else { 0 };
        6 + group * self.group_height() + label + series * (BAR + 3)
    }
}

fn draw_bars(bars: &Bars, shape: Shape, area: &Area) {
    let rows = BarRows::new(bars, shape);
    let numbers = || bars.groups.iter().flat_map(|g| g.bars.iter().flatten());
    let reach = |n: &Number| [Some(n.value), n.interval.map(|i| i.high), n.reference].into_iter().flatten();
    let limit = numbers().flat_map(reach).fold(0.0, f64::max);
    let limit = if limit > 0.0 { limit } else { 1.0 };
    let left = gutter(bars.groups.iter().map(|g| &g.label), shape);
    let widest = numbers().map(|n| text_width(&value_text(n, shape), FONT)).max().unwrap_or(0);
    let x = draw_scale(area, shape.ticks(), limit * 1.01, &bars.axis.to_string(), left, widest + 10);
    for (g, group) in bars.groups.iter().enumerate() {
        let room = if shape == Shape::Wide { left - 12 } else { shape.width() };
        draw_label(area, &group.label, true, 0, rows.label_y(g as i32), room);
        for (s, number) in group.bars.iter().enumerate() {
            let Some(number) = number else { continue };
            let top = rows.bar_top(g as i32, s as i32);
            let middle = top + BAR / 2;
            let mut edge = draw_bar(area, &x, number, Role::Series(s), (top, BAR));
            let text = value_text(number, shape);
            if let Some(reference) = number.reference {
                let at = x(reference);
                draw_mark(area, at, (top, BAR));
                let covered = edge - 4..edge + 12 + text_width(&text, FONT);
                if covered.contains(&at) {
                    edge = at + 2;
                }
            }
            draw_value(area, &text, FONT, (edge + 6, middle));
        }
    }
}

/// A figure beside its bar, without lines of the grid through it.
pub(super) fn draw_value(area: &Area, text: &str, px: i32, (x, y): (i32, i32)) {
    let ground = [(x - 1, y - px / 2), (x + text_width(text, px), y + px / 2)];
    area.rectangle(ground, Role::Ground);
    area.text(text, (x, y), style(px, Role::Ink, Anchor::Start, Rise::Center));
}

fn value_text(number: &Number, shape: Shape) -> String {
    match shape {
        Shape::Wide => number.with_words(),
        Shape::Narrow => number.to_string(),
    }
}

/// Where the rows of a stacked chart stand: rows whose labels share the head stand together.
pub(super) struct StackRows {
    shape: Shape,
    tops: Vec<i32>,
}

impl StackRows {
    pub(super) fn new(chart: &Stacked, shape: Shape) -> Self {
        let step = BAR + 3 + if shape == Shape::Narrow { LABEL_LINE } else { 0 };
        let mut y = 0;
        let mut tops = Vec::new();
        let mut head = None;
        for row in &chart.rows {
            if head != Some(&row.label.head) {
                y += 8;
            }
            head = Some(&row.label.head);
            tops.push(y);
            y += step;
        }
        tops.push(y);
        Self { shape, tops }
    }

    pub(super) fn height(&self) -> i32 {
        self.tops.last().copied().unwrap_or(0) + 4 + AXIS
    }

    pub(super) fn bar_top(&self, row: usize) -> i32 {
        self.tops[row] + if self.shape == Shape::Narrow { LABEL_LINE } else { 0 }
    }

    pub(super) fn label_y(&self, row: usize) -> i32 {
        self.tops[row] + if self.shape == Shape::Narrow { LABEL_LINE } else { BAR } / 2
    }
}

fn draw_stacked(chart: &Stacked, shape: Shape, area: &Area) {
    draw_stacks(chart, shape, area, 52, |part, (begin, end), top| {
        area.rectangle([(begin, top), (end, top + BAR)], Role::Part(part));
    });
}

/// Axis, labels and figures of stacked bars, of which `draw_part` draws each part: its number, from where to where it goes,
/// and its top.
pub(super) fn draw_stacks(
    chart: &Stacked,
    shape: Shape,
    area: &Area,
    right: i32,
    draw_part: impl Fn(usize, (i32, i32), i32),
) {
    let rows = StackRows::new(chart, shape);
    let left = gutter(chart.rows.iter().map(|r| &r.label), shape);
    let limit = if chart.limit > 0.0 { chart.limit } else { 1.0 };
    let x = draw_scale(area, shape.ticks(), limit, &chart.axis.to_string(), left, right);
    let mut head = None;
    for (i, row) in chart.rows.iter().enumerate() {
        let first = shape == Shape::Narrow || head != Some(&row.label.head);
        head = Some(&row.label.head);
        let room = if shape == Shape::Wide { left - 12 } else { shape.width() };
        draw_label(area, &row.label, first, 0, rows.label_y(i), room);
        let top = rows.bar_top(i);
        let mut sum = 0.0;
        for (part, value) in row.values.iter().enumerate() {
            let begin = x(sum);
            sum += value.max(0.0);
            let end = x(sum);
            // A gap of one pixel keeps neighbouring parts of similar colours apart.
            let end = if end - begin > 2 { end - 1 } else { end };
            if end > begin {
                draw_part(part, (begin, end), top);
            }
        }
        draw_value(area, &row.figure.to_string(), FONT, (x(sum) + 6, top + BAR / 2));
    }
}

/// A bar from zero with its interval over it; returns where the longer of both ends.
pub(super) fn draw_bar(
    area: &Area,
    x: impl Fn(f64) -> i32,
    number: &Number,
    role: Role,
    (top, height): (i32, i32),
) -> i32 {
    let middle = top + height / 2;
    let end = x(number.value);
    area.rectangle([(x(0.0), top), (end, top + height)], role);
    let Some(interval) = number.interval else { return end };
    let (low, high) = (x(interval.low), x(interval.high));
    let whisker = [
        [(low, middle), (high, middle)],
        [(low, middle - 4), (low, middle + 4)],
        [(high, middle - 4), (high, middle + 4)],
    ];
    draw_over(area, &whisker, Role::Ink, 1);
    end.max(high)
}

/// Where a study's figure is, across a bar.
pub(super) fn draw_mark(area: &Area, at: i32, (top, height): (i32, i32)) {
    draw_over(area, &[[(at, top - 3), (at, top + height + 3)]], Role::Mark, 3);
}

/// Lines, level or upright, that cross bars. No colour stands out from all of the bars' and from the ground in both schemes, so
/// they have the ground around them.
fn draw_over(area: &Area, lines: &[[(i32, i32); 2]], role: Role, width: u32) {
    // Half as wide to each side: short bars are not to be covered.
    let halo = width.div_ceil(2);
    for [from, to] in lines {
        let beyond = halo as i32;
        let (x, y) = if from.1 == to.1 { (beyond, 0) } else { (0, beyond) };
        let ends = [(from.0 - x, from.1 - y), (to.0 + x, to.1 + y)];
        area.line(ends, Role::Ground, width + 2 * halo);
    }
    lines.iter().for_each(|ends| area.line(*ends, role, width));
}

fn draw_lines(chart: &Lines, shape: Shape, area: &Area) {
    let points = || chart.lines.iter().flat_map(|l| &l.points);
    let limit = points().map(|p| p.1).fold(0.0, f64::max);
    let limit = if limit > 0.0 { limit * 1.05 } else { 1.0 };
    let end = points().map(|p| p.0).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let decimals = decimals_for(limit);
    let widest = text_width(&format!("{limit:.decimals$}"), SMALL);
    let labels = names_width(chart.lines.iter().map(|line| line.label.as_str()), shape);
    let plane = Plane::within(area, [22, labels + 20, AXIS, widest + 12], 0.0..end, 0.0..limit);
    let small = |anchor, rise| style(SMALL, Role::Muted, anchor, rise);
    for value in steps(limit, 5) {
        let [left, right] = plane.level(value);
        area.line([left, right], Role::Grid, 1);
        area.text(&format!("{value:.decimals$}"), (left.0 - 6, left.1), small(Anchor::End, Rise::Center));
    }
    let x_decimals = course::decimals_of_steps(end);
    for value in steps(end, shape.ticks()) {
        let [(x, y), _] = plane.upright(value);
        area.text(&format!("{value:.x_decimals$}"), (x, y + 5), small(Anchor::Middle, Rise::Top));
    }
    draw_names(area, plane.level(0.0), &chart.x.to_string(), &chart.y.to_string());
    draw_named_lines(area, &plane, chart.lines.iter().map(|line| (line.label.as_str(), line.points.clone())), labels);
}

/// Names lines at their ends (line, x, y), `room` pixels wide, where there is room for all.
pub(super) fn draw_ends<'a>(area: &Area, ends: Vec<(usize, i32, i32)>, label: impl Fn(usize) -> &'a str, room: i32) {
    for (i, x, y) in spread(ends, 22, area.height - AXIS) {
        let label = fit(&clean_line(label(i)), SMALL, room);
        area.line([(x + 5, y), (x + 13, y)], Role::Series(i), 3);
        area.text(&label, (x + 17, y), style(SMALL, Role::Muted, Anchor::Start, Rise::Center));
    }
}

/// Writes what the axes are: the horizontal one's name below its middle, the vertical one's above it. `left` and `right` are
/// the ends of the horizontal axis.
pub(super) fn draw_names(area: &Area, [left, right]: [Point; 2], x: &str, y: &str) {
    let small = |anchor| style(SMALL, Role::Muted, anchor, Rise::Top);
    let middle = (i32::midpoint(left.0, right.0), left.1 + 22);
    area.text(x, middle, small(Anchor::Middle));
    area.text(y, (4, 2), small(Anchor::Start));
}

/// Draws lines of points that are in the plane's coordinates, and names them in one column at its right edge, `room` pixels
/// wide: lines that end sooner have their names there, too.
pub(super) fn draw_named_lines<'a>(
    area: &Area,
    plane: &Plane,
    lines: impl Iterator<Item = (&'a str, Vec<(f64, f64)>)>,
    room: i32,
) {
    let (mut ends, mut names) = (Vec::new(), Vec::new());
    for (i, (name, points)) in lines.enumerate() {
        names.push(name);
        let points: Vec<Point> = points.into_iter().map(|point| plane.at(point)).collect();
        ends.extend(points.last().map(|last| (i, plane.right, last.1)));
        area.path(&points, Role::Series(i), 2, None);
    }
    draw_ends(area, ends, |i| names[i], room);
}

/// Moves the labels (line, x, y) at the lines' ends apart; none when they do not fit between `top` and `bottom`.
fn spread(mut labels: Vec<(usize, i32, i32)>, top: i32, bottom: i32) -> Vec<(usize, i32, i32)> {
    const STEP: i32 = SMALL + 1;
    if (labels.len() as i32 - 1) * STEP > bottom - top {
        return Vec::new();
    }
    labels.sort_by_key(|l| l.2);
    let mut least = top;
    for label in &mut labels {
        label.2 = label.2.max(least);
        least = label.2 + STEP;
    }
    let mut most = bottom;
    for label in labels.iter_mut().rev() {
        label.2 = label.2.min(most);
        most = label.2 - STEP;
    }
    labels
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::document::Block;
    use crate::fixture;

    fn charts() -> Vec<Chart> {
        let document = fixture::document();
        let figure = |block: &Block| match block {
            Block::Figure(chart) => Some(chart.clone()),
            _ => None,
        };
        document.all_blocks().filter_map(figure).collect()
    }

    #[test]
    fn what_crosses_bars_has_the_ground_around_it() {
        let crosses =
            |line: &&str| ["\"var(--ink)\" stroke-width=\"1\"", "\"var(--mark)\""].iter().any(|of| line.contains(of));
        let width = |line: &str| {
            line.split_once("stroke-width=\"").unwrap().1.split('"').next().unwrap().parse::<u32>().unwrap()
        };
        let is_halo = |line: &&str| line.starts_with("<line") && line.contains("stroke=\"var(--ground)\"");
        for chart in charts() {
            let (Chart::Bars(_) | Chart::Overview(_)) = &chart else { continue };
            for shape in [Shape::Wide, Shape::Narrow] {
                let drawing = draw(&chart, shape);
                let lines: Vec<&str> = drawing.elements.lines().filter(|line| line.starts_with("<line")).collect();
                let (halos, over): (Vec<&str>, Vec<&str>) =
                    lines.iter().copied().filter(|line| crosses(line) || is_halo(line)).partition(is_halo);
                assert!(halos.len() == over.len() && over.len() > 6, "{} of {}", halos.len(), over.len());
                for (halo, line) in halos.iter().zip(&over) {
                    assert!(width(halo) >= width(line) + 2, "{halo} beneath {line}");
                    let at = |one: &str| lines.iter().position(|line| *line == one).unwrap();
                    assert!(at(halo) < at(line), "{halo} is over {line}");
                }
            }
        }
    }

    fn number(line: &str, name: &str) -> i32 {
        line.split_once(&format!(" {name}=\"")).unwrap().1.split('"').next().unwrap().parse().unwrap()
    }

    #[test]
    fn no_line_of_the_grid_crosses_words() {
        let mut labels = 0;
        for chart in charts() {
            let drawing = draw(&chart, Shape::Narrow);
            let lines: Vec<&str> = drawing.elements.lines().collect();
            let is_label = |line: &str| line.starts_with("<text") && line.contains("font-weight=\"bold\"");
            for (at, label) in lines.iter().enumerate().filter(|(_, line)| is_label(line)) {
                labels += 1;
                let middle = number(label, "y");
                let ground = lines[..at].iter().rfind(|line| line.contains("fill=\"var(--ground)\"")).unwrap();
                let (top, height) = (number(ground, "y"), number(ground, "height"));
                assert!(height >= FONT && (top..top + height).contains(&middle), "{ground} {label}");
                let crosses = |line: &&&str| {
                    let is_grid = line.starts_with("<line") && line.contains("var(--line)");
                    is_grid && (number(line, "y2")..number(line, "y1")).contains(&middle)
                };
                assert_eq!(lines[at..].iter().find(crosses), None, "over {label}");
            }
            // A figure stands right after its ground.
            let is_figure =
                |line: &&str| line.starts_with("<text") && (line.contains(">23.5") || line.contains(">97.0<"));
            let figure = lines.iter().position(is_figure);
            let before = figure.map_or("", |at| lines[at - 1]);
            assert!(figure.is_none() || before.contains("fill=\"var(--ground)\""), "{before}");
        }
        assert!(labels > 4, "{labels}");
    }

    #[test]
    fn names_of_lines_are_whole_where_they_take_less_than_a_third() {
        for mut chart in charts() {
            let labels: Vec<&mut String> = match &mut chart {
                Chart::Lines(lines) => lines.lines.iter_mut().map(|line| &mut line.label).collect(),
                Chart::Percentiles(lines) => lines.lines.iter_mut().map(|line| &mut line.label).collect(),
                _ => continue,
            };
            labels.into_iter().for_each(|label| *label = "no namespaces".to_owned());
            for shape in [Shape::Wide, Shape::Narrow] {
                let drawing = draw(&chart, shape);
                assert!(drawing.elements.contains("no namespaces") && !drawing.elements.contains('…'), "{chart:?}");
            }
        }
    }

    #[test]
    fn steps_of_a_scale_are_round_and_no_more_than_asked_for() {
        assert_eq!(steps(101.0, 8), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(steps(8.0, 8), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(steps(1.0, 4), [0.0, 0.5, 1.0]);
        for high in [0.003, 0.7, 12.0, 49.0, 73_000.0, 2.1e9] {
            for most in [4, 5, 8] {
                let steps = steps(high, most);
                assert!(
                    (3..=most + 1).contains(&steps.len()) && steps[steps.len() - 1] > high * 0.6,
                    "{high}: {steps:?}"
                );
            }
        }
    }

    #[test]
    fn labels_at_the_ends_of_lines_keep_their_distance_and_their_order() {
        let apart = spread(vec![(0, 9, 100), (1, 9, 100), (2, 9, 30)], 22, 180);
        assert_eq!(apart, [(2, 9, 30), (0, 9, 100), (1, 9, 113)]);
    }

    #[test]
    fn labels_are_moved_up_from_the_lower_edge() {
        assert_eq!(spread(vec![(0, 9, 180), (1, 9, 180)], 22, 180), [(0, 9, 167), (1, 9, 180)]);
    }

    #[test]
    fn labels_that_do_not_fit_are_left_out() {
        assert!(spread((0..20).map(|i| (i, 9, 100)).collect(), 22, 180).is_empty());
    }
}
