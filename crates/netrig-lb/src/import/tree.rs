//! The form of keepalived.conf: lines of words, blocks in braces, comments, quotation marks, definitions, and files that are included.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::LONGEST;

/// Blocks within blocks, and files within files.
const DEEPEST: usize = 32;
/// Words in all files, definitions replaced.
const MOST_WORDS: usize = 2_000_000;
const MOST_FILES: usize = 1000;
/// They differ in what keepalived complains about.
const INCLUDES: [&str; 6] = ["include", "includer", "includem", "includew", "includeb", "includea"];

/// Where a line stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceLine {
    file: Option<String>,
    line: usize,
}

impl std::fmt::Display for SourceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file} line {}", self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

/// A line with what is in its braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) words: Vec<String>,
    pub(super) place: SourceLine,
    pub(super) within: Vec<Block>,
}

impl Block {
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn word(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }

    /// The last line of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Self> {
        self.within.iter().rev().find(|block| block.name() == name)
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.find(name)?.word(1)
    }
}

/// Files that are included.
pub(crate) struct Files {
    folder: Option<PathBuf>,
    opened: usize,
    read: u64,
}

impl Files {
    pub(crate) fn below(folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), opened: 0, read: 0 }
    }

    /// Nothing can be included.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn none() -> Self {
        Self { folder: None, opened: 0, read: 0 }
    }

    /// The files that a pattern names, `*` and `?` in the last part of its path alone.
    fn matching(&self, folder: &Path, pattern: &str) -> anyhow::Result<Vec<PathBuf>> {
        let path = folder.join(pattern);
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if !name.contains(['*', '?']) {
            return Ok(vec![path]);
        }
        let parent = path.parent().unwrap_or(Path::new("."));
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let entries = std::fs::read_dir(parent).with_context(|| format!("include {pattern}"))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|entry| !entry.starts_with('.') && matches(&name, entry)).collect();
        names.sort();
        Ok(names.into_iter().map(|name| parent.join(name)).collect())
    }

    fn open(&mut self, path: &Path) -> anyhow::Result<String> {
        self.opened += 1;
        if self.opened > MOST_FILES {
            bail!("more than {MOST_FILES} files are included");
        }
        // No more than that is read: a device has no end.
        let room = LONGEST.saturating_sub(self.read);
        let mut text = String::new();
        let opened = std::fs::File::open(path);
        let read = opened.and_then(|file| file.take(room + 1).read_to_string(&mut text));
        if text.len() as u64 > room {
            bail!("it and the files that it includes have more than {LONGEST} bytes");
        }
        read.with_context(|| format!("include {}", path.display()))?;
        self.read += text.len() as u64;
        Ok(text)
    }
}

/// As glob(7), for `*` and `?`.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut from, mut star, mut resume) = (0, 0, None, 0);
    while from < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some(at);
                resume = from;
                at += 1;
            }
            Some(one) if *one == '?' || *one == name[from] => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some(star) => {
                    at = star + 1;
                    resume += 1;
                    from = resume;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

/// A word, or a brace.
#[derive(Debug)]
struct Word {
    text: String,
    quoted: bool,
}

fn words(line: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut now: Option<Word> = None;
    let mut letters = line.chars();
    let mut quote = None;
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(mark), letter) if letter == mark => quote = None,
            (Some(_), '\\') => {
                if let (Some(word), Some(next)) = (now.as_mut(), letters.next()) {
                    word.text.push(next);
                }
            }
            (Some(_), letter) => {
                if let Some(word) = now.as_mut() {
                    word.text.push(letter);
                }
            }
            (None, '"' | '\'') => {
                quote = Some(letter);
                now.get_or_insert_with(|| Word { text: String::new(), quoted: true }).quoted = true;
            }
            (None, '#' | '!') if now.is_none() || letter == '#' => break,
            (None, '{' | '}') => {
                words.extend(now.take());
                words.push(Word { text: letter.into(), quoted: false });
            }
            (None, letter) if letter.is_whitespace() => words.extend(now.take()),
            (None, letter) => now.get_or_insert_with(|| Word { text: String::new(), quoted: false }).text.push(letter),
        }
    }
    words.extend(now);
    words
}

struct Reading<'a> {
    files: &'a mut Files,
    definitions: HashMap<String, String>,
    /// What is open, from the outermost; the first holds the file's own lines.
    open: Vec<Vec<Block>>,
    words: usize,
}

