//! Health checks of a running balancer: a backend dies and new connections go elsewhere, sorry servers, restarts, reloads.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use netrig_lb::message::{BackendEntry, BackendHealth, BackendHealthState, ServiceEntry, Status};
use rig_sys::netns::NetNs;

use super::lab::{Lab, SERVICE, TIMEOUT};
use super::with_lab;
use super::world::until;

/// Says its name to whoever connects, and keeps the connection.
pub struct NamedServer {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NamedServer {
    pub fn start(ns: &NetNs, at: &str, name: u8) -> Self {
        let at: SocketAddr = at.parse().unwrap();
        let listener = ns.run(|| TcpListener::bind(at).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let serve = move || {
            let mut open: Vec<TcpStream> = Vec::new();
            while !told.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A check may have gone by then.
                    Ok((mut stream, _)) => open.extend(stream.write_all(&[name]).is_ok().then_some(stream)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(2)),
                    Err(error) => panic!("{error}"),
                }
                if open.len() > 1000 {
                    open.remove(0);
                }
            }
        };
        Self { ends, thread: Some(thread::spawn(serve)) }
    }
}

impl Drop for NamedServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()) || thread::panicking());
    }
}

const A: &str = "10.2.0.2:9000";
const B: &str = "10.2.0.3:9000";

fn file(lab: &Lab, check: &str, backends: &str) -> String {
    let text = format!(
        "devices = ['lb0', 'lb1']\nconnections = 10_000\n[[service]]\nlisten = 'tcp {SERVICE}'\nscheduler = 'wrr'\n\
         local = '10.8.0.1-10.8.0.4'\nbackend = [{backends}]\n[service.check]\n{check}\n"
    );
    lab.write("lb.toml", &text)
}

const TCP: &str = "kind = 'tcp'\ninterval = '100ms'\ntimeout = '1s'\nfall = 2\nrise = 2\n";

fn service(lab: &Lab) -> ServiceEntry {
    let status: Status = serde_json::from_str(&lab.netrig(0, &["status", "--json"]).0).unwrap();
    status.services.into_iter().next().unwrap()
}

fn health(lab: &Lab, backend: &str) -> BackendHealth {
    let backends = service(lab).backends;
    backends.into_iter().find(|entry| entry.address.to_string() == backend).unwrap().health.unwrap()
}

#[track_caller]
fn becomes(lab: &Lab, backend: &str, state: BackendHealthState) {
    let is = || (health(lab, backend).state == state).then_some(());
    assert!(until(TIMEOUT, is).is_some(), "{backend} does not become {state:?}: {:?}", health(lab, backend));
}

/// Weights in force, once they are these.
#[track_caller]
fn weights_become(lab: &Lab, weights: &[u32]) {
    let are = || service(lab).backends.iter().map(BackendEntry::weight_in_force).collect::<Vec<_>>();
    let become_so = until(TIMEOUT, || (are() == weights).then_some(()));
    assert!(become_so.is_some(), "weights are {:?} and not {weights:?}", are());
}

