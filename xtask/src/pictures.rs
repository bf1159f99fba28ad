//! The pictures of the README: real output of the program in a small project, drawn as SVG for light and dark pages.
//!
//! Identifiers, times and paths are replaced by fixed ones, so that the same program draws the same picture.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    error::{TaskError, TaskResult, WithContext},
    program::run_output,
    project::Project,
};

/// Colours of a page.
struct Theme {
    name: &'static str,
    background: &'static str,
    border: &'static str,
    text: &'static str,
    dim: &'static str,
    /// The colours of SGR 31 to 36.
    colours: [&'static str; 6],
}

const THEMES: [Theme; 2] = [
    Theme {
        name: "light",
        background: "#ffffff",
        border: "#d0d7de",
        text: "#1f2328",
        dim: "#6e7781",
        colours: ["#cf222e", "#116329", "#7d4e00", "#0550ae", "#8250df", "#0a6c74"],
    },
    Theme {
        name: "dark",
        background: "#0d1117",
        border: "#30363d",
        text: "#e6edf3",
        dim: "#8b949e",
        colours: ["#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76d9e6"],
    },
];

const CHARACTER_WIDTH: f64 = 8.0;
const LINE_HEIGHT: usize = 20;
const MARGIN: usize = 18;

/// Every picture with its path.
pub(crate) fn draw(project: &Project) -> TaskResult<Vec<(&'static str, String)>> {
    let place = Place::new(project)?;
    place.run(&["init"])?;
    let denial = ["call read_file path=.env", "call web_fetch url=https://example.com/"];
    let denial = place.session(&denial)?;
    let edit = r#"{"path":"src/main.rs","edits":[{"spec":"hello","content":"hello, world"}]}"#;
    place.run(&["call", "edit_file", edit])?;
    let listed = place.run(&["approvals", "list", "--json"])?;
    let id = request_id(&listed)?;
    let approval =
        place.session(&[&format!("approvals show {id}"), &format!("approvals approve {id} --yes")])?;
    place.remove();
    let approval = approval.replace(&id, "hitl-7c1e");
    let files = [
        ("docs/images/denial-light.svg", &denial, &THEMES[0]),
        ("docs/images/denial-dark.svg", &denial, &THEMES[1]),
        ("docs/images/approval-light.svg", &approval, &THEMES[0]),
        ("docs/images/approval-dark.svg", &approval, &THEMES[1]),
    ];
    Ok(files.into_iter().map(|(file, text, theme)| (file, svg(text, theme))).collect())
}

/// The id of the first approval request in the JSON list. An empty id would be replaced between all characters.
fn request_id(listed: &str) -> TaskResult<String> {
    let id = listed.split('"').find(|part| part.starts_with("hitl-"));
    id.map(str::to_owned).ok_or_else(|| {
        TaskError::new("the edit for the pictures made no approval request")
            .hint(format!("`approvals list --json` printed `{}`", listed.trim()))
    })
}

/// A project with a home of its own, in the target directory.
struct Place {
    dir: PathBuf,
    binary: PathBuf,
}

impl Place {
    fn new(project: &Project) -> TaskResult<Self> {
        let dir = project.built("pictures", "");
        let _ = fs::remove_dir_all(&dir);
        for (file, content) in [
            ("shop/src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n"),
            ("shop/.env", "TOKEN=none\n"),
        ] {
            let path = dir.join(file);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).when(|| format!("cannot create `{}`", parent.display()))?;
            }
            fs::write(&path, content).when(|| format!("cannot write `{}`", path.display()))?;
        }
        Ok(Self { dir, binary: project.built("debug", "vambrace") })
    }

    /// What a command prints, standard error first.
    fn run(&self, args: &[&str]) -> TaskResult<String> {
        run_output(
            Command::new(&self.binary)
                .args(args)
                .current_dir(self.dir.join("shop"))
                .env_clear()
                .env("HOME", self.dir.join("home"))
                .env("VAMBRACE_HOME", self.dir.join("state"))
                .env("VAMBRACE_PASSPHRASE", "for the pictures only")
                .env("USER", "ada")
                .env("CLICOLOR_FORCE", "1"),
        )
    }

    /// Prompts and outputs of several commands.
    fn session(&self, commands: &[&str]) -> TaskResult<String> {
        let mut text = String::new();
        for command in commands {
            let args: Vec<&str> = command.split(' ').collect();
            text.push_str(&format!(
                "\u{1b}[1m$ vambrace {command}\u{1b}[0m\n{}\n",
                self.run(&args)?.trim_end()
            ));
            text.push('\n');
        }
        Ok(fixed(&text, &self.dir))
    }

    fn remove(self) {
        // The next run removes what is left.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The text without what differs between runs.
fn fixed(text: &str, dir: &Path) -> String {
    let home = dir.display().to_string();
    let text = text.replace(home.trim_end_matches('/'), "~");
    let lines = text.lines().map(|line| {
        let line = between(line, "session cli-", " ,", "41d7");
        let line = between(&line, "plan ", " ,", "69a40d69");
        let line = between(&line, "until    \u{1b}[0m", " (", "12:02:00Z");
        between(&line, "Z (", " s left", "120")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Replaces what stands after `start` up to one of the characters in `ends`, or to the end.
fn between(line: &str, start: &str, ends: &str, replacement: &str) -> String {
    let Some((before, rest)) = line.split_once(start) else { return line.to_owned() };
    let end = rest.find(|letter| ends.contains(letter)).unwrap_or(rest.len());
    format!("{before}{start}{replacement}{}", rest.get(end..).unwrap_or_default())
}

fn svg(text: &str, theme: &Theme) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let columns =
        lines.iter().map(|line| spans(line).iter().map(|span| span.text.chars().count()).sum()).max();
    let width = (columns.unwrap_or(0) as f64 * CHARACTER_WIDTH) as usize + 2 * MARGIN;
    let height = lines.len() * LINE_HEIGHT + 2 * MARGIN;
    let Theme { name, background, border, text, .. } = theme;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>vambrace in a terminal ({name})</title>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"{background}\" stroke=\"{border}\"/>\n\
         <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"13.3\" fill=\"{text}\" xml:space=\"preserve\">\n",
        width - 1,
        height - 1,
    );
    for (at, line) in lines.iter().enumerate() {
        let y = MARGIN + 14 + at * LINE_HEIGHT;
        svg.push_str(&format!("<text x=\"{MARGIN}\" y=\"{y}\">"));
        for span in spans(line) {
            svg.push_str(&span.svg(theme));
        }
        svg.push_str("</text>\n");
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Text with one style.
#[derive(Debug, Clone, Default, PartialEq)]
struct Span {
    text: String,
    bold: bool,
    dim: bool,
    /// Index into [`Theme::colours`].
    colour: Option<usize>,
}

impl Span {
    fn svg(&self, theme: &Theme) -> String {
        let text = self.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let fill = match self.colour.and_then(|at| theme.colours.get(at)) {
            Some(colour) => format!(" fill=\"{colour}\""),
            None if self.dim => format!(" fill=\"{}\"", theme.dim),
            None => String::new(),
        };
        let weight = if self.bold { " font-weight=\"bold\"" } else { "" };
        if fill.is_empty() && weight.is_empty() {
            text
        } else {
            format!("<tspan{fill}{weight}>{text}</tspan>")
        }
    }
}

/// The line split where SGR sequences change its style.
fn spans(line: &str) -> Vec<Span> {
    let mut spans = vec![Span::default()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            if let Some(span) = spans.last_mut() {
                span.text.push(letter);
            }
            continue;
        }
        let codes: String = letters.by_ref().skip(1).take_while(|letter| *letter != 'm').collect();
        let mut next = Span { text: String::new(), ..spans.last().cloned().unwrap_or_default() };
        for code in codes.split(';') {
            match code.parse::<usize>() {
                Ok(1) => next.bold = true,
                Ok(2) => next.dim = true,
                Ok(code @ 31..=36) => next.colour = Some(code - 31),
                _ => next = Span::default(),
            }
        }
        spans.push(next);
    }
    spans.retain(|span| !span.text.is_empty());
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_spans() {
        let spans = spans("a\u{1b}[1m\u{1b}[31mb\u{1b}[0mc");
        let expected = [
            Span { text: "a".into(), ..Span::default() },
            Span { text: "b".into(), bold: true, colour: Some(0), ..Span::default() },
            Span { text: "c".into(), ..Span::default() },
        ];
        assert_eq!(spans, expected);
    }

    #[test]
    fn list_without_an_approval_request_is_an_error() {
        assert_eq!(request_id(r#"[{"id":"hitl-1a2b"},{"id":"hitl-3"}]"#).unwrap(), "hitl-1a2b");
        assert!(request_id("[]\n").unwrap_err().to_string().contains("no approval request"));
    }

    #[test]
    fn what_differs_between_runs_is_replaced() {
        let line = "  who      ada, session cli-a19739449d15";
        assert_eq!(between(line, "session cli-", " ,", "1"), "  who      ada, session cli-1");
        assert_eq!(between("no such text", "x: ", " ", "1"), "no such text");
    }
}
