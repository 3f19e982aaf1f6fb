//! Charts made of characters, for terminals and Markdown.

mod overview;

use std::collections::BTreeMap;

use textwrap::core::display_width;

use super::document::{
    Axis, Bars, Chart, Distribution, Interval, Lines, Percentiles, PhaseSpan, Scaling, Stacked, StripSpan, Strips,
    TimelineChart,
};
use super::paint::{Colour, TerminalStyle};
use super::readable;
use super::text::{MISSING, clean_line, largest, pad, pad_left, shorten, significant};

const EIGHTHS: [char; 8] = ['█', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const REFERENCE: char = '┃';
const SERIES: [Colour; 4] = [Colour::Blue, Colour::Yellow, Colour::Green, Colour::Magenta];
/// Parts of a stack differ in character and colour, so that either alone tells them apart.
const PARTS: [(char, Colour); 6] = [
    ('█', Colour::Blue),
    ('▓', Colour::Yellow),
    ('▒', Colour::Green),
    ('░', Colour::Magenta),
    ('#', Colour::Red),
    ('·', Colour::Cyan),
];
/// Signs of values by their numbers; all beyond share [`OTHER`].
const VALUES: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@#";
const OTHER: char = '+';

/// The chart without its title, in lines of at most `width` columns.
pub fn render(chart: &Chart, width: usize, paint: TerminalStyle) -> Vec<String> {
    match chart {
        Chart::Bars(bars) => with_axis(&bars.title, &bars.axis, render_bars(bars, width, paint), width, paint),
        Chart::Stacked(chart) => {
            with_axis(&chart.title, &chart.axis, render_stacked(chart, width, paint), width, paint)
        }
        Chart::Layers(chart) => with_axis(&chart.title, &chart.axis, render_layers(chart, width, paint), width, paint),
        Chart::Lines(lines) => render_lines(lines, width, paint),
        Chart::Course(course) => render_course(course, width, paint),
        Chart::Percentiles(percentiles) => render_percentiles(percentiles, width, paint),
        Chart::Scaling(scaling) => render_scaling(scaling, width, paint),
        Chart::Strips(strips) => render_strips(strips, width, paint),
        Chart::Overview(overview) => overview::render(overview, width, paint),
    }
}

/// The lines under what their figures are of, unless the title says that.
fn with_axis(title: &str, axis: &Axis, lines: Vec<String>, width: usize, paint: TerminalStyle) -> Vec<String> {
    let said = title.to_lowercase();
    let is_said = said.contains(&axis.quantity.to_lowercase()) && said.contains(&axis.unit.to_lowercase());
    let head = (!is_said && !lines.is_empty()).then(|| paint.dim(&shorten(&clean_line(&axis.to_string()), width)));
    head.into_iter().chain(lines).collect()
}

/// What the figures of lines are of.
fn axes(y: &Axis, x: &Axis, width: usize, paint: TerminalStyle) -> String {
    paint.dim(&shorten(&clean_line(&format!("{y} over {x}")), width))
}

/// One line of a bar chart before layout.
struct BarLine {
    label: String,
    value: f64,
    text: String,
    reference: Option<f64>,
    colour: Colour,
}

fn render_bars(bars: &Bars, width: usize, paint: TerminalStyle) -> Vec<String> {
    let mut lines = Vec::new();
    for group in &bars.groups {
        for (i, number) in group.bars.iter().enumerate() {
            let Some(number) = number else { continue };
            let series = bars.series.get(i).filter(|_| bars.series.len() > 1);
            let label = clean_line(&group.label.to_string());
            lines.push(BarLine {
                label: series.map_or(label.clone(), |s| format!("{label}, {}", clean_line(s))),
                value: number.value,
                text: number.with_words(),
                reference: number.reference,
                colour: SERIES[i % SERIES.len()],
            });
        }
    }
    let limit = lines.iter().flat_map(|l| [Some(l.value), l.reference]).flatten().fold(0.0, f64::max);
    let label_width = label_width(lines.iter().map(|l| l.label.as_str()), width);
    let text_width = lines.iter().map(|l| display_width(&l.text)).max().unwrap_or(0);
    let room = width.saturating_sub(label_width + text_width + 4).max(4);
    let mut out: Vec<String> = lines
        .iter()
        .map(|line| {
            let bar = bar(line.value, line.reference, limit, room);
            let bar = match bar.split_once(REFERENCE) {
                Some((before, after)) => format!(
                    "{}{}{}",
                    paint.colour(line.colour, before),
                    paint.bold(&REFERENCE.to_string()),
                    paint.colour(line.colour, after)
                ),
                None => paint.colour(line.colour, &bar),
            };
            format!("{}  {bar}  {}", pad(&shorten(&line.label, label_width), label_width), line.text)
        })
        .collect();
    if let Some(name) = &bars.reference
        && lines.iter().any(|l| l.reference.is_some())
    {
        out.push(paint.dim(&format!("{}  {REFERENCE} {}", " ".repeat(label_width), clean_line(name))));
    }
    out
}

/// A bar of exactly `room` columns; the reference mark overlays it.
fn bar(value: f64, reference: Option<f64>, limit: f64, room: usize) -> String {
    let eighths = if limit > 0.0 { (value.max(0.0) / limit * room as f64 * 8.0).round() as usize } else { 0 };
    let mut bar: Vec<char> = vec!['█'; (eighths / 8).min(room)];
    if bar.len() < room && eighths % 8 != 0 {
        bar.push(EIGHTHS[eighths % 8]);
    }
    bar.resize(room, ' ');
    if let Some(reference) = reference.filter(|r| *r >= 0.0 && limit > 0.0) {
        let at = (reference / limit * room as f64).round() as usize;
        bar[at.min(room - 1)] = REFERENCE;
    }
    bar.into_iter().collect()
}

fn render_stacked(chart: &Stacked, width: usize, paint: TerminalStyle) -> Vec<String> {
    let labels: Vec<String> = chart.rows.iter().map(|r| clean_line(&r.label.to_string())).collect();
    let label_width = label_width(labels.iter().map(String::as_str), width);
    let room = width.saturating_sub(label_width + 12).max(4);
    let mut out = Vec::new();
    for (row, label) in chart.rows.iter().zip(&labels) {
        let mut line = String::new();
        let mut sum = 0.0;
        let mut filled = 0;
        for (value, (sign, colour)) in row.values.iter().zip(PARTS.iter().cycle()) {
            sum += value.max(0.0);
            let edge = ((sum / chart.limit * room as f64).round() as usize).min(room);
            line.push_str(&paint.colour(*colour, &sign.to_string().repeat(edge.saturating_sub(filled))));
            filled = filled.max(edge);
        }
        line.push_str(&paint.dim(&"╶".repeat(room - filled)));
        out.push(format!("{}  {line}  {:>6}", pad(&shorten(label, label_width), label_width), row.figure));
    }
    let parts = chart.parts.iter().zip(PARTS.iter().cycle());
    out.extend(legend(parts.map(|(part, (sign, colour))| (*sign, *colour, part.clone())), width, paint));
    out
}

/// Signs of layers; all beyond are written as [`OTHER`].
const LAYERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";
/// Parts that are written out below a bar.
const LARGEST: usize = 6;

/// A bar of letters for each row, with its largest parts in words.
fn render_layers(chart: &Stacked, width: usize, paint: TerminalStyle) -> Vec<String> {
    let labels: Vec<String> = chart.rows.iter().map(|row| clean_line(&row.label.to_string())).collect();
    let label_width = label_width(labels.iter().map(String::as_str), width);
    let figures: Vec<String> = chart.rows.iter().map(|row| row.figure.to_string()).collect();
    let figure_width = figures.iter().map(|figure| display_width(figure)).max().unwrap_or(0);
    let room = width.saturating_sub(label_width + figure_width + 4).max(4);
    let sign = |part: usize| LAYERS.get(part).map_or(OTHER, |sign| char::from(*sign));
    let colour = |part: usize| SERIES[part % SERIES.len()];
    let mut out = Vec::new();
    for ((row, label), figure) in chart.rows.iter().zip(&labels).zip(&figures) {
        let (mut line, mut sum, mut filled) = (String::new(), 0.0, 0);
        for (part, value) in row.values.iter().enumerate() {
            sum += value.max(0.0);
            let edge =
                if chart.limit > 0.0 { ((sum / chart.limit * room as f64).round() as usize).min(room) } else { 0 };
            line.push_str(&paint.colour(colour(part), &sign(part).to_string().repeat(edge.saturating_sub(filled))));
            filled = filled.max(edge);
        }
        line.push_str(&" ".repeat(room - filled));
        let label = pad(&shorten(label, label_width), label_width);
        out.push(format!("{label}  {line}  {}", pad_left(figure, figure_width)));
        let parts: Vec<String> =
            largest(chart, row, LARGEST).into_iter().map(|(name, share)| format!("{name} {share:.0} %")).collect();
        let words = textwrap::fill(&parts.join(", "), width.saturating_sub(2).max(8));
        out.extend(words.lines().map(|words| format!("  {}", paint.dim(words))));
    }
    let is_there = |part: usize| chart.rows.iter().any(|row| row.values.get(part).is_some_and(|value| *value > 0.0));
    let parts = chart.parts.iter().enumerate().filter(|(part, _)| is_there(*part));
    out.extend(legend(parts.map(|(part, name)| (sign(part), colour(part), name.clone())), width, paint));
    out
}

/// Names behind their signs, as many on a line as fit.
fn legend(names: impl Iterator<Item = (char, Colour, String)>, width: usize, paint: TerminalStyle) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut used = width;
    for (sign, colour, name) in names {
        let name = shorten(&clean_line(&name), width.saturating_sub(4));
        let needed = display_width(&name) + 4;
        if used + needed > width {
            lines.push(String::new());
            used = 0;
        }
        used += needed;
        let sign = paint.colour(colour, &sign.to_string());
        if let Some(line) = lines.last_mut() {
            line.push_str(&format!("  {sign} {name}"));
        }
    }
    lines
}

