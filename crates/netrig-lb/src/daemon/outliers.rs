//! Backends that clients' connections fail at: each second what was counted is looked at, suspects are asked, and who does not answer is
//! taken out.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use rig_stats::units::Span;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::health::{from_ms, to_ms};
use crate::health::board::TargetKey;
use crate::health::outlier::{Candidate, Ejection, Evidence, History, OutlierRules, OutlierState, Outliers, Spared};
use crate::health::own_connection::{Answer, OwnConnection};
use crate::message::{BackendOutlier, ServiceKey};
use crate::settings::{Rules, Service, ServiceText};

/// Suspects that are asked at a time; others wait.
const MOST_ASKED: usize = 256;

/// What is known of all services with an outlier detection.
#[derive(Debug, Default)]
pub(super) struct OutlierDetection {
    services: HashMap<ServiceKey, Outliers>,
    asked: HashMap<TargetKey, (OwnConnection, Evidence)>,
    /// Suspicions that have been told of, and have led to nothing: told once until something else happens.
    told: HashMap<TargetKey, &'static str>,
}

/// What is kept of a backend for the next control plane.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptOutlier {
    service: ServiceKey,
    backend: SocketAddr,
    in_a_row: u32,
    returned_ms: Option<u64>,
    ejection: Option<KeptEjection>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptEjection {
    /// Milliseconds of the epoch.
    since_ms: u64,
    until_ms: u64,
    reason: String,
}

impl OutlierDetection {
    pub(super) fn recall(kept: Vec<KeptOutlier>) -> Self {
        let mut detection = Self::default();
        for KeptOutlier { service, backend, in_a_row, returned_ms, ejection } in kept {
            let ejection = ejection.map(|KeptEjection { since_ms, until_ms, reason }| Ejection {
                since: from_ms(since_ms),
                until: from_ms(until_ms),
                reason,
            });
            let history = History { ejection, in_a_row, returned: returned_ms.map(from_ms) };
            detection.services.entry(service).or_default().recall(backend, history);
        }
        detection
    }

    pub(super) fn kept(&self) -> Vec<KeptOutlier> {
        let each = self.services.iter().flat_map(|(service, outliers)| {
            outliers.each().map(|(backend, state)| (*service, backend, &state.history))
        });
        let known = each.filter(|(.., history)| history.in_a_row > 0);
        let mut kept: Vec<_> = known
            .map(|(service, backend, History { ejection, in_a_row, returned })| KeptOutlier {
                service,
                backend,
                in_a_row: *in_a_row,
                returned_ms: returned.map(to_ms),
                ejection: ejection.as_ref().map(|Ejection { since, until, reason }| KeptEjection {
                    since_ms: to_ms(*since),
                    until_ms: to_ms(*until),
                    reason: reason.clone(),
                }),
            })
            .collect();
        kept.sort_by_key(|kept| (kept.service, kept.backend));
        kept
    }

    /// Forgets what these rules do not have.
    pub(super) fn retain(&mut self, rules: &Rules) {
        let with_outlier = rules.services.iter().filter(|service| service.outlier.is_some());
        let mut before = std::mem::take(&mut self.services);
        self.services = with_outlier
            .filter_map(|service| {
                let mut outliers = before.remove(&service.key)?;
                let backends = service.backends.iter().filter(|backend| !backend.sorry);
                let backends: HashSet<SocketAddr> = backends.map(|backend| backend.address).collect();
                outliers.retain(|address| backends.contains(&address));
                Some((service.key, outliers))
            })
            .collect();
        let Self { services, asked, told } = self;
        let is_known = |(service, backend): &TargetKey| {
            services.get(service).is_some_and(|outliers| outliers.of(*backend).is_some())
        };
        asked.retain(|key, _| is_known(key));
        told.retain(|key, _| is_known(key));
    }

    pub(super) fn of(&self, service: &Service, backend: SocketAddr) -> Option<&OutlierState> {
        service.outlier.as_ref()?;
        self.services.get(&service.key)?.of(backend)
    }

