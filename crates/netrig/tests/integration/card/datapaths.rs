//! The balancer and dperf on a card's own driver.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::Netlink;
use rig_sys::process::{die_with_parent, in_namespace};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Cable, FAR_ADDRESS, run};
use crate::spread::lab::{TIMEOUT, ip};
use crate::world::{expect, until};

const SERVICE: &str = "10.10.0.1:80";
/// What the balancer's routes need.
const FORWARDS: &str = "/proc/sys/net/ipv4/ip_forward";
/// More than one segment, so that segmentation by the sending card has something to do.
const REPLY: usize = 40_000;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cable {
    pub(super) fn netrig(&self, at_far_end: bool, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.args(arguments).env("NETRIG_RUN", self.lab.path("run")).current_dir(self.lab.directory.path());
        command.stdin(Stdio::null());
        in_namespace(&mut command, if at_far_end { self.far() } else { self.here() });
        die_with_parent(&mut command);
        command
    }

    /// How its program is attached, as ip(8) tells it: `xdp` by the driver, `xdpgeneric` in the kernel's own way.
    fn xdp(&self) -> String {
        let text = run(self.here(), &["ip", "link", "show", &self.card]);
        text.split_whitespace().find(|word| word.starts_with("xdp")).unwrap_or_default().to_owned()
    }
}

/// Answers one request of a byte on each connection.
fn serve(listener: &TcpListener) {
    for mut stream in listener.incoming().map_while(Result::ok) {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() || byte == [b'q'] {
            return;
        }
        let _ = stream.write_all(&vec![byte[0]; REPLY]);
    }
}

#[test]
fn the_balancer_runs_on_the_cards_driver_with_and_without_its_offloads() {
    let Some(cable) = Cable::find() else { return };
    let listener = cable.far().run(|| TcpListener::bind((FAR_ADDRESS, 7000)).unwrap()).unwrap();
    let listening = listener.local_addr().unwrap();
    // Connections to the end's own address go by its loopback.
    Netlink::open(cable.far()).unwrap().set_up("lo").unwrap();
    Netlink::open(cable.far()).unwrap().add_route(ip("10.10.0.0"), 24, ip(crate::spread::lab::ADDRESS)).unwrap();
    let forwards = fs::read_to_string(FORWARDS).unwrap();
    fs::write(FORWARDS, "1").unwrap();
    let file = cable.lab.path("lb.toml");
    let text = format!(
        "devices = ['{}']\nconnections = 16384\n[[service]]\nlisten = 'tcp {SERVICE}'\nlocal = '10.10.0.2'\n\
         backend = [{{ address = '{FAR_ADDRESS}:7000' }}]\n",
        cable.card
    );
    fs::write(&file, text).unwrap();
    let log = cable.lab.path("log");
    let mut command = cable.netrig(false, &["lb", "run", &file.display().to_string()]);
    let out = fs::File::create(&log).unwrap();
    let mut balancer = Running(command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap());
    let said = || fs::read_to_string(&log).unwrap();
    assert!(until(TIMEOUT, || said().contains("\nready").then_some(())).is_some(), "{}", said());
    assert!(said().contains("native mode"), "{}", said());
    assert_eq!(cable.xdp(), "xdp");

    let mut asked = 0;
    // Not in a scope, which would wait for it where the test fails.
    let serving = thread::spawn(move || serve(&listener));
    for on in [true, false] {
        // Packets then come with and without their checksums, as one piece or many.
        for offload in [Offload::Checksum, Offload::Tso] {
            ethtool::set_all(cable.far(), &[(&cable.far_card, offload, on)]).unwrap();
        }
        for byte in *b"abc" {
            let stream = cable.far().run(|| TcpStream::connect(SERVICE)).unwrap();
            let mut stream = stream.unwrap_or_else(|error| panic!("{error}: {}", said()));
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream.write_all(&[byte]).unwrap();
            let mut reply = Vec::new();
            stream.read_to_end(&mut reply).unwrap();
            assert_eq!(reply, vec![byte; REPLY]);
            asked += 1;
        }
    }
    let quit = cable.far().run(|| TcpStream::connect(listening)).unwrap();
    quit.unwrap().write_all(b"q").unwrap();
    serving.join().unwrap();
    let output = cable.netrig(false, &["lb", "-L", "-n", "--json"]).output().unwrap();
    let listing: Value = serde_json::from_str(&expect(&output, 0).0).unwrap();
    assert_eq!(listing["services"][0]["counters"]["connections"], asked, "{listing}");

    expect(&cable.netrig(false, &["lb", "stop"]).output().unwrap(), 0);
    assert!(balancer.0.wait().unwrap().success(), "{}", said());
    assert_eq!(cable.xdp(), "");
    fs::write(FORWARDS, forwards.trim()).unwrap();
}