/// Bars, on a linear scale, with the head of what they are grouped by.
fn render_scaling(chart: &Scaling, width: usize, paint: TerminalStyle) -> Vec<String> {
    let mut bars = chart.bars();
    readable::bars(&mut bars);
    let head = paint.dim(&shorten(&format!("{}, {}", chart.x, bars.axis), width));
    [head].into_iter().chain(render_bars(&bars, width, paint)).collect()
}

fn render_lines(chart: &Lines, width: usize, paint: TerminalStyle) -> Vec<String> {
    let limit = chart.lines.iter().flat_map(|l| &l.points).map(|p| p.1).fold(0.0, f64::max);
    let decimals = decimals_for(limit);
    let label_width = label_width(chart.lines.iter().map(|l| l.label.as_str()), width);
    let figure_width = format!("{limit:.decimals$}").len();
    let room = width.saturating_sub(label_width + 2 * figure_width + 8).max(4);
    let mut out = vec![axes(&chart.y, &chart.x, width, paint)];
    for (i, line) in chart.lines.iter().enumerate() {
        let values: Vec<f64> = line.points.iter().map(|p| p.1).filter(|v| v.is_finite()).collect();
        let Some(range) = range(&values) else { continue };
        let spark: String = resample(&values, room.min(values.len() * 2))
            .map(|v| if limit > 0.0 { SPARKS[((v / limit * 8.0).ceil() as usize).clamp(1, 8) - 1] } else { SPARKS[0] })
            .collect();
        let spark_width = spark.chars().count();
        out.push(format!(
            "{}  {}{}  {} to {}",
            pad(&shorten(&clean_line(&line.label), label_width), label_width),
            paint.colour(SERIES[i % SERIES.len()], &spark),
            " ".repeat(room.min(values.len() * 2) - spark_width),
            pad_left(&format!("{:.decimals$}", range.low), figure_width),
            pad_left(&format!("{:.decimals$}", range.high), figure_width),
        ));
    }
    out
}

