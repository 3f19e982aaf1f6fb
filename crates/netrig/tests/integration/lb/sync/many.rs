//! One of two balancers dies under a hundred thousand open connections, while others are being opened.
//!
//! A process may have some thousands of files open, so both ends of the connections are processes of their own, each with a part of them.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{self, AddressFamily, SocketType, bind, listen, socket, sockopt};

use super::{ROUTED, SERVERS, SyncLab, TIMEOUT, TRANSLATED, ip, until};
use crate::lb::with_world;

/// So many as `NETRIG_TEST_CONNECTIONS` says, half of them by each of both services.
const CONNECTIONS: usize = 100_000;
/// At each end.
const PROCESSES: usize = 8;
/// How long is waited for who may be lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// The kernel's default of the longest queue of connections that nobody has accepted yet.
const BACKLOG: i32 = 4096;
/// Which part of the test this process is, and what its answers begin with.
const PART: &str = "NETRIG_TEST_PART";
const ANSWER: &str = "answer: ";
/// The address that connections of this process come from.
const ADDRESS: &str = "NETRIG_TEST_ADDRESS";

#[test]
#[ignore = "is no test but what another test starts"]
fn part() {
    match env::var(PART).as_deref() {
        Ok("servers") => serve(),
        Ok("clients") => hold(),
        other => panic!("{other:?}: started by a test of this file"),
    }
}

fn answer(text: &str) {
    println!("\n{ANSWER}{text}");
}

/// Says back what it hears, as long as its input is open.
fn serve() {
    let listeners: Vec<TcpListener> = SERVERS
        .iter()
        .map(|server| format!("{server}:8080"))
        .chain([ROUTED.to_owned()])
        .map(|at| shared(&at))
        .collect();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let watch = |of: &dyn AsFd, number: u64| {
        epoll::add(&epoll, of.as_fd(), EventData::new_u64(number), EventFlags::IN).unwrap();
    };
    for (number, listener) in listeners.iter().enumerate() {
        watch(&listener, number as u64);
    }
    let input = u64::MAX;
    watch(&io::stdin(), input);
    answer("ready");
    let (mut streams, mut next) = (BTreeMap::<u64, TcpStream>::new(), listeners.len() as u64);
    let (mut events, mut buffer) = (Vec::with_capacity(256), [0; 256]);
    loop {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None).unwrap();
        for event in &events {
            let number = event.data.u64();
            if number == input {
                return;
            }
            if let Some(listener) = listeners.get(number as usize) {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).unwrap();
                    watch(&stream, next);
                    streams.insert(next, stream);
                    next += 1;
                }
                continue;
            }
            let Some(stream) = streams.get_mut(&number) else { continue };
            match stream.read(&mut buffer) {
                Ok(length) if length > 0 && stream.write_all(&buffer[..length]).is_ok() => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => drop(streams.remove(&number)),
            }
        }
    }
}

/// One of several listeners of this address, among which the kernel shares connections.
fn shared(at: &str) -> TcpListener {
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseport(&listener, true).unwrap();
    bind(&listener, &at.parse::<SocketAddr>().unwrap()).unwrap();
    listen(&listener, BACKLOG).unwrap();
    let listener = TcpListener::from(listener);
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Opens connections and asks them what it is told to: `open COUNT` of each service, `say NUMBER`.
fn hold() {
    let own: IpAddr = env::var(ADDRESS).unwrap().parse().unwrap();
    // A port for each: where one is left to the kernel, it looks through half of all before it takes one of the other half.
    let mut ports = 2_000..;
    let mut streams = Vec::<TcpStream>::new();
    answer("ready");
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let (what, number) = line.split_once(' ').unwrap();
        let number = number.parse().unwrap();
        match what {
            "open" => {
                for service in [TRANSLATED, ROUTED].map(|service| service.parse::<SocketAddr>().unwrap()) {
                    for port in ports.by_ref().take(number) {
                        let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
                        bind(&client, &SocketAddr::new(own, port)).unwrap();
                        net::connect(&client, &service).unwrap();
                        streams.push(client.into());
                    }
                }
                answer(&streams.len().to_string());
            }
            "say" => {
                let missing = lost(&mut streams, number as u64, TIMEOUT);
                answer(&(streams.len() - missing).to_string());
            }
            other => panic!("{other}"),
        }
    }
}

/// So many connections; without those that are not answered in time.
fn connect(service: &str, count: usize, time_limit: Duration) -> Vec<TcpStream> {
    let at: SocketAddr = service.parse().unwrap();
    (0..count).filter_map(|_| TcpStream::connect_timeout(&at, time_limit).ok()).collect()
}

/// Says this at each of them; of those that have not said it back when so long has passed the answer is `false`.
fn hear(streams: &mut [TcpStream], word: u64, time_limit: Duration) -> Vec<bool> {
    let deadline = Instant::now() + time_limit;
    let said: Vec<bool> = streams.iter_mut().map(|stream| stream.write_all(&word.to_be_bytes()).is_ok()).collect();
    let heard = |stream: &mut TcpStream| {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).unwrap();
        let mut back = [0; 8];
        stream.read_exact(&mut back).is_ok_and(|()| back == word.to_be_bytes())
    };
    streams.iter_mut().zip(said).map(|(stream, said)| said && heard(stream)).collect()
}

fn lost(streams: &mut [TcpStream], word: u64, time_limit: Duration) -> usize {
    hear(streams, word, time_limit).iter().filter(|heard| !**heard).count()
}

/// Processes of one part, which do the same side by side.
struct Parts(Vec<(Child, ChildStdin, BufReader<ChildStdout>)>);

