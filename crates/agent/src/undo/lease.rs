//! Leases of what works in the kernel, and who keeps them.
//!
//! signal: the clock, and a beat of the daemon's loop · model: a lease of two seconds, renewed every half by a thread that does nothing else, so
//! that three renewals in a row may be late · action: one field of a map of each cure.
//!
//! The loop answers questions, walks over sockets, lifts cures for trials, asks netlink, loads programs: one turn may take longer than a
//! lease. So the leases do not wait for it. It only has to turn: without its beat for [`PATIENCE`] nothing is renewed any more, and a
//! loop that hangs lets go within twelve seconds; an agent that is killed or stopped does within two.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use aya::Pod;
use aya::maps::{Array, MapData};

use crate::cures::{CureError, Result, now_ns};
use crate::kernel;

/// How long cures hold without a renewal.
pub const LEASE: Duration = Duration::from_secs(2);
/// Between two renewals.
pub const RENEW: Duration = Duration::from_millis(500);
/// The loop may take so long for one turn.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// A lease that is this near its end may have ended when the kernel reads the next one.
const NEAR_NS: u64 = 100_000_000;

/// A lease that ends so long from now.
pub fn lease(span: Duration) -> u64 {
    now_ns().saturating_add(span.as_nanos() as u64)
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left whole values behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A struct that the kernel's side reads, with a lease in it.
pub trait Leased: Pod + Send {
    /// CLOCK_MONOTONIC; nothing is done after this.
    fn until_ns(&mut self) -> &mut u64;

    /// A lease begins where none was, or none for a while.
    fn after_gap(&mut self) {}
}

/// Somebody whose lease is renewed.
trait Renewed: Send + Sync {
    fn renew(&self, until_ns: u64);
}

/// What this process holds: there is one kernel, and one clock.
static HELD: Mutex<Vec<Weak<dyn Renewed>>> = Mutex::new(Vec::new());

/// A map of one such struct. Its lease is renewed from the first [`Held::grant`] on, until it is granted nothing, or dropped.
pub struct Held<T: Leased>(Arc<Place<T>>);

struct Place<T: Leased> {
    name: &'static str,
    inner: Mutex<Inner<T>>,
}

struct Inner<T: Leased> {
    /// None when it was left to another agent.
    map: Option<Array<MapData, T>>,
    now: T,
    granted: bool,
    gap: bool,
}

impl<T: Leased> Inner<T> {
    fn grant(&mut self, until_ns: u64) {
        let now = now_ns();
        if until_ns > now && now.saturating_add(NEAR_NS) >= *self.now.until_ns() {
            self.now.after_gap();
            self.gap = true;
        }
        *self.now.until_ns() = until_ns;
        self.granted = until_ns > now;
    }
}

impl<T: Leased> Place<T> {
    fn write(&self, inner: &mut Inner<T>) -> Result<()> {
        let Some(map) = &mut inner.map else { return Ok(()) };
        map.set(0, inner.now, 0).map_err(|why| CureError::Map(self.name, why.to_string()))
    }
}

impl<T: Leased> Renewed for Place<T> {
    fn renew(&self, until_ns: u64) {
        let mut inner = locked(&self.inner);
        if inner.granted {
            inner.grant(until_ns);
            // The loop says what is wrong, when its own renewal fails.
            let _ = self.write(&mut inner);
        }
    }
}

impl<T: Leased + 'static> Held<T> {
    /// A map, with what is in it.
    pub fn new(name: &'static str, map: Array<MapData, T>) -> Result<Held<T>> {
        let now = map.get(&0, 0).map_err(|why| CureError::Map(name, why.to_string()))?;
        let inner = Mutex::new(Inner { map: Some(map), now, granted: false, gap: false });
        let place = Arc::new(Place { name, inner });
        let renewed: Arc<dyn Renewed> = place.clone();
        let mut held = locked(&HELD);
        held.retain(|one| one.strong_count() > 0);
        held.push(Arc::downgrade(&renewed));
        Ok(Held(place))
    }

    /// What is in it now.
    pub fn now(&self) -> T {
        locked(&self.0.inner).now
    }

    /// Changes what is in it. The lease is nobody's business here.
    pub fn change(&self, how: impl FnOnce(&mut T)) -> Result<()> {
        let mut inner = locked(&self.0.inner);
        let until_ns = *inner.now.until_ns();
        how(&mut inner.now);
        *inner.now.until_ns() = until_ns;
        self.0.write(&mut inner)
    }

    /// The lease holds until then, and is renewed; with a time that has passed it ends, and is not.
    pub fn grant(&self, until_ns: u64) -> Result<()> {
        let mut inner = locked(&self.0.inner);
        inner.grant(until_ns);
        self.0.write(&mut inner)
    }

    /// Whether there has been a gap in the lease since this was last asked.
    pub fn gap(&self) -> bool {
        std::mem::take(&mut locked(&self.0.inner).gap)
    }

    /// Leaves the map below a path to another agent, with its lease as it is.
    pub fn leave(self, path: &Path) -> Result<()> {
        let mut inner = locked(&self.0.inner);
        inner.granted = false;
        let Some(map) = inner.map.take() else { return Ok(()) };
        map.pin(path).map_err(|why| CureError::Map(self.0.name, kernel::whole(&why)))
    }
}