/// Each line as a course over time under the names of the phases, with its least and its greatest value.
fn render_course(chart: &TimelineChart, width: usize, paint: TerminalStyle) -> Vec<String> {
    let values = || chart.lines.iter().flat_map(|line| &line.points).map(|point| point.1).filter(|v| v.is_finite());
    let Some(all) = range(&values().collect::<Vec<_>>()) else { return Vec::new() };
    let decimals = decimals_for(all.high);
    let label_width = label_width(chart.lines.iter().map(|line| line.label.as_str()), width);
    let figure_width = format!("{:.decimals$}", all.high).len();
    let room = width.saturating_sub(label_width + 2 * figure_width + 8).clamp(4, 80);
    let end = chart.phases.iter().map(|phase| phase.to).fold(f64::MIN_POSITIVE, f64::max);
    let column = |at: f64| ((at / end * room as f64).round() as usize).min(room);
    let share = |value: f64| match (chart.is_logarithmic, all.high > all.low.max(0.0), all.low > 0.0) {
        (true, true, true) => (value / all.low).ln() / (all.high / all.low).ln(),
        _ if all.high > 0.0 => value / all.high,
        _ => 0.0,
    };
    let names = phase_names(chart.phases.iter(), column);
    let names = paint.dim(format!("{}  {names}", pad("", label_width)).trim_end());
    let mut out = vec![axes(&chart.y, &chart.x, width, paint), names];
    for (i, line) in chart.lines.iter().enumerate() {
        let values: Vec<f64> = line.points.iter().map(|point| point.1).filter(|v| v.is_finite()).collect();
        let Some(range) = range(&values) else { continue };
        let sign = |at: usize| {
            let (from, to) = (at as f64 * end / room as f64, (at + 1) as f64 * end / room as f64);
            let inside = line.points.iter().filter(|point| point.0 >= from && point.0 < to).map(|point| point.1);
            // Where there are fewer values than columns, the nearest before.
            let value = inside.reduce(f64::max).or_else(|| line.points.iter().rfind(|point| point.0 < to).map(|p| p.1));
            value.map_or(' ', |value| SPARKS[(share(value) * 7.0).round().clamp(0.0, 7.0) as usize])
        };
        let spark: String = (0..room).map(sign).collect();
        out.push(format!(
            "{}  {}  {} to {}",
            pad(&shorten(&clean_line(&line.label), label_width), label_width),
            paint.colour(SERIES[i % SERIES.len()], &spark),
            pad_left(&format!("{:.decimals$}", range.low), figure_width),
            pad_left(&format!("{:.decimals$}", range.high), figure_width),
        ));
    }
    out
}

