//! Text of others' making (files, peers, processes, paths, interfaces) as it can be shown: nothing in it drives a terminal or
//! changes the order in which a line is read.

use std::borrow::Cow;
use std::fmt::Write;

/// What acts on its reader without being seen, but for the line feed and the tab: control characters (C0, DEL and C1, which a
/// terminal obeys, ECMA-48), marks of direction (Unicode annex 9, <https://www.unicode.org/reports/tr9/>), separators of lines and
/// paragraphs, and what XML cannot hold.
pub fn is_harmful(sign: char) -> bool {
    match sign {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        sign => sign.is_control() || matches!(sign, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}'),
    }
}

/// The text with each harmful character as `\u` and four hexadecimal digits: what JSON (RFC 8259, 7) and basic strings of TOML
/// read as the same character, so that documents of both keep their meaning. Doing it twice changes nothing.
pub fn visible(text: &str) -> Cow<'_, str> {
    with_escapes(text, is_harmful)
}

/// The same for what has to stay on one line: line feeds and tabs are written as escapes, too.
pub fn visible_line(text: &str) -> Cow<'_, str> {
    with_escapes(text, |sign| is_harmful(sign) || matches!(sign, '\n' | '\t'))
}

fn with_escapes(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len() + 8);
    for sign in text.chars() {
        if is_escaped(sign) {
            // All of them are in the Basic Multilingual Plane. A String takes all that is written to it.
            let _ = write!(visible, "\\u{:04x}", u32::from(sign));
        } else {
            visible.push(sign);
        }
    }
    Cow::Owned(visible)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One of each kind.
    const SIGNS: [char; 14] = [
        '\0', '\u{7}', '\u{8}', '\r', '\u{1b}', '\u{7f}', '\u{9b}', '\u{61c}', '\u{200f}', '\u{202e}', '\u{2028}',
        '\u{2029}', '\u{2066}', '\u{ffff}',
    ];

    #[test]
    fn what_acts_on_a_reader_is_seen() {
        assert_eq!(visible("plain é ─\tx\n"), "plain é ─\tx\n");
        assert_eq!(visible("a\u{1b}[2J\u{202e}b\u{9b}\u{7f}"), "a\\u001b[2J\\u202eb\\u009b\\u007f");
        assert_eq!(visible_line("a\nb\tc"), "a\\u000ab\\u0009c");
        for sign in SIGNS {
            assert!(is_harmful(sign), "{sign:?}");
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let sign = prop_oneof![any::<char>(), prop::sample::select(SIGNS.to_vec()), Just('\n'), Just('\\'), Just('"')];
        prop::collection::vec(sign, 0..40).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left_and_documents_keep_their_meaning(text in text()) {
            prop_assert!(!visible(&text).contains(is_harmful));
            prop_assert!(!visible_line(&text).contains(|sign| is_harmful(sign) || sign == '\n'));
            let once = visible(&text);
            prop_assert_eq!(visible(&once), once.as_ref());
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&visible(&json)).unwrap(), text.clone());
            let table = toml::Table::from_iter([("key".to_owned(), toml::Value::String(text))]);
            let written = visible(&toml::to_string(&table).unwrap()).into_owned();
            if !written.contains('\'') {
                prop_assert_eq!(written.parse::<toml::Table>().unwrap(), table);
            }
        }
    }
}
