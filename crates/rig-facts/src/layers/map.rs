//! Which layer a function belongs to, and by that a sampled stack.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use crate::flame::{KERNEL, OTHER_PROGRAMS, PROGRAM};
use crate::record::Kind;

/// Code of processes.
pub const APPLICATION: &str = "application";
/// Code of processes that are none of the testbed's, what the kernel does for them, and the kernel's own upkeep.
pub const OTHERS: &str = "other-programs";
/// Stacks none of whose functions has a layer.
pub const UNKNOWN: &str = "unknown";

const BUILT_IN: &str = include_str!("layers.txt");

/// A layer by its number in [`Map::layers`].
pub type Number = usize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub id: String,
    /// For a reader.
    pub title: String,
    /// Work that other layers call for: copies, memory, locks.
    pub shared: bool,
}

/// Layers, and the functions of each.
#[derive(Debug, Clone)]
pub struct Map {
    layers: Vec<Layer>,
    /// The first that matches decides; without a layer the caller does.
    rules: Vec<(Pattern, Option<Number>)>,
    /// Of other programs.
    others: Number,
    /// Tells maps apart.
    digest: u64,
}

/// What is wrong with a file of layers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {what}")]
pub struct MapError {
    pub file: String,
    pub line: usize,
    pub what: String,
}

/// What a frame has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    of: PatternScope,
    name: String,
    /// Whether more may stand before and behind the name.
    open: (bool, bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternScope {
    Kernel,
    Program,
    Module,
    Thread,
}

/// Where a sample belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleLayers {
    /// By its innermost function that has a layer.
    pub own: Number,
    /// Its layer when shared work counts to the layer that called for it: equal to `own` where that layer is not shared, or no
    /// other layer is among the callers.
    pub caller: Number,
}

impl Map {
    /// That of layers.txt.
    pub fn built_in() -> Self {
        Self::read(&[("the built-in layers", BUILT_IN)]).expect("a test reads it")
    }

    /// The built-in one, before which the patterns of `text` are asked.
    ///
    /// # Errors
    /// When a line of `text` is none; the error names it.
    pub fn extended(file: &str, text: &str) -> Result<Self, MapError> {
        Self::read(&[(file, text), ("the built-in layers", BUILT_IN)])
    }

    fn read(files: &[(&str, &str)]) -> Result<Self, MapError> {
        let fixed = |id: &str, title: &str| Layer { id: id.to_owned(), title: title.to_owned(), shared: false };
        let mut layers = vec![fixed(APPLICATION, "Application"), fixed(UNKNOWN, "Unknown")];
        let mut rules = Vec::new();
        // The order and the titles of the last file, then those of the others.
        for (_, text) in files.iter().rev() {
            let heads = text.lines().map(str::trim).filter(|line| line.starts_with('['));
            // What is wrong is told below, with its place.
            heads.for_each(|line| drop(head(without_comment(line), &mut layers)));
        }
        for (file, text) in files {
            let mut section = None;
            for (index, line) in text.lines().enumerate() {
                let error = |what: String| MapError { file: (*file).to_owned(), line: index + 1, what };
                let line = without_comment(line);
                if line.starts_with('[') {
                    section = Some(head(line, &mut layers).map_err(error)?);
                    continue;
                }
                for word in line.split_whitespace() {
                    let layer = section.ok_or_else(|| error(format!("'{word}' stands before the first [layer]")))?;
                    rules.push((Pattern::read(word).map_err(error)?, layer));
                }
            }
        }
        let others = layers.iter().position(|layer| layer.id == OTHERS).unwrap_or_else(|| {
            layers.push(fixed(OTHERS, "Other programs"));
            layers.len() - 1
        });
        // Without any title, the name.
        for layer in layers.iter_mut().filter(|layer| layer.title.is_empty()) {
            layer.title.clone_from(&layer.id);
        }
        // FNV-1a (RFC 9923).
        let bytes = files.iter().flat_map(|(_, text)| text.bytes());
        let digest = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Ok(Self { layers, rules, others, digest })
    }

    /// In the order of their numbers.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// A name of this very map.
    pub fn digest(&self) -> String {
        format!("{:016x}", self.digest)
    }

