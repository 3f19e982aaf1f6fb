use proptest::prelude::*;

use super::automaton::LONGEST_BODY;
use super::*;

/// Reads a message that comes in `pieces`; what was read of it, how many bytes that took, and how it ended.
fn read(reader: &mut Reader, pieces: &[&[u8]]) -> (Reading, usize, Progress) {
    let (mut reading, mut left) = (Reading::default(), 0);
    let mut taken = 0;
    for piece in pieces {
        match reader.read(&mut reading, &mut left, taken as u32, piece) {
            Progress::More => taken += piece.len(),
            Progress::Done(end) => return (reading, taken + end, Progress::Done(end)),
            Progress::Bad => return (reading, taken, Progress::Bad),
        }
    }
    (reading, taken, Progress::More)
}

/// The message is read alike however it is cut: how many bytes of it count, and what it says. `None` when it is bad.
fn any_way(kind: Kind, message: &[u8]) -> Option<(Reading, usize)> {
    let of = |pieces: &[&[u8]]| {
        let mut reader = Reader::new(kind);
        let first = read(&mut reader, pieces);
        // A second time with the header known.
        let again = read(&mut reader, pieces);
        assert_eq!((first.0, first.1, first.2 == Progress::Bad), (again.0, again.1, again.2 == Progress::Bad));
        (first.2 != Progress::Bad).then_some((first.0, first.1))
    };
    let whole = of(&[message]);
    for cut in 0..message.len() {
        let (a, b) = message.split_at(cut);
        assert_eq!(of(&[a, b]), whole, "cut at {cut}: {}", message.escape_ascii());
    }
    let bytes: Vec<&[u8]> = message.chunks(1).collect();
    assert_eq!(of(&bytes), whole, "byte by byte: {}", message.escape_ascii());
    whole
}

#[derive(Debug, PartialEq)]
enum End {
    /// So many bytes before the end of what was given.
    Before(usize),
    Close,
    Open,
}

fn end(kind: Kind, message: &[u8]) -> Option<(End, Reading)> {
    let (reading, taken) = any_way(kind, message)?;
    let end = if reading.is_done() {
        End::Before(message.len() - taken)
    } else if reading.ends_by_close() {
        End::Close
    } else {
        End::Open
    };
    Some((end, reading))
}

