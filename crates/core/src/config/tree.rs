//! Text to tree: YAML (JSON is YAML) as nodes that know their line and column. What a configuration does
//! not need is refused, because it only serves surprises: anchors, aliases, tags, merge keys, several
//! documents, keys that are not text. Limits come first, so that no text costs much.

use std::collections::BTreeMap;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use super::fault::{ConfigError, harmless, quoted};
use super::guard::{DEEP_HINT, guard, too_deep, untabbed};

/// The deepest nesting.
pub(crate) const MAX_DEPTH: usize = 64;
/// How many duplicate keys are looked for, and how many bytes are read again for them.
const MAX_DUPLICATES: usize = 20;
const MAX_READ_AGAIN: usize = 2 * 1024 * 1024;
/// Takes the place of a duplicate key's first character while the text is loaded again.
const MASK: u32 = 0xE000;

/// What is said about anchors and tags, with its hint.
const ANCHORS: (&str, &str) = ("anchors (`&name`) are not supported", "write the values out");
const TAGS: (&str, &str) = ("tags (`!name`) are not supported", "write the value without it");

/// A place in the text, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: Place,
    pub(crate) value: Value,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: Place,
    pub(crate) value: Node,
}

impl Node {
    /// The entries of a mapping; none for anything else.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none for anything else.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a text.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value below a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The value at a dotted path.
    pub(crate) fn at_path(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |node, name| node.get(name))
    }

    /// What it is, for a message.
    pub(crate) fn found(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Int(value) => format!("number `{value}`"),
            Value::Float(value) => format!("number `{value}`"),
            Value::Text(text) => format!("text `{}`", quoted(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }
}

/// Loads one document. An empty text is an empty mapping.
pub(crate) fn load(text: &str, file: &str) -> Result<Node, Vec<ConfigError>> {
    let fault = |at: Place, message: &str, hint: &str| ConfigError {
        file: file.to_owned(),
        line: at.line,
        column: at.column,
        key: String::new(),
        message: message.to_owned(),
        hint: hint.to_owned(),
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Err((at, message, hint)) = guard(text) {
        return Err(vec![fault(at, &message, hint)]);
    }
    let mut chars: Vec<char> =
        if text.trim_start().starts_with(['{', '[']) { untabbed(text) } else { text.chars().collect() };
    let mut masked: BTreeMap<usize, char> = BTreeMap::new();
    let mut duplicates = Vec::new();
    let documents = loop {
        let error = match MarkedYaml::load_from_iter(chars.iter().copied()) {
            Ok(documents) => break documents,
            Err(error) => error,
        };
        let at = place(error.marker());
        let start = error.marker().index();
        if error.info() == "duplicated key in mapping" {
            duplicates.push(fault(at, "duplicate key", "keep one of the two"));
            let first = match chars.get(start) {
                Some('"' | '\'') => start + 1,
                _ => start,
            };
            let mask = u32::try_from(masked.len()).ok().and_then(|n| char::from_u32(MASK + n));
            let again = masked.len() < MAX_DUPLICATES && masked.len() * text.len() < MAX_READ_AGAIN;
            if let (Some(c), Some(mask), true) = (chars.get_mut(first), mask, again)
                && masked.insert(start, *c).is_none()
            {
                *c = mask;
                continue;
            }
            return Err(duplicates);
        }
        let line = text.lines().nth(error.marker().line().saturating_sub(1)).unwrap_or_default();
        let hint = if line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t') {
            "indent with spaces: YAML does not allow tabs there"
        } else {
            "look for a missing quote, bracket, colon or indentation there or just above"
        };
        let message = format!("not valid YAML: {}", harmless(error.info(), 200));
        duplicates.push(fault(at, &message, hint));
        return Err(duplicates);
    };
    let mut reader = Reader { file, chars: &chars, masked: &masked, errors: Vec::new(), scalars: Vec::new() };
    let root = match documents.as_slice() {
        [] => Node { at: Place { line: 1, column: 1 }, value: Value::Map(Vec::new()) },
        [document] => reader.read(document, "", 0),
        [_, second, ..] => {
            let at = place(&second.span.start);
            return Err(vec![fault(at, "a second document", "keep one document: remove `---`")]);
        }
    };
    reader.look_between();
    if reader.errors.is_empty() { Ok(root) } else { Err(reader.errors) }
}

fn place(marker: &saphyr::Marker) -> Place {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Place { line: number(marker.line().max(1)), column: number(marker.col() + 1) }
}

/// From the loader's nodes to ours.
struct Reader<'a> {
    file: &'a str,
    chars: &'a [char],
    masked: &'a BTreeMap<usize, char>,
    errors: Vec<ConfigError>,
    /// Where scalars lie in the text, in characters.
    scalars: Vec<(usize, usize)>,
}

