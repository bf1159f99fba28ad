//! The matches that one anchor yields: runs the rule, parser or known value that the anchor leads to, inside the window
//! of the pass.

use crate::assignment::{Assignment, OpenValue, Separator, find_assignment, second_value};
use crate::bytes::{at, before, run_start, slice, starts_with_ignoring_case};
use crate::classify::{ValueContext, is_published, is_secret, is_uuid};
use crate::escape::Unescaped;
use crate::finding::{DetectionLayer, Span};
use crate::rules::AnchorTarget;
use crate::scanner::Scanner;
use crate::secret_names::{NameHint, ends_with_keyword, is_foreign, is_request_token, name_hint};
use crate::{command_line, header, kubernetes_secret, pem, url};

/// A match whose end lies outside the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenEnded {
    /// The lines of a private key; each has this prefix.
    Key(pem::LinePrefix),
    /// A run of visible characters.
    Run,
    /// A value in a context.
    Value(OpenValue),
}

/// The matches that one anchor yields. Positions are offsets into the window (`view`).
pub(crate) struct Candidates<'a> {
    scanner: &'a Scanner,
    view: &'a [u8],
    pub(crate) spans: Vec<Span>,
    /// Tokens without a proven end.
    pub(crate) unproven: Vec<Span>,
    /// How the spans continue beyond the window.
    pub(crate) open_ended: Option<OpenEnded>,
    /// Position up to which escapes were decoded.
    pub(crate) decoded_to: usize,
}

impl<'a> Candidates<'a> {
    pub(crate) fn new(scanner: &'a Scanner, view: &'a [u8]) -> Self {
        Self { scanner, view, spans: Vec::new(), unproven: Vec::new(), open_ended: None, decoded_to: 0 }
    }

    fn push(&mut self, (start, end): (usize, usize), kind: u16, layer: DetectionLayer) {
        if start < end && !is_published(slice(self.view, start, end)) {
            self.spans.push(Span { start, end, kind, layer, fingerprint: None });
        }
    }

