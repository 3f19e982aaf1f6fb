//! The SYN proxy while it runs: its keys turn, and when it begins to answer for a service, and when it has ended, is said.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rig_datapath::balancer::{BalancerHandle, Drop, ServiceStatus};

use super::counts::key_of;
use crate::message::ServiceKey;
use crate::settings::ServiceText;

/// It has ended when it has answered nobody for so long.
const QUIET: Duration = Duration::from_secs(10);

/// Of each service, how often it had answered, and when it was last seen to.
#[derive(Debug, Default)]
pub(super) struct SynProxies {
    answered: HashMap<ServiceKey, (u64, Option<Instant>)>,
}

impl SynProxies {
    pub(super) fn answers(&self, service: ServiceKey) -> bool {
        matches!(self.answered.get(&service), Some((_, Some(_))))
    }

    /// To be called about once a second. What is to be said.
    pub(super) fn tend(&mut self, balancer: &BalancerHandle, now: Instant) -> Result<Vec<String>, rig_datapath::Error> {
        balancer.turn_cookie_keys()?;
        let room = balancer.expect_syn_proxy()?;
        let mut said = self.look(&balancer.services()?, now);
        if room {
            said.push(
                "there is room for connections of the SYN proxy from here on: 16 bytes for each place".to_owned(),
            );
        }
        Ok(said)
    }

    fn look(&mut self, services: &[ServiceStatus], now: Instant) -> Vec<String> {
        let mut said = Vec::new();
        for service in services.iter().filter(|service| service.open) {
            let key = key_of(service);
            let count = service.refused.iter().find(|(reason, _)| *reason == Drop::SynAnswered).map_or(0, |(_, n)| *n);
            // What was answered before this control plane is none of its.
            let (before, since) = self.answered.entry(key).or_insert((count, None));
            if count != *before {
                if since.is_none() {
                    let unanswered = match service.unanswered {
                        0 => String::new(),
                        many => format!(": {many} connections are unanswered"),
                    };
                    said.push(format!("the SYN proxy answers for {}{unanswered}", ServiceText(key)));
                }
                (*before, *since) = (count, Some(now));
            } else if since.is_some_and(|since| now.duration_since(since) >= QUIET) {
                said.push(format!("the SYN proxy has no more to answer for {}", ServiceText(key)));
                *since = None;
            }
        }
        self.answered.retain(|key, _| services.iter().any(|service| service.open && key_of(service) == *key));
        said
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use rig_datapath::balancer::{Protocol, Traffic};

    use super::*;

    fn service(answered: u64) -> ServiceStatus {
        ServiceStatus {
            protocol: Protocol::Tcp,
            address: "192.0.2.1:80".parse().unwrap(),
            forward: "fullnat",
            scheduler: None,
            open: true,
            traffic: Traffic::default(),
            refused: vec![(Drop::SynAnswered, answered)],
            unanswered: 4096,
            backends: Vec::new(),
        }
    }

    #[test]
    fn its_beginning_and_end_are_said_once() {
        let (mut proxies, begun) = (SynProxies::default(), Instant::now());
        let mut at = |seconds: u64, answered| proxies.look(&[service(answered)], begun + Duration::from_secs(seconds));
        assert_eq!(at(0, 7), [""; 0], "counted before");
        assert_eq!(at(1, 8), ["the SYN proxy answers for tcp 192.0.2.1:80: 4096 connections are unanswered"]);
        assert_eq!(at(2, 9), [""; 0]);
        assert_eq!(at(11, 9), [""; 0]);
        assert_eq!(at(12, 9), ["the SYN proxy has no more to answer for tcp 192.0.2.1:80"]);
        assert_eq!(at(13, 9), [""; 0]);
    }
}
