//! Gates above a grant-scheduled uplink: QCUT's figure 15 at −98 dBm, where the uplink is fitted, and at −85
//! and −110 dBm, where it predicts; QCUT-D compared with no gate.

use algo::Rng;
use algo::gate::{AnyGate, Setup, none, qcut_b, qcut_d};
use algo::link::{self, AnyMedium, grants};
use algo::link::{Head, Medium, Slot};
use proptest::prelude::*;
use units::{Bytes, Duration, Instant, Rate};

use crate::testbed::{Departures, REPORT_BATCH, Testbed};

/// The firmware buffer: what figure 15's ungated upload at −98 dBm held, (364 − 58) ms at 5.8 Mbit/s.
const BUFFER: Bytes = Bytes(222_000);
/// RTT without any time in the firmware (QCUT section 4 says about 50 ms in the steady state; fitted at −98 dBm).
const RTT_MS: f64 = 58.0;
/// The same as QCUT states it (section 4.2: about 50 ms on this carrier).
const STATED_RTT_MS: f64 = 50.0;
const WARM_UP: Instant = Instant(10_000_000_000);
const END: Instant = Instant(40_000_000_000);

/// Limit in KB (`None`: no gate), RTT_F in ms, Mbit/s.
type Row = (Option<u64>, f64, f64);

/// QCUT figure 15.
const FAIR: [Row; 7] = [
    (Some(2), 67.0, 2.6),
    (Some(5), 71.0, 3.2),
    (Some(10), 75.0, 4.45),
    (Some(20), 84.0, 5.64),
    (Some(50), 125.0, 5.7),
    (Some(100), 202.0, 5.5),
    (None, 364.0, 5.8),
];
const GOOD: [Row; 7] = [
    (Some(2), 62.0, 2.8),
    (Some(5), 61.0, 3.8),
    (Some(10), 63.0, 5.8),
    (Some(20), 69.0, 8.6),
    (Some(50), 79.0, 11.2),
    (Some(100), 106.0, 12.1),
    (None, 204.0, 11.7),
];
const WEAK: [Row; 5] = [
    (Some(2), 184.0, 0.80),
    (Some(20), 455.0, 0.86),
    (Some(50), 624.0, 0.71),
    (Some(100), 1848.0, 0.93),
    (None, 2774.0, 0.63),
];

fn uplink(signal: grants::Signal) -> AnyMedium {
    let config = grants::Config { signal, ..grants::Config::default() };
    AnyMedium::Scheduled(grants::Scheduled::new(config, &link::Setup::default()))
}

fn no_gate() -> AnyGate {
    AnyGate::Open(none::Open::new(none::Config {}, &Setup::default()))
}

fn bytes(limit: u64) -> AnyGate {
    let config = qcut_b::Config { limit: Bytes(limit), ..qcut_b::Config::default() };
    AnyGate::QcutB(qcut_b::QcutB::new(config, &Setup::default()))
}

fn delay(hold: bool) -> AnyGate {
    let config = qcut_d::Config { hold, ..qcut_d::Config::default() };
    AnyGate::QcutD(qcut_d::QcutD::new(config, &Setup::default()))
}

/// Throughput and delay after `WARM_UP`, of a source that began at one second, long after the modem's first report.
fn steady(gate: &AnyGate, signal: grants::Signal) -> Departures {
    let mut testbed = Testbed::new(gate.clone(), uplink(signal), BUFFER);
    testbed.sending = false;
    testbed.run(Instant(1_000_000_000));
    testbed.sending = true;
    testbed.run(WARM_UP);
    testbed.run(END)
}

fn mbit(seen: &Departures) -> f64 {
    seen.rate(END.since(WARM_UP)).0 as f64 / 1e6
}

/// RTT_F in ms and Mbit/s of each row, ours.
fn sweep(rows: &[Row], signal: grants::Signal) -> Vec<(f64, f64)> {
    let ours: Vec<(f64, f64)> = rows
        .iter()
        .map(|(limit, ..)| {
            let seen = steady(&limit.map_or_else(no_gate, |kb| bytes(kb * 1_000)), signal);
            (RTT_MS + seen.delay_ms(), mbit(&seen))
        })
        .collect();
    for ((limit, rtt, rate), (our_rtt, our_rate)) in rows.iter().zip(&ours) {
        println!(
            "{limit:?} KB: {our_rtt:.0} ms (paper {rtt}), {our_rate:.2} Mbit/s (paper {rate})"
        );
    }
    ours
}

