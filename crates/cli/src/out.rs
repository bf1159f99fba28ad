//! Printing: data on standard output, talk on standard error, colour only where somebody looks.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anstream::{eprintln, println};
use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::harmless::plain;

/// Where output goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    json: bool,
}

/// The tone of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
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
        crate::prompt::forget_typed();
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

/// A line of words, each in its tone; what an agent wrote is harmless in it already.
pub(crate) type Line = Vec<(Tone, String)>;

/// A line for the terminal.
pub(crate) fn painted(line: &Line) -> String {
    line.iter().map(|(tone, words)| paint(*tone, words)).collect()
}

/// Colours a word; the stream takes the colour out where nobody would see it.
pub(crate) fn paint(tone: Tone, word: impl Display) -> String {
    let style = match tone {
        Tone::Plain => return word.to_string(),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Bad => AnsiColor::Red.on_default().bold(),
        Tone::Care => AnsiColor::Cyan.on_default(),
        Tone::Faint => Style::new().dimmed(),
        Tone::Strong => Style::new().bold(),
    };
    format!("{style}{word}{style:#}")
}
