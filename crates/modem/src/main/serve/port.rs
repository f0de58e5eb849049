//! The DIAG port of a modem: a serial port that this program alone reads.
//!
//! Two readers would each get a part of every frame. So the port is locked for programs that lock (`flock`), closed to
//! those that do not (TIOCEXCL), and refused where another program has it open already.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{major, minor};
use nix::sys::termios::{
    ControlFlags, FlushArg, SetArg, SpecialCharacterIndices, Termios, cfmakeraw, tcflush,
    tcgetattr, tcsetattr,
};

/// A modem takes a request of 500 bytes at once, unless it hangs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a port cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    #[error("in use by {0}")]
    InUse(String),
    #[error("not a serial port")]
    NotSerial,
    #[error("the modem does not take what is written to it")]
    Full,
    #[error("the modem is gone")]
    Gone,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An open port.
pub(crate) struct Port {
    file: Flock<File>,
    /// As its settings were before.
    before: Termios,
}

impl Port {
    /// Opens it for this program alone, so that bytes pass unchanged.
    pub(crate) fn open(path: &Path) -> Result<Port, PortError> {
        let flags = OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits()).open(path);
        let file = match file {
            // Its holder has set TIOCEXCL.
            Err(e) if e.raw_os_error() == Some(Errno::EBUSY as i32) => {
                return Err(PortError::InUse(holder(path)));
            }
            other => other?,
        };
        let before = tcgetattr(&file).map_err(|errno| match errno {
            Errno::ENOTTY => PortError::NotSerial,
            errno => io::Error::from(errno).into(),
        })?;
        let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((_, Errno::EWOULDBLOCK)) => return Err(PortError::InUse(holder(path))),
            Err((_, errno)) => return Err(io::Error::from(errno).into()),
        };
        // Not all programs lock.
        if let Some(holder) = reader(path) {
            return Err(PortError::InUse(holder));
        }
        rustix::termios::ioctl_tiocexcl(&*file).map_err(io::Error::from)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        raw.control_flags |= ControlFlags::CLOCAL | ControlFlags::CREAD;
        // A read without bytes is then the end, and no pause.
        raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        tcsetattr(&*file, SetArg::TCSANOW, &raw).map_err(io::Error::from)?;
        // What was sent to an earlier reader.
        tcflush(&*file, FlushArg::TCIFLUSH).map_err(io::Error::from)?;
        Ok(Port { file, before })
    }

    /// What has arrived, at least one byte; `None`: nothing yet.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> Result<Option<usize>, PortError> {
        match self.file.read(bytes) {
            Ok(0) => Err(PortError::Gone),
            Ok(length) => Ok(Some(length)),
            Err(e) => match e.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EAGAIN | Errno::EINTR) => Ok(None),
                Some(Errno::EIO | Errno::ENODEV | Errno::ENXIO) => Err(PortError::Gone),
                _ => Err(e.into()),
            },
        }
    }

    /// Writes all of a frame.
    pub(crate) fn write(&mut self, frame: &[u8]) -> Result<(), PortError> {
        let mut rest = frame;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(length) => rest = &rest[length..],
                Err(e) => match e.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EINTR) => {}
                    Some(Errno::EAGAIN) => {
                        let mut waiting = [PollFd::new(self.as_fd(), PollFlags::POLLOUT)];
                        let timeout =
                            PollTimeout::try_from(WRITE_TIMEOUT).unwrap_or(PollTimeout::MAX);
                        if poll(&mut waiting, timeout).map_err(io::Error::from)? == 0 {
                            return Err(PortError::Full);
                        }
                    }
                    Some(Errno::EIO | Errno::ENODEV | Errno::ENXIO) => return Err(PortError::Gone),
                    _ => return Err(e.into()),
                },
            }
        }
        Ok(())
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // A modem that is gone has no settings.
        let _ = tcsetattr(&*self.file, SetArg::TCSANOW, &self.before);
    }
}

/// The program that has a port, as far as this user can see it.
fn holder(path: &Path) -> String {
    reader(path)
        .or_else(|| lock_holder(path))
        .unwrap_or_else(|| "a program of another user, whose name root alone sees".to_owned())
}

/// Another process that has the port open. Processes of other users are not seen, unless by root.
fn reader(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let of_port = fs::metadata(&path).ok()?;
    let has_it = |file: PathBuf| {
        // The name first: to look at other files can block.
        let is_same =
            |there: fs::Metadata| (there.dev(), there.ino()) == (of_port.dev(), of_port.ino());
        fs::read_link(&file).is_ok_and(|name| name == path)
            && fs::metadata(&file).is_ok_and(is_same)
    };
    let own = std::process::id();
    let pids = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        entry.ok()?.file_name().to_str()?.parse::<u32>().ok().filter(|pid| *pid != own)
    });
    let mut holders = pids.filter(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        files.filter_map(Result::ok).any(|file| has_it(file.path()))
    });
    holders.next().map(named)
}

/// The process that has locked the port, by the list of locks, which everyone may read.
fn lock_holder(path: &Path) -> Option<String> {
    let of_port = fs::metadata(path).ok()?;
    let (dev, inode) = (of_port.dev(), of_port.ino());
    let wanted = format!("{:02x}:{:02x}:{inode}", major(dev), minor(dev));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // "1: FLOCK  ADVISORY  WRITE 812 00:05:1234 0 EOF"
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&wanted.as_str());
        is_it.then(|| fields.get(4)?.parse::<u32>().ok()).flatten()
    };
    locks.lines().find_map(of_line).map(named)
}

fn named(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{} (process {pid})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}
