//! Routes from and to GoBGP's messages.
//!
//! | route | RFC | label |
//! |---|---|---|
//! | VPN-IPv4, VPN-IPv6 | 4364, 4659 | MPLS label of the interface |
//! | EVPN MAC/IP advertisement (type 2) | 7432, 8365 | VXLAN network identifier |
//! | EVPN inclusive multicast (type 3) | 7432, 8365 | the same, in the P-tunnel attribute (RFC 6514, 5) |
//! | EVPN IP prefix (type 5) | 9136 | VXLAN network identifier; frames are for the router's MAC address |

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use rig_datapath::vrouter::Encapsulation;
use rig_wire::ethernet::Mac;

use super::message as m;
use super::route::{RouteAttributes, RouteChange, RouteSubject};
use crate::settings::Assigned;

const VPN4: m::Family = m::Family { afi: 1, safi: 128 };
const VPN6: m::Family = m::Family { afi: 2, safi: 128 };
const EVPN: m::Family = m::Family { afi: 25, safi: 70 };

/// Who has frames for several gets a copy of his own (RFC 6514, 5: ingress replication).
const INGRESS_REPLICATION: u32 = 6;
/// Of the extended communities that are for an AS or an address (RFC 4360, 4).
const ROUTE_TARGET: u32 = 2;
/// Tunnel types of the encapsulation extended community (RFC 9012, 4.1; IANA: BGP Tunnel Encapsulation Attribute Tunnel Types).
const GRE: u32 = 2;
const VXLAN: u32 = 8;
const MPLS_IN_GRE: u32 = 11;
const MPLS_IN_UDP: u32 = 13;
/// Contrail's extended community of a security group: type and sub-type, then the AS in two octets and the group's number in
/// four.
const GROUP: (u32, u8) = (0x80, 0x04);

impl RouteSubject {
    fn family(&self) -> m::Family {
        match self {
            Self::Vpn { prefix: IpNet::V4(_), .. } => VPN4,
            Self::Vpn { prefix: IpNet::V6(_), .. } => VPN6,
            Self::Mac { .. } | Self::Multicast { .. } | Self::Behind { .. } => EVPN,
        }
    }

    fn nlri(&self, label: u32) -> m::Any {
        match self {
            Self::Vpn { distinguisher, prefix } => m::Any::of(&m::LabeledVPNIPAddressPrefix {
                labels: vec![label],
                distinguisher: Some(distinguisher_to_message(distinguisher)),
                prefix_len: prefix.prefix_len().into(),
                prefix: prefix.network().to_string(),
            }),
            Self::Mac { distinguisher, tag, mac, address } => m::Any::of(&m::EVPNMACIPAdvertisementRoute {
                distinguisher: Some(distinguisher_to_message(distinguisher)),
                segment: Some(one_link()),
                ethernet_tag: *tag,
                mac_address: mac.to_string(),
                ip_address: address.map(|address| address.to_string()).unwrap_or_default(),
                labels: vec![label],
            }),
            Self::Multicast { distinguisher, tag, originator } => {
                m::Any::of(&m::EVPNInclusiveMulticastEthernetTagRoute {
                    distinguisher: Some(distinguisher_to_message(distinguisher)),
                    ethernet_tag: *tag,
                    ip_address: originator.to_string(),
                })
            }
            // RFC 9136, 4.4.1: no other route says where it leads.
            Self::Behind { distinguisher, tag, prefix } => m::Any::of(&m::EVPNIPPrefixRoute {
                distinguisher: Some(distinguisher_to_message(distinguisher)),
                segment: Some(one_link()),
                ethernet_tag: *tag,
                prefix: prefix.network().to_string(),
                prefix_len: prefix.prefix_len().into(),
                gateway: unspecified(prefix).to_string(),
                label,
            }),
        }
    }

