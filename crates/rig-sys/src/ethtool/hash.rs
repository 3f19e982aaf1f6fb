//! Receive-side scaling: what of a packet a device hashes, by which function and key, and the queue of each value of the hash.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::ioctl;
use crate::error::{Error, Result};

/// The flows whose spreading over queues can be asked for (`TCP_V4_FLOW` and so on of linux/ethtool.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    TcpV4 = 1,
    UdpV4 = 2,
    TcpV6 = 5,
    UdpV6 = 6,
}

impl Flow {
    pub const ALL: [Self; 4] = [Self::TcpV4, Self::UdpV4, Self::TcpV6, Self::UdpV6];

    /// As `ethtool -n INTERFACE rx-flow-hash` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpV4 => "tcp4",
            Self::UdpV4 => "udp4",
            Self::TcpV6 => "tcp6",
            Self::UdpV6 => "udp6",
        }
    }
}

/// What of a packet is hashed: RXH_L2DA and so on of linux/ethtool.h. In text they are the letters of `ethtool -N INTERFACE rx-flow-hash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashFields(u64);

impl HashFields {
    /// Both addresses: RXH_IP_SRC, RXH_IP_DST.
    pub const ADDRESSES: Self = Self(0x3 << 4);
    /// And both ports: RXH_L4_B_0_1, RXH_L4_B_2_3.
    pub const ENDS: Self = Self(0xf << 4);
    const LETTERS: [(char, u64); 8] = [
        ('m', 1 << 1),
        ('v', 1 << 2),
        ('t', 1 << 3),
        ('s', 1 << 4),
        ('d', 1 << 5),
        ('f', 1 << 6),
        ('n', 1 << 7),
        ('r', 1 << 31),
    ];
}

impl fmt::Display for HashFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: String =
            Self::LETTERS.iter().filter(|(_, bit)| self.0 & bit != 0).map(|(letter, _)| *letter).collect();
        let rest = Self::LETTERS.iter().fold(self.0, |rest, (_, bit)| rest & !bit);
        match (known.is_empty(), rest) {
            (true, 0) => f.write_str("-"),
            (_, 0) => f.write_str(&known),
            _ => write!(f, "{known}+{rest:x}"),
        }
    }
}

impl FromStr for HashFields {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let (letters, rest) = text.split_once('+').unwrap_or((text, "0"));
        let rest = u64::from_str_radix(rest, 16).map_err(drop)?;
        if letters == "-" {
            return Ok(Self(rest));
        }
        let bit = |letter: char| Self::LETTERS.iter().find(|(own, _)| *own == letter).map(|(_, bit)| *bit).ok_or(());
        letters.chars().try_fold(rest, |all, letter| Ok(all | bit(letter)?)).map(Self)
    }
}

/// How an interface spreads what it receives over its queues: by the Toeplitz hash over both addresses and both ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveHash {
    pub key: Vec<u8>,
    /// The queue for each value of the hash modulo the number of entries.
    pub table: Vec<u32>,
}

/// As a device has it, whichever its function is. What its driver keeps to itself is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HashSettings {
    /// A bit of ETH_RSS_HASH_TOP and so on.
    function: u8,
    /// RXH_XFRM_SYM_XOR and so on: what is done to addresses and ports first, so that both directions of a flow have one hash.
    transform: u8,
    pub key: Vec<u8>,
    /// The queue for each value of the hash modulo the number of entries.
    pub table: Vec<u32>,
}

impl HashSettings {
    const TOEPLITZ: u8 = 1;

    /// As `ethtool -x` calls it, and what comes before it.
    pub fn function(&self) -> String {
        let name = match self.function {
            Self::TOEPLITZ => "toeplitz".to_owned(),
            2 => "xor".to_owned(),
            4 => "crc32".to_owned(),
            other => format!("function {other:#x}"),
        };
        match self.transform {
            0 => name,
            1 => format!("{name} symmetric-xor"),
            2 => format!("{name} symmetric-or-xor"),
            other => format!("{name} transform {other:#x}"),
        }
    }

    /// `None` when it is no plain Toeplitz hash, or the driver keeps the key or the table to itself.
    fn hash(self) -> Option<ReceiveHash> {
        let Self { function, transform, key, table } = self;
        let known = function == Self::TOEPLITZ && transform == 0 && !table.is_empty() && !key.is_empty();
        known.then_some(ReceiveHash { key, table })
    }
}

/// `struct ethtool_rxnfc` as far as ETHTOOL_GRXFH goes.
#[repr(C)]
struct EthtoolHashFields {
    command: u32,
    flow: u32,
    fields: u64,
}

