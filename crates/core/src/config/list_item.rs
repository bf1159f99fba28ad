//! Strings in lists: globs, directories, hosts, tools, test cases. Validates them, normalizes them, and decides whether
//! one entry covers another.

use super::error::nearest;
use super::key::{Covers, ItemKind};
use super::keys::TOOL_GROUPS;
use crate::blocked_paths::BlockList;
use crate::glob::{GlobPurpose, GlobRoots, PathGlobs};
use crate::network::decide::ANY_HOST;
use crate::network::{NetworkRule, NetworkSubject};
use crate::tool;

/// Why a string is invalid: a message, and a hint that may be empty.
pub(crate) type InvalidItem = (String, String);

/// Hint for an invalid glob.
const GLOB_HINT: &str = "`*` matches any characters in a name, `**` any directories, `[ab]` and `{a,b}` one of these; `[[]` is a literal bracket";

/// Validates one string of a list and returns its normalized form.
pub(crate) fn normalize_item(item: ItemKind, text: &str) -> Result<String, InvalidItem> {
    if text.trim().is_empty() {
        return Err(("must not be empty".to_owned(), "write a value, or remove the entry".to_owned()));
    }
    match item {
        ItemKind::Text => Ok(text.to_owned()),
        ItemKind::Glob => path_glob(text),
        ItemKind::Block => match BlockList::new([text]) {
            Ok(_) => Ok(text.to_owned()),
            Err(bad) => Err((format!("is not a valid glob: {}", bad.why), GLOB_HINT.to_owned())),
        },
        ItemKind::Directory => directory(text),
        ItemKind::CreateDirectory => match text {
            "." | "./" => Ok(".".to_owned()),
            "**" => Ok("**".to_owned()),
            text => directory(text),
        },
        ItemKind::Tool => tool_pattern(text),
        ItemKind::Program => program(text),
        ItemKind::Host => host(text),
        ItemKind::Case => case(text),
        ItemKind::Choice(names) => choice(names, text),
    }
}

/// Validates one of a few names.
pub(crate) fn choice(names: &[&'static str], text: &str) -> Result<String, InvalidItem> {
    if names.contains(&text) {
        return Ok(text.to_owned());
    }
    let hint = match nearest(text, names.iter().copied()) {
        Some(near) => format!("the nearest valid value is `{near}`"),
        None => "write one of them exactly as shown".to_owned(),
    };
    Err((format!("must be one of {}", listed(names)), hint))
}

/// A list of names in backticks.
pub(crate) fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Normalizes a relative path: no `..`, not absolute, not in the home directory. `.` is the root itself.
pub(crate) fn normalize_path(text: &str) -> Result<String, InvalidItem> {
    let invalid = |why: &str| Err((why.to_owned(), "write it relative to the project root".to_owned()));
    if text.starts_with('/') {
        return invalid("must not be absolute");
    }
    if text.starts_with('~') {
        return invalid("must not start with `~`");
    }
    if text.contains(['\\', '\0']) || text.chars().any(char::is_control) {
        return invalid("must not contain backslashes or control characters");
    }
    let mut names = Vec::new();
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => return invalid("must not contain `..`"),
            name => names.push(name),
        }
    }
    Ok(if names.is_empty() { ".".to_owned() } else { names.join("/") })
}

fn directory(text: &str) -> Result<String, InvalidItem> {
    if text.contains(['*', '?', '[', '{']) {
        let plain = text.trim_end_matches('*').trim_end_matches('/');
        let hint = if plain.contains(['*', '?', '[', '{']) || plain.is_empty() {
            "list the directories: a directory includes everything below it".to_owned()
        } else {
            format!("write `{plain}/`: a directory includes everything below it")
        };
        return Err(("must be a directory, not a glob".to_owned(), hint));
    }
    match normalize_path(text)?.as_str() {
        "." => Err(("must be a directory below the root".to_owned(), "for example `src/`".to_owned())),
        path => Ok(format!("{path}/")),
    }
}

