//! The command line: what is refused and how, what is printed, and how the program ends. Nothing here needs privileges:
//! mistakes are found before anything is built.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use rig_facts::record::Environment;
use rig_facts::store::{NewRun, RunEnd, Store};
use rig_suite::suite::{Scenario, Suite};

/// netrig with a store and a runtime directory of its own; no command of these tests may take long.
fn netrig(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.timeout(Duration::from_secs(60));
    command.env("NETRIG_STORE", home.join("runs.sqlite")).env("NETRIG_RUN", home);
    command.env_remove("COLUMNS").env_remove("NO_COLOR").current_dir(home);
    command
}

/// [`netrig`] as a command of the standard library, whose output can go anywhere.
fn plain(home: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.env("NETRIG_STORE", home.join("runs.sqlite")).env("NETRIG_RUN", home);
    command.stdin(Stdio::null()).current_dir(home);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that `arguments` are refused with `status` and words that contain each of `expected`, and that nothing is
/// printed for a program to read.
#[track_caller]
fn refused(home: &Path, status: i32, arguments: &[&str], expected: &[&str]) {
    let assert = netrig(home).args(arguments).assert();
    let output = assert.get_output();
    let said = said(output);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    for words in expected {
        assert!(said.contains(words), "{arguments:?}: '{said}' lacks '{words}'");
    }
    assert!(output.stdout.is_empty(), "{arguments:?} printed {}", String::from_utf8_lossy(&output.stdout));
    assert!(!said.contains("panicked"), "{said}");
    assert!(!home.join("runs.sqlite").exists(), "{arguments:?} made a store");
}

/// A good suite; each line is one that a test replaces.
const SUITE: &str = r#"name = "small"
title = "Small"
[defaults]
window = "100ms"
warm_up = "0ms"
cool_down = "0ms"
confidence = { level = 95, width = "5%", min = 3, max = 10 }
[testbed.two]
nodes = ["a", "b"]
wire = { rate = "1gbit" }
[[scenario]]
id = "A"
name = "Raw"
testbed = "two"
path = "raw"
from = "a"
to = "b"
load = { kind = "tcp-stream", message = "128k" }
"#;

#[test]
fn mistakes_in_a_suite_file_are_named_with_file_line_and_next_step() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mine.toml");
    let cases: [(&str, &str, usize, &[&str]); 17] = [
        (
            "title = \"Small\"",
            "title = \"Small\"\ncolour = \"red\"",
            3,
            &["unknown field `colour`", "it is one of `name`, `title`"],
        ),
        ("window = \"100ms\"", "window = \"100\"", 4, &["unit", "`100s` for seconds or `100m` for minutes"]),
        ("window = \"100ms\"", "window = 5", 4, &["unit", "`5s` for seconds or `5m` for minutes"]),
        ("window = \"100ms\"", "window = \"1us\"", 4, &["too short", "at least 100ms"]),
        ("confidence = {", "confidence = { sigma = 2,", 7, &["unknown field `sigma`"]),
        ("width = \"5%\"", "width = \"wide\"", 7, &["wide", "5%"]),
        ("rate = \"1gbit\"", "rate = \"1gbyte\"", 10, &["1gbyte", "10Gbit"]),
        ("rate = \"1gbit\"", "rate = \"1bit\"", 10, &["rate is too low", "100kbit"]),
        ("rate = \"1gbit\"", "mtu = 100", 10, &["MTU of 100", "576"]),
        ("id = \"A\"", "id = \"\"", 12, &["scenario id", "beginning with a letter"]),
        ("testbed = \"two\"", "testbed = \"three\"", 14, &["no testbed 'three'", "two"]),
        ("path = \"raw\"", "path = \"vxlan\"", 15, &["joins containers", "node/container"]),
        ("to = \"b\"", "to = \"c\"", 15, &["unknown node", "a, b"]),
        ("from = \"a\"", "from = \"a b\"", 16, &["'a b' is not a name", "letters"]),
        ("message = \"128k\"", "message = \"0\"", 18, &["the message is 0", "from 1 to 67108864"]),
        (
            "message = \"128k\"",
            "message = \"1k\", throttle = \"1KB/s\"",
            18,
            &["a message leaves each 1.000s", "none may fall into the window of 100ms", "measure for longer"],
        ),
        (
            "kind = \"tcp-stream\", message = \"128k\"",
            "kind = \"tcp-rr\", rate = \"1Mbit\"",
            18,
            &["write for example `10k`; `throttle` is what limits streams"],
        ),
    ];
    for (line, replacement, number, expected) in cases {
        assert!(SUITE.contains(line), "the suite has no {line}");
        fs::write(&file, SUITE.replace(line, replacement)).unwrap();
        let place = format!("mine.toml:{number}: ");
        let expected = [&[place.as_str()], expected].concat();
        for command in ["run", "show"] {
            refused(home.path(), 2, &[command, "mine.toml"], &expected);
        }
        refused(home.path(), 2, &["up", "mine.toml/A"], &expected);
    }
    fs::write(&file, "name = \"small\"\ntitle = [1,\n\n").unwrap();
    refused(home.path(), 2, &["run", "mine.toml"], &["mine.toml:", "array"]);
    fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    refused(home.path(), 2, &["run", "mine.toml"], &["mine.toml", "UTF-8"]);
    // The suite that was mistreated is a good one.
    fs::write(&file, SUITE).unwrap();
    netrig(home.path()).args(["show", "mine.toml"]).assert().success();
}

