//! Interfaces that are in no file: plug-ins add them to a running router, and they are checked as if its file had them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use rig_cli::mistakes::{self, FileError};
use rig_cli::source::Source;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::file::InterfaceFile;
use super::{Settings, key, read};

/// An interface as a plug-in asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluggedInterface {
    /// Of a virtual network of the file.
    pub network: String,
    /// The node's end of the veth pair.
    pub device: String,
    pub addresses: BTreeSet<IpAddr>,
    /// The only one that the container may have.
    pub mac: String,
    pub security_groups: BTreeSet<String>,
    /// MPLS label by which other nodes name it; drawn from its name, where none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<u32>,
    pub attachment: PluggedAttachment,
}

/// Whose it is, as the plug-in was told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PluggedAttachment {
    /// The name of the network's configuration, which may be another one than the virtual network's.
    pub configuration: String,
    pub container: String,
    /// The container's end.
    pub interface: String,
}

/// The text of a file, from which settings are made again whenever a plug-in adds an interface. The file itself may be another one by then.
pub struct SettingsText {
    file: String,
    text: String,
    /// The bytes of the key that it names.
    key: Option<Vec<u8>>,
}

impl fmt::Debug for SettingsText {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettingsText").field("file", &self.file).finish_non_exhaustive()
    }
}

