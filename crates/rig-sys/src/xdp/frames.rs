//! Frames of several buffers (multi-buffer AF_XDP, Linux 6.6): where those to send are, and what was received in pieces as a whole.

/// One received frame of a burst.
#[derive(Debug, Clone, Copy)]
enum FrameSpan {
    /// In the buffer of this entry of the ring.
    Entry(u32),
    /// Put together: where in [`Assembled::bytes`].
    Copy { at: usize, length: usize },
}

/// The frames of a burst of entries of which several may be one frame. The kernel leaves its headroom free before each piece, so pieces are not side by
/// side in memory, whichever buffers they are in.
#[derive(Debug, Default)]
pub(super) struct Assembled {
    frames: Vec<FrameSpan>,
    bytes: Vec<u8>,
}

/// A frame of the burst.
pub(super) enum ReceivedFrame<'a> {
    /// In the buffer of this entry of the ring.
    Entry(u32),
    Bytes(&'a [u8]),
}

impl Assembled {
    /// Puts the frames together whose entries are all among the first `count`: how many entries these have. `piece` tells of an entry whether it is the last
    /// of its frame, and its bytes.
    pub fn take<'a>(&mut self, count: u32, piece: impl Fn(u32) -> (bool, &'a [u8])) -> u32 {
        self.frames.clear();
        self.bytes.clear();
        let (mut whole, mut begin) = (0, 0);
        for n in 0..count {
            let (is_last, bytes) = piece(n);
            if is_last && n == whole {
                self.frames.push(FrameSpan::Entry(n));
            } else {
                self.bytes.extend_from_slice(bytes);
                if is_last {
                    self.frames.push(FrameSpan::Copy { at: begin, length: self.bytes.len() - begin });
                }
            }
            if is_last {
                (whole, begin) = (n + 1, self.bytes.len());
            }
        }
        whole
    }

    pub fn count(&self) -> usize {
        self.frames.len()
    }

    /// The frame `n` of the burst.
    pub fn frame(&self, n: usize) -> Option<ReceivedFrame<'_>> {
        Some(match *self.frames.get(n)? {
            FrameSpan::Entry(entry) => ReceivedFrame::Entry(entry),
            FrameSpan::Copy { at, length } => ReceivedFrame::Bytes(self.bytes.get(at..at + length)?),
        })
    }
}

/// Buffers to send from that hold a frame each and are several of the kernel's, side by side.
#[derive(Debug)]
pub(super) struct Groups {
    /// Where the first begins.
    begin: u64,
    stride: u64,
    /// Pieces of each that the kernel has.
    under_way: Vec<u8>,
}

impl Groups {
    pub fn new(begin: u64, stride: u64, count: u32) -> Self {
        Self { begin, stride, under_way: vec![0; count as usize] }
    }

    fn number(&self, address: u64) -> Option<usize> {
        Some((address.checked_sub(self.begin)? / self.stride) as usize)
    }

    /// The kernel is given so many pieces of the group that begins there. False where there is none.
    pub fn give(&mut self, address: u64, pieces: u8) -> bool {
        let under_way = self.number(address).and_then(|number| self.under_way.get_mut(number));
        under_way.map(|under_way| *under_way = pieces).is_some()
    }

    /// The kernel has sent the piece there: where its group begins, if that was the last piece. A piece that it was not given changes nothing, so that no
    /// group is given back twice.
    pub fn take(&mut self, address: u64) -> Option<u64> {
        let number = self.number(address)?;
        let under_way = self.under_way.get_mut(number)?;
        *under_way = under_way.checked_sub(1)?;
        (*under_way == 0).then_some(self.begin + number as u64 * self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_free_when_its_last_piece_was_sent() {
        let mut groups = Groups::new(1000, 100, 3);
        assert!(groups.give(1100, 3) && groups.give(1000, 1) && !groups.give(1300, 1) && !groups.give(900, 1));
        assert_eq!(groups.take(1100), None);
        assert_eq!(groups.take(1000), Some(1000));
        assert_eq!(groups.take(1140), None);
        assert_eq!(groups.take(1180), Some(1100));
        for not_given in [1000, 1100, 1200, 9999, 3] {
            assert_eq!(groups.take(not_given), None, "{not_given}");
        }
    }

    #[test]
    fn only_whole_frames_are_taken() {
        let entries: [(bool, &[u8]); 7] = [
            (true, b"one"),
            (false, b"a"),
            (false, b"b"),
            (true, b"c"),
            (true, b"two"),
            (false, b"cut"),
            (true, b"off"),
        ];
        let mut assembled = Assembled::default();
        let mut taken = |from: usize, count: u32| {
            let entries = &entries[from..];
            let whole = assembled.take(count, |n| entries[n as usize]);
            let frames = (0..assembled.count()).map(|n| match assembled.frame(n).unwrap() {
                ReceivedFrame::Entry(entry) => entries[entry as usize].1.to_vec(),
                ReceivedFrame::Bytes(bytes) => bytes.to_vec(),
            });
            let frames: Vec<Vec<u8>> = frames.collect();
            assert!(assembled.frame(frames.len()).is_none());
            (whole, frames)
        };
        let texts = |some: &[&str]| some.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(taken(0, 6), (5, texts(&["one", "abc", "two"])));
        assert_eq!(taken(5, 2), (2, texts(&["cutoff"])));
        assert_eq!(taken(0, 3), (1, texts(&["one"])));
        assert_eq!(taken(1, 1), (0, texts(&[])));
        assert_eq!(taken(0, 0), (0, texts(&[])));
    }
}
