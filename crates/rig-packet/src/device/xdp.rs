//! AF_XDP.

use rig_sys::xdp::{self, LiveSender, Meter, Mode, Queue, Receiver, Sender, Sending, Transmitter};
use rig_wire::ethernet::Mac;

use super::{Device, Opened, Options, Port, Receive, Transmit, Way, filter, frame, places};
use crate::plan::PortPlan;

/// An AF_XDP socket at a queue.
#[derive(Debug)]
pub struct Xdp {
    receiver: Receiver,
    sender: Sender,
}

/// An AF_XDP socket to receive and the port's program to send.
#[derive(Debug)]
pub struct Live {
    receiver: Receiver,
    sender: LiveSender,
}

impl Transmit for LiveSender {
    #[inline]
    fn claim(&mut self, length: usize) -> Option<&mut [u8]> {
        self.claim(length)
    }

    #[inline]
    fn flush(&mut self) {
        self.flush();
    }
}

impl Port for Live {
    type Receive = Receiver;
    type Transmit = LiveSender;

    #[inline]
    fn halves(&mut self) -> (&mut Receiver, &mut LiveSender) {
        (&mut self.receiver, &mut self.sender)
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

impl Xdp {
    pub(super) fn meter(&self) -> Meter {
        self.receiver.meter()
    }
}

impl Live {
    pub(super) fn meter(&self) -> Meter {
        self.receiver.meter().with(&self.sender)
    }
}

impl Port for Xdp {
    type Receive = Receiver;
    type Transmit = Sender;

    #[inline]
    fn halves(&mut self) -> (&mut Receiver, &mut Sender) {
        (&mut self.receiver, &mut self.sender)
    }
}

pub(super) fn open(plan: &PortPlan, options: &Options, mode: Mode) -> Result<Opened, xdp::OpenError> {
    let asked = xdp::Options {
        mode,
        sending: if plan.live { options.sending } else { Sending::Socket },
        filter: filter(plan),
        frame: frame(plan),
        burst: plan.burst.into(),
        copy: false,
        busy_poll: options.busy_poll,
    };
    let port = xdp::Port::open(&plan.interface, &places(plan), &asked)?;
    let device = |queue: Queue| match queue.transmitter {
        Transmitter::Socket(sender) => Device::Xdp(Xdp { receiver: queue.receiver, sender }),
        Transmitter::Live(sender) => Device::Live(Live { receiver: queue.receiver, sender: *sender }),
    };
    let devices: Vec<Device> = port.queues.into_iter().map(device).collect();
    let way = match devices.first() {
        _ if port.is_generic => Way::XdpGeneric,
        Some(Device::Live(_)) => Way::Live,
        _ => Way::Xdp,
    };
    Ok(Opened { devices, mac: Mac(port.mac), way, notes: port.notes })
}
