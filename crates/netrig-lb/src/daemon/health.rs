//! Health checks of the balancer's backends: who is checked, what follows for weights, what is kept for the next control plane.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use rig_datapath::balancer::{self as datapath, Balancer, ServiceStatus};
use rig_service::files::ServiceFiles;
use rig_service::{Waker, run_directory};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::counts::{Snapshot, key_of};
use super::outliers::{KeptOutlier, OutlierDetection};
use crate::health::board::{Board, HealthChange, HealthEvent, LastProbe, Outcome, Record, TargetKey};
use crate::health::check::{BackendCheck, BelowQuorum, Check, Destination, OnFailure, PoolRules};
use crate::health::checker::{Checker, Target};
use crate::health::direct::ForwardingPath;
use crate::health::outlier::{BackendCounts, Candidate, OutlierState};
use crate::health::pool::{Member, PoolWeights, weigh};
use crate::health::state::{Health, HealthState};
use crate::message::{BackendHealth, BackendHealthState, Counters, ForwardingMethod, ServiceHealth, ServiceKey};
use crate::settings::{Backend, Rules, Service, ServiceText, protocol};

/// Between two changes of the tables by health: many backends can fail at once.
const SETTLING: Duration = Duration::from_millis(100);

pub(super) struct HealthChecks {
    checker: Option<Checker>,
    /// What it checks.
    targets: Vec<Target>,
    waker: Arc<Waker>,
    /// Where states are kept; none where nothing outlives this process.
    path: Option<PathBuf>,
    /// Of the control plane before, until it is checked.
    kept: HashMap<TargetKey, HealthState>,
    outliers: OutlierDetection,
    in_force: InForce,
    /// When something is to be looked at.
    due: Option<Instant>,
    earliest: Instant,
    /// What the file has.
    written: Vec<u8>,
}

/// What health has made of the rules.
#[derive(Debug, Clone, Default)]
struct InForce {
    pools: HashMap<ServiceKey, PoolWeights>,
    /// When the weight of a backend that starts slowly grows next.
    grows: Option<Instant>,
}

/// What is kept for the next control plane.
#[derive(Debug, Default, Serialize, Deserialize)]
struct HealthFile {
    backends: Vec<KeptBackend>,
    /// Services that had no quorum.
    without_quorum: Vec<ServiceKey>,
    /// Backends that were taken out, and those that have come back from it.
    #[serde(default)]
    outliers: Vec<KeptOutlier>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptBackend {
    service: ServiceKey,
    backend: SocketAddr,
    health: Health,
    /// Milliseconds of the epoch.
    since_ms: u64,
    recovered_ms: Option<u64>,
}

pub(super) fn to_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

pub(super) fn from_ms(ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(UNIX_EPOCH)
}

/// The file in which states are kept.
pub(crate) fn file(files: &ServiceFiles) -> PathBuf {
    files.file("health")
}

impl HealthChecks {
    /// With what the control plane before has left, where it is gone on with.
    pub(super) fn new(waker: Waker, kept_in: Option<&ServiceFiles>, resumes: bool) -> Self {
        let path = kept_in.map(file);
        let kept: HealthFile = path
            .as_ref()
            .filter(|_| resumes)
            .and_then(|path| fs::read(path).ok())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let state = |kept: &KeptBackend| {
            let state = HealthState::of(kept.health, from_ms(kept.since_ms), kept.recovered_ms.map(from_ms));
            ((kept.service, kept.backend), state)
        };
        let pools = kept
            .without_quorum
            .iter()
            .map(|key| (*key, PoolWeights { weights: Vec::new(), has_quorum: false, healthy_weight: 0 }));
        Self {
            checker: None,
            targets: Vec::new(),
            waker: Arc::new(waker),
            path,
            outliers: OutlierDetection::recall(kept.outliers),
            kept: kept.backends.iter().map(state).collect(),
            in_force: InForce { pools: pools.collect(), grows: None },
            due: None,
            earliest: Instant::now(),
            written: Vec::new(),
        }
    }

