//! Running another program: aloud, quietly, or aloud while its closing lines are counted.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    fault::{Fault, Outcome, While},
    tally::Tally,
};

/// Runs it with our own output; whether it ended well.
pub(crate) fn aloud(command: &mut Command) -> Outcome<bool> {
    let status =
        command.stdin(Stdio::null()).status().when(|| format!("cannot start {}", spelled(command)))?;
    Ok(status.success())
}

/// Runs it without a word and returns its stdout; a failure shows everything it said.
pub(crate) fn quietly(command: &mut Command) -> Outcome<String> {
    let output =
        command.stdin(Stdio::null()).output().when(|| format!("cannot start {}", spelled(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(Fault::new(format!(
        "{} ended with {}\n{}",
        spelled(command),
        output.status,
        String::from_utf8_lossy(&said).trim_end()
    )))
}

/// Runs it aloud and adds up the closing lines of the test runner in it.
pub(crate) fn counted(command: &mut Command) -> Outcome<(bool, Tally)> {
    if std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    // One pipe for both streams keeps the lines in the order in which they were said.
    let (reader, writer) = std::io::pipe().when(|| "cannot make a pipe".to_owned())?;
    let second = writer.try_clone().when(|| "cannot make a pipe".to_owned())?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(second)
        .spawn()
        .when(|| format!("cannot start {}", spelled(command)))?;
    // The command holds the writing ends; without this the reader would wait for ourselves.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let mut tally = Tally::default();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let mut out = std::io::stdout().lock();
    while reader.read_until(b'\n', &mut line).when(|| "cannot read what a program says".to_owned())? > 0 {
        if let Some(closing) = Tally::of_line(&String::from_utf8_lossy(&line)) {
            tally += closing;
        }
        // A closed stdout must not keep the tests from ending.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        line.clear();
    }
    let status = child.wait().when(|| format!("cannot wait for {}", spelled(command)))?;
    Ok((status.success(), tally))
}

/// Where a program is, if the `PATH` has it.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// `PATH` with one folder before the others.
pub(crate) fn path_with(folder: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).unwrap_or(path)
}

fn spelled(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    format!("`{}`", words.join(" "))
}
