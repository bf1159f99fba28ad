//! Runs another program: with its output shown, captured, or shown while the summary lines of test runners are counted.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    error::{TaskError, TaskResult, WithContext},
    tally::RunnerLines,
};

/// Runs a command with inherited output; returns whether it succeeded.
pub(crate) fn run_shown(command: &mut Command) -> TaskResult<bool> {
    let status =
        command.stdin(Stdio::null()).status().when(|| format!("cannot start {}", spelled(command)))?;
    Ok(status.success())
}

/// Runs a command with captured output and returns its stdout; an error contains everything it printed.
pub(crate) fn run_captured(command: &mut Command) -> TaskResult<String> {
    let output =
        command.stdin(Stdio::null()).output().when(|| format!("cannot start {}", spelled(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let printed = [output.stdout, output.stderr].concat();
    Err(TaskError::new(format!(
        "{} ended with {}\n{}",
        spelled(command),
        output.status,
        String::from_utf8_lossy(&printed).trim_end()
    )))
}

/// Runs it and returns everything it printed, standard error first, whatever its exit code.
pub(crate) fn run_output(command: &mut Command) -> TaskResult<String> {
    let output =
        command.stdin(Stdio::null()).output().when(|| format!("cannot start {}", spelled(command)))?;
    Ok(String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned())
}

/// Runs a command with its output shown, and reads the summary lines of its test runner: the counts, the tests that failed,
/// and those that passed only when repeated.
pub(crate) fn run_counted(command: &mut Command) -> TaskResult<(bool, RunnerLines)> {
    if std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    // One pipe for both streams keeps the lines in order.
    let (reader, writer) = std::io::pipe().when(|| "cannot create a pipe".to_owned())?;
    let second = writer.try_clone().when(|| "cannot create a pipe".to_owned())?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(second)
        .spawn()
        .when(|| format!("cannot start {}", spelled(command)))?;
    // The command holds the write ends; without this the reader would wait forever.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let mut lines = RunnerLines::default();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let mut out = std::io::stdout().lock();
    while reader.read_until(b'\n', &mut line).when(|| "cannot read the output of a program".to_owned())? > 0 {
        lines.read(&String::from_utf8_lossy(&line));
        // A closed stdout must not stop the tests.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        line.clear();
    }
    let status = child.wait().when(|| format!("cannot wait for {}", spelled(command)))?;
    Ok((status.success(), lines))
}

/// The path of a program in `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// `PATH` with one directory prepended.
pub(crate) fn path_with(dir: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(dir.to_path_buf()).chain(std::env::split_paths(&path));
    std::env::join_paths(dirs).unwrap_or(path)
}

fn spelled(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    format!("`{}`", words.join(" "))
}
