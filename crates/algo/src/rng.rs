//! Random numbers that are the same on every machine.
//!
//! SplitMix64 spreads the run's seed and the element's name over the 256 bits of state of xoshiro256++
//! (Blackman, Vigna: "Scrambled linear pseudorandom number generators", 2021). Each element has its own
//! stream, so a new element does not change the random numbers of the others.
//!
//! No library, because the sequence is part of the result: a library may change it with a version.

/// The stream of random numbers of one element.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

fn split_mix(x: &mut u64) -> u64 {
    *x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *x;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of the element called `name` in the run with `seed`.
    pub fn new(seed: u64, name: &str) -> Rng {
        // FNV-1a, 64 bits: any fixed hash does; this one is four lines.
        let mut x = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        x ^= seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Rng { state: [split_mix(&mut x), split_mix(&mut x), split_mix(&mut x), split_mix(&mut x)] }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A whole number in `0 .. n`; 0 for `n = 0`. The bias, below n / 2⁶⁴, is accepted: no second draw.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `[0, 1)`, 53 bits fine.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// True with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// Exponentially distributed with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.uniform())
    }

    /// Normally distributed, mean 0, deviation 1 (Box and Muller's method, one of its two values).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform()));
        radius * libm::cos(2.0 * core::f64::consts::PI * self.uniform())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_name_give_the_same_numbers_and_another_name_gives_others() {
        let draw = |seed, name| {
            let mut rng = Rng::new(seed, name);
            [rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(draw(1, "link.up"), draw(1, "link.up"));
        assert_ne!(draw(1, "link.up"), draw(1, "link.down"));
        assert_ne!(draw(1, "link.up"), draw(2, "link.up"));
    }

    #[test]
    fn the_means_of_the_distributions_are_right() {
        let mut rng = Rng::new(7, "means");
        let n = 100_000;
        let mean = |f: &mut dyn FnMut() -> f64| (0..n).map(|_| f()).sum::<f64>() / f64::from(n);
        assert!((mean(&mut || rng.uniform()) - 0.5).abs() < 0.005);
        assert!((mean(&mut || rng.exponential(3.0)) - 3.0).abs() < 0.05);
        assert!(mean(&mut || rng.normal()).abs() < 0.02);
        assert!((mean(&mut || rng.below(10) as f64) - 4.5).abs() < 0.05);
    }
}
