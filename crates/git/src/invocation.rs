//! One call of git: arguments, the whole environment, standard input.
//!
//! **Invariants.** The environment is complete; the caller's own is not inherited. Git reads no configuration of the system or the
//! user, finds no home directory, can ask nobody, may use no transport unless the invocation is a push, and takes the last
//! value of every setting from [`NeutralizedConfig`](crate::NeutralizedConfig).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::repository::Repository;

/// A home directory that does not exist: no `.netrc`, no ignore file, no includes.
const NO_HOME: &str = "/nonexistent";

/// What is the same for every invocation.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("HOME", NO_HOME),
    ("XDG_CONFIG_HOME", NO_HOME),
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("TERM", "dumb"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_PAGER", "cat"),
    // Git starts nothing for an editor of this name.
    ("GIT_EDITOR", ":"),
    ("GIT_SEQUENCE_EDITOR", ":"),
    // Set and empty: neither the configuration nor SSH_ASKPASS is asked.
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_SSH_VARIANT", "ssh"),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_GRAFT_FILE", "/dev/null"),
    ("GIT_LITERAL_PATHSPECS", "1"),
];

/// What an invocation does to the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitAccess {
    /// Reads it. Comparing may refresh the times in the index, if it can; nothing depends on that.
    Read,
    /// Writes objects, the index or refs.
    WriteRepository,
    /// Writes files of the working tree too.
    WriteWorkTree,
    /// Connects to a remote.
    Push,
}

/// One call of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitInvocation {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// All environment variables.
    pub environment: Vec<(OsString, OsString)>,
    /// Where to run it: the root of the working tree.
    pub working_directory: PathBuf,
    /// Standard input; never the caller's.
    pub stdin: Vec<u8>,
    /// What it does.
    pub access: GitAccess,
}

/// The transport and the ssh command of a push.
#[derive(Debug, Clone, Default)]
pub(crate) struct InvocationTransport {
    pub(crate) protocol: Option<&'static str>,
    pub(crate) ssh_command: Option<String>,
    pub(crate) settings: Vec<(String, String)>,
}

impl GitInvocation {
    pub(crate) fn new(
        repository: &Repository,
        program: &OsStr,
        search_path: &OsStr,
        access: GitAccess,
        transport: &InvocationTransport,
    ) -> Self {
        let mut invocation = Self {
            argv: vec![program.to_owned(), "--no-pager".into()],
            environment: Vec::new(),
            working_directory: repository.layout().work_tree().to_owned(),
            stdin: Vec::new(),
            access,
        };
        invocation.set("PATH", search_path);
        for (name, value) in ENVIRONMENT {
            invocation.set(name, value);
        }
        invocation.set("GIT_DIR", repository.layout().git_dir());
        invocation.set("GIT_COMMON_DIR", repository.layout().common_dir());
        invocation.set("GIT_WORK_TREE", repository.layout().work_tree());
        // No transport has the name `none`.
        invocation.set("GIT_ALLOW_PROTOCOL", transport.protocol.unwrap_or("none"));
        invocation.set("GIT_SSH_COMMAND", transport.ssh_command.as_deref().unwrap_or("false"));
        if access == GitAccess::Read {
            invocation.set("GIT_OPTIONAL_LOCKS", "0");
        }
        invocation.set_config(repository, transport);
        invocation
    }

    /// Sets a variable.
    pub(crate) fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.environment.push((name.into(), value.as_ref().to_owned()));
    }

    pub(crate) fn arguments<A: AsRef<OsStr>>(&mut self, arguments: impl IntoIterator<Item = A>) {
        self.argv.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
    }

    fn set_config(&mut self, repository: &Repository, transport: &InvocationTransport) {
        let overrides =
            repository.neutralized().overrides().iter().map(|(key, value)| (key.as_slice(), *value));
        let own = transport.settings.iter().map(|(key, value)| (key.as_bytes(), value.as_str()));
        let mut count = 0;
        for (key, value) in overrides.chain(own) {
            self.set(&format!("GIT_CONFIG_KEY_{count}"), OsStr::from_bytes(key));
            self.set(&format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        self.set("GIT_CONFIG_COUNT", count.to_string());
    }
}
