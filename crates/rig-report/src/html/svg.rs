//! Charts as SVG, drawn by plotters; colours become CSS variables, so that the page decides on light or dark.

use std::io;

use clap::ValueEnum;
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::element::{PathElement, Rectangle, Text};
use plotters::prelude::{ChartBuilder, Color, DrawingArea, IntoDrawingArea, LineSeries, RGBColor, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, IntoFont, ShapeStyle, TRANSPARENT, TextStyle};
use textwrap::core::display_width;

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
    pub fn width(self) -> u32 {
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

/// What a colour is for. Drawn as a colour that nothing else uses, then replaced by the variable of that name.
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
    pub(super) fn colour(self) -> RGBColor {
        match self {
            Self::Ink => RGBColor(1, 0, 0),
            Self::Muted => RGBColor(1, 0, 1),
            Self::Grid => RGBColor(1, 0, 2),
            Self::Mark => RGBColor(1, 0, 3),
            Self::Series(i) => RGBColor(1, 1, (i % SERIES) as u8),
            Self::Part(i) => RGBColor(1, 2, (i % PARTS) as u8),
            Self::Value(i) | Self::Lined(i) | Self::Crowded(i) => RGBColor(1, 3, (i % VALUES) as u8),
            Self::OnValue => RGBColor(1, 0, 4),
            Self::Ground => RGBColor(1, 0, 5),
        }
    }

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
}

/// A drawn chart: the elements inside `<svg>`.
#[derive(Debug)]
pub struct Drawing {
    pub width: u32,
    pub height: u32,
    pub elements: String,
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// # Errors
/// When plotters cannot lay the chart out.
pub fn draw(chart: &Chart, shape: Shape) -> io::Result<Drawing> {
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
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (shape.width(), height)).into_drawing_area();
        match chart {
            Chart::Bars(bars) => draw_bars(bars, shape, &area),
            Chart::Stacked(stacked) => draw_stacked(stacked, shape, &area),
            Chart::Layers(chart) => layers::draw(chart, shape, &area),
            Chart::Lines(lines) => draw_lines(lines, shape, &area),
            Chart::Course(chart) => course::draw(chart, shape, &area),
            Chart::Percentiles(chart) => percentiles::draw(chart, shape, &area),
            Chart::Scaling(chart) => scaling::draw(chart, shape, &area),
            Chart::Strips(chart) => strips::draw(chart, shape, &area),
            Chart::Overview(chart) => overview::draw(chart, shape, &area),
        }
        .map_err(|error| io::Error::other(format!("chart `{}`: {error}", chart.title())))?;
        area.present().map_err(io::Error::other)?;
    }
    let elements = svg.split_once('>').map_or("", |(_, rest)| rest);
    let mut elements = elements.trim_end().trim_end_matches("</svg>").to_owned();
    let fixed = [Role::Ink, Role::Muted, Role::Grid, Role::Mark, Role::OnValue, Role::Ground];
    let numbered = (0..SERIES).map(Role::Series).chain((0..PARTS).map(Role::Part)).chain((0..VALUES).map(Role::Value));
    for role in fixed.into_iter().chain(numbered) {
        let RGBColor(r, g, b) = role.colour();
        elements = elements.replace(&format!("\"#{r:02X}{g:02X}{b:02X}\""), &format!("\"var({})\"", role.variable()));
    }
    Ok(Drawing { width: shape.width(), height, elements })
}

pub(super) const FONT: i32 = 13;
pub(super) const SMALL: i32 = 12;
pub(super) const BAR: i32 = 16;
pub(super) const AXIS: u32 = 40;
/// Room for the label above a bar in the narrow shape.
pub(super) const LABEL_LINE: i32 = 18;

/// Text style of `px` pixels. Plotters' SVG backend divides sizes by 1.24.
pub(super) fn style(px: i32, role: Role, h: HPos, v: VPos) -> TextStyle<'static> {
    let font = ("sans-serif", f64::from(px) * 1.24).into_font();
    TextStyle { font, color: role.colour().to_backend_color(), pos: Pos::new(h, v) }
}

