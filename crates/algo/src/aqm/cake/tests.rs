//! CAKE's shaper, shares of hosts and flows, priorities, overflow.

use super::tin::Place;
use super::*;

const MS: u64 = 1_000_000;

struct Bench {
    cake: Cake,
    dropped: Dropped,
    rng: Rng,
    handle: u32,
}

impl Bench {
    fn new(config: Config) -> Bench {
        let cake = Cake::new(config, &Setup::default());
        Bench { cake, dropped: Dropped::new(), rng: Rng::new(1, "test"), handle: 0 }
    }

    fn enqueue(&mut self, now: u64, packet: Packet) {
        let packet = Packet { handle: self.handle, ..packet };
        self.handle += 1;
        self.cake.enqueue(Instant(now), packet, &mut self.dropped, &mut self.rng);
    }

    fn take(&mut self, now: u64) -> Option<Packet> {
        self.cake.dequeue(Instant(now), &mut self.dropped, &mut self.rng)
    }

    /// Keeps `flows` (flow, host, bytes, class) backlogged for `ms` from 1 s on; bytes sent by each.
    fn share(&mut self, flows: &[(u32, u16, u32, u8)], ms: u64) -> Vec<u64> {
        let mut sent = alloc::vec![0; flows.len()];
        let mut queued = alloc::vec![0_usize; flows.len()];
        let (mut now, end) = (1_000 * MS, (1_000 + ms) * MS);
        while now < end {
            for (i, &(flow_hash, host, bytes, class)) in flows.iter().enumerate() {
                while queued[i] < 20 {
                    self.enqueue(
                        now,
                        Packet { flow_hash, host, bytes, class, ..Packet::default() },
                    );
                    queued[i] += 1;
                }
            }
            let which =
                |p: &Packet| flows.iter().position(|f| f.0 == p.flow_hash).expect("one of ours");
            match self.take(now) {
                Some(packet) => {
                    sent[which(&packet)] += u64::from(packet.bytes);
                    queued[which(&packet)] -= 1;
                }
                None => now = self.cake.next_wakeup().expect("shaped and busy").0.max(now + 1),
            }
            for (packet, _) in self.dropped.drain(..) {
                queued[which(&packet)] -= 1;
            }
        }
        sent
    }
}

fn at(rate: u64) -> Config {
    Config { rate: Some(Rate(rate)), ..Config::default() }
}

// Piece of CAKE, section III.A: a shaper in virtual time needs no bucket and is exact.
#[test]
fn the_shaped_rate_is_exact_for_all_packet_sizes_and_rates() {
    for rate in [1_000_000, 9_999_991, 100_000_000, 2_500_000_000] {
        for bytes in [64, 576, 1_500] {
            let mut bench = Bench::new(at(rate));
            let sent: u64 = bench.share(&[(1, 1, bytes, 1)], 400).iter().sum();
            let expected = rate as f64 * 0.4 / 8.0;
            // A packet more or less at the ends.
            assert!(
                (sent as f64 - expected).abs() <= f64::from(bytes) + 1.0,
                "{rate}, {bytes}: {sent} not {expected}"
            );
        }
    }
}

#[test]
fn overhead_and_cells_are_charged_to_the_rate() {
    // 1,500 bytes + 40: 33 cells of 53 bytes (`cake_calc_overhead`).
    let config = Config { overhead: Bytes(40), framing: Framing::Atm, ..at(10_000_000) };
    let sent: u64 = Bench::new(config).share(&[(1, 1, 1_500, 1)], 1_000).iter().sum();
    let expected = 10e6 / 8.0 * 1_500.0 / (33.0 * 53.0);
    assert!((sent as f64 - expected).abs() <= 1_500.0, "{sent} not {expected}");
    let charged = |config, bytes| Cake::new(config, &Setup::default()).charged(bytes);
    assert_eq!(charged(Config { framing: Framing::Ptm, ..Config::default() }, 65), 67);
    assert_eq!(charged(Config { mpu: Bytes(84), ..Config::default() }, 40), 84);
}

