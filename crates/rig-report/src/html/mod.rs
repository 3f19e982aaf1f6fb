//! One HTML file that needs nothing else: no network, light and dark, desktop, phone and paper. The page has no script; a
//! flame graph has one to zoom and search, in a frame of its own that can reach nothing else.

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod access;
mod canvas;
mod claim;
mod course;
mod layers;
mod overview;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod parse;
mod percentiles;
mod picture;
mod scaling;
mod strips;
mod svg;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;

use std::fmt::Write as _;
use std::io;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
pub use picture::picture;
use rig_facts::flame::{self, ProfilePair};
use svg::Role;
pub use svg::Shape;

use super::csv;
use super::document::{
    Align, BarGroup, Block, Cell, Chart, Document, Flame, Headline, Lines, Table, TimelineChart, with_unit,
};
use super::text::{self, MISSING, clean, clean_line};

/// Tables of more columns are set closer.
const DENSE: usize = 8;
/// Tables of more columns, or of words, never stand beside others.
const BESIDE: usize = 5;

const STYLE: &str = include_str!("style.css");

pub fn write(document: &Document, out: &mut dyn io::Write) -> io::Result<()> {
    let title = clean_line(&document.title);
    let mut page = Page::default();
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content="netrig";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    header {
                        h1 { (title) }
                        @if let Some(headline) = &document.headline { (answer(headline)) }
                        @for line in &document.summary { p.run { (Text(line)) } }
                    }
                    (contents(document))
                    @if !document.lead.is_empty() {
                        div.first {
                            @for section in sections(&document.lead) {
                                div { @for block in section { (page.block(block)?) } }
                            }
                        }
                    }
                    @for section in sections(&document.blocks) {
                        div.part { @for block in section { (page.block(block)?) } }
                    }
                    @for section in sections(&document.details) { (page.section(section)?) }
                }
            }
        }
    };
    out.write_all(html.into_string().as_bytes())?;
    out.write_all(b"\n")
}

/// Text from runs and suites, which must not become markup: it is escaped, and [`clean`] makes control characters visible. No
/// line breaks between a number and its unit.
struct Text<'a>(&'a str);

impl Render for Text<'_> {
    fn render_to(&self, page: &mut String) {
        text::unparted(&clean(self.0)).render_to(page);
    }
}

/// [`Text`] that readers copy, such as commands: no blank is changed.
struct Verbatim<'a>(&'a str);

impl Render for Verbatim<'_> {
    fn render_to(&self, page: &mut String) {
        clean(self.0).render_to(page);
    }
}

/// The question and its answer, and above both why the whole is to be doubted.
fn answer(headline: &Headline) -> Markup {
    html! {
        @if let Some(caution) = &headline.caution {
            p class="notice warning" role="note" { strong { "Caution" } " " (Text(caution)) }
        }
        @if let Some(question) = &headline.question { p.question { (Text(question)) } }
        p.answer { (Text(&headline.answer)) }
    }
}

/// Blocks from one heading of level 2 to the next.
fn sections(blocks: &[Block]) -> Vec<&[Block]> {
    let begins = |block: &Block| matches!(block, Block::Heading { level, .. } if *level <= 2);
    let mut places: Vec<usize> = (0..blocks.len()).filter(|i| *i == 0 || begins(&blocks[*i])).collect();
    places.push(blocks.len());
    places.windows(2).map(|ends| &blocks[ends[0]..ends[1]]).collect()
}

/// Links to the sections, where there are enough to get lost in.
fn contents(document: &Document) -> Markup {
    let mut anchors = Vec::new();
    let sections: Vec<(String, &str)> = document
        .all_blocks()
        .filter_map(|block| match block {
            Block::Heading { level, text } => Some((*level, anchor(text, &mut anchors), text.as_str())),
            _ => None,
        })
        .filter(|(level, ..)| *level <= 2)
        .map(|(_, anchor, text)| (anchor, text))
        .collect();
    html! {
        @if sections.len() > 2 {
            nav aria-label="Sections" {
                ul {
                    @for (anchor, text) in &sections { li { a href={ "#" (anchor) } { (Text(text)) } } }
                }
            }
        }
    }
}

