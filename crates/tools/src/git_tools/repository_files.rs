//! Reads the files of a repository as data, beneath the project's directory, without following symlinks. The workspace
//! itself hides `.git` from every tool; these are the only reads of it, and no content of them is a result.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_git::{
    CommitIdentity, Repository, RepositoryFile, RepositoryReader, parse_git_config, present_hooks,
};

/// Maximum size of the index, in bytes.
const MAX_INDEX_BYTES: usize = 256 << 20;
/// Maximum size of the configuration, in bytes.
const MAX_CONFIG_BYTES: usize = 1 << 20;
/// Who commits where the repository names nobody.
const DEFAULT_IDENTITY: (&str, &str) = ("Vambrace agent", "agent@localhost");

const RESOLVE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_SYMLINKS);
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// The project's directory, for reading repositories in it.
#[derive(Debug)]
pub(super) struct RepositoryFiles {
    root: OwnedFd,
    directory: PathBuf,
}

impl RepositoryFiles {
    pub(super) fn open(directory: &Path) -> Result<Self, CallError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, flags, Mode::empty()).map_err(|error| {
            CallError::new(ErrorCode::Internal, format!("cannot open the project: {error}"))
        })?;
        Ok(Self { root, directory: directory.to_owned() })
    }

    /// The digest of the index: what a commit would contain. `None` if nothing was ever staged.
    pub(super) fn index_digest(&mut self, repository: &Repository) -> Result<Option<Digest>, CallError> {
        match self.read(&repository.layout().git_dir().join("index"), MAX_INDEX_BYTES) {
            Ok(RepositoryFile::Content(content)) if content.len() <= MAX_INDEX_BYTES => {
                Ok(Some(Digest::of(&content)))
            }
            Ok(RepositoryFile::Missing) => Ok(None),
            Ok(_) => Err(CallError::new(ErrorCode::TooLarge, "the git index is too large, or not a file")),
            Err(why) => Err(CallError::new(ErrorCode::Internal, format!("cannot read the git index: {why}"))),
        }
    }

    /// The identity that the repository's own configuration has, or the default one.
    pub(super) fn identity(&mut self, repository: &Repository) -> Result<CommitIdentity, CallError> {
        let file = self.read(&repository.layout().common_dir().join("config"), MAX_CONFIG_BYTES);
        let content = match file {
            Ok(RepositoryFile::Content(content)) => content,
            _ => Vec::new(),
        };
        let settings = parse_git_config(&content).unwrap_or_default();
        let value = |variable: &str| {
            let entry = settings.iter().rev().find(|entry| entry.key.is("user", variable))?;
            String::from_utf8(entry.value.clone()?).ok()
        };
        let own = value("name").zip(value("email"));
        let own = own.and_then(|(name, email)| CommitIdentity::new(&name, &email).ok());
        let (name, email) = DEFAULT_IDENTITY;
        own.map_or_else(|| CommitIdentity::new(name, email), Ok)
            .map_err(|error| CallError::new(ErrorCode::Internal, error.to_string()))
    }

    /// The hooks of the repository, none of which run.
    pub(super) fn hooks(&self, repository: &Repository) -> Vec<String> {
        let mut hooks = repository.neutralized().configured_hooks();
        hooks.extend(repository.neutralized().hooks_path().map(|path| format!("those in {path}")));
        let entries = self.entries(&repository.layout().common_dir().join("hooks")).unwrap_or_default();
        let entries = entries.iter().map(|(name, executable)| (name.as_slice(), *executable));
        hooks.extend(present_hooks(entries).into_iter().map(str::to_owned));
        hooks
    }

    /// Names in a directory, and whether they are executable.
    fn entries(&self, path: &Path) -> Result<Vec<(Vec<u8>, bool)>, Errno> {
        let directory = self.open_beneath(path, OPEN | OFlags::DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let name = entry?.file_name().to_owned();
            let stat = rustix::fs::statat(&directory, &name, AtFlags::empty());
            let executable = stat.is_ok_and(|stat| stat.st_mode & 0o111 != 0);
            entries.push((name.into_bytes(), executable));
        }
        Ok(entries)
    }

    fn open_beneath(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let relative = path.strip_prefix(&self.directory).map_err(|_| Errno::XDEV)?;
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        rustix::fs::openat2(&self.root, relative, flags, Mode::empty(), RESOLVE)
    }
}

impl RepositoryReader for RepositoryFiles {
    fn read(&mut self, path: &Path, max_bytes: usize) -> Result<RepositoryFile, String> {
        let file = match self.open_beneath(path, OPEN) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(RepositoryFile::Missing),
            Err(Errno::LOOP | Errno::XDEV) => {
                return Err("it is a symlink, or outside the project".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| error.to_string())?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Ok(RepositoryFile::Directory),
            FileType::RegularFile => {
                let mut content = Vec::new();
                let mut file = File::from(file).take(max_bytes as u64 + 1);
                file.read_to_end(&mut content).map_err(|error| error.to_string())?;
                Ok(RepositoryFile::Content(content))
            }
            _ => Err("it is not a regular file".to_owned()),
        }
    }
}
