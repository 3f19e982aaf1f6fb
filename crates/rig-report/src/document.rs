//! What a report says, without how it looks: plain values that every writer understands.

mod number;
mod strips;
mod table;

use std::fmt;

use rig_stats::histogram::Histogram;
use rig_stats::units::counted;
use serde::{Deserialize, Serialize};

pub use number::{Interval, Number};
pub use rig_facts::claim::Verdict;
use rig_facts::record::Profile;
pub use rig_verdict::view::{Claim, Effect, Open};
pub use strips::{StripRow, StripSpan, Strips};
pub use table::{Align, Cell, Column, Row, Table};

/// A whole report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub title: String,
    /// What the reader came for, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub headline: Option<Headline>,
    /// Lines under the title: what was run, on which machine, in which state.
    pub summary: Vec<String>,
    /// The results at a glance: what a screen says.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lead: Vec<Block>,
    /// All results.
    pub blocks: Vec<Block>,
    /// What the reader looks up: doubts, single scenarios, environment, method. Pages fold its sections away.
    pub details: Vec<Block>,
    /// The same results for programs. Only the JSON writer shows it.
    pub data: serde_json::Value,
}

/// The question of a document and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headline {
    /// Where the title does not say it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub question: Option<String>,
    pub answer: String,
    /// Why the whole is to be doubted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub caution: Option<String>,
}

/// Claims that a brief report shows at most.
const BRIEF_CLAIMS: usize = 8;
/// Columns of a table that a brief report shows at most: what is wider than a screen is looked up.
const BRIEF_COLUMNS: usize = 4;

impl Document {
    /// All blocks in the order of reading; the blocks inside a fold follow it.
    pub fn all_blocks(&self) -> impl Iterator<Item = &Block> {
        self.outer_blocks().flat_map(Block::with_inner)
    }

    /// All blocks in the order of reading, without those inside folds.
    pub fn outer_blocks(&self) -> impl Iterator<Item = &Block> {
        self.lead.iter().chain(&self.blocks).chain(&self.details)
    }

    /// The report without what is looked up.
    #[must_use]
    pub fn without_details(mut self) -> Self {
        self.details.clear();
        self
    }

    /// What a screen says: the headline, the results at a glance, one line for each fold, and at the end `more`, where the rest
    /// is to be had.
    #[must_use]
    pub fn brief(mut self, more: &str) -> Self {
        self.summary.truncate(1);
        let mut lead = Vec::new();
        for mut block in self.lead {
            let mut left = 0;
            match &mut block {
                Block::Folded { blocks, .. } => blocks.clear(),
                Block::Table(table) if table.columns.len() > BRIEF_COLUMNS => {
                    let summary = format!("{}: a table of {} columns", table.caption, table.columns.len());
                    block = Block::Folded { summary, blocks: Vec::new() };
                }
                Block::Claims { claims } => {
                    left = claims.len().saturating_sub(BRIEF_CLAIMS);
                    *claims = of_each_verdict(std::mem::take(claims), BRIEF_CLAIMS);
                    claims.iter_mut().for_each(shorten);
                }
                _ => {}
            }
            lead.push(block);
            if left > 0 {
                lead.push(Block::Folded { summary: counted(left, "more claim", "more claims"), blocks: Vec::new() });
            }
        }
        self.lead = lead;
        self.blocks = vec![Block::paragraph(more)];
        self.details.clear();
        self
    }
}

/// So many of the claims in their order, the first ones of each verdict: the only one that holds is not to be missed.
fn of_each_verdict(claims: Vec<Claim>, most: usize) -> Vec<Claim> {
    let mut seen: Vec<(Verdict, usize)> = Vec::new();
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (place, claim) in claims.iter().enumerate() {
        let kind = match seen.iter().position(|(verdict, _)| *verdict == claim.verdict) {
            Some(kind) => kind,
            None => {
                seen.push((claim.verdict, 0));
                seen.len() - 1
            }
        };
        places.push((seen[kind].1, place));
        seen[kind].1 += 1;
    }
    places.sort_unstable();
    let kept: Vec<usize> = places.into_iter().take(most).map(|(_, place)| place).collect();
    claims.into_iter().enumerate().filter(|(place, _)| kept.contains(place)).map(|(_, claim)| claim).collect()
}

