//! The Container Network Interface (CNI 0.3.0 to 1.1.0, SPEC.md of containernetworking/cni). The runtime's side: network configurations,
//! plug-ins called one after the other, results. It knows no testbed: who calls it is in the namespaces in which the plug-ins shall work,
//! and has made those of the containers. The plug-in's side: [`plugin`].

#![forbid(unsafe_code)]

mod attachment;
mod cache;
mod conflist;
mod invoke;
pub mod plugin;
mod result;
mod runtime;
mod version;

pub use attachment::Attachment;
pub use cache::ResultCache;
pub use conflist::{Conflist, ConflistError, PluginConf};
pub use invoke::{Command, Failure, PluginFailure};
pub use result::{AddResult, Interface, IpConfig, PluginError, Route};
pub use runtime::{Call, Operation, Runtime, default_folders};
pub use version::Version;
