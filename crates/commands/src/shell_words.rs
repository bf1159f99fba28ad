//! What is known of a word of a shell text before it is expanded.

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::line_state::LineState;
use crate::shell::{Word, WordPart};

/// Maximum number of words that braces are expanded to.
const MAX_BRACE_WORDS: usize = 32;

/// What the path of a process substitution begins with.
const DESCRIPTOR: &str = "/dev/fd/";

/// The argument that a word becomes.
pub(crate) fn argument(word: &Word, line: &LineState) -> Argument {
    let mut argument = Argument::exact("");
    let mut likely = Some(String::new());
    let mut braces = false;
    for part in &word.parts {
        match part {
            WordPart::Text { text, quoted } => {
                if !quoted && text != "[" && text.contains(['*', '?', '[']) {
                    let literal = text.find(['*', '?', '[']).unwrap_or(0);
                    argument.cut_at(argument.text.len() + literal);
                    argument.globs = true;
                }
                braces |= !quoted && text.contains('{') && text != "{}";
                argument.text.push_str(text);
                append(&mut likely, Some(text));
            }
            WordPart::Tilde(user) => {
                argument.text.push('~');
                argument.text.push_str(user);
                append(&mut likely, Some(&argument.text));
            }
            WordPart::Parameter { name, quoted } => {
                argument.cut();
                argument.splits |= !quoted;
                argument.secret_variable |= is_secret_name(name);
                argument.text.push('$');
                argument.text.push_str(name);
                append(&mut likely, line.value_of(name));
            }
            WordPart::Expansion { raw, inner, quoted } => {
                argument.cut();
                argument.splits |= !quoted;
                argument.substituted |= inner.iter().any(is_substitution);
                argument.text.push_str(raw);
                likely = None;
            }
            WordPart::Substitution { raw, process, quoted, .. } => {
                argument.cut();
                argument.splits |= !quoted && !process;
                argument.substituted = true;
                if *process && argument.text.is_empty() {
                    argument.text.push_str(DESCRIPTOR);
                    argument.prefix = DESCRIPTOR.len();
                }
                argument.text.push_str(raw);
                likely = None;
            }
        }
    }
    if argument.exact {
        argument.prefix = argument.text.len();
    }
    if braces {
        let expanded = expand_braces(&argument.text);
        if expanded.len() > 1 {
            argument.exact = false;
            argument.splits = true;
            argument.prefix = argument.prefix.min(argument.text.find('{').unwrap_or(0));
            argument.likely = expanded;
        }
    } else if let Some(text) = likely.filter(|_| !argument.exact && !argument.globs) {
        let words = text.split_whitespace().map(str::to_owned);
        argument.likely = if argument.splits { words.collect() } else { vec![text] };
    }
    argument
}

impl Argument {
    /// From here on the text is not literal.
    fn cut(&mut self) {
        self.cut_at(self.text.len());
    }

    fn cut_at(&mut self, at: usize) {
        if self.exact {
            self.exact = false;
            self.prefix = at;
        }
    }
}

fn append(likely: &mut Option<String>, text: Option<&str>) {
    *likely = match (likely.take(), text) {
        (Some(mut before), Some(text)) => {
            before.push_str(text);
            Some(before)
        }
        _ => None,
    };
}

fn is_substitution(part: &WordPart) -> bool {
    match part {
        WordPart::Substitution { .. } => true,
        WordPart::Expansion { inner, .. } => inner.iter().any(is_substitution),
        _ => false,
    }
}

/// Whether a variable usually holds a secret.
fn is_secret_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    BUILT_IN.list("secret-variable-parts").any(|part| upper.contains(part))
}

/// Whether an expansion treats a value as a prompt, and so runs the commands in it.
pub(crate) fn runs_as_prompt(raw: &str) -> bool {
    raw.trim_end_matches('}').ends_with("@P")
}

/// The words of a text with one level of braces after another expanded, up to a bound.
fn expand_braces(text: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut open = vec![text.to_owned()];
    while let Some(text) = open.pop() {
        let expansion = first_brace(&text);
        match expansion {
            Some(words) if open.len() + done.len() + words.len() <= MAX_BRACE_WORDS => {
                open.extend(words.into_iter().rev());
            }
            _ => done.push(text),
        }
    }
    done.retain(|word| !word.is_empty());
    done
}

/// The innermost first list in braces, expanded.
fn first_brace(text: &str) -> Option<Vec<String>> {
    let close = text.find('}')?;
    let open = text.get(..close)?.rfind('{')?;
    let inside = text.get(open + 1..close)?;
    let (before, after) = (text.get(..open)?, text.get(close + 1..)?);
    inside.contains(',').then(|| inside.split(',').map(|item| format!("{before}{item}{after}")).collect())
}
