//! The `agentwire` binary.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    agentwire::main_with(env::args_os()).into()
}
