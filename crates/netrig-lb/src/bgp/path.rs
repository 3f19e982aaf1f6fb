//! Host routes as GoBGP's messages (RFC 4271; IPv6: RFC 2545, RFC 4760).

use std::net::IpAddr;

use rig_bgp::message as m;

/// Announces an address, or withdraws it. The next hop is left to the speaker, which gives each neighbour its own address.
pub(super) fn path(address: IpAddr, med: Option<u32>) -> m::Path {
    let (afi, prefix_len, unspecified) = if address.is_ipv4() { (1, 32, "0.0.0.0") } else { (2, 128, "::") };
    let family = m::Family { afi, safi: 1 };
    let nlri = m::Any::of(&m::IPAddressPrefix { prefix_len, prefix: address.to_string() });
    let mut attributes = vec![m::Any::of(&m::OriginAttribute { origin: 0 })];
    attributes.push(match address {
        IpAddr::V4(_) => m::Any::of(&m::NextHopAttribute { next_hop: unspecified.to_owned() }),
        IpAddr::V6(_) => m::Any::of(&m::MpReachNLRIAttribute {
            family: Some(family),
            next_hops: vec![unspecified.to_owned()],
            nlris: vec![nlri.clone()],
        }),
    });
    let med_of = |med| m::Any::of(&m::MultiExitDiscAttribute { med });
    attributes.extend(med.filter(|med| *med > 0).map(med_of));
    m::Path { nlri: Some(nlri), attributes, is_withdraw: med.is_none(), family: Some(family), ..m::Path::default() }
}
