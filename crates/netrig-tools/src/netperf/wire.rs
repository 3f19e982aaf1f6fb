//! Messages of netperf's control connection: 656 bytes each way, whole, from version 2.6 on.
//!
//! A message is 164 words of 32 bits: its type, a number (of a request the CPU to run on, of a response an errno), and 162 words for the
//! test. Numbers are big-endian on the wire; the texts behind a test's numbers are bytes as they are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a message.
pub const MESSAGE: usize = 656;
/// Where what belongs to the test begins.
const TEST: usize = 8;
/// Without the NUL at its end.
pub const LONGEST_FILL_FILE: usize = 31;
pub const LONGEST_CONGESTION: usize = 15;

/// What a message is.
pub mod message {
    pub const DEBUG_ON: u32 = 1;
    pub const DEBUG_OFF: u32 = 2;
    pub const DEBUG_OK: u32 = 3;
    pub const CPU_CALIBRATE: u32 = 5;
    pub const PASSPHRASE: u32 = 6;
    pub const DO_OMNI: u32 = 97;
    pub const OMNI_RESPONSE: u32 = 98;
    pub const OMNI_RESULTS: u32 = 99;
    pub const DO_SYSINFO: u32 = 600;
    pub const SYSINFO_RESPONSE: u32 = 601;
}

/// What a server answers to a request that it does not know, in the place of an errno.
pub const UNKNOWN_REQUEST: i32 = 998;

/// Bits of [`OmniRequest::flags`].
pub mod flag {
    pub const NO_DELAY: u32 = 1;
    pub const CONNECT_TEST: u32 = 4;
    pub const MEASURE_CPU: u32 = 8;
    pub const ROUTING_ALLOWED: u32 = 0x20;
    pub const FASTOPEN: u32 = 0x800;
    pub const USE_CONNECTED: u32 = 0x4000;
    pub const DEFER_ACCEPT: u32 = 0x8000;
    pub const MTU_DISCOVER: u32 = 0x1_0000;
    pub const KEEPALIVE: u32 = 0x8000_0000;
}

/// One message.
#[derive(Clone, PartialEq, Eq)]
pub struct Message(Box<[u8; MESSAGE]>);

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message({}, {})", self.kind(), self.number())
    }
}

impl Message {
    pub fn new(kind: u32, number: i32) -> Self {
        let mut message = Self(Box::new([0; MESSAGE]));
        message.set(0, kind);
        message.set(4, number as u32);
        message
    }

    pub fn from_bytes(bytes: [u8; MESSAGE]) -> Self {
        Self(Box::new(bytes))
    }

    pub fn as_bytes(&self) -> &[u8; MESSAGE] {
        &self.0
    }

    /// Its type, as [`message`] has them.
    pub fn kind(&self) -> u32 {
        self.get(0)
    }

    /// Of a request the CPU to run on, -1 for none; of a response an errno, 0 for none.
    pub fn number(&self) -> i32 {
        self.get(4) as i32
    }

    /// A passphrase, or other text in the test's place: up to its NUL.
    pub fn text(&self) -> String {
        self.string(TEST, MESSAGE - TEST)
    }

    #[must_use]
    pub fn with_text(mut self, text: &str) -> Self {
        self.set_string(TEST, MESSAGE - TEST, text);
        self
    }

