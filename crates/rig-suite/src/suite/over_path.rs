//! A suite over another path than its file has.

use rig_cli::mistakes::FileError;
use rig_packet::benchmark::ETHERNET;
use rig_testbed::topology::{Endpoints, Family, Layout, Path};
use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::Suite;

/// Of a wire that says nothing of it.
const MTU: u32 = 1500;

impl Suite {
    /// This suite over `path`, with the nodes and endpoints that such a path has. Its text, which is stored with its runs, says so.
    ///
    /// # Errors
    /// If there is no such path, if the suite compares several, or if its loads cannot go over this one.
    pub fn over(self, path: &str) -> Result<Self, FileError> {
        let wrong = |what: String, hint: &str| FileError {
            file: self.file.clone(),
            line: None,
            what,
            hint: Some(hint.to_owned()),
        };
        let path: Path =
            path.parse().map_err(|error| wrong(format!("--path: {error}"), "`netrig list` has all paths"))?;
        let mut paths: Vec<&str> = self.scenarios.iter().map(|scenario| scenario.topology.path().name()).collect();
        paths.sort_unstable();
        paths.dedup();
        if let [_, _, ..] = paths.as_slice() {
            let what = format!("--path: the suite compares paths ({})", paths.join(", "));
            return Err(wrong(what, "it is for suites of one path, such as rfc2544"));
        }
        let mut text: DocumentMut = self.text.parse().map_err(|error| {
            wrong(
                format!("--path: cannot change the suite: {error}"),
                "netrig reads it and cannot write it: remove --path",
            )
        })?;
        if let Some(Item::Value(title)) = text.get_mut("title") {
            *title = format!("{}, over {}", self.title, path.name()).into();
        }
        let testbeds = text.get_mut("testbed").and_then(Item::as_table_like_mut);
        for (_, testbed) in testbeds.into_iter().flat_map(|testbeds| testbeds.iter_mut()) {
            let Some(testbed) = testbed.as_table_mut() else { continue };
            testbed["nodes"] = value(nodes(path).iter().copied().collect::<Array>());
            if path.layout() == Layout::One {
                testbed.remove("wire");
            } else if !testbed.contains_key("wire") {
                testbed["wire"] = value(toml_edit::InlineTable::new());
            }
        }
        let scenarios = text.get_mut("scenario").and_then(Item::as_array_of_tables_mut);
        for scenario in scenarios.into_iter().flat_map(|scenarios| scenarios.iter_mut()) {
            place(scenario, path);
            make_room(scenario, path.overhead(Family::Ipv4).max(path.overhead(Family::Ipv6)));
        }
        let over = Self::parse(&self.file, &text.to_string())?;
        if over.scenarios.iter().any(|scenario| scenario.topology.path() != path) {
            let what = "--path: the suite's scenarios and testbeds are written in one line".to_owned();
            return Err(wrong(what, "write each as a table of its own, [[scenario]] and [testbed.NAME]"));
        }
        Ok(over)
    }
}

fn nodes(path: Path) -> &'static [&'static str] {
    match path.layout() {
        Layout::One => &["a"],
        Layout::OneOrTwo | Layout::Two | Layout::Several => &["a", "b"],
        Layout::Dut | Layout::NoDut => &["client", "dut", "server"],
    }
}

fn place(scenario: &mut Table, path: Path) {
    let (first, last) = match nodes(path) {
        [first, .., last] => (*first, *last),
        [only] => (*only, *only),
        [] => return,
    };
    let (from, to) = match path.endpoints() {
        Endpoints::Nodes => (first.to_owned(), last.to_owned()),
        Endpoints::Containers | Endpoints::ContainersOrNode => (format!("{first}/sender"), format!("{last}/receiver")),
    };
    for (key, text) in [("path", path.name().to_owned()), ("from", from), ("to", to)] {
        scenario[key] = value(text);
    }
}

/// Gives the wire of a scenario whose frames are too large for a path with headers of its own an MTU that has room for them.
fn make_room(scenario: &mut Table, overhead: u32) {
    let frame = scenario.get("load").and_then(|load| load.get("frame")).and_then(Item::as_integer);
    let Some(packet) = frame.and_then(|frame| u32::try_from(frame).ok()?.checked_sub(ETHERNET)) else { return };
    if packet + overhead > MTU && scenario.get("wire").is_none() {
        scenario["wire"] = value(toml_edit::InlineTable::from_iter([("mtu", i64::from(packet + overhead))]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_of_one_path_goes_over_each() {
        for path in Path::all().filter(|path| !path.addresses_are_given()) {
            let over = Suite::load("rfc2544").unwrap().over(path.name()).unwrap_or_else(|error| panic!("{error}"));
            assert!(over.scenarios.iter().all(|scenario| scenario.topology.path() == path), "{}", path.name());
            assert_eq!(over.scenarios.len(), 7);
            // A report reads the text that is stored.
            let stored = Suite::parse_stored(&over.file, &over.text).unwrap();
            assert_eq!((&stored.title, stored.scenarios), (&over.title, over.scenarios));
        }
    }

    #[test]
    fn what_cannot_be_put_over_a_path_is_refused() {
        let over = |suite: &str, path: &str| Suite::load(suite).unwrap().over(path).unwrap_err().to_string();
        assert!(over("rfc2544", "brigde").contains("paths are raw, etun, bridge"), "{}", over("rfc2544", "brigde"));
        assert!(over("rfc2544", "cni").contains("packets over path cni"), "{}", over("rfc2544", "cni"));
        assert!(over("layers", "vxlan").contains("compares paths"), "{}", over("layers", "vxlan"));
    }
}
