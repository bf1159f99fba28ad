//! Blocked paths: names that agents can never read, list or search, at any depth, in any spelling. Matching ignores case,
//! Unicode compatibility forms, invisible characters and trailing dots and spaces, because a file system may fold them;
//! blocking a look-alike by mistake does no harm.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use unicode_normalization::UnicodeNormalization;

/// Blocked in every workspace. A trailing slash means the directory and everything below it.
pub(crate) const ALWAYS_BLOCKED: &[&str] = &[
    ".env",
    ".env~",
    ENV_FILES,
    ".envrc",
    ".git/",
    "secrets/",
    "node_modules/",
    "*.pem",
    "*id_rsa*",
    "*id_dsa*",
    "*id_ecdsa*",
    "*id_ed25519*",
    ".netrc",
    ".pgpass",
    ".vambrace/",
    ".vambrace-unfinished-*",
    ".agentzero_audit.jsonl",
];

/// Further environment files, except those with a suffix of [`SHAREABLE_SUFFIXES`].
const ENV_FILES: &str = ".env.*";

/// Suffixes of files that are made to be shared: `.env.*` does not block them. A more specific pattern does.
const SHAREABLE_SUFFIXES: &[&str] = &[".example", ".sample", ".template", ".dist", ".defaults"];

/// Blocked paths that a confined program may read, since build tools need them (T12).
const NEEDED_BY_PROGRAMS: &[&str] = &[".git/", "node_modules/"];

/// The patterns that are hidden from programs too, in every mode of the sandbox.
pub fn hidden_from_programs() -> impl Iterator<Item = &'static str> {
    ALWAYS_BLOCKED.iter().copied().filter(|name| is_hidden_from_programs(name))
}

/// Whether a blocked pattern is hidden from programs too. Every pattern of a configuration is, except the built-in ones that
/// build tools need.
#[must_use]
pub fn is_hidden_from_programs(pattern: &str) -> bool {
    !NEEDED_BY_PROGRAMS.contains(&pattern)
}

/// A pattern that is not a valid glob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern `{pattern}` is not a valid glob: {why}")]
pub struct BadPattern {
    /// The pattern, as written.
    pub pattern: String,
    /// The glob compiler's message.
    pub why: String,
}

/// A compiled list of blocked patterns.
#[derive(Debug, Clone)]
pub struct BlockList {
    set: GlobSet,
    patterns: Vec<String>,
}

impl BlockList {
    /// Compiles the patterns. A pattern without a slash (other than a trailing one) matches a name at any depth; one with
    /// a slash is relative to the root of the zone; a leading `**/` means any depth.
    pub fn new<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Result<Self, BadPattern> {
        let mut set = GlobSetBuilder::new();
        let mut texts = Vec::new();
        for pattern in patterns {
            let pattern = pattern.as_ref();
            let bad = |why: String| BadPattern { pattern: pattern.to_owned(), why };
            let body = fold(pattern.trim_end_matches('/'));
            let body = body.strip_suffix("/**").unwrap_or(&body);
            let body = body.trim_start_matches("./").trim_start_matches('/');
            if body.is_empty() {
                return Err(bad("it is empty".to_owned()));
            }
            let anchored = if body.contains('/') { body.to_owned() } else { format!("**/{body}") };
            let glob = GlobBuilder::new(&anchored)
                .literal_separator(true)
                .build()
                .map_err(|error| bad(error.kind().to_string()))?;
            set.add(glob);
            texts.push(pattern.to_owned());
        }
        let set =
            set.build().map_err(|error| BadPattern { pattern: texts.join(", "), why: error.to_string() })?;
        Ok(Self { set, patterns: texts })
    }

    /// The built-in list plus further patterns.
    pub fn with_defaults<S: AsRef<str>>(further: &[S]) -> Result<Self, BadPattern> {
        Self::new(ALWAYS_BLOCKED.iter().copied().chain(further.iter().map(AsRef::as_ref)))
    }

    /// The pattern that blocks this path or one of its parents; `relative` as in
    /// [`crate::path::ScopedPath::relative`].
    #[must_use]
    pub fn blocks(&self, relative: &str) -> Option<&str> {
        let folded = fold(relative);
        let mut end = 0;
        while end < folded.len() {
            end =
                folded.get(end + 1..).and_then(|rest| rest.find('/')).map_or(folded.len(), |at| end + 1 + at);
            if let Some(hit) = self.match_folded(folded.get(..end)?) {
                return Some(hit);
            }
        }
        None
    }

