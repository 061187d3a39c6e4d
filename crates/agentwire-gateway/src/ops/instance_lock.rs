//! Who this process is, and whether the one before it is dead.
//!
//! A claim on a run names the process that holds it. After a crash nobody can tell from the claim alone whether its
//! holder still lives, so one would have to wait until it expires. Beside an SQLite file there is therefore a
//! lock file: whoever holds its lock writes its name into it, and the system gives the lock up when the process dies,
//! however it dies. The next process that gets the lock knows that the name in the file is that of a dead one.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use agentwire_store::Holder;

/// The name of this process, and that of its predecessor if it is known to be dead.
#[derive(Debug)]
pub struct InstanceLock {
    /// The name under which this process claims runs.
    pub holder: Holder,
    /// A process whose runs can be ended at once.
    pub dead: Option<Holder>,
    /// Holds the lock for as long as this lives.
    _lock: Option<File>,
}

/// The longest name that is read from a lock file; ours are much shorter.
const LONGEST_NAME: u64 = 200;

impl InstanceLock {
    /// For a gateway on the store at `address`. Without a lock it goes by expiry alone.
    #[must_use]
    pub fn at(address: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let holder = Holder::from(format!("gateway-{}-{:x}", std::process::id(), since.as_nanos()));
        let mut presence = Self { holder, dead: None, _lock: None };
        let Some(path) = address.strip_prefix("sqlite:") else { return presence };
        let path = format!("{path}.holder");
        match presence.take_lock(&path) {
            Ok(Some(file)) => presence._lock = Some(file),
            Ok(None) => tracing::info!(path, "another gateway uses this store too"),
            Err(error) => {
                tracing::warn!(path, %error, "no lock file: runs of a crashed gateway end when their claims expire")
            }
        }
        presence
    }

    fn take_lock(&mut self, path: &str) -> std::io::Result<Option<File>> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.try_lock().is_err() {
            return Ok(None);
        }
        let mut before = String::new();
        Read::by_ref(&mut file).take(LONGEST_NAME).read_to_string(&mut before)?;
        self.dead = (!before.trim().is_empty()).then(|| Holder::from(before.trim()));
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
    fn the_next_one_learns_who_died_and_a_neighbour_does_not() {
        let dir = std::env::temp_dir().join(format!("agentwire-presence-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for the test");
        let address = format!("sqlite:{}", dir.join("a.db").display());
        let first = InstanceLock::at(&address);
        assert_eq!(first.dead, None);
        assert_eq!(InstanceLock::at(&address).dead, None, "the first one lives");
        let name = first.holder.clone();
        drop(first);
        assert_eq!(InstanceLock::at(&address).dead, Some(name));
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }
}