    /// What the rules say of a frame of a folded stack: nothing, or a layer, or that the caller decides.
    fn rule(&self, frame: &str) -> Option<Option<Number>> {
        if let Some(program) = frame.strip_suffix(PROGRAM) {
            let name = program.trim_start_matches("bpf:");
            return self.first(|pattern| pattern.of == PatternScope::Program && pattern.matches(name));
        }
        let Some(function) = frame.strip_suffix(KERNEL) else { return Some(Some(APPLICATION_NUMBER)) };
        let (name, module) = match function.split_once([' ', '\t']) {
            Some((name, module)) => (name, module.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))),
            None => (function, None),
        };
        let name = plain(name);
        let of_kernel = self.first(|pattern| pattern.of == PatternScope::Kernel && pattern.matches(&name));
        let is_of = |pattern: &Pattern| {
            module.is_some_and(|module| pattern.of == PatternScope::Module && pattern.matches(module))
        };
        of_kernel.or_else(|| self.first(is_of))
    }

    fn first(&self, is_it: impl Fn(&Pattern) -> bool) -> Option<Option<Number>> {
        self.rules.iter().find(|(pattern, _)| is_it(pattern)).map(|(_, layer)| *layer)
    }

    /// The layer of a kernel function or BPF program, written as in a folded stack, by its own name.
    pub fn layer_of(&self, frame: &str) -> Option<&Layer> {
        self.rule(frame).flatten().map(|layer| &self.layers[layer])
    }
}

const APPLICATION_NUMBER: Number = 0;
pub(super) const UNKNOWN_NUMBER: Number = 1;

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// `[id, shared] Title`: its layer, `None` of `[pass]`.
fn head(line: &str, layers: &mut Vec<Layer>) -> Result<Option<Number>, String> {
    let (inside, title) = line[1..].split_once(']').ok_or_else(|| format!("'{line}' lacks its ]"))?;
    let mut words = inside.split(',').map(str::trim);
    let id = words.next().unwrap_or_default();
    let shared = match words.next() {
        None => false,
        Some("shared") => true,
        Some(other) => return Err(format!("'{other}' behind a layer's name: only 'shared' may stand there")),
    };
    if id == "pass" {
        return Ok(None);
    }
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if id.is_empty() || !id.chars().all(is_name) {
        return Err(format!("'{id}' is not a name of a layer: use small letters, digits and -"));
    }
    if id == UNKNOWN {
        return Err("'unknown' is what has no pattern: leave it out, or call the layer otherwise".to_owned());
    }
    let number = layers.iter().position(|layer| layer.id == id).unwrap_or_else(|| {
        layers.push(Layer { id: id.to_owned(), title: String::new(), shared: false });
        layers.len() - 1
    });
    let layer = &mut layers[number];
    layer.shared |= shared;
    if layer.title.is_empty() {
        title.trim().clone_into(&mut layer.title);
    }
    Ok(Some(number))
}

impl Pattern {
    fn read(word: &str) -> Result<Self, String> {
        let (of, name) = match word.split_once(':') {
            None => (PatternScope::Kernel, word),
            Some(("bpf", name)) => (PatternScope::Program, name),
            Some(("module", name)) => (PatternScope::Module, name),
            Some(("thread", name)) => (PatternScope::Thread, name),
            Some((other, _)) => return Err(format!("'{other}:' in '{word}': there are bpf:, module: and thread:")),
        };
        let open = (name.starts_with('*'), name.len() > 1 && name.ends_with('*'));
        let name = name.strip_prefix('*').unwrap_or(name);
        let name = if open.1 { &name[..name.len() - 1] } else { name };
        let in_threads = |c: char| of == PatternScope::Thread && matches!(c, '/' | ':' | '+');
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') || in_threads(c);
        match name {
            "" => Err(format!("'{word}' matches everything: give a name, or the beginning or the end of one")),
            name if !name.chars().all(allowed) => Err(format!(
                "'{word}' is not a pattern: a * may stand at its ends only, and names have letters, digits and _"
            )),
            name => Ok(Self { of, name: name.to_owned(), open }),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self.open {
            (false, false) => name == self.name,
            (false, true) => name.starts_with(&self.name),
            (true, false) => name.ends_with(&self.name),
            (true, true) => name.contains(&self.name),
        }
    }
}

/// A function's name without what compilers and the kernel's build put around it.
fn plain(symbol: &str) -> Cow<'_, str> {
    let name = symbol.strip_prefix("__pfx_").unwrap_or(symbol);
    let name = name.strip_prefix("__cfi_").or_else(|| name.strip_prefix("__pi_")).unwrap_or(name);
    // No name in C has a dot.
    Cow::Borrowed(name.split_once('.').map_or(name, |(name, _)| name))
}