    /// Checks the backends of these rules from now on.
    pub(super) fn watch(&mut self, rules: &Rules) -> anyhow::Result<()> {
        self.outliers.retain(rules);
        let mut targets = Vec::new();
        for service in &rules.services {
            let Some(check) = &service.check else { continue };
            let check = Arc::new(Check::clone(check));
            let checked = service.backends.iter().filter(|backend| is_checked(backend));
            targets.extend(checked.map(|backend| target(service, backend, &check)));
        }
        if self.checker.is_none() {
            if targets.is_empty() {
                // What was known of backends is old by the time that they are checked again.
                self.kept.clear();
                return Ok(());
            }
            self.checker = Some(self.start()?);
        }
        self.targets = targets.clone();
        if let Some(checker) = &self.checker {
            let kept = std::mem::take(&mut self.kept);
            checker.watch(targets, |key| kept.get(key).copied());
        }
        Ok(())
    }

    fn start(&self) -> anyhow::Result<Checker> {
        let waker = Arc::clone(&self.waker);
        Checker::start(move || waker.wake()).context("start the thread of health checks")
    }

    /// Starts the thread again where it has ended by an error; with what is known of backends. Says so.
    pub(super) fn revive(&mut self) -> Option<String> {
        let ended = self.checker.as_ref().filter(|checker| checker.has_ended())?;
        let known = std::mem::take(&mut *ended.board());
        let started = self.start();
        let checker = match started {
            Ok(checker) => checker,
            Err(error) => {
                if let Some(ended) = &self.checker {
                    *ended.board() = known;
                }
                return Some(format!("the thread of health checks has ended, backends stay as they are: {error:#}"));
            }
        };
        *checker.board() = known;
        checker.watch(self.targets.clone(), |_| None);
        self.checker = Some(checker);
        Some("the thread of health checks has ended by an error, and was started again".to_owned())
    }

    /// Puts rules in force with what is known of their backends' health.
    pub(super) fn apply(&mut self, balancer: &mut Balancer, rules: &Rules) -> Result<(), rig_datapath::Error> {
        let room = balancer.sizes().connections;
        let mut config = rules.config(room);
        let mut in_force = self.weigh(rules, &mut config, SlowStart::Allowed);
        let mut applied = balancer.apply(&config);
        if matches!(applied, Err(rig_datapath::Error::NoRoom { .. })) && in_force.grows.is_some() {
            // Finer weights take more room in schedules.
            config = rules.config(room);
            in_force = self.weigh(rules, &mut config, SlowStart::Skipped);
            applied = balancer.apply(&config);
        }
        applied?;
        self.set_in_force(rules, in_force);
        Ok(())
    }

    /// What `config`, which is what the rules say, comes to with what is known of health now.
    fn weigh(&self, rules: &Rules, config: &mut datapath::Config, slow: SlowStart) -> InForce {
        let (now, clock) = (SystemTime::now(), Instant::now());
        let board = self.checker.as_ref().map(Checker::board);
        let mut in_force = InForce::default();
        let mut configs: HashMap<_, _> =
            config.services.iter_mut().map(|service| ((service.protocol, service.address), service)).collect();
        for service in &rules.services {
            let Some(pool_rules) = service.pool() else { continue };
            let is_up = |backend: &Backend| self.is_up(service, backend, board.as_deref());
            let is_ejected =
                |backend: &Backend| self.outliers.of(service, backend.address).is_some_and(OutlierState::is_ejected);
            let mut all = service.backends.iter();
            // The last one is not out: what is left has to do.
            let others_left =
                all.any(|other| !other.sorry && other.effective_weight() > 0 && is_up(other) && !is_ejected(other));
            let is_out = |backend: &Backend| others_left && is_ejected(backend);
            let member = |backend: &Backend| {
                let outlier =
                    service.outlier.as_ref().map(|outlier| outlier.slow_start).and_then(|slow_start| {
                        Some((self.outliers.of(service, backend.address)?.recovery()?, slow_start))
                    });
                let checked =
                    self.known(service, backend, board.as_deref()).map(|state| (state, pool_rules.slow_start));
                let starts = checked.into_iter().chain(outlier).filter(|_| slow == SlowStart::Allowed);
                let mut tenths = 10;
                for (state, slow_start) in starts {
                    tenths = tenths.min(state.tenths(slow_start, now));
                    // One that gets nothing anyway does not start slowly.
                    let grows = state.grows_after(slow_start, now).filter(|_| backend.effective_weight() > 0);
                    if let Some(at) = grows.map(|after| clock + after) {
                        in_force.grows = Some(in_force.grows.map_or(at, |before| before.min(at)));
                    }
                }
                let is_up = is_up(backend) && !is_out(backend);
                Member { weight: backend.effective_weight(), is_sorry: backend.sorry, is_up, tenths }
            };
            let members: Vec<Member> = service.backends.iter().map(member).collect();
            let had_quorum = self.in_force.pools.get(&service.key).is_none_or(|pool| pool.has_quorum);
            let pool = weigh(&pool_rules, &members, had_quorum);
            if let Some(config) = configs.get_mut(&(protocol(service.key.protocol), service.key.address)) {
                let removes = service.check.as_ref().is_some_and(|check| check.failed == OnFailure::Remove);
                // Connections of one that is taken out stay.
                put(config, service, &pool, |backend| removes && !is_up(backend));
            }
            in_force.pools.insert(service.key, pool);
        }
        in_force
    }

