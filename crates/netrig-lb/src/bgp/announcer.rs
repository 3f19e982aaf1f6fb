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
    loop {
        if matches!(&*orders.borrow_and_update(), Order::Stop { .. }) {
            return;
        }
        match converse(speaker, &mut orders, state).await {
            Ok(()) => return,
            Err(why) => tell(state, |state| *state = SpeakerState { trouble: Some(why), ..SpeakerState::default() }),
        }
        tokio::select! {
            () = sleep(REST) => {}
            _ = orders.changed() => {}
        }
    }
}

/// Ends well when it is to stop.
async fn converse(speaker: &str, orders: &mut Orders, state: &Mutex<SpeakerState>) -> Result<()> {
    let mut client = Client::connect(speaker).await?;
    let global = client.global().await?;
    // It may have some of a balancer that ran here before: what is not to be announced is withdrawn.
    let mut has: Option<Announcements> = None;
    loop {
        let order = orders.borrow_and_update().clone();
        match order {
            Order::Announce(wanted) => {
                send(&mut client, has.as_ref(), &wanted).await?;
                let announced: BTreeSet<IpAddr> =
                    wanted.iter().filter(|(_, med)| med.is_some()).map(|(address, _)| *address).collect();
                let connected = Some((global.asn, global.router_id.clone()));
                tell(state, |state| *state = SpeakerState { connected, trouble: None, announced });
                has = Some(wanted);
            }
            Order::Stop { withdraw: false } => return Ok(()),
            Order::Stop { withdraw: true } => {
                let wanted = has.iter().flatten().map(|(address, _)| (*address, None)).collect();
                // Whoever waits for the end does not wait for a speaker that hangs.
                let _ended = timeout(ENDING, send(&mut client, has.as_ref(), &wanted)).await;
                return Ok(());
            }
        }
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

/// Has the speaker have what is wanted in place of what it has.
async fn send(client: &mut Client, has: Option<&Announcements>, wanted: &Announcements) -> Result<()> {
    let new = wanted.iter().filter(|(address, med)| has.is_none_or(|has| has.get(*address) != Some(*med)));
    let gone = has.into_iter().flatten().filter(|(address, med)| med.is_some() && !wanted.contains_key(*address));
    let paths = new.map(|(address, med)| path(*address, *med)).chain(gone.map(|(address, _)| path(*address, None)));
    client.send(paths.collect()).await
}
