//! On which receive queues of a card, and on which CPUs, flows come in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rig_stats::units::counted;
use rig_sys::ethtool::Flow;
use rig_testbed::receive_queues::{HashedBy, ReceiveQueues};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Finding, FindingArea, State};

/// A card of several receive queues.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CardQueues {
    pub interface: String,
    /// Queues that the table of receive-side scaling (RSS) has.
    pub queues: Vec<QueueShare>,
    /// What the card hashes of flows, as `ethtool -n INTERFACE rx-flow-hash` calls them: tcp4, udp4, tcp6, udp6.
    pub hashed_by: BTreeMap<&'static str, HashedBy>,
    /// On how many of these queues so many flows are expected, where ports are hashed, too.
    pub expected: Vec<ExpectedQueues>,
    /// Rules of `ethtool -N`, which say where some packets go before the hash does; which packets is not looked at.
    pub rules: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ExpectedQueues {
    pub flows: u32,
    pub queues: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct QueueShare {
    pub queue: u32,
    /// Share of the table's entries, 0 to 1.
    pub share: f64,
    /// CPUs of the queue's interrupt, as a list; none where the kernel does not tell.
    pub cpus: Option<String>,
}

/// Flows whose packets come to a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrivingFlows {
    /// `None` of packets without ports, as GRE's.
    pub kind: Option<Flow>,
    /// Source and destination.
    pub addresses: Vec<(IpAddr, IpAddr)>,
    /// All together, with source ports that the kernel chooses; `None` of loads that use as many ports as there are.
    pub count: Option<u32>,
}

/// On which queues flows come in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Landing {
    On(BTreeSet<u32>),
    /// On one for each two addresses; which is not known.
    OneOfEach {
        pairs: usize,
    },
    Expected(String),
    /// What the card hashes.
    Unknown(String),
}

/// How many flows are taken for examples.
const EXAMPLES: [u32; 2] = [4, 16];

impl CardQueues {
    /// `None` where there is nothing to choose from, or no table is told.
    pub fn of(interface: &str, card: &BTreeMap<String, String>) -> Option<Self> {
        let receive = ReceiveQueues::of(card)?;
        let shares = receive.shares();
        let share = |(queue, share): (&u32, &f64)| {
            let cpus = receive.cpus_of(*queue).map(str::to_owned);
            // Of tables of some hundred entries.
            QueueShare { queue: *queue, share: (share * 1e4).round() / 1e4, cpus }
        };
        let hashed_by = Flow::ALL.map(|flow| (flow.name(), receive.hashed_by(flow)));
        let queues = shares.iter().map(share).collect();
        let rounded = |flows| ExpectedQueues { flows, queues: (receive.expected(flows) * 10.0).round() / 10.0 };
        let expected = EXAMPLES.map(rounded).into();
        let interface = interface.to_owned();
        let (hashed_by, rules) = (hashed_by.into(), receive.rules());
        (shares.len() > 1).then_some(Self { interface, queues, hashed_by, expected, rules })
    }

    /// For a reader.
    pub fn lines(&self) -> Vec<String> {
        let cpus: Option<Vec<&str>> = self.queues.iter().map(|one| one.cpus.as_deref()).collect();
        let on = cpus.map_or("whose CPUs are not known".to_owned(), |cpus| format!("on CPUs {}", cpus.join(" ")));
        let mut lines = vec![format!("receives by {} queues, {on}", self.queues.len())];
        let mut told = Vec::new();
        for by in self.hashed_by.values() {
            if told.contains(&by) {
                continue;
            }
            told.push(by);
            let flows = self.hashed_by.iter().filter(|(_, other)| *other == by).map(|(flow, _)| *flow);
            let flows: Vec<&str> = flows.collect();
            lines.push(format!("{}: {}", flows.join(", "), self.meaning(by, flows[0])));
        }
        lines.extend(unless(self.rules).map(|unless| format!("so {unless}")));
        lines
    }

    fn meaning(&self, by: &HashedBy, flow: &str) -> String {
        match by {
            HashedBy::AddressesAndPorts => {
                let example = |one: &ExpectedQueues| format!("{} flows on {:.1} queues", one.flows, one.queues);
                let examples: Vec<String> = self.expected.iter().map(example).collect();
                format!("by addresses and ports; expected are {}", examples.join(", "))
            }
            HashedBy::Addresses => {
                let name = &self.interface;
                format!(
                    "by addresses alone: all flows from one address to another are on ONE queue (`ethtool -N {name} \
                     rx-flow-hash {flow} sdfn` hashes ports, too)"
                )
            }
            HashedBy::Others(letters) => {
                format!("by the fields {letters} (ethtool(8), rx-flow-hash): queues are not known")
            }
            HashedBy::Unknown => "the driver does not tell what it hashes: queues are not known".to_owned(),
        }
    }
}