/// Who answers so many new connections, each once.
pub fn answering(lab: &Lab, connections: usize) -> String {
    let name = || {
        let mut stream = lab.connect();
        let mut name = [0];
        stream.read_exact(&mut name).unwrap();
        char::from(name[0])
    };
    let mut names: Vec<char> = (0..connections).map(|_| name()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().collect()
}

#[test]
fn new_connections_avoid_a_backend_that_is_down_until_it_is_up() {
    with_lab(|lab| {
        let a = NamedServer::start(&lab.server, A, b'a');
        let _b = NamedServer::start(&lab.server, B, b'b');
        let running = lab.run(&[&file(lab, TCP, &format!("'{A}', '{B}'"))]);
        becomes(lab, A, BackendHealthState::Up);
        becomes(lab, B, BackendHealthState::Up);
        assert_eq!(answering(lab, 8), "ab");

        drop(a);
        becomes(lab, A, BackendHealthState::Down);
        weights_become(lab, &[0, 1]);
        assert_eq!(answering(lab, 8), "b");
        let of_a = health(lab, A);
        assert_eq!((of_a.reason.as_deref(), of_a.transitions), (Some("connection refused"), 1));
        assert!(of_a.good > 0 && of_a.bad >= 2, "{of_a:?}");
        let said = running.said();
        assert!(said.contains(&format!("tcp {SERVICE}: backend {A} is down: connection refused")), "{said}");
        let shown = lab.netrig(0, &["status"]).0;
        assert!(shown.contains("1 of 2 backends down") && shown.contains(": connection refused\n"), "{shown}");
        let listed = lab.netrig(0, &["-L", "-n", "--health"]).0;
        assert!(listed.contains("tcp, healthy weight 1, quorum 1\n"), "{listed}");
        let metrics = lab.netrig(0, &["metrics"]).0;
        for (backend, value) in [(A, 0), (B, 1)] {
            let sample = format!("service=\"{SERVICE}\",backend=\"{backend}\"}} {value}\n");
            let healthy = metrics.lines().filter(|line| line.starts_with("netrig_lb_backend_healthy{"));
            assert!(healthy.clone().any(|line| format!("{line}\n").ends_with(&sample)), "{metrics}");
        }
        // What is saved says what was said, and nothing of health.
        let saved = lab.netrig(0, &["save"]).0;
        assert!(
            saved.contains("check = { kind = \"tcp\", interval = \"100ms\"") && !saved.contains("weight"),
            "{saved}"
        );
        assert!(
            lab.netrig(0, &["-S", "-n"]).0.contains(&format!("-r {A} -b -w 1")),
            "{}",
            lab.netrig(0, &["-S", "-n"]).0
        );

        let _a = NamedServer::start(&lab.server, A, b'a');
        becomes(lab, A, BackendHealthState::Up);
        weights_become(lab, &[1, 1]);
        assert_eq!(answering(lab, 8), "ab");
        assert!(running.said().contains(&format!("backend {A} is up")), "{}", running.said());
    });
}

#[test]
fn connections_of_a_backend_that_is_down_end_where_that_is_said() {
    with_lab(|lab| {
        let a = NamedServer::start(&lab.server, A, b'a');
        // Its connections live on: only its port for checks is closed.
        let checked = NamedServer::start(&lab.server, "10.2.0.2:9001", b'c');
        let backend = format!("{{ address = '{A}', check = ':9001' }}");
        let path = file(lab, TCP, &backend);
        let expire = |expire: &str| {
            file(lab, TCP, &backend);
            let text = std::fs::read_to_string(&path).unwrap().replace("scheduler", &format!("{expire}scheduler"));
            std::fs::write(&path, text).unwrap();
        };
        expire("expire = 'quiescent'\n");
        let _running = lab.run(&[&path]);
        becomes(lab, A, BackendHealthState::Up);
        let _stream = lab.connect();
        let active = || service(lab).backends[0].active;
        assert!(until(TIMEOUT, || (active() == 1).then_some(())).is_some());
        drop(checked);
        becomes(lab, A, BackendHealthState::Down);
        assert!(until(TIMEOUT, || (active() == 0).then_some(())).is_some(), "it does not end");

        // Taken out as one that was removed, it is listed as one that is down.
        let checked = NamedServer::start(&lab.server, "10.2.0.2:9001", b'c');
        file(lab, &format!("{TCP}failed = 'remove'\n"), &backend);
        lab.netrig(0, &["reload"]);
        becomes(lab, A, BackendHealthState::Up);
        let mut stream = lab.connect();
        stream.read_exact(&mut [0]).unwrap();
        drop(checked);
        becomes(lab, A, BackendHealthState::Down);
        weights_become(lab, &[0]);
        let entry = service(lab);
        assert_eq!((entry.backends.len(), entry.backends[0].active), (1, 1), "{entry:?}");
        drop(a);
    });
}

#[test]
fn sorry_servers_answer_below_the_quorum_and_all_where_that_is_said() {
    with_lab(|lab| {
        let (a, b) = (NamedServer::start(&lab.server, A, b'a'), NamedServer::start(&lab.server, B, b'b'));
        let _sorry = NamedServer::start(&lab.server, "10.2.0.3:9009", b's');
        let backends = format!("'{A}', '{B}', {{ address = '10.2.0.3:9009', sorry = true }}");
        let running = lab.run(&[&file(lab, &format!("{TCP}quorum = 2"), &backends)]);
        becomes(lab, A, BackendHealthState::Up);
        becomes(lab, B, BackendHealthState::Up);
        assert_eq!(answering(lab, 8), "ab");
        drop(a);
        weights_become(lab, &[0, 0, 1]);
        assert_eq!(answering(lab, 4), "s");
        let said = running.said();
        assert!(
            said.contains("healthy backends have a weight of 1, and the quorum is 2: the sorry servers alone"),
            "{said}"
        );
        assert!(lab.netrig(0, &["status"]).0.contains("NO QUORUM: healthy weight 1, quorum 2"));
        // Read again, with another answer to it.
        file(lab, &format!("{TCP}quorum = 2\nbelow_quorum = 'healthy'"), &backends);
        lab.netrig(0, &["reload"]);
        weights_become(lab, &[0, 1, 0]);
        assert_eq!(answering(lab, 4), "b");
        drop(b);
        file(lab, &format!("{TCP}quorum = 2\nbelow_quorum = 'all'"), &backends);
        lab.netrig(0, &["reload"]);
        becomes(lab, B, BackendHealthState::Down);
        weights_become(lab, &[1, 1, 0]);
        let (_a, _b) = (NamedServer::start(&lab.server, A, b'a'), NamedServer::start(&lab.server, B, b'b'));
        becomes(lab, A, BackendHealthState::Up);
        becomes(lab, B, BackendHealthState::Up);
        assert!(until(TIMEOUT, || running.said().contains("it has its quorum again").then_some(())).is_some());
        assert_eq!(answering(lab, 8), "ab");
    });
}

#[test]
fn a_restart_and_a_reload_keep_what_is_known() {
    with_lab(|lab| {
        let a = NamedServer::start(&lab.server, A, b'a');
        let _b = NamedServer::start(&lab.server, B, b'b');
        let backends = format!("'{A}', '{B}'");
        let mut running = lab.run(&[&file(lab, TCP, &backends), "--persist"]);
        becomes(lab, B, BackendHealthState::Up);
        becomes(lab, A, BackendHealthState::Up);
        drop(a);
        becomes(lab, A, BackendHealthState::Down);
        weights_become(lab, &[0, 1]);
        // Other checks: what is known stays, and so do counters.
        let before = health(lab, A);
        file(lab, &TCP.replace("rise = 2", "rise = 100"), &backends);
        let (said, _) = lab.netrig(0, &["reload"]);
        assert_eq!(said, format!("tcp {SERVICE}: the check has changed; what is known of backends stays\n"));
        let after = health(lab, A);
        assert!(after.state == BackendHealthState::Down && after.state_ms >= before.state_ms, "{after:?}");
        assert!(after.bad >= before.bad && after.transitions == before.transitions && after.needed == 100, "{after:?}");

        let mut stream = lab.connect();
        stream.read_exact(&mut [0]).unwrap();
        running.kill();
        // Without a control plane nothing changes: who is up again gets no connections yet.
        let _a = NamedServer::start(&lab.server, A, b'a');
        assert_eq!(answering(lab, 6), "b");
        let running = lab.run(&["--persist"]);
        // It has not become unknown, and has been down for longer than the control plane is there.
        let status: Status = serde_json::from_str(&lab.netrig(0, &["status", "--json"]).0).unwrap();
        let of_a = health(lab, A);
        assert!(of_a.state == BackendHealthState::Down && of_a.state_ms > status.up_ms, "{of_a:?}");
        assert_eq!(health(lab, B).transitions, 0);
        assert_eq!(answering(lab, 6), "b");
        stream.write_all(&[1]).unwrap();
        // After as many good ones as were asked for it is up.
        becomes(lab, A, BackendHealthState::Up);
        weights_become(lab, &[1, 1]);
        assert_eq!(answering(lab, 8), "ab");
        assert!(!running.said().contains(" is down"), "{}", running.said());
        let kept = lab.path("lb/lb.health");
        assert!(kept.exists());
        lab.netrig(0, &["stop", "--detach"]);
        assert!(!kept.exists());
    });
}

#[test]
fn backends_that_route_back_through_the_balancer_are_checked_at_their_own_addresses() {
    with_lab(|lab| {
        let _a = NamedServer::start(&lab.server, A, b'a');
        let path = file(lab, TCP, &format!("'{A}', '{B}', '10.2.0.77:9000'"));
        let text = std::fs::read_to_string(&path).unwrap().replace("local = '10.8.0.1-10.8.0.4'", "forward = 'nat'");
        std::fs::write(&path, text).unwrap();
        let _running = lab.run(&[&path]);
        becomes(lab, A, BackendHealthState::Up);
        becomes(lab, B, BackendHealthState::Down);
        // Nobody has this address.
        becomes(lab, "10.2.0.77:9000", BackendHealthState::Down);
        let reason = health(lab, "10.2.0.77:9000").reason.unwrap();
        assert!(reason.starts_with("no route to host") || reason.starts_with("no answer within"), "{reason}");
        weights_become(lab, &[1, 0, 0]);
        assert_eq!(answering(lab, 4), "a");
    });
}

#[test]
fn one_that_comes_back_starts_slowly() {
    with_lab(|lab| {
        let _b = NamedServer::start(&lab.server, B, b'b');
        let check = format!("{TCP}slow_start = '1h'\nbegin = 'down'\n");
        let _running = lab.run(&[&file(lab, &check, &format!("'{A}', '{B}'"))]);
        becomes(lab, A, BackendHealthState::Down);
        weights_become(lab, &[0, 1]);
        let _a = NamedServer::start(&lab.server, A, b'a');
        becomes(lab, A, BackendHealthState::Up);
        weights_become(lab, &[1, 10]);
        // What settings say has not changed.
        assert_eq!(service(lab).backends.iter().map(|backend| backend.weight).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(answering(lab, 11), "ab");
    });
}
