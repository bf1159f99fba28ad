//! Draws a `WatchState`; has no state of its own and decides nothing.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Clear, Paragraph};
use vambrace_broker::DecisionReach;
use vambrace_core::terminal_escape::one_line;
use vambrace_host::short_digest;
use vambrace_store::ApprovalKind;

use super::state::{Confirmation, PendingRequest, WatchMode, WatchState};
use crate::command::approvals::details::{risk, seconds};
use crate::output::{StyledLine, Tone};

/// Whether to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Palette {
    Colour,
    /// For `NO_COLOR`: only bold, dim and reversed.
    Plain,
}

/// A prompt whose input is hidden.
#[derive(Debug, Clone)]
pub(crate) struct HiddenPrompt<'a> {
    pub(crate) title: &'a str,
    pub(crate) note: &'a str,
}

/// Draws the whole screen.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    state: &WatchState,
    palette: Palette,
    prompt: Option<&HiddenPrompt<'_>>,
) {
    let area = frame.area();
    let row = |number: usize| {
        let y = u16::try_from(number).unwrap_or(u16::MAX);
        Rect { x: area.x, y: area.y.saturating_add(y), width: area.width, height: u16::from(y < area.height) }
    };
    let height = usize::from(area.height);
    let mut put = |number: usize, line: StyledLine, style: Style| {
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
        put(height - 2, message(state, prompt), Style::new());
    }
    if height >= 2 {
        let line = match prompt {
            Some(prompt) => vec![(Tone::Faint, prompt.note.to_owned())],
            None => keys(state),
        };
        put(height - 1, line, Style::new());
    }
}

fn text(line: &StyledLine, palette: Palette) -> Text<'_> {
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

/// The title line, always visible: risk, summary, countdown.
fn title(state: &WatchState, width: usize) -> StyledLine {
    let Some((request, row)) = state.current_request().and_then(|request| Some((request, request.row()?)))
    else {
        return vec![(Tone::Strong, fitted(" vambrace approvals", width))];
    };
    let count = state.requests.len();
    let place = if count > 1 { format!("  {} of {count}", state.current + 1) } else { String::new() };
    let end = format!("{place}  {} ", clock(seconds(row, state.now)));
    let word = format!(" {} ", row.risk);
    let room = width.saturating_sub(end.chars().count() + word.chars().count());
    vec![
        (if row.risk == "HIGH" { Tone::Bad } else { Tone::Strong }, word),
        (
            Tone::Strong,
            fitted(
                &one_line(&request.look.request.as_ref().map(|row| row.summary.clone()).unwrap_or_default()),
                room,
            ),
        ),
        (Tone::Plain, end),
    ]
}

/// Pads or truncates text to exactly `room` columns.
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

/// The pending requests next to the current one.
fn listed(state: &WatchState) -> Vec<StyledLine> {
    let listed = state.page.listed;
    let first = state.current.saturating_sub(1).min(state.requests.len().saturating_sub(listed));
    let line = |(number, request): (usize, &PendingRequest)| {
        let Some(row) = request.row() else { return Vec::new() };
        let mark = if number == state.current { "> " } else { "  " };
        vec![
            (Tone::Care, mark.to_owned()),
            risk(&row.risk),
            (Tone::Faint, format!(" {:>6}  ", clock(seconds(row, state.now)))),
            (Tone::Plain, one_line(&row.summary)),
            (Tone::Faint, format!("  {}", one_line(&row.agent))),
        ]
    };
    state.requests.iter().enumerate().skip(first).take(listed).map(line).collect()
}

/// The current prompt, or the last message.
fn message(state: &WatchState, prompt: Option<&HiddenPrompt<'_>>) -> StyledLine {
    if let Some(prompt) = prompt {
        return vec![(Tone::Care, prompt.title.to_owned())];
    }
    match &state.mode {
        WatchMode::Rejecting(words) => {
            vec![
                (Tone::Care, "reason for the agent: ".to_owned()),
                (Tone::Plain, format!("{}_", one_line(words))),
            ]
        }
        WatchMode::Confirming(confirmation) => match &state.message {
            Some((tone, words)) => vec![(*tone, words.clone())],
            None => confirm_prompt(state, confirmation),
        },
        WatchMode::Reading | WatchMode::Help => match &state.message {
            Some((tone, words)) => vec![(*tone, words.clone())],
            None => position(state),
        },
    }
}

fn confirm_prompt(state: &WatchState, confirmation: &Confirmation) -> StyledLine {
    let agent = state
        .current_request()
        .and_then(PendingRequest::row)
        .map(|row| one_line(&row.agent))
        .unwrap_or_default();
    let what = match (confirmation.reach, &confirmation.preview) {
        (DecisionReach::Session, _) => {
            return typing(
                format!(
                    "WARNING: all further MEDIUM calls of {agent} in this session run without approval; type "
                ),
                confirmation,
            );
        }
        (DecisionReach::Class, _) => {
            format!("approve, and grant calls of this class to {agent} in this session for a while?")
        }
        (DecisionReach::Once, Some(preview)) => {
            format!("approve this instead (plan {})?", short_digest(preview.digest))
        }
        (DecisionReach::Once, None) => "HIGH: to approve,".to_owned(),
    };
    match &confirmation.typed {
        Some(_) => typing(format!("{what} type "), confirmation),
        None => vec![(Tone::Care, what)],
    }
}

fn typing(words: String, confirmation: &Confirmation) -> StyledLine {
    let (wanted, typed) = confirmation.typed.clone().unwrap_or_default();
    vec![(Tone::Bad, format!("{words}`{wanted}`: ")), (Tone::Plain, format!("{}_", one_line(&typed)))]
}

/// How many lines are scrolled out of view.
fn position(state: &WatchState) -> StyledLine {
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

/// The keys that have a meaning now.
fn keys(state: &WatchState) -> StyledLine {
    let words: Vec<&str> = match &state.mode {
        WatchMode::Help => vec!["any key returns"],
        WatchMode::Rejecting(_) => vec!["Enter reject", "Esc cancel"],
        _ if state.current_request().is_some() && !state.is_large_enough() => {
            vec!["screen too small to approve", "q quit"]
        }
        WatchMode::Confirming(_) if !state.is_ready() => vec!["read first ...", "Esc cancel"],
        WatchMode::Confirming(confirmation) if confirmation.typed.is_some() => {
            vec!["Enter approve", "Esc cancel"]
        }
        WatchMode::Confirming(_) => vec!["y approve", "Esc cancel"],
        WatchMode::Reading => match state.current_request().and_then(PendingRequest::row) {
            None => vec!["? help", "q quit"],
            Some(_) if !state.is_ready() => vec!["read first ..."],
            Some(row) => {
                let mut words = vec!["y once"];
                if row.grantable {
                    words.extend(["c class", "s session"]);
                }
                if row.kind == ApprovalKind::Change {
                    words.extend(["e edit", "p part"]);
                }
                words.extend(["r reject", "n skip", "? help", "q quit"]);
                words
            }
        },
    };
    vec![(Tone::Faint, words.join("  "))]
}
