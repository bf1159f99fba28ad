//! The row type of the key table, and the tree of rows that validation and the schema walk. The rows themselves are in
//! [`super::keys`].

use std::sync::OnceLock;

use super::keys::{KEYS, OLDER_KEYS};

/// One key of the configuration: a row of the key table.
#[derive(Debug, Clone, Copy)]
pub struct ConfigKey {
    /// Dotted path; `NAME` stands for any name, `[]` for the items of a list.
    pub path: &'static str,
    /// Which values are valid.
    pub kind: ValueKind,
    /// The built-in value.
    pub preset: Preset,
    /// How the values of several layers are combined.
    pub combine: Combine,
    /// Whether the key is in use.
    pub status: KeyStatus,
    /// Documentation, one line.
    pub doc: &'static str,
}

/// Which values of a key are valid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueKind {
    /// A mapping with the keys that the table lists below it.
    Section,
    /// A mapping from names to what the table lists under `NAME`.
    Named,
    /// A list of mappings with the keys that the table lists under `[]`.
    Items,
    /// A mapping whose content is not checked yet.
    Mapping,
    /// `true` or `false`.
    Bool,
    /// A switch that must be `false`; the text is the reason.
    AlwaysFalse(&'static str),
    /// A switch that a project file cannot turn off; the text is the reason.
    NeverOffInProject(&'static str),
    /// A whole number.
    Int { min: u64, max: u64 },
    /// A whole number of bytes, or a text such as `100MiB`.
    Bytes { min: u64, max: u64 },
    /// A number from 0 to 1.
    Fraction,
    /// A non-empty string.
    Text,
    /// A name: letters, digits, `_` and `-`.
    Name,
    /// A relative path without `..`.
    Path,
    /// A program and its arguments: a list, or one string that is split at whitespace.
    Argv,
    /// One of the given names.
    Choice(&'static [&'static str]),
    /// A number, or a mapping from `default` and tools to numbers.
    Rates,
    /// A list of strings.
    List(ItemKind),
}

/// Which strings are valid in a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ItemKind {
    /// Any non-empty string.
    Text,
    /// A glob over paths relative to the service root (or `project:...`).
    Glob,
    /// A pattern of [`crate::blocked_paths::BlockList`].
    Block,
    /// A directory below the root.
    Directory,
    /// A directory below the root, `.` for the root level only, or `**` for every directory.
    CreateDirectory,
    /// A tool, a pattern with `*`, or `group:NAME`.
    Tool,
    /// The name of a program, without a path.
    Program,
    /// A host, `*.host`, an address or a network, with or without a port.
    Host,
    /// A tool with its path or command: `read_file docs/a.md`.
    Case,
    /// One of the given names.
    Choice(&'static [&'static str]),
}

/// The built-in value of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Preset {
    /// No value.
    Unset,
    /// A switch.
    Bool(bool),
    /// A number.
    Int(u64),
    /// A string.
    Text(&'static str),
    /// A list of strings.
    List(&'static [&'static str]),
}

/// How the values of several layers are combined. Files are read from the organisation down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// Part of the value of its parent key.
    Part,
    /// Applies to its own file only.
    Own,
    /// A number: the topmost file with the key sets it, files below can only lower it.
    Cap,
    /// A number: the topmost file with the key sets it, files below can only raise it.
    Floor,
    /// A list that restricts: the built-in entries and those of every file.
    Union,
    /// A list that permits: the topmost file with the key sets it, files below can only intersect it.
    Intersect(Covers),
    /// A choice: the topmost file with the key sets it, files below can only select a narrower one.
    Narrowest(BaseSetter),
    /// A switch: the topmost file with the key sets it, files below can only select this value.
    Switch(bool, BaseSetter),
    /// A directory: files below can only select a directory inside it.
    Inside,
    /// The value of the topmost file with the key, among those that may set it.
    Topmost(BaseSetter),
    /// The entries of all trusted files; if two have the same name, the upper file's entry counts.
    Collect,
    /// A profile: files below the topmost can only select `readonly`.
    Profile,
    /// Kept per file; the policy intersects them.
    PerFile,
    /// A list that permits, from the files of the organisation and the user only.
    NotFromProject,
}

impl Combine {
    /// For the reference: what a file can do below another file with the key.
    #[must_use]
    pub fn doc(self) -> &'static str {
        match self {
            Self::Part => "",
            Self::Own => "own file only",
            Self::Cap => "lower only",
            Self::Floor => "raise only",
            Self::Union => "add entries",
            Self::Intersect(_) => "intersect",
            Self::Narrowest(_) | Self::Switch(..) | Self::Profile => "narrow only",
            Self::Inside => "subdirectory only",
            Self::Topmost(BaseSetter::AnyTrusted) => "nothing: topmost file wins",
            Self::Topmost(BaseSetter::AboveProject) => {
                "nothing: topmost file wins; never from a project file"
            }
            Self::Collect => "add entries, if trusted",
            Self::PerFile => "add restrictions",
            Self::NotFromProject => "intersect; never from a project file",
        }
    }
}

