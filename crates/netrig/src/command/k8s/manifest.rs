//! What is asked of a cluster, as values: pods with the least privileges, a Service, and what takes more.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{PodArgs, Toleration};

/// The container of each pod.
pub const CONTAINER: &str = "netrig";
/// On all that netrig makes.
pub const MANAGED: (&str, &str) = ("app.kubernetes.io/managed-by", "netrig");
/// Which run a pod belongs to, and what it is there.
pub const RUN: &str = "netrig/run";
pub const ROLE: &str = "netrig/role";
/// Which process made it.
pub const RUNNER: &str = "netrig/runner";
/// The run of what `netrig k8s manifest` prints.
pub const BY_HAND: &str = "by-hand";
/// Of the server behind the Service: control connections, and the load.
pub const PORT: u16 = 12620;
pub const DATA_PORT: u16 = 12621;
/// Writable in each pod: where netrig is copied to.
const PLACE: &str = "/netrig";
/// The user `nobody`, in most images too.
const NOBODY: u32 = 65_534;

/// What a pod of a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Client,
    Server,
    /// On the client's node.
    Near,
    HostClient,
    HostServer,
}

impl Role {
    pub const ALL: [Self; 5] = [Self::Client, Self::Server, Self::Near, Self::HostClient, Self::HostServer];

    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Near => "near",
            Self::HostClient => "host-client",
            Self::HostServer => "host-server",
        }
    }

    pub fn is_on_host_network(self) -> bool {
        matches!(self, Self::HostClient | Self::HostServer)
    }

    /// Those that these options ask for.
    pub fn of(args: &PodArgs) -> Vec<Self> {
        let is_asked = |role: &Self| match role {
            Self::Client | Self::Server => true,
            Self::Near => !args.is_on_one_node(),
            // On one node they would reach each other by its loopback.
            Self::HostClient | Self::HostServer => !args.is_on_one_node() && !args.no_host_network,
        };
        Self::ALL.into_iter().filter(is_asked).collect()
    }
}

/// What is made for a run.
#[derive(Debug, Clone)]
pub struct Manifest<'a> {
    pub args: &'a PodArgs,
    /// [`BY_HAND`], or what tells the run from others.
    pub run: &'a str,
    pub runner: &'a str,
    /// A pod ends after so many seconds by itself, whatever becomes of netrig.
    pub deadline: u64,
}

impl Manifest<'_> {
    pub fn name(&self, role: Role) -> String {
        match self.run {
            BY_HAND => format!("netrig-{}", role.name()),
            run => format!("netrig-{run}-{}", role.name()),
        }
    }

    fn metadata(&self, name: &str, role: &str) -> Value {
        let (managed, by) = MANAGED;
        let mut metadata = json!({
            "name": name,
            "labels": { managed: by, RUN: self.run, ROLE: role },
            "annotations": { RUNNER: self.runner },
        });
        if let Some(namespace) = &self.args.namespace {
            metadata["namespace"] = json!(namespace);
        }
        metadata
    }

    pub fn pod(&self, role: Role) -> Value {
        let mut spec = json!({
            "activeDeadlineSeconds": self.deadline,
            "affinity": self.affinity(role),
            "automountServiceAccountToken": false,
            "containers": [container(self.args, self.deadline, &unprivileged())],
            "enableServiceLinks": false,
            "restartPolicy": "Never",
            "securityContext": {
                "fsGroup": NOBODY,
                "runAsGroup": NOBODY,
                "runAsNonRoot": true,
                "runAsUser": NOBODY,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "terminationGracePeriodSeconds": 1,
        });
        place(&mut spec, self.args);
        if role.is_on_host_network() {
            spec["hostNetwork"] = json!(true);
        }
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(&self.name(role), role.name()), "spec": spec })
    }

    /// Beside or away from the pod that decides where it is, and on the node that was named.
    fn affinity(&self, role: Role) -> Value {
        let beside = |other: Role| {
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": { "matchLabels": { RUN: self.run, ROLE: other.name() } },
                "topologyKey": "kubernetes.io/hostname",
            }] })
        };
        let mut affinity = match role {
            Role::Client => json!({}),
            Role::Server if self.args.is_on_one_node() => json!({ "podAffinity": beside(Role::Client) }),
            Role::Server => json!({ "podAntiAffinity": beside(Role::Client) }),
            Role::Near | Role::HostClient => json!({ "podAffinity": beside(Role::Client) }),
            Role::HostServer => json!({ "podAffinity": beside(Role::Server) }),
        };
        let is_far = matches!(role, Role::Server | Role::HostServer);
        let node = if is_far { self.args.nodes.last() } else { self.args.nodes.first() };
        if let Some(node) = node {
            affinity["nodeAffinity"] = json!({ "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] }],
            } });
        }
        affinity
    }

    /// In front of the server.
    pub fn service(&self) -> Value {
        let port = |name: &str, port: u16| json!({ "name": name, "port": port, "protocol": "TCP", "targetPort": port });
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.metadata(&self.name(Role::Server), "service"),
            "spec": {
                "ports": [port("control", PORT), port("load", DATA_PORT)],
                "selector": { RUN: self.run, ROLE: Role::Server.name() },
                "type": "ClusterIP",
            },
        })
    }

    /// All of it, as it is printed.
    pub fn all(&self) -> Vec<Value> {
        let pods = Role::of(self.args).into_iter().map(|role| self.pod(role));
        pods.chain([self.service()]).collect()
    }
}

