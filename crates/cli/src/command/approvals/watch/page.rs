//! The page below the title: the card and the diff as one text, broken to the width of the screen, so that nothing stands
//! beyond an edge where nobody sees it.

use unicode_width::UnicodeWidthChar as _;
use vambrace_broker::LookedFile;

use super::state::{Ask, Mode, State};
use crate::command::approvals::card::card;
use crate::command::approvals::diff::Diff;
use crate::out::{Line, Tone};

/// Columns in front of a line of the diff: the cursor and the mark.
const GUTTER: usize = 2;
/// Where a broken line of the card goes on.
const INDENT: usize = 11;
/// So many other questions are listed.
const LISTED: usize = 3;

/// What the screen shows between the title and the last two lines.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) rows: Vec<PageRow>,
    /// How many of them are seen.
    pub(crate) height: usize,
    /// How many questions are listed above it.
    pub(crate) listed: usize,
}

/// A line of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageRow {
    pub(crate) line: Line,
    /// The hunk it belongs to.
    pub(crate) at: Option<(usize, usize)>,
}

/// The page of a state.
pub(crate) fn of(state: &State) -> Page {
    let (width, height) = (usize::from(state.size.0), usize::from(state.size.1));
    let listed = if state.asks.len() > 1 && height >= 16 { state.asks.len().min(LISTED) } else { 0 };
    // Title, message, keys; and a line below the list.
    let frame = 3 + if listed > 0 { listed + 1 } else { 0 };
    let rows = match (&state.mode, state.ask()) {
        (Mode::Help, _) => {
            HELP.iter().flat_map(|line| broken(&help(line), width, INDENT)).map(bare).collect()
        }
        (_, None) => nothing(state, width),
        (_, Some(ask)) => rows(state, ask, width),
    };
    Page { rows, height: height.saturating_sub(frame), listed }
}

fn bare(line: Line) -> PageRow {
    PageRow { line, at: None }
}

fn nothing(state: &State, width: usize) -> Vec<PageRow> {
    let words =
        ["", "Nothing waits for you.", "", "A question appears here as soon as an agent asks. q ends."];
    let _ = state;
    words
        .iter()
        .flat_map(|words| broken(&vec![(Tone::Faint, format!("  {words}"))], width, 2))
        .map(bare)
        .collect()
}

fn rows(state: &State, ask: &Ask, width: usize) -> Vec<PageRow> {
    let mut rows: Vec<PageRow> = Vec::new();
    let mut lines = card(&ask.look, state.now);
    if let Mode::Agreeing(agreeing) = &state.mode
        && let Some(preview) = &agreeing.preview
    {
        // What is agreed to now stands first; the proposal is one key away.
        rows.push(bare(vec![(Tone::Care, "What would be applied instead of the proposal:".to_owned())]));
        rows.push(bare(vec![(Tone::Strong, crate::command::audit::one_line(&preview.summary))]));
        let named: Vec<LookedFile> = Vec::new();
        rows.extend(diff_rows(&Diff::of(&preview.diff, &named), None, state, width));
        rows.push(bare(Vec::new()));
    }
    // The title has the summary and the risk.
    if !lines.is_empty() && rows.is_empty() {
        lines.remove(0);
    }
    rows.extend(lines.iter().flat_map(|line| broken(line, width, INDENT)).map(bare));
    if !ask.diff.rows.is_empty() {
        rows.push(bare(Vec::new()));
    }
    let here = ask.diff.places().get(state.cursor).copied();
    rows.extend(diff_rows(&ask.diff, here, state, width));
    rows
}

fn diff_rows(diff: &Diff, here: Option<(usize, usize)>, state: &State, width: usize) -> Vec<PageRow> {
    let mut rows = Vec::new();
    for row in &diff.rows {
        let at = (!diff.files.is_empty()).then_some(row.at);
        let marked = at.is_some_and(|at| state.marked.contains(&at));
        let gutter = match (at.is_some() && at == here, marked) {
            (true, true) => ">*",
            (true, false) => "> ",
            (false, true) => " *",
            (false, false) => "  ",
        };
        let mut line = vec![(row.tone, row.text.clone())];
        if row.starts_hunk && at.is_some() {
            line.push((Tone::Faint, format!(" (hunk {})", row.at.1)));
        }
        for piece in broken(&line, width.saturating_sub(GUTTER), 2) {
            let mut line = vec![(Tone::Care, gutter.to_owned())];
            line.extend(piece);
            rows.push(PageRow { line, at });
        }
    }
    rows
}

/// A line in pieces that fit; all but the first begin further in.
fn broken(line: &Line, width: usize, indent: usize) -> Vec<Line> {
    let width = width.max(1);
    let indent = if width > indent + 8 { indent } else { 0 };
    let (mut pieces, mut piece, mut used): (Vec<Line>, Line, usize) = (Vec::new(), Vec::new(), 0);
    for (tone, words) in line {
        let mut run = String::new();
        for c in words.chars() {
            let wide = c.width().unwrap_or(0);
            if used + wide > width && used > 0 {
                piece.push((*tone, std::mem::take(&mut run)));
                pieces.push(std::mem::take(&mut piece));
                if indent > 0 {
                    piece.push((Tone::Plain, " ".repeat(indent)));
                }
                used = indent;
            }
            run.push(c);
            used += wide;
        }
        piece.push((*tone, run));
    }
    pieces.push(piece);
    pieces
}

fn help((keys, words): &(&str, &str)) -> Line {
    vec![(Tone::Strong, format!("  {keys:<9}")), (Tone::Plain, (*words).to_owned())]
}

const HELP: &[(&str, &str)] = &[
    ("y", "yes, once; for what is HIGH you type the name of what it is about"),
    ("c", "yes, and to calls of the same class in this session, for a while"),
    ("s", "yes, and to everything of this agent in this session that may be granted"),
    ("space f", "mark a hunk, or its whole file; Esc unmarks"),
    ("p", "yes to the marked part alone: you see first what it comes to"),
    ("e", "edit the file in $VISUAL or $EDITOR, look at the result, agree to that"),
    ("r", "no, with words for the agent"),
    ("n b", "leave it open: next question, previous question"),
    ("Tab [ ]", "next hunk, previous hunk"),
    ("j k", "up and down; also arrows, page keys, g and G"),
    ("q", "end; what is open stays open until its time is over"),
    ("", "A question that nobody answers is refused when its time is over."),
];
