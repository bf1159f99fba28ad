//! Parses one file: text in, typed values with their origins out, or all errors. [`super::layers`] combines files.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::check::{Checker, PlannedKeys, parse_bytes as bytes_of};
use super::error::{ConfigError, ConfigNote};
use super::key::{Combine, ItemKind, KeyTree, ValueKind};
use super::keys::KEYS;
use super::list_item::{normalize_item, normalize_path};
use super::older_layout::translate_older_sections;
use super::origin::{ConfigSource, Located, ValueOrigin};
use super::rate::CallRates;
use super::role::LayerRoles;
use super::rule::RuleSettings;
use super::yaml_tree::{self, YamlNode, YamlValue};

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum SettingValue {
    /// A switch.
    Bool(bool),
    /// A number.
    Int(u64),
    /// A string.
    Text(String),
    /// Strings, each with its origin.
    List(Vec<Located<String>>),
    /// `limits.calls_per_minute`.
    Rates(CallRates),
    /// A structured value.
    Json(Json),
}

impl SettingValue {
    /// The value as JSON, without origins.
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

/// One file of one layer. Keys that the file does not set are absent.
#[derive(Debug, Clone, PartialEq)]
pub struct FileConfig {
    /// The file's layer.
    pub source: ConfigSource,
    /// The file's name, as passed by the caller.
    pub file: Arc<str>,
    /// Roles.
    pub roles: LayerRoles,
    /// Rules, in order.
    pub rules: Vec<RuleSettings>,
    /// Notes, for example about older layouts.
    pub notes: Vec<ConfigNote>,
    pub(crate) values: BTreeMap<&'static str, Located<SettingValue>>,
}

impl FileConfig {
    /// The value of a key in this file (not for `roles` and `approvals.rules`).
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Located<SettingValue>> {
        self.values.get(key)
    }

    /// The values of this file, by key.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, &Located<SettingValue>)> {
        self.values.iter().map(|(key, value)| (*key, value))
    }
}

/// Parses the text of a file.
pub fn parse(text: &str, file_name: &str, source: ConfigSource) -> Result<FileConfig, Vec<ConfigError>> {
    parse_keys(text, file_name, source, PlannedKeys::Reject)
}

pub(crate) fn parse_keys(
    text: &str,
    file_name: &str,
    source: ConfigSource,
    planned: PlannedKeys,
) -> Result<FileConfig, Vec<ConfigError>> {
    let CheckedFile { root, older_layout } = checked(text, file_name, source, planned)?;
    let file: Arc<str> = Arc::from(file_name);
    let at = |line: u32| ValueOrigin::File { source, file: Arc::clone(&file), line };
    let mut values = BTreeMap::new();
    for key in KEYS.iter().filter(|key| key.is_value() && key.combine != Combine::PerFile) {
        let Some((line, node)) = entry_at(&root, key.path) else { continue };
        if let Some(value) = setting(node, key.kind, &at, line) {
            values.insert(key.path, Located::new(value, at(line)));
        }
    }
    let rules = root.at_path("approvals.rules").map(YamlNode::items).unwrap_or_default();
    Ok(FileConfig {
        source,
        roles: LayerRoles::read(root.get("roles"), source, &at),
        rules: rules.iter().filter_map(|rule| RuleSettings::read(rule, &at)).collect(),
        notes: older_layout,
        values,
        file,
    })
}

/// Parses the bytes of a file, which must be UTF-8.
pub fn parse_bytes(
    bytes: &[u8],
    file_name: &str,
    source: ConfigSource,
) -> Result<FileConfig, Vec<ConfigError>> {
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
        message: "invalid UTF-8".to_owned(),
        hint: "save the file as UTF-8".to_owned(),
    }])
}

/// A validated tree, in the current layout.
pub(crate) struct CheckedFile {
    pub(crate) root: YamlNode,
    /// Notes about sections of an older layout; empty if the file has the current one.
    pub(crate) older_layout: Vec<ConfigNote>,
}

