//! Sources whose connections stay together.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::time::Duration;

use rig_datapath::balancer::{
    Adopted, AdoptionRefusal, Backend, BalancerHandle, Drop, ForwardingMethod, Persistence, PersistentSource,
    Scheduler, Service, SharedConnection, Sizes, SynProxy,
};
use rig_wire::tcp::flags::{ACK, RST, SYN};

use super::changes::{BpfFs, hand_over};
use super::frames::{tcp, udp};
use super::lab::Lab;
use super::syn_proxy::{Segment, segment};
use super::{backend, config, full_nat, limited, service, small, udp_service};

const V: &str = "10.0.0.200:80";
const V6: &str = "[fd00::200]:80";
/// A second and a tick.
const SECOND: u32 = 8;

fn kept(seconds: u64, prefix: u8, service: Service) -> Service {
    Service { persistence: Some(Persistence { timeout: Duration::from_secs(seconds), prefix, group: None }), ..service }
}

const BACKENDS: [&str; 3] = ["10.0.0.10:8080", "10.0.0.11:8080", "10.0.0.12:8080"];

fn plan(seconds: u64, prefix: u8) -> Service {
    kept(seconds, prefix, service(V, full_nat(&["10.0.0.100"]), &BACKENDS.map(|address| backend(address, 1))))
}

fn syn(client: &str) -> Vec<u8> {
    tcp(SYN, client, if client.starts_with('[') { V6 } else { V }).bytes()
}

fn from_client(flags: u8, client: &str) -> Vec<u8> {
    tcp(flags, client, V).bytes()
}

/// The backend of a connection, by the last number of its address.
fn backend_of(balancer: &BalancerHandle, client: &str) -> String {
    let mut found = None;
    let client = client.parse().unwrap();
    balancer
        .connections(|connection| {
            if connection.client == client {
                found = Some(connection.backend.to_string());
            }
        })
        .unwrap();
    found.unwrap_or_else(|| panic!("no connection of {client}"))
}

fn goes(lab: &Lab, client: &str) -> String {
    lab.sent(&syn(client));
    backend_of(&lab.balancer, client)
}

fn left(lab: &Lab) -> Vec<(String, u32)> {
    let mut all: Vec<_> = lab.balancer.persistent_sources().unwrap();
    all.sort_by_key(|source| source.source);
    all.into_iter().map(|PersistentSource { source, left, .. }| (source.to_string(), left)).collect()
}

#[test]
fn connections_of_a_source_stay_together_until_its_time_is_over() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(60, 32)])) else { return };
    let first = goes(&lab, "10.0.0.60:5000");
    // Round robin otherwise.
    assert_ne!(goes(&lab, "10.0.0.61:5000"), first);
    assert_eq!(goes(&lab, "10.0.0.60:5001"), first);
    let trace = lab.balancer.trace(&syn("10.0.0.60:5002"), Some(lab.interface)).unwrap();
    let new = trace.new_connection.unwrap();
    assert_eq!((new.backend.unwrap().to_string(), new.kept), (first.clone(), true));
    // As long as it is not answered, no longer than that is remembered: 30 s, in ticks.
    assert_eq!(left(&lab), [("10.0.0.60".to_owned(), 224), ("10.0.0.61".to_owned(), 224)]);
    lab.sent(&from_client(ACK, "10.0.0.60:5000"));
    lab.balancer.sweep_all().unwrap();
    assert_eq!(left(&lab), [("10.0.0.60".to_owned(), 448), ("10.0.0.61".to_owned(), 224)]);
    // While there is a connection it does not end; packets go on.
    for _ in 0..10 {
        lab.later(50 * SECOND);
        lab.sent(&from_client(ACK, "10.0.0.60:5000"));
        lab.balancer.sweep_all().unwrap();
    }
    assert_eq!(goes(&lab, "10.0.0.60:5003"), first);
    assert_eq!(left(&lab).len(), 1);
    // Behind the last, for as long as is said; the next client would have had another one each time.
    lab.sent(&from_client(RST, "10.0.0.60:5000"));
    lab.balancer.sweep_all().unwrap();
    lab.later(11 * SECOND);
    lab.balancer.sweep_all().unwrap();
    lab.later(40 * SECOND);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(goes(&lab, "10.0.0.60:5004"), first);
    lab.later(31 * SECOND);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(left(&lab), []);
    let anew: Vec<_> = (5005..5008).map(|port| goes(&lab, &format!("10.0.0.60:{port}"))).collect();
    assert!(anew.iter().all(|backend| *backend == anew[0] && *backend != first), "{anew:?}, before {first}");
}

