//! Persistence: a client's connections go to one backend, by the file, by commands, through a drain and a restart. And its opposite: each
//! datagram goes by itself.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::{fs, io};

use netrig_lb::message::{Counters, Status};
use rig_sys::netlink::Netlink;
use socket2::{Domain, Socket, Type};

use super::lab::{Lab, SERVERS, SERVICE, TIMEOUT, exchange};
use super::{BOTH, with_lab};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const LOCAL: &str = "10.8.0.1";
const SECOND: &str = "10.9.0.1:81";
const THIRD: &str = "10.9.0.1:82";
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 3);

fn status(lab: &Lab) -> Status {
    serde_json::from_str(&lab.netrig(0, &["status", "--json"]).0).unwrap()
}

/// Established connections of each backend, and the sources that are kept at it.
fn shares(lab: &Lab) -> Vec<(String, u32, u32)> {
    let mut shares: Vec<_> = status(lab).services[0]
        .backends
        .iter()
        .map(|backend| (backend.address.to_string(), backend.active, backend.persistent))
        .collect();
    shares.sort();
    shares
}

fn connect_from(lab: &Lab, source: Ipv4Addr, service: &str) -> TcpStream {
    let connect = || -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(IpAddr::V4(source), 0).into())?;
        let at: SocketAddr = service.parse().unwrap();
        socket.connect_timeout(&at.into(), TIMEOUT)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(socket.into())
    };
    let mut stream = lab.client.run(connect).unwrap().unwrap();
    exchange(&mut stream, 1000).unwrap();
    stream
}

/// Where the connections of a client go, one after the other: the backends that have more afterwards.
fn backends_of(lab: &Lab, source: Ipv4Addr, count: usize, held: &mut Vec<TcpStream>) -> Vec<String> {
    let before = shares(lab);
    held.extend((0..count).map(|_| connect_from(lab, source, SERVICE)));
    let grown = |after: Vec<(String, u32, u32)>| -> Vec<String> {
        let both = before.iter().zip(after);
        both.filter(|(before, after)| before.1 != after.1).map(|(_, (address, ..))| address).collect()
    };
    grown(shares(lab))
}

