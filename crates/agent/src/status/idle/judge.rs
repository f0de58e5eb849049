//! Decides whether the cure on sockets does nothing although data arrives in its scope: figures in,
//! problem out.

/// So much in scope, and nothing counted, is a problem.
pub(super) const ENOUGH: u64 = 100_000;
/// ACKs after which it is judged whether the clamps are the cure's: at two per round trip more than
/// autotuning needs to let a buffer grow, which replaces a clamp once a round trip.
pub(super) const CLAMPS: u64 = 100;

/// Why a cure does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The kernel does not call its program.
    Unseen,
    /// Its program saw connections begin, and no ACK of theirs.
    NoAcks,
    /// It saw ACKs and decided nothing.
    Undecided,
    /// The kernel refuses all that it asks for.
    Refused,
    /// Another program sets the windows after it.
    Overwritten,
}

/// What the program on sockets counted: connections and ACKs since the last look at which it
/// counted any, the rest since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) connections: u64,
    pub(super) acks: u64,
    pub(super) decisions: u64,
    pub(super) applied: u64,
    pub(super) refused: u64,
    /// At most ACKs the window clamp is not the one that it set.
    pub(super) overwritten: bool,
}

/// Whether of so many ACKs the clamp was another one than the cure's at half of them or more.
pub(super) fn overwritten((acks, replaced): (u64, u64)) -> bool {
    replaced * 2 >= acks
}

/// What arrived meanwhile, as the kernel's sockets have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Bytes of connections that began meanwhile.
    pub(super) new: u64,
    /// Bytes of all connections since a walk after which each of them called the program.
    pub(super) joined: u64,
    /// A connection carries enough for so long that a decision is overdue.
    pub(super) overdue: bool,
}

/// Why the program on sockets does nothing, if it does nothing. `walks`: existing connections join,
/// and callback flags that another program replaced are set again.
pub(super) fn judge(counted: &Counted, traffic: &Traffic, walks: bool) -> Option<Reason> {
    if counted.refused > 0 && counted.applied == 0 {
        return Some(Reason::Refused);
    }
    if counted.overwritten {
        return Some(Reason::Overwritten);
    }
    if counted.acks > 0 {
        let nothing = counted.decisions == 0 && counted.applied == 0;
        return (nothing && traffic.overdue).then_some(Reason::Undecided);
    }
    if counted.connections == 0 {
        return (traffic.new.max(traffic.joined) >= ENOUGH).then_some(Reason::Unseen);
    }
    // Another program may have replaced the callback flags; the next walk sets them again.
    let bytes = if walks { traffic.joined } else { traffic.new.max(traffic.joined) };
    (bytes >= ENOUGH).then_some(Reason::NoAcks)
}

/// What was seen, and what to type next.
pub(super) fn text(reason: Reason, counted: &Counted, traffic: &Traffic) -> String {
    let kilobytes = traffic.new.max(traffic.joined) / 1_000;
    let next = "; \"unbloat-agent off\", then \"on\" attaches it again, \"unbloat-agent features\" \
                lists what this kernel lacks";
    let seen = match reason {
        Reason::Unseen => format!(
            "{kilobytes} KB arrived in scope, but the cure counted no connection and no ACK: the \
             kernel does not call its program{next}"
        ),
        Reason::NoAcks => format!(
            "{kilobytes} KB arrived in scope, but the cure counted {} connections and no ACK: \
             another sock_ops program may have replaced its callback flags; \"bpftool cgroup \
             tree\" lists such programs",
            counted.connections
        ),
        Reason::Undecided => format!(
            "data arrives in scope, but the cure has counted {} ACKs and set no window{next}",
            counted.acks
        ),
        Reason::Refused => {
            format!("the kernel refused all {} windows that the cure set{next}", counted.refused)
        }
        Reason::Overwritten => {
            "at half of the ACKs or more the window clamp is not the cure's, but \
                                that of another program or of the application; status names \
                                other programs on the same sockets"
                .to_owned()
        }
    };
    format!("downloads do nothing: {seen}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Counted = Counted {
        connections: 0,
        acks: 0,
        decisions: 0,
        applied: 0,
        refused: 0,
        overwritten: false,
    };
    const NEW: Traffic = Traffic { new: ENOUGH, joined: 0, overdue: false };
    const JOINED: Traffic = Traffic { new: 0, joined: ENOUGH, overdue: false };

    #[test]
    fn traffic_without_any_count_is_a_problem_from_a_hundred_kilobytes_on() {
        for walks in [false, true] {
            assert_eq!(judge(&NOTHING, &Traffic::default(), walks), None);
            assert_eq!(judge(&NOTHING, &Traffic { new: ENOUGH - 1, ..NEW }, walks), None);
            assert_eq!(judge(&NOTHING, &NEW, walks), Some(Reason::Unseen));
            assert_eq!(judge(&NOTHING, &JOINED, walks), Some(Reason::Unseen));
        }
    }

    #[test]
    fn connections_without_acks_wait_for_the_walk_that_sets_their_flags_again() {
        let begun = Counted { connections: 1, ..NOTHING };
        assert_eq!(judge(&begun, &NEW, true), None);
        assert_eq!(judge(&begun, &JOINED, true), Some(Reason::NoAcks));
        assert_eq!(judge(&begun, &NEW, false), Some(Reason::NoAcks));
    }

    #[test]
    fn a_cure_that_counts_acks_is_idle_only_if_a_decision_is_overdue() {
        let counts = Counted { connections: 1, acks: 40, ..NOTHING };
        let late = Traffic { overdue: true, ..NEW };
        assert_eq!(judge(&counts, &NEW, true), None);
        assert_eq!(judge(&counts, &late, true), Some(Reason::Undecided));
        assert_eq!(judge(&Counted { decisions: 1, ..counts }, &late, true), None);
        assert_eq!(judge(&Counted { applied: 1, ..counts }, &late, true), None);
    }

    #[test]
    fn clamps_of_another_program_at_half_of_the_acks_are_a_problem_and_autotunings_are_none() {
        // A buffer that doubles from 16 KB to 64 MB replaces twelve.
        assert!(!overwritten((CLAMPS, 12)));
        assert!(overwritten((CLAMPS, CLAMPS / 2)));
        let counts = Counted { connections: 1, acks: 40, decisions: 9, applied: 40, ..NOTHING };
        assert_eq!(judge(&counts, &NEW, true), None);
        let replaced = Counted { overwritten: true, ..counts };
        assert_eq!(judge(&replaced, &NEW, true), Some(Reason::Overwritten));
        assert!(text(Reason::Overwritten, &replaced, &NEW).contains("status names"));
    }

    #[test]
    fn only_refusals_are_a_problem_and_one_window_that_was_set_is_none() {
        let refused = Counted { connections: 1, acks: 900, decisions: 9, refused: 784, ..NOTHING };
        let quiet = Traffic::default();
        assert_eq!(judge(&refused, &quiet, false), Some(Reason::Refused));
        assert_eq!(judge(&Counted { applied: 1, ..refused }, &quiet, false), None);
        assert!(text(Reason::Refused, &refused, &quiet).contains("all 784 windows"));
    }
}
