//! Tunnels to backends: what packets are packed into, and where that comes from.

use std::net::IpAddr;
use std::num::NonZeroU16;

use ipnet::IpNet;
use rig_cli::forms::TextOrTable;
use rig_datapath::balancer::{Encapsulation, GUE_PORT, MAX_SOURCE_BITS};

use super::file::TunnelFile;
use super::misfit::Misfit;
use super::rules::{Backend, Service};
use crate::message::{ForwardingMethod, Tunnel};

/// Names of tunnels, which are ipvsadm's.
pub const TUNNELS: [&str; 3] = ["ipip", "gue", "gre"];

/// A tunnel by its name, and what may be said of it.
pub fn tunnel(name: &str, port: Option<u16>, checksum: Option<bool>) -> Result<Tunnel, Misfit> {
    let of_gue = |tunnel| match (port, checksum) {
        (None, None | Some(false)) => Ok(tunnel),
        (Some(_), _) => Err(Misfit::of(format!("{name} has no port"), "leave the port out: it is for gue")),
        (None, Some(true)) => {
            Err(Misfit::of(format!("{name} has no checksum here"), "leave the checksum out, or choose gue"))
        }
    };
    match name {
        "ipip" => of_gue(Tunnel::Ipip),
        "gre" => of_gue(Tunnel::Gre),
        "gue" => {
            let port = NonZeroU16::new(port.unwrap_or(GUE_PORT.get()));
            let port = port.ok_or_else(|| Misfit::of("gue to port 0", "choose 1 to 65535; 6080 is GUE's own"))?;
            Ok(Tunnel::Gue { port, checksum: checksum.unwrap_or(false) })
        }
        other => Err(Misfit::of(format!("there is no tunnel '{other}'"), "choose one of ipip, gue, gre")),
    }
}

pub(super) fn read(said: &TextOrTable<TunnelFile>) -> Result<Tunnel, Misfit> {
    match said {
        TextOrTable::Text(name) => tunnel(name, None, None),
        TextOrTable::Table(table) => tunnel(&table.kind, table.port, table.checksum),
    }
}

/// As a file has it.
pub(super) fn text(tunnel: Tunnel) -> String {
    match tunnel {
        Tunnel::Gue { port, checksum } if port != GUE_PORT || checksum => {
            let port = if port == GUE_PORT { String::new() } else { format!(", port = {port}") };
            let checksum = if checksum { ", checksum = true" } else { "" };
            format!("{{ type = \"gue\"{port}{checksum} }}")
        }
        other => format!("\"{}\"", other.name()),
    }
}

/// A prefix that is the operator's, for the sources of outer packets.
pub fn tunnel_source(text: &str) -> Result<IpNet, Misfit> {
    let hint =
        "write a prefix that is yours, of IPv4 8 to 31 bits long, of IPv6 8 to 127: \"172.16.0.0/16\", \"100::/64\"";
    let prefix: IpNet = text.parse().map_err(|_| Misfit::of(format!("'{text}' is no prefix"), hint))?;
    match prefix {
        _ if prefix.prefix_len() < 8 || prefix.prefix_len() == prefix.max_prefix_len() => {
            Err(Misfit::of(format!("'{text}' as the source of tunnels"), hint))
        }
        _ if prefix.trunc() != prefix => Err(Misfit::of(format!("'{text}' has bits behind its length"), hint)),
        _ => Ok(prefix),
    }
}

impl Service {
    /// Whether packets for its backends are packed.
    pub fn is_tunnel(&self) -> bool {
        self.forward == Some(ForwardingMethod::Tunnel)
    }

    /// Whether some outer packets have a checksum over all of them.
    pub fn sums_tunnels(&self) -> bool {
        let sums = |backend: &Backend| matches!(backend.tunnel, Tunnel::Gue { checksum: true, .. });
        self.is_tunnel() && self.backends.iter().any(sums)
    }