#[test]
fn a_source_is_a_prefix_and_of_both_families() {
    let six = service(V6, full_nat(&["fd00::100"]), &["[fd00::10]:80", "[fd00::11]:80"].map(|at| backend(at, 1)));
    let Some(lab) = Lab::new(small(), &config(&[plan(60, 31), kept(60, 124, six)])) else { return };
    let first = goes(&lab, "10.0.0.60:5000");
    assert_eq!(goes(&lab, "10.0.0.61:5000"), first);
    assert_ne!(goes(&lab, "10.0.0.62:5000"), first);
    let first = goes(&lab, "[fd00::60]:5000");
    assert_eq!(goes(&lab, "[fd00::61]:5000"), first);
    assert_ne!(goes(&lab, "[fd00::50]:5000"), first);
    let sources: Vec<_> = left(&lab).into_iter().map(|(source, _)| source).collect();
    assert_eq!(sources, ["10.0.0.60", "10.0.0.62", "fd00::50", "fd00::60"]);
}

/// One that gets no new connections gets none of those either, and the source stays where it goes instead.
#[test]
fn a_source_leaves_a_backend_that_drains_or_is_full() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(60, 32)])) else { return };
    let first = goes(&lab, "10.0.0.60:5000");
    let mut drained = plan(60, 32);
    drained.backends.iter_mut().filter(|backend| backend.address.to_string() == first).for_each(|one| one.weight = 0);
    lab.balancer.apply(&config(&[drained])).unwrap();
    let second = goes(&lab, "10.0.0.60:5001");
    assert_ne!(second, first);
    // The old one's connection goes on, and does not lead the source back.
    lab.sent(&from_client(ACK, "10.0.0.60:5000"));
    lab.balancer.sweep_all().unwrap();
    lab.balancer.apply(&config(&[plan(60, 32)])).unwrap();
    assert_eq!([goes(&lab, "10.0.0.60:5002"), goes(&lab, "10.0.0.60:5003")], [second.clone(), second.clone()]);
    // Neither does a backend beyond its limit get more.
    let mut full = plan(60, 32);
    full.backends = BACKENDS.map(|address| limited(address, 3)).to_vec();
    lab.balancer.apply(&config(&[full])).unwrap();
    let third = goes(&lab, "10.0.0.60:5004");
    assert_ne!(third, second);
    assert_eq!(goes(&lab, "10.0.0.60:5005"), third);
    // Removed and forgotten, its number is another one's.
    let mut fewer = plan(60, 32);
    fewer.backends.retain(|backend| backend.address.to_string() != third);
    lab.balancer.apply(&config(&[fewer.clone()])).unwrap();
    assert_ne!(goes(&lab, "10.0.0.60:5006"), third);
    lab.later(200 * SECOND);
    lab.balancer.sweep_all().unwrap();
    for _ in 0..3 {
        lab.balancer.apply(&config(&[fewer.clone()])).unwrap();
    }
    assert!(lab.balancer.persistent_sources().unwrap().iter().all(|source| source.backend.to_string() != third));
}