/// Places stacks, and remembers what it found of each frame.
#[derive(Debug)]
pub struct LayerMatcher<'m> {
    map: &'m Map,
    known: HashMap<String, Option<Option<Number>>>,
    threads: HashMap<String, Option<Number>>,
}

impl<'m> LayerMatcher<'m> {
    pub fn new(map: &'m Map) -> Self {
        Self { map, known: HashMap::new(), threads: HashMap::new() }
    }

    fn rule(&mut self, frame: &str) -> Option<Option<Number>> {
        if let Some(known) = self.known.get(frame) {
            return *known;
        }
        let found = self.map.rule(frame);
        self.known.insert(frame.to_owned(), found);
        found
    }

    /// The layer of all that a thread does, interrupts that it meets excepted.
    fn thread(&mut self, name: &str) -> Option<Number> {
        if let Some(known) = self.threads.get(name) {
            return *known;
        }
        let found = self.map.first(|pattern| pattern.of == PatternScope::Thread && pattern.matches(name)).flatten();
        self.threads.insert(name.to_owned(), found);
        found
    }

    /// Where a folded stack of a kind belongs: a thread's name, then its functions from the outermost to the innermost.
    pub fn place(&mut self, stack: &str, kind: Kind) -> SampleLayers {
        let (is_others, stack) = match stack.strip_prefix(OTHER_PROGRAMS) {
            Some(rest) => (true, rest.trim_start_matches(';')),
            None => (false, stack),
        };
        let (thread, frames) = stack.split_once(';').unwrap_or((stack, ""));
        if kind == Kind::Task
            && let Some(all) = if is_others { Some(self.map.others) } else { self.thread(thread) }
        {
            return SampleLayers { own: all, caller: all };
        }
        let mut own = None;
        for frame in frames.rsplit(';').filter(|frame| !frame.is_empty()) {
            let Some(Some(layer)) = self.rule(frame) else { continue };
            let first = *own.get_or_insert(layer);
            if !self.map.layers[layer].shared {
                return SampleLayers { own: first, caller: layer };
            }
        }
        let own = own.unwrap_or(UNKNOWN_NUMBER);
        SampleLayers { own, caller: own }
    }
}

/// Reads a file of layers, and asks the map for everything that the file names. An error is an answer. How many patterns the file has.
///
/// # Panics
/// When layers of the built-in map are gone or there twice, a stack has a layer that there is not, or the file's first pattern does not
/// decide.
pub fn exercise(text: &str) -> usize {
    let Ok(map) = Map::extended("layers.txt", text).map_err(|error| error.to_string()) else { return 0 };
    let built_in = Map::built_in();
    let ids: BTreeSet<&str> = map.layers.iter().map(|layer| layer.id.as_str()).collect();
    assert_eq!(ids.len(), map.layers.len());
    assert!(built_in.layers.iter().all(|layer| ids.contains(layer.id.as_str())));
    let own = map.rules.len() - built_in.rules.len();
    let mut placing = LayerMatcher::new(&map);
    for word in text.split_whitespace() {
        for kind in [Kind::Task, Kind::Softirq, Kind::Interrupt] {
            let stacks = [
                format!("{word};main"),
                format!("{OTHER_PROGRAMS};{word};{word}{KERNEL}"),
                format!("thread;{word}{KERNEL};copy {word}{KERNEL};bpf:{word}{PROGRAM};{word}"),
            ];
            for place in stacks.iter().map(|stack| placing.place(stack, kind)) {
                assert!(place.own.max(place.caller) < map.layers.len(), "{word}: {place:?}");
            }
        }
    }
    if let Some((pattern, layer)) = map.rules.first().filter(|_| own > 0) {
        let suffix = if pattern.of == PatternScope::Program { PROGRAM } else { KERNEL };
        let is_a_frame = pattern.of == PatternScope::Program
            || pattern.of == PatternScope::Kernel && plain(&pattern.name) == pattern.name;
        if is_a_frame {
            assert_eq!(map.rule(&format!("{}{suffix}", pattern.name)), Some(*layer), "{pattern:?}");
        }
    }
    own
}

#[cfg(test)]
mod tests;
