//! What `netrig lb sources` prints: who has the most connections.

use super::message::SourceList;
use super::settings::ServiceText;

/// A line for each source, the one with the most connections first.
pub fn write(list: &SourceList) -> String {
    if list.sources.is_empty() {
        return "there are no connections\n".to_owned();
    }
    let mut text = format!("{:<28} {:<43} {:>11} {:>10}\n", "service", "source", "connections", "limit");
    for entry in &list.sources {
        let service = ServiceText(entry.service).to_string();
        let limit = entry.source_limit.map_or("-".to_owned(), |limit| limit.to_string());
        text += &format!("{service:<28} {:<43} {:>11} {limit:>10}\n", entry.source, entry.connections);
    }
    if list.fewer_may_be_missing > 0 {
        text += &format!("others may have up to {} connections each\n", list.fewer_may_be_missing);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Protocol, ServiceKey, SourceEntry};

    #[test]
    fn each_source_has_a_line() {
        let service = ServiceKey { protocol: Protocol::Tcp, address: ([192, 0, 2, 1], 80).into() };
        let entry = |source: &str, connections, source_limit| SourceEntry {
            service,
            source: source.to_owned(),
            connections,
            source_limit,
        };
        let sources = vec![entry("198.51.100.0/24", 7, Some(10)), entry("2001:db8::/64", 5, None)];
        let text = write(&SourceList { sources, fewer_may_be_missing: 3 });
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1].join(" "), "tcp 192.0.2.1:80 198.51.100.0/24 7 10");
        assert_eq!(words[2].join(" "), "tcp 192.0.2.1:80 2001:db8::/64 5 -");
        assert_eq!(words[3].join(" "), "others may have up to 3 connections each");
        assert!(write(&SourceList::default()).contains("no connections"));
    }
}
