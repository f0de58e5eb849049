//! The caller's progress function, called from work that runs without the interpreter lock.

use std::time::Instant;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// A callback and the exception that it raised; Ctrl-C is checked even where there is no callback.
pub struct Progress {
    call: Option<Py<PyAny>>,
    last: Instant,
    raised: Option<PyErr>,
}

impl Progress {
    /// Starts the clock of the reports.
    pub fn new(call: Option<Py<PyAny>>) -> Progress {
        Progress { call, last: Instant::now(), raised: None }
    }

    /// Reports how far the work is; false: stop.
    pub fn report<A>(&mut self, args: A) -> bool
    where
        A: for<'py> pyo3::call::PyCallArgs<'py>,
    {
        // Ten times a second: a faster display cannot be read.
        if self.last.elapsed().as_millis() < 100 {
            return true;
        }
        self.last = Instant::now();
        Python::attach(|py| {
            let outcome = py.check_signals().and_then(|()| match &self.call {
                Some(call) => call.call1(py, args).map(|_| ()),
                None => Ok(()),
            });
            self.raised = outcome.err();
            self.raised.is_none()
        })
    }

    /// What the callback raised, or the signal.
    pub fn raised(self) -> Option<PyErr> {
        self.raised
    }

    /// Why the work was stopped.
    pub fn stopped(self) -> PyErr {
        self.raised.unwrap_or_else(|| PyKeyboardInterrupt::new_err("stopped"))
    }
}
