//! Programs some of whose system calls another process answers: seccomp(2) with SECCOMP_RET_USER_NOTIF. The filter is inherited by all
//! that such a program starts. What is not asked about costs a few instructions of the filter and reaches the kernel as ever.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::error::{Error, ErrorContext, Result};

/// A system call that is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub call: libc::c_long,
    /// Only where this argument, counted from 0, has this value in its lower 32 bits.
    pub argument: Option<(u32, u32)>,
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// Numbers of system calls from here on are those of x32 (asm/unistd.h, __X32_SYSCALL_BIT).
#[cfg(target_arch = "x86_64")]
const FOREIGN: u32 = 0x4000_0000;

// Offsets in struct seccomp_data of linux/seccomp.h.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

const fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Goes on behind `skip` statements where the value differs.
const fn skip_unless(equals: u32, skip: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf: skip, k: equals }
}

fn program(rules: &[Rule]) -> Vec<libc::sock_filter> {
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let leave = |what| statement(libc::BPF_RET | libc::BPF_K, what);
    let mut program = vec![load(ARCH), skip_unless(ARCHITECTURE, 1), load(NUMBER)];
    // What other architectures' programs call is not looked at.
    program.insert(2, libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JA) as u16, jt: 0, jf: 0, k: 1 });
    program.insert(3, leave(libc::SECCOMP_RET_ALLOW));
    #[cfg(target_arch = "x86_64")]
    program.extend([
        libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16, jt: 0, jf: 1, k: FOREIGN },
        leave(libc::SECCOMP_RET_ALLOW),
    ]);
    for rule in rules {
        match rule.argument {
            None => program.push(skip_unless(rule.call as u32, 1)),
            Some((argument, value)) => {
                // The lower half of a little-endian argument.
                let at = ARGUMENTS + 8 * argument;
                program.extend([skip_unless(rule.call as u32, 4), load(at), skip_unless(value, 1)]);
                program.extend([leave(libc::SECCOMP_RET_USER_NOTIF), load(NUMBER)]);
                continue;
            }
        }
        program.push(leave(libc::SECCOMP_RET_USER_NOTIF));
    }
    program.push(leave(libc::SECCOMP_RET_ALLOW));
    program
}

/// A call that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub struct Notification {
    id: u64,
    /// The thread that calls, as this process's namespace of processes has it; 0 for one that is not in it.
    pub thread: u32,
    pub call: libc::c_long,
    pub arguments: [u64; 6],
}

/// Where the calls arrive.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

/// What the kernel of before Linux 5.9 lacks.
const NO_ADDFD: &str =
    "the kernel cannot hand a file to a process that waits (SECCOMP_IOCTL_NOTIF_ADDFD): Linux 5.9 or newer is needed";

/// Starts `command` under a filter that asks about the calls of `rules`. Its process gets SIGTERM when the *thread* that calls this ends.
/// Needs CAP_SYS_ADMIN in its user namespace: without it, the kernel would take from the program all that its execve(2) grants.
///
/// # Errors
/// When the kernel has not all that is needed, or the command cannot be started.
pub fn spawn(mut command: Command, rules: &[Rule]) -> Result<(Child, Listener)> {
    let what = || format!("start {}", command.get_program().display());
    let name = what();
    let program = program(rules);
    let (ours, theirs) = UnixStream::pair().during(|| name.clone())?;
    let parent = std::process::id() as libc::pid_t;
    let (end, other) = (theirs.as_raw_fd(), ours.as_raw_fd());
    // SAFETY: between fork and exec the closure makes system calls on values that it owns or that live on its stack; it allocates
    // nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::getppid() != parent {
                libc::_exit(1);
            }
            // The parent's end, so that its going is noticed.
            libc::close(other);
            let listener = listen(&program)?;
            hand_over(end, listener)?;
            let mut word = [0_u8; 1];
            // The parent has looked at it, or refuses it by ending the connection.
            if libc::read(end, word.as_mut_ptr().cast(), 1) != 1 {
                return Err(io::Error::from_raw_os_error(libc::ENOSYS));
            }
            libc::close(listener);
            Ok(())
        });
    }
    // Spawning waits until the program has begun, which waits for this.
    let taking = thread::Builder::new().name("seccomp".into()).spawn(move || take_over(&ours));
    let taking = taking.during(|| name.clone())?;
    let started = command.spawn();
    // Where the process was never made, nothing comes any more.
    drop((command, theirs));
    let taken = taking.join().unwrap_or_else(|_| Err(io::Error::other("the thread that waits for it has failed")));
    match (started, taken) {
        (Ok(child), Ok(listener)) => Ok((child, listener)),
        (Err(source), Ok(_)) => Err(Error::new(name, source)),
        (Err(source), Err(reason)) if source.raw_os_error() == Some(libc::ENOSYS) => Err(Error::new(name, reason)),
        (Err(source), Err(_)) => Err(Error::new(name, named(source))),
        (Ok(mut child), Err(reason)) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(Error::new(name, reason))
        }
    }
}