/// `struct ethtool_rxnfc`, all of it: the kernel writes so much for other commands than ETHTOOL_GRXFH.
#[repr(C)]
struct EthtoolRules {
    command: u32,
    flow: u32,
    data: u64,
    /// `struct ethtool_rx_flow_spec`.
    rule: [u64; 21],
    count: u32,
    _padding: u32,
}

/// `struct ethtool_rxfh`.
#[repr(C)]
struct EthtoolReceiveHash {
    command: u32,
    context: u32,
    table_size: u32,
    key_size: u32,
    function: u8,
    transform: u8,
    reserved: [u8; 6],
    /// The table, one word each, then the bytes of the key.
    words: [u32; Self::WORDS],
}

impl EthtoolReceiveHash {
    const GET: u32 = 0x46;
    const SET: u32 = 0x47;
    /// Room for every table and key that there is.
    const WORDS: usize = 8192;
    /// `ETH_RXFH_INDIR_NO_CHANGE`.
    const SAME_TABLE: u32 = u32::MAX;

    fn new(command: u32, table_size: u32, key_size: u32) -> Box<Self> {
        Box::new(Self {
            command,
            context: 0,
            table_size,
            key_size,
            function: 0,
            transform: 0,
            reserved: [0; 6],
            words: [0; Self::WORDS],
        })
    }

    fn fits(&self) -> bool {
        self.table_size as usize + (self.key_size as usize).div_ceil(4) <= Self::WORDS
    }

    /// `None` where the sizes are none that were asked for.
    fn settings(&self) -> Option<HashSettings> {
        let (table, rest) = self.words.split_at_checked(self.table_size as usize)?;
        let key = rest.iter().flat_map(|word| word.to_ne_bytes()).take(self.key_size as usize).collect();
        Some(HashSettings { function: self.function, transform: self.transform, key, table: table.to_vec() })
    }

    /// Of the key alone: function 0 is the one that there is.
    fn with_key(key: &[u8], transform: u8) -> Option<Box<Self>> {
        let mut new = Self::new(Self::SET, Self::SAME_TABLE, u32::try_from(key.len()).ok()?);
        new.transform = transform;
        let words = new.words.get_mut(..key.len().div_ceil(4))?;
        for (word, bytes) in words.iter_mut().zip(key.chunks(4)) {
            let mut whole = [0; 4];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u32::from_ne_bytes(whole);
        }
        Some(new)
    }
}

/// What of the packets of `flow` is hashed at `interface` of the calling thread's namespace.
///
/// # Errors
/// EOPNOTSUPP when the driver does not tell.
pub fn hash_fields(interface: &str, flow: Flow) -> Result<HashFields> {
    const ETHTOOL_GRXFH: u32 = 0x29;
    let mut hashed = EthtoolHashFields { command: ETHTOOL_GRXFH, flow: flow as u32, fields: 0 };
    ioctl(interface, &mut hashed).map_err(|error| failed(interface, error))?;
    Ok(HashFields(hashed.fields))
}

/// Rules of `ethtool -N` that say where packets go, before the hash does, at `interface` of the calling thread's namespace.
///
/// # Errors
/// EOPNOTSUPP when the driver has none.
pub fn receive_rules(interface: &str) -> Result<u32> {
    const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
    let mut rules =
        EthtoolRules { command: ETHTOOL_GRXCLSRLCNT, flow: 0, data: 0, rule: [0; 21], count: 0, _padding: 0 };
    ioctl(interface, &mut rules).map_err(|error| failed(interface, error))?;
    Ok(rules.count)
}

/// Function, key and table of `interface` of the calling thread's namespace.
///
/// # Errors
/// EOPNOTSUPP when the driver does not tell.
pub fn hash_settings(interface: &str) -> Result<HashSettings> {
    // Without room it says how much there is to read.
    let mut sizes = EthtoolReceiveHash::new(EthtoolReceiveHash::GET, 0, 0);
    ioctl(interface, &mut *sizes).map_err(|error| failed(interface, error))?;
    let too_long = || failed(interface, io::ErrorKind::FileTooLarge.into());
    if !sizes.fits() {
        return Err(too_long());
    }
    let mut read = EthtoolReceiveHash::new(EthtoolReceiveHash::GET, sizes.table_size, sizes.key_size);
    ioctl(interface, &mut *read).map_err(|error| failed(interface, error))?;
    read.settings().ok_or_else(too_long)
}

