//! Offset and skew of clocks that are known: a host sends in bursts, a modem has a buffer and grants, and logs both.

use modem::host_clock::{HostClock, NoOffset, fit};
use modem::timeline::{Moved, Occupancy};

const MS: i64 = 1_000_000;
/// The year 2020 of a host, in ns since 1970; a modem counts from 1980.
const HOST_NS: i64 = 1_577_836_800_000_000_000;
const MODEM_NS: i64 = 1_261_872_018_000_000_000;

/// What differs from a log of a minute without any fault.
#[derive(Clone, Copy)]
struct Case {
    seed: u64,
    seconds: i64,
    /// How much faster the host's clock runs.
    skew: f64,
    /// One in so many records of 40 ms is missing, with its samples and blocks; 0: none.
    missing: i64,
    /// Bytes that enter the buffer each 100 ms, and are not in the capture.
    background: u64,
    /// Bytes that the modem adds to each block.
    headers: u64,
    /// The host sends the same each second.
    repeats: bool,
    /// Blocks are logged so many ms after they left the buffer.
    late_ms: i64,
}

const PLAIN: Case = Case {
    seed: 1,
    seconds: 60,
    skew: 0.0,
    missing: 0,
    background: 0,
    headers: 8,
    repeats: false,
    late_ms: 0,
};

struct Numbers(u64);

impl Numbers {
    /// 0 … below; SplitMix64.
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % below
    }
}

struct Pair {
    sent: Vec<Moved>,
    samples: Vec<Occupancy>,
    left: Vec<Moved>,
}

/// Time of the host at a time of the modem, both in ns since the begin.
fn host(case: &Case, since_ns: i64) -> i64 {
    HOST_NS + since_ns + (since_ns as f64 * case.skew) as i64
}

fn pair(case: Case) -> Pair {
    let mut numbers = Numbers(case.seed);
    let mut pair = Pair { sent: Vec::new(), samples: Vec::new(), left: Vec::new() };
    // Bursts of up to twenty packets of 1,500 bytes at intervals of up to 30 ms: 8 Mbit/s, and less than what is granted.
    let mut arrivals = Vec::new();
    let mut at_ns = 0;
    while at_ns < case.seconds * 1_000 * MS {
        at_ns += (1 + numbers.below(30) as i64) * MS + numbers.below(1_000_000) as i64;
        for packet in 0..numbers.below(20) as i64 {
            arrivals.push(at_ns + packet * 120_000);
        }
    }
    if case.repeats {
        let first: Vec<i64> = arrivals.iter().copied().filter(|at| *at < 1_000 * MS).collect();
        arrivals = (0..case.seconds)
            .flat_map(|second| first.iter().map(move |at| at + second * 1_000 * MS))
            .collect();
    }
    arrivals.sort_unstable();
    let (mut buffer, mut next) = (0_u64, 0);
    for ms in 0..case.seconds * 1_000 {
        while arrivals.get(next).is_some_and(|at| *at <= ms * MS) {
            pair.sent.push(Moved { at_ns: host(&case, arrivals[next]), bytes: 1_500 });
            buffer += 1_500;
            next += 1;
        }
        if ms % 100 == 50 {
            buffer += case.background;
        }
        let used = buffer.min(1_200 + numbers.below(600));
        buffer -= used;
        if case.missing > 0 && (ms / 40) % case.missing == 3 {
            continue;
        }
        let at_ns = MODEM_NS + ms * MS;
        if used > 0 {
            pair.left.push(Moved { at_ns: at_ns + case.late_ms * MS, bytes: used + case.headers });
        }
        pair.samples.push(Occupancy { at_ns, bytes: buffer });
    }
    pair
}

fn fitted(case: Case) -> HostClock {
    let Pair { sent, samples, left } = pair(case);
    fit(&sent, &samples, &left).unwrap()
}

/// Largest error at begin, middle and end of the log, ms.
fn error_ms(case: &Case, clock: &HostClock) -> f64 {
    let error = |since_ns: i64| clock.host_ns(MODEM_NS + since_ns) - host(case, since_ns);
    let end_ns = case.seconds * 1_000 * MS;
    let errors = [0, end_ns / 2, end_ns].map(|at_ns| error(at_ns).abs() as f64 / 1e6);
    errors.into_iter().fold(0.0, f64::max)
}

