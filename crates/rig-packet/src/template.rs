//! Packets that are made once and sent many times.

use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::{self, Mac};
use rig_wire::{protocol, tcp, udp};

use super::Nanos;
use super::config::Flood;
use super::family::Family;
use super::family::link::{Gateway, Link, Tunnel};

/// A frame in which addresses, ports, numbers and checksums are missing, with the sums over what is there.
#[derive(Debug)]
pub(super) struct Template {
    frame: Box<[u8]>,
    /// Bytes before the IP header.
    link: usize,
    /// Where a tunnel's IP header starts.
    tunnel: Option<usize>,
    ip: PartialChecksum,
    transport: PartialChecksum,
}

/// Addresses and ports of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct FourTuple<A> {
    pub source: A,
    pub destination: A,
    pub source_port: u16,
    pub destination_port: u16,
}

impl Template {
    /// A TCP segment; `header` gives flags, window and options.
    pub fn tcp<F: Family>(link: &Link<F>, header: &tcp::Header, payload: &[u8]) -> Self {
        let (mut frame, start) = Self::frame::<F>(link, protocol::TCP, header.len(), payload);
        let transport = start + F::HEADER;
        header.write(&mut frame[transport..], payload.len(), PartialChecksum::ZERO).expect("the frame has room");
        frame[transport + tcp::CHECKSUM..][..2].fill(0);
        Self::new(link, frame, start, protocol::TCP)
    }

    pub fn udp<F: Family>(link: &Link<F>, payload: &[u8]) -> Self {
        let (mut frame, start) = Self::frame::<F>(link, protocol::UDP, udp::HEADER, payload);
        let header = udp::Header { source_port: 0, destination_port: 0 };
        let transport = start + F::HEADER;
        header.write(&mut frame[transport..], payload.len(), PartialChecksum::ZERO).expect("the frame has room");
        frame[transport + udp::CHECKSUM..][..2].fill(0);
        Self::new(link, frame, start, protocol::UDP)
    }

    /// Link and IP header with addresses of zero, and where the latter starts.
    fn frame<F: Family>(link: &Link<F>, protocol: u8, transport: usize, payload: &[u8]) -> (Box<[u8]>, usize) {
        let (outer, start) = (link.outer(), link.prefix());
        let length = transport + payload.len();
        let mut frame = vec![0; start + F::HEADER + length].into_boxed_slice();
        if let Some(tunnel) = &link.tunnel {
            tunnel.write(&mut frame, Mac::default(), start - outer + F::HEADER + length, 0);
        }
        let gateway = match link.gateway {
            Gateway::Known(mac) => mac,
            Gateway::Address(_) => Mac::default(),
        };
        link.header(gateway, F::ETHERTYPE).write(&mut frame[outer..]).expect("the frame has room");
        F::write(&mut frame[start..], (F::UNSPECIFIED, F::UNSPECIFIED), protocol, (link.hop_limit, link.tos), length);
        frame[start + F::HEADER + transport..].copy_from_slice(payload);
        (frame, start)
    }

    fn new<F: Family>(link: &Link<F>, mut frame: Box<[u8]>, start: usize, protocol: u8) -> Self {
        let (header, rest) = frame[start..].split_at_mut(F::HEADER);
        let transport = PartialChecksum::ZERO.bytes(rest).word(protocol.into()).long(rest.len() as u32);
        if header[0] >> 4 == 4 {
            // The header was complete: without its checksum it is not.
            header[10..12].fill(0);
        }
        let ip = PartialChecksum::ZERO.bytes(header);
        Self { frame, link: start, tunnel: link.tunnel.as_ref().map(|tunnel| tunnel.start()), ip, transport }
    }

    /// Where the frames go first: to the gateway, of the tunnel's link if there is one.
    pub fn set_destination(&mut self, mac: Mac) {
        self.frame[..ethernet::HEADER][..6].copy_from_slice(&mac.0);
    }

