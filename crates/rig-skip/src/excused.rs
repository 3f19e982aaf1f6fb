//! What may be missing even where all tests are required: what no privilege and no package of a distribution brings onto
//! the machine that takes changes. Each line says why it cannot be had there and what is tested in its place.

use crate::Lack;

/// A lack that does not fail.
#[derive(Debug, Clone, Copy)]
pub struct AllowedSkip {
    pub lack: Lack,
    pub why: &'static str,
}

pub const EXCUSED: &[AllowedSkip] = &[
    AllowedSkip {
        lack: Lack::Ipvs,
        why: "the kernel is built without IP_VS and loads no modules; the paths direct, balancer, nftables and haproxy \
              stand for those of three nodes",
    },
    AllowedSkip {
        lack: Lack::Bonds,
        why: "the kernel is built without bonding and loads no modules; `cargo xtask kernels` runs these tests on Debian's",
    },
    AllowedSkip {
        lack: Lack::Vlans,
        why: "the kernel is built without 802.1Q and loads no modules; what the programs make of tags is tested on frames, with other devices in the \
              place of VLAN devices, and `cargo xtask kernels` runs these tests on Debian's",
    },
    AllowedSkip {
        lack: Lack::Sctp,
        why: "the kernel is built without SCTP and loads no modules; `cargo xtask kernels` runs these tests on Debian's",
    },
    AllowedSkip {
        lack: Lack::Card,
        why: "no machine that takes changes has cards to spare; `cargo xtask kernels` runs these tests on a virtual machine's",
    },
    AllowedSkip {
        lack: Lack::Program("chromium"),
        why: "a browser is a large package that nothing else needs; the page's markup and palette are checked without one",
    },
    AllowedSkip {
        lack: Lack::Program("netperf"),
        why: "Debian packages netperf outside of its main part; recorded exchanges are in netrig-tools' netperf/exchanges.toml",
    },
    AllowedSkip {
        lack: Lack::Program("ntttcp"),
        why: "no distribution packages ntttcp-for-linux; its recorded exchanges are played in tests/integration/ntttcp/recorded.rs",
    },
];