#[test]
fn responses_end_where_they_should() {
    // What came, where it ends, whether it says 2XX, and whether the connection goes on.
    let cases: &[(&str, End, bool, bool)] = &[
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", End::Before(0), true, true),
        ("HTTP/1.1 200\r\ncontent-length:5\r\n\r\nhello and more", End::Before(9), true, true),
        ("HTTP/1.1 200 \nCONTENT-LENGTH: \t 5 \t\n\nhello", End::Before(0), true, true),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", End::Before(0), false, true),
        ("HTTP/1.1 204 No Content\r\nServer: x\r\n\r\nHTTP", End::Before(4), true, true),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n", End::Before(0), false, true),
        ("HTTP/1.1 404 X\r\n\r\nabc", End::Close, false, false),
        ("HTTP/1.1 200 OK\r\n\r\n", End::Close, true, false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc", End::Close, true, false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", End::Open, true, true),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", End::Before(0), true, false),
        ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx", End::Before(0), true, true),
        ("HTTP/1.1 200 OK\r\nConnection: foo, close , bar\r\nContent-Length: 1\r\n\r\nx", End::Before(0), true, false),
        ("HTTP/1.1 200 OK\r\nConnection: closer, clos\r\nContent-Length: 1\r\n\r\nx", End::Before(0), true, true),
        ("HTTP/1.1 200 OK\r\nConnections: close\r\nContent-Length: 1\r\n\r\nx", End::Before(0), true, true),
        (
            "HTTP/1.1 200 OK\r\nX: Connection: close\r\nContent-Lengths: 9\r\nContent-Length: 1\r\n\r\nx",
            End::Before(0),
            true,
            true,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Y\r\nLink: x\r\n\r\nHTTP/1.1 201 OK\r\nContent-Length: 1\r\n\r\nx",
            End::Before(0),
            true,
            true,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", End::Before(0), true, true),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding:gzip,\tChunked \r\n\r\nA;x=\"y\"\r\n0123456789\r\n00\r\nTrailer: t\r\n\r\nX",
            End::Before(1),
            true,
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0f\n0123456789abcde\n0\n\n",
            End::Before(0),
            true,
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            End::Before(0),
            true,
            true,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", End::Open, true, true),
    ];
    for (message, expected, ok, persists) in cases {
        let (end, reading) = end(Kind::Response, message.as_bytes()).unwrap_or_else(|| panic!("{message}"));
        assert_eq!((&end, reading.is_ok(), reading.persists()), (expected, *ok, *persists), "{message}");
    }
    let head = end(Kind::HeadResponse, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP").unwrap();
    assert_eq!((head.0, head.1.is_ok(), head.1.persists()), (End::Before(4), true, true));
}

#[test]
fn requests_end_where_they_should() {
    // What came, where it ends, and G, H or P for its method, in lower case when the connection does not go on.
    let cases: &[(&str, End, char)] = &[
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", End::Before(0), 'G'),
        ("\r\n\nGET /a?b=c HTTP/1.1\nHost: a\n\nGET", End::Before(3), 'G'),
        ("HEAD / HTTP/1.1\r\n\r\n", End::Before(0), 'H'),
        ("GET / HTTP/1.0\r\n\r\n", End::Before(0), 'g'),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", End::Before(0), 'G'),
        ("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n", End::Before(0), 'g'),
        ("POST /x HTTP/1.1\r\nContent-Length: 4\r\n\r\nbodyP", End::Before(1), 'P'),
        ("POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", End::Before(0), 'P'),
        ("POST /x HTTP/1.1\r\nContent-Length: 400\r\n\r\nbody", End::Open, 'P'),
        ("GET / HT", End::Open, 'g'),
    ];
    for (message, expected, method) in cases {
        let (end, reading) = end(Kind::Request, message.as_bytes()).unwrap_or_else(|| panic!("{message}"));
        let seen = match () {
            () if reading.is_head() => 'H',
            () if reading.is_post() => 'P',
            () if reading.is_get() => 'G',
            () => '?',
        };
        let seen = if reading.persists() { seen } else { seen.to_ascii_lowercase() };
        assert_eq!((&end, seen), (expected, *method), "{message}");
    }
}

#[test]
fn what_is_no_http_is_refused() {
    let responses: &[&str] = &[
        "hello",
        "HTTP/2 200 OK\r\n",
        "HTTP/1.1200 OK\r\n",
        "HTTP/1.1 20 OK\r\n",
        "HTTP/1.1 2000 OK\r\n",
        "HTTP/1.1 000 OK\r\n",
        "HTTP/1.1 200 OK\r\n : x\r\n",
        "HTTP/1.1 200 OK\r\nA : x\r\n",
        "HTTP/1.1 200 OK\r\nA: x\r\n folded\r\n",
        "HTTP/1.1 200 OK\r\nA\r\n",
        "HTTP/1.1 200 OK\r\nA: \0\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1 2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1073741825\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\rx",
        "HTTP/1.1 200 OK\r\n\rx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\0",
    ];
    for message in responses {
        assert_eq!(any_way(Kind::Response, message.as_bytes()), None, "{message}");
    }
    let requests: &[&str] = &[
        "DELETE / HTTP/1.1\r\n",
        "get / HTTP/1.1\r\n",
        "GET  / HTTP/1.1\r\n",
        "GET / \r\n",
        "GET /\r\n",
        "GET /\x01 HTTP/1.1\r\n",
        "GET / http/1.1\r\n",
        "GET / HTTP/1.1 x\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\n",
        "\u{16}\u{3}\u{1}",
    ];
    for message in requests {
        assert_eq!(any_way(Kind::Request, message.as_bytes()), None, "{message}");
    }
}

#[test]
fn a_header_has_its_limits() {
    let with = |bytes: usize| {
        let mut message = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: ".to_vec();
        message.resize(bytes - 4, b'a');
        message.extend_from_slice(b"\r\n\r\n");
        message
    };
    for from in [0, 1, 16_383, 16_384, u32::MAX - 20_000] {
        for size in [1, 100, 1460, 8960] {
            let end = |message: &[u8]| {
                let mut reader = Reader::new(Kind::Response);
                let (mut reading, mut left, mut sequence) = (Reading::default(), 0, from);
                for piece in message.chunks(size) {
                    match reader.read(&mut reading, &mut left, sequence, piece) {
                        Progress::More => sequence = sequence.wrapping_add(piece.len() as u32),
                        other => return other,
                    }
                }
                Progress::More
            };
            assert!(matches!(end(&with(48 << 10)), Progress::Done(_)), "{from} {size}");
            assert_eq!(end(&with(73 << 10)), Progress::Bad, "{from} {size}");
            // A body of any length is no header.
            let mut long = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
            long.resize(200_000, b'x');
            assert_eq!(end(&long), Progress::More);
            let mut chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            let chunk = [b"40\r\n", &[b'x'; 64][..], b"\r\n"].concat();
            chunks.extend(chunk.repeat(2000));
            assert_eq!(end(&chunks), Progress::More);
            // The lines between chunks are limited as a header is.
            chunks.extend(std::iter::repeat_n(b'0', 100_000));
            assert_eq!(end(&chunks), Progress::Bad);
        }
    }
}

#[test]
fn composed_messages_have_the_size_that_is_asked_for() {
    for method in [Method::Get, Method::Head, Method::Post] {
        for size in (0..400).chain([1460, 10_000]) {
            let message = request(method, "netrig.test", "/path", size);
            let needed = if method == Method::Post { 102 } else { REQUEST };
            assert!(message.len() == size.max(REQUEST) || size < needed, "{method:?} {size}: {}", message.len());
            assert!(message.len() <= size.max(needed));
            let (end, reading) = end_whole(Kind::Request, &message);
            assert_eq!((end, reading.persists()), (End::Before(0), true));
            let seen = (reading.is_get(), reading.is_head(), reading.is_post());
            assert_eq!(seen, (method == Method::Get, method == Method::Head, method == Method::Post));
            assert!(whole(Kind::Request, &message).is_some());
        }
    }
    for size in [0, 1, 14, 99, 1000, 1 << 20] {
        for close in [false, true] {
            let message = response(&vec![b'x'; size], close);
            assert_eq!(message.len(), HEADER + size);
            let (end, reading) = end_whole(Kind::Response, &message);
            assert_eq!((end, reading.persists()), (End::Before(0), !close));
            assert_eq!(whole(Kind::Response, &message).unwrap().header, HEADER);
        }
    }
    assert_eq!(request(Method::Get, "a", "/", 0).len(), 85);
    assert_eq!(whole(Kind::Response, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!"), None);
    assert_eq!(whole(Kind::Response, b"aaaa"), None);
}

fn end_whole(kind: Kind, message: &[u8]) -> (End, Reading) {
    let (reading, taken, progress) = read(&mut Reader::new(kind), &[message]);
    assert!(matches!(progress, Progress::Done(_)), "{}", message.escape_ascii());
    (End::Before(message.len() - taken), reading)
}

/// Lines that mean something, and lines that mean nothing.
fn field() -> impl Strategy<Value = String> {
    let space = prop_oneof![Just(""), Just(" "), Just("\t "), Just("  ")];
    let name = prop_oneof![
        Just("Content-Length"),
        Just("content-type"),
        Just("CONNECTION"),
        Just("Transfer-Encoding"),
        Just("T"),
        Just("con"),
        Just("Connection-x"),
        Just("x-content-length"),
        Just("Date"),
        Just("transfer-encodin"),
    ];
    let value = prop_oneof![
        (0u64..5000).prop_map(|n| n.to_string()),
        Just("close".to_owned()),
        Just("keep-alive".to_owned()),
        Just("chunked".to_owned()),
        Just("gzip, chunked".to_owned()),
        Just("keep-alive, Upgrade".to_owned()),
        Just("chunke".to_owned()),
        "[ -~]{0,20}",
    ];
    (name, space.clone(), value, space)
        .prop_map(|(name, before, value, after)| format!("{name}:{before}{value}{after}"))
}

/// What a library that sees the whole header at once makes of it: length of the header, and of the body that is told.
fn library(message: &[u8]) -> Option<(usize, bool, Option<u64>, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(message).ok()? else { return None };
    let all = |name: &'static str| {
        let of = response.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        of.map(|header| std::str::from_utf8(header.value).unwrap_or_default().trim_matches([' ', '\t']))
    };
    // Empty elements of a list do not count (RFC 9110, 5.6.1).
    let mut codings =
        all("transfer-encoding").flat_map(|value| value.split(',')).map(|coding| coding.trim_matches([' ', '\t']));
    let chunked = codings.rfind(|coding| !coding.is_empty()).map(|coding| coding.eq_ignore_ascii_case("chunked"));
    let lengths: Vec<Option<u64>> = all("content-length").map(|value| value.parse().ok()).collect();
    let options = all("connection").flat_map(|value| value.split(','));
    let mut closing = options.map(|option| option.trim_matches([' ', '\t']).to_ascii_lowercase());
    let closing = closing.rfind(|option| option == "close" || option == "keep-alive");
    let persists = closing.is_none_or(|option| option == "keep-alive");
    match (chunked, lengths.as_slice()) {
        (Some(chunked), _) => Some((length, chunked, None, persists && chunked)),
        (None, []) => Some((length, false, None, false)),
        (None, [Some(bytes)]) if *bytes <= LONGEST_BODY.into() => Some((length, false, Some(*bytes), persists)),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn headers_mean_what_a_library_says(fields in prop::collection::vec(field(), 0..6), bare: bool, cut: prop::sample::Index) {
        let feed = if bare { "\n" } else { "\r\n" };
        let mut message = format!("HTTP/1.1 200 OK{feed}");
        fields.iter().for_each(|field| message.extend([field, feed]));
        message += feed;
        let message = message.as_bytes();
        let (mut reading, mut left) = (Reading::default(), 0);
        let at = cut.index(message.len());
        let mut header = |from: usize, to: usize| reading.header(Kind::Response, &mut left, from as u32, &message[from..to]);
        let read = match header(0, at) {
            Ok(None) => header(at, message.len()).map(|end| end.map(|end| at + end)),
            other => other,
        };
        let ours = match read {
            Ok(Some(end)) => {
                let counted = !reading.is_done() && !reading.ends_by_close();
                let mut probe = reading;
                let chunked = counted && probe.body(&mut { left }, 0, b"no size").is_err();
                let length = (reading.is_done() || counted && !chunked).then_some(u64::from(left));
                Some((end, chunked, length, reading.persists()))
            }
            other => {
                prop_assert_ne!(other, Ok(None));
                None
            }
        };
        let theirs = library(message);
        // A length beside chunks does not count, and one that is nonsense beside them does no harm there.
        let both = fields.iter().any(|field| field.starts_with("Transfer")) && fields.iter().any(|field| field.starts_with("Content-L"));
        prop_assert!(ours == theirs || both && (ours.is_none() || ours.map(|ours| (ours.0, ours.1)) == theirs.map(|theirs| (theirs.0, theirs.1))), "{ours:?} {theirs:?}: {}", message.escape_ascii());
    }

    #[test]
    fn any_bytes_are_read_alike_however_they_are_cut(bytes in prop::collection::vec(any::<u8>(), 0..80), response: bool, http: bool) {
        let (kind, start): (_, &[u8]) = match (response, http) {
            (true, true) => (Kind::Response, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n"),
            (true, false) => (Kind::Response, b"HTTP/1.1 200 OK\r\nCon"),
            (false, true) => (Kind::Request, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            (false, false) => (Kind::Request, b""),
        };
        any_way(kind, &[start, &bytes].concat());
    }
}
