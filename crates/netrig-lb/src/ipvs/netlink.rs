//! Messages of netlink and generic netlink as bytes (netlink(7), linux/netlink.h, linux/genetlink.h). What is read comes from another
//! program: lengths that do not fit end the reading, as in the kernel's `netlink_rcv_skb` and `nla_for_each_attr`.

/// `sizeof(struct nlmsghdr)`.
pub(super) const HEADER: usize = 16;
/// The same with `struct genlmsghdr` behind it.
const GENERIC: usize = HEADER + 4;
/// `sizeof(struct nlattr)`.
const ATTRIBUTE: usize = 4;

pub(super) const REQUEST: u16 = 0x1;
pub(super) const MULTI: u16 = 0x2;
pub(super) const ACK: u16 = 0x4;
/// NLM_F_ROOT and NLM_F_MATCH.
pub(super) const DUMP: u16 = 0x300;

const ERROR: u16 = 0x2;
const DONE: u16 = 0x3;
/// NLA_F_NESTED; the other flag is NLA_F_NET_BYTEORDER.
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

const fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    /// With its header.
    pub(super) bytes: &'a [u8],
    /// A family of generic netlink, or below 16 a message about messages.
    pub(super) kind: u16,
    pub(super) flags: u16,
    sequence: u32,
    port: u32,
}

/// Those of a datagram.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut left = datagram;
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(left, 0)?).ok()?;
        if length < HEADER {
            return None;
        }
        let bytes = left.get(..length)?;
        left = left.get(aligned(length)..).unwrap_or_default();
        let (kind, flags) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?);
        Some(Message { bytes, kind, flags, sequence: u32_at(bytes, 8)?, port: u32_at(bytes, 12)? })
    })
}

impl<'a> Message<'a> {
    /// The command of a message of generic netlink, and its attributes.
    pub(super) fn generic(&self) -> Option<(u8, Attributes<'a>)> {
        let command = *self.bytes.get(HEADER)?;
        Some((command, Attributes(self.bytes.get(GENERIC..)?)))
    }

    pub(super) fn asks(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// That it was done (0), or by which number of errno(3) it failed; then with the whole request, as without NETLINK_CAP_ACK.
    pub(super) fn outcome(&self, errno: i32) -> Vec<u8> {
        let mut answer = Writer::begin(self, ERROR, 0);
        answer.bytes.extend((-errno).to_ne_bytes());
        answer.bytes.extend(if errno == 0 { &self.bytes[..HEADER] } else { self.bytes });
        answer.end()
    }

    /// What ends the answers to a dump.
    pub(super) fn done(&self) -> Vec<u8> {
        let mut answer = Writer::begin(self, DONE, MULTI);
        answer.bytes.extend(0_i32.to_ne_bytes());
        answer.end()
    }
}

/// Attributes, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    fn each(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let length = usize::from(u16_at(left, 0)?);
            let kind = u16_at(left, 2)? & TYPE_MASK;
            let value = left.get(ATTRIBUTE..length)?;
            left = left.get(aligned(length)..).unwrap_or_default();
            Some((kind, value))
        })
    }

    /// The last of this type counts, as in the kernel.
    fn value(self, wanted: u16) -> Option<&'a [u8]> {
        self.each().filter(|(kind, _)| *kind == wanted).last().map(|(_, value)| value)
    }

    pub(super) fn nested(self, wanted: u16) -> Option<Self> {
        self.value(wanted).map(Self)
    }

    pub(super) fn u8(self, wanted: u16) -> Option<u8> {
        self.value(wanted)?.first().copied()
    }

    pub(super) fn u16(self, wanted: u16) -> Option<u16> {
        u16_at(self.value(wanted)?, 0)
    }

    /// In the network's order of bytes.
    pub(super) fn be16(self, wanted: u16) -> Option<u16> {
        self.u16(wanted).map(u16::from_be)
    }

    pub(super) fn u32(self, wanted: u16) -> Option<u32> {
        u32_at(self.value(wanted)?, 0)
    }

    pub(super) fn array<const N: usize>(self, wanted: u16) -> Option<[u8; N]> {
        self.value(wanted)?.get(..N)?.try_into().ok()
    }

    /// Up to the first zero. What is no UTF-8 is no name of anything.
    pub(super) fn text(self, wanted: u16) -> Option<&'a str> {
        let value = self.value(wanted)?;
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        std::str::from_utf8(&value[..end]).ok()
    }
}

/// A message that is being written.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn begin(to: &Message<'_>, kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(to.sequence.to_ne_bytes());
        bytes.extend(to.port.to_ne_bytes());
        Self { bytes }
    }

    /// An answer by a family of generic netlink.
    pub(super) fn generic(to: &Message<'_>, flags: u16, command: u8, version: u8) -> Self {
        let mut answer = Self::begin(to, to.kind, flags);
        answer.bytes.extend([command, version, 0, 0]);
        answer
    }

    pub(super) fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        // What is written here is far shorter than the 64 KiB that an attribute may have.
        let length = (ATTRIBUTE + value.len()) as u16;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self
    }

    pub(super) fn put_u16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    pub(super) fn put_be16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    pub(super) fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    pub(super) fn put_u64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    pub(super) fn put_text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.put(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(super) fn nest(&mut self, kind: u16, within: impl FnOnce(&mut Self)) -> &mut Self {
        let at = self.bytes.len();
        self.put(kind | NESTED, &[]);
        within(self);
        let length = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self.bytes
    }
}
