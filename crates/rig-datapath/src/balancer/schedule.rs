//! The lists that schedulers go by: what the program does with them is in bpf/balancer/schedule.h.

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use super::config::{Backend, Scheduler};
use super::shape::Address;

/// Longest list of a weighted round robin. Weights whose sum, after division by what they have in common, is larger are
/// kept to one part in this.
const LONGEST_ROUND: u64 = 4096;

/// The least loaded backend of so many is looked for among all; of more, the less loaded of two.
pub(crate) const LEAST_SCANNED: usize = 16;

/// Sizes of Maglev tables, primes. The paper recommends a hundred entries for each backend, for an imbalance of 1 %.
const TABLES: [usize; 5] = [251, 1021, 4093, 16_381, 65_537];
const ENTRIES_PER_BACKEND: usize = 100;

/// For each entry the place of a backend in `backends`. Empty when none has a weight.
pub(crate) fn list(scheduler: Scheduler, backends: &[Backend]) -> Vec<usize> {
    let weights: Vec<u64> = backends.iter().map(|backend| scheduler.weight(backend.weight).into()).collect();
    let with_weight = || (0..weights.len()).filter(|&at| weights[at] > 0);
    match scheduler {
        Scheduler::RoundRobin => with_weight().collect(),
        Scheduler::LeastConnections
        | Scheduler::WeightedLeastConnections
        | Scheduler::ShortestExpectedDelay
        | Scheduler::NeverQueue
            if with_weight().count() <= LEAST_SCANNED =>
        {
            with_weight().collect()
        }
        // Of more, two are drawn from a round in which each is as often as its weight says.
        Scheduler::LeastConnections
        | Scheduler::WeightedLeastConnections
        | Scheduler::ShortestExpectedDelay
        | Scheduler::NeverQueue
        | Scheduler::WeightedRoundRobin => interleaved(&shortened(&weights)),
        Scheduler::SourceHash | Scheduler::Maglev => {
            let mut weighted: Vec<_> = with_weight().map(|at| (at, backends[at].address, weights[at])).collect();
            // Who claims first has the entry: the order in which they were configured is not to matter, so that balancers side by
            // side have one table.
            weighted.sort_by_key(|(_, address, _)| *address);
            maglev(&weighted)
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Weights in the same proportions but smaller, none of them rounded to nothing.
fn shortened(weights: &[u64]) -> Vec<u64> {
    let common = weights.iter().copied().fold(0, gcd).max(1);
    let sum: u64 = weights.iter().sum::<u64>() / common;
    let shorten = |weight: &u64| match weight / common {
        0 => 0,
        weight if sum <= LONGEST_ROUND => weight,
        weight => ((weight * LONGEST_ROUND + sum / 2) / sum).max(1),
    };
    weights.iter().map(shorten).collect()
}

/// Each place as often as its weight says, spread as evenly as can be: the one that is furthest behind its share is next.
fn interleaved(weights: &[u64]) -> Vec<usize> {
    let sum: u64 = weights.iter().sum();
    let mut credit: Vec<i64> = vec![0; weights.len()];
    let mut list = Vec::with_capacity(sum as usize);
    for _ in 0..sum {
        credit.iter_mut().zip(weights).for_each(|(credit, weight)| *credit += *weight as i64);
        // The first of equals.
        let Some(next) = (0..credit.len()).rev().max_by_key(|&at| credit[at]) else { break };
        credit[next] -= sum as i64;
        list.push(next);
    }
    list
}

/// FNV-1a (draft-eastlake-fnv) with a finish. A table must be the same wherever and whenever it is made.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }
}

fn hash(address: SocketAddr, salt: u8) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(&[salt]);
    match address.ip() {
        IpAddr::V4(v4) => hasher.write(&v4.octets()),
        IpAddr::V6(v6) => hasher.write(&v6.octets()),
    }
    hasher.write(&address.port().to_be_bytes());
    hasher.finish()
}

/// Maglev's table (section 3.4 of the paper): each backend claims entries in the order of its own permutation, in turns;
/// a backend of half the largest weight has every other turn.
fn maglev(backends: &[(usize, SocketAddr, u64)]) -> Vec<usize> {
    let Some(heaviest) = backends.iter().map(|(.., weight)| *weight).max() else { return Vec::new() };
    let wanted = backends.len() * ENTRIES_PER_BACKEND;
    let size = TABLES.into_iter().find(|size| *size >= wanted).unwrap_or(TABLES[TABLES.len() - 1]);
    let mut table = vec![usize::MAX; size];
    let mut left = size;
    struct Claim {
        place: usize,
        next: usize,
        skip: usize,
        weight: u64,
        credit: u64,
    }
    let mut claims: Vec<Claim> = backends
        .iter()
        .map(|&(place, address, weight)| Claim {
            place,
            next: (hash(address, 1) % size as u64) as usize,
            skip: (hash(address, 2) % (size as u64 - 1)) as usize + 1,
            weight,
            credit: 0,
        })
        .collect();
    loop {
        for claim in &mut claims {
            claim.credit += claim.weight;
            if claim.credit < heaviest {
                continue;
            }
            claim.credit -= heaviest;
            // The size is prime, so the permutation visits every entry, and one is free.
            while table[claim.next] != usize::MAX {
                claim.next = (claim.next + claim.skip) % size;
            }
            table[claim.next] = claim.place;
            left -= 1;
            if left == 0 {
                return table;
            }
        }
    }
}

/// The program's hash of an address and a port (bpf/balancer/schedule.h, `hash_endpoint`).
pub(crate) fn hash_endpoint(at: SocketAddr) -> u32 {
    let words = Address::from(at.ip()).words();
    let mut hash = words[0]
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(words[1].wrapping_mul(0xc2b2_ae3d_27d4_eb4f))
        .wrapping_add(u64::from(at.port().to_be()).wrapping_mul(0x1656_67b1_9e37_79f9));
    hash ^= hash >> 32;
    (hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}

/// Which entry of a list the program's hash of a client chooses (bpf/balancer/schedule.h, `hash_source`).
pub(crate) fn hash_source(client: SocketAddr, with_port: bool) -> u32 {
    hash_endpoint(if with_port { client } else { SocketAddr::new(client.ip(), 0) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn backends(weights: &[u32]) -> Vec<Backend> {
        let address = |at: usize| SocketAddr::new([10, 0, (at >> 8) as u8, at as u8].into(), 80);
        weights.iter().enumerate().map(|(at, &weight)| Backend::new(address(at), weight)).collect()
    }

    fn shares(list: &[usize], of: usize) -> Vec<usize> {
        (0..of).map(|place| list.iter().filter(|at| **at == place).count()).collect()
    }

    #[test]
    fn a_weighted_round_is_spread_evenly() {
        assert_eq!(list(Scheduler::WeightedRoundRobin, &backends(&[2, 1, 1])), [0, 1, 2, 0]);
        assert_eq!(list(Scheduler::WeightedRoundRobin, &backends(&[50, 10, 0, 10])), [0, 0, 1, 0, 3, 0, 0]);
        assert_eq!(list(Scheduler::RoundRobin, &backends(&[5, 0, 1])), [0, 2]);
        assert_eq!(list(Scheduler::WeightedRoundRobin, &backends(&[0, 0])), [0_usize; 0]);
        assert_eq!(list(Scheduler::Maglev, &backends(&[0])), [0_usize; 0]);
    }

    #[test]
    fn weights_without_common_divisor_are_kept_to_a_part_in_4096() {
        let list = list(Scheduler::WeightedRoundRobin, &backends(&[65_521, 32_749, 7]));
        let shares = shares(&list, 3);
        assert!(list.len() <= 4100, "{}", list.len());
        assert!((shares[0] as i64 - 2 * shares[1] as i64).abs() <= 2, "{shares:?}");
        assert_eq!(shares[2], 1);
    }

    #[test]
    fn a_maglev_table_is_even_and_changes_little() {
        let ten = list(Scheduler::Maglev, &backends(&[1; 10]));
        assert_eq!(ten.len(), 1021);
        assert!(shares(&ten, 10).iter().all(|share| (100..=104).contains(share)), "{:?}", shares(&ten, 10));
        let mut nine = backends(&[1; 10]);
        nine[4].weight = 0;
        let nine = list(Scheduler::Maglev, &nine);
        assert_eq!(nine.len(), ten.len());
        let moved = ten.iter().zip(&nine).filter(|(before, after)| **before != 4 && before != after).count();
        // The paper's figure 9 has some percent at this size of table.
        assert!(moved < 100, "{moved} of {}", ten.len());
    }

    #[test]
    fn a_hash_chooses_the_same_backends_in_whatever_order_they_were_added() {
        let one = backends(&[3, 1, 0, 2, 5, 1, 1]);
        let mut other = one.clone();
        other.reverse();
        other.swap(1, 4);
        for scheduler in [Scheduler::Maglev, Scheduler::SourceHash] {
            let addresses = |backends: &[Backend]| -> Vec<SocketAddr> {
                list(scheduler, backends).into_iter().map(|place| backends[place].address).collect()
            };
            assert_eq!(addresses(&one), addresses(&other));
        }
    }

    #[test]
    fn a_maglev_table_follows_weights() {
        let table = list(Scheduler::SourceHash, &backends(&[3, 1]));
        let shares = shares(&table, 2);
        assert!((shares[0] as f64 / shares[1] as f64 - 3.0).abs() < 0.1, "{shares:?}");
    }

    proptest! {
        #[test]
        fn each_backend_with_a_weight_is_in_every_list(weights in prop::collection::vec(0_u32..65_536, 0..40)) {
            let backends = backends(&weights);
            for scheduler in [
                Scheduler::RoundRobin,
                Scheduler::WeightedRoundRobin,
                Scheduler::LeastConnections,
                Scheduler::WeightedLeastConnections,
            ] {
                let shares = shares(&list(scheduler, &backends), weights.len());
                for (weight, share) in weights.iter().zip(shares) {
                    prop_assert_eq!(*weight > 0, share > 0);
                }
            }
        }
    }
}
