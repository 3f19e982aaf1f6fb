//! Backends that clients' connections fail at are taken out, and forged packets take out nobody.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use netrig_lb::message::{BackendEntry, BackendHealthState, BackendOutlier, Status};
use socket2::{Domain, Socket, Type};

use super::health::{NamedServer, answering};
use super::lab::{Daemon, Lab, SERVICE, TIMEOUT};
use super::strays::segment;
use super::with_lab;
use super::world::until;

/// Backends of three services: one refuses, one is not there, one is well and forged packets are sent to it.
const PORTS: [u16; 3] = [9000, 9001, 9002];
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const SYN: u8 = 0x02;

fn file(lab: &Lab, eject: &str) -> String {
    let service = |n: usize, second: &str, scheduler: &str| {
        format!(
            "[[service]]\nlisten = 'tcp 10.9.0.1:{}'\nscheduler = '{scheduler}'\nlocal = '10.8.0.1-10.8.0.4'\n\
             outlier = {{ failures = 3, interval = '5s', eject = '{eject}', longest = '2h' }}\n\
             backend = ['10.2.0.2:{port}', '{second}:{port}']\n",
            80 + n,
            port = PORTS[n],
        )
    };
    // A check that sees nothing of it: another port is well.
    let check = "check = { kind = 'tcp', port = 9002, interval = '1s' }\n";
    let services =
        [&service(0, "10.2.0.3", "wrr"), check, &service(1, "10.2.0.77", "wrr"), &service(2, "10.2.0.3", "sh")]
            .concat();
    lab.write("lb.toml", &format!("devices = ['lb0', 'lb1']\nconnections = 10_000\n{services}"))
}

fn backends(lab: &Lab, service: usize) -> Vec<BackendEntry> {
    let status: Status = serde_json::from_str(&lab.netrig(0, &["status", "--json"]).0).unwrap();
    let wanted = 80 + service as u16;
    status.services.into_iter().find(|service| service.key.address.port() == wanted).unwrap().backends
}

fn outlier(lab: &Lab, service: usize, backend: usize) -> BackendOutlier {
    backends(lab, service)[backend].health.clone().unwrap().outlier.unwrap()
}

/// Begins a connection, whatever becomes of it.
fn try_to_connect(lab: &Lab, service: usize) {
    let at = SocketAddr::from((ADDRESS, 80 + service as u16));
    let _whatever = lab.client.run(|| TcpStream::connect_timeout(&at, Duration::from_millis(20))).unwrap();
    thread::sleep(Duration::from_millis(20));
}

/// Begins connections until this has been said so often.
#[track_caller]
fn until_said(lab: &Lab, running: &Daemon, text: &str, times: usize, mut clients: impl FnMut()) {
    let deadline = Instant::now() + TIMEOUT;
    while running.said().matches(text).count() < times {
        assert!(Instant::now() < deadline, "not said: {text}\n{}\n{}", running.said(), lab.netrig(0, &["status"]).0);
        clients();
    }
}

/// First packets that no client has sent.
#[derive(Clone, Copy, PartialEq)]
enum Forgery {
    Syn,
    /// Which no host answers.
    WrongChecksum,
    /// The second of which a server that listens refuses.
    TwoNumbers,
}

/// From as many sources.
fn forge(lab: &Lab, service: usize, sources: u8, forgery: Forgery) {
    let socket = lab.client.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(255.into()))).unwrap().unwrap();
    let to = SocketAddrV4::new(ADDRESS, 80 + service as u16);
    for source in 0..sources {
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 100 + source), another_port());
        let mut packet = segment(from, to, SYN);
        if forgery == Forgery::WrongChecksum {
            packet[37] ^= 0x55;
        }
        socket.send_to(&packet, &SocketAddr::from(to).into()).unwrap();
        if forgery == Forgery::TwoNumbers {
            // One more in the sequence number is one less in the checksum.
            packet[27] += 1;
            let sum = u16::from_be_bytes([packet[36], packet[37]]);
            packet[36..38].copy_from_slice(&sum.checked_sub(1).unwrap_or(0xfffe).to_be_bytes());
            socket.send_to(&packet, &SocketAddr::from(to).into()).unwrap();
        }
    }
}

