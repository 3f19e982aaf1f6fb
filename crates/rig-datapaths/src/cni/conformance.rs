//! What the specification asks of plug-ins, tried.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Result;
use rig_cni::{AddResult, Attachment, Failure, Operation, Runtime};
use rig_sys::netlink::{InterfaceAddress, Netlink};
use rig_testbed::UPLINK;
use serde::Serialize;
use serde_json::Value;

use super::containers::{Containers, TestContainer};
use super::leftovers::Inventory;
use super::operations::{add_all, delete_all};
use super::reach::{Echo, Prober};
use super::{Deadline, hanging};

/// What one trial came to.
#[derive(Debug, Serialize)]
struct CheckOutcome {
    name: &'static str,
    /// What is to be so.
    what: &'static str,
    verdict: Verdict,
    seen: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Passed,
    Failed,
    /// The network's version has no such command, or its configuration disables it.
    Lacking,
    /// What has to go before it failed, or there was no time for it: it would say nothing of what it is about.
    NotTried,
}

/// A verdict, and what was seen.
type Judgement = (Verdict, String);

fn held(holds: bool, seen: String) -> Judgement {
    (if holds { Verdict::Passed } else { Verdict::Failed }, seen)
}

fn not_tried(why: &str) -> Judgement {
    (Verdict::NotTried, format!("not tried: {why}"))
}

/// Differences of an inventory that are told.
const TOLD: usize = 2;
/// Containers that are added at once for one check.
const AT_ONCE: usize = 10;
const NO_CHECK: &str = "the network's version has no CHECK, or its configuration disables it";
const NO_GC: &str = "the network's version has no GC (it came with 1.1.0), or its configuration disables it";

/// All checks, each with containers of its own. What is there before is there afterwards.
///
/// # Errors
/// When containers themselves cannot be made, or the node cannot be looked at.
pub(super) fn conform(containers: &Containers) -> Result<Value> {
    let before = Inventory::take()?;
    let mut tests = Tests { containers, deadline: Deadline::new(), hanging: None, has_added: false, tried: Vec::new() };
    let is_checked = tests.one_container()?;
    tests.added_twice()?;
    tests.broken(is_checked)?;
    tests.without_result()?;
    tests.without_namespace()?;
    tests.nowhere()?;
    tests.at_once()?;
    tests.garbage()?;
    tests.status();
    let all = match unchanged(&before)? {
        (Verdict::Passed, _) if !tests.has_added => not_tried("no container could be added"),
        seen => seen,
    };
    tests.say(
        "C19",
        "After all of this the node is as it was: interfaces, addresses, routes, rules, leases, files",
        all,
    );
    tests.tried.sort_by_key(|check| check.name);
    Ok(serde_json::to_value(tests.tried)?)
}

struct Tests<'c> {
    containers: &'c Containers,
    deadline: Deadline,
    /// The last call that was ended for its time limit, in words.
    hanging: Option<String>,
    /// Whether there was an ADD that succeeded.
    has_added: bool,
    tried: Vec<CheckOutcome>,
}

