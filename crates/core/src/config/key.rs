//! What a row of the table of keys says, and the tree of rows that validation and the schema walk.
//! The rows themselves are in [`super::keys`].

use std::sync::OnceLock;

use super::keys::{KEYS, OLDER_KEYS};

/// One key of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Dotted path; `NAME` stands for any name, `[]` for the items of a list.
    pub path: &'static str,
    /// What a value must look like.
    pub kind: Kind,
    /// The built-in value.
    pub preset: Preset,
    /// How the layers make one value of several.
    pub combine: Combine,
    /// Whether anything reads it yet.
    pub status: Status,
    /// One line.
    pub doc: &'static str,
}

/// What a value must look like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A mapping with the keys that the table lists below it.
    Section,
    /// A mapping from names to what the table lists under `NAME`.
    Named,
    /// A list of mappings with the keys that the table lists under `[]`.
    Items,
    /// A mapping whose inside is not checked yet.
    Mapping,
    /// `true` or `false`.
    Bool,
    /// A switch that must stay off; the text says why.
    AlwaysFalse(&'static str),
    /// A switch that a project file must not turn off; the text says why.
    NeverOffInProject(&'static str),
    /// A whole number.
    Int { min: u64, max: u64 },
    /// A whole number of bytes, or a text such as `100MiB`.
    Bytes { min: u64, max: u64 },
    /// A number from 0 to 1.
    Fraction,
    /// A text that is not empty.
    Text,
    /// A name: letters, digits, `_` and `-`.
    Name,
    /// A clean relative path.
    Path,
    /// A program and its arguments: a list, or one text that is split at blanks.
    Argv,
    /// One of a few names.
    Choice(&'static [&'static str]),
    /// A number, or a mapping from `default` and tools to numbers.
    Rates,
    /// A list of texts.
    List(Item),
}

/// What the texts of a list must look like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Item {
    /// Any text that is not empty.
    Text,
    /// A glob over paths relative to the service root (or `project:...`).
    Glob,
    /// A pattern of [`crate::block::BlockList`].
    Block,
    /// A folder below the root.
    Folder,
    /// A folder below the root, `.` for the root level alone, or `**` for everywhere.
    CreateFolder,
    /// A tool, a pattern with `*`, or `group:NAME`.
    Tool,
    /// The name of a program, without a path.
    Program,
    /// A host, `*.host`, an address or a network, with or without a port.
    Host,
    /// A tool and what it is called with: `read_file docs/a.md`.
    Case,
    /// One of a few names.
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
    /// A text.
    Text(&'static str),
    /// A list of texts.
    List(&'static [&'static str]),
}

/// How the layers make one value of several. Files are looked at from the organisation down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// Part of the key above it.
    Part,
    /// Every file says it for itself.
    Own,
    /// A number: the topmost file that sets it sets it, files below may only lower it.
    Cap,
    /// A number: the topmost file that sets it sets it, files below may only raise it.
    Floor,
    /// A list that restricts: the built-in entries and those of every file.
    Union,
    /// A list that permits: the topmost file that sets it sets it, files below intersect.
    Intersect(Covers),
    /// A choice: the topmost file that sets it sets it, files below may only move to a narrower one.
    Narrowest(Base),
    /// A switch: the topmost file that sets it sets it, files below may only choose this value.
    Switch(bool, Base),
    /// A folder: every file may go further inside.
    Inside,
    /// The topmost file that says it, among those that may.
    Topmost(Base),
    /// The entries of all trusted files; of two with one name the upper counts.
    Collect,
    /// As a profile: below the topmost, only `readonly`.
    Profile,
    /// Kept per file: the decision intersects them.
    PerFile,
    /// A list that permits, of the organisation's and the user's file only.
    Above,
}

impl Combine {
    /// For the reference: what a file below another can do.
    #[must_use]
    pub fn doc(self) -> &'static str {
        match self {
            Self::Part => "",
            Self::Own => "own file only",
            Self::Cap => "lower only",
            Self::Floor => "raise only",
            Self::Union => "all entries count",
            Self::Intersect(_) => "intersection",
            Self::Narrowest(_) | Self::Switch(..) | Self::Profile => "narrower only",
            Self::Inside => "further inside only",
            Self::Topmost(Base::AnyTrusted) => "topmost file",
            Self::Topmost(Base::AboveProject) => "topmost file, never a project's",
            Self::Collect => "entries of trusted files",
            Self::PerFile => "every file judges",
            Self::Above => "never from the project",
        }
    }
}

/// Who may set the base of a value, above the built-in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The organisation, the user, or a trusted project.
    AnyTrusted,
    /// The organisation or the user: never a file that comes with the project.
    AboveProject,
}

/// When one entry of a permitting list contains another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Covers {
    /// When they are the same.
    Same,
    /// When the folder contains the other.
    Folder,
    /// When the host pattern contains the other.
    Host,
}

/// Whether anything reads a key yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// In use.
    Used,
    /// Loads and is checked; nothing reads it yet.
    NotYet,
    /// A key of an older layout that loads as this one (empty: nothing in this layout).
    Older(&'static str),
}

impl Status {
    /// Words for `config show` and the reference.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::NotYet => "accepted, not yet used",
            Self::Older(_) => "older layout",
        }
    }
}

impl Key {
    /// Whether the key holds a value of its own (not a section, not a part of another).
    #[must_use]
    pub fn is_value(&self) -> bool {
        self.combine != Combine::Part
    }

    /// The row of a path.
    #[must_use]
    pub fn find(path: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.path == path)
    }
}

/// A row with the rows below it.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) key: &'static Key,
    pub(crate) fields: Vec<(&'static str, Self)>,
    pub(crate) any: Option<Box<Self>>,
    pub(crate) item: Option<Box<Self>>,
}

static ROOT: Key = Key {
    path: "",
    kind: Kind::Section,
    preset: Preset::Unset,
    combine: Combine::Part,
    status: Status::Used,
    doc: "configuration of Vambrace",
};

impl Shape {
    /// The present layout.
    pub(crate) fn present() -> &'static Self {
        static SHAPE: OnceLock<Shape> = OnceLock::new();
        SHAPE.get_or_init(|| Self::of(KEYS.iter()))
    }

    /// Everything that loads: the present layout and the sections of the older ones.
    pub(crate) fn accepted() -> &'static Self {
        static SHAPE: OnceLock<Shape> = OnceLock::new();
        SHAPE.get_or_init(|| Self::of(KEYS.iter().chain(OLDER_KEYS)))
    }

    fn of(rows: impl Iterator<Item = &'static Key>) -> Self {
        Self::grow(&ROOT, rows.map(|row| (segments(row.path), row)).collect())
    }

    /// A row and the rows below it, each with what is left of its path.
    fn grow(key: &'static Key, below: Vec<(Vec<&'static str>, &'static Key)>) -> Self {
        let mut groups: Vec<(&'static str, &'static Key, Vec<_>)> = Vec::new();
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
            let grown = Self::grow(row, rows);
            match name {
                "NAME" => shape.any = Some(Box::new(grown)),
                "[]" => shape.item = Some(Box::new(grown)),
                name => shape.fields.push((name, grown)),
            }
        }
        shape
    }

    /// The shape of a key below this one.
    pub(crate) fn below(&self, name: &str) -> Option<&Self> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, shape)| shape).or(self.any.as_deref())
    }

    /// The names to suggest.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let older = |key: &Key| matches!(key.status, Status::Older(_));
        let within_older = older(self.key);
        self.fields.iter().filter(move |(_, shape)| within_older || !older(shape.key)).map(|(name, _)| *name)
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
