//! Finds an ast-grep pattern in a file and rewrites its matches. Only outermost matches count, not a match inside another
//! match of the same edit. Parsing runs native code over untrusted text, so it is bounded in size, depth and time and runs
//! on a thread of its own with a large stack.

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

use super::error::EditError;
use super::language::{Language, survey};
use super::matches::{MAX_EXCESS_MATCHES, Matches, ParsedFile, SpanMatch};
use super::normalized_text::{LineEnding, NormalizedText};
use super::reparse::reparsed;
use crate::error::{FileError, display_path};
use crate::search::{AbandonedThreads, DetachedTask, spawn_task};

const MAX_PATTERN_BYTES: usize = 16 * 1024;
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum nesting of the syntax tree; matching recurses once per level.
const MAX_DEPTH: usize = 4000;
const PARSER_STACK_BYTES: usize = 64 * 1024 * 1024;

/// A syntax pattern and its replacement.
#[derive(Debug, Clone)]
pub(crate) struct SyntaxQuery {
    pub(crate) language: Language,
    pub(crate) pattern: String,
    pub(crate) content: String,
    pub(crate) expected: usize,
    pub(crate) budget: Duration,
}

/// Finds a syntax pattern.
pub(crate) fn matches(
    abandoned_threads: &Arc<AbandonedThreads>,
    base: &Arc<Vec<u8>>,
    path: &str,
    query: SyntaxQuery,
) -> Result<Matches, EditError> {
    let (size, cap) = (base.len() as u64, MAX_FILE_BYTES);
    if size > cap {
        return Err(FileError::TooLarge { path: display_path(path), size, cap }.into());
    }
    if query.pattern.len() > MAX_PATTERN_BYTES {
        let why = format!("the pattern is longer than {MAX_PATTERN_BYTES} bytes");
        return Err(EditError::BadRequest { why });
    }
    let (shared, budget, name) = (Arc::clone(base), query.budget, display_path(path));
    let work = move || {
        let mut tree = None;
        (find(&shared, &query, &name, &mut tree), tree)
    };
    let done = spawn_task(abandoned_threads, PARSER_STACK_BYTES, work)?.wait(budget)?;
    done.ok_or(EditError::AstTimeout { path: display_path(path), budget })?
}

/// The tree is returned through `tree` so that it is dropped after the result was sent: dropping takes as long as finding.
fn find(
    base: &[u8],
    query: &SyntaxQuery,
    path: &str,
    tree: &mut Option<AstGrep<StrDoc<SupportLang>>>,
) -> Result<Matches, EditError> {
    let view = NormalizedText::raw(base);
    let (source, odd) = text_of(view.text());
    let bad = |why: String| EditError::BadRequest { why };
    let grammar = query.language.grammar();
    let pattern = Pattern::try_new(&query.pattern, grammar)
        .map_err(|error| bad(format!("the pattern is not valid: {}", first_line(&error.to_string()))))?;
    let doc =
        StrDoc::try_new(&source, grammar).map_err(|why| bad(format!("`{path}` cannot be parsed: {why}")))?;
    // Kept for the second parse; a clone shares the nodes.
    let whole = (source.len() == base.len() && odd.is_empty()).then(|| doc.tree.clone());
    let tree = tree.insert(AstGrep::doc(doc));
    // One walk collects the depth and the candidates; matching starts only when the depth is known to be within the limit.
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
    let parsed = ParsedFile { language: query.language, errors: surveyed.errors, tree: whole };
    let ending = LineEnding::of(base);
    let content = ending.fit(query.content.as_bytes(), b"");
    // The content was UTF-8, and so are line endings.
    let content = String::from_utf8(content).unwrap_or_default();
    let template = TemplateFix::try_new(&content, &grammar).map_err(|error| bad(error.to_string()))?;
    let unknown = template.used_vars().into_iter().find(|var| !query.pattern.contains(&format!("${var}")));
    if let Some(var) = unknown {
        return Err(bad(format!("`content` refers to `${var}`, which the pattern does not define")));
    }
    let mut matches = Matches { parsed: Some(parsed), ..Matches::default() };
    let mut end = 0;
    let root = tree.root();
    let nodes: Box<dyn Iterator<Item = _>> = match kinds {
        Some(_) => Box::new(candidates.into_iter().filter_map(|node| pattern.match_node(tree.adopt(node)))),
        // Any kind of node may match.
        None => Box::new(root.find_all(&pattern)),
    };
    for node in nodes {
        let span = replaced(&node, &pattern, &template);
        if span.start < end {
            continue;
        }
        end = span.end;
        if odd.iter().any(|at| span.contains(at)) {
            let why = "a match contains bytes that are not UTF-8".to_owned();
            return Err(FileError::NotUtf8 { path: path.to_owned(), why }.into());
        }
        let insert = template.generate_replacement(&node);
        matches.found.push(SpanMatch { span: view.span(span), insert });
        if matches.found.len() > query.expected.saturating_add(MAX_EXCESS_MATCHES) {
            break;
        }
    }
    Ok(matches)
}

