//! Where an agent keeps what it needs while it runs.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// The directories of one agent; two agents with different ones do not know of each other.
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
}

impl Holder {
    /// From the content of the lock's file: `daemon, process 41`.
    fn read(text: &str) -> Holder {
        let (role, process) = text.split_once(", process ").unwrap_or((text, ""));
        let role = Role::ALL.iter().find(|(_, name)| *name == role).map(|(role, _)| *role);
        Holder { role, process: process.trim().parse().ok() }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.role.map_or("another program", Role::name))?;
        self.process.map_or(Ok(()), |process| write!(f, ", process {process}"))
    }
}

/// The exclusive right to change this host, until it is dropped or its process ends.
pub struct Lock(#[allow(dead_code)] Flock<File>);

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

    /// Takes the lock, or names the process that has it.
    pub fn lock(&self, role: Role) -> io::Result<Result<Lock, Holder>> {
        self.make()?;
        let path = self.runtime.join("lock");
        let file =
            File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut locked) => {
                locked.set_len(0)?;
                locked.rewind()?;
                write!(locked, "{}, process {}", role.name(), std::process::id())?;
                Ok(Ok(Lock(locked)))
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
}
