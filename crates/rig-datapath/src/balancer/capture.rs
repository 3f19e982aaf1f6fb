//! Packets of chosen reasons as the balancer drops them or leaves them to the kernel, for who looks for the cause.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::{ErrorKind, PerfBuffer, PerfBufferBuilder};
use zerocopy::FromBytes;

use crate::{Error, libbpf_log};

use super::config::Protocol;
use super::handle::BalancerHandle;
use super::reason::{Drop as DropReason, Pass};
use super::shape::{Address, CaptureFilter, Captured, LEFT, Uncaptured, port_of};

/// Of a packet, bytes: that of a jumbo frame.
pub const MOST_SNAPPED: u32 = 9216;
/// Of memory that the kernel has for packets that nobody has read yet, on each CPU, bytes: half of what users may have without a limit
/// of theirs (`kernel.perf_event_mlock_kb`). One page where that is larger.
const ROOM: usize = 256 << 10;
/// Of most machines, bytes.
const SMALL_PAGE: usize = 4 << 10;
/// Who has called neither [`Capture::wait`] nor [`Capture::renew`] for this long reads no more: the program captures nothing until the next call.
pub const LEASE: Duration = Duration::from_secs(8);
/// How long before the lease would end it is put off.
const RENEWAL: Duration = Duration::from_secs(7);
const SECOND: u64 = 1_000_000_000;

/// Why a packet did not go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CaptureReason {
    Dropped(DropReason),
    LeftToKernel(Pass),
}

impl CaptureReason {
    /// All that packets can be captured of.
    pub fn all() -> impl Iterator<Item = Self> {
        let dropped = DropReason::ALL.iter().copied().map(Self::Dropped);
        dropped.chain(Pass::ALL.iter().copied().map(Self::LeftToKernel)).filter(|reason| reason.unseen().is_none())
    }

    /// Why no packet of it is ever captured.
    pub fn unseen(self) -> Option<&'static str> {
        match self {
            Self::Dropped(DropReason::WorkerBusy) => {
                Some("the kernel drops such packets before the worker's program has them")
            }
            Self::Dropped(DropReason::NotSent) => Some("devices refuse such packets after the program has ended"),
            Self::Dropped(DropReason::NotTold) => Some("such packets go through to their backend"),
            _ => None,
        }
    }

    pub fn key(self) -> &'static str {
        match self {
            Self::Dropped(reason) => reason.key(),
            Self::LeftToKernel(reason) => reason.key(),
        }
    }

    /// What has happened.
    pub fn text(self) -> &'static str {
        match self {
            Self::Dropped(reason) => reason.text(),
            Self::LeftToKernel(reason) => reason.text(),
        }
    }

    fn number(self) -> u16 {
        match self {
            Self::Dropped(reason) => reason as u16,
            Self::LeftToKernel(reason) => LEFT | reason as u16,
        }
    }

    fn of_number(number: u16) -> Option<Self> {
        Self::all().find(|reason| reason.number() == number)
    }
}

/// Which packets are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureRequest {
    pub reasons: Vec<CaptureReason>,
    /// Those that are to it, and what has no ports, as fragments, where it is to its address. `None`: all.
    pub service: Option<(Protocol, SocketAddr)>,
    /// Of each packet, bytes: 1 to [`MOST_SNAPPED`].
    pub length: u32,
    /// Packets in a second, and at once: 1 or more.
    pub rate: u32,
}

impl CaptureRequest {
    fn asked(&self) -> Result<CaptureFilter, Error> {
        let size = |what, wanted, most| Err(Error::Size { what, wanted, least: 1, most });
        if !(1..=MOST_SNAPPED).contains(&self.length) {
            return size("bytes of a packet", self.length, MOST_SNAPPED);
        }
        if self.rate == 0 {
            return size("packets a second", 0, u32::MAX);
        }
        let gap = SECOND / u64::from(self.rate);
        let mut asked = CaptureFilter {
            gap,
            slack: gap * u64::from(self.rate - 1),
            length: self.length,
            ..CaptureFilter::default()
        };
        for reason in &self.reasons {
            match reason {
                CaptureReason::Dropped(reason) => asked.dropped |= 1 << reason.number(),
                CaptureReason::LeftToKernel(reason) => asked.left |= 1 << reason.number(),
            }
        }
        if let Some((protocol, at)) = self.service {
            asked.address = Address::from(at.ip());
            asked.port = port_of(at.port());
            asked.protocol = protocol.number();
        }
        Ok(asked)
    }
}

