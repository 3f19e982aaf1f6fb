//! AF_PACKET.

use rig_sys::packet_socket::{self, Meter, Receiver, Sender};
use rig_sys::xdp::OpenError;
use rig_wire::ethernet::Mac;

use super::{Device, OpenPort, Port, PortDriver, Receive, Transmit, filter, frame, places};
use crate::plan::PortPlan;

/// A packet socket.
#[derive(Debug)]
pub struct Packet {
    receiver: Receiver,
    sender: Sender,
}

impl Packet {
    pub(super) fn meter(&self) -> Meter {
        self.receiver.meter()
    }
}

impl Receive for Receiver {
    #[inline]
    fn poll(&mut self) -> usize {
        self.poll()
    }

    #[inline]
    fn frame(&self, n: usize) -> &[u8] {
        self.frame(n)
    }
}

impl Transmit for Sender {
    #[inline]
    fn claim(&mut self, length: usize) -> Option<&mut [u8]> {
        self.claim(length)
    }

    #[inline]
    fn flush(&mut self) {
        self.flush();
    }
}

impl Port for Packet {
    type Receive = Receiver;
    type Transmit = Sender;

    #[inline]
    fn halves(&mut self) -> (&mut Receiver, &mut Sender) {
        (&mut self.receiver, &mut self.sender)
    }
}

pub(super) fn open(plan: &PortPlan) -> Result<OpenPort, OpenError> {
    let options = packet_socket::Options { filter: filter(plan), frame: frame(plan), burst: plan.burst.into() };
    let port = packet_socket::Port::open(&plan.interface, &places(plan), &options)?;
    let devices =
        port.queues.into_iter().map(|(receiver, sender)| Device::Packet(Packet { receiver, sender })).collect();
    Ok(OpenPort { devices, mac: Mac(port.mac), driver: PortDriver::Packet, notes: Vec::new() })
}
