//! What is left to the kernel.

use std::net::IpAddr;

use super::super::reason::{Drop, Pass};
use super::{Model, Refusal};

impl Model {
    pub(super) fn unhandled(&self, to: IpAddr, passes: bool, drop: Drop, pass: Pass) -> Refusal {
        if self.owns(to) && !passes { Refusal::Drop(drop) } else { Refusal::Pass(pass) }
    }

    fn owns(&self, to: IpAddr) -> bool {
        let mut open = self.services.iter().filter(|known| known.open).map(|known| &known.service);
        open.any(|service| service.address.ip() == to || service.forward.local().contains(&to))
    }

    /// Whether as many were left to the kernel in this tick as may be.
    pub(super) fn is_over_limit(&self, reason: Pass, tick: u32) -> bool {
        let (last, left) = self.strays.get(&reason).copied().unwrap_or_default();
        let most = self.policy.strays_per_tick();
        most != 0 && last == tick && left >= most
    }

    pub(super) fn pass_counted(&mut self, reason: Pass, tick: u32) -> Refusal {
        let of = self.strays.entry(reason).or_default();
        *of = (tick, if of.0 == tick { of.1 + 1 } else { 1 });
        Refusal::Pass(reason)
    }

    /// What no connection and no service has.
    pub(super) fn leave_unmatched(&mut self, to: IpAddr, reason: Pass, tick: u32) -> Refusal {
        match () {
            () if !self.owns(to) => Refusal::Pass(reason),
            () if self.is_over_limit(reason, tick) => Drop::Strays.into(),
            () => self.pass_counted(reason, tick),
        }
    }
}
