//! Which addresses the balancer has announced, and when.

use super::engine::Engine;
use crate::bgp::{Announcements, announcements};
use crate::message::BgpStatus;
use crate::settings::Service;

impl Engine {
    /// Has addresses announced and withdrawn as it stands now.
    pub(super) fn follow_bgp(&self) {
        if let Some(announcer) = &self.announcer {
            announcer.announce(self.announcements());
        }
    }

    pub(super) fn announcements(&self) -> Announcements {
        let Some(settings) = &self.start.bgp else { return Announcements::new() };
        let is_attached = !self.withdrawn && self.devices.are_attached();
        let gets = |service: &Service| service.backends.iter().any(|backend| backend.effective_weight() > 0);
        let can_take = |service: &Service| {
            is_attached && service.lacks().is_none() && gets(service) && self.health.has_quorum(service)
        };
        announcements(&self.rules, settings, can_take)
    }

    /// What stands in the way of it.
    pub(super) fn bgp_trouble(&self) -> Option<String> {
        let (announcer, settings) = (self.announcer.as_ref()?, self.start.bgp.as_ref()?);
        let why = announcer.state().trouble?;
        Some(format!("addresses are not announced: speaker {}: {why}", settings.speaker))
    }

    pub(super) fn bgp_status(&self) -> Option<BgpStatus> {
        let (announcer, settings) = (self.announcer.as_ref()?, self.start.bgp.as_ref()?);
        let state = announcer.state();
        let (autonomous_system, identifier) = state.connected.unzip();
        Some(BgpStatus {
            speaker: settings.speaker.clone(),
            autonomous_system,
            identifier,
            trouble: state.trouble,
            announced: state.announced.into_iter().collect(),
        })
    }
}
