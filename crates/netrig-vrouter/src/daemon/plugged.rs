//! Interfaces that plug-ins add to the running router and take from it, and the file that they outlive its process in.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure, in_words};
use rig_cli::mistakes::FileError;
use rig_datapath::vrouter::Encapsulation;
use rig_service::files::ServiceFiles;
use rig_service::{Refusal, run_directory};
use rig_sys::netlink::Netlink;
use tracing::{info, warn};

use super::TEXT;
use super::engine::{Engine, lacks_room};
use crate::message::{NetworkTerms, PluggedEntry, Reply, SubnetTerms};
use crate::settings::{PluggedInterface, Settings, SettingsText};

/// The extension of the file beside the socket.
const PLUGGED: &str = "plugged";
/// Of a network without tunnels: Ethernet's.
const LOCAL_MTU: u16 = 1500;

/// Interfaces by their names.
pub(super) type PluggedInterfaces = BTreeMap<String, PluggedInterface>;

/// Settings with what they are made of.
pub(super) struct LoadedSettings {
    /// None where the settings came as text.
    pub(super) file: Option<PathBuf>,
    pub(super) text: SettingsText,
    pub(super) plugged: PluggedInterfaces,
    /// Where these are kept; none of a router that plug-ins do not know.
    pub(super) kept: Option<PathBuf>,
    pub(super) settings: Settings,
}

impl LoadedSettings {
    /// Those of a file, with the interfaces that plug-ins have added before and whose devices are still there.
    pub(super) fn of_file(file: PathBuf, node: &str, files: &ServiceFiles) -> Result<Self, Failure> {
        let text = SettingsText::load(&file)?;
        let path = files.file(PLUGGED);
        let mut plugged = read(&path)?;
        let netlink = Netlink::here().or_exit(Exit::Failed)?;
        let before = plugged.len();
        plugged.retain(|name, interface| {
            let is_there = netlink.link(&interface.device).is_ok();
            if !is_there {
                info!("interface '{name}' of a plug-in has gone with its device {}", interface.device);
            }
            is_there
        });
        if plugged.len() < before {
            keep(&path, &plugged).or_exit(Exit::Failed)?;
        }
        let settings = text.with_plugged(node, &plugged).map_err(|error| {
            let next = format!("delete the container that it is of from its network, or remove {}", path.display());
            let failure = Failure::from(error);
            if plugged.is_empty() { failure } else { failure.with_next(next) }
        })?;
        Ok(Self { file: Some(file), text, plugged, kept: Some(path), settings })
    }

    /// # Errors
    /// The first mistake.
    pub(super) fn of_text(text: &str) -> Result<Self, FileError> {
        let text = SettingsText::of(TEXT, text);
        let settings = text.settings()?;
        Ok(Self { file: None, text, plugged: PluggedInterfaces::new(), kept: None, settings })
    }
}

fn read(path: &std::path::Path) -> Result<PluggedInterfaces, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let what = anyhow!("interfaces of plug-ins cannot be read of {}: {error}", path.display());
        Failure::new(Exit::Failed, what)
            .with_next("remove the file; containers that it had are added anew by their runtime")
    };
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| unreadable(&error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PluggedInterfaces::new()),
        Err(error) => Err(unreadable(&error)),
    }
}

fn keep(path: &std::path::Path, plugged: &PluggedInterfaces) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(plugged)?;
    run_directory::replace(path, &text).with_context(|| format!("write to {}", path.display()))
}

impl Engine {
    /// Adds an interface. It is in force when this returns.
    ///
    /// # Errors
    /// All is as it was.
    pub(super) fn plug(&mut self, name: &str, interface: PluggedInterface) -> anyhow::Result<Reply> {
        let kept = self.kept_plugged()?;
        if let Some(other) = self.loaded.plugged.get(name) {
            return match *other == interface {
                true => Ok(Reply::Done),
                false => {
                    Err(Refusal::new(format!("interface '{name}' is there already, and another one"), None).into())
                }
            };
        }
        let (before, trouble) = (self.loaded.plugged.clone(), self.trouble.clone());
        let mut plugged = before.clone();
        plugged.insert(name.to_owned(), interface);
        self.put_plugged_in_force(plugged)?;
        let is_attached = match &self.trouble {
            // What was in the way before is another one's.
            Some(new) if *new != trouble.unwrap_or_default() => Err(Refusal::new(new.clone(), None).into()),
            _ => self.is_in_force(name),
        };
        let done = is_attached.and_then(|()| keep(&kept, &self.loaded.plugged));
        if let Err(error) = done {
            if let Err(also) = self.put_plugged_in_force(before) {
                warn!("interface '{name}' cannot be taken back: {}", in_words(&also));
            }
            return Err(error);
        }
        Ok(Reply::Done)
    }

    /// Takes an interface away that a plug-in has added; nothing, where it is not there. What it has stays closed: its device is to go.
    pub(super) fn unplug(&mut self, name: &str) -> anyhow::Result<Reply> {
        let kept = self.kept_plugged()?;
        let mut plugged = self.loaded.plugged.clone();
        if plugged.remove(name).is_some() {
            self.put_plugged_in_force(plugged)?;
            keep(&kept, &self.loaded.plugged)?;
        }
        Ok(Reply::Done)
    }

    pub(super) fn plugged(&self) -> Reply {
        let entry = |(name, interface): (&String, &PluggedInterface)| PluggedEntry {
            name: name.clone(),
            interface: interface.clone(),
            is_in_force: self.is_in_force(name).is_ok(),
        };
        Reply::Plugged(self.loaded.plugged.iter().map(entry).collect())
    }

