//! Words to systemd: that the agent is ready, alive, reading its configuration anew, ending (sd_notify(3)).
//!
//! signal: NOTIFY_SOCKET and WATCHDOG_USEC in the environment · model: datagrams of lines, to a path or an abstract name · action: one
//! is sent, or none without systemd. Nobody waits for it, and what is not taken is no harm.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says lines as `READY=1`.
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

/// The configuration is read anew; READY=1 says when that is done.
pub fn reloading() {
    say(&format!("RELOADING=1\nMONOTONIC_USEC={}", crate::cures::now_ns() / 1_000));
}

/// The loop turns: only for a unit with WatchdogSec.
pub fn alive() {
    if std::env::var_os("WATCHDOG_USEC").is_some() {
        say("WATCHDOG=1");
    }
}
