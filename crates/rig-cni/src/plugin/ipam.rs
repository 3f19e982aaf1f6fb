//! Addresses by another plug-in (SPEC.md, section 4): called with the same configuration and the same parameters.

use std::time::Duration;

use serde_json::Value;

use super::{PluginCall, code};
use crate::invoke::{Command, Failure, Invocation, parameter};
use crate::{AddResult, PluginError, PluginFailure, Version};

/// One that waits for a DHCP server takes its time; kubelet waits for minutes.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The plug-in that `ipam.type` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipam {
    program: String,
}

impl Ipam {
    /// # Errors
    /// When the configuration names none.
    pub fn of(call: &PluginCall) -> Result<Self, PluginError> {
        let program = call.config.get("ipam").and_then(|ipam| ipam.get("type")).and_then(Value::as_str);
        let is_program =
            |text: &&str| !text.is_empty() && !text.contains(['/', '\\', '\0']) && *text != "." && *text != "..";
        let program = program.filter(is_program).ok_or_else(|| {
            let what = "'ipam.type' names no plug-in for addresses: write for instance \"ipam\": { \"type\": \"host-local\", ... }";
            PluginError::new(code::WRONG_CONFIGURATION, what)
        })?;
        Ok(Self { program: program.to_owned() })
    }

    /// Addresses of the container; what was written beside them is in the result's object.
    ///
    /// # Errors
    /// As the plug-in says.
    pub fn add(&self, call: &PluginCall) -> Result<AddResult, PluginError> {
        let output = self.invoke(call, Command::Add).map_err(|failure| told(&failure))?.unwrap_or_default();
        AddResult::read(&output).map_err(|why| {
            let what = format!("what IPAM plug-in {} wrote is no result: {why}", self.program);
            PluginError::new(code::IO_FAILURE, what)
        })
    }

    /// # Errors
    /// As the plug-in says.
    pub fn del(&self, call: &PluginCall) -> Result<(), PluginError> {
        self.invoke(call, Command::Del).map(drop).map_err(|failure| told(&failure))
    }

    /// # Errors
    /// As the plug-in says.
    pub fn check(&self, call: &PluginCall) -> Result<(), PluginError> {
        self.invoke(call, Command::Check).map(drop).map_err(|failure| told(&failure))
    }

    /// GC or STATUS, which plug-ins of earlier versions do not have.
    ///
    /// # Errors
    /// As a plug-in says that has it.
    pub fn of_network(&self, call: &PluginCall) -> Result<(), PluginError> {
        // The last: it looks for a container that such a call does not have.
        let unknown = [code::INCOMPATIBLE_VERSION, code::WRONG_ENVIRONMENT, code::UNKNOWN_CONTAINER];
        match self.invoke(call, call.command) {
            Ok(_) => Ok(()),
            Err(PluginFailure { failure: Failure::Refused(error), .. }) if unknown.contains(&error.code) => Ok(()),
            Err(failure) => Err(told(&failure)),
        }
    }

    fn invoke(&self, call: &PluginCall, command: Command) -> Result<Option<Value>, PluginFailure> {
        let mut parameters = Vec::new();
        if !call.container.is_empty() {
            parameters.push(parameter("CNI_CONTAINERID", &call.container));
        }
        parameters.extend(call.namespace.as_ref().map(|path| parameter("CNI_NETNS", path)));
        if !call.interface.is_empty() {
            parameters.push(parameter("CNI_IFNAME", &call.interface));
        }
        parameters.extend(call.arguments.as_ref().map(|text| parameter("CNI_ARGS", text)));
        let invoke = |input: Value, parameters| {
            let (plugin, folders) = (self.program.as_str(), call.folders.as_slice());
            Invocation { plugin, command, folders, parameters, input: &input, time_limit: TIME_LIMIT }.call()
        };
        match invoke(Value::Object(call.config.clone()), parameters.clone()) {
            Err(PluginFailure { failure: Failure::Refused(error), .. })
                if error.code == code::INCOMPATIBLE_VERSION
                    && command.is_of_1_0_0()
                    && call.version > Version::V1_0_0 =>
            {
                invoke(in_1_0_0(call), parameters)
            }
            outcome => outcome,
        }
    }
}

/// The configuration for a plug-in that does not know 1.1.0: for addresses nothing has changed with that, and distributions have such
/// plug-ins beside newer ones.
fn in_1_0_0(call: &PluginCall) -> Value {
    let mut config = call.config.clone();
    config.insert("cniVersion".into(), Version::V1_0_0.to_string().into());
    if let Some(previous) = &call.previous {
        config.insert("prevResult".into(), previous.in_version(Version::V1_0_0));
    }
    Value::Object(config)
}

/// An error of the plug-in goes on as it is, with who it is from.
fn told(failure: &PluginFailure) -> PluginError {
    match &failure.failure {
        Failure::Refused(error) => {
            let msg = format!("IPAM plug-in {}: {}", failure.plugin, error.msg);
            PluginError { code: error.code, msg, details: error.details.clone() }
        }
        Failure::NotFound { .. } => PluginError::new(code::WRONG_CONFIGURATION, format!("IPAM: {failure}")),
        _ => PluginError::new(code::IO_FAILURE, format!("IPAM: {failure}")),
    }
}