/// The thread, and the loop's beat.
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    beat_ns: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    /// Until when leases hold that are renewed now; none while the loop hangs.
    fn until(&self, now_ns: u64) -> Option<u64> {
        let silent = now_ns.saturating_sub(self.beat_ns.load(Ordering::Relaxed));
        let turns = Duration::from_nanos(silent) < PATIENCE;
        turns.then(|| now_ns.saturating_add(LEASE.as_nanos() as u64))
    }
}

impl Keeper {
    /// Begins. Signals that a loop wants to have for itself are blocked before.
    pub fn begin() -> std::io::Result<Keeper> {
        let shared =
            Arc::new(Shared { beat_ns: AtomicU64::new(now_ns()), stop: AtomicBool::new(false) });
        let theirs = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("leases".to_owned()).spawn(move || keep(&theirs))?;
        Ok(Keeper { shared, thread: Some(thread) })
    }

    /// The loop turns.
    pub fn beat(&self) {
        self.shared.beat_ns.store(now_ns(), Ordering::Relaxed);
    }

    /// Nothing is renewed any more.
    pub fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

fn keep(shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        if let Some(until_ns) = shared.until(now_ns()) {
            // Nobody waits for the list while a map is written.
            let held: Vec<_> = locked(&HELD).iter().filter_map(Weak::upgrade).collect();
            held.iter().for_each(|one| one.renew(until_ns));
        }
        std::thread::park_timeout(RENEW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_may_be_slower_than_a_lease_but_one_that_hangs_gets_none() {
        let shared = Shared { beat_ns: AtomicU64::new(1_000), stop: AtomicBool::new(false) };
        let at = |after: Duration| 1_000 + after.as_nanos() as u64;
        for slow in [Duration::ZERO, LEASE * 2, PATIENCE - Duration::from_nanos(1)] {
            assert_eq!(shared.until(at(slow)), Some(at(slow + LEASE)), "{slow:?}");
        }
        assert_eq!(shared.until(at(PATIENCE)), None);
        shared.beat_ns.store(at(PATIENCE), Ordering::Relaxed);
        assert!(shared.until(at(PATIENCE)).is_some(), "it turns again");
        assert!(shared.until(0).is_some(), "a beat that comes between two looks at the clock");
    }

    #[test]
    fn what_is_dropped_is_not_renewed_and_what_is_held_is() {
        struct Counted(AtomicU64);
        impl Renewed for Counted {
            fn renew(&self, until_ns: u64) {
                self.0.store(until_ns, Ordering::Relaxed);
            }
        }
        let one = Arc::new(Counted(AtomicU64::new(0)));
        let renewed: Arc<dyn Renewed> = one.clone();
        locked(&HELD).push(Arc::downgrade(&renewed));
        let keeper = Keeper::begin().unwrap();
        let renewed_after = |before: u64| {
            let begun = std::time::Instant::now();
            while one.0.load(Ordering::Relaxed) <= before && begun.elapsed() < PATIENCE / 2 {
                std::thread::sleep(Duration::from_millis(5));
            }
            one.0.load(Ordering::Relaxed)
        };
        let first = renewed_after(0);
        assert!(first > now_ns());
        assert!(renewed_after(first) > first, "again and again, without a beat");
        drop(keeper);
        let last = one.0.load(Ordering::Relaxed);
        std::thread::sleep(RENEW * 2);
        assert_eq!(one.0.load(Ordering::Relaxed), last, "nobody keeps it any more");
    }
}
