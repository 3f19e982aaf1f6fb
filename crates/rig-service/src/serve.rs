//! A service at work: what comes from its clients, from signals and from the kernel is given to it, one after the other.
//!
//! ```text
//! socket, or standard streams ── Question ──┐
//! signals: stop, hangup ────────────────────┼─ Event ──> one loop ──> Service
//! metrics over HTTP ────────────────────────┤
//! changes of the kernel, its own threads ───┘
//! ```

use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rig_cli::exit::{Exit, ExitContext, Failure, in_words};
use rig_cli::streams::print;
use rig_lines::Refusal;
use rig_sys::clock::{monotonic_ns, own_cpu_ns, process_cpu_ns};
use rig_sys::netlink;
use tracing::{error, info, warn};

use crate::files::{ServiceFiles, ServiceKind};
use crate::http;
use crate::manager::ServiceManager;
use crate::protocol::{Answer, Question, Stamped, refusal};
use crate::server::{Conversation, SocketServer};
use crate::service::{End, KernelEventFilter, Replies, Service, Waker};

/// What comes to a service.
pub(crate) enum Event<Q, A> {
    Question(Question<Q>, Replies<A>),
    /// Its file shall be read again.
    Reload,
    Changed,
    Woken,
    Metrics(SyncSender<Option<String>>),
    Stop,
}

type EventOf<S> = Event<<S as Service>::Request, <S as Service>::Reply>;

/// A service that has begun.
#[derive(Debug)]
pub struct Started<S> {
    pub service: S,
    /// Where its metrics are served.
    pub metrics: Option<TcpListener>,
}

/// Runs a service of the machine, the only one of its name: `taken` says what is wrong where there is one already. `start` is called
/// with the lock held.
///
/// # Errors
/// As `start` and [`Service::stop`] say, and when it cannot be asked.
pub fn serve<S: Service>(
    files: &ServiceFiles,
    taken: impl FnOnce(&str) -> Failure,
    start: impl FnOnce(Waker) -> Result<Started<S>, Failure>,
) -> Result<Exit, Failure> {
    let _lock = files.lock(taken)?;
    let (sender, events) = mpsc::channel();
    connect::<S>(&sender)?;
    let Started { mut service, metrics } = start(waker(&sender))?;
    let server = match open(&service, files, metrics, sender) {
        Ok(server) => server,
        Err(failure) => {
            service.stop(End::Failure)?;
            return Err(failure);
        }
    };
    let mut manager = ServiceManager::of_process();
    manager.ready();
    let end = work(&mut service, &events, &mut manager);
    manager.stopping();
    let ended = service.stop(end);
    server.stop();
    ended
}

/// Runs a service for the one process that has started it: it is asked over standard input and output, has its settings from there,
/// and ends with its input. It has no files on the machine.
///
/// # Errors
/// As [`serve`]; who started it is told as well.
pub fn serve_on_stdio<S: Service>(
    kind: &ServiceKind,
    start: impl FnOnce(&str, Waker) -> Result<Started<S>, Failure>,
) -> Result<Exit, Failure> {
    let (sender, events) = mpsc::channel();
    connect::<S>(&sender)?;
    let (give, ended) = (sender.clone(), sender.clone());
    let conversation = Conversation::default();
    let unanswered = conversation.clone();
    let protocol = kind.protocol();
    let body = move || {
        let give = |question, replies| give.send(Event::Question(question, replies)).is_ok();
        let over = conversation.hold(std::io::stdin(), std::io::stdout(), &protocol, &give);
        if let Err(error) = over {
            warn!("standard input: {error}");
        }
        let _gone = ended.send(Event::Stop);
    };
    thread::Builder::new().name("stdio".into()).spawn(body).context("start a thread").or_exit(Exit::Failed)?;
    let Some((settings, replies)) = first(&events) else { return Ok(Exit::Done) };
    let begun = start(&settings, waker(&sender)).and_then(|Started { service, metrics }| {
        if let Some(listener) = metrics {
            serve_metrics(listener, &sender)?;
        }
        Ok(service)
    });
    let ended = match begun {
        Ok(mut service) => {
            replies.give(Answer::Started { introduction: service.introduction() });
            let end = work(&mut service, &events, &mut ServiceManager::default());
            service.stop(end)
        }
        Err(failure) => {
            replies.refuse(Refusal::new(failure.to_string(), failure.next.clone()));
            Err(failure)
        }
    };
    unanswered.finish();
    ended
}

