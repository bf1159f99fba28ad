//! Characters that make a command line look like something else: control characters, invisible and reordering
//! characters, blanks that are no blanks to a shell, letters of other scripts in the name of a program.

use vambrace_core::blocked_paths::is_ignorable;
use vambrace_core::terminal_escape;

use crate::judgement::Judgement;

/// Judges one word of an argument vector.
pub(crate) fn judge_word(found: &mut Judgement, word: &str, is_name: bool) {
    if word.is_ascii() && !word.bytes().any(|byte| byte.is_ascii_control()) {
        return;
    }
    judge_characters(found, word, if is_name { Place::Name } else { Place::Word });
    if is_name {
        judge_name(found, word);
    }
}

/// Judges a whole text for a shell.
pub(crate) fn judge_shell(found: &mut Judgement, text: &str) {
    if text.is_ascii() && !text.bytes().any(|byte| byte.is_ascii_control()) {
        return;
    }
    judge_characters(found, text, Place::Shell(Quotes::default()));
}

/// The name of a program that reads like another one.
pub(crate) fn judge_name(found: &mut Judgement, name: &str) {
    if let Some(lookalike) = terminal_escape::lookalike_names(name) {
        found.deny(format!("the name of the program is misleading: {lookalike}"));
    }
}

/// Where characters stand.
enum Place {
    Name,
    Word,
    Shell(Quotes),
}

impl Place {
    /// Whether the next character is part of a text that the user reads, as opposed to a name or an operator.
    fn is_text(&self) -> bool {
        match self {
            Self::Name => false,
            Self::Word => true,
            Self::Shell(quotes) => quotes.open.is_some(),
        }
    }

    fn pass(&mut self, c: char) {
        if let Self::Shell(quotes) = self {
            quotes.pass(c);
        }
    }
}

/// Follows quotes roughly.
#[derive(Default)]
struct Quotes {
    open: Option<char>,
    escaped: bool,
}

impl Quotes {
    fn pass(&mut self, c: char) {
        match (self.open, c) {
            _ if self.escaped => self.escaped = false,
            (None | Some('"'), '\\') => self.escaped = true,
            (None, '\'' | '"') => self.open = Some(c),
            (Some(open), c) if open == c => self.open = None,
            _ => {}
        }
    }
}

fn judge_characters(found: &mut Judgement, text: &str, mut place: Place) {
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let joins_emoji =
            !before.is_ascii() && matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}');
        match c {
            '\n' | '\t' => {}
            '\r' if text.get(at + 1..).is_some_and(|rest| rest.starts_with('\n')) => {
                found.unparsed("it has line ends of another system");
            }
            c if c.is_control() => {
                found.deny(format!("it contains the control character U+{:04X}", u32::from(c)));
            }
            c if is_ignorable(c) && !(joins_emoji && place.is_text()) => {
                found.deny(format!("it contains the invisible character U+{:04X}", u32::from(c)));
            }
            c if c.is_whitespace() && c != ' ' && !place.is_text() => {
                found.deny(format!(
                    "it contains the blank U+{:04X} that is no blank to a shell",
                    u32::from(c)
                ));
            }
            _ => {}
        }
        place.pass(c);
        before = c;
    }
    if text.contains('\0') {
        found.unparsed("it contains a zero byte");
    }
}
