//! Opens the user's editor on a private copy of a file: in a directory of the state directory with mode 0700, removed
//! afterwards. The edited content is untrusted and passes every check again.
#![expect(clippy::disallowed_methods, reason = "starts the user's editor and reads its file")]

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use vambrace_core::clock::RandomSource as _;
use vambrace_host::system::SystemRandom;

use crate::failure::Failure;

/// Secrets that are removed from the editor's environment.
const OURS: &[&str] =
    &["VAMBRACE_PASSPHRASE", "VAMBRACE_PASSPHRASE_FILE", "VAMBRACE_NEW_PASSPHRASE", "VAMBRACE_TOKEN"];

/// A private copy; removed on drop.
pub(crate) struct EditorCopy {
    dir: PathBuf,
    file: PathBuf,
}

impl EditorCopy {
    /// Writes the copy. It keeps the file extension, so that the editor detects the language.
    pub(crate) fn of(content: &[u8], path: &str, state: &Path) -> Result<Self, Failure> {
        let fault = |error: std::io::Error| Failure::failed(format!("copy for the editor: {error}"));
        let dir = state.join(format!("edit-{:032x}", SystemRandom.random_u128()));
        DirBuilder::new().mode(0o700).create(&dir).map_err(fault)?;
        let copy = Self { file: dir.join(name(path)), dir };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&copy.file).and_then(|mut file| file.write_all(content)).map_err(fault)?;
        Ok(copy)
    }

    /// Runs the editor and returns the edited content. The caller has restored the terminal before.
    pub(crate) fn edit(&self) -> Result<Vec<u8>, Failure> {
        let chosen = |name: &str| std::env::var(name).ok().filter(|words| !words.trim().is_empty());
        let editor = chosen("VISUAL").or_else(|| chosen("EDITOR")).unwrap_or_else(|| "vi".to_owned());
        // The variable may contain arguments (`code --wait`); like git, let the shell split it.
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(&self.file);
        OURS.iter().for_each(|name| {
            command.env_remove(name);
        });
        let status = command.status();
        let status = status.map_err(|error| Failure::failed(format!("editor `{editor}`: {error}")))?;
        if !status.success() {
            return Err(Failure::failed(format!(
                "editor `{editor}` failed with {status}; nothing was approved"
            )));
        }
        std::fs::read(&self.file).map_err(|error| Failure::failed(format!("edited copy: {error}")))
    }
}

impl Drop for EditorCopy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn name(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    let plain: String = last
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
        .take(80)
        .collect();
    if plain.starts_with(['.', '-']) || plain.is_empty() { format!("copy{plain}") } else { plain }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn copy_is_private_and_removed_on_drop() {
        let state = tempfile::tempdir().unwrap();
        let copy = EditorCopy::of(b"x\n", "src/a b.rs", state.path()).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&copy.dir), mode(&copy.file)), (0o700, 0o600));
        assert!(copy.file.ends_with("a_b.rs"));
        let dir = copy.dir.clone();
        drop(copy);
        assert!(!dir.exists());
    }

    #[test]
    fn file_names_are_sanitized() {
        assert_eq!(name("a/.env.example"), "copy.env.example");
        assert_eq!(name("a/-rf"), "copy-rf");
        assert_eq!(name("x/$(id)"), "__id_");
        assert_eq!(name("\u{202e}.rs"), "_.rs");
    }
}
