//! Imports rule files of gitleaks and betterleaks (TOML). Used: id, regex, keywords, entropy, secretGroup, and allow
//! lists over texts. Ignored: paths and commits (a stream has none), and anything that would use the network
//! (`validate`). A rule that cannot be used is an error with its location.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};
use serde::Deserialize;

use crate::bytes::{contains_ignoring_case, entropy, slice};
use crate::precheck::Precheck;
use crate::rule_error::RuleError;
use crate::token_rules::compile;

/// How far before a keyword a rule is searched, in bytes.
pub(crate) const IMPORT_LOOKBEHIND_BYTES: usize = 160;
/// How far after a keyword a rule is searched, in bytes.
pub(crate) const IMPORT_LOOKAHEAD_BYTES: usize = 1024;

/// An imported rule, compiled.
#[derive(Debug)]
pub(crate) struct ImportRule {
    pub(crate) kind: u16,
    regex: Regex,
    /// Whether every match begins with a keyword, so that the search can be anchored there.
    anchored_at_keyword: bool,
    /// Precheck at a keyword; accepts everything unless matches begin there.
    pub(crate) precheck: Precheck,
    group: Option<usize>,
    min_entropy: f32,
    allow: Vec<Allowlist>,
}

/// A rule with its kind and keywords.
pub(crate) struct ParsedImport {
    pub(crate) kind: String,
    pub(crate) keywords: Vec<String>,
    pub(crate) rule: ImportRule,
}

/// An allow list: matches that are not secrets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowlist {
    regexes: Vec<Regex>,
    target: AllowTarget,
    words: Vec<String>,
    all: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum AllowTarget {
    #[default]
    Secret,
    Match,
    Line,
}

#[derive(Deserialize)]
struct GitleaksFile {
    #[serde(default)]
    rules: Vec<GitleaksRule>,
    #[serde(default)]
    allowlist: Option<GitleaksAllowlist>,
    #[serde(default)]
    allowlists: Vec<GitleaksAllowlist>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GitleaksRule {
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
    allowlist: Option<GitleaksAllowlist>,
    #[serde(default)]
    allowlists: Vec<GitleaksAllowlist>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct GitleaksAllowlist {
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

/// Reads a rule file.
pub(crate) fn read(text: &str, name: &str) -> Result<Vec<ParsedImport>, RuleError> {
    let rule_error = |line: usize, rule: &str, reason: String| RuleError {
        file: name.to_owned(),
        line,
        rule: rule.to_owned(),
        reason,
    };
    let file: GitleaksFile = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_of(text, span.start));
        rule_error(line, "", error.message().to_owned())
    })?;
    let list = |list: &GitleaksAllowlist, line: usize, rule: &str| {
        allow(list).map_err(|reason| rule_error(line, rule, reason))
    };
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
        // Rules over paths alone do not apply to text.
        let Some(pattern) = &rule.regex else { continue };
        let regex = compile(&from_go_syntax(pattern), false)
            .map_err(|reason| rule_error(line, id, format!("its regex cannot be used: {reason}")))?;
        let groups = regex.group_info().group_len(regex_automata::PatternID::ZERO);
        if let Some(group) = rule.secret_group.filter(|group| *group >= groups) {
            return Err(rule_error(line, id, format!("its regex has no group {group}")));
        }
        let mut keywords: Vec<String> =
            rule.keywords.iter().filter(|word| word.len() >= 3).cloned().collect();
        if keywords.is_empty() || keywords.len() < rule.keywords.len() {
            let plain = String::from_utf8_lossy(&crate::token_rules::literal(
                pattern.trim_start_matches("\\b").trim_start_matches('('),
            ))
            .into_owned();
            keywords.extend((plain.len() >= 3).then_some(plain));
        }
        // A rule without keywords is searched in every line.
        let precheck = Precheck::from_pattern(&from_go_syntax(pattern), false);
        let anchored_at_keyword = !keywords.is_empty() && precheck.begins_with(&keywords);
        let precheck = if anchored_at_keyword { precheck } else { Precheck::ALWAYS };
        let mut own = rule
            .allowlist
            .iter()
            .chain(&rule.allowlists)
            .map(|one| list(one, line, id))
            .collect::<Result<Vec<_>, _>>()?;
        own.extend(shared.iter().cloned());
        let group = rule.secret_group.filter(|group| *group > 0).or((groups > 1).then_some(1));
        let min_entropy =
            rule.entropy.or_else(|| rule.filter.as_deref().and_then(min_entropy_of_filter)).unwrap_or(0.0);
        rules.push(ParsedImport {
            kind: kind_of(id),
            keywords,
            rule: ImportRule {
                kind: 0,
                regex,
                anchored_at_keyword,
                precheck,
                group,
                min_entropy,
                allow: own,
            },
        });
    }
    Ok(rules)
}

impl ImportRule {
    /// Reports every secret of the rule around a keyword.
    pub(crate) fn find(&self, view: &[u8], keyword: usize, hit: impl FnMut(usize, usize)) {
        let to = (keyword + IMPORT_LOOKAHEAD_BYTES).min(view.len());
        let (from, anchored) = if self.anchored_at_keyword {
            (keyword, Anchored::Yes)
        } else {
            (keyword.saturating_sub(IMPORT_LOOKBEHIND_BYTES), Anchored::No)
        };
        self.find_in(view, from, to, anchored, hit);
    }