impl Reader<'_> {
    fn refuse(&mut self, at: Place, key: &str, message: impl Into<String>, hint: &str) {
        self.errors.push(ConfigError {
            file: self.file.to_owned(),
            line: at.line,
            column: at.column,
            key: key.to_owned(),
            message: message.into(),
            hint: hint.to_owned(),
        });
    }

    fn read(&mut self, node: &MarkedYaml<'_>, path: &str, depth: usize) -> Node {
        let at = place(&node.span.start);
        let mut value = Value::Null;
        if depth > MAX_DEPTH {
            self.refuse(at, "", too_deep(), DEEP_HINT);
            return Node { at, value };
        }
        if self.chars.get(node.span.start.index()) == Some(&'*') {
            // A plain scalar cannot start with `*`, so this node was copied from elsewhere.
            self.scalars.push((node.span.start.index(), node.span.end.index()));
            self.refuse(at, path, "aliases (`*name`) are not supported", "write the value out");
            return Node { at, value };
        }
        match &node.data {
            YamlData::Value(scalar) => {
                self.scalars.push((node.span.start.index(), node.span.end.index()));
                // The span of a scalar includes its properties; no scalar starts with these itself.
                match self.chars.get(node.span.start.index()) {
                    Some('&') => self.refuse(at, path, ANCHORS.0, ANCHORS.1),
                    Some('!') => self.refuse(at, path, TAGS.0, TAGS.1),
                    _ => {}
                }
                value = match scalar {
                    Scalar::Null => Value::Null,
                    Scalar::Boolean(value) => Value::Bool(*value),
                    Scalar::Integer(value) => Value::Int(*value),
                    Scalar::FloatingPoint(value) => Value::Float(value.into_inner()),
                    Scalar::String(text) => Value::Text(text.to_string()),
                };
            }
            YamlData::Sequence(items) => {
                value = Value::List(
                    items
                        .iter()
                        .enumerate()
                        .map(|(n, item)| self.read(item, &format!("{path}[{n}]"), depth + 1))
                        .collect(),
                );
            }
            YamlData::Mapping(entries) => {
                let mut kept: Vec<Entry> = Vec::new();
                for (key, node) in entries {
                    if let Some(entry) = self.entry(key, node, path, depth) {
                        // The loader refuses duplicates, so only a masked key can be one.
                        let masked = self.masked.contains_key(&key.span.start.index());
                        let first = kept.iter().find(|known| masked && known.key == entry.key);
                        if let Some(first) = first {
                            let hint = format!("it is set in line {} already; keep one", first.at.line);
                            self.refuse(entry.at, &dotted(path, &entry.key), "duplicate key", &hint);
                        } else {
                            kept.push(entry);
                        }
                    }
                }
                value = Value::Map(kept);
            }
            YamlData::Tagged(..) => {
                self.refuse(at, path, TAGS.0, TAGS.1);
            }
            YamlData::Representation(..) | YamlData::Alias(_) | YamlData::BadValue => {
                // An empty document arrives as a bad value.
                if depth > 0 {
                    self.refuse(at, path, "the value does not fit its tag", "write it without a tag");
                }
            }
        }
        Node { at, value }
    }

    fn entry(
        &mut self,
        key: &MarkedYaml<'_>,
        node: &MarkedYaml<'_>,
        path: &str,
        depth: usize,
    ) -> Option<Entry> {
        let start = key.span.start.index();
        let key_node = self.read(key, path, depth + 1);
        let Value::Text(mut name) = key_node.value else {
            let found = key_node.found();
            self.refuse(key_node.at, path, format!("a key must be text, found {found}"), "put it in quotes");
            return None;
        };
        if let Some(first) = self.masked.get(&start) {
            name = std::iter::once(*first).chain(name.chars().skip(1)).collect();
        }
        let at = key_node.at;
        if name == "<<" {
            self.refuse(at, path, "merge keys (`<<`) are not supported", "write the values out");
            return None;
        }
        let value = self.read(node, &dotted(path, &name), depth + 1);
        Some(Entry { key: name, at, value })
    }

    /// What is not a scalar and not a comment is punctuation: an anchor or a tag there is one for sure.
    fn look_between(&mut self) {
        self.scalars.sort_unstable();
        let scalars = std::mem::take(&mut self.scalars);
        let mut scalars = scalars.iter().copied().peekable();
        let (mut at, mut line, mut column) = (0, 1_u32, 1_u32);
        let mut comment = false;
        let mut inside = 0;
        for &c in self.chars {
            while let Some((_, end)) = scalars.next_if(|(start, _)| *start <= at) {
                inside = inside.max(end);
            }
            if c == '\n' || (at >= inside && c == '\r') {
                comment = false;
            } else if at >= inside && !comment {
                let place = Place { line, column };
                match c {
                    '#' => comment = true,
                    '&' => self.refuse(place, "", ANCHORS.0, ANCHORS.1),
                    '!' => self.refuse(place, "", TAGS.0, TAGS.1),
                    _ => {}
                }
            }
            at += 1;
            if c == '\n' {
                line += 1;
                column = 1;
            } else {
                column += 1;
            }
        }
    }
}

/// A path and a name below it.
pub(crate) fn dotted(path: &str, name: &str) -> String {
    if path.is_empty() { quoted(name) } else { format!("{path}.{}", quoted(name)) }
}
