//! sd_notify messages: ready, alive, reloading, stopping (sd_notify(3)).
//!
//! A datagram of lines to NOTIFY_SOCKET, a path or an abstract name; none without systemd. Sending
//! never blocks, and a lost message does no harm.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends lines as `READY=1`.
pub fn say(lines: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").and_then(|name| name.into_string().ok())
    else {
        return;
    };
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    if let Ok(address) = address
        && socket.set_nonblocking(true).is_ok()
    {
        let _ = socket.send_to_addr(lines.as_bytes(), &address);
    }
}

/// The configuration is being reloaded; READY=1 follows.
pub fn reloading() {
    say(&format!("RELOADING=1\nMONOTONIC_USEC={}", crate::kernel::now_ns() / 1_000));
}

/// The loop turns; sent only to a unit with WatchdogSec.
pub fn alive() {
    if std::env::var_os("WATCHDOG_USEC").is_some() {
        say("WATCHDOG=1");
    }
}
