//! The lock of an agent that starts: at once, or from another agent that is asked to hand over.

use std::time::Duration;

use serde_json::json;

use super::{DaemonError, Start, io};
use crate::daemon::control;
use crate::daemon::paths::{Lock, LockError, LockWait, Role};

/// A running daemon answers a request to hand over at once, unless its loop is busy; then it refuses
/// the request, since the new agent no longer waits for the answer.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes the lock: at once, from a supervisor that is about to finish, or from a daemon that hands
/// over; whether it was handed over.
pub(super) fn locked(start: &Start) -> Result<(Lock, bool), DaemonError> {
    let (paths, runtime) = (&start.paths, &start.paths.runtime);
    let (mut wait, mut asked) = (LockWait::begin(), false);
    loop {
        let holder = match paths.lock(Role::Daemon).map_err(io(runtime.display()))? {
            Ok(lock) => return Ok((lock, asked)),
            Err(holder) => holder,
        };
        // An agent with another runtime directory listens elsewhere.
        let here = holder.role == Some(Role::Daemon) && holder.pins.is_none();
        if here && !start.take_over {
            return Err(DaemonError::Running(holder));
        }
        if here && !asked {
            let request = json!({"ask": "hand over"});
            let answer = control::ask(&paths.socket(), &request, HAND_OVER_TIMEOUT);
            asked = matches!(answer, Ok(Some(answer)) if answer["ok"] == true);
        }
        wait.pause(holder).map_err(|e| match e {
            LockError::Elsewhere(holder) => DaemonError::Running(holder),
            LockError::Late(holder) => DaemonError::Locked { holder, runtime: runtime.clone() },
        })?;
    }
}
