//! Who may test, by name and password.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use rsa::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use rsa::{Generate, PrivateKey};

use super::peers::{Peer, Server, original};
use crate::ntttcp::process::{Process, ProcessOutput, free_base, until_listening};

static KEY: LazyLock<PrivateKey> = LazyLock::new(|| PrivateKey::try_generate().unwrap());

/// Of `{mario}rossi`, as sha256sum has it.
const USERS: &str = "# who may test\nmario,bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b\n";

fn prepared() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let public = KEY.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
    for (name, text) in
        [("private", KEY.to_pkcs8_pem(LineEnding::LF).unwrap().as_str()), ("public", &public), ("users", USERS)]
    {
        std::fs::write(home.path().join(name), text).unwrap();
    }
    home
}

const SERVER: &str = "--rsa-private-key-path private --authorized-users-path users";

/// An end in the folder that its files are in.
fn start(peer: &Peer, password: Option<&str>, options: &str, home: &Path) -> Process {
    let mut command: Command = peer.command();
    command.current_dir(home).env_remove("IPERF3_PASSWORD");
    if let Some(password) = password {
        command.env("IPERF3_PASSWORD", password);
    }
    Process::start(&mut command, options, home)
}

fn serve(peer: &Peer, options: &str, home: &Path) -> Server {
    let port = free_base(1);
    let process = start(peer, None, &format!("-s -p {port} {SERVER} {options}"), home);
    until_listening(port);
    Server { process, port }
}

fn client(peer: &Peer, port: u16, user: &str, password: &str, options: &str, home: &Path) -> ProcessOutput {
    let options = format!("-c 127.0.0.1 -p {port} -n 1M --username {user} --rsa-public-key-path public {options}");
    start(peer, Some(password), &options, home).end()
}

/// Of each padding: who is known may test, and nobody else; a server that makes one test goes on waiting for it.
#[track_caller]
fn only_users_may_test(server: &Peer, of_client: &Peer, padding: &str) {
    let home = prepared();
    let Server { process, port } = serve(server, &format!("-1 {padding}"), home.path());
    let said = client(of_client, port, "mario", "wrong", padding, home.path());
    assert!(said.status == Some(1) && said.err.contains("test authorization failed"), "{said:#?}");
    let said = client(of_client, port, "luigi", "rossi", padding, home.path());
    assert!(said.status == Some(1) && said.err.contains("test authorization failed"), "{said:#?}");
    let without = start(of_client, None, &format!("-c 127.0.0.1 -p {port} -n 1M"), home.path()).end();
    assert!(without.status == Some(1) && without.err.contains("test authorization failed"), "{without:#?}");
    let said = client(of_client, port, "mario", "rossi", padding, home.path()).succeeded();
    assert!(said.out.contains("iperf Done."), "{said:#?}");
    let served = process.end();
    assert_eq!(served.status, Some(0), "{served:#?}");
    assert!(!format!("{served:?}").contains("rossi"), "a password is shown: {served:#?}");
}

#[test]
fn known_users_may_test_and_nobody_else() {
    for padding in ["", "--use-pkcs1-padding"] {
        only_users_may_test(&Peer::Netrig, &Peer::Netrig, padding);
    }
}

#[test]
fn live_users_are_known_to_the_original_and_by_it() {
    let Some(original) = original() else { return };
    let version = original.command().arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if !version.contains("authentication") {
        return rig_skip::skip(
            rig_skip::Lack::Program("iperf3"),
            "the iperf3 on PATH was built without authentication",
        );
    }
    let minor = version.trim_start_matches("iperf 3.").split(|c: char| !c.is_ascii_digit()).next();
    let knows_oaep = minor.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor >= 17);
    // Its client has the padding of its version; its server has had the option for the old one since there is another.
    let (of_its_client, of_its_server) = if knows_oaep {
        ("", &[("", ""), ("--use-pkcs1-padding", "--use-pkcs1-padding")][..])
    } else {
        ("--use-pkcs1-padding", &[("--use-pkcs1-padding", "")][..])
    };
    let home = prepared();
    let ours = serve(&Peer::Netrig, of_its_client, home.path());
    let said = client(&original, ours.port, "mario", "rossi", "", home.path());
    assert_eq!(said.status, Some(0), "{said:#?}");
    let said = client(&original, ours.port, "mario", "wrong", "", home.path());
    assert!(said.status == Some(1) && said.err.contains("test authorization failed"), "{said:#?}");
    for (own, its) in of_its_server {
        let its = serve(&original, its, home.path());
        let said = client(&Peer::Netrig, its.port, "mario", "rossi", own, home.path());
        assert_eq!(said.status, Some(0), "{own}: {said:#?}");
        let said = client(&Peer::Netrig, its.port, "mario", "wrong", own, home.path());
        // 3.12 ends the connection and says nothing.
        let words = ["test authorization failed", "control socket has closed unexpectedly"];
        assert!(said.status == Some(1) && words.iter().any(|words| said.err.contains(words)), "{own}: {said:#?}");
    }
}

#[test]
fn mistakes_are_told_before_anything_begins() {
    let home = prepared();
    for (options, words) in [
        (
            "-s --rsa-private-key-path private",
            "you must specify a path to a valid RSA private key and a user credential",
        ),
        ("-s --rsa-private-key-path public --authorized-users-path users", "public has no private key of RSA in PEM"),
        (
            "-s --rsa-private-key-path private --authorized-users-path none",
            "cannot access authorized users file: none: ",
        ),
        ("-s --time-skew-threshold 0", "skew threshold must be a positive number"),
        ("-s --username mario", "some option you are trying to set is client only"),
        ("-c 127.0.0.1 --authorized-users-path users", "some option you are trying to set is server only"),
        ("-c 127.0.0.1 --username mario", "you must specify a username, password, and path to a valid RSA public key"),
        ("-c 127.0.0.1 --username mario --rsa-public-key-path private", "private has no public key of RSA in PEM"),
        // No terminal to ask at.
        (
            "-c 127.0.0.1 --username mario --rsa-public-key-path public",
            "IPERF3_PASSWORD has no password, and there is no",
        ),
    ] {
        let said = start(&Peer::Netrig, None, options, home.path()).end();
        assert!(
            said.status == Some(1) && said.err.contains("parameter error - ") && said.err.contains(words),
            "{options}: {said:#?}"
        );
    }
}