    /// What checks know of a backend.
    fn known(&self, service: &Service, backend: &Backend, board: Option<&Board>) -> Option<HealthState> {
        service.check.as_ref().filter(|_| is_checked(backend))?;
        let key = (service.key, backend.address);
        let record = board.and_then(|board| board.records.get(&key)).map(|record| record.state);
        record.or_else(|| self.kept.get(&key).copied())
    }

    /// Whether checks take a backend to be up.
    fn is_up(&self, service: &Service, backend: &Backend, board: Option<&Board>) -> bool {
        let Some(check) = service.check.as_ref().filter(|_| is_checked(backend)) else { return true };
        // One that will be checked is what it begins as.
        let health = self.known(service, backend, board).map_or(Health::Unknown, |state| state.health);
        health.is_up(check.begin)
    }

    /// Looks for backends that clients' connections fail at, each second.
    pub(super) fn look_for_outliers(&mut self, rules: &Rules, counts: &Snapshot) {
        let (clock, now) = (SystemTime::now(), Instant::now());
        let with_outlier = || rules.services.iter().filter_map(|service| Some((service, service.outlier.as_ref()?)));
        if with_outlier().next().is_none() {
            return;
        }
        let open = counts.services.iter().filter(|status| status.open);
        let in_force: HashMap<ServiceKey, &ServiceStatus> = open.map(|status| (key_of(status), status)).collect();
        let mut has_changed = false;
        for (service, outlier) in with_outlier() {
            let candidates: Vec<Candidate> = {
                let board = self.checker.as_ref().map(Checker::board);
                let backends =
                    service.backends.iter().filter(|backend| !backend.sorry && backend.effective_weight() > 0);
                let candidate = |backend: &Backend| {
                    let counts = in_force.get(&service.key).and_then(|status| counts.backend(status, backend.address));
                    let Counters { connections, out_packets, refused, .. } = counts.unwrap_or_default();
                    let is_up = self.is_up(service, backend, board.as_deref());
                    let counts = BackendCounts { connections, out_packets, refused };
                    Candidate { address: backend.address, is_up, counts }
                };
                backends.map(candidate).collect()
            };
            has_changed |= self.outliers.look((service, outlier), &candidates, (now, clock));
        }
        if has_changed {
            self.woken();
        }
    }

    /// Notes what is in force from now on, and says what has changed for services as a whole.
    fn set_in_force(&mut self, rules: &Rules, now: InForce) {
        for service in &rules.services {
            let (Some(rules), Some(pool)) = (service.pool(), now.pools.get(&service.key)) else { continue };
            let had = self.in_force.pools.get(&service.key).is_none_or(|before| before.has_quorum);
            let (shown, weight, quorum) = (ServiceText(service.key), pool.healthy_weight, rules.quorum);
            match (had, pool.has_quorum) {
                (true, false) => {
                    let below = below_words(&rules, service);
                    warn!("{shown}: healthy backends have a weight of {weight}, and the quorum is {quorum}: {below}");
                }
                (false, true) => info!("{shown}: it has its quorum again, by a weight of {weight}"),
                _ => {}
            }
        }
        self.in_force = now;
    }

