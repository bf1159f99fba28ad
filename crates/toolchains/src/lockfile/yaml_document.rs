//! YAML of lockfiles as a small tree. Built from the parser's events without recursion; anchors and aliases, which no
//! package manager writes, are refused, so that no input grows.

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::LockfileError;

/// Maximum size of a document, in bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Maximum nesting depth.
const MAX_DEPTH: usize = 32;

/// A value. A scalar is text, whatever type YAML gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum YamlItem {
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl YamlItem {
    pub(crate) fn entries(&self) -> &[(String, Self)] {
        match self {
            Self::Map(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn text_at(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }
}

/// A collection that is still open.
enum OpenItem {
    List(Vec<YamlItem>),
    Map(Vec<(String, YamlItem)>, Option<String>),
}

impl OpenItem {
    fn push(&mut self, item: YamlItem) -> Result<(), &'static str> {
        match self {
            Self::List(items) => items.push(item),
            Self::Map(entries, key) => match (key.take(), item) {
                (Some(name), item) => entries.push((name, item)),
                (None, YamlItem::Text(name)) => *key = Some(name),
                (None, _) => return Err("a key that is not text"),
            },
        }
        Ok(())
    }
}

/// Reads one document.
pub(crate) fn read(text: &str, file: &str) -> Result<YamlItem, LockfileError> {
    let error = |reason: &str| LockfileError::new(file, reason);
    if text.len() > MAX_BYTES {
        return Err(error("larger than 16 MiB"));
    }
    let mut open: Vec<OpenItem> = Vec::new();
    let mut document = None;
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|problem| LockfileError::new(file, problem.info()))?;
        let done = match event {
            Event::Alias(_) => return Err(error("it uses aliases")),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor != 0 =>
            {
                return Err(error("it uses anchors"));
            }
            Event::Scalar(text, style, ..) => Some(scalar(&text, style)),
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() >= MAX_DEPTH => {
                return Err(error("it is nested too deeply"));
            }
            Event::SequenceStart(..) => {
                open.push(OpenItem::List(Vec::new()));
                None
            }
            Event::MappingStart(..) => {
                open.push(OpenItem::Map(Vec::new(), None));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(OpenItem::List(items)) => Some(YamlItem::List(items)),
                Some(OpenItem::Map(entries, _)) => Some(YamlItem::Map(entries)),
                None => None,
            },
            Event::DocumentStart(_) if document.is_some() => break,
            _ => None,
        };
        match (done, open.last_mut()) {
            (Some(item), Some(parent)) => parent.push(item).map_err(error)?,
            (Some(item), None) => document = Some(item),
            (None, _) => {}
        }
    }
    Ok(document.unwrap_or(YamlItem::Map(Vec::new())))
}

fn scalar(text: &str, style: ScalarStyle) -> YamlItem {
    let empty = style == ScalarStyle::Plain && matches!(text, "~" | "null");
    YamlItem::Text(if empty { String::new() } else { text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn documents_become_trees() {
        let item = read("a:\n  b: {c: 'd e', f: [1, 2]}\n\"x@npm:1\":\n  g: h\n", "f").unwrap();
        assert_eq!(item.get("a").and_then(|a| a.get("b")).and_then(|b| b.text_at("c")), Some("d e"));
        assert_eq!(item.get("x@npm:1").and_then(|x| x.text_at("g")), Some("h"));
        assert_eq!(read("", "f"), Ok(YamlItem::Map(Vec::new())));
    }

    #[test]
    fn growing_and_deep_documents_are_refused() {
        let laughs = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
        assert!(read(laughs, "f").unwrap_err().to_string().contains("anchors"));
        assert!(read(&"[".repeat(1000), "f").is_err());
        let deep: String = (0..100).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert!(read(&deep, "f").unwrap_err().to_string().contains("nested too deeply"));
        assert!(read("? [a]\n: b\n", "f").is_err());
    }

    proptest! {
        #[test]
        fn reading_never_panics(text in "(\\PC|\n|  |- |: |\\{|\\}|\\[|\\]|'|\"|&a |\\*a |\\? |---\n|# ){0,80}") {
            let _ = read(&text, "f");
        }
    }
}