    /// Runs the detector of an anchor.
    pub(crate) fn at(
        &mut self,
        target: AnchorTarget,
        start: usize,
        after: usize,
        joins: impl Fn(usize) -> bool,
    ) -> Result<(), String> {
        let (rules, kinds, view) = (&self.scanner.rules, self.scanner.rules.kinds, self.view);
        match target {
            AnchorTarget::Needle(n) => {
                let needle = usize::try_from(n).ok().and_then(|n| self.scanner.needles.get(n));
                if let Some(needle) = needle
                    && let Some((start, end)) = needle.match_at(view, start)
                {
                    self.spans.push(Span {
                        start,
                        end,
                        kind: needle.kind,
                        layer: DetectionLayer::Known,
                        fingerprint: Some(needle.fingerprint),
                    });
                }
            }
            AnchorTarget::Token(n) => {
                if let Some(rule) = rules.tokens.get(usize::from(n))
                    && let Some(token) = rule.find(view, start, joins)?
                    && !is_published(slice(view, token.start, token.end))
                {
                    let span = Span {
                        start: token.start,
                        end: token.end,
                        kind: rule.kind,
                        layer: DetectionLayer::Form,
                        fingerprint: None,
                    };
                    if token.ended { &mut self.spans } else { &mut self.unproven }.push(span);
                }
            }
            AnchorTarget::Import(n) => {
                if let Some(rule) = rules.imports.get(usize::from(n)) {
                    let mut spans = Vec::new();
                    rule.find(view, start, |from, to| spans.push((from, to)));
                    spans.into_iter().for_each(|span| self.push(span, rule.kind, DetectionLayer::Form));
                }
            }
            AnchorTarget::Near(n) => {
                if let Some(rule) = rules.near.get(usize::from(n))
                    && let Some(found) = find_assignment(view, start, after)
                    && found.separator != Separator::Space
                    && rule.fits(
                        slice(view, found.name.0, found.name.1),
                        slice(view, found.value.0, found.value.1),
                    )?
                {
                    self.push(found.value, rule.kind, DetectionLayer::Context);
                    self.open_ended = found.open.map(OpenEnded::Value);
                }
            }
            AnchorTarget::Name => self.name(start, after),
            AnchorTarget::Service => {
                if let Some(found) = find_assignment(view, start, after) {
                    let name = slice(view, found.name.0, found.name.1);
                    self.judge(&found, name_hint(name).unwrap_or(NameHint::Service));
                }
            }
            AnchorTarget::Url => {
                if let Some(login) = url::login(view, after) {
                    self.push(
                        login.secret,
                        if login.database { kinds.database } else { kinds.url },
                        DetectionLayer::Context,
                    );
                }
            }
            AnchorTarget::Pem => {
                let begin =
                    start + slice(view, start, after).iter().position(|byte| *byte == b'B').unwrap_or(0);
                if let Some((start, end)) = pem::begin_line(view, begin) {
                    self.push((start, end), kinds.private_key, DetectionLayer::Form);
                    self.open_ended = Some(OpenEnded::Key(pem::LinePrefix::before(view, start)));
                }
            }
            AnchorTarget::Bearer => {
                if let Some(span) = header::bearer(view, after) {
                    self.push(span, kinds.bearer, DetectionLayer::Context);
                }
            }
            AnchorTarget::Basic => {
                if let Some(span) = header::basic(view, after) {
                    self.push(span, kinds.basic, DetectionLayer::Context);
                }
            }
            AnchorTarget::UserFlag => {
                if let Some(span) = header::user_flag_password(view, start, after) {
                    self.push(span, kinds.basic, DetectionLayer::Context);
                }
            }
            AnchorTarget::PasswordFlag => {
                if let Some(span) = command_line::flag_password(view, start, after) {
                    self.push(span, kinds.password, DetectionLayer::Context);
                }
            }
            AnchorTarget::SqlIdentified => {
                if let Some(span) = command_line::sql_identified(view, after) {
                    self.push(span, kinds.password, DetectionLayer::Context);
                }
            }
            AnchorTarget::LoginCall => {
                if let Some(span) = command_line::login_call(view, after) {
                    self.push(span, kinds.password, DetectionLayer::Context);
                }
            }
            AnchorTarget::Dsn => {
                if let Some(span) = url::dsn_password(view, start) {
                    self.push(span, kinds.database, DetectionLayer::Context);
                }
            }
            AnchorTarget::PgPass => {
                if let Some(span) = command_line::pgpass_password(view, start) {
                    self.push(span, kinds.password, DetectionLayer::Context);
                }
            }
            AnchorTarget::Cookie => {
                for span in header::cookies(view, after) {
                    self.push(span, kinds.secret, DetectionLayer::Context);
                }
            }
            AnchorTarget::CookieFile => {
                if let Some(span) = header::cookie_file_value(view, start) {
                    self.push(span, kinds.secret, DetectionLayer::Context);
                }
            }
            AnchorTarget::PipedPassword => {
                if let Some(span) = command_line::piped_password(view, start) {
                    self.push(span, kinds.password, DetectionLayer::Context);
                }
            }
            AnchorTarget::RedisAuth => {
                if let Some(span) = command_line::redis_auth(view, start, after) {
                    self.push(span, kinds.password, DetectionLayer::Context);
                }
            }
            AnchorTarget::KubernetesSecret => {
                for span in kubernetes_secret::values(view, start + 1, after) {
                    self.push(span, kinds.secret, DetectionLayer::Context);
                }
            }
            AnchorTarget::Escaped => self.escaped_word(start)?,
            AnchorTarget::Placeholder => {}
        }
        Ok(())
    }

    /// Scans a word again with its escapes decoded.
    fn escaped_word(&mut self, sign: usize) -> Result<(), String> {
        let Some(unescaped) = Unescaped::around(self.view, sign) else { return Ok(()) };
        let (scanner, text) = (self.scanner, &unescaped.text);
        let mut place = 0;
        while let Some(next) = scanner.prefilter.next(text, place, text.len(), |_, _| true) {
            place = next + 1;
            for (anchor, start) in scanner.prefilter.at(text, next) {
                let Some((target, after)) = scanner.candidate_at(anchor, text, start, &[]) else { continue };
                // These need more than one word.
                if matches!(
                    target,
                    AnchorTarget::Placeholder
                        | AnchorTarget::Escaped
                        | AnchorTarget::Pem
                        | AnchorTarget::KubernetesSecret
                ) {
                    continue;
                }
                let mut inner = Candidates::new(scanner, text);
                inner.at(target, start, after, |_| false)?;
                let back = |span: Span| {
                    let (start, end) = unescaped.source_span((span.start, span.end))?;
                    Some(Span { start, end, ..span })
                };
                self.open_ended = self.open_ended.or(inner.open_ended);
                self.spans.extend(inner.spans.into_iter().filter_map(back));
            }
        }
        self.decoded_to = unescaped.source_end();
        Ok(())
    }

