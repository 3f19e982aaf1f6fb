use std::fs;
use std::path::{Path, PathBuf};

use rig_skip::{Lack, skip};

use super::*;

fn placed(map: &Map, stack: &str) -> (String, String) {
    let place = LayerMatcher::new(map).place(stack, Kind::Task);
    (map.layers()[place.own].id.clone(), map.layers()[place.caller].id.clone())
}

#[track_caller]
fn is_in(stack: &str, own: &str, caller: &str) {
    assert_eq!(placed(&Map::built_in(), stack), (own.to_owned(), caller.to_owned()), "{stack}");
}

/// `netrig;main;do_syscall_64_[k];tcp_sendmsg_[k]` of the kernel's functions alone.
fn in_kernel(functions: &str) -> String {
    let functions: String = functions.split(' ').map(|name| format!(";{name}_[k]")).collect();
    format!("netrig;main{functions}")
}

#[test]
fn the_innermost_function_that_has_a_layer_decides() {
    is_in(&in_kernel("do_syscall_64 __sys_sendto tcp_sendmsg tcp_write_xmit"), "socket", "socket");
    is_in(&in_kernel("do_syscall_64 __sys_sendto tcp_sendmsg ip_queue_xmit nobody_knows_this"), "ip", "ip");
    is_in(&in_kernel("do_syscall_64"), "syscall", "syscall");
    is_in("netrig;main;send", "application", "application");
    is_in("netrig;[unknown]", "application", "application");
    is_in("netrig;[unknown]_[k]", "unknown", "unknown");
    is_in("kworker/0:1;nobody_knows_this_[k]", "unknown", "unknown");
    is_in("netrig", "unknown", "unknown");
}

#[test]
fn shared_work_is_its_own_and_its_callers() {
    is_in(&in_kernel("do_syscall_64 tcp_sendmsg _copy_from_iter"), "copy", "socket");
    is_in(&in_kernel("do_syscall_64 tcp_sendmsg alloc_skb kmem_cache_alloc _raw_spin_lock"), "locks", "socket");
    is_in(&in_kernel("net_rx_action br_handle_frame kfree_skb_reason"), "memory", "bridge");
    is_in(&in_kernel("asm_exc_page_fault clear_page_erms"), "memory", "application");
    is_in("kthread;kmem_cache_free_[k]", "memory", "memory");
    // The clock was held off in it, and shows where interrupts are switched on again.
    is_in(&in_kernel("net_rx_action sock_def_readable _raw_spin_unlock_irqrestore"), "scheduling", "scheduling");
}

#[test]
fn programs_are_of_their_datapaths_and_helpers_of_their_programs() {
    let program = |name: &str, inside: &str| format!("ksoftirqd/0;net_rx_action_[k];bpf:{name}_[j]{inside}");
    is_in(&program("from_container", ""), "vrouter", "vrouter");
    is_in(&program("balance", ";__htab_map_lookup_elem_[k]"), "balancer", "balancer");
    is_in(&program("balance", ";bpf:a_part_of_it_[j]"), "balancer", "balancer");
    // The balancer spreads packets over its CPUs by programs of its own.
    is_in(&program("spread", ""), "balancer", "balancer");
    is_in(&program("balance_queued", ";bpf:forward_[j]"), "balancer", "balancer");
    is_in(&program("count_refused", ""), "balancer", "balancer");
    is_in(&program("sweep", ";bpf:sweep_one_[j]"), "balancer", "balancer");
    is_in(&program("sweep_flows", ";bpf:sweep_flow_[j]"), "vrouter", "vrouter");
    is_in(&program("steer", ""), "spreader", "spreader");
    is_in(&program("steer_switch", ""), "spreader", "spreader");
    is_in(&program("cputime_soft_in", ""), "measuring", "measuring");
    is_in(&program("spin", ";bpf_loop_[k];bpf:look_[j];ktime_get_[k]"), "known-time", "known-time");
    // A program that netrig does not know counts to the layer that runs it.
    is_in(&program("cil_from_container", ""), "device", "device");
}

