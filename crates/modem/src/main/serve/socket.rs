//! The socket on which `unbloat-agent` reads reports: Unix, SOCK_SEQPACKET, a datagram per report.
//!
//! A reader that is too slow misses datagrams; the port is never kept waiting for it. Readers are programs of root, as the
//! agent is, and of this program's own user: others could take all descriptors.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, socket,
};
use nix::unistd::geteuid;

/// Agents that wait to be accepted: one, and its successor while they change over.
const BACKLOG: i32 = 8;

/// A socket that listens, and its readers.
pub(crate) struct Socket {
    listener: UnixListener,
    readers: Vec<UnixStream>,
    path: PathBuf,
}

impl Socket {
    /// Listens at a path. A socket at which no program listens any more is replaced, and no other file.
    pub(crate) fn listen(path: &Path) -> io::Result<Socket> {
        let address = UnixAddr::new(path)?;
        let new = || socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None);
        if let Ok(there) = fs::symlink_metadata(path) {
            let is_used = || Ok::<_, io::Error>(connect(new()?.as_raw_fd(), &address).is_ok());
            if !there.file_type().is_socket() || is_used()? {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            fs::remove_file(path)?;
        }
        let fd = new()?;
        bind(fd.as_raw_fd(), &address)?;
        listen(&fd, Backlog::new(BACKLOG)?)?;
        // The standard library's types do not mind which kind of socket they have.
        let listener = UnixListener::from(fd);
        let socket = Socket { listener, readers: Vec::new(), path: path.to_owned() };
        socket.listener.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Sends a datagram to all readers.
    pub(crate) fn send(&mut self, datagram: &[u8]) {
        while let Ok((reader, _)) = self.listener.accept() {
            if is_permitted(&reader) && reader.set_nonblocking(true).is_ok() {
                self.readers.push(reader);
            }
        }
        self.readers.retain_mut(|reader| match reader.write(datagram) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
    }
}

fn is_permitted(reader: &UnixStream) -> bool {
    let peer = getsockopt(reader, PeerCredentials).map(|peer| peer.uid());
    peer.is_ok_and(|uid| uid == 0 || uid == geteuid().as_raw())
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may have been removed with its directory.
        let _ = fs::remove_file(&self.path);
    }
}
