//! How long it takes to add, check and delete containers, one alone and many at once.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rig_cni::{AddResult, Call, Conflist, Operation, PluginFailure};
use rig_testbed::datapath::Mistake;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::containers::{Containers, TestContainer};
use super::reach::{Echo, Prober};
use super::{Deadline, hanging};

/// What is asked for.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AtOnce {
    /// How many containers there are at a time.
    #[serde(default = "one")]
    count: u32,
    #[serde(default = "one")]
    rounds: u32,
}

fn one() -> u32 {
    1
}

impl AtOnce {
    pub(super) fn check(self) -> Result<(), Mistake> {
        match self {
            Self { count, .. } if !(1..=250).contains(&count) => {
                Err(Mistake::new(format!("{count} containers at once"), "choose 1 to 250").at("count"))
            }
            Self { rounds, .. } if !(1..=100).contains(&rounds) => {
                Err(Mistake::new(format!("{rounds} rounds"), "choose 1 to 100").at("rounds"))
            }
            Self { count, rounds } if count * rounds > CONTAINERS => {
                let what = format!("{rounds} rounds of {count} containers, {} in all", count * rounds);
                let hint = format!("choose at most {CONTAINERS} in all, here {} rounds", CONTAINERS / count);
                Err(Mistake::new(what, hint).at("rounds"))
            }
            _ => Ok(()),
        }
    }
}

/// Containers of all rounds that a command may ask for: what takes 150 ms for each, as the usual plug-ins do, is then done in time.
const CONTAINERS: u32 = 2000;

/// What came of it, times in microseconds.
#[derive(Debug, Default, Serialize)]
struct Times {
    at_once: u32,
    rounds: u32,
    add_us: Vec<u64>,
    /// From the begin of an ADD to the first answer to another container.
    first_packet_us: Vec<u64>,
    check_us: Vec<u64>,
    del_us: Vec<u64>,
    /// Of each round, from the first begin to the last end.
    all_added_us: Vec<u64>,
    all_deleted_us: Vec<u64>,
    /// Each plug-in, in the order of the chain; of operations that succeeded.
    chain: Vec<PluginTimes>,
    /// Containers that could not be added, checked, deleted or reached, by what was tried.
    failed: BTreeMap<&'static str, u64>,
    /// The first few of them in words.
    why: Vec<String>,
    /// Addresses that two containers had at the same time.
    shared_addresses: Vec<String>,
    /// Why there are fewer rounds than were asked for, in words.
    stopped: Option<String>,
    #[serde(skip)]
    hanging: Option<String>,
}

/// How long calls of one plug-in took, by command.
#[derive(Debug, Default, Serialize)]
struct PluginTimes {
    plugin: String,
    commands: BTreeMap<String, Vec<u64>>,
}

/// Errors that are told in words.
const TOLD: usize = 5;

impl Times {
    fn new(network: &Conflist, at_once: u32) -> Self {
        let chain =
            network.plugins.iter().map(|plugin| PluginTimes { plugin: plugin.name.clone(), ..Default::default() });
        Self { at_once, chain: chain.collect(), ..Self::default() }
    }

    /// Calls of an operation that succeeded, which are of all plug-ins, in the chain's order.
    fn calls<'c>(&mut self, calls: impl IntoIterator<Item = &'c Call>) {
        for (of, Call { command, took, .. }) in self.chain.iter_mut().zip(calls) {
            of.commands.entry(command.to_string().to_lowercase()).or_default().push(us(*took));
        }
    }

    fn fail(&mut self, what: &'static str, why: String) {
        *self.failed.entry(what).or_default() += 1;
        if self.why.len() < TOLD {
            self.why.push(why);
        }
    }

    fn plugin_failed(&mut self, what: &'static str, failure: &PluginFailure) {
        self.hanging = self.hanging.take().or_else(|| hanging(failure));
        self.fail(what, failure.to_string());
    }
}

/// An ADD, and when the container was reached.
struct Added {
    operation: Operation<AddResult>,
    began: Instant,
    reached: Option<Option<Instant>>,
}