fn path_glob(text: &str) -> Result<String, InvalidItem> {
    let body = text.strip_prefix("project:").unwrap_or(text);
    if body.starts_with('/') || body.starts_with('~') {
        let hint = "paths are relative to the service root".to_owned();
        return Err(("must not be absolute".to_owned(), hint));
    }
    if body.split('/').any(|name| name == "..") {
        return Err((
            "must not contain `..`".to_owned(),
            "paths are relative to the service root".to_owned(),
        ));
    }
    if body.starts_with('!') {
        let hint = "a glob cannot exclude paths of another one; write a separate rule".to_owned();
        return Err(("must not begin with `!`".to_owned(), hint));
    }
    if body.chars().any(char::is_control) || body.split('/').any(|name| name != name.trim()) {
        let hint = "remove spaces at the start or end of a name, and control characters".to_owned();
        return Err(("is probably a mistake".to_owned(), hint));
    }
    match PathGlobs::new([text], GlobPurpose::Narrow, &GlobRoots::plain()) {
        Ok(_) => Ok(text.to_owned()),
        Err(bad) => Err((format!("is not a valid glob: {}", bad.why), GLOB_HINT.to_owned())),
    }
}

fn tool_pattern(text: &str) -> Result<String, InvalidItem> {
    if let Some(group) = text.strip_prefix("group:") {
        if TOOL_GROUPS.contains(&group) {
            return Ok(text.to_owned());
        }
        let hint = match nearest(group, TOOL_GROUPS.iter().copied()) {
            Some(near) => format!("the nearest valid group is `group:{near}`"),
            None => format!("groups: {}", TOOL_GROUPS.join(", ")),
        };
        return Err(("is not a known group of tools".to_owned(), hint));
    }
    // Accepts what `ToolDescriptor::matches_pattern` understands: a rule with any other pattern would never apply.
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.*".contains(c)) {
        return known_tool(text);
    }
    let hint = "use letters, digits, `_`, `-`, `.`, and `*` for any characters".to_owned();
    Err(("is not a tool, a tool pattern or `group:NAME`".to_owned(), hint))
}

fn known_tool(text: &str) -> Result<String, InvalidItem> {
    // A name far from every reserved one may be that of a declared tool; the policy checks it against the catalogue.
    match nearest(text, tool::RESERVED_TOOL_NAMES.iter().copied()) {
        Some(near) if !tool::is_reserved(text) => {
            Err(("is not a known tool".to_owned(), format!("the nearest tool is `{near}`")))
        }
        _ => Ok(text.to_owned()),
    }
}

fn program(text: &str) -> Result<String, InvalidItem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.+".contains(c);
    if text.chars().all(plain) && !text.starts_with(['-', '.']) {
        return Ok(text.to_owned());
    }
    Err((
        "must be the name of a program, without path and arguments".to_owned(),
        "it is looked up in the directories of PATH that agents cannot write".to_owned(),
    ))
}

fn case(text: &str) -> Result<String, InvalidItem> {
    match text.split_once(char::is_whitespace) {
        Some((tool, rest)) if !rest.trim().is_empty() => known_tool(tool).map(|_| text.to_owned()),
        _ => Err((
            "must be a tool and a path or command".to_owned(),
            "for example `read_file docs/a.md` or `execute_command git status`".to_owned(),
        )),
    }
}

fn host(text: &str) -> Result<String, InvalidItem> {
    if text.trim() == ANY_HOST {
        return Ok(ANY_HOST.to_owned());
    }
    if text.trim().starts_with('!') {
        let hint = "list denied hosts under `network.deny`".to_owned();
        return Err(("must not begin with `!`".to_owned(), hint));
    }
    NetworkRule::parse(text)
        .map(|rule| rule.canonical())
        .map_err(|bad| (format!("is not a host, an address or a network: {}", bad.why), bad.suggestion))
}

/// Whether `outer` permits everything that `inner` permits; both in normalized form.
pub(crate) fn covers(how: Covers, outer: &str, inner: &str) -> bool {
    if outer == inner {
        return true;
    }
    match how {
        Covers::Same => false,
        // The root level (`.`) contains no directory and is in none; `**` contains all.
        Covers::Directory => outer == "**" || (outer.ends_with('/') && inner.starts_with(outer)),
        Covers::Host => host_covers(outer, inner),
    }
}