    /// Like [`Self::blocks`] for an entry whose parents are known not to be blocked: one match instead of one for each
    /// parent. For directory walks.
    #[must_use]
    pub fn blocks_entry(&self, relative: &str) -> Option<&str> {
        self.match_folded(&fold(relative))
    }

    fn match_folded(&self, folded: &str) -> Option<&str> {
        let folded_path = Candidate::new(folded);
        // Usually nothing matches, and finding out which pattern matches is slower.
        if !self.set.is_match_candidate(&folded_path) {
            return None;
        }
        let hits = self.set.matches_candidate(&folded_path);
        let mut patterns = hits.iter().filter_map(|hit| self.patterns.get(*hit)).map(String::as_str);
        patterns.find(|pattern| *pattern != ENV_FILES || !is_shareable(folded))
    }
}

fn is_shareable(folded: &str) -> bool {
    SHAREABLE_SUFFIXES.iter().any(|ending| folded.ends_with(ending))
}

/// Folds a path to the form in which it is compared with patterns.
fn fold(path: &str) -> String {
    let folded: String = if path.is_ascii() {
        path.to_ascii_lowercase()
    } else {
        path.chars().filter(|c| !is_ignorable(*c)).nfkc().flat_map(char::to_lowercase).collect()
    };
    if !folded.contains(|c: char| c == '.' || c.is_whitespace()) {
        return folded;
    }
    let mut out = String::with_capacity(folded.len());
    for (at, name) in folded.split('/').enumerate() {
        if at > 0 {
            out.push('/');
        }
        let trimmed = name.trim_end_matches(|c: char| c == '.' || c.is_whitespace());
        out.push_str(if trimmed.is_empty() { name } else { trimmed });
    }
    out
}

/// The letters of a text as a person reads them: compatibility forms folded, everything else dropped.
pub fn folded_letters(text: &str) -> impl Iterator<Item = char> + '_ {
    let seen = text.chars().filter(|c| !is_ignorable(*c));
    seen.nfkc().filter(|c| c.is_alphabetic()).flat_map(char::to_lowercase)
}

/// Invisible characters that some file systems ignore when they compare names.
#[must_use]
pub fn is_ignorable(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{3164}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{ffa0}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, blocked: bool) {
        let list = BlockList::with_defaults(&["config/prod/", "**/*.key", "exact/one.txt"]).unwrap();
        assert_eq!(list.blocks(path).is_some(), blocked, "{path}");
    }

    // T12, B4
    #[test]
    fn paths_are_blocked_at_any_depth_and_in_any_spelling() {
        for path in [
            ".env",
            "a/b/.env",
            ".ENV",
            ".env.",
            ".env ",
            ".git/config",
            "x/.git/hooks/pre-commit",
            ".GIT/config",
            "secrets/a",
            "a/secrets/b/c",
            "node_modules/x/y.js",
            "k.pem",
            "a/K.PEM",
            "id_rsa",
            "my_id_rsa.bak",
            ".g\u{200c}it/config",
            "．env",
            ".\u{ff45}nv",
            "config/prod/x",
            "deep/er.key",
            "exact/one.txt",
            ".vambrace/config.yaml",
            ".env/x",
            ".env.production",
            ".env.prod",
            "a/.ENV.Prod",
            ".env.local.php",
            ".env.example.local",
            ".env.example.bak",
            ".env.example~",
            ".env.examples",
            ".env.dist/.env",
            ".env.prod/example.example",
            ".env.\u{ff50}rod",
            ".env.prod .",
        ] {
            check(path, true);
        }
        for path in [
            "",
            "src/main.rs",
            "environment",
            ".env.example",
            "a/.env.EXAMPLE",
            ".env.sample",
            ".env.template",
            ".env.dist",
            ".env.defaults",
            ".env.production.example",
            "env",
            "gitignore",
            ".gitignore",
            ".github/x",
            "secret",
            "secretsx/a",
            "a.pem.txt",
            "other/config/prod/x",
            "x/exact/one.txt",
            "pem",
        ] {
            check(path, false);
        }
    }

    // B4: sample files are shareable unless a pattern names them
    #[test]
    fn pattern_that_names_a_sample_file_blocks_it() {
        for pattern in [".env.example", "**/.env.*", ".env*"] {
            let list = BlockList::with_defaults(&[pattern]).unwrap();
            assert_eq!(list.blocks("a/.env.example"), Some(pattern));
        }
    }

    #[test]
    fn invalid_patterns_are_named_in_the_error() {
        assert_eq!(BlockList::new(["a[", "b"]).unwrap_err().pattern, "a[");
        assert!(BlockList::new(["/"]).is_err());
    }
}
