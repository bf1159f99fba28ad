//! The rules: our own (`rules/*.txt`, compiled in), patterns of the configuration, files of others.

use std::path::Path;

use crate::fault::RuleFault;
use crate::gate::Set;
use crate::import::{self, ImportRule};
use crate::names;
use crate::placeholder::MARK;
use crate::token::{NearRule, TokenRule};

const TOKENS: &str = include_str!("../rules/tokens.txt");
const NEAR: &str = include_str!("../rules/near.txt");
const SERVICES: &str = include_str!("../rules/names.txt");

const TOO_MANY: &str = "there are too many rules";

/// What an anchor leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Token(u16),
    Near(u16),
    Import(u16),
    Name,
    Service,
    Url,
    Pem,
    Bearer,
    Basic,
    Login,
    /// A program that takes its password by a short flag.
    Command,
    Identified,
    /// A call with user and password.
    Arguments,
    /// `user:password@tcp(`, `:thin:user/password@`.
    Source,
    PgPass,
    Cookie,
    /// A line of a jar of cookies.
    Jar,
    /// A program that reads its password from a pipe.
    Piped,
    /// `AUTH` of redis.
    Auth,
    /// `data:` of a manifest.
    Manifest,
    Placeholder,
    /// A sign of a token that is written otherwise.
    Spelled,
    /// A known value.
    Needle(u32),
}

/// Something that the first look finds.
#[derive(Debug)]
pub(crate) struct Anchor {
    pub(crate) bytes: Vec<u8>,
    /// Whether letters of either case count.
    pub(crate) fold: bool,
    pub(crate) target: Target,
}

/// Kinds that are not of a rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kinds {
    pub(crate) password: u16,
    pub(crate) secret: u16,
    pub(crate) key: u16,
    pub(crate) service: u16,
    pub(crate) url: u16,
    pub(crate) database: u16,
    pub(crate) private_key: u16,
    pub(crate) bearer: u16,
    pub(crate) basic: u16,
    pub(crate) pattern: u16,
}

/// A set of rules.
#[derive(Debug)]
pub struct Rules {
    pub(crate) names: Vec<String>,
    pub(crate) kinds: Kinds,
    pub(crate) tokens: Vec<TokenRule>,
    pub(crate) near: Vec<NearRule>,
    pub(crate) imports: Vec<ImportRule>,
    /// Of them, those without a keyword: searched in every line.
    pub(crate) loose: Vec<usize>,
    pub(crate) anchors: Vec<Anchor>,
}

impl Rules {
    /// No rules but what contexts tell.
    #[must_use]
    pub fn bare() -> Self {
        let mut names = Vec::new();
        let mut kind = |name: &str| {
            names.push(name.to_owned());
            u16::try_from(names.len() - 1).unwrap_or(0)
        };
        let kinds = Kinds {
            password: kind("password"),
            secret: kind("secret"),
            key: kind("key"),
            service: kind("service-key"),
            url: kind("url-password"),
            database: kind("database-password"),
            private_key: kind("private-key"),
            bearer: kind("bearer-token"),
            basic: kind("basic-auth"),
            pattern: kind("pattern"),
        };
        let anchors = vec![Anchor { bytes: MARK.to_vec(), fold: false, target: Target::Placeholder }];
        Self {
            names,
            kinds,
            tokens: Vec::new(),
            near: Vec::new(),
            imports: Vec::new(),
            loose: Vec::new(),
            anchors,
        }
    }

    /// Our own rules.
    pub fn built_in() -> Result<Self, RuleFault> {
        let mut rules = Self::bare();
        rules.contexts();
        for (line, text) in lines(TOKENS) {
            rules.token(text).map_err(|why| fault("tokens.txt", line, text, why))?;
        }
        for (line, text) in lines(NEAR) {
            let (kind, mut rule) = NearRule::parse(text).map_err(|why| fault("near.txt", line, text, why))?;
            rule.kind = rules.kind(kind);
            let index = u16::try_from(rules.near.len()).unwrap_or(u16::MAX);
            rules.anchors.extend(rule.words().iter().map(|word| Anchor {
                bytes: word.as_bytes().to_vec(),
                fold: true,
                target: Target::Near(index),
            }));
            rules.near.push(rule);
        }
        let services = lines(SERVICES).flat_map(|(_, text)| text.split_whitespace());
        rules.anchors.extend(services.map(|word| Anchor {
            bytes: word.as_bytes().to_vec(),
            fold: true,
            target: Target::Service,
        }));
        Ok(rules)
    }