/// The phases' names, each where its phase begins.
fn phase_names<'a>(phases: impl Iterator<Item = &'a PhaseSpan>, column: impl Fn(f64) -> usize) -> String {
    let mut names = String::new();
    for phase in phases {
        names = pad(&names, column(phase.from));
        // A name ends before the next one begins.
        let room = column(phase.to).saturating_sub(display_width(&names) + 1);
        names.push_str(&shorten(&clean_line(&phase.label), room));
    }
    names
}

/// Each row as the signs of the values that it had, under the names of the phases and over the time.
fn render_strips(chart: &Strips, width: usize, paint: TerminalStyle) -> Vec<String> {
    let Some(end) = chart.end() else { return Vec::new() };
    let label_width = label_width(chart.rows.iter().map(|row| row.label.as_str()), width);
    let room = width.saturating_sub(label_width + 2).clamp(4, 80);
    let line =
        |label: &str, rest: &str| format!("{}  {rest}", pad(&shorten(&clean_line(label), label_width), label_width));
    let mut out = Vec::new();
    let names = phase_names(chart.phases(), |at| ((at / end * room as f64).round() as usize).min(room));
    if !names.is_empty() {
        out.push(paint.dim(line("", &names).trim_end()));
    }
    let signs = value_signs(chart);
    let colour = |value: usize| if signs[value] == OTHER { Colour::Cyan } else { SERIES[value % SERIES.len()] };
    for row in &chart.rows {
        let spans = chart.spans(row);
        let moment = |column: usize| column as f64 / room as f64 * end;
        let values: Vec<Option<usize>> = (0..room).map(|at| longest(&spans, moment(at), moment(at + 1))).collect();
        let runs = values.chunk_by(|a, b| a == b).map(|run| match run[0] {
            Some(value) => paint.colour(colour(value), &signs[value].to_string().repeat(run.len())),
            None => paint.dim(&".".repeat(run.len())),
        });
        out.push(line(&row.label, &runs.collect::<String>()));
    }
    let scale = scale(&clean_line(&chart.x.to_string()), &significant(end), room);
    out.push(paint.dim(&line("", &shorten(&scale, room))));
    let named = signs.iter().enumerate().filter(|(_, sign)| **sign != OTHER);
    let others = signs.contains(&OTHER).then(|| (OTHER, Colour::Cyan, "others".to_owned()));
    out.extend(legend(named.map(|(i, sign)| (*sign, colour(i), chart.name(i))).chain(others), width, paint));
    out
}

/// A sign for each value: its number, in the name or else its place, as a digit or, beyond 9, as a letter.
fn value_signs(chart: &Strips) -> Vec<char> {
    let numbers = chart.numbers().filter(|numbers| numbers.iter().all(|number| *number < VALUES.len()));
    let numbers = numbers.unwrap_or_else(|| (0..chart.values.len()).collect());
    numbers.into_iter().map(|number| VALUES.get(number).map_or(OTHER, |sign| char::from(*sign))).collect()
}

/// The value that there was for most of the time between `from` and `to`.
fn longest(spans: &[StripSpan], from: f64, to: f64) -> Option<usize> {
    let mut times: BTreeMap<usize, f64> = BTreeMap::new();
    for span in spans {
        let time = span.to.min(to) - span.from.max(from);
        // Less is where the computation of `from` and `to` is rounded.
        if time > (to - from) * 1e-6 {
            *times.entry(span.value).or_default() += time;
        }
    }
    times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(value, _)| value)
}

