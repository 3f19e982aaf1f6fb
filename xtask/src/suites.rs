//! docs/SUITES.md: what a suite file may say, from its JSON Schema.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::root;

const PAGE: &str = "docs/SUITES.md";
const SCHEMA: &str = "docs/schema/suite.json";
const SUITES: &str = "suites";
/// Longer ones stand in the suites themselves.
const LONGEST_EXAMPLE: usize = 60;

/// The tables of a suite file in the order in which one writes them, each with its head in TOML; other tables follow by name.
const FIRST: [(&str, &str); 17] = [
    ("Defaults", "[defaults]"),
    ("Goal", "[defaults] confidence = { ... }"),
    ("Quick", "[quick]"),
    ("QuickSearch", "[quick.search]"),
    ("Testbed", "[testbed.NAME]"),
    ("Wire", "[testbed.NAME] or [[scenario]] wire = { ... }"),
    ("Scenario", "[[scenario]]"),
    ("Load", "[scenario.load], [defaults.load]"),
    ("LoadUnder", "[scenario.under.load]"),
    ("Datapath", "[[scenario.datapath]]"),
    ("Set", "[[scenario.set]]"),
    ("Phase", "[[scenario.phase]]"),
    ("Command", "[[scenario.phase.command]]"),
    ("Claim", "[[claim]]"),
    ("Answer", "[[answer]]"),
    ("AnswerPart", "[[answer.parts]]"),
    ("Table", "[[table]]"),
];

const INTRODUCTION: &str = "\
# Suite files

<!-- Written by `cargo xtask suites` from docs/schema/suite.json. Change the comments of the types that it follows from
(crates/rig-suite/src/suite). -->

Every key of a suite file, its type, what holds without it, and an example, from a suite that is built in where one has the key. A suite is a TOML file: `netrig show mine.toml` checks it,
`netrig run mine.toml` runs it. [HOWTO.md](HOWTO.md) has a small one, [suites/](../suites/) those that are built in. An editor that reads
`netrig schema suite > suite.schema.json` says the same while you write.

A key that is not marked *required* may be left out. Where only some tables or loads need it, the column says which. Keys that are not
here are refused.

";

