//! Capture files, link layers, IP and TCP headers.
//!
//! A [`Reader`] turns any byte stream (pcap, pcapng, compressed with gzip or zstd) into [`Frame`]s that borrow
//! from its buffer. A [`Decoder`] turns each frame into one [`Decoded`] packet, through link layer, tags and
//! tunnels. Both accept any bytes: invalid input is an error or [`Decoded::Broken`], never a panic.
//! [`mod@write`] writes captures.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut reader = capture::open(std::path::Path::new("upload.pcapng.gz"))?;
//! let mut decoder = capture::Decoder::new();
//! while let Some(frame) = reader.next_frame()? {
//!     if let capture::Decoded::Tcp(segment) = decoder.decode(&frame) {
//!         println!("{} {}", segment.ip.src, segment.payload);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod buffer;
mod decoded;
mod decoder;
mod error;
mod foreign;
mod fragment;
mod frame;
mod ip;
mod link;
mod linktype;
mod message;
mod order;
#[cfg(test)]
mod packets;
mod pcap;
mod pcapng;
pub mod protocol;
mod reader;
mod source;
mod tcp;
mod tunnel;
mod view;
mod wlan;
pub mod write;

pub use decoded::{
    Addr, Datagram, Decoded, Ip, Message, MessageKind, TcpOptions, TcpSegment, flags,
};
pub use decoder::Decoder;
pub use error::{OpenError, ReadError};
pub use frame::{Frame, Interface};
pub use linktype::{LINKTYPES, linktype_name};
pub use reader::{Reader, open};
pub use source::Limit;
