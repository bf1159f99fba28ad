//! The syntax tree of a shell text. Operators between pipelines are not kept: every part may run.

/// A parsed text.
#[derive(Debug)]
pub(crate) struct ParsedText {
    pub(crate) commands: CommandList,
    /// Here-documents, by their number.
    pub(crate) bodies: Vec<Word>,
    /// Constructs that hide which programs run.
    pub(crate) odd: Vec<&'static str>,
    /// An interactive shell would expand history references.
    pub(crate) history: bool,
    /// A quote inside quotes looks like the end of a command.
    pub(crate) quote_confusion: bool,
}

pub(crate) type CommandList = Vec<Pipeline>;

/// Commands that are connected by pipes.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) commands: Vec<ShellCommand>,
    pub(crate) background: bool,
    /// Begins with `time`, which is a program to some shells.
    pub(crate) timed: bool,
}

#[derive(Debug)]
pub(crate) enum ShellCommand {
    Simple(SimpleCommand),
    /// `( )`, `{ }`, `if`, `while`, `until`, `for`, `select`, `case`: all words and all bodies.
    Compound {
        /// Variable that a loop sets.
        variable: Option<String>,
        words: Vec<Word>,
        bodies: Vec<CommandList>,
        redirects: Vec<Redirect>,
    },
    Function {
        name: String,
        body: Box<ShellCommand>,
    },
    /// `[[ ]]`
    Condition {
        words: Vec<Word>,
        redirects: Vec<Redirect>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct SimpleCommand {
    pub(crate) assignments: Vec<VariableAssignment>,
    pub(crate) words: Vec<Word>,
    pub(crate) redirects: Vec<Redirect>,
}

#[derive(Debug)]
pub(crate) struct VariableAssignment {
    pub(crate) name: String,
    /// One word, or the elements of an array.
    pub(crate) value: Vec<Word>,
}

#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) kind: RedirectKind,
    pub(crate) target: Word,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectKind {
    Read,
    Write,
    ReadWrite,
    /// `>&` or `<&`: a descriptor, or a file for `>&`.
    Duplicate {
        writes: bool,
    },
    /// A here-document, by its number.
    HereDocument(usize),
    HereString,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) parts: Vec<WordPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WordPart {
    Text {
        text: String,
        quoted: bool,
    },
    /// `~` or `~user` at the beginning.
    Tilde(String),
    /// `$name`, `${name}`, `$1`, `$@`.
    Parameter {
        name: String,
        quoted: bool,
    },
    /// `${...}` with an operator, or arithmetic: the text, and the commands inside.
    Expansion {
        raw: String,
        inner: Vec<WordPart>,
        quoted: bool,
    },
    /// `$(...)`, backquotes, `<(...)`, `>(...)`. The number leads to the commands.
    Substitution {
        raw: String,
        commands: SubstitutedCommands,
        process: bool,
        quoted: bool,
    },
}

/// The commands of a substitution; `None` if they do not parse.
#[derive(Debug, Clone)]
pub(crate) struct SubstitutedCommands(pub(crate) std::rc::Rc<Option<CommandList>>);

impl PartialEq for SubstitutedCommands {
    fn eq(&self, other: &Self) -> bool {
        std::rc::Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SubstitutedCommands {}

impl Word {
    /// The text of a word without any expansion, and whether a part of it is quoted.
    pub(crate) fn literal(&self) -> Option<(String, bool)> {
        let mut whole = String::new();
        let mut any_quoted = false;
        for part in &self.parts {
            let WordPart::Text { text, quoted } = part else { return None };
            whole.push_str(text);
            any_quoted |= quoted;
        }
        Some((whole, any_quoted))
    }
}
