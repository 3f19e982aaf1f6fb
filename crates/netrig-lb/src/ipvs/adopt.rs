//! Sockets of generic netlink that programs under the filter open, and what stands in their place: one end of a pair of sockets, put there
//! when the program binds its own. That one stays open here: it has the program's rights, namespace and port, and carries what is for
//! other families.
//!
//! ```text
//! program ── stand-in ──── session ── "IPVS": the balancer
//!                                └─── anything else: the program's own socket ── kernel
//! ```

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rig_sys::seccomp::{self, GenericNetlink, Listener, NetlinkAddress, Notification, Rule};
use tracing::warn;

use super::answers::{Answers, Balancer};
use super::session;

/// `sizeof(struct sockaddr_nl)`: no other address that programs bind has this length.
const ADDRESS: u32 = 12;

/// What is asked about: all that would tell a stand-in from a socket of netlink, but for calls that no library makes.
pub(super) const RULES: [Rule; 4] = [
    Rule { call: libc::SYS_bind, argument: Some((2, ADDRESS)) },
    Rule { call: libc::SYS_connect, argument: Some((2, ADDRESS)) },
    Rule { call: libc::SYS_getsockname, argument: None },
    Rule { call: libc::SYS_setsockopt, argument: Some((1, libc::SOL_NETLINK as u32)) },
];

/// Stand-ins at a time. Each has a thread.
const MOST: usize = 256;
/// The longest value of an option of SOL_NETLINK is a number.
const LONGEST_OPTION: usize = 64;
/// CAP_NET_ADMIN of linux/capability.h, which the kernel wants for each request to IPVS.
const NET_ADMIN: u32 = 12;

/// The socket of a program, by the inode of what stands in its place.
type Sockets = Arc<Mutex<HashMap<u64, Arc<GenericNetlink>>>>;

pub(super) struct Adopter<B> {
    listener: Listener,
    answers: Arc<Answers<B>>,
    sockets: Sockets,
    /// Whether it was said that a process cannot be looked at.
    told: AtomicBool,
}

fn locked(sockets: &Sockets) -> MutexGuard<'_, HashMap<u64, Arc<GenericNetlink>>> {
    sockets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What becomes of a call.
enum Outcome {
    /// The kernel's business, as ever.
    GoesOn,
    Answered(Result<(), i32>),
}

/// The process of a caller.
struct Caller {
    process: u32,
    may_administer: bool,
}

impl Caller {
    fn of(thread: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let process = field("Tgid:").and_then(|process| process.parse().ok());
        let rights = field("CapEff:").and_then(|rights| u64::from_str_radix(rights, 16).ok());
        let (Some(process), Some(rights)) = (process, rights) else { return Err(io::ErrorKind::InvalidData.into()) };
        let of_users = |of: &str| fs::read_link(format!("/proc/{of}/ns/user")).ok();
        let is_here = of_users(&thread.to_string()).is_some_and(|space| Some(space) == of_users("self"));
        Ok(Self { process, may_administer: is_here && rights & (1 << NET_ADMIN) != 0 })
    }

    /// The inode of a socket that it has open.
    fn socket(&self, number: i32) -> Option<u64> {
        let link = fs::read_link(format!("/proc/{}/fd/{number}", self.process)).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    }

