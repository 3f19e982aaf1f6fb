//! What differs between two files, for who has had one read in place of the other.

use std::collections::BTreeMap;

use super::Settings;

/// In words, a line each.
pub fn between(before: &Settings, now: &Settings) -> Vec<String> {
    let mut said = Vec::new();
    if before.router != now.router {
        said.push("[router] changed".to_owned());
    }
    of("node", &before.nodes, &now.nodes, &mut said);
    of("network", &before.networks, &now.networks, &mut said);
    of("interface", &before.interfaces, &now.interfaces, &mut said);
    of("security group", &before.security_groups, &now.security_groups, &mut said);
    of("policy", &before.policies, &now.policies, &mut said);
    of("analyser", &before.analysers, &now.analysers, &mut said);
    said
}

fn of<T: PartialEq>(kind: &str, before: &BTreeMap<String, T>, now: &BTreeMap<String, T>, said: &mut Vec<String>) {
    for (name, thing) in now {
        match before.get(name) {
            None => said.push(format!("{kind} '{name}' added")),
            Some(old) if old != thing => said.push(format!("{kind} '{name}' changed")),
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    said.extend(gone.map(|name| format!("{kind} '{name}' removed")));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    const FILE: &str =
        "[[node]]\nname = 'a'\naddress = '192.0.2.1'\n[[network]]\nname = 'red'\nsubnets = ['10.1.0.0/24']\n";

    #[test]
    fn what_differs_is_told_by_name() {
        let parse = |text: &str| Settings::parse("vrouter.toml", text).unwrap();
        let before = parse(FILE);
        assert_eq!(between(&before, &before), [""; 0]);
        let more = "[router]\nflows = 2000\n".to_owned()
            + &FILE.replace("10.1.0.0/24", "10.1.0.0/16").replace("'a'", "'b'")
            + "[[security_group]]\nname = 'web'\n";
        let told = [
            "[router] changed",
            "node 'b' added",
            "node 'a' removed",
            "network 'red' changed",
            "security group 'web' added",
        ];
        assert_eq!(between(&before, &parse(&more)), told);
    }
}
