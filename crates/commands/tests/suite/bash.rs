//! What bash really starts, against what the classifier lists: for every text, each program that bash started is listed,
//! or the text counts as not parsed. Programs are stubs that log their names, found by `PATH` in a temporary directory.
#![expect(
    clippy::disallowed_methods,
    reason = "the test starts bash and writes stub programs into a temporary directory"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use vambrace_commands::CommandTable;

/// Stub programs and whether they succeed.
const STUBS: &[(&str, bool)] = &[
    ("ls", true),
    ("cat", true),
    ("grep", false),
    ("wc", true),
    ("foo", false),
    ("bar", true),
    ("git", true),
    ("id", true),
];

/// Programs that really start another one.
const WRAPPERS: &[&str] = &["env", "xargs", "timeout", "nice", "nohup", "sh", "bash"];

struct Shell {
    directory: TempDir,
}

impl Shell {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let stubs = directory.path().join("bin");
        fs::create_dir_all(&stubs).unwrap();
        for (name, succeeds) in STUBS {
            let path = stubs.join(name);
            fs::write(&path, format!("#!/bin/sh\necho {name} >>\"$STARTED\"\n{succeeds}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in WRAPPERS {
            std::os::unix::fs::symlink(Path::new("/usr/bin").join(name), stubs.join(name)).unwrap();
        }
        Self { directory }
    }

    /// A working directory of its own, deep enough for a text that goes up.
    fn workplace(&self) -> PathBuf {
        let place = self.directory.path().join("w/1/2/3/4/5/6");
        drop(fs::remove_dir_all(self.directory.path().join("w")));
        fs::create_dir_all(&place).unwrap();
        for name in ["a.t", "b.t", "i"] {
            fs::write(place.join(name), "x\n").unwrap();
        }
        place
    }

    /// The programs that bash starts for a text. Programs in the background hold the pipes, so that reading the pipes to
    /// their end waits for them.
    fn started(&self, text: &str) -> Vec<String> {
        let log = self.directory.path().join("started");
        fs::write(&log, "").unwrap();
        let place = self.workplace();
        // An endless loop in the background outlives `timeout`; the limit of processor time ends it.
        let limited = "ulimit -t 1; exec /usr/bin/timeout -s KILL 2 /bin/bash --norc --noprofile -c \"$0\"";
        let mut bash = Command::new("/bin/sh");
        bash.args(["-c", limited, text])
            .env_clear()
            .env("PATH", self.directory.path().join("bin"))
            .env("HOME", &place)
            .env("STARTED", &log)
            .current_dir(&place)
            .stdin(Stdio::null());
        bash.output().unwrap();
        let mut names: Vec<String> = fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn check(shell: &Shell, table: &CommandTable, text: &str) -> Option<String> {
    if text.contains('\0') {
        return None;
    }
    let found = table.classify_shell(text);
    if found.unparsed {
        return None;
    }
    let listed: Vec<&str> = found.programs.iter().map(|program| program.name.as_str()).collect();
    let missing: Vec<String> =
        shell.started(text).into_iter().filter(|name| !listed.contains(&name.as_str())).collect();
    (!missing.is_empty()).then(|| format!("{text:?} starts {missing:?}, listed {listed:?}"))
}

#[test]
fn known_texts_list_what_bash_starts() {
    let shell = Shell::new();
    let table = CommandTable::built_in();
    for text in [
        "ls",
        "ls | wc",
        "ls && cat; foo || bar &",
        "ls # cat",
        "ls#cat",
        "ls;#cat\nbar",
        "ls \\\n# cat\nbar",
        "l\\\ns",
        "'ls' | \"cat\"",
        "x=1 ls",
        "x=1 y=2",
        "2>o ls",
        "ls 2>&1 >o <i",
        "ls &>o",
        "ls >&o",
        "ls <<E\n$(cat)\n`wc`\nE\nbar",
        "ls <<'E'\n$(cat)\nE\nbar",
        "ls <<-E\n\tcat\n\tE\nbar",
        "ls <<A <<B\na\nA\nb\nB\nbar",
        "ls <<<$(cat)",
        "echo $(ls $(cat) `wc`)",
        "echo \"$(ls \"$(cat)\")\"",
        "cat <(ls) >(wc)",
        "(ls; cat) | { wc; bar; }",
        "if ls; then cat; else wc; fi",
        "if foo; then cat; elif bar; then wc; fi",
        "while foo; do cat; done; bar",
        "until ls; do cat; done",
        "for x in a b; do ls; done",
        "for x in $(ls); do cat \"$x\"; done",
        "case a in a) ls;; b|c) cat;; esac",
        "case $(ls) in *) cat ;& x) wc ;; esac",
        "! foo && ls",
        "time -p ls",
        "[[ -f i ]] && ls",
        "[[ -n $(ls) ]] || cat",
        "{ ls; }; (cat)",
        "ls;\n\ncat\n",
        "exec ls",
        "command ls",
        "eval 'ls; cat'",
        "trap 'ls' EXIT; cat",
        "echo a{b,c} $(ls)",
        "ls 'a\nb' <<E\nE\ncat",
        "echo \"a`ls`b\"",
        "echo \"\\`ls\\`\"",
        "echo \\$(ls",
        "echo '$(ls)'",
        "if=1 ls",
        "echo if ls",
        "\\if ls",
        "'if' ls; cat",
        "{ls}; cat",
        "ls 2>/dev/null|cat>o",
        "ls|&cat",
        "echo ${x:-$(ls)}",
        "echo $((1+$(ls; echo 1)))",
        "x=$(ls)",
        "ls >$(cat)o",
        "function f { ls; }; f",
        "f() { ls; }; f",
        "f() { foo; }; f | cat",
        "coproc ls; cat",
        "a=(ls $(cat)); ${a[0]}",
        "x=ls; $x",
        "{fd}>o ls",
        "ls $'a\\'b'; cat",
        "export x=$(ls)",
        "test -v 'a[$(ls)]'",
        "echo ${x@P}",
    ] {
        if let Some(difference) = check(&shell, &table, text) {
            panic!("{difference}");
        }
    }
}

// Also shows that the test can find a difference: the list of programs is not always excused as not parsed.
#[test]
fn plain_texts_count_as_parsed() {
    let table = CommandTable::built_in();
    let shell = Shell::new();
    for (text, names) in [
        ("ls | wc", &["ls", "wc"][..]),
        ("foo || (bar; cat) # x", &["bar", "cat", "foo"]),
        ("for x in a; do ls \"$x\"; done", &["ls"]),
        ("cat <<E\n$(ls)\nE", &["cat", "ls"]),
        ("if foo; then ls; else cat; fi", &["cat", "foo"]),
    ] {
        assert!(!table.classify_shell(text).unparsed, "{text}");
        assert_eq!(shell.started(text), names, "{text}");
    }
}

#[test]
fn generated_texts_list_what_bash_starts() {
    compare(400, 0x5eed);
}

#[test]
#[ignore = "takes minutes"]
fn many_generated_texts_list_what_bash_starts() {
    compare(20_000, 0xbeef);
    compare(20_000, 0x1234_5678);
}

fn compare(count: usize, seed: u64) {
    let shell = Shell::new();
    let table = CommandTable::built_in();
    let mut texts = TextGenerator { state: seed };
    let mut differences = Vec::new();
    let mut parsed = 0;
    for _ in 0..count {
        let text = texts.text();
        parsed += usize::from(!table.classify_shell(&text).unparsed);
        let difference = check(&shell, &table, &text);
        difference.iter().for_each(|difference| println!("{difference}"));
        differences.extend(difference);
    }
    println!("{parsed} of {count} texts are parsed");
    assert!(parsed * 5 > count, "only {parsed} of {count} texts are parsed");
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// Texts from a grammar, from loose tokens, and with small changes; the same seed gives the same texts.
struct TextGenerator {
    state: u64,
}

impl TextGenerator {
    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state % u64::try_from(bound).unwrap()).unwrap()
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    fn text(&mut self) -> String {
        let text = match self.below(4) {
            0 => self.tokens(),
            _ => self.list(2),
        };
        match self.below(3) {
            0 => self.changed(&text),
            _ => text,
        }
    }

    fn tokens(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..=self.below(10) {
            text.push_str(self.pick(&[
                "ls", "cat", "foo", "bar", "git", "id", "a", "'b c'", "\"d e\"", "\"$x\"", "$x", "${x}",
                "$(ls)", "`foo`", "<(bar)", "{a,b}", "*.t", "[", "]", "#c", "~", "\\", "\\\n", "'", "\"",
                "x=1", "x=$(bar)", "x=(a b)", "a[0]=1", "2>", "2>&1", ">o", "<i", "<<E", "<<'E'", "\nE\n",
                "<<<w", "&>o", "|&", "|", "||", "&&", ";", "&", "\n", "(", ")", "{", "}", "!", "time", "if",
                "then", "fi", "else", "for", "in", "do", "done", "case", "esac", ";;", "[[", "]]", "((",
                "))", "function", "f()", "coproc", "eval", "exec", "command", "trap", "EXIT", "set",
                "export", "test", "true", "false", ":", "$'\\n'", "$\"a\"", "$((1))", "<", ">", "-v", "--",
                "!x", "=", "+=", "\t", "#",
            ]));
            text.push_str(self.pick(&[" ", " ", " ", "", "\n"]));
        }
        text
    }

    fn list(&mut self, depth: usize) -> String {
        let mut text = self.pipeline(depth);
        for _ in 0..self.below(3) {
            text.push_str(self.pick(&[" && ", " || ", "; ", "\n", ";", "&&", " # c\n", " & "]));
            let next = self.pipeline(depth);
            text.push_str(&next);
        }
        text
    }

    fn pipeline(&mut self, depth: usize) -> String {
        let mut text = self.pick(&["", "", "", "", "! ", "time "]).to_owned();
        text.push_str(&self.command(depth));
        for _ in 0..self.below(2) {
            text.push_str(self.pick(&[" | ", "|", " |& ", " |\n"]));
            text.push_str(&self.command(depth));
        }
        text
    }

    fn command(&mut self, depth: usize) -> String {
        if depth == 0 || self.below(3) > 0 {
            return self.simple(depth);
        }
        let one = self.list(depth - 1);
        let two = self.list(depth - 1);
        match self.below(17) {
            0 | 9 => format!("({one})"),
            1 | 10 => format!("{{ {one}\n}}"),
            2 | 11 | 12 => format!("if {one}\nthen {two}\nfi"),
            3 | 13 => format!("while foo; do {one}\ndone"),
            4 | 14 => format!("for x in {} {}; do {one}\ndone", self.word(depth), self.word(depth)),
            5 | 15 => format!("case {} in {}) {one};; *) {two}\n;; esac", self.word(depth), self.word(depth)),
            6 => format!("[[ -n {} ]]", self.word(depth)),
            7 | 16 => format!("until {one}\nls\ndo {two}\ndone"),
            _ => format!("f() {{ {one}\n}}"),
        }
    }

    /// A command that starts another one.
    fn wrapped(&mut self, depth: usize) -> String {
        let inner = self.simple(depth.saturating_sub(1));
        let text = self.list(depth.saturating_sub(1)).replace('\'', "");
        let wrapper = self.pick(&[
            "env",
            "env y=1",
            "env -i PATH=\"$PATH\"",
            "xargs",
            "xargs -n 1",
            "timeout 1",
            "nice",
            "nohup",
            "command",
            "exec",
            "builtin",
        ]);
        match self.below(7) {
            0 => format!("sh -c '{text}'"),
            1 => format!("bash -c '{text}' x"),
            2 => format!("eval '{text}'"),
            3 => format!("trap '{text}' EXIT"),
            _ => format!("{wrapper} {inner}"),
        }
    }

    fn simple(&mut self, depth: usize) -> String {
        if depth > 0 && self.below(8) == 0 {
            return self.wrapped(depth);
        }
        let mut words = Vec::new();
        if self.below(8) == 0 {
            words.push(format!("x={}", self.word(depth)));
        }
        words.push(
            self.pick(&[
                "ls", "cat", "grep", "wc", "foo", "bar", "id", "echo", "l\\s", "'ca't", "\"ba\"r", "true",
            ])
            .to_owned(),
        );
        for _ in 0..self.below(4) {
            let word = self.word(depth);
            words.push(word);
        }
        if self.below(5) == 0 {
            words.push(self.redirect(depth));
        }
        words.join(self.pick(&[" ", " ", "  ", "\t", " \\\n"]))
    }

    fn redirect(&mut self, depth: usize) -> String {
        let target = self.word(depth);
        match self.below(6) {
            0 => ">o".to_owned(),
            1 => "2>&1".to_owned(),
            2 => "<i".to_owned(),
            3 => format!("<<<{target}"),
            4 => "&>o".to_owned(),
            _ => format!("<<E\n{target}\nE\n"),
        }
    }

    fn word(&mut self, depth: usize) -> String {
        let mut word = String::new();
        for _ in 0..=self.below(2) {
            let part = match self.below(14) {
                0 if depth > 0 => format!("$({})", self.list(depth - 1)),
                1 if depth > 0 => format!("\"$({})\"", self.list(depth - 1)),
                2 if depth > 0 => format!("`{}`", self.simple(0).replace(['`', '\\'], "")),
                3 if depth > 0 => format!("<({})", self.list(depth - 1)),
                4 => "'a b'".to_owned(),
                5 => "\"a # b\"".to_owned(),
                6 => self.pick(&["$x", "\"$x\"", "${x}", "$@", "$?"]).to_owned(),
                7 => self.pick(&["*.t", "?", "[a]*", "~", "~", "a=b", "-v", "{a}", "{a,b}"]).to_owned(),
                8 => self.pick(&["\\;", "\\ ", "\\$", "a\\\nb", "\\'"]).to_owned(),
                9 => "if".to_owned(),
                10 => "a#b".to_owned(),
                _ => self.pick(&["a", "b", "i", "-l"]).to_owned(),
            };
            word.push_str(&part);
        }
        word
    }

    /// Removes, doubles or inserts a character.
    fn changed(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..=self.below(3) {
            if chars.is_empty() {
                break;
            }
            let at = self.below(chars.len());
            match self.below(3) {
                0 => {
                    chars.remove(at);
                }
                1 => chars.insert(at, chars[at]),
                _ => {
                    let inserted = self.pick(&[
                        "'", "\"", "\\", "$", "`", "(", ")", "{", "}", "<", ">", "|", "&", ";", "\n", " ",
                        "#", "=", "!", "x", "\t",
                    ]);
                    chars.insert(at, inserted.chars().next().unwrap());
                }
            }
        }
        chars.into_iter().collect()
    }
}
