//! The audit log: an append-only file of JSON lines, each chained to the previous one by its hash.
//!
//! A changed, removed or inserted line is detected, because the hashes after it no longer match; the end of the chain is
//! also kept in a file beside it, so that missing last lines are detected. Hiding a change requires rewriting both files.
//! Arguments are stored as a hash: enough to prove the subject of a decision without a second copy.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use agentwire_core::{
    event::{Message, MessageBody, ResumeEntry, ResumeStatus, RunId, ThreadId},
    json::Json,
};
use agentwire_store::Owner;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{error::ApiError, timestamp::iso};

/// Records that may wait for the disk; beyond that, requests wait (backpressure).
const QUEUE: usize = 1024;

/// The longest line that is searched for at the end of a file.
const MAX_LINE: u64 = 64 << 10;

/// Decisions per line; a line must fit into `MAX_LINE`.
const MAX_DECISIONS: usize = 100;

/// Characters of a request path that are recorded.
const MAX_PATH: usize = 512;

/// The `prev` of the first line.
const FIRST_PREV: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The sender of records to the audit thread; `None` if there is no audit log.
#[derive(Debug)]
pub(crate) struct Audit(Option<mpsc::SyncSender<Record>>);

/// One audited action.
#[derive(Clone, Debug)]
pub(crate) struct Record(Map<String, Value>);

impl Record {
    pub(crate) fn new(owner: &Owner, action: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut record = Map::new();
        record.insert("at".into(), iso(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)).into());
        record.insert("tenant".into(), owner.tenant.as_str().into());
        record.insert("user".into(), owner.user.as_str().into());
        record.insert("agent".into(), owner.agent.as_str().into());
        record.insert("action".into(), action.into());
        Self(record)
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// The address of the client.
    pub(crate) fn peer(self, peer: Option<IpAddr>) -> Self {
        match peer {
            Some(peer) => self.with("peer", peer.to_string()),
            None => self,
        }
    }

    pub(crate) fn thread(self, thread: &ThreadId) -> Self {
        self.with("thread", thread.as_str())
    }

    pub(crate) fn run(self, run: &RunId) -> Self {
        self.with("run", run.as_str())
    }

    /// A request to run; with answers it is an `answer` that lists each decision.
    pub(crate) fn start(owner: &Owner, entries: &[&ResumeEntry], messages: &[Message]) -> Self {
        let entries = entries.iter().map(|entry| {
            let payload = entry.payload.as_ref().map_or("null", |payload| payload.get());
            json!({"item": entry.interrupt.as_str(), "decision": decision(entry), "payload": hash(payload.as_bytes())})
        });
        let results = messages.iter().rev().map_while(|message| match &message.body {
            MessageBody::Tool { call, content, error } => {
                let decision = if error.is_some() { "failed" } else { "result" };
                Some(json!({"item": call.as_str(), "decision": decision, "payload": hash(content.text().as_bytes())}))
            }
            _ => None,
        });
        let mut decisions: Vec<Value> = entries.chain(results).collect();
        let count = decisions.len();
        decisions.truncate(MAX_DECISIONS);
        let record = Self::new(owner, if count == 0 { "start" } else { "answer" });
        match count {
            0 => record,
            count if count > MAX_DECISIONS => record.with("decisions", decisions).with("decided", count),
            _ => record.with("decisions", decisions),
        }
    }

    /// A request that was refused before its subject was known.
    pub(crate) fn refused(owner: Option<&Owner>, path: &str, error: &ApiError) -> Self {
        let nobody = Owner::new("", "", "");
        let path: String = path.chars().take(MAX_PATH).collect();
        let record = Self::new(owner.unwrap_or(&nobody), "request");
        record.with("path", path).with("outcome", error.code)
    }

    /// A request that was refused before its handler: the template of its route, never its path.
    pub(crate) fn denied(error: &ApiError, method: &str, route: Option<&str>) -> Self {
        let method: String = method.chars().take(16).collect();
        let record = Self::new(&Owner::new("", "", ""), "request").with("method", method);
        record.with("route", route.unwrap_or_default()).with("outcome", error.code)
    }

    pub(crate) fn feedback(self, feedback: &Map<String, Value>) -> Self {
        self.with("feedback", feedback.clone())
    }

    pub(crate) fn arguments(self, arguments: &[u8]) -> Self {
        self.with("arguments", hash(arguments))
    }

    /// The outcome: `ok`, or the code of the error.
    pub(crate) fn outcome<T>(self, done: &Result<T, ApiError>) -> Self {
        self.with("outcome", done.as_ref().err().map_or("ok", |error| error.code))
    }
}

/// A decision as one word: approved and denied where the answer contains a yes or no.
fn decision(entry: &ResumeEntry) -> &'static str {
    let answer = entry.payload.as_ref().map(Json::to_value).unwrap_or_default();
    let flags = [&answer, &answer["approved"], &answer["confirmed"]].map(Value::as_bool);
    match entry.status {
        ResumeStatus::Cancelled => "cancelled",
        ResumeStatus::Resolved if flags.contains(&Some(false)) => "denied",
        ResumeStatus::Resolved if flags.contains(&Some(true)) => "approved",
        ResumeStatus::Resolved => "resolved",
    }
}

