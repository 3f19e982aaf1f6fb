//! One HTML file that needs nothing else: no network, light and dark, desktop, phone and paper. The page has no script; a
//! flame graph has one to zoom and search, in a frame of its own that can reach nothing else.

mod course;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod parse;
mod percentiles;
mod scaling;
mod svg;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;

use std::fmt::Write as _;
use std::io;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rig_study::flame;
use svg::{Role, Shape};

use super::document::{
    Align, BarGroup, Block, Cell, Chart, Claim, Course, Document, Flame, Lines, Number, Table, with_unit,
};
use super::text::{self, MISSING, clean, clean_line};

/// Tables of more columns are set closer.
const DENSE: usize = 8;

const STYLE: &str = include_str!("style.css");

pub fn write(document: &Document, out: &mut dyn io::Write) -> io::Result<()> {
    let mut page = Page { html: String::new(), anchors: Vec::new(), figures: 0, tables: 0 };
    page.head(document);
    for block in document.all_blocks() {
        page.block(block)?;
    }
    page.html.push_str("</main>\n</body>\n</html>\n");
    out.write_all(page.html.as_bytes())
}

/// Text for element content and for quoted attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

struct Page {
    html: String,
    /// Names of the sections so far.
    anchors: Vec<String>,
    figures: usize,
    tables: usize,
}

impl Page {
    fn push(&mut self, html: &str) {
        self.html.push_str(html);
        self.html.push('\n');
    }

