//! One line for each table cell, each percentile of a distribution, each point of a line over time, each span and mark of a
//! strip and each claim: the long form that every data tool reads without reshaping.

use std::borrow::Cow;
use std::io;

use rig_cli::visible::visible;
use rig_stats::sample::Bound;

use super::document::{
    Axis, Block, Cell, Chart, Claim, Document, Flame, Line, Lines, Number, Percentiles, Strips, Table, TimelineChart,
};

const HEAD: [&str; 9] = ["table", "row", "column", "value", "low", "high", "unit", "reference", "note"];

pub fn write(document: &Document, out: &mut dyn io::Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    write_row(&mut csv, HEAD)?;
    for block in document.all_blocks() {
        match block {
            Block::Table(table) => write_table(&mut csv, table)?,
            // The others show what stands in tables.
            Block::Figure(chart @ (Chart::Percentiles(_) | Chart::Lines(_) | Chart::Course(_) | Chart::Strips(_))) => {
                write_chart(&mut csv, chart)?;
            }
            Block::Claims { claims } => write_claims(&mut csv, claims)?,
            _ => {}
        }
    }
    csv.flush()
}

/// What one chart shows, as a file of its own.
pub fn of_chart(chart: &Chart) -> io::Result<String> {
    file(|csv| write_chart(csv, chart))
}

/// The folded stacks of a flame graph, as a file of its own.
pub fn of_flame(flame: &Flame) -> io::Result<String> {
    file(|csv| write_flame(csv, flame))
}

fn file(write: impl FnOnce(&mut csv::Writer<&mut dyn io::Write>) -> io::Result<()>) -> io::Result<String> {
    let mut text = Vec::new();
    let mut csv = csv::Writer::from_writer(&mut text as &mut dyn io::Write);
    write_row(&mut csv, HEAD)?;
    write(&mut csv)?;
    csv.flush()?;
    drop(csv);
    String::from_utf8(text).map_err(io::Error::other)
}

/// Functions from the outermost to the innermost, with semicolons between them, stand in the row's place. Of a change, both
/// runs' samples.
fn write_flame(csv: &mut csv::Writer<&mut dyn io::Write>, flame: &Flame) -> io::Result<()> {
    let before = flame.before.as_ref().map(|before| ("old samples", &before.profile));
    let own = if before.is_some() { "new samples" } else { "samples" };
    for (column, profile) in before.into_iter().chain([(own, &flame.profile)]) {
        for (stack, count) in &profile.stacks {
            write_row(csv, [&flame.title, stack, column, &count.to_string(), "", "", "samples", "", ""])?;
        }
    }
    Ok(())
}

fn write_chart(csv: &mut csv::Writer<&mut dyn io::Write>, chart: &Chart) -> io::Result<()> {
    match chart {
        Chart::Percentiles(chart) => write_percentiles(csv, chart),
        Chart::Lines(Lines { title, x, y, lines }) | Chart::Course(TimelineChart { title, x, y, lines, .. }) => {
            write_lines(csv, title, (x, y), lines)
        }
        Chart::Strips(chart) => write_strips(csv, chart),
        Chart::Bars(chart) => chart.groups.iter().try_for_each(|group| {
            let label = group.label.to_string();
            chart.series.iter().zip(&group.bars).filter_map(|(series, bar)| Some((series, bar.as_ref()?))).try_for_each(
                |(series, number)| write_number(csv, &chart.title, &label, series, &chart.axis.unit, number),
            )
        }),
        Chart::Overview(chart) => chart.rows.iter().try_for_each(|row| {
            let label = row.label.to_string();
            chart.panels.iter().zip(&row.numbers).filter_map(|(panel, n)| Some((panel, n.as_ref()?))).try_for_each(
                |(panel, number)| write_number(csv, &chart.title, &label, &panel.quantity, &panel.unit, number),
            )
        }),
        Chart::Stacked(chart) | Chart::Layers(chart) => chart.rows.iter().try_for_each(|row| {
            let label = row.label.to_string();
            chart.parts.iter().zip(&row.values).try_for_each(|(part, value)| {
                write_number(csv, &chart.title, &label, part, &chart.axis.unit, &Number::new(*value, 1))
            })
        }),
        Chart::Scaling(chart) => chart.series.iter().try_for_each(|series| {
            series.points.iter().try_for_each(|(x, number)| {
                write_number(csv, &chart.title, &series.label, &x.to_string(), &chart.y.unit, number)
            })
        }),
    }
}

fn write_number(
    csv: &mut csv::Writer<&mut dyn io::Write>,
    title: &str,
    row: &str,
    column: &str,
    unit: &str,
    number: &Number,
) -> io::Result<()> {
    let [value, low, high, reference, note] = fields(number);
    write_row(csv, [title, row, column, &value, &low, &high, unit, &reference, &note])
}

