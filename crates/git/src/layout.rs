//! Where a repository's files are: the git directory, the common directory of linked worktrees, alternate object directories.
//!
//! **Invariant.** All of them lie inside the workspace. A `.git` file, a `commondir` file or an `alternates` file that points
//! elsewhere is an error: git would run with the settings of another repository, or show its objects. The paths are passed to
//! git explicitly, so it searches for no repository and asks nobody who owns it.
//!
//! Paths are compared as text. The [`RepositoryReader`] opens files through a directory handle and reports symlinks that leave
//! the workspace.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::c_quote::unquote;
use crate::repository::RepositoryError;

/// Maximum size of `.git`, `commondir` and `alternates` files, in bytes.
const MAX_POINTER_BYTES: usize = 64 << 10;
/// Maximum number of alternate object directories, of those of those too.
const MAX_ALTERNATES: usize = 64;

/// A file of a repository, as [`RepositoryReader`] found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepositoryFile {
    /// There is no such file.
    Missing,
    /// It is a directory.
    Directory,
    /// The content of a regular file.
    Content(Vec<u8>),
}

/// Reads the files of a repository.
pub trait RepositoryReader {
    /// Reads at most `max_bytes` of a file; a larger file, another file type and a path that leaves the workspace by a symlink
    /// are errors, with the reason.
    fn read(&mut self, path: &Path, max_bytes: usize) -> Result<RepositoryFile, String>;
}

/// The directories of a repository, all inside the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryLayout {
    workspace: PathBuf,
    work_tree: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
}

impl RepositoryLayout {
    /// Finds the directories of the repository whose working tree this is. Both paths are absolute, as git will see them.
    pub(crate) fn find(
        workspace: &Path,
        work_tree: &Path,
        reader: &mut dyn RepositoryReader,
    ) -> Result<Self, RepositoryError> {
        let inside = |what: &'static str, path: PathBuf| inside(workspace, what, &path);
        let work_tree = inside("working tree", work_tree.to_owned())?;
        let dot_git = work_tree.join(".git");
        let git_dir = match read(reader, &dot_git, MAX_POINTER_BYTES)? {
            RepositoryFile::Missing => return Err(RepositoryError::NotARepository(work_tree)),
            RepositoryFile::Directory => dot_git,
            RepositoryFile::Content(content) => {
                let target = content
                    .strip_prefix(b"gitdir: ")
                    .ok_or_else(|| RepositoryError::NotARepository(work_tree.clone()))?;
                inside("git directory", work_tree.join(line_path(target)))?
            }
        };
        let common_dir = match read(reader, &git_dir.join("commondir"), MAX_POINTER_BYTES)? {
            RepositoryFile::Content(content) => {
                inside("common git directory", git_dir.join(line_path(&content)))?
            }
            RepositoryFile::Missing => git_dir.clone(),
            RepositoryFile::Directory => return Err(RepositoryError::NotARepository(work_tree)),
        };
        let layout = Self { workspace: workspace.to_owned(), work_tree, git_dir, common_dir };
        layout.check_alternates(reader)?;
        Ok(layout)
    }

    /// The root of the working tree; git runs here.
    #[must_use]
    pub fn work_tree(&self) -> &Path {
        &self.work_tree
    }

    /// The git directory of this working tree.
    #[must_use]
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// The directory with objects, refs, configuration and hooks; the git directory itself except for linked worktrees.
    #[must_use]
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// The path, normalized, if it lies inside the workspace.
    pub(crate) fn inside(&self, what: &'static str, path: &Path) -> Result<PathBuf, RepositoryError> {
        inside(&self.workspace, what, path)
    }

    fn check_alternates(&self, reader: &mut dyn RepositoryReader) -> Result<(), RepositoryError> {
        let mut pending = vec![self.common_dir.join("objects")];
        let mut seen = 0;
        while let Some(objects) = pending.pop() {
            let list = objects.join("info/alternates");
            let RepositoryFile::Content(content) = read(reader, &list, MAX_POINTER_BYTES)? else { continue };
            for line in content.split(|byte| *byte == b'\n') {
                if line.is_empty() || line.starts_with(b"#") {
                    continue;
                }
                seen += 1;
                if seen > MAX_ALTERNATES {
                    return Err(RepositoryError::TooManyAlternates);
                }
                let target = unquote(line).unwrap_or_else(|| line.to_vec());
                let target = objects.join(OsStr::from_bytes(&target));
                pending.push(self.inside("alternate object directory", &target)?);
            }
        }
        Ok(())
    }
}

