//! What is remembered along one command line: what was fetched, which files are named, which variables are set, and
//! what a command contributes to a pipeline.

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::paths;
use crate::profile::CommandProfile;

/// Maximum number of names that are remembered of a kind.
const MAX_REMEMBERED: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct LineState {
    /// Whether a program can send something to another host.
    pub(crate) sends: bool,
    fetched: Vec<String>,
    mentioned: Vec<String>,
    /// Variables with the texts that the line assigns to them.
    assigned: Vec<(String, String)>,
}

impl LineState {
    pub(crate) fn fetched_to(&mut self, path: &str) {
        if self.fetched.len() < MAX_REMEMBERED {
            self.fetched.push(path.to_owned());
        }
    }

    /// Whether a path has the name of a file that was fetched.
    pub(crate) fn is_fetched(&self, path: &str) -> bool {
        let name = file_name(path);
        !name.is_empty() && self.fetched.iter().any(|fetched| name == file_name(fetched))
    }

    /// Remembers the files that a command names. The key of a connection is no file that is sent.
    pub(crate) fn mention(&mut self, words: &[Argument]) {
        let mut is_identity = false;
        for word in words {
            if !is_identity && self.mentioned.len() < MAX_REMEMBERED {
                self.mentioned.push(word.text.clone());
            }
            is_identity = BUILT_IN.lists("identity-options", &word.text);
        }
    }

    pub(crate) fn mention_file(&mut self, path: &str) {
        if self.mentioned.len() < MAX_REMEMBERED {
            self.mentioned.push(path.to_owned());
        }
    }

    pub(crate) fn mentions_secret(&self) -> bool {
        self.mentioned.len() >= MAX_REMEMBERED || self.mentioned.iter().any(|word| paths::names_secret(word))
    }

    /// A path that bash takes for a connection.
    pub(crate) fn is_device_connection(&self, path: &str) -> bool {
        path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/")
    }

    pub(crate) fn assign(&mut self, name: &str, value: &str) {
        if self.assigned.len() < MAX_REMEMBERED {
            self.assigned.push((name.to_owned(), value.to_owned()));
        }
    }

    /// The text that was last assigned to a variable.
    pub(crate) fn value_of(&self, name: &str) -> Option<&str> {
        if name == "IFS" {
            return Some(" ");
        }
        self.assigned.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What a command prints, as far as it matters to the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Printed {
    /// The output of a computation.
    #[default]
    Computed,
    /// This text.
    Text(String),
    /// Files as they are.
    Files,
}

/// What a command contributes to a pipeline.
#[derive(Debug, Clone, Default)]
pub(crate) struct StageFacts {
    pub(crate) fetches: bool,
    pub(crate) sends: bool,
    pub(crate) prints_environment: bool,
    /// Runs what it reads from its input.
    pub(crate) runs_input: bool,
    /// What it runs is a text for a shell.
    pub(crate) is_shell: bool,
    pub(crate) printed: Printed,
}

impl StageFacts {
    pub(crate) fn of(profile: &CommandProfile) -> Self {
        Self {
            fetches: profile.traits.fetches,
            sends: profile.traits.sends,
            prints_environment: profile.traits.prints_environment,
            runs_input: false,
            is_shell: false,
            printed: if profile.traits.prints_files { Printed::Files } else { Printed::Computed },
        }
    }

    /// The facts of several commands that run one after another in the same place of a pipeline.
    pub(crate) fn merge(&mut self, other: Self) {
        self.fetches |= other.fetches;
        self.sends |= other.sends;
        self.prints_environment |= other.prints_environment;
        self.runs_input |= other.runs_input;
        self.is_shell |= other.is_shell;
        self.printed = Printed::Computed;
    }
}
