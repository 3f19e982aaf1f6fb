//! What is known of a connection.

use super::Nanos;
use super::http::Reading;

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

/// A moment, modulo 2^32, in units of 64 ns unless a [`Unit`] says otherwise: a difference is right up to 274 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Timestamp(pub u32);

impl Timestamp {
    /// The largest difference, nanoseconds.
    pub const SPAN: Nanos = Unit::FINEST.span();

    #[inline]
    pub fn of(time: Nanos) -> Self {
        Unit::FINEST.of(time)
    }

    /// Nanoseconds since then.
    #[inline]
    pub fn age(self, now: Nanos) -> Nanos {
        Unit::FINEST.age(self, now)
    }
}

/// The power of two of nanoseconds in which stamps count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit(u32);

impl Unit {
    pub const FINEST: Self = Self(6);

    /// The finest in which differences of `nanos` are right.
    pub fn spanning(nanos: Nanos) -> Self {
        (Self::FINEST.0..32).map(Self).find(|unit| unit.span() >= nanos).unwrap_or(Self(32))
    }

    /// The largest difference, nanoseconds.
    pub const fn span(self) -> Nanos {
        (u32::MAX as Nanos) << self.0
    }

    #[inline]
    pub fn of(self, time: Nanos) -> Timestamp {
        Timestamp((time >> self.0) as u32)
    }

    /// Nanoseconds since `stamp`.
    #[inline]
    pub fn age(self, stamp: Timestamp, now: Nanos) -> Nanos {
        Nanos::from(self.of(now).0.wrapping_sub(stamp.0)) << self.0
    }

    /// `stamp`, or the moment three quarters of the span ago if it is older: an engine that calls this each quarter never takes an old
    /// stamp for a young one.
    #[inline]
    pub fn hold(self, stamp: Timestamp, now: Nanos) -> Timestamp {
        const OLDEST: u32 = u32::MAX / 4 * 3;
        let now = self.of(now).0;
        Timestamp(now.wrapping_sub(now.wrapping_sub(stamp.0).min(OLDEST)))
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

/// In place of a shift, which is 14 at most: the peer announced none.
const NO_SCALE: u8 = 15;

/// A connection, in 48 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Connection {
    pub(super) key: Key,
    /// The sequence number that is sent next.
    pub(super) next: u32,
    /// The first that is not acknowledged. Of UDP, as `next`: the numbers of the requests that are out.
    pub(super) unacknowledged: u32,
    /// The one that is expected from the peer.
    pub(super) expected: u32,
    /// Client: bytes of the response yet to come. Server: bytes of the response yet to be sent, or of the request yet to
    /// come. Of HTTP what [`Reading`] goes by. Of a free one: the next free one.
    pub(super) left: u32,
    /// Client: when the connection or the request was due. Server: in the lowest byte the segments that may be under way,
    /// in the next one the duplicate acknowledgments in a row.
    pub(super) stamp: Timestamp,
    pub(super) timer: Timer,
    /// The peer's window as in its last segment.
    pub(super) peer_window: u16,
    /// Client: requests yet to be sent. Server: the largest segment that the peer takes.
    pub(super) requests_or_mss: u16,
    /// How far the message is read. A server's that it answers, as long as it does.
    pub(super) reading: Reading,
    pub(super) state: State,
    /// The shift of the peer's window in the low half, or [`NO_SCALE`], retransmissions in a row in the high half.
    scale_and_retries: u8,
}

impl Connection {
    /// One that begins in a slot which hangs in the wheel by `timer`.
    #[inline]
    pub(super) fn new(key: Key, timer: Timer) -> Self {
        Self { key, timer, ..Self::default() }
    }