/// Reads a file; an error names it.
pub(crate) fn read(
    reader: &mut dyn RepositoryReader,
    path: &Path,
    max_bytes: usize,
) -> Result<RepositoryFile, RepositoryError> {
    let unreadable = |reason| RepositoryError::Unreadable { path: path.to_owned(), reason };
    match reader.read(path, max_bytes) {
        Ok(RepositoryFile::Content(content)) if content.len() > max_bytes => {
            Err(unreadable("the file is too large".to_owned()))
        }
        Ok(file) => Ok(file),
        Err(reason) => Err(unreadable(reason)),
    }
}

fn line_path(content: &[u8]) -> &Path {
    let end = content.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    Path::new(OsStr::from_bytes(content.get(..end).unwrap_or_default()))
}

fn inside(workspace: &Path, what: &'static str, path: &Path) -> Result<PathBuf, RepositoryError> {
    let outside = || RepositoryError::OutsideWorkspace { what, path: path.to_owned() };
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(outside());
    }
    let normal = normalize(path).ok_or_else(outside)?;
    if normal.starts_with(workspace) { Ok(normal) } else { Err(outside()) }
}

/// An absolute path without `.` and `..`; `None` if it is relative or climbs above the root.
fn normalize(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::from("/");
    let mut components = path.components();
    if components.next() != Some(Component::RootDir) {
        return None;
    }
    for component in components {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            _ => return None,
        }
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    struct Files(HashMap<&'static str, RepositoryFile>);

    impl RepositoryReader for Files {
        fn read(&mut self, path: &Path, _max_bytes: usize) -> Result<RepositoryFile, String> {
            Ok(self.0.get(path.to_str().unwrap()).cloned().unwrap_or(RepositoryFile::Missing))
        }
    }

    fn find(files: &[(&'static str, &str)]) -> Result<RepositoryLayout, RepositoryError> {
        let file = |text: &str| match text {
            "/" => RepositoryFile::Directory,
            text => RepositoryFile::Content(text.as_bytes().to_vec()),
        };
        let mut files = Files(files.iter().map(|(path, text)| (*path, file(text))).collect());
        RepositoryLayout::find(Path::new("/ws"), Path::new("/ws/app"), &mut files)
    }

    #[test]
    fn repositories_inside_the_workspace_are_found() {
        let plain = find(&[("/ws/app/.git", "/")]).unwrap();
        assert_eq!((plain.git_dir(), plain.common_dir()), (plain.common_dir(), Path::new("/ws/app/.git")));
        let linked = find(&[
            ("/ws/app/.git", "gitdir: ../main/.git/worktrees/app\r\n"),
            ("/ws/main/.git/worktrees/app/commondir", "../..\n"),
            ("/ws/main/.git/objects/info/alternates", "# c\n../../../other/objects\n"),
        ])
        .unwrap();
        assert_eq!(linked.git_dir(), Path::new("/ws/main/.git/worktrees/app"));
        assert_eq!(linked.common_dir(), Path::new("/ws/main/.git"));
    }

    #[test]
    fn pointers_to_other_places_are_rejected() {
        let check = |files: &[(&'static str, &str)], expected: &str| {
            let error = find(files).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(&[], "not a git repository");
        check(&[("/ws/app/.git", "x")], "not a git repository");
        check(&[("/ws/app/.git", "gitdir: /home/u/.git")], "git directory `/home/u/.git`");
        check(&[("/ws/app/.git", "gitdir: ../../x")], "outside the workspace");
        check(&[("/ws/app/.git", "gitdir: /wsx/.git")], "outside the workspace");
        check(&[("/ws/app/.git", "gitdir: /ws/../../..")], "outside the workspace");
        check(&[("/ws/app/.git", "/"), ("/ws/app/.git/commondir", "/tmp/evil\n")], "common git directory");
        check(
            &[
                ("/ws/app/.git", "/"),
                ("/ws/app/.git/objects/info/alternates", "\"/root/\\056git/objects\"\n"),
            ],
            "alternate object directory `/root/.git/objects`",
        );
        let many = "x\n".repeat(MAX_ALTERNATES + 1).leak();
        check(&[("/ws/app/.git", "/"), ("/ws/app/.git/objects/info/alternates", many)], "alternate");
    }
}
