//! Two balancers behind a router with two equal ways, which share connections: one is killed, and comes back.

mod many;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use netrig_lb::message::{PeerState, Status, SyncStatus};
use rig_skip::{Lack, skip};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;
use rig_sys::xdp;

use super::lab::{Daemon, TIMEOUT, echo, exchange};
use super::with_world;
use super::world::until;

/// By FullNAT, to a server's own address; by direct routing, to a server that has it.
const TRANSLATED: &str = "10.9.0.1:80";
const ROUTED: &str = "10.9.0.2:80";
const SERVERS: [&str; 2] = ["10.2.0.2", "10.2.0.3"];
const SECOND: &str = "10.2.0.4";
/// What backends see in clients' place: each balancer's own.
const LOCAL: [&str; 2] = ["10.8.1.1", "10.8.2.1"];
const EACH: usize = 150;

struct SyncLab {
    client: NetNs,
    router: NetNs,
    balancers: [NetNs; 2],
    server: NetNs,
    /// Another one, which has the address of direct routing, too.
    second: NetNs,
    directory: tempfile::TempDir,
    ends: Arc<AtomicBool>,
}

impl Drop for SyncLab {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

#[track_caller]
fn ip(at: &NetNs, arguments: &str) {
    let status = in_namespace(Command::new("ip").args(arguments.split(' ')), at).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// A link between two machines, with an address at each end.
fn link(one: (&NetNs, &str, &str), other: (&NetNs, &str, &str)) {
    let mut here = Netlink::open(one.0).unwrap();
    here.add_veth(&VethPair { name: one.1, peer: other.1, peer_ns: other.0, queues: 1, mtu: 1500 }).unwrap();
    for (at, name, address) in [one, other] {
        let mut netlink = Netlink::open(at).unwrap();
        netlink.add_address(name, address.parse().unwrap(), 24).unwrap();
        netlink.set_up(name).unwrap();
        xdp::take_redirected(at, name, true).unwrap();
    }
    let up = until(TIMEOUT, || here.is_operational(one.1).unwrap().then_some(()));
    assert!(up.is_some(), "{} does not come up", one.1);
}

impl SyncLab {
    fn new() -> Self {
        let lab = Self::without_servers();
        for listener in lab.listeners() {
            lab.serve(listener);
        }
        lab
    }

    /// Nobody accepts what comes to [`SyncLab::listeners`].
    fn without_servers() -> Self {
        let machine = || NetNs::create().unwrap();
        let lab = Self {
            client: machine(),
            router: machine(),
            balancers: [machine(), machine()],
            server: machine(),
            second: machine(),
            directory: tempfile::tempdir().unwrap(),
            ends: Arc::default(),
        };
        for forwards in [&lab.router, &lab.balancers[0], &lab.balancers[1]] {
            forwards.sysctl("net.ipv4.ip_forward", "1").unwrap();
        }
        // Answers of direct routing take another way than what they answer to.
        for all in [&lab.router, &lab.server, &lab.second, &lab.client, &lab.balancers[0], &lab.balancers[1]] {
            all.sysctls(&[("net.ipv4.conf.all.rp_filter", "0"), ("net.ipv4.conf.default.rp_filter", "0")]).unwrap();
            ip(all, "link set lo up");
        }
        // Ways by addresses and ports.
        lab.router.sysctl("net.ipv4.fib_multipath_hash_policy", "1").unwrap();
        link((&lab.router, "client", "10.1.0.1"), (&lab.client, "eth0", "10.1.0.2"));
        link((&lab.router, "server", "10.4.0.1"), (&lab.server, "router", "10.4.0.2"));
        link((&lab.router, "second", "10.4.1.1"), (&lab.second, "router", "10.4.1.2"));
        ip(&lab.second, "route add default via 10.4.1.1");
        ip(&lab.client, "route add default via 10.1.0.1");
        ip(&lab.server, "route add default via 10.4.0.1");
        for (n, balancer) in lab.balancers.iter().enumerate() {
            let (name, at) = (format!("lb{n}"), |net: u8, host: u8| format!("10.{net}.{}.{host}", n + 1));
            link((&lab.router, &name, &at(3, 1)), (balancer, "lb0", &at(3, 2)));
            link((&lab.server, &name, &at(5, 2)), (balancer, "lb1", &at(5, 1)));
            link((&lab.second, &name, &at(6, 2)), (balancer, "lb2", &at(6, 1)));
            ip(balancer, &format!("route add default via {}", at(3, 1)));
            ip(balancer, &format!("route add {SECOND} via {}", at(6, 2)));
            SERVERS.iter().for_each(|server| ip(balancer, &format!("route add {server} via {}", at(5, 2))));
        }
        link((&lab.balancers[0], "sync", "10.7.0.1"), (&lab.balancers[1], "sync", "10.7.0.2"));
        for address in SERVERS.iter().copied().chain(["10.9.0.2"]) {
            ip(&lab.server, &format!("address add {address}/32 dev lo"));
        }
        [SECOND, "10.9.0.2"].iter().for_each(|address| ip(&lab.second, &format!("address add {address}/32 dev lo")));
        lab.serve(lab.second.run(|| TcpListener::bind(ROUTED).unwrap()).unwrap());
        lab.leads_to(&[0, 1]);
        lab
    }

    /// Of the servers that both services have.
    fn listeners(&self) -> Vec<TcpListener> {
        let at = SERVERS.iter().map(|server| format!("{server}:8080")).chain([ROUTED.to_owned()]);
        self.server.run(|| at.map(|at| TcpListener::bind(at).unwrap()).collect()).unwrap()
    }

    fn serve(&self, listener: TcpListener) {
        listener.set_nonblocking(true).unwrap();
        let ends = Arc::clone(&self.ends);
        thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(false).unwrap();
                        thread::spawn(move || echo(stream));
                    }
                    Err(_) => thread::sleep(Duration::from_millis(2)),
                }
            }
        });
    }

    /// The router and the server send what is for the services and for local addresses to these balancers, as they would by BGP: each
    /// local address to its own balancer, if that is among them.
    fn leads_to(&self, balancers: &[usize]) {
        let via = |n: &usize| format!("nexthop via 10.3.{}.2", n + 1);
        let ways: Vec<String> = balancers.iter().map(via).collect();
        for service in [TRANSLATED, ROUTED] {
            let address = service.split(':').next().unwrap();
            ip(&self.router, &format!("route replace {address}/32 {}", ways.join(" ")));
        }
        for (n, local) in LOCAL.iter().enumerate() {
            let at = if balancers.contains(&n) { n } else { balancers[0] };
            ip(&self.server, &format!("route replace {local}/32 via 10.5.{}.1", at + 1));
        }
    }

    fn command(&self, n: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        let run = self.directory.path().join(format!("run{n}"));
        command.arg("lb").args(arguments).env("NETRIG_RUN", run).stdin(Stdio::null());
        in_namespace(&mut command, &self.balancers[n]);
        command
    }

    fn status(&self, n: usize) -> Status {
        let output = self.command(n, &["status", "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn sync(&self, n: usize) -> SyncStatus {
        self.status(n).sync.unwrap()
    }

    /// Established connections of both services, as the balancer counts them.
    fn active(&self, n: usize) -> Vec<u32> {
        let of = |address: &str| {
            let status = self.status(n);
            let key = address.parse::<SocketAddr>().unwrap();
            let service = status.services.iter().find(|service| service.key.address == key).unwrap().clone();
            service.backends.iter().map(|backend| backend.active).sum()
        };
        vec![of(TRANSLATED), of(ROUTED)]
    }

    fn start(&self, n: usize, arguments: &[&str]) -> Daemon {
        let file = self.file(n, 10_000, "interval = '100ms'\nafter = '0s'");
        self.run(n, &[&[file.as_str()], arguments].concat())
    }

    /// Settings of a balancer with room for so many connections, which shares them like this.
    fn file(&self, n: usize, connections: usize, sharing: &str) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let key = self.directory.path().join("key");
        fs::write(&key, "5a".repeat(32)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let (own, peer) = (n + 1, 2 - n);
        // Backends are in another order at each of them.
        let mut servers = SERVERS.map(|server| format!("\"{server}:8080\""));
        servers.rotate_left(n);
        let text = format!(
            "devices = ['lb0', 'lb1']\nconnections = {connections}\n[sync]\naddress = '10.7.0.{own}:8849'\npeers = ['10.7.0.{peer}:8849']\nkey = \
             '{}'\nlocal = '{}'\n{sharing}\n[[service]]\nlisten = '{TRANSLATED}'\nscheduler = 'rr'\nlocal = '{}'\n\
             backend = [{}]\n[[service]]\nlisten = '{ROUTED}'\nforward = 'route'\nscheduler = 'mh'\nsloppy_tcp = true\nbackend = \
             ['{}:80']\n",
            key.display(),
            LOCAL[1 - n],
            LOCAL[n],
            servers.join(", "),
            SERVERS[0]
        );
        let file = self.directory.path().join(format!("lb{n}.toml"));
        fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn run(&self, n: usize, arguments: &[&str]) -> Daemon {
        let log = self.directory.path().join(format!("log{}", fs::read_dir(self.directory.path()).unwrap().count()));
        let output = fs::File::create(&log).unwrap();
        let mut command = self.command(n, &[&["run"], arguments].concat());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let running = Daemon::new(command.spawn().unwrap(), log);
        let ready = until(TIMEOUT, || running.said().contains("ready: ").then_some(()));
        assert!(ready.is_some(), "it does not come up: {}", running.said());
        running
    }

    /// Waits until both balancers count so many connections of each service, and have told each other.
    #[track_caller]
    fn knows(&self, n: usize, each: usize) {
        let wanted = vec![each as u32; 2];
        let knows = until(TIMEOUT, || (self.active(n) == wanted).then_some(()));
        assert!(knows.is_some(), "{:?} of {wanted:?}; {:?}", self.active(n), self.sync(n));
    }

    #[track_caller]
    fn meet(&self, n: usize) {
        let met = until(TIMEOUT, || (self.sync(n).peers[0].state == PeerState::Up).then_some(()));
        assert!(met.is_some(), "{:?}", self.sync(n));
    }

    fn open(&self, service: &str) -> Vec<TcpStream> {
        let at: SocketAddr = service.parse().unwrap();
        let connect = || self.client.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(5))).unwrap().ok();
        let one = || {
            let stream = until(TIMEOUT, connect).unwrap_or_else(|| panic!("no answer at {service}"));
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream
        };
        (0..EACH).map(|_| one()).collect()
    }
}