/// Services in a group have one memory, whatever the ports of their backends; one by itself has another.
#[test]
fn a_group_of_services_keeps_a_source_at_one_address() {
    let in_group = |address, port: u16, group| {
        let backends: Vec<_> = (10..14).map(|host| backend(&format!("10.0.0.{host}:{port}"), 1)).collect();
        let mut service = kept(60, 32, service(address, full_nat(&["10.0.0.100"]), &backends));
        service.persistence.as_mut().unwrap().group = NonZeroU32::new(group);
        service
    };
    let plans = [in_group(V, 8080, 5), in_group("10.0.0.201:443", 8443, 5), in_group("10.0.0.202:80", 8080, 0)];
    let Some(mut lab) = Lab::new(small(), &config(&plans)) else { return };
    let host = |lab: &Lab, client: &str, service: &str| {
        lab.sent(&tcp(SYN, client, service).bytes());
        backend_of(&lab.balancer, client).split(':').next().unwrap().to_owned()
    };
    // The next of each in turn would be others.
    host(&lab, "10.0.0.61:5000", V);
    let first = host(&lab, "10.0.0.60:5000", V);
    assert_eq!(host(&lab, "10.0.0.60:5001", "10.0.0.201:443"), first);
    assert_eq!(backend_of(&lab.balancer, "10.0.0.60:5001"), format!("{first}:8443"));
    assert_ne!(host(&lab, "10.0.0.60:5002", "10.0.0.202:80"), first);
    assert_eq!(host(&lab, "10.0.0.60:5003", V), first);
    assert_eq!(left(&lab).len(), 3);
    // A connection by one of them keeps it for the others.
    lab.sent(&tcp(ACK, "10.0.0.60:5001", "10.0.0.201:443").bytes());
    for _ in 0..4 {
        lab.later(50 * SECOND);
        lab.sent(&tcp(ACK, "10.0.0.60:5001", "10.0.0.201:443").bytes());
        lab.balancer.sweep_all().unwrap();
    }
    assert_eq!(host(&lab, "10.0.0.60:5004", V), first);
    // One of them drains the backend; both go where that goes then.
    let mut drained = plans.clone();
    drained[0].backends.iter_mut().filter(|one| one.address.ip().to_string() == first).for_each(|one| one.weight = 0);
    lab.balancer.apply(&config(&drained)).unwrap();
    let second = host(&lab, "10.0.0.60:5005", V);
    assert_ne!(second, first);
    assert_eq!(host(&lab, "10.0.0.60:5006", "10.0.0.201:443"), second);
    // Without the address in one of them it has its own choice.
    let mut fewer = drained.clone();
    fewer[1].backends.retain(|backend| backend.address.ip().to_string() != second);
    lab.balancer.apply(&config(&fewer)).unwrap();
    assert_ne!(host(&lab, "10.0.0.60:5007", "10.0.0.201:443"), second);
    let Some(directory) = BpfFs::mount() else { return };
    hand_over(&mut lab, &directory);
    lab.balancer.apply(&config(&plans)).unwrap();
    let last = host(&lab, "10.0.0.60:5008", "10.0.0.201:443");
    assert_eq!(host(&lab, "10.0.0.60:5009", V), last);
}

/// One that has reached its upper limit waits until it is below the lower one.
#[test]
fn a_full_backend_gets_connections_again_below_its_lower_limit() {
    let ten = Backend { lower_limit: NonZeroU32::new(2), ..limited("10.0.0.10:8080", 3) };
    for scheduler in [Scheduler::RoundRobin, Scheduler::WeightedLeastConnections] {
        let plan = Service { scheduler, ..service(V, full_nat(&["10.0.0.100"]), &[ten]) };
        let Some(mut lab) = Lab::new(small(), &config(&[plan])) else { return };
        for client in (5000..5003).map(|port| format!("10.0.0.60:{port}")) {
            lab.sent(&syn(&client));
            // Unanswered ones would end early where a backend is short of room.
            lab.sent(&from_client(ACK, &client));
        }
        assert_eq!(lab.dropped(&syn("10.0.0.60:5003")), Drop::BackendsFull);
        let end = |lab: &mut Lab, port: u16| {
            lab.sent(&from_client(RST, &format!("10.0.0.60:{port}")));
            lab.later(11 * SECOND);
            lab.balancer.sweep_all().unwrap();
        };
        end(&mut lab, 5000);
        // Two are as many as the lower one says.
        assert_eq!(lab.dropped(&syn("10.0.0.60:5003")), Drop::BackendsFull);
        let trace = lab.balancer.trace(&syn("10.0.0.60:5003"), Some(lab.interface)).unwrap();
        assert_eq!(trace.drop, Some(Drop::BackendsFull));
        end(&mut lab, 5001);
        // As many as the upper one says, again.
        lab.sent(&syn("10.0.0.60:5003"));
        let at = lab.connections().len();
        lab.sent(&syn("10.0.0.60:5004"));
        assert_eq!((at, lab.connections().len()), (2, 3));
        assert_eq!(lab.dropped(&syn("10.0.0.60:5005")), Drop::BackendsFull);
    }
}

