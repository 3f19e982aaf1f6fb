//! A thread that talks to the speaker: it has it announce what it is ordered to, tells what it hears, and begins again when the
//! speaker was away.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, interval_at, sleep};

use super::announced::{Routes, is_own};
use super::client::{Client, Result};
use super::path::{of_message, to_message};
use super::route::{RouteAttributes, RouteChange, RouteSubject};
use super::{Order, SpeakerEvent};

/// Before it is tried again; twice as long each time. A speaker that restarts shall have its routes before its neighbours are
/// there again, which GoBGP gives 5 s: they drop then what it has not told them.
const SHORTEST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_millis(250);
/// How often a speaker that says nothing is asked whether it is there.
const BEAT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
enum SpeakerCommand {
    Order(Order),
    Stop { withdraw: bool },
}

/// It ends when this is dropped; what was announced then stays announced.
#[derive(Debug)]
pub struct Speaker {
    wanted: watch::Sender<SpeakerCommand>,
    heard: Receiver<SpeakerEvent>,
    thread: Option<JoinHandle<()>>,
}

impl Speaker {
    /// `wake` is called when something can be heard.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(order: Order, wake: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let (wanted, order) = watch::channel(SpeakerCommand::Order(order));
        let (sender, heard) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let body = move || runtime.block_on(work(order, &EventSender { sender, wake: Box::new(wake) }));
        let thread = Some(std::thread::Builder::new().name("bgp".into()).spawn(body)?);
        Ok(Self { wanted, heard, thread })
    }

    pub fn order(&self, order: Order) {
        self.wanted.send_if_modified(|wanted| {
            let is_new = !matches!(wanted, SpeakerCommand::Order(old) if *old == order);
            *wanted = SpeakerCommand::Order(order);
            is_new
        });
    }

    /// What has come since it was asked last.
    pub fn heard(&self) -> impl Iterator<Item = SpeakerEvent> {
        self.heard.try_iter()
    }

    /// Waits so long for something to come.
    pub fn wait(&self, time_limit: Duration) -> Option<SpeakerEvent> {
        self.heard.recv_timeout(time_limit).ok()
    }

    /// Has all that it announced withdrawn and ends.
    pub fn withdraw(self) {
        self.wanted.send_replace(SpeakerCommand::Stop { withdraw: true });
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.wanted.send_if_modified(|wanted| {
            let goes_on = matches!(wanted, SpeakerCommand::Order(_));
            if goes_on {
                *wanted = SpeakerCommand::Stop { withdraw: false };
            }
            goes_on
        });
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct EventSender {
    sender: Sender<SpeakerEvent>,
    wake: Box<dyn Fn() + Send>,
}

impl EventSender {
    fn tell(&self, heard: SpeakerEvent) {
        // The daemon may have ended.
        let _ = self.sender.send(heard);
        (self.wake)();
    }
}

type Orders = watch::Receiver<SpeakerCommand>;

async fn work(mut orders: Orders, teller: &EventSender) {
    let mut rest = SHORTEST_REST;
    let mut trouble = None;
    loop {
        let order = match &*orders.borrow_and_update() {
            SpeakerCommand::Order(order) => order.clone(),
            SpeakerCommand::Stop { .. } => return,
        };
        let mut was_connected = false;
        let ended = converse(order, &mut orders, teller, &mut was_connected).await;
        if was_connected {
            (rest, trouble) = (SHORTEST_REST, None);
        }
        let Err(why) = ended else { continue };
        if trouble.as_ref() != Some(&why) {
            teller.tell(SpeakerEvent::Lost(why.clone()));
            trouble = Some(why);
        }
        tokio::select! {
            () = sleep(rest) => rest = (2 * rest).min(LONGEST_REST),
            _ = orders.changed() => {}
        }
    }
}

/// Ends well when another speaker is wanted, or none.
async fn converse(mut order: Order, orders: &mut Orders, teller: &EventSender, is_connected: &mut bool) -> Result<()> {
    let mut client = Client::connect(&order.address).await?;
    let global = client.global().await?;
    let mut events = client.watch().await?;
    let first: Vec<RouteChange> = events.first().await?.iter().filter_map(of_message).collect();
    // It may have some of a router that ran here before.
    let mut has: Routes = first.iter().filter_map(|told| own(told, order.node)).collect();
    send(&mut client, &mut has, &order).await?;
    *is_connected = true;
    let (autonomous_system, identifier) = (global.asn, global.router_id);
    teller.tell(SpeakerEvent::Connected { autonomous_system, identifier });
    teller.tell(SpeakerEvent::Changes(first));
    teller.tell(SpeakerEvent::Announced(has.len()));
    let mut beat = interval_at(Instant::now() + BEAT, BEAT);
    loop {
        tokio::select! {
            paths = events.next() => {
                let told: Vec<RouteChange> = paths?.iter().filter_map(of_message).collect();
                if !told.is_empty() {
                    teller.tell(SpeakerEvent::Changes(told));
                }
            }
            _ = beat.tick() => drop(client.global().await?),
            _ = orders.changed() => {
                let wanted = orders.borrow_and_update().clone();
                match wanted {
                    SpeakerCommand::Order(new) if (&new.address, new.node) == (&order.address, order.node) => order = new,
                    SpeakerCommand::Stop { withdraw: false } => return Ok(()),
                    SpeakerCommand::Order(_) | SpeakerCommand::Stop { withdraw: true } => {
                        teller.tell(SpeakerEvent::Lost("it is not asked any more".to_owned()));
                        order.routes = Arc::default();
                        return send(&mut client, &mut has, &order).await;
                    }
                }
                send(&mut client, &mut has, &order).await?;
                teller.tell(SpeakerEvent::Announced(has.len()));
            }
        }
    }
}

/// A route that the speaker has from a router of this node.
fn own(told: &RouteChange, node: Ipv4Addr) -> Option<(RouteSubject, RouteAttributes)> {
    let RouteChange::Announced { subject, says, is_local: true } = told else { return None };
    (is_own(subject.distinguisher(), node) && says.next_hop == node).then(|| (subject.clone(), says.clone()))
}

/// Has the speaker have what is ordered in place of what it has.
async fn send(client: &mut Client, has: &mut Routes, order: &Order) -> Result<()> {
    let new = order.routes.iter().filter(|(subject, says)| has.get(*subject) != Some(*says));
    let gone = has.keys().filter(|subject| !order.routes.contains_key(*subject));
    let announce = new.map(|(subject, says)| to_message(subject, Some(says)));
    let withdraw = gone.map(|subject| to_message(subject, None));
    client.send(announce.chain(withdraw).collect()).await?;
    has.clone_from(&order.routes);
    Ok(())
}
