//! What a program says on a stand-in, message by message: to the balancer what is for the family "IPVS", to the kernel all else.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::answers::{Answers, Balancer};
use super::family;
use super::netlink::{Message, messages};

/// The longest datagram that is taken from either side.
const LONGEST: usize = 1 << 20;
/// GENL_ID_CTRL and CTRL_CMD_GETFAMILY.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const DUMP: u16 = super::netlink::DUMP;

/// Whom a message is for.
enum Recipient {
    Family,
    AboutFamily,
    Kernel,
}

fn recipient(message: &Message<'_>) -> Recipient {
    if message.kind == family::ID {
        return Recipient::Family;
    }
    match message.generic() {
        Some((GET_FAMILY, attributes)) if message.kind == CONTROLLER && !message.asks(DUMP) => {
            if family::is_meant(attributes) { Recipient::AboutFamily } else { Recipient::Kernel }
        }
        _ => Recipient::Kernel,
    }
}

/// Serves the program at the other end of `program` until it is gone.
pub(super) fn serve<B: Balancer>(program: &impl AsFd, kernel: &impl AsFd, answers: &Answers<B>) {
    // What ends it is the program's going.
    let _ended = exchange(program, kernel, answers);
}

fn exchange<B: Balancer>(program: &impl AsFd, kernel: &impl AsFd, answers: &Answers<B>) -> io::Result<()> {
    loop {
        let mut polled = [PollFd::new(program, PollFlags::IN), PollFd::new(kernel, PollFlags::IN)];
        match poll(&mut polled, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let [from_program, from_kernel] = polled.map(|polled| !polled.revents().is_empty());
        if from_kernel {
            match datagram(kernel) {
                Ok(datagram) => say(program, &datagram)?,
                // Messages that found no room were lost; the next ones are not.
                Err(Errno::NOBUFS | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if from_program {
            match datagram(program) {
                Ok(datagram) if datagram.is_empty() => return Ok(()),
                Ok(datagram) => take(&datagram, program, kernel, answers)?,
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn datagram(from: &impl AsFd) -> Result<Vec<u8>, Errno> {
    // The length first; one that is too long is cut, and what is cut is no message.
    let (_, length) = recv(from, &mut [0_u8; 0][..], RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT)?;
    let mut datagram = vec![0; length.min(LONGEST)];
    let (_, length) = recv(from, &mut datagram[..], RecvFlags::DONTWAIT)?;
    datagram.truncate(length);
    Ok(datagram)
}

fn say(to: &impl AsFd, datagram: &[u8]) -> io::Result<()> {
    loop {
        match send(to, datagram, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other.map(drop).map_err(Into::into),
        }
    }
}

fn take<B: Balancer>(datagram: &[u8], program: &impl AsFd, kernel: &impl AsFd, answers: &Answers<B>) -> io::Result<()> {
    if messages(datagram).all(|message| matches!(recipient(&message), Recipient::Kernel)) {
        return relay(datagram, messages(datagram).next(), program, kernel);
    }
    for message in messages(datagram) {
        match answered(&message, answers) {
            None => relay(message.bytes, Some(message), program, kernel)?,
            Some(datagrams) => datagrams.iter().try_for_each(|datagram| say(program, datagram))?,
        }
    }
    Ok(())
}

/// What is answered here; `None` for what is the kernel's.
fn answered<B: Balancer>(message: &Message<'_>, answers: &Answers<B>) -> Option<Vec<Vec<u8>>> {
    match recipient(message) {
        Recipient::Family => Some(answers.answer(message)),
        Recipient::AboutFamily => Some(answers.describe(message)),
        Recipient::Kernel => None,
    }
}

/// All that is answered here to a datagram.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn answers_to<B: Balancer>(datagram: &[u8], answers: &Answers<B>) -> Vec<Vec<u8>> {
    messages(datagram).filter_map(|message| answered(&message, answers)).flatten().collect()
}

/// Gives the kernel what is for it. What it does not take is told as an error of the first message.
fn relay(bytes: &[u8], first: Option<Message<'_>>, program: &impl AsFd, kernel: &impl AsFd) -> io::Result<()> {
    match (say(kernel, bytes), first) {
        (Err(error), Some(message)) => say(program, &message.outcome(error.raw_os_error().unwrap_or(libc::EIO))),
        _ => Ok(()),
    }
}
