//! GitHub-flavoured Markdown (GFM specification 0.29).

use std::io;

use textwrap::core::display_width;

use super::build::seen;
use super::document::{Align, Block, Cell, Document, Headline, Severity, Table, Verdict};
use super::paint::TerminalStyle;
use super::text::{self, MISSING, clean, clean_line, pad, pad_left};
use super::text_chart;

/// Columns of the charts, which are code blocks.
const CHART_WIDTH: usize = 88;

pub fn write(document: &Document, out: &mut dyn io::Write) -> io::Result<()> {
    writeln!(out, "# {}", escape(&document.title))?;
    if let Some(Headline { question, answer, caution }) = &document.headline {
        caution.iter().try_for_each(|caution| writeln!(out, "\n> [!CAUTION]\n> {}", paragraph(caution)))?;
        question.iter().try_for_each(|question| writeln!(out, "\n*{}*", escape(question)))?;
        writeln!(out, "\n{}", bold(answer))?;
    }
    for line in &document.summary {
        writeln!(out, "\n{}", paragraph(line))?;
    }
    for block in document.outer_blocks() {
        writeln!(out)?;
        write_block(block, out)?;
    }
    Ok(())
}

fn write_block(block: &Block, out: &mut dyn io::Write) -> io::Result<()> {
    match block {
        Block::Heading { level, text } => {
            writeln!(out, "{} {}", "#".repeat(usize::from(*level).clamp(2, 6)), escape(text))
        }
        Block::Paragraph { text } => writeln!(out, "{}", paragraph(text)),
        Block::List { items } => items.iter().try_for_each(|item| writeln!(out, "- {}", paragraph(item))),
        Block::Table(table) => write_table(table, out),
        Block::Preformatted { caption, text } => {
            if let Some(caption) = caption {
                writeln!(out, "{}\n", bold(caption))?;
            }
            fenced(&clean(text), out)
        }
        Block::Figure(chart) => {
            writeln!(out, "{}\n", bold(chart.title()))?;
            let lines = text_chart::render(chart, CHART_WIDTH, TerminalStyle { enabled: false });
            fenced(&lines.iter().map(|l| l.trim_end()).collect::<Vec<_>>().join("\n"), out)
        }
        Block::Flame(flame) => writeln!(out, "{}: {}", bold(&flame.title), paragraph(text::FLAME)),
        Block::Claims { claims } => claims.iter().try_for_each(|claim| {
            let verdict = match (seen(claim), claim.verdict) {
                (Some(what), _) => format!("- {}", what.word()),
                (None, Verdict::Holds) => format!("- {} **{}**", text::sign(claim.verdict), claim.verdict),
                (None, Verdict::Refuted | Verdict::Undecided | Verdict::Differs) => {
                    format!("- {} ***{}***", text::sign(claim.verdict), claim.verdict)
                }
            };
            writeln!(out, "{verdict}: {}", paragraph(&claim.text))?;
            writeln!(out, "  <br>{}", paragraph(&claim.words))?;
            writeln!(out, "  <br>{}", code(&claim.expression))
        }),
        Block::Notice { severity, text } => {
            let kind = match severity {
                Severity::Info => "NOTE",
                Severity::Warning => "WARNING",
            };
            writeln!(out, "> [!{kind}]\n> {}", paragraph(text))
        }
        Block::KeyValues { caption, pairs } => {
            if let Some(caption) = caption {
                writeln!(out, "{}\n", bold(caption))?;
            }
            let rows = pairs.iter().map(|(key, value)| vec![escape(key), escape(value)]).collect::<Vec<_>>();
            grid(&[String::new(), String::new()], &[Align::Left, Align::Left], &rows, out)
        }
        Block::Folded { summary, blocks } => {
            writeln!(out, "{}", bold(summary))?;
            blocks.iter().try_for_each(|block| {
                writeln!(out)?;
                write_block(block, out)
            })
        }
    }
}

