//! `netrig lb` as a service: its file, its socket, its commands, its end, with real connections through it.

mod access;
mod capture;
mod checks;
mod health;
mod ipvs;
mod lab;
mod limits;
mod next_hops;
mod outlier;
mod persistence;
mod quic;
mod receive;
mod reuse;
mod run_directory;
mod strays;
mod sync;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use rig_skip::{Lack, skip};
use rustix::process::Signal;
use serde_json::{Value, json};

use self::lab::{Lab, SERVICE, TIMEOUT, exchange, is_pinned};
use self::world::{is_root, own, own_among_processes, until};
use crate::stdio::Conversation;
use crate::world;

/// A test in a world of its own, with a bpf file system of its own that goes with it.
fn with_lab(test: impl FnOnce(&Lab)) {
    with_world(|| test(&Lab::new()));
}

fn with_world(test: impl FnOnce()) {
    if !is_root() {
        return skip(Lack::Root, "eBPF programs need root of the machine");
    }
    own(|| {
        mount_bpf();
        test();
    });
}

/// [`with_lab`], where queues can be put onto CPUs.
fn with_placing_lab(test: impl FnOnce(&Lab)) {
    if let Err(why) = rig_datapath::napi::may_place() {
        return skip(Lack::ReceiveThreads, why);
    }
    own_among_processes(|| {
        mount_bpf();
        test(&Lab::new());
    });
}

fn mount_bpf() {
    let mounted = Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]).status().unwrap();
    assert!(mounted.success(), "no bpf file system");
}

const FIRST: &str = "\"10.2.0.2:8080\"";
const BOTH: &str = "\"10.2.0.2-10.2.0.3:8080\"";

#[test]
fn connections_live_through_reload_edits_death_and_restart() {
    with_lab(|lab| {
        let file = lab.file(FIRST);
        let mut running = lab.run(&[&file, "--persist"]);
        let said = running.said();
        assert!(said.contains("table for 10,000 connections: ") && said.contains("device lb0: native mode"), "{said}");
        let talk = lab.talk(4);

        lab.file(BOTH);
        let (said, _) = lab.netrig(0, &["reload"]);
        assert_eq!(said, "tcp 10.9.0.1:80: backend 10.2.0.3:8080 added, weight 1\n");
        // By the signal, too.
        lab.file("\"10.2.0.2:8080\", { address = \"10.2.0.3:8080\", weight = 5 }");
        running.signal(Signal::HUP);
        let heard = until(TIMEOUT, || running.said().contains("weight 1 is now weight 5").then_some(()));
        assert!(heard.is_some(), "{}", running.said());
        lab.netrig(0, &["-d", "-t", "10.9.0.1:80", "-r", "10.2.0.3:8080"]);
        talk.goes_on();
        // A bad file changes nothing.
        lab.write("lb.toml", "devices = [\"lb0\"]\nworker = 1\n");
        let (_, refused) = lab.netrig(2, &["reload"]);
        assert!(refused.contains("lb.toml:2: unknown field `worker`"), "{refused}");
        lab.write("lb.toml", "devices = [\"lb0\", \"none0\"]\n");
        let (_, refused) = lab.netrig(2, &["reload"]);
        assert!(refused.contains("there is no network device none0"), "{refused}");
        let saved = lab.netrig(0, &["save"]).0;
        assert!(saved.contains("backend = [\"10.2.0.2:8080\"]") && saved.contains("\"lb0\", \"lb1\""), "{saved}");
        // What a shell has opened to go on behind what is there.
        lab.write("all.toml", "# first\n");
        let all = fs::OpenOptions::new().append(true).open(lab.path("all.toml")).unwrap();
        assert!(lab.command(&["save", "/dev/stdout"]).stdout(all).status().unwrap().success());
        assert_eq!(fs::read_to_string(lab.path("all.toml")).unwrap(), format!("# first\n{saved}"));

        running.kill();
        talk.goes_on();
        thread::sleep(Duration::from_millis(300));
        talk.goes_on();
        // A daemon that cannot start leaves the pinned programs as they are.
        let (_, refused) = lab.netrig(3, &["run", "--persist", "--device", "lb0", "--device", "lo"]);
        assert!(refused.contains("attach to lo"), "{refused}");
        talk.goes_on();
        // With the settings that were in force, because no file is named.
        let mut running = lab.run(&["--persist"]);
        assert!(running.said().contains("going on with the connections"), "{}", running.said());
        assert_eq!(lab.netrig(0, &["save"]).0, saved);
        let (listed, _) = lab.netrig(0, &["-L", "-n", "-c"]);
        assert_eq!(listed.matches("ESTABLISHED").count(), 4, "{listed}");
        let (_, refused) = lab.netrig(2, &["reload"]);
        assert!(refused.contains("without a configuration file"), "{refused}");

        lab.netrig(0, &["stop"]);
        assert_eq!(running.ended(), Some(0));
        talk.goes_on();
        assert!(lab.answers(), "it does not persist");
        // And with a file again.
        let file = lab.file(BOTH);
        let mut running = lab.run(&[&file, "--persist"]);
        let exchanges = talk.end();
        assert!(exchanges > 0);
        exchange(&mut lab.connect(), 300_000).unwrap();
        lab.netrig(0, &["stop", "--detach"]);
        assert_eq!(running.ended(), Some(0));
        assert!(!is_pinned("lb") && !lab.answers());
    });
}