fn bold(style: &TextStyle<'static>) -> TextStyle<'static> {
    TextStyle { font: style.font.clone().style(FontStyle::Bold), ..style.clone() }
}

pub(super) fn stroke(role: Role, width: u32) -> ShapeStyle {
    role.colour().stroke_width(width)
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
    names.map(|name| text_width(&clean_line(name), SMALL)).max().unwrap_or(0).min(shape.width() as i32 / 3)
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
pub(super) fn draw_label(area: &Area, label: &Label, head: bool, x: i32, y: i32, room: i32) -> Drawn {
    let name = clean_line(&label.head);
    let shown = if head { fit(&name, FONT, room) } else { String::new() };
    let indent = if label.subhead.is_some() { bold_width(&name) + 8 } else { 0 };
    let subhead = label.subhead.as_deref().map(|subhead| fit(&clean_line(subhead), FONT, room - indent));
    let from = if head { x } else { x + indent };
    let end = subhead.as_deref().map_or(bold_width(&shown), |subhead| indent + text_width(subhead, FONT));
    let half = LABEL_LINE / 2 - 1;
    let ground = Role::Ground.colour().filled();
    area.draw(&Rectangle::new([(from, y - half), (x + end.min(room), y + half)], ground))?;
    if head {
        area.draw(&Text::new(shown, (x, y), bold(&style(FONT, Role::Ink, HPos::Left, VPos::Center))))?;
    }
    if let Some(subhead) = subhead {
        let muted = style(FONT, Role::Muted, HPos::Left, VPos::Center);
        area.draw(&Text::new(subhead, (x + indent, y), muted))?;
    }
    Ok(())
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
) -> Result<impl Fn(f64) -> i32 + use<>, Box<dyn std::error::Error>> {
    let decimals = decimals_for(limit);
    // Half of the first number stands left of the axis.
    let left = left.max(text_width(&format!("{:.decimals$}", 0.0), SMALL) / 2);
    let mut chart = ChartBuilder::on(area)
        .margin_left(left)
        .margin_right(right)
        .x_label_area_size(AXIS)
        .build_cartesian_2d(0.0..limit, 0.0..1.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_labels(ticks)
        .x_label_formatter(&|v| tick(*v, decimals))
        .x_desc(axis)
        .axis_desc_style(style(SMALL, Role::Muted, HPos::Center, VPos::Top))
        .label_style(style(SMALL, Role::Muted, HPos::Center, VPos::Top))
        .light_line_style(TRANSPARENT)
        .bold_line_style(stroke(Role::Grid, 1))
        .axis_style(stroke(Role::Grid, 1))
        .draw()?;
    let (range, _) = chart.plotting_area().get_pixel_range();
    Ok(move |value: f64| {
        let share = (value / limit).clamp(0.0, 1.0);
        range.start + (share * f64::from(range.end - range.start)).round() as i32
    })
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

    fn height(&self) -> u32 {
        (self.groups * self.group_height() + 6) as u32 + AXIS
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

fn draw_bars(bars: &Bars, shape: Shape, area: &Area) -> Drawn {
    let rows = BarRows::new(bars, shape);
    let numbers = || bars.groups.iter().flat_map(|g| g.bars.iter().flatten());
    let reach = |n: &Number| [Some(n.value), n.interval.map(|i| i.high), n.reference].into_iter().flatten();
    let limit = numbers().flat_map(reach).fold(0.0, f64::max);
    let limit = if limit > 0.0 { limit } else { 1.0 };
    let left = gutter(bars.groups.iter().map(|g| &g.label), shape);
    let widest = numbers().map(|n| text_width(&value_text(n, shape), FONT)).max().unwrap_or(0);
    let x = draw_scale(area, shape.ticks(), limit * 1.01, &bars.axis.to_string(), left, widest + 10)?;
    for (g, group) in bars.groups.iter().enumerate() {
        let room = if shape == Shape::Wide { left - 12 } else { shape.width() as i32 };
        draw_label(area, &group.label, true, 0, rows.label_y(g as i32), room)?;
        for (s, number) in group.bars.iter().enumerate() {
            let Some(number) = number else { continue };
            let top = rows.bar_top(g as i32, s as i32);
            let middle = top + BAR / 2;
            let mut edge = draw_bar(area, &x, number, Role::Series(s), (top, BAR))?;
            let text = value_text(number, shape);
            if let Some(reference) = number.reference {
                let at = x(reference);
                draw_mark(area, at, (top, BAR))?;
                let covered = edge - 4..edge + 12 + text_width(&text, FONT);
                if covered.contains(&at) {
                    edge = at + 2;
                }
            }
            draw_value(area, text, FONT, (edge + 6, middle))?;
        }
    }
    Ok(())
}

/// A figure beside its bar, without lines of the grid through it.
pub(super) fn draw_value(area: &Area, text: String, px: i32, (x, y): (i32, i32)) -> Drawn {
    let ground = [(x - 1, y - px / 2), (x + text_width(&text, px), y + px / 2)];
    area.draw(&Rectangle::new(ground, Role::Ground.colour().filled()))?;
    area.draw(&Text::new(text, (x, y), style(px, Role::Ink, HPos::Left, VPos::Center)))?;
    Ok(())
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

    pub(super) fn height(&self) -> u32 {
        (self.tops.last().copied().unwrap_or(0) + 4) as u32 + AXIS
    }

    pub(super) fn bar_top(&self, row: usize) -> i32 {
        self.tops[row] + if self.shape == Shape::Narrow { LABEL_LINE } else { 0 }
    }

    pub(super) fn label_y(&self, row: usize) -> i32 {
        self.tops[row] + if self.shape == Shape::Narrow { LABEL_LINE } else { BAR } / 2
    }
}

fn draw_stacked(chart: &Stacked, shape: Shape, area: &Area) -> Drawn {
    draw_stacks(chart, shape, area, 52, |part, (begin, end), top| {
        area.draw(&Rectangle::new([(begin, top), (end, top + BAR)], Role::Part(part).colour().filled()))?;
        Ok(())
    })
}

/// Axis, labels and figures of stacked bars, of which `draw_part` draws each part: its number, from where to where it goes,
/// and its top.
pub(super) fn draw_stacks(
    chart: &Stacked,
    shape: Shape,
    area: &Area,
    right: i32,
    draw_part: impl Fn(usize, (i32, i32), i32) -> Drawn,
) -> Drawn {
    let rows = StackRows::new(chart, shape);
    let left = gutter(chart.rows.iter().map(|r| &r.label), shape);
    let limit = if chart.limit > 0.0 { chart.limit } else { 1.0 };
    let x = draw_scale(area, shape.ticks(), limit, &chart.axis.to_string(), left, right)?;
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
            // A gap of one pixel keeps neighbouring parts of similar colours apart.
            let end = if end - begin > 2 { end - 1 } else { end };
            if end > begin {
                draw_part(part, (begin, end), top)?;
            }
        }
        draw_value(area, row.figure.to_string(), FONT, (x(sum) + 6, top + BAR / 2))?;
    }
    Ok(())
}

/// A bar from zero with its interval over it; returns where the longer of both ends.
pub(super) fn draw_bar(
    area: &Area,
    x: impl Fn(f64) -> i32,
    number: &Number,
    role: Role,
    (top, height): (i32, i32),
) -> Result<i32, Box<dyn std::error::Error>> {
    let middle = top + height / 2;
    let end = x(number.value);
    area.draw(&Rectangle::new([(x(0.0), top), (end, top + height)], role.colour().filled()))?;
    let Some(interval) = number.interval else { return Ok(end) };
    let (low, high) = (x(interval.low), x(interval.high));
    let whisker = [
        [(low, middle), (high, middle)],
        [(low, middle - 4), (low, middle + 4)],
        [(high, middle - 4), (high, middle + 4)],
    ];
    draw_over(area, &whisker, Role::Ink, 1)?;
    Ok(end.max(high))
}

/// Where a study's figure is, across a bar.
pub(super) fn draw_mark(area: &Area, at: i32, (top, height): (i32, i32)) -> Drawn {
    draw_over(area, &[[(at, top - 3), (at, top + height + 3)]], Role::Mark, 3)
}

/// Lines, level or upright, that cross bars. No colour stands out from all of the bars' and from the ground in both schemes, so
/// they have the ground around them.
fn draw_over(area: &Area, lines: &[[(i32, i32); 2]], role: Role, width: u32) -> Drawn {
    // Half as wide to each side: short bars are not to be covered.
    let halo = width.div_ceil(2);
    for [from, to] in lines {
        let beyond = halo as i32;
        let (x, y) = if from.1 == to.1 { (beyond, 0) } else { (0, beyond) };
        let ends = [(from.0 - x, from.1 - y), (to.0 + x, to.1 + y)];
        area.draw(&PathElement::new(ends, stroke(Role::Ground, width + 2 * halo)))?;
    }
    lines.iter().try_for_each(|ends| Ok(area.draw(&PathElement::new(*ends, stroke(role, width)))?))
}

fn draw_lines(chart: &Lines, shape: Shape, area: &Area) -> Drawn {
    let points = || chart.lines.iter().flat_map(|l| &l.points);
    let limit = points().map(|p| p.1).fold(0.0, f64::max);
    let limit = if limit > 0.0 { limit * 1.05 } else { 1.0 };
    let end = points().map(|p| p.0).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let decimals = decimals_for(limit);
    let widest = text_width(&format!("{limit:.decimals$}"), SMALL);
    let labels = names_width(chart.lines.iter().map(|line| line.label.as_str()), shape);
    let mut built = ChartBuilder::on(area)
        .margin_top(22)
        .margin_left(4)
        .margin_right(labels + 20)
        .x_label_area_size(AXIS)
        .y_label_area_size(widest + 8)
        .build_cartesian_2d(0.0..end, 0.0..limit)?;
    let x_decimals = course::decimals_of_steps(end);
    built
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(shape.ticks())
        .y_labels(5)
        .x_label_formatter(&|v| format!("{v:.x_decimals$}"))
        .y_label_formatter(&|v| format!("{v:.decimals$}"))
        .x_desc(chart.x.to_string())
        .axis_desc_style(style(SMALL, Role::Muted, HPos::Center, VPos::Top))
        .label_style(style(SMALL, Role::Muted, HPos::Center, VPos::Top))
        .light_line_style(TRANSPARENT)
        .bold_line_style(stroke(Role::Grid, 1))
        .axis_style(stroke(Role::Grid, 1))
        .draw()?;
    area.draw(&Text::new(chart.y.to_string(), (4, 2), style(SMALL, Role::Muted, HPos::Left, VPos::Top)))?;
    for (i, line) in chart.lines.iter().enumerate() {
        built.draw_series(LineSeries::new(line.points.iter().copied(), stroke(Role::Series(i), 2)))?;
    }
    let ends = chart.lines.iter().enumerate().filter_map(|(i, line)| {
        let (x, y) = built.backend_coord(line.points.last()?);
        Some((i, x, y))
    });
    draw_ends(area, ends.collect(), |i| &chart.lines[i].label, labels)
}

/// Names lines at their ends (line, x, y), `room` pixels wide, where there is room for all.
pub(super) fn draw_ends<'a>(
    area: &Area,
    ends: Vec<(usize, i32, i32)>,
    label: impl Fn(usize) -> &'a str,
    room: i32,
) -> Drawn {
    for (i, x, y) in spread(ends, 22, area.dim_in_pixel().1 as i32 - AXIS as i32) {
        let label = fit(&clean_line(label(i)), SMALL, room);
        area.draw(&PathElement::new([(x + 5, y), (x + 13, y)], stroke(Role::Series(i), 3)))?;
        area.draw(&Text::new(label, (x + 17, y), style(SMALL, Role::Muted, HPos::Left, VPos::Center)))?;
    }
    Ok(())
}

/// Writes what the axes are: the horizontal one's name below its middle, the vertical one's above it. `left` and `right` are
/// the ends of the horizontal axis.
pub(super) fn draw_names(area: &Area, (left, right): ((i32, i32), (i32, i32)), x: &str, y: &str) -> Drawn {
    let small = |h| style(SMALL, Role::Muted, h, VPos::Top);
    let middle = (i32::midpoint(left.0, right.0), left.1 + 22);
    area.draw(&Text::new(x.to_owned(), middle, small(HPos::Center)))?;
    area.draw(&Text::new(y.to_owned(), (4, 2), small(HPos::Left)))?;
    Ok(())
}

/// The plane of a chart with logarithmic or timed axes.
pub(super) type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws lines of points that are in the plane's coordinates, and names them in one column at the right edge, `room` pixels
/// wide: lines that end sooner have their names there, too.
pub(super) fn draw_named_lines<'a>(
    area: &Area,
    plane: &mut Plane<'_, '_>,
    right: i32,
    lines: impl Iterator<Item = (&'a str, Vec<(f64, f64)>)>,
    room: i32,
) -> Drawn {
    let (mut ends, mut names) = (Vec::new(), Vec::new());
    for (i, (name, points)) in lines.enumerate() {
        names.push(name);
        ends.extend(points.last().map(|last| (i, right, plane.backend_coord(last).1)));
        plane.draw_series(LineSeries::new(points, stroke(Role::Series(i), 2)))?;
    }
    draw_ends(area, ends, |i| names[i], room)
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
        let is_halo = |line: &&str| line.starts_with("<polyline") && line.contains("stroke=\"var(--ground)\"");
        for chart in charts() {
            let (Chart::Bars(_) | Chart::Overview(_)) = &chart else { continue };
            for shape in [Shape::Wide, Shape::Narrow] {
                let drawing = draw(&chart, shape).unwrap();
                let lines: Vec<&str> = drawing.elements.lines().filter(|line| line.starts_with("<polyline")).collect();
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
            let drawing = draw(&chart, Shape::Narrow).unwrap();
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
            let figure = lines.iter().position(|line| line.contains("23.5") || line.trim() == "97.0");
            let before = figure.map_or("", |at| lines[at - 2]);
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
                let drawing = draw(&chart, shape).unwrap();
                assert!(drawing.elements.contains("no namespaces") && !drawing.elements.contains('…'), "{chart:?}");
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