/// A service of UDP in the same world, by NAT: one socket's questions are answered by all backends in turn, and nothing is kept of them.
fn datagrams_go_by_themselves(lab: &Lab) {
    const UDP: &str = "10.9.0.1:53";
    let backends = SERVERS.map(|host| format!("{host}:5353"));
    let servers = backends.clone().map(|at| lab.server.run(|| UdpSocket::bind(at).unwrap()).unwrap());
    let client = lab.client.run(|| UdpSocket::bind("10.1.0.2:0").unwrap()).unwrap();
    servers.iter().chain([&client]).for_each(|socket| socket.set_read_timeout(Some(TIMEOUT)).unwrap());
    client.connect(UDP).unwrap();
    lab.netrig(2, &["-A", "-t", UDP, "-o"]);
    lab.netrig(0, &["-A", "-u", UDP, "-s", "rr", "-o"]);
    let refused = lab.netrig(2, &["-a", "-u", UDP, "-r", &backends[0], "-b"]).1;
    assert!(refused.contains("one_packet with full-nat"), "{refused}");
    for backend in &backends {
        lab.netrig(0, &["-a", "-u", UDP, "-r", backend, "-m"]);
    }
    let at = |status: &Status| status.services.iter().position(|service| service.key.address.port() == 53).unwrap();
    for nth in 0..6 {
        client.send(&[nth]).unwrap();
        let mut buffer = [0; 9];
        let server = &servers[usize::from(nth) % 2];
        let (_, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((buffer[0], from), (nth, client.local_addr().unwrap()));
        server.send_to(&[nth + 100], from).unwrap();
        // A connected socket hears the service alone.
        assert_eq!((client.recv(&mut buffer).unwrap(), buffer[0]), (1, nth + 100));
    }
    let status = status(lab);
    let service = &status.services[at(&status)];
    let Counters { connections, in_packets, out_packets, .. } = service.counters;
    assert_eq!((service.one_packet, connections, in_packets, out_packets), (true, 6, 6, 6));
    assert!(!lab.netrig(0, &["-L", "-c", "-n"]).0.contains(UDP));
    assert!(lab.netrig(0, &["-L", "-n"]).0.contains("10.9.0.1:53 rr ops\n"));
    assert!(lab.netrig(0, &["-S", "-n"]).0.contains(&format!("-A -u {UDP} -s rr -o\n")));
    assert!(lab.netrig(0, &["save"]).0.contains("one_packet = true"));
    assert!(lab.netrig(0, &["status"]).0.contains("each datagram is scheduled by itself"));
    let traced = lab.netrig(0, &["trace", "udp", "10.1.0.2:1000", UDP]).0;
    assert!(traced.contains("by itself: no connection is kept"), "{traced}");
    let traced = lab.netrig(0, &["trace", "--device", "lb1", "udp", &backends[0], "10.1.0.2:1000"]).0;
    assert!(traced.contains(&format!("from a backend of service {UDP}")), "{traced}");
    for (said, named) in [("46", "ef"), ("keep", "keep")] {
        lab.netrig(0, &["-E", "-u", UDP, "--dscp", said]);
        let is_set = named != "keep";
        let status = self::status(lab);
        assert_eq!(status.services[at(&status)].dscp, named);
        assert_eq!(lab.netrig(0, &["-S", "-n"]).0.contains(&format!("-A -u {UDP} -s rr -o --dscp ef\n")), is_set);
        for (of, says) in [("save", "dscp = \"ef\""), ("status", "dscp: ef in packets to its backends")] {
            assert_eq!(lab.netrig(0, &[of]).0.contains(says), is_set, "{of}");
        }
        let traced = lab.netrig(0, &["trace", "udp", "10.1.0.2:1000", UDP]).0;
        assert_eq!(traced.contains("its DSCP is ef, as the service says"), is_set, "{traced}");
    }
    lab.netrig(0, &["-D", "-u", UDP]);
}

/// A service of any port at the address of another one, by NAT: each port of a client comes to the port that it asked for, all at one backend.
fn every_port_of_an_address(lab: &Lab) {
    const ANY: &str = "10.9.0.1:0";
    for server in SERVERS {
        for port in [7001, 7002] {
            let at = SocketAddr::new(server.parse().unwrap(), port);
            lab.serve(lab.server.run(|| TcpListener::bind(at).unwrap()).unwrap());
        }
    }
    let refused = lab.netrig(2, &["-A", "-t", "10.9.0.1"]).1;
    assert!(refused.contains("ADDRESS:0"), "{refused}");
    lab.netrig(0, &["-A", "-t", ANY, "-s", "rr", "-p", "60"]);
    let refused = lab.netrig(2, &["-a", "-t", ANY, "-r", SERVERS[0], "-b"]).1;
    assert!(refused.contains("any port with full-nat"), "{refused}");
    let refused = lab.netrig(2, &["-a", "-t", ANY, "-r", "10.2.0.2:7001", "-m"]).1;
    assert!(refused.contains("a backend with a port"), "{refused}");
    for server in SERVERS {
        lab.netrig(0, &["-a", "-t", ANY, "-r", server, "-m"]);
    }
    let from_one_port = |port: u16| {
        let connect = || -> io::Result<TcpStream> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&SocketAddr::new(OWN.into(), 6000).into())?;
            socket.connect_timeout(&SocketAddr::new([10, 9, 0, 1].into(), port).into(), TIMEOUT)?;
            socket.set_read_timeout(Some(TIMEOUT))?;
            Ok(socket.into())
        };
        let mut stream = lab.client.run(connect).unwrap().unwrap();
        exchange(&mut stream, 1000).unwrap();
        stream
    };
    let mut streams = [7001, 7002].map(from_one_port);
    streams.iter_mut().for_each(|stream| exchange(stream, 1000).unwrap());
    let listed = lab.netrig(0, &["-L", "-c", "-n", "-t", ANY]).0;
    let of: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let of: Vec<_> = of.iter().filter(|words| words.contains(&"10.1.0.2:6000")).collect();
    assert_eq!(of.len(), 2, "{listed}");
    for port in ["7001", "7002"] {
        let here = of.iter().find(|words| words.contains(&format!("10.9.0.1:{port}").as_str())).unwrap();
        assert!(SERVERS.iter().any(|server| here.contains(&format!("{server}:{port}").as_str())), "{listed}");
    }
    // The other service of the address goes first.
    lab.connect();
    let status = status(lab);
    let any = status.services.iter().find(|service| service.key.address.port() == 0).unwrap();
    assert_eq!((any.counters.connections, any.persistence.timeout), (2, Some(60)));
    let mut active: Vec<u32> = any.backends.iter().map(|backend| backend.active).collect();
    active.sort_unstable();
    assert_eq!(active, [0, 2]);
    assert!(lab.netrig(0, &["-L", "-n"]).0.contains("TCP  10.9.0.1:0 rr persistent 60"));
    let saved = lab.netrig(0, &["-S", "-n"]).0;
    assert!(saved.contains(&format!("-A -t {ANY} -s rr -p 60\n-a -t {ANY} -r 10.2.0.2:0 -m -w 1\n")), "{saved}");
    let kept = lab.netrig(0, &["save"]).0;
    assert!(kept.contains("listen = [\"tcp 10.9.0.1:any\"]") && kept.contains("\"10.2.0.2-10.2.0.3\""), "{kept}");
    let traced = lab.netrig(0, &["trace", "tcp", "10.1.0.2:6001", "10.9.0.1:7002"]).0;
    assert!(
        traced.contains("for service 10.9.0.1:any") && traced.contains(":7002, where the source's last"),
        "{traced}"
    );
    let metrics = lab.netrig(0, &["metrics"]).0;
    assert!(metrics.contains("service=\"10.9.0.1:0\""), "{metrics}");
    lab.netrig(0, &["-D", "-t", ANY]);
    streams.iter_mut().for_each(|stream| exchange(stream, 1000).unwrap());
}