#[test]
fn text_of_files_and_their_names_drive_no_terminal() {
    let home = tempfile::tempdir().unwrap();
    let suite = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/latency.toml")).unwrap();
    let title = r#"title = "\u001b[2J\u009b31m\u202etxt.\u2066\u007f\u2028""#;
    let of = |line: &str| if line.starts_with("title = ") { title.to_owned() } else { line.to_owned() };
    let titled = suite.lines().map(of).collect::<Vec<_>>().join("\n");
    let key = r#""\u001b]0;t\u0007\u202e" = 1"#;
    let name = "a\u{1b}[2J\u{202e}\nnetrig: done.toml";
    for (arguments, text, status) in [
        (&["show"][..], titled.as_str(), 0),
        (&["show"], key, 2),
        (&["lb", "check"], key, 2),
        (&["vrouter", "check"], key, 2),
        (&["spread", "run", "--file"], key, 2),
    ] {
        fs::write(home.path().join(name), text).unwrap();
        let file = format!("./{name}");
        let output = netrig(home.path()).args(arguments).arg(&file).output().unwrap();
        let words = String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {words:?}");
        assert!(!words.contains(rig_cli::visible::is_harmful), "{arguments:?}: {words:?}");
        assert!(words.contains(r"\u001b") && words.contains(r"\u202e"), "{arguments:?}: {words:?}");
        assert!(!words.contains("\nnetrig: done"), "{arguments:?}: {words:?}");
    }
}

#[test]
fn suites_and_scenarios_that_do_not_exist_name_those_that_do() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    for command in ["run", "show"] {
        refused(
            home,
            2,
            &[command, "lairs"],
            &["lairs", "did you mean layers?", "built-in suite (layers, namespaces", "path"],
        );
        refused(home, 2, &[command, "/no/such/file.toml"], &["/no/such/file.toml", "No such file"]);
        refused(home, 2, &[command, "/"], &["/: cannot read", "directory"]);
    }
    let schema = netrig(home).args(["schema", "siute"]).assert().code(2);
    assert_eq!(said(schema.get_output()), "netrig: no schema 'siute'\n  did you mean suite?\n");
    refused(home, 2, &["run", "layers", "--only", "A,Z"], &["layers: no scenario 'Z'", "A, A2, B, C"]);
    refused(home, 2, &["run", "layers", "--only", "a"], &["no scenario 'a'"]);
    fs::write(home.join("mine.toml"), SUITE).unwrap();
    refused(home, 2, &["run", "mine.toml", "--quick"], &["'small' has no [quick] timing", "without --quick"]);
}

