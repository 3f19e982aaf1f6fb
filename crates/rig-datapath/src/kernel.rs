//! What the running kernel has of what programs use where it is there: helpers, and the constants of bpf/lib/kernel.h.

use std::sync::OnceLock;

use libbpf_rs::OpenObject;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Func};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::plain::plain;

/// The constants' section.
const SECTION: &str = ".rodata.kernel";

plain! {
    /// `struct kernel`
    pub(crate) struct Kernel: 4 {
        casts_contexts: u32,
    }
}

impl Kernel {
    /// What this kernel has, by its types (BTF), which also tell what a distribution has brought to an older version.
    fn running() -> libbpf_rs::Result<&'static Self> {
        // Several megabytes of types, which stay as they are as long as the kernel runs.
        static RUNNING: OnceLock<Kernel> = OnceLock::new();
        if let Some(running) = RUNNING.get() {
            return Ok(running);
        }
        let types = Btf::from_vmlinux()?;
        let has = |function: &str| u32::from(types.type_by_name::<Func<'_>>(function).is_some());
        let running = Self { casts_contexts: has("bpf_cast_to_kern_ctx") };
        Ok(RUNNING.get_or_init(|| running))
    }
}

/// Helpers that programs call, but for those of old kernels, and the Linux that has brought them; a distribution may have brought them to an
/// older one.
const HELPERS: [(&str, &str); 3] = [("loop", "5.17"), ("xdp_load_bytes", "5.18"), ("map_lookup_percpu_elem", "5.19")];

/// The first of the helpers that the running kernel lacks.
pub(crate) fn lacking() -> libbpf_rs::Result<Option<(&'static str, &'static str)>> {
    static LACKING: OnceLock<Option<(&str, &str)>> = OnceLock::new();
    if let Some(lacking) = LACKING.get() {
        return Ok(*lacking);
    }
    let types = Btf::from_vmlinux()?;
    Ok(*LACKING.get_or_init(|| HELPERS.into_iter().find(|(helper, _)| !has_helper(&types, helper))))
}

/// The oldest version on which each of netrig's programs was loaded.
pub(crate) const OLDEST_TRIED: (u32, u32) = (5, 10);

/// The running kernel's version by its release, such as (6, 1) of `6.1.0-43-amd64`; `None` where that is not readable.
pub(crate) fn version() -> Option<(u32, u32)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut parts = release.trim().split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Tells an object's programs what the running kernel has, where they ask for it.
pub(crate) fn tell(object: &mut OpenObject) -> libbpf_rs::Result<()> {
    match object.maps_mut().find(|map| map.name() == SECTION) {
        Some(mut constants) => constants.set_initial_value(Kernel::running()?.as_bytes()),
        None => Ok(()),
    }
}

/// Whether programs may call a helper, by its name without `bpf_`.
fn has_helper(types: &Btf<'_>, name: &str) -> bool {
    let helpers = types.type_by_name::<Enum<'_>>("bpf_func_id");
    helpers.is_some_and(|helpers| {
        helpers.iter().any(|helper| {
            helper.name.is_some_and(|is| is.to_str().and_then(|is| is.strip_prefix("BPF_FUNC_")) == Some(name))
        })
    })
}

/// Whether programs can exchange and compare values in memory at once: since Linux 5.12, as the helper `bpf_check_mtu`, which types
/// tell of.
pub(crate) fn exchanges(types: &Btf<'_>) -> bool {
    has_helper(types, "check_mtu")
}
