//! The queueing discipline that filters of tc need, which queues nothing.

use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::Netlink;
use crate::error::{During, Result};

impl Netlink {
    /// Gives an interface, by its number, the queueing discipline `clsact`; says whether it had none, nor `ingress`, before.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_clsact(&mut self, interface: u32) -> Result<bool> {
        let added = self.request(RouteNetlinkMessage::NewQueueDiscipline(clsact(interface)), NLM_F_CREATE | NLM_F_EXCL);
        match added {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            added => added.map(|()| true).during(|| format!("add clsact to interface {interface}")),
        }
    }

    /// Takes `clsact` off an interface where no filter is left in it; says whether it has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_empty_clsact(&mut self, interface: u32) -> Result<bool> {
        let what = || format!("remove clsact from interface {interface}");
        for minor in [TcHandle::MIN_INGRESS, TcHandle::MIN_EGRESS] {
            let mut message = TcMessage::with_index(interface as i32);
            message.header.parent = TcHandle { major: u16::MAX, minor };
            if !self.dump(RouteNetlinkMessage::GetTrafficFilter(message)).during(what)?.is_empty() {
                return Ok(false);
            }
        }
        self.request(RouteNetlinkMessage::DelQueueDiscipline(clsact(interface)), 0).during(what)?;
        Ok(true)
    }
}

fn clsact(interface: u32) -> TcMessage {
    let mut message = TcMessage::with_index(interface as i32);
    message.header.parent = TcHandle::CLSACT;
    message.header.handle = TcHandle { major: u16::MAX, minor: 0 };
    message.attributes = vec![TcAttribute::Kind("clsact".into())];
    message
}
