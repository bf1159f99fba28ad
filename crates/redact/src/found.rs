//! What one anchor yields: the rule, parser or known value it leads to is asked, within the view that the pass gives.

use crate::bytes::{at, before, begins, part, run_back};
use crate::context::{Assigned, Given, Open, assigned, changed};
use crate::escape::Reading;
use crate::finding::{Layer, Span};
use crate::judge::{Standing, is_published, is_secret, is_uuid};
use crate::live::Live;
use crate::names::{Promise, ends_telling, is_foreign, promise, says_request};
use crate::rules::Target;
use crate::{command, header, manifest, pem, url};

/// What runs on without an end in sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endless {
    /// The lines of a private key, each with this before it.
    Key(pem::Prefix),
    /// A run of visible characters.
    Run,
    /// A value in a context.
    Value(Open),
}

/// What one anchor yields; places count in the view.
pub(crate) struct Found<'a> {
    live: &'a Live,
    view: &'a [u8],
    pub(crate) spans: Vec<Span>,
    /// Tokens that only lack an end.
    pub(crate) waiting: Vec<Span>,
    /// What the spans run on as.
    pub(crate) endless: Option<Endless>,
    /// Up to where escapes were read.
    pub(crate) read_to: usize,
}

impl<'a> Found<'a> {
    pub(crate) fn new(live: &'a Live, view: &'a [u8]) -> Self {
        Self { live, view, spans: Vec::new(), waiting: Vec::new(), endless: None, read_to: 0 }
    }

    fn push(&mut self, (start, end): (usize, usize), kind: u16, layer: Layer) {
        if start < end && !is_published(part(self.view, start, end)) {
            self.spans.push(Span { start, end, kind, layer, print: None });
        }
    }

