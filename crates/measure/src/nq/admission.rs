//! Who may measure, and how much.
//!
//! signal: connections and bytes of an address · model: two clients at once would measure each other, so the first address has
//! the place until its last connection ends or a limit is reached · action: a place for a connection, to measure or for the
//! answer 503.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::channel::locked;
use crate::socket::host;
use crate::wire::message::Limits;

/// Connections of the client: the draft's 16 loads each way (MNP), and probes of two seconds, of which 100 a second (MPS) begin.
const MAX_CONNECTIONS: usize = 256;
/// Connections at a time that only get 503; one more is closed.
const MAX_REFUSED: usize = 32;
/// Without a byte of a body or a request for so long, a connection is over. Longer than the queue of any link.
const IDLE: Duration = Duration::from_secs(10);
/// So long after a request it is asked to end, unless it has had a load: some clients leave the connection of each probe open.
const PROBED: Duration = Duration::from_secs(1);
/// A connection that gets 503.
const REFUSED: Duration = Duration::from_secs(3);
/// After it a client may come again: a test of RPM takes 20 to 40 s. One that has used up a limit waits as long.
pub const RETRY: Duration = Duration::from_secs(60);

/// The place of the one who measures, and of those who have to wait.
pub struct Admission {
    limits: Limits,
    is_taken: Arc<dyn Fn() -> bool + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    client: Option<Arc<Client>>,
    connections: usize,
    refused: usize,
    /// Hosts that have used up a limit, and until when it waits. Short: only one at a time uses up anything.
    spent: Vec<(IpAddr, Instant)>,
}

/// The address that measures.
struct Client {
    peer: IpAddr,
    begun: Instant,
    up: AtomicU64,
    down: AtomicU64,
}

/// The place of a connection, free again when it is dropped.
pub struct Place {
    admission: Arc<Admission>,
    /// `None`: it gets 503.
    client: Option<Arc<Client>>,
    begun: Instant,
    /// It has had a request.
    asked: AtomicBool,
    /// It has had a load. Between two uploads there may be a second of queue.
    loaded: AtomicBool,
    /// What may wait unsent on the connection.
    unsent_bytes: AtomicUsize,
    /// Milliseconds from `begun` until a byte or a request passed.
    active_ms: AtomicU64,
}

impl Admission {
    /// No client yet. `is_taken` says whether another client measures by another protocol.
    pub fn new(limits: Limits, is_taken: Arc<dyn Fn() -> bool + Send + Sync>) -> Admission {
        Admission { limits, is_taken, state: Mutex::default() }
    }

    /// The place of a new connection; `None`: it is one too many even for a word.
    pub fn enter(admission: &Arc<Admission>, peer: IpAddr, now: Instant) -> Option<Place> {
        let mut state = locked(&admission.state);
        state.spent.retain(|(_, until)| *until > now);
        let may_measure = !(admission.is_taken)()
            && state.client.as_ref().is_none_or(|client| client.peer == peer)
            && state.connections < MAX_CONNECTIONS
            && state.spent.iter().all(|(one, _)| *one != host(peer));
        let client = if may_measure {
            state.connections += 1;
            let new = || {
                let (up, down) = Default::default();
                Arc::new(Client { peer, begun: now, up, down })
            };
            Some(Arc::clone(state.client.get_or_insert_with(new)))
        } else if state.refused < MAX_REFUSED {
            state.refused += 1;
            None
        } else {
            return None;
        };
        let admission = Arc::clone(admission);
        Some(Place {
            admission,
            client,
            begun: now,
            asked: false.into(),
            loaded: false.into(),
            unsent_bytes: 1.into(),
            active_ms: 0.into(),
        })
    }
}

impl Place {
    /// Whether it may measure.
    pub fn is_admitted(&self) -> bool {
        self.client.is_some()
    }

    /// Sets what may wait unsent on the connection.
    pub fn keep_unsent(&self, bytes: usize) {
        self.unsent_bytes.store(bytes, Relaxed);
    }

    /// What may wait unsent on the connection: the length of a piece.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.load(Relaxed)
    }

    /// A request came.
    pub fn asked(&self) {
        self.asked.store(true, Relaxed);
        self.alive();
    }

    fn alive(&self) {
        self.active_ms.store(self.begun.elapsed().as_millis() as u64, Relaxed);
    }

    /// Counts bytes of the client; whether there may be more.
    pub fn up(&self, bytes: u64) -> bool {
        self.count(bytes, |client| &client.up)
    }

    /// Counts bytes for the client; whether they may be sent.
    pub fn down(&self, bytes: u64) -> bool {
        self.count(bytes, |client| &client.down)
    }

    fn count(&self, bytes: u64, of: impl Fn(&Client) -> &AtomicU64) -> bool {
        self.alive();
        let Some(client) = &self.client else { return false };
        of(client).fetch_add(bytes, Relaxed);
        !self.admission.has_spent(client, Instant::now())
    }

    fn idle(&self, now: Instant) -> Duration {
        let active = Duration::from_millis(self.active_ms.load(Relaxed));
        now.saturating_duration_since(self.begun).saturating_sub(active)
    }

    /// Whether the connection has done what it was for.
    pub fn is_done(&self, now: Instant) -> bool {
        self.asked.load(Relaxed) && !self.loaded.load(Relaxed) && self.idle(now) >= PROBED
    }

    /// Whether the connection has to end.
    pub fn is_over(&self, now: Instant) -> bool {
        let Some(client) = &self.client else {
            return now.saturating_duration_since(self.begun) >= REFUSED;
        };
        self.idle(now) >= IDLE
            || (self.admission.is_taken)()
            || self.admission.has_spent(client, now)
    }
}

