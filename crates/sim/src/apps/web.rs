//! A web page: a document, then layers of objects over a handful of connections.
//!
//! signal: answers that arrived · model: what a browser with HTTP/1.1 does: one request at a time
//! on each of up to `connections` persistent connections to the server; the objects of a layer are
//! known when the layer before is there (DRWA and QCUT measure such pages) · action: page load
//! time, from the start of the first connection to the last byte of the last object.

use std::collections::VecDeque;

use units::{Bytes, Duration, Instant};

use super::{Command, Commands, ms};

/// A connection of the page.
#[derive(Clone, Copy)]
struct Lane {
    connection: Option<u32>,
    open: bool,
    /// Size of the object under way, and how much of it came.
    object: Option<(u64, u64)>,
    asked: Instant,
    heard: u64,
}

/// See the module text.
pub struct Web {
    html: u64,
    objects: Vec<u64>,
    depth: usize,
    most: usize,
    request: u64,
    every: Duration,
    started: Instant,
    lanes: Vec<Lane>,
    /// Tag of the first lane of this page: answers about older pages are not for it.
    first_tag: u32,
    next_tag: u32,
    todo: VecDeque<u64>,
    layer: usize,
    under_way: usize,
    loading: bool,
    connect_told: bool,
}

impl Web {
    /// Not begun.
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
            most: connections.max(1) as usize,
            request: request.0.max(1),
            every,
            started: Instant::ZERO,
            lanes: Vec::new(),
            first_tag: 0,
            next_tag: 0,
            todo: VecDeque::new(),
            layer: 0,
            under_way: 0,
            loading: false,
            connect_told: false,
        }
    }

    /// A page begins.
    pub fn on_start(&mut self, now: Instant, out: &mut Commands) {
        for lane in self.lanes.drain(..) {
            if let Some(connection) = lane.connection {
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
        self.connect_told = false;
        self.open_lane(out);
    }

    fn open_lane(&mut self, out: &mut Commands) {
        out.push(Command::Open { tag: self.next_tag });
        self.next_tag += 1;
        self.lanes.push(Lane {
            connection: None,
            open: false,
            object: None,
            asked: Instant::ZERO,
            heard: 0,
        });
    }

    /// A lane got its number.
    pub fn on_opening(&mut self, tag: u32, connection: u32) {
        if let Some(lane) =
            tag.checked_sub(self.first_tag).and_then(|i| self.lanes.get_mut(i as usize))
        {
            lane.connection = Some(connection);
        }
    }

    fn lane(&self, connection: u32) -> Option<usize> {
        self.lanes.iter().position(|l| l.connection == Some(connection))
    }

    /// A lane is open.
    pub fn on_opened(&mut self, now: Instant, connection: u32, out: &mut Commands) {
        let Some(lane) = self.lane(connection) else { return };
        self.lanes[lane].open = true;
        if !self.connect_told {
            self.connect_told = true;
            out.push(Command::Tell { kind: "connect_ms", value: ms(now.since(self.started)) });
        }
        self.ask(now, out);
    }

    /// Free lanes take the next objects.
    fn ask(&mut self, now: Instant, out: &mut Commands) {
        for lane in &mut self.lanes {
            if self.todo.is_empty() {
                return;
            }
            let (true, None, Some(connection)) = (lane.open, lane.object, lane.connection) else {
                continue;
            };
            let Some(size) = self.todo.pop_front() else { return };
            lane.object = Some((size, 0));
            lane.asked = now;
            self.under_way += 1;
            out.push(Command::Write { connection, up: true, bytes: self.request });
        }
        let opening = self.lanes.iter().filter(|l| !l.open).count();
        let wanted =
            self.todo.len().saturating_sub(opening).min(self.most.saturating_sub(self.lanes.len()));
        for _ in 0..wanted {
            self.open_lane(out);
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
        let Some(at) = self.lane(connection) else { return };
        let lane = &mut self.lanes[at];
        if up {
            lane.heard += bytes;
            if lane.heard >= self.request {
                lane.heard -= self.request;
                if let Some((size, _)) = lane.object {
                    out.push(Command::Write { connection, up: false, bytes: size });
                }
            }
            return;
        }
        let Some((size, got)) = lane.object.as_mut() else { return };
        if *got == 0 {
            out.push(Command::Tell { kind: "first_byte_ms", value: ms(now.since(lane.asked)) });
        }
        *got += bytes;
        if *got < *size {
            return;
        }
        out.push(Command::Tell { kind: "object_ms", value: ms(now.since(lane.asked)) });
        lane.object = None;
        self.under_way -= 1;
        if self.todo.is_empty() && self.under_way == 0 {
            self.next_layer();
        }
        if self.todo.is_empty() && self.under_way == 0 {
            self.loading = false;
            out.push(Command::Tell { kind: "page_load_ms", value: ms(now.since(self.started)) });
            for lane in &self.lanes {
                if let Some(connection) = lane.connection {
                    out.push(Command::Close { connection });
                }
            }
            self.lanes.clear();
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

    /// The next page.
    pub fn on_timer(&mut self, now: Instant, out: &mut Commands) {
        if !self.loading {
            self.on_start(now, out);
        }
    }

    /// A page that never came is told as the time that it has taken so far.
    pub fn on_end(&mut self, now: Instant, out: &mut Commands) {
        if self.loading {
            out.push(Command::Tell {
                kind: "page_unfinished_ms",
                value: ms(now.since(self.started)),
            });
        }
    }
}
