//! Where an agent keeps what it needs while it runs, and the locks that let one agent at a time
//! change a host.
//!
//! There are two locks: of the runtime directory, and of the pins. An agent with a runtime directory
//! of its own and the pins of another would undo the other's changes.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

/// The directories of one agent. Two agents in which both differ do not know of each other.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Journal, lock, socket, log.
    pub runtime: PathBuf,
    /// Pinned programs and maps, on a bpf file system.
    pub pins: PathBuf,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths { runtime: "/run/unbloat-agent".into(), pins: "/sys/fs/bpf/unbloat".into() }
    }
}

/// A kind of process that changes this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The daemon that applies the cures.
    Daemon,
    /// The command `unbloat-agent off`.
    Off,
    /// The supervisor of a daemon that died.
    Supervisor,
}

impl Role {
    const ALL: [(Role, &str); 3] =
        [(Role::Daemon, "daemon"), (Role::Off, "off"), (Role::Supervisor, "supervisor")];

    fn name(self) -> &'static str {
        Role::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, name)| name)
    }
}

/// The process that has the lock, as far as its file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its role; none where the file does not name one.
    pub role: Option<Role>,
    /// Its process ID; none where the file does not name one.
    pub process: Option<u32>,
    /// The pins, where it has only their lock: its runtime directory is another one.
    pub pins: Option<PathBuf>,
}

impl Holder {
    /// From the content of the lock's file: `daemon, process 41`.
    fn read(text: &str) -> Holder {
        let (role, process) = text.split_once(", process ").unwrap_or((text, ""));
        let role = Role::ALL.iter().find(|(_, name)| *name == role).map(|(role, _)| *role);
        Holder { role, process: process.trim().parse().ok(), pins: None }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.role.map_or("another program", Role::name))?;
        self.process.map_or(Ok(()), |process| write!(f, ", process {process}"))?;
        let Some(pins) = &self.pins else { return Ok(()) };
        write!(f, ", with the pins {} and another --runtime", pins.display())
    }
}

/// The exclusive right to change this host, until it is dropped or its process ends.
pub struct Lock {
    // Released in this order.
    _pins: Option<PinsLock>,
    _runtime: Flock<File>,
}

/// The lock of the pins: a directory beside them, since a bpf file system has no ordinary files.
/// The directory is removed with the lock.
struct PinsLock {
    path: PathBuf,
    _folder: Flock<File>,
}

impl Drop for PinsLock {
    fn drop(&mut self) {
        // Before the lock is released: a program that waits finds that its directory is gone.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Takes the lock of the pins, or names the process that has it. None where the pins are on no bpf
/// file system: there is nothing to protect, and attaching reports it.
fn lock_pins(pins: &Path) -> io::Result<Result<Option<PinsLock>, Holder>> {
    let (Some(parent), Some(name)) = (pins.parent(), pins.file_name()) else {
        return Ok(Ok(None));
    };
    if !statfs(parent).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC) {
        return Ok(Ok(None));
    }
    // A name there must not contain a dot.
    let path = parent.join(format!("{}-lock", name.to_string_lossy()));
    loop {
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let folder = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let id = folder.metadata()?.ino();
        match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
            // The process that had it may have removed the directory meanwhile.
            Ok(_) if !std::fs::metadata(&path).is_ok_and(|now| now.ino() == id) => {}
            Ok(locked) => return Ok(Ok(Some(PinsLock { path, _folder: locked }))),
            Err((_, Errno::EWOULDBLOCK)) => {
                let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
                let (role, pins) = (Some(Role::Daemon), Some(pins.to_owned()));
                return Ok(Err(Holder { role, process: process_of(&locks, id), pins }));
            }
            Err((_, errno)) => return Err(errno.into()),
        }
    }
}

/// The process that has an exclusive flock of an inode, by the lines of /proc/locks
/// (`1: FLOCK  ADVISORY  WRITE 708 00:1d:5151 0 EOF`).
fn process_of(locks: &str, inode: u64) -> Option<u32> {
    let inode = format!(":{inode}");
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", process, place, ..] = words[..] else { return None };
        place.ends_with(&inode).then(|| process.parse().ok())?
    })
}

/// Longest wait for the locks: a daemon that hands over, or a supervisor that undoes, ends within
/// seconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The time in which an ending process loses all of its locks.
const ENDING: Duration = Duration::from_millis(500);

