//! Who did what: an append-only file of JSON lines, each bound to the one before it by its hash.
//!
//! A line that was changed, removed or put in shows, because the hashes behind it no longer fit; only whoever rewrites
//! everything that follows could hide it. Arguments are kept as a hash: enough to prove what was decided about,
//! without keeping it twice.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::mpsc,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use agentwire_core::event::{ResumeStatus, RunId, RunInput, ThreadId};
use agentwire_store::Owner;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{pending::iso, refusal::Refusal};

/// How many records may wait for the disk; beyond that, whoever does something waits.
const WAITING: usize = 1024;

/// The longest line that is looked for at the end of a file.
const LONGEST_LINE: u64 = 64 << 10;

/// The hash before the first line.
const BEGINNING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Where records go.
#[derive(Debug)]
pub(crate) struct Audit(Option<mpsc::SyncSender<Record>>);

/// Something that somebody did.
#[derive(Clone, Debug)]
pub(crate) struct Record(Map<String, Value>);

impl Record {
    pub(crate) fn new(owner: &Owner, action: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut record = Map::new();
        record.insert("at".into(), iso(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)).into());
        record.insert("tenant".into(), owner.tenant.as_str().into());
        record.insert("user".into(), owner.user.as_str().into());
        record.insert("action".into(), action.into());
        Self(record)
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    pub(crate) fn thread(self, thread: &ThreadId) -> Self {
        self.with("thread", thread.as_str())
    }

    pub(crate) fn run(self, run: &RunId) -> Self {
        self.with("run", run.as_str())
    }

    /// What was decided, and about what, if the request answers something.
    pub(crate) fn decision(self, input: &RunInput) -> Self {
        let Some(entries) = input.resume.as_deref().filter(|entries| !entries.is_empty()) else {
            return self;
        };
        let decisions: Vec<_> = entries
            .iter()
            .map(|entry| {
                let status = if entry.status == ResumeStatus::Resolved { "resolved" } else { "cancelled" };
                let payload = entry.payload.as_ref().map_or("null", |payload| payload.get());
                serde_json::json!({"item": entry.interrupt.as_str(), "decision": status, "payload": hash(payload.as_bytes())})
            })
            .collect();
        self.with("decisions", decisions)
    }

    pub(crate) fn arguments(self, arguments: &[u8]) -> Self {
        self.with("arguments", hash(arguments))
    }

    /// What came of it: `ok`, or the code of the refusal.
    pub(crate) fn outcome<T>(self, done: &Result<T, Refusal>) -> Self {
        self.with("outcome", done.as_ref().err().map_or("ok", |refusal| refusal.code))
    }
}

impl Audit {
    pub(crate) fn off() -> Self {
        Self(None)
    }

    /// Writes to `path` from a thread of its own, so that nobody waits for the disk.
    pub(crate) fn to(path: &Path) -> Self {
        let (sender, records) = mpsc::sync_channel(WAITING);
        let path = path.to_owned();
        let spawned = thread::Builder::new().name("audit".into()).spawn(move || write(&path, &records));
        if let Err(error) = spawned {
            tracing::error!(%error, "there is no audit: its thread could not be started");
        }
        Self(Some(sender))
    }

    pub(crate) fn note(&self, record: Record) {
        if let Some(sender) = &self.0
            && sender.send(record).is_err()
        {
            tracing::error!("an audit record was lost: its thread has ended");
        }
    }
}

fn write(path: &Path, records: &mpsc::Receiver<Record>) {
    let mut book = match Book::open(path) {
        Ok(book) => book,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "there is no audit: its file cannot be opened");
            return;
        }
    };
    while let Ok(record) = records.recv() {
        if let Err(error) = book.add(record) {
            tracing::error!(path = %path.display(), %error, "an audit record could not be written");
        }
    }
}

/// The file, and the end of its chain.
struct Book {
    file: File,
    number: u64,
    last: String,
}

