//! Printing: data on standard output, talk on standard error, colour only where somebody looks.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anstream::{eprintln, println};
use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Where output goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    json: bool,
}

/// The tone of a word.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tone {
    Good,
    Bad,
    Care,
    Faint,
    Strong,
}

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether JSON is wanted.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// A line of data.
    pub(crate) fn line(self, line: impl Display) {
        println!("{line}");
    }

    /// Text from elsewhere: byte for byte for a program, made harmless for a terminal.
    pub(crate) fn foreign(self, text: &str) {
        let mut stdout = std::io::stdout();
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        let shown = if stdout.is_terminal() { plain(text) } else { text.to_owned() };
        // Nobody is left to tell when standard output is gone.
        let _ = stdout.write_all(shown.as_bytes()).and_then(|()| stdout.write_all(end.as_bytes()));
    }

    /// JSON data, laid out.
    pub(crate) fn value(self, value: &Value) {
        match serde_json::to_string_pretty(value) {
            Ok(text) => println!("{text}"),
            Err(_) => println!("{value}"),
        }
    }

    /// Talk.
    pub(crate) fn say(self, words: impl Display) {
        eprintln!("{words}");
    }

    /// Asks the person at the terminal; anything but a yes is a no.
    pub(crate) fn is_agreed_to(self, question: &str) -> Result<bool, Failure> {
        self.say(format!("{question} [y/N]"));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        read.map_err(|error| Failure::failed(format!("the answer: {error}")))?;
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }

    /// Tells a failure and gives its exit code.
    pub(crate) fn failure(self, failure: &Failure) -> ExitCode {
        let error = &failure.error;
        if self.json {
            let error = json!({"code": error.code.as_str(), "message": error.message, "suggestion": error.suggestion});
            self.value(&json!({"status": "error", "error": error}));
        } else {
            self.error(error.code.as_str(), &error.message, &error.suggestion);
        }
        ExitCode::from(failure.exit)
    }

    /// Tells an error with its hint.
    pub(crate) fn error(self, code: &str, message: &str, hint: &str) {
        eprintln!("{} {}", paint(Tone::Bad, format!("error[{code}]:")), plain(message));
        if !hint.is_empty() {
            eprintln!("{} {}", paint(Tone::Care, "hint:"), plain(hint));
        }
    }
}

/// Colours a word; the stream takes the colour out where nobody would see it.
pub(crate) fn paint(tone: Tone, word: impl Display) -> String {
    let style = match tone {
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Bad => AnsiColor::Red.on_default().bold(),
        Tone::Care => AnsiColor::Cyan.on_default(),
        Tone::Faint => Style::new().dimmed(),
        Tone::Strong => Style::new().bold(),
    };
    format!("{style}{word}{style:#}")
}

/// Text from elsewhere cannot drive the terminal, turn its direction around or hide: what nobody would see is shown as a
/// mark, and nothing of it is sent.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            c if c.is_control() || is_hidden(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Characters that change the direction of a text, have no width, or look like nothing.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Words that mix Latin letters with letters that look like them, for a warning: `p\u{430}ypal` is not `paypal`.
pub(crate) fn lookalikes(text: &str) -> Option<String> {
    let strange = |c: char| {
        matches!(c, '\u{370}'..='\u{3ff}' | '\u{400}'..='\u{52f}' | '\u{531}'..='\u{587}' | '\u{13a0}'..='\u{13ff}'
            | '\u{1d400}'..='\u{1d7ff}' | '\u{ff21}'..='\u{ff5a}')
    };
    let mut found: Vec<String> = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
        if word.chars().any(|c| c.is_ascii_alphabetic()) && word.chars().any(strange) {
            let codes: Vec<String> =
                word.chars().filter(|c| strange(*c)).map(|c| format!("U+{:04X}", u32::from(c))).collect();
            let said = format!("`{}` ({})", plain(word), codes.join(", "));
            if !found.contains(&said) {
                found.push(said);
            }
        }
    }
    found.truncate(5);
    (!found.is_empty()).then(|| found.join(", "))
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
        ] {
            let shown = plain(attack);
            assert!(shown.contains('\u{fffd}'), "{attack:?} -> {shown:?}");
            assert!(!shown.chars().any(|c| c.is_control() || is_hidden(c)), "{attack:?} -> {shown:?}");
        }
        assert_eq!(plain("plain\ttext\n\u{e9}\u{4e2d}"), "plain\ttext\n\u{e9}\u{4e2d}");
    }

    #[test]
    fn lookalike_letters_are_named() {
        assert!(lookalikes("let p\u{430}ssword = 1").unwrap().contains("U+0430"));
        assert_eq!(lookalikes("let password = 1; // \u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}"), None);
    }
}