    /// Whether a client waits here for something of its peer.
    pub(super) fn is_waiting(&self) -> bool {
        match self.state {
            State::Free | State::TimeWait => false,
            State::Resting => self.retries() > 0,
            _ => true,
        }
    }

    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.unacknowledged)
    }

    /// Of UDP: the number of the first request that is out, and how many are.
    #[inline]
    pub(super) fn numbers(&self) -> (u32, u32) {
        (self.unacknowledged, self.in_flight())
    }

    #[inline]
    pub(super) fn set_numbers(&mut self, first: u32, count: u32) {
        (self.unacknowledged, self.next) = (first, first.wrapping_add(count));
    }

    /// Whether a FIN has been sent that may not have been acknowledged.
    #[inline]
    pub(super) fn fin_in_flight(&self) -> bool {
        matches!(self.state, State::FinWait1 | State::Closing | State::LastAck) && self.in_flight() > 0
    }

    /// Of a peer that announced `scale`, or none. More than 14 counts as 14 (RFC 7323, 2.3).
    pub(super) fn set_scale(&mut self, scale: Option<u8>) {
        self.scale_and_retries = self.scale_and_retries & 0xf0 | scale.map_or(NO_SCALE, |scale| scale.min(14));
    }

    /// Whether the peer's SYN announced a scale.
    #[inline]
    pub(super) fn has_scale(&self) -> bool {
        self.scale_and_retries & 0xf != NO_SCALE
    }

    /// By how many bits the peer's windows are shifted.
    #[inline]
    fn scale(&self) -> u8 {
        if self.has_scale() { self.scale_and_retries & 0xf } else { 0 }
    }

    /// Takes the window of a SYN, which is never scaled (RFC 7323, 2.2), so that [`Self::peer_bytes`] is no more than it,
    /// and enough for a message of `bytes` if it is.
    pub(super) fn set_first_window(&mut self, window: u16, bytes: u32) {
        let scale = self.scale();
        let fits = u32::from(window) >= bytes;
        self.peer_window = if fits { bytes.div_ceil(1 << scale) as u16 } else { window >> scale };
    }

    /// Bytes that the peer takes.
    #[inline]
    pub(super) fn peer_bytes(&self) -> u32 {
        u32::from(self.peer_window) << self.scale()
    }

    #[inline]
    pub(super) fn retries(&self) -> u8 {
        self.scale_and_retries >> 4
    }

    /// At most 15.
    #[inline]
    pub(super) fn set_retries(&mut self, retries: u8) {
        self.scale_and_retries = self.scale_and_retries & 0xf | retries << 4;
    }

    /// Of a server: segments that may be under way.
    #[inline]
    pub(super) fn window(&self) -> u8 {
        self.stamp.0 as u8
    }

    #[inline]
    pub(super) fn set_window(&mut self, segments: u8) {
        self.stamp.0 = self.stamp.0 & !0xff | u32::from(segments);
    }

    /// An acknowledgment has come: one segment more, up to `most`, and no duplicates.
    #[inline]
    pub(super) fn widen(&mut self, most: u8) {
        let segments = self.window().saturating_add(1).min(most);
        self.stamp.0 = segments.into();
    }

    /// Counts a duplicate acknowledgment to a server; how many there are in a row.
    pub(super) fn duplicate(&mut self) -> u8 {
        let duplicates = ((self.stamp.0 >> 8) as u8).saturating_add(1);
        self.stamp.0 = self.stamp.0 & 0xff | u32::from(duplicates) << 8;
        duplicates
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
        assert_eq!(Timestamp::of(born).age(born + 6400), 6400);
    }

    #[test]
    fn a_stamp_that_is_looked_at_never_looks_young() {
        for unit in [Unit::FINEST, Unit(13)] {
            let born = 5 << 40;
            let mut stamp = unit.of(born);
            for quarter in 1..20 {
                let now = born + quarter * (unit.span() / 4);
                let age = unit.age(stamp, now);
                let expected = (now - born).min(unit.span() / 4 * 4);
                assert!(age >= expected.min(unit.span() / 4 * 3) - (8 << unit.0), "{quarter}: {age}");
                stamp = unit.hold(stamp, now);
            }
        }
        assert_eq!(Unit::spanning(1), Unit::FINEST);
        assert_eq!(Unit::spanning(Timestamp::SPAN + 1), Unit(7));
    }
}
