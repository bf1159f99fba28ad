//! Text from elsewhere, made harmless for a terminal: it cannot drive it, turn its direction around, hide or pile up; and
//! names that pretend to be others are told.

use unicode_security::confusable_detection::skeleton;
use unicode_width::UnicodeWidthChar as _;

/// In place of what is not shown.
const MARK: char = '\u{fffd}';
/// In place of a blank that is not the ordinary one.
const BLANK: char = '\u{2423}';
/// So many accents may stand over one letter.
const ACCENTS: usize = 3;
/// So many names a warning tells.
const TOLD: usize = 5;

/// What nobody would see is shown as a mark, and nothing of it is sent; nor is a blank that only looks like one.
pub(crate) fn plain(text: &str) -> String {
    let mut accents = 0;
    text.chars()
        .map(|c| {
            accents = if c.width() == Some(0) && !c.is_control() { accents + 1 } else { 0 };
            match c {
                '\n' | '\t' => c,
                c if c.is_control() || is_hidden(c) || accents > ACCENTS => MARK,
                c if is_odd_blank(c) => BLANK,
                c => c,
            }
        })
        .collect()
}

/// Characters that change the direction of a text, have no width, or look like nothing.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Blanks that an eye takes for a space and a program does not.
fn is_odd_blank(c: char) -> bool {
    c != ' ' && c.is_whitespace()
}

/// Words that mix Latin letters with letters that look like them, for a warning: `p\u{430}ypal` is not `paypal`.
pub(crate) fn lookalikes(text: &str) -> Option<String> {
    let mixed = |word: &str| {
        let strange = |c: char| !c.is_ascii() && reading(c).is_some_and(|read| read.is_ascii());
        word.chars().any(|c| c.is_ascii_alphabetic()) && word.chars().any(strange)
    };
    told(words(text).filter(|word| mixed(word)).map(|word| format!("`{}` ({})", plain(word), codes(word))))
}

/// Names that read like another name in plain letters although none of theirs is one: of paths and programs, where the whole
/// word counts and no language excuses it.
pub(crate) fn impostors(names: &str) -> Option<String> {
    told(words(names).filter(|word| !word.is_ascii()).filter_map(|word| {
        let read: Option<String> =
            word.chars().map(|c| if c.is_ascii() { Some(c.to_string()) } else { reading(c) }).collect();
        let read = read.filter(|read| read.is_ascii())?;
        Some(format!("`{}` reads like `{read}` ({})", plain(word), codes(word)))
    }))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The letters that a letter looks like (UTS 39).
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

fn told(found: impl Iterator<Item = String>) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for name in found {
        if !names.contains(&name) {
            names.push(name);
        }
        if names.len() == TOLD {
            break;
        }
    }
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    // B6: what an agent wrote cannot move the cursor, hide or turn around
    #[test]
    fn untrusted_text_is_harmless() {
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
            let shown = plain(attack);
            assert!(shown.contains(MARK), "{attack:?} -> {shown:?}");
            assert!(!shown.chars().any(|c| c.is_control() || is_hidden(c)), "{attack:?} -> {shown:?}");
        }
        for text in ["plain\ttext\n\u{e9}\u{4e2d}", "e\u{301}", "\u{e01}\u{e35}\u{e48}"] {
            assert_eq!(plain(text), text);
        }
    }

    // B6: a blank that is none for a program does not look like one
    #[test]
    fn unusual_blanks_are_marked() {
        let blanks = ['\u{a0}', '\u{1680}', '\u{202f}', '\u{205f}', '\u{3000}'];
        for blank in blanks.into_iter().chain('\u{2000}'..='\u{200a}') {
            assert_eq!(plain(&format!("a{blank}b")), "a\u{2423}b", "{}", blank.escape_unicode());
        }
        for hidden in ['\u{ad}', '\u{180e}', '\u{2800}', '\u{3164}', '\u{85}', '\u{2029}'] {
            assert_eq!(plain(&format!("a{hidden}b")), "a\u{fffd}b", "{}", hidden.escape_unicode());
        }
        assert_eq!(plain("a b\tc\n"), "a b\tc\n");
    }

    #[test]
    fn lookalike_letters_are_named() {
        assert!(lookalikes("let p\u{430}ssword = 1").unwrap().contains("U+0430"));
        assert!(lookalikes("\u{ff45}val(x)").is_some());
        assert_eq!(lookalikes("let password = 1; // \u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}"), None);
        assert_eq!(lookalikes("na\u{ef}ve caf\u{e9} 10\u{b5}s"), None);
    }

    // B6: a whole word of another script that reads like a name in plain letters
    #[test]
    fn names_that_read_like_others_are_named() {
        let check = |name: &str, reads: &str| {
            let told = impostors(name).unwrap_or_else(|| panic!("{name} passes"));
            assert!(told.contains(&format!("reads like `{reads}`")), "{told}");
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
            assert_eq!(impostors(honest), None, "{honest}");
        }
    }
}