    fn name(&mut self, start: usize, after: usize) {
        let (view, kinds) = (self.view, self.scanner.rules.kinds);
        if starts_with_ignoring_case(slice(view, start, start + 8), b"password")
            && let Some(span) = header::netrc(view, start, start + 8)
        {
            self.push(span, kinds.password, DetectionLayer::Context);
        }
        // The anchors `pwd=` and `pass:` include the separator, which is not part of the name.
        let signed = !before(view, after).is_ascii_alphanumeric();
        let Some(found) = find_assignment(view, start, after - usize::from(signed)) else { return };
        let name = slice(view, found.name.0, found.name.1);
        let value = slice(view, found.value.0, found.value.1);
        if (name.eq_ignore_ascii_case(b"auth") || name.eq_ignore_ascii_case(b"_auth"))
            && header::is_basic_credentials(value)
        {
            self.push(found.value, kinds.basic, DetectionLayer::Context);
            self.open_ended = found.open.map(OpenEnded::Value);
        } else if let Some(span) = header::scheme_token(view, name, found.value, found.quoted) {
            self.push(span, kinds.secret, DetectionLayer::Context);
        } else if let Some(hint) = name_hint(name) {
            self.judge(&found, hint);
            if let Some(second) = second_value(view, &found) {
                self.judge(&second, hint);
            }
        }
    }

    fn judge(&mut self, found: &Assignment, hint: NameHint) {
        let kinds = self.scanner.rules.kinds;
        let name = slice(self.view, found.name.0, found.name.1);
        let uppercase_name = name.iter().all(|byte| !byte.is_ascii_lowercase());
        let context = ValueContext {
            quoted: found.quoted,
            separator: found.separator,
            starts_line: found.starts_line,
            in_list: found.listed,
            uppercase_name,
            keyword_last: ends_with_keyword(name),
        };
        let value = slice(self.view, found.value.0, found.value.1);
        // A UUID that makes a request unique.
        if is_uuid(value) && is_request_token(name) {
            return;
        }
        // "it should pass ..." is prose.
        if found.separator == Separator::Space
            && (name.eq_ignore_ascii_case(b"pass") || name.ends_with(b"Pass"))
        {
            return;
        }
        // `FUNCTION_PASS("...")` in compiler source.
        if found.separator == Separator::Call && name.ends_with(b"_PASS") {
            return;
        }
        // SQL has `PASSWORD '...'`; in prose, a quoted phrase may follow the word.
        if found.separator == Separator::Space
            && found.quoted
            && !matches!(before(self.view, found.value.0), b'\'' | b'"')
        {
            return;
        }
        // `secret, "name": ...`: the quoted text is another name.
        if found.separator == Separator::Adjacent && at(self.view, found.value.1 + 1) == b':' {
            return;
        }
        // Tokens in badge URLs are public, and so are the names of secrets.
        if is_badge(self.view, found.name.0) || is_resource(self.view, found.name.0) {
            return;
        }
        // `"userPassword", "RFC4519"`, `"decodePassword", "#decodePassword"`.
        let letters = value.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
        let numbered = letters >= 2 && slice(value, letters, value.len()).iter().all(u8::is_ascii_digit);
        let again = value.to_ascii_lowercase().ends_with(&name.to_ascii_lowercase());
        if found.separator == Separator::Adjacent && (numbered || again) {
            return;
        }
        // The bigram table does not know the languages of the prose around these words.
        if found.separator == Separator::Space && is_foreign(name) {
            return;
        }
        if is_secret(hint, value, context) && !value.eq_ignore_ascii_case(name) {
            let kind = match hint {
                NameHint::Password => kinds.password,
                NameHint::Token => kinds.secret,
                NameHint::Key | NameHint::AnyKey => kinds.key,
                NameHint::Service => kinds.service,
            };
            self.push(found.value, kind, DetectionLayer::Context);
            self.open_ended = found.open.map(OpenEnded::Value);
        }
    }
}

/// Whether a name is part of a resource name: `arn:aws:secretsmanager:eu-west-1:1:secret:orders/db`.
fn is_resource(view: &[u8], name: usize) -> bool {
    let from = run_start(view, name, name.saturating_sub(120), |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'-')
    });
    before(view, name) == b':' && slice(view, from, name).starts_with(b"arn:")
}

/// Whether the URL before a name is that of a badge.
fn is_badge(view: &[u8], name: usize) -> bool {
    if !matches!(before(view, name), b'?' | b'&') {
        return false;
    }
    let from = run_start(view, name, name.saturating_sub(200), |byte| {
        byte > b' ' && !matches!(byte, b'"' | b'(' | b'\'')
    });
    [b".svg".as_slice(), b"badge", b"codecov", b"shields.io"]
        .iter()
        .any(|word| memchr::memmem::find(slice(view, from, name), word).is_some())
}
