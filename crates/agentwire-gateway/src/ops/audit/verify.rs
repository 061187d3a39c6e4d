//! Verification of the audit log: its chain over the current file and the rotated ones.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::chain::{FIRST_PREV, MAX_LINE, Sealer, end_of, head_path};

/// A place where the chain of an audit log is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: line {line}: {problem}", file.display())]
pub struct ChainError {
    /// The file.
    pub file: PathBuf,
    /// The line of the file, counting from 1.
    pub line: usize,
    /// The problem.
    pub problem: &'static str,
}

/// Reads an audit log, passes each line to `sink` and verifies the chain, with its key if it has one. Returns the broken
/// places. Files beside it whose names are its own with a number or date (`audit.jsonl.1`, `audit.jsonl-20261117`) are its
/// rotated parts.
///
/// # Errors
/// When a file cannot be read.
pub fn verify(
    path: &Path,
    key: Option<&[u8]>,
    sink: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<Vec<ChainError>> {
    verify_from(path, key, 0, sink)
}

/// As [`verify`], of a log whose lines before the number `first` are elsewhere.
///
/// # Errors
/// When a file cannot be read.
pub fn verify_from(
    path: &Path,
    key: Option<&[u8]>,
    first: u64,
    mut sink: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<Vec<ChainError>> {
    let sealer = Sealer::new(key);
    let head = std::fs::read_to_string(head_path(path)).ok();
    let head = head
        .and_then(|head| sealer.read_head(&head).or_else(|| end_of(&head, "mac").filter(|_| key.is_none())));
    let mut chain = Chain {
        sealer,
        is_keyed: key.is_some(),
        head,
        name: None,
        // The line before the first one is not there to be compared.
        last: (first == 0).then(|| FIRST_PREV.to_owned()),
        next: first,
        is_whole: false,
        lacks_key: false,
    };
    let (mut wrong, mut lines) = (Vec::new(), 0);
    let mut files = rotated(path)?;
    if files.is_empty() || path.exists() {
        files.push(path.to_owned());
    }
    for file in files {
        lines = 0;
        for line in BufReader::new(File::open(&file)?).split(b'\n') {
            // A line that is not UTF-8 was not written by a gateway; it is reported like any other foreign line.
            let line = line?;
            let text = String::from_utf8_lossy(&line);
            sink(&text)?;
            lines += 1;
            if let Some(problem) = chain.add(&text) {
                wrong.push(ChainError { file: file.clone(), line: lines, problem });
            }
        }
    }
    let is_empty = chain.next == first;
    if !chain.is_whole && (!is_empty || chain.head.is_some()) {
        let problem = match chain.head {
            Some(_) => "is missing: the file beside it (`.head`) knows of a later line",
            None => {
                "may be missing: there is no valid file beside it (`.head`) that says how the record ends"
            }
        };
        wrong.push(ChainError { file: path.to_owned(), line: lines + 1, problem });
    }
    Ok(wrong)
}

/// The chain as far as it was read.
struct Chain {
    sealer: Sealer,
    is_keyed: bool,
    /// The end that the file beside the log names.
    head: Option<(u64, String)>,
    /// The name of the chain, once a line had one.
    name: Option<String>,
    /// The seal of the last line; `None` if it is not known.
    last: Option<String>,
    /// The number of the next line.
    next: u64,
    /// True if the end was found.
    is_whole: bool,
    /// True if it was reported that the key is missing.
    lacks_key: bool,
}

impl Chain {
    /// Takes the next line; returns its problem.
    fn add(&mut self, text: &str) -> Option<&'static str> {
        let Ok(Value::Object(mut record)) = serde_json::from_str(text) else { return Some("not a record") };
        // One text per record: a repeated member, of which parsers keep the last, is a change as well.
        let written = Value::Object(record.clone()).to_string();
        let is_as_written = written == text;
        let is_keyed = record.contains_key("mac");
        let said = record.remove(if is_keyed { "mac" } else { "hash" });
        let said = said.and_then(|seal| seal.as_str().map(str::to_owned)).unwrap_or_default();
        let (prev, number) =
            (record.get("prev").and_then(Value::as_str), record.get("seq").and_then(Value::as_u64));
        let number_or_next = number.unwrap_or(self.next);
        let name = record.get("chain").and_then(Value::as_str).map(str::to_owned);
        let is_of_another = self.name.is_some() && name != self.name;
        self.name = self.name.take().or(name);
        let problem = if self.last.as_deref().is_some_and(|last| prev != Some(last)) {
            Some("does not follow the line before it: something was removed, put in or changed")
        } else if number != Some(self.next) {
            Some("has the wrong number")
        } else if is_of_another {
            Some("is of another chain")
        } else if is_keyed && !self.is_keyed {
            // Once: all lines have one.
            (!std::mem::replace(&mut self.lacks_key, true))
                .then_some("has a MAC, which only the key of the configuration can verify: `--config FILE`")
        } else if !is_keyed && self.is_keyed {
            Some("was written without the key")
        } else if !is_as_written || self.sealer.seal(&Value::Object(record).to_string()) != said {
            Some("was changed: its hash does not fit")
        } else {
            None
        };
        self.is_whole |= self.head.as_ref().is_some_and(|head| *head == (number_or_next, said.clone()));
        self.next = number_or_next.saturating_add(1);
        self.last = Some(said);
        problem
    }
}

/// The rotated files of a log, in the order of their lines.
fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(name) = path.file_name() else { return Ok(Vec::new()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let name = name.to_string_lossy();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let other = entry?.file_name();
        let is_part = other.to_str().and_then(|other| other.strip_prefix(&*name)).is_some_and(is_suffix);
        if !is_part {
            continue;
        }
        let other = folder.map_or_else(|| PathBuf::from(&other), |folder| folder.join(&other));
        // One without a record is no part of the chain, or shows as missing lines.
        if let Some(number) = first_number(&other)? {
            found.push((number, other));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, file)| file).collect())
}

