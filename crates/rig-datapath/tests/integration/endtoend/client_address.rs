//! Programs of backends that nobody has changed see the client's address, and clients see nothing of how.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use ipnet::IpNet;
use rig_datapath::balancer::{AddressReceiver, ClientAddress, Service, SynProxy, TransmitMethod};
use rig_skip::{Lack, skip};
use rig_sys::netns::NetNs;
use rig_sys::process;
use tempfile::TempDir;

use super::lab::{Lab, Plan, Random, TIMEOUT, client, server, until};
use super::programs::{has_web, nginx, run_well};
use super::talk::again;
use super::{LOCAL, V4, V6, backend, config, full_nat, sizes, tcp};

const PORT: u16 = 8080;
const SERVICE: u16 = 80;

/// A cgroup of version 2 until it is dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None`, said aloud, where there is no such hierarchy.
    fn create() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields[2] == "cgroup2");
        let Some(root) = root else {
            skip(Lack::Kernel, "no cgroup v2 is mounted");
            return None;
        };
        let path = Path::new(root[1]).join(format!("netrig-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).unwrap();
        Some(Self(path))
    }
}

impl Drop for Cgroup {
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

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Web {
    /// `listen` is what follows the port, and `client` the variable of its client's address.
    fn start(ns: &NetNs, cgroup: &Cgroup, listen: &str, client: &str) -> Self {
        let files = TempDir::new().unwrap();
        let folder = files.path().display().to_string();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {folder}/{name};\n"))
            .collect();
        let config = format!(
            "user root; daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors;
            events {{ worker_connections 256; }}
            http {{
                {temporary} log_format who '[${client}_addr]:${client}_port $status'; access_log {folder}/access who;
                server {{ listen {PORT} {listen}; listen [::]:{PORT} ipv6only=on {listen}; location / {{ return 200 well; }} }}
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

fn balancers() -> Vec<IpNet> {
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

/// Some MB each way at once, with segments as large as the link takes: none of them loses the option or the connection.
#[test]
fn large_transfers_go_on() {
    const LENGTH: usize = 6_000_001;
    let Some(mut lab) = told(ClientAddress::Toa, SynProxy::Off) else { return };
    let any: SocketAddr = ([0_u16; 8], PORT).into();
    let listener = lab.wires.servers[0].run(|| TcpListener::bind(any).unwrap()).unwrap();
    let client = again(&lab.wires.client);
    for address in [V4, V6] {
        let to = SocketAddr::new(address.parse().unwrap(), SERVICE);
        lab.during(|| {
            let data = Random::new(3).bytes(LENGTH);
            thread::scope(|scope| {
                let echo = scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                    let mut all = vec![0; LENGTH];
                    stream.read_exact(&mut all).unwrap();
                    stream.write_all(&all).unwrap();
                });
                let mut near = client.run(|| TcpStream::connect_timeout(&to, TIMEOUT).unwrap()).unwrap();
                near.set_read_timeout(Some(TIMEOUT)).unwrap();
                near.write_all(&data).unwrap();
                let mut heard = vec![0; LENGTH];
                near.read_exact(&mut heard).unwrap();
                assert!(heard == data, "other bytes came back");
                echo.join().unwrap();
            });
        });
    }
    assert_eq!((lab.losses(), lab.wires.damage()), (vec![], vec![]));
}
