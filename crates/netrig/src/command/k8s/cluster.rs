//! What a run has in a cluster: made, waited for, looked at, deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rig_cli::exit::{StoppedByUser, in_words};
use rig_cli::streams::note;
use rig_load::driver::Cancel;
use rig_stats::units::Span;
use rig_sys::identity::{ProcessFate, ProcessIdentity};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kubectl::Kubectl;
use super::manifest::{BY_HAND, CONTAINER, MANAGED, Manifest, RIGHTS, RUN, RUNNER, Role};

/// Between two looks at pods that are not ready yet.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A cluster that the user reaches, and what is known of it.
#[derive(Debug, Clone)]
pub struct Cluster {
    kubectl: Kubectl,
    pub context: String,
    pub namespace: String,
    /// Kubernetes' version.
    pub version: String,
}

impl Cluster {
    /// # Errors
    /// Where there is no kubectl, no such context, or no API server that answers.
    pub fn reach(context: Option<&str>, namespace: Option<&str>) -> Result<Self> {
        let kubectl = Kubectl::new(context, namespace);
        let configured = kubectl.try_out(&["config", "view", "--minify", "--output=json"], "")?;
        // Inside a pod kubectl needs no configuration; a context that is named has to be there.
        if !configured.is_success && context.is_some() {
            bail!("kubectl config: {}", configured.why);
        }
        let view: Value = serde_json::from_str(&configured.said).unwrap_or_default();
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let of_context = text(&view["contexts"][0]["context"]["namespace"]);
        let namespace = namespace.map(str::to_owned).or(of_context).unwrap_or_else(|| "default".to_owned());
        let context = context.map(str::to_owned).or_else(|| text(&view["current-context"])).unwrap_or_default();
        // `kubectl version` fails where it cannot read the version, too.
        let said = kubectl.ask(&["get", "--raw=/version"]).context("reach the cluster")?;
        let version: Value = serde_json::from_str(&said).unwrap_or_default();
        let version = text(&version["gitVersion"]).unwrap_or_default();
        Ok(Self { kubectl: kubectl.in_namespace(&namespace), context, namespace, version })
    }

    /// # Errors
    /// Names all that the user may not do.
    pub fn check_rights(&self) -> Result<()> {
        let mut missing = Vec::new();
        let all = RIGHTS.iter().flat_map(|(resource, of, verbs)| verbs.iter().map(move |verb| (*verb, *resource, *of)));
        for (verb, resource, subresource) in all {
            let of = subresource.map(|name| format!("--subresource={name}"));
            let arguments: Vec<&str> = ["auth", "can-i", verb, resource].into_iter().chain(of.as_deref()).collect();
            let answer = self.kubectl.try_out(&arguments, "")?;
            match answer.said.trim() {
                "yes" => {}
                said if said.starts_with("no") => {
                    let of = subresource.map_or_else(String::new, |name| format!("/{name}"));
                    missing.push(format!("{verb} {resource}{of}"));
                }
                _ => bail!("kubectl auth can-i: {}", answer.why),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        bail!(
            "this user may not {} in namespace {}: `netrig k8s manifest --rights` prints the Role that is needed",
            missing.join(", "),
            self.namespace
        )
    }

    /// Deletes what runs have left that are over: their pods have ended by themselves, or their process was one of this machine and is no more.
    /// Says whose it was.
    ///
    /// # Errors
    /// Where kubectl fails.
    pub fn delete_left(&self) -> Result<Vec<String>> {
        let (managed, by) = MANAGED;
        let pods = self.list("pods", &format!("{managed}={by}"))?;
        let services = self.list("services", &format!("{managed}={by}"))?;
        // Where one of a run is still in use, all of it is.
        let mut runs: BTreeMap<&str, bool> = BTreeMap::new();
        for (object, is_pod) in pods.iter().map(|pod| (pod, true)).chain(services.iter().map(|one| (one, false))) {
            let run = object.metadata.labels.get(RUN).map(String::as_str);
            let Some(run) = run.filter(|run| *run != BY_HAND) else { continue };
            let is_over = match fate_of(object) {
                // A service ends with nothing; its pods tell.
                ProcessFate::Unknown => is_pod.then(|| object.status.has_ended()),
                ProcessFate::Lives => Some(false),
                ProcessFate::Ended => Some(true),
            };
            if let Some(is_over) = is_over {
                *runs.entry(run).or_insert(true) &= is_over;
            }
        }
        let over: Vec<&str> = runs.into_iter().filter(|(_, is_over)| *is_over).map(|(run, _)| run).collect();
        over.iter().try_for_each(|run| self.delete(run))?;
        Ok(over.into_iter().map(str::to_owned).collect())
    }

    fn delete(&self, run: &str) -> Result<()> {
        let selector = format!("--selector={RUN}={run}");
        // What is gone already is no error of `delete --selector`.
        self.kubectl.ask(&["delete", "pods,services", &selector, "--wait=true", "--timeout=60s"]).map(drop)
    }

    fn list(&self, what: &str, selector: &str) -> Result<Vec<Object>> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Object>,
        }
        let said = self.kubectl.ask(&["get", what, &format!("--selector={selector}"), "--output=json"])?;
        let List { items } = serde_json::from_str(&said).with_context(|| format!("read kubectl's list of {what}"))?;
        Ok(items)
    }

