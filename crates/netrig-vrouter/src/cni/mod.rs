//! The vRouter as a CNI plug-in: `netrig` in a runtime's folder of plug-ins. A container's interface is a veth pair whose end at the node is
//! added to the running router of that node.
//!
//! ```text
//! ADD    ask the router for the network ── IPAM ── veth pair ── addresses, routes ── Plug, in force when it answers ── node's end up
//! DEL    Unplug ── veth pair ── IPAM          each of them also where another one fails, or is gone
//! ```
//!
//! The node's end is set up last, so that no packet of the container reaches the node before the router takes them.

mod config;
mod interface;

use std::process::ExitCode;

use rig_cli::streams::tell;
use rig_cni::plugin::{self, Plugin, PluginCall, code};
use rig_cni::{AddResult, PluginError};
use rig_service::AskError;
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use serde_json::Value;

use self::config::PluginConfig;
use self::interface::{ContainerInterface, kernel};
use crate::client::RouterClient;
use crate::message::{NetworkTerms, PluggedEntry};
use crate::settings::PluggedInterface;
use crate::settings::plugged::PluggedAttachment;

/// The router refuses the interface.
const REFUSED: i64 = code::OWN;
/// The container has it already.
const EXISTS: i64 = code::OWN + 1;
/// The kernel refuses.
const KERNEL: i64 = code::OWN + 2;
/// It is not as ADD has left it.
const DIFFERS: i64 = code::OWN + 3;

/// Whether this process was called as a plug-in.
pub fn is_called() -> bool {
    plugin::is_called()
}

/// Does what this process was called for.
pub fn execute() -> ExitCode {
    match plugin::serve(&VrouterPlugin) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            tell(format_args!("netrig: write the answer: {error}"));
            ExitCode::FAILURE
        }
    }
}

struct VrouterPlugin;

impl Plugin for VrouterPlugin {
    fn add(&self, call: &PluginCall) -> Result<Value, PluginError> {
        let config = PluginConfig::of(call)?;
        if call.previous.is_some() {
            let what = "netrig makes the container's interface, and another plug-in has made one before it: make it the first of \
                        the network's plug-ins";
            return Err(PluginError::new(code::WRONG_CONFIGURATION, what));
        }
        let (namespace, mut node) = (open(call)?, here()?);
        let router = router(&config, code::TRY_AGAIN)?;
        let terms = router.network(&config.network).map_err(|error| told(&error, code::TRY_AGAIN))?;
        let mut inside = Netlink::open(&namespace).map_err(kernel)?;
        // Before an address is leased: the one that the container has would go with what is undone.
        for (netlink, name) in [(&inside, &call.interface), (&node, &interface::device(call))] {
            if netlink.link(name).is_ok() {
                let what = format!("container '{}' has interface {} already", call.container, call.interface);
                return Err(PluginError::new(EXISTS, what).with(format!("there is a device {name}")));
            }
        }
        let leased = config.ipam.add(call)?;
        let added = attach(call, &config, (&router, &terms), &leased, (&mut node, &mut inside, &namespace));
        added.inspect_err(|_| {
            // What goes wrong with that is told by the DEL that has to follow.
            let _ = remove(&mut node, call);
            let _ = router.unplug(&interface::name(call));
            let _ = config.ipam.del(call);
        })
    }

    fn del(&self, call: &PluginCall) -> Result<(), PluginError> {
        let config = PluginConfig::of(call)?;
        delete(call, &config, find(&config)?.as_ref(), &mut here()?)
    }

    fn check(&self, call: &PluginCall) -> Result<(), PluginError> {
        let config = PluginConfig::of(call)?;
        let Some(result) = &call.previous else {
            return Err(PluginError::new(code::WRONG_CONFIGURATION, "CHECK without 'prevResult'"));
        };
        let (namespace, node) = (open(call)?, here()?);
        let router = router(&config, code::TRY_AGAIN)?;
        let inside = Netlink::open(&namespace).map_err(kernel)?;
        interface::check(call, result, &node, &inside)?;
        let plugged = router.plugged().map_err(|error| told(&error, code::TRY_AGAIN))?;
        is_plugged(call, &config, result, &plugged)?;
        config.ipam.check(call)
    }

    fn gc(&self, call: &PluginCall) -> Result<(), PluginError> {
        let (config, valid) = (PluginConfig::of(call)?, call.valid_attachments()?);
        let router = router(&config, code::TRY_AGAIN)?;
        let plugged = router.plugged().map_err(|error| told(&error, code::TRY_AGAIN))?;
        let mut node = here()?;
        let mut done = Ok(());
        for attachment in plugged.into_iter().map(|entry| entry.interface.attachment) {
            let PluggedAttachment { configuration, container, interface } = attachment;
            if configuration == call.network && !valid.contains(&(container.clone(), interface.clone())) {
                let of_it = call.of_attachment(&container, &interface);
                done = done.and(delete(&of_it, &config, Some(&router), &mut node));
            }
        }
        done.and(config.ipam.of_network(call))
    }

    fn status(&self, call: &PluginCall) -> Result<(), PluginError> {
        let config = PluginConfig::of(call)?;
        let unavailable = |error: &AskError| told(error, code::NOT_AVAILABLE);
        let router = router(&config, code::NOT_AVAILABLE)?;
        match router.network(&config.network) {
            Ok(_) => config.ipam.of_network(call),
            Err(AskError::Refused(why)) => Err(PluginError::new(code::NOT_AVAILABLE, why.to_string())),
            Err(error) => Err(unavailable(&error)),
        }
    }
}