    /// Looks at what the last second has brought; whether who gets connections has changed. `candidates` are the service's backends with a
    /// weight.
    pub(super) fn look(
        &mut self,
        (service, rules): (&Service, &OutlierRules),
        candidates: &[Candidate],
        (now, clock): (Instant, SystemTime),
    ) -> bool {
        let (key, shown) = (service.key, ServiceText(service.key));
        let Self { services, asked, told } = self;
        let outliers = services.entry(key).or_default();
        outliers.sample(rules, candidates, now);
        let returned = outliers.take_returned(candidates, clock);
        for backend in &returned {
            told.remove(&(key, *backend));
            info!("{shown}: backend {backend} gets new connections again");
        }
        let mut has_changed = !returned.is_empty();
        for (backend, evidence) in outliers.suspects(rules, candidates) {
            let of = (key, backend);
            if asked.contains_key(&of) || asked.len() >= MOST_ASKED {
                continue;
            }
            if let Err(why) = outliers.may_eject(rules, candidates, backend) {
                spare(outliers, told, of, evidence, why);
                continue;
            }
            let source = service.check.as_ref().and_then(|check| check.source);
            match OwnConnection::start(backend, source, now) {
                Ok(connection) => {
                    asked.insert(of, (connection, evidence));
                }
                Err(answer) => has_changed |= conclude(outliers, told, (of, rules), evidence, answer, (now, clock)),
            }
        }
        let own: Vec<TargetKey> = asked.keys().filter(|(service, _)| *service == key).copied().collect();
        for of in own {
            let Some((connection, evidence)) = asked.get_mut(&of) else { continue };
            let Some(answer) = connection.answer(now) else { continue };
            let evidence = *evidence;
            asked.remove(&of);
            // Others may have been taken out meanwhile, by their checks too.
            let is_candidate = candidates.iter().any(|candidate| candidate.address == of.1 && candidate.is_up);
            match outliers.may_eject(rules, candidates, of.1) {
                _ if !is_candidate => outliers.dismiss(of.1, |tally| &mut tally.spared),
                Err(why) if answer != Answer::Accepted => spare(outliers, told, of, evidence, why),
                _ => has_changed |= conclude(outliers, told, (of, rules), evidence, answer, (now, clock)),
            }
        }
        has_changed
    }

    /// What is told of a backend.
    pub(super) fn status(&self, service: &Service, backend: SocketAddr, now: SystemTime) -> Option<BackendOutlier> {
        service.outlier.as_ref()?;
        let Some(state) = self.of(service, backend) else { return Some(BackendOutlier::default()) };
        let ms = |time: Duration| time.as_millis() as u64;
        let ejection = state.history.ejection.as_ref();
        Some(BackendOutlier {
            ejected_ms: ejection.map(|ejection| ms(now.duration_since(ejection.since).unwrap_or_default())),
            left_ms: ejection.map(|ejection| ms(ejection.until.duration_since(now).unwrap_or_default())),
            reason: ejection.map(|ejection| ejection.reason.clone()),
            in_a_row: state.history.in_a_row,
            ejected: state.tally.ejected,
            answered: state.tally.answered,
            unable: state.tally.unable,
            spared: state.tally.spared,
        })
    }
}

/// A suspect stays.
fn spare(
    outliers: &mut Outliers,
    told: &mut HashMap<TargetKey, &'static str>,
    of: TargetKey,
    evidence: Evidence,
    why: Spared,
) {
    outliers.dismiss(of.1, |tally| &mut tally.spared);
    let why = why.text();
    if told.insert(of, why) != Some(why) {
        warn!("{}: backend {}: {evidence}; it stays, as {why}", ServiceText(of.0), of.1);
    }
}

/// What follows from what the balancer's own connection has come to; whether the backend is out for it.
fn conclude(
    outliers: &mut Outliers,
    told: &mut HashMap<TargetKey, &'static str>,
    (of, rules): (TargetKey, &OutlierRules),
    evidence: Evidence,
    answer: Answer,
    (now, clock): (Instant, SystemTime),
) -> bool {
    let (shown, backend) = (ServiceText(of.0), of.1);
    match (answer, evidence) {
        (Answer::Refused(why), _) | (Answer::Silence(why), Evidence::Silent(_)) => {
            let reason = format!("{evidence}, and the balancer's own: {why}");
            let time = outliers.eject(rules, backend, reason.clone(), clock);
            told.remove(&of);
            warn!("{shown}: backend {backend} gets no new connections for {}: {reason}", Span(time));
            true
        }
        // Refusals can be provoked at a server whose accept queue is full, which answers nobody.
        (Answer::Silence(_), Evidence::Refused(_)) => {
            spare(outliers, told, of, evidence, Spared::NotRefused);
            false
        }
        (Answer::Accepted, _) => {
            outliers.note_answer(backend, now);
            outliers.dismiss(backend, |tally| &mut tally.answered);
            if told.insert(of, "answered") != Some("answered") {
                info!(
                    "{shown}: backend {backend}: {evidence}; it stays, as it has answered the balancer's own connection"
                );
            }
            false
        }
        (Answer::Unable(why), _) => {
            outliers.dismiss(backend, |tally| &mut tally.unable);
            if told.insert(of, "unable") != Some("unable") {
                warn!("{shown}: backend {backend}: {evidence}; it stays, as it could not be asked: {why}");
            }
            false
        }
    }
}