    /// The flags of a file that it has open: O_CLOEXEC and O_NONBLOCK among them (proc_pid_fdinfo(5)).
    fn flags(&self, number: i32) -> io::Result<i32> {
        let text = fs::read_to_string(format!("/proc/{}/fdinfo/{number}", self.process))?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
        flags.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn netlink_address(&self, at: u64) -> io::Result<Option<NetlinkAddress>> {
        let mut address = NetlinkAddress::default();
        seccomp::read_memory(self.process, at, &mut address)?;
        let family = u16::from_ne_bytes([address[0], address[1]]);
        Ok((i32::from(family) == libc::AF_NETLINK).then_some(address))
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl<B: Balancer + 'static> Adopter<B> {
    pub(super) fn new(listener: Listener, answers: Arc<Answers<B>>) -> Self {
        Self { listener, answers, sockets: Sockets::default(), told: AtomicBool::new(false) }
    }

    /// Answers calls until no program is left under the filter.
    pub(super) fn serve(&self) -> io::Result<()> {
        while let Some(call) = self.listener.next()? {
            match self.outcome(&call) {
                Outcome::GoesOn => self.listener.go_on(&call),
                Outcome::Answered(result) => self.listener.answer(&call, result),
            }
        }
        Ok(())
    }

    fn outcome(&self, call: &Notification) -> Outcome {
        let opens = matches!(call.call, libc::SYS_bind | libc::SYS_connect);
        if !opens && locked(&self.sockets).is_empty() {
            return Outcome::GoesOn;
        }
        let caller = match Caller::of(call.thread) {
            Ok(caller) => caller,
            Err(error) => return self.cannot_look(call, &error),
        };
        let number = call.arguments[0] as i32;
        let inode = caller.socket(number);
        let known = inode.and_then(|inode| locked(&self.sockets).get(&inode).cloned());
        let at = call.arguments[1];
        match (call.call, known) {
            (libc::SYS_getsockname, Some(socket)) => {
                Outcome::Answered(name(&caller, call, &socket).map_err(|error| errno(&error)))
            }
            (libc::SYS_setsockopt, Some(socket)) => {
                let set = set_option(&caller, call, &socket);
                Outcome::Answered(set.map_err(|error| errno(&error)))
            }
            (libc::SYS_bind | libc::SYS_connect, known) => {
                let address = match caller.netlink_address(at) {
                    Ok(Some(address)) => address,
                    Ok(None) => return Outcome::GoesOn,
                    Err(error) => return self.cannot_look(call, &error),
                };
                let does = |socket: &GenericNetlink| match call.call {
                    libc::SYS_bind => bind(socket, &address),
                    _ => socket.connect(&address),
                };
                match known {
                    Some(socket) => Outcome::Answered(does(&socket).map_err(|error| errno(&error))),
                    None if caller.may_administer => self.adopt(call, &caller, number, does),
                    None => Outcome::GoesOn,
                }
            }
            _ => Outcome::GoesOn,
        }
    }

    /// A process that cannot be looked at has the kernel's sockets, and no balancer.
    fn cannot_look(&self, call: &Notification, error: &io::Error) -> Outcome {
        // What the program has got wrong is told by the kernel.
        let is_its_own = matches!(error.raw_os_error(), Some(libc::EBADF | libc::EFAULT));
        if !is_its_own && self.listener.is_waiting(call) && !self.told.swap(true, Ordering::Relaxed) {
            warn!(
                "process {} cannot be looked at ({error}): where it asks IPVS, it asks the kernel's and not the balancer. netrig needs \
                 CAP_SYS_PTRACE, and /proc of the processes it starts; this is said once",
                call.thread
            );
        }
        Outcome::GoesOn
    }

    /// Does with a program's socket what it asked for, and puts a stand-in into its place.
    fn adopt(
        &self,
        call: &Notification,
        caller: &Caller,
        number: i32,
        does: impl Fn(&GenericNetlink) -> io::Result<()>,
    ) -> Outcome {
        let file = match seccomp::file_of(caller.process, number) {
            Ok(file) => file,
            Err(error) => return self.cannot_look(call, &error),
        };
        let Some(socket) = GenericNetlink::of(file) else { return Outcome::GoesOn };
        if !self.listener.is_waiting(call) {
            return Outcome::GoesOn;
        }
        if let Err(error) = does(&socket) {
            return Outcome::Answered(Err(errno(&error)));
        }
        let stands = self.stand_in(call, caller, number, socket);
        Outcome::Answered(stands.map_err(|error| {
            warn!("process {}: its socket of generic netlink stays the kernel's: {error}", caller.process);
            errno(&error)
        }))
    }

    fn stand_in(&self, call: &Notification, caller: &Caller, number: i32, socket: GenericNetlink) -> io::Result<()> {
        if locked(&self.sockets).len() >= MOST {
            return Err(io::Error::from_raw_os_error(libc::ENFILE));
        }
        let flags = caller.flags(number)?;
        let (ours, theirs) = seccomp::netlink_pair(flags & libc::O_NONBLOCK != 0)?;
        copy_options(&socket, &theirs)?;
        let inode = rustix::fs::fstat(&theirs)?.st_ino;
        let socket = Arc::new(socket);
        locked(&self.sockets).insert(inode, Arc::clone(&socket));
        let (answers, sockets) = (Arc::clone(&self.answers), Arc::clone(&self.sockets));
        let work = move || {
            session::serve(&ours, &socket, &answers);
            locked(&sockets).remove(&inode);
        };
        let begun = thread::Builder::new().name("session".into()).spawn(work);
        if begun.is_err() {
            locked(&self.sockets).remove(&inode);
        }
        begun?;
        // Where this fails, the session ends with the other end.
        self.listener.replace(call, number, theirs.as_fd(), flags & libc::O_CLOEXEC != 0)
    }
}

/// bind(2), which is made again where a signal has come in between.
fn bind(socket: &GenericNetlink, address: &NetlinkAddress) -> io::Result<()> {
    match socket.bind(address) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let has = socket.address()?;
            let (port, wanted) = (&has[4..8], &address[4..8]);
            if port != [0; 4] && (wanted == [0; 4] || wanted == port) { Ok(()) } else { Err(error) }
        }
        other => other,
    }
}

/// What a program has set before it bound its socket.
fn copy_options(from: &GenericNetlink, to: &OwnedFd) -> io::Result<()> {
    use rustix::net::sockopt;
    // The kernel says twice what was asked for (socket(7)).
    sockopt::set_socket_send_buffer_size(to, sockopt::socket_send_buffer_size(from)? / 2)?;
    sockopt::set_socket_recv_buffer_size(to, sockopt::socket_recv_buffer_size(from)? / 2)?;
    for which in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(to, which, sockopt::socket_timeout(from, which)?)?;
    }
    Ok(())
}

/// getsockname(2): as much of the address as there is room for, and how long it is.
fn name(caller: &Caller, call: &Notification, socket: &GenericNetlink) -> io::Result<()> {
    let [_, to, length, ..] = call.arguments;
    let address = socket.address()?;
    let mut room = [0; 4];
    let fault = |_| io::Error::from_raw_os_error(libc::EFAULT);
    seccomp::read_memory(caller.process, length, &mut room).map_err(fault)?;
    let room = i32::from_ne_bytes(room);
    let room = usize::try_from(room).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    seccomp::write_memory(caller.process, to, &address[..room.min(address.len())]).map_err(fault)?;
    seccomp::write_memory(caller.process, length, &ADDRESS.to_ne_bytes()).map_err(fault)
}

/// setsockopt(2).
fn set_option(caller: &Caller, call: &Notification, socket: &GenericNetlink) -> io::Result<()> {
    let [_, _, option, at, length, _] = call.arguments;
    let length = usize::try_from(length as u32).unwrap_or(usize::MAX);
    if length > LONGEST_OPTION {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut value = [0; LONGEST_OPTION];
    let fault = |_| io::Error::from_raw_os_error(libc::EFAULT);
    seccomp::read_memory(caller.process, at, &mut value[..length]).map_err(fault)?;
    socket.set_option(option as i32, &value[..length])
}
