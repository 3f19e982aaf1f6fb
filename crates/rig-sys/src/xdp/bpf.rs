//! bpf(2), as far as it is needed to steer frames into sockets, and to attach programs where libbpf's wrapper cannot.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::assemble::Instruction;

/// Numbers of linux/bpf.h.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(super) enum MapKind {
    Array = 2,
    Devmap = 14,
    Xskmap = 17,
}

/// The array's values can be mapped into this process.
pub(super) const MAPPABLE: u32 = 1 << 10;

const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROG_LOAD: i32 = 5;
const OBJ_PIN: i32 = 6;
const OBJ_GET: i32 = 7;
const PROG_TEST_RUN: i32 = 10;
const INFO_BY_FD: i32 = 15;
const MAP_LOOKUP_BATCH: i32 = 24;
const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
pub(crate) const ATTACH_TCX_INGRESS: u32 = 46;
pub(crate) const ATTACH_TCX_EGRESS: u32 = 47;
const LIVE_FRAMES: u32 = 1 << 1;

/// Where in the kernel the program stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Hook {
    /// Behind the kernel's own receive function.
    Generic = 1 << 1,
    Driver = 1 << 2,
}

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    name.iter_mut().take(15).zip(text.bytes()).for_each(|(to, from)| *to = from);
    name
}

/// The beginning of `union bpf_attr` for a command, of which the kernel takes the rest as zeroes.
fn bpf<T>(command: i32, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the pointer and the length are those of the attributes, which are plain data; each caller below sees to it that
    // the memory that they point to is alive through the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn descriptor<T>(command: i32, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the commands that come here return a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn create_map(kind: MapKind, value_size: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
        flags: u32,
        inner_map: u32,
        numa_node: u32,
        name: [u8; 16],
    }
    let mut attributes = Attributes {
        kind: kind as u32,
        key_size: 4,
        value_size,
        entries,
        flags,
        inner_map: 0,
        numa_node: 0,
        name: name("netrig_port"),
    };
    descriptor(MAP_CREATE, &mut attributes)
}

/// Sets an entry whose value is a number: a descriptor or an interface's.
pub(super) fn update_map(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let mut attributes = Attributes {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: &raw const key as u64,
        value: &raw const value as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE, &mut attributes).map(drop)
}

/// Keys and values of a hash map (BPF_MAP_TYPE_HASH), thousands with each call of the kernel (BPF_MAP_LOOKUP_BATCH, Linux 5.6), each
/// key once: those that are there all the time, and perhaps what is put in meanwhile. Another kind of map is refused as an invalid
/// argument.
pub fn each_of_hash(map: BorrowedFd<'_>, mut with: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    /// How `struct bpf_map_info` begins.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        kind: u32,
        id: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
        flags: u32,
    }
    #[repr(C)]
    struct InfoRequest {
        map: u32,
        length: u32,
        info: u64,
    }
    #[repr(C)]
    struct Batch {
        from: u64,
        next: u64,
        keys: u64,
        values: u64,
        count: u32,
        map: u32,
        element_flags: u64,
        flags: u64,
    }
    const HASH: u32 = 1;
    let mut info = Info::default();
    let mut request =
        InfoRequest { map: map.as_raw_fd() as u32, length: size_of::<Info>() as u32, info: &raw mut info as u64 };
    bpf(INFO_BY_FD, &mut request)?;
    if info.kind != HASH || info.key_size == 0 || info.value_size == 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let (key_size, value_size) = (info.key_size as usize, info.value_size as usize);
    let mut most = info.entries.clamp(1, 4096);
    // Of a hash a place is the number of a bucket, where the next batch begins.
    let (mut from, mut next) = (None::<u32>, 0_u32);
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    loop {
        keys.resize(most as usize * key_size, 0_u8);
        values.resize(most as usize * value_size, 0_u8);
        let mut batch = Batch {
            from: from.as_ref().map_or(0, |from| std::ptr::from_ref(from) as u64),
            next: &raw mut next as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: most,
            map: map.as_raw_fd() as u32,
            element_flags: 0,
            flags: 0,
        };
        let result = bpf(MAP_LOOKUP_BATCH, &mut batch);
        let ended = match result.as_ref().map_err(io::Error::raw_os_error) {
            Ok(_) => false,
            Err(Some(libc::ENOENT)) => true,
            Err(Some(libc::EINTR)) => continue,
            // A bucket has more than a batch.
            Err(Some(libc::ENOSPC)) if most < 1 << 24 => {
                most *= 2;
                continue;
            }
            Err(_) => return result.map(drop),
        };
        let count = batch.count.min(most) as usize;
        let pairs = keys.chunks_exact(key_size).zip(values.chunks_exact(value_size));
        pairs.take(count).for_each(|(key, value)| with(key, value));
        if ended {
            return Ok(());
        }
        from = Some(next);
    }
}

/// The program takes frames of several buffers, of which it sees the first.
pub(super) const HAS_FRAGS: u32 = 1 << 5;

