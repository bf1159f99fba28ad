//! Rules of others: the TOML of gitleaks and betterleaks. What is taken: id, regex, keywords, entropy, secretGroup and
//! allow-lists over texts. What is not: paths and commits (a stream has none), and anything that would go to the network
//! (`validate`). A rule that cannot be used is an error with its place.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};
use serde::Deserialize;

use crate::bytes::{contains, entropy, part};
use crate::fault::RuleFault;
use crate::gate::Gate;
use crate::token::compile;

/// How far around a keyword a rule is searched.
pub(crate) const IMPORT_BACK: usize = 160;
/// And how far after it.
pub(crate) const IMPORT_AHEAD: usize = 1024;

/// A rule of another program.
#[derive(Debug)]
pub(crate) struct ImportRule {
    pub(crate) kind: u16,
    regex: Regex,
    /// Whether every match begins with a keyword, so that it need not be looked for around it.
    leads: bool,
    /// What must stand at a keyword: open unless matches begin there.
    pub(crate) gate: Gate,
    group: Option<usize>,
    least: f32,
    allow: Vec<Allow>,
}

/// A rule with what it is to be found by.
pub(crate) struct Imported {
    pub(crate) kind: String,
    pub(crate) keywords: Vec<String>,
    pub(crate) rule: ImportRule,
}

/// An allow-list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allow {
    regexes: Vec<Regex>,
    target: Target,
    words: Vec<String>,
    all: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Target {
    #[default]
    Secret,
    Match,
    Line,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    allowlist: Option<List>,
    #[serde(default)]
    allowlists: Vec<List>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    id: toml::Spanned<String>,
    #[serde(default)]
    regex: Option<String>,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    entropy: Option<f32>,
    #[serde(default)]
    secret_group: Option<usize>,
    #[serde(default)]
    filter: Option<String>,
    #[serde(default)]
    allowlist: Option<List>,
    #[serde(default)]
    allowlists: Vec<List>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct List {
    #[serde(default)]
    regexes: Vec<String>,
    #[serde(default)]
    regex_target: String,
    #[serde(default)]
    stopwords: Vec<String>,
    #[serde(default)]
    condition: String,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    commits: Vec<String>,
}

/// Reads a file.
pub(crate) fn read(text: &str, name: &str) -> Result<Vec<Imported>, RuleFault> {
    let fault = |line: usize, rule: &str, why: String| RuleFault {
        file: name.to_owned(),
        line,
        rule: rule.to_owned(),
        why,
    };
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_of(text, span.start));
        fault(line, "", error.message().to_owned())
    })?;
    let list = |list: &List, line: usize, rule: &str| allow(list).map_err(|why| fault(line, rule, why));
    let shared = file
        .allowlist
        .iter()
        .chain(&file.allowlists)
        .map(|one| list(one, 0, "allowlist"))
        .collect::<Result<Vec<_>, _>>()?;
    let mut rules = Vec::new();
    for rule in &file.rules {
        let line = line_of(text, rule.id.span().start);
        let id = rule.id.get_ref();
        // Rules over paths alone say nothing about a text.
        let Some(pattern) = &rule.regex else { continue };
        let regex = compile(&of_go(pattern), false)
            .map_err(|why| fault(line, id, format!("its regex cannot be used: {why}")))?;
        let groups = regex.group_info().group_len(regex_automata::PatternID::ZERO);
        if let Some(group) = rule.secret_group.filter(|group| *group >= groups) {
            return Err(fault(line, id, format!("its regex has no group {group}")));
        }
        let mut keywords: Vec<String> =
            rule.keywords.iter().filter(|word| word.len() >= 3).cloned().collect();
        if keywords.is_empty() || keywords.len() < rule.keywords.len() {
            let plain = String::from_utf8_lossy(&crate::token::literal(
                pattern.trim_start_matches("\\b").trim_start_matches('('),
            ))
            .into_owned();
            keywords.extend((plain.len() >= 3).then_some(plain));
        }
        // Without a keyword it is searched in every line.
        let gate = Gate::of(&of_go(pattern), false);
        let leads = !keywords.is_empty() && gate.begins_with(&keywords);
        let gate = if leads { gate } else { Gate::OPEN };
        let mut own = rule
            .allowlist
            .iter()
            .chain(&rule.allowlists)
            .map(|one| list(one, line, id))
            .collect::<Result<Vec<_>, _>>()?;
        own.extend(shared.iter().cloned());
        let group = rule.secret_group.filter(|group| *group > 0).or((groups > 1).then_some(1));
        let least = rule.entropy.or_else(|| rule.filter.as_deref().and_then(least_of_filter)).unwrap_or(0.0);
        rules.push(Imported {
            kind: kind_of(id),
            keywords,
            rule: ImportRule { kind: 0, regex, leads, gate, group, least, allow: own },
        });
    }
    Ok(rules)
}

