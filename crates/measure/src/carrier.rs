//! What carries a stream of a load: a socket of TCP, or a connection of QUIC.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use crate::quic::Flow;
use crate::socket;
use crate::wire::message::StreamInfo;

/// What carries a stream.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// A socket of TCP.
    Tcp(Arc<TcpStream>),
    /// A connection of QUIC.
    Quic(Flow),
}

impl Carrier {
    /// What this end knows of it.
    pub fn info(&self) -> StreamInfo {
        match self {
            Carrier::Tcp(socket) => socket::info(socket),
            Carrier::Quic(flow) => flow.info(),
        }
    }

    /// Has who waits for it look whether it shall end.
    pub fn end(&self) {
        match self {
            // A reader that waits returns at once.
            Carrier::Tcp(socket) => drop(socket.shutdown(Shutdown::Read)),
            Carrier::Quic(flow) => flow.end(),
        }
    }
}
