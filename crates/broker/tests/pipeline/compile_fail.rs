//! What must not compile: performing without a committed start, and building by hand what only one step may build.
//! The compiler gets the programs of `tests/ui` with the crates that this test was built with; each must fail with
//! the errors listed beside it and no others.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

// T1: work is reachable only through the pipeline
#[test]
fn nothing_is_performed_without_a_committed_start() {
    let crates = built_crates();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let programs: Vec<PathBuf> = std::fs::read_dir(cases)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    assert!(programs.len() >= 6, "{programs:?}");
    for program in programs {
        let expected = std::fs::read_to_string(program.with_extension("stderr")).unwrap();
        assert_eq!(compiler_errors(&program, &crates), expected, "{}", program.display());
    }
}

/// The workspace's libraries as built for these tests; rebuilds only what is missing.
fn built_crates() -> Vec<(String, String)> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--workspace", "--bins", "--tests", "--offline", "--message-format=json"]);
    // The package variables of this test would make build scripts that read them run again.
    let of_package = |(name, _): &(OsString, OsString)| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for (name, _) in std::env::vars_os().filter(of_package) {
        cargo.env_remove(name);
    }
    let cargo = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let library = |line: &[u8]| {
        let message: Value = serde_json::from_slice(line).ok()?;
        let name = message["target"]["name"].as_str()?;
        let is_library = message["target"]["kind"][0] == "lib" && message["profile"]["test"] == false;
        let files = message["filenames"].as_array()?;
        let file = files.iter().find_map(|file| file.as_str().filter(|file| file.ends_with(".rlib")))?;
        (is_library && name.starts_with("vambrace_")).then(|| (name.to_owned(), file.to_owned()))
    };
    cargo.stdout.split(|byte| *byte == b'\n').filter_map(library).collect()
}

/// Compiler errors of a program: position, code and message, one per line.
fn compiler_errors(program: &Path, crates: &[(String, String)]) -> String {
    let dir = tempfile::TempDir::new().unwrap();
    let mut rustc = Command::new("rustc");
    rustc.current_dir(program.parent().unwrap()).arg(program.file_name().unwrap());
    rustc.args(["--edition=2024", "--emit=metadata", "--error-format=short", "--out-dir"]).arg(dir.path());
    for (name, file) in crates {
        let beside = Path::new(file).parent().unwrap().join("deps");
        rustc.arg("--extern").arg(format!("{name}={file}"));
        rustc.arg("-L").arg(format!("dependency={}", beside.display()));
        rustc.arg("-L").arg(format!("dependency={}", Path::new(file).parent().unwrap().display()));
    }
    let output = rustc.output().unwrap();
    assert!(!output.status.success(), "{} compiles", program.display());
    let said = String::from_utf8(output.stderr).unwrap();
    let errors = said.lines().filter(|line| line.contains(": error"));
    errors.map(|line| format!("{line}\n")).collect()
}
