//! The small texts inside lists: globs, folders, hosts, tools, cases. What each must look like, the form in
//! which it is kept, and when one contains another.

use super::fault::nearest;
use super::key::{Covers, Item};
use super::keys::TOOL_GROUPS;
use crate::block::BlockList;
use crate::glob::{Ground, PathGlobs, Purpose};
use crate::network::decide::EVERYTHING;
use crate::network::{Rule, Subject};
use crate::tool;

/// Why a text does not fit: a message, and a hint that may be empty.
pub(crate) type Misfit = (String, String);

/// How a glob is written.
const GLOB_HINT: &str = "`*` is any run of characters in a name, `**` any folders, `[ab]` and `{a,b}` one of these; `[[]` is a bracket itself";

/// Checks one text of a list and returns the form in which it is kept.
pub(crate) fn kept_form(item: Item, text: &str) -> Result<String, Misfit> {
    if text.trim().is_empty() {
        return Err(("must not be empty".to_owned(), "write a value, or remove the entry".to_owned()));
    }
    match item {
        Item::Text => Ok(text.to_owned()),
        Item::Glob => path_glob(text),
        Item::Block => match BlockList::new([text]) {
            Ok(_) => Ok(text.to_owned()),
            Err(bad) => Err((format!("is not a valid glob: {}", bad.why), GLOB_HINT.to_owned())),
        },
        Item::Folder => folder(text),
        Item::CreateFolder => match text {
            "." | "./" => Ok(".".to_owned()),
            "**" => Ok("**".to_owned()),
            text => folder(text),
        },
        Item::Tool => tool_pattern(text),
        Item::Program => program(text),
        Item::Host => host(text),
        Item::Case => case(text),
        Item::Choice(names) => choice(names, text),
    }
}

/// One of a few names.
pub(crate) fn choice(names: &[&'static str], text: &str) -> Result<String, Misfit> {
    if names.contains(&text) {
        return Ok(text.to_owned());
    }
    let hint = match nearest(text, names.iter().copied()) {
        Some(near) => format!("the nearest valid value is `{near}`"),
        None => "write one of them as it stands here".to_owned(),
    };
    Err((format!("must be one of {}", listed(names)), hint))
}

/// Names in backticks.
pub(crate) fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A clean relative path: no `..`, not absolute, not the home folder. `.` is the root itself.
pub(crate) fn clean_path(text: &str) -> Result<String, Misfit> {
    let refuse = |why: &str| Err((why.to_owned(), "give it relative to the project root".to_owned()));
    if text.starts_with('/') {
        return refuse("must not be absolute");
    }
    if text.starts_with('~') {
        return refuse("must not start with `~`");
    }
    if text.contains(['\\', '\0']) || text.chars().any(char::is_control) {
        return refuse("must not contain backslashes or control characters");
    }
    let mut names = Vec::new();
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => return refuse("must not contain `..`"),
            name => names.push(name),
        }
    }
    Ok(if names.is_empty() { ".".to_owned() } else { names.join("/") })
}

fn folder(text: &str) -> Result<String, Misfit> {
    if text.contains(['*', '?', '[', '{']) {
        let plain = text.trim_end_matches('*').trim_end_matches('/');
        let hint = if plain.contains(['*', '?', '[', '{']) || plain.is_empty() {
            "name the folders one by one: a folder includes everything below it".to_owned()
        } else {
            format!("write `{plain}/`: a folder includes everything below it")
        };
        return Err(("must be a folder, not a glob".to_owned(), hint));
    }
    match clean_path(text)?.as_str() {
        "." => Err(("must name a folder below the root".to_owned(), "for example `src/`".to_owned())),
        path => Ok(format!("{path}/")),
    }
}

fn path_glob(text: &str) -> Result<String, Misfit> {
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
        let hint = "a glob cannot take back another one; write a rule of its own".to_owned();
        return Err(("must not begin with `!`".to_owned(), hint));
    }
    if body.chars().any(char::is_control) || body.split('/').any(|name| name != name.trim()) {
        let hint =
            "a name in it begins or ends with a space, or has a character that cannot be seen".to_owned();
        return Err(("matches nothing that anybody means".to_owned(), hint));
    }
    match PathGlobs::new([text], Purpose::Narrow, &Ground::plain()) {
        Ok(_) => Ok(text.to_owned()),
        Err(bad) => Err((format!("is not a valid glob: {}", bad.why), GLOB_HINT.to_owned())),
    }
}

fn tool_pattern(text: &str) -> Result<String, Misfit> {
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
    // What is accepted here is what `ToolFacts::is_meant_by` understands: a pattern that never fits would
    // be a rule that never holds.
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.*".contains(c)) {
        return known_tool(text);
    }
    let hint = "letters, digits, `_`, `-`, `.`, and `*` for any run of characters".to_owned();
    Err(("is not a tool, a pattern over tools or `group:NAME`".to_owned(), hint))
}

