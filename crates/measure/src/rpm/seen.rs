//! What a phase sees while it runs: its loads, its probes, and why it cannot go on.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use algo::Rng;
use hyper::client::conn::http2::SendRequest;

use super::configuration::Configuration;
use super::connection::{Content, Note, Server, Trouble, small};
use super::figure::{Begun, Kind, Trips};
use super::load::Loaded;
use crate::channel::locked;
use crate::wire::data::Direction;

/// What is known of a phase while it runs.
pub struct Seen {
    /// When the phase began.
    pub begun: Instant,
    /// Its probes.
    pub trips: Mutex<Trips>,
    /// Why it cannot go on.
    pub ended: Mutex<Option<String>>,
    /// Probes with a connection of their own under way.
    pub open: AtomicUsize,
    /// Probes that were given up.
    pub failed: AtomicUsize,
    /// Connections with a load that are open.
    pub loads: Mutex<Vec<Loaded>>,
    /// Connections for loads that were begun, by `Direction`.
    pub opened: [AtomicUsize; 2],
}

impl Seen {
    /// Of a phase that begins now.
    pub fn new() -> Arc<Seen> {
        let (trips, ended, open) = Default::default();
        let (failed, loads, opened) = Default::default();
        Arc::new(Seen { begun: Instant::now(), trips, ended, open, failed, loads, opened })
    }

    /// Seconds from its beginning.
    pub fn now_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Bytes of the loads, of one direction or all.
    pub fn bytes(&self, of: Option<Direction>) -> u64 {
        let loads = locked(&self.loads);
        let wanted = loads.iter().filter(|load| of.is_none_or(|one| load.direction() == one));
        wanted.map(Loaded::bytes).sum()
    }

    /// Takes probes on one of the loaded connections, each as likely as another.
    pub fn any_load(&self, rng: &mut Rng) -> Option<SendRequest<Content>> {
        let loads = locked(&self.loads);
        let at = rng.below((loads.len() as u64).max(1));
        loads.get(at as usize).map(Loaded::requests)
    }

    /// Ends it; only the first reason counts.
    pub fn end(&self, what: &str, why: &Trouble) {
        locked(&self.ended).get_or_insert_with(|| format!("{what}: {why}"));
    }
}

/// Notes the round trips of one probe.
struct Probe<'a>(&'a Seen, Mutex<Option<Begun>>);

impl Probe<'_> {
    fn of(seen: &Seen) -> Probe<'_> {
        Probe(seen, Mutex::default())
    }
}

impl Note for Probe<'_> {
    fn begin(&self, kind: Kind) {
        *locked(&self.1) = Some(locked(&self.0.trips).begin(kind, self.0.now_s()));
    }

    fn end(&self) {
        if let Some(begun) = locked(&self.1).take() {
            locked(&self.0.trips).end(begun, self.0.now_s());
        }
    }
}

/// A probe with a connection of its own.
pub async fn foreign(server: &Server, to: &Configuration, seen: &Seen) -> Result<(), Trouble> {
    let probe = Probe::of(seen);
    let trips = async {
        let mut connection = server.open(&probe).await?;
        probe.begin(Kind::Http);
        small(&mut connection.requests, &to.small).await.map(drop)
    };
    match trips.await {
        Ok(()) => {}
        // A queue or a loss kept it until one of both ends gave up: it counts with the time until then.
        Err(why) if why.is_lost() => {
            seen.failed.fetch_add(1, Relaxed);
        }
        Err(why) => return Err(why),
    }
    probe.end();
    Ok(())
}

/// A probe on a connection that carries a load.
pub async fn own(mut requests: SendRequest<Content>, to: Configuration, seen: Arc<Seen>) {
    let probe = Probe::of(&seen);
    probe.begin(Kind::Loaded);
    match small(&mut requests, &to.small).await {
        Ok(_) => probe.end(),
        Err(Trouble::Silent) => {
            seen.failed.fetch_add(1, Relaxed);
            probe.end();
        }
        Err(why) => seen.end("a probe", &why),
    }
}