/// Why a pod of [`daemon_set`] may do everything, for who reads the manifest.
pub const WHY_PRIVILEGED: &str = "\
A pod of netrig's on each node, privileged. Load needs none of this: `netrig run pods` makes pods that may do nothing.
CPU time by layer does: sampling the kernel's stacks and counting CPU time by eBPF take CAP_SYS_ADMIN (CAP_PERFMON, CAP_BPF)
on the node and its process ids (hostPID), and the layers are those of the node's own network (hostNetwork).
Each pod is then a host, in hosts.toml:
  [host.node1]
  command = [\"kubectl\", \"exec\", \"-i\", \"POD\", \"-c\", \"netrig\", \"--\"]
and `netrig run layers --host node1 --layers` builds its namespaces on that node. Delete it when done.";

/// A privileged pod on each node that the options choose.
pub fn daemon_set(args: &PodArgs) -> Value {
    let security = json!({ "privileged": true, "runAsUser": 0 });
    let mut spec = json!({
        "automountServiceAccountToken": false,
        "containers": [container(args, u64::from(u32::MAX), &security)],
        "enableServiceLinks": false,
        "hostNetwork": true,
        "hostPID": true,
        "terminationGracePeriodSeconds": 1,
    });
    place(&mut spec, args);
    let labels = json!({ MANAGED.0: MANAGED.1, RUN: BY_HAND, ROLE: "privileged" });
    let mut metadata = json!({ "name": "netrig-privileged", "labels": labels });
    if let Some(namespace) = &args.namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": spec } },
    })
}

/// What `netrig run pods` asks the API server, by verb, resource and subresource.
pub const RIGHTS: [(&str, Option<&str>, &[&str]); 3] = [
    ("pods", None, &["create", "get", "list", "watch", "delete"]),
    // `get` of an exec is asked where kubectl speaks WebSocket.
    ("pods", Some("exec"), &["create", "get"]),
    ("services", None, &["create", "get", "list", "watch", "delete"]),
];

/// The rights of a user who runs `netrig run pods`.
pub fn role(namespace: Option<&str>) -> Value {
    let mut metadata = json!({ "name": "netrig", "labels": { MANAGED.0: MANAGED.1 } });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    let rules = RIGHTS.map(|(resource, subresource, verbs)| {
        let of = subresource.map_or_else(String::new, |name| format!("/{name}"));
        json!({ "apiGroups": [""], "resources": [format!("{resource}{of}")], "verbs": verbs })
    });
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": rules,
    })
}

fn unprivileged() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": true,
    })
}

/// One that waits; all else is started in it.
fn container(args: &PodArgs, deadline: u64, security: &Value) -> Value {
    let command = match &args.pod_program {
        None => json!(["/bin/sh", "-c", format!("trap 'exit 0' TERM; sleep {deadline} & wait")]),
        // It may be an image without a shell.
        Some(program) => json!([program, "serve", "--listen", "127.0.0.1", "--port", "0"]),
    };
    let env = ["HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"].map(|name| json!({ "name": name, "value": PLACE }));
    let mut container = json!({
        "command": command,
        "env": env,
        "image": args.image,
        "name": CONTAINER,
        "securityContext": security,
        "volumeMounts": [{ "mountPath": PLACE, "name": "netrig" }],
    });
    if !args.pod_resources.is_empty() {
        let resources: Map<String, Value> =
            args.pod_resources.iter().map(|of| (of.key.clone(), json!(of.value))).collect();
        container["resources"] = json!({ "limits": resources, "requests": resources });
    }
    container
}

/// Which nodes it may be on, and the volume that the container writes to.
fn place(spec: &mut Value, args: &PodArgs) {
    spec["volumes"] = json!([{ "name": "netrig", "emptyDir": {} }]);
    if !args.node_selector.is_empty() {
        let labels: Map<String, Value> =
            args.node_selector.iter().map(|of| (of.key.clone(), json!(of.value))).collect();
        spec["nodeSelector"] = json!(labels);
    }
    if !args.toleration.is_empty() {
        spec["tolerations"] = args.toleration.iter().map(toleration).collect();
    }
}

