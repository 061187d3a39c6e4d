//! `agentwire audit`: exports and verifies the audit log.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use agentwire_gateway::{ops::audit, settings::AuditSettings};

use crate::{
    cli::{AuditArgs, AuditCommand},
    config::{self, ConfigFile},
    error::{Class, Error, ExitCode, Result},
};

/// Runs an `audit` subcommand.
pub(crate) fn run(command: &AuditCommand) -> Result<ExitCode> {
    let (AuditCommand::Export(args) | AuditCommand::Verify(args)) = command;
    let settings = settings(args.config.as_deref())?;
    let file = file(args, settings.as_ref())?;
    let key = settings.and_then(|settings| settings.key).map(|key| key.read()).transpose();
    let key = key.map_err(|error| Error::new(Class::Usage, format!("audit.key: {error}")))?;
    let failed =
        |error: io::Error| Error::new(Class::Io, format!("cannot read `{}`: {error}", file.display()));
    let mut count = 0;
    let is_export = matches!(command, AuditCommand::Export(_));
    let mut out = io::BufWriter::new(io::stdout().lock());
    let wrong = audit::verify_from(&file, key.as_deref(), args.from, |line| {
        count += 1;
        if is_export { writeln!(out, "{line}") } else { Ok(()) }
    });
    let wrong = wrong.and_then(|wrong| out.flush().map(|()| wrong)).map_err(failed)?;
    for tampered in &wrong {
        anstream::eprintln!("{tampered}");
    }
    if !is_export && wrong.is_empty() {
        let kind = if key.is_some() { "with the key" } else { "without a key" };
        writeln!(out, "{}: {count} lines, verified {kind}", file.display()).map_err(failed)?;
    }
    Ok(ExitCode::from(u8::from(!wrong.is_empty())))
}

/// The settings of the audit log in the configuration that is named, or in the one that is there.
fn settings(path: Option<&Path>) -> Result<Option<AuditSettings>> {
    let implied = Path::new(config::FILE);
    let Some(path) = path.or_else(|| implied.exists().then_some(implied)) else { return Ok(None) };
    Ok(ConfigFile::load(path)?.config.settings.audit)
}

fn file(args: &AuditArgs, settings: Option<&AuditSettings>) -> Result<PathBuf> {
    let file = args.file.clone().or_else(|| settings.map(|settings| settings.file.clone()));
    file.ok_or_else(|| {
        Error::new(Class::Usage, "there is no file to read")
            .hint("name it, or a configuration with `audit`: `--config agentwire.toml`")
    })
}
