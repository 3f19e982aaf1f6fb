//! Hosts by their names: what `--host` and `--on` take, and hosts.toml.

pub mod check;
pub mod labels;
mod side_by_side;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};
use rig_cli::exit::{Exit, ExitContext, Failure, in_words};
use rig_cli::forms::OneOrMany;
use rig_cli::mistakes::{FileError, load_text};
use rig_cli::schema::{Schema, described};
use rig_cli::source::{Source, Spanned};
use rig_sys::clock::monotonic_ns;
use rig_sys::cpu::CpuSet;
use rig_testbed::datapath::Machine;
use rig_testbed::host::{Host, HostAccess, HostGroup, HostOfNode, Local, Remote, is_rootless};
use rig_testbed::topology::check_name;
use schemars::JsonSchema;
use serde::Deserialize;

use self::labels::HostLabel;
use self::side_by_side::side_by_side;
use crate::BUILD;

/// Where nodes are to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HostChoice {
    /// Namespaces of this process.
    #[default]
    Local,
    /// Namespaces of another process of this machine, by the protocol for other machines.
    Child,
    /// A host of hosts.toml, or a destination of ssh(1).
    Named(String),
}

impl FromStr for HostChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "local" => Self::Local,
            "child" => Self::Child,
            name => Self::Named(name.to_owned()),
        })
    }
}

impl fmt::Display for HostChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Child => "child",
            Self::Named(name) => name,
        })
    }
}

impl HostChoice {
    /// Whether the machine is another one, or may be.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Named(_))
    }

    /// Starts it. Where nodes are this process's, it has its privileges already.
    ///
    /// # Errors
    /// When it cannot be started or reached, or hosts.toml has a mistake.
    pub fn start(&self, file: Option<&Path>) -> anyhow::Result<Box<dyn Host>> {
        let program = std::env::current_exe().context("find netrig's own program")?;
        Ok(match self {
            Self::Local => Box::new(local()?),
            Self::Child => Box::new(Remote::child(&program)?),
            Self::Named(name) => Box::new(Remote::reach(&named(name, file)?.access, &program)?),
        })
    }
}

/// A node, and the machine that it is to be on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOnHost {
    node: String,
    host: HostChoice,
    /// The interfaces that the node is given, one for each of its wires.
    interfaces: Vec<String>,
}

impl FromStr for NodeOnHost {
    type Err = String;

    /// `a=web1`, `a=web1:eth1`, `dut=web2:eth1,eth2`; addresses of IPv6 are in brackets.
    fn from_str(text: &str) -> Result<Self, String> {
        let (node, host) = text.split_once('=').ok_or("a node and its host are NODE=HOST or NODE=HOST:INTERFACES")?;
        check_name(node).map_err(|error| error.to_string())?;
        let is_interface = |name: &str| {
            let is_port = name.chars().all(|c| c.is_ascii_digit());
            (1..16).contains(&name.len()) && !is_port && !name.contains(['/', ']', ' '])
        };
        let are_interfaces = |names: &str| names.split(',').all(is_interface);
        let (host, interfaces) = match host.rsplit_once(':').filter(|(_, names)| are_interfaces(names)) {
            Some((host, names)) => (host, names.split(',').map(str::to_owned).collect()),
            None => (host, Vec::new()),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() {
            return Err(format!("node {node} has no host: NODE=HOST"));
        }
        let Ok(host) = bare.parse();
        Ok(Self { node: node.to_owned(), host, interfaces })
    }
}

impl fmt::Display for NodeOnHost {
    /// As it is read: in brackets, what is behind a colon of the host is no interface.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.to_string();
        match host.contains(':') {
            true => write!(f, "{}=[{host}]", self.node)?,
            false => write!(f, "{}={host}", self.node)?,
        }
        if self.interfaces.is_empty() { Ok(()) } else { write!(f, ":{}", self.interfaces.join(",")) }
    }
}

impl NodeOnHost {
    /// Nodes a, b, c and so on, on the hosts of the file that have all of these labels.
    ///
    /// # Errors
    /// As [`hosts_of`], and for more than there are letters.
    pub fn of_labels(file: Option<&Path>, labels: &[HostLabel]) -> anyhow::Result<Vec<Self>> {
        let hosts = hosts_of(file, &[], labels)?;
        let letters = 'a'..='z';
        if hosts.len() > letters.clone().count() {
            bail!("{} hosts have {}: 26 are the most that are checked together", hosts.len(), labels::in_words(labels));
        }
        let on = |(node, host): (char, NamedHost)| Self {
            node: node.to_string(),
            host: HostChoice::Named(host.name),
            interfaces: Vec::new(),
        };
        Ok(letters.zip(hosts).map(on).collect())
    }

