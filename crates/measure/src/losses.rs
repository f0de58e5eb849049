//! Which probes were lost on the way up, and which of their answers on the way down.
//!
//! signal: answers in the order of their probes, each with the number of probes that the server has had · model: between
//! two answers the server had as many as its count grew; the others were lost on the way up · action: each probe without
//! answer is lost up, lost down, or lost at an unknown place.
//!
//! Within a gap the order is unknown; lost probes are put before lost answers. Sums are exact unless packets overtook
//! each other, and then never leave the gap.

/// What became of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was answered.
    Answered,
    /// It did not reach the server.
    LostUp,
    /// Its answer did not come back.
    LostDown,
    /// No later answer has a count.
    Unknown,
}

/// The fate of each probe, from the server's count in its answer.
pub fn fates(counts: &[Option<u32>]) -> Vec<Fate> {
    let mut fates = vec![Fate::Unknown; counts.len()];
    // Number of the probe behind the last answer, and the server's count then.
    let (mut next, mut had) = (0, 0_u32);
    for (number, count) in counts.iter().enumerate() {
        let Some(count) = *count else { continue };
        let missing = number - next;
        let answers_lost = count.saturating_sub(had).saturating_sub(1) as usize;
        let lost_up = missing - answers_lost.min(missing);
        fates[next..next + lost_up].fill(Fate::LostUp);
        fates[next + lost_up..number].fill(Fate::LostDown);
        fates[number] = Fate::Answered;
        (next, had) = (number + 1, had.max(count));
    }
    fates
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_servers_count_separates_lost_probes_from_lost_answers() {
        use Fate::{Answered, LostDown, LostUp, Unknown};
        let counts = [None, Some(1), None, None, Some(3), None, Some(5), None];
        assert_eq!(
            fates(&counts),
            [LostUp, Answered, LostUp, LostDown, Answered, LostDown, Answered, Unknown]
        );
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_path(ways in prop::collection::vec((any::<bool>(), any::<bool>()), 0..400)) {
            let mut had = 0;
            let counts: Vec<Option<u32>> = ways
                .iter()
                .map(|(up, down)| {
                    had += u32::from(*up);
                    (*up && *down).then_some(had)
                })
                .collect();
            let found = fates(&counts);
            let known = counts.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            let count = |fate| found.iter().filter(|f| **f == fate).count();
            prop_assert_eq!(count(Fate::LostUp), ways[..known].iter().filter(|(up, _)| !up).count());
            prop_assert_eq!(count(Fate::LostDown), ways[..known].iter().filter(|(up, down)| *up && !down).count());
            prop_assert_eq!(count(Fate::Unknown), ways.len() - known);
        }

        #[test]
        fn any_counts_are_read(counts in prop::collection::vec(prop::option::of(any::<u32>()), 0..100)) {
            let found = fates(&counts);
            prop_assert!(found.iter().zip(&counts).all(|(f, c)| (*f == Fate::Answered) == c.is_some()));
        }
    }
}
