//! Tests of the state machine and the screens: keys in, actions and screens out; no terminal.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;
use vambrace_broker::{
    Amendment, ApprovalChoice, ApprovalView, DecisionReach, ProposalFile, ProposalPreview,
};
use vambrace_core::digest::Digest;
use vambrace_core::id::Id;
use vambrace_core::timestamp::Timestamp;
use vambrace_store::{ApprovalKind, ApprovalRow, ApprovalState, SealedBlob};

use super::draw::{HiddenPrompt, Palette, draw};
use super::state::{WatchAction, WatchEvent, WatchMode, WatchState};

const DIFF: &str = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,2 @@\n-old one\n+new one\n same\n@@ -40,2 +40,2 @@\n-old two\n+new two\n same\n--- /dev/null\n+++ b/docs/b.md\n@@ -0,0 +1 @@\n+text\n";

fn time(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

fn look(id: &str, risk: &str, summary: &str, diff: &str) -> ApprovalView {
    let row = ApprovalRow {
        id: Id::new(id).unwrap(),
        call: Id::new("c-1").unwrap(),
        session: Id::new("mcp-1").unwrap(),
        user: "ada".to_owned(),
        agent: "claude-code".to_owned(),
        project: "/home/ada/shop".to_owned(),
        tool: "apply_patch".to_owned(),
        kind: ApprovalKind::Change,
        risk: risk.to_owned(),
        summary: summary.to_owned(),
        why: format!("risk: {risk} risk: source files [built in]"),
        grantable: risk != "HIGH",
        asked: Digest::of(id.as_bytes()),
        digest: Digest::of(b"plan"),
        revision: Digest::ZERO,
        sealed: SealedBlob::stored(Vec::new()),
        created: time(0),
        expires: time(300_000),
        state: ApprovalState::Pending,
        delivered: false,
        waiter: None,
        performer: None,
        decision: None,
    };
    let file = |path: &str| ProposalFile { path: path.to_owned(), created: false };
    let files = if diff.is_empty() { Vec::new() } else { vec![file("src/a.rs"), file("docs/b.md")] };
    ApprovalView { request: Some(row), change: None, diff: diff.to_owned(), proposed: None, files }
}

fn medium() -> ApprovalView {
    look("hitl-1", "MEDIUM", "CHANGE 2 FILES src/a.rs, docs/b.md", DIFF)
}

/// A screen that has shown these requests for long enough.
fn showing(looks: Vec<ApprovalView>) -> WatchState {
    let mut state = WatchState::new((80, 24), time(0));
    state.on(WatchEvent::Requests(looks));
    settle(&mut state, 1000);
    state
}

/// Draws the screen, lets `ms` milliseconds pass, and draws it again.
fn settle(state: &mut WatchState, ms: i64) {
    state.on(WatchEvent::Drawn);
    state.on(WatchEvent::Time(state.now.later(ms)));
    state.on(WatchEvent::Drawn);
}

/// Presses keys one by one, with enough time after each.
fn press(state: &mut WatchState, keys: &str) -> Vec<WatchAction> {
    let mut effects = Vec::new();
    for key in keys.chars() {
        effects.extend(press_fast(state, &key.to_string()));
        settle(state, 0);
        if !state.is_ready() {
            settle(state, 1000);
        }
    }
    effects
}

/// Presses keys without a pause.
fn press_fast(state: &mut WatchState, keys: &str) -> Vec<WatchAction> {
    let mut effects = Vec::new();
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            other => KeyCode::Char(other),
        };
        effects.extend(state.on(WatchEvent::Key(KeyEvent::new(code, KeyModifiers::NONE))));
    }
    effects
}

fn drawn(state: &WatchState, size: (u16, u16), palette: Palette) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(frame, state, palette, None)).unwrap();
    terminal.backend().buffer().clone()
}