    /// Looks at what an anchor leads to.
    pub(crate) fn at(
        &mut self,
        target: Target,
        start: usize,
        after: usize,
        joins: impl Fn(usize) -> bool,
    ) -> Result<(), String> {
        let (rules, kinds, view) = (&self.live.rules, self.live.rules.kinds, self.view);
        match target {
            Target::Needle(n) => {
                let needle = usize::try_from(n).ok().and_then(|n| self.live.needles.get(n));
                if let Some(needle) = needle
                    && let Some((start, end)) = needle.stands(view, start)
                {
                    self.spans.push(Span {
                        start,
                        end,
                        kind: needle.kind,
                        layer: Layer::Known,
                        print: Some(needle.print),
                    });
                }
            }
            Target::Token(n) => {
                if let Some(rule) = rules.tokens.get(usize::from(n))
                    && let Some(token) = rule.find(view, start, joins)?
                    && !is_published(part(view, token.start, token.end))
                {
                    let span = Span {
                        start: token.start,
                        end: token.end,
                        kind: rule.kind,
                        layer: Layer::Form,
                        print: None,
                    };
                    if token.ended { &mut self.spans } else { &mut self.waiting }.push(span);
                }
            }
            Target::Import(n) => {
                if let Some(rule) = rules.imports.get(usize::from(n)) {
                    let mut spans = Vec::new();
                    rule.find(view, start, |from, to| spans.push((from, to)));
                    spans.into_iter().for_each(|span| self.push(span, rule.kind, Layer::Form));
                }
            }
            Target::Near(n) => {
                if let Some(rule) = rules.near.get(usize::from(n))
                    && let Some(found) = assigned(view, start, after)
                    && found.given != Given::Blank
                    && rule.fits(
                        part(view, found.name.0, found.name.1),
                        part(view, found.value.0, found.value.1),
                    )?
                {
                    self.push(found.value, rule.kind, Layer::Context);
                    self.endless = found.open.map(Endless::Value);
                }
            }
            Target::Name => self.name(start, after),
            Target::Service => {
                if let Some(found) = assigned(view, start, after) {
                    let name = part(view, found.name.0, found.name.1);
                    self.judge(&found, promise(name).unwrap_or(Promise::Service));
                }
            }
            Target::Url => {
                if let Some(login) = url::login(view, after) {
                    self.push(
                        login.secret,
                        if login.database { kinds.database } else { kinds.url },
                        Layer::Context,
                    );
                }
            }
            Target::Pem => {
                let begin =
                    start + part(view, start, after).iter().position(|byte| *byte == b'B').unwrap_or(0);
                if let Some((start, end)) = pem::first_line(view, begin) {
                    self.push((start, end), kinds.private_key, Layer::Form);
                    self.endless = Some(Endless::Key(pem::Prefix::before(view, start)));
                }
            }
            Target::Bearer => {
                if let Some(span) = header::bearer(view, after) {
                    self.push(span, kinds.bearer, Layer::Context);
                }
            }
            Target::Basic => {
                if let Some(span) = header::basic(view, after) {
                    self.push(span, kinds.basic, Layer::Context);
                }
            }
            Target::Login => {
                if let Some(span) = header::command_login(view, start, after) {
                    self.push(span, kinds.basic, Layer::Context);
                }
            }
            Target::Command => {
                if let Some(span) = command::password(view, start, after) {
                    self.push(span, kinds.password, Layer::Context);
                }
            }
            Target::Identified => {
                if let Some(span) = command::identified(view, after) {
                    self.push(span, kinds.password, Layer::Context);
                }
            }
            Target::Arguments => {
                if let Some(span) = command::arguments(view, after) {
                    self.push(span, kinds.password, Layer::Context);
                }
            }
            Target::Source => {
                if let Some(span) = url::source(view, start) {
                    self.push(span, kinds.database, Layer::Context);
                }
            }
            Target::PgPass => {
                if let Some(span) = command::pgpass(view, start) {
                    self.push(span, kinds.password, Layer::Context);
                }
            }
            Target::Cookie => {
                for span in header::cookies(view, after) {
                    self.push(span, kinds.secret, Layer::Context);
                }
            }
            Target::Jar => {
                if let Some(span) = header::jar(view, start) {
                    self.push(span, kinds.secret, Layer::Context);
                }
            }
            Target::Piped => {
                if let Some(span) = command::piped(view, start) {
                    self.push(span, kinds.password, Layer::Context);
                }
            }
            Target::Auth => {
                if let Some(span) = command::auth(view, start, after) {
                    self.push(span, kinds.password, Layer::Context);
                }
            }
            Target::Manifest => {
                for span in manifest::values(view, start + 1, after) {
                    self.push(span, kinds.secret, Layer::Context);
                }
            }
            Target::Spelled => self.spelled(start)?,
            Target::Placeholder => {}
        }
        Ok(())
    }

    /// What a text holds once its escapes are read.
    fn spelled(&mut self, sign: usize) -> Result<(), String> {
        let Some(reading) = Reading::around(self.view, sign) else { return Ok(()) };
        let (live, text) = (self.live, &reading.text);
        let mut place = 0;
        while let Some(next) = live.grams.next(text, place, text.len(), |_, _| true) {
            place = next + 1;
            for (anchor, start) in live.grams.at(text, next) {
                let Some((target, after)) = live.worth(anchor, text, start, &[]) else { continue };
                // These are no matter of one word.
                if matches!(target, Target::Placeholder | Target::Spelled | Target::Pem | Target::Manifest) {
                    continue;
                }
                let mut inner = Found::new(live, text);
                inner.at(target, start, after, |_| false)?;
                let back = |span: Span| {
                    let (start, end) = reading.place((span.start, span.end))?;
                    Some(Span { start, end, ..span })
                };
                self.endless = self.endless.or(inner.endless);
                self.spans.extend(inner.spans.into_iter().filter_map(back));
            }
        }
        self.read_to = reading.end();
        Ok(())
    }

