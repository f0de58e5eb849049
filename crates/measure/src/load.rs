//! One stream of a load: random bytes one way, as fast as TCP takes them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use algo::Rng;

/// How long a read or write may wait before the stream looks whether it shall end.
pub const LOOK: Duration = Duration::from_millis(100);
/// Larger than the windows in which links and tunnels compress.
const BLOCK: usize = 1 << 20;
/// One call: enough at 10 Gbit/s.
const PIECE: usize = 64 << 10;

/// Bytes that no link compresses.
pub fn random_block(seed: u64) -> Arc<[u8]> {
    let mut rng = Rng::new(seed, "load");
    (0..BLOCK / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

/// What the streams of one direction share.
#[derive(Debug, Default)]
pub struct Count {
    /// Bytes that went through.
    pub bytes: AtomicU64,
}

/// Sends until `stop` or the other side ends it.
pub fn send(
    mut socket: &TcpStream,
    block: &[u8],
    count: &Count,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut at = 0;
    while !stop.load(Relaxed) {
        match socket.write(&block[at..(at + PIECE).min(block.len())]) {
            Ok(written) => {
                count.bytes.fetch_add(written as u64, Relaxed);
                at = (at + written) % block.len();
            }
            Err(e) => pause(e)?,
        }
    }
    Ok(())
}

/// Receives until `stop` or the other side ends it.
pub fn receive(mut socket: &TcpStream, count: &Count, stop: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    while !stop.load(Relaxed) {
        match socket.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                count.bytes.fetch_add(read as u64, Relaxed);
            }
            Err(e) => pause(e)?,
        }
    }
    Ok(())
}

/// A wait that is over is no error.
fn pause(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
