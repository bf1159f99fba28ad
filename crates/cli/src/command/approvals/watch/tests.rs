//! Keys in, effects and screens out; no terminal.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;
use vambrace_broker::{Choice, Look, LookedFile, Part, Preview, Reach};
use vambrace_core::digest::Digest;
use vambrace_core::id::Id;
use vambrace_core::timestamp::Timestamp;
use vambrace_store::{ApprovalRow, AskKind, AskState, Kept};

use super::draw::{Asking, Palette, draw};
use super::state::{Effect, Event, Mode, State};

const DIFF: &str = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,2 @@\n-old one\n+new one\n same\n@@ -40,2 +40,2 @@\n-old two\n+new two\n same\n--- /dev/null\n+++ b/docs/b.md\n@@ -0,0 +1 @@\n+text\n";

fn time(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

fn look(id: &str, risk: &str, summary: &str, diff: &str) -> Look {
    let row = ApprovalRow {
        id: Id::new(id).unwrap(),
        call: Id::new("c-1").unwrap(),
        session: Id::new("mcp-1").unwrap(),
        user: "ada".to_owned(),
        agent: "claude-code".to_owned(),
        project: "/home/ada/shop".to_owned(),
        tool: "apply_patch".to_owned(),
        kind: AskKind::Change,
        risk: risk.to_owned(),
        summary: summary.to_owned(),
        why: format!("risk: {risk} risk: source files [built in]"),
        grantable: risk != "HIGH",
        asked: Digest::of(id.as_bytes()),
        digest: Digest::of(b"plan"),
        revision: Digest::ZERO,
        sealed: Kept::stored(Vec::new()),
        created: time(0),
        expires: time(300_000),
        state: AskState::Pending,
        delivered: false,
        decided: None,
    };
    let file = |path: &str| LookedFile { path: path.to_owned(), created: false };
    let files = if diff.is_empty() { Vec::new() } else { vec![file("src/a.rs"), file("docs/b.md")] };
    Look { question: Some(row), change: None, diff: diff.to_owned(), proposed: None, files }
}

fn medium() -> Look {
    look("hitl-1", "MEDIUM", "CHANGE 2 FILES src/a.rs, docs/b.md", DIFF)
}

/// A screen on which these questions are, long enough.
fn showing(looks: Vec<Look>) -> State {
    let mut state = State::new((80, 24), time(0));
    state.on(Event::Asks(looks));
    settle(&mut state, 1000);
    state
}

/// Everything is drawn, and looked at for so long.
fn settle(state: &mut State, ms: i64) {
    state.on(Event::Drawn);
    state.on(Event::Time(state.now.later(ms)));
    state.on(Event::Drawn);
}

/// Keys with a look between each two.
fn press(state: &mut State, keys: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    for key in keys.chars() {
        effects.extend(dash(state, &key.to_string()));
        settle(state, 0);
        if !state.is_ready() {
            settle(state, 1000);
        }
    }
    effects
}

/// Keys that come all at once.
fn dash(state: &mut State, keys: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            other => KeyCode::Char(other),
        };
        effects.extend(state.on(Event::Key(KeyEvent::new(code, KeyModifiers::NONE))));
    }
    effects
}

fn drawn(state: &State, size: (u16, u16), palette: Palette) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(frame, state, palette, None)).unwrap();
    terminal.backend().buffer().clone()
}

