//! Figures as people read them: in the unit that leaves few digits, and with as many digits as the interval allows. What
//! programs read keeps the units that it always had.

use crate::document::{Bars, Block, Cell, Chart, Document, Interval, Number, Table};

/// The document in the units and digits of people.
pub fn document(document: &Document) -> Document {
    let mut document = document.clone();
    let parts = [&mut document.lead, &mut document.blocks, &mut document.details];
    parts.into_iter().flatten().for_each(block);
    document
}

/// `36.7 Gbit/s ±1.2 %` of a number of Mbit/s.
pub fn figure(number: &Number, unit: &str) -> String {
    let (unit, factor) = scale(unit, number.value, number.half() > 0.0).unwrap_or((unit, 1.0));
    let mut number = *number;
    rescale(&mut number, factor);
    let interval = number.interval_words().map(|words| format!(" {words}"));
    let blank = if unit.is_empty() { "" } else { " " };
    format!("{number}{blank}{unit}{}", interval.unwrap_or_default())
}

fn block(block: &mut Block) {
    match block {
        Block::Table(one) => table(one),
        Block::Figure(one) => chart(one),
        Block::Folded { blocks, .. } => blocks.iter_mut().for_each(self::block),
        Block::Heading { .. }
        | Block::Paragraph { .. }
        | Block::List { .. }
        | Block::Preformatted { .. }
        | Block::Flame(_)
        | Block::Claims { .. }
        | Block::Notice { .. }
        | Block::KeyValues { .. } => {}
    }
}

/// Scales the numbers of a table. A row with a unit of its own has a scale of its own; other rows, and columns that never have a
/// unit, are scaled by column. Rows, or columns, of one kind of rate get the same scale where that leaves them readable, so that
/// what was sent can be compared with what was received.
fn table(table: &mut Table) {
    fn number(cell: &mut Cell) -> Option<&mut Number> {
        match cell {
            Cell::Number(number) => Some(number),
            Cell::Text(_) | Cell::Missing { .. } => None,
        }
    }
    let mut rows = Vec::new();
    let mut columns: Vec<Vec<&mut Number>> = table.columns.iter().map(|_| Vec::new()).collect();
    for row in &mut table.rows {
        let has_unit = row.unit.is_some();
        let mut own = Vec::new();
        for ((column, numbers), cell) in table.columns.iter().zip(&mut columns).zip(&mut row.cells) {
            let line = if has_unit && !column.is_unitless() { &mut own } else { numbers };
            line.extend(number(cell));
        }
        if has_unit {
            rows.push((&mut row.unit, own));
        }
    }
    alike(rows);
    alike(table.columns.iter_mut().map(|column| &mut column.unit).zip(columns).collect());
}

/// What a line of rates has to be at least in the unit of the largest of its kind to share it: of bits what leaves one zero before
/// three digits, of packets and connections, which are of many kinds, what leaves none. Times span magnitudes and share none.
fn least(unit: &str) -> Option<f64> {
    match unit {
        "Mbit/s" | "bit/s" => Some(0.1),
        "1/s" => Some(1.0),
        _ => None,
    }
}

/// Scales lines of numbers, of which each has a unit.
fn alike(lines: Vec<(&mut Option<String>, Vec<&mut Number>)>) {
    let size = |numbers: &[&mut Number]| numbers.iter().map(|number| number.value.abs()).fold(0.0, f64::max);
    let sizes: Vec<(Option<String>, f64)> =
        lines.iter().map(|(unit, numbers)| ((*unit).clone(), size(numbers))).collect();
    for (unit, numbers) in lines {
        let own = size(&numbers);
        let largest = sizes.iter().filter(|(other, _)| other == unit).map(|(_, size)| *size).fold(own, f64::max);
        let shares = |unit: &str| {
            let (_, factor) = scale(unit, largest, false)?;
            Some(own == 0.0 || own * factor >= least(unit)?)
        };
        let by = if unit.as_deref().and_then(shares) == Some(true) { largest } else { own };
        together(unit, by, numbers);
    }
}