/// Value, ends of the interval, reference, and what is to be said of it.
fn fields(n: &Number) -> [String; 5] {
    let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    [
        n.value.to_string(),
        number(n.interval.filter(|_| !n.bound.is_some_and(Bound::is_open_below)).map(|i| i.low)),
        number(n.interval.filter(|_| !n.bound.is_some_and(Bound::is_open_above)).map(|i| i.high)),
        number(n.reference),
        n.bound.map_or(String::new(), |bound| match bound {
            Bound::AtLeast => "at least: the value is a limit only".to_owned(),
            Bound::AtMost => "at most: the value is a limit only".to_owned(),
            Bound::Open => "made of limits on both sides: says nothing".to_owned(),
        }),
    ]
}

fn write_table(csv: &mut csv::Writer<&mut dyn io::Write>, table: &Table) -> io::Result<()> {
    for row in &table.rows {
        for (i, (column, cell)) in table.columns.iter().zip(&row.cells).enumerate() {
            let unit = || table.unit(row, i).unwrap_or_default().to_owned();
            let [value, low, high, unit, reference, note] = match cell {
                Cell::Text(text) => {
                    [text.clone(), String::new(), String::new(), String::new(), String::new(), String::new()]
                }
                Cell::Missing { why } => {
                    [String::new(), String::new(), String::new(), unit(), String::new(), why.clone()]
                }
                Cell::Number(n) => {
                    let [value, low, high, reference, note] = fields(n);
                    [value, low, high, unit(), reference, note]
                }
            };
            let column = column.label.to_string();
            let record = [&table.caption, &row.label, &column, &value, &low, &high, &unit, &reference, &note];
            write_row(csv, record)?;
        }
    }
    Ok(())
}

/// The written percentiles, the number of values, and the whole histogram as text.
fn write_percentiles(csv: &mut csv::Writer<&mut dyn io::Write>, chart: &Percentiles) -> io::Result<()> {
    for line in &chart.lines {
        let mut write = |column: &str, value: &str, unit: &str, note: &str| {
            write_row(csv, [&chart.title, &line.label, column, value, "", "", unit, "", note])
        };
        for mark in &line.marks {
            let value = mark.value.map_or(String::new(), |v| v.to_string());
            let note = if mark.value.is_none() { "too few values" } else { "" };
            write(&mark.to_string(), &value, &chart.value.unit, note)?;
        }
        write("values", &line.count.to_string(), "", "")?;
        let text = serde_json::to_value(&line.histogram)?;
        let format = "nanoseconds, HdrHistogram's compressed V2 format in base64";
        write("histogram", text.as_str().unwrap_or_default(), "", format)?;
    }
    Ok(())
}

/// The moment of each point stands in the column's place.
fn write_lines(
    csv: &mut csv::Writer<&mut dyn io::Write>,
    title: &str,
    (x, y): (&Axis, &Axis),
    lines: &[Line],
) -> io::Result<()> {
    let note = format!("column: {x}");
    for line in lines {
        for (at, value) in &line.points {
            let (at, value) = (format!("{at:.6}"), value.to_string());
            write_row(csv, [title, &line.label, &at, &value, "", "", &y.unit, "", &note])?;
        }
    }
    Ok(())
}

/// From when to when a row had a value stands where its limits would; of a mark, the moment is the value.
fn write_strips(csv: &mut csv::Writer<&mut dyn io::Write>, chart: &Strips) -> io::Result<()> {
    let note = format!("low to high: {}", chart.x);
    for row in &chart.rows {
        for span in chart.spans(row) {
            let (from, to) = (format!("{:.6}", span.from), format!("{:.6}", span.to));
            let value = &chart.values[span.value];
            write_row(csv, [&chart.title, &row.label, &chart.of, value, &from, &to, "", "", &note])?;
        }
        for mark in row.marks() {
            let at = format!("{mark:.6}");
            let record = [&chart.title, &row.label, "mark", &at, "", "", &chart.x.unit, "", &chart.x.quantity];
            write_row(csv, record)?;
        }
    }
    Ok(())
}

fn write_claims(csv: &mut csv::Writer<&mut dyn io::Write>, claims: &[Claim]) -> io::Result<()> {
    for claim in claims {
        let verdict = claim.verdict.to_string();
        for (column, value, note) in
            [("verdict", &verdict, &claim.words), ("expression", &claim.expression, &String::new())]
        {
            write_row(csv, ["claims", &claim.text, column, value, "", "", "", "", note])?;
        }
    }
    Ok(())
}

/// A line whose cells are text and numbers and nothing else: what a spreadsheet would run as a formula, or a terminal obey, is
/// only shown.
pub(super) fn write_row<W: io::Write, T: AsRef<str>>(
    csv: &mut csv::Writer<W>,
    cells: impl IntoIterator<Item = T>,
) -> io::Result<()> {
    for cell in cells {
        csv.write_field(harmless(cell.as_ref()).as_ref()).map_err(into_io)?;
    }
    csv.write_record(None::<&[u8]>).map_err(into_io)
}

/// An apostrophe before what spreadsheets take for a formula, as they themselves mark text
/// (<https://owasp.org/www-community/attacks/CSV_Injection>); numbers stay numbers.
fn harmless(cell: &str) -> Cow<'_, str> {
    const FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];
    let cell_is_formula = cell.starts_with(FORMULA) && cell.parse::<f64>().is_err();
    let cell = visible(cell);
    if cell_is_formula { Cow::Owned(format!("'{cell}")) } else { cell }
}

fn into_io(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
