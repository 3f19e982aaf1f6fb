//! What decides on which queue and CPU an interface's device receives: its queues, the table and the key of receive-side scaling, and
//! where its interrupts come to. Drivers make some of it anew when the number of queues changes, or when the interface is set up.
//! Which fields of a packet are hashed, rings and coalescing are not among it.

use std::collections::BTreeMap;

use rig_sys::ethtool::{self, Channels};
use rig_sys::interrupts;
use rig_sys::netns::NetNs;
use rig_sys::rss;
use rig_sys::{Error, Result};
use serde::{Deserialize, Serialize};

use super::record::{Differences, other};

/// What a driver does not tell is not there, and is not given back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReceiveRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    queues: Option<Channels>,
    /// The queue of each entry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    table: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    key: Vec<u8>,
    /// CPUs by the interrupt's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    interrupts: BTreeMap<String, String>,
}

impl ReceiveRecord {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// # Errors
    /// When the namespace cannot be entered.
    pub(super) fn record(ns: &NetNs, name: &str) -> Result<Self> {
        let (queues, settings) = ns.run(|| (ethtool::channels(name), ethtool::hash_settings(name)))?;
        let settings = settings.unwrap_or_default();
        let interrupts = interrupts::affinities(ns, name);
        Ok(Self { queues: queues.ok(), table: settings.table, key: settings.key, interrupts })
    }

    /// Before all that is set of queues.
    ///
    /// # Errors
    /// What the driver refuses.
    pub(super) fn restore_queues(&self, now: &Self, ns: &NetNs, (name, index): (&str, u32)) -> Result<()> {
        let (Some(was), Some(is)) = (&self.queues, &now.queues) else { return Ok(()) };
        if was == is {
            return Ok(());
        }
        ns.run(|| {
            if receiving(was) < receiving(is) {
                // The kernel refuses fewer queues than a table that was set leads to. What the table was is set afterwards.
                let _ = rss::set(index, name, &[]);
            }
            ethtool::set_channels(name, was)
        })?
    }

    /// When the interface is set up: a driver asks for its interrupts then.
    pub(super) fn restore(
        &self,
        ns: &NetNs,
        (name, index): (&str, u32),
        note: &mut impl FnMut(Result<()>),
    ) -> Result<()> {
        let now = Self::record(ns, name)?;
        if differs(&self.key, &now.key) {
            note(ns.run(|| ethtool::set_hash_key(name, &self.key)).flatten());
        }
        if differs(&self.table, &now.table) {
            note(self.restore_table(ns, name, index));
        }
        Ok(())
    }

    /// At last, for a daemon (irqbalance) may move them again at any time.
    pub(super) fn restore_interrupts(&self, ns: &NetNs, name: &str, note: &mut impl FnMut(Result<()>)) {
        for (interrupt, cpus) in other(&self.interrupts, &interrupts::affinities(ns, name)) {
            note(interrupts::set_affinity(ns, name, interrupt, cpus));
        }
    }

    /// With the CPUs of the other one's interrupts, so that these do not differ.
    pub(super) fn with_interrupts_of(self, other: &Self) -> Self {
        Self { interrupts: other.interrupts.clone(), ..self }
    }

    fn restore_table(&self, ns: &NetNs, name: &str, index: u32) -> Result<()> {
        let set = |table: &[u32]| {
            let done = ns.run(|| rss::set(index, name, table))?;
            done.map_err(|error| Error::new(format!("set the table of receive-side scaling of {name}"), error))
        };
        // One that nobody had set goes on following the number of queues when the driver makes it itself.
        if self.is_of_driver() && set(&[]).is_ok() && Self::record(ns, name)?.table == self.table {
            return Ok(());
        }
        set(&self.table)
    }

    /// Whether the table is as the kernel makes it where none was set (ethtool_rxfh_indir_default).
    fn is_of_driver(&self) -> bool {
        let queues = self.queues.as_ref().map_or(0, receiving);
        (0..).zip(&self.table).all(|(entry, queue): (u32, _)| entry.checked_rem(queues) == Some(*queue))
    }