fn screen(state: &WatchState) -> String {
    let buffer = drawn(state, state.size, Palette::Colour);
    let row = |y: u16| -> String { (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect() };
    (0..buffer.area.height).map(|y| row(y).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

// B6: caller, action, risk and reasons, diff, countdown, what happens on approval, keys: all on 80x24
#[test]
fn change_request_fits_on_80x24() {
    let expected = "\x20MEDIUM CHANGE 2 FILES src/a.rs, docs/b.md                                 4:59
  who      claude-code for ada, session mcp-1
  why      risk: MEDIUM risk: source files [built in]
  approve  the change is applied at once if its files have not changed
  until    2023-11-14T22:18:20.000Z (299 s left; then it is denied)
  where    /home/ada/shop
  tool     apply_patch, plan PLAN
  id       hitl-1

  --- a/src/a.rs
  +++ b/src/a.rs
> @@ -1,2 +1,2 @@ (hunk 1)
> -old one
> +new one
>  same
  @@ -40,2 +40,2 @@ (hunk 2)
  -old two
  +new two
   same
  --- /dev/null
  +++ b/docs/b.md
  @@ -0,0 +1 @@ (hunk 1)
1 more line below
y once  c class  s session  e edit  p part  r reject  n skip  ? help  q quit";
    let plan: String = Digest::of(b"plan").to_string().chars().skip(7).take(8).collect();
    assert_eq!(screen(&showing(vec![medium()])), expected.replace("PLAN", &plan));
}

#[test]
fn several_requests_are_listed_and_one_is_shown() {
    let other = look("hitl-2", "HIGH", "MODIFY config.json", "");
    let state = showing(vec![medium(), other]);
    let shown = screen(&state);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].ends_with("1 of 2  4:59"), "{shown}");
    assert_eq!(lines[1], "> MEDIUM   4:59  CHANGE 2 FILES src/a.rs, docs/b.md  claude-code");
    assert_eq!(lines[2], "  HIGH     4:59  MODIFY config.json  claude-code");
}

#[test]
fn no_pending_requests() {
    let mut state = showing(vec![]);
    assert!(screen(&state).contains("No pending approval requests."));
    assert_eq!(press(&mut state, "ycsepr \t\u{1b}nbf"), []);
    assert_eq!(press(&mut state, "q"), [WatchAction::Quit]);
}

// A5: approving MEDIUM needs one key; approving HIGH needs the typed name of the file or tool
#[test]
fn high_needs_the_typed_name() {
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "y"), [WatchAction::Approve("hitl-1".to_owned(), ApprovalChoice::once())]);
    let mut state = showing(vec![look("hitl-2", "HIGH", "MODIFY src/a.rs", DIFF)]);
    assert_eq!(press(&mut state, "y\n"), [], "a key is not enough");
    assert!(screen(&state).contains("that is not `a.rs`"));
    assert_eq!(press(&mut state, "a.rx\n"), []);
    assert_eq!(press(&mut state, "a.rx\u{8}s"), []);
    assert!(screen(&state).contains("HIGH: to approve, type `a.rs`: a.rs_"));
    assert_eq!(press(&mut state, "\n"), [WatchAction::Approve("hitl-2".to_owned(), ApprovalChoice::once())]);
}

// A7: grants only for grantable requests; a session grant needs a warning and a typed word
#[test]
fn grants_need_a_second_step_and_high_has_none() {
    let mut state = showing(vec![look("hitl-2", "HIGH", "MODIFY src/a.rs", DIFF)]);
    assert_eq!(press(&mut state, "c\ns"), []);
    assert!(screen(&state).contains("only once: it is HIGH, or the organisation requires approval"));
    assert!(!screen(&state).contains("c class"));
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "c"), []);
    assert!(screen(&state).contains("grant calls of this class to claude-code"));
    let class = ApprovalChoice { reach: DecisionReach::Class, ..ApprovalChoice::once() };
    assert_eq!(press(&mut state, "y"), [WatchAction::Approve("hitl-1".to_owned(), class)]);
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "sy\n"), []);
    assert_eq!(press(&mut state, "\u{1b}s"), []);
    assert!(screen(&state).contains("WARNING: all further MEDIUM calls of claude-code"));
    let session = ApprovalChoice { reach: DecisionReach::Session, ..ApprovalChoice::once() };
    assert_eq!(press(&mut state, "session\n"), [WatchAction::Approve("hitl-1".to_owned(), session)]);
}

