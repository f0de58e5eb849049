//! A web page: a document, then layers of objects over a handful of connections.
//!
//! signal: responses that arrive · model: what a browser with HTTP/1.1 does: one request at a time
//! on each of up to `connections` persistent connections to the server; the objects of a layer are
//! known when the layer before is there (DRWA and QCUT measure such pages) · action: page load
//! time, from the start of the first connection to the last byte of the last object.

use std::collections::VecDeque;

use units::{Bytes, Duration, Instant};

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
    connect_reported: bool,
}

impl Web {
    pub fn new(
        html: Bytes,
        objects: Vec<Bytes>,
        depth: u64,
        connections: u64,
        request: Bytes,
        every: Duration,
    ) -> Web {
        Web {
            html: html.0.max(1),
            objects: objects.iter().map(|b| b.0.max(1)).collect(),
            depth: depth.max(1) as usize,
            max_connections: connections.max(1) as usize,
            request: request.0.max(1),
            every,
            started: Instant::ZERO,
            connections: Vec::new(),
            first_tag: 0,
            next_tag: 0,
            todo: VecDeque::new(),
            layer: 0,
            under_way: 0,
            loading: false,
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
        if self.todo.is_empty() && self.under_way == 0 {
            self.next_layer();
        }
        if self.todo.is_empty() && self.under_way == 0 {
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
            return;
        }
        self.ask(now, out);
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

    /// Starts the next page, unless one is still loading.
    pub fn on_timer(&mut self, now: Instant, out: &mut Commands) {
        if !self.loading {
            self.on_start(now, out);
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
    use super::*;

    /// Serves whatever the browser asks for: every step takes a millisecond. Returns the most
    /// connections at a time and the reports.
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
                Command::Wake(_) | Command::Endless { .. } => {}
            }
        }
    }

    #[test]
    fn every_object_is_loaded_once_over_no_more_connections_than_allowed() {
        for (max, expected) in [(1, 1), (3, 3), (6, 4)] {
            let web = Web::new(
                Bytes(5_000),
                vec![Bytes(1_000); 8],
                2,
                max,
                Bytes(500),
                Duration::from_secs(10),
            );
            let (max_open, reports) = load(web);
            let count = |kind| reports.iter().filter(|(k, _)| *k == kind).count();
            // Two layers of four objects: a fifth connection is never of use.
            assert_eq!(max_open, expected, "{max}");
            assert_eq!((count("object_ms"), count("first_byte_ms")), (9, 9));
            assert_eq!((count("connect_ms"), count("page_load_ms")), (1, 1));
        }
    }
}
