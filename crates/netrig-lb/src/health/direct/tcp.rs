//! A client of TCP (RFC 9293) that is as much of one as a check needs: it connects, says a little, takes what comes in order
//! and ends by a reset. It has no clock and no I/O.

use rig_wire::tcp::{self, flags};

use super::super::probe::{StreamJudge, Verdict};
use super::packet::{Flow, Segment, segment};

/// Data of a segment, which fits into a tunnel over any link of IPv6 (1280 bytes less two headers of IP, one of TCP, and UDP's
/// and GUE's).
const MSS: u16 = 1168;
/// As much as can be on its way to here.
const WINDOW: u16 = u16::MAX;

#[derive(Debug)]
pub struct TcpClient {
    flow: Flow,
    /// Of the first byte that is sent, after the SYN.
    first: u32,
    /// The next byte that is expected; `None` until the connection is there.
    expected: Option<u32>,
    mss: u16,
    /// All that was said since the connection is there.
    said: Vec<u8>,
    /// Bytes of it that have come.
    acknowledged: usize,
    judge: StreamJudge,
    is_over: bool,
}

/// What is to be sent, and how it has ended, if it has.
#[derive(Debug, Default)]
pub struct Step {
    pub packets: Vec<Vec<u8>>,
    pub verdict: Option<Verdict>,
}

impl TcpClient {
    /// `sequence` is one that nobody can guess (RFC 9293, 3.4.1).
    pub fn new(flow: Flow, sequence: u32, request: Vec<u8>, judge: StreamJudge) -> Self {
        let first = sequence.wrapping_add(1);
        Self { flow, first, expected: None, mss: MSS, said: request, acknowledged: 0, judge, is_over: false }
    }

    /// What is sent first, and again while there is no answer.
    pub fn resend(&self) -> Vec<Vec<u8>> {
        match self.expected {
            None => {
                let options = tcp::Options { mss: Some(MSS), ..tcp::Options::default() };
                vec![self.packet(self.first.wrapping_sub(1), flags::SYN, options, &[])]
            }
            Some(_) => self.data(self.acknowledged),
        }
    }

    /// Whether there may be something to send again, now or later.
    pub fn may_resend(&self) -> bool {
        self.expected.is_none() || self.acknowledged < self.said.len() || self.judge.says_more()
    }

    /// What was said from there on.
    fn data(&self, from: usize) -> Vec<Vec<u8>> {
        let piece = |(n, data): (usize, &[u8])| {
            let at = self.first.wrapping_add((from + n * usize::from(self.mss)) as u32);
            self.packet(at, flags::ACK | flags::PSH, tcp::Options::default(), data)
        };
        self.said[from..].chunks(self.mss.into()).enumerate().map(piece).collect()
    }

    fn next(&self) -> u32 {
        match self.expected {
            None => self.first,
            Some(_) => self.first.wrapping_add(self.said.len() as u32),
        }
    }

    fn packet(&self, sequence: u32, flags: u8, options: tcp::Options, data: &[u8]) -> Vec<u8> {
        let header = tcp::Header {
            source_port: self.flow.own.port(),
            destination_port: self.flow.peer.port(),
            sequence,
            acknowledgment: self.expected.unwrap_or(0),
            flags,
            window: WINDOW,
            options,
        };
        segment(&self.flow, header, data)
    }

    /// Lets the peer forget the connection, where it has one that was not ended.
    pub fn reset_if_open(&self) -> Option<Vec<u8>> {
        if self.is_over { None } else { self.reset() }
    }

    fn reset(&self) -> Option<Vec<u8>> {
        self.expected.map(|_| self.packet(self.next(), flags::RST | flags::ACK, tcp::Options::default(), &[]))
    }

    pub fn is_connected(&self) -> bool {
        self.expected.is_some()
    }

