//! How backends are told of clients' addresses, as files say it.

use rig_datapath::balancer::ClientAddress;

/// By the names that files have for it.
pub const CLIENT_ADDRESSES: [(&str, ClientAddress); 4] = [
    ("off", ClientAddress::Off),
    ("toa", ClientAddress::Toa),
    ("proxy_v2", ClientAddress::ProxyV2),
    ("uoa", ClientAddress::Uoa),
];

pub fn client_address(name: &str) -> Option<ClientAddress> {
    CLIENT_ADDRESSES.iter().find(|(known, _)| *known == name).map(|(_, address)| *address)
}

pub fn client_address_name(address: ClientAddress) -> &'static str {
    CLIENT_ADDRESSES.iter().find(|(_, known)| *known == address).map_or("?", |(name, _)| name)
}

/// What to say of a service in place of one that is of another protocol.
pub fn client_address_hint(said: ClientAddress) -> &'static str {
    match said {
        ClientAddress::Uoa => "\"uoa\" is for UDP: say \"toa\" or \"proxy_v2\", or remove it",
        ClientAddress::Off | ClientAddress::Toa | ClientAddress::ProxyV2 => "it is for TCP: say \"uoa\", or remove it",
    }
}
