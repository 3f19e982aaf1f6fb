//! What the specification asks of plug-ins, tried.

use std::collections::BTreeSet;

use anyhow::Result;
use rig_cni::{AddResult, Attachment, Failure, Operation, PluginFailure, Runtime};
use rig_sys::netlink::{InterfaceAddress, Netlink};
use rig_testbed::UPLINK;
use serde::Serialize;
use serde_json::Value;

use super::containers::{Containers, Guest};
use super::leftovers::Inventory;
use super::operations::{all_added, clean};
use super::reach::{Echo, Prober};

/// What one trial came to.
#[derive(Debug, Serialize)]
struct CheckOutcome {
    name: &'static str,
    /// What is to be so.
    what: &'static str,
    verdict: Verdict,
    seen: String,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Passed,
    Failed,
    /// The network's version has no such command, or its configuration disables it.
    Lacking,
}

/// Differences of an inventory that are told.
const TOLD: usize = 2;
/// Containers that are added at once for one check.
const AT_ONCE: usize = 10;

/// All checks, each with containers of its own. What is there before is there afterwards.
///
/// # Errors
/// When containers themselves cannot be made, or the node cannot be looked at.
pub(super) fn conform(containers: &Containers) -> Result<Value> {
    let before = Inventory::take()?;
    let mut tests = Tests { containers, tried: Vec::new(), guests: 1000 };
    tests.first_container()?;
    tests.without_result()?;
    tests.without_namespace()?;
    tests.nowhere()?;
    tests.at_once()?;
    tests.garbage()?;
    tests.status();
    let all = "After all of this the node is as it was: interfaces, addresses, routes, rules, leases, files";
    tests.leftovers("C19", all, &before)?;
    Ok(serde_json::to_value(tests.tried)?)
}

struct Tests<'c> {
    containers: &'c Containers,
    tried: Vec<CheckOutcome>,
    /// The number of the next guest.
    guests: usize,
}