impl ImportRule {
    /// Every secret of the rule around a keyword.
    pub(crate) fn find(&self, view: &[u8], keyword: usize, hit: impl FnMut(usize, usize)) {
        let to = (keyword + IMPORT_AHEAD).min(view.len());
        let (from, anchored) = if self.leads {
            (keyword, Anchored::Yes)
        } else {
            (keyword.saturating_sub(IMPORT_BACK), Anchored::No)
        };
        self.find_in(view, from, to, anchored, hit);
    }

    /// Every secret of the rule in a line.
    pub(crate) fn find_in_line(&self, text: &[u8], from: usize, to: usize, hit: impl FnMut(usize, usize)) {
        let line = part(text, from, to);
        let mut hit = hit;
        self.find_in(line, 0, line.len(), Anchored::No, |start, end| hit(from + start, from + end));
    }

    fn find_in(
        &self,
        view: &[u8],
        from: usize,
        to: usize,
        anchored: Anchored,
        mut hit: impl FnMut(usize, usize),
    ) {
        let mut input = Input::new(view).range(from..to).anchored(anchored);
        // Most keywords stand there for another reason.
        if !self.regex.is_match(input.clone().earliest(true)) {
            return;
        }
        let mut captures = self.regex.create_captures();
        loop {
            self.regex.search_captures(&input, &mut captures);
            let Some(whole) = captures.get_match() else { return };
            let secret = self.group.map_or_else(
                || captures.get_group(0),
                |group| {
                    captures
                        .get_group(group)
                        .filter(|span| !span.is_empty())
                        .or_else(|| captures.iter().skip(1).flatten().find(|span| !span.is_empty()))
                        .or(captures.get_group(0))
                },
            );
            if let Some(secret) = secret {
                let text = part(view, secret.start, secret.end);
                let allowed = self.allow.iter().any(|allow| allow.covers(view, whole.range(), text));
                if !text.is_empty() && (self.least == 0.0 || entropy(text) > self.least) && !allowed {
                    hit(secret.start, secret.end);
                }
            }
            let next = whole.end().max(whole.start() + 1);
            if next >= to || anchored == Anchored::Yes {
                return;
            }
            input.set_start(next);
        }
    }
}

impl Allow {
    fn covers(&self, view: &[u8], whole: std::ops::Range<usize>, secret: &[u8]) -> bool {
        let text = match self.target {
            Target::Secret => secret,
            Target::Match => part(view, whole.start, whole.end),
            Target::Line => {
                let start = crate::bytes::run_back(view, whole.start, 0, |byte| byte != b'\n');
                part(view, start, crate::bytes::run(view, whole.end, view.len(), |byte| byte != b'\n'))
            }
        };
        let regex = || self.regexes.iter().any(|regex| regex.is_match(Input::new(text)));
        let word = || self.words.iter().any(|word| contains(secret, word.as_bytes()));
        match (self.all, self.regexes.is_empty(), self.words.is_empty()) {
            (true, false, false) => regex() && word(),
            _ => regex() || word(),
        }
    }
}

fn allow(list: &List) -> Result<Allow, String> {
    let target = match list.regex_target.as_str() {
        "" | "secret" => Target::Secret,
        "match" => Target::Match,
        "line" => Target::Line,
        other => return Err(format!("an allow-list has no target `{other}`")),
    };
    let all = list.condition.eq_ignore_ascii_case("and");
    // A list that also wants a path or a commit never fits a stream.
    if all && !(list.paths.is_empty() && list.commits.is_empty()) {
        return Ok(Allow::default());
    }
    let regexes = list.regexes.iter().map(|pattern| {
        compile(&of_go(pattern), false).map_err(|why| format!("an allow-list's regex cannot be used: {why}"))
    });
    Ok(Allow { regexes: regexes.collect::<Result<_, _>>()?, target, words: list.stopwords.clone(), all })
}