    /// The thread of checks has news.
    pub(super) fn woken(&mut self) {
        self.due.get_or_insert(self.earliest);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether tables are to be looked at again; what has happened is told.
    pub(super) fn is_due(&mut self, now: Instant, each_second: bool) -> bool {
        let is_due = self.due.is_some_and(|at| at <= now);
        if is_due {
            self.due = None;
            self.earliest = now + SETTLING;
            let events = self.checker.as_ref().map(|checker| std::mem::take(&mut checker.board().events));
            events.unwrap_or_default().iter().for_each(tell);
        }
        is_due || (each_second && self.in_force.grows.is_some_and(|at| at <= now))
    }

    /// Keeps what is known for the next control plane.
    pub(super) fn write_down(&mut self) -> anyhow::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let outliers = self.outliers.kept();
        if self.checker.is_none() && outliers.is_empty() {
            self.written.clear();
            // What an earlier control plane knew is not true any more once checks come again.
            return match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(error).with_context(|| format!("remove {}", path.display()))
                }
                _ => Ok(()),
            };
        }
        let board = self.checker.as_ref().map(Checker::board);
        let records = board.iter().flat_map(|board| &board.records);
        let mut backends: Vec<KeptBackend> = records
            .filter(|(_, record)| record.state.health != Health::Unknown)
            .map(|((service, backend), Record { state, .. })| KeptBackend {
                service: *service,
                backend: *backend,
                health: state.health,
                since_ms: to_ms(state.since),
                recovered_ms: state.recovered.map(to_ms),
            })
            .collect();
        drop(board);
        backends.sort_by_key(|kept| (kept.service, kept.backend));
        let without = self.in_force.pools.iter().filter(|(_, pool)| !pool.has_quorum);
        let mut without_quorum: Vec<ServiceKey> = without.map(|(key, _)| *key).collect();
        without_quorum.sort_unstable();
        let bytes = serde_json::to_vec(&HealthFile { backends, without_quorum, outliers })?;
        if self.written != bytes {
            run_directory::replace(path, &bytes).with_context(|| format!("write {}", path.display()))?;
            self.written = bytes;
        }
        Ok(())
    }

    /// Whether a service's healthy backends have the weight of its quorum; one of whose backends nothing is known has it.
    pub(super) fn has_quorum(&self, service: &Service) -> bool {
        service.pool().is_none() || self.in_force.pools.get(&service.key).is_none_or(|pool| pool.has_quorum)
    }

    /// What is told of a service and its backends, by address.
    pub(super) fn status(&self, service: &Service) -> Option<(ServiceHealth, BTreeMap<SocketAddr, BackendHealth>)> {
        let (check, rules) = (service.check.as_deref(), service.pool()?);
        let pool = self.in_force.pools.get(&service.key);
        let board = self.checker.as_ref().map(Checker::board);
        let now = SystemTime::now();
        let mut backends = BTreeMap::new();
        for (at, backend) in service.backends.iter().enumerate() {
            let weight =
                pool.and_then(|pool| pool.weights.get(at).copied()).unwrap_or_else(|| Some(backend.effective_weight()));
            let record = board.as_ref().and_then(|board| board.records.get(&(service.key, backend.address)));
            let record = record.filter(|_| check.is_some() && is_checked(backend));
            let mut health = backend_health(check, backend, weight.unwrap_or(0), record, now);
            health.outlier = self.outliers.status(service, backend.address, now).filter(|_| !backend.sorry);
            backends.insert(backend.address, health);
        }
        let health = ServiceHealth {
            check: check.map_or("none", |check| check.probe.name()).to_owned(),
            outlier: service.outlier.is_some(),
            healthy_weight: pool.map_or(0, |pool| pool.healthy_weight),
            quorum: rules.quorum,
            has_quorum: pool.is_none_or(|pool| pool.has_quorum),
            below_quorum: below_words(&rules, service).to_owned(),
        };
        Some((health, backends))
    }
}

/// Whether weights grow after a recovery. Where the tables have no room for it, backends come back at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlowStart {
    Allowed,
    Skipped,
}

/// A sorry server is used when all else has failed, whatever a check would say.
fn is_checked(backend: &Backend) -> bool {
    !backend.sorry && backend.check != BackendCheck::Off
}

fn target(service: &Service, backend: &Backend, check: &Arc<Check>) -> Target {
    let (own_address, own_port) = match backend.check {
        BackendCheck::At { address, port } => (address, port),
        BackendCheck::AsService | BackendCheck::Off => (None, None),
    };
    let address = own_address.unwrap_or(backend.address.ip());
    let port = own_port.or(check.port).unwrap_or(backend.address.port());
    let (key, check) = ((service.key, backend.address), Arc::clone(check));
    // Nobody is asked by the service's address who is asked at another one than the backend's.
    if let (Destination::Service, None, Some(path)) = (check.to, own_address, path(service, backend)) {
        let port = own_port.or(check.port).unwrap_or(service.key.address.port());
        let to = SocketAddr::new(service.key.address.ip(), port);
        return Target { key, check, to, path: Some(path) };
    }
    Target { key, check, to: SocketAddr::new(address, port), path: None }
}

