//! Datagrams that begin with the time and with a sequence number, as those of iperf3: one connected socket for each thread.
//!
//! The header, big-endian: seconds and microseconds of the sender's clock (u32 each), then the number, u32 or u64, from 1.
//! What follows is the same in all datagrams of a thread.

mod receive;
mod send;
pub(crate) mod track;

pub(super) use self::receive::Receiver;
pub(super) use self::send::Sender;

/// Bytes of time and number.
pub(crate) const NARROW: usize = 12;
/// The same with numbers of 64 bits.
pub(crate) const WIDE: usize = 16;

/// Time and number at the beginning of a datagram; `None` where it is too short for them.
#[inline]
pub(crate) fn header(datagram: &[u8], wide: bool) -> Option<(u64, u64)> {
    let word = |at: usize| Some(u32::from_be_bytes(datagram.get(at..at + 4)?.try_into().ok()?));
    let number = if wide { u64::from_be_bytes(datagram.get(8..WIDE)?.try_into().ok()?) } else { u64::from(word(8)?) };
    Some((u64::from(word(0)?) * 1_000_000 + u64::from(word(4)?), number))
}

/// Writes time and number; a datagram that is too short stays as it is.
#[inline]
pub(crate) fn write_header(datagram: &mut [u8], wide: bool, now_us: u64, number: u64) {
    let mut header = [0; WIDE];
    header[..4].copy_from_slice(&((now_us / 1_000_000) as u32).to_be_bytes());
    header[4..8].copy_from_slice(&((now_us % 1_000_000) as u32).to_be_bytes());
    let length = if wide {
        header[8..].copy_from_slice(&number.to_be_bytes());
        WIDE
    } else {
        header[8..NARROW].copy_from_slice(&(number as u32).to_be_bytes());
        NARROW
    };
    if let Some(place) = datagram.get_mut(..length) {
        place.copy_from_slice(&header[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_original() {
        let mut datagram = [0xaa; 20];
        write_header(&mut datagram, false, 3_000_007, 0x0102_0304);
        assert_eq!(datagram[..13], [0, 0, 0, 3, 0, 0, 0, 7, 1, 2, 3, 4, 0xaa]);
        assert_eq!(header(&datagram, false), Some((3_000_007, 0x0102_0304)));
        write_header(&mut datagram, true, 3_000_007, 5);
        assert_eq!(datagram[8..17], [0, 0, 0, 0, 0, 0, 0, 5, 0xaa]);
        assert_eq!(header(&datagram, true), Some((3_000_007, 5)));
        for wide in [false, true] {
            let length = if wide { WIDE } else { NARROW };
            assert!(header(&datagram[..length], wide).is_some() && header(&datagram[..length - 1], wide).is_none());
            write_header(&mut datagram[..length - 1], wide, 1, 1);
        }
        assert_eq!(header(&datagram, true), Some((3_000_007, 5)), "too short to be written");
    }
}
