//! Keys and one line of input.
//!
//! The terminal is in raw mode for the whole conversation, so that a person can type while a run streams. crossterm reads
//! the keys and sets the mode on all systems; the editor itself is small enough to own.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crossterm::{
    event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    terminal,
};
use tokio::sync::mpsc;

use super::{
    history::History,
    style::{is_printable, width},
};

/// The longest wait for a key before the thread looks whether it is still needed.
const POLL: Duration = Duration::from_millis(50);

/// Keys of the terminal, in raw mode until dropped.
pub(crate) struct Keys {
    receiver: mpsc::UnboundedReceiver<Key>,
    is_stopped: Arc<AtomicBool>,
    history: History,
    /// Lines that were typed during a run, for the next prompts, and the line that was begun.
    typed_ahead: VecDeque<String>,
    draft: String,
}

/// A key that the client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Letter(char),
    Paste(String),
    Enter,
    Backspace,
    Delete,
    Left,
    Right,
    Home,
    End,
    Up,
    Down,
    EraseLine,
    EraseWord,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    Eof,
}

/// The result of reading a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Text(String),
    Interrupt,
    Eof,
}

impl Keys {
    pub(crate) fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match event::poll(POLL) {
                    Ok(false) => {}
                    Ok(true) => match event::read() {
                        Ok(event) => {
                            if let Some(key) = key(event)
                                && sender.send(key).is_err()
                            {
                                return;
                            }
                        }
                        Err(_) => return,
                    },
                    Err(_) => return,
                }
            }
        });
        Ok(Self {
            receiver,
            is_stopped,
            history: History::default(),
            typed_ahead: VecDeque::new(),
            draft: String::new(),
        })
    }

    /// The next key; Ctrl-D if the terminal is gone.
    pub(crate) async fn next(&mut self) -> Key {
        self.receiver.recv().await.unwrap_or(Key::Eof)
    }

    /// Takes the lines of a thread.
    pub(crate) fn set_history(&mut self, history: History) {
        self.history = history;
    }

    /// Keeps a line that was typed during a run.
    pub(crate) fn type_ahead(&mut self, line: String) {
        self.typed_ahead.push_back(line);
    }

    /// Keeps the line that was begun during a run.
    pub(crate) fn begin_with(&mut self, draft: String) {
        self.draft = draft;
    }

    /// Reads a message: one that was typed during the last run, or the next line.
    pub(crate) async fn message(&mut self, prompt: &str) -> Line {
        if let Some(text) = self.typed_ahead.pop_front() {
            write(&format!("{prompt}{text}\n"));
            self.history.add(&text, true);
            return Line::Text(text);
        }
        let draft = std::mem::take(&mut self.draft);
        self.read(prompt, &draft, true).await
    }

    /// Reads a line behind a prompt. It is not kept in the file of the history: it may be an answer of any kind.
    pub(crate) async fn line(&mut self, prompt: &str, draft: &str) -> Line {
        self.read(prompt, draft, false).await
    }

    async fn read(&mut self, prompt: &str, draft: &str, is_kept: bool) -> Line {
        let mut line = LineBuffer::new(draft);
        let mut recalled = self.history.lines().len();
        loop {
            line.draw(prompt);
            let key = self.next().await;
            match key {
                Key::Enter => {
                    write("\r\n");
                    let text = line.text();
                    self.history.add(&text, is_kept);
                    return Line::Text(text);
                }
                Key::Interrupt if line.letters.is_empty() => {
                    write("\r\n");
                    return Line::Interrupt;
                }
                Key::Interrupt => line = LineBuffer::new(""),
                Key::Eof if line.letters.is_empty() => {
                    write("\r\n");
                    return Line::Eof;
                }
                Key::Up if recalled > 0 => {
                    recalled -= 1;
                    line = LineBuffer::new(&self.history.lines()[recalled]);
                }
                Key::Down if recalled < self.history.lines().len() => {
                    recalled += 1;
                    line = LineBuffer::new(self.history.lines().get(recalled).map_or("", String::as_str));
                }
                key => line.edit(&key),
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let _ = terminal::disable_raw_mode();
    }
}

/// Writes to the terminal. In raw mode a line break needs a carriage return.
pub(crate) fn write(text: &str) {
    let mut out = io::stdout().lock();
    let is_raw = terminal::is_raw_mode_enabled().unwrap_or(false);
    let written = if is_raw {
        out.write_all(text.replace("\r\n", "\n").replace('\n', "\r\n").as_bytes())
    } else {
        out.write_all(text.as_bytes())
    };
    let _ = written.and_then(|()| out.flush());
}

/// The number of columns of the terminal.
pub(crate) fn columns() -> usize {
    terminal::size().map_or(80, |(columns, _)| usize::from(columns)).max(20)
}

fn key(event: Event) -> Option<Key> {
    let key = match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        Event::Paste(text) => return Some(Key::Paste(text)),
        _ => return None,
    };
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if is_control => Key::Interrupt,
        KeyCode::Char('d') if is_control => Key::Eof,
        KeyCode::Char('a') if is_control => Key::Home,
        KeyCode::Char('e') if is_control => Key::End,
        KeyCode::Char('u') if is_control => Key::EraseLine,
        KeyCode::Char('w') if is_control => Key::EraseWord,
        KeyCode::Char('j' | 'm') if is_control => Key::Enter,
        KeyCode::Char('h') if is_control => Key::Backspace,
        KeyCode::Char(letter) if !is_control => Key::Letter(letter),
        KeyCode::Enter => Key::Enter,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Delete => Key::Delete,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        _ => return None,
    })
}

