//! HAProxy in TCP mode.

mod errors;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use rig_stats::units::Span;
use rig_sys::cpu::CpuSet;
use rig_sys::netns::NsFile;
use rig_sys::process::in_own_group;
use rig_testbed::datapath::{
    Attach, BackendState, Command as CommandOf, Counters, Datapath, DatapathRequest, Live, Machine, Missing, Mistake,
    Process, Protocol, ServiceState, Services, Settings, Site, State, UnknownCommand, read_settings,
};
use serde::Deserialize;
use serde_json::{Value, json};

use self::errors::Errors;
use super::arguments::{Weight, is_meant, read};
use super::{CLOSING, ESTABLISHED, SYN_RECEIVED, WEIGHT, node, stands_between};

/// How long it may take to listen.
const TIMEOUT: Duration = Duration::from_secs(20);
/// A socket of the abstract namespace, which is the network namespace's (unix(7)).
const STATISTICS: &str = "netrig-haproxy";
/// `sun_path` without its first byte.
const NAME_LENGTH: usize = 107;
/// Of a server, which its management guide knows.
const MOST_WEIGHT: u32 = 256;
/// How long it may take to be gone after its socket is.
const DYING: Duration = Duration::from_millis(200);

/// What a suite may say of it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    check: Option<Check>,
}

/// How it looks after servers, by connecting to them; the names are those of netrig's balancer.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    interval: Span,
    timeout: Span,
    fall: u32,
}

impl Check {
    fn validate(&self) -> Result<(), Mistake> {
        let times = [self.interval, self.timeout].map(|span| span.0);
        if times.iter().any(|time| !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(time)) {
            return Err(Mistake::new("the interval or timeout of a check", "choose 10ms to 1h").at("check"));
        }
        if self.timeout.0 > self.interval.0 {
            let what = "the timeout of a check, longer than its interval, at whose end HAProxy gives it up";
            return Err(Mistake::new(what, "choose a timeout up to the interval").at("check"));
        }
        match self.fall {
            1..=100 => Ok(()),
            fall => Err(Mistake::new(format!("fall = {fall}"), "choose 1 to 100").at("check")),
        }
    }
}

/// A proxy: it ends each connection and makes another.
#[derive(Debug)]
pub(crate) struct Haproxy;