fn toleration(Toleration { key, value, effect }: &Toleration) -> Value {
    let mut all = json!({ "operator": if value.is_some() { "Equal" } else { "Exists" } });
    for (name, value) in [("key", key), ("value", value), ("effect", effect)] {
        if let Some(value) = value {
            all[name] = json!(value);
        }
    }
    all
}

/// Documents as YAML, the first with a comment before it. Strings are written as JSON has them, which is YAML, too.
pub fn yaml(comment: &str, documents: &[Value]) -> String {
    let mut text: String = comment.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect();
    for document in documents {
        text.push_str("---\n");
        block(document, 0, &mut text);
    }
    text
}

/// A mapping or a list that begins on a line of its own.
fn block(value: &Value, indent: usize, text: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(all) => {
            for (key, value) in all {
                entry(&format!("{pad}{}:", scalar(&json!(key))), value, indent + 2, text);
            }
        }
        Value::Array(all) => {
            for value in all {
                let mut item = String::new();
                block(value, indent + 2, &mut item);
                // Its first line begins behind the dash.
                let _ = writeln!(text, "{pad}- {}", item.trim());
            }
        }
        other => {
            let _ = writeln!(text, "{pad}{}", scalar(other));
        }
    }
}

fn entry(key: &str, value: &Value, indent: usize, text: &mut String) {
    let is_empty = value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
    if is_empty || !(value.is_object() || value.is_array()) {
        let _ = writeln!(text, "{key} {}", scalar(value));
    } else {
        let _ = writeln!(text, "{key}");
        block(value, indent, text);
    }
}

/// A word stands without quotes where nobody could read it as anything else.
fn scalar(value: &Value) -> String {
    const READ_OTHERWISE: [&str; 8] = ["true", "false", "yes", "no", "on", "off", "null", "none"];
    let is_plain = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
            && !READ_OTHERWISE.contains(&word.to_ascii_lowercase().as_str())
            && !["y", "n"].contains(&word.to_ascii_lowercase().as_str())
    };
    match value {
        Value::String(word) if is_plain(word) => word.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_has_what_json_has_and_quotes_what_could_be_read_otherwise() {
        let value = json!({
            "a": { "empty": {}, "list": [{ "x": 1, "y": [true, "true"] }, "w/o: colon", "1e3"] },
            "n": "no", "path": "/bin/sh", "none": null,
        });
        let text = yaml("why\n\nso", &[value]);
        let expected = "# why\n#\n# so\n---\na:\n  empty: {}\n  list:\n    - x: 1\n      \"y\":\n        - true\n        - \"true\"\n    - \
                        \"w/o: colon\"\n    - \"1e3\"\n\"n\": \"no\"\n\"none\": null\npath: /bin/sh\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn pods_may_do_nothing_and_end_by_themselves() {
        let args = PodArgs {
            node_selector: vec!["pool=fast".parse().unwrap()],
            toleration: vec!["dedicated=net:NoSchedule".parse().unwrap()],
            pod_resources: vec!["cpu=2".parse().unwrap()],
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            ..PodArgs::default()
        };
        let manifest = Manifest { args: &args, run: "ab12", runner: "here", deadline: 600 };
        for role in Role::of(&args) {
            let pod = manifest.pod(role);
            assert_eq!(pod["metadata"]["name"], format!("netrig-ab12-{}", role.name()));
            let spec = &pod["spec"];
            assert_eq!(spec["activeDeadlineSeconds"], 600);
            assert_eq!(spec["automountServiceAccountToken"], false);
            assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
            assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            assert_eq!(spec["nodeSelector"], json!({ "pool": "fast" }));
            let tolerated =
                json!([{ "key": "dedicated", "operator": "Equal", "value": "net", "effect": "NoSchedule" }]);
            assert_eq!(spec["tolerations"], tolerated);
            assert_eq!(spec.get("hostNetwork").is_some(), role.is_on_host_network());
            let container = &spec["containers"][0];
            assert_eq!(container["securityContext"], unprivileged());
            assert_eq!(container["resources"]["limits"], json!({ "cpu": "2" }));
            let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            let node = &terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
            assert_eq!(node, if role.name().ends_with("server") { "n2" } else { "n1" });
        }
        let on_one = PodArgs { one_node: true, ..PodArgs::default() };
        assert_eq!(Role::of(&on_one), [Role::Client, Role::Server]);
        let server = Manifest { args: &on_one, ..manifest }.pod(Role::Server);
        assert!(server["spec"]["affinity"].get("podAffinity").is_some(), "{server}");
    }
}
