//! `cargo xtask scoreboard`: runs the escape probes under our sandbox and under others with their defaults, side by side.
//!
//! The probes are in the test program of the sandbox crate (`real probe all`). Each peer gets the same directories; a peer
//! that does not work here is reported. A probe that gets through is not always a flaw: defaults promise different things.
//!
//! Probes that get through have effects: they trace, stop and kill the process that started them. So nothing runs as root
//! here, and stand-ins play the broker and the parent process.

mod network;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use serde_json::Value;

use crate::{
    error::{TaskError, TaskResult, WithContext},
    program::run_captured,
    project::Project,
    toolbox::{Toolbox, is_root},
};

/// A probe's name and whether it got through.
type Board = BTreeMap<String, bool>;

pub(crate) fn run(project: &Project) -> TaskResult<ExitCode> {
    let toolbox = Toolbox::open(project)?;
    let probes = probes(project)?;
    let dirs = ProbeDirs::new(&probes)?;
    let mut columns: Vec<(&str, Board)> = Vec::new();
    let binary = project.built("debug", "vambrace");
    for (name, command) in peers(&toolbox, &binary, &dirs) {
        match command {
            Some(command) => match dirs.board(command) {
                Ok(board) => columns.push((name, board)),
                Err(why) => println!("{name}: cannot start programs here: {why}"),
            },
            None => println!("{name}: cannot be installed here"),
        }
    }
    print_table(&columns);
    let gated = network::run(project, &toolbox, &dirs);
    dirs.remove();
    let gated = gated?;
    let ours = columns.iter().filter(|(name, _)| name.starts_with("vambrace"));
    let clean =
        ours.clone().count() > 0 && ours.clone().all(|(_, board)| board.values().all(|reached| !reached));
    Ok(if clean && gated { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the test program of the sandbox; returns its path.
fn probes(project: &Project) -> TaskResult<PathBuf> {
    let said = run_captured(project.cargo("test").args([
        "--package",
        "vambrace-sandbox",
        "--test",
        "real",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]))?;
    run_captured(project.cargo("build").args(["--package", "vambrace"]))?;
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let named = message.pointer("/target/name")?.as_str()? == "real";
        named.then(|| message.get("executable")?.as_str().map(PathBuf::from))?
    };
    said.lines().find_map(executable).ok_or_else(|| TaskError::new("the probes were not built"))
}

/// The directories that every peer gets.
struct ProbeDirs {
    root: PathBuf,
}

impl ProbeDirs {
    fn new(probes: &Path) -> TaskResult<Self> {
        let root = PathBuf::from(format!("/var/tmp/vambrace-scoreboard-{}", std::process::id()));
        let dirs = Self { root };
        for (name, text) in [
            ("project/plain.txt", "plain\n"),
            ("project/.env", "TOKEN=x\n"),
            ("project/deep/er/key.pem", "key\n"),
            ("outside/file", "outside\n"),
            ("home/.ssh/id_ed25519", "key\n"),
            ("state/ledger", "ledger\n"),
        ] {
            let path = dirs.path(name);
            let parent = path.parent().unwrap_or(&dirs.root);
            fs::create_dir_all(parent).when(|| format!("cannot create `{}`", parent.display()))?;
            fs::write(&path, text).when(|| format!("cannot write `{}`", path.display()))?;
        }
        fs::copy(probes, dirs.path("project/probes")).when(|| "cannot copy the probes".to_owned())?;
        if is_root() {
            dirs.hand_over(&dirs.root)?;
        }
        Ok(dirs)
    }

    /// Makes the user of the probes the owner of everything.
    fn hand_over(&self, path: &Path) -> TaskResult<()> {
        let said = || format!("cannot change the owner of `{}`", path.display());
        chown(path, Some(NOBODY), Some(NOBODY)).when(said)?;
        if path.is_dir() {
            for entry in fs::read_dir(path).when(said)? {
                self.hand_over(&entry.when(said)?.path())?;
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Runs every probe in its own process: a killed one does not stop the others.
    /// If no probe could be started, returns the first error message.
    fn board(&self, start: impl Fn(&str) -> Command) -> Result<Board, String> {
        let said = |error: std::io::Error| error.to_string();
        let list =
            Command::new(self.path("project/probes")).args(["probe", "names"]).output().map_err(said)?;
        let names = String::from_utf8_lossy(&list.stdout).into_owned();
        let mut board = Board::new();
        let mut started = false;
        let mut words = String::new();
        for name in names.lines() {
            let mut broker = unprivileged(&mut Command::new("sleep")).arg("1000").spawn().map_err(said)?;
            // A parent process that may be killed.
            let probe = start(name);
            let mut parent = Command::new("sh");
            parent.args(["-c", "\"$@\"; exit $?", "sh"]).arg(probe.get_program()).args(probe.get_args());
            let output = unprivileged(&mut parent)
                .current_dir(self.path("project"))
                .env("ESCAPE_ROOM", &self.root)
                .env("ESCAPE_BROKER", broker.id().to_string())
                .env("FAKE_API_KEY", "secret")
                .env("LD_BIND_NOW", "1")
                .env("HOME", self.path("home"))
                .env("VAMBRACE_HOME", self.path("own-state"))
                .stdin(Stdio::null())
                .output();
            let _ = (broker.kill(), broker.wait());
            let output = output.map_err(said)?;
            if words.is_empty() {
                words = String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned();
            }
            let answer = String::from_utf8_lossy(&output.stdout).into_owned();
            started |= answer.contains("blocked") || answer.contains("REACHED");
            board.insert(name.to_owned(), answer.contains("REACHED"));
            if !started && board.len() >= MAX_FAILED_STARTS {
                break;
            }
        }
        if started { Ok(board) } else { Err(words) }
    }

    fn remove(self) {
        // Failure only leaves temporary files behind.
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// After this many probes that could not be started, the peer is given up.
const MAX_FAILED_STARTS: usize = 5;
/// UID of `nobody`.
const NOBODY: u32 = 65534;

/// The same command as an unprivileged user.
fn unprivileged(command: &mut Command) -> &mut Command {
    if is_root() { command.uid(NOBODY).gid(NOBODY) } else { command }
}

type Start<'a> = Box<dyn Fn(&str) -> Command + 'a>;

fn peers<'a>(
    toolbox: &Toolbox<'_>,
    binary: &'a Path,
    dirs: &'a ProbeDirs,
) -> Vec<(&'static str, Option<Start<'a>>)> {
    let probes = dirs.path("project/probes");
    let with = move |program: PathBuf, words: Vec<String>, probes: PathBuf| -> Start<'a> {
        Box::new(move |probe| {
            let mut command = Command::new(&program);
            command.args(&words).arg(&probes).args(["probe", probe]);
            command
        })
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let ours = |words: &'static str| -> Start<'a> {
        let probes = probes.clone();
        Box::new(move |probe| {
            let mut command = Command::new(binary);
            command
                .args(words.split(' '))
                .args(["--env", "ESCAPE_*", "--workspace"])
                .arg(dirs.path("project"));
            command.arg("--").arg(&probes).args(["probe", probe]);
            command
        })
    };
    let system = |program: &str, package: &str, text: &str| {
        toolbox.system_program(program, package).then(|| with(program.into(), words(text), probes.clone()))
    };
    // srt needs these.
    for (program, package) in [("socat", "socat"), ("rg", "ripgrep")] {
        toolbox.system_program(program, package);
    }
    vec![
        (
            "bare",
            Some(Box::new({
                let probes = probes.clone();
                move |probe: &str| {
                    let mut command = Command::new(&probes);
                    command.args(["probe", probe]);
                    command
                }
            }) as Start<'a>),
        ),
        ("vambrace", Some(ours("sandbox run --memory 512M"))),
        (
            "bubblewrap",
            system(
                "bwrap",
                "bubblewrap",
                "--unshare-all --die-with-parent --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp",
            ),
        ),
        ("firejail", system("firejail", "firejail", "--quiet --noprofile --net=none --seccomp")),
        (
            "srt",
            toolbox
                .node_program("@anthropic-ai/sandbox-runtime", "srt")
                .map(|program| with(program, Vec::new(), probes.clone())),
        ),
        (
            "codex",
            toolbox
                .node_program("@openai/codex", "codex")
                .map(|program| with(program, words("sandbox --"), probes.clone())),
        ),
    ]
}

fn print_table(columns: &[(&str, Board)]) {
    let names: Vec<&String> = columns.first().map(|(_, board)| board.keys().collect()).unwrap_or_default();
    let head: Vec<String> = columns.iter().map(|(name, _)| format!("{name:>11}")).collect();
    println!("{:<36}{}", "probe", head.join(""));
    for name in names {
        let cells =
            columns.iter().map(|(_, board)| if board.get(name) == Some(&true) { "reached" } else { "-" });
        let cells: Vec<String> = cells.map(|cell| format!("{cell:>11}")).collect();
        println!("{name:<36}{}", cells.join(""));
    }
    let sums = columns.iter().map(|(_, board)| {
        let stopped = board.values().filter(|reached| !**reached).count();
        format!("{:>11}", format!("{stopped}/{}", board.len()))
    });
    println!("{:<36}{}", "stopped", sums.collect::<String>());
}
