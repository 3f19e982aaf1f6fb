//! Captured packets: in lines and as a file that others read, and what ends it.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rig_skip::{Lack, skip};
use rustix::process::{Pid, Signal, kill_process};

use super::lab::{Lab, TIMEOUT};
use super::world::until;
use super::{FIRST, with_lab};

/// A balancer's file with services whose backends have no weight, of TCP and UDP.
fn without_backends(lab: &Lab) -> String {
    let file = lab.file(FIRST);
    let text = std::fs::read_to_string(&file).unwrap();
    let more = ["tcp 10.9.0.2:80", "udp 10.9.0.2:53"].map(|listen| {
        let backend = "backend = [{ address = \"10.2.0.3:53\", weight = 0 }]";
        format!("[[service]]\nlisten = \"{listen}\"\nlocal = \"10.8.0.9\"\n{backend}\n")
    });
    std::fs::write(&file, text + &more.concat()).unwrap();
    file
}

/// A datagram to a service, from the client's address.
fn send(lab: &Lab, to: &str) {
    let socket = lab.client.run(|| UdpSocket::bind("10.1.0.2:5353")).unwrap().unwrap();
    socket.send_to(b"to whom it may concern", to).unwrap();
}

/// Whether it ends by itself.
fn ends(child: &mut Child) -> Option<i32> {
    let ended = until(TIMEOUT, || child.try_wait().unwrap());
    if ended.is_none() {
        child.kill().unwrap();
    }
    ended.and_then(|status| status.code())
}

/// A running `capture`, once packets are captured.
fn begin(lab: &Lab, arguments: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut command = lab.command(&[&["capture"], arguments].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("capturing; ends"), "{line}");
    (child, said)
}