    /// Reports every secret of the rule in a line.
    pub(crate) fn find_in_line(&self, text: &[u8], from: usize, to: usize, hit: impl FnMut(usize, usize)) {
        let line = slice(text, from, to);
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
        // Most keywords occur for other reasons; a plain match is cheaper than captures.
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
                let text = slice(view, secret.start, secret.end);
                let allowed = self.allow.iter().any(|allow| allow.covers(view, whole.range(), text));
                if !text.is_empty()
                    && (self.min_entropy == 0.0 || entropy(text) > self.min_entropy)
                    && !allowed
                {
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

impl Allowlist {
    fn covers(&self, view: &[u8], whole: std::ops::Range<usize>, secret: &[u8]) -> bool {
        let text = match self.target {
            AllowTarget::Secret => secret,
            AllowTarget::Match => slice(view, whole.start, whole.end),
            AllowTarget::Line => {
                let start = crate::bytes::run_start(view, whole.start, 0, |byte| byte != b'\n');
                slice(view, start, crate::bytes::run_end(view, whole.end, view.len(), |byte| byte != b'\n'))
            }
        };
        let regex = || self.regexes.iter().any(|regex| regex.is_match(Input::new(text)));
        let word = || self.words.iter().any(|word| contains_ignoring_case(secret, word.as_bytes()));
        match (self.all, self.regexes.is_empty(), self.words.is_empty()) {
            (true, false, false) => regex() && word(),
            _ => regex() || word(),
        }
    }
}

fn allow(list: &GitleaksAllowlist) -> Result<Allowlist, String> {
    let target = match list.regex_target.as_str() {
        "" | "secret" => AllowTarget::Secret,
        "match" => AllowTarget::Match,
        "line" => AllowTarget::Line,
        other => return Err(format!("an allow list has no target `{other}`")),
    };
    let all = list.condition.eq_ignore_ascii_case("and");
    // A list that also requires a path or a commit never applies to a stream.
    if all && !(list.paths.is_empty() && list.commits.is_empty()) {
        return Ok(Allowlist::default());
    }
    let regexes = list.regexes.iter().map(|pattern| {
        compile(&from_go_syntax(pattern), false)
            .map_err(|reason| format!("an allow list's regex cannot be used: {reason}"))
    });
    Ok(Allowlist { regexes: regexes.collect::<Result<_, _>>()?, target, words: list.stopwords.clone(), all })
}

/// Go reads a brace that begins no repetition as a literal; here it must be escaped. Named groups and `\z` have the
/// same syntax.
fn from_go_syntax(pattern: &str) -> String {
    let bytes = pattern.as_bytes();
    let mut out = String::with_capacity(pattern.len() + 8);
    let (mut escaped, mut class) = (false, false);
    for (n, c) in pattern.char_indices() {
        let repetition = || {
            let end = crate::bytes::run_end(bytes, n + 1, bytes.len(), |byte| {
                byte.is_ascii_digit() || byte == b','
            });
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

/// Parses `entropy(finding["secret"]) <= 3.5` in a betterleaks filter.
fn min_entropy_of_filter(filter: &str) -> Option<f32> {
    let after = filter.split("entropy(finding[\"secret\"])").nth(1)?;
    let number = after.trim_start().trim_start_matches(['<', '=', ' ']);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    number.get(..end)?.parse().ok()
}

/// Turns a rule id into a kind for placeholders.
pub(crate) fn kind_of(id: &str) -> String {
    let kind: String = id
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(crate::placeholder::MAX_KIND_BYTES)
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
    fn literal_braces_of_go_syntax_are_escaped() {
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
            assert_eq!(from_go_syntax(go), ours, "{go}");
            if !go.contains("\\p") {
                assert!(compile(&from_go_syntax(go), false).is_ok(), "{go}");
            }
        }
    }

    #[test]
    fn an_unusable_rule_is_reported_with_its_location() {
        let text = "title = 'x'\n\n[[rules]]\nid = 'good'\nregex = 'abc[0-9]+'\nkeywords = ['abc']\n\n[[rules]]\nid = 'bad'\nregex = 'abc('\nkeywords = ['abc']\n";
        let error = read(text, "mine.toml").err().unwrap();
        assert_eq!((error.line, error.rule.as_str()), (9, "bad"));
        assert!(error.to_string().starts_with("mine.toml:9: rule `bad`: "), "{error}");
        let error = read("a = [", "mine.toml").err().unwrap();
        assert_eq!(error.line, 1);
        let error = read("[[rules]]\nid = 'x'\nregex = '(a)b'\nkeywords = ['abc']\nsecretGroup = 3\n", "f")
            .err()
            .unwrap();
        assert!(error.reason.contains("no group 3"), "{error}");
        assert!(read("[[rules]]\nid = 'x'\nregex = '[a-z]{40}'\n", "f").unwrap()[0].keywords.is_empty());
    }
}
