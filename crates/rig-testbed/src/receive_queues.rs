//! On which receive queue of a card packets come in, and to which CPU: of what its driver tells of receive-side scaling
//! ([`Host::cards`](crate::host::Host::cards)).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rig_sys::ethtool::{Flow, HashFields, fact};
use rig_wire::{FlowKey, Toeplitz};
use schemars::JsonSchema;
use serde::Serialize;

/// How a card spreads what it receives.
#[derive(Debug, Clone)]
pub struct ReceiveQueues {
    /// The queue of each entry of the table.
    table: Vec<u32>,
    /// By the flow's name; what the driver does not tell is not there.
    fields: BTreeMap<String, HashFields>,
    /// Where it is Toeplitz's, with the key.
    hash: Option<Hash>,
    /// Rules that say where packets go, before the hash does.
    rules: u32,
    /// By queue, as a list; none where they are not known.
    cpus: Vec<Option<String>>,
}

#[derive(Debug, Clone)]
struct Hash {
    toeplitz: Toeplitz,
    /// Source and destination are put together first, so that both directions have one hash.
    symmetric: bool,
}

/// What tells one flow from another, to a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HashedBy {
    /// Both addresses and both ports.
    AddressesAndPorts,
    /// Both addresses: all flows between two are on one queue.
    Addresses,
    /// The letters of `ethtool -N INTERFACE rx-flow-hash`.
    Others(String),
    /// The driver does not tell.
    Unknown,
}

/// The longest table that is taken for one.
const MOST_ENTRIES: usize = 1 << 16;
/// Of a key, what 36 bytes of input take.
const KEY: usize = 40;

impl ReceiveQueues {
    /// Of the facts of a card; `None` where these have no table.
    pub fn of(card: &BTreeMap<String, String>) -> Option<Self> {
        let words = |name: &str| card.get(name).map(String::as_str).unwrap_or_default().split_whitespace();
        let entries: usize = words(fact::TABLE).next()?.parse().ok()?;
        let repeated: Vec<u32> = words(fact::TABLE_QUEUES).map(str::parse).collect::<Result<_, _>>().ok()?;
        if repeated.is_empty() || !(1..=MOST_ENTRIES).contains(&entries) {
            return None;
        }
        let table: Vec<u32> = repeated.iter().copied().cycle().take(entries).collect();
        let fields = card.get(fact::FIELDS).map(String::as_str).unwrap_or_default().split(", ");
        let fields = fields.filter_map(|one| {
            let (flow, letters) = one.split_once(' ')?;
            Some((flow.to_owned(), letters.parse().ok()?))
        });
        let symmetric = match card.get(fact::FUNCTION).map(String::as_str) {
            Some("toeplitz") => Some(false),
            Some("toeplitz symmetric-xor") => Some(true),
            _ => None,
        };
        let toeplitz = card.get(fact::KEY).and_then(|key| key_of(key)).map(|key| Toeplitz::new(&key));
        let hash = symmetric.zip(toeplitz).map(|(symmetric, toeplitz)| Hash { toeplitz, symmetric });
        let rules = card.get(fact::RULES).and_then(|rules| rules.parse().ok()).unwrap_or(0);
        let cpus = words(fact::INTERRUPTS).map(|list| (list != "?").then(|| list.to_owned())).collect();
        Some(Self { table, fields: fields.collect(), hash, rules, cpus })
    }

    /// The queues that the table leads to, each with its part of the entries.
    pub fn shares(&self) -> BTreeMap<u32, f64> {
        let mut shares = BTreeMap::new();
        for queue in &self.table {
            *shares.entry(*queue).or_default() += 1.0 / self.table.len() as f64;
        }
        shares
    }

    /// How many of these queues so many flows are expected on, where each is on any entry of the table with the same probability: of queues
    /// with the shares p_i the sum of 1 - (1 - p_i)^n.
    pub fn expected(&self, flows: u32) -> f64 {
        self.shares().values().map(|share| 1.0 - (1.0 - share).powf(f64::from(flows))).sum()
    }

    /// How many rules of `ethtool -N` send packets to queues of theirs, whatever the hash says: which packets is not looked at.
    pub fn rules(&self) -> u32 {
        self.rules
    }

    /// The CPUs that the interrupt of a queue comes to, as a list.
    pub fn cpus_of(&self, queue: u32) -> Option<&str> {
        self.cpus.get(queue as usize)?.as_deref()
    }

    /// What of a flow's packets is hashed.
    pub fn hashed_by(&self, flow: Flow) -> HashedBy {
        match self.fields.get(flow.name()) {
            None => HashedBy::Unknown,
            Some(&HashFields::ENDS) => HashedBy::AddressesAndPorts,
            Some(&HashFields::ADDRESSES) => HashedBy::Addresses,
            Some(others) => HashedBy::Others(others.to_string()),
        }
    }

    /// The queue of all packets from one address to another whose ports are not hashed. `None` where hash or key are not known.
    pub fn by_addresses(&self, from: IpAddr, to: IpAddr) -> Option<u32> {
        let Hash { toeplitz, symmetric } = self.hash.as_ref()?;
        let (from, to) = if *symmetric { both(from, to)? } else { (from, to) };
        let flow = FlowKey { protocol: 0, source: (from, 0).into(), destination: (to, 0).into() };
        self.table.get(toeplitz.hash_addresses(&flow) as usize % self.table.len()).copied()
    }

    /// As [`Self::by_addresses`] of each of these.
    pub fn all_by_addresses(&self, pairs: impl IntoIterator<Item = (IpAddr, IpAddr)>) -> Option<BTreeSet<u32>> {
        pairs.into_iter().map(|(from, to)| self.by_addresses(from, to)).collect()
    }
}

