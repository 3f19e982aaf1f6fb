//! Text for a terminal of a given width.

use std::io;

use comfy_table::{
    Attribute, Cell as TextCell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width,
};
use textwrap::core::display_width;

use super::Options;
use super::build::seen;
use super::document::{Align, Block, Cell, Claim, Document, Headline, Number, Row, Severity, Table, Verdict};
use super::paint::{Colour, TerminalStyle};
use super::text::{self, MISSING, clean, clean_line, pad};
use super::text_chart;

const RULE: LineStyle = LineStyle::none().fill('─').junction('─');
const STYLE: TableStyle = TableStyle::new().top_border(RULE).header_separator(RULE).bottom_border(RULE);
/// Blanks between columns: one before each cell's text, and one for the style's junction.
const PADDING: usize = 2;
/// Heads are wrapped at the first of these widths with which the table fits.
const HEADS: [usize; 3] = [24, 16, LEAST_HEAD];
const LEAST_HEAD: usize = 10;
/// A head higher than this is no longer read at a glance: the long names go below the table.
const HEAD_LINES: usize = 4;
/// The least a column of words is given.
const TEXT: usize = 16;

pub fn write(document: &Document, options: Options, out: &mut dyn io::Write) -> io::Result<()> {
    let width = usize::from(options.width.max(40));
    let mut terminal = Terminal { out, width, paint: TerminalStyle { enabled: options.colour }, names: String::new() };
    terminal.title(document)?;
    let mut above: Option<&Block> = None;
    for block in document.outer_blocks() {
        let is_line = |block: &Block| match block {
            Block::Notice { .. } => true,
            Block::Folded { blocks, .. } => blocks.is_empty(),
            _ => false,
        };
        if !(above.is_some_and(is_line) && is_line(block)) {
            writeln!(terminal.out)?;
        }
        terminal.block(block)?;
        above = Some(block);
    }
    Ok(())
}

struct Terminal<'a> {
    out: &'a mut dyn io::Write,
    width: usize,
    paint: TerminalStyle,
    /// The long column names that were listed last: neighbouring tables often share them.
    names: String,
}

