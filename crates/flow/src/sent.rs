//! Packets that hosts sent, as a capture beside them shows them: when each left, and its IP bytes.
//!
//! Bytes are those of the IP packet, as in `wire_bytes` of a flow; packets between the hosts themselves do not leave.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;

use capture::{Decoded, Decoder};
use units::{Bytes, Instant};

use crate::connection::session::AnalyzeError;

/// The packets that `hosts` sent, by time. A file that breaks off counts up to there.
pub fn sent_by(
    paths: &[PathBuf],
    hosts: &HashSet<IpAddr>,
) -> Result<Vec<(Instant, Bytes)>, AnalyzeError> {
    let mut sent = Vec::new();
    for path in paths {
        let mut reader = capture::open(path)
            .map_err(|source| AnalyzeError::Open { path: path.display().to_string(), source })?;
        let mut decoder = Decoder::new();
        while let Ok(Some(frame)) = reader.next_frame() {
            let ip = match decoder.decode(&frame) {
                Decoded::Tcp(segment) => segment.ip,
                Decoded::Datagram(datagram) => datagram.ip,
                Decoded::Fragment | Decoded::NotIp | Decoded::Broken => continue,
            };
            if hosts.contains(&ip.src.to_ip()) && !hosts.contains(&ip.dst.to_ip()) {
                sent.push((frame.time, Bytes(ip.total_len.into())));
            }
        }
    }
    sent.sort_by_key(|(at, _)| *at);
    Ok(sent)
}
