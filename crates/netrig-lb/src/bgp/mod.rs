//! Addresses that are announced by BGP while packets for them can come here, through the machine's own speaker, GoBGP.
//!
//! ```text
//! rules, health, withdrawn ── announcements ──> Announcer (a thread that talks to gobgpd) ──> gobgpd ── BGP ──> routers
//! ```

#[cfg(not(feature = "bgp"))]
mod absent;
#[cfg(feature = "bgp")]
mod announcer;
#[cfg(feature = "bgp")]
mod path;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

#[cfg(not(feature = "bgp"))]
pub(crate) use self::absent::Announcer;
#[cfg(feature = "bgp")]
pub(crate) use self::announcer::Announcer;

/// Whether files may have `[bgp]`. Tests of settings need no speaker.
pub(crate) const HAS_BGP: bool = cfg!(any(feature = "bgp", test));

/// What a file says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BgpSettings {
    /// Of the API of gobgpd: an address with a port, or `unix:` with a path.
    pub speaker: String,
    /// Whether local addresses are announced, too.
    pub local: bool,
}

/// Where GoBGP's API is where nothing is said of it.
pub(crate) const SPEAKER: &str = "127.0.0.1:50051";
/// Addresses with their MULTI_EXIT_DISC; `None` where they are not announced.
pub(crate) type Announcements = BTreeMap<IpAddr, Option<u32>>;

/// What comes of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SpeakerState {
    /// Its AS and its identifier, while it is there.
    pub(crate) connected: Option<(u32, String)>,
    /// Why it is not there.
    pub(crate) trouble: Option<String>,
    /// What it was told to announce.
    pub(crate) announced: BTreeSet<IpAddr>,
}
