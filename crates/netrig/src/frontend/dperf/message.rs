//! What requests and responses consist of: HTTP of a given size, or filler.

use rig_load::packet::Payload;

/// Bytes of the smallest request and of a response's header: what dperf's have, so that packets are as long.
pub const SMALLEST: u64 = 85;
/// Bytes of the response that is given when no size is asked for.
const DEFAULT_BODY: &str = "hello, world!\n";
/// Seed of the letters of `payload_random`.
const SEED: u64 = 1;

/// How filler is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filler {
    Plain,
    Random,
}

impl Filler {
    pub fn payload(self, bytes: u64) -> Payload {
        // Sizes end at a gibibyte.
        let bytes = bytes as u32;
        match self {
            Self::Plain => Payload::Filler(bytes),
            Self::Random => Payload::Random { bytes, seed: SEED },
        }
    }

    fn text(self, bytes: usize) -> Vec<u8> {
        self.payload(bytes as u64).bytes().to_vec()
    }
}

/// An HTTP/1.1 request (RFC 9112) of `size` bytes in all where that is possible, else of as few as it takes: a GET is
/// made longer by its path or a field of no meaning, a POST by its body.
pub fn request(host: &str, path: &str, post: bool, size: Option<u64>, filler: Filler) -> Payload {
    let size = size.unwrap_or(SMALLEST) as usize;
    let fields = format!(" HTTP/1.1\r\nUser-Agent: netrig\r\nHost: {host}\r\nAccept: */*\r\n");
    if post {
        // The body's length has four places whatever it is, so that the header is always as long.
        let header = |body: usize| format!("POST {path}{fields}Content-Length:{body:>5}\r\n\r\n").into_bytes();
        let body = size.saturating_sub(header(0).len());
        return [header(body), filler.text(body)].concat().into();
    }
    let bare = format!("GET {path}{fields}\r\n");
    let missing = size.saturating_sub(bare.len());
    let pad = "Pad: \r\n";
    let text = match missing.checked_sub(pad.len()) {
        Some(letters) => [bare[..bare.len() - 2].as_bytes(), b"Pad: ", &filler.text(letters), b"\r\n\r\n"].concat(),
        None => bare.into_bytes(),
    };
    text.into()
}

/// An HTTP/1.1 response of `size` bytes in all, at least [`SMALLEST`].
pub fn response(size: Option<u64>, close: bool, filler: Filler) -> Payload {
    let body = size.map_or(DEFAULT_BODY.len() as u64, |size| size.saturating_sub(SMALLEST));
    let connection = if close { "close" } else { "keep-alive" };
    let header = format!("HTTP/1.1 200 OK\r\nServer:netrig\r\nConnection:{connection}\r\nContent-Length:");
    // As many blanks before the number as the header lacks, which mean nothing.
    let places = SMALLEST as usize - header.len() - 4;
    let header = format!("{header}{body:>places$}\r\n\r\n").into_bytes();
    let body = if size.is_some() { filler.text(body as usize) } else { DEFAULT_BODY.into() };
    [header, body].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(payload: &Payload) -> String {
        String::from_utf8(payload.bytes().to_vec()).unwrap()
    }

    #[test]
    fn requests_have_the_size_that_is_asked_for() {
        for size in [85, 86, 100, 1460] {
            for post in [false, true] {
                let request = request("dperf", "/", post, Some(size), Filler::Plain);
                assert!((request.len() == size) || post && size < 100, "{size}: {}", request.len());
            }
        }
        let plain = text(&request("dperf", "/", false, None, Filler::Plain));
        assert_eq!(plain.len(), 85);
        assert!(plain.starts_with("GET / HTTP/1.1\r\nUser-Agent: netrig\r\nHost: dperf\r\n"), "{plain}");
        assert!(plain.ends_with("\r\n\r\n") && plain.matches("\r\n\r\n").count() == 1, "{plain}");
        let long = text(&request("a.long.name", "/with/a/path", false, None, Filler::Plain));
        assert!(long.starts_with("GET /with/a/path HTTP/1.1\r\n") && long.contains("Host: a.long.name\r\n"), "{long}");
    }

    #[test]
    fn a_body_is_as_long_as_its_header_says() {
        let whole = [
            text(&request("dperf", "/", true, Some(300), Filler::Plain)),
            text(&request("dperf", "/", true, None, Filler::Plain)),
            text(&response(None, true, Filler::Plain)),
            text(&response(Some(85), false, Filler::Random)),
            text(&response(Some(5000), false, Filler::Random)),
        ];
        for message in &whole {
            let (header, body) = message.split_once("\r\n\r\n").unwrap();
            let length = header.lines().find_map(|line| line.strip_prefix("Content-Length:")).unwrap();
            assert_eq!(length.trim().parse(), Ok(body.len()), "{message}");
        }
        assert_eq!(whole.each_ref().map(String::len)[2..], [99, 85, 5000]);
    }
}
