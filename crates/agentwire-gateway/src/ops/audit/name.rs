//! The names of audit chains. Gateways that share a server write one chain each, in a file with its name: `audit.jsonl` of the
//! gateway `a` is `audit.a.jsonl`, and each of its lines has `"chain":"a"`. Lines of all gateways can be put together, and
//! each chain is verified on its own.

use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::chain::head_path;
use crate::ops::instance_lock::host_name;

/// Gateways on one machine with one name and one folder.
const MAX_SLOTS: usize = 1000;

/// The longest part of a name that is used.
const MAX_NAME: usize = 80;

/// The chain that a process writes.
#[derive(Debug)]
pub(super) struct ChainClaim {
    /// The name of the chain; none for the only chain of a store without a server.
    pub(super) name: Option<String>,
    pub(super) path: PathBuf,
    /// Held while the process lives, so that another one on this machine takes another name.
    _lock: Option<File>,
}

impl ChainClaim {
    /// The chain without a name.
    pub(super) fn unnamed(file: &Path) -> Self {
        Self { name: None, path: file.to_owned(), _lock: None }
    }

    /// The chain `name`, or `name-2` and so on if other processes on this machine write those before it. A process that starts
    /// again goes on with the chain that it had.
    pub(super) fn take(file: &Path, name: Option<&str>) -> io::Result<Self> {
        let base = safe_name(name.unwrap_or(&host_name()));
        for slot in 1..=MAX_SLOTS {
            let name = if slot == 1 { base.clone() } else { format!("{base}-{slot}") };
            let path = named(file, &name);
            let lock =
                OpenOptions::new().create(true).truncate(false).write(true).open(with(&path, ".owner"))?;
            match lock.try_lock() {
                Err(TryLockError::WouldBlock) => {}
                // Some network file systems have no locks; their machines have names of their own.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    return Ok(Self { name: Some(name), path, _lock: None });
                }
                Err(TryLockError::Error(error)) => return Err(error),
                Ok(()) => return Ok(Self { name: Some(name), path, _lock: Some(lock) }),
            }
        }
        Err(io::Error::other(format!("{MAX_SLOTS} processes write audit chains named `{base}`")))
    }

    /// The chain of the commands of this machine, which write one after the other.
    pub(super) fn of_commands(file: &Path, name: Option<&str>) -> Self {
        let name = format!("{}-commands", safe_name(name.unwrap_or(&host_name())));
        Self { path: named(file, &name), name: Some(name), _lock: None }
    }
}

/// The letters of a name that are the same in every file system.
fn safe_name(name: &str) -> String {
    let keep = |letter: char| {
        if letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.') { letter } else { '_' }
    };
    let name: String = name.chars().take(MAX_NAME).map(keep).collect();
    if name.is_empty() { "gateway".to_owned() } else { name }
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The begin and the end of the names of chains: `audit.` and `.jsonl`.
fn parts(file: &Path) -> (String, String) {
    let of = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let extension = of(file.extension()).unwrap_or_else(|| "jsonl".into());
    (format!("{}.", of(file.file_stem()).unwrap_or_default()), format!(".{extension}"))
}

fn named(file: &Path, name: &str) -> PathBuf {
    let (begin, end) = parts(file);
    file.with_file_name(format!("{begin}{name}{end}"))
}

/// The chains of an audit log, each by its file: of a folder all that are in it, of a file its own and those with names beside it.
/// A file without any is returned as it is.
///
/// # Errors
/// When the folder cannot be read.
pub fn chains(path: &Path) -> io::Result<Vec<PathBuf>> {
    let is_folder = path.is_dir();
    let folder = if is_folder { Some(path) } else { path.parent() };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    let (begin, end) = if is_folder { (String::new(), String::new()) } else { parts(path) };
    let mut found = BTreeSet::new();
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
    for entry in entries.into_iter().flatten() {
        let name = entry?.file_name();
        let Some(chain) = name.to_str().and_then(|name| name.strip_suffix(".head")) else { continue };
        if chain.len() > begin.len() + end.len() && chain.starts_with(&begin) && chain.ends_with(&end) {
            found.insert(folder.map_or_else(|| PathBuf::from(chain), |folder| folder.join(chain)));
        }
    }
    if !is_folder && (found.is_empty() || path.exists() || head_path(path).exists()) {
        found.insert(path.to_owned());
    }
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no audit log in this folder"));
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use agentwire_store::Owner;

    use super::*;
    use crate::ops::audit::{chain::AuditFile, record::Record, verify::verify};

    fn add(claim: &ChainClaim, count: usize) {
        let mut file =
            AuditFile::open(&claim.path, None, None).expect("it can be opened").named(claim.name.clone());
        for _ in 0..count {
            file.add(&Record::new(&Owner::new("t", "u", "a"), "start")).expect("it can be written");
        }
    }

    #[test]
    fn processes_on_one_machine_have_chains_of_their_own_and_keep_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("audit.jsonl");
        let take = || ChainClaim::take(&file, Some("a machine")).expect("a chain");
        let (first, second) = (take(), take());
        let names = [&first, &second].map(|claim| claim.name.clone().expect("a name"));
        assert_eq!(names, ["a_machine", "a_machine-2"]);
        assert_eq!(second.path, folder.path().join("audit.a_machine-2.jsonl"));
        add(&first, 3);
        add(&second, 2);
        drop(first);
        let again = take();
        assert_eq!(again.name.as_deref(), Some("a_machine"));
        add(&again, 1);
        let commands = ChainClaim::of_commands(&file, Some("a machine"));
        add(&commands, 1);
        let found = chains(&file).expect("they are found");
        assert_eq!(found, chains(folder.path()).expect("they are found"));
        let mut counts = Vec::new();
        for path in &found {
            let mut lines = 0;
            let wrong = verify(path, None, |line| {
                lines += 1;
                assert!(line.contains("\"chain\":\"a_machine"), "{line}");
                Ok(())
            });
            assert_eq!(wrong.expect("it can be read"), []);
            counts.push(lines);
        }
        assert_eq!(counts, [2, 1, 4]);
    }

    #[test]
    fn a_log_without_names_is_one_chain() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("audit");
        assert_eq!(chains(&file).expect("itself"), std::slice::from_ref(&file));
        add(&ChainClaim::unnamed(&file), 2);
        assert_eq!(chains(&file).expect("itself"), std::slice::from_ref(&file));
        // Beside one with a name, as after a change of the store.
        let named = ChainClaim::take(&file, Some("b")).expect("a chain");
        assert_eq!(named.path, folder.path().join("audit.b.jsonl"));
        add(&named, 1);
        assert_eq!(chains(&file).expect("both"), [file, named.path]);
    }

    /// Lines of one chain in the file of another.
    #[test]
    fn a_chain_has_one_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("audit.jsonl");
        let claim = ChainClaim::take(&file, Some("a")).expect("a chain");
        add(&claim, 2);
        add(&ChainClaim { name: Some("b".into()), path: claim.path.clone(), _lock: None }, 1);
        let wrong = verify(&claim.path, None, |_| Ok(())).expect("it can be read");
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert_eq!(wrong[0].line, 3);
    }
}
