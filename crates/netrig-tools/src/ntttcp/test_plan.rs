//! What a command line of either dialect asks for, in one value that nothing checks again.

use std::path::PathBuf;
use std::time::Duration;

use rig_load::worker::embedded::Protocol;
use rig_sys::socket::ZonedAddress;

use super::sync::Cycle;

/// The longest test in seconds: what both ends of a sync connection agree to.
pub const LONGEST: u32 = super::sync::LONGEST_CYCLE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
}

/// Threads that share a receiver's address. Each has the next port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Ports of the receiver, one thread of it for each.
    pub ports: u32,
    /// The CPU of the threads; `None` leaves the affinity of the process.
    pub cpu: Option<u32>,
    /// The receiver's address or name.
    pub host: String,
}

/// How long the measured part of the test is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Seconds, at least one.
    Seconds(u32),
    /// Until it is interrupted.
    Endless,
    /// Until each thread has sent this many messages, but no longer than so many seconds.
    Messages { each: u64, at_most: u32 },
    /// A receiver's: as long as its sender takes.
    AsSender,
}

/// A test as one end is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct TestPlan {
    pub role: Role,
    pub mappings: Vec<Mapping>,
    /// Sender's threads for each port of the receiver.
    pub threads_per_port: u32,
    pub connections_per_thread: u32,
    pub ipv6: bool,
    pub protocol: Protocol,
    /// The first data port; the sync connection has the one below.
    pub port: u16,
    pub sync: bool,
    /// Bytes for each send and each receive.
    pub message: u32,
    pub send_buffer: Option<u32>,
    pub receive_buffer: Option<u32>,
    pub no_delay: bool,
    /// Sends or receives outstanding on a connection (io_uring); `None`: one system call at a time.
    pub outstanding: Option<u32>,
    /// Bytes per second of one sending thread.
    pub throttle: Option<u64>,
    /// SO_MAX_PACING_RATE of one connection in bytes per second.
    pub pacing: Option<u64>,
    /// Seconds.
    pub warm_up: u32,
    pub length: Length,
    /// Seconds.
    pub cool_down: u32,
    pub source: Option<ZonedAddress>,
    pub source_port: Option<u16>,
    /// The receiver waits for several senders.
    pub many: bool,
    /// The sender is the last of several.
    pub last: bool,
    /// The receiver serves test after test.
    pub hold: bool,
    /// Run in the background.
    pub daemon: bool,
    /// CPUs of the whole process; empty for all.
    pub cpus: Vec<u32>,
    /// How long a connection may take to come up.
    pub connect_timeout: Duration,
    /// A sender that comes before its receiver tries again for this long.
    pub time_limit: Duration,
    /// For the other end to begin, and between two bytes.
    pub stall_timeout: Option<Duration>,
    pub verbose: bool,
    /// No line of the throughput as it is now.
    pub quiet: bool,
    pub layout: Layout,
    /// Said before the test: what was asked for and is done otherwise.
    pub remarks: Vec<String>,
}

/// Whose words and columns the results have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    Linux(LinuxOutput),
    Windows(WindowsOutput),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinuxOutput {
    pub console_log: Option<PathBuf>,
    pub xml: Option<PathBuf>,
    pub json: Option<PathBuf>,
    pub tcp_retransmissions: bool,
    /// The interface whose packets are counted.
    pub interface: Option<String>,
    /// Lines of /proc/interrupts that contain this are counted.
    pub interrupts: Option<String>,
    /// As the receiver would have waited (`-e`); it changes nothing.
    pub epoll: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowsOutput {
    /// Appended to.
    pub xml: Option<PathBuf>,
    pub hide_threads: bool,
    /// As the parameters tell them: negative for the operating system's default.
    pub send_buffer: i64,
    pub receive_buffer: i64,
    /// Milliseconds, and as the option says.
    pub timeout_ms: u32,
    pub throughput_bytes_per_ms: u64,
}

impl TestPlan {
    /// Threads of this end that carry load.
    pub fn threads(&self) -> u32 {
        match self.role {
            Role::Sender => self.ports().saturating_mul(self.threads_per_port),
            Role::Receiver => self.ports(),
        }
    }

    /// Ports of all receivers.
    pub fn ports(&self) -> u32 {
        self.mappings.iter().map(|mapping| mapping.ports).fold(0, u32::saturating_add)
    }

    /// The measured part in whole seconds, where it is known before.
    pub fn seconds(&self) -> Option<u32> {
        match self.length {
            Length::Seconds(seconds) => Some(seconds),
            Length::Messages { at_most, .. } => Some(at_most),
            Length::Endless | Length::AsSender => None,
        }
    }

    /// The whole test as this end knows it: warm-up, test and cool-down.
    pub fn cycle(&self) -> Cycle {
        self.seconds().map_or(Cycle::Endless, |seconds| Cycle::Seconds(self.warm_up + seconds + self.cool_down))
    }

    /// Whether the results are laid out as Linux's.
    pub fn is_linux(&self) -> bool {
        matches!(self.layout, Layout::Linux(_))
    }
}
