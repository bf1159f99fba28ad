//! The settings of all configuration files of a repository: its own, that of the worktree, and what they include.
//!
//! **Invariant.** Every setting that git could see is in the list. Conditions of `includeIf` count as true, and the file of the
//! worktree counts whether its extension is on or not: a setting too many is set to nothing once more, a setting too few runs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::config_syntax::{GitConfigEntry, MAX_CONFIG_BYTES, parse_git_config};
use crate::layout::{RepositoryFile, RepositoryLayout, RepositoryReader, read};
use crate::repository::RepositoryError;

/// Maximum depth of includes; git's own.
const MAX_INCLUDE_DEPTH: usize = 10;
/// Maximum number of files.
const MAX_FILES: usize = 50;

/// Reads all settings, in the order in which git reads them.
pub(crate) fn read_config_files(
    layout: &RepositoryLayout,
    reader: &mut dyn RepositoryReader,
) -> Result<Vec<GitConfigEntry>, RepositoryError> {
    let mut files = ConfigFileReader { layout, reader, entries: Vec::new(), files: 0 };
    files.read_file(&layout.common_dir().join("config"), 0)?;
    files.read_file(&layout.git_dir().join("config.worktree"), 0)?;
    Ok(files.entries)
}

struct ConfigFileReader<'l> {
    layout: &'l RepositoryLayout,
    reader: &'l mut dyn RepositoryReader,
    entries: Vec<GitConfigEntry>,
    files: usize,
}

impl ConfigFileReader<'_> {
    fn read_file(&mut self, path: &Path, depth: usize) -> Result<(), RepositoryError> {
        self.files += 1;
        if depth > MAX_INCLUDE_DEPTH || self.files > MAX_FILES {
            return Err(RepositoryError::TooManyIncludes);
        }
        let content = match read(self.reader, path, MAX_CONFIG_BYTES)? {
            RepositoryFile::Content(content) => content,
            RepositoryFile::Missing => return Ok(()),
            RepositoryFile::Directory => {
                return Err(RepositoryError::Unreadable {
                    path: path.to_owned(),
                    reason: "it is a directory".to_owned(),
                });
            }
        };
        let entries = parse_git_config(&content)
            .map_err(|error| RepositoryError::InvalidConfig { path: path.to_owned(), line: error.line })?;
        for entry in entries {
            let included = match &entry.value {
                Some(value) if is_include(&entry) => self.included_path(path, value)?,
                _ => None,
            };
            self.entries.push(entry);
            if let Some(included) = included {
                self.read_file(&included, depth + 1)?;
            }
        }
        Ok(())
    }

    /// The file that an include names; `None` for one in the home directory, which is empty for every invocation.
    fn included_path(&self, file: &Path, value: &[u8]) -> Result<Option<PathBuf>, RepositoryError> {
        if value.starts_with(b"~/") {
            return Ok(None);
        }
        let unclear = value.is_empty()
            || value.starts_with(b"~")
            || value.starts_with(b"%(")
            || value.iter().any(u8::is_ascii_control);
        if unclear {
            let shown = vambrace_core::quote::quoted(value);
            return Err(RepositoryError::UnclearInclude(shown));
        }
        let directory = file.parent().unwrap_or(file);
        let path = directory.join(OsStr::from_bytes(value));
        self.layout.inside("included configuration file", &path).map(Some)
    }
}

fn is_include(entry: &GitConfigEntry) -> bool {
    entry.key.is("include", "path") || entry.key.is("includeif", "path")
}
