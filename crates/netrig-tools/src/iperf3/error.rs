//! What goes wrong, with the original's numbers and messages: peers send the numbers, scripts read the messages.

use std::fmt;
use std::io;

/// An error by its number in iperf3's `iperf_api.h`. Those of a peer may be any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub i32);

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Code {
            $(pub const $name: Self = Self($number);)*

            /// The original's words; `None` for a number that has none here.
            pub fn words(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    Self(_) => None,
                }
            }
        }
    };
}

codes! {
    BOTH_ROLES = 1, "cannot be both server and client";
    NO_ROLE = 2, "must either be a client (-c) or server (-s)";
    SERVER_ONLY = 3, "some option you are trying to set is server only";
    CLIENT_ONLY = 4, "some option you are trying to set is client only";
    DURATION = 5, "test duration valid values are 0 to 86400 seconds";
    STREAMS = 6, "invalid number of parallel streams (min = 1, max = 128)";
    BLOCK_SIZE = 7, "block size too large (maximum = 1048576 bytes)";
    BUFFER_SIZE = 8, "socket buffer size too large (maximum = 536870912 bytes)";
    INTERVAL = 9, "invalid report interval (min = 0.1, max = 60 seconds)";
    MSS = 10, "TCP MSS too large (maximum = 32767 bytes)";
    OMIT = 12, "bogus value for --omit (maximum = 600 seconds)";
    FILE = 14, "unable to open -F file";
    BURST = 15, "invalid burst count (maximum = 1000)";
    END_CONDITIONS = 16, "only one test end condition (-t, -n, -k) may be specified";
    LOG_FILE = 17, "unable to open log file";
    NO_SCTP = 18, "no SCTP support available";
    DATAGRAM_SIZE = 20, "block size invalid (minimum = 16 bytes, maximum = 65507 bytes)";
    TOS = 21, "bad TOS value (must be between 0 and 255 inclusive)";
    CLIENT_AUTH = 22, "you must specify a username, password, and path to a valid RSA public key";
    SERVER_AUTH = 23, "you must specify a path to a valid RSA private key and a user credential file";
    FORMAT = 24, "bad format specifier (valid formats are in the set [kmgtKMGT])";
    REVERSE_AND_BIDIR = 25, "cannot be both reverse and bidirectional";
    PORT = 26, "port number must be between 1 and 65535 inclusive";
    TOTAL_RATE = 27, "total required bandwidth is larger than server limit";
    TOTAL_INTERVAL = 28, "invalid time interval for calculating average data rate";
    SKEW = 29, "skew threshold must be a positive number";
    IDLE_TIMEOUT = 30, "idle timeout parameter is not positive or larger than allowed limit";
    RECEIVE_TIMEOUT = 31, "receive timeout value is incorrect or not in range";
    RECEIVE_TIMEOUT_SENDING = 32, "client receive timeout is valid only in receiving mode";
    SEND_TIMEOUT = 33, "send timeout value is incorrect or not in range";
    FILE_OVER_UDP = 34, "cannot transfer file using UDP";
    USERS_FILE = 35, "cannot access authorized users file";
    KEEPALIVE = 36, "control connection Keepalive period should be larger than the full retry period (interval * count)";
    MAX_DURATION = 37, "client's requested duration exceeds the server's maximum permitted limit";
    UNIT = 38, "invalid unit value or suffix";
    DSCP = 40, "bad DSCP value (numeric: 0-63 inclusive, symbolic: one of [af11-13, af21-23, af31-33, \
        af41-43, cs1-7, ef, va, lowdelay, throughput, reliability])";
    INIT = 101, "test initialization failed";
    LISTEN = 102, "unable to start listener for connections";
    CONNECT = 103, "unable to connect to server - server may have stopped running or use a different port, firewall issue, etc.";
    ACCEPT = 104, "unable to accept connection from client";
    SEND_COOKIE = 105, "unable to send cookie to server";
    RECEIVE_COOKIE = 106, "unable to receive cookie at server";
    CONTROL_WRITE = 107, "unable to write to the control socket";
    CONTROL_READ = 108, "unable to read from the control socket";
    CONTROL_CLOSED = 109, "control socket has closed unexpectedly";
    MESSAGE = 110, "received an unknown control message (ensure other side is iperf3 and not iperf)";
    SEND_MESSAGE = 111, "unable to send control message - port may not be available, the other side may have stopped running, etc.";
    RECEIVE_MESSAGE = 112, "unable to receive control message - port may not be available, the other side may have stopped running, etc.";
    RECEIVE_PARAMETERS = 114, "unable to receive parameters from client";
    RECEIVE_RESULTS = 117, "unable to receive results";
    CLIENT_TERMINATED = 119, "the client has terminated";
    SERVER_TERMINATED = 120, "the server has terminated";
    ACCESS_DENIED = 121, "the server is busy running a test. try again later";
    NO_DELAY = 122, "unable to set TCP/SCTP NODELAY";
    SET_MSS = 123, "unable to set TCP/SCTP MSS";
    SET_BUFFER = 124, "unable to set socket buffer size";
    SET_TOS = 125, "unable to set IP TOS";
    SET_FLOW_LABEL = 127, "unable to set IPv6 flow label";
    AFFINITY = 132, "unable to set CPU affinity";
    DAEMON = 133, "unable to become a daemon";
    CONGESTION = 134, "unable to set TCP_CONGESTION: Supplied congestion control algorithm not supported on this host";
    PID_FILE = 135, "unable to write PID file";
    SET_PACING = 140, "unable to set socket pacing";
    SCTP_STREAMS = 138, "unable to set SCTP_INIT num of SCTP streams\n";
    SCTP_BIND = 139, "unable to bind to the addresses of -X";
    BUFFER_NOT_SET = 141, "socket buffer size not set correctly";
    AUTHORIZATION = 142, "test authorization failed";
    BIND_DEVICE = 143, "Unable to bind-to-device (check perror, maybe permissions?)";
    NO_DATA = 144, "idle timeout for receiving data";
    DONT_FRAGMENT = 145, "unable to set IP Do-Not-Fragment flag";
    USER_TIMEOUT = 148, "unable to set TCP USER_TIMEOUT";
    SET_KEEPALIVE = 155, "unable to set socket keepalive (SO_KEEPALIVE) option";
    TEST_EXPIRED = 160, "server test duration expired";
    STREAM_LISTEN = 202, "unable to start stream listener";
    STREAM_CONNECT = 203, "unable to connect stream";
    STREAM_ACCEPT = 204, "unable to accept stream connection";
    STREAM_WRITE = 205, "unable to write to stream socket";
    STREAM_READ = 206, "unable to read from stream socket";
    STREAM_ID = 208, "stream has an invalid id";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => f.write_str(words),
            None => write!(f, "int_errno={}", self.0),
        }
    }
}

