//! One word of a command as far as it is known before it runs. An argument vector has only exact words; a word of a
//! shell text may contain expansions, and then only its literal beginning is known.

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Argument {
    /// The text. Expansions are shown as written.
    pub(crate) text: String,
    /// Whether the program gets exactly `text`.
    pub(crate) exact: bool,
    /// How many bytes of `text` are literal, from the beginning.
    pub(crate) prefix: usize,
    /// Whether it can become several words with any text, or none.
    pub(crate) splits: bool,
    /// Whether it is a pattern that becomes file names.
    pub(crate) globs: bool,
    /// Whether the output of a command is a part of it.
    pub(crate) substituted: bool,
    /// Whether a variable with the name of a secret is a part of it.
    pub(crate) secret_variable: bool,
    /// Words that it probably becomes, for finding danger only: values that the same text assigns, braces expanded.
    pub(crate) likely: Vec<String>,
}

impl Argument {
    pub(crate) fn exact(text: impl Into<String>) -> Self {
        let text = text.into();
        let prefix = text.len();
        Self {
            text,
            exact: true,
            prefix,
            splits: false,
            globs: false,
            substituted: false,
            secret_variable: false,
            likely: Vec::new(),
        }
    }

    /// Words that are read from somewhere else when the command runs.
    pub(crate) fn appended() -> Self {
        Self {
            text: "...".to_owned(),
            exact: false,
            prefix: 0,
            splits: true,
            globs: false,
            substituted: false,
            secret_variable: false,
            likely: Vec::new(),
        }
    }

    /// The same, with only this much text of it left.
    pub(crate) fn tail(&self, from: usize) -> Self {
        let text = self.text.get(from..).unwrap_or_default().to_owned();
        Self { text, prefix: self.prefix.saturating_sub(from), ..self.clone() }
    }

    pub(crate) fn literal_prefix(&self) -> &str {
        self.text.get(..self.prefix).unwrap_or_default()
    }

    /// Whether words can follow that are not known and could be options.
    pub(crate) fn may_add_options(&self) -> bool {
        self.splits || (self.globs && self.may_be_option())
    }

    /// Whether the program could take it for an option, or for more than one word.
    pub(crate) fn may_be_option(&self) -> bool {
        if self.exact {
            return self.text.len() > 1 && self.text.starts_with('-');
        }
        self.splits || self.prefix == 0 || self.text.starts_with('-')
    }
}
