//! The control connection inside TLS, for one reader and several writers.
//!
//! A writer that has to wait for the peer keeps only other writers waiting: what is sealed and what is opened have a lock of
//! their own, and no thread has it while it waits for the socket.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::Connection;

use crate::wire::keys::Binding;
use crate::wire::message::Frames;

/// Channel binding `tls-exporter` of RFC 9266: a secret of both ends of one connection.
const LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// Why a connection has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// Of the socket.
    #[error("{}", .0.kind())]
    Io(#[from] io::Error),
    /// What the peer sent, or what it is.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct Channel {
    socket: TcpStream,
    tls: Mutex<Connection>,
    /// Held by who sends, so that records leave in the order in which they were sealed.
    sending: Mutex<()>,
}

/// A lock whose holder panicked is still a lock.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel {
    /// Shakes hands until then. A peer that reads nothing for `write` is gone, from then on as well.
    pub fn open(
        socket: TcpStream,
        mut tls: Connection,
        until: Instant,
        write: Duration,
    ) -> Result<Channel, ChannelError> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(write))?;
        // No writer stores more than one message.
        tls.set_buffer_limit(None);
        loop {
            while tls.wants_write() {
                tls.write_tls(&mut &socket)?;
            }
            if !tls.is_handshaking() {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::from(ErrorKind::TimedOut).into());
            }
            socket.set_read_timeout(Some(left))?;
            match tls.read_tls(&mut &socket) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
            if let Err(e) = tls.process_new_packets() {
                // The alert; the peer may be gone.
                let _ = tls.write_tls(&mut &socket);
                return Err(e.into());
            }
        }
        Ok(Channel { socket, tls: Mutex::new(tls), sending: Mutex::default() })
    }

    /// What a proof is bound to, so that it is of no use in another connection.
    pub fn binding(&self) -> Result<Binding, rustls::Error> {
        locked(&self.tls).export_keying_material([0; 32], LABEL, None)
    }

    /// The socket, for its addresses and its time.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends a message. After an error the connection is of no use any more: the next one would begin in a record.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        let _sending = locked(&self.sending);
        let mut sealed = Vec::with_capacity(message.len() + 64);
        {
            let mut tls = locked(&self.tls);
            tls.writer().write_all(message)?;
            while tls.wants_write() {
                tls.write_tls(&mut sealed)?;
            }
        }
        (&self.socket).write_all(&sealed)
    }

    /// Waits for bytes of the peer, for the socket's time at most, and puts what they say into `frames`: perhaps nothing, where a
    /// record is not whole.
    pub fn receive(&self, frames: &mut Frames) -> io::Result<()> {
        // The first message may have come with the end of the handshake.
        if self.unseal(&[], frames)? > 0 {
            return Ok(());
        }
        let mut buffer = [0; 4096];
        match (&self.socket).read(&mut buffer)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            read => self.unseal(&buffer[..read], frames).map(|_| ()),
        }
    }

    /// Bytes that came, opened; how many were in them.
    fn unseal(&self, mut bytes: &[u8], frames: &mut Frames) -> io::Result<usize> {
        let mut tls = locked(&self.tls);
        let (mut opened, mut count) = ([0; 4096], 0);
        loop {
            // Nothing would be the end of the connection.
            if !bytes.is_empty() {
                tls.read_tls(&mut bytes)?;
            }
            let state =
                tls.process_new_packets().map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
            let mut left = state.plaintext_bytes_to_read();
            count += left;
            while left > 0 {
                let read = tls.reader().read(&mut opened)?;
                frames.push(&opened[..read]);
                left -= read;
            }
            if bytes.is_empty() {
                return Ok(count);
            }
        }
    }

    /// Ends both directions, and a thread that waits for the peer.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
