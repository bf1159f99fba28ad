//! Parses YAML (and so JSON) into a tree of nodes with line and column. Features that a configuration does not need are
//! rejected, because they cause surprises: anchors, aliases, tags, merge keys, several documents, keys that are not
//! strings. Size limits are checked first, so that no input is expensive.

use std::collections::BTreeMap;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use super::error::{ConfigError, escaped, quoted};
use super::input_limits::{DEEP_HINT, check_limits, tabs_to_spaces, too_deep};

/// Maximum nesting depth.
pub(crate) const MAX_DEPTH: usize = 64;
/// Maximum number of duplicate keys that are reported, and of bytes that are parsed again to find them.
const MAX_DUPLICATES: usize = 20;
const MAX_REPARSED_BYTES: usize = 2 * 1024 * 1024;
/// Replaces the first character of a duplicate key while the text is parsed again.
const MASK_CHAR: u32 = 0xE000;

/// Messages and hints about anchors and tags.
const ANCHORS: (&str, &str) = ("anchors (`&name`) are not supported", "write the values out");
const TAGS: (&str, &str) = ("tags (`!name`) are not supported", "write the value without it");

/// A position in the text; line and column from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextPosition {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value with its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct YamlNode {
    pub(crate) at: TextPosition,
    pub(crate) value: YamlValue,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum YamlValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct YamlEntry {
    pub(crate) key: String,
    pub(crate) at: TextPosition,
    pub(crate) value: YamlNode,
}

impl YamlNode {
    /// The entries of a mapping; none for anything else.
    pub(crate) fn entries(&self) -> &[YamlEntry] {
        match &self.value {
            YamlValue::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none for anything else.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            YamlValue::List(items) => items,
            _ => &[],
        }
    }

    /// The string; `None` for anything else.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Text(text) => Some(text),
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

    /// A description of the value for a message.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            YamlValue::Null => "nothing".to_owned(),
            YamlValue::Bool(value) => format!("`{value}`"),
            YamlValue::Int(value) => format!("number `{value}`"),
            YamlValue::Float(value) => format!("number `{value}`"),
            YamlValue::Text(text) => format!("text `{}`", quoted(text)),
            YamlValue::List(_) => "a list".to_owned(),
            YamlValue::Map(_) => "a mapping".to_owned(),
        }
    }
}

/// Parses one document. An empty text is an empty mapping.
pub(crate) fn load(text: &str, file: &str) -> Result<YamlNode, Vec<ConfigError>> {
    let error_at = |at: TextPosition, message: &str, hint: &str| ConfigError {
        file: file.to_owned(),
        line: at.line,
        column: at.column,
        key: String::new(),
        message: message.to_owned(),
        hint: hint.to_owned(),
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Err((at, message, hint)) = check_limits(text) {
        return Err(vec![error_at(at, &message, hint)]);
    }
    let mut chars: Vec<char> =
        if text.trim_start().starts_with(['{', '[']) { tabs_to_spaces(text) } else { text.chars().collect() };
    let mut masked: BTreeMap<usize, char> = BTreeMap::new();
    let mut duplicates = Vec::new();
    let documents = loop {
        let error = match MarkedYaml::load_from_iter(chars.iter().copied()) {
            Ok(documents) => break documents,
            Err(error) => error,
        };
        let at = position(error.marker());
        let start = error.marker().index();
        if error.info() == "duplicated key in mapping" {
            duplicates.push(error_at(at, "duplicate key", "keep one of the two"));
            let first = match chars.get(start) {
                Some('"' | '\'') => start + 1,
                _ => start,
            };
            let mask = u32::try_from(masked.len()).ok().and_then(|n| char::from_u32(MASK_CHAR + n));
            let again = masked.len() < MAX_DUPLICATES && masked.len() * text.len() < MAX_REPARSED_BYTES;
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
            "check quotes, brackets, colons and indentation there and just above"
        };
        let message = format!("not valid YAML: {}", escaped(error.info(), 200));
        duplicates.push(error_at(at, &message, hint));
        return Err(duplicates);
    };
    let mut converter =
        YamlConverter { file, chars: &chars, masked: &masked, errors: Vec::new(), scalars: Vec::new() };
    let root = match documents.as_slice() {
        [] => YamlNode { at: TextPosition { line: 1, column: 1 }, value: YamlValue::Map(Vec::new()) },
        [document] => converter.read(document, "", 0),
        [_, second, ..] => {
            let at = position(&second.span.start);
            return Err(vec![error_at(at, "a second document", "keep one document: remove `---`")]);
        }
    };
    converter.find_anchors_and_tags();
    if converter.errors.is_empty() { Ok(root) } else { Err(converter.errors) }
}

fn position(marker: &saphyr::Marker) -> TextPosition {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    TextPosition { line: number(marker.line().max(1)), column: number(marker.col() + 1) }
}

/// Converts the loader's nodes to ours.
struct YamlConverter<'a> {
    file: &'a str,
    chars: &'a [char],
    masked: &'a BTreeMap<usize, char>,
    errors: Vec<ConfigError>,
    /// Ranges of the scalars in the text, in characters.
    scalars: Vec<(usize, usize)>,
}