impl Terminal<'_> {
    fn title(&mut self, document: &Document) -> io::Result<()> {
        let title = clean_line(&document.title);
        self.lines(&title, "", "", TerminalStyle::bold)?;
        if let Some(Headline { question, answer, caution }) = &document.headline {
            caution.iter().try_for_each(|caution| {
                let text = format!("caution: {}", clean_line(caution));
                self.lines(&text, "", "  ", |paint, line| paint.colour(Colour::Yellow, line))
            })?;
            question.iter().try_for_each(|question| self.plain(&clean_line(question), "", ""))?;
            self.lines(&clean_line(answer), "", "", TerminalStyle::bold)?;
        }
        for line in &document.summary {
            self.lines(&clean_line(line), "", "", |_, line| line.to_owned())?;
        }
        Ok(())
    }

    /// `text` wrapped, after `first` on its first line and `rest` on the others, each line styled.
    fn lines(
        &mut self,
        text: &str,
        first: &str,
        rest: &str,
        style: impl Fn(TerminalStyle, &str) -> String,
    ) -> io::Result<()> {
        let room = self.width.saturating_sub(display_width(first).max(display_width(rest))).max(8);
        for (i, line) in textwrap::wrap(text, room).iter().enumerate() {
            writeln!(self.out, "{}{}", if i == 0 { first } else { rest }, style(self.paint, line))?;
        }
        Ok(())
    }

    fn plain(&mut self, text: &str, first: &str, rest: &str) -> io::Result<()> {
        self.lines(text, first, rest, |_, line| line.to_owned())
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        match block {
            Block::Heading { level, text } => self.heading(*level, &clean_line(text)),
            Block::Paragraph { text } => self.plain(&clean_line(text), "", ""),
            Block::List { items } => items.iter().try_for_each(|item| self.plain(&clean_line(item), "- ", "  ")),
            Block::Table(table) => self.table(table),
            Block::Preformatted { caption, text } => {
                if let Some(caption) = caption {
                    self.caption(caption)?;
                }
                clean(text).trim_end().lines().try_for_each(|line| match is_columns(line) {
                    true => writeln!(self.out, "{line}"),
                    false => self.plain(line, "", "  "),
                })
            }
            Block::Figure(chart) => {
                self.caption(chart.title())?;
                let lines = text_chart::render(chart, self.width, self.paint);
                lines.iter().try_for_each(|line| writeln!(self.out, "{}", line.trim_end()))
            }
            Block::Flame(flame) => self.plain(&format!("{}: {}", clean_line(&flame.title), text::FLAME), "", "  "),
            Block::Claims { claims } => claims.iter().try_for_each(|claim| self.claim(claim)),
            Block::Notice { severity, text } => {
                let colour = match severity {
                    Severity::Info => Colour::Cyan,
                    Severity::Warning => Colour::Yellow,
                };
                let text = format!("{severity}: {}", clean_line(text));
                self.lines(&text, "", "  ", |paint, line| paint.colour(colour, line))
            }
            Block::KeyValues { caption, pairs } => {
                if let Some(caption) = caption {
                    self.caption(caption)?;
                }
                self.pairs(pairs)
            }
            Block::Folded { summary, blocks } => {
                self.plain(&clean_line(summary), "+ ", "  ")?;
                blocks.iter().try_for_each(|block| {
                    writeln!(self.out)?;
                    self.block(block)
                })
            }
        }
    }

    fn heading(&mut self, level: u8, text: &str) -> io::Result<()> {
        self.lines(text, "", "", TerminalStyle::bold)?;
        if level <= 2 {
            writeln!(self.out, "{}", self.paint.dim(&"═".repeat(display_width(text).min(self.width))))?;
        }
        Ok(())
    }

    fn caption(&mut self, caption: &str) -> io::Result<()> {
        self.lines(&clean_line(caption), "", "", TerminalStyle::bold)
    }

    fn claim(&mut self, claim: &Claim) -> io::Result<()> {
        let colour = match claim.verdict {
            Verdict::Holds => Colour::Green,
            Verdict::Refuted => Colour::Red,
            Verdict::Undecided | Verdict::Differs => Colour::Yellow,
        };
        let verdict = match seen(claim) {
            Some(what) => format!("· {:<9}", what.word()),
            None => format!("{} {:<9}", text::sign(claim.verdict), claim.verdict),
        };
        let indent = " ".repeat(verdict.chars().count() + 1);
        let first = format!("{} ", self.paint.colour(colour, &verdict));
        // The escape sequences of `first` take no columns, so the wrapping is done on its plain form.
        let room = self.width.saturating_sub(indent.len()).max(8);
        for (i, line) in textwrap::wrap(&clean_line(&claim.text), room).iter().enumerate() {
            writeln!(self.out, "{}{line}", if i == 0 { &first } else { &indent })?;
        }
        for detail in [&claim.words, &claim.expression].into_iter().filter(|detail| !detail.is_empty()) {
            self.lines(&clean_line(detail), &indent, &indent, TerminalStyle::dim)?;
        }
        Ok(())
    }

    fn pairs(&mut self, pairs: &[(String, String)]) -> io::Result<()> {
        let keys: Vec<String> = pairs.iter().map(|(key, _)| clean_line(key)).collect();
        let widest = keys.iter().map(|k| display_width(k)).max().unwrap_or(0).min(self.width / 2);
        for (key, (_, value)) in keys.iter().zip(pairs) {
            let first = format!("{}  ", pad(&text::shorten(key, widest), widest));
            self.plain(&clean_line(value), &first, &" ".repeat(widest + 2))?;
        }
        Ok(())
    }

    fn table(&mut self, table: &Table) -> io::Result<()> {
        let layout = Layout::new(table, self.width);
        let parts = layout.parts.len();
        for (i, columns) in layout.parts.iter().enumerate() {
            let mut caption = clean_line(&table.caption);
            if parts > 1 {
                caption = format!("{caption} ({} of {parts})", i + 1);
            }
            self.caption(&caption)?;
            let drawn = self.draw(table, &layout, columns);
            writeln!(self.out, "{drawn}")?;
            if i + 1 < parts {
                writeln!(self.out)?;
            }
        }
        if !layout.subheads {
            let names = table.columns.iter().filter_map(|c| Some((&c.label.head, text::subhead(&c.label)?)));
            let names: Vec<String> = names.map(|(head, name)| format!("{} {name}", clean_line(head))).collect();
            let names = names.join(" · ");
            if names != self.names {
                self.lines(&names, " ", " ", TerminalStyle::dim)?;
                self.names = names;
            }
        }
        for note in text::missing_notes(table).iter().chain(&table.notes) {
            self.lines(&clean_line(note), " ", "   ", TerminalStyle::dim)?;
        }
        Ok(())
    }

    fn draw(&self, table: &Table, layout: &Layout, columns: &[usize]) -> String {
        let mut drawn = comfy_table::Table::new();
        drawn.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic).set_width(self.width as u16);
        if self.paint.enabled {
            drawn.enforce_styling()
        } else {
            drawn.force_no_tty()
        };
        let head = |text: String| TextCell::new(text).add_attribute(Attribute::Bold);
        let heads = columns.iter().map(|&i| {
            let column = &table.columns[i];
            let subhead = text::subhead(&column.label).filter(|_| layout.subheads);
            let lines = [Some(text::column_head(column)), subhead];
            head(lines.into_iter().flatten().collect::<Vec<_>>().join("\n"))
        });
        drawn.set_header([head(clean_line(&table.stub))].into_iter().chain(heads).collect::<Vec<_>>());
        for row in &table.rows {
            let value = |i: usize| TextCell::new(cell_text(row.cells.get(i)));
            drawn.add_row([TextCell::new(text::row_label(row))].into_iter().chain(columns.iter().map(|&i| value(i))));
            let mut extra = |label: &str, text: fn(&Number) -> Option<String>| {
                let cells: Vec<_> =
                    columns.iter().map(|&i| number(row, i).and_then(text).unwrap_or_default()).collect();
                if cells.iter().any(|c| !c.is_empty()) {
                    let cells = [label.to_owned()].into_iter().chain(cells);
                    drawn.add_row(cells.map(|c| TextCell::new(c).add_attribute(Attribute::Dim)));
                }
            };
            extra("", interval_text);
            extra(&format!("  {}", clean_line(table.reference_label())), reference_text);
        }
        for (place, column) in drawn.column_iter_mut().enumerate() {
            let align = if place == 0 { Align::Left } else { table.columns[columns[place - 1]].align };
            column.set_padding((1, 0));
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
            let wish = if place == 0 { layout.stub } else { layout.columns[columns[place - 1]] };
            // Figures are never wrapped; words share what room is left.
            column.set_constraint(match wish {
                ColumnWidth { flexible: true, width, .. } => ColumnConstraint::LowerBoundary(fixed(width)),
                ColumnWidth { flexible: false, width, .. } => ColumnConstraint::Absolute(fixed(width)),
            });
        }
        drawn.trim_fmt()
    }
}