fn screen(state: &State) -> String {
    let buffer = drawn(state, state.size, Palette::Colour);
    let row = |y: u16| -> String { (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect() };
    (0..buffer.area.height).map(|y| row(y).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

// B6, issue 5.6: who, what, risk and why, diff, countdown, what happens after yes, keys: all on 80x24
#[test]
fn a_change_on_80x24() {
    let expected = "\x20MEDIUM CHANGE 2 FILES src/a.rs, docs/b.md                                 4:59
  who      claude-code for ada, session mcp-1
  why      risk: MEDIUM risk: source files [built in]
  on yes   the change is applied at once, if the files are still the same
  until    2023-11-14T22:18:20.000Z (299 s left; then it is refused)
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
fn several_questions_are_listed_and_one_is_shown() {
    let other = look("hitl-2", "HIGH", "MODIFY config.json", "");
    let state = showing(vec![medium(), other]);
    let shown = screen(&state);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].ends_with("1 of 2  4:59"), "{shown}");
    assert_eq!(lines[1], "> MEDIUM   4:59  CHANGE 2 FILES src/a.rs, docs/b.md  claude-code");
    assert_eq!(lines[2], "  HIGH     4:59  MODIFY config.json  claude-code");
}

#[test]
fn nothing_waits() {
    let mut state = showing(vec![]);
    assert!(screen(&state).contains("Nothing waits for you."));
    assert_eq!(press(&mut state, "ycsepr \t\u{1b}nbf"), []);
    assert_eq!(press(&mut state, "q"), [Effect::Quit]);
}

// DESIGN 5, A5: yes to MEDIUM is one key; yes to HIGH takes the name of what it is about
#[test]
fn high_takes_the_name() {
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "y"), [Effect::Approve("hitl-1".to_owned(), Choice::once())]);
    let mut state = showing(vec![look("hitl-2", "HIGH", "MODIFY src/a.rs", DIFF)]);
    assert_eq!(press(&mut state, "y\n"), [], "a key is not enough");
    assert!(screen(&state).contains("that is not `a.rs`"));
    assert_eq!(press(&mut state, "a.rx\n"), []);
    assert_eq!(press(&mut state, "a.rx\u{8}s"), []);
    assert!(screen(&state).contains("HIGH: to agree, type `a.rs`: a.rs_"));
    assert_eq!(press(&mut state, "\n"), [Effect::Approve("hitl-2".to_owned(), Choice::once())]);
}

// A7: grants only for what may be granted, the wide one with a warning and a word
#[test]
fn grants_take_a_second_step_and_high_takes_none() {
    let mut state = showing(vec![look("hitl-2", "HIGH", "MODIFY src/a.rs", DIFF)]);
    assert_eq!(press(&mut state, "c\ns"), []);
    assert!(screen(&state).contains("only once: it is HIGH, or the organisation asks"));
    assert!(!screen(&state).contains("c class"));
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "c"), []);
    assert!(screen(&state).contains("calls of this class of claude-code"));
    let class = Choice { reach: Reach::Class, ..Choice::once() };
    assert_eq!(press(&mut state, "y"), [Effect::Approve("hitl-1".to_owned(), class)]);
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "sy\n"), []);
    assert_eq!(press(&mut state, "\u{1b}s"), []);
    assert!(screen(&state).contains("WARNING: claude-code will not be asked again"));
    let session = Choice { reach: Reach::Session, ..Choice::once() };
    assert_eq!(press(&mut state, "session\n"), [Effect::Approve("hitl-1".to_owned(), session)]);
}

// B7: files and hunks
#[test]
fn a_part_is_marked_looked_at_and_agreed_to() {
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "p"), [], "nothing is marked");
    assert_eq!(press(&mut state, "\t "), []);
    assert!(
        screen(&state).contains(" *-old two") || screen(&state).contains(">*-old two"),
        "{}",
        screen(&state)
    );
    assert_eq!(press(&mut state, "y"), [], "marked hunks and yes to all do not go together");
    let part = Part::Hunks(vec![("src/a.rs".to_owned(), vec![2])]);
    assert_eq!(press(&mut state, "p"), [Effect::Preview("hitl-1".to_owned(), part.clone())]);
    let preview = Preview {
        summary: "MODIFY src/a.rs".to_owned(),
        diff: "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -40,2 +40,2 @@\n-old two\n+new two\n same\n".to_owned(),
        digest: Digest::of(b"part"),
    };
    state.on(Event::Previewed("hitl-1".to_owned(), part.clone(), preview));
    settle(&mut state, 1000);
    let shown = screen(&state);
    assert!(shown.contains("What would be applied instead of the proposal:"), "{shown}");
    let choice = Choice { part, shown: Some(Digest::of(b"part")), ..Choice::once() };
    assert_eq!(press(&mut state, "y"), [Effect::Approve("hitl-1".to_owned(), choice)]);
}

