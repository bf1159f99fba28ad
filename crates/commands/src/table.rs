//! The table that a command line is classified with: the built-in facts, and what the configuration adds and narrows.

use std::collections::HashSet;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::classification::Classification;
use crate::hidden_text;
use crate::judge::CommandJudge;

/// Maximum length of a command line or shell text, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Commands and what is known about them. Cheap to clone; holds only what the configuration adds.
#[derive(Debug, Clone, Default)]
pub struct CommandTable {
    /// Programs of the configuration and of the detected toolchain.
    listed: HashSet<String>,
    /// Forbidden programs that the user or the organisation lists.
    lifted: HashSet<String>,
    /// The only programs allowed for this task.
    only: Option<HashSet<String>>,
    workspace: Option<String>,
}

impl CommandTable {
    /// The built-in table.
    #[must_use]
    pub fn built_in() -> Self {
        Self::default()
    }

    /// Adds programs of `tools.whitelisted_binaries` or of the detected toolchain. A program without a profile stays
    /// modifying, at MEDIUM instead of HIGH risk; a forbidden one stays forbidden.
    #[must_use]
    pub fn with_listed<S: Into<String>>(mut self, programs: impl IntoIterator<Item = S>) -> Self {
        self.listed.extend(programs.into_iter().map(Into::into));
        self
    }

    /// Lifts the prohibition of programs that the user or the organisation list: they are modifying at HIGH risk, and
    /// each call is asked on its own. What is denied because of its arguments stays denied.
    #[must_use]
    pub fn with_lifted<S: Into<String>>(mut self, programs: impl IntoIterator<Item = S>) -> Self {
        self.lifted.extend(programs.into_iter().map(Into::into));
        self
    }

    /// Narrows to the programs allowed for this task (T4). Narrowing twice leaves what both allow.
    #[must_use]
    pub fn only<S: Into<String>>(mut self, programs: impl IntoIterator<Item = S>) -> Self {
        let mut programs: HashSet<String> = programs.into_iter().map(Into::into).collect();
        if let Some(before) = &self.only {
            programs.retain(|program| before.contains(program));
        }
        self.only = Some(programs);
        self
    }

    /// Tells where the workspace is, so that absolute paths into it do not count as paths of the system.
    #[must_use]
    pub fn in_workspace(mut self, root: impl Into<String>) -> Self {
        let root: String = root.into();
        let root = root.trim_end_matches('/');
        self.workspace = (!root.is_empty()).then(|| root.to_owned());
        self
    }

    /// Whether `execute_command` lists a program by default or by configuration.
    #[must_use]
    pub fn lists(&self, program: &str) -> bool {
        let name = crate::program_name::known_name(program).unwrap_or(program);
        BUILT_IN.lists("allowed", name) || self.listed.contains(name)
    }

    /// Whether a program is forbidden unless the user or the organisation list it.
    #[must_use]
    pub fn forbids(&self, program: &str) -> bool {
        let name = crate::program_name::known_name(program).unwrap_or(program);
        BUILT_IN.lists("forbidden", crate::program_name::family(name)) && !self.lifted.contains(name)
    }

    /// Classifies an argument vector. Nothing is expanded.
    #[must_use]
    pub fn classify_argv<S: AsRef<str>>(&self, argv: &[S]) -> Classification {
        let mut judge = CommandJudge::new(self);
        let length: usize = argv.iter().map(|word| word.as_ref().len() + 1).sum();
        if length > MAX_TEXT_BYTES {
            judge.found.deny("the command line is too long to be judged");
            judge.found.unparsed("the command line is too long to be judged");
            return judge.finish();
        }
        let words: Vec<Argument> = argv.iter().map(|word| Argument::exact(word.as_ref())).collect();
        for (at, word) in words.iter().enumerate() {
            hidden_text::judge_word(&mut judge.found, &word.text, at == 0);
        }
        if words.first().is_none_or(|name| name.text.is_empty()) {
            judge.found.unparsed("the command line names no program");
        } else {
            judge.program(&words);
        }
        judge.finish()
    }

    /// Classifies a text for a shell.
    #[must_use]
    pub fn classify_shell(&self, text: &str) -> Classification {
        let mut judge = CommandJudge::new(self);
        hidden_text::judge_shell(&mut judge.found, text);
        judge.shell_text(text);
        judge.finish()
    }

    pub(crate) fn is_listed(&self, name: &str) -> bool {
        self.listed.contains(name)
    }

    pub(crate) fn is_lifted(&self, name: &str) -> bool {
        self.lifted.contains(name)
    }

    pub(crate) fn is_outside_task(&self, name: &str) -> bool {
        self.only.as_ref().is_some_and(|only| !only.contains(name))
    }

    pub(crate) fn workspace(&self) -> Option<String> {
        self.workspace.clone()
    }
}