/// Each program that netrig attaches, by its name in the sources and as the kernel has it.
#[test]
fn every_program_of_netrig_has_a_layer() {
    // These are run by tests and benchmarks alone, or by a command, and count to those who call them.
    let others = ["trace", "known_softirq", "bench"];
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../rig-datapath/bpf");
    let map = Map::built_in();
    let (mut found, mut without) = (0, Vec::new());
    let files = |directory: &Path| {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<PathBuf>>()
    };
    for path in files(directory.as_ref()).iter().filter(|path| path.is_dir()).flat_map(|folder| files(folder)) {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".bpf.c").filter(|name| !others.contains(name)) else { continue };
        let text = fs::read_to_string(&path).unwrap();
        // `SEC("xdp.frags")`, and below it `int balance(struct xdp_md *context)`.
        for (line, below) in text.lines().zip(text.lines().skip(1)) {
            let is_program = line.starts_with("SEC(\"") && !line.contains('.') || line.starts_with("SEC(\"xdp");
            let Some((head, _)) = below.split_once('(').filter(|_| is_program) else { continue };
            let program = head.rsplit([' ', '*']).next().unwrap();
            found += 1;
            if map.layer_of(&format!("bpf:{program}_[j]")).is_none() {
                without.push(format!("{name}: {program}"));
            }
        }
    }
    assert!(found > 20, "only {found} programs");
    assert!(without.is_empty(), "{without:#?}");
}

#[test]
fn what_others_do_is_theirs_but_for_the_interrupts_that_they_meet() {
    let map = Map::built_in();
    let of = |stack: &str, kind: Kind| {
        let place = LayerMatcher::new(&map).place(stack, kind);
        assert_eq!(place.own == map.others, place.caller == map.others);
        map.layers()[place.own].id.clone()
    };
    assert_eq!(of("[other programs];rustc;main;do_syscall_64_[k];tcp_sendmsg_[k]", Kind::Task), OTHERS);
    assert_eq!(of("[other programs];rustc", Kind::Task), OTHERS);
    assert_eq!(of("[other programs];rustc;main;net_rx_action_[k];tcp_v4_rcv_[k]", Kind::Softirq), "socket");
    assert_eq!(of("kdamond.0;kthread_[k];folio_referenced_[k]", Kind::Task), OTHERS);
    assert_eq!(of("kdamond.0;kthread_[k];net_rx_action_[k];veth_poll_[k]", Kind::Softirq), "veth");
    let mine = Map::extended("mine.txt", "[ip]\nthread:my-router*\n[x]\nthread:kworker/u8:*").unwrap();
    let of_mine = |stack: &str| placed(&mine, stack).0;
    assert_eq!(of_mine("my-router-2;main;do_syscall_64_[k];tcp_sendmsg_[k]"), "ip");
    assert_eq!(of_mine("kworker/u8:1-flush-254:0;kthread_[k]"), "x");
}

#[test]
fn what_compilers_and_modules_add_to_names_changes_nothing() {
    for name in [
        "veth_xmit",
        "veth_xmit.isra.0",
        "veth_xmit.constprop.0.isra.1",
        "veth_xmit.part.0",
        "veth_xmit.cold",
        "veth_xmit.llvm.9876543210",
        "__pfx_veth_xmit",
        "veth_xmit [veth]",
        "veth_xmit.isra.0 [veth]",
    ] {
        let map = Map::built_in();
        assert_eq!(map.layer_of(&format!("{name}_[k]")).map(|layer| layer.id.as_str()), Some("veth"), "{name}");
    }
    // By the module alone.
    let of = |frame: &str| Map::built_in().layer_of(frame).map(|layer| layer.id.clone());
    assert_eq!(of("a_new_function [vxlan]_[k]"), Some("vxlan".to_owned()));
    assert_eq!(of("a_new_function [nf_tables]_[k]"), Some("netfilter".to_owned()));
    assert_eq!(of("a_new_function [bridge]_[k]"), Some("bridge".to_owned()));
    assert_eq!(of("a_new_function [ext4]_[k]"), None);
    assert_eq!(of("a_new_function_[k]"), None);
}

