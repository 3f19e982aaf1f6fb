use anyhow::bail;
use rig_testbed::datapath::{Attach, Datapath, DatapathRequest, Live, Process, Site, read_settings};
use serde::Deserialize;
use serde_json::json;

use super::*;

/// A datapath that runs anywhere.
#[derive(Debug)]
struct TestDatapath;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "what is read is not looked at")]
struct TestSettings {
    size: Option<u32>,
    limits: Option<BTreeMap<String, u32>>,
}

impl Datapath for TestDatapath {
    fn name(&self) -> &'static str {
        "anywhere"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        read_settings::<TestSettings>(asked.settings).map(drop)
    }

    fn commands(&self) -> &'static [rig_testbed::datapath::Command] {
        const RESIZE: rig_testbed::datapath::Command =
            rig_testbed::datapath::Command { name: "resize", about: "sets the size: { size }" };
        &[RESIZE]
    }

    fn check_command(&self, _name: &str, arguments: &Settings) -> Result<(), Mistake> {
        read_settings::<TestSettings>(arguments).map(drop)
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for TestDatapath {
    fn attach(&self, _site: &Site, _settings: &Settings) -> anyhow::Result<Box<dyn Live>> {
        bail!("nothing is attached here")
    }
}

const FAKES: DatapathRegistry = DatapathRegistry::new(&[&TestDatapath]);

/// A suite of one scenario over `path` between nodes a and b, with these lines from line 15 on.
fn parse(path: &str, lines: &str) -> Result<Suite> {
    let load = match path {
        "raw" => r#"{ kind = "tcp-stream", message = "128k" }"#,
        _ => r#"{ kind = "packets", protocol = "tcp", connections_per_second = 100 }"#,
    };
    let nodes = if path == "raw" { "\"a\", \"b\"" } else { "\"a\", \"lb\", \"b\"" };
    let text = format!(
        "name = \"small\"\ntitle = \"Small\"\n[defaults]\nwindow = \"1s\"\nwarm_up = \"1s\"\ncool_down = \"1s\"\n\
         [testbed.t]\nnodes = [{nodes}]\nwire = {{}}\n[[scenario]]\nid = \"A\"\nname = \"A\"\ntestbed = \"t\"\npath = \"{path}\"\n\
         from = \"a\"\nto = \"b\"\nload = {load}\n{lines}\n"
    );
    Suite::parse("small.toml", &text)
}

fn refused(lines: &str, line: usize, words: &[&str]) {
    let checked = parse("raw", lines).and_then(|suite| suite.check_datapaths(FAKES));
    let error = checked.unwrap_err().to_string();
    assert!(error.starts_with(&format!("small.toml:{line}: ")), "not line {line}: {error}");
    for word in words {
        assert!(error.contains(word), "'{error}' lacks '{word}'");
    }
}

#[test]
fn a_path_between_client_and_server_has_its_datapath_there_without_a_word() {
    let suite = parse("nftables", "").unwrap();
    let expected = DatapathSetup::new("nftables", vec!["lb".to_owned()], Settings::new());
    assert_eq!(suite.scenarios[0].datapaths, [expected]);
    assert_eq!(parse("raw", "").unwrap().scenarios[0].datapaths, []);
    // Where it is said makes no difference.
    assert_eq!(parse("nftables", "\n[[scenario.datapath]]\nname = \"nftables\"").unwrap().scenarios, suite.scenarios);
}

#[test]
fn a_scenario_has_a_list_of_datapaths_on_its_nodes() {
    let suite = parse(
        "balancer",
        "[[scenario.datapath]]\nname = \"anywhere\"\nnodes = [\"a\", \"b\"]\nsize = 7\nlimits = { x = 1 }\n\
         [[scenario.datapath]]\nname = \"balancer\"\nscheduler = \"wlc\"\n",
    );
    let [own, other] = &suite.unwrap().scenarios[0].datapaths[..] else { panic!("not two") };
    assert_eq!((own.name.as_str(), &own.nodes[..]), ("balancer", &["lb".to_owned()][..]));
    assert_eq!(Value::Object(own.settings.clone()), json!({"scheduler": "wlc"}));
    assert_eq!((other.name.as_str(), &other.nodes[..]), ("anywhere", &["a".to_owned(), "b".to_owned()][..]));
    assert_eq!(Value::Object(other.settings.clone()), json!({"size": 7, "limits": {"x": 1}}));
    assert_eq!(shown(&other.settings), "limits { x 1 }, size 7");
}

#[test]
fn mistakes_about_datapaths_are_told_at_their_lines() {
    let anywhere = |rest: &str| format!("[[scenario.datapath]]\nname = \"anywhere\"\nnodes = [\"a\"]\n{rest}");
    assert!(parse("raw", &anywhere("size = 3")).unwrap().check_datapaths(FAKES).is_ok());
    refused(&anywhere("size = -3"), 21, &["-3"]);
    refused(&anywhere("limits = {}\nsise = 3"), 22, &["unknown field `sise`", "did you mean `size`?"]);
    refused(&anywhere("limits = { x = \"y\" }"), 21, &["string"]);
    refused(
        "[[scenario.datapath]]\nname = \"elsewhere\"\nnodes = [\"a\"]",
        18,
        &["no datapath 'elsewhere'", "anywhere"],
    );
    refused("[[scenario.datapath]]\nname = \"anywhere\"", 18, &["is on no node", "nodes = [\"a\", \"b\"]"]);
    refused("[[scenario.datapath]]\nnodes = [\"a\"]", 18, &["without a name"]);
    refused("[[scenario.datapath]]\nname = 3", 19, &["not text"]);
    refused(&format!("{}\n{}", anywhere(""), anywhere("")), 22, &["'anywhere' is described twice"]);
    for (nodes, words) in [
        ("\"a\"", "not a list"),
        ("[]", "not a list"),
        ("[1]", "not a list"),
        ("[\"c\"]", "'c'"),
        ("[\"a\", \"a\"]", "twice"),
    ] {
        refused(&format!("[[scenario.datapath]]\nname = \"anywhere\"\nnodes = {nodes}"), 20, &[words]);
    }
    let own = parse("nftables", "[[scenario.datapath]]\nname = \"nftables\"\nnodes = [\"a\"]").unwrap_err().to_string();
    assert!(own.contains("has its datapath on node lb"), "{own}");
}

/// A datapath on both nodes, and a phase with these lines, which begin in line 23.
fn told(command: &str) -> String {
    format!(
        "[[scenario.datapath]]\nname = \"anywhere\"\nnodes = [\"a\", \"b\"]\n\
         [[scenario.phase]]\nname = \"p\"\n{command}"
    )
}

#[test]
fn phases_tell_datapaths_what_to_do() {
    let table = "[[scenario.phase.command]]\ndatapath = \"anywhere\"\nname = \"resize\"\n";
    let lines = told(&format!("{table}arguments = {{ size = 7 }}\n{table}node = \"b\""));
    let suite = parse("raw", &lines).unwrap();
    suite.check_datapaths(FAKES).unwrap();
    let programme = &suite.scenarios[0].programme;
    let commands: Vec<&Command> = programme.phases[0].commands().collect();
    let expected = |node: Option<&str>, arguments: Value| Command {
        datapath: "anywhere".to_owned(),
        node: node.map(str::to_owned),
        name: "resize".to_owned(),
        arguments: arguments.as_object().unwrap().clone(),
    };
    assert_eq!(commands, [&expected(None, json!({"size": 7})), &expected(Some("b"), json!({}))]);
    assert!(!programme.is_plain() && programme.phases[0].rates().next().is_none());
    // On one line it is the same.
    let one = |arguments: &str| format!("{{ datapath = \"anywhere\", name = \"resize\", {arguments} }}");
    let line = told(&format!("command = [{}, {}]", one("arguments = { size = 7 }"), one("node = \"b\"")));
    assert_eq!(parse("raw", &line).unwrap().scenarios[0].programme, *programme);
}

#[test]
fn commands_that_no_agent_would_follow_are_told_at_their_lines() {
    let table = |rest: &str| told(&format!("[[scenario.phase.command]]\n{rest}"));
    let of = |rest: &str| table(&format!("datapath = \"anywhere\"\n{rest}"));
    refused(&of("name = \"resize\"\narguments = { sise = 3 }"), 23, &["command 'resize'", "did you mean `size`?"]);
    refused(&of("name = \"resze\""), 23, &["anywhere has no command 'resze'", "did you mean 'resize'?"]);
    refused(&of("name = \"dance\""), 23, &["it has resize"]);
    refused(&of("name = \"resize\"\nnode = \"c\""), 26, &["anywhere is not on node 'c'", "it is on a, b"]);
    refused(&table("datapath = \"balancer\"\nname = \"weight\""), 24, &["no datapath 'balancer'", "it has anywhere"]);
    refused(&of("nme = \"resize\""), 25, &["unknown field `nme`", "did you mean `name`?"]);
    let none = "[[scenario.phase]]\nname = \"p\"\n[[scenario.phase.command]]\ndatapath = \"x\"\nname = \"y\"";
    refused(none, 21, &["no datapath 'x'", "it has none"]);
}

#[test]
fn datapaths_of_the_rig_refuse_commands_that_they_do_not_have() {
    let told = |path: &str, command: &str| {
        let command = format!("command = [{{ datapath = \"{path}\", {command} }}]");
        let suite = parse(path, &format!("[[scenario.phase]]\nname = \"p\"\n{command}")).unwrap();
        suite.check_datapaths(rig_datapaths::ALL).map_err(|error| error.to_string())
    };
    for (path, command, words) in [
        ("nftables", "name = \"weight\"", "it takes none"),
        ("balancer", "name = \"weights\"", "did you mean 'weight'?"),
        ("balancer", "name = \"weight\", arguments = { backend = 1 }", "missing field `weight`"),
        ("balancer", "name = \"weight\", arguments = { backend = -1, weight = 1 }", "a number from 1 on"),
        ("balancer", "name = \"flush\", arguments = { server = 1 }", "unknown field `server`"),
        ("balancer", "name = \"counters\", arguments = { service = 1 }", "unknown field `service`"),
        ("haproxy", "name = \"weight\", arguments = { backend = 1, weight = 257 }", "0 to 256"),
    ] {
        let error = told(path, command).unwrap_err();
        assert!(error.starts_with("small.toml:20: ") && error.contains(words), "{command}: {error}");
    }
    for (path, command) in [
        ("balancer", "name = \"status\""),
        ("balancer", "name = \"scheduler\", arguments = { scheduler = \"wlc\" }"),
        ("haproxy", "name = \"weight\", arguments = { backend = \"198.19.0.1\", weight = 256 }"),
    ] {
        told(path, command).unwrap();
    }
}

#[test]
fn datapaths_of_the_rig_refuse_what_they_cannot_do() {
    let refused = |path: &str, lines: &str| {
        let suite = parse(path, lines).unwrap();
        suite.check_datapaths(rig_datapaths::ALL).unwrap_err().to_string()
    };
    let of = |name: &str, rest: &str| format!("[[scenario.datapath]]\nname = \"{name}\"\n{rest}");
    for (name, settings, words) in [
        ("ipvs", "size = 1", "ipvs has no setting 'size'"),
        ("nftables", "size = 1", "`size`"),
        ("haproxy", "size = 1", "`size`"),
        ("nftables", "syn_proxy = 3", "expected a boolean"),
        ("haproxy", "check = { interval = \"1s\", timeout = \"1s\" }", "fall"),
        ("haproxy", "check = { interval = \"1ms\", timeout = \"1s\", fall = 2 }", "10ms to 1h"),
        ("haproxy", "check = { interval = \"1s\", timeout = \"1s\", fall = 0 }", "fall = 0"),
    ] {
        let error = refused(name, &of(name, settings));
        assert!(error.starts_with("small.toml:20: ") && error.contains(words), "{error}");
    }
    let error = refused("raw", &of("nftables", "nodes = [\"a\"]"));
    assert!(error.contains("not between such") && error.contains("use path nftables"), "{error}");
    for name in ["balancer", "nftables", "haproxy", "ipvs"] {
        parse(name, "").unwrap().check_datapaths(rig_datapaths::ALL).unwrap();
    }
}
