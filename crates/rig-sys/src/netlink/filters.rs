//! eBPF programs as filters of tc, and the queueing discipline that filters need, which queues nothing.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcMessage, TcOption};

use super::Netlink;
use crate::error::{ErrorContext, Result};

/// A filter that is an eBPF program, by what tells it from other ones (tc-bpf(8)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BpfFilter {
    /// The kernel's number of the interface.
    pub interface: u32,
    /// Whether it gets what the interface sends, and not what it receives.
    pub egress: bool,
    pub handle: u32,
    /// Those with a lower number are asked before.
    pub preference: u16,
}

impl BpfFilter {
    fn message(&self) -> TcMessage {
        let mut message = TcMessage::with_index(self.interface as i32);
        let minor = if self.egress { TcHandle::MIN_EGRESS } else { TcHandle::MIN_INGRESS };
        message.header.parent = TcHandle { major: u16::MAX, minor };
        message.header.handle = self.handle.into();
        // In the upper half the preference, in the lower one the protocol (TC_H_MAKE in linux/pkt_sched.h).
        message.header.info = u32::from(self.preference) << 16 | u32::from((libc::ETH_P_ALL as u16).to_be());
        message.attributes = vec![TcAttribute::Kind("bpf".into())];
        message
    }
}

impl Netlink {
    /// Puts a program of the kind `SCHED_CLS` on, or in place of the one that has this handle. The interface has `clsact`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn put_filter(&mut self, filter: &BpfFilter, program: BorrowedFd<'_>, name: &str) -> Result<()> {
        let mut message = filter.message();
        message.attributes.push(TcAttribute::Options(vec![
            TcOption::Bpf(TcFilterBpfOption::ProgFd(program.as_raw_fd() as u32)),
            TcOption::Bpf(TcFilterBpfOption::ProgName(name.to_owned())),
            // What the program returns is the verdict, and no class.
            TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ]));
        let what = || format!("put a filter on interface {}", filter.interface);
        self.request(RouteNetlinkMessage::NewTrafficFilter(message), NLM_F_CREATE).during(what)
    }

    /// Takes it off; says whether it was there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_filter(&mut self, filter: &BpfFilter) -> Result<bool> {
        match self.request(RouteNetlinkMessage::DelTrafficFilter(filter.message()), 0) {
            // None of this handle; another kind in its place, or no queueing discipline for filters; no such interface.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV)) => Ok(false),
            removed => removed.map(|()| true).during(|| format!("take a filter off interface {}", filter.interface)),
        }
    }

    /// Gives an interface, by its number, the queueing discipline `clsact`, if it has none, nor `ingress`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_clsact(&mut self, interface: u32) -> Result<()> {
        let added = self.request(RouteNetlinkMessage::NewQueueDiscipline(clsact(interface)), NLM_F_CREATE | NLM_F_EXCL);
        match added {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            added => added.during(|| format!("add clsact to interface {interface}")),
        }
    }
}

fn clsact(interface: u32) -> TcMessage {
    let mut message = TcMessage::with_index(interface as i32);
    message.header.parent = TcHandle::CLSACT;
    message.header.handle = TcHandle { major: u16::MAX, minor: 0 };
    message.attributes = vec![TcAttribute::Kind("clsact".into())];
    message
}
