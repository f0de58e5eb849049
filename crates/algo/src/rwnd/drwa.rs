//! DRWA: the receiver lets the sender have λ bandwidth-delay products in flight, up and down.
//!
//! signal: bytes that the application read in one RTT, RTT samples, the smallest RTT · model: the bytes
//! read in one RTT are the sender's window; RTT / RTTmin gives the part of it in a queue · action,
//! once per RTT, when data is copied to the application: `cwnd_est ← α·cwnd_est + (1−α)·read`,
//! `rwnd ← λ · RTTmin / RTT · cwnd_est`. A window-limited sender then settles at RTT = λ·RTTmin with
//! rwnd = λ·BDP: the queue is (λ−1) bandwidth-delay products.
//!
//! Sources: Jiang, Wang, Lee, Rhee: "Tackling Bufferbloat in 3G/4G Networks", IMC 2012, section 5, as
//! paraphrased and coded by an independent port to Android (`Koderok/drwa-android-ics`: report section
//! 3 and its kernel change, which uses α = 1/2 and λ = 3); US patents 9,444,688 and 9,838,325.
//!
//! Integers only: bytes, microseconds, sixteenths. [`decide`] is the whole arithmetic, in 64 bits
//! without overflow; an eBPF program computes the same bit for bit.
//!
//! Deviations, each with its reason:
//! - `form = rate` averages the *rate* and advertises λ·RTTmin·rate. The fixed point is the same, but
//!   the lag of the average does not multiply with a rising RTT (measured on a live kernel: back at
//!   180 ms within 2 s of a rate step).
//! - If the application reads rarely and a round lasts longer than one RTT, its bytes are scaled to one
//!   RTT.
//! - Idle: a round of more than two RTTs with a pause of more than one RTT is dropped, and the window
//!   stays, because such a round does not describe the path. The paper does not mention idle times;
//!   taken literally, a pause would close the window.
//! - Until the first round has ended, the window is Linux's first one: short transfers stay as they are.
//! - `rtt_min_age`, off by default, measures RTTmin again if no sample was that small for this time.
//!   Otherwise a longer route would starve. The window falls to half a bandwidth-delay product until
//!   everything advertised before has arrived, and one window more (two with the window estimator,
//!   whose samples overlap). The smallest RTT of these windows is the new RTTmin. Then the old window
//!   returns, and the next round begins when data sent under it has arrived. Without the smaller
//!   window the law would take λ·RTTmin for the path, and RTT would grow by λ per age. It cannot empty
//!   the standing queues of other flows. The paper's RTTmin never ages.
//! - `rtt_min_seed`, [`Drwa::learn_rtt_min`]: RTTmin known from other connections to the same host. A
//!   latecomer into a standing queue never measures the empty path and would take λ times the others'
//!   share of delay.
//! - `increment`, off by default, adds segments to every decision. The paper's law multiplies all
//!   windows at one bottleneck by the same factor, so they keep their initial proportions; a
//!   difference of a millisecond in RTTmin multiplies until one flow starves. With `a` bytes more per
//!   decision a window settles at a / (1 − λ·RTTmin / RTT), the same for all flows. The price is an
//!   RTT above λ·RTTmin by a / λ·BDP for each flow.
//! - `quick`: the average jumps to a larger value at once. Ramp-up then multiplies by λ per RTT, not
//!   by α + (1−α)λ.

use alloc::boxed::Box;
use alloc::vec::Vec;

use units::{Bytes, Duration, Instant};

use super::adaptive::{self, LAMBDA_ONE};
use super::decided::{Decided, MAX_BYTES, MAX_RATE, MAX_RTT_US};
use super::path::Places;
use super::receiving::{Arrival, Receiving};
use super::{Cause, Sample, Setup, State, WindowControl, WindowRtt};

/// Name in the table.
pub const NAME: &str = "drwa";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "λ · RTTmin / RTT · bytes read per RTT: keeps RTT at λ · RTTmin";
/// Where it is specified.
pub const SOURCE: &str = "DRWA section 5";

