//! Older layouts: the `scope` section of `.flow/config.json` and the `file_broker` section. Their values move to the
//! current keys and keep their line numbers, so that errors and notes point to the original text.

use super::check::Checker;
use super::error::ConfigNote;
use super::key::{Combine, ConfigKey, KeyStatus};
use super::keys::OLDER_KEYS;
use super::origin::ValueOrigin;
use super::yaml_tree::{TextPosition, YamlEntry, YamlNode, YamlValue};

/// The sections of older layouts.
const SECTIONS: &[&str] = &["scope", "file_broker"];

/// Moves the values of older sections to the current keys, in a validated tree; returns notes about them.
pub(crate) fn translate_older_sections(
    root: &mut YamlNode,
    checker: &mut Checker<'_>,
    at: &dyn Fn(u32) -> ValueOrigin,
) -> Vec<ConfigNote> {
    let mut notes = Vec::new();
    for section in SECTIONS {
        let Some(old_section) = take(root, section) else { continue };
        notes.push(ConfigNote::new(
            &at(old_section.at.line),
            *section,
            "is an older layout; `vambrace config migrate` converts the file to the current one",
        ));
        for entry in old_section.value.entries() {
            let path = format!("{section}.{}", entry.key);
            let Some(KeyStatus::Older(to)) =
                OLDER_KEYS.iter().find(|key| key.path == path).map(|key| key.status)
            else {
                continue;
            };
            if to.is_empty() {
                if entry.value.value == YamlValue::Bool(false) {
                    notes.push(ConfigNote::new(
                        &at(entry.at.line),
                        path,
                        "has no effect: protection cannot be switched off",
                    ));
                }
                continue;
            }
            let value = translated(&path, &entry.value);
            let adds = ConfigKey::find(to).is_some_and(|key| key.combine == Combine::Union);
            match root.at_path(to) {
                Some(known) if adds => {
                    let both = known.items().iter().chain(value.items()).cloned().collect();
                    put(root, to, entry.at, YamlNode { at: value.at, value: YamlValue::List(both) });
                }
                Some(known) => {
                    let message = format!("is set twice: also as `{to}` in line {}", known.at.line);
                    checker.add_error(entry.at, &path, message, "keep the current key");
                }
                None => put(root, to, entry.at, value),
            }
        }
    }
    notes
}

/// Converts a value to its current form.
fn translated(path: &str, value: &YamlNode) -> YamlNode {
    let mut value = value.clone();
    match (path, &mut value.value) {
        ("scope.service_isolation", YamlValue::Text(name)) => *name = name.to_lowercase(),
        // In that layout, files at the root level were always allowed.
        ("file_broker.allowlisted_create_dirs", YamlValue::List(directories)) => {
            directories.insert(0, YamlNode { at: value.at, value: YamlValue::Text(".".to_owned()) });
        }
        _ => {}
    }
    value
}

fn take(root: &mut YamlNode, name: &str) -> Option<YamlEntry> {
    let YamlValue::Map(entries) = &mut root.value else { return None };
    let at = entries.iter().position(|entry| entry.key == name)?;
    Some(entries.remove(at))
}

/// Sets the value at a dotted path and creates missing sections.
fn put(node: &mut YamlNode, path: &str, at: TextPosition, value: YamlNode) {
    if !matches!(node.value, YamlValue::Map(_)) {
        node.value = YamlValue::Map(Vec::new());
    }
    let YamlValue::Map(entries) = &mut node.value else { return };
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    if !entries.iter().any(|entry| entry.key == name) {
        entries.push(YamlEntry { key: name.to_owned(), at, value: YamlNode { at, value: YamlValue::Null } });
    }
    let Some(entry) = entries.iter_mut().find(|entry| entry.key == name) else { return };
    match rest {
        Some(rest) => put(&mut entry.value, rest, at, value),
        None => entry.value = value,
    }
}