fn write_table(table: &Table, out: &mut dyn io::Write) -> io::Result<()> {
    writeln!(out, "{}\n", bold(&table.caption))?;
    let heads = table.columns.iter().map(|column| {
        let head = escape(&text::column_head(column));
        text::subhead(&column.label).map_or(head.clone(), |name| format!("{head} {}", escape(&name)))
    });
    let heads: Vec<String> = [escape(&table.stub)].into_iter().chain(heads).collect();
    let aligns: Vec<Align> = [Align::Left].into_iter().chain(table.columns.iter().map(|c| c.align)).collect();
    let mut rows = Vec::new();
    for row in &table.rows {
        let cells = (0..table.columns.len()).map(|i| row.cells.get(i).map_or(String::new(), cell));
        rows.push([escape(&text::row_label(row))].into_iter().chain(cells).collect());
        if row.has_reference() {
            let label = format!("*{}*", escape(table.reference_label()));
            let cells = (0..table.columns.len()).map(|i| row.cells.get(i).and_then(reference).unwrap_or_default());
            rows.push([label].into_iter().chain(cells).collect());
        }
    }
    grid(&heads, &aligns, &rows, out)?;
    for note in text::missing_notes(table).iter().chain(&table.notes) {
        writeln!(out, "\n{}", paragraph(note))?;
    }
    Ok(())
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => escape(text),
        Cell::Number(number) => number.with_words(),
        Cell::Missing { .. } => MISSING.to_owned(),
    }
}

fn reference(cell: &Cell) -> Option<String> {
    let Cell::Number(number) = cell else { return None };
    number.reference_number().map(|reference| format!("*{reference}*"))
}

/// A table whose source is aligned too.
fn grid(heads: &[String], aligns: &[Align], rows: &[Vec<String>], out: &mut dyn io::Write) -> io::Result<()> {
    let width = |i: usize| {
        rows.iter().map(|row| display_width(&row[i])).chain([display_width(&heads[i]), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).zip(aligns).map(|((cell, width), align)| match align {
            Align::Left => pad(cell, *width),
            Align::Right => pad_left(cell, *width),
        });
        format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
    };
    let rules = widths.iter().zip(aligns).map(|(width, align)| match align {
        Align::Left => "-".repeat(*width),
        Align::Right => format!("{}:", "-".repeat(width - 1)),
    });
    writeln!(out, "{}", line(heads))?;
    writeln!(out, "| {} |", rules.collect::<Vec<_>>().join(" | "))?;
    rows.iter().try_for_each(|row| writeln!(out, "{}", line(row)))
}

/// A code block whose fence is longer than any run of backticks in it.
fn fenced(text: &str, out: &mut dyn io::Write) -> io::Result<()> {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    writeln!(out, "{fence}text\n{}\n{fence}", text.trim_end())
}

/// A code span, delimited so that backticks in it are harmless.
fn code(text: &str) -> String {
    let text = clean_line(text);
    let ticks = "`".repeat(longest_run(&text) + 1);
    let blank = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{blank}{text}{blank}{ticks}")
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

fn bold(text: &str) -> String {
    format!("**{}**", escape(text))
}

/// [`escape`]d text that does not begin a list, heading or quotation by chance.
fn paragraph(text: &str) -> String {
    let escaped = escape(text);
    let digits = escaped.chars().take_while(char::is_ascii_digit).count();
    let ordered = digits > 0 && [". ", ") "].iter().any(|mark| escaped[digits..].starts_with(mark));
    if ordered {
        format!("{}\\{}", &escaped[..digits], &escaped[digits..])
    } else if escaped.starts_with(['#', '+', '-', '=']) {
        format!("\\{escaped}")
    } else {
        escaped
    }
}

/// The text on one line, with everything that GFM would read as markup taken literally.
fn escape(text: &str) -> String {
    let text = clean_line(text);
    let chars: Vec<char> = text.chars().collect();
    let mut escaped = String::with_capacity(text.len() + 8);
    for (i, &c) in chars.iter().enumerate() {
        let alphanumeric = |j: Option<usize>| j.and_then(|j| chars.get(j)).is_some_and(|c| c.is_alphanumeric());
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            // Only at the beginning it makes a quotation.
            '>' if escaped.trim_start().is_empty() => escaped.push_str("&gt;"),
            // Inside a word an underscore is no emphasis, and names such as rmem_max stay readable.
            '_' if alphanumeric(i.checked_sub(1)) && alphanumeric(Some(i + 1)) => escaped.push('_'),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}
