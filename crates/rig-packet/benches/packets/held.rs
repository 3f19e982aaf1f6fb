//! What an open connection takes of memory: as many as asked for are opened between a client and a server in this process,
//! each with one request answered, and all of them stay.

use std::error::Error;
use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use rig_packet::{Clock, Config, Engine, Load, Monotonic, RequestRepeat, Service, V4, memory};

use super::{BATCHES, CloseMethod, config, tcp};

pub const NAME: &str = "held";
const CONNECTIONS: u32 = 10_000_000;
/// Seconds after which the benchmark gives up.
const MOST_SECONDS: u64 = 600;

/// Bytes of this process that are in memory (VmRSS of proc_pid_status(5)).
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

fn wide(mut config: Config<V4>, connections: u32) -> Config<V4> {
    config.capacity = connections;
    for ranges in [&mut config.local, &mut config.remote] {
        ranges.iter_mut().filter(|(_, count)| *count > 1).for_each(|(_, count)| *count = connections / 60_000 + 1);
    }
    config
}

/// Opens `connections`, or ten million, and tells what they take, an end at a time.
pub fn measure(connections: Option<u32>) -> Result<(), Box<dyn Error>> {
    let connections = connections.unwrap_or(CONNECTIONS);
    let (Service::TcpClient(mut client), mut server) =
        tcp(connections, Some(RequestRepeat::every(Duration::from_secs(3600))), CloseMethod::Fin, true, false)
    else {
        return Err("a TCP load has a TCP client".into());
    };
    client.client.load = Load { hold: Some(connections), ..Load::new(1e9) };
    client.delayed_ack = Duration::ZERO;
    if let Service::TcpServer(server) = &mut server {
        server.idle = Duration::from_secs(3 * 3600);
    }
    let (ours, theirs) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 254));
    let (mut a, mut b) = memory::pair(BATCHES);
    let before = resident()?;
    let begin = Monotonic.now();
    let mut client = Engine::new(wide(config(1, ours, theirs, Service::TcpClient(client)), connections), begin)?;
    let mut server = Engine::new(wide(config(2, theirs, ours, server), connections), begin)?;
    let wanted = u64::from(connections);
    while client.counters().tcp_rsp < wanted {
        let now = Monotonic.now();
        client.pass(now, &mut a);
        server.pass(Monotonic.now(), &mut b);
        if now > begin + MOST_SECONDS * 1_000_000_000 {
            return Err(format!("{} of {wanted} in {MOST_SECONDS} s", client.counters().tcp_rsp).into());
        }
    }
    let bytes = resident()?.saturating_sub(before);
    let open = client.counters().sk_con() + server.counters().sk_con();
    if open != 2 * wanted {
        return Err(format!("{open} ends are open, and {} were to be", 2 * wanted).into());
    }
    println!(
        "{NAME:24} {wanted} connections: {:.1} bytes for each end of one, {} MB an end  (at most 64)",
        bytes as f64 / open as f64,
        bytes / 2_000_000
    );
    Ok(())
}
