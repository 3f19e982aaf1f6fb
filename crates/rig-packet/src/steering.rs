//! Which of an interface's queues a packet comes to, as far as that can be known: receive-side scaling by the Toeplitz
//! hash and an indirection table.

use std::sync::Arc;

use rig_wire::{FlowKey, Toeplitz, protocol};

use super::connection::Key;
use super::family::{Addresses, Family};

/// How an interface spreads what it receives over its queues: by a hash over addresses and ports, both of TCP and UDP.
#[derive(Debug, Clone)]
pub struct Rss {
    pub hash: Toeplitz,
    /// The queue for each value of the hash modulo the number of entries.
    pub table: Arc<[u32]>,
}

impl Rss {
    /// The queue of a flow, as it is received.
    pub fn queue(&self, flow: &FlowKey) -> Option<u32> {
        self.entry(self.hash.hash(flow))
    }

    fn entry(&self, hash: u32) -> Option<u32> {
        let entries = self.table.len();
        (entries > 0).then(|| self.table[hash as usize % entries])
    }
}

/// The queue of an engine on an interface with others: a client uses only source ports whose answers come to it.
#[derive(Debug, Clone)]
pub struct Steering {
    pub rss: Rss,
    pub queue: u32,
}

/// Tells the connections of an engine from those of others. The hash of a sum is the sum of the hashes, bit by bit, so
/// each part of a key has its own.
#[derive(Debug)]
pub(super) struct Steer {
    local: Box<[u32]>,
    remote: Box<[u32]>,
    /// By port: of ours, and of the peer's.
    local_port: Box<[u32]>,
    remote_port: Box<[u32]>,
    rss: Rss,
    queue: u32,
}

impl Steer {
    pub fn new<F: Family>(steering: &Steering, local: &Addresses<F>, remote: &Addresses<F>) -> Self {
        let zero = F::ip(F::UNSPECIFIED);
        let hash =
            |source, destination| steering.rss.hash.hash(&FlowKey { protocol: protocol::TCP, source, destination });
        let none = (zero, 0).into();
        let address = |all: &Addresses<F>, ours: bool| {
            (0..all.len())
                .map(|n| (F::ip(all.get(n)), 0).into())
                .map(|end| if ours { hash(none, end) } else { hash(end, none) })
                .collect()
        };
        // What comes has our ends as its destination.
        Self {
            local: address(local, true),
            remote: address(remote, false),
            local_port: (0..=u16::MAX).map(|port| hash(none, (zero, port).into())).collect(),
            remote_port: (0..=u16::MAX).map(|port| hash((zero, port).into(), none)).collect(),
            rss: steering.rss.clone(),
            queue: steering.queue,
        }
    }

    /// Bytes, for so many addresses.
    pub fn bytes(addresses: u64) -> u64 {
        (addresses + 2 * 65_536) * 4
    }

    #[inline]
    pub fn is_ours(&self, key: Key) -> bool {
        let hash = self.local[key.local()]
            ^ self.remote[key.remote()]
            ^ self.local_port[usize::from(key.local_port())]
            ^ self.remote_port[usize::from(key.remote_port())];
        self.rss.entry(hash) == Some(self.queue)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rig_wire::MICROSOFT_KEY;

    use super::super::family::{V4, V6};
    use super::*;

    fn agrees<F: Family>(local: F::Address, remote: F::Address, ports: (u16, u16), queue: u32) {
        let rss = Rss { hash: Toeplitz::new(&MICROSOFT_KEY), table: (0..128).map(|n| n % 3).collect() };
        let (locals, remotes) = (Addresses::<F>::new(&[(local, 3)]), Addresses::<F>::new(&[(remote, 2)]));
        let steer = Steer::new(&Steering { rss: rss.clone(), queue }, &locals, &remotes);
        let flow = FlowKey {
            protocol: protocol::TCP,
            source: (F::ip(F::after(remote, 1)), ports.1).into(),
            destination: (F::ip(F::after(local, 2)), ports.0).into(),
        };
        assert_eq!(steer.is_ours(Key::new(2, ports.0, 1, ports.1)), rss.queue(&flow) == Some(queue));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn parts_add_up_to_the_hash_of_what_is_received(a: u32, b: u32, ports: (u16, u16), queue in 0u32..3) {
            agrees::<V4>((a & 0x7fff_ffff).into(), (b & 0x7fff_ffff).into(), ports, queue);
            agrees::<V6>(u128::from(a).into(), (u128::from(b) << 64).into(), ports, queue);
        }
    }
}