choice! {
    /// The quantity that is averaged.
    pub enum Form {
        /// The window `cwnd_est`, as in the paper.
        Paper = "paper",
        /// The rate, in bytes per second.
        Rate = "rate",
        /// The rate, with what the agent adds: queues of the opposite direction, room for a flow that
        /// grows, what the host's flows know of each other ([`super::receiving`],
        /// [`super::forwarding`]).
        Agent = "agent",
    }
}

choice! {
    /// Which of the paper's two estimators gives RTT samples.
    pub enum Estimator {
        /// The mean of the samples from timestamps within the last RTT. Without timestamps: the other
        /// estimator.
        Timestamps = "timestamps",
        /// From an advertised window to the data beyond it: [`WindowRtt`].
        Window = "window",
    }
}

config! {
    /// Parameters of the law, and its bounds.
    pub struct Config {
        /// `paper` averages the window, `rate` the rate. `agent` is `rate` as unbloat-agent runs it: the queue of the
        /// opposite direction is not the flow's own, a flow that grows has room, and flows of one host share the smallest
        /// RTT.
        form: Form = Form::Paper;
        /// Weight of the old value in the average, in sixteenths. 14 (7/8) is what the prototypes of this project were
        /// measured with in the paper's form; the independent port uses 8 (1/2).
        alpha: u64 = 14, 0, 15;
        /// Aggressiveness λ: the RTT that is allowed, in RTTmin; sixteenths count. 3 as in the independent port.
        lambda: f64 = 3.0, 0.0625, 16.0;
        /// λ adapts to how much the link varies, between this and `lambda`, and the rate is the largest of the last
        /// seconds ([`super::adaptive`]). Off by default; not with `form = "paper"`.
        lambda_min: Option<f64> = None, Some(0.0625), Some(16.0);
        /// Where RTT samples come from.
        estimator: Estimator = Estimator::Timestamps;
        /// The average jumps up to a larger value at once.
        quick: bool = false;
        /// Smallest window in segments: two keep delayed ACKs going (RFC 9293 section 3.8.6.3).
        min_window: u64 = 2, 1, 1_000;
        /// Window before the first round has ended: Linux's first window.
        initial: Bytes = Bytes(65_535), Bytes(1_448), Bytes(1 << 30);
        /// Payload that fits the buffer, and so the largest window: half (`scaling_ratio` 128 of 256) of Linux 6.18's
        /// 32 MiB.
        max: Bytes = Bytes(16_777_216), Bytes(65_536), Bytes(1 << 30);
        /// Age of RTTmin at which the queue is emptied and RTTmin measured again. A deviation, off by default; without
        /// effect with `form = "agent"`, where the host's other connections know RTTmin.
        rtt_min_age: Option<Duration> = None, Some(Duration::from_millis(100)), Some(Duration::from_secs(86_400));
        /// Segments that every decision adds, so that windows at one bottleneck become equal. A deviation, off by default.
        increment: u64 = 0, 0, 1_000;
        /// Flows of one host in one direction get equal rates, whatever their RTTs. Only with `form = "agent"`.
        fair: bool = false;
        /// RTTmin known from other connections to the same host.
        rtt_min_seed: Option<Duration> = None, Some(Duration::from_micros(1)), Some(Duration::from_secs(10));
    }
}

impl Config {
    /// λ in units of 1/256, rounded to sixteenths, and the smallest one where it adapts.
    pub fn lambdas(&self) -> (u64, Option<u64>) {
        let units = |lambda: f64| (lambda * 16.0 + 0.5) as u64 * (LAMBDA_ONE / 16);
        let lambda = units(self.lambda);
        let adapts = self.lambda_min.filter(|_| self.form != Form::Paper);
        (lambda, adapts.map(|least| units(least).min(lambda)))
    }
}

