//! A web page: a document, then layers of objects over a handful of connections.
//!
//! signal: responses that arrive · model: what a browser with HTTP/1.1 does: one request at a time
//! on each of up to `connections` persistent connections to the server; the objects of a layer are
//! known when the layer before is there (DRWA and QCUT measure such pages). Between a layer and what
//! it names, and before the page is done, the browser computes: up to 35 % of the critical path of
//! pages on computers (Wang et al., "Demystifying page load performance with WProf", NSDI 2013), the
//! larger part of it on phones (Nejati and Balasubramanian, WWW 2016) · action: page load time, from
//! the start of the first connection to the last byte of the last object and what is computed after
//! it.
//!
//! Deviation: a browser also computes while objects load; that time is on no critical path here.

use std::collections::VecDeque;

use scenario::Page;
use units::{Duration, Instant};

use super::{Command, Commands, ms};

/// A connection of the page.
#[derive(Clone, Copy)]
struct PageConnection {
    connection: Option<u32>,
    open: bool,
    /// Size of the object under way, and how much of it came.
    object: Option<(u64, u64)>,
    request_sent_at: Instant,
    server_bytes: u64,
}

/// A browser that loads pages, and its server.
pub struct Web {
    html: u64,
    objects: Vec<u64>,
    depth: usize,
    max_connections: usize,
    request: u64,
    /// Computed after the document, and after each layer.
    compute: Duration,
    every: Duration,
    started: Instant,
    connections: Vec<PageConnection>,
    /// Tag of the first slot of this page: answers about older pages are not for it.
    first_tag: u32,
    next_tag: u32,
    todo: VecDeque<u64>,
    layer: usize,
    under_way: usize,
    loading: bool,
    /// What was received is being computed, until this time.
    computing: Option<Instant>,
    connect_reported: bool,
}

impl Web {
    pub fn new(page: &Page) -> Web {
        let depth = page.depth.max(1) as usize;
        let layers = depth.min(page.objects.len());
        Web {
            html: page.html.0.max(1),
            objects: page.objects.iter().map(|b| b.0.max(1)).collect(),
            depth,
            max_connections: page.connections.max(1) as usize,
            request: page.request.0.max(1),
            compute: page.compute / (layers as u64 + 1),
            every: page.every,
            started: Instant::ZERO,
            connections: Vec::new(),
            first_tag: 0,
            next_tag: 0,
            todo: VecDeque::new(),
            layer: 0,
            under_way: 0,
            loading: false,
            computing: None,
            connect_reported: false,
        }
    }

    /// Starts a page: closes old connections and opens the first one.
    pub fn on_start(&mut self, now: Instant, out: &mut Commands) {
        for slot in self.connections.drain(..) {
            if let Some(connection) = slot.connection {
                out.push(Command::Close { connection });
            }
        }
        self.started = now;
        self.first_tag = self.next_tag;
        self.todo.clear();
        self.todo.push_back(self.html);
        self.layer = 0;
        self.under_way = 0;
        self.loading = true;
        self.computing = None;
        self.connect_reported = false;
        self.open_connection(out);
    }

    fn open_connection(&mut self, out: &mut Commands) {
        out.push(Command::Open { tag: self.next_tag });
        self.next_tag += 1;
        self.connections.push(PageConnection {
            connection: None,
            open: false,
            object: None,
            request_sent_at: Instant::ZERO,
            server_bytes: 0,
        });
    }

    /// A slot client_bytes its number.
    pub fn on_opening(&mut self, tag: u32, connection: u32) {
        if let Some(slot) =
            tag.checked_sub(self.first_tag).and_then(|i| self.connections.get_mut(i as usize))
        {
            slot.connection = Some(connection);
        }
    }

    fn index_of(&self, connection: u32) -> Option<usize> {
        self.connections.iter().position(|l| l.connection == Some(connection))
    }

    /// A slot is open.
    pub fn on_opened(&mut self, now: Instant, connection: u32, out: &mut Commands) {
        let Some(slot) = self.index_of(connection) else { return };
        self.connections[slot].open = true;
        if !self.connect_reported {
            self.connect_reported = true;
            out.push(Command::Report { kind: "connect_ms", value: ms(now.since(self.started)) });
        }
        self.ask(now, out);
    }

    /// Free connections take the next objects.
    fn ask(&mut self, now: Instant, out: &mut Commands) {
        for slot in &mut self.connections {
            if self.todo.is_empty() {
                return;
            }
            let (true, None, Some(connection)) = (slot.open, slot.object, slot.connection) else {
                continue;
            };
            let Some(size) = self.todo.pop_front() else { return };
            slot.object = Some((size, 0));
            slot.request_sent_at = now;
            self.under_way += 1;
            out.push(Command::Write { connection, up: true, bytes: self.request });
        }
        let opening = self.connections.iter().filter(|l| !l.open).count();
        let wanted = self
            .todo
            .len()
            .saturating_sub(opening)
            .min(self.max_connections.saturating_sub(self.connections.len()));
        for _ in 0..wanted {
            self.open_connection(out);
        }
    }