    fn get(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    fn set(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// A word of the test.
    fn word(&self, index: usize) -> u32 {
        self.get(TEST + 4 * index)
    }

    fn set_word(&mut self, index: usize, value: u32) {
        self.set(TEST + 4 * index, value);
    }

    fn float(&self, index: usize) -> f32 {
        f32::from_bits(self.word(index))
    }

    fn set_float(&mut self, index: usize, value: f32) {
        self.set_word(index, value.to_bits());
    }

    /// Up to a NUL, or all of the room where there is none.
    fn string(&self, at: usize, room: usize) -> String {
        let bytes = &self.0[at..at + room];
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(room);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// With a NUL at its end: what has no room is cut off.
    fn set_string(&mut self, at: usize, room: usize, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(room - 1)];
        self.0[at..at + room].fill(0);
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// DO_OMNI: what the server's end of a test shall be. Sizes are -1 where the server chooses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OmniRequest {
    /// The CPU to run on, -1 for any.
    pub cpu: i32,
    pub send_buffer: i32,
    pub send_size: i32,
    pub send_alignment: u32,
    pub send_offset: u32,
    pub send_width: u32,
    /// Above 0 with transactions, else -1.
    pub request_size: i32,
    pub receive_buffer: i32,
    pub receive_size: i32,
    pub receive_alignment: u32,
    pub receive_offset: u32,
    pub receive_width: u32,
    pub response_size: i32,
    pub flags: u32,
    pub cpu_rate: f32,
    /// Seconds; negative bytes or transactions; 0 until the client ends it.
    pub length: i32,
    pub dirty: [i32; 3],
    pub data_port: u32,
    pub family: u32,
    pub socket_type: u32,
    pub protocol: u32,
    /// As the server sees it.
    pub direction: u32,
    pub client_port: u32,
    pub burst_sends: u32,
    pub burst_us: u32,
    pub client_address: Option<IpAddr>,
    pub server_address: Option<IpAddr>,
    /// -1 where nothing is asked for.
    pub priority: i32,
    pub type_of_service: i32,
    pub congestion_control: String,
    /// A path on the server.
    pub fill_file: String,
}

/// Family IPv6 in the protocol.
const INET6: u32 = 6;

impl OmniRequest {
    pub fn encode(&self) -> Message {
        let mut message = Message::new(message::DO_OMNI, self.cpu);
        let words = [
            self.send_buffer as u32,
            self.send_size as u32,
            self.send_alignment,
            self.send_offset,
            self.send_width,
            self.request_size as u32,
            self.receive_buffer as u32,
            self.receive_size as u32,
            self.receive_alignment,
            self.receive_offset,
            self.receive_width,
            self.response_size as u32,
            self.flags,
            self.cpu_rate.to_bits(),
            self.length as u32,
            0,
            0,
            self.dirty[0] as u32,
            self.dirty[1] as u32,
            self.dirty[2] as u32,
            self.data_port,
            self.family,
            self.socket_type,
            self.protocol,
            self.direction,
            self.client_port,
            self.burst_sends,
            self.burst_us,
        ];
        words.into_iter().enumerate().for_each(|(index, word)| message.set_word(index, word));
        set_address(&mut message, 28, self.client_address);
        set_address(&mut message, 32, self.server_address);
        message.set_word(36, self.priority as u32);
        message.set_word(37, self.type_of_service as u32);
        message.set_string(160, LONGEST_CONGESTION + 1, &self.congestion_control);
        message.set_string(176, LONGEST_FILL_FILE + 1, &self.fill_file);
        message
    }

    pub fn decode(message: &Message) -> Self {
        let family = message.word(21);
        Self {
            cpu: message.number(),
            send_buffer: message.word(0) as i32,
            send_size: message.word(1) as i32,
            send_alignment: message.word(2),
            send_offset: message.word(3),
            send_width: message.word(4),
            request_size: message.word(5) as i32,
            receive_buffer: message.word(6) as i32,
            receive_size: message.word(7) as i32,
            receive_alignment: message.word(8),
            receive_offset: message.word(9),
            receive_width: message.word(10),
            response_size: message.word(11) as i32,
            flags: message.word(12),
            cpu_rate: message.float(13),
            length: message.word(14) as i32,
            dirty: [17, 18, 19].map(|index| message.word(index) as i32),
            data_port: message.word(20),
            family,
            socket_type: message.word(22),
            protocol: message.word(23),
            direction: message.word(24),
            client_port: message.word(25),
            burst_sends: message.word(26),
            burst_us: message.word(27),
            client_address: address(message, 28, family),
            server_address: address(message, 32, family),
            priority: message.word(36) as i32,
            type_of_service: message.word(37) as i32,
            congestion_control: message.string(160, LONGEST_CONGESTION + 1),
            fill_file: message.string(176, LONGEST_FILL_FILE + 1),
        }
    }
}

/// An IPv4 address is one word. Each word of an IPv6 address has its bytes turned around, as little-endian machines send them.
fn set_address(message: &mut Message, index: usize, address: Option<IpAddr>) {
    match address {
        Some(IpAddr::V4(address)) => message.set_word(index, u32::from(address)),
        Some(IpAddr::V6(address)) => {
            for (at, word) in address.octets().as_chunks::<4>().0.iter().enumerate() {
                message.set_word(index + at, u32::from_le_bytes(*word));
            }
        }
        None => {}
    }
}

/// All zeros are no address.
fn address(message: &Message, index: usize, family: u32) -> Option<IpAddr> {
    let address: IpAddr = if family == INET6 {
        let mut octets = [0; 16];
        for (at, word) in octets.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *word = message.word(index + at).to_le_bytes();
        }
        Ipv6Addr::from(octets).into()
    } else {
        Ipv4Addr::from(message.word(index)).into()
    };
    (!address.is_unspecified()).then_some(address)
}

/// OMNI_RESPONSE: what the server's end of a test is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OmniResponse {
    /// errno, 0 for none.
    pub errno: i32,
    pub receive_buffer: i32,
    pub receive_size: i32,
    pub receive_width: u32,
    pub send_buffer: i32,
    pub send_size: i32,
    pub send_width: u32,
    pub flags: u32,
    pub cpu_rate: f32,
    pub data_port: u32,
    pub burst_sends: u32,
    pub burst_us: u32,
    pub priority: i32,
    pub type_of_service: i32,
}

impl OmniResponse {
    pub fn encode(&self) -> Message {
        let mut message = Message::new(message::OMNI_RESPONSE, self.errno);
        let words = [
            self.receive_buffer as u32,
            self.receive_size as u32,
            self.receive_width,
            self.send_buffer as u32,
            self.send_size as u32,
            self.send_width,
            self.flags,
            self.cpu_rate.to_bits(),
        ];
        words.into_iter().enumerate().for_each(|(index, word)| message.set_word(index, word));
        for (index, word) in [
            (11, self.data_port),
            (12, self.burst_sends),
            (13, self.burst_us),
            (16, self.priority as u32),
            (17, self.type_of_service as u32),
        ] {
            message.set_word(index, word);
        }
        message
    }