/// What has become of a captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketEnd {
    Dropped,
    LeftToKernel,
    /// It is the answer to its sender that was captured, which was written over it.
    Answered,
}

/// A packet of which a reason was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPacket {
    pub reason: CaptureReason,
    pub end: PacketEnd,
    /// By the kernel's `CLOCK_MONOTONIC`.
    pub time: Duration,
    /// The number of the interface by which it came in.
    pub interface: u32,
    /// Of the whole frame, bytes.
    pub length: u32,
    /// Its beginning, with the Ethernet header.
    pub bytes: Vec<u8>,
}

/// `enum xdp_action` of linux/bpf.h.
const XDP_DROP: u16 = 1;
const XDP_PASS: u16 = 2;

impl CapturedPacket {
    fn read(record: &[u8]) -> Option<Self> {
        let (head, bytes) = Captured::read_from_prefix(record).ok()?;
        Some(Self {
            reason: CaptureReason::of_number(head.reason)?,
            end: match head.verdict {
                XDP_DROP => PacketEnd::Dropped,
                XDP_PASS => PacketEnd::LeftToKernel,
                _ => PacketEnd::Answered,
            },
            time: Duration::from_nanos(head.time),
            interface: head.interface,
            length: head.length,
            // The kernel rounds records up.
            bytes: bytes.get(..head.kept as usize)?.to_vec(),
        })
    }
}

/// Packets of the chosen reasons that were not captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UncapturedPackets {
    /// Because they came faster than the rate.
    pub beyond_rate: u64,
    /// Because nobody had read those before them.
    pub no_room: u64,
    /// Because their CPU has come online since the capture began, and is not read.
    pub no_reader: u64,
}

/// Captures as long as it is there.
pub struct Capture {
    handle: BalancerHandle,
    /// Ends before the next one may begin.
    buffer: Option<Mutex<PerfBuffer<'static>>>,
    packets: Mutex<Receiver<CapturedPacket>>,
    asked: CaptureFilter,
    /// When the program takes the reader to have gone.
    until: Mutex<Duration>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

impl BalancerHandle {
    /// Begins to capture packets; one at a time does.
    ///
    /// # Errors
    /// [`Error::Capturing`] where somebody does, [`Error::Size`] for what cannot be, [`Error::Map`] where the kernel has no memory for it.
    pub fn capture(&self, request: &CaptureRequest) -> Result<Capture, Error> {
        let asked = request.asked()?;
        if self.capturing.swap(true, Ordering::AcqRel) {
            return Err(Error::Capturing);
        }
        self.begin_capture(asked).inspect_err(|_| self.capturing.store(false, Ordering::Release))
    }

    fn begin_capture(&self, asked: CaptureFilter) -> Result<Capture, Error> {
        let (send, packets) = channel();
        let sample = move |_, record: &[u8]| {
            if let Some(packet) = CapturedPacket::read(record) {
                // Its receiver goes with the buffer.
                let _ = send.send(packet);
            }
        };
        let builder = PerfBufferBuilder::new(self.tables.captures.handle())
            .pages(pages_of(page_size().unwrap_or(SMALL_PAGE)))
            .sample_cb(sample);
        let failed =
            |source| Error::Map { map: "captures", operation: "have the kernel make room for packets of", source };
        let buffer = libbpf_log::with(|| builder.build()).map_err(failed)?;
        let capture = Capture {
            handle: self.clone(),
            buffer: Some(Mutex::new(buffer)),
            packets: Mutex::new(packets),
            asked,
            until: Mutex::new(Duration::ZERO),
        };
        self.tables.uncaptured.set_all_cpus(0, &Uncaptured::default())?;
        self.tables.capture_next.set(&0_u32, &0_u64)?;
        capture.renew()?;
        Ok(capture)
    }

    /// No packet is captured any more, until somebody reads again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn end_capture(&self) -> Result<(), Error> {
        self.tables.capture_filter.set(&0_u32, &CaptureFilter::default())
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Without readers nothing is captured either way.
        let _ = self.handle.end_capture();
        self.buffer = None;
        self.handle.capturing.store(false, Ordering::Release);
    }
}