    /// Bytes of the frame.
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Fills `frame`, which is as long as this, with a segment.
    #[inline(always)]
    pub fn fill_tcp<F: Family>(
        &self,
        frame: &mut [u8],
        tuple: FourTuple<F::Address>,
        sequence: u32,
        acknowledgment: u32,
    ) {
        frame.copy_from_slice(&self.frame);
        let sum = self.addressed::<F>(frame, tuple, 0).long(sequence).long(acknowledgment);
        let header = &mut frame[self.link + F::HEADER..][..tcp::HEADER];
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        header[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
        header[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
    }

    /// Fills `frame`, which has room for this and `data`, with a segment that also has `flags` and carries `data`. The
    /// template has none.
    pub fn fill_data<F: Family>(
        &self,
        frame: &mut [u8],
        tuple: FourTuple<F::Address>,
        (sequence, acknowledgment): (u32, u32),
        flags: u8,
        data: &[u8],
    ) {
        let (head, body) = frame.split_at_mut(self.frame.len());
        head.copy_from_slice(&self.frame);
        body.copy_from_slice(data);
        let added = data.len() as u16;
        let sum = self.addressed::<F>(head, tuple, added).long(sequence).long(acknowledgment);
        let header = &mut head[self.link + F::HEADER..][..tcp::HEADER];
        let before = header[13];
        header[13] |= flags;
        let sum = sum.word((header[13] - before).into()).plus(PartialChecksum::ZERO.bytes(data));
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        header[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
        header[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
    }

    /// Fills `frame`, which is as long as this, with a datagram.
    #[inline(always)]
    pub fn fill_udp<F: Family>(&self, frame: &mut [u8], tuple: FourTuple<F::Address>) {
        frame.copy_from_slice(&self.frame);
        let sum = self.addressed::<F>(frame, tuple, 0);
        frame[self.link + F::HEADER..][udp::CHECKSUM..][..2].copy_from_slice(&sum.udp_checksum().to_be_bytes());
    }

    /// Fills `frame`, which is as long as this, with a datagram whose payload begins with `number`. The template's begins
    /// with four bytes of zero.
    #[inline(always)]
    pub fn fill_numbered<F: Family>(&self, frame: &mut [u8], tuple: FourTuple<F::Address>, number: u32) {
        frame.copy_from_slice(&self.frame);
        let sum = self.addressed::<F>(frame, tuple, 0).long(number);
        let datagram = &mut frame[self.link + F::HEADER..];
        datagram[udp::HEADER..][..4].copy_from_slice(&number.to_be_bytes());
        datagram[udp::CHECKSUM..][..2].copy_from_slice(&sum.udp_checksum().to_be_bytes());
    }

    /// Fills `frame`, which is as long as this, with a datagram whose payload begins with the time `now` and `number`. The template's begins
    /// with zeros there.
    #[inline(always)]
    pub fn fill_stamped<F: Family>(&self, frame: &mut [u8], tuple: FourTuple<F::Address>, now: Nanos, number: u32) {
        frame.copy_from_slice(&self.frame);
        let sum = self.addressed::<F>(frame, tuple, 0).long((now >> 32) as u32).long(now as u32).long(number);
        let datagram = &mut frame[self.link + F::HEADER..];
        let (time, rest) = datagram[udp::HEADER..][..Flood::STAMP].split_at_mut(8);
        time.copy_from_slice(&now.to_be_bytes());
        rest.copy_from_slice(&number.to_be_bytes());
        datagram[udp::CHECKSUM..][..2].copy_from_slice(&sum.udp_checksum().to_be_bytes());
    }

    /// Puts addresses and ports in; returns the transport's sum with them.
    #[inline(always)]
    fn addressed<F: Family>(&self, frame: &mut [u8], tuple: FourTuple<F::Address>, added: u16) -> PartialChecksum {
        let packet = &mut frame[self.link..];
        F::finish(packet, tuple.source, tuple.destination, self.ip, added);
        let ports = u32::from(tuple.source_port) << 16 | u32::from(tuple.destination_port);
        packet[F::HEADER..F::HEADER + 4].copy_from_slice(&ports.to_be_bytes());
        let addresses = F::sum(tuple.source).plus(F::sum(tuple.destination));
        if let Some(start) = self.tunnel {
            let hash = ports ^ u32::from(addresses.folded()) << 8;
            Tunnel::patch(frame, start, Tunnel::source_port(hash), added);
        }
        self.transport.plus(addresses).long(ports).word(added)
    }
}
