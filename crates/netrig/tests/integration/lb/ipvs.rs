//! `netrig lb ipvs`: the packaged ipvsadm and keepalived drive a running balancer, with real connections through it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fs, io};

use netrig_lb::message::{BackendEntry, Status};
use rig_skip::{Lack, skip};
use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;
use rustix::process::{Pid, Signal, kill_process};

use super::lab::{Daemon, Lab, SERVICE, TIMEOUT};
use super::with_lab;
use super::world::until;

const A: &str = "10.2.0.2:9000";
const B: &str = "10.2.0.3:9000";
const SORRY: &str = "10.2.0.2:9001";

fn with_program(program: &'static str, test: impl FnOnce(&Lab)) {
    if Command::new(program).arg("--version").output().is_err() {
        return skip(Lack::Program(program), format!("{program} is not installed"));
    }
    with_lab(test);
}

/// A server of HTTP that says its name.
struct HttpServer {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    fn start(ns: &NetNs, at: &str, name: u8) -> Self {
        let at: SocketAddr = at.parse().unwrap();
        let listener = ns.run(|| TcpListener::bind(at).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let answer = move |mut stream: std::net::TcpStream| -> io::Result<()> {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            let mut request: Vec<u8> = Vec::new();
            let mut chunk = [0; 512];
            while !request.windows(4).any(|four| four == b"\r\n\r\n") {
                match stream.read(&mut chunk)? {
                    0 => return Ok(()),
                    read => request.extend(&chunk[..read]),
                }
            }
            stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n")?;
            stream.write_all(&[name])
        };
        let serve = move || {
            while !told.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A check by TCP says nothing and goes.
                    Ok((stream, _)) => drop(thread::spawn(move || answer(stream))),
                    Err(_) => thread::sleep(Duration::from_millis(2)),
                }
            }
        };
        Self { ends, thread: Some(thread::spawn(serve)) }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Who answers so many requests to the service, each name once.
fn answering(lab: &Lab, requests: usize) -> String {
    let name = || {
        let mut stream = lab.connect();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        char::from(*answer.last().unwrap())
    };
    let mut names: Vec<char> = (0..requests).map(|_| name()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().collect()
}

fn empty(lab: &Lab) -> Daemon {
    lab.run(&["--device", "lb0", "--device", "lb1", "--connections", "10000"])
}

fn status(lab: &Lab) -> Status {
    serde_json::from_str(&lab.netrig(0, &["status", "--json"]).0).unwrap()
}

/// Backends of all services, with their weights.
fn backends(lab: &Lab) -> Vec<(String, u32)> {
    let open = status(lab).services.into_iter().filter(|service| service.open);
    let there = open.flat_map(|service| service.backends).filter(|backend| !backend.leaving);
    let mut there: Vec<_> = there.map(|BackendEntry { address, weight, .. }| (address.to_string(), weight)).collect();
    there.sort();
    there
}

#[track_caller]
fn become_backends(lab: &Lab, expected: &[(&str, u32)], said: impl Fn() -> String) {
    let expected: Vec<(String, u32)> = expected.iter().map(|(address, weight)| ((*address).into(), *weight)).collect();
    let are = until(TIMEOUT, || (backends(lab) == expected).then_some(()));
    assert!(are.is_some(), "{:?} and not {expected:?}\n{}", backends(lab), said());
}

/// ipvsadm under netrig.
fn ipvsadm(lab: &Lab, arguments: &str) -> Output {
    let words: Vec<&str> = ["ipvs", "--", "ipvsadm"].into_iter().chain(arguments.split_whitespace()).collect();
    lab.command(&words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn done(lab: &Lab, arguments: &str) -> String {
    let Output { status, stdout, stderr } = ipvsadm(lab, arguments);
    assert!(status.success(), "ipvsadm {arguments}: {}{}", text(&stdout), text(&stderr));
    text(&stdout)
}

#[track_caller]
fn refused(lab: &Lab, arguments: &str, why: &str) {
    let Output { status, stdout, stderr } = ipvsadm(lab, arguments);
    let said = text(&stdout) + &text(&stderr);
    assert!(!status.success() && said.contains(why), "ipvsadm {arguments}: {said}");
}

#[test]
fn ipvsadm_adds_edits_deletes_and_lists() {
    with_program("ipvsadm", |lab| {
        let (_a, _b) = (HttpServer::start(&lab.server, A, b'a'), HttpServer::start(&lab.server, B, b'b'));
        assert_eq!(ipvsadm(lab, "-L -n").status.code(), Some(3), "there is no balancer yet");
        let _running = empty(lab);
        done(lab, &format!("-A -t {SERVICE} -s wrr"));
        done(lab, &format!("-a -t {SERVICE} -r {A} -m -w 1"));
        done(lab, &format!("-a -t {SERVICE} -r {B} -m -w 2 -x 500 -y 400"));
        assert_eq!(answering(lab, 6), "ab");
        let listed = done(lab, "-L -n --stats");
        let line = listed.lines().find(|line| line.contains(SERVICE)).unwrap().split_whitespace();
        let counts: Vec<u64> = line.skip(2).map(|count| count.parse().unwrap()).collect();
        assert!(counts[0] >= 6 && counts[1..].iter().all(|count| *count > counts[0]), "{listed}");
        assert!(done(lab, "-L -n --rate").contains(A));
        let listed = done(lab, "-L -n --thresholds");
        assert!(listed.contains("500") && listed.contains("400"), "{listed}");

        done(lab, &format!("-e -t {SERVICE} -r {A} -m -w 0"));
        assert_eq!(answering(lab, 4), "b");
        done(lab, &format!("-E -t {SERVICE} -s nq"));
        assert_eq!(status(lab).services[0].scheduler, "nq");
        // All of a client's go where its last one went; without -p it has none again.
        done(lab, &format!("-e -t {SERVICE} -r {A} -m -w 1"));
        done(lab, &format!("-E -t {SERVICE} -s wrr -p 60 -M 255.255.255.0"));
        answering(lab, 1);
        assert_eq!(answering(lab, 6).len(), 1);
        let listed = done(lab, "-L -n");
        assert!(listed.contains("wrr persistent 60 mask 255.255.255.0"), "{listed}");
        let listed = done(lab, "-L -n --persistent-conn");
        let kept = listed.lines().filter(|line| line.contains("->") && line.split_whitespace().nth(3) == Some("1"));
        assert_eq!(kept.count(), 1, "{listed}");
        done(lab, &format!("-E -t {SERVICE} -s wrr"));
        assert_eq!(answering(lab, 6), "ab");
        done(lab, &format!("-E -t {SERVICE} -s mh -b mh-port"));
        assert_eq!(status(lab).services[0].scheduler, "mh");
        done(lab, "--set 900 0 0");
        assert!(done(lab, "-L --timeout").contains("900 120 300"));
        done(lab, "-Z");
        assert_eq!(status(lab).services[0].counters.connections, 0);

        refused(lab, &format!("-A -t {SERVICE}"), "already exists");
        refused(lab, &format!("-a -t {SERVICE} -r {A} -m"), "already exists");
        refused(lab, &format!("-d -t {SERVICE} -r 10.2.0.9:1"), "No such destination");
        refused(lab, "-D -t 10.9.0.9:80", "No such service");
        refused(lab, "-A -t 10.9.0.9:80 -s dh", "scheduler 'dh': the balancer has rr, wrr, lc, wlc, sed, nq, sh, mh");
        refused(lab, "-A -f 7", "firewall mark 7");
        refused(lab, &format!("-a -t {SERVICE} -r 10.2.0.9 -i"), "--local");
        refused(lab, &format!("-a -t {SERVICE} -r 10.2.0.9 -m -x 5 -y 9"), "a lower threshold");
        refused(lab, "--start-daemon master --mcast-interface lb0", "[sync] in the balancer's file");
        // Each port that has no service of its own.
        refused(lab, "-A -t 10.9.0.9:0 -s rr", "Zero port specified for non-persistent service");
        done(lab, "-A -t 10.9.0.9:0 -s rr -p 60");
        done(lab, "-a -t 10.9.0.9:0 -r 10.2.0.2:0 -m");
        refused(lab, "-a -t 10.9.0.9:0 -r 10.2.0.3:80 -m", "a backend with a port");
        let listed = done(lab, "-L -n");
        let at = listed.find("TCP  10.9.0.9:0 rr persistent 60\n").unwrap_or_else(|| panic!("{listed}"));
        assert!(listed[at..].contains("-> 10.2.0.2:0 ") && !listed.contains("10.2.0.3:80"), "{listed}");
        done(lab, "-D -t 10.9.0.9:0");
        // There is no file of the kernel's with connections.
        assert!(!ipvsadm(lab, "-L -c").status.success());

        // Each destination has its kind of tunnel.
        done(lab, "-A -t 10.9.0.9:80 -s rr");
        for (server, kind) in
            [("10.2.0.7", "gue --tun-port 6080 --tun-csum"), ("10.2.0.8", "gre"), ("10.2.0.9", "ipip")]
        {
            let line = format!("ipvs --local 10.2.0.200 -- ipvsadm -a -t 10.9.0.9:80 -r {server} -i --tun-type {kind}");
            let Output { status, stderr, .. } = lab.command(&line.split(' ').collect::<Vec<_>>()).output().unwrap();
            assert!(status.success(), "{line}: {}", text(&stderr));
        }
        let by_ipvsadm = done(lab, "-L -n --tun-info");
        let own = lab.command(&["-L", "-n", "--tun-info"]).output().unwrap();
        let rows = |listed: &str| -> Vec<String> {
            listed.lines().filter(|line| line.contains("Tunnel")).map(|line| line.trim_end().to_owned()).collect()
        };
        assert_eq!(rows(&by_ipvsadm).len(), 4, "{by_ipvsadm}");
        assert_eq!(rows(&text(&own.stdout)), rows(&by_ipvsadm));
        done(lab, "-D -t 10.9.0.9:80");

        refused(lab, "-A -u 10.9.0.9:53 -o", "choose one of rr, wrr, sh, mh");
        done(lab, "-A -u [2001:db8::1]:53 -s sh -p 120 -M 64 -o");
        done(lab, "-a -u [2001:db8::1]:53 -r [2001:db8::2]:53 -g -w 7");
        let saved = lab.command(&["ipvs", "--", "ipvsadm-save", "-n"]).output().unwrap();
        let saved = text(&saved.stdout);
        assert_eq!(saved.lines().count(), 5, "{saved}");
        assert!(saved.lines().any(|line| line.starts_with("-A -u") && line.contains(" -o")), "{saved}");
        assert!(done(lab, "-L -n").contains(" ops"));
        done(lab, "-C");
        assert!(status(lab).services.iter().all(|service| !service.open));
        let file = fs::File::open(lab.write("saved", &saved)).unwrap();
        let restored = lab.command(&["ipvs", "--", "ipvsadm-restore"]).stdin(file).output().unwrap();
        assert!(restored.status.success(), "{}", text(&restored.stderr));
        let again = lab.command(&["ipvs", "--", "ipvsadm-save", "-n"]).output().unwrap();
        assert_eq!(text(&again.stdout), saved);
        done(lab, &format!("-d -t {SERVICE} -r {A}"));
        assert_eq!(answering(lab, 4), "b");
        done(lab, &format!("-D -t {SERVICE}"));
        assert!(!lab.answers());
    });
}

#[test]
fn a_command_is_as_it_is_without_netrig() {
    with_program("ipvsadm", |lab| {
        let _running = empty(lab);
        let run = |script: &str| lab.command(&["ipvs", "--", "/bin/sh", "-c", script]).output().unwrap();
        assert_eq!(run("exit 17").status.code(), Some(17));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&run("kill -TERM $$").status), Some(15));
        // Rights are not taken: no_new_privs is not set, and children do not ask for anything.
        assert_eq!(text(&run("grep NoNewPrivs /proc/self/status; cat").stdout), "NoNewPrivs:\t0\n");
        // Other families of generic netlink and rtnetlink are the kernel's; ethtool asks by generic netlink.
        let said = text(&run("ip -o link show dev lb0 && ethtool -k lb0").stdout);
        assert!(said.contains("lb0") && said.contains("Features for lb0"), "{said}");
        // A child of a child that has no rights gets no balancer.
        let listed = run("setpriv --reuid 65534 --clear-groups ipvsadm -L -n 2>&1");
        assert!(!listed.status.success(), "{}", text(&listed.stdout));
        // One under another.
        let nested = run(&format!("'{}' lb ipvs -- true", env!("CARGO_BIN_EXE_netrig")));
        assert_eq!(nested.status.code(), Some(3));
        assert!(text(&nested.stderr).contains("another program already"), "{}", text(&nested.stderr));
    });
}

/// keepalived under netrig.
struct Keepalived {
    child: Child,
    log: std::path::PathBuf,
}

impl Keepalived {
    fn start(lab: &Lab, name: &str, configuration: &str, options: &[&str]) -> Self {
        let file = lab.write(&format!("{name}.conf"), configuration);
        let at = |what: &str| lab.path(&format!("{name}.{what}")).display().to_string();
        let pids = [at("pid"), at("vrrp"), at("check")];
        let keepalived = ["keepalived", "-n", "-l", "-D", "-f", &file, "-p", &pids[0], "-r", &pids[1], "-c", &pids[2]];
        let words = [&["ipvs"], options, &["--"], &keepalived].concat();
        let log = lab.path(&format!("{name}.log"));
        let out = fs::File::create(&log).unwrap();
        let mut command = lab.command(&words);
        Self { child: command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap(), log }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    #[track_caller]
    fn says(&self, words: &str) {
        let said = until(TIMEOUT, || self.said().contains(words).then_some(()));
        assert!(said.is_some(), "it does not say '{words}': {}", self.said());
    }

    #[track_caller]
    fn ends(&mut self) -> Option<i32> {
        let ended = until(TIMEOUT, || self.child.try_wait().unwrap());
        ended.unwrap_or_else(|| panic!("it does not end: {}", self.said())).code()
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        if until(Duration::from_secs(20), || self.child.try_wait().unwrap()).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A service of keepalived, with a check by HTTP of the first backend and one by TCP of the second.
fn virtual_server(lab: &Lab, weight: u32) -> String {
    let script = lab.write("quorum.sh", &format!("echo $1 >> {}\n", lab.path("quorum").display()));
    let (vip, vport) = SERVICE.split_once(':').unwrap();
    let [a, b, sorry] = [A, B, SORRY].map(|address| address.replace(':', " "));
    format!(
        "global_defs {{\n router_id test\n script_user root\n}}\nvirtual_server {vip} {vport} {{\n delay_loop 1\n lvs_sched wrr\n \
         lvs_method NAT\n protocol TCP\n quorum 1\n quorum_up \"/bin/sh {script} up\"\n quorum_down \"/bin/sh {script} down\"\n \
         sorry_server {sorry}\n real_server {a} {{\n  weight {weight}\n  inhibit_on_failure\n  HTTP_GET {{\n   url {{\n    path /\n    \
         status_code 200\n   }}\n   connect_timeout 2\n   retry 1\n   delay_before_retry 1\n  }}\n }}\n real_server {b} {{\n  weight 1\n  \
         TCP_CHECK {{\n   connect_timeout 2\n   retry 1\n   delay_before_retry 1\n  }}\n }}\n}}\n"
    )
}

#[test]
fn keepalived_adds_weighs_and_removes_servers_by_its_checks() {
    with_program("keepalived", |lab| {
        let a = HttpServer::start(&lab.server, A, b'a');
        let b = HttpServer::start(&lab.server, B, b'b');
        let _sorry = HttpServer::start(&lab.server, SORRY, b's');
        let _running = empty(lab);
        let mut keepalived = Keepalived::start(lab, "k", &virtual_server(lab, 3), &[]);
        let become_so = |expected: &[(&str, u32)]| become_backends(lab, expected, || keepalived.said());
        become_so(&[(A, 3), (B, 1)]);
        assert_eq!(answering(lab, 8), "ab");
        drop(a);
        become_so(&[(A, 0), (B, 1)]);
        assert_eq!(answering(lab, 4), "b");
        drop(b);
        become_so(&[(A, 0), (SORRY, 1)]);
        assert_eq!(answering(lab, 2), "s");
        let _a = HttpServer::start(&lab.server, A, b'a');
        become_so(&[(A, 3)]);
        assert_eq!(answering(lab, 2), "a");
        let _b = HttpServer::start(&lab.server, B, b'b');
        become_so(&[(A, 3), (B, 1)]);
        let scripts =
            until(TIMEOUT, || fs::read_to_string(lab.path("quorum")).ok().filter(|said| said.lines().count() == 3));
        assert_eq!(scripts.as_deref(), Some("up\ndown\nup\n"), "{}", keepalived.said());

        let kept = "protocol TCP\n persistence_timeout 60\n persistence_granularity 255.255.255.0";
        lab.write("k.conf", &virtual_server(lab, 5).replace("protocol TCP", kept));
        keepalived.signal(Signal::HUP);
        become_backends(lab, &[(A, 5), (B, 1)], || keepalived.said());
        let persists = || {
            let services = status(lab).services;
            let open = services.iter().find(|service| service.open)?;
            (open.persistence.timeout == Some(60) && open.persistence.prefix4 == Some(24)).then_some(())
        };
        assert!(until(TIMEOUT, persists).is_some(), "{}", keepalived.said());
        answering(lab, 1);
        assert_eq!(answering(lab, 6).len(), 1);
        keepalived.signal(Signal::TERM);
        assert_eq!(keepalived.ends(), Some(0), "{}", keepalived.said());
        assert!(status(lab).services.iter().all(|service| !service.open));
    });
}

/// keepalived gives a virtual server without a port, and without persistence, some.
#[test]
fn keepalived_has_each_port_of_an_address() {
    with_program("keepalived", |lab| {
        let _a = HttpServer::start(&lab.server, A, b'a');
        let b = HttpServer::start(&lab.server, B, b'b');
        let _running = empty(lab);
        let server = |address: &str| {
            let check =
                "TCP_CHECK {\n   connect_port 9000\n   connect_timeout 2\n   retry 1\n   delay_before_retry 1\n  }";
            format!(" real_server {} {{\n  {check}\n }}\n", address.split(':').next().unwrap())
        };
        let configuration = format!(
            "global_defs {{\n router_id test\n}}\nvirtual_server 10.9.0.1 {{\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n \
             protocol TCP\n{}{}}}\n",
            server(A),
            server(B)
        );
        let keepalived = Keepalived::start(lab, "k", &configuration, &[]);
        become_backends(lab, &[("10.2.0.2:0", 1), ("10.2.0.3:0", 1)], || keepalived.said());
        let service = status(lab).services.into_iter().find(|service| service.open).unwrap();
        assert_eq!(service.key.address.to_string(), "10.9.0.1:0");
        assert!(service.persistence.timeout.is_some(), "{}", keepalived.said());
        drop(b);
        become_backends(lab, &[("10.2.0.2:0", 1)], || keepalived.said());
        let at: SocketAddr = "10.9.0.1:9000".parse().unwrap();
        let mut stream = lab.client.run(|| std::net::TcpStream::connect_timeout(&at, TIMEOUT)).unwrap().unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer.last(), Some(&b'a'));
    });
}

trait Sorted {
    fn sorted(self) -> Self;
}

impl<T: Ord, const N: usize> Sorted for [T; N] {
    fn sorted(mut self) -> Self {
        self.sort();
        self
    }
}

#[test]
fn a_balancer_that_dies_gets_its_services_back() {
    with_program("keepalived", |lab| {
        let a = HttpServer::start(&lab.server, A, b'a');
        let _b = HttpServer::start(&lab.server, B, b'b');
        let mut running = empty(lab);
        let local = ["--local", "10.8.0.1-10.8.0.4"];
        let keepalived = Keepalived::start(lab, "k", &virtual_server(lab, 3), &local);
        become_backends(lab, &[(A, 3), (B, 1)], || keepalived.said());
        assert_eq!(answering(lab, 8), "ab");
        running.kill();
        drop(a);
        keepalived.says("refused: no balancer named lb is running");
        let _again = empty(lab);
        keepalived.says("put into it what it lacked");
        assert_eq!(answering(lab, 4), "b");
        let service = status(lab).services.into_iter().find(|service| service.open).unwrap();
        assert_eq!((service.local.len(), service.scheduler.as_str()), (4, "wrr"));
    });
}

#[test]
fn a_balancer_that_reads_its_file_again_gets_its_services_back() {
    with_program("keepalived", |lab| {
        let _a = HttpServer::start(&lab.server, A, b'a');
        let _b = HttpServer::start(&lab.server, B, b'b');
        let file = lab.write("lb.toml", "devices = [\"lb0\", \"lb1\"]\n");
        let _running = lab.run(&[&file, "--connections", "10000"]);
        let keepalived = Keepalived::start(lab, "k", &virtual_server(lab, 3), &[]);
        become_backends(lab, &[(A, 3), (B, 1)], || keepalived.said());
        lab.netrig(0, &["reload"]);
        keepalived.says("put into it what it lacked");
        become_backends(lab, &[(A, 3), (B, 1)], || keepalived.said());
        assert_eq!(answering(lab, 8), "ab");
    });
}

fn has_address(ns: &NetNs, address: &str) -> bool {
    let mut command = Command::new("ip");
    let shown = in_namespace(command.args(["-o", "-4", "address", "show"]), ns).output().unwrap();
    text(&shown.stdout).contains(&format!(" {address}/"))
}

fn vrrp(interface: &str, priority: u32) -> String {
    format!(
        "vrrp_instance one {{\n interface {interface}\n state BACKUP\n virtual_router_id 51\n priority {priority}\n advert_int 0.2\n \
         virtual_ipaddress {{\n  10.1.0.77/24 dev {interface}\n }}\n}}\n"
    )
}

#[test]
fn keepalived_does_vrrp_beside_and_ends_with_its_supervisor() {
    with_program("keepalived", |lab| {
        let (_a, _b) = (HttpServer::start(&lab.server, A, b'a'), HttpServer::start(&lab.server, B, b'b'));
        let _running = empty(lab);
        let both = virtual_server(lab, 3) + &vrrp("lb0", 200);
        let mut keepalived = Keepalived::start(lab, "k", &both, &[]);
        become_backends(lab, &[(A, 3), (B, 1)], || keepalived.said());
        // The other router of the pair, without netrig.
        let file = lab.write("peer.conf", &format!("global_defs {{\n router_id peer\n}}\n{}", vrrp("eth0", 100)));
        let at = |what: &str| lab.path(&format!("peer.{what}")).display().to_string();
        let pids = [at("pid"), at("vrrp"), at("check")];
        let mut command = Command::new("keepalived");
        command.args(["-n", "-l", "-P", "-f", &file, "-p", &pids[0], "-r", &pids[1], "-c", &pids[2]]);
        let log = fs::File::create(lab.path("peer.log")).unwrap();
        in_namespace(command.stdout(log.try_clone().unwrap()).stderr(log), &lab.client);
        let mut peer = Keepalived { child: command.spawn().unwrap(), log: lab.path("peer.log") };
        let masters = || (has_address(&lab.balancer, "10.1.0.77"), has_address(&lab.client, "10.1.0.77"));
        let ours = until(TIMEOUT, || (masters() == (true, false)).then_some(()));
        assert!(ours.is_some(), "{:?}\n{}", masters(), keepalived.said());

        // Another one drives the same balancer at the same time.
        let (vip, _) = SERVICE.split_once(':').unwrap();
        let second = format!(
            "virtual_server {vip} 81 {{\n delay_loop 1\n lvs_sched rr\n lvs_method DR\n protocol TCP\n real_server 10.2.0.3 9000 {{\n  \
             weight 9\n  TCP_CHECK {{\n   connect_timeout 2\n  }}\n }}\n}}\n"
        );
        let other = Keepalived::start(lab, "other", &second, &[]);
        become_backends(lab, &[("10.2.0.3:81", 9), (A, 3), (B, 1)].sorted(), || other.said());

        // Nothing can be asked any more: what it has started ends, so that its service manager starts it again.
        keepalived.child.kill().unwrap();
        keepalived.child.wait().unwrap();
        let theirs = until(TIMEOUT, || (masters() == (false, true)).then_some(()));
        assert!(theirs.is_some(), "{:?}\n{}", masters(), keepalived.said());
        assert_eq!(answering(lab, 8), "ab", "the balancer goes on");
        keepalived.says("Stopped Keepalived");
        let mut again = Keepalived::start(lab, "k", &both, &[]);
        let ours = until(TIMEOUT, || (masters() == (true, false)).then_some(()));
        assert!(ours.is_some(), "{:?}\n{}", masters(), again.said());
        again.signal(Signal::TERM);
        assert_eq!(again.ends(), Some(0));
        become_backends(lab, &[("10.2.0.3:81", 9)], || other.said());
        peer.signal(Signal::TERM);
        assert_eq!(peer.ends(), Some(0));
    });
}

#[test]
fn what_is_imported_is_a_file_that_check_takes() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/lb_import"));
    let netrig = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.arg("lb").args(arguments).env("NETRIG_RUN", folder.path()).output().unwrap()
    };
    for (kind, name, services) in [("ipvsadm", "saved", 3), ("keepalived", "keepalived", 2), ("keepalived", "dpvs", 1)]
    {
        let file = corpus.join(name).display().to_string();
        let imported = netrig(&["import", kind, &file, "--masq", "nat"]);
        let text = text(&imported.stdout);
        assert_eq!(imported.status.code(), Some(0), "{name}: {}", self::text(&imported.stderr));
        assert_eq!(text.matches("[[service]]").count(), services, "{text}");
        let written = folder.path().join(name);
        fs::write(&written, &text).unwrap();
        let checked = netrig(&["check", &written.display().to_string()]);
        assert_eq!(checked.status.code(), Some(0), "{text}\n{}", self::text(&checked.stderr));
    }
    let file = folder.path().join("marks");
    fs::write(&file, "-A -f 7 -s rr\n").unwrap();
    let refused = netrig(&["import", "ipvsadm", &file.display().to_string()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("firewall marks"), "{}", text(&refused.stderr));
}
