//! One file: text in, typed values with their places out, or every fault. How files combine is
//! [`super::layers`]'s.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::check::{Checker, parse_bytes as bytes_of};
use super::fault::{ConfigError, Note};
use super::key::{Combine, Item, Kind, Shape};
use super::keys::KEYS;
use super::older::modernise;
use super::origin::{Origin, Sited, Source};
use super::pattern::{clean_path, kept_form};
use super::rate::CallRates;
use super::role::LayerRoles;
use super::rule::Rule;
use super::tree::{self, Node, Value};

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// A switch.
    Bool(bool),
    /// A number.
    Int(u64),
    /// A text.
    Text(String),
    /// Texts, each with its place.
    List(Vec<Sited<String>>),
    /// `limits.calls_per_minute`.
    Rates(CallRates),
    /// What nothing reads yet.
    Json(Json),
}

impl Setting {
    /// As JSON, without places.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Bool(value) => Json::from(*value),
            Self::Int(value) => Json::from(*value),
            Self::Text(text) => Json::from(text.as_str()),
            Self::List(items) => items.iter().map(|item| Json::from(item.value.as_str())).collect(),
            Self::Rates(rates) => rates.to_json(),
            Self::Json(json) => json.clone(),
        }
    }
}

/// One file of one layer. What a file does not say is absent.
#[derive(Debug, Clone, PartialEq)]
pub struct FileConfig {
    /// The file's layer.
    pub source: Source,
    /// The file's name as it was handed in.
    pub file: Arc<str>,
    /// Roles.
    pub roles: LayerRoles,
    /// Rules, in order.
    pub rules: Vec<Rule>,
    /// Older spellings and the like.
    pub notes: Vec<Note>,
    pub(crate) values: BTreeMap<&'static str, Sited<Setting>>,
}

impl FileConfig {
    /// What the file says about a key (not for `roles` and `approvals.rules`).
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Sited<Setting>> {
        self.values.get(key)
    }

    /// What the file says, by key.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, &Sited<Setting>)> {
        self.values.iter().map(|(key, value)| (*key, value))
    }
}

/// Reads a file.
pub fn parse(text: &str, file_name: &str, source: Source) -> Result<FileConfig, Vec<ConfigError>> {
    let (root, notes) = checked(text, file_name, source)?;
    let file: Arc<str> = Arc::from(file_name);
    let at = |line: u32| Origin::File { source, file: Arc::clone(&file), line };
    let mut values = BTreeMap::new();
    for key in KEYS.iter().filter(|key| key.is_value() && key.combine != Combine::PerFile) {
        let Some((line, node)) = entry_at(&root, key.path) else { continue };
        if let Some(value) = setting(node, key.kind, &at, line) {
            values.insert(key.path, Sited::new(value, at(line)));
        }
    }
    let rules = root.at_path("approvals.rules").map(Node::items).unwrap_or_default();
    Ok(FileConfig {
        source,
        roles: LayerRoles::read(root.get("roles"), source, &at),
        rules: rules.iter().filter_map(|rule| Rule::read(rule, &at)).collect(),
        notes,
        values,
        file,
    })
}

/// Reads a file's bytes; they must be UTF-8.
pub fn parse_bytes(bytes: &[u8], file_name: &str, source: Source) -> Result<FileConfig, Vec<ConfigError>> {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return parse(text, file_name, source),
        Err(error) => error,
    };
    let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
    let good = String::from_utf8_lossy(good);
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Err(vec![ConfigError {
        file: file_name.to_owned(),
        line: number(good.matches('\n').count() + 1),
        column: number(good.rsplit('\n').next().unwrap_or_default().chars().count() + 1),
        key: String::new(),
        message: "not UTF-8".to_owned(),
        hint: "save the file as UTF-8".to_owned(),
    }])
}

/// The tree in the present layout, without faults.
pub(crate) fn checked(text: &str, file: &str, source: Source) -> Result<(Node, Vec<Note>), Vec<ConfigError>> {
    let mut root = tree::load(text, file)?;
    let mut checker = Checker { file, source, errors: Vec::new() };
    checker.check(&root, Shape::accepted(), "");
    let name: Arc<str> = Arc::from(file);
    let at = |line: u32| Origin::File { source, file: Arc::clone(&name), line };
    let notes = if checker.errors.is_empty() { modernise(&mut root, &mut checker, &at) } else { Vec::new() };
    if checker.errors.is_empty() {
        return Ok((root, notes));
    }
    let mut errors = checker.errors;
    errors.sort_by_key(|error| (error.line, error.column));
    Err(errors)
}

/// The line of a key and its value.
fn entry_at<'n>(root: &'n Node, path: &str) -> Option<(u32, &'n Node)> {
    let mut found = (root.at.line, root);
    for name in path.split('.') {
        let entry = found.1.entries().iter().find(|entry| entry.key == name)?;
        found = (entry.at.line, &entry.value);
    }
    Some(found)
}

/// A checked value in its kept form.
fn setting(node: &Node, kind: Kind, at: &dyn Fn(u32) -> Origin, line: u32) -> Option<Setting> {
    let list = |item: Item| {
        let texts = node.items().iter().filter_map(|item| Some((item.text()?, item.at.line)));
        let kept = texts.filter_map(|(text, line)| Some(Sited::new(kept_form(item, text).ok()?, at(line))));
        Setting::List(kept.collect())
    };
    match (kind, &node.value) {
        (_, Value::Null) => None,
        (_, Value::Bool(value)) => Some(Setting::Bool(*value)),
        (Kind::Rates, Value::Int(value)) => {
            let default = Sited::new(u64::try_from(*value).ok()?, at(line));
            Some(Setting::Rates(CallRates { default: Some(default), tools: BTreeMap::new() }))
        }
        (Kind::Rates, Value::Map(entries)) => {
            let mut rates = CallRates::default();
            for entry in entries {
                let Value::Int(value) = entry.value.value else { continue };
                let rate = Sited::new(u64::try_from(value).ok()?, at(entry.at.line));
                if entry.key == "default" {
                    rates.default = Some(rate);
                } else {
                    rates.tools.insert(entry.key.clone(), rate);
                }
            }
            Some(Setting::Rates(rates))
        }
        (Kind::Int { .. } | Kind::Bytes { .. }, Value::Int(value)) => {
            u64::try_from(*value).ok().map(Setting::Int)
        }
        (Kind::Bytes { .. }, Value::Text(text)) => bytes_of(text).map(Setting::Int),
        (Kind::Path, Value::Text(text)) => clean_path(text).ok().map(Setting::Text),
        (Kind::Argv, Value::Text(text)) => {
            let words = text.split_whitespace().map(|word| Sited::new(word.to_owned(), at(line)));
            Some(Setting::List(words.collect()))
        }
        (Kind::Argv, _) => Some(list(Item::Text)),
        (Kind::List(item), _) => Some(list(item)),
        (Kind::Mapping | Kind::Named | Kind::Items | Kind::Fraction, _) => Some(Setting::Json(json(node))),
        (_, Value::Text(text)) => Some(Setting::Text(text.clone())),
        _ => None,
    }
}

/// A tree as JSON.
pub(crate) fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::from(*value),
        Value::Int(value) => Json::from(*value),
        Value::Float(value) => Json::from(*value),
        Value::Text(text) => Json::from(text.as_str()),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.clone(), json(&entry.value))).collect())
        }
    }
}