#[test]
fn values_out_of_range_are_refused_with_the_range() {
    let home = tempfile::tempdir().unwrap();
    let run = |option: &str, value: &str, expected: &[&str]| {
        refused(home.path(), 2, &["run", "layers", "--quick", "--only", "A", option, value], expected);
    };
    run("--window", "5", &["'5'", "--window", "`5s` for seconds or `5m` for minutes"]);
    run("--window", "5parsec", &["parsec", "15s"]);
    run("--window", "1ms", &["--window", "too short", "100ms"]);
    run("--window", "90m", &["--window", "hour", "60m"]);
    let slow =
        SUITE.replace("window = \"100ms\"", "window = \"2s\"").replace("\"128k\"", "\"1k\", throttle = \"1KB/s\"");
    fs::write(home.path().join("slow.toml"), slow).unwrap();
    let nothing = ["--window: slow.toml: scenario 'A'", "a message leaves each 1.000s", "window of 900ms"];
    refused(home.path(), 2, &["run", "slow.toml", "--window", "900ms"], &nothing);
    run("--trials", "0", &["--trials", "1..=1000"]);
    run("--trials", "many", &["--trials", "many"]);
    run("--cpus", "3-1", &["--cpus", "'3-1' is not a CPU list", "0-3,6"]);
    run("--cpus", "1000", &["CPUs 1000 do not exist", "choose from"]);
    run("--cpus", "99999", &["--cpus", "1023"]);
    run("--format", "pdf", &["--format", "html", "markdown"]);
    refused(home.path(), 2, &["up", "layers/A", "--cpus", "1000"], &["CPUs 1000 do not exist", "choose from"]);
    refused(home.path(), 2, &["up", "layers"], &["'layers' is not SUITE/SCENARIO", "layers/B"]);
    refused(home.path(), 2, &["up", "layers/Z"], &["no scenario 'Z'", "A, A2, B, C"]);
}

#[test]
fn a_report_that_could_not_be_written_is_refused_before_anything_is_measured() {
    let home = tempfile::tempdir().unwrap();
    let taken = home.path().join("file");
    fs::write(&taken, "mine").unwrap();
    for (output, why) in
        [("/no/such/place/report.md", "No such file"), ("/", "directory"), ("file/report.md", "Not a directory")]
    {
        let arguments = ["run", "layers", "--quick", "--only", "A", "--output", output];
        refused(home.path(), 2, &arguments, &[&format!("cannot write {output}: "), why, "name a file"]);
    }
    // A run that is refused for something else leaves an older report alone.
    refused(home.path(), 2, &["run", "layers", "--cpus", "1000", "--output", "file"], &["CPUs 1000"]);
    assert_eq!(fs::read_to_string(taken).unwrap(), "mine");
}

#[test]
fn words_that_are_no_command_are_refused_with_those_that_are() {
    let home = tempfile::tempdir().unwrap();
    refused(home.path(), 2, &["frobnicate"], &["'frobnicate'", "Usage"]);
    refused(home.path(), 2, &["runn"], &["'run'"]);
    refused(home.path(), 2, &[], &["Usage", "run", "report"]);
    refused(home.path(), 2, &["run"], &["<SUITE>"]);
    refused(home.path(), 2, &["run", "layers", "--fast"], &["--fast"]);
    refused(home.path(), 2, &["shell"], &["<PLACE>"]);
}