/// Adds containers, checks them and deletes them, all of a round at once.
///
/// # Errors
/// When containers themselves cannot be made; plug-ins that fail are counted.
pub(super) fn at_once(containers: &Containers, asked: &AtOnce) -> Result<Value> {
    let AtOnce { count, rounds } = *asked;
    asked.check()?;
    let (deadline, mut times) = (Deadline::new(), Times::new(containers.runtime().network(), count));
    for number in 0..rounds {
        // What hangs once does so again, for the whole time limit.
        if deadline.has_passed() || times.hanging.is_some() {
            let why = deadline.stopped(times.hanging.as_deref());
            times.stopped = Some(format!("{why}; {number} of {rounds} rounds were begun"));
            break;
        }
        times.rounds += 1;
        round(containers, count as usize, deadline, &mut times)?;
    }
    Ok(serde_json::to_value(times)?)
}

fn round(containers: &Containers, count: usize, deadline: Deadline, times: &mut Times) -> Result<()> {
    let test_containers: Vec<TestContainer<'_>> =
        (0..count).map(|number| containers.test_container(number)).collect::<Result<_>>()?;
    let echoes: Vec<Echo> =
        test_containers.iter().map(|container| Echo::open(container.namespace()?)).collect::<Result<_>>()?;
    let begin = Instant::now();
    // An error of one is kept until all are deleted.
    let tried = each(&test_containers, |container| Ok(add(containers, container)))?;
    let mut error = None;
    let mut added = Vec::with_capacity(tried.len());
    for (own, unreachable) in tried {
        error = error.or(unreachable);
        added.push(own);
    }
    times.all_added_us.extend(added.iter().map(|own| us(own.began.duration_since(begin) + own.operation.took)).max());
    let mut seen = BTreeSet::new();
    for Added { operation, began, reached } in &added {
        match &operation.outcome {
            Ok(result) => {
                times.calls(&operation.calls);
                times.add_us.push(us(operation.took));
                for (address, _) in result.addresses() {
                    if !seen.insert(address) {
                        times.shared_addresses.push(address.to_string());
                    }
                }
            }
            Err(failure) => times.plugin_failed("add", failure),
        }
        match reached {
            Some(Some(at)) => times.first_packet_us.push(us(at.duration_since(*began))),
            Some(None) => {
                times.fail("first packet", "a container that was added is not reached from another".to_owned());
            }
            None => {}
        }
    }
    drop(echoes);
    let there: Vec<&TestContainer<'_>> = test_containers
        .iter()
        .zip(&added)
        .filter(|(_, own)| own.operation.outcome.is_ok())
        .map(|(container, _)| container)
        .collect();
    // Containers are deleted also where there is no time to check them.
    let checked = if deadline.has_passed() || times.hanging.is_some() {
        Vec::new()
    } else {
        each(&there, |container| Ok(container.check()))?
    };
    for checked in checked.into_iter().flatten() {
        match checked.outcome {
            Ok(()) => {
                times.calls(&checked.calls);
                times.check_us.push(us(checked.took));
            }
            Err(failure) => times.plugin_failed("check", &failure),
        }
    }
    let begin = Instant::now();
    let deleted = each(&test_containers, |container| Ok(container.del()))?;
    times.all_deleted_us.push(us(begin.elapsed()));
    for (deleted, added) in deleted.into_iter().zip(&added) {
        match deleted.outcome {
            // That of an ADD that failed has less to do.
            Ok(()) if added.operation.outcome.is_err() => {}
            Ok(()) => {
                times.calls(deleted.calls.iter().rev());
                times.del_us.push(us(deleted.took));
            }
            Err(failure) => times.plugin_failed("del", &failure),
        }
    }
    error.map_or(Ok(()), Err)
}

