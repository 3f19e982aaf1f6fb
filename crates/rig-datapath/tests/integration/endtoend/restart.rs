//! The control plane is killed, again and again and in the middle of its work; the tables and the program stay.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rig_datapath::balancer::{Attachment, Balancer, release};
use rig_sys::netlink::Netlink;
use rig_sys::process;

use crate::pool::Pooled;

use super::lab::{Lab, Plan, Random, Wires, attach, load, until};
use super::next_hops::{converse, follows};
use super::pins::Pins;
use super::sizes;
use super::steady::{LINES, PORTS, are_unbroken, echoes, plan, services};
use super::talk::{Conversations, NewConnections};

/// Where the control plane that this process is to be keeps things; the interfaces.
const DIRECTORY: &str = "NETRIG_TEST_DIRECTORY";
const INTERFACES: &str = "NETRIG_TEST_INTERFACES";
const READY: &str = "the control plane is ready";

fn take_over(balancer: &mut Balancer, directory: &Path, interfaces: &[String]) -> Vec<Attachment> {
    let link = Netlink::here().unwrap();
    let one = |name: &String| balancer.take_over(&directory.join(name), link.index(name).unwrap()).unwrap();
    interfaces.iter().map(one).collect()
}

/// No test by itself: the control plane that `a_killed_control_plane_breaks_nobody` starts and kills. It changes the
/// configuration all the time.
#[test]
#[ignore = "another test starts it"]
fn control_plane() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let interfaces: Vec<String> = std::env::var(INTERFACES).unwrap().split(' ').map(str::to_owned).collect();
    let directory = Path::new(&directory);
    let tables = directory.join("tables");
    let (mut balancer, _attachments);
    if tables.exists() {
        balancer = Pooled::from(Balancer::resume(&tables).unwrap());
        _attachments = take_over(&mut balancer, directory, &interfaces);
    } else {
        balancer = load(sizes(16_384)).unwrap();
        balancer.apply(&plan(&[(0, PORTS[0], 1), (1, PORTS[0], 1)])).unwrap();
        fs::create_dir(&tables).unwrap();
        balancer.keep(&tables).unwrap();
        let mut attachments = attach(&mut balancer, &interfaces);
        for (attachment, name) in attachments.iter_mut().zip(&interfaces) {
            attachment.keep(&directory.join(name)).unwrap();
        }
        _attachments = attachments;
    }
    println!("{READY}");
    for round in 0_u32.. {
        let backends = [(0, PORTS[0], 1 + round % 5), (1, PORTS[round as usize % 2], 1), (0, PORTS[1], round % 2)];
        balancer.apply(&plan(&backends)).unwrap();
        balancer.ask_for_neighbors().unwrap();
        balancer.sweep_all().unwrap();
        thread::sleep(Duration::from_millis(1));
    }
}

struct ControlPlane(Child);

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ControlPlane {
    fn start(wires: &Wires, directory: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "endtoend::restart::control_plane", "--nocapture"]);
        command.env(DIRECTORY, directory).env(INTERFACES, wires.interfaces.join(" "));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        process::in_namespace(&mut command, &wires.here);
        let mut child = process::die_with_parent(&mut command).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let plane = Self(child);
        assert!(lines.map_while(Result::ok).any(|line| line.contains(READY)), "the control plane has ended");
        plane
    }

    /// SIGKILL. It was alive.
    fn kill(mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None, "it has ended before it was killed");
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_killed_control_plane_breaks_nobody() {
    let Some(wires) = Wires::new(Plan::default()) else { return };
    // Says why, where it cannot be.
    if load(sizes(64)).is_none() {
        return;
    }
    let Some(pins) = Pins::mount() else { return };
    let directory = pins.path();
    let echoes = echoes(&wires);
    let mut plane = ControlPlane::start(&wires, &directory);
    let talk = Conversations::start(&wires.client, &services(), LINES);
    talk.goes_on(1, || {});
    let arrivals = NewConnections::start(&wires.client, &services());
    let mut random = Random::new(5);
    for _ in 0..6 {
        // Somewhere in the middle of a change.
        thread::sleep(Duration::from_micros(200_000 + random.next() % 100_000));
        plane.kill();
        // Packets are forwarded without a control plane.
        talk.goes_on(2, || {});
        arrivals.go_on(|| {});
        plane = ControlPlane::start(&wires, &directory);
        talk.goes_on(1, || {});
        arrivals.go_on(|| {});
    }
    plane.kill();

    // The process that takes over for good finds every connection.
    wires.here.enter().unwrap();
    let mut balancer = Pooled::from(Balancer::resume(&directory.join("tables")).unwrap());
    let attachments = take_over(&mut balancer, &directory, &wires.interfaces);
    let mut lab = Lab { balancer, attachments, wires };
    lab.balancer.apply(&plan(&[(0, PORTS[0], 1), (1, PORTS[0], 1)])).unwrap();
    assert!(lab.connections() >= 2 * LINES);
    let active: u32 = lab.balancer.services().unwrap().iter().flat_map(|s| &s.backends).map(|b| b.active).sum();
    assert!(active as usize >= 2 * LINES, "{active}");
    talk.goes_on(2, || lab.tend());
    lab.during(|| arrivals.finish());
    lab.during(|| talk.finish());
    are_unbroken(&echoes);
    assert_eq!((lab.losses(), lab.wires.damage()), (vec![], vec![]));
    lab.is_left_clean();
    drop(lab.attachments);
}

#[test]
fn a_kept_attachment_that_is_released_is_off_at_once() {
    let Some(wires) = Wires::new(Plan::default()) else { return };
    wires.here.enter().unwrap();
    let Some(mut balancer) = load(sizes(64)) else { return };
    let Some(pins) = Pins::mount() else { return };
    let kept = pins.path().join("link");
    for _ in 0..100 {
        // An interface takes one program, so the second time is refused while the first one is there.
        let mut attachments = attach(&mut balancer, &wires.interfaces[..1]);
        attachments[0].keep(&kept).unwrap();
        drop(attachments);
        release(&kept).unwrap();
        assert!(!kept.exists());
    }
    assert!(matches!(release(&kept), Err(rig_datapath::Error::Pin { operation: "open", .. })));
}

/// Without a control plane no process watches routes, so what was looked up is believed for a second only.
#[test]
fn routes_are_followed_when_the_control_plane_is_dead() {
    let Some(wires) = Wires::new(Plan::default()) else { return };
    if load(sizes(64)).is_none() {
        return;
    }
    let Some(pins) = Pins::mount() else { return };
    let directory = pins.path();
    let echoes = echoes(&wires);
    let plane = ControlPlane::start(&wires, &directory);
    let at_first = || echoes[..2].iter().map(|echo| echo.accepted.load(Ordering::Relaxed)).sum::<u64>();
    let all = || echoes.iter().map(|echo| echo.accepted.load(Ordering::Relaxed)).sum::<u64>();
    let stream = (1..).find_map(|count| {
        let stream = converse(&wires.client);
        until("an echo", || all() == count);
        (at_first() == 1).then_some(stream)
    });
    plane.kill();
    follows(&wires, &stream.unwrap(), |_| {});
}