impl<'c> Tests<'c> {
    fn runtime(&self) -> &'c Runtime {
        self.containers.runtime()
    }

    fn say(&mut self, name: &'static str, what: &'static str, (verdict, seen): Judgement) {
        self.tried.push(CheckOutcome { name, what, verdict, seen });
    }

    /// Does something with plug-ins, while there is time; why not where there is none. A DEL that is left out so follows when the container
    /// is dropped.
    fn run<T>(
        &mut self,
        work: impl FnOnce() -> T,
        operations: impl Fn(&T) -> Vec<Option<String>>,
    ) -> Result<T, String> {
        if self.deadline.has_passed() {
            return Err(self.deadline.stopped(self.hanging.as_deref()));
        }
        let done = work();
        self.hanging = operations(&done).into_iter().flatten().next_back().or_else(|| self.hanging.take());
        Ok(done)
    }

    fn one<T>(&mut self, work: impl FnOnce() -> Operation<T>) -> Result<Operation<T>, String> {
        self.run(work, |operation| vec![operation.outcome.as_ref().err().and_then(hanging)])
    }

    /// `None` where the network has no such command.
    fn optional<T>(&mut self, work: impl FnOnce() -> Option<Operation<T>>) -> Result<Option<Operation<T>>, String> {
        self.run(work, |operation| {
            vec![operation.as_ref().and_then(|own| own.outcome.as_ref().err().and_then(hanging))]
        })
    }

    /// An ADD that has to go before something else; why that cannot be tried where it fails.
    fn add(&mut self, container: &TestContainer<'_>) -> Result<AddResult, String> {
        let added = self.one(|| container.add())?;
        let result = added.outcome.map_err(|failure| format!("ADD failed: {failure}"));
        self.has_added |= result.is_ok();
        result
    }

    /// What a command comes to that is not in all versions.
    fn checked(&mut self, container: &TestContainer<'_>, judge: impl FnOnce(&Operation<()>) -> Judgement) -> Judgement {
        match self.optional(|| container.check()) {
            Ok(Some(checked)) => judge(&checked),
            Ok(None) => (Verdict::Lacking, NO_CHECK.to_owned()),
            Err(stopped) => not_tried(&stopped),
        }
    }

    /// ADD, CHECK, DEL, DEL again; whether CHECK succeeded.
    fn one_container(&mut self) -> Result<bool> {
        let before = Inventory::take()?;
        let container = self.containers.test_container(0)?;
        let echo = Echo::open(container.namespace()?)?;
        let (added, seen) = match self.one(|| container.add()).map(|added| added.outcome) {
            Ok(Ok(result)) => {
                let seen = is_as_told(&container, &result)?;
                (Ok(result), seen)
            }
            Ok(Err(failure)) => (Err("ADD failed (C01)".to_owned()), held(false, failure.to_string())),
            Err(stopped) => (Err(stopped.clone()), not_tried(&stopped)),
        };
        self.has_added |= added.is_ok();
        self.say("C01", "ADD succeeds, and its result names the container's interface and addresses as they are", seen);
        let seen = match &added {
            Ok(result) => reached(self.containers, result)?,
            Err(why) => not_tried(why),
        };
        self.say("C02", "A container that was added is reached from another", seen);
        let seen = match &added {
            Ok(_) => self.checked(&container, success),
            Err(why) => not_tried(why),
        };
        let is_checked = seen.0 == Verdict::Passed;
        self.say("C03", "CHECK of a container that is as it was added succeeds", seen);
        drop(echo);
        let deleted = added.and_then(|_| self.one(|| container.del()));
        let seen = match &deleted {
            Ok(deleted) if deleted.outcome.is_ok() => {
                let is_there = Netlink::open(container.namespace()?)?.links()?.iter().any(|link| link.name == UPLINK);
                held(!is_there, if is_there { format!("{UPLINK} is still there") } else { "gone".to_owned() })
            }
            Ok(failed) => success(failed),
            Err(why) => not_tried(why),
        };
        self.say("C07", "DEL succeeds, and the interface is gone", seen);
        let twice = deleted.and_then(|first| match first.outcome {
            Ok(()) => self.one(|| container.del()),
            Err(_) => Err("the first DEL failed (C07)".to_owned()),
        });
        let seen = succeeds_and_leaves(&twice, &before)?;
        self.say("C08", "DEL of a container that was deleted succeeds, and nothing is left of it", seen);
        Ok(is_checked)
    }

    /// A container that has the interface already.
    fn added_twice(&mut self) -> Result<()> {
        let container = self.containers.test_container(0)?;
        let _echo = Echo::open(container.namespace()?)?;
        let added = self.add(&container);
        let again = match &added {
            Ok(_) => self.one(|| container.add()).as_ref().map_or_else(|stopped| not_tried(stopped), refused),
            Err(why) => not_tried(why),
        };
        let seen = match &added {
            Ok(result) if again.0 == Verdict::Passed => reached(self.containers, result)?,
            Ok(_) => not_tried("the second ADD was not refused (C04)"),
            Err(why) => not_tried(why),
        };
        self.say("C04", "ADD of a container that has the interface already is refused", again);
        self.say("C05", "The container is reached after an ADD that was refused", seen);
        Ok(())
    }

    /// A container that has lost its addresses. Where CHECK fails anyway, or has not been tried, its failure means nothing.
    fn broken(&mut self, is_checked: bool) -> Result<()> {
        let container = self.containers.test_container(0)?;
        let seen = if is_checked {
            match self.add(&container) {
                Ok(_) => {
                    strip(&container)?;
                    self.checked(&container, refused)
                }
                Err(why) => not_tried(&why),
            }
        } else {
            match self.tried.iter().find(|check| check.name == "C03") {
                Some(CheckOutcome { verdict: Verdict::Lacking, seen, .. }) => (Verdict::Lacking, seen.clone()),
                _ => not_tried("CHECK of a container that is whole did not succeed (C03)"),
            }
        };
        self.say("C06", "CHECK of a container without its addresses is refused", seen);
        Ok(())
    }

    /// A runtime that has lost what ADD answered.
    fn without_result(&mut self) -> Result<()> {
        let container = self.containers.test_container(0)?;
        let added = self.add(&container);
        self.forget(&container.attachment)?;
        let deleted = added.and_then(|_| self.one(|| container.del()));
        self.say("C09", "DEL without the result of the ADD succeeds", succeeds(&deleted));
        Ok(())
    }

    /// A container whose namespace went first, as after a crash.
    fn without_namespace(&mut self) -> Result<()> {
        let before = Inventory::take()?;
        let mut container = self.containers.test_container(0)?;
        let added = self.add(&container);
        container.end_namespace()?;
        let deleted = added.and_then(|_| self.one(|| container.del()));
        self.say("C10", "DEL succeeds after the container's namespace has gone", succeeds(&deleted));
        let seen = match deleted {
            Ok(Operation { outcome: Ok(()), .. }) => unchanged(&before)?,
            Ok(_) => not_tried("DEL failed (C10)"),
            Err(why) => not_tried(&why),
        };
        self.say("C11", "What was deleted so has left nothing: its lease and its rules are gone", seen);
        let unknown = self.containers.absent();
        let deleted = self.one(|| unknown.del());
        self.say("C12", "DEL of a container that was never added succeeds", succeeds(&deleted));
        Ok(())
    }

    /// A container that is not there.
    fn nowhere(&mut self) -> Result<()> {
        let before = Inventory::take()?;
        let nowhere = self.containers.absent();
        let added = self.one(|| nowhere.add());
        let seen = match &added {
            Ok(Operation { outcome: Ok(_), .. }) => held(false, "it succeeded".to_owned()),
            Ok(Operation { outcome: Err(failure), .. }) => {
                held(matches!(failure.failure, Failure::Refused(_)), failure.to_string())
            }
            Err(stopped) => not_tried(stopped),
        };
        self.say(
            "C13",
            "ADD into a namespace that is not there fails, with an error as the specification has it",
            seen,
        );
        let deleted = added.and_then(|added| match added.outcome {
            Ok(_) => Err("the ADD did not fail (C13)".to_owned()),
            Err(_) => self.one(|| nowhere.del()),
        });
        let seen = succeeds_and_leaves(&deleted, &before)?;
        self.say("C14", "The DEL that follows a failed ADD succeeds, and nothing is left", seen);
        Ok(())
    }

    fn at_once(&mut self) -> Result<()> {
        let test_containers: Vec<TestContainer<'_>> =
            (0..AT_ONCE).map(|number| self.containers.test_container(number)).collect::<Result<_>>()?;
        let hangs = |all: &Result<Vec<Operation<AddResult>>>| {
            let all = all.iter().flatten();
            all.map(|own| own.outcome.as_ref().err().and_then(hanging)).collect()
        };
        let seen = if self.has_added {
            match self.run(|| add_all(&test_containers), hangs) {
                Ok(added) => addresses_of_their_own(added?),
                Err(stopped) => not_tried(&stopped),
            }
        } else {
            not_tried("ADD of one container alone failed (C01)")
        };
        self.say("C15", "Ten containers that are added at once have addresses of their own", seen);
        delete_all(&test_containers);
        Ok(())
    }

    /// What a runtime has lost sight of, beside what is valid.
    fn garbage(&mut self) -> Result<()> {
        let (kept, mut lost) = (self.containers.test_container(0)?, self.containers.test_container(1)?);
        let mut valid = self.containers.valid();
        valid.push(kept.attachment.clone());
        let echo = Echo::open(kept.namespace()?)?;
        let added = self.add(&kept);
        let with_one = Inventory::take()?;
        let both = added.and_then(|result| self.add(&lost).map(|_| result));
        lost.end_namespace()?;
        self.forget(&lost.attachment)?;
        let runtime = self.runtime();
        let collected = both.and_then(|result| Ok((result, self.optional(|| runtime.gc(&valid))?)));
        let (removed, left) = match collected {
            Ok((_, None)) => ((Verdict::Lacking, NO_GC.to_owned()), (Verdict::Lacking, NO_GC.to_owned())),
            Ok((result, Some(collected))) if collected.outcome.is_ok() => {
                (unchanged(&with_one)?, reached(self.containers, &result)?)
            }
            Ok((_, Some(collected))) => (success(&collected), not_tried("GC failed (C16)")),
            Err(why) => (not_tried(&why), not_tried(&why)),
        };
        self.say("C16", "GC removes what is left of a container that is valid no more", removed);
        self.say("C17", "GC leaves containers that are valid as they are", left);
        drop(echo);
        delete_all(&[kept, lost]);
        Ok(())
    }

    fn status(&mut self) {
        let runtime = self.runtime();
        let seen = match self.optional(|| runtime.status()) {
            Ok(Some(status)) => success(&status),
            Ok(None) => (Verdict::Lacking, "the network's version has no STATUS: it came with 1.1.0".to_owned()),
            Err(stopped) => not_tried(&stopped),
        };
        self.say("C18", "STATUS says that the plug-ins are ready", seen);
    }

    /// Loses what the ADD answered.
    fn forget(&self, attachment: &Attachment) -> Result<()> {
        Ok(self.runtime().cache().forget(&self.runtime().network().name, attachment)?)
    }
}

