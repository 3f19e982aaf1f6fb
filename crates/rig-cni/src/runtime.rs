//! A network's plug-ins, called one after the other (SPEC.md, section 3).

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::invoke::{Command, Failure, Invocation, PluginFailure};
use crate::{AddResult, Attachment, Conflist, PluginConf, ResultCache, Version};

/// What calls a network's plug-ins.
#[derive(Debug, Clone)]
pub struct Runtime {
    network: Conflist,
    /// The configuration's text, for the cache.
    text: String,
    folders: Vec<PathBuf>,
    cache: ResultCache,
    /// Of each call of a plug-in.
    time_limit: Duration,
    version: Version,
}

/// How long a call of one plug-in took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub plugin: String,
    pub command: Command,
    pub took: Duration,
}

/// What was done with all plug-ins of a network, and how long each took, also that which failed.
#[derive(Debug)]
pub struct Operation<T> {
    pub outcome: Result<T, PluginFailure>,
    pub calls: Vec<Call>,
    pub took: Duration,
}

impl Runtime {
    /// Asks the plug-ins which versions they speak, and takes the highest that they, the configuration and this runtime have in common.
    ///
    /// # Errors
    /// The first plug-in that is not there or does not answer, or that no version is common to all.
    pub fn new(
        text: &str,
        network: Conflist,
        folders: Vec<PathBuf>,
        cache: ResultCache,
        time_limit: Duration,
    ) -> Result<Self, PluginFailure> {
        let common: Vec<Version> = network.versions.iter().copied().filter(|version| version.is_spoken()).collect();
        let version = common.last().copied().unwrap_or(Version::V1_0_0);
        let mut runtime = Self { network, text: text.to_owned(), folders, cache, time_limit, version };
        let mut agreed = common.clone();
        for plugin in &runtime.network.plugins {
            let spoken = runtime.versions_of(&plugin.name)?;
            agreed.retain(|version| spoken.contains(version));
            if agreed.is_empty() {
                let why = format!(
                    "it speaks {}, and the network is configured for {}: give the configuration \"cniVersions\" with one that all \
                     its plug-ins speak, or install newer plug-ins",
                    Version::list(&spoken),
                    Version::list(&common)
                );
                return Err(PluginFailure::no_result(&plugin.name, Command::Version, why, &Value::Null));
            }
        }
        runtime.version = agreed.last().copied().unwrap_or(version);
        Ok(runtime)
    }

    fn versions_of(&self, plugin: &str) -> Result<Vec<Version>, PluginFailure> {
        let input = json!({ "cniVersion": self.version.to_string() });
        let output = self.invocation(plugin, Command::Version, Vec::new(), &input).call()?.unwrap_or_default();
        let listed = output.get("supportedVersions").and_then(Value::as_array);
        let Some(listed) = listed else {
            let why = "there are no \"supportedVersions\"".to_owned();
            return Err(PluginFailure::no_result(plugin, Command::Version, why, &output));
        };
        Ok(listed.iter().filter_map(|version| version.as_str()?.parse().ok()).collect())
    }

    /// The network.
    pub fn network(&self) -> &Conflist {
        &self.network
    }

    /// The version in which the plug-ins are called.
    pub fn version(&self) -> Version {
        self.version
    }

    pub fn cache(&self) -> &ResultCache {
        &self.cache
    }

