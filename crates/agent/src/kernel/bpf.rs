//! The system call bpf, as far as aya has no function for it: whether this process may call it, and
//! which programs run on the sockets of a cgroup.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

/// `BPF_PROG_QUERY` of linux/bpf.h.
const PROG_QUERY: libc::c_long = 16;
/// `BPF_CGROUP_SOCK_OPS`.
const SOCK_OPS: u32 = 3;
/// `BPF_F_QUERY_EFFECTIVE`: with the programs of the cgroups above.
const EFFECTIVE: u32 = 1;
/// A command that no kernel has: each refuses it as invalid once the call has passed all filters.
const NO_COMMAND: libc::c_long = 0x7fff_ffff;
/// Most programs that are listed. A cgroup accepts no more of a kind (`BPF_CGROUP_MAX_PROGS` of
/// kernel/bpf/cgroup.c).
const MAX_PROGRAMS: usize = 64;

/// The part of `union bpf_attr` for a query, as of Linux 4.15.
#[repr(C)]
struct Query {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    padding: u32,
}

/// Whether the system call reaches the kernel: a filter (seccomp) or a security module may refuse it
/// whatever the capabilities are. Changes nothing.
pub fn permitted() -> nix::Result<()> {
    // SAFETY: the kernel reads nothing, since the size is 0.
    let done = unsafe { libc::syscall(libc::SYS_bpf, NO_COMMAND, std::ptr::null::<u8>(), 0) };
    match Errno::result(done) {
        Err(errno @ (Errno::EPERM | Errno::EACCES | Errno::ENOSYS)) => Err(errno),
        _ => Ok(()),
    }
}

/// Numbers of the sock_ops programs that are attached to a cgroup; with `above`, also of those
/// attached to the cgroups above it, which run on its sockets as well.
pub fn programs_on(cgroup: &Path, above: bool) -> io::Result<Vec<u32>> {
    let folder = File::open(cgroup)?;
    let mut found = [0u32; MAX_PROGRAMS];
    let mut query = Query {
        target: folder.as_raw_fd() as u32,
        attach_type: SOCK_OPS,
        query_flags: if above { EFFECTIVE } else { 0 },
        attach_flags: 0,
        programs: found.as_mut_ptr() as u64,
        count: MAX_PROGRAMS as u32,
        padding: 0,
    };
    // SAFETY: the kernel writes at most `count` numbers to `found` and the answer to `query`, both of
    // which outlive the call.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_QUERY, &raw mut query, size_of::<Query>()) };
    match Errno::result(done) {
        // More than that: the first of them were written.
        Ok(_) | Err(Errno::ENOSPC) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(found[..MAX_PROGRAMS.min(query.count as usize)].to_vec())
}