#[track_caller]
fn talk(streams: &mut [TcpStream]) {
    let broken: Vec<String> =
        streams.iter_mut().filter_map(|stream| exchange(stream, 100).err()).map(|error| error.to_string()).collect();
    assert!(broken.is_empty(), "{} of {} connections are lost: {}", broken.len(), streams.len(), broken[0]);
}

#[test]
fn no_connection_is_lost_when_one_of_two_balancers_dies_and_comes_back() {
    with_world(|| {
        let lab = SyncLab::new();
        let mut first = lab.start(0, &[]);
        let _second = lab.start(1, &[]);
        (0..2).for_each(|n| lab.meet(n));
        let mut streams = lab.open(TRANSLATED);
        streams.extend(lab.open(ROUTED));
        talk(&mut streams);
        // The router has spread them over both, and each has been told of the other's.
        (0..2).for_each(|n| lab.knows(n, EACH));
        let begun = |n| -> u64 { lab.status(n).services.iter().map(|service| service.total.connections).sum() };
        assert!(begun(0) > 0 && begun(1) > 0 && begun(0) + begun(1) >= 2 * EACH as u64, "{} {}", begun(0), begun(1));

        first.kill();
        lab.leads_to(&[1]);
        talk(&mut streams);
        lab.knows(1, EACH);
        let shown = String::from_utf8(lab.command(1, &["status"]).output().unwrap().stdout).unwrap();
        assert!(shown.contains("sync      at 10.7.0.2:8849: "), "{shown}");
        let metrics = String::from_utf8(lab.command(1, &["metrics"]).output().unwrap().stdout).unwrap();
        assert!(metrics.contains("netrig_lb_sync_connections{balancer=\"lb\",of=\"own\"} "), "{metrics}");

        // It comes back with nothing, and is told of all: those of the other one, and those that were its own.
        let mut first = lab.start(0, &["--persist"]);
        lab.knows(0, EACH);
        lab.leads_to(&[0]);
        talk(&mut streams);
        let says =
            || first.said().contains("balancer 10.7.0.2:8849 is there, and is told of all connections").then_some(());
        assert!(until(TIMEOUT, says).is_some(), "{}", first.said());

        // A control plane alone that is started again goes on with the table, and hears what it has missed.
        first.kill();
        let mut more = lab.open(ROUTED);
        lab.leads_to(&[1]);
        talk(&mut more);
        lab.leads_to(&[0]);
        let _first = lab.start(0, &["--persist"]);
        lab.meet(0);
        streams.extend(more);
        talk(&mut streams);
        let stopped = lab.command(0, &["stop", "--detach"]).status().unwrap();
        assert!(stopped.success());
    });
}

