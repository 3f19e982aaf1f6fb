//! A load as a suite asks for it; of packets, each of its ends as a trial runs it, too.

use std::time::Duration;

use rig_load::plan::Load;
use rig_load::record::End;
use rig_packet::benchmark::ETHERNET;
use rig_packet::{
    Client, CloseMethod, MessageEnd, Payload, Server, Service, TcpClient, TcpServer, TcpTimes, UdpClient, UdpServer,
};
use rig_testbed::topology::Family;
use serde::{Deserialize, Serialize};

/// A server keeps a connection that is silent for so long beyond its interval.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes (RFC 768).
const UDP_HEADER: u16 = 8;
/// Of a client that expects no answer.
const UNUSED_TIMEOUT: Duration = Duration::from_millis(200);

/// A load as a suite asks for it. Of packets it is what both ends do, wherever they are; all others are as an end runs them.
pub type RequestedLoad = Load<PacketLoad>;

/// What both ends do, wherever they are. A testbed gives the rest: interfaces, addresses, and how large a segment may be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketLoad {
    pub client: Client,
    pub exchange: Exchange,
}

/// What is asked and answered, and when it is lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    Tcp(TcpExchange),
    Udp {
        request: Payload,
        response: Payload,
        /// How long an answer may take.
        timeout: Duration,
    },
    /// Frames one way, of so many bytes with their check sequence: datagrams that are counted and not answered.
    Frames {
        bytes: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TcpExchange {
    pub times: TcpTimes,
    pub request: Message,
    pub response: Message,
    /// How a client ends a connection.
    pub close: CloseMethod,
    /// Segments of a response that may be under way.
    pub window: u8,
}

/// What goes over a TCP connection, and when it is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub payload: Payload,
    pub complete: MessageEnd,
}

/// Bytes of the headers of IP and UDP.
pub fn headers(family: Family) -> u16 {
    family.header() as u16 + UDP_HEADER
}

impl PacketLoad {
    pub fn is_tcp(&self) -> bool {
        matches!(self.exchange, Exchange::Tcp(_))
    }

    /// Bytes of a request and of a response; of frames one way of a frame and of none.
    pub fn sizes(&self) -> [u64; 2] {
        let (request, response) = match &self.exchange {
            Exchange::Tcp(tcp) => (&tcp.request.payload, &tcp.response.payload),
            Exchange::Udp { request, response, .. } => (request, response),
            Exchange::Frames { bytes } => return [u64::from(*bytes), 0],
        };
        [request, response].map(Payload::len)
    }

    /// What an end does where packets of this family have at most `mtu` bytes.
    pub fn service(&self, end: End, mtu: u16, family: Family) -> Service {
        let headers = headers(family);
        // TCP's header has 12 bytes more than UDP's.
        let mss = mtu.saturating_sub(headers + 12);
        let client = self.client.clone();
        let server = Server { ports: client.server_ports.clone() };
        match (&self.exchange, end) {
            (Exchange::Tcp(tcp), End::Connect) => Service::TcpClient(TcpClient {
                client,
                times: tcp.times,
                request: tcp.request.payload.clone(),
                response: tcp.response.complete,
                close: tcp.close,
                delayed_ack: tcp.times.retransmit,
                mss,
                resets: true,
            }),
            (Exchange::Tcp(tcp), End::Listen) => Service::TcpServer(TcpServer {
                server,
                times: tcp.times,
                request: tcp.request.complete,
                response: tcp.response.payload.clone(),
                close: client.repeat.is_none(),
                idle: IDLE + client.repeat.map_or(Duration::ZERO, |repeat| repeat.interval),
                window: tcp.window,
                mss,
                resets: true,
            }),
            (Exchange::Udp { request, timeout, .. }, End::Connect) => {
                Service::UdpClient(UdpClient { client, request: request.clone(), timeout: *timeout })
            }
            (Exchange::Udp { response, .. }, End::Listen) => {
                Service::UdpServer(UdpServer { server, response: response.clone(), one_way: false })
            }
            (Exchange::Frames { bytes }, End::Connect) => {
                let payload = bytes.saturating_sub(ETHERNET + u32::from(headers));
                Service::UdpClient(UdpClient { client, request: Payload::Filler(payload), timeout: UNUSED_TIMEOUT })
            }
            (Exchange::Frames { .. }, End::Listen) => {
                Service::UdpServer(UdpServer { server, response: Payload::Filler(1), one_way: true })
            }
        }
    }
}
