//! The overlay vRouter: tc programs in bpf/vrouter.bpf.c and what configures and watches them.

mod config;

pub use config::{
    Action, Config, Encapsulation, FIRST_LABEL, Interface, LAST_LABEL, LAST_VNI, List, MOST_LISTS, MOST_RULES,
    MOST_WAYS, NextHop, Peer, Policy, ROUTER_MAC, Rule, Tunnel, Underlay, Vni, Vrf,
};
