//! `agentwire store`: statistics, migration, verification, vacuum, backup and copy of a store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use agentwire_store::{CopyError, Options, PostgresStore, Stats, Store, StoreError, redact_address};
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
            StoreCommand::Stats { args } => stats(args).await?,
            StoreCommand::Migrate { check, args } => return migrate(args, *check).await,
            StoreCommand::Verify { args } => verify(args).await?,
            StoreCommand::Copy { from, to, json } => copy(from, to, *json).await?,
            StoreCommand::Vacuum { args } => vacuum(args).await?,
            StoreCommand::Backup { to, args } => backup(args, to).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn migrate(args: &StoreArgs, check: bool) -> Result<ExitCode> {
    let address = address(args)?;
    let shown = redact_address(&address);
    if !is_postgres(&address) {
        // The other stores have nothing that must be prepared: a file is migrated when it is opened.
        let text =
            if check { "nothing to do" } else { "nothing to do: a file is migrated when it is opened" };
        if args.json {
            println!("{}", json!({ "store": shown, "change": false }));
        } else {
            println!("{shown}: {text}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let done = if check {
        PostgresStore::check_schema(&address).await
    } else {
        PostgresStore::migrate(&address).await
    };
    let (found, known) = done.map_err(|error| failed(&address, &error))?;
    let is_change = found < known;
    if args.json {
        println!(
            "{}",
            json!({ "store": shown, "change": is_change, "schemaVersion": found, "needed": known })
        );
    } else if !is_change {
        println!("{shown}: nothing to do, the schema has version {found}");
    } else if check {
        println!("{shown}: the schema has version {found}, version {known} is needed");
    } else {
        println!("{shown}: schema version {found} → {known}");
    }
    Ok(if check && is_change { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

async fn verify(args: &StoreArgs) -> Result<()> {
    let (address, store) = open_existing(args).await?;
    with_spinner("checking", store.verify()).await.map_err(|error| failed(&address, &error))?;
    let shown = redact_address(&address);
    if args.json {
        println!("{}", json!({ "store": shown, "ok": true }));
    } else {
        println!("{shown}: no defects found");
    }
    Ok(())
}

async fn copy(from: &str, to: &str, json: bool) -> Result<()> {
    let (from, to) = (resolve(from)?, resolve(to)?);
    let source = open_known(&from).await?;
    let target = open(&to, Options::default()).await?;
    let copied = with_spinner("copying", agentwire_store::copy(&*source, &*target)).await;
    let copied = copied.map_err(|error| match error {
        CopyError::NotEmpty => {
            Error::new(Class::Usage, format!("the store `{}` is not empty", redact_address(&to)))
                .hint("copy to a new store: data of two stores cannot be merged")
        }
        CopyError::Read(error) => failed(&from, &error),
        CopyError::Write(error) => failed(&to, &error),
    })?;
    let (from, to) = (redact_address(&from), redact_address(&to));
    if json {
        println!(
            "{}",
            json!({ "from": from, "to": to, "threads": copied.threads, "runs": copied.runs, "keys": copied.keys })
        );
    } else {
        println!("{from} → {to}: {} threads, {} runs, {} API keys", copied.threads, copied.runs, copied.keys);
    }
    Ok(())
}

async fn stats(args: &StoreArgs) -> Result<()> {
    let (address, store) = open_existing(args).await?;
    let stats = store.stats().await.map_err(|error| failed(&address, &error))?;
    let Stats { backend, schema_version, threads, runs, live_runs, open_pending, feedback, events, .. } =
        stats;
    let Stats { log_bytes, bytes, free_bytes, .. } = stats;
    let address = redact_address(&address);
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
    if backend == "postgres" {
        println!("size      {}", HumanBytes(bytes));
    } else {
        println!(
            "size      {} ({} of it free; `agentwire store vacuum` gives that back)",
            HumanBytes(bytes),
            HumanBytes(free_bytes)
        );
    }
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
    let address = redact_address(&address);
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
    let address = redact_address(&address);
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
    let store = open_known(&address).await?;
    Ok((address, store))
}

async fn open_known(address: &str) -> Result<Arc<dyn Store>> {
    if is_postgres(address) {
        let (found, _) =
            PostgresStore::check_schema(address).await.map_err(|error| failed(address, &error))?;
        if found == 0 {
            let error = Error::new(Class::Io, format!("there is no store in `{}`", redact_address(address)));
            return Err(error.hint("`agentwire serve` or `agentwire store migrate` makes one"));
        }
        return open(address, Options::default()).await;
    }
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
    open(address, Options::default()).await
}

fn is_postgres(address: &str) -> bool {
    address.starts_with("postgres://") || address.starts_with("postgresql://")
}

/// The address of a store, read from its environment variable if it names one.
pub(crate) fn resolve(address: &str) -> Result<String> {
    let Some(name) = address.strip_prefix("env:") else { return Ok(address.to_owned()) };
    let usage = |message: String| Error::new(Class::Usage, message);
    let value = std::env::var(name).map_err(|_| {
        usage(format!("the environment variable `{name}` is not set"))
            .hint("it holds the address of the store, as `postgres://user:password@host/database`")
    })?;
    match config::store(&value) {
        Ok(address) if !address.starts_with("env:") => Ok(address),
        // Without its value, which may hold a password.
        _ => Err(usage(format!("the environment variable `{name}` does not hold the address of a store"))),
    }
}

fn address(args: &StoreArgs) -> Result<String> {
    if let Some(address) = &args.store {
        return resolve(address);
    }
    let implied = PathBuf::from(config::FILE);
    match args.config.as_deref().or_else(|| implied.exists().then_some(&implied)) {
        Some(file) => resolve(&ConfigFile::load(file)?.config.store),
        None => Ok(Config::default().store),
    }
}

/// Opens a store; creates a missing file.
pub(crate) async fn open(address: &str, options: Options) -> Result<Arc<dyn Store>> {
    agentwire_store::open(address, options).await.map_err(|error| failed(address, &error))
}

/// A store error with its causes and a hint.
pub(crate) fn failed(address: &str, error: &StoreError) -> Error {
    let mut message = match error {
        StoreError::Address(_) => error.to_string(),
        _ => format!("store `{}`: {error}", redact_address(address)),
    };
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    let path = address.strip_prefix("sqlite:").unwrap_or(address);
    let class = if matches!(error, StoreError::Address(_)) { Class::Usage } else { Class::Io };
    let failed = Error::new(class, message);
    if is_postgres(address) {
        return match error {
            StoreError::Version { .. } => failed.hint("use the newer version of agentwire that migrated it"),
            StoreError::Foreign(_) => failed.hint("name another schema with `?schema=NAME`"),
            StoreError::Full => failed.hint("make room on the server's disk"),
            StoreError::Corrupt(_) => failed.hint("restore a backup of the database"),
            StoreError::Outdated { .. } => {
                failed.hint("gateways of the version before can keep running meanwhile")
            }
            StoreError::Refused(_) => failed
                .hint("check the user, its password and rights, the name of the database, and `sslmode`"),
            StoreError::Io(_) => failed.hint("check the address and the server"),
            _ => failed,
        };
    }
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
