//! The built-in suite of container engines with a network of an engine of the machine's.

use std::path::PathBuf;

use rig_cli::mistakes::FileError;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

use super::Suite;

/// What scenarios begin with that have no engine, those that have Docker's own bridge, and those that have the network instead.
const WITHOUT: [&str; 3] = ["bare-", "netns-", "local-"];
const BRIDGE: &str = "bridge-";
const NETWORK: &str = "network-";
/// What the built-in suite calls that bridge, in titles of scenarios and in sentences.
const BRIDGE_TITLE: &str = "Docker bridge";
const BRIDGE_WORDS: &str = "Docker's bridge";

/// A network of an engine of the machine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineNetwork {
    pub name: String,
    /// Where the engine is asked.
    pub socket: PathBuf,
}

impl Suite {
    /// The name of the built-in suite that [`Self::of_engine`] changes.
    pub const DOCKER: &'static str = "docker";

    /// This suite, which is the built-in one of container engines, with a network of an engine in place of all that is made for it, beside
    /// a bare veth pair and a bridge of namespaces.
    ///
    /// # Errors
    /// If the suite is another one.
    pub fn of_engine(self, network: &EngineNetwork) -> Result<Self, FileError> {
        let wrong = |what: &str, hint: &str| FileError {
            file: self.file.clone(),
            line: None,
            what: what.to_owned(),
            hint: Some(hint.to_owned()),
        };
        if self.text != Self::load(Self::DOCKER)?.text {
            return Err(wrong(
                "--network and --engine are for the built-in suite docker",
                "write network and engine into the suite file, in [[scenario.datapath]]",
            ));
        }
        let unwritable = || wrong("the built-in suite cannot be changed", "write a suite file with the network");
        let mut text: DocumentMut = self.text.parse().map_err(|_| unwritable())?;
        let title = format!("network {}", network.name);
        text["title"] = value(format!("What {title} costs"));
        text["question"] = value(format!("What do two containers on {title} keep of a bare veth pair?"));
        text["about"] = value(format!(
            "Streams, transactions, and connections of one transaction each, with CPU time by layer, between two containers: joined by a bare \
             veth pair, by a bridge of namespaces, by netrig's vRouter, and on {title} of the container engine at {}. Its containers, and the image that they are \
             made of, are removed afterwards.",
            network.socket.display()
        ));
        if let Some(testbeds) = text.get_mut("testbed").and_then(Item::as_table_mut) {
            testbeds.remove("pair");
        }
        let scenarios = tables(&mut text, "scenario").ok_or_else(unwritable)?;
        *scenarios = scenarios.iter().filter_map(|scenario| with_network(scenario, network)).collect();
        let all = tables(&mut text, "table").ok_or_else(unwritable)?;
        while all.len() > 1 {
            all.remove(1);
        }
        let cases = all.get_mut(0).and_then(|table| tables(table, "cases")).ok_or_else(unwritable)?;
        *cases = cases.iter().filter_map(|case| case_with_network(case, network)).collect();
        for kind in ["answer", "claim"] {
            let sentences = tables(&mut text, kind).ok_or_else(unwritable)?;
            let is_of_bridge =
                |sentence: &&Table| sentence["text"].as_str().is_some_and(|text| text.starts_with(BRIDGE_WORDS));
            *sentences = sentences.iter().filter(is_of_bridge).map(|sentence| of_network(sentence, &title)).collect();
        }
        Self::parse(&self.file, &text.to_string())
    }
}

fn tables<'t>(of: &'t mut Table, key: &str) -> Option<&'t mut ArrayOfTables> {
    of.get_mut(key).and_then(Item::as_array_of_tables_mut)
}

