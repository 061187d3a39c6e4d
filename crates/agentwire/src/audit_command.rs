//! `agentwire audit`: exports and verifies the audit log.

use std::{
    io::{self, Write},
    path::Path,
};

use agentwire_gateway::ops::audit;

use crate::{
    cli::AuditCommand,
    error::{Class, Error, ExitCode, Result},
};

/// Runs an `audit` subcommand.
pub(crate) fn run(command: &AuditCommand) -> Result<ExitCode> {
    let AuditCommand::Export { file } = command;
    export(file)
}

fn export(file: &Path) -> Result<ExitCode> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let wrong = audit::verify(file, |line| writeln!(out, "{line}"))
        .and_then(|wrong| out.flush().map(|()| wrong))
        .map_err(|error| Error::new(Class::Io, format!("cannot read `{}`: {error}", file.display())))?;
    for tampered in &wrong {
        anstream::eprintln!("{}: {tampered}", file.display());
    }
    Ok(ExitCode::from(u8::from(!wrong.is_empty())))
}