// B7: files and hunks
#[test]
fn marked_part_is_previewed_and_approved() {
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "p"), [], "nothing is marked");
    assert_eq!(press(&mut state, "\t "), []);
    assert!(
        screen(&state).contains(" *-old two") || screen(&state).contains(">*-old two"),
        "{}",
        screen(&state)
    );
    assert_eq!(press(&mut state, "y"), [], "y does not approve everything while hunks are marked");
    let part = Amendment::Hunks(vec![("src/a.rs".to_owned(), vec![2])]);
    assert_eq!(press(&mut state, "p"), [WatchAction::Preview("hitl-1".to_owned(), part.clone())]);
    let preview = ProposalPreview {
        summary: "MODIFY src/a.rs".to_owned(),
        diff: "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -40,2 +40,2 @@\n-old two\n+new two\n same\n".to_owned(),
        digest: Digest::of(b"part"),
    };
    state.on(WatchEvent::Previewed("hitl-1".to_owned(), part.clone(), preview));
    settle(&mut state, 1000);
    let shown = screen(&state);
    assert!(shown.contains("This is applied instead of the whole proposal:"), "{shown}");
    let choice = ApprovalChoice { part, shown: Some(Digest::of(b"part")), ..ApprovalChoice::once() };
    assert_eq!(press(&mut state, "y"), [WatchAction::Approve("hitl-1".to_owned(), choice)]);
}

#[test]
fn marked_file_is_approved_whole() {
    let mut state = showing(vec![medium()]);
    let part = Amendment::Files(vec!["src/a.rs".to_owned()]);
    assert_eq!(press(&mut state, "fp"), [WatchAction::Preview("hitl-1".to_owned(), part)]);
    assert_eq!(press(&mut state, "fp"), [], "the second press unmarks it");
}

#[test]
fn rejection_carries_a_reason_and_editing_names_the_file() {
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "rnot like thiss\u{8}"), []);
    state.on(WatchEvent::Paste(", y\n\u{1b}[2J".to_owned()));
    let words = Some("not like this, y[2J".to_owned());
    assert_eq!(press(&mut state, "\n"), [WatchAction::Reject("hitl-1".to_owned(), words)]);
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "r\n"), [WatchAction::Reject("hitl-1".to_owned(), None)]);
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "\t\te"), [WatchAction::Edit("hitl-1".to_owned(), "docs/b.md".to_owned())]);
}

// T25: nobody approves by accident a request that has just arrived, or by pasting text
#[test]
fn new_request_and_pasted_text_decide_nothing() {
    let mut state = WatchState::new((80, 24), time(0));
    state.on(WatchEvent::Requests(vec![medium()]));
    settle(&mut state, 100);
    assert_eq!(press_fast(&mut state, "ycsepr"), []);
    assert!(screen(&state).contains("read first ..."));
    settle(&mut state, 500);
    state.on(WatchEvent::Paste("y".to_owned()));
    assert_eq!(state.mode, WatchMode::Reading);
    assert_eq!(press_fast(&mut state, "y").len(), 1);
    // The next request appears while the user presses a key.
    let next = look("hitl-2", "MEDIUM", "MODIFY src/a.rs", DIFF);
    let mut state = showing(vec![medium(), next]);
    state.on(WatchEvent::Decided("hitl-1".to_owned(), "applied".to_owned()));
    assert_eq!(press_fast(&mut state, "y"), []);
    settle(&mut state, 700);
    assert_eq!(press_fast(&mut state, "y").len(), 1);
}

