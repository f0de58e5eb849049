//! Memory for the rate term: how much of TCP's memory the enlarged buffers may take.
//!
//! signal: /proc/net/sockstat, tcp_mem, rmem_max · model: half of the memory below tcp_mem's first
//! mark may be promised, and none above it · action: `room_left` and `scarce` of bpf/headroom.h.

use aya::Ebpf;
use aya::maps::{Array, MapData};

use crate::cures::receive::taken;
use crate::cures::{CureError, Result};

const ALLOCATED: &str = "/proc/net/sockstat";
const MARKS: &str = "/proc/sys/net/ipv4/tcp_mem";
const RMEM_MAX: &str = "/proc/sys/net/core/rmem_max";

/// Bytes that TCP uses in all namespaces, and the first mark of tcp_mem: below it there is no memory
/// pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    allocated: u64,
    mark: u64,
}

impl Memory {
    /// None where this namespace does not report it: then no buffer becomes larger.
    pub(super) fn now() -> Option<Memory> {
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
        let (used, marks) =
            (std::fs::read_to_string(ALLOCATED).ok()?, std::fs::read_to_string(MARKS).ok()?);
        Memory::read(&used, &marks, page.try_into().ok()?)
    }

    fn read(used: &str, marks: &str, page: u64) -> Option<Memory> {
        let line = used.lines().find(|line| line.starts_with("TCP:"))?;
        let pages: u64 = line.split(' ').skip_while(|word| *word != "mem").nth(1)?.parse().ok()?;
        let mark: u64 = marks.split_whitespace().next()?.parse().ok()?;
        Some(Memory { allocated: pages.saturating_mul(page), mark: mark.saturating_mul(page) })
    }

    /// Whether all has to be given back; it ends a quarter below where it began.
    pub(super) fn scarce(self, before: bool) -> bool {
        self.allocated >= if before { self.mark / 4 * 3 } else { self.mark }
    }

    /// Bytes that buffers may be larger by, all together.
    pub(super) fn share(self) -> u64 {
        self.mark.saturating_sub(self.allocated) / 2
    }
}

/// The largest buffer that SO_RCVBUF sets, in bytes: the kernel doubles the value for its own
/// overhead.
pub(super) fn max_buffer() -> u32 {
    let text = std::fs::read_to_string(RMEM_MAX).unwrap_or_default();
    let most: u64 = text.trim().parse().unwrap_or(0);
    most.saturating_mul(2).min(1 << 30) as u32
}

/// Bytes that buffers may still grow by: the map `room_left` of bpf/headroom.h.
pub(super) struct Headroom(Array<MapData, i64>);

impl Headroom {
    pub(super) fn of(ebpf: &mut Ebpf) -> Result<Headroom> {
        Ok(Headroom(taken(ebpf, "room_left")?))
    }

    /// Updates the headroom after a walk; `larger`: bytes that buffers are larger by now.
    pub(super) fn write(&mut self, memory: Option<Memory>, larger: u64) -> Result<()> {
        let share = memory.map_or(0, Memory::share);
        let left =
            i64::try_from(share).unwrap_or(i64::MAX) - i64::try_from(larger).unwrap_or(i64::MAX);
        self.0.set(0, left, 0).map_err(|e| CureError::Map("room_left", e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USED: &str =
        "sockets: used 48\nTCP: inuse 1 orphan 0 tw 1 alloc 1 mem 100\nUDP: inuse 0 mem 7\n";

    #[test]
    fn half_of_what_is_free_below_the_first_mark_may_be_promised() {
        let memory = Memory::read(USED, "300\t400\t500\n", 4_096).unwrap();
        assert_eq!(memory, Memory { allocated: 409_600, mark: 1_228_800 });
        assert_eq!((memory.share(), memory.scarce(false)), (409_600, false));
        let full = Memory { allocated: 1_228_800, ..memory };
        assert_eq!((full.share(), full.scarce(false)), (0, true));
        let falling = Memory { allocated: 1_000_000, ..memory };
        assert_eq!((falling.scarce(true), falling.scarce(false)), (true, false));
    }

    #[test]
    fn values_that_are_missing_are_not_guessed() {
        assert_eq!(Memory::read("", "1 2 3", 4_096), None);
        assert_eq!(Memory::read(USED, "", 4_096), None);
        assert_eq!(Memory::read("TCP: inuse 1 mem\n", "1 2 3", 4_096), None);
    }
}
