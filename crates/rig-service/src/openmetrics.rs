//! Metrics as OpenMetrics 1.0 text (<https://github.com/prometheus/OpenMetrics>, specification/OpenMetrics.md).

use std::collections::BTreeMap;
use std::fmt;

use rig_cli::visible::visible;

/// Metric families by name, each with its samples: the specification forbids to interleave families.
#[derive(Debug, Default)]
pub struct Exposition {
    families: BTreeMap<String, Family>,
}

#[derive(Debug)]
struct Family {
    kind: &'static str,
    unit: String,
    help: String,
    samples: Vec<(String, f64)>,
}

impl fmt::Display for Exposition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, family) in &self.families {
            writeln!(out, "# TYPE {name} {}", family.kind)?;
            if !family.unit.is_empty() {
                writeln!(out, "# UNIT {name} {}", family.unit)?;
            }
            writeln!(out, "# HELP {name} {}", escaped(&family.help))?;
            let suffix = match family.kind {
                "info" => "_info",
                "counter" => "_total",
                _ => "",
            };
            for (labels, value) in &family.samples {
                writeln!(out, "{name}{suffix}{{{labels}}} {value}")?;
            }
        }
        writeln!(out, "# EOF")
    }
}

impl Exposition {
    /// `kind` is one of the specification's types: `gauge`, `counter`, `info`; `unit` its base unit, or nothing.
    pub fn add(&mut self, kind: &'static str, name: &str, unit: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let name = if unit.is_empty() || name.ends_with(&format!("_{unit}")) {
            format!("netrig_{name}")
        } else {
            format!("netrig_{name}_{unit}")
        };
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let new = || Family { kind, unit: unit.to_owned(), help: help.to_owned(), samples: Vec::new() };
        self.families.entry(name).or_insert_with(new).samples.push((labels.join(","), value));
    }

    pub fn gauge(&mut self, name: &str, unit: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.add("gauge", name, unit, help, labels, value);
    }
}

/// Text in a label or a help line: backslash, quote and line feed are escaped, and what would act on a reader is visible.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            c => escaped.push(c),
        }
    }
    escaped
}
