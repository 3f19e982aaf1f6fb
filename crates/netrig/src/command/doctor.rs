//! `netrig doctor`.

use rig_cli::exit::{Exit, Failure, in_words};
use rig_cli::look;
use rig_cli::streams::{self, print_as_it_is};
use rig_facts::record::SkippedScenarios;
use rig_facts::store::Store;
use rig_suite::suite::{Scenario, Suite};
use rig_sys::probe::Access;
use rig_sys::process;

use super::hosts::HostChoice;
use super::run::Survey;
use crate::doctor::{Format, MachineReport, SuiteSupport, examine, write};

pub fn doctor(json: bool) -> Result<Exit, Failure> {
    let (findings, access) = examine(Store::default_path());
    let suites = Suite::built_in().collect::<Result<Vec<_>, _>>()?;
    let survey = survey(&access, &suites);
    let report = MachineReport::new(findings, support(suites, survey));
    let format = if json { Format::Json } else { Format::for_stdout() };
    let text = write(&report, format, streams::width());
    print_as_it_is(&if json { text } else { look::shown(&text).into_owned() })?;
    Ok(if report.ready { Exit::Done } else { Exit::Lacking })
}

/// What a run of each suite would say before its first trial: the same is asked. `Err` has why none can be run.
pub(super) fn support(suites: Vec<Suite>, mut survey: Result<Survey, String>) -> Vec<SuiteSupport> {
    let mut support = |mut suite: Suite| {
        let ids = |suite: &Suite| -> Vec<String> { suite.scenarios.iter().map(|one| one.id.clone()).collect() };
        let all = ids(&suite);
        let asked = survey.as_mut().map_err(|why| why.clone());
        let left_out = asked.and_then(|survey| survey.leave_out(&mut suite).map_err(|error| in_words(&error)));
        let (scenarios, left_out) = match left_out {
            Ok(left_out) => (ids(&suite), left_out),
            Err(reason) => (Vec::new(), vec![SkippedScenarios { scenarios: all, reason }]),
        };
        SuiteSupport { suite: suite.name, scenarios, left_out }
    };
    suites.into_iter().map(&mut support).collect()
}

/// `Err` with the reason where no suite can be run.
fn survey(access: &Access, suites: &[Suite]) -> Result<Survey, String> {
    if let Access::Refused(refusal) = access {
        return Err(refusal.to_string());
    }
    process::raise_file_limit();
    let scenarios: Vec<Scenario> = suites.iter().flat_map(|suite| suite.scenarios.clone()).collect();
    let host = HostChoice::Local.start(None).map_err(|error| in_words(&error))?;
    Survey::begin(host, None, &scenarios).map_err(|failure| failure.to_string())
}
