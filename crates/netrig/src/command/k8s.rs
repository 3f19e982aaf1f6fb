//! `netrig k8s`, and what it has in common with `netrig run pods`: which pods are asked of a cluster.

pub mod cluster;
mod kubectl;
pub mod manifest;

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{anyhow, bail};
use clap::{Arg, Args};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::print_as_it_is;
use rig_stats::units::Span;

use self::manifest::{BY_HAND, Manifest, WHY_PRIVILEGED, daemon_set, role, yaml};

/// Of pods: it has a shell.
const DEFAULT_IMAGE: &str = "busybox:stable";
/// In helps.
const HEADING: &str = "Pods";
/// Of pods that are made by hand, an hour.
const BY_HAND_SECONDS: u64 = 3600;

/// What is asked of a cluster.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = HEADING)]
pub struct PodArgs {
    /// Make them in this namespace [default: that of kubectl's context]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Their image; it has to have a shell, or netrig
    #[arg(long, value_name = "IMAGE", default_value = DEFAULT_IMAGE)]
    pub image: String,
    /// Only on nodes with this label
    #[arg(long, value_name = "KEY=VALUE")]
    pub node_selector: Vec<KeyValue>,
    /// Also on nodes with this taint
    #[arg(long, value_name = "KEY[=VALUE][:EFFECT]")]
    pub toleration: Vec<Toleration>,
    /// The client's node and the server's
    #[arg(long, value_name = "NODE,NODE", value_delimiter = ',', num_args = 1, conflicts_with = "one_node")]
    pub nodes: Vec<String>,
    /// Both on one node
    #[arg(long)]
    pub one_node: bool,
    /// None in the nodes' own network, which some namespaces forbid
    #[arg(long)]
    pub no_host_network: bool,
    /// Requests and limits of each, e.g. cpu=2,memory=1Gi
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub pod_resources: Vec<KeyValue>,
    /// netrig in the image [default: it is copied]
    #[arg(long, value_name = "PATH")]
    pub pod_program: Option<String>,
}

impl PodArgs {
    pub fn is_on_one_node(&self) -> bool {
        self.one_node || (!self.nodes.is_empty() && self.nodes.first() == self.nodes.last())
    }

    /// # Errors
    /// For what no cluster can do.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.nodes.len() > 2 || self.nodes.iter().any(String::is_empty) {
            bail!("--nodes takes the client's node and the server's: --nodes NODE,NODE");
        }
        if self.image.trim().is_empty() {
            bail!("--image is empty");
        }
        Ok(())
    }
}

/// What `netrig run pods` has besides.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = HEADING)]
pub struct RunPodArgs {
    /// The cluster, as kubectl's configuration calls it [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Copy this netrig to the pods, for nodes of another architecture
    #[arg(long, value_name = "FILE", conflicts_with = "pod_program")]
    pub pod_binary: Option<PathBuf>,
    /// Give up where the pods are not ready by then [default: 2m]
    #[arg(long, value_name = "SPAN")]
    pub ready_within: Option<Span>,
    #[command(flatten)]
    pub pods: PodArgs,
}

impl RunPodArgs {
    /// The first of these options that is given.
    pub fn given(&self) -> Option<&'static str> {
        let Self { context, pod_binary, ready_within, pods } = self;
        let options = [
            ("--context", context.is_some()),
            ("--pod-binary", pod_binary.is_some()),
            ("--ready-within", ready_within.is_some()),
            ("--namespace", pods.namespace.is_some()),
            ("--image", pods.image != DEFAULT_IMAGE),
            ("--node-selector", !pods.node_selector.is_empty()),
            ("--toleration", !pods.toleration.is_empty()),
            ("--nodes", !pods.nodes.is_empty()),
            ("--one-node", pods.one_node),
            ("--no-host-network", pods.no_host_network),
            ("--pod-resources", !pods.pod_resources.is_empty()),
            ("--pod-program", pods.pod_program.is_some()),
        ];
        options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }
}

