//! A tree against the table of keys: every fault of the file, not only the first. What passes here can be
//! read by [`super::file`] without further questions.

use std::collections::BTreeMap;

use super::fault::{ConfigError, nearest, quoted};
use super::key::{Item, Kind, Shape};
use super::origin::Source;
use super::pattern::{Misfit, choice, clean_path, kept_form};
use super::tree::{Node, Place, Value, dotted};

/// How many faults of one file are told.
const MAX_FAULTS: usize = 100;

/// The faults of a file.
pub(crate) struct Checker<'a> {
    pub(crate) file: &'a str,
    pub(crate) source: Source,
    pub(crate) errors: Vec<ConfigError>,
}

impl Checker<'_> {
    /// Notes a fault.
    pub(crate) fn refuse(
        &mut self,
        at: Place,
        key: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.errors.len() < MAX_FAULTS {
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

    /// Checks a node and everything below it.
    pub(crate) fn check(&mut self, node: &Node, shape: &Shape, path: &str) {
        match shape.key.kind {
            Kind::Section | Kind::Named => self.mapping(node, shape, path),
            Kind::Items => self.items(node, shape, path),
            Kind::Mapping => {
                if !matches!(node.value, Value::Map(_) | Value::Null) {
                    self.wrong(node, path, "a mapping");
                }
            }
            Kind::Rates => self.rates(node, path),
            Kind::List(item) => self.list(node, item, path),
            Kind::Argv => match &node.value {
                Value::Text(_) => self.text(node, path, argv_text),
                Value::List(words) if words.is_empty() => self.refuse(
                    node.at,
                    path,
                    "must not be empty",
                    "name a program, for example `[npm, test]`",
                ),
                _ => self.list(node, Item::Text, path),
            },
            kind => self.scalar(node, kind, path),
        }
    }

    fn mapping(&mut self, node: &Node, shape: &Shape, path: &str) {
        if !matches!(node.value, Value::Map(_) | Value::Null) {
            return self.wrong(node, path, "a mapping");
        }
        for entry in node.entries() {
            if self.errors.len() >= MAX_FAULTS {
                return;
            }
            let below = dotted(path, &entry.key);
            match shape.below(&entry.key) {
                Some(shape) if shape.key.path.ends_with(".NAME") && !is_name(&entry.key) => {
                    self.refuse(entry.at, &below, "must be a name", NAME_HINT);
                }
                Some(shape) => self.check(&entry.value, shape, &below),
                None => {
                    let hint = match nearest(&entry.key, shape.names()) {
                        Some(near) => format!("the nearest valid key is `{near}`"),
                        None => elsewhere(&entry.key).unwrap_or_else(|| {
                            format!("valid keys here: {}", shape.names().collect::<Vec<_>>().join(", "))
                        }),
                    };
                    self.refuse(entry.at, &below, "unknown key", hint);
                }
            }
        }
        self.completeness(node, shape, path);
    }

    /// What a mapping as a whole must have.
    fn completeness(&mut self, node: &Node, shape: &Shape, path: &str) {
        if shape.key.path == "secrets.scopes.NAME" && node.get("env").is_some() == node.get("file").is_some()
        {
            self.refuse(node.at, path, "must have either `env` or `file`", "keep one of the two");
        }
        // One without the other could meet the other half of another file.
        if shape.key.path == "audit.witness" && node.get("url").is_some() != node.get("key").is_some() {
            let hint = "`vambrace witness key` prints the key of a witness";
            self.refuse(node.at, path, "must have both `url` and `key`", hint);
        }
    }

    fn items(&mut self, node: &Node, shape: &Shape, path: &str) {
        if !matches!(node.value, Value::List(_)) {
            return self.wrong(node, path, "a list of mappings");
        }
        let Some(item) = &shape.item else { return };
        let mut ids = BTreeMap::new();
        for (n, child) in node.items().iter().enumerate() {
            let below = format!("{path}[{n}]");
            if !matches!(child.value, Value::Map(_)) {
                self.wrong(child, &below, "a mapping");
                continue;
            }
            self.mapping(child, item, &below);
            if shape.key.path == "network.terminate" {
                self.terminated(child, &below);
            }
            if shape.key.path == "approvals.rules" {
                self.rule(child, &below);
                if let Some(id) = child.get("id").and_then(Node::text)
                    && let Some(first) = ids.insert(id, child.at.line)
                {
                    let hint = format!("the rule in line {first} has it already");
                    self.refuse(
                        child.at,
                        &format!("{below}.id"),
                        format!("`{}` is used twice", quoted(id)),
                        hint,
                    );
                }
            }
        }
    }

    fn rule(&mut self, rule: &Node, path: &str) {
        if rule.get("decision").is_none() {
            self.refuse(rule.at, path, "must have a `decision`", "`deny`, `ask` or `allow`");
        }
        let selects = |key: &str| rule.get(key).is_some_and(|list| !list.items().is_empty());
        if !selects("tools") && !selects("paths") && !selects("commands") {
            let hint = "name at least one of `tools`, `paths`, `commands`; `tools: [\"*\"]` is every call";
            self.refuse(rule.at, path, "selects nothing", hint);
        }
    }

    fn terminated(&mut self, entry: &Node, path: &str) {
        if entry.get("hosts").is_none_or(|hosts| hosts.items().is_empty()) {
            self.refuse(entry.at, path, "names no `hosts`", "for example `hosts: [api.example.com]`");
        }
        for item in entry.get("hosts").map(Node::items).unwrap_or_default() {
            let is_name =
                |text: &str| text != "*" && text.parse::<std::net::IpAddr>().is_err() && !text.contains('/');
            if item.text().is_some_and(|text| !is_name(text)) {
                self.refuse(item.at, path, "TLS is ended for names only", "name the host");
            }
        }
        for item in entry.get("paths").map(Node::items).unwrap_or_default() {
            let star = |text: &str| {
                text.trim_end_matches('*').contains('*') || (text.ends_with('*') && !text.ends_with("/*"))
            };
            if item.text().is_some_and(|text| !text.starts_with('/') || star(text)) {
                self.refuse(
                    item.at,
                    path,
                    "is no path",
                    "for example `/v1/users`, or `/v1/*` for everything below",
                );
            }
        }
        let given = ["secret", "header", "env"].map(|key| entry.get(key).is_some());
        if given.contains(&true) && given.contains(&false) {
            let hint = "the secret's scope, the header it goes into, the variable that holds the placeholder";
            self.refuse(entry.at, path, "must have all of `secret`, `header` and `env`, or none", hint);
        }
    }

    fn rates(&mut self, node: &Node, path: &str) {
        let kind = Kind::Int { min: 1, max: 1_000_000 };
        if let Value::Map(entries) = &node.value {
            for entry in entries {
                let below = dotted(path, &entry.key);
                if entry.key != "default"
                    && let Err((message, hint)) = kept_form(Item::Tool, &entry.key)
                {
                    self.refuse(entry.at, &below, format!("the tool {message}"), hint);
                }
                self.scalar(&entry.value, kind, &below);
            }
        } else if matches!(node.value, Value::Int(_)) {
            self.scalar(node, kind, path);
        } else {
            self.wrong(node, path, "a whole number or a mapping of `default` and tools");
        }
    }

    fn list(&mut self, node: &Node, item: Item, path: &str) {
        if !matches!(node.value, Value::List(_)) {
            let hint = match &node.value {
                Value::Text(text) => format!("write `[{}]`", quoted(text)),
                _ => TABLE_HINT.to_owned(),
            };
            let message = format!("expected a list of texts, found {}", node.found());
            return self.refuse(node.at, path, message, hint);
        }
        for (n, child) in node.items().iter().enumerate() {
            self.text(child, &format!("{path}[{n}]"), |text| kept_form(item, text));
        }
    }

    fn text(&mut self, node: &Node, path: &str, fits: impl Fn(&str) -> Result<String, Misfit>) {
        match &node.value {
            Value::Text(text) => {
                if let Err((message, hint)) = fits(text) {
                    self.refuse(node.at, path, format!("`{}` {message}", quoted(text)), hint);
                }
            }
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                let message = format!("expected text, found {}", node.found());
                self.refuse(node.at, path, message, "put it in quotes");
            }
            _ => self.wrong(node, path, "text"),
        }
    }

    fn scalar(&mut self, node: &Node, kind: Kind, path: &str) {
        match (kind, &node.value) {
            (Kind::AlwaysFalse(why), Value::Bool(true)) => {
                self.refuse(node.at, path, format!("only `false` is accepted: {why}"), "remove the key");
            }
            (Kind::NeverOffInProject(why), Value::Bool(false)) if self.source.is_project() => {
                self.refuse(node.at, path, why, "remove the key");
            }
            (Kind::Bool | Kind::AlwaysFalse(_) | Kind::NeverOffInProject(_), Value::Bool(_)) => {}
            (Kind::Bool | Kind::AlwaysFalse(_) | Kind::NeverOffInProject(_), _) => {
                self.wrong(node, path, "`true` or `false`");
            }
            (Kind::Int { min, max }, Value::Int(value)) => {
                self.range(node, path, u64::try_from(*value).ok(), min, max)
            }
            (Kind::Int { .. }, _) => self.wrong(node, path, "a whole number"),
            (Kind::Bytes { min, max }, Value::Int(value)) => {
                self.range(node, path, u64::try_from(*value).ok(), min, max);
            }
            (Kind::Bytes { min, max }, Value::Text(text)) => match parse_bytes(text) {
                Some(value) => self.range(node, path, Some(value), min, max),
                None => self.wrong(node, path, "a number of bytes such as `131072` or `100MiB`"),
            },
            (Kind::Bytes { .. }, _) => {
                self.wrong(node, path, "a number of bytes such as `131072` or `100MiB`")
            }
            (Kind::Fraction, Value::Int(0 | 1)) => {}
            (Kind::Fraction, Value::Float(value)) if (0.0..=1.0).contains(value) => {}
            (Kind::Fraction, _) => self.wrong(node, path, "a number from 0 to 1"),
            (Kind::Text, _) => self.text(node, path, |text| kept_form(Item::Text, text)),
            (Kind::Path, _) => self.text(node, path, |text| {
                kept_form(Item::Text, text)?;
                clean_path(text)
            }),
            (Kind::Name, _) => self.text(node, path, |text| {
                if is_name(text) {
                    Ok(text.to_owned())
                } else {
                    Err(("is not a name".to_owned(), NAME_HINT.to_owned()))
                }
            }),
            (Kind::Choice(names), _) => self.text(node, path, |text| choice(names, text)),
            _ => self.wrong(node, path, "something else"),
        }
    }

    fn range(&mut self, node: &Node, path: &str, value: Option<u64>, min: u64, max: u64) {
        if !value.is_some_and(|value| (min..=max).contains(&value)) {
            let found = match &node.value {
                Value::Text(text) => quoted(text),
                Value::Int(value) => value.to_string(),
                _ => String::new(),
            };
            let (message, hint) = if min == max {
                (format!("`{found}` is not supported, only `{min}` is"), format!("write `{min}`"))
            } else {
                // A number that does not fit is negative where it was read as one, else too large.
                let low = value.map_or(found.starts_with('-'), |value| value < min);
                let near = if low { min } else { max };
                let message = format!("`{found}` is out of range: from {min} to {max}");
                (message, format!("the nearest valid value is `{near}`"))
            };
            self.refuse(node.at, path, message, hint);
        }
    }

    fn wrong(&mut self, node: &Node, path: &str, expected: &str) {
        self.refuse(node.at, path, format!("expected {expected}, found {}", node.found()), TABLE_HINT);
    }
}

const TABLE_HINT: &str = "`vambrace config reference` tells what every key takes";
const NAME_HINT: &str = "a name starts with a letter and has letters, digits, `_` and `-`, at most 64";

/// Letters, digits, `_` and `-`, starting with a letter.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Where a key that is unknown here would be valid.
fn elsewhere(name: &str) -> Option<String> {
    let row = super::keys::KEYS.iter().find(|key| {
        !key.path.contains("NAME") && !key.path.contains("[]") && key.path.rsplit('.').next() == Some(name)
    })?;
    Some(format!("did you mean `{}`?", row.path))
}

/// Text that is split at blanks must not need a shell to be split.
fn argv_text(text: &str) -> Result<String, Misfit> {
    kept_form(Item::Text, text)?;
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