/// Whether the vertical alignment of a line carries meaning: it is part of a drawing, or has blanks that make columns. netperf's
/// banner, a sentence among columns, is no such line.
fn is_columns(line: &str) -> bool {
    line.starts_with(' ') || line.contains("  ") || line.contains(['│', '─'])
}

/// With the blank before the text.
fn fixed(width: usize) -> Width {
    Width::Fixed((width + 1) as u16)
}

/// How wide a column should be; a flexible one takes more where there is room.
#[derive(Debug, Clone, Copy)]
struct ColumnWidth {
    width: usize,
    flexible: bool,
    head_lines: usize,
}

/// Which columns go side by side.
#[derive(Debug)]
struct Layout {
    stub: ColumnWidth,
    columns: Vec<ColumnWidth>,
    /// Whether the columns' long names stand in the head, or in a line below.
    subheads: bool,
    parts: Vec<Vec<usize>>,
}

impl Layout {
    fn new(table: &Table, width: usize) -> Self {
        let stub = stub_width(table, width);
        let room = width.saturating_sub(stub.width + PADDING);
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let wishes = |limit, subheads| all.iter().map(|&i| wish(table, i, limit, subheads, room)).collect::<Vec<_>>();
        for (limit, subheads) in HEADS.into_iter().map(|limit| (limit, true)).chain([(LEAST_HEAD, false)]) {
            let columns = wishes(limit, subheads);
            let low = columns.iter().all(|w| w.head_lines <= HEAD_LINES);
            if low && columns.iter().map(|w| w.width + PADDING).sum::<usize>() <= room {
                return Self { stub, columns, subheads, parts: vec![all] };
            }
        }
        let columns = wishes(LEAST_HEAD, true);
        let parts = split(&columns, room);
        Self { stub, columns, subheads: true, parts }
    }
}

