//! Rules for commit messages, and who commits.
//!
//! **Invariant.** A [`CommitMessage`] has passed the rules and reaches git unchanged: git is told not to clean it up.

/// Maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Maximum length of a name or address, in bytes.
const MAX_IDENTITY_BYTES: usize = 200;

/// Whether subjects have a form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MessageForm {
    /// Any text.
    #[default]
    Free,
    /// Conventional commits: `type(scope)!: description`, with one of these types; an empty list allows every type.
    Conventional(Vec<String>),
}

/// Rules for commit messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitMessageRules {
    /// Maximum length of the first line, in characters.
    pub max_subject_characters: usize,
    /// Maximum length of the lines after it, in characters.
    pub max_line_characters: usize,
    /// Maximum length of the message, in characters.
    pub max_characters: usize,
    /// Whether subjects have a form.
    pub form: MessageForm,
}

impl Default for CommitMessageRules {
    fn default() -> Self {
        Self {
            max_subject_characters: 100,
            max_line_characters: 500,
            max_characters: 10_000,
            form: MessageForm::Free,
        }
    }
}

/// A message that has passed the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitMessage(String);

/// Why a message is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitMessageError {
    /// No text in the first line.
    #[error("the commit message has no subject in its first line")]
    Empty,
    /// A control character, or one that changes or hides text.
    #[error("line {line} of the commit message contains the character U+{code:04X}")]
    Character {
        /// The line, counted from 1.
        line: usize,
        /// The code point.
        code: u32,
    },
    /// The first line is too long.
    #[error("the first line of the commit message has {length} characters; at most {max} are allowed")]
    LongSubject {
        /// Its length.
        length: usize,
        /// The maximum.
        max: usize,
    },
    /// Another line is too long.
    #[error("line {line} of the commit message has {length} characters; at most {max} are allowed")]
    LongLine {
        /// The line, counted from 1.
        line: usize,
        /// Its length.
        length: usize,
        /// The maximum.
        max: usize,
    },
    /// The message is too long.
    #[error("the commit message is longer than {max} characters")]
    TooLong {
        /// The maximum.
        max: usize,
    },
    /// The line after the subject is not empty.
    #[error("the line after the subject must be empty")]
    NoBlankLine,
    /// The subject does not have the form.
    #[error("the subject must have the form `type(scope): description`{}", types_hint(.types))]
    NotConventional {
        /// The allowed types; empty for any.
        types: Vec<String>,
    },
    /// The message contains a secret; the text says of which kind.
    #[error("the commit message contains a secret: {0}")]
    Secret(String),
}

fn types_hint(types: &[String]) -> String {
    if types.is_empty() { String::new() } else { format!(" with one of the types {}", types.join(", ")) }
}

impl CommitMessageRules {
    /// Checks a message. `find_secret` returns the kind of a secret in the text. Whitespace at line ends and at both ends of
    /// the message is dropped, nothing else.
    pub fn check(
        &self,
        text: &str,
        find_secret: &dyn Fn(&str) -> Option<String>,
    ) -> Result<CommitMessage, CommitMessageError> {
        let too_long = CommitMessageError::TooLong { max: self.max_characters };
        if text.len() > MAX_MESSAGE_BYTES || text.chars().count() > self.max_characters {
            return Err(too_long);
        }
        let text = text.replace("\r\n", "\n");
        check_characters(&text)?;
        let lines: Vec<&str> = text.trim_matches(['\n', ' ', '\t']).split('\n').map(str::trim_end).collect();
        self.check_lines(&lines)?;
        let message = format!("{}\n", lines.join("\n"));
        match find_secret(&message) {
            Some(kind) => Err(CommitMessageError::Secret(kind)),
            None => Ok(CommitMessage(message)),
        }
    }

    fn check_lines(&self, lines: &[&str]) -> Result<(), CommitMessageError> {
        let (subject, body) = lines.split_first().ok_or(CommitMessageError::Empty)?;
        if subject.is_empty() {
            return Err(CommitMessageError::Empty);
        }
        let length = subject.chars().count();
        if length > self.max_subject_characters {
            return Err(CommitMessageError::LongSubject { length, max: self.max_subject_characters });
        }
        if body.first().is_some_and(|line| !line.is_empty()) {
            return Err(CommitMessageError::NoBlankLine);
        }
        for (index, line) in body.iter().enumerate() {
            let length = line.chars().count();
            if length > self.max_line_characters {
                let max = self.max_line_characters;
                return Err(CommitMessageError::LongLine { line: index + 2, length, max });
            }
        }
        match &self.form {
            MessageForm::Conventional(types) if !is_conventional(subject, types) => {
                Err(CommitMessageError::NotConventional { types: types.clone() })
            }
            _ => Ok(()),
        }
    }
}

impl CommitMessage {
    /// The text, with a line break at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first line.
    #[must_use]
    pub fn subject(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }
}

fn check_characters(text: &str) -> Result<(), CommitMessageError> {
    for (index, line) in text.split('\n').enumerate() {
        if let Some(character) = line.chars().find(|c| is_hidden_or_control(*c)) {
            return Err(CommitMessageError::Character { line: index + 1, code: character.into() });
        }
    }
    Ok(())
}