    /// A request reached the server, or part of an object the browser.
    pub fn on_received(
        &mut self,
        now: Instant,
        connection: u32,
        up: bool,
        bytes: u64,
        out: &mut Commands,
    ) {
        let Some(at) = self.index_of(connection) else { return };
        let slot = &mut self.connections[at];
        if up {
            slot.server_bytes += bytes;
            if slot.server_bytes >= self.request {
                slot.server_bytes -= self.request;
                if let Some((size, _)) = slot.object {
                    out.push(Command::Write { connection, up: false, bytes: size });
                }
            }
            return;
        }
        let Some((size, client_bytes)) = slot.object.as_mut() else { return };
        if *client_bytes == 0 {
            out.push(Command::Report {
                kind: "first_byte_ms",
                value: ms(now.since(slot.request_sent_at)),
            });
        }
        *client_bytes += bytes;
        if *client_bytes < *size {
            return;
        }
        out.push(Command::Report { kind: "object_ms", value: ms(now.since(slot.request_sent_at)) });
        slot.object = None;
        self.under_way -= 1;
        if !self.todo.is_empty() || self.under_way > 0 {
            self.ask(now, out);
        } else if self.compute > Duration::ZERO {
            let until = now + self.compute;
            self.computing = Some(until);
            out.push(Command::Wake(until));
        } else {
            self.go_on(now, out);
        }
    }

    /// A layer is there and computed: asks for the next one, or ends the page.
    fn go_on(&mut self, now: Instant, out: &mut Commands) {
        self.next_layer();
        if !self.todo.is_empty() {
            self.ask(now, out);
            return;
        }
        self.loading = false;
        out.push(Command::Report { kind: "page_load_ms", value: ms(now.since(self.started)) });
        for slot in &self.connections {
            if let Some(connection) = slot.connection {
                out.push(Command::Close { connection });
            }
        }
        self.connections.clear();
        self.first_tag = self.next_tag;
        out.push(Command::Wake((self.started + self.every).max(now)));
    }

    /// Objects are spread over the layers in order.
    fn next_layer(&mut self) {
        while self.layer < self.depth && self.todo.is_empty() {
            let n = self.objects.len();
            let (from, to) = (n * self.layer / self.depth, n * (self.layer + 1) / self.depth);
            self.todo.extend(self.objects[from..to].iter().copied());
            self.layer += 1;
        }
    }

    /// Something is computed; or it is time for the next page.
    pub fn on_timer(&mut self, now: Instant, out: &mut Commands) {
        match self.computing {
            Some(until) if now >= until => {
                self.computing = None;
                self.go_on(now, out);
            }
            None if !self.loading => self.on_start(now, out),
            _ => {}
        }
    }

    /// Reports an unfinished page with its time so far.
    pub fn on_end(&mut self, now: Instant, out: &mut Commands) {
        if self.loading {
            out.push(Command::Report {
                kind: "page_unfinished_ms",
                value: ms(now.since(self.started)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    fn page(connections: u64, compute: Duration) -> Web {
        Web::new(&Page {
            html: Bytes(5_000),
            objects: vec![Bytes(1_000); 8],
            depth: 2,
            connections,
            request: Bytes(500),
            compute,
            every: Duration::from_secs(10),
        })
    }

    /// Serves whatever the browser asks for: every step takes a millisecond. Returns the most
    /// connections at a time and the reports of one page.
    fn load(mut web: Web) -> (usize, Vec<(&'static str, f64)>) {
        let (mut out, mut todo) = (Commands::new(), VecDeque::new());
        let (mut now, mut opened, mut max_open, mut reports) = (Instant::ZERO, 0, 0, Vec::new());
        web.on_start(now, &mut out);
        loop {
            todo.extend(out.drain(..));
            let Some(command) = todo.pop_front() else { return (max_open, reports) };
            now = now + Duration::from_millis(1);
            match command {
                Command::Open { tag } => {
                    opened += 1;
                    max_open = max_open.max(opened);
                    web.on_opening(tag, tag + 100);
                    web.on_opened(now, tag + 100, &mut out);
                }
                Command::Write { connection, up, bytes } => {
                    web.on_received(now, connection, up, bytes, &mut out);
                }
                Command::Report { kind, value } => reports.push((kind, value)),
                Command::Close { .. } => opened -= 1,
                Command::Wake(at) if web.loading => {
                    now = now.max(at);
                    web.on_timer(now, &mut out);
                }
                Command::Wake(_) | Command::Endless { .. } => {}
            }
        }
    }

    fn page_load_ms(reports: &[(&'static str, f64)]) -> f64 {
        reports.iter().find(|(kind, _)| *kind == "page_load_ms").map_or(0.0, |(_, value)| *value)
    }

    #[test]
    fn every_object_is_loaded_once_over_no_more_connections_than_allowed() {
        for (max, expected) in [(1, 1), (3, 3), (6, 4)] {
            let (max_open, reports) = load(page(max, Duration::ZERO));
            let count = |kind| reports.iter().filter(|(k, _)| *k == kind).count();
            // Two layers of four objects: a fifth connection is never of use.
            assert_eq!(max_open, expected, "{max}");
            assert_eq!((count("object_ms"), count("first_byte_ms")), (9, 9));
            assert_eq!((count("connect_ms"), count("page_load_ms")), (1, 1));
        }
    }

    #[test]
    fn what_the_browser_computes_adds_to_the_page_and_to_nothing_else() {
        let (_, without) = load(page(1, Duration::ZERO));
        let (_, with) = load(page(1, Duration::from_millis(600)));
        // A third each after the document and both layers; the driver takes a step for each report.
        let added = page_load_ms(&with) - page_load_ms(&without);
        assert!((590.0..=600.0).contains(&added), "{added}");
        let mean = |reports: &[(&'static str, f64)]| {
            let values: Vec<f64> =
                reports.iter().filter(|(k, _)| *k == "first_byte_ms").map(|(_, v)| *v).collect();
            values.iter().sum::<f64>() / values.len() as f64
        };
        assert!((mean(&with) - mean(&without)).abs() < 2.0);
    }
}