    fn head(&mut self, document: &Document) {
        let title = escape(&clean_line(&document.title));
        self.push("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">");
        self.push("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
        self.push("<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"netrig\">");
        self.push(&format!("<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>"));
        self.push(&format!("<header>\n<h1>{title}</h1>"));
        for line in &document.summary {
            self.push(&format!("<p>{}</p>", escape(line)));
        }
        self.push("</header>");
        self.contents(document);
    }

    /// Links to the sections, where there are enough to get lost in.
    fn contents(&mut self, document: &Document) {
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
        if sections.len() > 2 {
            self.push("<nav aria-label=\"Sections\">\n<ul>");
            for (anchor, text) in sections {
                self.push(&format!("<li><a href=\"#{anchor}\">{}</a></li>", escape(text)));
            }
            self.push("</ul>\n</nav>");
        }
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        match block {
            Block::Heading { level, text } => {
                let level = (*level).clamp(2, 6);
                let anchor = anchor(text, &mut self.anchors);
                self.push(&format!("<h{level} id=\"{anchor}\">{}</h{level}>", escape(text)));
            }
            Block::Paragraph { text } => self.push(&format!("<p>{}</p>", escape(text))),
            Block::List { items } => {
                self.push("<ul>");
                for item in items {
                    self.push(&format!("<li>{}</li>", escape(item)));
                }
                self.push("</ul>");
            }
            Block::Table(table) => self.table(table),
            Block::Preformatted { caption, text } => self.preformatted(caption.as_deref(), text),
            Block::Figure(chart) => self.figure(chart)?,
            Block::Flame(flame) => self.flame(flame),
            Block::Claims { claims } => self.claims(claims),
            Block::Notice { severity, text } => {
                let text = escape(text);
                self.push(&format!(
                    "<p class=\"notice {severity}\" role=\"note\"><strong>{severity}</strong> {text}</p>"
                ));
            }
            Block::KeyValues { caption, pairs } => self.pairs(caption.as_deref(), pairs),
        }
        Ok(())
    }

    fn preformatted(&mut self, caption: Option<&str>, text: &str) {
        let label = escape(caption.unwrap_or("preformatted text"));
        self.push("<figure class=\"drawing\">");
        if caption.is_some() {
            self.push(&format!("<figcaption>{label}</figcaption>"));
        }
        let text = escape(text.trim_end());
        // The first line feed after <pre> is not part of its text.
        self.push(&format!("<pre tabindex=\"0\" role=\"region\" aria-label=\"{label}\">\n{text}</pre>\n</figure>"));
    }

    fn pairs(&mut self, caption: Option<&str>, pairs: &[(String, String)]) {
        if let Some(caption) = caption {
            self.push(&format!("<p class=\"caption\">{}</p>", escape(caption)));
        }
        self.push("<dl>");
        for (key, value) in pairs {
            self.push(&format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(key), escape(value)));
        }
        self.push("</dl>");
    }

    fn claims(&mut self, claims: &[Claim]) {
        self.push("<ul class=\"claims\">");
        for claim in claims {
            let verdict = claim.verdict;
            self.push(&format!(
                "<li class=\"{verdict}\"><span class=\"verdict\"><span aria-hidden=\"true\">{}</span> {verdict}</span>",
                text::sign(verdict)
            ));
            self.push(&format!("<div><p>{}</p>\n<p class=\"words\">{}</p>", escape(&claim.text), escape(&claim.words)));
            self.push(&format!("<p><code>{}</code></p></div></li>", escape(&claim.expression)));
        }
        self.push("</ul>");
    }

    fn table(&mut self, table: &Table) {
        self.tables += 1;
        let id = format!("table-{}", self.tables);
        // The caption stands outside the box that scrolls, so that it is never cut off.
        self.push(&format!("<p class=\"caption\" id=\"{id}\">{}</p>", escape(&table.caption)));
        self.push(&format!("<div class=\"scroll\" role=\"region\" aria-labelledby=\"{id}\" tabindex=\"0\">"));
        let dense = if table.columns.len() > DENSE { " class=\"dense\"" } else { "" };
        self.push(&format!("<table{dense} aria-labelledby=\"{id}\">\n<thead>\n<tr>"));
        self.push(&format!("<th scope=\"col\">{}</th>", escape(&table.stub)));
        for column in &table.columns {
            let subhead = text::subhead(&column.label);
            let subhead = subhead.map_or(String::new(), |s| format!(" <span class=\"sub\">{}</span>", escape(&s)));
            let head = escape(&text::column_head(column));
            self.push(&format!("<th scope=\"col\"{}>{head}{subhead}</th>", class(column.align)));
        }
        self.push("</tr>\n</thead>\n<tbody>");
        for row in &table.rows {
            let followed = row.has_reference();
            self.push(if followed { "<tr class=\"followed\">" } else { "<tr>" });
            self.push(&format!("<th scope=\"row\">{}</th>", escape(&text::row_label(row))));
            for (column, cell) in table.columns.iter().zip(&row.cells) {
                self.push(&format!("<td{}>{}</td>", class(column.align), cell_html(cell)));
            }
            self.push("</tr>");
            if followed {
                self.push("<tr class=\"reference\">");
                self.push(&format!("<th scope=\"row\">{}</th>", escape(table.reference_label())));
                for (column, cell) in table.columns.iter().zip(&row.cells) {
                    let reference = match cell {
                        Cell::Number(Number { reference: Some(r), decimals, .. }) => {
                            Number::new(*r, *decimals).to_string()
                        }
                        _ => String::new(),
                    };
                    self.push(&format!("<td{}>{reference}</td>", class(column.align)));
                }
                self.push("</tr>");
            }
        }
        self.push("</tbody>\n</table>\n</div>");
        for note in text::missing_notes(table).iter().chain(&table.notes) {
            self.push(&format!("<p class=\"remark\">{}</p>", escape(note)));
        }
    }

    fn flame(&mut self, flame: &Flame) {
        let title = escape(&clean_line(&flame.title));
        let drawn = match flame::svg(&flame.profile, &clean(&flame.title)) {
            Ok(drawn) => drawn,
            Err(error) => {
                return self.push(&format!("<p class=\"remark\">{title}: {}</p>", escape(&error.to_string())));
            }
        };
        let height = flame::height(&drawn);
        let picture = BASE64_STANDARD.encode(drawn);
        self.push("<figure class=\"flame\">");
        self.push(&format!(
            "<iframe title=\"{title}\" sandbox=\"allow-scripts\" style=\"height:{height}px\" \
             src=\"data:image/svg+xml;base64,{picture}\"></iframe>"
        ));
        self.push("<figcaption>A click on a function shows it and what it calls; Search marks functions by name. Kernel: orange, BPF: aqua, processes: yellow and red.</figcaption>\n</figure>");
    }

    fn figure(&mut self, chart: &Chart) -> io::Result<()> {
        self.figures += 1;
        self.push(&format!("<figure class=\"chart\">\n<figcaption>{}</figcaption>", escape(chart.title())));
        let legend = legend(chart);
        if !legend.is_empty() {
            self.push("<ul class=\"legend\">");
            for (role, name) in legend {
                let kind = if role == Role::Mark { "mark" } else { "swatch" };
                let variable = role.variable();
                let name = escape(&name);
                self.push(&format!(
                    "<li><span class=\"{kind}\" style=\"background:var({variable})\"></span>{name}</li>"
                ));
            }
            self.push("</ul>");
        }
        let title = escape(chart.title());
        let description = escape(&describe(chart));
        for (shape, name) in [(Shape::Wide, "wide"), (Shape::Narrow, "narrow")] {
            let drawing = svg::draw(chart, shape)?;
            let id = format!("figure-{}-{name}", self.figures);
            self.push(&format!(
                "<svg class=\"{name}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">",
                drawing.width, drawing.height
            ));
            self.push(&format!(
                "<title id=\"{id}-title\">{title}</title>\n<desc id=\"{id}-desc\">{description}</desc>"
            ));
            self.push(&format!("{}\n</svg>", drawing.elements.trim()));
        }
        self.push("</figure>");
        Ok(())
    }
}

fn class(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=\"number\"",
    }
}

