//! A recording in memory: the events of a file in any format.

use std::path::Path;

use agentwire_core::{
    event::{Event, StreamEnd},
    format::{Format, ag_ui},
    framing::Framing,
    source::{GuardedSource, SourceOptions},
};

use crate::{
    error::{Class, Error, Result},
    formats,
    input::{CHUNK, Input},
};

/// The events of a recording, after the guard.
pub(crate) struct Recording {
    pub(crate) format: &'static Format,
    pub(crate) framing: Framing,
    pub(crate) events: Vec<Event>,
}

impl Recording {
    /// Reads a file; a malformed one is an error with its position.
    pub(crate) fn read(path: &Path, from: Option<&str>, max_frame: usize) -> Result<Self> {
        let mut input = Input::open(path)?;
        let named = from.map(formats::reader).transpose()?;
        let Some(format) = named.or_else(|| input.format()) else {
            let error = Error::new(Class::Input, format!("`{}` is in no known format", input.name));
            return Err(error.hint("`agentwire formats` lists the formats"));
        };
        let fail = |name: &str, problem: &dyn std::fmt::Display| {
            Error::new(Class::Input, format!("`{name}` is no recording in `{}`: {problem}", format.name))
        };
        let framing = input.framing(format.reads).map_err(|foreign| fail(&input.name, &foreign))?;
        let options = SourceOptions { max_frame, ..SourceOptions::default() };
        let mut source = GuardedSource::new(format, framing, &options).expect("the format has a reader");
        let mut events = Vec::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = input.read(&mut chunk)?;
            let mut sink = |event| events.push(event);
            let result = match read {
                0 => source.end(&StreamEnd::Closed, &mut sink),
                read => source.push(&chunk[..read], &mut sink),
            };
            result.map_err(|error| fail(&input.name, &error))?;
            if read == 0 {
                return Ok(Self { format, framing, events });
            }
        }
    }

    /// The format in which the recording can be written: its own if that expresses every event, or AG-UI. The writer of
    /// `langgraph` is for user interfaces.
    pub(crate) fn writable_format(&self) -> &'static Format {
        let is_whole = self.format.writer.is_some() && self.format.name != "langgraph";
        if is_whole { self.format } else { &ag_ui::FORMAT }
    }
}
