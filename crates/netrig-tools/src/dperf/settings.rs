//! What a file says, keyword by keyword, before its parts are held against each other.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use rig_packet::AddressStride;
use rig_packet::plan::{Driver, Range, VxlanPlan};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// In which line a keyword was said first.
    lines: BTreeMap<String, usize>,

    pub server: bool,
    pub cpus: Vec<u32>,
    pub ports: Vec<(usize, Port)>,
    pub clients: Vec<(usize, Vec<Range>)>,
    pub servers: Vec<(usize, Range)>,
    pub listen: Option<(u16, u16)>,
    pub client_ports: Option<(u16, u16)>,

    pub duration: Option<Duration>,
    pub slow_start: Option<Duration>,
    pub wait: Option<Duration>,

    pub cps: Option<f64>,
    pub cc: Option<u64>,
    pub rps: Option<f64>,
    pub pps: Option<f64>,
    pub launch: Option<u16>,
    /// Interval, and requests of a connection.
    pub keepalive: Option<(Duration, Option<u16>)>,
    pub pipeline: Option<u16>,
    pub flood: bool,
    pub destinations: Vec<(usize, AddressStride)>,
    pub client_hop: bool,

    pub protocol: Protocol,
    pub payload_sizes: Vec<u64>,
    /// Of whole frames, without the frame check sequence.
    pub packet_size: Option<u64>,
    pub payload_random: bool,
    pub payload_file: Option<PathBuf>,
    pub http_host: Option<String>,
    pub http_path: Option<String>,
    pub post: bool,

    pub send_window: Option<u8>,
    pub mss: Option<u16>,
    pub jumbo: Option<u16>,
    pub tx_burst: Option<u16>,
    pub fast_close: bool,
    pub disable_ack: bool,
    pub retransmit_timeout: Option<Duration>,
    pub no_resets: bool,

    pub vlan: Option<u16>,
    pub vxlans: Vec<(usize, VxlanPlan)>,
    pub tos: Option<u8>,
    pub neigh_ignore: bool,
    pub driver: Driver,
    pub busy_poll: Option<u16>,

    pub daemon: bool,
    pub quiet: bool,
    pub clear_screen: bool,
    pub log_level: LogLevel,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub device: Device,
    pub address: IpAddr,
    pub gateway: IpAddr,
    pub mac: Option<[u8; 6]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    Interface(String),
    /// A PCI function: domain:bus:device.function.
    Pci(String),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => f.write_str(name),
            Self::Pci(address) => f.write_str(address),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Http,
}

/// Which remarks are made beside the figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl Settings {
    /// Remembers that a keyword was said; where it was before.
    pub(super) fn begin(&mut self, keyword: &str, line: usize) -> Option<usize> {
        let before = self.lines.get(keyword).copied();
        self.lines.entry(keyword.to_owned()).or_insert(line);
        before
    }

    /// In which line a keyword was said first.
    pub fn line(&self, keyword: &str) -> Option<usize> {
        self.lines.get(keyword).copied()
    }
}
