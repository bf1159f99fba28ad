//! Third-party clients over stdio against `vambrace mcp`: the Python SDK for both revisions of the protocol, and the MCP
//! Inspector. A client only reports what it received; the expectations are here, for all of them.
//!
//! The clients are pinned in `tests/interop/` and installed into `.tools/` by `cargo xtask test`. If one is missing, the test
//! fails.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

const HANDSHAKE: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";
const METHOD_NOT_FOUND: i64 = -32601;

#[test]
fn python_sdk_2_speaks_the_newest_revision() {
    let project = Project::new();
    let seen = project.ask_python("mcp-2", "sdk2.py", "auto");
    project.check(&seen, STATELESS);
    check_undeclared(&seen);
}

#[test]
fn python_sdk_2_speaks_the_revision_with_a_handshake() {
    let project = Project::new();
    let seen = project.ask_python("mcp-2", "sdk2.py", "legacy");
    project.check(&seen, HANDSHAKE);
    check_undeclared(&seen);
}

#[test]
fn python_sdk_1_speaks_the_revision_with_a_handshake() {
    let project = Project::new();
    let seen = project.ask_python("mcp-1", "sdk1.py", "legacy");
    project.check(&seen, HANDSHAKE);
    check_undeclared(&seen);
}

#[test]
fn inspector_speaks_the_newest_revision() {
    let project = Project::new();
    project.check(&project.ask_inspector("modern"), STATELESS);
}

#[test]
fn inspector_speaks_the_revision_with_a_handshake() {
    let project = Project::new();
    project.check(&project.ask_inspector("legacy"), HANDSHAKE);
}

/// Methods of undeclared capabilities (prompts, resources) return an error.
fn check_undeclared(seen: &Value) {
    assert_eq!(seen["refused"]["prompts/list"], METHOD_NOT_FOUND, "{seen:#}");
    assert_eq!(seen["refused"]["resources/list"], METHOD_NOT_FOUND, "{seen:#}");
}

/// A small project with its own state directory.
struct Project {
    folder: TempDir,
    vambrace: PathBuf,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let project = Self { folder, vambrace: built("vambrace") };
        std::fs::create_dir_all(project.workspace().join("src")).unwrap();
        std::fs::write(project.workspace().join("a.txt"), "first line\nneedle here\n").unwrap();
        std::fs::write(project.workspace().join("src/b.txt"), "needle there\n").unwrap();
        let init = project
            .command(&project.vambrace)
            .arg("init")
            .arg("--workspace")
            .arg(project.workspace())
            .output();
        checked_stdout(&init.unwrap(), "vambrace init");
        project
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    /// The environment of the server, without variables of the test process.
    fn environment(&self) -> [(&'static str, PathBuf); 4] {
        let home = self.folder.path().join("home");
        [
            ("VAMBRACE_HOME", self.folder.path().join("state")),
            ("XDG_CONFIG_HOME", home.join("config")),
            ("XDG_STATE_HOME", home.join("state")),
            ("HOME", home),
        ]
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment()).stdin(Stdio::null());
        command
    }

    fn server(&self) -> Vec<String> {
        [&*self.vambrace.to_string_lossy(), "mcp", "--workspace", &*self.workspace().to_string_lossy()]
            .map(str::to_owned)
            .to_vec()
    }

    fn ask_python(&self, venv: &str, script: &str, mode: &str) -> Value {
        let environment: serde_json::Map<String, Value> =
            self.environment().into_iter().map(|(name, path)| (name.to_owned(), json!(path))).collect();
        let calls: Vec<Value> = CALLS
            .iter()
            .map(|call| json!({"name": call.name, "tool": call.tool, "arguments": call.arguments()}))
            .collect();
        let order = json!({"command": self.server(), "env": environment, "mode": mode, "calls": calls});
        let mut client = self
            .command(&tool(venv).join("bin/python"))
            .arg(here().join("interop").join(script))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        client.stdin.take().unwrap().write_all(order.to_string().as_bytes()).unwrap();
        let output = client.wait_with_output().unwrap();
        serde_json::from_str(&checked_stdout(&output, script)).expect("a client prints one JSON document")
    }