    pub(super) fn differences(&self, now: &Self, found: &mut Differences) {
        if let (Some(was), Some(is)) = (&self.queues, &now.queues)
            && was != is
        {
            let [was, is] = [was, is].map(words);
            found.add(was.clone(), format!("it has {is} and not {was}"));
        }
        if differs(&self.table, &now.table) {
            found.add("RSS table".into(), "its RSS table is another one".into());
        }
        if differs(&self.key, &now.key) {
            found.add("RSS key".into(), "its RSS key is another one".into());
        }
        let interrupts = other(&self.interrupts, &now.interrupts).map(|(name, was)| {
            let is = now.interrupts.get(name).map_or("?", String::as_str);
            format!("interrupt {name} comes to CPUs {is} and not {was}")
        });
        found.add_all(interrupts, ["interrupt", "interrupts"]);
    }
}

fn receiving(queues: &Channels) -> u32 {
    queues.receive + queues.combined
}

/// What is not told of one of both times cannot be compared.
fn differs<T: PartialEq>(was: &[T], is: &[T]) -> bool {
    !was.is_empty() && !is.is_empty() && was != is
}

fn words(queues: &Channels) -> String {
    let Channels { receive, transmit, other: _, combined } = queues;
    let kinds = [(receive, "receive"), (transmit, "transmit"), (combined, "combined")];
    let kinds = kinds.iter().filter(|(count, _)| **count > 0).map(|(count, kind)| format!("{count} {kind}"));
    let of = if receive + transmit + combined == 1 { "queue" } else { "queues" };
    format!("{} {of}", kinds.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(table: &[u32], queues: u32) -> ReceiveRecord {
        let queues = Some(Channels { combined: queues, ..Channels::default() });
        ReceiveRecord { queues, table: table.to_vec(), ..ReceiveRecord::default() }
    }

    #[test]
    fn a_table_is_the_drivers_own_where_entries_are_on_all_queues_in_turn() {
        assert!(record(&[0, 1, 2, 0, 1], 3).is_of_driver());
        assert!(!record(&[0, 1, 0, 1], 3).is_of_driver(), "one queue is left out");
        assert!(!record(&[0, 1, 1, 0], 2).is_of_driver());
        assert!(!ReceiveRecord { queues: None, ..record(&[0, 1], 2) }.is_of_driver());
    }

    #[test]
    fn what_is_not_told_does_not_differ_and_all_else_is_said() {
        let interrupts = |cpus: &str| BTreeMap::from([("eth1-rx-0".to_owned(), cpus.to_owned())]);
        let was = ReceiveRecord { key: vec![1, 2], interrupts: interrupts("0"), ..record(&[0, 1], 2) };
        let told = |now: &ReceiveRecord| {
            let mut found = Differences::default();
            was.differences(now, &mut found);
            found.into_words()
        };
        assert!(told(&was).is_empty() && told(&ReceiveRecord::default()).is_empty());
        let now = ReceiveRecord { key: vec![1, 3], interrupts: interrupts("0-3"), ..record(&[0, 0], 1) };
        let words = [
            ("2 combined queues", "it has 1 combined queue and not 2 combined queues"),
            ("RSS table", "its RSS table is another one"),
            ("RSS key", "its RSS key is another one"),
            ("1 interrupt", "interrupt eth1-rx-0 comes to CPUs 0-3 and not 0"),
        ];
        assert_eq!(told(&now), words.map(|(was, is)| (was.to_owned(), is.to_owned())));
    }

    #[test]
    fn only_what_is_known_is_written_and_read_again() {
        assert_eq!(serde_json::to_string(&ReceiveRecord::default()).unwrap(), "{}");
        let all =
            ReceiveRecord { key: vec![255], interrupts: BTreeMap::from([("a".into(), "1".into())]), ..record(&[0], 1) };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<ReceiveRecord>(&text).unwrap(), all, "{text}");
        assert!(serde_json::from_str::<ReceiveRecord>(r#"{"another": 1}"#).is_err());
    }
}
