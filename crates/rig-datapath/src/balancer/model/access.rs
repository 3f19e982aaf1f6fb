//! Who may begin connections.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Model, ServiceId};
use crate::balancer::config::AccessLists;

/// The longest prefix of a list that an address is in, and whether it allows; that of no length stands for all that is in none.
fn longest(lists: &AccessLists, client: IpAddr) -> Option<(u8, bool)> {
    let said = lists.allow.iter().map(|prefix| (prefix, true)).chain(lists.deny.iter().map(|prefix| (prefix, false)));
    let matching = said.filter(|(prefix, _)| prefix.contains(&client));
    let longest =
        matching.map(|(prefix, allows)| (IpNet::prefix_len(prefix), allows)).max_by_key(|(length, _)| *length);
    longest.or_else(|| (!lists.allow.is_empty()).then_some((0, false)))
}

impl Model {
    pub(super) fn is_denied(&self, service: ServiceId, client: IpAddr) -> bool {
        let own = longest(&self.services[service.0].service.access, client);
        let of_all = longest(&self.access, client);
        let decides = match (own, of_all) {
            (Some(own), Some(of_all)) => Some(if of_all.0 > own.0 { of_all } else { own }),
            (own, of_all) => own.or(of_all),
        };
        decides.is_some_and(|(_, allows)| !allows)
    }
}
