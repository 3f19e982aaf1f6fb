//! The letter of `vrouter.toml`: what serde reads, nothing decided. [`super::read`] turns it into [`super::Settings`].

use rig_cli::forms::TextOrTable;
use rig_stats::units::Span;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

/// Keys that are known and refused, because what they ask for is not built.
pub(super) type NotBuilt = Option<Spanned<IgnoredAny>>;

/// Route targets.
pub(super) type Targets = Spanned<Vec<Spanned<String>>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub router: RouterFile,
    #[serde(default)]
    pub node: Vec<Spanned<NodeFile>>,
    #[serde(default)]
    pub network: Vec<Spanned<NetworkFile>>,
    #[serde(default)]
    pub interface: Vec<Spanned<InterfaceFile>>,
    #[serde(default)]
    pub security_group: Vec<Spanned<SecurityGroupFile>>,
    #[serde(default)]
    pub policy: Vec<Spanned<PolicyFile>>,
    #[serde(default)]
    pub route: Vec<Spanned<RouteFile>>,
    #[serde(default)]
    pub analyser: Vec<Spanned<AnalyserFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnalyserFile {
    pub name: Spanned<String>,
    pub address: Spanned<String>,
    pub port: Option<Spanned<u16>>,
    pub vni: Option<Spanned<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouterFile {
    pub mac: Option<Spanned<String>>,
    pub encapsulation: Option<Spanned<Vec<Spanned<String>>>>,
    pub flows: Option<Spanned<u32>>,
    /// 0: none.
    pub most_flows: Option<u32>,
    pub strict_underlay: Option<bool>,
    pub key_file: Option<Spanned<String>>,
    #[serde(default)]
    pub timeouts: TimeoutsFile,
    pub bgp: Option<Spanned<BgpFile>>,
    pub plugged: Option<Spanned<u32>>,
    pub dhcp: NotBuilt,
    pub dns: NotBuilt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BgpFile {
    pub gobgp: Option<Spanned<String>>,
    #[serde(rename = "as")]
    pub autonomous_system: Option<Spanned<u32>>,
    pub keep: Option<Spanned<Span>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimeoutsFile {
    pub established: Option<Spanned<Span>>,
    pub opening: Option<Spanned<Span>>,
    pub closed: Option<Spanned<Span>>,
    pub other: Option<Spanned<Span>>,
    pub unanswered: Option<Spanned<Span>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeFile {
    pub name: Spanned<String>,
    pub address: Spanned<String>,
    pub interface: Option<Spanned<String>>,
    pub encapsulations: Option<Spanned<Vec<Spanned<String>>>>,
    pub mtu: Option<Spanned<u16>>,
    pub bgp: Option<Spanned<bool>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkFile {
    pub name: Spanned<String>,
    pub subnets: Spanned<Vec<Spanned<TextOrTable<SubnetFile>>>>,
    pub vni: Option<Spanned<u32>>,
    pub label: Option<Spanned<u32>>,
    pub encapsulation: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub policies: Vec<Spanned<String>>,
    pub route_targets: Option<Targets>,
    pub import_targets: Option<Targets>,
    pub export_targets: Option<Targets>,
    #[serde(default)]
    pub fat_flows: Vec<Spanned<FatFlowFile>>,
    pub broadcast: Option<Spanned<bool>>,
    pub flood_unknown_unicast: Option<Spanned<bool>>,
    pub dhcp: NotBuilt,
    pub dns: NotBuilt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubnetFile {
    pub prefix: String,
    pub gateway: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InterfaceFile {
    pub name: Spanned<String>,
    pub node: Spanned<String>,
    pub network: Spanned<String>,
    pub namespace: Option<Spanned<String>>,
    pub container: Option<Spanned<String>>,
    pub device: Option<Spanned<String>>,
    pub addresses: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub allowed_addresses: Vec<Spanned<String>>,
    pub mac: Option<Spanned<String>>,
    pub label: Option<Spanned<u32>>,
    pub vni: Option<Spanned<u32>>,
    #[serde(default)]
    pub security_groups: Vec<Spanned<String>>,
    /// 0: none.
    pub most_flows: Option<u32>,
    #[serde(default)]
    pub fat_flows: Vec<Spanned<FatFlowFile>>,
    pub mirror: Option<Spanned<String>>,
    #[serde(default)]
    pub dhcp_server: bool,
}

/// A service whose flows are one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FatFlowFile {
    pub protocol: Spanned<NumberOrText>,
    pub port: Spanned<u16>,
    pub ignore: NotBuilt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecurityGroupFile {
    pub name: Spanned<String>,
    pub id: Option<Spanned<u32>>,
    #[serde(default, rename = "in")]
    pub inward: Vec<Spanned<GroupRuleFile>>,
    /// Where nothing is said of it, everything is let out.
    #[serde(rename = "out")]
    pub outward: Option<Vec<Spanned<GroupRuleFile>>>,
}

/// What a rule says of packets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupRuleFile {
    pub protocol: Option<Spanned<NumberOrText>>,
    pub ports: Option<Spanned<Ports>>,
    pub types: Option<Spanned<Ports>>,
    pub remote_prefix: Option<Spanned<String>>,
    pub remote_group: Option<Spanned<String>>,
    #[serde(default)]
    pub log: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    pub name: Spanned<String>,
    pub rules: Vec<Spanned<PolicyRuleFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyRuleFile {
    pub action: ActionFile,
    pub protocol: Option<Spanned<NumberOrText>>,
    pub ports: Option<Spanned<Ports>>,
    pub types: Option<Spanned<Ports>>,
    pub source: Spanned<String>,
    pub destination: Spanned<String>,
    #[serde(default)]
    pub direction: DirectionFile,
    #[serde(default)]
    pub log: bool,
    pub mirror: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ActionFile {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) enum DirectionFile {
    #[serde(rename = ">")]
    Forward,
    #[default]
    #[serde(rename = "<>")]
    Both,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteFile {
    pub network: Spanned<String>,
    pub prefix: Spanned<String>,
    pub via: Spanned<Vec<Spanned<String>>>,
}

/// `6` or `"tcp"`, `80` or `"8000-8010"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a number or a string")]
pub(super) enum NumberOrText {
    Number(u64),
    Text(String),
}

/// One, or a list of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a number, a string such as \"8000-8010\", or a list of them")]
pub(super) enum Ports {
    One(NumberOrText),
    Many(Vec<NumberOrText>),
}
