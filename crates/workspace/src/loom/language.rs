//! The languages whose syntax is known, by the name or the extension of a file, and how well a text parses.

use ast_grep_language::SupportLang;
use tree_sitter::Node;

/// A language with a grammar compiled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Language(SupportLang);

/// Names that a caller may use, and the extensions of files. The grammars of other languages are not compiled in.
const LANGUAGES: &[(SupportLang, &[&str])] = &[
    (SupportLang::Bash, &["bash", "sh", "zsh", "ksh", "bats"]),
    (SupportLang::C, &["c", "h"]),
    (SupportLang::Cpp, &["cpp", "cc", "cxx", "c++", "hpp", "hh", "hxx", "h++", "cu", "ino"]),
    (SupportLang::CSharp, &["csharp", "cs", "c#"]),
    (SupportLang::Css, &["css"]),
    (SupportLang::Go, &["go", "golang"]),
    (SupportLang::Html, &["html", "htm", "xhtml"]),
    (SupportLang::Java, &["java"]),
    (SupportLang::JavaScript, &["javascript", "js", "jsx", "mjs", "cjs"]),
    (SupportLang::Json, &["json"]),
    (SupportLang::Php, &["php"]),
    (SupportLang::Python, &["python", "py", "pyi", "py3", "bzl"]),
    (SupportLang::Ruby, &["ruby", "rb", "rbw", "gemspec"]),
    (SupportLang::Rust, &["rust", "rs"]),
    (SupportLang::Tsx, &["tsx"]),
    (SupportLang::TypeScript, &["typescript", "ts", "mts", "cts"]),
    (SupportLang::Yaml, &["yaml", "yml"]),
];

impl Language {
    /// By a name that a caller gives.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        LANGUAGES.iter().find(|(_, names)| names.contains(&name.as_str())).map(|(lang, _)| Self(*lang))
    }

    /// By the name of a file.
    pub(crate) fn of_file(name: &str) -> Option<Self> {
        name.rsplit_once('.').and_then(|(_, extension)| Self::named(extension))
    }

    pub(crate) fn grammar(self) -> SupportLang {
        self.0
    }
}

/// What a tree looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Places it could not make sense of.
    pub(crate) errors: usize,
    /// Levels of nesting.
    pub(crate) depth: usize,
}

/// Walks a tree once, without recursion: hostile nesting must not cost the stack.
pub(crate) fn survey<'t>(root: Node<'t>, mut seen: impl FnMut(Node<'t>)) -> Survey {
    let mut cursor = root.walk();
    let mut parsed = Survey { errors: 0, depth: 0 };
    let mut depth = 0;
    // The root knows whether there are any.
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
    fn every_language_of_the_table_has_a_grammar_and_tells_good_from_bad() {
        for (lang, names) in LANGUAGES {
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
