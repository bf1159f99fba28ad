//! Tokens that carry their own mark, and values of a fixed form beside a service's name: the rules of
//! `rules/tokens.txt` and `rules/near.txt`. A rule's regular expression is compiled when its mark is first met.

use std::sync::OnceLock;

use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::bytes::{at, before, begins, contains, entropy, is_token, part, rest, run, run_back};
use crate::escape;
use crate::gate::{Gate, Set};

/// How far before its mark a token may begin (`around`).
const AROUND: usize = 128;
/// So much of a token tells what it is. What may stand at every place of a text must not look at all that follows.
const ENOUGH: usize = 256;
/// Tokens need at least this entropy unless their rule says otherwise.
const LEAST_ENTROPY: f32 = 2.0;

/// A compiled expression, made when first needed.
#[derive(Debug, Default)]
pub(crate) struct Lazy(OnceLock<Result<Regex, String>>);

impl Lazy {
    pub(crate) fn get(&self, pattern: &str, nocase: bool) -> Result<&Regex, &str> {
        self.0.get_or_init(|| compile(pattern, nocase)).as_ref().map_err(String::as_str)
    }
}

/// Bytes, no Unicode classes, bounded size.
pub(crate) fn compile(pattern: &str, nocase: bool) -> Result<Regex, String> {
    let config = syntax::Config::new().unicode(false).utf8(false).case_insensitive(nocase);
    let limits =
        Regex::config().utf8_empty(false).nfa_size_limit(Some(1 << 22)).hybrid_cache_capacity(1 << 20);
    Regex::builder().syntax(config).configure(limits).build(pattern).map_err(|error| {
        match error.syntax_error() {
            Some(wrong) => one_line(&wrong.to_string()),
            None => one_line(&error.to_string()),
        }
    })
}

/// The last line of a message tells what is wrong; the others draw the pattern.
fn one_line(message: &str) -> String {
    message.lines().last().unwrap_or(message).trim_start_matches("error: ").to_owned()
}

/// A rule of `tokens.txt`.
#[derive(Debug)]
pub(crate) struct TokenRule {
    pub(crate) kind: u16,
    pattern: String,
    exact: bool,
    anywhere: bool,
    nocase: bool,
    group: bool,
    around: bool,
    digit: bool,
    least: f32,
    regex: Lazy,
    gate: OnceLock<Gate>,
}

/// What a line of `tokens.txt` says.
pub(crate) struct TokenLine<'a> {
    pub(crate) kind: &'a str,
    pub(crate) rule: TokenRule,
    /// What to look for.
    pub(crate) marks: Vec<Vec<u8>>,
}

