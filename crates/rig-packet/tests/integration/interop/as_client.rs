//! The engine asks nginx.

use std::fs;
use std::net::{IpAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rig_packet::http::{Method, request};
use rig_packet::plan::Driver;
use rig_packet::{
    Client, CloseMethod, Counters, Latencies, Load, MessageEnd, RequestRepeat, Service, TcpClient, TcpTimes,
    TupleOrder, V4, V6,
};
use rig_skip::{Lack, skip};
use rig_sys::process;
use tempfile::TempDir;

use super::world::*;

/// nginx in the kernel's namespace, until it is dropped.
struct Nginx {
    child: Child,
    _files: TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nginx {
    fn start<F: Hosts>(world: &InteropLab<F>) -> Self {
        let files = TempDir::new().unwrap();
        let folder = files.path().display().to_string();
        let large: Vec<u8> = (0..1u32 << 20).map(|n| b'a' + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 26).collect();
        fs::write(files.path().join("large"), large).unwrap();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {folder}/{name};\n"))
            .collect();
        let user = if process::user_id() == 0 { "user root;" } else { "" };
        let config = format!(
            "{user} daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/log;
            events {{ worker_connections 4096; }}
            http {{
                access_log off; {temporary} root {folder}; keepalive_requests 10; keepalive_timeout 60s;
                gzip_min_length 0; gzip_types *; gzip_http_version 1.0;
                server {{
                    listen 80 backlog=4096; listen [::]:80 backlog=4096;
                    location = / {{ return 200 \"hello from nginx\\n\"; }}
                    location = /large {{ }}
                    location = /coded {{ gzip on; alias {folder}/large; }}
                }}
            }}"
        );
        fs::write(files.path().join("nginx.conf"), config).unwrap();
        let mut command = Command::new(program().unwrap());
        command.args(["-p", &folder, "-c", "nginx.conf", "-e", "stderr"]).stdin(Stdio::null()).stderr(Stdio::inherit());
        process::in_namespace(&mut command, &world.kernel);
        let child = process::die_with_parent(&mut command).spawn().unwrap();
        let address: IpAddr = F::KERNEL.into();
        let answers = || world.kernel.run(|| TcpStream::connect((address, 80)).is_ok()).unwrap();
        until(answers);
        Self { child, _files: files }
    }
}

/// Debian has it where users do not look for programs.
fn program() -> Option<&'static str> {
    ["nginx", "/usr/sbin/nginx"].into_iter().find(|program| has(program, "-v"))
}

fn client(request: Vec<u8>, rate: f64, repeat: Option<RequestRepeat>, close: CloseMethod) -> Service {
    let client = Client {
        ports: 10_000..=60_000,
        server_ports: 80..=80,
        load: Load { hold: Some(50), ..Load::new(rate) },
        repeat,
        walk: TupleOrder::Ports,
        flood: None,
    };
    Service::TcpClient(TcpClient {
        client,
        times: TcpTimes::default(),
        request: request.into(),
        response: MessageEnd::Http,
        close,
        delayed_ack: Duration::from_millis(100),
        mss: 1440,
        resets: true,
    })
}

/// What a client meets, that nginx serves; `None` where there is no nginx.
fn with_nginx<F: Hosts>(driver: Driver, service: Service, connections: u64) -> Option<(Counters, Latencies)> {
    if program().is_none() {
        skip(Lack::Program("nginx"), "Debian: apt-get install nginx-light");
        return None;
    }
    let mut world = InteropLab::<F>::new(driver)?;
    let _nginx = Nginx::start(&world);
    let (counters, latencies) = world.client(service, connections);
    assert_eq!((counters.sk_con(), counters.sk_err), (0, 0), "{counters:?}");
    assert_eq!(counters.bad_rx, 0, "{counters:?}");
    assert_eq!(counters.tcp_rsp, counters.tcp_req);
    assert_eq!(latencies.transaction.count(), counters.tcp_rsp);
    assert_eq!(latencies.handshake.count(), counters.sk_open);
    Some((counters, latencies))
}

fn get(path: &str) -> Vec<u8> {
    request(Method::Get, "netrig", path, 85)
}

fn short<F: Hosts>(driver: Driver, close: CloseMethod) {
    let Some((counters, _)) = with_nginx::<F>(driver, client(get("/"), 2000.0, None, close), 1000) else { return };
    assert!(counters.sk_open >= 1000);
    assert_eq!((counters.http_2xx, counters.http_err), (counters.sk_open, 0));
    assert_eq!(counters.http_get, counters.sk_open);
}

#[test]
fn short_connections() {
    short::<V4>(Driver::Xdp, CloseMethod::Fin);
    short::<V6>(Driver::Xdp, CloseMethod::Fin);
}

#[test]
fn short_connections_closed_by_reset_by_other_ways() {
    short::<V4>(Driver::XdpGeneric, CloseMethod::Reset);
    short::<V4>(Driver::Packet, CloseMethod::Reset);
}

#[test]
fn nginx_closes_each_connection_when_asked_to() {
    let request = b"GET / HTTP/1.1\r\nHost: netrig\r\nConnection: close\r\n\r\n".to_vec();
    let repeat = Some(RequestRepeat::every(Duration::ZERO));
    let Some((counters, _)) = with_nginx::<V6>(Driver::Xdp, client(request, 2000.0, repeat, CloseMethod::Fin), 300)
    else {
        return;
    };
    assert_eq!((counters.http_2xx, counters.http_err), (counters.sk_open, 0));
}

#[test]
fn connections_that_stay_until_nginx_announces_their_end() {
    let repeat = Some(RequestRepeat::every(Duration::from_millis(1)));
    let Some((counters, _)) = with_nginx::<V4>(Driver::Xdp, client(get("/"), 500.0, repeat, CloseMethod::Fin), 100)
    else {
        return;
    };
    // Ten requests each, but for those that the end of the test cut short.
    assert!(counters.http_2xx >= 1000 && counters.http_2xx <= 10 * counters.sk_open, "{counters:?}");
    assert_eq!(counters.http_err, 0);
}

#[test]
fn a_megabyte_by_length_by_chunks_and_until_the_connection_ends() {
    let chunked = b"GET /coded HTTP/1.1\r\nHost: netrig\r\nAccept-Encoding: gzip\r\n\r\n".to_vec();
    let until_close = b"GET /coded HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n".to_vec();
    for (request, bytes) in [(get("/large"), 1 << 20), (chunked, 100_000), (until_close, 100_000)] {
        let service = client(request, 100.0, None, CloseMethod::Fin);
        let Some((counters, _)) = with_nginx::<V4>(Driver::Xdp, service, 10) else { return };
        assert_eq!((counters.http_2xx, counters.http_err), (counters.sk_open, 0), "{counters:?}");
        assert!(counters.bits_rx / 8 > counters.sk_open * bytes, "{counters:?}");
    }
}

#[test]
fn methods_and_statuses() {
    for (request, ok) in [
        (request(Method::Head, "netrig", "/large", 85), true),
        (request(Method::Post, "netrig", "/", 1000), true),
        (get("/missing"), false),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), false),
    ] {
        let repeat = Some(RequestRepeat { requests: Some(3), ..RequestRepeat::every(Duration::ZERO) });
        let Some((counters, _)) = with_nginx::<V6>(Driver::Xdp, client(request, 100.0, repeat, CloseMethod::Fin), 10)
        else {
            return;
        };
        let (good, bad) = if ok { (counters.tcp_rsp, 0) } else { (0, counters.tcp_rsp) };
        assert_eq!((counters.http_2xx, counters.http_err), (good, bad), "{counters:?}");
    }
}

#[test]
fn a_port_that_nobody_listens_to_refuses() {
    let Some(mut world) = InteropLab::<V4>::new(Driver::Xdp) else { return };
    let (counters, _) = world.client(client(get("/"), 1000.0, None, CloseMethod::Fin), 20);
    assert_eq!((counters.sk_err, counters.sk_con(), counters.tcp_rsp), (counters.sk_open, 0, 0));
    assert_eq!((counters.rst_rx, counters.syn_rt), (counters.sk_open, 0));
}