/// Leaves of a claim what it says and what was measured.
fn shorten(claim: &mut Claim) {
    claim.expression.clear();
    if let Some(effect) = claim.effect.as_ref().filter(|_| claim.open.is_none()) {
        claim.words = format!("{}, {}", effect.measured(), effect.claimed());
    }
}

/// One element of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "block")]
pub enum Block {
    /// Levels 2 to 6; the document's title is level 1.
    Heading {
        level: u8,
        text: String,
    },
    Paragraph {
        text: String,
    },
    List {
        items: Vec<String>,
    },
    Table(Table),
    /// Text whose line breaks and columns carry meaning, e.g. the drawing of a topology.
    Preformatted {
        caption: Option<String>,
        text: String,
    },
    Figure(Chart),
    Flame(Flame),
    Claims {
        claims: Vec<Claim>,
    },
    Notice {
        severity: Severity,
        text: String,
    },
    KeyValues {
        caption: Option<String>,
        pairs: Vec<(String, String)>,
    },
    /// What is told in one line unless the reader asks for it.
    Folded {
        summary: String,
        blocks: Vec<Block>,
    },
}

impl Block {
    /// The block, and what is folded into it.
    fn with_inner(&self) -> Vec<&Self> {
        match self {
            Self::Folded { blocks, .. } => [self].into_iter().chain(blocks.iter().flat_map(Self::with_inner)).collect(),
            _ => vec![self],
        }
    }

    pub fn heading(level: u8, text: impl Into<String>) -> Self {
        Self::Heading { level, text: text.into() }
    }

    pub fn paragraph(text: impl Into<String>) -> Self {
        Self::Paragraph { text: text.into() }
    }

    pub fn info(text: impl Into<String>) -> Self {
        Self::Notice { severity: Severity::Info, text: text.into() }
    }

    pub fn warning(text: impl Into<String>) -> Self {
        Self::Notice { severity: Severity::Warning, text: text.into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Info,
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "note",
            Self::Warning => "warning",
        })
    }
}

/// A short name with an optional long one: `A` and `Raw`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    pub head: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subhead: Option<String>,
}

impl Label {
    pub fn new(head: impl Into<String>) -> Self {
        Self { head: head.into(), subhead: None }
    }

    pub fn with_subhead(head: impl Into<String>, subhead: impl Into<String>) -> Self {
        Self { head: head.into(), subhead: Some(subhead.into()) }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subhead {
            Some(subhead) => write!(f, "{} {subhead}", self.head),
            None => f.write_str(&self.head),
        }
    }
}

/// A figure to be drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "chart")]
pub enum Chart {
    Bars(Bars),
    Stacked(Stacked),
    /// Of many parts, most of which not every bar has.
    Layers(Stacked),
    Lines(Lines),
    Course(TimelineChart),
    Percentiles(Percentiles),
    Scaling(Scaling),
    Strips(Strips),
    Overview(Overview),
}

impl Chart {
    pub fn title(&self) -> &str {
        match self {
            Self::Bars(c) => &c.title,
            Self::Stacked(c) | Self::Layers(c) => &c.title,
            Self::Lines(c) => &c.title,
            Self::Course(c) => &c.title,
            Self::Percentiles(c) => &c.title,
            Self::Scaling(c) => &c.title,
            Self::Strips(c) => &c.title,
            Self::Overview(c) => &c.title,
        }
    }
}

/// What an axis shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    pub quantity: String,
    pub unit: String,
}

impl Axis {
    pub fn new(quantity: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { quantity: quantity.into(), unit: unit.into() }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&with_unit(&self.quantity, Some(&self.unit)))
    }
}

/// Bars from zero, side by side in groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    pub title: String,
    pub axis: Axis,
    /// One name for each bar of a group.
    pub series: Vec<String>,
    pub groups: Vec<BarGroup>,
    /// What the bars' reference marks are called.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BarGroup {
    pub label: Label,
    /// One for each series; `None` leaves the place empty.
    pub bars: Vec<Option<Number>>,
}

/// What each of many carried and what it cost: bars from zero with their intervals, a panel with a scale of its own for each
/// quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub title: String,
    pub panels: Vec<Axis>,
    pub rows: Vec<OverviewRow>,
    /// What the reference marks are called.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverviewRow {
    pub label: Label,
    /// One for each panel.
    pub numbers: Vec<Option<Number>>,
}

