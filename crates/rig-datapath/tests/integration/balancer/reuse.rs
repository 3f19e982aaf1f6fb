//! Clients that use a port again after their connection is over.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use rig_datapath::balancer::{Backend, Connection, Drop, ForwardingMethod, PortReuse, Service, Sizes};
use rig_datapath::test_run::Verdict;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::frames::{Frame, tcp};
use super::lab::Lab;
use super::{backend, config, full_nat, limited, service, small};

const T: &str = "10.0.0.200:80";
const TEN: &str = "10.0.0.10:80";
const ELEVEN: &str = "10.0.0.11:80";
const PORTS: std::ops::Range<u16> = 5000..5050;

fn client(port: u16) -> String {
    format!("10.0.0.60:{port}")
}

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Fin,
    Reset,
}

/// Clients, a service in each way of forwarding, and what is known of it.
struct Clients {
    lab: Lab,
    service: Service,
    /// First packets that were sent on.
    opened: u64,
}

impl Clients {
    fn new() -> Option<Self> {
        // Ended ones keep their places until they are swept.
        let lab = Lab::new(Sizes { connections: 256, ..small() }, &config(&[]))?;
        Some(Self { lab, service: service(T, ForwardingMethod::Nat, &[]), opened: 0 })
    }

    /// With another service, and nothing of what was before: to load the programs for each would take a slow machine seconds.
    fn begin(&mut self, forward: &ForwardingMethod, reuse: PortReuse, backends: &[Backend]) {
        self.lab.balancer.clear().unwrap();
        self.opened = 0;
        self.service = Service { reuse, ..service(T, forward.clone(), &[]) };
        self.give(backends);
    }

    fn give(&mut self, backends: &[Backend]) {
        self.service.backends = backends.to_vec();
        self.lab.balancer.apply(&config(std::slice::from_ref(&self.service))).unwrap();
    }

    fn connection(&self, port: u16) -> Option<Connection> {
        let (mut found, of) = (None, at(&client(port)));
        let look = |connection: Connection| found = found.or((connection.client == of).then_some(connection));
        self.lab.balancer.connections(look).unwrap();
        found
    }

    fn syn(port: u16) -> Vec<u8> {
        tcp(SYN, &client(port), T).bytes()
    }

    /// The backend that the client's new connection goes to.
    fn open(&mut self, port: u16) -> SocketAddr {
        self.lab.sent(&Self::syn(port));
        self.opened += 1;
        self.connection(port).unwrap().backend
    }

    /// How many go to each of the two.
    fn open_all(&mut self) -> [usize; 2] {
        let reached: Vec<_> = PORTS.map(|port| self.open(port)).collect();
        [TEN, ELEVEN].map(|of| reached.iter().filter(|backend| **backend == at(of)).count())
    }

    /// Ends a connection by packets of both ends; where the balancer does not see the backend's, by the client's.
    fn end(&self, port: u16, end: End) {
        let of_client = |flags| drop(self.lab.sent(&tcp(flags, &client(port), T).bytes()));
        let Connection { backend, local, .. } = self.connection(port).unwrap();
        let back = match self.service.forward {
            ForwardingMethod::FullNat { .. } => local,
            ForwardingMethod::Nat => Some(at(&client(port))),
            ForwardingMethod::Route | ForwardingMethod::Tunnel { .. } => None,
        };
        let of_backend = |flags| {
            if let Some(back) = back {
                self.lab.sent(&Frame { source: backend, destination: back, ..tcp(flags, T, T) }.bytes());
            }
        };
        of_backend(SYN | ACK);
        of_client(ACK);
        match end {
            End::Fin => {
                of_client(FIN | ACK);
                of_backend(FIN | ACK);
            }
            End::Reset => of_client(RST),
        }
    }

    fn end_all(&self, end: End) {
        PORTS.for_each(|port| self.end(port, end));
    }