impl Book {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_LINE)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        let tail = String::from_utf8_lossy(&tail);
        let line = tail.trim_end().rsplit('\n').next().unwrap_or_default();
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        if length > 0 && !tail.ends_with('\n') {
            // The process before this one died while it wrote; the torn line stays and shows.
            file.write_all(b"\n")?;
        }
        Ok(Self {
            file,
            number: line["seq"].as_u64().map_or(0, |last| last + 1),
            last: line["hash"].as_str().unwrap_or(BEGINNING).to_owned(),
        })
    }

    fn add(&mut self, Record(mut record): Record) -> io::Result<()> {
        record.insert("seq".into(), self.number.into());
        record.insert("prev".into(), self.last.as_str().into());
        let hash = hash(Value::Object(record.clone()).to_string().as_bytes());
        record.insert("hash".into(), hash.as_str().into());
        let mut line = Value::Object(record).to_string();
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.number += 1;
        self.last = hash;
        Ok(())
    }
}

fn hash(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A place where an audit file does not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct Tampered {
    /// Which line, counting from 1.
    pub line: usize,
    /// What does not fit.
    pub problem: &'static str,
}

/// Reads an audit file, hands each line to `sink` and checks that they fit together.
///
/// # Errors
/// When the file cannot be read. What does not fit is in the list.
pub fn verify(path: &Path, mut sink: impl FnMut(&str) -> io::Result<()>) -> io::Result<Vec<Tampered>> {
    let mut wrong = Vec::new();
    let mut last = BEGINNING.to_owned();
    let mut next = 0;
    for (index, line) in BufReader::new(File::open(path)?).lines().enumerate() {
        let text = line?;
        sink(&text)?;
        let mut tell = |problem| wrong.push(Tampered { line: index + 1, problem });
        let Ok(Value::Object(mut record)) = serde_json::from_str(&text) else {
            tell("not a record");
            continue;
        };
        let said =
            record.remove("hash").and_then(|hash| hash.as_str().map(str::to_owned)).unwrap_or_default();
        if record.get("prev").and_then(Value::as_str) != Some(&last) {
            tell("does not follow the line before it: something was removed, put in or changed");
        } else if record.get("seq").and_then(Value::as_u64) != Some(next) {
            tell("has the wrong number");
        } else if hash(Value::Object(record.clone()).to_string().as_bytes()) != said {
            tell("was changed: its hash does not fit");
        }
        next = record.get("seq").and_then(Value::as_u64).unwrap_or(next) + 1;
        last = said;
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn file(name: &str, count: usize) -> PathBuf {
        let path = std::env::temp_dir().join(format!("agentwire-audit-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        for _ in 0..2 {
            let mut book = Book::open(&path).expect("it can be opened");
            for _ in 0..count / 2 {
                let record = Record::new(&Owner::new("t", "u"), "start").thread(&"x".into());
                book.add(record).expect("it can be written");
            }
        }
        path
    }

    #[test]
    fn a_chain_holds_across_restarts() {
        let path = file("whole", 6);
        let mut lines = 0;
        let wrong = verify(&path, |_| {
            lines += 1;
            Ok(())
        });
        assert_eq!((wrong.expect("it can be read"), lines), (Vec::new(), 6));
        std::fs::remove_file(path).expect("it is ours");
    }

    #[test]
    fn whatever_was_done_to_a_line_shows() {
        let path = file("torn", 6);
        let whole = std::fs::read_to_string(&path).expect("it is text");
        let lines: Vec<_> = whole.lines().collect();
        let removed = [&lines[..2], &lines[3..]].concat();
        let changed: Vec<_> = lines.iter().map(|line| line.replacen("\"start\"", "\"read\"", 1)).collect();
        let swapped = [lines[0], lines[2], lines[1], lines[3]].to_vec();
        let changed: Vec<_> = changed.iter().map(String::as_str).collect();
        for bad in [removed, changed, swapped] {
            std::fs::write(&path, bad.join("\n") + "\n").expect("it is ours");
            assert!(!verify(&path, |_| Ok(())).expect("it can be read").is_empty());
        }
        std::fs::remove_file(path).expect("it is ours");
    }
}
