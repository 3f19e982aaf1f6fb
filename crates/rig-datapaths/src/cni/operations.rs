//! How long it takes to add, check and delete containers, one alone and many at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rig_cni::{AddResult, Call, Operation};
use rig_testbed::datapath::Mistake;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::containers::{Containers, Guest};
use super::reach::{Echo, Prober};

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
            _ => Ok(()),
        }
    }
}

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
    /// By plug-in, then by command.
    plugins: BTreeMap<String, BTreeMap<String, Vec<u64>>>,
    /// Containers that could not be added, checked, deleted or reached, by what was tried.
    failed: BTreeMap<&'static str, u64>,
    /// The first few of them in words.
    why: Vec<String>,
    /// Addresses that two containers had at the same time.
    shared_addresses: Vec<String>,
}

/// Errors that are told in words.
const TOLD: usize = 5;

impl Times {
    fn calls(&mut self, calls: &[Call]) {
        for Call { plugin, command, took } in calls {
            let of = self.plugins.entry(plugin.clone()).or_default();
            of.entry(command.to_string().to_lowercase()).or_default().push(us(*took));
        }
    }

    fn fail(&mut self, what: &'static str, why: impl FnOnce() -> String) {
        *self.failed.entry(what).or_default() += 1;
        if self.why.len() < TOLD {
            self.why.push(why());
        }
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
    let mut times = Times { at_once: count, rounds, ..Times::default() };
    for _ in 0..rounds {
        round(containers, count as usize, &mut times)?;
    }
    Ok(serde_json::to_value(times)?)
}

fn round(containers: &Containers, count: usize, times: &mut Times) -> Result<()> {
    let runtime = containers.runtime();
    let guests: Vec<Guest> = (0..count).map(|number| containers.guest(number)).collect::<Result<_>>()?;
    let echoes: Vec<Echo> = guests.iter().map(|guest| Echo::open(guest.namespace()?)).collect::<Result<_>>()?;
    let begin = Instant::now();
    let added = each(&guests, |guest| add(containers, guest))?;
    times.all_added_us.extend(added.iter().map(|own| us(own.began.duration_since(begin) + own.operation.took)).max());
    let mut seen = BTreeSet::new();
    for Added { operation, began, reached } in &added {
        times.calls(&operation.calls);
        match &operation.outcome {
            Ok(result) => {
                times.add_us.push(us(operation.took));
                for (address, _) in result.addresses() {
                    if !seen.insert(address) {
                        times.shared_addresses.push(address.to_string());
                    }
                }
            }
            Err(failure) => times.fail("add", || failure.to_string()),
        }
        match reached {
            Some(Some(at)) => times.first_packet_us.push(us(at.duration_since(*began))),
            Some(None) => {
                times.fail("first packet", || "a container that was added is not reached from another".into());
            }
            None => {}
        }
    }
    drop(echoes);
    let there: Vec<&Guest> =
        guests.iter().zip(&added).filter(|(_, own)| own.operation.outcome.is_ok()).map(|(guest, _)| guest).collect();
    for checked in each(&there, |guest| Ok(runtime.check(&guest.attachment)))?.into_iter().flatten() {
        times.calls(&checked.calls);
        match checked.outcome {
            Ok(()) => times.check_us.push(us(checked.took)),
            Err(failure) => times.fail("check", || failure.to_string()),
        }
    }
    let begin = Instant::now();
    let deleted = each(&guests, |guest| Ok(runtime.del(&guest.attachment)))?;
    times.all_deleted_us.push(us(begin.elapsed()));
    for (deleted, added) in deleted.into_iter().zip(&added) {
        times.calls(&deleted.calls);
        match deleted.outcome {
            // That of an ADD that failed has less to do.
            Ok(()) if added.operation.outcome.is_err() => {}
            Ok(()) => times.del_us.push(us(deleted.took)),
            Err(failure) => times.fail("del", || failure.to_string()),
        }
    }
    Ok(())
}

fn add(containers: &Containers, guest: &Guest) -> Result<Added> {
    let began = Instant::now();
    let operation = containers.runtime().add(&guest.attachment);
    let address: Option<IpAddr> =
        operation.outcome.as_ref().ok().and_then(|result| result.addresses().first().map(|(address, _)| *address));
    let reached = match address {
        Some(address) => Some(Prober::open(&containers.first()?, address)?.first_answer(address)),
        None => None,
    };
    Ok(Added { operation, began, reached })
}

/// Does the same for all at once, each on a thread of its own; what plug-ins start dies with that thread.
fn each<'g, G: Sync, T: Send>(guests: &'g [G], work: impl Fn(&'g G) -> Result<T> + Sync) -> Result<Vec<T>> {
    let barrier = Barrier::new(guests.len());
    thread::scope(|scope| {
        let begun: Vec<_> = guests
            .iter()
            .map(|guest| {
                let (barrier, work) = (&barrier, &work);
                thread::Builder::new().name("cni".into()).spawn_scoped(scope, move || {
                    barrier.wait();
                    work(guest)
                })
            })
            .collect::<std::io::Result<_>>()
            .context("start a thread for each container")?;
        begun.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread of a container failed"))?).collect()
    })
}

/// Deletes a container after a test, whatever is left of it.
pub(super) fn clean(containers: &Containers, guest: &Guest) {
    let _ = containers.runtime().del(&guest.attachment);
}

/// Adds so many at once for a check: their results, or the first that failed, in words.
pub(super) fn all_added(containers: &Containers, guests: &[Guest]) -> Result<Result<Vec<AddResult>, String>> {
    let added = each(guests, |guest| Ok(containers.runtime().add(&guest.attachment)))?;
    Ok(added.into_iter().map(|one| one.outcome.map_err(|failure| failure.to_string())).collect())
}

fn us(time: Duration) -> u64 {
    time.as_micros() as u64
}
