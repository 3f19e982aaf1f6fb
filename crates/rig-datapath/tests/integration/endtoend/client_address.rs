//! Programs of backends that nobody has changed see the client's address, and clients see nothing of how.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use ipnet::IpNet;
use rig_datapath::balancer::{AddressReceiver, ClientAddress, Drop, Service, SynProxy, TransmitMethod};
use rig_skip::{Lack, skip};
use rig_sys::netns::NetNs;
use rig_sys::process;
use tempfile::TempDir;

use super::lab::{Lab, Plan, Random, TIMEOUT, client, server, until};
use super::programs::{has, has_web, nginx, run_well, temporary_paths};
use super::talk::again;
use super::{LOCAL, V4, V6, backend, config, full_nat, sizes, tcp};

const PORT: u16 = 8080;
const SERVICE: u16 = 80;

/// A cgroup of version 2 until it is dropped.
pub(super) struct Cgroup(pub(super) PathBuf);

impl Cgroup {
    /// `None`, said aloud, where there is no such hierarchy.
    pub(super) fn create() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields[2] == "cgroup2");
        let Some(root) = root else {
            skip(Lack::Kernel, "no cgroup v2 is mounted");
            return None;
        };
        let path = Path::new(root[1]).join(format!(
            "netrig-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&path).unwrap();
        Some(Self(path))
    }
}

impl std::ops::Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes have been killed, and are collected; the kernel may need a moment more.
        until("the end of the cgroup", || fs::remove_dir(&self.0).is_ok());
    }
}

/// nginx in a cgroup that writes down who its clients are.
struct Web {
    child: Child,
    log: PathBuf,
    _files: TempDir,
}

impl std::ops::Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Web {
    /// `listen` is what follows the port, and `client` the variable of its client's address.
    fn start(ns: &NetNs, cgroup: &Cgroup, listen: &str, client: &str) -> Self {
        let both = format!("listen {PORT} {listen}; listen [::]:{PORT} ipv6only=on {listen};");
        Self::start_at(ns, cgroup, &both, client)
    }