    /// What a plug-in has to know of a network before it makes an interface.
    pub(super) fn terms(&self, name: &str) -> anyhow::Result<Reply> {
        self.kept_plugged()?;
        let Some(network) = self.settings.networks.get(name) else {
            let known = self.settings.networks.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            let what = match name {
                "" => "no network is named".to_owned(),
                _ => format!("there is no network '{name}' in the settings"),
            };
            return Err(Refusal::new(format!("{what}: there is {known}"), None).into());
        };
        let subnets =
            network.subnets.iter().map(|subnet| SubnetTerms { prefix: subnet.prefix, gateway: subnet.gateway });
        let security_groups = self.settings.security_groups.keys().cloned().collect();
        Ok(Reply::Network(NetworkTerms { subnets: subnets.collect(), mtu: self.mtu_of(name), security_groups }))
    }

    /// The largest packet that fits all tunnels of a network.
    fn mtu_of(&self, name: &str) -> u16 {
        let underlays = self.found.site.peers.iter().map(|(address, peer)| (*address, peer.mtu));
        let learned = &self.others;
        let is_router = |(address, _): &(Ipv4Addr, u16)| {
            learned.contains(address) || self.settings.nodes.values().any(|node| node.address == *address)
        };
        mtu(&self.settings, &self.node, name, underlays.filter(is_router))
    }

    fn kept_plugged(&self) -> anyhow::Result<PathBuf> {
        let without = || Refusal::new("it runs without a file, and plug-ins add nothing to it", None).into();
        self.loaded.kept.clone().ok_or_else(without)
    }

    fn put_plugged_in_force(&mut self, plugged: PluggedInterfaces) -> anyhow::Result<()> {
        let settings = self.loaded.text.with_plugged(&self.node, &plugged).map_err(refused)?;
        self.begin_with(settings).map_err(|error| {
            let hint = "restart the router with more room for them: 'plugged' in [router]";
            Refusal::new(in_words(&error), lacks_room(&error).then(|| hint.to_owned()))
        })?;
        self.loaded.plugged = plugged;
        self.announce()
    }

    fn is_in_force(&self, name: &str) -> anyhow::Result<()> {
        if let Some(why) = self.found.site.missing.get(name) {
            return Err(Refusal::new(format!("interface '{name}': {why}"), None).into());
        }
        let number = self.numbers.interfaces.get(name);
        let is_compiled = number.is_some_and(|number| self.compiled.config.interfaces.contains_key(&number));
        match is_compiled {
            true => Ok(()),
            false => Err(Refusal::new(format!("interface '{name}' is not in force"), None).into()),
        }
    }
}

/// As who asked is told it.
pub(super) fn refused(error: FileError) -> Refusal {
    let at = error.line.map(|line| format!(":{line}")).unwrap_or_default();
    Refusal::new(format!("{}{at}: {}", error.file, error.what), error.hint)
}

/// The largest packet of a network on a node that fits all ways to other routers, which are known by their address and underlay.
fn mtu(settings: &Settings, node: &str, network: &str, underlays: impl Iterator<Item = (Ipv4Addr, u16)>) -> u16 {
    let (Some(node), Some(network)) = (settings.nodes.get(node), settings.networks.get(network)) else {
        return LOCAL_MTU;
    };
    let others: BTreeMap<Ipv4Addr, &crate::settings::Node> =
        settings.nodes.values().map(|other| (other.address, other)).collect();
    let can = network.encapsulation.iter().filter(|one| node.encapsulations.contains(one));
    let largest = can.map(|one| one.overhead()).max();
    let fits = |(address, underlay): (Ipv4Addr, u16)| {
        let other = others.get(&address).copied();
        // How one sends that is in no file is not known here.
        let overhead = match other {
            Some(other) => settings.encapsulation(network, node, other).map(Encapsulation::overhead),
            None => largest,
        };
        let said = [node.mtu, other.and_then(|other| other.mtu)];
        let underlay = said.into_iter().flatten().fold(underlay, u16::min);
        overhead.map(|overhead| underlay.saturating_sub(overhead))
    };
    let tunnels = underlays.filter(|(address, _)| *address != node.address).filter_map(fits).min();
    let unknown = || match settings.router.bgp.is_some() && node.bgp {
        // Others come.
        true => node.mtu.unwrap_or(LOCAL_MTU).saturating_sub(largest.unwrap_or(0)),
        false => LOCAL_MTU,
    };
    tunnels.unwrap_or_else(unknown)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    const FILE: &str = "
        [[node]]
        name = 'a'
        address = '192.0.2.1'
        [[node]]
        name = 'b'
        address = '192.0.2.2'
        encapsulations = ['vxlan']
        [[node]]
        name = 'c'
        address = '192.0.2.3'
        mtu = 1400
        [[network]]
        name = 'red'
        subnets = ['10.1.0.0/24']
        encapsulation = ['vxlan', 'mplsoudp']
    ";

    #[test]
    fn the_mtu_fits_all_tunnels_of_a_network() {
        let settings = Settings::parse("vrouter.toml", FILE).unwrap();
        let address = |last: u8| Ipv4Addr::new(192, 0, 2, last);
        let mtu = |underlays: &[(Ipv4Addr, u16)]| mtu(&settings, "a", "red", underlays.iter().copied());
        let vxlan = Encapsulation::Vxlan.overhead();
        assert_eq!(mtu(&[]), 1500);
        assert_eq!(mtu(&[(address(2), 9000)]), 9000 - vxlan);
        assert_eq!(mtu(&[(address(2), 1500), (address(3), 9000)]), 1400 - vxlan);
        // One that BGP tells of.
        assert_eq!(mtu(&[(address(9), 1500)]), 1500 - vxlan.max(Encapsulation::MplsOverUdp.overhead()));
    }
}
