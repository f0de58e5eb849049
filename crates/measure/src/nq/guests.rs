//! Who may measure, and how much.
//!
//! signal: connections and bytes of an address · model: two clients at once would measure each other, so the first address has
//! the place until its last connection ends or a limit is reached · action: a place for a connection, as a guest or to be told
//! to come again.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::channel::locked;
use crate::wire::message::Limits;

/// Connections of the guest: the draft's 16 loads each way (MNP), and probes of two seconds, of which 100 a second (MPS) begin.
const MAX_CONNECTIONS: usize = 256;
/// Connections at a time that are only told to come again; one more is closed.
const MAX_TURNED: usize = 32;
/// Without a byte of a body or a request for so long, a connection is over. Longer than the queue of any link.
const IDLE: Duration = Duration::from_secs(10);
/// Without a load for so long, it is asked to end: some clients leave the connection of each probe open.
const RESTED: Duration = Duration::from_secs(1);
/// A connection that is told to come again.
const TURNED: Duration = Duration::from_secs(3);
/// After it a client may come again: a test of RPM takes 20 to 40 s. One that has used up a limit waits as long.
pub const RETRY: Duration = Duration::from_secs(60);

/// The place of the one who measures, and of those who have to wait.
pub struct Guests {
    limits: Limits,
    is_taken: Arc<dyn Fn() -> bool + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    guest: Option<Arc<Guest>>,
    connections: usize,
    turned: usize,
    /// Who has used up a limit, and until when it waits. Short: only one at a time uses up anything.
    spent: Vec<(IpAddr, Instant)>,
}

/// The address that measures.
struct Guest {
    peer: IpAddr,
    begun: Instant,
    up: AtomicU64,
    down: AtomicU64,
}

/// The place of a connection, free again when it is dropped.
pub struct Place {
    guests: Arc<Guests>,
    /// `None`: it is told to come again.
    guest: Option<Arc<Guest>>,
    begun: Instant,
    loads: AtomicUsize,
    /// Milliseconds from `begun` until a byte or a request passed.
    active_ms: AtomicU64,
}

impl Guests {
    /// Nobody yet. `is_taken` says whether another client measures by another protocol.
    pub fn new(limits: Limits, is_taken: Arc<dyn Fn() -> bool + Send + Sync>) -> Guests {
        Guests { limits, is_taken, state: Mutex::default() }
    }

    /// The place of a new connection; `None`: it is one too many even for a word.
    pub fn enter(guests: &Arc<Guests>, peer: IpAddr, now: Instant) -> Option<Place> {
        let mut state = locked(&guests.state);
        state.spent.retain(|(_, until)| *until > now);
        let may_measure = !(guests.is_taken)()
            && state.guest.as_ref().is_none_or(|guest| guest.peer == peer)
            && state.connections < MAX_CONNECTIONS
            && state.spent.iter().all(|(one, _)| *one != peer);
        let guest = if may_measure {
            state.connections += 1;
            let new = || {
                let (up, down) = Default::default();
                Arc::new(Guest { peer, begun: now, up, down })
            };
            Some(Arc::clone(state.guest.get_or_insert_with(new)))
        } else if state.turned < MAX_TURNED {
            state.turned += 1;
            None
        } else {
            return None;
        };
        let guests = Arc::clone(guests);
        Some(Place { guests, guest, begun: now, loads: 0.into(), active_ms: 0.into() })
    }
}

impl Place {
    /// Whether it may measure.
    pub fn is_guest(&self) -> bool {
        self.guest.is_some()
    }

    /// Something passed.
    pub fn alive(&self) {
        self.active_ms.store(self.begun.elapsed().as_millis() as u64, Relaxed);
    }

    /// Counts bytes of the client; whether there may be more.
    pub fn up(&self, bytes: u64) -> bool {
        self.count(bytes, |guest| &guest.up)
    }

    /// Counts bytes for the client; whether they may be sent.
    pub fn down(&self, bytes: u64) -> bool {
        self.count(bytes, |guest| &guest.down)
    }

    fn count(&self, bytes: u64, of: impl Fn(&Guest) -> &AtomicU64) -> bool {
        self.alive();
        let Some(guest) = &self.guest else { return false };
        of(guest).fetch_add(bytes, Relaxed);
        !self.guests.has_spent(guest, Instant::now())
    }

    fn idle(&self, now: Instant) -> Duration {
        let active = Duration::from_millis(self.active_ms.load(Relaxed));
        now.saturating_duration_since(self.begun).saturating_sub(active)
    }

    /// Whether the connection has done what it was for.
    pub fn is_rested(&self, now: Instant) -> bool {
        self.loads.load(Relaxed) == 0 && self.idle(now) >= RESTED
    }

    /// Whether the connection has to end.
    pub fn is_over(&self, now: Instant) -> bool {
        let Some(guest) = &self.guest else {
            return now.saturating_duration_since(self.begun) >= TURNED;
        };
        self.idle(now) >= IDLE || (self.guests.is_taken)() || self.guests.has_spent(guest, now)
    }
}

/// A load of a connection, until it is dropped.
pub struct Load(Arc<Place>);