/// The settings that a service begins with; none where its input ends before.
fn first<Q, A>(events: &Receiver<Event<Q, A>>) -> Option<(String, Replies<A>)> {
    loop {
        match events.recv() {
            Ok(Event::Question(Question::Start { settings }, replies)) => return Some((settings, replies)),
            Ok(Event::Question(_, replies)) => {
                replies.refuse(Refusal::new("it has not been started yet", Some("send its settings first".to_owned())));
            }
            Ok(Event::Stop) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

fn waker<Q: Send + 'static, A: Send + 'static>(sender: &Sender<Event<Q, A>>) -> Waker {
    let sender = sender.clone();
    // The send fails when the service has ended, and the process ends too.
    Waker::new(move || drop(sender.send(Event::Woken)))
}

/// Has signals and the kernel heard.
fn connect<S: Service>(sender: &Sender<EventOf<S>>) -> Result<(), Failure> {
    let (stop, reload) = (sender.clone(), sender.clone());
    let caught = rig_sys::signal::on_stop_or_hangup(
        move || drop(stop.send(Event::Stop)),
        move || drop(reload.send(Event::Reload)),
    );
    caught.context("catch signals").or_exit(Exit::Failed)?;
    let Some(watched) = S::WATCHES else { return Ok(()) };
    watch(watched, sender.clone()).with_context(|| format!("watch {}", watched.what)).or_exit(Exit::Failed)
}

/// Lets clients ask, and says that it is there.
fn open<S: Service>(
    service: &S,
    files: &ServiceFiles,
    metrics: Option<TcpListener>,
    sender: Sender<EventOf<S>>,
) -> Result<SocketServer, Failure> {
    if let Some(listener) = metrics {
        serve_metrics(listener, &sender)?;
    }
    let give = move |question, replies| sender.send(Event::Question(question, replies)).is_ok();
    let server = SocketServer::start(&files.socket(), files.kind().protocol(), give).or_exit(Exit::Failed)?;
    match print(&service.introduction()) {
        Ok(()) => Ok(server),
        Err(failure) => {
            server.stop();
            Err(failure)
        }
    }
}

fn serve_metrics<Q, A>(listener: TcpListener, sender: &Sender<Event<Q, A>>) -> Result<(), Failure>
where
    Q: Send + 'static,
    A: Send + 'static,
{
    let sender = sender.clone();
    let render = move || {
        let (to, text) = mpsc::sync_channel(1);
        sender.send(Event::Metrics(to)).ok()?;
        text.recv_timeout(http::TIMEOUT).ok()?
    };
    http::serve(listener, render).context("serve metrics").or_exit(Exit::Failed)
}

/// Between two events of the kernel: much can change at once.
const SETTLING: Duration = Duration::from_millis(50);

/// Tells of changes in the namespace that it was called in.
fn watch<Q: Send + 'static, A: Send + 'static>(
    watched: KernelEventFilter,
    to: Sender<Event<Q, A>>,
) -> anyhow::Result<()> {
    let changes = netlink::Events::here()?;
    let body = move || {
        let mut sent = Instant::now();
        while let Ok(events) = changes.wait(Duration::from_secs(60)) {
            if !events.iter().any(watched.concerns) {
                continue;
            }
            thread::sleep(SETTLING.saturating_sub(sent.elapsed()));
            sent = Instant::now();
            if to.send(Event::Changed).is_err() {
                return;
            }
        }
        // A socket that is of no more use is told of once.
        error!("changes of {} are no longer noticed: reload after a change", watched.what);
    };
    thread::Builder::new().name("watch".into()).spawn(body)?;
    Ok(())
}

/// Works until it is told to end.
pub(crate) fn work<S: Service>(
    service: &mut S,
    events: &Receiver<EventOf<S>>,
    manager: &mut ServiceManager,
) -> End<S::Reply> {
    loop {
        if Instant::now() >= service.due() {
            service.tick();
        }
        let due = manager.alive().map_or(service.due(), |alive| alive.min(service.due()));
        match events.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Event::Question(question, replies)) => {
                if let ControlFlow::Break(replies) = answer(service, question, replies, manager) {
                    return End::Request(replies);
                }
            }
            Ok(Event::Reload) => match manager.during_reload(|| service.reload(None)) {
                Ok(lines) => lines.iter().for_each(|line| info!("reload: {line}")),
                Err(refusal) => error!("reload refused, all stays as it was: {refusal}"),
            },
            Ok(Event::Changed) => service.changed(),
            Ok(Event::Woken) => service.woken(),
            Ok(Event::Metrics(to)) => {
                let text =
                    service.metrics().map_err(|error| error!("cannot render metrics: {}", in_words(&error))).ok();
                let _gone = to.try_send(text);
            }
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return End::Signal,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn answer<S: Service>(
    service: &mut S,
    question: Question<S::Request>,
    replies: Replies<S::Reply>,
    manager: &ServiceManager,
) -> ControlFlow<Replies<S::Reply>> {
    let answer = match question {
        Question::Ask(request) => return service.answer(request, replies),
        Question::Start { .. } => Err(Refusal::new("it has been started already", None)),
        Question::Reload { settings } => {
            manager.during_reload(|| service.reload(settings.as_deref())).map(Answer::Done)
        }
        Question::Counters => {
            let (cpu_before_ns, from_ns) = (own_cpu_ns(), monotonic_ns());
            let counters = service.counters().map_err(refusal);
            counters.map(|counters| {
                let cpu_ns = own_cpu_ns().saturating_sub(cpu_before_ns);
                let (user, system) = process_cpu_ns();
                let process_cpu_ns = user + system;
                Answer::Counters(Stamped { from_ns, to_ns: monotonic_ns(), cpu_ns, process_cpu_ns, counters })
            })
        }
    };
    match answer {
        Ok(answer) => replies.give(answer),
        Err(refusal) => replies.refuse(refusal),
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
