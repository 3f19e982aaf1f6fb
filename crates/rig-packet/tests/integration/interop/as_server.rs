//! Sockets of the kernel, and curl, ask the engine.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rig_packet::http::{HEADER, response};
use rig_packet::plan::Driver;
use rig_packet::{Counters, MessageEnd, Server, Service, TcpServer, TcpTimes, V4, V6};
use rig_skip::{Lack, skip};
use socket2::SockRef;

use super::world::*;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: netrig\r\n\r\n";
const HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nHost: netrig\r\n\r\n";

fn server(body: usize, close: bool) -> Service {
    Service::TcpServer(TcpServer {
        server: Server { ports: 80..=80 },
        times: TcpTimes { retransmit: Duration::from_millis(500), retries: 5, ..TcpTimes::default() },
        request: MessageEnd::Http,
        response: answer(body, close).into(),
        close,
        idle: Duration::from_secs(60),
        window: 16,
        mss: 1440,
        resets: true,
    })
}

fn answer(body: usize, close: bool) -> Vec<u8> {
    let body: Vec<u8> = (0..body).map(|n| b'a' + (n % 23) as u8).collect();
    response(&body, close)
}

fn address<F: Hosts>() -> SocketAddr {
    let ip: IpAddr = F::ENGINE.into();
    (ip, 80).into()
}

