//! Messages in the segments in which they come.

use super::automaton::{InvalidMessage, Kind, Reading};

/// Headers up to this length are remembered, bytes.
const REMEMBERED: usize = 512;

/// Reads messages of many connections. Most headers are the same as the one before, on this connection or another:
/// the last one that came whole is kept with what it meant, and one that is equal is not read again.
#[derive(Debug)]
pub(crate) struct Reader {
    kind: Kind,
    header: [u8; REMEMBERED],
    length: usize,
    /// Behind that header.
    reading: Reading,
    left: u32,
}

/// How far a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    More,
    /// With so many of the bytes; what is behind them is of the next one.
    Done(usize),
    Bad,
}

impl Reader {
    pub fn new(kind: Kind) -> Self {
        Self { kind, header: [0; REMEMBERED], length: 0, reading: Reading::default(), left: 0 }
    }

    /// Reads on in a message of which `reading` and `left` tell what was read before. `sequence` numbers the bytes, so
    /// that the length of a header can be told.
    #[inline]
    pub fn read(&mut self, reading: &mut Reading, left: &mut u32, sequence: u32, bytes: &[u8]) -> Progress {
        let mut at = 0;
        if self.length > 0 && reading.is_start() && bytes.starts_with(&self.header[..self.length]) {
            (*reading, *left) = (self.reading, self.left);
            at = self.length;
        }
        match self.read_on(reading, left, sequence, bytes, at) {
            Ok(Some(end)) => Progress::Done(end),
            Ok(None) => Progress::More,
            Err(InvalidMessage) => Progress::Bad,
        }
    }

    /// Where the message ends, if it does.
    fn read_on(
        &mut self,
        reading: &mut Reading,
        left: &mut u32,
        sequence: u32,
        bytes: &[u8],
        mut at: usize,
    ) -> Result<Option<usize>, InvalidMessage> {
        while !reading.is_done() && at < bytes.len() {
            let rest = &bytes[at..];
            let sequence = sequence.wrapping_add(at as u32);
            if reading.in_header() {
                let whole = reading.is_start();
                let Some(length) = reading.header(self.kind, left, sequence, rest)? else { return Ok(None) };
                if whole {
                    self.remember(&rest[..length], *reading, *left);
                }
                at += length;
            } else {
                at += reading.body(left, sequence, rest)?;
            }
        }
        Ok(reading.is_done().then_some(at))
    }

    fn remember(&mut self, header: &[u8], reading: Reading, left: u32) {
        if let Some(kept) = self.header.get_mut(..header.len()) {
            kept.copy_from_slice(header);
            (self.length, self.reading, self.left) = (header.len(), reading, left);
        }
    }
}
