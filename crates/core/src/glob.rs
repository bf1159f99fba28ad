//! Path globs of rules, roles and skills. A glob that names a folder means everything below it: a path matches when it,
//! or a folder above it, does. `project:` globs are relative to the project root, others to the service root.
//!
//! A file that moves the service root must not move the rules above it. So what *narrows* is compared with every
//! spelling of a path, from the project root down to the service root, and what *permits* only with the one that its
//! writer saw.

use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::block::BadPattern;
use crate::path::{ScopedPath, Zone};

/// What the globs of one writer stand on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ground {
    /// The service root in force, relative to the project root; empty for the project root itself.
    pub service_root: String,
    /// The service root that the writer saw.
    pub seen: String,
}

impl Ground {
    /// The project root is the service root.
    #[must_use]
    pub fn plain() -> Self {
        Self::default()
    }
}

/// What globs are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// They take away: any spelling of a path will do.
    Narrow,
    /// They give: only the spelling that their writer meant.
    Permit,
}

/// A compiled list of path globs.
#[derive(Debug, Clone)]
pub struct PathGlobs {
    globs: Arc<[String]>,
    service_root: Arc<str>,
    /// Compared with the path from the project root, and from every folder down to the service root.
    anywhere: Placed,
    /// Compared with the path from the project root.
    from_project: Placed,
}

/// Globs with their places in the whole list.
#[derive(Debug, Clone)]
struct Placed {
    set: GlobSet,
    places: Vec<usize>,
}

impl PartialEq for PathGlobs {
    fn eq(&self, other: &Self) -> bool {
        self.globs == other.globs && self.service_root == other.service_root
    }
}

impl PathGlobs {
    /// Compiles.
    pub fn new<S: AsRef<str>>(
        globs: impl IntoIterator<Item = S>,
        purpose: Purpose,
        ground: &Ground,
    ) -> Result<Self, BadPattern> {
        let globs: Arc<[String]> = globs.into_iter().map(|glob| glob.as_ref().to_owned()).collect();
        let (mut anywhere, mut from_project) = (Vec::new(), Vec::new());
        for (place, glob) in globs.iter().enumerate() {
            match (glob.strip_prefix("project:"), purpose) {
                (Some(rest), _) => from_project.push((place, glob, named(rest, ""))),
                (None, Purpose::Narrow) => anywhere.push((place, glob, named(glob, ""))),
                (None, Purpose::Permit) => from_project.push((place, glob, named(glob, &ground.seen))),
            }
        }
        Ok(Self {
            service_root: ground.service_root.as_str().into(),
            anywhere: Placed::new(anywhere)?,
            from_project: Placed::new(from_project)?,
            globs,
        })
    }

    /// No globs: nothing matches.
    #[must_use]
    pub fn none() -> Self {
        let none = Placed { set: GlobSet::empty(), places: Vec::new() };
        Self { globs: Arc::new([]), service_root: "".into(), anywhere: none.clone(), from_project: none }
    }

    /// The globs as written.
    #[must_use]
    pub fn globs(&self) -> &[String] {
        &self.globs
    }

    /// Whether one of them matches.
    #[must_use]
    pub fn matches(&self, path: &ScopedPath) -> bool {
        let place = self.place(path);
        self.from_project.is_match(&place)
            || self.spellings(path, &place).any(|spelling| self.anywhere.is_match(spelling))
    }

    /// Which of them match, by their place in the list, in order.
    #[must_use]
    pub fn matching(&self, path: &ScopedPath) -> Vec<usize> {
        let mut places = Vec::new();
        let place = self.place(path);
        self.from_project.each_match(&place, &mut |hit| places.push(hit));
        for spelling in self.spellings(path, &place) {
            self.anywhere.each_match(spelling, &mut |hit| places.push(hit));
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The path from the project root, and from each folder on the way to the service root.
    fn spellings<'a>(&self, path: &ScopedPath, place: &'a str) -> impl Iterator<Item = &'a str> {
        let steps = match path.zone() {
            Zone::Service => self.service_root.split('/').filter(|name| !name.is_empty()).count(),
            Zone::Project => 0,
        };
        std::iter::successors(Some(place), |rest| rest.split_once('/').map(|(_, below)| below))
            .take(steps + 1)
    }

    /// The path from the project root.
    fn place(&self, path: &ScopedPath) -> String {
        match path.zone() {
            Zone::Project => path.relative().to_owned(),
            Zone::Service => join(&self.service_root, path.relative()),
        }
    }
}

