//! The table of keys as Markdown, for `docs/configuration.md`.

use std::fmt::Write as _;

use super::key::{Item, Key, Kind, Preset};
use super::keys::KEYS;

/// One row per key: what it takes, its built-in value, what a file below another can do with it.
#[must_use]
pub fn reference() -> String {
    let mut out = String::from("| key | value | built-in | files below | what |\n|---|---|---|---|---|\n");
    for key in KEYS {
        let doc = match key.status {
            super::key::Status::NotYet => format!("{} ({})", key.doc, key.status.as_str()),
            _ => key.doc.to_owned(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            key.path,
            kind(key.kind).replace('|', "\\|"),
            preset(key),
            key.combine.doc(),
            doc.replace('|', "\\|"),
        );
    }
    out
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Section | Kind::Mapping => "mapping".to_owned(),
        Kind::Named => "mapping of names".to_owned(),
        Kind::Items => "list of mappings".to_owned(),
        Kind::Bool | Kind::NeverOffInProject(_) => "`true` or `false`".to_owned(),
        Kind::AlwaysFalse(_) => "`false`".to_owned(),
        Kind::Int { min, max } if min == max => format!("`{min}`"),
        Kind::Int { min, max } => format!("{min} to {max}"),
        Kind::Bytes { min, max } => format!("{min} to {max} bytes, or `64KiB`, `100MiB`"),
        Kind::Fraction => "0 to 1".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Name => "name".to_owned(),
        Kind::Path => "relative path".to_owned(),
        Kind::Argv => "list of words, or text".to_owned(),
        Kind::Choice(names) => named(names),
        Kind::Rates => "number, or mapping".to_owned(),
        Kind::List(item) => match item {
            Item::Text => "list of texts".to_owned(),
            Item::Glob => "list of globs".to_owned(),
            Item::Block => "list of patterns".to_owned(),
            Item::Folder | Item::CreateFolder => "list of folders".to_owned(),
            Item::Tool => "list of tools".to_owned(),
            Item::Program => "list of programs".to_owned(),
            Item::Host => "list of hosts".to_owned(),
            Item::Case => "list of calls".to_owned(),
            Item::Choice(names) => format!("list of {}", named(names)),
        },
    }
}

fn named(names: &[&str]) -> String {
    super::pattern::listed(names)
}

fn preset(key: &Key) -> String {
    match key.preset {
        Preset::Unset => String::new(),
        Preset::Bool(value) => format!("`{value}`"),
        Preset::Int(value) => value.to_string(),
        Preset::Text(text) => format!("`{text}`"),
        Preset::List([]) => "none".to_owned(),
        Preset::List(items) => items.iter().map(|item| format!("`{item}`")).collect::<Vec<_>>().join(" "),
    }
}