/// What may change all that is said of queues.
fn unless(rules: u32) -> Option<String> {
    let rules = (rules > 0).then(|| counted(rules as usize, "rule", "rules"))?;
    Some(format!("unless one of {rules} of `ethtool -N` says otherwise, which netrig does not look at"))
}

/// Of this machine's cards; `None` where none has several queues and a table.
pub(super) fn finding(cards: &BTreeMap<String, BTreeMap<String, String>>) -> Option<Finding> {
    let told = |(name, card): (&String, &BTreeMap<String, String>)| {
        Some(format!("{name} {}", CardQueues::of(name, card)?.lines().join("; ")))
    };
    let told: Vec<String> = cards.iter().filter_map(told).collect();
    let found = told.join("; ");
    (!told.is_empty()).then_some(Finding {
        area: FindingArea::Cpus,
        name: "receive queues",
        state: State::Ok { found },
    })
}

/// Most queues that a sentence names.
const NAMED: usize = 8;

impl ArrivingFlows {
    fn landing(&self, receive: &ReceiveQueues) -> Option<Landing> {
        let by = self.kind.map_or(HashedBy::Addresses, |kind| receive.hashed_by(kind));
        let kind = self.kind.map_or("what has no ports", Flow::name);
        Some(match (by, self.count) {
            (HashedBy::AddressesAndPorts, None) => return None,
            (HashedBy::AddressesAndPorts, Some(count)) => Landing::Expected(format!("{:.1}", receive.expected(count))),
            (HashedBy::Addresses, _) => match receive.all_by_addresses(self.addresses.iter().copied()) {
                Some(queues) => Landing::On(queues),
                None => Landing::OneOfEach { pairs: self.addresses.iter().collect::<BTreeSet<_>>().len() },
            },
            (HashedBy::Others(letters), _) => Landing::Unknown(format!("{kind} is hashed by the fields {letters}")),
            (HashedBy::Unknown, _) => Landing::Unknown(format!("the driver does not tell what it hashes of {kind}")),
        })
    }

    /// `4 flows on 1 of 8 queues: ...`; `None` where nothing is to be said: one flow, one queue, or more ports than queues.
    pub fn words(&self, receive: &ReceiveQueues) -> Option<String> {
        let all = receive.shares().len();
        if all < 2 || self.count.is_some_and(|count| count < 2) {
            return None;
        }
        let flows = self.count.map_or("all flows".to_owned(), |count| format!("{count} flows"));
        let kind = match self.kind {
            Some(kind) => format!("{} is", kind.name()),
            None => "what has no ports is".to_owned(),
        };
        let words = match self.landing(receive)? {
            Landing::On(queues) if queues.len() == all => return None,
            Landing::On(queues) => {
                let of = |queue: &u32| match receive.cpus_of(*queue) {
                    Some(cpus) => format!("queue {queue} (CPU {cpus})"),
                    None => format!("queue {queue}"),
                };
                // Of many addresses the number says enough.
                let mut which: Vec<String> = queues.iter().take(NAMED).map(of).collect();
                if queues.len() > NAMED {
                    which.push(format!("{} more", queues.len() - NAMED));
                }
                format!(
                    "{flows} on {} of {all} queues, {}: {kind} hashed by addresses alone",
                    queues.len(),
                    which.join(", ")
                )
            }
            Landing::OneOfEach { pairs: 1 } => {
                format!("{flows} on 1 of {all} queues, which is not known: {kind} hashed by addresses alone")
            }
            Landing::OneOfEach { pairs } => {
                format!("{flows} on {} of {all} queues at most: {kind} hashed by addresses alone", pairs.min(all))
            }
            Landing::Expected(expected) => {
                format!("{flows} on {expected} of {all} queues on average, for the kernel chooses source ports")
            }
            Landing::Unknown(why) => format!("{flows} on {all} queues, which are not known: {why}"),
        };
        Some(unless(receive.rules()).map_or_else(|| words.clone(), |unless| format!("{words}, {unless}")))
    }
}

#[cfg(test)]
mod tests {
    use rig_sys::ethtool::fact;

    use super::*;

