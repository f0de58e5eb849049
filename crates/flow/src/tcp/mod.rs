//! One direction of a TCP connection: its data (`stream`), the ACKs of the other side (`ack`), and what the sender knew
//! (`sender_view`) or can have known (`window_bound`).

pub(crate) mod ack;
pub(crate) mod bursts;
pub(crate) mod full_window;
pub(crate) mod holes;
pub(crate) mod hosts;
pub(crate) mod missing;
pub(crate) mod pauses;
pub(crate) mod retransmission;
pub(crate) mod scoreboard;
pub(crate) mod sender_view;
pub(crate) mod spurious;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod window_bound;
