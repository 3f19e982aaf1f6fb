//! Names for addresses: of the kernel and its BPF programs from /proc/kallsyms, of processes from the files that they map.
//!
//! Which files a process maps can be read only while it lives. To read the symbols of these files takes a hundred times as
//! long, and can be done later.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use blazesym::normalize::{NormalizeOpts, Normalizer, UserMeta};
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, Pid};
use rig_sys::perf::Stack;

use super::fold::{KERNEL, PROGRAM};

pub(super) const UNKNOWN: &str = "[unknown]";
const UNKNOWN_OF_KERNEL: &str = "[unknown]_[k]";
/// Names of generic functions grow without limit.
const LONGEST: usize = 160;

/// Whose address it is; `None` is the kernel.
type ProcessId = Option<u32>;

/// All addresses of some stacks. Files that they are in are held open: the processes may end, and others may take the
/// files' places.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    kernel: BTreeSet<u64>,
    /// By device and inode.
    files: HashMap<(u64, u64), Mapped>,
    /// What the kernel itself maps into processes has its names at once (vdso(7)).
    names: HashMap<(ProcessId, u64), String>,
}

#[derive(Debug)]
struct Mapped {
    file: File,
    /// Whose address it is, the address, and its place in the file.
    code: Vec<(u32, u64, u64)>,
}

impl Addresses {
    pub fn of<'a>(stacks: impl Iterator<Item = &'a Stack>) -> Self {
        let mut all = Self::default();
        let mut processes = HashMap::<u32, BTreeSet<u64>>::new();
        for stack in stacks {
            all.kernel.extend(inside(&stack.kernel));
            if !stack.user.is_empty() {
                processes.entry(stack.process).or_default().extend(inside(&stack.user));
            }
        }
        let normalizer = Normalizer::builder().enable_build_ids(false).build();
        for (process, addresses) in processes {
            all.find(&normalizer, process, &addresses.into_iter().collect::<Vec<_>>());
        }
        all
    }

    /// `addresses` in their order. Those of a process that has ended already stay unknown.
    fn find(&mut self, normalizer: &Normalizer, process: u32, addresses: &[u64]) {
        // By the mapped file itself: another file may have its path by now, or in the process's own root directory.
        let options = NormalizeOpts { sorted_addrs: true, map_files: true, ..NormalizeOpts::default() };
        let Ok(found) = normalizer.normalize_user_addrs_opts(Pid::from(process), addresses, &options) else { return };
        let files: Vec<_> =
            found.meta.iter().map(|meta| self.open(meta.as_elf().map(|elf| elf.path.as_path()))).collect();
        for (&address, &(offset, meta)) in addresses.iter().zip(&found.outputs) {
            if let Some(mapped) = files[meta].and_then(|file| self.files.get_mut(&file)) {
                mapped.code.push((process, address, offset));
            } else if let UserMeta::Sym(symbol) = &found.meta[meta] {
                self.names.insert((Some(process), address), written(Some(process), &symbol.name));
            }
        }
    }

    fn open(&mut self, path: Option<&Path>) -> Option<(u64, u64)> {
        let file = File::open(path?).ok()?;
        let metadata = file.metadata().ok()?;
        let key = (metadata.dev(), metadata.ino());
        if let Entry::Vacant(new) = self.files.entry(key) {
            new.insert(Mapped { file, code: Vec::new() });
        }
        Some(key)
    }

    pub fn names(self) -> Names {
        let Self { kernel, files, mut names } = self;
        let modules = modules();
        let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
        let mut enter = |source: &Source<'_>, input: Input<&[u64]>, whose: &[(ProcessId, u64)]| {
            // Without the file's or the kernel's symbols there is nothing to say but that they are unknown.
            let symbols = symbolizer.symbolize(source, input).unwrap_or_default();
            for (&(owner, address), symbol) in whose.iter().zip(&symbols) {
                if let Symbolized::Sym(symbol) = symbol {
                    let module = modules.get(&symbol.addr).filter(|_| owner.is_none());
                    let name = module.map(|module| format!("{} [{module}]", symbol.name));
                    names.insert((owner, address), written(owner, name.as_deref().unwrap_or(&symbol.name)));
                }
            }
        };
        let addresses: Vec<u64> = kernel.into_iter().collect();
        let whose: Vec<_> = addresses.iter().map(|&address| (None, address)).collect();
        // An image of another build that lies about would give wrong names.
        let kernel = Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() };
        enter(&Source::Kernel(kernel), Input::AbsAddr(&addresses), &whose);
        for Mapped { file, code } in files.into_values() {
            let offsets: Vec<u64> = code.iter().map(|&(_, _, offset)| offset).collect();
            let whose: Vec<_> = code.iter().map(|&(process, address, _)| (Some(process), address)).collect();
            let mut elf = Elf::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
            elf.debug_syms = false;
            enter(&Source::Elf(elf), Input::FileOffset(&offsets), &whose);
        }
        let kernel_unknown = || !names.keys().any(|(owner, _)| owner.is_none());
        let notes = if hidden() && kernel_unknown() {
            vec![
                "The kernel hides the addresses of its functions (sysctl kernel.kptr_restrict), so they have no names; as \
                 root, with the sysctl below 2, they have."
                    .to_owned(),
            ]
        } else {
            Vec::new()
        };
        Names { names, notes }
    }
}

