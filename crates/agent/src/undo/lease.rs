//! The leases under which programs act in the kernel: the thread that renews them, and the
//! heartbeat of the daemon's loop that it waits for.
//!
//! A lease lasts two seconds and is one field of a map of each cure. A thread that does nothing
//! else renews all of them every half second, so three renewals in a row may be late.
//!
//! The loop answers requests, walks over sockets, lifts cures for trials, sends netlink requests
//! and loads programs: one turn may take longer than a lease. So the leases do not wait for it.
//! The loop only has to turn: after [`LOOP_TIMEOUT`] without a heartbeat nothing is renewed any
//! more. A loop that hangs lets go within twelve seconds; an agent that is killed or stopped does
//! within two.
//!
//! An agent that takes over loads its programs for up to [`START_TIMEOUT`]. Until each of its cures
//! has its map, the same thread renews the maps that the other agent left ([`inherit`]), in the same
//! short steps: where the new agent is killed while it loads, they end within two seconds, too.

use std::any::TypeId;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use aya::Pod;
use aya::maps::{Array, MapData};

use crate::error::{CureError, Result};
use crate::kernel::{self, now_ns};

/// How long cures act without a renewal: short enough to feel like an end, long enough for three
/// late renewals.
pub const LEASE: Duration = Duration::from_secs(2);
/// Time between two renewals: a quarter of the lease.
pub const RENEW: Duration = Duration::from_millis(500);
/// Longest turn of the loop: loading all programs on a small machine takes seconds.
pub const LOOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest start of an agent: on an emulated processor one takes up to 15 s.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A lease this close to its end may have ended before the kernel reads the renewal.
const NEAR_NS: u64 = 100_000_000;

/// The end of a lease that lasts `span` from now: CLOCK_MONOTONIC, ns.
pub fn lease(span: Duration) -> u64 {
    now_ns().saturating_add(span.as_nanos() as u64)
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left whole values behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A configuration struct of a BPF program, with a lease in it.
pub trait Leased: Pod + Send {
    /// CLOCK_MONOTONIC; nothing is done after this.
    fn until_ns(&mut self) -> &mut u64;

    /// Called when a lease begins after a time without one.
    fn after_gap(&mut self) {}
}

/// A map whose lease is renewed.
trait Renewed: Send + Sync {
    fn renew(&self, until_ns: u64);

    /// Never again; returns when no renewal is under way.
    fn leave(&self);
}

/// Every leased map of this process: there is one kernel, and one clock.
static LEASED: Mutex<Vec<Weak<dyn Renewed>>> = Mutex::new(Vec::new());
/// Maps that another agent left, by their content, until the cure that takes each over has its own.
static INHERITED: Mutex<Vec<(TypeId, Arc<dyn Renewed>)>> = Mutex::new(Vec::new());

/// From now on renews the lease of a map that another agent left, if it is still valid: with the
/// content that it has, until a [`LeasedMap`] of the same kind is made, or [`end_inherited`].
pub fn inherit<T: Leased + 'static>(name: &'static str, map: Array<MapData, T>) -> Result<()> {
    let place = Place::new(name, map)?;
    let left = {
        let mut inner = locked(&place.inner);
        inner.granted = *inner.now.until_ns() > now_ns();
        inner.granted
    };
    if left {
        place.renew(lease(LEASE));
        let renewed: Arc<dyn Renewed> = place;
        listed(&renewed);
        locked(&INHERITED).push((TypeId::of::<T>(), renewed));
    }
    Ok(())
}

/// Renews no map any more that another agent left and no cure has taken over.
pub fn end_inherited() {
    let left = std::mem::take(&mut *locked(&INHERITED));
    left.iter().for_each(|(_, map)| map.leave());
}

/// Ends the renewal of inherited maps of a kind; whether there was one.
fn succeed(kind: TypeId) -> bool {
    let mut inherited = locked(&INHERITED);
    let of_kind: Vec<_> = inherited.extract_if(.., |(of, _)| *of == kind).collect();
    of_kind.iter().for_each(|(_, map)| map.leave());
    !of_kind.is_empty()
}

fn listed(renewed: &Arc<dyn Renewed>) {
    let mut leased = locked(&LEASED);
    leased.retain(|map| map.strong_count() > 0);
    leased.push(Arc::downgrade(renewed));
}

/// A map with one such struct. Its lease is renewed from the first [`LeasedMap::grant`] until it is
/// granted a time that has passed, or dropped.
pub struct LeasedMap<T: Leased>(Arc<Place<T>>);

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
    /// With the content that the map has.
    fn new(name: &'static str, map: Array<MapData, T>) -> Result<Arc<Place<T>>> {
        let now = map.get(&0, 0).map_err(|why| CureError::Map(name, why.to_string()))?;
        let inner = Mutex::new(Inner { map: Some(map), now, granted: false, gap: false });
        Ok(Arc::new(Place { name, inner }))
    }

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
            // The loop logs the error when its own renewal fails.
            let _ = self.write(&mut inner);
        }
    }

    fn leave(&self) {
        let mut inner = locked(&self.inner);
        inner.granted = false;
        inner.map = None;
    }
}

