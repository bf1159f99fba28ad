//! Tokens with a fixed text in them, and values of a fixed format beside a service's name: the rules of
//! `rules/tokens.txt` and `rules/near.txt`. A rule's regular expression is compiled when its literal is first found.

use std::sync::OnceLock;

use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::bytes::{
    at, before, contains_ignoring_case, entropy, is_token, rest, run_end, run_start, slice,
    starts_with_ignoring_case,
};
use crate::escape;
use crate::precheck::{ByteSet, Precheck};

/// How far before its literal a token may begin (`around`), in bytes.
const MAX_AROUND_BYTES: usize = 128;
/// Bytes of a token that are examined. A token can begin at every position of a text, so examining all of it would be
/// quadratic.
const EXAMINED_BYTES: usize = 256;
/// Default minimum entropy of a token, in bits per character.
const DEFAULT_MIN_ENTROPY: f32 = 2.0;

/// A regular expression that is compiled when first needed.
#[derive(Debug, Default)]
pub(crate) struct LazyRegex(OnceLock<Result<Regex, String>>);

impl LazyRegex {
    pub(crate) fn get(&self, pattern: &str, nocase: bool) -> Result<&Regex, &str> {
        self.0.get_or_init(|| compile(pattern, nocase)).as_ref().map_err(String::as_str)
    }
}

/// Compiles for bytes, without Unicode classes, with bounded size.
pub(crate) fn compile(pattern: &str, nocase: bool) -> Result<Regex, String> {
    let config = syntax::Config::new().unicode(false).utf8(false).case_insensitive(nocase);
    let limits =
        Regex::config().utf8_empty(false).nfa_size_limit(Some(1 << 22)).hybrid_cache_capacity(1 << 20);
    Regex::builder().syntax(config).configure(limits).build(pattern).map_err(|error| {
        match error.syntax_error() {
            Some(wrong) => last_line(&wrong.to_string()),
            None => last_line(&error.to_string()),
        }
    })
}

/// The last line of a message says what is wrong; the others draw the pattern.
fn last_line(message: &str) -> String {
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
    min_entropy: f32,
    regex: LazyRegex,
    precheck: OnceLock<Precheck>,
}

/// A parsed line of `tokens.txt`.
pub(crate) struct TokenLine<'a> {
    pub(crate) kind: &'a str,
    pub(crate) rule: TokenRule,
    /// The anchors of the rule.
    pub(crate) anchors: Vec<Vec<u8>>,
}