/// The constants of [`decide`], as the eBPF program has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Law {
    /// Averages the rate instead of the window.
    pub rate_form: bool,
    /// Weight of the old value, in sixteenths, at most 15.
    pub alpha: u64,
    /// λ in units of 1/256, at most 4,096.
    pub lambda: u64,
    /// The smallest λ, where it adapts ([`super::adaptive`]).
    pub lambda_min: u64,
    /// λ and the rate adapt.
    pub adaptive: bool,
    /// Payload of a full segment.
    pub mss: u64,
    /// The average jumps to a larger value at once.
    pub quick: bool,
    /// Bytes that every decision adds.
    pub increment: u64,
    /// The smallest window, in bytes.
    pub floor: u64,
    /// The largest window, in bytes.
    pub max: u64,
}

/// The measurements of one round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    /// Length of the round, µs.
    pub elapsed_us: u64,
    /// Bytes that the application read in it.
    pub bytes: u64,
    /// Mean of the RTT samples in it, µs.
    pub rtt_us: u64,
    /// Smallest RTT of the connection, µs.
    pub rtt_min_us: u64,
    /// What the queue of the opposite direction has of the RTT, µs.
    pub beside_us: u64,
}

/// The averages over all rounds; zero before the first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Estimate {
    /// The paper's `cwnd_est`, in bytes.
    pub cwnd: u64,
    /// The average rate, in bytes per second; the largest of seconds where it adapts.
    pub rate: u64,
    /// Where it adapts the mean rate, for comparison with other flows.
    pub mean: u64,
    /// λ in units of 1/256; zero: that of the law.
    pub lambda: u64,
}

/// One decision: a pure function of the round, so that a test can compare it with the eBPF program.
/// Divisions round down, in the order that is written here.
pub fn decide(law: &Law, old: &Estimate, round: &Round) -> (Estimate, u64) {
    let rtt_min = round.rtt_min_us.clamp(1, MAX_RTT_US);
    let rtt = round.rtt_us.clamp(rtt_min, MAX_RTT_US);
    let elapsed = round.elapsed_us.max(1);
    let bytes = round.bytes.min(MAX_BYTES);
    let new = (bytes * 1_000_000 / elapsed).min(MAX_RATE);
    let mut lambda = law.bounded(old.lambda);

    let cwnd = average(law, old.cwnd, (bytes * rtt / elapsed).min(MAX_BYTES));
    let beside = adaptive::beside(round.beside_us.min(MAX_RTT_US), rtt_min);
    let queue = rtt.saturating_sub(rtt_min + beside);
    let rate = match law.adaptive {
        true => adaptive::rate(old.rate, new, queue, rtt_min),
        false => average(law, old.rate, new),
    };
    let mean = if law.adaptive { adaptive::mean(old.mean, new) } else { rate };
    if law.adaptive {
        lambda = law.bounded(adaptive::lambda(lambda, queue, rtt_min, new, law.mss));
    }
    let target = if law.rate_form {
        // λ last: 2³² · 2²⁵ · 2¹² would not fit 64 bits.
        rate * rtt_min / 1_000_000 * lambda / LAMBDA_ONE
    } else {
        // Sixteenths: 2³⁰ · 2⁸ · 2²⁵ fit 64 bits.
        cwnd * (lambda / 16) * rtt_min / (16 * rtt)
    };
    (
        Estimate { cwnd, rate, mean, lambda },
        target.saturating_add(law.increment).max(law.floor).min(law.max),
    )
}

impl Law {
    /// λ within its bounds, which may have changed; zero: none was found yet.
    fn bounded(&self, lambda: u64) -> u64 {
        let max = self.lambda.min(16 * LAMBDA_ONE);
        if lambda == 0 || !self.adaptive { max } else { lambda.max(self.lambda_min).min(max) }
    }
}

fn average(law: &Law, old: u64, new: u64) -> u64 {
    if old == 0 || law.quick && new > old {
        return new;
    }
    let alpha = law.alpha.min(15);
    (alpha * old + (16 - alpha) * new) / 16
}

/// The window after each sample of a recorded sequence.
pub fn replay(config: Config, setup: &Setup, samples: &[(Instant, Sample)]) -> Vec<Bytes> {
    let mut law = Drwa::new(config, setup);
    let step = |(now, sample): &(Instant, Sample)| {
        law.on_sample(*now, sample);
        law.window()
    };
    samples.iter().map(step).collect()
}