pub fn write() -> Result<ExitCode> {
    let page = page()?;
    fs::write(root().join(PAGE), &page).with_context(|| format!("write {PAGE}"))?;
    let empty = empty_cells(&page);
    empty.iter().for_each(|fault| eprintln!("{fault}"));
    Ok(if empty.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is wrong with the page, in words.
pub fn faults() -> Result<Vec<String>> {
    let there = fs::read_to_string(root().join(PAGE)).unwrap_or_default();
    let page = page()?;
    let stale = (there != page).then(|| format!("{PAGE} is not what {SCHEMA} says: cargo xtask suites"));
    Ok(stale.into_iter().chain(empty_cells(&page)).collect())
}

/// The keys of which the page leaves something open, each with what its type's comment lacks.
fn empty_cells(page: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut section = "";
    for line in page.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        let Some(row) = line.strip_prefix("| `").and_then(|row| row.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = row.split(" | ").map(str::trim).collect();
        let lacks = [
            ("name", "give it one"),
            ("type", "give it one"),
            ("default", "end its comment with '; VALUE by default', '; without it ...' or '; required of ...'"),
            ("example", "set it in a suite, or write #[schemars(example = ...)]"),
            ("description", "write a comment"),
        ];
        for (_, (lack, remedy)) in cells.iter().zip(lacks).filter(|(cell, _)| cell.is_empty()) {
            let key = cells[0].trim_matches('`');
            faults.push(format!("{PAGE}: {section}: '{key}' has no {lack}: {remedy}"));
        }
    }
    faults
}

fn page() -> Result<String> {
    let text = fs::read_to_string(root().join(SCHEMA)).with_context(|| format!("read {SCHEMA}"))?;
    let schema: Value = serde_json::from_str(&text).with_context(|| format!("read {SCHEMA}"))?;
    Ok(of_schema(&schema, &used(&schema)?))
}

/// What a key is set to somewhere, in TOML, by its table and its name; the file's own table has no name.
type UsedKeys = BTreeMap<(String, String), String>;

/// What the built-in suites set.
fn used(schema: &Value) -> Result<UsedKeys> {
    let files = fs::read_dir(root().join(SUITES)).with_context(|| format!("read {SUITES}"))?;
    let mut paths: Vec<_> = files.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut used = UsedKeys::new();
    for path in paths {
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let suite: toml::Table = toml::from_str(&text).with_context(|| format!("read {}", path.display()))?;
        collect(&toml::Value::Table(suite), schema, "", schema, &mut used);
    }
    Ok(used)
}

/// Notes what `value` sets, of which `of` is the schema, in the table `name`.
fn collect(value: &toml::Value, of: &Value, name: &str, schema: &Value, used: &mut UsedKeys) {
    if let Some(named) = of["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return collect(value, &schema["$defs"][named], named, schema, used);
    }
    for one in ["anyOf", "oneOf"].iter().filter_map(|key| of[*key].as_array()).flatten() {
        collect(value, one, name, schema, used);
    }
    match value {
        toml::Value::Array(all) => all.iter().for_each(|one| collect(one, &of["items"], name, schema, used)),
        toml::Value::Table(keys) => {
            for (key, value) in keys {
                let Some(property) = of["properties"].get(key) else {
                    collect(value, &of["additionalProperties"], name, schema, used);
                    continue;
                };
                let text = value.to_string();
                let fits = text.len() <= LONGEST_EXAMPLE && !text.contains('\n');
                if fits {
                    used.entry((name.to_owned(), key.clone())).or_insert(text);
                }
                collect(value, property, name, schema, used);
            }
        }
        _ => {}
    }
}

fn of_schema(schema: &Value, used: &UsedKeys) -> String {
    let mut page = INTRODUCTION.to_owned();
    let none = serde_json::Map::new();
    let types = schema["$defs"].as_object().unwrap_or(&none);
    section(&mut page, "The file", "top level", schema, &ExampleSources { types, used, name: "" });
    let listed = |name: &str| FIRST.iter().any(|(first, _)| *first == name);
    for (name, head) in FIRST {
        if let Some(table) = types.get(name) {
            section(&mut page, name, head, table, &ExampleSources { types, used, name });
        }
    }
    let (tables, values): (Vec<_>, Vec<_>) =
        types.iter().filter(|(name, _)| !listed(name)).partition(|(_, of)| of.get("properties").is_some());
    for (name, table) in tables {
        section(&mut page, name, "inline table", table, &ExampleSources { types, used, name });
    }
    page.push_str("## Values\n\n");
    for (name, value) in values {
        page.push_str(&format!("### {name}\n\n"));
        page.push_str(&format!("{}\n\n", described(value)));
        let words = choices(value);
        if !words.is_empty() {
            page.push_str(&format!("{}\n\n", words.join("\n")));
        } else if value.get("description").is_none() {
            page.push_str(&format!("{}\n\n", kind(value)));
        }
    }
    while page.contains("\n\n\n") {
        page = page.replace("\n\n\n", "\n\n");
    }
    page.trim_end().to_owned() + "\n"
}

type Types = serde_json::Map<String, Value>;

/// What examples are found by: all types, what suites set, and the table at hand.
struct ExampleSources<'a> {
    types: &'a Types,
    used: &'a UsedKeys,
    name: &'a str,
}

impl ExampleSources<'_> {
    /// What its type says of a key without a comment.
    fn about(&self, of: &Value) -> String {
        let name =
            of["$ref"].as_str().or_else(|| of["anyOf"][0]["$ref"].as_str()).and_then(|path| path.rsplit('/').next());
        name.and_then(|name| self.types.get(name)).map_or_else(String::new, described)
    }

    /// How a key is written: its table's head, as a suite does it, or as its type allows.
    fn example(&self, key: &str, of: &Value) -> Option<String> {
        let named = |of: &Value| of["$ref"].as_str()?.rsplit('/').next().map(str::to_owned);
        let table = named(of).or_else(|| named(&of["items"])).or_else(|| named(&of["additionalProperties"]));
        let head = FIRST.iter().find(|(name, _)| Some(*name) == table.as_deref() && !matches!(*name, "Goal" | "Wire"));
        let head = head.map(|(_, head)| head.split(", ").next().unwrap_or(head).to_owned());
        let of_table = |table: &str| self.used.get(&(table.to_owned(), key.to_owned())).cloned();
        // A load under another has the same keys.
        let used = of_table(self.name).or_else(|| if self.name == "LoadUnder" { of_table("Load") } else { None });
        head.or(used).or_else(|| example(of, self.types))
    }
}