/// What has been written so far, as far as names depend on it.
#[derive(Default)]
struct Page {
    /// Names of the sections so far.
    anchors: Vec<String>,
    figures: usize,
    flames: usize,
    tables: usize,
}

impl Page {
    /// What is looked up stands behind its heading until it is asked for.
    fn section(&mut self, blocks: &[Block]) -> io::Result<Markup> {
        let Some((Block::Heading { level, text }, rest)) = blocks.split_first() else {
            return Ok(html! { @for block in blocks { (self.block(block)?) } });
        };
        // A link to what is folded away unfolds it; one to the summary, which is always there, would not.
        let anchor = anchor(text, &mut self.anchors);
        let begins = |block: &Block| matches!(block, Block::Heading { level: ..=3, .. });
        let mut groups = Vec::new();
        for group in rest.chunk_by(|_, next| !begins(next)) {
            let (head, below) = match group {
                [head, below @ ..] if begins(head) => (Some(head), below),
                _ => (None, group),
            };
            let head = head.map(|head| self.block(head)).transpose()?;
            groups.push((head, below.iter().map(|block| self.block(block)).collect::<io::Result<Vec<_>>>()?));
        }
        Ok(html! {
            details.section {
                summary { (heading(*level, None, text)) }
                div.part id=(anchor) {
                    @for (head, below) in &groups {
                        @if let Some(head) = head { (head) }
                        @if !below.is_empty() { div.group { @for block in below { (block) } } }
                    }
                }
            }
        })
    }

    fn block(&mut self, block: &Block) -> io::Result<Markup> {
        Ok(match block {
            Block::Heading { level, text } => heading(*level, Some(&anchor(text, &mut self.anchors)), text),
            Block::Paragraph { text } => html! { p { (Text(text)) } },
            Block::List { items } => html! { ul { @for item in items { li { (Text(item)) } } } },
            Block::Table(table) => self.table(table),
            Block::Preformatted { caption, text } => preformatted(caption.as_deref(), text),
            Block::Figure(chart) => self.figure(chart)?,
            Block::Flame(flame) => self.flame_graph(flame)?,
            Block::Claims { claims } => html! { ul.claims { @for one in claims { (claim::claim(one)) } } },
            Block::Notice { severity, text } => html! {
                p class={ "notice " (severity) } role="note" { strong { (severity) } " " (Text(text)) }
            },
            Block::KeyValues { caption, pairs } => html! {
                div.pairs {
                    @if let Some(caption) = caption { p.caption { (Text(caption)) } }
                    dl {
                        @for (key, value) in pairs { div { dt { (Text(key)) } dd { (Text(value)) } } }
                    }
                }
            },
            Block::Folded { summary, blocks } => html! {
                details.fold {
                    summary { (Text(summary)) }
                    @for block in blocks { (self.block(block)?) }
                }
            },
        })
    }

