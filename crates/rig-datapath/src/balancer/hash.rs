//! The hash that chooses a connection's set, buckets and worker: bpf/balancer/hash.h and
//! bpf/lib/multilinear.h in Rust.

use std::net::SocketAddr;

use super::config::Protocol;
use super::shape::{Address, port_of};

/// Two for each word of a tuple's ten, and one to begin with.
pub(crate) const KEYS: usize = 11;

/// Keys, which are drawn when a balancer is loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hasher {
    pub(crate) key: [u64; KEYS],
}

impl Hasher {
    /// Of a packet's protocol, source and destination.
    pub(crate) fn hash(&self, protocol: Protocol, source: SocketAddr, destination: SocketAddr) -> u64 {
        let words = |address: SocketAddr| Address::from(address.ip()).words();
        let [a, b] = [words(source), words(destination)];
        let ports = u64::from(port_of(destination.port())) << 16 | u64::from(port_of(source.port()));
        let last = u64::from(protocol.number()) << 32 | ports;
        self.of_words([a[0], a[1], b[0], b[1], last])
    }

    pub(crate) fn of_words(&self, words: [u64; 5]) -> u64 {
        finish(self.sum(words))
    }

    /// Each of the ten halves of these words goes into a product with a key of its own.
    fn sum(&self, words: [u64; 5]) -> u64 {
        let pairs = words.iter().zip(self.key[..KEYS - 1].chunks(2));
        pairs.fold(self.key[KEYS - 1], |sum, (word, key)| {
            let low = key[0].wrapping_add(word & 0xffff_ffff);
            let high = key[1].wrapping_add(word >> 32);
            sum.wrapping_add(low.wrapping_mul(high))
        })
    }
}