fn named(source: io::Error) -> io::Error {
    let why = match source.raw_os_error() {
        Some(libc::EBUSY) => {
            "it is under another program already that answers its system calls (seccomp(2)), and there can be one"
        }
        Some(libc::EACCES) => "a filter of system calls needs CAP_SYS_ADMIN (seccomp(2))",
        Some(libc::EINVAL) => {
            "the kernel has no SECCOMP_RET_USER_NOTIF: Linux 5.9 or newer, built with CONFIG_SECCOMP_FILTER, is needed"
        }
        _ => return source,
    };
    io::Error::new(source.kind(), why)
}

/// Installs the filter for the calling process. Allocates nothing.
fn listen(program: &[libc::sock_filter]) -> io::Result<RawFd> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let install = |flags: libc::c_ulong| {
        // SAFETY: the program is read by the call, and lives through it.
        let made =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
        if made >= 0 { Ok(made as RawFd) } else { Err(io::Error::last_os_error()) }
    };
    // From Linux 5.19 on a call that is being answered can be broken off by fatal signals alone, and is not begun again.
    match install(flags | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => install(flags),
        made => made,
    }
}

/// Sends a file over a socket. Allocates nothing.
fn hand_over(to: RawFd, file: RawFd) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    // SAFETY: both are open in this process, which goes on to hold them.
    let (to, file) = unsafe { (BorrowedFd::borrow_raw(to), BorrowedFd::borrow_raw(file)) };
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    let files = [file];
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(to, &[IoSlice::new(b"f")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn take_over(from: &UnixStream) -> io::Result<Listener> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let mut word = [0];
    recvmsg(from, &mut [IoSliceMut::new(&mut word)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect(),
        _ => Vec::new(),
    });
    let fd = files.next().ok_or(io::ErrorKind::UnexpectedEof)?;
    let listener = Listener { fd };
    if !listener.hands_files_over() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, NO_ADDFD));
    }
    io::Write::write_all(&mut &*from, b"y")?;
    Ok(listener)
}

/// What the kernel of today may write, at least.
#[repr(C, align(8))]
struct Room([u8; 256]);

impl Listener {
    /// Whether SECCOMP_IOCTL_NOTIF_ADDFD is there: a call by a wrong number is refused by name only where it is.
    fn hands_files_over(&self) -> bool {
        let add = libc::seccomp_notif_addfd { id: 0, flags: 0, srcfd: u32::MAX, newfd: 0, newfd_flags: 0 };
        let _ = self.ioctl(libc::SECCOMP_IOCTL_NOTIF_ADDFD, (&raw const add).cast_mut().cast());
        io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
    }

    fn ioctl(&self, request: libc::Ioctl, argument: *mut libc::c_void) -> io::Result<i32> {
        // SAFETY: each caller gives the structure of its request, which lives through the call.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), request, argument) } {
            -1 => Err(io::Error::last_os_error()),
            done => Ok(done),
        }
    }

    /// Waits for the next call. `None` once no process is left that would make one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn next(&self) -> io::Result<Option<Notification>> {
        loop {
            let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            if !polled[0].revents().contains(PollFlags::IN) {
                return Ok(None);
            }
            // The kernel refuses one that is not zero.
            let mut room = Room([0; 256]);
            match self.ioctl(libc::SECCOMP_IOCTL_NOTIF_RECV, (&raw mut room).cast()) {
                Ok(_) => {}
                // The caller has been killed, or interrupted.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => continue,
                // Since Linux 6.11, where the last one has ended after poll(2).
                Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => return Ok(None),
                Err(error) => return Err(error),
            }
            const { assert!(size_of::<libc::seccomp_notif>() <= size_of::<Room>()) };
            // SAFETY: the kernel has written it, it consists of integers, and the room is aligned for it.
            let told = unsafe { (&raw const room).cast::<libc::seccomp_notif>().read() };
            return Ok(Some(Notification {
                id: told.id,
                thread: told.pid,
                call: told.data.nr.into(),
                arguments: told.data.args,
            }));
        }
    }

    fn send(&self, to: &Notification, error: i32, value: i64, flags: u32) {
        let mut response = libc::seccomp_notif_resp { id: to.id, val: value, error, flags };
        // One that waits no more needs no answer.
        let _ = self.ioctl(libc::SECCOMP_IOCTL_NOTIF_SEND, (&raw mut response).cast());
    }

    /// Has the kernel carry out the call as if nobody had been asked.
    pub fn go_on(&self, call: &Notification) {
        self.send(call, 0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32);
    }

    /// The call returns 0, or fails by this number of errno(3).
    pub fn answer(&self, call: &Notification, result: Result<(), i32>) {
        self.send(call, result.map_or_else(|errno| -errno, |()| 0), 0, 0);
    }

    /// Whether it waits still. Numbers of processes and files that were looked up by it before are its own then.
    pub fn is_waiting(&self, call: &Notification) -> bool {
        let mut id = call.id;
        self.ioctl(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, (&raw mut id).cast()).is_ok()
    }

    /// Puts a file where the caller has `number`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn replace(
        &self,
        call: &Notification,
        number: i32,
        with: BorrowedFd<'_>,
        close_on_exec: bool,
    ) -> io::Result<()> {
        let mut add = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SETFD as u32,
            srcfd: with.as_raw_fd() as u32,
            newfd: number as u32,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        self.ioctl(libc::SECCOMP_IOCTL_NOTIF_ADDFD, (&raw mut add).cast()).map(drop)
    }
}