#[test]
fn nothing_stays_of_one_that_does_not_persist() {
    with_lab(|lab| {
        let file = lab.file(FIRST);
        let mut running = lab.run(&[&file]);
        lab.connect();
        running.kill();
        assert!(!lab.answers());
        // The dead one's socket and lock are in no daemon's way, and its program is off the devices.
        let mut running = lab.run(&[&file]);
        lab.connect();
        running.signal(Signal::TERM);
        assert_eq!(running.ended(), Some(0));
        assert!(!lab.answers());
        let (_, said) = lab.netrig(3, &["stop"]);
        assert!(said.contains("no balancer named lb is running"), "{said}");
        let (_, said) = lab.netrig(3, &["stop", "--detach"]);
        assert!(said.contains("nothing to stop"), "{said}");
    });
}

#[test]
fn one_of_a_name_runs_and_what_persists_is_not_run_over() {
    with_lab(|lab| {
        let file = lab.file(FIRST);
        let mut running = lab.run(&[&file, "--persist"]);
        let (_, refused) = lab.netrig(2, &["run", &file]);
        assert!(refused.contains(&format!("running already, as process {}", running.pid())), "{refused}");
        // Another one finds the devices taken.
        let (_, refused) = lab.netrig(3, &["run", &file, "--name", "other"]);
        assert!(refused.contains("attach to lb0") && refused.contains("another XDP program"), "{refused}");
        // Which has the neighbours asked for.
        lab.connect();
        running.kill();
        let (_, refused) = lab.netrig(2, &["run", &file]);
        assert!(refused.contains("persists here") && refused.contains("stop --detach"), "{refused}");
        assert!(lab.answers());
        // Without a control plane.
        let (said, _) = lab.netrig(0, &["stop", "--detach"]);
        assert!(said.contains("removed what balancer"), "{said}");
        assert!(!is_pinned("lb") && !lab.answers());
        let _running = lab.run(&[&file]);
        lab.connect();
    });
}

#[test]
fn it_can_be_killed_at_any_moment_and_begins_again() {
    with_lab(|lab| {
        let file = lab.file(FIRST);
        for ms in [0, 3, 10, 20, 40, 60, 90, 130, 180, 250, 400, 700] {
            let mut running = lab.begin(&[&file, "--persist"]);
            thread::sleep(Duration::from_millis(ms));
            running.kill();
        }
        let mut running = lab.run(&[&file, "--persist"]);
        exchange(&mut lab.connect(), 10_000).unwrap();
        lab.netrig(0, &["stop", "--detach"]);
        assert_eq!(running.ended(), Some(0));
        assert!(!is_pinned("lb"));
    });
}