impl<T: Leased + 'static> LeasedMap<T> {
    /// Takes a map, with its present content. The valid lease of one that another agent left is
    /// renewed from now on.
    pub fn new(name: &'static str, map: Array<MapData, T>) -> Result<LeasedMap<T>> {
        let left = succeed(TypeId::of::<T>());
        let place = Place::new(name, map)?;
        {
            let mut inner = locked(&place.inner);
            inner.granted = left && *inner.now.until_ns() > now_ns();
        }
        let renewed: Arc<dyn Renewed> = place.clone();
        listed(&renewed);
        Ok(LeasedMap(place))
    }

    /// The content that was last written.
    pub fn now(&self) -> T {
        locked(&self.0.inner).now
    }

    /// Changes its content, but not its lease.
    pub fn change(&self, how: impl FnOnce(&mut T)) -> Result<()> {
        let mut inner = locked(&self.0.inner);
        let until_ns = *inner.now.until_ns();
        how(&mut inner.now);
        *inner.now.until_ns() = until_ns;
        self.0.write(&mut inner)
    }

    /// Sets the end of the lease, which is renewed from now on. A time that has passed ends it.
    pub fn grant(&self, until_ns: u64) -> Result<()> {
        let mut inner = locked(&self.0.inner);
        inner.grant(until_ns);
        self.0.write(&mut inner)
    }

    /// Whether there was a gap in the lease since the last call.
    pub fn gap(&self) -> bool {
        std::mem::take(&mut locked(&self.0.inner).gap)
    }

    /// Leaves the map below a path to another agent, with a lease from now on.
    pub fn leave(self, path: &Path) -> Result<()> {
        self.0.renew(lease(LEASE));
        let mut inner = locked(&self.0.inner);
        inner.granted = false;
        let Some(map) = inner.map.take() else { return Ok(()) };
        map.pin(path).map_err(|why| CureError::Map(self.0.name, kernel::whole(&why)))
    }
}

/// The thread that renews leases, and the heartbeat of the loop.
pub struct LeaseRenewer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    beat_ns: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    /// End of a lease that is renewed now; none while the loop hangs.
    fn until(&self, now_ns: u64) -> Option<u64> {
        let silent = now_ns.saturating_sub(self.beat_ns.load(Ordering::Relaxed));
        let turns = Duration::from_nanos(silent) < LOOP_TIMEOUT;
        turns.then(|| now_ns.saturating_add(LEASE.as_nanos() as u64))
    }
}

impl LeaseRenewer {
    /// Starts the thread; the first heartbeat may take [`START_TIMEOUT`]. Signals that the loop
    /// reads must be blocked before.
    pub fn start() -> std::io::Result<LeaseRenewer> {
        let beat_ns = AtomicU64::new(lease(START_TIMEOUT - LOOP_TIMEOUT));
        let shared = Arc::new(Shared { beat_ns, stop: AtomicBool::new(false) });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("leases".to_owned())
            .spawn(move || renew_all(&theirs))?;
        Ok(LeaseRenewer { shared, thread: Some(thread) })
    }

    /// Records that the loop turns.
    pub fn beat(&self) {
        self.shared.beat_ns.store(now_ns(), Ordering::Relaxed);
    }

    /// Ends the thread: nothing is renewed any more.
    pub fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for LeaseRenewer {
    fn drop(&mut self) {
        self.end();
    }
}

fn renew_all(shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        if let Some(until_ns) = shared.until(now_ns()) {
            // The list is not locked while a map is written.
            let leased: Vec<_> = locked(&LEASED).iter().filter_map(Weak::upgrade).collect();
            leased.iter().for_each(|map| map.renew(until_ns));
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
        for slow in [Duration::ZERO, LEASE * 2, LOOP_TIMEOUT - Duration::from_nanos(1)] {
            assert_eq!(shared.until(at(slow)), Some(at(slow + LEASE)), "{slow:?}");
        }
        assert_eq!(shared.until(at(LOOP_TIMEOUT)), None);
        shared.beat_ns.store(at(LOOP_TIMEOUT), Ordering::Relaxed);
        assert!(shared.until(at(LOOP_TIMEOUT)).is_some(), "it turns again");
        assert!(shared.until(0).is_some(), "a beat that comes between two looks at the clock");
    }

    #[test]
    fn what_is_dropped_is_not_renewed_and_what_is_held_is() {
        struct Counted(AtomicU64);
        impl Renewed for Counted {
            fn renew(&self, until_ns: u64) {
                self.0.store(until_ns, Ordering::Relaxed);
            }

            fn leave(&self) {}
        }
        let one = Arc::new(Counted(AtomicU64::new(0)));
        let renewed: Arc<dyn Renewed> = one.clone();
        locked(&LEASED).push(Arc::downgrade(&renewed));
        let renewer = LeaseRenewer::start().unwrap();
        let renewed_after = |before: u64| {
            let begun = std::time::Instant::now();
            while one.0.load(Ordering::Relaxed) <= before && begun.elapsed() < LOOP_TIMEOUT / 2 {
                std::thread::sleep(Duration::from_millis(5));
            }
            one.0.load(Ordering::Relaxed)
        };
        let first = renewed_after(0);
        assert!(first > now_ns());
        assert!(renewed_after(first) > first, "again and again, without a beat");
        drop(renewer);
        let last = one.0.load(Ordering::Relaxed);
        std::thread::sleep(RENEW * 2);
        assert_eq!(one.0.load(Ordering::Relaxed), last, "a dropped renewer renews nothing");
    }
}
