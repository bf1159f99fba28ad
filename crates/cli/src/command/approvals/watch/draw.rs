//! Drawing a state: nothing here decides or remembers anything.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Clear, Paragraph};
use vambrace_broker::Reach;
use vambrace_store::AskKind;

use super::state::{Agreeing, Ask, Mode, State};
use crate::command::approvals::card::{risk, seconds, short};
use crate::command::audit::one_line;
use crate::out::{Line, Tone};

/// Whether colours are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Palette {
    Colour,
    /// `NO_COLOR`: bold, dim and reversed are no colours.
    Plain,
}

/// A line that is typed without being shown.
#[derive(Debug, Clone)]
pub(crate) struct Asking<'a> {
    pub(crate) title: &'a str,
    pub(crate) note: &'a str,
}

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State, palette: Palette, asking: Option<&Asking<'_>>) {
    let area = frame.area();
    let row = |number: usize| {
        let y = u16::try_from(number).unwrap_or(u16::MAX);
        Rect { x: area.x, y: area.y.saturating_add(y), width: area.width, height: u16::from(y < area.height) }
    };
    let height = usize::from(area.height);
    let mut put = |number: usize, line: Line, style: Style| {
        let place = row(number);
        if place.height > 0 && place.width > 0 {
            frame.render_widget(Clear, place);
            frame.render_widget(Paragraph::new(text(&line, palette)).style(style), place);
        }
    };
    put(0, title(state, usize::from(area.width)), Style::new().add_modifier(Modifier::REVERSED));
    let mut next = 1;
    for line in listed(state) {
        put(next, line, Style::new());
        next += 1;
    }
    if state.page.listed > 0 {
        put(next, vec![(Tone::Faint, "\u{2500}".repeat(usize::from(area.width)))], Style::new());
        next += 1;
    }
    let rows = state.page.rows.iter().skip(state.top).take(state.page.height);
    for page_row in rows {
        put(next, page_row.line.clone(), Style::new());
        next += 1;
    }
    if height >= 3 {
        put(height - 2, message(state, asking), Style::new());
    }
    if height >= 2 {
        let line = match asking {
            Some(asking) => vec![(Tone::Faint, asking.note.to_owned())],
            None => keys(state),
        };
        put(height - 1, line, Style::new());
    }
}

fn text(line: &Line, palette: Palette) -> Text<'_> {
    Text::from(
        line.iter()
            .map(|(tone, words)| Span::styled(words.as_str(), style(*tone, palette)))
            .collect::<Vec<_>>(),
    )
}

fn style(tone: Tone, palette: Palette) -> Style {
    let (colour, modifier) = match tone {
        Tone::Plain => (None, Modifier::empty()),
        Tone::Good => (Some(Color::Green), Modifier::empty()),
        Tone::Bad => (Some(Color::Red), Modifier::BOLD),
        Tone::Care => (Some(Color::Cyan), Modifier::empty()),
        Tone::Faint => (None, Modifier::DIM),
        Tone::Strong => (None, Modifier::BOLD),
    };
    let style = Style::new().add_modifier(modifier);
    match colour.filter(|_| palette == Palette::Colour) {
        Some(colour) => style.fg(colour),
        None => style,
    }
}

/// What it is about, how risky, how long: the line that always stands.
fn title(state: &State, width: usize) -> Line {
    let Some((ask, row)) = state.ask().and_then(|ask| Some((ask, ask.row()?))) else {
        return vec![(Tone::Strong, fitted(" vambrace approvals", width))];
    };
    let count = state.asks.len();
    let place = if count > 1 { format!("  {} of {count}", state.current + 1) } else { String::new() };
    let end = format!("{place}  {} ", clock(seconds(row, state.now)));
    let word = format!(" {} ", row.risk);
    let room = width.saturating_sub(end.chars().count() + word.chars().count());
    vec![
        (if row.risk == "HIGH" { Tone::Bad } else { Tone::Strong }, word),
        (
            Tone::Strong,
            fitted(
                &one_line(&ask.look.question.as_ref().map(|row| row.summary.clone()).unwrap_or_default()),
                room,
            ),
        ),
        (Tone::Plain, end),
    ]
}

/// Words in exactly so many columns.
fn fitted(words: &str, room: usize) -> String {
    use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
    let mut fit = String::new();
    let mut used = 0;
    let cut = words.width() > room;
    for c in words.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + usize::from(cut) > room {
            break;
        }
        fit.push(c);
        used += wide;
    }
    if cut && room > 0 {
        fit.push('\u{2026}');
        used += 1;
    }
    fit + &" ".repeat(room.saturating_sub(used))
}