    /// The command line that runs in a pod what more words say.
    pub fn exec(&self, pod: &str) -> Vec<String> {
        let more = ["exec", "-i", pod, "-c", CONTAINER, "--"];
        self.kubectl.words().into_iter().chain(more.map(str::to_owned)).collect()
    }
}

/// What a run has made. It is deleted with this.
#[derive(Debug)]
pub struct ClusterObjects<'a> {
    cluster: &'a Cluster,
    manifest: Manifest<'a>,
    is_there: bool,
}

impl<'a> ClusterObjects<'a> {
    pub fn new(cluster: &'a Cluster, manifest: Manifest<'a>) -> Self {
        Self { cluster, manifest, is_there: false }
    }

    pub fn name(&self, role: Role) -> String {
        self.manifest.name(role)
    }

    /// # Errors
    /// Where the API server refuses one.
    pub fn create(&mut self, objects: &[Value]) -> Result<()> {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        // Also of one that failed there may be a part.
        self.is_there = true;
        self.cluster.kubectl.tell(&["create", "--filename=-"], &list.to_string()).map(drop)
    }

    /// Waits until these pods can be reached.
    ///
    /// # Errors
    /// Why they will not be ready, or are not in time, and [`StoppedByUser`].
    pub fn wait(&self, roles: &[Role], within: Duration, cancel: &Cancel) -> Result<BTreeMap<Role, Pod>> {
        let deadline = Instant::now() + within;
        loop {
            if cancel.is_cancelled() {
                return Err(StoppedByUser.into());
            }
            let pods = self.pods()?;
            let mut ready = BTreeMap::new();
            let mut waiting = Vec::new();
            for role in roles {
                let name = self.name(*role);
                let pod = pods.get(&name).with_context(|| format!("pod {name} has gone"))?;
                if let Some(trouble) = pod.trouble() {
                    return Err(anyhow!("pod {name} does not start: {trouble}"));
                }
                match pod.ready() {
                    Some(pod) => drop(ready.insert(*role, pod)),
                    None => waiting.push(format!("{name}: {}", pod.status.why_not_ready())),
                }
            }
            if waiting.is_empty() {
                return Ok(ready);
            }
            if Instant::now() >= deadline {
                bail!("pods are not ready after {} (--ready-within):\n  {}", Span(within), waiting.join("\n  "));
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// # Errors
    /// Names those of these pods that have gone or ended, where some have.
    pub fn check(&self, roles: &[Role]) -> Result<()> {
        let pods = self.pods()?;
        let gone = |role: &Role| {
            let name = self.name(*role);
            match pods.get(&name) {
                None => Some(format!("pod {name} has gone")),
                Some(pod) => {
                    let trouble = pod.trouble().or_else(|| pod.ready().is_none().then(|| pod.status.why_not_ready()));
                    trouble.map(|trouble| format!("pod {name} has ended: {trouble}"))
                }
            }
        };
        let gone: BTreeSet<String> = roles.iter().filter_map(gone).collect();
        if gone.is_empty() { Ok(()) } else { bail!("{}", Vec::from_iter(gone).join("; ")) }
    }

    fn pods(&self) -> Result<BTreeMap<String, Object>> {
        let pods = self.cluster.list("pods", &format!("{RUN}={}", self.manifest.run))?;
        Ok(pods.into_iter().map(|pod| (pod.metadata.name.clone(), pod)).collect())
    }

    /// The address of the Service.
    ///
    /// # Errors
    /// Where it has none.
    pub fn cluster_ip(&self) -> Result<IpAddr> {
        let services = self.cluster.list("services", &format!("{RUN}={}", self.manifest.run))?;
        let address = services.first().and_then(|service| service.spec.cluster_ip.as_deref());
        address.and_then(|address| address.parse().ok()).context("the Service has no ClusterIP")
    }

    /// # Errors
    /// Where something may be left, with what deletes it.
    pub fn delete(mut self) -> Result<()> {
        self.delete_once()
    }

    fn delete_once(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_there) {
            return Ok(());
        }
        self.cluster.delete(self.manifest.run).with_context(|| {
            let words = self.cluster.kubectl.words().join(" ");
            format!(
                "pods may be left, until they end by themselves (by hand: {words} delete pods,services -l {RUN}={})",
                self.manifest.run
            )
        })
    }
}

impl Drop for ClusterObjects<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.delete_once() {
            note(in_words(&error));
        }
    }
}

/// A pod that can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub node: String,
    pub address: IpAddr,
}

/// A pod or a service, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "nodeName")]
    node_name: Option<String>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    reason: Option<String>,
    message: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    ready: bool,
    state: ContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Reason>,
    terminated: Option<Reason>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Reason {
    reason: String,
    message: String,
    exit_code: Option<i64>,
}

