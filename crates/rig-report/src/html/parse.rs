//! A page as a tree of elements, for tests of what the writer wrote.

use std::collections::BTreeMap;

use html5gum::{Token, Tokenizer};

#[derive(Debug, Default)]
pub struct Element {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    content: Vec<Content>,
}

#[derive(Debug)]
enum Content {
    Text(String),
    Element(Element),
}

/// The elements that have no end tag among those that the writer writes.
const EMPTY: [&str; 2] = ["meta", "br"];

impl Element {
    /// The page below an element without a name, and what the tokenizer of the standard
    /// (<https://html.spec.whatwg.org/#tokenization>) or the order of the tags says against it. A browser takes end tags as
    /// left out here and there; the writer leaves none out.
    pub fn parse(page: &str) -> (Self, Vec<String>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (mut open, mut errors) = (vec![Self::default()], Vec::new());
        for token in Tokenizer::new(page) {
            let Ok(token) = token;
            match token {
                Token::StartTag(tag) => {
                    let attributes = tag.attributes.iter().map(|(name, value)| (text(name), text(value)));
                    let element = Self { name: text(&tag.name), attributes: attributes.collect(), content: Vec::new() };
                    match tag.self_closing || EMPTY.contains(&&*element.name) {
                        true => open.last_mut().unwrap().content.push(Content::Element(element)),
                        false => open.push(element),
                    }
                }
                Token::EndTag(tag) => {
                    let name = text(&tag.name);
                    if open.len() < 2 || open.last().unwrap().name != name {
                        errors.push(format!("</{name}> in {}", open.last().unwrap().name));
                        continue;
                    }
                    let closed = open.pop().unwrap();
                    open.last_mut().unwrap().content.push(Content::Element(closed));
                }
                Token::String(words) => open.last_mut().unwrap().content.push(Content::Text(text(&words.value))),
                Token::Error(error) => errors.push(format!("{:?}", error.value)),
                Token::Doctype(_) => {}
                Token::Comment(_) => errors.push("a comment".to_owned()),
            }
        }
        while open.len() > 1 {
            let left = open.pop().unwrap();
            errors.push(format!("<{}> does not end", left.name));
            open.last_mut().unwrap().content.push(Content::Element(left));
        }
        (open.pop().unwrap(), errors)
    }

    pub fn children(&self) -> impl Iterator<Item = &Self> {
        self.content.iter().filter_map(|content| match content {
            Content::Element(element) => Some(element),
            Content::Text(_) => None,
        })
    }

    /// All elements within, in the order of the page.
    pub fn all(&self) -> Vec<&Self> {
        self.children().flat_map(|child| std::iter::once(child).chain(child.all())).collect()
    }

    /// Those within that have one of these names.
    pub fn named(&self, names: &[&str]) -> Vec<&Self> {
        self.all().into_iter().filter(|element| names.contains(&&*element.name)).collect()
    }

    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    pub fn is_of_class(&self, class: &str) -> bool {
        self.attribute("class").is_some_and(|classes| classes.split_whitespace().any(|one| one == class))
    }

    /// The text of the element and all within.
    pub fn text(&self) -> String {
        let parts = self.content.iter().map(|content| match content {
            Content::Text(text) => text.clone(),
            Content::Element(element) => element.text(),
        });
        parts.collect()
    }
}