fn clock(seconds: i64) -> String {
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// The open questions around the one on the screen.
fn listed(state: &State) -> Vec<Line> {
    let listed = state.page.listed;
    let first = state.current.saturating_sub(1).min(state.asks.len().saturating_sub(listed));
    let line = |(number, ask): (usize, &Ask)| {
        let Some(row) = ask.row() else { return Vec::new() };
        let mark = if number == state.current { "> " } else { "  " };
        vec![
            (Tone::Care, mark.to_owned()),
            risk(&row.risk),
            (Tone::Faint, format!(" {:>6}  ", clock(seconds(row, state.now)))),
            (Tone::Plain, one_line(&row.summary)),
            (Tone::Faint, format!("  {}", one_line(&row.agent))),
        ]
    };
    state.asks.iter().enumerate().skip(first).take(listed).map(line).collect()
}

/// What is asked of the person right now, or was said last.
fn message(state: &State, asking: Option<&Asking<'_>>) -> Line {
    if let Some(asking) = asking {
        return vec![(Tone::Care, asking.title.to_owned())];
    }
    match &state.mode {
        Mode::Rejecting(words) => {
            vec![
                (Tone::Care, "words for the agent: ".to_owned()),
                (Tone::Plain, format!("{}_", one_line(words))),
            ]
        }
        Mode::Agreeing(agreeing) => match &state.message {
            Some((tone, words)) => vec![(*tone, words.clone())],
            None => agree(state, agreeing),
        },
        Mode::Looking | Mode::Help => match &state.message {
            Some((tone, words)) => vec![(*tone, words.clone())],
            None => position(state),
        },
    }
}

fn agree(state: &State, agreeing: &Agreeing) -> Line {
    let agent = state.ask().and_then(Ask::row).map(|row| one_line(&row.agent)).unwrap_or_default();
    let what = match (agreeing.reach, &agreeing.preview) {
        (Reach::Session, _) => {
            return typing(
                format!("WARNING: {agent} will not be asked again in this session for what is MEDIUM; type "),
                agreeing,
            );
        }
        (Reach::Class, _) => {
            format!("yes, and to calls of this class of {agent} in this session for a while?")
        }
        (Reach::Once, Some(preview)) => format!("yes to this instead (plan {})?", short(preview.digest)),
        (Reach::Once, None) => "HIGH: to agree,".to_owned(),
    };
    match &agreeing.typed {
        Some(_) => typing(format!("{what} type "), agreeing),
        None => vec![(Tone::Care, what)],
    }
}

fn typing(words: String, agreeing: &Agreeing) -> Line {
    let (wanted, typed) = agreeing.typed.clone().unwrap_or_default();
    vec![(Tone::Bad, format!("{words}`{wanted}`: ")), (Tone::Plain, format!("{}_", one_line(&typed)))]
}

/// How much of the page is out of sight.
fn position(state: &State) -> Line {
    let below = state.page.rows.len().saturating_sub(state.top + state.page.height);
    let mut words = Vec::new();
    if below > 0 {
        words.push(format!("{below} more {} below", if below == 1 { "line" } else { "lines" }));
    }
    if state.top > 0 {
        words.push(format!("{} above", state.top));
    }
    if !state.marked.is_empty() {
        words.push(format!("{} marked", state.marked.len()));
    }
    vec![(Tone::Faint, words.join(", "))]
}

/// The keys that do something now.
fn keys(state: &State) -> Line {
    let words: Vec<&str> = match &state.mode {
        Mode::Help => vec!["any key goes back"],
        Mode::Rejecting(_) => vec!["Enter rejects", "Esc goes back"],
        _ if state.ask().is_some() && !state.is_large_enough() => vec!["too small to agree", "q quit"],
        Mode::Agreeing(_) if !state.is_ready() => vec!["look first ...", "Esc goes back"],
        Mode::Agreeing(agreeing) if agreeing.typed.is_some() => vec!["Enter agrees", "Esc goes back"],
        Mode::Agreeing(_) => vec!["y agrees", "Esc goes back"],
        Mode::Looking => match state.ask().and_then(Ask::row) {
            None => vec!["? help", "q quit"],
            Some(_) if !state.is_ready() => vec!["look first ..."],
            Some(row) => {
                let mut words = vec!["y once"];
                if row.grantable {
                    words.extend(["c class", "s session"]);
                }
                if row.kind == AskKind::Change {
                    words.extend(["e edit", "p part"]);
                }
                words.extend(["r reject", "n skip", "? help", "q quit"]);
                words
            }
        },
    };
    vec![(Tone::Faint, words.join("  "))]
}