    /// What hosts.toml says of its host; `None` where that is this machine.
    fn named(&self, file: Option<&Path>) -> anyhow::Result<Option<NamedHost>> {
        match &self.host {
            HostChoice::Named(name) => named(name, file).map(Some),
            HostChoice::Local | HostChoice::Child => Ok(None),
        }
    }

    /// Reaches its host, with the CPUs that hosts.toml names.
    fn start(&self, named: Option<NamedHost>) -> anyhow::Result<(HostOfNode, Option<CpuSet>)> {
        let program = std::env::current_exe().context("find netrig's own program")?;
        let (host, named, cpus) = match named {
            None => (Remote::child(&program)?, Vec::new(), None),
            Some(NamedHost { access, interfaces, cpus, .. }) => (Remote::reach(&access, &program)?, interfaces, cpus),
        };
        let taken = if self.interfaces.is_empty() { named } else { self.interfaces.clone() };
        Ok((HostOfNode { node: self.node.clone(), host, taken }, cpus))
    }

    /// Whether the machine is this one.
    pub fn is_here(&self) -> bool {
        !self.host.is_elsewhere()
    }
}

/// The machines that nodes are on, each one's connection open.
#[derive(Debug)]
pub struct NodesOnHosts {
    pub hosts: HostGroup,
    /// CPUs that hosts.toml names, by node.
    pub cpus: BTreeMap<String, CpuSet>,
}

/// Reaches the hosts of nodes, side by side, and does `then` with them, as long as which they are there.
///
/// # Errors
/// As [`HostChoice::start`], of each that is not reached, and for nodes that no run takes.
pub fn with_each<R>(
    nodes: &[NodeOnHost],
    file: Option<&Path>,
    then: impl FnOnce(NodesOnHosts) -> Result<R, Failure>,
) -> Result<R, Failure> {
    refuse(nodes).or_exit(Exit::Failed)?;
    let named = nodes.iter().map(|node| Ok((node, node.named(file)?)));
    let named: Vec<_> = named.collect::<anyhow::Result<_>>().or_exit(Exit::Failed)?;
    side_by_side(
        named.into_iter(),
        |(node, named)| node.start(named),
        |reached| then(all_of(nodes, reached).or_exit(Exit::Failed)?),
    )
}

fn all_of(
    nodes: &[NodeOnHost],
    reached: Vec<anyhow::Result<(HostOfNode, Option<CpuSet>)>>,
) -> anyhow::Result<NodesOnHosts> {
    let (mut members, mut cpus, mut lost) = (Vec::new(), BTreeMap::new(), Vec::new());
    for (node, reached) in nodes.iter().zip(reached) {
        match reached {
            Ok((member, own)) => {
                cpus.extend(own.map(|own| (node.node.clone(), own)));
                members.push(member);
            }
            Err(why) => lost.push(why),
        }
    }
    match lost.len() {
        0 => Ok(NodesOnHosts { hosts: HostGroup::new(members, group_number()), cpus }),
        1 => Err(lost.remove(0)),
        count => {
            let each: String = lost.iter().map(|why| format!("\n  {}", in_words(why))).collect();
            bail!("{count} of {} hosts are not reached:{each}", nodes.len());
        }
    }
}

/// Refuses fewer than two nodes, two hosts of one, or two nodes on one.
///
/// # Errors
/// Always for these.
pub fn refuse(nodes: &[NodeOnHost]) -> anyhow::Result<()> {
    let [_, _, ..] = nodes else {
        bail!("one node alone has a host: name the others' too, NODE=HOST for each; --host has all nodes on one");
    };
    for (number, own) in nodes.iter().enumerate() {
        for other in &nodes[..number] {
            if other.node == own.node {
                bail!("node {} has two hosts", own.node);
            }
            if other.host == own.host {
                bail!(
                    "nodes {} and {} are on one host: each has to have its own; --host has all nodes on one",
                    other.node,
                    own.node
                );
            }
        }
    }
    Ok(())
}