/// Bars made of parts, one for each row, all on the scale from 0 to `limit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stacked {
    pub title: String,
    pub axis: Axis,
    pub limit: f64,
    pub parts: Vec<String>,
    pub rows: Vec<StackedRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StackedRow {
    pub label: Label,
    /// One for each part.
    pub values: Vec<f64>,
    /// What is written beside the bar; it need not be the sum of all parts.
    pub figure: Number,
}

/// Lines over a common horizontal axis; the vertical one begins at zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lines {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub label: String,
    /// In ascending order of x.
    pub points: Vec<(f64, f64)>,
}

/// Lines over time through the phases of a programme.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineChart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    /// Whether the vertical axis is logarithmic; otherwise it begins at zero.
    pub is_logarithmic: bool,
    pub lines: Vec<Line>,
    /// In their order.
    pub phases: Vec<PhaseSpan>,
}

/// A phase on the horizontal axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseSpan {
    pub label: String,
    pub from: f64,
    pub to: f64,
}

/// What a number of workers carries. Both axes are logarithmic, so that carrying twice as much with twice as many is a
/// straight line of the same slope everywhere, and systems of different magnitudes can be read in one picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<ScalingSeries>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScalingSeries {
    pub label: String,
    /// Others' figures, not of this run.
    pub published: bool,
    /// Both greater than 0, in ascending order of x.
    pub points: Vec<(f64, Number)>,
}

impl Scaling {
    /// These figures as bars, grouped by the number of workers.
    pub fn bars(&self) -> Bars {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut workers: Vec<f64> = points.map(|point| point.0).collect();
        workers.sort_by(f64::total_cmp);
        workers.dedup();
        let figure = |series: &ScalingSeries, at: f64| {
            series.points.iter().find(|(x, _)| *x == at).map(|(_, number)| number.rounded())
        };
        let group = |at: f64| BarGroup {
            label: Label::new(format!("{at}")),
            bars: self.series.iter().map(|series| figure(series, at)).collect(),
        };
        Bars {
            title: self.title.clone(),
            axis: self.y.clone(),
            series: self.series.iter().map(|series| series.label.clone()).collect(),
            groups: workers.into_iter().map(group).collect(),
            reference: None,
        }
    }
}

/// Where CPUs spent their time, as a picture of stacks; only pages show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flame {
    pub title: String,
    pub profile: Profile,
    /// What it is held against, by the colours.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<FlameBefore>,
}

/// An earlier profile of the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlameBefore {
    pub profile: Profile,
    /// CPU time that all samples of either stand for, in this unit.
    pub unit: String,
    pub old_total: f64,
    pub new_total: f64,
}

/// Distributions of a value that spans magnitudes, as HdrHistogram plots them: the value on a logarithmic axis against the
/// percentile, whose axis is logarithmic in the share that lies beyond it, so that 90, 99 and 99.9 are equally far apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    pub title: String,
    pub value: Axis,
    pub lines: Vec<Distribution>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub label: String,
    /// Values in it.
    pub count: u64,
    /// The percentiles that are written out.
    pub marks: Vec<Mark>,
    /// Percentile, less than 100, and value, greater than 0, in ascending order, as far as there are values enough.
    pub points: Vec<(f64, f64)>,
    /// All of it, in nanoseconds.
    pub histogram: Histogram,
}

/// One percentile of a distribution; no value where it has too few values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    pub percentile: f64,
    pub value: Option<f64>,
}

impl fmt::Display for Mark {
    /// Its name: `p99.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("p{}", self.percentile))
    }
}

/// `Throughput (Mbit/s)`, but `Avg. CPU %`, `connections (thousand)` and `CPUs with receive work`: what the label counts it says
/// itself.
pub fn with_unit(label: &str, unit: Option<&str>) -> String {
    let unit = unit.map(|unit| match unit.strip_suffix(label) {
        Some(rest) if rest.is_empty() || rest.ends_with(' ') => rest.trim_end(),
        _ => unit,
    });
    match unit {
        None | Some("") => label.to_owned(),
        Some(unit) if label.split_once(' ').is_some_and(|(first, _)| first == unit) => label.to_owned(),
        Some("%") => format!("{label} %"),
        Some(unit) => format!("{label} ({unit})"),
    }
}
