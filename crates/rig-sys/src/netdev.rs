//! What an interface can do with XDP (generic netlink family `netdev`, Linux 6.3;
//! Documentation/netlink/specs/netdev.yaml of the kernel).

use std::fmt;
use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

/// `enum netdev_xdp_act`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// Its driver runs XDP programs, and redirects what they say: NETDEV_XDP_ACT_BASIC and NETDEV_XDP_ACT_REDIRECT.
    pub fn runs_programs(self) -> bool {
        self.0 & 3 == 3
    }

    /// Frames can be redirected into the interface. With veth only while its peer receives by NAPI: has a program, or
    /// generic receive offload switched on.
    pub fn takes_redirected(self) -> bool {
        self.0 & 4 != 0
    }
}

/// Asks about interfaces of the network namespace in which it was made.
pub struct Questions {
    socket: Socket,
    family: u16,
    sequence: u32,
}

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Questions").field("family", &self.family).finish_non_exhaustive()
    }
}

const CONTROL_FAMILY: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;
const REQUEST: u16 = 1;
/// NLM_F_ROOT and NLM_F_MATCH.
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Of `struct nlmsghdr` and `struct genlmsghdr` together.
const HEADERS: usize = 20;

impl Questions {
    /// # Errors
    /// ENOENT where the kernel does not have the family.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let mut questions = Self { socket, family: CONTROL_FAMILY, sequence: 0 };
        let id = questions.ask(GET_FAMILY, FAMILY_NAME, b"netdev\0", FAMILY_ID)?;
        questions.family = u16::from_ne_bytes(number(&id)?);
        Ok(questions)
    }

    /// What interface number `index` can do now.
    pub fn features(&mut self, index: u32) -> io::Result<Features> {
        let features = self.ask(GET_DEVICE, DEVICE_INDEX, &index.to_ne_bytes(), DEVICE_FEATURES)?;
        Ok(Features(u64::from_ne_bytes(number(&features)?)))
    }

    /// Sends a command with one attribute and returns one attribute of the answer.
    fn ask(&mut self, command: u8, attribute: u16, value: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
        self.send(command, REQUEST, attribute, value)?;
        let (answer, _) = self.socket.recv_from_full()?;
        find(&answer, self.sequence, wanted)?.ok_or_else(|| io::Error::other("an answer without what was asked for"))
    }

    /// Sends a command with one attribute and returns of each of its answers those of the wanted attributes that it has.
    pub(crate) fn dump<const N: usize>(
        &mut self,
        command: u8,
        attribute: u16,
        value: &[u8],
        wanted: [u16; N],
    ) -> io::Result<Vec<[Option<Vec<u8>>; N]>> {
        self.send(command, REQUEST | DUMP, attribute, value)?;
        let mut all = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = &datagram[..];
            while let Some(length) = rest.first_chunk().map(|length| u32::from_ne_bytes(*length) as usize) {
                let short = || io::Error::other("an answer that is cut short");
                let answer = rest.get(..length).filter(|answer| answer.len() >= HEADER).ok_or_else(short)?;
                if u16::from_ne_bytes([answer[4], answer[5]]) == DONE {
                    return Ok(all);
                }
                let mut found = [const { None }; N];
                for (found, wanted) in found.iter_mut().zip(wanted) {
                    *found = find(answer, self.sequence, wanted)?;
                }
                all.push(found);
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }

    fn send(&mut self, command: u8, flags: u16, attribute: u16, value: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = Vec::with_capacity(64);
        message.extend([0; 4]); // length, below
        message.extend(self.family.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]); // port: the kernel fills it in
        message.extend([command, 1, 0, 0]);
        message.extend((4 + value.len() as u16).to_ne_bytes());
        message.extend(attribute.to_ne_bytes());
        message.extend(value);
        message.resize(message.len().next_multiple_of(4), 0);
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_ne_bytes());
        self.socket.send(&message, 0).map(|_| ())
    }
}

pub(crate) fn number<const N: usize>(bytes: &[u8]) -> io::Result<[u8; N]> {
    bytes.try_into().map_err(|_| io::Error::other("a number of another length than expected"))
}

/// The attribute of an answer to request `sequence`, if it has it.
fn find(answer: &[u8], sequence: u32, wanted: u16) -> io::Result<Option<Vec<u8>>> {
    let short = || io::Error::other("an answer that is cut short");
    let half = |at: usize| answer.get(at..at + 2).map(|b| u16::from_ne_bytes([b[0], b[1]])).ok_or_else(short);
    let word =
        |at: usize| answer.get(at..at + 4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).ok_or_else(short);
    if word(8)? != sequence {
        return Err(io::Error::other("an answer to another request"));
    }
    if half(4)? == ERROR {
        return Err(io::Error::from_raw_os_error(-(word(16)? as i32)));
    }
    let mut at = HEADERS;
    while at + 4 <= answer.len() {
        let length = usize::from(half(at)?);
        let value = answer.get(at + 4..at + length).ok_or_else(short)?;
        if half(at + 2)? & 0x3fff == wanted {
            return Ok(Some(value.to_vec()));
        }
        at += length.next_multiple_of(4);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((16 + body.len() as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn an_attribute_is_found_behind_others_and_errors_are_told() {
        let mut body = vec![1, 1, 0, 0];
        body.extend([5u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
        body.extend([9, 0, 0, 0]);
        body.extend([12u16.to_ne_bytes(), 3u16.to_ne_bytes()].concat());
        body.extend(0x67u64.to_ne_bytes());
        let answer = message(30, &body);
        assert_eq!(find(&answer, 7, 3).unwrap().unwrap(), 0x67u64.to_ne_bytes());
        assert!(find(&answer, 8, 3).is_err(), "another sequence number");
        assert_eq!(find(&answer, 7, 4).unwrap(), None, "no such attribute");
        for length in 0..answer.len() {
            assert!(!matches!(find(&answer[..length], 7, 3), Ok(Some(_))), "{length} bytes of it");
        }
        let error = message(ERROR, &(-libc::ENODEV).to_ne_bytes());
        assert_eq!(find(&error, 7, 3).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_loopback_interface_takes_nothing_that_is_redirected() {
        match Questions::open() {
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}"),
            Ok(mut questions) => {
                assert!(!questions.features(1).unwrap().takes_redirected());
                assert!(questions.features(u32::MAX >> 1).is_err());
            }
        }
    }
}
