//! Security groups and network policies: from their letter to what they mean.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use rig_datapath::vrouter::{Action, MOST_RULES, Service};
use toml::Spanned;

use super::file::{
    ActionFile, DirectionFile, FatFlowFile, File, GroupRuleFile, NumberOrText, PolicyRuleFile, Ports, SecurityGroupFile,
};
use super::read::{Reader, Result};
use super::{GroupRule, NetworkPolicy, Packets, PolicyRule, Remote, Router, RuleEnd, SecurityGroup};

/// IP protocols by name (IANA, Assigned Internet Protocol Numbers).
pub(crate) const PROTOCOLS: [(&str, u8); 10] = [
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", TCP),
    ("udp", UDP),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("vrrp", 112),
    ("sctp", 132),
];
const TCP: u8 = 6;
const UDP: u8 = 17;

impl Reader<'_> {
    pub(super) fn security_groups(&self, file: &File, router: &Router) -> Result<BTreeMap<String, SecurityGroup>> {
        let ids = self.group_ids(file, router)?;
        let read = |entry: &Spanned<SecurityGroupFile>| {
            let group = entry.get_ref();
            let inward = group.inward.iter().map(|rule| self.group_rule(rule)).collect::<Result<_>>()?;
            let outward = group.outward.as_ref();
            let outward = outward.map(|rules| rules.iter().map(|rule| self.group_rule(rule)).collect());
            let name = group.name.get_ref().clone();
            let id = ids.get(&name).copied().unwrap_or(0);
            Ok((name, SecurityGroup { id, inward, outward: outward.transpose()? }))
        };
        file.security_group.iter().map(read).collect()
    }

    fn group_rule(&self, entry: &Spanned<GroupRuleFile>) -> Result<GroupRule> {
        let rule = entry.get_ref();
        let remote = match (&rule.remote_prefix, &rule.remote_group) {
            (None, None) => Remote::Any,
            (Some(prefix), None) => Remote::Prefix(self.prefix(prefix.get_ref(), prefix.span())?),
            (None, Some(group)) => Remote::Group(self.known("security group", group, &self.names.groups)?),
            (Some(_), Some(group)) => {
                let what = "a rule with both 'remote_prefix' and 'remote_group'";
                return Err(self.error(group.span(), what, "write a rule for each"));
            }
        };
        Ok(GroupRule {
            packets: self.packets(rule.protocol.as_ref(), rule.ports.as_ref(), rule.types.as_ref())?,
            remote,
            log: rule.log,
        })
    }

    pub(super) fn policies(&self, file: &File) -> Result<BTreeMap<String, NetworkPolicy>> {
        let mut policies = BTreeMap::new();
        for entry in &file.policy {
            let policy = entry.get_ref();
            let rules = policy.rules.iter().map(|rule| self.policy_rule(rule)).collect::<Result<_>>()?;
            policies.insert(policy.name.get_ref().clone(), NetworkPolicy { rules });
        }
        Ok(policies)
    }

    fn policy_rule(&self, entry: &Spanned<PolicyRuleFile>) -> Result<PolicyRule> {
        let rule = entry.get_ref();
        let mirror =
            rule.mirror.as_ref().map(|name| self.known("analyser", name, &self.names.analysers)).transpose()?;
        if let (Some(said), ActionFile::Deny) = (&rule.mirror, rule.action) {
            let hint = "mirror what rules allow; 'log' tells of what they deny";
            return Err(self.error(said.span(), "'mirror' of a rule that denies: there are no flows of it", hint));
        }
        let both_ways = rule.direction == DirectionFile::Both;
        if let (true, Some(ports)) = (both_ways, rule.ports.as_ref().or(rule.types.as_ref())) {
            let hint = "set direction = \">\": answers are let through, too; or write a rule for each direction";
            return Err(self.error(ports.span(), "ports are the destination's, and '<>' has two destinations", hint));
        }
        let action = match rule.action {
            ActionFile::Allow => Action::Allow,
            ActionFile::Deny => Action::Deny,
        };
        Ok(PolicyRule {
            action,
            packets: self.packets(rule.protocol.as_ref(), rule.ports.as_ref(), rule.types.as_ref())?,
            source: self.end(&rule.source)?,
            destination: self.end(&rule.destination)?,
            both_ways,
            log: rule.log,
            mirror,
        })
    }

    fn end(&self, said: &Spanned<String>) -> Result<RuleEnd> {
        match said.get_ref().as_str() {
            "any" => Ok(RuleEnd::Any),
            // No name has a slash.
            text if text.contains('/') => Ok(RuleEnd::Prefix(self.prefix(text, said.span())?)),
            _ => Ok(RuleEnd::Network(self.known("network", said, &self.names.networks)?)),
        }
    }

    pub(super) fn fat_flows(&self, list: &[Spanned<FatFlowFile>]) -> Result<BTreeSet<Service>> {
        let read = |entry: &Spanned<FatFlowFile>| {
            let FatFlowFile { protocol, port, ignore } = entry.get_ref();
            if let Some(ignore) = ignore {
                let what = "fat flows of many addresses are not supported: rules and next hops are for addresses";
                return Err(self.error(ignore.span(), what, "remove this key: flows of two addresses are one then"));
            }
            let Some(number @ (TCP | UDP)) = self.protocol(protocol)? else {
                let what = "fat flows of a protocol without ports";
                return Err(self.error(protocol.span(), what, "choose tcp or udp"));
            };
            if *port.get_ref() == 0 {
                let hint = "give the service's port, 1 to 65535: rules need it";
                return Err(self.error(port.span(), "0 is not a port of a service", hint));
            }
            Ok(Service { protocol: number, port: *port.get_ref() })
        };
        list.iter().map(read).collect()
    }

    fn packets(
        &self,
        protocol: Option<&Spanned<NumberOrText>>,
        ports: Option<&Spanned<Ports>>,
        types: Option<&Spanned<Ports>>,
    ) -> Result<Packets> {
        let protocol = protocol.map(|protocol| self.protocol(protocol)).transpose()?.flatten();
        let (said, key, of, most) = match (ports, types) {
            (None, None) => return Ok(Packets { protocol, ports: vec![0..=u16::MAX] }),
            (Some(ports), None) => (ports, "ports", [TCP, UDP], u16::MAX),
            (None, Some(types)) => (types, "types", [1, 58], u16::from(u8::MAX)),
            (Some(_), Some(types)) => {
                let what = "a rule with both 'ports' and 'types'";
                return Err(self.error(types.span(), what, "TCP and UDP have ports, ICMP has types: remove one"));
            }
        };
        if !protocol.is_some_and(|protocol| of.contains(&protocol)) {
            let names = if key == "ports" { "tcp or udp" } else { "icmp or icmpv6" };
            let what = format!("'{key}' of a rule that is not for {names}");
            return Err(self.error(said.span(), what, format!("set protocol, {names}, or remove '{key}'")));
        }
        let list = match said.get_ref() {
            Ports::One(one) => std::slice::from_ref(one),
            Ports::Many(many) => many,
        };
        let read = |one: &NumberOrText| {
            range(one, most).ok_or_else(|| {
                let text = match one {
                    NumberOrText::Number(number) => number.to_string(),
                    NumberOrText::Text(text) => text.clone(),
                };
                let hint = format!("write 80, \"80\", \"8000-8010\" or a list of these, 0 to {most}");
                self.error(said.span(), format!("'{text}' is none of '{key}'"), hint)
            })
        };
        let ports = list.iter().map(read).collect::<Result<Vec<_>>>()?;
        if ports.is_empty() || ports.len() > MOST_RULES {
            let what = format!("a rule with {} of '{key}'", ports.len());
            return Err(self.error(said.span(), what, format!("give 1 to {MOST_RULES}, or leave it out for all")));
        }
        Ok(Packets { protocol, ports })
    }

    /// `None` for any.
    fn protocol(&self, said: &Spanned<NumberOrText>) -> Result<Option<u8>> {
        let (number, text) = match said.get_ref() {
            NumberOrText::Number(number) => (u8::try_from(*number).ok(), number.to_string()),
            NumberOrText::Text(text) if text == "any" => return Ok(None),
            NumberOrText::Text(text) => {
                let known = PROTOCOLS.iter().find(|(name, _)| name == text);
                (known.map(|(_, number)| *number).or_else(|| text.parse().ok()), text.clone())
            }
        };
        let names = PROTOCOLS.map(|(name, _)| name).join(", ");
        let hint = format!("choose one of any, {names}, or a number to 255");
        number.map(Some).ok_or_else(|| self.error(said.span(), format!("there is no protocol '{text}'"), hint))
    }
}

fn range(said: &NumberOrText, most: u16) -> Option<RangeInclusive<u16>> {
    let range = match said {
        NumberOrText::Number(number) => {
            let number = u16::try_from(*number).ok()?;
            number..=number
        }
        NumberOrText::Text(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            first.trim().parse().ok()?..=last.trim().parse().ok()?
        }
    };
    (!range.is_empty() && *range.end() <= most).then_some(range)
}
