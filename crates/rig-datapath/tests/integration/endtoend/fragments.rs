//! Datagrams that are larger than what the wires carry: sockets' own kernels cut them and put them together again.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use rig_datapath::balancer::{ForwardingMethod, Protocol, Service};

use super::lab::{Lab, Plan, Random, TIMEOUT, counter, server};
use super::{V4, V6, backend, config, full_nat, sizes, tcp};

const PORT: u16 = 7001;
const DATAGRAMS: usize = 20;
/// Some seven fragments.
const LENGTH: usize = 10_001;

#[test]
fn datagrams_that_no_wire_carries_whole_come_and_are_answered() {
    let service = |address: &str, forward: ForwardingMethod| {
        let at = server(0, address.contains(':'), PORT);
        Service { protocol: Protocol::Udp, ..tcp(address, 80, forward, vec![backend(at, 1)]) }
    };
    let services = [service(V4, full_nat(V4)), service(V6, full_nat(V6))];
    let plan = Plan { servers: 1, ..Plan::default() };
    let Some(mut lab) = Lab::new(plan, sizes(4096), &config(services)) else { return };
    let any: SocketAddr = ([0_u16; 8], PORT).into();
    let echo = lab.wires.servers[0].run(|| UdpSocket::bind(any).unwrap()).unwrap();
    let client = lab.wires.client.run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap();
    for socket in [&echo, &client] {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    }
    lab.during(|| {
        let mut buffer = vec![0; LENGTH + 1];
        for (number, address) in [V4, V6].repeat(DATAGRAMS).into_iter().enumerate() {
            let to: IpAddr = address.parse().unwrap();
            let data = Random::new(1 + number as u64).bytes(LENGTH);
            let to = match to {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            client.send_to(&data, (to, 80)).unwrap();
            let (length, from) = echo.recv_from(&mut buffer).unwrap();
            assert!(buffer[..length] == data, "datagram {number}: {length} bytes");
            echo.send_to(&data, from).unwrap();
            let (length, from) = client.recv_from(&mut buffer).unwrap();
            assert!(buffer[..length] == data && from == SocketAddr::new(to.into(), 80), "answer {number} from {from}");
        }
    });
    assert_eq!((lab.losses(), lab.wires.damage()), (vec![], vec![]));
    for node in [&lab.wires.client, &lab.wires.servers[0]] {
        assert!(counter(node, "IpReasmOKs") >= DATAGRAMS as u64 && counter(node, "Ip6ReasmOKs") >= DATAGRAMS as u64);
    }
}