fn host_covers(outer: &str, inner: &str) -> bool {
    let Ok(inner) = NetworkRule::parse(inner) else { return false };
    if outer == ANY_HOST {
        // `*` does not include special addresses: they must be listed explicitly.
        return match &inner.subject {
            NetworkSubject::Network(network) => network.is_ordinary(),
            _ => true,
        };
    }
    NetworkRule::parse(outer).is_ok_and(|outer| outer.covers(&inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(item: ItemKind, text: &str, expected: Option<&str>) {
        assert_eq!(normalize_item(item, text).ok().as_deref(), expected, "{item:?} {text}");
    }

    // T12, B4
    #[test]
    fn list_items_are_validated_and_normalized() {
        check(ItemKind::Directory, "./a//b", Some("a/b/"));
        check(ItemKind::Directory, "shared/", Some("shared/"));
        for bad in [".", "", " ", "/", "/a", "../a", "a/../b", "~/a", "a/**", "a\\b"] {
            check(ItemKind::Directory, bad, None);
        }
        check(ItemKind::CreateDirectory, ".", Some("."));
        check(ItemKind::CreateDirectory, "**", Some("**"));
        check(ItemKind::Glob, "docs/**/*.md", Some("docs/**/*.md"));
        check(ItemKind::Glob, "project:shared/**", Some("project:shared/**"));
        for bad in ["a[", "/etc/**", "a/../b", "~/x", "project:/x"] {
            check(ItemKind::Glob, bad, None);
        }
        check(ItemKind::Block, "**/secrets/**", Some("**/secrets/**"));
        check(ItemKind::Block, "a[", None);
        for good in ["read_file", "file.*", "group:fs", "github__search", "git_*"] {
            check(ItemKind::Tool, good, Some(good));
        }
        for bad in ["group:fsx", "a b", "a/b", "[", "group:", "git_{add,commit}", "a?"] {
            check(ItemKind::Tool, bad, None);
        }
        check(ItemKind::Program, "clang++", Some("clang++"));
        for bad in ["a b", "/bin/ls", "-x", "..", "./x"] {
            check(ItemKind::Program, bad, None);
        }
        check(ItemKind::Case, "read_file a b", Some("read_file a b"));
        check(ItemKind::Case, "read_file", None);
        for good in ["example.com", "*.example.com", "*", "10.0.0.0/8", "::1", "[::1]:80", "example.com:22"] {
            check(ItemKind::Host, good, Some(good));
        }
        check(ItemKind::Host, "Example.COM", Some("example.com"));
        check(ItemKind::Host, "bücher.example:22", Some("xn--bcher-kva.example:22"));
        check(ItemKind::Host, "[2606:4700::/32]:443", Some("[2606:4700::/32]:443"));
        for bad in [
            "http://a",
            "a..b",
            "a b",
            "*a.b",
            "a:0",
            "a:99999",
            "10.0.0.0/33",
            "a.*",
            "!a.com",
            "127.1",
            "allow:1x",
        ] {
            check(ItemKind::Host, bad, None);
        }
    }

    #[test]
    fn entries_cover_each_other_as_expected() {
        for (how, outer, inner, expected) in [
            (Covers::Same, "cargo", "cargo", true),
            (Covers::Same, "cargo", "car", false),
            (Covers::Directory, "src/", "src/a/", true),
            (Covers::Directory, "src/a/", "src/", false),
            (Covers::Directory, "src/", "src2/", false),
            (Covers::Directory, "**", "src/", true),
            (Covers::Directory, "**", ".", true),
            (Covers::Directory, ".", "src/", false),
            (Covers::Directory, "src/", ".", false),
            (Covers::Host, "*.a.com", "b.a.com", true),
            (Covers::Host, "*.a.com", "*.b.a.com", true),
            (Covers::Host, "*.a.com", "a.com", false),
            (Covers::Host, "*.a.com", "xa.com", false),
            (Covers::Host, "a.com", "a.com:443", true),
            (Covers::Host, "a.com:443", "a.com", false),
            (Covers::Host, "*", "10.0.0.0/8", true),
            (Covers::Host, "*.a.com", "*", false),
            (Covers::Host, "*", "*.a.com:22", true),
            (Covers::Host, "*", "127.0.0.1", false),
            (Covers::Host, "*", "169.254.169.254", false),
            (Covers::Host, "0.0.0.0/0", "8.8.8.0/24:443", true),
            (Covers::Host, "0.0.0.0/0", "10.0.0.0/8", false),
            (Covers::Host, "0.0.0.0/0", "127.0.0.1", false),
            (Covers::Host, "10.0.0.0/8", "10.1.0.0/16", true),
            (Covers::Host, "10.0.0.0/8:443", "10.1.0.0/16", false),
            (Covers::Host, "169.254.0.0/16", "169.254.169.254", false),
            (Covers::Host, "a.com:*", "a.com", true),
            (Covers::Host, "a.com", "a.com:22", false),
        ] {
            assert_eq!(covers(how, outer, inner), expected, "{outer} {inner}");
        }
    }
}
