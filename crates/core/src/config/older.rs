//! Older layouts: the `scope` section of `.flow/config.json` and the `file_broker` section. Their values
//! move to the present keys and keep their own lines, so that errors and notes point to what was written.

use super::check::Checker;
use super::fault::Note;
use super::key::{Combine, Key, Status};
use super::keys::OLDER_KEYS;
use super::origin::Origin;
use super::tree::{Entry, Node, Place, Value};

/// The sections that move.
const SECTIONS: &[&str] = &["scope", "file_broker"];

/// Moves the values of older sections to the present keys; tells what was moved. The tree has been checked.
pub(crate) fn modernise(root: &mut Node, checker: &mut Checker<'_>, at: &dyn Fn(u32) -> Origin) -> Vec<Note> {
    let mut notes = Vec::new();
    for section in SECTIONS {
        let Some(taken) = take(root, section) else { continue };
        notes.push(Note::new(
            &at(taken.at.line),
            *section,
            "is an older layout; `vambrace config migrate` writes the present one",
        ));
        for entry in taken.value.entries() {
            let path = format!("{section}.{}", entry.key);
            let Some(Status::Older(to)) =
                OLDER_KEYS.iter().find(|key| key.path == path).map(|key| key.status)
            else {
                continue;
            };
            if to.is_empty() {
                if entry.value.value == Value::Bool(false) {
                    notes.push(Note::new(
                        &at(entry.at.line),
                        path,
                        "has no effect: protection cannot be switched off",
                    ));
                }
                continue;
            }
            let value = translated(&path, &entry.value);
            let adds = Key::find(to).is_some_and(|key| key.combine == Combine::Union);
            match root.at_path(to) {
                Some(known) if adds => {
                    let both = known.items().iter().chain(value.items()).cloned().collect();
                    put(root, to, entry.at, Node { at: value.at, value: Value::List(both) });
                }
                Some(known) => {
                    let message = format!("is set twice: as `{to}` in line {} too", known.at.line);
                    checker.refuse(entry.at, &path, message, "keep the present spelling");
                }
                None => put(root, to, entry.at, value),
            }
        }
    }
    notes
}

/// The value in its present form.
fn translated(path: &str, value: &Node) -> Node {
    let mut value = value.clone();
    match (path, &mut value.value) {
        ("scope.service_isolation", Value::Text(name)) => *name = name.to_lowercase(),
        // There, files at the root level were always allowed.
        ("file_broker.allowlisted_create_dirs", Value::List(folders)) => {
            folders.insert(0, Node { at: value.at, value: Value::Text(".".to_owned()) });
        }
        _ => {}
    }
    value
}

fn take(root: &mut Node, name: &str) -> Option<Entry> {
    let Value::Map(entries) = &mut root.value else { return None };
    let at = entries.iter().position(|entry| entry.key == name)?;
    Some(entries.remove(at))
}

/// Sets the value at a dotted path, making the sections on the way.
fn put(node: &mut Node, path: &str, at: Place, value: Node) {
    if !matches!(node.value, Value::Map(_)) {
        node.value = Value::Map(Vec::new());
    }
    let Value::Map(entries) = &mut node.value else { return };
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    if !entries.iter().any(|entry| entry.key == name) {
        entries.push(Entry { key: name.to_owned(), at, value: Node { at, value: Value::Null } });
    }
    let Some(entry) = entries.iter_mut().find(|entry| entry.key == name) else { return };
    match rest {
        Some(rest) => put(&mut entry.value, rest, at, value),
        None => entry.value = value,
    }
}
