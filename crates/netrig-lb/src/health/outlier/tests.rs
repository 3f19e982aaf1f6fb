use proptest::prelude::*;

use super::*;

const AT: SystemTime = SystemTime::UNIX_EPOCH;

fn wall(seconds: u64) -> SystemTime {
    AT + Duration::from_secs(seconds)
}

fn address(number: usize) -> SocketAddr {
    ([10, 0, 0, number as u8], 80).into()
}

/// Backends of a service whose counters are raised second by second.
struct Service {
    outliers: Outliers,
    rules: OutlierRules,
    candidates: Vec<Candidate>,
    begun: Instant,
    second: u64,
}

impl Service {
    fn new(backends: usize) -> Self {
        let candidate = |number| Candidate { address: address(number), is_up: true, counts: BackendCounts::default() };
        let mut service = Self {
            outliers: Outliers::default(),
            rules: OutlierRules::default(),
            candidates: (0..backends).map(candidate).collect(),
            begun: Instant::now(),
            second: 0,
        };
        service.pass(&[]);
        service
    }

    /// A second, in which backends have begun so many connections, sent so many packets, and refused.
    fn pass(&mut self, more: &[(u64, u64, u64)]) {
        for (candidate, (connections, out_packets, refused)) in self.candidates.iter_mut().zip(more) {
            candidate.counts.connections += connections;
            candidate.counts.out_packets += out_packets;
            candidate.counts.refused += refused;
        }
        let now = self.begun + Duration::from_secs(self.second);
        self.outliers.sample(&self.rules, &self.candidates, now);
        self.second += 1;
    }

    fn suspects(&self) -> Vec<(usize, Evidence)> {
        let suspects = self.outliers.suspects(&self.rules, &self.candidates).into_iter();
        let number = |wanted| self.candidates.iter().position(|candidate| candidate.address == wanted).unwrap();
        suspects.map(|(address, evidence)| (number(address), evidence)).collect()
    }

    fn may_eject(&self, number: usize) -> bool {
        self.outliers.may_eject(&self.rules, &self.candidates, address(number)).is_ok()
    }

    fn eject(&mut self, number: usize, at: u64) -> u64 {
        self.outliers.eject(&self.rules, address(number), "refused".to_owned(), wall(at)).as_secs()
    }

    fn returned(&mut self, at: u64) -> Vec<SocketAddr> {
        self.outliers.take_returned(&self.candidates, wall(at))
    }
}

const WELL: (u64, u64, u64) = (3, 30, 0);

#[test]
fn refusals_within_the_interval_are_evidence() {
    let mut service = Service::new(2);
    service.pass(&[WELL, (4, 4, 4)]);
    assert_eq!(service.suspects(), []);
    service.pass(&[WELL, (1, 1, 1)]);
    assert_eq!(service.suspects(), [(1, Evidence::Refused(5))]);
    // That others' data come from it does not answer those who are refused.
    service.pass(&[WELL, (0, 100, 0)]);
    assert_eq!(service.suspects(), [(1, Evidence::Refused(5))]);
    (0..10).for_each(|_| service.pass(&[WELL, (0, 0, 0)]));
    assert_eq!(service.suspects(), []);
}

#[test]
fn silence_of_an_interval_is_evidence_once_an_answer_would_be_there() {
    let mut service = Service::new(2);
    (0..7).for_each(|_| service.pass(&[WELL, (0, 0, 0)]));
    service.pass(&[WELL, (5, 0, 0)]);
    service.pass(&[WELL, (9, 0, 0)]);
    service.pass(&[WELL, (9, 0, 0)]);
    assert_eq!(service.suspects(), [], "after two seconds");
    service.pass(&[WELL, (0, 0, 0)]);
    assert_eq!(service.suspects(), [(1, Evidence::Silent(5))]);
    // Of one that is looked at for less than the interval nothing is known.
    let mut service2 = Service::new(2);
    (0..9).for_each(|_| service2.pass(&[WELL, (9, 0, 0)]));
    assert_eq!(service2.suspects(), []);
    // One packet of any connection.
    service.pass(&[WELL, (0, 1, 0)]);
    assert_eq!(service.suspects(), []);
    // Until it is older than the interval.
    (0..9).for_each(|_| service.pass(&[WELL, (1, 0, 0)]));
    assert_eq!(service.suspects(), []);
    service.pass(&[WELL, (1, 0, 0)]);
    assert!(matches!(service.suspects()[..], [(1, Evidence::Silent(_))]), "{:?}", service.suspects());
}

#[test]
fn a_flood_that_is_answered_speaks_against_nobody() {
    let mut service = Service::new(2);
    // Forged SYNs: each has its SYN-ACK, and no client goes on.
    (0..30).for_each(|_| service.pass(&[(100_000, 300_000, 0), WELL]));
    assert_eq!(service.suspects(), []);
}

#[test]
fn a_backend_is_out_while_others_answer_and_never_more_than_the_share() {
    let dead = (2, 0, 0);
    let mut service = Service::new(4);
    (0..10).for_each(|_| service.pass(&[WELL, dead, dead, dead]));
    assert_eq!(service.suspects().len(), 3);
    assert!(service.may_eject(1));
    service.eject(1, 100);
    assert_eq!(service.suspects().iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3]);
    assert!(service.may_eject(2));
    service.eject(2, 100);
    assert!(!service.may_eject(3), "more than half");
    // All that are left are silent: none differs from the others.
    let mut service = Service::new(4);
    (0..8).for_each(|_| service.pass(&[dead, dead, dead, dead]));
    assert!((0..4).all(|number| !service.may_eject(number)));
    // Nor where others refuse, or have had no packet to answer.
    let mut service = Service::new(3);
    (0..8).for_each(|_| service.pass(&[(1, 1, 1), dead, (0, 0, 0)]));
    assert!(!service.may_eject(1));
    let mut service = Service::new(1);
    (0..8).for_each(|_| service.pass(&[dead]));
    assert!(!service.may_eject(0), "the last one");
}