impl YamlConverter<'_> {
    fn add_error(&mut self, at: TextPosition, key: &str, message: impl Into<String>, hint: &str) {
        self.errors.push(ConfigError {
            file: self.file.to_owned(),
            line: at.line,
            column: at.column,
            key: key.to_owned(),
            message: message.into(),
            hint: hint.to_owned(),
        });
    }

    fn read(&mut self, node: &MarkedYaml<'_>, path: &str, depth: usize) -> YamlNode {
        let at = position(&node.span.start);
        let mut value = YamlValue::Null;
        if depth > MAX_DEPTH {
            self.add_error(at, "", too_deep(), DEEP_HINT);
            return YamlNode { at, value };
        }
        if self.chars.get(node.span.start.index()) == Some(&'*') {
            // A plain scalar cannot start with `*`, so this node is an alias that the loader resolved.
            self.scalars.push((node.span.start.index(), node.span.end.index()));
            self.add_error(at, path, "aliases (`*name`) are not supported", "write the value out");
            return YamlNode { at, value };
        }
        match &node.data {
            YamlData::Value(scalar) => {
                self.scalars.push((node.span.start.index(), node.span.end.index()));
                // The span of a scalar includes its properties; no scalar starts with these itself.
                match self.chars.get(node.span.start.index()) {
                    Some('&') => self.add_error(at, path, ANCHORS.0, ANCHORS.1),
                    Some('!') => self.add_error(at, path, TAGS.0, TAGS.1),
                    _ => {}
                }
                value = match scalar {
                    Scalar::Null => YamlValue::Null,
                    Scalar::Boolean(value) => YamlValue::Bool(*value),
                    Scalar::Integer(value) => YamlValue::Int(*value),
                    Scalar::FloatingPoint(value) => YamlValue::Float(value.into_inner()),
                    Scalar::String(text) => YamlValue::Text(text.to_string()),
                };
            }
            YamlData::Sequence(items) => {
                value = YamlValue::List(
                    items
                        .iter()
                        .enumerate()
                        .map(|(n, item)| self.read(item, &format!("{path}[{n}]"), depth + 1))
                        .collect(),
                );
            }
            YamlData::Mapping(entries) => {
                let mut kept: Vec<YamlEntry> = Vec::new();
                for (key, node) in entries {
                    if let Some(entry) = self.entry(key, node, path, depth) {
                        // The loader rejects duplicates, so only a masked key can be one.
                        let masked = self.masked.contains_key(&key.span.start.index());
                        let first = kept.iter().find(|known| masked && known.key == entry.key);
                        if let Some(first) = first {
                            let hint = format!("it is already set in line {}; keep one", first.at.line);
                            self.add_error(entry.at, &dotted(path, &entry.key), "duplicate key", &hint);
                        } else {
                            kept.push(entry);
                        }
                    }
                }
                value = YamlValue::Map(kept);
            }
            YamlData::Tagged(..) => {
                self.add_error(at, path, TAGS.0, TAGS.1);
            }
            YamlData::Representation(..) | YamlData::Alias(_) | YamlData::BadValue => {
                // The loader returns a bad value for an empty document.
                if depth > 0 {
                    self.add_error(at, path, "the value does not match its tag", "write it without a tag");
                }
            }
        }
        YamlNode { at, value }
    }

    fn entry(
        &mut self,
        key: &MarkedYaml<'_>,
        node: &MarkedYaml<'_>,
        path: &str,
        depth: usize,
    ) -> Option<YamlEntry> {
        let start = key.span.start.index();
        let key_node = self.read(key, path, depth + 1);
        let YamlValue::Text(mut name) = key_node.value else {
            let found = key_node.describe();
            self.add_error(
                key_node.at,
                path,
                format!("a key must be text, found {found}"),
                "put it in quotes",
            );
            return None;
        };
        if let Some(first) = self.masked.get(&start) {
            name = std::iter::once(*first).chain(name.chars().skip(1)).collect();
        }
        let at = key_node.at;
        if name == "<<" {
            self.add_error(at, path, "merge keys (`<<`) are not supported", "write the values out");
            return None;
        }
        let value = self.read(node, &dotted(path, &name), depth + 1);
        Some(YamlEntry { key: name, at, value })
    }

    /// Finds anchors and tags outside of scalars and comments, where `&` and `!` cannot mean anything else.
    fn find_anchors_and_tags(&mut self) {
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
                let position = TextPosition { line, column };
                match c {
                    '#' => comment = true,
                    '&' => self.add_error(position, "", ANCHORS.0, ANCHORS.1),
                    '!' => self.add_error(position, "", TAGS.0, TAGS.1),
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

/// The dotted path of a name below a path.
pub(crate) fn dotted(path: &str, name: &str) -> String {
    if path.is_empty() { quoted(name) } else { format!("{path}.{}", quoted(name)) }
}