/// What a comment says that holds without the key: `...; 1500 by default, of packets 64. ...`, `...; without it none. ...` or
/// `...; required of streams. ...`.
fn said_default(description: &str) -> Option<String> {
    // A comment's lines end anywhere.
    let description = cell(description);
    let first = |said: &str| said.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned();
    if let Some((_, said)) = description.split_once("; without it ") {
        return Some(first(said));
    }
    if let Some((_, said)) = description.split_once("; required") {
        return Some(format!("*required*{}", first(said)));
    }
    let (before, after) = description.split_once(" by default")?;
    let (_, said) = before.rsplit_once("; ")?;
    let more = after.split(['.', ';']).next().filter(|more| more.starts_with(", ")).unwrap_or_default();
    (!said.contains(". ")).then(|| format!("{}{more}", said.trim_end_matches(',')))
}

fn section(page: &mut String, name: &str, head: &str, table: &Value, known: &ExampleSources) {
    page.push_str(&format!("## {name}\n\n`{head}`\n\n{}\n\n", described(table)));
    let Some(keys) = table["properties"].as_object() else { return };
    page.push_str("| key | type | without it | example | what it is |\n|---|---|---|---|---|\n");
    let required: Vec<&str> = table["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let needed = |key: &str| required.contains(&key);
    for (key, of) in keys.iter().filter(|(key, _)| needed(key)).chain(keys.iter().filter(|(key, _)| !needed(key))) {
        let without = match of.get("default") {
            _ if needed(key) => "*required*".to_owned(),
            Some(default) if !default.is_null() => format!("`{default}`"),
            _ => said_default(&told(of)).unwrap_or_default(),
        };
        let what = cell(&Some(told(of)).filter(|text| !text.is_empty()).unwrap_or_else(|| known.about(of)));
        let example = known.example(key, of).map_or_else(String::new, |example| format!("`{example}`"));
        page.push_str(&format!(
            "| `{key}` | {} | {} | {} | {what} |\n",
            cell(&kind(of)),
            cell(&without),
            cell(&example)
        ));
    }
    page.push('\n');
}

/// A value that the key may have, as TOML writes it; none of tables and of free words.
fn example(of: &Value, types: &Types) -> Option<String> {
    if let Some(first) = of["examples"].as_array().or_else(|| of["enum"].as_array()).and_then(|all| all.first()) {
        return Some(toml::Value::try_from(first).map_or_else(|_| first.to_string(), |value| value.to_string()));
    }
    if let Some(name) = of["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return example(types.get(name)?, types);
    }
    if let Some(word) = of.get("const") {
        return Some(word.to_string());
    }
    if let Some(all) = of["oneOf"].as_array().or_else(|| of["anyOf"].as_array()) {
        return all.iter().find_map(|one| example(one, types));
    }
    match of["type"].as_str()? {
        "boolean" => Some("true".to_owned()),
        "integer" => Some(of["minimum"].as_u64().filter(|least| *least > 0).unwrap_or(1).to_string()),
        "array" => example(&of["items"], types).map(|one| format!("[{one}]")),
        _ => None,
    }
}

/// The description with its example and its bounds.
fn described(of: &Value) -> String {
    let text = told(of);
    let example = of["examples"].as_array().and_then(|all| all.first());
    match example.filter(|example| !text.contains(example.as_str().unwrap_or("\u{0}"))) {
        Some(example) => format!("{text} Example: `{example}`.").trim().to_owned(),
        None => text,
    }
}

/// The description with its bounds.
fn told(of: &Value) -> String {
    let mut text = of["description"].as_str().unwrap_or_default().trim().to_owned();
    let bound = |key: &str| of.get(key).filter(|bound| bound.as_f64() != Some(0.0)).map(ToString::to_string);
    text += &match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => format!(" From {least} to {most}."),
        (Some(least), None) => format!(" At least {least}."),
        (None, Some(most)) => format!(" At most {most}."),
        (None, None) => String::new(),
    };
    text.trim().to_owned()
}

