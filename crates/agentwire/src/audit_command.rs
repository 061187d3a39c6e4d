//! `agentwire audit`: exports and verifies the audit log. Several gateways write one chain each; their lines are merged by time.

use std::{
    io::{self, Write},
    iter::Peekable,
    path::{Path, PathBuf},
    sync::mpsc::{self, IntoIter},
    thread,
};

use agentwire_gateway::{
    ops::audit::{self, ChainError},
    settings::AuditSettings,
};
use serde_json::Value;

use crate::{
    cli::{AuditArgs, AuditCommand},
    config::{self, ConfigFile},
    error::{Class, Error, ExitCode, Result},
};

/// Lines of a chain that wait for those of others.
const QUEUE: usize = 1024;

/// Runs an `audit` subcommand.
pub(crate) fn run(command: &AuditCommand) -> Result<ExitCode> {
    let (AuditCommand::Export(args) | AuditCommand::Verify(args)) = command;
    let settings = settings(args.config.as_deref())?;
    let chains = chains(args, settings.as_ref())?;
    let key = settings.and_then(|settings| settings.key).map(|key| key.read()).transpose();
    let key = key.map_err(|error| Error::new(Class::Usage, format!("audit.key: {error}")))?;
    if args.from > 0 && chains.len() > 1 {
        let error =
            Error::new(Class::Usage, format!("`--from` is for one chain, and there are {}", chains.len()));
        return Err(error.hint("name the file of one"));
    }
    let is_export = matches!(command, AuditCommand::Export(_));
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut wrong = Vec::new();
    let read = read_chains(&chains, key.as_deref(), args.from, |line| match is_export {
        true => writeln!(out, "{line}"),
        false => Ok(()),
    })?;
    for (chain, (count, problems)) in chains.iter().zip(read) {
        if !is_export && problems.is_empty() {
            let kind = if key.is_some() { "with the key" } else { "without a key" };
            writeln!(out, "{}: {count} lines, verified {kind}", chain.display())
                .map_err(|error| failed(chain, &error))?;
        }
        wrong.extend(problems);
    }
    out.flush().map_err(|error| Error::new(Class::Io, format!("cannot write: {error}")))?;
    for tampered in &wrong {
        anstream::eprintln!("{tampered}");
    }
    Ok(ExitCode::from(u8::from(!wrong.is_empty())))
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::new(Class::Io, format!("cannot read `{}`: {error}", path.display()))
}

/// The time of a line.
fn time_of(line: &str) -> Option<String> {
    Some(serde_json::from_str::<Value>(line).ok()?.get("at")?.as_str()?.to_owned())
}

/// Verifies chains, and passes their lines to `sink` in the order of time; returns the count of lines and the broken places of each.
fn read_chains(
    chains: &[PathBuf],
    key: Option<&[u8]>,
    from: u64,
    mut sink: impl FnMut(&str) -> io::Result<()>,
) -> Result<Vec<(usize, Vec<ChainError>)>> {
    let verify = |path: &Path, sink: &mut dyn FnMut(&str) -> io::Result<()>| {
        let mut count = 0;
        let wrong = audit::verify_from(path, key, from, |line| {
            count += 1;
            sink(line)
        });
        wrong.map(|wrong| (count, wrong)).map_err(|error| failed(path, &error))
    };
    if let [path] = chains {
        return Ok(vec![verify(path, &mut sink)?]);
    }
    thread::scope(|scope| {
        let mut lines: Vec<Peekable<IntoIter<(String, String)>>> = Vec::new();
        let mut readers = Vec::new();
        for path in chains {
            let (send, receive) = mpsc::sync_channel(QUEUE);
            lines.push(receive.into_iter().peekable());
            readers.push(scope.spawn(move || {
                let mut last = String::new();
                verify(path, &mut |line| {
                    // A line without a time stays behind the one before it.
                    last = time_of(line).unwrap_or(std::mem::take(&mut last));
                    send.send((last.clone(), line.to_owned())).map_err(io::Error::other)
                })
            }));
        }
        let written = loop {
            let next = lines
                .iter_mut()
                .filter_map(|lines| lines.peek().map(|(at, _)| at.clone()).map(|at| (at, lines)))
                .min_by(|(first, _), (second, _)| first.cmp(second));
            let Some((_, lines)) = next else { break Ok(()) };
            if let Some((_, line)) = lines.next()
                && let Err(error) = sink(&line)
            {
                break Err(Error::new(Class::Io, format!("cannot write: {error}")));
            }
        };
        // Ends the readers if the output is gone.
        drop(lines);
        let read: Vec<_> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        written?;
        read.into_iter().collect()
    })
}

/// The settings of the audit log in the configuration that is named, or in the one that is there.
fn settings(path: Option<&Path>) -> Result<Option<AuditSettings>> {
    let implied = Path::new(config::FILE);
    let Some(path) = path.or_else(|| implied.exists().then_some(implied)) else { return Ok(None) };
    Ok(ConfigFile::load(path)?.config.settings.audit)
}

/// The file of each chain.
fn chains(args: &AuditArgs, settings: Option<&AuditSettings>) -> Result<Vec<PathBuf>> {
    let mut files = args.files.clone();
    if files.is_empty() {
        let file = settings.map(|settings| settings.file.clone());
        files.push(file.ok_or_else(|| {
            Error::new(Class::Usage, "there is no file to read")
                .hint("name it, or a configuration with `audit`: `--config agentwire.toml`")
        })?);
    }
    let mut chains = Vec::new();
    for file in &files {
        for chain in audit::chains(file).map_err(|error| failed(file, &error))? {
            if !chains.contains(&chain) {
                chains.push(chain);
            }
        }
    }
    Ok(chains)
}