/// Whether the node is as it was before.
fn unchanged(before: &Inventory) -> Result<Judgement> {
    let (after, differences) = before.changes()?;
    let mut unread: Vec<&str> = before.unread().iter().chain(after.unread()).map(String::as_str).collect();
    unread.dedup();
    let unread = if unread.is_empty() { String::new() } else { format!("; not read: {}", unread.join("; ")) };
    if differences.is_empty() {
        return Ok(held(true, format!("nothing has changed{unread}")));
    }
    let mut seen = differences.iter().take(TOLD).cloned().collect::<Vec<_>>().join("; ");
    if differences.len() > TOLD {
        seen.push_str(&format!("; and {} more", differences.len() - TOLD));
    }
    Ok(held(false, seen + &unread))
}

fn success<T>(operation: &Operation<T>) -> Judgement {
    match &operation.outcome {
        Ok(_) => held(true, format!("in {:.1} ms", operation.took.as_secs_f64() * 1e3)),
        Err(failure) => held(false, failure.to_string()),
    }
}

fn succeeds<T>(tried: &Result<Operation<T>, String>) -> Judgement {
    tried.as_ref().map_or_else(|why| not_tried(why), success)
}

fn succeeds_and_leaves(tried: &Result<Operation<()>, String>, before: &Inventory) -> Result<Judgement> {
    match succeeds(tried) {
        (Verdict::Passed, _) => unchanged(before),
        other => Ok(other),
    }
}

