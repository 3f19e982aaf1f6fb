//! Whether what came back is what was expected. Bytes of a peer that may be anything: memory is bounded whatever it sends.

use std::io;
use std::net::SocketAddr;
use std::time::SystemTime;

use super::super::check::{DnsQuestion, Exchange, HttpRequest, Probe, status_text};
use super::tls::{TlsClient, TlsTrust};
use super::words::Verdict;

/// Bytes of an answer that are looked through at most.
pub(super) const LONGEST_ANSWER: usize = 64 << 10;
/// Status line and header fields of HTTP.
const LONGEST_HEAD: usize = 16 << 10;
const MOST_FIELDS: usize = 100;

/// Looks for bytes in what comes in pieces; keeps no more than it needs to find them across two.
#[derive(Debug)]
struct Search {
    wanted: Vec<u8>,
    tail: Vec<u8>,
    looked: usize,
}

impl Search {
    fn new(wanted: &[u8]) -> Self {
        Self { wanted: wanted.to_vec(), tail: Vec::new(), looked: 0 }
    }

    /// Whether they are there by now.
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.looked += bytes.len();
        self.tail.extend_from_slice(bytes);
        if has(&self.tail, &self.wanted) {
            return true;
        }
        let keep = self.tail.len().min(self.wanted.len().saturating_sub(1));
        self.tail.drain(..self.tail.len() - keep);
        false
    }

    fn is_exhausted(&self) -> bool {
        self.looked >= LONGEST_ANSWER
    }
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// A text of a peer or of a file, for a message.
pub(super) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().take(40).collect()
}

/// What is said over a connection, and what is expected.
#[derive(Debug)]
pub enum StreamJudge {
    /// That there is one.
    Connection,
    Text(SearchFor),
    Http(HttpAnswer),
    Https(Box<TlsClient>),
}

#[derive(Debug)]
pub struct SearchFor(Search);

#[derive(Debug)]
pub struct HttpAnswer {
    request: HttpRequest,
    head: Vec<u8>,
    /// Once the head was good.
    body: Option<(Search, Option<usize>)>,
}

impl StreamJudge {
    /// With what is sent first; `None` where a probe is none over a connection. `to` is who is asked. Errors are this machine's.
    pub fn of(probe: &Probe, to: SocketAddr, trust: &mut TlsTrust) -> io::Result<Option<(Vec<u8>, Self)>> {
        Ok(Some(match probe {
            Probe::Tcp(Exchange { expect, .. }) if expect.is_empty() => (Vec::new(), Self::Connection),
            Probe::Tcp(Exchange { send, expect }) => (send.clone(), Self::Text(SearchFor(Search::new(expect)))),
            Probe::Http(request) => (request_text(request, to), Self::Http(HttpAnswer::new(request))),
            Probe::Https(request, rules) => {
                let name = rules.server_name.as_ref().or(request.host.as_ref());
                let name = (name.map(String::as_str), to.ip());
                let mut client = Box::new(trust.client(rules, name, HttpAnswer::new(request))?);
                let hello = client.say(&request_text(request, to))?;
                (hello, Self::Https(client))
            }
            _ => return Ok(None),
        }))
    }

    /// What has to be said after what has been taken.
    pub fn outgoing(&mut self) -> Vec<u8> {
        match self {
            Self::Https(client) => client.outgoing(),
            Self::Connection | Self::Text(_) | Self::Http(_) => Vec::new(),
        }
    }

    /// Whether there may be more to say than what was sent first.
    pub fn says_more(&self) -> bool {
        matches!(self, Self::Https(_))
    }

    /// When the first of the certificates ends that were shown.
    pub fn certificate_end(&self) -> Option<SystemTime> {
        match self {
            Self::Https(client) => client.certificate_end(),
            Self::Connection | Self::Text(_) | Self::Http(_) => None,
        }
    }

    pub fn wants_answer(&self) -> bool {
        !matches!(self, Self::Connection)
    }

    /// Takes what has come; a verdict as soon as there is one.
    pub fn take(&mut self, bytes: &[u8]) -> Option<Verdict> {
        match self {
            Self::Connection => Some(Ok(())),
            Self::Text(SearchFor(search)) => {
                if search.take(bytes) {
                    return Some(Ok(()));
                }
                search.is_exhausted().then(|| Err(lacks("the answer", &search.wanted)))
            }
            Self::Http(answer) => answer.take(bytes),
            Self::Https(client) => client.take(bytes),
        }
    }

