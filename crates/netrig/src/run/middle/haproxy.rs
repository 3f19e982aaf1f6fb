//! HAProxy in TCP mode in the middle.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rig_sys::netlink::Netlink;
use rig_sys::netns::{NetNs, NsFile};
use rig_sys::process::{die_with_parent, in_namespace, in_own_group};
use tempfile::TempDir;

use super::{CLOSING, Carrier, ESTABLISHED, Job, Protocol, SYN_RECEIVED, State, said_by};
use crate::record::{MiddleBackend, MiddleService};

/// Connections at a time; each takes two descriptors and some 34 KiB of buffers while it carries something.
const CONNECTIONS: u32 = 200_000;
/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);
const STATISTICS: &str = "statistics.sock";

/// The process, its configuration and the socket that it tells about itself by.
#[derive(Debug)]
pub struct Proxy {
    version: String,
    threads: usize,
    services: Vec<SocketAddr>,
    process: Child,
    home: TempDir,
    listening: NsFile,
}

impl Proxy {
    pub fn start(job: &Job, ns: &NetNs) -> Result<Self> {
        if job.protocol == Protocol::Udp {
            bail!("HAProxy carries TCP only: choose another path for UDP");
        }
        // It listens, so the addresses have to be somebody's here.
        let mut netlink = Netlink::open(ns)?;
        let mut addresses: Vec<IpAddr> = job.services.iter().map(SocketAddr::ip).collect();
        addresses.dedup();
        for address in addresses.into_iter().chain(job.local.iter().copied()) {
            netlink.add_address("lo", address, if address.is_ipv4() { 32 } else { 128 })?;
        }
        ns.sysctls(&[
            ("net.ipv4.ip_local_port_range", "1025 65535"),
            ("net.core.somaxconn", "65535"),
            ("net.ipv4.tcp_max_syn_backlog", "65535"),
            // Its connections to servers are closed by it, and their ports must not rest for a minute each.
            ("net.ipv4.tcp_max_tw_buckets", "1024"),
        ])?;
        let home = tempfile::Builder::new().prefix("netrig-haproxy-").tempdir().context("make a directory")?;
        let file = home.path().join("haproxy.cfg");
        std::fs::write(&file, configuration(job, home.path())?).context("write its configuration")?;
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(&file).current_dir(home.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let process = in_namespace(die_with_parent(in_own_group(&mut command)), ns).spawn();
        let process = process.context("run haproxy (apt-get install haproxy)")?;
        let version = said_by(ns, "haproxy", &["-v"], "")?;
        let mut proxy = Self {
            version: version.split_whitespace().nth(2).unwrap_or("of unknown version").to_owned(),
            threads: job.workers.len(),
            services: job.services.clone(),
            process,
            home,
            listening: ns.run(|| NsFile::here("netstat"))??,
        };
        proxy.wait_until_it_listens()?;
        Ok(proxy)
    }

    fn socket(&self) -> PathBuf {
        self.home.path().join(STATISTICS)
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        // All that it listens to is bound before its socket answers.
        while self.ask("show info").is_err() {
            if let Some(status) = self.process.try_wait().context("watch haproxy")? {
                let mut said = String::new();
                if let Some(errors) = &mut self.process.stderr {
                    let _ = errors.read_to_string(&mut said);
                }
                bail!("haproxy ended with {status}: {}", said.trim());
            }
            if Instant::now() > deadline {
                bail!("haproxy does not listen after {} s", PATIENCE.as_secs());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// A command of its management guide, and the answer.
    fn ask(&self, command: &str) -> Result<String> {
        let mut stream = UnixStream::connect(self.socket()).context("ask haproxy")?;
        stream.set_read_timeout(Some(PATIENCE)).context("ask haproxy")?;
        writeln!(stream, "{command}").context("ask haproxy")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("hear from haproxy")?;
        Ok(answer)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(job: &Job, home: &Path) -> Result<String> {
    let threads = job.workers.len();
    let cpus: Vec<String> = job.workers.as_slice().iter().map(u32::to_string).collect();
    let socket = home.join(STATISTICS);
    let mut text = format!(
        "global\n  nbthread {threads}\n  cpu-map auto:1/1-{threads} {}\n  maxconn {CONNECTIONS}\n  stats socket {} mode 600\n\
         defaults\n  mode tcp\n  timeout connect {SYN_RECEIVED}s\n  timeout client {ESTABLISHED}s\n  \
         timeout server {ESTABLISHED}s\n  timeout client-fin {CLOSING}s\n  timeout server-fin {CLOSING}s\n  \
         maxconn {CONNECTIONS}\n  backlog 65535\n",
        cpus.join(" "),
        socket.display()
    );
    for (number, service) in job.services.iter().enumerate() {
        writeln!(text, "frontend service{number}\n  bind {service}\n  default_backend servers{number}")?;
        writeln!(text, "backend servers{number}\n  balance roundrobin")?;
        for (turn, backend) in job.backends_of(*service).enumerate() {
            writeln!(text, "  server server{turn} {backend}")?;
        }
    }
    Ok(text)
}

impl Carrier for Proxy {
    fn system(&self) -> Result<String> {
        let threads = if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
        Ok(format!("HAProxy {}, TCP mode, {threads}", self.version))
    }

    /// Of the kernel's listening sockets (/proc/net/netstat: a line of names, then a line of numbers).
    fn drops(&self) -> Result<Vec<(String, u64)>> {
        let mut text = String::new();
        self.listening.read(&mut text)?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
        let (names, numbers) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let pairs: Vec<_> = names.split_whitespace().zip(numbers.split_whitespace()).collect();
        let refused = pairs.iter().find(|(name, _)| *name == "ListenDrops").and_then(|(_, number)| number.parse().ok());
        Ok(vec![("a listening socket took no more connections".to_owned(), refused.unwrap_or(0))])
    }

    fn state(&self) -> Result<State> {
        let table = self.ask("show stat")?;
        let mut reader = csv::Reader::from_reader(table.trim_start_matches("# ").as_bytes());
        let names = reader.headers().context("read haproxy's table")?.clone();
        let column = |name: &str| names.iter().position(|of| of == name).with_context(|| format!("find column {name}"));
        let (proxy, server, current, weight) =
            (column("pxname")?, column("svname")?, column("scur")?, column("weight")?);
        let address = column("addr")?;
        let service = |address: &SocketAddr| MiddleService {
            protocol: "TCP".to_owned(),
            address: address.to_string(),
            scheduler: "roundrobin".to_owned(),
            backends: Vec::new(),
        };
        let services = self.services.iter().map(service).collect();
        let mut state = State { connections: Some(0), memory_bytes: None, services };
        for row in reader.records() {
            let row = row.context("read haproxy's table")?;
            let number = |at: usize| row.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            match &row[server] {
                "FRONTEND" => state.connections = state.connections.map(|sum| sum + number(current)),
                "BACKEND" => {}
                _ => {
                    let backend = MiddleBackend {
                        address: row[address].to_owned(),
                        forward: "Proxy".to_owned(),
                        weight: number(weight) as u32,
                        active: number(current),
                        inactive: 0,
                    };
                    let number = row[proxy].strip_prefix("servers").and_then(|number| number.parse().ok());
                    if let Some(service) = number.and_then(|number: usize| state.services.get_mut(number)) {
                        service.backends.push(backend);
                    }
                }
            }
        }
        Ok(state)
    }
}
