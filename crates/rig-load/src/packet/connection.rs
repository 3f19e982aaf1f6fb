//! What is known of a connection.

use super::Nanos;

/// The four ends of a connection in 64 bits: addresses as numbers within the configured ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Key(pub u64);

impl Key {
    #[inline]
    pub fn new(local: u16, local_port: u16, remote: u16, remote_port: u16) -> Self {
        Self(u64::from(local) << 48 | u64::from(remote) << 32 | u64::from(local_port) << 16 | u64::from(remote_port))
    }

    #[inline]
    pub fn local(self) -> usize {
        (self.0 >> 48) as usize
    }

    #[inline]
    pub fn remote(self) -> usize {
        (self.0 >> 32) as usize & 0xffff
    }

    #[inline]
    pub fn local_port(self) -> u16 {
        (self.0 >> 16) as u16
    }

    #[inline]
    pub fn remote_port(self) -> u16 {
        self.0 as u16
    }
}

/// The states of RFC 9293, 3.3.2, and those of a UDP exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(super) enum State {
    #[default]
    Free,
    SynSent,
    SynReceived,
    /// The client waits for a response, or the server for a request.
    Established,
    /// The server has not had all of its response acknowledged.
    Responding,
    /// The client has its response, and the next request is not due yet.
    Resting,
    FinWait1,
    FinWait2,
    Closing,
    CloseWait,
    LastAck,
    TimeWait,
    /// A datagram is out.
    Asked,
}

/// A moment, in units of 64 ns, modulo 2^32: a difference is right up to 274 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stamp(pub u32);

impl Stamp {
    /// The largest difference, nanoseconds.
    pub const SPAN: Nanos = (u32::MAX as Nanos) << Self::SHIFT;
    const SHIFT: u32 = 6;

    #[inline]
    pub fn of(time: Nanos) -> Self {
        Self((time >> Self::SHIFT) as u32)
    }

    /// Nanoseconds since then.
    #[inline]
    pub fn age(self, now: Nanos) -> Nanos {
        Nanos::from(Self::of(now).0.wrapping_sub(self.0)) << Self::SHIFT
    }
}

/// Where a connection hangs in the wheel.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timer {
    /// The tick at which the timer ends; the bucket that it hangs in comes up no later.
    pub due: u32,
    pub next: u32,
    /// A connection, or a bucket; 0 when it hangs nowhere.
    pub previous: u32,
}

/// A connection, in 48 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Connection {
    pub(super) key: Key,
    /// The sequence number that is sent next.
    pub(super) next: u32,
    /// The first that is not acknowledged.
    pub(super) unacknowledged: u32,
    /// The one that is expected from the peer.
    pub(super) expected: u32,
    /// Client: bytes of the response yet to come. Server: bytes of the response yet to be sent, or of the request yet to
    /// come. Of a free one: the next free one.
    pub(super) left: u32,
    /// When the connection or the request was due.
    pub(super) stamp: Stamp,
    pub(super) timer: Timer,
    /// The peer's window as in its last segment.
    pub(super) peer_window: u16,
    /// Client: requests yet to be sent. Server: the largest segment that the peer takes.
    pub(super) requests_or_mss: u16,
    pub(super) state: State,
    pub(super) retries: u8,
    /// Segments that may be under way.
    pub(super) window: u8,
    /// The shift of the peer's window in the low half, duplicate acknowledgments in a row in the high half.
    scale_and_duplicates: u8,
}

impl Connection {
    /// One that begins in a slot which hangs in the wheel by `timer`.
    #[inline]
    pub(super) fn new(key: Key, timer: Timer) -> Self {
        Self { key, timer, ..Self::default() }
    }

    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.unacknowledged)
    }

    /// Whether a FIN has been sent that may not have been acknowledged.
    #[inline]
    pub(super) fn fin_in_flight(&self) -> bool {
        matches!(self.state, State::FinWait1 | State::Closing | State::LastAck) && self.in_flight() > 0
    }

    pub(super) fn set_scale(&mut self, scale: u8) {
        self.scale_and_duplicates = scale & 0xf;
    }

    /// Bytes that the peer takes.
    #[inline]
    pub(super) fn peer_bytes(&self) -> u32 {
        u32::from(self.peer_window) << (self.scale_and_duplicates & 0xf)
    }

    /// Counts a duplicate acknowledgment; how many there are in a row, up to 15.
    pub(super) fn duplicate(&mut self) -> u8 {
        let duplicates = (self.scale_and_duplicates >> 4).saturating_add(1).min(15);
        self.scale_and_duplicates = self.scale_and_duplicates & 0xf | duplicates << 4;
        duplicates
    }

    #[inline]
    pub(super) fn no_duplicates(&mut self) {
        self.scale_and_duplicates &= 0xf;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_small() {
        assert_eq!(size_of::<Connection>(), 48);
    }

    #[test]
    fn ages_outlive_the_wrap() {
        let born = (1 << 38) - 1000;
        assert_eq!(Stamp::of(born).age(born + 6400), 6400);
    }
}