/// Why a wait for the locks ended without them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// An agent with another runtime directory has the pins.
    #[error("another agent runs ({0})")]
    Elsewhere(Holder),
    /// The process that has the lock keeps it.
    #[error("{0} does not let go of the lock")]
    Late(Holder),
}

/// Waits for a process that ends to lose its locks.
pub(crate) struct LockWait {
    begun: Instant,
    /// Since when only the lock of the pins was missing.
    ending: Option<Instant>,
}

impl LockWait {
    pub(crate) fn begin() -> LockWait {
        LockWait { begun: Instant::now(), ending: None }
    }

    /// Waits a moment for the holder, or gives up.
    pub(crate) fn pause(&mut self, holder: Holder) -> Result<(), LockError> {
        // A process that ends may lose the lock of the pins after that of the directory.
        if holder.pins.is_some() && self.ending.get_or_insert_with(Instant::now).elapsed() > ENDING
        {
            return Err(LockError::Elsewhere(holder));
        }
        if self.begun.elapsed() > LOCK_TIMEOUT {
            return Err(LockError::Late(holder));
        }
        std::thread::sleep(Duration::from_millis(10));
        Ok(())
    }
}

impl Paths {
    /// What is not undone.
    pub fn journal(&self) -> PathBuf {
        self.runtime.join("journal.jsonl")
    }

    /// Where the daemon listens.
    pub fn socket(&self) -> PathBuf {
        self.runtime.join("control.sock")
    }

    /// What a daemon in the background says.
    pub fn log(&self) -> PathBuf {
        self.runtime.join("agent.log")
    }

    /// The runtime directory, root's alone.
    pub fn make(&self) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.runtime)?;
        // What the journal says is done as root: no other user may write there.
        let about = std::fs::metadata(&self.runtime)?;
        let own = about.uid() == nix::unistd::geteuid().as_raw() && about.mode() & 0o022 == 0;
        if own {
            Ok(())
        } else {
            Err(io::Error::other("others may write there: it has to be its user's alone"))
        }
    }

    /// Takes the locks of the runtime directory and of the pins, or names the process that has one.
    pub fn lock(&self, role: Role) -> io::Result<Result<Lock, Holder>> {
        self.make()?;
        let path = self.runtime.join("lock");
        let file =
            File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut locked) => {
                let pins = match lock_pins(&self.pins)? {
                    Ok(pins) => pins,
                    Err(holder) => return Ok(Err(holder)),
                };
                locked.set_len(0)?;
                locked.rewind()?;
                // A full disk: the lock is there, and only its holder's name is missing.
                let _ = write!(locked, "{}, process {}", role.name(), std::process::id());
                Ok(Ok(Lock { _pins: pins, _runtime: locked }))
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                Ok(Err(Holder::read(&text)))
            }
            Err((_, errno)) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let runtime = std::env::temp_dir().join(format!("ub-open-{}", std::process::id()));
        let paths = Paths { runtime: runtime.clone(), ..Paths::default() };
        paths.make().unwrap();
        std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(paths.make().unwrap_err().to_string().contains("others may write there"));
        assert!(paths.lock(Role::Daemon).is_err());
        std::fs::remove_dir_all(runtime).unwrap();
    }

    #[test]
    fn one_at_a_time_has_the_lock_and_the_others_learn_who() {
        let runtime = std::env::temp_dir().join(format!("ub-lock-{}", std::process::id()));
        let paths = Paths { runtime: runtime.clone(), ..Paths::default() };
        let first =
            paths.lock(Role::Daemon).unwrap().unwrap_or_else(|holder| panic!("held by {holder}"));
        let holder = paths.lock(Role::Off).unwrap().err().unwrap();
        assert_eq!(holder.to_string(), format!("daemon, process {}", std::process::id()));
        drop(first);
        assert!(paths.lock(Role::Off).unwrap().is_ok());
        std::fs::remove_dir_all(runtime).unwrap();
    }

    #[test]
    fn the_process_with_a_lock_is_known_by_the_inode() {
        let locks = "1: FLOCK  ADVISORY  WRITE 708 00:1d:5151 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 709 00:1d:515 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 710 00:1d:515 0 EOF\n";
        assert_eq!(process_of(locks, 515), Some(710));
        assert_eq!(process_of(locks, 5151), Some(708));
        assert_eq!(process_of(locks, 15), None);
    }
}
