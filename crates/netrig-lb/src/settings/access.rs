//! Lists of who may begin connections, and who may not: prefixes as files and commands say them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use rig_datapath::balancer::AccessLists;
use rig_stats::units::counted;

use super::rules::{EditError, Rules};
use crate::message::ServiceKey;

/// What one service says, or all of them together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    pub allow: PrefixList,
    pub deny: PrefixList,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixList {
    pub said: BTreeSet<IpNet>,
    pub file: Option<PrefixFile>,
}

/// A file of prefixes, as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixFile {
    pub path: PathBuf,
    pub prefixes: Arc<BTreeSet<IpNet>>,
}

/// What keeps a file of prefixes from being used.
#[derive(Debug, thiserror::Error)]
pub enum PrefixFileError {
    #[error("{} is not a whole path: it is read again by each reload", .0.display())]
    Relative(PathBuf),
    #[error("cannot read {}: {}", .0.display(), .1)]
    Read(PathBuf, std::io::Error),
    #[error("{} is not a file", .0.display())]
    NoFile(PathBuf),
    #[error("{} has more than {MOST_BYTES} bytes", .0.display())]
    Large(PathBuf),
    #[error("{}:{line}: {what}", .path.display())]
    Line { path: PathBuf, line: usize, what: String },
}

/// Of a file: some 50 for each of 2^20 prefixes.
const MOST_BYTES: u64 = 64 << 20;

/// `198.51.100.0/24`, `2001:db8::/32`, or an address alone.
pub fn parse_prefix(text: &str) -> Result<IpNet, String> {
    let prefix = match text.parse::<IpNet>() {
        Ok(prefix) => prefix,
        Err(_) => match text.parse::<IpAddr>() {
            Ok(address) => address.into(),
            Err(_) => {
                return Err(format!("'{text}' is not a prefix: write 198.51.100.0/24, 2001:db8::/32 or an address"));
            }
        },
    };
    if prefix.trunc() != prefix {
        return Err(format!("'{text}' has bits set behind its length: write {}", prefix.trunc()));
    }
    match prefix {
        IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some() => {
            Err(format!("'{text}' is IPv4 in IPv6: write it as a prefix of IPv4"))
        }
        _ => Ok(prefix),
    }
}

impl PrefixFile {
    /// A prefix a line; what is behind a # is left out.
    pub fn read(path: &Path) -> Result<Self, PrefixFileError> {
        match Self::read_lines(path)? {
            (_, Some(wrong)) => Err(wrong),
            (file, None) => Ok(file),
        }
    }

    /// Without lines that are wrong, of which the first is told. A file in which no line is right is refused: an empty list is none.
    pub(super) fn read_what_is_right(path: &Path) -> Result<(Self, Option<PrefixFileError>), PrefixFileError> {
        match Self::read_lines(path)? {
            (file, Some(wrong)) if file.prefixes.is_empty() => Err(wrong),
            read => Ok(read),
        }
    }

    /// The right lines, and what is wrong with the first other one.
    fn read_lines(path: &Path) -> Result<(Self, Option<PrefixFileError>), PrefixFileError> {
        if !path.is_absolute() {
            return Err(PrefixFileError::Relative(path.to_owned()));
        }
        let read = |error| PrefixFileError::Read(path.to_owned(), error);
        let mut text = String::new();
        // Nobody waits for who writes into a FIFO.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(read)?;
        if !file.metadata().map_err(read)?.is_file() {
            return Err(PrefixFileError::NoFile(path.to_owned()));
        }
        let length = file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(read)?;
        if length as u64 > MOST_BYTES {
            return Err(PrefixFileError::Large(path.to_owned()));
        }
        let (mut prefixes, mut first_wrong) = (BTreeSet::new(), None);
        for (at, line) in text.lines().enumerate() {
            let said = line.split_once('#').map_or(line, |(said, _)| said).trim();
            if !said.is_empty() {
                let wrong = |what| PrefixFileError::Line { path: path.to_owned(), line: at + 1, what };
                match parse_prefix(said) {
                    Ok(prefix) => drop(prefixes.insert(prefix)),
                    Err(what) => first_wrong = first_wrong.or_else(|| Some(wrong(what))),
                }
            }
        }
        Ok((Self { path: path.to_owned(), prefixes: Arc::new(prefixes) }, first_wrong))
    }
}

