//! Output: data on standard output, messages on standard error, colour only on a terminal.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anstream::{eprintln, println};
use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};
use vambrace_core::terminal_escape::sanitize;

use crate::failure::Failure;

/// Prints as text or as JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    json: bool,
}

/// Style of a piece of text.
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

    /// Whether `--json` was given.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Prints a line of data.
    pub(crate) fn line(self, line: impl Display) {
        println!("{line}");
    }

    /// Prints untrusted text: unchanged to a file or pipe, sanitized to a terminal.
    pub(crate) fn untrusted(self, text: &str) {
        let mut stdout = std::io::stdout();
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        let shown = if stdout.is_terminal() { sanitize(text) } else { text.to_owned() };
        // An error cannot be reported: standard output is gone.
        let _ = stdout.write_all(shown.as_bytes()).and_then(|()| stdout.write_all(end.as_bytes()));
    }

    /// Prints JSON data, indented.
    pub(crate) fn value(self, value: &Value) {
        match serde_json::to_string_pretty(value) {
            Ok(text) => println!("{text}"),
            Err(_) => println!("{value}"),
        }
    }

    /// Prints a message on standard error.
    pub(crate) fn message(self, words: impl Display) {
        eprintln!("{words}");
    }

    /// Asks the user at the terminal; everything but `y` and `yes` is a no.
    pub(crate) fn confirm(self, question: &str) -> Result<bool, Failure> {
        crate::prompt::discard_typed();
        self.message(format!("{question} [y/N]"));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        read.map_err(|error| Failure::failed(format!("standard input: {error}")))?;
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }

    /// Prints a failure and returns its exit code.
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

    /// Prints an error with its hint.
    pub(crate) fn error(self, code: &str, message: &str, hint: &str) {
        eprintln!("{} {}", paint(Tone::Bad, format!("error[{code}]:")), sanitize(message));
        if !hint.is_empty() {
            eprintln!("{} {}", paint(Tone::Care, "hint:"), sanitize(hint));
        }
    }
}

/// A line of styled text; untrusted text in it is already sanitized.
pub(crate) type StyledLine = Vec<(Tone, String)>;

/// Renders a line with ANSI styles.
pub(crate) fn render_line(line: &StyledLine) -> String {
    line.iter().map(|(tone, words)| paint(*tone, words)).collect()
}

/// Adds ANSI styles; the stream removes them if it is not a terminal.
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
