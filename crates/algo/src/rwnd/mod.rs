//! Receive-window control: how much the receiver lets a sender have in flight.
//!
//! signal: data that arrived, data that the application read, round-trip times · model: one file per
//! law · action: the window to advertise, counted from the next byte expected.
//!
//! The same laws run in three places: in the receiver; on the ACKs that a router forwards; and on the
//! ACKs that arrive at the *sending* host, where they limit an upload by its RTT alone. Outside the
//! receiver, `copied` equals `received`, and the law can only lower the window in the ACK.

use units::{Bytes, Duration, Instant};

use path::Places;

pub mod adaptive;
pub mod afc;
pub mod autotune;
pub mod decided;
pub mod drwa;
pub mod fair;
pub mod fixed;
pub mod forwarding;
pub mod opposite;
pub mod path;
pub mod receiving;
pub mod rledbat;
mod rtt;

pub use receiving::Arrival;
pub use rtt::WindowRtt;

/// The circumstances of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Payload bytes of a full segment.
    pub mss: Bytes,
    /// The connection uses TCP timestamps, so samples have an RTT. Without them a law has to use
    /// [`WindowRtt`].
    pub timestamps: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { mss: Bytes(1448), timestamps: true }
    }
}

/// The event behind a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cause {
    /// A data segment arrived.
    #[default]
    Arrived,
    /// The application read data.
    Copied,
    /// The timer of [`WindowControl::next_wakeup`].
    Timer,
}

/// State of the connection at the receiver, or at the host that watches it. Totals count from the
/// first payload byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// The event behind this sample.
    pub cause: Cause,
    /// Total received in order.
    pub received: Bytes,
    /// Total read by the application; `received` minus this is the unread data in the buffer.
    pub copied: Bytes,
    /// Highest byte received minus `received`: out-of-order data beyond a hole.
    pub out_of_order: Bytes,
    /// Right edge that the last ACK advertised: the total up to which the sender may send.
    pub right_edge: Bytes,
    /// A new RTT sample: from a timestamp echo, or (at the sending host) from data to its ACK.
    pub rtt: Option<Duration>,
}

/// What charts and snapshots show of a window law.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct State {
    /// Target window: the law's window before the free buffer limits it.
    pub window: Bytes,
    /// Estimate of the sender's congestion window, if the law makes one.
    pub cwnd_estimate: Option<Bytes>,
    /// The law's RTT estimate.
    pub rtt: Option<Duration>,
    /// Smallest RTT that the law knows.
    pub rtt_min: Option<Duration>,
}

/// The contract of a window law.
pub trait WindowControl {
    /// Takes an event into account; returns the target window if it changed. The receiver advertises
    /// the smaller of it and the free buffer, and never moves the right edge to the left (RFC 9293
    /// section 3.8.6.2.1).
    fn on_sample(&mut self, now: Instant, sample: &Sample) -> Option<Bytes>;
    /// This host opens the connection, to this address; not called where the far end does.
    fn on_open(&mut self, _now: Instant, _address: u64, _places: &Places) {}
    /// A segment has arrived that shows something of the path; before its sample. `places`: what all
    /// connections of this host know. Only laws that separate the two directions' queues use it.
    fn on_arrival(&mut self, _now: Instant, _arrival: &Arrival, _places: &mut Places) {}
    /// The target window, in bytes.
    fn window(&self) -> Bytes;
    /// Size of the buffer in payload bytes, comparable with the window. Free buffer is this minus
    /// unread and out-of-order data.
    fn buffer(&self) -> Bytes;
    /// The value of AFC's rate option for the next ACK; `None` for every other law.
    fn rate_option(&self) -> Option<u8> {
        None
    }
    /// Whether to send an ACK now without data to acknowledge (AFC's proactive feedback).
    fn wants_ack(&self) -> bool {
        false
    }
    /// An ACK was sent with the current window and option.
    fn on_ack_sent(&mut self, _now: Instant) {}
    /// When the law needs a sample with [`Cause::Timer`].
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }
    /// The state that charts and snapshots show.
    fn state(&self) -> State;
}

family! {
    /// Any window law of the table.
    pub enum Rwnd(Setup): WindowControl {
        fixed::Fixed,
        autotune::Autotune,
        drwa::Drwa,
        afc::Afc,
        rledbat::RLedbat,
    }
    changes {
        on_sample(now: Instant, sample: &Sample) -> Option<Bytes>;
        on_ack_sent(now: Instant);
        on_arrival(now: Instant, arrival: &Arrival, places: &mut Places);
    }
    asks {
        window() -> Bytes;
        buffer() -> Bytes;
        rate_option() -> Option<u8>;
        wants_ack() -> bool;
        next_wakeup() -> Option<Instant>;
        state() -> State;
    }
}
