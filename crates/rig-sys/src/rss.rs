//! The indirection table of receive-side scaling: which receive queue each value of a device's hash leads to.
//!
//! By ethtool's netlink: commands, attributes and layouts are those of Documentation/netlink/specs/ethtool.yaml and
//! Documentation/networking/ethtool-netlink.rst of the kernel (RSS_GET from Linux 6.3, RSS_SET from 6.17), and by the ioctls
//! ETHTOOL_GRXFHINDIR and ETHTOOL_SRXFHINDIR (linux/ethtool.h) before.

use std::fmt;
use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

use crate::ethtool;

/// linux/genetlink.h, linux/netlink.h.
const CONTROL_FAMILY: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const ERROR: u16 = 2;
const NESTED: u16 = 1 << 15;
/// `struct nlmsghdr` and `struct genlmsghdr`.
const HEADER: usize = 16;
const HEADERS: usize = 20;

/// `ETHTOOL_MSG_RSS_GET`, `ETHTOOL_MSG_RSS_SET`, and what they have.
const GET: u8 = 38;
const SET: u8 = 48;
const RSS_HEADER: u16 = 1;
const RSS_TABLE: u16 = 4;
const DEVICE_INDEX: u16 = 1;

/// The receiver of a request.
pub trait Exchange {
    /// # Errors
    /// When there is no answer.
    fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>>;
}

/// The kernel, in the network namespace of the thread that made it.
#[derive(Debug)]
pub struct Kernel(Socket);

impl Kernel {
    fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }
}

impl Exchange for Kernel {
    fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.0.send(request, 0)?;
        Ok(self.0.recv_from_full()?.0)
    }
}

/// Reads and writes tables.
pub struct Tables<E = Kernel> {
    exchange: E,
    family: u16,
    sequence: u32,
}

impl<E> fmt::Debug for Tables<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("family", &self.family).finish_non_exhaustive()
    }
}

/// The table of interface number `index`, `interface`, of the calling thread's namespace.
///
/// # Errors
/// EOPNOTSUPP where it has none.
pub fn get(index: u32, interface: &str) -> io::Result<Vec<u32>> {
    match Tables::open().and_then(|mut tables| tables.get(index)) {
        // The kernel is older, or has no netlink for ethtool.
        Err(error) if is_unknown(&error) => ethtool::indirection(interface),
        read => read,
    }
}

/// Writes it; an empty one is the driver's own.
///
/// # Errors
/// What the driver refuses.
pub fn set(index: u32, interface: &str, table: &[u32]) -> io::Result<()> {
    match Tables::open().and_then(|mut tables| tables.set(index, table)) {
        Err(error) if is_unknown(&error) => ethtool::set_indirection(interface, table),
        written => written,
    }
}

fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOENT))
}

impl Tables<Kernel> {
    fn open() -> io::Result<Self> {
        Self::over(Kernel::open()?)
    }
}

impl<E: Exchange> Tables<E> {
    /// # Errors
    /// ENOENT where the kernel has no netlink for ethtool.
    pub fn over(exchange: E) -> io::Result<Self> {
        let mut tables = Self { exchange, family: CONTROL_FAMILY, sequence: 0 };
        let answer = tables.ask(GET_FAMILY, REQUEST, &attribute(FAMILY_NAME, b"ethtool\0"))?;
        let id = find(&answer, FAMILY_ID)?.and_then(|id| id.try_into().ok().map(u16::from_ne_bytes));
        tables.family = id.ok_or_else(|| io::Error::other("an answer without the family's number"))?;
        Ok(tables)
    }

    /// The queue of each entry, of the interface with this number.
    ///
    /// # Errors
    /// EOPNOTSUPP where its driver has no table, or the kernel does not know the command.
    pub fn get(&mut self, index: u32) -> io::Result<Vec<u32>> {
        let answer = self.ask(GET, REQUEST, &device(index))?;
        let table = find(&answer, RSS_TABLE)?.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
        Ok(table.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect())
    }

    /// Writes all entries; none of them has the driver make its own.
    ///
    /// # Errors
    /// EOPNOTSUPP where the kernel does not know the command, and what the driver refuses.
    pub fn set(&mut self, index: u32, table: &[u32]) -> io::Result<()> {
        let bytes: Vec<u8> = table.iter().flat_map(|queue| queue.to_ne_bytes()).collect();
        self.ask(SET, REQUEST | ACKNOWLEDGE, &[device(index), attribute(RSS_TABLE, &bytes)].concat()).map(drop)
    }

