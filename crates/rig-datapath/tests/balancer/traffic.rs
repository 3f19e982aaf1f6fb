//! Real connections between real sockets through the attached program, offloads on.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::balancer::{Back, Clock};
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;

use crate::lab::Lab;
use crate::{backend, config, full_nat, service, small, udp_service};

const PATIENCE: Duration = Duration::from_secs(20);

/// One connection; panics when it does not come.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(_) => assert!(Instant::now() < deadline, "nobody connects"),
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Megabytes there and back, byte for byte, and datagrams: the senders' kernels leave checksums to the device.
#[test]
fn streams_and_datagrams_arrive_whole() {
    let services = [
        service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]),
        service("[fd00::200]:80", full_nat(&["fd00::100"]), &[backend("[fd00::11]:8080", 1)]),
        udp_service("10.0.0.200:53", full_nat(&["10.0.0.100"]), &[backend("10.0.0.12:5353", 1)]),
    ];
    let Some(mut lab) = Lab::new(small(), &config(&services)) else { return };
    lab.balancer.set_clock(Clock::Kernel).unwrap();
    // Whoever asks the link for these addresses shall be told the balancer's.
    let mut netlink = Netlink::open(&NetNs::of_current_thread().unwrap()).unwrap();
    for (address, prefix) in [("10.0.0.200", 32), ("10.0.0.100", 32), ("fd00::200", 128), ("fd00::100", 128)] {
        netlink.add_address("lb0", address.parse().unwrap(), prefix).unwrap();
    }
    // What a veth's peer redirects it takes when it polls, which GRO makes it do.
    lab.balancer.set_back(Back::Redirect).unwrap();
    ethtool::set(&lab.far_ns, "far", Offload::Gro, true).unwrap();

    let far = &lab.far_ns;
    let data: Vec<u8> = (0..1_000_003_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (server, at) in [("10.0.0.10:8080", "10.0.0.200:80"), ("[fd00::11]:8080", "[fd00::200]:80")] {
        let listener = far.run(|| TcpListener::bind(server).unwrap()).unwrap();
        let at: SocketAddr = at.parse().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = accept(&listener);
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut received = Vec::new();
                stream.read_to_end(&mut received).unwrap();
                stream.write_all(&received).unwrap();
            });
            let connected = far.run(|| TcpStream::connect_timeout(&at, PATIENCE)).unwrap();
            let mut stream = connected.unwrap_or_else(|error| panic!("{error}: {:?}", lab.drops()));
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&data).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert!(back == data, "{} of {} bytes came back", back.len(), data.len());
        });
    }

    let server = far.run(|| UdpSocket::bind("10.0.0.12:5353").unwrap()).unwrap();
    let client = far.run(|| UdpSocket::bind("10.0.0.50:0").unwrap()).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 2000];
    for length in [0, 1, 1000, 1400] {
        client.send_to(&data[..length], "10.0.0.200:53").unwrap();
        let (received, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..received], data[..length]);
        assert_eq!(from.ip().to_string(), "10.0.0.100");
        server.send_to(&data[..length], from).unwrap();
        let (received, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..received], from.to_string().as_str()), (&data[..length], "10.0.0.200:53"));
    }
    assert_eq!(lab.drops(), []);
}