#[test]
fn a_users_patterns_go_before_and_may_name_layers_of_their_own() {
    let text =
        "# ours\n[tunnel] Our tunnel\nbpf:cil_* module:wireguard wg_*\n[pass]\nip_output\n[ip]\nmy_route  # here\n";
    let map = Map::extended("mine.txt", text).unwrap();
    assert_eq!(placed(&map, "a;bpf:cil_from_container_[j]").0, "tunnel");
    assert_eq!(placed(&map, "a;x [wireguard]_[k]").0, "tunnel");
    assert_eq!(placed(&map, "a;tcp_v4_rcv_[k];ip_output_[k]").0, "socket");
    assert_eq!(placed(&map, "a;my_route_[k]").0, "ip");
    assert_eq!(placed(&map, "a;veth_xmit_[k]").0, "veth");
    let title = |id: &str| map.layers().iter().find(|layer| layer.id == id).map(|layer| layer.title.clone());
    assert_eq!(title("tunnel").as_deref(), Some("Our tunnel"));
    assert_eq!(title("ip").as_deref(), Some("IP and routing"));
    assert_ne!(map.digest(), Map::built_in().digest());
    assert_eq!(Map::built_in().digest(), Map::built_in().digest());
}

#[test]
fn mistakes_are_named_with_their_place() {
    let wrong = |text: &str| Map::extended("mine.txt", text).unwrap_err().to_string();
    assert_eq!(wrong("tcp_*"), "mine.txt, line 1: 'tcp_*' stands before the first [layer]");
    assert!(wrong("[a\n").contains("line 1: '[a' lacks its ]"));
    assert!(wrong("[A b]").contains("'A b' is not a name of a layer"));
    assert!(wrong("[a, other]").contains("only 'shared' may stand there"));
    assert!(wrong("[unknown]").contains("leave it out"));
    assert!(wrong("\n[a]\n*").contains("line 3: '*' matches everything"));
    assert!(wrong("[a]\nt*p").contains("'t*p' is not a pattern"));
    assert!(wrong("[a]\nfile:x").contains("there are bpf:, module: and thread:"));
}

