//! Network configurations of CNI in suites: files that become part of a suite's text, and the built-in suite with a user's network.

use std::path::{Path as FilePath, PathBuf};

use rig_cli::mistakes::{self, FileError};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

use super::{Suite, limits};

/// The key whose value is a network configuration, or the name of a file with one.
const CONFLIST: &str = "conflist";
const BIN: &str = "bin";
/// How many plug-ins of the chain are called.
const PLUGINS: &str = "plugins";
/// What scenarios begin with that have the first plug-ins of the chain, and those that have all of them.
const FIRST: &str = "first";
const CHAIN: &str = "chain";

/// A user's network, for the built-in suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniNetwork {
    /// The configuration's text.
    pub conflist: String,
    /// The types of its plug-ins, in the order in which they are called.
    pub plugins: Vec<String>,
    /// Where they are looked for; empty for the customary folders.
    pub folders: Vec<PathBuf>,
}

impl Suite {
    /// The name of the built-in suite that [`Self::of_network`] changes.
    pub const CNI: &'static str = "cni";

    /// This suite, which is the built-in one of CNI, with another network: each count of its plug-ins from the first on has scenarios of
    /// its own. The text, which is stored with its runs, has all of the network.
    ///
    /// # Errors
    /// If the suite is another one.
    pub fn of_network(self, network: &CniNetwork) -> Result<Self, FileError> {
        let wrong = |what: &str, hint: &str| FileError {
            file: self.file.clone(),
            line: None,
            what: what.to_owned(),
            hint: Some(hint.to_owned()),
        };
        let own = Self::load(Self::CNI)?;
        if self.text != own.text {
            return Err(wrong(
                "--conflist and --bin are for the built-in suite cni",
                "write conflist and bin into the suite file, in [[scenario.datapath]]",
            ));
        }
        let unwritable = || wrong("the built-in suite cannot be changed", "write a suite file with the network");
        let mut text: DocumentMut = self.text.parse().map_err(|_| unwritable())?;
        text["title"] = value(format!("What network {} costs, plug-in by plug-in", network.plugins.join(", ")));
        let scenarios = text.get_mut("scenario").and_then(Item::as_array_of_tables_mut).ok_or_else(unwritable)?;
        *scenarios = with_network(scenarios, network);
        let cases = text.get_mut("table").and_then(Item::as_array_of_tables_mut).and_then(|tables| tables.get_mut(0));
        let cases = cases.and_then(|table| table.get_mut("cases")).and_then(Item::as_array_of_tables_mut);
        let cases = cases.ok_or_else(unwritable)?;
        *cases = of_chains(cases, network);
        Self::parse(&self.file, &text.to_string())
    }
}

/// The scenarios of the built-in suite with a network.
fn with_network(scenarios: &ArrayOfTables, network: &CniNetwork) -> ArrayOfTables {
    let mut all = ArrayOfTables::new();
    let is_first = |scenario: &Table| id(scenario).starts_with(FIRST);
    let pattern: Vec<&Table> = scenarios.iter().filter(|scenario| is_first(scenario)).collect();
    for scenario in scenarios.iter().filter(|scenario| !is_first(scenario)) {
        if id(scenario) == format!("{CHAIN}-stream") {
            for count in 1..network.plugins.len() {
                for one in &pattern {
                    all.push(of_plugins(one, network, count));
                }
            }
        }
        all.push(of_plugins(scenario, network, network.plugins.len()));
    }
    all
}

/// A scenario with the first plug-ins of a network, where it has any.
fn of_plugins(scenario: &Table, network: &CniNetwork, count: usize) -> Table {
    let mut scenario = scenario.clone();
    // Where the built-in file has it is not where it comes to be.
    scenario.set_position(None);
    let own = id(&scenario);
    let test = own.split_once('-').map_or(String::new(), |(_, test)| test.to_owned());
    let head = network.plugins[..count].join(", ");
    if own.starts_with(FIRST) {
        scenario["id"] = value(format!("{FIRST}{count}-{test}"));
    }
    if own.starts_with(FIRST) || own.starts_with(CHAIN) {
        let name =
            scenario["name"].as_str().and_then(|name| name.split_once(',')).map_or(test, |(name, _)| name.to_owned());
        scenario["name"] = value(format!("{name}, {head}"));
    }
    let all = scenario.get_mut("datapath").and_then(Item::as_array_mut);
    for datapath in all.into_iter().flat_map(Array::iter_mut).filter_map(Value::as_inline_table_mut) {
        datapath.insert(CONFLIST, in_one_line(&network.conflist).into());
        if !network.folders.is_empty() {
            let folders: Array = network.folders.iter().map(|folder| folder.to_string_lossy().into_owned()).collect();
            datapath.insert(BIN, folders.into());
        }
        if own.starts_with(FIRST) {
            datapath.insert(PLUGINS, (count as i64).into());
        }
    }
    scenario
}