impl PrefixList {
    fn prefixes(&self) -> impl Iterator<Item = &IpNet> {
        self.said.iter().chain(self.file.iter().flat_map(|file| file.prefixes.iter()))
    }

    fn contains(&self, prefix: &IpNet) -> bool {
        self.said.contains(prefix) || self.file.as_ref().is_some_and(|file| file.prefixes.contains(prefix))
    }

    fn take_out_of_file(&mut self, prefixes: &BTreeSet<IpNet>) {
        if let Some(file) = self.file.as_mut().filter(|_| !prefixes.is_empty()) {
            file.prefixes = Arc::new(file.prefixes.difference(prefixes).copied().collect());
        }
    }

    fn whole(&self) -> BTreeSet<IpNet> {
        self.prefixes().copied().collect()
    }
}

impl Access {
    /// As the datapath shall have them.
    pub(super) fn in_force(&self) -> AccessLists {
        AccessLists { allow: self.allow.whole(), deny: self.deny.whole() }
    }

    /// Prefixes that are in both lists because a file has them by now stay as a command has said, or are denied if two files have them. An
    /// allow list that would be empty, so none, is left as it is. What was taken out of files.
    pub(super) fn settle(&mut self) -> BTreeSet<IpNet> {
        let (allow, deny) = (self.allow.whole(), self.deny.whole());
        let both = allow.intersection(&deny).copied();
        let (stay, go): (BTreeSet<IpNet>, BTreeSet<IpNet>) = both.partition(|prefix| self.allow.said.contains(prefix));
        if allow.len() > go.len() {
            self.allow.take_out_of_file(&go);
        }
        self.deny.take_out_of_file(&stay);
        let settled = |prefix: &IpNet| !(self.allow.contains(prefix) && self.deny.contains(prefix));
        stay.into_iter().chain(go).filter(settled).collect()
    }

    pub(super) fn lists(&self) -> [(&'static str, &PrefixList); 2] {
        [("allow", &self.allow), ("deny", &self.deny)]
    }

    /// What has changed since `before`, a line for each list.
    pub(super) fn changes_since(&self, before: &Self) -> Vec<String> {
        let lists = before.lists().into_iter().zip(self.lists()).filter(|((_, before), (_, now))| before != now);
        let said = lists.map(|((name, before), (_, now))| {
            let (before, now) = (before.whole(), now.whole());
            let (come, gone) = (now.difference(&before).count(), before.difference(&now).count());
            format!("{name}: {} added, {gone} removed, {} in all", counted(come, "prefix", "prefixes"), now.len())
        });
        said.collect()
    }
}

/// What a command does to the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixChange {
    Allow,
    Deny,
    Remove,
}