/// How packets with the service's own address get to a backend, where they do.
fn path(service: &Service, backend: &Backend) -> Option<ForwardingPath> {
    let (backend, tunnel) = (backend.address.ip(), backend.tunnel);
    match service.forward? {
        ForwardingMethod::Route => Some(ForwardingPath::NextHop { backend }),
        ForwardingMethod::Tunnel => {
            Some(ForwardingPath::Tunnel { local: *service.tunnel_locals().first()?, backend, tunnel })
        }
        ForwardingMethod::FullNat | ForwardingMethod::Nat => None,
    }
}

/// Puts the weights of a pool into what the datapath shall have. `is_removed`: whether one that is used for nothing is no backend.
fn put(config: &mut datapath::Service, service: &Service, pool: &PoolWeights, is_removed: impl Fn(&Backend) -> bool) {
    let weights: HashMap<SocketAddr, (&Backend, Option<u32>)> = service
        .backends
        .iter()
        .zip(&pool.weights)
        .map(|(backend, weight)| (backend.address, (backend, *weight)))
        .collect();
    config.backends.retain_mut(|backend| match weights.get(&backend.address) {
        Some((_, Some(weight))) => {
            backend.weight = *weight;
            true
        }
        Some((known, None)) => {
            backend.weight = 0;
            !is_removed(known)
        }
        None => true,
    });
}

fn below_words(rules: &PoolRules, service: &Service) -> &'static str {
    let has_sorry = service.backends.iter().any(|backend| backend.sorry && backend.effective_weight() > 0);
    match rules.below(has_sorry) {
        BelowQuorum::All => "all backends are used, whatever their checks say",
        BelowQuorum::Sorry => "the sorry servers alone are used",
        BelowQuorum::Healthy => "those that are healthy go on alone",
    }
}

fn tell(event: &HealthEvent) {
    let HealthEvent { of: (service, backend), what } = event;
    let shown = ServiceText(*service);
    match what {
        HealthChange::Is(Health::Down, reason) => {
            warn!("{shown}: backend {backend} is down: {}", reason.as_deref().unwrap_or("its check has failed"));
        }
        HealthChange::Is(..) => info!("{shown}: backend {backend} is up"),
        HealthChange::Unable(reason) => {
            warn!("{shown}: backend {backend} cannot be checked, and stays as it is: {reason}");
        }
    }
}

fn backend_health(
    check: Option<&Check>,
    backend: &Backend,
    weight: u32,
    record: Option<&Record>,
    now: SystemTime,
) -> BackendHealth {
    let ms = |at: SystemTime| now.duration_since(at).map_or(0, |since| since.as_millis() as u64);
    let state = match record.map(|record| record.state.health) {
        None if check.is_some() && is_checked(backend) => BackendHealthState::Unknown,
        None => BackendHealthState::NotChecked,
        Some(Health::Unknown) => BackendHealthState::Unknown,
        Some(Health::Up) => BackendHealthState::Up,
        Some(Health::Down) => BackendHealthState::Down,
    };
    let last = record.and_then(|record| record.last.as_ref());
    let reason = last.and_then(|LastProbe { outcome, .. }| match outcome {
        Outcome::Good => None,
        Outcome::Bad(reason) => Some(reason.clone()),
        Outcome::Unable(reason) => Some(format!("cannot be checked: {reason}")),
    });
    let (contrary, needed) =
        check.zip(record).map_or((0, 0), |(check, record)| record.state.progress(check.rise, check.fall));
    BackendHealth {
        state,
        state_ms: record.map_or(0, |record| ms(record.state.since)),
        weight_in_force: weight,
        sorry: backend.sorry,
        reason,
        contrary,
        needed,
        good: record.map_or(0, |record| record.good),
        bad: record.map_or(0, |record| record.bad),
        unable: record.map_or(0, |record| record.unable),
        transitions: record.map_or(0, |record| record.transitions),
        last_us: last.map(|last| last.took.as_micros() as u64),
        took_us: record.map_or(0, |record| record.took.as_micros() as u64),
        certificate_end: last
            .and_then(|last| last.certificate_end?.duration_since(SystemTime::UNIX_EPOCH).ok())
            .map(|end| end.as_secs()),
        outlier: None,
    }
}