/// The smallest limit that reaches 95 per cent of the largest throughput.
fn best(rows: &[Row], ours: &[(f64, f64)]) -> Option<u64> {
    let most = ours.iter().map(|o| o.1).fold(0.0, f64::max);
    rows.iter().zip(ours).find(|(_, o)| o.1 >= 0.95 * most).and_then(|(row, _)| row.0)
}

#[test]
fn at_98_dbm_every_limit_gives_the_paper_s_rtt_and_throughput() {
    let ours = sweep(&FAIR, grants::Signal::Fair);
    let mut squares = 0.0;
    for ((limit, rtt, rate), (our_rtt, our_rate)) in FAIR.iter().zip(&ours) {
        let (delay, throughput) = (our_rtt / rtt - 1.0, our_rate / rate - 1.0);
        squares += delay * delay + throughput * throughput;
        // The paper's figures are read from a plot; one-minute uploads on air vary by more than either tolerance.
        assert!(delay.abs() < 0.08, "{limit:?} KB: RTT {our_rtt:.1} ms, paper {rtt}");
        assert!(throughput.abs() < 0.16, "{limit:?} KB: {our_rate:.2} Mbit/s, paper {rate}");
    }
    let rms = (squares / (2 * FAIR.len()) as f64).sqrt();
    println!("rms {rms:.4}");
    assert!(rms < 0.06, "{rms}");
}

#[test]
fn at_85_dbm_the_rate_alone_predicts_the_paper_s_curve() {
    let ours = sweep(&GOOD, grants::Signal::Good);
    for ((limit, rtt, rate), (our_rtt, our_rate)) in GOOD.iter().zip(&ours) {
        // A prediction: nothing was fitted here but the rate of a deep buffer. A bound of 20 % on the RTT is missed with
        // 5 KB (+23 %) and 10 KB (+21 %): the paper's 61 and 63 ms leave 3 and 5 ms above the 58 ms of -98 dBm, less
        // than a report takes to its grant.
        assert!(
            (our_rtt / rtt - 1.0).abs() < 0.25,
            "{limit:?} KB: RTT {our_rtt:.1} ms, paper {rtt}"
        );
        // Above the RTT that the paper states, the time in the firmware is right: 11 % at most.
        let stated = our_rtt - RTT_MS + STATED_RTT_MS;
        assert!((stated / rtt - 1.0).abs() < 0.15, "{limit:?} KB: {stated:.1} ms, paper {rtt}");
        assert!(
            (our_rate / rate - 1.0).abs() < 0.25,
            "{limit:?} KB: {our_rate:.2} Mbit/s, paper {rate}"
        );
    }
}

#[test]
fn at_110_dbm_the_deepest_buffer_takes_seconds_and_the_shallowest_loses_no_throughput() {
    let ours = sweep(&WEAK, grants::Signal::Weak);
    let (none, shallow) = (ours[4], ours[0]);
    assert!((none.0 / WEAK[4].1 - 1.0).abs() < 0.25, "RTT {} ms", none.0);
    assert!((shallow.1 / WEAK[0].2 - 1.0).abs() < 0.25, "{} Mbit/s", shallow.1);
    assert!(shallow.1 > 0.95 * none.1);
    assert!(shallow.0 < 0.1 * none.0);
}

#[test]
fn the_best_limit_is_2_kb_at_110_20_at_98_and_50_at_85_dbm() {
    // QCUT section 6: no fixed number of bytes serves every signal.
    assert_eq!(best(&WEAK, &sweep(&WEAK, grants::Signal::Weak)), Some(2));
    assert_eq!(best(&FAIR, &sweep(&FAIR, grants::Signal::Fair)), Some(20));
    assert_eq!(best(&GOOD, &sweep(&GOOD, grants::Signal::Good)), Some(50));
}

#[test]
fn qcut_d_cuts_the_firmware_delay_by_nine_tenths_and_keeps_the_throughput() {
    // QCUT section 7.2: −96.6 % at −110 dBm, −95 % at −95 dBm, throughput +10 % and −3 %.
    for signal in [grants::Signal::Fair, grants::Signal::Weak] {
        let (free, gated) = (steady(&no_gate(), signal), steady(&delay(false), signal));
        let cut = 1.0 - gated.delay_ms() / free.delay_ms();
        let kept = mbit(&gated) / mbit(&free);
        println!(
            "{signal:?}: {:.1} → {:.1} ms (−{cut:.3}), kept {kept:.3}",
            free.delay_ms(),
            gated.delay_ms()
        );
        assert!(cut > 0.92, "{signal:?}: {cut}");
        assert!(kept > 0.93, "{signal:?}: {kept}");
    }
}

