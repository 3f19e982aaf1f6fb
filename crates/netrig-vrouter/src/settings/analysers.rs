//! Who gets copies of packets.

use std::net::Ipv4Addr;

use rig_datapath::vrouter::{LAST_ANALYSER, LAST_VNI};

use super::file::File;
use super::read::{Reader, Result};
use super::{Analyser, Settings};

/// VXLAN's (RFC 7348, 5), which tools decode.
const PORT: u16 = 4789;
/// Those that a router takes out of the underlay as its tunnels'.
const OF_TUNNELS: [u16; 2] = [PORT, 6635];

impl Reader<'_> {
    /// To be called when nodes are known.
    pub(super) fn analysers(&self, file: &File, settings: &mut Settings) -> Result<()> {
        for entry in &file.analyser {
            let said = entry.get_ref();
            let name = said.name.get_ref();
            let text = said.address.get_ref();
            let at = |what: String, hint: &str| Err(self.error(said.address.span(), what, hint));
            let Ok(address) = text.parse::<Ipv4Addr>() else {
                return at(format!("'{text}' is not an IPv4 address"), "copies go over IPv4: write 198.51.100.2");
            };
            if address.is_unspecified() || address.is_multicast() || address.is_broadcast() || address.is_loopback() {
                return at(
                    format!("{address} cannot be an analyser's address"),
                    "give the address at which nodes reach it",
                );
            }
            let port = said.port.as_ref().map_or(PORT, |port| *port.get_ref());
            if let Some(span) = said.port.as_ref().filter(|_| port == 0) {
                return Err(self.error(span.span(), "0 is not a port", "choose 1 to 65535, or leave it out"));
            }
            let node = settings.nodes.iter().find(|(_, node)| node.address == address && OF_TUNNELS.contains(&port));
            if let Some((node, _)) = node {
                let what = format!(
                    "analyser '{name}' is at node '{node}', whose router takes UDP to port {port} for a tunnel's"
                );
                return at(what, "choose another port");
            }
            if let Some(vni) = said.vni.as_ref().filter(|vni| *vni.get_ref() > LAST_VNI) {
                let what = format!("{} is not a VXLAN network identifier", vni.get_ref());
                return Err(self.error(vni.span(), what, format!("choose 0 to {LAST_VNI}, or leave it out")));
            }
            let vni = said.vni.as_ref().map_or(0, |vni| *vni.get_ref());
            settings.analysers.insert(name.clone(), Analyser { address, port, vni });
            if settings.analysers.len() > LAST_ANALYSER.into() {
                let hint = format!("{LAST_ANALYSER} are the most");
                return Err(self.error(said.name.span(), format!("analyser '{name}' is one too many"), hint));
            }
        }
        Ok(())
    }
}
