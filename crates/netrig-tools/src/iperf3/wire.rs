//! What goes over the control connection: the cookie, states of one byte, and JSON behind its length. Format: iperf3's
//! `iperf_api.h`, versions 3.12 to 3.21.

use super::error::{Code, TestError};
use super::json::{Json, object};
use super::options::checked_length;
use super::settings::{Flow, LONGEST_DATAGRAM, MOST_STREAMS, MOST_WINDOW, Protocol, TestSettings, UDP_LENGTH};

/// 36 characters and a NUL, at the beginning of the control connection and of each TCP stream.
pub const COOKIE: usize = 37;
pub type Cookie = [u8; COOKIE];

/// The most that a client's parameters may have.
pub const MOST_PARAMETERS: usize = 8 << 10;
/// The most that a client's results may have: 256 streams of some 300 bytes, and room.
pub const MOST_CLIENT_RESULTS: usize = 1 << 20;
/// The most that a server's results may have, which what it printed is part of.
pub const MOST_SERVER_RESULTS: usize = 64 << 20;

/// The bytes that tell the peer how far the test is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    TestStart = 1,
    TestRunning = 2,
    TestEnd = 4,
    ParameterExchange = 9,
    CreateStreams = 10,
    ServerTerminate = 11,
    ClientTerminate = 12,
    ExchangeResults = 13,
    DisplayResults = 14,
    Done = 16,
    AccessDenied = -1,
    ServerError = -2,
}

impl State {
    const ALL: [Self; 12] = [
        Self::TestStart,
        Self::TestRunning,
        Self::TestEnd,
        Self::ParameterExchange,
        Self::CreateStreams,
        Self::ServerTerminate,
        Self::ClientTerminate,
        Self::ExchangeResults,
        Self::DisplayResults,
        Self::Done,
        Self::AccessDenied,
        Self::ServerError,
    ];

    pub fn byte(self) -> u8 {
        self as i8 as u8
    }

    pub fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.byte() == byte)
    }
}

/// JSON as it is sent: four bytes of length, big-endian, and the text.
pub fn framed(json: &Json) -> Vec<u8> {
    let text = json.compact();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

/// An error as a server sends it.
pub fn error_message(trouble: &TestError) -> Vec<u8> {
    let [code, errno] = [trouble.code.0, trouble.errno].map(i32::to_be_bytes);
    [&[State::ServerError.byte()][..], &code, &errno].concat()
}

/// A cookie of the letters that the original draws from.
///
/// # Errors
/// When the kernel has no random bytes.
pub fn cookie() -> Result<Cookie, getrandom::Error> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut cookie = [0; COOKIE];
    let drawn = &mut cookie[..COOKIE - 1];
    getrandom::fill(drawn)?;
    drawn.iter_mut().for_each(|letter| *letter = LETTERS[usize::from(*letter & 31)]);
    Ok(cookie)
}

/// A cookie as text.
pub fn cookie_text(cookie: &Cookie) -> String {
    String::from_utf8_lossy(cookie).trim_end_matches('\0').to_owned()
}

/// The version that a client says it is.
pub const VERSION: &str = "3.21";

/// A client's parameters.
pub fn parameters(test: &TestSettings) -> Json {
    let mut json = object([]);
    let protocol = match test.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    json.add(protocol, true);
    json.add("omit", test.omit);
    if let Some(cpu) = test.server_affinity {
        json.add("server_affinity", cpu);
    }
    json.add("time", test.time);
    json.add("num", test.bytes);
    json.add("blockcount", test.blocks);
    let mut positive = |name: &str, value: u64| {
        if value != 0 {
            json.add(name, value);
        }
    };
    positive("MSS", test.mss.into());
    if test.no_delay {
        json.add("nodelay", true);
    }
    json.add("parallel", test.parallel);
    match test.flow {
        Flow::Forward => {}
        Flow::Reverse => json.add("reverse", true),
        Flow::Both => json.add("bidirectional", true),
    }
    if test.mptcp {
        json.add("mptcp", true);
    }
    let mut positive = |name: &str, value: u64| {
        if value != 0 {
            json.add(name, value);
        }
    };
    positive("window", test.window.into());
    positive("len", test.length.into());
    positive("bandwidth", test.rate);
    positive("fqrate", test.fq_rate);
    positive("pacing_timer", test.pacing_timer);
    positive("burst", test.burst.into());
    if test.protocol == Protocol::Udp {
        let (on, length) = (u32::from(test.gsro), if test.gsro { test.length } else { 0 });
        json.add("gso", on);
        json.add("gso_dg_size", length);
        // The kernel cuts a message into at most 128.
        let together = (LONGEST_DATAGRAM / length.max(1)).min(if test.gsro { 128 } else { u32::MAX });
        json.add("gso_bf_size", together * length.max(1));
        json.add("gro", on);
        json.add("gro_bf_size", LONGEST_DATAGRAM);
    }
    if test.tos != 0 {
        json.add("TOS", test.tos);
    }
    if test.flow_label != 0 {
        json.add("flowlabel", test.flow_label);
    }
    for (name, text) in [("title", &test.title), ("extra_data", &test.extra_data), ("congestion", &test.congestion)] {
        if let Some(text) = text {
            json.add(name, text.as_str());
        }
    }
    for (name, on) in [
        ("get_server_output", test.get_server_output),
        ("udp_counters_64bit", test.udp_counters_64bit),
        ("repeating_payload", test.repeating_payload),
        ("zerocopy", test.zerocopy),
        ("dont_fragment", test.dont_fragment),
        ("skip_rx_copy", test.skip_rx_copy),
    ] {
        if on {
            json.add(name, 1);
        }
    }
    if let Some(token) = &test.auth_token {
        json.add("authtoken", token.as_str());
    }
    json.add("client_version", VERSION);
    json
}

