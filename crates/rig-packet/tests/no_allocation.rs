//! An engine takes all its memory when it is made: no packet and no connection takes any.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use allocation_counter::measure;
use rig_packet::http::{Method, request, response};
use rig_packet::{
    AnswerScope, Client, CloseMethod, Config, Engine, Family, Gateway, Link, Load, MessageEnd, Payload, RequestRepeat,
    Server, Service, TcpClient, TcpServer, TcpTimes, TupleOrder, UdpClient, UdpServer, V4, V6, memory,
};
use rig_wire::ethernet::Mac;

fn config<F: Family>(client: bool, ends: (F::Address, F::Address), service: Service) -> Config<F> {
    let macs = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
    let link = Link {
        mac: macs[usize::from(!client)],
        address: ends.0,
        answer: AnswerScope::All,
        announce: true,
        vlan: None,
        gateway: Gateway::Known(macs[usize::from(client)]),
        hop_limit: 64,
        tos: 0,
        verify: true,
        tunnel: None,
    };
    Config { link, local: vec![(ends.0, 1)], remote: vec![(ends.1, 1)], capacity: 5000, service, steering: None }
}

/// Joins a client and a server until they have answered a few thousand times; how often that took memory.
fn allocations<F: Family>(ends: (F::Address, F::Address), client: Service, server: Service) -> u64 {
    let (mut a, mut b) = memory::pair(64);
    let mut now = 1_000_000_000;
    let mut client = Engine::<F>::new(config(true, ends, client), now).unwrap();
    let mut server = Engine::<F>::new(config(false, (ends.1, ends.0), server), now).unwrap();
    let taken = measure(|| {
        for pass in 0..40_000 {
            client.pass(now, &mut a);
            server.pass(now, &mut b);
            now += 5000;
            if pass == 30_000 {
                client.wind_down();
            }
        }
    });
    let counters = client.counters();
    let answers = counters.tcp_rsp + counters.udp_rx;
    assert!(answers > 2000 && counters.sk_open > 100 && counters.sk_err == 0, "{counters:?}");
    taken.count_total
}

fn client(repeat: Option<RequestRepeat>) -> Client {
    let load = Load { hold: Some(2000), ..Load::new(200_000.0) };
    Client { ports: 1024..=60_000, server_ports: 80..=80, load, repeat, walk: TupleOrder::Ports, flood: None }
}

#[test]
fn packets_and_connections_take_no_memory() {
    let several = Some(RequestRepeat { requests: Some(3), ..RequestRepeat::every(Duration::from_micros(50)) });
    for (repeat, body, close) in
        [(None, 14, CloseMethod::Fin), (several, 14, CloseMethod::Reset), (several, 20_000, CloseMethod::Fin)]
    {
        let stays = repeat.is_some();
        let tcp = TcpClient {
            client: client(repeat),
            times: TcpTimes::default(),
            request: request(Method::Get, "netrig", "/", 85).into(),
            response: MessageEnd::Http,
            close,
            delayed_ack: Duration::from_millis(100),
            mss: 1460,
            resets: true,
        };
        let to = TcpServer {
            server: Server { ports: 80..=80 },
            times: TcpTimes::default(),
            request: MessageEnd::Http,
            response: response(&vec![b'b'; body], !stays).into(),
            close: !stays,
            idle: Duration::from_secs(60),
            window: 16,
            mss: 1460,
            resets: true,
        };
        let ends = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1));
        let services = (Service::TcpClient(tcp), Service::TcpServer(to));
        assert_eq!(allocations::<V4>(ends, services.0.clone(), services.1.clone()), 0);
        let ends = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
        assert_eq!(allocations::<V6>(ends, services.0, services.1), 0);
    }
    let udp = UdpClient { client: client(several), request: Payload::Filler(18), timeout: Duration::from_secs(1) };
    let to = UdpServer { server: Server { ports: 80..=80 }, response: Payload::Filler(18), one_way: false };
    let ends = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1));
    assert_eq!(allocations::<V4>(ends, Service::UdpClient(udp), Service::UdpServer(to)), 0);
    // And the counter counts.
    assert_eq!(measure(|| drop(vec![1; 100])).count_total, 1);
}
