//! The command line of agentwire: parse, do, and say what went wrong with a fixed exit code.

#[macro_use]
mod print;

mod audit;
mod check;
mod cli;
mod config;
mod configured;
mod convert;
mod error;
mod formats;
mod hooks;
mod input;
mod progress;
mod reload;
mod remote;
mod serve;
mod store;
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
        Command::Config(command) => configured::run(&command),
        Command::Audit(command) => audit::run(&command),
        Command::Store(command) => store::run(&command),
        Command::Completions { shell } => {
            // The generator panics when it cannot write, so it writes to memory.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "agentwire", &mut script);
            println!("{}", String::from_utf8_lossy(&script).trim_end());
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| error.report())
}