    /// Of both backends.
    fn loads(&self) -> [u32; 2] {
        let services = self.lab.balancer.services().unwrap();
        let of = |of: &str| services[0].backends.iter().find(|backend| backend.address == at(of));
        [TEN, ELEVEN].map(|address| of(address).map_or(0, |backend| backend.active + backend.inactive))
    }

    /// Each connection that was opened is counted once, at its present backend; and so are the connections that there are.
    #[track_caller]
    fn check_counts(&self) {
        let services = self.lab.balancer.services().unwrap();
        let [service] = &services[..] else { panic!("{services:?}") };
        let of_backends = service.backends.iter().flat_map(|backend| &backend.traffic).map(|cpu| cpu.connections);
        assert_eq!((service.traffic.connections, of_backends.sum::<u64>()), (self.opened, self.opened));
        let mut held = Vec::new();
        self.lab.balancer.connections(|connection| held.push(connection.backend)).unwrap();
        for backend in &service.backends {
            let of = held.iter().filter(|held| **held == backend.address).count();
            assert_eq!((backend.active + backend.inactive) as usize, of, "{}", backend.address);
        }
    }
}

fn tunnel() -> ForwardingMethod {
    ForwardingMethod::Tunnel { local: vec!["10.0.0.100".parse().unwrap()] }
}

/// Each way of forwarding, and each way to end.
fn each() -> impl Iterator<Item = (ForwardingMethod, End)> {
    let forwards = [full_nat(&["10.0.0.100"]), ForwardingMethod::Nat, ForwardingMethod::Route, tunnel()];
    forwards.into_iter().flat_map(|forward| [End::Fin, End::Reset].map(|end| (forward.clone(), end)))
}

/// Clients that use few ports reach a backend that was added, are counted, and find limits in force.
#[test]
fn ports_that_are_used_again_reach_a_backend_that_was_added() {
    let Some(mut clients) = Clients::new() else { return };
    for (forward, end) in each() {
        clients.begin(&forward, PortReuse::Reschedule, &[backend(TEN, 1)]);
        assert_eq!(clients.open_all(), [50, 0]);
        clients.give(&[backend(TEN, 1), backend(ELEVEN, 1)]);
        for _ in 0..2 {
            clients.end_all(end);
            assert_eq!(clients.open_all(), [25, 25], "{forward:?} {end:?}");
            clients.check_counts();
        }
        assert_eq!(clients.lab.connections().len(), 50);
    }
}

/// A backend at its limit gets no more connections, also not of clients that use a port again.
#[test]
fn ports_that_are_used_again_find_limits_in_force() {
    let Some(mut clients) = Clients::new() else { return };
    for (forward, end) in each() {
        clients.begin(&forward, PortReuse::Reschedule, &[backend(TEN, 1)]);
        clients.open_all();
        clients.give(&[limited(TEN, 40), limited(ELEVEN, 5)]);
        for round in 1..3 {
            PORTS.filter(|port| clients.connection(*port).is_some()).for_each(|port| clients.end(port, end));
            for port in PORTS {
                match clients.lab.send(&Clients::syn(port)).verdict {
                    Verdict::Transmit => clients.opened += 1,
                    verdict => assert_eq!((verdict, clients.connection(port)), (Verdict::Drop, None)),
                }
            }
            clients.check_counts();
            let loads = clients.loads();
            assert_eq!(loads, [40, 5], "{forward:?} {end:?}");
            assert_eq!(clients.lab.drops(), [(Drop::BackendsFull, round * 5)]);
        }
    }
}

/// Where a service keeps them, they go to the backend that they had, and are counted.
#[test]
fn ports_that_are_used_again_keep_their_backend_where_the_service_says_so() {
    let Some(mut clients) = Clients::new() else { return };
    for (forward, end) in each() {
        clients.begin(&forward, PortReuse::Keep, &[backend(TEN, 1)]);
        clients.open_all();
        clients.give(&[backend(TEN, 1), backend(ELEVEN, 1)]);
        clients.end_all(end);
        assert_eq!(clients.open_all(), [50, 0], "{forward:?} {end:?}");
        clients.check_counts();
        // New clients are scheduled.
        assert_eq!([4000, 4001].map(|port| clients.open(port)), [TEN, ELEVEN].map(at));
    }
}