    pub fn decode(message: &Message) -> Self {
        Self {
            errno: message.number(),
            receive_buffer: message.word(0) as i32,
            receive_size: message.word(1) as i32,
            receive_width: message.word(2),
            send_buffer: message.word(3) as i32,
            send_size: message.word(4) as i32,
            send_width: message.word(5),
            flags: message.word(6),
            cpu_rate: message.float(7),
            data_port: message.word(11),
            burst_sends: message.word(12),
            burst_us: message.word(13),
            priority: message.word(16) as i32,
            type_of_service: message.word(17) as i32,
        }
    }
}

/// CPU time of all CPUs together over a test, percent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuShares {
    pub busy: f32,
    pub user: f32,
    pub system: f32,
    pub iowait: f32,
    pub irq: f32,
    pub softirq: f32,
    pub cpus: u32,
    /// The CPU that was busiest, and how busy it was, percent.
    pub peak_cpu: i32,
    pub peak: f32,
}

/// The letters of the ways to find CPU time, in the order of their numbers: unknown, HP-UX's idle counter, pstat, times, a loop, getrusage,
/// Windows, kstat, /proc/stat, sysctl, perfstat, kstat of Solaris 10, macOS.
pub const CPU_METHODS: [char; 13] = ['U', 'I', 'P', 'T', 'L', 'R', 'N', 'K', 'S', 'C', 'E', 'M', 'O'];

/// OMNI_RESULTS: what the server's end saw.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OmniResults {
    /// errno, 0 for none.
    pub errno: i32,
    pub bytes_received: u64,
    /// Of a datagram test, datagrams.
    pub receive_calls: u32,
    pub receive_buffer: i32,
    pub bytes_sent: u64,
    pub send_calls: u32,
    pub send_buffer: i32,
    pub failed_sends: u32,
    pub transactions: u32,
    /// Seconds.
    pub elapsed: f32,
    pub cpu: CpuShares,
    pub service_demand: f32,
    /// How CPU time was found, one of [`CPU_METHODS`]: `S` on Linux, `U` where it was not.
    pub cpu_method: char,
    pub retransmissions: u32,
    pub congestion_control: String,
}

impl OmniResults {
    pub fn encode(&self) -> Message {
        let mut message = Message::new(message::OMNI_RESULTS, self.errno);
        let halves = |value: u64| ((value >> 32) as u32, value as u32);
        let (received, sent) = (halves(self.bytes_received), halves(self.bytes_sent));
        let words = [
            received.0,
            received.1,
            self.receive_calls,
            self.receive_buffer as u32,
            sent.0,
            sent.1,
            self.send_calls,
            self.send_buffer as u32,
            self.failed_sends,
            self.transactions,
        ];
        words.into_iter().enumerate().for_each(|(index, word)| message.set_word(index, word));
        let cpu = &self.cpu;
        let floats =
            [self.elapsed, cpu.busy, cpu.user, cpu.system, cpu.iowait, cpu.irq, cpu.softirq, self.service_demand];
        floats.into_iter().enumerate().for_each(|(index, value)| message.set_float(10 + index, value));
        let method = CPU_METHODS.iter().position(|&method| method == self.cpu_method);
        message.set_word(18, method.unwrap_or(0) as u32);
        message.set_word(19, cpu.cpus);
        message.set_word(20, cpu.peak_cpu as u32);
        message.set_float(21, cpu.peak);
        message.set_word(26, self.retransmissions);
        message.set_string(276, LONGEST_CONGESTION + 1, &self.congestion_control);
        message
    }