fn cell_html(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => escape(text),
        Cell::Missing { why } => format!("<span title=\"{}\">{MISSING}</span>", escape(why)),
        Cell::Number(number) => match number.interval {
            Some(interval) => {
                let interval = interval.describe(number.value, number.decimals);
                let number = escape(&number.to_string()).replace(' ', "\u{a0}");
                format!("{number} <span class=\"interval\">{}</span>", interval.replace(' ', "\u{a0}"))
            }
            None => escape(&number.to_string()).replace(' ', "\u{a0}"),
        },
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
        Chart::Lines(Lines { lines, .. }) | Chart::Course(Course { lines, .. }) => {
            lines.iter().enumerate().map(|(i, l)| (Role::Series(i), clean_line(&l.label))).collect()
        }
        Chart::Scaling(scaling) => {
            let drawn = scaling.series.iter().enumerate().filter(|(_, series)| !series.points.is_empty());
            drawn.map(|(i, series)| (Role::Series(i), clean_line(&series.label))).collect()
        }
        Chart::Percentiles(percentiles) => {
            percentiles.lines.iter().enumerate().map(|(i, l)| (Role::Series(i), clean_line(&l.label))).collect()
        }
    }
}

/// The chart's content in words, for those who cannot see it.
fn describe(chart: &Chart) -> String {
    let mut words = String::new();
    let result = match chart {
        Chart::Bars(bars) => bars.groups.iter().try_for_each(|group| {
            bars.series.iter().zip(&group.bars).try_for_each(|(series, number)| {
                let Some(number) = number else { return Ok(()) };
                write!(words, "{}, {series}: {number}", group.label)?;
                if let Some(interval) = number.interval {
                    write!(words, " {}", interval.describe(number.value, number.decimals))?;
                }
                if let (Some(reference), Some(name)) = (number.reference, &bars.reference) {
                    write!(words, ", {name} {}", Number::new(reference, number.decimals))?;
                }
                write!(words, ". ")
            })
        }),
        Chart::Stacked(stacked) => stacked.rows.iter().try_for_each(|row| {
            let parts = stacked.parts.iter().zip(&row.values).map(|(part, value)| format!("{part} {value:.1}"));
            write!(words, "{}: {}, {}. ", row.label, row.figure, parts.collect::<Vec<_>>().join(", "))
        }),
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
            let points = series.points.iter().map(|(x, y)| format!("{y:.0} with {x}"));
            write!(words, "{}: {}. ", series.label, points.collect::<Vec<_>>().join(", "))
        }),
        Chart::Percentiles(percentiles) => percentiles.lines.iter().try_for_each(|line| {
            let marks = line.marks.iter().filter_map(|m| Some(format!("{m} {}", text::significant(m.value?))));
            write!(words, "{}, {} values: {}. ", line.label, line.count, marks.collect::<Vec<_>>().join(", "))
        }),
    };
    debug_assert!(result.is_ok(), "writing to a string");
    let axis = match chart {
        Chart::Bars(c) => c.axis.to_string(),
        Chart::Stacked(c) => c.axis.to_string(),
        Chart::Lines(Lines { y, .. }) | Chart::Course(Course { y, .. }) => with_unit(&y.quantity, Some(&y.unit)),
        Chart::Percentiles(c) => c.value.to_string(),
        Chart::Scaling(c) => c.y.to_string(),
    };
    clean_line(&format!("{axis}. {words}"))
}