    /// The attributes of the answer.
    fn ask(&mut self, command: u8, flags: u16, attributes: &[u8]) -> io::Result<Vec<u8>> {
        self.sequence += 1;
        let mut request = Vec::with_capacity(HEADERS + attributes.len());
        request.extend((HEADERS as u32 + attributes.len() as u32).to_ne_bytes());
        request.extend(self.family.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend([0; 4]);
        request.extend([command, 1, 0, 0]);
        request.extend(attributes);
        let answer = self.exchange.exchange(&request)?;
        attributes_of(&answer, self.sequence)
    }
}

/// The request header of ethtool's commands.
fn device(index: u32) -> Vec<u8> {
    attribute(RSS_HEADER | NESTED, &attribute(DEVICE_INDEX, &index.to_ne_bytes()))
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + value.len().next_multiple_of(4));
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn short() -> io::Error {
    io::Error::other("an answer that is cut short")
}

/// Of the first message of a datagram; none of one that only says that all went well.
fn attributes_of(datagram: &[u8], sequence: u32) -> io::Result<Vec<u8>> {
    let word = |at: usize| {
        let bytes = datagram.get(at..at + 4).ok_or_else(short)?;
        Ok::<u32, io::Error>(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let length = word(0)? as usize;
    let kind = word(4)? as u16;
    if word(8)? != sequence {
        return Err(io::Error::other("an answer to another request"));
    }
    if kind == ERROR {
        return match word(HEADER)? as i32 {
            0 => Ok(Vec::new()),
            error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
        };
    }
    datagram.get(HEADERS..length).map(<[u8]>::to_vec).ok_or_else(short)
}

/// The value of an attribute, where it is there.
fn find(mut attributes: &[u8], wanted: u16) -> io::Result<Option<&[u8]>> {
    while let [low, high, kind_low, kind_high, ..] = *attributes {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let value = attributes.get(4..length).ok_or_else(short)?;
        if u16::from_ne_bytes([kind_low, kind_high]) & !NESTED == wanted {
            return Ok(Some(value));
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests as they have to be, and the answers to them, in their order.
    struct Recorded(Vec<(Vec<u8>, Vec<u8>)>);

    impl Exchange for Recorded {
        fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
            let (expected, answer) = self.0.remove(0);
            assert_eq!(request, expected);
            Ok(answer)
        }
    }

    /// From words of 32 bits, as netlink messages are made of them on a little-endian machine.
    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const FAMILY: u32 = 21;

    /// CTRL_CMD_GETFAMILY for "ethtool", and the two attributes of the answer that matter, between others.
    fn family() -> (Vec<u8>, Vec<u8>) {
        let request = [words(&[32, 0x0001_0010, 1, 0, 0x0000_0103, 0x0002_000c]), b"ethtool\0".to_vec()].concat();
        let name = [words(&[0x0002_000c]), b"ethtool\0".to_vec()].concat();
        let answer = [words(&[48, 0x10, 1, 77, 0x0000_0201]), name, words(&[0x0001_0006, FAMILY, 0x0003_0008, 1])];
        (request, answer.concat())
    }

    /// RSS_GET of interface 5: the header (attribute 1, nested) has the interface (attribute 1).
    fn get(sequence: u32) -> Vec<u8> {
        words(&[32, 0x0001_0000 | FAMILY, sequence, 0, 0x0000_0126, 0x8001_000c, 0x0001_0008, 5])
    }

    /// RSS_GET_REPLY: the header, the hash function (3), a table (4) of eight entries, a key (5) of four bytes.
    fn got(sequence: u32) -> Vec<u8> {
        let table = [0, 1, 2, 3, 0, 1, 2, 3];
        let head = [84, FAMILY, sequence, 77, 0x0000_0126, 0x8001_000c, 0x0001_0008, 5, 0x0003_0008, 1, 0x0004_0024];
        [words(&head), words(&table), words(&[0x0005_0008, 0xdead_beef])].concat()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_table_is_read_and_written_as_the_specification_says() {
        // RSS_SET with the header and the table, and what says that it went well.
        let set = words(&[68, 0x0005_0000 | FAMILY, 3, 0, 0x0000_0130, 0x8001_000c, 0x0001_0008, 5, 0x0004_0024]);
        let set = [set, words(&[0, 1, 2, 3, 0, 1, 2, 2])].concat();
        let done = words(&[36, 2, 3, 77, 0, 68, 0, 3, 0]);
        // An empty table brings the driver's own back.
        let reset = words(&[36, 0x0005_0000 | FAMILY, 4, 0, 0x0000_0130, 0x8001_000c, 0x0001_0008, 5, 0x0004_0004]);
        let reset_done = words(&[36, 2, 4, 77, 0, 36, 0, 4, 0]);
        let recorded = Recorded(vec![family(), (get(2), got(2)), (set, done), (reset, reset_done)]);
        let mut tables = Tables::over(recorded).unwrap();
        assert_eq!(tables.get(5).unwrap(), [0, 1, 2, 3, 0, 1, 2, 3]);
        tables.set(5, &[0, 1, 2, 3, 0, 1, 2, 2]).unwrap();
        tables.set(5, &[]).unwrap();
        assert!(tables.exchange.0.is_empty());
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_driver_without_a_table_and_one_that_refuses_say_so() {
        let failed =
            |sequence: u32, error: i32| words(&[36, 2, sequence, 77, error.wrapping_neg() as u32, 32, 0, sequence, 0]);
        for error in [libc::EOPNOTSUPP, libc::EINVAL] {
            let recorded = Recorded(vec![family(), (get(2), failed(2, error))]);
            assert_eq!(Tables::over(recorded).unwrap().get(5).unwrap_err().raw_os_error(), Some(error));
        }
        // A driver that has a key alone.
        let key = words(&[28, FAMILY, 2, 77, 0x0000_0126, 0x0005_0008, 1]);
        let recorded = Recorded(vec![family(), (get(2), key)]);
        let error = Tables::over(recorded).unwrap().get(5).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
        // To another request, and cut short.
        let whole = got(2);
        for answer in [got(9), whole[..40].to_vec(), whole[..7].to_vec(), Vec::new()] {
            let recorded = Recorded(vec![family(), (get(2), answer)]);
            assert!(Tables::over(recorded).unwrap().get(5).is_err());
        }
    }

    #[test]
    fn loopback_has_no_table() {
        let error = super::get(1, "lo").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
        let error = super::set(1, "lo", &[0]).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EPERM)), "{error}");
    }
}