/// The cases of the table: a bare veth pair, each first part of the chain, and all of it.
fn of_chains(cases: &ArrayOfTables, network: &CniNetwork) -> ArrayOfTables {
    let mut all: ArrayOfTables = cases.iter().take(1).cloned().collect();
    for count in 1..=network.plugins.len() {
        let id = if count == network.plugins.len() { CHAIN.to_owned() } else { format!("{FIRST}{count}") };
        let mut case = Table::new();
        case["head"] = value(network.plugins[..count].join(", "));
        case["scenarios"] =
            value(["stream", "rr", "crr"].map(|test| format!("{id}-{test}")).into_iter().collect::<Array>());
        all.push(case);
    }
    all.iter_mut().for_each(|case| case.set_position(None));
    all
}

fn id(scenario: &Table) -> String {
    scenario.get("id").and_then(Item::as_str).unwrap_or_default().to_owned()
}

/// JSON on one line, so that a suite's lines keep their numbers; what is no JSON as it is.
fn in_one_line(text: &str) -> String {
    let read: Result<serde_json::Value, _> = serde_json::from_str(text);
    read.map_or_else(|_| text.to_owned(), |value| value.to_string())
}

/// The folder beside a network configuration whose plug-ins belong to the network, too (CNI 1.1.0: SPEC.md, section 1,
/// `loadOnlyInlinedPlugins`), where there is one with any.
pub fn folder_of_more_plugins(file: &FilePath, network: &serde_json::Value) -> Option<PathBuf> {
    let is_conf = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.path().extension().is_some_and(|extension| extension == "conf"))
    };
    let only_inlined = network.get("loadOnlyInlinedPlugins").is_some_and(|only| only == true || only == "true");
    let folder = file.parent()?.join(network.get("name")?.as_str()?);
    let has_any = || std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.any(is_conf));
    (!only_inlined && has_any()).then_some(folder)
}

/// What is wrong with a network configuration whose plug-ins are not all in it, and what to do.
pub fn more_plugins(folder: &FilePath) -> (String, &'static str) {
    let what = format!("the plug-ins in {} are part of this network, too, and netrig reads one file", folder.display());
    (what, "write them into 'plugins', in the order of their files, and \"loadOnlyInlinedPlugins\": true")
}

