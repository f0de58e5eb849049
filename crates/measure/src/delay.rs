//! Queueing delay per direction, from two clocks that were never set to each other.
//!
//! signal: four times of each answered probe, two on each clock · model: a probe that met no queue took the path's
//! constant delay, so the smallest differences between the clocks lie on a line whose slope is the difference of their
//! rates · action: what a probe took above that line is queue, in its direction.
//!
//! The slope is one number for both directions, with opposite signs: a change of the path in one direction cannot pass
//! for a difference of rates, since the other direction contradicts it. It is the slope that leaves the least area
//! between the idle probes and the two lines (Moon, Skelly, Towsley, "Estimation and removal of clock skew from network
//! delay measurements", INFOCOM 1999, there for one direction). That area is convex in the slope.
//!
//! The constant delay itself stays unknown: a one-way delay is never reported, only its increase.

/// Clocks differ by no more: crystals keep 100 ppm each, and NTP corrects within 500 ppm only for a while.
pub const MAX_SKEW: f64 = 200e-6;
/// Least delays before and after that differ by more are a changed path, not a queue: as the bound of accuracy.
pub const PATH_CHANGED_MS: f64 = 5.0;
/// Halvings of the interval of slopes: 400 ppm / 1.5⁶⁰ is far below the resolution of a clock.
const STEPS: u32 = 60;
/// A server answers at once; one that keeps a probe longer than a session's silence is no server of ours.
const KEPT_NS: i64 = 3_000_000_000;
const MS: f64 = 1e-6;

/// The times of one answered probe, ns: sent and answer received on one clock, received and answered on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Sent, client's clock.
    pub t1: i64,
    /// Received, server's clock.
    pub t2: i64,
    /// Answered, server's clock.
    pub t3: i64,
    /// Answer received, client's clock.
    pub t4: i64,
}

impl Times {
    /// Whether a server may have written these: no later sum overflows, and it did not keep the probe for long.
    pub fn is_plausible(&self) -> bool {
        let (past, future) = (i64::MIN / 4, i64::MAX / 4);
        (past..future).contains(&self.t2)
            && (self.t2..future).contains(&self.t3)
            && self.t3 - self.t2 < KEPT_NS
    }

    /// Round trip without the server's own time, ns.
    pub const fn rtt_ns(&self) -> i64 {
        (self.t4 - self.t1) - (self.t3 - self.t2)
    }
}

/// When a probe was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// While nothing was transferred, before the first load.
    Before,
    /// Under load, or while a queue drained.
    Loaded,
    /// While nothing was transferred, after the last load.
    After,
}

/// How the server's clock runs against the client's, and what a probe without queue takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clocks {
    origin: i64,
    up_origin: i64,
    down_origin: i64,
    up_ns: f64,
    down_ns: f64,
    /// Rate of the server's clock against the client's, less 1.
    pub skew: f64,
    rtt_ns: f64,
}

/// Added delay of one probe, ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// Towards the server.
    pub up_ms: f64,
    /// Towards the client.
    pub down_ms: f64,
    /// Of both.
    pub rtt_ms: f64,
}

/// Least delays after the test less those before it, ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathChange {
    /// Of either direction, after the clocks' rates were fitted.
    pub up_ms: f64,
    /// The other direction.
    pub down_ms: f64,
    /// Of the round trip, which needs no fit.
    pub rtt_ms: f64,
}

impl PathChange {
    /// Whether directions and a changed path cannot be separated.
    pub fn is_large(&self) -> bool {
        [self.up_ms, self.down_ms, self.rtt_ms].iter().any(|ms| ms.abs() > PATH_CHANGED_MS)
    }
}