fn rest(mut from: impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

fn is_on(lab: &Lab) -> bool {
    let output = lab.command(&["capture", "--reason", "ttl", "--time", "1ms"]).output().unwrap();
    if output.status.success() {
        return false;
    }
    let refused = String::from_utf8_lossy(&output.stderr);
    assert!(refused.contains("somebody captures packets of this balancer already"), "{refused}");
    true
}

/// What tshark reads: the comment, the address and the time of each packet.
fn read_by_tshark(file: &Path) -> Option<Vec<String>> {
    let fields = ["frame.comment", "ip.dst", "frame.interface_name", "frame.time_epoch"];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-T", "fields"]);
    let output = command.args(fields.iter().flat_map(|field| ["-e", field])).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[test]
fn packets_are_captured_with_their_reason() {
    with_lab(|lab| {
        let file = without_backends(lab);
        let _running = lab.run(&[&file, "--persist"]);
        lab.connect();

        // In lines, until there are enough.
        let (mut child, said) = begin(lab, &["--reason", "no_backend", "--count", "2"]);
        send(lab, "10.9.0.2:53");
        let at = "10.9.0.2:80".parse().unwrap();
        lab.client.run(|| TcpStream::connect_timeout(&at, Duration::from_millis(50))).unwrap().unwrap_err();
        assert_eq!(ends(&mut child), Some(0));
        let lines = rest(child.stdout.take().unwrap());
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].ends_with("lb0 no_backend (dropped): udp 10.1.0.2:5353 > 10.9.0.2:53, 64 bytes"), "{lines:?}");
        assert!(lines[1].contains(" > 10.9.0.2:80 [syn], ") && lines[1].contains(": tcp 10.1.0.2:"), "{lines:?}");
        assert!(rest(said).ends_with("2 packets captured\n"));

        // As a file, of one service, until Ctrl-C. Another one waits until it has ended.
        let path = lab.path("drops.pcapng");
        let name = path.display().to_string();
        let (mut child, said) =
            begin(lab, &["--reason", "all", "--service", "udp 10.9.0.2:53", "--rate", "3", "--write", &name]);
        assert!(is_on(lab));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        lab.netrig(0, &["reload"]);
        for to in ["10.9.0.2:53", "10.9.0.2:54", "10.9.0.2:53", "10.9.0.2:53", "10.9.0.2:53", "10.9.0.2:53"] {
            send(lab, to);
        }
        let whole = until(TIMEOUT, || (std::fs::metadata(&path).unwrap().len() > 600).then_some(()));
        assert!(whole.is_some());
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(ends(&mut child), Some(0));
        let said = rest(said);
        assert!(said.contains(" captured; ") && said.contains(" more came faster than --rate 3"), "{said}");
        match read_by_tshark(&path) {
            None => skip(Lack::Program("tshark"), "it reads the file"),
            Some(packets) => {
                assert!((3..=4).contains(&packets.len()), "{packets:?}");
                let is = "no_backend: a new connection for a service that has no backend with a weight (dropped)\t10.9.0.2\tlb0\t";
                assert!(packets.iter().all(|packet| packet.starts_with(is)), "{packets:?}");
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
                let at: f64 = packets[0].rsplit('\t').next().unwrap().parse().unwrap();
                assert!((now - at).abs() < 600.0, "{now} and {at}");
            }
        }

        // One that is killed leaves nothing on.
        let (mut child, _said) = begin(lab, &["--reason", "all", "--write", "-"]);
        assert!(is_on(lab));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(until(TIMEOUT, || (!is_on(lab)).then_some(())).is_some(), "it goes on");
        // And one whose reader has gone.
        let (mut child, _said) = begin(lab, &["--reason", "no_backend"]);
        drop(child.stdout.take());
        assert_eq!(ends(&mut child), Some(0));
        let (mut child, _said) = begin(lab, &["--reason", "no_backend", "--write", "-"]);
        drop(child.stdout.take());
        assert_eq!(ends(&mut child), Some(0));

        // A file that others may read is said to be one.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let (mut child, said) = begin(lab, &["--reason", "no_backend", "--time", "1ms", "--write", &name]);
        assert_eq!(ends(&mut child), Some(0));
        assert!(rest(said).contains("others may have it (mode 644)"));

        let refused = |arguments: &[&str]| lab.netrig(2, &[&["capture"], arguments].concat()).1;
        assert!(refused(&["--reason", "no_backends"]).contains("did you mean no_backend?"));
        assert!(refused(&["--reason", "not_sent"]).contains("devices refuse such packets"));
        assert!(refused(&["--reason", "all", "--service", "10.9.0.9:80"]).contains("No such service: tcp 10.9.0.9:80"));
        assert!(refused(&["--reason", "all", "--snaplen", "0"]).contains("--snaplen"));

        // The control plane ends while somebody captures, and the balancer goes on without.
        let (mut child, said) = begin(lab, &["--reason", "no_backend", "--time", "1h"]);
        lab.netrig(0, &["stop"]);
        assert_eq!(ends(&mut child), Some(4));
        assert!(rest(said).contains("0 packets captured"));
        assert!(lab.answers());
        let _running = lab.run(&[&file, "--persist"]);
        assert!(!is_on(lab));
        lab.netrig(0, &["stop", "--detach"]);
    });
}

/// A client that is kept in a write ends all the same, and others need not wait for it.
#[test]
fn who_does_not_read_keeps_nobody_waiting() {
    with_lab(|lab| {
        let file = without_backends(lab);
        let _running = lab.run(&[&file]);
        let arguments = ["--reason", "no_backend", "--rate", "1000000", "--snaplen", "9216", "--write", "-"];
        let (mut child, said) = begin(lab, &arguments);
        let socket = lab.client.run(|| UdpSocket::bind("10.1.0.2:5353")).unwrap().unwrap();
        // Nobody reads its pipe: it fills, then the client's socket.
        let freed = until(TIMEOUT, || {
            (0..100).for_each(|_| drop(socket.send_to(&[7; 1400], "10.9.0.2:53")));
            (!is_on(lab)).then_some(())
        });
        assert!(freed.is_some(), "it still captures");
        assert_eq!(child.try_wait().unwrap(), None);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(ends(&mut child), Some(4));
        assert!(rest(said).contains("nobody takes what is captured"));
    });
}
