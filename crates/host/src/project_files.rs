//! A project's own files: configuration and skills. They are read through a directory handle without following symlinks,
//! because the project is not trusted. `vambrace trust` stores their digest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;

use crate::error::HostError;

const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_ALL_BYTES: usize = 16 << 20;
const MAX_FILES: usize = 2000;
const MAX_DEPTH: usize = 16;

/// Directory of our files in a project.
const CONFIG_DIR: &str = ".vambrace";
/// Configuration in the current layout.
pub const CONFIG: &str = ".vambrace/config.yaml";
/// Configuration in the older layout, read if there is none in the current layout.
pub const OLDER_CONFIG: &str = ".flow/config.json";

/// A snapshot of a project's own files: the digest that is trusted is of the bytes that are parsed.
#[derive(Debug)]
pub struct ProjectFiles {
    files: BTreeMap<String, Vec<u8>>,
}

impl ProjectFiles {
    /// Reads all files in `.vambrace`, and the configuration of the older layout.
    pub fn open(project: &Path) -> Result<Self, HostError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, project, flags, Mode::empty()).map_err(|errno| {
            HostError::failed(format!("workspace `{}`: {errno}", project.display()))
                .hint("name a directory that you may read and enter (`--workspace`)")
        })?;
        let mut reading = ProjectFilesReader { root, files: BTreeMap::new(), bytes: 0 };
        reading.dir(CONFIG_DIR, 0)?;
        reading.file(OLDER_CONFIG)?;
        let misnamed = [".vambrace/config.yml", ".vambrace/config.json"];
        if let Some(name) = misnamed.into_iter().find(|name| reading.files.contains_key(*name)) {
            return Err(
                unusable(name, "a file with this name is not read").hint(format!("rename it to `{CONFIG}`"))
            );
        }
        Ok(Self { files: reading.files })
    }

    /// The configuration: in the current layout, else in the older one.
    pub(crate) fn configuration(&self) -> Option<(&'static str, &[u8])> {
        [CONFIG, OLDER_CONFIG].into_iter().find_map(|name| Some((name, self.files.get(name)?.as_slice())))
    }

    /// A skill's manifest.
    pub(crate) fn manifest(&self, skill: &str) -> Result<Option<String>, HostError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if skill.is_empty() || skill.starts_with('.') || !skill.chars().all(plain) {
            let hint = "use letters, digits, `-`, `_`";
            return Err(HostError::usage(format!("`{skill}` is not a valid skill name"), hint));
        }
        let bytes = self.files.get(&format!(".vambrace/skills/{skill}/manifest.json"));
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    /// The digest of all files; `None` if there are none.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        let parts = self.files.iter().flat_map(|(name, bytes)| [name.as_bytes(), bytes]);
        (!self.files.is_empty()).then(|| Digest::of_parts(parts))
    }

    /// Names and sizes of the files.
    pub(crate) fn listing(&self) -> impl Iterator<Item = (&str, usize)> {
        self.files.iter().map(|(name, bytes)| (name.as_str(), bytes.len()))
    }
}

/// Reads below a directory handle.
struct ProjectFilesReader {
    root: OwnedFd,
    files: BTreeMap<String, Vec<u8>>,
    bytes: usize,
}

impl ProjectFilesReader {
    fn dir(&mut self, dir: &str, depth: usize) -> Result<(), HostError> {
        let fault = |errno: Errno| unusable(dir, &errno.to_string());
        let fd = match self.open_beneath(dir, OFlags::DIRECTORY) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(unusable(dir, "it is not a directory")),
            Err(errno) => return Err(fault(errno)),
        };
        for entry in Dir::read_from(&fd).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            let path = format!("{dir}/{name}");
            let facts = rustix::fs::statat(&fd, entry.file_name(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
                .map_err(fault)?;
            match FileType::from_raw_mode(facts.st_mode) {
                FileType::Directory if path == CONFIG => return Err(unusable(CONFIG, "it is a directory")),
                FileType::Directory if depth < MAX_DEPTH => self.dir(&path, depth + 1)?,
                FileType::RegularFile => self.file(&path)?,
                kind => {
                    let hint = "remove it: symlinks and devices are not allowed in `.vambrace`";
                    let why = format!("it is neither a file nor a directory ({kind:?})");
                    return Err(unusable(&path, &why).hint(hint));
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, name: &str) -> Result<(), HostError> {
        let Some(bytes) = self.read(name)? else { return Ok(()) };
        self.bytes += bytes.len();
        self.files.insert(name.to_owned(), bytes);
        if self.files.len() > MAX_FILES || self.bytes > MAX_ALL_BYTES {
            let hint = "use `.vambrace` only for configuration and skills";
            return Err(unusable(CONFIG_DIR, "it has more than 2000 files or 16 MiB").hint(hint));
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, HostError> {
        let fault = |why: String| unusable(name, &why);
        let fd = match self.open_beneath(name, OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP) => {
                return Err(fault("it is a symlink, and symlinks are not followed here".to_owned()));
            }
            Err(errno) => return Err(fault(errno.to_string())),
        };
        let facts = rustix::fs::fstat(&fd).map_err(|errno| fault(errno.to_string()))?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(fault("it is not a regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        let read = File::from(fd).take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| fault(error.to_string()))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(fault("it is larger than 1 MiB".to_owned()));
        }
        Ok(Some(bytes))
    }

    fn open_beneath(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat2(self.root.as_fd(), name, flags, Mode::empty(), resolve)
    }
}

/// An unusable file denies every call; ignoring it could widen the policy.
fn unusable(name: &str, why: &str) -> HostError {
    let message = format!("invalid configuration: `{name}` of the project: {why}");
    HostError::denied(
        ErrorCode::PermissionDenied,
        message,
        "fix or remove it; `vambrace policy check` lists the errors",
    )
}