/// By which what this run puts on a network differs from what another does.
fn group_number() -> u16 {
    u16::try_from((u64::from(std::process::id()) ^ (monotonic_ns() >> 10)) & 0xffff).unwrap_or_default()
}

/// This process as a host.
///
/// # Errors
/// As [`Local::new`].
pub fn local() -> anyhow::Result<Local> {
    let local = Local::new()?.of_build(BUILD);
    Ok(local.with_datapaths(rig_datapaths::ALL.on(Machine { rootless: is_rootless() })))
}

/// hosts.toml.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HostsFile {
    /// By the names that `--host` takes.
    #[serde(default)]
    host: BTreeMap<String, Spanned<HostSettings>>,
}

/// How a host is reached, and with what.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HostSettings {
    /// A destination of ssh(1); options may stand before it: `["-p", "2222", "web1"]`. Without `ssh` and `command` it is the host's name.
    ssh: Option<OneOrMany<String>>,
    /// A command line instead, which runs there what more words say: `["docker", "exec", "-i", "box"]`.
    command: Option<Vec<String>>,
    /// netrig there; without it the running program is copied.
    program: Option<String>,
    /// A file to copy instead of the running program, for a host of another architecture.
    binary: Option<PathBuf>,
    /// What makes netrig root there: `sudo -n`.
    r#become: Option<String>,
    /// The interface that a node on it is given, as `--on NODE=HOST:INTERFACE` does; several for a node with several wires.
    interface: Option<OneOrMany<String>>,
    /// Where other hosts reach it in `netrig run pairs`, and this machine for `stream --on`; without it an address on a network that they have in common, or its first.
    address: Option<IpAddr>,
    /// CPUs for a node on it, as `0-3`; without them all that netrig may use there.
    cpus: Option<String>,
    /// What it is told apart by, as `{ rack = "b1", role = "edge" }`, in records and by `--host-label`: at most 16, of 1 to 63 letters, digits, `-`, `_` and `.` each.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// A host as hosts.toml has it, or a destination of ssh.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedHost {
    pub name: String,
    pub access: HostAccess,
    pub interfaces: Vec<String>,
    pub address: Option<IpAddr>,
    pub cpus: Option<CpuSet>,
}

impl NamedHost {
    pub fn ssh(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            access: HostAccess::ssh(name, &[name.to_owned()]),
            interfaces: Vec::new(),
            address: None,
            cpus: None,
        }
    }
}

/// The JSON Schemas of this module's files.
pub fn schemas() -> [(&'static str, Schema); 2] {
    let [check] = check::schemas();
    let file = (
        "hosts.json",
        described::<HostsFile>("netrig hosts", "Hosts that `--host NAME` and `--on NODE=NAME` of `netrig run` reach"),
    );
    [file, check]
}

/// The file that is read where none is named.
fn default_file() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home)?;
    Some(base.join("netrig/hosts.toml")).filter(|file| file.exists())
}

/// The hosts that are named, or all that the file has, of which each has all of these labels.
///
/// # Errors
/// For a mistake in the file, a name that stands twice, and fewer than two.
pub fn hosts_of(file: Option<&Path>, names: &[String], labels: &[HostLabel]) -> anyhow::Result<Vec<NamedHost>> {
    let mut all = names.to_vec();
    let file = file.map(Path::to_owned).or_else(default_file);
    if all.is_empty() {
        let Some(file) = &file else {
            // Hosts that are named without a file have no labels.
            let named = if labels.is_empty() { "--only web1,web2 names hosts, or " } else { "" };
            bail!("no host is named: {named}a hosts file has them, which --hosts FILE names");
        };
        let text = load_text(file)?;
        let name = file.display().to_string();
        let hosts: HostsFile = Source { file: &name, text: &text }.read()?;
        all = hosts.host.into_keys().collect();
    }
    let is_odd = |c: char| c == '>' || c.is_whitespace() || c.is_control();
    if let Some(odd) = all.iter().find(|name| name.is_empty() || name.contains(is_odd)) {
        bail!("'{odd}' cannot be the name of a host here: give it one without spaces and '>' in hosts.toml");
    }
    if let Some((_, twice)) = all.iter().enumerate().find(|(number, name)| all[..*number].contains(name)) {
        bail!("host {twice} is named twice");
    }
    let mut hosts = all.iter().map(|name| named(name, file.as_deref())).collect::<anyhow::Result<Vec<_>>>()?;
    hosts.retain(|host| labels.iter().all(|label| label.is_in(&host.access.labels)));
    match (hosts.as_slice(), labels) {
        ([_, _, ..], _) => Ok(hosts),
        ([], []) => bail!("two hosts or more are needed, and none is named"),
        ([_], []) => bail!("two hosts or more are needed, and one is named"),
        ([], _) => bail!("two hosts or more are needed, and none has {}", labels::in_words(labels)),
        ([one], _) => bail!("two hosts or more are needed, and one has {}: {}", labels::in_words(labels), one.name),
    }
}

