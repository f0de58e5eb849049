//! A piece of a packet: the bytes that were kept, and how many there were on the wire.

/// Lenient view: every read says `None` where the capture kept too little.
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

    /// Without the first `count` bytes.
    #[inline]
    pub(crate) fn skip(self, count: usize) -> Option<View<'a>> {
        Some(View { data: self.data.get(count..)?, wire: self.wire.saturating_sub(count as u32) })
    }

    /// The first `len` bytes, of which fewer may have been kept.
    #[inline]
    pub(crate) fn cut(self, len: u32) -> View<'a> {
        View { data: &self.data[..self.data.len().min(len as usize)], wire: len }
    }
}
