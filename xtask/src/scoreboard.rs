//! The escape probes under our walls and under those of others at their defaults, side by side.
//!
//! The probes are the program of the sandbox's tests (`real probe all`). Each peer gets the same folders; what it cannot
//! do here is said. A probe that gets through is not always a flaw of a peer: defaults differ in what they promise.
//!
//! Probes that get through do what they do: they trace, stop and end the process that started them. So nobody runs as
//! root here, and what they take for the broker and for their parent are stand-ins.

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
    fault::{Fault, Outcome, While},
    program::quietly,
    project::Project,
    toolbox::{Toolbox, is_root},
};

/// A probe's name and whether it got through.
type Board = BTreeMap<String, bool>;

pub(crate) fn run(project: &Project) -> Outcome<ExitCode> {
    let toolbox = Toolbox::open(project)?;
    let probes = probes(project)?;
    let stage = Stage::new(&probes)?;
    let mut columns: Vec<(&str, Board)> = Vec::new();
    let binary = project.built("debug", "vambrace");
    for (name, command) in peers(&toolbox, &binary, &stage) {
        match command {
            Some(command) => match stage.board(command) {
                Ok(board) => columns.push((name, board)),
                Err(why) => println!("{name}: starts nothing here: {why}"),
            },
            None => println!("{name}: cannot be installed here"),
        }
    }
    tell(&columns);
    let gated = network::run(project, &toolbox, &stage);
    stage.remove();
    let gated = gated?;
    let ours = columns.iter().filter(|(name, _)| name.starts_with("vambrace"));
    let clean =
        ours.clone().count() > 0 && ours.clone().all(|(_, board)| board.values().all(|reached| !reached));
    Ok(if clean && gated { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The test program of the sandbox, built.
fn probes(project: &Project) -> Outcome<PathBuf> {
    let said = quietly(project.cargo("test").args([
        "--package",
        "vambrace-sandbox",
        "--test",
        "real",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]))?;
    quietly(project.cargo("build").args(["--package", "vambrace"]))?;
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let named = message.pointer("/target/name")?.as_str()? == "real";
        named.then(|| message.get("executable")?.as_str().map(PathBuf::from))?
    };
    said.lines().find_map(executable).ok_or_else(|| Fault::new("the probes were not built"))
}

/// The same folders for everybody.
struct Stage {
    folder: PathBuf,
}

impl Stage {
    fn new(probes: &Path) -> Outcome<Self> {
        let folder = PathBuf::from(format!("/var/tmp/vambrace-scoreboard-{}", std::process::id()));
        let stage = Self { folder };
        for (name, text) in [
            ("project/plain.txt", "plain\n"),
            ("project/.env", "TOKEN=x\n"),
            ("project/deep/er/key.pem", "key\n"),
            ("outside/file", "outside\n"),
            ("home/.ssh/id_ed25519", "key\n"),
            ("state/ledger", "ledger\n"),
        ] {
            let path = stage.path(name);
            let parent = path.parent().unwrap_or(&stage.folder);
            fs::create_dir_all(parent).when(|| format!("cannot make `{}`", parent.display()))?;
            fs::write(&path, text).when(|| format!("cannot write `{}`", path.display()))?;
        }
        fs::copy(probes, stage.path("project/probes")).when(|| "cannot copy the probes".to_owned())?;
        if is_root() {
            stage.hand_over(&stage.folder)?;
        }
        Ok(stage)
    }

    /// Everything belongs to whom the probes run as.
    fn hand_over(&self, path: &Path) -> Outcome<()> {
        let said = || format!("cannot give `{}` away", path.display());
        chown(path, Some(NOBODY), Some(NOBODY)).when(said)?;
        if path.is_dir() {
            for entry in fs::read_dir(path).when(said)? {
                self.hand_over(&entry.when(said)?.path())?;
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs every probe, each by itself: one that is killed does not keep the others from running.
    /// What the first one said, when none was started.
    fn board(&self, start: impl Fn(&str) -> Command) -> Result<Board, String> {
        let said = |error: std::io::Error| error.to_string();
        let list =
            Command::new(self.path("project/probes")).args(["probe", "names"]).output().map_err(said)?;
        let names = String::from_utf8_lossy(&list.stdout).into_owned();
        let mut board = Board::new();
        let mut started = false;
        let mut words = String::new();
        for name in names.lines() {
            let mut broker = lowered(&mut Command::new("sleep")).arg("1000").spawn().map_err(said)?;
            // A parent that may be ended.
            let probe = start(name);
            let mut parent = Command::new("sh");
            parent.args(["-c", "\"$@\"; exit $?", "sh"]).arg(probe.get_program()).args(probe.get_args());
            let output = lowered(&mut parent)
                .current_dir(self.path("project"))
                .env("ESCAPE_ROOM", &self.folder)
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
            if !started && board.len() >= PATIENCE {
                break;
            }
        }
        if started { Ok(board) } else { Err(words) }
    }

    fn remove(self) {
        // Only rubbish would be left.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// After so many probes that were not even started, nobody waits for the others.
const PATIENCE: usize = 5;
/// The user that nobody is.
const NOBODY: u32 = 65534;

/// The same command as somebody without privileges.
fn lowered(command: &mut Command) -> &mut Command {
    if is_root() { command.uid(NOBODY).gid(NOBODY) } else { command }
}

type Start<'a> = Box<dyn Fn(&str) -> Command + 'a>;

fn peers<'a>(
    toolbox: &Toolbox<'_>,
    binary: &'a Path,
    stage: &'a Stage,
) -> Vec<(&'static str, Option<Start<'a>>)> {
    let probes = stage.path("project/probes");
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
                .arg(stage.path("project"));
            command.arg("--").arg(&probes).args(["probe", probe]);
            command
        })
    };
    let system = |program: &str, package: &str, text: &str| {
        toolbox.system_program(program, package).then(|| with(program.into(), words(text), probes.clone()))
    };
    // What srt wants to find.
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

fn tell(columns: &[(&str, Board)]) {
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