/// A store with a run that has two trials.
fn stored(home: &Path) -> PathBuf {
    let path = home.join("runs.sqlite");
    let suite = Suite::load("layers").unwrap();
    let mut store = Store::open(&path).unwrap();
    let options = serde_json::json!({
        "quick": true, "only": ["B"], "cpus": ["0", "1"],
        "timing": { "phases": suite.timing.phases, "repeat": { "times": 2 } },
    });
    let new = NewRun {
        suite: suite.name,
        title: suite.title,
        suite_file: suite.file,
        suite_text: suite.text,
        options,
        environment: Environment::default(),
        planned_trials: 2,
        started_unix_ms: 1_700_000_000_000,
    };
    let run = store.begin_run(&new).unwrap();
    let text = include_str!("../../../rig-facts/tests/records/trial-0.1.0.json");
    for ordinal in 1..=2 {
        let mut trial: rig_facts::record::TrialRecord = serde_json::from_str(text).unwrap();
        trial.ordinal = ordinal;
        store.add_trial(run, &trial).unwrap();
    }
    let goals = serde_json::json!([{ "scenario": "B", "trials": 2, "outcome": "fixed" }]);
    store.finish_run(run, &RunEnd::Complete, Some(&goals), 1_700_000_100_000).unwrap();
    path
}

/// Commands that print, from the store of [`stored`].
const PRINTING: [&[&str]; 17] = [
    &["--help"],
    &["--version"],
    &["lb", "--version"],
    &["vrouter", "--version"],
    &["spread", "--version"],
    &["top", "--version"],
    &["list"],
    &["show", "layers"],
    &["history"],
    &["report"],
    &["report", "1", "--format", "markdown"],
    &["report", "1", "--format", "html"],
    &["report", "1", "--format", "json"],
    &["report", "1", "--format", "csv"],
    &["report", "1", "--format", "openmetrics"],
    &["series", "1"],
    &["down"],
];