impl TokenRule {
    /// Parses a line; the error says what is wrong with it.
    pub(crate) fn parse(line: &str) -> Result<TokenLine<'_>, String> {
        let mut columns = line.split_whitespace();
        let (Some(kind), Some(pattern)) = (columns.next(), columns.next()) else {
            return Err("a rule needs a kind and a pattern".to_owned());
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
            min_entropy: DEFAULT_MIN_ENTROPY,
            regex: LazyRegex::default(),
            precheck: OnceLock::new(),
        };
        let (mut anchors, mut hex) = (vec![literal(pattern)], false);
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
                    anchors = words.split(',').map(|word| word.as_bytes().to_vec()).collect();
                }
                Some(("e", number)) => {
                    rule.min_entropy = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
                }
                _ => return Err(format!("`{flag}` is not a flag")),
            }
        }
        if hex {
            anchors = anchors
                .iter()
                .flat_map(|anchor| {
                    (0..=255_u8)
                        .map(move |byte| [anchor.as_slice(), format!("{byte:02x}").as_bytes()].concat())
                })
                .collect();
        }
        match anchors.iter().find(|anchor| anchor.len() < 3) {
            Some(_) => Err("a pattern must begin with a literal of at least three characters".to_owned()),
            None => Ok(TokenLine { kind, rule, anchors }),
        }
    }

    /// A rule from the configuration: a literal text, or with `...` for the rest of the token.
    pub(crate) fn from_config(kind: u16, text: &str) -> Self {
        let pattern = match text.strip_suffix("...") {
            Some(start) => format!("{}[^\\s\"'`<>,;(){{}}\\[\\]]+", escape_pattern(start)),
            None => escape_pattern(text),
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
            min_entropy: 0.0,
            regex: LazyRegex::default(),
            precheck: OnceLock::new(),
        }
    }

    /// The compiled expression.
    pub(crate) fn regex(&self) -> Result<&Regex, &str> {
        self.regex.get(&self.pattern, self.nocase)
    }

    /// The precheck at the literal.
    pub(crate) fn precheck(&self) -> &Precheck {
        self.precheck.get_or_init(|| match (self.around, self.anywhere) {
            (true, _) => Precheck::ALWAYS,
            (false, true) => Precheck::from_pattern(&self.pattern, self.nocase),
            (false, false) => Precheck::from_pattern(&self.pattern, self.nocase).after_sign(),
        })
    }

    /// The bytes that may follow the literal; inside a token (`around`), the characters of tokens.
    pub(crate) fn follows(&self, anchor: &[u8]) -> Option<ByteSet> {
        if self.around {
            let inside = |byte: u8| is_token(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=');
            return Some(ByteSet::of(inside));
        }
        self.precheck().follows(anchor)
    }

    /// The expression in the syntax of gitleaks and similar programs.
    pub(crate) fn gitleaks_regex(&self) -> String {
        let left = if self.anywhere || self.around { "" } else { "\\b" };
        let case = if self.nocase { "(?i)" } else { "" };
        let right = if self.exact { "\\b" } else { "" };
        if self.group {
            format!("{case}{left}{}", self.pattern)
        } else {
            format!("{case}{left}({}){right}", self.pattern)
        }
    }

    /// Minimum entropy in bits per character; 0 for no minimum.
    pub(crate) fn min_entropy(&self) -> f32 {
        self.min_entropy
    }

    /// The token whose literal is at `anchor`. `joins` returns whether another match ends at a position; that counts as a
    /// word boundary.
    pub(crate) fn find(
        &self,
        view: &[u8],
        anchor: usize,
        joins: impl Fn(usize) -> bool,
    ) -> Result<Option<TokenMatch>, String> {
        // A long run of token characters is its own body, whatever part of it the expression would take.
        let head = slice(view, anchor, anchor + EXAMINED_BYTES);
        let stretched = !(self.exact || self.around || self.group);
        if stretched
            && head.len() == EXAMINED_BYTES
            && !self.is_real(head)
            && head.iter().all(|&byte| is_token(byte))
        {
            return Ok(None);
        }
        let regex = self.regex().map_err(str::to_owned)?;
        let found = if self.around {
            let from = anchor.saturating_sub(MAX_AROUND_BYTES);
            let input = Input::new(view).range(from..view.len().min(anchor + 512));
            regex
                .find_iter(input)
                .find(|found| found.start() <= anchor && anchor < found.end())
                .map(|found| (found.start(), found.end()))
        } else {
            let input = Input::new(view).range(anchor..).anchored(Anchored::Yes);
            if self.group {
                let mut captures = regex.create_captures();
                regex.search_captures(&input, &mut captures);
                captures.get_group(1).map(|span| (span.start, span.end))
            } else {
                regex.search(&input).map(|found| (found.start(), found.end()))
            }
        };
        let Some((start, mut end)) = found else { return Ok(None) };
        let edge = if self.group { anchor } else { start };
        if !self.anywhere
            && before(view, edge).is_ascii_alphanumeric()
            && !joins(edge)
            && !escape::ends_at(view, edge)
        {
            return Ok(None);
        }
        // A hash in the alphabet of tokens: `sha256=-BSA...`.
        let hashed = slice(view, 0, run_start(view, edge, edge.saturating_sub(MAX_AROUND_BYTES), is_token));
        if matches!(before(view, edge), b'-' | b'_' | b'=') && hashed.ends_with(b"sha256=") {
            return Ok(None);
        }
        let ended = !self.exact || !is_token(at(view, end));
        if !self.exact && self.min_entropy > 0.0 {
            end = run_end(view, end, view.len(), is_token);
        }
        let body = slice(view, start, end.min(start + EXAMINED_BYTES));
        Ok(self.is_real(body).then_some(TokenMatch { start, end, ended }))
    }

    /// Whether a token is real and not an example.
    fn is_real(&self, body: &[u8]) -> bool {
        let digit = !self.digit || body.iter().any(u8::is_ascii_digit);
        self.min_entropy == 0.0 || (digit && entropy(body) >= self.min_entropy && !is_example(body))
    }
}

