//! Validates a tree against the key table and reports every error of the file, not only the first. [`super::file`] reads
//! a tree that passes without further checks.

use std::collections::BTreeMap;

use super::error::{ConfigError, nearest, quoted};
use super::key::{ItemKind, KeyStatus, KeyTree, ValueKind};
use super::list_item::{InvalidItem, choice, normalize_item, normalize_path};
use super::origin::ConfigSource;
use super::yaml_tree::{TextPosition, YamlNode, YamlValue, dotted};

/// Maximum number of reported errors of one file.
const MAX_ERRORS: usize = 100;

/// Collects the errors of a file.
pub(crate) struct Checker<'a> {
    pub(crate) file: &'a str,
    pub(crate) source: ConfigSource,
    pub(crate) errors: Vec<ConfigError>,
    pub(crate) planned: PlannedKeys,
}

/// Whether keys of later versions are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedKeys {
    /// They are errors.
    Reject,
    /// They are checked like any other key, so that tests cover the whole table.
    #[cfg(test)]
    Accept,
}

impl Checker<'_> {
    /// Adds an error.
    pub(crate) fn add_error(
        &mut self,
        at: TextPosition,
        key: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(ConfigError {
                file: self.file.to_owned(),
                line: at.line,
                column: at.column,
                key: key.to_owned(),
                message: message.into(),
                hint: hint.into(),
            });
        }
    }

    /// Validates a node and everything below it.
    pub(crate) fn check(&mut self, node: &YamlNode, shape: &KeyTree, path: &str) {
        match shape.key.kind {
            ValueKind::Section | ValueKind::Named => self.mapping(node, shape, path),
            ValueKind::Items => self.items(node, shape, path),
            ValueKind::Mapping => {
                if !matches!(node.value, YamlValue::Map(_) | YamlValue::Null) {
                    self.wrong_type(node, path, "a mapping");
                }
            }
            ValueKind::Rates => self.rates(node, path),
            ValueKind::List(item) => self.list(node, item, path),
            ValueKind::Argv => match &node.value {
                YamlValue::Text(_) => self.text(node, path, argv_text),
                YamlValue::List(words) if words.is_empty() => self.add_error(
                    node.at,
                    path,
                    "must not be empty",
                    "write a program and its arguments, for example `[npm, test]`",
                ),
                _ => self.list(node, ItemKind::Text, path),
            },
            kind => self.scalar(node, kind, path),
        }
    }

    fn mapping(&mut self, node: &YamlNode, shape: &KeyTree, path: &str) {
        if !matches!(node.value, YamlValue::Map(_) | YamlValue::Null) {
            return self.wrong_type(node, path, "a mapping");
        }
        for entry in node.entries() {
            if self.errors.len() >= MAX_ERRORS {
                return;
            }
            let below = dotted(path, &entry.key);
            match shape.below(&entry.key) {
                Some(shape) if shape.key.path.ends_with(".NAME") && !is_name(&entry.key) => {
                    self.add_error(entry.at, &below, "must be a name", NAME_HINT);
                }
                Some(shape)
                    if shape.key.status == KeyStatus::NotAvailable && self.planned == PlannedKeys::Reject =>
                {
                    self.add_error(entry.at, &below, shape.key.status.as_str(), "remove the key");
                }
                Some(shape) => {
                    self.check(&entry.value, shape, &below);
                }
                None => {
                    let hint = match nearest(&entry.key, shape.names()) {
                        Some(near) => format!("the nearest valid key is `{near}`"),
                        None => elsewhere(&entry.key).unwrap_or_else(|| {
                            format!("valid keys here: {}", shape.names().collect::<Vec<_>>().join(", "))
                        }),
                    };
                    self.add_error(entry.at, &below, "unknown key", hint);
                }
            }
        }
        self.completeness(node, shape, path);
    }

    /// Checks combinations of keys in a mapping.
    fn completeness(&mut self, node: &YamlNode, shape: &KeyTree, path: &str) {
        if shape.key.path == "secrets.scopes.NAME" && node.get("env").is_some() == node.get("file").is_some()
        {
            self.add_error(node.at, path, "must have either `env` or `file`", "keep one of the two");
        }
        // A half in this file could be combined with the other half from another file.
        if shape.key.path == "audit.witness" && node.get("url").is_some() != node.get("key").is_some() {
            let hint = "`vambrace witness key` prints the key of a witness";
            self.add_error(node.at, path, "must have both `url` and `key`", hint);
        }
    }

    fn items(&mut self, node: &YamlNode, shape: &KeyTree, path: &str) {
        if !matches!(node.value, YamlValue::List(_)) {
            return self.wrong_type(node, path, "a list of mappings");
        }
        let Some(item) = &shape.item else { return };
        let mut ids = BTreeMap::new();
        for (n, child) in node.items().iter().enumerate() {
            let below = format!("{path}[{n}]");
            if !matches!(child.value, YamlValue::Map(_)) {
                self.wrong_type(child, &below, "a mapping");
                continue;
            }
            self.mapping(child, item, &below);
            if shape.key.path == "network.terminate" {
                self.terminated(child, &below);
            }
            if shape.key.path == "approvals.rules" {
                self.rule(child, &below);
                if let Some(id) = child.get("id").and_then(YamlNode::text)
                    && let Some(first) = ids.insert(id, child.at.line)
                {
                    let hint = format!("the rule in line {first} already uses it");
                    self.add_error(
                        child.at,
                        &format!("{below}.id"),
                        format!("`{}` is used twice", quoted(id)),
                        hint,
                    );
                }
            }
        }
    }

    fn rule(&mut self, rule: &YamlNode, path: &str) {
        if rule.get("decision").is_none() {
            self.add_error(rule.at, path, "must have a `decision`", "`deny`, `ask` or `allow`");
        }
        let selects = |key: &str| rule.get(key).is_some_and(|list| !list.items().is_empty());
        if !selects("tools") && !selects("paths") && !selects("commands") {
            let hint =
                "set at least one of `tools`, `paths`, `commands`; `tools: [\"*\"]` matches every call";
            self.add_error(rule.at, path, "matches no call", hint);
        }
    }

    fn terminated(&mut self, entry: &YamlNode, path: &str) {
        if entry.get("hosts").is_none_or(|hosts| hosts.items().is_empty()) {
            self.add_error(entry.at, path, "must have `hosts`", "for example `hosts: [api.example.com]`");
        }
        for item in entry.get("hosts").map(YamlNode::items).unwrap_or_default() {
            let is_name =
                |text: &str| text != "*" && text.parse::<std::net::IpAddr>().is_err() && !text.contains('/');
            if item.text().is_some_and(|text| !is_name(text)) {
                self.add_error(item.at, path, "TLS is terminated for host names only", "write a host name");
            }
        }
        for item in entry.get("paths").map(YamlNode::items).unwrap_or_default() {
            let star = |text: &str| {
                text.trim_end_matches('*').contains('*') || (text.ends_with('*') && !text.ends_with("/*"))
            };
            if item.text().is_some_and(|text| !text.starts_with('/') || star(text)) {
                self.add_error(
                    item.at,
                    path,
                    "is not a URL path",
                    "for example `/v1/users`, or `/v1/*` for everything below",
                );
            }
        }
        let given = ["secret", "header", "env"].map(|key| entry.get(key).is_some());
        if given.contains(&true) && given.contains(&false) {
            let hint = "the secret's scope, the header for it, the variable with the placeholder";
            self.add_error(entry.at, path, "must have all of `secret`, `header` and `env`, or none", hint);
        }
    }

    fn rates(&mut self, node: &YamlNode, path: &str) {
        let kind = ValueKind::Int { min: 1, max: 1_000_000 };
        if let YamlValue::Map(entries) = &node.value {
            for entry in entries {
                let below = dotted(path, &entry.key);
                if entry.key != "default"
                    && let Err((message, hint)) = normalize_item(ItemKind::Tool, &entry.key)
                {
                    self.add_error(entry.at, &below, format!("the tool {message}"), hint);
                }
                self.scalar(&entry.value, kind, &below);
            }
        } else if matches!(node.value, YamlValue::Int(_)) {
            self.scalar(node, kind, path);
        } else {
            self.wrong_type(node, path, "a whole number or a mapping of `default` and tools");
        }
    }

    fn list(&mut self, node: &YamlNode, item: ItemKind, path: &str) {
        if !matches!(node.value, YamlValue::List(_)) {
            let hint = match &node.value {
                YamlValue::Text(text) => format!("write `[{}]`", quoted(text)),
                _ => TABLE_HINT.to_owned(),
            };
            let message = format!("expected a list of strings, found {}", node.describe());
            return self.add_error(node.at, path, message, hint);
        }
        for (n, child) in node.items().iter().enumerate() {
            self.text(child, &format!("{path}[{n}]"), |text| normalize_item(item, text));
        }
    }

    fn text(&mut self, node: &YamlNode, path: &str, fits: impl Fn(&str) -> Result<String, InvalidItem>) {
        match &node.value {
            YamlValue::Text(text) => {
                if let Err((message, hint)) = fits(text) {
                    self.add_error(node.at, path, format!("`{}` {message}", quoted(text)), hint);
                }
            }
            YamlValue::Bool(_) | YamlValue::Int(_) | YamlValue::Float(_) => {
                let message = format!("expected text, found {}", node.describe());
                self.add_error(node.at, path, message, "put it in quotes");
            }
            _ => self.wrong_type(node, path, "text"),
        }
    }

    fn scalar(&mut self, node: &YamlNode, kind: ValueKind, path: &str) {
        match (kind, &node.value) {
            (ValueKind::AlwaysFalse(why), YamlValue::Bool(true)) => {
                self.add_error(node.at, path, format!("only `false` is accepted: {why}"), "remove the key");
            }
            (ValueKind::NeverOffInProject(why), YamlValue::Bool(false)) if self.source.is_project() => {
                self.add_error(node.at, path, why, "remove the key");
            }
            (
                ValueKind::Bool | ValueKind::AlwaysFalse(_) | ValueKind::NeverOffInProject(_),
                YamlValue::Bool(_),
            ) => {}
            (ValueKind::Bool | ValueKind::AlwaysFalse(_) | ValueKind::NeverOffInProject(_), _) => {
                self.wrong_type(node, path, "`true` or `false`");
            }
            (ValueKind::Int { min, max }, YamlValue::Int(value)) => {
                self.range(node, path, u64::try_from(*value).ok(), min, max)
            }
            (ValueKind::Int { .. }, _) => self.wrong_type(node, path, "a whole number"),
            (ValueKind::Bytes { min, max }, YamlValue::Int(value)) => {
                self.range(node, path, u64::try_from(*value).ok(), min, max);
            }
            (ValueKind::Bytes { min, max }, YamlValue::Text(text)) => match parse_bytes(text) {
                Some(value) => self.range(node, path, Some(value), min, max),
                None => self.wrong_type(node, path, "a number of bytes such as `131072` or `100MiB`"),
            },
            (ValueKind::Bytes { .. }, _) => {
                self.wrong_type(node, path, "a number of bytes such as `131072` or `100MiB`")
            }
            (ValueKind::Fraction, YamlValue::Int(0 | 1)) => {}
            (ValueKind::Fraction, YamlValue::Float(value)) if (0.0..=1.0).contains(value) => {}
            (ValueKind::Fraction, _) => self.wrong_type(node, path, "a number from 0 to 1"),
            (ValueKind::Text, _) => self.text(node, path, |text| normalize_item(ItemKind::Text, text)),
            (ValueKind::Path, _) => self.text(node, path, |text| {
                normalize_item(ItemKind::Text, text)?;
                normalize_path(text)
            }),
            (ValueKind::Name, _) => self.text(node, path, |text| {
                if is_name(text) {
                    Ok(text.to_owned())
                } else {
                    Err(("is not a name".to_owned(), NAME_HINT.to_owned()))
                }
            }),
            (ValueKind::Choice(names), _) => self.text(node, path, |text| choice(names, text)),
            _ => self.wrong_type(node, path, "something else"),
        }
    }

    fn range(&mut self, node: &YamlNode, path: &str, value: Option<u64>, min: u64, max: u64) {
        if !value.is_some_and(|value| (min..=max).contains(&value)) {
            let found = match &node.value {
                YamlValue::Text(text) => quoted(text),
                YamlValue::Int(value) => value.to_string(),
                _ => String::new(),
            };
            let (message, hint) = if min == max {
                (format!("`{found}` is not supported, only `{min}` is"), format!("write `{min}`"))
            } else {
                // A number that does not fit u64 is negative or too large.
                let low = value.map_or(found.starts_with('-'), |value| value < min);
                let near = if low { min } else { max };
                let message = format!("`{found}` is out of range: from {min} to {max}");
                (message, format!("the nearest valid value is `{near}`"))
            };
            self.add_error(node.at, path, message, hint);
        }
    }

    fn wrong_type(&mut self, node: &YamlNode, path: &str, expected: &str) {
        self.add_error(node.at, path, format!("expected {expected}, found {}", node.describe()), TABLE_HINT);
    }
}