/// The names of all functions that some stacks pass through.
pub(super) struct Names {
    names: HashMap<(ProcessId, u64), String>,
    pub notes: Vec<String>,
}

impl Names {
    /// Functions of the kernel's part of a stack, innermost first.
    pub fn kernel(&self, stack: &Stack) -> Vec<&str> {
        self.all(None, &stack.kernel)
    }

    /// Functions of the process's part of a stack, innermost first.
    pub fn user(&self, stack: &Stack) -> Vec<&str> {
        self.all(Some(stack.process), &stack.user)
    }

    fn all(&self, owner: ProcessId, addresses: &[u64]) -> Vec<&str> {
        let unknown = if owner.is_none() { UNKNOWN_OF_KERNEL } else { UNKNOWN };
        let name = |address| self.names.get(&(owner, address)).map_or(unknown, String::as_str);
        let mut names: Vec<&str> = inside(addresses).map(name).collect();
        names.dedup_by(|one, other| one == other && *one == unknown);
        names
    }
}

/// A return address stands behind its call, and may be that of the next function.
fn inside(addresses: &[u64]) -> impl Iterator<Item = u64> {
    addresses.iter().enumerate().map(|(depth, &address)| if depth == 0 { address } else { address.wrapping_sub(1) })
}

/// As the folded form has it: without `;`, and with what flame graphs tell kernel functions and BPF programs by.
fn written(owner: ProcessId, name: &str) -> String {
    let mut name = name.replace(';', ":");
    if name.chars().count() > LONGEST {
        name = name.chars().take(LONGEST).chain(['…']).collect();
    }
    match (owner, program(&name)) {
        (None, Some(program)) => format!("bpf:{program}{PROGRAM}"),
        (None, None) => format!("{name}{KERNEL}"),
        (Some(_), _) => name,
    }
}

/// The name of a BPF program from that of its symbol, `bpf_prog_TAG_NAME`: the tag changes with every build.
fn program(symbol: &str) -> Option<&str> {
    let rest = symbol.strip_prefix("bpf_prog_")?;
    let (tag, name) = rest.split_once('_').unwrap_or((rest, ""));
    let is_tag = tag.len() == 16 && tag.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_tag.then_some(if name.is_empty() { tag } else { name })
}

/// The modules of functions, by their addresses: the symbols that addresses are looked up in do not say.
fn modules() -> HashMap<u64, String> {
    let none = || fs::read("/proc/modules").is_ok_and(|modules| modules.is_empty());
    let Ok(symbols) = (if none() { Ok(String::new()) } else { fs::read_to_string("/proc/kallsyms") }) else {
        return HashMap::new();
    };
    let function = |line: &str| {
        // `address type name\t[module]`, without a module for the kernel's own.
        let (symbol, module) = line.split_once('\t')?;
        let module = module.strip_prefix('[')?.strip_suffix(']').filter(|name| *name != "bpf")?;
        let address = u64::from_str_radix(symbol.split(' ').next()?, 16).ok()?;
        Some((address, module.to_owned()))
    };
    symbols.lines().filter_map(function).collect()
}

/// Whether /proc/kallsyms shows zeroes in the place of addresses.
fn hidden() -> bool {
    let mut head = [0; 8];
    let read = fs::File::open("/proc/kallsyms").and_then(|mut file| file.read_exact(&mut head));
    read.is_err() || head == *b"00000000"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_called_by_their_own_names() {
        assert_eq!(written(None, "bpf_prog_0123456789abcdef_balance"), "bpf:balance_[j]");
        assert_eq!(written(None, "bpf_prog_0123456789abcdef"), "bpf:0123456789abcdef_[j]");
        assert_eq!(written(None, "bpf_prog_run_xdp"), "bpf_prog_run_xdp_[k]");
        assert_eq!(written(Some(7), "<[u8; 4]>::iter"), "<[u8: 4]>::iter");
    }

    #[test]
    fn long_names_end() {
        assert_eq!(written(Some(7), &"x".repeat(1000)).chars().count(), LONGEST + 1);
    }
}
