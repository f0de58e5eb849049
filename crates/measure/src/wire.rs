//! What passes between client and server: frames of the control connection, probes, and what authenticates them.

pub mod data;
pub mod keys;
pub mod message;
pub mod probe;
pub mod quic_probe;
pub mod replay;

/// The protocol inside TLS (RFC 7301).
pub const ALPN: &[u8] = b"unbloat/1";
/// The protocol of a load inside QUIC's handshake (RFC 7301).
pub const QUIC_ALPN: &[u8] = b"unbloat-load/1";
/// Begins a control connection: the first record of TLS is of its handshake (RFC 8446 section 5.1).
pub const HANDSHAKE: u8 = 22;
/// Begins a connection that carries a load.
pub const DATA: [u8; 8] = *b"UNBDATA1";
/// TCP and UDP. Between two assignments of IANA (26000, 26133), and below the ports that Linux gives to clients.
pub const PORT: u16 = 26_110;
