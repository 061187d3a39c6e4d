//! The Python module of agentwire: the translator, the converters, the gateway and the command line.
//!
//! The typed interface is in `src/agentwire`; this module has what must be fast, or must be the same as elsewhere.

mod agents;
mod calls;
mod convert;
mod errors;
mod exchange;
mod hooks;
mod log;
mod notes;
mod server;
mod translate;
mod walk;

use std::{
    ffi::OsString,
    io::{self, Write as _},
};

use agentwire_core::{format::FORMATS, framing::DEFAULT_MAX_FRAME};
use pyo3::prelude::*;
use serde_json::{Value, json};

/// Runs the command line and returns the exit code. `args` begins with the name of the program.
#[pyfunction]
fn main(py: Python<'_>, args: Vec<OsString>) -> PyResult<u8> {
    errors::guarded(py, || {
        Ok(py.detach(|| {
            let code = agentwire::main_with(args.into_iter());
            // Rust's own end of the process, which flushes it, does not happen here.
            let _ = io::stdout().flush();
            code
        }))
    })
}

/// The table of formats as JSON.
#[pyfunction]
fn formats() -> String {
    let rows = FORMATS.iter().map(|format| {
        let options = format.options.iter();
        let options = options.map(|o| json!({ "name": o.name, "values": o.values, "about": o.about }));
        let profiles = format.profiles.iter().map(|profile| {
            json!({ "name": profile.name, "about": profile.about, "framing": profile.framing.name(), "content_type": profile.content_type })
        });
        json!({
            "name": format.name,
            "about": format.about,
            "reads": format.reads.iter().map(|framing| framing.name()).collect::<Vec<_>>(),
            "profiles": profiles.collect::<Vec<_>>(),
            "options": options.collect::<Vec<_>>(),
        })
    });
    Value::from(rows.collect::<Vec<_>>()).to_string()
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("MAX_FRAME", DEFAULT_MAX_FRAME)?;
    module.add_class::<translate::Stream>()?;
    module.add_class::<server::Server>()?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(formats, module)?)?;
    module.add_function(wrap_pyfunction!(convert::to_line, module)?)?;
    module.add_function(wrap_pyfunction!(convert::to_json, module)?)?;
    module.add_function(wrap_pyfunction!(convert::normal_input, module)?)?;
    module.add_function(wrap_pyfunction!(convert::langchain, module)?)?;
    module.add_function(wrap_pyfunction!(convert::graph_input, module)?)?;
    module.add_function(wrap_pyfunction!(convert::adk_content, module)?)?;
    module.add_function(wrap_pyfunction!(convert::fold, module)?)?;
    module.add_function(wrap_pyfunction!(convert::apply_patch, module)?)?;
    module.add_function(wrap_pyfunction!(convert::diff, module)?)?;
    module.add_function(wrap_pyfunction!(convert::langgraph_events, module)?)?;
    Ok(())
}