/// A suite's text with the network configurations of the files that it names, each in place of its name: so that what is stored says all.
///
/// # Errors
/// The first file that cannot be read.
pub(super) fn with_files(file: &str, text: String) -> Result<String, FileError> {
    // Mistakes of the suite file itself are told when it is read.
    let Ok(mut document) = text.parse::<DocumentMut>() else { return Ok(text) };
    let folder = FilePath::new(file).parent().unwrap_or(FilePath::new(""));
    let mut is_changed = false;
    let mut replace = |datapath: &mut dyn TableLike| -> Result<(), FileError> {
        let Some(named) = datapath.get(CONFLIST).and_then(Item::as_str) else { return Ok(()) };
        if named.trim_start().starts_with('{') {
            return Ok(());
        }
        let path = folder.join(named);
        let read = mistakes::read_text_of(&path, limits::SIZE_MAX).map_err(|error| FileError {
            file: file.to_owned(),
            line: None,
            what: format!("the network configuration {} cannot be read: {error}", path.display()),
            hint: Some("name a file, from the folder of the suite file on, or write its JSON itself".to_owned()),
        })?;
        let mistake = |line, what, hint: &str| FileError {
            file: path.display().to_string(),
            line,
            what,
            hint: Some(hint.to_owned()),
        };
        let network: serde_json::Value = serde_json::from_str(&read).map_err(|error| {
            let hint = "write a network configuration list, as in /etc/cni/net.d/*.conflist";
            mistake(Some(error.line()), format!("no JSON: {error}"), hint)
        })?;
        if let Some(folder) = folder_of_more_plugins(&path, &network) {
            let (what, hint) = more_plugins(&folder);
            return Err(mistake(None, what, hint));
        }
        datapath.insert(CONFLIST, value(in_one_line(&read)));
        is_changed = true;
        Ok(())
    };
    let scenarios = document.get_mut("scenario").and_then(Item::as_array_of_tables_mut);
    for scenario in scenarios.into_iter().flat_map(ArrayOfTables::iter_mut) {
        match scenario.get_mut("datapath") {
            Some(Item::ArrayOfTables(tables)) => tables.iter_mut().try_for_each(|own| replace(own))?,
            Some(Item::Value(Value::Array(list))) => {
                let tables = list
                    .iter_mut()
                    .filter_map(|own: &mut Value| -> Option<&mut InlineTable> { own.as_inline_table_mut() });
                for own in tables {
                    replace(own)?;
                }
            }
            _ => {}
        }
    }
    Ok(if is_changed { document.to_string() } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(plugins: &[&str]) -> CniNetwork {
        let objects: Vec<String> = plugins.iter().map(|name| format!("{{ \"type\": \"{name}\" }}")).collect();
        CniNetwork {
            conflist: format!(
                "{{ \"cniVersion\": \"1.0.0\",\n \"name\": \"it's\",\n \"plugins\": [{}] }}",
                objects.join(",\n")
            ),
            plugins: plugins.iter().map(ToString::to_string).collect(),
            folders: vec!["/usr/lib/cni".into()],
        }
    }

    #[test]
    fn each_part_of_a_chain_has_scenarios_of_its_own() {
        let ids = |suite: &Suite| suite.scenarios.iter().map(|scenario| scenario.id.clone()).collect::<Vec<_>>();
        let own = Suite::load(Suite::CNI).unwrap();
        let three = own.clone().of_network(&network(&["bridge", "portmap", "tuning"])).unwrap();
        let expected = ["bare", "first1", "first2", "chain"]
            .iter()
            .flat_map(|case| ["stream", "rr", "crr"].map(|test| format!("{case}-{test}")));
        assert_eq!(ids(&three), expected.chain(["operations".to_owned()]).collect::<Vec<_>>());
        let of = |id: &str| &three.scenario(id).unwrap().datapaths[0].settings;
        assert_eq!((of("first2-rr")["plugins"].as_u64(), of("chain-rr").get("plugins")), (Some(2), None));
        // What a plug-in is told besides is the same in each part, so that the next one is not charged for it.
        assert_eq!(of("first2-rr")["capabilities"], of("chain-rr")["capabilities"]);
        assert!(of("operations")["conflist"].as_str().unwrap().contains("it's"));
        assert_eq!(of("first1-crr")["bin"], serde_json::json!(["/usr/lib/cni"]));
        assert_eq!(three.scenario("first2-crr").unwrap().name, "connections, bridge, portmap");
        let one = own.clone().of_network(&network(&["ptp"])).unwrap();
        assert_eq!(ids(&one).len(), 7);
        // A report reads the text that is stored.
        let stored = Suite::parse_stored(&three.file, &three.text).unwrap();
        assert_eq!(stored.scenarios, three.scenarios);
        // The one that is built in is what comes of its own network.
        let built_in = CniNetwork {
            conflist: own.scenario("operations").unwrap().datapaths[0].settings["conflist"]
                .as_str()
                .unwrap()
                .to_owned(),
            plugins: vec!["bridge".into(), "portmap".into()],
            folders: Vec::new(),
        };
        let again = own.clone().of_network(&built_in).unwrap();
        assert_eq!(ids(&again), ids(&own));
        let other = Suite::load("latency").unwrap().of_network(&built_in).unwrap_err().to_string();
        assert!(other.contains("for the built-in suite cni"), "{other}");
    }

    #[test]
    fn a_file_becomes_part_of_the_text_and_lines_keep_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("net.conflist", &network(&["bridge", "portmap"]).conflist);
        write("broken.conflist", "{\n  \"name\": }");
        let suite = |conflist: &str| {
            format!(
                "[[scenario]]\nid = \"x\"\n\n[[scenario.datapath]]\nname = \"cni\"\nconflist = \"{conflist}\"\n\n[[scenario]]\n\
                 datapath = [{{ name = \"cni\", conflist = \"{conflist}\" }}]\n"
            )
        };
        let read =
            |conflist: &str| with_files(&folder.path().join("suite.toml").display().to_string(), suite(conflist));
        let text = read("net.conflist").unwrap();
        assert_eq!(text.lines().count(), suite("").lines().count(), "{text}");
        let document: DocumentMut = text.parse().unwrap();
        let first = document["scenario"][0]["datapath"][0]["conflist"].as_str().unwrap();
        assert_eq!(Some(first), document["scenario"][1]["datapath"][0]["conflist"].as_str());
        assert_eq!(serde_json::from_str::<serde_json::Value>(first).unwrap()["plugins"][1]["type"], "portmap");
        let absent = read("absent.conflist").unwrap_err().to_string();
        assert!(absent.contains("absent.conflist cannot be read"), "{absent}");
        let broken = read("broken.conflist").unwrap_err();
        assert!(broken.file.ends_with("broken.conflist") && broken.line == Some(2), "{broken}");
        std::fs::create_dir(folder.path().join("it's")).unwrap();
        write("it's/10-more.conf", "{}");
        let more = read("net.conflist").unwrap_err().to_string();
        assert!(more.contains("it's are part of this network, too"), "{more}");
        let alone = network(&["bridge"]).conflist.replacen('{', "{ \"loadOnlyInlinedPlugins\": true,", 1);
        write("net.conflist", &alone);
        assert!(read("net.conflist").is_ok());
        let inline = "conflist = '{}'\n[[scenario]]\n".to_owned();
        assert_eq!(with_files("suite.toml", inline.clone()).unwrap(), inline);
    }
}
