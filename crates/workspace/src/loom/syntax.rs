//! Finding a pattern of ast-grep in a file and rewriting its matches. A match inside another match of the same edit is not
//! counted: the outermost ones are. Parsing is native code over hostile text, so it is bounded in size, depth and time and
//! runs on a thread of its own with room to recurse.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ast_grep_core::matcher::{MatcherExt as _, NodeMatch};
use ast_grep_core::replacer::{Replacer, TemplateFix};
use ast_grep_core::tree_sitter::StrDoc;
use ast_grep_core::{AstGrep, Matcher as _, Pattern};
use ast_grep_language::SupportLang;
use tree_sitter::Tree;
use vambrace_core::change::Splice;

use super::fault::LoomFault;
use super::found::{Found, Matches, OVER, Parsed};
use super::language::{Language, survey};
use super::reparse::reparsed;
use super::view::{Ending, View};
use crate::fault::{FileFault, shown};
use crate::search::{Begun, Strays, begin};

const MAX_PATTERN_BYTES: usize = 16 * 1024;
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Matching recurses once a level.
const MAX_DEPTH: usize = 4000;
const STACK: usize = 64 * 1024 * 1024;

/// What to find, and what to put in its place.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) language: Language,
    pub(crate) pattern: String,
    pub(crate) content: String,
    pub(crate) expected: usize,
    pub(crate) budget: Duration,
}

/// Looks for a pattern of syntax.
pub(crate) fn matches(
    strays: &Arc<Strays>,
    base: &Arc<Vec<u8>>,
    path: &str,
    wanted: Wanted,
) -> Result<Matches, LoomFault> {
    let (size, cap) = (base.len() as u64, MAX_FILE_BYTES);
    if size > cap {
        return Err(FileFault::TooLarge { path: shown(path), size, cap }.into());
    }
    if wanted.pattern.len() > MAX_PATTERN_BYTES {
        let why = format!("the pattern is longer than {MAX_PATTERN_BYTES} bytes");
        return Err(LoomFault::BadRequest { why });
    }
    let (shared, budget, name) = (Arc::clone(base), wanted.budget, shown(path));
    let work = move || {
        let mut tree = None;
        (find(&shared, &wanted, &name, &mut tree), tree)
    };
    let done = begin(strays, STACK, work)?.end(budget)?;
    done.ok_or(LoomFault::SlowSyntax { path: shown(path), budget })?
}

/// The tree is handed out to be taken down after the answer: that takes as long as finding.
fn find(
    base: &[u8],
    wanted: &Wanted,
    path: &str,
    tree: &mut Option<AstGrep<StrDoc<SupportLang>>>,
) -> Result<Matches, LoomFault> {
    let view = View::raw(base);
    let (source, odd) = text_of(view.text());
    let bad = |why: String| LoomFault::BadRequest { why };
    let grammar = wanted.language.grammar();
    let pattern = Pattern::try_new(&wanted.pattern, grammar)
        .map_err(|error| bad(format!("the pattern is not valid: {}", one_line(&error.to_string()))))?;
    let doc =
        StrDoc::try_new(&source, grammar).map_err(|why| bad(format!("`{path}` cannot be parsed: {why}")))?;
    // Handed on for the second parse; a copy shares the nodes.
    let whole = (source.len() == base.len() && odd.is_empty()).then(|| doc.tree.clone());
    let tree = tree.insert(AstGrep::doc(doc));
    // One walk: how deep it goes, and what may match; matching waits until the depth is known.
    let kinds = pattern.potential_kinds();
    let mut candidates = Vec::new();
    let surveyed = survey(tree.root().get_inner_node(), |node| {
        if kinds.as_ref().is_some_and(|kinds| kinds.contains(node.kind_id().into())) {
            candidates.push(node);
        }
    });
    if surveyed.depth > MAX_DEPTH {
        return Err(bad(format!("`{path}` is nested deeper than {MAX_DEPTH} levels")));
    }
    let parsed = Parsed { language: wanted.language, errors: surveyed.errors, tree: whole };
    let ending = Ending::of(base);
    let content = ending.fit(wanted.content.as_bytes(), b"");
    // The content was text, and line ends are.
    let content = String::from_utf8(content).unwrap_or_default();
    let template = TemplateFix::try_new(&content, &grammar).map_err(|error| bad(error.to_string()))?;
    let unknown = template.used_vars().into_iter().find(|var| !wanted.pattern.contains(&format!("${var}")));
    if let Some(var) = unknown {
        return Err(bad(format!("`content` names `${var}`, which the pattern does not have")));
    }
    let mut matches = Matches { parsed: Some(parsed), ..Matches::default() };
    let mut end = 0;
    let root = tree.root();
    let nodes: Box<dyn Iterator<Item = _>> = match kinds {
        Some(_) => Box::new(candidates.into_iter().filter_map(|node| pattern.match_node(tree.adopt(node)))),
        // Anything may match.
        None => Box::new(root.find_all(&pattern)),
    };
    for node in nodes {
        let span = replaced(&node, &pattern, &template);
        if span.start < end {
            continue;
        }
        end = span.end;
        if odd.iter().any(|at| span.contains(at)) {
            let why = "a match holds bytes that are not UTF-8".to_owned();
            return Err(FileFault::NotUtf8 { path: path.to_owned(), why }.into());
        }
        let insert = template.generate_replacement(&node);
        matches.found.push(Found { span: view.span(span), insert });
        if matches.found.len() > wanted.expected.saturating_add(OVER) {
            break;
        }
    }
    Ok(matches)
}