    fn card(fields: &str) -> BTreeMap<String, String> {
        let facts = [
            (fact::TABLE, "128 entries over 4 queues"),
            (fact::TABLE_QUEUES, "0 1 2 3"),
            (fact::FUNCTION, "toeplitz"),
            (fact::KEY, "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"),
            (fact::FIELDS, fields),
            (fact::INTERRUPTS, "4 5 6 7"),
        ];
        facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn words(fields: &str, kind: Option<Flow>, count: Option<u32>, addresses: &[(&str, &str)]) -> Option<String> {
        let addresses = addresses.iter().map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap())).collect();
        ArrivingFlows { kind, addresses, count }.words(&ReceiveQueues::of(&card(fields)).unwrap())
    }

    /// Of "Verifying the RSS Hash Calculation", whose hash over the addresses is 0x323e8fc2.
    const PAIR: (&str, &str) = ("66.9.149.187", "161.142.100.80");

    #[test]
    fn flows_are_told_by_the_queues_that_they_come_to() {
        let told = |fields, kind, count| words(fields, kind, count, &[PAIR]).unwrap_or_default();
        let (tcp, udp) = (Some(Flow::TcpV4), Some(Flow::UdpV4));
        assert_eq!(
            told("tcp4 sdfn, udp4 sd", udp, Some(4)),
            "4 flows on 1 of 4 queues, queue 2 (CPU 6): udp4 is hashed by addresses alone"
        );
        assert_eq!(
            told("tcp4 sdfn, udp4 sd", tcp, Some(8)),
            "8 flows on 3.6 of 4 queues on average, for the kernel chooses source ports"
        );
        assert_eq!(
            told("tcp4 sdfnr", tcp, Some(8)),
            "8 flows on 4 queues, which are not known: tcp4 is hashed by the fields sdfnr"
        );
        assert!(told("tcp4 sdfn", udp, None).ends_with("the driver does not tell what it hashes of udp4"));
        assert!(told("tcp4 sdfn", None, Some(2)).ends_with("what has no ports is hashed by addresses alone"));
        assert_eq!(told("tcp4 sd", tcp, Some(1)), "", "one flow is on one queue wherever that is");
        assert_eq!(told("tcp4 sdfn", tcp, None), "", "more ports than queues");
        let many: Vec<String> = (1..200).map(|host| format!("10.0.0.{host}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|from| (from.as_str(), "10.0.1.1")).collect();
        assert_eq!(words("tcp4 sd", tcp, None, &many), None, "all queues are used");
    }

    #[test]
    fn rules_that_come_before_the_hash_are_told() {
        let card = || card("tcp4 sdfn, udp4 sd").into_iter();
        let with: BTreeMap<_, _> = card().chain([(fact::RULES.to_owned(), "2".to_owned())]).collect();
        let unless = "unless one of 2 rules of `ethtool -N` says otherwise, which netrig does not look at";
        assert_eq!(CardQueues::of("eth1", &with).unwrap().lines().last().unwrap(), &format!("so {unless}"));
        let flows = ArrivingFlows {
            kind: Some(Flow::UdpV4),
            addresses: vec![(PAIR.0.parse().unwrap(), PAIR.1.parse().unwrap())],
            count: Some(4),
        };
        assert!(flows.words(&ReceiveQueues::of(&with).unwrap()).unwrap().ends_with(unless));
        assert!(!flows.words(&ReceiveQueues::of(&card().collect()).unwrap()).unwrap().contains("unless"));
    }

    #[test]
    fn a_card_is_told_by_what_it_hashes() {
        let card = card("tcp4 sdfn, udp4 sd, tcp6 sdfn");
        let queues = CardQueues::of("eth1", &card).unwrap();
        assert_eq!(
            queues.lines(),
            [
                "receives by 4 queues, on CPUs 4 5 6 7",
                "tcp4, tcp6: by addresses and ports; expected are 4 flows on 2.7 queues, 16 flows on 4.0 queues",
                "udp4: by addresses alone: all flows from one address to another are on ONE queue (`ethtool -N eth1 \
                 rx-flow-hash udp4 sdfn` hashes ports, too)",
                "udp6: the driver does not tell what it hashes: queues are not known",
            ]
        );
        let found = finding(&BTreeMap::from([("eth1".to_owned(), card.clone())])).unwrap();
        let State::Ok { found } = found.state else { panic!("{found:?}") };
        assert!(found.starts_with("eth1 receives by 4 queues"), "{found}");
        let one = card.into_iter().chain([(fact::TABLE_QUEUES.to_owned(), "0".to_owned())]).collect();
        assert_eq!(CardQueues::of("eth1", &one), None);
        assert!(finding(&BTreeMap::from([("eth1".to_owned(), one)])).is_none());
    }
}
