//! Applications: what they write and request, and how well it went.
//!
//! One file per kind of traffic. An application is a state machine: it takes opened connections,
//! received bytes and timers, and returns [`Command`]s, among them figures for the `apps` table.

mod file;
mod playout;
mod requests;
mod video;
pub mod voip;
mod web;

use scenario::App as Kind;
use units::{Duration, Instant};

pub use voip::Voice;

/// What an application asks of the simulation.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// A new connection; the answer is [`App::on_opening`] with its number and the same `tag`.
    Open {
        /// The application's own name for it.
        tag: u32,
    },
    /// Bytes to be sent by the data's sender (`up` false) or by its receiver (`up` true: requests).
    Write {
        /// Number of the connection.
        connection: u32,
        /// By the side that fetches.
        up: bool,
        /// Bytes of payload.
        bytes: u64,
    },
    /// The data's sender has data without end.
    Endless {
        /// Number of the connection.
        connection: u32,
    },
    /// Both sides write no more.
    Close {
        /// Number of the connection.
        connection: u32,
    },
    /// Wakes the application at this time.
    Wake(Instant),
    /// A figure for the `apps` table.
    Report {
        /// Its name, unit included.
        kind: &'static str,
        /// The measured value.
        value: f64,
    },
}

/// Commands of one call.
pub type Commands = Vec<Command>;

fn ms(span: Duration) -> f64 {
    span.as_millis_f64()
}

/// An application at work.
pub enum App {
    /// A sender that always has data.
    Bulk(file::Bulk),
    /// Files, one after another.
    File(file::File),
    /// Data made at given rates.
    Rates(file::Rates),
    /// Requests one after another.
    Requests(requests::Requests),
    /// Web pages, one after another.
    Web(web::Web),
    /// Video at an adaptive bit rate.
    Video(video::Video),
}

impl App {
    /// The application of a flow; `None` for voice, which is not TCP.
    pub fn new(kind: &Kind) -> Option<App> {
        Some(match kind {
            Kind::Bulk => App::Bulk(file::Bulk::default()),
            Kind::File { bytes, every } => App::File(file::File::new(*bytes, *every)),
            Kind::Rates { rates, slot } => App::Rates(file::Rates::new(rates.clone(), *slot)),
            Kind::Requests { request, responses, thinks } => {
                App::Requests(requests::Requests::new(*request, responses, thinks))
            }
            Kind::Web(page) => App::Web(web::Web::new(page)),
            Kind::Video { ladder, segment, start_buffer, max_buffer, safety } => App::Video(
                video::Video::new(ladder.clone(), *segment, *start_buffer, *max_buffer, *safety),
            ),
            Kind::Voip { .. } => return None,
        })
    }

    /// The flow's time has come.
    pub fn on_start(&mut self, now: Instant, out: &mut Commands) {
        match self {
            App::Bulk(_) | App::Rates(_) => out.push(Command::Open { tag: 0 }),
            App::File(a) => a.on_start(now, out),
            App::Requests(_) => out.push(Command::Open { tag: 0 }),
            App::Web(a) => a.on_start(now, out),
            App::Video(a) => a.on_start(now, out),
        }
    }

    /// The connection opened with `tag` has this number.
    pub fn on_opening(&mut self, tag: u32, connection: u32) {
        match self {
            App::Bulk(a) => a.connection = Some(connection),
            App::File(a) => a.on_opening(connection),
            App::Rates(a) => a.on_opening(connection),
            App::Requests(_) => {}
            App::Web(a) => a.on_opening(tag, connection),
            App::Video(_) => {}
        }
    }

    /// Both ends of a connection know that it is open; called once, at the end that acts then: the
    /// data's sender for applications that only send, the fetching side for those that send
    /// requests.
    pub fn on_opened(&mut self, now: Instant, connection: u32, out: &mut Commands) {
        match self {
            App::Bulk(_) => out.push(Command::Endless { connection }),
            App::File(a) => a.on_opened(connection, out),
            App::Rates(a) => a.on_opened(now, out),
            App::Requests(a) => a.on_opened(now, connection, out),
            App::Web(a) => a.on_opened(now, connection, out),
            App::Video(a) => a.on_opened(now, connection, out),
        }
    }

    /// Whether [`App::on_opened`] is called at the side that fetches.
    pub fn fetches(&self) -> bool {
        matches!(self, App::Requests(_) | App::Web(_) | App::Video(_))
    }

    /// The application at the fetching side got data (`up` false), or the data's sender got a
    /// request (`up` true).
    pub fn on_received(
        &mut self,
        now: Instant,
        connection: u32,
        up: bool,
        bytes: u64,
        out: &mut Commands,
    ) {
        match self {
            App::Bulk(_) | App::Rates(_) => {}
            App::File(a) => a.on_received(now, up, bytes, out),
            App::Requests(a) => a.on_received(now, connection, up, bytes, out),
            App::Web(a) => a.on_received(now, connection, up, bytes, out),
            App::Video(a) => a.on_received(now, connection, up, bytes, out),
        }
    }

    /// The time of a [`Command::Wake`] has come.
    pub fn on_timer(&mut self, now: Instant, out: &mut Commands) {
        match self {
            App::Bulk(_) => {}
            App::File(a) => a.on_timer(now, out),
            App::Rates(a) => a.on_timer(now, out),
            App::Requests(a) => a.on_timer(now, out),
            App::Web(a) => a.on_timer(now, out),
            App::Video(a) => a.on_timer(now, out),
        }
    }

    /// The run is over: figures that were still growing.
    pub fn on_end(&mut self, now: Instant, out: &mut Commands) {
        match self {
            App::Video(a) => a.on_end(now, out),
            App::Web(a) => a.on_end(now, out),
            _ => {}
        }
    }
}
