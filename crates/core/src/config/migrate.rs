//! A file in an older layout, written again in the present one. A file that is in the present layout
//! already comes back as it is. Comments of the old file are not kept; short ones from the table are put in.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::fault::ConfigError;
use super::file::{checked, json};
use super::key::{Key, Kind, Shape};
use super::keys::LAYOUT_VERSION;
use super::origin::Source;
use super::tree::{Node, Value};

/// The longest comment that stands beside a value.
const SHORT_DOC: usize = 80;

/// The same settings in the present layout, as YAML. The text is read as a project file.
pub fn migrate(text: &str, file_name: &str) -> Result<String, Vec<ConfigError>> {
    let (root, older) = checked(text, file_name, Source::Project { trusted: true })?;
    if older.is_empty() {
        return Ok(text.to_owned());
    }
    let mut out = format!("# Written by `vambrace config migrate` from {}\n", comment(file_name));
    if root.get("version").is_none() {
        let _ = writeln!(out, "version: {LAYOUT_VERSION}");
    }
    section(&mut out, &root, Shape::present(), "");
    Ok(out)
}

/// The keys of a section in the order of the table.
fn section(out: &mut String, node: &Node, shape: &Shape, indent: &str) {
    for (name, shape) in &shape.fields {
        let Some(value) = node.get(name) else { continue };
        if shape.key.kind == Kind::Section
            && matches!(value.value, Value::Map(_))
            && !value.entries().is_empty()
        {
            doc(out, shape.key, indent);
            let _ = writeln!(out, "{indent}{name}:");
            section(out, value, shape, &format!("{indent}  "));
        } else if value.value != Value::Null {
            doc(out, shape.key, indent);
            let _ = write!(out, "{indent}{name}:");
            block(out, &json(value), indent);
        }
    }
}

fn doc(out: &mut String, key: &Key, indent: &str) {
    if !key.doc.is_empty() && key.doc.len() <= SHORT_DOC {
        let _ = writeln!(out, "{indent}# {}", key.doc);
    }
}

/// A value after its key. Every scalar is written as JSON, which is YAML and needs no rules of quoting.
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

/// One line of JSON, without characters that YAML does not take as they are; a plain word stays plain.
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

/// Words that no reader of YAML takes for anything but text.
fn is_plain(text: &str) -> bool {
    const TAKEN: &[&str] = &["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"];
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.'))
        && !TAKEN.contains(&text.to_ascii_lowercase().as_str())
}

fn comment(text: &str) -> String {
    super::fault::quoted(text)
}