// Piece of CAKE, section III.B: hosts share first, then the flows of each.
#[test]
fn a_host_with_ten_flows_gets_no_more_than_a_host_with_one() {
    let mut flows: Vec<_> = (1..=10).map(|flow| (flow, 1, 1_500, 1)).collect();
    flows.push((11, 2, 1_500, 1));
    let sent = Bench::new(at(20_000_000)).share(&flows, 5_000);
    let (ten, one) = (sent[..10].iter().sum::<u64>() as f64, sent[10] as f64);
    assert!((ten / one - 1.0).abs() < 0.01, "{ten} for ten flows, {one} for one");
    let (least, most) =
        (sent[..10].iter().min().expect("ten"), sent[..10].iter().max().expect("ten"));
    assert!(most - least <= 2 * 1_514 + 1_500, "{sent:?}");
    // Without it the flows share, independent of their host.
    let sent = Bench::new(Config { host_fair: false, ..at(20_000_000) }).share(&flows, 5_000);
    assert!((sent.iter().sum::<u64>() as f64 / sent[10] as f64 - 11.0).abs() < 0.2, "{sent:?}");
}

#[test]
fn packet_sizes_do_not_matter_to_the_shares() {
    let flows = [(1, 1, 1_500, 1), (2, 2, 100, 1), (3, 3, 700, 1), (4, 3, 300, 1)];
    let sent = Bench::new(at(10_000_000)).share(&flows, 5_000);
    let third = 10e6 / 8.0 * 5.0 / 3.0;
    for got in [sent[0], sent[1], sent[2] + sent[3]] {
        assert!((got as f64 / third - 1.0).abs() < 0.01, "{sent:?}");
    }
    assert!((sent[2] as f64 / sent[3] as f64 - 1.0).abs() < 0.01, "{sent:?}");
}

#[test]
fn a_sparse_flow_does_not_wait_behind_bulk_flows() {
    let mut bench = Bench::new(at(10_000_000));
    for n in 0..60 {
        bench.enqueue(
            0,
            Packet { flow_hash: n % 3, host: (n % 2) as u16, bytes: 1_500, ..Packet::default() },
        );
    }
    let mut now = 0;
    for _ in 0..12 {
        now = bench.cake.next_wakeup().expect("busy").0;
        bench.take(now);
    }
    bench.enqueue(now, Packet { flow_hash: 77, host: 1, bytes: 100, ..Packet::default() });
    now = bench.cake.next_wakeup().expect("busy").0;
    assert_eq!(bench.take(now).map(|p| p.flow_hash), Some(77));
}

// `cake_config_diffserv3`: interactive up to a quarter and bulk up to a sixteenth of the rate go first.
#[test]
fn an_urgent_tin_goes_first_up_to_its_threshold_and_takes_what_others_leave() {
    let diffserv = || Config { tins: Tins::Diffserv3, ..at(16_000_000) };
    let sent = Bench::new(diffserv())
        .share(&[(1, 1, 1_000, 0), (2, 1, 1_000, 1), (3, 1, 1_000, 2)], 5_000);
    let part = |i: usize| sent[i] as f64 / (2e6 * 5.0);
    // All three above their thresholds: shares in proportion to these, which add up to 1 5/16.
    assert!((part(0) - 0.25 / 1.3125).abs() < 0.07, "{sent:?}");
    assert!((part(2) - 0.0625 / 1.3125).abs() < 0.03, "{sent:?}");
    let sent = Bench::new(diffserv()).share(&[(1, 1, 1_000, 0)], 1_000);
    assert!((sent[0] as f64 / 2e6 - 1.0).abs() < 0.01, "alone it has everything: {sent:?}");
}