/// The type, with a link to where it is told.
fn kind(of: &Value) -> String {
    if let Some(name) = of["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(all) = of["anyOf"].as_array().or_else(|| of["oneOf"].as_array()) {
        return all.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    if let Some(words) = of["enum"].as_array() {
        return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(word) = of.get("const") {
        return format!("`{word}`");
    }
    let one = |name: &str| match name {
        "array" if of.get("items").is_some() => format!("list of {}", kind(&of["items"])),
        "object" if of["additionalProperties"].is_object() => {
            format!("table by name of {}", kind(&of["additionalProperties"]))
        }
        "object" => "table".to_owned(),
        "array" => "list".to_owned(),
        "boolean" => "true or false".to_owned(),
        name => name.to_owned(),
    };
    match &of["type"] {
        Value::String(name) => one(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" or "),
        _ => "anything".to_owned(),
    }
}

/// The words that a value may be, each with what it means.
fn choices(of: &Value) -> Vec<String> {
    let lines = |one: &Value| -> Vec<String> {
        let words = one["enum"].as_array().cloned().or_else(|| one.get("const").map(|word| vec![word.clone()]));
        let what = described(one);
        let what = if what.is_empty() { String::new() } else { format!(": {what}") };
        words.into_iter().flatten().map(|word| format!("- `{word}`{what}")).collect()
    };
    match of["oneOf"].as_array() {
        Some(all) => all.iter().flat_map(lines).collect(),
        None if of.get("enum").is_some() => {
            of["enum"].as_array().into_iter().flatten().map(|word| format!("- `{word}`")).collect()
        }
        None if of.get("anyOf").is_some() => vec![format!("One of: {}.", kind(of))],
        None => Vec::new(),
    }
}

/// Text inside a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_has_its_type_default_bounds_and_meaning() {
        let schema = json!({
            "description": "A file.",
            "properties": {
                "trials": { "type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "How | often." },
                "name": { "$ref": "#/$defs/Name" },
            },
            "required": ["name"],
            "$defs": { "Name": { "oneOf": [{ "const": "a", "description": "The first." }, { "enum": ["b"] }] } },
        });
        let page = of_schema(&schema, &UsedKeys::new());
        assert!(page.contains("| `trials` | integer | `3` | `1` | How \\| often. From 1 to 9. |"), "{page}");
        assert!(page.contains("| `name` | [Name](#name) | *required* | `\"a\"` |  |"), "{page}");
        assert!(page.contains("### Name\n\n- `\"a\"`: The first.\n- `\"b\"`\n"), "{page}");
    }

    #[test]
    fn an_example_is_what_a_suite_sets_and_a_default_what_the_comment_says() {
        let schema = json!({
            "properties": { "box": { "type": "array", "items": { "$ref": "#/$defs/Box" } } },
            "$defs": { "Box": { "properties": {
                "size": { "type": "integer", "description": "Bytes of it; 1500 by default, of jumbos 9000. More is better." },
                "name": { "type": "string", "description": "A word. By default none." },
            } } },
        });
        let suite: toml::Table = toml::from_str("[[box]]\nsize = 9000\n[[box]]\nname = \"b\"\nsize = 1").unwrap();
        let mut used = UsedKeys::new();
        collect(&toml::Value::Table(suite), &schema, "", &schema, &mut used);
        let page = of_schema(&schema, &used);
        assert!(page.contains("| `size` | integer | 1500, of jumbos 9000 | `9000` | Bytes"), "{page}");
        assert!(page.contains("| `name` | string |  | `\"b\"` | A word."), "{page}");
        let faults: Vec<String> =
            empty_cells(&page).iter().map(|fault| fault.rsplit_once(": ").unwrap().0.to_owned()).collect();
        let lacks =
            ["The file: 'box' has no default", "The file: 'box' has no description", "Box: 'name' has no default"];
        assert_eq!(faults, lacks.map(|lack| format!("docs/SUITES.md: {lack}")));
    }

    #[test]
    fn a_comment_says_what_holds_without_the_key_in_one_of_three_ways() {
        let said = |comment: &str| said_default(comment);
        assert_eq!(said("Bytes; 1500 by default, of packets 64. More.").as_deref(), Some("1500, of packets 64"));
        assert_eq!(said("Bytes; without\nit as many as fit.\n\nOf x.").as_deref(), Some("as many as fit"));
        assert_eq!(said("Bytes; without it 1.5 of them.").as_deref(), Some("1.5 of them"));
        assert_eq!(said("Bytes; required of streams.\n\nOf x.").as_deref(), Some("*required* of streams"));
        assert_eq!(said("Bytes; required. Of x.").as_deref(), Some("*required*"));
        assert_eq!(said("Bytes. By default none."), None);
    }

    #[test]
    fn the_page_is_what_the_schema_says() {
        assert_eq!(faults().unwrap(), Vec::<String>::new());
    }
}
