//! A thread that has the speaker announce what it is told to, and begins again when the speaker was away.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rig_bgp::client::{Client, Result};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::path::path;
use super::{Announcements, BgpSettings, SpeakerState};

/// Before a speaker is tried again.
const REST: Duration = Duration::from_millis(500);
/// How often one that says nothing is asked whether it is there.
const BEAT: Duration = Duration::from_secs(2);
/// How long the end waits for addresses to be withdrawn.
const ENDING: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Order {
    Announce(Announcements),
    Stop { withdraw: bool },
}

/// It ends when this is dropped; what was announced then stays announced.
#[derive(Debug)]
pub(crate) struct Announcer {
    wanted: watch::Sender<Order>,
    state: Arc<Mutex<SpeakerState>>,
    thread: Option<JoinHandle<()>>,
}

impl Announcer {
    /// # Errors
    /// When there is no thread to be had.
    pub(crate) fn start(settings: &BgpSettings, first: Announcements) -> io::Result<Self> {
        let (wanted, orders) = watch::channel(Order::Announce(first));
        let state = Arc::<Mutex<SpeakerState>>::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (speaker, told) = (settings.speaker.clone(), Arc::clone(&state));
        let body = move || runtime.block_on(work(&speaker, orders, &told));
        let thread = Some(std::thread::Builder::new().name("bgp".into()).spawn(body)?);
        Ok(Self { wanted, state, thread })
    }

    pub(crate) fn announce(&self, wanted: Announcements) {
        let order = Order::Announce(wanted);
        self.wanted.send_if_modified(|now| {
            let is_new = *now != order;
            *now = order;
            is_new
        });
    }

    pub(crate) fn state(&self) -> SpeakerState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has all that it announced withdrawn, and ends.
    pub(crate) fn withdraw(self) {
        self.wanted.send_replace(Order::Stop { withdraw: true });
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.wanted.send_if_modified(|wanted| {
            let goes_on = matches!(wanted, Order::Announce(_));
            if goes_on {
                *wanted = Order::Stop { withdraw: false };
            }
            goes_on
        });
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

type Orders = watch::Receiver<Order>;

fn tell(state: &Mutex<SpeakerState>, change: impl FnOnce(&mut SpeakerState)) {
    change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
}

async fn work(speaker: &str, mut orders: Orders, state: &Mutex<SpeakerState>) {
    // Addresses that the speaker may announce for this balancer, whatever became of the connection to it.
    let mut told = BTreeSet::new();
    let mut stopping = orders.clone();
    loop {
        let ended = tokio::select! {
            ended = converse(speaker, &mut orders, &mut told, state) => ended,
            () = stops(&mut stopping) => Ok(()),
        };
        let Err(why) = ended else { break };
        // What it was told it may go on announcing: only the connection is known to be gone.
        tell(state, |state| (state.connected, state.trouble) = (None, Some(why)));
        tokio::select! {
            () = sleep(REST) => {}
            () = stops(&mut stopping) => break,
        }
    }
    let withdraws = matches!(&*orders.borrow(), Order::Stop { withdraw: true });
    if withdraws && !told.is_empty() {
        // Whoever waits for the end does not wait for a speaker that hangs.
        let withdrawn = timeout(ENDING, withdraw(speaker, &told)).await;
        let withdrawn = withdrawn.unwrap_or_else(|_| Err(format!("no answer within {} s", ENDING.as_secs())));
        if let Err(why) = withdrawn {
            let addresses: Vec<String> = told.iter().map(ToString::to_string).collect();
            warn!("speaker {speaker} may go on announcing {}: {why}", addresses.join(", "));
        }
    }
}

/// Comes back when it is to end.
async fn stops(orders: &mut Orders) {
    let _last = orders.wait_for(|order| matches!(order, Order::Stop { .. })).await;
}

/// Ends well when it is to stop. What is in `told` and not wanted any more is withdrawn first, and what is wanted is in it.
async fn converse(
    speaker: &str,
    orders: &mut Orders,
    told: &mut BTreeSet<IpAddr>,
    state: &Mutex<SpeakerState>,
) -> Result<()> {
    let mut client = Client::connect(speaker).await?;
    let global = client.global().await?;
    // It may have some of a balancer that ran here before: what is not to be announced is withdrawn.
    let mut has: Option<Announcements> = None;
    loop {
        let order = orders.borrow_and_update().clone();
        let Order::Announce(wanted) = order else { return Ok(()) };
        let paths = changes(has.as_ref(), told, &wanted);
        told.extend(wanted.keys());
        client.send(paths.into_iter().map(|(address, med)| path(address, med)).collect()).await?;
        *told = wanted.keys().copied().collect();
        let announced: BTreeSet<IpAddr> =
            wanted.iter().filter(|(_, med)| med.is_some()).map(|(address, _)| *address).collect();
        let connected = Some((global.asn, global.router_id.clone()));
        tell(state, |state| *state = SpeakerState { connected, trouble: None, announced });
        has = Some(wanted);
        loop {
            tokio::select! {
                changed = orders.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return Ok(()),
                },
                () = sleep(BEAT) => drop(client.global().await?),
            }
        }
    }
}

/// What the speaker is to be told so that it has what is wanted: `has` is what it has, where that is known, `told` what it may have.
fn changes(has: Option<&Announcements>, told: &BTreeSet<IpAddr>, wanted: &Announcements) -> Announcements {
    let gone = told.iter().filter(|address| !wanted.contains_key(*address)).map(|address| (*address, None));
    let new = wanted.iter().filter(|(address, med)| has.is_none_or(|has| has.get(*address) != Some(*med)));
    gone.chain(new.map(|(address, med)| (*address, *med))).collect()
}

/// By a connection of its own, since one that was broken off in a message is of no use.
async fn withdraw(speaker: &str, told: &BTreeSet<IpAddr>) -> Result<()> {
    let mut client = Client::connect(speaker).await?;
    client.send(told.iter().map(|address| path(*address, None)).collect()).await
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn of<const N: usize>(all: [(&str, Option<u32>); N]) -> Announcements {
        all.map(|(address, med)| (address.parse().unwrap(), med)).into()
    }

    #[test]
    fn what_was_told_before_a_connection_broke_is_withdrawn_after_it() {
        let told = of([("192.0.2.1", None), ("192.0.2.2", None)]).into_keys().collect();
        let wanted = of([("192.0.2.1", Some(0)), ("192.0.2.3", None)]);
        let all = of([("192.0.2.1", Some(0)), ("192.0.2.2", None), ("192.0.2.3", None)]);
        assert_eq!(changes(None, &told, &wanted), all);
        // Within one connection only what differs.
        let has = of([("192.0.2.1", Some(0)), ("192.0.2.2", Some(100))]);
        let new = of([("192.0.2.2", None), ("192.0.2.3", None)]);
        assert_eq!(changes(Some(&has), &told, &wanted), new);
        assert_eq!(changes(Some(&wanted), &wanted.keys().copied().collect(), &wanted), of([]));
    }
}