/// The span of a token.
pub(crate) struct TokenMatch {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Whether its end is proven; otherwise it only counts if another match begins there.
    pub(crate) ended: bool,
}

/// Whether a token is an example.
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
    .any(|word| contains_ignoring_case(token, word))
}

/// The literal text that a pattern begins with.
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
        // An optional character is not part of the literal.
        if matches!(at(bytes, i + width), b'?' | b'*' | b'{' | b'+') {
            break;
        }
        out.push(plain);
        i += width;
    }
    out
}

/// Escapes a text for use as a pattern.
fn escape_pattern(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() }).collect()
}

/// A rule of `near.txt`.
#[derive(Debug)]
pub(crate) struct NearRule {
    pub(crate) kind: u16,
    words: Vec<String>,
    pattern: String,
    regex: LazyRegex,
}

/// Words in a name which mean that its value is public.
const PUBLIC_WORDS: &[&str] = &[
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
    /// Parses a line.
    pub(crate) fn parse(line: &str) -> Result<(&str, Self), String> {
        let mut columns = line.split_whitespace();
        match (columns.next(), columns.next(), columns.next(), columns.next()) {
            (Some(kind), Some(words), Some(pattern), None) => {
                let words = words.split(',').map(str::to_owned).collect();
                Ok((
                    kind,
                    Self { kind: 0, words, pattern: format!("^(?:{pattern})$"), regex: LazyRegex::default() },
                ))
            }
            _ => Err("a rule needs a kind, words and a value".to_owned()),
        }
    }

    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    pub(crate) fn regex(&self) -> Result<&Regex, &str> {
        self.regex.get(&self.pattern, true)
    }

    /// The expression in the syntax of gitleaks and similar programs.
    pub(crate) fn gitleaks_regex(&self) -> String {
        let words: Vec<String> = self.words.iter().map(|word| escape_pattern(word)).collect();
        let value = self.pattern.trim_start_matches("^(?:").trim_end_matches(")$");
        format!(
            "(?i)(?:{})(?:[ \\t\\w.-]{{0,20}})[\\s'\"]{{0,3}}(?:=|>|:{{1,3}}=|\\|\\||:|=>|\\?=|,)[\\x60'\"\\s=]{{0,5}}({value})(?:\\\\?['\"\\x60]|[\\s;]|\\\\[nr]|$)",
            words.join("|")
        )
    }

    /// Whether the rule matches this name and value.
    pub(crate) fn fits(&self, name: &[u8], value: &[u8]) -> Result<bool, String> {
        let mixed = value.iter().any(u8::is_ascii_digit)
            && (value.iter().any(u8::is_ascii_alphabetic) || value.len() >= 16);
        let public = PUBLIC_WORDS.iter().any(|word| contains_ignoring_case(name, word.as_bytes()));
        let head = slice(value, 0, EXAMINED_BYTES);
        if public
            || !mixed
            || entropy(head) < 2.3
            || crate::classify::is_camel(value)
            || is_example(head)
            || starts_with_ignoring_case(rest(value, 0), b"[REDACTED")
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
    fn the_literal_prefix_of_a_pattern_is_extracted() {
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