#[test]
fn the_offset_is_that_of_the_clocks_and_its_uncertainty_contains_it() {
    for seed in 1..6 {
        let case = Case { seed, ..PLAIN };
        let clock = fitted(case);
        let error = error_ms(&case, &clock);
        assert!(error < 1.0 && error <= clock.uncertainty_ns as f64 / 1e6, "{error} {clock:?}");
        assert!(clock.explained > 0.95, "{clock:?}");
        assert!(clock.uncertainty_ns < 5 * MS, "{clock:?}");
    }
}

#[test]
fn blocks_that_are_logged_before_or_after_they_left_the_buffer_explain_as_much() {
    for late_ms in [-4, 4] {
        let case = Case { late_ms, ..PLAIN };
        let clock = fitted(case);
        assert!(error_ms(&case, &clock) < 1.0 && clock.explained > 0.95, "{clock:?}");
    }
}

#[test]
fn clocks_that_run_apart_have_their_skew() {
    for skew in [-100e-6, -20e-6, 100e-6] {
        for seconds in [60, 300] {
            let case = Case { skew, seconds, ..PLAIN };
            let clock = fitted(case);
            assert!(error_ms(&case, &clock) < 2.0, "{clock:?}");
            assert!((clock.skew.unwrap() - skew).abs() < 20e-6, "{skew} {clock:?}");
        }
    }
}

#[test]
fn missing_records_and_bytes_of_others_do_not_move_the_offset() {
    for (missing, background) in [(10, 0), (0, 2_000), (10, 4_000)] {
        let case = Case { missing, background, skew: 50e-6, ..PLAIN };
        let clock = fitted(case);
        let error = error_ms(&case, &clock);
        assert!(error < 2.5 && error <= clock.uncertainty_ns as f64 / 1e6, "{error} {clock:?}");
    }
}

#[test]
fn a_capture_that_begins_later_or_ends_earlier_than_the_log_fits_where_both_are() {
    let Pair { sent, samples, left } = pair(PLAIN);
    let cut: Vec<Moved> = sent
        .into_iter()
        .filter(|sent| (20_000..50_000).contains(&((sent.at_ns - HOST_NS) / MS)))
        .collect();
    let clock = fit(&cut, &samples, &left).unwrap();
    assert!(error_ms(&PLAIN, &clock) < 2.0, "{clock:?}");
}

#[test]
fn a_short_log_has_an_offset_and_no_skew() {
    let case = Case { seconds: 15, ..PLAIN };
    let clock = fitted(case);
    assert!(error_ms(&case, &clock) <= clock.uncertainty_ns as f64 / 1e6, "{clock:?}");
    assert_eq!(clock.skew, None);
}

#[test]
fn another_upload_is_refused_and_so_is_one_that_repeats_itself() {
    for seed in 10..15 {
        let Pair { samples, left, .. } = pair(PLAIN);
        let other = pair(Case { seed, ..PLAIN });
        let refused = fit(&other.sent, &samples, &left);
        assert!(matches!(refused, Err(NoOffset::Unexplained(share)) if share < 0.3), "{refused:?}");
    }
    let Pair { sent, samples, left } = pair(Case { repeats: true, seconds: 120, ..PLAIN });
    let refused = fit(&sent[..sent.len() / 2], &samples, &left);
    assert!(matches!(refused, Err(NoOffset::Ambiguous(_))), "{refused:?}");
}

#[test]
fn without_a_buffer_in_use_or_packets_there_is_no_offset() {
    let Pair { sent, samples, left } = pair(Case { seconds: 3, ..PLAIN });
    assert!(matches!(fit(&sent, &samples, &left), Err(NoOffset::Unused(_))));
    let empty: Vec<Occupancy> =
        (0..60_000).map(|ms| Occupancy { at_ns: ms * MS, bytes: 0 }).collect();
    assert_eq!(fit(&sent, &empty, &[]), Err(NoOffset::Unused(0)));
    let Pair { samples, left, .. } = pair(PLAIN);
    assert_eq!(fit(&[], &samples, &left), Err(NoOffset::NothingSent));
    let days = [0, 3 * 24 * 3_600_000].map(|ms| Moved { at_ns: ms * MS, bytes: 1 });
    assert_eq!(fit(&days, &samples, &left), Err(NoOffset::TooLong));
}
