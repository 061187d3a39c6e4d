//! The file of the audit log: JSON lines, each chained to the previous one by its hash or, with a key, by its MAC.
//!
//! A changed, removed or inserted line is detected, because the hashes after it no longer match; the end of the chain is
//! also kept in a file beside it, so that missing last lines are detected. Without a key, whoever owns both files can
//! rewrite them. With one, nobody can who does not have it; only files of an earlier time can be put back.
//!
//! The chain goes on over rotated files: another program may rename the file, or copy and empty it, and `rotate` makes the
//! gateway rename it. The file with the end of the chain stays, and is what several gateways lock.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use ring::hmac;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::record::Record;

/// The longest line that is searched for at the end of a file.
pub(super) const MAX_LINE: u64 = 64 << 10;

/// The `prev` of the first line.
pub(super) const FIRST_PREV: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The end of a chain: the number and the seal of its last line.
pub(super) type ChainEnd = (u64, String);

/// Seals lines: by a MAC if there is a key, else by a hash.
pub(super) struct Sealer(Option<hmac::Key>);

impl Sealer {
    pub(super) fn new(key: Option<&[u8]>) -> Self {
        Self(key.map(|key| hmac::Key::new(hmac::HMAC_SHA256, key)))
    }

    /// The member of a line with its seal.
    fn member(&self) -> &'static str {
        if self.0.is_some() { "mac" } else { "hash" }
    }

    pub(super) fn seal(&self, text: &str) -> String {
        match &self.0 {
            Some(key) => hex(hmac::sign(key, text.as_bytes()).as_ref()),
            None => hash(text.as_bytes()),
        }
    }

    /// The content of the file with the end of the chain. With a key it has a seal of its own: otherwise the last lines
    /// could be removed by copying the seal of the line before them.
    fn head(&self, (number, seal): &ChainEnd) -> String {
        let mut head = json!({"seq": number, self.member(): seal});
        if self.0.is_some() {
            head["seal"] = self.seal(&format!("head {number} {seal}")).into();
        }
        head.to_string()
    }

    /// The end of the chain that a head names; `None` if it was not written with the key.
    pub(super) fn read_head(&self, text: &str) -> Option<ChainEnd> {
        let end = end_of(text, self.member())?;
        (self.0.is_none() || self.head(&end) == text).then_some(end)
    }
}

/// The path of the file with the end of the chain: the audit file with the suffix `.head`.
pub(super) fn head_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".head");
    name.into()
}

/// The number and the seal of a line.
pub(super) fn end_of(line: &str, member: &str) -> Option<ChainEnd> {
    let line: Value = serde_json::from_str(line).ok()?;
    Some((line["seq"].as_u64()?, line[member].as_str()?.to_owned()))
}

/// Opens a file that only its owner can read.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.read(true).create(true).open(path)
}

/// True if another file has the path of an open one.
#[cfg(unix)]
fn is_replaced(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(there)) => id(open) != id(there),
        _ => true,
    }
}

#[cfg(not(unix))]
fn is_replaced(_: &File, _: &Path) -> bool {
    false
}

/// Tries to lock the end of the chain before its file is taken for one that is replaced all the time.
const MAX_LOCKS: usize = 10;

/// The audit file and the end of its chain.
///
/// A chain cannot show that its last lines are missing, so its end is written to a file beside it. Several processes may
/// share one file: a writer locks the end and first reads the lines that others have added.
pub(super) struct AuditFile {
    path: PathBuf,
    /// The name of the chain, in each of its lines.
    name: Option<String>,
    sealer: Sealer,
    file: File,
    head: File,
    /// The length of the file after this gateway's last write.
    length: u64,
    /// The last line, of which this gateway knows.
    end: Option<ChainEnd>,
    /// The length at which the file is renamed and a new one begun, and the step by which it is raised if that fails.
    rotation: Option<(u64, u64)>,
}

fn open_log(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().append(true))
}

fn open_head(path: &Path) -> io::Result<File> {
    open(&head_path(path), OpenOptions::new().write(true).truncate(false))
}

impl AuditFile {
    /// Opens or creates the file. `known` is an end of the chain that this process has written before.
    pub(super) fn open(path: &Path, key: Option<&[u8]>, known: Option<ChainEnd>) -> io::Result<Self> {
        let (file, head) = (open_log(path)?, open_head(path)?);
        let sealer = Sealer::new(key);
        let mut file = Self {
            path: path.to_owned(),
            name: None,
            sealer,
            file,
            head,
            length: 0,
            end: known,
            rotation: None,
        };
        file.locked(Self::read_end)?;
        Ok(file)
    }

    /// The same, with the name of its chain in each line.
    pub(super) fn named(mut self, name: Option<String>) -> Self {
        self.name = name;
        self
    }

