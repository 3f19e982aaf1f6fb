//! What the running balancer makes of requests to the family "IPVS".

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libc::{EEXIST, EINVAL, ENODEV, ENOENT, EOPNOTSUPP, ESRCH};
use rig_service::AskError;
use tracing::{info, warn};

use super::family::{self, Errno, Forwarding, command};
use super::kept::AppliedRules;
use super::netlink::{ACK, Attributes, DUMP, MULTI, Message, REQUEST};
use crate::ipvsadm::MAX_TIMEOUT;
use crate::message::{
    BackendEntry, BackendOptions, Protocol, Reply, Request, RuleChange, ServiceEntry, ServiceKey, ServiceOptions,
    Status,
};
use crate::settings::ServiceText;

/// Who is asked: a running balancer, or a test's.
pub(super) trait Balancer: Send + Sync {
    fn ask(&self, request: &Request) -> Result<Reply, AskError>;
}

/// A listing is made of one look at the balancer, however many services it has.
const FRESH: Duration = Duration::from_millis(100);
/// Answers to a dump are put together up to this many bytes.
const DATAGRAM: usize = 4096;

#[derive(Debug)]
struct State {
    kept: AppliedRules,
    seen_last: Option<(Instant, Arc<Status>)>,
}

#[derive(Debug)]
pub(super) struct Answers<B> {
    balancer: B,
    forwarding: Forwarding,
    /// One request after the other, as the kernel's under its mutex.
    state: Mutex<State>,
}

/// What cannot be asked of a balancer now.
fn away(error: &AskError) -> Errno {
    Errno { number: ENODEV, why: Some(error.to_string()) }
}

impl<B: Balancer> Answers<B> {
    pub(super) fn new(balancer: B, forwarding: Forwarding) -> Self {
        Self { balancer, forwarding, state: Mutex::new(State { kept: AppliedRules::default(), seen_last: None }) }
    }

    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn balancer(&self) -> &B {
        &self.balancer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The datagrams that answer a message of this family.
    pub(super) fn answer(&self, message: &Message<'_>) -> Vec<Vec<u8>> {
        if !message.asks(REQUEST) {
            return Vec::new();
        }
        let Some((number, attributes)) = message.generic() else { return vec![message.outcome(EINVAL)] };
        let mut state = self.state();
        let answered = if message.asks(DUMP) {
            self.dump(&mut state, message, number, attributes)
        } else {
            self.one(&mut state, message, number, attributes).map(|mut answers| {
                answers.extend(message.asks(ACK).then(|| message.outcome(0)));
                answers
            })
        };
        answered.unwrap_or_else(|Errno { number, why }| {
            if let Some(why) = why {
                warn!("refused: {why}");
            }
            vec![message.outcome(number)]
        })
    }

    /// The datagrams that answer a question about the family itself.
    pub(super) fn describe(&self, message: &Message<'_>) -> Vec<Vec<u8>> {
        let mut answers = vec![family::described(message)];
        answers.extend(message.asks(ACK).then(|| message.outcome(0)));
        answers
    }

    fn status(&self, state: &mut State) -> Result<Arc<Status>, Errno> {
        if let Some((_, status)) = state.seen_last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(Arc::clone(status));
        }
        let Reply::Status(status) = self.balancer.ask(&Request::Status).map_err(|error| away(&error))? else {
            return Err(Errno { number: EINVAL, why: Some("the balancer answers something else".into()) });
        };
        let status = Arc::new(*status);
        state.seen_last = Some((Instant::now(), Arc::clone(&status)));
        Ok(status)
    }

    fn dump(
        &self,
        state: &mut State,
        message: &Message<'_>,
        number: u8,
        attributes: Attributes<'_>,
    ) -> Result<Vec<Vec<u8>>, Errno> {
        let entries: Vec<Vec<u8>> = match number {
            command::GET_SERVICE => {
                let status = self.status(state)?;
                let open = status.services.iter().filter(|service| service.open);
                open.map(|service| family::service_entry(message, MULTI, service)).collect()
            }
            command::GET_DEST => {
                // The kernel lists nothing for a service that there is not.
                let key = family::service(attributes).ok();
                let status = self.status(state)?;
                let service = status.services.iter().find(|service| service.open && Some(service.key) == key);
                let backends = service.into_iter().flat_map(|service| {
                    let there = service.backends.iter().filter(|backend| !backend.leaving);
                    there.map(|backend| family::destination_entry(message, MULTI, service.forward, backend))
                });
                backends.collect()
            }
            // There are none.
            command::GET_DAEMON => Vec::new(),
            _ => return Err(EOPNOTSUPP.into()),
        };
        let mut datagrams: Vec<Vec<u8>> = Vec::new();
        for entry in entries {
            match datagrams.last_mut() {
                Some(last) if last.len() + entry.len() <= DATAGRAM => last.extend(entry),
                _ => datagrams.push(entry),
            }
        }
        datagrams.push(message.done());
        Ok(datagrams)
    }

