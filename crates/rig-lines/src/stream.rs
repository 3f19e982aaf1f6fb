//! Messages out of and into streams of bytes, for who waits.

use std::fmt;
use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Lines, Protocol, decode, encode};

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Reads messages.
pub struct Reader<R> {
    from: R,
    lines: Lines,
    chunk: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Takes lines of at most `longest` bytes.
    pub fn new(from: R, longest: usize) -> Self {
        Self { from, lines: Lines::new(longest), chunk: vec![0; CHUNK] }
    }

    /// What it reads from, for instance to set how long it waits.
    pub fn get_ref(&self) -> &R {
        &self.from
    }

    pub fn get_mut(&mut self) -> &mut R {
        &mut self.from
    }

    /// The next line, given to `take`; `None` when the stream ends at the end of a line. An error of the stream that can pass, such as a
    /// timeout, takes nothing away: the line can be waited for again.
    ///
    /// # Errors
    /// When it cannot be read, is too long, or ends inside.
    pub fn line<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
        // What the borrow checker cannot see: a line that was taken is given away at once.
        while !self.lines.has_line()? {
            match self.from.read(&mut self.chunk) {
                Ok(0) if self.lines.is_inside() => return Err(Error::Cut),
                Ok(0) => return Ok(None),
                Ok(count) => self.lines.push(&self.chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.lines.take()?.map(take))
    }

    /// The next message; `None` when the stream ends at the end of one.
    ///
    /// # Errors
    /// As [`Self::line`], and when it is no such message.
    pub fn message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        self.line(decode)?.transpose()
    }

    /// The other side's first line.
    ///
    /// # Errors
    /// When there is none, or it is not one to speak to.
    pub fn greeting(&mut self, protocol: &Protocol) -> Result<crate::Greeting, Error> {
        self.line(|line| protocol.check(line))?.ok_or(Error::Ended)?
    }
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("lines", &self.lines).finish_non_exhaustive()
    }
}

/// Writes messages.
pub struct Writer<W> {
    to: W,
    longest: usize,
}

impl<W: Write> Writer<W> {
    /// Writes lines of at most `longest` bytes.
    pub fn new(to: W, longest: usize) -> Self {
        Self { to, longest }
    }

    pub fn get_ref(&self) -> &W {
        &self.to
    }

    /// Writes a message, and has it leave.
    ///
    /// # Errors
    /// When it is too long, of which nothing was written then, or cannot be written.
    pub fn message(&mut self, message: &impl Serialize) -> Result<(), Error> {
        self.to.write_all(&encode(message, self.longest)?)?;
        Ok(self.to.flush()?)
    }
}

impl<W> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("longest", &self.longest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes with an error between: a timeout of a socket.
    struct InterruptedReader(Vec<io::Result<&'static [u8]>>);

    impl Read for InterruptedReader {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let bytes = self.0.remove(0)?;
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok(bytes.len())
        }
    }

    #[test]
    fn messages_come_whole_or_say_how_they_end() {
        let slow = InterruptedReader(vec![
            Ok(b"1\n2"),
            Err(io::ErrorKind::Interrupted.into()),
            Err(io::ErrorKind::WouldBlock.into()),
            Ok(b"3\n\"x\"\n4"),
        ]);
        let mut reader = Reader::new(slow, 3);
        assert_eq!(reader.message::<u32>().unwrap(), Some(1));
        assert!(matches!(reader.message::<u32>(), Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock));
        assert_eq!(reader.message::<u32>().unwrap(), Some(23), "what had come is still there");
        assert!(matches!(reader.message::<u32>(), Err(Error::Foreign { .. })));
        assert!(matches!(reader.message::<u32>(), Err(Error::Cut)));
        assert_eq!(Reader::new(&b"5\n"[..], 3).message::<u32>().unwrap(), Some(5));
        assert_eq!(Reader::new(&b""[..], 3).message::<u32>().unwrap(), None);
        assert!(matches!(Reader::new(&b"12345"[..], 3).message::<u32>(), Err(Error::TooLong(_))));
    }

    #[test]
    fn what_is_too_long_is_not_begun() {
        let mut to = Vec::new();
        let mut writer = Writer::new(&mut to, 3);
        writer.message(&1).unwrap();
        assert!(matches!(writer.message(&"long"), Err(Error::Oversized { .. })));
        writer.message(&2).unwrap();
        assert_eq!(to, b"1\n2\n");
    }
}
