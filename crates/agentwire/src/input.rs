//! Input of commands: a file or stdin, optionally gzipped, with a progress bar for large files.

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;

use agentwire_core::{
    format::Format,
    framing::{Foreign, Framing, recognize},
    source::{detect_format, likelier_format},
};

use crate::{
    error::{Class, Error, Result},
    progress,
};

/// Maximum number of bytes inspected to detect the framing or the format.
const PEEK_BYTES: usize = 64 << 10;

/// Bytes needed of a binary stream: the length prefix of its first frame.
const LENGTH_BYTES: usize = 4;

/// Size of one read.
pub(crate) const CHUNK: usize = 64 << 10;

/// An open input.
pub(crate) struct Input {
    reader: Box<dyn Read>,
    /// Bytes inspected by [`Input::framing`] and [`Input::format`] and not yet returned by [`Input::read`].
    peeked: Vec<u8>,
    /// The first bytes returned by [`Input::read`], for [`Input::similar_format`].
    start: Vec<u8>,
    is_at_end: bool,
    /// A read error during the inspection, reported after the inspected bytes.
    failure: Option<Error>,
    pub(crate) name: String,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
        let fail = |error: &io::Error| Error::new(Class::Io, format!("`{name}` could not be read: {error}"));
        let (raw, length): (Box<dyn Read>, _) = if path == Path::new("-") {
            if io::stdin().is_terminal() {
                eprintln!("note: reading from the terminal; Ctrl-D ends the input, `-h` shows the usage");
            }
            (Box::new(io::stdin()), None)
        } else {
            let file = File::open(path).map_err(|error| fail(&error))?;
            let metadata = file.metadata().map_err(|error| fail(&error))?;
            if metadata.is_dir() {
                return Err(Error::new(Class::Io, format!("`{name}` is a directory, expected a file")));
            }
            (Box::new(file), Some(metadata.len()))
        };
        let mut counted: Box<dyn Read> = match progress::start(length) {
            Some(bar) => Box::new(bar.wrap_read(raw)),
            None => raw,
        };
        let mut magic = Vec::new();
        while magic.len() < 2 {
            let mut byte = [0; 2];
            let missing = 2 - magic.len();
            match counted.read(&mut byte[..missing]) {
                Ok(0) => break,
                Ok(read) => magic.extend_from_slice(&byte[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(fail(&error)),
            }
        }
        let reader: Box<dyn Read> = if magic == [0x1f, 0x8b] {
            Box::new(MultiGzDecoder::new(io::Cursor::new(magic).chain(counted)))
        } else {
            Box::new(io::Cursor::new(magic).chain(counted))
        };
        Ok(Self { reader, peeked: Vec::new(), start: Vec::new(), is_at_end: false, failure: None, name })
    }

    /// Detects the framing from the first bytes, reading no more of a slow stream than necessary.
    ///
    /// # Errors
    /// A description of an input that is not a stream. A read error is deferred to [`Input::read`].
    pub(crate) fn framing(&mut self, allowed: &'static [Framing]) -> std::result::Result<Framing, Foreign> {
        let is_binary = allowed == [Framing::Prefixed];
        self.peek_until(|peeked| {
            let text_start = peeked.iter().position(|byte| !byte.is_ascii_whitespace());
            let has_line = text_start.is_some_and(|at| peeked[at..].contains(&b'\n'));
            has_line || is_binary && peeked.len() >= LENGTH_BYTES
        });
        match (recognize(&self.peeked, allowed), allowed) {
            // The unreadable part may have been a stream.
            (Err(foreign), [first, ..]) if foreign.is_empty() && self.failure.is_some() => Ok(*first),
            (found, _) => found,
        }
    }

    /// Detects the format from the first bytes, reading no more of a slow stream than necessary.
    pub(crate) fn format(&mut self) -> Option<&'static Format> {
        let mut found = None;
        self.peek_until(|peeked| {
            found = detect_format(peeked, false);
            found.is_some()
        });
        let is_whole = self.is_at_end;
        found.or_else(|| detect_format(&self.peeked, is_whole)).map(|(format, _)| format)
    }

    /// The format that the input read so far fits better than `format`. An input that was refused by its framing is
    /// inspected up to its first events.
    pub(crate) fn similar_format(&mut self, format: &Format) -> Option<&'static str> {
        if self.start.is_empty() {
            self.format();
        }
        let start = if self.start.is_empty() { &self.peeked } else { &self.start };
        let is_whole = self.is_at_end && start.len() < PEEK_BYTES;
        likelier_format(start, is_whole, format).map(|found| found.name)
    }

    /// Reads ahead until `is_enough`, the end, an error or the maximum.
    fn peek_until(&mut self, mut is_enough: impl FnMut(&[u8]) -> bool) {
        let mut chunk = vec![0; PEEK_BYTES];
        while self.peeked.len() < PEEK_BYTES
            && !self.is_at_end
            && self.failure.is_none()
            && (self.peeked.is_empty() || !is_enough(&self.peeked))
        {
            match self.fill(&mut chunk) {
                Ok(read) => self.peeked.extend_from_slice(&chunk[..read]),
                Err(error) => self.failure = Some(error),
            }
        }
    }

    /// Reads the next bytes; 0 at the end.
    pub(crate) fn read(&mut self, chunk: &mut [u8]) -> Result<usize> {
        if !self.peeked.is_empty() {
            let length = self.peeked.len().min(chunk.len());
            chunk[..length].copy_from_slice(&self.peeked[..length]);
            self.peeked.drain(..length);
            self.keep_start(&chunk[..length]);
            return Ok(length);
        }
        match self.failure.take() {
            Some(error) => Err(error),
            None => {
                let read = self.fill(chunk)?;
                self.keep_start(&chunk[..read]);
                Ok(read)
            }
        }
    }

    fn keep_start(&mut self, read: &[u8]) {
        let missing = PEEK_BYTES - self.start.len();
        self.start.extend_from_slice(&read[..read.len().min(missing)]);
    }

    fn fill(&mut self, chunk: &mut [u8]) -> Result<usize> {
        loop {
            match self.reader.read(chunk) {
                Ok(read) => {
                    if read == 0 {
                        self.is_at_end = true;
                        progress::finish();
                    }
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    progress::finish();
                    return Err(Error::new(Class::Io, format!("`{}` could not be read: {error}", self.name)));
                }
            }
        }
    }
}