/// A measurement of an aged RTTmin, with the queue emptied.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// The window before, which returns at the end.
    resume: u64,
    /// The current step ends when data beyond this arrives: later data was sent under the small
    /// window.
    edge: Bytes,
    /// Windows still to wait for: the first one empties the queue, then one or two are measured, then
    /// [`SETTLING`].
    left: u8,
    /// Smallest RTT since the queue was empty, µs.
    min_us: u64,
}

/// Linux refuses smaller clamps of a socket's window (`SOCK_MIN_RCVBUF` / 2 is some 2.3 KB), and the
/// agent sets none below this.
const MIN_CLAMP: u64 = 4_096;

/// Windows from the return of the old window to the next decision: one until data arrives that was
/// sent under it, and that one itself. Before, RTT would be that of the empty path and `cwnd_est`
/// that of the full one, and their quotient too large.
const SETTLING: u8 = 2;

/// DRWA for one connection.
#[derive(Clone, Debug)]
pub struct Drwa {
    law: Law,
    estimate: Estimate,
    window: u64,
    max: Bytes,
    fair: bool,
    mss: u64,
    window_rtt: Option<WindowRtt>,
    /// Mean RTT of the last round, µs; zero before the first sample.
    rtt_us: u64,
    rtt_min_us: u64,
    /// The opposite direction's queue in the last round, µs.
    beside_us: u64,
    /// Delay of ACKs on their way here, up to a constant, ns; and when the round began.
    ack_delay_ns: i64,
    begun_delay_ns: i64,
    rtt_min_at: Instant,
    rtt_min_age: Option<Duration>,
    probe: Option<Probe>,
    /// The current round: when and where it began, its RTT samples, and its longest silence.
    begun: Option<(Instant, Bytes)>,
    rtt_sum_us: u64,
    rtt_count: u64,
    silence: Duration,
    arrived: Instant,
    /// Total that the application had read at the last sample.
    copied: Bytes,
    /// What the agent adds at the receiver.
    receiving: Option<Box<Receiving>>,
}

impl Drwa {
    /// The state of a new connection at its receiver.
    pub fn new(config: Config, setup: &Setup) -> Drwa {
        let agent = config.form == Form::Agent;
        let mut law = Drwa::alone(config, setup);
        if agent {
            law.law.floor = law.law.floor.max(MIN_CLAMP).min(law.law.max);
            law.receiving = Some(Box::default());
        }
        law
    }

    /// The law without what the agent adds to it at the receiver.
    pub fn alone(config: Config, setup: &Setup) -> Drwa {
        let max = config.max.0.clamp(1, MAX_BYTES);
        let floor = config.min_window.saturating_mul(setup.mss.0).clamp(1, max);
        let (lambda, lambda_min) = config.lambdas();
        let law = Law {
            rate_form: config.form != Form::Paper,
            alpha: config.alpha,
            lambda,
            lambda_min: lambda_min.unwrap_or(lambda),
            adaptive: lambda_min.is_some(),
            mss: setup.mss.0,
            quick: config.quick,
            increment: config.increment.saturating_mul(setup.mss.0).min(MAX_BYTES),
            floor,
            max,
        };
        let by_window = config.estimator == Estimator::Window || !setup.timestamps;
        Drwa {
            law,
            estimate: Estimate::default(),
            window: config.initial.0.clamp(floor, max),
            max: Bytes(max),
            mss: setup.mss.0,
            fair: config.fair && config.form == Form::Agent,
            window_rtt: by_window.then(WindowRtt::default),
            rtt_us: 0,
            beside_us: 0,
            ack_delay_ns: 0,
            begun_delay_ns: 0,
            rtt_min_us: config.rtt_min_seed.map_or(MAX_RTT_US, micros),
            rtt_min_at: Instant::ZERO,
            rtt_min_age: config.rtt_min_age,
            probe: None,
            begun: None,
            rtt_sum_us: 0,
            rtt_count: 0,
            silence: Duration::ZERO,
            arrived: Instant::ZERO,
            copied: Bytes::ZERO,
            receiving: None,
        }
    }

