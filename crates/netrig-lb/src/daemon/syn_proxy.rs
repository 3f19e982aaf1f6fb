//! The SYN proxy while it runs: its keys turn, and when it begins to answer for a service, and when it has ended, is said.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use rig_cli::exit::in_words;
use rig_datapath::balancer::{BalancerHandle, ClientAddress, Drop, ServiceStatus};

use super::counts::key_of;
use crate::message::ServiceKey;
use crate::settings::{Rules, ServiceText, SynProxy, client_address_name};

/// It has ended when it has answered nobody for so long.
const QUIET: Duration = Duration::from_secs(10);
/// What there was no memory for is not asked for again at once.
const RETRY: Duration = Duration::from_secs(30);

/// Of each service, how often it had answered, and when it was last seen to.
#[derive(Debug, Default)]
pub(super) struct SynProxies {
    answered: HashMap<ServiceKey, (u64, Option<Instant>)>,
    /// There was no memory for its connections, when that was last tried, and why.
    lacks: Option<(Instant, String)>,
}

/// The numbers that generic XDP leaves behind TCP's partial checksums are no sums of what the proxy writes, and the kernel knows where it
/// has to write them from before a header has grown. Behind a sum over an outer packet, or with the header of the other family, they would be
/// wrong: that is not to come with a device that `may_be` in generic mode either, as nothing would tell of it but backends' counters.
pub(super) fn refuse_generic(rules: &Rules, device: Option<&str>, may_be: Option<&str>) -> anyhow::Result<()> {
    let proxied = rules.services.iter().find(|service| service.syn_proxy() != SynProxy::Off);
    match (proxied, device) {
        (Some(service), Some(device)) => Err(anyhow!(
            "{} has the SYN proxy, which cannot write the checksums of generic XDP, as {device} has it: a driver with XDP, or syn_proxy = \"off\"",
            ServiceText(service.key)
        )),
        _ => Ok(()),
    }?;
    let told = rules.services.iter().find(|service| service.client_address != ClientAddress::Off);
    match (told, device) {
        (Some(service), Some(device)) => Err(anyhow!(
            "{} has client_address = \"{}\", which checksums of generic XDP, as {device} has it, leave no way for: a driver with XDP, or client_address = \"off\"",
            ServiceText(service.key),
            client_address_name(service.client_address)
        )),
        _ => Ok(()),
    }?;
    let has = if device.is_some() { "has" } else { "may have" };
    match (rules.services.iter().find(|service| service.translates_families()), may_be) {
        (Some(service), Some(may_be)) => Err(anyhow!(
            "{} has backends of IPv4, whose packets cannot be translated with the checksums of generic XDP, as {} {has} it: a driver with XDP \
             that generic mode is not allowed for, or backends of IPv6",
            ServiceText(service.key),
            device.unwrap_or(may_be)
        )),
        _ => Ok(()),
    }?;
    match (rules.services.iter().find(|service| service.sums_tunnels()), may_be) {
        (Some(service), Some(may_be)) => Err(anyhow!(
            "{} has a tunnel with checksum = true, which cannot be over unfinished checksums of generic XDP, as {} {has} it: a driver with XDP \
                 that generic mode is not allowed for, or checksum = false",
            ServiceText(service.key),
            device.unwrap_or(may_be)
        )),
        _ => Ok(()),
    }
}

impl SynProxies {
    pub(super) fn answers(&self, service: ServiceKey) -> bool {
        matches!(self.answered.get(&service), Some((_, Some(_))))
    }