/// True for the suffix of a rotated file: numbers and dates.
fn is_suffix(suffix: &str) -> bool {
    suffix.starts_with(['.', '-'])
        && suffix.contains(|letter: char| letter.is_ascii_digit())
        && suffix.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | '-'))
}

/// The number of the first record of a file.
fn first_number(path: &Path) -> io::Result<Option<u64>> {
    let mut begin = Vec::new();
    File::open(path)?.take(MAX_LINE).read_to_end(&mut begin)?;
    let number = |line: &[u8]| serde_json::from_slice::<Value>(line).ok()?.get("seq")?.as_u64();
    Ok(begin.split(|byte| *byte == b'\n').find_map(number))
}

#[cfg(test)]
mod tests {
    use agentwire_store::Owner;

    use super::*;
    use crate::ops::audit::{chain::AuditFile, record::Record};

    const KEY: Option<&[u8]> = Some(b"the key");

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a folder"))
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("audit.jsonl")
        }

        fn other(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn open(&self) -> AuditFile {
            AuditFile::open(&self.path(), KEY, None).expect("it can be opened")
        }

        /// The lines, if the chain is whole.
        fn verified(&self) -> Result<usize, Vec<ChainError>> {
            let mut lines = 0;
            let wrong = verify(&self.path(), KEY, |_| {
                lines += 1;
                Ok(())
            });
            let wrong = wrong.expect("it can be read");
            if wrong.is_empty() { Ok(lines) } else { Err(wrong) }
        }
    }

    fn add(file: &mut AuditFile, count: usize) {
        for _ in 0..count {
            file.add(&Record::new(&Owner::new("t", "u", "a"), "start")).expect("it can be written");
        }
    }

    #[test]
    fn suffixes_of_rotated_files() {
        for good in [".1", ".10", "-20261117", ".2026-11-17", "-20261117-1763338920", ".000000000012"] {
            assert!(is_suffix(good), "{good}");
        }
        for bad in ["", ".", "-", ".head", ".1.gz", ".bak", "1", ".1.head", ".old"] {
            assert!(!is_suffix(bad), "{bad}");
        }
    }

    /// A program renames the file, with a gateway that goes on and one that starts anew.
    #[test]
    fn a_chain_goes_on_in_a_new_file() {
        let folder = Folder::new();
        let mut file = folder.open();
        add(&mut file, 3);
        std::fs::rename(folder.path(), folder.other("audit.jsonl.1")).expect("ours");
        assert_eq!(folder.verified(), Ok(3), "before the next line");
        add(&mut file, 2);
        assert_eq!(folder.verified(), Ok(5));
        drop(file);
        std::fs::rename(folder.other("audit.jsonl.1"), folder.other("audit.jsonl.2")).expect("ours");
        std::fs::rename(folder.path(), folder.other("audit.jsonl.1")).expect("ours");
        add(&mut folder.open(), 4);
        assert_eq!(folder.verified(), Ok(9));
        // Other names, and a folder that is not the current one of the process.
        std::fs::rename(folder.other("audit.jsonl.1"), folder.other("audit.jsonl-20261117")).expect("ours");
        std::fs::write(folder.other("audit.jsonl.1.gz"), "packed").expect("ours");
        std::fs::write(folder.other("audit.jsonl.bak"), "{}").expect("ours");
        assert_eq!(folder.verified(), Ok(9));
        // A missing, changed or shortened part shows.
        let whole = std::fs::read_to_string(folder.other("audit.jsonl.2")).expect("text");
        let lines: Vec<_> = whole.lines().collect();
        for bad in [lines[..2].join("\n") + "\n", whole.replacen("start", "stop", 1), String::new()] {
            std::fs::write(folder.other("audit.jsonl.2"), bad).expect("ours");
            assert!(folder.verified().is_err());
        }
        std::fs::remove_file(folder.other("audit.jsonl.2")).expect("ours");
        let wrong = folder.verified().expect_err("three lines are missing");
        assert_eq!((wrong.len(), &wrong[0].file), (1, &folder.other("audit.jsonl-20261117")));
        // Lines that are kept elsewhere.
        assert_eq!(verify_from(&folder.path(), KEY, 3, |_| Ok(())).expect("it can be read"), []);
        for first in [2, 4] {
            assert!(!verify_from(&folder.path(), KEY, first, |_| Ok(())).expect("it can be read").is_empty());
        }
    }

    /// A program copies the file and empties it.
    #[test]
    fn a_chain_goes_on_in_an_emptied_file() {
        let folder = Folder::new();
        let mut file = folder.open();
        add(&mut file, 3);
        std::fs::copy(folder.path(), folder.other("audit.jsonl.1")).expect("ours");
        let emptied = std::fs::OpenOptions::new().write(true).open(folder.path()).expect("ours");
        emptied.set_len(0).expect("ours");
        assert_eq!(folder.verified(), Ok(3));
        add(&mut file, 2);
        assert_eq!(folder.verified(), Ok(5));
        // A line between the copy and the emptying is lost, and shows.
        std::fs::copy(folder.path(), folder.other("audit.jsonl.2")).expect("ours");
        add(&mut file, 1);
        emptied.set_len(0).expect("ours");
        add(&mut file, 1);
        assert!(folder.verified().is_err());
    }

    #[test]
    fn a_full_file_is_renamed() {
        let folder = Folder::new();
        let mut file = folder.open().rotated_at(Some(1000));
        add(&mut file, 40);
        assert_eq!(folder.verified(), Ok(40));
        let names: Vec<_> = std::fs::read_dir(folder.0.path()).expect("ours").collect();
        assert!(names.len() > 8, "{names:?}");
        for name in names {
            let name = name.expect("a file");
            assert!(name.metadata().expect("ours").len() < 1500, "{name:?}");
        }
        drop(file);
        // A name that is taken loses nothing.
        let mut file = folder.open().rotated_at(Some(1));
        std::fs::write(folder.other("audit.jsonl.000000000040"), "taken").expect("ours");
        add(&mut file, 2);
        let taken = std::fs::read_to_string(folder.other("audit.jsonl.000000000040"));
        assert_eq!(taken.expect("text"), "taken");
        assert_eq!(folder.verified(), Ok(42));
    }

    /// No line is lost or forked while files are renamed below several writers, by them and by a program.
    #[test]
    fn several_writers_rotate_one_log() {
        let folder = Folder::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut file = folder.open().rotated_at(Some(2000));
                    add(&mut file, 50);
                });
            }
            scope.spawn(|| {
                for number in 0..20 {
                    let name = folder.other(&format!("audit.jsonl-{number}"));
                    let _ = std::fs::rename(folder.path(), name);
                    std::thread::yield_now();
                }
            });
        });
        assert_eq!(folder.verified(), Ok(200));
    }
}