    fn one(
        &self,
        state: &mut State,
        message: &Message<'_>,
        number: u8,
        attributes: Attributes<'_>,
    ) -> Result<Vec<Vec<u8>>, Errno> {
        match number {
            command::GET_INFO => Ok(vec![family::info(message, &*self.status(state)?)]),
            command::GET_CONFIG => Ok(vec![family::config(message, &*self.status(state)?)]),
            command::GET_SERVICE => {
                let key = family::service(attributes)?;
                let status = self.status(state)?;
                let service = status.services.iter().find(|service| service.open && service.key == key);
                Ok(vec![family::service_entry(message, 0, service.ok_or(ESRCH)?)])
            }
            command::NEW_DAEMON | command::DEL_DAEMON => {
                let why = "a daemon that synchronizes connections (--start-daemon, lvs_sync_daemon): [sync] in the balancer's file does it";
                Err(Errno { number: EOPNOTSUPP, why: Some(why.into()) })
            }
            command::ZERO => {
                let key = attributes.nested(family::SERVICE).map(|_| family::service(attributes)).transpose()?;
                state.seen_last = None;
                match self.balancer.ask(&Request::Zero(key)) {
                    Ok(_) => Ok(Vec::new()),
                    Err(AskError::Refused(_)) if key.is_some() => Err(ESRCH.into()),
                    Err(error) => Err(away(&error)),
                }
            }
            _ => {
                let change = self.change(number, attributes)?;
                self.make(state, &change)?;
                Ok(Vec::new())
            }
        }
    }

    fn change(&self, number: u8, attributes: Attributes<'_>) -> Result<RuleChange, Errno> {
        Ok(match number {
            command::FLUSH => RuleChange::Clear,
            command::SET_CONFIG => {
                let seconds = |kind| match attributes.u32(kind).unwrap_or(0) {
                    seconds if seconds <= MAX_TIMEOUT => Ok(seconds),
                    seconds => {
                        Err(Errno { number: EINVAL, why: Some(format!("{seconds} s: timeouts are 1 s to 30 days")) })
                    }
                };
                let (tcp, tcp_fin) = (seconds(family::TIMEOUT_TCP)?, seconds(family::TIMEOUT_TCP_FIN)?);
                RuleChange::Timeouts { tcp, tcp_fin, udp: seconds(family::TIMEOUT_UDP)? }
            }
            command::NEW_SERVICE | command::SET_SERVICE => {
                let service = family::service(attributes)?;
                let family::WantedService { scheduler, persistence, is_one_packet } =
                    family::wanted_service(attributes)?;
                if scheduler == "mh" && !family::says_port_of_maglev(attributes) {
                    let what = "mh is by the client's address and port, as in IPVS with mh-port";
                    info!("service {}: {what}", ServiceText(service));
                }
                // Of TCP it is refused where it is asked for.
                let one_packet = (is_one_packet || service.protocol == Protocol::Udp).then_some(is_one_packet);
                let options =
                    ServiceOptions { scheduler: Some(scheduler), persistence, one_packet, ..ServiceOptions::default() };
                match number {
                    command::NEW_SERVICE => RuleChange::AddService { service, options },
                    _ => RuleChange::EditService { service, options },
                }
            }
            command::DEL_SERVICE => RuleChange::DeleteService { service: family::service(attributes)? },
            command::NEW_DEST | command::SET_DEST => {
                let service = family::service(attributes)?;
                let backend = family::destination(attributes, service)?;
                let wanted = family::wanted_destination(attributes, backend, &self.forwarding)?;
                let options = BackendOptions {
                    forward: Some(wanted.forward),
                    weight: Some(wanted.weight),
                    limit: Some(wanted.limit),
                    lower_limit: Some(wanted.lower_limit),
                    tunnel: wanted.tunnel,
                    local: self.forwarding.local_for(backend.ip()),
                    drain_ms: None,
                    quic_id: None,
                };
                match number {
                    command::NEW_DEST => RuleChange::AddBackend { service, backend, options },
                    _ => RuleChange::EditBackend { service, backend, options },
                }
            }
            command::DEL_DEST => {
                let service = family::service(attributes)?;
                RuleChange::DeleteBackend { service, backend: family::destination(attributes, service)? }
            }
            _ => return Err(EOPNOTSUPP.into()),
        })
    }