impl Load {
    /// One more.
    pub fn new(place: &Arc<Place>) -> Load {
        place.loads.fetch_add(1, Relaxed);
        Load(Arc::clone(place))
    }
}

impl Deref for Load {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.alive();
        self.loads.fetch_sub(1, Relaxed);
    }
}

impl Guests {
    fn has_spent(&self, guest: &Guest, now: Instant) -> bool {
        guest.up.load(Relaxed) + guest.down.load(Relaxed) >= self.limits.bytes
            || now.saturating_duration_since(guest.begun).as_secs()
                >= u64::from(self.limits.seconds)
    }

    fn leave(&self, guest: &Guest, now: Instant) {
        let mut state = locked(&self.state);
        state.connections -= 1;
        if state.connections > 0 {
            return;
        }
        state.guest = None;
        let used_up = self.has_spent(guest, now);
        if used_up {
            state.spent.push((guest.peer, now + RETRY));
        }
        drop(state);
        let (up, down) = (guest.up.load(Relaxed), guest.down.load(Relaxed));
        // Who only reads the configuration measures nothing.
        if up + down == 0 {
            return;
        }
        eprintln!(
            "{}: measured RPM for {:.0} s, {} MB up, {} MB down{}",
            guest.peer,
            now.saturating_duration_since(guest.begun).as_secs_f64(),
            up / 1_000_000,
            down / 1_000_000,
            if used_up { ", until a limit" } else { "" }
        );
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match &self.guest {
            Some(guest) => self.guests.leave(guest, Instant::now()),
            None => locked(&self.guests.state).turned -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const LIMITS: Limits = Limits { seconds: 150, bytes: 1000, streams: 32, pps: 200 };

    fn guests() -> (Arc<Guests>, Arc<AtomicBool>) {
        let taken = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&taken);
        (Arc::new(Guests::new(LIMITS, Arc::new(move || seen.load(Relaxed)))), taken)
    }

    fn is_guest(guests: &Arc<Guests>, peer: IpAddr, now: Instant) -> bool {
        Guests::enter(guests, peer, now).unwrap().is_guest()
    }

    #[test]
    fn the_first_address_has_the_place_until_its_last_connection_ends() {
        let (guests, now) = (guests().0, Instant::now());
        let first = Guests::enter(&guests, ONE, now).unwrap();
        let second = Guests::enter(&guests, ONE, now).unwrap();
        assert!(first.is_guest() && second.is_guest() && !is_guest(&guests, OTHER, now));
        drop(first);
        assert!(!is_guest(&guests, OTHER, now));
        drop(second);
        assert!(is_guest(&guests, OTHER, now));
    }

    #[test]
    fn a_connection_too_many_is_told_so_and_later_ones_are_closed() {
        let (guests, now) = (guests().0, Instant::now());
        let enter = || Guests::enter(&guests, ONE, now);
        let mut all: Vec<Place> = (0..MAX_CONNECTIONS).map(|_| enter().unwrap()).collect();
        assert!(all.iter().all(Place::is_guest));
        let turned: Vec<Place> = (0..MAX_TURNED).map(|_| enter().unwrap()).collect();
        assert!(!turned.iter().any(Place::is_guest));
        assert!(enter().is_none());
        assert!(!turned[0].is_over(now) && turned[0].is_over(now + TURNED));
        drop(turned);
        all.pop();
        assert!(enter().unwrap().is_guest());
    }

    #[test]
    fn who_has_used_up_its_bytes_or_its_time_has_to_wait() {
        let (guests, now) = (guests().0, Instant::now());
        let place = Guests::enter(&guests, ONE, now).unwrap();
        assert!(place.up(600) && !place.is_over(now));
        assert!(!place.down(400) && place.is_over(now));
        drop(place);
        assert!(!is_guest(&guests, ONE, now) && is_guest(&guests, OTHER, now));
        let place = Guests::enter(&guests, ONE, now + RETRY + TURNED).unwrap();
        assert!(place.is_guest(), "its minute is over");
        place.active_ms.store(150_000, Relaxed);
        assert!(!place.is_over(now + RETRY + TURNED + Duration::from_secs(149)));
        assert!(place.is_over(now + RETRY + TURNED + Duration::from_secs(150)));
    }

    #[test]
    fn a_connection_without_a_load_is_asked_to_end() {
        let (guests, now) = (guests().0, Instant::now());
        let place = Arc::new(Guests::enter(&guests, ONE, now).unwrap());
        let load = Load::new(&place);
        assert!(!place.is_rested(now + RESTED * 3));
        drop(load);
        assert!(!place.is_rested(now + RESTED / 2) && place.is_rested(now + RESTED * 3));
    }

    #[test]
    fn an_idle_connection_is_over_and_so_is_one_beside_a_session() {
        let ((guests, taken), now) = (guests(), Instant::now());
        let place = Guests::enter(&guests, ONE, now).unwrap();
        assert!(!place.is_over(now + IDLE / 2) && place.is_over(now + IDLE));
        place.active_ms.store(IDLE.as_millis() as u64 / 2, Relaxed);
        assert!(!place.is_over(now + IDLE) && place.is_over(now + IDLE * 3 / 2));
        taken.store(true, Relaxed);
        assert!(place.is_over(now) && !is_guest(&guests, ONE, now));
    }
}
