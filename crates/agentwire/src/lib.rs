//! The `agentwire` command: parses the command line, runs the command, and maps errors to fixed exit codes.
//!
//! A library, because the Python package contains the same command. The binary is `main.rs`.

#[macro_use]
mod print;

mod audit_command;
mod check;
mod cli;
mod config;
mod config_command;
pub mod conversion;
mod convert;
mod diff;
mod door;
pub mod embed;
mod error;
mod formats;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod hooks;
mod input;
mod keys_command;
mod man;
mod progress;
mod recording;
mod redact;
mod reload;
mod remote;
mod run_command;
mod serve;
mod store_command;
mod terminal;
mod upstream;
mod view;

use std::{ffi::OsString, panic};

use clap::{CommandFactory, Parser};
use cli::{Cli, Command};
use error::ExitCode;

/// Runs the command line `args`, which begins with the name of the program, and returns the exit code. Never ends the
/// process.
pub fn main_with(args: impl Iterator<Item = OsString>) -> u8 {
    let args: Vec<_> = args.collect();
    match panic::catch_unwind(|| run(args)) {
        Ok(code) => code.number(),
        Err(payload) => match payload.downcast::<ExitCode>() {
            Ok(code) => code.number(),
            Err(payload) => panic::resume_unwind(payload),
        },
    }
}

fn run(args: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // Also `--help` and `--version`, which are printed to stdout.
        Err(error) => {
            match error.use_stderr() {
                // A value that is refused may contain a password.
                true => anstream::eprint!("{}", config::mask::urls(&error.render().ansi().to_string())),
                // A closed pipe is no error of the command line.
                false => _ = error.print(),
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(error::Class::Usage as u8));
        }
    };
    let result = match cli.command {
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Run(arguments) => run_command::run(&arguments),
        Command::Record(arguments) => run_command::record(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Redact(arguments) => redact::run(&arguments),
        Command::Formats => formats::run(),
        Command::View(arguments) => view::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Health(arguments) => health::run(&arguments),
        Command::Config(command) => config_command::run(&command),
        Command::Audit(command) => audit_command::run(&command),
        Command::Keys(command) => keys_command::run(&command),
        Command::Store(command) => store_command::run(&command),
        Command::Completions { shell } => {
            // The generator panics on a write error, so it writes to memory first.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "agentwire", &mut script);
            println!("{}", String::from_utf8_lossy(&script).trim_end());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { folder } => man::write::<Cli>(&folder).map(|()| ExitCode::SUCCESS).map_err(|error| {
            error::Error::new(error::Class::Io, format!("`{}` cannot be written: {error}", folder.display()))
        }),
    };
    // Also after an error: the bar must not stay on the terminal.
    progress::finish();
    result.unwrap_or_else(|error| error.report())
}