fn known_tool(text: &str) -> Result<String, Misfit> {
    if tool::is_known(text) {
        return Ok(text.to_owned());
    }
    let hint = match nearest(text, tool::NAMES.iter().copied()) {
        Some(near) => format!("the nearest tool is `{near}`"),
        None => "`vambrace tools` lists them; tools of other servers are called `server__tool`".to_owned(),
    };
    Err(("is not a known tool".to_owned(), hint))
}

fn program(text: &str) -> Result<String, Misfit> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.+".contains(c);
    if text.chars().all(plain) && !text.starts_with(['-', '.']) {
        return Ok(text.to_owned());
    }
    Err((
        "must be the name of a program, without path and arguments".to_owned(),
        "it is looked up in the folders of PATH that agents cannot write".to_owned(),
    ))
}

fn case(text: &str) -> Result<String, Misfit> {
    match text.split_once(char::is_whitespace) {
        Some((tool, rest)) if !rest.trim().is_empty() => known_tool(tool).map(|_| text.to_owned()),
        _ => Err((
            "must be a tool and what it is called with".to_owned(),
            "for example `read_file docs/a.md` or `execute_command git status`".to_owned(),
        )),
    }
}

fn host(text: &str) -> Result<String, Misfit> {
    if text.trim() == EVERYTHING {
        return Ok(EVERYTHING.to_owned());
    }
    if text.trim().starts_with('!') {
        let hint = "what is refused is listed under `network.deny`".to_owned();
        return Err(("must not begin with `!`".to_owned(), hint));
    }
    Rule::parse(text)
        .map(|rule| rule.spelled())
        .map_err(|bad| (format!("is not a host, an address or a network: {}", bad.why), bad.suggestion))
}

/// Whether everything that `inner` permits is permitted by `outer`; both in their kept form.
pub(crate) fn covers(how: Covers, outer: &str, inner: &str) -> bool {
    if outer == inner {
        return true;
    }
    match how {
        Covers::Same => false,
        // The root level alone contains no folder and lies in none; `**` contains all.
        Covers::Folder => outer == "**" || (outer.ends_with('/') && inner.starts_with(outer)),
        Covers::Host => host_covers(outer, inner),
    }
}

fn host_covers(outer: &str, inner: &str) -> bool {
    let Ok(inner) = Rule::parse(inner) else { return false };
    if outer == EVERYTHING {
        // What everything leaves out must be named by whoever may name it.
        return match &inner.subject {
            Subject::Network(network) => network.is_ordinary(),
            _ => true,
        };
    }
    Rule::parse(outer).is_ok_and(|outer| outer.covers(&inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(item: Item, text: &str, expected: Option<&str>) {
        assert_eq!(kept_form(item, text).ok().as_deref(), expected, "{item:?} {text}");
    }

    // T12, B4
    #[test]
    fn kept_forms() {
        check(Item::Folder, "./a//b", Some("a/b/"));
        check(Item::Folder, "shared/", Some("shared/"));
        for bad in [".", "", " ", "/", "/a", "../a", "a/../b", "~/a", "a/**", "a\\b"] {
            check(Item::Folder, bad, None);
        }
        check(Item::CreateFolder, ".", Some("."));
        check(Item::CreateFolder, "**", Some("**"));
        check(Item::Glob, "docs/**/*.md", Some("docs/**/*.md"));
        check(Item::Glob, "project:shared/**", Some("project:shared/**"));
        for bad in ["a[", "/etc/**", "a/../b", "~/x", "project:/x"] {
            check(Item::Glob, bad, None);
        }
        check(Item::Block, "**/secrets/**", Some("**/secrets/**"));
        check(Item::Block, "a[", None);
        for good in ["read_file", "file.*", "group:fs", "github__search", "git_*"] {
            check(Item::Tool, good, Some(good));
        }
        for bad in ["group:fsx", "a b", "a/b", "[", "group:", "git_{add,commit}", "a?"] {
            check(Item::Tool, bad, None);
        }
        check(Item::Program, "clang++", Some("clang++"));
        for bad in ["a b", "/bin/ls", "-x", "..", "./x"] {
            check(Item::Program, bad, None);
        }
        check(Item::Case, "read_file a b", Some("read_file a b"));
        check(Item::Case, "read_file", None);
        for good in ["example.com", "*.example.com", "*", "10.0.0.0/8", "::1", "[::1]:80", "example.com:22"] {
            check(Item::Host, good, Some(good));
        }
        check(Item::Host, "Example.COM", Some("example.com"));
        check(Item::Host, "bücher.example:22", Some("xn--bcher-kva.example:22"));
        check(Item::Host, "[2606:4700::/32]:443", Some("[2606:4700::/32]:443"));
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
            check(Item::Host, bad, None);
        }
    }

    #[test]
    fn containing() {
        for (how, outer, inner, expected) in [
            (Covers::Same, "cargo", "cargo", true),
            (Covers::Same, "cargo", "car", false),
            (Covers::Folder, "src/", "src/a/", true),
            (Covers::Folder, "src/a/", "src/", false),
            (Covers::Folder, "src/", "src2/", false),
            (Covers::Folder, "**", "src/", true),
            (Covers::Folder, "**", ".", true),
            (Covers::Folder, ".", "src/", false),
            (Covers::Folder, "src/", ".", false),
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
