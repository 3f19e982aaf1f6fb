//! What is said to GoBGP 3: messages of its gRPC service `apipb.GobgpApi`, with the fields of them that are used here.
//! Names, numbers and types of fields are those of the service.

use prost::Message;

/// A message of any type (google.protobuf.Any).
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// One that stands in an [`Any`].
pub trait TypeName: Message + Default {
    const NAME: &'static str;
}

impl Any {
    pub fn of<T: TypeName>(message: &T) -> Self {
        Self { type_url: format!("type.googleapis.com/apipb.{}", T::NAME), value: message.encode_to_vec() }
    }

    /// `None` where it is of another type, or broken.
    pub fn read<T: TypeName>(&self) -> Option<T> {
        let (_, name) = self.type_url.rsplit_once('/')?;
        (name.strip_prefix("apipb.") == Some(T::NAME)).then(|| T::decode(&self.value[..]).ok())?
    }
}

macro_rules! named {
    ($($type:ident),*) => { $(impl TypeName for $type { const NAME: &'static str = stringify!($type); })* };
}

named!(
    RouteDistinguisherTwoOctetASN,
    RouteDistinguisherIPAddress,
    RouteDistinguisherFourOctetASN,
    LabeledVPNIPAddressPrefix,
    EVPNMACIPAdvertisementRoute,
    EVPNInclusiveMulticastEthernetTagRoute,
    EVPNIPPrefixRoute,
    IPAddressPrefix,
    PmsiTunnelAttribute,
    OriginAttribute,
    NextHopAttribute,
    MultiExitDiscAttribute,
    MpReachNLRIAttribute,
    ExtendedCommunitiesAttribute,
    TwoOctetAsSpecificExtended,
    IPv4AddressSpecificExtended,
    FourOctetAsSpecificExtended,
    EncapExtended,
    RouterMacExtended,
    UnknownExtended
);

#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub struct GetBgpResponse {
    #[prost(message, optional, tag = "1")]
    pub global: Option<Global>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Global {
    #[prost(uint32, tag = "1")]
    pub asn: u32,
    #[prost(string, tag = "2")]
    pub router_id: String,
    #[prost(bool, tag = "6")]
    pub use_multiple_paths: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchEventRequest {
    #[prost(message, optional, tag = "2")]
    pub table: Option<WatchTable>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchTable {
    #[prost(message, repeated, tag = "1")]
    pub filters: Vec<WatchFilter>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchFilter {
    /// 0: the best paths of the global table.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// Whether those that there are come first.
    #[prost(bool, tag = "2")]
    pub init: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchEventResponse {
    #[prost(message, optional, tag = "3")]
    pub table: Option<TableEvent>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TableEvent {
    #[prost(message, repeated, tag = "2")]
    pub paths: Vec<Path>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AddPathStreamRequest {
    /// 0: the global table.
    #[prost(int32, tag = "1")]
    pub table_type: i32,
    #[prost(message, repeated, tag = "3")]
    pub paths: Vec<Path>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Path {
    #[prost(message, optional, tag = "1")]
    pub nlri: Option<Any>,
    #[prost(message, repeated, tag = "2")]
    pub attributes: Vec<Any>,
    #[prost(bool, tag = "5")]
    pub is_withdraw: bool,
    #[prost(message, optional, tag = "9")]
    pub family: Option<Family>,
    /// Of the neighbour that it is from; no address, where it is the speaker's own.
    #[prost(string, tag = "15")]
    pub neighbor_ip: String,
    #[prost(bool, tag = "17")]
    pub is_nexthop_invalid: bool,
}

/// Numbers of IANA (RFC 4760).
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Family {
    #[prost(int32, tag = "1")]
    pub afi: i32,
    #[prost(int32, tag = "2")]
    pub safi: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct RouteDistinguisherTwoOctetASN {
    #[prost(uint32, tag = "1")]
    pub admin: u32,
    #[prost(uint32, tag = "2")]
    pub assigned: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct RouteDistinguisherIPAddress {
    #[prost(string, tag = "1")]
    pub admin: String,
    #[prost(uint32, tag = "2")]
    pub assigned: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct RouteDistinguisherFourOctetASN {
    #[prost(uint32, tag = "1")]
    pub admin: u32,
    #[prost(uint32, tag = "2")]
    pub assigned: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct LabeledVPNIPAddressPrefix {
    #[prost(uint32, repeated, tag = "1")]
    pub labels: Vec<u32>,
    #[prost(message, optional, tag = "2")]
    pub distinguisher: Option<Any>,
    #[prost(uint32, tag = "3")]
    pub prefix_len: u32,
    #[prost(string, tag = "4")]
    pub prefix: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct EthernetSegmentIdentifier {
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EVPNMACIPAdvertisementRoute {
    #[prost(message, optional, tag = "1")]
    pub distinguisher: Option<Any>,
    #[prost(message, optional, tag = "2")]
    pub segment: Option<EthernetSegmentIdentifier>,
    #[prost(uint32, tag = "3")]
    pub ethernet_tag: u32,
    #[prost(string, tag = "4")]
    pub mac_address: String,
    /// Empty or `<nil>`, where there is none.
    #[prost(string, tag = "5")]
    pub ip_address: String,
    /// All 24 bits of each.
    #[prost(uint32, repeated, tag = "6")]
    pub labels: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EVPNInclusiveMulticastEthernetTagRoute {
    #[prost(message, optional, tag = "1")]
    pub distinguisher: Option<Any>,
    #[prost(uint32, tag = "2")]
    pub ethernet_tag: u32,
    #[prost(string, tag = "3")]
    pub ip_address: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct EVPNIPPrefixRoute {
    #[prost(message, optional, tag = "1")]
    pub distinguisher: Option<Any>,
    #[prost(message, optional, tag = "2")]
    pub segment: Option<EthernetSegmentIdentifier>,
    #[prost(uint32, tag = "3")]
    pub ethernet_tag: u32,
    #[prost(string, tag = "4")]
    pub prefix: String,
    #[prost(uint32, tag = "5")]
    pub prefix_len: u32,
    /// All zeros, where the next hop and the router's MAC address say where it leads.
    #[prost(string, tag = "6")]
    pub gateway: String,
    /// All 24 bits of it.
    #[prost(uint32, tag = "7")]
    pub label: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct PmsiTunnelAttribute {
    #[prost(uint32, tag = "1")]
    pub flags: u32,
    /// Of the tunnel (RFC 6514, 5).
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// All 24 bits of it.
    #[prost(uint32, tag = "3")]
    pub label: u32,
    #[prost(bytes = "vec", tag = "4")]
    pub id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OriginAttribute {
    /// 0: IGP (RFC 4271, 5.1.1).
    #[prost(uint32, tag = "1")]
    pub origin: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct NextHopAttribute {
    #[prost(string, tag = "1")]
    pub next_hop: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct MultiExitDiscAttribute {
    #[prost(uint32, tag = "1")]
    pub med: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct IPAddressPrefix {
    #[prost(uint32, tag = "1")]
    pub prefix_len: u32,
    #[prost(string, tag = "2")]
    pub prefix: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct MpReachNLRIAttribute {
    #[prost(message, optional, tag = "1")]
    pub family: Option<Family>,
    #[prost(string, repeated, tag = "2")]
    pub next_hops: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub nlris: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ExtendedCommunitiesAttribute {
    #[prost(message, repeated, tag = "1")]
    pub communities: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TwoOctetAsSpecificExtended {
    #[prost(bool, tag = "1")]
    pub is_transitive: bool,
    #[prost(uint32, tag = "2")]
    pub sub_type: u32,
    #[prost(uint32, tag = "3")]
    pub asn: u32,
    #[prost(uint32, tag = "4")]
    pub local_admin: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct IPv4AddressSpecificExtended {
    #[prost(bool, tag = "1")]
    pub is_transitive: bool,
    #[prost(uint32, tag = "2")]
    pub sub_type: u32,
    #[prost(string, tag = "3")]
    pub address: String,
    #[prost(uint32, tag = "4")]
    pub local_admin: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct FourOctetAsSpecificExtended {
    #[prost(bool, tag = "1")]
    pub is_transitive: bool,
    #[prost(uint32, tag = "2")]
    pub sub_type: u32,
    #[prost(uint32, tag = "3")]
    pub asn: u32,
    #[prost(uint32, tag = "4")]
    pub local_admin: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct EncapExtended {
    #[prost(uint32, tag = "1")]
    pub tunnel_type: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct RouterMacExtended {
    #[prost(string, tag = "1")]
    pub mac: String,
}

/// One that GoBGP knows nothing more of.
#[derive(Clone, PartialEq, Message)]
pub struct UnknownExtended {
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// The seven octets behind the type.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}
