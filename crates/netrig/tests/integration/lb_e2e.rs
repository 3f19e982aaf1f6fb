//! `netrig lb` between real ends: nothing that an operator does to a running balancer breaks a connection.

#[path = "../../../rig-datapath/tests/integration/endtoend/lab.rs"]
#[allow(dead_code, reason = "shared with the tests of the library, which use more of it")]
mod lab;
#[path = "../../../rig-datapath/tests/integration/endtoend/talk.rs"]
#[allow(dead_code, reason = "shared with the tests of the library, which use more of it")]
mod talk;
#[path = "../../../rig-datapath/tests/integration/endtoend/unpack.rs"]
mod unpack;

mod health;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use lab::{Plan, Wires, until};
use rig_sys::netns::NetNs;
use rig_sys::process;
use serde_json::Value;
use talk::{Conversations, Echo, NewConnections, again};

const V4: &str = "10.9.0.1:80";
const V6: &str = "[fd09::1]:80";
const LINES: usize = 60;

/// A balancer's files, its namespace and its name; all that it may leave goes with this.
struct BalancerDirectory {
    directory: tempfile::TempDir,
    here: NetNs,
    name: String,
}

impl Drop for BalancerDirectory {
    fn drop(&mut self) {
        if self.pins().exists() {
            let ended = self.lb(&["stop", "--detach"]);
            assert!(ended.status.success() || std::thread::panicking(), "{}", said(&ended));
        }
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

impl BalancerDirectory {
    fn new(wires: &Wires) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("e2e-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { directory: tempfile::tempdir().unwrap(), here: again(&wires.here), name }
    }

    /// Below the directory of its run directory.
    fn pins(&self) -> PathBuf {
        let directories = std::fs::read_dir("/sys/fs/bpf").into_iter().flatten().flatten();
        let pins = directories.map(|directory| directory.path().join(&self.name));
        pins.into_iter().find(|pins| pins.exists()).unwrap_or_else(|| "/sys/fs/bpf/none".into())
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("lb.toml")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.arg("lb").args(arguments).args(["--name", &self.name]);
        command.env("NETRIG_RUN", self.directory.path()).current_dir(self.directory.path()).stdin(Stdio::null());
        process::in_namespace(&mut command, &self.here);
        process::die_with_parent(&mut command);
        command
    }

    fn lb(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// It does what it is asked for; gives what it prints.
    #[track_caller]
    fn does(&self, arguments: &[&str]) -> String {
        let output = self.lb(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Both services with these backends, by server, port and weight.
    fn write(&self, backends: &[(u8, u16, u32)]) {
        let mut text = "devices = ['clients', 'server0', 'server1']\nconnections = 16384\n".to_owned();
        text += "[timeouts]\nfin_wait = '1s'\nclose_wait = '1s'\ntime_wait = '1s'\nclose = '1s'\n";
        for (service, ipv6) in [(V4, false), (V6, true)] {
            let local = if ipv6 { "fd08::1-fd08::2" } else { "10.8.0.1-10.8.0.2" };
            let backends: Vec<String> = backends
                .iter()
                .map(|(server, port, weight)| {
                    format!("{{ address = '{}', weight = {weight} }}", lab::server(*server, ipv6, *port))
                })
                .collect();
            text += &format!("[[service]]\nlisten = 'tcp {service}'\nscheduler = 'wrr'\nlocal = '{local}'\n");
            text += &format!("backend = [{}]\n", backends.join(", "));
        }
        fs::write(self.file(), text).unwrap();
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.does(&["-L", "-n", "--json"])).unwrap()
    }

    /// Established connections as the listing has them.
    fn active(&self) -> u64 {
        let status = self.status();
        let services = status["services"].as_array().unwrap();
        let backends = services.iter().flat_map(|service| service["backends"].as_array().unwrap());
        backends.map(|backend| backend["active"].as_u64().unwrap()).sum()
    }
}

/// The control plane.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    /// `None`, said aloud, where the machine lacks something.
    fn start(home: &BalancerDirectory, arguments: &[&str]) -> Option<Self> {
        const LACKING: i32 = 3;
        let mut command = home.command(&[&["run", "--persist"], arguments].concat());
        let remarks = home.directory.path().join("remarks");
        let errors = fs::File::options().create(true).append(true).open(&remarks).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self(child);
        if output.lines().map_while(Result::ok).any(|line| line.starts_with("ready")) {
            return Some(running);
        }
        let status = running.0.wait().unwrap();
        let remarks = fs::read_to_string(&remarks).unwrap();
        assert_eq!(status.code(), Some(LACKING), "it ends instead of being ready: {remarks}");
        rig_skip::skip(rig_skip::Lack::Root, remarks.trim());
        None
    }

    fn kill(mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None, "it has ended before it was killed");
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// It ends by itself, and well.
    fn end(mut self) {
        until("its end", || self.0.try_wait().unwrap().is_some());
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
fn nothing_that_an_operator_does_breaks_a_connection() {
    let Some(wires) = Wires::new(Plan::default()) else { return };
    let home = BalancerDirectory::new(&wires);
    let ports = [7000, 7001];
    let echoes: Vec<Echo> = wires.servers.iter().flat_map(|ns| ports.map(|port| Echo::start(ns, port))).collect();
    let services = [V4, V6].map(|service| service.parse::<SocketAddr>().unwrap());
    let file = home.file().display().to_string();
    home.write(&[(0, 7000, 1), (1, 7000, 1)]);
    let Some(running) = Daemon::start(&home, &[&file]) else { return };
    let talk = Conversations::start(&wires.client, &services, LINES);
    talk.goes_on(1, || {});
    let arrivals = NewConnections::start(&wires.client, &services);
    let all_go_on = || {
        talk.goes_on(2, || {});
        arrivals.go_on(|| {});
    };

    // The file, changed and read again; one that is wrong changes nothing.
    home.write(&[(0, 7000, 1), (1, 7000, 2), (1, 7001, 1)]);
    home.does(&["reload"]);
    all_go_on();
    let good = fs::read_to_string(home.file()).unwrap();
    fs::write(home.file(), format!("{good}\nbackends = 7\n")).unwrap();
    let refused = home.lb(&["reload"]);
    assert!(!refused.status.success(), "{}", said(&refused));
    all_go_on();
    fs::write(home.file(), good).unwrap();

    // A backend comes, another is drained and then removed, by ipvsadm's options.
    for (service, ipv6) in [(V4, false), (V6, true)] {
        let [first, added] =
            [lab::server(0, ipv6, 7000), lab::server(0, ipv6, 7001)].map(|address| address.to_string());
        home.does(&["-a", "-t", service, "-r", &added, "-b", "-w", "2"]);
        home.does(&["-e", "-t", service, "-r", &first, "-b", "-w", "0"]);
    }
    all_go_on();
    let before = echoes[0].accepted.load(Ordering::Relaxed);
    all_go_on();
    assert_eq!(echoes[0].accepted.load(Ordering::Relaxed), before, "a drained backend gets new connections");
    let listing = home.does(&["-L", "-n"]);
    assert!(listing.contains("FullNat") && listing.contains("10.20.0.2:7000"), "{listing}");
    for (service, ipv6) in [(V4, false), (V6, true)] {
        home.does(&["-d", "-t", service, "-r", &lab::server(0, ipv6, 7000).to_string()]);
    }
    all_go_on();

    // The control plane is killed, and one that is started later goes on with everything.
    running.kill();
    all_go_on();
    assert!(!home.lb(&["-L", "-n"]).status.success());
    let running = Daemon::start(&home, &[]).unwrap();
    all_go_on();
    // It has what was in force and not what is in the file.
    let drained = lab::server(0, false, 7001).to_string();
    assert!(home.does(&["-L", "-n"]).contains(&drained));
    until("all conversations in the listing", || home.active() >= 2 * LINES as u64);
    // `stop` ends the daemon; its programs stay and carry the connections.
    home.does(&["stop"]);
    running.end();
    all_go_on();
    let running = Daemon::start(&home, &[&file]).unwrap();
    all_go_on();
    assert!(!home.does(&["-L", "-n"]).contains(&drained), "the file is not in force");

    arrivals.finish();
    talk.finish();
    let broken: u64 = echoes.iter().map(|echo| echo.broken.load(Ordering::Relaxed)).sum();
    assert_eq!(broken, 0, "resets at the servers");
    assert_eq!(wires.damage(), []);
    until("the end of the last connection", || home.active() == 0);
    let status = home.status();
    let dropped = status["drops"].as_array().unwrap().iter().filter(|drop| drop["packets"].as_u64() != Some(0));
    // What a veth's ring of 256 has no room for while its CPU does something else is sent again; so are packets that come before a neighbour is
    // known, where the kernel manages none.
    let managed = wires.manages_neighbors();
    let explained = |reason: &str| reason == "not_sent" || (reason == "no_neighbor" && !managed);
    let dropped = dropped.map(|drop| drop["key"].as_str().unwrap()).filter(|reason| !explained(reason));
    assert_eq!(dropped.collect::<Vec<_>>(), [""; 0]);
    home.does(&["stop", "--detach"]);
    running.end();
    assert!(!home.pins().exists(), "it leaves {}", home.pins().display());
}

/// A service of IPv6 whose servers have IPv4, and later both; the same is done to it.
#[test]
fn nothing_breaks_a_connection_between_the_families() {
    let Some(wires) = Wires::new(Plan::default()) else { return };
    let home = BalancerDirectory::new(&wires);
    let echoes: Vec<Echo> = wires.servers.iter().map(|ns| Echo::start(ns, 7000)).collect();
    let file = home.file().display().to_string();
    let write = |local: &str, backends: &[SocketAddr]| {
        let backends: Vec<String> = backends.iter().map(|backend| format!("'{backend}'")).collect();
        let head = "devices = ['clients', 'server0', 'server1']\nconnections = 16384\n[timeouts]\nfin_wait = '1s'\nclose_wait = '1s'\n";
        let service = format!(
            "[[service]]\nlisten = 'tcp {V6}'\nscheduler = 'rr'\nlocal = [{local}]\nbackend = [{}]\n",
            backends.join(", ")
        );
        fs::write(home.file(), format!("{head}{service}")).unwrap();
    };
    let (v4, both) = ("'10.8.0.1'", "'10.8.0.1-10.8.0.2', 'fd08::1'");
    let servers = [lab::server(0, false, 7000), lab::server(1, true, 7000), lab::server(1, false, 7000)];
    write(v4, &servers[..1]);
    let Some(running) = Daemon::start(&home, &[&file]) else { return };
    let services = [V6.parse::<SocketAddr>().unwrap()];
    let talk = Conversations::start(&wires.client, &services, LINES);
    talk.goes_on(1, || {});
    let arrivals = NewConnections::start(&wires.client, &services);
    let all_go_on = || {
        talk.goes_on(2, || {});
        arrivals.go_on(|| {});
    };
    let traced = home.does(&["trace", &format!("tcp [{}]:40000 > {V6}", lab::client(true))]);
    assert!(traced.contains("its headers are translated to IPv4"), "{traced}");
    assert!(home.does(&["-L", "-n"]).contains("10.20.0.2:7000"));

    // One of its own family needs a local address of that.
    write(v4, &servers[..2]);
    let refused = home.lb(&["reload"]);
    assert!(
        !refused.status.success() && said(&refused).contains("lacks a local address of IPv6"),
        "{}",
        said(&refused)
    );
    write(both, &servers[..2]);
    home.does(&["reload"]);
    all_go_on();
    home.does(&["-a", "-t", V6, "-r", &servers[2].to_string(), "-b"]);
    all_go_on();
    assert!(echoes[1].accepted.load(Ordering::Relaxed) > 0);
    // What is saved is what is in force.
    let saved = home.does(&["save"]);
    assert!(saved.contains("fd08::1") && saved.contains(&servers[2].to_string()), "{saved}");
    running.kill();
    all_go_on();
    let running = Daemon::start(&home, &[]).unwrap();
    all_go_on();
    home.does(&["-d", "-t", V6, "-r", &servers[0].to_string()]);
    all_go_on();
    arrivals.finish();
    talk.finish();
    let broken: u64 = echoes.iter().map(|echo| echo.broken.load(Ordering::Relaxed)).sum();
    assert_eq!((broken, wires.damage()), (0, vec![]));
    home.does(&["stop", "--detach"]);
    running.end();
}
