//! Outputs by selectors: a line of names and one of values (`-o`), a line for each (`-k`), columns (`-O`).

use std::path::Path;

use rig_cli::mistakes;

use super::figures::Figures;
use super::options::{Layout, Options};
use super::selectors::{HEADING_LINES, SelectorIndex};

/// Groups of columns below each other.
const BLOCKS: usize = 4;

/// The selectors of a test, in blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Vec<Vec<SelectorIndex>>);

/// A file that `-o`, `-k` or `-O` names cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "Could not open output selection file '{0}': {1} (a list of selectors has a comma, and `-k '?'` names them all)"
)]
pub struct SelectionError(String, #[source] std::io::Error);

impl Selection {
    /// What the command line selects: nothing, the word `all`, a list, or a file with a line for each block.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn of(options: &Options) -> Result<Self, SelectionError> {
        let Some(text) = &options.selection else { return Ok(Self::of_test(options)) };
        if text.eq_ignore_ascii_case("all") {
            let blocks = [
                ("SOCKET_TYPE", "RESPONSE_SIZE"),
                ("LOCAL_CPU_UTIL", "TRANSPORT_MSS"),
                ("LOCAL_SEND_THROUGHPUT", "REMOTE_CORK"),
                ("LOCAL_SYSNAME", "COMMAND_LINE"),
            ];
            return Ok(Self(blocks.map(|(first, last)| SelectorIndex::range(first, last)).to_vec()));
        }
        if text.contains([',', ';']) || SelectorIndex::of(text).is_some() {
            return Ok(Self::of_list(text));
        }
        let content = mistakes::read_text(Path::new(text)).map_err(|error| SelectionError(text.clone(), error))?;
        let line = |line: &str| {
            let index = |name: &str| SelectorIndex::of(name.trim()).unwrap_or(SelectorIndex::none());
            line.split(',').map(index).collect()
        };
        Ok(Self(content.lines().take(BLOCKS).map(line).collect()))
    }

    fn of_list(text: &str) -> Self {
        let block = |block: &str| {
            block.split([',', ' ']).filter(|name| !name.is_empty()).filter_map(SelectorIndex::of).collect()
        };
        Self(text.split(';').map(block).filter(|block: &Vec<_>| !block.is_empty()).take(BLOCKS).collect())
    }

    /// What a test shows without a list.
    fn of_test(options: &Options) -> Self {
        let direction = options.direction;
        let sizes = match (direction.transmits, direction.receives) {
            (true, false) => "LSS_SIZE_END,RSR_SIZE_END,LOCAL_SEND_SIZE",
            (false, true) => "RSS_SIZE_END,LSR_SIZE_END,REMOTE_SEND_SIZE",
            _ => "LSS_SIZE_END,LSR_SIZE_END,RSR_SIZE_END,RSS_SIZE_END,REQUEST_SIZE,RESPONSE_SIZE",
        };
        let mut list = format!("{sizes},ELAPSED_TIME,THROUGHPUT,THROUGHPUT_UNITS");
        if options.cpu_usage.local || options.cpu_usage.remote {
            for side in ["LOCAL", "REMOTE"] {
                for part in [
                    "UTIL",
                    "PERCENT_USER",
                    "PERCENT_SYSTEM",
                    "PERCENT_IOWAIT",
                    "PERCENT_IRQ",
                    "PERCENT_SWINTR",
                    "METHOD",
                ] {
                    list += &format!(",{side}_CPU_{part}");
                }
            }
            list += ",LOCAL_SD,REMOTE_SD,SD_UNITS";
        }
        Self::of_list(&list)
    }

    /// Names in a list that are no selectors.
    pub fn unknown(options: &Options) -> Vec<String> {
        let Some(text) = options.selection.as_deref().filter(|text| text.contains([',', ';'])) else {
            return Vec::new();
        };
        let names = text.split([',', ';', ' ']).filter(|name| !name.is_empty());
        names.filter(|name| SelectorIndex::of(name).is_none()).map(str::to_owned).collect()
    }

    /// Whether latencies have to be measured for it.
    pub fn needs_latencies(&self) -> bool {
        self.0.iter().flatten().any(|selector| selector.is_latency())
    }

    /// The values, laid out.
    pub fn report(&self, layout: Layout, figures: &Figures<'_>) -> String {
        match layout {
            Layout::Csv => self.csv(figures),
            Layout::Keys => self.keys(figures),
            Layout::Classic | Layout::Columns => self.columns(figures),
        }
    }

    fn csv(&self, figures: &Figures<'_>) -> String {
        let all = || self.0.iter().flatten();
        let line = |cells: Vec<String>| cells.join(",") + "\n";
        if self.0.is_empty() {
            return String::new();
        }
        let heading = line(all().map(|selector| selector.heading().join(" ")).collect());
        let values = line(all().map(|selector| selector.value(figures)).collect());
        if figures.options.headers { heading + &values } else { values }
    }

    fn keys(&self, figures: &Figures<'_>) -> String {
        let line = |selector: &SelectorIndex| format!("{}={}\n", selector.name(), selector.value(figures));
        self.0.iter().flatten().map(line).collect()
    }

    fn columns(&self, figures: &Figures<'_>) -> String {
        let block = |selectors: &Vec<SelectorIndex>| {
            let mut lines = vec![String::new(); HEADING_LINES + 1];
            for selector in selectors {
                let value = selector.value(figures);
                let heading = selector.heading();
                // netperf counts a byte for the end of the value.
                let widest = heading.iter().map(|word| word.len()).chain([value.len() + 1]).max().unwrap_or(0);
                for (line, text) in
                    lines.iter_mut().zip((0..HEADING_LINES).map(|at| heading.get(at).copied().unwrap_or("")))
                {
                    *line += &format!("{text:<width$}", width = widest + 1);
                }
                lines[HEADING_LINES] += &format!("{value:<width$}", width = widest + 1);
            }
            let shown = if figures.options.headers { &lines[..] } else { &lines[HEADING_LINES..] };
            shown.iter().map(|line| format!("{line}\n")).collect::<String>()
        };
        self.0.iter().map(block).collect::<Vec<_>>().join("\n")
    }
}
