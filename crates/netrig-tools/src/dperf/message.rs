//! What requests and responses consist of: HTTP of a given size, or filler.

use rig_packet::Payload;
use rig_packet::http::{self, Method};

/// Bytes from which on a message is HTTP: of the smallest request, and of a response's header.
pub const SMALLEST: u64 = http::REQUEST as u64;
/// The body that is given when no size is asked for.
const DEFAULT_BODY: &[u8] = b"hello, world!\n";
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

    /// Puts letters in the place of the longest row of the letter a, which is a composed message's filler.
    fn scatter(self, mut message: Vec<u8>) -> Vec<u8> {
        if self == Self::Random {
            let mut rows: Vec<&mut [u8]> = message.chunk_by_mut(|a, b| a == b && *a == b'a').collect();
            if let Some(row) = rows.iter_mut().filter(|row| row.starts_with(b"aa")).max_by_key(|row| row.len()) {
                row.copy_from_slice(&self.payload(row.len() as u64).bytes());
            }
        }
        message
    }
}

/// A request of `size` bytes in all, or of as few as it takes.
pub fn request(host: &str, path: &str, post: bool, size: Option<u64>, filler: Filler) -> Payload {
    let method = if post { Method::Post } else { Method::Get };
    filler.scatter(http::request(method, host, path, size.unwrap_or(SMALLEST) as usize)).into()
}

/// A response of `size` bytes in all, at least [`SMALLEST`].
pub fn response(size: Option<u64>, close: bool, filler: Filler) -> Payload {
    match size {
        None => http::response(DEFAULT_BODY, close).into(),
        Some(size) => http::response(&filler.payload(size.saturating_sub(http::HEADER as u64)).bytes(), close).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_size_that_is_asked_for() {
        for filler in [Filler::Plain, Filler::Random] {
            for size in [85, 86, 100, 1460] {
                assert_eq!(request("dperf", "/", false, Some(size), filler).len(), size);
                assert_eq!(response(Some(size), true, filler).len(), size);
            }
            assert_eq!(request("dperf", "/", true, Some(300), filler).len(), 300);
        }
        assert_eq!(
            (request("dperf", "/", false, None, Filler::Plain).len(), response(None, true, Filler::Plain).len()),
            (85, 99)
        );
    }

    #[test]
    fn random_filler_is_in_every_kind_of_message() {
        let plain = [
            request("dperf", "/", false, Some(200), Filler::Plain),
            request("dperf", "/", true, Some(200), Filler::Plain),
            response(Some(200), false, Filler::Plain),
        ];
        let random = [
            request("dperf", "/", false, Some(200), Filler::Random),
            request("dperf", "/", true, Some(200), Filler::Random),
            response(Some(200), false, Filler::Random),
        ];
        for (plain, random) in plain.iter().zip(&random) {
            let (plain, random) = (plain.bytes(), random.bytes());
            assert_eq!(plain.len(), random.len());
            let differ: Vec<_> = plain.iter().zip(&*random).filter(|(a, b)| a != b).collect();
            assert!(differ.len() > 20 && differ.iter().all(|(a, b)| **a == b'a' && b.is_ascii_lowercase()));
        }
    }
}