    fn contexts(&mut self) {
        let mut add = |word: &[u8], fold: bool, target: Target| {
            self.anchors.push(Anchor { bytes: word.to_vec(), fold, target })
        };
        for word in names::WORDS {
            add(word.as_bytes(), true, Target::Name);
        }
        for letter in b'a'..=b'z' {
            add(&[letter, b':', b'/', b'/'], true, Target::Url);
        }
        for digit in [b'4', b'3', b'2'] {
            add(&[digit, b':', b'/', b'/'], true, Target::Url);
        }
        for begin in [b"-BEGIN ".as_slice(), b"- BEGIN ", b"-BEGIN+", b"-BEGIN%20"] {
            add(begin, false, Target::Pem);
        }
        for sign in crate::escape::SPELLED {
            add(sign, true, Target::Spelled);
        }
        add(b"bearer", true, Target::Bearer);
        add(b"basic", true, Target::Basic);
        for flag in [b" -u ".as_slice(), b" -u\"", b" -u'", b" --user ", b" --user="] {
            add(flag, false, Target::Login);
        }
        for program in crate::command::programs() {
            add(program.as_bytes(), false, Target::Command);
        }
        add(b"identified ", true, Target::Identified);
        for call in [
            b"basicauth(".as_slice(),
            b"networkcredential(",
            b"passwordauthentication(",
            b"passwordcredentials(",
            b"auth=(",
            b"auth = (",
            b"basic_auth(",
            b"set_basic_auth(",
            b"setbasicauth(",
            b"getconnection(",
        ] {
            add(call, true, Target::Arguments);
        }
        for source in [b"@tcp(".as_slice(), b"@unix(", b":thin:"] {
            add(source, false, Target::Source);
        }
        for port in [b":5432:".as_slice(), b":5433:", b":6432:", b"*:*:"] {
            add(port, false, Target::PgPass);
        }
        for cookie in [
            b"cookie:".as_slice(),
            b"cookie\"",
            b"cookie\\\"",
            b"cookie'",
            b"--cookie ",
            b"cookie =",
            b" -b '",
            b" -b \"",
        ] {
            add(cookie, true, Target::Cookie);
        }
        for sort in [b"\tTRUE\t".as_slice(), b"\tFALSE\t"] {
            add(sort, false, Target::Jar);
        }
        for program in [b"--password-stdin".as_slice(), b"sudo -S", b"chpasswd", b"passwd --stdin"] {
            add(program, false, Target::Piped);
        }
        for word in [b"AUTH ".as_slice(), b"AUTH\r\n"] {
            add(word, false, Target::Auth);
        }
        for data in [b"stringData:".as_slice(), b"stringData\":", b"\ndata:", b" data:", b"\"data\":"] {
            add(data, false, Target::Manifest);
        }
    }

    fn token(&mut self, text: &str) -> Result<(), String> {
        let mut line = TokenRule::parse(text)?;
        line.rule.kind = self.kind(line.kind);
        let index = u16::try_from(self.tokens.len()).map_err(|_| TOO_MANY.to_owned())?;
        let fold = line.rule.spelled().starts_with("(?i)");
        self.anchors.extend(line.marks.into_iter().map(|bytes| Anchor {
            bytes,
            fold,
            target: Target::Token(index),
        }));
        self.tokens.push(line.rule);
        Ok(())
    }

    /// What may follow an anchor, as far as its rule tells.
    pub(crate) fn follows(&self, anchor: &Anchor) -> Option<Set> {
        match anchor.target {
            Target::Token(n) => self.tokens.get(usize::from(n))?.follows(&anchor.bytes),
            Target::Import(n) => self.imports.get(usize::from(n))?.gate.follows(&anchor.bytes),
            _ => None,
        }
    }