/// How often a load that a signal has interrupted is tried again: as libbpf has it.
const LOADS_INTERRUPTED: usize = 5;

/// Loads an XDP program. What the verifier has against it is added to the error.
pub(super) fn load_program(instructions: &[Instruction], flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach: u32,
    }
    let mut log = vec![0u8; 64 * 1024];
    let mut load = |log_level| {
        let mut attributes = Attributes {
            kind: PROG_TYPE_XDP,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            // None of the helpers used is for programs under the GPL only.
            license: c"MIT OR Apache-2.0".as_ptr() as u64,
            log_level,
            log_size: if log_level == 0 { 0 } else { log.len() as u32 },
            log: if log_level == 0 { 0 } else { log.as_mut_ptr() as u64 },
            kernel: 0,
            flags,
            name: name("netrig_port"),
            interface: 0,
            attach: ATTACH_XDP,
        };
        // The verifier gives up with this where a signal is pending (signal_pending in do_check), which is handled once the call is back.
        let mut interrupted = 0;
        loop {
            match descriptor(PROG_LOAD, &mut attributes) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && interrupted < LOADS_INTERRUPTED => {
                    interrupted += 1;
                }
                done => break done,
            }
        }
    };
    let error = match load(0) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EINVAL)) => error,
        done => return done,
    };
    if load(1).is_ok() {
        return load(0);
    }
    let text = String::from_utf8_lossy(&log);
    let tail: Vec<_> = text.trim_end_matches('\0').lines().rev().take(4).collect();
    let tail: Vec<_> = tail.into_iter().rev().collect();
    if tail.is_empty() {
        Err(error)
    } else {
        Err(io::Error::new(error.kind(), format!("{error}: {}", tail.join("; "))))
    }
}

/// Attaches a program for as long as the descriptor that is returned, and its copies, are open.
pub(super) fn attach(program: BorrowedFd<'_>, interface: u32, hook: Hook) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        interface: u32,
        attach: u32,
        flags: u32,
    }
    let program = program.as_raw_fd() as u32;
    descriptor(LINK_CREATE, &mut Attributes { program, interface, attach: ATTACH_XDP, flags: hook as u32 })
}

/// Attaches a program to one of an interface's tcx hooks, behind those that are there.
pub(crate) fn attach_tcx(program: BorrowedFd<'_>, interface: u32, attach: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        interface: u32,
        attach: u32,
        flags: u32,
    }
    let program = program.as_raw_fd() as u32;
    descriptor(LINK_CREATE, &mut Attributes { program, interface, attach, flags: 0 })
}

/// Puts another program into a link.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        link: u32,
        program: u32,
        flags: u32,
        old: u32,
    }
    let (link, program) = (link.as_raw_fd() as u32, program.as_raw_fd() as u32);
    bpf(LINK_UPDATE, &mut Attributes { link, program, flags: 0, old: 0 }).map(drop)
}

/// Of OBJ_PIN and OBJ_GET.
#[repr(C)]
struct Pinned {
    path: u64,
    descriptor: u32,
    flags: u32,
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    let mut attributes = Pinned { path: path.as_ptr() as u64, descriptor: object.as_raw_fd() as u32, flags: 0 };
    bpf(OBJ_PIN, &mut attributes).map(drop)
}

pub(crate) fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    descriptor(OBJ_GET, &mut Pinned { path: path.as_ptr() as u64, descriptor: 0, flags: 0 })
}

/// Runs a program `frames` times, each over a new frame that begins as `frame`, and does with the frame what the program
/// says (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18). `metadata` stands before the frame.
pub(super) fn run_live(
    program: BorrowedFd<'_>,
    metadata_and_frame: &[u8],
    metadata: u32,
    frames: u32,
) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        result: u32,
        data_in_size: u32,
        data_out_size: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        context_in_size: u32,
        context_out_size: u32,
        context_in: u64,
        context_out: u64,
        flags: u32,
        cpu: u32,
        batch: u32,
    }
    /// `struct xdp_md`.
    #[repr(C)]
    struct Context {
        data: u32,
        data_end: u32,
        data_meta: u32,
        rest: [u32; 3],
    }
    let context = Context { data: metadata, data_end: metadata_and_frame.len() as u32, data_meta: 0, rest: [0; 3] };
    // SAFETY: plain data, for which zeroes are a valid value.
    let mut attributes: Attributes = unsafe { zeroed() };
    attributes.program = program.as_raw_fd() as u32;
    attributes.data_in_size = metadata_and_frame.len() as u32;
    attributes.data_in = metadata_and_frame.as_ptr() as u64;
    attributes.repeat = frames;
    attributes.context_in_size = size_of::<Context>() as u32;
    attributes.context_in = &raw const context as u64;
    attributes.flags = LIVE_FRAMES;
    attributes.batch = 0;
    bpf(PROG_TEST_RUN, &mut attributes).map(drop)
}