impl Rules {
    /// Of a service, or of all.
    pub(super) fn change_prefix(
        &mut self,
        service: Option<ServiceKey>,
        prefix: IpNet,
        change: PrefixChange,
    ) -> Result<(), EditError> {
        let access = match service {
            Some(key) => &mut self.service_mut(key)?.access,
            None => &mut self.access,
        };
        if change == PrefixChange::Remove {
            let from_file = access.lists().into_iter().find_map(|(_, list)| {
                list.file.as_ref().filter(|file| file.prefixes.contains(&prefix)).map(|file| file.path.clone())
            });
            return match from_file {
                // Taken out here, it would still be in the list.
                Some(path) => Err(EditError::PrefixOfFile(prefix, path)),
                None if access.allow.said.remove(&prefix) || access.deny.said.remove(&prefix) => Ok(()),
                None => Err(EditError::NoPrefix(prefix)),
            };
        }
        if let Some((name, _)) = access.lists().into_iter().find(|(_, list)| list.contains(&prefix)) {
            return Err(EditError::PrefixExists(prefix, name));
        }
        let list = if change == PrefixChange::Allow { &mut access.allow } else { &mut access.deny };
        list.said.insert(prefix);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_of_one_form() {
        let shown = |text: &str| parse_prefix(text).map(|prefix| prefix.to_string());
        assert_eq!(shown("198.51.100.0/24").unwrap(), "198.51.100.0/24");
        assert_eq!(shown("198.51.100.7").unwrap(), "198.51.100.7/32");
        assert_eq!(shown("2001:db8::").unwrap(), "2001:db8::/128");
        assert_eq!(shown("0.0.0.0/0").unwrap(), "0.0.0.0/0");
        assert!(shown("198.51.100.7/24").unwrap_err().ends_with("write 198.51.100.0/24"));
        assert!(shown("::ffff:198.51.100.0/120").unwrap_err().contains("IPv4 in IPv6"));
        for wrong in ["", "198.51.100.0/33", "198.51.100/24", "198.51.100.0-198.51.100.7", "name"] {
            assert!(shown(wrong).unwrap_err().contains("is not a prefix"), "{wrong}");
        }
    }

    fn list(said: &[&str], file: &[&str]) -> PrefixList {
        let set = |prefixes: &[&str]| prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
        let file = PrefixFile { path: "/list".into(), prefixes: Arc::new(set(file)) };
        PrefixList { said: set(said), file: Some(file) }
    }

    #[test]
    fn a_command_takes_nothing_out_of_a_file() {
        let (both, alone) = ("10.0.0.0/8".parse().unwrap(), "10.1.0.0/16".parse().unwrap());
        let deny = list(&["10.0.0.0/8", "10.1.0.0/16"], &["10.0.0.0/8"]);
        let mut rules = Rules { access: Access { deny, ..Access::default() }, ..Rules::default() };
        let refused = rules.change_prefix(None, both, PrefixChange::Remove);
        assert_eq!(refused, Err(EditError::PrefixOfFile(both, "/list".into())));
        assert!(rules.access.deny.said.contains(&both));
        rules.change_prefix(None, alone, PrefixChange::Remove).unwrap();
        assert_eq!(rules.change_prefix(None, alone, PrefixChange::Remove), Err(EditError::NoPrefix(alone)));
    }

    #[test]
    fn what_a_command_has_said_holds_against_a_file() {
        let settled = |allow: PrefixList, deny: PrefixList| {
            let mut access = Access { allow, deny };
            let out: Vec<String> = access.settle().iter().map(IpNet::to_string).collect();
            (out, access.in_force())
        };
        let (out, lists) = settled(list(&["10.0.0.2/32"], &[]), list(&[], &["10.0.0.2/32", "10.0.0.3/32"]));
        assert_eq!((out, lists.allow.len(), lists.deny.len()), (vec!["10.0.0.2/32".to_owned()], 1, 1));
        // As it is denied by a command, or by both files.
        for said in [&["10.0.0.2/32"][..], &[]] {
            let (out, lists) = settled(list(&[], &["10.0.0.2/32", "10.0.0.3/32"]), list(said, &["10.0.0.2/32"]));
            assert_eq!((out, lists.allow.len(), lists.deny.len()), (vec!["10.0.0.2/32".to_owned()], 1, 1));
        }
        // Nobody may begin more than before: no allow list is made empty.
        let (out, lists) = settled(list(&[], &["10.0.0.2/32"]), list(&["10.0.0.2/32"], &[]));
        assert_eq!((out, lists.allow.len(), lists.deny.len()), (vec![], 1, 1));
    }

    #[test]
    fn a_file_has_a_prefix_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deny");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            PrefixFile::read(&path).map(|file| file.prefixes.len()).map_err(|error| error.to_string())
        };
        assert_eq!(read("# all\n198.51.100.0/24 # one\n\n  2001:db8::/32\r\n198.51.100.0/24\n"), Ok(2));
        assert_eq!(read(""), Ok(0));
        let wrong = read("198.51.100.0/24\n\n198.51.100.0/25 198.51.101.0/25\n").unwrap_err();
        assert!(wrong.contains("deny:3: '198.51.100.0/25 198.51.101.0/25' is not a prefix"), "{wrong}");
        std::fs::write(&path, "198.51.100.0/24\n198.51.1").unwrap();
        let (half, wrong) = PrefixFile::read_what_is_right(&path).unwrap();
        assert_eq!(half.prefixes.len(), 1);
        assert!(wrong.unwrap().to_string().contains("deny:2: '198.51.1' is not a prefix"));
        std::fs::write(&path, "198.51.1").unwrap();
        assert!(PrefixFile::read_what_is_right(&path).is_err(), "an empty list would be none");
        assert!(matches!(PrefixFile::read(Path::new("deny")), Err(PrefixFileError::Relative(_))));
        assert!(matches!(PrefixFile::read(directory.path()), Err(PrefixFileError::NoFile(_))));
        assert!(matches!(PrefixFile::read(&directory.path().join("none")), Err(PrefixFileError::Read(..))));
    }
}