/// Names that differ between kernels and machines.
#[test]
fn functions_of_other_kernels_are_in_their_layers() {
    let map = Map::built_in();
    let (mut seen, mut wrong) = (std::collections::BTreeSet::new(), Vec::new());
    for line in include_str!("names.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (layer, names) = line.split_once(':').unwrap_or_else(|| panic!("{line}"));
        seen.insert(layer);
        for name in names.split_whitespace() {
            let frame = match name.split_once('@') {
                Some((name, module)) => format!("{name} [{module}]_[k]"),
                None => format!("{name}_[k]"),
            };
            let found = map.layer_of(&frame).map_or("-", |layer| layer.id.as_str());
            if found != layer {
                wrong.push(format!("{name} is in {found}, not in {layer}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Those without are netrig's own, and what is no function of the kernel.
    let without: Vec<&str> =
        map.layers().iter().map(|layer| layer.id.as_str()).filter(|id| !seen.contains(id)).collect();
    assert_eq!(without, [APPLICATION, UNKNOWN, "vrouter", "spreader", "known-time", "measuring", OTHERS]);
}

/// Functions that stand on the way of a packet, of each layer, as this kernel has them.
#[test]
fn known_functions_of_this_kernel_are_in_their_layers() {
    const KNOWN: &[(&str, &[&str])] = &[
        ("syscall", &["do_syscall_64", "entry_SYSCALL_64", "__x64_sys_sendto", "do_epoll_wait", "vfs_write"]),
        (
            "copy",
            &[
                "_copy_from_iter",
                "_copy_to_iter",
                "rep_movs_alternative",
                "skb_copy_datagram_iter",
                "copy_user_generic_string",
            ],
        ),
        (
            "socket",
            &[
                "tcp_sendmsg",
                "tcp_v4_rcv",
                "udp_sendmsg",
                "__sys_sendto",
                "tcp_rcv_established",
                "inet_sendmsg",
                "sk_filter_trim_cap",
            ],
        ),
        (
            "ip",
            &[
                "ip_rcv",
                "ip_queue_xmit",
                "ip_forward",
                "fib_table_lookup",
                "ip_route_input_noref",
                "ip6_input",
                "neigh_resolve_output",
            ],
        ),
        ("netfilter", &["nf_hook_slow", "nft_do_chain", "nf_conntrack_in", "nf_nat_packet"]),
        ("bridge", &["br_handle_frame", "br_forward", "br_dev_xmit", "br_fdb_update"]),
        ("macvlan", &["macvlan_start_xmit", "macvlan_handle_frame"]),
        ("veth", &["veth_xmit", "veth_poll", "veth_xdp_rcv"]),
        ("vxlan", &["vxlan_xmit", "vxlan_rcv", "udp_tunnel_xmit_skb", "iptunnel_xmit", "gro_cells_receive"]),
        (
            "device",
            &[
                "__dev_queue_xmit",
                "net_rx_action",
                "process_backlog",
                "napi_complete_done",
                "dev_gro_receive",
                "tbf_enqueue",
                "xsk_generic_xmit",
                "sch_direct_xmit",
            ],
        ),
        (
            "memory",
            &[
                "kmem_cache_free",
                "__alloc_skb",
                "kfree_skbmem",
                "skb_release_data",
                "get_page_from_freelist",
                "skb_segment",
            ],
        ),
        ("locks", &["_raw_spin_lock", "native_queued_spin_lock_slowpath", "mutex_lock", "rcu_core"]),
        (
            "scheduling",
            &[
                "try_to_wake_up",
                "__schedule",
                "schedule",
                "sock_def_readable",
                "ep_poll_callback",
                "update_load_avg",
                "enqueue_task_fair",
            ],
        ),
        (
            "interrupts",
            &["handle_softirqs", "asm_sysvec_apic_timer_interrupt", "hrtimer_interrupt", "__local_bh_enable_ip"],
        ),
        ("idle-exit", &["tick_nohz_irq_exit", "tick_irq_enter", "tick_nohz_idle_exit"]),
        ("measuring", &["bpf_trace_run4", "bpf_trace_run1"]),
    ];
    let symbols = match fs::read_to_string("/proc/kallsyms") {
        Ok(symbols) if symbols.lines().count() > 1000 => symbols,
        other => return skip(Lack::Sampling, format_args!("/proc/kallsyms names no functions: {:?}", other.err())),
    };
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)?.split('\t').next()).collect();
    let map = Map::built_in();
    let mut wrong = Vec::new();
    for (layer, functions) in KNOWN {
        let there = functions.iter().filter(|name| names.iter().any(|symbol| plain(symbol) == **name));
        let there: Vec<_> = there.collect();
        for name in &there {
            let found = map.layer_of(&format!("{name}_[k]")).map(|found| found.id.clone());
            if found.as_deref() != Some(*layer) {
                wrong.push((layer, (*name).to_string(), found));
            }
        }
        assert!(there.len() * 2 >= functions.len(), "of layer {layer} this kernel has {there:?} only");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// No pattern is there that an earlier one makes useless.
#[test]
fn every_pattern_is_reached() {
    let covers = |earlier: &Pattern, later: &Pattern| {
        earlier.of == later.of
            && match earlier.open {
                (false, false) => later.open == (false, false) && earlier.name == later.name,
                (false, true) => !later.open.0 && earlier.matches(&later.name),
                (true, false) => !later.open.1 && earlier.matches(&later.name),
                (true, true) => earlier.matches(&later.name),
            }
    };
    let map = Map::built_in();
    let id = |number: &Option<Number>| number.map_or("pass", |number| map.layers[number].id.as_str());
    let mut hidden = Vec::new();
    for (index, (pattern, layer)) in map.rules.iter().enumerate() {
        if let Some((earlier, of)) = map.rules[..index].iter().find(|(earlier, _)| covers(earlier, pattern)) {
            hidden.push(format!("{} of {}: {} of {}", pattern.name, id(layer), earlier.name, id(of)));
        }
    }
    assert!(hidden.is_empty(), "{hidden:#?}");
}
