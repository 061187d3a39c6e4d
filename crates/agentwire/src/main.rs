//! The `agentwire` binary: parses the command line, runs the command, and maps errors to fixed exit codes.

#[macro_use]
mod print;

mod audit_command;
mod check;
mod cli;
mod config;
mod config_command;
mod convert;
mod error;
mod formats;
mod hooks;
mod input;
mod progress;
mod reload;
mod remote;
mod serve;
mod store_command;
mod upstream;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Formats => formats::run(),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Config(command) => config_command::run(&command),
        Command::Audit(command) => audit_command::run(&command),
        Command::Store(command) => store_command::run(&command),
        Command::Completions { shell } => {
            // The generator panics on a write error, so it writes to memory first.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "agentwire", &mut script);
            println!("{}", String::from_utf8_lossy(&script).trim_end());
            Ok(ExitCode::SUCCESS)
        }
    };
    // Also after an error: the bar must not stay on the terminal.
    progress::finish();
    result.unwrap_or_else(|error| error.report())
}
