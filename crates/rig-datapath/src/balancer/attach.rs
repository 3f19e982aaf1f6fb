//! The program on an interface.

use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::{Link, ProgramMut, Xdp, XdpFlags};

use crate::Error;
use crate::object::program;

use super::control::{Balancer, PROGRAM};
use super::workers;

/// How the kernel runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the interface's driver.
    Native,
    /// Behind the driver, on a buffer made for the kernel's stack: several times slower.
    Generic,
}

/// What to do where the driver cannot run XDP programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenericXdp {
    Refused,
    Allowed,
}

/// How packets leave by the interface that they came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransmitMethod {
    /// The driver turns the buffer round (`XDP_TX`).
    #[default]
    Transmit,
    /// As to another interface (`XDP_REDIRECT`). For veth, which does not wake up a peer without an XDP program for packets that are
    /// turned round; redirected ones it takes when its peer has GRO on.
    Redirect,
}

/// The program on one interface; dropping it detaches, unless it is kept.
#[derive(Debug)]
pub struct Attachment {
    link: Link,
    interface: u32,
    mode: Mode,
}

/// linux/if_link.h, `XDP_ATTACHED_SKB`.
const ATTACHED_GENERIC: u8 = 2;

impl Attachment {
    pub fn interface(&self) -> u32 {
        self.interface
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Pins it to `path`, on a bpf file system: the program stays when this process has ended.
    pub fn keep(&mut self, path: &Path) -> Result<(), Error> {
        let named = path.display().to_string();
        self.link.pin(path).map_err(|source| Error::Pin { operation: "pin", path: named, source })
    }
}

/// Takes the program off the interface of the attachment that is kept at `path`, even if other processes have it open, and its pin
/// away. The pin's removal alone does it later: the kernel frees the file behind it after an RCU grace period and the link
/// on a work queue, and until then packets come to the program and no other one can be attached.
///
/// # Errors
///
/// [`Error::Pin`] when there is no attachment at `path`, or the kernel refuses.
pub fn release(path: &Path) -> Result<(), Error> {
    let pin = |operation| move |source| Error::Pin { operation, path: path.display().to_string(), source };
    let link = Link::open(path).map_err(pin("open"))?;
    link.detach().map_err(pin("detach"))?;
    std::fs::remove_file(path).map_err(|error| pin("remove")(error.into()))
}

impl Balancer {
    /// Attaches the program to an interface of the calling thread's network namespace. To be done when the configuration
    /// is in place. Once one interface is in generic mode, packets with partial checksums stay as they are for all.
    pub fn attach(&mut self, interface: u32, generic: GenericXdp) -> Result<Attachment, Error> {
        let attach = |reason: &str| {
            let reason = reason.to_owned();
            move |source| Error::Attach { interface, reason, source }
        };
        let program = self.entry()?;
        let link = program.attach_xdp(interface as i32);
        let link = link.map_err(attach("is there such an interface, and no other XDP program on it?"))?;
        let query = Xdp::new(program.as_fd()).query(interface as i32, XdpFlags::NONE);
        let mode = match query.map_err(attach("cannot ask how it is attached"))?.attach_mode {
            ATTACHED_GENERIC => Mode::Generic,
            _ => Mode::Native,
        };
        if mode == Mode::Generic {
            if generic == GenericXdp::Refused {
                let source = libbpf_rs::Error::from_raw_os_error(95);
                return Err(attach("its driver has no XDP, and generic mode was not allowed")(source));
            }
            self.set_keeps_offload(true)?;
        }
        Ok(Attachment { link, interface, mode })
    }

    /// Takes over the attachment that another process has kept at `path`: from one packet to the next this balancer's
    /// program is in the place of the other's.
    pub fn take_over(&mut self, path: &Path, interface: u32) -> Result<Attachment, Error> {
        let named = path.display().to_string();
        let pin = |operation| {
            let path = named.clone();
            move |source| Error::Pin { operation, path, source }
        };
        let mut link = Link::open(path).map_err(pin("open"))?;
        let program = self.entry()?;
        link.update_prog(&program).map_err(pin("put the program into"))?;
        let query = Xdp::new(program.as_fd()).query(interface as i32, XdpFlags::NONE).map_err(pin("query"))?;
        let mode = if query.attach_mode == ATTACHED_GENERIC { Mode::Generic } else { Mode::Native };
        self.keep_counting()?;
        Ok(Attachment { link, interface, mode })
    }

    /// Puts this balancer's program into an attachment in place of the one that is there: after
    /// [`spread_over`](Self::spread_over), for instance. No packet is lost by it.
    pub fn renew(&mut self, attachment: &mut Attachment) -> Result<(), Error> {
        let interface = attachment.interface;
        let reason = "cannot put another program there".to_owned();
        let failed = |source| Error::Attach { interface, reason, source };
        attachment.link.update_prog(&*self.entry()?).map_err(failed)?;
        self.keep_counting()
    }

    /// The program that packets come to.
    fn entry(&self) -> Result<ProgramMut<'_>, Error> {
        let (object, name) = match &self.spreader {
            Some(spreader) => (&spreader.object, workers::SPREAD),
            None => (&*self.object, PROGRAM),
        };
        program(object, name)
    }
}