/// What a client's parameters ask for. A member of another type than its own is passed over, as the original does.
///
/// # Errors
/// A value out of its range, by its code.
pub fn read_parameters(json: &Json) -> Result<TestSettings, TestError> {
    if !matches!(json, Json::Object(_)) {
        return Err(Code::RECEIVE_PARAMETERS.into());
    }
    let within = |name: &str, least: i64, most: i64, code: Code, or: i64| match json.integer(name) {
        None => Ok(or),
        Some(value) if (least..=most).contains(&value) => Ok(value),
        Some(_) => Err(TestError::from(code)),
    };
    let bad = Code::RECEIVE_PARAMETERS;
    let text = |name: &str| json.text(name).map(str::to_owned);
    let on = |name: &str| json.integer(name).is_some_and(|value| value != 0);
    let protocol = match (json.is_true("sctp"), json.is_true("udp")) {
        (true, _) => Protocol::Sctp,
        (false, true) => Protocol::Udp,
        (false, false) => Protocol::Tcp,
    };
    let flow = match (json.is_true("bidirectional"), json.is_true("reverse")) {
        (true, _) => Flow::Both,
        (false, true) => Flow::Reverse,
        (false, false) => Flow::Forward,
    };
    let length = within("len", 0, u32::MAX.into(), Code::BLOCK_SIZE, 0)? as u32;
    let affinity = within("server_affinity", 0, 1023, Code::AFFINITY, -1)?;
    Ok(TestSettings {
        protocol,
        flow,
        omit: within("omit", 0, 600, Code::OMIT, 0)? as u32,
        time: within("time", 0, 86_400, Code::DURATION, 10)? as u32,
        bytes: within("num", 0, i64::MAX, bad, 0)? as u64,
        blocks: within("blockcount", 0, i64::MAX, bad, 0)? as u64,
        length: match (protocol, length) {
            // A client that does not say it has one of its own, and blocks of nothing have no end.
            (Protocol::Udp, 0) => UDP_LENGTH,
            _ => checked_length(protocol, length)?,
        },
        parallel: within("parallel", 1, MOST_STREAMS.into(), Code::STREAMS, 1)? as u32,
        window: within("window", 0, MOST_WINDOW.into(), Code::BUFFER_SIZE, 0)? as u32,
        mss: within("MSS", 0, 32_767, Code::MSS, 0)? as u32,
        no_delay: json.is_true("nodelay"),
        mptcp: json.is_true("mptcp"),
        // The client's side of an association asks for them.
        sctp_streams: 0,
        rate: within("bandwidth", 0, i64::MAX, bad, 0)? as u64,
        burst: within("burst", 1, 1000, Code::BURST, 0)? as u32,
        fq_rate: within("fqrate", 0, i64::MAX, bad, 0)? as u64,
        pacing_timer: within("pacing_timer", 0, i64::MAX, bad, 1000)? as u64,
        tos: within("TOS", 0, 255, Code::TOS, 0)? as u32,
        flow_label: within("flowlabel", 1, 0xf_ffff, Code::SET_FLOW_LABEL, 0)? as u32,
        congestion: text("congestion"),
        zerocopy: on("zerocopy"),
        skip_rx_copy: on("skip_rx_copy"),
        repeating_payload: on("repeating_payload"),
        udp_counters_64bit: on("udp_counters_64bit"),
        gsro: on("gso") || on("gro"),
        dont_fragment: on("dont_fragment"),
        get_server_output: on("get_server_output"),
        server_affinity: u32::try_from(affinity).ok(),
        auth_token: text("authtoken"),
        title: text("title"),
        extra_data: text("extra_data"),
    })
}

/// What one end says of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamResult {
    pub id: i64,
    /// Sent without what was omitted, or received.
    pub bytes: u64,
    /// `None` where it has none.
    pub retransmits: Option<u64>,
    pub jitter_s: f64,
    pub errors: i64,
    pub packets: i64,
    /// Errors and packets before the test counted; `None` of versions before 3.14.
    pub omitted: Option<(i64, i64)>,
    /// Seconds; `None` where the peer does not tell.
    pub seconds: Option<f64>,
}

