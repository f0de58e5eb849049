//! The uplink of a mobile phone, as its Qualcomm modem logs it: bytes in the modem's buffer, grants of the base
//! station, padding.
//!
//! Decoding ([`stream`], [`contents`]) is pure: bytes in, records out, no clock and no file. So are reports for
//! `unbloat-agent` ([`reports`], [`clock`]), with the time as an argument. Nothing in a record is trusted; a layout that
//! is unknown is named and not guessed.

mod bytes;
pub mod clock;
pub mod contents;
pub mod hdlc;
pub mod host_clock;
pub mod layout;
pub mod log_config;
pub mod mac;
pub mod message;
pub mod reports;
pub mod stream;
pub mod summary;
pub mod time;
pub mod timeline;
pub mod written;
