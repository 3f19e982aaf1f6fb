//! What there is to know of an interface before it is taken.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkXdp};

use super::error::OpenError;
use crate::error::Error;
use crate::ethtool;
use crate::netlink::Netlink;
use crate::socket::set_option;

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

/// Makes an interface receive all multicast for as long as the descriptor is open.
pub(super) fn all_multicast(interface: &str) -> crate::Result<OwnedFd> {
    let index = Netlink::here()?.index(interface)?;
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    let failed = |error| Error::new(format!("receive multicast at {interface}"), error);
    if fd < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    // SAFETY: a new descriptor, which nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let membership = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_ALLMULTI as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership).map_err(failed)?;
    Ok(fd)
}
