//! AF_XDP.

use rig_sys::xdp::{self, LiveFrameSender, Meter, Mode, Queue, Receiver, SendPath, Sender, Transmitter};
use rig_wire::ethernet::Mac;

use super::{Device, OpenPort, Options, Port, PortDriver, Receive, Transmit, filter, frame, places};
use crate::plan::PortPlan;

/// An AF_XDP socket at a queue.
#[derive(Debug)]
pub struct Xdp {
    receiver: Receiver,
    sender: Sender,
}

/// An AF_XDP socket to receive and the port's program to send.
#[derive(Debug)]
pub struct LiveXdp {
    receiver: Receiver,
    sender: LiveFrameSender,
}

impl Transmit for LiveFrameSender {
    #[inline]
    fn claim(&mut self, length: usize) -> Option<&mut [u8]> {
        self.claim(length)
    }

    #[inline]
    fn flush(&mut self) {
        self.flush();
    }
}

impl Port for LiveXdp {
    type Receive = Receiver;
    type Transmit = LiveFrameSender;

    #[inline]
    fn halves(&mut self) -> (&mut Receiver, &mut LiveFrameSender) {
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

impl LiveXdp {
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

pub(super) fn open(plan: &PortPlan, options: &Options, mode: Mode) -> Result<OpenPort, xdp::OpenError> {
    let asked = xdp::Options {
        mode,
        sending: if plan.live { options.sending } else { SendPath::Socket },
        filter: filter(plan),
        frame: frame(plan),
        burst: plan.burst.into(),
        copy: false,
        busy_poll: options.busy_poll,
    };
    let port = xdp::Port::open(&plan.interface, &places(plan), &asked)?;
    let device = |queue: Queue| match queue.transmitter {
        Transmitter::Socket(sender) => Device::Xdp(Xdp { receiver: queue.receiver, sender }),
        Transmitter::Live(sender) => Device::Live(LiveXdp { receiver: queue.receiver, sender: *sender }),
    };
    let devices: Vec<Device> = port.queues.into_iter().map(device).collect();
    let driver = match devices.first() {
        _ if port.is_generic => PortDriver::XdpGeneric,
        Some(Device::Live(_)) => PortDriver::Live,
        _ => PortDriver::Xdp,
    };
    Ok(OpenPort { devices, mac: Mac(port.mac), driver, notes: port.notes })
}