    /// The Inspector starts a new server for each request.
    fn ask_inspector(&self, era: &str) -> Value {
        // It passes on only variables that are named.
        let environment: Vec<String> = self
            .environment()
            .iter()
            .flat_map(|(name, path)| ["-e".to_owned(), format!("{name}={}", path.display())])
            .collect();
        let ask = |more: &[&str]| -> Value {
            let output = self
                .command(&tool("bin/node"))
                .arg(tool("npm/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"))
                .args(["--cli", "--format", "json", "--quiet", "--protocol-era", era])
                .args(self.server())
                .args(&environment)
                .args(more)
                .output()
                .unwrap();
            // Exit status 5: the tool returned `isError`.
            let answer = serde_json::from_slice::<Value>(&output.stdout);
            match (output.status.code(), answer) {
                (Some(0 | 5), Ok(mut answer)) => answer["result"].take(),
                _ => panic!("inspector {more:?} ended with {}: {}", output.status, all_output(&output)),
            }
        };
        let mut calls = json!({});
        for call in CALLS {
            let arguments = call.arguments().to_string();
            calls[call.name] =
                ask(&["--method", "tools/call", "--tool-name", call.tool, "--tool-args-json", &arguments]);
        }
        json!({
            "protocol": ask(&["--method", "initialize"])["protocolVersion"],
            // `--strict` fails on schemas that other clients could not read.
            "tools": ask(&["--method", "tools/list", "--strict"])["tools"],
            "calls": calls,
        })
    }

    /// What every client must have received.
    fn check(&self, seen: &Value, protocol: &str) {
        assert_eq!(seen["protocol"], protocol);

        for name in ["read_file", "list_files", "search_file", "count_matches"] {
            let tools = seen["tools"].as_array().expect("a list of tools");
            let tool = tools.iter().find(|tool| tool["name"] == name);
            let tool = tool.unwrap_or_else(|| panic!("`{name}` is not listed: {:#}", seen["tools"]));
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool:#}");
            assert_eq!(tool["outputSchema"]["type"], "object", "{tool:#}");
            assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool:#}");
        }

        let calls = &seen["calls"];
        for name in ["read", "list", "search"] {
            assert_ne!(calls[name]["isError"], true, "{name}: {:#}", calls[name]);
            assert_eq!(calls[name]["structuredContent"]["status"], "success", "{name}: {:#}", calls[name]);
            assert!(calls[name]["content"][0]["text"].is_string(), "{name}: {:#}", calls[name]);
        }
        let data = |name: &str| &calls[name]["structuredContent"]["data"];
        assert_eq!(data("read")["content"], "first line\nneedle here\n");
        let listed: Vec<&Value> =
            data("list")["files"].as_array().unwrap().iter().map(|file| &file["name"]).collect();
        assert!(listed.contains(&&json!("a.txt")), "{listed:?}");
        assert!(!listed.contains(&&json!(".vambrace")), "{listed:?}");
        let found = &data("search")["matches"];
        assert_eq!((&found[0]["path"], &found[0]["line"]), (&json!("a.txt"), &json!(2)), "{found:#}");

        let outside = &calls["outside"];
        assert_eq!(outside["isError"], true, "{outside:#}");
        assert_eq!(outside["structuredContent"]["status"], "error", "{outside:#}");
        assert_eq!(outside["structuredContent"]["error"]["code"], "ScopeViolation", "{outside:#}");
    }
}

/// One call of a tool.
struct Call {
    name: &'static str,
    tool: &'static str,
    arguments: &'static [(&'static str, &'static str)],
}

impl Call {
    fn arguments(&self) -> Value {
        self.arguments.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
    }
}

const CALLS: &[Call] = &[
    Call { name: "read", tool: "read_file", arguments: &[("path", "a.txt")] },
    Call { name: "list", tool: "list_files", arguments: &[("path", ".")] },
    Call { name: "search", tool: "search_file", arguments: &[("path", "a.txt"), ("regex", "needle")] },
    Call { name: "outside", tool: "read_file", arguments: &[("path", "../x")] },
];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A program that `cargo xtask test` installed.
fn tool(path: &str) -> PathBuf {
    let tools = std::env::var_os("VAMBRACE_TOOLS").map_or_else(|| here().join("../.tools"), PathBuf::from);
    let path = tools.join(path);
    assert!(path.exists(), "`{}` is missing: run `cargo xtask test`, which installs it", path.display());
    path
}

/// A binary of this project, next to the directory of the test executables unless `VAMBRACE_BIN` names another.
fn built(name: &str) -> PathBuf {
    let path = std::env::var_os("VAMBRACE_BIN").map_or_else(
        || {
            let mut path = std::env::current_exe().unwrap();
            path.pop();
            path.pop();
            path.join(name)
        },
        PathBuf::from,
    );
    assert!(path.exists(), "`{}` is missing: run `cargo xtask test`, which builds it", path.display());
    path
}

/// The output of a program; panics if it failed.
fn checked_stdout(output: &Output, who: &str) -> String {
    assert!(output.status.success(), "{who} ended with {}: {}", output.status, all_output(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn all_output(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