impl SettingsText {
    /// # Errors
    /// When the file, or its key's, cannot be read, or the first mistake in it.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let (file, text) = (path.display().to_string(), mistakes::load_text(path)?);
        let key = RefCell::new(None);
        let beside = |name: &str| {
            let bytes = key::read(&path.parent().unwrap_or(path).join(name))?;
            *key.borrow_mut() = Some(bytes.clone());
            Ok(bytes)
        };
        read::settings(&file, &text, &beside)?;
        Ok(Self { file, text, key: key.into_inner() })
    }

    /// A text that is no file's. It cannot name a key's file.
    pub fn of(name: &str, text: &str) -> Self {
        Self { file: name.to_owned(), text: text.to_owned(), key: None }
    }

    /// # Errors
    /// The first mistake.
    pub fn settings(&self) -> Result<Settings, FileError> {
        self.with(Vec::new())
    }

    /// What it says, with interfaces of a node besides, by their names.
    ///
    /// # Errors
    /// The first mistake; where it is one of the interfaces besides, with the name of that.
    pub fn with_plugged(
        &self,
        node: &str,
        plugged: &BTreeMap<String, PluggedInterface>,
    ) -> Result<Settings, FileError> {
        let all =
            |count: usize| plugged.iter().take(count).map(|(name, one)| self.in_letters(node, name, one)).collect();
        let settings = match self.with(all(plugged.len())) {
            Ok(settings) => settings,
            Err(error) => return Err(self.blame(plugged, error, |count| self.with(all(count)).err())),
        };
        let most = settings.router.plugged;
        if plugged.len() > most as usize {
            let what = format!("{} interfaces of plug-ins, and the router has room for {most}", plugged.len());
            let hint = "raise 'plugged' in [router], and restart the router";
            return Err(self.source().whole(what, Some(hint)));
        }
        Ok(settings)
    }

    fn source(&self) -> Source<'_> {
        Source { file: &self.file, text: &self.text }
    }

    fn with(&self, more: Vec<Spanned<InterfaceFile>>) -> Result<Settings, FileError> {
        let beside = |_: &str| {
            self.key.clone().ok_or_else(|| std::io::Error::other("other files are not read for a text alone"))
        };
        read::settings_with(self.source(), &beside, more)
    }

    /// The mistake with the name of the first interface without which there was none.
    fn blame(
        &self,
        plugged: &BTreeMap<String, PluggedInterface>,
        all: FileError,
        of_first: impl Fn(usize) -> Option<FileError>,
    ) -> FileError {
        if let Some(own) = of_first(0) {
            return own;
        }
        let first = (1..).zip(plugged.keys()).find_map(|(count, name)| of_first(count).map(|error| (name, error)));
        let Some((name, FileError { what, hint, .. })) = first else { return all };
        // Its line would be one of the file, where it is not.
        self.source().whole(format!("interface '{name}' of a plug-in: {what}"), hint.as_deref())
    }

    /// The end of the text is where it would stand.
    fn in_letters(&self, node: &str, name: &str, plugged: &PluggedInterface) -> Spanned<InterfaceFile> {
        let end = self.text.len()..self.text.len();
        let text = |text: &str| Spanned::new(end.clone(), text.to_owned());
        let addresses = plugged.addresses.iter().map(|address| text(&address.to_string())).collect();
        let file = InterfaceFile {
            name: text(name),
            node: text(node),
            network: text(&plugged.network),
            namespace: None,
            container: None,
            device: Some(text(&plugged.device)),
            addresses: Spanned::new(end.clone(), addresses),
            allowed_addresses: Vec::new(),
            mac: Some(text(&plugged.mac)),
            label: plugged.label.map(|label| Spanned::new(end.clone(), label)),
            vni: None,
            security_groups: plugged.security_groups.iter().map(|group| text(group)).collect(),
            most_flows: None,
            fat_flows: Vec::new(),
            mirror: None,
            dhcp_server: false,
        };
        Spanned::new(end, file)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    const FILE: &str = "
        [router]
        plugged = 3
        [[node]]
        name = 'a'
        address = '192.0.2.1'
        [[network]]
        name = 'red'
        subnets = ['10.1.0.0/24']
        [[security_group]]
        name = 'web'
        [[interface]]
        name = 'own'
        node = 'a'
        network = 'red'
        device = 'x'
        addresses = ['10.1.0.11']
    ";

    fn plugged(number: u8) -> PluggedInterface {
        PluggedInterface {
            network: "red".to_owned(),
            device: format!("nr{number}"),
            addresses: [IpAddr::from([10, 1, 0, number])].into(),
            mac: format!("02:00:00:00:00:{number:02x}"),
            security_groups: ["web".to_owned()].into(),
            label: None,
            attachment: PluggedAttachment {
                configuration: "n".to_owned(),
                container: format!("c{number}"),
                interface: "eth0".to_owned(),
            },
        }
    }

    fn with(all: &[PluggedInterface]) -> Result<Settings, FileError> {
        let all = (1..).zip(all).map(|(number, one)| (format!("p{number}"), one.clone())).collect();
        SettingsText::of("vrouter.toml", FILE).with_plugged("a", &all)
    }

    #[test]
    fn interfaces_of_plug_ins_are_as_those_of_the_file_and_change_none_of_these() {
        let (alone, more) = (with(&[]).unwrap(), with(&[plugged(21), plugged(22)]).unwrap());
        assert_eq!(alone, Settings::parse("vrouter.toml", FILE).unwrap());
        assert_eq!(more.interfaces["own"], alone.interfaces["own"]);
        let interface = &more.interfaces["p1"];
        assert_eq!((interface.node.as_str(), interface.network.as_str()), ("a", "red"));
        assert_eq!(interface.mac.to_string(), "02:00:00:00:00:15");
        let labelled = PluggedInterface { label: Some(101), ..plugged(23) };
        assert_eq!(with(&[labelled]).unwrap().interfaces["p1"].label, 101);
        assert!(!interface.any_mac && interface.label > 0 && interface.security_groups.contains("web"));
        assert_eq!(super::super::changes::between(&alone, &more), ["interface 'p1' added", "interface 'p2' added"]);
    }

    #[test]
    fn one_that_does_not_fit_is_named() {
        let refused = |change: &dyn Fn(&mut PluggedInterface)| {
            let mut second = plugged(22);
            change(&mut second);
            let error = with(&[plugged(21), second, plugged(23)]).unwrap_err();
            assert_eq!((error.file.as_str(), error.line), ("vrouter.toml", None));
            error.what.strip_prefix("interface 'p2' of a plug-in: ").unwrap_or_else(|| panic!("{error}")).to_owned()
        };
        let of = |number: u8| [IpAddr::from([10, 1, 0, number])].into();
        assert_eq!(refused(&|one| one.network = "blue".to_owned()), "there is no network 'blue'");
        assert_eq!(refused(&|one| one.addresses = of(11)), "10.1.0.11 is an address of 'own' already");
        assert_eq!(refused(&|one| one.addresses = of(21)), "10.1.0.21 is an address of 'p1' already");
        assert_eq!(refused(&|one| one.addresses = of(1)), "10.1.0.1 is the gateway of network 'red'");
        let outside = [IpAddr::from([10, 2, 0, 5])].into();
        assert_eq!(refused(&|one| one.addresses.clone_from(&outside)), "10.2.0.5 is in no subnet of network 'red'");
        assert!(refused(&|one| one.addresses.clear()).contains("has no address"));
        assert!(refused(&|one| one.device = "x".to_owned()).contains("are the same device"));
        assert!(refused(&|one| one.mac = "nonsense".to_owned()).contains("is not a MAC address"));
        assert!(refused(&|one| one.mac = "02:00:00:00:00:15".to_owned()).contains("have one MAC address"));
        assert!(refused(&|one| one.label = Some(15)).contains("label"));
        let group = || ["none".to_owned()].into();
        assert_eq!(refused(&|one| one.security_groups = group()), "there is no security group 'none'");
    }

    #[test]
    fn more_than_there_is_room_for_are_refused() {
        let all: Vec<PluggedInterface> = (21..25).map(plugged).collect();
        assert!(with(&all[..3]).is_ok());
        let error = with(&all).unwrap_err();
        assert_eq!(error.what, "4 interfaces of plug-ins, and the router has room for 3");
    }
}