impl Datapath for Haproxy {
    fn name(&self) -> &'static str {
        "haproxy"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        stands_between(self.name(), asked)?;
        match read_settings(asked.settings)? {
            Options { check: Some(check) } => check.validate(),
            Options { check: None } => Ok(()),
        }
    }

    fn impossible(&self, asked: &DatapathRequest<'_>) -> Option<Missing> {
        let is_udp = asked.services.is_some_and(|services| services.protocol == Protocol::Udp);
        is_udp.then(|| Missing::new("HAProxy carries TCP only", "choose another path for UDP"))
    }

    fn missing(&self, machine: &Machine, _: &Settings) -> Option<Missing> {
        machine.lacks_program("haproxy", "haproxy")
    }

    fn commands(&self) -> &'static [CommandOf] {
        const WEIGHT: CommandOf = CommandOf {
            name: "weight",
            about: "sets the weight of backends, 0 to 256: { backend, weight }, of all services or { service }",
        };
        &[WEIGHT]
    }

    fn check_command(&self, _name: &str, arguments: &Settings) -> Result<(), Mistake> {
        let Weight { weight, .. } = read_settings(arguments)?;
        if weight > MOST_WEIGHT {
            return Err(Mistake::new(format!("weight {weight}"), format!("choose 0 to {MOST_WEIGHT}")));
        }
        Ok(())
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for Haproxy {
    fn attach(&self, site: &Site, settings: &Settings) -> Result<Box<dyn Live>> {
        Ok(Box::new(Proxy::start(site, settings).context("start HAProxy")?))
    }
}

/// The process, its configuration and the socket that it tells about itself by.
#[derive(Debug)]
struct Proxy {
    version: String,
    settings: Settings,
    threads: usize,
    services: Services,
    process: RefCell<Child>,
    errors: Errors,
    listening: NsFile,
}

impl Proxy {
    fn start(site: &Site, settings: &Settings) -> Result<Self> {
        let services = site.services()?;
        let Options { check } = read_settings(settings)?;
        if services.protocol == Protocol::Udp {
            bail!("HAProxy carries TCP only: choose another path for UDP");
        }
        // It listens, so the addresses have to be on an interface here.
        node::own(services.hosts().into_iter().chain(services.local.iter().copied()))?;
        node::set_sysctls(&[
            ("net.ipv4.ip_local_port_range", "1025 65535"),
            ("net.core.somaxconn", "65535"),
            ("net.ipv4.tcp_max_syn_backlog", "65535"),
            // Its connections to servers are closed by it, and their ports must not rest for a minute each.
            ("net.ipv4.tcp_max_tw_buckets", "1024"),
        ])?;
        // All that can fail comes before the process, which nothing would end.
        let version = node::output("haproxy", &["-v"], "")?;
        let (configuration, listening) = (configuration(services, site.cpus(), check)?, NsFile::here("netstat")?);
        let (said, says) = io::pipe().context("make a pipe")?;
        let errors = Errors::of(said).context("start a thread")?;
        // No file and no named socket, so that there is nothing to be left behind.
        let mut command = Command::new("haproxy");
        // Not /dev/stdin, which a small system need not have.
        command.args(["-db", "-f", "/proc/self/fd/0"]).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(says);
        let process = node::spawn(in_own_group(&mut command));
        // With it goes this end of the pipe, which would keep it from ending.
        drop(command);
        let mut process = process.context("run haproxy (apt-get install haproxy)")?;
        let mut stdin = process.stdin.take().context("speak to haproxy")?;
        // Should it not read all of it, it says why on standard error.
        let _ = stdin.write_all(configuration.as_bytes());
        drop(stdin);
        let proxy = Self {
            version: version.split_whitespace().nth(2).unwrap_or("of unknown version").to_owned(),
            settings: settings.clone(),
            threads: site.cpus().len(),
            services: services.clone(),
            process: RefCell::new(process),
            errors,
            listening,
        };
        proxy.wait_until_it_listens()?;
        Ok(proxy)
    }

    fn wait_until_it_listens(&self) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        // All that it listens to is bound before its socket answers.
        while self.try_to_ask("show info").is_err() {
            if let Some(end) = self.end()? {
                return Err(end);
            }
            if Instant::now() > deadline {
                bail!("haproxy does not listen after {} s: {}", TIMEOUT.as_secs(), self.errors.last_lines());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// How it ended, if it has.
    fn end(&self) -> Result<Option<Error>> {
        let status = self.process.borrow_mut().try_wait().context("watch haproxy")?;
        Ok(status.map(|status| anyhow!("haproxy ended with {status}: {}", self.errors.all_that_came())))
    }

    /// As [`Self::try_to_ask`]; the error is the reason for the silence, if it has ended.
    fn ask(&self, command: &str) -> Result<String> {
        self.try_to_ask(command).or_else(|error| {
            let deadline = Instant::now() + DYING;
            while Instant::now() < deadline {
                if let Some(end) = self.end()? {
                    return Err(end);
                }
                thread::sleep(Duration::from_millis(5));
            }
            Err(error.context(format!("haproxy does not answer: {}", self.errors.last_lines())))
        })
    }

    /// A command of its management guide, and the answer.
    fn try_to_ask(&self, command: &str) -> Result<String> {
        // haproxy fills the name up with zeroes.
        let mut name = [0; NAME_LENGTH];
        name[..STATISTICS.len()].copy_from_slice(STATISTICS.as_bytes());
        let address = UnixAddress::from_abstract_name(name).context("name haproxy's socket")?;
        let mut stream = UnixStream::connect_addr(&address).context("ask haproxy")?;
        stream.set_read_timeout(Some(TIMEOUT)).context("ask haproxy")?;
        writeln!(stream, "{command}").context("ask haproxy")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("hear from haproxy")?;
        // As one does that is about to end.
        ensure!(!answer.is_empty(), "haproxy hung up");
        Ok(answer)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let process = self.process.get_mut();
        // It may have ended by itself.
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// How many connections there can be at a time haproxy finds out from the limit of open files, as it does by default.
fn configuration(services: &Services, cpus: &CpuSet, check: Option<Check>) -> Result<String> {
    let threads = cpus.len();
    let cpus: Vec<String> = cpus.as_slice().iter().map(u32::to_string).collect();
    let mut text = format!(
        "global\n  nbthread {threads}\n  cpu-map auto:1/1-{threads} {}\n  stats socket abns@{STATISTICS} level admin\n\
         defaults\n  mode tcp\n  timeout connect {SYN_RECEIVED}s\n  timeout client {ESTABLISHED}s\n  \
         timeout server {ESTABLISHED}s\n  timeout client-fin {CLOSING}s\n  timeout server-fin {CLOSING}s\n  \
         backlog 65535\n",
        cpus.join(" "),
    );
    for (number, service) in services.addresses.iter().enumerate() {
        writeln!(text, "frontend service{number}\n  bind {service}\n  default_backend servers{number}")?;
        writeln!(text, "backend servers{number}\n  balance roundrobin")?;
        let tracked = |backend| {
            let at = services.backends_of(*service).position(|of| of == backend)?;
            check.map(|_| format!(" track checks{number}/server{at}"))
        };
        // A server that is reached from several addresses is named several times, each as often as the others.
        let backends = (0..times(services)).flat_map(|_| services.backends_of(*service));
        for (turn, (backend, source)) in backends.zip(services.local.iter().cycle()).enumerate() {
            // With a port, any, since it takes what follows the last colon of a bare IPv6 address for one.
            let (source, track) = (SocketAddr::new(*source, 0), tracked(backend).unwrap_or_default());
            writeln!(text, "  server server{turn} {backend} weight {WEIGHT} source {source}{track}")?;
        }
        if let Some(check) = check {
            checks(&mut text, services, number, *service, check)?;
        }
    }
    Ok(text)
}

/// A backend whose servers are checked and get no connections: each once, by how ever many names it has. A check's connection has
/// as long as any of its backend (`timeout connect`, at most `inter`), and `timeout check` is what lets it have so much only
/// (HAProxy's configuration manual, `timeout check`).
fn checks(text: &mut String, services: &Services, number: usize, service: SocketAddr, check: Check) -> Result<()> {
    let Check { interval, timeout, fall } = check;
    let [interval, timeout] = [interval, timeout].map(|span| span.0.as_millis());
    writeln!(text, "backend checks{number}\n  timeout connect {timeout}ms\n  timeout check {timeout}ms")?;
    writeln!(text, "  default-server check inter {interval}ms fall {fall} rise 2")?;
    for (turn, (backend, source)) in services.backends_of(service).zip(services.local.iter().cycle()).enumerate() {
        writeln!(text, "  server server{turn} {backend} source {}", SocketAddr::new(*source, 0))?;
    }
    Ok(())
}

/// How often each server is named, as it is reached from several addresses.
fn times(services: &Services) -> usize {
    (services.local.len() / services.backends.len()).max(1)
}

impl Proxy {
    /// Sets weights by the commands of its management guide; all of those meant, or none where there are none.
    fn set_weight(&self, Weight { service, backend, weight }: &Weight) -> Result<usize> {
        ensure!(*weight <= MOST_WEIGHT, "weight {weight}: choose 0 to {MOST_WEIGHT}");
        let mut commands = Vec::new();
        for (number, address) in self.services.addresses.iter().enumerate() {
            let backends = || self.services.backends_of(*address).enumerate();
            let meant = |turn: &usize| {
                let of_turn = backends().nth(turn % self.services.backends.len());
                of_turn.is_some_and(|(index, address)| is_meant(Some(backend), index, address))
            };
            let turns = (0..times(&self.services) * self.services.backends.len()).filter(meant);
            let turns = turns.filter(|_| is_meant(service.as_ref(), number, *address));
            commands.extend(turns.map(|turn| format!("set weight servers{number}/server{turn} {weight}")));
        }
        ensure!(!commands.is_empty(), "there is no such backend");
        for command in &commands {
            let answer = self.ask(command)?;
            ensure!(answer.trim().is_empty(), "haproxy refuses '{command}': {}", answer.trim());
        }
        Ok(commands.len() / times(&self.services))
    }
}

impl Live for Proxy {
    fn version(&self) -> Result<String> {
        let threads = if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
        Ok(format!("HAProxy {}, TCP mode, {threads}", self.version))
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    /// Of the kernel's listening sockets (/proc/net/netstat: a line of names, then a line of numbers).
    fn counters(&self) -> Result<Counters> {
        let mut text = String::new();
        self.listening.read(&mut text)?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
        let (names, numbers) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let pairs: Vec<_> = names.split_whitespace().zip(numbers.split_whitespace()).collect();
        let refused = pairs.iter().find(|(name, _)| *name == "ListenDrops").and_then(|(_, number)| number.parse().ok());
        let drops = vec![("a listening socket took no more connections".to_owned(), refused.unwrap_or(0))];
        Ok(Counters { counts: BTreeMap::new(), drops })
    }

    fn state(&self) -> Result<State> {
        let table = self.ask("show stat")?;
        let mut reader = csv::Reader::from_reader(table.trim_start_matches("# ").as_bytes());
        let names = reader.headers().context("read haproxy's table")?.clone();
        let column = |name: &str| names.iter().position(|of| of == name).with_context(|| format!("find column {name}"));
        let (proxy, server, current) = (column("pxname")?, column("svname")?, column("scur")?);
        let (address, weight) = (column("addr")?, column("weight")?);
        let service = |address: &SocketAddr| ServiceState {
            protocol: "TCP".to_owned(),
            address: address.to_string(),
            scheduler: "roundrobin".to_owned(),
            backends: Vec::new(),
        };
        let services = self.services.addresses.iter().map(service).collect();
        let mut state = State { connections: Some(0), services, ..State::default() };
        for row in reader.records() {
            let row = row.context("read haproxy's table")?;
            let number = |at: usize| row.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            match &row[server] {
                "FRONTEND" => state.connections = state.connections.map(|sum| sum + number(current)),
                "BACKEND" => {}
                _ => {
                    let backend = BackendState {
                        address: row[address].to_owned(),
                        forward: "Proxy".to_owned(),
                        weight: u32::try_from(number(weight)).unwrap_or(u32::MAX),
                        active: number(current),
                        inactive: 0,
                    };
                    let number = row[proxy].strip_prefix("servers").and_then(|number| number.parse().ok());
                    let Some(service) = number.and_then(|number: usize| state.services.get_mut(number)) else {
                        continue;
                    };
                    match service.backends.iter_mut().find(|known| known.address == backend.address) {
                        Some(known) => known.active += backend.active,
                        None => service.backends.push(backend),
                    }
                }
            }
        }
        Ok(state)
    }
    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        match name {
            "weight" => Ok(json!({ "changed": self.set_weight(&read(arguments)?)? })),
            _ => Err(UnknownCommand::of(&Haproxy, name).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rig_testbed::datapath::RequestedServices;

    use super::*;

    fn checked(check: &Value) -> Result<(), String> {
        let settings = json!({ "check": check });
        let services = Some(RequestedServices { protocol: Protocol::Tcp, addresses: 1, local: None });
        let asked = DatapathRequest { settings: settings.as_object().unwrap(), services };
        Haproxy.validate(&asked).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn a_check_may_not_last_longer_than_its_interval() {
        let refused = checked(&json!({ "interval": "100ms", "timeout": "101ms", "fall": 3 })).unwrap_err();
        assert!(refused.contains("longer than its interval"), "{refused}");
        assert_eq!(checked(&json!({ "interval": "100ms", "timeout": "100ms", "fall": 3 })), Ok(()));
    }

    #[test]
    fn connections_of_checks_have_a_timeout_of_their_own() {
        let services = Services {
            protocol: Protocol::Tcp,
            addresses: vec!["198.18.1.1:80".parse().unwrap(), "198.18.1.2:80".parse().unwrap()],
            backends: vec!["198.19.0.1".parse().unwrap(), "198.19.0.2".parse().unwrap()],
            local: (1..=6).map(|host| [198, 18, 2, host].into()).collect(),
            clients: "c".into(),
            servers: "s".into(),
        };
        let span = |milliseconds| Span(Duration::from_millis(milliseconds));
        let check = Check { interval: span(5000), timeout: span(300), fall: 4 };
        let with = configuration(&services, &CpuSet::new([0]), Some(check)).unwrap();
        let (traffic, checks) = with.split_once("backend checks0\n").unwrap();
        assert!(traffic.contains(&format!("timeout connect {SYN_RECEIVED}s")) && !traffic.contains("300ms"), "{with}");
        let checks = checks.split("frontend").next().unwrap();
        for line in ["timeout connect 300ms", "timeout check 300ms", "default-server check inter 5000ms fall 4 rise 2"]
        {
            assert!(checks.contains(line), "{line}: {checks}");
        }
        // Each server has three names, and is checked once for each service.
        for name in ["checks0/server0", "checks0/server1", "checks1/server0", "checks1/server1"] {
            assert_eq!(with.matches(&format!(" track {name}\n")).count(), 3, "{name}: {with}");
        }
        assert_eq!(checks.matches("  server ").count(), 2, "{checks}");
        assert!(
            traffic.contains("server server3 198.19.0.2:80 weight 100 source 198.18.2.4:0 track checks0/server1\n")
        );
        let without = configuration(&services, &CpuSet::new([0]), None).unwrap();
        assert!(!without.contains("check"), "{without}");
    }
}