impl Audit {
    pub(crate) fn off() -> Self {
        Self(None)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Writes to `path` from a thread of its own, so that requests do not wait for the disk.
    pub(crate) fn to(path: &Path) -> Self {
        let (sender, records) = mpsc::sync_channel(QUEUE);
        let path = path.to_owned();
        let spawned = thread::Builder::new().name("audit".into()).spawn(move || write(&path, &records));
        if let Err(error) = spawned {
            tracing::error!(%error, "there is no audit log: its thread could not be started");
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
    let mut file = match AuditFile::open(path) {
        Ok(file) => file,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "there is no audit log: its file cannot be opened");
            return;
        }
    };
    while let Ok(record) = records.recv() {
        if let Err(error) = file.add(record) {
            tracing::error!(path = %path.display(), %error, "an audit record could not be written");
        }
    }
}

/// The audit file and the end of its chain.
///
/// A chain cannot show that its last lines are missing, so its end is written to a file beside it. Several gateways may
/// share one file: a writer locks it and first reads the lines that others have added.
struct AuditFile {
    file: File,
    head: File,
    /// The length of the file after this gateway's last write.
    length: u64,
    number: u64,
    last: String,
}

/// The path of the file with the end of the chain: the audit file with the suffix `.head`.
fn head_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".head");
    name.into()
}

/// The number and the hash of a line.
fn number_and_hash(line: &str) -> Option<(u64, String)> {
    let line: Value = serde_json::from_str(line).ok()?;
    Some((line["seq"].as_u64()?, line["hash"].as_str()?.to_owned()))
}