/// The range that `ast-grep` itself would replace: trailing punctuation that is not in the pattern stays.
fn replaced(
    node: &NodeMatch<'_, StrDoc<SupportLang>>,
    pattern: &Pattern,
    template: &TemplateFix,
) -> Range<usize> {
    template.get_replaced_range(node, pattern)
}

/// The bytes as text of the same length, with `?` for each byte that is not UTF-8, and the offsets of those bytes.
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

fn first_line(words: &str) -> String {
    words.lines().next().unwrap_or_default().chars().take(200).collect()
}

/// Syntax errors before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseReport {
    /// Number of syntax errors before.
    pub errors_before: usize,
    /// Number of syntax errors after.
    pub errors_after: usize,
}

impl ParseReport {
    /// Whether the change adds syntax errors.
    #[must_use]
    pub fn worse(&self) -> bool {
        self.errors_after > self.errors_before
    }
}

/// Whether the base of a change was parsed.
#[derive(Debug)]
pub(crate) enum ParseBase {
    /// It was parsed already.
    Parsed(ParsedFile),
    /// Not yet parsed.
    Unknown,
}

/// A file before and after its change.
#[derive(Debug)]
pub(crate) struct ChangedFile {
    pub(crate) language: Language,
    pub(crate) base: Arc<Vec<u8>>,
    pub(crate) splices: Vec<Splice>,
    pub(crate) new: Vec<u8>,
}

/// A running comparison: two parses, each on a thread of its own, or one incremental parse.
pub(crate) struct ParseComparison {
    before: Result<usize, DetachedTask<Option<usize>>>,
    after: DetachedTask<Option<usize>>,
    budget: Duration,
}

impl ParseComparison {
    /// Starts parsing a file before and after its change; `None` when no thread is available.
    pub(crate) fn begin(
        abandoned_threads: &Arc<AbandonedThreads>,
        before: ParseBase,
        changed: ChangedFile,
        budget: Duration,
    ) -> Option<Self> {
        abandoned_threads.check_limit().ok()?;
        let (before, tree) = match before {
            ParseBase::Parsed(parsed) => (Ok(parsed.errors), parsed.tree),
            ParseBase::Unknown => {
                let (base, language) = (Arc::clone(&changed.base), changed.language);
                (
                    Err(spawn_task(abandoned_threads, PARSER_STACK_BYTES, move || errors(&base, language))
                        .ok()?),
                    None,
                )
            }
        };
        let after = spawn_task(abandoned_threads, PARSER_STACK_BYTES, move || match tree {
            Some(tree) => {
                let ChangedFile { language, base, splices, new } = &changed;
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

    /// Waits for the result; `None` when parsing exceeded the budget or failed.
    pub(crate) fn wait(self) -> Option<ParseReport> {
        let errors_before = match self.before {
            Ok(errors) => errors,
            Err(task) => task.wait(self.budget).ok()???,
        };
        Some(ParseReport { errors_before, errors_after: self.after.wait(self.budget).ok()??? })
    }
}

fn errors(bytes: &[u8], language: Language) -> (Option<usize>, Option<StrDoc<SupportLang>>) {
    let (source, _) = text_of(NormalizedText::raw(bytes).text());
    let doc = StrDoc::try_new(&source, language.grammar()).ok();
    (doc.as_ref().map(|doc| errors_in(&doc.tree)), doc)
}

/// The root node knows whether there are errors; only then the tree is walked.
fn errors_in(tree: &Tree) -> usize {
    if tree.root_node().has_error() { survey(tree.root_node(), |_| ()).errors } else { 0 }
}