    /// The peer has sent all.
    pub fn end(&self) -> Verdict {
        match self {
            Self::Connection => Ok(()),
            Self::Text(SearchFor(search)) if search.looked == 0 => Err("closed without an answer".to_owned()),
            Self::Text(SearchFor(search)) => Err(lacks("the answer", &search.wanted)),
            Self::Http(answer) => answer.end(),
            Self::Https(client) => client.end(),
        }
    }

    /// What had come when time was over.
    pub fn late(&self) -> &'static str {
        match self {
            Self::Http(answer) => answer.late(),
            Self::Https(client) => client.late(),
            Self::Text(SearchFor(search)) if search.looked == 0 => NOTHING_YET,
            Self::Text(_) | Self::Connection => GOES_ON,
        }
    }
}

const NOTHING_YET: &str = "connected, and no answer";
const GOES_ON: &str = "an answer that goes on without what is expected";

/// 1.0: no server sends it in chunks, and each closes.
fn request_text(HttpRequest { path, host, .. }: &HttpRequest, to: SocketAddr) -> Vec<u8> {
    let host = host.clone().unwrap_or_else(|| to.to_string());
    format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: netrig-lb\r\n\r\n").into_bytes()
}

fn lacks(what: &str, wanted: &[u8]) -> String {
    format!("{what} lacks \"{}\"", shown(wanted))
}

impl HttpAnswer {
    fn new(request: &HttpRequest) -> Self {
        Self { request: request.clone(), head: Vec::new(), body: None }
    }

    pub(super) fn end(&self) -> Verdict {
        match &self.body {
            None if self.head.is_empty() => Err("closed without an answer".to_owned()),
            None => Err("closed in the middle of the answer's head".to_owned()),
            Some((search, _)) => Err(lacks("the body", &search.wanted)),
        }
    }

    pub(super) fn late(&self) -> &'static str {
        match &self.body {
            None if self.head.is_empty() => NOTHING_YET,
            None => "half of an answer's head",
            Some(_) => GOES_ON,
        }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<Verdict> {
        if let Some((search, left)) = &mut self.body {
            return body(search, left, bytes);
        }
        let is_first = self.head.is_empty();
        self.head.extend_from_slice(bytes);
        // A head ends with a line: what comes in small pieces is not read again for each.
        if !is_first && !bytes.contains(&b'\n') && self.head.len() < LONGEST_HEAD {
            return None;
        }
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let length = match response.parse(&self.head) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.head.len() >= LONGEST_HEAD => {
                return Some(Err(format!("a head of more than {LONGEST_HEAD} bytes")));
            }
            Ok(httparse::Status::Partial) => return None,
            Err(httparse::Error::TooManyHeaders) => return Some(Err(format!("more than {MOST_FIELDS} header fields"))),
            Err(_) => return Some(Err(format!("\"{}\" is no answer of HTTP", shown(&self.head)))),
        };
        let status = response.code.unwrap_or(0);
        if !self.request.status.iter().any(|(first, last)| (*first..=*last).contains(&status)) {
            return Some(Err(format!("status {status}, expected {}", status_text(&self.request.status))));
        }
        let Some(wanted) = &self.request.body else { return Some(Ok(())) };
        let declared = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
        let mut left = declared.and_then(|field| std::str::from_utf8(field.value).ok()?.trim().parse().ok());
        let mut search = Search::new(wanted.as_bytes());
        let verdict = body(&mut search, &mut left, &self.head[length..]);
        self.head = Vec::new();
        self.body = Some((search, left));
        verdict
    }
}

fn body(search: &mut Search, left: &mut Option<usize>, bytes: &[u8]) -> Option<Verdict> {
    let bytes = &bytes[..left.map_or(bytes.len(), |left| left.min(bytes.len()))];
    if search.take(bytes) {
        return Some(Ok(()));
    }
    *left = left.map(|left| left - bytes.len());
    if *left == Some(0) {
        return Some(Err(lacks("the body", &search.wanted)));
    }
    search.is_exhausted().then(|| Err(lacks(&format!("the body's first {LONGEST_ANSWER} bytes"), &search.wanted)))
}