impl Clocks {
    /// Fits both lines; `None` without an idle probe.
    pub fn fit(probes: &[(Times, When)]) -> Option<Clocks> {
        let idle: Vec<bool> = probes.iter().map(|(_, when)| *when != When::Loaded).collect();
        let count = idle.iter().filter(|idle| **idle).count();
        if count == 0 {
            return None;
        }
        let (first, _) = *probes.first()?;
        // Small numbers, so that a double holds every nanosecond.
        let (origin, up_origin, down_origin) = (first.t1, first.t2 - first.t1, first.t4 - first.t3);
        let points: Vec<[f64; 4]> = probes
            .iter()
            .map(|(p, _)| {
                [
                    (p.t1 - origin) as f64,
                    (p.t2 - p.t1 - up_origin) as f64,
                    (p.t4 - origin) as f64,
                    (p.t4 - p.t3 - down_origin) as f64,
                ]
            })
            .collect();
        // Least value above each line, and the sum of the idle probes' distances from it.
        let area = |skew: f64| {
            let (mut up, mut down, mut sum) = (f64::INFINITY, f64::INFINITY, 0.0);
            for (point, idle) in points.iter().zip(&idle) {
                let above_up = point[1] - skew * point[0];
                let above_down = point[3] + skew * point[2];
                up = up.min(above_up);
                down = down.min(above_down);
                if *idle {
                    sum += above_up + above_down;
                }
            }
            (sum - count as f64 * (up + down), up, down)
        };
        let (mut low, mut high) = (-MAX_SKEW, MAX_SKEW);
        for _ in 0..STEPS {
            let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
            let (left, right) = (area(a).0, area(b).0);
            // Where both are the same the least lies between them.
            if left <= right {
                high = b;
            }
            if right <= left {
                low = a;
            }
        }
        let skew = (low + high) / 2.0;
        let (_, up_ns, down_ns) = area(skew);
        let rtt_ns = probes.iter().map(|(p, _)| p.rtt_ns()).min()? as f64;
        Some(Clocks { origin, up_origin, down_origin, up_ns, down_ns, skew, rtt_ns })
    }

    /// Added delay of a probe. Never negative for a probe of the fit.
    pub fn queue(&self, p: &Times) -> Queue {
        let up = (p.t2 - p.t1 - self.up_origin) as f64
            - self.skew * (p.t1 - self.origin) as f64
            - self.up_ns;
        let down = (p.t4 - p.t3 - self.down_origin) as f64
            + self.skew * (p.t4 - self.origin) as f64
            - self.down_ns;
        Queue { up_ms: up * MS, down_ms: down * MS, rtt_ms: (p.rtt_ns() as f64 - self.rtt_ns) * MS }
    }

    /// Smallest round trip, ms.
    pub fn rtt_ms(&self) -> f64 {
        self.rtt_ns * MS
    }

    /// A time of the server's clock on the client's, ns. Wrong by the delay of one direction, which is below a round trip.
    pub fn on_client(&self, server_ns: i64) -> i64 {
        let since = (server_ns - self.origin - self.up_origin) as f64 - self.up_ns;
        self.origin + (since / (1.0 + self.skew)) as i64
    }