/// Adds a container and reaches it; also why that could not be tried.
fn add(containers: &Containers, container: &TestContainer<'_>) -> (Added, Option<anyhow::Error>) {
    let began = Instant::now();
    let operation = container.add();
    let address: Option<IpAddr> =
        operation.outcome.as_ref().ok().and_then(|result| result.addresses().first().map(|(address, _)| *address));
    let reach = |address| Ok(Prober::open(&containers.first()?, address)?.first_answer(address));
    match address.map(reach).transpose() {
        Ok(reached) => (Added { operation, began, reached }, None),
        Err(error) => (Added { operation, began, reached: None }, Some(error)),
    }
}

/// Does the same for all at once, each on a thread of its own; what plug-ins start dies with that thread.
fn each<'g, G: Sync, T: Send>(test_containers: &'g [G], work: impl Fn(&'g G) -> Result<T> + Sync) -> Result<Vec<T>> {
    each_that_starts(test_containers, work, |_| Ok(()))
}

/// [`each`], where a thread may be refused by its number.
fn each_that_starts<'g, G: Sync, T: Send>(
    test_containers: &'g [G],
    work: impl Fn(&'g G) -> Result<T> + Sync,
    may_start: impl Fn(usize) -> io::Result<()>,
) -> Result<Vec<T>> {
    let gate = RwLock::new(false);
    thread::scope(|scope| {
        // Until this is dropped all wait: also those that were started before one that could not be.
        let mut is_open = gate.write().unwrap_or_else(PoisonError::into_inner);
        let begun: Vec<_> = test_containers
            .iter()
            .enumerate()
            .map(|(number, container)| {
                may_start(number)?;
                let (gate, work) = (&gate, &work);
                thread::Builder::new().name("cni".into()).spawn_scoped(scope, move || {
                    if !*gate.read().unwrap_or_else(PoisonError::into_inner) {
                        bail!("the thread of another container could not be started");
                    }
                    work(container)
                })
            })
            .collect::<io::Result<_>>()
            .context("start a thread for each container")?;
        *is_open = true;
        drop(is_open);
        begun.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread of a container failed"))?).collect()
    })
}

/// Deletes containers after a test, those whose ADD was called.
pub(super) fn delete_all(test_containers: &[TestContainer<'_>]) {
    let owed: Vec<&TestContainer<'_>> = test_containers.iter().filter(|container| container.owes_del()).collect();
    // Where threads cannot be started, each is deleted when it is dropped.
    let _ = each(&owed, |container| Ok(container.del()));
}

/// Adds containers at once, for a check.
pub(super) fn add_all(test_containers: &[TestContainer<'_>]) -> Result<Vec<Operation<AddResult>>> {
    each(test_containers, |container| Ok(container.add()))
}

fn us(time: Duration) -> u64 {
    time.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_thread_that_cannot_be_started_ends_all_and_none_has_begun() {
        let begun = AtomicUsize::new(0);
        let work = |_: &u32| {
            begun.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let refused = |number| if number == 2 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) };
        assert!(each_that_starts(&[0, 1, 2, 3], work, refused).is_err());
        assert_eq!(begun.load(Ordering::Relaxed), 0);
        assert_eq!(each(&[1, 2, 3], |number| Ok(number * 2)).unwrap(), [2, 4, 6]);
    }

    #[test]
    fn two_plug_ins_of_one_type_stay_two_in_the_order_of_the_chain() {
        let text =
            r#"{ "cniVersion": "1.0.0", "name": "n", "plugins": [{ "type": "z" }, { "type": "a" }, { "type": "z" }] }"#;
        let mut times = Times::new(&Conflist::parse(text).unwrap(), 1);
        let call = |plugin: &str, ms| Call {
            plugin: plugin.to_owned(),
            command: rig_cni::Command::Add,
            took: Duration::from_millis(ms),
        };
        times.calls(&[call("z", 1), call("a", 2), call("z", 3)]);
        let told: Vec<_> = times.chain.iter().map(|one| (&*one.plugin, one.commands["add"][0])).collect();
        assert_eq!(told, [("z", 1000), ("a", 2000), ("z", 3000)]);
    }
}