/// Whether a plug-in says that it cannot do it. One that hangs, crashes or is not there says nothing.
fn refused<T>(operation: &Operation<T>) -> Judgement {
    let Err(failure) = &operation.outcome else { return held(false, "it succeeded".to_owned()) };
    match &failure.failure {
        Failure::Refused(_) => held(true, failure.to_string()),
        Failure::Died { status, .. } if status.code().is_some_and(|code| code != 0) => {
            held(true, format!("by its exit status only: {failure}"))
        }
        _ => held(false, format!("this is no refusal: {failure}")),
    }
}

fn addresses_of_their_own(added: Vec<Operation<AddResult>>) -> Judgement {
    let mut all: Vec<IpAddr> = Vec::new();
    for one in added {
        let addresses = match one.outcome {
            Ok(result) => result.addresses().into_iter().map(|(own, _)| own).collect::<Vec<_>>(),
            Err(failure) => return held(false, failure.to_string()),
        };
        if addresses.is_empty() {
            return held(false, "one of them was given no address".to_owned());
        }
        all.extend(addresses);
    }
    let own = all.iter().collect::<BTreeSet<_>>().len();
    held(own == all.len(), format!("{} addresses, {own} of them different", all.len()))
}

/// Whether the container is as its result has it.
fn is_as_told(container: &TestContainer<'_>, result: &AddResult) -> Result<Judgement> {
    let netlink = Netlink::open(container.namespace()?)?;
    let Some(told) = result.inside().find(|interface| interface.name == UPLINK) else {
        return Ok(held(false, format!("the result names no interface {UPLINK} of the container")));
    };
    if *told.sandbox != *container.attachment.namespace.to_string_lossy() {
        return Ok(held(false, format!("the result has it in {}", told.sandbox)));
    }
    let Ok(link) = netlink.link(UPLINK) else { return Ok(held(false, format!("the container has no {UPLINK}"))) };
    let there: BTreeSet<_> = netlink.addresses_of(link.index)?.iter().filter_map(InterfaceAddress::address).collect();
    let addresses: Vec<_> = result.addresses().into_iter().map(|(address, _)| address).collect();
    Ok(match addresses.iter().find(|address| !there.contains(address)) {
        Some(absent) => held(false, format!("{UPLINK} does not have {absent}")),
        None => {
            let list = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            held(!addresses.is_empty(), format!("{UPLINK} with {}", if list.is_empty() { "no address" } else { &list }))
        }
    })
}

