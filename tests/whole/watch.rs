//! `approvals watch` on a pseudoterminal: the tests type keys and read the screen.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::json;

use crate::changes::{PHRASE, propose, read};
use crate::home::Home;

/// A user at a terminal.
struct Person {
    keyboard: File,
    arrives: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// All bytes that were sent to the terminal.
    raw: Vec<u8>,
    /// The program's side of the terminal, kept open to read its settings.
    terminal: OwnedFd,
    before: Termios,
    child: Child,
}

impl Person {
    fn watching(home: &Home, variables: &[(&str, &str)]) -> Self {
        Self::at(home, &["approvals", "watch"], variables)
    }

    fn at(home: &Home, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        resize(&master, 24, 80);
        let terminal = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let before = tcgetattr(&terminal).unwrap();
        let side = || Stdio::from(terminal.try_clone().unwrap());
        let child = home
            .command(args)
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied())
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().unwrap();
        let (tell, arrives) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if tell.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let screen = vt100::Parser::new(lines(24), lines(80), 0);
        Self { keyboard, arrives, screen, raw: Vec::new(), terminal, before, child }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types while the program is stopped, and waits until the terminal has received the keys: the kernel does that after the
    /// write, and would echo them if the program ended in the meantime. The caller must continue the program with a signal.
    fn types_unseen(&mut self, keys: &str) {
        let begun = Instant::now();
        let until = |done: &dyn Fn() -> bool| {
            while !done() {
                assert!(
                    begun.elapsed() < Duration::from_secs(20),
                    "the program or the terminal does not respond"
                );
                std::thread::yield_now();
            }
        };
        signal(self, Signal::STOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        until(&|| std::fs::read_to_string(&stat).unwrap().contains(") T "));
        self.types(keys);
        until(&|| rustix::io::ioctl_fionread(&self.terminal).unwrap() == keys.len() as u64);
    }

    fn sees(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen contains all of these texts.
    fn waits_for(&mut self, words: &[&str]) {
        let begun = Instant::now();
        while !words.iter().all(|words| self.sees().contains(words)) {
            let left = Duration::from_secs(20).saturating_sub(begun.elapsed());
            match self.arrives.recv_timeout(left) {
                Ok(bytes) => {
                    self.screen.process(&bytes);
                    self.raw.extend(bytes);
                }
                Err(_) => panic!("{words:?} did not appear:\n{}", self.sees()),
            }
        }
    }

    /// Waits until the program has exited, and checks that the terminal is restored; returns the exit code and the output.
    fn leaves(mut self) -> (Option<i32>, Vec<u8>) {
        let code = self.child.wait().unwrap().code();
        while let Ok(bytes) = self.arrives.recv_timeout(Duration::from_millis(200)) {
            self.screen.process(&bytes);
            self.raw.extend(bytes);
        }
        let after = tcgetattr(&self.terminal).unwrap();
        assert_eq!(
            (after.local_modes, after.input_modes, after.output_modes),
            (self.before.local_modes, self.before.input_modes, self.before.output_modes),
            "the terminal is not restored"
        );
        let screen = self.screen.screen();
        assert!(
            !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste(),
            "{:?}",
            self.sees()
        );
        (code, std::mem::take(&mut self.raw))
    }
}

fn lines(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

fn resize(master: &impl std::os::fd::AsFd, rows: u16, columns: u16) {
    tcsetwinsize(master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

fn signal(person: &Person, signal: Signal) {
    kill_process(Pid::from_child(&person.child), signal).unwrap();
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

// B6, A8: proposed in one process, approved with keys in another; the passphrase is asked for once, never shown
#[test]
fn change_is_approved_with_keys() {
    let home = Home::new();
    home.write("config.json", "{\"debug\": false}\n");
    let mut ada = Person::watching(&home, &[]);
    ada.waits_for(&["No pending approval requests", "q quit"]);
    propose(&home, "write_file", json!({"path": "src/new.rs", "content": "fn new() {}\n"}));
    ada.waits_for(&[
        "MEDIUM CREATE FILE src/new.rs",
        "+fn new() {}",
        "command-line for ada",
        "approve  ",
        "y once",
    ]);
    assert_eq!(read(&home, "src/new.rs"), None);
    ada.types("y");
    ada.waits_for(&["New passphrase"]);
    ada.types(&format!("{PHRASE}\r"));
    ada.waits_for(&["Repeat the new"]);
    ada.types(&format!("{PHRASE}\r"));
    ada.waits_for(&["applied: CREATE FILE src/new.rs", "No pending approval requests"]);
    assert_eq!(read(&home, "src/new.rs").as_deref(), Some("fn new() {}\n"));

    propose(&home, "write_file", json!({"path": "config.json", "content": "{\"debug\": true}\n"}));
    ada.waits_for(&["HIGH MODIFY config.json", "+{\"debug\": true}", "y once"]);
    ada.types("y");
    ada.waits_for(&["to approve, type `config.json`"]);
    ada.types("config.json\r");
    ada.waits_for(&["applied: MODIFY config.json"]);
    assert_eq!(read(&home, "config.json").as_deref(), Some("{\"debug\": true}\n"));

    let id = propose(&home, "write_file", json!({"path": "src/bad.rs", "content": "fn bad() {}\n"}));
    ada.waits_for(&["CREATE FILE src/bad.rs", "r reject"]);
    ada.types("r");
    ada.waits_for(&["reason for the agent"]);
    ada.types("not here\r");
    ada.waits_for(&["rejected; the agent is notified"]);
    let shown = home.run(["approvals", "show", &id, "--json"]).json();
    assert_eq!(
        (shown["state"].as_str(), shown["decided"]["reason"].as_str()),
        (Some("rejected"), Some("not here"))
    );
    ada.types("q");
    let (code, raw) = ada.leaves();
    assert_eq!(code, Some(0));
    assert!(contains(&raw, "2 approved, 1 rejected"), "{}", String::from_utf8_lossy(&raw));
    assert!(!contains(&raw, PHRASE), "the passphrase was shown");
    let verified = home.run(["audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
}

// B7: a change edited in the user's editor, and a part of a batch; both the approved and the proposed change are shown
#[test]
fn edited_change_and_part_of_a_batch_are_approved_with_keys() {
    let home = Home::new();
    let variables =
        [("VAMBRACE_PASSPHRASE", PHRASE), ("EDITOR", "env > ../editor.env; sed -i s/proposed/edited/")];
    let mut ada = Person::watching(&home, &variables);
    ada.waits_for(&["No pending approval requests"]);
    let id = propose(&home, "write_file", json!({"path": "src/a.rs", "content": "// proposed\n"}));
    ada.waits_for(&["CREATE FILE src/a.rs", "y once"]);
    ada.types("e");
    ada.waits_for(&["This is applied instead of the whole proposal", "+// edited", "y approve"]);
    assert_eq!(read(&home, "src/a.rs"), None, "a preview must not apply anything");
    ada.types("y");
    ada.waits_for(&["applied: CREATE FILE src/a.rs"]);
    assert_eq!(read(&home, "src/a.rs").as_deref(), Some("// edited\n"));
    let shown = home.run(["approvals", "show", &id]).out;
    let (agreed, proposed) = shown.split_once("proposed change, not applied as proposed:").unwrap();
    assert!(agreed.contains("+// edited") && !agreed.contains("+// proposed"), "{shown}");
    assert!(proposed.contains("+// proposed"), "{shown}");
    assert!(agreed.contains("not the proposed"), "two digests: {shown}");
    let environment = std::fs::read_to_string(home.path("editor.env")).unwrap();
    assert!(!environment.contains(PHRASE), "the passphrase is in the editor's environment");
    let left = std::fs::read_dir(home.state()).unwrap().flatten();
    assert!(!left.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("edit-")));

    let patch = "--- /dev/null\n+++ b/src/one.rs\n@@ -0,0 +1 @@\n+one\n--- /dev/null\n+++ b/src/two.rs\n@@ -0,0 +1 @@\n+two\n";
    propose(&home, "apply_patch", json!({"patch": patch}));
    ada.waits_for(&["+one", "+two", "p part"]);
    ada.types("\t ");
    ada.waits_for(&["1 marked"]);
    ada.types("p");
    ada.waits_for(&["This is applied instead of the whole proposal", "CREATE FILE src/two.rs", "y approve"]);
    ada.types("y");
    ada.waits_for(&["applied: CREATE FILE src/two.rs"]);
    assert_eq!((read(&home, "src/one.rs"), read(&home, "src/two.rs").as_deref()), (None, Some("two\n")));
    ada.types("q");
    assert_eq!(ada.leaves().0, Some(0));
}

// B6: an agent's text reaches the terminal without control characters, and a lookalike name is reported
#[test]
fn hostile_text_sends_no_control_sequences() {
    let home = Home::new();
    let content = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[1;1Hagreed\u{9b}31m\u{202e}txt\u{200b}\u{2066}\rhidden\u{8}\u{8}\nlast\n";
    let path = "src/\u{440}\u{430}\u{443}.rs";
    let mut mallory = home.command([
        "call",
        "write_file",
        &json!({"path": path, "content": content}).to_string(),
        "--json",
        "--session",
        "s-1",
    ]);
    assert_eq!(mallory.output().unwrap().status.code(), Some(3));
    let mut ada = Person::watching(&home, &[]);
    ada.waits_for(&["CREATE FILE src/", "reads like `pay`", "U+0440", "+last", "y once"]);
    ada.types("q");
    let (code, raw) = ada.leaves();
    assert_eq!(code, Some(0));
    let text = String::from_utf8(raw).unwrap();
    for harm in ["\u{1b}]", "owned\u{7}", "\u{9b}", "\u{202e}", "\u{200b}", "\u{2066}", "\rhidden", "\u{8}"] {
        assert!(!text.contains(harm), "{harm:?} reached the terminal");
    }
    assert_eq!(read(&home, path), None);
}

// Every signal restores the terminal; a new size is redrawn
#[test]
fn signals_restore_the_terminal_and_resizing_redraws() {
    for (end, expected) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let home = Home::new();
        propose(&home, "write_file", json!({"path": "src/new.rs", "content": "fn new() {}\n"}));
        let mut ada = Person::watching(&home, &[]);
        ada.waits_for(&["CREATE FILE src/new.rs", "y once"]);
        if end == Signal::TERM {
            ada.screen.screen_mut().set_size(lines(10), lines(40));
            resize(&ada.keyboard, 10, 40);
            signal(&ada, Signal::WINCH);
            ada.waits_for(&["more lines below"]);
            ada.types("y");
            ada.waits_for(&["New passphrase"]);
        }
        signal(&ada, end);
        assert_eq!(ada.leaves().0, Some(expected));
        assert_eq!(read(&home, "src/new.rs"), None);
    }
}

// T25: keys typed before anything is on the screen approve nothing
#[test]
fn keys_typed_ahead_approve_nothing() {
    let home = Home::new();
    let patch = "--- /dev/null\n+++ b/src/one.rs\n@@ -0,0 +1 @@\n+one\n--- /dev/null\n+++ b/src/two.rs\n@@ -0,0 +1 @@\n+two\n";
    propose(&home, "apply_patch", json!({"patch": patch}));
    let mut ada = Person::watching(&home, &[("VAMBRACE_PASSPHRASE", PHRASE)]);
    // The kernel keeps these until the program reads them.
    ada.types("yyy\rcy");
    ada.waits_for(&["+one", "+two", "y once"]);
    assert_eq!(read(&home, "src/one.rs"), None);
    // More keys arrive while the preview is computed.
    ada.types(" pyyyy\r\r");
    ada.waits_for(&["This is applied instead of the whole proposal", "y approve"]);
    assert_eq!((read(&home, "src/one.rs"), read(&home, "src/two.rs")), (None, None));
    ada.types("y");
    ada.waits_for(&["applied: CREATE FILE src/one.rs"]);
    assert_eq!((read(&home, "src/one.rs").as_deref(), read(&home, "src/two.rs")), (Some("one\n"), None));
    ada.types("q");
    assert_eq!(ada.leaves().0, Some(0));
}

// B6: nobody approves what does not fit on the screen
#[test]
fn tiny_screen_accepts_no_approval() {
    let home = Home::new();
    propose(&home, "write_file", json!({"path": "src/new.rs", "content": "fn new() {}\n"}));
    let mut ada = Person::watching(&home, &[("VAMBRACE_PASSPHRASE", PHRASE)]);
    ada.waits_for(&["CREATE FILE src/new.rs", "y once"]);
    ada.screen.screen_mut().set_size(lines(5), lines(60));
    resize(&ada.keyboard, 5, 60);
    signal(&ada, Signal::WINCH);
    ada.waits_for(&["too small to approve"]);
    ada.types("y");
    ada.waits_for(&["the screen is too small"]);
    ada.types("q");
    assert_eq!(ada.leaves().0, Some(0));
    assert_eq!(read(&home, "src/new.rs"), None);
}

// The terminal may close at any moment, even with unread keys
#[test]
fn closed_terminal_ends_the_program() {
    for keys in ["", "jjjjkkkk\x1b[A", "y"] {
        close_terminal_after(keys);
    }
}

fn close_terminal_after(keys: &str) {
    let home = Home::new();
    propose(&home, "write_file", json!({"path": "src/new.rs", "content": "fn new() {}\n"}));
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    resize(&master, 24, 80);
    let terminal = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let side = || Stdio::from(terminal.try_clone().unwrap());
    let mut command = home.command(["approvals", "watch"]);
    command.env("TERM", "xterm-256color").stdin(side()).stdout(side()).stderr(side());
    let mut child = command.spawn().unwrap();
    drop((command, terminal));
    let mut master = File::from(master);
    assert!(master.read(&mut [0; 4096]).unwrap() > 0, "it draws");
    master.write_all(keys.as_bytes()).unwrap();
    drop(master);
    // Without a check for end of input, it would loop forever.
    assert!(!child.wait().unwrap().success());
}

#[test]
fn without_a_terminal_other_commands_are_suggested() {
    let home = Home::new();
    for args in [vec!["approvals", "watch"], vec!["approvals", "watch", "--json"]] {
        let ran = home.run(&args);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(format!("{}{}", ran.out, ran.err).contains("approvals list"), "{ran:?}");
    }
}

// Echo is restored whatever ends the passphrase prompt
#[test]
fn interrupted_passphrase_prompt_restores_the_terminal() {
    let interrupts: [(&str, Option<Signal>, i32); 5] = [
        ("\x03", None, 130),
        ("\x04", None, 130),
        ("", Some(Signal::INT), 130),
        ("", Some(Signal::TERM), 143),
        ("", Some(Signal::HUP), 129),
    ];
    for (keys, end, expected) in interrupts {
        let home = Home::new();
        let id = propose(&home, "write_file", json!({"path": "src/new.rs", "content": "fn new() {}\n"}));
        let mut ada = Person::at(&home, &["approvals", "approve", &id], &[]);
        ada.waits_for(&["New passphrase:"]);
        match end {
            None => {
                ada.types("half of it");
                ada.types(keys);
            }
            Some(end) => {
                ada.types_unseen("half of it");
                signal(&ada, end);
                signal(&ada, Signal::CONT);
            }
        }
        let (code, raw) = ada.leaves();
        assert_eq!(code, Some(expected), "{keys:?} {end:?}");
        assert!(!contains(&raw, "half of it"));
        assert_eq!(read(&home, "src/new.rs"), None);
    }
}

// B7: `approvals approve` too applies exactly what it has shown
#[test]
fn approving_hunks_shows_the_resulting_change_first() {
    let home = Home::new();
    let text = |changed: &[usize]| -> String {
        (1..=60)
            .map(|n| if changed.contains(&n) { format!("LINE {n}\n") } else { format!("line {n}\n") })
            .collect()
    };
    home.write("src/long.txt", &text(&[]));
    let id = propose(&home, "write_file", json!({"path": "src/long.txt", "content": text(&[2, 30, 55])}));
    let args = ["approvals", "approve", &id, "--hunks", "src/long.txt:1", "--hunks", "./src/long.txt:3"];
    let mut ada = Person::at(&home, &args, &[("VAMBRACE_PASSPHRASE", PHRASE)]);
    ada.waits_for(&["Approve? [y/N]"]);
    let raw = String::from_utf8_lossy(&ada.raw).into_owned();
    let (_, shown) = raw.split_once("This is applied instead of the whole proposal").unwrap();
    assert!(shown.contains("+LINE 2") && shown.contains("+LINE 55") && !shown.contains("LINE 30"), "{shown}");
    assert_eq!(read(&home, "src/long.txt"), Some(text(&[])));
    ada.types("y\r");
    assert_eq!(ada.leaves().0, Some(0));
    assert_eq!(read(&home, "src/long.txt"), Some(text(&[2, 55])));
    let listed = home.run(["proposals", "list", "--json"]).json();
    assert_eq!(listed[0]["as_proposed"], false);
    // The repeated call of the agent gets the result.
    let args = json!({"path": "src/long.txt", "content": text(&[2, 30, 55])});
    let (code, heard) = home.call("write_file", &args.to_string());
    assert_eq!((code, &heard["data"]["as_proposed"]), (0, &json!(false)), "{heard}");
    assert_eq!(heard["data"]["not_applied"], json!([{"path": "src/long.txt", "hunks": [2]}]));
}