/// Another one each time, so that each begins a connection.
fn another_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(2000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[test]
fn backends_that_fail_are_taken_out_and_forged_packets_take_out_nobody() {
    with_lab(|lab| {
        let _a: Vec<_> =
            PORTS.map(|port| NamedServer::start(&lab.server, &format!("10.2.0.2:{port}"), b'a')).into_iter().collect();
        let _well = NamedServer::start(&lab.server, "10.2.0.3:9002", b'b');
        let listener = lab.server.run(|| TcpListener::bind("10.2.0.3:9000").unwrap()).unwrap();
        let mut running = lab.run(&[&file(lab, "1s"), "--persist"]);

        // One connection to each, and the second backend begins to refuse others.
        let mut streams = [lab.connect(), lab.connect()];
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.write_all(b"b").unwrap();
        let name = |stream: &mut TcpStream| {
            let mut name = [0];
            stream.read_exact(&mut name).unwrap();
            name[0]
        };
        let held = streams.each_mut().map(name).iter().position(|name| *name == b'b').unwrap();
        drop(listener);
        let out = "tcp 10.9.0.1:80: backend 10.2.0.3:9000 gets no new connections for";
        until_said(lab, &running, &format!("{out} 2s: "), 1, || try_to_connect(lab, 0));
        let said = running.said();
        assert!(said.contains("connections refused, and the balancer's own: connection refused\n"), "{said}");
        let back = "tcp 10.9.0.1:80: backend 10.2.0.3:9000 gets new connections again";
        assert!(said.find(back).unwrap() > said.find(&format!("{out} 1s: ")).unwrap(), "{said}");

        // For longer from the next time on; its connection stays.
        assert!(lab.netrig(0, &["reload"]).0.contains("nothing has changed"));
        file(lab, "1h");
        assert!(lab.netrig(0, &["reload"]).0.contains("the outlier detection has changed; who is out stays"));
        until_said(lab, &running, &format!("{out} 7200s: "), 1, || try_to_connect(lab, 0));
        assert_eq!(answering(lab, 6), "a");
        streams[held].write_all(b"x").unwrap();
        assert_eq!(name(&mut accepted), b'x');
        accepted.write_all(b"y").unwrap();
        assert_eq!(name(&mut streams[held]), b'y');
        let of_b = outlier(lab, 0, 1);
        assert!(of_b.left_ms.unwrap() > 3_600_000 && of_b.in_a_row == 3 && of_b.ejected == 3, "{of_b:?}");
        let entry = &backends(lab, 0)[1];
        assert!(entry.total.refused >= 9 && entry.weight == 1 && entry.weight_in_force() == 0, "{entry:?}");
        let shown = lab.netrig(0, &["status"]).0;
        assert!(shown.contains("1 of 6 backends taken out") && shown.contains("    EJECTED for "), "{shown}");
        assert_eq!(entry.health.as_ref().map(|health| health.state), Some(BackendHealthState::Up));
        let listed = lab.netrig(0, &["-L", "-n", "--health"]).0;
        assert!(
            listed.contains("TCP  10.9.0.1:80 tcp and outliers, healthy weight 1, quorum 1\n")
                && listed.contains(" ejected "),
            "{listed}"
        );
        let metrics = lab.netrig(0, &["metrics"]).0;
        let sample = format!(
            "netrig_lb_backend_ejected{{balancer=\"lb\",protocol=\"tcp\",service=\"{SERVICE}\",backend=\"10.2.0.3:9000\"}} 1\n"
        );
        assert!(metrics.contains(&sample) && metrics.contains("result=\"ejected\"} 3\n"), "{metrics}");

        // Nobody has the address.
        let silent = "tcp 10.9.0.1:81: backend 10.2.0.77:9001 gets no new connections for";
        until_said(lab, &running, silent, 1, || try_to_connect(lab, 1));
        let said = running.said();
        assert!(said.lines().any(|line| line.contains(silent) && line.contains(": no packet came for ")), "{said}");

        // What no host answers: the backend is suspected, asked, and stays.
        let stays = "; it stays, as it has answered the balancer's own connection";
        until_said(lab, &running, stays, 1, || {
            forge(lab, 2, 30, Forgery::WrongChecksum);
            try_to_connect(lab, 2);
        });
        // Nor does it go where it was made to refuse.
        let answered = || [0, 1].map(|backend| outlier(lab, 2, backend).answered).iter().sum::<u64>();
        let before = answered();
        let is_asked = until(TIMEOUT, || {
            forge(lab, 2, 30, Forgery::TwoNumbers);
            (answered() > before).then_some(())
        });
        let refused = backends(lab, 2).iter().map(|backend| backend.total.refused).sum::<u64>();
        assert!(is_asked.is_some() && refused > 0, "{refused} refused");
        // What is under way is over.
        thread::sleep(Duration::from_secs(6));
        let known = [0, 1].map(|backend| outlier(lab, 2, backend));
        assert!(known.iter().all(|of| of.left_ms.is_none() && of.ejected == 0), "{known:?}");
        // A flood that backends answer to nobody is not even suspicious.
        let before = backends(lab, 2).iter().map(|backend| backend.total.connections).sum::<u64>();
        (0..20).for_each(|_| forge(lab, 2, 100, Forgery::Syn));
        let flooded = || backends(lab, 2).iter().map(|backend| backend.total.connections).sum::<u64>() >= before + 1000;
        assert!(until(TIMEOUT, || flooded().then_some(())).is_some());
        thread::sleep(Duration::from_secs(5));
        assert_eq!([0, 1].map(|backend| outlier(lab, 2, backend)), known);

        // Another control plane goes on with it.
        running.kill();
        let running = lab.run(&["--persist"]);
        let of_b = outlier(lab, 0, 1);
        assert!(of_b.left_ms.is_some() && of_b.in_a_row == 3, "{of_b:?}");
        assert_eq!(answering(lab, 6), "a");
        // The last one is never out.
        let _b = NamedServer::start(&lab.server, "10.2.0.3:9000", b'b');
        lab.netrig(0, &["-d", "-t", SERVICE, "-r", "10.2.0.2:9000"]);
        assert_eq!(answering(lab, 2), "b");
        until_said(lab, &running, back, 1, || thread::sleep(Duration::from_millis(100)));
        let kept = lab.path("lb/lb.health");
        assert!(kept.exists());
        lab.netrig(0, &["stop", "--detach"]);
        assert!(!kept.exists());
    });
}