const TABLE_HINT: &str = "`vambrace config reference` lists the valid values of every key";
const NAME_HINT: &str =
    "a name starts with a letter, followed by letters, digits, `_` and `-`; at most 64 characters";

/// Whether a text is a name: letters, digits, `_` and `-`, starting with a letter, at most 64 bytes.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// A hint with the full path, if the key is valid elsewhere.
fn elsewhere(name: &str) -> Option<String> {
    let row = super::keys::KEYS.iter().find(|key| {
        !key.path.contains("NAME") && !key.path.contains("[]") && key.path.rsplit('.').next() == Some(name)
    })?;
    Some(format!("did you mean `{}`?", row.path))
}

/// A command as one string is split at whitespace: it must not contain shell syntax.
fn argv_text(text: &str) -> Result<String, InvalidItem> {
    normalize_item(ItemKind::Text, text)?;
    if text.contains(['"', '\'', '\\', '|', '&', ';', '<', '>', '$', '`', '(', ')', '\n']) {
        let hint = "no shell runs it: write a list, for example `[npm, test]`".to_owned();
        return Err(("needs a shell".to_owned(), hint));
    }
    Ok(text.to_owned())
}

/// `123`, `64KiB`, `100MiB`, `2GiB`.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at_checked(at)?,
        None => (text, ""),
    };
    let scale: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}