/// The short help of `netrig run` has no place for these.
pub fn hidden_in_short_help(arg: Arg) -> Arg {
    let is_of_pods = arg.get_help_heading() == Some(HEADING);
    if is_of_pods { arg.hide_short_help(true) } else { arg }
}

/// `key=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    pub key: String,
    pub value: String,
}

impl FromStr for KeyValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("it is KEY=VALUE")?;
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

/// A taint that pods bear, as `kubectl taint` writes it. Parts that are not there stand for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    pub key: Option<String>,
    pub value: Option<String>,
    pub effect: Option<String>,
}

impl FromStr for Toleration {
    type Err = String;

    /// `key`, `key=value`, `key:NoSchedule`, `key=value:NoSchedule`; `:NoSchedule` is all keys.
    fn from_str(text: &str) -> Result<Self, String> {
        const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        let (taint, effect) = text.rsplit_once(':').map_or((text, None), |(taint, effect)| (taint, Some(effect)));
        if let Some(effect) = effect.filter(|effect| !EFFECTS.contains(effect)) {
            return Err(format!("'{effect}' is no effect of a taint: {}", EFFECTS.join(", ")));
        }
        let (key, value) = taint.split_once('=').map_or((taint, None), |(key, value)| (key, Some(value)));
        if key.is_empty() && (value.is_some() || effect.is_none()) {
            return Err("it is KEY, KEY=VALUE, KEY:EFFECT, KEY=VALUE:EFFECT or :EFFECT".to_owned());
        }
        let owned = |text: &str| text.to_owned();
        Ok(Self {
            key: Some(owned(key)).filter(|key| !key.is_empty()),
            value: value.map(owned),
            effect: effect.map(owned),
        })
    }
}

#[derive(Debug, Args)]
pub struct ManifestArgs {
    /// A privileged DaemonSet instead, which CPU time by layer takes
    #[arg(long, conflicts_with = "rights")]
    pub privileged: bool,
    /// The Role that a user of `netrig run pods` needs, instead
    #[arg(long)]
    pub rights: bool,
    #[command(flatten)]
    pub pods: PodArgs,
}

const COMMENT: &str = "\
The pods that `netrig run pods` makes, which may do nothing: no capability, no root, no token. The server's pod is behind a Service.
Each ends by itself after an hour. To be reached as hosts, in hosts.toml:
  [host.client]
  command = [\"kubectl\", \"exec\", \"-i\", \"netrig-client\", \"-c\", \"netrig\", \"--\"]";

/// `netrig k8s manifest`.
pub fn manifest(args: &ManifestArgs) -> Result<Exit, Failure> {
    args.pods.check().or_exit(Exit::BadInput)?;
    let (comment, documents) = match (args.privileged, args.rights) {
        (true, _) => (WHY_PRIVILEGED, vec![daemon_set(&args.pods)]),
        (_, true) => ("What a user of `netrig run pods` may do.", vec![role(args.pods.namespace.as_deref())]),
        _ => {
            let manifest = Manifest { args: &args.pods, run: BY_HAND, runner: BY_HAND, deadline: BY_HAND_SECONDS };
            (COMMENT, manifest.all())
        }
    };
    let written = print_as_it_is(&yaml(comment, &documents))?;
    if written { Ok(Exit::Done) } else { Err(Failure::new(Exit::Failed, anyhow!("nobody reads the manifest"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_are_written_as_taints_are() {
        let of = |text: &str| text.parse::<Toleration>();
        let parts = |text: &str| {
            let Toleration { key, value, effect } = of(text).unwrap();
            [key, value, effect].map(Option::unwrap_or_default)
        };
        assert_eq!(parts("a"), ["a", "", ""]);
        assert_eq!(parts("node-role.kubernetes.io/control-plane:NoSchedule")[2], "NoSchedule");
        assert_eq!(parts("a=b:NoExecute"), ["a", "b", "NoExecute"]);
        assert_eq!(parts(":NoSchedule"), ["", "", "NoSchedule"]);
        for wrong in ["", "=b", "a:Never", ":"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
