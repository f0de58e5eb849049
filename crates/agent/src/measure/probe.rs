//! Pings during a run, if requested: five per second, by the system's `ping`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::commands::{Failure, Result, failed};

/// Timeout for ping's first line: enough to report an unknown host.
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(3);

/// A running `ping` of one host.
pub struct Probe {
    child: Child,
    lines: Receiver<String>,
}

impl Probe {
    /// Starts to ping a host.
    pub fn start(host: &str) -> Result<Probe> {
        if host.is_empty() || host.starts_with('-') {
            return Err(Failure::usage(format!("--probe: {host:?} is no host")));
        }
        let mut child = Command::new("ping")
            .args(["-n", "-i", "0.2", host])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed(format!("ping: {e}")))?;
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            // This thread ends with ping.
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        // The first line comes when the name is known; nothing comes when it is not.
        let first = lines.recv_timeout(FIRST_LINE_TIMEOUT);
        let mut probe = Probe { child, lines };
        match first {
            Ok(_) => Ok(probe),
            Err(_) => Err(failed(probe.complaint())),
        }
    }

    fn complaint(&mut self) -> String {
        let _ = self.child.kill();
        let said = self.child.stderr.take().map(|stderr| BufReader::new(stderr).lines());
        let first = said.and_then(|mut lines| lines.next()).and_then(std::result::Result::ok);
        first.unwrap_or_else(|| "ping says nothing".to_owned())
    }

    /// The RTTs since the last call, ms.
    pub fn rtts(&mut self) -> Vec<f64> {
        self.lines.try_iter().filter_map(|line| rtt_ms(&line)).collect()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The RTT in an output line of ping.
fn rtt_ms(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once("time=")?;
    rest.split_whitespace().next()?.parse().ok().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Kind;

    #[test]
    fn lines_of_ping_contain_the_rtt_or_nothing() {
        assert_eq!(rtt_ms("64 bytes from 10.0.0.2: icmp_seq=3 ttl=64 time=60.4 ms"), Some(60.4));
        assert_eq!(rtt_ms("64 bytes from ::1: seq=0 ttl=64 time=0.071 ms"), Some(0.071));
        for line in [
            "PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.",
            "",
            "time=",
            "time=NaN ms",
            "time=-1 ms",
        ] {
            assert_eq!(rtt_ms(line), None, "{line}");
        }
    }

    #[test]
    fn an_option_is_no_host() {
        assert!(matches!(Probe::start("-f"), Err(Failure { kind: Kind::Usage, .. })));
    }
}