    fn make(&self, state: &mut State, change: &RuleChange) -> Result<(), Errno> {
        state.seen_last = None;
        match self.balancer.ask(&Request::Edit(change.clone())) {
            Ok(_) => {
                state.kept.learn(change);
                Ok(())
            }
            Err(AskError::Refused(refusal)) => {
                let status = self.status(state)?;
                let known = reason(&status, change);
                let deletes = matches!(change, RuleChange::DeleteService { .. } | RuleChange::DeleteBackend { .. });
                if known == Some(EEXIST) || deletes && known.is_some() {
                    state.kept.learn_as_it_is(change);
                }
                Err(known.map(Errno::from).unwrap_or_else(|| Errno { number: EINVAL, why: Some(refusal.to_string()) }))
            }
            Err(error) => Err(away(&error)),
        }
    }

    fn missing(&self, state: &State) -> Result<Vec<RuleChange>, AskError> {
        match self.balancer.ask(&Request::Status)? {
            Reply::Status(status) => Ok(state.kept.missing(&status)),
            _ => Ok(Vec::new()),
        }
    }

    /// Gives a balancer that was started again, or has read its file again, what it does not have any more.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub(super) fn put_again(&self) -> Result<(), AskError> {
        let mut state = self.state();
        let missing = self.missing(&state)?;
        state.seen_last = None;
        let count = missing.len();
        if count == 0 {
            info!("{AGAIN}, and has all that was put into it");
            return Ok(());
        }
        let mut given = None;
        let edits = missing.into_iter().map(|change| self.with_local(change, &mut given)).collect();
        match self.balancer.ask(&Request::Edits(edits)) {
            Ok(_) => info!("{AGAIN}: put into it what it lacked, in {count} changes"),
            // One is in the way of all, or another program has been faster.
            Err(AskError::Refused(_)) => self.put_one_by_one(&state)?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn put_one_by_one(&self, state: &State) -> Result<(), AskError> {
        /// Refusals that are told one by one.
        const TOLD: usize = 20;
        let (mut made, mut refused) = (0_usize, 0_usize);
        for change in self.missing(state)? {
            let shown = shown(&change);
            match self.balancer.ask(&Request::Edit(self.with_local(change, &mut None))) {
                Ok(_) => made += 1,
                Err(AskError::Refused(refusal)) => {
                    refused += 1;
                    if refused <= TOLD {
                        warn!("{AGAIN}, and does not take what it had before: {shown}: {refusal}");
                    }
                }
                Err(error) => return Err(error),
            }
        }
        info!("{AGAIN}: put into it what it lacked, in {made} changes; {refused} were refused");
        Ok(())
    }

    /// A service gets its local addresses of a family with the first of its backends of that; `given` is the last one that has, and
    /// whether they were of IPv4.
    fn with_local(&self, mut change: RuleChange, given: &mut Option<(ServiceKey, bool)>) -> RuleChange {
        if let RuleChange::AddBackend { service, backend, options } = &mut change
            && let of_family = Some((*service, backend.is_ipv4()))
            && *given != of_family
        {
            *given = of_family;
            options.local = self.forwarding.local_for(backend.ip());
        }
        change
    }
}

/// Why the log speaks of what is put in again.
const AGAIN: &str = "the balancer was started again, or has read its file again";

/// What a change is about.
fn shown(change: &RuleChange) -> String {
    match change {
        RuleChange::AddService { service, .. } | RuleChange::EditService { service, .. } => {
            ServiceText(*service).to_string()
        }
        RuleChange::AddBackend { service, backend, .. } | RuleChange::EditBackend { service, backend, .. } => {
            format!("{backend} of {}", ServiceText(*service))
        }
        _ => "timeouts".to_owned(),
    }
}

/// Why a change is refused, where the kernel has a number for it.
fn reason(status: &Status, change: &RuleChange) -> Option<i32> {
    let service = |key| status.services.iter().find(|service| service.open && service.key == key);
    match change {
        RuleChange::AddService { service: key, .. } => service(*key).map(|_| EEXIST),
        RuleChange::EditService { service: key, .. } | RuleChange::DeleteService { service: key } => {
            service(*key).is_none().then_some(ESRCH)
        }
        RuleChange::AddBackend { service: key, backend, .. } => match service(*key) {
            None => Some(ESRCH),
            Some(service) => backend_of(service, *backend).map(|_| EEXIST),
        },
        RuleChange::EditBackend { service: key, backend, .. } | RuleChange::DeleteBackend { service: key, backend } => {
            match service(*key) {
                None => Some(ESRCH),
                Some(service) => backend_of(service, *backend).is_none().then_some(ENOENT),
            }
        }
        _ => None,
    }
}

pub(super) fn backend_of(service: &ServiceEntry, backend: SocketAddr) -> Option<&BackendEntry> {
    service.backends.iter().find(|entry| !entry.leaving && entry.address == backend)
}
