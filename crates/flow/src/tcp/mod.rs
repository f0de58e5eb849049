//! One direction of a TCP connection: its data, what acknowledges it, and what the sender knew.

pub(crate) mod ack;
pub(crate) mod bursts;
pub(crate) mod hosts;
pub(crate) mod retransmission;
pub(crate) mod scoreboard;
pub(crate) mod sender_view;
pub(crate) mod state;
pub(crate) mod stream;
