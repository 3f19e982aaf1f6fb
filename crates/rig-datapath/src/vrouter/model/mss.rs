//! How large TCP's segments may be that come back by a tunnel.

use rig_wire::checksum::update;
use rig_wire::protocol::TCP;

use super::packet::{Packet, word};

const SYN: u8 = 0x02;
const TCP_HEADER: usize = 20;
const CHECKSUM: usize = 16;
const END: u8 = 0;
const NOTHING: u8 = 1;
/// Of the maximum segment size: its kind and its length (RFC 9293, 3.2).
const MSS: (u8, u8) = (2, 4);

/// Lowers the maximum segment size of a SYN to what fits into IP packets of `mtu` bytes, whose headers count without options (RFC 6691).
pub(super) fn lower(packet: &mut [u8], p: &Packet, mtu: u16) {
    if p.tcp_flags & SYN == 0 || p.protocol != TCP {
        return;
    }
    let Some(tcp) = packet.get_mut(p.header..p.length) else { return };
    let Some(at) = option_at(tcp) else { return };
    let headers = TCP_HEADER as u16 + if p.is_v6() { 40 } else { 20 };
    let (Some(most), Some(size)) = (mtu.checked_sub(headers), word(tcp, at)) else { return };
    if size <= most {
        return;
    }
    // The words of the checksum that the option is in, which may begin in the middle of one.
    let words = [at / 2 * 2, at.div_ceil(2) * 2];
    let old = words.map(|at| word(tcp, at));
    tcp[at..at + 2].copy_from_slice(&most.to_be_bytes());
    let new = words.map(|at| word(tcp, at));
    let changed = if words[0] == words[1] { 1 } else { 2 };
    for (old, new) in old.into_iter().zip(new).take(changed) {
        if let (Some(old), Some(new), Some(checksum)) = (old, new, word(tcp, CHECKSUM)) {
            tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&update(checksum, old, new).to_be_bytes());
        }
    }
}

/// Where the value of the MSS option is.
fn option_at(tcp: &[u8]) -> Option<usize> {
    let end = usize::from(tcp.get(12)? >> 4) * 4;
    let options = tcp.get(..end)?;
    let mut at = TCP_HEADER;
    loop {
        // Behind each option is room for another one of four bytes, or there is no such option.
        let rest = options.get(at..).filter(|rest| rest.len() >= usize::from(MSS.1))?;
        match (rest[0], rest[1]) {
            (NOTHING, _) => at += 1,
            MSS => return Some(at + 2),
            (END, _) | (_, 0 | 1) => return None,
            (_, length) => at += usize::from(length),
        }
    }
}
