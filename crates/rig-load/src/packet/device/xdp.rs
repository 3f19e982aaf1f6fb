//! AF_XDP.

use rig_sys::xdp::{self, Filter, Mode, Own, Receiver, Sender};
use rig_wire::ethernet::{HEADER, Mac, TAG};

use super::{Device, Opened, Options, Port, PortError, Receive, Transmit};
use crate::packet::plan::{Driver, PortPlan, Take};

/// An AF_XDP socket at a queue.
#[derive(Debug)]
pub struct Xdp {
    receiver: Receiver,
    sender: Sender,
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

impl Port for Xdp {
    type Receive = Receiver;
    type Transmit = Sender;

    #[inline]
    fn halves(&mut self) -> (&mut Receiver, &mut Sender) {
        (&mut self.receiver, &mut self.sender)
    }
}

pub(super) fn open(plan: &PortPlan, options: &Options) -> Result<Opened, PortError> {
    let mode = match plan.driver {
        Driver::XdpGeneric => Mode::Generic,
        Driver::Auto | Driver::Xdp | Driver::Packet => Mode::Any,
    };
    let asked = xdp::Options {
        mode,
        filter: filter(plan),
        frame: frame(plan),
        burst: plan.burst.into(),
        copy: false,
        busy_poll: options.busy_poll,
    };
    let queues: Vec<_> = plan.workers.iter().map(|place| place.queue).collect();
    let port = xdp::Port::open(&plan.interface, &queues, &asked)?;
    let devices = port.queues.into_iter().map(|(receiver, sender)| Device::Xdp(Xdp { receiver, sender })).collect();
    Ok(Opened { devices, mac: Mac(port.mac), notes: Vec::new() })
}

/// Bytes of the largest frame, a tag included.
pub(super) fn frame(plan: &PortPlan) -> usize {
    HEADER + TAG + usize::from(plan.mtu)
}

fn filter(plan: &PortPlan) -> Filter {
    if plan.take == Take::All {
        return Filter::All;
    }
    let local = plan.local.iter().map(|range| (range.first, range.count));
    let mut own = Own { addresses: vec![(plan.address, 1)], tunnels: Vec::new() };
    match &plan.vxlan {
        // What is inside the tunnel is not seen from outside.
        Some(vxlan) => own.tunnels.push((vxlan.local, vxlan.local_count)),
        None => own.addresses.extend(local),
    }
    Filter::Own(own)
}
