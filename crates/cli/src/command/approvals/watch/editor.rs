//! The person's own editor on a private copy: a file in a folder of the state folder that nobody else may open, gone when the
//! editor is. What comes back is content like any other and goes through every check again.
#![expect(
    clippy::disallowed_methods,
    reason = "the person's editor is started, and its file read, by their names"
)]

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use vambrace_core::clock::Chance as _;

use crate::failure::Failure;
use crate::machine::SystemChance;

/// What must not reach the editor's environment.
const OURS: &[&str] =
    &["VAMBRACE_PASSPHRASE", "VAMBRACE_PASSPHRASE_FILE", "VAMBRACE_NEW_PASSPHRASE", "VAMBRACE_TOKEN"];

/// A private copy; dropping it removes it.
pub(crate) struct Copy {
    folder: PathBuf,
    file: PathBuf,
}

impl Copy {
    /// Writes the content for editing. The name keeps its ending, so that the editor knows the language.
    pub(crate) fn of(content: &[u8], path: &str, state: &Path) -> Result<Self, Failure> {
        let fault = |error: std::io::Error| Failure::failed(format!("the copy for the editor: {error}"));
        let folder = state.join(format!("edit-{:032x}", SystemChance.draw()));
        DirBuilder::new().mode(0o700).create(&folder).map_err(fault)?;
        let copy = Self { file: folder.join(name(path)), folder };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&copy.file).and_then(|mut file| file.write_all(content)).map_err(fault)?;
        Ok(copy)
    }

    /// Lets the person edit it; the screen is away meanwhile.
    pub(crate) fn edit(&self) -> Result<Vec<u8>, Failure> {
        let chosen = |name: &str| std::env::var(name).ok().filter(|words| !words.trim().is_empty());
        let editor = chosen("VISUAL").or_else(|| chosen("EDITOR")).unwrap_or_else(|| "vi".to_owned());
        // The variable may hold arguments (`code --wait`); like git, the shell takes it apart.
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(&self.file);
        OURS.iter().for_each(|name| {
            command.env_remove(name);
        });
        let status = command.status();
        let status = status.map_err(|error| Failure::failed(format!("the editor `{editor}`: {error}")))?;
        if !status.success() {
            return Err(Failure::failed(format!(
                "the editor `{editor}` ended with {status}; nothing was agreed to"
            )));
        }
        std::fs::read(&self.file).map_err(|error| Failure::failed(format!("the edited copy: {error}")))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
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
    fn the_copy_is_private_and_goes_away() {
        let state = tempfile::tempdir().unwrap();
        let copy = Copy::of(b"x\n", "src/a b.rs", state.path()).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&copy.folder), mode(&copy.file)), (0o700, 0o600));
        assert!(copy.file.ends_with("a_b.rs"));
        let folder = copy.folder.clone();
        drop(copy);
        assert!(!folder.exists());
    }

    #[test]
    fn names_are_plain() {
        assert_eq!(name("a/.env.example"), "copy.env.example");
        assert_eq!(name("a/-rf"), "copy-rf");
        assert_eq!(name("x/$(id)"), "__id_");
        assert_eq!(name("\u{202e}.rs"), "_.rs");
    }
}