#[test]
fn a_marked_file_is_agreed_to_whole() {
    let mut state = showing(vec![medium()]);
    let part = Part::Files(vec!["src/a.rs".to_owned()]);
    assert_eq!(press(&mut state, "fp"), [Effect::Preview("hitl-1".to_owned(), part)]);
    assert_eq!(press(&mut state, "fp"), [], "the second press unmarks it");
}

#[test]
fn a_rejection_carries_words_and_editing_names_the_file() {
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "rnot like thiss\u{8}"), []);
    state.on(Event::Paste(", y\n\u{1b}[2J".to_owned()));
    let words = Some("not like this, y[2J".to_owned());
    assert_eq!(press(&mut state, "\n"), [Effect::Reject("hitl-1".to_owned(), words)]);
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "r\n"), [Effect::Reject("hitl-1".to_owned(), None)]);
    let mut state = showing(vec![medium()]);
    assert_eq!(press(&mut state, "\t\te"), [Effect::Edit("hitl-1".to_owned(), "docs/b.md".to_owned())]);
}

// T25: nobody agrees by accident to what has just come, or with what was pasted
#[test]
fn what_has_just_come_and_what_is_pasted_decides_nothing() {
    let mut state = State::new((80, 24), time(0));
    state.on(Event::Asks(vec![medium()]));
    settle(&mut state, 100);
    assert_eq!(dash(&mut state, "ycsepr"), []);
    assert!(screen(&state).contains("look first ..."));
    settle(&mut state, 500);
    state.on(Event::Paste("y".to_owned()));
    assert_eq!(state.mode, Mode::Looking);
    assert_eq!(dash(&mut state, "y").len(), 1);
    // The next question comes under the finger.
    let next = look("hitl-2", "MEDIUM", "MODIFY src/a.rs", DIFF);
    let mut state = showing(vec![medium(), next]);
    state.on(Event::Decided("hitl-1".to_owned(), "applied".to_owned()));
    assert_eq!(dash(&mut state, "y"), []);
    settle(&mut state, 700);
    assert_eq!(dash(&mut state, "y").len(), 1);
}

// T25: what was typed before a step was drawn agrees to nothing, however late it is read
#[test]
fn keys_typed_ahead_agree_to_nothing() {
    // A question that nobody drew: time alone does not make it ready.
    let mut state = State::new((80, 24), time(0));
    state.on(Event::Asks(vec![medium()]));
    state.on(Event::Time(time(60_000)));
    assert_eq!(dash(&mut state, "yy\n"), []);
    // Each second step: the word, the grant, the part.
    let mut state = showing(vec![look("hitl-2", "HIGH", "MODIFY src/a.rs", DIFF)]);
    assert_eq!(dash(&mut state, "ya.rs\n\n"), []);
    settle(&mut state, 0);
    assert_eq!(dash(&mut state, "\n"), [], "nothing of the word was taken");
    assert_eq!(dash(&mut state, "a.rs\n").len(), 1);
    for keys in ["cy", "c\n", "ssession\n"] {
        let mut state = showing(vec![medium()]);
        assert_eq!(dash(&mut state, keys), [], "{keys:?}");
    }
    let mut state = showing(vec![medium()]);
    dash(&mut state, "c");
    settle(&mut state, 100);
    assert_eq!(dash(&mut state, "y"), [], "not long enough to be read");
    settle(&mut state, 250);
    assert_eq!(dash(&mut state, "y").len(), 1);
    let part = Part::Files(vec!["src/a.rs".to_owned()]);
    let preview = |words: &[u8]| Preview {
        summary: "MODIFY src/a.rs".to_owned(),
        diff: String::new(),
        digest: Digest::of(words),
    };
    let mut state = showing(vec![medium()]);
    dash(&mut state, "fp");
    state.on(Event::Previewed("hitl-1".to_owned(), part.clone(), preview(b"one")));
    assert_eq!(dash(&mut state, "y\ny"), []);
    settle(&mut state, 1000);
    // Another preview takes the place of the one that was drawn.
    state.on(Event::Previewed("hitl-1".to_owned(), part, preview(b"two")));
    assert_eq!(dash(&mut state, "y"), []);
    settle(&mut state, 1000);
    assert_eq!(dash(&mut state, "y").len(), 1);
    // A yes that failed is not said again by the next key.
    let mut state = showing(vec![medium()]);
    assert_eq!(dash(&mut state, "y").len(), 1);
    state.on(Event::Failed("wrong passphrase".to_owned()));
    assert_eq!(dash(&mut state, "y"), []);
}

