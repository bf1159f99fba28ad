//! Incremental parsing: reuses the syntax tree of the base, so unchanged parts are not parsed again. Comparing syntax errors
//! before and after stays cheap, however many splices a change has.

use ast_grep_core::tree_sitter::LanguageExt as _;
use memchr::{memchr_iter, memrchr};
use tree_sitter::{InputEdit, Parser, Point, Tree};
use vambrace_core::change::Splice;

use super::language::Language;

/// The tree of the new content. `tree` must be the tree of `base`, and the splices must turn `base` into `new`.
pub(crate) fn reparsed(
    language: Language,
    mut tree: Tree,
    base: &[u8],
    splices: &[Splice],
    new: &[u8],
) -> Option<Tree> {
    let edits = edits(base, splices)?;
    // From the end, so that earlier offsets stay valid.
    edits.iter().rev().for_each(|edit| tree.edit(edit));
    let mut parser = Parser::new();
    parser.set_language(&language.grammar().get_ts_language()).ok()?;
    parser.parse(new, Some(&tree))
}

/// The splices with rows and columns.
fn edits(base: &[u8], splices: &[Splice]) -> Option<Vec<InputEdit>> {
    let (mut at, mut place) = (0, Point { row: 0, column: 0 });
    let mut step = |to: usize| {
        place = moved(place, base.get(at..to)?);
        at = to;
        Some(place)
    };
    let mut edits = Vec::with_capacity(splices.len());
    for splice in splices {
        let start_byte = usize::try_from(splice.at).ok()?;
        let old_end_byte = start_byte.checked_add(usize::try_from(splice.remove).ok()?)?;
        let (start_position, old_end_position) = (step(start_byte)?, step(old_end_byte)?);
        edits.push(InputEdit {
            start_byte,
            old_end_byte,
            new_end_byte: start_byte.checked_add(splice.insert.len())?,
            start_position,
            old_end_position,
            new_end_position: moved(start_position, &splice.insert),
        });
    }
    Some(edits)
}

/// The position after a text.
fn moved(from: Point, text: &[u8]) -> Point {
    match memrchr(b'\n', text) {
        None => Point { row: from.row, column: from.column + text.len() },
        Some(last) => {
            Point { row: from.row + memchr_iter(b'\n', text).count(), column: text.len() - last - 1 }
        }
    }
}

#[cfg(test)]
mod tests {
    use ast_grep_core::tree_sitter::StrDoc;
    use vambrace_core::change::spliced;

    use super::*;

    // T8: the report about a change does not depend on how it was parsed
    #[test]
    fn an_incremental_parse_equals_a_full_parse() {
        let lines = |count: usize| -> String {
            (0..count).map(|n| format!("fn f{n}(a: u64) -> u64 {{\n    call(a, {n})\n}}\n")).collect()
        };
        let cases: [(&str, String, &str, &str); 5] = [
            ("rs", lines(50), "call(a", "longer_call(\n        a"),
            ("rs", lines(50), "call(a", "call((a"),
            (
                "py",
                "def f(x):\n    if x:\n        return 1\n    return 2\n".repeat(20),
                "    if x:\n        return 1\n",
                "    while x:\n        x -= 1\n",
            ),
            ("py", "def f(x):\n    return x\n".repeat(20), "    return x\n", "  \treturn x\n"),
            ("yaml", "a:\n  - b: c\n    d: e\n".replace('a', "key"), "  - b", "    - b"),
        ];
        for (extension, base, from, to) in cases {
            let language = Language::named(extension).unwrap();
            let splices: Vec<Splice> = base
                .match_indices(from)
                .map(|(at, _)| Splice {
                    at: at as u64,
                    remove: from.len() as u64,
                    insert: to.as_bytes().to_vec(),
                })
                .collect();
            assert!(!splices.is_empty());
            let new = spliced(base.as_bytes(), &splices).unwrap();
            let tree = |text: &str| StrDoc::try_new(text, language.grammar()).unwrap().tree;
            let again = reparsed(language, tree(&base), base.as_bytes(), &splices, &new).unwrap();
            let fresh = tree(std::str::from_utf8(&new).unwrap());
            assert_eq!(again.root_node().to_sexp(), fresh.root_node().to_sexp(), "{from:?} -> {to:?}");
            assert_eq!(again.root_node().end_position(), fresh.root_node().end_position());
        }
    }

    #[test]
    fn splices_past_the_end_are_rejected() {
        let beyond = [Splice { at: 3, remove: 9, insert: Vec::new() }];
        assert!(edits(b"abc", &beyond).is_none());
    }
}