impl Placed {
    /// Each glob twice: the thing itself, and everything below it.
    fn new(globs: Vec<(usize, &String, String)>) -> Result<Self, BadPattern> {
        let mut set = GlobSetBuilder::new();
        let mut places = Vec::new();
        for (place, written, glob) in globs {
            let below = format!("{glob}/**");
            for glob in [glob, below] {
                let bad = |why: String| BadPattern { pattern: written.clone(), why };
                let built = GlobBuilder::new(&glob).literal_separator(true).build();
                set.add(built.map_err(|error| bad(error.kind().to_string()))?);
                places.push(place);
            }
        }
        let set =
            set.build().map_err(|error| BadPattern { pattern: String::new(), why: error.to_string() })?;
        Ok(Self { set, places })
    }

    fn each_match(&self, path: &str, found: &mut dyn FnMut(usize)) {
        if self.places.is_empty() {
            return;
        }
        let hits = self.set.matches(path);
        hits.iter().filter_map(|hit| self.places.get(*hit)).for_each(|place| found(*place));
    }

    fn is_match(&self, path: &str) -> bool {
        !self.places.is_empty() && self.set.is_match(path)
    }
}

/// The glob as the matcher wants it: clean, a bare name at any depth below where its writer stood.
fn named(glob: &str, seen: &str) -> String {
    let names: Vec<&str> = glob.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    // A trailing `**` adds nothing: a folder means everything below it.
    let names = match names.as_slice() {
        [names @ .., "**"] if !names.is_empty() => names,
        names => names,
    };
    match names {
        [] => join(seen, "**"),
        [name] if !glob.trim_start_matches("./").contains('/') && *name != "**" => {
            join(seen, &format!("**/{name}"))
        }
        names => join(seen, &names.join("/")),
    }
}

fn join(folder: &str, rest: &str) -> String {
    match (folder, rest) {
        ("" | ".", rest) => rest.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, rest) => format!("{folder}/{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::AskedPath;

    fn check(purpose: Purpose, ground: &Ground, glob: &str, path: &str, expected: bool) {
        let globs = PathGlobs::new([glob], purpose, ground).unwrap();
        let path = AskedPath::new(path).parse().unwrap();
        assert_eq!(globs.matches(&path), expected, "{glob} {path} {purpose:?}");
        assert_eq!(!globs.matching(&path).is_empty(), expected);
    }

    #[test]
    fn globs_mean_what_people_expect() {
        for (glob, path, expected) in [
            ("docs/", "docs/a/b.md", true),
            ("docs/", "docs", true),
            ("docs/**", "docs/a", true),
            ("docs/**", "docs", true),
            ("docs/", "x/docs/a", false),
            ("docs", "x/docs/a", true),
            ("private", "private/deep/x", true),
            ("cfg/prod", "cfg/prod/x", true),
            ("private//", "private/x", true),
            ("private/./", "private/x", true),
            ("./private/", "private/x", true),
            ("Smith, John/", "Smith, John/x", true),
            ("a,b/", "b/x", false),
            ("**/docs/", "x/docs/a", true),
            ("*.md", "a/b.md", true),
            ("*.md", "b.md", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/x/a.rs", false),
            ("**", "a/b", true),
            (".", "a/b", true),
            ("project:shared/", "shared/x", true),
            ("project:*.md", "a/x.md", true),
        ] {
            check(Purpose::Narrow, &Ground::plain(), glob, path, expected);
            check(Purpose::Permit, &Ground::plain(), glob, path, expected);
        }
    }

    #[test]
    fn moving_the_service_root_moves_no_rule() {
        let moved = Ground { service_root: "svc/a".to_owned(), seen: String::new() };
        for (glob, path, narrows, permits) in [
            ("svc/a/prod.yaml", "prod.yaml", true, true),
            ("a/prod.yaml", "prod.yaml", true, false),
            ("prod.yaml", "prod.yaml", true, true),
            ("docs/", "docs/x", true, false),
            ("project:svc/a/x", "x", true, true),
            ("*.key", "project:shared/a.key", true, true),
            ("shared/", "project:shared/a", true, true),
            ("other/", "docs/x", false, false),
        ] {
            check(Purpose::Narrow, &moved, glob, path, narrows);
            check(Purpose::Permit, &moved, glob, path, permits);
        }
        let own = Ground { service_root: "svc/a".to_owned(), seen: "svc/a".to_owned() };
        check(Purpose::Permit, &own, "docs/", "docs/x", true);
        check(Purpose::Permit, &own, "*.md", "x/y.md", true);
        check(Purpose::Permit, &own, "*.md", "project:shared/y.md", false);
    }
}
