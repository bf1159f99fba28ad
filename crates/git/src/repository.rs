//! A repository whose files have been checked: where they are, what its configuration names, and what is set against it.

use std::path::{Path, PathBuf};

use crate::config_files::read_config_files;
use crate::config_key::GitConfigKey;
use crate::config_syntax::GitConfigEntry;
use crate::layout::{RepositoryLayout, RepositoryReader};
use crate::neutralize::NeutralizedConfig;

/// A repository that git may be called on.
#[derive(Debug, Clone)]
pub struct Repository {
    layout: RepositoryLayout,
    settings: Vec<GitConfigEntry>,
    neutralized: NeutralizedConfig,
}

impl Repository {
    /// Checks the repository of a working tree. Both paths are absolute, as git will see them; the working tree lies in the
    /// workspace. Nothing may change the repository's configuration between this and the end of an invocation.
    pub fn open(
        workspace: &Path,
        work_tree: &Path,
        reader: &mut dyn RepositoryReader,
    ) -> Result<Self, RepositoryError> {
        let layout = RepositoryLayout::find(workspace, work_tree, reader)?;
        let settings = read_config_files(&layout, reader)?;
        let neutralized = NeutralizedConfig::new(&settings)?;
        Ok(Self { layout, settings, neutralized })
    }

    /// Where its files are.
    #[must_use]
    pub fn layout(&self) -> &RepositoryLayout {
        &self.layout
    }

    /// What is set against its configuration.
    #[must_use]
    pub fn neutralized(&self) -> &NeutralizedConfig {
        &self.neutralized
    }

    /// Its settings in order, of all its configuration files.
    pub(crate) fn settings(&self) -> &[GitConfigEntry] {
        &self.settings
    }

    /// The values of one variable of one subsection, in order.
    pub(crate) fn values<'r>(
        &'r self,
        section: &'r str,
        subsection: &'r [u8],
        variable: &'r str,
    ) -> impl Iterator<Item = &'r [u8]> {
        self.settings
            .iter()
            .filter(move |entry| {
                entry.key.is(section, variable) && entry.key.subsection() == Some(subsection)
            })
            .map(|entry| entry.value.as_deref().unwrap_or_default())
    }
}

/// Why git is not called on a repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    /// There is no `.git`, or it is none.
    #[error("`{}` is not a git repository", .0.display())]
    NotARepository(PathBuf),
    /// It uses something outside the workspace.
    #[error("the {what} `{}` is outside the workspace", path.display())]
    OutsideWorkspace {
        /// What it is.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("cannot read `{}`: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A configuration file is not valid.
    #[error("line {line} of `{}` is not valid git configuration", path.display())]
    InvalidConfig {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// Included files include others too deeply, or there are too many.
    #[error("the git configuration includes too many files")]
    TooManyIncludes,
    /// An include whose path means different files to different versions of git.
    #[error("the git configuration includes `{0}`, which is not a plain path")]
    UnclearInclude(String),
    /// An extension of the repository format that is not known.
    #[error("the repository uses the extension `{0}`, which is not supported")]
    UnknownExtension(String),
    /// A newer repository format.
    #[error("the repository has format version `{0}`, which is not supported")]
    UnknownFormat(String),
    /// More programs and filters than can be set against.
    #[error("the git configuration names too many programs")]
    TooManySettings,
    /// More alternate object directories than are followed.
    #[error("the repository has too many alternate object directories")]
    TooManyAlternates,
    /// The repository defines the remote that pushes use.
    #[error("the git configuration sets `{0}`, a name that is reserved here")]
    ReservedRemote(GitConfigKey),
}