/// Whether a container that has an echo is reached from the testbed's first, at each of its addresses.
fn reached(containers: &Containers, result: &AddResult) -> Result<Judgement> {
    let addresses: Vec<_> = result.addresses().into_iter().map(|(address, _)| address).collect();
    for address in &addresses {
        if Prober::open(&containers.first()?, *address)?.first_answer(*address).is_none() {
            return Ok(held(false, format!("no answer from {address}")));
        }
    }
    let list = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Ok(held(!addresses.is_empty(), format!("answers from {}", if list.is_empty() { "no address" } else { &list })))
}

/// Takes a container's addresses from it.
fn strip(container: &TestContainer<'_>) -> Result<()> {
    let mut netlink = Netlink::open(container.namespace()?)?;
    let Ok(link) = netlink.link(UPLINK) else { return Ok(()) };
    for address in netlink.addresses_of(link.index)? {
        netlink.remove_address(link.index, &address)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use rig_cni::{Command, PluginFailure};

    use super::*;

    fn ended(failure: Option<Failure>) -> Operation<()> {
        let failed =
            |failure| PluginFailure { plugin: "own".into(), command: Command::Check, failure, stderr: String::new() };
        Operation { outcome: failure.map_or(Ok(()), |own| Err(failed(own))), calls: Vec::new(), took: Duration::ZERO }
    }

    #[test]
    fn what_says_nothing_has_refused_nothing() {
        let verdict = |failure| refused(&ended(failure)).0;
        let died = |raw| Failure::Died { status: ExitStatus::from_raw(raw), output: String::new() };
        assert_eq!(verdict(None), Verdict::Failed);
        assert_eq!(verdict(Some(Failure::TimedOut { after: Duration::from_secs(1) })), Verdict::Failed);
        assert_eq!(verdict(Some(Failure::NotFound { searched: Vec::new() })), Verdict::Failed);
        assert_eq!(verdict(Some(Failure::NoResult { why: String::new(), output: "x".into() })), Verdict::Failed);
        assert_eq!(verdict(Some(died(9))), Verdict::Failed);
        assert_eq!(verdict(Some(died(1 << 8))), Verdict::Passed);
    }

    #[test]
    fn what_was_not_tried_has_not_passed() {
        assert_eq!(succeeds::<()>(&Err("ADD failed (C01)".into())).1, "not tried: ADD failed (C01)");
        assert_eq!(succeeds::<()>(&Err(String::new())).0, Verdict::NotTried);
    }
}
