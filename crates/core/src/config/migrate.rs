//! Converts a file from an older layout to the current one. A file in the current layout is returned unchanged. Comments
//! of the old file are lost; short ones from the key table are added.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::check::PlannedKeys;
use super::error::ConfigError;
use super::file::{CheckedFile, checked, json};
use super::key::{ConfigKey, KeyTree, ValueKind};
use super::keys::LAYOUT_VERSION;
use super::origin::ConfigSource;
use super::yaml_tree::{YamlNode, YamlValue};

/// Maximum length of a key's documentation that is added as a comment, in bytes.
const MAX_COMMENT_BYTES: usize = 80;

/// The same settings in the current layout, as YAML. The text is parsed as a project file.
pub fn migrate(text: &str, file_name: &str) -> Result<String, Vec<ConfigError>> {
    let source = ConfigSource::Project { trusted: true };
    let CheckedFile { root, older_layout, .. } = checked(text, file_name, source, PlannedKeys::Reject)?;
    if older_layout.is_empty() {
        return Ok(text.to_owned());
    }
    let mut out = format!("# Written by `vambrace config migrate` from {}\n", comment(file_name));
    if root.get("version").is_none() {
        let _ = writeln!(out, "version: {LAYOUT_VERSION}");
    }
    section(&mut out, &root, KeyTree::current(), "");
    Ok(out)
}

/// Writes the keys of a section, in the order of the key table.
fn section(out: &mut String, node: &YamlNode, shape: &KeyTree, indent: &str) {
    for (name, shape) in &shape.fields {
        let Some(value) = node.get(name) else { continue };
        if shape.key.kind == ValueKind::Section
            && matches!(value.value, YamlValue::Map(_))
            && !value.entries().is_empty()
        {
            doc(out, shape.key, indent);
            let _ = writeln!(out, "{indent}{name}:");
            section(out, value, shape, &format!("{indent}  "));
        } else if value.value != YamlValue::Null {
            doc(out, shape.key, indent);
            let _ = write!(out, "{indent}{name}:");
            block(out, &json(value), indent);
        }
    }
}

fn doc(out: &mut String, key: &ConfigKey, indent: &str) {
    if !key.doc.is_empty() && key.doc.len() <= MAX_COMMENT_BYTES {
        let _ = writeln!(out, "{indent}# {}", key.doc);
    }
}

/// Writes a value after its key. Scalars are written as JSON, which is valid YAML without further quoting rules.
fn block(out: &mut String, value: &Json, indent: &str) {
    match value {
        Json::Array(items) if !items.is_empty() => {
            out.push('\n');
            for item in items {
                let _ = writeln!(out, "{indent}  - {}", flow(item));
            }
        }
        Json::Object(entries) if !entries.is_empty() => {
            out.push('\n');
            for (name, value) in entries {
                let _ = writeln!(out, "{indent}  {}: {}", flow(&Json::from(name.as_str())), flow(value));
            }
        }
        value => {
            let _ = writeln!(out, " {}", flow(value));
        }
    }
}

/// One line of JSON; characters that YAML does not allow are escaped, plain words stay unquoted.
fn flow(value: &Json) -> String {
    if let Json::String(text) = value
        && is_plain(text)
    {
        return text.clone();
    }
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether every YAML parser reads the word as a string without quotes.
fn is_plain(text: &str) -> bool {
    const RESERVED_WORDS: &[&str] =
        &["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"];
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.'))
        && !RESERVED_WORDS.contains(&text.to_ascii_lowercase().as_str())
}

fn comment(text: &str) -> String {
    super::error::quoted(text)
}
