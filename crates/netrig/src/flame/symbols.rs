//! Names for addresses: of the kernel and its BPF programs from /proc/kallsyms, of processes from the files that they map.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Read;

use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, Pid};
use rig_sys::perf::Stack;

use super::fold::{KERNEL, PROGRAM};

pub(super) const UNKNOWN: &str = "[unknown]";
/// Names of generic functions grow without limit.
const LONGEST: usize = 160;

/// Whose address it is; `None` is the kernel.
type Owner = Option<u32>;

/// The names of all functions that some stacks pass through.
pub(super) struct Names {
    names: HashMap<(Owner, u64), String>,
    pub notes: Vec<String>,
}

impl Names {
    pub fn of<'a>(stacks: impl Iterator<Item = &'a Stack>) -> Self {
        let mut wanted = HashMap::<Owner, BTreeSet<u64>>::new();
        for stack in stacks {
            wanted.entry(None).or_default().extend(inside(&stack.kernel));
            if !stack.user.is_empty() {
                wanted.entry(Some(stack.process)).or_default().extend(inside(&stack.user));
            }
        }
        let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
        let mut names = HashMap::new();
        for (owner, addresses) in wanted {
            let addresses: Vec<u64> = addresses.into_iter().collect();
            // Without the file's or the kernel's symbols there is nothing to say but that they are unknown.
            let symbols = symbolizer.symbolize(&source(owner), Input::AbsAddr(&addresses)).unwrap_or_default();
            for (address, symbol) in addresses.iter().zip(&symbols) {
                if let Symbolized::Sym(symbol) = symbol {
                    names.insert((owner, *address), written(owner, &symbol.name));
                }
            }
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
        Self { names, notes }
    }

    /// Functions of the kernel's part of a stack, innermost first.
    pub fn kernel(&self, stack: &Stack) -> Vec<&str> {
        self.all(None, &stack.kernel)
    }

    /// Functions of the process's part of a stack, innermost first.
    pub fn user(&self, stack: &Stack) -> Vec<&str> {
        self.all(Some(stack.process), &stack.user)
    }

    fn all(&self, owner: Owner, addresses: &[u64]) -> Vec<&str> {
        let name = |address| self.names.get(&(owner, address)).map_or(UNKNOWN, String::as_str);
        let mut names: Vec<&str> = inside(addresses).map(name).collect();
        names.dedup_by(|one, other| one == other && *one == UNKNOWN);
        names
    }
}

/// A return address stands behind its call, and may be that of the next function.
fn inside(addresses: &[u64]) -> impl Iterator<Item = u64> {
    addresses.iter().enumerate().map(|(depth, &address)| if depth == 0 { address } else { address.wrapping_sub(1) })
}

fn source(owner: Owner) -> Source<'static> {
    match owner {
        None => {
            // An image of another build that lies about would give wrong names.
            Source::Kernel(Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() })
        }
        Some(process) => {
            let mut process = Process::new(Pid::from(process));
            process.debug_syms = false;
            Source::Process(process)
        }
    }
}

/// As the folded form has it: without `;`, and with what flame graphs tell kernel functions and BPF programs by.
fn written(owner: Owner, name: &str) -> String {
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