/// A line under edit.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    letters: Vec<char>,
    at: usize,
}

impl LineBuffer {
    pub(crate) fn new(text: &str) -> Self {
        let letters: Vec<char> = text.chars().collect();
        Self { at: letters.len(), letters }
    }

    pub(crate) fn text(&self) -> String {
        self.letters.iter().collect()
    }

    pub(crate) fn edit(&mut self, key: &Key) {
        match key {
            Key::Letter(letter) => self.insert(*letter),
            Key::Paste(text) => {
                text.chars()
                    .for_each(|letter| self.insert(if letter.is_whitespace() { ' ' } else { letter }));
            }
            Key::Backspace if self.at > 0 => {
                self.at -= 1;
                self.letters.remove(self.at);
            }
            Key::Delete | Key::Eof if self.at < self.letters.len() => {
                self.letters.remove(self.at);
            }
            Key::Left => self.at = self.at.saturating_sub(1),
            Key::Right => self.at = (self.at + 1).min(self.letters.len()),
            Key::Home => self.at = 0,
            Key::End => self.at = self.letters.len(),
            Key::EraseLine => {
                self.letters.drain(..self.at);
                self.at = 0;
            }
            Key::EraseWord => {
                let before = &self.letters[..self.at];
                let end = before.iter().rposition(|letter| !letter.is_whitespace()).map_or(0, |at| at + 1);
                let start =
                    before[..end].iter().rposition(|letter| letter.is_whitespace()).map_or(0, |at| at + 1);
                self.letters.drain(start..self.at);
                self.at = start;
            }
            _ => {}
        }
    }

    fn insert(&mut self, letter: char) {
        if is_printable(letter) {
            self.letters.insert(self.at, letter);
            self.at += 1;
        }
    }

    /// Draws the line; of one that is too long, the part around the cursor.
    fn draw(&self, prompt: &str) {
        let room = columns().saturating_sub(width(prompt) + 1).max(4);
        let (shown, cursor) = self.visible(room);
        write(&format!("\r\x1b[K{prompt}{shown}\r\x1b[{}C", width(prompt) + cursor));
    }

    /// The letters that fit, and the column of the cursor among them.
    fn visible(&self, room: usize) -> (String, usize) {
        let columns_of = |letters: &[char]| width(&letters.iter().collect::<String>());
        let mut from = 0;
        while columns_of(&self.letters[from..self.at]) > room {
            from += 1;
        }
        let mut to = self.letters.len();
        while columns_of(&self.letters[from..to]) > room {
            to -= 1;
        }
        (self.letters[from..to.max(from)].iter().collect(), columns_of(&self.letters[from..self.at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[Key]) -> LineBuffer {
        let mut line = LineBuffer::new("");
        keys.iter().for_each(|key| line.edit(key));
        line
    }

    #[test]
    fn wide_letters_move_the_cursor_two_columns() {
        let line = typed(&[Key::Letter('你'), Key::Letter('好'), Key::Left]);
        assert_eq!(line.visible(20), ("你好".into(), 2));
        let long = LineBuffer::new(&"长".repeat(30));
        let (shown, cursor) = long.visible(10);
        assert_eq!((shown.as_str(), cursor), ("长长长长长", 10));
    }

    #[test]
    fn words_and_lines_are_erased() {
        let mut line = LineBuffer::new("one two  ");
        line.edit(&Key::EraseWord);
        assert_eq!(line.text(), "one ");
        line.edit(&Key::Home);
        line.edit(&Key::Delete);
        assert_eq!(line.text(), "ne ");
        line.edit(&Key::End);
        line.edit(&Key::EraseLine);
        assert_eq!(line.text(), "");
        assert_eq!(typed(&[Key::Paste("a\nb".into()), Key::Backspace]).text(), "a ");
    }
}
