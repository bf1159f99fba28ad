//! The built-in tables: the data files, parsed once. A file that does not parse leaves the table empty, so that every
//! program is unknown; a test finds it.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use crate::profile::CommandProfile;
use crate::table_reader::TableReader;

const PROGRAM_FILES: &[(&str, &str)] = &[
    ("readers.txt", include_str!("../data/readers.txt")),
    ("developer_readers.txt", include_str!("../data/developer_readers.txt")),
    ("git.txt", include_str!("../data/git.txt")),
    ("writers.txt", include_str!("../data/writers.txt")),
    ("toolchains.txt", include_str!("../data/toolchains.txt")),
    ("wrappers.txt", include_str!("../data/wrappers.txt")),
    ("network.txt", include_str!("../data/network.txt")),
    ("system.txt", include_str!("../data/system.txt")),
    ("escapes.txt", include_str!("../data/escapes.txt")),
    ("shell_builtins.txt", include_str!("../data/shell_builtins.txt")),
];
const LISTS: &str = include_str!("../data/lists.txt");

/// A line of a data file that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub(crate) struct TableError {
    pub(crate) file: &'static str,
    pub(crate) line: usize,
    pub(crate) why: String,
}

/// All built-in facts.
#[derive(Debug, Default)]
pub(crate) struct BuiltIn {
    pub(crate) profiles: Vec<CommandProfile>,
    pub(crate) programs: HashMap<&'static str, usize>,
    /// Word lists of `lists.txt`, by their names.
    lists: HashMap<&'static str, HashSet<&'static str>>,
}

/// The built-in table.
pub(crate) static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| BuiltIn::load().unwrap_or_default());

impl BuiltIn {
    pub(crate) fn load() -> Result<Self, TableError> {
        let mut table = Self::default();
        table.read_lists()?;
        for (file, text) in PROGRAM_FILES {
            TableReader::new(&mut table, file).read(text)?;
        }
        Ok(table)
    }

    pub(crate) fn program(&self, name: &str) -> Option<&CommandProfile> {
        self.profiles.get(*self.programs.get(name)?)
    }

    pub(crate) fn subcommand(&self, parent: &CommandProfile, name: &str) -> Option<&CommandProfile> {
        self.profiles.get(*parent.subcommands.get(name)?)
    }

    /// Whether a list contains a word, or a pattern of it that ends with `*`.
    pub(crate) fn lists(&self, list: &str, word: &str) -> bool {
        let Some(words) = self.lists.get(list) else { return false };
        words.contains(word)
            || words.iter().any(|entry| entry.strip_suffix('*').is_some_and(|start| word.starts_with(start)))
    }

    pub(crate) fn list(&self, list: &str) -> impl Iterator<Item = &'static str> + '_ {
        self.lists.get(list).into_iter().flatten().copied()
    }

    /// Reads lines of the form `NAME: WORD...`; a list may have several lines.
    fn read_lists(&mut self) -> Result<(), TableError> {
        for (at, line) in content_lines(LISTS) {
            let error = |why: &str| TableError { file: "lists.txt", line: at, why: why.to_owned() };
            let (name, words) = line.split_once(": ").ok_or_else(|| error("no list name"))?;
            let list = self.lists.entry(name.trim()).or_default();
            for word in words.split_whitespace() {
                if !list.insert(word) {
                    return Err(error(&format!("`{word}` is there twice")));
                }
            }
        }
        Ok(())
    }
}

/// Lines that are neither empty nor comments, with their numbers.
pub(crate) fn content_lines(text: &'static str) -> impl Iterator<Item = (usize, &'static str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end()));
    lines.filter(|(_, line)| !line.is_empty() && !line.trim_start().starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_files_parse_and_name_known_rules() {
        let table = BuiltIn::load().unwrap_or_else(|error| panic!("{error}"));
        assert!(table.programs.len() > 1000);
        for profile in &table.profiles {
            if let Some(rule) = profile.special {
                assert!(crate::special::is_rule(rule), "special {rule}");
            }
        }
        assert_eq!(table.lists.get("allowed").unwrap().len(), 24);
        assert_eq!(table.lists.get("forbidden").unwrap().len(), 20);
    }
}
