//! Toolchains in the home directory: which directories the program sees, and which files in them are masked as empty
//! because they hold credentials. The walk is cached between runs and covers any depth, except directories of downloaded
//! packages.
//!
//! Not masked: secrets in such packages, or in files of any other name.
#![expect(
    clippy::disallowed_methods,
    reason = "runs before the sandbox exists; reads settings to see whether they hold a credential"
)]

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};
use vambrace_core::blocked_paths::{BadPattern, BlockList, hidden_from_programs};

use crate::error::SandboxError;
use crate::mask_walk::MaskWalk;
use crate::run_request::bytes;
use crate::wire::Bytes;

const TOOLCHAINS: &[&str] = &[
    ".rustup",
    ".cargo",
    ".pyenv",
    ".nvm",
    ".volta",
    // Programs in `.local/bin` are often symlinks into the directories below.
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/pipx",
    ".local/share/uv",
    ".local/share/pnpm",
    ".local/share/mise",
    ".deno",
    ".bun",
    ".rbenv",
    ".asdf",
    ".sdkman",
    ".ghcup",
    ".opam",
    ".jenv",
    ".nodenv",
];

/// Go: a directory with the language itself is visible as a whole, a GOPATH without the sources of the user's projects.
const GO: &[&str] = &["go", ".go"];
const GO_SHOWN: &[&str] = &["bin", "pkg"];

/// Credential files and directories, at any depth in a toolchain.
const CREDENTIALS: &[&str] = &[
    "credentials",
    "credentials.toml",
    "credentials.json",
    ".npmrc",
    "npmrc",
    "_netrc",
    ".pypirc",
    ".git-credentials",
    "auth.json",
    ".yarnrc",
    ".yarnrc.yml",
];

/// Credential names only at the top of a toolchain; deeper they mean something else.
const CREDENTIALS_ON_TOP: &[&str] = &["token", "tokens", "gradle.properties", "settings.xml"];

/// Settings that a tool needs and that may hold a credential: masked only if they do.
const SETTINGS: &[&str] =
    &["config.toml", ".cargo/config", "**/.git/config", "pip.conf", "uv.toml", "bunfig.toml"];

/// CA certificates, by their names in toolchains: not secret, unless the file contains a private key.
const CERTIFICATES: &[&str] = &["cert.pem", "cacert.pem", "ca-bundle.pem", "ca-certificates.pem"];

/// Maximum size of a settings file that is read, in bytes; a larger one is masked.
const MAX_SETTINGS_BYTES: u64 = 1 << 20;

/// Downloaded packages and git objects, tens of thousands of directories: not walked. Their content is public, and names
/// like `cacert.pem` are no secrets there.
const PACKAGES: &[&str] = &[
    ".cargo/registry",
    ".cargo/git",
    ".rustup/toolchains",
    "**/pkg/mod",
    "**/node_modules",
    "**/site-packages",
    "**/lib/python*",
    "**/lib/ruby",
    ".local/share/pnpm/store",
    ".bun/install/cache",
    ".opam/**/lib",
    ".ghcup/ghc",
    "**/.git/objects",
    "**/.git/refs",
];

/// What a program sees of the home directory.
#[derive(Debug, Default)]
pub(crate) struct Toolchains {
    /// Resolved paths of the visible directories.
    pub(crate) shown: Vec<PathBuf>,
    /// Symlinks that lead to some of them.
    pub(crate) linked: Vec<PathBuf>,
    /// Files and directories in them that must appear empty.
    pub(crate) blank: Vec<PathBuf>,
}

/// What is cached between runs.
#[derive(Debug)]
pub(crate) struct ToolchainCache {
    walk: MaskWalk,
    names: BlockList,
}

/// By home directory and the directories of `PATH`.
pub(crate) type ToolchainCaches = HashMap<(PathBuf, Vec<PathBuf>), Option<ToolchainCache>>;

impl ToolchainCache {
    fn new(starts: Vec<Bytes>) -> Result<Self, BadPattern> {
        let on_top = starts.iter().flat_map(|start| {
            let start = escaped(&String::from_utf8_lossy(start));
            CREDENTIALS_ON_TOP.iter().map(move |name| format!("{start}/{name}"))
        });
        let anywhere = hidden_from_programs().chain(CREDENTIALS.iter().chain(SETTINGS).copied());
        let names = BlockList::new(anywhere.map(str::to_owned).chain(on_top))?;
        Ok(Self { walk: MaskWalk::within(starts, Some(BlockList::new(PACKAGES)?)), names })
    }
}

