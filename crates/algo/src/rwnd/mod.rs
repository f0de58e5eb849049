//! Receive-window control: how much the receiver lets a sender have in flight.
//!
//! signal: data that arrived, data that the application read, round-trip times · model: one file per law · action:
//! the window to advertise, counted from the next byte expected.
//!
//! The same laws run in three places: in the receiver; on the ACKs that a router passes on; and on the ACKs that come
//! in at the *sending* side, where they hold an upload by RTT alone. Where the law is not in the receiver itself,
//! `copied` equals `received` and the result can only lower the window that the ACK carries.

use units::{Bytes, Duration, Instant};

pub mod afc;
pub mod autotune;
pub mod drwa;
pub mod fixed;
pub mod rledbat;
mod rtt;

pub use rtt::WindowRtt;

/// The circumstances of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Payload bytes of a full segment.
    pub mss: Bytes,
    /// The sender offers timestamps, so that `Sample::rtt` will come. Without them a law has to use
    /// [`WindowRtt`].
    pub timestamps: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { mss: Bytes(1448), timestamps: true }
    }
}

/// What made the sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cause {
    /// A data segment arrived.
    #[default]
    Arrived,
    /// The application read.
    Copied,
    /// A timer that the law asked for.
    Timer,
}

/// Where the receiver (or whoever watches the connection) stands. Totals count from the first payload byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Why now.
    pub cause: Cause,
    /// Received in order.
    pub received: Bytes,
    /// Read by the application; `received` less this is the unread data in the buffer.
    pub copied: Bytes,
    /// Highest byte received less `received`: data held beyond a hole.
    pub out_of_order: Bytes,
    /// Right edge that the last ACK offered: the total up to which the sender may send.
    pub right_edge: Bytes,
    /// A new RTT sample, from a timestamp echo, or (at the sending side) from data to its ACK.
    pub rtt: Option<Duration>,
}

/// What charts and snapshots show of a window law.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct State {
    /// Window that the law wants to see advertised.
    pub window: Bytes,
    /// Its estimate of the sender's congestion window, where it makes one.
    pub cwnd_estimate: Option<Bytes>,
    /// RTT estimate.
    pub rtt: Option<Duration>,
    /// Smallest RTT.
    pub rtt_min: Option<Duration>,
}

/// The contract of a window law.
pub trait WindowControl {
    /// Something happened; the window wanted from now on when it changed. The receiver advertises the smaller of it
    /// and the free buffer, and never moves the right edge to the left (RFC 9293 section 3.8.6.2.1).
    fn on_sample(&mut self, now: Instant, sample: &Sample) -> Option<Bytes>;
    /// The window wanted.
    fn window(&self) -> Bytes;
    /// Payload that may lie unread: the buffer, in the same measure as the window. Free buffer is this less unread
    /// and out-of-order data.
    fn buffer(&self) -> Bytes;
    /// The value of AFC's rate option for the next ACK; `None` for every other law.
    fn rate_option(&self) -> Option<u8> {
        None
    }
    /// Whether an ACK has to go out now although no data asks for it (AFC's proactive feedback).
    fn wants_ack(&self) -> bool {
        false
    }
    /// An ACK went out, with the window and option that were asked.
    fn on_ack_sent(&mut self, _now: Instant) {}
    /// When the law wants a sample with [`Cause::Timer`].
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }
    /// For charts and snapshots.
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