    /// The same, with a new file at each `limit` bytes.
    pub(super) fn rotated_at(mut self, limit: Option<u64>) -> Self {
        self.rotation = limit.map(|limit| (limit, limit));
        self
    }

    pub(super) fn end(&self) -> Option<ChainEnd> {
        self.end.clone()
    }

    /// Runs `work` while no other process writes.
    fn locked<T>(&mut self, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        for _ in 0..MAX_LOCKS {
            let locked = match self.head.lock() {
                // Some network file systems have no locks; a single gateway needs none.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => false,
                Err(error) => return Err(error),
                Ok(()) => true,
            };
            if is_replaced(&self.head, &head_path(&self.path)) {
                // Its lock goes with it.
                self.head = open_head(&self.path)?;
                continue;
            }
            let done = work(self);
            if locked {
                self.head.unlock()?;
            }
            return done;
        }
        Err(io::Error::other("the file with the end of the log is replaced again and again"))
    }

    /// Reads the end of the chain.
    fn read_end(&mut self) -> io::Result<()> {
        self.length = self.file.metadata()?.len();
        self.file.seek(SeekFrom::Start(self.length.saturating_sub(MAX_LINE)))?;
        let mut tail = Vec::new();
        (&self.file).take(MAX_LINE).read_to_end(&mut tail)?;
        let tail = String::from_utf8_lossy(&tail);
        let seal_of = |line: &str| end_of(line, "mac").or_else(|| end_of(line, "hash"));
        let written = tail.trim_end().rsplit('\n').find_map(seal_of);
        let mut known = Vec::new();
        self.head.seek(SeekFrom::Start(0))?;
        (&self.head).take(MAX_LINE).read_to_end(&mut known)?;
        let head = self.sealer.read_head(&String::from_utf8_lossy(&known));
        // The latest of them, the own one first: a process may have died between two writes, and removed lines must
        // stay detectable.
        let ends = written.into_iter().chain(head).chain(self.end.take());
        self.end = ends.max_by_key(|(number, _)| *number);
        if self.length > 0 && !tail.ends_with('\n') {
            // A process died during a write; the torn line stays and is reported by `verify`.
            self.write(b"\n")?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn add(&mut self, record: &Record) -> io::Result<()> {
        self.locked(|file| {
            if is_replaced(&file.file, &file.path) {
                file.file = open_log(&file.path)?;
                file.read_end()?;
            } else if file.file.metadata()?.len() != file.length {
                file.read_end()?;
            }
            if let Some((limit, step)) = file.rotation
                && file.length >= limit
            {
                if let Err(error) = file.rotate() {
                    tracing::warn!(path = %file.path.display(), %error, "the audit log could not be rotated");
                    file.rotation = Some((file.length.saturating_add(step), step));
                } else {
                    file.rotation = Some((step, step));
                }
            }
            file.add_next(record)
        })
    }

    /// Gives the file the number of its last line as a suffix, and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        let Some((number, _)) = &self.end else { return Ok(()) };
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{number:012}"));
        let name = PathBuf::from(name);
        if name.exists() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("`{}` is there", name.display()),
            ));
        }
        std::fs::rename(&self.path, &name)?;
        self.file = open_log(&self.path)?;
        self.length = 0;
        Ok(())
    }

    fn add_next(&mut self, Record(record): &Record) -> io::Result<()> {
        let (number, prev) = match &self.end {
            Some((number, seal)) => (number.saturating_add(1), seal.as_str()),
            None => (0, FIRST_PREV),
        };
        let mut record = record.clone();
        if let Some(name) = &self.name {
            record.insert("chain".into(), name.as_str().into());
        }
        let (line, seal) = sealed(record, number, prev, &self.sealer);
        let (end, before) = ((number, seal), self.length);
        let written = self.write(line.as_bytes()).and_then(|()| self.write_head(&end));
        if let Err(error) = written {
            // A part of a line would break the chain.
            let _ = self.file.set_len(before);
            self.length = self.file.metadata().map_or(before, |metadata| metadata.len());
            return Err(error);
        }
        self.end = Some(end);
        Ok(())
    }

    fn write_head(&mut self, end: &ChainEnd) -> io::Result<()> {
        let head = self.sealer.head(end);
        self.head.seek(SeekFrom::Start(0))?;
        self.head.write_all(head.as_bytes())?;
        self.head.set_len(head.len() as u64)
    }
}