#[test]
fn a_service_is_made_by_commands() {
    with_lab(|lab| {
        let _running = lab.run(&["--device", "lb0", "--device", "lb1", "--name", "edge"]);
        let edit = |status, more: &[&str]| lab.netrig(status, &[more, &["--name", "edge"]].concat());
        let service = ["-t", "10.9.0.1:80"];
        let with = |first: &'static str, more: &[&'static str]| [&[first], &service[..], more].concat();
        edit(0, &with("-A", &["-s", "rr"]));
        let (_, refused) = edit(2, &with("-A", &[]));
        assert!(refused.contains("Service already exists"), "{refused}");
        edit(0, &with("-a", &["-r", "10.2.0.2:8080", "-b"]));
        let (_, refused) = edit(2, &with("-a", &["-r", "10.2.0.3:8080", "-m"]));
        assert!(refused.contains("forwards by full-nat, and one service forwards in one way"), "{refused}");
        assert!(!lab.answers());
        let saved = edit(0, &["save"]).0;
        assert!(!saved.contains("local = "), "{saved}");
        let socket = lab.path("lb/edge.sock");
        let edit_of_local =
            r#"{"edit":{"add-local":{"service":{"protocol":"tcp","address":"10.9.0.1:80"},"address":"10.8.0.1"}}}"#;
        let request = |of_balancer: &str| format!("{GREETING}\n{{\"number\":0,\"request\":{{\"ask\":{of_balancer}}}}}");
        let reply = ask(&socket, &request(edit_of_local));
        assert!(reply.contains("tcp 10.9.0.1:80 is in force"), "{reply}");
        exchange(&mut lab.connect(), 10_000).unwrap();
        let (traced, _) = edit(0, &["trace", "tcp", "10.1.0.2:1000", "10.9.0.1:80"]);
        assert!(traced.contains("chooses backend 10.2.0.2:8080") && traced.contains("verdict: forward"), "{traced}");
        assert!(traced.contains("> 10.2.0.2:8080") && traced.contains(", in by lb0\n"), "{traced}");
        let by = |status, device| {
            edit(status, &["trace", "--json", "--device", device, "tcp", "10.1.0.2:1000", "10.9.0.1:80"])
        };
        let (status, _) = edit(0, &["status"]);
        assert!(status.contains("workers   not set: any CPU that takes packets from a device\n"), "{status}");
        let (traced, _) = by(0, "lb1");
        assert!(traced.contains("\"device\": \"lb1\"") && traced.contains("\"forward\""), "{traced}");
        let (_, refused) = by(2, "eth0");
        assert!(refused.contains("the balancer is not on a device eth0"), "{refused}");
        // A line that the daemon does not understand changes nothing and ends nothing.
        assert!(ask(&socket, &request("{\"edit\":{}}")).contains("broken"));
        assert!(ask(&socket, &request(r#"{"trace":{"protocol":"tcp"}}"#)).contains("broken"));
        // What a newer client asks for and the daemon does not know is refused by its name; an older one says less, a newer one nothing of it.
        let edit_service = |options: &str| {
            let service = r#"{"protocol":"tcp","address":"10.9.0.1:80"}"#;
            let asked = format!(r#"{{"edit":{{"edit-service":{{"service":{service},"options":{options}}}}}}}"#);
            (ask(&socket, &request(&asked)), edit(0, &["-L", "-n"]).0)
        };
        let (reply, listed) = edit_service(r#"{"scheduler":"wrr","colour":"blue"}"#);
        assert!(reply.contains("this control plane does not know 'colour'"), "{reply}");
        assert!(listed.contains("10.9.0.1:80 rr"), "{listed}");
        for (options, scheduler) in [(r#"{"scheduler":"wrr"}"#, "wrr"), (r#"{"scheduler":"rr","colour":null}"#, "rr")] {
            let (reply, listed) = edit_service(options);
            assert!(
                reply.contains("\"answer\"") && listed.contains(&format!("10.9.0.1:80 {scheduler}")),
                "{reply}{listed}"
            );
        }
        // A client from before there were greetings is told whom it speaks to, in words that it does not understand.
        assert!(ask(&socket, "\"status\"").starts_with("{\"protocol\":\"netrig-lb\""));
        assert!(ask(&socket, "\u{0}").starts_with("{\"protocol\":\"netrig-lb\""));
        let (listed, _) = edit(0, &["-L", "-n"]);
        assert!(listed.contains("10.2.0.2:8080"), "{listed}");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    });
}

#[test]
fn the_name_may_stand_before_each_command() {
    with_lab(|lab| {
        let mut running = lab.run(&["--name", "b2", &lab.file(BOTH)]);
        let b2 = |status, more: &[&str]| lab.netrig(status, &[&["--name", "b2"], more].concat());
        assert!(b2(0, &["status"]).0.starts_with("b2: netrig "));
        assert!(b2(0, &["drops", "--all"]).0.contains("no_route"));
        assert!(b2(0, &["metrics"]).0.contains("netrig_lb_up_seconds{balancer=\"b2\"}"));
        let traced = b2(0, &["trace", "tcp 10.1.0.2:1000 > 10.9.0.1:80"]).0;
        assert!(traced.contains("chooses backend"), "{traced}");
        assert!(b2(0, &["save"]).0.contains("tcp 10.9.0.1:80"));
        assert_eq!(b2(0, &["reload"]).0, "nothing has changed\n");
        assert_eq!(b2(0, &["flush", "--all"]).0, "0 connections have ended\n");
        assert!(b2(0, &["-L", "-n"]).0.contains("10.9.0.1:80"));
        // By the name of ipvsadm, too, and in one word.
        let link = lab.path("ipvsadm");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_netrig"), &link).unwrap();
        let mut command = Command::new(&link);
        command.args(["--name=b2", "status"]).env("NETRIG_RUN", lab.directory.path());
        let output = rig_sys::process::in_namespace(&mut command, &lab.balancer).output().unwrap();
        assert!(output.stdout.starts_with(b"b2: netrig "), "{output:?}");
        // What asks no balancer takes no name, and another one is not asked instead.
        assert!(b2(2, &["check", "lb.toml"]).1.contains("unexpected argument '--name'"));
        assert!(lab.netrig(3, &["--name", "b3", "status"]).1.contains("no balancer named b3 is running"));
        // The last one holds, as of any option.
        assert!(b2(3, &["status", "--name", "b3"]).1.contains("no balancer named b3 is running"));
        b2(0, &["stop"]);
        assert_eq!(running.ended(), Some(0));
    });
}

/// What `-R` says of these lines, which it does not take.
fn restore(lab: &Lab, rules: &str) -> String {
    let mut child = lab.command(&["-R"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{rules}: {said}");
    said
}

#[test]
fn what_cannot_be_restored_is_told_with_its_line_and_what_has_no_room_with_its_key() {
    with_lab(|lab| {
        let room = "[room]\nservices = 3\nbackends = 5\nlocal_addresses = 4\nschedule_entries = 40\n";
        let file = fs::read_to_string(lab.file(BOTH)).unwrap().replace("[[service]]", &format!("{room}[[service]]"));
        let file = lab.write("small.toml", &file);
        let running = lab.run(&[&file]);
        let before = lab.netrig(0, &["save"]).0;
        let begin = "# rules\n-C\n-A -t 10.9.0.7:80 -s wrr\n\n";
        let servers = |hosts: std::ops::Range<u32>, weight: fn(u32) -> u32| -> String {
            hosts.map(|host| format!("-a -t 10.9.0.7:80 -r 10.2.0.{host}:80 -m -w {}\n", weight(host))).collect()
        };
        let refused = |rules: &str, line: usize, whys: &[&str]| {
            let said = restore(lab, &format!("{begin}{rules}"));
            for why in [&format!("standard input, line {line}: ")[..]].iter().chain(whys) {
                assert!(said.contains(why), "{rules}: {said}");
            }
            assert_eq!(lab.netrig(0, &["save"]).0, before, "{rules}");
        };
        refused("-A -t 10.9.0.7:80\n", 5, &["Service already exists"]);
        refused("-a -t 10.9.0.7:80 -r 10.2.0.2 -b\n-P -t 10.9.0.7:80 -z 10.9.0.7\n-Z\n", 7, &["changes no rule"]);
        // Known by all lines together only: the address of a service is none of its local addresses.
        let both = "-a -t 10.9.0.7:80 -r 10.2.0.2 -b\n-P -t 10.9.0.7:80 -z 10.8.0.1\n-P -t 10.9.0.7:80 -z 10.9.0.7\n";
        refused(&format!("{both}-e -t 10.9.0.7:80 -r 10.2.0.2 -w 7\n"), 7, &["10.9.0.7"]);
        let restart = "needs a restart";
        // Two have a place already, which they keep until their last connection has ended.
        refused(
            &servers(10..15, |_| 1),
            8,
            &["there is room for 5 backends, and 6", "raise `backends` in [room]", restart],
        );
        refused(
            &servers(10..13, |host| 1000 + host),
            6,
            &["entries of schedules", "raise `schedule_entries` in [room]", restart],
        );
        let locals: String = (20..23).map(|host| format!("-P -t 10.9.0.7:80 -z 10.8.0.{host}\n")).collect();
        let server = "-a -t 10.9.0.7:80 -r 10.2.0.2 -b\n";
        refused(&format!("{server}{locals}"), 6, &["local addresses", "raise `local_addresses` in [room]", restart]);
        let services: String =
            (30..34).map(|port| format!("-A -t 10.9.0.7:{port}\n-a -t 10.9.0.7:{port} -r 10.2.0.2 -m\n")).collect();
        refused(&services, 10, &["there is room for 3 services, and 4", "raise `services` in [room]", restart]);
        // By one command, too.
        for host in 10..13 {
            lab.netrig(0, &["-a", "-t", SERVICE, "-r", &format!("10.2.0.{host}:80"), "-b"]);
        }
        let (_, said) = lab.netrig(2, &["-a", "-t", SERVICE, "-r", "10.2.0.14:80", "-b"]);
        assert!(said.contains("raise `backends` in [room]") && !said.contains("line"), "{said}");
        drop(running);
    });
}

#[test]
fn connections_are_ended_by_command() {
    with_lab(|lab| {
        let _running = lab.run(&[&lab.file(BOTH)]);
        let mut held: Vec<TcpStream> = (0..4).map(|_| lab.connect()).collect();
        for stream in &mut held {
            exchange(stream, 1000).unwrap();
        }
        let flush = |status, more: &[&str]| lab.netrig(status, &[&["flush"], more].concat());
        let refused = |more: &[&str], why: &str| {
            let (_, said) = flush(2, more);
            assert!(said.contains(why), "{more:?}: {said}");
        };
        refused(&[], "choose whose connections: a service, --backend ADDRESS:PORT, or --all");
        refused(&["icmp", "10.9.0.1:80"], "'icmp 10.9.0.1:80' is not a service");
        refused(&["10.9.0.1:81"], "No such service: tcp 10.9.0.1:81");
        refused(&["udp", "10.9.0.1:80"], "No such service: udp 10.9.0.1:80");
        refused(&["--backend", "10.2.0.4:8080"], "No such destination: 10.2.0.4:8080");
        refused(&["--all", "--backend", "10.2.0.2:8080"], "cannot be used with");
        // What tries to connect meanwhile may have left connections of its own.
        let of = |backend: &str| lab.netrig(0, &["-L", "-n", "-c"]).0.matches(backend).count();
        let (before, other) = (of("10.2.0.2:8080"), of("10.2.0.3:8080"));
        assert!(before >= 2 && other >= 2, "{before} and {other} of round robin");
        let ended = |count: usize| {
            format!("{count} {} ended\n", if count == 1 { "connection has" } else { "connections have" })
        };
        assert_eq!(flush(0, &["tcp", "10.9.0.1:80", "--backend", "10.2.0.2:8080"]).0, ended(before));
        assert_eq!((of("10.2.0.2:8080"), of("10.2.0.3:8080")), (0, other));
        // The other backend's go on.
        let listed = lab.netrig(0, &["-L", "-n", "-c"]).0;
        let goes_on = |stream: &TcpStream| listed.contains(&format!("{} ", stream.local_addr().unwrap()));
        let others: Vec<_> = held.iter_mut().filter(|stream| goes_on(stream)).collect();
        assert_eq!(others.len(), 2, "{listed}");
        others.into_iter().for_each(|stream| exchange(stream, 1000).unwrap());
        assert_eq!(flush(0, &["10.9.0.1:80"]).0, ended(other));
        assert_eq!(flush(0, &["--all"]).0, ended(0));
        exchange(&mut lab.connect(), 1000).unwrap();
    });
}

#[test]
fn balancers_of_one_name_and_two_run_directories_share_nothing() {
    with_lab(|lab| {
        lab.add_device("lb2", 1);
        let (one, other) = (lab.path("."), lab.path("other"));
        let run = |at: &std::path::Path, arguments: &[&str]| {
            let mut running = lab.run_where(arguments, |command| {
                command.env("NETRIG_RUN", at);
            });
            running.signal(Signal::TERM);
            assert_eq!(running.ended(), Some(0), "{}", running.said());
            running.said()
        };
        let netrig = |at: &std::path::Path, status: i32, arguments: &[&str]| {
            let output = lab.command(arguments).env("NETRIG_RUN", at).output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", text(&output.stderr));
            text(&output.stdout) + &text(&output.stderr)
        };
        let file = lab.file(FIRST);
        let first = run(&one, &[&file, "--persist"]);
        // The other one is begun anew, and goes on with what is its own.
        let second = run(&other, &["--persist", "--device", "lb2"]);
        assert!(!second.contains("going on with") && second.contains("no services yet"), "{second}");
        let [kept, others] = [&first, &second].map(|said| {
            let line = said.lines().find_map(|line| line.trim().strip_prefix("pinned in ")).unwrap();
            std::path::PathBuf::from(line)
        });
        let mut all = [kept.clone(), others.clone()];
        all.sort();
        let mut pinned = lab::pins("lb");
        pinned.sort();
        assert_eq!(pinned, all);
        let said = netrig(&other, 3, &["status"]);
        assert!(said.contains(&format!("by what is pinned in {}", others.display())), "{said}");
        exchange(&mut lab.connect(), 1000).unwrap();

        netrig(&other, 0, &["stop", "--detach"]);
        // With the directory of its run directory.
        assert!(kept.exists() && !others.parent().unwrap().exists());
        let again = run(&one, &["--persist"]);
        assert!(again.contains("going on with the connections") && again.contains(SERVICE), "{again}");
        exchange(&mut lab.connect(), 1000).unwrap();
        netrig(&one, 0, &["stop", "--detach"]);
        assert!(!is_pinned("lb"));

        // Where the machine's own run directory leads, by whatever path, is what a version before has kept.
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "mode=0755", "run", "/run"]).status().unwrap();
        assert!(mounted.success(), "no /run of its own");
        run(std::path::Path::new("/run/../run/netrig"), &["--persist", "--device", "lb2"]);
        assert_eq!(lab::pins("lb"), [std::path::PathBuf::from("/sys/fs/bpf/netrig/lb")]);
        netrig(std::path::Path::new("/run/netrig"), 0, &["stop", "--detach"]);
        assert!(!is_pinned("lb"));
    });
}

#[test]
fn a_balancer_is_run_over_standard_streams_and_leaves_nothing() {
    with_lab(|lab| {
        let text = fs::read_to_string(lab.file(FIRST)).unwrap();
        let balancer = || Conversation::begin(&mut lab.command(&["run", "--on-stdio"]), "netrig-lb");
        let mut refused = balancer();
        let why = refused.asks(&json!({ "start": { "settings": text.replace("listen", "lissen") } })).unwrap_err();
        assert!(why["what"].as_str().unwrap().contains("settings:4: unknown field `lissen`"), "{why}");
        let (status, said) = refused.ends();
        assert!(status == Some(2) && said.contains("unknown field `lissen`"), "{said}");

        let mut running = balancer();
        assert!(running.starts(&text).contains("device lb0: native mode"));
        exchange(&mut lab.connect(), 1000).unwrap();
        let counters = running.counters();
        assert!(counters["connections"].as_u64() >= Some(1), "{counters}");
        let both = json!({ "reload": { "settings": text.replace(FIRST, BOTH) } });
        assert_eq!(running.asks(&both).unwrap()["done"][0], "tcp 10.9.0.1:80: backend 10.2.0.3:8080 added, weight 1");
        let why = running.asks(&json!({ "reload": { "settings": null } })).unwrap_err();
        assert_eq!(why["what"], "it runs without a configuration file");
        let status = running.asks(&json!({ "ask": "status" })).unwrap();
        assert_eq!(status["answer"]["status"]["services"][0]["backends"].as_array().unwrap().len(), 2);
        // It is none of the machine's: neither found there, nor in the way of one.
        lab.netrig(3, &["status"]);
        let (status, said) = running.ends();
        assert!(status == Some(0) && said.lines().all(|line| line.contains(" WARN netrig_lb")), "{said}");
        assert!(!lab.answers() && !is_pinned("lb") && !lab.path("lb").exists());

        let logged = |options: &[&str]| {
            let mut command = lab.command(&[&["run", "--on-stdio"], options].concat());
            let mut running = Conversation::begin(&mut command, "netrig-lb");
            running.starts(&text);
            running.ends().1
        };
        let said = logged(&["--log-format", "json"]);
        let documents: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let is_whole = |line: &Value| {
            line["timestamp"].as_str().is_some_and(|time| time.ends_with('Z'))
                && line["level"] == "WARN"
                && line["target"].as_str().is_some_and(|target| target.starts_with("netrig_lb::"))
        };
        assert!(!documents.is_empty() && documents.iter().all(is_whole), "{said}");
        assert!(said.contains("\"message\":\"service address 10.9.0.1 is on no interface here"), "{said}");
        assert_eq!(logged(&["--log-level", "error"]), "");
        assert_eq!(logged(&["--log-level", "info,netrig_lb=off"]), "");
    });
}

const GREETING: &str = r#"{"protocol":"netrig-lb","version":1}"#;

fn ask(socket: &std::path::Path, request: &str) -> String {
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    writeln!(stream, "{request}").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn a_device_that_comes_back_is_attached_to_again() {
    with_lab(|lab| {
        let file = lab.file(FIRST);
        let running = lab.run(&[&file, "--persist"]);
        lab.connect();
        lab.unplug();
        let gone = until(TIMEOUT, || running.said().contains("device lb0 has gone").then_some(()));
        assert!(gone.is_some(), "{}", running.said());
        assert!(lab.netrig(0, &["status", "--json"]).0.contains("\"absent\""));
        lab.plug();
        let back = until(TIMEOUT, || running.said().contains("device lb0 is back").then_some(()));
        assert!(back.is_some(), "{}", running.said());
        exchange(&mut lab.connect(), 10_000).unwrap();
        lab.netrig(0, &["stop", "--detach"]);
    });
}

#[test]
fn many_ask_at_once_while_packets_go_through() {
    with_lab(|lab| {
        let file = lab.file(FIRST);
        lab.balancer.run(|| rig_sys::netlink::Netlink::here().unwrap().set_up("lo").unwrap()).unwrap();
        let _running = lab.run(&[&file, "--metrics", "127.0.0.1:9180"]);
        let talk = lab.talk(4);
        thread::scope(|scope| {
            for asker in 0..8 {
                scope.spawn(move || {
                    for round in 0..5 {
                        match (asker + round) % 4 {
                            0 => drop(lab.netrig(0, &["-L", "-n", "-c"])),
                            1 => drop(lab.netrig(0, &["reload"])),
                            2 => drop(
                                lab.netrig(0, &["-e", "-t", "10.9.0.1:80", "-r", "10.2.0.2:8080", "-b", "-w", "2"]),
                            ),
                            _ => assert!(scrape(lab).contains("netrig_lb_table_capacity")),
                        }
                    }
                });
            }
        });
        talk.end();
    });
}

fn scrape(lab: &Lab) -> String {
    let stream = lab.balancer.run(|| TcpStream::connect("127.0.0.1:9180").unwrap()).unwrap();
    let mut stream = stream;
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lb\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("# EOF\n"), "{text}");
    text
}

#[test]
fn workers_get_the_packets() {
    with_lab(|lab| {
        let cpus = rig_sys::cpu::CpuSet::allowed().unwrap();
        let last = cpus.as_slice().last().unwrap().to_string();
        let file = lab.file(FIRST);
        let mut counts = vec![1];
        counts.extend((cpus.len() > 1).then_some(2));
        for workers in counts {
            let mut running = lab.run(&[&file, "--workers", &workers.to_string()]);
            let talk = lab.talk(8);
            let said = running.said();
            assert!(said.contains(&last), "{said}");
            let status = lab.netrig(0, &["status", "--json"]).0;
            let status: netrig_lb::message::Status = serde_json::from_str(&status).unwrap();
            assert_eq!(status.workers.len(), workers, "{status:?}");
            exchange(&mut lab.connect(), 300_000).unwrap();
            talk.end();
            lab.netrig(0, &["stop"]);
            assert_eq!(running.ended(), Some(0));
        }
        let (_, refused) = lab.netrig(3, &["run", &file, "--workers", "1000"]);
        assert!(refused.contains("1000 workers, and this process may use"), "{refused}");
    });
}

/// The last CPU, which one worker gets.
fn last_cpu() -> u32 {
    *rig_sys::cpu::CpuSet::allowed().unwrap().as_slice().last().unwrap()
}

#[test]
fn queues_stay_where_they_were_put_when_a_link_goes_down_and_up() {
    with_placing_lab(|lab| {
        let running = lab.run(&[&lab.file(FIRST), "--workers", "1"]);
        let cpu = last_cpu();
        assert!(lab.is_placed("lb0", &[cpu]) && lab.is_placed("lb1", &[cpu]));
        lab.ip("link set lb0 down");
        thread::sleep(Duration::from_millis(1500));
        assert!(!running.said().contains("again"), "{}", running.said());
        lab.ip("link set lb0 up");
        let again = format!("device lb0: its queues' threads are on CPU {cpu}, again");
        assert!(until(TIMEOUT, || running.said().contains(&again).then_some(())).is_some(), "{}", running.said());
        assert!(lab.is_placed("lb0", &[cpu]));
        exchange(&mut lab.connect(), 10_000).unwrap();
        // A device that comes back before it is up.
        lab.ip("link delete lb1");
        let gone = until(TIMEOUT, || running.said().contains("device lb1 has gone").then_some(()));
        assert!(gone.is_some(), "{}", running.said());
        lab.ip("link add lb1 type veth peer name lb1peer");
        let back = until(TIMEOUT, || running.said().contains("device lb1 is back").then_some(()));
        assert!(back.is_some(), "{}", running.said());
        lab.ip("link set lb1 up");
        assert!(until(TIMEOUT, || lab.is_placed("lb1", &[cpu]).then_some(())).is_some(), "{}", running.said());
        assert!(!running.said().contains("cannot put"), "{}", running.said());
    });
}

#[test]
fn devices_are_put_back_by_whoever_ends_the_balancer() {
    with_placing_lab(|lab| {
        let file = lab.file(FIRST);
        let cpu = last_cpu();
        let placed = |cpus: &[u32]| lab.is_placed("lb0", cpus) && lab.is_placed("lb1", cpus);
        assert!(placed(&[]));
        let persist = |more: &[&str]| lab.run(&[&[file.as_str(), "--persist"], more].concat());
        let mut running = persist(&["--workers", "1"]);
        lab.netrig(0, &["stop"]);
        assert_eq!(running.ended(), Some(0));
        assert!(placed(&[cpu]));
        // By one that found them changed.
        let mut running = persist(&["--workers", "1"]);
        lab.netrig(0, &["stop", "--detach"]);
        assert_eq!(running.ended(), Some(0));
        assert!(placed(&[]));
        // Without a control plane, after one was killed.
        persist(&["--workers", "1"]).kill();
        assert!(placed(&[cpu]));
        lab.netrig(0, &["stop", "--detach"]);
        assert!(placed(&[]));
        // By one that has no workers.
        lab.run(&[&file, "--workers", "1"]).kill();
        assert!(placed(&[cpu]));
        let mut running = lab.run(&[&file]);
        assert!(placed(&[]));
        lab.netrig(0, &["stop"]);
        assert_eq!(running.ended(), Some(0));
        assert!(!lab.path("lb/lb.placed").exists());
        lab.netrig(3, &["stop", "--detach"]);
    });
}

#[test]
fn workers_follow_the_devices_that_a_reload_names() {
    with_placing_lab(|lab| {
        let cpus = rig_sys::cpu::CpuSet::allowed().unwrap();
        let [.., first, last] = *cpus.as_slice() else { return skip(Lack::Cpus, "one CPU") };
        lab.add_device("lb2", 2);
        let file = lab.file(FIRST);
        let text = fs::read_to_string(&file).unwrap();
        let devices = |names: &str| fs::write(&file, text.replace("\"lb0\", \"lb1\"", names)).unwrap();
        let _running = lab.run(&[&file, "--workers", "2"]);
        let talk = lab.talk(4);
        assert!(lab.is_placed("lb0", &[first]) && lab.is_placed("lb2", &[]));
        // Not all have one queue now, so the CPU that takes packets hands them over.
        devices("\"lb0\", \"lb1\", \"lb2\"");
        let (said, _) = lab.netrig(0, &["reload"]);
        let handed =
            format!("the CPU that takes packets from it hands flows over to CPUs {first}-{last} by their hash");
        assert!(said.contains("device lb2 added") && said.contains(&handed), "{said}");
        assert!(lab.is_placed("lb0", &[]) && lab.is_placed("lb2", &[]));
        exchange(&mut lab.connect(), 300_000).unwrap();
        talk.end();
        devices("\"lb2\"");
        let (said, _) = lab.netrig(0, &["reload"]);
        assert!(said.contains(&format!("of each device, its queues' threads are on CPUs {first}-{last}")), "{said}");
        assert!(lab.is_placed("lb0", &[]) && lab.is_placed("lb2", &[first, last]));
        devices("\"lb0\", \"lb1\"");
        let (said, _) = lab.netrig(0, &["reload"]);
        let handed = format!("its queue's thread on CPU {first} hands flows over to CPUs {first}-{last}");
        assert!(said.contains("device lb2 removed") && said.contains(&handed), "{said}");
        assert!(lab.is_placed("lb0", &[first]) && lab.is_placed("lb2", &[]));
        exchange(&mut lab.connect(), 300_000).unwrap();
    });
}
