//! A PostgreSQL server for tests, by `scripts/postgres`.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres")
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("scripts/postgres runs");
    assert!(
        output.status.success(),
        "scripts/postgres failed; the tests need PostgreSQL (`scripts/postgres install`): {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The address of the server that all tests share.
pub(crate) fn shared() -> String {
    std::env::var("AGENTWIRE_TEST_POSTGRES").unwrap_or_else(|_| run(Command::new(script()).arg("address")))
}

/// An address with a schema of its own on the shared server.
pub(crate) fn fresh() -> String {
    with_schema(&shared())
}

/// The same, through PgBouncer in transaction mode.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn fresh_pooled() -> String {
    with_schema(&run(Command::new(script()).args(["address", "pooled"])))
}

fn with_schema(server: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("{server}?schema=t{}_{}_{number}", std::process::id(), nanos % 1_000_000_000)
}

/// Runs SQL in the schema of an address, which the text names `agentwire.`.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn psql(address: &str, sql: &str) -> String {
    let (base, query) = address.split_once('?').unwrap();
    let schema = query.split('&').find_map(|pair| pair.strip_prefix("schema=")).unwrap();
    run(Command::new("psql")
        .args(["-qAt", "-v", "ON_ERROR_STOP=1", "-c"])
        .arg(sql.replace("agentwire.", &format!("{schema}.")))
        .arg(base))
}

/// A server of its own, for tests that kill it.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) struct Server {
    folder: tempfile::TempDir,
    settings: &'static str,
    pub(crate) address: String,
}

#[allow(dead_code, reason = "not every test needs it")]
impl Server {
    pub(crate) fn start(settings: &'static str) -> Self {
        let mut server = Self { folder: tempfile::tempdir().unwrap(), settings, address: String::new() };
        server.start_again();
        server
    }

    /// The log of the server since its start.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.data().join("server.log")).unwrap()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    /// Starts the server, at the same address as before.
    pub(crate) fn start_again(&mut self) {
        // The server's user must reach the folder.
        run(Command::new("chmod").arg("755").arg(self.folder.path()));
        self.address =
            run(Command::new(script()).env("PG_SETTINGS", self.settings).arg("start").arg(self.data()));
    }

    /// Kills the server and all its processes.
    pub(crate) fn kill(&self) {
        let pid = std::fs::read_to_string(self.data().join("data/postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap().to_owned();
        let children = Command::new("pgrep").args(["-P", &pid]).output().unwrap();
        let children = String::from_utf8(children.stdout).unwrap();
        Command::new("kill").arg("-9").arg(&pid).args(children.split_whitespace()).status().unwrap();
        // Until none is left: a new server waits for the memory of the old one.
        for process in children.split_whitespace().chain([pid.as_str()]) {
            while Path::new("/proc").join(process).join("exe").exists()
                && Command::new("kill").args(["-0", process]).output().unwrap().status.success()
                && !is_zombie(process)
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
}

#[allow(dead_code, reason = "not every test needs it")]
fn is_zombie(process: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process).join("stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with('Z'))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(self.data()).output();
    }
}
