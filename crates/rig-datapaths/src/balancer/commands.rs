//! What a balancer at work can be told. Services and backends are named by their addresses, or by their numbers from 1 on,
//! as a suite's author does not know what addresses a testbed has.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use netrig_lb::message::{BackendOptions, Reply, Request, RuleChange, ServiceKey, ServiceOptions, Status};
use rig_testbed::datapath::{Command, Mistake, ServiceProcess, Settings, UnknownCommand, read_settings};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Balancer, status};
use crate::arguments::{NoArguments, NumberOrAddress, Weight, is_meant, read};

pub(super) const ALL: &[Command] = &[
    Command {
        name: "weight",
        about: "sets the weight of backends: { backend, weight }, of all services or { service }",
    },
    Command { name: "scheduler", about: "sets the scheduler of all services or one: { scheduler, service }" },
    Command { name: "flush", about: "ends connections: all, or those of { service }, of { backend }" },
    Command { name: "counters", about: "tells services with their backends, and what they have counted" },
    Command { name: "status", about: "tells what `netrig lb status --json` does" },
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetScheduler {
    service: Option<NumberOrAddress>,
    scheduler: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flush {
    service: Option<NumberOrAddress>,
    backend: Option<NumberOrAddress>,
}

/// What is wrong with arguments whatever services and backends there are.
pub(super) fn check(name: &str, arguments: &Settings) -> Result<(), Mistake> {
    match name {
        "weight" => read_settings::<Weight>(arguments).map(drop),
        "scheduler" => read_settings::<SetScheduler>(arguments).map(drop),
        "flush" => read_settings::<Flush>(arguments).map(drop),
        "counters" | "status" => read_settings::<NoArguments>(arguments).map(drop),
        // That there is none is told where it is to be executed.
        _ => Ok(()),
    }
}

pub(super) fn execute(process: &mut ServiceProcess, name: &str, arguments: &Value) -> Result<Value> {
    match name {
        "weight" => {
            let Weight { service, backend, weight } = read(arguments)?;
            let meant = meant(&status(process)?, service.as_ref(), Some(&backend))?;
            let options = BackendOptions { weight: Some(weight), ..BackendOptions::default() };
            let edit = |(service, backend): &(ServiceKey, Option<SocketAddr>)| {
                backend.map(|backend| RuleChange::EditBackend { service: *service, backend, options: options.clone() })
            };
            edited(process, meant.iter().filter_map(edit).collect())
        }
        "scheduler" => {
            let SetScheduler { service, scheduler } = read(arguments)?;
            let meant = meant(&status(process)?, service.as_ref(), None)?;
            let options = ServiceOptions { scheduler: Some(scheduler), ..ServiceOptions::default() };
            let edit = |(service, _): &(ServiceKey, _)| RuleChange::EditService {
                service: *service,
                options: options.clone(),
            };
            edited(process, meant.iter().map(edit).collect())
        }
        "flush" => {
            let Flush { service, backend } = read(arguments)?;
            let mut ended = 0;
            for (service, backend) in meant(&status(process)?, service.as_ref(), backend.as_ref())? {
                match process.ask(Request::Flush { service: Some(service), backend })? {
                    Reply::Ended(count) => ended += count,
                    other => return Err(process.unasked(&other)),
                }
            }
            Ok(json!({ "ended": ended }))
        }
        "counters" => {
            let NoArguments {} = read(arguments)?;
            Ok(serde_json::to_value(&status(process)?.services)?)
        }
        "status" => {
            let NoArguments {} = read(arguments)?;
            Ok(serde_json::to_value(status(process)?)?)
        }
        _ => Err(UnknownCommand::of(&Balancer, name).into()),
    }
}

fn edited(process: &mut ServiceProcess, edits: Vec<RuleChange>) -> Result<Value> {
    let changed = edits.len();
    match process.ask(Request::Edits(edits))? {
        Reply::Done(said) => Ok(json!({ "changed": changed, "said": said })),
        other => Err(process.unasked(&other)),
    }
}

/// The services that are meant, each with each of its backends that is meant; with none where none is named.
fn meant(
    status: &Status,
    service: Option<&NumberOrAddress>,
    backend: Option<&NumberOrAddress>,
) -> Result<Vec<(ServiceKey, Option<SocketAddr>)>> {
    let mut found = Vec::new();
    let open = status.services.iter().filter(|service| service.open).enumerate();
    for (_, entry) in open.filter(|(number, entry)| is_meant(service, *number, entry.key.address)) {
        if backend.is_none() {
            found.push((entry.key, None));
            continue;
        }
        let backends = entry.backends.iter().filter(|backend| !backend.leaving).enumerate();
        let of = backends.filter(|(number, one)| is_meant(backend, *number, one.address));
        found.extend(of.map(|(_, one)| (entry.key, Some(one.address))));
    }
    if found.is_empty() {
        let shown = |what: &str, which: Option<&NumberOrAddress>| match which {
            Some(NumberOrAddress::Number(number)) => format!(" {what} {number}"),
            Some(NumberOrAddress::Address(address)) => format!(" {what} {address}"),
            None => String::new(),
        };
        bail!("there is no{}{}: see command counters", shown("service", service), shown("backend", backend));
    }
    Ok(found)
}