/// A backend that is at its limit, drained or removed is left.
#[test]
fn a_kept_backend_that_gets_no_more_is_left() {
    let Some(mut clients) = Clients::new() else { return };
    for (forward, end) in each() {
        let two = [backend(TEN, 1), backend(ELEVEN, 1)];
        for (change, reached) in [
            // As many as end make room again: the last five.
            (&[limited(TEN, 5), backend(ELEVEN, 1)][..], [5, 45]),
            (&[backend(TEN, 0), backend(ELEVEN, 1)], [0, 50]),
            (&[backend(ELEVEN, 1)], [0, 50]),
        ] {
            clients.begin(&forward, PortReuse::Keep, &two[..1]);
            clients.open_all();
            clients.end_all(end);
            clients.give(change);
            assert_eq!(clients.open_all(), reached, "{forward:?} {end:?} {change:?}");
            clients.check_counts();
            // They stay where they are now.
            clients.give(&two);
            clients.end_all(end);
            assert_eq!(clients.open_all(), reached);
            clients.check_counts();
        }
    }
}

/// One that closes, or that has not come to be, is the same connection still, and nothing ends by a SYN that begins nothing.
#[test]
fn a_connection_that_is_not_over_goes_on() {
    let two = [backend(TEN, 1), backend(ELEVEN, 1)];
    let Some(mut clients) = Clients::new() else { return };
    for forward in [full_nat(&["10.0.0.100"]), ForwardingMethod::Nat] {
        clients.begin(&forward, PortReuse::Reschedule, &two);
        let send = |flags| drop(clients.lab.sent(&tcp(flags, &client(5000), T).bytes()));
        send(SYN);
        let first = clients.connection(5000).unwrap();
        for flags in [SYN, FIN | ACK] {
            send(flags);
            send(SYN);
            let now = clients.connection(5000).unwrap();
            assert_eq!((now.backend, now.local), (first.backend, first.local));
        }
        send(RST);
        for flags in [SYN | RST, SYN | FIN] {
            clients.lab.send(&tcp(flags, &client(5000), T).bytes());
            assert_eq!(clients.lab.balancer.services().unwrap()[0].traffic.connections, 1);
            assert_eq!(clients.connection(5000).unwrap().local, first.local);
        }
    }
}

/// A service at its own limit takes one again because the one before is gone, and a stranger not.
#[test]
fn a_service_that_is_full_takes_who_comes_again() {
    let Some(mut clients) = Clients::new() else { return };
    for (forward, end) in each() {
        clients.begin(&forward, PortReuse::Reschedule, &[backend(TEN, 1)]);
        clients.service.limit = NonZeroU32::new(1);
        clients.give(&[backend(TEN, 1)]);
        for _ in 0..3 {
            clients.open(5000);
            clients.end(5000, end);
        }
        assert_eq!(clients.lab.dropped(&Clients::syn(5001)), Drop::ServiceFull);
        clients.check_counts();
    }
}

/// Without a sweep: a client that uses a port again leaves its old place taken, but no limit, no local port and no count.
#[test]
fn ports_that_are_used_again_take_places_until_somebody_sweeps() {
    let Some(mut clients) = Clients::new() else { return };
    for (forward, end) in each() {
        clients.begin(&forward, PortReuse::Reschedule, &[backend(TEN, 1)]);
        clients.give(&[limited(TEN, 1)]);
        for _ in 0..256 {
            clients.open(5000);
            clients.end(5000, end);
        }
        assert_eq!(clients.lab.dropped(&Clients::syn(5000)), Drop::TableFull);
        clients.check_counts();
        assert_eq!((clients.lab.connections().len(), clients.loads()), (0, [0, 0]));
        clients.lab.later(2);
        clients.lab.balancer.sweep_all().unwrap();
        clients.open(5000);
        clients.check_counts();
    }
}