#[test]
fn reports_that_are_handed_over_one_by_one_make_a_low_rate_a_fixed_point() {
    let signal = grants::Signal::Fair;
    let free = mbit(&steady(&no_gate(), signal));
    let kept = |batch| {
        let mut testbed = Testbed::new(delay(false), uplink(signal), BUFFER);
        testbed.batch = batch;
        testbed.sending = false;
        testbed.run(Instant(1_000_000_000));
        testbed.sending = true;
        testbed.run(WARM_UP);
        mbit(&testbed.run(END)) / free
    };
    let (alone, together) = (kept(Duration::ZERO), kept(REPORT_BATCH));
    println!("alone {alone:.3}, together {together:.3}");
    assert!(alone < 0.8, "{alone}");
    assert!(together > 0.97, "{together}");
}

#[test]
fn at_85_dbm_the_published_law_keeps_nine_tenths_and_our_rule_no_less() {
    // QCUT gives no figure of QCUT-D there; 20 ms of the rate are hardly longer than a report's round trip.
    let signal = grants::Signal::Good;
    let free = steady(&no_gate(), signal);
    for hold in [false, true] {
        let gated = steady(&delay(hold), signal);
        let kept = mbit(&gated) / mbit(&free);
        println!("hold {hold}: kept {kept:.3}, {:.1} ms", gated.delay_ms());
        assert!(kept > 0.9, "hold {hold}: {kept}");
        assert!(gated.delay_ms() < 0.2 * free.delay_ms(), "{}", gated.delay_ms());
    }
}

#[test]
fn after_a_pause_a_held_average_goes_on_where_it_was() {
    let second_after_pause = |hold| {
        let mut testbed = Testbed::new(delay(hold), uplink(grants::Signal::Fair), BUFFER);
        testbed.run(Instant(10_000_000_000));
        testbed.sending = false;
        testbed.run(Instant(20_000_000_000));
        testbed.sending = true;
        testbed.run(Instant(21_000_000_000)).rate(Duration::from_secs(1))
    };
    let (averaged, held) = (second_after_pause(false), second_after_pause(true));
    println!("{averaged} {held}");
    assert!(held > Rate(4_000_000), "{held}");
    // From the floor: two packets in each 100 ms until the first report of them.
    assert!(averaged < Rate(1_500_000), "{averaged}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_arrives_leaves_in_time_and_no_more_than_was_granted(
        bursts in proptest::collection::vec((0..300_000_000_u64, 1..20_u64, 1..65_536_u64), 1..20),
        rate in 100_000..200_000_000_u64,
        ahead in 0..2_000_u64,
        delays in (1..20_u64, 1..16_u64, 1..81_u64, 1..41_u64),
    ) {
        let ms = Duration::from_millis;
        let config = grants::Config {
            rate: Some(Rate(rate)),
            ahead: Bytes(ahead),
            report_delay: ms(delays.0),
            grant_delay: ms(delays.1),
            request_every: ms(delays.2),
            turn: ms(delays.3),
            ..grants::Config::default()
        };
        let mut medium = grants::Scheduled::new(config, &link::Setup::default());
        let mut rng = Rng::new(1, "bursts");
        let mut now = Instant::ZERO;
        let (mut sent, mut granted) = (0, 0);
        for (pause, packets, bytes) in bursts {
            now = now + Duration(pause);
            medium.on_backlog(now, Bytes(packets * bytes));
            // A request, a report, their grants, and every turn at the rate; twice, for a report that came too late.
            let air = Bytes(packets * bytes) / Rate(rate);
            let deadline = now + (ms(1_000) + air) * 2;
            for k in 0..packets {
                let head = Head { bytes: Bytes(bytes), backlog: Bytes((packets - k) * bytes) };
                loop {
                    match medium.offer(now, &head, &mut rng) {
                        Slot::Leaves(at) => {
                            prop_assert_eq!(at, now);
                            break;
                        }
                        Slot::WaitUntil(at) => {
                            prop_assert!(at > now);
                            now = at;
                        }
                    }
                }
                sent += bytes;
                prop_assert!(now < deadline, "{now:?} {deadline:?}");
            }
            medium.on_backlog(now, Bytes::ZERO);
            let grants = medium.take_grants(now);
            granted += (grants.granted - grants.padding).0;
            prop_assert!(grants.padding <= grants.granted);
            prop_assert!(granted >= sent, "{granted} {sent}");
        }
    }
}
