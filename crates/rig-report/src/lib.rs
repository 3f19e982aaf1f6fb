//! One document, many writers.
//!
//! A [`document::Document`] says what was found. [`write()`] turns it into text for a terminal, Markdown, one HTML file,
//! JSON, CSV or OpenMetrics; no writer computes a figure.
#![forbid(unsafe_code)]

pub mod build;
pub mod comparison;
mod csv;
pub mod document;
#[cfg(test)]
pub mod fixture;
mod html;
mod json;
mod markdown;
mod openmetrics;
mod paint;
pub mod readable;
pub mod series;
mod terminal;
mod text;
mod text_chart;

use std::fmt;
use std::io;
use std::str::FromStr;

use clap::ValueEnum;
use document::Document;
pub use html::{Shape, picture};

/// What a report is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Format {
    /// Tables and bars for a terminal
    Terminal,
    /// GitHub-flavoured Markdown
    Markdown,
    /// One HTML file that needs nothing else
    Html,
    /// Everything, for programs
    Json,
    /// One line for each table cell
    Csv,
    /// OpenMetrics text, for Prometheus
    Openmetrics,
}

impl Format {
    /// The usual ending of a file in this format, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Terminal => "txt",
            Self::Markdown => "md",
            Self::Html => "html",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Openmetrics => "prom",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Terminal => "terminal",
            Self::Markdown => "markdown",
            Self::Html => "html",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Openmetrics => "openmetrics",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no report format `{0}`; choose one of terminal, markdown, html, json, csv, openmetrics")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        <Self as ValueEnum>::from_str(name, true).map_err(|_| UnknownFormat(name.to_owned()))
    }
}

/// How to write for a terminal; the other formats do not depend on the place they are read at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Use colour and weight (ANSI escape sequences).
    pub colour: bool,
    /// Columns of the terminal; no line is longer, except in preformatted text. At least 40 are assumed.
    pub width: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { colour: false, width: 80 }
    }
}

/// Writes `document` to `out`.
///
/// # Errors
/// Those of `out`, unchanged: a reader that went away shows as [`io::ErrorKind::BrokenPipe`].
pub fn write(document: &Document, format: Format, options: Options, out: &mut dyn io::Write) -> io::Result<()> {
    let readable = || readable::document(document);
    match format {
        Format::Terminal => terminal::write(&readable(), options, out),
        Format::Markdown => markdown::write(&readable(), out),
        Format::Html => html::write(&readable(), out),
        Format::Json => json::write(document, out),
        Format::Csv => csv::write(document, out),
        Format::Openmetrics => openmetrics::write(document, out),
    }
}

#[cfg(test)]
mod tests;
