//! What is told of flows: the log of rules.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::lab::{Lab, PATIENCE, exchange};
use crate::with_lab;
use crate::world::until;

const RULE: &str = r#"{ action = "allow", source = "red", destination = "blue" }"#;

/// The lab's file with another rule between its networks.
fn file(lab: &Lab, rule: &str) -> String {
    let path = lab.file("8080");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(RULE));
    fs::write(&path, text.replace(RULE, rule)).unwrap();
    path
}

fn logged(lab: &Lab, node: &str) -> Vec<Value> {
    let (text, _) = lab.netrig(0, 0, &["log", "--json", "--node", node]);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rules_that_log_tell_of_each_flow_once() {
    with_lab(|lab| {
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]).status().unwrap();
        assert!(mounted.success(), "no bpf file system of its own");
        let path = file(lab, &RULE.replace(" }", ", log = true }"));
        let (_a, mut b) = (lab.start(0, &path), lab.start_with(1, &path, &["--persist"]));
        lab.plug_web();
        let mut stream = lab.connect();
        exchange(&mut stream);
        let client = stream.local_addr().unwrap().to_string();
        let is_told = |node: &str, source: &str, verdict: &str| {
            let of = |entry: &Value| entry["source"] == source && entry["verdict"] == verdict;
            until(PATIENCE, || {
                Some(logged(lab, node).into_iter().filter(of).collect::<Vec<_>>()).filter(|all| !all.is_empty())
            })
            .unwrap_or_else(|| panic!("node {node} tells of no {verdict} of {source}: {:?}", logged(lab, node)))
        };
        let sent = is_told("a", &client, "allow");
        let told = is_told("b", &client, "allow");
        let schemas = netrig::schemas();
        let (_, schema) = schemas.iter().find(|(known, _)| *known == "vrouter-log.json").unwrap();
        let validator = jsonschema::validator_for(schema.as_value()).unwrap();
        assert!(validator.is_valid(&told[0]), "{}", told[0]);
        assert_eq!(
            (told.len(), &told[0]["interface_name"], &told[0]["rule"]),
            (1, &"web".into(), &1.into()),
            "{told:?}"
        );
        assert_eq!(told[0]["list"], "in by policies of network blue");
        assert_eq!(
            (told[0]["rule_text"].as_str(), &told[0]["action"]),
            (Some("any protocol, 10.1.0.0/24"), &"allow".into())
        );
        assert_eq!(
            (&sent[0]["interface_name"], &sent[0]["list"]),
            (&"client".into(), &"out by policies of network red".into())
        );
        exchange(&mut stream);

        // As it comes.
        let mut follow = lab.command(1, &["log", "--follow", "--node", "b"]);
        let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(&format!(" allow TCP {client} > 10.2.0.11:8080; web (vif0/1), ")), "{line}");
        let other = lab.connect().local_addr().unwrap().to_string();
        // The other one was told once, although it has gone on.
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(&other), "{line}");
        follow.kill().unwrap();
        follow.wait().unwrap();

        // Another verdict over a flow, and what is refused from the beginning.
        let deny = r#"{ action = "deny", protocol = "tcp", source = "red", destination = "blue", log = true }"#;
        file(lab, &format!("{deny}, {RULE}"));
        lab.netrig(0, 0, &["reload", "--node", "b"]);
        lab.client.run(|| std::io::Write::write_all(&mut stream, b"x").unwrap()).unwrap();
        let told = is_told("b", &client, "deny");
        assert_eq!((told.len(), &told[0]["action"]), (1, &"deny".into()), "{told:?}");
        file(lab, &RULE.replace(" }", ", log = true }"));
        lab.netrig(0, 0, &["reload", "--node", "b"]);

        // What is logged while no process runs is told by the next one.
        b.kill();
        let mut stream = lab.connect();
        exchange(&mut stream);
        let _b = lab.start_with(1, &path, &["--persist"]);
        is_told("b", &stream.local_addr().unwrap().to_string(), "allow");
        let (text, _) = lab.netrig(0, 0, &["status", "--node", "b"]);
        assert!(text.contains(" verdicts of rules, 0 lost, 0 refusals held back"), "{text}");
        let (text, _) = lab.netrig(0, 0, &["metrics", "--node", "b"]);
        assert!(text.contains("vrouter_log_entries_total{node=\"b\",outcome=\"told\"}"), "{text}");
    });
}