impl Tests<'_> {
    fn runtime(&self) -> &Runtime {
        self.containers.runtime()
    }

    fn guest(&mut self) -> Result<Guest> {
        self.guests += 1;
        self.containers.guest(self.guests)
    }

    fn say(&mut self, name: &'static str, what: &'static str, (holds, seen): (bool, String)) {
        let verdict = if holds { Verdict::Passed } else { Verdict::Failed };
        self.tried.push(CheckOutcome { name, what, verdict, seen });
    }

    fn lacking(&mut self, name: &'static str, what: &'static str, why: &str) {
        self.tried.push(CheckOutcome { name, what, verdict: Verdict::Lacking, seen: why.to_owned() });
    }

    /// Whether the node is as it was before.
    fn leftovers(&mut self, name: &'static str, what: &'static str, before: &Inventory) -> Result<()> {
        let held = unchanged(before)?;
        self.say(name, what, held);
        Ok(())
    }

    /// ADD, ADD again, CHECK, CHECK after breaking, DEL, DEL again.
    fn first_container(&mut self) -> Result<()> {
        let before = Inventory::take()?;
        let guest = self.guest()?;
        let echo = Echo::open(guest.namespace()?)?;
        let added = self.runtime().add(&guest.attachment);
        let is_added = added.outcome.is_ok();
        self.say(
            "C01",
            "ADD succeeds, and its result names the container's interface and addresses as they are",
            match &added.outcome {
                Ok(result) => is_as_told(&guest, result)?,
                Err(failure) => (false, failure.to_string()),
            },
        );
        let reach = "A container that was added is reached from another";
        self.say(
            "C02",
            reach,
            match &added.outcome {
                Ok(result) => reached(self.containers, result)?,
                Err(_) => (false, "it was not added".to_owned()),
            },
        );
        let disabled = "the network's version has no CHECK, or its configuration disables it";
        let whole = "CHECK of a container that is as it was added succeeds";
        match self.runtime().check(&guest.attachment) {
            Some(checked) => self.say("C03", whole, success(&checked)),
            None => self.lacking("C03", whole, disabled),
        }
        let again = self.runtime().add(&guest.attachment);
        self.say(
            "C04",
            "ADD of a container that has the interface already fails",
            match again.outcome {
                Ok(_) => (false, "it succeeded".to_owned()),
                Err(failure) => (is_added, failure.to_string()),
            },
        );
        self.say(
            "C05",
            "The container is reached after an ADD that was refused",
            match &added.outcome {
                Ok(result) => reached(self.containers, result)?,
                Err(_) => (false, "it was not added".to_owned()),
            },
        );
        drop(echo);
        strip(&guest)?;
        let broken = "CHECK of a container without its addresses fails";
        match self.runtime().check(&guest.attachment) {
            Some(checked) => self.say("C06", broken, failed(&checked)),
            None => self.lacking("C06", broken, disabled),
        }
        let deleted = self.runtime().del(&guest.attachment);
        self.say(
            "C07",
            "DEL succeeds, and the interface is gone",
            match deleted.outcome {
                Ok(()) => {
                    let is_there = Netlink::open(guest.namespace()?)?.links()?.iter().any(|link| link.name == UPLINK);
                    (!is_there, if is_there { format!("{UPLINK} is still there") } else { "gone".to_owned() })
                }
                Err(failure) => (false, failure.to_string()),
            },
        );
        let twice = self.runtime().del(&guest.attachment);
        let held = if success(&twice).0 { unchanged(&before)? } else { success(&twice) };
        self.say("C08", "DEL of a container that was deleted succeeds, and nothing is left of it", held);
        Ok(())
    }

    /// A runtime that has lost what ADD answered.
    fn without_result(&mut self) -> Result<()> {
        let guest = self.guest()?;
        let added = self.runtime().add(&guest.attachment).outcome.map(drop);
        self.forget(&guest.attachment);
        let deleted = self.runtime().del(&guest.attachment);
        self.say("C09", "DEL without the result of the ADD succeeds", after(added, &deleted));
        Ok(())
    }

    /// A container whose namespace went first, as after a crash.
    fn without_namespace(&mut self) -> Result<()> {
        let before = Inventory::take()?;
        let mut guest = self.guest()?;
        let added = self.runtime().add(&guest.attachment).outcome.map(drop);
        guest.end_namespace()?;
        let deleted = self.runtime().del(&guest.attachment);
        self.say("C10", "DEL succeeds after the container's namespace has gone", after(added, &deleted));
        self.leftovers("C11", "What was deleted so has left nothing: its lease and its rules are gone", &before)?;
        let unknown = Attachment::new("never-added", "/run/netns/never-added", UPLINK);
        let deleted = self.runtime().del(&unknown);
        self.say("C12", "DEL of a container that was never added succeeds", success(&deleted));
        Ok(())
    }

    /// A container that is not there.
    fn nowhere(&mut self) -> Result<()> {
        let before = Inventory::take()?;
        let nowhere = Attachment::new("nowhere", "/run/netns/nowhere", UPLINK);
        let added = self.runtime().add(&nowhere);
        let what = "ADD into a namespace that is not there fails, with an error as the specification has it";
        self.say(
            "C13",
            what,
            match added.outcome {
                Ok(_) => (false, "it succeeded".to_owned()),
                Err(failure) => (matches!(failure.failure, Failure::Refused(_)), failure.to_string()),
            },
        );
        let deleted = self.runtime().del(&nowhere);
        let clean = success(&deleted);
        let held = if clean.0 { unchanged(&before)? } else { clean };
        self.say("C14", "The DEL that follows a failed ADD succeeds, and nothing is left", held);
        Ok(())
    }

    fn at_once(&mut self) -> Result<()> {
        let guests: Vec<Guest> = (0..AT_ONCE).map(|_| self.guest()).collect::<Result<_>>()?;
        let seen = match all_added(self.containers, &guests)? {
            Ok(results) => {
                let all: Vec<_> = results
                    .iter()
                    .flat_map(|result| result.addresses().into_iter().map(|(own, _)| own).collect::<Vec<_>>())
                    .collect();
                let own: BTreeSet<_> = all.iter().collect();
                (own.len() == all.len(), format!("{} addresses, {} of them different", all.len(), own.len()))
            }
            Err(failure) => (false, failure),
        };
        self.say("C15", "Ten containers that are added at once have addresses of their own", seen);
        guests.iter().for_each(|guest| clean(self.containers, guest));
        Ok(())
    }

    /// What a runtime has lost sight of, beside what is valid.
    fn garbage(&mut self) -> Result<()> {
        let (collects, keeps) = (
            "GC removes what is left of a container that is valid no more",
            "GC leaves containers that are valid as they are",
        );
        let why = "the network's version has no GC (it came with 1.1.0), or its configuration disables it";
        let (kept, mut lost) = (self.guest()?, self.guest()?);
        let mut valid = self.containers.valid();
        valid.push(kept.attachment.clone());
        let echo = Echo::open(kept.namespace()?)?;
        let added = self.runtime().add(&kept.attachment).outcome;
        let with_one = Inventory::take()?;
        let both = self.runtime().add(&lost.attachment).outcome.map(drop);
        lost.end_namespace()?;
        self.forget(&lost.attachment);
        match self.runtime().gc(&valid) {
            None => {
                self.lacking("C16", collects, why);
                self.lacking("C17", keeps, why);
            }
            Some(collected) => {
                let done = after(both, &collected);
                let held = if done.0 { unchanged(&with_one)? } else { done };
                self.say("C16", collects, held);
                let seen = match &added {
                    Ok(result) => reached(self.containers, result)?,
                    Err(failure) => (false, failure.to_string()),
                };
                self.say("C17", keeps, seen);
            }
        }
        drop(echo);
        clean(self.containers, &kept);
        clean(self.containers, &lost);
        Ok(())
    }

    fn status(&mut self) {
        let what = "STATUS says that the plug-ins are ready";
        match self.runtime().status() {
            Some(status) => self.say("C18", what, success(&status)),
            None => self.lacking("C18", what, "the network's version has no STATUS: it came with 1.1.0"),
        }
    }

    /// Loses what the ADD answered.
    fn forget(&self, attachment: &Attachment) {
        let name = format!("{}-{}-{}", self.runtime().network().name, attachment.container, attachment.interface);
        let _ = std::fs::remove_file(self.runtime().cache().folder().join(name));
    }
}