// T25: a key typed before a step was drawn approves nothing, however late it is processed
#[test]
fn keys_typed_ahead_approve_nothing() {
    // A request that was not drawn: time alone does not make it ready.
    let mut state = WatchState::new((80, 24), time(0));
    state.on(WatchEvent::Requests(vec![medium()]));
    state.on(WatchEvent::Time(time(60_000)));
    assert_eq!(press_fast(&mut state, "yy\n"), []);
    // Each second step: the word, the grant, the part.
    let mut state = showing(vec![look("hitl-2", "HIGH", "MODIFY src/a.rs", DIFF)]);
    assert_eq!(press_fast(&mut state, "ya.rs\n\n"), []);
    settle(&mut state, 0);
    assert_eq!(press_fast(&mut state, "\n"), [], "no letter of the word was accepted");
    assert_eq!(press_fast(&mut state, "a.rs\n").len(), 1);
    for keys in ["cy", "c\n", "ssession\n"] {
        let mut state = showing(vec![medium()]);
        assert_eq!(press_fast(&mut state, keys), [], "{keys:?}");
    }
    let mut state = showing(vec![medium()]);
    press_fast(&mut state, "c");
    settle(&mut state, 100);
    assert_eq!(press_fast(&mut state, "y"), [], "not long enough to be read");
    settle(&mut state, 250);
    assert_eq!(press_fast(&mut state, "y").len(), 1);
    let part = Amendment::Files(vec!["src/a.rs".to_owned()]);
    let preview = |words: &[u8]| ProposalPreview {
        summary: "MODIFY src/a.rs".to_owned(),
        diff: String::new(),
        digest: Digest::of(words),
    };
    let mut state = showing(vec![medium()]);
    press_fast(&mut state, "fp");
    state.on(WatchEvent::Previewed("hitl-1".to_owned(), part.clone(), preview(b"one")));
    assert_eq!(press_fast(&mut state, "y\ny"), []);
    settle(&mut state, 1000);
    // Another preview replaces the one that was drawn.
    state.on(WatchEvent::Previewed("hitl-1".to_owned(), part, preview(b"two")));
    assert_eq!(press_fast(&mut state, "y"), []);
    settle(&mut state, 1000);
    assert_eq!(press_fast(&mut state, "y").len(), 1);
    // The next key does not repeat a failed approval.
    let mut state = showing(vec![medium()]);
    assert_eq!(press_fast(&mut state, "y").len(), 1);
    state.on(WatchEvent::Failed("wrong passphrase".to_owned()));
    assert_eq!(press_fast(&mut state, "y"), []);
}

// T25: the plan of a request has changed
#[test]
fn request_with_a_changed_plan_must_be_read_again() {
    let mut state = showing(vec![medium()]);
    let mut other = medium();
    if let Some(row) = &mut other.request {
        row.digest = Digest::of(b"another plan");
    }
    state.on(WatchEvent::Requests(vec![other]));
    assert_eq!(press_fast(&mut state, "y"), []);
}

// B6: nobody approves what does not fit on the screen
#[test]
fn screen_that_is_too_small_accepts_no_approval() {
    for (width, height) in [(1, 1), (0, 0), (80, 7), (29, 24), (2, 50)] {
        for keys in ["y", "cy", "ssession\n", "fp", "e"] {
            let mut state = showing(vec![medium()]);
            state.on(WatchEvent::Size(width, height));
            settle(&mut state, 1000);
            assert_eq!(press(&mut state, keys), [], "{width}x{height} {keys:?}");
        }
        // The screen becomes too small while a word is typed.
        let mut state = showing(vec![look("hitl-2", "HIGH", "MODIFY src/a.rs", DIFF)]);
        press(&mut state, "ya.rs");
        state.on(WatchEvent::Size(width, height));
        settle(&mut state, 1000);
        assert_eq!(press(&mut state, "\n"), []);
        state.on(WatchEvent::Size(80, 24));
        assert_eq!(press_fast(&mut state, "\n"), [], "it was not drawn yet");
        settle(&mut state, 0);
        assert_eq!(press_fast(&mut state, "\n").len(), 1);
        // Rejecting is always possible.
        let mut state = showing(vec![medium()]);
        state.on(WatchEvent::Size(width, height));
        settle(&mut state, 1000);
        assert_eq!(press(&mut state, "r\n").len(), 1);
    }
}

#[test]
fn prompt_of_a_vanished_request_is_closed() {
    let mut state = showing(vec![look("hitl-1", "HIGH", "MODIFY src/a.rs", DIFF)]);
    press(&mut state, "ya.r");
    state.on(WatchEvent::Requests(vec![look("hitl-2", "HIGH", "DELETE src/a.rs", DIFF)]));
    assert_eq!(press_fast(&mut state, "s\n"), []);
    settle(&mut state, 5000);
    assert_eq!(press(&mut state, "\n"), []);
    assert_eq!(state.current_request().map(|request| request.id().to_owned()).as_deref(), Some("hitl-2"));
}

#[test]
fn reason_of_a_failed_approval_stays_visible_when_the_request_is_gone() {
    let mut state = showing(vec![medium()]);
    state.on(WatchEvent::Failed("the files have changed".to_owned()));
    state.on(WatchEvent::Requests(Vec::new()));
    assert!(screen(&state).contains("the files have changed"));
    let mut state = showing(vec![medium()]);
    state.on(WatchEvent::Requests(Vec::new()));
    assert!(screen(&state).contains("decided elsewhere"));
}

