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
    let (unit, factor) = scale(unit, number.value).unwrap_or((unit, 1.0));
    let mut number = *number;
    rescale(&mut number, factor);
    let interval = number.interval.map(|i| format!(" {}", i.describe(number.value, number.decimals)));
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

/// Rows with a unit of their own each have their scale, the others that of their column.
fn table(table: &mut Table) {
    fn number(cell: &mut Cell) -> Option<&mut Number> {
        match cell {
            Cell::Number(number) => Some(number),
            Cell::Text(_) | Cell::Missing { .. } => None,
        }
    }
    for row in table.rows.iter_mut().filter(|row| row.unit.is_some()) {
        together(&mut row.unit, row.cells.iter_mut().filter_map(number).collect());
    }
    for (i, column) in table.columns.iter_mut().enumerate() {
        let rows = table.rows.iter_mut().filter(|row| row.unit.is_none());
        together(&mut column.unit, rows.filter_map(|row| number(row.cells.get_mut(i)?)).collect());
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
        | Chart::Course(crate::document::Course { y, lines, .. }) => {
            let values = || lines.iter().flat_map(|line| &line.points).map(|point| point.1);
            if let Some((unit, factor)) = scale(&y.unit, values().fold(0.0, f64::max)) {
                y.unit = unit.to_owned();
                lines.iter_mut().flat_map(|line| &mut line.points).for_each(|point| point.1 *= factor);
            }
        }
        Chart::Stacked(stacked) | Chart::Layers(stacked) => {
            stacked.rows.iter_mut().for_each(|row| rescale(&mut row.figure, 1.0));
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
    together(&mut own, numbers);
    *unit = own.unwrap_or_default();
}

/// Gives numbers of one unit the same scale.
fn together(unit: &mut Option<String>, numbers: Vec<&mut Number>) {
    let largest = numbers.iter().map(|number| number.value.abs()).fold(0.0, f64::max);
    let scaled = unit.as_deref().and_then(|unit| scale(unit, largest));
    let factor = scaled.map_or(1.0, |(_, factor)| factor);
    if let Some((scaled, _)) = scaled {
        *unit = Some(scaled.to_owned());
    }
    numbers.into_iter().for_each(|number| rescale(number, factor));
}

/// The unit in which a value of `unit` has few digits before the point, and what the value is multiplied by.
fn scale(unit: &str, value: f64) -> Option<(&'static str, f64)> {
    let ladder: &[(f64, &'static str, f64)] = match unit {
        "Mbit/s" => &[(1e3, "Gbit/s", 1e-3)],
        "bit/s" => &[(1e9, "Gbit/s", 1e-9), (1e6, "Mbit/s", 1e-6), (1e3, "kbit/s", 1e-3)],
        "1/s" => &[(1e7, "million/s", 1e-6), (1e4, "thousand/s", 1e-3)],
        "µs" => &[(1e6, "s", 1e-6), (1e4, "ms", 1e-3)],
        _ => &[],
    };
    ladder.iter().find(|(least, ..)| value.abs() >= *least).map(|(_, unit, factor)| (*unit, *factor))
}

fn rescale(number: &mut Number, factor: f64) {
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
        assert_eq!(shown(941.234_567, 0.000_001, "Mbit/s"), "941.2 Mbit/s ±0.0 %");
    }

    #[test]
    fn units_are_those_that_leave_few_digits() {
        assert_eq!(shown(12_594.2, 0.0, "1/s"), "12.6 thousand/s");
        assert_eq!(shown(9_594.2, 0.0, "1/s"), "9594 1/s");
        assert_eq!(shown(15_000.0, 0.0, "µs"), "15.0 ms");
        assert_eq!(shown(2_500_000.0, 0.0, "µs"), "2.50 s");
        assert_eq!(shown(3.41, 0.0, ""), "3.41");
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