/// Control characters except the tab, and characters that reorder or hide text. Joiners and variation selectors are parts of
/// emoji and of several scripts.
fn is_hidden_or_control(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn is_conventional(subject: &str, types: &[String]) -> bool {
    let Some((head, description)) = subject.split_once(": ") else { return false };
    let head = head.strip_suffix('!').unwrap_or(head);
    let (kind, scope) = match head.split_once('(') {
        Some((kind, scope)) => match scope.strip_suffix(')') {
            Some(scope) => (kind, Some(scope)),
            None => return false,
        },
        None => (head, None),
    };
    let word = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ',' | ' '))
    };
    let known = types.is_empty() || types.iter().any(|known| known == kind);
    known
        && !kind.is_empty()
        && kind.chars().all(|c| c.is_ascii_lowercase() || c == '-')
        && scope.is_none_or(word)
        && !description.trim().is_empty()
}

/// Who commits: author and committer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitIdentity {
    name: String,
    email: String,
}

/// A name or address that a commit cannot contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {0} of the committer is empty, too long, or contains `<`, `>` or a control character")]
pub struct BadIdentity(&'static str);

impl CommitIdentity {
    /// Checks a name and an e-mail address.
    pub fn new(name: &str, email: &str) -> Result<Self, BadIdentity> {
        let bad = |text: &str| {
            let odd = |c: char| matches!(c, '<' | '>') || is_hidden_or_control(c) || c == '\t';
            // Git drops these at both ends and rejects what is left empty.
            let crud = |c: char| c.is_whitespace() || matches!(c, '.' | ',' | ':' | ';' | '"' | '\\' | '\'');
            text.trim_matches(crud).is_empty() || text.len() > MAX_IDENTITY_BYTES || text.contains(odd)
        };
        if bad(name) {
            return Err(BadIdentity("name"));
        }
        if bad(email) || email.contains(char::is_whitespace) {
            return Err(BadIdentity("e-mail address"));
        }
        Ok(Self { name: name.to_owned(), email: email.to_owned() })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The e-mail address.
    #[must_use]
    pub fn email(&self) -> &str {
        &self.email
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rules: &CommitMessageRules, text: &str, expected: Result<&str, &str>) {
        let secret = |text: &str| text.contains("hunter2").then(|| "a password".to_owned());
        let found = rules.check(text, &secret);
        match expected {
            Ok(message) => assert_eq!(found.unwrap().as_str(), message),
            Err(part) => {
                let error = found.expect_err(text).to_string();
                assert!(error.contains(part), "{error}");
            }
        }
    }

    // T15
    #[test]
    fn messages_are_checked_and_otherwise_unchanged() {
        let rules = CommitMessageRules::default();
        check(&rules, "fix the parser", Ok("fix the parser\n"));
        check(&rules, "\n a\n\nb  \n# c\n---\n\n", Ok("a\n\nb\n# c\n---\n"));
        check(&rules, "a\r\n\r\nb\ttab", Ok("a\n\nb\ttab\n"));
        check(&rules, "\u{2764}\u{fe0f} emoji", Ok("\u{2764}\u{fe0f} emoji\n"));
        check(&rules, "-F/etc/passwd", Ok("-F/etc/passwd\n"));
        check(&rules, " \n\n", Err("no subject"));
        check(&rules, "", Err("no subject"));
        check(&rules, "a\nb", Err("must be empty"));
        check(&rules, "a\n\nb\x1b[2J", Err("line 3 of the commit message contains the character U+001B"));
        check(&rules, "a\rb", Err("U+000D"));
        check(&rules, "a\u{202e}b", Err("U+202E"));
        check(&rules, "a\0", Err("U+0000"));
        check(&rules, &"a".repeat(101), Err("101 characters; at most 100"));
        check(&rules, &format!("a\n\n{}", "\u{e9}".repeat(501)), Err("line 3 of the commit message has 501"));
        check(&rules, &"a\n\n".repeat(4000), Err("longer than 10000"));
        check(&rules, "a\n\npassword is hunter2", Err("contains a secret: a password"));
    }

    #[test]
    fn conventional_subjects_have_a_type_and_a_description() {
        let rules = CommitMessageRules {
            form: MessageForm::Conventional(vec!["feat".to_owned(), "fix".to_owned()]),
            ..CommitMessageRules::default()
        };
        for text in ["feat: x", "fix(core)!: y", "fix(a, b): z"] {
            assert!(rules.check(text, &|_| None).is_ok(), "{text}");
        }
        for text in ["feat:x", "chore: x", "feat(: x", "feat(): x", ": x", "feat:  ", "Feat: x", "feat"] {
            check(&rules, text, Err("with one of the types feat, fix"));
        }
        let any = CommitMessageRules { form: MessageForm::Conventional(Vec::new()), ..rules };
        assert!(any.check("build-x: y", &|_| None).is_ok());
    }

    #[test]
    fn identities_cannot_forge_headers() {
        assert!(CommitIdentity::new("Ann O'Neil", "ann@example.com").is_ok());
        for (name, email) in
            [("", "a@b"), (" . ", "a@b"), ("a\nb", "a@b"), ("a <b>", "a@b"), ("a", "a b"), ("a", "")]
        {
            assert!(CommitIdentity::new(name, email).is_err(), "{name:?} {email:?}");
        }
    }
}