    /// With these lines for where it listens.
    fn start_at(ns: &NetNs, cgroup: &Cgroup, listens: &str, client: &str) -> Self {
        let files = TempDir::new().unwrap();
        let folder = files.path().display().to_string();
        let temporary = temporary_paths(&folder);
        let config = format!(
            "user root; daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors;
            events {{ worker_connections 256; }}
            http {{
                {temporary} log_format who '[${client}_addr]:${client}_port $status'; access_log {folder}/access who;
                server {{ {listens} location / {{ return 200 well; }} }}
            }}"
        );
        fs::write(files.path().join("nginx.conf"), config).unwrap();
        let procs = cgroup.0.join("cgroup.procs").display().to_string();
        let (conf, shell) = (format!("{folder}/nginx.conf"), "echo $$ > \"$0\"; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", shell, &procs, nginx(), "-p", &folder, "-c", &conf, "-e", "stderr"]);
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        process::in_namespace(&mut command, ns);
        let child = process::die_with_parent(&mut command).spawn().unwrap();
        let web = Self { child, log: files.path().join("access"), _files: files };
        let here: SocketAddr = ([127, 0, 0, 1], PORT).into();
        until("nginx", || ns.run(|| TcpStream::connect(here).is_ok()).unwrap());
        web
    }

    fn saw(&self) -> Vec<String> {
        fs::read_to_string(&self.log).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

fn told(client_address: ClientAddress, syn_proxy: SynProxy) -> Option<Lab> {
    let services = [V4, V6].map(|address| Service {
        client_address,
        syn_proxy,
        ..tcp(address, SERVICE, full_nat(address), vec![backend(server(0, address == V6, PORT), 1)])
    });
    let mut lab = Lab::new(Plan { servers: 1, ..Plan::default() }, sizes(4096), &config(services))?;
    lab.balancer.set_back(TransmitMethod::Redirect).unwrap();
    Some(lab)
}

fn url(address: &str) -> String {
    if address == V6 { format!("http://[{address}]/") } else { format!("http://{address}/") }
}

/// Fetches from a port of its own; as nginx writes it.
fn fetch_from(ns: &NetNs, address: &str, port: u16) -> String {
    let port = port.to_string();
    let said = run_well(ns, "curl", &["-g", "-sS", "--max-time", "60", "--local-port", &port, &url(address)]);
    assert_eq!(said, "well");
    format!("[{}]:{port} 200", client(address == V6))
}

pub(super) fn balancers() -> Vec<IpNet> {
    LOCAL.map(|local| IpNet::from(local.parse::<IpAddr>().unwrap())).to_vec()
}

fn nginx_sees_clients(syn_proxy: SynProxy, sysctls: &[(&str, &str)]) {
    if !has_web() {
        return;
    }
    let Some(mut lab) = told(ClientAddress::Toa, syn_proxy) else { return };
    let Some(cgroup) = Cgroup::create() else { return };
    lab.wires.servers[0].sysctls(sysctls).unwrap();
    let web = Web::start(&lab.wires.servers[0], &cgroup, "", "remote");
    let client = again(&lab.wires.client);
    let mut expected = Vec::new();
    // One that runs already.
    let receiver = AddressReceiver::attach(&cgroup.0, &balancers()).unwrap();
    lab.during(|| {
        for (number, address) in (0..).zip([V4, V6]) {
            for port in 20_001..20_005 {
                expected.push(fetch_from(&client, address, port + number * 100));
            }
        }
    });
    until("nginx's log", || web.saw().len() == expected.len());
    assert_eq!(web.saw(), expected);
    let seen = receiver.receptions().unwrap();
    assert_eq!((seen.told, seen.without, seen.no_memory), (8, 0, 0), "{seen:?}");
    drop(receiver);
    // Without it nginx sees local addresses.
    lab.during(|| fetch_from(&client, V4, 20_300));
    until("nginx's log", || web.saw().len() == expected.len() + 1);
    assert!(LOCAL.iter().any(|local| web.saw().last().unwrap().contains(&format!("[{local}]:"))), "{:?}", web.saw());
    assert_eq!(lab.wires.damage(), []);
}

#[test]
fn nginx_sees_the_client() {
    nginx_sees_clients(SynProxy::Off, &[]);
}

#[test]
fn nginx_sees_the_client_behind_the_syn_proxy() {
    nginx_sees_clients(SynProxy::Always, &[]);
}

/// Where the backend itself answers by cookies, and keeps nothing of a SYN.
#[test]
fn nginx_sees_the_client_where_its_kernel_answers_by_cookies() {
    nginx_sees_clients(SynProxy::Off, &[("net.ipv4.tcp_syncookies", "2")]);
}

/// A backend of IPv4 is told of clients of IPv6, which a socket of IPv6 that takes both can say.
#[test]
fn nginx_of_ipv4_sees_a_client_of_ipv6() {
    if !has_web() {
        return;
    }
    for syn_proxy in [SynProxy::Off, SynProxy::Always] {
        let service = Service {
            client_address: ClientAddress::Toa,
            syn_proxy,
            ..tcp(V6, SERVICE, full_nat(V4), vec![backend(server(0, false, PORT), 1)])
        };
        let Some(mut lab) = Lab::new(Plan { servers: 1, ..Plan::default() }, sizes(4096), &config([service])) else {
            return;
        };
        lab.balancer.set_back(TransmitMethod::Redirect).unwrap();
        let Some(cgroup) = Cgroup::create() else { return };
        let listens = format!("listen [::]:{PORT} ipv6only=off;");
        let web = Web::start_at(&lab.wires.servers[0], &cgroup, &listens, "remote");
        let receiver = AddressReceiver::attach(&cgroup.0, &balancers()).unwrap();
        let client = again(&lab.wires.client);
        let expected: Vec<String> = lab.during(|| (20_001..20_005).map(|port| fetch_from(&client, V6, port)).collect());
        until("nginx's log", || web.saw().len() == expected.len());
        assert_eq!(web.saw(), expected);
        let seen = receiver.receptions().unwrap();
        assert_eq!((seen.told, seen.without), (4, 0), "{seen:?}");
        drop(web);
        // One of IPv4 alone has no place for such an address.
        let web = Web::start_at(&lab.wires.servers[0], &cgroup, &format!("listen {PORT};"), "remote");
        lab.during(|| fetch_from(&client, V6, 20_100));
        until("nginx's log", || web.saw().len() == 1);
        assert!(web.saw()[0].starts_with("[10.8.0."), "{:?}", web.saw());
        assert_eq!(receiver.receptions().unwrap().without, 1);
        assert_eq!(lab.wires.damage(), []);
    }
}

/// Nobody else's word is taken.
#[test]
fn who_is_no_balancer_is_not_believed() {
    if !has_web() {
        return;
    }
    let Some(mut lab) = told(ClientAddress::Toa, SynProxy::Off) else { return };
    let Some(cgroup) = Cgroup::create() else { return };
    let web = Web::start(&lab.wires.servers[0], &cgroup, "", "remote");
    let other: IpNet = "10.7.0.0/16".parse().unwrap();
    let receiver = AddressReceiver::attach(&cgroup.0, &[other]).unwrap();
    let client = again(&lab.wires.client);
    lab.during(|| fetch_from(&client, V4, 20_001));
    until("nginx's log", || web.saw().len() == 1);
    assert!(web.saw()[0].starts_with("[10.8.0."), "{:?}", web.saw());
    let seen = receiver.receptions().unwrap();
    assert_eq!((seen.told, seen.others), (0, 1));
}

/// One of twelve segments that client and server get is lost.
fn disturb(lab: &Lab) {
    let rules = "add table inet loss; add chain inet loss input { type filter hook input priority 0; }; \
                 add rule inet loss input meta l4proto tcp numgen random mod 12 0 drop";
    for ns in [&lab.wires.client, &lab.wires.servers[0]] {
        run_well(ns, "nft", &[rules]);
    }
}

/// What is behind `listen ... proxy_protocol` gets every connection's header at once, whatever is lost on the way.
fn a_prefix_arrives(syn_proxy: SynProxy, disturbed: bool) {
    if !has_web() || (disturbed && !has("nft", "-v", "nftables")) {
        return;
    }
    let Some(mut lab) = told(ClientAddress::ProxyV2, syn_proxy) else { return };
    let Some(cgroup) = Cgroup::create() else { return };
    let web = Web::start(&lab.wires.servers[0], &cgroup, "proxy_protocol", "proxy_protocol");
    if disturbed {
        disturb(&lab);
    }
    let client = again(&lab.wires.client);
    let mut expected = Vec::new();
    lab.during(|| {
        for (number, address) in (0..).zip([V4, V6]) {
            for port in 21_000..21_000 + if disturbed { 20 } else { 4 } {
                expected.push(fetch_from(&client, address, port + number * 100));
            }
        }
    });
    // What only looks whether it listens has written nothing down.
    let saw = || web.saw().into_iter().filter(|line| line.ends_with(" 200")).collect::<Vec<_>>();
    until("nginx's log", || saw().len() == expected.len());
    assert_eq!(saw(), expected);
    assert_eq!(lab.wires.damage(), []);
}

#[test]
fn nginx_is_told_by_the_proxy_protocol() {
    a_prefix_arrives(SynProxy::Off, false);
}

#[test]
fn nginx_is_told_by_the_proxy_protocol_where_packets_are_lost() {
    a_prefix_arrives(SynProxy::Off, true);
}

#[test]
fn nginx_is_told_by_the_proxy_protocol_behind_the_syn_proxy() {
    a_prefix_arrives(SynProxy::Always, false);
}

/// HAProxy in TCP mode waits for the header before it connects to a server that speaks first.
#[test]
fn haproxy_is_told_before_a_server_speaks() {
    if !has("haproxy", "-v", "haproxy") {
        return;
    }
    for syn_proxy in [SynProxy::Off, SynProxy::Always] {
        let Some(mut lab) = told(ClientAddress::ProxyV2, syn_proxy) else { return };
        let ns = &lab.wires.servers[0];
        let behind = ns.run(|| TcpListener::bind("127.0.0.1:2525").unwrap()).unwrap();
        let files = TempDir::new().unwrap();
        let path = files.path().join("haproxy.cfg");
        // What it says to the server is version 1 of the header, as text.
        fs::write(
            &path,
            format!(
                "defaults\n mode tcp\n timeout connect 30s\n timeout client 60s\n timeout server 60s\nlisten mail\n bind \
                 0.0.0.0:{PORT} accept-proxy\n bind [::]:{PORT} v6only accept-proxy\n server one 127.0.0.1:2525 send-proxy\n"
            ),
        )
        .unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&path).stdin(Stdio::null());
        process::in_namespace(&mut command, ns);
        let mut child = process::die_with_parent(&mut command).spawn().unwrap();
        let client = again(&lab.wires.client);
        until("haproxy", || ns.run(|| TcpStream::connect(("127.0.0.1", PORT)).is_ok()).unwrap());
        lab.during(|| {
            for address in [V4, V6] {
                let to = SocketAddr::new(address.parse().unwrap(), SERVICE);
                thread::scope(|scope| {
                    let mail = scope.spawn(|| {
                        let (mut stream, _) = behind.accept().unwrap();
                        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                        let mut said = BufReader::new(stream.try_clone().unwrap());
                        let mut line = String::new();
                        said.read_line(&mut line).unwrap();
                        stream.write_all(b"220 ready").unwrap();
                        let mut heard = [0; 4];
                        said.read_exact(&mut heard).unwrap();
                        (line, heard)
                    });
                    let mut near = client.run(|| TcpStream::connect_timeout(&to, TIMEOUT).unwrap()).unwrap();
                    near.set_read_timeout(Some(TIMEOUT)).unwrap();
                    let mut greeting = [0; 9];
                    near.read_exact(&mut greeting).unwrap();
                    assert_eq!(&greeting, b"220 ready");
                    near.write_all(b"EHLO").unwrap();
                    let (line, heard) = mail.join().unwrap();
                    let family = if to.is_ipv4() { "TCP4" } else { "TCP6" };
                    let from = near.local_addr().unwrap();
                    let expected = format!("PROXY {family} {} {} {} {SERVICE}\r\n", from.ip(), to.ip(), from.port());
                    assert_eq!((line, &heard), (expected, b"EHLO"));
                });
            }
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lab.wires.damage(), []);
    }
}

/// Some MB each way at once, with segments as large as the link takes: none of them loses the option or the connection.
fn transfers_go_on(client_address: ClientAddress, syn_proxy: SynProxy, disturbed: bool) {
    let length = if disturbed { 300_001 } else { 6_000_001 };
    let prefix = if client_address == ClientAddress::ProxyV2 { [28, 52] } else { [0; 2] };
    let Some(mut lab) = told(client_address, syn_proxy) else { return };
    if disturbed {
        if !has("nft", "-v", "nftables") {
            return;
        }
        disturb(&lab);
    }
    let any: SocketAddr = ([0_u16; 8], PORT).into();
    let listener = lab.wires.servers[0].run(|| TcpListener::bind(any).unwrap()).unwrap();
    let client = again(&lab.wires.client);
    for (address, prefix) in [V4, V6].into_iter().zip(prefix) {
        let to = SocketAddr::new(address.parse().unwrap(), SERVICE);
        lab.during(|| {
            let data = Random::new(3).bytes(length);
            thread::scope(|scope| {
                let echo = scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                    let mut header = vec![0; prefix];
                    stream.read_exact(&mut header).unwrap();
                    assert!(prefix == 0 || header.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x21"), "{header:02x?}");
                    let mut all = vec![0; length];
                    stream.read_exact(&mut all).unwrap();
                    stream.write_all(&all).unwrap();
                });
                let mut near = client.run(|| TcpStream::connect_timeout(&to, TIMEOUT).unwrap()).unwrap();
                near.set_read_timeout(Some(TIMEOUT)).unwrap();
                near.write_all(&data).unwrap();
                let mut heard = vec![0; length];
                near.read_exact(&mut heard).unwrap();
                assert!(heard == data, "other bytes came back");
                echo.join().unwrap();
            });
        });
    }
    let mut losses = lab.losses();
    losses.retain(|(reason, _)| !matches!(reason, Drop::SynAnswered | Drop::ProxyWaits));
    assert_eq!((losses, lab.wires.damage()), (vec![], vec![]));
}

#[test]
fn large_transfers_go_on_with_an_option() {
    transfers_go_on(ClientAddress::Toa, SynProxy::Off, false);
}

#[test]
fn large_transfers_go_on_behind_a_prefix() {
    transfers_go_on(ClientAddress::ProxyV2, SynProxy::Off, false);
}

#[test]
fn large_transfers_go_on_behind_a_prefix_and_the_syn_proxy() {
    transfers_go_on(ClientAddress::ProxyV2, SynProxy::Always, false);
}

#[test]
fn transfers_go_on_behind_a_prefix_where_packets_are_lost() {
    transfers_go_on(ClientAddress::ProxyV2, SynProxy::Off, true);
}
