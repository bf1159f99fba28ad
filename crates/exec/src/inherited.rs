//! What a program inherits from the process that starts it, and which of its environment variables are passed on.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use vambrace_core::tool::wildcard;

/// Variables of Vambrace itself, such as the approver's passphrase: no program gets them, whatever it asks for.
const OWN_PREFIX: &[u8] = b"VAMBRACE_";
/// Where `/proc` does not tell.
const USUAL_UMASK: u32 = 0o022;

/// Environment and umask of the process that starts a program.
#[derive(Debug, Clone)]
pub struct Inherited {
    /// Its environment variables.
    pub variables: Vec<(OsString, OsString)>,
    /// The home directory whose toolchains the program sees.
    pub home: Option<PathBuf>,
    /// The directories of `PATH`.
    pub path: Vec<PathBuf>,
    /// The file mode creation mask.
    pub umask: u32,
}

impl Inherited {
    /// Of the calling process.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads what a program may inherit")]
    #[must_use]
    pub fn of_this_process() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        let path = std::env::var_os("PATH");
        Self {
            variables: std::env::vars_os().collect(),
            home: std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute()),
            path: path.map(|path| std::env::split_paths(&path).collect()).unwrap_or_default(),
            umask: umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok()).unwrap_or(USUAL_UMASK),
        }
    }

    /// Whether a variable is one of Vambrace itself.
    pub(crate) fn is_own(name: &OsStr) -> bool {
        name.as_encoded_bytes().to_ascii_uppercase().starts_with(OWN_PREFIX)
    }

    /// The variables whose names match one of the patterns.
    pub(crate) fn selected(&self, patterns: &[String]) -> Vec<(OsString, OsString)> {
        let is_selected = |name: &OsStr| {
            let matches = |name: &str| patterns.iter().any(|pattern| wildcard(pattern, name));
            !Self::is_own(name) && name.to_str().is_some_and(matches)
        };
        self.variables.iter().filter(|(name, _)| is_selected(name)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P5
    #[test]
    fn own_variables_are_never_passed_on() {
        let variables =
            [("VAMBRACE_PASSPHRASE", "a"), ("Vambrace_Token", "b"), ("LANG", "C"), ("VAMBRACE", "d")];
        let variables = variables.map(|(name, value)| (name.into(), value.into())).to_vec();
        let inherited = Inherited { variables, home: None, path: Vec::new(), umask: 0o022 };
        let names = |patterns: &[&str]| -> Vec<String> {
            let patterns: Vec<String> = patterns.iter().map(|one| (*one).to_owned()).collect();
            let selected = inherited.selected(&patterns);
            selected.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
        };
        assert_eq!(names(&["*"]), ["LANG", "VAMBRACE"]);
        assert_eq!(names(&["VAMBRACE_PASSPHRASE", "Vambrace_*"]), [""; 0]);
    }

    #[test]
    fn umask_of_this_process_is_read_without_changing_it() {
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
        assert_eq!(Inherited::of_this_process().umask, 0o027);
        assert_eq!(rustix::process::umask(before).as_raw_mode(), 0o027);
    }
}