impl AuditFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let head =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(head_path(path))?;
        let mut file = Self { file, head, length: 0, number: 0, last: FIRST_PREV.to_owned() };
        file.locked(Self::read_end)?;
        Ok(file)
    }

    /// Runs `work` with the file locked against other gateways.
    fn locked<T>(&mut self, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        match self.file.lock() {
            // Some network file systems have no locks; a single gateway needs none.
            Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
            locked => {
                let done = work(self);
                if locked.is_ok() {
                    self.file.unlock()?;
                }
                done
            }
        }
    }

    /// Reads the end of the chain.
    fn read_end(&mut self) -> io::Result<()> {
        self.length = self.file.seek(SeekFrom::End(0))?;
        self.file.seek(SeekFrom::Start(self.length.saturating_sub(MAX_LINE)))?;
        let mut tail = Vec::new();
        self.file.read_to_end(&mut tail)?;
        let tail = String::from_utf8_lossy(&tail);
        let written = tail.trim_end().rsplit('\n').find_map(number_and_hash);
        let mut known = Vec::new();
        self.head.seek(SeekFrom::Start(0))?;
        self.head.read_to_end(&mut known)?;
        // The later of the two: a process may have died between the two writes, and removed lines must stay detectable.
        let end = written
            .into_iter()
            .chain(number_and_hash(&String::from_utf8_lossy(&known)))
            .max_by_key(|(number, _)| *number);
        (self.number, self.last) =
            end.map_or((0, FIRST_PREV.to_owned()), |(number, hash)| (number + 1, hash));
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

    fn add(&mut self, record: Record) -> io::Result<()> {
        self.locked(|file| {
            if file.file.metadata()?.len() != file.length {
                file.read_end()?;
            }
            file.add_next(record)
        })
    }

    fn add_next(&mut self, Record(mut record): Record) -> io::Result<()> {
        record.insert("seq".into(), self.number.into());
        record.insert("prev".into(), self.last.as_str().into());
        let hash = hash(Value::Object(record.clone()).to_string().as_bytes());
        record.insert("hash".into(), hash.as_str().into());
        let mut line = Value::Object(record).to_string();
        line.push('\n');
        self.write(line.as_bytes())?;
        let head = json!({"seq": self.number, "hash": hash}).to_string();
        self.head.seek(SeekFrom::Start(0))?;
        self.head.write_all(head.as_bytes())?;
        self.head.set_len(head.len() as u64)?;
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

/// A place where the chain of an audit file is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ChainError {
    /// The line, counting from 1.
    pub line: usize,
    /// The problem.
    pub problem: &'static str,
}

/// Reads an audit file, passes each line to `sink` and verifies the chain. Returns the broken places.
///
/// # Errors
/// When the file cannot be read.
pub fn verify(path: &Path, mut sink: impl FnMut(&str) -> io::Result<()>) -> io::Result<Vec<ChainError>> {
    let mut wrong = Vec::new();
    let mut last = FIRST_PREV.to_owned();
    let (mut next, mut lines, mut is_whole) = (0, 0, false);
    let head = std::fs::read_to_string(head_path(path)).ok().and_then(|head| number_and_hash(&head));
    for (index, line) in BufReader::new(File::open(path)?).split(b'\n').enumerate() {
        // A line that is not UTF-8 was not written by a gateway; it is reported like any other foreign line.
        let line = line?;
        let text = String::from_utf8_lossy(&line);
        sink(&text)?;
        let mut tell = |problem| wrong.push(ChainError { line: index + 1, problem });
        let Ok(Value::Object(mut record)) = serde_json::from_str(&text) else {
            tell("not a record");
            continue;
        };
        // One text per record: a repeated member, of which parsers keep the last, is a change as well.
        let is_as_written = Value::Object(record.clone()).to_string() == text;
        let said =
            record.remove("hash").and_then(|hash| hash.as_str().map(str::to_owned)).unwrap_or_default();
        if record.get("prev").and_then(Value::as_str) != Some(&last) {
            tell("does not follow the line before it: something was removed, put in or changed");
        } else if record.get("seq").and_then(Value::as_u64) != Some(next) {
            tell("has the wrong number");
        } else if !is_as_written || hash(Value::Object(record.clone()).to_string().as_bytes()) != said {
            tell("was changed: its hash does not fit");
        }
        let number = record.get("seq").and_then(Value::as_u64).unwrap_or(next);
        is_whole = is_whole || head.as_ref().is_some_and(|head| *head == (number, said.clone()));
        next = number.saturating_add(1);
        last = said;
        lines = index + 1;
    }
    if !is_whole && (lines > 0 || head.is_some()) {
        let problem = match head {
            Some(_) => "is missing: the file beside it (`.head`) knows of a later line",
            None => "may be missing: there is no file beside it (`.head`) that says how the record ends",
        };
        wrong.push(ChainError { line: lines + 1, problem });
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, count: usize) -> PathBuf {
        let path = std::env::temp_dir().join(format!("agentwire-audit-{name}-{}", std::process::id()));
        let _ = (std::fs::remove_file(&path), std::fs::remove_file(head_path(&path)));
        for _ in 0..2 {
            let mut file = AuditFile::open(&path).expect("it can be opened");
            for _ in 0..count / 2 {
                let record = Record::new(&Owner::new("t", "u", "a"), "start").thread(&"x".into());
                file.add(record).expect("it can be written");
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
            assert!(!verify(&path, |_| Ok(())).expect("it can be read").is_empty());
        }
        for head in [None, Some("{\"seq\":9,\"hash\":\"0\"}"), Some("not a head")] {
            std::fs::write(&path, &whole).expect("it is ours");
            std::fs::remove_file(head_path(&path)).expect("it is there");
            if let Some(head) = head {
                std::fs::write(head_path(&path), head).expect("it is ours");
            }
            let wrong = verify(&path, |_| Ok(())).expect("it can be read");
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
            let mut file = AuditFile::open(&path).expect("it can be opened");
            file.add(Record::new(&Owner::new("t", "u", "a"), "read")).expect("it can be written");
            verify(&path, |_| Ok(())).expect("it can be read")
        };
        std::fs::write(&path, lines[..2].join("\n") + "\n").expect("it is ours");
        assert_eq!(more().iter().map(|it| it.line).collect::<Vec<_>>(), [3]);

        let (number, hash) = number_and_hash(lines[2]).expect("a line");
        std::fs::write(&path, &whole).expect("it is ours");
        std::fs::write(head_path(&path), json!({"seq": number, "hash": hash}).to_string())
            .expect("it is ours");
        assert_eq!(verify(&path, |_| Ok(())).expect("it can be read"), []);
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
                    let mut file = AuditFile::open(&path).expect("it can be opened");
                    for _ in 0..25 {
                        let record = Record::new(&Owner::new("t", "u", "a"), "start").with("of", number);
                        file.add(record).expect("it can be written");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let mut lines = 0;
        let wrong = verify(&path, |_| {
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
        let wrong = verify(&path, |_| Ok(())).expect("it can be read");
        assert_eq!(wrong.first().map(|it| it.line), Some(2));
        remove(&path);
    }

    #[test]
    fn decisions_are_recorded_as_one_word() {
        let entry = |status, payload: Value| ResumeEntry {
            interrupt: "q".into(),
            status,
            payload: Some(Json::from(payload)),
            metadata: None,
        };
        for (status, payload, told) in [
            (ResumeStatus::Resolved, json!(true), "approved"),
            (ResumeStatus::Resolved, json!({"approved": true, "editedArgs": {}}), "approved"),
            (ResumeStatus::Resolved, json!({"confirmed": false}), "denied"),
            (ResumeStatus::Resolved, json!({"approved": true, "confirmed": false}), "denied"),
            (ResumeStatus::Resolved, json!("Monday"), "resolved"),
            (ResumeStatus::Cancelled, json!(true), "cancelled"),
        ] {
            let entry = entry(status, payload.clone());
            let Record(record) = Record::start(&Owner::new("t", "u", "a"), &[&entry], &[]);
            assert_eq!(record["decisions"][0]["decision"], told, "{payload}");
        }
    }

    fn remove(path: &Path) {
        for path in [path, &head_path(path)] {
            std::fs::remove_file(path).expect("it is ours");
        }
    }
}