/// Whether the node is as it was before.
fn unchanged(before: &Inventory) -> Result<(bool, String)> {
    let differences = before.changes()?;
    if differences.is_empty() {
        return Ok((true, "nothing has changed".to_owned()));
    }
    let mut seen = differences.iter().take(TOLD).cloned().collect::<Vec<_>>().join("; ");
    if differences.len() > TOLD {
        seen.push_str(&format!("; and {} more", differences.len() - TOLD));
    }
    Ok((false, seen))
}

fn success<T>(operation: &Operation<T>) -> (bool, String) {
    match &operation.outcome {
        Ok(_) => (true, format!("in {:.1} ms", operation.took.as_secs_f64() * 1e3)),
        Err(failure) => (false, failure.to_string()),
    }
}

fn failed<T>(operation: &Operation<T>) -> (bool, String) {
    match &operation.outcome {
        Ok(_) => (false, "it succeeded".to_owned()),
        Err(failure) => (!failure.was_killed(), failure.to_string()),
    }
}

/// What came of an operation that an ADD has to go before.
fn after<T>(added: Result<(), PluginFailure>, operation: &Operation<T>) -> (bool, String) {
    match added {
        Ok(()) => success(operation),
        Err(failure) => (false, failure.to_string()),
    }
}

/// Whether the container is as its result has it.
fn is_as_told(guest: &Guest, result: &AddResult) -> Result<(bool, String)> {
    let netlink = Netlink::open(guest.namespace()?)?;
    let Some(told) = result.inside().find(|interface| interface.name == UPLINK) else {
        return Ok((false, format!("the result names no interface {UPLINK} of the container")));
    };
    if *told.sandbox != *guest.attachment.namespace.to_string_lossy() {
        return Ok((false, format!("the result has it in {}", told.sandbox)));
    }
    let Ok(link) = netlink.link(UPLINK) else { return Ok((false, format!("the container has no {UPLINK}"))) };
    let there: BTreeSet<_> = netlink.addresses_of(link.index)?.iter().filter_map(InterfaceAddress::address).collect();
    let addresses: Vec<_> = result.addresses().into_iter().map(|(address, _)| address).collect();
    Ok(match addresses.iter().find(|address| !there.contains(address)) {
        Some(absent) => (false, format!("{UPLINK} does not have {absent}")),
        None => {
            let list = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            (!addresses.is_empty(), format!("{UPLINK} with {}", if list.is_empty() { "no address" } else { &list }))
        }
    })
}

/// Whether a container that has an echo is reached from the testbed's first, at each of its addresses.
fn reached(containers: &Containers, result: &AddResult) -> Result<(bool, String)> {
    let addresses: Vec<_> = result.addresses().into_iter().map(|(address, _)| address).collect();
    for address in &addresses {
        if Prober::open(&containers.first()?, *address)?.first_answer(*address).is_none() {
            return Ok((false, format!("no answer from {address}")));
        }
    }
    let list = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Ok((!addresses.is_empty(), format!("answers from {}", if list.is_empty() { "no address" } else { &list })))
}

/// Takes a container's addresses from it.
fn strip(guest: &Guest) -> Result<()> {
    let mut netlink = Netlink::open(guest.namespace()?)?;
    let Ok(link) = netlink.link(UPLINK) else { return Ok(()) };
    for address in netlink.addresses_of(link.index)? {
        netlink.remove_address(link.index, &address)?;
    }
    Ok(())
}
