//! What a run says when it is over.

use rig_cli::exit::{Exit, Failure, StoppedByUser, both};
use rig_cli::streams::{note, print};
use rig_facts::claim::Verdict;
use rig_facts::store::Store;
use rig_report::{Format, build};
use rig_run::run::NoScenarioLeft;
use rig_run::run::turns::TurnMessage;
use rig_verdict::compare::Comparison;
use rig_verdict::view::{Certainty, RunView};

use super::super::arguments::StoreArgs;
use super::super::report;
use super::RunArgs;
use super::measurement::Measurement;
use super::selection::Selection;

/// Reports and compares the run, and tells what to do next.
pub fn conclude(
    args: &RunArgs,
    selection: Selection,
    measurement: Measurement,
    store: &Store,
) -> Result<Exit, Failure> {
    let Measurement { id, result, has_trials, stored } = measurement;
    let again = report::again(&id.to_string(), &args.store);
    let kept = |failure: Failure| match has_trials {
        true => failure.with_next(format!("finished trials are kept: {again}")),
        false => failure,
    };
    if let Err(error) = result {
        // The process that started both runs says it once.
        if args.in_turn.is_some() && error.is::<StoppedByUser>() {
            return stored.map(|()| Exit::Stopped);
        }
        let failure = match error.is::<NoScenarioLeft>() {
            true => Failure::new(Exit::Lacking, error),
            false => Failure::from(error),
        };
        return both(Err(kept(failure)), stored);
    }
    let stored = stored.map_err(kept);
    if args.in_turn.is_some() {
        stored?;
        // The process that started both runs compares and reports.
        print(&format!("{}\n", TurnMessage::Over))?;
        return Ok(Exit::Done);
    }

    let view = report::view_among_others(store, id)?;
    let mut document = build::document(&view);
    let compared =
        selection.against.as_ref().map(|against| against.add_to(&mut document, &view, &args.store)).transpose();
    if args.output.format == Format::Terminal {
        document = document.brief(&format!("Tables, single trials, doubts and method: {again} --all"));
    }
    let written = selection.output.write(&document, args.output.format);
    // What was measured is told before what could not be done with it.
    let compared = both(both(compared, written), stored)?;
    if !args.quiet {
        note(next(&id.to_string(), &args.store, compared.as_ref().map(|(comparison, _)| comparison)));
    }
    let lost = args.strict.then(|| losses(&view)).flatten();
    if let Some(lost) = lost.as_ref().filter(|_| !args.quiet) {
        note(format_args!("Status 4: {lost}, and --strict asks for all scenarios"));
    }
    let fails = |verdict| matches!(verdict, Verdict::Refuted | Verdict::Differs);
    let failed = view.claims.iter().filter(|claim| fails(claim.verdict)).count();
    let is_refused = selection.gate && failed > 0;
    if is_refused && lost.is_none() && !args.quiet {
        note(format_args!("Status 1: {failed} of {} claims do not hold, and this run has a gate", view.claims.len()));
    }
    Ok(match compared {
        _ if lost.is_some() => Exit::Failed,
        _ if is_refused => Exit::Refuted,
        Some((_, exit)) => exit,
        None => Exit::Done,
    })
}

/// The scenarios that the run lost on the way; `None` where it is whole.
fn losses(view: &RunView) -> Option<String> {
    let failed = view.scenarios.iter().filter(|one| matches!(one.certainty, Certainty::Failed(_)));
    let left_out = view.left_out.iter().flat_map(|one| &one.scenarios);
    let lost: Vec<&str> = left_out.chain(failed.map(|one| &one.id)).map(String::as_str).collect();
    (!lost.is_empty()).then(|| format!("{} failed", lost.join(", ")))
}

/// What to do with the run, in one line.
fn next(id: &str, store: &StoreArgs, compared: Option<&Comparison>) -> String {
    let at = store.words();
    match compared {
        None => format!("Next, as a page: netrig report {id} --format html --output run-{id}.html{at}"),
        Some(comparison) => {
            let old = comparison.old.name.strip_prefix("run ").unwrap_or(&comparison.old.name);
            format!("Next, figure by figure: netrig compare {old} {id} --all{at}")
        }
    }
}
