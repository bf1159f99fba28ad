//! The project's own source files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::error::{TaskResult, WithContext};

/// Directories without sources of the project.
const SKIPPED_DIRS: [&str; 4] = ["target", ".tools", ".git", "node_modules"];

/// Every `.rs` file below the given directories, relative to the project root, sorted.
pub(crate) fn rust_files(root: &Path, below: &[&str]) -> TaskResult<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut pending: Vec<PathBuf> = below.iter().map(PathBuf::from).collect();
    while let Some(dir) = pending.pop() {
        let entries = fs::read_dir(root.join(&dir)).when(|| format!("cannot list `{}`", dir.display()))?;
        for entry in entries {
            let entry = entry.when(|| format!("cannot list `{}`", dir.display()))?;
            let kind = entry.file_type().when(|| format!("cannot inspect `{}`", entry.path().display()))?;
            let path = dir.join(entry.file_name());
            if kind.is_dir() && !SKIPPED_DIRS.iter().any(|skipped| entry.file_name() == *skipped) {
                pending.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a file holds nothing but tests.
pub(crate) fn is_test_file(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "tests")
        || file.file_name().is_some_and(|name| name == "tests.rs")
}