#[test]
fn a_new_rate_holds_from_the_next_packet_on() {
    let mut bench = Bench::new(at(1_000_000));
    for _ in 0..2_000 {
        bench.enqueue(
            0,
            Packet { flow_hash: 1, bytes: 1_000, ecn: Ecn::Capable0, ..Packet::default() },
        );
    }
    let mut count = |from: u64, to: u64| {
        let mut now = from;
        let mut n = 0;
        while now < to {
            n += u32::from(bench.take(now).is_some());
            now = bench.cake.next_wakeup().map_or(to, |t| t.0);
        }
        bench.cake.set_rate(Instant(to), Rate(8_000_000));
        n
    };
    assert_eq!(count(0, 1_000 * MS), 125);
    assert!((999..=1_001).contains(&count(1_000 * MS, 2_000 * MS)));
}

// `cake_drop`: the head of the longest queue is dropped, and BLUE rises.
#[test]
fn overflow_drops_from_the_fattest_queue() {
    let mut bench = Bench::new(Config { memory: Some(Bytes(30_000)), ..at(10_000_000) });
    for n in 0..30 {
        bench.enqueue(n, Packet { flow_hash: 1, bytes: 1_000, ..Packet::default() });
    }
    assert!(bench.dropped.is_empty());
    for n in 0..10 {
        bench.enqueue(100 + n, Packet { flow_hash: 2, bytes: 1_000, ..Packet::default() });
    }
    let expected: Vec<_> = (0..10).map(|handle| (1, handle, Drop::Overflow)).collect();
    assert_eq!(
        bench.dropped.iter().map(|(p, why)| (p.flow_hash, p.handle, *why)).collect::<Vec<_>>(),
        expected
    );
}

// `cake_hash`: eight ways; nothing collides before a set is full.
#[test]
fn a_thousand_flows_hardly_collide_and_none_is_reordered_when_they_do() {
    let mut tin = Tin::new(0);
    tin.configure(0, None, Duration::from_millis(100), Bytes(1_500));
    let mut slab = Slab::new(QUEUES);
    let flows = 600_u32;
    for flow_hash in 0..flows {
        let packet = Packet { flow_hash: flow_hash.wrapping_mul(0x85eb_ca6b), ..Packet::default() };
        tin.enqueue(Instant::ZERO, packet, true, &mut slab);
    }
    let used = tin.flows.iter().filter(|f| f.place != Place::Nowhere).count();
    assert!(used as u32 * 100 >= flows * 97, "{used} queues for {flows} flows");

    let mut bench = Bench::new(Config::default());
    let mut rng = Rng::new(3, "arrivals");
    let mut last = alloc::vec![0_u32; 4_000];
    for n in 0..60_000_u64 {
        // Bursts beyond the size of the sets, then calm: sets become crowded and recover.
        let calm = (n / 2_000) % 2 == 1;
        let flow_hash = rng.below(4_000) as u32;
        bench.enqueue(
            n * 1_000,
            Packet { flow_hash, host: (flow_hash % 50) as u16, bytes: 100, ..Packet::default() },
        );
        for _ in 0..if calm { 3 } else { 0 } {
            if let Some(packet) = bench.take(n * 1_000) {
                let last = &mut last[packet.flow_hash as usize];
                assert!(packet.handle >= *last, "flow {} reordered", packet.flow_hash);
                *last = packet.handle;
            }
        }
    }
}

// `cake_set_rate`: the target is one and a half packet times where that is more than a twentieth of the RTT.
#[test]
fn at_a_low_rate_the_target_grows_with_the_packet_time() {
    let law = |rate| Cake::new(at(rate), &Setup::default()).tins[0].law;
    assert_eq!(law(10_000_000).target, Duration::from_millis(5));
    assert_eq!(law(10_000_000).interval, Duration::from_millis(100));
    // 12 ms for 1,500 bytes at 1 Mbit/s.
    assert_eq!(law(1_000_000).target, Duration::from_millis(18));
    assert_eq!(law(1_000_000).interval, Duration::from_millis(113));
}