/// A host by its name.
///
/// # Errors
/// For a mistake in the file.
pub fn named(name: &str, file: Option<&Path>) -> anyhow::Result<NamedHost> {
    let Some(file) = file.map(Path::to_owned).or_else(default_file) else { return Ok(NamedHost::ssh(name)) };
    let text = load_text(&file)?;
    Ok(named_in(name, &file.display().to_string(), &text)?)
}

/// Of a host that a file need not name.
fn named_in(name: &str, file: &str, text: &str) -> Result<NamedHost, FileError> {
    let source = Source { file, text };
    let mut hosts: HostsFile = source.read()?;
    let Some(settings) = hosts.host.remove(name) else { return Ok(NamedHost::ssh(name)) };
    let error = |what: &str| source.error(settings.span(), format!("host '{name}' {what}"), None);
    let HostSettings { ssh, command, program, binary, r#become, interface, address, cpus, labels } =
        settings.get_ref().clone();
    labels::check_all(&labels).map_err(|why| error(&why))?;
    let access = match (ssh, command) {
        (Some(_), Some(_)) => return Err(error("has both `ssh` and `command`: one of them reaches it")),
        (None, Some(command)) if command.is_empty() => return Err(error("has an empty `command`")),
        (None, Some(command)) => HostAccess::command(name, command),
        (Some(OneOrMany::Many(words)), None) if words.is_empty() => return Err(error("has an empty `ssh`")),
        (Some(OneOrMany::Many(words)), None) => {
            HostAccess::ssh(name, &words.into_iter().map(Spanned::into_inner).collect::<Vec<_>>())
        }
        (Some(OneOrMany::One(destination)), None) => HostAccess::ssh(name, &[destination]),
        (None, None) => HostAccess::ssh(name, &[name.to_owned()]),
    };
    if program.is_some() && binary.is_some() {
        return Err(error("has `program`, which is there, and `binary`, which is copied: one of them"));
    }
    let run_as = r#become.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    // Relative to the file.
    let binary = binary.map(|binary| Path::new(file).parent().unwrap_or(Path::new("")).join(binary));
    let cpus = cpus.map(|list| list.parse().map_err(|_| error(&format!("has no list of CPUs in `cpus`: '{list}'"))));
    let interfaces = match interface {
        None => Vec::new(),
        Some(OneOrMany::One(name)) => vec![name],
        Some(OneOrMany::Many(names)) => names.into_iter().map(Spanned::into_inner).collect(),
    };
    let access = HostAccess { program, binary, run_as, labels, ..access };
    Ok(NamedHost { name: name.to_owned(), access, interfaces, address, cpus: cpus.transpose()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [host.web1]
        become = "sudo -n"
        labels = { rack = "b1", role = "edge" }
        [host.web2]
        ssh = ["-p", "2222", "me@192.0.2.2"]
        program = "/opt/netrig"
        [host.box]
        command = ["docker", "exec", "-i", "box"]
        binary = "netrig-aarch64"
    "#;

    #[test]
    fn hosts_are_what_the_file_says_and_others_destinations_of_ssh() {
        let of = |name: &str| named_in(name, "/etc/hosts.toml", FILE).unwrap().access;
        let last = |access: &HostAccess| access.command.last().cloned().unwrap();
        assert_eq!(
            (last(&of("web1")), of("web1").run_as),
            ("web1".to_owned(), vec!["sudo".to_owned(), "-n".to_owned()])
        );
        assert_eq!(
            (last(&of("web2")), of("web2").program.as_deref()),
            ("me@192.0.2.2".to_owned(), Some("/opt/netrig"))
        );
        assert_eq!(labels::each(&of("web1").labels).collect::<Vec<_>>(), ["rack=b1", "role=edge"]);
        assert_eq!(of("web2").labels, BTreeMap::new());
        assert_eq!(of("box").command, ["docker", "exec", "-i", "box"]);
        assert_eq!(of("box").binary.as_deref(), Some(Path::new("/etc/netrig-aarch64")));
        assert_eq!(of("other"), HostAccess::ssh("other", &["other".to_owned()]));
    }

    #[test]
    fn hosts_are_chosen_by_labels_that_all_hold() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let host = |name: &str, rack: &str, role: &str| {
            format!("[host.{name}]\nlabels = {{ rack = \"{rack}\", role = \"{role}\" }}\n")
        };
        let text = [host("m1", "b1", "edge"), host("m2", "b1", "core"), host("m3", "b2", "edge")].concat();
        std::fs::write(file.path(), text + "[host.m4]\n").unwrap();
        let of = |names: &[&str], labels: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let labels: Vec<HostLabel> = labels.iter().map(|label| label.parse().unwrap()).collect();
            let hosts = hosts_of(Some(file.path()), &names, &labels).map_err(|error| error.to_string())?;
            Ok::<_, String>(hosts.into_iter().map(|host| host.name).collect::<Vec<_>>())
        };
        assert_eq!(of(&[], &[]).unwrap(), ["m1", "m2", "m3", "m4"]);
        assert_eq!(of(&[], &["rack=b1"]).unwrap(), ["m1", "m2"]);
        assert_eq!(of(&["m4", "m3", "m1"], &["role=edge"]).unwrap(), ["m3", "m1"]);
        assert!(of(&[], &["rack=b1", "role=edge"]).unwrap_err().ends_with("one has rack=b1, role=edge: m1"));
        assert!(of(&[], &["rack=b9"]).unwrap_err().ends_with("none has rack=b9"));
        let nodes = NodeOnHost::of_labels(Some(file.path()), &["role=edge".parse().unwrap()]).unwrap();
        assert_eq!(nodes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a=m1", "b=m3"]);
        assert_eq!(nodes[1].named(Some(file.path())).unwrap().unwrap().access.labels["rack"], "b2");
    }

    #[test]
    fn nodes_are_on_hosts_by_interfaces_of_theirs() {
        let of = |text: &str| {
            let on = text.parse::<NodeOnHost>()?;
            assert_eq!(on.to_string().parse(), Ok(on.clone()), "{text}");
            Ok::<_, String>((on.node, on.host, on.interfaces.join(" ")))
        };
        let node = |node: &str, host: HostChoice, interfaces: &str| Ok((node.to_owned(), host, interfaces.to_owned()));
        let named = |name: &str| HostChoice::Named(name.to_owned());
        assert_eq!(of("a=web1"), node("a", named("web1"), ""));
        assert_eq!(of("a=me@web1:eth1"), node("a", named("me@web1"), "eth1"));
        assert_eq!(of("dut=web1:eth1,eth2"), node("dut", named("web1"), "eth1 eth2"));
        assert_eq!(of("b=child:eth1"), node("b", HostChoice::Child, "eth1"));
        assert_eq!(of("a=[fd00::1]:eth1"), node("a", named("fd00::1"), "eth1"));
        assert_eq!(of("a=[fd00::1]"), node("a", named("fd00::1"), ""));
        assert_eq!(of("a=ssh://me@web1:2222"), node("a", named("ssh://me@web1:2222"), ""));
        for wrong in ["web1", "a=", "=web1", "a=:eth1", "a b=web1"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_lines() {
        for (text, line, what) in [
            ("[host.a]\nssh = \"a\"\ncommand = [\"b\"]", 1, "both"),
            ("[host.b]\n[host.a]\ncommand = []", 2, "empty"),
            ("[host.a]\nssh = []", 1, "empty"),
            ("[host.a]\nprogram = \"x\"\nbinary = \"y\"", 1, "one of them"),
            ("[host.a]\nuser = \"x\"", 2, "user"),
            ("[host.a]\ncpus = \"one\"", 1, "list of CPUs"),
            ("[host.a]\nlabels = { rack = \"b 1\" }", 1, "the value 'b 1' is not"),
            ("[host.a]\nlabels = { \"\" = \"b1\" }", 1, "the key '' is not"),
            ("[host.a]\nlabels = { rack = 1 }", 2, "string"),
        ] {
            let error = named_in("a", "hosts.toml", text).unwrap_err();
            assert_eq!(error.line, Some(line), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
    }
}