/// Which files may replace the built-in value, also with a wider one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseSetter {
    /// The organisation, the user, or a trusted project.
    AnyTrusted,
    /// The organisation or the user, never a file of the project.
    AboveProject,
}

/// When one entry of a permitting list covers another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Covers {
    /// If they are equal.
    Same,
    /// If the directory contains the other.
    Directory,
    /// If the host pattern covers the other.
    Host,
}

/// Whether a key is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStatus {
    /// In use.
    Used,

    /// Not available in this version: an error.
    NotAvailable,
    /// A key of an older layout, and the current key that replaces it (empty if there is none).
    Older(&'static str),
}

impl KeyStatus {
    /// Text for errors and notes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",

            Self::NotAvailable => "not available in this version",
            Self::Older(_) => "older layout",
        }
    }
}

impl ConfigKey {
    /// Whether the key has a value of its own (it is not a section and not part of another key).
    #[must_use]
    pub(crate) fn is_value(&self) -> bool {
        self.combine != Combine::Part
    }

    /// The key with this path.
    #[must_use]
    pub fn find(path: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.path == path)
    }
}

/// A key with the keys below it.
#[derive(Debug)]
pub(crate) struct KeyTree {
    pub(crate) key: &'static ConfigKey,
    pub(crate) fields: Vec<(&'static str, Self)>,
    pub(crate) any: Option<Box<Self>>,
    pub(crate) item: Option<Box<Self>>,
}

static ROOT: ConfigKey = ConfigKey {
    path: "",
    kind: ValueKind::Section,
    preset: Preset::Unset,
    combine: Combine::Part,
    status: KeyStatus::Used,
    doc: "configuration of Vambrace",
};

impl KeyTree {
    /// The keys that are in use: what reference and schema describe.
    pub(crate) fn documented() -> &'static Self {
        static SHAPE: OnceLock<KeyTree> = OnceLock::new();
        SHAPE.get_or_init(|| Self::of(KEYS.iter().filter(|key| key.status == KeyStatus::Used)))
    }

    /// The keys of the current layout that a file may set.
    pub(crate) fn current() -> &'static Self {
        static SHAPE: OnceLock<KeyTree> = OnceLock::new();
        SHAPE.get_or_init(|| Self::of(KEYS.iter().filter(|key| key.status != KeyStatus::NotAvailable)))
    }

    /// All accepted keys: the current layout and the sections of the older ones.
    pub(crate) fn accepted() -> &'static Self {
        static SHAPE: OnceLock<KeyTree> = OnceLock::new();
        SHAPE.get_or_init(|| Self::of(KEYS.iter().chain(OLDER_KEYS)))
    }

    fn of(rows: impl Iterator<Item = &'static ConfigKey>) -> Self {
        Self::build(&ROOT, rows.map(|row| (segments(row.path), row)).collect())
    }

    /// Builds the tree of a key from the rows below it, each with the rest of its path.
    fn build(key: &'static ConfigKey, below: Vec<(Vec<&'static str>, &'static ConfigKey)>) -> Self {
        let mut groups: Vec<(&'static str, &'static ConfigKey, Vec<_>)> = Vec::new();
        for (path, row) in below {
            let Some((first, rest)) = path.split_first() else { continue };
            if !groups.iter().any(|(name, ..)| name == first) {
                groups.push((first, row, Vec::new()));
            }
            for (_, _, rows) in groups.iter_mut().filter(|(name, ..)| name == first) {
                rows.push((rest.to_vec(), row));
            }
        }
        let mut shape = Self { key, fields: Vec::new(), any: None, item: None };
        for (name, row, rows) in groups {
            let tree = Self::build(row, rows);
            match name {
                "NAME" => shape.any = Some(Box::new(tree)),
                "[]" => shape.item = Some(Box::new(tree)),
                name => shape.fields.push((name, tree)),
            }
        }
        shape
    }

    /// The key below this one with the given name.
    pub(crate) fn below(&self, name: &str) -> Option<&Self> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, shape)| shape).or(self.any.as_deref())
    }

    /// The names of the keys below, for suggestions.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let within_older = matches!(self.key.status, KeyStatus::Older(_));
        let suggested = move |key: &ConfigKey| within_older || key.status == KeyStatus::Used;
        self.fields.iter().filter(move |(_, shape)| suggested(shape.key)).map(|(name, _)| *name)
    }
}

/// The segments of a path: `a.b[].c` is `a`, `b`, `[]`, `c`.
fn segments(path: &'static str) -> Vec<&'static str> {
    let halves = path.split('.').map(|part| match part.strip_suffix("[]") {
        Some(name) => [Some(name), Some("[]")],
        None => [Some(part), None],
    });
    halves.flatten().flatten().collect()
}