    /// The number of a kind, new or not.
    pub(crate) fn kind(&mut self, name: &str) -> u16 {
        let place = self.names.iter().rposition(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        u16::try_from(place).unwrap_or(0)
    }

    /// With texts of the configuration (`secrets.redact_patterns`): each as it is, or with `...` for the rest of a token.
    pub fn with_patterns(mut self, patterns: &[String]) -> Result<Self, RuleFault> {
        for pattern in patterns {
            let start = pattern.strip_suffix("...").unwrap_or(pattern);
            let why = if start.len() < 2 { Some("it needs at least two characters") } else { None };
            if let Some(why) = why {
                return Err(RuleFault {
                    file: "secrets.redact_patterns".to_owned(),
                    line: 0,
                    rule: pattern.clone(),
                    why: why.to_owned(),
                });
            }
            let index = u16::try_from(self.tokens.len())
                .map_err(|_| fault("secrets.redact_patterns", 0, pattern, TOO_MANY.to_owned()))?;
            self.tokens.push(TokenRule::of_text(self.kinds.pattern, pattern));
            self.anchors.push(Anchor {
                bytes: start.as_bytes().to_vec(),
                fold: false,
                target: Target::Token(index),
            });
        }
        Ok(self)
    }

    /// With the rules of a file of gitleaks or betterleaks.
    pub fn with_file(mut self, text: &str, name: &Path) -> Result<Self, RuleFault> {
        for mut imported in import::read(text, &name.display().to_string())? {
            let index = u16::try_from(self.imports.len())
                .map_err(|_| fault(&name.display().to_string(), 0, &imported.kind, TOO_MANY.to_owned()))?;
            imported.rule.kind = self.kind(&imported.kind);
            self.loose.extend(imported.keywords.is_empty().then_some(usize::from(index)));
            self.anchors.extend(imported.keywords.iter().map(|word| Anchor {
                bytes: word.as_bytes().to_vec(),
                fold: true,
                target: Target::Import(index),
            }));
            self.imports.push(imported.rule);
        }
        Ok(self)
    }

    /// Compiles every expression now; the fault names the rule. Built-in ones are otherwise compiled when first needed.
    pub fn compile(&self) -> Result<(), RuleFault> {
        let tokens = self.tokens.iter().map(|rule| (rule.kind, rule.regex().err()));
        let near = self.near.iter().map(|rule| (rule.kind, rule.regex().err()));
        match tokens.chain(near).find_map(|(kind, why)| Some((kind, why?))) {
            None => Ok(()),
            Some((kind, why)) => Err(RuleFault {
                file: "rules".to_owned(),
                line: 0,
                rule: self.name(kind).to_owned(),
                why: why.to_owned(),
            }),
        }
    }

    /// How many rules there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.tokens.len() + self.near.len() + self.imports.len()
    }

    /// What the first look finds, one text for each rule or context: a text of nothing but these is the worst that can come.
    #[must_use]
    pub fn beginnings(&self) -> Vec<&[u8]> {
        let mut last = None;
        let first = |anchor: &&Anchor| {
            let of_rule = matches!(anchor.target, Target::Token(_) | Target::Near(_) | Target::Import(_));
            let repeated = of_rule && last == Some(anchor.target);
            last = Some(anchor.target);
            !repeated
        };
        self.anchors.iter().filter(first).map(|anchor| anchor.bytes.as_slice()).collect()
    }

    /// The name of a kind.
    pub(crate) fn name(&self, kind: u16) -> &str {
        self.names.get(usize::from(kind)).map_or("secret", String::as_str)
    }

    /// The rules of marks and near values as TOML that gitleaks, betterleaks and kingfisher read. What contexts tell
    /// (passwords, addresses, headers) is code and has no such spelling.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = String::from("title = \"vambrace\"\n");
        let mut one = |id: String, regex: String, words: Vec<String>, least: f32| {
            let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            out.push_str(&format!("\n[[rules]]\nid = \"{id}\"\ndescription = \"{id}\"\nregex = '''{regex}'''\nkeywords = [{}]\n", words.join(", ")));
            if least > 0.0 {
                out.push_str(&format!("entropy = {least:.1}\n"));
            }
        };
        let marks = |wanted: Target| {
            let fits = self.anchors.iter().filter(|anchor| anchor.target == wanted);
            let mut words: Vec<String> =
                fits.map(|anchor| String::from_utf8_lossy(&anchor.bytes).to_lowercase()).collect();
            if words.len() > 16 {
                words = words.iter().filter_map(|word| word.get(..3).map(str::to_owned)).collect();
                words.dedup();
            }
            words
        };
        for (n, rule) in self.tokens.iter().enumerate() {
            let target = Target::Token(u16::try_from(n).unwrap_or(0));
            one(format!("{}-{n}", self.name(rule.kind)), rule.spelled(), marks(target), rule.least());
        }
        for (n, rule) in self.near.iter().enumerate() {
            one(format!("{}-near-{n}", self.name(rule.kind)), rule.spelled(), rule.words().to_vec(), 2.3);
        }
        out
    }
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(n, line)| (n + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn fault(file: &str, line: usize, text: &str, why: String) -> RuleFault {
    let rule = text.split_whitespace().next().unwrap_or_default().to_owned();
    RuleFault { file: file.to_owned(), line, rule, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    // T21: a rule of ours that does not compile is found here and not at work
    #[test]
    fn every_built_in_rule_compiles() {
        let rules = Rules::built_in().unwrap();
        rules.compile().unwrap();
        assert!(rules.count() > 500, "{}", rules.count());
        assert!(rules.names.iter().all(|name| name.len() <= crate::placeholder::LONGEST_KIND
            && name.bytes().all(crate::placeholder::is_kind)));
    }

    #[test]
    fn what_is_exported_can_be_imported() {
        let rules = Rules::built_in().unwrap();
        let imported = Rules::bare().with_file(&rules.to_toml(), Path::new("ours.toml")).unwrap();
        assert_eq!(imported.imports.len(), rules.tokens.len() + rules.near.len());
    }
}
