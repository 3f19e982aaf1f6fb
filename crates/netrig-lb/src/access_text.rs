//! What `netrig lb access` prints: who may begin connections.

use super::message::AccessEntry;
use super::settings::ServiceText;

/// A line for each prefix, those of all services first.
pub fn write(entries: &[AccessEntry]) -> String {
    if entries.is_empty() {
        return "every address may begin connections: there is no list\n".to_owned();
    }
    let mut text = format!("{:<28} {:<6} {:<44} {:>12}\n", "service", "", "prefix", "packets");
    for AccessEntry { service, prefix, allows, packets } in entries {
        let service = service.map_or("all".to_owned(), |service| ServiceText(service).to_string());
        let allows = if *allows { "allow" } else { "deny" };
        let prefix = prefix.as_deref().unwrap_or("what is in none");
        text += &format!("{service:<28} {allows:<6} {prefix:<44} {packets:>12}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Protocol, ServiceKey};

    #[test]
    fn each_prefix_has_a_line() {
        let address = ([192, 0, 2, 1], 80).into();
        let entry = |service, prefix: Option<&str>, allows, packets| AccessEntry {
            service,
            prefix: prefix.map(str::to_owned),
            allows,
            packets,
        };
        let text = write(&[
            entry(None, Some("198.51.100.0/24"), false, 7),
            entry(Some(ServiceKey { protocol: Protocol::Tcp, address }), None, false, 1),
        ]);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1], ["all", "deny", "198.51.100.0/24", "7"]);
        assert_eq!(words[2].join(" "), "tcp 192.0.2.1:80 deny what is in none 1");
        assert!(write(&[]).contains("no list"));
    }
}
