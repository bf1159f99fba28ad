//! MCP clients: the path of each configuration file, and the text to paste there. The files may contain secrets: they are only
//! searched for the name of this program, and never printed.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::paths::Paths;
use crate::system::variable;

/// Maximum bytes read from a client's file.
const MAX_CLIENT_FILE_BYTES: u64 = 16 << 20;

/// An MCP client.
#[derive(Debug)]
pub struct McpClient {
    /// Its name.
    pub name: &'static str,
    /// Its configuration file: the first that exists, else the one to create.
    pub file: PathBuf,
    /// Whether the file exists.
    pub exists: bool,
    /// The text to paste.
    pub snippet: String,
    /// A command with the same effect.
    pub command: Option<String>,
}

/// All known clients, the installed ones first.
#[must_use]
pub fn mcp_clients(paths: &Paths, project: &Path, program: &Path) -> Vec<McpClient> {
    let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
    // A client starts the server with its own environment, so VAMBRACE_HOME must be in its configuration.
    let state = variable("VAMBRACE_HOME").map(|_| paths.state());
    let mut clients = listed(project, &home, &program.display().to_string(), state);
    clients.sort_by_key(|client| !client.exists);
    clients
}

impl McpClient {
    /// Whether its file contains the name of this program.
    pub(crate) fn names_us(&self) -> bool {
        // Non-blocking: the file could be a FIFO.
        let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits().cast_signed();
        let opened = File::options().read(true).custom_flags(flags).open(&self.file);
        let mut bytes = Vec::new();
        let read = opened.and_then(|file| file.take(MAX_CLIENT_FILE_BYTES).read_to_end(&mut bytes));
        read.is_ok() && String::from_utf8_lossy(&bytes).contains("vambrace")
    }
}

fn listed(project: &Path, home: &Path, program: &str, state: Option<&Path>) -> Vec<McpClient> {
    let dir = project.display().to_string();
    let state = state.map(|state| state.display().to_string());
    let args = json!(["mcp", "--workspace", dir]);
    let mut server = json!({"command": program, "args": args});
    let mut stdio = json!({"type": "stdio", "command": program, "args": args});
    let (mut flag, mut toml, mut yaml) = (String::new(), String::new(), "{}".to_owned());
    if let Some(state) = &state {
        let env = json!({"VAMBRACE_HOME": state});
        flag = format!("--env {} ", shell_quoted(&format!("VAMBRACE_HOME={state}")));
        toml = format!("\nenv = {{ VAMBRACE_HOME = {} }}", json!(state));
        yaml = env.to_string();
        for object in [&mut server, &mut stdio].into_iter().filter_map(Value::as_object_mut) {
            object.insert("env".to_owned(), env.clone());
        }
    }
    let client = |name, files: &[PathBuf], snippet, command| {
        let found = files.iter().find(|file| file.is_file());
        let file = found.or(files.first()).cloned().unwrap_or_default();
        McpClient { name, file, exists: found.is_some(), snippet, command }
    };
    let after = format!("-- {} mcp --workspace {}", shell_quoted(program), shell_quoted(&dir));
    vec![
        client(
            "Claude Code",
            &[project.join(".mcp.json"), home.join(".claude.json")],
            laid_out(&json!({"mcpServers": {"vambrace": stdio}})),
            Some(format!("claude mcp add vambrace {flag}{after}")),
        ),
        client(
            "Codex",
            &[home.join(".codex/config.toml")],
            format!("[mcp_servers.vambrace]\ncommand = {}\nargs = {args}{toml}", json!(program)),
            Some(format!("codex mcp add vambrace {flag}{after}")),
        ),
        client(
            "VS Code",
            &[project.join(".vscode/mcp.json")],
            laid_out(&json!({"servers": {"vambrace": stdio}})),
            None,
        ),
        client(
            "Cursor",
            &[project.join(".cursor/mcp.json"), home.join(".cursor/mcp.json")],
            laid_out(&json!({"mcpServers": {"vambrace": server}})),
            None,
        ),
        client(
            "Goose",
            &[home.join(".config/goose/config.yaml")],
            format!(
                "extensions:\n  vambrace:\n    enabled: true\n    type: stdio\n    name: vambrace\n    \
                 description: governed tools for this project\n    cmd: {}\n    args: {args}\n    envs: {yaml}\n    timeout: 300",
                json!(program)
            ),
            None,
        ),
    ]
}

fn laid_out(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

/// Quotes a word for a shell.
#[must_use]
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+' | ',' | ':' | '@' | '=')
    };
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippets_of_all_clients_have_the_same_content() {
        let clients =
            listed(Path::new("/a b/\"p\""), Path::new("/nowhere"), "/opt/vambrace", Some(Path::new("/s t")));
        let args = json!(["mcp", "--workspace", "/a b/\"p\""]);
        let json_at = |name: &str, key: &str| {
            let client = clients.iter().find(|client| client.name == name).unwrap();
            serde_json::from_str::<Value>(&client.snippet).unwrap()[key]["vambrace"].clone()
        };
        for server in [
            json_at("Claude Code", "mcpServers"),
            json_at("Cursor", "mcpServers"),
            json_at("VS Code", "servers"),
        ] {
            assert_eq!((&server["command"], &server["args"]), (&json!("/opt/vambrace"), &args));
            assert_eq!(server["env"], json!({"VAMBRACE_HOME": "/s t"}));
        }
        assert_eq!(json_at("VS Code", "servers")["type"], "stdio");
        let text = |name: &str| clients.iter().find(|client| client.name == name).unwrap().snippet.clone();
        let codex = text("Codex");
        assert!(codex.contains(r#"args = ["mcp","--workspace","/a b/\"p\""]"#), "{codex}");
        assert!(codex.ends_with(r#"env = { VAMBRACE_HOME = "/s t" }"#), "{codex}");
        assert!(text("Goose").contains("    cmd: \"/opt/vambrace\"\n"), "{}", text("Goose"));
        let command = clients[0].command.as_deref().unwrap();
        assert!(command.ends_with("--workspace '/a b/\"p\"'"), "{command}");
        assert!(clients.iter().all(|client| !client.exists));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a temporary home directory")]
    fn installed_client_is_found_with_its_file() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join(".cursor")).unwrap();
        std::fs::write(temp.path().join(".cursor/mcp.json"), "{\"vambrace\": 1}").unwrap();
        let clients = listed(Path::new("/nowhere"), temp.path(), "v", None);
        let cursor = clients.iter().find(|client| client.name == "Cursor").unwrap();
        assert!(cursor.exists && cursor.names_us() && cursor.file.starts_with(temp.path()));
        assert!(
            clients
                .iter()
                .filter(|client| client.name != "Cursor")
                .all(|client| !client.exists && !client.names_us())
        );
    }
}
