//! The typed lines of a thread, kept in a file of the user, so that a conversation that is continued has them.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

/// Lines that are kept.
const MAX_LINES: usize = 500;

/// Threads whose lines are kept; the oldest files are removed.
const MAX_THREADS: usize = 200;

/// The longest file name of a thread.
const MAX_NAME: usize = 120;

/// The lines of a conversation, the last one at the end.
#[derive(Debug, Default)]
pub(crate) struct History {
    lines: Vec<String>,
    file: Option<PathBuf>,
}

impl History {
    /// The lines of a thread: those of earlier sessions, if the user has a folder for them.
    pub(crate) fn of_thread(thread: &str) -> Self {
        folder().map_or_else(Self::default, |folder| Self::in_folder(&folder, thread))
    }

    fn in_folder(folder: &Path, thread: &str) -> Self {
        let file = folder.join(file_name(thread));
        let text = fs::read_to_string(&file).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let surplus = lines.len().saturating_sub(MAX_LINES);
        if surplus > 0 {
            lines.drain(..surplus);
            let _ = fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        }
        Self { lines, file: Some(file) }
    }

    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Adds a line, unless it repeats the last one. `is_kept` writes it to the file too.
    pub(crate) fn add(&mut self, line: &str, is_kept: bool) {
        if line.trim().is_empty() || self.lines.last().is_some_and(|last| last == line) {
            return;
        }
        self.lines.push(line.to_owned());
        // A history that cannot be written is no reason to disturb a conversation.
        if is_kept && let Some(file) = &self.file {
            let _ = append(file, line);
        }
    }
}

fn append(file: &Path, line: &str) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        // The lines are the user's own.
        options.mode(0o600);
        builder.mode(0o700);
    }
    builder.create(folder)?;
    let is_new = !file.exists();
    writeln!(options.open(file)?, "{}", line.replace(['\n', '\r'], " "))?;
    if is_new {
        remove_oldest(folder)?;
    }
    Ok(())
}

fn remove_oldest(folder: &Path) -> std::io::Result<()> {
    let mut files: Vec<_> = fs::read_dir(folder)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    files.sort();
    let surplus = files.len().saturating_sub(MAX_THREADS);
    files[..surplus].iter().try_for_each(|(_, path)| fs::remove_file(path))
}

/// `$XDG_STATE_HOME/agentwire/history`, or the place of it in the home folder.
fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let state = named("XDG_STATE_HOME")
        .or_else(|| named("HOME").map(|home| home.join(".local/state")))
        .or_else(|| named("LOCALAPPDATA"))?;
    Some(state.join("agentwire").join("history"))
}

/// A thread as a file name: other characters than letters, digits and `-` are written as numbers.
fn file_name(thread: &str) -> String {
    let mut name = String::from("thread-");
    for byte in thread.bytes() {
        if name.len() >= MAX_NAME {
            break;
        }
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => name.push(byte.into()),
            other => name.push_str(&format!("_{other:02x}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_thread_are_found_again_and_bounded() {
        let folder = std::env::temp_dir().join(format!("agentwire-history-{}", std::process::id()));
        let mut history = History::in_folder(&folder, "a/../b");
        history.add("one", true);
        history.add("one", true);
        history.add("  ", true);
        history.add("secret answer", false);
        history.add("two\nlines", true);
        assert_eq!(history.lines(), ["one", "secret answer", "two\nlines"]);
        assert_eq!(History::in_folder(&folder, "a/../b").lines(), ["one", "two lines"]);
        assert!(History::in_folder(&folder, "another").lines().is_empty());
        for number in 0..MAX_LINES {
            history.add(&number.to_string(), true);
        }
        let again = History::in_folder(&folder, "a/../b");
        assert_eq!((again.lines().len(), &*again.lines()[0]), (MAX_LINES, "0"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let file = fs::metadata(folder.join(file_name("a/../b"))).unwrap();
            assert_eq!(file.permissions().mode() & 0o777, 0o600);
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