/// The lines and blocks of a text and of the files that it includes.
pub(super) fn read(text: &str, files: &mut Files) -> anyhow::Result<Vec<Block>> {
    let folder = files.folder.clone();
    files.read += text.len() as u64;
    let mut reading = Reading { files, definitions: HashMap::new(), open: vec![Vec::new()], words: 0 };
    reading.text(text, None, folder.as_deref(), 0)?;
    match <[Vec<Block>; 1]>::try_from(reading.open) {
        Ok([blocks]) => Ok(blocks),
        Err(open) => {
            let last = open.iter().rev().find_map(|blocks| blocks.last()).map(|block| block.place.to_string());
            bail!("a brace is not closed that was opened at {}", last.unwrap_or_else(|| "the beginning".into()))
        }
    }
}

impl Reading<'_> {
    fn text(&mut self, text: &str, file: Option<&str>, folder: Option<&Path>, depth: usize) -> anyhow::Result<()> {
        if depth > DEEPEST {
            bail!("files include each other more than {DEEPEST} deep");
        }
        let mut lines = text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            let place = SourceLine { file: file.map(str::to_owned), line: at + 1 };
            let mut line = line.to_owned();
            while line.ends_with('\\') {
                line.pop();
                line.push_str(lines.next().map_or("", |(_, line)| line));
            }
            if self.defines(&line) {
                continue;
            }
            let line = self.replaced(&line);
            let found = words(&line);
            match &found[..] {
                [include, pattern, ..] if INCLUDES.contains(&include.text.as_str()) => {
                    let pattern = pattern.text.clone();
                    let Some(folder) = folder else { bail!("{place}: files cannot be included here") };
                    for path in self.files.matching(folder, &pattern).with_context(|| place.to_string())? {
                        let text = self.files.open(&path).with_context(|| place.to_string())?;
                        // Paths in it are from where it is.
                        self.text(&text, Some(&path.display().to_string()), path.parent(), depth + 1)?;
                    }
                }
                _ => self.line(found, &place)?,
            }
        }
        Ok(())
    }

    /// `$NAME=value` to the end of the line.
    fn defines(&mut self, line: &str) -> bool {
        let defined = line.trim().strip_prefix('$').and_then(|rest| rest.split_once('='));
        let Some((name, value)) = defined else { return false };
        let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name(name) {
            return false;
        }
        let value = self.replaced(value.trim());
        self.definitions.insert(name.to_owned(), value);
        true
    }

    /// With what definitions say, `$NAME` and `${NAME}`.
    fn replaced(&self, line: &str) -> String {
        const LONGEST_LINE: usize = 1 << 16;
        let mut out = String::new();
        let mut left = line;
        while let Some(at) = left.find('$') {
            let (before, rest) = (&left[..at], &left[at + 1..]);
            out.push_str(before);
            let braced = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, after) = braced.unwrap_or((&rest[..end], &rest[end..]));
            match self.definitions.get(name) {
                Some(value) if out.len() < LONGEST_LINE => {
                    out.push_str(value);
                    left = after;
                }
                _ => {
                    out.push('$');
                    left = rest;
                }
            }
        }
        out.push_str(left);
        out
    }

    fn line(&mut self, found: Vec<Word>, place: &SourceLine) -> anyhow::Result<()> {
        self.words += found.len();
        if self.words > MOST_WORDS {
            bail!("{place}: more than {MOST_WORDS} words");
        }
        let mut now = Vec::new();
        for word in found {
            match (word.quoted, word.text.as_str()) {
                (false, "{") => self.begin(std::mem::take(&mut now), place)?,
                (false, "}") => {
                    self.add(std::mem::take(&mut now), place);
                    self.end(place)?;
                }
                _ => now.push(word.text),
            }
        }
        self.add(now, place);
        Ok(())
    }

    fn add(&mut self, words: Vec<String>, place: &SourceLine) {
        if let (false, Some(last)) = (words.is_empty(), self.open.last_mut()) {
            last.push(Block { words, place: place.clone(), within: Vec::new() });
        }
    }

    /// A brace on a line of its own belongs to the line before.
    fn begin(&mut self, words: Vec<String>, place: &SourceLine) -> anyhow::Result<()> {
        if self.open.len() > DEEPEST {
            bail!("{place}: blocks are more than {DEEPEST} deep");
        }
        let before = self.open.last().and_then(|last| last.last());
        if words.is_empty() && before.is_none_or(|block| !block.within.is_empty()) {
            bail!("{place}: a brace belongs to nothing");
        }
        self.add(words, place);
        self.open.push(Vec::new());
        Ok(())
    }

    fn end(&mut self, place: &SourceLine) -> anyhow::Result<()> {
        let within = match self.open.len() {
            0 | 1 => bail!("{place}: a brace closes nothing"),
            _ => self.open.pop().unwrap_or_default(),
        };
        if let Some(block) = self.open.last_mut().and_then(|last| last.last_mut()) {
            block.within = within;
        }
        Ok(())
    }
}