    pub fn decode(message: &Message) -> Self {
        let whole = |index: usize| u64::from(message.word(index)) << 32 | u64::from(message.word(index + 1));
        Self {
            errno: message.number(),
            bytes_received: whole(0),
            receive_calls: message.word(2),
            receive_buffer: message.word(3) as i32,
            bytes_sent: whole(4),
            send_calls: message.word(6),
            send_buffer: message.word(7) as i32,
            failed_sends: message.word(8),
            transactions: message.word(9),
            elapsed: message.float(10),
            cpu: CpuShares {
                busy: message.float(11),
                user: message.float(12),
                system: message.float(13),
                iowait: message.float(14),
                irq: message.float(15),
                softirq: message.float(16),
                cpus: message.word(19),
                peak_cpu: message.word(20) as i32,
                peak: message.float(21),
            },
            service_demand: message.float(17),
            cpu_method: CPU_METHODS.get(message.word(18) as usize).copied().unwrap_or('?'),
            retransmissions: message.word(26),
            congestion_control: message.string(276, LONGEST_CONGESTION + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_lies_on_the_wire_as_netperf_has_it() {
        let request = OmniRequest {
            cpu: -1,
            send_buffer: -1,
            request_size: -1,
            flags: flag::MEASURE_CPU | flag::NO_DELAY,
            length: -1000,
            family: 4,
            socket_type: 1,
            protocol: 6,
            direction: 4,
            client_port: 0x1234,
            client_address: Some("10.1.2.3".parse().unwrap()),
            congestion_control: "cubic".into(),
            ..OmniRequest::default()
        };
        let message = request.encode();
        let bytes = message.as_bytes();
        assert_eq!(bytes[..12], [0, 0, 0, 97, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(bytes[56..60], [0, 0, 0, 9], "flags");
        assert_eq!(bytes[64..68], [255, 255, 252, 24], "length");
        assert_eq!(bytes[104..108], [0, 0, 0, 4], "direction");
        assert_eq!(bytes[120..124], [10, 1, 2, 3], "an IPv4 address is as it is written");
        assert_eq!(&bytes[160..166], b"cubic\0");
        assert_eq!(OmniRequest::decode(&message), request);
    }

    #[test]
    fn words_of_an_ipv6_address_are_turned_around() {
        let request =
            OmniRequest { family: 6, server_address: Some("fd01:203::a".parse().unwrap()), ..OmniRequest::default() };
        let message = request.encode();
        assert_eq!(message.as_bytes()[136..140], [0x03, 0x02, 0x01, 0xfd]);
        assert_eq!(OmniRequest::decode(&message).server_address, request.server_address);
        assert_eq!(OmniRequest::decode(&message).client_address, None, "zeros are no address");
    }

    #[test]
    fn a_text_without_its_nul_ends_with_its_room() {
        let message = Message::from_bytes([b'x'; MESSAGE]);
        let request = OmniRequest::decode(&message);
        assert_eq!(request.congestion_control.len(), 16);
        assert_eq!(request.fill_file.len(), 32);
        assert_eq!(message.text().len(), 648);
        assert_eq!(Message::new(6, 0).with_text(&"y".repeat(1000)).text().len(), 647);
    }

    #[test]
    fn what_the_server_says_comes_back() {
        let response = OmniResponse {
            receive_buffer: 131_072,
            data_port: 65_535,
            priority: -1,
            flags: 9,
            ..OmniResponse::default()
        };
        assert_eq!(OmniResponse::decode(&response.encode()), response);
        let results = OmniResults {
            errno: 0,
            bytes_received: 0x1_2345_6789_abcd,
            bytes_sent: u64::MAX,
            elapsed: 10.5,
            cpu: CpuShares { busy: 50.0, cpus: 2, peak_cpu: 1, peak: 99.5, ..CpuShares::default() },
            cpu_method: 'S',
            retransmissions: 7,
            congestion_control: "bbr".into(),
            ..OmniResults::default()
        };
        assert_eq!(OmniResults::decode(&results.encode()), results);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), MESSAGE)) {
            let message = Message::from_bytes(bytes.try_into().unwrap());
            let _ = (OmniRequest::decode(&message), OmniResponse::decode(&message), message.text());
            prop_assert!(OmniResults::decode(&message).cpu_method.is_ascii_graphic());
        }
    }
}
