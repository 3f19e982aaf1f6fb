//! Names of types: nouns of the field or of what they hold. A pronoun, a participle or a preposition alone says neither.

use std::fs;

use anyhow::{Context, Result};

use crate::command::root;
use crate::links::sources;

/// Words that are no name of a type.
const FORBIDDEN: &[&str] = &[
    // Pronouns and question words.
    "Any", "Each", "Either", "Every", "How", "Ours", "Own", "Theirs", "What", "When", "Where", "Which", "Who", "Why",
    // Participles and other forms of verbs.
    "Asked", "Begun", "Blamed", "Chosen", "Done", "Found", "Gone", "Had", "Happened", "Happens", "Has", "Heard", "Kept",
    "Known", "Learned", "Learnt", "Left", "Looked", "Made", "Put", "Said", "Says", "Seen", "Sent", "Shown", "Standing",
    "Taken", "Told", "Took", "Tried", "Wanted", "Written", // Prepositions, adverbs and conjunctions.
    "Above", "After", "Against", "Also", "Among", "At", "Before", "Below", "Beside", "Between", "During", "Far",
    "Here", "Near", "Of", "Often", "On", "Over", "Past", "Then", "There", "Twice", "Under", "Without",
    // Nouns that could be anything.
    "Course", "Look", "Part", "Piece", "Place", "Thing", "Way", "Ways", "Whole",
    // Household words for what has a name in the field.
    "Bell", "Book", "Crew", "Crowd", "Door", "Doorman", "Hasty", "Letter", "Patience", "Toll", "Trouble", "Troubles",
    "Voice",
];

/// Of other standards, which name types so: google.protobuf.Any.
const ELSEWHERE: &[(&str, &str)] = &[("crates/rig-bgp/src/message.rs", "Any")];

/// Types of the sources whose names say nothing of what they hold.
pub fn faults() -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for path in sources()?.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        faults.extend(of_text(&path.strip_prefix(root()).unwrap_or(path).display().to_string(), &text));
    }
    faults.sort();
    Ok(faults)
}

fn of_text(file: &str, text: &str) -> Vec<String> {
    let fault = |(number, line): (usize, &str)| {
        let name = type_name(line).filter(|name| FORBIDDEN.contains(name) && !ELSEWHERE.contains(&(file, name)))?;
        Some(format!("{file}:{}: a type named '{name}': take a noun of the field, or of what it holds", number + 1))
    };
    (0..).zip(text.lines()).filter_map(fault).collect()
}

/// The name of the type that a line of code begins.
fn type_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    // `pub`, `pub(crate)`, `pub(in crate::worker)`.
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    let line = line.trim_start();
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    let name =
        ["struct ", "enum ", "union ", "trait ", "type "].iter().find_map(|keyword| line.strip_prefix(keyword))?;
    Some(name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_no_pronoun() {
        let text =
            "struct Place;\n    pub(in crate::worker) enum Which<'a> {\npub unsafe trait Own {}\ntype Way<T> = T;\n";
        let lines: Vec<_> =
            of_text("a.rs", text).iter().map(|fault| fault.split(": ").next().unwrap().to_owned()).collect();
        assert_eq!(lines, ["a.rs:1", "a.rs:2", "a.rs:3", "a.rs:4"]);
        let fine = "struct Placement;\nenum WhichEnd {}\nlet part = Part;\n/// struct Place\nuse a::Place;\n";
        assert_eq!(of_text("a.rs", fine), Vec::<String>::new());
    }

    #[test]
    fn no_type_of_the_sources_is_one() {
        assert_eq!(faults().unwrap(), Vec::<String>::new());
    }
}