impl TokenRule {
    /// Reads a line; the message says what is wrong with it.
    pub(crate) fn parse(line: &str) -> Result<TokenLine<'_>, String> {
        let mut columns = line.split_whitespace();
        let (Some(kind), Some(pattern)) = (columns.next(), columns.next()) else {
            return Err("a rule is a kind and a pattern".to_owned());
        };
        let mut rule = Self {
            kind: 0,
            pattern: pattern.to_owned(),
            exact: false,
            anywhere: false,
            nocase: false,
            group: false,
            around: false,
            digit: false,
            least: LEAST_ENTROPY,
            regex: Lazy::default(),
            gate: OnceLock::new(),
        };
        let (mut marks, mut hex) = (vec![literal(pattern)], false);
        for flag in columns {
            match flag.split_once('=') {
                None if flag == "exact" => rule.exact = true,
                None if flag == "anywhere" => rule.anywhere = true,
                None if flag == "nocase" => rule.nocase = true,
                None if flag == "group" => rule.group = true,
                None if flag == "digit" => rule.digit = true,
                None if flag == "hex" => hex = true,
                Some(("around", words)) => {
                    rule.around = true;
                    marks = words.split(',').map(|word| word.as_bytes().to_vec()).collect();
                }
                Some(("e", number)) => {
                    rule.least = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
                }
                _ => return Err(format!("`{flag}` is not a flag")),
            }
        }
        if hex {
            marks = marks
                .iter()
                .flat_map(|mark| {
                    (0..=255_u8).map(move |byte| [mark.as_slice(), format!("{byte:02x}").as_bytes()].concat())
                })
                .collect();
        }
        match marks.iter().find(|mark| mark.len() < 3) {
            Some(_) => Err("a pattern begins with at least three plain letters".to_owned()),
            None => Ok(TokenLine { kind, rule, marks }),
        }
    }

    /// A rule of the user's: a text as it is, or with `...` for the rest of the token.
    pub(crate) fn of_text(kind: u16, text: &str) -> Self {
        let pattern = match text.strip_suffix("...") {
            Some(start) => format!("{}[^\\s\"'`<>,;(){{}}\\[\\]]+", escape(start)),
            None => escape(text),
        };
        Self {
            kind,
            pattern,
            exact: false,
            anywhere: true,
            nocase: false,
            group: false,
            around: false,
            digit: false,
            least: 0.0,
            regex: Lazy::default(),
            gate: OnceLock::new(),
        }
    }

    /// The expression, compiled.
    pub(crate) fn regex(&self) -> Result<&Regex, &str> {
        self.regex.get(&self.pattern, self.nocase)
    }

    /// What must stand where its mark is found.
    pub(crate) fn gate(&self) -> &Gate {
        self.gate.get_or_init(|| match (self.around, self.anywhere) {
            (true, _) => Gate::OPEN,
            (false, true) => Gate::of(&self.pattern, self.nocase),
            (false, false) => Gate::of(&self.pattern, self.nocase).after_sign(),
        })
    }

    /// What may follow its mark: where it stands inside a token, what tokens are made of.
    pub(crate) fn follows(&self, mark: &[u8]) -> Option<Set> {
        if self.around {
            let inside = |byte: u8| is_token(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=');
            return Some(Set::of(inside));
        }
        self.gate().follows(mark)
    }

    /// Spelled for other programs: gitleaks and its kin.
    pub(crate) fn spelled(&self) -> String {
        let left = if self.anywhere || self.around { "" } else { "\\b" };
        let case = if self.nocase { "(?i)" } else { "" };
        let right = if self.exact { "\\b" } else { "" };
        if self.group {
            format!("{case}{left}{}", self.pattern)
        } else {
            format!("{case}{left}({}){right}", self.pattern)
        }
    }

    /// Least entropy.
    pub(crate) fn least(&self) -> f32 {
        self.least
    }

    /// The token whose mark stands at a place. `joins` tells whether another finding ends at a place: that is as good as a
    /// blank.
    pub(crate) fn find(
        &self,
        view: &[u8],
        mark: usize,
        joins: impl Fn(usize) -> bool,
    ) -> Result<Option<Token>, String> {
        // A long run of letters is its own body, whatever of it the expression takes.
        let head = part(view, mark, mark + ENOUGH);
        let stretched = !(self.exact || self.around || self.group);
        if stretched && head.len() == ENOUGH && !self.is_real(head) && head.iter().all(|&byte| is_token(byte))
        {
            return Ok(None);
        }
        let regex = self.regex().map_err(str::to_owned)?;
        let found = if self.around {
            let from = mark.saturating_sub(AROUND);
            let input = Input::new(view).range(from..view.len().min(mark + 512));
            regex
                .find_iter(input)
                .find(|found| found.start() <= mark && mark < found.end())
                .map(|found| (found.start(), found.end()))
        } else {
            let input = Input::new(view).range(mark..).anchored(Anchored::Yes);
            if self.group {
                let mut captures = regex.create_captures();
                regex.search_captures(&input, &mut captures);
                captures.get_group(1).map(|span| (span.start, span.end))
            } else {
                regex.search(&input).map(|found| (found.start(), found.end()))
            }
        };
        let Some((start, mut end)) = found else { return Ok(None) };
        let edge = if self.group { mark } else { start };
        if !self.anywhere
            && before(view, edge).is_ascii_alphanumeric()
            && !joins(edge)
            && !escape::ends_at(view, edge)
        {
            return Ok(None);
        }
        // A hash in the alphabet of tokens: `sha256=-BSA...`.
        let hashed = part(view, 0, run_back(view, edge, edge.saturating_sub(AROUND), is_token));
        if matches!(before(view, edge), b'-' | b'_' | b'=') && hashed.ends_with(b"sha256=") {
            return Ok(None);
        }
        let ended = !self.exact || !is_token(at(view, end));
        if !self.exact && self.least > 0.0 {
            end = run(view, end, view.len(), is_token);
        }
        let body = part(view, start, end.min(start + ENOUGH));
        Ok(self.is_real(body).then_some(Token { start, end, ended }))
    }

    /// Whether a token is more than a show of what tokens look like.
    fn is_real(&self, body: &[u8]) -> bool {
        let digit = !self.digit || body.iter().any(u8::is_ascii_digit);
        self.least == 0.0 || (digit && entropy(body) >= self.least && !is_example(body))
    }
}

/// Where a token stands.
pub(crate) struct Token {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Whether it ends there; otherwise it is one only when another finding begins there.
    pub(crate) ended: bool,
}