    /// Takes the smallest RTT of another connection to the same host.
    pub fn learn_rtt_min(&mut self, rtt: Duration) {
        self.rtt_min_us = self.rtt_min_us.min(micros(rtt));
    }

    /// The queue of the opposite direction in the last round.
    pub(super) fn set_beside(&mut self, us: u32) {
        self.beside_us = us.into();
    }

    /// The delay of the ACK that has just come, on its own way, up to a constant.
    pub(super) fn set_ack_delay(&mut self, ns: i64) {
        self.ack_delay_ns = ns;
    }

    /// What the law has decided so far.
    pub(super) fn decided(&self) -> Decided {
        Decided {
            lambda: self.law.bounded(self.estimate.lambda),
            round_rtt_us: self.rtt_us,
            rtt_min_us: self.rtt_min_us,
            rate: self.estimate.rate,
            mean: self.estimate.mean,
            window: self.window,
            increment: self.law.increment,
            floor: self.law.floor,
            max: self.law.max,
            mss: self.mss,
            fair: self.fair,
            adaptive: self.law.adaptive,
        }
    }

    /// When data arrived last.
    pub(super) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// When the current round began, ns; a later value means that a round has ended.
    pub(super) fn round_began_ns(&self) -> u64 {
        self.begun.map_or(0, |(at, _)| at.0)
    }

    /// RTTmin is the smallest of *all* samples; RTT_est is the mean of those of one round (see
    /// [`Estimator`]).
    fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        let us = micros(rtt);
        let first = self.rtt_us == 0 && self.rtt_count == 0;
        if us <= self.rtt_min_us || first {
            self.rtt_min_us = self.rtt_min_us.min(us);
            self.rtt_min_at = now;
        }
        self.rtt_sum_us = self.rtt_sum_us.saturating_add(us);
        self.rtt_count += 1;
    }

    /// Begins, continues and ends the measurement of an aged RTTmin.
    fn on_aging(&mut self, now: Instant, sample: &Sample, rtt: Option<Duration>, age: Duration) {
        let measured = if self.window_rtt.is_some() { 2 } else { 1 };
        let Some(probe) = &mut self.probe else {
            if self.rtt_us > 0 && now.since(self.rtt_min_at) > age {
                // Half a bandwidth-delay product: the queue drains, and ACKs still arrive.
                let half = self.estimate.cwnd / 2 * self.rtt_min_us / self.rtt_us;
                let (resume, edge) = (self.window, sample.right_edge);
                self.probe =
                    Some(Probe { resume, edge, left: SETTLING + measured + 1, min_us: MAX_RTT_US });
                self.window = half.max(self.law.floor).min(self.window);
            }
            return;
        };
        let passed = sample.received > probe.edge;
        if passed {
            probe.edge = sample.right_edge;
            probe.left -= 1;
        }
        let measuring = (SETTLING..=SETTLING + measured).contains(&probe.left);
        if measuring && let Some(rtt) = rtt {
            probe.min_us = probe.min_us.min(micros(rtt));
        }
        if passed && probe.left == SETTLING {
            if probe.min_us < MAX_RTT_US {
                self.rtt_min_us = probe.min_us;
            }
            self.rtt_min_at = now;
            self.window = probe.resume;
        }
        if probe.left == 0 {
            self.probe = None;
            self.begin_round(now, sample.copied);
        }
    }

    /// RTT_est, from the samples of this round, or of the last one while there are none.
    fn rtt_estimate(&self) -> u64 {
        self.rtt_sum_us.checked_div(self.rtt_count).unwrap_or(self.rtt_us)
    }

    fn begin_round(&mut self, now: Instant, copied: Bytes) {
        self.begun = Some((now, copied));
        self.rtt_sum_us = 0;
        self.rtt_count = 0;
        self.silence = Duration::ZERO;
        self.begun_delay_ns = self.ack_delay_ns;
    }

    /// Data reached the application: the end of the round when an RTT has passed.
    fn on_read(&mut self, now: Instant, copied: Bytes) {
        let Some((begun, from)) = self.begun else { return };
        if self.probe.is_some() {
            return;
        }
        let rtt_us = self.rtt_estimate();
        let elapsed_us = now.since(begun).0 / 1_000;
        let ended = if self.law.adaptive {
            let (min, bytes) = (self.rtt_min_us, (copied - from).0);
            adaptive::round_ends(elapsed_us, rtt_us, min, bytes, self.mss, self.rtt_count)
        } else {
            elapsed_us >= rtt_us
        };
        if rtt_us == 0 || !ended {
            return;
        }
        self.rtt_us = rtt_us;
        let idle = elapsed_us > 2 * rtt_us && self.silence.0 / 1_000 > rtt_us;
        if !idle {
            let sooner_ns = self.begun_delay_ns.saturating_sub(self.ack_delay_ns);
            let elapsed_us = match self.law.adaptive {
                true => adaptive::elapsed(elapsed_us, sooner_ns, rtt_us),
                false => elapsed_us,
            };
            let (bytes, rtt_min_us, beside_us) =
                ((copied - from).0, self.rtt_min_us, self.beside_us);
            let round = Round { elapsed_us, bytes, rtt_us, rtt_min_us, beside_us };
            (self.estimate, self.window) = decide(&self.law, &self.estimate, &round);
        }
        self.begin_round(now, copied);
    }
}