/// What is waited for is to fall below the lower limit from the upper one that was reached, as with IPVS.
#[test]
fn another_limit_ends_the_wait_for_the_lower_one() {
    let plan = |limit, lower| {
        let ten = Backend { lower_limit: NonZeroU32::new(lower), ..limited("10.0.0.10:8080", limit) };
        config(&[service(V, full_nat(&["10.0.0.100"]), &[ten])])
    };
    let Some(mut lab) = Lab::new(small(), &plan(3, 2)) else { return };
    let begin = |lab: &Lab, port: u16| {
        lab.sent(&syn(&format!("10.0.0.60:{port}")));
        lab.sent(&from_client(ACK, &format!("10.0.0.60:{port}")));
    };
    let end = |lab: &mut Lab, port: u16| {
        lab.sent(&from_client(RST, &format!("10.0.0.60:{port}")));
        lab.later(11 * SECOND);
        lab.balancer.sweep_all().unwrap();
    };
    (5000..5003).for_each(|port| begin(&lab, port));
    end(&mut lab, 5000);
    assert_eq!(lab.dropped(&syn("10.0.0.60:5003")), Drop::BackendsFull);
    lab.balancer.apply(&plan(5, 2)).unwrap();
    begin(&lab, 5003);
    // It has not been full since.
    end(&mut lab, 5001);
    lab.balancer.apply(&plan(3, 2)).unwrap();
    begin(&lab, 5004);
    end(&mut lab, 5002);
    assert_eq!(lab.dropped(&syn("10.0.0.60:5005")), Drop::BackendsFull);
    // Without a lower limit for a while neither.
    lab.balancer.apply(&plan(3, 0)).unwrap();
    begin(&lab, 5005);
    end(&mut lab, 5003);
    lab.balancer.apply(&plan(3, 2)).unwrap();
    begin(&lab, 5006);
}

/// Shortest expected delay gives the first connections to the heavy one, and never queue to one that has none.
#[test]
fn new_connections_count_by_sed_and_idle_backends_by_nq() {
    let all = [("10.0.0.10:8080", 5), ("10.0.0.11:8080", 1)].map(|(address, weight)| backend(address, weight));
    let of = |scheduler| Service { scheduler, ..service(V, full_nat(&["10.0.0.100"]), &all) };
    for (scheduler, expected) in [
        (Scheduler::WeightedLeastConnections, [0, 1, 0, 0]),
        (Scheduler::ShortestExpectedDelay, [0, 0, 0, 0]),
        (Scheduler::NeverQueue, [0, 1, 0, 0]),
    ] {
        let Some(lab) = Lab::new(small(), &config(&[of(scheduler)])) else { return };
        let went = expected.iter().enumerate().map(|(n, _)| {
            let client = format!("10.0.0.60:{}", 5000 + n);
            let backend = goes(&lab, &client);
            lab.sent(&from_client(ACK, &client));
            all.iter().position(|one| one.address.to_string() == backend).unwrap()
        });
        assert_eq!(went.collect::<Vec<_>>(), expected, "{scheduler:?}");
    }
}