/// What ended a test, or kept it from beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestError {
    pub code: Code,
    /// What the system said, or what else is known.
    pub detail: Option<String>,
    /// The system's error number, for the peer.
    pub errno: i32,
}

impl TestError {
    pub fn with(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: Some(detail.into()), errno: 0 }
    }

    /// With the system's error, in strerror(3)'s words.
    pub fn system(code: Code, error: &io::Error) -> Self {
        Self { code, detail: Some(without_number(&error.to_string())), errno: error.raw_os_error().unwrap_or(0) }
    }
}

/// An error's text as strerror(3) has it, without the number that std adds.
pub fn without_number(text: &str) -> String {
    text.find(" (os error ").map_or(text, |at| &text[..at]).to_owned()
}

impl From<Code> for TestError {
    fn from(code: Code) -> Self {
        Self { code, detail: None, errno: 0 }
    }
}

impl fmt::Display for TestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            None => write!(f, "{}", self.code),
            Some(detail) => write!(f, "{}: {detail}", self.code),
        }
    }
}

impl std::error::Error for TestError {}

/// Gives a system's error its number.
pub trait WithCode<T> {
    fn or_code(self, code: Code) -> Result<T, TestError>;
}

impl<T, E: Into<io::Error>> WithCode<T> for Result<T, E> {
    fn or_code(self, code: Code) -> Result<T, TestError> {
        self.map_err(|error| TestError::system(code, &error.into()))
    }
}
