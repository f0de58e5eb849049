//! The known name that was probably meant.
//!
//! signal: what stands in the file · model: optimal string alignment, so that two swapped letters count once ·
//! action: the nearest known name, where it is near enough to be worth asking about.

/// The name nearest to `found`: at most a third of its letters away, and one letter in any case.
pub(crate) fn nearest<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Nobody mistypes a name into a paragraph; and the comparison takes the product of both lengths.
    if found.len() > 64 {
        return None;
    }
    let found = found.to_lowercase().replace('_', "-");
    let reach = (found.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (distance(&found, &name.to_lowercase().replace('_', "-")), name))
        .filter(|(far, _)| *far <= reach)
        .min_by_key(|(far, _)| *far)
        .map(|(_, name)| name)
}

/// Letters to insert, delete, replace or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut two_above = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = above[j] + usize::from(x != y);
            row[j + 1] = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                row[j + 1] = row[j + 1].min(two_above[j - 1] + 1);
            }
        }
        two_above = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_letters_count_once_and_strangers_are_not_proposed() {
        assert_eq!(distance("codle", "codel"), 1);
        assert_eq!(nearest("codle", ["droptail", "codel", "fq_codel"]), Some("codel"));
        assert_eq!(nearest("fq-codel", ["droptail", "codel", "fq_codel"]), Some("fq_codel"));
        assert_eq!(nearest("sfb", ["droptail", "codel"]), None);
        assert_eq!(nearest("", ["droptail"]), None);
    }
}
