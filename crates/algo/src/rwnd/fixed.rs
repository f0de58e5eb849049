//! A window that never changes: the static `tcp_rmem` maximum of phones, or any given window.
//!
//! signal: none · model: buffer × Linux's scaling ratio · action: the window is the free buffer.
//! Sources: DRWA section 4 (phones' static maxima), Linux `tcp_win_from_space`.

use units::{Bytes, Instant};

use super::{Sample, Setup, State, WindowControl};

/// Name in the table.
pub const NAME: &str = "fixed";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "a static buffer: what phones set with tcp_rmem";
/// Where it is specified.
pub const SOURCE: &str = "DRWA section 4; Linux tcp_win_from_space";

config! {
    /// A window, or the buffer that it is computed from.
    pub struct Config {
        /// The advertised window. Without it the window is `rmem_max` × `ratio`.
        window: Option<Bytes> = None, Some(Bytes(1)), Some(Bytes(1 << 30));
        /// Maximum of the receive buffer, the third value of `tcp_rmem`. 110,208 bytes is Android 2.3's UMTS value.
        rmem_max: Bytes = Bytes(110_208), Bytes(1_024), Bytes(1 << 30);
        /// Payload per byte of buffer: 0.5 since Linux 6.6 (scaling_ratio 128 of 256); 0.75 with the kernels of 2012
        /// (`tcp_adv_win_scale` 2).
        ratio: f64 = 0.5, 0.05, 1.0;
    }
}

/// The static window of one connection.
#[derive(Clone, Debug)]
pub struct Fixed {
    window: Bytes,
}

impl Fixed {
    /// The state of a new connection.
    pub fn new(config: Config, _setup: &Setup) -> Fixed {
        let from_buffer = Bytes((config.rmem_max.0 as f64 * config.ratio) as u64);
        Fixed { window: config.window.unwrap_or(from_buffer) }
    }
}

impl WindowControl for Fixed {
    fn on_sample(&mut self, _now: Instant, _sample: &Sample) -> Option<Bytes> {
        None
    }
    fn window(&self) -> Bytes {
        self.window
    }
    fn buffer(&self) -> Bytes {
        self.window
    }
    fn state(&self) -> State {
        State { window: self.window, ..State::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_advertised_by_its_ratio_and_a_window_as_it_is() {
        let of = |config| Fixed::new(config, &Setup::default()).window();
        assert_eq!(of(Config { rmem_max: Bytes(131_072), ..Config::default() }), Bytes(65_536));
        assert_eq!(
            of(Config { window: Some(Bytes(3_000_000)), ..Config::default() }),
            Bytes(3_000_000)
        );
    }
}