/// What `ast-grep` itself would replace: trailing punctuation that the pattern does not name stays.
fn replaced(
    node: &NodeMatch<'_, StrDoc<SupportLang>>,
    pattern: &Pattern,
    template: &TemplateFix,
) -> Range<usize> {
    template.get_replaced_range(node, pattern)
}

/// The bytes as text of the same length; what is not UTF-8 becomes `?`, and its places are told.
fn text_of(bytes: &[u8]) -> (String, Vec<usize>) {
    if let Ok(text) = simdutf8::basic::from_utf8(bytes) {
        return (text.to_owned(), Vec::new());
    }
    let mut text = String::with_capacity(bytes.len());
    let mut odd = Vec::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for _ in chunk.invalid() {
            odd.push(text.len());
            text.push('?');
        }
    }
    (text, odd)
}

fn one_line(words: &str) -> String {
    words.lines().next().unwrap_or_default().chars().take(200).collect()
}

/// Whether a change makes a file parse worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseReport {
    /// Places that the parser could not make sense of before.
    pub errors_before: usize,
    /// And afterwards.
    pub errors_after: usize,
}

impl ParseReport {
    /// Whether there are more of them.
    #[must_use]
    pub fn worse(&self) -> bool {
        self.errors_after > self.errors_before
    }
}

/// What is known of a file before its change.
#[derive(Debug)]
pub(crate) enum Before {
    /// It was parsed already.
    Parsed(Parsed),
    /// Nothing yet.
    Unknown,
}

/// A file before and after its change.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) language: Language,
    pub(crate) base: Arc<Vec<u8>>,
    pub(crate) splices: Vec<Splice>,
    pub(crate) new: Vec<u8>,
}

/// Two parses on the way, each on a thread of its own; or one, that goes on from what was parsed.
pub(crate) struct Parsing {
    before: Result<usize, Begun<Option<usize>>>,
    after: Begun<Option<usize>>,
    budget: Duration,
}

impl Parsing {
    /// Begins to parse a file as it is and as it shall be; `None` when that cannot be done now.
    pub(crate) fn begin(
        strays: &Arc<Strays>,
        before: Before,
        changed: Changed,
        budget: Duration,
    ) -> Option<Self> {
        strays.admit().ok()?;
        let (before, tree) = match before {
            Before::Parsed(parsed) => (Ok(parsed.errors), parsed.tree),
            Before::Unknown => {
                let (base, language) = (Arc::clone(&changed.base), changed.language);
                (Err(begin(strays, STACK, move || errors(&base, language)).ok()?), None)
            }
        };
        let after = begin(strays, STACK, move || match tree {
            Some(tree) => {
                let Changed { language, base, splices, new } = &changed;
                let tree = reparsed(*language, tree, base, splices, new);
                (tree.as_ref().map(errors_in), (tree, None, changed))
            }
            None => {
                let (count, doc) = errors(&changed.new, changed.language);
                (count, (None, doc, changed))
            }
        });
        Some(Self { before, after: after.ok()?, budget })
    }

    /// How they compare; `None` when that took too long or cannot be said.
    pub(crate) fn end(self) -> Option<ParseReport> {
        let errors_before = match self.before {
            Ok(errors) => errors,
            Err(begun) => begun.end(self.budget).ok()???,
        };
        Some(ParseReport { errors_before, errors_after: self.after.end(self.budget).ok()??? })
    }
}

fn errors(bytes: &[u8], language: Language) -> (Option<usize>, Option<StrDoc<SupportLang>>) {
    let (source, _) = text_of(View::raw(bytes).text());
    let doc = StrDoc::try_new(&source, language.grammar()).ok();
    (doc.as_ref().map(|doc| errors_in(&doc.tree)), doc)
}

/// The root knows whether there are any; only then they are counted.
fn errors_in(tree: &Tree) -> usize {
    if tree.root_node().has_error() { survey(tree.root_node(), |_| ()).errors } else { 0 }
}
