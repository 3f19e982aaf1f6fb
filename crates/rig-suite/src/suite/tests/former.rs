//! Built-in suites as they were: stored runs have their texts, which are read again for each report.

use super::*;

const FORMER: [(&str, &str); 3] = [
    ("layers", include_str!("../../../tests/suites/layers-first.toml")),
    ("namespaces", include_str!("../../../tests/suites/namespaces-first.toml")),
    ("balancer", include_str!("../../../tests/suites/balancer-first.toml")),
];

#[test]
fn texts_of_former_suites_are_read() {
    for (name, text) in FORMER {
        let suite = Suite::parse_stored(&format!("{name}.toml"), text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(suite.name, name);
        // Scenarios and tables have ids of their own, lists one for all their rows.
        let ids = || text.lines().filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"'));
        assert!(ids().count() > 5, "{name}");
        for id in ids() {
            let is_of = |scenario: &&Scenario| scenario.id == id || scenario.row_of.as_deref() == Some(id);
            assert!(suite.scenarios.iter().any(|scenario| is_of(&scenario)), "{name}: {id}");
        }
        assert_eq!(suite.claims.len(), text.matches("[[claim]]").count(), "{name}");
        assert_eq!(suite.tables.len(), text.matches("[[table]]").count(), "{name}");
    }
}
