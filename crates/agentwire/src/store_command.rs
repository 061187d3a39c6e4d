//! `agentwire store`: statistics, vacuum and backup of a store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use agentwire_store::{Options, Stats, Store, StoreError};
use indicatif::{HumanBytes, ProgressBar};
use serde_json::json;

use crate::{
    cli::{StoreArgs, StoreCommand},
    config::{self, Config, ConfigFile},
    error::{Class, Error, ExitCode, Result},
};

/// Runs a `store` subcommand.
pub(crate) fn run(command: &StoreCommand) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(Class::Io, format!("cannot start: {error}")))?;
    runtime.block_on(async {
        match command {
            StoreCommand::Stats { args } => stats(args).await,
            StoreCommand::Vacuum { args } => vacuum(args).await,
            StoreCommand::Backup { to, args } => backup(args, to).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn stats(args: &StoreArgs) -> Result<()> {
    let (address, store) = open_existing(args).await?;
    let stats = store.stats().await.map_err(|error| failed(&address, &error))?;
    let Stats { backend, schema_version, threads, runs, live_runs, open_pending, feedback, events, .. } =
        stats;
    let Stats { log_bytes, bytes, free_bytes, .. } = stats;
    if args.json {
        let output = json!({
            "store": address, "backend": backend, "schemaVersion": schema_version, "threads": threads, "runs": runs,
            "liveRuns": live_runs, "openPending": open_pending, "feedback": feedback, "events": events,
            "logBytes": log_bytes, "bytes": bytes, "freeBytes": free_bytes,
        });
        println!("{output}");
        return Ok(());
    }
    println!("store     {address} ({backend}, schema {schema_version})");
    println!(
        "size      {} ({} of it free; `agentwire store vacuum` gives that back)",
        HumanBytes(bytes),
        HumanBytes(free_bytes)
    );
    println!("threads   {threads}");
    println!("runs      {runs} ({live_runs} live)");
    println!("events    {events} ({} of logs)", HumanBytes(log_bytes));
    println!("pending   {open_pending} open");
    println!("feedback  {feedback}");
    Ok(())
}

async fn vacuum(args: &StoreArgs) -> Result<()> {
    let (address, store) = open_existing(args).await?;
    let size =
        async || store.stats().await.map(|stats| stats.bytes).map_err(|error| failed(&address, &error));
    let before = size().await?;
    with_spinner("shrinking", store.vacuum()).await.map_err(|error| failed(&address, &error))?;
    let after = size().await?;
    let freed = before.saturating_sub(after);
    if args.json {
        println!("{}", json!({ "store": address, "bytesBefore": before, "bytes": after, "freed": freed }));
    } else {
        println!("{address}: {} → {} ({} freed)", HumanBytes(before), HumanBytes(after), HumanBytes(freed));
    }
    Ok(())
}

async fn backup(args: &StoreArgs, to: &Path) -> Result<()> {
    let (address, store) = open_existing(args).await?;
    let name = to.display();
    let io = |message: String| Error::new(Class::Io, message);
    if to.symlink_metadata().is_ok() {
        return Err(
            io(format!("`{name}` exists")).hint("a backup never overwrites anything: choose another name")
        );
    }
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(io(format!("there is no folder `{}` for the backup", folder.display())));
    }
    with_spinner("copying", store.backup(to)).await.map_err(|error| {
        let error = failed(&address, &error);
        Error { message: format!("cannot write `{name}`: {}", error.message), ..error }
    })?;
    let bytes = std::fs::metadata(to).map(|about| about.len()).unwrap_or_default();
    if args.json {
        println!("{}", json!({ "store": address, "backup": name.to_string(), "bytes": bytes }));
    } else {
        println!("{address} → {name} ({})", HumanBytes(bytes));
    }
    Ok(())
}

/// Shows a spinner while `work` runs.
async fn with_spinner<T>(label: &'static str, work: impl Future<Output = T>) -> T {
    // Only drawn on a terminal.
    let bar = ProgressBar::new_spinner().with_message(label);
    bar.enable_steady_tick(Duration::from_millis(120));
    let result = work.await;
    bar.finish_and_clear();
    result
}

/// Opens an existing store; these commands must not create one.
async fn open_existing(args: &StoreArgs) -> Result<(String, Arc<dyn Store>)> {
    let address = address(args)?;
    let Some(path) = address.strip_prefix("sqlite:") else {
        let error =
            Error::new(Class::Usage, format!("the store `{address}` lives and dies with its gateway"));
        return Err(error.hint("name a file with `--store sqlite:PATH`"));
    };
    match std::fs::metadata(path) {
        Ok(about) if about.is_file() => {}
        Ok(_) => return Err(Error::new(Class::Io, format!("`{path}` is not a file"))),
        Err(error) => {
            let error = Error::new(Class::Io, format!("there is no store at `{path}`: {error}"));
            return Err(error.hint("`agentwire serve` makes one; `--store sqlite:PATH` names another"));
        }
    }
    let store = open(&address, Options::default()).await?;
    Ok((address, store))
}

fn address(args: &StoreArgs) -> Result<String> {
    if let Some(address) = &args.store {
        return Ok(address.clone());
    }
    let implied = PathBuf::from(config::FILE);
    match args.config.as_deref().or_else(|| implied.exists().then_some(&implied)) {
        Some(file) => Ok(ConfigFile::load(file)?.config.store),
        None => Ok(Config::default().store),
    }
}

/// Opens a store; creates a missing file.
pub(crate) async fn open(address: &str, options: Options) -> Result<Arc<dyn Store>> {
    agentwire_store::open(address, options).await.map_err(|error| failed(address, &error))
}

/// A store error with its causes and a hint.
pub(crate) fn failed(address: &str, error: &StoreError) -> Error {
    let mut message = format!("store `{address}`: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    let path = address.strip_prefix("sqlite:").unwrap_or(address);
    let class = if matches!(error, StoreError::Address(_)) { Class::Usage } else { Class::Io };
    let failed = Error::new(class, message);
    match error {
        StoreError::Busy => {
            failed.hint("another process writes to it; stop that, or name another with `--store`")
        }
        StoreError::Corrupt(_) => {
            failed.hint(format!("put a backup in its place, or move `{path}` away to begin anew"))
        }
        StoreError::Foreign(_) => failed.hint("name another file with `--store sqlite:PATH`"),
        StoreError::Version { .. } => failed.hint("use the newer version of agentwire that wrote it"),
        StoreError::Full => failed.hint("make room on the disk"),
        StoreError::Io(_) => {
            let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
            match folder.filter(|folder| !folder.is_dir()) {
                Some(folder) => {
                    failed.hint(format!("there is no folder `{}`: make it first", folder.display()))
                }
                None => failed.hint("check that the folder and the file can be written"),
            }
        }
        _ => failed,
    }
}