/// Fills parts from the left, then evens them out so that the last is not a lone column.
fn split(columns: &[ColumnWidth], room: usize) -> Vec<Vec<usize>> {
    let fits = |part: &[usize]| part.iter().map(|&i| columns[i].width + PADDING).sum::<usize>() <= room;
    let fill = |most: usize| {
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for i in 0..columns.len() {
            match parts.last_mut() {
                Some(part) if part.len() < most && fits(&[part.as_slice(), &[i]].concat()) => part.push(i),
                _ => parts.push(vec![i]),
            }
        }
        parts
    };
    let greedy = fill(usize::MAX);
    let even = fill(columns.len().div_ceil(greedy.len().max(1)));
    if even.len() == greedy.len() { even } else { greedy }
}

fn stub_width(table: &Table, width: usize) -> ColumnWidth {
    let rows = table.rows.iter().flat_map(|row| {
        let reference = row.has_reference().then(|| format!("  {}", clean_line(table.reference_label())));
        [Some(text::row_label(row)), reference]
    });
    let texts = rows.flatten().chain([clean_line(&table.stub)]);
    let longest = texts.map(|t| display_width(&t)).max().unwrap_or(0);
    ColumnWidth { width: longest.min(width / 3), flexible: false, head_lines: 1 }
}

fn wish(table: &Table, column: usize, limit: usize, subheads: bool, room: usize) -> ColumnWidth {
    let label = &table.columns[column];
    let heads = [Some(text::column_head(label)), text::subhead(&label.label).filter(|_| subheads)];
    let heads: Vec<String> = heads.into_iter().flatten().collect();
    let wrapped = |head: &String| longest_word(head).max(display_width(head).min(limit));
    let mut width = heads.iter().map(wrapped).max().unwrap_or(0);
    let mut flexible = false;
    for row in &table.rows {
        match row.cells.get(column) {
            Some(Cell::Number(n)) => {
                let texts = [Some(n.to_string()), interval_text(n), reference_text(n)];
                width = texts.into_iter().flatten().map(|t| display_width(&t)).fold(width, usize::max);
            }
            Some(Cell::Text(words)) => {
                let words = clean_line(words);
                flexible |= display_width(&words) > TEXT;
                width = width.max(display_width(&words).min(TEXT));
            }
            Some(Cell::Missing { .. }) | None => width = width.max(display_width(MISSING)),
        }
    }
    let width = width.min(room.saturating_sub(PADDING)).max(1);
    let head_lines = heads.iter().map(|head| textwrap::wrap(head, width).len()).sum();
    ColumnWidth { width, flexible, head_lines }
}

fn longest_word(text: &str) -> usize {
    text.split_whitespace().map(display_width).max().unwrap_or(0)
}

fn cell_text(cell: Option<&Cell>) -> String {
    match cell {
        Some(Cell::Text(text)) => clean_line(text),
        Some(Cell::Number(number)) => number.to_string(),
        Some(Cell::Missing { .. }) => MISSING.to_owned(),
        None => String::new(),
    }
}

fn number(row: &Row, column: usize) -> Option<&Number> {
    match row.cells.get(column) {
        Some(Cell::Number(number)) => Some(number),
        _ => None,
    }
}

fn interval_text(number: &Number) -> Option<String> {
    number.interval_words()
}

fn reference_text(number: &Number) -> Option<String> {
    number.reference_number().map(|reference| reference.to_string())
}