impl Parts {
    fn start(part: &str, at: &NetNs) -> Self {
        let start = |number| {
            let mut command = Command::new(env::current_exe().unwrap());
            let name = module_path!().split_once("::").unwrap().1;
            command
                .args(["--exact", &format!("{name}::part"), "--ignored", "--nocapture"])
                .env(PART, part)
                .env(ADDRESS, address(number));
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = in_namespace(&mut command, at).spawn().unwrap();
            let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            (child, input, BufReader::new(output))
        };
        let mut parts = Self((0..PROCESSES).map(start).collect());
        assert!(parts.answers().iter().all(|answer| answer == "ready"));
        parts
    }

    fn answers(&mut self) -> Vec<String> {
        let answer = |output: &mut BufReader<ChildStdout>| {
            let mut lines = output.lines().map(Result::unwrap);
            lines.find_map(|line| line.strip_prefix(ANSWER).map(str::to_owned)).expect("it has ended")
        };
        self.0.iter_mut().map(|(_, _, output)| answer(output)).collect()
    }

    /// The sum of what they answer.
    fn ask(&mut self, question: &str) -> usize {
        self.0.iter_mut().for_each(|(_, input, _)| writeln!(input, "{question}").unwrap());
        self.answers().iter().map(|answer| answer.parse::<usize>().unwrap()).sum()
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for (child, ..) in &mut self.0 {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

/// Of one of the processes that hold connections.
fn address(number: usize) -> String {
    format!("10.1.0.{}", 10 + number)
}

impl SyncLab {
    /// Waits until a balancer counts at least so many connections of each service.
    #[track_caller]
    fn has(&self, n: usize, each: usize) {
        let has = until(TIMEOUT, || self.active(n).iter().all(|count| *count as usize >= each).then_some(()));
        assert!(has.is_some(), "{:?} of {each}; {:?}", self.active(n), self.sync(n));
    }
}

#[test]
#[ignore = "takes minutes and 2 GB of memory: .ci/nightly"]
fn no_connection_of_a_hundred_thousand_is_lost_when_a_balancer_dies() {
    let count = env::var("NETRIG_TEST_CONNECTIONS").map_or(CONNECTIONS, |text| text.parse().unwrap());
    let by_each = count / PROCESSES / 2;
    let (each, count) = (by_each * PROCESSES, by_each * PROCESSES * 2);
    with_world(|| {
        let lab = SyncLab::without_servers();
        (0..PROCESSES).for_each(|number| ip(&lab.client, &format!("address add {}/24 dev eth0", address(number))));
        lab.server.sysctl("net.core.somaxconn", &BACKLOG.to_string()).unwrap();
        let _servers = Parts::start("servers", &lab.server);
        let run = |n: usize| {
            // Nobody speaks while so many are opened.
            let file = lab.file(n, 4 * count, "interval = '1s'\nafter = '0s'\n[timeouts]\nestablished = '30m'");
            lab.run(n, &[&file])
        };
        let (mut first, mut second) = (run(0), run(1));
        (0..2).for_each(|n| lab.meet(n));
        let mut clients = Parts::start("clients", &lab.client);
        assert_eq!(clients.ask(&format!("open {by_each}")), count);
        assert_eq!(clients.ask("say 1"), count);
        println!("{count} are open");
        (0..2).for_each(|n| lab.has(n, each));
        println!("both balancers know all");
        let begun = |n| -> u64 { lab.status(n).services.iter().map(|service| service.total.connections).sum() };
        assert!(begun(0) > 0 && begun(1) > 0, "{} {}", begun(0), begun(1));

        // One dies while others come. Those that have been heard once are open.
        let (goes_on, come) = (AtomicBool::new(true), AtomicUsize::new(0));
        let (mut new, known) = thread::scope(|scope| {
            let opens = scope.spawn(|| {
                let mut new = [Vec::new(), Vec::new()];
                while goes_on.load(Ordering::Relaxed) {
                    for (service, open) in [TRANSLATED, ROUTED].iter().zip(&mut new) {
                        let mut more = lab.client.run(|| connect(service, 10, PATIENCE)).unwrap();
                        let heard = hear(&mut more, 2, PATIENCE);
                        open.extend(more.into_iter().zip(heard).filter_map(|(stream, heard)| heard.then_some(stream)));
                    }
                    come.fetch_add(10, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(10));
                }
                new
            });
            let enough = until(TIMEOUT, || (come.load(Ordering::Relaxed) >= 500).then_some(()));
            let known = lab.active(1)[0] as usize;
            first.kill();
            lab.leads_to(&[1]);
            goes_on.store(false, Ordering::Relaxed);
            assert!(enough.is_some(), "{come:?} have come");
            (opens.join().unwrap(), known)
        });
        println!("one is dead");
        assert_eq!(clients.ask("say 3"), count, "of the old connections");
        let [translated, routed] = &mut new;
        assert_eq!(lost(routed, 4, TIMEOUT), 0, "of {} new connections of direct routing", routed.len());
        // What the dead one had not told of yet, and no more: what was opened since it last looked through its table.
        let (gone, untold) = (lost(translated, 5, PATIENCE), (each + translated.len()).saturating_sub(known));
        println!(
            "{gone} of {} new connections by FullNAT are lost, and {untold} had the other balancer not been told of; of {count} old ones none",
            translated.len()
        );
        assert!(gone <= untold, "{gone} of {untold}");

        // It comes back with nothing and is told of all; now the other one dies.
        let _first = run(0);
        lab.has(0, each);
        println!("it is back, and the other one dies");
        second.kill();
        lab.leads_to(&[0]);
        assert_eq!(clients.ask("say 6"), count, "of the old connections, after the second death");
    });
}