/// Go takes a brace that begins no repetition for itself; here it is escaped. A named group is spelled alike, `\z` too.
fn of_go(pattern: &str) -> String {
    let bytes = pattern.as_bytes();
    let mut out = String::with_capacity(pattern.len() + 8);
    let (mut escaped, mut class) = (false, false);
    for (n, c) in pattern.char_indices() {
        let repetition = || {
            let end =
                crate::bytes::run(bytes, n + 1, bytes.len(), |byte| byte.is_ascii_digit() || byte == b',');
            n > 0
                && end > n + 1
                && crate::bytes::at(bytes, end) == b'}'
                && bytes.get(n + 1).is_some_and(u8::is_ascii_digit)
        };
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' if class && !pattern.get(n..).is_some_and(|rest| rest.starts_with("[:")) => out.push('\\'),
            '[' => class = true,
            ']' if class && !(out.ends_with('[') || out.ends_with("[^") || out.ends_with(':')) => {
                class = false
            }
            ']' if class && (out.ends_with('[') || out.ends_with("[^")) => out.push('\\'),
            '{' if !class && !repetition() && !is_class_name(&out) => out.push('\\'),
            _ => {}
        }
        out.push(c);
    }
    out
}

/// `\p{...}` and `\x{...}` keep their braces.
fn is_class_name(out: &str) -> bool {
    ["\\p", "\\P", "\\x"].iter().any(|start| out.ends_with(start))
}

/// `entropy(finding["secret"]) <= 3.5` of a betterleaks filter.
fn least_of_filter(filter: &str) -> Option<f32> {
    let after = filter.split("entropy(finding[\"secret\"])").nth(1)?;
    let number = after.trim_start().trim_start_matches(['<', '=', ' ']);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    number.get(..end)?.parse().ok()
}

/// An id as a placeholder can carry it.
pub(crate) fn kind_of(id: &str) -> String {
    let kind: String = id
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(crate::placeholder::LONGEST_KIND)
        .collect();
    if kind.is_empty() { "rule".to_owned() } else { kind }
}

fn line_of(text: &str, place: usize) -> usize {
    text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_of_go_are_escaped() {
        for (go, ours) in [
            ("a{2}", "a{2}"),
            ("a{2,}b", "a{2,}b"),
            ("^\\${(?:x)}$", "^\\$\\{(?:x)}$"),
            ("{{x}}", "\\{\\{x}}"),
            ("[{]x", "[{]x"),
            ("\\p{L}", "\\p{L}"),
            ("[[:alnum:]]{3}", "[[:alnum:]]{3}"),
            ("{\\d", "\\{\\d"),
        ] {
            assert_eq!(of_go(go), ours, "{go}");
            if !go.contains("\\p") {
                assert!(compile(&of_go(go), false).is_ok(), "{go}");
            }
        }
    }

    #[test]
    fn a_rule_that_cannot_be_used_is_told_with_its_place() {
        let text = "title = 'x'\n\n[[rules]]\nid = 'good'\nregex = 'abc[0-9]+'\nkeywords = ['abc']\n\n[[rules]]\nid = 'bad'\nregex = 'abc('\nkeywords = ['abc']\n";
        let fault = read(text, "mine.toml").err().unwrap();
        assert_eq!((fault.line, fault.rule.as_str()), (9, "bad"));
        assert!(fault.to_string().starts_with("mine.toml:9: rule `bad`: "), "{fault}");
        let fault = read("a = [", "mine.toml").err().unwrap();
        assert_eq!(fault.line, 1);
        let fault = read("[[rules]]\nid = 'x'\nregex = '(a)b'\nkeywords = ['abc']\nsecretGroup = 3\n", "f")
            .err()
            .unwrap();
        assert!(fault.why.contains("no group 3"), "{fault}");
        assert!(read("[[rules]]\nid = 'x'\nregex = '[a-z]{40}'\n", "f").unwrap()[0].keywords.is_empty());
    }
}