/// What a datagram asks, and which answer is expected.
#[derive(Debug)]
pub enum DatagramJudge {
    Text(Vec<u8>),
    Dns { id: u16, question: Vec<u8> },
}

/// RFC 1035, 4.1.1: recursion desired; what a balancer of resolvers and one of name servers can both be asked.
const RECURSION_DESIRED: u16 = 0x0100;
const RESPONSE: u16 = 0x8000;
const CLASS_IN: u16 = 1;

impl DatagramJudge {
    /// With the datagram; `None` where a probe is none by datagrams.
    pub fn of(probe: &Probe, random: u64) -> Option<(Vec<u8>, Self)> {
        match probe {
            Probe::Udp(Exchange { send, expect }) => Some((send.clone(), Self::Text(expect.clone()))),
            Probe::Dns(DnsQuestion { name, record }) => {
                let mut question = Vec::new();
                for label in name.split('.').filter(|label| !label.is_empty()) {
                    question.push(label.len() as u8);
                    question.extend_from_slice(label.as_bytes());
                }
                question.push(0);
                question.extend_from_slice(&record.0.to_be_bytes());
                question.extend_from_slice(&CLASS_IN.to_be_bytes());
                let id = random as u16;
                let mut message: Vec<u8> =
                    [id, RECURSION_DESIRED, 1, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
                message.extend_from_slice(&question);
                Some((message, Self::Dns { id, question }))
            }
            _ => None,
        }
    }

    /// `None` for what is no answer to this question.
    pub fn take(&self, bytes: &[u8]) -> Option<Verdict> {
        match self {
            Self::Text(expect) if has(bytes, expect) => Some(Ok(())),
            Self::Text(expect) => Some(Err(lacks("the answer", expect))),
            Self::Dns { id, question } => {
                let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
                let (flags, questions) = (word(2)?, word(4)?);
                let asked = bytes.get(12..12 + question.len());
                // Names are compared without case: some servers answer with their own.
                let same = asked.is_some_and(|asked| asked.eq_ignore_ascii_case(question));
                if word(0)? != *id || flags & RESPONSE == 0 {
                    return None;
                }
                Some(match flags & 0xf {
                    0 if questions == 1 && same => Ok(()),
                    0 => Err("an answer to another question".to_owned()),
                    code => Err(format!("DNS answers {}", response_code(code))),
                })
            }
        }
    }
}

/// RFC 1035, 4.1.1.
fn response_code(code: u16) -> String {
    match code {
        1 => "FORMERR".to_owned(),
        2 => "SERVFAIL".to_owned(),
        3 => "NXDOMAIN".to_owned(),
        4 => "NOTIMP".to_owned(),
        5 => "REFUSED".to_owned(),
        code => format!("with the code {code}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::super::super::check::RecordType;
    use super::*;

    fn http(status: &[(u16, u16)], body: Option<&str>) -> StreamJudge {
        let request =
            HttpRequest { path: "/".into(), host: None, status: status.to_vec(), body: body.map(str::to_owned) };
        let to = "10.0.0.1:80".parse().unwrap();
        StreamJudge::of(&Probe::Http(request), to, &mut TlsTrust::new().unwrap()).unwrap().unwrap().1
    }

    const GOOD: &[(u16, u16)] = &[(200, 399)];

    /// In pieces of so many bytes.
    fn judged(mut judge: StreamJudge, answer: &[u8], piece: usize) -> Verdict {
        let verdict = answer.chunks(piece).find_map(|piece| judge.take(piece));
        verdict.unwrap_or_else(|| judge.end())
    }

    #[test]
    fn an_answer_is_judged_by_status_and_body_in_whatever_pieces_it_comes() {
        let answer = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        for piece in [1, 2, 7, 4096] {
            let judge = |body| http(GOOD, body);
            assert_eq!(judged(judge(None), b"HTTP/1.0 204 \r\n\r\n", piece), Ok(()));
            assert_eq!(judged(judge(Some("is up")), answer("it is up").as_bytes(), piece), Ok(()));
            let lacks = judged(judge(Some("is up")), answer("it is down").as_bytes(), piece);
            assert_eq!(lacks, Err("the body lacks \"is up\"".into()));
            let status = judged(judge(None), b"HTTP/1.1 503 Busy\r\n\r\n", piece);
            assert_eq!(status, Err("status 503, expected 200-399".into()));
            assert_eq!(judged(http(&[(503, 503)], None), b"HTTP/1.1 503 Busy\r\n\r\n", piece), Ok(()));
            let half = judged(judge(None), b"HTTP/1.1 200 OK\r\nA: b\r\n", piece);
            assert_eq!(half, Err("closed in the middle of the answer's head".into()));
            assert!(judged(judge(None), b"SSH-2.0-OpenSSH\r\n", piece).unwrap_err().contains("no answer of HTTP"));
            // What comes after the declared length belongs to no answer.
            let behind = judged(judge(Some("up")), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxxup", piece);
            assert_eq!(behind, Err("the body lacks \"up\"".into()));
        }
        assert_eq!(http(GOOD, None).end(), Err("closed without an answer".into()));
    }

    #[test]
    fn an_endless_answer_takes_no_more_memory_than_is_looked_through() {
        let mut judge = http(GOOD, None);
        assert_eq!(judge.take(b"HTTP/1.1 200 OK\r\nA: "), None);
        let ended = (0..100).find_map(|_| judge.take(&[b'a'; 1024]));
        assert_eq!(ended, Some(Err(format!("a head of more than {LONGEST_HEAD} bytes"))));
        let mut judge = http(GOOD, Some("never"));
        assert_eq!(judge.take(b"HTTP/1.1 200 OK\r\n\r\n"), None);
        for _ in 0..LONGEST_ANSWER / 1024 - 1 {
            assert_eq!(judge.take(&[b'n'; 1024]), None);
            let StreamJudge::Http(HttpAnswer { head, body: Some((search, _)), .. }) = &judge else { panic!() };
            assert!(head.capacity() == 0 && search.tail.len() < 5);
        }
        assert!(judge.take(&[b'n'; 1024]).unwrap().unwrap_err().contains("65536 bytes lacks"));
        let fields = "A: b\r\n".repeat(MOST_FIELDS + 1);
        let many = judged(http(GOOD, None), format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes(), 4096);
        assert_eq!(many, Err("more than 100 header fields".into()));
    }

    #[test]
    fn dns_answers_are_those_to_the_question() {
        let probe = Probe::Dns(DnsQuestion { name: "Example.com".into(), record: RecordType(28) });
        let (query, judge) = DatagramJudge::of(&probe, 0x1234_5678).unwrap();
        assert_eq!(query[..12], [0x56, 0x78, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(query[12..], *b"\x07Example\x03com\x00\x00\x1c\x00\x01");
        let answer = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut answer = query.clone();
            answer[2] |= 0x80;
            change(&mut answer);
            judge.take(&answer)
        };
        assert_eq!(answer(&|_| {}), Some(Ok(())));
        assert_eq!(answer(&|a| a[13] = b'e'), Some(Ok(())));
        assert_eq!(answer(&|a| a[0] ^= 1), None);
        assert_eq!(answer(&|a| a[2] &= 0x7f), None);
        assert_eq!(answer(&|a| a[3] |= 2), Some(Err("DNS answers SERVFAIL".into())));
        assert_eq!(answer(&|a| a[14] = b'y'), Some(Err("an answer to another question".into())));
        assert_eq!(answer(&|a| a.truncate(20)), Some(Err("an answer to another question".into())));
        assert_eq!(answer(&|a| a.truncate(3)), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20)) {
            let dns = Probe::Dns(DnsQuestion { name: String::new(), record: RecordType(1) });
            let (_, datagrams) = DatagramJudge::of(&dns, 0).unwrap();
            let mut judge = http(GOOD, Some("x"));
            judge.take(b"HTTP/1.");
            for piece in &pieces {
                let _ = datagrams.take(piece);
                if judge.take(piece).is_some() {
                    break;
                }
            }
        }

        #[test]
        fn a_text_is_found_however_it_is_cut(before in "[ab]{0,40}", wanted in "[ab]{1,5}", after in "[ab]{0,9}", piece in 1_usize..9) {
            let text = format!("{before}{wanted}{after}");
            let mut search = Search::new(wanted.as_bytes());
            prop_assert!(text.as_bytes().chunks(piece).any(|piece| search.take(piece)));
        }
    }
}