/// Fills `to` from the memory of a process.
///
/// # Errors
/// The kernel's, or where there is less of it.
pub fn read_memory(process: u32, address: u64, to: &mut [u8]) -> io::Result<()> {
    let length = to.len();
    let here = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: length };
    let there = libc::iovec { iov_base: address as *mut _, iov_len: length };
    // SAFETY: the kernel writes into `to` alone, at most its length; the other address is of the other process.
    let copied = unsafe { libc::process_vm_readv(process as libc::pid_t, &raw const here, 1, &raw const there, 1, 0) };
    whole(copied, length)
}

/// Writes into the memory of a process.
///
/// # Errors
/// The kernel's, or where there is less of it.
pub fn write_memory(process: u32, address: u64, from: &[u8]) -> io::Result<()> {
    let here = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let there = libc::iovec { iov_base: address as *mut _, iov_len: from.len() };
    // SAFETY: the kernel reads `from` alone; the other address is of the other process, which waits in a call that writes there.
    let copied = unsafe { libc::process_vm_writev(process as libc::pid_t, &raw const here, 1, &raw const there, 1, 0) };
    whole(copied, from.len())
}

fn whole(copied: isize, length: usize) -> io::Result<()> {
    match usize::try_from(copied) {
        Ok(copied) if copied == length => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// A file that another process has open, under a number of its own here.
///
/// # Errors
/// The kernel's.
pub fn file_of(process: u32, number: i32) -> io::Result<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// `struct sockaddr_nl` of linux/netlink.h, as programs have it in their memory.
pub type NetlinkAddress = [u8; 12];

/// A socket of generic netlink that another process has opened. The kernel asks for the rights of who opened it and of who sends by it, so
/// what is sent from here is judged by those that the process had when it opened the socket, and not by those it has now.
#[derive(Debug)]
pub struct GenericNetlink(OwnedFd);

impl GenericNetlink {
    /// `None` for a file that is none.
    pub fn of(file: OwnedFd) -> Option<Self> {
        let option = |name| option_of(file.as_fd(), libc::SOL_SOCKET, name);
        let is_one = option(libc::SO_DOMAIN) == Some(libc::AF_NETLINK)
            && option(libc::SO_PROTOCOL) == Some(libc::NETLINK_GENERIC);
        is_one.then_some(Self(file))
    }

    /// bind(2).
    ///
    /// # Errors
    /// The kernel's.
    pub fn bind(&self, address: &NetlinkAddress) -> io::Result<()> {
        // SAFETY: the address is read by the call, and has the length that is said.
        done(unsafe { libc::bind(self.0.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) })
    }

    /// connect(2).
    ///
    /// # Errors
    /// The kernel's.
    pub fn connect(&self, address: &NetlinkAddress) -> io::Result<()> {
        // SAFETY: the address is read by the call, and has the length that is said.
        done(unsafe { libc::connect(self.0.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) })
    }

    /// getsockname(2).
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> io::Result<NetlinkAddress> {
        let mut address = [0; 12];
        let mut length = address.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most the length that is said.
        done(unsafe { libc::getsockname(self.0.as_raw_fd(), address.as_mut_ptr().cast(), &raw mut length) })?;
        Ok(address)
    }

    /// setsockopt(2) of the level SOL_NETLINK.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_option(&self, name: i32, value: &[u8]) -> io::Result<()> {
        let (fd, length) = (self.0.as_raw_fd(), value.len() as libc::socklen_t);
        // SAFETY: the value is read by the call, and has the length that is said.
        done(unsafe { libc::setsockopt(fd, libc::SOL_NETLINK, name, value.as_ptr().cast(), length) })
    }
}

impl AsFd for GenericNetlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn done(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn option_of(file: BorrowedFd<'_>, level: i32, name: i32) -> Option<i32> {
    let mut value = 0_i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    let to = (&raw mut value).cast();
    // SAFETY: the kernel writes at most the length that is said.
    (unsafe { libc::getsockopt(file.as_raw_fd(), level, name, to, &raw mut length) } == 0).then_some(value)
}

/// Two ends of a connection that keeps the borders of messages. What comes from the first has the address of the kernel in netlink: family
/// and length are no sockaddr_nl's only in that the family is AF_UNIX, which libraries do not look at.
///
/// # Errors
/// The kernel's.
pub fn netlink_pair(nonblocking: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socketpair};
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // An abstract name (unix(7)) of 9 bytes makes an address of 12: behind the family there are a zero, one byte of `nl_pad`, four of
    // `nl_pid`, which is 0 for the kernel, and four of `nl_groups`, which no program looks at.
    for _ in 0..16 {
        let drawn =
            std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), 0_u8).to_ne_bytes();
        let name = [drawn[0], 0, 0, 0, 0, drawn[1], drawn[2], drawn[3], drawn[4]];
        match bind(&ours, &SocketAddrUnix::new_abstract_name(&name)?) {
            Err(rustix::io::Errno::ADDRINUSE) => continue,
            other => other?,
        }
        if nonblocking {
            rustix::io::ioctl_fionbio(&theirs, true)?;
        }
        return Ok((ours, theirs));
    }
    Err(io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call, by a plain reading of its statements.
    fn verdict(rules: &[Rule], number: u32, arguments: [u32; 6]) -> u32 {
        let program = program(rules);
        let (mut at, mut value) = (0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match u32::from(code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    value = match k {
                        NUMBER => number,
                        ARCH => ARCHITECTURE,
                        k => arguments[(k - ARGUMENTS) as usize / 8],
                    }
                }
                code if code == libc::BPF_JMP | libc::BPF_JA => at += k as usize,
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if value == k { jt } else { jf })
                }
                code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => {
                    at += usize::from(if value >= k { jt } else { jf })
                }
                code if code == libc::BPF_RET | libc::BPF_K => return k,
                code => panic!("{code}"),
            }
        }
    }

    #[test]
    fn the_filter_asks_about_its_calls_alone() {
        let rules = [
            Rule { call: 49, argument: Some((2, 12)) },
            Rule { call: 51, argument: None },
            Rule { call: 54, argument: Some((1, 270)) },
        ];
        let asked = libc::SECCOMP_RET_USER_NOTIF;
        assert_eq!(verdict(&rules, 49, [9, 9, 12, 0, 0, 0]), asked);
        assert_eq!(verdict(&rules, 49, [12, 12, 16, 12, 0, 0]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(verdict(&rules, 51, [0; 6]), asked);
        assert_eq!(verdict(&rules, 54, [0, 270, 0, 0, 0, 0]), asked);
        assert_eq!(verdict(&rules, 54, [270, 1, 0, 0, 0, 0]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(verdict(&rules, 0, [12; 6]), libc::SECCOMP_RET_ALLOW);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(verdict(&rules, FOREIGN | 51, [0; 6]), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn messages_of_a_pair_seem_to_come_from_the_kernel() {
        let (ours, theirs) = netlink_pair(false).unwrap();
        let (_other, _pair) = netlink_pair(true).unwrap();
        rustix::io::write(&ours, b"message").unwrap();
        let mut address = [0xff_u8; 128];
        let mut length = address.len() as libc::socklen_t;
        let mut message = [0_u8; 16];
        // SAFETY: the kernel writes at most the lengths that are said.
        let read = unsafe {
            let to = message.as_mut_ptr().cast();
            libc::recvfrom(theirs.as_raw_fd(), to, 16, 0, address.as_mut_ptr().cast(), &raw mut length)
        };
        assert_eq!((read, length), (7, 12));
        assert_eq!(address[4..8], [0; 4], "nl_pid");
        // A destination that is given anyway, as libraries do, changes nothing.
        let kernel: NetlinkAddress = [libc::AF_NETLINK as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: both are read by the call, and have the lengths that are said.
        let sent =
            unsafe { libc::sendto(theirs.as_raw_fd(), b"back".as_ptr().cast(), 4, 0, kernel.as_ptr().cast(), 12) };
        assert_eq!(sent, 4);
    }
}
