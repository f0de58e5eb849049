//! Part of a packet: its captured bytes, and its length on the wire.

/// Bounds-checked view: every read returns `None` beyond the captured bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) data: &'a [u8],
    /// Bytes on the wire from here on; may be more than `data` (snap length) or less (padding).
    pub(crate) wire: u32,
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn u8(self, at: usize) -> Option<u8> {
        self.data.get(at).copied()
    }

    #[inline]
    pub(crate) fn be16(self, at: usize) -> Option<u16> {
        self.data.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
    }

    #[inline]
    pub(crate) fn be32(self, at: usize) -> Option<u32> {
        self.data.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
    }

    /// The view without its first `count` bytes.
    #[inline]
    pub(crate) fn skip(self, count: usize) -> Option<View<'a>> {
        Some(View { data: self.data.get(count..)?, wire: self.wire.saturating_sub(count as u32) })
    }

    /// The first `len` bytes, of which fewer may have been captured.
    #[inline]
    pub(crate) fn cut(self, len: u32) -> View<'a> {
        View { data: &self.data[..self.data.len().min(len as usize)], wire: len }
    }
}