    /// How the least delays changed from before to after; `None` unless there are idle probes on both sides.
    pub fn path_change(&self, probes: &[(Times, When)]) -> Option<PathChange> {
        let least = |side: When| {
            probes.iter().filter(|(_, when)| *when == side).map(|(p, _)| self.queue(p)).reduce(
                |a, b| Queue {
                    up_ms: a.up_ms.min(b.up_ms),
                    down_ms: a.down_ms.min(b.down_ms),
                    rtt_ms: a.rtt_ms.min(b.rtt_ms),
                },
            )
        };
        let (before, after) = (least(When::Before)?, least(When::After)?);
        Some(PathChange {
            up_ms: after.up_ms - before.up_ms,
            down_ms: after.down_ms - before.down_ms,
            rtt_ms: after.rtt_ms - before.rtt_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use algo::Rng;
    use proptest::prelude::*;

    use super::*;

    const S: i64 = 1_000_000_000;

    /// Probes at 50/s: idle for 3 s, 24 s with a queue that swings, idle for 2 s. With the true queue of each, ms.
    fn simulated(
        seed: u64,
        offset_ns: i64,
        ppm: f64,
        change_ms: [f64; 2],
    ) -> (Vec<(Times, When)>, Vec<[f64; 2]>) {
        let mut rng = Rng::new(seed, "probes");
        let (mut probes, mut truth) = (Vec::new(), Vec::new());
        for n in 0..1450_i64 {
            let t1 = 5 * S + n * 20_000_000 + (rng.uniform() * 4e6) as i64;
            let at_s = (t1 - 5 * S) as f64 / 1e9;
            let when = match at_s {
                s if s < 3.0 => When::Before,
                s if s < 27.0 => When::Loaded,
                _ => When::After,
            };
            let swing = |period: f64| (at_s / period * std::f64::consts::TAU).sin().abs();
            let queue = match when {
                When::Loaded => [180.0 * swing(3.1) + 1.0, 35.0 * swing(1.7) + 1.0],
                _ => [0.0, 0.0],
            };
            // What is no queue: the path, and the hosts' own jitter.
            let path = |way: usize, rng: &mut Rng| {
                let changed = if at_s > 15.0 { change_ms[way] } else { 0.0 };
                ([12.0, 31.0][way] + changed + queue[way] + rng.exponential(0.15)) * 1e6
            };
            let up = path(0, &mut rng) as i64;
            let arrived = t1 + up;
            let answered = arrived + 40_000;
            let t4 = answered + path(1, &mut rng) as i64;
            let server = |t: i64| t + offset_ns + (t as f64 * ppm * 1e-6) as i64;
            probes.push((Times { t1, t2: server(arrived), t3: server(answered), t4 }, when));
            truth.push(queue);
        }
        (probes, truth)
    }

    fn worst(probes: &[(Times, When)], truth: &[[f64; 2]]) -> f64 {
        let clocks = Clocks::fit(probes).expect("idle probes");
        probes.iter().zip(truth).fold(0.0, |worst, ((p, _), truth)| {
            let queue = clocks.queue(p);
            f64::max(worst, (queue.up_ms - truth[0]).abs().max((queue.down_ms - truth[1]).abs()))
        })
    }

    #[test]
    fn clocks_ten_seconds_and_a_hundred_ppm_apart_give_the_same_delays() {
        let (same, truth) = simulated(1, 0, 0.0, [0.0; 2]);
        let (apart, _) = simulated(1, 10 * S, 100.0, [0.0; 2]);
        let (one, other) = (Clocks::fit(&same).unwrap(), Clocks::fit(&apart).unwrap());
        for ((p, _), (q, _)) in same.iter().zip(&apart) {
            let (a, b) = (one.queue(p), other.queue(q));
            assert!((a.up_ms - b.up_ms).abs() < 0.3 && (a.down_ms - b.down_ms).abs() < 0.3);
        }
        assert!((other.skew - 100e-6).abs() < 5e-6, "{}", other.skew);
        // The hosts' jitter, of which the largest of 1450 is about a millisecond.
        assert!(worst(&apart, &truth) < 2.5);
    }

    #[test]
    fn times_that_no_server_writes_are_refused() {
        let times = |t2, t3| Times { t1: 1, t2, t3, t4: 2 };
        assert!(times(-5, 7).is_plausible());
        for (t2, t3) in [(i64::MIN, 0), (0, i64::MAX), (8, 7), (0, KEPT_NS)] {
            assert!(!times(t2, t3).is_plausible(), "{t2} {t3}");
        }
    }

    #[test]
    fn without_the_fit_of_rates_the_same_clocks_would_be_wrong_by_milliseconds() {
        let (apart, truth) = simulated(1, 10 * S, 100.0, [0.0; 2]);
        let mut flat = Clocks::fit(&apart).unwrap();
        flat.skew = 0.0;
        let (last, _) = apart[apart.len() - 1];
        assert!((flat.queue(&last).up_ms - truth[truth.len() - 1][0]).abs() > 2.0);
    }

    #[test]
    fn a_path_that_changed_in_one_direction_is_no_skew() {
        for change in [[8.0, 0.0], [0.0, 8.0], [-8.0, 0.0]] {
            let (probes, _) = simulated(3, 10 * S, 60.0, change);
            let clocks = Clocks::fit(&probes).unwrap();
            let found = clocks.path_change(&probes).unwrap();
            assert!(found.is_large(), "{change:?}: {found:?}");
        }
        let (probes, _) = simulated(3, 10 * S, 60.0, [0.0; 2]);
        assert!(!Clocks::fit(&probes).unwrap().path_change(&probes).unwrap().is_large());
    }

    #[test]
    fn a_time_of_the_server_is_found_again_on_the_clients_clock() {
        let (probes, _) = simulated(4, -7 * S, -80.0, [0.0; 2]);
        let clocks = Clocks::fit(&probes).unwrap();
        for (p, _) in probes {
            let arrived = p.t1 + p.rtt_ns() / 2;
            assert!((clocks.on_client(p.t2) - arrived).abs() < 250_000_000);
        }
    }

    proptest! {
        #[test]
        fn any_clocks_give_delays_near_the_truth(
            seed in 0_u64..1000, offset in -100 * S..100 * S, ppm in -190.0_f64..190.0,
        ) {
            let (probes, truth) = simulated(seed, offset, ppm, [0.0; 2]);
            prop_assert!(worst(&probes, &truth) < 3.0);
        }
    }
}
