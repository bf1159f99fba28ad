//! The nearest name to a mistyped one, for suggestions.

/// The nearest of the known names, if one is near enough to be worth saying.
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
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["read_file", "list_files", "search_file"];
        assert_eq!(nearest("raed_file", known), Some("read_file"));
        assert_eq!(nearest("ListFiles", known), Some("list_files"));
        assert_eq!(nearest("launch_missiles", known), None);
        assert_eq!(nearest("", known), None);
    }
}