fn chart(chart: &mut Chart) {
    match chart {
        Chart::Bars(one) => bars(one),
        Chart::Overview(overview) => {
            for (i, panel) in overview.panels.iter_mut().enumerate() {
                let numbers = overview.rows.iter_mut().filter_map(|row| row.numbers.get_mut(i)?.as_mut());
                of_axis(&mut panel.unit, numbers.collect());
            }
        }
        Chart::Lines(crate::document::Lines { y, lines, .. })
        | Chart::Course(crate::document::TimelineChart { y, lines, .. }) => {
            let values = || lines.iter().flat_map(|line| &line.points).map(|point| point.1);
            if let Some((unit, factor)) = scale(&y.unit, values().fold(0.0, f64::max), false) {
                y.unit = unit.to_owned();
                lines.iter_mut().flat_map(|line| &mut line.points).for_each(|point| point.1 *= factor);
            }
        }
        Chart::Stacked(stacked) | Chart::Layers(stacked) => {
            together(&mut None, 0.0, stacked.rows.iter_mut().map(|row| &mut row.figure).collect());
        }
        // Their axes are logarithmic, with prefixes of their own.
        Chart::Percentiles(_) | Chart::Scaling(_) | Chart::Strips(_) => {}
    }
}

pub(crate) fn bars(bars: &mut Bars) {
    let numbers = bars.groups.iter_mut().flat_map(|group| group.bars.iter_mut().flatten());
    of_axis(&mut bars.axis.unit, numbers.collect());
}

fn of_axis(unit: &mut String, numbers: Vec<&mut Number>) {
    let mut own = Some(std::mem::take(unit));
    let largest = numbers.iter().map(|number| number.value.abs()).fold(0.0, f64::max);
    together(&mut own, largest, numbers);
    *unit = own.unwrap_or_default();
}

/// Gives numbers of one unit the same scale, that of `size`, and those of one magnitude as many digits.
fn together(unit: &mut Option<String>, size: f64, mut numbers: Vec<&mut Number>) {
    let is_estimated = numbers.iter().any(|number| number.half() > 0.0);
    let scaled = unit.as_deref().and_then(|unit| scale(unit, size, is_estimated));
    let factor = scaled.map_or(1.0, |(_, factor)| factor);
    if let Some((scaled, _)) = scaled {
        *unit = Some(scaled.to_owned());
    }
    let counts: Vec<bool> = numbers.iter().map(|number| factor == 1.0 && number.is_count()).collect();
    numbers.iter_mut().for_each(|number| rescale(number, factor));
    let all: Vec<Number> = numbers.iter().map(|number| **number).collect();
    for (number, _) in numbers.into_iter().zip(counts).filter(|(_, is_count)| !is_count) {
        number.decimals = number.decimals_among(&all);
    }
}