/// A token that only shows what tokens look like.
fn is_example(token: &[u8]) -> bool {
    [
        b"example".as_slice(),
        b"xxxxx",
        b"*****",
        b"your",
        b"placeholder",
        b"redacted",
        b"dummy",
        b"changeme",
        b".....",
    ]
    .iter()
    .any(|word| contains(token, word))
}

/// The plain text that a pattern begins with.
pub(crate) fn literal(pattern: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let bytes = pattern.as_bytes();
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let (plain, width) = match byte {
            b'\\' if at(bytes, i + 1).is_ascii_punctuation() => (at(bytes, i + 1), 2),
            byte if byte.is_ascii_alphanumeric()
                || matches!(
                    byte,
                    b'_' | b'-' | b'/' | b'=' | b':' | b';' | b'~' | b'@' | b'!' | b',' | b'%'
                ) =>
            {
                (byte, 1)
            }
            _ => break,
        };
        // What may be left out is not part of it.
        if matches!(at(bytes, i + width), b'?' | b'*' | b'{' | b'+') {
            break;
        }
        out.push(plain);
        i += width;
    }
    out
}

/// A text as a pattern that matches it.
fn escape(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() }).collect()
}

/// A rule of `near.txt`.
#[derive(Debug)]
pub(crate) struct NearRule {
    pub(crate) kind: u16,
    words: Vec<String>,
    pattern: String,
    regex: Lazy,
}

/// Words in a name that say that its value is public.
const PUBLIC: &[&str] = &[
    "sha",
    "commit",
    "hash",
    "rev",
    "checksum",
    "digest",
    "integrity",
    "md5",
    "etag",
    "version",
    "url",
    "uri",
    "public",
    "cache",
    "fingerprint",
    "path",
    "file",
    "image",
    "uuid",
    "trace",
];

impl NearRule {
    /// Reads a line.
    pub(crate) fn parse(line: &str) -> Result<(&str, Self), String> {
        let mut columns = line.split_whitespace();
        match (columns.next(), columns.next(), columns.next(), columns.next()) {
            (Some(kind), Some(words), Some(pattern), None) => {
                let words = words.split(',').map(str::to_owned).collect();
                Ok((
                    kind,
                    Self { kind: 0, words, pattern: format!("^(?:{pattern})$"), regex: Lazy::default() },
                ))
            }
            _ => Err("a rule is a kind, words and a value".to_owned()),
        }
    }

    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    pub(crate) fn regex(&self) -> Result<&Regex, &str> {
        self.regex.get(&self.pattern, true)
    }

    /// Spelled for other programs.
    pub(crate) fn spelled(&self) -> String {
        let words: Vec<String> = self.words.iter().map(|word| escape(word)).collect();
        let value = self.pattern.trim_start_matches("^(?:").trim_end_matches(")$");
        format!(
            "(?i)(?:{})(?:[ \\t\\w.-]{{0,20}})[\\s'\"]{{0,3}}(?:=|>|:{{1,3}}=|\\|\\||:|=>|\\?=|,)[\\x60'\"\\s=]{{0,5}}({value})(?:\\\\?['\"\\x60]|[\\s;]|\\\\[nr]|$)",
            words.join("|")
        )
    }

    /// Whether this name and value fit.
    pub(crate) fn fits(&self, name: &[u8], value: &[u8]) -> Result<bool, String> {
        let mixed = value.iter().any(u8::is_ascii_digit)
            && (value.iter().any(u8::is_ascii_alphabetic) || value.len() >= 16);
        let public = PUBLIC.iter().any(|word| contains(name, word.as_bytes()));
        let head = part(value, 0, ENOUGH);
        if public
            || !mixed
            || entropy(head) < 2.3
            || crate::judge::is_camel(value)
            || is_example(head)
            || begins(rest(value, 0), b"[REDACTED")
        {
            return Ok(false);
        }
        Ok(self.regex().map_err(str::to_owned)?.is_match(Input::new(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_beginning_of_a_pattern() {
        for (pattern, plain) in [
            ("ghp_[0-9]{36}", "ghp_"),
            ("dp\\.pt\\.[a-z]", "dp.pt."),
            ("xoxe[.-]a", "xoxe"),
            ("\\$2a\\$\\d\\d", "$2a$"),
            ("fm1[ar]_x", "fm1"),
            ("abc?d", "ab"),
            ("1//0[\\w-]{40,}", "1//0"),
        ] {
            assert_eq!(literal(pattern), plain.as_bytes(), "{pattern}");
        }
    }
}