impl Toolchains {
    /// The current state, and the cache for the next run; `known` is the cache of the last one.
    pub(crate) fn of(
        home: &Path,
        path: &[PathBuf],
        workspace: &Path,
        known: Option<ToolchainCache>,
    ) -> Result<(Self, Option<ToolchainCache>), SandboxError> {
        let Ok(home) = home.canonicalize() else { return Ok((Self::default(), None)) };
        let (shown, linked) = shown(&home, path, workspace);
        if shown.is_empty() {
            return Ok((Self::default(), None));
        }
        let below_home = |dir: &PathBuf| dir.strip_prefix(&home).ok().map(bytes);
        let starts: Vec<Bytes> = shown.iter().filter_map(below_home).collect();
        let mut kept = match known.filter(|kept| kept.walk.starts() == starts) {
            Some(kept) => kept,
            None => ToolchainCache::new(starts).map_err(|bad| SandboxError::Refused(bad.to_string()))?,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&home, flags, Mode::empty())
            .map_err(SandboxError::system("cannot open the home directory"))?;
        let masks = kept.walk.masks(root.as_fd(), &kept.names);
        let masks = masks.map_err(SandboxError::system("cannot walk the toolchains"))?;
        let found = masks.iter().map(|mask| home.join(OsStr::from_bytes(&mask.path)));
        // A symlink is masked at its target, if that is visible.
        let real = found.filter(|path| is_secret(path)).filter_map(|path| path.canonicalize().ok());
        let in_one = |path: &PathBuf| shown.iter().any(|outer| path != outer && path.starts_with(outer));
        let blank: BTreeSet<PathBuf> = real.filter(in_one).collect();
        Ok((Self { blank: blank.into_iter().collect(), shown, linked }, Some(kept)))
    }
}

/// Known toolchains, and the directories of `PATH` in the home directory; also those of them that are symlinks. A directory that
/// cannot be listed cannot be walked for credentials, so it is not visible.
fn shown(home: &Path, path: &[PathBuf], workspace: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let go = GO.iter().map(|name| home.join(name)).flat_map(|go| {
        let language = go.join("VERSION").is_file() && go.join("src/runtime").is_dir();
        if language { vec![go] } else { GO_SHOWN.iter().map(|name| go.join(name)).collect() }
    });
    let known = TOOLCHAINS.iter().map(|name| home.join(name)).chain(go);
    let (mut shown, mut linked): (Vec<PathBuf>, Vec<PathBuf>) = Default::default();
    for named in known.chain(path.iter().cloned()) {
        let Ok(dir) = named.canonicalize() else { continue };
        linked.extend((named != dir).then_some(named));
        let inside = dir.starts_with(home) && dir != home;
        let overlaps = dir.starts_with(workspace) || workspace.starts_with(&dir);
        let new = !shown.iter().any(|outer| dir.starts_with(outer));
        if inside && !overlaps && new && dir.is_dir() {
            let listed = rustix::fs::access(&dir, Access::READ_OK | Access::EXEC_OK).is_ok();
            shown.extend(listed.then_some(dir));
        }
    }
    (shown, linked)
}

/// Whether a found file must be masked: all of them, except settings without a credential and certificates without a
/// private key.
fn is_secret(path: &Path) -> bool {
    let last = |pattern: &&str| pattern.rsplit('/').next().map(OsStr::new) == path.file_name();
    let is_sensitive: fn(&str) -> bool = if SETTINGS.iter().any(last) {
        holds_credential
    } else if CERTIFICATES.iter().any(last) {
        |line| line.contains("PRIVATE KEY")
    } else {
        return true;
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_SETTINGS_BYTES + 1).read_to_string(&mut text));
    !read.is_ok_and(|length| (length as u64) <= MAX_SETTINGS_BYTES) || text.lines().any(is_sensitive)
}

/// Whether a line of settings assigns a credential, or has one in a URL.
fn holds_credential(line: &str) -> bool {
    const NAMES: &[&str] =
        &["token", "password", "passwd", "secret", "secret-key", "_auth", "apikey", "api_key"];
    let line = line.trim_start().to_lowercase();
    if line.starts_with(['#', ';']) {
        return false;
    }
    let value_follows = |rest: &str| rest.trim_start_matches(['"', '\'', ' ', '\t']).starts_with(['=', ':']);
    let named = |name: &&str| {
        line.match_indices(*name).any(|(at, _)| line.get(at + name.len()..).is_some_and(value_follows))
    };
    let mut addresses = line.split("://").skip(1);
    NAMES.iter().any(named)
        || addresses
            .any(|rest| rest.split(['/', '"', '\'', ' ']).next().is_some_and(|host| host.contains('@')))
}

/// A pattern that matches this path literally.
fn escaped(path: &str) -> String {
    let special = |letter: &char| matches!(letter, '*' | '?' | '[' | ']' | '{' | '}' | '!' | ',' | '\\');
    path.chars().flat_map(|letter| special(&letter).then_some('\\').into_iter().chain([letter])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // T12
    #[test]
    fn settings_are_masked_only_if_they_hold_a_credential() {
        for line in [
            "token = \"x\"",
            "  \"token\"=\"x\"",
            "mine = { index = \"sparse+https://r/\", token = \"x\" }",
            "GITHUB_TOKEN = \"x\"",
            "secret-key = 'k3.secret.x'",
            "proxy = \"http://user:pass@proxy:80\"",
            "url = https://x-access-token:abc@github.com/a/b",
            "//registry/:_authToken=x",
        ] {
            assert!(holds_credential(line), "{line}");
        }
        for line in [
            "",
            "# token = \"x\"",
            "global-credential-providers = [\"cargo:token\"]",
            "index = \"sparse+https://index.crates.io/\"",
            "url = git@github.com:a/b",
            "[net]",
            "rustflags = [\"-C\", \"target-cpu=native\"]",
        ] {
            assert!(!holds_credential(line), "{line}");
        }
    }

    #[test]
    fn directory_name_with_pattern_characters_is_literal() {
        let list = BlockList::new([format!("{}/token", escaped("a[b]*{c}"))]).unwrap();
        assert!(list.blocks("a[b]*{c}/token").is_some());
        assert!(list.blocks("ab/token").is_none());
    }
}
