//! Sanitizes untrusted text for a terminal: it cannot contain control sequences, change the text direction, be invisible or
//! stack accents. Also detects lookalike names (homoglyphs).

use unicode_security::confusable_detection::skeleton;
use unicode_width::UnicodeWidthChar as _;

/// Replaces a character that is not shown.
const HIDDEN_MARK: char = '\u{fffd}';
/// Replaces whitespace that is not an ordinary space.
const BLANK_MARK: char = '\u{2423}';
/// Maximum number of combining characters on one letter.
const MAX_ACCENTS: usize = 3;
/// Maximum number of names in a warning.
const MAX_REPORTED: usize = 5;

/// Replaces control characters, invisible characters and unusual whitespace by visible marks.
#[must_use]
pub fn sanitize(text: &str) -> String {
    let mut accents = 0;
    text.chars()
        .map(|c| {
            accents = if c.width() == Some(0) && !c.is_control() { accents + 1 } else { 0 };
            match c {
                '\n' | '\t' => c,
                c if c.is_control() || is_hidden(c) || accents > MAX_ACCENTS => HIDDEN_MARK,
                c if is_odd_blank(c) => BLANK_MARK,
                c => c,
            }
        })
        .collect()
}

/// Sanitized text on one line.
#[must_use]
pub fn one_line(text: &str) -> String {
    sanitize(text).replace(['\n', '\t'], " ")
}

/// Characters that change the direction of a text, have no width, or look like nothing.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whitespace that looks like a space to a person but is another character to a program.
fn is_odd_blank(c: char) -> bool {
    c != ' ' && c.is_whitespace()
}

/// Words that mix Latin letters with lookalikes of another script, for a warning: `p\u{430}ypal` is not `paypal`.
#[must_use]
pub fn mixed_script_words(text: &str) -> Option<String> {
    let mixed = |word: &str| {
        let strange = |c: char| !c.is_ascii() && reading(c).is_some_and(|read| read.is_ascii());
        word.chars().any(|c| c.is_ascii_alphabetic()) && word.chars().any(strange)
    };
    first_names(
        words(text).filter(|word| mixed(word)).map(|word| format!("`{}` ({})", sanitize(word), codes(word))),
    )
}

/// Names of paths and programs that look like an ASCII name but are not, even if all their letters are of one other script.
#[must_use]
pub fn lookalike_names(names: &str) -> Option<String> {
    first_names(words(names).filter(|word| !word.is_ascii()).filter_map(|word| {
        let read: Option<String> =
            word.chars().map(|c| if c.is_ascii() { Some(c.to_string()) } else { reading(c) }).collect();
        let read = read.filter(|read| read.is_ascii())?;
        Some(format!("`{}` reads like `{read}` ({})", sanitize(word), codes(word)))
    }))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The letters that a letter looks like (UTS 39 skeleton).
fn reading(c: char) -> Option<String> {
    let mut bytes = [0; 4];
    let word: &str = c.encode_utf8(&mut bytes);
    let read: String = skeleton(word).collect();
    (!read.is_empty()).then_some(read)
}

fn codes(word: &str) -> String {
    let strange = word.chars().filter(|c| !c.is_ascii()).take(8);
    strange.map(|c| format!("U+{:04X}", u32::from(c))).collect::<Vec<_>>().join(", ")
}

fn first_names(found: impl Iterator<Item = String>) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for name in found {
        if !names.contains(&name) {
            names.push(name);
        }
        if names.len() == MAX_REPORTED {
            break;
        }
    }
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    // B6: an agent's text cannot move the cursor, hide or change direction
    #[test]
    fn control_and_invisible_characters_are_replaced() {
        for attack in [
            "\u{1b}[2J",
            "a\rb",
            "\u{7}",
            "\u{9b}31m",
            "\u{202e}txt.exe",
            "a\u{200b}b",
            "\u{2066}x",
            "\u{feff}",
            "\u{2028}",
            "\u{e0041}",
            "z\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}",
        ] {
            let shown = sanitize(attack);
            assert!(shown.contains(HIDDEN_MARK), "{attack:?} -> {shown:?}");
            assert!(!shown.chars().any(|c| c.is_control() || is_hidden(c)), "{attack:?} -> {shown:?}");
        }
        for text in ["plain\ttext\n\u{e9}\u{4e2d}", "e\u{301}", "\u{e01}\u{e35}\u{e48}"] {
            assert_eq!(sanitize(text), text);
        }
    }

    // B6: whitespace that is no space to a program does not look like a space
    #[test]
    fn unusual_whitespace_is_marked() {
        let blanks = ['\u{a0}', '\u{1680}', '\u{202f}', '\u{205f}', '\u{3000}'];
        for blank in blanks.into_iter().chain('\u{2000}'..='\u{200a}') {
            assert_eq!(sanitize(&format!("a{blank}b")), "a\u{2423}b", "{}", blank.escape_unicode());
        }
        for hidden in ['\u{ad}', '\u{180e}', '\u{2800}', '\u{3164}', '\u{85}', '\u{2029}'] {
            assert_eq!(sanitize(&format!("a{hidden}b")), "a\u{fffd}b", "{}", hidden.escape_unicode());
        }
        assert_eq!(sanitize("a b\tc\n"), "a b\tc\n");
    }

    #[test]
    fn words_of_mixed_scripts_are_reported() {
        assert!(mixed_script_words("let p\u{430}ssword = 1").unwrap().contains("U+0430"));
        assert!(mixed_script_words("\u{ff45}val(x)").is_some());
        assert_eq!(
            mixed_script_words("let password = 1; // \u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}"),
            None
        );
        assert_eq!(mixed_script_words("na\u{ef}ve caf\u{e9} 10\u{b5}s"), None);
    }

    // B6: a whole word of another script that looks like an ASCII name
    #[test]
    fn names_that_look_like_ascii_names_are_reported() {
        let check = |name: &str, reads: &str| {
            let shown = lookalike_names(name).unwrap_or_else(|| panic!("{name} is not reported"));
            assert!(shown.contains(&format!("reads like `{reads}`")), "{shown}");
        };
        check("src/\u{440}\u{430}\u{443}.rs", "pay");
        check("\u{441}\u{43e}\u{440}\u{443}", "copy");
        check("MODIFY src/\u{455}\u{441}\u{43e}\u{440}\u{435}/mod.rs", "scope");
        check("src/p\u{430}ypal.rs", "paypal");
        check("\u{ff47}\u{ff49}\u{ff54}", "git");
        for honest in [
            "src/main.rs",
            "docs/\u{43f}\u{440}\u{438}\u{432}\u{435}\u{442}.md",
            "caf\u{e9}.txt",
            "\u{4e2d}\u{6587}.md",
        ] {
            assert_eq!(lookalike_names(honest), None, "{honest}");
        }
    }
}