fn connect<F: Hosts>() -> TcpStream {
    let stream = TcpStream::connect_timeout(&address::<F>(), TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn take(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut taken = vec![0; bytes];
    stream.read_exact(&mut taken).unwrap();
    taken
}

/// Runs `work` beside a server; what the server counted, when it could be run. Nothing is open afterwards.
fn serving<F: Hosts>(service: Service, work: impl FnOnce() + Send) -> Option<Counters> {
    serving_by::<F>(Driver::Xdp, service, work)
}

fn serving_by<F: Hosts>(driver: Driver, service: Service, work: impl FnOnce() + Send) -> Option<Counters> {
    let mut world = InteropLab::<F>::new(driver)?;
    let (counters, ()) = world.server(service, work);
    assert_eq!((counters.sk_con(), counters.bad_rx), (0, 0), "{counters:?}");
    Some(counters)
}

fn one_by_one<F: Hosts>(driver: Driver) {
    let counters = serving_by::<F>(driver, server(14, true), || {
        for _ in 0..100 {
            let mut stream = connect::<F>();
            stream.write_all(GET).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert_eq!(got, answer(14, true));
        }
    });
    let Some(counters) = counters else { return };
    assert_eq!((counters.sk_open, counters.sk_err), (100, 0), "{counters:?}");
    assert_eq!((counters.http_get, counters.http_2xx, counters.http_err), (100, 100, 0));
}

#[test]
fn short_connections() {
    one_by_one::<V4>(Driver::Xdp);
    one_by_one::<V4>(Driver::XdpGeneric);
    one_by_one::<V6>(Driver::Packet);
}

#[test]
fn one_connection_with_everything_on_it() {
    let counters = serving::<V4>(server(5000, false), || {
        let mut stream = connect::<V4>();
        let whole = answer(5000, false);
        for n in 0..50 {
            // In pieces, whole, without a body, with one that comes in chunks, two at once.
            match n % 5 {
                0 => GET.chunks(7).for_each(|piece| stream.write_all(piece).unwrap()),
                1 => stream.write_all(GET).unwrap(),
                2 => stream.write_all(HEAD).unwrap(),
                3 => {
                    stream.write_all(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
                    stream.write_all(b"5\r\nhello\r\n").unwrap();
                    stream.write_all(b"0\r\n\r\n").unwrap();
                }
                _ => stream.write_all(&GET.repeat(2)).unwrap(),
            }
            match n % 5 {
                2 => assert_eq!(take(&mut stream, HEADER), whole[..HEADER]),
                4 => assert_eq!(take(&mut stream, 2 * whole.len()), whole.repeat(2)),
                _ => assert_eq!(take(&mut stream, whole.len()), whole),
            }
        }
        // A connection that is to end here ends, and nothing more comes.
        stream.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, whole);
    });
    let Some(counters) = counters else { return };
    assert_eq!((counters.sk_open, counters.sk_err, counters.http_err), (1, 0, 0), "{counters:?}");
    assert_eq!((counters.http_get, counters.http_post, counters.tcp_req), (41, 10, 61));
}

#[test]
fn a_megabyte_each_way() {
    let counters = serving::<V6>(server(1 << 20, false), || {
        let mut stream = connect::<V6>();
        stream.write_all(b"POST / HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n").unwrap();
        stream.write_all(&vec![b'p'; 1 << 20]).unwrap();
        assert!(take(&mut stream, HEADER + (1 << 20)) == answer(1 << 20, false));
    });
    let Some(counters) = counters else { return };
    assert_eq!((counters.http_post, counters.sk_err, counters.http_err), (1, 0, 0), "{counters:?}");
}

#[test]
fn a_reader_that_stops_reading_gets_everything() {
    let counters = serving::<V4>(server(4 << 20, false), || {
        let mut stream = connect::<V4>();
        SockRef::from(&stream).set_recv_buffer_size(32 << 10).unwrap();
        stream.write_all(GET).unwrap();
        // Long enough for the window to close.
        thread::sleep(Duration::from_secs(2));
        assert!(take(&mut stream, HEADER + (4 << 20)) == answer(4 << 20, false));
    });
    let Some(counters) = counters else { return };
    assert_eq!((counters.tcp_rsp, counters.sk_err), (1, 0), "{counters:?}");
}

#[test]
fn a_half_closed_connection_gets_its_response() {
    for body in [14, 300_000] {
        let counters = serving::<V4>(server(body, false), || {
            let mut stream = connect::<V4>();
            stream.write_all(GET).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert!(got == answer(body, false));
        });
        let Some(counters) = counters else { return };
        assert_eq!((counters.tcp_rsp, counters.sk_err), (1, 0), "{counters:?}");
    }
}

#[test]
fn resets_and_garbage() {
    let counters = serving::<V6>(server(300_000, false), || {
        let reset = |stream: TcpStream| {
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            drop(stream);
        };
        // Before, within and behind a request, and within the response.
        let mut stream = connect::<V6>();
        stream.write_all(&GET[..9]).unwrap();
        thread::sleep(Duration::from_millis(50));
        reset(stream);
        reset(connect::<V6>());
        let mut stream = connect::<V6>();
        stream.write_all(GET).unwrap();
        take(&mut stream, 100);
        reset(stream);
        // What is no HTTP is reset by the server.
        let mut stream = connect::<V6>();
        stream.write_all(b"\x16\x03\x01 hello\r\n\r\n").unwrap();
        assert_eq!(stream.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        // A port without a service.
        let ip: IpAddr = V6::ENGINE.into();
        let refused = TcpStream::connect_timeout(&(ip, 81).into(), TIMEOUT).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // And it goes on.
        let mut stream = connect::<V6>();
        stream.write_all(GET).unwrap();
        assert!(take(&mut stream, HEADER + 300_000) == answer(300_000, false));
    });
    let Some(counters) = counters else { return };
    assert_eq!((counters.sk_open, counters.http_err), (5, 1), "{counters:?}");
    // The reset within the request or the response may be lost with what was under way, never more than those fail.
    assert!((2..=3).contains(&counters.sk_err), "{counters:?}");
}

#[test]
fn curl() {
    if !has("curl", "--version") {
        return skip(Lack::Program("curl"), "Debian: apt-get install curl");
    }
    let counters = serving::<V4>(server(20_000, false), || {
        let curl = |arguments: &[&str]| {
            let output = Command::new("curl")
                .args(["-s", "-S", "--noproxy", "*", "--max-time", "60"])
                .args(arguments)
                .output()
                .unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let url = format!("http://{}/", address::<V4>());
        let body = &answer(20_000, false)[HEADER..];
        assert!(curl(&[&url, &url, &url]) == body.repeat(3));
        assert!(curl(&["-0", &url]) == body);
        assert_eq!(curl(&["-I", &url]).len(), HEADER);
        assert!(curl(&["-d", "some data", &url]) == body);
        assert!(curl(&["-H", "Transfer-Encoding: chunked", "-d", "some data", &url]) == body);
    });
    let Some(counters) = counters else { return };
    assert_eq!((counters.sk_open, counters.sk_err, counters.http_err), (5, 0, 0), "{counters:?}");
    assert_eq!((counters.http_get, counters.http_post, counters.tcp_req), (4, 2, 7));
}