    fn table(&mut self, table: &Table) -> Markup {
        self.tables += 1;
        let id = format!("table-{}", self.tables);
        let dense = (table.columns.len() > DENSE).then_some("dense");
        let of_words = table.columns.iter().any(|column| column.align == Align::Left);
        let place = if table.columns.len() > BESIDE || of_words { "alone" } else { "beside" };
        html! { div class={ "tabled " (place) } {
            // The caption stands outside the box that scrolls, so that it is never cut off.
            p.caption id=(id) { (Text(&table.caption)) }
            div.scroll role="region" aria-labelledby=(id) tabindex="0" {
                table class=[dense] aria-labelledby=(id) {
                    thead { (table_head(table)) }
                    tbody {
                        @for row in &table.rows {
                            @let is_followed = row.has_reference();
                            tr class=[is_followed.then_some("followed")] {
                                th scope="row" { (Text(&text::row_label(row))) }
                                @for (column, cell) in table.columns.iter().zip(&row.cells) {
                                    td class=[class(column.align)] { (value(cell)) }
                                }
                            }
                            @if is_followed {
                                tr.reference {
                                    th scope="row" { (Text(table.reference_label())) }
                                    @for (column, cell) in table.columns.iter().zip(&row.cells) {
                                        td class=[class(column.align)] { (reference(cell)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            @for note in text::missing_notes(table).iter().chain(&table.notes) { p.remark { (Text(note)) } }
        } }
    }

    fn figure(&mut self, chart: &Chart) -> io::Result<Markup> {
        self.figures += 1;
        let (legend, description) = (legend(chart), describe(chart));
        Ok(html! {
            figure.chart {
                figcaption { (Text(chart.title())) }
                @if !legend.is_empty() {
                    ul.legend {
                        @for (role, name) in &legend {
                            @let kind = if matches!(role, Role::Mark | Role::Ink) { "mark" } else { "swatch" };
                            li { span class=(kind) style={ "background:var(" (role.variable()) ")" } {} (Text(name)) }
                        }
                    }
                }
                @for (shape, name) in [(Shape::Wide, "wide"), (Shape::Narrow, "narrow")] {
                    @let drawing = svg::draw(chart, shape);
                    @let [title, words] = ["title", "desc"].map(|what| format!("figure-{}-{name}-{what}", self.figures));
                    svg class=(name) viewBox={ "0 0 " (drawing.width) " " (drawing.height) } role="img"
                        aria-labelledby={ (title) " " (words) } {
                        title id=(title) { (Text(chart.title())) }
                        desc id=(words) { (Text(&description)) }
                        (PreEscaped(drawing.elements.trim()))
                    }
                }
                (data(&format!("chart-{}.csv", self.figures), &csv::of_chart(chart)?, chart.title()))
            }
        })
    }

    /// A flame graph, in a frame of its own because it has a script.
    fn flame_graph(&mut self, flame: &Flame) -> io::Result<Markup> {
        let title = clean_line(&flame.title);
        let drawn = match &flame.before {
            None => flame::svg(&flame.profile, &clean(&flame.title)),
            Some(before) => {
                let change = ProfilePair {
                    old: &before.profile,
                    new: &flame.profile,
                    totals: (before.old_total, before.new_total),
                };
                flame::svg_of_change(&change, &before.unit, &clean(&flame.title))
            }
        };
        let drawn = match drawn {
            Ok(drawn) => drawn,
            Err(error) => return Ok(html! { p.remark { (title) ": " (Text(&error.to_string())) } }),
        };
        let height = flame::height(&drawn);
        self.flames += 1;
        Ok(html! {
            figure.flame {
                iframe title=(title) sandbox="allow-scripts" style={ "height:" (height) "px" }
                    src={ "data:image/svg+xml;base64," (BASE64_STANDARD.encode(drawn)) } {}
                figcaption {
                    "A click on a function shows it and what it calls; Search marks functions by name. "
                    @if flame.before.is_some() {
                        "Red: it takes more CPU time than before for what is carried, blue: less; the stronger, the more. \
                         Widths are the new run's: what only the old one has is not there."
                    } @else {
                        "Kernel: orange, BPF: aqua, processes: yellow and red."
                    }
                }
                (data(&format!("flame-{}.csv", self.flames), &csv::of_flame(flame)?, &flame.title))
            }
        })
    }
}

/// A link to what a picture shows, in the page itself.
fn data(file: &str, csv: &str, title: &str) -> Markup {
    html! {
        p.data {
            a download=(file) href={ "data:text/csv;charset=utf-8;base64," (BASE64_STANDARD.encode(csv)) } {
                "Data as CSV" span.hidden { ": " (Text(title)) }
            }
        }
    }
}

fn heading(level: u8, anchor: Option<&str>, text: &str) -> Markup {
    let text = Text(text);
    match level {
        0..=2 => html! { h2 id=[anchor] { (text) } },
        3 => html! { h3 id=[anchor] { (text) } },
        4 => html! { h4 id=[anchor] { (text) } },
        5 => html! { h5 id=[anchor] { (text) } },
        _ => html! { h6 id=[anchor] { (text) } },
    }
}

fn preformatted(caption: Option<&str>, text: &str) -> Markup {
    html! {
        figure.drawing {
            @if let Some(caption) = caption { figcaption { (Text(caption)) } }
            // The first line feed after <pre> is not part of its text.
            pre tabindex="0" role="region" aria-label=(Text(caption.unwrap_or("preformatted text"))) {
                "\n" (Verbatim(text.trim_end()))
            }
        }
    }
}

fn table_head(table: &Table) -> Markup {
    html! {
        tr {
            th scope="col" { (Text(&table.stub)) }
            @for column in &table.columns {
                th scope="col" class=[class(column.align)] {
                    (Text(&text::column_head(column)))
                    @if let Some(subhead) = text::subhead(&column.label) { " " span.sub { (Text(&subhead)) } }
                }
            }
        }
    }
}

fn class(align: Align) -> Option<&'static str> {
    match align {
        Align::Left => None,
        Align::Right => Some("number"),
    }
}

fn value(cell: &Cell) -> Markup {
    // A number is not broken into two lines.
    let unbroken = |words: String| words.replace(' ', "\u{a0}");
    match cell {
        Cell::Text(text) => html! { (Text(text)) },
        Cell::Missing { why } => html! { span title=(Text(why)) { (MISSING) } },
        Cell::Number(number) => html! {
            (unbroken(number.to_string()))
            @if let Some(words) = number.interval_words() {
                " " span.interval { (unbroken(words)) }
            }
        },
    }
}

/// What stands under a cell for others to compare with.
fn reference(cell: &Cell) -> String {
    match cell {
        Cell::Number(number) => number.reference_number().map_or_else(String::new, |number| number.to_string()),
        _ => String::new(),
    }
}

/// A name for `text` that no section before it has: letters, digits and hyphens.
fn anchor(text: &str, taken: &mut Vec<String>) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    let slug = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    let slug = if slug.is_empty() { "section".to_owned() } else { slug };
    let mut anchor = slug.clone();
    let mut count = 1;
    while taken.contains(&anchor) {
        count += 1;
        anchor = format!("{slug}-{count}");
    }
    taken.push(anchor.clone());
    anchor
}

/// What the chart's colours mean. Lines bear their names themselves, at their ends, where there is room.
fn legend(chart: &Chart) -> Vec<(Role, String)> {
    let name = |(i, name): (usize, &String)| (Role::Series(i), clean_line(name));
    match chart {
        Chart::Bars(bars) => {
            let referenced = |g: &BarGroup| g.bars.iter().flatten().any(|n| n.reference.is_some());
            let mark = bars.reference.as_ref().filter(|_| bars.groups.iter().any(referenced));
            let series: Vec<_> = bars.series.iter().enumerate().map(name).collect();
            series.into_iter().chain(mark.map(|m| (Role::Mark, clean_line(m)))).collect()
        }
        Chart::Stacked(stacked) => {
            stacked.parts.iter().enumerate().map(|(i, part)| (Role::Part(i), clean_line(part))).collect()
        }
        Chart::Layers(chart) => layers::legend(chart),
        Chart::Lines(Lines { lines, .. }) | Chart::Course(TimelineChart { lines, .. }) => {
            lines.iter().enumerate().map(|(i, l)| (Role::Series(i), clean_line(&l.label))).collect()
        }
        Chart::Scaling(scaling) => {
            let drawn = scaling.series.iter().enumerate().filter(|(_, series)| !series.points.is_empty());
            drawn.map(|(i, series)| (Role::Series(i), clean_line(&series.label))).collect()
        }
        Chart::Percentiles(percentiles) => {
            percentiles.lines.iter().enumerate().map(|(i, l)| (Role::Series(i), clean_line(&l.label))).collect()
        }
        Chart::Overview(overview) => overview.reference.iter().map(|m| (Role::Mark, clean_line(m))).collect(),
        Chart::Strips(strips) => {
            let is_marked = strips.rows.iter().any(|row| row.marks().next().is_some());
            let values = (0..strips.values.len()).map(|value| (Role::Value(value), clean_line(&strips.name(value))));
            values.chain(is_marked.then(|| (Role::Ink, "marked moment".to_owned()))).collect()
        }
    }
}

/// The chart's content in words, for readers who cannot see it.
fn describe(chart: &Chart) -> String {
    let mut words = String::new();
    let result = match chart {
        Chart::Bars(bars) => bars.groups.iter().try_for_each(|group| {
            bars.series.iter().zip(&group.bars).try_for_each(|(series, number)| {
                let Some(number) = number else { return Ok(()) };
                write!(words, "{}, {series}: {}", group.label, number.with_words())?;
                if let (Some(reference), Some(name)) = (number.reference_number(), &bars.reference) {
                    write!(words, ", {name} {reference}")?;
                }
                write!(words, ". ")
            })
        }),
        Chart::Stacked(stacked) => stacked.rows.iter().try_for_each(|row| {
            let parts = stacked.parts.iter().zip(&row.values).map(|(part, value)| format!("{part} {value:.1}"));
            write!(words, "{}: {}, {}. ", row.label, row.figure, parts.collect::<Vec<_>>().join(", "))
        }),
        Chart::Layers(chart) => write!(words, "{}", layers::words(chart)),
        Chart::Lines(lines) => lines.lines.iter().try_for_each(|line| {
            let values = || line.points.iter().map(|p| p.1);
            let (Some(low), Some(high)) = (values().reduce(f64::min), values().reduce(f64::max)) else { return Ok(()) };
            write!(words, "{}: {low:.0} to {high:.0}. ", line.label)
        }),
        Chart::Course(course) => course.lines.iter().try_for_each(|line| {
            course.phases.iter().try_for_each(|phase| {
                let inside = line.points.iter().filter(|point| (phase.from..phase.to).contains(&point.0));
                let values: Vec<f64> = inside.map(|point| point.1).collect();
                let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
                write!(words, "{}, {}: {}. ", line.label, phase.label, text::significant(mean))
            })
        }),
        Chart::Scaling(scaling) => scaling.series.iter().filter(|s| !s.points.is_empty()).try_for_each(|series| {
            let points = series.points.iter().map(|(x, number)| format!("{} with {x}", number.rounded().with_words()));
            write!(words, "{}: {}. ", series.label, points.collect::<Vec<_>>().join(", "))
        }),
        Chart::Percentiles(percentiles) => percentiles.lines.iter().try_for_each(|line| {
            let marks = line.marks.iter().filter_map(|m| Some(format!("{m} {}", text::significant(m.value?))));
            write!(words, "{}, {} values: {}. ", line.label, line.count, marks.collect::<Vec<_>>().join(", "))
        }),
        Chart::Strips(strips) => write!(words, "{}", strips::words(strips)),
        Chart::Overview(chart) => chart.rows.iter().try_for_each(|row| {
            chart.panels.iter().zip(&row.numbers).try_for_each(|(panel, number)| {
                let Some(number) = number else { return Ok(()) };
                write!(words, "{}, {panel}: {}", row.label, number.with_words())?;
                if let (Some(reference), Some(name)) = (number.reference_number(), &chart.reference) {
                    write!(words, ", {name} {reference}")?;
                }
                write!(words, ". ")
            })
        }),
    };
    debug_assert!(result.is_ok(), "writing to a string");
    let axis = match chart {
        Chart::Bars(c) => c.axis.to_string(),
        Chart::Stacked(c) | Chart::Layers(c) => c.axis.to_string(),
        Chart::Lines(Lines { y, .. }) | Chart::Course(TimelineChart { y, .. }) => with_unit(&y.quantity, Some(&y.unit)),
        Chart::Percentiles(c) => c.value.to_string(),
        Chart::Scaling(c) => c.y.to_string(),
        Chart::Strips(c) => format!("{} over {}", c.of, c.x),
        Chart::Overview(c) => c.title.clone(),
    };
    clean_line(&format!("{axis}. {words}"))
}