/// A number of dperf's totals.
fn total(text: &str, field: &str) -> u64 {
    let totals = text.split("Total Numbers:").nth(1).unwrap_or_else(|| panic!("no totals: {text}"));
    let mut words = totals.split_whitespace().skip_while(|word| *word != field);
    words.nth(1).unwrap_or_else(|| panic!("no {field}: {totals}")).replace(',', "").parse().unwrap()
}

/// A client and a server, one of them at the card with threads on these CPUs: what both have printed.
fn dperf(cable: &Cable, client_is_here: bool, cpus: &str) -> [String; 2] {
    const CONNECTIONS: u64 = 250;
    let wire = "client 10.99.1.1 10\nserver 10.99.2.1 2\n";
    let ends = [(&cable.card, cpus), (&cable.far_card, "1")];
    let [client, server] = if client_is_here { [ends[0], ends[1]] } else { [ends[1], ends[0]] };
    let files = ["client.conf", "server.conf"].map(|name| cable.lab.path(name));
    let (interface, cpus) = client;
    let text = format!(
        "mode client\ncpu {cpus}\nport {interface} 10.99.0.1 10.99.0.2\nwait 0\nslow_start 0\ncps 50\nduration 5\n"
    );
    fs::write(&files[0], text + wire).unwrap();
    let (interface, cpus) = server;
    let text = format!("mode server\ncpu {cpus}\nport {interface} 10.99.0.2 10.99.0.1\nduration 10m\n");
    fs::write(&files[1], text + wire).unwrap();
    let [client_file, server_file] = files.map(|file| file.display().to_string());

    let log = cable.lab.path("server.log");
    let out = fs::File::create(&log).unwrap();
    let mut command = cable.netrig(client_is_here, &["dperf", "-c", &server_file]);
    let mut serving = Running(command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap());
    let said = || fs::read_to_string(&log).unwrap();
    let (namespace, interface) =
        if client_is_here { (cable.far(), &cable.far_card) } else { (cable.here(), &cable.card) };
    let mut link = String::new();
    let attached = until(TIMEOUT, || {
        link = run(namespace, &["ip", "link", "show", interface]);
        assert!(serving.0.try_wait().unwrap().is_none(), "{}", said());
        // A driver that has no queue to spare for each CPU takes no program, and dperf says where it is then.
        let hook = if said().contains("the kernel's generic hook") { "xdpgeneric" } else { "xdp" };
        link.split_whitespace().any(|word| word == hook).then_some(())
    });
    assert!(attached.is_some(), "{link}{}", said());
    let output = cable.netrig(!client_is_here, &["dperf", "-c", &client_file]).output().unwrap();
    let (out, remarks) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let asked = format!("{remarks}{out}");
    kill_process(Pid::from_child(&serving.0), Signal::INT).unwrap();
    let ended = until(TIMEOUT, || serving.0.try_wait().unwrap()).unwrap_or_else(|| panic!("no end: {}", said()));
    let served = said();
    assert!(output.status.success() && ended.success(), "{asked}\n{served}");
    for field in ["skOpen", "skClose", "httpGet"] {
        let both = [total(&asked, field), total(&served, field)];
        assert_eq!(both, [CONNECTIONS; 2], "{field}: {asked}\n{served}");
    }
    [asked, served]
}

#[test]
fn one_thread_of_dperfs_client_asks_so_that_all_answers_come_to_its_queue() {
    let Some(cable) = Cable::with_table() else { return };
    // Written first: until then a device may spread packets otherwise than its table says.
    run(cable.here(), &["ethtool", "-X", &cable.card, "equal", &cable.queues().to_string()]);
    let [asked, _] = dperf(&cable, true, "0");
    let of_queues = format!("1 of its {} receive queues is read", cable.queues());
    assert!(asked.contains(&of_queues) && asked.contains("its thread uses the source ports"), "{asked}");
}

#[test]
fn a_thread_for_each_queue_serves_what_the_card_spreads() {
    let Some(cable) = Cable::find() else { return };
    let cpus: Vec<String> = (0..cable.queues()).map(|cpu| cpu.to_string()).collect();
    let before = cable.received();
    let [_, served] = dperf(&cable, false, &cpus.join(" "));
    if let Some((before, now)) = before.zip(cable.received()) {
        assert!(now.iter().zip(&before).all(|(now, before)| now > before), "{before:?} {now:?}");
    }
    assert!(!served.contains("are read") && !served.contains("is read"), "{served}");
}
