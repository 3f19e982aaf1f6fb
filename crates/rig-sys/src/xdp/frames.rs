//! Frames of several buffers (multi-buffer AF_XDP, Linux 6.6): where they are in a socket's memory, and one that was received in pieces as a whole.

use super::ring::Consumer;

/// One received frame of a burst.
#[derive(Debug, Clone, Copy)]
enum FrameSpan {
    /// In the buffer of this entry of the ring.
    Entry(u32),
    /// Put together: where in [`Assembled::bytes`].
    Copy { at: usize, length: usize },
}

/// The frames of a burst of entries of which several may be one frame. The first piece of a frame stands behind the kernel's headroom, so that pieces are not
/// side by side in memory, whichever buffers they are in.
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
    /// Puts the frames together whose entries are all there, of at most `most`: how many entries that are. `piece` gives the bytes of an entry.
    pub fn take<'a>(
        &mut self,
        rx: &Consumer<libc::xdp_desc>,
        most: u32,
        piece: impl Fn(&libc::xdp_desc) -> &'a [u8],
    ) -> u32 {
        self.frames.clear();
        self.bytes.clear();
        let (mut whole, mut begin) = (0, 0);
        for n in 0..most {
            let entry = rx.get(n);
            let is_last = entry.options & libc::XDP_PKT_CONTD == 0;
            if is_last && n == whole {
                self.frames.push(FrameSpan::Entry(n));
            } else {
                self.bytes.extend_from_slice(piece(&entry));
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

    fn number(&self, address: u64) -> usize {
        (address.saturating_sub(self.begin) / self.stride) as usize
    }

    /// The kernel is given so many pieces of the group that begins there.
    pub fn give(&mut self, address: u64, pieces: u8) {
        let number = self.number(address);
        if let Some(under_way) = self.under_way.get_mut(number) {
            *under_way = pieces;
        }
    }

    /// The kernel has sent the piece there: where its group begins, if that was the last piece.
    pub fn take(&mut self, address: u64) -> Option<u64> {
        let number = self.number(address);
        let under_way = self.under_way.get_mut(number)?;
        *under_way = under_way.saturating_sub(1);
        (*under_way == 0).then_some(self.begin + number as u64 * self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_free_when_its_last_piece_was_sent() {
        let mut groups = Groups::new(1000, 100, 3);
        groups.give(1100, 3);
        groups.give(1000, 1);
        assert_eq!(groups.take(1100), None);
        assert_eq!(groups.take(1000), Some(1000));
        assert_eq!(groups.take(1140), None);
        assert_eq!(groups.take(1180), Some(1100));
        assert_eq!(groups.take(9999), None);
    }
}
