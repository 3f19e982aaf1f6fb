//! The lists of who may begin connections, as they are told to who asks.

use rig_service::Replies;

use super::engine::{Engine, refusal};
use super::status::{in_background, key};
use crate::message::{AccessEntry, Reply};

/// Entries of one reply.
const BATCH: usize = 4096;

impl Engine {
    /// What each prefix has decided on, a batch at a time.
    pub(super) fn list_access(&self, to: Replies<Reply>) {
        let hits = match self.balancer.access_hits() {
            Ok(hits) => hits,
            Err(error) => return to.finish(Err(refusal(error.into()))),
        };
        let entries: Vec<AccessEntry> = hits
            .into_iter()
            .map(|hit| AccessEntry {
                service: hit.service.map(|(protocol, address)| key(protocol, address)),
                prefix: hit.prefix.map(|prefix| prefix.to_string()),
                allows: hit.allows,
                packets: hit.packets,
            })
            .collect();
        // Who asks may take as long as it likes to read them.
        let work = move || {
            let mut batches = entries.chunks(BATCH).peekable();
            while let Some(batch) = batches.next() {
                let reply = Reply::Access(batch.to_vec());
                if batches.peek().is_none() {
                    return to.finish(Ok(reply));
                }
                if to.part(reply).is_err() {
                    return;
                }
            }
            to.finish(Ok(Reply::Access(Vec::new())));
        };
        in_background("list", work);
    }
}
