//! Who may begin connections: by the file, by a file of prefixes, and by commands.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use super::lab::{Lab, TIMEOUT, exchange};
use super::world::until;
use super::{FIRST, with_lab};

/// First packets that prefixes have decided on, by their words.
fn hits(lab: &Lab) -> Vec<(String, bool, u64)> {
    let listed: Vec<Value> = serde_json::from_str(&lab.netrig(0, &["access", "--json"]).0).unwrap();
    let of = |entry: &Value| {
        let prefix = entry["prefix"].as_str().unwrap_or("none").to_owned();
        (prefix, entry["allows"].as_bool().unwrap(), entry["packets"].as_u64().unwrap())
    };
    listed.iter().map(of).collect()
}

#[test]
fn commands_deny_and_allow_clients_and_leave_their_connections() {
    with_lab(|lab| {
        let file = lab.file(FIRST);
        let mut running = lab.run(&[&file, "--persist"]);
        let mut stream = lab.connect();
        assert!(lab.netrig(0, &["access"]).0.contains("there is no list"));
        lab.netrig(0, &["access", "deny", "10.1.0.0/24", "2001:db8::/32"]);
        assert!(!lab.answers());
        exchange(&mut stream, 1000).unwrap();
        let denied = hits(lab);
        assert!(matches!(&denied[0], (prefix, false, 1..) if prefix == "10.1.0.0/24"), "{denied:?}");
        assert_eq!(denied[1], ("2001:db8::/32".to_owned(), false, 0));
        assert!(lab.netrig(0, &["drops"]).0.contains("denied"));
        let traced = lab.netrig(0, &["trace", "tcp", "10.1.0.2:1000", "10.9.0.1:80"]).0;
        assert!(traced.contains("denied"), "{traced}");

        let refused = lab.netrig(2, &["access", "deny", "10.1.0.0/24"]).1;
        assert!(refused.contains("10.1.0.0/24 is in the list 'deny' already"), "{refused}");
        let refused = lab.netrig(2, &["access", "remove", "10.1.0.2"]).1;
        assert!(refused.contains("10.1.0.2/32 is in no list"), "{refused}");
        let refused = lab.netrig(2, &["access", "allow", "10.1.0.2/24"]).1;
        assert!(refused.contains("write 10.1.0.0/24"), "{refused}");
        let refused = lab.netrig(2, &["access", "allow", "10.1.0.2", "--service", "10.9.0.9:80"]).1;
        assert!(refused.contains("No such service"), "{refused}");

        // What decides for a service is listed with it.
        let listed = lab.netrig(0, &["access", "--service", "10.9.0.1:80"]).0;
        assert!(listed.contains("all") && listed.contains("10.1.0.0/24"), "{listed}");
        let refused = lab.netrig(2, &["access", "--service", "10.9.0.9:80"]).1;
        assert!(refused.contains("No such service: tcp 10.9.0.9:80"), "{refused}");

        // The longer one, of the service alone.
        lab.netrig(0, &["access", "allow", "10.1.0.2", "--service", "tcp 10.9.0.1:80"]);
        exchange(&mut lab.connect(), 1000).unwrap();
        let saved = lab.netrig(0, &["save"]).0;
        assert!(saved.contains("deny = [\n    \"10.1.0.0/24\",\n    \"2001:db8::/32\",\n]"), "{saved}");
        assert!(saved.contains("allow = [\"10.1.0.2/32\"]"), "{saved}");

        // Another control plane has them, too.
        running.kill();
        drop(running);
        let _running = lab.run(&["--persist"]);
        assert_eq!(hits(lab).len(), 5, "{:?}", hits(lab));
        lab.netrig(0, &["access", "remove", "10.1.0.2", "--service", "tcp 10.9.0.1:80"]);
        assert!(!lab.answers());
        exchange(&mut stream, 1000).unwrap();
        lab.netrig(0, &["stop", "--detach"]);
    });
}

#[test]
fn a_reload_reads_files_of_prefixes_again_and_undoes_commands() {
    with_lab(|lab| {
        let list = lab.write("deny.list", "# none yet\n");
        let text = fs::read_to_string(lab.file(FIRST)).unwrap();
        let file = lab.write("lb.toml", &format!("deny_file = \"{list}\"\n{text}"));
        let running = lab.run(&[&file]);
        exchange(&mut lab.connect(), 1000).unwrap();
        lab.write("deny.list", "10.1.0.0/30 # the client\n");
        let said = lab.netrig(0, &["reload"]).0;
        assert!(said.contains("deny: 1 prefix added, 0 removed, 1 in all"), "{said}");
        assert!(!lab.answers());
        let refused = lab.netrig(2, &["access", "remove", "10.1.0.0/30"]).1;
        assert!(refused.contains("which a command does not change"), "{refused}");
        lab.netrig(0, &["access", "allow", "10.1.0.2"]);
        exchange(&mut lab.connect(), 1000).unwrap();
        let said = lab.netrig(0, &["reload"]).0;
        assert!(said.contains("the change of one command since the file was last read is undone"), "{said}");
        assert!(!lab.answers());
        // What cannot be read changes nothing.
        lab.write("deny.list", "10.1.0.0/30\n10.1.0.0/33\n");
        let refused = lab.netrig(2, &["reload"]).1;
        assert!(refused.contains("deny.list:2: '10.1.0.0/33' is not a prefix"), "{refused}");
        assert!(!lab.answers());
        lab.write("deny.list", "");
        running.signal(Signal::HUP);
        assert!(until(TIMEOUT, || hits(lab).is_empty().then_some(())).is_some(), "{}", running.said());
        exchange(&mut lab.connect(), 1000).unwrap();
    });
}

/// A file that has changed in the meantime does not keep the next control plane from what it is there for.
#[test]
fn a_command_holds_against_a_file_of_prefixes_after_a_restart() {
    with_lab(|lab| {
        let list = lab.write("deny.list", "10.1.0.0/30\n");
        let text = fs::read_to_string(lab.file(FIRST)).unwrap();
        let file = lab.write("lb.toml", &format!("deny_file = \"{list}\"\n{text}"));
        let mut running = lab.run(&[&file, "--persist"]);
        lab.netrig(0, &["access", "allow", "10.1.0.2"]);
        exchange(&mut lab.connect(), 1000).unwrap();
        running.kill();
        drop(running);
        lab.write("deny.list", "10.1.0.0/30\n10.1.0.2\n10.1.0.3\n10.1.0");
        let running = lab.run(&["--persist"]);
        exchange(&mut lab.connect(), 1000).unwrap();
        let prefixes: Vec<String> = hits(lab).into_iter().map(|(prefix, ..)| prefix).collect();
        assert_eq!(prefixes.iter().filter(|prefix| *prefix == "10.1.0.2/32").count(), 1, "{prefixes:?}");
        assert!(prefixes.contains(&"10.1.0.3/32".to_owned()), "{prefixes:?}");
        let said = running.said();
        assert!(said.contains("10.1.0.2/32 is in a file of the other list by now"), "{said}");
        assert!(said.contains("deny.list:4: '10.1.0' is not a prefix"), "{said}");
        drop(running);
        lab.netrig(0, &["stop", "--detach"]);
    });
}
