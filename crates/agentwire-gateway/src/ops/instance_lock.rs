//! The name of this process, and the proof that its predecessor on the same store is dead.
//!
//! A claim on a run names the process that holds it. The claim alone does not show whether that process is alive, so its
//! runs would have to wait until the claim expires. Beside an SQLite file there is therefore a lock file: the process that
//! holds the lock writes its name into it, and the operating system releases the lock however the process dies. The next
//! process that acquires the lock finds the name of a dead one.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use agentwire_store::Holder;
use ring::rand::{SecureRandom, SystemRandom};

/// The name of this process, and that of its predecessor if it is known to be dead.
#[derive(Debug)]
pub struct InstanceLock {
    /// The name under which this process claims runs.
    pub holder: Holder,
    /// A dead process, whose runs can be ended at once.
    pub dead: Option<Holder>,
    /// Holds the file lock until it is dropped.
    _lock: Option<File>,
}

/// The name of this machine or container, for people.
pub(crate) fn host_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String =
        host.trim().chars().filter(|it| it.is_ascii_alphanumeric() || *it == '-').take(40).collect();
    if host.is_empty() { "gateway".to_owned() } else { host }
}

/// A name for people, which is not unique in containers, and 128 random bits.
fn new_holder() -> Holder {
    let host = host_name();
    let mut bits = [0; 16];
    if SystemRandom::new().fill(&mut bits).is_err() {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        bits = since.as_nanos().to_be_bytes();
    }
    Holder::from(format!("{host}-{}-{:032x}", std::process::id(), u128::from_be_bytes(bits)))
}

/// Bytes that are read from a lock file; real names are much shorter.
const LONGEST_NAME: u64 = 200;

impl InstanceLock {
    /// The lock of a gateway on the store at `address`. Stores other than SQLite files have none: their claims expire.
    #[must_use]
    pub fn at(address: &str) -> Self {
        let mut instance = Self { holder: new_holder(), dead: None, _lock: None };
        let Some(path) = address.strip_prefix("sqlite:") else { return instance };
        let path = format!("{path}.holder");
        match instance.acquire(&path) {
            Ok(Some(file)) => instance._lock = Some(file),
            Ok(None) => tracing::info!(path, "another gateway uses this store too"),
            Err(error) => {
                tracing::warn!(path, %error, "no lock file: runs of a crashed gateway end when their claims expire")
            }
        }
        instance
    }

    fn acquire(&mut self, path: &str) -> std::io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        if file.try_lock().is_err() {
            return Ok(None);
        }
        let mut predecessor = String::new();
        Read::by_ref(&mut file).take(LONGEST_NAME).read_to_string(&mut predecessor)?;
        self.dead = (!predecessor.trim().is_empty()).then(|| Holder::from(predecessor.trim()));
        file.seek(SeekFrom::Start(0))?;
        file.set_len(0)?;
        file.write_all(self.holder.as_str().as_bytes())?;
        Ok(Some(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_learns_the_dead_holder_and_a_concurrent_process_does_not() {
        let dir = std::env::temp_dir().join(format!("agentwire-presence-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for the test");
        let address = format!("sqlite:{}", dir.join("a.db").display());
        let first = InstanceLock::at(&address);
        assert_eq!(first.dead, None);
        let second = InstanceLock::at(&address);
        assert_eq!(second.dead, None, "the first one lives");
        assert_ne!(first.holder, second.holder);
        let bits = second.holder.as_str().rsplit_once('-').map(|(_, bits)| bits.len());
        assert_eq!(bits, Some(32), "{:?}", second.holder);
        let name = first.holder.clone();
        drop(first);
        assert_eq!(InstanceLock::at(&address).dead, Some(name));
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }
}