/// Everything of an ADD for which an address is leased already.
fn attach(
    call: &PluginCall,
    config: &PluginConfig,
    (router, terms): (&RouterClient, &NetworkTerms),
    leased: &AddResult,
    (node, inside, namespace): (&mut Netlink, &mut Netlink, &NetNs),
) -> Result<Value, PluginError> {
    let planned = ContainerInterface::plan(call, config, terms, leased)?;
    planned.make(node, inside, namespace)?;
    let mac = planned.mac(inside)?;
    let interface = PluggedInterface {
        network: config.network.clone(),
        device: planned.device.clone(),
        addresses: planned.addresses.iter().map(|own| own.address).collect(),
        mac: mac.clone(),
        security_groups: config.security_groups.clone(),
        label: None,
        attachment: PluggedAttachment {
            configuration: call.network.clone(),
            container: call.container.clone(),
            interface: call.interface.clone(),
        },
    };
    router.plug(&interface::name(call), &interface).map_err(|error| told(&error, code::TRY_AGAIN))?;
    node.set_up(&planned.device).map_err(kernel)?;
    let near = node.link(&planned.device).map_err(kernel)?;
    Ok(planned.result(call, config, leased, &near, &mac))
}

/// Everything is tried; the first of what fails is told.
fn delete(
    call: &PluginCall,
    config: &PluginConfig,
    router: Option<&RouterClient>,
    node: &mut Netlink,
) -> Result<(), PluginError> {
    // First: it is not looked for then, and stays closed to the node until it is removed.
    let unplugged = match router.map(|router| router.unplug(&interface::name(call))) {
        // It looks for the device when it is run again, and does not find it.
        None | Some(Ok(()) | Err(AskError::NotRunning { .. } | AskError::Unattended { .. })) => Ok(()),
        Some(Err(error)) => Err(told(&error, code::TRY_AGAIN)),
    };
    let removed = remove(node, call);
    let released = config.ipam.del(call);
    unplugged.and(removed).and(released)
}

/// Removes the veth pair, where it is there.
fn remove(node: &mut Netlink, call: &PluginCall) -> Result<(), PluginError> {
    let device = interface::device(call);
    match node.remove_link(&device) {
        // It may have gone with its other end.
        Err(_) if node.link(&device).is_err() => Ok(()),
        removed => removed.map_err(kernel),
    }
}

fn is_plugged(
    call: &PluginCall,
    config: &PluginConfig,
    result: &AddResult,
    plugged: &[PluggedEntry],
) -> Result<(), PluginError> {
    let differs = |what: String| Err(PluginError::new(DIFFERS, what));
    let name = interface::name(call);
    let Some(entry) = plugged.iter().find(|entry| entry.name == name) else {
        return differs(format!("the router has no interface '{name}'"));
    };
    let PluggedEntry { interface, is_in_force, .. } = entry;
    if interface.network != config.network {
        return differs(format!("interface '{name}' is of network '{}' at the router", interface.network));
    }
    if interface.security_groups != config.security_groups {
        return differs(format!("interface '{name}' has other security groups at the router"));
    }
    let lacking = interface::addresses_of(call, result).find(|address| !interface.addresses.contains(address));
    match (lacking, is_in_force) {
        (Some(address), _) => differs(format!("interface '{name}' does not have {address} at the router")),
        (None, false) => differs(format!("interface '{name}' is not in force at the router")),
        (None, true) => Ok(()),
    }
}

fn here() -> Result<Netlink, PluginError> {
    Netlink::here().map_err(kernel)
}

fn open(call: &PluginCall) -> Result<NetNs, PluginError> {
    let Some(path) = &call.namespace else {
        return Err(PluginError::new(code::WRONG_ENVIRONMENT, "CNI_NETNS is not set"));
    };
    let unknown = |what: String| PluginError::new(code::UNKNOWN_CONTAINER, what);
    let namespace = NetNs::open(path).map_err(|error| unknown(error.to_string()))?;
    let own = NetNs::of_current_thread().and_then(|own| own.inode());
    // Of what is no namespace nothing can be opened in it.
    match (own, namespace.inode()) {
        (Ok(own), Ok(other)) if own == other => {
            Err(unknown(format!("{} is the node's own network namespace", path.display())))
        }
        _ => Ok(namespace),
    }
}

/// The router that runs here; an error with this code where there is none.
fn router(config: &PluginConfig, absent: i64) -> Result<RouterClient, PluginError> {
    RouterClient::of(config.node.as_deref()).map_err(|error| told(&error, absent))
}

/// The router where there is one.
fn find(config: &PluginConfig) -> Result<Option<RouterClient>, PluginError> {
    match RouterClient::of(config.node.as_deref()) {
        Ok(router) => Ok(Some(router)),
        Err(AskError::NotRunning { .. }) => Ok(None),
        Err(error) => Err(told(&error, code::TRY_AGAIN)),
    }
}

fn told(error: &AskError, absent: i64) -> PluginError {
    match error {
        AskError::Refused(refusal) => {
            PluginError::new(REFUSED, refusal.what.clone()).with(refusal.hint.clone().unwrap_or_default())
        }
        AskError::NotPermitted { .. } | AskError::Unknown(_) => PluginError::new(code::IO_FAILURE, error.to_string()),
        AskError::NotRunning { .. } | AskError::Unattended { .. } | AskError::Lost(_) => {
            PluginError::new(absent, error.to_string())
        }
    }
}