/// Has `interface` of the calling thread's namespace hash by another key of the same length; function and table stay.
///
/// # Errors
/// What the driver refuses.
pub fn set_hash_key(interface: &str, key: &[u8]) -> Result<()> {
    let failed = |error| Error::new(format!("set the key of the receive hash of {interface}"), error);
    let now = hash_settings(interface)?;
    let new = EthtoolReceiveHash::with_key(key, now.transform);
    let mut new = new.ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    ioctl(interface, &mut *new).map_err(failed)
}

/// How `interface` of the calling thread's namespace spreads `flow`; `None` when it does so in another way.
///
/// # Errors
/// EOPNOTSUPP when the driver does not tell.
pub fn receive_hash(interface: &str, flow: Flow) -> Result<Option<ReceiveHash>> {
    match hash_fields(interface, flow)? {
        HashFields::ENDS => Ok(hash_settings(interface)?.hash()),
        _ => Ok(None),
    }
}

fn failed(interface: &str, error: io::Error) -> Error {
    Error::new(format!("read how {interface} spreads what it receives"), error)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn table_and_key_are_where_the_kernel_puts_them() {
        assert_eq!(offset_of!(EthtoolReceiveHash, words), 24, "rss_config of struct ethtool_rxfh");
        assert_eq!(
            (offset_of!(EthtoolRules, count), size_of::<EthtoolRules>()),
            (184, 192),
            "rule_cnt of struct ethtool_rxnfc"
        );
        let mut read = EthtoolReceiveHash::new(EthtoolReceiveHash::GET, 4, 6);
        read.function = HashSettings::TOEPLITZ;
        read.words[..4].copy_from_slice(&[0, 1, 2, 1]);
        read.words[4] = u32::from_ne_bytes([10, 11, 12, 13]);
        read.words[5] = u32::from_ne_bytes([14, 15, 16, 17]);
        let settings = read.settings().unwrap();
        assert_eq!(settings.function(), "toeplitz");
        let known = ReceiveHash { key: vec![10, 11, 12, 13, 14, 15], table: vec![0, 1, 2, 1] };
        assert_eq!(settings.clone().hash(), Some(known));
        let symmetric = HashSettings { transform: 1, ..settings.clone() };
        assert_eq!((symmetric.function(), symmetric.hash()), ("toeplitz symmetric-xor".to_owned(), None));
        let other = HashSettings { function: 2, ..settings };
        assert_eq!((other.function(), other.hash()), ("xor".to_owned(), None));
        let mut hidden = EthtoolReceiveHash::new(EthtoolReceiveHash::GET, 0, 6);
        hidden.function = HashSettings::TOEPLITZ;
        assert_eq!(hidden.settings().unwrap().hash(), None, "no table");
        assert!(!EthtoolReceiveHash::new(EthtoolReceiveHash::GET, u32::MAX, u32::MAX).fits());
        assert!(EthtoolReceiveHash::new(EthtoolReceiveHash::GET, u32::MAX, 0).settings().is_none());
    }

    #[test]
    fn a_key_is_written_without_the_table() {
        let written = EthtoolReceiveHash::with_key(&[10, 11, 12, 13, 14, 15], 1).unwrap();
        assert_eq!((written.table_size, written.key_size, written.function, written.transform), (u32::MAX, 6, 0, 1));
        assert_eq!(written.words[0].to_ne_bytes(), [10, 11, 12, 13]);
        assert_eq!(written.words[1].to_ne_bytes(), [14, 15, 0, 0]);
        assert!(EthtoolReceiveHash::with_key(&vec![0; 4 * EthtoolReceiveHash::WORDS + 1], 0).is_none());
    }

    #[test]
    fn fields_are_the_letters_of_ethtool() {
        for (fields, letters) in [
            (HashFields::ENDS, "sdfn"),
            (HashFields::ADDRESSES, "sd"),
            (HashFields(0), "-"),
            (HashFields(1 << 9 | 3 << 4), "sd+200"),
        ] {
            assert_eq!((fields.to_string().as_str(), letters.parse()), (letters, Ok(fields)));
        }
        assert!("sx".parse::<HashFields>().is_err() && "s+x".parse::<HashFields>().is_err());
    }

    #[test]
    fn an_interface_without_receive_side_scaling_says_so() {
        assert!(receive_hash("lo", Flow::TcpV4).is_err());
        assert!(receive_hash("there-is-none", Flow::UdpV6).is_err());
        assert!(hash_settings("lo").is_err() && set_hash_key("lo", &[0; 40]).is_err());
    }
}