#[test]
fn a_clients_connections_go_to_one_backend() {
    with_lab(|lab| {
        Netlink::open(&lab.client).unwrap().add_address("eth0", OTHER.into(), 24).unwrap();
        let file = lab.file(BOTH);
        let text = fs::read_to_string(&file).unwrap();
        let scheduler = text.lines().find(|line| line.starts_with("scheduler")).unwrap();
        let kept = text.replace(scheduler, "scheduler = \"rr\"\npersistence = \"120s\"");
        fs::write(&file, &kept).unwrap();
        let mut running = lab.run(&[&file, "--persist"]);
        let mut held = Vec::new();
        let own = backends_of(lab, OWN, 4, &mut held);
        let other = backends_of(lab, OTHER, 4, &mut held);
        assert!(own.len() == 1 && other.len() == 1 && own != other, "{own:?} {other:?}");
        let sources: Vec<_> = shares(lab).into_iter().map(|(_, _, sources)| sources).collect();
        assert_eq!(sources, [1, 1]);
        let traced = lab.netrig(0, &["trace", "tcp", "10.1.0.2:1000", SERVICE]).0;
        assert!(traced.contains(&format!("persistence: backend {}", own[0])), "{traced}");
        let told = lab.netrig(0, &["status"]).0;
        assert!(told.contains("persistence: 120 s; 2 sources"), "{told}");
        assert!(lab.netrig(0, &["-L", "-n"]).0.contains("rr persistent 120"));
        assert!(lab.netrig(0, &["-S", "-n"]).0.contains("-s rr -p 120\n"));
        let metrics = lab.netrig(0, &["metrics"]).0;
        assert!(metrics.contains("netrig_lb_backend_persistent_sources{"), "{metrics}");

        lab.netrig(0, &["-E", "-t", SERVICE, "-p", "60"]);
        let told = lab.netrig(0, &["reload"]).0;
        assert!(told.contains("persistence is now 120 s"), "{told}");

        // A restart knows it, and what was said.
        running.kill();
        drop(running);
        let _running = lab.run(&["--persist"]);
        assert_eq!(backends_of(lab, OWN, 3, &mut held), own);

        // One that drains gets none of them, and they stay where they go then.
        lab.netrig(0, &["-e", "-t", SERVICE, "-r", &own[0], "-w", "0"]);
        assert_eq!(backends_of(lab, OWN, 2, &mut held), other);
        lab.netrig(0, &["-e", "-t", SERVICE, "-r", &own[0], "-w", "1"]);
        assert_eq!(backends_of(lab, OWN, 2, &mut held), other);

        // By a command all of a network are one source, and without there is none.
        lab.netrig(0, &["-E", "-t", SERVICE, "-p", "60", "-M", "255.255.255.0"]);
        assert!(lab.netrig(0, &["save"]).0.contains("persistence = \"60s\"\npersistence_prefix4 = 24"));
        let network = backends_of(lab, OWN, 1, &mut held);
        assert_eq!(backends_of(lab, OTHER, 3, &mut held), network);
        // Another service of the group has the same clients at the same backends, one that is not in it has not.
        for (service, group) in [(SECOND, "3"), (THIRD, "0")] {
            lab.netrig(0, &["-A", "-t", service, "-s", "rr", "-p", "60", "-M", "24", "--persistence-group", group]);
            lab.netrig(0, &["-P", "-t", service, "-z", LOCAL]);
            for backend in ["10.2.0.2:8080", "10.2.0.3:8080"] {
                lab.netrig(0, &["-a", "-t", service, "-r", backend, "-b"]);
            }
        }
        lab.netrig(0, &["-E", "-t", SERVICE, "--persistence-group", "3"]);
        let network = backends_of(lab, OWN, 1, &mut held);
        let at = |service: usize| {
            let status = status(lab);
            let with_some = status.services[service].backends.iter().filter(|backend| backend.active > 0);
            with_some.map(|backend| backend.address.to_string()).collect::<Vec<_>>()
        };
        held.extend((0..3).map(|_| connect_from(lab, OTHER, SECOND)));
        assert_eq!(at(1), network);
        held.extend((0..3).map(|_| connect_from(lab, OTHER, THIRD)));
        assert_eq!(at(2).len(), 1);
        assert!(lab.netrig(0, &["-L", "-n"]).0.contains("rr persistent 60 mask 255.255.255.0 group 3"));
        assert!(lab.netrig(0, &["save"]).0.contains("persistence_group = 3"));
        lab.netrig(0, &["-D", "-t", SECOND]);
        lab.netrig(0, &["-D", "-t", THIRD]);

        datagrams_go_by_themselves(lab);
        every_port_of_an_address(lab);
        lab.netrig(0, &["-E", "-t", SERVICE, "-p", "0"]);
        assert_eq!(backends_of(lab, OWN, 4, &mut held).len(), 2);
        held.iter_mut().for_each(|stream| exchange(stream, 1000).unwrap());
    });
}