    /// With its label; none, where that does not say where it leads.
    fn of_nlri(family: m::Family, nlri: &m::Any) -> Option<(Self, Option<u32>)> {
        if let Some(route) = nlri.read::<m::EVPNInclusiveMulticastEthernetTagRoute>().filter(|_| family == EVPN) {
            let distinguisher = distinguisher_of_message(route.distinguisher.as_ref()?)?;
            let originator = route.ip_address.parse::<IpAddr>().ok()?.to_canonical();
            return Some((Self::Multicast { distinguisher, tag: route.ethernet_tag, originator }, Some(0)));
        }
        if let Some(route) = nlri.read::<m::EVPNIPPrefixRoute>().filter(|_| family == EVPN) {
            let distinguisher = distinguisher_of_message(route.distinguisher.as_ref()?)?;
            let prefix = IpNet::new(route.prefix.parse().ok()?, u8::try_from(route.prefix_len).ok()?).ok()?;
            // One with a gateway or a segment leads where routes to these do.
            let has_none = route.gateway.parse::<IpAddr>().is_ok_and(|gateway| gateway.is_unspecified());
            let is_of_one_link = route.segment.is_none_or(|segment| segment.value.iter().all(|byte| *byte == 0));
            let subject = Self::Behind { distinguisher, tag: route.ethernet_tag, prefix: prefix.trunc() };
            return Some((subject, (has_none && is_of_one_link).then_some(route.label)));
        }
        if family == EVPN {
            let route = nlri.read::<m::EVPNMACIPAdvertisementRoute>()?;
            let distinguisher = distinguisher_of_message(route.distinguisher.as_ref()?)?;
            let mac = mac(&route.mac_address)?;
            let address = match route.ip_address.as_str() {
                "" | "<nil>" => None,
                text => Some(text.parse::<IpAddr>().ok()?.to_canonical()),
            };
            let subject = Self::Mac { distinguisher, tag: route.ethernet_tag, mac, address };
            return Some((subject, Some(route.labels.first().copied().unwrap_or(0))));
        }
        let route = nlri.read::<m::LabeledVPNIPAddressPrefix>()?;
        let distinguisher = distinguisher_of_message(route.distinguisher.as_ref()?)?;
        let address = match family {
            VPN4 => IpAddr::V4(route.prefix.parse().ok()?),
            VPN6 => IpAddr::V6(route.prefix.parse::<Ipv6Addr>().ok()?),
            _ => return None,
        };
        let prefix = IpNet::new(address, u8::try_from(route.prefix_len).ok()?).ok()?;
        // One of more than one label is for who carries the others.
        let label = if let [label] = route.labels[..] { label } else { 0 };
        Some((Self::Vpn { distinguisher, prefix: prefix.trunc() }, Some(label)))
    }
}

/// Who is reached by one link alone (RFC 7432, 5).
fn one_link() -> m::EthernetSegmentIdentifier {
    m::EthernetSegmentIdentifier { kind: 0, value: vec![0; 9] }
}