/// The text of a line with its line break, and its seal.
fn sealed(mut record: Map<String, Value>, number: u64, prev: &str, sealer: &Sealer) -> (String, String) {
    record.insert("seq".into(), number.into());
    record.insert("prev".into(), prev.into());
    let record = Value::Object(record);
    let seal = sealer.seal(&record.to_string());
    let Value::Object(mut record) = record else { return Default::default() };
    record.insert(sealer.member().into(), seal.as_str().into());
    let mut line = Value::Object(record).to_string();
    line.push('\n');
    (line, seal)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use agentwire_store::Owner;

    use super::*;
    use crate::ops::audit::verify::verify;

    fn file(name: &str, count: usize) -> PathBuf {
        let path = std::env::temp_dir().join(format!("agentwire-audit-{name}-{}", std::process::id()));
        let _ = (std::fs::remove_file(&path), std::fs::remove_file(head_path(&path)));
        for _ in 0..2 {
            let mut file = AuditFile::open(&path, None, None).expect("it can be opened");
            for _ in 0..count / 2 {
                let record = Record::new(&Owner::new("t", "u", "a"), "start").thread(&"x".into());
                file.add(&record).expect("it can be written");
            }
        }
        path
    }

    #[test]
    fn a_chain_holds_across_restarts() {
        let path = file("whole", 6);
        let mut lines = 0;
        let wrong = verify(&path, None, |_| {
            lines += 1;
            Ok(())
        });
        assert_eq!((wrong.expect("it can be read"), lines), (Vec::new(), 6));
        remove(&path);
    }

    #[test]
    fn every_change_of_a_line_is_detected() {
        let path = file("torn", 6);
        let whole = std::fs::read_to_string(&path).expect("it is text");
        let lines: Vec<_> = whole.lines().collect();
        let removed = [&lines[..2], &lines[3..]].concat();
        let (cut, emptied) = (lines[..5].to_vec(), Vec::new());
        let changed: Vec<_> = lines.iter().map(|line| line.replacen("\"start\"", "\"read\"", 1)).collect();
        let swapped = [lines[0], lines[2], lines[1], lines[3]].to_vec();
        let changed: Vec<_> = changed.iter().map(String::as_str).collect();
        let doubled = lines[2].replacen('{', r#"{"user":"eve","#, 1);
        let doubled = [&lines[..2], &[doubled.as_str()], &lines[3..]].concat();
        let repeated = [&lines[..3], &lines[2..]].concat();
        for bad in [removed, changed, swapped, cut, emptied, doubled, repeated] {
            std::fs::write(&path, bad.join("\n") + "\n").expect("it is ours");
            assert!(!verify(&path, None, |_| Ok(())).expect("it can be read").is_empty());
        }
        for head in [None, Some("{\"seq\":9,\"hash\":\"0\"}"), Some("not a head")] {
            std::fs::write(&path, &whole).expect("it is ours");
            std::fs::remove_file(head_path(&path)).expect("it is there");
            if let Some(head) = head {
                std::fs::write(head_path(&path), head).expect("it is ours");
            }
            let wrong = verify(&path, None, |_| Ok(())).expect("it can be read");
            assert_eq!(wrong.iter().map(|it| it.line).collect::<Vec<_>>(), [7], "{head:?}");
            std::fs::write(head_path(&path), "").expect("it is ours");
        }
        remove(&path);
    }

    /// Lines that are appended later do not hide removed ones, and a crash between a line and its head removes nothing.
    #[test]
    fn removed_lines_are_detected_after_later_appends() {
        let path = file("more", 4);
        let whole = std::fs::read_to_string(&path).expect("it is text");
        let lines: Vec<_> = whole.lines().collect();
        let more = || {
            let mut file = AuditFile::open(&path, None, None).expect("it can be opened");
            file.add(&Record::new(&Owner::new("t", "u", "a"), "read")).expect("it can be written");
            verify(&path, None, |_| Ok(())).expect("it can be read")
        };
        std::fs::write(&path, lines[..2].join("\n") + "\n").expect("it is ours");
        assert_eq!(more().iter().map(|it| it.line).collect::<Vec<_>>(), [3]);

        let (number, hash) = end_of(lines[2], "hash").expect("a line");
        std::fs::write(&path, &whole).expect("it is ours");
        std::fs::write(head_path(&path), json!({"seq": number, "hash": hash}).to_string())
            .expect("it is ours");
        assert_eq!(verify(&path, None, |_| Ok(())).expect("it can be read"), []);
        assert_eq!(more(), []);
        remove(&path);
    }

    #[test]
    fn several_gateways_share_one_file() {
        let path = file("several", 0);
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let path = path.clone();
                thread::spawn(move || {
                    let mut file = AuditFile::open(&path, None, None).expect("it can be opened");
                    for _ in 0..25 {
                        let record = Record::new(&Owner::new("t", "u", "a"), "start").with("of", number);
                        file.add(&record).expect("it can be written");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let mut lines = 0;
        let wrong = verify(&path, None, |_| {
            lines += 1;
            Ok(())
        });
        assert_eq!((wrong.expect("it can be read"), lines), (Vec::new(), 100));
        remove(&path);
    }

    #[test]
    fn a_line_that_is_not_utf8_is_detected() {
        let path = file("bytes", 4);
        let mut bytes = std::fs::read(&path).expect("it is there");
        let place = bytes.iter().position(|byte| *byte == b'\n').expect("a line") + 20;
        bytes[place] = 0xff;
        std::fs::write(&path, bytes).expect("it is ours");
        let wrong = verify(&path, None, |_| Ok(())).expect("it can be read");
        assert_eq!(wrong.first().map(|it| it.line), Some(2));
        remove(&path);
    }

    /// Without the key, no rewrite of the file and its head goes unnoticed: not of the whole, not with another key, not by
    /// removing lines together with the head, and not while the gateway goes on writing.
    #[test]
    fn a_rewrite_of_the_whole_file_is_detected_with_a_key() {
        const KEY: Option<&[u8]> = Some(b"the key");
        let path = file("keyed", 0);
        let write = |key: Option<&[u8]>, count: usize, user: &str| {
            let mut file = AuditFile::open(&path, key, None).expect("it can be opened");
            for _ in 0..count {
                file.add(&Record::new(&Owner::new("t", user, "a"), "start")).expect("it can be written");
            }
        };
        let broken = |key: Option<&[u8]>| verify(&path, key, |_| Ok(())).expect("it can be read");
        let _ = (std::fs::remove_file(&path), std::fs::remove_file(head_path(&path)));
        write(KEY, 6, "ann");
        assert_eq!(broken(KEY), []);
        assert_eq!(broken(None).iter().map(|it| it.line).collect::<Vec<_>>(), [1], "the key is needed");
        assert!(!broken(Some(b"another key")).is_empty());
        let whole = std::fs::read_to_string(&path).expect("text");
        let head = std::fs::read_to_string(head_path(&path)).expect("text");
        let restore = || {
            std::fs::write(&path, &whole).expect("ours");
            std::fs::write(head_path(&path), &head).expect("ours");
        };
        for key in [None, Some(&b"another key"[..])] {
            remove(&path);
            write(key, 6, "eve");
            assert_eq!(broken(key), [], "it is a chain of its own");
            assert!(!broken(KEY).is_empty());
            write(KEY, 1, "ann");
            assert!(!broken(KEY).is_empty(), "also after the gateway went on");
        }
        // The last lines with the head of the line before them.
        let lines: Vec<_> = whole.lines().collect();
        let (number, seal) = end_of(lines[3], "mac").expect("a line");
        for forged in [
            json!({"seq": number, "mac": seal}),
            json!({"seq": number, "mac": seal, "seal": seal}),
            json!({"seq": number, "hash": seal}),
        ] {
            restore();
            std::fs::write(&path, lines[..4].join("\n") + "\n").expect("ours");
            std::fs::write(head_path(&path), forged.to_string()).expect("ours");
            assert!(!broken(KEY).is_empty(), "{forged}");
        }
        restore();
        assert_eq!(broken(KEY), []);
        remove(&path);
    }

    /// A gateway that has written lines does not forget them with the files.
    #[test]
    fn removed_files_are_detected_while_the_gateway_runs() {
        let path = file("gone", 0);
        let mut file = AuditFile::open(&path, None, None).expect("it can be opened");
        let mut add =
            || file.add(&Record::new(&Owner::new("t", "u", "a"), "start")).expect("it can be written");
        (0..4).for_each(|_| add());
        remove(&path);
        add();
        assert!(!verify(&path, None, |_| Ok(())).expect("it can be read").is_empty());
        remove(&path);
    }

    #[cfg(unix)]
    #[test]
    fn its_files_are_for_the_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let path = file("mode", 2);
        for path in [path.clone(), head_path(&path)] {
            let mode = std::fs::metadata(path).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        remove(&path);
    }

    /// A line that does not fit leaves no part of itself.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
        let mut file = AuditFile::open(&path, None, None).expect("it can be opened");
        let mut add = || file.add(&Record::new(&Owner::new("t", "u", "a"), "start"));
        assert_eq!(add().expect_err("it is full").kind(), io::ErrorKind::StorageFull);
        std::fs::remove_file(&path).expect("ours");
        add().expect("there is room");
        assert_eq!(verify(&path, None, |_| Ok(())).expect("it can be read"), []);
    }

    fn remove(path: &Path) {
        for path in [path, &head_path(path)] {
            std::fs::remove_file(path).expect("it is ours");
        }
    }
}