/// What one end says of a test.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    /// Total, user and system CPU time, percent of one CPU.
    pub cpu: [f64; 3],
    /// 1 and 0 of a sender; -1 of one that only receives.
    pub sender_has_retransmits: i64,
    pub congestion: Option<String>,
    pub streams: Vec<StreamResult>,
    /// What the server printed.
    pub server_output: Option<ServerOutput>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ServerOutput {
    Text(String),
    Json(Json),
}

const CPU: [&str; 3] = ["cpu_util_total", "cpu_util_user", "cpu_util_system"];

pub fn results(results: &Results) -> Json {
    let mut json = object([]);
    for (name, percent) in CPU.iter().zip(results.cpu) {
        json.add(name, percent);
    }
    json.add("sender_has_retransmits", results.sender_has_retransmits);
    if let Some(name) = &results.congestion {
        json.add("congestion_used", name.as_str());
    }
    match &results.server_output {
        None => {}
        Some(ServerOutput::Text(text)) => json.add("server_output_text", text.as_str()),
        Some(ServerOutput::Json(output)) => json.add("server_output_json", output.clone()),
    }
    let streams = results.streams.iter().map(|stream| {
        let (omitted_errors, omitted_packets) = stream.omitted.unwrap_or_default();
        object([
            ("id", stream.id.into()),
            ("bytes", stream.bytes.into()),
            ("retransmits", stream.retransmits.map_or(Json::Integer(-1), Json::from)),
            ("jitter", stream.jitter_s.into()),
            ("errors", stream.errors.into()),
            ("omitted_errors", omitted_errors.into()),
            ("packets", stream.packets.into()),
            ("omitted_packets", omitted_packets.into()),
            ("start_time", 0.into()),
            ("end_time", stream.seconds.unwrap_or_default().into()),
        ])
    });
    let streams: Vec<Json> = streams.collect();
    json.add("streams", streams);
    json
}

/// What the peer says of a test.
///
/// # Errors
/// A member that has to be there and is not.
pub fn read_results(json: &Json) -> Result<Results, TestError> {
    let missing = || TestError::from(Code::RECEIVE_RESULTS);
    let mut cpu = [0.0; 3];
    for (name, percent) in CPU.iter().zip(&mut cpu) {
        *percent = json.number(name).ok_or_else(missing)?;
    }
    let Some(Json::Array(list)) = json.get("streams") else { return Err(missing()) };
    let stream = |entry: &Json| {
        let whole = |name: &str| entry.integer(name).ok_or_else(missing);
        let omitted = match (entry.integer("omitted_errors"), entry.integer("omitted_packets")) {
            (Some(errors), Some(packets)) => Some((errors, packets)),
            (None, None) => None,
            _ => return Err(missing()),
        };
        let times = entry.number("start_time").zip(entry.number("end_time"));
        Ok(StreamResult {
            id: whole("id")?,
            bytes: whole("bytes")?.max(0) as u64,
            retransmits: u64::try_from(whole("retransmits")?).ok(),
            jitter_s: entry.number("jitter").ok_or_else(missing)?,
            errors: whole("errors")?,
            packets: whole("packets")?,
            omitted,
            seconds: times.map(|(start, end)| end - start),
        })
    };
    let server_output = match (json.get("server_output_json"), json.text("server_output_text")) {
        (Some(output), _) => Some(ServerOutput::Json(output.clone())),
        (None, Some(text)) => Some(ServerOutput::Text(text.to_owned())),
        (None, None) => None,
    };
    Ok(Results {
        cpu,
        sender_has_retransmits: json.integer("sender_has_retransmits").ok_or_else(missing)?,
        congestion: json.text("congestion_used").map(str::to_owned),
        streams: list.iter().map(stream).collect::<Result<_, _>>()?,
        server_output,
    })
}

/// The words that open a stream over UDP and answer it, as they are on the wire.
pub mod words {
    /// Since 3.17, from machines of either byte order.
    pub const CONNECT: [u8; 4] = *b"9876";
    pub const REPLY: [u8; 4] = *b"6789";

    /// Of older versions, in the byte order of the machine that sent it.
    const OLD_CONNECT: u32 = 123_456_789;
    const OLD_REPLY: u32 = 987_654_321;

    fn is(word: &[u8], new: [u8; 4], old: u32) -> bool {
        word == new || word == old.to_le_bytes() || word == old.to_be_bytes()
    }

    pub fn is_connect(word: &[u8]) -> bool {
        is(word, CONNECT, OLD_CONNECT)
    }

    pub fn is_reply(word: &[u8]) -> bool {
        is(word, REPLY, OLD_REPLY)
    }

    /// What answers `word`, in its own dialect.
    pub fn reply_to(word: &[u8]) -> [u8; 4] {
        if word == OLD_CONNECT.to_le_bytes() {
            OLD_REPLY.to_le_bytes()
        } else if word == OLD_CONNECT.to_be_bytes() {
            OLD_REPLY.to_be_bytes()
        } else {
            REPLY
        }
    }
}