/// The unit in which a value of `unit` has few digits before the point, and what the value is multiplied by. What was counted is
/// exact to its last digit and stays whole, unless its interval says that the last digits mean nothing.
pub(crate) fn scale(unit: &str, value: f64, is_estimated: bool) -> Option<(&'static str, f64)> {
    let ladder: &[(f64, &'static str, f64)] = match unit {
        "Mbit/s" => &[(1e3, "Gbit/s", 1e-3)],
        "bit/s" => &[(1e9, "Gbit/s", 1e-9), (1e6, "Mbit/s", 1e-6), (1e3, "kbit/s", 1e-3)],
        "1/s" => &[(1e7, "million/s", 1e-6), (1e4, "thousand/s", 1e-3)],
        "µs" => &[(1e6, "s", 1e-6), (1e4, "ms", 1e-3)],
        "connections" if is_estimated => &[(1e6, "million connections", 1e-6), (1e4, "thousand connections", 1e-3)],
        "packets" if is_estimated => &[(1e6, "million packets", 1e-6), (1e4, "thousand packets", 1e-3)],
        "segments" if is_estimated => &[(1e6, "million segments", 1e-6), (1e4, "thousand segments", 1e-3)],
        "starts" if is_estimated => &[(1e6, "million starts", 1e-6), (1e4, "thousand starts", 1e-3)],
        _ => &[],
    };
    ladder.iter().find(|(least, ..)| value.abs() >= *least).map(|(_, unit, factor)| (*unit, *factor))
}

fn rescale(number: &mut Number, factor: f64) {
    if factor != 1.0 {
        // In another unit it is no count any more: 12.0 thousand stands beside 12.6.
        number.decimals = number.decimals.max(1);
    }
    number.value *= factor;
    number.interval = number.interval.map(|i| Interval { low: i.low * factor, high: i.high * factor });
    number.reference = number.reference.map(|reference| reference * factor);
    *number = number.rounded();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: f64, half: f64, unit: &str) -> String {
        let interval = (half > 0.0).then_some(Interval { low: value - half, high: value + half });
        figure(&Number::new(value, 1).with_interval(interval), unit)
    }

    #[test]
    fn three_digits_where_the_interval_allows_no_more() {
        assert_eq!(shown(36_671.4, 0.0, "Mbit/s"), "36.7 Gbit/s");
        assert_eq!(shown(36_671.4, 400.0, "Mbit/s"), "36.7 Gbit/s ±1.1 %");
        assert_eq!(shown(941.234, 0.12, "Mbit/s"), "941.2 Mbit/s ±0.01 %");
        assert_eq!(shown(36.71, 20.0, "%"), "37 % ±54 %");
        assert_eq!(shown(0.012_34, 0.0, "µs"), "0.0123 µs");
        assert_eq!(shown(0.0, 0.0, "µs"), "0 µs");
        assert_eq!(shown(941.234_567, 0.000_001, "Mbit/s"), "941.2 Mbit/s");
    }

    #[test]
    fn units_are_those_that_leave_few_digits() {
        assert_eq!(shown(12_594.2, 0.0, "1/s"), "12.6 thousand/s");
        assert_eq!(shown(9_594.2, 0.0, "1/s"), "9594 1/s");
        assert_eq!(shown(15_000.0, 0.0, "µs"), "15.0 ms");
        assert_eq!(shown(2_500_000.0, 0.0, "µs"), "2.50 s");
        assert_eq!(shown(3.41, 0.0, ""), "3.41");
    }

    #[test]
    fn counts_with_an_interval_have_no_digits_that_mean_nothing() {
        let count = |value: f64, half: f64| {
            let interval = Interval { low: value - half, high: value + half };
            figure(&Number::new(value, 0).with_interval(Some(interval)), "connections")
        };
        assert_eq!(count(452_905.0, 17_210.0), "453 thousand connections ±3.8 %");
        assert_eq!(count(7_949_000.0, 300_000.0), "7.95 million connections ±3.8 %");
        assert_eq!(count(12_345.0, 0.2), "12.35 thousand connections");
        assert_eq!(count(9_876.0, 400.0), "9876 connections ±4.1 %");
        assert_eq!(shown(452_905.0, 0.0, "connections"), "452905 connections");
        assert_eq!(count(452_905.0, 0.0), "452905 connections");
    }

    /// A ratio beside figures of a unit is none of that unit.
    #[test]
    fn columns_that_never_have_a_unit_are_not_scaled_with_the_row() {
        let mut one = Table::new("t", "s");
        let column = |unit| crate::document::Column::number(crate::document::Label::new("A"), unit);
        one.columns = vec![column(None), column(Some(""))];
        one.rows = vec![row(Some("Mbit/s"), [Cell::number(36_671.4, 1), Cell::number(1.234_5, 3)])];
        assert_eq!((one.unit(&one.rows[0], 0), one.unit(&one.rows[0], 1)), (Some("Mbit/s"), None));
        table(&mut one);
        assert_eq!(texts(&one), [(Some("Gbit/s"), vec!["36.7".into(), "1.23".into()])]);
    }

    fn texts(table: &Table) -> Vec<(Option<&str>, Vec<String>)> {
        let text = |cell: &Cell| if let Cell::Number(n) = cell { n.to_string() } else { String::new() };
        table.rows.iter().map(|row| (row.unit.as_deref(), row.cells.iter().map(text).collect())).collect()
    }

    fn row(unit: Option<&str>, cells: impl IntoIterator<Item = Cell>) -> crate::document::Row {
        crate::document::Row { label: "r".into(), unit: unit.map(str::to_owned), cells: cells.into_iter().collect() }
    }

    #[test]
    fn rates_that_are_compared_have_one_unit() {
        let mut one = Table::new("t", "s");
        one.columns = vec![crate::document::Column::number(crate::document::Label::new("A"), None)];
        let rows = [
            ("1/s", 12_600.0),
            ("1/s", 983.0),
            ("Mbit/s", 1_020.0),
            ("Mbit/s", 981.0),
            ("Mbit/s", 0.0),
            ("Mbit/s", 12.0),
            ("µs", 15_000.0),
            ("µs", 2_000.0),
        ];
        one.rows = rows.map(|(unit, value)| row(Some(unit), [Cell::number(value, 1)])).into();
        table(&mut one);
        let found: Vec<_> =
            texts(&one).into_iter().map(|(unit, texts)| format!("{} {}", texts[0], unit.unwrap())).collect();
        assert_eq!(
            found,
            [
                "12.6 thousand/s",
                "983 1/s",
                "1.02 Gbit/s",
                "0.981 Gbit/s",
                "0 Gbit/s",
                "12.0 Mbit/s",
                "15.0 ms",
                "2000 µs"
            ]
        );
        let mut one = Table::new("t", "s");
        let column = |unit| crate::document::Column::number(crate::document::Label::new("A"), Some(unit));
        one.columns = vec![column("1/s"), column("1/s")];
        one.rows = vec![row(None, [Cell::number(12_000.0, 0), Cell::number(9_000.0, 0)])];
        table(&mut one);
        let units: Vec<_> = one.columns.iter().map(|column| column.unit.as_deref()).collect();
        assert_eq!(
            (units, texts(&one)),
            (vec![Some("thousand/s"); 2], vec![(None, vec!["12.0".into(), "9.00".into()])])
        );
    }

    #[test]
    fn numbers_of_one_magnitude_have_the_same_digits() {
        let column = |numbers: &[(f64, f64)]| {
            let mut one = Table::new("t", "s");
            one.columns = vec![crate::document::Column::number(crate::document::Label::new("A"), Some("%"))];
            let cell = |&(value, half): &(f64, f64)| {
                let interval = (half > 0.0).then_some(Interval { low: value - half, high: value + half });
                row(None, [Number::new(value, 1).with_interval(interval).into()])
            };
            one.rows = numbers.iter().map(cell).collect();
            table(&mut one);
            texts(&one).into_iter().map(|(_, texts)| texts[0].clone()).collect::<Vec<_>>()
        };
        // Held against itself, known well, nearly the same, less well, and hardly.
        let mixed = [
            (100.0, 0.0),
            (100.2, 0.3),
            (99.97, 0.3),
            (131.4, 4.5),
            (97.21, 0.02),
            (94.6, 0.9),
            (40.0, 30.0),
            (9.212, 0.001),
        ];
        assert_eq!(column(&mixed), ["100", "100", "100", "131", "97.2", "94.6", "40", "9.212"]);
        assert_eq!(column(&[(100.0, 0.0), (100.2, 0.3), (97.2, 1.0)]), ["100.0", "100.2", "97.2"]);
        assert_eq!(column(&[(100.0, 0.0), (97.2, 1.0), (45.1, 2.0)]), ["100.0", "97.2", "45.1"]);
        assert_eq!(column(&[(100.0, 0.0), (120.0, 0.0), (99.9, 0.0)]), ["100", "120", "99.9"]);
        assert_eq!(column(&[(100.0, 0.0), (97.0, 0.0), (100.0, 0.0)]), ["100.0", "97.0", "100.0"]);
        assert_eq!(column(&[(17.91, 0.0), (8.1, 0.0)]), ["17.9", "8.10"]);
    }

    /// What was counted has no digits after the point, and a row has one unit.
    #[test]
    fn a_row_has_one_unit_and_counts_stay_whole() {
        let mut one = Table::new("t", "s");
        let column = || crate::document::Column::number(crate::document::Label::new("A"), None);
        one.columns = vec![column(), column()];
        let row = |unit: &str, values: [f64; 2], decimals| crate::document::Row {
            label: "r".into(),
            unit: Some(unit.into()),
            cells: values.map(|value| Cell::number(value, decimals)).into(),
        };
        one.rows = vec![row("Mbit/s", [36_671.4, 98.73], 1), row("segments", [12_345.0, 7.0], 0)];
        table(&mut one);
        let texts = |i: usize| -> Vec<String> {
            let cells = one.rows[i].cells.iter();
            cells.map(|cell| if let Cell::Number(n) = cell { n.to_string() } else { String::new() }).collect()
        };
        assert_eq!((one.rows[0].unit.as_deref(), texts(0)), (Some("Gbit/s"), vec!["36.7".into(), "0.0987".into()]));
        assert_eq!((one.rows[1].unit.as_deref(), texts(1)), (Some("segments"), vec!["12345".into(), "7".into()]));
    }
}