    /// Whether a segment with this sequence number was sent: who quotes another has seen none of the connection (RFC 5927, 4.1).
    pub fn has_sent(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.first.wrapping_sub(1)) <= self.next().wrapping_sub(self.first.wrapping_sub(1))
    }

    pub fn judge(&self) -> &StreamJudge {
        &self.judge
    }

    pub fn late(&self) -> &'static str {
        self.judge.late()
    }

    /// Takes a segment of the peer.
    pub fn take(&mut self, segment: &Segment) -> Step {
        let mut step = match self.expected {
            None => self.connect(segment),
            Some(expected) => self.go_on(segment, expected),
        };
        if step.verdict.is_some() {
            self.is_over = true;
            let was_reset = segment.flags & flags::RST != 0;
            step.packets = self.reset().filter(|_| !was_reset).into_iter().collect();
        }
        step
    }

    fn connect(&mut self, segment: &Segment) -> Step {
        // Of an older connection, or of nobody who has seen the SYN.
        if segment.flags & flags::ACK == 0 || segment.acknowledgment != self.first {
            return Step::default();
        }
        if segment.flags & flags::RST != 0 {
            return Step { verdict: Some(Err("connection refused".to_owned())), ..Step::default() };
        }
        if segment.flags & flags::SYN == 0 {
            return Step::default();
        }
        self.expected = Some(segment.sequence.wrapping_add(1));
        self.mss = segment.mss.unwrap_or(536).clamp(64, MSS);
        if !self.judge.wants_answer() {
            return Step { verdict: Some(Ok(())), ..Step::default() };
        }
        let packets = if self.said.is_empty() { vec![self.acknowledge()] } else { self.data(0) };
        Step { packets, verdict: None }
    }

    fn acknowledge(&self) -> Vec<u8> {
        self.packet(self.next(), flags::ACK, tcp::Options::default(), &[])
    }

    fn go_on(&mut self, segment: &Segment, expected: u32) -> Step {
        if segment.flags & flags::RST != 0 {
            // RFC 5961, 3.2: one that is not exactly the next may be anybody's.
            let verdict = (segment.sequence == expected).then(|| Err("connection reset".to_owned()));
            return Step { verdict, ..Step::default() };
        }
        let acknowledged = segment.acknowledgment.wrapping_sub(self.first) as usize;
        if segment.flags & flags::ACK != 0 && (self.acknowledged..=self.said.len()).contains(&acknowledged) {
            self.acknowledged = acknowledged;
        }
        let has_end = segment.flags & flags::FIN != 0;
        if segment.flags & flags::SYN != 0 {
            // Its SYN-ACK again: the acknowledgment was lost.
            return Step { packets: vec![self.acknowledge()], verdict: None };
        }
        if segment.data.is_empty() && !has_end {
            return Step::default();
        }
        // What is known already is left out; what leaves a gap is asked for by saying again what is expected.
        let known = expected.wrapping_sub(segment.sequence) as usize;
        if known > segment.data.len() {
            return Step { packets: vec![self.acknowledge()], verdict: None };
        }
        let new = &segment.data[known..];
        let end = expected.wrapping_add(new.len() as u32);
        self.expected = Some(end.wrapping_add(has_end.into()));
        let mut verdict = if new.is_empty() { None } else { self.judge.take(new) };
        if has_end {
            verdict = verdict.or_else(|| Some(self.judge.end()));
        }
        if verdict.is_some() {
            return Step { packets: Vec::new(), verdict };
        }
        let before = self.said.len();
        self.said.extend(self.judge.outgoing());
        let packets = if self.said.len() == before { vec![self.acknowledge()] } else { self.data(before) };
        Step { packets, verdict: None }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection};

    use super::super::super::check::{Exchange, HttpRequest, Probe, TlsRules};
    use super::super::super::probe::TlsTrust;
    use super::super::packet::{Arrived, read};
    use super::*;

    const ISS: u32 = u32::MAX - 2;

    fn client(probe: &Probe) -> TcpClient {
        let peer: std::net::SocketAddr = "192.0.2.1:80".parse().unwrap();
        let flow = Flow { own: "10.0.0.1:4000".parse().unwrap(), peer, protocol: rig_wire::protocol::TCP };
        let (request, judge) = StreamJudge::of(probe, peer, &mut TlsTrust::new().unwrap()).unwrap().unwrap();
        TcpClient::new(flow, ISS, request, judge)
    }

    fn http() -> TcpClient {
        let status = vec![(200, 299)];
        client(&Probe::Http(HttpRequest { path: "/".into(), host: None, status, body: Some("well".into()) }))
    }

    fn sent(packets: &[Vec<u8>]) -> Vec<Segment> {
        let segment = |packet: &Vec<u8>| match read(packet) {
            Some(Arrived::Segment(_, segment)) => segment,
            other => panic!("{other:?}"),
        };
        packets.iter().map(segment).collect()
    }

    fn from_peer(sequence: u32, acknowledgment: u32, flags: u8, data: &[u8]) -> Segment {
        Segment { sequence, acknowledgment, flags, mss: Some(100), data: data.to_vec() }
    }

    #[test]
    fn a_connection_alone_is_made_and_reset() {
        let mut client = client(&Probe::Tcp(Exchange::default()));
        let syn = sent(&client.resend());
        assert_eq!((syn.len(), syn[0].flags, syn[0].sequence, syn[0].mss), (1, flags::SYN, ISS, Some(1168)));
        // Who has not seen the SYN is not heard.
        for stranger in [from_peer(9, 0, flags::SYN | flags::ACK, &[]), from_peer(9, 0, flags::RST | flags::ACK, &[])] {
            assert!(client.take(&stranger).verdict.is_none());
        }
        let step = client.take(&from_peer(9, ISS.wrapping_add(1), flags::SYN | flags::ACK, &[]));
        assert_eq!(step.verdict, Some(Ok(())));
        let reset = sent(&step.packets);
        assert_eq!((reset[0].flags, reset[0].sequence), (flags::RST | flags::ACK, ISS.wrapping_add(1)));
    }

    #[test]
    fn what_is_said_of_segments_that_were_not_sent_is_not_believed() {
        let mut client = http();
        assert!(client.has_sent(ISS) && !client.has_sent(ISS.wrapping_sub(1)) && !client.has_sent(ISS.wrapping_add(2)));
        client.take(&from_peer(1000, ISS.wrapping_add(1), flags::SYN | flags::ACK, &[]));
        let next = client.next();
        assert!(client.has_sent(ISS) && client.has_sent(next) && !client.has_sent(next.wrapping_add(1)));
    }

    #[test]
    fn a_refusal_is_one() {
        let mut client = client(&Probe::Tcp(Exchange::default()));
        let step = client.take(&from_peer(0, ISS.wrapping_add(1), flags::RST | flags::ACK, &[]));
        assert_eq!((step.verdict, step.packets.len()), (Some(Err("connection refused".into())), 0));
    }

    #[test]
    fn a_request_is_sent_in_pieces_and_an_answer_taken_in_order() {
        let mut client = http();
        let step = client.take(&from_peer(1000, ISS.wrapping_add(1), flags::SYN | flags::ACK, &[]));
        let pieces = sent(&step.packets);
        // The peer takes 100 bytes at a time; numbers wrap.
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.data.clone()).collect();
        assert!(whole.starts_with(b"GET / HTTP/1.0\r\nHost: 192.0.2.1:80\r\n") && whole.ends_with(b"\r\n\r\n"));
        assert!(pieces.iter().all(|piece| piece.data.len() <= 100 && piece.acknowledgment == 1001));
        assert_eq!(pieces[0].sequence, ISS.wrapping_add(1));
        assert_eq!(client.resend().len(), pieces.len());
        let next = client.next();
        assert!(client.take(&from_peer(1001, next, flags::ACK, &[])).packets.is_empty());
        assert!(client.resend().is_empty(), "it was acknowledged");
        // A gap is asked for; what comes twice is taken once.
        let gap = client.take(&from_peer(1011, next, flags::ACK, b"OK\r\n\r\n"));
        assert_eq!(sent(&gap.packets)[0].acknowledgment, 1001);
        let first = client.take(&from_peer(1001, next, flags::ACK, b"HTTP/1.0 2"));
        assert_eq!((sent(&first.packets)[0].acknowledgment, first.verdict), (1011, None));
        let again = client.take(&from_peer(1001, next, flags::ACK, b"HTTP/1.0 200 OK\r\n\r\nall is w"));
        assert_eq!((sent(&again.packets)[0].acknowledgment, again.verdict), (1028, None));
        let stranger = client.take(&from_peer(5000, next, flags::RST, &[]));
        assert!(stranger.verdict.is_none() && stranger.packets.is_empty());
        let last = client.take(&from_peer(1028, next, flags::ACK | flags::FIN, b"ell"));
        assert_eq!(last.verdict, Some(Ok(())));
        assert_eq!(sent(&last.packets)[0].flags, flags::RST | flags::ACK);
    }

    #[test]
    fn what_is_said_later_is_sent_again_alone_until_it_has_come() {
        let made = rcgen::generate_simple_self_signed(["www.example.com".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let request = HttpRequest { path: "/".into(), host: None, status: vec![(200, 299)], body: None };
        let mut client = client(&Probe::Https(request, TlsRules::default()));
        let data = |packets: &[Vec<u8>]| sent(packets).into_iter().flat_map(|piece| piece.data).collect::<Vec<u8>>();
        let hello = client.take(&from_peer(1000, ISS.wrapping_add(1), flags::SYN | flags::ACK, &[]));
        let hello = data(&hello.packets);
        server.read_tls(&mut &hello[..]).unwrap();
        server.process_new_packets().unwrap();
        let mut flight = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut flight).unwrap();
        }
        let after_hello = client.next();
        let (mut at, mut said) = (1001_u32, Vec::new());
        for piece in flight.chunks(300) {
            let step = client.take(&from_peer(at, after_hello, flags::ACK, piece));
            at += piece.len() as u32;
            let segments = sent(&step.packets);
            assert!(step.verdict.is_none() && segments.iter().all(|segment| segment.acknowledgment == at));
            said.extend(data(&step.packets));
        }
        // All of that was lost: it alone is sent again, from where it began, and what has come of it is not.
        let again = client.resend();
        assert_eq!((sent(&again)[0].sequence, data(&again)), (after_hello, said.clone()));
        client.take(&from_peer(at, after_hello.wrapping_add(10), flags::ACK, &[]));
        assert_eq!(data(&client.resend()), said[10..]);
        // An acknowledgment from before, and one of what was never said, change nothing.
        for wrong in [after_hello, client.next().wrapping_add(1)] {
            client.take(&from_peer(at, wrong, flags::ACK, &[]));
            assert_eq!(data(&client.resend()), said[10..]);
        }
        server.read_tls(&mut &said[..]).unwrap();
        server.process_new_packets().unwrap();
        server.writer().write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
        let mut page = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut page).unwrap();
        }
        let end = client.next();
        let last = client.take(&from_peer(at, end, flags::ACK, &page));
        assert_eq!(last.verdict, Some(Ok(())));
        let reset = sent(&last.packets);
        assert_eq!((reset[0].flags, reset[0].sequence), (flags::RST | flags::ACK, end));
    }

    #[test]
    fn an_end_before_the_answer_is_one() {
        let opened = || {
            let mut client = http();
            client.take(&from_peer(0, ISS.wrapping_add(1), flags::SYN | flags::ACK, &[]));
            client
        };
        let step = opened().take(&from_peer(1, 0, flags::FIN | flags::ACK, &[]));
        assert_eq!(step.verdict, Some(Err("closed without an answer".into())));
        let step = opened().take(&from_peer(1, 0, flags::RST, &[]));
        assert_eq!(step.verdict, Some(Err("connection reset".into())));
    }
}