    /// Where outer packets are from.
    pub fn tunnel_locals(&self) -> Vec<IpAddr> {
        self.tunnel_source.map_or_else(|| self.local.clone(), |prefix| vec![prefix.network()])
    }

    pub(super) fn encapsulation(&self, backend: &Backend) -> Encapsulation {
        if !self.is_tunnel() {
            return Encapsulation::default();
        }
        let bits = self.tunnel_source.map_or(0, |prefix| prefix.max_prefix_len() - prefix.prefix_len());
        Encapsulation { header: backend.tunnel.header(), source_bits: bits.min(MAX_SOURCE_BITS) }
    }

    /// What its tunnels' source is at odds with.
    pub(super) fn tunnel_misfit(&self) -> Option<Misfit> {
        let prefix = self.tunnel_source?;
        if self.forward.is_some() && !self.is_tunnel() {
            Some(Misfit::of(
                "a tunnel_source, and the service forwards in another way",
                "remove it, or forward by tunnel (-i)",
            ))
        } else if !self.local.is_empty() {
            Some(Misfit::of(
                "a tunnel_source and local addresses",
                "remove one: outer packets are from the prefix or from these",
            ))
        } else if prefix.network().is_ipv4() != self.key.address.is_ipv4() {
            Some(Misfit::of(
                format!("tunnel_source {prefix} is of another family than the service"),
                "choose a prefix of its family",
            ))
        } else if prefix.contains(&self.key.address.ip()) {
            Some(Misfit::of(
                format!("tunnel_source {prefix} has the service's own address in it"),
                "choose another prefix",
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn only_gue_has_a_port_and_a_checksum() {
        let gue = |port, checksum| Tunnel::Gue { port: NonZeroU16::new(port).unwrap(), checksum };
        assert_eq!(tunnel("gue", None, None), Ok(gue(6080, false)));
        assert_eq!(tunnel("gue", Some(5555), Some(true)), Ok(gue(5555, true)));
        assert_eq!(
            (text(gue(6080, false)), text(gue(5555, true))),
            ("\"gue\"".into(), "{ type = \"gue\", port = 5555, checksum = true }".into())
        );
        for (name, port, checksum) in
            [("gue", Some(0), None), ("gre", Some(1), None), ("ipip", None, Some(true)), ("vxlan", None, None)]
        {
            assert!(tunnel(name, port, checksum).is_err(), "{name}");
        }
    }

    #[test]
    fn sources_are_prefixes_with_room() {
        for good in ["172.16.0.0/16", "100::/64", "10.0.0.0/31"] {
            assert_eq!(tunnel_source(good).unwrap().to_string(), good);
        }
        for bad in ["172.16.0.0", "172.16.0.1/16", "10.0.0.0/32", "0.0.0.0/0", "100::/128"] {
            assert!(tunnel_source(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_whose_sources_are_somebodys_is_refused_by_name() {
        use crate::settings::{Completeness, Settings};
        let text = |backend: &str| {
            format!(
                "[[service]]\nlisten = '192.0.2.1:80'\nforward = 'tunnel'\ntunnel_source = '172.16.0.0/16'\nbackend = ['10.0.0.1']\n\
                 [[service]]\nlisten = '192.0.2.2:80'\nforward = 'nat'\nbackend = ['{backend}:80']"
            )
        };
        let read = |backend| Settings::parse("lb.toml", &text(backend), Completeness::Optional);
        assert!(read("172.17.0.1").is_ok());
        // One without backends is not in use.
        let empty = "[[service]]\nlisten = '192.0.2.1:81'\nforward = 'tunnel'\ntunnel_source = '172.16.0.0/16'\n";
        assert!(Settings::parse("lb.toml", &format!("{empty}{}", text("172.17.0.1")), Completeness::Optional).is_ok());
        let error = read("172.16.0.1").unwrap_err().to_string();
        let expected = "lb.toml:2: service 192.0.2.1:80: 172.16.0.1 is a backend's address, and one of 172.16.0.0/16";
        assert!(error.contains(expected), "{error}");
    }
}
