//! The known name that was probably meant.

/// The name nearest to `found`: at most a third of its letters away, and one letter in any case.
/// Two swapped letters count once (optimal string alignment); `_` and `-`, and the case of letters,
/// count for nothing.
pub fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Bounds the work: the comparison takes the product of both lengths.
    if found.len() > 64 {
        return None;
    }
    let found = found.to_lowercase().replace('_', "-");
    let max_distance = (found.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&found, &name.to_lowercase().replace('_', "-")), name))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_letters_count_once_and_unlike_names_are_not_proposed() {
        assert_eq!(nearest("codle", ["droptail", "codel", "fq_codel"]), Some("codel"));
        assert_eq!(nearest("fq-codel", ["droptail", "codel", "fq_codel"]), Some("fq_codel"));
        assert_eq!(nearest("sfb", ["droptail", "codel"]), None);
        assert_eq!(nearest("", ["droptail"]), None);
        assert_eq!(nearest(&"x".repeat(65), ["x"]), None);
    }
}
