//! The caller's progress function, heard from work that runs without the interpreter lock.

use std::time::Instant;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// A callback and what it raised; Ctrl-C is looked for even where there is none.
pub struct Heard {
    call: Option<Py<PyAny>>,
    last: Instant,
    raised: Option<PyErr>,
}

impl Heard {
    /// Nothing said yet.
    pub fn new(call: Option<Py<PyAny>>) -> Heard {
        Heard { call, last: Instant::now(), raised: None }
    }

    /// Tells how far the work is; whether to go on.
    pub fn tell<A>(&mut self, args: A) -> bool
    where
        A: for<'py> pyo3::call::PyCallArgs<'py>,
    {
        // Ten times a second is what a person can see.
        if self.last.elapsed().as_millis() < 100 {
            return true;
        }
        self.last = Instant::now();
        Python::attach(|py| {
            let heard = py.check_signals().and_then(|()| match &self.call {
                Some(call) => call.call1(py, args).map(|_| ()),
                None => Ok(()),
            });
            self.raised = heard.err();
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
