//! `netrig iperf3`: client and server against each other, and, where it is on PATH, against the original. All traffic is on loopback.

mod authenticated;
mod original;
mod own;
pub mod peers;
mod robust;

use std::collections::BTreeSet;

use serde_json::Value;

/// Paths of all members of a JSON text, each with its kind.
pub fn members(json: &Value) -> BTreeSet<String> {
    fn add(json: &Value, path: &str, found: &mut BTreeSet<String>) {
        let kind = match json {
            Value::Object(map) => {
                return map.iter().for_each(|(name, value)| add(value, &format!("{path}.{name}"), found));
            }
            Value::Array(items) => return items.iter().for_each(|item| add(item, &format!("{path}[]"), found)),
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "text",
        };
        found.insert(format!("{path}: {kind}"));
    }
    let mut found = BTreeSet::new();
    add(json, "", &mut found);
    found
}

/// The lines of a text that differ in figures alone look alike: numbers, units and names are masked, and intervals are as
/// many as the first of them.
pub fn masked(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut words: Vec<String> = Vec::new();
        for word in line.split_whitespace() {
            let word = word.trim_start_matches('[').trim_end_matches(']');
            let digits = word.chars().any(|c| c.is_ascii_digit());
            let unit = ["bits/sec", "Bytes", "Bytes/sec"].iter().any(|unit| word.ends_with(unit));
            let masked = match word {
                _ if digits => "#",
                _ if unit => "U",
                "bbr" | "cubic" | "reno" => "C",
                word => word,
            };
            // Columns: a number may fill its own.
            if !(masked == "#" && words.last().is_some_and(|last| last == "#")) {
                words.push(masked.to_owned());
            }
        }
        lines.push(words.join(" "));
    }
    lines.dedup();
    lines
}
