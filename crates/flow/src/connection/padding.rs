//! Segments whose payload may be padding that the IP length includes.
//!
//! signal: up to six bytes of zeros without PSH that fill the packet to the shortest Ethernet frame, and the numbers that
//! follow · model: data advances the sequence number of the same sender's next segment, or is acknowledged (RFC 9293 section
//! 3.4); padding does neither · action: such a segment counts without payload. If the numbers show that it was data, it
//! counts as data from its own time on, and so do the later ones of this sender.

use capture::{TcpSegment, flags};

use crate::connection::{Conn, TableContext};

/// What is known of one sender's segments of this kind.
#[derive(Debug, Default)]
pub(super) struct Padding {
    /// The last one, until the numbers decide about it.
    open: Option<Box<TcpSegment>>,
    /// They are data.
    data: bool,
}

impl Padding {
    /// Whether a segment waits for the decision.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The segment as it counts until the numbers decide.
    #[cold]
    #[inline(never)]
    pub fn without(&mut self, s: &TcpSegment) -> TcpSegment {
        if self.data {
            return *s;
        }
        self.open = Some(Box::new(*s));
        TcpSegment { payload: 0, ..*s }
    }
}

/// Sequence number after everything that `s` carries.
fn after(s: &TcpSegment) -> u32 {
    s.seq
        .wrapping_add(s.payload)
        .wrapping_add(u32::from(s.has(flags::SYN)))
        .wrapping_add(u32::from(s.has(flags::FIN)))
}

impl Conn {
    /// Decides by `s`, of direction `d`, about the segments that wait.
    #[cold]
    #[inline(never)]
    pub(super) fn judge_padding(&mut self, s: &TcpSegment, d: usize, out: &mut TableContext<'_>) {
        for sender in 0..2 {
            let Some(open) = self.padding[sender].open.take() else { continue };
            let shown = if sender == d { s.seq } else { s.ack };
            let decides = sender == d || s.has(flags::ACK);
            if decides && shown == after(&open) {
                self.padding[sender].data = true;
                self.data(&open, sender, out);
                if open.has(flags::FIN) {
                    self.streams[sender].fin = None;
                    self.fin(&open, sender, out);
                }
            } else if sender != d {
                // An ACK of less may be older: it decides nothing.
                self.padding[sender].open = Some(open);
            }
        }
    }
}
