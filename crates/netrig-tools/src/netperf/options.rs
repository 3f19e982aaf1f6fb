//! A test as netperf's command line has it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::units::Unit;
use super::values::{Direction, Family, SendReceive, Sides, Transport};

/// When a test ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// After this many seconds; 0 goes on until it is interrupted.
    Seconds(u32),
    /// After this many bytes of a stream, or transactions.
    Units(u32),
}

/// `-I` and `-i`: repeat until the interval is narrow enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    /// Percent, 95 or 99.
    pub level: u32,
    /// Whole width of the interval, a part of the mean.
    pub width: f64,
    pub least: u32,
    pub most: u32,
    /// `-r`: the throughput alone decides.
    pub result_only: bool,
}

/// `-b` and `-w`: so many sends, then a pause to the end of the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bursts {
    pub sends: u32,
    pub interval: Duration,
}

/// `-o`, `-k` and `-O`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The layouts of netperf before the selectors.
    Classic,
    Csv,
    Keys,
    Columns,
}

/// An address of the data connection, `-H` and `-L` of the test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataAddress {
    pub host: Option<String>,
    pub family: Family,
}

/// A test as the command line has it.
#[derive(Debug, Clone)]
pub struct Options {
    /// All words, as the selector COMMAND_LINE has them.
    pub command_line: String,
    /// In capitals.
    pub test: String,
    pub control: Sides<DataAddress>,
    pub port: Sides<String>,
    pub length: Length,
    /// `-P`
    pub headers: bool,
    /// `-v`
    pub verbosity: i64,
    /// `-f`; `None` leaves it to the test.
    pub unit: Option<Unit>,
    /// `-B`
    pub brand: Option<String>,
    /// `-c`, `-C`
    pub cpu_usage: Sides<bool>,
    pub confidence: Option<Confidence>,
    /// `-D`
    pub demo: Option<Duration>,
    /// `-N`
    pub no_control: bool,
    pub keep_alive: bool,
    /// `-s`
    pub wait: Duration,
    pub passphrase: Option<String>,
    /// `-T`
    pub cpu: Sides<Option<u32>>,
    pub width: SendReceive<u32>,
    pub priority: Sides<Option<u32>>,
    pub type_of_service: Sides<Option<u8>>,
    pub alignment: Sides<SendReceive<u32>>,
    pub offset: Sides<SendReceive<u32>>,
    /// `-F`
    pub fill_file: Sides<Option<PathBuf>>,
    pub bursts: Sides<Option<Bursts>>,
    /// `-j`
    pub statistics: bool,

    pub direction: Direction,
    pub transport: Transport,
    /// A connection for each transaction.
    pub connects: bool,
    /// Of each request and response; `None` for a stream.
    pub request: Option<u32>,
    pub response: Option<u32>,
    /// `-m`
    pub send_size: Sides<Option<u32>>,
    /// `-M`
    pub receive_size: Sides<Option<u32>>,
    /// `-s` and `-S` of the test
    pub buffer: Sides<SendReceive<Option<u32>>>,
    /// `-b` of the test: requests on their way beside the one that is waited for.
    pub first_burst: u32,
    pub no_delay: bool,
    pub cork: bool,
    pub congestion_control: Sides<Option<String>>,
    /// `-N` of the test: a connected datagram socket at the server. Here it is connected always.
    pub remote_connected: bool,
    pub data: Sides<DataAddress>,
    pub data_port: Sides<u16>,
    /// `-p` of the test: the ports that connections come from.
    pub client_ports: Option<(u16, u16)>,
    /// `-R`
    pub routed: Option<bool>,
    /// `-G`
    pub segment_size: Option<u32>,
    /// `-q`, bytes per second
    pub pacing: Option<u64>,
    /// `-e`
    pub receive_timeout: Option<Duration>,
    pub fast_open: bool,
    pub keep_whole: bool,
    pub defer_accept: bool,
    /// `-U`: go on where a connection does not come up.
    pub survives_failed_connects: bool,
    pub uuid: String,
    pub layout: Layout,
    /// What was written behind `-o`, `-k` or `-O`.
    pub selection: Option<String>,
    /// TCP_SENDFILE
    pub sends_file: bool,
    /// For people, on standard error.
    pub remarks: Vec<String>,
}

impl Options {
    /// TCP_STREAM to this machine for 10 s, as without any option.
    pub fn of(arguments: &[OsString]) -> Self {
        let words = arguments.iter().map(|word| word.to_string_lossy().into_owned());
        Self {
            command_line: std::iter::once("netperf".to_owned()).chain(words).collect::<Vec<_>>().join(" "),
            test: "TCP_STREAM".into(),
            control: Sides::default(),
            port: Sides { local: "0".into(), remote: super::PORT.to_string() },
            length: Length::Seconds(10),
            headers: true,
            verbosity: 1,
            unit: None,
            brand: None,
            cpu_usage: Sides::default(),
            confidence: None,
            demo: None,
            no_control: false,
            keep_alive: false,
            wait: Duration::ZERO,
            passphrase: None,
            cpu: Sides::default(),
            width: SendReceive::default(),
            priority: Sides::default(),
            type_of_service: Sides::default(),
            alignment: Sides::both(SendReceive { send: 8, receive: 8 }),
            offset: Sides::default(),
            fill_file: Sides::default(),
            bursts: Sides::default(),
            statistics: false,
            direction: Direction::default(),
            transport: Transport::Tcp,
            connects: false,
            request: None,
            response: None,
            send_size: Sides::default(),
            receive_size: Sides::default(),
            buffer: Sides::default(),
            first_burst: 0,
            no_delay: false,
            cork: false,
            congestion_control: Sides::default(),
            remote_connected: false,
            data: Sides::default(),
            data_port: Sides::default(),
            client_ports: None,
            routed: None,
            segment_size: None,
            pacing: None,
            receive_timeout: None,
            fast_open: false,
            keep_whole: false,
            defer_accept: false,
            survives_failed_connects: false,
            uuid: String::new(),
            layout: Layout::Classic,
            selection: None,
            sends_file: false,
            remarks: Vec::new(),
        }
    }

    /// Both ways, or neither: what is counted is transactions.
    pub fn is_transactions(&self) -> bool {
        !self.direction.is_one_way()
    }

    pub fn unit(&self) -> Unit {
        match self.unit {
            None if self.is_transactions() => Unit::Transactions,
            None => Unit::Bits(6),
            Some(Unit::Transactions) if !self.is_transactions() => Unit::Bits(6),
            Some(unit) => unit,
        }
    }

    /// Without `-R` datagrams that nothing answers do not leave the network they begin in (SO_DONTROUTE).
    pub fn routing_allowed(&self) -> bool {
        self.routed.unwrap_or(!(self.transport.is_datagram() && self.direction.is_one_way()))
    }
}

/// What a command line asks for.
#[derive(Debug, Clone)]
pub enum Request {
    Test(Box<Options>),
    /// `-V`
    Version,
    /// `-h`, and where an option is wrong: with what getopt(3) says.
    Usage(Option<String>),
    /// `-h` after `--`
    TestUsage,
    /// `-k '?'`, `-o '?'`, and with a line each `-O '?'`
    Selectors {
        lines: bool,
    },
    /// Test UUID
    Uuid(String),
}

/// Why a command line cannot be carried out, beside what [`Request::Usage`] tells.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(pub String);
