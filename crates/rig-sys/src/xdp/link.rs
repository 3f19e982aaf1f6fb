//! What there is to know of an interface before it is taken.

use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkXdp};

use super::error::OpenError;
use crate::ethtool;
use crate::netlink::Netlink;

#[derive(Debug, Clone, Default)]
pub(crate) struct Link {
    pub name: String,
    pub index: u32,
    pub mac: [u8; 6],
    pub mtu: u32,
    /// Queues that both receive and send.
    pub queues: u32,
    pub is_veth: bool,
    /// The number of the program that is attached.
    pub program: Option<u32>,
}

impl Link {
    /// The interface `name` of the calling thread's network namespace.
    pub fn read(name: &str) -> Result<Self, OpenError> {
        let message = Netlink::here()?.get(name).map_err(|error| match error.errno() {
            Some(libc::ENODEV) => OpenError::NoInterface(name.to_owned()),
            _ => error.into(),
        })?;
        let mut made = 1;
        let mut link = Self { name: name.to_owned(), index: message.header.index, ..Self::default() };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::Address(address) => link.mac = address.try_into().unwrap_or_default(),
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::NumRxQueues(queues) => made = queues,
                LinkAttribute::LinkInfo(infos) => link.is_veth = infos.contains(&LinkInfo::Kind(InfoKind::Veth)),
                LinkAttribute::Xdp(all) => {
                    link.program = all.into_iter().find_map(|attribute| match attribute {
                        LinkXdp::ProgId(number) => Some(number),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        // Fewer may be in use than were made.
        link.queues = ethtool::queues(name).map_or(made, |(receive, transmit)| receive.min(transmit)).max(1);
        Ok(link)
    }

    pub fn no_queue(&self, queue: u32) -> OpenError {
        let advice = match self.queues {
            0 | 1 => "it has one in use, number 0; `ethtool -L` switches more on where there are more".to_owned(),
            n => format!("it has {n} in use, numbered from 0; `ethtool -L` switches more on where there are more"),
        };
        OpenError::NoQueue { interface: self.name.clone(), queue, advice }
    }

    pub fn occupied(&self) -> OpenError {
        let program = self.program.map(|number| format!(" (number {number})")).unwrap_or_default();
        OpenError::Occupied { interface: self.name.clone(), program }
    }
}
