//! A modem that is played: the far end of a pseudo-terminal, which answers requests for its log mask.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use modem::hdlc::{Deframer, frame};
use modem::log_config::{Mask, Request};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};

/// Between two looks at a port that no program has open.
const LOOK: Duration = Duration::from_millis(5);

/// A port, and what is behind it.
pub struct Modem {
    /// The far end; bytes written here are those that the modem sends.
    pub master: File,
    /// The port.
    pub path: PathBuf,
    /// Its log mask.
    pub mask: Mask,
    /// Status of its answers to requests that set the mask.
    pub set_status: u32,
    /// Requests so far.
    pub requests: Vec<Request>,
    deframer: Deframer,
}

impl Modem {
    /// A modem with a log mask; its port is not open.
    pub fn new(mask: Mask) -> Modem {
        // A program that inherits the far end would keep the modem alive.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).expect("a pseudo-terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a port");
        let path = ptsname_r(&master).expect("a name").into();
        Modem {
            master: OwnedFd::from(master).into(),
            path,
            mask,
            set_status: 0,
            requests: Vec::new(),
            deframer: Deframer::default(),
        }
    }

    /// Takes requests that come within a time, and answers them.
    pub fn answer(&mut self, timeout: Duration) {
        let mut waiting = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(timeout).expect("short");
        if poll(&mut waiting, timeout).expect("poll") == 0 {
            return;
        }
        let mut bytes = [0; 4_096];
        let Ok(length) = self.master.read(&mut bytes) else {
            std::thread::sleep(LOOK);
            return;
        };
        let mut answers = Vec::new();
        let Modem { deframer, requests, mask, set_status, .. } = self;
        deframer.push(&bytes[..length], &mut |framed| {
            let Some(request) = framed.ok().and_then(Request::of_message) else { return };
            let status = match &request {
                Request::Set(_) if *set_status != 0 => *set_status,
                Request::Set(new) => {
                    mask.clone_from(new);
                    0
                }
                Request::Read => 0,
            };
            answers.extend(frame(&request.answer(status, mask)));
            requests.push(request);
        });
        self.send(&answers).expect("room for an answer");
    }

    /// Sends bytes to the program that has the port open.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.master.write_all(bytes)
    }
}