// T25: the plan behind a question is another one now
#[test]
fn a_question_whose_plan_changed_is_looked_at_again() {
    let mut state = showing(vec![medium()]);
    let mut other = medium();
    if let Some(row) = &mut other.question {
        row.digest = Digest::of(b"another plan");
    }
    state.on(Event::Asks(vec![other]));
    assert_eq!(dash(&mut state, "y"), []);
}

// B6: nobody agrees to what does not fit on the screen
#[test]
fn a_screen_that_is_too_small_takes_no_yes() {
    for (width, height) in [(1, 1), (0, 0), (80, 7), (29, 24), (2, 50)] {
        for keys in ["y", "cy", "ssession\n", "fp", "e"] {
            let mut state = showing(vec![medium()]);
            state.on(Event::Size(width, height));
            settle(&mut state, 1000);
            assert_eq!(press(&mut state, keys), [], "{width}x{height} {keys:?}");
        }
        // It becomes too small while a word is typed.
        let mut state = showing(vec![look("hitl-2", "HIGH", "MODIFY src/a.rs", DIFF)]);
        press(&mut state, "ya.rs");
        state.on(Event::Size(width, height));
        settle(&mut state, 1000);
        assert_eq!(press(&mut state, "\n"), []);
        state.on(Event::Size(80, 24));
        assert_eq!(dash(&mut state, "\n"), [], "it was not drawn yet");
        settle(&mut state, 0);
        assert_eq!(dash(&mut state, "\n").len(), 1);
        // No is always possible.
        let mut state = showing(vec![medium()]);
        state.on(Event::Size(width, height));
        settle(&mut state, 1000);
        assert_eq!(press(&mut state, "r\n").len(), 1);
    }
}

#[test]
fn a_question_that_is_gone_takes_its_prompt_with_it() {
    let mut state = showing(vec![look("hitl-1", "HIGH", "MODIFY src/a.rs", DIFF)]);
    press(&mut state, "ya.r");
    state.on(Event::Asks(vec![look("hitl-2", "HIGH", "DELETE src/a.rs", DIFF)]));
    assert_eq!(dash(&mut state, "s\n"), []);
    settle(&mut state, 5000);
    assert_eq!(press(&mut state, "\n"), []);
    assert_eq!(state.ask().map(|ask| ask.id().to_owned()).as_deref(), Some("hitl-2"));
}

#[test]
fn why_a_yes_failed_is_told_when_the_question_is_gone_with_it() {
    let mut state = showing(vec![medium()]);
    state.on(Event::Failed("the files have changed".to_owned()));
    state.on(Event::Asks(Vec::new()));
    assert!(screen(&state).contains("the files have changed"));
    let mut state = showing(vec![medium()]);
    state.on(Event::Asks(Vec::new()));
    assert!(screen(&state).contains("decided elsewhere"));
}

