//! `netrig spread simulate guide`: the activities of the validation guide, with costs that are given.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::mistakes::{FileError, load_text, of_serde};
use rig_cli::streams::print;
use rig_spread::simulate::{Costs, guide};
use serde::Serialize;

#[derive(Debug, Args)]
pub(crate) struct Guide {
    /// CPUs of the simulated machines, 2 to 64
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "8,16,32,64")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=64))]
    cpus: Vec<u32>,
    /// Entries that packets fall into, 2 to 1024
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=1024))]
    entries: u32,
    /// What packets cost, as JSON: process_ns, distribute_ns, packet_bytes; docs/SPREAD.md has the rest [default: the
    /// costs of the guide's machine]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    simulated: &'a guide::Report,
}

pub(crate) fn execute(asked: &Guide) -> Result<Exit, Failure> {
    let (costs, whose) = match &asked.costs {
        None => (Costs::guide(), "Microsoft's guide for RS5".to_owned()),
        Some(file) => (costs_of(file)?, file.display().to_string()),
    };
    let report = guide::report(&asked.cpus, asked.entries, &costs);
    if asked.json {
        let text = serde_json::to_string(&Json { simulated: &report }).context("write JSON").or_exit(Exit::Failed)?;
        print(&(text + "\n"))?;
    } else {
        print(&format!("Simulated: the guide's activities, costs of {whose}\n{report}"))?;
    }
    Ok(Exit::Done)
}

fn costs_of(file: &Path) -> Result<Costs, FileError> {
    let text = load_text(file)?;
    let wrong = |line, what, hint| FileError { file: file.display().to_string(), line, what, hint };
    let costs: Costs = serde_json::from_str(&text).map_err(|error| {
        let (what, hint) = of_serde(&error.to_string());
        wrong(Some(error.line()), what, hint)
    })?;
    costs.check().map_err(|error| wrong(None, error.to_string(), None))?;
    Ok(costs)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use clap::Parser;

    use super::super::Simulate;
    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        simulate: Simulate,
    }

    fn read(arguments: &str) -> Result<Simulate, String> {
        let line = Line::try_parse_from(["simulate"].into_iter().chain(arguments.split_whitespace()));
        line.map(|line| line.simulate).map_err(|error| error.to_string())
    }

    #[test]
    fn guide_is_a_word_of_its_own_beside_scenarios() {
        let plain = read("S2 S9 --cpus 16").unwrap();
        assert!(plain.what.is_none());
        assert_eq!(plain.scenarios, ["S2", "S9"]);
        let Some(super::super::SimulateCommand::Guide(guide)) =
            read("guide --cpus 2,64 --entries 8 --json").unwrap().what
        else {
            panic!("no guide")
        };
        assert_eq!((guide.cpus, guide.entries, guide.json), (vec![2, 64], 8, true));
        let Some(super::super::SimulateCommand::Guide(guide)) = read("guide").unwrap().what else { panic!("no guide") };
        assert_eq!((guide.cpus, guide.entries, guide.costs), (vec![8, 16, 32, 64], 16, None));
        for (arguments, named) in [
            ("guide --cpus 1", "2..=64"),
            ("guide --cpus 8,65", "2..=64"),
            ("guide --entries 1", "2..=1024"),
            ("guide S2", "S2"),
        ] {
            let said = read(arguments).unwrap_err();
            assert!(said.contains(named), "{arguments}: {said}");
        }
        let late = read("--cpus 16 guide").unwrap();
        let said = super::super::execute(late).unwrap_err().to_string();
        assert!(said.contains("goes after it"), "{said}");
    }

    #[test]
    fn costs_are_read_from_a_file_and_checked() {
        let file = std::env::temp_dir().join(format!("netrig-costs-{}.json", std::process::id()));
        let of = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let found = costs_of(&file).map_err(|error| error.to_string());
            std::fs::remove_file(&file).unwrap();
            found
        };
        let good = of(r#"{"process_ns": 900, "distribute_ns": 150.5, "packet_bytes": 1514}"#).unwrap();
        assert_eq!(good, Costs::measured(900.0, 150.5, 1514.0));
        let kept = of(&serde_json::to_string(&Costs::guide()).unwrap()).unwrap();
        assert_eq!(kept, Costs::guide());
        for (text, named) in [
            (r#"{"process_ns": 900, "packet_bytes": 1514}"#, "distribute_ns"),
            (r#"{"proces_ns": 900, "distribute_ns": 150, "packet_bytes": 1514}"#, "did you mean `process_ns`?"),
            (r#"{"process_ns": 0, "distribute_ns": 150, "packet_bytes": 1514}"#, "process_ns is 0"),
            (r#"{"process_ns": 900, "distribute_ns": -1, "packet_bytes": 1514}"#, "distribute_ns is -1"),
            ("{", "json:1: "),
        ] {
            let said = of(text).unwrap_err();
            assert!(said.contains(named), "{text}: {said}");
        }
        assert!(costs_of(&file).unwrap_err().to_string().contains("cannot read it"));
    }
}