/// What finds no room begins without, and is counted; those that are over give it back.
#[test]
fn where_there_is_no_room_connections_begin_without() {
    let sizes = Sizes { templates: 2, ..small() };
    let datagrams = udp_service("10.0.0.200:53", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:53", 1)]);
    let Some(mut lab) = Lab::new(sizes, &config(&[kept(60, 32, datagrams)])) else { return };
    let first = |lab: &Lab, host: u8| drop(lab.sent(&udp(&format!("10.0.0.{host}:5000"), "10.0.0.200:53").bytes()));
    (60..63).for_each(|host| first(&lab, host));
    let no_room = |lab: &Lab| {
        let services = lab.balancer.services().unwrap();
        let refused = services[0].refused.iter().find(|(reason, _)| *reason == Drop::NoTemplate);
        refused.map_or(0, |(_, count)| *count)
    };
    assert_eq!((no_room(&lab), left(&lab).len()), (1, 2));
    // Those that are known are renewed.
    first(&lab, 60);
    assert_eq!(no_room(&lab), 1);
    lab.later(61 * SECOND);
    let forgets = |lab: &Lab, seconds| lab.balancer.forget_sources_that_are_over(Duration::from_secs(seconds)).unwrap();
    // Over for less than since the last round of the sweep began, which renews those with connections.
    assert_eq!(forgets(&lab, 6), 0);
    lab.sent(&udp("10.0.0.60:5000", "10.0.0.200:53").bytes());
    lab.balancer.sweep_all().unwrap();
    lab.later(4 * SECOND);
    assert_eq!((forgets(&lab, 6), left(&lab).len()), (1, 1));
    lab.balancer.flush(None, None).unwrap();
    lab.later(65 * SECOND);
    assert_eq!(forgets(&lab, 2), 1);
    // What goes on is not dropped.
    assert_eq!(lab.drops(), []);
    (70..72).for_each(|host| first(&lab, host));
    assert_eq!((no_room(&lab), left(&lab).len()), (1, 2));
}

/// Nothing is remembered of what the SYN proxy answers, only of who acknowledges it.
#[test]
fn forged_first_packets_that_the_proxy_answers_are_not_remembered() {
    let proxied = Service { syn_proxy: SynProxy::Always, ..plan(60, 32) };
    let Some(lab) = Lab::new(small(), &config(&[proxied])) else { return };
    let client = "10.0.0.60:5000";
    let answer = Segment::of(&lab.sent(&Segment { sequence: 9, ..segment(client, V, SYN) }.bytes()));
    assert_eq!(left(&lab), []);
    let acknowledged = answer.sequence.wrapping_add(1);
    lab.sent(&Segment { sequence: 10, acknowledged, ..segment(client, V, ACK) }.bytes());
    assert_eq!(left(&lab).len(), 1);
}

#[test]
fn another_control_plane_goes_on_with_what_is_kept() {
    let nat = service(V, ForwardingMethod::Nat, &BACKENDS.map(|address| backend(address, 1)));
    let plans = config(&[kept(60, 32, nat)]);
    let Some(mut lab) = Lab::new(small(), &plans) else { return };
    let Some(directory) = BpfFs::mount() else { return };
    let first = goes(&lab, "10.0.0.60:5000");
    hand_over(&mut lab, &directory);
    assert_eq!((left(&lab).len(), lab.balancer.sizes().templates), (1, small().templates));
    lab.balancer.apply(&plans).unwrap();
    assert_eq!(goes(&lab, "10.0.0.60:5001"), first);
}

/// Who has not begun what came in its name resets what answers it.
#[test]
fn a_reset_of_what_nobody_has_answered_keeps_no_source() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(60, 32)])) else { return };
    for flags in [SYN, RST, RST] {
        lab.sent(&from_client(flags, "10.0.0.60:5000"));
    }
    lab.later(5 * SECOND);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(left(&lab), [("10.0.0.60".to_owned(), 224 - 5 * SECOND)]);
    // That of a connection does, for as long as it is there.
    lab.sent(&from_client(SYN, "10.0.0.61:5000"));
    lab.sent(&from_client(ACK, "10.0.0.61:5000"));
    lab.sent(&from_client(RST, "10.0.0.61:5000"));
    lab.balancer.sweep_all().unwrap();
    assert_eq!(left(&lab)[1], ("10.0.0.61".to_owned(), 448));
}

/// Connections of a lab as another balancer would tell of them.
fn told_of(lab: &Lab) -> Vec<SharedConnection> {
    let mut told = Vec::new();
    let note = |_, record: Option<rig_datapath::balancer::TableRecord>| {
        told.extend(record.map(|record| record.connection));
        ControlFlow::Continue(())
    };
    lab.balancer.records(note).unwrap();
    told.sort_by_key(|connection| connection.client);
    told
}