/// Validates a file and translates an older layout.
pub(crate) fn checked(
    text: &str,
    file: &str,
    source: ConfigSource,
    planned: PlannedKeys,
) -> Result<CheckedFile, Vec<ConfigError>> {
    let mut root = yaml_tree::load(text, file)?;
    let mut checker = Checker { file, source, errors: Vec::new(), planned };
    checker.check(&root, KeyTree::accepted(), "");
    let name: Arc<str> = Arc::from(file);
    let at = |line: u32| ValueOrigin::File { source, file: Arc::clone(&name), line };
    let older_layout = if checker.errors.is_empty() {
        translate_older_sections(&mut root, &mut checker, &at)
    } else {
        Vec::new()
    };
    if checker.errors.is_empty() {
        return Ok(CheckedFile { root, older_layout });
    }
    let mut errors = checker.errors;
    errors.sort_by_key(|error| (error.line, error.column));
    Err(errors)
}

/// The line of a key, and its value.
fn entry_at<'n>(root: &'n YamlNode, path: &str) -> Option<(u32, &'n YamlNode)> {
    let mut found = (root.at.line, root);
    for name in path.split('.') {
        let entry = found.1.entries().iter().find(|entry| entry.key == name)?;
        found = (entry.at.line, &entry.value);
    }
    Some(found)
}

/// A validated value in normalized form.
fn setting(
    node: &YamlNode,
    kind: ValueKind,
    at: &dyn Fn(u32) -> ValueOrigin,
    line: u32,
) -> Option<SettingValue> {
    let list = |item: ItemKind| {
        let texts = node.items().iter().filter_map(|item| Some((item.text()?, item.at.line)));
        let normalized =
            texts.filter_map(|(text, line)| Some(Located::new(normalize_item(item, text).ok()?, at(line))));
        SettingValue::List(normalized.collect())
    };
    match (kind, &node.value) {
        (_, YamlValue::Null) => None,
        (_, YamlValue::Bool(value)) => Some(SettingValue::Bool(*value)),
        (ValueKind::Rates, YamlValue::Int(value)) => {
            let default = Located::new(u64::try_from(*value).ok()?, at(line));
            Some(SettingValue::Rates(CallRates { default: Some(default), tools: BTreeMap::new() }))
        }
        (ValueKind::Rates, YamlValue::Map(entries)) => {
            let mut rates = CallRates::default();
            for entry in entries {
                let YamlValue::Int(value) = entry.value.value else { continue };
                let rate = Located::new(u64::try_from(value).ok()?, at(entry.at.line));
                if entry.key == "default" {
                    rates.default = Some(rate);
                } else {
                    rates.tools.insert(entry.key.clone(), rate);
                }
            }
            Some(SettingValue::Rates(rates))
        }
        (ValueKind::Int { .. } | ValueKind::Bytes { .. }, YamlValue::Int(value)) => {
            u64::try_from(*value).ok().map(SettingValue::Int)
        }
        (ValueKind::Bytes { .. }, YamlValue::Text(text)) => bytes_of(text).map(SettingValue::Int),
        (ValueKind::Path, YamlValue::Text(text)) => normalize_path(text).ok().map(SettingValue::Text),
        (ValueKind::Argv, YamlValue::Text(text)) => {
            let words = text.split_whitespace().map(|word| Located::new(word.to_owned(), at(line)));
            Some(SettingValue::List(words.collect()))
        }
        (ValueKind::Argv, _) => Some(list(ItemKind::Text)),
        (ValueKind::List(item), _) => Some(list(item)),
        (ValueKind::Mapping | ValueKind::Named | ValueKind::Items | ValueKind::Fraction, _) => {
            Some(SettingValue::Json(json(node)))
        }
        (_, YamlValue::Text(text)) => Some(SettingValue::Text(text.clone())),
        _ => None,
    }
}

/// Converts a tree to JSON.
pub(crate) fn json(node: &YamlNode) -> Json {
    match &node.value {
        YamlValue::Null => Json::Null,
        YamlValue::Bool(value) => Json::from(*value),
        YamlValue::Int(value) => Json::from(*value),
        YamlValue::Float(value) => Json::from(*value),
        YamlValue::Text(text) => Json::from(text.as_str()),
        YamlValue::List(items) => items.iter().map(json).collect(),
        YamlValue::Map(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.clone(), json(&entry.value))).collect())
        }
    }
}