    fn name(&mut self, start: usize, after: usize) {
        let (view, kinds) = (self.view, self.live.rules.kinds);
        if begins(part(view, start, start + 8), b"password")
            && let Some(span) = header::netrc(view, start, start + 8)
        {
            self.push(span, kinds.password, Layer::Context);
        }
        // `pwd=` and `pass:` are found with their sign, which is no part of the name.
        let signed = !before(view, after).is_ascii_alphanumeric();
        let Some(found) = assigned(view, start, after - usize::from(signed)) else { return };
        let name = part(view, found.name.0, found.name.1);
        let value = part(view, found.value.0, found.value.1);
        if (name.eq_ignore_ascii_case(b"auth") || name.eq_ignore_ascii_case(b"_auth"))
            && header::is_pair(value)
        {
            self.push(found.value, kinds.basic, Layer::Context);
            self.endless = found.open.map(Endless::Value);
        } else if let Some(span) = header::of_scheme(view, name, found.value, found.quoted) {
            self.push(span, kinds.secret, Layer::Context);
        } else if let Some(promise) = promise(name) {
            self.judge(&found, promise);
            if let Some(second) = changed(view, &found) {
                self.judge(&second, promise);
            }
        }
    }

    fn judge(&mut self, found: &Assigned, promise: Promise) {
        let kinds = self.live.rules.kinds;
        let name = part(self.view, found.name.0, found.name.1);
        let capitals = name.iter().all(|byte| !byte.is_ascii_lowercase());
        let standing = Standing {
            quoted: found.quoted,
            given: found.given,
            own_line: found.own_line,
            listed: found.listed,
            capitals,
            last: ends_telling(name),
        };
        let value = part(self.view, found.value.0, found.value.1);
        // A UUID that makes a request unique.
        if is_uuid(value) && says_request(name) {
            return;
        }
        // "it should pass ..." is no name.
        if found.given == Given::Blank && (name.eq_ignore_ascii_case(b"pass") || name.ends_with(b"Pass")) {
            return;
        }
        // `FUNCTION_PASS("...")` of a compiler.
        if found.given == Given::Call && name.ends_with(b"_PASS") {
            return;
        }
        // `PASSWORD '...'` of a statement, not a word of a text before something quoted.
        if found.given == Given::Blank
            && found.quoted
            && !matches!(before(self.view, found.value.0), b'\'' | b'"')
        {
            return;
        }
        // `secret, "name": ...`: the text is the name of something else.
        if found.given == Given::Beside && at(self.view, found.value.1 + 1) == b':' {
            return;
        }
        // The tokens in the addresses of badges are public, the names of secrets too.
        if is_badge(self.view, found.name.0) || is_resource(self.view, found.name.0) {
            return;
        }
        // `"userPassword", "RFC4519"`, `"decodePassword", "#decodePassword"`.
        let letters = value.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
        let numbered = letters >= 2 && part(value, letters, value.len()).iter().all(u8::is_ascii_digit);
        let again = value.to_ascii_lowercase().ends_with(&name.to_ascii_lowercase());
        if found.given == Given::Beside && (numbered || again) {
            return;
        }
        // Words of other languages stand in texts that the pairs of letters do not know.
        if found.given == Given::Blank && is_foreign(name) {
            return;
        }
        if is_secret(promise, value, standing) && !value.eq_ignore_ascii_case(name) {
            let kind = match promise {
                Promise::Password => kinds.password,
                Promise::Token => kinds.secret,
                Promise::Key | Promise::AnyKey => kinds.key,
                Promise::Service => kinds.service,
            };
            self.push(found.value, kind, Layer::Context);
            self.endless = found.open.map(Endless::Value);
        }
    }
}

/// Whether a name is part of a resource's: `arn:aws:secretsmanager:eu-west-1:1:secret:orders/db`.
fn is_resource(view: &[u8], name: usize) -> bool {
    let from = run_back(view, name, name.saturating_sub(120), |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'-')
    });
    before(view, name) == b':' && part(view, from, name).starts_with(b"arn:")
}

/// Whether the address before a name is that of a badge.
fn is_badge(view: &[u8], name: usize) -> bool {
    if !matches!(before(view, name), b'?' | b'&') {
        return false;
    }
    let from = run_back(view, name, name.saturating_sub(200), |byte| {
        byte > b' ' && !matches!(byte, b'"' | b'(' | b'\'')
    });
    [b".svg".as_slice(), b"badge", b"codecov", b"shields.io"]
        .iter()
        .any(|word| memchr::memmem::find(part(view, from, name), word).is_some())
}
