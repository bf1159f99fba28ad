//! "Did you mean" suggestions: finds the known name that is closest to a mistyped one.

/// The known name with the smallest edit distance, if it is close enough to be a plausible typo.
pub fn nearest<'a>(asked: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near_enough = |name: &str| 1 + asked.chars().count().max(name.chars().count()) / 3;
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&asked.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= near_enough(name))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_suggested_and_distant_ones_are_not() {
        let known = ["read_file", "list_files", "search_file"];
        assert_eq!(nearest("raed_file", known), Some("read_file"));
        assert_eq!(nearest("ListFiles", known), Some("list_files"));
        assert_eq!(nearest("launch_missiles", known), None);
        assert_eq!(nearest("", known), None);
    }
}
