//! `netrig schema`.

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::mistakes;
use rig_cli::streams::print;

use crate::schemas;

const SUFFIX: &str = ".json";

/// Prints the schema of this name, with or without `.json`; without a name, what there is.
pub fn schema(name: Option<&str>) -> Result<Exit, Failure> {
    let all = schemas();
    let names = || all.iter().map(|(file, _)| file.trim_end_matches(SUFFIX));
    let Some(name) = name else {
        let line = |(name, (_, schema)): (&str, &(_, rig_cli::schema::Schema))| {
            let words = schema.get("description").and_then(|words| words.as_str()).unwrap_or_default();
            format!("{name:<15}  {words}\n")
        };
        print(&names().zip(&all).map(line).collect::<String>())?;
        return Ok(Exit::Done);
    };
    let asked = name.trim_end_matches(SUFFIX);
    let found = names().zip(&all).find(|(known, _)| *known == asked);
    let Some((_, (_, schema))) = found else {
        let hint = match mistakes::closest(asked, names()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        return Err(Failure::new(Exit::BadInput, anyhow!("no schema '{name}'")).with_next(hint));
    };
    let text = serde_json::to_string_pretty(schema).context("write the schema").or_exit(Exit::Failed)?;
    print(&format!("{text}\n"))?;
    Ok(Exit::Done)
}
