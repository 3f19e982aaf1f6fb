//! The SYN proxy's cookies, as bpf/balancer/cookie.h has them, and their keys.

use std::hash::Hasher as _;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;

use super::shape::{Address, EPOCHS, port_of};

/// Of these words, in their order.
fn hash_words(key: [u64; 2], words: &[u64]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
    words.iter().for_each(|word| hasher.write(&word.to_le_bytes()));
    hasher.finish()
}

/// The key of an epoch, which nobody who knows another one's can tell.
pub(super) fn key(secret: [u64; 2], epoch: u64) -> [u64; 2] {
    [0, 1].map(|half| hash_words(secret, &[epoch, half]))
}

/// The keys of this epoch, of the one before and of the next two, by the last bits of their numbers. The last is for a program that reads
/// while they are written, and may see its number before its key is valid: none is ever one that others can tell.
pub(super) fn keys(secret: [u64; 2], epoch: u64) -> [[u64; 2]; EPOCHS] {
    let mut keys = [[0; 2]; EPOCHS];
    for of in (0..EPOCHS as u64).map(|ahead| epoch.wrapping_sub(1).wrapping_add(ahead)) {
        keys[of as usize % EPOCHS] = key(secret, of);
    }
    keys
}

/// The part of a cookie that only who has the key can tell.
pub(super) fn hash(key: [u64; 2], client: SocketAddr, service: SocketAddr, isn: u32) -> u32 {
    hash_flow(key, client, service, isn, &[]) as u32 & 0x003f_ffff
}

/// What a client is asked to refuse, in an epoch that has this key.
pub(super) fn challenge(key: [u64; 2], epoch: u64, client: SocketAddr, service: SocketAddr) -> u32 {
    hash_flow(key, client, service, 0, &[0]) as u32 & 0x3fff_ffff | (epoch as u32) << 30
}

fn hash_flow(key: [u64; 2], client: SocketAddr, service: SocketAddr, isn: u32, more: &[u64]) -> u64 {
    let ports = u64::from(port_of(service.port())) << 16 | u64::from(port_of(client.port()));
    let last = u64::from(isn) << 32 | ports;
    let mut words = match (client.ip(), service.ip()) {
        (IpAddr::V4(client), IpAddr::V4(service)) => {
            let word = |address: std::net::Ipv4Addr| u64::from(u32::from_ne_bytes(address.octets()));
            vec![word(service) << 32 | word(client), last]
        }
        (client, service) => {
            let [a, b] = [client, service].map(|address| Address::from(address).words());
            vec![a[0], a[1], b[0], b[1], last]
        }
    };
    words.extend(more);
    hash_words(key, &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the paper's authors (vectors.h of their reference implementation), of 8 and 16 bytes 0, 1, 2 ...
    #[test]
    fn it_is_siphash_2_4() {
        let word = |at: u8| u64::from_le_bytes(std::array::from_fn(|byte| at + byte as u8));
        let key = [word(0), word(8)];
        let words: Vec<u64> = (0..2).map(|at| word(8 * at)).collect();
        assert_eq!(hash_words(key, &words[..1]), 0x93f5_f579_9a93_2462);
        assert_eq!(hash_words(key, &words[..2]), 0x3f2a_cc7f_57c2_9bdb);
    }

    #[test]
    fn an_epoch_has_a_key_of_its_own() {
        let secret = [1, 2];
        let now = keys(secret, 1000);
        assert_eq!(now[1000 % EPOCHS], key(secret, 1000));
        assert_eq!(now[1002 % EPOCHS], key(secret, 1002), "nobody can tell the one that no cookie may be of, either");
        assert_eq!(keys(secret, 1001)[1000 % EPOCHS], now[1000 % EPOCHS], "it holds for one epoch more");
        assert_ne!(keys([1, 3], 1000), now);
    }
}
