//! What `netrig lb` says of a file and of a machine without balancing anything.

use std::os::unix::fs::{PermissionsExt, chown};

use super::*;

#[test]
fn what_lacks_is_named() {
    with_lab(|lab| {
        let (_, said) = lab.netrig(2, &["run"]);
        assert!(said.contains("no network device to balance on"), "{said}");
        let (_, said) = lab.netrig(3, &["run", "--device", "none0"]);
        assert!(said.contains("there is no network device none0"), "{said}");
        // What could not begin leaves nothing that persists.
        lab.netrig(3, &["run", "--device", "none0", "--persist"]);
        assert!(!is_pinned("lb"));
        let (_, said) = lab.netrig(3, &["run", "--device", "lb0", "--metrics", "192.0.2.1:9180"]);
        assert!(said.contains("serve metrics at 192.0.2.1:9180"), "{said}");
        // A socket cannot have so long a path, which is found out when the program is on its devices.
        let long = lab.path(&"x".repeat(120));
        let run = |rest: &[&str]| {
            let mut command = lab.command(&[&["run", "--device", "lb0"], rest].concat());
            let output = command.env("NETRIG_RUN", &long).output().unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        for rest in [&["--persist"][..], &[], &["--persist", "--workers", "1"]] {
            let (status, said) = run(rest);
            assert!(status == Some(4) && said.contains("listen at"), "{status:?} {said}");
            assert!(!is_pinned("lb"), "{rest:?}");
        }
        let (_, said) = lab.netrig(2, &["run", "--device", "lb0", "--connections", "3"]);
        assert!(said.contains("3 connections: 64 to"), "{said}");
        // Where there is no bpf file system, one is mounted.
        let unmounted = Command::new("umount").arg("/sys/fs/bpf").status().unwrap();
        if unmounted.success() && !fs::read_to_string("/proc/mounts").unwrap().contains(" /sys/fs/bpf ") {
            let running = lab.run(&["--device", "lb0", "--persist"]);
            assert!(running.said().contains("mounted a bpf file system"), "{}", running.said());
            lab.netrig(0, &["stop", "--detach"]);
        } else {
            mount_bpf();
        }
        // The kernel does not forward: said with the command that mends it.
        lab.balancer.sysctl("net.ipv4.ip_forward", "0").unwrap();
        let running = lab.run(&[&lab.file(FIRST)]);
        assert!(running.said().contains("sysctl -w net.ipv4.ip_forward=1"), "{}", running.said());
    });
}

#[test]
fn a_file_is_checked_without_privileges() {
    let directory = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        let path = directory.path().join("lb.toml");
        fs::write(&path, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_netrig")).args(["lb", "check"]).arg(&path).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said, _) = check(
        "devices = ['lo']\nconnections = 8_000_000\n[[service]]\nlisten = '192.0.2.1-192.0.2.2:80'\nforward = 'nat'\n\
         backend = ['10.0.0.1']",
    );
    assert_eq!(status, Some(0));
    assert!(
        said.contains("table for 8,000,000 connections: ")
            && said.contains("service tcp 192.0.2.2:80: wlc, nat, 1 backend"),
        "{said}"
    );
    let (status, said, _) = check("devices = ['lo', 'not-there']");
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("lb.toml: correct, but a device is missing here\n"), "{said}");
    assert!(said.contains("  device lo\n  device not-there: there is none in this network namespace"), "{said}");
    // What `run` would not find or could not use.
    fs::write(directory.path().join("key"), "short").unwrap();
    fs::set_permissions(directory.path().join("key"), fs::Permissions::from_mode(0o644)).unwrap();
    let key = directory.path().join("key").display().to_string();
    let (status, said, _) = check(&format!(
        "devices = ['lo']\nworkers = 1024\nmetrics = '192.0.2.77:9180'\nsyn_proxy_secret = '{key}'\n\
         [sync]\naddress = '127.0.0.1:7946'\npeers = ['127.0.0.2:7946']\nkey = '{key}.none'\n"
    ));
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("lb.toml: correct, but not all that it names can be had here\n"), "{said}");
    let lacks: Vec<&str> = said.lines().filter_map(|line| line.trim().strip_prefix("cannot be had: ")).collect();
    let of = ["workers: 1024 workers, and", "syn_proxy_secret: ", "[sync] key: ", "metrics: 192.0.2.77: "];
    assert!(lacks.len() == of.len() && lacks.iter().zip(of).all(|(lack, of)| lack.starts_with(of)), "{said}");
    // A secret that is its owner's is not looked at by others.
    if world::is_root() {
        let owners = directory.path().join("owners");
        fs::create_dir(&owners).unwrap();
        fs::set_permissions(&owners, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&owners, Some(65_534), None).unwrap();
        let path = directory.path().join("lb.toml");
        let text = format!("devices = ['lo']\nsyn_proxy_secret = '{}'\n", owners.join("secret").display());
        fs::write(&path, text).unwrap();
        let mut others = Command::new("setpriv");
        others.args(["--bounding-set=-dac_override,-dac_read_search", env!("CARGO_BIN_EXE_netrig"), "lb", "check"]);
        let output = others.arg(&path).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("lb.toml: correct\n") && said.contains("  not looked at: syn_proxy_secret: "), "{said}");
    }
    let (status, _, said) = check(
        "devices = [{ name = 'lo', generic = true }]\n[[service]]\nlisten = '[2001:db8::1]:80'\nlocal = '10.0.0.9'\nbackend = ['10.0.0.1']\n",
    );
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("cannot be translated with the checksums of generic XDP, as lo may have it"), "{said}");
    // Of which 10 GB would be made.
    let (status, _, said) = check("[[service]]\nlisten = '192.0.0.0-192.0.255.255:1-65535'\n");
    assert_eq!(status, Some(2));
    assert!(said.contains("lb.toml:2: ") && said.contains("4294901760 more services"), "{said}");
    let (status, _, said) = check("devices = ['lo']\n[[service]]\nlisten = '192.0.2.1:80'\nforward = 'natt'\n");
    assert_eq!(status, Some(2));
    assert!(said.contains("lb.toml:4: there is no way to forward 'natt'"), "{said}");
}

#[test]
fn a_file_is_checked_against_the_rate_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lb.toml");
    let check = |connections: u32, local: &str, options: &[&str]| {
        let text = format!(
            "devices = ['lo']\nconnections = {connections}\n[[service]]\nlisten = '192.0.2.1:80'\nlocal = '{local}'\n\
             backend = ['10.0.0.1', '10.0.0.2']\n"
        );
        fs::write(&path, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_netrig")).args(["lb", "check"]).args(options).arg(&path).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    // 100,000 a second stay for 8 s; half of them at each backend, from 64,512 ports of each local address.
    let (status, said, _) = check(1 << 20, "10.0.0.200-10.0.0.206", &["--rate", "100k"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("connections: 1,048,576, and 800,000 are needed\n"), "{said}");
    let (status, said, _) = check(1 << 19, "10.0.0.200-10.0.0.201", &["--rate", "100k/s"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("connections: 524,288, and 800,000 are needed: TOO SMALL"), "{said}");
    assert!(said.contains("129,024, and 400,000 are needed: TOO SMALL, write 7 addresses or more"), "{said}");
    let (status, said, _) = check(1 << 20, "10.0.0.200-10.0.0.206", &["--rate", "100k", "--lasts", "3s"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("each is kept for 11s: 3s + time_wait 7s + 1s until it is swept"), "{said}");
    let (status, _, said) = check(1 << 20, "10.0.0.200", &["--lasts", "3s"]);
    assert!(status == Some(2) && said.contains("--rate"), "{said}");
}