    /// To be called about once a second. What is to be said, and what did not work.
    pub(super) fn tend(&mut self, balancer: &BalancerHandle, now: Instant) -> (Vec<String>, Option<String>) {
        let words = |error: rig_datapath::Error| in_words(&error.into());
        let turned = balancer.turn_cookie_keys().err().map(words);
        let (mut said, seen) = match balancer.services() {
            Ok(services) => (self.look(&services, now), None),
            Err(error) => (Vec::new(), Some(words(error))),
        };
        if self.lacks.as_ref().is_none_or(|(since, _)| now.duration_since(*since) >= RETRY) {
            let room = balancer.expect_syn_proxy();
            if let Ok(true) = room {
                said.push(
                    "there is room for connections of the SYN proxy from here on: 16 bytes for each place".to_owned(),
                );
            }
            self.lacks = room.err().map(|error| (now, words(error)));
        }
        (said, turned.or(seen).or_else(|| self.lacks.as_ref().map(|(_, why)| why.clone())))
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
    use crate::settings::{Completeness, Settings};

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
            unlimited: 0,
            backends: Vec::new(),
        }
    }

    #[test]
    fn generic_xdp_is_refused_where_a_service_has_it() {
        let rules = |mode: &str| {
            let text = format!(
                "[[service]]\nlisten = '192.0.2.1:80'\nbackend = ['10.0.0.1:80']\nforward = 'nat'\nsyn_proxy = '{mode}'"
            );
            Settings::parse("lb.toml", &text, Completeness::Optional).unwrap().rules
        };
        assert!(refuse_generic(&rules("off"), Some("eth0"), Some("eth0")).is_ok());
        for mode in ["auto", "always"] {
            assert!(refuse_generic(&rules(mode), None, Some("eth0")).is_ok());
            let error = refuse_generic(&rules(mode), Some("eth0"), Some("eth0")).unwrap_err().to_string();
            assert!(error.contains("192.0.2.1:80") && error.contains("eth0"), "{error}");
        }
        let text = "[[service]]\nlisten = '192.0.2.1:80'\nlocal = '198.51.100.1'\nclient_address = 'toa'";
        let told = Settings::parse("lb.toml", text, Completeness::Optional).unwrap().rules;
        assert!(refuse_generic(&told, None, Some("eth0")).is_ok());
        let error = refuse_generic(&told, Some("eth0"), Some("eth0")).unwrap_err().to_string();
        assert!(error.contains("client_address = \"toa\"") && error.contains("eth0"), "{error}");
    }

    #[test]
    fn sums_over_outer_packets_are_refused_where_generic_xdp_is_allowed() {
        let rules = |tunnel: &str| {
            let text = format!(
                "[[service]]\nlisten = '192.0.2.1:80'\nbackend = ['10.0.0.1', {{ address = '10.0.0.2', tunnel = {tunnel} }}]\nforward = \
                 'tunnel'\nlocal = '198.51.100.1'"
            );
            Settings::parse("lb.toml", &text, Completeness::Optional).unwrap().rules
        };
        let sums = rules("{ type = 'gue', checksum = true }");
        assert!(refuse_generic(&sums, None, None).is_ok());
        for device in [None, Some("eth1")] {
            for other in ["'gue'", "'gre'", "'ipip'"] {
                assert!(refuse_generic(&rules(other), device, Some("eth1")).is_ok(), "{other}");
            }
            let error = refuse_generic(&sums, device, Some("eth1")).unwrap_err().to_string();
            let has = if device.is_some() { "eth1 has it" } else { "eth1 may have it" };
            assert!(error.contains("192.0.2.1:80") && error.contains(has), "{error}");
        }
        // One that is no tunnel any more has none.
        let mut translated = sums;
        translated.services[0].forward = Some(crate::message::ForwardingMethod::Nat);
        assert!(refuse_generic(&translated, Some("eth1"), Some("eth1")).is_ok());
    }

    #[test]
    fn translation_is_refused_where_generic_xdp_is_allowed() {
        let rules = |backend: &str| {
            let text = format!(
                "[[service]]\nlisten = '[2001:db8::1]:80'\nlocal = ['10.0.0.200', 'fd00::9']\nbackend = ['fd00::1', '{backend}']"
            );
            Settings::parse("lb.toml", &text, Completeness::Required).unwrap().rules
        };
        let translated = rules("10.0.0.1");
        assert!(refuse_generic(&translated, None, None).is_ok());
        for (device, has) in [(None, "eth1 may have it"), (Some("eth1"), "eth1 has it")] {
            assert!(refuse_generic(&rules("fd00::2"), device, Some("eth1")).is_ok());
            let error = refuse_generic(&translated, device, Some("eth1")).unwrap_err().to_string();
            assert!(error.contains("[2001:db8::1]:80 has backends of IPv4") && error.contains(has), "{error}");
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
