//! Generates the Markdown table of all keys for `docs/configuration.md`.

use std::fmt::Write as _;

use super::key::{ConfigKey, ItemKind, KeyStatus, Preset, ValueKind};
use super::keys::KEYS;

/// One row per key: valid values, built-in value, what a file below another one can do, documentation.
#[must_use]
pub fn reference() -> String {
    let mut out =
        String::from("| key | value | built-in | files below can | meaning |\n|---|---|---|---|---|\n");
    for key in KEYS.iter().filter(|key| key.status == KeyStatus::Used) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            key.path,
            kind(key.kind).replace('|', "\\|"),
            preset(key),
            key.combine.doc(),
            key.doc.replace('|', "\\|"),
        );
    }
    out
}

fn kind(kind: ValueKind) -> String {
    match kind {
        ValueKind::Section | ValueKind::Mapping => "mapping".to_owned(),
        ValueKind::Named => "mapping of names".to_owned(),
        ValueKind::Items => "list of mappings".to_owned(),
        ValueKind::Bool | ValueKind::NeverOffInProject(_) => "`true` or `false`".to_owned(),
        ValueKind::AlwaysFalse(_) => "`false`".to_owned(),
        ValueKind::Int { min, max } if min == max => format!("`{min}`"),
        ValueKind::Int { min, max } => format!("{min} to {max}"),
        ValueKind::Bytes { min, max } => format!("{min} to {max} bytes, or `64KiB`, `100MiB`"),
        ValueKind::Fraction => "0 to 1".to_owned(),
        ValueKind::Text => "text".to_owned(),
        ValueKind::Name => "name".to_owned(),
        ValueKind::Path => "relative path".to_owned(),
        ValueKind::Argv => "list of strings, or text".to_owned(),
        ValueKind::Choice(names) => named(names),
        ValueKind::Rates => "number, or mapping".to_owned(),
        ValueKind::List(item) => match item {
            ItemKind::Text => "list of strings".to_owned(),
            ItemKind::Glob => "list of globs".to_owned(),
            ItemKind::Block => "list of patterns".to_owned(),
            ItemKind::Directory | ItemKind::CreateDirectory => "list of directories".to_owned(),
            ItemKind::Tool => "list of tools".to_owned(),
            ItemKind::Program => "list of programs".to_owned(),
            ItemKind::Host => "list of hosts".to_owned(),
            ItemKind::Case => "list of calls".to_owned(),
            ItemKind::Choice(names) => format!("list of {}", named(names)),
        },
    }
}

fn named(names: &[&str]) -> String {
    super::list_item::listed(names)
}

fn preset(key: &ConfigKey) -> String {
    match key.preset {
        Preset::Unset => String::new(),
        Preset::Bool(value) => format!("`{value}`"),
        Preset::Int(value) => value.to_string(),
        Preset::Text(text) => format!("`{text}`"),
        Preset::List([]) => "none".to_owned(),
        Preset::List(items) => items.iter().map(|item| format!("`{item}`")).collect::<Vec<_>>().join(" "),
    }
}