impl Reason {
    fn words(&self) -> String {
        let status = self.exit_code.map(|code| format!("status {code}"));
        let message = Some(self.message.trim().to_owned()).filter(|message| !message.is_empty()).or(status);
        let words = [Some(self.reason.clone()), message];
        words.into_iter().flatten().collect::<Vec<_>>().join(": ")
    }
}

impl Status {
    fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Failed" | "Succeeded")
    }

    /// What kubelet or the scheduler says.
    fn why_not_ready(&self) -> String {
        let waiting = self.container_statuses.iter().find_map(|of| of.state.waiting.as_ref()).map(Reason::words);
        let condition = self.conditions.iter().filter(|of| of.status == "False").find_map(|of| {
            let message = of.message.clone()?;
            Some(of.reason.as_ref().map_or_else(|| message.clone(), |reason| format!("{reason}: {message}")))
        });
        waiting.or(condition).unwrap_or_else(|| format!("it is {}", self.phase))
    }
}

impl Object {
    fn ready(&self) -> Option<Pod> {
        let is_ready = self.status.phase == "Running" && self.status.container_statuses.iter().all(|of| of.ready);
        let address = self.status.pod_ip.as_deref()?.parse().ok()?;
        let is_staying = self.metadata.deletion_timestamp.is_none();
        (is_ready && is_staying).then(|| Pod { node: self.spec.node_name.clone().unwrap_or_default(), address })
    }

    /// Why it will never be ready.
    fn trouble(&self) -> Option<String> {
        /// Kubelet tries these again and again, each time later.
        const HOPELESS: [&str; 7] = [
            "ImagePullBackOff",
            "InvalidImageName",
            "ErrImageNeverPull",
            "CreateContainerConfigError",
            "CreateContainerError",
            "RunContainerError",
            "CrashLoopBackOff",
        ];
        if self.metadata.deletion_timestamp.is_some() {
            return Some("it is being deleted".to_owned());
        }
        let mut states = self.status.container_statuses.iter().map(|of| &of.state);
        let stuck =
            states.clone().find_map(|of| of.waiting.as_ref().filter(|of| HOPELESS.contains(&of.reason.as_str())));
        let ended = states.find_map(|of| of.terminated.as_ref());
        let words = match (stuck.or(ended), self.status.has_ended()) {
            (Some(reason), _) => reason.words(),
            (None, true) => {
                let words = [self.status.reason.as_ref(), self.status.message.as_ref()];
                let words = words.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(": ");
                if words.is_empty() { format!("it is {}", self.status.phase) } else { words }
            }
            (None, false) => return None,
        };
        let is_foreign = words.contains("exec format error");
        let hint = if is_foreign { ": the image is for another architecture than the node: --image IMAGE" } else { "" };
        Some(words + hint)
    }
}

/// What became of the process that made something.
fn fate_of(object: &Object) -> ProcessFate {
    let name = object.metadata.annotations.get(RUNNER);
    let runner = name.and_then(|name| name.parse::<ProcessIdentity>().ok());
    runner.map_or(ProcessFate::Unknown, |runner| runner.fate())
}

/// This process, as others of this machine find out whether it lives.
pub fn runner() -> String {
    ProcessIdentity::own().map_or_else(|_| String::new(), |own| own.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &Value) -> Object {
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "n" }, "status": status }))
            .unwrap()
    }

    #[test]
    fn a_pod_is_ready_waits_or_will_never_start() {
        let running = json!({ "phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{ "ready": true }] });
        assert_eq!(pod(&running).ready(), Some(Pod { node: "n".into(), address: "10.0.0.1".parse().unwrap() }));
        let pending = json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available" },
        ] });
        let waits = pod(&pending);
        assert_eq!((waits.ready(), waits.trouble()), (None, None));
        assert_eq!(waits.status.why_not_ready(), "Unschedulable: 0/1 nodes are available");
        let of =
            |state: Value| pod(&json!({ "phase": "Running", "containerStatuses": [{ "state": state }] })).trouble();
        let foreign = json!({ "terminated": { "reason": "StartError", "message": "exec /bin/sh: exec format error" } });
        assert!(of(foreign).unwrap().contains("another architecture than the node"));
        let image = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
        assert_eq!(of(image).unwrap(), "ImagePullBackOff: no such image");
        assert_eq!(of(json!({ "waiting": { "reason": "ContainerCreating" } })), None);
        let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory" });
        assert_eq!(pod(&evicted).trouble().unwrap(), "Evicted: The node was low on memory");
    }

    #[test]
    fn a_runner_is_found_by_what_it_wrote() {
        let of = |name: String| {
            let annotations = BTreeMap::from([(RUNNER.to_owned(), name)]);
            fate_of(&Object { metadata: Metadata { annotations, ..Metadata::default() }, ..Object::default() })
        };
        assert_eq!(of(runner()), ProcessFate::Lives);
        let (process, start) =
            runner().rsplit_once('-').map(|(process, start)| (process.to_owned(), start.to_owned())).unwrap();
        assert_eq!(of(format!("{process}-{start}0")), ProcessFate::Ended);
        assert_eq!(of("by-hand".to_owned()), ProcessFate::Unknown);
    }
}
