//! The plug-in's side (SPEC.md, section 2): what a plug-in is called with, what it answers, and the IPAM plug-in that it delegates addresses
//! to.

mod call;
mod ipam;

use std::io::{self, Write};

use serde_json::{Value, json};

pub use self::call::PluginCall;
pub use self::ipam::Ipam;
use crate::invoke::Command;
use crate::{AddResult, PluginError, Version};

/// Codes of errors (SPEC.md, section 2, "Error").
pub mod code {
    pub const INCOMPATIBLE_VERSION: i64 = 1;
    pub const UNSUPPORTED_FIELD: i64 = 2;
    pub const UNKNOWN_CONTAINER: i64 = 3;
    pub const WRONG_ENVIRONMENT: i64 = 4;
    pub const IO_FAILURE: i64 = 5;
    pub const NOT_DECODED: i64 = 6;
    pub const WRONG_CONFIGURATION: i64 = 7;
    pub const TRY_AGAIN: i64 = 11;
    pub const NOT_AVAILABLE: i64 = 50;
    /// The first of those that are plug-ins' own.
    pub const OWN: i64 = 100;
}

/// What a plug-in does. Its methods are called once in a process, with what has been checked: the parameters that the specification asks
/// for are there.
pub trait Plugin {
    /// The result, as an object of version 1.1.0 without `cniVersion`.
    ///
    /// # Errors
    /// When nothing of it is left.
    fn add(&self, call: &PluginCall) -> Result<Value, PluginError>;

    /// # Errors
    /// When something is left. What is not there is no error.
    fn del(&self, call: &PluginCall) -> Result<(), PluginError>;

    /// # Errors
    /// When it is not as ADD has left it.
    fn check(&self, call: &PluginCall) -> Result<(), PluginError>;

    /// # Errors
    /// When something is left of attachments that are valid no more.
    fn gc(&self, call: &PluginCall) -> Result<(), PluginError>;

    /// # Errors
    /// When an ADD would fail now.
    fn status(&self, call: &PluginCall) -> Result<(), PluginError>;
}

/// Those that a plug-in of this module speaks.
pub const SPOKEN: [Version; 4] = [Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];

/// Whether this process was called as a plug-in.
pub fn is_called() -> bool {
    std::env::var_os("CNI_COMMAND").is_some()
}

/// Does what this process was called for, and answers on standard output. Whether it was done.
///
/// # Errors
/// When the answer cannot be written.
pub fn serve(plugin: &impl Plugin) -> io::Result<bool> {
    let variable = |name: &str| std::env::var_os(name);
    let (answer, is_done) = answer(plugin, io::stdin().lock(), &variable);
    if let Some(answer) = answer {
        let mut output = io::stdout().lock();
        serde_json::to_writer_pretty(&mut output, &answer)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(is_done)
}

/// What is written, and whether it is no error.
fn answer(plugin: &impl Plugin, input: impl io::Read, variable: call::Variables) -> (Option<Value>, bool) {
    match PluginCall::read(input, variable) {
        Ok(call) => match carry_out(plugin, &call) {
            Ok(answer) => (answer, true),
            Err(error) => (Some(in_json(&error, call.version)), false),
        },
        // It is not known which version is spoken.
        Err((error, version)) => (Some(in_json(&error, version.unwrap_or(Version::V1_0_0))), false),
    }
}

fn carry_out(plugin: &impl Plugin, call: &PluginCall) -> Result<Option<Value>, PluginError> {
    match call.command {
        Command::Version => {
            let spoken = SPOKEN.map(|version| version.to_string());
            Ok(Some(json!({ "cniVersion": Version::V1_1_0.to_string(), "supportedVersions": spoken })))
        }
        Command::Add => {
            let mut result = plugin.add(call)?;
            if let Value::Object(object) = &mut result {
                object.insert("cniVersion".into(), call.version.to_string().into());
            }
            let read = AddResult::read(&result).map_err(|why| PluginError::new(code::IO_FAILURE, why))?;
            Ok(Some(read.in_version(call.version)))
        }
        Command::Del => plugin.del(call).map(|()| None),
        Command::Check => plugin.check(call).map(|()| None),
        Command::Gc => plugin.gc(call).map(|()| None),
        Command::Status => plugin.status(call).map(|()| None),
    }
}

fn in_json(error: &PluginError, version: Version) -> Value {
    let PluginError { code, msg, details } = error;
    json!({ "cniVersion": version.to_string(), "code": code, "msg": msg, "details": details })
}

#[cfg(test)]
mod tests;