#[test]
fn news_ring_once_and_leave_the_page_alone() {
    let mut state = showing(vec![medium()]);
    press(&mut state, "jj");
    let top = state.top;
    let news = look("hitl-2", "MEDIUM", "MODIFY src/a.rs", DIFF);
    assert_eq!(state.on(Event::Asks(vec![medium(), news.clone()])), [Effect::Ring]);
    assert_eq!(state.on(Event::Asks(vec![medium(), news])), []);
    assert_eq!((state.top, state.current), (top, 0));
}

// B6: untrusted text is drawn harmless, and nothing stands beyond an edge
#[test]
fn hostile_text_is_drawn_harmless_and_whole() {
    let long = format!("+{}END", "x".repeat(500));
    let diff = format!(
        "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1 +1,3 @@\n+\u{1b}[2J\u{1b}]0;title\u{7}a\u{202e}b\u{200b}c\n+p\u{430}ypal\n{long}\n-x\n--- a/docs/b.md\n+++ b/docs/b.md\n@@ -1 +1 @@\n-a\n+b\n"
    );
    let mut hostile =
        look("hitl-1", "MEDIUM", "MODIFY \u{1b}[31msrc/\u{440}\u{430}\u{443}.rs\r\n yes", &diff);
    if let Some(row) = &mut hostile.question {
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
    assert!(seen.contains("xEND"), "the end of a long line is seen");
    assert!(
        seen.contains("careful") && seen.contains("reads like `pay`") && seen.contains("U+0430"),
        "{seen}"
    );
}

// B6: hunks that are not shown are told above the diff; content that says so is content
#[test]
fn hunks_that_are_not_shown_are_told_first() {
    let seen = |last: &str| {
        let diff = format!("--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1 +1 @@\n-a\n+b\n{last}");
        screen(&showing(vec![look("hitl-1", "MEDIUM", "MODIFY src/a.rs", &diff)]))
    };
    let told = seen("\\ 812 further hunks with 9000 bytes are not shown: sha256:00\n");
    assert!(told.contains("careful  the diff is too long: 812 hunks"), "{told}");
    assert!(!seen("@@ -9 +9 @@\n-x\n+\\ 812 further hunks with 9000 bytes\n").contains("careful"));
}

// NO_COLOR: bold and reversed are left
#[test]
fn without_colours_nothing_is_coloured() {
    let state = showing(vec![medium()]);
    let colours = |palette: Palette| {
        let buffer = drawn(&state, (80, 24), palette);
        buffer.content().iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert!(colours(Palette::Colour) > 20);
    assert_eq!(colours(Palette::Plain), 0);
}

// Works at 80x24, and does not fall over at any size
#[test]
fn every_size_is_drawn() {
    let looks = vec![medium(), look("hitl-2", "HIGH", "MODIFY config.json", "")];
    for width in (0..100).step_by(7).chain([1, 2, 3]) {
        for height in 0..30 {
            let mut state = showing(looks.clone());
            for keys in ["", "\t ", "?", "r\u{4e2d}\u{6587}", "\u{1b}", "s", "\u{1b}nyx"] {
                press(&mut state, keys);
                state.on(Event::Size(width, height));
                drawn(&state, (width, height), Palette::Colour);
                let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
                let asking = Asking { title: "Passphrase:", note: "not shown" };
                terminal.draw(|frame| draw(frame, &state, Palette::Plain, Some(&asking))).unwrap();
            }
        }
    }
}

#[test]
fn control_keys_end_pause_and_redraw() {
    let mut state = showing(vec![medium()]);
    let mut control =
        |key: char| state.on(Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL)));
    assert_eq!(control('c'), [Effect::Quit]);
    assert_eq!(control('z'), [Effect::Pause]);
    assert_eq!(control('l'), [Effect::Redraw]);
    assert_eq!(control('y'), []);
}
