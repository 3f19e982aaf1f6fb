//! Where routes of other nodes come from: the file, and the speaker of BGP, where there is one.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rig_service::Waker;
use tracing::{info, warn};

use crate::bgp::{BgpRoutes, Order, Speaker, SpeakerEvent, announced};
use crate::routes::{FileRoutes, RouteSource, RouteSourceError, RouteUpdate};
use crate::settings::Settings;

/// All of them.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    node: String,
    file: FileRoutes,
    pub(super) bgp: BgpRoutes,
}

impl Sources {
    pub(super) fn new(settings: &Settings, node: &str) -> Self {
        Self { node: node.to_owned(), file: FileRoutes::new(settings, node), bgp: BgpRoutes::default() }
    }

    /// From now on they say what these settings have them say.
    pub(super) fn reload(&mut self, settings: &Settings) {
        self.file.reload(settings);
        self.bgp.reload(settings, &self.node);
    }

    /// Routers that routes lead to and the settings need not have.
    pub(super) fn others(&self) -> BTreeSet<Ipv4Addr> {
        self.bgp.next_hops()
    }
}

impl RouteSource for Sources {
    fn updates(&mut self) -> Result<Vec<RouteUpdate>, RouteSourceError> {
        Ok([self.file.updates()?, self.bgp.updates()?].concat())
    }
}

/// Who begins has to hear what there is before it decides what is no more; a speaker that is there tells at once.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The conversation with the speaker that the settings name.
pub(super) struct SpeakerSession {
    node: String,
    speaker: Option<Speaker>,
    /// What is announced is withdrawn when it ends.
    withdraws: bool,
    wake: Arc<Waker>,
}

impl SpeakerSession {
    pub(super) fn new(node: &str, persist: bool, wake: Waker) -> Self {
        Self { node: node.to_owned(), speaker: None, withdraws: !persist, wake: Arc::new(wake) }
    }

    /// Has it announce what is in the settings: begins it, goes on with it or ends it.
    pub(super) fn order(&mut self, settings: &Settings, routes: &mut BgpRoutes) -> io::Result<()> {
        let node = settings.nodes.get(&self.node).filter(|node| node.bgp);
        let Some((bgp, node)) = settings.router.bgp.as_ref().zip(node) else {
            if let Some(speaker) = self.speaker.take() {
                speaker.withdraw();
                *routes = BgpRoutes::default();
            }
            return Ok(());
        };
        let of_node = Arc::new(announced::routes(settings, &self.node));
        let order = Order { address: bgp.gobgp.clone(), node: node.address, routes: of_node };
        if let Some(speaker) = &self.speaker {
            speaker.order(order);
            return Ok(());
        }
        let wake = Arc::clone(&self.wake);
        self.speaker = Some(Speaker::start(order, move || wake.wake())?);
        Ok(())
    }

    /// Waits until the speaker has told what there is, or is known not to be there.
    pub(super) fn begin(&self, settings: &Settings, routes: &mut BgpRoutes) {
        let deadline = Instant::now() + TIMEOUT;
        while let Some(heard) =
            self.speaker.as_ref().and_then(|speaker| speaker.wait(deadline.saturating_duration_since(Instant::now())))
        {
            let is_last = matches!(heard, SpeakerEvent::Changes(_) | SpeakerEvent::Lost(_));
            take(heard, settings, routes);
            if is_last {
                return;
            }
        }
    }

    /// Takes what the speaker has told, and forgets what has been remembered for long enough. Whether there was something.
    pub(super) fn hear(&self, settings: &Settings, routes: &mut BgpRoutes) -> bool {
        let mut is_new = false;
        for heard in self.speaker.iter().flat_map(Speaker::heard) {
            is_new = true;
            take(heard, settings, routes);
        }
        let keep = settings.router.bgp.as_ref().map_or(Duration::ZERO, |bgp| bgp.keep);
        let is_less = routes.expire(Instant::now(), keep);
        if is_less {
            warn!("routes that the speaker did not announce again are withdrawn");
        }
        is_new || is_less
    }
}

fn take(heard: SpeakerEvent, settings: &Settings, routes: &mut BgpRoutes) {
    if let Some(bgp) = &settings.router.bgp {
        match &heard {
            SpeakerEvent::Connected { autonomous_system, identifier } => {
                info!("speaker {}: AS {autonomous_system}, identifier {identifier}", bgp.gobgp);
            }
            SpeakerEvent::Lost(why) => {
                let keep = bgp.keep.as_secs_f64();
                warn!("speaker {}: {why}; its routes stay for {keep} s, and it is tried again", bgp.gobgp);
            }
            SpeakerEvent::Changes(_) | SpeakerEvent::Announced(_) => {}
        }
    }
    routes.hear(heard, Instant::now());
}

impl Drop for SpeakerSession {
    fn drop(&mut self) {
        if let Some(speaker) = self.speaker.take().filter(|_| self.withdraws) {
            speaker.withdraw();
        }
    }
}
