//! For how long a looked-up route and neighbour are believed: with a process that watches routes and neighbours, and without.

use std::process::Command;

use rig_datapath::test_run::Verdict;
use rig_sys::netns::NetNs;
use rig_sys::process;
use rig_wire::ethernet::{Ethernet, Mac};
use rig_wire::tcp::flags::{ACK, SYN};

use super::frames::{see, tcp};
use super::lab::Lab;
use super::{backend, config, full_nat, service, small};

const V: &str = "10.0.0.200:80";
/// One that has a neighbour entry.
const CLIENT: &str = "10.0.0.50:5000";

/// Where one packet to the backend and one to the client go.
struct Ends<'a> {
    lab: &'a mut Lab,
    to: Vec<u8>,
    back: Vec<u8>,
}

impl Ends<'_> {
    fn go_to(&self) -> [Mac; 2] {
        [&self.to, &self.back].map(|frame| {
            let sent = self.lab.send(frame);
            assert_eq!(sent.verdict, Verdict::Transmit);
            Ethernet::parse(&sent.frame).unwrap().destination()
        })
    }

    /// Both neighbours have this address from now on, as far as the kernel knows.
    fn move_neighbors(&self, mac: u8) -> [Mac; 2] {
        for host in ["10.0.0.10", "10.0.0.50"] {
            let arguments = format!("neigh replace {host} lladdr 02:00:00:00:00:{mac:02x} nud permanent dev lb0");
            let mut command = Command::new("ip");
            let here = NetNs::of_current_thread().unwrap();
            let done = process::in_namespace(command.args(arguments.split(' ')), &here).status().unwrap();
            assert!(done.success(), "ip {arguments}");
        }
        [Mac([2, 0, 0, 0, 0, mac]); 2]
    }

    fn watch(&self, ticks: u32, generation: u16) {
        self.lab.balancer.pretend_watched(self.lab.tick + ticks, generation).unwrap();
    }
}

#[test]
fn a_way_holds_as_long_as_its_generation_and_for_a_second_where_nobody_watches() {
    let services = [service(V, full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])];
    let Some(mut lab) = Lab::new(small(), &config(&services)) else { return };
    let seen = see(&lab.sent(&tcp(SYN, CLIENT, V).bytes()));
    let to = tcp(ACK, CLIENT, V).bytes();
    let back = tcp(ACK, &seen.destination.to_string(), &seen.source.to_string()).bytes();
    // The beginning of a second.
    let first = lab.tick.next_multiple_of(8) - lab.tick;
    lab.later(first);
    let ends = &mut Ends { lab: &mut lab, to, back };

    // Without a watcher: until the second is over.
    let one = ends.move_neighbors(1);
    ends.lab.later(8);
    assert_eq!(ends.go_to(), one);
    let two = ends.move_neighbors(2);
    ends.lab.later(7);
    assert_eq!(ends.go_to(), one);
    ends.lab.later(1);
    assert_eq!(ends.go_to(), two);

    // With a watcher: at once when it tells of a change, and otherwise not.
    ends.watch(1000, 5);
    assert_eq!(ends.go_to(), two);
    let three = ends.move_neighbors(3);
    assert_eq!(ends.go_to(), two);
    ends.lab.later(8);
    assert_eq!(ends.go_to(), [three[0], two[1]], "to backends there are few ways, which are looked up each second");
    ends.lab.later(992);
    assert_eq!(ends.go_to(), [three[0], two[1]], "the last tick that is watched");
    ends.watch(1, 6);
    assert_eq!(ends.go_to(), three);
    let four = ends.move_neighbors(4);
    ends.watch(1, 7);
    assert_eq!(ends.go_to(), four);
    let unseen = ends.move_neighbors(8);

    // The watcher is gone.
    ends.lab.later(2);
    assert_eq!(ends.go_to(), unseen);
    let five = ends.move_neighbors(5);
    assert_eq!(ends.go_to(), unseen);
    ends.lab.later(8);
    assert_eq!(ends.go_to(), five);

    // The last generation of all, and the first again.
    ends.watch(1000, 0x7fff);
    assert_eq!(ends.go_to(), five);
    let six = ends.move_neighbors(6);
    assert_eq!(ends.go_to(), five);
    ends.watch(1000, 0);
    assert_eq!(ends.go_to(), six);
}
