//! The languages with a grammar, by name or file extension, and the survey of a syntax tree.

use ast_grep_language::SupportLang;
use tree_sitter::Node;

/// A language with a grammar compiled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Language(SupportLang);

/// A grammar with the language names and file extensions it serves.
type GrammarNames = (SupportLang, &'static [&'static str]);

/// Languages that every build has.
const COMMON: &[GrammarNames] = &[
    (SupportLang::Bash, &["bash", "sh", "zsh", "ksh", "bats"]),
    (SupportLang::C, &["c", "h"]),
    (SupportLang::Cpp, &["cpp", "cc", "cxx", "c++", "hpp", "hh", "hxx", "h++", "cu", "ino"]),
    (SupportLang::Go, &["go", "golang"]),
    (SupportLang::Java, &["java"]),
    (SupportLang::JavaScript, &["javascript", "js", "jsx", "mjs", "cjs"]),
    (SupportLang::Json, &["json"]),
    (SupportLang::Python, &["python", "py", "pyi", "py3", "bzl"]),
    (SupportLang::Rust, &["rust", "rs"]),
    (SupportLang::Tsx, &["tsx"]),
    (SupportLang::TypeScript, &["typescript", "ts", "mts", "cts"]),
    (SupportLang::Yaml, &["yaml", "yml"]),
];

/// Languages that only builds with the cargo feature `full-languages` have.
const FURTHER: &[GrammarNames] = &[
    (SupportLang::CSharp, &["csharp", "cs", "c#"]),
    (SupportLang::Css, &["css"]),
    (SupportLang::Html, &["html", "htm", "xhtml"]),
    (SupportLang::Php, &["php"]),
    (SupportLang::Ruby, &["ruby", "rb", "rbw", "gemspec"]),
];

/// The cargo feature that compiles the grammars of [`FURTHER`].
pub(crate) const FULL_LANGUAGES: &str = "full-languages";

/// Every language of this build.
fn compiled() -> impl Iterator<Item = &'static GrammarNames> {
    let further: &[GrammarNames] = if cfg!(feature = "full-languages") { FURTHER } else { &[] };
    COMMON.iter().chain(further)
}

impl Language {
    /// By language name or extension.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        compiled().find(|(_, names)| names.contains(&name.as_str())).map(|(lang, _)| Self(*lang))
    }

    /// Whether a name or extension is one of a language that this build lacks and `full-languages` adds.
    pub(crate) fn needs_full_languages(name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        !cfg!(feature = "full-languages") && FURTHER.iter().any(|(_, names)| names.contains(&name.as_str()))
    }

    /// By file name.
    pub(crate) fn of_file(name: &str) -> Option<Self> {
        name.rsplit_once('.').and_then(|(_, extension)| Self::named(extension))
    }

    pub(crate) fn grammar(self) -> SupportLang {
        self.0
    }
}

/// Errors and depth of a syntax tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Number of error nodes.
    pub(crate) errors: usize,
    /// Levels of nesting.
    pub(crate) depth: usize,
}

/// Walks a tree once, without recursion: deep nesting in untrusted text must not overflow the stack.
pub(crate) fn survey<'t>(root: Node<'t>, mut seen: impl FnMut(Node<'t>)) -> Survey {
    let mut cursor = root.walk();
    let mut parsed = Survey { errors: 0, depth: 0 };
    let mut depth = 0;
    // The root node knows whether there are errors.
    let any = root.has_error();
    loop {
        let node = cursor.node();
        if any {
            parsed.errors += usize::from(node.is_error() || node.is_missing());
        }
        seen(node);
        parsed.depth = parsed.depth.max(depth);
        if cursor.goto_first_child() {
            depth += 1;
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return parsed;
            }
            depth -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use ast_grep_core::tree_sitter::StrDoc;

    use super::*;

    // T8
    #[test]
    fn every_language_of_the_table_has_a_grammar_that_detects_errors() {
        for (lang, names) in compiled() {
            let good = StrDoc::try_new("", *lang).unwrap();
            assert_eq!(survey(good.tree.root_node(), |_| ()).errors, 0, "{lang}");
            assert!(names.iter().all(|name| Language::named(name) == Some(Language(*lang))), "{lang}");
        }
        let bad = StrDoc::try_new("fn a( {", SupportLang::Rust).unwrap();
        assert!(survey(bad.tree.root_node(), |_| ()).errors > 0);
        assert_eq!(Language::of_file("a.RS"), Some(Language(SupportLang::Rust)));
        assert_eq!(Language::of_file("Makefile"), None);
    }
}
