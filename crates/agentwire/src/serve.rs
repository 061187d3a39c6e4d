//! `agentwire serve`: the gateway.

use std::process::ExitCode;

use crate::error::Result;

/// Says that the gateway is not part of this version.
pub(crate) fn run() -> Result<ExitCode> {
    eprintln!("no agent yet: this version has the translator (`agentwire convert`, `agentwire check`);");
    eprintln!("the gateway comes with a later one. `agentwire --help` shows what works today.");
    Ok(ExitCode::SUCCESS)
}
