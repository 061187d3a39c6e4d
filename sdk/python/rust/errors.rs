//! The exceptions of `agentwire.errors`, and the guard around every entry of the module.

use std::panic::{self, AssertUnwindSafe};

use pyo3::{prelude::*, types::PyDict};

/// Runs `work`. A panic becomes an `AgentwireError`: a `PanicException` would pass every `except Exception`.
pub(crate) fn guarded<T>(py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Err(made(py, "AgentwireError", &format!("internal error: {text}"), &[]))
    })
}

/// A `ConfigError` about the argument or key `key`.
pub(crate) fn config(py: Python<'_>, key: &str, message: &str, hint: Option<&str>) -> PyErr {
    config_at(py, message, hint, Some(key), None)
}

/// A `ConfigError` with its place.
pub(crate) fn config_at(
    py: Python<'_>,
    message: &str,
    hint: Option<&str>,
    key: Option<&str>,
    position: Option<(usize, usize)>,
) -> PyErr {
    let error = made(py, "ConfigError", message, &[("hint", hint.unwrap_or_default().to_owned())]);
    let value = error.value(py);
    let _ = value.setattr("key", key);
    if let Some((line, column)) = position {
        let _ = value.setattr("line", line);
        let _ = value.setattr("column", column);
    }
    error
}

/// A `GatewayClosed`.
pub(crate) fn closed(py: Python<'_>, message: &str) -> PyErr {
    made(py, "GatewayClosed", message, &[])
}

/// An `AgentwireError` with a code.
pub(crate) fn coded(py: Python<'_>, code: &str, message: &str) -> PyErr {
    made(py, "AgentwireError", message, &[("code", code.to_owned())])
}

/// An `EventTranslationError`.
pub(crate) fn translation(py: Python<'_>, index: u64, path: &str, problem: &str, event: &str) -> PyErr {
    let error = made(
        py,
        "EventTranslationError",
        problem,
        &[("path", path.to_owned()), ("problem", problem.to_owned()), ("event", event.to_owned())],
    );
    let _ = error.value(py).setattr("index", index);
    error
}

/// An `UnknownEventTypeError`.
pub(crate) fn unknown(py: Python<'_>, index: u64, kind: &str, name: &str, event: &str) -> PyErr {
    let problem = format!("{kind} `{name}`");
    let error = made(
        py,
        "UnknownEventTypeError",
        &problem,
        &[("type", name.to_owned()), ("problem", problem.clone()), ("event", event.to_owned())],
    );
    let _ = error.value(py).setattr("index", index);
    error
}

/// An exception of `agentwire.errors` with its attributes.
fn made(py: Python<'_>, class: &str, message: &str, attributes: &[(&str, String)]) -> PyErr {
    let error = || -> PyResult<PyErr> {
        let values = PyDict::new(py);
        for (name, value) in attributes {
            values.set_item(name, value)?;
        }
        let class = py.import("agentwire.errors")?.getattr(class)?;
        Ok(PyErr::from_value(class.call((message,), Some(&values))?))
    };
    error().unwrap_or_else(|error| error)
}
