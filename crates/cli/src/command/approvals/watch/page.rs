//! The scrollable page below the title: details and diff, wrapped to the screen width, so that no text is cut off at the
//! edge.

use unicode_width::UnicodeWidthChar as _;
use vambrace_broker::ProposalFile;
use vambrace_core::terminal_escape::one_line;

use super::state::{PendingRequest, WatchMode, WatchState};
use crate::command::approvals::details::details;
use crate::command::approvals::diff::Diff;
use crate::output::{StyledLine, Tone};

/// Columns before a diff line: cursor and mark.
const GUTTER: usize = 2;
/// Indentation of wrapped lines of the details.
const INDENT: usize = 11;
/// Maximum number of requests listed above the page.
const MAX_LISTED: usize = 3;

/// The text between the title and the last two lines.
#[derive(Debug, Default)]
pub(crate) struct RequestPage {
    pub(crate) rows: Vec<PageRow>,
    /// Number of visible rows.
    pub(crate) height: usize,
    /// Number of requests listed above the page.
    pub(crate) listed: usize,
}

/// A line of the page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageRow {
    pub(crate) line: StyledLine,
    /// The hunk it belongs to.
    pub(crate) at: Option<(usize, usize)>,
}

/// Lays out the page.
pub(crate) fn of(state: &WatchState) -> RequestPage {
    let (width, height) = (usize::from(state.size.0), usize::from(state.size.1));
    let listed =
        if state.requests.len() > 1 && height >= 16 { state.requests.len().min(MAX_LISTED) } else { 0 };
    // Title, message, keys; and a line below the list.
    let frame = 3 + if listed > 0 { listed + 1 } else { 0 };
    let rows = match (&state.mode, state.current_request()) {
        (WatchMode::Help, _) => {
            HELP.iter().flat_map(|line| broken(&help(line), width, INDENT)).map(bare).collect()
        }
        (_, None) => nothing(state, width),
        (_, Some(request)) => rows(state, request, width),
    };
    RequestPage { rows, height: height.saturating_sub(frame), listed }
}

fn bare(line: StyledLine) -> PageRow {
    PageRow { line, at: None }
}

fn nothing(state: &WatchState, width: usize) -> Vec<PageRow> {
    let words = ["", "No pending approval requests.", "", "New requests appear here. q quits."];
    let _ = state;
    words
        .iter()
        .flat_map(|words| broken(&vec![(Tone::Faint, format!("  {words}"))], width, 2))
        .map(bare)
        .collect()
}

fn rows(state: &WatchState, request: &PendingRequest, width: usize) -> Vec<PageRow> {
    let mut rows: Vec<PageRow> = Vec::new();
    let mut lines = details(&request.look, state.now);
    if let WatchMode::Confirming(confirmation) = &state.mode
        && let Some(preview) = &confirmation.preview
    {
        // The change to be approved comes first; Esc returns to the proposal.
        rows.push(bare(vec![(Tone::Care, "This is applied instead of the whole proposal:".to_owned())]));
        rows.push(bare(vec![(Tone::Strong, one_line(&preview.summary))]));
        let named: Vec<ProposalFile> = Vec::new();
        rows.extend(diff_rows(&Diff::of(&preview.diff, &named), None, state, width));
        rows.push(bare(Vec::new()));
    }
    // The title shows the summary and the risk already.
    if !lines.is_empty() && rows.is_empty() {
        lines.remove(0);
    }
    rows.extend(lines.iter().flat_map(|line| broken(line, width, INDENT)).map(bare));
    if !request.diff.rows.is_empty() {
        rows.push(bare(Vec::new()));
    }
    let here = request.diff.places().get(state.cursor).copied();
    rows.extend(diff_rows(&request.diff, here, state, width));
    rows
}

fn diff_rows(diff: &Diff, here: Option<(usize, usize)>, state: &WatchState, width: usize) -> Vec<PageRow> {
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

/// Wraps a line; all but the first piece are indented.
fn broken(line: &StyledLine, width: usize, indent: usize) -> Vec<StyledLine> {
    let width = width.max(1);
    let indent = if width > indent + 8 { indent } else { 0 };
    let (mut pieces, mut piece, mut used): (Vec<StyledLine>, StyledLine, usize) = (Vec::new(), Vec::new(), 0);
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

fn help((keys, words): &(&str, &str)) -> StyledLine {
    vec![(Tone::Strong, format!("  {keys:<9}")), (Tone::Plain, (*words).to_owned())]
}

const HELP: &[(&str, &str)] = &[
    ("y", "approve once; for HIGH requests you type the name of the file or tool"),
    ("c", "approve, and grant calls of the same class in this session for a while"),
    ("s", "approve, and grant every grantable call of this agent in this session"),
    ("space f", "mark a hunk, or its whole file; Esc unmarks"),
    ("p", "approve only the marked part, after a preview"),
    ("e", "edit the file in $VISUAL or $EDITOR, then approve the result after a preview"),
    ("r", "reject, with a reason for the agent"),
    ("n b", "skip: next request, previous request"),
    ("Tab [ ]", "next hunk, previous hunk"),
    ("j k", "down and up; also arrows, page keys, g and G"),
    ("q", "quit; pending requests stay pending until they expire"),
    ("", "A request without a decision is denied when it expires."),
];
