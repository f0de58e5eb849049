//! Byte order of a capture file, which is that of the machine that wrote it.

/// Byte order of a file or section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    /// Two bytes at `at`; 0 behind the end, which callers exclude by length first.
    #[inline]
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let Some(b) = bytes.get(at..).and_then(|s| s.first_chunk()) else { return 0 };
        match self {
            Order::Little => u16::from_le_bytes(*b),
            Order::Big => u16::from_be_bytes(*b),
        }
    }

    /// Four bytes at `at`; 0 behind the end.
    #[inline]
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let Some(b) = bytes.get(at..).and_then(|s| s.first_chunk()) else { return 0 };
        match self {
            Order::Little => u32::from_le_bytes(*b),
            Order::Big => u32::from_be_bytes(*b),
        }
    }

    /// Eight bytes at `at`; 0 behind the end.
    #[inline]
    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let Some(b) = bytes.get(at..).and_then(|s| s.first_chunk()) else { return 0 };
        match self {
            Order::Little => u64::from_le_bytes(*b),
            Order::Big => u64::from_be_bytes(*b),
        }
    }
}
