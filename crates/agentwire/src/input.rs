//! Opens what is to be read: a file or stdin, gzip or not, with a progress bar where waiting is likely.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;

use agentwire_core::framing::{Foreign, Framing, recognize};

use crate::{
    error::{Class, Error, Result},
    progress,
};

/// How much of a stream is looked at to tell its framing.
const PEEK: usize = 64 << 10;

/// How much of a binary stream is looked at: the length of its first frame.
const LENGTH: usize = 4;

/// How much is read at once.
pub(crate) const CHUNK: usize = 64 << 10;

/// An open input.
pub(crate) struct Input {
    reader: Box<dyn Read>,
    /// What was read to look at it.
    start: Vec<u8>,
    /// Why no more could be read while looking.
    failure: Option<Error>,
    pub(crate) name: String,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
        let fail = |error: &io::Error| Error::new(Class::Io, format!("`{name}` could not be read: {error}"));
        let (raw, length): (Box<dyn Read>, _) = if path == Path::new("-") {
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
            let wanted = 2 - magic.len();
            match counted.read(&mut byte[..wanted]) {
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
        Ok(Self { reader, start: Vec::new(), failure: None, name })
    }

    /// Tells the framing from the first bytes, without waiting for more of a slow stream than it needs, or what
    /// the input is instead. A failure to read waits for [`Input::read`], behind what came before it.
    pub(crate) fn framing(&mut self, allowed: &'static [Framing]) -> std::result::Result<Framing, Foreign> {
        let binary = allowed == [Framing::Prefixed];
        let mut chunk = vec![0; PEEK];
        loop {
            let read = match self.fill(&mut chunk) {
                Ok(read) => read,
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            };
            self.start.extend_from_slice(&chunk[..read]);
            let text_begins = self.start.iter().position(|byte| !byte.is_ascii_whitespace());
            let line = text_begins.is_some_and(|at| self.start[at..].contains(&b'\n'));
            let length = binary && self.start.len() >= LENGTH;
            if read == 0 || line || length || self.start.len() >= PEEK {
                break;
            }
        }
        match (recognize(&self.start, allowed), allowed) {
            // What could not be read may have been a stream.
            (Err(foreign), [first, ..]) if foreign.is_empty() && self.failure.is_some() => Ok(*first),
            (found, _) => found,
        }
    }

    /// The next bytes; 0 at the end.
    pub(crate) fn read(&mut self, chunk: &mut [u8]) -> Result<usize> {
        if !self.start.is_empty() {
            let length = self.start.len().min(chunk.len());
            chunk[..length].copy_from_slice(&self.start[..length]);
            self.start.drain(..length);
            return Ok(length);
        }
        match self.failure.take() {
            Some(error) => Err(error),
            None => self.fill(chunk),
        }
    }

    fn fill(&mut self, chunk: &mut [u8]) -> Result<usize> {
        loop {
            match self.reader.read(chunk) {
                Ok(read) => {
                    if read == 0 {
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
