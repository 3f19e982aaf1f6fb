//! Two ports joined in one process. Frames travel in batches whose memory changes hands and comes back, so that the two
//! sides touch a shared counter once a batch and not once a frame.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::port::{Port, Receive, Transmit};

/// Frames of a batch.
const FRAMES: usize = 64;
/// Bytes of a batch: at least one frame of any size.
const BYTES: usize = 16 * 1024;

#[derive(Debug)]
struct Batch {
    frames: usize,
    /// Where each frame ends; frames start at multiples of 8.
    ends: [u32; FRAMES],
    bytes: Box<[u8; BYTES]>,
}

impl Batch {
    fn new() -> Box<Self> {
        Box::new(Self { frames: 0, ends: [0; FRAMES], bytes: Box::new([0; BYTES]) })
    }

    #[inline]
    fn start(&self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.ends[n - 1] as usize).next_multiple_of(8) }
    }

    #[inline]
    fn fits(&self, length: usize) -> bool {
        self.frames < FRAMES && self.start(self.frames) + length <= BYTES
    }
}

/// One end of a pair.
#[derive(Debug)]
pub struct Memory {
    receive: MemoryReceive,
    transmit: MemoryTransmit,
}

/// The receiving half.
#[derive(Debug)]
pub struct MemoryReceive {
    full: Receiver<Box<Batch>>,
    empty: SyncSender<Box<Batch>>,
    current: Option<Box<Batch>>,
}

/// The sending half.
#[derive(Debug)]
pub struct MemoryTransmit {
    full: SyncSender<Box<Batch>>,
    empty: Receiver<Box<Batch>>,
    current: Option<Box<Batch>>,
    /// What comes after the current one, so that it can go.
    spare: Option<Box<Batch>>,
}

/// Two ports, each the other's network. `batches` of up to 64 frames or 16 KiB can be under way in each direction, at
/// least 2; a frame that finds none free is refused, as by a full transmit queue. While the other end is behind, the last
/// free batch is kept and filled up, so that small flushes do not use up the queue.
pub fn pair(batches: usize) -> (Memory, Memory) {
    let (transmit_a, receive_b) = direction(batches.max(2));
    let (transmit_b, receive_a) = direction(batches.max(2));
    (Memory { receive: receive_a, transmit: transmit_a }, Memory { receive: receive_b, transmit: transmit_b })
}

fn direction(batches: usize) -> (MemoryTransmit, MemoryReceive) {
    let (full_in, full_out) = sync_channel(batches);
    let (empty_in, empty_out) = sync_channel(batches);
    for _ in 0..batches {
        // There is room for all of them.
        let _ = empty_in.try_send(Batch::new());
    }
    (
        MemoryTransmit { full: full_in, empty: empty_out, current: None, spare: None },
        MemoryReceive { full: full_out, empty: empty_in, current: None },
    )
}

impl Receive for MemoryReceive {
    fn poll(&mut self) -> usize {
        if let Some(mut batch) = self.current.take() {
            batch.frames = 0;
            // Fails only when the other end is gone, which needs no buffers then.
            let _ = self.empty.try_send(batch);
        }
        self.current = self.full.try_recv().ok();
        self.current.as_ref().map_or(0, |batch| batch.frames)
    }

    #[inline]
    fn frame(&self, n: usize) -> &[u8] {
        match &self.current {
            Some(batch) => &batch.bytes[batch.start(n)..batch.ends[n] as usize],
            None => &[],
        }
    }
}

impl Transmit for MemoryTransmit {
    #[inline]
    fn claim(&mut self, length: usize) -> Option<&mut [u8]> {
        if !self.current.as_ref().is_some_and(|batch| batch.fits(length)) {
            self.send();
        }
        let batch = self.current.as_mut().filter(|batch| batch.fits(length))?;
        let start = batch.start(batch.frames);
        let end = start + length;
        batch.ends[batch.frames] = end as u32;
        batch.frames += 1;
        batch.bytes.get_mut(start..end)
    }

    fn flush(&mut self) {
        if self.current.as_ref().is_some_and(|batch| batch.frames > 0) {
            self.spare = self.spare.take().or_else(|| self.empty.try_recv().ok());
            if self.spare.is_some() {
                self.send();
            }
        }
    }
}

impl MemoryTransmit {
    /// Sends the current batch, full or not, and goes on with the next, if there is one.
    fn send(&mut self) {
        if let Some(batch) = self.current.take_if(|batch| batch.frames > 0) {
            // Never full: there are no more batches than places. Fails when the other end is gone: a network is silent.
            let _ = self.full.try_send(batch);
        }
        if self.current.is_none() {
            self.current = self.spare.take().or_else(|| self.empty.try_recv().ok());
        }
    }
}

impl Port for Memory {
    type Receive = MemoryReceive;
    type Transmit = MemoryTransmit;

    fn halves(&mut self) -> (&mut Self::Receive, &mut Self::Transmit) {
        (&mut self.receive, &mut self.transmit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(port: &mut Memory, frame: &[u8]) -> bool {
        port.transmit.claim(frame.len()).map(|bytes| bytes.copy_from_slice(frame)).is_some()
    }

    #[test]
    fn frames_arrive_whole_and_in_order() {
        let (mut a, mut b) = pair(4);
        for n in 0..100u8 {
            assert!(send(&mut a, &vec![n; usize::from(n) + 1]));
        }
        a.transmit.flush();
        let mut seen = Vec::new();
        loop {
            let frames = b.receive.poll();
            if frames == 0 {
                break;
            }
            (0..frames).for_each(|n| seen.push(b.receive.frame(n).to_vec()));
        }
        assert_eq!(seen, (0..100u8).map(|n| vec![n; usize::from(n) + 1]).collect::<Vec<_>>());
        assert_eq!(a.receive.poll(), 0);
    }

    #[test]
    fn a_full_queue_refuses_until_the_other_end_reads() {
        let (mut a, mut b) = pair(2);
        let sent = (0..1000).take_while(|_| send(&mut a, &[1; 60])).count();
        assert_eq!(sent, 2 * FRAMES);
        assert_eq!(b.receive.poll(), FRAMES);
        assert!(!send(&mut a, &[1; 60]), "the batch is still being read");
        assert_eq!(b.receive.poll(), FRAMES);
        assert!(send(&mut a, &[1; 60]));
        assert!(!send(&mut b, &[1; BYTES + 1]), "no batch holds this");
    }
}
