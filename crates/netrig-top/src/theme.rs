//! What a terminal can show.

use std::env;
use std::ffi::OsString;

use rig_cli::look::has_only_ascii;

/// Characters and colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    pub colour: bool,
    /// Nothing but ASCII.
    pub ascii: bool,
    /// Lines one after the other, without moving the cursor.
    pub plain: bool,
}

impl Theme {
    pub fn of_environment() -> Self {
        Self::of(env::var_os)
    }

    /// NO_COLOR as no-color.org has it; the character set as all of netrig has it.
    fn of(variable: impl Fn(&'static str) -> Option<OsString>) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let plain = set("TERM").is_none_or(|terminal| terminal == "dumb");
        Self { colour: set("NO_COLOR").is_none() && !plain, ascii: has_only_ascii(&variable), plain }
    }

    /// The parts of a bar, and what is left of it.
    pub fn bar(self) -> ([char; 3], char) {
        if self.ascii { (['d', 'p', 'o'], '.') } else { (['▓', '█', '░'], '·') }
    }

    /// From nothing to all.
    pub fn levels(self) -> [char; 8] {
        if self.ascii {
            ['_', '.', ':', '-', '=', '+', '*', '#']
        } else {
            ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
        }
    }

    pub fn rule(self) -> char {
        if self.ascii { '-' } else { '─' }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> Theme {
        Theme::of(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_environment_decides() {
        let xterm = ("TERM", "xterm");
        assert_eq!(of(&[xterm, ("LANG", "de_DE.UTF-8")]), Theme { colour: true, ascii: false, plain: false });
        assert_eq!(
            of(&[xterm, ("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]),
            Theme { colour: true, ascii: true, plain: false }
        );
        assert_eq!(
            of(&[xterm, ("LC_ALL", ""), ("LANG", "C.utf8")]),
            Theme { colour: true, ascii: false, plain: false }
        );
        assert!(!of(&[xterm, ("NO_COLOR", "1")]).colour && of(&[xterm, ("NO_COLOR", "")]).colour);
        assert_eq!(of(&[("TERM", "dumb")]), Theme { colour: false, ascii: false, plain: true });
    }
}