/// Each client has the same backend at both, which know nothing of each other, have other backends before, and their files in another order.
#[test]
fn hashes_alone_keep_connections_of_direct_routing_when_a_balancer_dies() {
    with_world(|| {
        let lab = SyncLab::new();
        let file = |n: usize, backends: &str| {
            let text = format!(
                "devices = ['lb0', 'lb1', 'lb2']\nconnections = 10_000\n[[service]]\nlisten = '{ROUTED}'\nforward = 'route'\nscheduler = \
                 'mh'\nsloppy_tcp = true\nbackend = [{backends}]\n"
            );
            let path = lab.directory.path().join(format!("hash{n}.toml"));
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (one, two) = (format!("'{}:80'", SERVERS[0]), format!("'{SECOND}:80'"));
        let mut first = lab.run(0, &[&file(0, &format!("{one}, {two}"))]);
        let second = file(1, &format!("'10.2.0.9:80', {two}"));
        let _second = lab.run(1, &[&second]);
        file(1, &format!("{two}, {one}"));
        assert!(lab.command(1, &["reload"]).status().unwrap().success());
        let mut streams = lab.open(ROUTED);
        talk(&mut streams);
        let active = |n| -> Vec<u32> {
            let status = lab.status(n);
            status.services[0].backends.iter().map(|backend| backend.active).collect()
        };
        assert!(active(0).iter().chain(&active(1)).all(|active| *active > 0), "{:?} {:?}", active(0), active(1));
        first.kill();
        lab.leads_to(&[1]);
        talk(&mut streams);
        // The client's acknowledgment of the last answer may be late.
        let all = until(TIMEOUT, || (active(1).iter().sum::<u32>() == EACH as u32).then_some(()));
        assert!(all.is_some(), "{:?}", active(1));
    });
}

/// Who speaks BGP for a balancer, with the router's as its neighbour; both in the balancer's and the router's namespace.
struct Speakers(Vec<Child>);

impl Drop for Speakers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

impl SyncLab {
    fn gobgpd(&self, at: &NetNs, name: &str, text: &str) -> Child {
        let file = self.directory.path().join(format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        let log = fs::File::create(self.directory.path().join(format!("{name}.log"))).unwrap();
        let mut command = Command::new("gobgpd");
        command.args(["--pprof-disable", "-f"]).arg(&file).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        in_namespace(&mut command, at).spawn().unwrap()
    }

    fn speakers(&self) -> Speakers {
        let text = |number: u32, id: &str, neighbor: &str, of: u32, passive: bool| {
            let families = ["ipv4-unicast", "ipv6-unicast"].map(|family| {
                format!("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = '{family}'\n")
            });
            let passive = if passive { "[neighbors.transport.config]\npassive-mode = true\n" } else { "" };
            format!(
                "[global.config]\nas = {number}\nrouter-id = '{id}'\n[[neighbors]]\n[neighbors.config]\nneighbor-address = '{neighbor}'\n\
                 peer-as = {of}\n[neighbors.timers.config]\nconnect-retry = 1\nidle-hold-time-after-reset = 1\n{passive}{}",
                families.concat()
            )
        };
        let own = self.gobgpd(&self.balancers[0], "own", &text(64_512, "10.3.1.2", "10.3.1.1", 64_513, false));
        Speakers(vec![own, self.gobgpd(&self.router, "router", &text(64_513, "10.3.1.1", "10.3.1.2", 64_512, true))])
    }

    /// What the router has learned.
    fn learned(&self) -> String {
        let list = |family| {
            let mut command = Command::new("gobgp");
            let output = in_namespace(command.args(["global", "rib", "-a", family]), &self.router).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        list("ipv4") + &list("ipv6")
    }

    /// Waits until the router has learned of these, and of none of those.
    #[track_caller]
    fn learns(&self, these: &[&str], none: &[&str]) {
        let is = || {
            let learned = self.learned();
            let has = |prefix: &&str| learned.contains(*prefix);
            (these.iter().all(has) && !none.iter().any(has)).then_some(())
        };
        assert!(until(TIMEOUT, is).is_some(), "{these:?} and not {none:?} in {}", self.learned());
    }
}

#[test]
fn addresses_are_announced_while_packets_can_come_here() {
    if let Err(error) = Command::new("gobgpd").arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        return skip(Lack::Program("gobgpd"), error);
    }
    with_world(|| {
        let lab = SyncLab::new();
        let file = |healthy: &str| {
            let text = format!(
                "devices = ['lb0', 'lb1']\nconnections = 10_000\n[bgp]\nlocal = true\n[[service]]\nlisten = ['10.9.0.1:80', '10.9.0.3:80']\n\
                 local = '10.8.1.1'\nbackend = ['10.2.0.2:8080']\n[[service]]\nlisten = '[fd00:9::1]:80'\nlocal = 'fd00:8::1'\nbackend = \
                 ['[fd00:2::2]:8080']\n[[service]]\nlisten = '10.9.0.5:80'\nlocal = '10.8.1.1'\nbackend = ['10.2.0.2:8080']\n\
                 [service.check]\nkind = 'tcp'\nport = {healthy}\ninterval = '100ms'\ntimeout = '100ms'\nfall = 1\nrise = 1\nbegin = 'down'\n"
            );
            let path = lab.directory.path().join("bgp.toml");
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let file_name = file("8080");
        // The speaker comes later.
        let mut running = lab.run(0, &[&file_name]);
        let said = until(TIMEOUT, || running.said().contains("addresses are not announced: speaker").then_some(()));
        assert!(said.is_some(), "{}", running.said());
        let _speakers = lab.speakers();
        let all = ["10.9.0.1/32", "10.9.0.3/32", "fd00:9::1/128", "10.8.1.1/32", "fd00:8::1/128", "10.9.0.5/32"];
        lab.learns(&all, &[]);
        assert_eq!(lab.command(0, &["status", "--ready"]).status().unwrap().code(), Some(0));

        // Its backend fails: nothing listens there.
        file("8099");
        assert!(lab.command(0, &["reload"]).status().unwrap().success());
        lab.learns(&all[..5], &["10.9.0.5/32"]);
        let ready = lab.command(0, &["status", "--ready"]).output().unwrap();
        let why = String::from_utf8(ready.stdout).unwrap();
        assert_eq!(
            (ready.status.code(), why.as_str()),
            (Some(1), "tcp 10.9.0.5:80 has no quorum of healthy backends\n")
        );
        file("8080");
        assert!(lab.command(0, &["reload"]).status().unwrap().success());
        lab.learns(&all, &[]);

        assert!(lab.command(0, &["withdraw"]).status().unwrap().success());
        lab.learns(&[], &all);
        assert_eq!(lab.command(0, &["status", "--ready"]).status().unwrap().code(), Some(1));
        assert!(lab.command(0, &["announce"]).status().unwrap().success());
        lab.learns(&all, &[]);
        // What ends takes its addresses back.
        let stopped = lab.command(0, &["stop", "--drain", "10s"]).output().unwrap();
        assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
        assert_eq!(running.ended(), Some(0));
        lab.learns(&[], &all);
    });
}

#[test]
fn a_backend_drains_until_its_deadline() {
    with_world(|| {
        let lab = SyncLab::new();
        lab.leads_to(&[0]);
        let running = lab.start(0, &[]);
        let mut streams = lab.open(TRANSLATED);
        let drain = |span: &str| {
            let backend = format!("{}:8080", SERVERS[0]);
            lab.command(0, &["-e", "-t", TRANSLATED, "-r", &backend, "--drain", span]).status().unwrap()
        };
        let backends = || {
            let status = lab.status(0);
            let service = status.services.into_iter().find(|service| service.key.address.to_string() == TRANSLATED);
            let mut backends = service.unwrap().backends;
            backends.sort_by_key(|backend| backend.address);
            backends
        };
        let half = EACH as u32 / 2;
        assert!(drain("1h").success());
        let [drained, other] = &backends()[..] else { panic!("{:?}", backends()) };
        assert!(drained.drain_ms.is_some_and(|left| left > 3_000_000) && other.drain_ms.is_none(), "{drained:?}");
        assert_eq!((drained.active, drained.weight), (half, 0));
        let shown = String::from_utf8(lab.command(0, &["status"]).output().unwrap().stdout).unwrap();
        assert!(shown.contains("    DRAINING: what is left of its connections ends in 59 min"), "{shown}");
        talk(&mut streams);
        let more = lab.open(TRANSLATED);
        let [drained, other] = &backends()[..] else { panic!("{:?}", backends()) };
        assert_eq!((drained.active, other.active), (half, half + more.len() as u32));
        assert!(drain("100ms").success());
        let over = until(TIMEOUT, || (backends()[0].active == 0).then_some(()));
        assert!(over.is_some(), "{:?}", backends());
        let told = || {
            running
                .said()
                .contains("has drained to its deadline: 75 connections were left, and have ended")
                .then_some(())
        };
        assert!(until(TIMEOUT, told).is_some(), "{}", running.said());
        assert_eq!((backends()[0].drain_ms, backends()[1].active), (None, half + more.len() as u32));
        // A weight puts it back to work.
        let backend = format!("{}:8080", SERVERS[0]);
        assert!(lab.command(0, &["-e", "-t", TRANSLATED, "-r", &backend, "-w", "1"]).status().unwrap().success());
        assert_eq!(backends()[0].weight, 1);
        let wrong = lab.command(0, &["-e", "-t", TRANSLATED, "-r", &backend, "--drain", "2d"]).output().unwrap();
        assert_eq!(wrong.status.code(), Some(2));
    });
}
