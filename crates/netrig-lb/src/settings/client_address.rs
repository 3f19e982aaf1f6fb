//! How backends are told of clients' addresses, as files say it.

use rig_datapath::balancer::ClientAddress;

/// By the names that files have for it.
pub const CLIENT_ADDRESSES: [(&str, ClientAddress); 3] =
    [("off", ClientAddress::Off), ("toa", ClientAddress::Toa), ("proxy_v2", ClientAddress::ProxyV2)];

pub fn client_address(name: &str) -> Option<ClientAddress> {
    CLIENT_ADDRESSES.iter().find(|(known, _)| *known == name).map(|(_, address)| *address)
}

pub fn client_address_name(address: ClientAddress) -> &'static str {
    CLIENT_ADDRESSES.iter().find(|(_, known)| *known == address).map_or("?", |(name, _)| name)
}
