//! The Toeplitz hash that network cards spread packets by (Microsoft, "RSS Hashing Functions").

use crate::FlowKey;

/// The key of Microsoft's verification suite ("Verifying the RSS Hash Calculation").
pub const MICROSOFT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// Bytes of the longest input: two IPv6 addresses and two ports.
const INPUT: usize = 36;

/// A key, made ready to hash by one table look-up for each byte.
#[derive(Clone)]
pub struct Toeplitz {
    tables: Box<[[u32; 256]; INPUT]>,
}

impl Toeplitz {
    pub fn new(key: &[u8; 40]) -> Self {
        // For bit b of the input, the hash takes up the 32 bits of the key that start at bit b.
        let window = |bit: usize| {
            let at = |n: usize| u64::from(key.get(n).copied().unwrap_or(0));
            let first = bit / 8;
            let bits = (0..5).fold(0, |bits, n| bits << 8 | at(first + n));
            (bits >> (8 - bit % 8)) as u32
        };
        let mut tables = Box::new([[0; 256]; INPUT]);
        for (byte, table) in tables.iter_mut().enumerate() {
            for (value, hash) in table.iter_mut().enumerate() {
                let set = (0..8).filter(|bit| value & 0x80 >> bit != 0);
                *hash = set.fold(0, |hash, bit| hash ^ window(byte * 8 + bit));
            }
        }
        Self { tables }
    }

    /// The hash over addresses and ports.
    pub fn hash(&self, flow: &FlowKey) -> u32 {
        let (bytes, addresses) = flow.hash_input();
        self.fold(&bytes[..addresses + 4])
    }

    /// The hash over the addresses alone, as for protocols without ports.
    pub fn hash_addresses(&self, flow: &FlowKey) -> u32 {
        let (bytes, addresses) = flow.hash_input();
        self.fold(&bytes[..addresses])
    }

    fn fold(&self, input: &[u8]) -> u32 {
        self.tables.iter().zip(input).fold(0, |hash, (table, &byte)| hash ^ table[usize::from(byte)])
    }
}

impl std::fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Toeplitz")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;

    /// Microsoft's table: destination, source, hash over the addresses, hash with TCP's ports.
    #[test]
    fn the_published_vectors() {
        let vectors = [
            ("161.142.100.80:1766", "66.9.149.187:2794", 0x323e_8fc2, 0x51cc_c178),
            ("65.69.140.83:4739", "199.92.111.2:14230", 0xd718_262a, 0xc626_b0ea),
            ("12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0_a5de, 0x5c2b_394a),
            ("209.142.163.6:2217", "38.27.205.30:48228", 0x8298_9176, 0xafc7_327f),
            ("202.188.127.2:1303", "153.39.163.191:44251", 0x5d18_09c5, 0x10e8_28a2),
            ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc1_8cd5, 0x4020_7d3d),
            ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0f0c_461c, 0xdde5_1bbf),
            (
                "[fe80::200:f8ff:fe21:67cf]:38024",
                "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
                0x4b61_e985,
                0x02d1_feef,
            ),
        ];
        let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
        for (destination, source, addresses, ports) in vectors {
            let flow = FlowKey {
                protocol: protocol::TCP,
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
            };
            assert_eq!(toeplitz.hash_addresses(&flow), addresses, "{flow:?}");
            assert_eq!(toeplitz.hash(&flow), ports, "{flow:?}");
        }
    }
}