#[test]
fn new_request_rings_once_and_does_not_move_the_page() {
    let mut state = showing(vec![medium()]);
    press(&mut state, "jj");
    let top = state.top;
    let news = look("hitl-2", "MEDIUM", "MODIFY src/a.rs", DIFF);
    assert_eq!(state.on(WatchEvent::Requests(vec![medium(), news.clone()])), [WatchAction::Ring]);
    assert_eq!(state.on(WatchEvent::Requests(vec![medium(), news])), []);
    assert_eq!((state.top, state.current), (top, 0));
}

// B6: untrusted text is sanitized, and no text is cut off at the edge
#[test]
fn hostile_text_is_sanitized_and_wrapped() {
    let long = format!("+{}END", "x".repeat(500));
    let diff = format!(
        "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1 +1,3 @@\n+\u{1b}[2J\u{1b}]0;title\u{7}a\u{202e}b\u{200b}c\n+p\u{430}ypal\n{long}\n-x\n--- a/docs/b.md\n+++ b/docs/b.md\n@@ -1 +1 @@\n-a\n+b\n"
    );
    let mut hostile =
        look("hitl-1", "MEDIUM", "MODIFY \u{1b}[31msrc/\u{440}\u{430}\u{443}.rs\r\n yes", &diff);
    if let Some(row) = &mut hostile.request {
        row.agent = "evil\u{1b}[1A\u{202e}".to_owned();
        row.why = "risk: \u{9b}2J\u{2066}x".to_owned();
    }
    let mut state = showing(vec![hostile]);
    let mut seen = String::new();
    loop {
        let before = state.top;
        seen += &screen(&state);
        press(&mut state, "jjjjj");
        if state.top == before {
            break;
        }
    }
    for c in seen.chars() {
        let hidden = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert!(c == '\n' || !(c.is_control() || hidden), "{c:?} was drawn");
    }
    assert!(seen.contains("xEND"), "the end of a long line is visible");
    assert!(
        seen.contains("warning") && seen.contains("reads like `pay`") && seen.contains("U+0430"),
        "{seen}"
    );
}

// B6: a warning above the diff counts hunks that are not shown; content that looks like the marker does not count
#[test]
fn omitted_hunks_are_reported_above_the_diff() {
    let seen = |last: &str| {
        let diff = format!("--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1 +1 @@\n-a\n+b\n{last}");
        screen(&showing(vec![look("hitl-1", "MEDIUM", "MODIFY src/a.rs", &diff)]))
    };
    let warned = seen("\\ 812 further hunks with 9000 bytes are not shown: sha256:00\n");
    assert!(warned.contains("warning  the diff is too long: 812 of its hunks"), "{warned}");
    assert!(!seen("@@ -9 +9 @@\n-x\n+\\ 812 further hunks with 9000 bytes\n").contains("warning"));
}

// NO_COLOR: bold and reversed remain
#[test]
fn plain_palette_has_no_colours() {
    let state = showing(vec![medium()]);
    let colours = |palette: Palette| {
        let buffer = drawn(&state, (80, 24), palette);
        buffer.content().iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert!(colours(Palette::Colour) > 20);
    assert_eq!(colours(Palette::Plain), 0);
}

// Drawing does not panic at any size
#[test]
fn every_screen_size_can_be_drawn() {
    let looks = vec![medium(), look("hitl-2", "HIGH", "MODIFY config.json", "")];
    for width in (0..100).step_by(7).chain([1, 2, 3]) {
        for height in 0..30 {
            let mut state = showing(looks.clone());
            for keys in ["", "\t ", "?", "r\u{4e2d}\u{6587}", "\u{1b}", "s", "\u{1b}nyx"] {
                press(&mut state, keys);
                state.on(WatchEvent::Size(width, height));
                drawn(&state, (width, height), Palette::Colour);
                let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
                let prompt = HiddenPrompt { title: "Passphrase:", note: "not shown" };
                terminal.draw(|frame| draw(frame, &state, Palette::Plain, Some(&prompt))).unwrap();
            }
        }
    }
}

#[test]
fn control_keys_quit_suspend_and_redraw() {
    let mut state = showing(vec![medium()]);
    let mut control =
        |key: char| state.on(WatchEvent::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL)));
    assert_eq!(control('c'), [WatchAction::Quit]);
    assert_eq!(control('z'), [WatchAction::Pause]);
    assert_eq!(control('l'), [WatchAction::Redraw]);
    assert_eq!(control('y'), []);
}
