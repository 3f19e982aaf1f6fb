//! Lines out of a stream of bytes that come in pieces, from a sender that need not mean well.

/// A line that is longer than its reader allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is longer than {limit} bytes")]
pub struct LineTooLong {
    /// Counts from 1.
    pub line: u64,
    pub limit: usize,
}

/// Splits bytes into lines that end in a line feed. Keeps no more than the limit and the piece that was pushed last,
/// and looks at each byte once.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    buffer: Vec<u8>,
    /// Bytes at the front that belong to lines already taken.
    taken: usize,
    /// Bytes behind `taken` that are known to contain no line feed; one may follow them.
    searched: usize,
    line: u64,
}

impl Lines {
    /// Takes lines of at most `limit` bytes, the line feed not counted.
    pub fn new(limit: usize) -> Self {
        Self { limit, buffer: Vec::new(), taken: 0, searched: 0, line: 0 }
    }

    /// Adds bytes in the order they arrived. Take all lines before pushing more: what is not taken is kept.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line without its line feed; `None` when more bytes are needed.
    ///
    /// # Errors
    /// When the line is too long, whether its end has come or not. It stays so: there is no way to go on.
    pub fn take(&mut self) -> Result<Option<&[u8]>, LineTooLong> {
        if !self.has_line()? {
            return Ok(None);
        }
        let (begin, end) = (self.taken, self.taken + self.searched);
        self.taken = end + 1;
        self.searched = 0;
        self.line += 1;
        Ok(Some(&self.buffer[begin..end]))
    }

    /// Whether [`Self::take`] gives a line.
    ///
    /// # Errors
    /// As there.
    pub fn has_line(&mut self) -> Result<bool, LineTooLong> {
        let rest = &self.buffer[self.taken..];
        let more = rest[self.searched..].iter().position(|&byte| byte == b'\n');
        self.searched += more.unwrap_or(rest.len() - self.searched);
        if self.searched > self.limit {
            return Err(LineTooLong { line: self.line + 1, limit: self.limit });
        }
        if rest.is_empty() {
            // A sender that is silent for long should not hold the memory of its longest line.
            self.buffer = Vec::new();
            self.taken = 0;
        }
        Ok(more.is_some())
    }

    /// The number of the line that was taken last, counted from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// True when a line has begun and not ended.
    pub fn is_inside(&self) -> bool {
        self.buffer.len() > self.taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(lines: &mut Lines) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let mut all = Vec::new();
        while let Some(line) = lines.take()? {
            all.push(line.to_vec());
        }
        Ok(all)
    }

    #[test]
    fn the_longest_line_passes_and_one_byte_more_does_not() {
        let mut lines = Lines::new(3);
        lines.push(b"abc\n\nab");
        assert_eq!(all(&mut lines).unwrap(), [b"abc".to_vec(), b"".to_vec()]);
        assert!(lines.is_inside());
        lines.push(b"c");
        assert_eq!(lines.take(), Ok(None));
        lines.push(b"d");
        let too_long = LineTooLong { line: 3, limit: 3 };
        assert_eq!(lines.take(), Err(too_long));
        lines.push(b"\nx\n");
        assert_eq!(lines.take(), Err(too_long));
    }

    #[test]
    fn silence_holds_no_memory() {
        let mut lines = Lines::new(1 << 20);
        lines.push(&[b'x'; 100_000]);
        lines.push(b"\n");
        assert_eq!(all(&mut lines).unwrap().len(), 1);
        assert_eq!(lines.buffer.capacity(), 0);
        assert!(!lines.is_inside());
    }

    proptest! {
        #[test]
        fn how_bytes_are_cut_into_pieces_does_not_matter(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            cuts in prop::collection::vec(1usize..20, 1..50),
        ) {
            let mut whole = Lines::new(1000);
            whole.push(&bytes);
            let expected = all(&mut whole).unwrap();
            let mut pieces = Lines::new(1000);
            let (mut rest, mut got) = (&bytes[..], Vec::new());
            for cut in cuts.iter().cycle() {
                let (piece, behind) = rest.split_at(rest.len().min(*cut));
                pieces.push(piece);
                got.extend(all(&mut pieces).unwrap());
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(got, expected);
            prop_assert_eq!(pieces.is_inside(), whole.is_inside());
        }
    }
}