/// What speaks against a backend that answers may be forged: it keeps nobody else in.
#[test]
fn one_that_is_suspected_and_answers_shields_no_other() {
    let mut service = Service::new(2);
    (0..10).for_each(|_| service.pass(&[(9, 30, 6), (9, 9, 9)]));
    assert_eq!(service.suspects().iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(
        service.outliers.may_eject(&service.rules, &service.candidates, address(0)),
        Err(Spared::NoOtherAnswers)
    );
    service.outliers.dismiss(address(0), |tally| &mut tally.spared);
    service.pass(&[(9, 9, 9), (9, 9, 9)]);
    assert!(service.may_eject(1));
    // Until it has not answered for an interval.
    (0..10).for_each(|_| service.pass(&[(9, 9, 9), (9, 9, 9)]));
    assert!(!service.may_eject(1));
    service.outliers.note_answer(address(0), service.begun + Duration::from_secs(service.second));
    service.pass(&[]);
    assert!(service.may_eject(1));
}

#[test]
fn it_comes_back_and_is_out_for_longer_when_it_fails_again() {
    let mut service = Service::new(2);
    assert_eq!(service.eject(1, 100), 30);
    assert_eq!(service.returned(129), []);
    assert_eq!(service.returned(130), [address(1)]);
    assert_eq!(service.eject(1, 140), 60);
    assert_eq!(service.returned(200), [address(1)]);
    assert_eq!(service.eject(1, 220), 90);
    assert_eq!(service.returned(310), [address(1)]);
    // Half an hour later all of it is forgotten.
    assert_eq!(service.eject(1, 2110), 30);
    // Each 30 s in use takes one away.
    assert_eq!(service.returned(2140), [address(1)]);
    assert_eq!(service.eject(1, 2150), 60);
    assert_eq!(service.returned(2210), [address(1)]);
    assert_eq!(service.eject(1, 2241), 60);
    for _ in 0..20 {
        let until = service.outliers.of(address(1)).unwrap().history.ejection.clone().unwrap().until;
        let seconds = until.duration_since(AT).unwrap().as_secs();
        service.returned(seconds);
        service.eject(1, seconds);
    }
    assert_eq!(service.eject(1, 9000), 300, "the longest");
    // One that is out for a short time fails again after more than that.
    service.returned(9300);
    let rules = OutlierRules { eject: Duration::from_secs(1), ..service.rules.clone() };
    let mut eject = |at| {
        let time = service.outliers.eject(&rules, address(0), "refused".to_owned(), wall(at)).as_secs();
        service.outliers.take_returned(&service.candidates, wall(at + time));
        time
    };
    assert_eq!([100, 115, 130, 170].map(&mut eject), [1, 2, 3, 3]);
    service.eject(1, 9301);
    // The clock was set back.
    assert_eq!(service.returned(5), [address(1)]);
}

#[test]
fn it_comes_back_early_where_no_other_is_left() {
    let mut service = Service::new(2);
    service.eject(1, 100);
    service.candidates[0].is_up = false;
    assert_eq!(service.returned(101), [address(1)]);
    let recovery = service.outliers.of(address(1)).unwrap().recovery().unwrap();
    assert_eq!(recovery.tenths(Duration::from_secs(10), wall(103)), 3);
}

#[test]
fn counters_that_begin_anew_are_no_evidence() {
    let mut service = Service::new(2);
    (0..4).for_each(|_| service.pass(&[WELL, (9, 9, 0)]));
    service.candidates[1].counts = BackendCounts { connections: 7, out_packets: 0, refused: 0 };
    service.pass(&[WELL, (0, 0, 0)]);
    assert_eq!(service.suspects(), []);
    // What was before a dismissal is none either.
    (0..10).for_each(|_| service.pass(&[WELL, (9, 0, 0)]));
    assert_eq!(service.suspects().len(), 1);
    service.outliers.dismiss(address(1), |tally| &mut tally.answered);
    assert_eq!((service.suspects(), service.outliers.of(address(1)).unwrap().tally.answered), (vec![], 1));
}

proptest! {
    /// Whatever backends do, and whatever their checks say: no more are out than the share, and one is left.
    #[test]
    fn the_share_holds_and_one_is_left(
        backends in 1_usize..7, most in 1_u32..=100,
        seconds in prop::collection::vec(prop::collection::vec((0_u64..6, 0_u64..3, 0_u64..3, any::<bool>()), 7), 1..40),
    ) {
        let mut service = Service::new(backends);
        service.rules = OutlierRules { most, failures: 2, interval: Duration::from_secs(5), ..OutlierRules::default() };
        for (second, what) in seconds.iter().enumerate() {
            let more: Vec<_> = what.iter().map(|(begun, out, refused, _)| (*begun, *out + *refused, *refused)).collect();
            service.candidates.iter_mut().zip(what).for_each(|(candidate, what)| candidate.is_up = what.3);
            service.pass(&more);
            service.returned(10 * second as u64);
            for (number, _) in service.suspects() {
                if service.may_eject(number) {
                    service.eject(number, 10 * second as u64);
                }
            }
            let is_out = |candidate: &&Candidate| service.outliers.is_ejected(candidate.address);
            let out = service.candidates.iter().filter(is_out).count();
            prop_assert!(out as u32 * 100 <= backends as u32 * most);
            let left = service.candidates.iter().any(|candidate| candidate.is_up && !is_out(&candidate));
            prop_assert!(out == 0 || left);
        }
    }
}