/// A load of a connection, until it is dropped.
pub struct Load(Arc<Place>);

impl Load {
    /// One more.
    pub fn new(place: &Arc<Place>) -> Load {
        place.loaded.store(true, Relaxed);
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
    }
}

impl Admission {
    fn has_spent(&self, client: &Client, now: Instant) -> bool {
        client.up.load(Relaxed) + client.down.load(Relaxed) >= self.limits.bytes
            || now.saturating_duration_since(client.begun).as_secs()
                >= u64::from(self.limits.seconds)
    }

    fn leave(&self, client: &Client, now: Instant) {
        let mut state = locked(&self.state);
        state.connections -= 1;
        if state.connections > 0 {
            return;
        }
        state.client = None;
        let used_up = self.has_spent(client, now);
        if used_up {
            state.spent.push((host(client.peer), now + RETRY));
        }
        drop(state);
        let (up, down) = (client.up.load(Relaxed), client.down.load(Relaxed));
        // Who only reads the configuration measures nothing.
        if up + down == 0 {
            return;
        }
        eprintln!(
            "{}: measured RPM for {:.0} s, {} MB up, {} MB down{}",
            client.peer,
            now.saturating_duration_since(client.begun).as_secs_f64(),
            up / 1_000_000,
            down / 1_000_000,
            if used_up { ", until a limit" } else { "" }
        );
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match &self.client {
            Some(client) => self.admission.leave(client, Instant::now()),
            None => locked(&self.admission.state).refused -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const LIMITS: Limits = Limits { seconds: 150, bytes: 1000, streams: 32, pps: 200 };

    fn admission() -> (Arc<Admission>, Arc<AtomicBool>) {
        let taken = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&taken);
        (Arc::new(Admission::new(LIMITS, Arc::new(move || seen.load(Relaxed)))), taken)
    }

    fn is_admitted(admission: &Arc<Admission>, peer: IpAddr, now: Instant) -> bool {
        Admission::enter(admission, peer, now).unwrap().is_admitted()
    }

    #[test]
    fn the_first_address_has_the_place_until_its_last_connection_ends() {
        let (admission, now) = (admission().0, Instant::now());
        let first = Admission::enter(&admission, ONE, now).unwrap();
        let second = Admission::enter(&admission, ONE, now).unwrap();
        assert!(
            first.is_admitted() && second.is_admitted() && !is_admitted(&admission, OTHER, now)
        );
        drop(first);
        assert!(!is_admitted(&admission, OTHER, now));
        drop(second);
        assert!(is_admitted(&admission, OTHER, now));
    }

    #[test]
    fn a_connection_too_many_gets_503_and_later_ones_are_closed() {
        let (admission, now) = (admission().0, Instant::now());
        let enter = || Admission::enter(&admission, ONE, now);
        let mut all: Vec<Place> = (0..MAX_CONNECTIONS).map(|_| enter().unwrap()).collect();
        assert!(all.iter().all(Place::is_admitted));
        let refused: Vec<Place> = (0..MAX_REFUSED).map(|_| enter().unwrap()).collect();
        assert!(!refused.iter().any(Place::is_admitted));
        assert!(enter().is_none());
        assert!(!refused[0].is_over(now) && refused[0].is_over(now + REFUSED));
        drop(refused);
        all.pop();
        assert!(enter().unwrap().is_admitted());
    }

    #[test]
    fn who_has_used_up_its_bytes_or_its_time_has_to_wait() {
        let (admission, now) = (admission().0, Instant::now());
        let place = Admission::enter(&admission, ONE, now).unwrap();
        assert!(place.up(600) && !place.is_over(now));
        assert!(!place.down(400) && place.is_over(now));
        drop(place);
        assert!(!is_admitted(&admission, ONE, now) && is_admitted(&admission, OTHER, now));
        let place = Admission::enter(&admission, ONE, now + RETRY + REFUSED).unwrap();
        assert!(place.is_admitted(), "its minute is over");
        place.active_ms.store(150_000, Relaxed);
        assert!(!place.is_over(now + RETRY + REFUSED + Duration::from_secs(149)));
        assert!(place.is_over(now + RETRY + REFUSED + Duration::from_secs(150)));
    }

    #[test]
    fn a_connection_of_a_probe_is_asked_to_end() {
        let (admission, now) = (admission().0, Instant::now());
        let place = Arc::new(Admission::enter(&admission, ONE, now).unwrap());
        assert!(!place.is_done(now + PROBED * 3), "its request may be on its way");
        place.asked();
        assert!(!place.is_done(now + PROBED / 2) && place.is_done(now + PROBED * 3));
        drop(Load::new(&place));
        assert!(!place.is_done(now + PROBED * 3), "its next load may be on its way");
    }

    #[test]
    fn an_idle_connection_is_over_and_so_is_one_beside_a_session() {
        let ((admission, taken), now) = (admission(), Instant::now());
        let place = Admission::enter(&admission, ONE, now).unwrap();
        assert!(!place.is_over(now + IDLE / 2) && place.is_over(now + IDLE));
        place.active_ms.store(IDLE.as_millis() as u64 / 2, Relaxed);
        assert!(!place.is_over(now + IDLE) && place.is_over(now + IDLE * 3 / 2));
        taken.store(true, Relaxed);
        assert!(place.is_over(now) && !is_admitted(&admission, ONE, now));
    }
}