/// One that was silent for longer than what the source has done here since.
#[test]
fn an_older_connection_of_another_balancer_takes_no_source_away() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(60, 32)])) else { return };
    goes(&lab, "10.0.0.61:5000");
    let first = goes(&lab, "10.0.0.60:5000");
    lab.sent(&from_client(ACK, "10.0.0.60:5000"));
    let told = *told_of(&lab).first().unwrap();
    lab.balancer.clear().unwrap();
    lab.balancer.apply(&config(&[plan(60, 32)])).unwrap();
    let here = goes(&lab, "10.0.0.60:6000");
    assert_ne!(here, first);
    lab.sent(&from_client(ACK, "10.0.0.60:6000"));
    lab.balancer.sweep_all().unwrap();
    let adopter = lab.balancer.adopter();
    let of = |port: u16, idle| SharedConnection {
        client: format!("10.0.0.60:{port}").parse().unwrap(),
        local: told.local.map(|local| (local.ip(), port).into()),
        idle,
        ..told
    };
    let adopt = |told: SharedConnection| assert!(matches!(adopter.adopt(&told).unwrap(), Adopted::Created { .. }));
    adopt(of(5000, 10 * SECOND));
    assert_eq!(goes(&lab, "10.0.0.60:6001"), here);
    // Longer ago than any source is kept: of nobody else either.
    adopt(SharedConnection { client: "10.0.0.62:5001".parse().unwrap(), ..of(5001, 61 * SECOND) });
    assert_eq!(left(&lab), [("10.0.0.60".to_owned(), 448)]);
    // A later one does.
    lab.later(5 * SECOND);
    let adopter = lab.balancer.adopter();
    assert!(matches!(adopter.adopt(&of(5002, SECOND)).unwrap(), Adopted::Created { .. }));
    assert_eq!(goes(&lab, "10.0.0.60:6002"), first);
}

/// The lower limit is for those that begin here, and what is taken over counts for it.
#[test]
fn connections_of_another_balancer_come_up_to_the_upper_limit() {
    let ten = Backend { lower_limit: NonZeroU32::new(2), ..limited("10.0.0.10:8080", 3) };
    let plans = config(&[service(V, full_nat(&["10.0.0.100"]), &[ten])]);
    let Some(mut lab) = Lab::new(small(), &plans) else { return };
    for client in (5000..5003).map(|port| format!("10.0.0.60:{port}")) {
        lab.sent(&syn(&client));
        lab.sent(&from_client(ACK, &client));
    }
    let told = told_of(&lab);
    lab.balancer.clear().unwrap();
    lab.balancer.apply(&plans).unwrap();
    let adopt = |lab: &Lab, told: &SharedConnection| lab.balancer.adopter().adopt(told).unwrap();
    let end = |lab: &mut Lab, port: u16| {
        lab.sent(&from_client(RST, &format!("10.0.0.60:{port}")));
        lab.later(11 * SECOND);
        lab.balancer.sweep_all().unwrap();
    };
    assert!(told.iter().all(|told| matches!(adopt(&lab, told), Adopted::Created { .. })));
    end(&mut lab, 5000);
    assert_eq!(lab.dropped(&syn("10.0.0.60:5003")), Drop::BackendsFull);
    assert!(matches!(adopt(&lab, &told[0]), Adopted::Created { .. }));
    let more = SharedConnection { client: "10.0.0.60:5009".parse().unwrap(), ..told[0] };
    assert_eq!(adopt(&lab, &more), Adopted::Refused(AdoptionRefusal::BackendFull));
    end(&mut lab, 5001);
    end(&mut lab, 5002);
    lab.sent(&syn("10.0.0.60:5003"));
}

/// Connections that another balancer tells of bring their source along, and the sweep renews it as with others.
#[test]
fn a_source_stays_where_another_balancer_has_its_connections() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(60, 32)])) else { return };
    goes(&lab, "10.0.0.61:5000");
    let first = goes(&lab, "10.0.0.60:5000");
    lab.sent(&from_client(ACK, "10.0.0.60:5000"));
    let mut told = told_of(&lab);
    told.retain(|connection| connection.client == "10.0.0.60:5000".parse().unwrap());
    lab.balancer.clear().unwrap();
    assert_eq!(left(&lab), []);
    lab.balancer.apply(&config(&[plan(60, 32)])).unwrap();
    let adopter = lab.balancer.adopter();
    assert!(matches!(adopter.adopt(&told[0]).unwrap(), Adopted::Created { .. }));
    assert_eq!(goes(&lab, "10.0.0.60:5001"), first);
    lab.later(50 * SECOND);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(left(&lab), [("10.0.0.60".to_owned(), 448)]);
}
