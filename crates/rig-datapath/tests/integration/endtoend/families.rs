//! Clients of IPv6 and servers of IPv4 that know nothing of each other's family.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use rig_datapath::balancer::{ClientAddress, Drop, Protocol, Service, SynProxy, TransmitMethod};

use super::lab::{Lab, Plan, Random, TIMEOUT, client, server};
use super::talk::again;
use super::{V4, V6, backend, config, full_nat, sizes, tcp};

const PORT: u16 = 7000;
const SERVICE: u16 = 80;
const LENGTH: usize = 4_000_001;

fn lab(of: Service, offload: bool) -> Option<Lab> {
    let of_udp =
        Service { protocol: Protocol::Udp, client_address: ClientAddress::Off, syn_proxy: SynProxy::Off, ..of.clone() };
    let plan = Plan { servers: 1, offload, ..Plan::default() };
    let mut lab = Lab::new(plan, sizes(4096), &config([of, of_udp]))?;
    lab.balancer.set_back(TransmitMethod::Redirect).unwrap();
    Some(lab)
}

fn service(client_address: ClientAddress, syn_proxy: SynProxy) -> Service {
    let backends = vec![backend(server(0, false, PORT), 1)];
    Service { client_address, syn_proxy, ..tcp(V6, SERVICE, full_nat(V4), backends) }
}

fn at() -> SocketAddr {
    SocketAddr::new(V6.parse().unwrap(), SERVICE)
}

/// The header of the PROXY protocol for this client.
fn prefix(client: SocketAddr) -> Vec<u8> {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED.octets(),
    };
    let mut prefix = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24".to_vec();
    prefix.extend([octets(client.ip()), octets(at().ip())].concat());
    prefix.extend(client.port().to_be_bytes());
    prefix.extend(SERVICE.to_be_bytes());
    prefix
}

/// Some MB each way, in segments as large as the links take, with and without senders that leave checksums and segments to their devices.
fn transfers_go_on(client_address: ClientAddress, syn_proxy: SynProxy) {
    for offload in [true, false] {
        let Some(mut lab) = lab(service(client_address, syn_proxy), offload) else { return };
        let listener = lab.wires.servers[0].run(|| TcpListener::bind(("0.0.0.0", PORT)).unwrap()).unwrap();
        let near = again(&lab.wires.client);
        let is_prefixed = client_address == ClientAddress::ProxyV2;
        lab.during(|| {
            let data = Random::new(7).bytes(LENGTH);
            thread::scope(|scope| {
                let echo = scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                    let mut header = vec![0; if is_prefixed { 52 } else { 0 }];
                    stream.read_exact(&mut header).unwrap();
                    let mut all = vec![0; LENGTH];
                    stream.read_exact(&mut all).unwrap();
                    stream.write_all(&all).unwrap();
                    header
                });
                let mut stream = near.run(|| TcpStream::connect_timeout(&at(), TIMEOUT).unwrap()).unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream.write_all(&data).unwrap();
                let mut heard = vec![0; LENGTH];
                stream.read_exact(&mut heard).unwrap();
                assert!(heard == data, "other bytes came back");
                let from = stream.local_addr().unwrap();
                assert_eq!(from.ip(), client(true));
                assert_eq!(echo.join().unwrap(), if is_prefixed { prefix(from) } else { Vec::new() });
            });
        });
        let mut losses = lab.losses();
        losses.retain(|(reason, _)| !matches!(reason, Drop::SynAnswered | Drop::ProxyWaits));
        assert_eq!((losses, lab.wires.damage()), (vec![], vec![]));
    }
}

#[test]
fn transfers_go_on_between_the_families() {
    transfers_go_on(ClientAddress::Off, SynProxy::Off);
}

#[test]
fn transfers_go_on_between_the_families_with_an_option() {
    transfers_go_on(ClientAddress::Toa, SynProxy::Off);
}

#[test]
fn transfers_go_on_between_the_families_behind_a_prefix() {
    transfers_go_on(ClientAddress::ProxyV2, SynProxy::Off);
}

#[test]
fn transfers_go_on_between_the_families_behind_a_prefix_and_the_syn_proxy() {
    transfers_go_on(ClientAddress::ProxyV2, SynProxy::Always);
}

/// Datagrams; and a closed port is told of as ever.
#[test]
fn datagrams_are_answered_between_the_families() {
    let Some(mut lab) = lab(service(ClientAddress::Off, SynProxy::Off), true) else { return };
    let behind = lab.wires.servers[0].run(|| UdpSocket::bind(("0.0.0.0", PORT)).unwrap()).unwrap();
    behind.set_read_timeout(Some(TIMEOUT)).unwrap();
    let near = again(&lab.wires.client);
    lab.during(|| {
        let socket = near.run(|| UdpSocket::bind(("::", 0)).unwrap()).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.connect(at()).unwrap();
        for length in [1, 100, 1433, 1452] {
            let said = Random::new(length as u64).bytes(length);
            socket.send(&said).unwrap();
            let mut heard = [0; 2000];
            let (got, from) = behind.recv_from(&mut heard).unwrap();
            assert!(from.is_ipv4() && heard[..got] == said);
            behind.send_to(&heard[..got], from).unwrap();
            assert_eq!(socket.recv(&mut heard).unwrap(), length);
            assert!(heard[..length] == said);
        }
        drop(behind);
        // Port unreachable.
        socket.send(b"nobody").unwrap();
        let refused = socket.recv(&mut [0; 9]).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    });
    assert_eq!((lab.losses(), lab.wires.damage()), (vec![], vec![]));
}
