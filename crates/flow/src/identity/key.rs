//! The key of the connection table: protocol and both endpoints in an order that is the same for both directions.

use std::hash::{BuildHasher, Hash};

use capture::Addr;

/// Identifies a connection or datagram flow, whichever direction a packet has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    low: Addr,
    high: Addr,
    ports: u32,
    protocol: u8,
}

impl Key {
    /// The key of a packet from `src` to `dst`.
    #[inline]
    pub fn new(protocol: u8, src: (Addr, u16), dst: (Addr, u16)) -> Key {
        let (low, high) = if src > dst { (dst, src) } else { (src, dst) };
        let ports = u32::from(low.1) << 16 | u32::from(high.1);
        Key { low: low.0, high: high.0, ports, protocol }
    }

    /// One folded multiplication for each part; addresses of a capture differ in few bits, in both halves.
    #[inline]
    pub fn mix(self) -> u64 {
        let a = self.low.0 as u64 ^ ((self.low.0 >> 64) as u64).rotate_left(23);
        let b = self.high.0 as u64 ^ ((self.high.0 >> 64) as u64).rotate_left(41);
        let h = fold(a ^ 0x243f_6a88_85a3_08d3, b ^ 0x1319_8a2e_0370_7344);
        fold(h ^ u64::from(self.ports) ^ u64::from(self.protocol) << 32, 0xa409_3822_299f_31d0)
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.mix());
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ (wide >> 64) as u64
}

/// Uses the key's own hash unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hasher;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassThrough(u64);

impl BuildHasher for Hasher {
    type Hasher = PassThrough;
    #[inline]
    fn build_hasher(&self) -> PassThrough {
        PassThrough(0)
    }
}

impl std::hash::Hasher for PassThrough {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = fold(self.0 ^ u64::from(*b), 0x9e37_79b9_7f4a_7c15);
        }
    }
    #[inline]
    fn write_u64(&mut self, h: u64) {
        self.0 = h;
    }
    /// Mixes one address in, so that pairs of addresses hash as well.
    #[inline]
    fn write_u128(&mut self, a: u128) {
        let halves = a as u64 ^ ((a >> 64) as u64).rotate_left(23);
        self.0 = fold(self.0 ^ halves ^ 0x243f_6a88_85a3_08d3, 0xa409_3822_299f_31d0);
    }
}