fn micros(rtt: Duration) -> u64 {
    (rtt.0 / 1_000).clamp(1, MAX_RTT_US)
}

impl WindowControl for Drwa {
    fn on_sample(&mut self, now: Instant, sample: &Sample) -> Option<Bytes> {
        let before = self.window();
        let round = self.round_began_ns();
        if self.begun.is_none() {
            // The first data belongs to the first round; data read before does not.
            self.arrived = now;
            self.copied = sample.copied;
            self.begin_round(now, sample.copied);
        }
        if sample.cause == Cause::Arrived {
            self.silence = self.silence.max(now.since(self.arrived));
            self.arrived = now;
            let rtt = match &mut self.window_rtt {
                Some(window) => window.on_data(now, sample.received, sample.right_edge),
                None => sample.rtt,
            };
            if let Some(rtt) = rtt {
                self.on_rtt(now, rtt);
            }
            if let Some(age) = self.rtt_min_age {
                self.on_aging(now, sample, rtt, age);
            }
        }
        // The paper's trigger is the copy to user space. On a router and at the sending host,
        // `copied` is `received`, and every arrival is a trigger.
        if sample.copied > self.copied {
            self.copied = sample.copied;
            self.on_read(now, sample.copied);
        }
        let (law, ended) = (self.decided(), round != self.round_began_ns());
        if let Some(receiving) = &mut self.receiving {
            receiving.on_law(&law, now, sample.copied.0, ended);
            self.beside_us = receiving.beside_us().into();
        }
        (self.window() != before).then_some(self.window())
    }
    fn on_open(&mut self, now: Instant, address: u64, places: &Places) {
        if let Some(receiving) = &mut self.receiving {
            receiving.on_open(now, address, places);
        }
    }
    fn on_arrival(&mut self, now: Instant, arrival: &Arrival, places: &mut Places) {
        let mut law = self.decided();
        if let Some(receiving) = &mut self.receiving {
            receiving.on_arrival(now, arrival, &mut law, places);
            self.rtt_min_us = law.rtt_min_us;
        }
    }
    fn window(&self) -> Bytes {
        let target = self.receiving.as_ref().and_then(|receiving| receiving.target());
        Bytes(target.unwrap_or(self.window))
    }
    fn buffer(&self) -> Bytes {
        self.max
    }
    fn state(&self) -> State {
        let rtt = self.rtt_estimate();
        State {
            window: self.window(),
            cwnd_estimate: (self.estimate.cwnd > 0).then_some(Bytes(self.estimate.cwnd)),
            rtt: (rtt > 0).then_some(Duration::from_micros(rtt)),
            rtt_min: (self.rtt_min_us < MAX_RTT_US)
                .then_some(Duration::from_micros(self.rtt_min_us)),
        }
    }
}

#[cfg(test)]
#[path = "drwa_tests.rs"]
mod tests;