/// Of more bytes than are needed the first.
fn key_of(digits: &str) -> Option<[u8; KEY]> {
    let byte = |at: usize| u8::from_str_radix(digits.get(at * 2..at * 2 + 2)?, 16).ok();
    (0..KEY).map(byte).collect::<Option<Vec<u8>>>()?.try_into().ok()
}

/// What RXH_XFRM_SYM_XOR of linux/ethtool.h hashes in place of both addresses.
fn both(from: IpAddr, to: IpAddr) -> Option<(IpAddr, IpAddr)> {
    let mixed = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => IpAddr::V4((from.to_bits() ^ to.to_bits()).into()),
        (IpAddr::V6(from), IpAddr::V6(to)) => IpAddr::V6((from.to_bits() ^ to.to_bits()).into()),
        _ => return None,
    };
    Some((mixed, mixed))
}

#[cfg(test)]
mod tests {
    use rig_wire::MICROSOFT_KEY;

    use super::*;

    fn card(facts: &[(&str, &str)]) -> BTreeMap<String, String> {
        let key: String = MICROSOFT_KEY.iter().map(|byte| format!("{byte:02x}")).collect();
        let all = [
            (fact::TABLE, "128 entries over 4 queues"),
            (fact::TABLE_QUEUES, "0 1 2 3"),
            (fact::FUNCTION, "toeplitz"),
            (fact::KEY, &key),
            (fact::FIELDS, "tcp4 sdfn, udp4 sd, tcp6 sdfnr"),
            (fact::INTERRUPTS, "4 5 6 ?"),
        ];
        all.iter().chain(facts).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn queues(facts: &[(&str, &str)]) -> ReceiveQueues {
        ReceiveQueues::of(&card(facts)).unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// "Verifying the RSS Hash Calculation": 66.9.149.187 to 161.142.100.80 is 0x323e8fc2 over the addresses.
    #[test]
    fn the_queue_of_two_addresses_is_that_of_the_published_hash() {
        let (from, to) = (address("66.9.149.187"), address("161.142.100.80"));
        assert_eq!(queues(&[]).by_addresses(from, to), Some(0x323e_8fc2 % 128 % 4));
        let uneven = queues(&[(fact::TABLE, "3 entries over 2 queues"), (fact::TABLE_QUEUES, "5 5 7")]);
        assert_eq!(uneven.by_addresses(from, to), Some([5, 5, 7][0x323e_8fc2 % 3]));
        let (from, to) = (address("3ffe:2501:200:1fff::7"), address("3ffe:2501:200:3::1"));
        assert_eq!(queues(&[]).by_addresses(from, to), Some(0x2cc1_8cd5 % 4));
    }

    #[test]
    fn both_directions_are_on_one_queue_where_the_hash_is_symmetric() {
        let symmetric = queues(&[(fact::FUNCTION, "toeplitz symmetric-xor")]);
        for (one, other) in [("10.0.0.1", "10.0.7.9"), ("fd00::1", "fd00::2:7")].map(|(a, b)| (address(a), address(b)))
        {
            assert!(symmetric.by_addresses(one, other).is_some());
            assert_eq!(symmetric.by_addresses(one, other), symmetric.by_addresses(other, one));
        }
        assert_eq!(symmetric.by_addresses(address("10.0.0.1"), address("fd00::1")), None);
    }

    #[test]
    fn what_is_not_told_is_not_guessed() {
        let told = queues(&[]);
        assert_eq!(told.hashed_by(Flow::TcpV4), HashedBy::AddressesAndPorts);
        assert_eq!(told.hashed_by(Flow::UdpV4), HashedBy::Addresses);
        assert_eq!(told.hashed_by(Flow::TcpV6), HashedBy::Others("sdfnr".into()));
        assert_eq!(told.hashed_by(Flow::UdpV6), HashedBy::Unknown);
        assert_eq!((told.rules(), queues(&[(fact::RULES, "3")]).rules()), (0, 3));
        assert_eq!([2, 3, 4].map(|queue| told.cpus_of(queue)), [Some("6"), None, None]);
        let (from, to) = (address("10.0.0.1"), address("10.0.0.2"));
        for facts in [[(fact::FUNCTION, "xor")], [(fact::FUNCTION, "toeplitz symmetric-or-xor")], [(fact::KEY, "6d5a")]]
        {
            assert_eq!(queues(&facts).by_addresses(from, to), None, "{facts:?}");
            assert_eq!(queues(&facts).all_by_addresses([(from, to)]), None);
        }
        assert_eq!(queues(&[]).all_by_addresses([(from, to), (from, to)]).unwrap().len(), 1);
        for facts in [
            [(fact::TABLE, "")],
            [(fact::TABLE, "99999999 entries")],
            [(fact::TABLE, "0 entries over 0 queues")],
            [(fact::TABLE_QUEUES, "")],
        ] {
            assert!(ReceiveQueues::of(&card(&facts)).is_none(), "{facts:?}");
        }
        assert!(ReceiveQueues::of(&BTreeMap::new()).is_none());
    }

    #[test]
    fn so_many_queues_are_expected_to_be_used() {
        let rounded = |queues: &ReceiveQueues, flows: u32| (queues.expected(flows) * 10.0).round() / 10.0;
        let four = queues(&[]);
        assert_eq!([1, 2, 8, 1000].map(|flows| rounded(&four, flows)), [1.0, 1.8, 3.6, 4.0]);
        // Most entries are of one queue: 1 - 0.25^4 + 1 - 0.75^4.
        let uneven = queues(&[(fact::TABLE_QUEUES, "0 0 0 1")]);
        assert_eq!(uneven.shares(), BTreeMap::from([(0, 0.75), (1, 0.25)]));
        assert_eq!(rounded(&uneven, 4), 1.7);
    }
}
