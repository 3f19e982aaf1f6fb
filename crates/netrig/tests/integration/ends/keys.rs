//! A server with a key serves only clients that have it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use netrig_ends::wire::Request;

use super::lab::{Server, ask, client, fails_with, report};

/// A key file of that content.
fn key_file(directory: &tempfile::TempDir, name: &str, mode: u32) -> String {
    let path = directory.path().join(name);
    fs::write(&path, format!("{name} {}\n", "x".repeat(40))).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn who_has_the_key_is_served_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let [key, other] = ["key", "other"].map(|name| key_file(&directory, name, 0o600));
    let mut server = Server::with(&["--key-file", &key, "--listen", "127.0.0.1"]);
    let rate = ["stream", "-c", "127.0.0.1", "--rate", "8mbit", "--trials", "2"];
    let data = report(&server, &[&rate[..], &["--key-file", &key]].concat());
    assert_eq!(data["trials"].as_array().unwrap().len(), 2);
    fails_with(&server.client(&rate).output().unwrap(), &["asks for its key", "--key-file"]);
    let stranger = server.client(&[&rate[..], &["--key-file", &other]].concat()).output().unwrap();
    fails_with(&stranger, &["does not have this server's key"]);
    server.says("refused: the client does not have this server's key");
    let mut link = server.connect();
    link.says(&Request::Open(ask().into()));
    link.expect_end("only clients that have its key");
    assert_eq!(server.workers().len(), 0);
    let open = Server::new();
    let output = open.client(&[&rate[..], &["--key-file", &key]].concat()).output().unwrap();
    fails_with(&output, &["does not ask for a key"]);
}

#[test]
fn what_was_said_in_one_conversation_counts_in_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let key = key_file(&directory, "key", 0o600);
    let server = Server::with(&["--key-file", &key, "--listen", "127.0.0.1"]);
    // In between the two ends of a test, and writes down what the client says.
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = between.local_addr().unwrap().port();
    let recorded = std::thread::spawn({
        let to = server.port;
        move || {
            let (mut near, _) = between.accept().unwrap();
            let mut far = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let (mut back, mut forth) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || io::copy(&mut back, &mut forth));
            let (mut said, mut piece) = (Vec::new(), [0; 4096]);
            while let Ok(n @ 1..) = near.read(&mut piece) {
                said.extend_from_slice(&piece[..n]);
                far.write_all(&piece[..n]).unwrap();
            }
            said
        }
    });
    let options = ["--key-file", &key, "--time", "100ms", "--warm-up", "0s", "--interval", "100ms", "--rate", "80mbit"];
    // The process between passes on only the control connection; whether the load comes about does not matter here.
    let _ = client(port, &[&["stream", "-c", "127.0.0.1"][..], &options].concat()).output().unwrap();
    let said = recorded.join().unwrap();
    assert!(said.iter().filter(|&&byte| byte == b'\n').count() >= 2, "{}", String::from_utf8_lossy(&said));
    let mut again = server.connect();
    again.socket.write_all(&said).unwrap();
    again.expect_end("does not have this server's key");
    assert_eq!(server.workers().len(), 0);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let key = key_file(&directory, "key", 0o644);
    for arguments in [&["serve", "--key-file", &key][..], &["rr", "--client", "127.0.0.1", "--key-file", &key]] {
        let output = Command::new(env!("CARGO_BIN_EXE_netrig")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("chmod 600") && said.contains(&key), "{said}");
    }
}

#[test]
fn a_server_without_a_key_is_on_loopback_alone_and_says_how_to_change_that() {
    let mut server = Server::new();
    let hint = server.says("only this machine");
    assert!(hint.contains("--key-file") && hint.contains("--listen"), "{hint}");
    let mut open = Server::with(&["--listen", "0.0.0.0"]);
    open.says("any client that reaches it");
    // Its sockets, by the kernel's table.
    let listens = |port: u16| {
        let tables =
            ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default());
        let rows = tables.iter().flat_map(|table| table.lines()).map(|row| row.split_whitespace().collect::<Vec<_>>());
        let of = |row: &Vec<&str>| row.get(3) == Some(&"0A") && row[1].ends_with(&format!(":{port:04X}"));
        rows.filter(of).map(|row| row[1].rsplit_once(':').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    let loopback = ["0100007F", "00000000000000000000000001000000"];
    let own = listens(server.port);
    assert!(!own.is_empty() && own.iter().all(|address| loopback.contains(&address.as_str())), "{own:?}");
    assert_eq!(listens(open.port), ["00000000"]);
}

#[test]
fn options_of_the_other_end_are_refused_by_name() {
    for (arguments, words) in [
        (&["stream", "--server", "--time", "3s"][..], "--time"),
        (&["stream", "--server", "--reverse"], "--reverse"),
        (&["udp", "--server", "--gro"], "--gro"),
        (&["rr", "--server", "--format", "json"], "--format"),
        (&["rr", "--client", "host", "--max-time", "3s"], "--max-time"),
        (&["stream"], "--server"),
        (&["rr", "--client", "host", "--udp", "--no-delay"], "--no-delay"),
        (&["stream", "--client", "host", "--message", "1G"], "message"),
        (&["stream", "--client", "host", "--send-mode", "fast"], "splice"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_netrig")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