#[test]
fn what_was_counted_over_time_is_one_table() {
    let home = tempfile::tempdir().unwrap();
    stored(home.path());
    let output = netrig(home.path()).args(["series", "1", "--only", "B"]).assert().success();
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    assert_eq!(head[..3], ["scenario", "trial", "phase"]);
    let trials: BTreeSet<&str> = lines.map(|line| (line.len() == head.len()).then_some(line[1]).unwrap()).collect();
    assert_eq!(trials, ["1", "2"].into());
    netrig(home.path()).args(["series", "--output", "series.csv"]).assert().success();
    assert_eq!(fs::read_to_string(home.path().join("series.csv")).unwrap(), text);
    let unknown = netrig(home.path()).args(["series", "--only", "Z"]).assert().code(2);
    let said = String::from_utf8_lossy(&unknown.get_output().stderr).into_owned();
    assert!(said.contains("no scenario 'Z'") && said.contains("it has B"), "{said}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let home = tempfile::tempdir().unwrap();
    stored(home.path());
    for arguments in PRINTING {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let output = plain(home.path()).args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), said(&output)), (Some(0), String::new()), "{arguments:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let home = tempfile::tempdir().unwrap();
    stored(home.path());
    for arguments in PRINTING {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = plain(home.path()).args(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains("No space left"), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn commands_that_run_for_long_say_their_version() {
    let home = tempfile::tempdir().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for command in ["vrouter", "spread", "top"] {
        for option in ["--version", "-V"] {
            let assert = netrig(home.path()).args([command, option]).assert().success();
            let said = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
            assert_eq!(said, format!("netrig {command} {version}\n"), "{option}");
        }
    }
}

#[test]
fn a_report_is_written_to_a_file_whole_or_not_at_all() {
    let home = tempfile::tempdir().unwrap();
    stored(home.path());
    for format in ["terminal", "markdown", "html", "json", "csv", "openmetrics"] {
        let arguments = ["report", "--format", format];
        let printed = netrig(home.path()).args(arguments).assert().success();
        let assert = netrig(home.path()).args(arguments).args(["--output", "report"]).assert().success();
        assert!(assert.get_output().stdout.is_empty());
        let written = fs::read(home.path().join("report")).unwrap();
        assert!(!written.is_empty() && written == printed.get_output().stdout, "{format}");
    }
    netrig(home.path()).args(["report", "77", "--output", "report"]).assert().code(2);
    let names = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.collect();
    assert!(names.iter().all(|name| name == "report" || name.starts_with("runs.sqlite")), "{names:?}");
    assert!(!fs::read(home.path().join("report")).unwrap().is_empty(), "the older report is gone");
}

#[test]
fn stores_that_cannot_be_read_are_left_alone_and_the_way_out_is_named() {
    let home = tempfile::tempdir().unwrap();
    let good = fs::read(stored(home.path())).unwrap();
    let newer = home.path().join("newer.sqlite");
    fs::write(&newer, &good).unwrap();
    rusqlite::Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let corrupt = home.path().join("corrupt.sqlite");
    let mut bytes = good.clone();
    bytes[1024..].fill(0x5a);
    fs::write(&corrupt, bytes).unwrap();
    let foreign = home.path().join("foreign.sqlite");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE mine (a)").unwrap();
    let text = home.path().join("notes.txt");
    fs::write(&text, "remember the milk\n".repeat(100)).unwrap();
    let directory = home.path().join("directory");
    fs::create_dir(&directory).unwrap();
    for (path, expected) in [
        (&newer, &["newer netrig", "schema 99"][..]),
        (&corrupt, &["damaged", "move it away"]),
        (&foreign, &["is not a netrig store"]),
        (&text, &["is not a netrig store"]),
        (&directory, &["is not a netrig store", "directory"]),
    ] {
        let before = fs::read(path).ok();
        for command in ["report", "history"] {
            let assert = netrig(home.path()).args([command, "--store"]).arg(path).assert().code(4);
            let said = said(assert.get_output());
            for words in [&[path.to_str().unwrap()], expected].concat() {
                assert!(said.contains(words), "{command}: '{said}' lacks '{words}'");
            }
            assert!(said.contains("--store") || said.contains("use that version"), "no way out: {said}");
        }
        assert_eq!(fs::read(path).ok(), before, "{} was changed", path.display());
    }
}

#[test]
fn runs_that_are_not_there_are_refused() {
    let home = tempfile::tempdir().unwrap();
    // Where nothing was ever stored nothing is made either.
    refused(home.path(), 2, &["report"], &["runs.sqlite", "netrig run"]);
    refused(home.path(), 2, &["history"], &["runs.sqlite", "netrig run"]);
    stored(home.path());
    for (run, expected) in [("2", "netrig history"), ("0", "netrig history"), ("first", "latest"), ("", "latest")] {
        let assert = netrig(home.path()).args(["report", run]).assert().code(2);
        let said = said(assert.get_output());
        assert!(said.contains(expected), "{run}: {said}");
    }
    for run in ["1", "latest"] {
        netrig(home.path()).args(["report", run]).assert().success();
    }
}

#[test]
fn the_built_in_suites_are_listed_and_shown() {
    let home = tempfile::tempdir().unwrap();
    let listed = netrig(home.path()).arg("list").assert().success();
    let lines = String::from_utf8_lossy(&listed.get_output().stdout).lines().count();
    assert_eq!(lines, Suite::built_in().count(), "a line for a suite");
    let listed = netrig(home.path()).args(["list", "--scenarios"]).assert().success();
    // Where it was wrapped does not matter, but that it was.
    let unwrapped = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout);
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(longest <= 80, "{longest} columns: {text}");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let listed = unwrapped(listed.get_output());
    // Rows of a list, which differ in their number of workers, are shown once.
    let id_of =
        |scenario: &Scenario| scenario.row_of.as_ref().map_or_else(|| scenario.id.clone(), |list| format!("{list}-N"));
    for suite in Suite::built_in().map(Result::unwrap) {
        assert!(listed.contains(&suite.name) && listed.contains(&suite.title));
        let screen = netrig(home.path()).args(["show", &suite.name]).assert().success();
        let lines = String::from_utf8_lossy(&screen.get_output().stdout).lines().count();
        assert!(lines <= 60, "{}: {lines} lines are no screen", suite.name);
        let screen = unwrapped(screen.get_output());
        assert!(screen.contains(&suite.title) && screen.contains(&id_of(&suite.scenarios[0])), "{screen}");
        let first = suite.claims.first().map_or("", |claim| claim.text());
        assert!(screen.contains(first), "{screen}");
        let shown = netrig(home.path()).args(["show", &suite.name, "--all"]).assert().success();
        let shown = unwrapped(shown.get_output());
        let next = format!("netrig show {} --all", suite.name);
        assert!(screen == shown || screen.contains(&next), "where is the rest? {screen}");
        for scenario in &suite.scenarios {
            for what in [id_of(scenario).as_str(), scenario.list_name()] {
                assert!(listed.contains(what) && shown.contains(what), "{}: {what}", scenario.id);
            }
        }
        for claim in &suite.claims {
            assert!(shown.contains(claim.text()) && shown.contains(claim.expression()), "{}", claim.text());
        }
    }
}

#[test]
fn help_says_what_each_command_does() {
    let home = tempfile::tempdir().unwrap();
    for command in
        ["", "doctor", "list", "show", "run", "report", "series", "compare", "history", "up", "shell", "down"]
    {
        let mut help = netrig(home.path());
        let assert = help.args((!command.is_empty()).then_some(command)).arg("--help").assert().success();
        let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{command}: a line is too long");
        insta::assert_snapshot!(format!("help-{}", if command.is_empty() { "netrig" } else { command }), text);
    }
}

/// Every command, those of the services too, with `--help`.
#[test]
fn help_fits_a_screen_and_has_an_example() {
    let home = tempfile::tempdir().unwrap();
    let (mut left, mut seen) = (vec![String::new()], 0);
    while let Some(command) = left.pop() {
        let mut help = netrig(home.path());
        let assert = help.env("COLUMNS", "80").args(command.split_whitespace()).arg("--help").assert().success();
        let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
        let (lines, widest) = (text.lines().count(), text.lines().map(|line| line.chars().count()).max().unwrap_or(0));
        // iperf3's list of options is longer than a screen, and a user looks for all of them there.
        if command == " iperf3" {
            continue;
        }
        assert!(lines <= 40, "{command}: {lines} lines\n{text}");
        assert!(widest <= 80, "{command}: {widest} columns\n{text}");
        assert!(text.contains("\nExamples"), "{command}: no example\n{text}");
        left.extend(commands_of(&text).into_iter().map(|name| format!("{command} {name}")));
        seen += 1;
    }
    assert!(seen > 60, "{seen} commands");
}

/// What a help text lists below `Commands:`.
fn commands_of(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

#[test]
fn options_of_iperf3_are_answered_with_what_they_are_called_here() {
    let home = tempfile::tempdir().unwrap();
    for (words, meant) in [
        ("stream -c host -P 4", "iperf3's -P is --threads N here"),
        ("udp -c host -b 1g", "--rate RATE"),
        ("rr -c host -b 1000", "--rate PER_SECOND"),
        ("stream -c host --rate 1g", "write `1gbit`"),
        ("stream -c host -u", "netrig udp"),
        ("udp -c host -B 10.0.0.1", "iperf3's -B is --source ADDRESS here, and --device NAME"),
        ("stream -c host --bind-dev eth0", "--device NAME"),
        ("rr -c host -S 184", "--dscp NAME here, a name or the byte divided by 4"),
        ("stream -c host -M 1000", "--mss BYTES"),
    ] {
        let refused = netrig(home.path()).args(words.split(' ')).assert().code(2);
        let said = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
        assert!(said.contains(meant), "{words}: {said}");
    }
    let refused = netrig(home.path()).args(["report", "-P"]).assert().code(2);
    assert!(!String::from_utf8_lossy(&refused.get_output().stderr).contains("iperf3"));
}

#[test]
fn a_word_that_is_nearly_a_command_is_answered_with_it() {
    let home = tempfile::tempdir().unwrap();
    for (words, meant) in [
        ("hstory", "'history'"),
        ("report --fromat html", "'--format'"),
        ("lb statsu", "'status'"),
        ("vrouter realod", "'reload'"),
        ("spread porbe eth0", "'probe'"),
        ("dperf --serch", "'--search'"),
        ("top --jsn", "'--json'"),
        ("udp --clint host", "'--client"),
    ] {
        refused(home.path(), 2, &words.split(' ').collect::<Vec<_>>(), &["similar", meant]);
    }
}

#[test]
fn shells_and_manuals_know_the_commands_of_services_too() {
    let home = tempfile::tempdir().unwrap();
    let printed = |arguments: &[&str]| {
        let assert = netrig(home.path()).args(arguments).assert().success();
        String::from_utf8_lossy(&assert.get_output().stdout).into_owned()
    };
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = printed(&["completions", shell]);
        for word in ["against", "vrouter", "dropstats", "probe", "reload"] {
            assert!(text.contains(word), "{shell} does not know {word}");
        }
        assert!(printed(&["completions", shell, "--tool", "dperf"]).contains("search"), "{shell}");
    }
    refused(home.path(), 2, &["completions", "tcsh"], &["'tcsh'", "bash"]);
    refused(home.path(), 2, &["completions", "bash", "--tool", "iperf"], &["'iperf'", "dperf"]);
    netrig(home.path()).args(["man", "pages"]).assert().success();
    for (page, word) in [
        ("netrig.1", "netrig\\-run(1)"),
        ("netrig-run.1", "against"),
        ("netrig-lb-trace.1", "packet"),
        ("netrig-vrouter-flow.1", "flow"),
        ("dperf.1", "search"),
        ("ntttcp.1", "duration"),
        ("ipvsadm.8", "SCHEDULER"),
    ] {
        let text = fs::read_to_string(home.path().join("pages").join(page)).unwrap();
        assert!(text.contains(word), "{page} lacks {word}");
    }
    refused(home.path(), 2, &["man", "/proc/pages"], &["write man pages to /proc/pages"]);
}

#[test]
fn runs_are_named_by_their_labels_and_deleted() {
    let home = tempfile::tempdir().unwrap();
    let path = stored(home.path());
    let store = Store::open(&path).unwrap();
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("UPDATE run SET options = json_set(options, '$.label', 'before')", []).unwrap();
    drop(connection);
    let printed = |arguments: &[&str]| {
        let assert = netrig(home.path()).args(arguments).assert().success();
        String::from_utf8_lossy(&assert.get_output().stdout).into_owned()
    };
    assert!(printed(&["history"]).contains("before"));
    assert!(printed(&["report", "before", "--all"]).contains("label before"));
    fs::write(home.path().join("other"), printed(&["report", "1", "--format", "json"])).unwrap();
    // A file may have any name; a label goes before it.
    let refused = |arguments: &[&str], expected: &[&str]| {
        let assert = netrig(home.path()).args(arguments).assert().code(2);
        let said = said(assert.get_output());
        expected.iter().for_each(|words| assert!(said.contains(words), "{arguments:?}: {said}"));
    };
    refused(&["compare", "before", "other"], &["run 1 and other are the same run"]);
    refused(&["history", "--delete", "after"], &["labelled `after`", "netrig history"]);
    refused(&["history", "--delete", "9"], &["run 9 is not in the store"]);
    refused(&["run", "layers", "--label", "latest"], &["`latest` is not a label", "begins with a letter"]);
    let said = printed(&["history", "--delete", "before"]);
    assert!(
        said.starts_with("Deleted run 1 (before) of suite layers, ") && said.ends_with(", with 2 trials\n"),
        "{said}"
    );
    assert!(printed(&["history"]).contains("No run is stored yet"));
}