impl Capture {
    /// Waits for packets, at most for this time, and gives those that there are to `with`.
    ///
    /// # Errors
    /// The kernel's; none for a signal.
    pub fn wait(&self, most: Duration, with: impl FnMut(CapturedPacket)) -> Result<(), Error> {
        self.renew()?;
        let polled =
            self.buffer.as_ref().map(|buffer| buffer.lock().unwrap_or_else(PoisonError::into_inner).poll(most));
        match polled {
            Some(Err(source)) if source.kind() != ErrorKind::Interrupted => {
                return Err(Error::Map { map: "captures", operation: "read packets of", source });
            }
            _ => {}
        }
        self.packets.lock().unwrap_or_else(PoisonError::into_inner).try_iter().for_each(with);
        Ok(())
    }

    /// Has the program go on for a while.
    ///
    /// # Errors
    /// The kernel's.
    pub fn renew(&self) -> Result<(), Error> {
        // The clock that programs read (bpf_ktime_get_ns).
        let now = Duration::from_nanos(rig_sys::clock::monotonic_ns());
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if now + RENEWAL > *until {
            *until = now + LEASE;
            let asked = CaptureFilter { until: until.as_nanos().try_into().unwrap_or(u64::MAX), ..self.asked };
            self.handle.tables.capture_filter.set(&0_u32, &asked)?;
        }
        Ok(())
    }

    /// So far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn uncaptured(&self) -> Result<UncapturedPackets, Error> {
        let mut all = UncapturedPackets::default();
        for cpu in self.handle.tables.uncaptured.per_cpu::<Uncaptured>(0)? {
            all.beyond_rate += cpu.beyond;
            all.no_room += cpu.no_room;
            all.no_reader += cpu.no_reader;
        }
        Ok(all)
    }
}

/// How many pages [`ROOM`] is: a power of two, as they have to be.
fn pages_of(page: usize) -> usize {
    (ROOM / page).max(1)
}

/// Bytes of a page, which the kernel tells each program (proc_pid_auxv(5): pairs of numbers, of which one with `AT_PAGESZ` is it).
fn page_size() -> Option<usize> {
    const AT_PAGESZ: usize = 6;
    const WORD: usize = size_of::<usize>();
    let told = std::fs::read("/proc/self/auxv").ok()?;
    let words: Vec<usize> =
        told.chunks_exact(WORD).filter_map(|word| word.try_into().ok().map(usize::from_ne_bytes)).collect();
    let (_, size) = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).find(|(key, _)| *key == AT_PAGESZ)?;
    Some(size).filter(|size| size.is_power_of_two())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_bit_of_its_own_and_a_number_in_a_byte() {
        let all: Vec<_> = CaptureReason::all().collect();
        for reason in &all {
            assert!(reason.number() < 256 && reason.number() & !LEFT < 64, "{reason:?}");
            assert_eq!(CaptureReason::of_number(reason.number()), Some(*reason));
        }
        let unseen = DropReason::ALL.len() + Pass::ALL.len() - all.len();
        assert_eq!((unseen, CaptureReason::of_number(DropReason::NotSent as u16)), (3, None));
    }

    #[test]
    fn room_on_a_cpu_is_that_in_pages_of_any_size() {
        assert!([4 << 10, 16 << 10, 64 << 10].contains(&page_size().unwrap()));
        assert_eq!([4 << 10, 16 << 10, 64 << 10, 512 << 10].map(pages_of), [64, 16, 4, 1]);
    }

    #[test]
    fn a_request_that_cannot_be_is_refused() {
        let right = CaptureRequest {
            reasons: vec![CaptureReason::Dropped(DropReason::NoBackend), CaptureReason::LeftToKernel(Pass::NoService)],
            service: Some((Protocol::Udp, "192.0.2.1:53".parse().unwrap())),
            length: 64,
            rate: 100,
        };
        let asked = right.asked().unwrap();
        assert_eq!((asked.gap, asked.slack, asked.protocol, asked.port), (10_000_000, 990_000_000, 17, 53_u16.to_be()));
        assert_eq!((asked.dropped, asked.left), (1 << 5, 1 << 4));
        for wrong in [
            CaptureRequest { length: 0, ..right.clone() },
            CaptureRequest { length: MOST_SNAPPED + 1, ..right.clone() },
            CaptureRequest { rate: 0, ..right },
        ] {
            assert!(matches!(wrong.asked(), Err(Error::Size { .. })), "{wrong:?}");
        }
    }
}
