//! Routes between nodes by BGP, through the node's own speaker, GoBGP.
//!
//! ```text
//! settings ── announced::routes ──> Speaker (a thread that talks to gobgpd) ──> gobgpd ── BGP ──> other nodes'
//! RouteTable <── BgpRoutes: RouteSource <── Learned <── Heard <────┘
//! ```

#[cfg(not(feature = "bgp"))]
mod absent;
pub mod announced;
mod learned;
#[cfg(feature = "bgp")]
mod path;
mod route;
#[cfg(feature = "bgp")]
mod speaker;
#[cfg(all(test, feature = "bgp"))]
mod tests;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(not(feature = "bgp"))]
pub use absent::{Speaker, probe};
#[cfg(feature = "bgp")]
pub use rig_bgp::client::probe;
#[cfg(feature = "bgp")]
use rig_bgp::{client, message};
#[cfg(feature = "bgp")]
pub use speaker::Speaker;

use self::announced::Routes;
use self::learned::LearnedRoutes;
use self::route::RouteChange;
use crate::routes::{RouteSource, RouteSourceError, RouteTable, RouteUpdate};
use crate::settings::Settings;

/// What the speaker shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Of its API.
    pub address: String,
    /// Of this node.
    pub node: Ipv4Addr,
    pub routes: Arc<Routes>,
}

/// What comes from the speaker.
#[derive(Debug, PartialEq, Eq)]
pub enum SpeakerEvent {
    Connected {
        autonomous_system: u32,
        identifier: String,
    },
    /// All that there is right behind [`SpeakerEvent::Connected`], then what changes.
    Changes(Vec<RouteChange>),
    /// So many routes of this node it has now.
    Announced(usize),
    /// It is tried again. Told once until it is connected, or there is another reason.
    Lost(String),
}

/// What other nodes' speakers have told this one's, as a source of routes.
#[derive(Debug, Clone, Default)]
pub struct BgpRoutes {
    learned: Arc<LearnedRoutes>,
    says: RouteTable,
    told: RouteTable,
    pub state: SpeakerState,
}

/// How it stands with the speaker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpeakerState {
    /// Its AS and its identifier, while it is there.
    pub connected: Option<(u32, String)>,
    /// Why it is not there.
    pub trouble: Option<String>,
    /// Routes of this node that it has.
    pub announced: usize,
}

impl BgpRoutes {
    /// What the settings make of it is said by [`BgpRoutes::reload`].
    pub fn hear(&mut self, heard: SpeakerEvent, now: Instant) {
        match heard {
            SpeakerEvent::Connected { autonomous_system, identifier } => {
                Arc::make_mut(&mut self.learned).connected(now);
                self.state.connected = Some((autonomous_system, identifier));
                self.state.trouble = None;
            }
            SpeakerEvent::Changes(all) => {
                let learned = Arc::make_mut(&mut self.learned);
                all.into_iter().for_each(|told| learned.told(told));
            }
            SpeakerEvent::Announced(count) => self.state.announced = count,
            SpeakerEvent::Lost(why) => {
                Arc::make_mut(&mut self.learned).lost(now);
                self.state = SpeakerState { trouble: Some(why), ..SpeakerState::default() };
            }
        }
    }

    /// Forgets what is only remembered for long enough, and says whether there was something.
    pub fn expire(&mut self, now: Instant, keep: Duration) -> bool {
        // It is rarely so, and then a copy is made.
        let is_expired = self.learned.is_expired(now, keep);
        if is_expired {
            Arc::make_mut(&mut self.learned).expire(now, keep);
        }
        is_expired
    }

    /// From now on it says what these settings make of what it has heard.
    pub fn reload(&mut self, settings: &Settings, node: &str) {
        self.says = self.learned.table(settings, node);
    }

    /// Whether there is something that the daemon has not been told.
    pub fn has_news(&self) -> bool {
        self.says != self.told
    }

    /// Where tunnels of routes end that it has told or will tell.
    pub fn next_hops(&self) -> BTreeSet<Ipv4Addr> {
        self.says.iter().map(|route| route.node).collect()
    }

    /// Routes of other nodes, and how many of them are only remembered.
    pub fn count(&self, settings: &Settings, node: &str) -> (usize, usize) {
        settings.nodes.get(node).map_or((0, 0), |node| self.learned.count(node.address))
    }
}

/// What a node would learn if the other nodes of its settings had speakers that told its own of them.
#[cfg(feature = "fuzz")]
pub(crate) fn exchanged(settings: &Settings, node: &str) -> RouteTable {
    let mut learned = LearnedRoutes::default();
    for other in settings.nodes.keys().filter(|other| *other != node) {
        let messages = announced::routes(settings, other);
        let messages = messages.iter().map(|(subject, says)| path::to_message(subject, Some(says)));
        messages.filter_map(|message| path::of_message(&message)).for_each(|told| learned.told(told));
    }
    learned.table(settings, node)
}

impl RouteSource for BgpRoutes {
    fn updates(&mut self) -> Result<Vec<RouteUpdate>, RouteSourceError> {
        let updates = self.says.since(&self.told);
        self.told.clone_from(&self.says);
        Ok(updates)
    }
}