/// Tuples of different sums stay different. Sums of a run of ports are an arithmetic progression, which multiples of the
/// number of buckets, or a key near a simple fraction of 2^64, would put into few buckets.
fn finish(sum: u64) -> u64 {
    let mixed = (sum ^ sum >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), so that a test that fails does so again.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }
    }

    const V4: &str = "192.0.2.1:80";
    const V6: &str = "[2001:db8::1]:80";

    /// 2^14 clients of one service each, alike but for some bits.
    fn structured() -> Vec<(&'static str, Vec<(SocketAddr, SocketAddr)>)> {
        const COUNT: u32 = 1 << 14;
        let v6 = |bits: u128, port: u16| {
            let base = 0x2001_0db8_0000_0000_0000_0000_0000_0000_u128;
            let address = std::net::Ipv6Addr::from(base | bits);
            (SocketAddr::new(address.into(), port), V6.parse().unwrap())
        };
        let v4 = |address: u32, port: u16| {
            let client = SocketAddr::new(std::net::Ipv4Addr::from(address).into(), port);
            (client, V4.parse().unwrap())
        };
        let each = |make: &dyn Fn(u32) -> (SocketAddr, SocketAddr)| (0..COUNT).map(make).collect::<Vec<_>>();
        // The nth byte of an address, counted from 0 on the left.
        let byte = |n: u32, value: u128| value << (8 * (15 - n));
        let top = |n: u32, on: u32| byte(n, u128::from(on & 1) << 7);
        vec![
            ("bits 7 of bytes 7 and 15, and ports", each(&|n| v6(top(7, n) | top(15, n >> 1), 1024 + (n >> 2) as u16))),
            (
                "bit 7 of each byte from the sixth on, and ports",
                each(&|n| {
                    let bits = (0..10).fold(0, |bits, at| bits | top(6 + at, n >> at));
                    v6(bits, 5000 + (n >> 10) as u16)
                }),
            ),
            ("a /56: one host in each /64, ports", each(&|n| v6(byte(7, u128::from(n & 255)) | 1, (n >> 8) as u16))),
            (
                "hosts of a /56 by their last bytes",
                each(&|n| v6(byte(7, u128::from(n & 255)) | byte(15, u128::from(n >> 8 & 63)), 443)),
            ),
            ("hosts of a /64 one after the other", each(&|n| v6(u128::from(n), 443))),
            ("/64s one after the other", each(&|n| v6(u128::from(n) << 64, 443))),
            ("SLAAC: the maker's half and ff:fe stay", each(&|n| v6(0x0200_5eff_fe00_0000 | u128::from(n), 40_000))),
            ("ports one after the other", each(&|n| v4(0xc633_6409, 1024 + n as u16))),
            ("every second port", each(&|n| v4(0xc633_6409, 1024 + 2 * n as u16))),
            ("every fourth port", each(&|n| v4(0xc633_6409, 4 * n as u16))),
            ("addresses one after the other, one port", each(&|n| v4(0x0a00_0000 + n, 40_000))),
            ("first hosts of /24s", each(&|n| v4(0x0a00_0001 + (n << 8), 40_000))),
            ("first hosts of /18s", each(&|n| v4(n << 18 | 1, 40_000))),
            ("addresses and ports together", each(&|n| v4(0x0a00_0000 + (n & 127), 1024 + (n >> 7) as u16))),
            ("address and port go the other way", each(&|n| v4(0x0a00_0000 + n, 60_000 - n as u16))),
            (
                "many to many: backends' answers",
                each(&|n| {
                    let backend = SocketAddr::from(([10, 0, 0, (n & 15) as u8], 8000));
                    (backend, SocketAddr::from(([10, 0, 1, (n >> 4 & 15) as u8], 1024 + (n >> 8) as u16)))
                }),
            ),
        ]
    }

    const BINS: usize = 1 << 12;
    const DRAWS: usize = 30;

    /// How many of `balls` thrown by chance into the bins lie in the fullest at most, but for one time in a million: by the
    /// tail of Poisson's distribution.
    fn longest_by_chance(balls: usize) -> usize {
        let mean = balls as f64 / BINS as f64;
        let (mut term, mut below) = ((-mean).exp(), 0.0);
        for length in 0..balls {
            if (1.0 - below) * (BINS as f64) < 1e-6 {
                return length;
            }
            below += term;
            term *= mean / (length + 1) as f64;
        }
        balls
    }

    fn longest(places: impl Iterator<Item = usize>) -> usize {
        let mut bins = vec![0; BINS];
        places.for_each(|place| bins[place] += 1);
        bins.into_iter().max().unwrap_or(0)
    }

    /// 64-bit words with odd keys failed here: with any keys, words that differ in their topmost bits only met in one bucket.
    #[test]
    fn structured_addresses_fall_as_if_by_chance() {
        let mut random = Random(1);
        for (name, tuples) in structured() {
            assert_eq!(tuples.iter().collect::<HashSet<_>>().len(), tuples.len(), "{name}");
            let bound = longest_by_chance(tuples.len());
            for draw in 0..DRAWS {
                let hasher = Hasher { key: std::array::from_fn(|_| random.next()) };
                let hashes: Vec<u64> = tuples.iter().map(|(a, b)| hasher.hash(Protocol::Tcp, *a, *b)).collect();
                let distinct: HashSet<_> = hashes.iter().collect();
                assert_eq!(distinct.len(), hashes.len(), "{name}, draw {draw}");
                // The index goes by the low bits, homes and workers by the upper ones of the low half, tags are the other.
                let of = |place: &dyn Fn(u64) -> u64| longest(hashes.iter().map(|hash| place(*hash) as usize));
                let all = [
                    of(&|hash| hash % BINS as u64),
                    of(&|hash| ((hash & 0xffff_ffff) * BINS as u64) >> 32),
                    of(&|hash| (hash >> 32) % BINS as u64),
                    of(&|hash| ((hash >> 32) * BINS as u64) >> 32),
                ];
                assert!(all.iter().all(|longest| *longest <= bound), "{name}, draw {draw}: {all:?} of {bound}");
            }
        }
    }
}
