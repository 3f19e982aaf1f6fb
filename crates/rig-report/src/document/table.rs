//! A table of results: rows of figures and words.

use rig_stats::sample::Bound;
use serde::{Deserialize, Serialize};

use super::{Label, Number};

/// A table of results. Each row has one cell for each column; the row's own label stands before them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub caption: String,
    /// Head of the column of row labels, e.g. `Metric`.
    pub stub: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// What the cells' reference values are called, e.g. `study`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<String>,
    /// Remarks under the table.
    pub notes: Vec<String>,
}

impl Table {
    /// An empty table.
    pub fn new(caption: impl Into<String>, stub: impl Into<String>) -> Self {
        Self {
            caption: caption.into(),
            stub: stub.into(),
            columns: Vec::new(),
            rows: Vec::new(),
            reference: None,
            notes: Vec::new(),
        }
    }

    /// Unit of the cell in `row` and column `column`, if it has one.
    pub fn unit<'a>(&'a self, row: &'a Row, column: usize) -> Option<&'a str> {
        let column = self.columns.get(column);
        if column.is_some_and(Column::is_unitless) {
            return None;
        }
        row.unit.as_deref().or_else(|| column?.unit.as_deref())
    }

    /// What writers call the reference values of this table.
    pub fn reference_label(&self) -> &str {
        self.reference.as_deref().unwrap_or("reference")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub label: Label,
    /// Unit of all numbers in the column, where the rows have none of their own. An empty one: the numbers have none in any row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unit: Option<String>,
    pub align: Align,
}

impl Column {
    /// A column of figures.
    pub fn number(label: Label, unit: Option<&str>) -> Self {
        Self { label, unit: unit.map(str::to_owned), align: Align::Right }
    }

    /// Whether its numbers have no unit even where the row has one, as ratios beside what they are ratios of.
    pub fn is_unitless(&self) -> bool {
        self.unit.as_deref() == Some("")
    }

    /// A column of words.
    pub fn text(label: Label) -> Self {
        Self { label, unit: None, align: Align::Left }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Align {
    Left,
    Right,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub label: String,
    /// Unit of all numbers in the row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unit: Option<String>,
    pub cells: Vec<Cell>,
}

impl Row {
    /// True when a cell of this row has a reference value.
    pub fn has_reference(&self) -> bool {
        self.cells.iter().any(|c| matches!(c, Cell::Number(Number { reference: Some(_), .. })))
    }

    /// True when a cell of this row has an interval.
    pub fn has_interval(&self) -> bool {
        self.cells.iter().any(|c| matches!(c, Cell::Number(Number { interval: Some(_), .. })))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    Text(String),
    Number(Number),
    /// No figure, and why not.
    Missing {
        why: String,
    },
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A figure without interval; a value that is not finite becomes [`Cell::Missing`].
    pub fn number(value: f64, decimals: u8) -> Self {
        Number::new(value, decimals).into()
    }

    pub fn missing(why: impl Into<String>) -> Self {
        Self::Missing { why: why.into() }
    }
}

impl From<Number> for Cell {
    fn from(number: Number) -> Self {
        match number {
            Number { bound: Some(Bound::Open), .. } => Self::missing("it is made of limits on both sides"),
            number if number.value.is_finite() => Self::Number(number),
            _ => Self::missing("not a finite number"),
        }
    }
}