/// An axis of `room` columns from 0 to `end`, with its name where there is room.
fn scale(name: &str, end: &str, room: usize) -> String {
    let between = room.saturating_sub(1 + display_width(end));
    let name = if display_width(name) + 2 <= between { name } else { "" };
    let before = (between - display_width(name)) / 2;
    format!("0{}{end}", pad(&format!("{}{name}", " ".repeat(before)), between))
}

/// Columns that are left to labels, however narrow the line is.
const LEAST_LABEL: usize = 8;

/// The written percentiles of each distribution in a row, after its course on a logarithmic scale where there is room.
fn render_percentiles(chart: &Percentiles, width: usize, paint: TerminalStyle) -> Vec<String> {
    let Some(first) = chart.lines.first() else { return Vec::new() };
    let all: Vec<String> = first.marks.iter().map(ToString::to_string).collect();
    let value = |line: &Distribution, i: usize| {
        line.marks.get(i).and_then(|mark| mark.value).map_or(MISSING.to_owned(), significant)
    };
    let column = |i: usize| {
        let values = chart.lines.iter().map(|line| display_width(&value(line, i)));
        values.chain([display_width(&all[i])]).max().unwrap_or(0) + 2
    };
    // The first and the last percentile say most; on a narrow line those between them give way.
    let mut shown: Vec<usize> = (0..all.len()).collect();
    while shown.len() > 1 && shown.iter().map(|i| column(*i)).sum::<usize>() + LEAST_LABEL > width {
        shown.remove(1);
    }
    let widths: Vec<usize> = shown.iter().map(|i| column(*i)).collect();
    let heads: Vec<String> = shown.iter().map(|i| all[*i].clone()).collect();
    let rows: Vec<Vec<String>> =
        chart.lines.iter().map(|line| shown.iter().map(|i| value(line, *i)).collect()).collect();
    let figures = widths.iter().sum::<usize>();
    let label_width =
        label_width(chart.lines.iter().map(|l| l.label.as_str()), width).min(width.saturating_sub(figures));
    // On a narrow line the course would not be readable.
    let room = Some(width.saturating_sub(label_width + figures + 2).min(40)).filter(|room| *room >= 10);
    let values = || chart.lines.iter().flat_map(|l| &l.points).map(|p| p.1);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let line = |label: String, spark: String, cells: &[String]| {
        let cells: String = cells.iter().zip(&widths).map(|(cell, width)| pad_left(cell, *width)).collect();
        format!("{}{spark}{cells}", pad(&label, label_width))
    };
    let unit = clean_line(&chart.value.to_string());
    let mut out = vec![paint.dim(&line(
        String::new(),
        room.map_or(String::new(), |room| format!("  {}", pad(&shorten(&unit, room), room))),
        &heads,
    ))];
    for (i, (distribution, cells)) in chart.lines.iter().zip(&rows).enumerate() {
        let course: Vec<f64> = distribution.points.iter().map(|p| p.1.ln()).collect();
        let spark = room.map_or(String::new(), |room| {
            let span = (high / low).ln();
            let height = |v: f64| if span > 0.0 { ((v - low.ln()) / span * 7.0).round().clamp(0.0, 7.0) } else { 0.0 };
            let signs: String = resample(&course, room).map(|v| SPARKS[height(v) as usize]).collect();
            format!("  {}", paint.colour(SERIES[i % SERIES.len()], &signs))
        });
        out.push(line(shorten(&clean_line(&distribution.label), label_width), spark, cells));
    }
    if room.is_none() {
        out.push(paint.dim(&unit));
    }
    out
}

fn range(values: &[f64]) -> Option<Interval> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some(Interval { low, high })
}

/// `count` values, each the mean of its share of `values`, or the nearest one where there are fewer.
fn resample(values: &[f64], count: usize) -> impl Iterator<Item = f64> + '_ {
    (0..count).map(move |i| {
        let begin = i * values.len() / count;
        let end = ((i + 1) * values.len() / count).max(begin + 1);
        values[begin..end].iter().sum::<f64>() / (end - begin) as f64
    })
}

/// Columns for labels: what the longest needs, but no more than two fifths of the line.
fn label_width<'a>(labels: impl Iterator<Item = &'a str>, width: usize) -> usize {
    labels.map(|l| display_width(&clean_line(l))).max().unwrap_or(0).min(width * 2 / 5)
}

/// Digits after the point that show differences on a scale up to `limit`.
pub fn decimals_for(limit: f64) -> usize {
    match limit.abs() {
        l if l >= 100.0 => 0,
        l if l >= 10.0 => 1,
        l if l >= 1.0 => 2,
        _ => 3,
    }
}
