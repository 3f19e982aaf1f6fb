//! Weight and colour by ANSI escape sequences (ECMA-48, SGR), or none at all.

/// The eight colours that every terminal theme defines, so that they stay readable on light and dark grounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Blue = 34,
    Magenta = 35,
    Cyan = 36,
}

#[derive(Debug, Clone, Copy)]
pub struct TerminalStyle {
    pub enabled: bool,
}

impl TerminalStyle {
    pub fn bold(self, text: &str) -> String {
        self.sgr(1, text)
    }

    pub fn dim(self, text: &str) -> String {
        self.sgr(2, text)
    }

    pub fn colour(self, colour: Colour, text: &str) -> String {
        self.sgr(colour as u8, text)
    }

    fn sgr(self, code: u8, text: &str) -> String {
        if self.enabled && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
