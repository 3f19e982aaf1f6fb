//! Captured packets as a file that Wireshark and tcpdump read: pcapng (draft-ietf-opsawg-pcapng), of which a section, interfaces and packets
//! with a comment are all that is needed here.

use std::io::{self, Write};

/// Block types and options (section 4 and 3.5 there).
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
/// Nanoseconds: ten to the minus so many seconds.
const NANOSECONDS: u8 = 9;

/// A packet for the file.
#[derive(Debug, Clone, Copy)]
pub struct FilePacket<'a> {
    pub device: &'a str,
    /// Since 1970-01-01 00:00 UTC, nanoseconds.
    pub time: u64,
    /// Of the whole frame, bytes.
    pub length: u32,
    pub bytes: &'a [u8],
    pub comment: &'a str,
}

/// Writes a file from its beginning.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    out: W,
    /// Devices that the file has, in its order.
    devices: Vec<String>,
    most: u32,
}

fn padded(bytes: &[u8], to: &mut Vec<u8>) {
    to.extend(bytes);
    to.resize(to.len().next_multiple_of(4), 0);
}

fn option(kind: u16, value: &[u8], to: &mut Vec<u8>) {
    // Comments here are far shorter.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    to.extend(kind.to_ne_bytes());
    to.extend((value.len() as u16).to_ne_bytes());
    padded(value, to);
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 12).to_ne_bytes();
    [&kind.to_ne_bytes()[..], &length, body, &length].concat()
}

impl<W: Write> PcapngWriter<W> {
    /// With the file's header. `most` bytes are kept of each packet.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn begin(mut out: W, most: u32) -> io::Result<Self> {
        let mut body = BYTE_ORDER.to_ne_bytes().to_vec();
        body.extend(1_u16.to_ne_bytes());
        body.extend(0_u16.to_ne_bytes());
        // Its length is not known.
        body.extend((-1_i64).to_ne_bytes());
        option(USER_APPLICATION, concat!("netrig ", env!("CARGO_PKG_VERSION")).as_bytes(), &mut body);
        option(0, &[], &mut body);
        out.write_all(&block(SECTION, &body))?;
        out.flush()?;
        Ok(Self { out, devices: Vec::new(), most })
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn add(&mut self, packet: FilePacket<'_>) -> io::Result<()> {
        let known = self.devices.iter().position(|device| device == packet.device);
        let number = match known {
            Some(number) => number,
            None => {
                self.devices.push(packet.device.to_owned());
                let mut body = ETHERNET.to_ne_bytes().to_vec();
                body.extend(0_u16.to_ne_bytes());
                body.extend(self.most.to_ne_bytes());
                option(INTERFACE_NAME, packet.device.as_bytes(), &mut body);
                option(TIME_RESOLUTION, &[NANOSECONDS], &mut body);
                option(0, &[], &mut body);
                self.out.write_all(&block(INTERFACE, &body))?;
                self.devices.len() - 1
            }
        };
        let mut body = (number as u32).to_ne_bytes().to_vec();
        body.extend(((packet.time >> 32) as u32).to_ne_bytes());
        body.extend((packet.time as u32).to_ne_bytes());
        body.extend((packet.bytes.len() as u32).to_ne_bytes());
        body.extend(packet.length.to_ne_bytes());
        padded(packet.bytes, &mut body);
        option(COMMENT, packet.comment.as_bytes(), &mut body);
        option(0, &[], &mut body);
        self.out.write_all(&block(ENHANCED_PACKET, &body))
    }

    /// # Errors
    /// Those of `out`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    /// Type and body of each block of a file.
    fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let word = |bytes: &[u8]| u32::from_ne_bytes(bytes[..4].try_into().unwrap());
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let length = word(&file[4..]) as usize;
            assert_eq!((length % 4, word(&file[length - 4..length]) as usize), (0, length));
            blocks.push((word(file), file[8..length - 4].to_vec()));
            file = &file[length..];
        }
        blocks
    }

    #[test]
    fn each_packet_has_its_interface_its_bytes_and_its_comment() {
        let mut file = Vec::new();
        let mut writer = PcapngWriter::begin(&mut file, 96).unwrap();
        for device in ["eth7", "eth9", "eth7"] {
            let packet = FilePacket { device, time: 1 << 33 | 5, length: 60, bytes: b"frame", comment: "no_backend" };
            writer.add(packet).unwrap();
        }
        let blocks = blocks(&file);
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION, INTERFACE, ENHANCED_PACKET, INTERFACE, ENHANCED_PACKET, ENHANCED_PACKET]);
        let name = [2_u16.to_ne_bytes(), 4_u16.to_ne_bytes()].concat();
        assert_eq!(blocks[3].1[8..16], [&name[..], b"eth9"].concat());
        let words = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
        let (head, rest) = blocks[4].1.split_at(20);
        assert_eq!(head, words(&[1, 2, 5, 5, 60]));
        let comment = [1_u16.to_ne_bytes(), 10_u16.to_ne_bytes()].concat();
        assert_eq!(rest, [&b"frame\0\0\0"[..], &comment, b"no_backend\0\0", &[0; 4]].concat());
        assert_eq!(blocks[5].1[..4], words(&[0]));
    }
}
