//! Toolchains that live in the home folder: what of it is shown, and which files of that look empty because they hold
//! credentials. Found by a walk that is kept between runs, at any depth but for folders of downloaded packages.
//!
//! Not masked: what such a package, or a file of any other name, holds.
#![expect(
    clippy::disallowed_methods,
    reason = "folders of the home folder are looked up before the walls, and settings in them are judged by what they say"
)]

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};
use vambrace_core::block::{BadPattern, BlockList, hidden_from_programs};

use crate::fault::SandboxFault;
use crate::order::bytes;
use crate::walk::Walk;
use crate::wire::Bytes;

const TOOLCHAINS: &[&str] = &[
    ".rustup",
    ".cargo",
    ".pyenv",
    ".nvm",
    ".volta",
    // Programs of `.local/bin` lead there.
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

/// Go's: a folder of the language itself is shown whole, one of the user's without the sources of their projects.
const GO: &[&str] = &["go", ".go"];
const GO_SHOWN: &[&str] = &["bin", "pkg"];

/// Credential files and folders, wherever they lie in a toolchain.
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

/// Names that mean something else further down: only in a toolchain's own folder.
const CREDENTIALS_ON_TOP: &[&str] = &["token", "tokens", "gradle.properties", "settings.xml"];

/// Settings that a tool needs, and that may hold a credential: looked into.
const SETTINGS: &[&str] =
    &["config.toml", ".cargo/config", "**/.git/config", "pip.conf", "uv.toml", "bunfig.toml"];

/// What everybody trusts, by the names that it has in toolchains: no secret, unless there is a key in it.
const CERTIFICATES: &[&str] = &["cert.pem", "cacert.pem", "ca-bundle.pem", "ca-certificates.pem"];

/// Settings that are larger are not read, and look empty.
const MOST_SETTINGS: u64 = 1 << 20;

/// Packages as they were downloaded and objects of git, tens of thousands of folders of them: not walked. What is in them is public, and names
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

/// What a program sees of the home folder.
#[derive(Debug, Default)]
pub(crate) struct Toolchains {
    /// Folders, where they really are.
    pub(crate) shown: Vec<PathBuf>,
    /// Names of some that are links to them.
    pub(crate) linked: Vec<PathBuf>,
    /// What in them must look empty.
    pub(crate) blank: Vec<PathBuf>,
}

/// What is kept between runs.
#[derive(Debug)]
pub(crate) struct Kept {
    walk: Walk,
    names: BlockList,
}

/// By home folder and what `PATH` names.
pub(crate) type Homes = HashMap<(PathBuf, Vec<PathBuf>), Option<Kept>>;

impl Kept {
    fn new(starts: Vec<Bytes>) -> Result<Self, BadPattern> {
        let on_top = starts.iter().flat_map(|start| {
            let start = escaped(&String::from_utf8_lossy(start));
            CREDENTIALS_ON_TOP.iter().map(move |name| format!("{start}/{name}"))
        });
        let anywhere = hidden_from_programs().chain(CREDENTIALS.iter().chain(SETTINGS).copied());
        let names = BlockList::new(anywhere.map(str::to_owned).chain(on_top))?;
        Ok(Self { walk: Walk::within(starts, Some(BlockList::new(PACKAGES)?)), names })
    }
}

impl Toolchains {
    /// As of now, and what to keep; `known` is what was kept.
    pub(crate) fn of(
        home: &Path,
        path: &[PathBuf],
        workspace: &Path,
        known: Option<Kept>,
    ) -> Result<(Self, Option<Kept>), SandboxFault> {
        let Ok(home) = home.canonicalize() else { return Ok((Self::default(), None)) };
        let (shown, linked) = shown(&home, path, workspace);
        if shown.is_empty() {
            return Ok((Self::default(), None));
        }
        let below_home = |folder: &PathBuf| folder.strip_prefix(&home).ok().map(bytes);
        let starts: Vec<Bytes> = shown.iter().filter_map(below_home).collect();
        let mut kept = match known.filter(|kept| kept.walk.starts() == starts) {
            Some(kept) => kept,
            None => Kept::new(starts).map_err(|bad| SandboxFault::Refused(bad.to_string()))?,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&home, flags, Mode::empty())
            .map_err(SandboxFault::system("cannot open the home folder"))?;
        let masks = kept.walk.masks(root.as_fd(), &kept.names);
        let masks = masks.map_err(SandboxFault::system("cannot walk the toolchains"))?;
        let found = masks.iter().map(|mask| home.join(OsStr::from_bytes(&mask.path)));
        // A link is masked where it leads, if that is shown.
        let real = found.filter(|path| is_secret(path)).filter_map(|path| path.canonicalize().ok());
        let in_one = |path: &PathBuf| shown.iter().any(|outer| path != outer && path.starts_with(outer));
        let blank: BTreeSet<PathBuf> = real.filter(in_one).collect();
        Ok((Self { blank: blank.into_iter().collect(), shown, linked }, Some(kept)))
    }
}

/// Known toolchains, and what `PATH` names in the home folder. What cannot be listed cannot be walked, and is not shown.
/// With those of them that are links.
fn shown(home: &Path, path: &[PathBuf], workspace: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let go = GO.iter().map(|name| home.join(name)).flat_map(|go| {
        let language = go.join("VERSION").is_file() && go.join("src/runtime").is_dir();
        if language { vec![go] } else { GO_SHOWN.iter().map(|name| go.join(name)).collect() }
    });
    let known = TOOLCHAINS.iter().map(|name| home.join(name)).chain(go);
    let (mut shown, mut linked): (Vec<PathBuf>, Vec<PathBuf>) = Default::default();
    for named in known.chain(path.iter().cloned()) {
        let Ok(folder) = named.canonicalize() else { continue };
        linked.extend((named != folder).then_some(named));
        let inside = folder.starts_with(home) && folder != home;
        let overlaps = folder.starts_with(workspace) || workspace.starts_with(&folder);
        let new = !shown.iter().any(|outer| folder.starts_with(outer));
        if inside && !overlaps && new && folder.is_dir() {
            let listed = rustix::fs::access(&folder, Access::READ_OK | Access::EXEC_OK).is_ok();
            shown.extend(listed.then_some(folder));
        }
    }
    (shown, linked)
}

/// Everything that was found, but for settings that hold no credential and certificates without a key.
fn is_secret(path: &Path) -> bool {
    let last = |pattern: &&str| pattern.rsplit('/').next().map(OsStr::new) == path.file_name();
    let tells: fn(&str) -> bool = if SETTINGS.iter().any(last) {
        holds_credential
    } else if CERTIFICATES.iter().any(last) {
        |line| line.contains("PRIVATE KEY")
    } else {
        return true;
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST_SETTINGS + 1).read_to_string(&mut text));
    !read.is_ok_and(|length| (length as u64) <= MOST_SETTINGS) || text.lines().any(tells)
}

/// A line of settings that gives a credential a value, or has one in an address.
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

/// As a pattern that means these letters.
fn escaped(path: &str) -> String {
    let special = |letter: &char| matches!(letter, '*' | '?' | '[' | ']' | '{' | '}' | '!' | ',' | '\\');
    path.chars().flat_map(|letter| special(&letter).then_some('\\').into_iter().chain([letter])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // T12
    #[test]
    fn settings_are_hidden_only_where_they_hold_a_credential() {
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
    fn a_folder_with_special_letters_means_itself() {
        let list = BlockList::new([format!("{}/token", escaped("a[b]*{c}"))]).unwrap();
        assert!(list.blocks("a[b]*{c}/token").is_some());
        assert!(list.blocks("ab/token").is_none());
    }
}