/// A scenario of the built-in suite as it is with a network; `None` where it has no place beside one.
fn with_network(scenario: &Table, network: &EngineNetwork) -> Option<Table> {
    let id = scenario.get("id").and_then(Item::as_str)?;
    let mut own = scenario.clone();
    // Where the built-in file has it is not where it comes to be.
    own.set_position(None);
    if WITHOUT.iter().any(|prefix| id.starts_with(prefix)) {
        return Some(own);
    }
    let test = id.strip_prefix(BRIDGE)?;
    own["id"] = value(format!("{NETWORK}{test}"));
    own["name"] = value(scenario["name"].as_str()?.replace(BRIDGE_TITLE, &format!("network {}", network.name)));
    let settings = [
        ("name", Suite::DOCKER.to_owned()),
        ("network", network.name.clone()),
        ("engine", network.socket.to_string_lossy().into_owned()),
    ];
    let datapath: InlineTable = settings.into_iter().collect();
    own["datapath"] = value(Array::from_iter([Value::from(datapath)]));
    Some(own)
}

/// The same of a table's case.
fn case_with_network(case: &Table, network: &EngineNetwork) -> Option<Table> {
    let mut own = case.clone();
    own.set_position(None);
    let ids: Vec<String> =
        case["scenarios"].as_array()?.iter().filter_map(|id| id.as_str().map(ToOwned::to_owned)).collect();
    let first = ids.first()?;
    if first.starts_with(BRIDGE) {
        own["head"] = value(format!("network {}", network.name));
        own["scenarios"] = value(ids.iter().map(|id| id.replacen(BRIDGE, NETWORK, 1)).collect::<Array>());
        return Some(own);
    }
    WITHOUT.iter().any(|prefix| first.starts_with(prefix)).then_some(own)
}

/// An answer or a claim about Docker's own bridge as one about the network.
fn of_network(sentence: &Table, title: &str) -> Table {
    let mut own = sentence.clone();
    own.set_position(None);
    let replaced = |text: &str| {
        let text = text.replace(BRIDGE, NETWORK);
        match text.strip_prefix(BRIDGE_WORDS) {
            Some(rest) => format!("{}{rest}", capital(title)),
            None => text,
        }
    };
    for key in ["text", "holds"] {
        if let Some(text) = own.get(key).and_then(Item::as_str).map(replaced) {
            own[key] = value(text);
        }
    }
    let parts = own.get_mut("parts").and_then(Item::as_array_mut);
    for part in parts.into_iter().flat_map(Array::iter_mut).filter_map(Value::as_inline_table_mut) {
        if let Some(formula) = part.get("value").and_then(Value::as_str).map(replaced) {
            part.insert("value", formula.into());
        }
    }
    own
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_the_machine_is_beside_what_needs_no_engine() {
        let network = EngineNetwork { name: "my\"net".into(), socket: "/run/podman/podman.sock".into() };
        let suite = Suite::load(Suite::DOCKER).unwrap().of_engine(&network).unwrap();
        let ids: Vec<&str> = suite.scenarios.iter().map(|scenario| scenario.id.as_str()).collect();
        let expected: Vec<String> = ["bare", "netns", "network", "local"]
            .iter()
            .flat_map(|case| ["stream", "rr", "crr"].map(|test| format!("{case}-{test}")))
            .collect();
        assert_eq!(ids, expected);
        let own = suite.scenario("network-rr").unwrap();
        let settings = &own.datapaths[0].settings;
        assert_eq!(
            (settings["network"].as_str(), settings["engine"].as_str()),
            (Some("my\"net"), Some("/run/podman/podman.sock"))
        );
        assert_eq!(own.name, "transactions, network my\"net");
        assert_eq!((suite.tables.len(), suite.claims.len(), suite.answers.len()), (1, 2, 1));
        assert!(suite.text.contains("Network my") && !suite.text.contains(BRIDGE_WORDS), "{}", suite.text);
        // A report reads the text that is stored.
        assert_eq!(Suite::parse_stored(&suite.file, &suite.text).unwrap().scenarios, suite.scenarios);
        let other = Suite::load("latency").unwrap().of_engine(&network).unwrap_err().to_string();
        assert!(other.contains("for the built-in suite docker"), "{other}");
    }
}