fn unspecified(prefix: &IpNet) -> IpAddr {
    match prefix {
        IpNet::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpNet::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// What is to be sent to have a route announced, or to have it withdrawn, where there is nothing to say of it.
pub fn to_message(subject: &RouteSubject, says: Option<&RouteAttributes>) -> m::Path {
    let family = Some(subject.family());
    let nlri = subject.nlri(says.map_or(0, |says| says.label));
    let attributes = says.map(|says| attributes(subject, &nlri, says)).unwrap_or_default();
    m::Path { nlri: Some(nlri), attributes, is_withdraw: says.is_none(), family, ..m::Path::default() }
}

fn attributes(subject: &RouteSubject, nlri: &m::Any, says: &RouteAttributes) -> Vec<m::Any> {
    let reach = m::MpReachNLRIAttribute {
        family: Some(subject.family()),
        // For VPN-IPv6 it goes onto the wire as an IPv6 address that IPv4 is mapped into (RFC 4659, 3.2.1.2).
        next_hops: vec![says.next_hop.to_string()],
        nlris: vec![nlri.clone()],
    };
    let targets = says.targets.iter().map(target_to_message);
    let tunnels = says.encapsulations.iter().map(|one| {
        let tunnel_type = match one {
            Encapsulation::MplsOverUdp => MPLS_IN_UDP,
            Encapsulation::MplsOverGre => GRE,
            Encapsulation::Vxlan => VXLAN,
        };
        m::Any::of(&m::EncapExtended { tunnel_type })
    });
    let groups = says.groups.iter().map(|(by, number)| {
        let value = [&[GROUP.1][..], &by.to_be_bytes(), &number.to_be_bytes()].concat();
        m::Any::of(&m::UnknownExtended { kind: GROUP.0, value })
    });
    let router = says.mac.map(|mac| m::Any::of(&m::RouterMacExtended { mac: mac.to_string() }));
    let communities = targets.chain(tunnels).chain(groups).chain(router).collect();
    let mut attributes = vec![
        m::Any::of(&m::OriginAttribute { origin: 0 }),
        m::Any::of(&reach),
        m::Any::of(&m::ExtendedCommunitiesAttribute { communities }),
    ];
    if let RouteSubject::Multicast { .. } = subject {
        // A label of MPLS is in the upper 20 bits of the field (RFC 6514, 5), a network identifier in all 24 (RFC 8365, 5.1.3).
        let is_vxlan = says.encapsulations.contains(&Encapsulation::Vxlan);
        let label = if is_vxlan { says.label } else { says.label << 4 };
        let id = says.next_hop.octets().to_vec();
        attributes.push(m::Any::of(&m::PmsiTunnelAttribute { flags: 0, kind: INGRESS_REPLICATION, label, id }));
    }
    attributes
}

/// `None` for what is of no interest here. What cannot be used is as good as withdrawn (RFC 7606).
pub fn of_message(path: &m::Path) -> Option<RouteChange> {
    let (subject, label) = RouteSubject::of_nlri(path.family?, path.nlri.as_ref()?)?;
    let is_local = path.neighbor_ip.parse::<IpAddr>().is_err();
    let says = (!path.is_withdraw && !path.is_nexthop_invalid).then(|| says(&subject, label?, &path.attributes));
    Some(match says.flatten() {
        Some(says) => RouteChange::Announced { subject, says, is_local },
        None => RouteChange::Withdrawn(subject),
    })
}

fn says(subject: &RouteSubject, label: u32, attributes: &[m::Any]) -> Option<RouteAttributes> {
    let reach = attributes.iter().find_map(m::Any::read::<m::MpReachNLRIAttribute>)?;
    let IpAddr::V4(next_hop) = reach.next_hops.first()?.parse::<IpAddr>().ok()?.to_canonical() else { return None };
    let label = match subject {
        RouteSubject::Multicast { .. } => {
            let tunnel = attributes.iter().find_map(m::Any::read::<m::PmsiTunnelAttribute>)?;
            // Trees are not built, and copies go where all else of the node does.
            let is_copied = tunnel.kind == INGRESS_REPLICATION && tunnel.id == next_hop.octets();
            is_copied.then_some(tunnel.label)?
        }
        _ => label,
    };
    let mut says = RouteAttributes {
        next_hop,
        label,
        targets: BTreeSet::new(),
        encapsulations: BTreeSet::new(),
        groups: BTreeSet::new(),
        mac: None,
    };
    let communities = attributes.iter().find_map(m::Any::read::<m::ExtendedCommunitiesAttribute>);
    for community in communities.into_iter().flat_map(|attribute| attribute.communities) {
        if let Some(target) = target_of_message(&community) {
            says.targets.insert(target);
        } else if let Some(tunnel) = community.read::<m::EncapExtended>() {
            says.encapsulations.extend(encapsulation(subject, tunnel.tunnel_type));
        } else if let (Some(router), RouteSubject::Behind { .. }) = (community.read::<m::RouterMacExtended>(), subject)
        {
            says.mac = mac(&router.mac);
        } else if let Some(other) = community.read::<m::UnknownExtended>() {
            says.groups.extend(group(&other));
        }
    }
    if let RouteSubject::Multicast { .. } = subject {
        // What it has is an identifier or a label, and is no good as the other.
        match says.encapsulations.contains(&Encapsulation::Vxlan) {
            true => says.encapsulations.retain(|one| *one == Encapsulation::Vxlan),
            false => says.label >>= 4,
        }
    }
    // No interface has the MAC address of zeros.
    let is_for_somebody = says.mac.is_some() || !matches!(subject, RouteSubject::Behind { .. });
    is_for_somebody.then_some(says)
}

/// Where it fits to the label.
fn encapsulation(subject: &RouteSubject, tunnel_type: u32) -> Option<Encapsulation> {
    match (subject, tunnel_type) {
        (RouteSubject::Vpn { .. } | RouteSubject::Multicast { .. }, MPLS_IN_UDP) => Some(Encapsulation::MplsOverUdp),
        (RouteSubject::Vpn { .. } | RouteSubject::Multicast { .. }, GRE | MPLS_IN_GRE) => {
            Some(Encapsulation::MplsOverGre)
        }
        (RouteSubject::Mac { .. } | RouteSubject::Multicast { .. } | RouteSubject::Behind { .. }, VXLAN) => {
            Some(Encapsulation::Vxlan)
        }
        _ => None,
    }
}

fn group(community: &m::UnknownExtended) -> Option<(u16, u32)> {
    let [sub_type, by @ .., a, b, c, d] = &community.value[..] else { return None };
    let by = u16::from_be_bytes(<[u8; 2]>::try_from(by).ok()?);
    ((community.kind, *sub_type) == GROUP).then_some((by, u32::from_be_bytes([*a, *b, *c, *d])))
}

fn target_to_message(target: &Assigned) -> m::Any {
    let (is_transitive, sub_type) = (true, ROUTE_TARGET);
    match *target {
        Assigned::TwoOctets(asn, number) => {
            m::Any::of(&m::TwoOctetAsSpecificExtended { is_transitive, sub_type, asn: asn.into(), local_admin: number })
        }
        Assigned::ByAddress(address, number) => m::Any::of(&m::IPv4AddressSpecificExtended {
            is_transitive,
            sub_type,
            address: address.to_string(),
            local_admin: number.into(),
        }),
        Assigned::FourOctets(asn, number) => {
            m::Any::of(&m::FourOctetAsSpecificExtended { is_transitive, sub_type, asn, local_admin: number.into() })
        }
    }
}

fn target_of_message(community: &m::Any) -> Option<Assigned> {
    let (sub_type, target) = if let Some(one) = community.read::<m::TwoOctetAsSpecificExtended>() {
        (one.sub_type, Assigned::TwoOctets(one.asn.try_into().ok()?, one.local_admin))
    } else if let Some(one) = community.read::<m::IPv4AddressSpecificExtended>() {
        (one.sub_type, Assigned::ByAddress(one.address.parse().ok()?, one.local_admin.try_into().ok()?))
    } else {
        let one = community.read::<m::FourOctetAsSpecificExtended>()?;
        (one.sub_type, Assigned::FourOctets(one.asn, one.local_admin.try_into().ok()?))
    };
    (sub_type == ROUTE_TARGET).then_some(target)
}

fn distinguisher_to_message(distinguisher: &Assigned) -> m::Any {
    match *distinguisher {
        Assigned::TwoOctets(admin, assigned) => {
            m::Any::of(&m::RouteDistinguisherTwoOctetASN { admin: admin.into(), assigned })
        }
        Assigned::ByAddress(admin, assigned) => {
            m::Any::of(&m::RouteDistinguisherIPAddress { admin: admin.to_string(), assigned: assigned.into() })
        }
        Assigned::FourOctets(admin, assigned) => {
            m::Any::of(&m::RouteDistinguisherFourOctetASN { admin, assigned: assigned.into() })
        }
    }
}

fn distinguisher_of_message(message: &m::Any) -> Option<Assigned> {
    if let Some(one) = message.read::<m::RouteDistinguisherTwoOctetASN>() {
        return Some(Assigned::TwoOctets(one.admin.try_into().ok()?, one.assigned));
    }
    if let Some(one) = message.read::<m::RouteDistinguisherIPAddress>() {
        return Some(Assigned::ByAddress(one.admin.parse().ok()?, one.assigned.try_into().ok()?));
    }
    let one = message.read::<m::RouteDistinguisherFourOctetASN>()?;
    Some(Assigned::FourOctets(one.admin, one.assigned.try_into().ok()?))
}

fn mac(text: &str) -> Option<Mac> {
    let mut mac = Mac::default();
    let mut bytes = text.split(':');
    for to in &mut mac.0 {
        *to = u8::from_str_radix(bytes.next().filter(|byte| byte.len() == 2)?, 16).ok()?;
    }
    (bytes.next().is_none() && !mac.is_multicast() && mac != Mac::default()).then_some(mac)
}
