//! The thread that watches a run: signals, the parent's commands, failures of workers, and the end.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use scenario::Scenario;
use serde_json::{Value, json};
use units::Instant;

use super::devices::namespaces_are_there;
use super::summary::link_object;
use super::{Options, RunError};
use crate::clock::Clock;
use crate::commands::{Command, Commands};
use crate::worker::{Finished, Live, WorkerError};

/// How often the watching thread looks at namespaces and the end of the run, ms.
const WATCH_MS: u16 = 50;

/// How long a parent that has read `done` may take to end its captures, ms.
const PARENT_TIMEOUT_MS: u16 = 3_000;

/// Interval of the messages with counters.
const COUNTERS_INTERVAL_NS: u64 = 1_000_000_000;

/// A worker's thread, with its link and its counters.
pub(super) type Thread = (usize, Arc<Live>, JoinHandle<(Finished, Result<(), WorkerError>)>);

/// The watching thread: signals, the parent's commands, and the end.
pub(super) struct Watch {
    signals: SignalFd,
    /// Readable for all workers when the run is over.
    pub(super) stop: Arc<EventFd>,
    /// Readable when a worker or the writer has failed.
    pub(super) failed: Arc<EventFd>,
    commands: Commands,
}

/// What the watching thread waits for.
enum WatchEvent {
    Command(Command),
    Failed,
    None,
}

impl Watch {
    pub(super) fn new() -> Result<Watch, RunError> {
        let system = |what| move |error| RunError::System(what, error);
        let mut set = SigSet::empty();
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .for_each(|signal| set.add(signal));
        // Before any thread starts, so that all of them leave signals to this one.
        set.thread_block().map_err(system("signals"))?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(system("signalfd"))?;
        let event =
            || EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map(Arc::new);
        let stop = event().map_err(system("eventfd"))?;
        let failed = event().map_err(system("eventfd"))?;
        Ok(Watch { signals, stop, failed, commands: Commands::default() })
    }

    /// Waits up to [`WATCH_MS`] for a signal, a failure or a command.
    fn next_event(&mut self, commands: bool) -> Result<WatchEvent, RunError> {
        let stdin = io::stdin();
        let mut polled = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.failed.as_fd(), PollFlags::POLLIN),
        ];
        if commands {
            polled.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut polled, PollTimeout::from(WATCH_MS)) {
            Err(nix::errno::Errno::EINTR) => return Ok(WatchEvent::None),
            Ok(_) => {}
            Err(error) => return Err(RunError::System("poll", error)),
        }
        let happened: Vec<bool> = polled
            .iter()
            .map(|fd| !fd.revents().unwrap_or(PollFlags::empty()).is_empty())
            .collect();
        drop(polled);
        if happened[1] {
            return Ok(WatchEvent::Failed);
        }
        if happened[0] {
            return Ok(WatchEvent::Command(Command::Stop));
        }
        if happened.get(2) == Some(&true) {
            let mut buffer = [0; 256];
            // Unlocked and unbuffered, or poll would not see what a buffer contains.
            let length = nix::unistd::read(stdin.as_fd(), &mut buffer).unwrap_or(0);
            if length == 0 {
                return Ok(WatchEvent::Command(Command::Stop));
            }
            self.commands.extend(&buffer[..length]);
        }
        Ok(self.commands.take_next().map_or(WatchEvent::None, WatchEvent::Command))
    }

    /// Waits for `go`; false: stop without a run.
    pub(super) fn wait_for_go(
        &mut self,
        scenario: &Scenario,
        options: &Options,
    ) -> Result<bool, RunError> {
        loop {
            match self.next_event(true)? {
                WatchEvent::Command(Command::Go) => return Ok(true),
                WatchEvent::Command(Command::Stop) => return Ok(false),
                WatchEvent::Failed | WatchEvent::None => namespaces_are_there(scenario, options)?,
            }
        }
    }

    pub(super) fn until_the_end(
        &mut self,
        scenario: &Scenario,
        options: &Options,
        clock: Clock,
        threads: &[Thread],
        print: &mut dyn FnMut(Value),
    ) -> Result<(), RunError> {
        let end = Instant(options.stop_after.unwrap_or(scenario.duration).min(scenario.duration).0);
        let mut seconds_printed = 0;
        loop {
            let now = clock.now();
            if now >= end {
                return Ok(());
            }
            if now.0 / COUNTERS_INTERVAL_NS > seconds_printed {
                seconds_printed = now.0 / COUNTERS_INTERVAL_NS;
                let links: Vec<Value> = threads
                    .iter()
                    .map(|(link, live, _)| link_object(scenario, *link, live))
                    .collect();
                print(json!({"event": "counters", "t_s": now.0 as f64 / 1e9, "links": links}));
            }
            match self.next_event(!options.at_once)? {
                WatchEvent::Command(Command::Stop) | WatchEvent::Failed => return Ok(()),
                WatchEvent::Command(Command::Go) | WatchEvent::None => {}
            }
            if threads.iter().any(|(.., thread)| thread.is_finished()) {
                return Ok(());
            }
            namespaces_are_there(scenario, options)?;
        }
    }

    /// The devices stay until the parent is done: a capture on a device that vanishes loses its
    /// last packets.
    pub(super) fn wait_for_parent(&mut self) -> Result<(), RunError> {
        let looks = PARENT_TIMEOUT_MS / WATCH_MS;
        for _ in 0..looks {
            if let WatchEvent::Command(Command::Stop) | WatchEvent::Failed =
                self.next_event(true)?
            {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn stop_workers(&self) {
        // It is never read, so that it stays readable for all. A counter at one cannot overflow.
        let _ = self.stop.write(1);
    }
}