    fn invocation<'a>(
        &'a self,
        plugin: &'a str,
        command: Command,
        parameters: Vec<(&'static str, OsString)>,
        input: &'a Value,
    ) -> Invocation<'a> {
        Invocation { plugin, command, folders: &self.folders, parameters, input, time_limit: self.time_limit }
    }

    /// What a plug-in is given on standard input.
    fn input(&self, plugin: &PluginConf) -> Map<String, Value> {
        let mut input = plugin.object.clone();
        input.remove("capabilities");
        input.insert("cniVersion".into(), self.version.to_string().into());
        input.insert("name".into(), self.network.name.clone().into());
        input
    }

    fn input_for(&self, plugin: &PluginConf, attachment: &Attachment, previous: Option<&AddResult>) -> Value {
        let mut input = self.input(plugin);
        let told = attachment.capabilities.iter().filter(|(name, _)| plugin.capabilities.contains(name));
        let told: Map<String, Value> = told.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !told.is_empty() {
            input.insert("runtimeConfig".into(), Value::Object(told));
        }
        if let Some(previous) = previous {
            input.insert("prevResult".into(), previous.in_version(self.version));
        }
        Value::Object(input)
    }

    /// Calls one plug-in, and notes how long it took.
    fn call(
        &self,
        calls: &mut Vec<Call>,
        plugin: &PluginConf,
        command: Command,
        parameters: Vec<(&'static str, OsString)>,
        input: &Value,
    ) -> Result<Option<Value>, PluginFailure> {
        let began = Instant::now();
        let output = self.invocation(&plugin.name, command, parameters, input).call();
        calls.push(Call { plugin: plugin.name.clone(), command, took: began.elapsed() });
        output
    }

    fn operation<T>(&self, work: impl FnOnce(&mut Vec<Call>) -> Result<T, PluginFailure>) -> Operation<T> {
        let (began, mut calls) = (Instant::now(), Vec::new());
        let outcome = work(&mut calls);
        Operation { outcome, calls, took: began.elapsed() }
    }

    /// Adds a container to the network. Where that fails, a DEL has to follow nevertheless.
    pub fn add(&self, attachment: &Attachment) -> Operation<AddResult> {
        self.operation(|calls| {
            let mut previous: Option<AddResult> = None;
            for plugin in &self.network.plugins {
                let input = self.input_for(plugin, attachment, previous.as_ref());
                let output = self.call(calls, plugin, Command::Add, attachment.parameters(), &input)?;
                let output = output.unwrap_or_default();
                let why = |why| PluginFailure::no_result(&plugin.name, Command::Add, why, &output);
                previous = Some(AddResult::read(&output).map_err(why)?);
            }
            let result = previous.unwrap_or_else(|| unreachable!("a network has a plug-in"));
            if let Err(why) = self.cache.keep(&self.network.name, &self.text, attachment, &result) {
                let plugin = self.network.plugins.last().map_or(String::new(), |plugin| plugin.name.clone());
                let failure = Failure::NotKept { folder: self.cache.folder().to_owned(), why };
                return Err(PluginFailure { plugin, command: Command::Add, failure, stderr: String::new() });
            }
            Ok(result)
        })
    }

    /// Removes a container from the network, the last plug-in first; the first that fails ends it.
    pub fn del(&self, attachment: &Attachment) -> Operation<()> {
        let previous = self.cache.result(&self.network.name, attachment).filter(|_| self.version.has_check());
        let operation = self.operation(|calls| {
            self.network.plugins.iter().rev().try_for_each(|plugin| {
                let input = self.input_for(plugin, attachment, previous.as_ref());
                self.call(calls, plugin, Command::Del, attachment.parameters(), &input).map(drop)
            })
        });
        if operation.outcome.is_ok() {
            let _ = self.cache.forget(&self.network.name, attachment);
        }
        operation
    }

    /// Whether a container is on the network as its ADD has left it. `None` where the version has no CHECK, or the configuration disables it.
    pub fn check(&self, attachment: &Attachment) -> Option<Operation<()>> {
        if !self.version.has_check() || self.network.disable_check {
            return None;
        }
        let previous = self.cache.result(&self.network.name, attachment);
        Some(self.operation(|calls| {
            self.network.plugins.iter().try_for_each(|plugin| {
                let input = self.input_for(plugin, attachment, previous.as_ref());
                self.call(calls, plugin, Command::Check, attachment.parameters(), &input).map(drop)
            })
        }))
    }

    /// Has plug-ins remove what is left of attachments other than these. `None` where the version has no GC, or the configuration disables it.
    pub fn gc(&self, valid: &[Attachment]) -> Option<Operation<()>> {
        if !self.version.has_gc_and_status() || self.network.disable_gc {
            return None;
        }
        let valid = valid.iter().map(|own| json!({ "containerID": own.container, "ifname": own.interface }));
        let valid = Value::Array(valid.collect());
        Some(self.operation(|calls| {
            let mut first = Ok(());
            for plugin in &self.network.plugins {
                let mut input = self.input(plugin);
                input.insert("cni.dev/valid-attachments".into(), valid.clone());
                // Plug-ins of libcni's before 1.2.3 look for it under this name.
                input.insert("cni.dev/attachments".into(), valid.clone());
                first = first.and(self.call(calls, plugin, Command::Gc, Vec::new(), &Value::Object(input)).map(drop));
            }
            first
        }))
    }

    /// Whether the plug-ins are ready. `None` where the version has no STATUS.
    pub fn status(&self) -> Option<Operation<()>> {
        if !self.version.has_gc_and_status() {
            return None;
        }
        Some(self.operation(|calls| {
            self.network.plugins.iter().try_for_each(|plugin| {
                let input = Value::Object(self.input(plugin));
                self.call(calls, plugin, Command::Status, Vec::new(), &input).map(drop)
            })
        }))
    }
}

/// Where plug-ins are looked for when nothing is said: where Kubernetes, containerd's bundles and distributions put them.
pub fn default_folders() -> Vec<PathBuf> {
    ["/opt/cni/bin", "/usr/local/libexec/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/lib/cni"]
        .map(PathBuf::from)
        .to_vec()
}

#[cfg(test)]
mod tests;
